package reader

import (
	"flag"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shardify/dataset/datasettest"
	"shardify/sample"
	"shardify/store/cache"
	"shardify/store/limit"
	"shardify/store/open"
	"shardify/store/retry"
	"shardify/store/s3/s3test"
)

// bucketOf starts a server, which the environment then names, with a data set.
func bucketOf(t *testing.T, options datasettest.Options) (server *s3test.Server, url string) {
	t.Helper()
	server = s3test.Start(t)
	server.Setenv(t, server.Endpoint)
	url = "s3://" + s3test.Bucket + "/set"
	st, err := open.URL(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	datasettest.Write(t, st, options)
	return server, url
}

// largeSample is a sample of about the size of a photograph, without pixels.
func largeSample(n, _ int) datasettest.Made {
	data := make([]byte, 110_000)
	for i := range data {
		data[i] = byte(i*n + i>>8)
	}
	return datasettest.Made{Sample: sample.Sample{Key: fmt.Sprintf("%06d", n), Fields: []sample.Field{{Name: "bin", Data: data}}}, Label: int64(n % 5)}
}

// inBucket is a data set of large samples in a bucket, and what stands before it. Requests
// take the time wait.
func inBucket(t *testing.T, shards, samples int, wait *time.Duration) (url string, front *s3test.Front) {
	t.Helper()
	server, url := bucketOf(t, datasettest.Options{Shards: shards, Samples: samples, Make: largeSample})
	front = server.Front(t, func(s3test.Request) s3test.Fault { return s3test.Fault{Stall: *wait} })
	t.Setenv("AWS_ENDPOINT_URL_S3", front.URL)
	return url, front
}

// epoch reads an epoch as a process does that begins, and returns how many samples it
// had. Before each further one that it reads it calls next.
func epoch(t *testing.T, url string, c Config, next ...func()) (n int) {
	t.Helper()
	c.Decode, c.Fields = DecodeNone, []string{"bin"}
	r, err := Open(t.Context(), url, c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for e := range 1 + len(next) {
		if e > 0 {
			next[e-1]()
		}
		seen := map[int64]bool{}
		for b, err := range r.Epoch(t.Context(), e) {
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range b.Samples() {
				seen[s] = true
			}
			b.Release()
		}
		n += len(seen)
	}
	return n
}

// What an epoch costs in requests: in a window, ranges of 4 MiB and more; in global
// order, hardly more than one for each sample; from a cache that is warm, the manifest's.
func TestS3Requests(t *testing.T) {
	const shards, samples, batch = 2, 200, 16
	url, front := inBucket(t, shards, samples, new(time.Duration))
	const total, bytes = shards * samples, shards * samples * 110_000

	// window looks at what an epoch has asked for: so many samples alone, at most, and
	// everything else in ranges.
	window := func(epoch, most, others int) {
		t.Helper()
		var sizes []int64
		small := 0
		for _, r := range front.Forget() {
			if strings.HasSuffix(r.Path, ".tar") {
				sizes = append(sizes, r.Sent)
			} else {
				small++
			}
		}
		slices.Sort(sizes)
		t.Logf("window, epoch %d: %d ranges of shards, from %d to %d bytes, and %d other requests", epoch, len(sizes), sizes[0], sizes[len(sizes)-1], small)
		alone, _ := slices.BinarySearch(sizes, 110_001)
		if spans := sizes[alone:]; alone > most || len(spans) > bytes/(4<<20)+shards || spans[len(spans)/2] < 4<<20 {
			t.Errorf("window, epoch %d: %d samples alone, %d ranges, half of them less than %d bytes; want %d and %d at most, of 4 MiB",
				epoch, alone, len(spans), spans[len(spans)/2], most, bytes/(4<<20)+shards)
		}
		if small > others {
			t.Errorf("window, epoch %d: %d requests for the manifest and indexes; want %d", epoch, small, others)
		}
	}
	// The process's first batch is read by itself, so that it comes soon.
	n := epoch(t, url, Config{BatchSize: batch, Ends: EndsExact}, func() { window(0, batch, 1+shards) })
	if window(1, 0, 0); n != 2*total {
		t.Errorf("window: %d samples in two epochs; want %d", n, 2*total)
	}

	if n := epoch(t, url, Config{BatchSize: batch, Ends: EndsExact, Shuffle: ShuffleGlobal}); n != total {
		t.Errorf("global: %d samples; want %d", n, total)
	}
	n = len(front.Forget())
	t.Logf("global: %.2f requests a sample", float64(n)/total)
	if n > total*12/10 {
		t.Errorf("global: %d requests for %d samples", n, total)
	}

	c := Config{BatchSize: batch, Ends: EndsExact, Cache: cache.Config{Dir: filepath.Join(t.TempDir(), "cache")}}
	epoch(t, url, c)
	t.Logf("cache, cold: %d requests", len(front.Forget()))
	epoch(t, url, c)
	if warm := front.Forget(); len(warm) != 1 || !strings.HasSuffix(warm[0].Path, "/manifest.json") {
		t.Errorf("cache, warm: %d requests, the first %+v; want the manifest's alone", len(warm), warm[0])
	}
}

// tripCounter holds requests back until no other has come for a while, and then lets all of them
// go on. So what a client asks for at once is one round trip, however slow the machine is,
// and what waits for an answer is another.
type tripCounter struct {
	mu    sync.Mutex
	held  []chan struct{}
	timer *time.Timer
	n     int // so far
}

// stillness is how long no request has come when a round is complete.
const stillness = 250 * time.Millisecond

func (r *tripCounter) hold(s3test.Request) s3test.Fault {
	released := make(chan struct{})
	r.mu.Lock()
	r.held = append(r.held, released)
	if r.timer == nil {
		r.timer = time.AfterFunc(stillness, r.release)
	}
	r.timer.Reset(stillness)
	r.mu.Unlock()
	<-released
	return s3test.Fault{}
}

func (r *tripCounter) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.held) == 0 {
		return
	}
	r.n++
	for _, released := range r.held {
		close(released)
	}
	r.held = nil
}

