package compress

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"

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

// NewReaderAt returns a reader of the container that is compressed in the size
// bytes of r. What ReadAt costs depends on the kind:
//
//   - None: a ReadAt of r.
//   - Zstd with a seek table: decoding the frames touched, each checked against its
//     checksum. Frames that p has room for are decoded straight into it; the two
//     frames last used in part are kept. Reads run side by side; each holds one
//     frame, compressed and not.
//   - Gzip, and Zstd without a seek table: one decoder, which moves forward. A read
//     at or behind the end of the last one decodes what lies between, a read before
//     it decodes from the start again. Reads wait for each other. The same holds
//     within a frame of more than 16 MiB, which only others write; its checksum is
//     only checked when its end is read.
func NewReaderAt(r io.ReaderAt, size int64, kind string) (ReaderAt, error) {
	switch kind {
	case None:
		return io.NewSectionReader(r, 0, size), nil
	case Gzip:
		return newSequential(r, size, kind), nil
	case Zstd:
		table, err := readSeekTable(r, size)
		if err != nil {
			return nil, err
		}
		if table == nil {
			return newSequential(r, size, kind), nil
		}
		return &seekable{r: r, table: table}, nil
	default:
		return nil, unknown(kind)
	}
}

const (
	// maxWhole is the size up to which a frame is decoded in one piece.
	maxWhole = 16 << 20
	// keptFrames is how many decoded frames a seekable keeps.
	keptFrames = 2
)

type seekable struct {
	r     io.ReaderAt
	table *seekTable

	mu    sync.Mutex
	kept  []*scratch  // at most keptFrames, the last used last
	large *sequential // in the frame largeAt
	at    int         // the frame of large
}

// scratch is memory for a frame.
type scratch struct {
	compressed []byte
	frame      int // whose content raw is; -1 if none
	raw        []byte
}

func (s *seekable) Size() int64 { return s.table.frames[len(s.table.frames)-1].raw }

func (s *seekable) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, errors.New("compress: negative offset")
	}
	for i := s.table.find(off); n < len(p); i++ {
		if i == len(s.table.frames)-1 {
			return n, io.EOF
		}
		m, err := s.readFrame(i, p[n:], off+int64(n)-s.table.frames[i].raw)
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// readFrame fills p from offset off of frame i on, to the frame's end if p is
// longer.
func (s *seekable) readFrame(i int, p []byte, off int64) (int, error) {
	compressed, raw := s.table.size(i)
	if raw == 0 {
		return 0, nil
	}
	p = p[:min(int64(len(p)), raw-off)]
	if raw > maxWhole || compressed > 2*maxWhole {
		return s.readLarge(i, p, off)
	}
	b := s.borrow(i)
	defer s.giveBack(b)
	if b.frame == i {
		return copy(p, b.raw[off:]), nil
	}
	if int64(len(p)) == raw {
		if err := s.decode(i, b, p); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	b.frame = -1
	b.raw = resize(b.raw, int(raw))
	if err := s.decode(i, b, b.raw); err != nil {
		return 0, err
	}
	b.frame = i
	return copy(p, b.raw[off:]), nil
}

// borrow returns memory that holds frame i, if there is such; otherwise any.
func (s *seekable) borrow(i int) *scratch {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.kept, func(b *scratch) bool { return b.frame == i })
	if at < 0 {
		if len(s.kept) < keptFrames {
			return &scratch{frame: -1}
		}
		at = 0
	}
	b := s.kept[at]
	s.kept = slices.Delete(s.kept, at, at+1)
	return b
}

func (s *seekable) giveBack(b *scratch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) == keptFrames {
		s.kept = slices.Delete(s.kept, 0, 1)
	}
	s.kept = append(s.kept, b)
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
func (s *seekable) decode(i int, b *scratch, raw []byte) error {
	f := &s.table.frames[i]
	compressed, _ := s.table.size(i)
	b.compressed = resize(b.compressed, int(compressed))
	if err := readFull(s.r, b.compressed, f.at); err != nil {
		return err
	}
	get := checking
	if s.table.checksums {
		get = trusting
	}
	dec, err := get()
	if err != nil {
		return err
	}
	got, err := dec.DecodeAll(b.compressed, raw[:0:len(raw)])
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
func (s *seekable) readLarge(i int, p []byte, off int64) (int, error) {
	s.mu.Lock()
	if s.large == nil || s.at != i {
		s.large, s.at = s.openLarge(i), i
	}
	large := s.large
	s.mu.Unlock()
	n, err := large.ReadAt(p, off)
	if err == io.EOF {
		err = &shard.FormatError{Format: "zstd", Offset: s.table.frames[i].raw, Msg: fmt.Sprintf("frame %d ends before the size that the seek table says", i)}
	}
	return n, err
}

func (s *seekable) openLarge(i int) *sequential {
	f := s.table.frames[i]
	compressed, raw := s.table.size(i)
	return &sequential{size: -1, open: func() (io.ReadCloser, error) {
		r, err := NewReader(io.NewSectionReader(s.r, f.at, compressed), Zstd)
		if err != nil || !s.table.checksums {
			return r, err
		}
		return &checkedReader{ReadCloser: r, hash: xxhash.New(), left: raw, want: f}, nil
	}}
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
	open func() (io.ReadCloser, error)

	mu   sync.Mutex
	cur  io.ReadCloser // nil if there is none
	pos  int64         // of cur
	size int64         // -1 if the end has not been seen
}

func newSequential(r io.ReaderAt, size int64, kind string) *sequential {
	return &sequential{size: -1, open: func() (io.ReadCloser, error) {
		return NewReader(io.NewSectionReader(r, 0, size), kind)
	}}
}

func (s *sequential) Size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

func (s *sequential) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, errors.New("compress: negative offset")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size >= 0 && off >= s.size {
		return 0, io.EOF
	}
	if s.cur != nil && off < s.pos {
		s.drop()
	}
	if s.cur == nil {
		if s.cur, err = s.open(); err != nil {
			s.cur = nil
			return 0, err
		}
		s.pos = 0
	}
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
		s.size = s.pos
	}
	if err != nil {
		s.drop()
	}
	return n, err
}

// drop ends the decoder. What closing it says is of no interest: it was left
// before its end.
func (s *sequential) drop() {
	s.cur.Close()
	s.cur = nil
}
