//go:build linux && (amd64 || arm64) && !nogpu

package gpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/reader"
)

// drawn is a random augmentation.
func drawn(r *rand.Rand, seed uint64, w, h int) Augmentation {
	keyed := augment.NewRand(7, 0, seed)
	var a Augmentation
	a.FlipX, a.FlipY = r.IntN(2) == 0, r.IntN(3) == 0
	a.Interpolation = augment.Interpolation(r.IntN(2))
	switch r.IntN(8) {
	case 0:
		a.Matrix = augment.RandomAffine{Degrees: augment.Spread{-40, 40}, Translate: [2]float64{0.3, 0.3}, Scale: [2]float64{0.5, 2}, Shear: augment.ShearRange{-20, 20, -20, 20}}.Draw(&keyed, w, h).Matrix
	case 1:
		a.Matrix = augment.RandomRotation{Degrees: augment.Spread{-180, 180}}.Draw(&keyed, w, h).Matrix
	case 2:
		a.Matrix = augment.IdentityMatrix
	case 3: // scaled and moved only
		a.Matrix = augment.RandomAffine{Translate: [2]float64{0.3, 0.3}, Scale: [2]float64{0.5, 2}}.Draw(&keyed, w, h).Matrix
	case 4: // what RandAugment and TrivialAugmentWide do
		kind := augment.Kind(int(augment.ShearX) + r.IntN(5))
		a.Matrix, _ = augment.Op{Kind: kind, Value: []float64{-0.3, 0.2, 3, -7, 30}[r.IntN(5)]}.Matrix(w, h)
	case 5: // the sum of ten tenths is less than one
		a.Matrix = augment.Matrix{0.1, 0, -0.05, 0, 0.1, -0.05}
	case 6: // too far for fixed point
		a.Matrix = augment.Matrix{1, 1e-3, -0.4, 1e-3, 1e3, -1e3}
	}
	a.Fill = augment.Color{uint8(r.Uint32()), 7, uint8(r.Uint32())}
	jitter := augment.ColorJitter{Brightness: augment.GainOf(0.8), Contrast: augment.GainOf(0.8), Saturation: augment.GainOf(0.8), Hue: augment.Spread{-0.5, 0.5}}.Draw(&keyed, w, h)
	if r.IntN(4) > 0 {
		a.Ops = append(a.Ops, jitter[:]...)
	}
	for _, op := range []augment.Op{
		{Kind: augment.Grayscale}, {Kind: augment.Invert}, {Kind: augment.Posterize, Value: float64(1 + r.IntN(8))},
		{Kind: augment.Solarize, Value: 256 * r.Float64()}, {Kind: augment.Saturation}, {Kind: augment.Brightness, Value: 1},
		{Kind: augment.Sharpness, Value: 2 * r.Float64()}, {Kind: augment.AutoContrast}, {Kind: augment.Equalize},
		{Kind: augment.Contrast, Value: 0.5}, {Kind: augment.Blur, Value: 0.1 + 4*r.Float64(), Kernel: [2]int{1 + 2*r.IntN(12), 1 + 2*r.IntN(30)}},
		{Kind: augment.Sharpness, Value: 1},
	} {
		if r.IntN(5) == 0 {
			a.Ops = append(a.Ops, op)
		}
	}
	r.Shuffle(len(a.Ops), func(i, j int) { a.Ops[i], a.Ops[j] = a.Ops[j], a.Ops[i] })
	if r.IntN(3) == 0 {
		a.Erasing = augment.RandomErasing{P: 1, Value: augment.ErasingValue{Color: augment.Color{1, 2, uint8(r.Uint32())}, Random: r.IntN(2) == 0}}.Draw(&keyed, w, h)
	}
	return a
}

// shown is what imaging/augment makes of an image.
func (a Augmentation) shown(t *testing.T, pix []byte, w, h int) []byte {
	t.Helper()
	var ws augment.Workspace
	src := imaging.Image{Pix: pix, Width: w, Height: h, Stride: 3 * w}
	var dst imaging.Image
	dst.Reset(w, h)
	err := ws.Image(&dst, &src, augment.Geometry{FlipX: a.FlipX, FlipY: a.FlipY, Matrix: a.Matrix}, augment.Look{Interpolation: a.Interpolation, Fill: a.Fill})
	for _, op := range a.Ops {
		err = errors.Join(err, op.Apply(&ws, &dst))
	}
	if err = errors.Join(err, a.Erasing.Apply(&ws, &dst)); err != nil {
		t.Fatal(err)
	}
	return dst.Pix
}

// applied augments a batch on the GPU.
func applied(t *testing.T, d *Device, g *Augmenter, src Tensor, each []Augmentation) []byte {
	t.Helper()
	dst, err := d.Alloc("out", reader.DTypeUint8, src.Shape...)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, dst.Bytes)
	if err := errors.Join(d.context.Set(dst.Data, 0xee, dst.Bytes, 0), g.Apply(dst, src, each, 0), d.Download(got, dst.Data, 0), d.Synchronize(0), d.Free(dst)); err != nil {
		t.Fatal(err)
	}
	return got
}

