package reader

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"

	"shardify/shard"
	"shardify/shard/compress"
	"shardify/shard/formats"
	"shardify/store/stream"
)

// source is an open shard of a Stream. A goroutine of its own opens it, decompresses
// it, and reads ahead; the filler scans what has come.
type source struct {
	f     *filler
	shard int32
	round int64
	row   int64 // samples scanned

	// The goroutine's side.
	cancel context.CancelFunc
	opened chan struct{} // closed when container, or failed, is set
	full   chan []byte   // what was read; closed at the end, or at err
	empty  chan []byte
	err    error

	container shard.Container
	failed    error  // it could not be opened
	chunk     []byte // being read
	rest      []byte // of it
	direct    *skimmed

	next func() (*shard.Located, error, bool)
	stop func()
}

// chunks is how many buffers a source reads ahead.
const chunks = 4

// openSource opens a shard.
func (f *filler) openSource(next *listed) *source {
	src := &source{f: f, shard: next.shard, round: next.round, opened: make(chan struct{})}
	ctx, cancel := context.WithCancel(f.ctx)
	src.cancel = cancel
	if f.skimming() && stream.IsFile(f.s.names[next.shard]) && src.skim(ctx) {
		close(src.opened)
		return src
	}
	src.full, src.empty = make(chan []byte, chunks), make(chan []byte, chunks)
	f.wg.Go(func() {
		defer close(src.full)
		src.err = src.read(ctx)
	})
	return src
}

// open opens the stream, which may be read only once.
func (s *Stream) open(ctx context.Context, number int32) (io.ReadCloser, error) {
	name := s.names[number]
	if stream.Once(name) && s.consumed.Swap(true) {
		return nil, s.again()
	}
	body, err := s.opener.Open(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("shard %s: %w", s.titles[number], err)
	}
	return body, nil
}

