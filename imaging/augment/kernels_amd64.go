//go:build !purego

package augment

import "shardify/internal/simd"

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
