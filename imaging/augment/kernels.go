package augment

import (
	"encoding/binary"
	"unsafe"

	"shardify/imaging"
)

// The loops over pixels, in generic Go. Those in assembly (tools/asm) give the same
// bytes; kernels_amd64.go chooses among them, kernels_other.go has these only.
//
// Sums and products stand in conversions where Pillow rounds between them, so that no
// compiler fuses them: pixels are the same on every machine.

// runs says in how many pieces, of how many bytes each, the rows of an image lie:
// piece i is m.Pix[i*m.Stride:][:n].
func runs(m *imaging.Image) (n, pieces int) {
	if m.Stride == 3*m.Width {
		return m.Stride * m.Height, 1
	}
	return 3 * m.Width, m.Height
}

// table is what becomes of every level.
type table [256]uint8

// lookupGeneric replaces every byte by its table's.
func lookupGeneric(pix []uint8, t *table) {
	for ; len(pix) >= 8; pix = pix[8:] {
		p := pix[:8:8]
		p[0], p[1], p[2], p[3] = t[p[0]], t[p[1]], t[p[2]], t[p[3]]
		p[4], p[5], p[6], p[7] = t[p[4]], t[p[5]], t[p[6]], t[p[7]]
	}
	for i, v := range pix {
		pix[i] = t[v]
	}
}

// lookup3Generic does so in RGB with a table for every channel.
func lookup3Generic(pix []uint8, t *[3]table) {
	for ; len(pix) >= 3; pix = pix[3:] {
		p := pix[:3:3]
		p[0], p[1], p[2] = t[0][p[0]], t[1][p[1]], t[2][p[2]]
	}
}

// everyByte has a one in every byte.
const everyByte = 0x0101010101010101

// maskGeneric keeps some bits of every byte and turns some round.
func maskGeneric(pix []uint8, keep, flip uint8) {
	keeps, flips := everyByte*uint64(keep), everyByte*uint64(flip)
	for ; len(pix) >= 8; pix = pix[8:] {
		binary.LittleEndian.PutUint64(pix, binary.LittleEndian.Uint64(pix)&keeps^flips)
	}
	for i, v := range pix {
		pix[i] = v&keep ^ flip
	}
}

// extremesGeneric widens the least and the largest bytes of every channel.
func extremesGeneric(pix []uint8, low, high *[3]uint8) {
	if len(pix) >= 1<<12 { // to note what there is takes less time than to compare
		var seen [3][256]bool
		for ; len(pix) >= 3; pix = pix[3:] {
			p := (*[3]uint8)(pix)
			seen[0][p[0]], seen[1][p[1]], seen[2][p[2]] = true, true, true
		}
		for c := range seen {
			for v, there := range seen[c] {
				if there {
					low[c], high[c] = min(low[c], uint8(v)), max(high[c], uint8(v))
				}
			}
		}
		return
	}
	r0, g0, b0, r1, g1, b1 := low[0], low[1], low[2], high[0], high[1], high[2]
	for ; len(pix) >= 3; pix = pix[3:] {
		p := (*[3]uint8)(pix)
		r0, g0, b0 = min(r0, p[0]), min(g0, p[1]), min(b0, p[2])
		r1, g1, b1 = max(r1, p[0]), max(g1, p[1]), max(b1, p[2])
	}
	*low, *high = [3]uint8{r0, g0, b0}, [3]uint8{r1, g1, b1}
}

// luma is Pillow's conversion to mode L.
func luma(r, g, b uint8) uint8 {
	return uint8((uint32(r)*19595 + uint32(g)*38470 + uint32(b)*7471 + 0x8000) >> 16)
}

// lumaGeneric sums the grey of RGB.
func lumaGeneric(pix []uint8) (sum uint64) {
	for len(pix) >= 3 {
		n := min(len(pix), 3<<20) // whose sum fits 32 bits
		var s uint32
		for p := pix[:n]; len(p) >= 3; p = p[3:] {
			s += uint32(luma(p[0], p[1], p[2]))
		}
		sum, pix = sum+uint64(s), pix[n:]
	}
	return sum
}

// grayGeneric makes RGB grey.
func grayGeneric(pix []uint8) {
	for ; len(pix) >= 3; pix = pix[3:] {
		p := pix[:3:3]
		l := luma(p[0], p[1], p[2])
		p[0], p[1], p[2] = l, l, l
	}
}

