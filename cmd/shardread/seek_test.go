package main

import (
	"bytes"
	"strings"
	"testing"

	"shardify/dataset"
	"shardify/store"
	"shardify/store/file"
)

// bench says how many images were decoded with seek points, and what was wrong with a side
// file, which is no fault of the data: the exit code is 0.
func TestBenchSeek(t *testing.T) {
	dir := small(t)
	st := file.New(dir)
	d, err := dataset.Open(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	m, err := dataset.AddSeek(t.Context(), d, dataset.SeekOptions{}, func(b dataset.BadSample) { t.Error(b) })
	if err != nil {
		t.Fatal(err)
	}
	bench := func(args ...string) (out, errs string) {
		t.Helper()
		var o, e bytes.Buffer
		root := newRootCommand()
		root.SetArgs(append([]string{"bench", dir, "--crop", "24"}, args...))
		root.SetOut(&o)
		root.SetErr(&e)
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, e.String())
		}
		return o.String(), e.String()
	}
	if out, errs := bench(); !strings.Contains(out, "\nseek points: of 30 images\n") || errs != "" {
		t.Errorf("%s%s", out, errs)
	}
	if out, _ := bench("--seek", "off"); strings.Contains(out, "seek points") {
		t.Error(out)
	}
	name := m.Splits[0].Shards[1].Seek.Name
	if err := store.WriteAll(t.Context(), st, name, []byte("spoilt")); err != nil {
		t.Fatal(err)
	}
	out, errs := bench()
	if !strings.Contains(out, "\nseek points: of 20 images\n") || !strings.Contains(errs, "the seek points of 1 shards") ||
		!strings.Contains(errs, name) || !strings.Contains(errs, "shardify index --jpeg-seek") {
		t.Errorf("%s%s", out, errs)
	}
}
