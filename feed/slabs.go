package feed

import (
	"context"
	"fmt"
	"os"
	"sync"
	"unsafe"
)

// slab is memory that a client shares: of the host, or of a GPU.
type slab struct {
	data []byte
	// device is the GPU's UUID, and on it memory of size bytes.
	device string
	memory uint64
	size   int64
	// file is what the client maps, until it has been sent.
	file *os.File
	// sent: the client has it, by its number.
	sent   bool
	number int64
}

// closeFile closes it; what is mapped stays.
func (s *slab) closeFile() {
	// Nothing was written through it that could be lost.
	_ = s.file.Close()
}

// slabs are those of a client: reader.Slabs.
type slabs struct {
	out *outbox
	// starved tells the client that it holds all that a pass has.
	starved func(ctx context.Context)

	mu sync.Mutex
	by map[*byte]*slab
	// next is the next one's number.
	next int64
}

func newSlabs(out *outbox) *slabs { return &slabs{out: out, by: map[*byte]*slab{}, next: 1} }

// Alloc maps memory that another process can map, too.
func (s *slabs) Alloc(n int64) ([]byte, error) {
	f, data, err := newShared(n)
	if err != nil {
		return nil, fmt.Errorf("shared memory of %d bytes: %w%s", n, err, sharedHint(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by[unsafe.SliceData(data)] = &slab{data: data, file: f}
	return data, nil
}

// Free frees it, and tells the client.
func (s *slabs) Free(b []byte) {
	if len(b) == 0 {
		return
	}
	s.mu.Lock()
	x := s.by[unsafe.SliceData(b)]
	delete(s.by, unsafe.SliceData(b))
	s.mu.Unlock()
	if x == nil || len(x.data) != len(b) {
		panic("feed: memory that is no slab is freed")
	}
	if x.sent {
		s.out.put(message{text: text(slabEvent{Event: "unslab", Slab: x.number})})
	} else {
		x.closeFile()
	}
	freeShared(x.data)
}

// lend returns the slab that memory is, telling the client of one that it does not know.
func (s *slabs) lend(b []byte) *slab {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.by[unsafe.SliceData(b)]
	if x == nil {
		panic("feed: a batch lies in no slab")
	}
	if !x.sent {
		s.tell(x, slabEvent{Event: "slab", Bytes: int64(len(x.data))})
	}
	return x
}

// add tells the client of memory on a GPU.
func (s *slabs) add(x *slab) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell(x, slabEvent{Event: "slab", Bytes: x.size, Device: x.device})
}

// tell sends a slab, and numbers it. (s.mu)
func (s *slabs) tell(x *slab, e slabEvent) {
	x.sent, x.number, e.Slab = true, s.next, s.next
	s.next++
	s.out.put(message{text: text(e), fresh: x})
}

// Starved tells the client.
func (s *slabs) Starved(ctx context.Context) { s.starved(ctx) }
