package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand" //nolint:revive // operands read as in assembly
	. "github.com/mmcloughlin/avo/reg"     //nolint:revive // and registers
)

// What imaging/jpeg/internal/entropy has in memory; lanes_amd64.go checks it.
const (
	// A table's entries are followed by limit, first and symbols.
	acBits, symbolBits = 12, 9
	limits, firsts     = 0, 17 * 4
	symbols            = 2 * 17 * 4
	badLength          = 17

	// context
	ctxOrder, ctxDone, ctxLane, laneSize = 0, 64, 96, 96
	// lane
	laneAcc, laneP, laneLimit, laneOut, laneLast, laneLeft = 0, 8, 16, 24, 32, 40
	laneDesc, laneAC, lanePred, laneFresh, laneBad         = 48, 56, 64, 80, 84
	// desc
	descNext, descDC, descAC, descOut, descLast, descStep, descLastStep, descPred = 0, 8, 16, 24, 32, 40, 48, 56
)

// lookups is how many times each lane looks up between two refills of its bits: a
// refill leaves at least 57.
const lookups = 4

func huffman(g *gen) {
	for n := 1; n <= 4; n++ {
		k := &lanes{gen: g, n: n}
		k.generate()
	}
}

// lanes makes the kernel of n lanes. A lane has two values in registers always: acc,
// the number of bits used since its pointer p in the lowest byte and the zigzag
// index in the next, so that adding a table entry adds to both; and bits, the next
// bits at the top. The rest has a register where there is one left, or its place in
// the lane's copy on the stack.
type lanes struct {
	*gen
	n              int
	frame          Mem
	acc, bits      []GPPhysical
	out, ac        []GPPhysical // nil: on the stack
	shift          GPPhysical   // 64-acBits, or nil
	t1, t2, t3, t4 GPPhysical
}

func (k *lanes) allocate() {
	accs := []GPPhysical{RAX, RBX, RCX, RDX}
	k.acc = accs[:k.n]
	free := append([]GPPhysical{R8, R9, R10, R11, R12, R13, R14, R15}, accs[k.n:]...)
	take := func() GPPhysical {
		if len(free) == 0 {
			return nil
		}
		r := free[0]
		free = free[1:]
		return r
	}
	k.t1, k.t2 = RSI, RDI // t2 without REX, for moves from AH
	for range k.n {
		k.bits = append(k.bits, take())
	}
	k.t3, k.t4, k.shift = take(), take(), take()
	for range k.n {
		k.out = append(k.out, take())
	}
	for range k.n {
		k.ac = append(k.ac, take())
	}
}

// at is memory of the frame; of lane i's copy for field.
func (k *lanes) at(offset int) Mem { return k.frame.Offset(offset) }

func (k *lanes) lane(i, field int) Mem { return k.at(ctxLane + i*laneSize + field) }

// order is the place of the coefficient with the zigzag index in r.
func (k *lanes) order(r Register) Mem { return k.at(ctxOrder).Idx(r, 1) }

func high(acc GPPhysical) Register {
	return map[GPPhysical]Register{RAX: AH, RBX: BH, RCX: CH, RDX: DH}[acc]
}

func (k *lanes) loadAC(i int, t GPPhysical) GPPhysical {
	if k.ac[i] != nil {
		return k.ac[i]
	}
	k.MOVQ(k.lane(i, laneAC), t)
	return t
}

func (k *lanes) loadOut(i int, t GPPhysical) GPPhysical {
	if k.out[i] != nil {
		return k.out[i]
	}
	k.MOVQ(k.lane(i, laneOut), t)
	return t
}

// refill moves p on by the whole bytes used, and loads bits from there. mask keeps
// what of acc shall stay: less than 8 bits used, and the zigzag index if it matters.
// A block begins no further than the limit.
func (k *lanes) refill(i int, t GPPhysical, mask uint32, limit bool) {
	acc, bits := k.acc[i], k.bits[i]
	k.MOVBLZX(acc.As8(), t.As32())
	k.SHRL(U8(3), t.As32())
	k.ADDQ(k.lane(i, laneP), t)
	if limit {
		k.CMPQ(t, k.lane(i, laneLimit))
		k.CMOVQHI(k.lane(i, laneLimit), t)
	}
	k.MOVQ(t, k.lane(i, laneP))
	k.ANDL(U32(mask), acc.As32())
	k.MOVQ(at(t, 0), bits)
	k.BSWAPQ(bits)
	k.SHLXQ(acc, bits, bits)
}

