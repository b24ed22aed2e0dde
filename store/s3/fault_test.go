package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shardify/store"
	"shardify/store/retry"
	"shardify/store/s3"
	"shardify/store/s3/s3test"
)

const bucketURL = "s3://" + s3test.Bucket

func random(seed uint64, n int) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{0: byte(seed)}).Read(p)
	return p
}

func write(t testing.TB, s store.Store, name string, data []byte) {
	t.Helper()
	if err := store.WriteAll(t.Context(), s, name, data); err != nil {
		t.Fatal(err)
	}
}

// uploads counts what unfinished uploads have left on the server's disk.
func uploads(t testing.TB, server *s3test.Server) (n int) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(server.Dir, s3test.Bucket, ".sgwtmp", "multipart"), func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && !d.IsDir() {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Reading through every fault gives the same bytes.
func TestReadFaults(t *testing.T) {
	server := s3test.Start(t)
	data := random(1, 1<<20)
	server.Setenv(t, server.Endpoint)
	write(t, newStore(t, bucketURL+"/x", s3.Config{}), "a", data)
	faults := []s3test.Fault{
		{Status: 500, Code: "InternalError"}, {Status: 503, Code: "SlowDown"}, {Status: 503, Code: "ServiceUnavailable"},
		{Reset: true}, {Lose: true}, {Cut: 1}, {Cut: 1000}, {Shift: 7}, {Stall: time.Minute},
	}
	for _, fault := range faults {
		var hit atomic.Int64
		front := server.Front(t, func(r s3test.Request) s3test.Fault {
			if hit.Add(1)%3 != 0 {
				return fault
			}
			return s3test.Fault{}
		})
		t.Setenv("AWS_ENDPOINT_URL_S3", front.URL)
		c := retry.Config{Backoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond}
		if fault.Stall > 0 {
			c.Timeout = 500 * time.Millisecond
		}
		s, err := retry.New(newStore(t, bucketURL+"/x", s3.Config{}), c)
		if err != nil {
			t.Fatal(err)
		}
		o, err := s.Open(t.Context(), "a")
		if err != nil {
			t.Fatalf("%+v: %v", fault, err)
		}
		r := rand.New(rand.NewPCG(1, 2))
		for range 4 {
			off, n := r.IntN(len(data)), r.IntN(200_000)
			n = min(n, len(data)-off)
			p := make([]byte, n)
			if got, err := o.ReadAt(t.Context(), p, int64(off)); got != n || err != nil && err != io.EOF || !bytes.Equal(p, data[off:off+n]) {
				t.Errorf("%+v: ReadAt(%d, %d) = %d, %v", fault, n, off, got, err)
			}
		}
		if fault.Cut == 0 {
			names := 0
			for _, err := range s.List(t.Context(), "") {
				if err != nil {
					t.Errorf("%+v: %v", fault, err)
				}
				names++
			}
			if names != 1 {
				t.Errorf("%+v: the store lists %d objects", fault, names)
			}
		}
		if s.Stats().Retries == 0 {
			t.Errorf("%+v: nothing was retried", fault)
		}
		o.Close()
	}
}

// A write through faults leaves the whole object, and one that fails for good leaves no
// object and no part.
func TestWriteFaults(t *testing.T) {
	server := s3test.Start(t)
	server.Setenv(t, server.Endpoint)
	plain := newStore(t, bucketURL+"/x", s3.Config{})
	large, small := random(1, 11<<20), random(2, 1000)
	once := func(fault s3test.Fault, match func(s3test.Request) bool) func(s3test.Request) s3test.Fault {
		var done atomic.Bool
		return func(r s3test.Request) s3test.Fault {
			if match(r) && done.CompareAndSwap(false, true) {
				return fault
			}
			return s3test.Fault{}
		}
	}
	requests := map[string]func(s3test.Request) bool{
		"put": func(r s3test.Request) bool {
			return r.Method == http.MethodPut && !strings.Contains(r.Query, "partNumber")
		},
		"begin": func(r s3test.Request) bool {
			return r.Method == http.MethodPost && strings.Contains(r.Query, "uploads")
		},
		"part": func(r s3test.Request) bool {
			return r.Method == http.MethodPut && strings.Contains(r.Query, "partNumber=2")
		},
		"complete": func(r s3test.Request) bool {
			return r.Method == http.MethodPost && strings.Contains(r.Query, "uploadId")
		},
	}
	var wg sync.WaitGroup
	each := func(kind string, match func(s3test.Request) bool) {
		data := large
		if kind == "put" {
			data = small
		}
		for i, fault := range []s3test.Fault{{Status: 503, Code: "SlowDown"}, {Status: 500, Code: "InternalError"}, {Reset: true}, {Lose: true}, {Stall: time.Minute}} {
			name := fmt.Sprintf("%s-%d", kind, i)
			front := server.Front(t, once(fault, match))
			s := newStore(t, bucketURL+"/x", s3.Config{Endpoint: front.URL, PartSize: 5 << 20, Timeout: 1500 * time.Millisecond})
			if err := store.WriteAll(t.Context(), s, name, data); err != nil {
				t.Errorf("%s: %+v: %v", kind, fault, err)
				continue
			}
			got, err := store.ReadAll(t.Context(), plain, name, 1<<30)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: %+v: %d bytes, %v", kind, fault, len(got), err)
			}
		}
		// Denied for good.
		front := server.Front(t, func(r s3test.Request) s3test.Fault {
			if match(r) {
				return s3test.Fault{Status: 403, Code: "AccessDenied"}
			}
			return s3test.Fault{}
		})
		s := newStore(t, bucketURL+"/x", s3.Config{Endpoint: front.URL, PartSize: 5 << 20})
		err := store.WriteAll(t.Context(), s, "denied-"+kind, data)
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "x/denied-") {
			t.Errorf("%s: denied: %v", kind, err)
		}
		if _, err := plain.Open(t.Context(), "denied-"+kind); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: denied: Open says %v", kind, err)
		}
	}
	for kind, match := range requests {
		wg.Go(func() { each(kind, match) })
	}
	wg.Wait()
	// An upload whose first attempt happened, although its answer was lost, is there
	// once more; a Sweep ends it.
	if err := plain.Sweep(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if n := uploads(t, server); n != 0 {
		t.Errorf("%d files of unfinished uploads are left", n)
	}
}

