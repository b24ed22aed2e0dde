package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"shardify/internal/peers"
	"shardify/tools/gendata/jpegenc"
	"shardify/tools/gendata/jpegstat"
	"shardify/tools/gendata/photo"
)

// population makes the first n photographs of a seed, without files.
func population(t *testing.T, seed uint64, n int) *jpegstat.Summary {
	t.Helper()
	files := make([]jpegstat.File, n)
	var group errgroup.Group
	var next atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() error {
			painter, enc := photo.NewPainter(photo.NewLibrary()), new(jpegenc.Encoder)
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				spec := photo.Draw(seed, uint64(i))
				data, err := enc.Append(nil, painter.Paint(&spec), &spec.Options)
				if err != nil {
					return err
				}
				if files[i], err = jpegstat.Parse(data); err != nil {
					return err
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return jpegstat.Summarise(files)
}

// 250 generated photographs are like the 250 real ones in what a loader's speed
// depends on. The tolerances are about twice what two samples of 250 of the same
// population differ by.
func TestLikePhotographs(t *testing.T) {
	realFiles, err := parseTree(context.Background(), peers.Photographs(t), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want, got := jpegstat.Summarise(realFiles), population(t, 0, 250)

	// At most so far, as a share of the real value.
	for _, m := range []struct {
		name                string
		mean, p10, p50, p90 float64
	}{
		{name: "bytes", mean: 0.10, p10: 0.35, p50: 0.15, p90: 0.15},
		{name: "width", mean: 0.08, p10: 0.10, p50: 0.02, p90: 0.15},
		{name: "height", mean: 0.08, p10: 0.10, p50: 0.03, p90: 0.15},
		{name: "megapixels", mean: 0.15, p10: 0.30, p50: 0.05, p90: 0.35},
		{name: "bits per pixel", mean: 0.10, p10: 0.30, p50: 0.15, p90: 0.15},
		{name: "quality", mean: 0.03, p10: 0.06, p50: 0.01, p90: 0.01},
		{name: "luma: nonzero AC per block", mean: 0.10, p10: 0.30, p50: 0.15, p90: 0.15},
		{name: "luma: last coefficient", mean: 0.10, p10: 0.25, p50: 0.12, p90: 0.08},
		{name: "chroma: nonzero AC per block", mean: 0.20, p10: 0.60, p50: 0.25, p90: 0.25},
		{name: "chroma: last coefficient", mean: 0.20, p10: 0.60, p50: 0.30, p90: 0.30},
	} {
		a, b := want.Measure(m.name), got.Measure(m.name)
		compare := func(what string, want, got, tolerance float64) {
			if math.Abs(got/want-1) > tolerance {
				t.Errorf("%s: %s is %.4g, of photographs %.4g: more than %.0f %% off", m.name, what, got, want, 100*tolerance)
			}
		}
		compare("mean", a.Mean(), b.Mean(), m.mean)
		compare("10th percentile", a.Percentile(10), b.Percentile(10), m.p10)
		compare("median", a.Percentile(50), b.Percentile(50), m.p50)
		compare("90th percentile", a.Percentile(90), b.Percentile(90), m.p90)
	}

	// Shares, and means of shares, differ by at most so much.
	shares := map[string]float64{
		"4:4:4": 0.08, "4:2:0": 0.08, "4:2:2": 0.02, "grey": 0.03, "progressive": 0.001,
		"own Huffman tables": 0.04, "libjpeg quantisation": 0.001,
	}
	for _, c := range []string{"luma", "chroma"} {
		for _, of := range []string{"AC of ±1", "AC of 2 bits", "AC of 3 or 4 bits", "AC of 5 bits or more"} {
			shares[c+": "+of] = 0.05
		}
		for _, of := range []string{"0", "1", "2 or 3", "4 to 15", "16 or more"} {
			shares[c+": runs of "+of+" zeros"] = 0.05
		}
	}
	for name, tolerance := range shares {
		if a, b := want.Share(name), got.Share(name); math.Abs(a-b) > tolerance {
			t.Errorf("%s: %.1f %%, of photographs %.1f %%: more than %.1f %% off", name, 100*b, 100*a, 100*tolerance)
		}
	}
	for name, tolerance := range map[string]float64{
		"luma: DC-only blocks": 0.03, "luma: blocks to the end": 0.05,
		"chroma: DC-only blocks": 0.06, "chroma: blocks to the end": 0.03,
	} {
		a, b := want.Measure(name), got.Measure(name)
		if math.Abs(a.Mean()-b.Mean()) > tolerance {
			t.Errorf("%s: mean %.3f, of photographs %.3f: more than %.2f off", name, b.Mean(), a.Mean(), tolerance)
		}
	}
}

func command(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var o, e bytes.Buffer
	err = run(context.Background(), args, &o, &e)
	return o.String(), e.String(), err
}

func TestCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	args := []string{"--images", "12", "--classes=3", dir, "--splits", "train:0.5,val:0.5", "--with", "truncated,webp", "--odd", "2", "--seed", "4"}
	out, progress, err := command(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out, "bad: "); n != 2 || !strings.Contains(out, "16 files of ") || !strings.Contains(out, "4 of them odd") {
		t.Errorf("stdout:\n%s", out)
	}
	if !strings.HasPrefix(progress, "16 files, ") {
		t.Errorf("progress: %q", progress)
	}
	for _, pattern := range []string{"train/*/*", "val/*/*"} {
		if names, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern))); err != nil || len(names) != 8 {
			t.Errorf("%s: %d files, %v", pattern, len(names), err)
		}
	}

	out, progress, err = command(t, append(args, "--json")...)
	if err != nil || progress != "" {
		t.Fatalf("%v, progress %q", err, progress)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var bad int
	for _, line := range lines[:len(lines)-1] {
		var o struct{ Path, Kind, Bad string }
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(o.Path))); err != nil {
			t.Error(err)
		}
		if o.Bad != "" {
			bad++
		}
	}
	var summary struct {
		Files, Bytes, Odd int64
		Already           bool
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &summary); err != nil {
		t.Fatal(err)
	}
	if len(lines) != 5 || bad != 2 || summary.Files != 16 || summary.Odd != 4 || !summary.Already || summary.Bytes == 0 {
		t.Errorf("%d bad, %+v, stdout:\n%s", bad, summary, out)
	}

	out, named, err := command(t, "stats", dir)
	if err != nil || !strings.Contains(out, "tree: 12 files") || !strings.Contains(out, "bits per pixel") {
		t.Errorf("stats: %v\n%s", err, out)
	}
	if n := strings.Count(named, "_truncated_"); n != 2 {
		t.Errorf("stats names %d damaged files:\n%s", n, named)
	}
}

func TestCommandRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	for _, args := range [][]string{
		{}, {dir, dir}, {dir, "--images", "x"}, {dir, "--with", "nothing"}, {dir, "--splits", "a"}, {dir, "--no-such-flag"},
		{"stats", filepath.Join(dir, "missing")}, {"stats", t.TempDir()}, {dir, "--copies", "3"},
	} {
		if out, _, err := command(t, args...); err == nil {
			t.Errorf("%q is accepted: %s", args, out)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a refused command made the folder")
	}
	if _, help, err := command(t, "--help"); err != nil || !strings.Contains(help, "--images") {
		t.Errorf("help: %v\n%s", err, help)
	}
}

// One core's photographs a second, from the specification to the file's bytes.
func BenchmarkPhotograph(b *testing.B) {
	painter, enc := photo.NewPainter(photo.NewLibrary()), new(jpegenc.Encoder)
	var data []byte
	var err error
	n, total := uint64(0), 0
	for b.Loop() {
		spec := photo.Draw(1, n)
		n++
		if data, err = enc.Append(data[:0], painter.Paint(&spec), &spec.Options); err != nil {
			b.Fatal(err)
		}
		total += len(data)
	}
	b.SetBytes(int64(total / b.N))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "images/s")
}
