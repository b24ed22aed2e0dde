// Package http reads a store from a web server: a folder that it serves, a public
// bucket, a CDN. Call [New] with https://host/prefix.
//
// # URLs
//
//	https://host/sets/imagenet            the object a/b is at https://host/sets/imagenet/a/b
//	https://host/sets/imagenet?sv=…&sig=… the query is sent with every object's URL
//	https://user:password@host/sets       basic authentication
//
// The query serves signatures that are of a whole folder, as Azure's SAS tokens and
// signed URLs of CDNs are. One that is of a single object, as a presigned URL of S3,
// opens that object and no other: [Config.Objects] has a URL for each object. A single
// presigned shard is read by package stream.
//
// Logins come from the URL, from [Config.Header] or from ~/.netrc (of the file NETRC
// names, where that is set), for the host that they are for and no other that this one
// may redirect to. [Store.URL], errors and messages are without user, password and query.
//
// # What is promised
//
// An open Object is one version: the ETag of the first answer, or its Last-Modified
// where there is no strong ETag, is sent as a condition with every further request
// (If-Match, If-Unmodified-Since) and compared, as is the size, with every answer. An
// object that was replaced or removed is [store.ErrChanged], never mixed data. A
// Last-Modified has whole seconds: of two versions of one size within a second, and of
// servers that send neither, only the checksums of a data set tell.
//
// Open fetches the first 64 KiB with its one request, and asks nothing where
// [store.WithSize] says how large the object is. ReadAt is one request, and so is Stat.
//
// The store is for reading: Create, Remove, Lock and Sweep are [store.ErrReadOnly]. A
// web server has no list of its objects that could be relied on, so List is
// [errors.ErrUnsupported]; a data set's manifest says what there is.
//
// # Servers
//
// What is asked of a server: GET with Range, and Content-Length. One that ignores ranges,
// as Python's http.server, sends objects from their beginning on: reads of the first
// 8 MiB of an object skip what they do not want, which is enough for manifests and
// indexes; reads behind that are errors.ErrUnsupported.
//
// Redirects are followed, ten at most, but not from https to http. ReadAt goes straight to
// where an object's URL has led before ([Client.Get]); Open and Stat ask anew. Proxies are those of
// HTTPS_PROXY, HTTP_PROXY and NO_PROXY. Connections are kept and reused; HTTP/2 is not
// used, as all requests would share one connection there, and one stream of TCP and TLS
// be the limit of all: docs/http.md has what was measured.
//
// Open and ReadAt make one attempt: wrap the store in store/retry, which waits as long as
// a server says (Retry-After) that answers 429 or 503 (store.ErrThrottled).
package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"shardify/store"
)

const (
	// headSize is what Open fetches of an object of unknown size: all of most manifests.
	headSize = 64 << 10
	// skipSize is how much of an object is read and dropped for a read further on, where
	// the server ignores ranges.
	skipSize = 8 << 20
)

// Store is a store that a web server shows.
type Store struct {
	base    url.URL // without a slash at its end
	url     string  // for people
	objects map[string]string
	client  *Client
}

var _ store.Store = (*Store)(nil)

// New returns the store at a URL, which need not exist. It asks nothing.
func New(rawURL string, c Config) (*Store, error) {
	u, err := parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("open a store: %w", err)
	}
	if u.Fragment != "" {
		return nil, fmt.Errorf("open %s: %w: a URL with a fragment; write # as %%23", Title(rawURL), fs.ErrInvalid)
	}
	s := &Store{base: *u, url: strings.TrimSuffix(Title(rawURL), "/"), objects: c.Objects}
	s.base.Path, s.base.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	if s.client, err = NewClient(c); err != nil {
		return nil, fmt.Errorf("open %s: %w", s.url, err)
	}
	return s, nil
}

// URL is https://host/prefix, without user, password and query.
func (s *Store) URL() string { return s.url }

func (s *Store) path(name string) string { return s.url + "/" + name }

// Close closes idle connections. The store can be used further.
func (s *Store) Close() { s.client.Close() }

// target is the URL of an object.
func (s *Store) target(name string) (string, error) {
	if s.objects != nil {
		if u, ok := s.objects[name]; ok {
			return u, nil
		}
		return "", fmt.Errorf("%w: it is not among the %d objects that have URLs", fs.ErrNotExist, len(s.objects))
	}
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	u := s.base
	u.RawPath = u.EscapedPath() + "/" + strings.Join(parts, "/")
	u.Path += "/" + name
	return u.String(), nil
}

// check is for every operation on a name.
func (s *Store) check(ctx context.Context, op, name string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", op, s.path(name), err)
	}
	if err := store.CheckName(name); err != nil {
		return fmt.Errorf("%s in %s: %w", op, s.url, err)
	}
	return nil
}

