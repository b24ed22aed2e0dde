package pixel

import "shardify/imaging/jpeg/internal/blocks"

// The inverse DCTs of libjpeg-turbo: "islow" at full size (jidctint.c) and the
// reduced ones (jidctred.c), after Loeffler, Ligtenberg and Moschytz. For
// coefficients out of all range, as damaged files have them, the arithmetic is that
// of its SIMD code for x86-64 (jidctint-avx2.asm, jidctred-sse2.asm), which is what
// runs: 16-bit products and sums wrap, results of the first pass saturate.

// Fixed-point constants with 13 bits after the point.
const (
	f0211 = 1730
	f0298 = 2446
	f0390 = 3196
	f0509 = 4176
	f0541 = 4433
	f0601 = 4926
	f0720 = 5906
	f0765 = 6270
	f0850 = 6967
	f0899 = 7373
	f1061 = 8697
	f1175 = 9633
	f1272 = 10426
	f1451 = 11893
	f1501 = 12299
	f1847 = 15137
	f1961 = 16069
	f2053 = 16819
	f2172 = 17799
	f2562 = 20995
	f3072 = 25172
	f3624 = 29692
)

func saturate(v int32) int16 { return int16(min(max(v, -32768), 32767)) }

// sample is the end of the second pass.
func sample(v int32) uint8 { return uint8(min(max(v, -128), 127) + 128) }

// dequantize multiplies a block, in natural order. flat says that all rows but the
// first are zero.
func dequantize(in *[64]int16, block []int16, quant *[64]uint16) (flat bool) {
	var any int16
	for i, p := range blocks.Place {
		v := block[p]
		in[i] = v * int16(quant[p])
		if i >= 8 {
			any |= v
		}
	}
	return any == 0
}

// idct8 makes the 8 x 8 samples of a block.
func idct8(dst []uint8, stride int, block []int16, quant *[64]uint16) {
	var in [64]int16
	if dequantize(&in, block, quant) {
		// libjpeg-turbo's short cut, which wraps where the long way saturates.
		for c := range 8 {
			v := in[c] << 2
			for r := range 8 {
				in[8*r+c] = v
			}
		}
	} else {
		for c := range 8 {
			out := butterfly8(in[c], in[8+c], in[16+c], in[24+c], in[32+c], in[40+c], in[48+c], in[56+c])
			for r, v := range out {
				in[8*r+c] = saturate((v + 1<<10) >> 11)
			}
		}
	}
	for r := range 8 {
		v := (*[8]int16)(in[8*r:])
		out := butterfly8(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7])
		row := dst[r*stride:][:8]
		for c, v := range out {
			row[c] = sample((v + 1<<17) >> 18)
		}
	}
}

// butterfly8 is one pass over one row or column.
func butterfly8(a0, a1, a2, a3, a4, a5, a6, a7 int16) [8]int32 {
	t0, t1 := int32(a0+a4)<<13, int32(a0-a4)<<13
	t3 := int32(a2)*(f0541+f0765) + int32(a6)*f0541
	t2 := int32(a2)*f0541 + int32(a6)*(f0541-f1847)
	t10, t13, t11, t12 := t0+t3, t0-t3, t1+t2, t1-t2

	s3, s4 := int32(a7+a3), int32(a5+a1)
	z3 := s3*(f1175-f1961) + s4*f1175
	z4 := s3*f1175 + s4*(f1175-f0390)
	o0 := int32(a7)*(f0298-f0899) - int32(a1)*f0899 + z3
	o1 := int32(a5)*(f2053-f2562) - int32(a3)*f2562 + z4
	o2 := int32(a3)*(f3072-f2562) - int32(a5)*f2562 + z3
	o3 := int32(a1)*(f1501-f0899) - int32(a7)*f0899 + z4
	return [8]int32{t10 + o3, t11 + o2, t12 + o1, t13 + o0, t13 - o0, t12 - o1, t11 - o2, t10 - o3}
}