const (
	bitsOnly  = 7
	bitsAndK  = 0xff07
	wholeK    = 63 << 8
	endOfK    = 128 << 8
	escapeOfK = 64 << 8
)

// lookUp decodes one coefficient of lane i, the j-th since the refill.
func (k *lanes) lookUp(i, j int) {
	id := fmt.Sprintf("_%d_%d", i, j)
	acc, bits, t1, t2, t3 := k.acc[i], k.bits[i], k.t1, k.t2, k.t3
	if k.shift != nil {
		k.SHRXQ(k.shift, bits, t1)
	} else {
		k.MOVQ(bits, t1)
		k.SHRQ(U8(64-acBits), t1)
	}
	table := k.loadAC(i, t3)
	k.MOVWLZX(atx(table, t1, 4, 0), t2.As32())
	k.MOVWLZX(atx(table, t1, 4, 2), t1.As32())
	k.SHLXQ(t2, bits, bits)
	k.ADDL(t2.As32(), acc.As32())
	k.CMPL(acc.As32(), U32(wholeK))
	k.JCC(LabelRef("end" + id))
	k.MOVBLZX(high(acc), t2.As32())
	k.MOVBLZX(k.order(t2), t2.As32())
	k.MOVW(t1.As16(), atx(k.loadOut(i, t3), t2, 2, 0))
	k.Label("back" + id)
}

// extend makes the value in t3 of the size bits at the top of lane i's, and takes
// them. It uses t.
func (k *lanes) extend(i int, t, size GPPhysical) {
	bits, v := k.bits[i], k.t3
	k.MOVQ(bits, v)
	k.SHRQ(U8(1), v)
	k.MOVL(size.As32(), t.As32())
	k.XORL(U8(63), t.As32())
	k.SHRXQ(t, v, v)
	k.MOVQ(I32(-1), t)
	k.SHLXQ(size, t, t)
	k.INCQ(t)
	k.ADDQ(v, t)
	k.TESTQ(bits, bits)
	k.CMOVQPL(t, v)
	k.SHLXQ(size, bits, bits)
}

// long finds the code at the top of lane i's bits in the table whose limits are at
// offset from t3; it is longer than min. t2 gets symbol | length<<8, t1 and t4 are
// used. It goes on at back, with symbol 0 and badLength if there is no such code.
func (k *lanes) long(i int, id string, offset, min int, back string) {
	t1, t2, t3, t4 := k.t1, k.t2, k.t3, k.t4
	k.MOVQ(k.bits[i], t2)
	k.SHRQ(U8(48), t2)
	k.MOVL(U32(min), t4.As32())
	k.Label("long" + id)
	k.INCL(t4.As32())
	k.CMPL(t4.As32(), U8(badLength))
	k.JEQ(LabelRef("bad" + id))
	k.CMPL(t2.As32(), atx(t3, t4, 4, offset+limits))
	k.JCC(LabelRef("long" + id))
	k.MOVL(U32(16), t1.As32())
	k.SUBL(t4.As32(), t1.As32())
	k.SHRXL(t1.As32(), t2.As32(), t2.As32())
	k.ADDL(atx(t3, t4, 4, offset+firsts), t2.As32())
	k.ANDL(U32(255), t2.As32())
	k.MOVBLZX(atx(t3, t2, 1, offset+symbols), t2.As32())
	k.SHLL(U8(8), t4.As32())
	k.ORL(t4.As32(), t2.As32())
	k.JMP(LabelRef(back))
	k.Label("bad" + id)
	k.MOVL(U32(1), k.lane(i, laneBad))
	k.MOVL(U32(badLength<<8), t2.As32())
	k.JMP(LabelRef(back))
}