// refuse is what all that writes returns.
func (s *Store) refuse(ctx context.Context, op, name string) error {
	if err := s.check(ctx, op, name); err != nil {
		return err
	}
	return fmt.Errorf("%s %s: %w: a web server's files can be read; write to a folder or to s3://bucket/prefix", op, s.path(name), store.ErrReadOnly)
}

// Create is store.ErrReadOnly.
func (s *Store) Create(ctx context.Context, name string) (store.Writer, error) {
	return nil, s.refuse(ctx, "create", name)
}

// Remove is store.ErrReadOnly.
func (s *Store) Remove(ctx context.Context, name string) error { return s.refuse(ctx, "remove", name) }

// Lock is store.ErrReadOnly.
func (s *Store) Lock(ctx context.Context, name, _ string) (func() error, error) {
	return nil, s.refuse(ctx, "lock", name)
}

// Sweep is store.ErrReadOnly.
func (s *Store) Sweep(ctx context.Context, prefix string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sweep %s: %w", s.path(prefix), err)
	}
	return fmt.Errorf("sweep %s: %w", s.path(prefix), store.ErrReadOnly)
}

// List is errors.ErrUnsupported.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		err := ctx.Err()
		if err == nil {
			err = fmt.Errorf("%w: a web server does not say which files it has", errors.ErrUnsupported)
		}
		yield(store.Info{}, fmt.Errorf("list %s: %w", s.path(prefix), err))
	}
}

type object struct {
	s      *Store
	name   string
	target string
	head   []byte // the object's first bytes, where Open has fetched them

	mu      sync.Mutex
	info    store.Info
	known   bool // the version is
	version version
	closed  bool
}

// version is what tells one content of an object from another.
type version struct {
	etag, modified string // as the server writes them; "" where it does not
}

// condition makes a request fail for another version.
func (v version) condition(h http.Header) {
	switch {
	case v.etag != "" && !strings.HasPrefix(v.etag, "W/"):
		h.Set("If-Match", v.etag)
	case v.modified != "":
		h.Set("If-Unmodified-Since", v.modified)
	}
}

func (v version) String() string {
	if v.etag != "" {
		return "ETag " + v.etag
	}
	return "Last-Modified " + v.modified
}

// Open opens the object called name.
func (s *Store) Open(ctx context.Context, name string) (store.Object, error) {
	if err := s.check(ctx, "open", name); err != nil {
		return nil, err
	}
	target, err := s.target(name)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", s.path(name), err)
	}
	o := &object{s: s, name: name, target: target, info: store.Info{Name: name}}
	if size, ok := store.SizeOf(ctx); ok && size >= 0 {
		o.info.Size = size
		return o, nil
	}
	buf := make([]byte, headSize)
	a, err := o.get(ctx, "open", version{}, buf, 0)
	if err != nil {
		return nil, err
	}
	o.info = a.info(name)
	o.version, o.known = a.version, true
	o.head = append([]byte(nil), buf[:a.n]...)
	return o, nil
}

// Stat describes an object, with a request for its first byte: a URL that is signed for
// GET allows no HEAD.
func (s *Store) Stat(ctx context.Context, name string) (store.Info, error) {
	if err := s.check(ctx, "stat", name); err != nil {
		return store.Info{}, err
	}
	target, err := s.target(name)
	if err != nil {
		return store.Info{}, fmt.Errorf("stat %s: %w", s.path(name), err)
	}
	o := &object{s: s, name: name, target: target, info: store.Info{Name: name}}
	a, err := o.get(ctx, "stat", version{}, make([]byte, 1), 0)
	if err != nil {
		return store.Info{}, err
	}
	return a.info(name), nil
}

// Info describes the object; ModTime and Version are known when something was read.
func (o *object) Info() store.Info {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.info
}

// Close ends reading.
func (o *object) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return fmt.Errorf("close %s: %w", o.s.path(o.name), fs.ErrClosed)
	}
	o.closed = true
	return nil
}

// ReadAt fills p from byte off on, with one request at most.
func (o *object) ReadAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	o.mu.Lock()
	info, known, v, closed := o.info, o.known, o.version, o.closed
	o.mu.Unlock()
	fault := func(err error) error { return fmt.Errorf("read %s at %d: %w", o.s.path(o.name), off, err) }
	switch {
	case ctx.Err() != nil:
		return 0, fault(ctx.Err())
	case closed:
		return 0, fault(fs.ErrClosed)
	case off < 0:
		return 0, fault(fs.ErrInvalid)
	}
	end := error(nil)
	if left := max(0, info.Size-off); int64(len(p)) > left {
		p, end = p[:left], io.EOF
	}
	if len(p) == 0 {
		return 0, end
	}
	if off < int64(len(o.head)) {
		if n = copy(p, o.head[off:]); n == len(p) {
			return n, end
		}
	}
	a, err := o.get(ctx, "read", v, p[n:], off+int64(n))
	if !a.ok {
		var e *Error
		if errors.As(err, &e) {
			switch {
			case known && (e.Status == http.StatusNotFound || e.Status == http.StatusGone):
				return n, fault(fmt.Errorf("%w: it was removed: %w", store.ErrChanged, err))
			case e.Status == http.StatusPreconditionFailed:
				return n, fault(fmt.Errorf("%w: it is no longer that of %v", store.ErrChanged, v))
			case e.Status == http.StatusRequestedRangeNotSatisfiable:
				return n, fault(fmt.Errorf("%w: it has less than the %d bytes that it had, or should have", store.ErrChanged, info.Size))
			}
		}
		return n, err
	}
	if e := o.same(&a); e != nil {
		return n, fault(e)
	}
	n += a.n
	if err != nil {
		return n, err
	}
	return n, end
}