// A Commit after a Write that failed leaves no object, least of all a part of one.
func TestCommitAfterFailedWrite(t *testing.T) {
	server := s3test.Start(t)
	server.Setenv(t, server.Endpoint)
	var deny atomic.Bool
	front := server.Front(t, func(s3test.Request) s3test.Fault {
		if deny.Load() {
			return s3test.Fault{Status: 403, Code: "AccessDenied"}
		}
		return s3test.Fault{}
	})
	s := newStore(t, bucketURL, s3.Config{Endpoint: front.URL, PartSize: 5 << 20})
	w, err := s.Create(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	deny.Store(true)
	if _, err := w.Write(random(1, 6<<20)); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Write: %v", err)
	}
	deny.Store(false)
	if err := w.Commit(t.Context()); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Commit: %v", err)
	}
	if _, err := s.Open(t.Context(), "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after that Open says %v", err)
	}
}

// Each kind of checksum is one that the server accepts, of parts and of the whole.
func TestChecksum(t *testing.T) {
	server := s3test.Start(t)
	server.Setenv(t, server.Endpoint)
	for _, sum := range []string{s3.ChecksumCRC64NVME, s3.ChecksumCRC32C, s3.ChecksumNone} {
		for _, size := range []int{1000, 11 << 20} {
			s := newStore(t, bucketURL+"/"+sum, s3.Config{PartSize: 5 << 20, Checksum: sum})
			data := random(1, size)
			write(t, s, "a", data)
			if got, err := store.ReadAll(t.Context(), s, "a", 1<<30); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: %d bytes: %v", sum, len(got), err)
			}
		}
	}
}

