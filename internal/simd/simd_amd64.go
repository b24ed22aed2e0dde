//go:build !purego

package simd

import "golang.org/x/sys/cpu"

var best = detect()

func detect() Level {
	x := &cpu.X86
	switch {
	case !x.HasAVX2:
		return Generic
	case x.HasAVX512 && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VBMI && x.HasAVX512VNNI:
		return AVX512
	}
	return AVX2
}
