package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand" //nolint:revive // operands read as in assembly
	. "github.com/mmcloughlin/avo/reg"     //nolint:revive // and registers
)

// precision is imaging/resize's: bits after the point of a weight.
const precision = 22

func resize(g *gen) {
	for pairs := 1; pairs <= 4; pairs++ {
		verticalAVX2(g, pairs)
	}
	verticalLongAVX2(g)
	for quads := 1; quads <= 2; quads++ {
		verticalAVX512(g, quads)
	}
	verticalLongAVX512(g)
	for pairs := 1; pairs <= 4; pairs++ {
		horizontalAVX2(g, pairs)
	}
	horizontalLongAVX2(g)
	horizontalWideAVX2(g)
	for quads := 1; quads <= 3; quads++ {
		horizontalAVX512(g, quads)
	}
	horizontalLongAVX512(g)
	deinterleaveAVX2(g)
	deinterleaveAVX512(g)
	interleaveAVX2(g)
	interleaveAVX512(g)
	lookup32AVX512(g)
	lookup16AVX512(g)
}

const verticalSignature = "func(dst, src *uint8, stride, n int, weights *uint8, taps int)"

// verticalAVX2 is for 2·pairs-1 or 2·pairs taps. Of a pair of rows the bytes are
// interleaved and widened, so that VPMADDWD multiplies each two by their weights:
// once by the weights' upper bits, once by their lower 8.
func verticalAVX2(g *gen, pairs int) {
	g.function(fmt.Sprintf("vertical%dAVX2", pairs), verticalSignature,
		fmt.Sprintf("vertical%dAVX2 makes a row of n >= 32 bytes of %d or %d rows.", pairs, 2*pairs-1, 2*pairs))
	src, stride, dst, n := g.load("src", RSI), g.load("stride", R8), g.load("dst", RDI), g.load("n", RCX)
	weights, taps := g.load("weights", RAX), g.load("taps", RDX)
	for p := range pairs {
		g.VPBROADCASTD(at(weights, 8*p), ymm[8+2*p])
		g.VPBROADCASTD(at(weights, 8*p+4), ymm[9+2*p])
	}
	zero := ymm[7]
	g.VPXOR(zero, zero, zero)
	// Rows 0 to 3 from src, 4 to 7 from upper; the last from last, which is the
	// one before where the number of taps is odd.
	three, upper, last := R9, R10, R11
	g.LEAQ(atx(stride, stride, 2, 0), three)
	g.LEAQ(atx(src, stride, 4, 0), upper)
	g.SUBQ(U8(1), taps)
	g.IMULQ(stride, taps)
	g.LEAQ(atx(src, taps, 1, 0), last)
	row := func(i int) Mem {
		if i == 2*pairs-1 {
			return at(last, 0)
		}
		base := src
		if i >= 4 {
			base = upper
		}
		switch i % 4 {
		case 0:
			return at(base, 0)
		case 1:
			return atx(base, stride, 1, 0)
		case 2:
			return atx(base, stride, 2, 0)
		}
		return atx(base, three, 1, 0)
	}
	half := g.dwords(32, 1<<(precision-1))
	g.Label("loop")
	for _, high := range []bool{false, true} {
		for p := range pairs {
			g.VMOVDQU(row(2*p), ymm[4])
			if high {
				g.VPUNPCKHBW(row(2*p+1), ymm[4], ymm[4])
			} else {
				g.VPUNPCKLBW(row(2*p+1), ymm[4], ymm[4])
			}
			g.VPUNPCKHBW(zero, ymm[4], ymm[5])
			g.VPUNPCKLBW(zero, ymm[4], ymm[4])
			h, l := ymm[8+2*p], ymm[9+2*p]
			if p == 0 {
				g.VPMADDWD(h, ymm[4], ymm[0])
				g.VPMADDWD(h, ymm[5], ymm[1])
				g.VPMADDWD(l, ymm[4], ymm[2])
				g.VPMADDWD(l, ymm[5], ymm[3])
				continue
			}
			g.VPMADDWD(h, ymm[4], ymm[6])
			g.VPADDD(ymm[6], ymm[0], ymm[0])
			g.VPMADDWD(h, ymm[5], ymm[6])
			g.VPADDD(ymm[6], ymm[1], ymm[1])
			g.VPMADDWD(l, ymm[4], ymm[4])
			g.VPADDD(ymm[4], ymm[2], ymm[2])
			g.VPMADDWD(l, ymm[5], ymm[5])
			g.VPADDD(ymm[5], ymm[3], ymm[3])
		}
		for i := range 2 {
			g.VPSLLD(U8(8), ymm[i], ymm[i])
			g.VPADDD(ymm[2+i], ymm[i], ymm[i])
			g.VPADDD(half, ymm[i], ymm[i])
			g.VPSRAD(U8(precision), ymm[i], ymm[i])
		}
		g.VPACKSSDW(ymm[1], ymm[0], ymm[0])
		// The lower half waits in a register where one is left, else in dst.
		switch {
		case !high && pairs < 4:
			g.VMOVDQA(ymm[0], ymm[15])
		case !high:
			g.VMOVDQU(ymm[0], at(dst, 0))
		case pairs < 4:
			g.VPACKUSWB(ymm[0], ymm[15], ymm[0])
		default:
			g.VMOVDQU(at(dst, 0), ymm[1])
			g.VPACKUSWB(ymm[0], ymm[1], ymm[0])
		}
	}
	g.VMOVDQU(ymm[0], at(dst, 0))
	order := []GPPhysical{src, last, dst}
	if 2*pairs > 4 {
		order = append(order, upper)
	}
	steps := map[GPPhysical]int{}
	for _, p := range order {
		steps[p] = 32
	}
	g.whole("loop", n, 32, steps, order)
	g.VZEROUPPER()
	g.RET()
}

