package jpeg

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shardify/imaging/internal/raster"
)

// judge decodes a file under every policy. It returns what Pillow would say of it by default
// (AsPillow), and with LOAD_TRUNCATED_IMAGES (Keep), "error" for any error, and the damage
// that Keep tells.
func judge(t *testing.T, d *Decoder, data []byte) (byDefault, truncated string, damage *DamagedError) {
	t.Helper()
	var m raster.Image
	byDefault, truncated = "error", "error"
	o := Options{MaxPixels: 1 << 24, Damaged: AsPillow}
	asPillow := d.Decode(data, &m, o)
	if asPillow == nil {
		byDefault = sum(&m)
	}
	o.Damaged = Keep
	kept := d.Decode(data, &m, o)
	if kept == nil || errors.As(kept, &damage) {
		truncated = sum(&m)
	}
	o.Damaged = Refuse
	refused := d.Decode(data, &m, o)
	var other *DamagedError
	switch {
	case (refused == nil) != (kept == nil):
		t.Errorf("under Refuse %v, under Keep %v", refused, kept)
	case damage != nil && errors.As(refused, &other) && other.Err.Error() != damage.Err.Error():
		t.Errorf("under Refuse %v, under Keep %v", refused, kept)
	case kept == nil && asPillow != nil:
		t.Errorf("under AsPillow %v, under Keep nothing", asPillow)
	}
	return byDefault, truncated, damage
}

// Damaged photographs, and Go's test files as they are and damaged, show under AsPillow
// what Pillow shows, or give an error where it does; under Keep what it shows with
// LOAD_TRUNCATED_IMAGES. What the error says of the place is so: it is not before the
// damage, and where the file only ends early, rows above it are sound.
func TestPolicies(t *testing.T) {
	p := newPython(t, bothWays)
	r := rand.New(rand.NewPCG(31, 32))
	var d Decoder
	file := filepath.Join(t.TempDir(), "damaged.jpg")
	counts := map[string]int{}
	check := func(name string, good, bad []byte) {
		if bytes.Contains(bad, []byte{0xff, 0xff, 0}) {
			return // see Equality
		}
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		byDefault, truncated, damage := judge(t, &d, bad)
		want := p.file(t, file)
		if strings.HasPrefix(want, "error") {
			want = "error"
		}
		if byDefault != want {
			keep(t, bad)
			t.Errorf("%s: AsPillow %s; Pillow %s", name, byDefault, want)
		}
		counts["by default "+strings.Fields(want)[0][:1]]++
		if want = p.line(t); strings.HasPrefix(want, "error") {
			want = "error"
		}
		inside := damage != nil && strings.Contains(damage.Error(), insideSegment) // see Equality
		if truncated != want && !inside {
			keep(t, bad)
			t.Errorf("%s: Keep %s; Pillow %s", name, truncated, want)
		}
		if damage == nil {
			counts["no damage met"]++
			return
		}
		counts["damage met"]++
		same := 0
		for same < len(bad) && bad[same] == good[same] {
			same++
		}
		var f *FormatError
		if errors.As(damage.Err, &f) && int(f.Offset) < same-1 {
			t.Errorf("%s: %v, but the damage is behind byte %d", name, damage, same)
		}
		if same == len(bad) && damage.Row > 0 {
			var was, is raster.Image
			if err := d.Decode(good, &was, Options{}); err != nil {
				t.Fatal(err)
			}
			if err := d.Decode(bad, &is, Options{Damaged: Keep}); err == nil {
				t.Fatal("now there is no error")
			}
			if n := damage.Row * is.Stride; !bytes.Equal(was.Pix[:n], is.Pix[:n]) {
				t.Errorf("%s: a row before %d differs", name, damage.Row)
			}
			if h, err := ReadHeader(good); err == nil && damage.Row+8*4 < h.Height && bytes.Equal(was.Pix, is.Pix) {
				t.Errorf("%s: no row differs", name)
			}
			counts["rows compared"]++
		}
	}
	stride := 6
	if testing.Short() {
		stride = 50
	}
	for i, name := range photographs(t) {
		if i%stride != 0 {
			continue
		}
		good, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for range 6 {
			check(filepath.Base(name), good, damage(r, good))
		}
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(root)), "src/image/testdata/*.jpeg"))
	if err != nil || len(names) < 20 {
		t.Errorf("Go's test files are not there: %d, %v", len(names), err)
	}
	for _, name := range names {
		good, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		check(filepath.Base(name), good, good)
		for range 6 {
			check(filepath.Base(name), good, damage(r, good))
		}
	}
	t.Log(counts)
	for _, kind := range []string{"no damage met", "damage met", "by default e", "rows compared"} {
		if counts[kind] < 10 {
			t.Errorf("%s: %d files", kind, counts[kind])
		}
	}
}