// blend is Pillow's Image.blend(a, b, alpha) of two samples: in float32, cut to a
// whole number.
func blend(a, b uint8, alpha float32) uint8 {
	return clip(float32(a) + float32(alpha*float32(int(b)-int(a))))
}

func clip(v float32) uint8 {
	if v <= 0 {
		return 0
	}
	if v >= 255 {
		return 255
	}
	return uint8(v)
}

// saturateGeneric blends RGB with its grey.
func saturateGeneric(pix []uint8, alpha float32) {
	if alpha > 0 && alpha <= 1 { // between the two: nothing to clip
		for ; len(pix) >= 3; pix = pix[3:] {
			p := pix[:3:3]
			l := int32(luma(p[0], p[1], p[2]))
			base := float32(l)
			p[0] = uint8(int32(base + float32(alpha*float32(int32(p[0])-l))))
			p[1] = uint8(int32(base + float32(alpha*float32(int32(p[1])-l))))
			p[2] = uint8(int32(base + float32(alpha*float32(int32(p[2])-l))))
		}
		return
	}
	for ; len(pix) >= 3; pix = pix[3:] {
		p := pix[:3:3]
		l := luma(p[0], p[1], p[2])
		p[0], p[1], p[2] = blend(l, p[0], alpha), blend(l, p[1], alpha), blend(l, p[2], alpha)
	}
}

// hueGeneric adds to the hue of Pillow's mode HSV, of 8 bits each, as torchvision does.
func hueGeneric(pix []uint8, shift uint8) {
	for ; len(pix) >= 3; pix = pix[3:] {
		p := pix[:3:3]
		h, s, v := toHSV(p[0], p[1], p[2])
		p[0], p[1], p[2] = fromHSV(h+shift, s, v)
	}
}

// blurDownGeneric sums rows of bytes: the middle one, and pairs of those equally far from
// it.
func blurDownGeneric(dst []float32, rows []*uint8, weights []float32) {
	n := len(dst)
	for i, v := range unsafe.Slice(rows[0], n) {
		dst[i] = float32(float32(v) * weights[0])
	}
	for k, w := range weights[1:] {
		a, b := unsafe.Slice(rows[1+2*k], n), unsafe.Slice(rows[2+2*k], n)
		for i := range dst {
			dst[i] += float32(w * float32(int32(a[i])+int32(b[i])))
		}
	}
}

// blurAcrossGeneric sums the floats of a line, each with those by 3, 6, … before and
// behind it, and rounds them to bytes.
func blurAcrossGeneric(dst []uint8, line, weights []float32) {
	side := 3 * (len(weights) - 1)
	const piece = 256
	var sums [piece]float32
	for len(dst) > 0 {
		n := min(piece, len(dst))
		total := sums[:n]
		for i, v := range line[side:][:n] {
			total[i] = float32(v * weights[0])
		}
		for k, w := range weights[1:] {
			a, b := line[side-3*k-3:][:n], line[side+3*k+3:][:n]
			for i := range total {
				total[i] += float32(w * float32(a[i]+b[i]))
			}
		}
		for i, v := range total {
			// Adding and taking away 2^23 rounds half to even.
			v = min(max(v, 0), 255) + 0x1p23
			dst[i] = uint8(int32(v - 0x1p23))
		}
		dst, line = dst[n:], line[n:]
	}
}

// sharpenGeneric blends a row, all but its ends, with what it is smoothed to
// (ImageFilter.SMOOTH: 1 1 1, 1 5 1, 1 1 1 over 13). Rounding thirteenths never meets a
// tie, nor comes near enough to one for Pillow's float32 to differ.
func sharpenGeneric(dst, above, row, below []uint8, alpha float32) {
	n := len(row)
	above, below, dst = above[:n], below[:n], dst[:n]
	for c := range 3 {
		column := func(x int) uint32 { return uint32(above[x]) + uint32(row[x]) + uint32(below[x]) }
		left, middle := column(c), column(c+3)
		for x := c + 3; x < n-3; x += 3 {
			right := column(x + 3)
			v := row[x]
			dst[x] = blend(uint8((2*(left+middle+right+4*uint32(v))+13)/26), v, alpha)
			left, middle = middle, right
		}
	}
}

// flipGeneric mirrors RGB.
func flipGeneric(pix []uint8) {
	for len(pix) > 3 {
		n := len(pix)
		p, q := pix[:3:3], pix[n-3:n:n]
		p[0], p[1], p[2], q[0], q[1], q[2] = q[0], q[1], q[2], p[0], p[1], p[2]
		pix = pix[3 : n-3]
	}
}
