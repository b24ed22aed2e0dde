// Package compress puts gzip or seekable zstd round a container of shard.
//
// Write with [NewWriter], stream with [NewReader], and read at offsets with
// [NewReaderAt]. All offsets count bytes before compression. The same bytes,
// boundaries and level give the same compressed bytes, however they were cut into
// writes.
//
// # Seekable zstd
//
// A .zst shard is a zstd file that every zstd program decodes, in the seekable
// format 0.1.0 of zstd's contrib/seekable_format: independent frames, and behind
// them a table in a skippable frame. All numbers are little-endian.
//
//	frame 0, frame 1, …   zstd frames with a content checksum
//	u32 0x184D2A5E        magic number of a skippable frame
//	u32 12·n + 9          size of what follows
//	n × { u32 compressed size, u32 size, u32 low half of XXH64 of the content }
//	u32 n                 number of frames
//	u8  0x80              bit 7: the entries have checksums
//	u32 0x8F92EAB1        magic number of a seek table
//
// A frame ends where the first sample ends that brings it to [FrameSize] bytes, so
// that a sample below MaxFrame - FrameSize bytes lies in one frame; a frame that
// reaches [MaxFrame] bytes within a sample ends there, so that neither writer nor
// reader ever holds more of a shard of ours than that.
//
// # Errors
//
// Compressed data that ends too early is shard.ErrTruncated, a wrong checksum
// shard.ErrChecksum, and anything else wrong with it a *shard.FormatError or
// *shard.UnsupportedError (a zstd window of more than 128 MiB, a dictionary).
// Errors of the underlying reader come back as they are.
package compress

import (
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
)

// The kinds of compression, as they stand in file endings.
const (
	None = ""
	Gzip = "gz"
	Zstd = "zst"
)

// Kinds returns all kinds, None first.
func Kinds() []string { return []string{None, Gzip, Zstd} }

const (
	// FrameSize is how many bytes a zstd frame holds at least, but for the last.
	// Small frames make random reads cheap, large ones compress what samples have
	// in common (BenchmarkFrameSize; size of the shard, time of a random read on one
	// core of an AMD EPYC):
	//
	//	frames of          64 KiB         256 KiB        4 MiB
	//	photographs        0.982  41 µs   0.981  105 µs  0.977  1,202 µs
	//	2 KB thumbnails    0.453  30 µs   0.448   93 µs  0.445    678 µs
	//	1 KB captions      0.219 199 µs   0.214  333 µs  0.211  all kept
	//
	// At 64 KiB most photographs have a frame of their own, which is 33 µs.
	FrameSize = 64 << 10
	// MaxFrame is how many bytes a zstd frame holds at most.
	MaxFrame = 4 << 20
)

// CheckLevel reports why level is none of the kind's; nil if it is. Level 0 means
// the default: 6 for gz (1 to 9), 3 for zst (1 to 22, of which the encoder makes
// four speeds).
func CheckLevel(kind string, level int) error {
	switch kind {
	case None:
		if level != 0 {
			return fmt.Errorf("compression level %d without compression", level)
		}
	case Gzip:
		if level < 0 || level > gzip.BestCompression {
			return fmt.Errorf("compression level %d: gz has levels 1 to 9, and 0 for the default", level)
		}
	case Zstd:
		if level < 0 || level > 22 {
			return fmt.Errorf("compression level %d: zst has levels 1 to 22, and 0 for the default", level)
		}
	default:
		return unknown(kind)
	}
	return nil
}

func unknown(kind string) error {
	return fmt.Errorf("unknown compression %q: there are gz and zst", kind)
}

// Writer compresses a container. It is not for concurrent use.
type Writer interface {
	io.Writer
	// EndSample says that a sample ends at offset end of the container, so that a
	// frame may end there. The offset is at or ahead of what has been written: a
	// shard.Writer holds bytes back, so that EndSample may be called after each of
	// its Writes with the end of the Placement. Offsets that are already behind are
	// ignored.
	EndSample(end int64)
	// Close ends the compressed data. It does not close the underlying writer.
	Close() error
}

var errClosed = errors.New("compress: write to closed compressed data")

// NewWriter starts compressed data of a kind, at a level as for CheckLevel, on w.
// Memory: none for None, about 1 MB for gz; for zst MaxFrame twice and the
// encoder's tables, 10 to 60 MB by level.
func NewWriter(w io.Writer, kind string, level int) (Writer, error) {
	if err := CheckLevel(kind, level); err != nil {
		return nil, err
	}
	switch kind {
	case Gzip:
		if level == 0 {
			level = 6
		}
		// The header has neither name nor time.
		z, err := gzip.NewWriterLevel(w, level)
		if err != nil {
			return nil, err
		}
		return &gzipWriter{z: z}, nil
	case Zstd:
		return newZstdWriter(w, level)
	default:
		return plainWriter{w}, nil
	}
}

type plainWriter struct{ io.Writer }

func (plainWriter) EndSample(int64) {}
func (plainWriter) Close() error    { return nil }

type gzipWriter struct {
	z      *gzip.Writer
	closed bool
}

func (g *gzipWriter) Write(p []byte) (int, error) {
	if g.closed {
		return 0, errClosed
	}
	return g.z.Write(p)
}

func (g *gzipWriter) EndSample(int64) {}

func (g *gzipWriter) Close() error {
	g.closed = true
	return g.z.Close()
}
