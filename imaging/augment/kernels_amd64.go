//go:build !purego

package augment

import (
	"math"

	"shardify/imaging"
	"shardify/internal/simd"
)

// Each of these gives whole blocks to the assembly, and what is left to the generic
// version.

// lookup replaces every byte by its table's.
func lookup(pix []uint8, t *table, level simd.Level) {
	n := len(pix) &^ 63
	switch {
	case n == 0 || level == simd.Generic:
		n = 0
	case level == simd.AVX512:
		lookupAVX512(&pix[0], n, &t[0])
	default:
		p := parts(t)
		lookupAVX2(&pix[0], n, &p[0])
	}
	lookupGeneric(pix[n:], t)
}

// parts is a table as AVX2 wants it: each 16 entries as what they differ in from the 16
// before, of each half.
func parts(t *table) (p table) {
	for i := range t {
		p[i] = t[i]
		if i&0x70 != 0 {
			p[i] ^= t[i-16]
		}
	}
	return p
}

// lookup3 does so in RGB with a table for every channel.
func lookup3(pix []uint8, t *[3]table, level simd.Level) {
	n := 0
	switch level {
	case simd.AVX512:
		if n = len(pix) / 192 * 192; n > 0 {
			lookup3AVX512(&pix[0], n, &t[0][0])
		}
	case simd.AVX2:
		if n = len(pix) / 96 * 96; n > 0 {
			p := [3]table{parts(&t[0]), parts(&t[1]), parts(&t[2])}
			lookup3AVX2(&pix[0], n, &p[0][0])
		}
	}
	lookup3Generic(pix[n:], t)
}

// mask keeps some bits of every byte and turns some round.
func mask(pix []uint8, keep, flip uint8, level simd.Level) {
	n := len(pix) &^ 31
	if n == 0 || level == simd.Generic {
		n = 0
	} else {
		maskAVX2(&pix[0], n, everyByte*uint64(keep), everyByte*uint64(flip))
	}
	maskGeneric(pix[n:], keep, flip)
}

// extremes widens the least and the largest bytes of every channel.
func extremes(pix []uint8, low, high *[3]uint8, level simd.Level) {
	n := len(pix) / 96 * 96
	if n == 0 || level == simd.Generic {
		extremesGeneric(pix, low, high)
		return
	}
	var all [192]uint8
	for i := range 96 {
		all[i], all[96+i] = low[i%3], high[i%3]
	}
	extremesAVX2(&pix[0], n, &all[0])
	extremesGeneric(all[:], low, high)
	extremesGeneric(pix[n:], low, high)
}

// blocks24 is how many bytes of pix lie in whole blocks of eight pixels.
func blocks24(pix []uint8, level simd.Level) int {
	if level == simd.Generic {
		return 0
	}
	return len(pix) / 24 * 24
}

// sumLuma sums the grey of RGB.
func sumLuma(pix []uint8, level simd.Level) (sum uint64) {
	const most = 24 << 20
	for len(pix) > most {
		sum += sumLuma(pix[:most], level)
		pix = pix[most:]
	}
	n := blocks24(pix, level)
	if n > 0 {
		sum += lumaAVX2(&pix[0], n)
	}
	return sum + lumaGeneric(pix[n:])
}

// gray makes RGB grey.
func gray(pix []uint8, level simd.Level) {
	n := blocks24(pix, level)
	if n > 0 {
		grayAVX2(&pix[0], n)
	}
	grayGeneric(pix[n:])
}

// saturate blends RGB with its grey.
func saturate(pix []uint8, alpha float32, level simd.Level) {
	n := blocks24(pix, level)
	if n > 0 {
		saturateAVX2(&pix[0], n, alpha)
	}
	saturateGeneric(pix[n:], alpha)
}

// turnHue adds to the hue of RGB.
func turnHue(pix []uint8, shift uint8, level simd.Level) {
	n := blocks24(pix, level)
	if n > 0 {
		hueAVX2(&pix[0], n, int(shift))
	}
	hueGeneric(pix[n:], shift)
}

// blurDown sums rows of bytes: the middle one, and pairs of those equally far from it.
func blurDown(dst []float32, rows []*uint8, weights []float32, level simd.Level) {
	if n := len(dst); n >= 32 && level != simd.Generic {
		blurDownAVX2(&dst[0], n, &rows[0], &weights[0], len(weights)-1)
		return
	}
	blurDownGeneric(dst, rows, weights)
}

// blurAcross sums the floats of a line, each with those by 3, 6, … before and behind it,
// and rounds them to bytes. The line begins as many before dst's first.
func blurAcross(dst []uint8, line, weights []float32, level simd.Level) {
	side := 3 * (len(weights) - 1)
	if n := len(dst); n >= 32 && level != simd.Generic {
		_ = line[n+2*side-1]
		blurAcrossAVX2(&dst[0], n, &line[side], &weights[0], len(weights)-1)
		return
	}
	blurAcrossGeneric(dst, line, weights)
}

// sharpen blends a row, all but its ends, with what it is smoothed to.
func sharpen(dst, above, row, below []uint8, alpha float32, level simd.Level) {
	n := len(row) - 6
	if n < 16 || level == simd.Generic {
		sharpenGeneric(dst, above, row, below, alpha)
		return
	}
	_, _, _ = dst[n+5], above[n+5], below[n+5]
	sharpenAVX2(&dst[3], &above[3], &row[3], &below[3], n, alpha)
}

// flip mirrors RGB.
func flip(pix []uint8, level simd.Level) {
	if n := len(pix) / 48; n > 0 && level != simd.Generic {
		flipAVX2(&pix[0], len(pix), n)
		pix = pix[24*n : len(pix)-24*n]
	}
	flipGeneric(pix)
}

// bilinear makes pixels of a slope, from the first on, and returns how many: none where
// the first four do not lie well within the image.
func bilinear(out []uint8, src *imaging.Image, s *slope, level simd.Level) int {
	if level == simd.Generic || len(src.Pix) > math.MaxInt32 {
		return 0
	}
	line := [...]float64{s.u, s.stepX, s.fromX, s.addX, float64(src.Width - 2), s.stepY, s.fromY, s.addY, float64(src.Height - 1)}
	return bilinearAVX2(&out[0], len(out)/3, &src.Pix[0], src.Stride, &line[0])
}

// slanted copies RGB pixels along a line in 16.16 fixed point, from the first on, and
// returns how many. All of them lie within pix.
func slanted(out, pix []uint8, stride, x, y, dx, dy int, level simd.Level) int {
	if level == simd.Generic || len(out) < 27 || len(pix) < 4 || len(pix) > math.MaxInt32 {
		return 0
	}
	return slantedAVX2(&out[0], len(out)/3, &pix[0], stride, len(pix)-4, x, y, dx, dy)
}
