package jpegenc

import "math/bits"

// Multipliers of the transform, in 1/8192.
const (
	constBits = 13
	pass1Bits = 2

	fix0298631336 = 2446
	fix0390180644 = 3196
	fix0541196100 = 4433
	fix0765366865 = 6270
	fix0899976223 = 7373
	fix1175875602 = 9633
	fix1501321110 = 12299
	fix1847759065 = 15137
	fix1961570560 = 16069
	fix2053119869 = 16819
	fix2562915447 = 20995
	fix3072711026 = 25172
)

// pair holds two numbers, a + b<<32. A linear map of pairs maps both numbers as
// long as its results fit 32 bits, so one transform does the work of two.
type pair = int64

// both is the pair of a number with itself.
const both = 1<<32 + 1

// bias is added to both numbers of a pair before they are taken apart: then neither
// is negative, and the lower does not borrow from the upper.
const bias = 1 << 30

// dct8 transforms eight pairs. The outputs 0 and 4 are not scaled; the others are
// scaled by 1<<constBits.
func dct8(v0, v1, v2, v3, v4, v5, v6, v7 pair) (_, _, _, _, _, _, _, _ pair) {
	t0, t7 := v0+v7, v0-v7
	t1, t6 := v1+v6, v1-v6
	t2, t5 := v2+v5, v2-v5
	t3, t4 := v3+v4, v3-v4

	t10, t13 := t0+t3, t0-t3
	t11, t12 := t1+t2, t1-t2
	even := (t12 + t13) * fix0541196100

	z1 := -(t4 + t7) * fix0899976223
	z2 := -(t5 + t6) * fix2562915447
	z3 := t4 + t6
	z4 := t5 + t7
	z5 := (z3 + z4) * fix1175875602
	z3 = z5 - z3*fix1961570560
	z4 = z5 - z4*fix0390180644
	return t10 + t11,
		t7*fix1501321110 + z1 + z4,
		even + t13*fix0765366865,
		t6*fix3072711026 + z2 + z3,
		t10 - t11,
		t5*fix2053119869 + z2 + z4,
		even - t12*fix1847759065,
		t4*fix0298631336 + z1 + z3
}

// quantiser divides coefficients, which come out of the transform scaled by 8, and
// rounds halves away from zero. For each zigzag position, d being the divisor:
//
//	n/d = (n + offset − [n<0]) * inverse >> 32 − zero
//
// offset holds half of d and zero times d, so that the product is not negative; it
// is exact for |n| up to 16384.
type quantiser [64]struct{ offset, inverse, zero uint32 }

// newQuantiser makes the quantiser of a table in zigzag order.
func newQuantiser(table *[64]uint8) *quantiser {
	q := new(quantiser)
	for k, v := range table {
		d := uint32(v) * 8
		q[k].zero = 16384/d + 1
		q[k].offset = d/2 + d*q[k].zero
		q[k].inverse = uint32(1<<32/uint64(d) + 1)
	}
	return q
}

