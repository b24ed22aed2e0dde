//go:build !purego

package entropy

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"shardify/internal/simd"
)

// kernel decodes the parts of strands in lanes, in assembly: in one loop, look-up by
// look-up of each lane in turn. It decodes into raw blocks in the order of the
// stream, which are then brought to their places.
//
// The assembly has addresses as numbers. What they point to is held by the strands
// and by the kernel, and stays where it is, for Go's collector moves nothing on the
// heap; and no collection waits long for a call, which ends with the first part of
// its lanes.
type kernel struct {
	context
	raw [lanes]raw
}

// assembly tells whether the processor can run the kernels; tests change it.
var assembly = simd.Best() >= simd.AVX2 && cpu.X86.HasBMI2

// context is the kernels' argument; tools/asm/huffman.go knows how it lies in
// memory, and so for lane and target.
type context struct {
	order [256]uint8 // see rawOrder
	done  uint64     // the lane that stopped
	_     [3]uint64
	lane  [lanes]lane
}

// lane is a stream between two calls, between two look-ups.
type lane struct {
	// Bits 0 to 7: 64 and how many bits were used since the last refill, which is 63
	// less that many are left. Bits 8 to 15: the zigzag index. Above: the address of the
	// output.
	acc   uint64
	bits  uint64 // the next ones, from the top
	table *codeTable
	p     uintptr // where the next refill reads
	limit uintptr // the last place where it can
	bad   uint64  // bits were met that are no code
	_     [2]uint64
}

// A raw block is rawBlock bytes: places 0 to 31 of its coefficients, DC as a
// difference, then the address of the table that decodes what follows DC; from
// rawHalf on, places 32 to 63 and the address of the next block's DC table. So the
// lane goes to the next half and the next table by adding rawHalf.
const (
	rawHalf  = 80
	rawTable = 64
	rawBlock = 2 * rawHalf
)

// raw is the memory of a lane.
type raw struct {
	memory []byte // of partBlocks blocks
	d      *Decoder
	scan   int // d's scan whose tables are in place, in the first filled blocks
	filled int
}

// target is where the blocks of a slot go.
type target struct {
	out, step uintptr
	pred      uint64
}

// stop is the table behind the last block of a part.
var stop = func() *codeTable {
	t := new(codeTable)
	fill(t.entry[:], 0xffff<<16|escape)
	return t
}()

// rawOrder is by how much 2·place is off in a raw block, less rawHalf, for the index
// in bits 8 to 15 of acc: of DC, whose lane stands at the first half, and of AC, at
// the second. The end of the block writes a 0 behind the last coefficient.
var rawOrder = func() (o [256]uint8) {
	for i := range o {
		k := i
		switch {
		case i > acLast:
			k = i - acLast
		case i >= acEnd:
			k = i - acEnd + 1
		}
		place := order[k]
		if o[i] = place; place >= 32 {
			o[i] += (rawHalf - 64) / 2
		}
	}
	o[dcDone] = rawHalf / 2
	return o
}()

// These do not compile if memory is not as the assembly takes it.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(context{}.done)-256]
	_ = [1]struct{}{}[unsafe.Offsetof(context{}.lane)-288]
	_ = [1]struct{}{}[unsafe.Sizeof(lane{})-64]
	_ = [1]struct{}{}[unsafe.Offsetof(lane{}.bad)-40]
	_ = [1]struct{}{}[unsafe.Sizeof(target{})-24]
	_ = [1]struct{}{}[unsafe.Offsetof(codeTable{}.limit)-4<<11]
	_ = [1]struct{}{}[unsafe.Offsetof(long{}.first)-4*17]
	_ = [1]struct{}{}[unsafe.Offsetof(long{}.symbols)-2*4*17]
	_ = [1]struct{}{}[unsafe.Offsetof(codeTable{}.base)-(4<<11+2*4*17+256+8)]
	_ = [1]struct{}{}[unsafe.Offsetof(codeTable{}.zero)-(4<<11+2*4*17+256+12)]
	_ = [1]struct{}{}[codeBits-11]
	_ = [1]struct{}{}[unsafe.Offsetof(codeTable{}.last)-(4<<11+2*4*17+256+16)]
	_ = [1]struct{}{}[badLength-17]
	_ = [1]struct{}{}[escape-0xffff]
)

