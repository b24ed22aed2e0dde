package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand" //nolint:revive // operands read as in assembly
	. "github.com/mmcloughlin/avo/reg"     //nolint:revive // and registers
)

// What imaging/jpeg/internal/entropy has in memory; kernel_amd64.go checks it.
const (
	// codeTable
	codeBits             = 11
	tableLimits          = 4 << codeBits
	tableFirsts          = tableLimits + 17*4
	tableSymbols         = tableFirsts + 17*4
	tableBase, tableZero = tableSymbols + 256 + 8, tableSymbols + 256 + 12
	tableLast            = tableZero + 4
	badLength            = 17
	escape               = 0xffff // also in place of the value, of what stops a lane
	// context
	ctxOrder, ctxDone, ctxLane, laneSize                                 = 0, 256, 288, 64
	laneAcc, laneBits, laneTable, laneP, laneLimit, laneBad, laneScratch = 0, 8, 16, 24, 32, 40, 48
	// A raw block: its first half, the table that decodes what follows DC, its
	// second half, the table of the next block.
	rawHalf, rawTable = 80, 64
	// target
	targetOut, targetStep, targetPred, targetSize = 0, 8, 16, 24
)

// lookups is how many times each lane looks up between two refills of its bits: a
// refill leaves at least 56.
const lookups = 5

func huffman(g *gen) {
	for n := 1; n <= 4; n++ {
		k := &lanes{gen: g, n: n}
		k.generate()
	}
	finishAVX2(g, true)
	finishAVX2(g, false)
	unstuffAVX2(g)
}

// lanes makes the kernel of n lanes. It has no branch for the end of a block, which
// no processor could predict: a lane goes from table to table, from DC's to AC's to
// the next block's DC's, by conditional moves. What is left to mispredict are
// escapes.
//
// A lane has three values in registers. acc has, from the lowest bit, in 8 bits how
// many bits were used since the last refill (63 less that many are left), in 8 bits
// the zigzag index plus 1, and above the address where the lane's output is, so that
// adding a table entry adds to the first two. bits has the next bits at the top.
// table is the table.
//
// The output is raw blocks in the order of the stream: coefficients, DC as a
// difference, and beside them the tables.
type lanes struct {
	*gen
	n                int
	frame            Mem
	acc, bits, table []GPPhysical
	t1, t2, t3       GPPhysical
}

func (k *lanes) lane(i, field int) Mem { return k.frame.Offset(ctxLane + i*laneSize + field) }

func high(acc GPPhysical) Register {
	return map[GPPhysical]Register{RAX: AH, RBX: BH, RCX: CH, RDX: DH}[acc]
}

// refill fills lane i's bits up to at least 56. It uses t1 and t2.
func (k *lanes) refill(i int) {
	acc, bits, t1, t2 := k.acc[i], k.bits[i], k.t1, k.t2
	k.MOVQ(k.lane(i, laneP), t1)
	k.MOVQ(at(t1, 0), t2)
	k.BSWAPQ(t2)
	// Below the 63-used bits that are left; shifts take the count modulo 64.
	k.MOVQ(acc, t1)
	k.NOTQ(t1)
	k.SHRXQ(t1, t2, t2)
	k.ORQ(t2, bits)
	k.MOVL(acc.As32(), t1.As32())
	k.ANDL(U32(0x38), t1.As32())
	k.SHRL(U8(3), t1.As32())
	k.ADDQ(k.lane(i, laneP), t1)
	k.CMPQ(t1, k.lane(i, laneLimit))
	k.CMOVQHI(k.lane(i, laneLimit), t1)
	k.MOVQ(t1, k.lane(i, laneP))
	k.ANDQ(I32(-0x39), acc)
}

