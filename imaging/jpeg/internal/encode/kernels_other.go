//go:build !amd64 || purego

package encode

import "shardify/internal/simd"

func ycc(y, cb, cr, rgb []uint8, n int, _ simd.Level) { yccGeneric(y, cb, cr, rgb, n) }

func downsample(dst, src []uint8, pitch, n, h, v int, _ simd.Level) {
	downsampleGeneric(dst, src, pitch, n, h, v)
}

func forward(coef []int16, samples []uint8, pitch int, d *divisors, _ simd.Level) {
	forwardGeneric(coef, samples, pitch, d)
}

func masks(mask []uint64, coef []int16, l *Layout, _ simd.Level) { masksGeneric(mask, coef, l) }

// assembly tells whether there is any.
const assembly = false

type context struct{}

func (w *Writer) row(y, from, to int) int { return w.rowGeneric(y, from, to) }

func (w *Writer) count(rows int) error { return w.countGeneric(rows) }
