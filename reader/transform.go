package reader

import (
	"fmt"
	"math"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
)

// imager makes the picture of a sample: it decodes, transforms and writes the
// result as the tensor wants it. One goroutine may use it. In steady state it
// allocates nothing that its decoder does not.
type imager struct {
	config  *Config
	decoder imaging.Decoder
	resizer resize.Resizer
	// The decoded image, and two that are scaled or cropped in turn.
	decoded imaging.Image
	scaled  [2]imaging.Image
	table   *tensor.Table // under DTypeFloat32
}

func newImager(c *Config, d imaging.Decoder) imager {
	m := imager{config: c, decoder: d}
	if c.DType == DTypeFloat32 {
		var n Normalize
		for _, t := range c.Transform {
			if t.Normalize != nil {
				n = *t.Normalize
			}
		}
		m.table = n.Table()
	}
	return m
}

// make makes the picture of an image file in dst, one image of a slab. Everything
// random comes from random, in the order of the transforms. Flips are noted, and
// carried out as the picture is written: crops after them see the mirrored image.
func (m *imager) make(dst, file []byte, random augment.Rand) error {
	if err := m.decoder.Decode(file, &m.decoded, imaging.DecodeOptions{MaxPixels: m.config.MaxPixels}); err != nil {
		return err
	}
	view := m.decoded // the picture so far
	flip := false
	next := 0
	steps := m.config.Transform
	for i := 0; i < len(steps); i++ {
		t := &steps[i]
		out := &m.scaled[next]
		switch {
		case t.RandomHorizontalFlip > 0:
			if augment.HorizontalFlip(&random, t.RandomHorizontalFlip) {
				flip = !flip
			}
			continue
		case t.RandomResizedCrop > 0:
			part, err := m.draw(&random, &view, t, flip)
			if err != nil {
				return err
			}
			out.Reset(t.RandomResizedCrop, t.RandomResizedCrop)
			if err := m.resizer.Resize(out, &part, resize.Full(&part), t.Interpolation); err != nil {
				return err
			}
			view = *out
		case t.Resize > 0:
			crop := 0
			if i+1 < len(steps) {
				crop = steps[i+1].CenterCrop
			}
			w, h := shorterSide(view.Width, view.Height, t.Resize)
			if crop > 0 && w >= crop && h >= crop {
				// Only what the crop keeps is made.
				x, y := middle(w, crop, flip), middle(h, crop, false)
				out.Reset(crop, crop)
				if err := m.resizer.ResizeWindow(out, &view, resize.Full(&view), t.Interpolation, w, h, x, y); err != nil {
					return err
				}
				i++
			} else {
				if int64(w)*int64(h) > m.config.MaxPixels {
					return fmt.Errorf("%w: %d × %d, resized to %d × %d", imaging.ErrTooLarge, view.Width, view.Height, w, h)
				}
				out.Reset(w, h)
				if err := m.resizer.Resize(out, &view, resize.Full(&view), t.Interpolation); err != nil {
					return err
				}
			}
			view = *out
		case t.CenterCrop > 0:
			var err error
			if view, err = centerCrop(out, view, t.CenterCrop, flip); err != nil {
				return err
			}
		default: // Normalize: by table, as the picture is written
			continue
		}
		next ^= 1
	}
	if m.table != nil {
		return tensor.PutFloat32(float32s(dst), &view, m.config.Layout, flip, m.table)
	}
	return tensor.PutUint8(dst, &view, m.config.Layout, flip)
}

// draw returns the part of view that a RandomResizedCrop cuts.
func (m *imager) draw(random *augment.Rand, view *imaging.Image, t *Transform, flip bool) (imaging.Image, error) {
	r := t.crop().Draw(random, view.Width, view.Height)
	if flip {
		r.X = view.Width - r.X - r.Width
	}
	return resize.Crop(view, r.X, r.Y, r.Width, r.Height)
}

// crop is a RandomResizedCrop's parameters.
func (t *Transform) crop() (c augment.RandomResizedCrop) {
	if t.Scale != nil {
		c.Scale = *t.Scale
	}
	if t.Ratio != nil {
		c.Ratio = *t.Ratio
	}
	return c
}

// shorterSide returns the dimensions of an image whose shorter side is scaled to a
// length; the longer is cut to a whole number, as torchvision does.
func shorterSide(width, height, length int) (w, h int) {
	if width <= height {
		return length, length * height / width
	}
	return length * width / height, length
}

// middle returns where the middle part of a length begins, rounded half to even as
// in torchvision; of the mirrored image where mirrored is set.
func middle(length, part int, mirrored bool) int {
	at := int(math.RoundToEven(float64(length-part) / 2))
	if mirrored {
		return length - part - at
	}
	return at
}

// centerCrop returns the middle of view, a square of so many pixels, as
// torchvision's center_crop finds it: with black round an image that is too small.
// It shares view's pixels or uses those of out.
func centerCrop(out *imaging.Image, view imaging.Image, side int, flip bool) (imaging.Image, error) {
	if view.Width < side || view.Height < side {
		w, h := max(view.Width, side), max(view.Height, side)
		if int64(w)*int64(h) > imaging.DefaultMaxPixels {
			return view, fmt.Errorf("%w: %d × %d, with a border %d × %d", imaging.ErrTooLarge, view.Width, view.Height, w, h)
		}
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
	return resize.Crop(&view, middle(view.Width, side, flip), middle(view.Height, side, false), side, side)
}
