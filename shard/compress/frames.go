package compress

import (
	"container/list"
	"context"
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

	buffers sync.Pool // of *[]byte, for compressed bytes
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

// reserve waits for n bytes for a read under way.
func (f *Frames) reserve(ctx context.Context, n int64) (release func(), err error) {
	n = min(n, f.half)
	if err := f.inUse.Acquire(ctx, n); err != nil {
		return nil, err
	}
	return func() { f.inUse.Release(n) }, nil
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

// room returns memory for n bytes of a frame, that of others which are dropped for it
// where it can be.
func (f *Frames) room(n int) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	var best []byte
	for at := f.recent.Back(); at != nil && f.bytes+int64(n) > f.half; {
		k := at.Value.(*keptFrame)
		at = at.Prev()
		if k.users > 0 {
			continue
		}
		f.drop(k)
		if cap(k.raw) >= n && cap(k.raw) < 2*n {
			best = k.raw
		}
	}
	return resize(best, n)
}

func (f *Frames) drop(k *keptFrame) {
	f.recent.Remove(k.at)
	delete(f.entries, k.key)
	f.bytes -= int64(cap(k.raw))
}

// keep keeps a decoded frame, if there is room for it.
func (f *Frames) keep(key frameKey, raw []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.entries[key] != nil || f.bytes+int64(cap(raw)) > f.half {
		return
	}
	k := &keptFrame{key: key, raw: raw}
	k.at = f.recent.PushFront(k)
	f.entries[key] = k
	f.bytes += int64(cap(raw))
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
