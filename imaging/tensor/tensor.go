// Package tensor writes images into the tensors of a batch: as bytes or as
// normalised floats, channels last or first, flipped on the way. Each function
// makes one pass over the pixels and allocates nothing; different images of a
// batch may be written from different goroutines at once.
package tensor

import (
	"errors"
	"fmt"
	"math"

	"shardify/imaging/internal/raster"
)

// Layout is the order of a batch's dimensions: samples (N), channels (C), rows
// (H), columns (W). The zero value is NCHW, PyTorch's default.
type Layout int

const (
	NCHW Layout = iota
	NHWC
)

func (l Layout) String() string {
	switch l {
	case NCHW:
		return "NCHW"
	case NHWC:
		return "NHWC"
	}
	return fmt.Sprintf("Layout(%d)", int(l))
}

// MarshalText returns NCHW or NHWC.
func (l Layout) MarshalText() ([]byte, error) {
	if l != NCHW && l != NHWC {
		return nil, fmt.Errorf("tensor: no layout has the number %d", int(l))
	}
	return []byte(l.String()), nil
}

// UnmarshalText takes NCHW or NHWC; an empty text is NCHW.
func (l *Layout) UnmarshalText(text []byte) error {
	switch string(text) {
	case "", "NCHW":
		*l = NCHW
	case "NHWC":
		*l = NHWC
	default:
		return fmt.Errorf("tensor: unknown layout %q; want NCHW or NHWC", text)
	}
	return nil
}

// Normalize makes floats of bytes: (v/255 - Mean) / Std, for red, green and blue.
// The zero value only takes the bytes to 0 to 1.
type Normalize struct {
	Mean [3]float32 `json:"mean"`
	// Std of all zeros means 1, 1, 1.
	Std [3]float32 `json:"std"`
}

// ImageNet is the normalisation that models trained on ImageNet expect.
var ImageNet = Normalize{Mean: [3]float32{0.485, 0.456, 0.406}, Std: [3]float32{0.229, 0.224, 0.225}}

// Validate reports every fault: a standard deviation that is not above 0, a mean
// that is no number.
func (n Normalize) Validate() error {
	var faults []error
	for i, v := range n.Mean {
		if v-v != 0 {
			faults = append(faults, fmt.Errorf("mean[%d] is %v; want a finite number", i, v))
		}
	}
	if n.Std != [3]float32{} {
		for i, v := range n.Std {
			if !(v > 0) || v-v != 0 {
				faults = append(faults, fmt.Errorf("std[%d] is %v; want a number above 0", i, v))
			}
		}
	}
	return errors.Join(faults...)
}

// Table is a normalisation worked out for every byte of every channel.
type Table [3][256]float32

// Table works n out in float32, operation by operation as torchvision's v2.ToDtype(scale=
// True) and Normalize do, so that the floats are the same to the last bit: a product with
// 1/255, a difference, a quotient. (The older ToTensor divides by 255, and so may differ
// in the last bit.)
func (n Normalize) Table() *Table {
	if n.Std == [3]float32{} {
		n.Std = [3]float32{1, 1, 1}
	}
	var t Table
	for c := range t {
		for v := range t[c] {
			unit := float32(float32(v) * float32(1./255))
			centered := unit - n.Mean[c]
			t[c][v] = centered / n.Std[c]
		}
	}
	return &t
}

// Table16 is a [Table] in floats of 16 bits.
type Table16 [3][256]uint16

// BFloat16 rounds the table to bfloat16, ties to even.
func (t *Table) BFloat16() *Table16 {
	return t.to16(func(f float32) uint16 {
		b := math.Float32bits(f)
		return uint16((b + 0x7fff + b>>16&1) >> 16)
	})
}

// Float16 rounds the table to float16 (IEEE 754 binary16), ties to even; what is
// too large becomes infinite.
func (t *Table) Float16() *Table16 { return t.to16(float16) }

func (t *Table) to16(round func(float32) uint16) *Table16 {
	var h Table16
	for c := range t {
		for v, f := range t[c] {
			h[c][v] = round(f)
		}
	}
	return &h
}

