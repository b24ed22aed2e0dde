package reader

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// pool is the memory of a pass, and of a next one when that has ended: it lends blocks, which together with those that
// lie idle in it never have more than size bytes. Only one goroutine calls get, in
// the order in which blocks are needed, so that what is lent can always be given
// back without more being lent.
type pool struct {
	size int64
	wake chan struct{} // something was given back, or lost

	mu    sync.Mutex
	used  int64 // bytes of all blocks
	free  int64 // bytes of idle ones
	idle  map[int64][]*block
	peak  int64
	ended bool
	lost  error // a batch was dropped that can never be given back
}

// block is memory aligned to 64 bytes.
type block struct {
	data []byte
}

func newPool(size int64) *pool {
	return &pool{size: size, idle: map[int64][]*block{}, wake: make(chan struct{}, 1)}
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

// get lends a block of at least n bytes. It waits until the pool has room, or,
// where n is more than it can ever have, until nothing is lent but own bytes, which
// are those that cannot be given back before get returns.
func (p *pool) get(ctx context.Context, n, own int64) (*block, error) {
	class := sizeClass(n)
	if b := p.try(class, own); b != nil {
		return b, nil
	}
	tick := time.NewTicker(stalled)
	defer tick.Stop()
	for {
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
		if b := p.try(class, own); b != nil {
			return b, nil
		}
	}
}

// try lends a block if there is one or room for one.
func (p *pool) try(class, own int64) *block {
	p.mu.Lock()
	b, room := p.take(class, own)
	p.mu.Unlock()
	if room {
		b = &block{data: aligned(class)}
	}
	return b
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
	for p.used+class > p.size && p.free > 0 {
		for c := range p.idle {
			p.drop(c)
			p.free -= c
			p.used -= c
			break
		}
	}
	if p.used+class > p.size && p.used > own {
		return nil, false
	}
	p.used += class
	p.peak = max(p.peak, p.used)
	return nil, true
}

// drop takes the last block from an idle list.
func (p *pool) drop(class int64) {
	list := p.idle[class]
	list[len(list)-1] = nil
	if p.idle[class] = list[:len(list)-1]; len(list) == 1 {
		delete(p.idle, class)
	}
}

// put takes a block back.
func (p *pool) put(b *block) {
	class := int64(len(b.data))
	p.mu.Lock()
	if p.ended {
		p.used -= class
	} else {
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

// notify makes get look again.
func (p *pool) notify() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// end drops the idle blocks, and from now on all that come back.
func (p *pool) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= p.free
	p.free, p.ended = 0, true
	clear(p.idle)
}

// aligned allocates n bytes at a multiple of 64.
func aligned(n int64) []byte {
	b := make([]byte, n+63)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & 63
	return b[skip : skip+int(n) : skip+int(n)]
}

// errLeaked: a batch became garbage that had not been released.
var errLeaked = errors.New("batch was dropped without Release")
