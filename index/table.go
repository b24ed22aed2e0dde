package index

import (
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// TableRow is a row of a table of samples of several shards: a Row with where it comes
// from. It is for other programs; a reader goes by the indexes of the shards.
type TableRow struct {
	// Split and Shard name where the sample lies.
	Split string `parquet:"split,dict"`
	Shard string `parquet:"shard,dict"`
	// Number is its place in the shard, and Sample in the split, both from 0.
	Number int64 `parquet:"number,delta"`
	Sample int64 `parquet:"sample,delta"`
	Row
}

// TableWriter writes a table as its rows come, as a Parquet file; it holds a row group
// at most. It is not for concurrent use.
type TableWriter struct{ rows rowWriter[TableRow] }

// NewTableWriter starts a table on w.
func NewTableWriter(w io.Writer) *TableWriter {
	return &TableWriter{newRowWriter[TableRow](w)}
}

// Write appends a row. The row's memory is kept until it is written out.
func (w *TableWriter) Write(row TableRow) error { return w.rows.write(row) }

// Close ends the table. It does not close the underlying writer.
func (w *TableWriter) Close() error { return w.rows.close() }

// rowWriter hands rows to a Parquet writer, batchRows at a time.
type rowWriter[T any] struct {
	pw    *parquet.GenericWriter[T]
	batch []T
}

func newRowWriter[T any](w io.Writer, options ...parquet.WriterOption) rowWriter[T] {
	return rowWriter[T]{pw: parquet.NewGenericWriter[T](w, append([]parquet.WriterOption{
		parquet.Compression(&zstd.Codec{}),
		parquet.MaxRowsPerRowGroup(rowGroup),
		parquet.CreatedBy("shardify", "1", ""),
	}, options...)...)}
}

func (w *rowWriter[T]) write(row T) error {
	w.batch = append(w.batch, row)
	if len(w.batch) < batchRows {
		return nil
	}
	return w.flush()
}

func (w *rowWriter[T]) flush() error {
	_, err := w.pw.Write(w.batch)
	clear(w.batch)
	w.batch = w.batch[:0]
	return err
}

func (w *rowWriter[T]) close() error {
	if err := w.flush(); err != nil {
		return err
	}
	return w.pw.Close()
}
