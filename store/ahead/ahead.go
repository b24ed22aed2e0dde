// Package ahead reads objects of a store behind a network front to back, as fast as if
// requests took no time: ranges are asked for before they are needed, of one object and of
// those that come after it. [NewReader] reads an object; where many are read, each takes a
// turn of [Turns].
package ahead

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/semaphore"

	"shardify/store"
)

// rangeSize is what is asked for with one request.
const rangeSize = 4 << 20

// Ranges are how many ranges of an object that is read alone should be in memory: one that
// is being used, and those that are under way. At 50 ms a request they make some 250 MB a
// second. Where few are read at once, Turns has more.
const Ranges = 4

const (
	// mostRanges is as many as Turns has.
	mostRanges = 8
	// memory is what Turns takes at least, before it has less of them.
	memory = 256 << 20
)

// Source is what a Reader reads: a store.Object, or something round it.
type Source interface {
	ReadAt(ctx context.Context, p []byte, off int64) (n int, err error)
}

// Reader reads a Source front to back. It is for one goroutine. Close it, and before that
// what reads from it.
type Reader struct {
	ctx    context.Context
	cancel context.CancelFunc
	source Source
	size   int64
	ranges int
	next   int64    // where the range begins that is asked for next
	flight []*piece // the ranges that were asked for, in their order
	used   *piece   // the range that is being used
	rest   []byte   // what is left of it
	err    error
}

// piece is a range.
type piece struct {
	data []byte
	err  error
	done chan struct{} // has one token when data and err are there
}

// NewReader returns a reader of the first size bytes of a source, which has so many ranges
// of 4 MiB in memory. It asks for nothing yet.
func NewReader(ctx context.Context, source Source, size int64, ranges int) *Reader {
	r := &Reader{source: source, size: size, ranges: ranges}
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r
}

// Begin asks for the first ranges, half of what the Reader may have, without waiting for
// them.
func (r *Reader) Begin() { r.ask(r.ranges / 2) }

// Read reads what comes next. An error that is not io.EOF is what the source has said, or
// that it ended before its size (store.ErrChanged); what lies before that is read first.
func (r *Reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.ask(r.ranges)
		if len(r.flight) == 0 {
			return 0, io.EOF
		}
		r.used, r.flight = r.flight[0], r.flight[1:]
		<-r.used.done // soon after the context, too
		r.rest, r.err = r.used.data, r.used.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// ask asks for ranges until so many are under way.
func (r *Reader) ask(most int) {
	for len(r.flight) < most && r.next < r.size {
		c := r.used // its room is free
		if r.used = nil; c == nil {
			c = &piece{data: make([]byte, min(rangeSize, r.size-r.next)), done: make(chan struct{}, 1)}
		}
		c.data = c.data[:min(int64(cap(c.data)), r.size-r.next)]
		off := r.next
		r.next += int64(len(c.data))
		r.flight = append(r.flight, c)
		go func() {
			var n int
			n, c.err = r.source.ReadAt(r.ctx, c.data, off)
			switch {
			case n == len(c.data):
				c.err = nil // that of the end
			case c.err == nil || errors.Is(c.err, io.EOF):
				c.err = fmt.Errorf("%w: it ends at %d", store.ErrChanged, off+int64(n))
			}
			c.data = c.data[:n]
			c.done <- struct{}{}
		}()
	}
}

// Err is the error that Read has returned, or will when what lies before it was read, if
// that is not io.EOF: who reads through a decoder does not always see it.
func (r *Reader) Err() error { return r.err }

// Close ends the requests that are under way.
func (r *Reader) Close() {
	r.cancel()
	for _, c := range r.flight {
		<-c.done
	}
	r.flight = nil
}

// waiting is how many objects may be begun before their turn, and beyond what may be read
// at once.
const waiting = 32

// Turns says when each of many objects is read: so many at once, while the next ones are
// begun, as far as their ranges do not take more memory than those that are read. It is
// safe for concurrent use.
type Turns struct {
	ranges int
	turns  chan struct{}
	bytes  *semaphore.Weighted // of what was begun and has no turn
}

// NewTurns returns turns of which n are at once. Their readers take 256 MiB at most, or 32
// for each of n where that is more.
func NewTurns(n int) *Turns {
	t := &Turns{turns: make(chan struct{}, n)}
	t.ranges = min(max(memory/(2*n*rangeSize), Ranges), mostRanges)
	t.bytes = semaphore.NewWeighted(int64(n*t.ranges) * rangeSize)
	return t
}

// Ranges is how many the Reader of an object has.
func (t *Turns) Ranges() int { return t.ranges }

// Goroutines is how many should read objects, each of which takes turns.
func (t *Turns) Goroutines() int { return cap(t.turns) + waiting }

// Turn is that of one object.
type Turn struct {
	t     *Turns
	bytes int64
	has   bool
}

// Begin waits until an object of so many bytes may be begun (Reader.Begin).
func (t *Turns) Begin(ctx context.Context, size int64) (*Turn, error) {
	n := min(max(size, 0), int64(t.ranges/2)*rangeSize)
	if err := t.bytes.Acquire(ctx, n); err != nil {
		return nil, err
	}
	return &Turn{t: t, bytes: n}, nil
}

// Take waits until the object may be read.
func (u *Turn) Take(ctx context.Context) error {
	select {
	case u.t.turns <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	u.has = true
	u.t.bytes.Release(u.bytes)
	u.bytes = 0
	return nil
}

// Done ends the turn, which need not have come.
func (u *Turn) Done() {
	if u.has {
		<-u.t.turns
		u.has = false
	}
	u.t.bytes.Release(u.bytes)
	u.bytes = 0
}
