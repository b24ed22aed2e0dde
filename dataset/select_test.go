package dataset_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/store/mem"
)

func selected(t *testing.T, d *dataset.Dataset, s dataset.Selection) (keys []string) {
	t.Helper()
	for sel, err := range d.Select(t.Context(), s) {
		if err != nil {
			t.Fatal(err)
		}
		if want := datasettest.Sample(numberOf(sel.Row.Key), 5).Key; sel.Row.Key != want {
			t.Fatalf("key %q, want %q", sel.Row.Key, want)
		}
		keys = append(keys, sel.Split.Name+"/"+sel.Row.Key)
	}
	return keys
}

func numberOf(key string) (n int) {
	fmt.Sscanf(key[strings.LastIndex(key, "_")+1:], "%d", &n)
	return n
}

func TestSelect(t *testing.T) {
	d := datasettest.Write(t, mem.New(), datasettest.Options{Splits: []string{"train", "val"}, Shards: 7})
	count := func(s dataset.Selection) int { return len(selected(t, d, s)) }
	if n := count(dataset.Selection{}); n != 140 {
		t.Errorf("all: %d", n)
	}
	all := selected(t, d, dataset.Selection{})
	if !slices.IsSortedFunc(all, func(a, b string) int { return numberOf(a) - numberOf(b) }) {
		t.Error("not in order")
	}
	if n := count(dataset.Selection{Split: "val"}); n != 70 {
		t.Errorf("split: %d", n)
	}
	// From a place on, of the whole or of a split.
	for from := range int64(141) {
		var got []string
		for sel, err := range d.Select(t.Context(), dataset.Selection{From: from}) {
			if err != nil {
				t.Fatal(err)
			}
			if want := from + int64(len(got)); sel.Place != want || sel.Sample != want%70 || sel.TableRow().Sample != want%70 {
				t.Fatalf("from %d: place %d, sample %d; want %d", from, sel.Place, sel.Sample, want)
			}
			got = append(got, sel.Split.Name+"/"+sel.Row.Key)
		}
		if !slices.Equal(got, all[from:]) {
			t.Errorf("from %d: %d samples, want %d", from, len(got), 140-from)
		}
	}
	if got := selected(t, d, dataset.Selection{Split: "val", From: 33}); !slices.Equal(got, all[70+33:]) {
		t.Errorf("from 33 of a split: %d", len(got))
	}
	byName, byNumber := selected(t, d, dataset.Selection{Label: "class-003"}), selected(t, d, dataset.Selection{Label: "3"})
	if len(byName) != 28 || !slices.Equal(byName, byNumber) {
		t.Errorf("label: %d by name, %d by number", len(byName), len(byNumber))
	}
	if n := count(dataset.Selection{Split: "train", Label: "3", Where: "seg.png.size is not null"}); n != 5 {
		t.Errorf("all three: %d", n)
	}
	if got := d.Fields(); !slices.Equal(got, []string{"cls", "jpg", "seg.png"}) {
		t.Errorf("fields %v", got)
	}
	for want, s := range map[string]dataset.Selection{
		"which has: train, val":            {Split: "test"},
		`did you mean "class-003"?`:        {Label: "clas-003"},
		"classes 0 to 4":                   {Label: "5"},
		"did you mean width?":              {Where: "widht > 5"},
		"the fields are cls, jpg, seg.png": {Where: "png.size > 5"},
	} {
		for _, err := range d.Select(t.Context(), s) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %q", s, err, want)
			}
		}
		if err := d.Check(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check %+v: %v, want %q", s, err, want)
		}
	}
}

// A class whose name is a number goes before the number.
func TestSelectNumericNames(t *testing.T) {
	st := mem.New()
	d := datasettest.Write(t, st, datasettest.Options{Shards: 1})
	m := *d.Manifest()
	m.Classes = []string{"4", "3", "2", "1", "0"}
	d, err := dataset.New(st, &m)
	if err != nil {
		t.Fatal(err)
	}
	// The rows say class-00N, so that none has the name "3".
	if n := len(selected(t, d, dataset.Selection{Label: "3"})); n != 0 {
		t.Errorf("%d samples", n)
	}
}

// The indexes of shards that lie before Selection.From are not read.
func TestSelectFrom(t *testing.T) {
	st := mem.New()
	d := datasettest.Write(t, st, datasettest.Options{Shards: 7, Samples: 10})
	for i := range 3 {
		if err := st.Remove(t.Context(), d.Manifest().Splits[0].Shards[i].Index.Name); err != nil {
			t.Fatal(err)
		}
	}
	if got := selected(t, d, dataset.Selection{From: 30}); len(got) != 40 {
		t.Errorf("%d samples, want 40", len(got))
	}
	for _, err := range d.Select(t.Context(), dataset.Selection{From: 29}) {
		if err == nil {
			t.Error("from 29 on there was an index that is not there")
		}
		break
	}
}