// verticalLongAVX2 is for any number of taps.
func verticalLongAVX2(g *gen) {
	g.function("verticalLongAVX2", verticalSignature, "verticalLongAVX2 makes a row of n >= 32 bytes of any number of rows.")
	src, stride, dst, n := g.load("src", RSI), g.load("stride", R8), g.load("dst", RDI), g.load("n", RCX)
	weights, taps := g.load("weights", RAX), g.load("taps", RDX)
	zero := ymm[15]
	g.VPXOR(zero, zero, zero)
	half := g.dwords(32, 1<<(precision-1))
	row, second, w, left, none := R9, R10, R11, R12, R13
	g.XORQ(none, none)
	g.Label("loop")
	for i := range 8 {
		g.VPXOR(ymm[i], ymm[i], ymm[i])
	}
	g.MOVQ(src, row)
	g.MOVQ(weights, w)
	g.MOVQ(taps, left)
	g.Label("pair")
	g.MOVQ(stride, second)
	g.CMPQ(left, U8(1))
	g.CMOVQEQ(none, second) // the last of an odd number, against itself and nought
	g.VPBROADCASTD(at(w, 0), ymm[13])
	g.VPBROADCASTD(at(w, 4), ymm[14])
	g.VMOVDQU(at(row, 0), ymm[8])
	g.VMOVDQU(atx(row, second, 1, 0), ymm[9])
	g.VPUNPCKLBW(ymm[9], ymm[8], ymm[10])
	g.VPUNPCKHBW(ymm[9], ymm[8], ymm[11])
	for i, pair := range []VecPhysical{ymm[10], ymm[11]} {
		g.VPUNPCKLBW(zero, pair, ymm[8])
		g.VPUNPCKHBW(zero, pair, ymm[9])
		for j := range 2 {
			g.VPMADDWD(ymm[13], ymm[8+j], ymm[12])
			g.VPADDD(ymm[12], ymm[4*i+j], ymm[4*i+j])
			g.VPMADDWD(ymm[14], ymm[8+j], ymm[12])
			g.VPADDD(ymm[12], ymm[4*i+j+2], ymm[4*i+j+2])
		}
	}
	g.LEAQ(atx(row, stride, 2, 0), row)
	g.ADDQ(U8(8), w)
	g.SUBQ(U8(2), left)
	g.JGT(LabelRef("pair"))
	for i := range 2 {
		for j := range 2 {
			r := ymm[4*i+j]
			g.VPSLLD(U8(8), r, r)
			g.VPADDD(ymm[4*i+j+2], r, r)
			g.VPADDD(half, r, r)
			g.VPSRAD(U8(precision), r, r)
		}
		g.VPACKSSDW(ymm[4*i+1], ymm[4*i], ymm[4*i])
	}
	g.VPACKUSWB(ymm[4], ymm[0], ymm[0])
	g.VMOVDQU(ymm[0], at(dst, 0))
	g.whole("loop", n, 32, map[GPPhysical]int{src: 32, dst: 32}, []GPPhysical{src, dst})
	g.VZEROUPPER()
	g.RET()
}

// quad interleaves the bytes of four rows, so that each dword of four registers
// has one byte of every row.
func quad(g *gen, rows [4]Mem, out [4]VecPhysical, t [4]VecPhysical) {
	for i, r := range rows {
		g.VMOVDQU64(r, t[i])
	}
	g.VPUNPCKLBW(t[1], t[0], out[0])
	g.VPUNPCKHBW(t[1], t[0], out[1])
	g.VPUNPCKLBW(t[3], t[2], out[2])
	g.VPUNPCKHBW(t[3], t[2], out[3])
	g.VPUNPCKLWD(out[2], out[0], t[0])
	g.VPUNPCKHWD(out[2], out[0], t[1])
	g.VPUNPCKLWD(out[3], out[1], t[2])
	g.VPUNPCKHWD(out[3], out[1], t[3])
}

// lastRows are the rows of the last four taps, of which there may be fewer: then
// the last that there is, again.
func lastRows(g *gen, first, stride, left GPPhysical, rows [3]GPPhysical) {
	// left is 1 to 4.
	for i, r := range rows {
		from := first
		if i > 0 {
			from = rows[i-1]
		}
		g.LEAQ(atx(from, stride, 1, 0), r)
		g.CMPQ(left, U8(i+2))
		g.CMOVQLT(from, r)
	}
}

