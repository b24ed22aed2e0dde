package index

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// Row describes one sample. Offsets count bytes of the container before
// compression. Query it with any engine that reads Parquet:
//
//	select key, width, height from 'train-000000.parquet' where label_name = 'tench'
type Row struct {
	// Key is the sample's key.
	Key string `parquet:"key"`
	// Label is the class number and LabelName the class name; null where there is
	// none.
	Label     *int64 `parquet:"label,optional"`
	LabelName string `parquet:"label_name,optional,dict"`
	// Offset and Size are the sample's bytes in the container.
	Offset int64 `parquet:"offset,delta"`
	Size   int64 `parquet:"size"`
	// Format ("jpeg", "png", …), Width and Height (pixels, as stored, before any
	// rotation), Orientation (EXIF, 1 to 8) and Channels describe the sample's
	// image; null where it has none or it was not looked at.
	Format      string `parquet:"format,optional,dict"`
	Width       int32  `parquet:"width,optional"`
	Height      int32  `parquet:"height,optional"`
	Orientation int32  `parquet:"orientation,optional"`
	Channels    int32  `parquet:"channels,optional"`
	// Fields are the sample's fields, sorted by name.
	Fields []FieldRow `parquet:"fields,list"`
}

// FieldRow describes one field of a sample.
type FieldRow struct {
	Name string `parquet:"name,dict"`
	// HeaderOffset is where the field's frame begins, Offset where its bytes begin
	// (-1: they do not stand verbatim in the container), Size their number.
	HeaderOffset int64 `parquet:"header_offset,delta"`
	Offset       int64 `parquet:"offset,delta"`
	Size         int64 `parquet:"size"`
	// CRC32C is the FieldChecksum of the bytes.
	CRC32C uint32 `parquet:"crc32c"`
	// Path is the original path of the file, escaped as by sample.Escape; null
	// where there was none.
	Path string `parquet:"path,optional"`
}

// Field returns the row of the field called name; nil if there is none.
func (r *Row) Field(name string) *FieldRow {
	for i := range r.Fields {
		if r.Fields[i].Name == name {
			return &r.Fields[i]
		}
	}
	return nil
}

// rowGroup is the number of rows a group holds: few enough that a reader that
// wants a part of a large index reads a part.
const rowGroup = 16384

// MaxIndexRows bounds the rows of an index that is read.
const MaxIndexRows = 1 << 27

// Every index says in its metadata what it is.
const (
	versionKey  = "shardify.index.version"
	rowsVersion = "1"
)

// batchRows is how many rows are handed to the Parquet writer at a time. Where its
// pages end depends on it, so it is part of the promise of equal bytes.
const batchRows = 1024

// RowWriter writes an index as its rows come, holding a row group at most. It is
// not for concurrent use.
type RowWriter struct{ rows rowWriter[Row] }

// NewRowWriter starts an index on w.
func NewRowWriter(w io.Writer) *RowWriter {
	return &RowWriter{newRowWriter[Row](w, parquet.KeyValueMetadata(versionKey, rowsVersion))}
}

// Write appends a row. The row's memory is kept until it is written out.
func (w *RowWriter) Write(row Row) error { return w.rows.write(row) }

// Close ends the index. It does not close the underlying writer.
func (w *RowWriter) Close() error { return w.rows.close() }

// WriteRows writes an index of all its rows.
func WriteRows(w io.Writer, rows []Row) error {
	rw := NewRowWriter(w)
	for i := range rows {
		if err := rw.Write(rows[i]); err != nil {
			return err
		}
	}
	return rw.Close()
}

// ReadRows reads an index of size bytes, whole. A file that is no index, or a row
// that contradicts itself, is an error that wraps ErrInvalid.
func ReadRows(r io.ReaderAt, size int64) ([]Row, error) {
	rows, err := readColumns[Row](r, size)
	if err != nil {
		return nil, err
	}
	end := int64(0)
	for i := range rows {
		row := &rows[i]
		if row.Offset < end || row.Size < 0 || row.Offset+row.Size < row.Offset {
			return nil, fmt.Errorf("index %w: row %d: sample of %d bytes at %d, after one that ends at %d", ErrInvalid, i, row.Size, row.Offset, end)
		}
		end = row.Offset + row.Size
		for j := range row.Fields {
			f := &row.Fields[j]
			if f.Size < 0 || f.Offset >= 0 && (f.Offset < row.Offset || f.Offset > end || f.Size > end-f.Offset) {
				return nil, fmt.Errorf("index %w: row %d: field %q lies outside its sample", ErrInvalid, i, f.Name)
			}
		}
	}
	return rows, nil
}

// ReadKeys reads only the keys of an index of size bytes, in the order of its rows:
// some three times as fast as ReadRows. Errors are as there.
func ReadKeys(r io.ReaderAt, size int64) ([]string, error) {
	type keyed struct {
		Key string `parquet:"key"`
	}
	rows, err := readColumns[keyed](r, size)
	if err != nil {
		return nil, err
	}
	keys := make([]string, len(rows))
	for i := range rows {
		keys[i] = rows[i].Key
	}
	return keys, nil
}

// readColumns reads the columns of an index that T names.
func readColumns[T any](r io.ReaderAt, size int64) (rows []T, err error) {
	// parquet-go panics on some broken files; a broken index is the data's fault.
	defer func() {
		if p := recover(); p != nil {
			rows, err = nil, fmt.Errorf("index %w: %v", ErrInvalid, p)
		}
	}()
	f, err := parquet.OpenFile(r, size, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return nil, fmt.Errorf("index %w: %w", ErrInvalid, err)
	}
	switch version, ok := f.Lookup(versionKey); {
	case !ok:
		return nil, fmt.Errorf("index %w: a Parquet file, but not an index of shardify", ErrInvalid)
	case version != rowsVersion:
		return nil, fmt.Errorf("index %w: %w: version %q, this one reads %s", ErrInvalid, ErrVersion, sampleText(version), rowsVersion)
	}
	n := f.NumRows()
	// Twenty rows a byte is far beyond what an index of sane rows can reach.
	if n < 0 || n > MaxIndexRows || n > 20*size {
		return nil, fmt.Errorf("index %w: %d rows in %d bytes", ErrInvalid, n, size)
	}
	pr := parquet.NewGenericReader[T](f)
	defer pr.Close()
	// The footer's number is believed only as rows come.
	rows = make([]T, 0, min(n, rowGroup))
	for int64(len(rows)) < n {
		if len(rows) == cap(rows) {
			rows = slices.Grow(rows, int(min(n-int64(len(rows)), int64(len(rows)))))
		}
		k, err := pr.Read(rows[len(rows):min(int64(cap(rows)), n)])
		rows = rows[:len(rows)+k]
		if err != nil && !(errors.Is(err, io.EOF) && int64(len(rows)) == n) {
			return nil, fmt.Errorf("index %w: row %d: %w", ErrInvalid, len(rows), err)
		}
		if k == 0 {
			return nil, fmt.Errorf("index %w: %d rows of %d", ErrInvalid, len(rows), n)
		}
	}
	return rows, nil
}
