//go:build !purego

package pixel

import "shardify/internal/simd"

// transform makes the samples of n blocks side by side, size x size
// each; n is even.
func transform(dst []uint8, stride int, coef []int16, quant *[64]uint16, n, size int, level simd.Level) {
	if size == 1 || n%2 != 0 || level == simd.Generic {
		rowGeneric(dst, stride, coef, quant, n, size)
		return
	}
	_, _ = coef[64*n-1], dst[(size-1)*stride+size*n-1]
	var extreme uint64
	switch {
	case size == 2:
		idct2AVX2(&dst[0], stride, &coef[0], &quant[0], n)
	case size == 4:
		extreme = idct4AVX2(&dst[0], stride, &coef[0], &quant[0], n)
	case level == simd.AVX512:
		extreme = idctAVX512(&dst[0], stride, &coef[0], &quant[0], n)
	default:
		extreme = idctAVX2(&dst[0], stride, &coef[0], &quant[0], n)
	}
	if extreme != 0 {
		rowGeneric(dst, stride, coef, quant, n, size)
	}
}

// rgb turns n samples of three planes, pitch apart, from YCbCr into RGB in place, and
// what lies behind them, up to pitch, into anything.
func rgb(pix []uint8, pitch, n int, level simd.Level) {
	n = (n + 63) &^ 63
	if level == simd.Generic || n > pitch {
		rgbGeneric(pix, pitch, min(n, pitch))
		return
	}
	_ = pix[2*pitch+n-1]
	if level == simd.AVX512 {
		rgbAVX512(&pix[0], pitch, n)
		return
	}
	rgbAVX2(&pix[0], pitch, n)
}

// h2 makes n samples, and up to 63 more, by "fancy" upsampling of n/2: those from
// place at on, between which and 1 to 33 places further on near and far may be read.
func h2(dst, near, far []uint8, at, n int, even, odd uint32, level simd.Level) {
	if level == simd.Generic {
		h2Generic(dst, near[at-1:], far[at-1:], (n+1)/2, even, odd)
		return
	}
	n = (n + 63) &^ 63
	_, _, _ = dst[n-1], near[at+n/2], far[at+n/2]
	h2AVX2(&dst[0], &near[at], &far[at], n, uint64(even), uint64(odd))
}

// v2 makes n samples, and up to 31 more, between two rows.
func v2(dst, near, far []uint8, n int, bias uint32, level simd.Level) {
	if level == simd.Generic {
		v2Generic(dst, near, far, n, bias)
		return
	}
	n = (n + 31) &^ 31
	_, _, _ = dst[n-1], near[n-1], far[n-1]
	v2AVX2(&dst[0], &near[0], &far[0], n, uint64(bias))
}
