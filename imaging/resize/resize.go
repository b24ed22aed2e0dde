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
	"errors"
	"fmt"
	"math"

	"shardify/imaging"
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

// Support is how far from its centre the filter sees, in pixels of the result, or of
// the source where that is the larger; f must be valid.
func (f Filter) Support() float64 { return filters[f].support }

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
func Full(m *imaging.Image) Rect {
	return Rect{X1: float64(m.Width), Y1: float64(m.Height)}
}

// Crop returns the part [x, x+width) x [y, y+height) of m, which shares its pixels.
// It must lie within m and not be empty.
func Crop(m *imaging.Image, x, y, width, height int) (imaging.Image, error) {
	if x < 0 || y < 0 || width < 1 || height < 1 || width > m.Width-x || height > m.Height-y {
		return imaging.Image{}, fmt.Errorf("resize: a crop of %d x %d at (%d, %d) does not lie within %d x %d", width, height, x, y, m.Width, m.Height)
	}
	first := y*m.Stride + 3*x
	last := first + (height-1)*m.Stride + 3*width
	return imaging.Image{Pix: m.Pix[first:last:last], Width: width, Height: height, Stride: m.Stride}, nil
}

// Resizer scales images. It keeps its memory between calls: the zero value is
// ready, one goroutine may use it at a time, and once it has seen the largest of
// its images it allocates nothing.
type Resizer struct {
	columns, rows axis
	between       []uint8 // what the first pass makes
}

// Resize scales the part r of src to dst.Width x dst.Height, which the caller sets
// and which must be at least 1. If dst.Pix has the length for these with
// dst.Stride, it is written there (into a part of a larger image, say); otherwise
// dst takes memory as its Reset does. dst and src must not share pixels. Only the
// pixels of src that the filter sees are read.
func (z *Resizer) Resize(dst, src *imaging.Image, r Rect, f Filter) error {
	return z.ResizeWindow(dst, src, r, f, dst.Width, dst.Height, 0, 0)
}

// ResizeWindow makes of the part r of src, scaled to width x height, only the
// window of dst.Width x dst.Height at (x, y): the pixels that Resize and a crop
// would give, for the work of the window. All else is as with Resize.
func (z *Resizer) ResizeWindow(dst, src *imaging.Image, r Rect, f Filter, width, height, x, y int) error {
	if err := check(dst, src, r, f); err != nil {
		return err
	}
	w, h := dst.Width, dst.Height
	if x < 0 || y < 0 || w > width-x || h > height-y {
		return fmt.Errorf("resize: a window of %d x %d at (%d, %d) does not lie within %d x %d", w, h, x, y, width, height)
	}
	if dst.Stride < 3*w || len(dst.Pix) < (h-1)*dst.Stride+3*w {
		dst.Reset(w, h)
	}
	x0, y0, x1, y1 := float32(r.X0), float32(r.Y0), float32(r.X1), float32(r.Y1)
	across := width != src.Width || x0 != 0 || x1 != float32(width)
	down := height != src.Height || y0 != 0 || y1 != float32(height)
	// The source samples that are used: all that the window shows, where an axis
	// stays as it is.
	left, right, top, bottom := x, x+w, y, y+h
	if across {
		z.columns.set(axisKey{src.Width, x0, x1, width, x, w, f})
		left, right = z.columns.span()
	}
	if down {
		z.rows.set(axisKey{src.Height, y0, y1, height, y, h, f})
		top, bottom = z.rows.span()
	}
	pix, stride := src.Pix[top*src.Stride+3*left:], src.Stride
	switch {
	case !across && !down:
		for i := range h {
			copy(dst.Pix[i*dst.Stride:][:3*w], pix[i*stride:])
		}
	case !down:
		horizontal(dst.Pix, dst.Stride, pix, stride, h, &z.columns)
	case !across:
		vertical(dst.Pix, dst.Stride, pix, stride, 3*w, &z.rows)
	case src.Height > height && src.Height-height > 2*(src.Width-width):
		n := 3 * (right - left)
		mid := z.middle(n * h)
		vertical(mid, n, pix, stride, n, &z.rows)
		horizontal(dst.Pix, dst.Stride, mid, n, h, &z.columns)
	default:
		mid := z.middle(3 * w * (bottom - top))
		horizontal(mid, 3*w, pix, stride, bottom-top, &z.columns)
		vertical(dst.Pix, dst.Stride, mid, 3*w, 3*w, &z.rows)
	}
	return nil
}

func (z *Resizer) middle(n int) []uint8 {
	if cap(z.between) < n {
		z.between = make([]uint8, n)
	}
	return z.between[:n]
}

