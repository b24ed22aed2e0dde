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
	if f.format.Compression == compress.None {
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
	o, err := t.open.get(f)
	if err != nil {
		return nil, folder.ReadError(loc, err)
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
	info, err := o.file.Stat()
	if err != nil {
		return nil, folder.ReadError(loc, err)
	}
	if loc.ModTime != 0 && info.ModTime().UnixNano() != loc.ModTime {
		return nil, faultAt(loc, source.ErrChanged)
	}
	if n, err := o.reader.ReadAt(buf, loc.Offset); n < len(buf) {
		if errors.Is(err, io.EOF) {
			err = shard.ErrTruncated
		}
		return nil, faultAt(loc, err)
	}
	if f.access.cost.Load()/dear > info.Size() {
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

// counted counts what is read of a shard's file.
type counted struct {
	*os.File
	n *atomic.Int64
}

func (c counted) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.File.ReadAt(p, off)
	c.n.Add(int64(n))
	return n, err
}

// keptOpen is how many compressed shards are kept open when nobody reads them.
const keptOpen = 8

// opened is a compressed shard that is open.
type opened struct {
	path   string
	file   *os.File
	reader compress.ReaderAt
	users  int
}

// cache keeps compressed shards open.
type cache struct {
	mu     sync.Mutex
	opened []*opened // the last used is the last
}

// get returns an open shard, for which put must be called.
func (c *cache) get(f *file) (*opened, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.opened, func(o *opened) bool { return o.path == f.path }); i >= 0 {
		o := c.opened[i]
		o.users++
		c.opened = append(slices.Delete(c.opened, i, i+1), o)
		return o, nil
	}
	file, info, err := openRegular(f.path)
	if err != nil {
		return nil, err
	}
	r, err := compress.NewReaderAt(counted{file, &f.access.cost}, info.Size(), f.format.Compression)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	o := &opened{path: f.path, file: file, reader: r, users: 1}
	c.opened = append(c.opened, o)
	return o, nil
}

// put ends a use, and closes those not used for longest.
func (c *cache) put(o *opened) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.users--
	for i := 0; len(c.opened) > keptOpen && i < len(c.opened); {
		if c.opened[i].users > 0 {
			i++
			continue
		}
		c.opened[i].file.Close()
		c.opened = slices.Delete(c.opened, i, i+1)
	}
}

func (c *cache) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, o := range c.opened {
		errs = append(errs, o.file.Close())
	}
	c.opened = nil
	return errors.Join(errs...)
}
