package jpeg

import (
	"archive/zip"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"shardify/imaging/internal/raster"
)

// corpus returns the files of testdata/corpus.zip, and sums what Pillow says of
// them.
func corpus(t testing.TB) map[string][]byte {
	t.Helper()
	z, err := zip.OpenReader("testdata/corpus.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	files := map[string][]byte{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		if files[f.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	delete(files, "sums")
	return files
}

func sums(t testing.TB) map[string]string {
	t.Helper()
	z, err := zip.OpenReader("testdata/corpus.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	f, err := z.Open("sums")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, sum, _ := strings.Cut(strings.TrimSpace(line), " ")
		m[name] = sum
	}
	return m
}

func sorted(files map[string][]byte) []string { return slices.Sorted(maps.Keys(files)) }

// Every kind of file has Pillow's pixels, upright.
func TestCorpus(t *testing.T) {
	files, want := corpus(t), sums(t)
	if len(files) != len(want) || len(files) < 100 {
		t.Fatalf("%d files, %d sums", len(files), len(want))
	}
	var d Decoder
	for _, name := range sorted(files) {
		var m raster.Image
		if err := d.Decode(files[name], &m, Options{Orient: true}); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := sum(&m); got != want[name] {
			t.Errorf("%s: %s, not %s", name, got, want[name])
		}
	}
}