// A progressive file that codes next to nothing in very many scans is refused once they
// have visited its blocks too often, and in any case beyond 500 scans; fewer scans are
// decoded.
func TestBombs(t *testing.T) {
	file := func(side, scans int) []byte {
		b := []byte{0xff, 0xd8}
		segment := func(marker byte, data ...byte) {
			b = append(b, 0xff, marker, byte((2+len(data))>>8), byte(2+len(data)))
			b = append(b, data...)
		}
		segment(0xdb, append([]byte{0}, bytes.Repeat([]byte{1}, 64)...)...)
		segment(0xc2, 8, byte(side>>8), byte(side), byte(side>>8), byte(side), 1, 1, 0x11, 0)
		lengths := append([]byte{1}, make([]byte, 15)...) // one code, of one bit
		segment(0xc4, append(append([]byte{0}, lengths...), 0)...)
		segment(0xc4, append(append([]byte{0x10}, lengths...), 0xe0)...) // 16384 blocks have no more
		n := (side + 7) / 8 * ((side + 7) / 8)
		segment(0xda, 1, 1, 0, 0, 0, 0)
		b = append(b, make([]byte, (n+7)/8)...)
		for range scans {
			segment(0xda, 1, 1, 0, 1, 63, 0)
			b = append(b, make([]byte, (15*((n+16383)/16384)+7)/8)...)
		}
		return append(b, 0xff, 0xd9)
	}
	var d Decoder
	var m raster.Image
	var unsupported *UnsupportedError
	for _, c := range []struct {
		side, scans int
		text        string
	}{
		{2048, 60, ""},
		{2048, 400, "code next to nothing"},
		{8, 499, ""},
		{8, 600, "more than 500 scans"},
	} {
		for _, policy := range []Policy{Refuse, Keep, AsPillow} {
			err := d.Decode(file(c.side, c.scans), &m, Options{Damaged: policy})
			if c.text == "" {
				if err != nil || m.Width != c.side {
					t.Errorf("%d scans of %d x %[2]d: %v", c.scans, c.side, err)
				}
			} else if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%d scans of %d x %[2]d: %v", c.scans, c.side, err)
			}
		}
	}
}

// Damaged files show what Pillow shows of them, and what it did when they were made.
func TestDamagedGolden(t *testing.T) {
	files := archive(t, "damaged.zip")
	var d Decoder
	n := 0
	for line := range strings.Lines(string(files["sums"])) {
		n++
		words := strings.Split(strings.TrimSpace(line), "|")
		byDefault, truncated, damage := judge(t, &d, files[words[0]])
		if damage != nil && strings.Contains(damage.Error(), insideSegment) { // see Equality
			truncated = words[2]
		}
		if byDefault != words[1] || truncated != words[2] {
			t.Errorf("%s: AsPillow %s, Keep %s (%v); want %s, %s", words[0], byDefault, truncated, damage, words[1], words[2])
		}
	}
	if n != len(files)-1 || n < 60 {
		t.Errorf("%d lines about %d files", n, len(files)-1)
	}
}
