package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"shardify/imaging/augment"
	"shardify/imaging/jpeg"
)

// Decoding is a table of decoders that do the same.
type Decoding struct {
	Title string        `json:"title"`
	Rows  []DecodingRow `json:"rows"`
}

// DecodingRow is one decoder's figures for one pass over all images.
type DecodingRow struct {
	Name string `json:"name"`
	// Seconds are of each round; Median and Least are over them, in microseconds for an
	// image.
	Seconds []float64 `json:"seconds"`
	Median  float64   `json:"median_us"`
	Least   float64   `json:"least_us"`
	// Ratio is this decoder's rate over the first row's, by medians.
	Ratio float64 `json:"ratio"`
	// Equal is the part of the bytes of pixels that are those of the first of ours; -1
	// where the pixels were not looked at.
	Equal float64 `json:"equal"`
}

// pillowTurbo is where the peers' libjpeg-turbo is, which Pillow's wheel brings.
const pillowTurbo = ".venv/lib/python3*/site-packages/pillow.libs/libjpeg-*.so.62.*"

// jpeg measures decoding on one core.
func (b *bench) jpeg(ctx context.Context) (rep report, err error) {
	if b.photos == "" {
		return report{}, errors.New("it needs photographs: -photos DIR (make: PHOTOS=DIR)")
	}
	pictures, size, skipped, err := photographList(b.photos)
	if err != nil {
		return report{}, err
	}
	list, err := b.writePictures(pictures)
	if err != nil {
		return report{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return report{}, err
	}
	harness, library, err := b.turbo(ctx)
	if err != nil {
		return report{}, err
	}

	var all []*contender
	defer func() {
		for _, c := range all {
			err = errors.Join(err, c.close())
		}
	}()
	// A name of "" is the one that the contender says it has.
	start := func(name string, env []string, argv ...string) *contender {
		if err != nil {
			return nil
		}
		var c *contender
		if c, err = b.contend(ctx, name, env, append(argv, list)...); err == nil {
			all = append(all, c)
		}
		return c
	}
	python := func(codec string, env string) *contender {
		return start("", nil, filepath.Join(env, "bin", "python"), filepath.Join(b.root, "tools", "bench", "peers", "codecs.py"), codec)
	}
	ours := start(mine, []string{"GOMAXPROCS=1"}, self, "codec")
	avx2 := start(mine+", AVX-512 off", []string{"GOMAXPROCS=1", noAVX512}, self, "codec")
	c := start("", nil, harness)
	simple := python("simplejpeg", b.venv("codecs"))
	opencv := python("opencv", b.venv("codecs"))
	pillow := python("pillow", filepath.Join(b.root, ".venv"))
	vision := python("torchvision", b.venv("torch"))
	if err != nil {
		return report{}, err
	}
	_, version, _ := strings.Cut(pillow.name, ", ") // of Pillow's libjpeg-turbo
	c.name = version + ", C"

	type contest struct {
		title   string
		task    string
		timings []*timing
	}
	contests := []contest{
		{"Whole photographs to RGB", "whole", []*timing{
			{contender: simple, task: "whole"}, {contender: c, task: "whole"}, {contender: vision, task: "whole"},
			{contender: opencv, task: "whole"}, {contender: pillow, task: "whole"},
			{contender: ours, task: "whole"}, {contender: avx2, task: "whole"}, {contender: ours, task: "one"},
		}},
		{"Random crops to RGB", "region", []*timing{
			{contender: c, task: "region"},
			{contender: ours, task: "region"}, {contender: ours, task: "region-rows"}, {contender: ours, task: "region-8"},
			{contender: avx2, task: "region"}, {contender: avx2, task: "region-rows"}, {contender: avx2, task: "region-8"},
		}},
	}
	rep = report{
		Title: "Decoding JPEG", Date: time.Now().UTC(), Unit: "images", Files: int64(len(pictures)), Bytes: size,
		Notes: []string{
			fmt.Sprintf("%d photographs, %d more left out because they are no 8-bit grey or YCbCr files. Files in memory; every process on %s; one pass over all in turn with the others', %d rounds in one run; processor time, as other processes may want that core.", len(pictures), skipped, core(), b.rounds),
			"The regions are those of RandomResizedCrop, drawn once and the same for all. The C harness (tools/bench/peers/turbo.c) uses jpeg_skip_scanlines and jpeg_crop_scanline of " + version + "; ours parses the seek points in each pass.",
			"equal: bytes that are those of ours. A crop of libjpeg-turbo's differs along its edges, where it lacks the samples beside it.",
			"imaging/jpeg decodes several files at a time in one thread; \"one by one\" is a call for each, as the others are called.",
		},
	}
	for _, ct := range contests {
		equal, err := b.equal(ct.task, ct.timings, ours)
		if err != nil {
			return report{}, err
		}
		b.say("%s: ", ct.title)
		if err := b.turns(ct.timings); err != nil {
			return report{}, err
		}
		rep.Decoding = append(rep.Decoding, decodingTable(ct.title, ct.timings, equal, len(pictures)))
	}
	second, err := b.secondHalf(ctx, library, version)
	if err != nil {
		return report{}, err
	}
	rep.Decoding = append(rep.Decoding, second...)
	rep.Notes = append(rep.Notes, "Coefficients to pixels: `go test -bench Peers ./imaging/jpeg/internal/pixel`, 60 of the photographs, of each the least of 25 rounds; libjpeg-turbo's second half is its decoding to RGB less its reading of the coefficients, for a crop the crop's part of that; Pillow crops and resizes.")
	return rep, nil
}

// mine is how the names of our contenders begin.
const mine = "imaging/jpeg"

// noAVX512 leaves AVX-512 out of a process of ours (package internal/simd).
const noAVX512 = "GODEBUG=cpu.avx512f=off"

// core says how contenders are kept on one core.
func core() string {
	_, how := onOneCore()
	return how
}

// photographList lists the JPEGs below a folder, with a random crop of each; and how many
// have been left out because not all decoders give RGB of them.
func photographList(dir string) (list []picture, size int64, skipped int, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, 0, 0, err
	}
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		h, err := jpeg.ReadHeader(data)
		if err != nil || h.Bits != 8 || h.Model != jpeg.YCbCr && h.Model != jpeg.Gray {
			skipped++
			return nil //nolint:nilerr // it is counted, and said
		}
		r := augment.NewRand(1, 0, uint64(len(list)))
		at := augment.RandomResizedCrop{}.Draw(&r, h.Width, h.Height)
		list = append(list, picture{path, at.X, at.Y, at.Width, at.Height})
		size += int64(len(data))
		return nil
	})
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s has no JPEG files", dir)
	}
	return list, size, skipped, err
}

