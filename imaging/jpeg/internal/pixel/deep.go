package pixel

import (
	"shardify/imaging/jpeg/internal/blocks"
)

// Images of 12 bits a sample, as libjpeg-turbo 3 decodes them (jpeg12_read_scanlines: its
// sources compiled for 12 bits, which have no SIMD), up to RGB. Of each sample the upper
// 8 bits are then handed on. They are rare, and there is no assembly for them.

const (
	deepMax    = 1<<12 - 1
	deepCenter = 1 << 11
)

// deep is what an image of 12 bits needs besides.
type deep struct {
	band [blocks.MaxComponents][]uint16 // as component.band
	line [blocks.MaxComponents][]uint16 // one row, upsampled
}

// deepRow does one MCU row, of which the rows before limit are complete.
func (d *Decoder) deepRow(s *blocks.Strip, mcu, limit int) {
	for c := range d.n {
		k, p, in, band := &d.frame.Component[c], &d.part[c], &s.Plane[c], d.deep.band[c]
		samples := k.V * p.size
		start := mcu * samples
		copy(band[:p.stride], band[samples*p.stride:])
		p.first = start
		for v := range k.V {
			y := start + v*p.size // of the block row, in samples
			if y+p.size <= p.y0 || y >= p.y1 {
				continue
			}
			at := ((mcu-s.Y0)*k.V+v)*in.Stride + p.x0/p.size - s.X0*k.H
			for i := range (p.x1 - p.x0) / p.size {
				idct12(band[(1+v*p.size)*p.stride+marginLeft+i*p.size:], p.stride, in.Coef[64*(at+i):][:64], &k.Quant, p.size)
			}
		}
		if p.method == fancyH2V1 || p.method == fancyH2V2 {
			edges(p, band, 1, samples)
		}
	}
	n := max(0, limit-d.next)
	if n == 0 {
		return
	}
	room := d.resizer.Room(n)
	if d.n == 4 {
		d.key = grow(d.key, n*room.Pitch)
	}
	width := d.to - d.from
	for i := range n {
		for c := range d.n {
			d.deepUpsample(d.deep.line[c][:width], c, d.next+i)
		}
		l := &d.deep.line
		if m := d.frame.Model; m == blocks.YCbCr && d.color == RGB || m == blocks.YCCK {
			rgb12(l[0][:width], l[1], l[2])
		}
		pix := room.Pix[i*room.Stride:][:room.Stride]
		for c := range d.n {
			var to []uint8
			if c == 3 {
				to = d.key[i*room.Pitch:]
			} else {
				to = pix[c*room.Pitch:]
			}
			for x, v := range l[c][:width] {
				to[x] = uint8(v >> 4)
			}
		}
		d.colors(pix, room.Pitch, i)
	}
	d.resizer.Push(0, n)
	d.next = limit
}

// deepUpsample makes row y of component c.
func (d *Decoder) deepUpsample(dst []uint16, c, y int) {
	p, band := &d.part[c], d.deep.band[c]
	row := func(i int) []uint16 { return band[(1+i-p.first)*p.stride:][:p.stride] }
	near := row(y / p.v)
	far := near
	if p.method == fancyH1V2 || p.method == fancyH2V2 {
		far = row(min(max(y/p.v-1+2*(y&1), 0), p.height-1))
	}
	at := marginLeft + d.from/p.h - p.x0
	switch p.method {
	case fancyH2V1:
		h2Generic(dst, near[at-1:], near[at-1:], (len(dst)+1)/2, 4, 8)
	case fancyH2V2:
		h2Generic(dst, near[at-1:], far[at-1:], (len(dst)+1)/2, 8, 7)
	case fancyH1V2:
		v2Generic(dst, near[at:], far[at:], len(dst), 1+uint32(y&1))
	default:
		replicate(dst, near[at:], p.h, d.from%p.h)
	}
}

// rgb12 turns samples from YCbCr into RGB in place.
func rgb12(y, cb, cr []uint16) {
	clip := func(v int32) uint16 { return uint16(min(max(v, 0), deepMax)) }
	for x, l := range y {
		l, b, r := int32(l), int32(cb[x])-deepCenter, int32(cr[x])-deepCenter
		y[x] = clip(l + (91881*r+32768)>>16)
		cb[x] = clip(l + (-22554*b-46802*r+32768)>>16)
		cr[x] = clip(l + (116130*b+32768)>>16)
	}
}

