package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shardify/store/retry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// origin is a web server with one object and whims.
type origin struct {
	data     []byte
	etag     string
	noRange  bool
	chunked  bool                                           // the length is not told
	cut      func(answer int64) int                         // bytes of an answer's body after which it breaks off; -1: none
	whim     func(answer int64, w http.ResponseWriter) bool // it has answered itself
	answers  atomic.Int64
	sent     atomic.Int64
	modified time.Time
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := o.answers.Add(1)
	if o.whim != nil && o.whim(n, w) {
		return
	}
	if o.noRange {
		r.Header.Del("Range")
	}
	if o.etag != "" {
		w.Header().Set("ETag", o.etag)
	}
	out := &cutter{ResponseWriter: w, left: -1, sent: &o.sent}
	if o.cut != nil {
		out.left = o.cut(n)
	}
	if o.chunked {
		w.(http.Flusher).Flush()
		_, _ = out.Write(o.data)
		return
	}
	http.ServeContent(out, r, "", o.modified, bytes.NewReader(o.data))
}

type cutter struct {
	http.ResponseWriter
	left int
	sent *atomic.Int64
}

func (c *cutter) Write(p []byte) (int, error) {
	if c.left >= 0 && len(p) > c.left {
		n, _ := c.ResponseWriter.Write(p[:c.left])
		c.sent.Add(int64(n))
		c.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	n, err := c.ResponseWriter.Write(p)
	c.sent.Add(int64(n))
	if c.left >= 0 {
		c.left -= n
	}
	return n, err
}

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

var quick = retry.Config{Backoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond}

// get reads an object of an origin.
func get(t *testing.T, o *origin, c retry.Config, path string) ([]byte, *Opener, error) {
	t.Helper()
	server := httptest.NewServer(o)
	defer server.Close()
	opener, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer opener.Close()
	r, err := opener.Open(t.Context(), server.URL+path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return data, opener, err
}

func TestHTTP(t *testing.T) {
	data := noise(3 << 20)
	every := func(n int) func(int64) int { return func(int64) int { return n } }
	busy := func(answer int64, w http.ResponseWriter) bool {
		if answer%2 == 1 {
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return true
		}
		return false
	}
	for name, c := range map[string]struct {
		o    *origin
		most int64 // bytes sent
	}{
		"plain":                    {&origin{}, 3 << 20},
		"cut":                      {&origin{etag: `"a"`, cut: every(200_000)}, 3<<20 + 1<<20},
		"cut, no validator":        {&origin{cut: every(300_000)}, 3<<20 + 1<<20},
		"cut, weak ETag":           {&origin{etag: `W/"a"`, cut: every(300_000)}, 3<<20 + 1<<20},
		"cut, time":                {&origin{modified: time.Unix(1e9, 0), cut: every(300_000)}, 3<<20 + 1<<20},
		"no ranges":                {&origin{noRange: true, cut: func(n int64) int { return int(n) * 600_000 }}, 20 << 20},
		"no ranges, no length":     {&origin{chunked: true, cut: func(n int64) int { return int(n) * 600_000 }}, 20 << 20},
		"busy at every other time": {&origin{etag: `"a"`, cut: every(400_000), whim: busy}, 3<<20 + 1<<20},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.data = data
			got, opener, err := get(t, c.o, quick, "/x.tar")
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%d bytes of %d, %v", len(got), len(data), err)
			}
			if n := c.o.sent.Load(); n > c.most {
				t.Errorf("%d bytes were sent", n)
			}
			if st := opener.Stats(); c.o.cut != nil && (st.Retries == 0 || st.Continued == 0) {
				t.Errorf("%+v", st)
			}
		})
	}
}