// verticalAVX512 is for 4·quads-3 to 4·quads taps. VPDPBUSD multiplies four bytes by
// four signed bytes; a weight is three of them.
func verticalAVX512(g *gen, quads int) {
	g.function(fmt.Sprintf("vertical%dAVX512", quads), verticalSignature,
		fmt.Sprintf("vertical%dAVX512 makes a row of n >= 64 bytes of %d to %d rows.", quads, 4*quads-3, 4*quads))
	src, stride, dst, n := g.load("src", RSI), g.load("stride", R8), g.load("dst", RDI), g.load("n", RCX)
	weights, taps := g.load("weights", RAX), g.load("taps", RDX)
	for q := range quads {
		for d := range 3 {
			g.VPBROADCASTD(at(weights, 12*q+4*d), zmm[16+3*q+d])
		}
	}
	start := zmm[31]
	g.VMOVDQU64(g.dwords(64, 1<<(precision-1)>>16), start)
	pointers := []GPPhysical{src, R9, R10, R11, R12, R13, RBX, R14}[:4*quads]
	for i := 1; i <= 4*(quads-1); i++ {
		g.LEAQ(atx(pointers[i-1], stride, 1, 0), pointers[i])
	}
	g.SUBQ(U8(4*(quads-1)), taps)
	lastRows(g, pointers[4*quads-4], stride, taps, [3]GPPhysical(pointers[4*quads-3:]))
	x := RAX
	g.XORQ(x, x)
	g.SUBQ(U8(64), n) // where the last block begins
	g.Label("loop")
	var bytes [2][4]VecPhysical
	for q := range quads {
		bytes[q] = [4]VecPhysical(zmm[12*q : 12*q+4])
		var rows [4]Mem
		for i := range rows {
			rows[i] = atx(pointers[4*q+i], x, 1, 0)
		}
		quad(g, rows, [4]VecPhysical(zmm[4:8]), bytes[q])
	}
	for i := range 4 {
		g.VMOVDQA64(start, zmm[8+i])
	}
	for d := range 3 {
		for q := range quads {
			for i := range 4 {
				g.VPDPBUSD(zmm[16+3*q+d], bytes[q][i], zmm[8+i])
			}
		}
		if d < 2 {
			for i := range 4 {
				g.VPSLLD(U8(8), zmm[8+i], zmm[8+i])
			}
		}
	}
	pack512(g, zmm[8:12])
	g.VMOVDQU64(zmm[8], atx(dst, x, 1, 0))
	g.CMPQ(x, n)
	g.JEQ(LabelRef("end"))
	g.ADDQ(U8(64), x)
	g.CMPQ(x, n)
	g.CMOVQGT(n, x)
	g.JMP(LabelRef("loop"))
	g.Label("end")
	g.VZEROUPPER()
	g.RET()
}

// pack512 makes bytes of four registers of sums, in the first.
func pack512(g *gen, r []VecPhysical) {
	for _, r := range r {
		g.VPSRAD(U8(precision), r, r)
	}
	g.VPACKSSDW(r[1], r[0], r[0])
	g.VPACKSSDW(r[3], r[2], r[2])
	g.VPACKUSWB(r[2], r[0], r[0])
}

// verticalLongAVX512 is for any number of taps.
func verticalLongAVX512(g *gen) {
	g.function("verticalLongAVX512", verticalSignature, "verticalLongAVX512 makes a row of n >= 64 bytes of any number of rows.")
	src, stride, dst, n := g.load("src", RSI), g.load("stride", R8), g.load("dst", RDI), g.load("n", RCX)
	weights, taps := g.load("weights", RAX), g.load("taps", RDX)
	x, w, left := RBX, R13, R14
	rows := [4]GPPhysical{R9, R10, R11, R12}
	half := g.dwords(64, 1<<(precision-1))
	g.XORQ(x, x)
	g.SUBQ(U8(64), n)
	g.Label("loop")
	// Twelve sums: three digits of each of four registers.
	for i := range 12 {
		g.VPXORQ(zmm[8+i], zmm[8+i], zmm[8+i])
	}
	g.LEAQ(atx(src, x, 1, 0), rows[0])
	g.MOVQ(weights, w)
	g.MOVQ(taps, left)
	g.Label("quad")
	lastRows(g, rows[0], stride, left, [3]GPPhysical(rows[1:]))
	var mem [4]Mem
	for i := range mem {
		mem[i] = at(rows[i], 0)
	}
	quad(g, mem, [4]VecPhysical(zmm[4:8]), [4]VecPhysical(zmm[0:4]))
	for d := range 3 {
		g.VPBROADCASTD(at(w, 4*d), zmm[20+d])
	}
	for d := range 3 {
		for i := range 4 {
			g.VPDPBUSD(zmm[20+d], zmm[i], zmm[8+4*d+i])
		}
	}
	g.LEAQ(atx(rows[0], stride, 4, 0), rows[0])
	g.ADDQ(U8(12), w)
	g.SUBQ(U8(4), left)
	g.JGT(LabelRef("quad"))
	for i := range 4 {
		r := zmm[8+i]
		for d := 1; d < 3; d++ {
			g.VPSLLD(U8(8), r, r)
			g.VPADDD(zmm[8+4*d+i], r, r)
		}
		g.VPADDD(half, r, r)
	}
	pack512(g, zmm[8:12])
	g.VMOVDQU64(zmm[8], atx(dst, x, 1, 0))
	g.CMPQ(x, n)
	g.JEQ(LabelRef("end"))
	g.ADDQ(U8(64), x)
	g.CMPQ(x, n)
	g.CMOVQGT(n, x)
	g.JMP(LabelRef("loop"))
	g.Label("end")
	g.VZEROUPPER()
	g.RET()
}

const horizontalSignature = "func(src *uint8, stride int, dst *uint8, dstStride, rows int, table *uint8, offsets *int32, blocks int)"

