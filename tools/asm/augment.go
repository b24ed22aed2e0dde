package main

import (
	"math"

	. "github.com/mmcloughlin/avo/operand" //nolint:revive // operands read as in assembly
	. "github.com/mmcloughlin/avo/reg"     //nolint:revive // and registers
)

func augment(g *gen) {
	lookupAVX2(g)
	lookupAVX512(g)
	lookup3AVX2(g)
	lookup3AVX512(g)
	maskAVX2(g)
	extremesAVX2(g)
	lumaAVX2(g)
	grayAVX2(g)
	saturateAVX2(g)
	hueAVX2(g)
}

// floats repeats a number up to so many bytes.
func (g *gen) floats(n int, v float32) Mem { return g.dwords(n, int32(math.Float32bits(v))) }

// A table of 256 bytes is looked up 16 entries at a time. VPSHUFB yields nought for
// indexes that are negative, so of x - 16i it sees those bytes only that have come to
// no more than part i. Each part of the table holds what it differs in from the one
// before (by exclusive or): all up to that of x together are its own. There are two
// such chains, of the bytes below 128 and of those above.
//
// parted looks x up; x is lost, and so are t and u. sixteen has 16 in every byte.
func parted(g *gen, table Register, x, y, out, t, u, sixteen VecPhysical, top Mem) {
	g.VPXOR(top, x, y)
	for i := range 8 {
		for half, v := range []VecPhysical{x, y} {
			g.VBROADCASTI128(at(table, 128*half+16*i), t)
			if i == 0 && half == 0 {
				g.VPSHUFB(v, t, out)
			} else {
				g.VPSHUFB(v, t, u)
				g.VPXOR(u, out, out)
			}
			if i < 7 {
				g.VPSUBSB(sixteen, v, v)
			}
		}
	}
}