// block begins the next block of lane i: clears it and decodes its DC coefficient.
// It goes on at back, with the bits refilled if the look-ups that are left need it.
func (k *lanes) block(i int, id, back string, refill bool) {
	acc, bits, t1, t2, t3, t4 := k.acc[i], k.bits[i], k.t1, k.t2, k.t3, k.t4
	k.refill(i, t1, bitsOnly, true)
	k.MOVQ(k.lane(i, laneDesc), t1)
	k.MOVQ(at(t1, descNext), t1)
	k.MOVQ(t1, k.lane(i, laneDesc))
	if k.ac[i] != nil {
		k.MOVQ(at(t1, descAC), k.ac[i])
	} else {
		k.MOVQ(at(t1, descAC), t2)
		k.MOVQ(t2, k.lane(i, laneAC))
	}
	// Where the block and its last index are, and where its next will be.
	k.MOVQ(at(t1, descLast), t2)
	k.MOVQ(t2, k.lane(i, laneLast))
	k.ADDQ(at(t1, descLastStep), t2)
	k.MOVQ(t2, at(t1, descLast))
	out := k.out[i]
	if out == nil {
		out = t2
	}
	k.MOVQ(at(t1, descOut), out)
	k.MOVQ(at(t1, descStep), t4)
	k.ADDQ(out, t4)
	k.MOVQ(t4, at(t1, descOut))
	if k.out[i] == nil {
		k.MOVQ(out, k.lane(i, laneOut))
	}
	for z := 0; z < 128; z += 32 {
		k.VMOVDQU(Y15, at(out, z))
	}
	k.MOVQ(at(t1, descDC), t3)
	k.MOVQ(bits, t2)
	k.SHRQ(U8(64-symbolBits), t2)
	k.MOVWLZX(atx(t3, t2, 2, 0), t2.As32())
	k.TESTL(t2.As32(), t2.As32())
	k.JEQ(LabelRef("dclong" + id))
	k.Label("dc" + id)
	// t2 is symbol | length<<8.
	k.MOVL(t2.As32(), t1.As32())
	k.SHRL(U8(8), t1.As32())
	k.SHLXQ(t1, bits, bits)
	k.ADDL(t1.As32(), acc.As32())
	k.ANDL(U32(255), t2.As32())
	k.ADDL(t2.As32(), acc.As32())
	k.extend(i, t4, t2)
	k.MOVQ(k.lane(i, laneDesc), t1)
	k.MOVQ(at(t1, descPred), t1)
	pred := k.lane(i, lanePred).Idx(t1, 4)
	k.ADDL(pred, t3.As32())
	k.MOVL(t3.As32(), pred)
	k.MOVW(t3.As16(), at(k.loadOut(i, t2), 0))
	if refill {
		k.refill(i, t1, bitsOnly, false)
	}
	k.JMP(LabelRef(back))
	k.Label("dclong" + id)
	k.long(i, "dc"+id, 2<<symbolBits, symbolBits, "dc"+id)
}

// end is where a look-up leads that was the last of its block, or an escape.
func (k *lanes) end(i, j int) {
	id := fmt.Sprintf("_%d_%d", i, j)
	acc, bits, t1, t2, t3 := k.acc[i], k.bits[i], k.t1, k.t2, k.t3
	// Do the bits left suffice after 32 for a DC coefficient, or 31 for an escape?
	refill := 32+(lookups-1-j)*acBits > 57
	back := "back" + id
	if j == lookups-1 && i == k.n-1 {
		back, refill = "loop", false
	}
	k.Label("end" + id)
	k.TESTL(U32(255), t2.As32())
	k.JEQ(LabelRef("escape" + id))

	// t1 is the last coefficient's value, 0 at an end of block.
	k.Label("done" + id)
	out := k.loadOut(i, t3)
	k.MOVBLZX(k.at(ctxOrder+63), t2.As32())
	k.MOVW(t1.As16(), atx(out, t2, 2, 0))
	k.MOVBLZX(high(acc), t2.As32())
	k.MOVL(U32(63), t1.As32())
	k.CMPL(t2.As32(), U32(endOfK>>8))
	k.CMOVLCS(t1.As32(), t2.As32())
	k.ANDL(U32(63), t2.As32())
	k.MOVQ(k.lane(i, laneLast), t3)
	k.MOVB(t2.As8L(), at(t3, 0))
	k.SUBQ(U8(1), k.lane(i, laneLeft))
	k.JEQ(LabelRef(fmt.Sprintf("exit_%d", i)))
	k.block(i, id, back, refill)

	k.Label("escape" + id)
	k.SUBL(U32(escapeOfK), acc.As32())
	k.refill(i, t2, bitsAndK, false)
	k.MOVL(t1.As32(), t2.As32())
	k.TESTL(t2.As32(), t2.As32())
	k.JEQ(LabelRef("aclong" + id))
	k.Label("ac" + id)
	// t2 is symbol | length<<8.
	k.MOVL(t2.As32(), t1.As32())
	k.SHRL(U8(8), t1.As32())
	k.SHLXQ(t1, bits, bits)
	k.ADDL(t1.As32(), acc.As32())
	k.MOVL(t2.As32(), t1.As32())
	k.ANDL(U32(255), t1.As32())
	k.JEQ(LabelRef("acend" + id))
	k.ANDL(U32(15), t2.As32())
	k.ADDL(t2.As32(), acc.As32())
	k.SHRL(U8(4), t1.As32())
	k.INCL(t1.As32())
	k.SHLL(U8(8), t1.As32())
	k.ADDL(t1.As32(), acc.As32())
	k.extend(i, t1, t2)
	k.MOVL(t3.As32(), t1.As32())
	k.CMPL(acc.As32(), U32(wholeK))
	k.JCC(LabelRef("done" + id))
	k.MOVBLZX(high(acc), t2.As32())
	k.MOVBLZX(k.order(t2), t2.As32())
	k.MOVW(t1.As16(), atx(k.loadOut(i, t3), t2, 2, 0))
	if refill {
		k.refill(i, t2, bitsAndK, false)
	}
	k.JMP(LabelRef(back))
	k.Label("acend" + id)
	k.ADDL(U32(endOfK), acc.As32())
	k.JMP(LabelRef("done" + id))
	k.Label("aclong" + id)
	if table := k.loadAC(i, t3); table != t3 {
		k.MOVQ(table, t3)
	}
	k.long(i, "ac"+id, 4<<acBits, acBits, "ac"+id)
}

