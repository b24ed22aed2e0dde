package http_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shardify/internal/peers"
	"shardify/store"
	"shardify/store/file"
	"shardify/store/http"
	"shardify/store/retry"
	"shardify/store/storetest"
)

func TestMain(m *testing.M) {
	// What the machine that runs the tests has is none of theirs.
	os.Setenv("NETRC", os.DevNull)
	for _, name := range []string{"SHARDIFY_HTTP_HEADER", "SHARDIFY_HTTP_OBJECTS", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		os.Unsetenv(name)
	}
	goleak.VerifyTestMain(m)
}

func newStore(t testing.TB, url string, c http.Config) *http.Store {
	t.Helper()
	s, err := http.New(url, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func serve(t testing.TB, h nethttp.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

func random(seed uint64, n int) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{0: byte(seed)}).Read(p)
	return p
}

// withETag is http.FileServer's way to serve a folder, with an ETag besides.
func withETag(dir string) nethttp.Handler {
	return nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		f, err := os.Open(filepath.Join(dir, filepath.FromSlash(r.URL.Path)))
		if err != nil {
			nethttp.NotFound(w, r)
			return
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil || info.IsDir() {
			nethttp.NotFound(w, r)
			return
		}
		w.Header().Set("ETag", fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size()))
		nethttp.ServeContent(w, r, "", info.ModTime(), f)
	})
}

// aging makes each object of a folder a second younger than the one before, as HTTP
// tells seconds apart.
type aging struct {
	store.Store
	dir string
	now *atomic.Int64
}

func (a aging) Create(ctx context.Context, name string) (store.Writer, error) {
	w, err := a.Store.Create(ctx, name)
	return agingWriter{w, a, name}, err
}

type agingWriter struct {
	store.Writer
	a    aging
	name string
}

func (w agingWriter) Commit(ctx context.Context) error {
	if err := w.Writer.Commit(ctx); err != nil {
		return err
	}
	at := time.Now().Add(-30*time.Second + time.Duration(w.a.now.Add(1))*time.Second).Truncate(time.Second)
	err := os.Chtimes(filepath.Join(w.a.dir, filepath.FromSlash(w.name)), at, at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile
	}
	return err
}

func TestConformance(t *testing.T) {
	t.Run("ETag", func(t *testing.T) {
		storetest.RunReadOnly(t, func(t *testing.T) (s, behind store.Store) {
			dir := t.TempDir()
			return newStore(t, serve(t, withETag(dir)).URL+"/", http.Config{}), file.New(dir)
		})
	})
	t.Run("FileServer", func(t *testing.T) {
		storetest.RunReadOnly(t, func(t *testing.T) (s, behind store.Store) {
			dir := t.TempDir()
			server := serve(t, nethttp.StripPrefix("/some-folder/", nethttp.FileServer(nethttp.Dir(dir))))
			return newStore(t, server.URL+"/some-folder", http.Config{}), aging{file.New(dir), dir, new(atomic.Int64)}
		})
	})
	t.Run("Retried", func(t *testing.T) {
		storetest.RunReadOnly(t, func(t *testing.T) (s, behind store.Store) {
			dir := t.TempDir()
			r, err := retry.New(newStore(t, serve(t, withETag(dir)).URL, http.Config{}), retry.Config{})
			if err != nil {
				t.Fatal(err)
			}
			return r, file.New(dir)
		})
	})
}

func put(t testing.TB, dir, name string, data []byte) {
	t.Helper()
	if err := store.WriteAll(t.Context(), file.New(dir), name, data); err != nil {
		t.Fatal(err)
	}
}

