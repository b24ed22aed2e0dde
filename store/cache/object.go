package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"shardify/store"
)

type object struct {
	s    *Store
	info store.Info
	file *entry // nil: nothing of it is kept

	origin chan struct{} // held to open inner
	inner  store.Object  // nil until something is missing

	mu     sync.Mutex
	users  int // reads under way
	closed bool
}

func (s *Store) object(info store.Info) *object {
	return &object{s: s, info: info, origin: make(chan struct{}, 1)}
}

// keep has what is read of o kept. The error is ctx's.
func (o *object) keep(ctx context.Context, version string) error {
	if o.info.Size <= 0 || (o.info.Size-1)/o.s.c.Block >= maxBlocks {
		return nil
	}
	identity := fmt.Sprintf("%q %q %d %q", o.s.URL(), o.info.Name, o.info.Size, version)
	file, err := o.s.acquire(ctx, identity, o.info.Size)
	if err != nil {
		return o.s.fault("open", o.info.Name, err)
	}
	o.file = file
	return nil
}

func (o *object) Info() store.Info { return o.info }

// Close ends reading; with reads under way, the last of them does.
func (o *object) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return o.s.fault("close", o.info.Name, fs.ErrClosed)
	}
	o.closed = true
	if o.users > 0 {
		return nil
	}
	return o.end()
}

func (o *object) hold() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return fs.ErrClosed
	}
	o.users++
	return nil
}

func (o *object) letGo() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.users--; o.users == 0 && o.closed {
		_ = o.end() // reading is over, and nobody is there to hear of it
	}
}

func (o *object) end() error {
	if o.file != nil {
		o.s.release(o.file)
	}
	if o.inner == nil {
		return nil
	}
	return o.inner.Close()
}

// ReadAt fills p from byte off on.
func (o *object) ReadAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	err = ctx.Err()
	if err == nil {
		err = o.hold()
	}
	if err != nil {
		return 0, o.s.fault("read", o.info.Name, err)
	}
	defer o.letGo()
	if off < 0 {
		return 0, o.s.fault("read", o.info.Name, fmt.Errorf("%w: offset %d", fs.ErrInvalid, off))
	}
	left := max(o.info.Size-off, 0)
	short := int64(len(p)) > left
	if short {
		p = p[:left]
	}
	c := &o.s.counters
	c.reads.Add(1)
	r := reading{o: o, ctx: ctx, off: off}
	if o.file == nil {
		n, err = r.bypass(p, off)
	} else {
		n, err = r.all(p)
	}
	if !r.fetched {
		c.hits.Add(1)
	}
	c.diskBytes.Add(r.disk)
	if err == nil && short {
		err = io.EOF
	}
	return n, err
}

// opened is the inner object, opened.
func (o *object) opened(ctx context.Context) (store.Object, error) {
	select {
	case o.origin <- struct{}{}:
		defer func() { <-o.origin }()
	case <-ctx.Done():
		return nil, o.s.fault("open", o.info.Name, ctx.Err())
	}
	if o.inner != nil {
		return o.inner, nil
	}
	inner, err := o.s.Store.Open(ctx, o.info.Name)
	if err != nil {
		return nil, err
	}
	if size := inner.Info().Size; size != o.info.Size {
		inner.Close()
		return nil, o.s.fault("open", o.info.Name, fmt.Errorf("%w: it has %d bytes, and should have %d; it has been replaced since its manifest was written, so open the data set again",
			ErrChanged, size, o.info.Size))
	}
	o.inner = inner
	return inner, nil
}

// reading is one ReadAt.
type reading struct {
	o       *object
	ctx     context.Context
	off     int64 // of the read
	fresh   bool  // nothing may come from the disk
	fetched bool  // something has come from the inner store
	disk    int64 // bytes that came from the disk
	bad     int64 // blocks that were not sound
}

