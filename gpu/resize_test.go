//go:build linux && (amd64 || arm64) && !nogpu

package gpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/resize"
	"shardify/internal/peers"
	"shardify/reader"
)

// picture is an image in the host's memory.
func picture(r *rand.Rand, w, h int) imaging.Image {
	var m imaging.Image
	m.Reset(w, h)
	for i := range m.Pix {
		// Noise under edges that are black and white, which filters overshoot.
		if m.Pix[i] = byte(r.Uint32()); i/40%3 == 0 {
			m.Pix[i] = byte(255 * (i / 40 % 2))
		}
	}
	return m
}

// ragged puts pictures into one tensor, side by side.
func ragged(t testing.TB, d *Device, all []imaging.Image) (Tensor, []Image) {
	t.Helper()
	var data []byte
	offsets, sizes := []int64{0}, []int64{}
	for i := range all {
		m := &all[i]
		for y := range m.Height {
			data = append(data, m.Pix[y*m.Stride:][:3*m.Width]...)
		}
		offsets, sizes = append(offsets, int64(len(data))), append(sizes, int64(m.Height), int64(m.Width))
	}
	x, err := d.Alloc("image", reader.DTypeUint8, len(data))
	if err == nil {
		err = errors.Join(d.Upload(x.Data, data, 0), d.Synchronize(0))
	}
	if err != nil {
		t.Fatal(err)
	}
	images, err := Ragged(x, offsets, sizes)
	if err != nil {
		t.Fatal(err)
	}
	return x, images
}

// resized is what the GPU makes of pictures, of which each takes width x height pixels.
func resized(t testing.TB, d *Device, z *Resizer, all []imaging.Image, each []Resizing, width, height int) []byte {
	t.Helper()
	x, images := ragged(t, d, all)
	dst, err := d.Alloc("out", reader.DTypeUint8, len(all), height, width, 3)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, dst.Bytes)
	// Poisoned, so that what is not written shows.
	if err := errors.Join(d.context.Set(dst.Data, 0xee, dst.Bytes, 0), z.Apply(dst, images, each, 0), d.Download(got, dst.Data, 0), d.Synchronize(0), d.Free(dst), d.Free(x)); err != nil {
		t.Fatal(err)
	}
	return got
}

// shown is what the host makes of a picture.
func (r Resizing) shown(t testing.TB, src *imaging.Image) []byte {
	t.Helper()
	var dst imaging.Image
	if r.Part != (resize.Rect{}) { // which package augment has not
		part := *src
		var err error
		if c := r.Crop; c != (augment.Region{}) {
			part, err = resize.Crop(src, c.X, c.Y, c.Width, c.Height)
		}
		dst.Reset(r.Width, r.Height)
		var z resize.Resizer
		if err = errors.Join(err, z.Resize(&dst, &part, r.Part, r.Filter)); err != nil {
			t.Fatal(err)
		}
		r = Resizing{Window: r.Window, PaddingMode: r.PaddingMode, Fill: r.Fill, FlipX: r.FlipX, FlipY: r.FlipY}
		m := dst
		src, dst = &m, imaging.Image{}
	}
	var ws augment.Workspace
	g := augment.Geometry{Crop: r.Crop, Width: r.Width, Height: r.Height, Window: r.Window, PaddingMode: r.PaddingMode, FlipX: r.FlipX, FlipY: r.FlipY}
	if err := ws.Image(&dst, src, g, augment.Look{Filter: r.Filter, Fill: r.Fill}); err != nil {
		t.Fatal(err)
	}
	return dst.Pix
}

// randomResizing makes width x height pixels of an image of w x h.
func randomResizing(r *rand.Rand, w, h, width, height int) Resizing {
	z := Resizing{Filter: resize.Filter(r.IntN(4)), FlipX: r.IntN(2) == 0, FlipY: r.IntN(3) == 0, Fill: augment.Color{1, byte(r.Uint32()), 3}}
	z.Window = augment.Region{Width: width, Height: height}
	z.Width, z.Height = width, height
	if r.IntN(4) > 0 {
		cw, ch := 1+r.IntN(w), 1+r.IntN(h)
		z.Crop = augment.Region{X: r.IntN(w - cw + 1), Y: r.IntN(h - ch + 1), Width: cw, Height: ch}
		w, h = cw, ch
	}
	switch r.IntN(6) {
	case 0: // a window of it
		z.Width, z.Height = width+r.IntN(20), height+r.IntN(20)
		z.Window.X, z.Window.Y = r.IntN(z.Width-width+1), r.IntN(z.Height-height+1)
	case 1: // it does not fill the window
		z.Width, z.Height = 1+r.IntN(2*width), 1+r.IntN(2*height)
		z.PaddingMode = augment.PaddingMode(r.IntN(4))
		z.Window.X, z.Window.Y = r.IntN(3*z.Width+2*width)-z.Width-width, r.IntN(3*z.Height+2*height)-z.Height-height
	case 2: // not scaled along one axis, or both
		if z.Width = w; r.IntN(2) == 0 {
			z.Height = h
		}
		z.PaddingMode = augment.PaddingMode(r.IntN(4))
		z.Window.X, z.Window.Y = r.IntN(9)-4, r.IntN(9)-4
	case 3: // a part with fractions
		x, y := float64(w)*r.Float64()*0.9, float64(h)*r.Float64()*0.9
		z.Part = resize.Rect{X0: x, Y0: y, X1: x + (float64(w)-x)*(0.1+0.9*r.Float64()), Y1: y + (float64(h)-y)*(0.1+0.9*r.Float64())}
	}
	return z
}