// read reads an object in ranges that a reader of samples might want.
func read(t testing.TB, s store.Store, name string, want []byte, sizes ...int) {
	t.Helper()
	ctx := t.Context()
	if len(sizes) == 0 {
		sizes = []int{1, 1000, 70_000, len(want)}
	}
	for _, ctx := range []context.Context{ctx, store.WithSize(ctx, int64(len(want)))} {
		o, err := s.Open(ctx, name)
		if err != nil {
			t.Error(err)
			return
		}
		r := rand.New(rand.NewPCG(1, 2))
		for _, size := range sizes {
			size = min(size, len(want))
			off := r.IntN(len(want) - size + 1)
			p := make([]byte, size)
			if n, err := o.ReadAt(ctx, p, int64(off)); n != size || err != nil && err != io.EOF || !bytes.Equal(p, want[off:off+size]) {
				t.Errorf("%s: ReadAt(%d bytes, %d) = %d, %v", name, size, off, n, err)
			}
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

// One request opens a small object and reads it; none opens one of known size; and a
// connection serves many.
func TestRequests(t *testing.T) {
	dir := t.TempDir()
	small, large := random(1, 50_000), random(2, 300_000)
	put(t, dir, "small", small)
	put(t, dir, "large", large)
	put(t, dir, "empty", nil)
	var requests, connections atomic.Int64
	server := httptest.NewUnstartedServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		requests.Add(1)
		withETag(dir).ServeHTTP(w, r)
	}))
	server.Config.ConnState = func(_ net.Conn, state nethttp.ConnState) {
		if state == nethttp.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	s := newStore(t, server.URL, http.Config{})
	for _, c := range []struct {
		name  string
		want  []byte
		sized bool
		n     int64
	}{{"small", small, false, 1}, {"large", large, false, 2}, {"small", small, true, 1}, {"large", large, true, 1}, {"empty", nil, false, 1}, {"empty", nil, true, 0}} {
		requests.Store(0)
		ctx := t.Context()
		if c.sized {
			ctx = store.WithSize(ctx, int64(len(c.want)))
		}
		o, err := s.Open(ctx, c.name)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(c.want))
		if n, err := o.ReadAt(ctx, got, 0); n != len(got) || err != nil && err != io.EOF || !bytes.Equal(got, c.want) {
			t.Errorf("%s: %d bytes, %v", c.name, n, err)
		}
		if n := requests.Load(); n != c.n {
			t.Errorf("%s, size known: %v: %d requests; want %d", c.name, c.sized, n, c.n)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("one request after the other took %d connections", n)
	}
}

// Stat takes one request, for a byte, and an object that was opened knows as much as soon
// as something was read.
func TestStat(t *testing.T) {
	dir := t.TempDir()
	data := random(1, 200_000)
	put(t, dir, "a", data)
	put(t, dir, "empty", nil)
	var requests, sent atomic.Int64
	served := withETag(dir)
	server := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		requests.Add(1)
		served.ServeHTTP(&counter{w, &sent}, r)
	}))
	s, err := retry.New(newStore(t, server.URL, http.Config{}), retry.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int64{"a": int64(len(data)), "empty": 0} {
		requests.Store(0)
		sent.Store(0)
		info, err := store.Stat(t.Context(), s, name)
		if err != nil || info.Name != name || info.Size != size || info.Version == "" || info.ModTime.IsZero() || requests.Load() != 1 || sent.Load() > 100 {
			t.Errorf("Stat(%s) = %+v, %v, with %d requests and %d bytes", name, info, err, requests.Load(), sent.Load())
		}
		for _, ctx := range []context.Context{t.Context(), store.WithSize(t.Context(), size)} {
			if size == 0 {
				continue // nothing is asked
			}
			o, err := s.Open(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := o.ReadAt(ctx, make([]byte, 1), 0); err != nil {
				t.Error(err)
			}
			if got := o.Info(); got != info {
				t.Errorf("an open object says %+v, Stat %+v", got, info)
			}
		}
	}
	if _, err := store.Stat(t.Context(), s, "none"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "stat "+server.URL+"/none") {
		t.Errorf("what is missing: %v", err)
	}
}

// counter counts the bytes of bodies.
type counter struct {
	nethttp.ResponseWriter
	n *atomic.Int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return c.ResponseWriter.Write(p)
}

// A server that ignores ranges serves what is small, and says of the rest what to do.
func TestNoRanges(t *testing.T) {
	dir := t.TempDir()
	data := random(1, 9<<20)
	put(t, dir, "a", data)
	put(t, dir, "b", data[:100_000])
	server := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		r.Header.Del("Range")
		withETag(dir).ServeHTTP(w, r)
	}))
	checkNoRanges(t, server.URL, data)
}

