package resize

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"shardify/imaging/internal/raster"
	"shardify/internal/peers"
)

// resized is one call of Pillow's resize.
type resized struct {
	sw, sh, dw, dh int
	filter         Filter
	box            Rect
	crop           bool // crop(box).resize instead of resize(box=)
}

// noise is the source of every comparison; smaller sources are its corner.
func noise(w, h int) *raster.Image {
	var m raster.Image
	m.Reset(w, h)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(m.Pix)
	// Flat black and white parts, where sums of negative weights go out of range.
	for y := range h / 2 {
		for x := range 3 * (w / 3) {
			v := uint8(0)
			if x/30%2 == 0 {
				v = 255
			}
			m.Pix[y*m.Stride+x] = v
		}
	}
	return &m
}

// pillow runs the cases and returns their pixels one after the other.
func pillow(t *testing.T, m *raster.Image, cases []resized) []byte {
	t.Helper()
	var in bytes.Buffer
	for _, c := range cases {
		fmt.Fprintln(&in, c.sw, c.sh, c.dw, c.dh, strings.ToUpper(c.filter.String()), c.box.X0, c.box.Y0, c.box.X1, c.box.Y1, c.crop)
	}
	raw := t.TempDir() + "/pixels"
	if err := os.WriteFile(raw, m.Pix, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(peers.Python(t), "-c", `
import sys
from PIL import Image
m = Image.frombytes("RGB", (int(sys.argv[2]), int(sys.argv[3])), open(sys.argv[1], "rb").read())
last = None
for line in sys.stdin:
    sw, sh, dw, dh, f, x0, y0, x1, y1, crop = line.split()
    f = Image.Resampling[f]
    if last != (sw, sh):
        src, last = m.crop((0, 0, int(sw), int(sh))), (sw, sh)
    box = tuple(map(float, (x0, y0, x1, y1)))
    if crop == "true":
        out = src.crop(tuple(map(int, box))).resize((int(dw), int(dh)), f)
    else:
        out = src.resize((int(dw), int(dh)), f, box=box)
    sys.stdout.buffer.write(out.tobytes())
`, raw, fmt.Sprint(m.Width), fmt.Sprint(m.Height))
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func compare(t *testing.T, cases []resized) {
	t.Helper()
	m := noise(640, 640)
	want := pillow(t, m, cases)
	var z Resizer
	var dst raster.Image
	failed := 0
	for _, c := range cases {
		src, err := Crop(m, 0, 0, c.sw, c.sh)
		if err != nil {
			t.Fatal(err)
		}
		box := c.box
		if c.crop {
			if src, err = Crop(&src, int(box.X0), int(box.Y0), int(box.X1-box.X0), int(box.Y1-box.Y0)); err != nil {
				t.Fatal(err)
			}
			box = Full(&src)
		}
		dst.Reset(c.dw, c.dh)
		if err := z.Resize(&dst, &src, box, c.filter); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if n := len(dst.Pix); !bytes.Equal(dst.Pix, want[:n]) && failed < 10 {
			failed++
			for i := range n {
				if dst.Pix[i] != want[i] {
					t.Errorf("%+v: byte %d is %d; want %d", c, i, dst.Pix[i], want[i])
					break
				}
			}
		}
		want = want[len(dst.Pix):]
	}
	if len(want) != 0 {
		t.Errorf("Pillow gave %d bytes more", len(want))
	}
}

func TestEqualsPillowOnSmallSizes(t *testing.T) {
	var cases []resized
	r := rand.New(rand.NewPCG(1, 2))
	sizes := []int{1, 2, 3, 5, 8, 16, 17, 40}
	for _, sw := range sizes {
		for _, sh := range sizes {
			for _, dw := range sizes {
				for _, dh := range sizes {
					f := Filter(r.IntN(len(filters)))
					w, h := float64(sw), float64(sh)
					cases = append(cases, resized{sw, sh, dw, dh, f, Rect{0, 0, w, h}, false})
					b := Rect{r.Float64() * w * 0.7, r.Float64() * h * 0.7, 0, 0}
					b.X1 = b.X0 + (w-b.X0)*(0.1+0.9*r.Float64())
					b.Y1 = b.Y0 + (h-b.Y0)*(0.1+0.9*r.Float64())
					cases = append(cases, resized{sw, sh, dw, dh, Filter(r.IntN(len(filters))), b, false})
				}
			}
		}
	}
	compare(t, cases)
}

func TestEqualsPillowOnCropsOfPhotographs(t *testing.T) {
	var cases []resized
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 60 {
		sw, sh := 200+r.IntN(441), 200+r.IntN(441)
		w, h := 1+r.IntN(sw), 1+r.IntN(sh)
		x, y := r.IntN(sw-w+1), r.IntN(sh-h+1)
		b := Rect{float64(x), float64(y), float64(x + w), float64(y + h)}
		f := Filter(i % len(filters))
		cases = append(cases, resized{sw, sh, 224, 224, f, b, true}, resized{sw, sh, 224, 224, f, b, false})
		// On each side of the rule for the order of the passes.
		edge := 224 + 2*(r.IntN(120))
		cases = append(cases, resized{224 + (edge-224)/2, edge, 224, 224, f, Rect{0, 0, float64(224 + (edge-224)/2), float64(edge)}, false})
		cases = append(cases, resized{224 + (edge-224)/2, edge + 1, 224, 224, f, Rect{0, 0, float64(224 + (edge-224)/2), float64(edge + 1)}, false})
	}
	compare(t, cases)
}

// Large scales, where outputs lie far apart, and the order of the passes on both
// sides of its rule.
func TestEqualsPillowOnLargeScales(t *testing.T) {
	var cases []resized
	r := rand.New(rand.NewPCG(5, 6))
	for _, scale := range []float64{2.5, 3, 3.5, 4, 4.6, 5, 8, 13, 40} {
		for f := range filters {
			sw, sh := 300+r.IntN(341), 300+r.IntN(341)
			dw, dh := max(1, int(float64(sw)/scale)), max(1, int(float64(sh)/scale))
			b := Rect{r.Float64() * 9, r.Float64() * 9, float64(sw) - r.Float64()*9, float64(sh) - r.Float64()*9}
			cases = append(cases,
				resized{sw, sh, dw, dh, Filter(f), b, false},
				resized{sw, sh, dw, 1 + dh/3, Filter(f), b, false},
				resized{sw, sh, 1 + dw/3, dh, Filter(f), b, false})
		}
	}
	compare(t, cases)
}