// Against imaging/resize and imaging/augment, on random images, parts, filters, windows
// and paddings, whichever thread of a block comes first: the same bytes.
func TestResize(t *testing.T) {
	for _, backwards := range []string{"0", "1"} {
		t.Setenv("FAKE_CUDA_BACKWARDS", backwards)
		d := device(t)
		const n = 16
		// One has memory for all of a batch, the other makes it in parts.
		memory := int64(0)
		if backwards == "1" {
			memory = 64 << 10
		}
		z, err := d.NewResizer(ResizerConfig{Images: n, Memory: memory})
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(11, 12))
		parts := 0
		first, rounds := 0, 2
		if racing || testing.Short() {
			rounds = 1
		}
		for _, size := range [][2]int{{32, 32}, {17, 9}, {1, 1}, {70, 50}, {33, 16}, {64, 3}, {5, 90}} {
			for range rounds {
				all, each := make([]imaging.Image, n), make([]Resizing, n)
				for i := range all {
					w, h := 1+r.IntN(150), 1+r.IntN(150)
					switch r.IntN(8) {
					case 0:
						h = 1 + r.IntN(1200) // rows are made smaller first
					case 1:
						w = 1 + r.IntN(4000) // rows do not fit into shared memory
					}
					all[i], each[i] = picture(r, w, h), randomResizing(r, w, h, size[0], size[1])
					_, _, across, _ := resize.Task{SourceWidth: w, SourceHeight: h, Part: resize.Rect{X1: 1, Y1: 1}, Width: each[i].Width, Height: each[i].Height}.Plan()
					first += int(flag(across))
				}
				got := resized(t, d, z, all, each, size[0], size[1])
				parts = max(parts, len(z.parts)-1)
				place := len(got) / n
				for i := range all {
					if want := each[i].shown(t, &all[i]); !bytes.Equal(got[i*place:][:place], want) {
						text, _ := json.Marshal(each[i])
						t.Fatalf("%d x %d to %v: %s: other bytes", all[i].Width, all[i].Height, size, text)
					}
				}
			}
		}
		if (memory > 0) != (parts > 1) {
			t.Errorf("with %d bytes for weights, a batch was made in %d parts", memory, parts)
		}
		if all := 7 * rounds * n; first < all/5 || first > all*9/10 {
			t.Errorf("the horizontal pass went first in %d of %d images", first, all)
		}
		if err := errors.Join(z.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	}
}