// Against imaging/augment, with parameters that its transforms draw: the same bytes.
func TestAugment(t *testing.T) {
	for _, backwards := range []string{"0", "1"} {
		t.Setenv("FAKE_CUDA_BACKWARDS", backwards)
		testAugment(t)
	}
}

func testAugment(t *testing.T) {
	d := device(t)
	g, err := d.NewAugmenter(AugmenterConfig{Images: 16, Width: 64, Height: 48})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 6))
	for _, size := range [][2]int{{32, 32}, {17, 29}, {1, 1}, {2, 40}, {64, 48}} {
		w, h, n := size[0], size[1], 16
		host, src := images(t, d, r, n, h, w)
		for range 6 {
			each := make([]Augmentation, n)
			for i := range each {
				each[i] = drawn(r, r.Uint64(), w, h)
			}
			got := applied(t, d, g, src, each)
			for i, a := range each {
				if want := a.shown(t, host[i*3*w*h:][:3*w*h], w, h); !bytes.Equal(got[i*3*w*h:][:3*w*h], want) {
					text, _ := json.Marshal(a)
					t.Fatalf("%d x %d: %s: other bytes", w, h, text)
				}
			}
		}
		if err := d.Free(src); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(g.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

// Every colour there is, through each operation.
func TestAugmentColors(t *testing.T) {
	d := device(t)
	g, err := d.NewAugmenter(AugmenterConfig{Images: 1, Width: 256, Height: 256})
	if err != nil {
		t.Fatal(err)
	}
	const side = 256
	host := make([]byte, 3*side*side)
	src, err := d.Alloc("image", reader.DTypeUint8, 1, side, side, 3)
	if err != nil {
		t.Fatal(err)
	}
	step := 8 // of the third channel
	if racing || testing.Short() {
		step = 64
	}
	for blue := 0; blue < 256; blue += step {
		for i := range side * side {
			host[3*i], host[3*i+1], host[3*i+2] = byte(i), byte(i>>8), byte(blue)
		}
		if err := errors.Join(d.Upload(src.Data, host, 0), d.Synchronize(0)); err != nil {
			t.Fatal(err)
		}
		for _, op := range []augment.Op{
			{Kind: augment.Hue, Value: 0}, {Kind: augment.Hue, Value: -0.31}, {Kind: augment.Saturation, Value: 1.7}, {Kind: augment.Saturation, Value: 0.3},
			{Kind: augment.Brightness, Value: 1.4}, {Kind: augment.Contrast, Value: 0.2}, {Kind: augment.Grayscale},
		} {
			a := Augmentation{Ops: []augment.Op{op}}
			if got := applied(t, d, g, src, []Augmentation{a}); !bytes.Equal(got, a.shown(t, host, side, side)) {
				t.Fatalf("%+v of colours with blue %d: other bytes", op, blue)
			}
		}
	}
	if err := errors.Join(d.Free(src), g.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

// The borders that imaging/augment has not, against a picture that was continued.
func TestAugmentBorders(t *testing.T) {
	d := device(t)
	g, err := d.NewAugmenter(AugmenterConfig{Images: 1, Width: 256, Height: 256})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(8, 9))
	for _, size := range [][2]int{{9, 7}, {1, 5}, {16, 1}} {
		w, h := size[0], size[1]
		host, src := images(t, d, r, 1, h, w)
		for _, border := range []Border{BorderEdge, BorderReflect} {
			for range 20 {
				// Sixteenths, so that places and weights are exact here and there.
				m := augment.Matrix{float64(r.IntN(64)-32) / 16, float64(r.IntN(64)-32) / 16, float64(r.IntN(400) - 200), float64(r.IntN(64)-32) / 16, float64(r.IntN(64)-32) / 16, float64(r.IntN(400) - 200)}
				a := Augmentation{Matrix: m, Border: border, Interpolation: augment.Interpolation(r.IntN(2))}
				got := applied(t, d, g, src, []Augmentation{a})
				for i := range w * h {
					x, y := float64(i%w)+0.5, float64(i/w)+0.5
					if a.Interpolation == augment.Nearest && m != (augment.Matrix{}) {
						px, py := continued(int(math.Floor(m[0]*x+m[1]*y+m[2])), w, border), continued(int(math.Floor(m[3]*x+m[4]*y+m[5])), h, border)
						if want := host[3*(py*w+px):][:3]; !bytes.Equal(got[3*i:3*i+3], want) {
							t.Fatalf("%v %v, nearest: pixel %d: %d, want %d", m, border, i, got[3*i:3*i+3], want)
						}
						continue
					}
					sx, sy := m[0]*x+m[1]*y+m[2]-0.5, m[3]*x+m[4]*y+m[5]-0.5
					left, top := math.Floor(sx), math.Floor(sy)
					at := func(dx, dy int) []byte {
						px, py := continued(int(left)+dx, w, border), continued(int(top)+dy, h, border)
						return host[3*(py*w+px):][:3]
					}
					for c := range 3 {
						above := float64(at(0, 0)[c]) + (float64(at(1, 0)[c])-float64(at(0, 0)[c]))*(sx-left)
						below := float64(at(0, 1)[c]) + (float64(at(1, 1)[c])-float64(at(0, 1)[c]))*(sx-left)
						if want := byte(above + (below-above)*(sy-top)); got[3*i+c] != want {
							t.Fatalf("%v %v: pixel %d: %d, want %d", m, border, i, got[3*i+c], want)
						}
					}
				}
			}
		}
		if err := d.Free(src); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(g.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

// continued walks to a place beside n pixels, a step at a time.
func continued(i, n int, b Border) int {
	if b == BorderEdge {
		return min(max(i, 0), n-1)
	}
	at, step := 0, 1
	for range max(i, -i) { // a mirrored line looks the same to both sides of 0
		if n == 1 {
			break
		}
		if at+step < 0 || at+step >= n {
			step = -step
		}
		at += step
	}
	return at
}

func TestAugmentRefuses(t *testing.T) {
	d := device(t)
	g, err := d.NewAugmenter(AugmenterConfig{Images: 2, Width: 5, Height: 4})
	if err != nil {
		t.Fatal(err)
	}
	x := Tensor{DType: reader.DTypeUint8, Shape: []int{1, 4, 5, 3}, Data: 256, Bytes: 60}
	for _, c := range []struct {
		each []Augmentation
		want string
	}{
		{nil, "1 images, 0 augmentations, and an augmenter for 1 to 2"},
		{[]Augmentation{{Border: 9}}, "image 0: no border has the number 9"},
		{[]Augmentation{{Matrix: augment.Matrix{math.NaN()}}}, "want finite numbers"},
		{[]Augmentation{{Interpolation: 7}}, "no interpolation has the number 7"},
		{[]Augmentation{{Ops: []augment.Op{{Kind: augment.Rotate, Value: 3}}}}, "Rotate moves pixels; a GPU takes its Matrix"},
		{[]Augmentation{{Ops: []augment.Op{{Kind: augment.Blur, Value: 30, Kernel: [2]int{99, 1}}}}}, "kernel reaches 49 to each side; a GPU takes up to 31"},
		{[]Augmentation{{Ops: []augment.Op{{Kind: augment.Blur, Value: 1, Kernel: [2]int{2, 1}}}}}, "want two odd numbers"},
		{[]Augmentation{{Ops: []augment.Op{{Kind: augment.Hue, Value: 0.6}}}}, "Hue by 0.6"},
		{[]Augmentation{{Ops: []augment.Op{{Kind: augment.Posterize}}}}, "Posterize to 0 bits"},
		{[]Augmentation{{Ops: []augment.Op{{Kind: augment.Brightness, Value: math.Inf(1)}}}}, "Brightness with the value +Inf"},
		{[]Augmentation{{Ops: make([]augment.Op, 20)}, {}}, "1 images, 2 augmentations"},
		{[]Augmentation{{Ops: times(augment.Equalize, 9)}}, "take 9 passes over the image; a GPU does 8"},
		{[]Augmentation{{Erasing: augment.Erasing{Region: augment.Region{X: 3, Width: 3}}}}, "does not lie within 5 x 4"},
	} {
		if err := g.Apply(x, x, c.each, 0); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v\ndoes not say %q", err, c.want)
		}
	}
	other := x
	other.DType = reader.DTypeFloat32
	if err := g.Apply(other, x, make([]Augmentation, 1), 0); err == nil || !strings.Contains(err.Error(), "want uint8") {
		t.Error(err)
	}
	odd := x
	odd.Data++
	if err := g.Apply(odd, x, make([]Augmentation, 1), 0); err == nil || !strings.Contains(err.Error(), "begins at 0x101; want a multiple of 4") {
		t.Error(err)
	}
	if _, err := d.NewAugmenter(AugmenterConfig{}); err == nil || !strings.Contains(err.Error(), "images: 0") || !strings.Contains(err.Error(), "width and height: 0 x 0") {
		t.Error(err)
	}
	large := Tensor{DType: reader.DTypeUint8, Shape: []int{1, 3, 7, 3}, Data: 256, Bytes: 63}
	if err := g.Apply(large, large, make([]Augmentation, 1), 0); err == nil || !strings.Contains(err.Error(), "for up to 4 x 5 pixels") {
		t.Error(err)
	}
	if err := errors.Join(g.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	var b Border
	if err := b.UnmarshalText([]byte("reflect")); err != nil || b != BorderReflect || b.String() != "reflect" {
		t.Error(b, err)
	}
	if err := b.UnmarshalText([]byte("mirror")); err == nil {
		t.Error("a border that there is not")
	}
	if n := unsafe.Sizeof(augmentSample{}); n != 192 {
		t.Errorf("a sample takes %d bytes", n)
	}
}

func times(k augment.Kind, n int) (ops []augment.Op) {
	for range n {
		ops = append(ops, augment.Op{Kind: k})
	}
	return ops
}
