//go:build !amd64 || purego

package resize

import "shardify/internal/simd"

func horizontal(dst []uint8, dstStride int, src []uint8, stride, rows int, a *axis) {
	horizontalGeneric(dst, dstStride, src, stride, rows, a)
}

func vertical(dst, src []uint8, stride int, a *axis, y int) {
	verticalGeneric(dst, src, stride, a.row(y))
}

func deinterleave(dst []uint8, pitch int, src []uint8, _ simd.Level) {
	deinterleaveGeneric(dst, pitch, src)
}

func interleave(dst, src []uint8, pitch int, _ simd.Level) {
	interleaveGeneric(dst, src, pitch)
}

func lookup32(dst []float32, src []uint8, table *[256]float32, _ simd.Level) {
	lookupGeneric(dst, src, table)
}

func lookup16(dst []uint16, src []uint8, table *[256]uint16, _ simd.Level) {
	lookupGeneric(dst, src, table)
}