// Python's own server is such a one.
func TestPythonServer(t *testing.T) {
	python := peers.Python(t)
	dir := t.TempDir()
	data := random(1, 9<<20)
	put(t, dir, "a", data)
	put(t, dir, "b", data[:100_000])
	cmd := exec.Command(python, "-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", dir, "0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	line, err := bufio.NewReader(out).ReadString('\n') // "Serving HTTP on 127.0.0.1 port 41234 (http://…) ..."
	var port int
	if _, at, ok := strings.Cut(line, " port "); ok {
		_, err = fmt.Sscanf(at, "%d", &port)
	}
	if err != nil || port == 0 {
		t.Fatalf("the server says %q, %v", line, err)
	}
	checkNoRanges(t, fmt.Sprintf("http://127.0.0.1:%d", port), data)
	s := newStore(t, fmt.Sprintf("http://127.0.0.1:%d", port), http.Config{})
	if _, err := s.Open(t.Context(), "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is missing: %v", err)
	}
}

func checkNoRanges(t *testing.T, url string, data []byte) {
	t.Helper()
	s := newStore(t, url, http.Config{})
	read(t, s, "b", data[:100_000])
	o, err := s.Open(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 1000)
	if n, err := o.ReadAt(t.Context(), p, 7<<20); n != len(p) || err != nil || !bytes.Equal(p, data[7<<20:7<<20+1000]) {
		t.Errorf("within the first 8 MiB: %d, %v", n, err)
	}
	_, err = o.ReadAt(t.Context(), p, 8<<20+1)
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "ignores ranges") || !strings.Contains(err.Error(), "shardread stream") || !strings.Contains(err.Error(), url+"/a") {
		t.Errorf("behind them: %v", err)
	}
}