// block transforms and quantises the 8×8 samples that begin at pix[0], into out in
// zigzag order. It returns which of them are not zero, a bit for each.
func (q *quantiser) block(out *[64]int16, pix []uint8, stride int) (nonzero uint64) {
	var work [8][4]pair // rows of pairs (column c, column c+4)
	const (
		down1 = constBits - pass1Bits
		// What the bias is after the rounding shift, for both numbers.
		lift1 = both * (bias >> down1)
		turn1 = both * (bias + 1<<(down1-1))
	)
	for r := range 4 {
		a := pix[r*stride:][:8]
		b := pix[(r+4)*stride:][:8]
		var v [8]pair // pairs (row r, row r+4)
		v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7] = dct8(
			pair(a[0])+pair(b[0])<<32, pair(a[1])+pair(b[1])<<32,
			pair(a[2])+pair(b[2])<<32, pair(a[3])+pair(b[3])<<32,
			pair(a[4])+pair(b[4])<<32, pair(a[5])+pair(b[5])<<32,
			pair(a[6])+pair(b[6])<<32, pair(a[7])+pair(b[7])<<32)
		v[0] -= both * 8 * 128 // the level shift of eight samples
		v[0] <<= down1 + pass1Bits
		v[4] <<= down1 + pass1Bits
		for c := range 4 {
			l, h := v[c]+turn1, v[c+4]+turn1
			work[r][c] = pair(uint32(l)>>down1) + pair(uint32(h)>>down1)<<32 - lift1
			work[r+4][c] = l>>(32+down1) + h>>(32+down1)<<32 - lift1
		}
	}
	var coefs [64]int32
	const (
		down2 = constBits + pass1Bits
		lift2 = bias >> down2
		turn2 = both * (bias + 1<<(down2-1))
	)
	for c := range 4 {
		var v [8]pair
		v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7] = dct8(
			work[0][c], work[1][c], work[2][c], work[3][c],
			work[4][c], work[5][c], work[6][c], work[7][c])
		v[0] <<= down2 - pass1Bits
		v[4] <<= down2 - pass1Bits
		for r := range 8 {
			p := v[r] + turn2
			coefs[r*8+c] = int32(uint32(p)>>down2) - lift2
			coefs[r*8+c+4] = int32(p>>(32+down2)) - lift2
		}
	}
	for k := range q {
		d := &q[k]
		n := coefs[natural[k]&63]
		t := int64(uint64(uint32(n+n>>31)+d.offset)*uint64(d.inverse)>>32) - int64(d.zero)
		out[k] = int16(t)
		nonzero = nonzero>>1 | uint64(t|-t)&(1<<63)
	}
	return nonzero
}

// natural is the natural position (8 × row + column) of each zigzag position.
var natural = [64]uint8{
	0, 1, 8, 16, 9, 2, 3, 10,
	17, 24, 32, 25, 18, 11, 4, 5,
	12, 19, 26, 33, 40, 48, 41, 34,
	27, 20, 13, 6, 7, 14, 21, 28,
	35, 42, 49, 56, 57, 50, 43, 36,
	29, 22, 15, 23, 30, 37, 44, 51,
	58, 59, 52, 45, 38, 31, 39, 46,
	53, 60, 61, 54, 47, 55, 62, 63,
}

// component is one plane on its way: its coefficients in blocks.
type component struct {
	h, v int // sampling factors
	// table is the number of the quantisation table and of the Huffman tables.
	table int
	// across and down count the blocks of the plane itself.
	across, down int
	// stride and rows count the blocks with those that fill up the last MCUs.
	stride, rows int
	coefs        [][64]int16 // in zigzag order
	nonzero      []uint64    // a bit for each coefficient
}

// grow returns a slice of n elements of unknown content.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// transform fills the component's blocks from plane, w×h samples in MCUs of
// mcuAcross×mcuDown. Samples over the edge repeat the last one. Blocks over the
// edge have no AC coefficients and the DC of their predecessor in the MCU.
func (c *component) transform(q *quantiser, plane Plane, w, h, mcuAcross, mcuDown int) {
	c.across, c.down = (w+7)/8, (h+7)/8
	c.stride, c.rows = mcuAcross*c.h, mcuDown*c.v
	c.coefs = grow(c.coefs, c.stride*c.rows)
	c.nonzero = grow(c.nonzero, c.stride*c.rows)
	var edge [64]uint8
	for by := range c.down {
		row := by * c.stride
		for bx := range c.across {
			pix, stride := plane.Pix[by*8*plane.Stride+bx*8:], plane.Stride
			if bx*8+8 > w || by*8+8 > h {
				for y := range 8 {
					from := plane.Pix[min(by*8+y, h-1)*plane.Stride:]
					for x := range 8 {
						edge[y*8+x] = from[min(bx*8+x, w-1)]
					}
				}
				pix, stride = edge[:], 8
			}
			c.nonzero[row+bx] = q.block(&c.coefs[row+bx], pix, stride)
		}
		for bx := c.across; bx < c.stride; bx++ {
			c.flat(row+bx, c.coefs[row+bx-1][0])
		}
	}
	for by := c.down; by < c.rows; by++ {
		for bx := range c.stride {
			last := (by-1)*c.stride + bx/c.h*c.h + c.h - 1
			c.flat(by*c.stride+bx, c.coefs[last][0])
		}
	}
}

func (c *component) flat(i int, dc int16) {
	c.coefs[i] = [64]int16{dc}
	c.nonzero[i] = uint64(bits.Len16(uint16(dc))+15) >> 4 & 1
}
