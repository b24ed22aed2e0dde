//go:build !amd64 || purego

package tensor

import "shardify/internal/simd"

func mix(image, before []float32, own, other float32, _ simd.Level) {
	mixGeneric(image, before, own, other)
}