// Where the server turns away what is more than eight requests at once, fewer are sent,
// and what was turned away is read all the same.
func TestThrottled(t *testing.T) {
	server := s3test.Start(t)
	server.Setenv(t, server.Endpoint)
	data := random(1, 1<<20)
	write(t, newStore(t, bucketURL, s3.Config{}), "a", data)
	var now, away atomic.Int64
	front := server.Front(t, func(r s3test.Request) s3test.Fault {
		defer now.Add(-1)
		if now.Add(1) > 8 {
			away.Add(1)
			return s3test.Fault{Status: 503, Code: "SlowDown"}
		}
		time.Sleep(10 * time.Millisecond)
		return s3test.Fault{}
	})
	s, err := retry.New(newStore(t, bucketURL, s3.Config{Endpoint: front.URL}), retry.Config{Backoff: time.Millisecond, MaxBackoff: 50 * time.Millisecond, Attempts: 100})
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			p := make([]byte, 1000)
			for k := range 20 {
				off := (i*20 + k) * 800
				if n, err := o.ReadAt(t.Context(), p, int64(off)); n != len(p) || err != nil || !bytes.Equal(p, data[off:off+n]) {
					t.Errorf("ReadAt(%d) = %d, %v", off, n, err)
				}
			}
		})
	}
	wg.Wait()
	stats := s.Stats()
	t.Logf("%d turned away, %d at once in the end", away.Load(), stats.Reads)
	if away.Load() == 0 || stats.Throttled != away.Load() || stats.Reads > 16 {
		t.Errorf("%d were turned away; %+v", away.Load(), stats)
	}
}

// Stores that are opened one after the other use the same connections.
func TestConnections(t *testing.T) {
	server := s3test.Start(t)
	front := server.Front(t, nil)
	server.Setenv(t, front.URL)
	write(t, newStore(t, bucketURL, s3.Config{}), "a", random(1, 1000))
	for range 20 {
		if _, err := store.ReadAll(t.Context(), newStore(t, bucketURL, s3.Config{}), "a", 1000); err != nil {
			t.Fatal(err)
		}
	}
	// The server's end of one that the client has closed may be open for a moment.
	if open, _ := front.Connections(); open > 3 {
		t.Errorf("%d connections are open", open)
	}
}

// Uploads hold no more memory than they say, and slots are given back.
func TestUploadsBounded(t *testing.T) {
	server := s3test.Start(t)
	server.Setenv(t, server.Endpoint)
	var now, most atomic.Int64
	front := server.Front(t, func(r s3test.Request) s3test.Fault {
		if strings.Contains(r.Query, "partNumber") {
			for n := now.Add(1); ; {
				old := most.Load()
				if n <= old || most.CompareAndSwap(old, n) {
					break
				}
			}
			time.Sleep(20 * time.Millisecond)
			now.Add(-1)
		}
		return s3test.Fault{}
	})
	s := newStore(t, bucketURL, s3.Config{Endpoint: front.URL, PartSize: 5 << 20, Uploads: 2})
	data := random(1, 21<<20)
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			if err := store.WriteAll(t.Context(), s, fmt.Sprint(i), data); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if most.Load() > 2 {
		t.Errorf("%d parts were under way at once; want 2 at most", most.Load())
	}
	for i := range 3 {
		if got, err := store.ReadAll(t.Context(), s, fmt.Sprint(i), 1<<30); err != nil || !bytes.Equal(got, data) {
			t.Errorf("object %d: %d bytes, %v", i, len(got), err)
		}
	}
	stacks := make([]byte, 1<<20)
	if stacks = stacks[:runtime.Stack(stacks, true)]; bytes.Contains(stacks, []byte("s3.(*writer)")) {
		t.Errorf("a writer's goroutine is left:\n%s", stacks)
	}
}

// Of what a killed writer leaves, Sweep leaves nothing, and Unfinished says before what
// there is.
func TestSweepOfAnotherProcess(t *testing.T) {
	for name, start := range s3test.Servers() {
		t.Run(name, func(t *testing.T) { sweepAnother(t, start(t)) })
	}
}

