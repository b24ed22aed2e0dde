//go:build !purego

package tensor

import "shardify/internal/simd"

// mix gives whole blocks to the assembly, and what is left to generic Go.
func mix(image, before []float32, own, other float32, level simd.Level) {
	n := len(image) &^ 31
	if n == 0 || level == simd.Generic {
		n = 0
	} else {
		_ = before[n-1]
		mixAVX2(&image[0], &before[0], n, own, other)
	}
	mixGeneric(image[n:], before[n:], own, other)
}
