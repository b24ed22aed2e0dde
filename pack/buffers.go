package pack

import (
	"math/bits"
	"sync"
)

// buffers lends memory for samples, and keeps what comes back for the next ones.
// What is lent and what is kept are together at most most bytes, as long as no more
// than that is lent. Sizes are rounded up to four steps an octave, so that buffers
// fit again and at most a quarter of them is unused.
type buffers struct {
	most int64

	mu   sync.Mutex
	free map[int64][][]byte // by capacity
	held int64              // bytes lent and kept
	kept int64              // bytes in free
}

// class returns the capacity of a buffer for size bytes.
func class(size int64) int64 {
	const least = 4 << 10
	if size <= least {
		return least
	}
	step := int64(1) << (bits.Len64(uint64(size-1)) - 3)
	return (size + step - 1) &^ (step - 1)
}

// get returns a buffer of length 0 and capacity class(size).
func (b *buffers) get(size int64) []byte {
	c := class(size)
	b.mu.Lock()
	defer b.mu.Unlock()
	if buf := b.take(c); buf != nil {
		return buf
	}
	for other := range b.free {
		for b.held+c > b.most && b.take(other) != nil {
			b.held -= other
		}
	}
	b.held += c
	return make([]byte, 0, c)
}

// take takes a buffer of capacity c from those that are kept; nil if there is none.
func (b *buffers) take(c int64) []byte {
	list := b.free[c]
	if len(list) == 0 {
		return nil
	}
	buf := list[len(list)-1]
	list[len(list)-1] = nil
	b.free[c] = list[:len(list)-1]
	b.kept -= c
	return buf
}

// put takes a buffer back.
func (b *buffers) put(buf []byte) {
	c := int64(cap(buf))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held > b.most { // a sample larger than all of the memory
		b.held -= c
		return
	}
	if b.free == nil {
		b.free = map[int64][][]byte{}
	}
	b.free[c] = append(b.free[c], buf[:0])
	b.kept += c
}