func (k *lanes) generate() {
	k.allocate()
	name := fmt.Sprintf("lanes%d", k.n)
	k.function(name, "func(c *uint8)", fmt.Sprintf("%s goes on in %d lanes of the context at c until one of them has no blocks left.", name, k.n))
	size := ctxLane + k.n*laneSize
	k.frame = k.AllocLocal((size + 31) &^ 31)
	c := k.load("c", RSI)
	for o := 0; o < size; o += 32 {
		k.VMOVDQU(at(c, o), Y0)
		k.VMOVDQU(Y0, k.at(o))
	}
	k.VPXOR(Y15, Y15, Y15)
	if k.shift != nil {
		k.MOVQ(U32(64-acBits), k.shift)
	}
	for i := range k.n {
		k.MOVL(k.lane(i, laneAcc), k.acc[i].As32())
		if k.out[i] != nil {
			k.MOVQ(k.lane(i, laneOut), k.out[i])
		}
		if k.ac[i] != nil {
			k.MOVQ(k.lane(i, laneAC), k.ac[i])
		}
	}
	for i := range k.n {
		k.CMPL(k.lane(i, laneFresh), U8(0))
		k.JNE(LabelRef(fmt.Sprintf("fresh_%d", i)))
		k.Label(fmt.Sprintf("begin_%d", i))
	}
	k.Label("loop")
	for i := range k.n {
		k.refill(i, k.t1, bitsAndK, false)
	}
	for j := range lookups {
		for i := range k.n {
			k.lookUp(i, j)
		}
	}
	k.JMP(LabelRef("loop"))
	for i := range k.n {
		for j := range lookups {
			k.end(i, j)
		}
		k.Label(fmt.Sprintf("fresh_%d", i))
		k.MOVL(U32(0), k.lane(i, laneFresh))
		k.block(i, fmt.Sprintf("_%d", i), fmt.Sprintf("begin_%d", i), false)
	}
	for i := range k.n {
		k.Label(fmt.Sprintf("exit_%d", i))
		k.MOVQ(U32(uint32(i)), k.at(ctxDone))
		k.JMP(LabelRef("exit"))
	}
	k.Label("exit")
	for i := range k.n {
		k.MOVL(k.acc[i].As32(), k.lane(i, laneAcc))
		if k.out[i] != nil {
			k.MOVQ(k.out[i], k.lane(i, laneOut))
		}
		if k.ac[i] != nil {
			k.MOVQ(k.ac[i], k.lane(i, laneAC))
		}
	}
	c = k.load("c", RSI)
	for o := ctxDone; o < size; o += 32 {
		k.VMOVDQU(k.at(o), Y0)
		k.VMOVDQU(Y0, at(c, o))
	}
	k.VZEROUPPER()
	k.RET()
}
