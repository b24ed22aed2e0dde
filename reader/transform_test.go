package reader

import (
	"bytes"
	"encoding/json"
	"errors"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"shardify/dataset/datasettest"
	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
	"shardify/imaging/transform"
	"shardify/sample/typed"
)

// noise is a PNG of random pixels, and the pixels.
func noise(t testing.TB, w, h int) (file []byte, pixels imaging.Image) {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(w), uint64(h)))
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			m.SetNRGBA(x, y, color.NRGBA{uint8(random.Uint32()), uint8(random.Uint32()), uint8(random.Uint32()), 255})
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	if err := imaging.Std.Decode(b.Bytes(), &pixels, imaging.DecodeOptions{}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), pixels
}

// pictureOf makes an image's picture as RGB rows without gaps.
func pictureOf(t testing.TB, c Config, file []byte) []byte {
	t.Helper()
	c.Layout = LayoutNHWC
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	c = c.withDefaults()
	m, in := imagerOf(t, &c)
	dst := make([]byte, in.bytes)
	if err := m.make(new(picture), &in, dst, file, augment.NewRand(1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	return dst
}

func imagerOf(t testing.TB, c *Config) (imager, canvas) {
	t.Helper()
	p, err := c.canvases()
	if err != nil {
		t.Fatal(err)
	}
	return newImager(c, p, newJPEGDecoder), p[0]
}

// mirrored mirrors rows of pixels.
func mirrored(pix []byte, side int) []byte {
	out := bytes.Clone(pix)
	for row := range slices.Chunk(out, 3*side) {
		for x := range side / 2 {
			for c := range 3 {
				row[3*x+c], row[3*(side-1-x)+c] = row[3*(side-1-x)+c], row[3*x+c]
			}
		}
	}
	return out
}

// Torchvision's CenterCrop, pixel by pixel: where the image is too small it has a
// black border of (size-length)/2 pixels at the left and top, rounded down.
func TestCenterCrop(t *testing.T) {
	for _, size := range [][2]int{{20, 20}, {21, 30}, {31, 22}, {7, 40}, {40, 7}, {6, 5}, {1, 1}} {
		w, h := size[0], size[1]
		file, m := noise(t, w, h)
		for _, side := range []int{1, 2, 7, 20, 21} {
			got := pictureOf(t, Config{Transform: transform.List{transform.CenterCrop{Size: transform.Size{side}}}}, file)
			start := func(length int) int {
				if length < side {
					return -((side - length) / 2)
				}
				return int(math.RoundToEven(float64(length-side) / 2))
			}
			x0, y0 := start(w), start(h)
			for y := range side {
				for x := range side {
					want := []byte{0, 0, 0}
					if sx, sy := x0+x, y0+y; sx >= 0 && sx < w && sy >= 0 && sy < h {
						want = m.Pix[sy*m.Stride+3*sx:][:3]
					}
					if !bytes.Equal(got[3*(y*side+x):][:3], want) {
						t.Fatalf("%d × %d to %d: pixel (%d, %d) is %v, want %v", w, h, side, x, y, got[3*(y*side+x):][:3], want)
					}
				}
			}
			// A flip before it mirrors the whole picture first, one behind it the crop.
			behind := pictureOf(t, Config{Transform: transform.List{transform.CenterCrop{Size: transform.Size{side}}, transform.RandomHorizontalFlip{P: 1}}}, file)
			if !bytes.Equal(behind, mirrored(got, side)) {
				t.Errorf("%d × %d to %d: the flip behind the crop is none of it", w, h, side)
			}
		}
	}
}

// The flip is carried out at the end, but the crop sees a mirrored picture.
func TestFlipBeforeCrop(t *testing.T) {
	for _, size := range [][2]int{{20, 20}, {21, 30}, {30, 21}, {7, 9}} {
		file, m := noise(t, size[0], size[1])
		flipped := image.NewNRGBA(image.Rect(0, 0, m.Width, m.Height))
		for y := range m.Height {
			for x := range m.Width {
				p := m.Pix[y*m.Stride+3*x:]
				flipped.SetNRGBA(m.Width-1-x, y, color.NRGBA{p[0], p[1], p[2], 255})
			}
		}
		var b bytes.Buffer
		if err := png.Encode(&b, flipped); err != nil {
			t.Fatal(err)
		}
		for _, step := range []transform.Transform{transform.CenterCrop{Size: transform.Size{12}}, transform.CenterCrop{Size: transform.Size{15}}, transform.RandomResizedCrop{Size: transform.Size{9}}} {
			_, crop := step.(transform.CenterCrop)
			// Flips of probability 1 and next to 0 draw the same number.
			got := pictureOf(t, Config{Transform: transform.List{transform.RandomHorizontalFlip{P: 1}, step}}, file)
			want := pictureOf(t, Config{Transform: transform.List{transform.RandomHorizontalFlip{P: 1e-300}, step}}, b.Bytes())
			for i := range got {
				// Resizing a mirrored picture may round differently.
				if d := int(got[i]) - int(want[i]); d < -1 || d > 1 || d != 0 && crop {
					t.Fatalf("%v %+v: byte %d is %d, of the mirrored picture %d", size, step, i, got[i], want[i])
				}
			}
		}
	}
}

// Resize and CenterCrop in one step are what they are in two.
func TestResizeWindow(t *testing.T) {
	for _, size := range [][2]int{{50, 37}, {37, 50}, {33, 33}, {5, 90}, {200, 100}} {
		file, m := noise(t, size[0], size[1])
		got := pictureOf(t, Config{Transform: transform.List{transform.Resize{Size: transform.Size{32}}, transform.CenterCrop{Size: transform.Size{28}}}}, file)
		var scaled imaging.Image
		short := min(m.Width, m.Height)
		scaled.Reset(32*m.Width/short, 32*m.Height/short)
		var z resize.Resizer
		if err := z.Resize(&scaled, &m, resize.Full(&m), resize.Bilinear); err != nil {
			t.Fatal(err)
		}
		middle := func(length int) int { return int(math.RoundToEven(float64(length-28) / 2)) }
		part, err := resize.Crop(&scaled, middle(scaled.Width), middle(scaled.Height), 28, 28)
		if err != nil {
			t.Fatal(err)
		}
		for y := range 28 {
			if !bytes.Equal(got[3*28*y:][:3*28], part.Pix[y*part.Stride:][:3*28]) {
				t.Fatalf("%v: row %d differs", size, y)
			}
		}
	}
}

func TestNormalized(t *testing.T) {
	file, m := noise(t, 4, 4)
	for _, layout := range []Layout{LayoutNCHW, LayoutNHWC} {
		c := Config{Transform: transform.List{transform.CenterCrop{Size: transform.Size{4}}, transform.ImageNet}, DType: DTypeFloat32, Layout: layout}
		c = c.withDefaults()
		im, in := imagerOf(t, &c)
		dst := aligned(3 * 4 * 4 * 4)
		if err := im.make(new(picture), &in, dst, file, augment.NewRand(0, 0, 0)); err != nil {
			t.Fatal(err)
		}
		for y := range 4 {
			for x := range 4 {
				for ch := range 3 {
					at := (y*4+x)*3 + ch
					if layout == LayoutNCHW {
						at = ch*16 + y*4 + x
					}
					want := (float64(m.Pix[y*m.Stride+3*x+ch])/255 - float64(transform.ImageNet.Mean[ch])) / float64(transform.ImageNet.Std[ch])
					if got := float64(elementsOf[float32](dst)[at]); math.Abs(got-want) > 1e-6 {
						t.Errorf("%v (%d, %d, %d): %v, want %v", layout, x, y, ch, got, want)
					}
				}
			}
		}
	}
}

// Images of 16 bits are those of float32, each number rounded once; under any layout, with
// transforms that end as the image is decoded and with such that go on behind it.
func TestHalves(t *testing.T) {
	d := small(t, datasettest.Options{})
	for _, text := range []string{
		`[{"random_resized_crop": 24}, "random_horizontal_flip", {"normalize": "imagenet"}]`,
		`[{"random_resized_crop": 24}, {"random_erasing": {"p": 1}}]`,
	} {
		var list transform.List
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Fatal(err)
		}
		for _, layout := range []Layout{LayoutNCHW, LayoutNHWC} {
			images := map[DType][]float32{}
			for _, dtype := range []DType{DTypeFloat32, DTypeFloat16, DTypeBFloat16} {
				r := newReader(t, d, Config{Seed: 4, BatchSize: 5, DType: dtype, Layout: layout, Transform: list, Ends: EndsExact})
				for b, err := range r.Epoch(t.Context(), 1) {
					if err != nil {
						t.Fatal(err)
					}
					if m := b.Images(); m.DType != dtype || len(m.Data) != b.Len()*3*24*24*dtype.Size() {
						t.Fatalf("%d bytes of %s", len(m.Data), m.DType)
					}
					images[dtype] = append(images[dtype], floats(b.Images())...)
					b.Release()
				}
			}
			if len(images[DTypeFloat32]) != int(d.Manifest().Splits[0].Samples)*3*24*24 {
				t.Fatalf("%d numbers", len(images[DTypeFloat32]))
			}
			for i, v := range images[DTypeFloat32] {
				if got, want := images[DTypeFloat16][i], typed.HalfOf(float64(v)).Float32(); got != want {
					t.Fatalf("%s, %v: element %d is %v as float16; want %v of %v", text, layout, i, got, want, v)
				}
				if got, want := images[DTypeBFloat16][i], typed.BHalfOf(float64(v)).Float32(); got != want {
					t.Fatalf("%s, %v: element %d is %v as bfloat16; want %v of %v", text, layout, i, got, want, v)
				}
			}
		}
	}
}

// floats are the elements of a tensor.
func floats(x Tensor) (values []float32) {
	switch x.DType {
	case DTypeUint8:
		for _, v := range x.Uint8() {
			values = append(values, float32(v))
		}
	case DTypeFloat16:
		for _, v := range x.Float16() {
			values = append(values, v.Float32())
		}
	case DTypeBFloat16:
		for _, v := range x.BFloat16() {
			values = append(values, v.Float32())
		}
	default:
		values = slices.Clone(x.Float32())
	}
	return values
}

// An image of one row and many columns must not take memory for its scaled self.
func TestResizeBomb(t *testing.T) {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 60000, 1))); err != nil {
		t.Fatal(err)
	}
	c := Config{Transform: transform.List{transform.Resize{Size: transform.Size{256}}, transform.GaussianBlur{}, transform.CenterCrop{Size: transform.Size{224}}}}.withDefaults()
	m, in := imagerOf(t, &c)
	if err := m.make(new(picture), &in, make([]byte, 3*224*224), b.Bytes(), augment.NewRand(0, 0, 0)); !errors.Is(err, imaging.ErrTooLarge) {
		t.Errorf("%v; want that it is too large", err)
	}
	// Where nothing looks at the rest, only the crop is made.
	pictureOf(t, Config{Transform: transform.List{transform.Resize{Size: transform.Size{256}}, transform.RandomHorizontalFlip{}, transform.CenterCrop{Size: transform.Size{224}}}}, b.Bytes())
}

