package tars

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"shardify/index"
	"shardify/sample"
	"shardify/shard"
	"shardify/source/folder"
	"shardify/store"
)

// errUntold: the shard's index does not tell what reading the shard would.
var errUntold = errors.New("not in the index")

// index lists the samples of a shard of ours by its index. It has listed nothing
// where it returns errUntold.
func (s *scanner) index() error {
	own := s.file.own
	size, stamp, err := s.file.stat(s.pass.Context())
	switch {
	case err != nil:
		return bare(err)
	case size < own.Bytes:
		return fmt.Errorf("%w: %d bytes, the manifest says %d", shard.ErrTruncated, size, own.Bytes)
	case size > own.Bytes:
		return fmt.Errorf("%d bytes, the manifest says %d: it is not the shard that was packed", size, own.Bytes)
	}
	s.modTime = stamp
	rows, err := s.file.rows(s.pass.Context())
	var of *storeError
	if errors.As(err, &of) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil {
		s.fault(s.file.indexName(), fmt.Errorf("%w; to do without the index, name the shard, %s, instead of its folder", err, s.file.name))
		return nil
	}
	for i := range rows {
		if !told(&rows[i]) {
			return errUntold
		}
	}
	for i := range rows {
		row := &rows[i]
		if limit := s.limit(); row.Size > limit {
			return &shard.UnsupportedError{
				Format: s.file.format.Container.Name(), Offset: row.Offset,
				Msg: fmt.Sprintf("sample %q takes %d bytes, more than the limit of %d", sample.Shorten(row.Key), row.Size, limit),
			}
		}
		s.parts = s.parts[:0]
		var cls []byte
		classed := false
		for j := range row.Fields {
			f := &row.Fields[j]
			if f.Name == "cls" {
				cls, classed = spellClass(row, f)
			}
			s.parts = append(s.parts, part{name: f.Name, offset: f.Offset, size: f.Size, sum: f.CRC32C})
		}
		if err := s.add(row.Key, cls, classed); err != nil {
			return err
		}
	}
	return nil
}

// stat returns the size and the stamp of a shard, as its handle's state does.
func (f *file) stat(ctx context.Context) (size, stamp int64, err error) {
	if f.st != nil {
		info, err := store.Stat(ctx, f.st, f.object)
		if err != nil {
			return 0, 0, &storeError{err}
		}
		return info.Size, folder.VersionOf(info), nil
	}
	info, err := os.Stat(f.path)
	if err != nil {
		return 0, 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, 0, errIrregular
	}
	return info.Size(), info.ModTime().UnixNano(), nil
}

// indexName is the path or URL of a shard's index.
func (f *file) indexName() string {
	if f.st != nil {
		return f.st.URL() + "/" + f.index
	}
	return f.index
}

// indexBytes reads a shard's index, which is to have so many bytes.
func (f *file) indexBytes(ctx context.Context, size int64) ([]byte, error) {
	wrong := func(is int64) error { return fmt.Errorf("%d bytes, the manifest says %d", is, size) }
	if f.st != nil {
		o, err := f.st.Open(ctx, f.index)
		if err != nil {
			return nil, &storeError{err}
		}
		defer o.Close()
		if is := o.Info().Size; is != size {
			return nil, wrong(is)
		}
		data := make([]byte, size)
		if n, err := o.ReadAt(ctx, data, 0); n < len(data) {
			return nil, &storeError{err}
		}
		return data, nil
	}
	in, info, err := openRegular(f.index)
	if err != nil {
		return nil, bare(err)
	}
	defer in.Close()
	if info.Size() != size {
		return nil, wrong(info.Size())
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(in, data); err != nil {
		return nil, bare(err)
	}
	return data, nil
}

// rows reads a shard's index and compares it with the manifest.
func (f *file) rows(ctx context.Context) ([]index.Row, error) {
	own := f.own
	data, err := f.indexBytes(ctx, own.Index.Bytes)
	if err != nil {
		return nil, err
	}
	if sum := index.Sum(data); sum != own.Index.Checksum {
		return nil, fmt.Errorf("%w: the file has %s, the manifest says %s", shard.ErrChecksum, sum, own.Index.Checksum)
	}
	rows, err := index.ReadRows(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	if int64(len(rows)) != own.Samples {
		return nil, fmt.Errorf("index %w: %d rows for %d samples", index.ErrInvalid, len(rows), own.Samples)
	}
	raw := own.RawBytes
	if raw == 0 {
		raw = own.Bytes
	}
	if n := len(rows); n > 0 && rows[n-1].Offset+rows[n-1].Size > raw {
		return nil, fmt.Errorf("index %w: its last sample ends at %d, the shard at %d", index.ErrInvalid, rows[n-1].Offset+rows[n-1].Size, raw)
	}
	return rows, nil
}

// told says whether a row tells all of its sample that is listed.
func told(row *index.Row) bool {
	for i := range row.Fields {
		f := &row.Fields[i]
		if f.Name == "cls" {
			if _, ok := spellClass(row, f); !ok {
				return false
			}
		} else if f.Offset < 0 {
			return false
		}
	}
	return true
}

// spellClass returns the content of the field cls: the label or its name as it must
// have been spelt to have the size and the checksum that the row gives.
func spellClass(row *index.Row, f *index.FieldRow) (content []byte, ok bool) {
	var room [24]byte
	label := room[:0]
	if row.Label != nil {
		label = strconv.AppendInt(label, *row.Label, 10)
	} else {
		label = append(label, "-1"...)
	}
	for _, text := range [...][]byte{label, []byte(row.LabelName)} {
		for _, end := range [...]string{"", "\n"} {
			if int64(len(text)+len(end)) == f.Size {
				content = append(append(content[:0], text...), end...)
				if index.FieldChecksum(content) == f.CRC32C {
					return content, true
				}
			}
		}
	}
	return nil, false
}
