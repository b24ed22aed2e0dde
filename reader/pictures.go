package reader

import (
	"fmt"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/sample/typed"
)

// What lies on a sample's image goes its way: the worker has made the image just before,
// and its recipe is still there.

// pictures is the memory in which a worker makes what lies on an image.
type pictures struct {
	mask, moved imaging.Mask
	coordinates typed.Array
	boxes       []augment.Box
	// had is how many boxes the sample has of each tensor, and kept which of them the
	// transforms have kept.
	had  []int
	kept [][]int
}

// otherPicture makes the value of a mask, an image or boxes in w.array.
func (w *worker) otherPicture(m *maker, t int, data []byte) (err error) {
	a := &w.array
	switch m.Kind {
	case KindMask:
		a.Data = grown(a.Data, int64(w.elements(m))*m.size)
		err = w.maskOf(m, data)
	case KindImage:
		a.Data = grown(a.Data, int64(w.elements(m))*m.size)
		err = w.imager.another(w.picture, a.Data, data)
	default:
		return w.boxesOf(m, t, data)
	}
	if a.Shape = append(a.Shape[:0], m.pattern...); m.channels > 0 {
		a.Shape[0] = w.elements(m)
	}
	return err
}

// elements is how many elements a mask or an image that lies on the picture in hand has.
func (w *worker) elements(m *maker) int {
	if m.channels > 0 {
		return m.channels * w.picture.width * w.picture.height
	}
	return int(m.unit / m.size)
}

// grown is memory of n bytes: data's where that has so much.
func grown(data []byte, n int64) []byte {
	if int64(cap(data)) >= n {
		return data[:n]
	}
	return aligned(n)
}

// maskOf makes a mask.
func (w *worker) maskOf(m *maker, data []byte) error {
	p, a := &w.pictures, &w.array
	if err := imaging.DecodeMask(data, &p.mask, w.reader.config.MaxPixels); err != nil {
		return err
	}
	width, height := w.picture.width, w.picture.height
	dst := &p.moved
	if m.DType == DTypeUint8 { // where it stays
		dst = &imaging.Mask{Pix: a.Data, Width: width, Height: height, Stride: width}
	}
	if err := w.picture.recipe.Mask(&w.imager.workspace, dst, &p.mask, uint8(m.Fill)); err != nil {
		return err
	}
	if m.DType == DTypeUint8 {
		a.Data = dst.Pix
		return nil
	}
	a.Data = a.Data[:0]
	for y := range height {
		for _, v := range dst.Pix[y*dst.Stride:][:width] {
			if !a.Append(float64(v)) {
				return &typed.MismatchError{Msg: fmt.Sprintf("class %d does not fit %s", v, m.DType)}
			}
		}
	}
	return nil
}

// boxesOf makes boxes.
func (w *worker) boxesOf(m *maker, t int, data []byte) (err error) {
	p, a, recipe := &w.pictures, &w.array, &w.picture.recipe
	p.coordinates.DType = DTypeFloat64
	if m.inNPY() {
		err = w.decodeNPY(m, &p.coordinates, data)
	} else {
		err = p.coordinates.DecodeJSON(data, m.path)
	}
	if err != nil {
		return err
	}
	n, err := p.coordinates.Match(m.pattern)
	if err != nil {
		return err
	}
	numbers, _ := typed.As[float64](DTypeFloat64, p.coordinates.Data)
	width, height := recipe.SourceSize()
	p.boxes = p.boxes[:0]
	for i := range n {
		b := augment.Box(numbers[4*i:])
		for _, v := range b {
			if v-v != 0 {
				return &typed.MismatchError{Msg: fmt.Sprintf("box %d is %v; its numbers must be finite", i, b)}
			}
		}
		if m.Boxes.Unit == BoxFractions {
			b = scaleBox(b, float64(width), float64(height))
		}
		p.boxes = append(p.boxes, cornersOf(b, m.Boxes.Format))
	}
	p.had[t] = n
	if p.boxes, p.kept[t], err = recipe.Boxes(p.boxes, p.kept[t][:0], m.Boxes.BoxFilter); err != nil {
		return err
	}
	width, height = recipe.Size()
	for i := range p.boxes {
		b := ofCorners(p.boxes[i], m.Boxes.ToFormat)
		if m.Boxes.ToUnit == BoxFractions {
			b = scaleBox(b, 1/float64(width), 1/float64(height))
		}
		if !a.Append(b[:]...) {
			return &typed.MismatchError{Msg: fmt.Sprintf("box %v does not fit %s", b, m.DType)}
		}
	}
	a.Shape = append(a.Shape[:0], len(p.boxes), 4)
	return nil
}

// scaleBox multiplies what is across by x and what is down by y, in any format.
func scaleBox(b augment.Box, x, y float64) augment.Box {
	return augment.Box{b[0] * x, b[1] * y, b[2] * x, b[3] * y}
}

// cornersOf is a box that is written in a format as its corners.
func cornersOf(b augment.Box, f BoxFormat) augment.Box {
	switch f {
	case BoxXYWH:
		return augment.Box{b[0], b[1], b[0] + b[2], b[1] + b[3]}
	case BoxCXCYWH:
		return augment.Box{b[0] - b[2]/2, b[1] - b[3]/2, b[0] + b[2]/2, b[1] + b[3]/2}
	}
	return b
}

// ofCorners writes a box of its corners in a format.
func ofCorners(b augment.Box, f BoxFormat) augment.Box {
	switch f {
	case BoxXYWH:
		return augment.Box{b[0], b[1], b[2] - b[0], b[3] - b[1]}
	case BoxCXCYWH:
		return augment.Box{(b[0] + b[2]) / 2, (b[1] + b[3]) / 2, b[2] - b[0], b[3] - b[1]}
	}
	return b
}

// follow keeps, of the values in w.array, those whose boxes are kept.
func (w *worker) follow(m *maker) error {
	a, had, kept := &w.array, w.pictures.had[m.follows], w.pictures.kept[m.follows]
	n, err := a.Match(m.pattern)
	if err != nil {
		return err
	}
	if n != had {
		return &typed.MismatchError{Msg: fmt.Sprintf("there are %d, and %d boxes", n, had)}
	}
	for k, i := range kept {
		copy(a.Data[int64(k)*m.unit:][:m.unit], a.Data[int64(i)*m.unit:][:m.unit])
	}
	a.Data = a.Data[:int64(len(kept))*m.unit]
	a.Shape[0] = len(kept)
	return nil
}
