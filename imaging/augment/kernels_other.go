//go:build !amd64 || purego

package augment

import (
	"shardify/imaging"
	"shardify/internal/simd"
)

func lookup(pix []uint8, t *table, _ simd.Level) { lookupGeneric(pix, t) }

func lookup3(pix []uint8, t *[3]table, _ simd.Level) { lookup3Generic(pix, t) }

func mask(pix []uint8, keep, flip uint8, _ simd.Level) { maskGeneric(pix, keep, flip) }

func extremes(pix []uint8, low, high *[3]uint8, _ simd.Level) { extremesGeneric(pix, low, high) }

func sumLuma(pix []uint8, _ simd.Level) uint64 { return lumaGeneric(pix) }

func gray(pix []uint8, _ simd.Level) { grayGeneric(pix) }

func saturate(pix []uint8, alpha float32, _ simd.Level) { saturateGeneric(pix, alpha) }

func turnHue(pix []uint8, shift uint8, _ simd.Level) { hueGeneric(pix, shift) }

func blurDown(dst []float32, rows []*uint8, weights []float32, _ simd.Level) {
	blurDownGeneric(dst, rows, weights)
}

func blurAcross(dst []uint8, line, weights []float32, _ simd.Level) {
	blurAcrossGeneric(dst, line, weights)
}

func sharpen(dst, above, row, below []uint8, alpha float32, _ simd.Level) {
	sharpenGeneric(dst, above, row, below, alpha)
}

func flip(pix []uint8, _ simd.Level) { flipGeneric(pix) }

func bilinear([]uint8, *imaging.Image, *slope, simd.Level) int { return 0 }

func slanted([]uint8, []uint8, int, int, int, int, int, simd.Level) int { return 0 }
