package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"shardify/store"
)

type object struct {
	s    *Store
	info store.Info
	// identity names this version of the object in the folder; "": it is not kept.
	identity string
	opening  chan struct{} // held while inner is opened

	mu     sync.Mutex
	inner  store.Object // nil until something is missing
	closed bool
}

// object returns an object that is kept under the version, if that is not "".
func (s *Store) object(info store.Info, version string, inner store.Object) *object {
	o := &object{s: s, info: info, inner: inner, opening: make(chan struct{}, 1)}
	if version != "" {
		o.identity = fmt.Sprintf("%q %q %d %q", s.url, info.Name, info.Size, version)
	}
	return o
}

func (o *object) Info() store.Info { return o.info }

// Close ends reading.
func (o *object) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return o.s.fault("close", o.info.Name, fs.ErrClosed)
	}
	o.closed = true
	if o.inner == nil {
		return nil
	}
	return o.inner.Close()
}

// current is the inner object, nil if it is not open.
func (o *object) current() (store.Object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, o.s.fault("read", o.info.Name, fs.ErrClosed)
	}
	return o.inner, nil
}

// opened is the inner object, opened.
func (o *object) opened(ctx context.Context) (store.Object, error) {
	select {
	case o.opening <- struct{}{}:
		defer func() { <-o.opening }()
	case <-ctx.Done():
		return nil, o.s.fault("open", o.info.Name, ctx.Err())
	}
	if inner, err := o.current(); inner != nil || err != nil {
		return inner, err
	}
	inner, err := o.s.Store.Open(store.WithSize(ctx, o.info.Size), o.info.Name)
	if err != nil {
		return nil, err
	}
	if size := inner.Info().Size; size != o.info.Size {
		inner.Close()
		return nil, o.s.fault("open", o.info.Name, fmt.Errorf("%w: it has %d bytes, and should have %d", ErrChanged, size, o.info.Size))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		inner.Close()
		return nil, o.s.fault("read", o.info.Name, fs.ErrClosed)
	}
	o.inner = inner
	return inner, nil
}

// ReadAt fills p from byte off on.
func (o *object) ReadAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, o.s.fault("read", o.info.Name, err)
	}
	if _, err := o.current(); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, o.s.fault("read", o.info.Name, fmt.Errorf("%w: offset %d", fs.ErrInvalid, off))
	}
	left := max(o.info.Size-off, 0)
	short := int64(len(p)) > left
	if short {
		p = p[:left]
	}
	r := reading{o: o, ctx: ctx, fresh: ctx.Value(freshKey{}) != nil}
	for n < len(p) && err == nil {
		var k int
		k, err = r.some(p[n:], off+int64(n))
		n += k
	}
	c := &o.s.counters
	if r.fetched {
		c.misses.Add(1)
	} else {
		c.hits.Add(1)
	}
	c.cacheBytes.Add(r.disk)
	if err == nil && short {
		err = io.EOF
	}
	return n, err
}

// reading is one ReadAt.
type reading struct {
	o       *object
	ctx     context.Context
	fresh   bool  // nothing may come from the disk
	fetched bool  // something has come from the inner store
	disk    int64 // bytes that came from the disk
}

// some reads the first bytes of p, one of them at least or there is an error: those
// in the first block if it is here; otherwise that and those behind it which nobody
// has.
func (r *reading) some(p []byte, off int64) (int, error) {
	o, s := r.o, r.o.s
	if o.identity == "" {
		return r.bypass(p, off)
	}
	first := o.part(p, off, off/s.block)
	if !r.fresh && s.folder.look(first) {
		r.disk += int64(len(first.p))
		return len(first.p), nil
	}
	var since time.Time
	for delay := 200 * time.Microsecond; ; delay = min(2*delay, 10*time.Millisecond) {
		if s.folder.resting() {
			return r.bypass(p, off)
		}
		run, c := r.claim(p, off, first)
		switch c {
		case mine:
			return r.fill(p, off, run)
		case here:
			r.disk += int64(len(first.p))
			return len(first.p), nil
		case none:
			return r.bypass(p, off)
		case busy:
		}
		if since.IsZero() {
			since = time.Now()
			s.counters.waits.Add(1)
		} else if time.Since(since) >= s.patience {
			return r.bypass(first.p, off)
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-r.ctx.Done():
			timer.Stop()
			return 0, s.fault("read", o.info.Name, r.ctx.Err())
		}
	}
}