// Errors say what to do, wrap what they should, and are final where they should be.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		status int
		header map[string]string
		is     error
		says   string
		after  time.Duration
		passes bool
	}{
		{404, nil, fs.ErrNotExist, "404", 0, false},
		{410, nil, fs.ErrNotExist, "410", 0, false},
		{401, nil, fs.ErrPermission, ".netrc", 0, false},
		{403, nil, fs.ErrPermission, "SHARDIFY_HTTP_HEADER", 0, false},
		{400, nil, fs.ErrInvalid, "400 Bad Request", 0, false},
		{412, nil, fs.ErrInvalid, "412", 0, false},
		{501, nil, errors.ErrUnsupported, "501", 0, false},
		{500, nil, nil, "500", 0, true},
		{502, nil, nil, "502", 0, true},
		{408, nil, nil, "408", 0, true},
		{429, map[string]string{"Retry-After": "7"}, store.ErrThrottled, "429", 7 * time.Second, true},
		{503, map[string]string{"Retry-After": "0"}, store.ErrThrottled, "503", 0, true},
		{503, map[string]string{"Retry-After": "soon"}, nil, "503", 0, true},
		{503, map[string]string{"Retry-After": "-5"}, nil, "503", 0, true},
		{503, map[string]string{"Retry-After": "Mon, 02 Jan 2006 15:04:05 GMT"}, nil, "503", 0, true},
		{302, map[string]string{"Location": "ftp://SECRET/x"}, fs.ErrInvalid, "redirects", 0, false},
		{302, map[string]string{"Location": "http://host:SECRET/x%zz"}, fs.ErrInvalid, "redirects", 0, false},
		{302, nil, fs.ErrInvalid, "redirects", 0, false},
		{302, map[string]string{"Location": "/x/some/name?SECRET"}, fs.ErrInvalid, "more than 10 redirects", 0, false},
		{301, map[string]string{"Location": "/x/some/name/"}, fs.ErrNotExist, "folder", 0, false},
		{304, nil, fs.ErrInvalid, "304", 0, false},
		{204, nil, fs.ErrInvalid, "204", 0, false},
	} {
		server := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			for name, value := range c.header {
				w.Header().Set(name, value)
			}
			w.WriteHeader(c.status)
		}))
		s := newStore(t, strings.Replace(server.URL, "://", "://user:SECRET@", 1)+"/x?key=SECRET2", http.Config{Header: map[string]string{"X-Key": "SECRET3"}})
		_, open := s.Open(t.Context(), "some/name")
		o, err := s.Open(store.WithSize(t.Context(), 1<<20), "some/name")
		if err != nil {
			t.Fatal(err)
		}
		_, read := o.ReadAt(t.Context(), make([]byte, 10), 5)
		for op, err := range map[string]error{"open": open, "read": read} {
			if op == "read" && c.status == 412 {
				if !errors.Is(err, store.ErrChanged) {
					t.Errorf("%d: %v", c.status, err)
				}
				continue
			}
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), server.URL+"/x/some/name") {
				t.Errorf("%d, %s: %v; want one that wraps %v and says %q", c.status, op, err, c.is, c.says)
			}
			var ours *http.Error
			if !errors.As(err, &ours) || ours.RetryAfter() != c.after || ours.Op != op {
				t.Errorf("%d, %s: %#v", c.status, op, err)
			}
			if http.Passes(err) != c.passes {
				t.Errorf("%d, %s: passes: %v", c.status, op, !c.passes)
			}
			for _, text := range []string{fmt.Sprint(err), fmt.Sprintf("%+v", err), s.URL()} {
				if strings.Contains(text, "SECRET") || strings.Contains(text, "user") {
					t.Errorf("%d, %s: secrets in %q", c.status, op, text)
				}
			}
		}
	}

	plain := serve(t, nethttp.NotFoundHandler())
	if _, err := newStore(t, strings.Replace(plain.URL, "http:", "https:", 1), http.Config{}).Open(t.Context(), "a"); !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "is it http://?") {
		t.Errorf("a server without TLS: %v", err)
	}
	for url, says := range map[string]string{
		"http://127.0.0.1:1/x?SECRET":                  "127.0.0.1:1/x",
		"https://user:SECRET@127.0.0.1:1/x?sig=SECRET": "refused",
		"http://no-such-host.invalid/SECRETLESS":       "http://no-such-host.invalid/",
	} {
		_, err := newStore(t, url, http.Config{}).Open(t.Context(), "a")
		if err == nil || strings.Contains(strings.ReplaceAll(err.Error(), "SECRETLESS", ""), "SECRET") || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{"", "x", "ftp://SECRET/x", "https://", "https://user:SECRET@host/%zz", "http:///SECRET", "https:SECRET", "https://host:SECRET/x", "https://host/x#y", "https://\x00SECRET"} {
		if _, err := http.New(url, http.Config{}); !errors.Is(err, fs.ErrInvalid) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("New(%q): %v", url, err)
		}
	}
}

// A certificate that does not hold is final, and no secret is sent to its owner.
func TestCertificate(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewUnstartedServer(nethttp.HandlerFunc(func(nethttp.ResponseWriter, *nethttp.Request) { asked.Add(1) }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	_, err := newStore(t, server.URL, http.Config{}).Open(t.Context(), "a")
	if !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "SSL_CERT_FILE") || asked.Load() != 0 {
		t.Errorf("%v, after %d requests", err, asked.Load())
	}
}

// A redirect is followed with the range and the condition, and with no login, header or
// Referer of the first host.
func TestRedirect(t *testing.T) {
	dir := t.TempDir()
	data := random(1, 200_000)
	put(t, dir, "there/a b", data)
	leaked := make(chan string, 100)
	other := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		for name, values := range r.Header {
			if strings.Contains(fmt.Sprint(values), "SECRET") || name == "Authorization" || name == "Referer" {
				leaked <- fmt.Sprint(name, values)
			}
		}
		if r.URL.RawQuery != "own=1" {
			leaked <- r.URL.RawQuery
		}
		withETag(dir).ServeHTTP(w, r)
	}))
	var unauthorized atomic.Int64
	first := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		user, password, _ := r.BasicAuth()
		if user != "us er" || password != "SECRET:1" || r.Header.Get("X-Key") != "SECRET" || r.URL.Query().Get("sig") != "SECRET" {
			unauthorized.Add(1)
		}
		if strings.HasPrefix(r.URL.Path, "/x/") {
			// Once more on the same host.
			nethttp.Redirect(w, r, "/y/"+strings.TrimPrefix(r.URL.EscapedPath(), "/x/")+"?"+r.URL.RawQuery, nethttp.StatusTemporaryRedirect)
			return
		}
		nethttp.Redirect(w, r, other.URL+"/there/"+strings.TrimPrefix(r.URL.EscapedPath(), "/y/")+"?own=1", nethttp.StatusFound)
	}))
	base := strings.Replace(first.URL, "://", "://us%20er:SECRET%3A1@", 1) + "/x?sig=SECRET"
	read(t, newStore(t, base, http.Config{Header: map[string]string{"X-Key": "SECRET"}}), "a b", data)
	close(leaked)
	for text := range leaked {
		t.Errorf("the other host has got %s", text)
	}
	if n := unauthorized.Load(); n > 0 {
		t.Errorf("%d requests without their login", n)
	}
}

