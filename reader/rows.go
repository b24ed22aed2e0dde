package reader

import (
	"container/list"
	"context"
	"fmt"
	"slices"
	"sync"

	"shardify/index"
	"shardify/sample"
)

// rows is the index of a shard as the reader needs it: packed arrays instead of a
// struct and strings for each sample, about 70 bytes and the key.
type rows struct {
	keys    []byte
	keyEnds []uint32
	labels  []int64
	// cols has the wanted fields: for DecodeImage first the image, then those of
	// the pass's names.
	cols []column
	// offsets and sizes of whole samples; only where a field must be parsed out of
	// its sample.
	offsets, sizes []int64
	// points says where in the shard's side file the seek points of each sample's image
	// are, as seek.Table does; nil where there are none, or they are not wanted.
	points []int64
	// dims are the dimensions of each sample's image; nil where the index has none.
	dims []dims
	// costs has what decoding the large images may take.
	costs map[int32]int64
}

// dims are an image's width and height; zeros where they are not known.
type dims struct{ width, height int32 }

// column says where a field lies in each sample.
type column struct {
	offset []int64 // absent, or notVerbatim, or in the container
	size   []int64
	crc    []uint32
	name   []uint8 // of the image, a number in imageNames
}

const (
	notVerbatim = -1
	absent      = -2
)

// imageNames are the names under which images were met, for errors; the list is
// that of package sample, and its aliases.
var imageNames = []string{"jpg", "jpeg", "jpe", "jfif", "png", "webp", "gif", "bmp", "dib", "tiff", "tif", "pnm", "ppm", "pgm", "pbm"}

func (r *rows) key(row int64) []byte {
	from := uint32(0)
	if row > 0 {
		from = r.keyEnds[row-1]
	}
	return r.keys[from:r.keyEnds[row]]
}

// bytes is the memory the rows take.
func (r *rows) bytes() int64 {
	n := int64(len(r.keys)) + 12*int64(len(r.labels)) + 16*int64(len(r.offsets)) + 8*int64(len(r.points)) + 8*int64(len(r.dims)) + 40*int64(len(r.costs))
	for _, c := range r.cols {
		n += 20*int64(len(c.offset)) + int64(len(c.name))
	}
	return n + 256
}

// rowBytes estimates bytes for a sample before its index is read.
func rowBytes(cols int) int64 { return 12 + 21*int64(cols) + 8 + 32 }

// wanted says which fields of a sample a reader needs.
type wanted struct {
	image bool
	names []string
	// fields are those names that batches show, sorted; nil is all.
	fields []string
}

// choose decides which fields are read of those that samples have.
func (w *wanted) choose(c *Config, have []string) {
	if c.allFields() {
		w.names = have
		return
	}
	w.fields = append([]string{}, c.Fields...)
	slices.Sort(w.fields)
	w.names = slices.Clone(w.fields)
	for i := range c.Tensors {
		if at, found := slices.BinarySearch(w.names, c.Tensors[i].Field); !found {
			w.names = slices.Insert(w.names, at, c.Tensors[i].Field)
		}
	}
}

// allFields says that batches have whatever fields their samples have.
func (c *Config) allFields() bool {
	return c.Fields == nil && c.Decode == DecodeNone && c.Tensors == nil
}

// stays says that batches show the field of a name.
func (w *wanted) stays(name string) bool {
	if w.fields == nil {
		return true
	}
	_, found := slices.BinarySearch(w.fields, name)
	return found
}

// stay says which fields batches show, in memory; nil is all.
func (w *wanted) stay(memory []bool, names []string) []bool {
	if w.fields == nil {
		return nil
	}
	memory = sized(memory, len(names))
	for k, name := range names {
		memory[k] = w.stays(name)
	}
	return memory
}