// finish2 makes one sum of the sums of upper and lower bits.
func finish2(g *gen, half Op, high, low, out VecPhysical) {
	g.VPSLLD(U8(8), high, high)
	g.VPADDD(half, low, low)
	g.VPADDD(high, low, low)
	g.VPSRAD(U8(precision), low, out)
}

// horizontalAVX2 is for 2·pairs taps and outputs of which each four in a row find
// all their taps within 16 bytes. A block is 32 outputs: lane 0 has the first four
// times four of them, lane 1 the others, so that packing puts all into order.
func horizontalAVX2(g *gen, pairs int) {
	g.function(fmt.Sprintf("horizontal%dAVX2", pairs), horizontalSignature,
		fmt.Sprintf("horizontal%dAVX2 scales rows, up to %d taps.", pairs, 2*pairs))
	src, stride, dst, dstStride := g.load("src", RSI), g.load("stride", R8), g.load("dst", RDI), g.load("dstStride", R9)
	rows, table, offsets, blocks := g.load("rows", R10), g.load("table", R11), g.load("offsets", R12), g.load("blocks", R13)
	half := ymm[15]
	g.VMOVDQU(g.dwords(32, 1<<(precision-1)), half)
	t, o, x, left, offset := RAX, RBX, RDX, RCX, R14
	g.Label("row")
	g.MOVQ(table, t)
	g.MOVQ(offsets, o)
	g.XORQ(x, x)
	g.MOVQ(blocks, left)
	g.Label("loop")
	for group := range 4 {
		g.MOVLQSX(at(o, 4*group), offset)
		g.VMOVDQU(atx(src, offset, 1, 0), xmm[0])
		g.MOVLQSX(at(o, 4*group+16), offset)
		g.VINSERTI128(U8(1), atx(src, offset, 1, 0), ymm[0], ymm[0])
		for p := range pairs {
			e := 96 * (group*pairs + p)
			g.VPSHUFB(at(t, e), ymm[0], ymm[1])
			if p == 0 {
				g.VPMADDWD(at(t, e+32), ymm[1], ymm[2])
				g.VPMADDWD(at(t, e+64), ymm[1], ymm[3])
				continue
			}
			g.VPMADDWD(at(t, e+32), ymm[1], ymm[4])
			g.VPMADDWD(at(t, e+64), ymm[1], ymm[5])
			g.VPADDD(ymm[4], ymm[2], ymm[2])
			g.VPADDD(ymm[5], ymm[3], ymm[3])
		}
		finish2(g, half, ymm[2], ymm[3], ymm[8+group])
	}
	horizontalEnd(g, 4*pairs*96, t, o, x, left, src, stride, dst, dstStride, rows)
}

func horizontalEnd(g *gen, size int, t, o, x, left, src, stride, dst, dstStride, rows GPPhysical) {
	g.VPACKSSDW(ymm[9], ymm[8], ymm[8])
	g.VPACKSSDW(ymm[11], ymm[10], ymm[10])
	g.VPACKUSWB(ymm[10], ymm[8], ymm[8])
	g.VMOVDQU(ymm[8], atx(dst, x, 1, 0))
	if size > 0 {
		g.ADDQ(I32(int32(size)), t)
	}
	g.ADDQ(U8(32), o)
	g.ADDQ(U8(32), x)
	g.DECQ(left)
	g.JNE(LabelRef("loop"))
	g.ADDQ(stride, src)
	g.ADDQ(dstStride, dst)
	g.DECQ(rows)
	g.JNE(LabelRef("row"))
	g.VZEROUPPER()
	g.RET()
}

// horizontalLongAVX2 is for any number of taps, and outputs of which each four in a
// row find their first two taps within 16 bytes.
func horizontalLongAVX2(g *gen) {
	g.function("horizontalLongAVX2", "func(src *uint8, stride int, dst *uint8, dstStride, rows int, table *uint8, offsets *int32, blocks, pairs int)",
		"horizontalLongAVX2 scales rows, any number of taps.")
	src, stride, dst, dstStride := g.load("src", RSI), g.load("stride", R8), g.load("dst", RDI), g.load("dstStride", R9)
	rows, table, offsets, blocks := g.load("rows", R10), g.load("table", R11), g.load("offsets", R12), g.load("blocks", R13)
	half := ymm[15]
	g.VMOVDQU(g.dwords(32, 1<<(precision-1)), half)
	// The pairs' number stays in memory: registers are used up.
	t, o, x, low := RAX, RBX, RDX, R14
	high, pair := R15, RCX
	left := g.AllocLocal(8)
	g.Label("row")
	g.MOVQ(table, t)
	g.MOVQ(offsets, o)
	g.XORQ(x, x)
	g.MOVQ(blocks, pair)
	g.MOVQ(pair, left)
	g.Label("loop")
	for group := range 4 {
		label := fmt.Sprintf("pair%d", group)
		g.MOVLQSX(at(o, 4*group), low)
		g.ADDQ(src, low)
		g.MOVLQSX(at(o, 4*group+16), high)
		g.ADDQ(src, high)
		g.VMOVDQU(at(t, 0), ymm[6])
		g.ADDQ(U8(32), t)
		g.VPXOR(ymm[2], ymm[2], ymm[2])
		g.VPXOR(ymm[3], ymm[3], ymm[3])
		g.Load(g.Param("pairs"), pair)
		g.Label(label)
		g.VMOVDQU(at(low, 0), xmm[0])
		g.VINSERTI128(U8(1), at(high, 0), ymm[0], ymm[0])
		g.VPSHUFB(ymm[6], ymm[0], ymm[0])
		g.VPMADDWD(at(t, 0), ymm[0], ymm[4])
		g.VPMADDWD(at(t, 32), ymm[0], ymm[5])
		g.VPADDD(ymm[4], ymm[2], ymm[2])
		g.VPADDD(ymm[5], ymm[3], ymm[3])
		g.ADDQ(U8(64), t)
		g.ADDQ(U8(2), low)
		g.ADDQ(U8(2), high)
		g.DECQ(pair)
		g.JNE(LabelRef(label))
		finish2(g, half, ymm[2], ymm[3], ymm[8+group])
	}
	g.MOVQ(left, pair)
	g.VPACKSSDW(ymm[9], ymm[8], ymm[8])
	g.VPACKSSDW(ymm[11], ymm[10], ymm[10])
	g.VPACKUSWB(ymm[10], ymm[8], ymm[8])
	g.VMOVDQU(ymm[8], atx(dst, x, 1, 0))
	g.ADDQ(U8(32), o)
	g.ADDQ(U8(32), x)
	g.DECQ(pair)
	g.MOVQ(pair, left)
	g.JNE(LabelRef("loop"))
	g.ADDQ(stride, src)
	g.ADDQ(dstStride, dst)
	g.DECQ(rows)
	g.JNE(LabelRef("row"))
	g.VZEROUPPER()
	g.RET()
}