// Photographs, with what RandomResizedCrop draws, under every filter.
func TestResizePhotographs(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(peers.Photographs(t), "*.[jJ]*"))
	if err != nil || len(files) == 0 {
		t.Skipf("SKIPPED LOUDLY: no JPEG among the photographs: %v", err)
	}
	d := device(t)
	n := min(8, len(files))
	if racing || testing.Short() {
		n = 2
	}
	z, err := d.NewResizer(ResizerConfig{Images: n})
	if err != nil {
		t.Fatal(err)
	}
	all, each := make([]imaging.Image, n), make([]Resizing, n)
	for i := range all {
		data, err := os.ReadFile(files[i*len(files)/n])
		if err == nil {
			err = imaging.Std.Decode(data, &all[i], imaging.DecodeOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		r := augment.NewRand(4, 0, uint64(i))
		each[i] = Resizing{
			Crop: augment.RandomResizedCrop{}.Draw(&r, all[i].Width, all[i].Height), Width: 224, Height: 224, Filter: resize.Filter(i % 4),
			FlipX: augment.HorizontalFlip(&r, 0.5),
		}
	}
	got := resized(t, d, z, all, each, 224, 224)
	for i := range all {
		if place := 3 * 224 * 224; !bytes.Equal(got[i*place:][:place], each[i].shown(t, &all[i])) {
			t.Errorf("%s: %+v: other bytes", filepath.Base(files[i*len(files)/n]), each[i])
		}
	}
	if err := errors.Join(z.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

func TestResizeRefuses(t *testing.T) {
	d := device(t)
	z, err := d.NewResizer(ResizerConfig{Images: 2, Memory: 3000})
	if err != nil {
		t.Fatal(err)
	}
	dst := Tensor{DType: reader.DTypeUint8, Shape: []int{1, 4, 5, 3}, Data: 256, Bytes: 60}
	image := Image{Data: 1024, Width: 10, Height: 8, Stride: 30}
	good := Resizing{Width: 5, Height: 4}
	for _, c := range []struct {
		change func(dst *Tensor, src *Image, r *Resizing)
		want   string
	}{
		{func(dst *Tensor, _ *Image, _ *Resizing) { dst.DType = reader.DTypeFloat32 }, "want uint8 and [N, height, width, 3]"},
		{func(dst *Tensor, _ *Image, _ *Resizing) { dst.Shape = []int{3, 4, 5, 3} }, "a batch of 3, 1 images and what is made of 1, and a resizer for 1 to 2"},
		{func(dst *Tensor, _ *Image, _ *Resizing) { dst.Shape = []int{1, 0, 5, 3} }, "to images of 5 x 0"},
		{func(dst *Tensor, _ *Image, _ *Resizing) { dst.Bytes++ }, "61 bytes at 0x100 do not hold 1 images of 5 x 4"},
		{func(_ *Tensor, src *Image, _ *Resizing) { src.Stride = 29 }, "image 0: an image of 10 x 8 in rows of 29 bytes"},
		{func(_ *Tensor, src *Image, _ *Resizing) { src.Height = 0 }, "an image of 10 x 0"},
		{func(_ *Tensor, _ *Image, r *Resizing) { r.Width = 6 }, "it makes 6 x 4 pixels of an image of 10 x 8, in a batch of 5 x 4"},
		{func(_ *Tensor, _ *Image, r *Resizing) { r.Height = 0 }, "scaled to 5 x 0"},
		{func(_ *Tensor, _ *Image, r *Resizing) { r.Crop = augment.Region{X: 8, Width: 3, Height: 3} }, "does not lie within 10 x 8"},
		{func(_ *Tensor, _ *Image, r *Resizing) { r.Part = resize.Rect{X1: 11, Y1: 8} }, "reaches beyond the source of 10 x 8"},
		{func(_ *Tensor, _ *Image, r *Resizing) { r.Filter = 9 }, "no filter has the number 9"},
		{func(_ *Tensor, _ *Image, r *Resizing) { r.PaddingMode = 9 }, "no padding mode has the number 9"},
		{func(_ *Tensor, src *Image, _ *Resizing) { src.Width, src.Stride = 1<<20, 3<<20 }, "image 0: its weights take 8388812 bytes, and the resizer has memory for 3000; set more in ResizerConfig"},
	} {
		to, from, r := dst, image, good
		c.change(&to, &from, &r)
		if err := z.Apply(to, []Image{from}, []Resizing{r}, 0); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v\ndoes not say %q", err, c.want)
		}
	}
	if _, err := d.NewResizer(ResizerConfig{Memory: -1}); err == nil || !strings.Contains(err.Error(), "images: 0") || !strings.Contains(err.Error(), "memory: -1") {
		t.Error(err)
	}
	if err := errors.Join(z.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	x := Tensor{DType: reader.DTypeUint8, Shape: []int{100}, Data: 256, Bytes: 100}
	if got, err := Ragged(x, []int64{0, 60, 100}, []int64{4, 5, 1, 13}); err == nil {
		t.Errorf("%+v of 40 bytes for 13 pixels", got)
	}
	if got, err := Ragged(x, []int64{0, 60, 99}, []int64{4, 5, 1, 13}); err != nil || !slices.Equal(got, []Image{{256, 5, 4, 15}, {316, 13, 1, 39}}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, c := range []struct{ offsets, sizes []int64 }{
		{nil, nil}, {[]int64{0, 3}, []int64{1}}, {[]int64{-3, 0}, []int64{1, 1}}, {[]int64{99, 102}, []int64{1, 1}}, {[]int64{0, 3}, []int64{1 << 62, 1 << 62}},
	} {
		if got, err := Ragged(x, c.offsets, c.sizes); err == nil {
			t.Errorf("%v of %+v", got, c)
		}
	}
	if a, b := unsafe.Sizeof(resizeSample{}), unsafe.Sizeof(resizeAxis{}); fmt.Sprint(a, b) != "176 64" {
		t.Errorf("a sample takes %d bytes, an axis %d", a, b)
	}
}