func sweepAnother(t *testing.T, server *s3test.Server) {
	server.Setenv(t, server.Endpoint)
	all := newStore(t, bucketURL, s3.Config{})
	parts := func(s *s3.Store, prefix string) (n int64) {
		for u, err := range s.Unfinished(t.Context(), prefix) {
			if err != nil {
				t.Fatal(err)
			}
			n += u.Size / (5 << 20)
		}
		return n
	}
	killed := newStore(t, bucketURL+"/x", s3.Config{PartSize: 5 << 20})
	w, err := killed.Create(t.Context(), "d/a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(random(1, 11<<20)); err != nil {
		t.Fatal(err)
	}
	// A killed process has no part under way: one that lands after the abort
	// would make the upload anew.
	for deadline := time.Now().Add(time.Minute); parts(all, "") < 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of the 2 whole parts are there", parts(all, ""))
		}
	}
	other := newStore(t, bucketURL+"/x", s3.Config{})
	for prefix, want := range map[string]int64{"": 2, "d": 2, "d/": 2, "d/a": 2, "d/a/": 0, "e": 0, "x": 0} {
		if n := parts(other, prefix); n != want {
			t.Errorf("%d parts below %q, want %d", n, prefix, want)
		}
	}
	if err := other.Sweep(t.Context(), "e"); err != nil || parts(all, "") != 2 {
		t.Fatalf("a Sweep of another prefix: %v, %d parts left", err, parts(all, ""))
	}
	if err := newStore(t, bucketURL+"/y", s3.Config{}).Sweep(t.Context(), ""); err != nil || parts(all, "") != 2 {
		t.Fatalf("a Sweep of another store: %v, %d parts left", err, parts(all, ""))
	}
	if err := other.Sweep(t.Context(), "d/"); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Commit after Sweep: %v", err)
	}
	if n := parts(all, ""); n != 0 {
		t.Errorf("%d parts are left", n)
	}
}

// A lock outlives its process by a lease; one that is renewed does not end.
func TestLockExpires(t *testing.T) {
	server := s3test.Start(t)
	var cut atomic.Bool // the first process is dead, or cannot be heard
	front := server.Front(t, func(r s3test.Request) s3test.Fault {
		if cut.Load() {
			return s3test.Fault{Status: 403, Code: "AccessDenied"}
		}
		return s3test.Fault{}
	})
	server.Setenv(t, server.Endpoint)
	first := newStore(t, bucketURL, s3.Config{Endpoint: front.URL, Lease: 2 * time.Second})
	second := newStore(t, bucketURL, s3.Config{Lease: 2 * time.Second})
	unlock, err := first.Lock(t.Context(), "lock", "the first")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // it is renewed
	cut.Store(true)
	began := time.Now()
	for {
		other, err := second.Lock(t.Context(), "lock", "the second")
		if err == nil {
			defer other()
			break
		}
		if !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), "the first") || !strings.Contains(err.Error(), "ends within") {
			t.Fatal(err)
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal("the lock of a dead process does not end")
		}
		time.Sleep(200 * time.Millisecond)
	}
	if took := time.Since(began); took < 1500*time.Millisecond {
		t.Errorf("the lock was taken over after %v", took)
	}
	cut.Store(false)
	if err := unlock(); !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), "the second") {
		t.Errorf("unlock of a lock that was lost: %v", err)
	}
	if _, err := first.Lock(t.Context(), "lock", "the first again"); !errors.Is(err, store.ErrLocked) {
		t.Errorf("after unlock of a lock that was lost, Lock says %v", err)
	}
}

