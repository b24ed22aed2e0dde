package pixel

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"shardify/imaging/internal/raster"
	"shardify/imaging/jpeg/internal/blocks"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
	"shardify/internal/guardtest"
	"shardify/internal/simd"
)

func TestARegionIsACropOfTheWhole(t *testing.T) {
	for _, level := range simd.All() {
		t.Run(level.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(19, 20))
			d := Decoder{level: level + 1}
			for i := range 20 * len(samplings) / every {
				s := samplings[i%len(samplings)]
				p := newPicture(r, 1+r.IntN(150), 1+r.IntN(150), s.model, s.factors, r.IntN(3))
				size := []int{8, 8, 4, 2, 1}[r.IntN(5)]
				whole, w, h := p.whole(t, level, RGB, size)
				for range 4 {
					spec := Spec{Size: size, Width: 1 + r.IntN(w), Height: 1 + r.IntN(h)}
					spec.X, spec.Y = r.IntN(w-spec.Width+1), r.IntN(h-spec.Height+1)
					target := resize.Target{Width: spec.Width, Height: spec.Height, Layout: tensor.NHWC, Uint8: make([]uint8, 3*spec.Width*spec.Height)}
					p.decode(t, &d, r, spec, target)
					for y := range spec.Height {
						got := target.Uint8[3*y*spec.Width:][:3*spec.Width]
						if want := whole[3*((spec.Y+y)*w+spec.X):][:len(got)]; !bytes.Equal(got, want) {
							t.Fatalf("%v: %d x %d at size %d, region %+v: row %d differs", s, p.frame.Width, p.frame.Height, size, spec, y)
						}
					}
				}
			}
		})
	}
}

// What comes scaled is what the resizer makes of the pixels.
func TestScaledIsTheWholeResized(t *testing.T) {
	for _, level := range simd.All() {
		t.Run(level.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(21, 22))
			d := Decoder{level: level + 1}
			var z resize.Resizer
			for i := range 8 * len(samplings) / every {
				s := samplings[i%len(samplings)]
				p := newPicture(r, 1+r.IntN(200), 1+r.IntN(200), s.model, s.factors, r.IntN(2))
				pix, w, h := p.whole(t, level, RGB, 8)
				m := raster.Image{Pix: pix, Width: w, Height: h, Stride: 3 * w}
				spec := Spec{Width: 1 + r.IntN(w), Height: 1 + r.IntN(h)}
				spec.X, spec.Y = r.IntN(w-spec.Width+1), r.IntN(h-spec.Height+1)
				src, err := resize.Crop(&m, spec.X, spec.Y, spec.Width, spec.Height)
				if err != nil {
					t.Fatal(err)
				}
				spec.Task = resize.Task{Width: 1 + r.IntN(120), Height: 1 + r.IntN(120), Filter: resize.Filter(r.IntN(4)), FlipX: r.IntN(2) == 0}
				x, y := r.Float64()*float64(spec.Width)/2, r.Float64()*float64(spec.Height)/2
				spec.Task.Part = resize.Rect{X0: x, Y0: y, X1: float64(spec.Width), Y1: float64(spec.Height)}
				n := 3 * spec.Task.Width * spec.Task.Height
				target := resize.Target{Width: spec.Task.Width, Height: spec.Task.Height, Layout: tensor.Layout(r.IntN(2))}
				want := target
				want.Uint8, target.Uint8 = make([]uint8, n), make([]uint8, n)
				if err := z.ResizeInto(want, &src, spec.Task); err != nil {
					t.Fatal(err)
				}
				p.decode(t, &d, r, spec, target)
				if !bytes.Equal(target.Uint8, want.Uint8) {
					t.Fatalf("%v, %+v: differs", s, spec)
				}
			}
		})
	}
}

func TestYCbCrOfGrey(t *testing.T) {
	p := newPicture(rand.New(rand.NewPCG(1, 2)), 40, 30, blocks.Gray, [][2]int{{1, 1}}, 0)
	grey, _, _ := p.whole(t, simd.Best(), Gray, 8)
	pix, _, _ := p.whole(t, simd.Best(), YCbCr, 8)
	for i, v := range grey {
		if q := pix[3*i:][:3]; q[0] != v || q[1] != 128 || q[2] != 128 {
			t.Fatalf("pixel %d is %v; want %d, 128, 128", i, q, v)
		}
	}
}

