package reader

import (
	"fmt"
	"math"
	"math/rand/v2"

	"shardify/imaging"
	"shardify/imaging/resize"
)

// imager makes the picture of a sample: it decodes, transforms and writes the
// result as the tensor wants it. One goroutine may use it.
type imager struct {
	config  *Config
	decoder imaging.Decoder
	resizer resize.Resizer
	random  rand.PCG
	// The decoded image, and two that are scaled or cropped in turn.
	decoded imaging.Image
	scaled  [2]imaging.Image
	table   [3][256]float32 // of a channel's value under DTypeFloat32
}

func newImager(c *Config, d imaging.Decoder) imager {
	m := imager{config: c, decoder: d}
	if c.DType == DTypeFloat32 {
		n := Normalize{Std: [3]float64{1, 1, 1}}
		for _, t := range c.Transform {
			if t.Normalize != nil {
				n = *t.Normalize
			}
		}
		for ch := range m.table {
			for v := range m.table[ch] {
				m.table[ch][v] = float32((float64(v)/255 - n.Mean[ch]) / n.Std[ch])
			}
		}
	}
	return m
}

// make makes the picture of an image file in dst, one image of a slab. key decides
// everything random.
func (m *imager) make(dst, file []byte, key uint64) error {
	if err := m.decoder.Decode(file, &m.decoded, imaging.DecodeOptions{}); err != nil {
		return err
	}
	m.random.Seed(key, golden)
	random := rand.New(&m.random)
	view := m.decoded // the picture so far; it shares pixels
	next := 0
	flip := false
	for i := range m.config.Transform {
		t := &m.config.Transform[i]
		out := &m.scaled[next]
		switch {
		case t.RandomHorizontalFlip > 0:
			if random.Float64() < t.RandomHorizontalFlip {
				flip = !flip
			}
			continue
		case t.Normalize != nil:
			continue // at the end, by table
		case t.RandomResizedCrop > 0:
			x, y, w, h := drawCrop(random, view.Width, view.Height, t)
			if flip {
				x = view.Width - x - w
			}
			part, err := resize.Crop(&view, x, y, w, h)
			if err != nil {
				return err
			}
			out.Reset(t.RandomResizedCrop, t.RandomResizedCrop)
			if err := m.resizer.Resize(out, &part, resize.Full(&part), t.Interpolation); err != nil {
				return err
			}
		case t.Resize > 0:
			w, h := view.Width, view.Height
			if w <= h {
				w, h = t.Resize, max(1, t.Resize*h/w)
			} else {
				w, h = max(1, t.Resize*w/h), t.Resize
			}
			if int64(w)*int64(h) > imaging.DefaultMaxPixels {
				return fmt.Errorf("%w: %d × %d, resized to %d × %d", imaging.ErrTooLarge, view.Width, view.Height, w, h)
			}
			out.Reset(w, h)
			if err := m.resizer.Resize(out, &view, resize.Full(&view), t.Interpolation); err != nil {
				return err
			}
		case t.CenterCrop > 0:
			view = centerCrop(out, view, t.CenterCrop, flip)
			next ^= 1
			continue
		}
		view = *out
		next ^= 1
	}
	m.place(dst, &view, flip)
	return nil
}

// drawCrop draws the part that a RandomResizedCrop cuts, as torchvision's
// RandomResizedCrop.get_params: ten tries to fit a part of random area and aspect
// ratio, or else the largest part in the middle that has a legal ratio.
func drawCrop(random *rand.Rand, width, height int, t *Transform) (x, y, w, h int) {
	scale, ratio := [2]float64{0.08, 1}, [2]float64{3. / 4, 4. / 3}
	if t.Scale != nil {
		scale = *t.Scale
	}
	if t.Ratio != nil {
		ratio = *t.Ratio
	}
	uniform := func(from, to float64) float64 { return from + (to-from)*random.Float64() }
	area := float64(width) * float64(height)
	for range 10 {
		target := area * uniform(scale[0], scale[1])
		aspect := math.Exp(uniform(math.Log(ratio[0]), math.Log(ratio[1])))
		w := int(math.RoundToEven(math.Sqrt(target * aspect)))
		h := int(math.RoundToEven(math.Sqrt(target / aspect)))
		if 0 < w && w <= width && 0 < h && h <= height {
			return random.IntN(width - w + 1), random.IntN(height - h + 1), w, h
		}
	}
	w, h = width, height
	switch whole := float64(width) / float64(height); {
	case whole < ratio[0]:
		h = min(height, max(1, int(math.RoundToEven(float64(w)/ratio[0]))))
	case whole > ratio[1]:
		w = min(width, max(1, int(math.RoundToEven(float64(h)*ratio[1]))))
	}
	return (width - w) / 2, (height - h) / 2, w, h
}

// centerCrop returns the middle of view, a square of so many pixels, as
// torchvision's center_crop finds it: with black round an image that is too small.
// It shares view's pixels or uses those of out. flip says that the view is to be
// mirrored later, and that the middle is that of the mirrored image.
func centerCrop(out *imaging.Image, view imaging.Image, side int, flip bool) imaging.Image {
	if view.Width < side || view.Height < side {
		w, h := max(view.Width, side), max(view.Height, side)
		left, top := (w-view.Width)/2, (h-view.Height)/2
		if flip {
			left = w - view.Width - left
		}
		out.Reset(w, h)
		clear(out.Pix)
		for y := range view.Height {
			copy(out.Pix[(top+y)*out.Stride+3*left:], view.Pix[y*view.Stride:][:3*view.Width])
		}
		view = *out
	}
	left := int(math.RoundToEven(float64(view.Width-side) / 2))
	top := int(math.RoundToEven(float64(view.Height-side) / 2))
	if flip {
		left = view.Width - side - left
	}
	view.Pix = view.Pix[top*view.Stride+3*left:]
	view.Width, view.Height = side, side
	return view
}

// place writes the picture into an image of the slab.
func (m *imager) place(dst []byte, view *imaging.Image, flip bool) {
	w, h := view.Width, view.Height
	plane := w * h
	planar := m.config.Layout == LayoutNCHW
	// Where in the slab the first pixel of row y goes, and how far it is to the
	// next one and to the next channel.
	step, channel := 3, 1
	if planar {
		step, channel = 1, plane
	}
	for y := range h {
		row := view.Pix[y*view.Stride:][:3*w]
		at, by := y*w*step, step
		if flip {
			at, by = at+(w-1)*step, -step
		}
		if m.config.DType == DTypeFloat32 {
			out := float32s(dst)
			for ; len(row) >= 3; row = row[3:] {
				out[at] = m.table[0][row[0]]
				out[at+channel] = m.table[1][row[1]]
				out[at+2*channel] = m.table[2][row[2]]
				at += by
			}
			continue
		}
		if !flip && !planar {
			copy(dst[at:], row)
			continue
		}
		for ; len(row) >= 3; row = row[3:] {
			dst[at] = row[0]
			dst[at+channel] = row[1]
			dst[at+2*channel] = row[2]
			at += by
		}
	}
}
