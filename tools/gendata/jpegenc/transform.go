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

func pack(a, b int32) pair { return int64(a) + int64(b)<<32 }

func unpack(p pair) (a, b int32) {
	a = int32(p)
	return a, int32((p - int64(a)) >> 32)
}

// dct8 transforms eight pairs. The even outputs 0 and 4 are not scaled; the others
// are scaled by 1<<constBits.
func dct8(v *[8]pair) {
	t0, t7 := v[0]+v[7], v[0]-v[7]
	t1, t6 := v[1]+v[6], v[1]-v[6]
	t2, t5 := v[2]+v[5], v[2]-v[5]
	t3, t4 := v[3]+v[4], v[3]-v[4]

	t10, t13 := t0+t3, t0-t3
	t11, t12 := t1+t2, t1-t2
	v[0] = t10 + t11
	v[4] = t10 - t11
	z1 := (t12 + t13) * fix0541196100
	v[2] = z1 + t13*fix0765366865
	v[6] = z1 - t12*fix1847759065

	z1 = -(t4 + t7) * fix0899976223
	z2 := -(t5 + t6) * fix2562915447
	z3 := t4 + t6
	z4 := t5 + t7
	z5 := (z3 + z4) * fix1175875602
	z3 = z5 - z3*fix1961570560
	z4 = z5 - z4*fix0390180644
	v[7] = t4*fix0298631336 + z1 + z3
	v[5] = t5*fix2053119869 + z2 + z4
	v[3] = t6*fix3072711026 + z2 + z3
	v[1] = t7*fix1501321110 + z1 + z4
}

// quantiser divides coefficients, which come out of the transform scaled by 8.
type quantiser struct {
	// half and inverse are those of the divisor at each zigzag position:
	// (n+half)*inverse>>32 is n over the divisor, rounded, exact for n < 1<<20.
	half, inverse [64]uint32
}

// newQuantiser makes the quantiser of a table in zigzag order.
func newQuantiser(table *[64]uint8) *quantiser {
	q := new(quantiser)
	for k, v := range table {
		d := uint64(v) * 8
		q.half[k] = uint32(d / 2)
		q.inverse[k] = uint32(1<<32/d + 1)
	}
	return q
}

// block transforms and quantises the 8×8 samples that begin at pix[0], into out in
// zigzag order. It returns which of them are not zero, a bit for each.
func (q *quantiser) block(out *[64]int16, pix []uint8, stride int) (nonzero uint64) {
	var work [8][4]pair // rows of pairs (column c, column c+4)
	const down1 = constBits - pass1Bits
	for r := range 4 {
		a := pix[r*stride:][:8]
		b := pix[(r+4)*stride:][:8]
		var v [8]pair // pairs (row r, row r+4)
		for i := range 8 {
			v[i] = pair(a[i]) + pair(b[i])<<32
		}
		dct8(&v)
		v[0] -= pack(8*128, 8*128) // the level shift of eight samples
		var lo, hi [8]int32
		for i := range 8 {
			x, y := unpack(v[i])
			if i&3 == 0 {
				lo[i], hi[i] = x<<pass1Bits, y<<pass1Bits
			} else {
				lo[i], hi[i] = (x+1<<(down1-1))>>down1, (y+1<<(down1-1))>>down1
			}
		}
		for c := range 4 {
			work[r][c] = pack(lo[c], lo[c+4])
			work[r+4][c] = pack(hi[c], hi[c+4])
		}
	}
	const down2 = constBits + pass1Bits
	var coefs [64]int32
	for c := range 4 {
		var v [8]pair
		for r := range 8 {
			v[r] = work[r][c]
		}
		dct8(&v)
		for r := range 8 {
			x, y := unpack(v[r])
			if r&3 == 0 {
				x, y = (x+1<<(pass1Bits-1))>>pass1Bits, (y+1<<(pass1Bits-1))>>pass1Bits
			} else {
				x, y = (x+1<<(down2-1))>>down2, (y+1<<(down2-1))>>down2
			}
			coefs[r*8+c], coefs[r*8+c+4] = x, y
		}
	}
	for k, i := range natural {
		n := coefs[i&63]
		sign := n >> 31
		t := (uint64(uint32((n^sign)-sign)) + uint64(q.half[k])) * uint64(q.inverse[k]) >> 32
		out[k] = int16((int32(t) ^ sign) - sign)
		nonzero |= -t >> 63 << k
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