func (b *bench) writePictures(list []picture) (string, error) {
	var lines strings.Builder
	for _, p := range list {
		lines.WriteString(p.line())
	}
	name := filepath.Join(b.dir, "list")
	return name, os.WriteFile(name, []byte(lines.String()), 0o600)
}

// venv is the environment of a set of peers, which `make bench-…` installs.
func (b *bench) venv(name string) string { return filepath.Join(b.root, ".cache", "peers", name) }

// turbo builds the C harness against the libjpeg-turbo 3 of Pillow's wheel, and returns
// it and that library.
func (b *bench) turbo(ctx context.Context) (harness, library string, err error) {
	found, err := filepath.Glob(filepath.Join(b.root, pillowTurbo))
	if err != nil || len(found) != 1 {
		return "", "", fmt.Errorf("%d files are %s, want one; run `make peers`", len(found), pillowTurbo)
	}
	library, harness = found[0], filepath.Join(b.dir, "turbo")
	return harness, library, b.do(ctx, "cc", "-O3", "-o", harness, filepath.Join(b.root, "tools", "bench", "peers", "turbo.c"),
		library, "-Wl,-rpath,"+filepath.Dir(library))
}

// equal has every contender write its pixels once, and compares them with those of ours
// that decodes as all do; by the timing's place, -1 where it was not compared.
func (b *bench) equal(task string, timings []*timing, ours *contender) ([]float64, error) {
	want := filepath.Join(b.dir, "want")
	if _, err := ours.pass(task + " " + want); err != nil {
		return nil, err
	}
	got := filepath.Join(b.dir, "got")
	parts := make([]float64, len(timings))
	for i, t := range timings {
		if _, err := t.contender.pass(t.task + " " + got); err != nil {
			return nil, err
		}
		part, err := equalPart(want, got)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", t.contender.name, t.task, err)
		}
		// Ours must equal itself; the peers must at least show the same photograph.
		if mine := t.contender.ours(); mine && part != 1 || part < 0.5 {
			return nil, fmt.Errorf("%s, %s: only %.1f%% of the bytes of pixels are as they should be", t.contender.name, t.task, 100*part)
		}
		parts[i] = part
	}
	return parts, errors.Join(os.Remove(want), os.Remove(got))
}