// lookUp decodes one coefficient of lane i, the j-th since the refill.
func (k *lanes) lookUp(i, j int) {
	id := fmt.Sprintf("_%d_%d", i, j)
	acc, bits, table, t1, t2, t3 := k.acc[i], k.bits[i], k.table[i], k.t1, k.t2, k.t3
	k.MOVQ(bits, t1)
	k.SHRQ(U8(64-codeBits), t1)
	k.MOVWLZX(atx(table, t1, 4, 0), t2.As32())
	k.MOVWLZX(atx(table, t1, 4, 2), t1.As32())
	// The address before the entry is added: the same, and the next table, which
	// lies there, need not wait for the entry.
	k.MOVQ(acc, t3)
	k.SHRQ(U8(16), t3)
	k.ADDW(t2.As16(), acc.As16())
	k.JCS(LabelRef("escape" + id))
	k.SHLXQ(t2, bits, bits)
	// Store the value, in t1.
	k.Label("value" + id)
	k.MOVBLZX(high(acc), t2.As32())
	k.MOVBLZX(k.frame.Offset(ctxOrder).Idx(t2, 1), t2.As32())
	k.MOVW(t1.As16(), atx(t3, t2, 2, -rawHalf))
	// If that was DC, or the block's last one: index 1 again, the next half, and
	// its table.
	k.LEAQ(at(acc, rawHalf<<16), t1)
	k.ANDQ(I32(-0xff01), t1)
	k.CMPB(high(acc), U8(63))
	k.CMOVQCC(t1, acc)
	k.CMOVQCC(at(t3, rawTable), table)
}

// escape is where a look-up leads that is not enough.
func (k *lanes) escape(i, j int) {
	id := fmt.Sprintf("_%d_%d", i, j)
	acc, bits, table, t1, t2, t3 := k.acc[i], k.bits[i], k.table[i], k.t1, k.t2, k.t3
	// Up to 31 bits are needed, then codeBits for each look-up that is left.
	const full, need = 56, 31
	before := full-j*codeBits < need
	after := !before && full-j*codeBits-need < (lookups-1-j)*codeBits
	k.Label("escape" + id)
	k.SUBW(t2.As16(), acc.As16())
	k.CMPL(t2.As32(), U32(escape))
	k.JNE(LabelRef("last" + id))
	k.CMPL(t1.As32(), U32(escape))
	k.JEQ(LabelRef(fmt.Sprintf("stop_%d", i)))
	if before {
		k.MOVQ(t1, k.lane(i, laneScratch))
		k.refill(i)
		k.MOVQ(k.lane(i, laneScratch), t1)
	}
	k.TESTL(t1.As32(), t1.As32())
	k.JEQ(LabelRef("long" + id))

	// t1 is symbol | length<<8.
	k.Label("symbol" + id)
	k.MOVL(t1.As32(), t2.As32())
	k.SHRL(U8(8), t2.As32())
	k.SHLXQ(t2, bits, bits)
	k.ADDQ(t2, acc)
	k.ANDL(U32(255), t1.As32())
	k.JEQ(LabelRef("zero" + id))
	k.MOVL(t1.As32(), t2.As32())
	k.SHRL(U8(4), t2.As32())
	k.ADDL(at(table, tableBase), t2.As32())
	k.SHLL(U8(8), t2.As32())
	k.ADDQ(t2, acc)
	k.ANDL(U32(15), t1.As32())
	k.ADDQ(t1, acc)
	// The value of t1 bits: with a leading 0 it is negative.
	k.MOVQ(bits, t2)
	k.SHRQ(U8(1), t2)
	k.MOVL(t1.As32(), t3.As32())
	k.XORL(U8(63), t3.As32())
	k.SHRXQ(t3, t2, t2)
	k.MOVQ(I32(-1), t3)
	k.SHLXQ(t1, t3, t3)
	k.INCQ(t3)
	k.ADDQ(t2, t3)
	k.TESTQ(bits, bits)
	k.CMOVQPL(t3, t2)
	k.SHLXQ(t1, bits, bits)
	k.MOVL(t2.As32(), t1.As32())
	if after {
		k.MOVQ(t1, t3)
		k.refill(i)
		k.MOVQ(t3, t1)
	}
	k.MOVQ(acc, t3)
	k.SHRQ(U8(16), t3)
	k.JMP(LabelRef("value" + id))

	k.Label("zero" + id)
	k.MOVL(at(table, tableZero), t2.As32())
	k.SHLL(U8(8), t2.As32())
	k.ADDQ(t2, acc)
	if after {
		k.refill(i)
	}
	k.XORL(t1.As32(), t1.As32())
	k.MOVQ(acc, t3)
	k.SHRQ(U8(16), t3)
	k.JMP(LabelRef("value" + id))

	// The block's last coefficient: what seemed its end is not.
	k.Label("last" + id)
	k.SUBL(at(table, tableLast), t2.As32())
	k.SHLXQ(t2, bits, bits)
	k.ADDQ(t2, acc)
	k.JMP(LabelRef("value" + id))

	// A code longer than codeBits: by comparison with the largest of each length.
	k.Label("long" + id)
	k.MOVQ(bits, t2)
	k.SHRQ(U8(48), t2)
	k.MOVL(U32(codeBits), t3.As32())
	k.Label("longer" + id)
	k.INCL(t3.As32())
	k.CMPL(t3.As32(), U8(badLength))
	k.JEQ(LabelRef("bad" + id))
	k.CMPL(t2.As32(), atx(table, t3, 4, tableLimits))
	k.JCC(LabelRef("longer" + id))
	k.MOVL(U32(16), t1.As32())
	k.SUBL(t3.As32(), t1.As32())
	k.SHRXL(t1.As32(), t2.As32(), t2.As32())
	k.ADDL(atx(table, t3, 4, tableFirsts), t2.As32())
	k.ANDL(U32(255), t2.As32())
	k.MOVBLZX(atx(table, t2, 1, tableSymbols), t1.As32())
	k.SHLL(U8(8), t3.As32())
	k.ORL(t3.As32(), t1.As32())
	k.JMP(LabelRef("symbol" + id))
	k.Label("bad" + id)
	k.MOVL(U32(1), k.lane(i, laneBad))
	k.MOVL(U32(badLength<<8), t1.As32())
	k.JMP(LabelRef("symbol" + id))
}

