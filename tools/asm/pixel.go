package main

import (
	. "github.com/mmcloughlin/avo/operand" //nolint:revive // operands read as in assembly
	. "github.com/mmcloughlin/avo/reg"     //nolint:revive // and registers
)

func pixel(g *gen) {
	idctAVX2(g)
	idctAVX512(g)
	idct4AVX2(g)
	idct2AVX2(g)
	rgbAVX2(g)
	rgbAVX512(g)
	h2AVX2(g)
	v2AVX2(g)
}

// Constants of the inverse DCT, 13 bits after the point.
const (
	f0298 = 2446
	f0390 = 3196
	f0541 = 4433
	f0765 = 6270
	f0899 = 7373
	f1175 = 9633
	f1501 = 12299
	f1847 = 15137
	f1961 = 16069
	f2053 = 16819
	f2562 = 20995
	f3072 = 25172
)

// The multiplications of one pass, as pairs of constants for VPMADDWD. A coefficient
// row pair is (0,4), (2,6), (1,7) or (5,3); the sum of the last two is (z4,z3).
type pair [2]int16

var (
	sum04  = pair{8192, 8192}
	diff04 = pair{8192, -8192}
	even3  = pair{f0541 + f0765, f0541}
	even2  = pair{f0541, f0541 - f1847}
	z3     = pair{f1175, f1175 - f1961}
	z4     = pair{f1175 - f0390, f1175}
	odd0   = pair{-f0899, f0298 - f0899}
	odd3   = pair{f1501 - f0899, -f0899}
	odd1   = pair{f2053 - f2562, -f2562}
	odd2   = pair{-f2562, f3072 - f2562}
)

const idctSignature = "func(dst *uint8, stride int, coef *int16, quant *uint16, n int) (extreme uint64)"

// bias rounds the first pass; in column 0 it rounds the second pass too, whose rows
// all take that column in the same way, and adds 128 to each sample: (16+128·32) of
// what is then shifted by 5.
func bias(n int) []int32 {
	b := make([]int32, n/4)
	for i := range b {
		b[i] = 1 << 10
		if i%8 == 0 {
			b[i] += (16 + 128*32) << 11
		}
	}
	return b
}

// transpose bytes: 4 columns of 4 rows each become rows.
var byRow = []byte{0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15}

// extremes is what tells that a block's arithmetic may not be libjpeg-turbo's: the
// coefficients of rows 0 and 4 out of ±8192, in the first pass, or the columns 0 and
// 4 out of ±16384 in the second. The largest magnitudes of all blocks are kept.
//
// Within these bounds no 16-bit sum of the even part wraps, nothing is saturated
// that the short cut for blocks of one row would let wrap, and 128 more is no
// overflow.
func extremes(g *gen, first, second, t VecPhysical) {
	g.VPSRLW(U8(13), first, first)
	g.VPSRLW(U8(14), second, second)
	g.VPOR(second, first, first)
	g.VEXTRACTI128(U8(1), first, t.AsX())
	g.VPOR(t.AsX(), first.AsX(), first.AsX())
	g.VPEXTRQ(U8(1), first.AsX(), RAX)
	g.VMOVQ(first.AsX(), RBX)
	g.ORQ(RBX, RAX)
	g.Store(RAX, g.ReturnIndex(0))
}

