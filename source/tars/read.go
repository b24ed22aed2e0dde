package tars

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"shardify/index"
	"shardify/shard"
	"shardify/shard/compress"
	"shardify/source"
	"shardify/source/folder"
	"shardify/store"
)

// Read implements source.Source.
func (t *Tars) Read(ctx context.Context, loc source.Location, buf []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if loc.Name == "" {
		return append(buf[:0], loc.Inline...), nil
	}
	f, ok := t.byPath[loc.Name]
	if !ok {
		return nil, fmt.Errorf("%q is no shard of this source", loc.Name)
	}
	read := t.readCompressed
	switch {
	case f.format.Compression == compress.None && f.st != nil:
		read = func(ctx context.Context, f *file, loc source.Location, buf []byte) ([]byte, error) {
			size, _, err := f.known(ctx)
			if err != nil {
				return nil, folder.ObjectError(loc, err)
			}
			return folder.ReadObjectPart(ctx, f.st, f.object, size, loc, buf)
		}
	case f.format.Compression == compress.None:
		read = func(ctx context.Context, _ *file, loc source.Location, buf []byte) ([]byte, error) {
			return folder.ReadPart(ctx, loc, buf)
		}
	}
	data, err := read(ctx, f, loc, buf)
	if err != nil {
		return nil, err
	}
	if loc.HasCRC32C && index.FieldChecksum(data) != loc.CRC32C {
		return nil, faultAt(loc, shard.ErrChecksum)
	}
	return data, nil
}

func faultAt(loc source.Location, err error) error {
	return &source.EntryError{Path: loc.Name, Err: fmt.Errorf("at %d: %w", loc.Offset, err)}
}

// access is how a compressed shard is read.
type access struct {
	mode atomic.Int32
	// cost is how many bytes of the shard's file were read.
	cost atomic.Int64
	kept kept
}

// The modes of access.
const (
	atOffsets     = iota // if it has a seek table, and while that is not too dear
	spooled              // decompressed, in the spool
	onlyAtOffsets        // it has a seek table, and there is no room in the spool
)

func newAccess(kind string) *access {
	a := &access{kept: kept{turn: make(chan struct{}, 1)}}
	if kind == compress.Gzip {
		a.mode.Store(spooled)
	}
	return a
}

// dear is how many times over a shard with a seek table is read before it is
// spooled. A frame of 64 KiB holds one to three photographs, of which each is read
// two or three times by samples of several fields.
const dear = 16

func (t *Tars) readCompressed(ctx context.Context, f *file, loc source.Location, buf []byte) ([]byte, error) {
	if loc.Size < 0 || loc.Size > math.MaxInt || loc.Offset < 0 {
		return nil, faultAt(loc, fmt.Errorf("a size of %d bytes", loc.Size))
	}
	if int64(cap(buf)) < loc.Size {
		buf = make([]byte, loc.Size)
	}
	buf = buf[:loc.Size]
	var full error // why it is not in the spool
	if f.access.mode.Load() == spooled {
		err := t.spool.read(ctx, f, loc, buf)
		if err == nil {
			return buf, nil
		}
		if !errors.Is(err, store.ErrNoSpace) {
			return nil, err
		}
		full = err
	}
	o, err := t.open.get(ctx, f, loc.ModTime)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, readError(loc, err)
	}
	defer t.open.put(o)
	switch seekable := o.reader.Size() >= 0; {
	case !seekable && full != nil:
		return nil, full
	case !seekable:
		f.access.mode.Store(spooled)
		if err := t.spool.read(ctx, f, loc, buf); err != nil {
			return nil, err
		}
		return buf, nil
	case full != nil:
		f.access.mode.Store(onlyAtOffsets)
	}
	size, stamp, err := o.handle.state()
	if err != nil {
		return nil, readError(loc, err)
	}
	if loc.ModTime != 0 && stamp != loc.ModTime {
		return nil, faultAt(loc, source.ErrChanged)
	}
	if n, err := o.reader.ReadAt(ctx, buf, loc.Offset); n < len(buf) {
		var of *storeError
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.As(err, &of):
			return nil, folder.ObjectError(loc, of.err)
		case errors.Is(err, io.EOF):
			err = shard.ErrTruncated
		}
		return nil, faultAt(loc, err)
	}
	if f.access.cost.Load()/dear > size {
		f.access.mode.CompareAndSwap(atOffsets, spooled)
	}
	return buf, nil
}

