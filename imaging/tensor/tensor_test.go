package tensor

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"shardify/imaging/internal/raster"
	"shardify/internal/peers"
)

// sample is an image with a gap between its rows.
func sample(w, h int) *raster.Image {
	m := raster.Image{Pix: make([]uint8, (3*w+5)*h), Width: w, Height: h, Stride: 3*w + 5}
	rand.NewChaCha8([32]byte{7}).Read(m.Pix)
	return &m
}

// at is where channel c of the pixel (x, y) lies.
func at(layout Layout, w, h, x, y, c int) int {
	if layout == NCHW {
		return (c*h+y)*w + x
	}
	return 3*(y*w+x) + c
}

func TestPutPlacesEveryPixel(t *testing.T) {
	table := ImageNet.Table()
	for _, size := range [][2]int{{1, 1}, {1, 5}, {7, 3}, {16, 16}, {33, 9}} {
		m := sample(size[0], size[1])
		w, h := m.Width, m.Height
		for _, layout := range []Layout{NCHW, NHWC} {
			for flips := range 4 {
				flipX, flipY := flips&1 != 0, flips&2 != 0
				bytes, floats := make([]uint8, 3*w*h), make([]float32, 3*w*h)
				if err := PutUint8(bytes, m, layout, flipX, flipY); err != nil {
					t.Fatal(err)
				}
				if err := PutFloat32(floats, m, layout, flipX, flipY, table); err != nil {
					t.Fatal(err)
				}
				for y := range h {
					for x := range w {
						for c := range 3 {
							column, row := x, y
							if flipX {
								column = w - 1 - x
							}
							if flipY {
								row = h - 1 - y
							}
							v := m.Pix[row*m.Stride+3*column+c]
							if got := bytes[at(layout, w, h, x, y, c)]; got != v {
								t.Fatalf("%v flips %d: byte (%d, %d, %d) is %d; want %d", layout, flips, x, y, c, got, v)
							}
							if got := floats[at(layout, w, h, x, y, c)]; got != table[c][v] {
								t.Fatalf("%v flips %d: float (%d, %d, %d) is %v; want %v", layout, flips, x, y, c, got, table[c][v])
							}
						}
					}
				}
			}
		}
	}
}

// torchvision computes in float32: v2.ToDtype multiplies by 1/255, Normalize subtracts
// and divides. So does numpy. (With torchvision itself: package augment.)
func TestNormalizeEqualsNumpyToTheLastBit(t *testing.T) {
	cmd := exec.Command(peers.Python(t), "-c", `
import sys
import numpy as np
v = np.arange(256, dtype=np.float32) * np.float32(1 / 255)
for mean, std in zip(np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])):
    sys.stdout.buffer.write(((v - mean) / std).astype("<f4").tobytes())
sys.stdout.buffer.write(v.astype("<f4").tobytes())
`)
	cmd.Stderr = os.Stderr
	want, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	check := func(name string, got [256]float32) {
		for v, f := range got {
			if w := binary.LittleEndian.Uint32(want[4*v:]); math.Float32bits(f) != w {
				t.Errorf("%s of %d: %v; want %v", name, v, f, math.Float32frombits(w))
			}
		}
		want = want[1024:]
	}
	for c, channel := range ImageNet.Table() {
		check(fmt.Sprintf("channel %d", c), channel)
	}
	check("no normalisation", Normalize{}.Table()[1])
}

func TestPutRefusesWhatDoesNotFit(t *testing.T) {
	m := sample(4, 4)
	for name, err := range map[string]error{
		"too small":   PutUint8(make([]uint8, 47), m, NCHW, false, false),
		"too large":   PutFloat32(make([]float32, 49), m, NHWC, false, false, Normalize{}.Table()),
		"no layout":   PutUint8(make([]uint8, 48), m, 7, false, false),
		"empty image": PutUint8(nil, &raster.Image{}, NCHW, false, false),
		"short rows":  PutUint8(make([]uint8, 48), &raster.Image{Pix: make([]uint8, 48), Width: 4, Height: 4, Stride: 11}, NCHW, false, false),
		"short image": PutUint8(make([]uint8, 48), &raster.Image{Pix: make([]uint8, 47), Width: 4, Height: 4, Stride: 12}, NCHW, false, false),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestNormalizeValidate(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, n := range []Normalize{
		{Std: [3]float32{1, 0, 1}}, {Std: [3]float32{1, -1, 1}}, {Std: [3]float32{inf, 1, 1}}, {Mean: [3]float32{0, inf - inf, 0}},
	} {
		if n.Validate() == nil {
			t.Errorf("%v passed", n)
		}
	}
	for _, n := range []Normalize{{}, ImageNet} {
		if err := n.Validate(); err != nil {
			t.Errorf("%v: %v", n, err)
		}
	}
}

func TestLayoutIsText(t *testing.T) {
	for _, l := range []Layout{NCHW, NHWC} {
		text, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		var back Layout
		if err := json.Unmarshal(text, &back); err != nil || back != l {
			t.Errorf("%s: %v, %v", text, back, err)
		}
	}
	var l Layout
	if json.Unmarshal([]byte(`"HWC"`), &l) == nil {
		t.Error("HWC passed")
	}
	if _, err := json.Marshal(Layout(5)); err == nil {
		t.Error("layout 5 passed")
	}
}

func BenchmarkPut(b *testing.B) {
	m := sample(224, 224)
	table := ImageNet.Table()
	bytes, floats := make([]uint8, 3*224*224), make([]float32, 3*224*224)
	for _, layout := range []Layout{NCHW, NHWC} {
		for _, flip := range []bool{false, true} {
			b.Run(fmt.Sprintf("uint8/%v/flip=%v", layout, flip), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := PutUint8(bytes, m, layout, flip, false); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(fmt.Sprintf("float32/%v/flip=%v", layout, flip), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := PutFloat32(floats, m, layout, flip, false, table); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func TestHalfTables(t *testing.T) {
	var n Table
	n[0] = [256]float32{0, 1, -2, 65504, 65520, 1e-8, 6e-8, float32(math.Inf(1)), 1 + 1.0/2048, 1 + 3.0/2048}
	got := n.Float16()[0]
	for i, want := range []uint16{0, 0x3c00, 0xc000, 0x7bff, 0x7c00, 0, 1, 0x7c00, 0x3c00, 0x3c02} {
		if got[i] != want {
			t.Errorf("%v is %#x as float16; want %#x", n[0][i], got[i], want)
		}
	}
	b := n.BFloat16()[0]
	for i, want := range []uint16{0, 0x3f80, 0xc000} {
		if b[i] != want {
			t.Errorf("%v is %#x as bfloat16; want %#x", n[0][i], b[i], want)
		}
	}
}
