// Package typed turns the bytes of a sample's fields into numbers: a class in decimal
// (cls), a text (txt), numbers somewhere in a JSON document (json), an array of NumPy's
// (npy). It is usable alone; package reader makes the tensors of its batches with it.
//
// An [Array] is what they become. Set its DType, or leave the choice to the field; give
// it memory, or leave that to it; and decode:
//
//	var a typed.Array
//	a.DType = typed.Float32
//	path, err := typed.ParsePath("/objects/*/bbox")
//	err = a.DecodeJSON(data, path)          // a.Shape is [objects 4]
//	boxes, _ := typed.As[float32](a.DType, a.Data)
//
// # Conversion
//
// Every number must fit the type that is asked for: an integer its range; what becomes an
// integer must be whole; what becomes a float is rounded to it, and must not overflow
// it. true and false are 1 and 0, and only these two fit Bool. What does not fit is a
// [*MismatchError]; nothing is cut off or wraps round.
//
// # Damaged and hostile fields
//
// Any bytes may be passed to any function here. What breaks its format's rules gives a
// [*FormatError], what follows them but is not decoded here an [*UnsupportedError], and
// what is sound but not of the kind asked for a [*MismatchError]. Memory is taken in
// proportion to the field (at most 8 bytes for each of its bytes), whatever sizes it
// claims. In steady state nothing is allocated, but for JSON strings with escapes.
package typed

import (
	"fmt"
	"math"
	"unsafe"
)

// DType is the type of an array's elements, under NumPy's name for it.
type DType string

const (
	Bool     DType = "bool" // a byte, 0 or 1
	Uint8    DType = "uint8"
	Uint16   DType = "uint16"
	Uint32   DType = "uint32"
	Uint64   DType = "uint64"
	Int8     DType = "int8"
	Int16    DType = "int16"
	Int32    DType = "int32"
	Int64    DType = "int64"
	Float16  DType = "float16"
	BFloat16 DType = "bfloat16" // not NumPy's own, but that of ml_dtypes, JAX and torch
	Float32  DType = "float32"
	Float64  DType = "float64"
)

// DTypes are all types.
var DTypes = []DType{Bool, Uint8, Uint16, Uint32, Uint64, Int8, Int16, Int32, Int64, Float16, BFloat16, Float32, Float64}

// Size is the number of bytes of an element, 0 for a type that there is not.
func (d DType) Size() int {
	switch d {
	case Bool, Uint8, Int8:
		return 1
	case Uint16, Int16, Float16, BFloat16:
		return 2
	case Uint32, Int32, Float32:
		return 4
	case Uint64, Int64, Float64:
		return 8
	}
	return 0
}

// Half is a float16, IEEE 754's binary16: its bits.
type Half uint16

// BHalf is a bfloat16, the upper half of a float32: its bits.
type BHalf uint16

// Element are the Go types of elements.
type Element interface {
	bool | uint8 | uint16 | uint32 | uint64 | int8 | int16 | int32 | int64 | Half | BHalf | float32 | float64
}

// DTypeOf is the DType of T.
func DTypeOf[T Element]() DType {
	var zero T
	switch any(zero).(type) {
	case bool:
		return Bool
	case uint8:
		return Uint8
	case uint16:
		return Uint16
	case uint32:
		return Uint32
	case uint64:
		return Uint64
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int64:
		return Int64
	case Half:
		return Float16
	case BHalf:
		return BFloat16
	case float32:
		return Float32
	}
	return Float64
}

// As sees data, elements of d in the machine's byte order, as Go values. It shares their
// memory. ok is false where T is not what d names, data has a part of an element at its
// end, or does not begin at a multiple of an element's size. (An Array's own memory
// does.) The bytes of a Bool must be 0 or 1.
func As[T Element](d DType, data []byte) (values []T, ok bool) {
	size := d.Size()
	if d != DTypeOf[T]() || len(data)%size != 0 || uintptr(unsafe.Pointer(unsafe.SliceData(data)))%uintptr(size) != 0 {
		return nil, false
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/size), true
}

// HalfOf rounds f to the nearest Half, to even between two, as IEEE 754 has it: above the
// range lies infinity.
func HalfOf(f float64) Half {
	bits := math.Float64bits(f)
	sign := Half(bits >> 48 & 0x8000)
	abs := math.Abs(f)
	switch {
	case f != f:
		return sign | 0x7e00
	case abs >= 65520: // half way to what would be the next
		return sign | 0x7c00
	case abs < 0x1p-14: // subnormal: multiples of 2^-24
		return sign | Half(math.RoundToEven(abs*0x1p24))
	}
	// 10 bits of the mantissa's 52 stay; a carry goes into the exponent.
	m := bits&(1<<63-1) - (1023-15)<<52
	m += 1<<41 - 1 + m>>42&1
	return sign | Half(m>>42)
}

// Float32 is h's value.
func (h Half) Float32() float32 {
	sign := uint32(h&0x8000) << 16
	exponent, mantissa := uint32(h>>10&31), uint32(h&0x3ff)
	switch exponent {
	case 0:
		f := float32(mantissa) * 0x1p-24
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 31:
		return math.Float32frombits(sign | 0xff<<23 | mantissa<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | mantissa<<13)
}

// BHalfOf rounds f to the nearest BHalf, to even between two; above the range lies
// infinity.
func BHalfOf(f float64) BHalf {
	bits := math.Float64bits(f)
	sign := BHalf(bits >> 48 & 0x8000)
	abs := math.Abs(f)
	switch {
	case f != f:
		return sign | 0x7fc0
	case abs >= 0x1.ffp127: // half way to what would be the next
		return sign | 0x7f80
	case abs < 0x1p-126: // subnormal: multiples of 2^-133
		return sign | BHalf(math.RoundToEven(abs*0x1p133))
	}
	// 7 bits of the mantissa's 52 stay; a carry goes into the exponent.
	m := bits&(1<<63-1) - (1023-127)<<52
	m += 1<<44 - 1 + m>>45&1
	return sign | BHalf(m>>45)
}

// Float32 is b's value.
func (b BHalf) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// FormatError is a breach of a format's rules: the field is damaged.
type FormatError struct {
	// Format is "integer", "number", "text", "JSON" or "npy".
	Format string
	// Offset is where in the field the fault lies.
	Offset int64
	Msg    string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("%s: %s (at byte %d)", e.Format, e.Msg, e.Offset)
}

// UnsupportedError is a legal field that uses what is not decoded here.
type UnsupportedError struct {
	Format string
	// Msg names the feature.
	Msg string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s: %s: not supported", e.Format, e.Msg)
}

// MismatchError is a sound field that is not what was asked for: a value that does not
// fit, another shape, a text where a number was wanted.
type MismatchError struct{ Msg string }

func (e *MismatchError) Error() string { return e.Msg }

func malformed(format string, offset int, msg string, args ...any) error {
	return &FormatError{format, int64(offset), fmt.Sprintf(msg, args...)}
}

func unsupported(format, msg string, args ...any) error {
	return &UnsupportedError{format, fmt.Sprintf(msg, args...)}
}

func mismatch(msg string, args ...any) error { return &MismatchError{fmt.Sprintf(msg, args...)} }
