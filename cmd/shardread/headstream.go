package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"shardify/dataset"
	"shardify/imaging"
	"shardify/index"
	"shardify/reader"
	"shardify/sample"
	"shardify/store/stream"
)

// headStream shows the first samples of shards without an index.
func headStream(ctx context.Context, o *headOptions, dst string, s streams) error {
	if o.flags.Split != "" {
		return usagef("--split: %s has no index, and no splits", stream.Title(dst))
	}
	r, err := reader.OpenStream(ctx, []string{dst}, reader.Config{
		Decode: reader.DecodeNone, Shuffle: reader.ShuffleNone, BatchSize: 1, Ends: reader.EndsExact, Workers: 1, Memory: 16 << 20,
	})
	if err != nil {
		return err
	}
	defer r.Close()
	names := r.Names()
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	if !o.json {
		fmt.Fprintln(table, "KEY\tLABEL\tCLASS\tIMAGE\tFIELDS")
	}
	n := 0
	for b, err := range r.Epoch(ctx, 0) {
		if n == o.n {
			break
		}
		if err != nil {
			return errors.Join(table.Flush(), err)
		}
		row := rowOf(b)
		number := b.Samples()[0]
		b.Release()
		if o.json {
			err = printJSON(s.out, headOf(number, stream.Title(names[number>>32]), &row))
		} else {
			_, err = fmt.Fprintln(table, headRow(&row))
		}
		if err != nil {
			return err
		}
		n++
	}
	return table.Flush()
}

// rowOf describes the only sample of a batch.
func rowOf(b *reader.Batch) index.Row {
	row := index.Row{Key: b.Key(0)}
	if label := b.Labels()[0]; label >= 0 {
		row.Label = &label
	}
	var s sample.Sample
	for _, name := range b.Fields() {
		if data, ok := b.Field(0, name); ok {
			s.Fields = append(s.Fields, sample.Field{Name: name, Data: data})
			row.Fields = append(row.Fields, index.FieldRow{Name: name, Size: int64(len(data))})
		}
	}
	if row.Label == nil {
		_, row.LabelName = dataset.Label(&s, "")
	}
	if at := sample.Image(s.Fields, func(f sample.Field) string { return f.Name }); at >= 0 {
		// One that cannot be told has none of these.
		if info, err := imaging.Probe(s.Fields[at].Data); err == nil {
			row.Format, row.Width, row.Height = info.Format, int32(info.Width), int32(info.Height)
		}
	}
	return row
}
