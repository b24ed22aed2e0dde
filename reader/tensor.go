package reader

import (
	"fmt"
	"unsafe"
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

// Uint8 returns the elements; the tensor must be of DTypeUint8.
func (t Tensor) Uint8() []uint8 {
	t.want(DTypeUint8)
	return t.Data
}

// Int64 returns the elements; the tensor must be of DTypeInt64.
func (t Tensor) Int64() []int64 {
	t.want(DTypeInt64)
	return unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(t.Data))), len(t.Data)/8)
}

// Float32 returns the elements; the tensor must be of DTypeFloat32.
func (t Tensor) Float32() []float32 {
	t.want(DTypeFloat32)
	return float32s(t.Data)
}

func (t Tensor) want(d DType) {
	if t.DType != d {
		panic(fmt.Sprintf("reader: the elements of tensor %q are %s, not %s", t.Name, t.DType, d))
	}
}

// float32s sees memory that is aligned to 64 bytes as numbers, in the machine's
// byte order.
func float32s(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
