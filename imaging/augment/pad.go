package augment

import (
	"fmt"
	"math"
)

// PaddingMode says what lies beyond an image's edges. The zero value is Constant.
type PaddingMode int

const (
	// Constant is one colour.
	Constant PaddingMode = iota
	// Edge repeats the outermost pixel: 1 1 1 2 3.
	Edge
	// Reflect mirrors about the outermost pixel: 3 2 1 2 3.
	Reflect
	// Symmetric mirrors about the edge: 2 1 1 2 3.
	Symmetric
)

var paddingModes = [...]string{"constant", "edge", "reflect", "symmetric"}

func (p PaddingMode) validate() error {
	if p < 0 || int(p) >= len(paddingModes) {
		return fmt.Errorf("no padding mode has the number %d", int(p))
	}
	return nil
}

func (p PaddingMode) String() string {
	if p.validate() != nil {
		return fmt.Sprintf("PaddingMode(%d)", int(p))
	}
	return paddingModes[p]
}

// MarshalText returns constant, edge, reflect or symmetric.
func (p PaddingMode) MarshalText() ([]byte, error) {
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("augment: %w", err)
	}
	return []byte(p.String()), nil
}

// UnmarshalText takes constant, edge, reflect or symmetric; an empty text is Constant.
func (p *PaddingMode) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*p = Constant
		return nil
	}
	for i, name := range paddingModes {
		if name == string(text) {
			*p = PaddingMode(i)
			return nil
		}
	}
	return fmt.Errorf("augment: unknown padding mode %q; want one of %v", text, paddingModes)
}

// source is the pixel, of n, that stands for number i, or -1 for the colour. As in
// numpy's pad, mirrors repeat without end, and a single pixel has itself for a mirror.
func (p PaddingMode) source(i, n int) int {
	if uint(i) < uint(n) {
		return i
	}
	switch p {
	case Edge:
		return min(max(i, 0), n-1)
	case Reflect:
		return mirror(i, n)
	case Symmetric:
		i = (i%(2*n) + 2*n) % (2 * n)
		return min(i, 2*n-1-i)
	default:
		return -1
	}
}

// Pad is torchvision's: it adds pixels on all sides. Its Window goes into a Geometry,
// with PaddingMode. (torchvision's negative padding is a crop; say so.)
type Pad struct {
	Padding     Padding     `json:"padding"`
	PaddingMode PaddingMode `json:"padding_mode,omitzero"`
}

// Validate reports every fault.
func (c Pad) Validate() error {
	return invalid("Pad", c.Padding.validate(), c.PaddingMode.validate())
}

// Window returns the part of the plane that the padded image shows, of which the image
// is at (0, 0).
func (c Pad) Window(width, height int) Region {
	p := c.Padding
	return Region{X: -p[0], Y: -p[1], Width: p[0] + width + p[2], Height: p[1] + height + p[3]}
}

// Size is a height and a width in pixels, in torchvision's order. In JSON it is both,
// or one number for a square.
type Size [2]int

// UnmarshalJSON takes one whole number or two.
func (s *Size) UnmarshalJSON(data []byte) error {
	v, err := numbers(data, 1, 2)
	if err != nil || v == nil {
		return err
	}
	for _, n := range v {
		if n != math.Trunc(n) || math.Abs(n) > 1<<30 {
			return fmt.Errorf("augment: the size %s; want whole numbers", data)
		}
	}
	*s = Size{int(v[0]), int(v[len(v)-1])}
	return nil
}

// RandomCrop is torchvision's: a part of a given size at a random place, of the image
// with Padding round it. Its Draw goes into a Geometry's Window, with PaddingMode.
type RandomCrop struct {
	Size    Size    `json:"size"`
	Padding Padding `json:"padding,omitzero"`
	// PadIfNeeded adds to both sides what an image lacks to the size.
	PadIfNeeded bool        `json:"pad_if_needed,omitempty"`
	PaddingMode PaddingMode `json:"padding_mode,omitzero"`
}

// Validate reports every fault.
func (c RandomCrop) Validate() error {
	var size error
	if h, w := c.Size[0], c.Size[1]; h < 1 || w < 1 || h > maxSide || w > maxSide {
		size = fmt.Errorf("size is %v; want a height and a width from 1 to %d", [2]int(c.Size), maxSide)
	}
	return invalid("RandomCrop", size, c.Padding.validate(), c.PaddingMode.validate())
}

// Draw returns the part to show of an image of width x height; it may reach beyond the
// image. It is an error if the image is too small, which PadIfNeeded prevents. The row
// is drawn before the column.
func (c RandomCrop) Draw(r *Rand, width, height int) (Region, error) {
	left, right := c.Padding[0], width+c.Padding[2]
	top, bottom := c.Padding[1], height+c.Padding[3]
	crop := Region{Height: c.Size[0], Width: c.Size[1]}
	if lack := crop.Height - (top + bottom); lack > 0 && c.PadIfNeeded {
		top, bottom = top+lack, bottom+lack
	}
	if lack := crop.Width - (left + right); lack > 0 && c.PadIfNeeded {
		left, right = left+lack, right+lack
	}
	if crop.Height > top+bottom || crop.Width > left+right {
		return Region{}, fmt.Errorf("augment: RandomCrop of %d x %d from an image of %d x %d, padding included; set pad_if_needed", crop.Width, crop.Height, left+right, top+bottom)
	}
	crop.Y = r.IntN(top+bottom-crop.Height+1) - top
	crop.X = r.IntN(left+right-crop.Width+1) - left
	return crop, nil
}