func float16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	switch e := int(b>>23&0xff) - 127 + 15; {
	case e >= 31:
		return sign | 0x7c00
	case e <= 0: // as a multiple of 2^-24
		return sign | uint16(math.RoundToEven(math.Abs(float64(f))*(1<<24)))
	default:
		m := uint32(e)<<23 | b&0x7fffff
		// What overflows the mantissa goes into the exponent, up to infinity.
		return sign | uint16((m+0xfff+m>>13&1)>>13)
	}
}

// PutUint8 writes m to dst, the 3·Height·Width bytes of one sample in a batch:
// mirrored left to right if flipX is set, top to bottom if flipY is.
func PutUint8(dst []uint8, m *raster.Image, layout Layout, flipX, flipY bool) error {
	if err := check(len(dst), m, layout); err != nil {
		return err
	}
	w, plane := m.Width, m.Width*m.Height
	for y := range m.Height {
		row := rowOf(m, y, flipY)
		if layout == NCHW {
			r, g, b := dst[y*w:][:w], dst[plane+y*w:][:w], dst[2*plane+y*w:][:w]
			if flipX {
				for x := w - 1; x >= 0; x-- {
					r[x], g[x], b[x] = row[0], row[1], row[2]
					row = row[3:]
				}
				continue
			}
			for x := range r {
				p := row[3*x : 3*x+3]
				r[x], g[x], b[x] = p[0], p[1], p[2]
			}
			continue
		}
		out := dst[3*y*w:][:3*w]
		if !flipX {
			copy(out, row)
			continue
		}
		for ; len(row) >= 3; row = row[3:] {
			q := out[len(row)-3 : len(row)]
			q[0], q[1], q[2] = row[0], row[1], row[2]
		}
	}
	return nil
}

// PutFloat32 does the same with 3·Height·Width floats, each the table's for its
// channel and byte.
func PutFloat32(dst []float32, m *raster.Image, layout Layout, flipX, flipY bool, t *Table) error {
	if err := check(len(dst), m, layout); err != nil {
		return err
	}
	w, plane := m.Width, m.Width*m.Height
	for y := range m.Height {
		row := rowOf(m, y, flipY)
		if layout == NCHW {
			r, g, b := dst[y*w:][:w], dst[plane+y*w:][:w], dst[2*plane+y*w:][:w]
			if flipX {
				for x := w - 1; x >= 0; x-- {
					r[x], g[x], b[x] = t[0][row[0]], t[1][row[1]], t[2][row[2]]
					row = row[3:]
				}
				continue
			}
			for x := range r {
				p := row[3*x : 3*x+3]
				r[x], g[x], b[x] = t[0][p[0]], t[1][p[1]], t[2][p[2]]
			}
			continue
		}
		out := dst[3*y*w:][:3*w]
		for x := 0; x < len(row); x += 3 {
			at := x
			if flipX {
				at = len(row) - 3 - x
			}
			p, q := row[x:x+3], out[at:at+3]
			q[0], q[1], q[2] = t[0][p[0]], t[1][p[1]], t[2][p[2]]
		}
	}
	return nil
}

// rowOf returns the row of m that is to be row y.
func rowOf(m *raster.Image, y int, flipY bool) []uint8 {
	if flipY {
		y = m.Height - 1 - y
	}
	return m.Pix[y*m.Stride:][:3*m.Width]
}

func check(n int, m *raster.Image, layout Layout) error {
	if layout != NCHW && layout != NHWC {
		return fmt.Errorf("tensor: no layout has the number %d", int(layout))
	}
	if m.Width < 1 || m.Height < 1 || m.Stride < 3*m.Width || len(m.Pix) < (m.Height-1)*m.Stride+3*m.Width {
		return fmt.Errorf("tensor: an image of %d x %d in rows of %d bytes does not fit its %d bytes", m.Width, m.Height, m.Stride, len(m.Pix))
	}
	if n != 3*m.Width*m.Height {
		return fmt.Errorf("tensor: an image of %d x %d takes %d elements; its place in the batch has %d", m.Width, m.Height, 3*m.Width*m.Height, n)
	}
	return nil
}