// An unlock whose answer got lost, and before whose second attempt another has taken the
// lock, has unlocked.
func TestUnlockAnswerLost(t *testing.T) {
	server := s3test.Start(t)
	server.Setenv(t, server.Endpoint)
	second := newStore(t, bucketURL, s3.Config{})
	var unlockSecond func() error
	removals := 0
	front := server.Front(t, func(r s3test.Request) s3test.Fault {
		if r.Method != http.MethodDelete {
			return s3test.Fault{}
		}
		if removals++; removals == 1 {
			return s3test.Fault{Lose: true}
		}
		if unlockSecond == nil {
			var err error
			if unlockSecond, err = second.Lock(context.Background(), "lock", "the second"); err != nil {
				t.Error(err)
			}
		}
		return s3test.Fault{}
	})
	first := newStore(t, bucketURL, s3.Config{Endpoint: front.URL})
	unlock, err := first.Lock(t.Context(), "lock", "the first")
	if err != nil {
		t.Fatal(err)
	}
	if err := unlock(); err != nil {
		t.Errorf("unlock: %v", err)
	}
	if unlockSecond == nil {
		t.Fatalf("%d removals were asked for, none of them again", removals)
	}
	if _, err := first.Lock(t.Context(), "lock", "the first again"); !errors.Is(err, store.ErrLocked) {
		t.Errorf("the second has the lock, and the first gets %v", err)
	}
	if err := unlockSecond(); err != nil {
		t.Error(err)
	}
}

