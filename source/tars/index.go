package tars

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"shardify/index"
	"shardify/sample"
	"shardify/shard"
)

// errUntold: the shard's index does not tell what reading the shard would.
var errUntold = errors.New("not in the index")

// index lists the samples of a shard of ours by its index. It has listed nothing
// where it returns errUntold.
func (s *scanner) index() error {
	own := s.file.own
	info, err := os.Stat(s.file.path)
	switch {
	case err != nil:
		return bare(err)
	case !info.Mode().IsRegular():
		return errIrregular
	case info.Size() < own.Bytes:
		return fmt.Errorf("%w: %d bytes, the manifest says %d", shard.ErrTruncated, info.Size(), own.Bytes)
	case info.Size() > own.Bytes:
		return fmt.Errorf("%d bytes, the manifest says %d: it is not the shard that was packed", info.Size(), own.Bytes)
	}
	s.modTime = info.ModTime().UnixNano()
	rows, err := readRows(s.file.index, own)
	if err != nil {
		s.fault(s.file.index, fmt.Errorf("%w; to do without the index, name the shard, %s, instead of its folder", err, s.file.name))
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

// readRows reads a shard's index and compares it with the manifest.
func readRows(path string, own *index.Shard) ([]index.Row, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, bare(err)
	}
	defer f.Close()
	if info.Size() != own.Index.Bytes {
		return nil, fmt.Errorf("%d bytes, the manifest says %d", info.Size(), own.Index.Bytes)
	}
	data := make([]byte, own.Index.Bytes)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, bare(err)
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