func (r *tripCounter) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

// The first batch comes after no more than four round trips from the start of a process:
// the manifest; the indexes of its shards, however many they are; its samples, in two rounds
// where they are 256.
func TestS3FirstBatch(t *testing.T) {
	t.Run("few shards", func(t *testing.T) { firstBatches(t, 2, 200, 8, 256) })
	t.Run("many shards", func(t *testing.T) { firstBatches(t, 40, 12, 256) })
}

// firstBatches counts the round trips until first batches of some sizes come.
func firstBatches(t *testing.T, shards, samples int, sizes ...int) {
	server, url := bucketOf(t, datasettest.Options{Shards: shards, Samples: samples, Make: largeSample})
	trips := new(tripCounter)
	front := server.Front(t, trips.hold)
	t.Setenv("AWS_ENDPOINT_URL_S3", front.URL)
	first := func(c Config) int {
		front.Forget() // what the one before has asked for besides
		before := trips.count()
		c.Decode, c.Fields = DecodeNone, []string{"bin"}
		r, err := Open(t.Context(), url, c)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for b, err := range r.Epoch(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			n := trips.count() - before
			b.Release()
			return n
		}
		return 0
	}
	for _, size := range sizes {
		for _, shuffle := range []Shuffle{ShuffleAuto, ShuffleGlobal, ShuffleNone} {
			n := first(Config{BatchSize: size, Shuffle: shuffle})
			// A machine that stands still between two requests makes two rounds of one.
			for try := 0; try < 2 && n > 4; try++ {
				n = min(n, first(Config{BatchSize: size, Shuffle: shuffle}))
			}
			t.Logf("%q: the first batch of %d samples comes after %d round trips", shuffle, size, n)
			if n < 3 || n > 4 {
				t.Errorf("%q: the first batch of %d samples comes after %d round trips, want 3 or 4", shuffle, size, n)
			}
		}
	}
}

// passOf reads an epoch of a data set and returns its samples' numbers and the sums of
// their bytes, in order. At batch at it calls during.
func passOf(t *testing.T, url string, c Config, at int, during func()) (all []string) {
	t.Helper()
	r, err := Open(t.Context(), url, c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := 0
	for b, err := range r.Epoch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == at {
			during()
		}
		for i, s := range b.Samples() {
			data, _ := b.Field(i, "bin")
			all = append(all, fmt.Sprintf("%d %08x", s, crc32.ChecksumIEEE(data)))
		}
		b.Release()
	}
	return all
}