// same compares an answer with what is known of the object, and adds what is not.
func (o *object) same(a *answer) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case a.size != o.info.Size:
		return fmt.Errorf("%w: it has %d bytes, and had, or should have, %d", store.ErrChanged, a.size, o.info.Size)
	case !o.known:
		o.known, o.version, o.info = true, a.version, a.info(o.name)
	case a.version != o.version:
		return fmt.Errorf("%w: it was that of %v, and is that of %v", store.ErrChanged, o.version, a.version)
	}
	return nil
}

// answer is what came of a GET.
type answer struct {
	ok   bool  // the server has sent the object, or begun to
	n    int   // bytes that it brought
	size int64 // of the object
	version
}

// info is what an answer says of the object called name.
func (a *answer) info(name string) store.Info {
	info := store.Info{Name: name, Size: a.size, Version: a.etag}
	if t, err := http.ParseTime(a.modified); err == nil {
		info.ModTime = t
	}
	return info
}

// errAnswer: the server answers something else than it was asked.
var errAnswer = errors.New("a wrong answer")

// get fetches the bytes of the object from off on into p, all of it unless the object
// ends before. Where the body breaks off, the answer says how much came.
func (o *object) get(ctx context.Context, op string, v version, p []byte, off int64) (a answer, err error) {
	where := o.s.path(o.name)
	fault := func(format string, args ...any) error {
		return fmt.Errorf("%s %s at %d: %w", op, where, off, fmt.Errorf(format, args...))
	}
	h := http.Header{}
	h.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+int64(len(p))-1))
	v.condition(h)
	r, err := o.s.client.Get(ctx, o.target, h, op == "read")
	if err != nil {
		return a, Fault(ctx, op, where, err)
	}
	defer r.Body.Close()
	a.version = version{r.Header.Get("ETag"), r.Header.Get("Last-Modified")}
	skip := int64(0)
	switch r.StatusCode {
	case http.StatusOK:
		if a.size = r.ContentLength; a.size < 0 {
			return a, fault("%w: the server does not say how large it is (Content-Length)", errors.ErrUnsupported)
		}
		skip = min(off, a.size)
		if skip > skipSize {
			return a, fault("%w: the server ignores ranges, and would send all of it for every read: let another one serve the folder (nginx, caddy, `rclone serve http`), copy the files to a disk, or read the shards from front to back, by name (`shardread stream '%s/{...}.tar'`)", errors.ErrUnsupported, o.s.url)
		}
	case http.StatusPartialContent:
		from, _, size, ok := ContentRange(r.Header.Get("Content-Range"))
		if !ok || from != off {
			return a, fault("%w: the server sends the range %.100q", errAnswer, r.Header.Get("Content-Range"))
		}
		if a.size = size; size < 0 {
			return a, fault("%w: the server does not say how large it is (Content-Range)", errors.ErrUnsupported)
		}
	default:
		if _, _, size, _ := ContentRange(r.Header.Get("Content-Range")); r.StatusCode == http.StatusRequestedRangeNotSatisfiable && off == 0 && size == 0 {
			a.ok = true // an empty object has no first byte
			return a, nil
		}
		return a, Status(op, where, r)
	}
	a.ok = true
	want := max(0, min(int64(len(p)), a.size-off))
	if r.ContentLength >= 0 && r.ContentLength < skip+want {
		return answer{}, fault("%w: the server sends %d bytes, asked for %d", errAnswer, r.ContentLength, want)
	}
	if skip > 0 {
		if _, err := io.CopyN(io.Discard, r.Body, skip); err != nil {
			return a, Fault(ctx, op, where, short(err))
		}
	}
	a.n, err = io.ReadFull(r.Body, p[:want])
	if err != nil {
		return a, Fault(ctx, op, where, short(err))
	}
	return a, nil
}

// short is the error of a body that ends too early.
func short(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// retryAfter is how long an answer asks to wait (RFC 9110, 10.2.3); 0 if it does not.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if text == "" {
		return 0
	}
	if d, err := time.ParseDuration(text + "s"); err == nil {
		return max(0, d)
	}
	if t, err := http.ParseTime(text); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}