// idctAVX2 does a block at a time.
func idctAVX2(g *gen) {
	g.function("idctAVX2", idctSignature,
		"idctAVX2 transforms n blocks side by side. If the result is not 0, some may be wrong.")
	dst, stride, coef, quant, n := g.load("dst", RDI), g.load("stride", R8), g.load("coef", RSI), g.load("quant", RDX), g.load("n", RCX)
	three, lower := R9, R10
	g.LEAQ(atx(stride, stride, 2, 0), three)
	g.LEAQ(atx(dst, stride, 4, 0), lower)
	first, second := ymm[14], ymm[15]
	g.VPXOR(first, first, first)
	g.VPXOR(second, second, second)
	k := func(p pair) Mem { return g.words(32, p[0], p[1]) }
	biases := g.dwords(32, bias(32)...)
	pass := func(shift uint64, bias bool, largest VecPhysical) {
		a, b, e, f := ymm[0], ymm[1], ymm[2], ymm[3]
		g.VPABSW(a, ymm[13])
		g.VPMAXUW(ymm[13], largest, largest)
		g.VPMADDWD(k(sum04), a, ymm[4])
		g.VPMADDWD(k(diff04), a, ymm[5])
		if bias {
			g.VPADDD(biases, ymm[4], ymm[4])
			g.VPADDD(biases, ymm[5], ymm[5])
		}
		g.VPMADDWD(k(even3), b, ymm[6])
		g.VPMADDWD(k(even2), b, ymm[7])
		g.VPADDD(ymm[6], ymm[4], ymm[8])
		g.VPSUBD(ymm[6], ymm[4], ymm[9])
		g.VPADDD(ymm[7], ymm[5], ymm[10])
		g.VPSUBD(ymm[7], ymm[5], ymm[11])
		g.VPADDW(e, f, ymm[12])
		g.VPMADDWD(k(z3), ymm[12], ymm[13])
		g.VPMADDWD(k(z4), ymm[12], ymm[12])
		g.VPMADDWD(k(odd0), e, ymm[7])
		g.VPMADDWD(k(odd3), e, ymm[4])
		g.VPMADDWD(k(odd1), f, ymm[6])
		g.VPMADDWD(k(odd2), f, ymm[5])
		g.VPADDD(ymm[13], ymm[7], ymm[7])
		g.VPADDD(ymm[12], ymm[4], ymm[4])
		g.VPADDD(ymm[12], ymm[6], ymm[6])
		g.VPADDD(ymm[13], ymm[5], ymm[5])
		// Outputs 0 to 7, two in a register.
		even, odd := []int{8, 10, 11, 9, 9, 11, 10, 8}, []int{4, 5, 6, 7, 7, 6, 5, 4}
		for i := range 8 {
			to := ymm[12+i%2]
			if i < 4 {
				g.VPADDD(ymm[odd[i]], ymm[even[i]], to)
			} else {
				g.VPSUBD(ymm[odd[i]], ymm[even[i]], to)
			}
			g.VPSRAD(U8(shift), to, to)
			if i%2 == 1 {
				g.VPACKSSDW(ymm[13], ymm[12], ymm[i/2])
			}
		}
	}
	g.Label("loop")
	for i := range 4 {
		g.VMOVDQU(at(coef, 32*i), ymm[i])
	}
	for i := range 4 {
		g.VPMULLW(at(quant, 32*i), ymm[i], ymm[i])
	}
	pass(11, true, first)
	g.VSHUFPS(U8(0x88), ymm[1], ymm[0], ymm[4])
	g.VSHUFPS(U8(0x88), ymm[3], ymm[2], ymm[5])
	g.VSHUFPS(U8(0xdd), ymm[1], ymm[0], ymm[6])
	g.VSHUFPS(U8(0xdd), ymm[3], ymm[2], ymm[7])
	g.VINSERTI128(U8(1), xmm[5], ymm[4], ymm[0])
	g.VINSERTI128(U8(1), xmm[7], ymm[6], ymm[1])
	g.VPERM2I128(U8(0x31), ymm[5], ymm[4], ymm[2])
	g.VPERM2I128(U8(0x31), ymm[7], ymm[6], ymm[3])
	pass(18, false, second)
	g.VPACKUSWB(ymm[1], ymm[0], ymm[0])
	g.VPACKUSWB(ymm[3], ymm[2], ymm[2])
	shuffle := g.fill(32, byRow...)
	g.VPSHUFB(shuffle, ymm[0], ymm[0])
	g.VPSHUFB(shuffle, ymm[2], ymm[2])
	g.VPUNPCKLDQ(ymm[2], ymm[0], ymm[1])
	g.VPUNPCKHDQ(ymm[2], ymm[0], ymm[3])
	g.VEXTRACTI128(U8(1), ymm[1], xmm[4])
	g.VEXTRACTI128(U8(1), ymm[3], xmm[5])
	rows := rowsOf(dst, lower, stride, three)
	for i, r := range []int{1, 3, 4, 5} {
		g.VMOVQ(xmm[r], rows[2*i])
		g.VMOVHPD(xmm[r], rows[2*i+1])
	}
	g.ADDQ(I32(128), coef)
	g.ADDQ(U8(8), dst)
	g.ADDQ(U8(8), lower)
	g.DECQ(n)
	g.JNE(LabelRef("loop"))
	extremes(g, first, second, ymm[0])
	g.VZEROUPPER()
	g.RET()
}

