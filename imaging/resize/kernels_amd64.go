//go:build !purego

package resize

import "shardify/internal/simd"

// horizontal makes rows of samples of rows of samples. Rows of src may be read up
// to a.over() bytes beyond the last sample that has a weight, and rows of dst
// written up to the next multiple of 32 outputs: what lies there is lost.
func horizontal(dst []uint8, dstStride int, src []uint8, stride, rows int, a *axis) {
	if a.form == formGeneric {
		horizontalGeneric(dst, dstStride, src, stride, rows, a)
		return
	}
	if rows == 0 {
		return
	}
	n := len(a.first)
	_ = src[(rows-1)*stride+a.end-a.base+a.over()-1]
	_ = dst[(rows-1)*dstStride+(n+31)&^31-1]
	s, d, t, o, blocks := &src[0], &dst[0], &a.table[0], &a.offsets[0], a.blocks
	if a.form == formWide {
		horizontalWideAVX2(s, stride, d, dstStride, rows, t, o, blocks, a.steps)
		return
	}
	if a.key.level == simd.AVX512 && a.fine {
		switch {
		case a.form == formLong:
			horizontalLongAVX512(s, stride, d, dstStride, rows, t, o, blocks, a.steps)
		case a.steps == 1:
			horizontal1AVX512(s, stride, d, dstStride, rows, t, o, blocks)
		case a.steps == 2:
			horizontal2AVX512(s, stride, d, dstStride, rows, t, o, blocks)
		default:
			horizontal3AVX512(s, stride, d, dstStride, rows, t, o, blocks)
		}
		return
	}
	switch {
	case a.form == formLong:
		horizontalLongAVX2(s, stride, d, dstStride, rows, t, o, blocks, a.steps)
	case a.steps == 1:
		horizontal1AVX2(s, stride, d, dstStride, rows, t, o, blocks)
	case a.steps == 2:
		horizontal2AVX2(s, stride, d, dstStride, rows, t, o, blocks)
	case a.steps == 3:
		horizontal3AVX2(s, stride, d, dstStride, rows, t, o, blocks)
	default:
		horizontal4AVX2(s, stride, d, dstStride, rows, t, o, blocks)
	}
}

// vertical makes output row y of as many rows of src as it has weights.
func vertical(dst, src []uint8, stride int, a *axis, y int) {
	n, taps := len(dst), int(a.count[y])
	if a.form == formGeneric || n < 32 || a.key.level == simd.AVX512 && n < 64 {
		verticalGeneric(dst, src, stride, a.row(y))
		return
	}
	_ = src[(taps-1)*stride+n-1]
	if a.key.level == simd.AVX512 {
		t := &a.table[12*a.steps*y]
		switch {
		case taps <= 4:
			vertical1AVX512(&dst[0], &src[0], stride, n, t, taps)
		case taps <= 8:
			vertical2AVX512(&dst[0], &src[0], stride, n, t, taps)
		default:
			verticalLongAVX512(&dst[0], &src[0], stride, n, t, taps)
		}
		return
	}
	t := &a.table[8*a.steps*y]
	switch {
	case taps <= 2:
		vertical1AVX2(&dst[0], &src[0], stride, n, t, taps)
	case taps <= 4:
		vertical2AVX2(&dst[0], &src[0], stride, n, t, taps)
	case taps <= 6:
		vertical3AVX2(&dst[0], &src[0], stride, n, t, taps)
	case taps <= 8:
		vertical4AVX2(&dst[0], &src[0], stride, n, t, taps)
	default:
		verticalLongAVX2(&dst[0], &src[0], stride, n, t, taps)
	}
}

// deinterleave makes three rows of bytes, pitch apart, of RGB pixels.
func deinterleave(dst []uint8, pitch int, src []uint8, level simd.Level) {
	n := len(src) / 3
	switch {
	case level == simd.AVX512 && n >= 64:
		_ = dst[2*pitch+n-1]
		deinterleaveAVX512(&dst[0], pitch, &src[0], n)
	case level >= simd.AVX2 && n >= 32:
		_ = dst[2*pitch+n-1]
		deinterleaveAVX2(&dst[0], pitch, &src[0], n)
	default:
		deinterleaveGeneric(dst, pitch, src)
	}
}

// interleave makes RGB pixels of three rows of bytes, pitch apart.
func interleave(dst, src []uint8, pitch int, level simd.Level) {
	n := len(dst) / 3
	switch {
	case level == simd.AVX512 && n >= 64:
		_ = src[2*pitch+n-1]
		interleaveAVX512(&dst[0], &src[0], pitch, n)
	case level >= simd.AVX2 && n >= 16:
		_ = src[2*pitch+n-1]
		interleaveAVX2(&dst[0], &src[0], pitch, n)
	default:
		interleaveGeneric(dst, src, pitch)
	}
}

// lookup32 looks bytes up in a table. (AVX2's gathering loads are no faster than Go.)
func lookup32(dst []float32, src []uint8, table *[256]float32, level simd.Level) {
	if n := len(src); level == simd.AVX512 && n >= 16 {
		_ = dst[n-1]
		lookup32AVX512(&dst[0], &src[0], n, &table[0])
		return
	}
	lookupGeneric(dst, src, table)
}

// lookup16 does it with elements of 16 bits.
func lookup16(dst []uint16, src []uint8, table *[256]uint16, level simd.Level) {
	if n := len(src); level == simd.AVX512 && n >= 32 {
		_ = dst[n-1]
		lookup16AVX512(&dst[0], &src[0], n, &table[0])
		return
	}
	lookupGeneric(dst, src, table)
}
