//go:build !purego

package encode

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"shardify/imaging/jpeg/internal/blocks"
	"shardify/internal/simd"
)

// ycc converts n pixels; with assembly, n is a multiple of chunk.
func ycc(y, cb, cr, rgb []uint8, n int, level simd.Level) {
	if level == simd.Generic {
		yccGeneric(y, cb, cr, rgb, n)
		return
	}
	_, _, _, _ = y[n-1], cb[n-1], cr[n-1], rgb[3*n-1]
	if level == simd.AVX512 {
		if m := n &^ 63; m > 0 {
			yccAVX512(&y[0], &cb[0], &cr[0], &rgb[0], m)
			if m == n {
				return
			}
			y, cb, cr, rgb, n = y[m:], cb[m:], cr[m:], rgb[3*m:], n-m
		}
	}
	yccAVX2(&y[0], &cb[0], &cr[0], &rgb[0], n)
}

// downsample makes n samples, a multiple of chunk where h is 2.
func downsample(dst, src []uint8, pitch, n, h, v int, level simd.Level) {
	if level == simd.Generic || h != 2 {
		downsampleGeneric(dst, src, pitch, n, h, v)
		return
	}
	_, _ = dst[n-1], src[(v-1)*pitch+2*n-1]
	if v == 1 {
		h2v1AVX2(&dst[0], &src[0], pitch, n)
		return
	}
	h2v2AVX2(&dst[0], &src[0], pitch, n)
}

// forward makes len(coef)/64 blocks, an even number.
func forward(coef []int16, samples []uint8, pitch int, d *divisors, level simd.Level) {
	if level == simd.Generic {
		forwardGeneric(coef, samples, pitch, d)
		return
	}
	n := len(coef) / 64
	_ = samples[7*pitch+8*n-1]
	if level == simd.AVX512 {
		if four := n &^ 3; four > 0 {
			forwardAVX512(&coef[0], &samples[0], pitch, &d.recip[0], four)
			if four == n {
				return
			}
			coef, samples, n = coef[64*four:], samples[8*four:], n-four
		}
	}
	forwardAVX2(&coef[0], &samples[0], pitch, &d.recip[0], n)
}

// masks makes the masks of len(mask) blocks, an even number.
func masks(mask []uint64, coef []int16, l *Layout, level simd.Level) {
	if level == simd.Generic {
		masksGeneric(mask, coef, l)
		return
	}
	_ = coef[64*len(mask)-1]
	if level == simd.AVX512 {
		masksAVX512(&mask[0], &coef[0], &l.order[0], len(mask))
		return
	}
	masksAVX2(&mask[0], &coef[0], &l.order[0], len(mask))
}

// assembly tells whether the processor can run writeBMI2 and countBMI2; whichever has BMI2
// has LZCNT.
var assembly = cpu.X86.HasBMI1 && cpu.X86.HasBMI2

// context is their argument; tools/asm/encode.go knows how it lies in memory, and
// so for slot, codes, tally and Layout.
type context struct {
	acc, n     uint64
	out, limit unsafe.Pointer
	order      *[64]uint8
	left       int // MCUs
	slots      int
	pred       [4]int64
	slot       [10]slot
}

// slot is a block of an MCU.
type slot struct {
	coef     *int16
	mask     *uint64
	table    unsafe.Pointer // codes, or where symbols are counted: a tally
	at, step int            // bytes of coef
	pred     int
}

// These do not compile if memory is not as the assembly takes it.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(context{}.pred)-56]
	_ = [1]struct{}{}[unsafe.Offsetof(context{}.slot)-88]
	_ = [1]struct{}{}[unsafe.Sizeof(slot{})-48]
	_ = [1]struct{}{}[unsafe.Offsetof(Layout{}.pick)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(codes{}.ac)-16*4]
	_ = [1]struct{}{}[unsafe.Offsetof(codes{}.small)-(16+256)*4]
	_ = [1]struct{}{}[unsafe.Offsetof(tally{}.ac)-32*4]
	_ = [1]struct{}{}[unsafe.Offsetof(tally{}.small)-(32+272)*4]
	_ = [1]struct{}{}[unsafe.Offsetof(divisors{}.round)-128]
	_ = [1]struct{}{}[unsafe.Offsetof(divisors{}.scale)-256]
	_ = [1]struct{}{}[lengthBits-6]
	_ = [1]struct{}{}[near-32]
)

// place points the context at MCUs [from, to) of row y of the planes.
func (w *Writer) place(y, from, to int, tables *[2]unsafe.Pointer) {
	c := &w.context
	c.order = &w.Layout.order
	c.left, c.slots = to-from, 0
	for i := range w.Frame.N {
		p, f := &w.Plane[i], &w.Frame.Component[i]
		_ = p.Coef[64*(((y+1)*f.V-1)*p.Stride+to*f.H)-1]
		_ = p.Mask[((y+1)*f.V-1)*p.Stride+to*f.H-1]
		for b := range f.V * f.H {
			block := (y*f.V+b/f.H)*p.Stride + from*f.H + b%f.H
			c.slot[c.slots] = slot{&p.Coef[0], &p.Mask[0], tables[f.Table], 128 * block, 128 * f.H, i}
			c.slots++
		}
		c.pred[i] = int64(w.pred[i])
	}
}

// placed takes back what the context knows of the way so far.
func (w *Writer) placed() {
	for i := range w.Frame.N {
		w.pred[i] = int32(w.context.pred[i])
	}
}

// row writes MCUs [from, to) of row y of the planes, as far as there is room in raw for
// sure, and returns how many.
func (w *Writer) row(y, from, to int) int {
	if w.Level == simd.Generic || !assembly {
		return w.rowGeneric(y, from, to)
	}
	c := &w.context
	w.place(y, from, to, &[2]unsafe.Pointer{unsafe.Pointer(&w.codes[0]), unsafe.Pointer(&w.codes[1])})
	c.acc, c.n = w.acc, uint64(w.n)
	c.out, c.limit = unsafe.Pointer(&w.raw[w.at]), unsafe.Pointer(&w.raw[len(w.raw)-maxMCU])
	writeBMI2((*uint8)(unsafe.Pointer(c)))
	w.acc, w.n = c.acc, uint(c.n)
	w.at = int(uintptr(c.out) - uintptr(unsafe.Pointer(&w.raw[0])))
	w.placed()
	return to - from - c.left
}

// count counts the symbols of rows rows of MCUs.
func (w *Writer) count(rows int) error {
	if w.Level == simd.Generic || !assembly {
		return w.countGeneric(rows)
	}
	c := &w.context
	x, _ := w.Frame.mcus()
	c.acc, c.n = 0, 0
	w.pred = [blocks.MaxComponents]int32{}
	for y := range rows {
		w.place(y, 0, x, &[2]unsafe.Pointer{unsafe.Pointer(&w.tally[0]), unsafe.Pointer(&w.tally[1])})
		countBMI2((*uint8)(unsafe.Pointer(c)))
		w.placed()
		if y%64 == 63 { // long before 32 bits are too few
			w.fold()
		}
	}
	w.fold()
	if c.acc>>maxDC != 0 || c.n>>maxAC != 0 {
		return w.countGeneric(rows) // which tells where
	}
	return nil
}
