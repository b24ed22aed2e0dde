package augment

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"shardify/imaging"
)

// torchvision's matrix for Image.transform (transforms/v2/functional/_geometry.py,
// _get_inverse_affine_matrix), and the names of filters.
const affineScript = `
def inverse(cx, cy, angle, tx, ty, scale, shear_x, shear_y):
    rot, sx, sy = math.radians(angle), math.radians(shear_x), math.radians(shear_y)
    a = math.cos(rot - sy) / math.cos(sy)
    b = -(a * math.tan(sx) + math.sin(rot))
    c = math.sin(rot - sy) / math.cos(sy)
    d = math.cos(rot) - c * math.tan(sx)
    m = [d / scale, -b / scale, 0.0, -c / scale, a / scale, 0.0]
    m[2] += cx - m[0] * (cx + tx) - m[1] * (cy + ty)
    m[5] += cy - m[3] * (cx + tx) - m[4] * (cy + ty)
    return m

filters = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR}
`

type warped struct {
	Image         int
	Width, Height int
	Matrix        Matrix
	Interpolation Interpolation
	Fill          [3]int
}

// With one matrix, Pillow and we show the same pixels: of turned, scaled, sheared,
// mirrored images, near and far, in each of the ways in which it computes places.
func TestWarpEqualsPillow(t *testing.T) {
	images := pictures()
	r := rand.New(rand.NewPCG(1, 1))
	var cases []warped
	add := func(i int, m Matrix) {
		for _, ip := range []Interpolation{Nearest, Bilinear} {
			w, h := images[i].Width, images[i].Height
			if r.IntN(4) == 0 {
				w, h = 1+r.IntN(2*w), 1+r.IntN(2*h)
			}
			cases = append(cases, warped{i, w, h, m, ip, [3]int{r.IntN(256), r.IntN(256), r.IntN(256)}})
		}
	}
	for i, img := range images {
		w, h := float64(img.Width), float64(img.Height)
		for range 6 {
			add(i, affine(w/2, h/2, r.Float64()*360, r.Float64()*20-10, r.Float64()*20-10, 0.3+2*r.Float64(), r.Float64()*60-30, r.Float64()*60-30))
			add(i, Matrix{3*r.Float64() - 1.5, 0, w * (r.Float64() - 0.3), 0, 3*r.Float64() - 1.5, h * (r.Float64() - 0.3)})
		}
		for _, m := range []Matrix{
			IdentityMatrix, {1, 0, 0.5, 0, 1, 0.5}, {-1, 0, w, 0, -1, h}, {0, 1, 0, 1, 0, 0}, {0, 1, 0, -1, 0, h},
			{0, 0, 0, 0, 0, 0}, {0, 0, w - 0.5, 0, 0, h - 0.5}, {1, 0, w, 0, 1, 0}, {1, 0, -0.5, 0, 1, -0.5}, {1e-9, 1e-9, 1, 1e-9, 1e-9, 1},
			{1, 0.25, -1e-17, 0.25, 1, 0}, {1e5, 3, 0, 2, 1e5, 0}, {1, 2, 1e6, 2, 1, -1e6}, {-40000, 0.5, 40000, 0.5, 1, 0}, {1e300, 1e300, 0, 0, 1, 0},
		} {
			add(i, m)
		}
	}
	want := ask(t, affineScript+`
for c in cases:
    put(images[c["Image"]].transform((c["Width"], c["Height"]), Image.Transform.AFFINE, c["Matrix"], filters[c["Interpolation"]], fillcolor=tuple(c["Fill"])))
`, images, cases)
	var ws Workspace
	for _, c := range cases {
		blank := new(imaging.Image)
		blank.Reset(c.Width, c.Height)
		view, untouched := strided(blank)
		src, _ := strided(images[c.Image])
		f := Color{uint8(c.Fill[0]), uint8(c.Fill[1]), uint8(c.Fill[2])}
		if err := ws.Warp(view, src, c.Matrix, c.Interpolation, f); err != nil {
			t.Fatal(err)
		}
		n := 3 * c.Width * c.Height
		if count, most := difference(packed(view), want[:n]); count > 0 {
			t.Errorf("%+v of %d x %d: %d of %d bytes differ, by up to %d", c, images[c.Image].Width, images[c.Image].Height, count, n, most)
		}
		if !untouched() {
			t.Errorf("%+v wrote outside the image", c)
		}
		want = want[n:]
	}
	if len(want) != 0 {
		t.Errorf("%d bytes too many", len(want))
	}
}

