package resize

import "encoding/binary"

// The sums start at one half, and are cut to 8 bits after the point is shifted
// away.
const half = 1 << (precision - 1)

func clip(sum int32) uint8 { return uint8(min(max(sum>>precision, 0), 255)) }

// horizontal makes rows of RGB pixels of rows of RGB pixels.
func horizontal(dst []uint8, dstStride int, src []uint8, srcStride, rows int, a *axis) {
	first, count := a.first, a.count[:len(a.first)]
	for y := range rows {
		out := dst[y*dstStride:][:3*len(first)]
		in := src[y*srcStride:]
		for x := range first {
			weights := a.weights[x*a.stride:][:count[x]]
			at := 3 * int(first[x])
			r, g, b := int32(half), int32(half), int32(half)
			for ; len(weights) >= 4; weights = weights[4:] {
				w, p := (*[4]int32)(weights), (*[12]uint8)(in[at:])
				r += w[0]*int32(p[0]) + w[1]*int32(p[3]) + w[2]*int32(p[6]) + w[3]*int32(p[9])
				g += w[0]*int32(p[1]) + w[1]*int32(p[4]) + w[2]*int32(p[7]) + w[3]*int32(p[10])
				b += w[0]*int32(p[2]) + w[1]*int32(p[5]) + w[2]*int32(p[8]) + w[3]*int32(p[11])
				at += 12
			}
			for _, w := range weights {
				p := (*[3]uint8)(in[at:])
				r += w * int32(p[0])
				g += w * int32(p[1])
				b += w * int32(p[2])
				at += 3
			}
			q := (*[3]uint8)(out[3*x:])
			q[0], q[1], q[2] = clip(r), clip(g), clip(b)
		}
	}
}

// The vertical pass does 8 bytes at a time. A 64-bit word with bytes in the
// lowest 8 bits of its halves, times a weight, is two products in one; sums of
// them stay apart as long as the lower sum is not negative, which the bias
// ensures: sums lie between -255·2^22 and 2·255·2^22.
const (
	lanes = 0x000000ff_000000ff
	bias  = 1 << 30
	start = (bias+half)<<32 | (bias + half)
)

// vertical makes rows of n bytes of rows of n bytes.
func vertical(dst []uint8, dstStride int, src []uint8, srcStride, n int, a *axis) {
	for y, first := range a.first {
		out := dst[y*dstStride:][:n]
		weights := a.weights[y*a.stride:][:a.count[y]]
		in := src[int(first)*srcStride:]
		x := 0
		for ; x+8 <= n; x += 8 {
			s0, s1, s2, s3 := uint64(start), uint64(start), uint64(start), uint64(start)
			at := x
			for _, w := range weights {
				v, k := binary.LittleEndian.Uint64(in[at:]), uint64(int64(w))
				s0 += k * (v & lanes)
				s1 += k * (v >> 8 & lanes)
				s2 += k * (v >> 16 & lanes)
				s3 += k * (v >> 24 & lanes)
				at += srcStride
			}
			p := out[x : x+8]
			p[0], p[4] = split(s0)
			p[1], p[5] = split(s1)
			p[2], p[6] = split(s2)
			p[3], p[7] = split(s3)
		}
		for ; x < n; x++ {
			sum, at := int32(half), x
			for _, w := range weights {
				sum += w * int32(in[at])
				at += srcStride
			}
			out[x] = clip(sum)
		}
	}
}

func split(sum uint64) (low, high uint8) {
	return clip(int32(int64(uint32(sum)) - bias)), clip(int32(int64(sum>>32) - bias))
}
