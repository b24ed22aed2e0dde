package resize

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"

	"shardify/imaging/internal/raster"
)

func TestWindowIsACropOfTheWhole(t *testing.T) {
	m := noise(97, 83)
	r := rand.New(rand.NewPCG(5, 6))
	var z, fresh Resizer
	for range 400 {
		w, h := 1+r.IntN(140), 1+r.IntN(140)
		box := Full(m)
		switch r.IntN(3) {
		case 0:
			box = Rect{r.Float64() * 40, r.Float64() * 40, 50 + r.Float64()*47, 50 + r.Float64()*33}
		case 1: // an axis that stays as it is
			w = m.Width
			if r.IntN(2) == 0 {
				h = m.Height
			}
		}
		f := Filter(r.IntN(len(filters)))
		whole := raster.Image{Width: w, Height: h}
		if err := fresh.Resize(&whole, m, box, f); err != nil {
			t.Fatal(err)
		}
		part := raster.Image{Width: 1 + r.IntN(w), Height: 1 + r.IntN(h)}
		x, y := r.IntN(w-part.Width+1), r.IntN(h-part.Height+1)
		if err := z.ResizeWindow(&part, m, box, f, w, h, x, y); err != nil {
			t.Fatal(err)
		}
		want, err := Crop(&whole, x, y, part.Width, part.Height)
		if err != nil {
			t.Fatal(err)
		}
		for row := range part.Height {
			if !bytes.Equal(part.Pix[row*part.Stride:][:3*part.Width], want.Pix[row*want.Stride:][:3*part.Width]) {
				t.Fatalf("%d x %d of %v, %v, window of %d x %d at (%d, %d): row %d differs", w, h, box, f, part.Width, part.Height, x, y, row)
			}
		}
	}
}

// Rows and columns that the filter does not see may be anything, or missing.
func TestOnlyWhatTheBoxNeedsIsRead(t *testing.T) {
	m := noise(120, 90)
	box := Rect{40.5, 30.25, 80, 60}
	var z Resizer
	for f := range filters {
		for _, h := range []int{20, 50, 2} { // either order of the passes
			want, got := raster.Image{Width: 20, Height: h}, raster.Image{Width: 20, Height: h}
			if err := z.Resize(&want, m, box, Filter(f)); err != nil {
				t.Fatal(err)
			}
			// The filter's reach beyond the box, in pixels of the source.
			reachX := int(math.Ceil(filters[f].support*39.5/20)) + 1
			reachY := int(math.Ceil(filters[f].support*max(29.75/float64(h), 1))) + 1
			other := raster.Image{Pix: bytes.Clone(m.Pix), Width: m.Width, Height: m.Height, Stride: m.Stride}
			for y := range m.Height {
				for x := range m.Width {
					if x < 40-reachX || x >= 80+reachX || y < 30-reachY || y >= 60+reachY {
						copy(other.Pix[y*m.Stride+3*x:], []byte{1, 2, 3})
					}
				}
			}
			if err := z.Resize(&got, &other, box, Filter(f)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(want.Pix, got.Pix) {
				t.Errorf("%v to %d rows: pixels far from the box changed the result", Filter(f), h)
			}
		}
	}
}

// A destination within a larger image leaves the rest of it alone; a source with
// gaps between its rows may end with its last pixel.
func TestStrides(t *testing.T) {
	m := noise(50, 40)
	var z Resizer
	want := raster.Image{Width: 17, Height: 13}
	crop, err := Crop(m, 3, 4, 47, 36)
	if err != nil {
		t.Fatal(err)
	}
	if err := z.Resize(&want, &crop, Full(&crop), Bicubic); err != nil {
		t.Fatal(err)
	}
	const stride = 17*3 + 10
	pix := bytes.Repeat([]byte{0xee}, 13*stride)
	dst := raster.Image{Pix: pix, Width: 17, Height: 13, Stride: stride}
	if err := z.Resize(&dst, &crop, Full(&crop), Bicubic); err != nil {
		t.Fatal(err)
	}
	for y := range 13 {
		row := pix[y*stride:][:stride]
		if !bytes.Equal(row[:51], want.Pix[y*want.Stride:][:51]) {
			t.Errorf("row %d differs", y)
		}
		if !bytes.Equal(row[51:], bytes.Repeat([]byte{0xee}, 10)) {
			t.Errorf("row %d: wrote beyond the image", y)
		}
	}
}

func TestResizeRefusesWhatDoesNotFit(t *testing.T) {
	m := noise(10, 8)
	nan := math.NaN()
	var z Resizer
	for name, c := range map[string]struct {
		src *raster.Image
		w   int
		r   Rect
		f   Filter
	}{
		"no size":        {m, 0, Full(m), Box},
		"no filter":      {m, 4, Full(m), 17},
		"box outside":    {m, 4, Rect{0, 0, 10.5, 8}, Box},
		"box below zero": {m, 4, Rect{-0.5, 0, 10, 8}, Box},
		"empty box":      {m, 4, Rect{3, 3, 3, 8}, Box},
		"reversed box":   {m, 4, Rect{3, 3, 2, 8}, Box},
		"too thin a box": {m, 4, Rect{3, 3, 3 + 1e-9, 8}, Box},
		"not a number":   {m, 4, Rect{nan, 0, 10, 8}, Box},
		"no source":      {&raster.Image{}, 4, Rect{0, 0, 1, 1}, Box},
		"short source":   {&raster.Image{Pix: m.Pix[:239], Width: 10, Height: 8, Stride: 30}, 4, Full(m), Box},
	} {
		if err := z.Resize(&raster.Image{Width: c.w, Height: 4}, c.src, c.r, c.f); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, c := range [][4]int{{20, 20, 17, 0}, {20, 20, 0, 17}, {20, 20, -1, 0}, {3, 20, 0, 0}} {
		if err := z.ResizeWindow(&raster.Image{Width: 4, Height: 4}, m, Full(m), Box, c[0], c[1], c[2], c[3]); err == nil {
			t.Errorf("window %v: no error", c)
		}
	}
	if _, err := Crop(m, 3, 0, 8, 8); err == nil {
		t.Error("a crop beyond the image: no error")
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	m := noise(300, 200)
	var z Resizer
	dst := raster.Image{Width: 64, Height: 64}
	i := 0
	if n := testing.AllocsPerRun(20, func() {
		i++
		r := Rect{float64(i % 9), float64(i % 7), 250, 180}
		if i == 1 {
			r = Full(m)
		}
		for f := range filters {
			if err := z.Resize(&dst, m, r, Filter(f)); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestFilterIsText(t *testing.T) {
	for f := range filters {
		text, err := json.Marshal(Filter(f))
		if err != nil {
			t.Fatal(err)
		}
		var back Filter
		if err := json.Unmarshal(text, &back); err != nil || back != Filter(f) {
			t.Errorf("%s: %v, %v", text, back, err)
		}
	}
	var f Filter
	if json.Unmarshal([]byte(`"nearest"`), &f) == nil {
		t.Error("nearest passed")
	}
}
