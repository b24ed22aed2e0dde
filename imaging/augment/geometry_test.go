package augment

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"shardify/imaging"
	"shardify/imaging/resize"
)

// geometries makes random ones for sources of width x height: every step is left out
// at times, and every padding mode occurs, also far outside.
func geometries(r *rand.Rand, width, height, n int) []Geometry {
	var list []Geometry
	for range n {
		var g Geometry
		w, h := width, height
		if r.IntN(3) > 0 {
			w, h = 1+r.IntN(width), 1+r.IntN(height)
			g.Crop = Region{r.IntN(width - w + 1), r.IntN(height - h + 1), w, h}
		}
		if r.IntN(3) > 0 {
			w, h = 1+r.IntN(80), 1+r.IntN(80)
			g.Width, g.Height = w, h
		}
		if r.IntN(2) > 0 {
			g.Window = Region{r.IntN(2*w) - w/2, r.IntN(2*h) - h/2, 1 + r.IntN(2*w), 1 + r.IntN(2*h)}
			if r.IntN(8) == 0 {
				g.Window.X = 3 * w
			}
			w, h = g.Window.Width, g.Window.Height
			g.PaddingMode = PaddingMode(r.IntN(4))
		}
		g.FlipX, g.FlipY = r.IntN(2) == 0, r.IntN(2) == 0
		if r.IntN(3) == 0 {
			g.Matrix = affine(float64(w)/2, float64(h)/2, r.Float64()*360, float64(r.IntN(7)), 0, 0.5+r.Float64(), r.Float64()*20, 0)
		}
		list = append(list, g)
	}
	return list
}

type placed struct {
	Image  int
	Given  Geometry
	G      Geometry // with the defaults written out
	Filter resize.Filter
	Warp   Interpolation
	Fill   [3]int
}