// A server that ignores conditions is found out.
func TestLockWithoutConditions(t *testing.T) {
	server := s3test.Start(t)
	server.Setenv(t, server.Endpoint)
	front := server.Front(t, func(r s3test.Request) s3test.Fault {
		if r.Method == http.MethodPut { // it takes everything
			return s3test.Fault{Status: 200, Header: map[string]string{"ETag": `"x"`}}
		}
		return s3test.Fault{}
	})
	s := newStore(t, bucketURL, s3.Config{Endpoint: front.URL})
	if _, err := s.Lock(t.Context(), "lock", "x"); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "SHARDIFY_S3_NO_LOCKS") {
		t.Errorf("Lock: %v", err)
	}
	t.Setenv("SHARDIFY_S3_NO_LOCKS", "1")
	c, err := s3.Config{Endpoint: front.URL}.Environment()
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := newStore(t, bucketURL, c).Lock(t.Context(), "lock", "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}

// Credentials that expire are read anew from the file that somebody has written them
// into.
func TestExpiredCredentials(t *testing.T) {
	server := s3test.Start(t)
	server.Setenv(t, server.Endpoint)
	write(t, newStore(t, bucketURL, s3.Config{}), "a", random(1, 100_000))
	file := filepath.Join(t.TempDir(), "credentials")
	login := func(token string) {
		text := fmt.Sprintf("[default]\naws_access_key_id=%s\naws_secret_access_key=%s\n%s", server.Access, server.Secret, token)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	var old atomic.Bool
	front := server.Front(t, func(s3test.Request) s3test.Fault {
		if old.Load() {
			return s3test.Fault{Status: 400, Code: "ExpiredToken"}
		}
		return s3test.Fault{}
	})
	front.Header = func(h http.Header) {
		// The server knows no tokens; the front plays the part of one that does.
		old.Store(h.Get("X-Amz-Security-Token") == "old")
		h.Del("X-Amz-Security-Token")
	}
	login("")
	s := newStore(t, bucketURL, s3.Config{Endpoint: front.URL})
	o, err := s.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()

	login("aws_session_token=old\n")
	s = newStore(t, bucketURL, s3.Config{Endpoint: front.URL})
	_, err = s.Open(t.Context(), "a")
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "expired") {
		t.Errorf("with credentials that have expired: %v", err)
	}
	s = newStore(t, bucketURL, s3.Config{Endpoint: front.URL})
	login("")
	if _, err = s.Open(t.Context(), "a"); err != nil {
		t.Errorf("with new ones in the file: %v", err)
	}
}

// Errors say what to do, wrap what they should, and are final where they should be.
func TestErrors(t *testing.T) {
	server := s3test.Start(t)
	server.Setenv(t, server.Endpoint)
	for _, c := range []struct {
		fault s3test.Fault
		is    error
		says  []string
	}{
		{s3test.Fault{Status: 404, Code: "NoSuchKey"}, fs.ErrNotExist, []string{"NoSuchKey"}},
		{s3test.Fault{Status: 404, Code: "NoSuchBucket"}, fs.ErrNotExist, []string{"no bucket \"data\"", "AWS_ENDPOINT_URL_S3"}},
		{s3test.Fault{Status: 403, Code: "AccessDenied"}, fs.ErrPermission, []string{"docs/s3.md", "SHARDIFY_S3_REQUESTER_PAYS"}},
		{s3test.Fault{Status: 403, Code: "SignatureDoesNotMatch"}, fs.ErrPermission, []string{"AWS_SECRET_ACCESS_KEY"}},
		{s3test.Fault{Status: 403, Code: "InvalidAccessKeyId"}, fs.ErrPermission, []string{"AWS_ACCESS_KEY_ID"}},
		{s3test.Fault{Status: 404, Code: "XAdminUserNotFound"}, fs.ErrPermission, []string{"AWS_ACCESS_KEY_ID"}},
		{s3test.Fault{Status: 400, Code: "ExpiredToken"}, fs.ErrPermission, []string{"aws sso login"}},
		{s3test.Fault{Status: 403, Code: "RequestTimeTooSkewed"}, fs.ErrPermission, []string{"clock"}},
		{s3test.Fault{Status: 301, Code: "PermanentRedirect", Header: map[string]string{"X-Amz-Bucket-Region": "eu-west-3"}}, fs.ErrInvalid, []string{"AWS_REGION=eu-west-3", "us-east-1"}},
		{s3test.Fault{Status: 400, Code: "AuthorizationHeaderMalformed"}, fs.ErrInvalid, []string{"AWS_REGION"}},
		{s3test.Fault{Status: 507, Code: "InsufficientStorage"}, store.ErrNoSpace, nil},
		{s3test.Fault{Status: 501, Code: "NotImplemented"}, errors.ErrUnsupported, []string{"docs/s3.md"}},
		{s3test.Fault{Status: 400, Code: "InvalidArgument"}, fs.ErrInvalid, []string{"InvalidArgument", "injected"}},
		{s3test.Fault{Status: 503, Code: "SlowDown"}, nil, []string{"fewer requests"}},
	} {
		front := server.Front(t, func(s3test.Request) s3test.Fault { return c.fault })
		s := newStore(t, bucketURL+"/x", s3.Config{Endpoint: front.URL})
		_, err := s.Open(t.Context(), "some/name")
		var ours *s3.Error
		if !errors.As(err, &ours) || ours.Status != c.fault.Status || ours.Code != c.fault.Code {
			t.Errorf("%s: %v", c.fault.Code, err)
			continue
		}
		if c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v does not wrap %v", c.fault.Code, err, c.is)
		}
		for _, text := range append(c.says, "s3://data/x/some/name", "HTTP ") {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q does not say %q", c.fault.Code, err, text)
			}
		}
		if strings.Contains(err.Error(), server.Secret) || strings.Contains(err.Error(), server.Access) {
			t.Errorf("%s: %q has credentials in it", c.fault.Code, err)
		}
	}
	// A server that is not there.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + l.Addr().String()
	l.Close()
	_, err = newStore(t, bucketURL+"/x", s3.Config{Endpoint: nobody}).Open(t.Context(), "some/name")
	for _, text := range []string{"open s3://data/x/some/name: no answer from " + nobody, "refused", "AWS_ENDPOINT_URL_S3"} {
		if err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "RequestID") {
			t.Errorf("nobody there: %v does not say %q", err, text)
		}
	}
}