// idct4 makes 4 x 4 samples of a block: half the size.
func idct4(dst []uint8, stride int, block []int16, quant *[64]uint16) {
	var in [64]int16
	dequantize(&in, block, quant)
	// The row in the middle plays no part, not even here.
	flat := true
	for i := 8; i < 64; i++ {
		flat = flat && (i/8 == 4 || block[blocks.Place[i]] == 0)
	}
	for c := range 8 {
		if flat {
			v := in[c] << 2
			in[8+c], in[16+c], in[24+c] = v, v, v
			in[c] = v
			continue
		}
		out := butterfly4(in[c], in[8+c], in[16+c], in[24+c], in[40+c], in[48+c], in[56+c])
		for r, v := range out {
			in[8*r+c] = saturate((v + 1<<11) >> 12)
		}
	}
	for r := range 4 {
		v := (*[8]int16)(in[8*r:])
		row := dst[r*stride:][:4]
		for c, v := range butterfly4(v[0], v[1], v[2], v[3], v[5], v[6], v[7]) {
			row[c] = sample((v + 1<<18) >> 19)
		}
	}
}

func butterfly4(a0, a1, a2, a3, a5, a6, a7 int16) [4]int32 {
	o0 := int32(a1)*f1061 - int32(a3)*f2172 + int32(a5)*f1451 - int32(a7)*f0211
	o2 := int32(a1)*f2562 + int32(a3)*f0899 - int32(a5)*f0601 - int32(a7)*f0509
	t0 := int32(a0) << 14
	t2 := int32(a2)*f1847 - int32(a6)*f0765
	t10, t12 := t0+t2, t0-t2
	return [4]int32{t10 + o2, t12 + o0, t12 - o0, t10 - o2}
}

// idct2 makes 2 x 2 samples of a block: a quarter of the size.
func idct2(dst []uint8, stride int, block []int16, quant *[64]uint16) {
	var in [64]int16
	dequantize(&in, block, quant)
	odd := func(a1, a3, a5, a7 int16) int32 {
		return int32(a1)*f3624 - int32(a3)*f1272 + int32(a5)*f0850 - int32(a7)*f0720
	}
	var first [2]int32 // column 0, which is not cut to 16 bits
	for _, c := range [5]int{0, 1, 3, 5, 7} {
		o := odd(in[8+c], in[24+c], in[40+c], in[56+c])
		t := int32(in[c]) << 15
		upper, lower := (t+o+1<<12)>>13, (t-o+1<<12)>>13
		if c == 0 {
			first = [2]int32{upper, lower}
			continue
		}
		in[c], in[8+c] = saturate(upper), saturate(lower)
	}
	for r := range 2 {
		v := in[8*r:]
		o := odd(v[1], v[3], v[5], v[7])
		t := first[r] << 15
		row := dst[r*stride:][:2]
		row[0], row[1] = sample((t+o+1<<19)>>20), sample((t-o+1<<19)>>20)
	}
}

// idct1 makes the one sample that stands for a block: an eighth of the size. There
// is no SIMD code for it; out of range, the index into libjpeg's table of samples
// wraps.
func idct1(block []int16, quant *[64]uint16) uint8 {
	dc := (int32(block[0])*int32(int16(quant[0])) + 4) >> 3 & 1023
	switch {
	case dc < 128:
		return uint8(dc + 128)
	case dc < 512:
		return 255
	case dc < 1024-128:
		return 0
	}
	return uint8(dc - (1024 - 128))
}

// rowGeneric does n blocks side by side at a size of 8, 4, 2 or 1.
func rowGeneric(dst []uint8, stride int, coef []int16, quant *[64]uint16, n, size int) {
	for i := range n {
		block, out := coef[64*i:64*i+64], dst[i*size:]
		switch size {
		case 8:
			idct8(out, stride, block, quant)
		case 4:
			idct4(out, stride, block, quant)
		case 2:
			idct2(out, stride, block, quant)
		default:
			out[0] = idct1(block, quant)
		}
	}
}
