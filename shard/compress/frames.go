package compress

import (
	"container/list"
	"context"
	"math/bits"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// Frames is the memory into which readers of zstd with a seek table decode, and which
// keeps the frames that were used last in part. Any number of readers may share one:
// NewSourceReader's option for what reads many shards in a bounded memory. It is safe
// for concurrent use.
type Frames struct {
	half  int64
	inUse *semaphore.Weighted // of half: bytes of reads under way

	mu      sync.Mutex
	bytes   int64      // of kept, at most half but for those in use
	recent  *list.List // of *keptFrame, the last used in front
	entries map[frameKey]*keptFrame
	decoded atomic.Int64

	buffers sync.Pool     // of *[]byte, for compressed bytes
	spared  [96]sync.Pool // of *keptFrame, by class
}

type frameKey struct {
	of    *seekable
	frame int
}

type keptFrame struct {
	key   frameKey
	raw   []byte
	users int
	at    *list.Element
}

// DefaultFrames is the bytes of the Frames of a reader that has its own: two of the
// largest frames that are decoded in one piece.
const DefaultFrames = 2 * maxWhole

// NewFrames returns memory of so many bytes: half for reads under way, which wait for
// each other where that is too little (a single one that needs more has it alone), and
// half for what is kept. A frame of more than 16 MiB, which only others write, is not
// held, nor counted: it takes zstd's window, at most 128 MiB.
func NewFrames(bytes int64) *Frames {
	half := max(1, bytes/2)
	return &Frames{half: half, inUse: semaphore.NewWeighted(half), recent: list.New(), entries: map[frameKey]*keptFrame{}}
}

// Decoded is how many frames have been decoded.
func (f *Frames) Decoded() int64 { return f.decoded.Load() }

// reserve waits for n bytes for a read under way, and returns how many to release.
func (f *Frames) reserve(ctx context.Context, n int64) (int64, error) {
	n = min(n, f.half)
	return n, f.inUse.Acquire(ctx, n)
}

// get returns a kept frame for use until put; nil if it is not there.
func (f *Frames) get(key frameKey) *keptFrame {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.entries[key]
	if k != nil {
		k.users++
		f.recent.MoveToFront(k.at)
	}
	return k
}

// room returns memory for n bytes of a frame, to be kept or spared. Frames that were not
// used for longest are dropped for it.
func (f *Frames) room(n int) *keptFrame {
	class := sizeClass(n)
	f.mu.Lock()
	for at := f.recent.Back(); at != nil && f.bytes+int64(class.size()) > f.half; {
		k := at.Value.(*keptFrame)
		at = at.Prev()
		if k.users == 0 {
			f.drop(k)
			f.spare(k)
		}
	}
	f.mu.Unlock()
	k, ok := f.spared[class].Get().(*keptFrame)
	if !ok {
		k = &keptFrame{raw: make([]byte, class.size())}
	}
	k.raw = k.raw[:n]
	return k
}

func (f *Frames) drop(k *keptFrame) {
	f.recent.Remove(k.at)
	delete(f.entries, k.key)
	f.bytes -= int64(cap(k.raw))
}

// spare leaves memory to frames to come, until the next garbage collection but one.
func (f *Frames) spare(k *keptFrame) {
	k.key, k.at = frameKey{}, nil
	f.spared[sizeClass(cap(k.raw))].Put(k)
}

// keep keeps a decoded frame, if there is room for it.
func (f *Frames) keep(key frameKey, k *keptFrame) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.entries[key] != nil || f.bytes+int64(cap(k.raw)) > f.half {
		f.spare(k)
		return
	}
	k.key = key
	k.at = f.recent.PushFront(k)
	f.entries[key] = k
	f.bytes += int64(cap(k.raw))
}

// class is a step of sizes, of which there are four between powers of two, so that memory
// fits again.
type class int

func sizeClass(n int) class {
	if n <= 16 {
		return 0
	}
	e := bits.Len(uint(n-1)) - 3
	return class(4*e + (n-1)>>e - 3)
}

func (c class) size() int {
	if c == 0 {
		return 16
	}
	e := (c - 1) / 4
	return int(c-4*e+4) << e
}

// put ends the use of a kept frame.
func (f *Frames) put(k *keptFrame) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k.users--
}

// buffer lends memory for compressed bytes, until it is put into buffers.
func (f *Frames) buffer(n int64) *[]byte {
	b, ok := f.buffers.Get().(*[]byte)
	if !ok {
		b = new([]byte)
	}
	*b = resize(*b, int(n))
	return b
}