// Credentials show nowhere.
func TestNoSecrets(t *testing.T) {
	server := s3test.Start(t)
	server.Setenv(t, server.Endpoint)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "WRONG-SECRET")
	s := newStore(t, bucketURL+"/x", s3.Config{})
	_, open := s.Open(t.Context(), "a")
	_, lock := s.Lock(t.Context(), "l", "x")
	var list error
	for _, err := range s.List(t.Context(), "") {
		list = err
	}
	for _, err := range []error{open, lock, list, s.Remove(t.Context(), "a"), s.Sweep(t.Context(), ""), store.WriteAll(t.Context(), s, "a", nil)} {
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("with a wrong secret: %v", err)
		}
		for _, text := range []string{fmt.Sprint(err), fmt.Sprintf("%+v", err), s.URL()} {
			if strings.Contains(text, "WRONG-SECRET") || strings.Contains(text, server.Access) || strings.Contains(text, "Signature=") {
				t.Errorf("credentials in %q", text)
			}
		}
	}
	for _, url := range []string{"s3://key:SECRET@bucket/x", "s3://SECRET@bucket", "s3://bucket?sig=SECRET", "s3://", "s3:///x", "s3://b/a//b", "s3://b/../c", "bucket/x"} {
		if _, err := s3.New(t.Context(), url, s3.Config{}); !errors.Is(err, fs.ErrInvalid) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("New(%q): %v", url, err)
		}
	}
	for _, endpoint := range []string{"https://key:SECRET@host", "https://host?x=SECRET", "ftp://SECRET:x@host"} {
		if _, err := s3.New(t.Context(), bucketURL, s3.Config{Endpoint: endpoint}); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("endpoint %q: %v", endpoint, err)
		}
		t.Setenv("AWS_ENDPOINT_URL_S3", endpoint)
		if _, err := s3.New(t.Context(), bucketURL, s3.Config{}); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("AWS_ENDPOINT_URL_S3=%q: %v", endpoint, err)
		}
	}
}