// read reads the shard into the buffers. It is the goroutine.
func (src *source) read(ctx context.Context) (err error) {
	opened := false
	defer func() {
		if !opened {
			src.failed = err
			close(src.opened)
		}
	}()
	s, c := src.f.s, src.f.counters
	var l lap
	l.leave()
	l.enter(ctx, &c.store, &c.store, "fetch")
	defer l.leave()
	body, err := s.open(ctx, src.shard)
	if err != nil {
		return err
	}
	defer body.Close()
	in := &inBytes{r: body, c: c}
	raw := bufio.NewReaderSize(in, 16<<10)
	head, err := raw.Peek(4)
	if err != nil && err != io.EOF {
		return err
	}
	plain, err := compress.NewReader(raw, formats.CompressionOf(head))
	if err != nil {
		return err
	}
	defer plain.Close()
	content := bufio.NewReaderSize(plain, 16<<10)
	head, err = content.Peek(formats.HeadSize)
	if err != nil && err != io.EOF {
		return err
	}
	if src.container, err = formats.ContainerOf(head, stream.Path(s.names[src.shard])); err != nil {
		return err
	}
	opened = true
	close(src.opened)
	l.leave()
	for made := 0; ; {
		var buf []byte
		if made < chunks {
			buf = src.f.newChunk()
			made++
		} else {
			select {
			case buf = <-src.empty:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		l.enter(ctx, &c.store, &c.store, "fetch")
		// A pipe's writer may write little and then wait: what there is goes on.
		n, err := io.ReadAtLeast(content, buf, min(len(buf), 16<<10))
		l.leave()
		c.store.items.Add(1)
		if n > 0 {
			select {
			case src.full <- buf[:n]:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// newChunk returns a buffer for reading ahead, one of a shard that has ended if there is
// any.
func (f *filler) newChunk() []byte {
	select {
	case buf := <-f.chunks:
		return buf
	default:
		return make([]byte, f.s.readBuf/chunks)
	}
}

// oldChunks takes back the buffers of a shard that has ended.
func (f *filler) oldChunks(from chan []byte) {
	for {
		select {
		case buf := <-from:
			select {
			case f.chunks <- buf:
			default:
				return
			}
		default:
			return
		}
	}
}

// inBytes counts what comes from a store, and keeps its error apart from those of
// what is read through it.
type inBytes struct {
	r io.Reader
	c *counters
}

func (in *inBytes) Read(p []byte) (int, error) {
	n, err := in.r.Read(p)
	in.c.store.bytes.Add(int64(n))
	if err != nil && err != io.EOF {
		err = &storeError{err}
	}
	return n, err
}

// storeError is what the store says, and not the shard.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

// Read reads what the goroutine has read; the filler calls it.
func (src *source) Read(p []byte) (int, error) {
	for len(src.rest) == 0 {
		if src.chunk != nil {
			src.empty <- src.chunk[:cap(src.chunk)] // it has room for all of them
			src.chunk = nil
		}
		select {
		case chunk, ok := <-src.full:
			if !ok {
				src.f.oldChunks(src.empty)
				if src.err != nil {
					return 0, src.err
				}
				return 0, io.EOF
			}
			src.chunk, src.rest = chunk, chunk
		case <-src.f.ctx.Done():
			return 0, &storeError{context.Cause(src.f.ctx)}
		}
	}
	n := copy(p, src.rest)
	src.rest = src.rest[n:]
	return n, nil
}

// begin waits until the shard is open, and begins to scan it.
func (src *source) begin() error {
	select {
	case <-src.opened:
	case <-src.f.ctx.Done():
		return &storeError{context.Cause(src.f.ctx)}
	}
	if src.container == nil {
		return src.failed
	}
	var r io.Reader = src
	if src.direct != nil {
		r = src.direct
	}
	src.next, src.stop = iter.Pull2(src.container.Load(r, src.f.room))
	return nil
}

// close ends the shard. Its goroutine ends soon after.
func (src *source) close() {
	if src.stop != nil {
		src.stop()
	}
	src.cancel()
	if src.direct != nil {
		_ = src.direct.file.Close() // it was only read
	}
}

// isDamage says that an error is a shard's, which is missing or not what it should be,
// and no other matter of the store or of memory.
func isDamage(err error) bool {
	var store *storeError
	var format *shard.FormatError
	var unsupported *shard.UnsupportedError
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	return !errors.As(err, &store) && (errors.Is(err, shard.ErrTruncated) || errors.Is(err, shard.ErrChecksum) ||
		errors.As(err, &format) || errors.As(err, &unsupported))
}

// skimmed is a tar on a disk of which, while a state is looked for, no more than the
// headers is read.
type skimmed struct {
	f    *filler
	file *stream.File
}

// skim opens a shard for skimming; false means that it cannot be skimmed.
func (src *source) skim(ctx context.Context) bool {
	body, err := src.f.s.opener.Open(ctx, src.f.s.names[src.shard])
	if err != nil {
		return false // who reads it will say why
	}
	file, ok := body.(*stream.File)
	if ok {
		head := make([]byte, formats.HeadSize)
		n, _ := file.ReadAt(head, 0)
		head = head[:n]
		ok = false
		if formats.CompressionOf(head) == compress.None {
			if c, err := formats.ContainerOf(head, src.f.s.names[src.shard]); err == nil && c.Name() == "tar" {
				src.container, src.direct, ok = c, &skimmed{src.f, file}, true
			}
		}
	}
	if !ok {
		_ = body.Close() // it was only read
	}
	return ok
}

// skimRead is about what a header and its neighbours have.
const skimRead = 4 << 10

func (k *skimmed) Read(p []byte) (int, error) {
	if k.f.skimming() {
		p = p[:min(len(p), skimRead)]
	}
	n, err := k.file.Read(p)
	k.f.counters.store.bytes.Add(int64(n))
	if err != nil && err != io.EOF {
		err = &storeError{err}
	}
	return n, err
}

func (k *skimmed) Skip(n int64) (int64, error) { return k.file.Skip(n) }
