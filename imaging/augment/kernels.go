package augment

import (
	"encoding/binary"

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
	for ; len(pix) >= 3; pix = pix[3:] {
		for c, v := range (*[3]uint8)(pix) {
			low[c], high[c] = min(low[c], v), max(high[c], v)
		}
	}
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