// One request opens a small object and reads it; none opens one of known size.
func TestRequests(t *testing.T) {
	server := s3test.Start(t)
	front := server.Front(t, nil)
	server.Setenv(t, front.URL)
	s := newStore(t, bucketURL+"/x", s3.Config{})
	small, large := random(1, 50_000), random(2, 300_000)
	write(t, s, "small", small)
	write(t, s, "large", large)
	count := func(what string, want int, f func()) {
		t.Helper()
		front.Forget()
		f()
		if got := front.Requests(); len(got) != want {
			t.Errorf("%s: %d requests; want %d: %+v", what, len(got), want, got)
		}
	}
	read := func(ctx context.Context, name string, want []byte) func() {
		return func() {
			o, err := s.Open(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			got := make([]byte, len(want))
			if n, err := o.ReadAt(ctx, got, 0); n != len(want) || err != nil && err != io.EOF || !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes, %v", name, n, err)
			}
		}
	}
	count("small", 1, read(t.Context(), "small", small))
	count("large", 2, read(t.Context(), "large", large))
	count("small, of known size", 1, read(store.WithSize(t.Context(), int64(len(small))), "small", small))
	count("large, of known size", 1, read(store.WithSize(t.Context(), int64(len(large))), "large", large))
	count("write", 1, func() { write(t, s, "new", small) })
	count("list", 1, func() {
		for _, err := range s.List(t.Context(), "") {
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// A list is read page by page, in order.
func TestListPages(t *testing.T) {
	server := s3test.Start(t)
	front := server.Front(t, nil)
	server.Setenv(t, front.URL)
	dir := filepath.Join(server.Dir, s3test.Bucket, "x")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	const n = 2500
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%06d", i)), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	s := newStore(t, bucketURL+"/x", s3.Config{})
	i := 0
	for info, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if info.Name != fmt.Sprintf("%06d", i) {
			t.Fatalf("object %d is %q", i, info.Name)
		}
		i++
	}
	if requests := len(front.Requests()); i != n || requests != 3 {
		t.Errorf("%d objects in %d requests; want %d in 3", i, requests, n)
	}
}

func TestConfig(t *testing.T) {
	if err := (s3.Config{}).Validate(); err != nil {
		t.Error(err)
	}
	err := s3.Config{Endpoint: "x", Addressing: "x", Checksum: "MD5", SSE: "x", KMSKey: "k", PartSize: 1, Uploads: -1, Timeout: -1, Lease: 1, Tags: "%zz"}.Validate()
	for _, field := range []string{"endpoint", "addressing", "checksum", "sse", "kms_key", "part_size", "uploads", "timeout", "lease", "tags"} {
		if err == nil || !strings.Contains(err.Error(), field+":") {
			t.Errorf("%v does not name %s", err, field)
		}
	}
	t.Setenv("SHARDIFY_S3_STORAGE_CLASS", "STANDARD_IA")
	t.Setenv("SHARDIFY_S3_PART_SIZE", "16777216")
	t.Setenv("SHARDIFY_S3_LEASE", "30s")
	t.Setenv("SHARDIFY_S3_ANONYMOUS", "true")
	c, err := s3.Config{StorageClass: "GLACIER_IR"}.Environment()
	if want := (s3.Config{StorageClass: "GLACIER_IR", PartSize: 16 << 20, Lease: 30 * time.Second, Anonymous: true}); err != nil || c != want {
		t.Errorf("%+v, %v; want %+v", c, err, want)
	}
	t.Setenv("SHARDIFY_S3_UPLOADS", "many")
	t.Setenv("SHARDIFY_S3_NO_LOCKS", "perhaps")
	if _, err := (s3.Config{}).Environment(); err == nil || !strings.Contains(err.Error(), "SHARDIFY_S3_UPLOADS") || !strings.Contains(err.Error(), "SHARDIFY_S3_NO_LOCKS") {
		t.Errorf("wrong variables: %v", err)
	}
}

// Each request says what the configuration asks for: who pays, and of what is written,
// how it is encrypted, where it is kept and under which tags.
func TestHeaders(t *testing.T) {
	server := s3test.Start(t)
	server.Setenv(t, server.Endpoint)
	var mu sync.Mutex
	var header http.Header
	seen := map[string]http.Header{} // by method, and for POST by what is posted
	front := server.Front(t, func(r s3test.Request) s3test.Fault {
		mu.Lock()
		defer mu.Unlock()
		name := r.Method
		if strings.Contains(r.Query, "list-type") {
			name = "LIST"
		}
		seen[name] = header
		return s3test.Fault{Status: 403, Code: "AccessDenied"}
	})
	front.Header = func(h http.Header) {
		mu.Lock()
		defer mu.Unlock()
		header = h.Clone()
	}
	s := newStore(t, bucketURL+"/x", s3.Config{
		Endpoint: front.URL, RequesterPays: true, SSE: "aws:kms", KMSKey: "key-1", StorageClass: "STANDARD_IA", Tags: "team=vision&keep=yes",
	})
	_, open := s.Open(t.Context(), "a")
	_, stat := s.Stat(t.Context(), "a")
	var list error
	for _, err := range s.List(t.Context(), "") {
		list = err
	}
	for _, err := range []error{
		open, stat, list, s.Remove(t.Context(), "a"), store.WriteAll(t.Context(), s, "small", []byte("x")), store.WriteAll(t.Context(), s, "large", random(1, 9<<20)),
	} {
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%v", err)
		}
	}
	written := map[string]string{
		"X-Amz-Server-Side-Encryption": "aws:kms", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "key-1",
		"X-Amz-Storage-Class": "STANDARD_IA", "X-Amz-Tagging": "team=vision&keep=yes",
	}
	for name, want := range map[string]map[string]string{"GET": nil, "HEAD": nil, "LIST": nil, "DELETE": nil, "PUT": written, "POST": written} {
		if got := seen[name].Get("X-Amz-Request-Payer"); got != "requester" {
			t.Errorf("%s: the payer is %q", name, got)
		}
		for h, value := range want {
			if got := seen[name].Get(h); got != value {
				t.Errorf("%s: %s is %q, want %q", name, h, got, value)
			}
		}
	}
	// Without a signature there is none of it, nor of any credentials.
	s = newStore(t, bucketURL+"/x", s3.Config{Endpoint: front.URL, Anonymous: true})
	if _, err := s.Open(t.Context(), "a"); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
	if h := seen["GET"]; h.Get("Authorization") != "" || h.Get("X-Amz-Request-Payer") != "" {
		t.Errorf("an anonymous request has %v", h)
	}
}