// openRegular opens a file, and not a pipe that has taken its place.
func openRegular(path string) (*os.File, os.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, errIrregular
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	if info, err = f.Stat(); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

var errIrregular = errors.New("not a regular file")

// counted counts what is read of a shard.
type counted struct {
	compress.Source
	n *atomic.Int64
}

func (c counted) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	n, err := c.Source.ReadAt(ctx, p, off)
	c.n.Add(int64(n))
	return n, err
}

const (
	// keptOpen is how many compressed shards are kept open when nobody reads them.
	keptOpen = 8
	// keptObjects is how many of a bucket, which cost no more than their seek tables.
	keptObjects = 256
	// objectFrames is the bytes that frames of all shards of buckets may take together.
	objectFrames = 4 * compress.DefaultFrames
)

// opened is a compressed shard that is open.
type opened struct {
	path   string
	remote bool
	users  int

	ready  chan struct{} // closed when what follows is there
	handle handle
	reader compress.SourceReader
	err    error // why it could not be opened
}

// cache keeps compressed shards open.
type cache struct {
	mu     sync.Mutex
	opened []*opened // the last used is the last
	frames *compress.Frames
}

// get returns an open shard, for which put must be called. An object is to have the
// given stamp.
func (c *cache) get(ctx context.Context, f *file, stamp int64) (*opened, error) {
	for {
		o, first := c.use(f)
		if first {
			o.err = c.open(ctx, f, stamp, o)
			if o.err != nil {
				c.mu.Lock()
				c.opened = slices.DeleteFunc(c.opened, func(other *opened) bool { return other == o })
				c.mu.Unlock()
			}
			close(o.ready)
		}
		select {
		case <-o.ready:
		case <-ctx.Done():
			c.put(o)
			return nil, ctx.Err()
		}
		if o.err == nil {
			return o, nil
		}
		// That the reader who was to open it has been cancelled concerns no other.
		if first || ctx.Err() != nil || !errors.Is(o.err, context.Canceled) && !errors.Is(o.err, context.DeadlineExceeded) {
			return nil, o.err
		}
	}
}

// use takes a shard into use; first says that it is not open yet, and nobody else is to
// open it.
func (c *cache) use(f *file) (o *opened, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.opened, func(o *opened) bool { return o.path == f.path }); i >= 0 {
		o = c.opened[i]
		c.opened = slices.Delete(c.opened, i, i+1)
	} else {
		o = &opened{path: f.path, remote: f.st != nil, ready: make(chan struct{})}
		first = true
	}
	o.users++
	c.opened = append(c.opened, o)
	return o, first
}

func (c *cache) open(ctx context.Context, f *file, stamp int64, o *opened) error {
	h, err := f.open(ctx, stamp)
	if err != nil {
		return err
	}
	size, _, err := h.state()
	if err != nil {
		return errors.Join(err, h.Close())
	}
	var frames *compress.Frames // of its own
	if o.remote {
		c.mu.Lock()
		if c.frames == nil {
			c.frames = compress.NewFrames(objectFrames)
		}
		frames = c.frames
		c.mu.Unlock()
	}
	r, err := compress.NewSourceReader(ctx, counted{h, &f.access.cost}, size, f.format.Compression, frames)
	if err != nil {
		return errors.Join(err, h.Close())
	}
	o.handle, o.reader = h, r
	return nil
}

// put ends a use, and closes those of its kind not used for longest.
func (c *cache) put(o *opened) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.users--
	keep := keptOpen
	if o.remote {
		keep = keptObjects
	}
	for i := len(c.opened) - 1; i >= 0; i-- {
		other := c.opened[i]
		if other.remote != o.remote {
			continue
		}
		if keep--; keep < 0 && other.users == 0 {
			_ = other.handle.Close() // it was only read
			c.opened = slices.Delete(c.opened, i, i+1)
		}
	}
}

func (c *cache) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, o := range c.opened {
		errs = append(errs, o.handle.Close())
	}
	c.opened = nil
	return errors.Join(errs...)
}