// As with Hugging Face, a URL leads to a signed one of another host: it is asked once, and
// again when the signature has expired or the object is no more there; what is behind it is
// compared as ever.
func TestRedirectRemembered(t *testing.T) {
	dir := t.TempDir()
	data := random(1, 400_000)
	put(t, dir, "a-1", data)
	var resolved, fetched, refused atomic.Int64
	var signature, at atomic.Value
	signature.Store("1")
	at.Store("a-1")
	cdn := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if r.URL.Query().Get("Signature") != signature.Load() {
			refused.Add(1)
			w.WriteHeader(nethttp.StatusForbidden)
			return
		}
		fetched.Add(1)
		withETag(dir).ServeHTTP(w, r)
	}))
	hub := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		resolved.Add(1)
		nethttp.Redirect(w, r, fmt.Sprintf("%s/%s?Expires=%d&Signature=%s", cdn.URL, at.Load(), time.Now().Add(time.Hour).Unix(), signature.Load()), nethttp.StatusFound)
	}))
	s := newStore(t, hub.URL+"/resolve", http.Config{})
	o, err := s.Open(store.WithSize(t.Context(), int64(len(data))), "a")
	if err != nil {
		t.Fatal(err)
	}
	ranges := func(o store.Object, n int) {
		t.Helper()
		for i := range n {
			p := make([]byte, 1000)
			if _, err := o.ReadAt(t.Context(), p, int64(1000*i)); err != nil || !bytes.Equal(p, data[1000*i:][:1000]) {
				t.Fatalf("range %d: %v", i, err)
			}
		}
	}
	counts := func(what string, want ...int64) {
		t.Helper()
		for i, n := range []*atomic.Int64{&resolved, &fetched, &refused} {
			if got := n.Swap(0); got != want[i] {
				t.Errorf("%s: %s %d times, want %d", what, []string{"resolved", "fetched", "refused"}[i], got, want[i])
			}
		}
	}
	ranges(o, 20)
	counts("20 ranges", 1, 20, 0)
	again, err := s.Open(store.WithSize(t.Context(), int64(len(data))), "a")
	if err != nil {
		t.Fatal(err)
	}
	ranges(again, 20)
	counts("20 of the same object, opened again", 0, 20, 0)
	if _, err := s.Open(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	counts("opened without its size", 1, 1, 0)
	signature.Store("2") // as if it had expired
	ranges(o, 20)
	counts("with a signature that has expired", 1, 20, 1)
	put(t, dir, "a-2", data)
	if err := os.Remove(filepath.Join(dir, "a-1")); err != nil {
		t.Fatal(err)
	}
	at.Store("a-2")
	o, err = s.Open(store.WithSize(t.Context(), int64(len(data))), "a")
	if err != nil {
		t.Fatal(err)
	}
	ranges(o, 20)
	counts("elsewhere", 1, 21, 0)
	// Other bytes behind the same target, and behind another one.
	other := random(2, len(data))
	put(t, dir, "a-2", other)
	for range 2 {
		if _, err := o.ReadAt(t.Context(), make([]byte, 10), 5); !errors.Is(err, store.ErrChanged) {
			t.Errorf("replaced: %v", err)
		}
	}
	put(t, dir, "a-3", other)
	at.Store("a-3")
	signature.Store("3")
	if _, err := o.ReadAt(t.Context(), make([]byte, 10), 5); !errors.Is(err, store.ErrChanged) {
		t.Errorf("replaced elsewhere: %v", err)
	}
	// Nothing is to be had any more.
	signature.Store("none")
	at.Store("none")
	if _, err := again.ReadAt(t.Context(), make([]byte, 10), 5); !errors.Is(err, store.ErrChanged) || !strings.Contains(err.Error(), "404") {
		t.Errorf("removed: %v", err)
	}
	cdn.Close()
	if _, err := again.ReadAt(t.Context(), make([]byte, 10), 5); err == nil || errors.Is(err, store.ErrChanged) || strings.Contains(err.Error(), "Signature") {
		t.Errorf("a host that is down: %v", err)
	}
}