func check(dst, src *imaging.Image, r Rect, f Filter) error {
	var faults []error
	if !f.valid() {
		faults = append(faults, fmt.Errorf("resize: no filter has the number %d", int(f)))
	}
	if dst.Width < 1 || dst.Height < 1 {
		faults = append(faults, fmt.Errorf("resize: to %d x %d; both must be at least 1", dst.Width, dst.Height))
	}
	if src.Width < 1 || src.Height < 1 || src.Stride < 3*src.Width || len(src.Pix) < (src.Height-1)*src.Stride+3*src.Width {
		faults = append(faults, fmt.Errorf("resize: the source of %d x %d in rows of %d bytes does not fit its %d bytes", src.Width, src.Height, src.Stride, len(src.Pix)))
	}
	// Written so that NaN fails. The differences are those of float32, in which
	// they must not vanish.
	if !(r.X0 >= 0 && r.Y0 >= 0 && r.X1 <= float64(src.Width) && r.Y1 <= float64(src.Height) &&
		float32(r.X0) < float32(r.X1) && float32(r.Y0) < float32(r.Y1)) {
		faults = append(faults, fmt.Errorf("resize: the box (%v, %v, %v, %v) is empty or reaches beyond the source of %d x %d", r.X0, r.Y0, r.X1, r.Y1, src.Width, src.Height))
	}
	return errors.Join(faults...)
}

// precision is the number of bits after the point of a weight: 32 bits less 8 of
// the sample and 2 for the sums of negative weights.
const precision = 32 - 8 - 2

// axis holds the weights of one axis: output sample i is the sum of
// weights[i*stride+j] times source sample base+first[i]+j, for j < count[i].
type axis struct {
	key          axisKey
	base, end    int // the source samples that are used: [base, end)
	first, count []int32
	weights      []int32
	stride       int
	exact        []float64 // the weights of one sample before rounding
}

type axisKey struct {
	source   int     // samples there are
	from, to float32 // the part that is scaled
	size     int     // what it is scaled to
	skip, n  int     // the window of that
	filter   Filter
}

// set computes the weights, unless they are those of the last call.
func (a *axis) set(key axisKey) {
	if a.key == key {
		return
	}
	a.key = key
	// The conversions to float64 keep the compiler from fusing a product and a
	// sum, which would round otherwise than Pillow's.
	scale := float64(key.to-key.from) / float64(key.size)
	stretch := max(scale, 1)
	support := float64(filters[key.filter].support * stretch)
	weight := filters[key.filter].weight
	a.stride = int(math.Ceil(support))*2 + 1
	a.first = grow(a.first, key.n)
	a.count = grow(a.count, key.n)
	a.weights = grow(a.weights, key.n*a.stride)
	a.exact = grow(a.exact, a.stride)
	step := 1 / stretch
	for i := range key.n {
		center := float64(key.from) + float64((float64(i+key.skip)+0.5)*scale)
		first := max(int(center-support+0.5), 0)
		n := min(int(center+support+0.5), key.source) - first
		sum := 0.0
		for j := range n {
			w := weight((float64(j+first) - center + 0.5) * step)
			a.exact[j] = w
			sum += w
		}
		for j, w := range a.exact[:n] {
			if sum != 0 {
				w /= sum
			}
			w = float64(w * (1 << precision))
			if w < 0 {
				w -= 0.5
			} else {
				w += 0.5
			}
			a.weights[i*a.stride+j] = int32(w)
		}
		if i == 0 {
			a.base = first
		}
		a.first[i], a.count[i] = int32(first-a.base), int32(n)
		a.end = first + n
	}
}

// span returns the source samples that are used: [from, to).
func (a *axis) span() (from, to int) { return a.base, a.end }

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

func box(x float64) float64 {
	if x > -0.5 && x <= 0.5 {
		return 1
	}
	return 0
}

func bilinear(x float64) float64 {
	return max(1-math.Abs(x), 0)
}

// bicubic is Keys's convolution with a = -0.5.
func bicubic(x float64) float64 {
	const a = -0.5
	x = math.Abs(x)
	switch {
	case x < 1:
		return float64((float64((a+2)*x)-(a+3))*x*x) + 1
	case x < 2:
		return (float64((float64((x-5)*x)+8)*x) - 4) * a
	}
	return 0
}

func lanczos(x float64) float64 {
	if x < -3 || x >= 3 {
		return 0
	}
	return sinc(x) * sinc(x/3)
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	x *= math.Pi
	return math.Sin(x) / x
}
