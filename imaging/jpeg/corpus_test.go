package jpeg

import (
	"archive/zip"
	"io"
	"maps"
	"math/bits"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shardify/imaging/internal/raster"
)

// archive returns the files of a zip in testdata.
func archive(t testing.TB, name string) map[string][]byte {
	t.Helper()
	z, err := zip.OpenReader(filepath.Join("testdata", name))
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
	return files
}

// corpus returns the files of testdata/corpus.zip.
func corpus(t testing.TB) map[string][]byte {
	t.Helper()
	files := archive(t, "corpus.zip")
	delete(files, "sums")
	return files
}

// corpora returns these, and those of more.zip: further samplings, and 12 bits.
func corpora(t testing.TB) map[string][]byte {
	t.Helper()
	files := archive(t, "more.zip")
	delete(files, "sums")
	maps.Copy(files, corpus(t))
	return files
}

// sums is what Pillow says of the corpora; of files of 12 bits, what libjpeg-turbo 3 does,
// at the four scales.
func sums(t testing.TB) map[string]string {
	t.Helper()
	m := map[string]string{}
	for _, name := range []string{"corpus.zip", "more.zip"} {
		for line := range strings.Lines(string(archive(t, name)["sums"])) {
			name, sum, _ := strings.Cut(strings.TrimSpace(line), " ")
			m[name] = sum
		}
	}
	return m
}

// twelve says that a file of the corpus has 12 bits, of which libjpeg-turbo 2 and Pillow
// make nothing.
func twelve(name string) bool { return strings.HasPrefix(name, "12bits") }

// atScale is what libjpeg-turbo 3 says of a file of 12 bits at 1/scale.
func atScale(sum string, scale int) string {
	words := strings.Fields(sum)
	return strings.Join(words[3*bits.TrailingZeros(uint(scale)):][:3], " ")
}

func sorted(files map[string][]byte) []string { return slices.Sorted(maps.Keys(files)) }

// Every kind of file has Pillow's pixels, upright.
func TestCorpus(t *testing.T) {
	files, want := corpora(t), sums(t)
	if len(files) != len(want) || len(files) < 195 {
		t.Fatalf("%d files, %d sums", len(files), len(want))
	}
	var d Decoder
	for _, name := range sorted(files) {
		var m raster.Image
		if err := d.Decode(files[name], &m, Options{Orient: true}); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := sum(&m); got != atScale(want[name], 1) {
			t.Errorf("%s: %s, not %s", name, got, want[name])
		}
	}
}