// One step of Pillow after another gives the same image, and the same mask. Padding is
// numpy's, as torchvision's of PIL images is but for one colour.
func TestGeometryEqualsPillow(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	images := []*imaging.Image{picture(97, 61, false), picture(40, 64, true), picture(5, 3, true), picture(1, 9, true)}
	var cases []placed
	for i, m := range images {
		for _, g := range geometries(r, m.Width, m.Height, 120) {
			cases = append(cases, placed{i, g, g.resolve(m.Width, m.Height), resize.Filter(r.IntN(3)), Interpolation(r.IntN(2)), [3]int{r.IntN(256), r.IntN(256), r.IntN(256)}})
		}
	}
	want := ask(t, `
T = Image.Transpose
named = {"bilinear": Image.Resampling.BILINEAR, "box": Image.Resampling.BOX, "bicubic": Image.Resampling.BICUBIC, "nearest": Image.Resampling.NEAREST}

def show(image, g, filter, warp, fill):
    c, w = g["crop"], g["window"]
    image = image.crop((c["x"], c["y"], c["x"] + c["width"], c["y"] + c["height"]))
    image = image.resize((g["width"], g["height"]), filter)
    right, bottom = w["x"] + w["width"], w["y"] + w["height"]
    left, top = max(-w["x"], 0), max(-w["y"], 0)
    pad = ((top, max(bottom - image.height, 0)), (left, max(right - image.width, 0)))
    mode = g.get("padding_mode", "constant")
    a = np.asarray(image)
    if mode == "constant":
        b = np.empty((a.shape[0] + sum(pad[0]), a.shape[1] + sum(pad[1])) + a.shape[2:], np.uint8)
        b[:] = fill
        b[top : top + a.shape[0], left : left + a.shape[1]] = a
    else:
        b = np.pad(a, pad + ((0, 0),) * (a.ndim - 2), mode)
    x, y = w["x"] + left, w["y"] + top
    image = Image.fromarray(np.ascontiguousarray(b[y : y + w["height"], x : x + w["width"]]))
    if g.get("flip_x"):
        image = image.transpose(T.FLIP_LEFT_RIGHT)
    if g.get("flip_y"):
        image = image.transpose(T.FLIP_TOP_BOTTOM)
    return image.transform(image.size, Image.Transform.AFFINE, g["matrix"], warp, fillcolor=fill)

for c in cases:
    image = images[c["Image"]]
    put(show(image, c["G"], named[c["Filter"]], named[c["Warp"]], tuple(c["Fill"])))
    put(show(image.getchannel(0), c["G"], Image.Resampling.NEAREST, Image.Resampling.NEAREST, c["Fill"][0]))
`, images, cases)
	var ws Workspace
	var fresh imaging.Image
	for _, c := range cases {
		m := images[c.Image]
		src, _ := strided(m)
		w, h := c.Given.Size(m.Width, m.Height)
		blank := new(imaging.Image)
		blank.Reset(w, h)
		view, untouched := strided(blank)
		look := Look{c.Filter, c.Warp, Color{uint8(c.Fill[0]), uint8(c.Fill[1]), uint8(c.Fill[2])}}
		if err := ws.Image(view, src, c.Given, look); err != nil {
			t.Fatal(err)
		}
		n := 3 * w * h
		if count, most := difference(packed(view), want[:n]); count > 0 {
			t.Errorf("%+v of %d x %d: %d of %d bytes differ, by up to %d", c, m.Width, m.Height, count, n, most)
		}
		if !untouched() {
			t.Errorf("%+v wrote outside the image", c)
		}
		if err := ws.Image(&fresh, m, c.Given, look); err != nil || !bytes.Equal(packed(&fresh), packed(view)) {
			t.Errorf("%+v is another in memory of its own; %v", c, err)
		}
		want = want[n:]

		mask, dst := red(m), new(imaging.Mask)
		if err := ws.Mask(dst, mask, c.Given, uint8(c.Fill[0])); err != nil {
			t.Fatal(err)
		}
		if count, _ := difference(dst.Pix, want[:w*h]); count > 0 || dst.Width != w || dst.Height != h {
			t.Errorf("%+v of %d x %d: the mask is %d x %d, and %d bytes differ", c, m.Width, m.Height, dst.Width, dst.Height, count)
		}
		want = want[w*h:]
	}
	if len(want) != 0 {
		t.Errorf("%d bytes too many", len(want))
	}
}

// red returns the red channel as a mask, with gaps between its rows.
func red(m *imaging.Image) *imaging.Mask {
	mask := &imaging.Mask{Width: m.Width, Height: m.Height, Stride: m.Width + 3}
	mask.Pix = make([]uint8, mask.Stride*m.Height-3)
	for y := range m.Height {
		for x := range m.Width {
			mask.Pix[y*mask.Stride+x] = m.Pix[y*m.Stride+3*x]
		}
	}
	return mask
}