// fetch reads from the inner store. n < len(p) comes with an error.
func (r *reading) fetch(p []byte, off int64) (n int, err error) {
	r.fetched = true
	inner, err := r.o.opened(r.ctx)
	if err != nil {
		return 0, err
	}
	c := &r.o.s.counters
	c.fetches.Add(1)
	n, err = inner.ReadAt(r.ctx, p, off)
	c.fetchedBytes.Add(int64(n))
	switch {
	case n == len(p):
		return n, nil
	case err == nil || errors.Is(err, io.EOF):
		err = r.o.s.fault("read", r.o.info.Name, fmt.Errorf("%w: it ends at byte %d, it had %d when it was opened: something has cut it meanwhile",
			io.ErrUnexpectedEOF, off+int64(n), r.o.info.Size))
	}
	return n, err
}

// bypass is fetch where nothing is kept.
func (r *reading) bypass(p []byte, off int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	r.o.s.counters.bypasses.Add(1)
	return r.fetch(p, off)
}

// all reads p, which the object does not end in, from the file and what it lacks
// from the inner store.
func (r *reading) all(p []byte) (done int, err error) {
	e := r.o.file
	if len(p) == 0 {
		return 0, nil
	}
	first, last := r.off/e.block, (r.off+int64(len(p))-1)/e.block
	if r.fresh = r.ctx.Value(freshKey{}) != nil; r.fresh {
		if err := e.drop(r.ctx, first, last-first+1, false); err != nil {
			if r.ctx.Err() == nil {
				e.s.folder.trouble(err)
			}
			return r.bypass(p, r.off)
		}
	}
	for done < len(p) {
		off := r.off + int64(done)
		n, err := r.some(p[done:], off, off/e.block, last)
		if done += n; err != nil {
			return done, err
		}
	}
	return done, nil
}

// some reads a part of p: of the blocks b to last, those at the start that are
// alike. n is 0 where that has to be looked at again.
func (r *reading) some(p []byte, off, b, last int64) (n int, err error) {
	e := r.o.file
	// to is the part of p before the end of n blocks.
	to := func(n int64) []byte { return p[:min(int64(len(p)), (b+n)*e.block-off)] }

	span := min(last-b+1, max(maxFetch/e.block, 1))
	if r.fresh {
		return r.missing(to, off, b, span)
	}

	k := int64(0)
	for b+k <= last && e.isSound(b+k) {
		k++
	}
	if k > 0 {
		n, err := e.file.ReadAt(to(k), e.data+off)
		if err == nil {
			r.disk += int64(n)
			return n, nil
		}
		return r.unsound(to(k), off, b, k, err)
	}

	checks, err := e.numbers(e.checks, b, span)
	if err != nil {
		e.s.folder.trouble(err)
		return r.bypass(to(span), off)
	}
	if checks[0] != 0 {
		return r.compared(to(1), off, b, checks[0])
	}
	k = 1
	for k < span && checks[k] == 0 {
		k++
	}
	return r.missing(to, off, b, k)
}

// compared reads p from the block b, which has not been compared yet.
func (r *reading) compared(p []byte, off, b int64, sum uint64) (int, error) {
	e := r.o.file
	start, length := b*e.block, e.length(b)
	whole := p
	if off != start || int64(len(p)) < length {
		buffer := e.s.buffer(length)
		defer e.s.buffers.Put(buffer)
		whole = *buffer
	}
	if _, err := e.file.ReadAt(whole, e.data+start); err != nil {
		return r.unsound(p, off, b, 1, err)
	}
	if check(whole) != sum {
		return r.unsound(p, off, b, 1, nil)
	}
	e.setSound(b)
	copy(p, whole[off-start:])
	r.disk += int64(len(p))
	return len(p), nil
}

