package augment

import "fmt"

// Box is a bounding box in pixels: left, top, right, bottom, the image being
// [0, width) x [0, height). (torchvision's format XYXY.)
type Box [4]float64

func (b *Box) width() float64  { return b[2] - b[0] }
func (b *Box) height() float64 { return b[3] - b[1] }

// area of an empty box is 0.
func (b *Box) area() float64 { return max(b.width(), 0) * max(b.height(), 0) }

func (b *Box) clip(width, height float64) {
	b[0], b[2] = min(max(b[0], 0), width), min(max(b[2], 0), width)
	b[1], b[3] = min(max(b[1], 0), height), min(max(b[3], 0), height)
}

// BoxFilter says which boxes are too small to keep. The zero value drops the empty
// ones alone. torchvision's SanitizeBoundingBoxes has 1 and 1 for the first two,
// Albumentations 0 for all.
type BoxFilter struct {
	// MinSize is the least width and height, in pixels.
	MinSize float64 `json:"min_size,omitempty"`
	// MinArea is the least area, in pixels.
	MinArea float64 `json:"min_area,omitempty"`
	// MinVisibility is the least part of a box's area that still shows, 0 to 1.
	MinVisibility float64 `json:"min_visibility,omitempty"`
}

// Validate reports every fault.
func (f BoxFilter) Validate() error {
	var faults []error
	check := func(name string, v, most float64) {
		if !(v >= 0 && v <= most) {
			faults = append(faults, fmt.Errorf("%s is %v; want 0 to %v", name, v, most))
		}
	}
	check("min_size", f.MinSize, maxSide)
	check("min_area", f.MinArea, maxSide*maxSide)
	check("min_visibility", f.MinVisibility, 1)
	return invalid("boxes", faults...)
}

// sliver is the width and height, in pixels, up to which a box counts as empty: of one
// that lies outside, rounding may leave so much.
const sliver = 1e-6

// Keeps reports whether a box is large enough to keep. clipped is what shows of it,
// whole what it would be if nothing were cut off.
func (f BoxFilter) Keeps(clipped, whole Box) bool {
	w, h, area := clipped.width(), clipped.height(), clipped.area()
	// Written so that NaN fails.
	return w > sliver && h > sliver && w >= f.MinSize && h >= f.MinSize && area >= f.MinArea && area >= f.MinVisibility*whole.area()
}

// Boxes maps boxes of a source of width x height in place, and clips them to the image
// after each step, as torchvision does; under a Matrix a box becomes the upright one
// round its four corners. It returns the boxes that the filter keeps, in order, and
// appends the number that each had to kept, by which labels can follow. Padding of any
// mode shows no boxes.
func (g Geometry) Boxes(boxes []Box, kept []int, width, height int, f BoxFilter) ([]Box, []int, error) {
	if err := g.Validate(width, height); err != nil {
		return nil, kept, err
	}
	n := 0
	for i, b := range boxes {
		clipped, whole := g.Box(b, b, width, height)
		if f.Keeps(clipped, whole) {
			boxes[n] = clipped
			kept = append(kept, i)
			n++
		}
	}
	return boxes[:n], kept, nil
}

// Box maps one box, as Boxes does: what still shows of it after the geometries before
// this one, and what it would be if they had cut nothing off, each to the same of the
// result. g must be valid for a source of width x height.
func (g Geometry) Box(clipped, whole Box, width, height int) (Box, Box) {
	g = g.resolve(width, height)
	forward, _ := g.Matrix.Inverse()
	return g.box(clipped, &forward, true), g.box(whole, &forward, false)
}

func (g *Geometry) box(b Box, forward *Matrix, clip bool) Box {
	cut := func(width, height int) {
		if clip {
			b.clip(float64(width), float64(height))
		}
	}
	shift := func(x, y int) {
		b = Box{b[0] - float64(x), b[1] - float64(y), b[2] - float64(x), b[3] - float64(y)}
	}
	shift(g.Crop.X, g.Crop.Y)
	cut(g.Crop.Width, g.Crop.Height)
	sx, sy := float64(g.Width)/float64(g.Crop.Width), float64(g.Height)/float64(g.Crop.Height)
	b = Box{float64(b[0] * sx), float64(b[1] * sy), float64(b[2] * sx), float64(b[3] * sy)}
	shift(g.Window.X, g.Window.Y)
	cut(g.Window.Width, g.Window.Height)
	if g.FlipX {
		w := float64(g.Window.Width)
		b[0], b[2] = w-b[2], w-b[0]
	}
	if g.FlipY {
		h := float64(g.Window.Height)
		b[1], b[3] = h-b[3], h-b[1]
	}
	if g.Matrix != IdentityMatrix {
		x0, y0 := forward.at(b[0], b[1])
		x1, y1 := forward.at(b[2], b[1])
		x2, y2 := forward.at(b[2], b[3])
		x3, y3 := forward.at(b[0], b[3])
		empty := !(b.width() > 0 && b.height() > 0)
		b = Box{min(x0, x1, x2, x3), min(y0, y1, y2, y3), max(x0, x1, x2, x3), max(y0, y1, y2, y3)}
		if empty { // turned, a line would have an area
			b[2], b[3] = b[0], b[1]
		}
		cut(g.Window.Width, g.Window.Height)
	}
	return b
}