// horizontalWideAVX2 takes the taps of one output 16 at a time; a block is four
// outputs.
func horizontalWideAVX2(g *gen) {
	g.function("horizontalWideAVX2", "func(src *uint8, stride int, dst *uint8, dstStride, rows int, table *uint8, offsets *int32, blocks, chunks int)",
		"horizontalWideAVX2 scales rows, any number of taps, any distance between outputs.")
	src, stride, dst, dstStride := g.load("src", RSI), g.load("stride", R8), g.load("dst", RDI), g.load("dstStride", R9)
	table, offsets := g.load("table", R11), g.load("offsets", R12)
	half := g.dwords(16, 1<<(precision-1))
	t, left, chunk, in, out := RAX, R10, RCX, R13, R14
	p := [4]GPPhysical{RBX, RDX, R15, RBP}
	blocks := g.AllocLocal(8)
	g.Load(g.Param("blocks"), chunk)
	g.MOVQ(chunk, blocks)
	g.Label("block")
	g.MOVQ(src, in)
	g.MOVQ(dst, out)
	g.Load(g.Param("rows"), left)
	g.Label("row")
	for i, p := range p {
		g.MOVLQSX(at(offsets, 4*i), p)
		g.ADDQ(in, p)
	}
	for i := range 8 {
		g.VPXOR(ymm[i], ymm[i], ymm[i])
	}
	g.MOVQ(table, t)
	g.Load(g.Param("chunks"), chunk)
	g.Label("chunk")
	for i, p := range p {
		g.VPMOVZXBW(at(p, 0), ymm[8])
		g.VPMADDWD(at(t, 64*i), ymm[8], ymm[9])
		g.VPMADDWD(at(t, 64*i+32), ymm[8], ymm[8])
		g.VPADDD(ymm[9], ymm[2*i], ymm[2*i])
		g.VPADDD(ymm[8], ymm[2*i+1], ymm[2*i+1])
		g.ADDQ(U8(16), p)
	}
	g.ADDQ(I32(256), t)
	g.DECQ(chunk)
	g.JNE(LabelRef("chunk"))
	for i := range 4 {
		g.VPSLLD(U8(8), ymm[2*i], ymm[2*i])
		g.VPADDD(ymm[2*i+1], ymm[2*i], ymm[2*i])
	}
	g.VPHADDD(ymm[2], ymm[0], ymm[0])
	g.VPHADDD(ymm[6], ymm[4], ymm[4])
	g.VPHADDD(ymm[4], ymm[0], ymm[0])
	g.VEXTRACTI128(U8(1), ymm[0], xmm[1])
	g.VPADDD(xmm[1], xmm[0], xmm[0])
	g.VPADDD(half, xmm[0], xmm[0])
	g.VPSRAD(U8(precision), xmm[0], xmm[0])
	g.VPACKSSDW(xmm[0], xmm[0], xmm[0])
	g.VPACKUSWB(xmm[0], xmm[0], xmm[0])
	g.VMOVD(xmm[0], at(out, 0))
	g.ADDQ(stride, in)
	g.ADDQ(dstStride, out)
	g.DECQ(left)
	g.JNE(LabelRef("row"))
	g.MOVQ(t, table)
	g.ADDQ(U8(16), offsets)
	g.ADDQ(U8(4), dst)
	g.MOVQ(blocks, chunk)
	g.DECQ(chunk)
	g.MOVQ(chunk, blocks)
	g.JNE(LabelRef("block"))
	g.VZEROUPPER()
	g.RET()
}

