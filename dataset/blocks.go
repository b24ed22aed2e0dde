package dataset

import (
	"context"
	"errors"
	"hash"
	"io"

	"shardify/index"
	"shardify/store"
	"shardify/store/ahead"
)

// objectReader reads an object front to back and hashes what it reads, once, while
// it is in the cache.
type objectReader struct {
	ctx    context.Context
	object store.Object
	hash   hash.Hash64
	off    int64
	// done counts bytes for Progress.
	done func(n int)
	// err is the store's error, other than the end of the object.
	err error
	// front reads what lies behind a network; nil for other objects.
	front *ahead.Reader
}

// newObjectReader returns a reader of an object of the store at a URL, which has so many
// ranges in memory if that is behind a network. Close it.
func newObjectReader(ctx context.Context, url string, o store.Object, ranges int, done func(n int)) *objectReader {
	r := &objectReader{ctx: ctx, object: o, hash: index.NewHash(), done: done}
	if !store.IsLocal(url) {
		r.front = ahead.NewReader(ctx, o, o.Info().Size, ranges)
	}
	return r
}

// goroutines is how many should read shards of the store at a URL, of which so many at
// once, in turns.
func goroutines(turns *ahead.Turns, workers int, url string) int {
	if store.IsLocal(url) {
		return workers
	}
	return turns.Goroutines()
}

// begin asks for what comes first, where that takes long, without waiting.
func (r *objectReader) begin() {
	if r.front != nil {
		r.front.Begin()
	}
}

// close ends what is under way; the object stays open.
func (r *objectReader) close() {
	if r.front != nil {
		r.front.Close()
	}
}

// next reads what comes next.
func (r *objectReader) next(p []byte) (int, error) {
	if r.front == nil {
		return r.object.ReadAt(r.ctx, p, r.off)
	}
	return r.front.Read(p)
}

func (r *objectReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.next(p)
	r.hash.Write(p[:n])
	r.off += int64(n)
	r.done(n)
	switch {
	case err == nil:
	case !errors.Is(err, io.EOF):
		r.err = err
	case n > 0:
		err = nil
	default:
		err = io.EOF
	}
	return n, err
}

// window is a buffered reader that shows runs of bytes of any length in place.
type window struct {
	src io.Reader
	buf []byte
	// buf[r:w] has been read from src and not been shown.
	r, w int
	// pos is the place of buf[r] in the stream.
	pos int64
	err error
}

// blockSize is how much window reads at once: much more than a system call costs,
// and little enough that hash and field checks find it in a core's own cache.
const blockSize = 512 << 10

func newWindow(src io.Reader) *window { return &window{src: src, buf: make([]byte, blockSize)} }

// reset starts over with another source, keeping the buffer.
func (b *window) reset(src io.Reader, pos int64) {
	b.src, b.r, b.w, b.pos, b.err = src, 0, 0, pos, nil
}

// fill reads more; it returns the error of the source where nothing more comes.
func (b *window) fill() error {
	if b.err != nil {
		return b.err
	}
	if b.r == b.w {
		b.r, b.w = 0, 0
	}
	// A reader that returns neither bytes nor an error a hundred times never will.
	for range 100 {
		n, err := b.src.Read(b.buf[b.w:])
		b.w += n
		b.err = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	b.err = io.ErrNoProgress
	return b.err
}

// next returns the next n bytes, valid until the next call. Where the stream ends
// before, it returns what there is, with io.EOF or the source's error. The buffer
// grows with the bytes that come, not with what n claims.
func (b *window) next(n int64) ([]byte, error) {
	for int64(b.w-b.r) < n {
		if b.r > 0 && int64(len(b.buf)-b.r) < n {
			b.w = copy(b.buf, b.buf[b.r:b.w])
			b.r = 0
		}
		if b.w == len(b.buf) {
			grown := make([]byte, min(int64(2*len(b.buf)), max(n, blockSize)))
			b.w = copy(grown, b.buf[b.r:b.w])
			b.buf, b.r = grown, 0
		}
		if err := b.fill(); err != nil {
			n = int64(b.w - b.r)
			p := b.take(int(n))
			return p, err
		}
	}
	return b.take(int(n)), nil
}

func (b *window) take(n int) []byte {
	p := b.buf[b.r : b.r+n]
	b.r += n
	b.pos += int64(n)
	return p
}

// Read makes window an io.Reader.
func (b *window) Read(p []byte) (int, error) {
	if b.r == b.w {
		if err := b.fill(); err != nil {
			return 0, err
		}
	}
	return copy(p, b.take(min(len(p), b.w-b.r))), nil
}

// skip goes forward by n bytes, or to the end of the stream where that comes before.
func (b *window) skip(n int64, see func(p []byte)) error {
	for n > 0 {
		if b.r == b.w {
			if err := b.fill(); err != nil {
				return err
			}
		}
		p := b.take(int(min(n, int64(b.w-b.r))))
		if see != nil {
			see(p)
		}
		n -= int64(len(p))
	}
	return nil
}