// idct12 makes the size x size samples of a block: jidctint.c and jidctred.c for 12 bits.
// Sums have 64 bits, what lies between the two passes 32, and the index into libjpeg's
// table of samples wraps.
func idct12(dst []uint16, stride int, block []int16, quant *[64]uint16, size int) {
	var in [64]int32
	for i, p := range blocks.Place {
		in[i] = int32(block[p]) * int32(int16(quant[p]))
	}
	// One bit is kept between the passes, and each pass of half the size has one bit more,
	// of a quarter two.
	const bits, kept = 13, 1
	switch size {
	case 1:
		dst[0] = sample12(int64(in[0]), 3)
	case 2:
		for c := range 8 {
			out := deep2(&in, c, 8)
			in[c], in[8+c] = descale(out[0], bits-kept+2), descale(out[1], bits-kept+2)
		}
		for r := range 2 {
			for c, v := range deep2(&in, 8*r, 1) {
				dst[r*stride+c] = sample12(v, bits+kept+3+2)
			}
		}
	case 4:
		for c := range 8 {
			for r, v := range deep4(&in, c, 8) {
				in[8*r+c] = descale(v, bits-kept+1)
			}
		}
		for r := range 4 {
			for c, v := range deep4(&in, 8*r, 1) {
				dst[r*stride+c] = sample12(v, bits+kept+3+1)
			}
		}
	default:
		for c := range 8 {
			for r, v := range deep8(&in, c, 8) {
				in[8*r+c] = descale(v, bits-kept)
			}
		}
		for r := range 8 {
			for c, v := range deep8(&in, 8*r, 1) {
				dst[r*stride+c] = sample12(v, bits+kept+3)
			}
		}
	}
}

func descale(v int64, n uint) int32 { return int32((v + 1<<(n-1)) >> n) }

func sample12(v int64, n uint) uint16 {
	const mask = 4*deepMax + 3
	switch i := int(descale(v, n)) & mask; {
	case i < deepCenter:
		return uint16(i + deepCenter)
	case i < 2*(deepMax+1):
		return deepMax
	case i < mask+1-deepCenter:
		return 0
	default:
		return uint16(i - (mask + 1 - deepCenter))
	}
}

// deep8 is one pass over the row or column of in that begins at from, its values step
// apart.
func deep8(in *[64]int32, from, step int) [8]int64 {
	a := func(i int) int64 { return int64(in[from+i*step]) }
	z1 := (a(2) + a(6)) * f0541
	t2, t3 := z1-a(6)*f1847, z1+a(2)*f0765
	t0, t1 := (a(0)+a(4))<<13, (a(0)-a(4))<<13
	t10, t13, t11, t12 := t0+t3, t0-t3, t1+t2, t1-t2

	z5 := (a(7) + a(3) + a(5) + a(1)) * f1175
	s1, s2 := (a(7)+a(1))*-f0899, (a(5)+a(3))*-f2562
	s3, s4 := (a(7)+a(3))*-f1961+z5, (a(5)+a(1))*-f0390+z5
	o0, o1 := a(7)*f0298+s1+s3, a(5)*f2053+s2+s4
	o2, o3 := a(3)*f3072+s2+s3, a(1)*f1501+s1+s4
	return [8]int64{t10 + o3, t11 + o2, t12 + o1, t13 + o0, t13 - o0, t12 - o1, t11 - o2, t10 - o3}
}

// deep4 does the same for four values.
func deep4(in *[64]int32, from, step int) [4]int64 {
	a := func(i int) int64 { return int64(in[from+i*step]) }
	t0, t2 := a(0)<<14, a(2)*f1847-a(6)*f0765
	t10, t12 := t0+t2, t0-t2
	o0 := a(1)*f1061 - a(3)*f2172 + a(5)*f1451 - a(7)*f0211
	o2 := a(1)*f2562 + a(3)*f0899 - a(5)*f0601 - a(7)*f0509
	return [4]int64{t10 + o2, t12 + o0, t12 - o0, t10 - o2}
}

// deep2 does the same for two.
func deep2(in *[64]int32, from, step int) [2]int64 {
	a := func(i int) int64 { return int64(in[from+i*step]) }
	t := a(0) << 15
	o := a(1)*f3624 - a(3)*f1272 + a(5)*f0850 - a(7)*f0720
	return [2]int64{t + o, t - o}
}