// rowsOf is where the eight rows of a block go.
func rowsOf(upper, lower, stride, three GPPhysical) (rows [8]Mem) {
	for i := range rows {
		base := upper
		if i >= 4 {
			base = lower
		}
		switch i % 4 {
		case 0:
			rows[i] = at(base, 0)
		case 1:
			rows[i] = atx(base, stride, 1, 0)
		case 2:
			rows[i] = atx(base, stride, 2, 0)
		case 3:
			rows[i] = atx(base, three, 1, 0)
		}
	}
	return rows
}

// idctAVX512 does two blocks at a time, side by side in the halves of a register.
func idctAVX512(g *gen) {
	g.function("idctAVX512", idctSignature,
		"idctAVX512 transforms n blocks side by side, n even. If the result is not 0, some may be wrong.")
	dst, stride, coef, quant, n := g.load("dst", RDI), g.load("stride", R8), g.load("coef", RSI), g.load("quant", RDX), g.load("n", RCX)
	three, lower := R9, R10
	g.LEAQ(atx(stride, stride, 2, 0), three)
	g.LEAQ(atx(dst, stride, 4, 0), lower)
	first, second := zmm[14], zmm[15]
	g.VPXORQ(first, first, first)
	g.VPXORQ(second, second, second)
	constants := map[pair]VecPhysical{}
	for i, p := range []pair{sum04, diff04, even3, even2, z3, z4, odd0, odd3, odd1, odd2} {
		constants[p] = zmm[16+i]
		g.VMOVDQU64(g.words(64, p[0], p[1]), zmm[16+i])
	}
	var steps [4]VecPhysical
	for i := range steps {
		steps[i] = zmm[26+i]
		g.VBROADCASTI64X4(at(quant, 32*i), steps[i])
	}
	biases, shuffle := zmm[30], g.fill(64, byRow...)
	g.VMOVDQU64(g.dwords(64, bias(64)...), biases)
	quads := zmm[31]
	g.VMOVDQU64(g.bytes([]byte{
		0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
		4, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
	}), quads)
	pass := func(shift uint64, bias bool, largest VecPhysical) {
		a, b, e, f := zmm[0], zmm[1], zmm[2], zmm[3]
		g.VPABSW(a, zmm[13])
		g.VPMAXUW(zmm[13], largest, largest)
		g.VPMADDWD(constants[sum04], a, zmm[4])
		g.VPMADDWD(constants[diff04], a, zmm[5])
		if bias {
			g.VPADDD(biases, zmm[4], zmm[4])
			g.VPADDD(biases, zmm[5], zmm[5])
		}
		g.VPMADDWD(constants[even3], b, zmm[6])
		g.VPMADDWD(constants[even2], b, zmm[7])
		g.VPADDW(e, f, zmm[12])
		g.VPADDD(zmm[6], zmm[4], zmm[8])
		g.VPSUBD(zmm[6], zmm[4], zmm[9])
		g.VPADDD(zmm[7], zmm[5], zmm[10])
		g.VPSUBD(zmm[7], zmm[5], zmm[11])
		g.VPMADDWD(constants[odd3], e, zmm[4])
		g.VPMADDWD(constants[odd2], f, zmm[5])
		g.VPMADDWD(constants[odd1], f, zmm[6])
		g.VPMADDWD(constants[odd0], e, zmm[7])
		g.VPDPWSSD(constants[z4], zmm[12], zmm[4])
		g.VPDPWSSD(constants[z3], zmm[12], zmm[5])
		g.VPDPWSSD(constants[z4], zmm[12], zmm[6])
		g.VPDPWSSD(constants[z3], zmm[12], zmm[7])
		even, odd := []int{8, 10, 11, 9, 9, 11, 10, 8}, []int{4, 5, 6, 7, 7, 6, 5, 4}
		for i := range 8 {
			to := zmm[12+i%2]
			if i < 4 {
				g.VPADDD(zmm[odd[i]], zmm[even[i]], to)
			} else {
				g.VPSUBD(zmm[odd[i]], zmm[even[i]], to)
			}
			g.VPSRAD(U8(shift), to, to)
			if i%2 == 1 {
				g.VPACKSSDW(zmm[13], zmm[12], zmm[i/2])
			}
		}
	}
	g.Label("loop")
	for i := range 4 {
		g.VMOVDQU(at(coef, 32*i), ymm[i])
		g.VINSERTI64X4(U8(1), at(coef, 128+32*i), zmm[i], zmm[i])
	}
	for i := range 4 {
		g.VPMULLW(steps[i], zmm[i], zmm[i])
	}
	pass(11, true, first)
	g.VSHUFPS(U8(0x88), zmm[1], zmm[0], zmm[4])
	g.VSHUFPS(U8(0x88), zmm[3], zmm[2], zmm[5])
	g.VSHUFPS(U8(0xdd), zmm[1], zmm[0], zmm[6])
	g.VSHUFPS(U8(0xdd), zmm[3], zmm[2], zmm[7])
	// From here on the lanes are: first block's upper rows, second's, first's
	// lower, second's.
	g.VSHUFI32X4(U8(0x88), zmm[5], zmm[4], zmm[0])
	g.VSHUFI32X4(U8(0x88), zmm[7], zmm[6], zmm[1])
	g.VSHUFI32X4(U8(0xdd), zmm[5], zmm[4], zmm[2])
	g.VSHUFI32X4(U8(0xdd), zmm[7], zmm[6], zmm[3])
	pass(18, false, second)
	g.VPACKUSWB(zmm[1], zmm[0], zmm[0])
	g.VPACKUSWB(zmm[3], zmm[2], zmm[2])
	g.VPSHUFB(shuffle, zmm[0], zmm[0])
	g.VPSHUFB(shuffle, zmm[2], zmm[2])
	g.VPUNPCKLDQ(zmm[2], zmm[0], zmm[1])
	g.VPUNPCKHDQ(zmm[2], zmm[0], zmm[3])
	// Of each row, both blocks' eight samples side by side.
	g.VPERMQ(zmm[1], quads, zmm[1])
	g.VPERMQ(zmm[3], quads, zmm[3])
	rows := rowsOf(dst, lower, stride, three)
	for i, r := range []struct{ reg, lane int }{{1, 0}, {1, 1}, {3, 0}, {3, 1}, {1, 2}, {1, 3}, {3, 2}, {3, 3}} {
		if r.lane == 0 {
			g.VMOVDQU(xmm[r.reg], rows[i])
		} else {
			g.VEXTRACTI32X4(U8(uint64(r.lane)), zmm[r.reg], rows[i])
		}
	}
	g.ADDQ(I32(256), coef)
	g.ADDQ(U8(16), dst)
	g.ADDQ(U8(16), lower)
	g.SUBQ(U8(2), n)
	g.JNE(LabelRef("loop"))
	for _, r := range []int{14, 15} {
		g.VEXTRACTI64X4(U8(1), zmm[r], ymm[0])
		g.VPMAXUW(ymm[0], ymm[r], ymm[r])
	}
	extremes(g, ymm[14], ymm[15], ymm[0])
	g.VZEROUPPER()
	g.RET()
}

