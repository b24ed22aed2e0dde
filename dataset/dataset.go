package dataset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"shardify/index"
	"shardify/shard"
	"shardify/shard/compress"
	"shardify/shard/formats"
	"shardify/store"
)

// WorkDir is the folder within a store where an unfinished pack keeps its plan and
// journal. Its files are no part of the data set.
const WorkDir = ".shardify/"

var (
	// ErrNotDataset: the store has no manifest. The error says what it has instead,
	// and what to do. It is fs.ErrNotExist, too.
	ErrNotDataset error = &sentinel{"not a shardify data set", fs.ErrNotExist}
	// ErrUnfinished: a pack into the store has begun and has not ended. It is
	// ErrNotDataset, too.
	ErrUnfinished error = &sentinel{"an unfinished data set", ErrNotDataset}
	// ErrMismatch: a file of the data set is not the one that the manifest speaks of.
	ErrMismatch = errors.New("not the file that the manifest describes")
)

// sentinel is an error that is another one, too, of which its text says nothing.
type sentinel struct {
	text string
	also error
}

func (e *sentinel) Error() string { return e.text }
func (e *sentinel) Unwrap() error { return e.also }

// Dataset is an open data set. It holds nothing open and needs no Close; it is
// safe for concurrent use.
type Dataset struct {
	store    store.Store
	manifest *index.Manifest
	format   formats.Format
	frames   *compress.Frames // of Share
}

// Open reads and validates the manifest of the data set in st. That costs O(shards).
//
// Where st has no manifest, the error wraps ErrNotDataset, and ErrUnfinished if a
// pack into it has begun.
func Open(ctx context.Context, st store.Store) (*Dataset, error) {
	data, err := store.ReadAll(ctx, st, index.ManifestName, index.MaxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, explainMissing(ctx, st)
	}
	if err != nil {
		return nil, fmt.Errorf("data set %s: %w", st.URL(), err)
	}
	m, err := index.DecodeManifest(data)
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", st.URL(), index.ManifestName, err)
	}
	return New(st, m)
}

// New returns the data set in st that m describes, without reading anything. m
// must be valid and stays unchanged from now on.
func New(st store.Store, m *index.Manifest) (*Dataset, error) {
	f, err := formatOf(m)
	if err != nil {
		return nil, fmt.Errorf("data set %s: %w", st.URL(), err)
	}
	return &Dataset{store: st, manifest: m, format: f}, nil
}

// Share returns the data set with memory that all its compressed shards decode into, also
// together with other data sets. Otherwise each open one has its own.
func (d *Dataset) Share(frames *compress.Frames) *Dataset {
	shared := *d
	shared.frames = frames
	return &shared
}

// explainMissing says what a store without a manifest is. It looks at a bounded
// number of names.
func explainMissing(ctx context.Context, st store.Store) error {
	const look = 10_000
	for _, err := range st.List(ctx, WorkDir) {
		if errors.Is(err, syscall.ENOTDIR) {
			return fmt.Errorf("%s: %w: it is a file; a data set is a folder, which `shardify pack` makes, and `shardify index` of a folder of shards",
				st.URL(), ErrNotDataset)
		} else if errors.Is(err, errors.ErrUnsupported) { // nobody can say what else is there
			return fmt.Errorf("%s: %w: there is no %s: check the URL, which is that of a data set's folder; shards without an index are named one by one or by a pattern: `shardread stream '%s/train-{000000..000099}.tar'`",
				st.URL(), ErrNotDataset, index.ManifestName, st.URL())
		} else if err != nil {
			return fmt.Errorf("data set %s: %w", st.URL(), err)
		}
		return fmt.Errorf("%s: %w: %s is there: run the same `shardify pack` command again to finish it",
			st.URL(), ErrUnfinished, strings.TrimSuffix(WorkDir, "/"))
	}
	files := 0
	for info, err := range st.List(ctx, "") {
		if err != nil {
			return fmt.Errorf("data set %s: %w", st.URL(), err)
		}
		if isShard(info.Name) {
			return fmt.Errorf("%s: %w: it has shards (%s) but no %s: run `shardify index %s` to write one; or read them without an index: `shardread stream '%s'`",
				st.URL(), ErrNotDataset, info.Name, index.ManifestName, st.URL(), pattern(st.URL(), info.Name))
		}
		if files++; files == look {
			break
		}
	}
	if files == 0 {
		return fmt.Errorf("%s: %w: nothing is there: check the path; `shardify pack SRC %s` makes a data set there, of a folder of images",
			st.URL(), ErrNotDataset, st.URL())
	}
	return fmt.Errorf("%s: %w: it has neither %s nor shards: `shardify pack SRC DST` makes a data set of a folder of images",
		st.URL(), ErrNotDataset, index.ManifestName)
}

// pattern names the shards that are like the one of this name and lie beside it.
func pattern(url, name string) string {
	dir, base := path.Split(name)
	if f, err := formats.OfFile(base); err == nil {
		ext := f.Extension()
		if at := strings.LastIndex(strings.ToLower(base), ext); at >= 0 {
			base = "*" + base[at:at+len(ext)]
			if at+len(ext) < len(path.Base(name)) { // a.tfrecord-00000-of-00008
				base += "*"
			}
		}
	}
	return strings.TrimSuffix(url, "/") + "/" + dir + base
}