func (k *lanes) generate() {
	k.acc = []GPPhysical{RAX, RBX, RCX, RDX}[:k.n]
	k.bits = []GPPhysical{R8, R9, R10, R11}[:k.n]
	k.table = []GPPhysical{R12, R13, R14, R15}[:k.n]
	k.t1, k.t2, k.t3 = RSI, RDI, RBP // t2 without REX, for moves from AH
	name := fmt.Sprintf("lanes%d", k.n)
	k.function(name, "func(c *uint8)", fmt.Sprintf("%s goes on in %d lanes of the context at c until one of them stops.", name, k.n))
	size := ctxLane + k.n*laneSize
	k.frame = k.AllocLocal(size)
	c := k.load("c", RSI)
	for o := 0; o < size; o += 32 {
		k.VMOVDQU(at(c, o), Y0)
		k.VMOVDQU(Y0, k.frame.Offset(o))
	}
	k.VZEROUPPER()
	for i := range k.n {
		k.MOVQ(k.lane(i, laneAcc), k.acc[i])
		k.MOVQ(k.lane(i, laneBits), k.bits[i])
		k.MOVQ(k.lane(i, laneTable), k.table[i])
	}
	k.Label("loop")
	for i := range k.n {
		k.refill(i)
	}
	for j := range lookups {
		for i := range k.n {
			k.lookUp(i, j)
		}
	}
	k.JMP(LabelRef("loop"))
	for i := range k.n {
		for j := range lookups {
			k.escape(i, j)
		}
		k.Label(fmt.Sprintf("stop_%d", i))
		k.MOVQ(U32(uint32(i)), k.frame.Offset(ctxDone))
		k.JMP(LabelRef("exit"))
	}
	k.Label("exit")
	for i := range k.n {
		k.MOVQ(k.acc[i], k.lane(i, laneAcc))
		k.MOVQ(k.bits[i], k.lane(i, laneBits))
		k.MOVQ(k.table[i], k.lane(i, laneTable))
	}
	c = k.load("c", RSI)
	for o := ctxDone; o < size; o += 32 {
		k.VMOVDQU(k.frame.Offset(o), Y0)
		k.VMOVDQU(Y0, at(c, o))
	}
	k.VZEROUPPER()
	k.RET()
}