// horizontalAVX512 is for 4·quads taps and outputs of which each 16 in a row find
// all their taps within 64 bytes. A block is 16 outputs; its weights stay in
// registers while all rows pass by.
func horizontalAVX512(g *gen, quads int) {
	g.function(fmt.Sprintf("horizontal%dAVX512", quads), horizontalSignature,
		fmt.Sprintf("horizontal%dAVX512 scales rows, up to %d taps.", quads, 4*quads))
	src, stride, dst, dstStride := g.load("src", RSI), g.load("stride", R8), g.load("dst", RDI), g.load("dstStride", R9)
	rows, table, offsets, blocks := g.load("rows", R10), g.load("table", RAX), g.load("offsets", RBX), g.load("blocks", RCX)
	in, out, left, offset := R11, R12, R13, R14
	start, four, nought := zmm[31], zmm[30], zmm[29]
	g.VMOVDQU64(g.dwords(64, 1<<(precision-1)>>16), start)
	g.VMOVDQU64(g.fill(64, 4), four)
	g.VPXORQ(nought, nought, nought)
	g.Label("block")
	places := zmm[12:15]
	weight := func(q, d int) VecPhysical { return zmm[16+3*q+d] }
	g.VMOVDQU64(at(table, 0), places[0])
	for q := range quads {
		if q > 0 {
			g.VPADDB(four, places[q-1], places[q])
		}
		for d := range 3 {
			g.VMOVDQU64(at(table, 64+192*q+64*d), weight(q, d))
		}
	}
	g.MOVLQSX(at(offsets, 0), offset)
	g.LEAQ(atx(src, offset, 1, 0), in)
	g.MOVQ(dst, out)
	g.MOVQ(rows, left)
	g.Label("row")
	g.VMOVDQU64(at(in, 0), zmm[0])
	for q := range quads {
		g.VPERMB(zmm[0], places[q], zmm[1+q])
	}
	g.VMOVDQA64(start, zmm[8])
	for d := range 3 {
		for q := range quads {
			g.VPDPBUSD(weight(q, d), zmm[1+q], zmm[8])
		}
		if d < 2 {
			g.VPSLLD(U8(8), zmm[8], zmm[8])
		}
	}
	g.VPSRAD(U8(precision), zmm[8], zmm[8])
	g.VPMAXSD(nought, zmm[8], zmm[8])
	g.VPMOVUSDB(zmm[8], at(out, 0))
	g.ADDQ(stride, in)
	g.ADDQ(dstStride, out)
	g.DECQ(left)
	g.JNE(LabelRef("row"))
	g.ADDQ(I32(int32(64+192*quads)), table)
	g.ADDQ(U8(4), offsets)
	g.ADDQ(U8(16), dst)
	g.DECQ(blocks)
	g.JNE(LabelRef("block"))
	g.VZEROUPPER()
	g.RET()
}

// horizontalLongAVX512 is for any number of taps, and outputs of which each 16 in a
// row find their first four taps within 64 bytes.
func horizontalLongAVX512(g *gen) {
	g.function("horizontalLongAVX512", "func(src *uint8, stride int, dst *uint8, dstStride, rows int, table *uint8, offsets *int32, blocks, quads int)",
		"horizontalLongAVX512 scales rows, any number of taps.")
	src, stride, dst, dstStride := g.load("src", RSI), g.load("stride", R8), g.load("dst", RDI), g.load("dstStride", R9)
	table, offsets, blocks := g.load("table", RAX), g.load("offsets", RBX), g.load("blocks", RCX)
	in, out, left, at0, t, quad := R11, R12, R13, R14, R15, RDX
	half, nought := zmm[31], zmm[29]
	g.VMOVDQU64(g.dwords(64, 1<<(precision-1)), half)
	g.VPXORQ(nought, nought, nought)
	g.Label("block")
	g.VMOVDQU64(at(table, 0), zmm[12])
	g.MOVLQSX(at(offsets, 0), at0)
	g.LEAQ(atx(src, at0, 1, 0), in)
	g.MOVQ(dst, out)
	g.Load(g.Param("rows"), left)
	g.Label("row")
	g.MOVQ(in, at0)
	g.LEAQ(at(table, 64), t)
	g.Load(g.Param("quads"), quad)
	for d := range 3 {
		g.VPXORQ(zmm[8+d], zmm[8+d], zmm[8+d])
	}
	g.Label("quad")
	g.VPERMB(at(at0, 0), zmm[12], zmm[0])
	for d := range 3 {
		g.VPDPBUSD(at(t, 64*d), zmm[0], zmm[8+d])
	}
	g.ADDQ(U8(4), at0)
	g.ADDQ(I32(192), t)
	g.DECQ(quad)
	g.JNE(LabelRef("quad"))
	for d := 1; d < 3; d++ {
		g.VPSLLD(U8(8), zmm[8], zmm[8])
		g.VPADDD(zmm[8+d], zmm[8], zmm[8])
	}
	g.VPADDD(half, zmm[8], zmm[8])
	g.VPSRAD(U8(precision), zmm[8], zmm[8])
	g.VPMAXSD(nought, zmm[8], zmm[8])
	g.VPMOVUSDB(zmm[8], at(out, 0))
	g.ADDQ(stride, in)
	g.ADDQ(dstStride, out)
	g.DECQ(left)
	g.JNE(LabelRef("row"))
	g.MOVQ(t, table)
	g.ADDQ(U8(4), offsets)
	g.ADDQ(U8(16), dst)
	g.DECQ(blocks)
	g.JNE(LabelRef("block"))
	g.VZEROUPPER()
	g.RET()
}

