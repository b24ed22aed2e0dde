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

	"shardify/shard"
	"shardify/shard/compress"
	"shardify/source"
	"shardify/source/folder"
)

// Read implements source.Source.
func (t *Tars) Read(ctx context.Context, loc source.Location, buf []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if loc.Name == "" {
		return append(buf[:0], loc.Inline...), nil
	}
	format, ok := t.formats[loc.Name]
	if !ok {
		return nil, fmt.Errorf("%q is no shard of this source", loc.Name)
	}
	if format.Compression == compress.None {
		return folder.ReadPart(ctx, loc, buf)
	}
	o, err := t.open.get(loc.Name, format.Compression)
	if err != nil {
		return nil, folder.ReadError(loc, err)
	}
	defer t.open.put(o)
	info, err := o.file.Stat()
	if err != nil {
		return nil, folder.ReadError(loc, err)
	}
	fail := func(err error) ([]byte, error) {
		return nil, &source.EntryError{Path: loc.Name, Err: fmt.Errorf("at %d: %w", loc.Offset, err)}
	}
	if info.ModTime().UnixNano() != loc.ModTime {
		return fail(source.ErrChanged)
	}
	if loc.Size < 0 || loc.Size > math.MaxInt {
		return fail(fmt.Errorf("a size of %d bytes", loc.Size))
	}
	if int64(cap(buf)) < loc.Size {
		buf = make([]byte, loc.Size)
	}
	buf = buf[:loc.Size]
	if n, err := o.reader.ReadAt(buf, loc.Offset); n < len(buf) {
		if errors.Is(err, io.EOF) {
			err = shard.ErrTruncated
		}
		return fail(err)
	}
	return buf, nil
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
func (c *cache) get(path, kind string) (*opened, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.opened, func(o *opened) bool { return o.path == path }); i >= 0 {
		o := c.opened[i]
		o.users++
		c.opened = append(slices.Delete(c.opened, i, i+1), o)
		return o, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r, err := compress.NewReaderAt(f, info.Size(), kind)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	o := &opened{path: path, file: f, reader: r, users: 1}
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