// Leaving the loop, a panic in it and a cancelled context leave no goroutine behind
// (goleak looks), and a second pass starts anew.
func TestSelectEnds(t *testing.T) {
	d := datasettest.Write(t, mem.New(), datasettest.Options{Shards: 20, Samples: 2})
	for range 2 {
		n := 0
		for _, err := range d.Select(t.Context(), dataset.Selection{}) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == 5 {
				break
			}
		}
		if n != 5 {
			t.Errorf("%d", n)
		}
	}
	func() {
		defer func() {
			if recover() != "mine" {
				t.Error("the panic was lost")
			}
		}()
		for range d.Select(t.Context(), dataset.Selection{}) {
			panic("mine")
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	var last error
	for _, err := range d.Select(ctx, dataset.Selection{}) {
		if last = err; err != nil {
			continue
		}
		if n++; n == 3 {
			cancel()
		}
	}
	cancel()
	if !errors.Is(last, context.Canceled) || n > 20 {
		t.Errorf("cancelled: %d samples, then %v", n, last)
	}
}

func TestSelectFault(t *testing.T) {
	st := mem.New()
	d := datasettest.Write(t, st, datasettest.Options{})
	flip(t, st, "train-000001.parquet", 77, 4)
	n := 0
	var last error
	for _, err := range d.Select(t.Context(), dataset.Selection{}) {
		if last = err; err == nil {
			n++
		}
	}
	if n != 10 || last == nil || !strings.Contains(last.Error(), "train-000001.parquet") {
		t.Errorf("%d samples, then %v", n, last)
	}
}

func TestFind(t *testing.T) {
	d := datasettest.Write(t, mem.New(), datasettest.Options{Splits: []string{"train", "val"}})
	found, err := d.Find(t.Context(), "", "class-002/img_000042")
	if err != nil || len(found) != 1 {
		t.Fatalf("%d found: %v", len(found), err)
	}
	if f := found[0]; f.Split.Name != "val" || f.Shard.Name != "val-000001.tar" || f.Number != 2 || f.Row.Key != "class-002/img_000042" {
		t.Errorf("found %+v", f)
	}
	for key, near := range map[string][]string{
		"class-002/img_000042.JPEG":     {"class-002/img_000042"},
		"img_000042":                    {"class-002/img_000042"},
		"data/val/class-002/img_000042": {"class-002/img_000042"},
		"class-002/img_0000421":         {"class-002/img_000042"},
		"clas-002/img_000042":           {"class-002/img_000042"},
		"nothing like it":               nil,
	} {
		_, err := d.Find(t.Context(), "", key)
		var missing *dataset.KeyError
		if !errors.As(err, &missing) || len(missing.Near) != len(near) || len(near) > 0 && missing.Near[0] != near[0] {
			t.Errorf("%q: %v, want %v", key, err, near)
		}
	}
	if _, err := d.Find(t.Context(), "train", "class-002/img_000042"); err == nil {
		t.Error("found in the wrong split")
	}
}

func TestSummarize(t *testing.T) {
	d := datasettest.Write(t, mem.New(), datasettest.Options{Format: "tar.zst", Splits: []string{"train", "val"}})
	s, err := dataset.Summarize(t.Context(), d, "", true)
	if err != nil {
		t.Fatal(err)
	}
	if s.Samples != 60 || s.Shards != 6 || s.Bytes != d.Manifest().Bytes() || s.RawBytes <= s.Bytes || s.Classes != 5 || len(s.Splits) != 2 ||
		s.Splits[1].Samples != 30 || s.Splits[0].Smallest > s.Splits[0].Largest {
		t.Errorf("%+v", s)
	}
	c := s.Contents
	if len(c.Labels) != 5 || c.Labels[2] != (dataset.LabelCount{Label: 2, Name: "class-002", Samples: 12}) || c.Unlabelled != 0 || c.Images != 60 || c.Rotated != 0 ||
		len(c.Formats) != 1 || c.Formats[0] != (dataset.NameCount{Name: "jpeg", Samples: 60}) {
		t.Errorf("%+v", c)
	}
	var bytes, widest int64
	for sel, err := range d.Select(t.Context(), dataset.Selection{}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range sel.Row.Fields {
			bytes += f.Size
		}
		widest = max(widest, int64(sel.Row.Width))
	}
	if c.SampleBytes.Count != 60 || c.SampleBytes.Sum != bytes || c.Width.Max != widest {
		t.Errorf("%d bytes, want %d; width %d, want %d", c.SampleBytes.Sum, bytes, c.Width.Max, widest)
	}
	if s, err := dataset.Summarize(t.Context(), d, "val", false); err != nil || s.Samples != 30 || s.Contents != nil {
		t.Errorf("quick: %+v, %v", s, err)
	}
}

func TestHistogram(t *testing.T) {
	for _, most := range []int64{1, 3, 100, 5000, 1 << 40} {
		var d dataset.Histogram
		var values []int64
		for i := range int64(1000) {
			v := i * most / 1000
			values = append(values, v)
			d.Add(v)
		}
		d.Finish()
		s := d
		if s.Count != 1000 || s.Min != values[0] || s.Max != values[999] {
			t.Errorf("up to %d: %+v", most, s)
		}
		for _, q := range []float64{0, 0.01, 0.5, 0.9, 1} {
			want := values[max(int(q*1000)-1, 0)]
			if got := s.Quantile(q); float64(got) < float64(want)*0.9-1 || float64(got) > float64(want)*1.1+1 {
				t.Errorf("up to %d: quantile %g is %d, want %d", most, q, got, want)
			}
		}
		for _, step := range []int{1, 2, 4, 8} {
			n, last := int64(0), int64(-1)
			for _, r := range s.Rows(step) {
				if r.From >= r.To || last >= 0 && r.From != last {
					t.Errorf("up to %d, step %d: row %+v after %d", most, step, r, last)
				}
				last = r.To
				n += r.Count
				real := int64(0)
				for _, v := range values {
					if v >= r.From && v < r.To {
						real++
					}
				}
				if real != r.Count {
					t.Errorf("up to %d, step %d: row %+v should have %d", most, step, r, real)
				}
			}
			if n != 1000 {
				t.Errorf("up to %d, step %d: %d values in the rows", most, step, n)
			}
		}
	}
}
