// Package simd says which vector instructions the processor has. Code with an
// assembly version for some of them asks [Best] once, where a zero value gets its
// defaults; tests run over [All].
//
// The build tag purego leaves all assembly out. At run time
// GODEBUG=cpu.avx512f=off, or GODEBUG=cpu.avx2=off for generic Go, does the same
// from one process to the next.
package simd

import "fmt"

// Level is a set of instructions; each includes those before it.
type Level int

const (
	// Generic is Go as it runs everywhere.
	Generic Level = iota
	// AVX2 is amd64 with AVX2.
	AVX2
	// AVX512 is amd64 with AVX-512 F, BW, DQ, VL, VBMI and VNNI: Ice Lake, Zen 4,
	// and what came after them.
	AVX512
)

func (l Level) String() string {
	switch l {
	case Generic:
		return "generic"
	case AVX2:
		return "AVX2"
	case AVX512:
		return "AVX-512"
	}
	return fmt.Sprintf("Level(%d)", int(l))
}

// Best returns the highest level that this process can use.
func Best() Level { return best }

// All returns the levels that this process can use, Generic first.
func All() []Level {
	levels := make([]Level, 0, best+1)
	for l := range best + 1 {
		levels = append(levels, l)
	}
	return levels
}