// The pictures of an epoch are what the list makes of each sample's file on its own, with
// the random numbers of (seed, epoch, sample), in batches of any size, by any workers.
func TestTransforms(t *testing.T) {
	var list transform.List
	if err := json.Unmarshal([]byte(`[{"resize": 40}, {"random_crop": {"size": [24, 32], "padding": 3, "padding_mode": "edge"}}, "random_vertical_flip",
		{"random_apply": [{"color_jitter": {"brightness": 0.4, "hue": 0.2}}]}, "rand_augment", {"random_affine": {"degrees": 9, "shear": 5, "fill": 99}},
		"random_horizontal_flip", {"gaussian_blur": 3}, {"random_erasing": {"value": "random"}}, {"normalize": "imagenet"}]`), &list); err != nil {
		t.Fatal(err)
	}
	program, err := transform.Compile(list, transform.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := small(t, datasettest.Options{})
	for i, c := range []Config{{BatchSize: 7, Workers: 1}, {BatchSize: 16, Workers: 5, Layout: LayoutNHWC}} {
		c.Seed, c.DType, c.Transform, c.Fields, c.Ends = 77, DTypeFloat32, list, []string{"jpg"}, EndsExact
		r := newReader(t, d, c)
		seen := 0
		for b, err := range r.Epoch(t.Context(), 3+i) {
			if err != nil {
				t.Fatal(err)
			}
			shape := []int{b.Len(), 3, 24, 32}
			if c.Layout == LayoutNHWC {
				shape = []int{b.Len(), 24, 32, 3}
			}
			if !slices.Equal(b.Images().Shape, shape) {
				t.Fatalf("shape %v; want %v", b.Images().Shape, shape)
			}
			for k, n := range b.Samples() {
				file, _ := b.Field(k, "jpg")
				var m imaging.Image
				if err := imaging.Std.Decode(file, &m, imaging.DecodeOptions{}); err != nil {
					t.Fatal(err)
				}
				var recipe transform.Recipe
				random := augment.NewRand(77, uint64(3+i), uint64(n))
				if err := program.Draw(&recipe, &random, m.Width, m.Height); err != nil {
					t.Fatal(err)
				}
				view, err := recipe.Image(new(transform.Workspace), &m)
				if err != nil {
					t.Fatal(err)
				}
				want := make([]float32, 3*24*32)
				if err := tensor.PutFloat32(want, &view.Image, c.Layout, view.FlipX, view.FlipY, tensor.ImageNet.Table()); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(b.Images().Float32()[k*len(want):][:len(want)], want) {
					t.Fatalf("sample %d in batch %d has another picture", n, b.Number())
				}
				seen++
			}
			b.Release()
		}
		if seen != int(r.Samples()) {
			t.Errorf("%d samples", seen)
		}
	}
}
