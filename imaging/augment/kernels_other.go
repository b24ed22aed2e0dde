//go:build !amd64 || purego

package augment

import "shardify/internal/simd"

func lookup(pix []uint8, t *table, _ simd.Level) { lookupGeneric(pix, t) }

func lookup3(pix []uint8, t *[3]table, _ simd.Level) { lookup3Generic(pix, t) }

func mask(pix []uint8, keep, flip uint8, _ simd.Level) { maskGeneric(pix, keep, flip) }

func extremes(pix []uint8, low, high *[3]uint8, _ simd.Level) { extremesGeneric(pix, low, high) }

func sumLuma(pix []uint8, _ simd.Level) uint64 { return lumaGeneric(pix) }

func gray(pix []uint8, _ simd.Level) { grayGeneric(pix) }

func saturate(pix []uint8, alpha float32, _ simd.Level) { saturateGeneric(pix, alpha) }

func turnHue(pix []uint8, shift uint8, _ simd.Level) { hueGeneric(pix, shift) }