// A box follows its pixels: a rectangle painted into an image and a mask is found, after
// any geometry, within its box, and without a matrix fills it.
func TestBoxesFollowPixels(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	var ws Workspace
	found, dropped := 0, 0
	for _, g := range geometries(r, 90, 70, 3000) {
		g.PaddingMode = Constant
		src, dst := new(imaging.Mask), new(imaging.Mask)
		src.Reset(90, 70)
		clear(src.Pix)
		x0, y0 := r.IntN(80), r.IntN(60)
		x1, y1 := x0+1+r.IntN(90-x0), y0+1+r.IntN(70-y0)
		for y := y0; y < y1; y++ {
			for x := x0; x < x1; x++ {
				src.Pix[y*src.Stride+x] = 1
			}
		}
		if err := ws.Mask(dst, src, g, 0); err != nil {
			t.Fatal(err)
		}
		seen := Box{math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)}
		for y := range dst.Height {
			for x := range dst.Width {
				if dst.Pix[y*dst.Stride+x] == 1 {
					seen[0], seen[1] = min(seen[0], float64(x)), min(seen[1], float64(y))
					seen[2], seen[3] = max(seen[2], float64(x+1)), max(seen[3], float64(y+1))
				}
			}
		}
		boxes, kept, err := g.Boxes([]Box{{float64(x0), float64(y0), float64(x1), float64(y1)}}, nil, 90, 70, BoxFilter{})
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case len(boxes) == 0 && seen[0] < seen[2]:
			t.Errorf("%+v: no box, but the pixels %v", g, seen)
		case len(boxes) == 0:
			dropped++
		case seen[0] < seen[2]:
			found++
			if !reflect.DeepEqual(kept, []int{0}) {
				t.Errorf("kept %v", kept)
			}
			b := boxes[0]
			// A pixel is shown if its centre is in the box: half a pixel is lost or won on
			// each side. Scaling before a matrix does so too, which the matrix then turns.
			beyond := [2]float64{0.5, 0.5}
			if f, ok := g.Matrix.Inverse(); ok && g.Width > 0 {
				beyond[0] += 0.5 * (math.Abs(f[0]) + math.Abs(f[1]))
				beyond[1] += 0.5 * (math.Abs(f[3]) + math.Abs(f[4]))
			}
			for i, d := range []float64{b[0] - seen[0], b[1] - seen[1], seen[2] - b[2], seen[3] - b[3]} {
				if d > beyond[i%2]+1e-6 {
					t.Errorf("%+v: side %d of %v is outside %v by %v", g, i, seen, b, d)
				}
				if g.Matrix == (Matrix{}) && d < -0.5-1e-6 {
					t.Errorf("%+v: side %d of %v is inside %v by %v", g, i, seen, b, -d)
				}
			}
		}
	}
	if found < 1000 || dropped < 100 {
		t.Errorf("%d boxes found, %d dropped", found, dropped)
	}
}

// The same boxes as torchvision's kernels make, step by step (crop, resize, pad or crop,
// flips, affine, each clamped), and the same ones dropped as by SanitizeBoundingBoxes.
func TestBoxesEqualTorchvision(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	type boxed struct {
		G     Geometry
		Boxes []Box
	}
	var cases []boxed
	var given []Geometry
	for _, g := range geometries(r, 90, 70, 400) {
		c := boxed{G: g.resolve(90, 70)}
		for range 8 {
			x, y := r.Float64()*100-5, r.Float64()*80-5
			c.Boxes = append(c.Boxes, Box{x, y, x + r.Float64()*60 - 3, y + r.Float64()*60 - 3})
		}
		cases, given = append(cases, c), append(given, g)
	}
	out := ask(t, `
def clamp(b, w, h):
    b = b.copy()
    b[:, 0::2] = b[:, 0::2].clip(0, w)
    b[:, 1::2] = b[:, 1::2].clip(0, h)
    return b

answer = []
for case in cases:
    g, b = case["G"], np.array(case["Boxes"])
    c, w = g["crop"], g["window"]
    W, H = w["width"], w["height"]
    b = clamp(b - [c["x"], c["y"]] * 2, c["width"], c["height"])
    b = b * ([g["width"] / c["width"], g["height"] / c["height"]] * 2)
    b = clamp(b - [w["x"], w["y"]] * 2, W, H)
    if g.get("flip_x"):
        b[:, [2, 0]] = W - b[:, [0, 2]]
    if g.get("flip_y"):
        b[:, [3, 1]] = H - b[:, [1, 3]]
    live = (b[:, 2] > b[:, 0]) & (b[:, 3] > b[:, 1])
    m = np.linalg.inv(np.array(g["matrix"] + [0, 0, 1]).reshape(3, 3))
    if g["matrix"] != [1, 0, 0, 0, 1, 0]:
        p = b[:, [[0, 1], [2, 1], [2, 3], [0, 3]]]
        p = p @ m[:2, :2].T + m[:2, 2]
        b = clamp(np.concatenate([p.min(1), p.max(1)], 1), W, H)
    ws, hs = b[:, 2] - b[:, 0], b[:, 3] - b[:, 1]
    ok = live & (ws >= 1) & (hs >= 1) & (ws * hs >= 1)
    answer.append([b[ok].tolist(), np.flatnonzero(ok).tolist()])
json.dump(answer, sys.stdout)
`, nil, cases)
	var want [][2]json.RawMessage
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	total := 0
	for i, g := range given {
		var boxes []Box
		kept := []int{}
		if err := json.Unmarshal(want[i][0], &boxes); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(want[i][1], &kept); err != nil {
			t.Fatal(err)
		}
		got, gotKept, err := g.Boxes(cases[i].Boxes, []int{}, 90, 70, BoxFilter{MinSize: 1, MinArea: 1})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(gotKept, kept) {
			t.Fatalf("%+v: kept %v; want %v", g, gotKept, kept)
		}
		for j := range got {
			total++
			for k := range got[j] {
				if math.Abs(got[j][k]-boxes[j][k]) > 1e-9 {
					t.Fatalf("%+v: %v; want %v", g, got[j], boxes[j])
				}
			}
		}
	}
	if total < 500 {
		t.Errorf("only %d boxes were left to compare", total)
	}
}

