package encode

import (
	"math/bits"

	"shardify/imaging/jpeg/internal/blocks"
)

// steps are the quantisation tables of T.81, Annex K.1, in natural order: luma and
// chroma, at quality 50.
var steps = [2][64]uint8{
	{
		16, 11, 10, 16, 24, 40, 51, 61,
		12, 12, 14, 19, 26, 58, 60, 55,
		14, 13, 16, 24, 40, 57, 69, 56,
		14, 17, 22, 29, 51, 87, 80, 62,
		18, 22, 37, 56, 68, 109, 103, 77,
		24, 35, 55, 64, 81, 104, 113, 92,
		49, 64, 78, 87, 103, 121, 120, 101,
		72, 92, 95, 98, 112, 100, 103, 99,
	},
	{
		17, 18, 24, 47, 99, 99, 99, 99,
		18, 21, 26, 66, 99, 99, 99, 99,
		24, 26, 56, 99, 99, 99, 99, 99,
		47, 66, 99, 99, 99, 99, 99, 99,
		99, 99, 99, 99, 99, 99, 99, 99,
		99, 99, 99, 99, 99, 99, 99, 99,
		99, 99, 99, 99, 99, 99, 99, 99,
		99, 99, 99, 99, 99, 99, 99, 99,
	},
}

// scaleSteps makes the table for a quality as libjpeg does (jpeg_set_quality), in
// zigzag order, with steps of at most 255: those of a baseline file.
func scaleSteps(dst *[64]uint16, table, quality int) {
	scale := 200 - 2*quality
	if quality < 50 {
		scale = 5000 / quality
	}
	for i, n := range blocks.Zigzag {
		dst[i] = uint16(min(max((int(steps[table][n])*scale+50)/100, 1), 255))
	}
}

// divisors divides by quantisation steps with multiplications: v, not negative, over
// 8 times a step, rounded to the nearest, is (v+round)*recip>>(16+shift), exactly
// (jcdctmgr.c; the DCT's results are 8 times too large). scale is 1<<(16-shift), which
// shifts by a second multiplication. In natural order.
type divisors struct {
	recip, round, scale [64]uint16
	shift               [64]uint8
}

func (d *divisors) set(steps *[64]uint16) {
	for i, n := range blocks.Zigzag {
		q := uint32(steps[i]) * 8
		b := bits.Len32(q) - 1
		r := 16 + b
		recip, rest := uint32(1)<<r/q, uint32(1)<<r%q
		round := q / 2
		switch {
		case rest == 0: // a power of two: its reciprocal has a bit too many
			recip /= 2
			r--
		case rest <= q/2:
			round++
		default:
			recip++
		}
		d.recip[n], d.round[n] = uint16(recip), uint16(round)
		d.shift[n], d.scale[n] = uint8(r-16), uint16(1)<<(32-r)
	}
}

// Constants of the DCT, 13 bits after the point.
const (
	f0298 = 2446
	f0390 = 3196
	f0541 = 4433
	f0765 = 6270
	f0899 = 7373
	f1175 = 9633
	f1501 = 12299
	f1847 = 15137
	f1961 = 16069
	f2053 = 16819
	f2562 = 20995
	f3072 = 25172
)

// forwardGeneric transforms and quantises len(coef)/64 blocks side by side: the
// forward DCT of Loeffler, Ligtenberg and Moschytz as in libjpeg (jfdctint.c), rows
// first.
func forwardGeneric(coef []int16, samples []uint8, pitch int, d *divisors) {
	var w [64]int32
	for at := 0; at < len(coef); at += 64 {
		for r := range 8 {
			row := (*[8]int32)(w[8*r:])
			for i, s := range (*[8]uint8)(samples[r*pitch+at/8:]) {
				row[i] = int32(s) - 128
			}
			pass(&w, 8*r, 1, 11)
		}
		for c := range 8 {
			pass(&w, c, 8, 15)
		}
		to := (*[64]int16)(coef[at:])
		for i, v := range &w {
			sign := v >> 31
			v = (v ^ sign) - sign
			v = int32((uint32(v) + uint32(d.round[i])) * uint32(d.recip[i]) >> 16 >> (d.shift[i] & 31))
			to[i] = int16((v ^ sign) - sign)
		}
	}
}

// pass puts 8 coefficients in place of 8 samples of w, from at on, step apart. Shift is how
// many bits are cut off behind the constants': 13, less 2 that the first pass leaves for
// the second, which takes them.
func pass(w *[64]int32, at, step int, shift uint) {
	shift &= 31
	p0, p1, p2, p3 := &w[at&63], &w[(at+step)&63], &w[(at+2*step)&63], &w[(at+3*step)&63]
	p4, p5, p6, p7 := &w[(at+4*step)&63], &w[(at+5*step)&63], &w[(at+6*step)&63], &w[(at+7*step)&63]
	t0, t7 := *p0+*p7, *p0-*p7
	t1, t6 := *p1+*p6, *p1-*p6
	t2, t5 := *p2+*p5, *p2-*p5
	t3, t4 := *p3+*p4, *p3-*p4
	t10, t13 := t0+t3, t0-t3
	t11, t12 := t1+t2, t1-t2
	round := int32(1) << (shift - 1)
	*p0 = ((t10+t11)<<13 + round) >> shift
	*p4 = ((t10-t11)<<13 + round) >> shift
	z1 := (t12+t13)*f0541 + round
	*p2 = (z1 + t13*f0765) >> shift
	*p6 = (z1 - t12*f1847) >> shift
	z1, z2, z3, z4 := -f0899*(t4+t7), -f2562*(t5+t6), t4+t6, t5+t7
	z5 := (z3+z4)*f1175 + round
	z3, z4 = z5-f1961*z3, z5-f0390*z4
	*p7 = (f0298*t4 + z1 + z3) >> shift
	*p5 = (f2053*t5 + z2 + z4) >> shift
	*p3 = (f3072*t6 + z2 + z3) >> shift
	*p1 = (f1501*t7 + z1 + z4) >> shift
}