// A login comes from ~/.netrc for its host, and not beside a signature.
func TestNetrc(t *testing.T) {
	dir := t.TempDir()
	data := random(1, 1000)
	put(t, dir, "a", data)
	var got atomic.Value
	server := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		user, password, _ := r.BasicAuth()
		got.Store(user + ":" + password)
		withETag(dir).ServeHTTP(w, r)
	}))
	path := filepath.Join(t.TempDir(), "netrc")
	t.Setenv("NETRC", path)
	for _, c := range []struct{ netrc, url, want string }{
		{"machine 127.0.0.1 login me password SECRET", server.URL, "me:SECRET"},
		{"machine example.org login me password SECRET", server.URL, ":"},
		{"machine example.org login you password x\nmachine 127.0.0.1\n\tlogin me\n\tpassword \"S E\\\"C\"\n", server.URL, `me:S E"C`},
		{"default login me password SECRET", server.URL, "me:SECRET"},
		{"machine 127.0.0.1 login me password SECRET", server.URL + "?X-Amz-Signature=abc", ":"},
		{"machine 127.0.0.1 login me password SECRET", strings.Replace(server.URL, "://", "://you:P@", 1), "you:P"},
	} {
		if err := os.WriteFile(path, []byte(c.netrc), 0o600); err != nil {
			t.Fatal(err)
		}
		read(t, newStore(t, c.url, http.Config{}), "a", data)
		if got.Load() != c.want {
			t.Errorf("%q, %s: the server has got %q; want %q", c.netrc, c.url, got.Load(), c.want)
		}
	}
	t.Setenv("NETRC", dir) // a folder
	if _, err := http.New(server.URL, http.Config{}); err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "NETRC=") {
		t.Errorf("a file of logins that cannot be read: %v", err)
	}
}