func TestBoxFilter(t *testing.T) {
	nan := math.NaN()
	all := func() []Box {
		return []Box{{0, 0, 10, 10}, {15, 15, 35, 35}, {30, 0, 40, 10}, {5, 5, 5, 9}, {3, 3, 2, 2}, {nan, 0, 5, 5}, {0, 0, 0.5, 8}}
	}
	g := Geometry{Crop: Region{0, 0, 20, 20}}
	for _, c := range []struct {
		f    BoxFilter
		want []int
	}{
		{BoxFilter{}, []int{0, 1, 6}},
		{BoxFilter{MinSize: 1}, []int{0, 1}},
		{BoxFilter{MinArea: 26}, []int{0}},
		{BoxFilter{MinVisibility: 0.0625}, []int{0, 1, 6}}, // 25 of 400
		{BoxFilter{MinVisibility: 0.0626}, []int{0, 6}},
	} {
		if err := c.f.Validate(); err != nil {
			t.Error(err)
		}
		got, kept, err := g.Boxes(all(), nil, 50, 50, c.f)
		if err != nil || !reflect.DeepEqual(kept, c.want) || len(got) != len(kept) {
			t.Errorf("%+v: kept %v, boxes %v, %v; want %v", c.f, kept, got, err, c.want)
		}
	}
	for _, f := range []BoxFilter{{MinSize: -1}, {MinArea: nan}, {MinVisibility: 1.1}} {
		if f.Validate() == nil {
			t.Errorf("%+v passed", f)
		}
	}
}

func TestGeometryRefusesWhatDoesNotFit(t *testing.T) {
	var ws Workspace
	m := picture(20, 10, true)
	for _, g := range []Geometry{
		{Crop: Region{0, 0, 21, 10}}, {Crop: Region{-1, 0, 5, 5}}, {Crop: Region{0, 0, 0, 5}}, {Crop: Region{math.MaxInt, 0, 2, 2}},
		{Width: 5}, {Width: -1, Height: 5}, {Width: 1 << 25, Height: 1}, {Window: Region{0, 0, 0, 1}}, {Window: Region{math.MaxInt, 0, 1, 1}},
		{PaddingMode: 4}, {Matrix: Matrix{1, 1, 0, 1, 1, 0}}, {Matrix: Matrix{math.NaN(), 0, 0, 0, 1, 0}},
	} {
		if ws.Image(new(imaging.Image), m, g, Look{}) == nil {
			t.Errorf("%+v of an image passed", g)
		}
		if ws.Mask(new(imaging.Mask), red(m), g, 0) == nil {
			t.Errorf("%+v of a mask passed", g)
		}
		if _, _, err := g.Boxes(nil, nil, 20, 10, BoxFilter{}); err == nil {
			t.Errorf("%+v of boxes passed", g)
		}
	}
	if ws.Image(new(imaging.Image), m, Geometry{}, Look{Interpolation: 5}) == nil || ws.Image(new(imaging.Image), m, Geometry{}, Look{Filter: 77}) == nil {
		t.Error("a look of no meaning passed")
	}
	if ws.Mask(new(imaging.Mask), &imaging.Mask{Width: 2, Height: 2, Stride: 2, Pix: make([]byte, 3)}, Geometry{}, 0) == nil {
		t.Error("a mask without its pixels passed")
	}
}