// unsound drops those of k blocks from b on that are not what was fetched, so that
// they are missing; err is what reading them said. If that does not help, it
// bypasses them for p.
func (r *reading) unsound(p []byte, off, b, k int64, err error) (int, error) {
	e := r.o.file
	r.bad += k
	if err != nil {
		err = fmt.Errorf("read the cache of %s/%s: %w", e.s.URL(), r.o.info.Name, err)
	}
	if r.bad > 2*int64(len(p))/e.block+4 {
		if err != nil {
			e.s.folder.trouble(err)
		}
		return r.bypass(p, off)
	}
	if err := e.drop(r.ctx, b, k, true); err != nil {
		if r.ctx.Err() == nil {
			e.s.folder.trouble(err)
		}
		return r.bypass(p, off)
	}
	return 0, nil
}

// missing fetches the blocks from b on, k of them as it seemed, or waits for those
// who do; to is the part of p before the end of so many blocks.
func (r *reading) missing(to func(int64) []byte, off, b, k int64) (int, error) {
	e := r.o.file
	f := &e.s.folder
	if f.resting() {
		return r.bypass(to(k), off)
	}
	patience := time.NewTimer(e.s.c.Patience)
	defer patience.Stop()

	// One in this Store,
	k, busy := e.enter(b, k)
	if busy != nil {
		e.s.counters.waits.Add(1)
		select {
		case <-busy:
			return 0, nil
		case <-patience.C:
			return r.bypass(to(1), off)
		case <-r.ctx.Done():
			return 0, e.s.fault("read", r.o.info.Name, r.ctx.Err())
		}
	}
	defer e.exit(b, k)

	// of one process.
	for delay := time.Millisecond; ; delay = min(2*delay, 20*time.Millisecond) {
		c, got, err := e.claim(r.ctx, b, k)
		if err != nil {
			if r.ctx.Err() == nil {
				f.trouble(err)
			}
			return r.bypass(to(k), off)
		}
		switch c {
		case mine:
			return r.fill(to(got), off, b, got)
		case here:
			if r.fresh {
				return r.bypass(to(1), off)
			}
			return 0, nil
		case full:
			return r.bypass(to(k), off)
		case others:
		}
		if delay == time.Millisecond {
			e.s.counters.waits.Add(1)
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-patience.C:
			timer.Stop()
			return r.bypass(to(1), off)
		case <-r.ctx.Done():
			timer.Stop()
			return 0, e.s.fault("read", r.o.info.Name, r.ctx.Err())
		}
	}
}

// enter notes that blocks from b on, k of up to n, are being fetched; or, if b is
// already, returns what ends when that does.
func (e *entry) enter(b, n int64) (k int64, busy <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if busy, ok := e.fetched[b]; ok {
		return 0, busy
	}
	for k < n && e.fetched[b+k] == nil {
		e.fetched[b+k] = make(chan struct{})
		k++
	}
	return k, nil
}

// exit ends that for n blocks from b on.
func (e *entry) exit(b, n int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := b; i < b+n; i++ {
		close(e.fetched[i])
		delete(e.fetched, i)
	}
}

// fill fetches the k blocks from b on, which are claimed, keeps them, and returns
// the part p of them that begins at off.
func (r *reading) fill(p []byte, off, b, k int64) (n int, err error) {
	e := r.o.file
	// Whatever happens, a panic of the inner store included, ends the claim.
	defer func() {
		if err := e.setNumbers(e.claims, b, same(taken, k)); err != nil {
			e.s.folder.trouble(err)
		}
	}()
	start := b * e.block
	end := min(start+k*e.block, e.size)
	data := p
	if off != start || off+int64(len(p)) != end {
		buffer := e.s.buffer(end - start)
		defer e.s.buffers.Put(buffer)
		data = *buffer
	}
	got, err := r.fetch(data, start)
	whole := int64(got)
	if err != nil {
		whole -= whole % e.block
	}
	if err := e.keep(b, data[:whole]); err != nil {
		e.s.folder.trouble(err)
	}
	n = copy(p, data[min(off-start, int64(got)):got])
	if n == len(p) {
		return n, nil // the error lies behind what was asked for
	}
	return n, err
}