// deinterleaveAVX2 does 32 pixels at a time: lane 0 the first 16 of them, lane 1 the
// others.
func deinterleaveAVX2(g *gen) {
	g.function("deinterleaveAVX2", "func(dst *uint8, pitch int, src *uint8, n int)",
		"deinterleaveAVX2 makes three rows of bytes, pitch apart, of n >= 32 RGB pixels.")
	dst, pitch, src, n := g.load("dst", RDI), g.load("pitch", R8), g.load("src", RSI), g.load("n", RCX)
	// Plane c takes of the k-th 16 bytes of 48 those at the places c, c+3, …
	masks := [3][3]Mem{}
	for c := range 3 {
		for k := range 3 {
			m := make([]byte, 32)
			for i := range 16 {
				m[i] = 0x80
				if p := 3*i + c - 16*k; p >= 0 && p < 16 {
					m[i] = byte(p)
				}
				m[16+i] = m[i]
			}
			masks[c][k] = g.bytes(m)
		}
	}
	g.Label("loop")
	for k := range 3 {
		g.VMOVDQU(at(src, 16*k), xmm[k])
		g.VINSERTI128(U8(1), at(src, 48+16*k), ymm[k], ymm[k])
	}
	for c := range 3 {
		g.VPSHUFB(masks[c][0], ymm[0], ymm[3])
		g.VPSHUFB(masks[c][1], ymm[1], ymm[4])
		g.VPSHUFB(masks[c][2], ymm[2], ymm[5])
		g.VPOR(ymm[4], ymm[3], ymm[3])
		g.VPOR(ymm[5], ymm[3], ymm[3])
		to := at(dst, 0)
		if c > 0 {
			to = atx(dst, pitch, uint8(c), 0)
		}
		g.VMOVDQU(ymm[3], to)
	}
	g.whole("loop", n, 32, map[GPPhysical]int{src: 96, dst: 32}, []GPPhysical{src, dst})
	g.VZEROUPPER()
	g.RET()
}

// deinterleaveAVX512 does 64 pixels at a time: of each plane the bytes of the first
// two registers, and then those of the third over them.
func deinterleaveAVX512(g *gen) {
	g.function("deinterleaveAVX512", "func(dst *uint8, pitch int, src *uint8, n int)",
		"deinterleaveAVX512 makes three rows of bytes, pitch apart, of n >= 64 RGB pixels.")
	dst, pitch, src, n := g.load("dst", RDI), g.load("pitch", R8), g.load("src", RSI), g.load("n", RCX)
	masks := [3]OpmaskPhysical{K1, K2, K3}
	for c := range 3 {
		first, third := make([]byte, 64), make([]byte, 64)
		var mask uint64
		for i := range 64 {
			if p := 3*i + c; p < 128 {
				first[i] = byte(p)
			} else {
				third[i] = byte(p - 128)
				mask |= 1 << i
			}
		}
		g.VMOVDQU64(g.bytes(first), zmm[16+c])
		g.VMOVDQU64(g.bytes(third), zmm[19+c])
		g.MOVQ(U64(mask), RAX)
		g.KMOVQ(RAX, masks[c])
	}
	g.Label("loop")
	for k := range 3 {
		g.VMOVDQU64(at(src, 64*k), zmm[k])
	}
	for c := range 3 {
		g.VMOVDQA64(zmm[16+c], zmm[3])
		g.VPERMI2B(zmm[1], zmm[0], zmm[3])
		g.VPERMB(zmm[2], zmm[19+c], masks[c], zmm[3])
		to := at(dst, 0)
		if c > 0 {
			to = atx(dst, pitch, uint8(c), 0)
		}
		g.VMOVDQU64(zmm[3], to)
	}
	g.whole("loop", n, 64, map[GPPhysical]int{src: 192, dst: 64}, []GPPhysical{src, dst})
	g.VZEROUPPER()
	g.RET()
}

// interleaveAVX2 does 16 pixels at a time.
func interleaveAVX2(g *gen) {
	g.function("interleaveAVX2", "func(dst, src *uint8, pitch, n int)",
		"interleaveAVX2 makes n >= 16 RGB pixels of three rows of bytes, pitch apart.")
	dst, src, pitch, n := g.load("dst", RDI), g.load("src", RSI), g.load("pitch", R8), g.load("n", RCX)
	for c := range 3 {
		for k := range 3 {
			m := make([]byte, 16)
			for i := range m {
				m[i] = 0x80
				if p := 16*k + i; p%3 == c {
					m[i] = byte(p / 3)
				}
			}
			g.VMOVDQU(g.bytes(m), xmm[4+3*c+k])
		}
	}
	g.Label("loop")
	g.VMOVDQU(at(src, 0), xmm[0])
	g.VMOVDQU(atx(src, pitch, 1, 0), xmm[1])
	g.VMOVDQU(atx(src, pitch, 2, 0), xmm[2])
	for k := range 3 {
		g.VPSHUFB(xmm[4+k], xmm[0], xmm[3])
		g.VPSHUFB(xmm[7+k], xmm[1], xmm[13])
		g.VPSHUFB(xmm[10+k], xmm[2], xmm[14])
		g.VPOR(xmm[13], xmm[3], xmm[3])
		g.VPOR(xmm[14], xmm[3], xmm[3])
		g.VMOVDQU(xmm[3], at(dst, 16*k))
	}
	g.whole("loop", n, 16, map[GPPhysical]int{src: 16, dst: 48}, []GPPhysical{src, dst})
	g.VZEROUPPER()
	g.RET()
}

