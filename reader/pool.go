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
	slabs Slabs         // where those come from; nil: from where all blocks do
	wake  chan struct{} // something was given back, or lost

	ahead atomic.Int64 // bytes of spans
	// asking: the consumer waits for a batch, and has handed on those that it got.
	asking atomic.Bool

	mu    sync.Mutex
	used  int64 // bytes of all blocks
	free  int64 // bytes of idle ones
	idle  map[kind][]*block
	lent  map[*block]struct{} // but for those that the consumer has
	peak  int64
	ended bool
	// jobs are jobs to be used again, for their arrays. They refer to no pass.
	jobs chan *job
	lost error // a batch was dropped that can never be given back
	// dry: the one that takes waits for what only the consumer can give back.
	dry bool
}

// kind tells which blocks may stand for each other.
type kind struct {
	// class is their size. Negative, it is room for so many bytes, without a block of
	// memory.
	class int64
	// slab: a batch is to lie in it.
	slab bool
}

// block is memory aligned to 64 bytes.
type block struct {
	data []byte
	// mapped: data is no memory of Go's heap. slab: it is that of Config.Slabs.
	mapped, slab bool
	// elsewhere, without data: so many bytes are taken elsewhere.
	elsewhere int64
}

func newPool(size int64, m *meter, slabs Slabs) *pool {
	return &pool{
		size: size, meter: m, slabs: slabs, wake: make(chan struct{}, 1),
		jobs: make(chan *job, ahead),
		idle: map[kind][]*block{}, lent: map[*block]struct{}{},
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

// wait lends a block of a kind as soon as the pool has room for it, or, where
// it can never have that much, when nothing is lent but own bytes, which are those
// that cannot be given back before wait returns. It returns nil when giveUp, which may
// be nil, is true; it is asked whenever there is no room.
func (p *pool) wait(ctx context.Context, k kind, own int64, giveUp func() bool) (*block, error) {
	tick := time.NewTicker(stalled)
	defer tick.Stop()
	for {
		if giveUp != nil && giveUp() {
			return nil, nil
		}
		if p.slabs != nil && p.starved(own) {
			p.slabs.Starved(ctx)
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
		if b, err := p.try(k, own); b != nil || err != nil {
			return b, err
		}
	}
}

// try lends a block if there is one or room for one; otherwise it returns nil.
func (p *pool) try(k kind, own int64) (*block, error) {
	k.slab = k.slab && p.slabs != nil
	b, room := p.take(k, own)
	if !room {
		return b, nil
	}
	// Only one goroutine takes, so that what was counted is not taken twice.
	b, err := p.newBlock(k)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.count(-k.class)
		return nil, err
	}
	p.lent[b] = struct{}{}
	return b, nil
}

// starved says, once between two releases, that no more than own bytes of the pool are
// lent to anyone but the consumer, which waits for more.
func (p *pool) starved(own int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lent int64
	for b := range p.lent {
		lent += int64(len(b.data)) + b.elsewhere
	}
	told := p.dry
	p.dry = lent <= own && p.asking.Load()
	return p.dry && !told
}

// full says that there is no room for a block of n bytes now.
func (p *pool) full(n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used-p.free+sizeClass(n) > p.size
}

// take lends an idle block, or counts a new one and says that there is room for it.
func (p *pool) take(k kind, own int64) (b *block, room bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.class < 0 {
		if !p.room(-k.class, own) {
			return nil, false
		}
		p.count(-k.class)
		b = &block{elsewhere: -k.class}
		p.lent[b] = struct{}{}
		return b, false
	}
	for c := k.class; c <= k.class+k.class/4; c = sizeClass(c + 1) {
		if list := p.idle[kind{c, k.slab}]; len(list) > 0 {
			b = p.drop(kind{c, k.slab})
			p.lent[b] = struct{}{}
			return b, false
		}
	}
	if !p.room(k.class, own) {
		return nil, false
	}
	p.count(k.class)
	return nil, true
}

// room says that there is room for so many bytes more. Idle blocks make it, where it can be
// made of them: slabs last, which others may have to be told of.
func (p *pool) room(n, own int64) bool {
	if lent := p.used - p.free; lent+n > p.size && lent > own {
		return false // and they stay, for who needs them next
	}
	for _, slab := range []bool{false, true} {
		for k := range p.idle {
			for k.slab == slab && len(p.idle[k]) > 0 && p.used+n > p.size {
				p.release(p.drop(k))
			}
		}
	}
	return true
}

// count notes that the pool has so many bytes more.
func (p *pool) count(n int64) {
	p.used += n
	p.peak = max(p.peak, p.used)
	p.meter.add(n)
}

// drop takes the last block from an idle list.
func (p *pool) drop(k kind) *block {
	list := p.idle[k]
	b := list[len(list)-1]
	list[len(list)-1] = nil
	if p.idle[k] = list[:len(list)-1]; len(list) == 1 {
		delete(p.idle, k)
	}
	p.free -= int64(len(b.data))
	return b
}

// keep notes that the consumer has a block from here on.
func (p *pool) keep(b *block) {
	p.mu.Lock()
	delete(p.lent, b)
	p.mu.Unlock()
	if p.slabs != nil {
		p.notify() // that may be all that there was
	}
}

// put takes a block back.
func (p *pool) put(b *block) {
	p.mu.Lock()
	delete(p.lent, b)
	p.dry = false
	if p.ended || b.elsewhere > 0 {
		p.release(b)
	} else {
		k := kind{int64(len(b.data)), b.slab}
		p.free += k.class
		p.idle[k] = append(p.idle[k], b)
	}
	p.mu.Unlock()
	p.notify()
}

// lose notes that a batch can never be released any more.
func (p *pool) lose(epoch int, number int64) {
	p.mu.Lock()
	if p.lost == nil {
		p.lost = fmt.Errorf("%w: batch %d of epoch %d; call Release on every batch, when its tensors are no longer needed", errLeaked, number, epoch)
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
	for k := range p.idle {
		for len(p.idle[k]) > 0 {
			p.release(p.drop(k))
		}
	}
	for b := range p.lent {
		p.release(b)
	}
	clear(p.lent)
}

// release frees a block.
func (p *pool) release(b *block) {
	p.count(-int64(len(b.data)) - b.elsewhere)
	b.elsewhere = 0
	switch {
	case b.slab:
		p.slabs.Free(b.data)
	case b.mapped:
		unmapMemory(b.data)
	}
	b.data = nil // who uses it after this panics, and touches no memory
}

// leastMapped is the size from which on blocks are mapped: a system allows a process
// some 65,000 mappings.
const leastMapped = 256 << 10

// newBlock allocates a block of a kind.
func (p *pool) newBlock(k kind) (*block, error) {
	class := k.class
	if k.slab {
		data, err := p.slabs.Alloc(class)
		if err != nil {
			return nil, fmt.Errorf("memory for a batch: %w", err)
		}
		if int64(len(data)) != class || addressOf(data)%slabAlign != 0 {
			p.slabs.Free(data)
			return nil, fmt.Errorf("memory for a batch: Slabs gave %d bytes at %#x, where %d at a multiple of %d were asked for", len(data), addressOf(data), class, slabAlign)
		}
		return &block{data: data, slab: true}, nil
	}
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
