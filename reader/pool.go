package reader

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// pool is the memory of a pass, and of a next one when that has ended: it lends blocks,
// which together with those that lie idle in it never have more than size bytes. Only
// one goroutine takes, in the order in which blocks are needed, so that what is lent can
// always be given back without more being lent.
//
// Blocks are mapped from the system, not allocated on Go's heap, where that can be: the
// collector lets a heap grow by as much garbage as it has live memory, so that a pool of
// a gigabyte on the heap would make a process of two. In return a block must be given
// back by whoever has it. A pass that ends frees what its stages had; what the consumer
// has stays until Release, and for ever where a batch is dropped without it.
type pool struct {
	size  int64
	meter *meter
	wake  chan struct{} // something was given back, or lost

	ahead atomic.Int64 // bytes of spans

	mu    sync.Mutex
	used  int64 // bytes of all blocks
	free  int64 // bytes of idle ones
	idle  map[int64][]*block
	lent  map[*block]struct{} // but for those that the consumer has
	peak  int64
	ended bool
	// jobs are jobs to be used again, for their arrays. They refer to no pass.
	jobs chan *job
	lost error // a batch was dropped that can never be given back
}

// block is memory aligned to 64 bytes.
type block struct {
	data []byte
	// mapped: data is no memory of Go's heap.
	mapped bool
	// elsewhere, without data: so many bytes are taken elsewhere.
	elsewhere int64
}

func newPool(size int64, m *meter) *pool {
	return &pool{
		size: size, meter: m, wake: make(chan struct{}, 1),
		jobs: make(chan *job, ahead),
		idle: map[int64][]*block{}, lent: map[*block]struct{}{},
	}
}

// sizeClass rounds up to one of eight steps between powers of two, so that blocks
// fit again; at least a page.
func sizeClass(n int64) int64 {
	if n <= 4096 {
		return 4096
	}
	step := int64(1) << (bits.Len64(uint64(n-1)) - 4)
	return (n + step - 1) / step * step
}

// stalled is how long get waits before it looks for lost batches.
const stalled = 2 * time.Second

// wait lends a block of a size class as soon as the pool has room for it, or, where
// it can never have that much, when nothing is lent but own bytes, which are those
// that cannot be given back before wait returns. It returns nil when giveUp, which may
// be nil, is true; it is asked whenever there is no room.
func (p *pool) wait(ctx context.Context, class, own int64, giveUp func() bool) (*block, error) {
	tick := time.NewTicker(stalled)
	defer tick.Stop()
	for {
		if giveUp != nil && giveUp() {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-p.wake:
		case <-tick.C:
			runtime.GC() // finds batches that were dropped
		}
		if err := p.leak(); err != nil {
			return nil, err
		}
		if b, err := p.try(class, own); b != nil || err != nil {
			return b, err
		}
	}
}

// try lends a block if there is one or room for one; otherwise it returns nil. A negative
// class is room for so many bytes, without a block of memory.
func (p *pool) try(class, own int64) (*block, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if class < 0 {
		if !p.room(-class, own) {
			return nil, nil
		}
		p.count(-class)
		b := &block{elsewhere: -class}
		p.lent[b] = struct{}{}
		return b, nil
	}
	b, room := p.take(class, own)
	if room {
		var err error
		if b, err = newBlock(class); err != nil {
			p.count(-class)
			return nil, err
		}
	}
	if b != nil {
		p.lent[b] = struct{}{}
	}
	return b, nil
}

// full says that there is no room for a block of n bytes now.
func (p *pool) full(n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used-p.free+sizeClass(n) > p.size
}

// take finds an idle block or says that there is room for a new one.
func (p *pool) take(class, own int64) (*block, bool) {
	for c := class; c <= class+class/4; c = sizeClass(c + 1) {
		if list := p.idle[c]; len(list) > 0 {
			b := list[len(list)-1]
			p.drop(c)
			p.free -= c
			return b, false
		}
	}
	if !p.room(class, own) {
		return nil, false
	}
	p.count(class)
	return nil, true
}

// room says that there is room for so many bytes more; idle blocks make it.
func (p *pool) room(n, own int64) bool {
	for p.used+n > p.size && p.free > 0 {
		for c, list := range p.idle {
			b := list[len(list)-1]
			p.drop(c)
			p.free -= c
			p.release(b)
			break
		}
	}
	return p.used+n <= p.size || p.used <= own
}

// count notes that the pool has so many bytes more.
func (p *pool) count(n int64) {
	p.used += n
	p.peak = max(p.peak, p.used)
	p.meter.add(n)
}

// drop takes the last block from an idle list.
func (p *pool) drop(class int64) {
	list := p.idle[class]
	list[len(list)-1] = nil
	if p.idle[class] = list[:len(list)-1]; len(list) == 1 {
		delete(p.idle, class)
	}
}

// keep notes that the consumer has a block from here on.
func (p *pool) keep(b *block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.lent, b)
}

// put takes a block back.
func (p *pool) put(b *block) {
	p.mu.Lock()
	delete(p.lent, b)
	if p.ended || b.elsewhere > 0 {
		p.release(b)
	} else {
		class := int64(len(b.data))
		p.free += class
		p.idle[class] = append(p.idle[class], b)
	}
	p.mu.Unlock()
	p.notify()
}

// lose notes that a batch can never be released any more.
func (p *pool) lose(number int64) {
	p.mu.Lock()
	if p.lost == nil {
		p.lost = fmt.Errorf("%w: batch %d; call Release on every batch, when its tensors are no longer needed", errLeaked, number)
	}
	p.mu.Unlock()
	p.notify()
}

// leak returns what lose has noted.
func (p *pool) leak() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// notify makes wait look again.
func (p *pool) notify() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// end frees all blocks but those that the consumer has, which are freed when they come
// back. No goroutine of a pass may be left.
func (p *pool) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for class, list := range p.idle {
		for _, b := range list {
			p.free -= class
			p.release(b)
		}
	}
	clear(p.idle)
	for b := range p.lent {
		p.release(b)
	}
	clear(p.lent)
}

// release frees a block.
func (p *pool) release(b *block) {
	p.count(-int64(len(b.data)) - b.elsewhere)
	b.elsewhere = 0
	if b.mapped {
		unmapMemory(b.data)
	}
	b.data = nil // who uses it after this panics, and touches no memory
}

// leastMapped is the size from which on blocks are mapped: a system allows a process
// some 65,000 mappings.
const leastMapped = 256 << 10

// newBlock allocates a block of a size class.
func newBlock(class int64) (*block, error) {
	if class >= leastMapped {
		data, err := mapMemory(class)
		if err == nil || !errors.Is(err, errors.ErrUnsupported) {
			return &block{data: data, mapped: true}, err
		}
	}
	return &block{data: aligned(class)}, nil
}

// addressOf is where memory begins.
func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// aligned allocates n bytes at a multiple of 64 on Go's heap.
func aligned(n int64) []byte {
	b := make([]byte, n+63)
	skip := -int(addressOf(b)) & 63
	return b[skip : skip+int(n) : skip+int(n)]
}

// errLeaked: a batch became garbage that had not been released.
var errLeaked = errors.New("batch was dropped without Release")