const rgbSignature = "func(pix *uint8, pitch, n int)"

// rgb converts one register of samples of each plane: red and blue by a rounding
// multiplication of doubled chroma, which is exact for all 256 values; green by
// libjpeg's two products.
func rgb(g *gen, r []VecPhysical, load, store func(from, to Op), xor func(...Op), y, cb, cr Mem) {
	zero, centre, toRed, toBlue, toGreen, round := r[14], r[15], r[13], r[12], r[11], r[10]
	load(cb, r[1])
	load(cr, r[2])
	xor(centre, r[1], r[1])
	xor(centre, r[2], r[2])
	// Doubled, as words: cb in 3 and 4, cr in 5 and 6.
	for i, lo := range []int{3, 5} {
		g.VPUNPCKLBW(r[1+i], zero, r[lo])
		g.VPUNPCKHBW(r[1+i], zero, r[lo+1])
		g.VPSRAW(U8(7), r[lo], r[lo])
		g.VPSRAW(U8(7), r[lo+1], r[lo+1])
	}
	green := func(cb, cr, to, t VecPhysical) {
		g.VPUNPCKLWD(cr, cb, to)
		g.VPUNPCKHWD(cr, cb, t)
		for _, v := range []VecPhysical{to, t} {
			g.VPMADDWD(toGreen, v, v)
			g.VPADDD(round, v, v)
			g.VPSRAD(U8(16), v, v)
		}
		g.VPACKSSDW(t, to, to)
	}
	load(y, r[0])
	green(r[3], r[5], r[1], r[2])
	green(r[4], r[6], r[7], r[2])
	g.VPUNPCKLBW(zero, r[0], r[8])
	g.VPUNPCKHBW(zero, r[0], r[9])
	g.VPMULHRSW(toBlue, r[3], r[3])
	g.VPMULHRSW(toBlue, r[4], r[4])
	g.VPMULHRSW(toRed, r[5], r[5])
	g.VPMULHRSW(toRed, r[6], r[6])
	for _, v := range [][2]int{{3, 8}, {4, 9}, {5, 8}, {6, 9}, {1, 8}, {7, 9}} {
		g.VPADDW(r[v[1]], r[v[0]], r[v[0]])
	}
	g.VPACKUSWB(r[6], r[5], r[5])
	g.VPACKUSWB(r[7], r[1], r[1])
	g.VPACKUSWB(r[4], r[3], r[3])
	store(r[5], y)
	store(r[1], cb)
	store(r[3], cr)
}