func TestHTTPChanges(t *testing.T) {
	data := noise(1 << 20)
	cut := func(n int64) int {
		if n == 1 {
			return 400_000
		}
		return -1
	}
	for name, change := range map[string]func(o *origin){
		"ETag": func(o *origin) { o.etag = `"b"` },
		"time": func(o *origin) { o.etag, o.modified = "", time.Unix(2e9, 0) },
		"size": func(o *origin) { o.etag = ""; o.data = o.data[:900_000] },
		"much shorter": func(o *origin) {
			o.etag = ""
			o.data = o.data[:100]
		},
		"bytes": func(o *origin) {
			o.etag, o.noRange = "", true
			o.data = append([]byte{o.data[0] ^ 1}, o.data[1:]...)
		},
		"shorter, without length": func(o *origin) { o.etag, o.chunked, o.data = "", true, o.data[:1000] },
	} {
		t.Run(name, func(t *testing.T) {
			o := &origin{data: data, etag: `"a"`, modified: time.Unix(1e9, 0), cut: cut}
			if name == "bytes" || strings.HasPrefix(name, "s") || name == "much shorter" {
				o.modified = time.Time{}
			}
			o.whim = func(answer int64, _ http.ResponseWriter) bool {
				if answer == 2 {
					change(o)
				}
				return false
			}
			got, _, err := get(t, o, quick, "/x.tar")
			if !errors.Is(err, ErrChanged) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if !bytes.HasPrefix(data, got) {
				t.Error("other bytes were delivered")
			}
			if n := o.answers.Load(); n != 2 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// An object of unknown length that breaks off right at its end.
func TestHTTPEndsAtTheEnd(t *testing.T) {
	data := noise(100_000)
	o := &origin{data: data}
	o.whim = func(answer int64, w http.ResponseWriter) bool {
		if answer == 1 {
			w.(http.Flusher).Flush()
			_, _ = w.Write(data)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		return false
	}
	got, _, err := get(t, o, quick, "/")
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestHTTPRefused(t *testing.T) {
	for _, c := range []struct {
		status   int
		is       error
		want     string
		requests int64
	}{
		{404, fs.ErrNotExist, "check the URL", 1},
		{410, fs.ErrNotExist, "check the URL", 1},
		{401, fs.ErrPermission, "signed URL", 1},
		{403, fs.ErrPermission, "signed URL", 1},
		{400, nil, "400", 1},
		{501, nil, "501", 1},
		{503, nil, "given up after 3 attempts", 3},
		{429, nil, "given up after 3 attempts", 3},
	} {
		o := &origin{whim: func(_ int64, w http.ResponseWriter) bool { w.WriteHeader(c.status); return true }}
		q := quick
		q.Attempts = 3
		_, _, err := get(t, o, q, "/a/x.tar?signature=secret")
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "/a/x.tar") {
			t.Errorf("%d: %v", c.status, err)
			continue
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%d: the message has the secret: %v", c.status, err)
		}
		if n := o.answers.Load(); n != c.requests {
			t.Errorf("%d: %d requests", c.status, n)
		}
	}
	opener, err := New(retry.Config{Attempts: 2, Backoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer opener.Close()
	r, err := opener.Open(t.Context(), "http://user:secret@127.0.0.1:1/x.tar?secret")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "127.0.0.1:1/x.tar") {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := New(retry.Config{Attempts: -1}); err == nil {
		t.Error("a wrong config: no error")
	}
}

// A server that stops in the middle, for ever.
func TestHTTPStalls(t *testing.T) {
	data := noise(1 << 20)
	let := make(chan struct{})
	o := &origin{data: data, etag: `"a"`}
	o.whim = func(answer int64, w http.ResponseWriter) bool {
		if answer > 1 {
			return false
		}
		w.Header().Set("ETag", o.etag)
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		_, _ = w.Write(data[:300_000])
		w.(http.Flusher).Flush()
		<-let
		return true
	}
	server := httptest.NewServer(o)
	defer server.Close()
	defer close(let)
	c := quick
	c.Timeout = 100 * time.Millisecond
	opener, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer opener.Close()
	r, err := opener.Open(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, data) || opener.Stats().Timeouts != 1 {
		t.Errorf("%d bytes, %v, %+v", len(got), err, opener.Stats())
	}
	// And without a timeout, until its context ends.
	o.answers.Store(0)
	c.Timeout = -1
	patient, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer patient.Close()
	ctx, cancel := context.WithCancel(t.Context())
	r, err = patient.Open(ctx, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := io.ReadAll(r); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
