package augment

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"shardify/imaging"
	"shardify/internal/peers"
	"shardify/internal/simd"
)

var le = binary.LittleEndian

// preamble is the start of every script: the images, the cases, and where to put pixels.
const preamble = `
import json, math, sys
import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
given = json.load(sys.stdin)
data = open(given["Raw"], "rb").read()
images, at = [], 0
for w, h in given["Sizes"]:
    images.append(Image.frombytes("RGB", (w, h), data[at : at + 3 * w * h]))
    at += 3 * w * h
cases = given["Cases"]
put = lambda image: sys.stdout.buffer.write(image.tobytes())
`

// ask runs a script and returns what it prints.
func ask(t testing.TB, script string, images []*imaging.Image, cases any) []byte {
	t.Helper()
	python := peers.Python(t)
	var raw []byte
	given := struct {
		Raw   string
		Sizes [][2]int
		Cases any
	}{filepath.Join(t.TempDir(), "raw"), [][2]int{}, cases}
	for _, m := range images {
		given.Sizes = append(given.Sizes, [2]int{m.Width, m.Height})
		for y := range m.Height {
			raw = append(raw, m.Pix[y*m.Stride:][:3*m.Width]...)
		}
	}
	if err := os.WriteFile(given.Raw, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-c", preamble+script)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// picture is smooth with noise, like a photograph; pure noise if rough is set.
func picture(w, h int, rough bool) *imaging.Image {
	r := rand.New(rand.NewPCG(uint64(w), uint64(h)))
	m := new(imaging.Image)
	m.Reset(w, h)
	for y := range h {
		for x := range w {
			for c := range 3 {
				v := r.Float64() * 256
				if !rough {
					v = 128 + 110*math.Sin(float64(x)/17+float64(c))*math.Cos(float64(y)/23) + v/16 - 8
				}
				m.Pix[y*m.Stride+3*x+c] = uint8(min(max(v, 0), 255))
			}
		}
	}
	return m
}

// pictures has what matters to any operation: sizes down to one pixel, one colour only,
// few levels, all levels.
func pictures() []*imaging.Image {
	list := []*imaging.Image{
		picture(224, 224, false), picture(97, 61, false), picture(256, 128, true),
		picture(1, 1, true), picture(1, 7, true), picture(9, 1, true), picture(2, 2, true), picture(3, 3, true), picture(4, 5, true), picture(17, 31, true),
	}
	flat, narrow, ramp := picture(40, 30, true), picture(50, 40, true), picture(256, 256, true)
	for i := range flat.Pix {
		flat.Pix[i] = [3]uint8{200, 31, 31}[i%3]
	}
	for i, v := range narrow.Pix {
		narrow.Pix[i] = 90 + v/8 + uint8(i%3)
	}
	for i := range ramp.Pix {
		ramp.Pix[i] = uint8(i / 3 >> (i % 3 * 4))
	}
	return append(list, flat, narrow, ramp)
}

// strided returns m's pixels within a larger image, and the function that checks that
// nothing around them has changed.
func strided(m *imaging.Image) (*imaging.Image, func() bool) {
	const border = 5
	stride := 3*m.Width + 2*border
	around := bytes.Repeat([]byte{0x5a}, stride*(m.Height+2))
	view := &imaging.Image{Pix: around[stride+border:][:(m.Height-1)*stride+3*m.Width], Width: m.Width, Height: m.Height, Stride: stride}
	for y := range m.Height {
		copy(view.Pix[y*stride:][:3*m.Width], m.Pix[y*m.Stride:])
	}
	return view, func() bool {
		clean := func(b []byte) bool { return len(bytes.Trim(b, "\x5a")) == 0 }
		if !clean(around[:stride]) || !clean(around[stride*(m.Height+1):]) {
			return false
		}
		for y := range m.Height {
			row := around[stride*(y+1):][:stride]
			if !clean(row[:border]) || !clean(row[stride-border:]) {
				return false
			}
		}
		return true
	}
}

// packed returns the rows of m without what lies between them.
func packed(m *imaging.Image) []byte {
	var b []byte
	for y := range m.Height {
		b = append(b, m.Pix[y*m.Stride:][:3*m.Width]...)
	}
	return b
}

// difference returns how many bytes differ, and by how much at most.
func difference(a, b []byte) (count, most int) {
	if bytes.Equal(a, b) {
		return 0, 0
	}
	for i := range a {
		if d := int(a[i]) - int(b[i]); d != 0 {
			count++
			most = max(most, d, -d)
		}
	}
	return count, most
}

// Every operation on colours gives Pillow's pixels, by the calls that torchvision makes
// (transforms/_functional_pil.py), for images of all sorts and factors of all sizes.
func TestColorsEqualPillow(t *testing.T) {
	factors := []float64{0, 1e-6, 0.1, 0.37, 0.5, 0.999, 1, 1.0000001, 1.2, 1.4, 1.9, 3, 17.5, 1000}
	var ops []Op
	for _, f := range factors {
		for _, k := range []Kind{Brightness, Saturation, Contrast, Sharpness} {
			ops = append(ops, Op{Kind: k, Value: f})
		}
	}
	for _, v := range []float64{-0.5, -0.37, -0.1, -0.004, 0, 0.001, 0.0039, 0.004, 0.05, 0.25, 0.333, 0.5} {
		ops = append(ops, Op{Kind: Hue, Value: v})
	}
	for bits := 1; bits <= 8; bits++ {
		ops = append(ops, Op{Kind: Posterize, Value: float64(bits)})
	}
	for _, v := range []float64{0, 1, 127.5, 128, 255, 256} {
		ops = append(ops, Op{Kind: Solarize, Value: v})
	}
	for _, k := range []Kind{AutoContrast, Equalize, Invert, Grayscale} {
		ops = append(ops, Op{Kind: k})
	}
	images := pictures()
	want := ask(t, `
def hue(image, factor):
    h, s, v = image.convert("HSV").split()
    n = np.array(h, dtype=np.uint8)
    n += np.int32(factor * 255).astype(np.uint8)
    return Image.merge("HSV", (Image.fromarray(n), s, v)).convert("RGB")

do = {
    "Brightness": lambda i, v: ImageEnhance.Brightness(i).enhance(v),
    "Color": lambda i, v: ImageEnhance.Color(i).enhance(v),
    "Contrast": lambda i, v: ImageEnhance.Contrast(i).enhance(v),
    "Sharpness": lambda i, v: ImageEnhance.Sharpness(i).enhance(v),
    "Hue": hue,
    "Posterize": lambda i, v: ImageOps.posterize(i, int(v)),
    "Solarize": lambda i, v: ImageOps.solarize(i, v),
    "AutoContrast": lambda i, v: ImageOps.autocontrast(i),
    "Equalize": lambda i, v: ImageOps.equalize(i),
    "Invert": lambda i, v: ImageOps.invert(i),
    "Grayscale": lambda i, v: i.convert("L").convert("RGB"),
}
for image in images:
    for op in cases:
        put(do[op["kind"]](image, op["value"]))
`, images, ops)
	var ws Workspace
	for _, m := range images {
		n := 3 * m.Width * m.Height
		for _, op := range ops {
			view, untouched := strided(m)
			if err := op.Apply(&ws, view); err != nil {
				t.Fatal(err)
			}
			if count, most := difference(packed(view), want[:n]); count > 0 {
				t.Errorf("%+v of %d x %d: %d of %d bytes differ, by up to %d", op, m.Width, m.Height, count, n, most)
			}
			if !untouched() {
				t.Errorf("%+v of %d x %d wrote outside the image", op, m.Width, m.Height)
			}
			want = want[n:]
		}
	}
	if len(want) != 0 {
		t.Errorf("%d bytes too many", len(want))
	}
}

// Of all 16.7 million colours every 13th goes through the two operations that mix a
// pixel's channels most.
func TestHueAndSaturationOfManyColors(t *testing.T) {
	const width, step = 4096, 13
	m := new(imaging.Image)
	m.Reset(width, (1<<24/step)/width)
	for i := range m.Width * m.Height {
		v := i * step
		copy(m.Pix[3*i:], []byte{uint8(v >> 16), uint8(v >> 8), uint8(v)})
	}
	want := ask(t, `
h, s, v = images[0].convert("HSV").split()
put(Image.merge("HSV", (h, s, v)).convert("RGB"))
put(ImageEnhance.Color(images[0]).enhance(1.7))
`, []*imaging.Image{m}, nil)
	var ws Workspace
	for _, op := range []Op{{Kind: Hue}, {Kind: Saturation, Value: 1.7}} {
		out := &imaging.Image{Pix: bytes.Clone(m.Pix), Width: m.Width, Height: m.Height, Stride: m.Stride}
		if err := op.Apply(&ws, out); err != nil {
			t.Fatal(err)
		}
		if count, most := difference(out.Pix, want[:len(out.Pix)]); count > 0 {
			t.Errorf("%v: %d bytes differ, by up to %d", op.Kind, count, most)
		}
		want = want[len(out.Pix):]
	}
}

// The blur is the exact sum of float64s, rounded half to even, but where that lies so
// near to a half that float32 goes the other way.
func TestBlurIsExact(t *testing.T) {
	var ops []Op
	for _, k := range [][2]int{{1, 1}, {3, 3}, {5, 9}, {23, 23}, {1, 7}, {51, 3}} {
		for _, sigma := range []float64{0.1, 0.7, 2, 9} {
			ops = append(ops, Op{Kind: Blur, Value: sigma, Kernel: k})
		}
	}
	images := slices.DeleteFunc(pictures(), func(m *imaging.Image) bool { return m.Width > 100 }) // for speed
	out := ask(t, `
def kernel(n, sigma):
    x = np.linspace(-(n - 1) / 2, (n - 1) / 2, n)
    k = np.exp(-0.5 * (x / sigma) ** 2)
    return k / k.sum()

for image in images:
    for op in cases:
        w, h = op["kernel"]
        a = np.asarray(image).astype(np.float64)
        p = np.pad(a, ((h // 2, h // 2), (w // 2, w // 2), (0, 0)), "reflect")
        k = kernel(h, op["value"])
        p = sum(k[i] * p[i : i + a.shape[0]] for i in range(h))
        k = kernel(w, op["value"])
        p = sum(k[i] * p[:, i : i + a.shape[1]] for i in range(w))
        sys.stdout.buffer.write(p.astype("<f8").tobytes())
`, images, ops)
	var ws Workspace
	other, all := 0, 0
	for _, m := range images {
		for _, op := range ops {
			view, untouched := strided(m)
			if err := op.Apply(&ws, view); err != nil {
				t.Fatal(err)
			}
			if !untouched() {
				t.Errorf("%+v wrote outside the image", op)
			}
			for _, got := range packed(view) {
				exact := math.Float64frombits(le.Uint64(out))
				out = out[8:]
				all++
				if d := math.Abs(float64(got) - exact); d > 0.501 {
					t.Fatalf("%+v of %d x %d: %d; exactly %v", op, m.Width, m.Height, got, exact)
				}
				if float64(got) != math.RoundToEven(exact) {
					other++
				}
			}
		}
	}
	if other*10000 > all {
		t.Errorf("%d of %d bytes are rounded the other way", other, all)
	}
	t.Logf("%d of %d bytes are rounded the other way", other, all)
}

func TestOpsRefuseNonsense(t *testing.T) {
	var ws Workspace
	m := picture(8, 8, true)
	before := bytes.Clone(m.Pix)
	for _, op := range []Op{
		{Kind: -1}, {Kind: kinds}, {Kind: Brightness, Value: math.NaN()}, {Kind: Contrast, Value: math.Inf(1)}, {Kind: Brightness, Value: 1e7},
		{Kind: Posterize}, {Kind: Posterize, Value: 9}, {Kind: Hue, Value: 0.51},
		{Kind: Blur, Value: 1}, {Kind: Blur, Value: 0, Kernel: [2]int{3, 3}}, {Kind: Blur, Value: 1, Kernel: [2]int{4, 3}},
		{Kind: Rotate, Value: 1, Interpolation: 7},
	} {
		if op.Apply(&ws, m) == nil {
			t.Errorf("%+v passed", op)
		}
	}
	if !bytes.Equal(m.Pix, before) {
		t.Error("an operation that was refused changed the image")
	}
	for _, bad := range []imaging.Image{{}, {Width: 2, Height: 2, Stride: 6, Pix: make([]byte, 11)}, {Width: 2, Height: 1, Stride: 5, Pix: make([]byte, 6)}} {
		for k := range kinds {
			if (Op{Kind: k, Value: 0.5, Kernel: [2]int{1, 1}}).Apply(&ws, &bad) == nil {
				t.Errorf("%v of %d x %d with %d bytes passed", k, bad.Width, bad.Height, len(bad.Pix))
			}
		}
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	var ws Workspace
	m, dst := picture(100, 80, false), new(imaging.Image)
	mask, maskDst := new(imaging.Mask), new(imaging.Mask)
	mask.Reset(100, 80)
	g := Geometry{Crop: Region{3, 4, 90, 70}, Width: 64, Height: 48, Window: Region{-4, -4, 70, 60}, PaddingMode: Reflect, FlipX: true, FlipY: true, Matrix: rotation(20, 35, 30)}
	boxes, kept := make([]Box, 8), make([]int, 0, 8)
	ops := make(Ops, 0, 4)
	all := func() {
		r := NewRand(1, 2, 3)
		for k := range kinds {
			op := Op{Kind: k, Value: 0.3, Kernel: [2]int{5, 5}, Interpolation: Bilinear}
			if k == Posterize {
				op.Value = 3
			}
			if err := op.Apply(&ws, m); err != nil {
				t.Fatal(err)
			}
		}
		jitter := ColorJitter{Brightness: GainOf(0.4), Hue: SpreadOf(0.1)}.Draw(&r, 100, 80)
		erase := RandomErasing{P: 1, Value: ErasingValue{Random: true}}.Draw(&r, 100, 80)
		warp := RandomAffine{Degrees: SpreadOf(10)}.Draw(&r, 100, 80)
		ops = RandAugment{}.Draw(ops[:0], &r, 100, 80)
		for _, err := range []error{
			jitter.Apply(&ws, m), erase.Apply(&ws, m), warp.Apply(&ws, m), ops.Apply(&ws, m),
			ws.Image(dst, m, g, Look{}), ws.Mask(maskDst, mask, g, 255),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range boxes {
			boxes[i] = Box{10, 10, 40, 50}
		}
		if _, _, err := g.Boxes(boxes, kept[:0], 100, 80, BoxFilter{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(10, all); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkOp is of every operation, of 224 x 224 and of 500 x 375 pixels, at every level.
func BenchmarkOp(b *testing.B) {
	cases := []Op{
		{Kind: Brightness, Value: 1.3}, {Kind: Contrast, Value: 1.3}, {Kind: Saturation, Value: 0.7}, {Kind: Hue, Value: 0.1},
		{Kind: Grayscale}, {Kind: Invert}, {Kind: Posterize, Value: 4}, {Kind: Solarize, Value: 128},
		{Kind: AutoContrast}, {Kind: Equalize}, {Kind: Sharpness, Value: 1.3}, {Kind: Blur, Value: 1.5, Kernel: [2]int{23, 23}},
		{Kind: TranslateX, Value: 15}, {Kind: TranslateY, Value: 15},
		{Kind: ShearX, Value: 0.3}, {Kind: Rotate, Value: 15},
		{Kind: ShearX, Value: 0.3, Interpolation: Bilinear}, {Kind: Rotate, Value: 15, Interpolation: Bilinear},
	}
	for _, size := range [][2]int{{224, 224}, {500, 375}} {
		for _, op := range cases {
			name := fmt.Sprintf("%dx%d/%v", size[0], size[1], op.Kind)
			if op.Interpolation == Bilinear {
				name += "Bilinear"
			}
			for _, l := range simd.All() {
				b.Run(name+"/"+l.String(), func(b *testing.B) {
					ws := workspaceAt(l)
					from, m := picture(size[0], size[1], false), new(imaging.Image)
					m.Reset(size[0], size[1])
					copy(m.Pix, from.Pix)
					b.ReportAllocs()
					n := 0
					for b.Loop() {
						if n++; n%16 == 0 { // so that nothing wears off; it costs little
							copy(m.Pix, from.Pix)
						}
						if err := op.Apply(ws, m); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(size[0]*size[1]), "ns/pixel")
				})
			}
		}
	}
}
