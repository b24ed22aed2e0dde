package compress

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"shardify/shard"
)

const (
	// maxWindow bounds the window of zstd frames that are read, and with it the
	// memory of a decoder. It is what `zstd -d` grants without --memory.
	maxWindow = 128 << 20
	// readSize is the size of the reads of compressed data.
	readSize = 256 << 10
)

// NewReader returns a reader of what is compressed in r. Gzip of several members
// and zstd of several frames are read to the end of r. It starts no goroutines, and
// holds at most the window (32 KiB for gz, up to 128 MiB for zst of others) and
// about 1 MB. Close frees memory and leaves r open.
func NewReader(r io.Reader, kind string) (io.ReadCloser, error) {
	switch kind {
	case None:
		return io.NopCloser(r), nil
	case Gzip:
		src := &source{r: r}
		return &reader{src: src, format: "gzip", open: func() (decoder, error) {
			z, err := gzip.NewReader(bufio.NewReaderSize(src, readSize))
			if err != nil {
				return nil, err
			}
			return z, nil
		}}, nil
	case Zstd:
		src := &source{r: r}
		return &reader{src: src, format: "zstd", open: func() (decoder, error) {
			z, err := zstd.NewReader(bufio.NewReaderSize(src, readSize),
				zstd.WithDecoderConcurrency(1), // none of its goroutines
				zstd.WithDecoderMaxWindow(maxWindow),
				zstd.WithDecoderMaxMemory(math.MaxInt64))
			if err != nil {
				return nil, err
			}
			return z.IOReadCloser(), nil
		}}, nil
	default:
		return nil, unknown(kind)
	}
}

// source remembers the error of the reader below a decoder.
type source struct {
	r   io.Reader
	n   int64
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.n += int64(n)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

type decoder = io.ReadCloser

// reader translates the errors of a decoder.
type reader struct {
	src    *source
	format string
	open   func() (decoder, error)
	dec    decoder
	n      int64 // bytes decoded
	err    error
}

func (r *reader) Read(p []byte) (n int, err error) {
	if r.err != nil {
		return 0, r.err
	}
	if r.dec == nil {
		if r.dec, err = r.open(); err != nil {
			r.dec = nil
		}
	}
	if err == nil {
		n, err = r.dec.Read(p)
		r.n += int64(n)
	}
	switch {
	case err == nil:
		return n, nil
	case r.src.err != nil:
		r.err = r.src.err
	case err == io.EOF && r.src.n > 0 && r.dec != nil:
		r.err = io.EOF
	default:
		r.err = translate(err, r.format, r.n)
	}
	return n, r.err
}

var errReaderClosed = errors.New("compress: read from a closed reader")

func (r *reader) Close() error {
	if r.err == errReaderClosed {
		return nil
	}
	r.err = errReaderClosed
	if r.dec == nil {
		return nil
	}
	// Closing a decoder frees it, and repeats what Read has said.
	r.dec.Close()
	r.dec = nil
	return nil
}

// translate makes an error of ours of one of a decoder, at an offset of the
// container.
func translate(err error, format string, offset int64) error {
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s at offset %d: %w", format, offset, shard.ErrTruncated)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, zstd.ErrCRCMismatch):
		return fmt.Errorf("%s before offset %d: %w", format, offset, shard.ErrChecksum)
	case errors.Is(err, gzip.ErrHeader):
		return &shard.FormatError{Format: format, Offset: offset, Msg: "no gzip header here"}
	case errors.As(err, &corrupt):
		return &shard.FormatError{Format: format, Offset: offset, Msg: "corrupt compressed data"}
	case errors.Is(err, zstd.ErrMagicMismatch):
		return &shard.FormatError{Format: format, Offset: offset, Msg: "no zstd frame here"}
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return &shard.UnsupportedError{Format: format, Offset: offset, Msg: fmt.Sprintf("a window of more than %d MiB", maxWindow>>20)}
	case errors.Is(err, zstd.ErrUnknownDictionary):
		return &shard.UnsupportedError{Format: format, Offset: offset, Msg: "it was compressed with a dictionary"}
	default:
		return &shard.FormatError{Format: format, Offset: offset, Msg: err.Error()}
	}
}
