//go:build !amd64 || purego

package pixel

import "shardify/internal/simd"

func transform(dst []uint8, stride int, coef []int16, quant *[64]uint16, n, size int, _ simd.Level) {
	rowGeneric(dst, stride, coef, quant, n, size)
}

func rgb(pix []uint8, pitch, n int, _ simd.Level) { rgbGeneric(pix, pitch, n) }

func h2(dst, near, far []uint8, at, n int, even, odd uint32, _ simd.Level) {
	h2Generic(dst, near[at-1:], far[at-1:], (n+1)/2, even, odd)
}

func v2(dst, near, far []uint8, n int, bias uint32, _ simd.Level) {
	v2Generic(dst, near, far, n, bias)
}