// From the angle on, all is Pillow's Image.rotate, and torchvision's affine of PIL
// images: matrices may differ in their last bits, where C's sine differs from Go's,
// but no pixel here does.
func TestRotationAndAffineEqualPillow(t *testing.T) {
	type turned struct {
		Rotate        bool
		Args          [8]float64 // cx, cy, angle, tx, ty, scale, shear x and y
		Interpolation Interpolation
	}
	m := picture(97, 61, false)
	square := picture(64, 64, false)
	images := []*imaging.Image{m, square}
	r := rand.New(rand.NewPCG(2, 2))
	var cases []turned
	angles := []float64{0, 90, 180, 270, 360, -90, 45, 30, 60, 1e-7, 359.9999, 1234.5}
	for i := range 150 {
		angle := r.Float64()*720 - 360
		if i < len(angles) {
			angle = angles[i]
		}
		args := [8]float64{0, 0, angle, 0, 0, 1, 0, 0}
		cases = append(cases, turned{true, args, Interpolation(i % 2)})
		args[3], args[4] = float64(r.IntN(21)-10), float64(r.IntN(21)-10)
		args[5] = 0.5 + r.Float64()
		args[6], args[7] = r.Float64()*40-20, r.Float64()*40-20
		if i < len(angles) {
			args = [8]float64{0, 0, angle, 3, -4, 1, 0, 0}
		}
		cases = append(cases, turned{false, args, Interpolation(i % 2)})
	}
	want := ask(t, affineScript+`
for c in cases:
    for image in images:
        w, h = image.size
        a = c["Args"]
        f = filters[c["Interpolation"]]
        if c["Rotate"]:
            put(image.rotate(a[2], f, fillcolor=(1, 2, 3)))
        else:
            put(image.transform((w, h), Image.Transform.AFFINE, inverse(w * 0.5, h * 0.5, *a[2:]), f, fillcolor=(1, 2, 3)))
`, images, cases)
	var ws Workspace
	for _, c := range cases {
		for _, m := range images {
			view, _ := strided(m)
			a := c.Args
			cx, cy := float64(m.Width)*0.5, float64(m.Height)*0.5
			p := Warp{affine(cx, cy, a[2], a[3], a[4], a[5], a[6], a[7]), c.Interpolation, Color{1, 2, 3}}
			if c.Rotate {
				p.Matrix = rotation(a[2], cx, cy)
			}
			if err := p.Apply(&ws, view); err != nil {
				t.Fatal(err)
			}
			n := 3 * m.Width * m.Height
			if count, most := difference(packed(view), want[:n]); count > 0 {
				t.Errorf("%+v of %d x %d: %d of %d bytes differ, by up to %d", c, m.Width, m.Height, count, n, most)
			}
			want = want[n:]
		}
	}
}

// The operations of RandAugment that move pixels are torchvision's calls of affine and
// rotate.
func TestMovingOpsEqualPillow(t *testing.T) {
	images := []*imaging.Image{picture(97, 61, false), picture(64, 64, true)}
	var ops []Op
	for _, k := range []Kind{ShearX, ShearY, TranslateX, TranslateY, Rotate} {
		for _, v := range []float64{0, 0.3, -0.3, 0.99, -0.09, 7, -31.9, 16.00001} {
			for _, ip := range []Interpolation{Nearest, Bilinear} {
				ops = append(ops, Op{Kind: k, Value: v, Interpolation: ip, Fill: Color{9, 8, 7}})
			}
		}
	}
	want := ask(t, affineScript+`
for op in cases:
    for image in images:
        w, h = image.size
        k, v = op["kind"], op["value"]
        f = filters[op.get("interpolation", "nearest")]
        fill = tuple(op["fill"])
        if k == "Rotate":
            put(image.rotate(v, f, fillcolor=fill))
            continue
        matrix = {
            "ShearX": lambda: inverse(0, 0, 0, 0, 0, 1, math.degrees(math.atan(v)), 0),
            "ShearY": lambda: inverse(0, 0, 0, 0, 0, 1, 0, math.degrees(math.atan(v))),
            "TranslateX": lambda: inverse(w * 0.5, h * 0.5, 0, int(v), 0, 1, 0, 0),
            "TranslateY": lambda: inverse(w * 0.5, h * 0.5, 0, 0, int(v), 1, 0, 0),
        }[k]()
        put(image.transform((w, h), Image.Transform.AFFINE, matrix, f, fillcolor=fill))
`, images, ops)
	var ws Workspace
	for _, op := range ops {
		for _, m := range images {
			view, _ := strided(m)
			if err := op.Apply(&ws, view); err != nil {
				t.Fatal(err)
			}
			n := 3 * m.Width * m.Height
			if count, most := difference(packed(view), want[:n]); count > 0 {
				t.Errorf("%+v of %d x %d: %d of %d bytes differ, by up to %d", op, m.Width, m.Height, count, n, most)
			}
			want = want[n:]
		}
	}
}