func TestGeometryIsJSON(t *testing.T) {
	g := Geometry{Crop: Region{1, 2, 3, 4}, Width: 5, Height: 6, Window: Region{-1, 0, 8, 9}, PaddingMode: Symmetric, FlipX: true, FlipY: true, Matrix: Matrix{1, 2, 3, 4, 5, 6}}
	text, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	var back Geometry
	if err := json.Unmarshal(text, &back); err != nil || back != g {
		t.Errorf("%s: %+v, %v", text, back, err)
	}
	if text, err := json.Marshal(Geometry{}); err != nil || string(text) != "{}" {
		t.Errorf("%s, %v", text, err)
	}
}

func TestFlipsEqualTheirDefinition(t *testing.T) {
	for _, size := range [][2]int{{1, 1}, {2, 1}, {1, 2}, {7, 5}, {700, 4}} {
		m := picture(size[0], size[1], true)
		x, untouchedX := strided(m)
		y, untouchedY := strided(m)
		FlipX(x)
		FlipY(y)
		for r := range m.Height {
			for c := range m.Width {
				p := m.Pix[r*m.Stride+3*c:][:3]
				if !bytes.Equal(p, x.Pix[r*x.Stride+3*(m.Width-1-c):][:3]) || !bytes.Equal(p, y.Pix[(m.Height-1-r)*y.Stride+3*c:][:3]) {
					t.Fatalf("%d x %d: pixel (%d, %d)", m.Width, m.Height, c, r)
				}
			}
		}
		if !untouchedX() || !untouchedY() {
			t.Error("wrote outside the image")
		}
	}
}

func BenchmarkGeometry(b *testing.B) {
	src := picture(500, 375, false)
	mask := red(src)
	g := Geometry{Crop: Region{50, 40, 300, 280}, Width: 224, Height: 224, FlipX: true}
	turned := g
	turned.Matrix = rotation(10, 112, 112)
	var ws Workspace
	b.Run("image", func(b *testing.B) {
		var dst imaging.Image
		b.ReportAllocs()
		for b.Loop() {
			if err := ws.Image(&dst, src, g, Look{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("mask", func(b *testing.B) {
		var dst imaging.Mask
		b.ReportAllocs()
		for b.Loop() {
			if err := ws.Mask(&dst, mask, g, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("mask turned", func(b *testing.B) {
		var dst imaging.Mask
		b.ReportAllocs()
		for b.Loop() {
			if err := ws.Mask(&dst, mask, turned, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("10 boxes turned", func(b *testing.B) {
		boxes, kept := make([]Box, 10), make([]int, 0, 10)
		b.ReportAllocs()
		for b.Loop() {
			for i := range boxes {
				boxes[i] = Box{float64(60 + i), 50, 200, float64(100 + i)}
			}
			if _, _, err := turned.Boxes(boxes, kept[:0], 500, 375, BoxFilter{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("flip", func(b *testing.B) {
		m := picture(224, 224, false)
		for b.Loop() {
			FlipX(m)
		}
	})
	b.Run("vertical flip", func(b *testing.B) {
		m := picture(224, 224, false)
		for b.Loop() {
			FlipY(m)
		}
	})
}
