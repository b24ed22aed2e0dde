package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand" //nolint:revive // operands read as in assembly
	. "github.com/mmcloughlin/avo/reg"     //nolint:revive // and registers
)

func encode(g *gen) {
	yccAVX2(g)
	yccAVX512(g)
	downsampleAVX2(g, 1)
	downsampleAVX2(g, 2)
	forward(g, "AVX2", ymm[:], 2)
	forward(g, "AVX512", zmm[:], 4)
	masksAVX2(g)
	masksAVX512(g)
	writeBlocks(g)
	countBlocks(g)
}

// yccAVX2 makes 32 pixels at a time: 8 in a register, as pairs (red, green) and (blue,
// green) for VPMADDWD.
func yccAVX2(g *gen) {
	g.function("yccAVX2", "func(y, cb, cr, rgb *uint8, n int)",
		"yccAVX2 converts n pixels, a multiple of 32.")
	y, cb, cr, rgb, n := g.load("y", RDI), g.load("cb", RSI), g.load("cr", RDX), g.load("rgb", R8), g.load("n", RCX)
	// The bytes of 4 pixels, from the beginning of a lane or 4 bytes into it.
	pairs := func(first, second, skip byte) []byte {
		var b []byte
		for p := range byte(4) {
			b = append(b, skip+3*p+first, 0x80, skip+3*p+second, 0x80)
		}
		return b
	}
	rg, bg := pairs(0, 1, 0), pairs(2, 1, 0)
	shuffle := func(low, high []byte) Mem { return g.bytes(append(append([]byte{}, low...), high...)) }
	k := func(a, b int16) Mem { return g.words(32, a, b) }
	order := ymm[15]
	g.VMOVDQU(g.dwords(32, 0, 4, 1, 5, 2, 6, 3, 7), order)
	chroma := ymm[14]
	g.VMOVDQU(g.dwords(32, 128<<16+32767), chroma)
	half := ymm[13]
	g.VMOVDQU(g.dwords(32, 32768), half)
	g.Label("loop")
	for i := range 4 {
		a, b, t := ymm[0], ymm[1], ymm[2]
		g.VMOVDQU(at(rgb, 24*i), a.AsX())
		if i < 3 {
			g.VINSERTI128(U8(1), at(rgb, 24*i+12), a, a)
			g.VPSHUFB(shuffle(bg, bg), a, b)
			g.VPSHUFB(shuffle(rg, rg), a, a)
		} else { // not beyond the last pixel
			g.VINSERTI128(U8(1), at(rgb, 80), a, a)
			g.VPSHUFB(shuffle(bg, pairs(2, 1, 4)), a, b)
			g.VPSHUFB(shuffle(rg, pairs(0, 1, 4)), a, a)
		}
		// Y in 3 and 4, Cb in 5 and 6, Cr in 7 and 8, for two rounds; then packed.
		to := ymm[3+i%2]
		g.VPMADDWD(k(19595, 38470-16384), a, to)
		g.VPMADDWD(k(7471, 16384), b, t)
		g.VPADDD(half, to, to)
		g.VPADDD(t, to, to)
		g.VPSRLD(U8(16), to, to)
		to = ymm[5+i%2]
		g.VPMADDWD(k(11059, 21709), a, to)
		g.VPMADDWD(k(-32768, 0), b, t)
		g.VPSUBD(to, chroma, to)
		g.VPSUBD(t, to, to)
		g.VPSRLD(U8(16), to, to)
		to = ymm[7+i%2]
		g.VPMADDWD(k(-32768, 0), a, to)
		g.VPMADDWD(k(5329, 27439), b, t)
		g.VPSUBD(to, chroma, to)
		g.VPSUBD(t, to, to)
		g.VPSRLD(U8(16), to, to)
		switch i {
		case 1:
			for c := range 3 {
				g.VPACKUSDW(ymm[4+2*c], ymm[3+2*c], ymm[9+c])
			}
		case 3:
			for c, p := range []GPPhysical{y, cb, cr} {
				g.VPACKUSDW(ymm[4+2*c], ymm[3+2*c], ymm[3+2*c])
				g.VPACKUSWB(ymm[3+2*c], ymm[9+c], ymm[9+c])
				g.VPERMD(ymm[9+c], order, ymm[9+c])
				g.VMOVDQU(ymm[9+c], at(p, 0))
				g.ADDQ(U8(32), p)
			}
		}
	}
	g.ADDQ(U8(96), rgb)
	g.SUBQ(U8(32), n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}

// yccAVX512 makes 64 pixels at a time, 16 in a register.
func yccAVX512(g *gen) {
	g.function("yccAVX512", "func(y, cb, cr, rgb *uint8, n int)",
		"yccAVX512 converts n pixels, a multiple of 64.")
	y, cb, cr, rgb, n := g.load("y", RDI), g.load("cb", RSI), g.load("cr", RDX), g.load("rgb", R8), g.load("n", RCX)
	pairs := func(first, second, skip byte) Mem {
		var b []byte
		for p := range byte(16) {
			b = append(b, skip+3*p+first, 0, skip+3*p+second, 0)
		}
		return g.bytes(b)
	}
	rg, bg, lastRG, lastBG := zmm[24], zmm[25], zmm[26], zmm[27]
	g.VMOVDQU64(pairs(0, 1, 0), rg)
	g.VMOVDQU64(pairs(2, 1, 0), bg)
	g.VMOVDQU64(pairs(0, 1, 16), lastRG)
	g.VMOVDQU64(pairs(2, 1, 16), lastBG)
	order, chroma, half := zmm[28], zmm[29], zmm[30]
	g.VMOVDQU64(g.dwords(64, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), order)
	g.VMOVDQU64(g.dwords(64, 128<<16+32767), chroma)
	g.VMOVDQU64(g.dwords(64, 32768), half)
	factors := map[pair]VecPhysical{}
	for i, p := range []pair{{19595, 38470 - 16384}, {7471, 16384}, {11059, 21709}, {-32768, 0}, {5329, 27439}} {
		factors[p] = zmm[16+i]
		g.VMOVDQU64(g.words(64, p[0], p[1]), zmm[16+i])
	}
	g.MOVQ(I64(0x5555555555555555), RAX)
	g.KMOVQ(RAX, K1)
	g.Label("loop")
	for i := range 4 {
		p, a, b := zmm[12], zmm[13], zmm[14]
		if i < 3 {
			g.VMOVDQU64(at(rgb, 48*i), p)
			g.VPERMB_Z(p, rg, K1, a)
			g.VPERMB_Z(p, bg, K1, b)
		} else { // not beyond the last pixel
			g.VMOVDQU64(at(rgb, 128), p)
			g.VPERMB_Z(p, lastRG, K1, a)
			g.VPERMB_Z(p, lastBG, K1, b)
		}
		luma := zmm[i]
		g.VMOVDQA64(half, luma)
		g.VPDPWSSD(factors[pair{19595, 38470 - 16384}], a, luma)
		g.VPDPWSSD(factors[pair{7471, 16384}], b, luma)
		g.VPSRLD(U8(16), luma, luma)
		for c, p := range [][2]pair{{{11059, 21709}, {-32768, 0}}, {{-32768, 0}, {5329, 27439}}} {
			to := zmm[4+4*c+i]
			g.VPMADDWD(factors[p[0]], a, to)
			g.VPDPWSSD(factors[p[1]], b, to)
			g.VPSUBD(to, chroma, to)
			g.VPSRLD(U8(16), to, to)
		}
	}
	for c, p := range []GPPhysical{y, cb, cr} {
		r := zmm[4*c:]
		g.VPACKUSDW(r[1], r[0], r[0])
		g.VPACKUSDW(r[3], r[2], r[2])
		g.VPACKUSWB(r[2], r[0], r[0])
		g.VPERMD(r[0], order, r[0])
		g.VMOVDQU64(r[0], at(p, 0))
		g.ADDQ(U8(64), p)
	}
	g.ADDQ(I32(192), rgb)
	g.SUBQ(U8(64), n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}

// downsampleAVX2 makes 32 samples at a time of 64, of one row or two.
func downsampleAVX2(g *gen, rows int) {
	name := fmt.Sprintf("h2v%dAVX2", rows)
	g.function(name, "func(dst, src *uint8, pitch, n int)",
		fmt.Sprintf("%s makes n samples, a multiple of 32, of 2 x %d each.", name, rows))
	dst, src, n := g.load("dst", RDI), g.load("src", RSI), g.load("n", RCX)
	lower := R8
	if rows == 2 {
		g.load("pitch", lower)
		g.ADDQ(src, lower)
	}
	ones, bias := ymm[15], ymm[14]
	g.VMOVDQU(g.fill(32, 1), ones)
	if rows == 1 {
		g.VMOVDQU(g.words(32, 0, 1), bias)
	} else {
		g.VMOVDQU(g.words(32, 1, 2), bias)
	}
	g.Label("loop")
	for i := range 2 {
		g.VMOVDQU(at(src, 32*i), ymm[i])
		g.VPMADDUBSW(ones, ymm[i], ymm[i])
		if rows == 2 {
			g.VMOVDQU(at(lower, 32*i), ymm[2+i])
			g.VPMADDUBSW(ones, ymm[2+i], ymm[2+i])
			g.VPADDW(ymm[2+i], ymm[i], ymm[i])
		}
		g.VPADDW(bias, ymm[i], ymm[i])
		g.VPSRLW(U8(uint8(rows)), ymm[i], ymm[i])
	}
	g.VPACKUSWB(ymm[1], ymm[0], ymm[0])
	g.VPERMQ(U8(0xd8), ymm[0], ymm[0])
	g.VMOVDQU(ymm[0], at(dst, 0))
	g.ADDQ(U8(32), dst)
	g.ADDQ(U8(64), src)
	if rows == 2 {
		g.ADDQ(U8(64), lower)
	}
	g.SUBQ(U8(32), n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}

// forward transforms as many blocks at a time as a register has 128-bit lanes: a
// register has a row, or a column, of each.
func forward(g *gen, level string, r []VecPhysical, lanes int) {
	name := "forward" + level
	g.function(name, "func(coef *int16, samples *uint8, pitch int, d *uint16, n int)",
		fmt.Sprintf("%s transforms and quantises n blocks side by side, a multiple of %d.", name, lanes))
	coef, samples, pitch, d, n := g.load("coef", RDI), g.load("samples", RSI), g.load("pitch", R8), g.load("d", RDX), g.load("n", RCX)
	three, lower := R9, R10
	g.LEAQ(atx(pitch, pitch, 2, 0), three)
	g.LEAQ(atx(samples, pitch, 4, 0), lower)
	wide := 16 * lanes
	k := func(a, b int16) Mem { return g.words(wide, a, b) }
	dwords := func(v int32) Mem { return g.dwords(wide, v) }
	words := func(v int16) Mem { return g.words(wide, v) }

	a, b := r[0:8], r[8:16]
	transpose := func() { // from a to b
		for i := range 4 {
			g.VPUNPCKLWD(a[2*i+1], a[2*i], b[2*i])
			g.VPUNPCKHWD(a[2*i+1], a[2*i], b[2*i+1])
		}
		for i := range 2 {
			for j := range 2 {
				g.VPUNPCKLDQ(b[4*i+2+j], b[4*i+j], a[4*i+2*j])
				g.VPUNPCKHDQ(b[4*i+2+j], b[4*i+j], a[4*i+2*j+1])
			}
		}
		for i := range 4 {
			g.VPUNPCKLQDQ(a[4+i], a[i], b[2*i])
			g.VPUNPCKHQDQ(a[4+i], a[i], b[2*i+1])
		}
	}
	// pass takes columns from in and leaves coefficient i in the register it returns at
	// i; out is memory for it.
	pass := func(in, out []VecPhysical, first bool) [8]VecPhysical {
		shift, round := uint8(15), dwords(1<<14)
		if first {
			shift, round = 11, dwords(1<<10)
		}
		narrow := func(low, high, to VecPhysical) {
			g.VPSRAD(U8(shift), low, low)
			g.VPSRAD(U8(shift), high, high)
			g.VPACKSSDW(high, low, to)
		}
		for i := range 4 {
			g.VPADDW(in[7-i], in[i], out[i])
			g.VPSUBW(in[7-i], in[i], out[7-i])
		}
		t10, t13, t11, t12 := in[0], in[1], in[2], in[3]
		g.VPADDW(out[3], out[0], t10)
		g.VPSUBW(out[3], out[0], t13)
		g.VPADDW(out[2], out[1], t11)
		g.VPSUBW(out[2], out[1], t12)
		g.VPADDW(t11, t10, out[0])
		g.VPSUBW(t11, t10, out[1])
		if first {
			g.VPSLLW(U8(2), out[0], out[0])
			g.VPSLLW(U8(2), out[1], out[1])
			// The samples are 128 too large, which this coefficient alone sees.
			g.VPSUBW(words(8*128<<2), out[0], out[0])
		} else {
			g.VPADDW(words(2), out[0], out[0])
			g.VPADDW(words(2), out[1], out[1])
			g.VPSRAW(U8(2), out[0], out[0])
			g.VPSRAW(U8(2), out[1], out[1])
		}
		low, high, x, y := in[4], in[5], in[6], in[7]
		both := func(p, q VecPhysical) {
			g.VPUNPCKLWD(q, p, low)
			g.VPUNPCKHWD(q, p, high)
		}
		both(t13, t12)
		g.VPMADDWD(k(f0541+f0765, f0541), low, x)
		g.VPMADDWD(k(f0541+f0765, f0541), high, y)
		g.VPADDD(round, x, x)
		g.VPADDD(round, y, y)
		narrow(x, y, out[2])
		g.VPMADDWD(k(f0541, f0541-f1847), low, low)
		g.VPMADDWD(k(f0541, f0541-f1847), high, high)
		g.VPADDD(round, low, low)
		g.VPADDD(round, high, high)
		narrow(low, high, out[3])

		t4, t5, t6, t7 := out[4], out[5], out[6], out[7]
		z3, z3high, z4, z4high := in[0], in[1], in[2], in[3]
		g.VPADDW(t6, t4, x)
		g.VPADDW(t7, t5, y)
		both(x, y)
		g.VPMADDWD(k(f1175-f1961, f1175), low, z3)
		g.VPMADDWD(k(f1175-f1961, f1175), high, z3high)
		g.VPMADDWD(k(f1175, f1175-f0390), low, z4)
		g.VPMADDWD(k(f1175, f1175-f0390), high, z4high)
		for _, z := range in[:4] {
			g.VPADDD(round, z, z)
		}
		odd := func(p, q int16, z, zhigh, low, high, x, y, to VecPhysical) {
			g.VPMADDWD(k(p, q), low, x)
			g.VPMADDWD(k(p, q), high, y)
			g.VPADDD(z, x, x)
			g.VPADDD(zhigh, y, y)
			narrow(x, y, to)
		}
		both(t4, t7)
		odd(f0298-f0899, -f0899, z3, z3high, low, high, x, y, t4)
		odd(-f0899, f1501-f0899, z4, z4high, low, high, low, high, t7)
		both(t5, t6)
		odd(f2053-f2562, -f2562, z4, z4high, low, high, x, y, t5)
		odd(-f2562, f3072-f2562, z3, z3high, low, high, low, high, t6)
		return [8]VecPhysical{out[0], t7, out[2], t6, out[1], t5, out[3], t4}
	}
	g.Label("loop")
	for i, row := range rowsOf(samples, lower, pitch, three) {
		g.VPMOVZXBW(row, a[i])
	}
	transpose()
	columns := pass(b, a, true)
	// The next transposition wants them in a, in order: they are there, though not in
	// order, so it is told where they are.
	a = columns[:]
	b = r[8:16]
	transpose()
	rows := pass(b, r[0:8], false)
	for i, v := range rows {
		t, sign := r[8], r[9]
		if lanes == 2 {
			g.VPABSW(v, t)
			g.VBROADCASTI128(at(d, 128+16*i), sign)
			g.VPADDW(sign, t, t)
			g.VBROADCASTI128(at(d, 16*i), sign)
			g.VPMULHUW(sign, t, t)
			g.VBROADCASTI128(at(d, 256+16*i), sign)
			g.VPMULHUW(sign, t, t)
			g.VPSIGNW(v, t, t)
			g.VMOVDQU(t.AsX(), at(coef, 16*i))
			g.VEXTRACTI128(U8(1), t, at(coef, 128+16*i))
			continue
		}
		g.VPMOVW2M(v, K1)
		g.VPABSW(v, t)
		g.VBROADCASTI32X4(at(d, 128+16*i), sign)
		g.VPADDW(sign, t, t)
		g.VBROADCASTI32X4(at(d, 16*i), sign)
		g.VPMULHUW(sign, t, t)
		g.VBROADCASTI32X4(at(d, 256+16*i), sign)
		g.VPMULHUW(sign, t, t)
		g.VPXORQ(sign, sign, sign)
		g.VPSUBW(t, sign, K1, t)
		g.VMOVDQU(t.AsX(), at(coef, 16*i))
		for j := 1; j < lanes; j++ {
			g.VEXTRACTI32X4(U8(uint8(j)), t, at(coef, 128*j+16*i))
		}
	}
	g.ADDQ(I32(int32(128*lanes)), coef)
	g.ADDQ(U8(uint8(8*lanes)), samples)
	g.ADDQ(U8(uint8(8*lanes)), lower)
	g.SUBQ(U8(uint8(lanes)), n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}

// masksAVX2 does two blocks at a time: their coefficients as bytes, of which those of
// 16 zigzag indices are picked, and compared with 0.
func masksAVX2(g *gen) {
	g.function("masksAVX2", "func(mask *uint64, coef *int16, l *uint8, n int)",
		"masksAVX2 makes the masks of n blocks, an even number.")
	mask, coef, l, n := g.load("mask", RDI), g.load("coef", RSI), g.load("l", RDX), g.load("n", RCX)
	zero := ymm[15]
	g.VPXOR(zero, zero, zero)
	g.Label("loop")
	for j := range 4 {
		for k := range 2 {
			g.VMOVDQU(at(coef, 32*j+16*k), xmm[4+k])
			g.VINSERTI128(U8(1), at(coef, 128+32*j+16*k), ymm[4+k], ymm[4+k])
		}
		g.VPACKSSWB(ymm[5], ymm[4], ymm[j])
	}
	t := []GPPhysical{RAX, RBX, R8, R9}
	for i := range 4 {
		for j := range 4 {
			g.VMOVDQU(at(l, layoutPick+32*(4*i+j)), ymm[6])
			if j == 0 {
				g.VPSHUFB(ymm[6], ymm[j], ymm[7])
				continue
			}
			g.VPSHUFB(ymm[6], ymm[j], ymm[6])
			g.VPOR(ymm[6], ymm[7], ymm[7])
		}
		g.VPCMPEQB(zero, ymm[7], ymm[7])
		g.VPMOVMSKB(ymm[7], t[i].As32())
	}
	// The lower halves are the first block's.
	for i, to := range []GPPhysical{R10, R11} {
		// Of each pair, 16 bits and 16 bits.
		for j := range 2 {
			x := R12
			if j == 1 {
				x = R13
			}
			if i == 0 {
				g.MOVWLZX(t[2*j].As16(), x.As32())
				g.MOVL(t[2*j+1].As32(), to.As32())
				g.SHLL(U8(16), to.As32())
			} else {
				g.MOVL(t[2*j].As32(), x.As32())
				g.SHRL(U8(16), x.As32())
				g.MOVL(t[2*j+1].As32(), to.As32())
				g.ANDL(I32(-0x10000), to.As32())
			}
			g.ORL(to.As32(), x.As32())
		}
		g.SHLQ(U8(32), R13)
		g.ORQ(R13, R12)
		g.NOTQ(R12)
		g.MOVQ(R12, at(mask, 8*i))
	}
	g.ADDQ(I32(256), coef)
	g.ADDQ(U8(16), mask)
	g.SUBQ(U8(2), n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}

// masksAVX512 puts the bits of a block in order in one permutation.
func masksAVX512(g *gen) {
	g.function("masksAVX512", "func(mask *uint64, coef *int16, l *uint8, n int)",
		"masksAVX512 makes the masks of n blocks.")
	mask, coef, l, n := g.load("mask", RDI), g.load("coef", RSI), g.load("l", RDX), g.load("n", RCX)
	order := zmm[16]
	g.VMOVDQU64(at(l, 0), order)
	g.Label("loop")
	g.VMOVDQU64(at(coef, 0), zmm[17])
	g.VMOVDQU64(at(coef, 64), zmm[18])
	g.VPTESTMW(zmm[17], zmm[17], K1)
	g.VPTESTMW(zmm[18], zmm[18], K2)
	g.KUNPCKDQ(K1, K2, K1)
	g.VPMOVM2B(K1, zmm[17])
	g.VPERMB(zmm[17], order, zmm[17])
	g.VPMOVB2M(zmm[17], K1)
	g.KMOVQ(K1, at(mask, 0))
	g.ADDQ(I32(128), coef)
	g.ADDQ(U8(8), mask)
	g.DECQ(n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}

// What imaging/jpeg/internal/encode has in memory; kernels_amd64.go checks it.
const (
	// Layout
	layoutPick = 64
	// codes
	codesDC, codesAC, codesSmall, codeBits6 = 0, 16 * 4, (16 + 256) * 4, 6
	codesNear                               = 32
	// context
	ctxAcc, ctxN, ctxOut, ctxLimit, ctxOrderOf, ctxLeft, ctxSlots, ctxPred, ctxSlot = 0, 8, 16, 24, 32, 40, 48, 56, 88
	// tally
	tallyDC, tallyAC, tallySmall = 0, 32 * 4, (32 + 272) * 4
	// slot
	slotCoef, slotMask, slotTable, slotAt, slotStep, slotPred, slotSize = 0, 8, 16, 24, 32, 40, 48
)

// walk is what writing and counting have in common: the way through the blocks of MCUs,
// and from one coefficient that is not 0 to the next.
type walk struct {
	*gen
	ctx, mask, coef, table, order, last, slot, slots, bits, t, u, v GPPhysical
	saved                                                           Mem // room for one more
}

func newWalk(g *gen, name, doc string) *walk {
	g.function(name, "func(c *uint8)", doc)
	k := &walk{
		gen: g, ctx: R15, mask: R10, coef: RSI, table: R11, order: R12,
		last: R13, slot: RBX, slots: R14, bits: RBP, t: RAX, u: RCX, v: RDX,
	}
	g.load("c", k.ctx)
	k.saved = g.AllocLocal(8) // its being there saves RBP
	g.MOVQ(at(k.ctx, ctxOrderOf), k.order)
	return k
}

// mcu begins an MCU.
func (k *walk) mcu() {
	k.LEAQ(at(k.ctx, ctxSlot), k.slot)
	k.MOVQ(at(k.ctx, ctxSlots), k.slots)
}

// block goes to the next block, and leaves its difference of DC in v. No
// coefficient has been looked at.
func (k *walk) block() {
	k.MOVQ(at(k.slot, slotAt), k.t)
	k.MOVQ(at(k.slot, slotCoef), k.coef)
	k.MOVQ(at(k.slot, slotMask), k.mask)
	k.MOVQ(k.t, k.u)
	k.SHRQ(U8(4), k.u)
	k.MOVQ(atx(k.mask, k.u, 1, 0), k.mask)
	k.ADDQ(k.t, k.coef)
	k.ADDQ(at(k.slot, slotStep), k.t)
	k.MOVQ(k.t, at(k.slot, slotAt))
	k.MOVQ(at(k.slot, slotTable), k.table)
	k.MOVQ(at(k.slot, slotPred), k.u)
	k.MOVWLSX(at(k.coef, 0), k.v.As32())
	k.MOVL(k.v.As32(), k.t.As32())
	k.SUBL(atx(k.ctx, k.u, 8, ctxPred), k.v.As32())
	k.MOVL(k.t.As32(), atx(k.ctx, k.u, 8, ctxPred))
	k.XORL(k.last.As32(), k.last.As32())
	k.ANDQ(I32(-2), k.mask)
}

// coefficient goes to the next one: v is its value, t 1 more than the zeros before it.
func (k *walk) coefficient() {
	k.TZCNTQ(k.mask, k.u)
	k.BLSRQ(k.mask, k.mask)
	k.MOVBLZX(atx(k.order, k.u, 1, 0), k.v.As32())
	k.MOVWLSX(atx(k.coef, k.v, 2, 0), k.v.As32())
	k.MOVL(k.u.As32(), k.t.As32())
	k.SUBL(k.last.As32(), k.t.As32())
	k.MOVL(k.u.As32(), k.last.As32())
}

// magnitude leaves v's without its sign in bits.
func (k *walk) magnitude() {
	k.MOVL(k.v.As32(), k.bits.As32())
	k.NEGL(k.bits.As32())
	k.CMOVLMI(k.v.As32(), k.bits.As32())
}

// size makes that its size.
func (k *walk) size() {
	k.LZCNTL(k.bits.As32(), k.bits.As32())
	k.NEGL(k.bits.As32())
	k.ADDL(U8(32), k.bits.As32())
}

// mcus goes to the next block, and to the next MCU.
func (k *walk) mcus() {
	k.ADDQ(U8(slotSize), k.slot)
	k.DECQ(k.slots)
	k.JNE(LabelRef("block"))
	k.DECQ(at(k.ctx, ctxLeft))
	k.JNE(LabelRef("mcu"))
}

// writeBlocks writes MCUs until none is left or there is no room for another for
// sure. Codes gather in acc, whose low n bits are valid; of n itself the low 6 bits, so
// that a table's entry, a code behind its length, is shifted by and added as it is.
func writeBlocks(g *gen) {
	k := newWalk(g, "writeBMI2", "writeBMI2 writes MCUs.")
	acc, n, out := R8, R9, RDI
	t, u, v, bits, mask, table := k.t, k.u, k.v, k.bits, k.mask, k.table
	g.MOVQ(at(k.ctx, ctxAcc), acc)
	g.MOVQ(at(k.ctx, ctxN), n)
	g.MOVQ(at(k.ctx, ctxOut), out)

	flush := func() { // leaves less than 8 bits; uses t and u
		g.MOVL(n.As32(), t.As32())
		g.NEGL(t.As32())
		g.SHLXQ(t, acc, t)
		g.BSWAPQ(t)
		g.MOVQ(t, at(out, 0))
		g.MOVL(n.As32(), u.As32())
		g.SHRL(U8(3), u.As32())
		g.ANDL(U8(7), u.As32())
		g.ADDQ(u, out)
		g.ANDL(U8(7), n.As32())
	}
	emit := func(e GPPhysical) { // changes e
		g.SHLXQ(e, acc, acc)
		g.ADDL(e.As32(), n.As32())
		g.SHRL(U8(codeBits6), e.As32())
		g.ORQ(e, acc)
	}
	value := func() { // appends v's bits, whose size is in bits; uses u
		g.MOVL(v.As32(), u.As32())
		g.SARL(U8(31), u.As32())
		g.ADDL(v.As32(), u.As32())
		g.BZHIL(bits.As32(), u.As32(), u.As32())
		g.SHLXQ(bits, acc, acc)
		g.ORQ(u, acc)
		g.ADDL(bits.As32(), n.As32())
	}
	symbol := func(id string) {
		k.coefficient()
		g.CMPL(t.As32(), U8(16))
		g.JHI(LabelRef("far" + id))
		g.Label("run" + id)
		g.LEAL(at(v, codesNear), u.As32())
		g.CMPL(u.As32(), U8(2*codesNear))
		g.JCC(LabelRef("large" + id))
		g.SHLL(U8(6), t.As32())
		g.ADDL(u.As32(), t.As32())
		g.MOVL(atx(table, t, 4, codesSmall-4*2*codesNear), t.As32())
		emit(t)
		g.Label("next" + id)
	}
	slow := func(id string) {
		// Runs of 16 zeros. At least 7 bits and three codes fit.
		g.Label("far" + id)
		g.MOVL(t.As32(), bits.As32())
		flush()
		g.Label("zeros" + id)
		g.MOVL(at(table, codesAC+4*0xf0), t.As32())
		emit(t)
		g.SUBL(U8(16), bits.As32())
		g.CMPL(bits.As32(), U8(16))
		g.JHI(LabelRef("zeros" + id))
		flush()
		g.MOVL(bits.As32(), t.As32())
		g.JMP(LabelRef("run" + id))

		g.Label("large" + id)
		g.SHLL(U8(4), t.As32())
		k.magnitude()
		k.size()
		g.ADDL(bits.As32(), t.As32())
		g.MOVL(atx(table, t, 4, codesAC-4*16), u.As32())
		g.MOVL(u.As32(), k.saved)
		flush()
		g.MOVL(k.saved, t.As32())
		emit(t)
		value()
		g.JMP(LabelRef("next" + id))
	}

	g.Label("mcu")
	g.CMPQ(out, at(k.ctx, ctxLimit))
	g.JHI(LabelRef("out"))
	k.mcu()

	g.Label("block")
	k.block()
	k.magnitude()
	k.size()
	g.MOVL(atx(table, bits, 4, codesDC), t.As32())
	emit(t)
	value()
	g.TESTQ(mask, mask)
	g.JEQ(LabelRef("end"))

	// After DC there are at most 34 bits, and 60 after a coefficient.
	g.Label("pair")
	symbol("A")
	flush()
	g.TESTQ(mask, mask)
	g.JEQ(LabelRef("end"))
	symbol("B")
	g.TESTQ(mask, mask)
	g.JNE(LabelRef("pair"))

	g.Label("end")
	g.CMPL(k.last.As32(), U8(63))
	g.JEQ(LabelRef("full"))
	g.MOVL(at(table, codesAC), t.As32())
	emit(t)
	g.Label("full")
	flush()
	k.mcus()

	g.Label("out")
	g.MOVQ(acc, at(k.ctx, ctxAcc))
	g.MOVQ(n, at(k.ctx, ctxN))
	g.MOVQ(out, at(k.ctx, ctxOut))
	g.RET()
	slow("A")
	slow("B")
}

// countBlocks counts what writeBlocks would write. What it leaves in the context in place
// of acc and n are all differences of DC and all coefficients, one or-ed with the other,
// without their signs.
func countBlocks(g *gen) {
	k := newWalk(g, "countBMI2", "countBMI2 counts the symbols of MCUs.")
	dc, ac := R8, R9
	t, u, v, bits, mask, table := k.t, k.u, k.v, k.bits, k.mask, k.table
	g.MOVQ(at(k.ctx, ctxAcc), dc)
	g.MOVQ(at(k.ctx, ctxN), ac)

	g.Label("mcu")
	k.mcu()
	g.Label("block")
	k.block()
	k.magnitude()
	g.ORQ(bits, dc)
	k.size()
	g.INCL(atx(table, bits, 4, tallyDC))
	g.TESTQ(mask, mask)
	g.JEQ(LabelRef("end"))

	g.Label("coefficient")
	k.coefficient()
	g.CMPL(t.As32(), U8(16))
	g.JHI(LabelRef("far"))
	g.Label("run")
	g.LEAL(at(v, codesNear), u.As32())
	g.CMPL(u.As32(), U8(2*codesNear))
	g.JCC(LabelRef("large"))
	g.SHLL(U8(6), t.As32())
	g.ADDL(u.As32(), t.As32())
	g.INCL(atx(table, t, 4, tallySmall-4*2*codesNear))
	g.TESTQ(mask, mask)
	g.JNE(LabelRef("coefficient"))

	g.Label("end")
	g.CMPL(k.last.As32(), U8(63))
	g.JEQ(LabelRef("full"))
	g.INCL(at(table, tallyAC))
	g.Label("full")
	k.mcus()
	g.MOVQ(dc, at(k.ctx, ctxAcc))
	g.MOVQ(ac, at(k.ctx, ctxN))
	g.RET()

	g.Label("far")
	g.INCL(at(table, tallyAC+4*0xf0))
	g.SUBL(U8(16), t.As32())
	g.CMPL(t.As32(), U8(16))
	g.JHI(LabelRef("far"))
	g.JMP(LabelRef("run"))

	g.Label("large")
	k.magnitude()
	g.ORQ(bits, ac)
	k.size()
	g.SHLL(U8(4), t.As32())
	g.ADDL(bits.As32(), t.As32())
	g.INCL(atx(table, t, 4, tallyAC-4*16))
	g.TESTQ(mask, mask)
	g.JNE(LabelRef("coefficient"))
	g.JMP(LabelRef("end"))
}