// Store returns the store that the data set lies in.
func (d *Dataset) Store() store.Store { return d.store }

// Manifest returns the manifest, which must not be changed.
func (d *Dataset) Manifest() *index.Manifest { return d.manifest }

// URL names the data set for people.
func (d *Dataset) URL() string { return d.store.URL() }

// Rows reads the index of a shard: a row for each of its samples, in the shard's
// order. The index file must have the size and the checksum, and the rows the
// number and the extent, that the manifest gives. The rows are the caller's.
//
// Errors name the file and wrap ErrMismatch (of another size), shard.ErrChecksum,
// index.ErrInvalid, or what the store says.
//
// It is ReadIndex and DecodeIndex, for who reads more of them at once than should be in
// memory as rows, which take some ten times as much.
func (d *Dataset) Rows(ctx context.Context, sh *index.Shard) ([]index.Row, error) {
	data, err := d.ReadIndex(ctx, sh)
	if err != nil {
		return nil, err
	}
	return d.DecodeIndex(sh, data)
}

// ReadIndex reads the bytes of a shard's index and checks them against the manifest.
func (d *Dataset) ReadIndex(ctx context.Context, sh *index.Shard) ([]byte, error) {
	name := d.path(sh.Index.Name)
	o, err := d.store.Open(store.WithSize(ctx, sh.Index.Bytes), sh.Index.Name)
	if err != nil {
		return nil, fmt.Errorf("index of shard %s: %w", sh.Name, err)
	}
	defer o.Close()
	if err := checkSize("index "+name, o.Info().Size, sh.Index.Bytes); err != nil {
		return nil, err
	}
	data := make([]byte, sh.Index.Bytes)
	if n, err := o.ReadAt(ctx, data, 0); n < len(data) {
		return nil, fmt.Errorf("index of shard %s: %w", sh.Name, err)
	}
	if sum := index.Sum(data); sum != sh.Index.Checksum {
		return nil, fmt.Errorf("index %s: %w: the file has %s, the manifest says %s", name, shard.ErrChecksum, sum, sh.Index.Checksum)
	}
	return data, nil
}

// DecodeIndex decodes what ReadIndex has returned and checks it against the manifest.
func (d *Dataset) DecodeIndex(sh *index.Shard, data []byte) ([]index.Row, error) {
	name := d.path(sh.Index.Name)
	rows, err := index.ReadRows(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if int64(len(rows)) != sh.Samples {
		return nil, fmt.Errorf("index %s %w: %d rows for the %d samples of shard %s", name, index.ErrInvalid, len(rows), sh.Samples, sh.Name)
	}
	if n := len(rows); n > 0 {
		if end := rows[n-1].Offset + rows[n-1].Size; end > RawBytes(sh) {
			return nil, fmt.Errorf("index %s %w: its last sample ends at byte %d, shard %s has %d", name, index.ErrInvalid, end, sh.Name, RawBytes(sh))
		}
	}
	return rows, nil
}

// RawBytes returns the size of the shard's container before compression.
func RawBytes(sh *index.Shard) int64 {
	if sh.RawBytes > 0 {
		return sh.RawBytes
	}
	return sh.Bytes
}

// path names a file of the data set for people.
func (d *Dataset) path(name string) string { return d.store.URL() + "/" + name }

// ReadField returns the content of one field, checked against its CRC-32C. To read
// many fields of a shard, open it once.
func (d *Dataset) ReadField(ctx context.Context, sh *index.Shard, row *index.Row, field *index.FieldRow) ([]byte, error) {
	f, err := d.OpenShard(ctx, sh)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadField(ctx, row, field, nil)
}

// ShardFile is a shard open for reading. Its methods are safe for concurrent use.
type ShardFile struct {
	d      *Dataset
	shard  *index.Shard
	object store.Object
	raw    rawReader
	// size is that of the container: the real one where it is not compressed, what
	// the manifest claims where it is.
	size int64
}

// OpenShard opens a shard, whose file must have the size that the manifest gives:
// another size is an error that wraps ErrMismatch, and shard.ErrTruncated where the
// file is too short; of a store behind a network, the first read is store.ErrChanged.
func (d *Dataset) OpenShard(ctx context.Context, sh *index.Shard) (*ShardFile, error) {
	o, err := d.store.Open(store.WithSize(ctx, sh.Bytes), sh.Name)
	if err != nil {
		return nil, fmt.Errorf("shard %s: %w", sh.Name, err)
	}
	if err := checkSize("shard "+d.path(sh.Name), o.Info().Size, sh.Bytes); err != nil {
		o.Close()
		return nil, err
	}
	raw, err := openRaw(ctx, d.format, o, d.frames)
	if err != nil {
		o.Close()
		return nil, fmt.Errorf("shard %s: %w", d.path(sh.Name), err)
	}
	f := &ShardFile{d: d, shard: sh, object: o, raw: raw, size: RawBytes(sh)}
	if d.format.Compression == compress.None {
		f.size = sh.Bytes
	}
	return f, nil
}

// checkSize compares the size of a file with what the manifest says.
func checkSize(what string, size, want int64) error {
	switch {
	case size < want:
		return fmt.Errorf("%s: %w: %d bytes of %d: %w", what, ErrMismatch, size, want, shard.ErrTruncated)
	case size > want:
		return fmt.Errorf("%s: %w: it has %d bytes, the manifest says %d", what, ErrMismatch, size, want)
	}
	return nil
}

// ReadAt fills p from byte off of the container before compression on. As with
// io.ReaderAt, n < len(p) comes with an error. In an uncompressed shard it is one
// read of the store; in a .zst shard the frames that p lies in are decompressed; in
// a .gz shard everything before p.
func (f *ShardFile) ReadAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	n, err = f.raw.ReadAt(ctx, p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, fmt.Errorf("shard %s: %w", f.d.path(f.shard.Name), err)
	}
	return n, err
}

