//go:build !purego

package entropy

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"shardify/internal/simd"
)

// kernel decodes the parts of strands in lanes, in assembly: in one loop, look-up by
// look-up of each lane in turn.
//
// The assembly has addresses as numbers. What they point to is held by the strands,
// and stays where it is, for Go's collector moves nothing on the heap; and no
// collection waits long for a call, which ends with the first part of its lanes.
type kernel struct {
	context
	desc [lanes]*[maxBlocks]desc
	part [lanes][maxBlocks]desc // what desc points to
}

// assembly tells whether the processor can run the kernels; tests change it.
var assembly = simd.Best() >= simd.AVX2 && cpu.X86.HasBMI2

// context is the kernels' argument; tools/asm/huffman.go knows how it lies in
// memory, and so for lane and desc.
type context struct {
	order [64]uint8 // order
	done  uint64    // the lane that has no blocks left
	_     [3]uint64
	lane  [lanes]lane
}

// lane is a stream between two calls, anywhere in a block.
type lane struct {
	acc   uint64  // bits used since p, and the zigzag index in bits 8 to 15
	p     uintptr // in the clean bytes
	limit uintptr // where p may be at most when a block begins
	out   uintptr // the block
	last  uintptr // its index of the last coefficient
	left  uint64  // blocks
	desc  *desc   // the block's
	ac    *acTable
	pred  [4]int32
	fresh uint32 // not in a block: begin with the one after desc
	bad   uint32 // bits were met that are no code
	_     uint64
}

// desc is a block of an MCU, in a ring.
type desc struct {
	next           *desc
	dc             *symbolTable
	ac             *acTable
	out, last      uintptr // of the next MCU's
	step, lastStep uintptr // bytes from MCU to MCU
	pred           uint64
}

// These do not compile if memory is not as the assembly takes it.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(context{}.done)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(context{}.lane)-96]
	_ = [1]struct{}{}[unsafe.Sizeof(lane{})-96]
	_ = [1]struct{}{}[unsafe.Offsetof(lane{}.desc)-48]
	_ = [1]struct{}{}[unsafe.Offsetof(lane{}.pred)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(lane{}.bad)-84]
	_ = [1]struct{}{}[unsafe.Offsetof(desc{}.out)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(desc{}.pred)-56]
	_ = [1]struct{}{}[unsafe.Offsetof(symbolTable{}.limit)-2<<9]
	_ = [1]struct{}{}[unsafe.Offsetof(acTable{}.limit)-4<<12]
	_ = [1]struct{}{}[unsafe.Offsetof(long{}.first)-4*17]
	_ = [1]struct{}{}[unsafe.Offsetof(long{}.symbols)-2*4*17]
	_ = [1]struct{}{}[symbolBits-9]
	_ = [1]struct{}{}[acBits-12]
	_ = [1]struct{}{}[badLength-17]
)

func address[T any](s []T, i int) uintptr { return uintptr(unsafe.Pointer(&s[i])) }

// load puts t, which has a part to decode, into lane j.
func (k *kernel) load(j int, t *strand) {
	if !assembly {
		return
	}
	if k.desc[j] == nil {
		copy(k.order[:], order[:])
		for i := range k.desc {
			k.desc[i] = &k.part[i]
		}
	}
	ring := k.desc[j]
	n := t.part.n
	for i := range n {
		b, d := &t.part.slot[i], &ring[i]
		d.next = &ring[(i+1)%n]
		d.dc, d.ac = b.dc, b.ac
		d.out, d.last = address(b.coef, 64*b.at), address(b.last, b.at)
		d.step, d.lastStep = uintptr(128*b.step), uintptr(b.step)
		d.pred = uint64(b.pred)
	}
	s := &t.s
	l := &k.lane[j]
	l.acc = uint64(s.used & 7)
	l.p, l.limit = address(s.data, s.p+int(s.used>>3)), address(s.data, s.end+8)
	l.left = uint64(n * t.n)
	l.desc = &ring[n-1]
	l.pred = s.pred
	l.fresh, l.bad = 1, 0
}

// move puts what is in lane i into lane j.
func (k *kernel) move(j, i int) {
	k.lane[j] = k.lane[i]
	k.desc[j], k.desc[i] = k.desc[i], k.desc[j]
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
	l := &k.lane[k.done]
	s := &lane[k.done].s
	bits := 8*int(l.p-address(s.data, 0)) + int(l.acc&255)
	s.p, s.used = bits/8, uint(bits%8)
	s.pred = l.pred
	s.bad = l.bad != 0
	return int(k.done)
}
