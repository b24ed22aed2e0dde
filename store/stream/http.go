package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	nethttp "net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"shardify/store/http"
	"shardify/store/retry"
)

// progress is how many bytes must come for earlier failures to count no longer.
const progress = 1 << 20

// body is an HTTP object being read.
type body struct {
	o    *Opener
	ctx  context.Context
	url  string
	name string // for people

	// What the first answer said.
	known    bool
	size     int64 // -1 if it did not say
	etag     string
	modified string

	off  int64          // delivered
	hash *xxhash.Digest // of what was delivered

	call  *retry.Call
	since int64 // delivered since the last failure
	err   error

	// The answer being read; nil between two.
	answer  io.ReadCloser
	cancel  context.CancelFunc
	timer   *time.Timer // nil without a timeout
	stalled *atomic.Bool
}

func (o *Opener) openHTTP(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := http.CheckURL(name); err != nil {
		return nil, fmt.Errorf("%s: %w", Title(name), err)
	}
	return &body{o: o, ctx: ctx, url: name, name: Title(name), size: -1, hash: xxhash.New()}, nil
}

// passes says whether an error may pass by itself.
func passes(err error) bool { return !errors.Is(err, ErrChanged) && http.Passes(err) }

// Read reads what comes next, asking again for it as often as it must.
func (b *body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for b.err == nil {
		if b.call == nil {
			b.call = b.o.calls.Begin(b.ctx, "read", b.name)
			b.call.Attempt(b.off > 0)
		}
		n, stalled, err := b.attempt(p)
		if n > 0 {
			b.off += int64(n)
			_, _ = b.hash.Write(p[:n]) // it never fails
			if b.since += int64(n); b.since >= progress {
				b.call, b.since = nil, 0
			}
			if err != nil {
				b.disconnect() // the next Read goes on
			}
			if err == io.EOF {
				b.err = io.EOF
			}
			return n, nil
		}
		if err == io.EOF {
			b.disconnect()
			b.err = io.EOF
			break
		}
		if err == nil {
			continue
		}
		b.disconnect()
		if b.call == nil { // after much progress
			b.call = b.o.calls.Begin(b.ctx, "read", b.name)
			b.call.Attempt(b.off > 0)
		}
		got := b.since > 0
		b.since = 0
		if b.err = b.call.Again(err, got, stalled); b.err == nil {
			b.call.Attempt(b.off > 0)
		}
	}
	return 0, b.err
}

// attempt reads once. An error is io.EOF only where the object ends.
func (b *body) attempt(p []byte) (n int, stalled bool, err error) {
	if b.answer == nil {
		if stalled, err = b.connect(); err != nil {
			return 0, stalled, err
		}
	}
	n, err = b.read(p)
	if err == io.EOF && b.size >= 0 && b.off+int64(n) < b.size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != io.EOF {
		err = http.Fault(b.ctx, "read", fmt.Sprintf("%s at %d", b.name, b.off+int64(n)), err)
	}
	return n, b.stalled.Load(), err
}

// read reads from the answer, within the time for it.
func (b *body) read(p []byte) (int, error) {
	if b.timer != nil {
		b.timer.Reset(b.o.calls.Config().Timeout)
		defer b.timer.Stop()
	}
	return b.answer.Read(p)
}

// connect asks for what is left.
func (b *body) connect() (stalled bool, err error) {
	ctx, cancel := context.WithCancel(b.ctx)
	b.cancel, b.stalled = cancel, new(atomic.Bool)
	if timeout := b.o.calls.Config().Timeout; timeout > 0 {
		flag := b.stalled
		b.timer = time.AfterFunc(timeout, func() {
			flag.Store(true)
			cancel()
		})
		defer b.timer.Stop()
	}
	header := nethttp.Header{}
	if b.off > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", b.off))
		if v := b.validator(); v != "" {
			header.Set("If-Range", v)
		}
	}
	answer, err := b.o.client.Get(ctx, b.url, header, b.off > 0)
	if err != nil {
		return b.stalled.Load(), http.Fault(b.ctx, "get", b.name, err)
	}
	b.answer = answer.Body
	return b.stalled.Load(), b.accept(answer)
}

// validator is what If-Range may have: a strong ETag, or else a time.
func (b *body) validator() string {
	if b.etag != "" && !strings.HasPrefix(b.etag, "W/") {
		return b.etag
	}
	return b.modified
}

// accept looks at the head of an answer.
func (b *body) accept(a *nethttp.Response) error {
	switch a.StatusCode {
	case nethttp.StatusOK:
		if err := b.same(a.Header, a.ContentLength); err != nil {
			return err
		}
		return b.leaveOut()
	case nethttp.StatusPartialContent:
		from, _, size, ok := http.ContentRange(a.Header.Get("Content-Range"))
		if !ok || from != b.off {
			return fmt.Errorf("GET %s from byte %d: %w: the server sends %q", b.name, b.off, fs.ErrInvalid, a.Header.Get("Content-Range"))
		}
		return b.same(a.Header, size)
	case nethttp.StatusRequestedRangeNotSatisfiable:
		// All there is has been delivered, where its length was not known.
		if _, _, size, _ := http.ContentRange(a.Header.Get("Content-Range")); b.off > 0 && size == b.off && (b.size < 0 || b.size == size) {
			return io.EOF
		}
		if b.off > 0 {
			return b.changed("it has become shorter than what was read, %d bytes", b.off)
		}
	}
	err := http.Status("get", b.name, a)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: check the URL, and the range of numbers in it", err)
	}
	return err
}

func (b *body) changed(format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s", b.name, ErrChanged, fmt.Sprintf(format, args...))
}

// same compares an answer with the first one.
func (b *body) same(h nethttp.Header, size int64) error {
	etag, modified := h.Get("ETag"), h.Get("Last-Modified")
	if !b.known {
		b.known, b.size, b.etag, b.modified = true, size, etag, modified
		return nil
	}
	switch {
	case etag != "" && b.etag != "" && etag != b.etag:
		return b.changed("its ETag was %s and is %s", b.etag, etag)
	case modified != "" && b.modified != "" && modified != b.modified:
		return b.changed("it was of %s and is of %s", b.modified, modified)
	case size >= 0 && b.size >= 0 && size != b.size:
		return b.changed("it had %d bytes and has %d", b.size, size)
	}
	if b.size < 0 {
		b.size = size
	}
	return nil
}

// leaveOut reads what has been delivered already, and compares it.
func (b *body) leaveOut() error {
	if b.off == 0 {
		return nil
	}
	again := xxhash.New()
	buf := make([]byte, min(b.off, 256<<10))
	for left := b.off; left > 0; {
		n, err := b.read(buf[:min(left, int64(len(buf)))])
		_, _ = again.Write(buf[:n])
		if left -= int64(n); left > 0 && err == io.EOF {
			return b.changed("it has become shorter than what was read, %d bytes", b.off)
		} else if left > 0 && err != nil {
			return http.Fault(b.ctx, "read again", b.name, err)
		}
	}
	if again.Sum64() != b.hash.Sum64() {
		return b.changed("its first %d bytes are others", b.off)
	}
	return nil
}

// disconnect ends the answer.
func (b *body) disconnect() {
	if b.cancel == nil {
		return
	}
	b.cancel()
	if b.timer != nil {
		b.timer.Stop()
	}
	if b.answer != nil {
		_ = b.answer.Close() // there is nothing more to hear
	}
	b.answer, b.cancel, b.timer = nil, nil, nil
}

// Close ends reading.
func (b *body) Close() error {
	b.disconnect()
	if b.err == nil {
		b.err = fs.ErrClosed
	}
	return nil
}