// ReadSample returns the bytes of a sample as the container holds them, in buf if
// that is large enough: row.Size bytes from row.Offset on, for Parse of the
// container. They are not checked.
func (f *ShardFile) ReadSample(ctx context.Context, row *index.Row, buf []byte) ([]byte, error) {
	return f.read(ctx, row.Offset, row.Size, buf)
}

// ReadField returns the content of a field of the sample, in buf if that is large
// enough, checked against its CRC-32C. Errors name shard, key, field and offset and
// wrap shard.ErrChecksum, shard.ErrTruncated, or what the store says.
func (f *ShardFile) ReadField(ctx context.Context, row *index.Row, field *index.FieldRow, buf []byte) ([]byte, error) {
	where := func(err error) error {
		return fmt.Errorf("sample %q field %q at %d: %w", row.Key, field.Name, field.Offset, err)
	}
	if field.Offset >= 0 {
		data, err := f.read(ctx, field.Offset, field.Size, buf)
		if err != nil {
			return nil, where(err)
		}
		if sum := index.FieldChecksum(data); sum != field.CRC32C {
			return nil, where(fmt.Errorf("shard %s: %w: the bytes have CRC-32C %08x, the index says %08x", f.d.path(f.shard.Name), shard.ErrChecksum, sum, field.CRC32C))
		}
		return data, nil
	}
	frame, err := f.read(ctx, row.Offset, row.Size, buf)
	if err != nil {
		return nil, where(err)
	}
	return f.ParseField(frame, row, field)
}

// ParseField is ReadField of a sample whose bytes, frame, have been read already. The
// content points into frame.
func (f *ShardFile) ParseField(frame []byte, row *index.Row, field *index.FieldRow) ([]byte, error) {
	where := func(err error) error {
		return fmt.Errorf("sample %q field %q at %d: %w", row.Key, field.Name, field.Offset, err)
	}
	s, err := f.d.format.Container.Parse(frame, row.Offset)
	if err != nil {
		return nil, where(fmt.Errorf("shard %s: %w", f.d.path(f.shard.Name), err))
	}
	data, ok := s.Field(field.Name)
	if !ok {
		return nil, where(fmt.Errorf("shard %s: %w: the sample has no such field", f.d.path(f.shard.Name), shard.ErrChecksum))
	}
	if sum := index.FieldChecksum(data); int64(len(data)) != field.Size || sum != field.CRC32C {
		return nil, where(fmt.Errorf("shard %s: %w: %d bytes with CRC-32C %08x, the index says %d with %08x", f.d.path(f.shard.Name), shard.ErrChecksum, len(data), sum, field.Size, field.CRC32C))
	}
	return data, nil
}

// read returns size bytes of the container from off on, in buf if it is large
// enough. size is what an index claims, so memory is allocated only for bytes that
// the file can have: all at once within an uncompressed file, as they come in a
// compressed one.
func (f *ShardFile) read(ctx context.Context, off, size int64, buf []byte) ([]byte, error) {
	const step = 16 << 20
	if total := f.size; off < 0 || size < 0 || off > total || size > total-off {
		return nil, fmt.Errorf("shard %s: %w: %d bytes at %d of %d", f.d.path(f.shard.Name), shard.ErrTruncated, size, off, total)
	}
	buf = buf[:0]
	if f.d.format.Compression == compress.None && int64(cap(buf)) < size {
		buf = make([]byte, 0, size)
	}
	for int64(len(buf)) < size {
		have := len(buf)
		if int64(cap(buf)) < size {
			buf = append(buf, make([]byte, min(step, size-int64(have)))...)
		} else {
			buf = buf[:size]
		}
		n, err := f.ReadAt(ctx, buf[have:], off+int64(have))
		if n < len(buf)-have {
			if err == nil || errors.Is(err, io.EOF) {
				err = fmt.Errorf("shard %s: %w: it ends at byte %d", f.d.path(f.shard.Name), shard.ErrTruncated, off+int64(have+n))
			}
			return nil, err
		}
	}
	return buf, nil
}

// Close ends reading.
func (f *ShardFile) Close() error { return f.object.Close() }