func TestBeginRefuses(t *testing.T) {
	p := newPicture(rand.New(rand.NewPCG(1, 2)), 40, 30, blocks.RGB, [][2]int{{1, 1}, {1, 1}, {1, 1}}, 0)
	sixteen := p.frame
	sixteen.Precision = 16
	target := resize.Target{Width: 40, Height: 30, Uint8: make([]uint8, 3600)}
	for name, c := range map[string]struct {
		f *blocks.Frame
		s Spec
	}{
		"16 bits":         {&sixteen, Spec{}},
		"size":            {&p.frame, Spec{Size: 3}},
		"colour":          {&p.frame, Spec{Color: 3}},
		"luma of RGB":     {&p.frame, Spec{Color: YCbCr}},
		"outside":         {&p.frame, Spec{X: 1, Width: 40, Height: 30}},
		"negative":        {&p.frame, Spec{X: -1, Width: 10, Height: 10}},
		"nothing":         {&p.frame, Spec{Width: 10}},
		"another target":  {&p.frame, Spec{Width: 10, Height: 10}},
		"too large a box": {&p.frame, Spec{Task: resize.Task{Part: resize.Rect{X1: 41, Y1: 30}, Width: 40, Height: 30}}},
	} {
		var d Decoder
		if _, err := d.Begin(c.f, c.s, target); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	var d Decoder
	if _, err := d.Begin(&p.frame, Spec{}, target); err != nil {
		t.Fatal(err)
	}
	if d.Strip(&blocks.Strip{Window: blocks.Window{Y0: 1, X1: 5, Y1: 2}}) == nil {
		t.Error("a strip out of order: no error")
	}
}

// The kernels do what generic Go does, to the last of their bytes, and touch none
// beyond.
func TestKernels(t *testing.T) {
	for _, level := range simd.All()[1:] {
		for _, side := range []guardtest.Side{guardtest.After, guardtest.Before} {
			t.Run(level.String(), func(t *testing.T) {
				r := rand.New(rand.NewPCG(23, 24))
				for range 60 / every {
					testTransform(t, r, level, side)
					testColor(t, r, level, side)
				}
			})
		}
	}
}

func testTransform(t *testing.T, r *rand.Rand, level simd.Level, side guardtest.Side) {
	n := 2 * (1 + r.IntN(6))
	raw := guardtest.Bytes(t, 128*n, side)
	coef := int16s(raw)
	for i := range coef {
		switch r.IntN(4) {
		case 0:
			coef[i] = int16(r.Uint32())
		case 1:
			coef[i] = int16(r.IntN(61) - 30)
		}
	}
	var quant [64]uint16
	for i := range quant {
		if quant[i] = uint16(1 + r.IntN(255)); r.IntN(20) == 0 {
			quant[i] = uint16(r.Uint32())
		}
	}
	for _, size := range []int{8, 4, 2, 1} {
		stride := n*size + r.IntN(40)
		dst := guardtest.Bytes(t, (size-1)*stride+n*size, side)
		want := make([]uint8, len(dst))
		rowGeneric(want, stride, coef, &quant, n, size)
		transform(dst, stride, coef, &quant, n, size, level)
		if !bytes.Equal(dst, want) {
			t.Fatalf("%d blocks at size %d: differ from generic", n, size)
		}
	}
}

func testColor(t *testing.T, r *rand.Rand, level simd.Level, side guardtest.Side) {
	random := func(b []byte) []byte {
		for i := range b {
			b[i] = uint8(r.Uint32())
		}
		return b
	}
	n := 64 * (1 + r.IntN(4))
	planes := random(guardtest.Bytes(t, 3*n, side))
	want := bytes.Clone(planes)
	rgbGeneric(want, n, n)
	if rgb(planes, n, n, level); !bytes.Equal(planes, want) {
		t.Fatal("colour differs from generic")
	}
	out := make([]uint8, n)
	near, far := random(guardtest.Bytes(t, n/2+2, side)), random(guardtest.Bytes(t, n/2+2, side))
	dst := guardtest.Bytes(t, n, side)
	for _, biases := range [][2]uint32{{4, 8}, {8, 7}} {
		h2Generic(out, near, far, n/2, biases[0], biases[1])
		if h2(dst, near, far, 1, n, biases[0], biases[1], level); !bytes.Equal(dst, out) {
			t.Fatal("h2 differs from generic")
		}
	}
	near, far = random(guardtest.Bytes(t, n, side)), random(guardtest.Bytes(t, n, side))
	for bias := range uint32(2) {
		v2Generic(out, near, far, n, bias+1)
		if v2(dst, near, far, n, bias+1, level); !bytes.Equal(dst, out) {
			t.Fatal("v2 differs from generic")
		}
	}
}

// Every colour there is.
func TestAllColors(t *testing.T) {
	const n = 256
	for _, level := range simd.All()[1:] {
		for y := 0; y < 256; y += 5 {
			for cb := range 256 {
				pix := make([]uint8, 3*n)
				for cr := range 256 {
					pix[cr], pix[n+cr], pix[2*n+cr] = uint8(y), uint8(cb), uint8(cr)
				}
				want := bytes.Clone(pix)
				rgbGeneric(want, n, n)
				if rgb(pix, n, n, level); !bytes.Equal(pix, want) {
					t.Fatalf("%v: y %d, cb %d: differs", level, y, cb)
				}
			}
		}
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	p := newPicture(rand.New(rand.NewPCG(1, 2)), 400, 300, blocks.YCbCr, [][2]int{{2, 2}, {1, 1}, {1, 1}}, 0)
	target := resize.Target{Width: 64, Height: 64, Uint8: make([]uint8, 3*64*64)}
	var d Decoder
	i := 0
	if n := testing.AllocsPerRun(20, func() {
		s := Spec{X: i % 7, Y: i % 5, Width: 390, Height: 290, Task: resize.Task{Part: resize.Rect{X1: 390, Y1: 290}, Width: 64, Height: 64}}
		if i++; i == 1 {
			s = Spec{Task: resize.Task{Part: resize.Rect{X1: 400, Y1: 300}, Width: 64, Height: 64}}
		}
		w, err := d.Begin(&p.frame, s, target)
		if err != nil {
			t.Fatal(err)
		}
		strip := p.strip
		for c := range strip.Plane {
			plane, k := &strip.Plane[c], &p.frame.Component[c]
			if k.H > 0 {
				plane.Coef = plane.Coef[64*(w.Y0*k.V*plane.Stride):]
			}
		}
		strip.Y0, strip.Y1 = w.Y0, w.Y1
		if err := d.Strip(&strip); err != nil || !d.Done() {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
