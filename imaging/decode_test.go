package imaging

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"shardify/internal/peers"
)

// What Pillow decodes and Std does not.
var unsupported = map[string]bool{
	"grey-alpha.tif": true, "cmyk.tif": true, "cmyk-raw.tif": true, "big.tif": true, "jpeg.tif": true,
	"grey4.tif": true, "palette4.tif": true, "alpha-unspecified.tif": true, "planar.tif": true, "group3-2d.tif": true, "group3-fill.tif": true,
}

// largest returns the largest difference of two images, and how many bytes differ.
func largest(a, b []uint8) (most, count int) {
	for i := range a {
		d := int(a[i]) - int(b[i])
		if d != 0 {
			count++
		}
		most = max(most, d, -d)
	}
	return most, count
}

// Every byte of every photograph is Pillow's.
func TestPhotographsArePillows(t *testing.T) {
	python := peers.Python(t)
	dir := peers.Photographs(t)
	files := photographs(t)
	var names []string
	for i, name := range slices.Sorted(maps.Keys(files)) {
		if i%every == 0 {
			names = append(names, name)
		}
	}
	cmd := exec.Command(python, "-c", `
import sys, struct
from PIL import Image
for line in sys.stdin:
    i = Image.open(sys.argv[1] + "/" + line.strip()).convert("RGB")
    sys.stdout.buffer.write(struct.pack("<II", *i.size) + i.tobytes())
`, dir)
	cmd.Stdin = strings.NewReader(strings.Join(names, "\n"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var m Image
	for _, name := range names {
		if err := Std.Decode(files[name], &m, DecodeOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if w, h := int(le.Uint32(out)), int(le.Uint32(out[4:])); m.Width != w || m.Height != h {
			t.Fatalf("%s: %d x %d; want %d x %d", name, m.Width, m.Height, w, h)
		}
		out = out[8:]
		if most, count := largest(m.Pix, out); count > 0 {
			t.Errorf("%s: differs by up to %d in %d of %d bytes", name, most, count, len(m.Pix))
		}
		out = out[len(m.Pix):]
	}
}

func TestDecodeGivesPillowsPixels(t *testing.T) {
	var m Image
	for _, f := range corpus(t) {
		err := Std.Decode(f.data, &m, DecodeOptions{Orient: strings.HasSuffix(f.name, ".tif")})
		if unsupported[f.name] {
			var u *UnsupportedError
			if !errors.As(err, &u) {
				t.Errorf("%s: %v; want an UnsupportedError", f.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", f.name, err)
			continue
		}
		if m.Width != f.width || m.Height != f.height || len(m.Pix) != len(f.rgb) {
			t.Errorf("%s: %d x %d; want %d x %d", f.name, m.Width, m.Height, f.width, f.height)
			continue
		}
		if most, count := largest(m.Pix, f.rgb); count > 0 {
			t.Errorf("%s: differs by up to %d in %d of %d bytes\n%v\n%v", f.name, most, count, len(f.rgb), m.Pix[:48], f.rgb[:48])
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	var files [][]byte
	size := int64(0)
	for _, data := range photographs(b) {
		if len(files) < 16 {
			files = append(files, data)
			size += int64(len(data))
		}
	}
	var m Image
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		for _, data := range files {
			if err := Std.Decode(data, &m, DecodeOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(len(files)*b.N)/b.Elapsed().Seconds(), "img/s")
}
