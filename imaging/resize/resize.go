// Package resize scales images as Pillow's Image.resize(size, resample, box) does,
// byte for byte.
//
// Make one [Resizer] for each goroutine and call its Resize. Two calls of Pillow
// that look alike differ at the edges of a crop, and both can be said:
//
//   - im.resize(size, f, box=b) lets the filter see the pixels around the box:
//     pass the image and the box.
//   - im.crop(b).resize(size, f), which torchvision does, stops the filter at the
//     crop's edges: pass [Crop] of the image, and [Full] of that. The image is not
//     copied.
//
// ResizeInto writes the result where it belongs in a batch: bytes or normalised
// floats, channels last or first, mirrored if asked.
//
// A decoder that makes an image row by row needs no memory for it: Begin says which
// rows and columns are needed, Columns which of them come, Room gives memory for the
// next rows, and Push takes them from there and writes each output row as soon as the
// last row that it needs has come.
//
// # Method
//
// As Pillow 13.0: for each axis, the weights of every output sample are computed
// in float64, divided by their sum and rounded to 22 bits after the point. When
// the image is made smaller the filter is stretched by the same factor, so that
// it sees every pixel ("antialias"). Each pass rounds to 8 bits. The horizontal
// pass goes first, unless the image gets lower, and that by more than twice as
// many pixels as it gets narrower; older versions of Pillow always went
// horizontally first.
package resize

import (
	"fmt"

	"shardify/imaging/internal/raster"
	"shardify/imaging/tensor"
	"shardify/internal/simd"
)

// Filter is a resampling filter. The zero value is Bilinear, torchvision's
// default.
type Filter int

const (
	Bilinear Filter = iota
	Box
	Bicubic
	Lanczos
)

var filters = [...]struct {
	name    string
	support float64 // half the filter's width, in pixels of the smaller image
	weight  func(float64) float64
}{
	Bilinear: {"bilinear", 1, bilinear},
	Box:      {"box", 0.5, box},
	Bicubic:  {"bicubic", 2, bicubic},
	Lanczos:  {"lanczos", 3, lanczos},
}

func (f Filter) valid() bool { return f >= 0 && int(f) < len(filters) }

func (f Filter) String() string {
	if !f.valid() {
		return fmt.Sprintf("Filter(%d)", int(f))
	}
	return filters[f].name
}

// MarshalText returns the filter's name: bilinear, box, bicubic or lanczos.
func (f Filter) MarshalText() ([]byte, error) {
	if !f.valid() {
		return nil, fmt.Errorf("resize: no filter has the number %d", int(f))
	}
	return []byte(f.String()), nil
}

// UnmarshalText takes a filter's name; an empty text is Bilinear.
func (f *Filter) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*f = Bilinear
		return nil
	}
	for i := range filters {
		if filters[i].name == string(text) {
			*f = Filter(i)
			return nil
		}
	}
	return fmt.Errorf("resize: unknown filter %q; want bilinear, box, bicubic or lanczos", text)
}

// Rect is the part of an image that is scaled, in pixels: [X0, X1) x [Y0, Y1), the
// image being [0, Width) x [0, Height). Fractions are allowed; Pillow, and so we,
// keep them in float32.
type Rect struct {
	X0, Y0, X1, Y1 float64
}

// Full is the whole of an image.
func Full(m *raster.Image) Rect {
	return Rect{X1: float64(m.Width), Y1: float64(m.Height)}
}

// Crop returns the part [x, x+width) x [y, y+height) of m, which shares its pixels.
// It must lie within m and not be empty.
func Crop(m *raster.Image, x, y, width, height int) (raster.Image, error) {
	if x < 0 || y < 0 || width < 1 || height < 1 || width > m.Width-x || height > m.Height-y {
		return raster.Image{}, fmt.Errorf("resize: a crop of %d x %d at (%d, %d) does not lie within %d x %d", width, height, x, y, m.Width, m.Height)
	}
	first := y*m.Stride + 3*x
	last := first + (height-1)*m.Stride + 3*width
	return raster.Image{Pix: m.Pix[first:last:last], Width: width, Height: height, Stride: m.Stride}, nil
}

// Resizer scales images. It keeps its memory between calls: the zero value is
// ready, one goroutine may use it at a time, and once it has seen the largest of
// its images it allocates nothing. The weights of the last task are kept too: the
// next one with the same sizes, part and filter takes them over.
type Resizer struct {
	columns, rows axis
	feed          feed
	level         simd.Level // plus 1; 0 is the best there is
}

func (z *Resizer) simd() simd.Level {
	if z.level == 0 {
		return simd.Best()
	}
	return z.level - 1
}

// Resize scales the part r of src to dst.Width x dst.Height, which the caller sets
// and which must be at least 1. If dst.Pix has the length for these with
// dst.Stride, it is written there (into a part of a larger image, say); otherwise
// dst takes memory as its Reset does. dst and src must not share pixels. Only the
// pixels of src that the filter sees are read.
func (z *Resizer) Resize(dst, src *raster.Image, r Rect, f Filter) error {
	return z.ResizeWindow(dst, src, r, f, dst.Width, dst.Height, 0, 0)
}

// ResizeWindow makes of the part r of src, scaled to width x height, only the
// window of dst.Width x dst.Height at (x, y): the pixels that Resize and a crop
// would give, for the work of the window. All else is as with Resize.
func (z *Resizer) ResizeWindow(dst, src *raster.Image, r Rect, f Filter, width, height, x, y int) error {
	w, h := dst.Width, dst.Height
	if w < 1 || h < 1 {
		return fmt.Errorf("resize: to %d x %d; both must be at least 1", w, h)
	}
	if err := checkSource(src); err != nil {
		return err
	}
	task := Task{SourceWidth: src.Width, SourceHeight: src.Height, Part: r, Filter: f, Width: width, Height: height, X: x, Y: y}
	if err := z.plan(task, w, h); err != nil {
		return err
	}
	if dst.Stride < 3*w || len(dst.Pix) < (h-1)*dst.Stride+3*w {
		dst.Reset(w, h)
	}
	z.feed.out = sink{layout: tensor.NHWC, width: w, height: h, channels: 3, bytes: dst.Pix, stride: dst.Stride}
	z.image(src)
	z.feed.out = sink{} // keep nothing of the caller's
	return nil
}

// ResizeInto makes the part of src that the task names, in the target. The task's
// SourceWidth and SourceHeight are src's, turned upright, whatever they say.
func (z *Resizer) ResizeInto(target Target, src *raster.Image, task Task) error {
	if err := checkSource(src); err != nil {
		return err
	}
	task.SourceWidth, task.SourceHeight = src.Width, src.Height
	if task.Turn >= 5 {
		task.SourceWidth, task.SourceHeight = src.Height, src.Width
	}
	if _, err := z.Begin(task, target); err != nil {
		return err
	}
	z.image(src)
	z.feed.out = sink{}
	return nil
}

func checkSource(src *raster.Image) error {
	if src.Width < 1 || src.Height < 1 || src.Stride < 3*src.Width || len(src.Pix) < (src.Height-1)*src.Stride+3*src.Width {
		return fmt.Errorf("resize: the source of %d x %d in rows of %d bytes does not fit its %d bytes", src.Width, src.Height, src.Stride, len(src.Pix))
	}
	return nil
}