// finishAVX2 brings raw blocks to their places, or drops them.
func finishAVX2(g *gen, keep bool) {
	if keep {
		g.function("finishAVX2", "func(raw, targets *uint8, pred *int32, slots, mcus int)",
			"finishAVX2 moves the raw blocks of so many MCUs to their targets, adds up DC, and clears the raw ones.")
	} else {
		g.function("dropAVX2", "func(raw, targets *uint8, pred *int32, slots, mcus int)",
			"dropAVX2 adds up DC of the raw blocks of so many MCUs, and clears them.")
	}
	raw, targets, pred, slots, mcus := g.load("raw", RSI), g.load("targets", R8), g.load("pred", R9), g.load("slots", R10), g.load("mcus", R11)
	g.VPXOR(Y15, Y15, Y15)
	g.Label("mcu")
	target, left := RDI, RCX
	g.MOVQ(targets, target)
	g.MOVQ(slots, left)
	g.Label("slot")
	out, step, sum := RAX, RBX, RDX
	if keep {
		g.MOVQ(at(target, targetOut), out)
		g.MOVQ(at(target, targetStep), step)
		g.ADDQ(out, step)
		g.MOVQ(step, at(target, targetOut))
	}
	g.MOVQ(at(target, targetPred), step)
	g.MOVWLSX(at(raw, 0), sum.As32())
	g.ADDL(atx(pred, step, 4, 0), sum.As32())
	g.MOVL(sum.As32(), atx(pred, step, 4, 0))
	places := []int{0, 32, rawHalf, rawHalf + 32}
	if keep {
		for i, from := range places {
			g.VMOVDQU(at(raw, from), ymm[i])
		}
	}
	for i, from := range places {
		g.VMOVDQU(Y15, at(raw, from))
		if keep {
			g.VMOVDQU(ymm[i], at(out, 32*i))
		}
	}
	if keep {
		g.MOVW(sum.As16(), at(out, 0))
	}
	g.ADDQ(I32(2*rawHalf), raw)
	g.ADDQ(I32(targetSize), target)
	g.SUBQ(U8(1), left)
	g.JNE(LabelRef("slot"))
	g.SUBQ(U8(1), mcus)
	g.JNE(LabelRef("mcu"))
	g.VZEROUPPER()
	g.RET()
}

// unstuffAVX2 copies 32 bytes at a time, and goes on behind each FF.
func unstuffAVX2(g *gen) {
	g.function("unstuffAVX2", "func(dst, src *uint8, n int) (written, read int)",
		"unstuffAVX2 copies src without the 00 behind each FF, as long as more than 32 of its n bytes are left, and up to an FF without a 00. It writes up to 31 bytes beyond what it has written.")
	dst, src, end := g.load("dst", RDI), g.load("src", RSI), g.load("n", RDX)
	to, from, mask := R8, R9, RAX
	g.MOVQ(dst, to)
	g.MOVQ(src, from)
	g.LEAQ(atx(src, end, 1, -33), end)
	g.VPCMPEQB(Y1, Y1, Y1)
	g.Label("loop")
	g.CMPQ(from, end)
	g.JHI(LabelRef("done"))
	g.VMOVDQU(at(from, 0), Y0)
	g.VPCMPEQB(Y0, Y1, Y2)
	g.VPMOVMSKB(Y2, mask.As32())
	g.VMOVDQU(Y0, at(to, 0))
	g.TESTL(mask.As32(), mask.As32())
	g.JNE(LabelRef("ff"))
	g.ADDQ(I32(32), from)
	g.ADDQ(I32(32), to)
	g.JMP(LabelRef("loop"))
	g.Label("ff")
	g.BSFL(mask.As32(), mask.As32())
	g.ADDQ(mask, from)
	g.ADDQ(mask, to)
	g.CMPB(at(from, 1), U8(0))
	g.JNE(LabelRef("done"))
	g.ADDQ(I32(2), from)
	g.INCQ(to)
	g.JMP(LabelRef("loop"))
	g.Label("done")
	g.SUBQ(dst, to)
	g.SUBQ(src, from)
	g.Store(to, g.ReturnIndex(0))
	g.Store(from, g.ReturnIndex(1))
	g.VZEROUPPER()
	g.RET()
}
