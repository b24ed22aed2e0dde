package compress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"

	"shardify/shard"
)

// ReaderAt reads a container at its offsets before compression. It is safe for
// concurrent use and needs no closing.
type ReaderAt interface {
	io.ReaderAt
	// Size is the container's size before compression; -1 where that is not known
	// because there is no seek table and the end has not been read yet.
	Size() int64
}

// Source is read at offsets, each time under a context; as with io.ReaderAt, n <
// len(p) comes with an error. A store.Object is one.
type Source interface {
	ReadAt(ctx context.Context, p []byte, off int64) (n int, err error)
}

// SourceReader is a ReaderAt whose reads have contexts. A read ends when its context
// does, if the Source obeys it, also while it waits for another read; it disturbs no
// other.
type SourceReader interface {
	Source
	// Size is as ReaderAt's.
	Size() int64
}

// NewReaderAt is NewSourceReader without contexts.
func NewReaderAt(r io.ReaderAt, size int64, kind string) (ReaderAt, error) {
	s, err := NewSourceReader(context.Background(), withContext{r}, size, kind, nil)
	if err != nil {
		return nil, err
	}
	return withoutContext{s}, nil
}

type withContext struct{ r io.ReaderAt }

func (w withContext) ReadAt(_ context.Context, p []byte, off int64) (int, error) {
	return w.r.ReadAt(p, off)
}

type withoutContext struct{ SourceReader }

func (w withoutContext) ReadAt(p []byte, off int64) (int, error) {
	return w.SourceReader.ReadAt(context.Background(), p, off)
}

// NewSourceReader returns a reader of the container that is compressed in the size
// bytes of r; ctx is for what it reads of them at once. Frames may be shared with other
// readers; nil: it has its own, of DefaultFrames bytes. What ReadAt costs depends on the
// kind:
//
//   - None: a ReadAt of r.
//   - Zstd with a seek table: decoding the frames touched, each checked against its
//     checksum, with one ReadAt of r for neighbouring ones of up to 8 MiB. Frames that p
//     has room for are decoded straight into it; those last used in part are kept. Reads
//     run side by side, as far as Frames has memory.
//   - Gzip, and Zstd without a seek table: one decoder, which moves forward. A read
//     at or behind the end of the last one decodes what lies between, a read before
//     it decodes from the start again. Reads wait for each other. The same holds
//     within a frame of more than 16 MiB, which only others write; its checksum is
//     only checked when its end is read.
func NewSourceReader(ctx context.Context, r Source, size int64, kind string, frames *Frames) (SourceReader, error) {
	switch kind {
	case None:
		return plain{r, size}, nil
	case Gzip:
		return newSequential(r, 0, size, kind), nil
	case Zstd:
		table, err := readSeekTable(ctx, r, size)
		if err != nil {
			return nil, err
		}
		if table == nil {
			return newSequential(r, 0, size, kind), nil
		}
		if frames == nil {
			frames = NewFrames(DefaultFrames)
		}
		return &seekable{r: r, table: table, shared: frames}, nil
	default:
		return nil, unknown(kind)
	}
}

const (
	// maxWhole is the size up to which a frame is decoded in one piece.
	maxWhole = 16 << 20
	// maxTogether is how many bytes of compressed frames are read at once.
	maxTogether = 8 << 20
)

var errOffset = errors.New("compress: negative offset")

// plain is what is not compressed.
type plain struct {
	r    Source
	size int64
}

func (s plain) Size() int64 { return s.size }

func (s plain) ReadAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, errOffset
	}
	left := max(s.size-off, 0)
	if int64(len(p)) <= left {
		return s.r.ReadAt(ctx, p, off)
	}
	if left > 0 {
		n, err = s.r.ReadAt(ctx, p[:left], off)
	}
	if err == nil {
		err = io.EOF
	}
	return n, err
}

type seekable struct {
	r      Source
	table  *seekTable
	shared *Frames

	mu    sync.Mutex
	large *sequential // in the frame at
	at    int         // the frame of large
}

func (s *seekable) Size() int64 { return s.table.frames[len(s.table.frames)-1].raw }

func (s *seekable) ReadAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, errOffset
	}
	for i := s.table.find(off); n < len(p); {
		if i == len(s.table.frames)-1 {
			return n, io.EOF
		}
		if compressed, raw := s.table.size(i); raw > maxWhole || compressed > 2*maxWhole {
			from := off + int64(n) - s.table.frames[i].raw
			m, err := s.readLarge(ctx, i, p[n:][:min(int64(len(p)-n), raw-from)], from)
			n += m
			if err != nil {
				return n, err
			}
			i++
			continue
		}
		to := s.together(i, off+int64(len(p)))
		m, err := s.readFrames(ctx, i, to, p[n:], off+int64(n))
		n += m
		if err != nil {
			return n, err
		}
		i = to
	}
	return n, nil
}