func lookupAVX2(g *gen) {
	g.function("lookupAVX2", "func(pix *uint8, n int, parts *uint8)",
		"lookupAVX2 looks n bytes up in place, n a multiple of 64 and not 0.")
	pix, n, parts := g.load("pix", RDI), g.load("n", RCX), g.load("parts", RSI)
	sixteen, top := ymm[15], ymm[14]
	g.VMOVDQU(g.fill(32, 16), sixteen)
	g.VMOVDQU(g.fill(32, 0x80), top)
	g.Label("loop")
	x, y, out := ymm[0:2], ymm[2:4], ymm[4:6]
	for i := range 2 {
		g.VMOVDQU(at(pix, 32*i), x[i])
		g.VPXOR(top, x[i], y[i])
	}
	for part := range 8 {
		for half := range 2 {
			g.VBROADCASTI128(at(parts, 128*half+16*part), ymm[6])
			for i, v := range [][]VecPhysical{x, y}[half] {
				if part == 0 && half == 0 {
					g.VPSHUFB(v, ymm[6], out[i])
				} else {
					g.VPSHUFB(v, ymm[6], ymm[7+i])
					g.VPXOR(ymm[7+i], out[i], out[i])
				}
				if part < 7 {
					g.VPSUBSB(sixteen, v, v)
				}
			}
		}
	}
	for i := range 2 {
		g.VMOVDQU(out[i], at(pix, 32*i))
	}
	g.ADDQ(U8(64), pix)
	g.SUBQ(U8(64), n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}

// lookupAVX512 has the table in four registers: a permutation looks up in two of them,
// and the index's highest bit chooses.
func lookupAVX512(g *gen) {
	g.function("lookupAVX512", "func(pix *uint8, n int, table *uint8)",
		"lookupAVX512 looks n bytes up in place, n a multiple of 64 and not 0.")
	pix, n, table := g.load("pix", RDI), g.load("n", RCX), g.load("table", RSI)
	for i := range 4 {
		g.VMOVDQU64(at(table, 64*i), zmm[16+i])
	}
	g.Label("loop")
	g.VMOVDQU64(at(pix, 0), zmm[0])
	g.VPMOVB2M(zmm[0], K1)
	g.VMOVDQA64(zmm[0], zmm[1])
	g.VPERMI2B(zmm[17], zmm[16], zmm[0])
	g.VPERMI2B(zmm[19], zmm[18], zmm[1])
	g.VMOVDQU8(zmm[1], K1, zmm[0])
	g.VMOVDQU64(zmm[0], at(pix, 0))
	g.ADDQ(U8(64), pix)
	g.SUBQ(U8(64), n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}

// planes is how 16-byte pieces of 48 bytes become planes: plane c takes of piece k
// the bytes at the places c, c+3, …
func planes(g *gen) (masks [3][3]Mem) {
	for c := range 3 {
		for k := range 3 {
			m := make([]byte, 16)
			for i := range m {
				m[i] = 0x80
				if p := 3*i + c - 16*k; p >= 0 && p < 16 {
					m[i] = byte(p)
				}
			}
			masks[c][k] = g.fill(32, m...)
		}
	}
	return masks
}

// pixels is the way back: of piece k, the bytes of plane c.
func pixels(g *gen) (masks [3][3]Mem) {
	for c := range 3 {
		for k := range 3 {
			m := make([]byte, 16)
			for i := range m {
				m[i] = 0x80
				if p := 16*k + i; p%3 == c {
					m[i] = byte(p / 3)
				}
			}
			masks[c][k] = g.fill(32, m...)
		}
	}
	return masks
}

// lookup3AVX2 does 32 pixels at a time, of which lane 0 has the first 16.
func lookup3AVX2(g *gen) {
	g.function("lookup3AVX2", "func(pix *uint8, n int, parts *uint8)",
		"lookup3AVX2 looks n bytes of RGB up in place, each channel in its table, n a multiple of 96 and not 0.")
	pix, n, parts := g.load("pix", RDI), g.load("n", RCX), g.load("parts", RSI)
	apart, together := planes(g), pixels(g)
	sixteen, top := ymm[15], g.fill(32, 0x80)
	g.VMOVDQU(g.fill(32, 16), sixteen)
	table := RDX
	g.Label("loop")
	for k := range 3 {
		g.VMOVDQU(at(pix, 16*k), xmm[k])
		g.VINSERTI128(U8(1), at(pix, 48+16*k), ymm[k], ymm[k])
	}
	for c := range 3 {
		g.VPSHUFB(apart[c][0], ymm[0], ymm[6])
		g.VPSHUFB(apart[c][1], ymm[1], ymm[7])
		g.VPSHUFB(apart[c][2], ymm[2], ymm[8])
		g.VPOR(ymm[7], ymm[6], ymm[6])
		g.VPOR(ymm[8], ymm[6], ymm[6])
		g.LEAQ(at(parts, 256*c), table)
		parted(g, table, ymm[6], ymm[7], ymm[3+c], ymm[8], ymm[9], sixteen, top)
	}
	for k := range 3 {
		g.VPSHUFB(together[0][k], ymm[3], ymm[0])
		g.VPSHUFB(together[1][k], ymm[4], ymm[1])
		g.VPSHUFB(together[2][k], ymm[5], ymm[2])
		g.VPOR(ymm[1], ymm[0], ymm[0])
		g.VPOR(ymm[2], ymm[0], ymm[0])
		g.VMOVDQU(xmm[0], at(pix, 16*k))
		g.VEXTRACTI128(U8(1), ymm[0], at(pix, 48+16*k))
	}
	g.ADDQ(U8(96), pix)
	g.SUBQ(U8(96), n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}

func lookup3AVX512(g *gen) {
	g.function("lookup3AVX512", "func(pix *uint8, n int, tables *uint8)",
		"lookup3AVX512 looks n bytes of RGB up in place, each channel in its table, n a multiple of 192 and not 0.")
	pix, n, tables := g.load("pix", RDI), g.load("n", RCX), g.load("tables", RSI)
	for i := range 12 {
		g.VMOVDQU64(at(tables, 64*i), zmm[16+i])
	}
	every := [3]OpmaskPhysical{K1, K2, K3} // every third byte
	for i, k := range every {
		var mask uint64
		for b := i; b < 64; b += 3 {
			mask |= 1 << b
		}
		g.MOVQ(U64(mask), RAX)
		g.KMOVQ(RAX, k)
	}
	g.Label("loop")
	for piece := range 3 {
		g.VMOVDQU64(at(pix, 64*piece), zmm[0])
		g.VPMOVB2M(zmm[0], K4)
		for c := range 3 {
			low, high := zmm[1+2*c], zmm[2+2*c]
			g.VMOVDQA64(zmm[0], low)
			g.VMOVDQA64(zmm[0], high)
			g.VPERMI2B(zmm[17+4*c], zmm[16+4*c], low)
			g.VPERMI2B(zmm[19+4*c], zmm[18+4*c], high)
			g.VMOVDQU8(high, K4, low)
		}
		// Byte b of the piece is of channel (64·piece + b) mod 3.
		for c := 1; c < 3; c++ {
			g.VMOVDQU8(zmm[1+2*c], every[(c+2*piece)%3], zmm[1])
		}
		g.VMOVDQU64(zmm[1], at(pix, 64*piece))
	}
	g.ADDQ(I32(192), pix)
	g.SUBQ(I32(192), n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}

func maskAVX2(g *gen) {
	g.function("maskAVX2", "func(pix *uint8, n int, keep, flip uint64)",
		"maskAVX2 keeps bits of n bytes and turns some round, n a multiple of 32 and not 0.")
	pix, n := g.load("pix", RDI), g.load("n", RCX)
	g.VPBROADCASTQ(g.paramAddr("keep"), ymm[0])
	g.VPBROADCASTQ(g.paramAddr("flip"), ymm[1])
	g.Label("loop")
	g.VPAND(at(pix, 0), ymm[0], ymm[2])
	g.VPXOR(ymm[1], ymm[2], ymm[2])
	g.VMOVDQU(ymm[2], at(pix, 0))
	g.ADDQ(U8(32), pix)
	g.SUBQ(U8(32), n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}

func extremesAVX2(g *gen) {
	g.function("extremesAVX2", "func(pix *uint8, n int, extremes *uint8)",
		"extremesAVX2 widens extremes, the least and then the largest bytes at each place of 96, by n more bytes, n a multiple of 96 and not 0.")
	pix, n, extremes := g.load("pix", RDI), g.load("n", RCX), g.load("extremes", RSI)
	for i := range 6 {
		g.VMOVDQU(at(extremes, 32*i), ymm[i])
	}
	g.Label("loop")
	for i := range 3 {
		g.VMOVDQU(at(pix, 32*i), ymm[6+i])
		g.VPMINUB(ymm[6+i], ymm[i], ymm[i])
		g.VPMAXUB(ymm[6+i], ymm[3+i], ymm[3+i])
	}
	g.ADDQ(U8(96), pix)
	g.SUBQ(U8(96), n)
	g.JNE(LabelRef("loop"))
	for i := range 6 {
		g.VMOVDQU(ymm[i], at(extremes, 32*i))
	}
	g.VZEROUPPER()
	g.RET()
}

// eight loads eight pixels: lane 0 their bytes 0 to 15, lane 1 those from 8 to 23, so
// that nothing around them is touched. Lane 0 has the first four pixels from its byte 0
// on, lane 1 the others from its byte 4 on.
func eight(g *gen, pix Register, out VecPhysical) {
	g.VMOVDQU(at(pix, 0), out.AsX().(VecPhysical))
	g.VINSERTI128(U8(1), at(pix, 8), out, out)
}

// spread is a shuffle that makes a dword of each of eight pixels, whose bytes are
// channels; -1 is nought.
func spread(channels ...int) (m []byte) {
	for lane := range 2 {
		for p := range 4 {
			for _, c := range channels {
				if c < 0 {
					m = append(m, 0x80)
				} else {
					m = append(m, byte(4*lane+3*p+c))
				}
			}
		}
	}
	return m
}

// gather3 is a shuffle that makes 12 bytes of each lane, of the bytes at a, b and c of
// each dword; without dwords, of those at a, b and c and the following ones.
func gather3(dwords bool, a, b, c int) []byte {
	m := make([]byte, 16)
	for i := range m {
		m[i] = 0x80
		if i < 12 {
			step := 1
			if dwords {
				step = 4
			}
			m[i] = byte([]int{a, b, c}[i%3] + step*(i/3))
		}
	}
	return m
}

// join writes the 12 bytes of each lane as 24. seams is joins.
func join(g *gen, v, seams VecPhysical, pix Register) {
	g.VPERMD(v, seams, v)
	g.VMOVDQU(v.AsX(), at(pix, 0))
	g.VEXTRACTI128(U8(1), v, v.AsX())
	g.VMOVQ(v.AsX(), at(pix, 16))
}

func joins(g *gen) Mem { return g.dwords(32, 0, 1, 2, 4, 5, 6, 7, 7) }

// luma is Pillow's grey: 19595 R + 38470 G + 7471 B, rounded at bit 16; G's weight is
// too large for 16 bits with a sign, and so comes in two halves.
type luma struct{ rg, gb, rgWeights, gbWeights, half VecPhysical }

func newLuma(g *gen, r []VecPhysical) luma {
	l := luma{r[0], r[1], r[2], r[3], r[4]}
	g.VMOVDQU(g.bytes(spread(0, -1, 1, -1)), l.rg)
	g.VMOVDQU(g.bytes(spread(1, -1, 2, -1)), l.gb)
	g.VMOVDQU(g.words(32, 19595, 19235), l.rgWeights)
	g.VMOVDQU(g.words(32, 19235, 7471), l.gbWeights)
	g.VMOVDQU(g.dwords(32, 0x8000), l.half)
	return l
}

// of makes the dwords of eight pixels' grey.
func (l luma) of(g *gen, v, out, t VecPhysical) {
	g.VPSHUFB(l.rg, v, out)
	g.VPSHUFB(l.gb, v, t)
	g.VPMADDWD(l.rgWeights, out, out)
	g.VPMADDWD(l.gbWeights, t, t)
	g.VPADDD(l.half, out, out)
	g.VPADDD(t, out, out)
	g.VPSRLD(U8(16), out, out)
}

func lumaAVX2(g *gen) {
	g.function("lumaAVX2", "func(pix *uint8, n int) (sum uint64)",
		"lumaAVX2 sums the grey of n bytes of RGB, n a multiple of 24, not 0, and below 2^30.")
	pix, n := g.load("pix", RDI), g.load("n", RCX)
	l := newLuma(g, ymm[10:15])
	g.VPXOR(ymm[0], ymm[0], ymm[0])
	g.Label("loop")
	eight(g, pix, ymm[1])
	l.of(g, ymm[1], ymm[2], ymm[3])
	g.VPADDD(ymm[2], ymm[0], ymm[0])
	g.ADDQ(U8(24), pix)
	g.SUBQ(U8(24), n)
	g.JNE(LabelRef("loop"))
	g.VPXOR(ymm[1], ymm[1], ymm[1])
	g.VPUNPCKLDQ(ymm[1], ymm[0], ymm[2])
	g.VPUNPCKHDQ(ymm[1], ymm[0], ymm[3])
	g.VPADDQ(ymm[3], ymm[2], ymm[2])
	g.VEXTRACTI128(U8(1), ymm[2], xmm[3])
	g.VPADDQ(xmm[3], xmm[2], xmm[2])
	g.VPEXTRQ(U8(1), xmm[2], RAX)
	g.VMOVQ(xmm[2], RBX)
	g.ADDQ(RBX, RAX)
	g.Store(RAX, g.ReturnIndex(0))
	g.VZEROUPPER()
	g.RET()
}

func grayAVX2(g *gen) {
	g.function("grayAVX2", "func(pix *uint8, n int)",
		"grayAVX2 makes n bytes of RGB grey, n a multiple of 24 and not 0.")
	pix, n := g.load("pix", RDI), g.load("n", RCX)
	l := newLuma(g, ymm[10:15])
	seams, thrice := ymm[15], ymm[9]
	g.VMOVDQU(joins(g), seams)
	g.VMOVDQU(g.fill(32, gather3(true, 0, 0, 0)...), thrice)
	g.Label("loop")
	eight(g, pix, ymm[1])
	l.of(g, ymm[1], ymm[2], ymm[3])
	g.VPSHUFB(thrice, ymm[2], ymm[2])
	join(g, ymm[2], seams, pix)
	g.ADDQ(U8(24), pix)
	g.SUBQ(U8(24), n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}

// saturateAVX2 adds to the grey what the factor makes of the difference from it, in
// float32, and cuts to whole numbers.
func saturateAVX2(g *gen) {
	g.function("saturateAVX2", "func(pix *uint8, n int, alpha float32)",
		"saturateAVX2 blends n bytes of RGB with their grey, n a multiple of 24 and not 0.")
	pix, n := g.load("pix", RDI), g.load("n", RCX)
	l := newLuma(g, ymm[10:15])
	seams, alpha, mix := ymm[15], ymm[9], ymm[8]
	g.VBROADCASTSS(g.paramAddr("alpha"), alpha)
	g.VMOVDQU(joins(g), seams)
	g.VMOVDQU(g.fill(32, gather3(false, 0, 4, 8)...), mix)
	var channels [3]Mem
	for c := range channels {
		channels[c] = g.bytes(spread(c, -1, -1, -1))
	}
	g.Label("loop")
	eight(g, pix, ymm[0])
	grey, base := ymm[1], ymm[2]
	l.of(g, ymm[0], grey, ymm[3])
	g.VCVTDQ2PS(grey, base)
	for c := range 3 {
		v := ymm[4+c]
		g.VPSHUFB(channels[c], ymm[0], v)
		g.VPSUBD(grey, v, v)
		g.VCVTDQ2PS(v, v)
		g.VMULPS(alpha, v, v)
		g.VADDPS(base, v, v)
		g.VCVTTPS2DQ(v, v)
	}
	g.VPACKSSDW(ymm[5], ymm[4], ymm[4])
	g.VPACKSSDW(ymm[6], ymm[6], ymm[6])
	g.VPACKUSWB(ymm[6], ymm[4], ymm[4])
	g.VPSHUFB(mix, ymm[4], ymm[4])
	join(g, ymm[4], seams, pix)
	g.ADDQ(U8(24), pix)
	g.SUBQ(U8(24), n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}

// hueAVX2 does what toHSV and fromHSV do, in float32 and whole numbers: a test tries
// all colours and all hues.
func hueAVX2(g *gen) {
	g.function("hueAVX2", "func(pix *uint8, n int, shift int)",
		"hueAVX2 turns the hue of n bytes of RGB, n a multiple of 24 and not 0.")
	pix, n, shift := g.load("pix", RDI), g.load("n", RCX), g.load("shift", RDX)
	one := g.dwords(32, 1)
	by255 := ymm[15]
	g.VMOVDQU(g.floats(32, 255), by255)
	g.VMOVQ(shift, xmm[14])
	g.VPBROADCASTD(xmm[14], ymm[14])
	// Which of v, q and p (bytes 0, 1 and 2) become R, G and B, by the sextant. A hue
	// of 255 is the start of the circle again.
	order := ymm[13]
	vqp := func(r, g, b int32) int32 { return r | g<<8 | b<<16 | -1<<31 }
	g.VMOVDQU(g.dwords(32, vqp(0, 1, 2), vqp(1, 0, 2), vqp(2, 0, 1), vqp(2, 1, 0), vqp(1, 2, 0), vqp(0, 2, 1), vqp(0, 1, 2), vqp(0, 1, 2)), order)
	places := ymm[12]
	g.VMOVDQU(g.dwords(32, 0x00000000, 0x00040404, 0x00080808, 0x000c0c0c), places)
	zero := ymm[11]
	g.VPXOR(zero, zero, zero)

	g.Label("loop")
	eight(g, pix, ymm[0])
	r, gr, b := ymm[1], ymm[2], ymm[3]
	for c, v := range []VecPhysical{r, gr, b} {
		g.VPSHUFB(g.bytes(spread(c, -1, -1, -1)), ymm[0], v)
	}
	most, least, middle := ymm[4], ymm[5], ymm[6]
	g.VPMAXSD(gr, r, most)
	g.VPMAXSD(b, most, most)
	g.VPMINSD(gr, r, least)
	g.VPMINSD(b, least, least)
	g.VPADDD(gr, r, middle)
	g.VPADDD(b, middle, middle)
	g.VPSUBD(least, middle, middle)
	g.VPADDD(most, most, ymm[7])
	g.VPSUBD(middle, ymm[7], middle) // how far the middle one lies below the most
	span := ymm[5]
	g.VPSUBD(least, most, span)
	// The hue: 0, 2 or 4 for red, green or blue, 1 to the one side, and then back.
	isR, isG := ymm[7], ymm[8]
	g.VPCMPEQD(most, r, isR)
	g.VPCMPEQD(most, gr, isG)
	side, t := ymm[9], ymm[10]
	g.VPSUBD(r, gr, side) // blue's
	g.VPSUBD(b, r, t)
	g.VPBLENDVB(isG, t, side, side)
	g.VPSUBD(gr, b, t)
	g.VPBLENDVB(isR, t, side, side)
	g.VPCMPGTD(zero, side, side) // all ones: back from -1, else from 1
	from := ymm[1]
	g.VMOVDQU(g.floats(32, 4), from)
	g.VMOVDQU(g.floats(32, 2), t)
	g.VPBLENDVB(isG, t, from, from)
	g.VPANDN(from, isR, from)
	g.VPSLLD(U8(31), side, side)
	g.VPOR(g.floats(32, 1), side, t) // 1 or -1
	g.VADDPS(t, from, from)
	turn := ymm[2]
	g.VPMAXSD(one, span, t)
	g.VCVTDQ2PS(t, t)
	g.VCVTDQ2PS(middle, turn)
	g.VDIVPS(t, turn, turn)
	g.VPXOR(g.dwords(32, -1<<31), side, side)
	g.VPXOR(side, turn, turn)
	g.VADDPS(from, turn, turn)
	g.VDIVPS(g.floats(32, 6), turn, turn)
	g.VADDPS(g.floats(32, 1), turn, t)
	g.VBLENDVPS(turn, t, turn, turn)
	g.VMULPS(by255, turn, turn)
	h := ymm[2]
	g.VCVTTPS2DQ(turn, h)
	g.VPADDD(ymm[14], h, h)
	g.VPAND(g.dwords(32, 255), h, h)
	// The saturation.
	v, s := ymm[3], ymm[5]
	g.VCVTDQ2PS(span, s)
	g.VPMAXSD(one, most, t)
	g.VCVTDQ2PS(t, t)
	g.VDIVPS(t, s, s)
	g.VMULPS(by255, s, s)
	g.VROUNDPS(U8(3), s, s)
	g.VCVTDQ2PS(most, v)
	// The sextant, and how far in it in parts of 255; or how far from its end.
	sextant, far := ymm[6], ymm[7]
	g.VPMULLW(g.dwords(32, 6), h, h)
	g.VPADDD(one, h, t)
	g.VPSRLD(U8(8), t, sextant)
	g.VPADDD(t, sextant, sextant)
	g.VPSRLD(U8(8), sextant, sextant)
	g.VPSLLD(U8(8), sextant, t)
	g.VPSUBD(sextant, t, t)
	g.VPSUBD(t, h, far)
	g.VPSUBD(far, g.moved(g.dwords(32, 255), t), t)
	g.VPAND(one, sextant, ymm[8])
	g.VPSUBD(one, ymm[8], ymm[8]) // all ones where it is even
	g.VPBLENDVB(ymm[8], t, far, far)
	// q = v (65025 - s far) / 65025, p = v (255 - s) / 255: no ties.
	g.VCVTDQ2PS(far, far)
	g.VMULPS(s, far, far)
	g.VSUBPS(far, g.moved(g.floats(32, 65025), t), far)
	g.VMULPS(v, far, far)
	g.VMULPS(g.floats(32, 1./65025), far, far)
	g.VCVTPS2DQ(far, far)
	g.VSUBPS(s, by255, s)
	g.VMULPS(v, s, s)
	g.VMULPS(g.floats(32, 1./255), s, s)
	g.VCVTPS2DQ(s, s)
	g.VPSLLD(U8(8), far, far)
	g.VPSLLD(U8(16), s, s)
	g.VPOR(far, most, most)
	g.VPOR(s, most, most)
	g.VPERMD(order, sextant, t)
	g.VPOR(places, t, t)
	g.VPSHUFB(t, most, most)
	g.VPSHUFB(g.fill(32, gather3(true, 0, 1, 2)...), most, most)
	g.VMOVDQU(joins(g), t)
	join(g, most, t, pix)
	g.ADDQ(U8(24), pix)
	g.SUBQ(U8(24), n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}

// moved loads a constant.
func (g *gen) moved(m Mem, to VecPhysical) VecPhysical {
	g.VMOVDQU(m, to)
	return to
}

// paramAddr is where a parameter lies.
func (g *gen) paramAddr(name string) Mem {
	c, err := g.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return c.Addr
}