func address[T any](s []T, i int) uintptr { return uintptr(unsafe.Pointer(&s[i])) }

// table is where a raw block has the address of a table.
func (r *raw) table(block, half int) *uintptr {
	return (*uintptr)(unsafe.Pointer(&r.memory[block*rawBlock+half*rawHalf+rawTable]))
}

// prepare puts the tables for n blocks of a part of t in place.
func (r *raw) prepare(t *strand, n int) {
	if r.d != t.d || r.scan != t.d.serial {
		r.d, r.scan, r.filled = t.d, t.d.serial, 0
	}
	slots := t.part.slot[:t.part.n]
	for ; r.filled < n; r.filled++ {
		j := r.filled % len(slots)
		*r.table(r.filled, 0) = uintptr(unsafe.Pointer(slots[j].ac))
		*r.table(r.filled, 1) = uintptr(unsafe.Pointer(slots[(j+1)%len(slots)].dc))
	}
	*r.table(n-1, 1) = uintptr(unsafe.Pointer(stop))
}

// load puts t, which has a part to decode, into lane j.
func (k *kernel) load(j int, t *strand) {
	if !assembly {
		return
	}
	r := &k.raw[j]
	if r.memory == nil {
		k.order = rawOrder
		r.memory = make([]byte, partBlocks*rawBlock)
	}
	r.prepare(t, t.n*t.part.n)
	s := &t.s
	word := s.peek()
	k.lane[j] = lane{
		acc:   uint64(address(r.memory, 0))<<16 | 64 + uint64(7+s.used),
		bits:  word,
		table: t.part.slot[0].dc,
		p:     address(s.data, min(s.p, s.end+pad-16)+7),
		limit: address(s.data, s.end+pad-8),
	}
}

// move puts what is in lane i into lane j.
func (k *kernel) move(j, i int) {
	k.lane[j] = k.lane[i]
	k.raw[j], k.raw[i] = k.raw[i], k.raw[j]
}

// drop gives up lane j in the midst of a part.
func (k *kernel) drop(j int) {
	clear(k.raw[j].memory)
	k.raw[j].filled = 0
}

// run decodes until a lane's part is done, and returns which.
func (k *kernel) run(lane []*strand) int {
	if !assembly {
		t := lane[0]
		t.s.run(t.part, t.n)
		return 0
	}
	c := (*uint8)(unsafe.Pointer(&k.context))
	switch len(lane) {
	case 1:
		lanes1(c)
	case 2:
		lanes2(c)
	case 3:
		lanes3(c)
	default:
		lanes4(c)
	}
	k.finish(int(k.done), lane[k.done])
	return int(k.done)
}

// finish brings the blocks of lane j, whose part is done, to their places; those that
// nobody wants are dropped.
func (k *kernel) finish(j int, t *strand) {
	l, r, s := &k.lane[j], &k.raw[j], &t.s
	bit := 8*int(l.p-address(s.data, 0)) - 63 + int(l.acc&63)
	s.p, s.used = bit/8, uint(bit%8)
	s.bad = l.bad != 0
	slots := t.part.slot[:t.part.n]
	*r.table(t.n*len(slots)-1, 1) = uintptr(unsafe.Pointer(slots[0].dc))
	var targets [maxBlocks]target
	for i := range slots {
		b := &slots[i]
		targets[i] = target{address(b.coef, 64*b.at), uintptr(128 * b.step), uint64(b.pred)}
	}
	to := (*uint8)(unsafe.Pointer(&targets))
	if t.part == &t.waste {
		dropAVX2(&r.memory[0], to, &s.pred[0], len(slots), t.n)
		return
	}
	finishAVX2(&r.memory[0], to, &s.pred[0], len(slots), t.n)
}

// unstuffFast begins what unstuff does: it copies bytes without stuffing as far as
// that is simple. dst must be as long as src and pad more.
func unstuffFast(dst, src []byte) (written, read int) {
	if !assembly || len(src) < 64 {
		return 0, 0
	}
	return unstuffAVX2(&dst[0], &src[0], len(src))
}
