package reader

import (
	"fmt"

	"shardify/sample/typed"
)

// Tensor is a dense array in a batch's slab, row by row (C order), its elements in the
// machine's byte order. Data begins at a multiple of 64 bytes.
type Tensor struct {
	Name  string
	DType DType
	Shape []int
	Data  []byte
}

// The names of the tensors that every batch has (the first not under DecodeNone).
const (
	imageTensor = "image"
	labelTensor = "label"
)

// sizesTensor comes with images that have sizes of their own.
const sizesTensor = "image_sizes"

// Bool returns the elements; the tensor must be of DTypeBool.
func (t Tensor) Bool() []bool { return elements[bool](t) }

// Uint8 returns the elements; the tensor must be of DTypeUint8.
func (t Tensor) Uint8() []uint8 { return elements[uint8](t) }

// Uint16 returns the elements; the tensor must be of DTypeUint16.
func (t Tensor) Uint16() []uint16 { return elements[uint16](t) }

// Uint32 returns the elements; the tensor must be of DTypeUint32.
func (t Tensor) Uint32() []uint32 { return elements[uint32](t) }

// Uint64 returns the elements; the tensor must be of DTypeUint64.
func (t Tensor) Uint64() []uint64 { return elements[uint64](t) }

// Int8 returns the elements; the tensor must be of DTypeInt8.
func (t Tensor) Int8() []int8 { return elements[int8](t) }

// Int16 returns the elements; the tensor must be of DTypeInt16.
func (t Tensor) Int16() []int16 { return elements[int16](t) }

// Int32 returns the elements; the tensor must be of DTypeInt32.
func (t Tensor) Int32() []int32 { return elements[int32](t) }

// Int64 returns the elements; the tensor must be of DTypeInt64.
func (t Tensor) Int64() []int64 { return elements[int64](t) }

// Float32 returns the elements; the tensor must be of DTypeFloat32.
func (t Tensor) Float32() []float32 { return elements[float32](t) }

// Float64 returns the elements; the tensor must be of DTypeFloat64.
func (t Tensor) Float64() []float64 { return elements[float64](t) }

// Float16 returns the elements, as their bits; the tensor must be of DTypeFloat16.
func (t Tensor) Float16() []typed.Half { return elements[typed.Half](t) }

// BFloat16 returns the elements, as their bits; the tensor must be of DTypeBFloat16.
func (t Tensor) BFloat16() []typed.BHalf { return elements[typed.BHalf](t) }

func elements[T typed.Element](t Tensor) []T {
	values, ok := typed.As[T](t.DType, t.Data)
	if !ok {
		panic(fmt.Sprintf("reader: the elements of tensor %q are %s, not %s", t.Name, t.DType, typed.DTypeOf[T]()))
	}
	return values
}

// elementsOf sees memory that is aligned to 64 bytes as numbers, in the machine's byte
// order.
func elementsOf[T typed.Element](b []byte) []T {
	values, _ := typed.As[T](typed.DTypeOf[T](), b)
	return values
}