// Objects of their own URLs.
func TestObjects(t *testing.T) {
	dir := t.TempDir()
	data := random(1, 100_000)
	put(t, dir, "x/1", data)
	server := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if r.URL.Query().Get("sig") != "SECRET"+r.URL.Path {
			w.WriteHeader(nethttp.StatusForbidden)
			return
		}
		withETag(dir).ServeHTTP(w, r)
	}))
	file := filepath.Join(t.TempDir(), "objects.json")
	text := fmt.Sprintf(`{"manifest.json": "%s/x/1?sig=SECRET/x/1", "b": "%s/x/1?sig=SECRET"}`, server.URL, server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SHARDIFY_HTTP_OBJECTS", file)
	c, err := http.Config{}.Environment()
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(t, "https://bucket.example.org/set", c)
	read(t, s, "manifest.json", data)
	for name, want := range map[string]error{"b": fs.ErrPermission, "c": fs.ErrNotExist} {
		if _, err := s.Open(t.Context(), name); !errors.Is(err, want) || strings.Contains(err.Error(), "SECRET") || !strings.Contains(err.Error(), "https://bucket.example.org/set/"+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, wrong := range []string{"", "[]", "null", `{"a": 1}`, `{"a": "SECRET"`} {
		if err := os.WriteFile(file, []byte(wrong), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (http.Config{}).Environment(); err == nil || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

func TestConfig(t *testing.T) {
	if err := (http.Config{}).Validate(); err != nil {
		t.Error(err)
	}
	err := http.Config{
		Header:  map[string]string{"SECRET 1": "x", "range": "x", "X-A": "SECRET\r\nX: y"},
		Objects: map[string]string{"../a": "https://host/x", "b": "SECRET"},
	}.Validate()
	for _, text := range []string{"name that no header can have", "Range is not for the user", "value of X-A", `"../a"`, `objects: "b"`} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v does not say %s", err, text)
		}
	}
	if err != nil && strings.Contains(err.Error(), "SECRET") {
		t.Errorf("%v", err)
	}
	if data, err := json.Marshal(http.Config{Header: map[string]string{"a": "SECRET"}, Objects: map[string]string{"a": "SECRET"}}); err != nil || string(data) != "{}" {
		t.Errorf("in JSON: %s, %v", data, err)
	}
	t.Setenv("SHARDIFY_HTTP_HEADER", "Authorization: Bearer a:b\nX-Key:c")
	c, err := http.Config{}.Environment()
	if want := map[string]string{"Authorization": "Bearer a:b", "X-Key": "c"}; err != nil || !maps.Equal(c.Header, want) {
		t.Errorf("%v, %v", c.Header, err)
	}
	t.Setenv("SHARDIFY_HTTP_HEADER", "Bearer SECRET")
	if _, err := (http.Config{}).Environment(); err == nil || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("a header without a colon: %v", err)
	}
}

// Wrong answers, cut bodies and stalls cost time, and change no byte.
func TestFaults(t *testing.T) {
	dir := t.TempDir()
	data := random(1, 1<<20)
	put(t, dir, "a", data)
	for name, fault := range map[string]func(w nethttp.ResponseWriter, r *nethttp.Request){
		"500": func(w nethttp.ResponseWriter, _ *nethttp.Request) { w.WriteHeader(500) },
		"503, wait": func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.Header().Set("Retry-After", "0.01")
			w.WriteHeader(503)
		},
		"reset": func(nethttp.ResponseWriter, *nethttp.Request) { panic(nethttp.ErrAbortHandler) },
		"stall": func(_ nethttp.ResponseWriter, r *nethttp.Request) { <-r.Context().Done() },
		"cut": func(w nethttp.ResponseWriter, r *nethttp.Request) {
			withETag(dir).ServeHTTP(&cutter{w, 700}, r)
		},
		"another range": func(w nethttp.ResponseWriter, r *nethttp.Request) {
			r.Header.Set("Range", "bytes=17-500000")
			withETag(dir).ServeHTTP(w, r)
		},
		"a shorter range": func(w nethttp.ResponseWriter, r *nethttp.Request) {
			var from, to int
			if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err == nil {
				r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, from+(to-from)/2))
			}
			withETag(dir).ServeHTTP(w, r)
		},
		"several ranges": func(w nethttp.ResponseWriter, r *nethttp.Request) {
			r.Header.Set("Range", "bytes=0-5,10-20")
			withETag(dir).ServeHTTP(w, r)
		},
	} {
		var n atomic.Int64
		server := serve(t, nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
			if n.Add(1)%3 != 0 {
				fault(w, r)
				return
			}
			withETag(dir).ServeHTTP(w, r)
		}))
		s, err := retry.New(newStore(t, server.URL, http.Config{}), retry.Config{Backoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond, Timeout: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) { read(t, s, "a", data, 100, 5000, 200_000, 10) })
		if s.Stats().Retries == 0 {
			t.Errorf("%s: nothing was retried", name)
		}
	}
}

// cutter breaks the connection after so many bytes.
type cutter struct {
	nethttp.ResponseWriter
	left int
}

func (c *cutter) Write(p []byte) (int, error) {
	if len(p) > c.left {
		_, _ = c.ResponseWriter.Write(p[:c.left])
		c.ResponseWriter.(nethttp.Flusher).Flush()
		panic(nethttp.ErrAbortHandler)
	}
	c.left -= len(p)
	return c.ResponseWriter.Write(p)
}