// pack keeps what is wanted of an index.
func (w *wanted) pack(table []index.Row) (*rows, error) {
	keys := 0
	for i := range table {
		keys += len(table[i].Key)
	}
	if keys > 1<<32-1 {
		return nil, fmt.Errorf("its keys have %d bytes", keys)
	}
	r := &rows{
		keys:    make([]byte, 0, keys),
		keyEnds: make([]uint32, len(table)),
		labels:  make([]int64, len(table)),
	}
	add := func() *column {
		r.cols = append(r.cols, column{
			offset: make([]int64, len(table)), size: make([]int64, len(table)), crc: make([]uint32, len(table)),
		})
		return &r.cols[len(r.cols)-1]
	}
	set := func(c *column, row int, f *index.FieldRow) {
		if f == nil {
			c.offset[row] = absent
			return
		}
		c.offset[row], c.size[row], c.crc[row] = f.Offset, f.Size, f.CRC32C
		if f.Offset < 0 {
			c.offset[row] = notVerbatim
			if r.offsets == nil {
				r.offsets, r.sizes = make([]int64, len(table)), make([]int64, len(table))
			}
			r.offsets[row], r.sizes[row] = table[row].Offset, table[row].Size
		}
	}
	for i := range table {
		row := &table[i]
		r.keys = append(r.keys, row.Key...)
		r.keyEnds[i] = uint32(len(r.keys))
		r.labels[i] = -1
		if row.Label != nil {
			r.labels[i] = *row.Label
		}
	}
	if w.image {
		c := add()
		c.name = make([]uint8, len(table))
		for i := range table {
			fields := table[i].Fields
			at := sample.Image(fields, func(f index.FieldRow) string { return f.Name })
			if at < 0 {
				set(c, i, nil)
				continue
			}
			set(c, i, &fields[at])
			if d := (dims{table[i].Width, table[i].Height}); d.width > 0 && d.height > 0 {
				if r.dims == nil {
					r.dims = make([]dims, len(table))
				}
				r.dims[i] = d
			}
			if cost := decodeCost(table[i].Format, table[i].Width, table[i].Height); cost > 0 {
				if r.costs == nil {
					r.costs = map[int32]int64{}
				}
				r.costs[int32(i)] = cost
			}
			for k, name := range imageNames {
				if name == fields[at].Name {
					c.name[i] = uint8(k)
				}
			}
		}
	}
	for _, name := range w.names {
		c := add()
		for i := range table {
			set(c, i, table[i].Field(name))
		}
	}
	return r, nil
}

// rowCache keeps the packed indexes that were used last, up to limit bytes, for all
// passes of a reader.
type rowCache struct {
	load  func(ctx context.Context, shard int) (*rows, error)
	limit int64
	meter *meter

	mu      sync.Mutex
	bytes   int64
	recent  *list.List // of *rowEntry, the last used in front
	entries map[int]*rowEntry
}

type rowEntry struct {
	shard int
	at    *list.Element
	// ready is closed when rows or err is set.
	ready chan struct{}
	rows  *rows
	err   error
}

func newRowCache(limit int64, m *meter, load func(ctx context.Context, shard int) (*rows, error)) *rowCache {
	return &rowCache{load: load, limit: limit, meter: m, recent: list.New(), entries: map[int]*rowEntry{}}
}

// get returns the rows of a shard. Several that want the same shard wait for one
// load; where that one was cancelled, the next tries itself.
func (c *rowCache) get(ctx context.Context, shard int) (*rows, error) {
	for {
		c.mu.Lock()
		e := c.entries[shard]
		if e == nil {
			e = &rowEntry{shard: shard, ready: make(chan struct{})}
			e.at = c.recent.PushFront(e)
			c.entries[shard] = e
			c.mu.Unlock()
			return c.fill(ctx, e)
		}
		c.recent.MoveToFront(e.at)
		c.mu.Unlock()
		select {
		case <-e.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if e.err == nil {
			return e.rows, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

func (c *rowCache) fill(ctx context.Context, e *rowEntry) (*rows, error) {
	rows, err := c.load(ctx, e.shard)
	c.mu.Lock()
	defer c.mu.Unlock()
	e.rows, e.err = rows, err
	close(e.ready)
	if err != nil {
		c.remove(e)
		return nil, err
	}
	c.count(rows.bytes())
	for at := c.recent.Back(); at != nil && c.bytes > c.limit; {
		old := at.Value.(*rowEntry)
		at = at.Prev()
		if old != e && old.rows != nil {
			c.count(-old.rows.bytes())
			c.remove(old)
		}
	}
	return rows, nil
}

// count notes that so many bytes more are kept.
func (c *rowCache) count(n int64) {
	c.bytes += n
	c.meter.add(n)
}

func (c *rowCache) remove(e *rowEntry) {
	c.recent.Remove(e.at)
	delete(c.entries, e.shard)
}

// cached returns the rows of a shard if they are there.
func (c *rowCache) cached(shard int) *rows {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[shard]
	if e == nil || e.rows == nil {
		return nil
	}
	c.recent.MoveToFront(e.at)
	return e.rows
}
