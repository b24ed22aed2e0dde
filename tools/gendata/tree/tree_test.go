package tree

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"image"
	_ "image/gif"
	_ "image/jpeg"
	_ "image/png"
	"io/fs"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "golang.org/x/image/bmp"
	_ "golang.org/x/image/tiff"
	_ "golang.org/x/image/webp"

	"shardify/internal/peers"
)

// content maps each path below dir to a hash of its bytes.
func content(t testing.TB, dir string) map[string][32]byte {
	t.Helper()
	files := map[string][32]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		files[filepath.ToSlash(rel)] = sha256.Sum256(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func generate(t testing.TB, dir string, c Config, workers int) *Report {
	t.Helper()
	r, err := Generate(context.Background(), dir, c, workers, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func bytesOf(t testing.TB, dir string) (n int64) {
	t.Helper()
	_, n, err := measure(dir)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWorkersDoNotMatter(t *testing.T) {
	photos := t.TempDir()
	for i, name := range []string{"a.JPEG", "b.jpg", "sub/c.png", "noext", ".hidden/x.jpg", ".y.jpg"} {
		path := filepath.Join(photos, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, bytes.Repeat([]byte{byte(i)}, 100*i), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	splits := []Split{{"train", 0.7}, {"val", 0.2}, {"test", 0.1}}
	for name, c := range map[string]Config{
		"photographs": {Images: 30, Classes: 4, Seed: 3, Splits: splits},
		"odd":         {Images: 3, Classes: 2, Odd: 2},
		"tiny":        {Images: 600, Classes: 7, Tiny: true, Splits: splits},
		"shapes":      {Images: 60, Classes: 7, Shapes: true, Splits: splits},
		"from":        {From: photos, Copies: 9, Classes: 5, Seed: 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, many := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "many")
			r1, r2 := generate(t, one, c, 1), generate(t, many, c, 5)
			a, b := content(t, one), content(t, many)
			if !maps.Equal(a, b) {
				t.Error("one worker and five make different trees")
			}
			if r1.Files != r2.Files || r1.Bytes != r2.Bytes || int(r1.Files) != len(a) || r1.Bytes != bytesOf(t, one) {
				t.Errorf("reports %+v and %+v, there are %d files", r1, r2, len(a))
			}
			c.Seed++
			other := filepath.Join(t.TempDir(), "other")
			generate(t, other, c, 0)
			if maps.Equal(a, content(t, other)) {
				t.Error("another seed makes the same tree")
			}
		})
	}
}

func TestLayout(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   map[string]int // files in each split
	}{
		{Config{Images: 100, Classes: 7}, map[string]int{"": 100}},
		{Config{Images: 100, Classes: 7, Splits: []Split{{"train", 9}, {"val", 1}}}, map[string]int{"train": 90, "val": 10}},
		{Config{Images: 3, Classes: 2, Splits: []Split{{"a", 0.5}, {"b", 0}, {"c", 0.5}}}, map[string]int{"a": 2, "c": 1}},
		{Config{Images: 1, Classes: 5, Splits: []Split{{"a", 1}, {"b", 1}, {"c", 1}}}, nil},
	} {
		c.config.Tiny = true
		dir := filepath.Join(t.TempDir(), "t")
		generate(t, dir, c.config, 2)
		splits, classes := map[string]int{}, map[string]int{}
		for path := range content(t, dir) {
			class := filepath.ToSlash(filepath.Dir(path))
			split, _, ok := strings.Cut(class, "/")
			if !ok {
				split = ""
			}
			splits[split]++
			classes[class]++
		}
		if c.want != nil && !maps.Equal(splits, c.want) {
			t.Errorf("%+v: files in splits %v, want %v", c.config, splits, c.want)
		}
		for class, n := range classes {
			split, _, _ := strings.Cut(class, "/")
			if len(c.config.Splits) == 0 {
				split = ""
			}
			if even := splits[split] / c.config.Classes; n != even && n != even+1 {
				t.Errorf("%+v: class %s has %d of the %d files", c.config, class, n, splits[split])
			}
		}
	}
}

// A second, identical run does nothing; any other content stays untouched.
func TestExistingFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	c := Config{Images: 20, Classes: 3, Tiny: true, Odd: 1, With: []Kind{Empty, GIF}}
	first := generate(t, dir, c, 2)
	before := content(t, dir)
	again := generate(t, dir, c, 3)
	if !again.Already || again.Files != first.Files || again.Bytes != first.Bytes || !slices.Equal(again.Odd, first.Odd) {
		t.Errorf("the second run reports %+v, the first %+v", again, first)
	}
	refused := func(what string, c Config) {
		t.Helper()
		if _, err := Generate(context.Background(), dir, c, 1, nil); !errors.Is(err, ErrNotEmpty) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, change := range map[string]func(*Config){
		"another seed":    func(c *Config) { c.Seed = 1 },
		"more images":     func(c *Config) { c.Images++ },
		"no odd files":    func(c *Config) { c.Odd, c.With = 0, nil },
		"not tiny":        func(c *Config) { c.Tiny = false },
		"other splits":    func(c *Config) { c.Splits = []Split{{"x", 1}} },
		"another default": func(c *Config) { c.Classes = 0 },
	} {
		other := c
		change(&other)
		refused(what, other)
	}
	if !maps.Equal(before, content(t, dir)) {
		t.Error("a refused run changed the tree")
	}
	if err := os.WriteFile(filepath.Join(dir, "mine.txt"), []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	refused("a foreign file", c)
	if err := os.Remove(filepath.Join(dir, "mine.txt")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+".gendata.json", []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	refused("a damaged stamp", c)
	if err := os.Remove(dir + ".gendata.json"); err != nil {
		t.Fatal(err)
	}
	refused("no stamp", c)
	if !maps.Equal(before, content(t, dir)) {
		t.Error("a refused run changed the tree")
	}
}

// A run that was interrupted is made good by the same command.
func TestInterrupted(t *testing.T) {
	source := filepath.Join(t.TempDir(), "photo.jpg")
	if err := os.WriteFile(source, []byte("the only copy"), 0o444); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Config{
		"tiny": {Images: 1000, Classes: 50, Tiny: true},
		"link": {From: filepath.Dir(source), Copies: 150, Link: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "tree")
			ctx, cancel := context.WithCancel(context.Background())
			_, err := Generate(ctx, dir, c, 2, func(int64, int64) { cancel() })
			cancel()
			if name == "tiny" && !errors.Is(err, context.Canceled) {
				t.Fatalf("the cancelled run: %v", err)
			}
			whole := filepath.Join(t.TempDir(), "whole")
			generate(t, whole, c, 2)
			// As if it had been killed in the middle of a file, and linked no more.
			if name == "link" {
				mark, err := os.ReadFile(dir + ".gendata.json")
				if err != nil {
					t.Fatal(err)
				}
				mark = bytes.Replace(mark, []byte(`"complete": true`), []byte(`"complete": false`), 1)
				if err := os.WriteFile(dir+".gendata.json", mark, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			for path := range content(t, dir) {
				if name == "tiny" {
					if err := os.Truncate(filepath.Join(dir, path), 3); err != nil {
						t.Fatal(err)
					}
				}
				break
			}
			r := generate(t, dir, c, 2)
			if r.Already || !maps.Equal(content(t, dir), content(t, whole)) {
				t.Errorf("report %+v; the tree is not what an uninterrupted run makes", r)
			}
		})
	}
	if data, err := os.ReadFile(source); err != nil || string(data) != "the only copy" {
		t.Errorf("the source is now %q, %v", data, err)
	}
}

func TestCopies(t *testing.T) {
	from := t.TempDir()
	want := map[[32]byte]int{}
	for i := range 5 {
		data := bytes.Repeat([]byte{byte(i)}, 1000+i)
		if err := os.WriteFile(filepath.Join(from, string(rune('a'+i))+".JPEG"), data, 0o666); err != nil {
			t.Fatal(err)
		}
		want[sha256.Sum256(data)] = 8
	}
	if err := os.Symlink(filepath.Join(from, "a.JPEG"), filepath.Join(from, "z.JPEG")); err == nil {
		data, err := os.ReadFile(filepath.Join(from, "a.JPEG"))
		if err != nil {
			t.Fatal(err)
		}
		want[sha256.Sum256(data)] += 8
	}
	for _, link := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "tree")
		c := Config{From: from, Copies: 8, Classes: 20, Link: link}
		r := generate(t, dir, c, 2)
		got := map[[32]byte]int{}
		classes := map[string]int{}
		for path, hash := range content(t, dir) {
			got[hash]++
			classes[filepath.Dir(path)]++
			info, err := os.Lstat(filepath.Join(dir, path))
			if err != nil || !info.Mode().IsRegular() {
				t.Errorf("%s is no regular file: %v", path, err)
			}
			a, err := os.Stat(filepath.Join(from, "b.JPEG"))
			if err != nil {
				t.Fatal(err)
			}
			if !link && os.SameFile(a, info) {
				t.Errorf("%s is a link", path)
			}
		}
		if !maps.Equal(got, want) || len(classes) != 20 {
			t.Errorf("link %v: copies %v, %d classes", link, slices.Collect(maps.Values(got)), len(classes))
		}
		if (r.Linked == r.Files) != link || !link && r.Linked != 0 {
			t.Errorf("link %v: %d of %d are links", link, r.Linked, r.Files)
		}
		if !generate(t, dir, c, 2).Already {
			t.Error("the second run did something")
		}
	}
	for _, dir := range []string{from, filepath.Join(from, "x"), filepath.Dir(from)} {
		if _, err := Generate(context.Background(), dir, Config{From: from}, 1, nil); err == nil {
			t.Errorf("copied %q into %q", from, dir)
		}
	}
	if _, err := Generate(context.Background(), filepath.Join(t.TempDir(), "x"), Config{From: t.TempDir()}, 1, nil); err == nil {
		t.Error("copied from an empty folder")
	}
}

// Where links are impossible, there are copies.
func TestLinksToAnotherFileSystem(t *testing.T) {
	from, err := os.MkdirTemp("/dev/shm", "gendata")
	if err != nil {
		t.Skipf("SKIPPED LOUDLY: no second file system: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(from) })
	source := filepath.Join(from, "a.jpg")
	if err := os.WriteFile(source, []byte("a photograph"), 0o666); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "tree")
	if err := os.Link(source, dir); err == nil {
		t.Skip("SKIPPED LOUDLY: /dev/shm is the file system of temporary files")
	}
	r := generate(t, dir, Config{From: from, Copies: 7, Link: true}, 2)
	if r.Files != 7 || r.Linked != 0 || bytesOf(t, dir) != 7*int64(len("a photograph")) {
		t.Errorf("%+v", r)
	}
}

// Each tiny file is a whole image, and no two are alike.
func TestTiny(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	generate(t, dir, Config{Images: 800, Classes: 3, Tiny: true}, 2)
	files := content(t, dir)
	seen := map[[32]byte]bool{}
	formats := map[string]int{}
	for path, hash := range files {
		if seen[hash] {
			t.Errorf("%s has a double", path)
		}
		seen[hash] = true
		f, err := os.Open(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		img, format, err := image.Decode(f)
		f.Close()
		if err != nil || img.Bounds() != image.Rect(0, 0, 8, 8) {
			t.Fatalf("%s: %v", path, err)
		}
		formats[format]++
	}
	if formats["jpeg"] != 700 || formats["png"] != 100 {
		t.Errorf("formats %v", formats)
	}
}

// Every shape can be told from all others: at its best place, scale and turn it covers
// less than nine tenths of what another one covers, and is not its mirror image.
func TestShapesDiffer(t *testing.T) {
	overlap := func(a, b func(x, y float64) bool, scale, turn, mirror float64) float64 {
		sin, cos := math.Sincos(turn * math.Pi / 180)
		var both, either int
		for j := range 60 {
			for i := range 60 {
				x, y := float64(i)/30-1, float64(j)/30-1
				p, q := a(x, y), b(mirror*(x*cos+y*sin)/scale, (y*cos-x*sin)/scale)
				if p && q {
					both++
				}
				if p || q {
					either++
				}
			}
		}
		return float64(both) / float64(either)
	}
	for i, a := range outlines {
		for j, b := range outlines {
			best := 0.0
			for _, scale := range []float64{0.8, 0.9, 1, 1.1, 1.25} {
				for _, turn := range []float64{-18, -9, 0, 9, 18} {
					best = max(best, overlap(a, b, scale, turn, 1), overlap(a, b, scale, turn, -1))
				}
			}
			if same := i == j; same != (best > 0.9) {
				t.Errorf("shapes %d and %d: %.2f of them is common", i, j, best)
			}
		}
	}
}

// Each picture of a shape is a whole JPEG of a size between the stated ones, and no two
// are alike.
func TestShapes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	r := generate(t, dir, Config{Images: 200, Shapes: true}, 2)
	files := content(t, dir)
	if r.Classes != len(outlines) || len(files) != 200 {
		t.Fatalf("%d files in %d classes", len(files), r.Classes)
	}
	seen := map[[32]byte]bool{}
	for path, hash := range files {
		if seen[hash] {
			t.Errorf("%s has a double", path)
		}
		seen[hash] = true
		f, err := os.Open(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		img, format, err := image.Decode(f)
		f.Close()
		if err != nil || format != "jpeg" {
			t.Fatalf("%s: %s, %v", path, format, err)
		}
		if w, h := img.Bounds().Dx(), img.Bounds().Dy(); min(w, h) < shapesSide || max(w, h) > shapesSide+shapesSpan {
			t.Errorf("%s has %d × %d pixels", path, w, h)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []Config{
		{Images: -1}, {Classes: -1}, {Odd: -1}, {From: "x", Images: 3}, {From: "x", Tiny: true}, {Copies: 2}, {Link: true},
		{Shapes: true, Tiny: true}, {From: "x", Shapes: true}, {Shapes: true, Classes: 11},
		{With: []Kind{"jpeg2000"}}, {With: []Kind{PNG, PNG}},
		{Splits: []Split{{"", 1}}}, {Splits: []Split{{"..", 1}}}, {Splits: []Split{{"a/b", 1}}},
		{Splits: []Split{{"a", 1}, {"a", 1}}}, {Splits: []Split{{"a", -1}, {"b", 2}}}, {Splits: []Split{{"a", 0}}},
	} {
		dir := filepath.Join(t.TempDir(), "x")
		if err := c.Validate(); err == nil {
			t.Errorf("%+v is accepted", c)
		} else if _, err := Generate(context.Background(), dir, c, 1, nil); err == nil {
			t.Errorf("%+v is generated", c)
		} else if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%+v left something", c)
		}
	}
	both := Config{Images: -1, Classes: -1}
	if err := both.Validate(); !strings.Contains(err.Error(), "images") || !strings.Contains(err.Error(), "classes") {
		t.Errorf("not every fault is told: %v", err)
	}
	for _, s := range []string{"", "train", "train:x", "train:1,"} {
		if _, err := ParseSplits(s); err == nil {
			t.Errorf("splits %q are accepted", s)
		}
	}
	want := Config{Images: 5, Splits: []Split{{"a", 0.25}}, With: []Kind{PNG}, Link: true}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Config
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if back, err := json.Marshal(got); err != nil || !bytes.Equal(back, data) {
		t.Errorf("%s became %s, %v", data, back, err)
	}
}

// Go's decoders, and Pillow, read every odd file that is not bad and no bad one.
func TestOddFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	c := Config{Images: 1, Classes: 5, Odd: 8, Splits: []Split{{"train", 1}, {"val", 1}}}
	r := generate(t, dir, c, 0)
	if len(r.Odd) != 8*len(Kinds()) {
		t.Fatalf("%d odd files", len(r.Odd))
	}
	formats := map[Kind]string{PNG: "png", WebP: "webp", GIF: "gif", BMP: "bmp", TIFF: "tiff"}
	for _, o := range r.Odd {
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(o.Path)))
		if err != nil {
			t.Fatal(err)
		}
		_, format, err := image.Decode(bytes.NewReader(data))
		if (err == nil) != (o.Bad == "") {
			t.Errorf("%s: bad is %q, decoding says %v", o.Path, o.Bad, err)
		}
		want := formats[o.Kind]
		if want == "" {
			want = "jpeg"
		}
		if err == nil && format != want {
			t.Errorf("%s is %s, want %s", o.Path, format, want)
		}
	}

	python := peers.Python(t)
	list, err := json.Marshal(r.Odd)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-c", `
import json, os, sys
from PIL import Image
os.chdir(sys.argv[1])
modes, orientations = {}, []
for o in json.load(sys.stdin):
    try:
        im = Image.open(o["path"])
        im.load()
    except Exception as e:
        assert o.get("bad"), (o, e)
        continue
    assert not o.get("bad"), o
    kind = o["kind"]
    modes.setdefault(kind, set()).add(im.mode)
    if kind == "progressive":
        assert im.info["progressive"], o
    if kind == "exif":
        orientations.append(im.getexif()[0x0112])
assert sorted(orientations) == list(range(1, 9)), orientations
assert modes["cmyk"] == {"CMYK"} and modes["grey"] == {"L"}, modes
assert modes["png"] >= {"RGB", "P", "L", "RGBA"}, modes
print(len(modes))
`, dir)
	cmd.Stdin = bytes.NewReader(list)
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "9" {
		t.Fatalf("%v\n%s", err, out)
	}
}

// An oriented file looks like the upright picture once Pillow has turned it.
func TestOrientation(t *testing.T) {
	python := peers.Python(t)
	dir := t.TempDir()
	o := newOddities(5)
	for i := range 8 {
		data, err := o.file(Exif, i, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, string(rune('1'+i))+".jpg"), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(python, "-c", `
import os, sys
import numpy as np
from PIL import Image, ImageOps
os.chdir(sys.argv[1])
first = None
for i in range(1, 9):
    im = Image.open("%d.jpg" % i)
    assert im.getexif()[0x0112] == i
    got = np.asarray(ImageOps.exif_transpose(im)).astype(int)
    if first is None:
        first = got
    assert got.shape == first.shape, (i, got.shape)
    assert abs(got - first).mean() < 4, (i, abs(got - first).mean())
`, dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
