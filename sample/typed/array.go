package typed

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Array is numbers of one type in rows (C order), and the memory that decoding uses
// again. The zero value is ready. After an error its content is of no use.
type Array struct {
	// DType is what the numbers become; empty before a Decode, it becomes what is
	// natural for the field.
	DType DType
	// Shape has the dimensions: empty for a single number. An array that ends in a
	// dimension of 0 has no elements, and JSON does not tell what dimensions they would
	// have had.
	Shape []int
	// Data are the elements in the machine's byte order.
	Data []byte

	rank int // of a JSON document; -1 as long as no number was met
}

// natural gives a the type d where it has none, and takes out what was there.
func (a *Array) natural(d DType) error {
	if a.DType == "" {
		a.DType = d
	} else if a.DType.Size() == 0 {
		return mismatch("no type is called %q", a.DType)
	}
	a.Shape, a.Data = a.Shape[:0], a.Data[:0]
	return nil
}

// Len is the number of elements.
func (a *Array) Len() int { return len(a.Data) / max(1, a.DType.Size()) }

// Match compares the shape with a pattern, in which -1 stands for any dimension, and
// returns how long the last such dimension is; -1 where the pattern has none.
func (a *Array) Match(pattern []int) (length int, err error) {
	length = -1
	for i, want := range pattern {
		d := 0
		switch {
		case i < len(a.Shape):
			d = a.Shape[i]
		case len(a.Shape) == 0 || a.Shape[len(a.Shape)-1] != 0:
			return 0, a.shapeError(pattern)
		case want >= 0:
			continue // no elements, so their shape is not known
		}
		if want < 0 {
			length = d
		} else if d != want {
			return 0, a.shapeError(pattern)
		}
	}
	if len(a.Shape) > len(pattern) {
		return 0, a.shapeError(pattern)
	}
	return length, nil
}

func (a *Array) shapeError(pattern []int) error {
	return mismatch("its shape is %s; want %s", shapeText(a.Shape), shapeText(pattern))
}

// shapeText writes a shape as [2 *].
func shapeText(shape []int) string {
	if len(shape) == 0 {
		return "[] (a single number)"
	}
	dims := make([]string, len(shape))
	for i, d := range shape {
		dims[i] = "*"
		if d >= 0 {
			dims[i] = strconv.Itoa(d)
		}
	}
	return "[" + strings.Join(dims, " ") + "]"
}

// The put functions append a number; they say whether it fits.

func (a *Array) putInt(v int64) bool {
	switch a.DType {
	case Bool:
		return a.putSmall(v, 0, 1)
	case Uint8:
		return a.putSmall(v, 0, math.MaxUint8)
	case Int8:
		return a.putSmall(v, math.MinInt8, math.MaxInt8)
	case Uint16:
		a.Data = binary.NativeEndian.AppendUint16(a.Data, uint16(v))
		return v >= 0 && v <= math.MaxUint16
	case Int16:
		a.Data = binary.NativeEndian.AppendUint16(a.Data, uint16(v))
		return v >= math.MinInt16 && v <= math.MaxInt16
	case Uint32:
		a.Data = binary.NativeEndian.AppendUint32(a.Data, uint32(v))
		return v >= 0 && v <= math.MaxUint32
	case Int32:
		a.Data = binary.NativeEndian.AppendUint32(a.Data, uint32(v))
		return v >= math.MinInt32 && v <= math.MaxInt32
	case Uint64:
		a.Data = binary.NativeEndian.AppendUint64(a.Data, uint64(v))
		return v >= 0
	case Int64:
		a.Data = binary.NativeEndian.AppendUint64(a.Data, uint64(v))
		return true
	case Float32: // not by way of a float64, which would round twice
		a.Data = binary.NativeEndian.AppendUint32(a.Data, math.Float32bits(float32(v)))
		return true
	case Float16, BFloat16, Float64:
		return a.putFloat(float64(v))
	}
	return false
}

func (a *Array) putSmall(v, least, most int64) bool {
	a.Data = append(a.Data, byte(v))
	return v >= least && v <= most
}

func (a *Array) putUint(v uint64) bool {
	switch {
	case v <= math.MaxInt64:
		return a.putInt(int64(v))
	case a.DType == Uint64:
		a.Data = binary.NativeEndian.AppendUint64(a.Data, v)
		return true
	case a.DType == Float32:
		a.Data = binary.NativeEndian.AppendUint32(a.Data, math.Float32bits(float32(v)))
		return true
	case a.DType == Float64, a.DType == Float16, a.DType == BFloat16:
		return a.putFloat(float64(v))
	}
	return false
}

func (a *Array) putFloat(v float64) bool {
	finite := v-v == 0
	switch a.DType {
	case Float16:
		h := HalfOf(v)
		a.Data = binary.NativeEndian.AppendUint16(a.Data, uint16(h))
		return !finite || h&0x7c00 != 0x7c00
	case BFloat16:
		h := BHalfOf(v)
		a.Data = binary.NativeEndian.AppendUint16(a.Data, uint16(h))
		return !finite || h&0x7f80 != 0x7f80
	case Float32:
		f := float32(v)
		a.Data = binary.NativeEndian.AppendUint32(a.Data, math.Float32bits(f))
		return !finite || f-f == 0
	case Float64:
		a.Data = binary.NativeEndian.AppendUint64(a.Data, math.Float64bits(v))
		return true
	}
	switch {
	case v != math.Trunc(v) || !finite:
		return false
	case v >= -0x1p63 && v < 0x1p63:
		return a.putInt(int64(v))
	case v >= 0x1p63 && v < 0x1p64:
		return a.putUint(uint64(v))
	}
	return false
}

// Append appends numbers; it says whether they fit. Shape stays as it is.
func (a *Array) Append(values ...float64) bool {
	for _, v := range values {
		if !a.putFloat(v) {
			return false
		}
	}
	return true
}

// grow makes room for n more bytes, so that appending them allocates nothing.
func (a *Array) grow(n int) { a.Data = slices.Grow(a.Data, n) }