func rgbAVX2(g *gen) {
	g.function("rgbAVX2", rgbSignature, "rgbAVX2 turns n samples of three planes, pitch apart, into RGB; n is a multiple of 32.")
	pix, pitch, n := g.load("pix", RDI), g.load("pitch", R8), g.load("n", RCX)
	r := ymm[:16]
	g.VPXOR(r[14], r[14], r[14])
	g.VMOVDQU(g.fill(32, 128), r[15])
	g.VMOVDQU(g.words(32, 22971), r[13])
	g.VMOVDQU(g.words(32, 29033), r[12])
	g.VMOVDQU(g.words(32, -11277, -23401), r[11])
	g.VMOVDQU(g.dwords(32, 1<<15), r[10])
	g.Label("loop")
	move := func(from, to Op) { g.VMOVDQU(from, to) }
	xor := func(ops ...Op) { g.VPXOR(ops[0], ops[1], ops[2]) }
	rgb(g, r, move, move, xor, at(pix, 0), atx(pix, pitch, 1, 0), atx(pix, pitch, 2, 0))
	g.ADDQ(U8(32), pix)
	g.SUBQ(U8(32), n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}

func rgbAVX512(g *gen) {
	g.function("rgbAVX512", rgbSignature, "rgbAVX512 turns n samples of three planes, pitch apart, into RGB; n is a multiple of 64.")
	pix, pitch, n := g.load("pix", RDI), g.load("pitch", R8), g.load("n", RCX)
	r := zmm[:16]
	g.VPXORQ(r[14], r[14], r[14])
	g.VMOVDQU64(g.fill(64, 128), r[15])
	g.VMOVDQU64(g.words(64, 22971), r[13])
	g.VMOVDQU64(g.words(64, 29033), r[12])
	g.VMOVDQU64(g.words(64, -11277, -23401), r[11])
	g.VMOVDQU64(g.dwords(64, 1<<15), r[10])
	g.Label("loop")
	move := func(from, to Op) { g.VMOVDQU64(from, to) }
	xor := func(ops ...Op) { g.VPXORQ(ops[0], ops[1], ops[2]) }
	rgb(g, r, move, move, xor, at(pix, 0), atx(pix, pitch, 1, 0), atx(pix, pitch, 2, 0))
	g.ADDQ(U8(64), pix)
	g.SUBQ(U8(64), n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}

// h2AVX2 makes 64 samples of 32: VPMADDUBSW adds up the two rows, three to one; the
// neighbours' sums come from loads one sample to the left and right.
func h2AVX2(g *gen) {
	g.function("h2AVX2", "func(dst, near, far *uint8, n int, even, odd uint64)",
		"h2AVX2 makes n samples, a multiple of 64, of n/2 from near and far on, and their neighbours.")
	dst, near, far, n := g.load("dst", RDI), g.load("near", RSI), g.load("far", RDX), g.load("n", RCX)
	even, odd, three := ymm[15], ymm[14], ymm[13]
	g.Load(g.Param("even"), RAX)
	g.VMOVQ(RAX, xmm[15])
	g.VPBROADCASTW(xmm[15], even)
	g.Load(g.Param("odd"), RAX)
	g.VMOVQ(RAX, xmm[14])
	g.VPBROADCASTW(xmm[14], odd)
	g.VMOVDQU(g.fill(32, 3, 1), three)
	g.Label("loop")
	for i, d := range []int{0, -1, 1} { // this, left, right
		lo, hi := ymm[2*i], ymm[2*i+1]
		g.VMOVDQU(at(near, d), ymm[6])
		g.VMOVDQU(at(far, d), ymm[7])
		g.VPUNPCKLBW(ymm[7], ymm[6], lo)
		g.VPUNPCKHBW(ymm[7], ymm[6], hi)
		g.VPMADDUBSW(three, lo, lo)
		g.VPMADDUBSW(three, hi, hi)
	}
	for half := range 2 {
		this, left, right := ymm[half], ymm[2+half], ymm[4+half]
		g.VPADDW(this, this, ymm[6])
		g.VPADDW(this, ymm[6], ymm[6])
		g.VPADDW(ymm[6], left, left)
		g.VPADDW(even, left, left)
		g.VPSRLW(U8(4), left, left)
		g.VPADDW(ymm[6], right, right)
		g.VPADDW(odd, right, right)
		g.VPSRLW(U8(4), right, right)
		g.VPSLLW(U8(8), right, right)
		g.VPOR(right, left, left)
	}
	g.VINSERTI128(U8(1), xmm[3], ymm[2], ymm[0])
	g.VPERM2I128(U8(0x31), ymm[3], ymm[2], ymm[1])
	g.VMOVDQU(ymm[0], at(dst, 0))
	g.VMOVDQU(ymm[1], at(dst, 32))
	g.ADDQ(U8(32), near)
	g.ADDQ(U8(32), far)
	g.ADDQ(U8(64), dst)
	g.SUBQ(U8(64), n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}

func v2AVX2(g *gen) {
	g.function("v2AVX2", "func(dst, near, far *uint8, n int, bias uint64)",
		"v2AVX2 makes n samples, a multiple of 32, between near and far.")
	dst, near, far, n := g.load("dst", RDI), g.load("near", RSI), g.load("far", RDX), g.load("n", RCX)
	g.Load(g.Param("bias"), RAX)
	g.VMOVQ(RAX, xmm[15])
	g.VPBROADCASTW(xmm[15], ymm[15])
	g.VMOVDQU(g.fill(32, 3, 1), ymm[14])
	g.Label("loop")
	g.VMOVDQU(at(near, 0), ymm[2])
	g.VMOVDQU(at(far, 0), ymm[3])
	g.VPUNPCKLBW(ymm[3], ymm[2], ymm[0])
	g.VPUNPCKHBW(ymm[3], ymm[2], ymm[1])
	for i := range 2 {
		g.VPMADDUBSW(ymm[14], ymm[i], ymm[i])
		g.VPADDW(ymm[15], ymm[i], ymm[i])
		g.VPSRLW(U8(2), ymm[i], ymm[i])
	}
	g.VPACKUSWB(ymm[1], ymm[0], ymm[0])
	g.VMOVDQU(ymm[0], at(dst, 0))
	g.ADDQ(U8(32), near)
	g.ADDQ(U8(32), far)
	g.ADDQ(U8(32), dst)
	g.SUBQ(U8(32), n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}

// The multiplications of the inverse DCT to 4 x 4.
const (
	f0211 = 1730
	f0509 = 4176
	f0601 = 4926
	f1061 = 8697
	f1451 = 11893
	f2172 = 17799
)

// idct4AVX2 does two blocks at a time: the first pass one after the other, the second
// in the lanes of a register.
func idct4AVX2(g *gen) {
	g.function("idct4AVX2", idctSignature,
		"idct4AVX2 makes 4 x 4 samples of each of n blocks side by side, n even. If the result is not 0, some may be wrong.")
	dst, stride, coef, quant, n := g.load("dst", RDI), g.load("stride", R8), g.load("coef", RSI), g.load("quant", RDX), g.load("n", RCX)
	three := R9
	g.LEAQ(atx(stride, stride, 2, 0), three)
	first, second := ymm[14], ymm[15]
	g.VPXOR(first, first, first)
	g.VPXOR(second, second, second) // in this pass nothing can go wrong
	k := func(a, b int16) Mem { return g.words(32, a, b) }
	// pass leaves the outputs 0 to 3, two in a register, in 0 and 1.
	pass := func(shift uint64) {
		a, b, e, f := ymm[0], ymm[1], ymm[2], ymm[3]
		g.VPMADDWD(k(1<<14, 0), a, ymm[4])
		g.VPADDD(g.dwords(32, 1<<(shift-1)), ymm[4], ymm[4])
		g.VPMADDWD(k(f1847, -f0765), b, ymm[5])
		g.VPMADDWD(k(f1061, -f0211), e, ymm[6])
		g.VPMADDWD(k(f1451, -f2172), f, ymm[7])
		g.VPMADDWD(k(f2562, -f0509), e, ymm[8])
		g.VPMADDWD(k(-f0601, f0899), f, ymm[9])
		g.VPADDD(ymm[5], ymm[4], ymm[10])
		g.VPSUBD(ymm[5], ymm[4], ymm[11])
		g.VPADDD(ymm[7], ymm[6], ymm[6])
		g.VPADDD(ymm[9], ymm[8], ymm[8])
		g.VPADDD(ymm[8], ymm[10], ymm[0])
		g.VPADDD(ymm[6], ymm[11], ymm[1])
		g.VPSUBD(ymm[6], ymm[11], ymm[2])
		g.VPSUBD(ymm[8], ymm[10], ymm[3])
		for i := range 4 {
			g.VPSRAD(U8(shift), ymm[i], ymm[i])
		}
		g.VPACKSSDW(ymm[1], ymm[0], ymm[0])
		g.VPACKSSDW(ymm[3], ymm[2], ymm[1])
	}
	g.Label("loop")
	for block := range 2 {
		for i := range 4 {
			g.VMOVDQU(at(coef, 128*block+32*i), ymm[i])
		}
		for i := range 4 {
			g.VPMULLW(at(quant, 32*i), ymm[i], ymm[i])
		}
		g.VPABSW(ymm[0], ymm[4])
		g.VPMAXUW(ymm[4], first, first)
		pass(12)
		// Columns (0,4) and (1,7) of four rows; (2,6) and (5,3).
		to := ymm[12:]
		if block == 1 {
			to = ymm[4:]
		}
		g.VSHUFPS(U8(0x88), ymm[1], ymm[0], to[0])
		g.VSHUFPS(U8(0xdd), ymm[1], ymm[0], to[1])
	}
	g.VINSERTI128(U8(1), xmm[4], ymm[12], ymm[0])
	g.VINSERTI128(U8(1), xmm[5], ymm[13], ymm[1])
	g.VPERM2I128(U8(0x31), ymm[4], ymm[12], ymm[2])
	g.VPERM2I128(U8(0x31), ymm[5], ymm[13], ymm[3])
	pass(19)
	g.VPACKSSWB(ymm[1], ymm[0], ymm[0])
	g.VPXOR(g.fill(32, 128), ymm[0], ymm[0])
	g.VPSHUFB(g.fill(32, byRow...), ymm[0], ymm[0])
	g.VEXTRACTI128(U8(1), ymm[0], xmm[1])
	g.VPUNPCKLDQ(xmm[1], xmm[0], xmm[2])
	g.VPUNPCKHDQ(xmm[1], xmm[0], xmm[3])
	rows := rowsOf(dst, dst, stride, three)
	g.VMOVQ(xmm[2], rows[0])
	g.VMOVHPD(xmm[2], rows[1])
	g.VMOVQ(xmm[3], rows[2])
	g.VMOVHPD(xmm[3], rows[3])
	g.ADDQ(I32(256), coef)
	g.ADDQ(U8(8), dst)
	g.SUBQ(U8(2), n)
	g.JNE(LabelRef("loop"))
	extremes(g, first, second, ymm[0])
	g.VZEROUPPER()
	g.RET()
}

// The multiplications of the inverse DCT to 2 x 2.
const (
	f0720 = 5906
	f0850 = 6967
	f1272 = 10426
	f3624 = 29692
)

// idct2AVX2 does two blocks at a time, as idct4AVX2. Only column 0 and the odd ones
// count, and only row 0 and the odd ones.
func idct2AVX2(g *gen) {
	g.function("idct2AVX2", "func(dst *uint8, stride int, coef *int16, quant *uint16, n int)",
		"idct2AVX2 makes 2 x 2 samples of each of n blocks side by side, n even.")
	dst, stride, coef, quant, n := g.load("dst", RDI), g.load("stride", R8), g.load("coef", RSI), g.load("quant", RDX), g.load("n", RCX)
	// Rows 1 and 7, and 5 and 3; in the second pass columns.
	g.VMOVDQU(g.words(32, f3624, -f0720), ymm[15])
	g.VMOVDQU(g.words(32, f0850, -f1272), ymm[14])
	g.VMOVDQU(g.words(32, f3624, -f0720, f0850, -f1272), ymm[13])
	g.VMOVDQU(g.words(32, 1<<14, 0), ymm[12])
	g.VMOVDQU(g.dwords(32, 1<<12), ymm[11])
	g.VMOVDQU(g.dwords(32, 1<<19), ymm[10])
	g.VMOVDQU(g.fill(32, 128), ymm[9])
	g.Label("loop")
	for block := range 2 {
		a, e, f := ymm[0], ymm[1], ymm[2]
		for i, r := range []VecPhysical{a, e, f} {
			pair := []int{0, 2, 3}[i]
			g.VMOVDQU(at(coef, 128*block+32*pair), r)
			g.VPMULLW(at(quant, 32*pair), r, r)
		}
		g.VPMADDWD(ymm[12], a, a)
		g.VPADDD(a, a, a)
		g.VPADDD(ymm[11], a, a)
		g.VPMADDWD(ymm[15], e, e)
		g.VPMADDWD(ymm[14], f, f)
		g.VPADDD(f, e, e)
		g.VPSUBD(e, a, f)
		g.VPADDD(e, a, a)
		g.VPSRAD(U8(13), a, a) // upper
		g.VPSRAD(U8(13), f, f) // lower
		to := ymm[4+2*block:]
		g.VPACKSSDW(f, a, to[0])  // lane 1: the odd columns of both
		g.VPUNPCKLDQ(f, a, to[1]) // lane 0: column 0 of both
	}
	g.VPERM2I128(U8(0x31), ymm[6], ymm[4], ymm[0])
	g.VINSERTI128(U8(1), xmm[7], ymm[5], ymm[1])
	g.VPMADDWD(ymm[13], ymm[0], ymm[0])
	g.VPHADDD(ymm[0], ymm[0], ymm[0])
	g.VPSLLD(U8(15), ymm[1], ymm[1])
	g.VPADDD(ymm[10], ymm[1], ymm[1])
	g.VPADDD(ymm[0], ymm[1], ymm[2])
	g.VPSUBD(ymm[0], ymm[1], ymm[3])
	g.VPUNPCKLDQ(ymm[3], ymm[2], ymm[0])
	g.VPSRAD(U8(20), ymm[0], ymm[0])
	g.VPACKSSDW(ymm[0], ymm[0], ymm[0])
	g.VPACKSSWB(ymm[0], ymm[0], ymm[0])
	g.VPXOR(ymm[9], ymm[0], ymm[0])
	g.VEXTRACTI128(U8(1), ymm[0], xmm[1])
	g.VPUNPCKLWD(xmm[1], xmm[0], xmm[0])
	g.VMOVD(xmm[0], at(dst, 0))
	g.VPEXTRD(U8(1), xmm[0], atx(dst, stride, 1, 0))
	g.ADDQ(I32(256), coef)
	g.ADDQ(U8(4), dst)
	g.SUBQ(U8(2), n)
	g.JNE(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}
