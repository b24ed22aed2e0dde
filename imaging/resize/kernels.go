package resize

import "encoding/binary"

// The generic versions of the kernels. Those in assembly (tools/asm) give the same
// bytes; kernels_amd64.go chooses among them, kernels_other.go has these only.

// The sums start at one half, and are cut to 8 bits after the point is shifted
// away.
const half = 1 << (precision - 1)

func clip(sum int32) uint8 { return uint8(min(max(sum>>precision, 0), 255)) }

// horizontalGeneric makes rows of samples of rows of samples.
func horizontalGeneric(dst []uint8, dstStride int, src []uint8, stride, rows int, a *axis) {
	first, count := a.first, a.count[:len(a.first)]
	for y := range rows {
		out := dst[y*dstStride:][:len(first)]
		in := src[y*stride:]
		for x := range first {
			weights := a.weights[x*a.stride:][:count[x]]
			p := in[first[x]:]
			sum := int32(half)
			for ; len(weights) >= 4; weights = weights[4:] {
				w, v := (*[4]int32)(weights), (*[4]uint8)(p)
				sum += w[0]*int32(v[0]) + w[1]*int32(v[1]) + w[2]*int32(v[2]) + w[3]*int32(v[3])
				p = p[4:]
			}
			for i, w := range weights {
				sum += w * int32(p[i])
			}
			out[x] = clip(sum)
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

// verticalGeneric makes a row of bytes of as many rows as there are weights.
func verticalGeneric(dst, src []uint8, stride int, weights []int32) {
	n, x := len(dst), 0
	for ; x+8 <= n; x += 8 {
		s0, s1, s2, s3 := uint64(start), uint64(start), uint64(start), uint64(start)
		at := x
		for _, w := range weights {
			v, k := binary.LittleEndian.Uint64(src[at:]), uint64(int64(w))
			s0 += k * (v & lanes)
			s1 += k * (v >> 8 & lanes)
			s2 += k * (v >> 16 & lanes)
			s3 += k * (v >> 24 & lanes)
			at += stride
		}
		p := dst[x : x+8]
		p[0], p[4] = split(s0)
		p[1], p[5] = split(s1)
		p[2], p[6] = split(s2)
		p[3], p[7] = split(s3)
	}
	for ; x < n; x++ {
		sum, at := int32(half), x
		for _, w := range weights {
			sum += w * int32(src[at])
			at += stride
		}
		dst[x] = clip(sum)
	}
}

func split(sum uint64) (low, high uint8) {
	return clip(int32(int64(uint32(sum)) - bias)), clip(int32(int64(sum>>32) - bias))
}

// deinterleaveGeneric makes three rows of bytes, pitch apart, of RGB pixels.
func deinterleaveGeneric(dst []uint8, pitch int, src []uint8) {
	n := len(src) / 3
	r, g, b := dst[:n], dst[pitch:][:n], dst[2*pitch:][:n]
	for x := range r {
		p := src[3*x : 3*x+3]
		r[x], g[x], b[x] = p[0], p[1], p[2]
	}
}

// interleaveGeneric makes RGB pixels of three rows of bytes, pitch apart.
func interleaveGeneric(dst, src []uint8, pitch int) {
	n := len(dst) / 3
	r, g, b := src[:n], src[pitch:][:n], src[2*pitch:][:n]
	for x := range r {
		p := dst[3*x : 3*x+3]
		p[0], p[1], p[2] = r[x], g[x], b[x]
	}
}

// lookupGeneric looks bytes up in a table.
func lookupGeneric[T any](dst []T, src []uint8, table *[256]T) {
	dst = dst[:len(src)]
	for i, v := range src {
		dst[i] = table[v]
	}
}
