package main

import (
	"context"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shardify/internal/peers"
)

// The test program is a contender, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "codec" {
		if err := runCodec(os.Args[2:], os.Stdin, os.Stdout); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// pictures makes a folder of JPEGs, coloured and grey, and one file that is none.
func pictures(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, m image.Image) {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(jpeg.Encode(f, m, nil), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"a.jpg", "b with a blank.jpg", "c.jpg"} {
		m := image.NewRGBA(image.Rect(0, 0, 90+r.IntN(100), 90+r.IntN(100)))
		for i := range m.Pix {
			m.Pix[i] = uint8(i/97 + r.IntN(60))
		}
		write(name, m)
	}
	grey := image.NewGray(image.Rect(0, 0, 75, 50))
	for i := range grey.Pix {
		grey.SetGray(i%75, i/75, color.Gray{uint8(i)})
	}
	write("grey.jpg", grey)
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("no JPEG"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// listed makes a bench with a list of pictures, and our contender.
func listed(t *testing.T) (b *bench, list string, ours *contender) {
	t.Helper()
	if _, err := processorTime(); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("SKIPPED LOUDLY: the system does not tell processor time")
	}
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	b = &bench{root: root, dir: t.TempDir(), rounds: 3}
	all, size, skipped, err := photographList(pictures(t))
	if err != nil || len(all) != 4 || skipped != 1 || size < 4000 {
		t.Fatalf("%d pictures of %d bytes, %d left out, error %v", len(all), size, skipped, err)
	}
	if list, err = b.writePictures(all); err != nil {
		t.Fatal(err)
	}
	read, err := readPictures(list)
	if err != nil || !slices.Equal(read, all) {
		t.Fatalf("read %v of the list, wrote %v (%v)", read, all, err)
	}
	return b, list, b.contestant(t, mine, os.Args[0], "codec", list)
}

func (b *bench) contestant(t *testing.T, name string, argv ...string) *contender {
	t.Helper()
	// The test's context ends before what it cleans up.
	c, err := b.contend(context.WithoutCancel(t.Context()), name, nil, argv...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Every task of ours gives the same pixels, in a number that fits the regions.
func TestCodec(t *testing.T) {
	b, list, ours := listed(t)
	timings := []*timing{
		{contender: ours, task: "region"}, {contender: ours, task: "region-rows"}, {contender: ours, task: "region-8"},
	}
	for task, timings := range map[string][]*timing{"region": timings, "whole": {{contender: ours, task: "one"}}} {
		equal, err := b.equal(task, timings, ours)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Min(equal) != 1 {
			t.Errorf("%s: equal %v", task, equal)
		}
	}
	out := filepath.Join(b.dir, "out")
	if _, err := ours.pass("region " + out); err != nil {
		t.Fatal(err)
	}
	all, err := readPictures(list)
	if err != nil {
		t.Fatal(err)
	}
	want := int64(0)
	for _, p := range all {
		want += int64(3 * p.width * p.height)
	}
	if info, err := os.Stat(out); err != nil || info.Size() != want {
		t.Errorf("%v (%v), want %d bytes", info, err, want)
	}
	if err := b.turns(timings); err != nil {
		t.Fatal(err)
	}
	table := decodingTable("Crops", timings, []float64{1, 1, 1}, 4)
	for i, name := range []string{"imaging/jpeg, no seek points", "imaging/jpeg, points of rows", "imaging/jpeg, points every 8 MCUs"} {
		if r := table.Rows[i]; r.Name != name || len(r.Seconds) != 3 || r.Least < 0 || r.Least > r.Median {
			t.Errorf("row %+v, want %s", r, name)
		}
	}
}

// The peers that are there decode the same images.
func TestDecodersAgree(t *testing.T) {
	python := peers.Python(t)
	peers.Program(t, "cc")
	peers.Header(t, "jpeglib.h")
	b, list, ours := listed(t)
	harness, _, err := b.turbo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := b.contestant(t, "", harness, list)
	equal, err := b.equal("region", []*timing{{contender: c, task: "region"}}, ours)
	if err != nil || equal[0] < 0.98 {
		t.Errorf("crops of the C harness: equal %v, %v", equal, err)
	}
	whole := []*timing{{contender: c, task: "whole"}}
	for codec, python := range map[string]string{
		"pillow": python, "simplejpeg": filepath.Join(b.venv("codecs"), "bin", "python"),
		"opencv": filepath.Join(b.venv("codecs"), "bin", "python"), "torchvision": filepath.Join(b.venv("torch"), "bin", "python"),
	} {
		if _, err := os.Stat(python); err != nil {
			t.Logf("not compared: %s: `make bench-jpeg` installs it", codec)
			continue
		}
		whole = append(whole, &timing{contender: b.contestant(t, "", python, filepath.Join(b.root, "tools", "bench", "peers", "codecs.py"), codec, list), task: "whole"})
	}
	if equal, err = b.equal("whole", whole, ours); err != nil {
		t.Fatal(err)
	}
	for i, part := range equal {
		if part != 1 {
			t.Errorf("%s: %.2f%% of the bytes of pixels are ours", whole[i].contender.name, 100*part)
		}
	}
}

func TestContenderFaults(t *testing.T) {
	shell(t)
	b := &bench{}
	for _, c := range []struct{ script, want string }{
		{"echo no such codec >&2; exit 1", "no such codec"},
		{"echo hello", `says "hello"`},
		{"", "EOF"},
	} {
		if _, err := b.contend(t.Context(), "it", nil, "sh", "-c", c.script); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q in it", c.script, err, c.want)
		}
	}
	for _, c := range []struct{ script, want string }{
		{"echo ready x; read task; echo damaged >&2; exit 1", "damaged"},
		{"echo ready x; read task; echo soon; cat", `says "soon"`},
		{"echo ready x; read task; echo -1; cat", `says "-1"`},
	} {
		it, err := b.contend(t.Context(), "", nil, "sh", "-c", c.script, "sh", "list")
		if err != nil {
			t.Fatal(err)
		}
		if it.name != "x" {
			t.Errorf("it is called %q", it.name)
		}
		if _, err := it.pass("whole"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q in it", c.script, err, c.want)
		}
		if err := it.close(); err != nil {
			t.Errorf("%q: %v", c.script, err)
		}
	}
}

func TestEqualPart(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	long := strings.Repeat("abcd", 40000)
	a := file("a", long)
	if part, err := equalPart(a, file("b", strings.Replace(long, "bcda", "bcdx", 1000))); err != nil || part != 1-1000.0/160000 {
		t.Errorf("%v, %v", part, err)
	}
	if part, err := equalPart(a, a); err != nil || part != 1 {
		t.Errorf("%v, %v", part, err)
	}
	for _, other := range []string{long[1:], ""} {
		if part, err := equalPart(a, file("c", other)); err == nil {
			t.Errorf("%d bytes: equal %v", len(other), part)
		}
	}
}

func TestSecondHalf(t *testing.T) {
	const out = `goos: linux
BenchmarkPeers/AVX2
BenchmarkPeers/AVX2         	       1	       628.4 peers-µs/crop	       153.8 peers-µs/full	         6.780 x-crop	         1.351 x-full	        92.68 µs/crop	       113.8 µs/full
BenchmarkPeers/AVX-512      	       1	       628.4 peers-µs/crop	       153.8 peers-µs/full	         9.78 x-crop	         2.14 x-full	        64.2 µs/crop	       71.9 µs/full
PASS
`
	tables, err := parseSecondHalf(out, "turbo 3")
	if err != nil {
		t.Fatal(err)
	}
	rep := report{Title: "Decoding", Unit: "images", Files: 4, Bytes: 2e6, Decoding: tables, Notes: []string{"A note."}}
	var b strings.Builder
	if err := rep.print(&b); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(b.String(), "####")
	const want = ` Coefficients to crops of 224 x 224

| | images/s | µs (median) | µs (least) | × | equal |
|---|---:|---:|---:|---:|---:|
| turbo 3 and Pillow | 1,591 | 628 | 628 | 1.00 | – |
| imaging/jpeg, AVX2 | 10,789 | 93 | 93 | 6.78 | – |
| imaging/jpeg, AVX-512 | 15,576 | 64 | 64 | 9.79 | – |

#### Coefficients to whole photographs, RGB

| | images/s | µs (median) | µs (least) | × | equal |
|---|---:|---:|---:|---:|---:|
| turbo 3 | 6,501 | 154 | 154 | 1.00 | – |
| imaging/jpeg, AVX2 | 8,787 | 114 | 114 | 1.35 | – |
| imaging/jpeg, AVX-512 | 13,908 | 72 | 72 | 2.14 | – |


- A note.
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, out := range []string{"PASS\n", "BenchmarkPeers/AVX2 1 soon µs/crop\n", "BenchmarkPeers/AVX2 1 3 µs/crop\n"} {
		if tables, err := parseSecondHalf(out, ""); err == nil {
			t.Errorf("%q gives %v", out, tables)
		}
	}
}