// interleaveAVX512 does 64 pixels at a time.
func interleaveAVX512(g *gen) {
	g.function("interleaveAVX512", "func(dst, src *uint8, pitch, n int)",
		"interleaveAVX512 makes n >= 64 RGB pixels of three rows of bytes, pitch apart.")
	dst, src, pitch, n := g.load("dst", RDI), g.load("src", RSI), g.load("pitch", R8), g.load("n", RCX)
	masks := [3]OpmaskPhysical{K1, K2, K3}
	for k := range 3 {
		first, third := make([]byte, 64), make([]byte, 64)
		var mask uint64
		for i := range 64 {
			q := 64*k + i
			switch q % 3 {
			case 0:
				first[i] = byte(q / 3)
			case 1:
				first[i] = byte(64 + q/3)
			case 2:
				third[i] = byte(q / 3)
				mask |= 1 << i
			}
		}
		g.VMOVDQU64(g.bytes(first), zmm[16+k])
		g.VMOVDQU64(g.bytes(third), zmm[19+k])
		g.MOVQ(U64(mask), RAX)
		g.KMOVQ(RAX, masks[k])
	}
	g.Label("loop")
	g.VMOVDQU64(at(src, 0), zmm[0])
	g.VMOVDQU64(atx(src, pitch, 1, 0), zmm[1])
	g.VMOVDQU64(atx(src, pitch, 2, 0), zmm[2])
	for k := range 3 {
		g.VMOVDQA64(zmm[16+k], zmm[3])
		g.VPERMI2B(zmm[1], zmm[0], zmm[3])
		g.VPERMB(zmm[2], zmm[19+k], masks[k], zmm[3])
		g.VMOVDQU64(zmm[3], at(dst, 64*k))
	}
	g.whole("loop", n, 64, map[GPPhysical]int{src: 64, dst: 192}, []GPPhysical{src, dst})
	g.VZEROUPPER()
	g.RET()
}

// lookup32AVX512 has the whole table in 16 registers: a permutation looks up in two
// of them, and the index's upper bits choose among eight results.
func lookup32AVX512(g *gen) {
	g.function("lookup32AVX512", "func(dst *float32, src *uint8, n int, table *float32)",
		"lookup32AVX512 looks n >= 16 bytes up in a table of 256.")
	dst, src, n, table := g.load("dst", RDI), g.load("src", RSI), g.load("n", RCX), g.load("table", RDX)
	for i := range 16 {
		g.VMOVDQU64(at(table, 64*i), zmm[16+i])
	}
	masks := [3]OpmaskPhysical{K1, K2, K3}
	for i := range masks {
		g.VMOVDQU64(g.dwords(64, 32<<i), zmm[9+i])
	}
	g.Label("loop")
	g.VPMOVZXBD(at(src, 0), zmm[0])
	for i, k := range masks {
		g.VPTESTMD(zmm[9+i], zmm[0], k)
	}
	for i := range 8 {
		g.VMOVDQA64(zmm[0], zmm[1+i])
		g.VPERMI2D(zmm[17+2*i], zmm[16+2*i], zmm[1+i])
	}
	choose(g, masks[:], zmm[1:9], func(ops ...Op) { g.VPBLENDMD(ops...) })
	g.VMOVDQU64(zmm[1], at(dst, 0))
	g.whole("loop", n, 16, map[GPPhysical]int{src: 16, dst: 64}, []GPPhysical{src, dst})
	g.VZEROUPPER()
	g.RET()
}

// choose leaves in the first of the registers, for each element, that of the register
// whose number the masks spell, the lowest bit first.
func choose(g *gen, masks []OpmaskPhysical, r []VecPhysical, blend func(...Op)) {
	for i, k := range masks {
		for j := 0; j+1<<i < len(r); j += 2 << i {
			blend(r[j+1<<i], r[j], k, r[j])
		}
	}
}

// lookup16AVX512 does it with 16-bit elements, of which a register holds twice as
// many.
func lookup16AVX512(g *gen) {
	g.function("lookup16AVX512", "func(dst *uint16, src *uint8, n int, table *uint16)",
		"lookup16AVX512 looks n >= 32 bytes up in a table of 256.")
	dst, src, n, table := g.load("dst", RDI), g.load("src", RSI), g.load("n", RCX), g.load("table", RDX)
	for i := range 8 {
		g.VMOVDQU64(at(table, 64*i), zmm[16+i])
	}
	masks := [2]OpmaskPhysical{K1, K2}
	for i := range masks {
		g.VMOVDQU64(g.words(64, 64<<i), zmm[9+i])
	}
	g.Label("loop")
	g.VPMOVZXBW(at(src, 0), zmm[0])
	for i, k := range masks {
		g.VPTESTMW(zmm[9+i], zmm[0], k)
	}
	for i := range 4 {
		g.VMOVDQA64(zmm[0], zmm[1+i])
		g.VPERMI2W(zmm[17+2*i], zmm[16+2*i], zmm[1+i])
	}
	choose(g, masks[:], zmm[1:5], func(ops ...Op) { g.VPBLENDMW(ops...) })
	g.VMOVDQU64(zmm[1], at(dst, 0))
	g.whole("loop", n, 32, map[GPPhysical]int{src: 32, dst: 64}, []GPPhysical{src, dst})
	g.VZEROUPPER()
	g.RET()
}
