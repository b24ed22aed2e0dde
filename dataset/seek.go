package dataset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"shardify/imaging/jpeg"
	"shardify/index"
	"shardify/index/seek"
	"shardify/sample"
	"shardify/shard"
	"shardify/store"
)

// SeekName returns the name of the side file of seek points that goes with a shard: that
// of its index, with .seek for .parquet.
func SeekName(shard string) string {
	return strings.TrimSuffix(IndexName(shard), ".parquet") + ".seek"
}

// SeekMaker finds the seek points of images for side files. It is the one place that
// does, so that packing and indexing make the same of the same bytes. It is not for
// concurrent use.
type SeekMaker struct {
	// Every is as seek.NewWriter's.
	Every   int
	decoder jpeg.Decoder
	points  []byte
}

// maxPoints bounds the points of an image: they are 24 bytes each while they are found.
const maxPoints = 1 << 22

// Points returns the seek points of an image file, as imaging/jpeg's Seek.Append writes
// them, until the next call, and whether it is a JPEG. There are none of one that has
// several scans, as progressive ones have, or any damage, or that is of a kind that is
// not decoded: that is no fault here, as it is decoded, or not, without them.
func (m *SeekMaker) Points(file []byte) (points []byte, isJPEG bool) {
	if !bytes.HasPrefix(file, []byte("\xff\xd8\xff")) {
		return nil, false
	}
	h, err := jpeg.ReadHeader(file)
	if err != nil {
		return nil, true
	}
	perRow, rows := 1, (h.Height+7)/8
	if m.Every > 0 {
		perRow += (h.Width + 7) / 8 / m.Every
	}
	if perRow*rows > maxPoints {
		return nil, true
	}
	s, err := m.decoder.MakeSeek(file, m.Every)
	if err != nil {
		return nil, true
	}
	m.points = s.Append(m.points[:0])
	return m.points, true
}

// SeekFile is a side file of seek points open for reading. Its methods are safe for
// concurrent use.
type SeekFile struct {
	d      *Dataset
	shard  *index.Shard
	object store.Object
}

// OpenSeek opens the side file of a shard that has one; sh.Seek must not be nil. It must
// have the size that the manifest gives: another one is ErrMismatch.
func (d *Dataset) OpenSeek(ctx context.Context, sh *index.Shard) (*SeekFile, error) {
	o, err := d.store.Open(store.WithSize(ctx, sh.Seek.Bytes), sh.Seek.Name)
	if err != nil {
		return nil, fmt.Errorf("seek points of shard %s: %w", sh.Name, err)
	}
	if err := checkSize("seek points "+d.path(sh.Seek.Name), o.Info().Size, sh.Seek.Bytes); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return &SeekFile{d: d, shard: sh, object: o}, nil
}

// ReadAt fills p from byte off of the file on: one read of the store. The bytes are not
// checked; seek.ParseEntry does that.
func (f *SeekFile) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	n, err := f.object.ReadAt(ctx, p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, fmt.Errorf("seek points %s: %w", f.d.path(f.shard.Seek.Name), err)
	}
	return n, err
}

// Table reads where the entries lie, with one read of 8 bytes a sample. It is checked
// against its checksum and that of the shard in the manifest. Errors name the file and
// wrap those of seek.ParseTail, or what the store says.
func (f *SeekFile) Table(ctx context.Context) (*seek.Table, error) {
	name, said := f.d.path(f.shard.Seek.Name), f.shard.Seek
	n := seek.TailBytes(f.shard.Samples)
	if n > said.Bytes {
		return nil, fmt.Errorf("%s: seek points %w: %d bytes are too few for %d samples", name, index.ErrInvalid, said.Bytes, f.shard.Samples)
	}
	tail := make([]byte, n)
	if got, err := f.ReadAt(ctx, tail, said.Bytes-n); got < len(tail) {
		return nil, fmt.Errorf("%s: %d bytes at %d: %w", name, n, said.Bytes-n, err)
	}
	t, err := seek.ParseTail(tail, said.Bytes, &f.shard.File, f.shard.Samples)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}

// Close ends reading.
func (f *SeekFile) Close() error { return f.object.Close() }

