package compress

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sort"

	"github.com/klauspost/compress/zstd"

	"shardify/shard"
)

const (
	skippableMagic = 0x184D2A5E
	seekTableMagic = 0x8F92EAB1
	hasChecksums   = 1 << 7
	reservedBits   = 0x7c // of the descriptor
	footerSize     = 9
	// maxFrames bounds the table that is read: with frames of FrameSize, room for
	// a shard of 256 GiB. It takes 24 bytes a frame.
	maxFrames = 4 << 20
)

type zstdWriter struct {
	w     io.Writer
	enc   *zstd.Encoder
	size  int64   // FrameSize, but for benchmarks
	frame []byte  // what the next frame is to hold
	start int64   // of the frame in the container
	ends  []int64 // ends of samples that may lie ahead, ascending
	out   []byte
	table []byte
	n     uint32 // frames
	err   error
}

func newZstdWriter(w io.Writer, level int) (*zstdWriter, error) {
	if level == 0 {
		level = 3
	}
	enc, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(level)),
		zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(MaxFrame),
		zstd.WithEncoderCRC(true))
	if err != nil {
		return nil, err
	}
	return &zstdWriter{w: w, enc: enc, size: FrameSize}, nil
}

func (z *zstdWriter) EndSample(end int64) {
	if n := len(z.ends); n == 0 || z.ends[n-1] < end {
		z.ends = append(z.ends, end)
	}
}

// cut returns where the frame is to end, as far as is known.
func (z *zstdWriter) cut() int64 {
	passed := 0
	for passed < len(z.ends) && z.ends[passed]-z.start < z.size {
		passed++
	}
	z.ends = append(z.ends[:0], z.ends[passed:]...)
	most := z.start + MaxFrame
	here := z.start + int64(len(z.frame))
	if len(z.ends) > 0 && z.ends[0] >= here {
		return min(z.ends[0], most)
	}
	return most
}

func (z *zstdWriter) Write(p []byte) (n int, err error) {
	for z.err == nil && len(p) > 0 {
		room := z.cut() - z.start - int64(len(z.frame))
		m := int(min(room, int64(len(p))))
		z.frame = append(z.frame, p[:m]...)
		p = p[m:]
		n += m
		if int64(m) == room {
			z.flush()
		}
	}
	return n, z.err
}

// flush writes the frame.
func (z *zstdWriter) flush() {
	if z.err != nil || len(z.frame) == 0 {
		return
	}
	if z.n == maxFrames {
		z.err = fmt.Errorf("zstd: more than %d frames in one shard", maxFrames)
		return
	}
	z.out = z.enc.EncodeAll(z.frame, z.out[:0])
	z.table = binary.LittleEndian.AppendUint32(z.table, uint32(len(z.out)))
	z.table = binary.LittleEndian.AppendUint32(z.table, uint32(len(z.frame)))
	// A frame's own checksum, its last four bytes, is that of the table.
	z.table = append(z.table, z.out[len(z.out)-4:]...)
	z.n++
	z.start += int64(len(z.frame))
	z.frame = z.frame[:0]
	z.err = writeAll(z.w, z.out)
}

func (z *zstdWriter) Close() error {
	if z.err == errClosed {
		return nil
	}
	z.flush()
	if z.err != nil {
		return z.err
	}
	b := binary.LittleEndian.AppendUint32(z.out[:0], skippableMagic)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(z.table)+footerSize))
	b = append(b, z.table...)
	b = binary.LittleEndian.AppendUint32(b, z.n)
	b = append(b, hasChecksums)
	b = binary.LittleEndian.AppendUint32(b, seekTableMagic)
	if z.err = writeAll(z.w, b); z.err != nil {
		return z.err
	}
	z.err = errClosed
	return z.enc.Close()
}

func writeAll(w io.Writer, p []byte) error {
	n, err := w.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return err
}

// seekTable says where the frames are.
type seekTable struct {
	frames    []frame // and one more, which begins where the last ends
	checksums bool
}

type frame struct {
	at  int64 // of the frame, in the compressed data
	raw int64 // of its content, in the container
	sum uint32
}

// size returns the sizes of frame i, compressed and not.
func (t *seekTable) size(i int) (compressed, raw int64) {
	return t.frames[i+1].at - t.frames[i].at, t.frames[i+1].raw - t.frames[i].raw
}

// find returns the frame that holds the byte at off, which is not behind the end.
func (t *seekTable) find(off int64) int {
	return sort.Search(len(t.frames)-1, func(i int) bool { return t.frames[i+1].raw > off })
}

// readSeekTable reads the table at the end of r, which has size bytes. A nil table
// without an error means that there is none.
func readSeekTable(ctx context.Context, r Source, size int64) (*seekTable, error) {
	const headerSize = 8
	if size < headerSize+footerSize {
		return nil, nil
	}
	var footer [footerSize]byte
	if err := readFull(ctx, r, footer[:], size-footerSize); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(footer[5:]) != seekTableMagic {
		return nil, nil
	}
	broken := func(format string, args ...any) error {
		return &shard.FormatError{Format: "zstd", Offset: 0, Msg: "the seek table at the end of the file " + fmt.Sprintf(format, args...)}
	}
	n := int64(binary.LittleEndian.Uint32(footer[:]))
	descriptor := footer[4]
	if descriptor&reservedBits != 0 {
		return nil, broken("has the descriptor %#x, of which bits are reserved", descriptor)
	}
	t := &seekTable{checksums: descriptor&hasChecksums != 0}
	entrySize := int64(8)
	if t.checksums {
		entrySize = 12
	}
	if n > maxFrames {
		return nil, &shard.UnsupportedError{Format: "zstd", Msg: fmt.Sprintf("a seek table of %d frames, the most is %d", n, maxFrames)}
	}
	body := n*entrySize + footerSize
	if headerSize+body > size {
		return nil, broken("claims %d frames, for which the file of %d bytes has no room", n, size)
	}
	begin := size - headerSize - body
	b := make([]byte, headerSize+n*entrySize)
	if err := readFull(ctx, r, b, begin); err != nil {
		return nil, err
	}
	if magic, s := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]); magic != skippableMagic || int64(s) != body {
		return nil, broken("of %d frames does not begin where it should", n)
	}
	b = b[headerSize:]
	t.frames = make([]frame, n+1)
	var at, raw int64
	for i := range t.frames[:n] {
		e := b[int64(i)*entrySize:]
		t.frames[i].at, t.frames[i].raw = at, raw
		at += int64(binary.LittleEndian.Uint32(e))
		raw += int64(binary.LittleEndian.Uint32(e[4:]))
		if t.checksums {
			t.frames[i].sum = binary.LittleEndian.Uint32(e[8:])
		}
	}
	if at != begin {
		return nil, broken("describes frames of %d bytes, but %d precede it", at, begin)
	}
	t.frames[n].at, t.frames[n].raw = at, raw
	return t, nil
}

// readFull fills p from off on.
func readFull(ctx context.Context, r Source, p []byte, off int64) error {
	n, err := r.ReadAt(ctx, p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		return fmt.Errorf("compressed data at offset %d: %w", off+int64(n), shard.ErrTruncated)
	}
	return err
}