func TestRound15(t *testing.T) {
	for _, c := range []struct{ v, want float64 }{
		{0, 0}, {1, 1}, {-1, -1}, {6.123233995736766e-17, 0}, {0.7071067811865476, 0.707106781186548},
		{-0.4999999999999999, -0.5}, {1.5e-15, 1e-15}, // the float64 lies below 1.5e-15
		{3.5e-15, 4e-15}, // and this one above
	} {
		if got := round15(c.v); got != c.want {
			t.Errorf("%v: %v; want %v", c.v, got, c.want)
		}
	}
	r := rand.New(rand.NewPCG(3, 3))
	for range 100000 {
		v := r.Float64()*2 - 1
		if i := r.IntN(3); i > 0 { // near a tie
			v = (math.Floor(r.Float64()*1e15) + 0.5) / 1e15
			v = math.Nextafter(v, float64(i*2-3))
		}
		var want float64
		if _, err := fmt.Sscan(fmt.Sprintf("%.15f", v), &want); err != nil {
			t.Fatal(err)
		}
		if got := round15(v); got != want {
			t.Fatalf("%v: %v; want %v", v, got, want)
		}
	}
}

// Python's math, which is the C library's, agrees to the last bit but for the few
// values that it rounds the other way.
func TestTrigonometryIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	values := []float64{0, math.Pi, math.Pi / 2, -math.Pi / 2, 1e-9, 1e-300, 6283.1}
	for len(values) < 20000 {
		values = append(values, (r.Float64()*2-1)*8)
	}
	out := ask(t, `
for x in cases:
    for f in (math.sin, math.cos, math.tan, math.atan):
        sys.stdout.buffer.write(np.float64(f(x)).tobytes())
`, nil, values)
	other := 0
	for _, x := range values {
		for i, got := range []float64{sine(x), cosine(x), tangent(x), arctangent(x)} {
			want := math.Float64frombits(le.Uint64(out))
			out = out[8:]
			if math.Abs(got-want) > math.Abs(math.Nextafter(want, math.Inf(1))-want) {
				t.Errorf("function %d of %v: %v; want %v", i, x, got, want)
			}
			if got != want {
				other++
			}
		}
	}
	if other > len(values)/100 {
		t.Errorf("%d of %d values differ in the last bit", other, 4*len(values))
	}
	t.Logf("%d of %d values differ in the last bit", other, 4*len(values))
}

func TestSpan(t *testing.T) {
	for at := -40; at <= 40; at++ {
		for step := -9; step <= 9; step++ {
			for _, limit := range []int{1, 2, 7, 30} {
				first, count := 0, 0
				for i := range 12 {
					if v := at + i*step; v >= 0 && v < limit {
						if count == 0 {
							first = i
						}
						count++
					}
				}
				if from, to := span(at, step, limit, 12); max(to-from, 0) != count || count > 0 && from != first {
					t.Fatalf("from %d by %d below %d: [%d, %d); want %d from %d", at, step, limit, from, to, count, first)
				}
			}
		}
	}
}

func TestInverse(t *testing.T) {
	m := affine(48, 31, 33, 5, -7, 1.3, 12, -8)
	inv, ok := m.Inverse()
	if !ok {
		t.Fatal("no inverse")
	}
	x, y := inv.at(m.at(17.25, 99.5))
	if math.Abs(x-17.25) > 1e-12 || math.Abs(y-99.5) > 1e-12 {
		t.Errorf("(%v, %v)", x, y)
	}
	for _, m := range []Matrix{{}, {1, 2, 0, 2, 4, 0}, {math.NaN(), 0, 0, 0, 1, 0}} {
		if _, ok := m.Inverse(); ok {
			t.Errorf("%v has an inverse", m)
		}
	}
}

func TestWarpRefusesNonsense(t *testing.T) {
	var ws Workspace
	m := picture(8, 8, true)
	mask := new(imaging.Mask)
	mask.Reset(8, 8)
	for name, err := range map[string]error{
		"no size":       ws.Warp(new(imaging.Image), m, IdentityMatrix, Nearest, Color{}),
		"no source":     ws.Warp(picture(8, 8, true), new(imaging.Image), IdentityMatrix, Nearest, Color{}),
		"NaN":           ws.Warp(picture(8, 8, true), m, Matrix{math.NaN()}, Nearest, Color{}),
		"interpolation": ws.Warp(picture(8, 8, true), m, IdentityMatrix, 9, Color{}),
		"mask, no size": ws.WarpMask(new(imaging.Mask), mask, IdentityMatrix, 0),
		"mask, none":    ws.WarpMask(mask, new(imaging.Mask), IdentityMatrix, 0),
		"mask, NaN":     ws.WarpMask(new(imaging.Mask), mask, Matrix{math.NaN()}, 0),
		"in place":      Warp{Matrix: Matrix{math.Inf(1)}}.Apply(&ws, m),
	} {
		if err == nil {
			t.Errorf("%s: passed", name)
		}
	}
	fresh := &imaging.Image{Width: 3, Height: 2}
	if err := ws.Warp(fresh, m, IdentityMatrix, Nearest, Color{}); err != nil || len(fresh.Pix) != 18 {
		t.Errorf("%v, %d bytes", err, len(fresh.Pix))
	}
	if !bytes.Equal(fresh.Pix[:9], m.Pix[:9]) {
		t.Error("the first row is another")
	}
}