// imageOf returns the field that a sample's seek points are of; nil if there is none.
func imageOf(row *index.Row) *index.FieldRow {
	at := sample.Image(row.Fields, func(f index.FieldRow) string { return f.Name })
	if at < 0 {
		return nil
	}
	return &row.Fields[at]
}

// SeekOptions are the options of AddSeek. The zero value adds points at the beginning of
// each row of MCUs to all shards that have none.
type SeekOptions struct {
	// Every is how many MCUs lie between the points of a row; 0: each row has one.
	Every int `json:"every,omitempty"`
	// Workers is how many shards are read at once; 0 means GOMAXPROCS.
	Workers int `json:"workers,omitempty"`
	// Progress, if not nil, is counted up: Bytes of the shards' files.
	Progress *Progress `json:"-"`
}

// Validate reports every fault of the options.
func (o *SeekOptions) Validate() error {
	var faults []error
	if o.Every < 0 || o.Every > seek.MaxEvery {
		faults = append(faults, fmt.Errorf("every: %d is not from 0 to %d", o.Every, seek.MaxEvery))
	}
	if o.Workers < 0 {
		faults = append(faults, fmt.Errorf("workers: %d is negative", o.Workers))
	}
	return errors.Join(faults...)
}

// AddSeek gives the shards of a data set side files of seek points, and the manifest
// their names. Nothing else is touched: of the shards only their images are read, of the
// indexes nothing changes. A shard without JPEGs gets none. A side file that is there
// already, with that spacing and the manifest's checksum, stays: so a data set that has
// grown is brought up to date, and a damaged side file is replaced.
//
// An image whose bytes are not those that were written has no points: it is given to
// report, never from two goroutines at once. The manifest that is returned is that of the
// data set from now on; d still has the old one.
func AddSeek(ctx context.Context, d *Dataset, opts SeekOptions, report func(BadSample)) (*index.Manifest, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if opts.Workers == 0 {
		opts.Workers = runtime.GOMAXPROCS(0)
	}
	if opts.Progress == nil {
		opts.Progress = new(Progress)
	}
	m := *d.manifest
	m.Splits = slices.Clone(m.Splits)
	var todo []*index.Shard
	for i := range m.Splits {
		s := &m.Splits[i]
		s.Shards = slices.Clone(s.Shards)
		for j := range s.Shards {
			todo = append(todo, &s.Shards[j])
			opts.Progress.Total.Add(s.Shards[j].Bytes)
		}
	}
	a := &seekAdding{d: d, opts: opts, report: report}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(opts.Workers)
	for _, sh := range todo {
		if gctx.Err() != nil {
			break
		}
		group.Go(func() error {
			defer opts.Progress.Shards.Add(1)
			if sh.Seek != nil && sh.Seek.Every == opts.Every && d.intactSeek(gctx, sh) {
				opts.Progress.Bytes.Add(sh.Bytes)
				opts.Progress.Samples.Add(sh.Samples)
				return nil
			}
			return a.one(gctx, sh)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return writeManifest(ctx, d.store, &m)
}

// intactSeek says whether the side file of a shard is what the manifest describes.
func (d *Dataset) intactSeek(ctx context.Context, sh *index.Shard) bool {
	f, err := d.OpenSeek(ctx, sh)
	if err != nil {
		return false
	}
	defer f.Close()
	file := (&objectReader{ctx: ctx, object: f.object, hash: index.NewHash(), done: func(int) {}}).remote(f.d.store.URL())
	_, err = io.Copy(io.Discard, file)
	return err == nil && index.NewChecksum(file.hash.Sum64()) == sh.Seek.Checksum
}

// seekAdding is one run of AddSeek.
type seekAdding struct {
	d      *Dataset
	opts   SeekOptions
	mu     sync.Mutex // of report
	report func(BadSample)
}

func (a *seekAdding) bad(b BadSample) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.report(b)
}

// one makes the side file of a shard, and sets its entry in the manifest.
func (a *seekAdding) one(ctx context.Context, sh *index.Shard) error {
	was := sh.Seek
	sh.Seek = nil
	rows, err := a.d.Rows(ctx, sh)
	if err != nil {
		return err
	}
	progress := a.opts.Progress
	if !mayHaveJPEGs(rows) {
		progress.Bytes.Add(sh.Bytes)
		progress.Samples.Add(sh.Samples)
		return nil
	}
	file, err := a.d.OpenShard(ctx, sh)
	if err != nil {
		return err
	}
	defer file.Close()
	name := SeekName(sh.Name)
	if was != nil {
		name = was.Name
	}
	if err := a.d.store.Sweep(ctx, name); err != nil { // what a killed run left
		return err
	}
	out, err := a.d.store.Create(ctx, name)
	if err != nil {
		return err
	}
	defer out.Abort()
	w := seek.NewWriter(out, a.opts.Every)
	maker := SeekMaker{Every: a.opts.Every}
	in := chunks{file: file}
	var jpegs int64
	done := int64(0) // of the file's bytes, for the progress
	for i := range rows {
		row := &rows[i]
		field := imageOf(row)
		var data, points []byte
		if field != nil {
			if data, err = in.field(ctx, row, field); err != nil {
				if !isDamage(err) {
					return err
				}
				a.bad(BadSample{Shard: sh.Name, Key: row.Key, Field: field.Name, Offset: field.Offset, Err: err})
				data = nil
			}
		}
		var crc uint32
		if data != nil {
			var isJPEG bool
			if points, isJPEG = maker.Points(data); isJPEG {
				jpegs++
				crc = field.CRC32C
			}
		}
		if err := w.Add(crc, points); err != nil {
			return err
		}
		progress.Samples.Add(1)
		if at := int64(float64(i+1) / float64(len(rows)) * float64(sh.Bytes)); at > done {
			progress.Bytes.Add(at - done)
			done = at
		}
	}
	if jpegs == 0 {
		if was != nil {
			return a.d.store.Remove(ctx, name)
		}
		return nil
	}
	points, err := w.Close(&sh.File)
	if err != nil {
		return err
	}
	points.Name = name
	if err := out.Commit(ctx); err != nil {
		return err
	}
	sh.Seek = &points
	return nil
}

// mayHaveJPEGs says whether any image may be a JPEG. Where images were not looked at, any
// may be.
func mayHaveJPEGs(rows []index.Row) bool {
	return slices.ContainsFunc(rows, func(r index.Row) bool {
		return r.Format == "jpeg" || r.Format == "" && imageOf(&r) != nil
	})
}

// isDamage says that an error is about the bytes of a sample, and not that they could not
// be read.
func isDamage(err error) bool {
	var format *shard.FormatError
	return errors.Is(err, shard.ErrChecksum) || errors.Is(err, shard.ErrTruncated) || errors.As(err, &format)
}

// chunks reads fields of a shard in the order in which they lie, in reads of some
// megabytes: stores that answer late are asked seldom.
type chunks struct {
	file *ShardFile
	buf  []byte
	at   int64 // of buf in the container
	one  []byte
}

const chunkSize = 4 << 20

// field returns a field's content, checked against its CRC-32C, until the next call.
func (c *chunks) field(ctx context.Context, row *index.Row, field *index.FieldRow) ([]byte, error) {
	if field.Offset < 0 {
		frame, err := c.read(ctx, row.Offset, row.Size)
		if err != nil {
			return nil, err
		}
		return c.file.ParseField(frame, row, field)
	}
	data, err := c.read(ctx, field.Offset, field.Size)
	if err != nil {
		return nil, err
	}
	if sum := index.FieldChecksum(data); sum != field.CRC32C {
		return nil, fmt.Errorf("%w: the %d bytes have CRC-32C %08x, the index says %08x", shard.ErrChecksum, len(data), sum, field.CRC32C)
	}
	return data, nil
}

// read returns some bytes of the container.
func (c *chunks) read(ctx context.Context, off, size int64) ([]byte, error) {
	if end := c.at + int64(len(c.buf)); off < c.at || off+size > end {
		if size > chunkSize {
			var err error
			c.one, err = c.file.read(ctx, off, size, c.one)
			return c.one, err
		}
		n := min(chunkSize, max(size, c.file.size-off))
		buf, err := c.file.read(ctx, off, n, c.buf)
		if err != nil { // perhaps in what is not wanted
			c.buf = nil
			c.one, err = c.file.read(ctx, off, size, c.one)
			return c.one, err
		}
		c.buf, c.at = buf, off
	}
	return c.buf[off-c.at:][:size], nil
}