// equalPart is the part of a file's bytes that are those of another of the same size.
func equalPart(want, got string) (part float64, err error) {
	a, err := os.ReadFile(want)
	if err != nil {
		return 0, err
	}
	b, err := os.ReadFile(got)
	if err != nil {
		return 0, err
	}
	if len(a) != len(b) || len(a) == 0 {
		return 0, fmt.Errorf("%d bytes of pixels, want %d", len(b), len(a))
	}
	same := 0
	for i := range a {
		if a[i] == b[i] {
			same++
		}
	}
	return float64(same) / float64(len(a)), nil
}

func decodingTable(title string, timings []*timing, equal []float64, images int) Decoding {
	d := Decoding{Title: title}
	for i, t := range timings {
		name := t.contender.name
		switch t.task {
		case "one":
			name += ", one by one"
		case "region":
			if t.contender.ours() {
				name += ", no seek points"
			}
		case "region-rows":
			name += ", points of rows"
		case "region-8":
			name += ", points every 8 MCUs"
		}
		d.Rows = append(d.Rows, DecodingRow{
			Name: name, Seconds: t.seconds,
			Median: t.median() * 1e6 / float64(images), Least: t.least() * 1e6 / float64(images),
			Ratio: timings[0].median() / t.median(), Equal: equal[i],
		})
	}
	return d
}

// secondHalf runs the benchmark of coefficients to pixels against libjpeg-turbo 3, which
// is found before the system's by the variables of the C compiler and the loader.
func (b *bench) secondHalf(ctx context.Context, library, version string) ([]Decoding, error) {
	dir := filepath.Join(b.dir, "lib")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.Symlink(library, filepath.Join(dir, "libjpeg.so")); err != nil {
		return nil, err
	}
	b.say("coefficients to pixels\n")
	pin, _ := onOneCore()
	argv := slices.Concat(pin, []string{"go", "test", "-run", "^$", "-bench", "Peers", "-benchtime", "1x", "./imaging/jpeg/internal/pixel"})
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = b.root
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "SHARDIFY_PHOTOS="+b.photos, "LIBRARY_PATH="+dir, "LD_LIBRARY_PATH="+filepath.Dir(library))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, tail(bytes.NewBuffer(out)))
	}
	return parseSecondHalf(string(out), version)
}

// parseSecondHalf reads the metrics of pixel.BenchmarkPeers.
func parseSecondHalf(out, version string) ([]Decoding, error) {
	tables := []Decoding{{Title: "Coefficients to crops of 224 x 224"}, {Title: "Coefficients to whole photographs, RGB"}}
	peers := []string{version + " and Pillow", version}
	for line := range strings.Lines(out) {
		rest, ok := strings.CutPrefix(line, "BenchmarkPeers/")
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			continue // the line of a benchmark that begins
		}
		level, values := fields[0], map[string]float64{}
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("the benchmark of coefficients to pixels says %q: %w", line, err)
			}
			values[fields[i+1]] = v
		}
		for i, what := range []string{"crop", "full"} {
			ours, theirs := values["µs/"+what], values["peers-µs/"+what]
			if !(ours > 0) || !(theirs > 0) {
				return nil, fmt.Errorf("the benchmark of coefficients to pixels says no µs/%s: %s", what, line)
			}
			t := &tables[i]
			if len(t.Rows) == 0 {
				t.Rows = append(t.Rows, DecodingRow{Name: peers[i], Median: theirs, Least: theirs, Ratio: 1, Equal: -1})
			}
			t.Rows = append(t.Rows, DecodingRow{Name: mine + ", " + level, Median: ours, Least: ours, Ratio: theirs / ours, Equal: -1})
		}
	}
	for _, t := range tables {
		if len(t.Rows) < 2 {
			return nil, fmt.Errorf("the benchmark of coefficients to pixels says nothing: %s", out)
		}
	}
	return tables, nil
}

// printDecoding writes the tables.
func printDecoding(w io.Writer, tables []Decoding) {
	for _, d := range tables {
		fmt.Fprintf(w, "#### %s\n\n| | images/s | µs (median) | µs (least) | × | equal |\n|---|---:|---:|---:|---:|---:|\n", d.Title)
		for _, r := range d.Rows {
			equal := "–"
			if r.Equal >= 0 {
				equal = fmt.Sprintf("%.2f%%", 100*r.Equal)
			}
			fmt.Fprintf(w, "| %s | %s | %.0f | %.0f | %.2f | %s |\n", r.Name, thousands(int64(1e6/r.Median)), r.Median, r.Least, r.Ratio, equal)
		}
		fmt.Fprintln(w)
	}
}
