package feed

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/parquet-go/parquet-go"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/index"
	"shardify/reader"
	"shardify/store/mem"
)

// rowsOf are the rows of a Parquet file.
func rowsOf(t *testing.T, file []byte) []index.TableRow {
	t.Helper()
	rows, err := parquet.Read[index.TableRow](bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// selected are the rows of a selection.
func selectedRows(t *testing.T, d *dataset.Dataset, s dataset.Selection) (rows []index.TableRow) {
	t.Helper()
	for sample, err := range d.Select(t.Context(), s) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, sample.TableRow())
	}
	return rows
}

// The table that a client gets is the index of the server's data set, over either way.
func TestTable(t *testing.T) {
	dir := data(t)
	local, err := reader.Open(t.Context(), dir, reader.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	for _, network := range []string{"unix", "tcp"} {
		r := open(t, attach(t, serve(t, Config{}), network), dir, reader.Config{})
		for name, s := range map[string]dataset.Selection{
			"all":   {},
			"some":  {Split: "train", Label: "3", Where: "width > 40"},
			"from":  {From: 77},
			"class": {Label: "class-002"},
			"none":  {Where: "width < 0"},
		} {
			var got []index.TableRow
			files := 0
			for file, err := range r.Table(t.Context(), s) {
				if err != nil {
					t.Fatal(err)
				}
				files++
				got = append(got, rowsOf(t, file)...)
			}
			if want := selectedRows(t, local.Dataset(), s); files != 1 || !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
				t.Errorf("%s, %s: %d rows in %d files, want %d in one", network, name, len(got), files, len(want))
			}
		}
		for name, s := range map[string]dataset.Selection{"split": {Split: "test"}, "label": {Label: "class-00"}, "where": {Where: "widht > 3"}, "from": {From: -1}} {
			for _, err := range r.Table(t.Context(), s) {
				if !errors.Is(err, reader.ErrConfig) {
					t.Errorf("%s, %s: %v", network, name, err)
				}
			}
		}
	}
}

// However small the parts of a table are, each sample is in one of them.
func TestTableParts(t *testing.T) {
	d := datasettest.Write(t, mem.New(), datasettest.Options{Splits: []string{"train", "val"}, Shards: 3, Samples: 5})
	for _, s := range []dataset.Selection{{}, {Split: "val", Where: "label <> 1"}, {Label: "2"}} {
		want := selectedRows(t, d, s)
		for _, most := range []int{1, 1000, 3000, 1 << 20} {
			var got []index.TableRow
			part := s
			for {
				ok, err := partOf(t.Context(), d, part, most)
				if err != nil {
					t.Fatal(err)
				}
				rows := rowsOf(t, ok.Parquet)
				if most == 1 && len(rows) != 1 {
					t.Errorf("%+v: a part of %d rows", part, len(rows))
				}
				got = append(got, rows...)
				if ok.Next == nil {
					break
				}
				part.From = *ok.Next
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%+v in parts of %d bytes: %d rows, want %d", s, most, len(got), len(want))
			}
		}
	}
}