// claimed is a block whose file is locked, to be filled.
type claimed struct {
	part
	file *os.File
}

// claim claims the blocks from that of first on, as many as p needs and one request
// may bring, up to the first that is not to be had. It says what became of first.
func (r *reading) claim(p []byte, off int64, first part) (run []claimed, c claim) {
	o, f := r.o, &r.o.s.folder
	file, c := f.claim(r.ctx, first, r.fresh)
	if c != mine {
		return nil, c
	}
	run = append(run, claimed{first, file})
	bytes := first.size
	for at := len(first.p); at < len(p); {
		next := o.part(p[at:], off+int64(at), first.number+int64(len(run)))
		if bytes += next.size; bytes > maxFetch {
			break
		}
		file, c := f.claim(r.ctx, next, r.fresh)
		if c != mine {
			break
		}
		run = append(run, claimed{next, file})
		at += len(next.p)
	}
	return run, mine
}

// fill fetches the blocks of run, keeps them, and returns what p is to have of them.
func (r *reading) fill(p []byte, off int64, run []claimed) (n int, err error) {
	s := r.o.s
	defer func() { // also where the inner store panics
		for _, c := range run {
			c.file.Close() // and unlocks it; what was not written is anybody's
		}
	}()
	last := run[len(run)-1]
	start, end := run[0].start, last.start+last.size
	p = p[:min(int64(len(p)), end-off)]
	data := p
	if off != start || off+int64(len(p)) != end {
		buffer := getBuffer(end - start)
		defer buffers.Put(buffer)
		data = *buffer
	}
	got, err := r.fetch(data, start)
	kept := int64(0)
	for _, c := range run {
		from := c.start - start
		if from+c.size > int64(got) {
			break
		}
		if e := s.folder.fill(c, data[from:from+c.size]); e != nil {
			s.folder.trouble(e)
			continue
		}
		kept += c.size
	}
	s.counters.unkeptBytes.Add(int64(got) - kept)
	n = copy(p, data[min(off-start, int64(got)):got])
	if n == len(p) {
		return n, nil // the error lies behind what was asked for
	}
	return n, err
}

// fetch reads from the inner store. n < len(p) comes with an error.
func (r *reading) fetch(p []byte, off int64) (n int, err error) {
	r.fetched = true
	o, c := r.o, &r.o.s.counters
	inner, err := o.opened(r.ctx)
	if err != nil {
		return 0, err
	}
	c.originReads.Add(1)
	n, err = inner.ReadAt(r.ctx, p, off)
	c.originBytes.Add(int64(n))
	switch {
	case n == len(p):
		return n, nil
	case err == nil || errors.Is(err, io.EOF):
		err = o.s.cut(o.info, off+int64(n))
	}
	return n, err
}

// bypass is fetch where nothing is kept.
func (r *reading) bypass(p []byte, off int64) (n int, err error) {
	n, err = r.fetch(p, off)
	r.o.s.counters.unkeptBytes.Add(int64(n))
	return n, err
}

var buffers sync.Pool // of *[]byte

// getBuffer returns n bytes of memory, to be put back.
func getBuffer(n int64) *[]byte {
	b, ok := buffers.Get().(*[]byte)
	if !ok || int64(cap(*b)) < n {
		b = new([]byte)
		*b = make([]byte, n)
	}
	*b = (*b)[:n]
	return b
}