// together returns the end of the frames from i on that are read at once, to reach end.
func (s *seekable) together(i int, end int64) int {
	f := s.table.frames
	to := i + 1
	for ; to < len(f)-1 && f[to].raw < end && f[to+1].at-f[i].at <= maxTogether; to++ {
		if _, raw := s.table.size(to); raw > maxWhole {
			break
		}
	}
	return to
}

// readFrames fills p from off on with what frames i to to have.
func (s *seekable) readFrames(ctx context.Context, i, to int, p []byte, off int64) (n int, err error) {
	f := s.table.frames
	// What is kept need not be read.
	for ; i < to; i++ {
		m := s.copyKept(i, p[n:], off+int64(n))
		if m < 0 {
			break
		}
		n += m
	}
	if i == to {
		return n, nil
	}
	size := f[to].at - f[i].at
	reserved, err := s.shared.reserve(ctx, size+s.partly(i, to, off+int64(n), off+int64(len(p))))
	if err != nil {
		return n, err
	}
	defer s.shared.inUse.Release(reserved)
	compressed := s.shared.buffer(size)
	defer s.shared.buffers.Put(compressed)
	if err := readFull(ctx, s.r, *compressed, f[i].at); err != nil {
		return n, err
	}
	for start := f[i].at; i < to; i++ {
		m, err := s.readFrame(i, (*compressed)[f[i].at-start:f[i+1].at-start], p[n:], off+int64(n))
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// partly is the most bytes of one of the frames i to to that does not lie wholly between
// off and end.
func (s *seekable) partly(i, to int, off, end int64) (most int64) {
	for _, k := range []int{i, to - 1} {
		if _, raw := s.table.size(k); s.table.frames[k].raw < off || s.table.frames[k+1].raw > end {
			most = max(most, raw)
		}
	}
	return most
}

// copyKept fills p from off on with what a kept frame has of it; -1 where it is not kept.
func (s *seekable) copyKept(i int, p []byte, off int64) int {
	k := s.shared.get(frameKey{s, i})
	if k == nil {
		return -1
	}
	defer s.shared.put(k)
	return copy(p, k.raw[off-s.table.frames[i].raw:])
}

// readFrame fills p from off on with what frame i has of it.
func (s *seekable) readFrame(i int, compressed, p []byte, off int64) (int, error) {
	_, raw := s.table.size(i)
	if raw == 0 {
		return 0, nil
	}
	at := off - s.table.frames[i].raw
	p = p[:min(int64(len(p)), raw-at)]
	if int64(len(p)) == raw {
		if err := s.decode(i, compressed, p); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	if n := s.copyKept(i, p, off); n >= 0 {
		return n, nil
	}
	k := s.shared.room(int(raw))
	if err := s.decode(i, compressed, k.raw); err != nil {
		s.shared.spare(k)
		return 0, err
	}
	n := copy(p, k.raw[at:])
	s.shared.keep(frameKey{s, i}, k)
	return n, nil
}

// resize returns a slice of length n, b itself where that is large enough.
func resize(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// The decoders of whole frames, which all seekables share. The second leaves it to
// the seek table's checksum to check the content.
var (
	checking = sync.OnceValues(func() (*zstd.Decoder, error) { return newFrameDecoder(false) })
	trusting = sync.OnceValues(func() (*zstd.Decoder, error) { return newFrameDecoder(true) })
)

func newFrameDecoder(ignoreChecksum bool) (*zstd.Decoder, error) {
	return zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(runtime.GOMAXPROCS(0)),
		zstd.WithDecoderMaxWindow(maxWindow),
		zstd.WithDecodeAllCapLimit(true),
		zstd.IgnoreChecksum(ignoreChecksum))
}

// decode decodes frame i into raw, which has its size.
func (s *seekable) decode(i int, compressed, raw []byte) error {
	f := &s.table.frames[i]
	s.shared.decoded.Add(1)
	get := checking
	if s.table.checksums {
		get = trusting
	}
	dec, err := get()
	if err != nil {
		return err
	}
	got, err := dec.DecodeAll(compressed, raw[:0:len(raw)])
	if err == nil && len(got) != len(raw) {
		err = fmt.Errorf("the frame holds %d bytes, the seek table says %d", len(got), len(raw))
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		// Not the file ends too early, but the frame does, of which all is here.
		err = errors.New("the frame's blocks do not end where the frame does")
	}
	if err != nil {
		return fmt.Errorf("zstd frame %d: %w", i, translate(err, "zstd", f.raw))
	}
	if &got[0] != &raw[0] {
		copy(raw, got)
	}
	if s.table.checksums && uint32(xxhash.Sum64(raw)) != f.sum {
		return fmt.Errorf("zstd frame %d, which holds the %d bytes from offset %d on: %w", i, len(raw), f.raw, shard.ErrChecksum)
	}
	return nil
}

// readLarge reads from a frame that is not to be held as a whole.
func (s *seekable) readLarge(ctx context.Context, i int, p []byte, off int64) (int, error) {
	s.mu.Lock()
	if s.large == nil || s.at != i {
		s.large, s.at = s.openLarge(i), i
	}
	large := s.large
	s.mu.Unlock()
	n, err := large.ReadAt(ctx, p, off)
	if err == io.EOF {
		err = &shard.FormatError{Format: "zstd", Offset: s.table.frames[i].raw, Msg: fmt.Sprintf("frame %d ends before the size that the seek table says", i)}
	}
	return n, err
}

func (s *seekable) openLarge(i int) *sequential {
	f := s.table.frames[i]
	compressed, raw := s.table.size(i)
	large := newSequential(s.r, f.at, compressed, Zstd)
	if s.table.checksums {
		large.check = func(r io.ReadCloser) io.ReadCloser {
			return &checkedReader{ReadCloser: r, hash: xxhash.New(), left: raw, want: f}
		}
	}
	return large
}

// checkedReader compares the checksum of what it has read when that is complete.
type checkedReader struct {
	io.ReadCloser
	hash *xxhash.Digest
	left int64
	want frame
}

func (c *checkedReader) Read(p []byte) (int, error) {
	p = p[:min(int64(len(p)), c.left)]
	n, err := c.ReadCloser.Read(p)
	c.hash.Write(p[:n])
	c.left -= int64(n)
	if c.left == 0 && uint32(c.hash.Sum64()) != c.want.sum {
		return 0, fmt.Errorf("zstd frame, which holds the bytes from offset %d on: %w", c.want.raw, shard.ErrChecksum)
	}
	return n, err
}

// sequential reads at offsets of a stream that can only be decoded from its start.
type sequential struct {
	r        Source
	from, to int64 // the stream's bytes in r
	kind     string
	check    func(io.ReadCloser) io.ReadCloser // what is decoded; may be nil
	size     atomic.Int64                      // -1 if the end has not been seen

	turn chan struct{} // held by whoever reads what follows
	src  *section
	cur  io.ReadCloser // of src; nil if there is none
	pos  int64         // of cur
}

func newSequential(r Source, from, size int64, kind string) *sequential {
	s := &sequential{r: r, from: from, to: from + size, kind: kind, turn: make(chan struct{}, 1)}
	s.size.Store(-1)
	return s
}

// section reads bytes of a Source front to back, under the context of the moment.
type section struct {
	ctx      context.Context
	r        Source
	from, to int64
}

func (s *section) Read(p []byte) (int, error) {
	if s.from >= s.to {
		return 0, io.EOF
	}
	n, err := s.r.ReadAt(s.ctx, p[:min(int64(len(p)), s.to-s.from)], s.from)
	s.from += int64(n)
	return n, err
}

func (s *sequential) Size() int64 { return s.size.Load() }

func (s *sequential) ReadAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, errOffset
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if size := s.size.Load(); size >= 0 && off >= size {
		return 0, io.EOF
	}
	if s.cur != nil && off < s.pos {
		s.drop()
	}
	if s.cur == nil {
		if err = s.open(); err != nil {
			return 0, err
		}
	}
	s.src.ctx = ctx
	skipped, err := io.CopyN(io.Discard, s.cur, off-s.pos)
	s.pos += skipped
	if err == nil {
		n, err = io.ReadFull(s.cur, p)
		s.pos += int64(n)
		if err == io.ErrUnexpectedEOF {
			err = io.EOF
		}
	}
	if err == io.EOF {
		s.size.Store(s.pos)
	}
	if err != nil {
		s.drop()
	}
	return n, err
}

// open begins at the start of the stream. It reads nothing.
func (s *sequential) open() (err error) {
	s.src = &section{r: s.r, from: s.from, to: s.to}
	s.cur, err = NewReader(s.src, s.kind)
	if err == nil && s.check != nil {
		s.cur = s.check(s.cur)
	}
	s.pos = 0
	return err
}

// drop ends the decoder. What closing it says is of no interest: it was left
// before its end.
func (s *sequential) drop() {
	s.cur.Close()
	s.cur = nil
}
