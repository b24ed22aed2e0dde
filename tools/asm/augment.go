package main

import (
	"encoding/binary"
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
	blurDownAVX2(g)
	blurAcrossAVX2(g)
	sharpenAVX2(g)
	flipAVX2(g)
	bilinearAVX2(g)
	slantedAVX2(g)
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

// blurDownAVX2 sums bytes of rows, those equally far up and down together, with their
// weights.
func blurDownAVX2(g *gen) {
	g.function("blurDownAVX2", "func(dst *float32, n int, rows **uint8, weights *float32, taps int)",
		"blurDownAVX2 makes n >= 32 floats of rows: the middle one, and then for each of taps the one above and the one below.")
	dst, n, rows, weights := g.load("dst", RDI), g.load("n", RCX), g.load("rows", RSI), g.load("weights", RDX)
	x, left, row, w, a, b := RBX, R8, R9, R10, R11, R12
	zero := ymm[15]
	g.VPXOR(zero, zero, zero)
	g.XORQ(x, x)
	g.Label("loop")
	// Of 16 words, the lower halves of both lanes go to one register, the upper ones to
	// another, until the end.
	sums := ymm[0:4]
	g.VBROADCASTSS(at(weights, 0), ymm[14])
	g.MOVQ(at(rows, 0), a)
	for i := range 2 {
		g.VPMOVZXBW(atx(a, x, 1, 16*i), ymm[4])
		g.VPUNPCKLWD(zero, ymm[4], sums[2*i])
		g.VPUNPCKHWD(zero, ymm[4], sums[2*i+1])
	}
	for _, s := range sums {
		g.VCVTDQ2PS(s, s)
		g.VMULPS(ymm[14], s, s)
	}
	g.LEAQ(at(rows, 8), row)
	g.LEAQ(at(weights, 4), w)
	g.Load(g.Param("taps"), left)
	g.TESTQ(left, left)
	g.JEQ(LabelRef("done"))
	g.Label("tap")
	g.MOVQ(at(row, 0), a)
	g.MOVQ(at(row, 8), b)
	g.VBROADCASTSS(at(w, 0), ymm[14])
	for i := range 2 {
		lo, hi := ymm[4+4*i], ymm[5+4*i]
		g.VPMOVZXBW(atx(a, x, 1, 16*i), ymm[6+4*i])
		g.VPMOVZXBW(atx(b, x, 1, 16*i), ymm[7+4*i])
		g.VPADDW(ymm[7+4*i], ymm[6+4*i], ymm[6+4*i])
		g.VPUNPCKLWD(zero, ymm[6+4*i], lo)
		g.VPUNPCKHWD(zero, ymm[6+4*i], hi)
		for k, v := range []VecPhysical{lo, hi} {
			g.VCVTDQ2PS(v, v)
			g.VMULPS(ymm[14], v, v)
			g.VADDPS(v, sums[2*i+k], sums[2*i+k])
		}
	}
	g.ADDQ(U8(16), row)
	g.ADDQ(U8(4), w)
	g.DECQ(left)
	g.JNE(LabelRef("tap"))
	g.Label("done")
	for i := range 2 {
		g.VINSERTI128(U8(1), sums[2*i+1].AsX(), sums[2*i], ymm[4])
		g.VPERM2I128(U8(0x31), sums[2*i+1], sums[2*i], ymm[5])
		g.VMOVUPS(ymm[4], atx(dst, x, 4, 64*i))
		g.VMOVUPS(ymm[5], atx(dst, x, 4, 64*i+32))
	}
	g.next(x, n, 32)
	g.VZEROUPPER()
	g.RET()
}

// next ends a loop in which x counts up to n in blocks, the last of which lies flush with
// the end.
func (g *gen) next(x, n GPPhysical, block int) {
	g.ADDQ(U8(block), x)
	g.MOVQ(n, RAX)
	g.SUBQ(x, RAX)
	g.JEQ(LabelRef("end"))
	g.CMPQ(RAX, U8(block))
	g.JGE(LabelRef("loop"))
	g.LEAQ(atx(x, RAX, 1, -block), x)
	g.JMP(LabelRef("loop"))
	g.Label("end")
}

func blurAcrossAVX2(g *gen) {
	g.function("blurAcrossAVX2", "func(dst *uint8, n int, line, weights *float32, taps int)",
		"blurAcrossAVX2 makes n >= 32 bytes of the floats of a line, those by 3, 6, … before and behind together for each of taps.")
	dst, n, line, weights := g.load("dst", RDI), g.load("n", RCX), g.load("line", RSI), g.load("weights", RDX)
	x, left, before, behind, w := RBX, R8, R9, R10, R11
	g.VMOVDQU(g.dwords(32, 0, 4, 1, 5, 2, 6, 3, 7), ymm[15])
	g.XORQ(x, x)
	g.Label("loop")
	g.LEAQ(atx(line, x, 4, 0), before)
	g.MOVQ(before, behind)
	g.VBROADCASTSS(at(weights, 0), ymm[14])
	for i := range 4 {
		g.VMULPS(at(before, 32*i), ymm[14], ymm[i])
	}
	g.LEAQ(at(weights, 4), w)
	g.Load(g.Param("taps"), left)
	g.TESTQ(left, left)
	g.JEQ(LabelRef("done"))
	g.Label("tap")
	g.SUBQ(U8(12), before)
	g.ADDQ(U8(12), behind)
	g.VBROADCASTSS(at(w, 0), ymm[14])
	for i := range 4 {
		g.VMOVUPS(at(before, 32*i), ymm[4+i])
		g.VADDPS(at(behind, 32*i), ymm[4+i], ymm[4+i])
		g.VMULPS(ymm[14], ymm[4+i], ymm[4+i])
		g.VADDPS(ymm[4+i], ymm[i], ymm[i])
	}
	g.ADDQ(U8(4), w)
	g.DECQ(left)
	g.JNE(LabelRef("tap"))
	g.Label("done")
	for i := range 4 {
		g.VCVTPS2DQ(ymm[i], ymm[i])
	}
	g.VPACKSSDW(ymm[1], ymm[0], ymm[0])
	g.VPACKSSDW(ymm[3], ymm[2], ymm[2])
	g.VPACKUSWB(ymm[2], ymm[0], ymm[0])
	g.VPERMD(ymm[0], ymm[15], ymm[0])
	g.VMOVDQU(ymm[0], atx(dst, x, 1, 0))
	g.next(x, n, 32)
	g.VZEROUPPER()
	g.RET()
}

// sharpenAVX2 smooths by thirteenths in 16 bits, and blends as saturateAVX2 does.
func sharpenAVX2(g *gen) {
	g.function("sharpenAVX2", "func(dst, above, row, below *uint8, n int, alpha float32)",
		"sharpenAVX2 blends n >= 16 bytes of a row with what they and the pixels around them are smoothed to.")
	dst, above, row, below := g.load("dst", RDI), g.load("above", RSI), g.load("row", RDX), g.load("below", R8)
	n, x := g.load("n", RCX), RBX
	g.VBROADCASTSS(g.paramAddr("alpha"), ymm[15])
	zero, six, thirteenth := ymm[14], ymm[13], ymm[12]
	g.VPXOR(zero, zero, zero)
	g.VMOVDQU(g.words(32, 6), six)
	g.VMOVDQU(g.words(32, 5042), thirteenth)
	g.XORQ(x, x)
	g.Label("loop")
	v, sum := ymm[0], ymm[1]
	g.VPMOVZXBW(atx(row, x, 1, 0), v)
	g.VPSLLW(U8(2), v, sum)
	g.VPADDW(six, sum, sum)
	g.VPADDW(v, sum, sum)
	second := ymm[2]
	g.VPMOVZXBW(atx(row, x, 1, -3), second)
	for _, m := range []Mem{atx(row, x, 1, 3), atx(above, x, 1, -3), atx(above, x, 1, 0), atx(above, x, 1, 3), atx(below, x, 1, -3), atx(below, x, 1, 0), atx(below, x, 1, 3)} {
		g.VPMOVZXBW(m, ymm[3])
		g.VPADDW(ymm[3], sum, sum)
		sum, second = second, sum
	}
	g.VPADDW(second, sum, sum)
	smooth := sum
	g.VPMULHUW(thirteenth, sum, smooth)
	g.VPSUBW(smooth, v, v)
	// Floats of 16 words: lower halves of the lanes, and upper ones.
	for i, out := range []VecPhysical{ymm[4], ymm[5]} {
		base := ymm[6+i]
		if i == 0 {
			g.VPUNPCKLWD(zero, smooth, base)
			g.VPUNPCKLWD(v, v, out)
		} else {
			g.VPUNPCKHWD(zero, smooth, base)
			g.VPUNPCKHWD(v, v, out)
		}
		g.VPSRAD(U8(16), out, out)
		g.VCVTDQ2PS(base, base)
		g.VCVTDQ2PS(out, out)
		g.VMULPS(ymm[15], out, out)
		g.VADDPS(base, out, out)
		g.VCVTTPS2DQ(out, out)
	}
	g.VPACKSSDW(ymm[5], ymm[4], ymm[4])
	g.VEXTRACTI128(U8(1), ymm[4], xmm[5])
	g.VPACKUSWB(xmm[5], xmm[4], xmm[4])
	g.VMOVDQU(xmm[4], atx(dst, x, 1, 0))
	g.next(x, n, 16)
	g.VZEROUPPER()
	g.RET()
}

// flipAVX2 swaps eight pixels of the one end with eight of the other.
func flipAVX2(g *gen) {
	g.function("flipAVX2", "func(pix *uint8, n, blocks int)",
		"flipAVX2 mirrors blocks of eight pixels at the start and at the end of n bytes, at the other's place.")
	front, back, blocks := g.load("pix", RDI), g.load("n", RSI), g.load("blocks", RCX)
	g.ADDQ(front, back)
	turned := make([]byte, 32)
	for lane := range 2 {
		for i := range 16 {
			turned[16*lane+i] = 0x80
			if i < 12 {
				turned[16*lane+i] = byte(4*lane + 3*(3-i/3) + i%3)
			}
		}
	}
	g.VMOVDQU(g.bytes(turned), ymm[15])
	g.VMOVDQU(g.dwords(32, 4, 5, 6, 0, 1, 2, 7, 7), ymm[14])
	g.Label("loop")
	g.SUBQ(U8(24), back)
	eight(g, front, ymm[0])
	eight(g, back, ymm[1])
	g.VPSHUFB(ymm[15], ymm[0], ymm[0])
	g.VPSHUFB(ymm[15], ymm[1], ymm[1])
	join(g, ymm[0], ymm[14], back)
	join(g, ymm[1], ymm[14], front)
	g.ADDQ(U8(24), front)
	g.DECQ(blocks)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}

// bilinearAVX2 does four pixels at a time: where they lie in four lanes, and then each
// with its channels in the lanes.
func bilinearAVX2(g *gen) {
	g.function("bilinearAVX2", "func(dst *uint8, n int, pix *uint8, stride int, line *float64) (done int)",
		"bilinearAVX2 makes pixels of a line across an image, four by four, until fewer are left of n or one of four does not lie well within the image.")
	dst, n, line := g.load("dst", RDI), g.load("n", RCX), g.load("line", RSI)
	pix, stride := g.load("pix", RDX), g.load("stride", R8)
	field := func(i int) Mem { return at(line, 8*i) }
	u, parts := ymm[15], ymm[6:8]
	g.VBROADCASTSD(field(0), u)
	g.VADDPD(g.doubles(0, 1, 2, 3), u, u)
	zero, shuffle := ymm[14], xmm[13]
	g.VXORPD(zero, zero, zero)
	g.VMOVDQU(g.bytes(gather3(true, 0, 1, 2)), shuffle)
	g.VMOVD(stride.As32(), xmm[12])
	g.VPBROADCASTD(xmm[12], xmm[12])
	g.XORQ(RAX, RAX)
	g.Label("loop")
	g.CMPQ(n, U8(4))
	g.JLT(LabelRef("end"))
	half := g.doubles(0.5, 0.5, 0.5, 0.5)
	// After u come x's step, two numbers to add, and its bound, and then y's.
	inside := ymm[4]
	for i := range 2 {
		v := parts[i]
		g.VBROADCASTSD(field(1+4*i), v)
		g.VMULPD(u, v, v)
		for k := range 2 {
			g.VBROADCASTSD(field(2+4*i+k), ymm[5])
			g.VADDPD(ymm[5], v, v)
		}
		g.VSUBPD(half, v, v)
		to := ymm[5]
		if i == 0 {
			to = inside
		}
		g.VCMPPD(U8(0x1d), zero, v, to) // at least
		if i == 1 {
			g.VANDPD(to, inside, inside)
		}
		g.VBROADCASTSD(field(4+4*i), ymm[0])
		g.VCMPPD(U8(0x11), ymm[0], v, ymm[5]) // below
		g.VANDPD(ymm[5], inside, inside)
	}
	g.VMOVMSKPD(inside, RBX.As32())
	g.CMPL(RBX.As32(), U8(15))
	g.JNE(LabelRef("end"))
	for i, v := range parts {
		g.VCVTTPD2DQY(v, xmm[2+i])
		g.VCVTDQ2PD(xmm[2+i], ymm[5])
		g.VSUBPD(ymm[5], v, v)
	}
	g.VPMULLD(xmm[12], xmm[3], xmm[3])
	g.VPADDD(xmm[2], xmm[3], xmm[3])
	g.VPADDD(xmm[2], xmm[2], xmm[2])
	g.VPADDD(xmm[2], xmm[3], xmm[3])
	offsets := []GPPhysical{R9, R10, R11, R12}
	g.VMOVD(xmm[3], offsets[0].As32())
	for p := 1; p < 4; p++ {
		g.VPEXTRD(U8(p), xmm[3], offsets[p].As32())
	}
	below := R13
	for p, above := range offsets {
		g.ADDQ(pix, above)
		g.LEAQ(atx(above, stride, 1, 0), below)
		g.VPERMPD(U8(0x55*p), parts[0], ymm[4])
		for i, row := range []GPPhysical{above, below} {
			left, right := xmm[2*i], xmm[2*i+1]
			g.VPMOVZXBD(at(row, 0), left)
			g.VPMOVZXBD(at(row, 3), right)
			g.VPSUBD(left, right, right)
			g.VCVTDQ2PD(left, left.AsY())
			g.VCVTDQ2PD(right, right.AsY())
			g.VMULPD(ymm[4], right.AsY(), right.AsY())
			g.VADDPD(right.AsY(), left.AsY(), left.AsY())
		}
		g.VPERMPD(U8(0x55*p), parts[1], ymm[4])
		g.VSUBPD(ymm[0], ymm[2], ymm[2])
		g.VMULPD(ymm[4], ymm[2], ymm[2])
		g.VADDPD(ymm[2], ymm[0], ymm[0])
		g.VCVTTPD2DQY(ymm[0], xmm[8+p])
	}
	g.VPACKSSDW(xmm[9], xmm[8], xmm[8])
	g.VPACKSSDW(xmm[11], xmm[10], xmm[10])
	g.VPACKUSWB(xmm[10], xmm[8], xmm[8])
	g.VPSHUFB(shuffle, xmm[8], xmm[8])
	g.VMOVQ(xmm[8], at(dst, 0))
	g.VPEXTRD(U8(2), xmm[8], at(dst, 8))
	g.VADDPD(g.doubles(4, 4, 4, 4), u, u)
	g.ADDQ(U8(12), dst)
	g.ADDQ(U8(4), RAX)
	g.SUBQ(U8(4), n)
	g.JMP(LabelRef("loop"))
	g.Label("end")
	g.Store(RAX, g.ReturnIndex(0))
	g.VZEROUPPER()
	g.RET()
}

// doubles is a constant of four numbers.
func (g *gen) doubles(v ...float64) Mem {
	var b []byte
	for _, v := range v {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return g.bytes(b)
}

// slantedAVX2 does eight pixels at a time, each four bytes, of which the next pixel
// overwrites the last.
func slantedAVX2(g *gen) {
	g.function("slantedAVX2", "func(dst *uint8, n int, pix *uint8, stride, last, x, y, dx, dy int) (done int)",
		"slantedAVX2 copies pixels from a line in 16.16 fixed point, eight by eight, until fewer than nine are left of n or one of eight begins behind last.")
	dst, n, pix := g.load("dst", RDI), g.load("n", RCX), g.load("pix", RSI)
	offsets := g.AllocLocal(32)
	broadcast := func(name string, to VecPhysical) { g.VPBROADCASTD(g.paramAddr(name), to) }
	stride, last, x, y, dx, dy := ymm[15], ymm[14], ymm[0], ymm[1], ymm[2], ymm[3]
	for i, name := range []string{"x", "y", "dx", "dy"} {
		broadcast(name, ymm[i])
	}
	broadcast("stride", stride)
	broadcast("last", last)
	eight := g.dwords(32, 0, 1, 2, 3, 4, 5, 6, 7)
	for i := range 2 {
		g.VPMULLD(eight, ymm[2+i], ymm[4])
		g.VPADDD(ymm[4], ymm[i], ymm[i])
		g.VPSLLD(U8(3), ymm[2+i], ymm[2+i])
	}
	g.XORQ(RAX, RAX)
	g.Label("loop")
	g.CMPQ(n, U8(9))
	g.JLT(LabelRef("end"))
	g.VPSRAD(U8(16), y, ymm[4])
	g.VPMULLD(stride, ymm[4], ymm[4])
	g.VPSRAD(U8(16), x, ymm[5])
	g.VPADDD(ymm[5], ymm[4], ymm[4])
	g.VPADDD(ymm[5], ymm[5], ymm[5])
	g.VPADDD(ymm[5], ymm[4], ymm[4])
	g.VPCMPGTD(last, ymm[4], ymm[5])
	g.VPTEST(ymm[5], ymm[5])
	g.JNE(LabelRef("end"))
	g.VMOVDQU(ymm[4], offsets)
	g.VPADDD(dx, x, x)
	g.VPADDD(dy, y, y)
	for i := range 8 {
		g.MOVLQSX(offsets.Offset(4*i), RBX)
		g.MOVL(atx(pix, RBX, 1, 0), RBX.As32())
		g.MOVL(RBX.As32(), at(dst, 3*i))
	}
	g.ADDQ(U8(24), dst)
	g.ADDQ(U8(8), RAX)
	g.SUBQ(U8(8), n)
	g.JMP(LabelRef("loop"))
	g.Label("end")
	g.Store(RAX, g.ReturnIndex(0))
	g.VZEROUPPER()
	g.RET()
}
