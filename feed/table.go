package feed

import (
	"bytes"
	"context"
	"iter"

	"shardify/dataset"
	"shardify/index"
	"shardify/reader"
)

// tableBytes bounds a part of a table: what its rows hold in memory. They are fewer as
// Parquet, and a third more of that in JSON.
const tableBytes = 8 << 20

// table makes a part of the index as a table. Parts are made one at a time, each when the
// one before has been written.
func (s *session) table(q *request) (any, error) {
	o, err := s.indexed(q)
	if err != nil {
		return nil, err
	}
	d := o.indexed.Dataset()
	selection := dataset.Selection{Split: q.Split, Label: q.Label, Where: q.Where, From: q.From}
	if err := d.Check(selection); err != nil {
		return nil, errorf(CodeConfig, "table: %v", err)
	}
	if q.From < 0 {
		return nil, errorf(CodeConfig, "table: from: %d; places count from 0", q.From)
	}
	select {
	case s.tables <- struct{}{}:
	case <-s.ctx.Done():
		return nil, reader.ErrClosed
	}
	ok, err := partOf(s.ctx, d, selection, tableBytes)
	ok.sent = func() { <-s.tables }
	if err != nil {
		ok.sent()
		return nil, err
	}
	return ok, nil
}

// partOf makes a table of the first samples of a selection, of one at least, whose rows
// hold about so many bytes.
func partOf(ctx context.Context, d *dataset.Dataset, s dataset.Selection, most int) (ok tableOK, err error) {
	var part bytes.Buffer
	w := index.NewTableWriter(&part)
	size := 0
	for sample, err := range d.Select(ctx, s) {
		if err != nil {
			return ok, err
		}
		if size >= most {
			ok.Next = &sample.Place
			break
		}
		if err := w.Write(sample.TableRow()); err != nil {
			return ok, err
		}
		size += sizeOf(sample.Row)
	}
	err = w.Close()
	ok.Parquet = part.Bytes()
	return ok, err
}

// sizeOf is about what a row holds in memory.
func sizeOf(row *index.Row) int {
	n := 128 + len(row.Key) + len(row.LabelName) + len(row.Format)
	for i := range row.Fields {
		n += 64 + len(row.Fields[i].Name) + len(row.Fields[i].Path)
	}
	return n
}

// Table yields the index of the data set, of the first one where there are several, as
// Parquet files with the columns of index.TableRow: the samples of a selection in its
// order, some thousand in each, and at least one file. No shard is read. The files are the
// caller's.
func (r *Reader) Table(ctx context.Context, s dataset.Selection) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for next := &s.From; next != nil; {
			q := &request{Op: "table", Reader: r.opened.Reader, Split: s.Split, Label: s.Label, Where: s.Where, From: *next}
			var ok tableOK
			if err := r.client.call(ctx, q, r.client.decode(&ok)); err != nil {
				yield(nil, err)
				return
			}
			if !yield(ok.Parquet, nil) {
				return
			}
			next = ok.Next
		}
	}
}
