package resize

import "encoding/binary"

// The generic versions of the kernels. Those in assembly (tools/asm) give the same
// bytes; kernels_amd64.go chooses among them, kernels_other.go has these only.

// The sums start at one half, and are cut to 8 bits after the point is shifted
// away.
const half = 1 << (precision - 1)

func clip(sum int32) uint8 { return uint8(min(max(sum>>precision, 0), 255)) }

// horizontalGeneric makes rows of samples of rows of samples, four rows at a time,
// which share the work for the weights.
func horizontalGeneric(dst []uint8, dstStride int, src []uint8, stride, rows int, a *axis) {
	first, count := a.first, a.count[:len(a.first)]
	y := 0
	for ; y+4 <= rows; y += 4 {
		n := len(first)
		out0, out1, out2, out3 := dst[y*dstStride:][:n], dst[(y+1)*dstStride:][:n], dst[(y+2)*dstStride:][:n], dst[(y+3)*dstStride:][:n]
		in0, in1, in2, in3 := src[y*stride:], src[(y+1)*stride:], src[(y+2)*stride:], src[(y+3)*stride:]
		for x := range first {
			weights := a.weights[x*a.stride:][:count[x]]
			at, n := int(first[x]), len(weights)
			p0, p1, p2, p3 := in0[at:][:n], in1[at:][:n], in2[at:][:n], in3[at:][:n]
			s0, s1, s2, s3 := int32(half), int32(half), int32(half), int32(half)
			i := 0
			for ; i+4 <= n; i += 4 {
				w := (*[4]int32)(weights[i:])
				v0, v1, v2, v3 := (*[4]uint8)(p0[i:]), (*[4]uint8)(p1[i:]), (*[4]uint8)(p2[i:]), (*[4]uint8)(p3[i:])
				s0 += w[0]*int32(v0[0]) + w[1]*int32(v0[1]) + w[2]*int32(v0[2]) + w[3]*int32(v0[3])
				s1 += w[0]*int32(v1[0]) + w[1]*int32(v1[1]) + w[2]*int32(v1[2]) + w[3]*int32(v1[3])
				s2 += w[0]*int32(v2[0]) + w[1]*int32(v2[1]) + w[2]*int32(v2[2]) + w[3]*int32(v2[3])
				s3 += w[0]*int32(v3[0]) + w[1]*int32(v3[1]) + w[2]*int32(v3[2]) + w[3]*int32(v3[3])
			}
			for ; i < n; i++ {
				w := weights[i]
				s0 += w * int32(p0[i])
				s1 += w * int32(p1[i])
				s2 += w * int32(p2[i])
				s3 += w * int32(p3[i])
			}
			out0[x], out1[x], out2[x], out3[x] = clip(s0), clip(s1), clip(s2), clip(s3)
		}
	}
	for ; y < rows; y++ {
		out, in := dst[y*dstStride:][:len(first)], src[y*stride:]
		for x := range first {
			weights := a.weights[x*a.stride:][:count[x]]
			p := in[first[x]:][:len(weights)]
			sum := int32(half)
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