// soak is how long TestS3Faults goes on with each order; once through it does in any case.
var soak = flag.Duration("soak", 0, "how long TestS3Faults reads epochs through faults, in each order")

// residentBytes is the memory that the process has.
func residentBytes(t *testing.T) (n int64) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0 // not Linux
	}
	_, line, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscan(line, &n); err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// An epoch through faults of every kind, each in a hundredth of the requests, has the
// same samples in the same order, and leaves neither goroutines nor connections.
func TestS3Faults(t *testing.T) {
	server, url := bucketOf(t, datasettest.Options{Shards: 3, Samples: 300, Make: smallSample})
	faults := []s3test.Fault{
		{Status: 500, Code: "InternalError"}, {Status: 503, Code: "SlowDown"}, {Reset: true}, {Lose: true},
		{Cut: 1}, {Cut: 3000}, {Shift: 7}, {Flip: 2000}, {Stall: time.Hour},
	}
	// A request that stalls costs this time. For half an hour the machine may be busy with
	// something else, and an answer late for that.
	timeout := 500 * time.Millisecond
	if *soak > 0 {
		timeout = 3 * time.Second
	}
	for _, shuffle := range []Shuffle{ShuffleGlobal, ShuffleWindow} {
		c := Config{
			BatchSize: 16, Ends: EndsExact, Decode: DecodeNone, Fields: []string{"bin"}, Shuffle: shuffle, Window: 300,
			Retry: retry.Config{Timeout: timeout, Backoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond, Attempts: 20},
		}
		t.Setenv("AWS_ENDPOINT_URL_S3", server.Endpoint)
		want := passOf(t, url, c, 0, nil)
		// In the window there are fewer requests, and each fault comes more often.
		rate := 0.01
		if shuffle == ShuffleWindow {
			rate = 0.05
		}
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(1, 2))
		hits := make([]int, len(faults))
		type span struct {
			path     string
			from, to int64
		}
		var flipped []span // of this pass
		front := server.Front(t, func(r s3test.Request) s3test.Fault {
			mu.Lock()
			defer mu.Unlock()
			k := int(random.Float64() / rate)
			if k >= len(faults) {
				return s3test.Fault{}
			}
			if faults[k].Flip > 0 {
				// What was damaged on its way is read once more, and then comes whole, in
				// whatever ranges. Nothing is read twice of the manifest.
				now := span{path: r.Path}
				if _, err := fmt.Sscanf(r.Range, "bytes=%d-%d", &now.from, &now.to); err != nil || strings.HasSuffix(r.Path, "manifest.json") ||
					slices.ContainsFunc(flipped, func(x span) bool { return x.path == now.path && x.from <= now.to && now.from <= x.to }) {
					return s3test.Fault{}
				}
				flipped = append(flipped, now)
			}
			hits[k]++
			return faults[k]
		})
		t.Setenv("AWS_ENDPOINT_URL_S3", front.URL)
		before := goleak.IgnoreCurrent()
		var resident []int64 // bytes after each pass
		requests := 0
		for until := time.Now().Add(*soak); ; {
			if got := passOf(t, url, c, 0, nil); !slices.Equal(got, want) {
				t.Errorf("%q: other samples, or in another order", shuffle)
			}
			requests += len(front.Forget())
			mu.Lock()
			flipped = flipped[:0]
			mu.Unlock()
			resident = append(resident, residentBytes(t))
			if time.Now().After(until) {
				break
			}
		}
		if n := len(resident); n >= 30 {
			middle, end := slices.Max(resident[n/3:2*n/3]), slices.Max(resident[2*n/3:])
			t.Logf("%q: %d passes; %d MB resident at most in the second third, %d in the last", shuffle, n, middle>>20, end>>20)
			if end > middle+middle/10+8<<20 {
				t.Errorf("%q: memory grows: %d", shuffle, resident)
			}
		}
		t.Logf("%q: %d requests, faults %v", shuffle, requests, hits)
		if shuffle == ShuffleGlobal && slices.Min(hits) == 0 {
			t.Errorf("%q: the faults came %v times", shuffle, hits)
		}
		// Idle connections are kept for the next request, by the HTTP client alone; of
		// those under way none is left.
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			open, busy := front.Connections()
			if busy == 0 && open <= limit.DefaultMax {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%q: %d connections are open, %d of them under way", shuffle, open, busy)
			}
		}
		if err := goleak.Find(before, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
			goleak.IgnoreAnyFunction("net/http.(*conn).serve")); err != nil {
			t.Errorf("%q: %v", shuffle, err)
		}
	}
}

// smallSample is a sample of some kilobytes.
func smallSample(n, _ int) datasettest.Made {
	data := make([]byte, 3000+n%7*700)
	for i := range data {
		data[i] = byte(i*n + i>>5)
	}
	return datasettest.Made{Sample: sample.Sample{Key: fmt.Sprintf("%06d", n), Fields: []sample.Field{{Name: "bin", Data: data}}}, Label: int64(n % 5)}
}

// A server that is killed in the middle of an epoch, and comes back, costs time.
func TestS3ServerKilled(t *testing.T) {
	server, url := bucketOf(t, datasettest.Options{Shards: 3, Samples: 400, Make: smallSample})
	c := Config{
		BatchSize: 16, Ends: EndsExact, Decode: DecodeNone, Fields: []string{"bin"}, Shuffle: ShuffleGlobal,
		Memory: 4 << 20, Retry: retry.Config{Attempts: 100, Backoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond},
	}
	want := passOf(t, url, c, 0, nil)
	got := passOf(t, url, c, 5, func() {
		server.Kill()
		// Reads fail now; they are tried again while the server is away and after.
		time.Sleep(300 * time.Millisecond)
		if err := server.Restart(); err != nil {
			t.Error(err)
		}
	})
	if !slices.Equal(got, want) {
		t.Errorf("%d samples, or in another order; want %d", len(got), len(want))
	}
}

// Credentials that expire in the middle of an epoch, and are renewed in their file, cost
// nothing: the chain is asked again.
func TestS3Expired(t *testing.T) {
	server, url := bucketOf(t, datasettest.Options{Shards: 3, Samples: 400, Make: smallSample})
	file := filepath.Join(t.TempDir(), "credentials")
	login := func(access string) {
		text := fmt.Sprintf("[default]\naws_access_key_id=%s\naws_secret_access_key=%s\n", access, server.Secret)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SHARED_CREDENTIALS_FILE": file} {
		t.Setenv(name, value)
	}
	// In the middle the server gets another key; the front says of the one before that it
	// has expired.
	old := server.Access
	var expired atomic.Bool
	var last atomic.Pointer[string] // the key of the request that came last
	var refused atomic.Int64
	front := server.Front(t, func(s3test.Request) s3test.Fault {
		if expired.Load() && strings.Contains(*last.Load(), old) {
			refused.Add(1)
			return s3test.Fault{Status: 400, Code: "ExpiredToken"}
		}
		return s3test.Fault{}
	})
	front.Header = func(h http.Header) {
		key := h.Get("Authorization")
		last.Store(&key)
	}
	t.Setenv("AWS_ENDPOINT_URL_S3", front.URL)
	login(old)
	c := Config{
		BatchSize: 16, Ends: EndsExact, Decode: DecodeNone, Fields: []string{"bin"}, Shuffle: ShuffleGlobal,
		Memory: 4 << 20, Retry: retry.Config{Reads: 1, Attempts: 100, Backoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond},
	}
	want := passOf(t, url, c, 0, nil)
	got := passOf(t, url, c, 5, func() {
		server.Kill()
		server.Access = "AKIANEW"
		login(server.Access)
		expired.Store(true)
		if err := server.Restart(); err != nil {
			t.Error(err)
		}
	})
	if !slices.Equal(got, want) || refused.Load() == 0 {
		t.Errorf("%d samples after %d refusals, or in another order; want %d", len(got), refused.Load(), len(want))
	}
}
