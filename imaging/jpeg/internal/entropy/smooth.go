package entropy

import "shardify/imaging/jpeg/internal/blocks"

// smoothed is how many coefficients smoothing estimates, DC among them; in zigzag
// order.
const smoothed = 10

// estimate is by which neighbours' DC a coefficient is estimated: the weights of a
// window of 5 x 5 blocks, row by row. The first are those of libjpeg-turbo where
// nothing but DC is known of the component, the second where some of AC is.
var estimate = [smoothed][2][25]int32{
	0: {{-2, -6, -8, -6, -2, -6, 6, 42, 6, -6, -8, 42, 152, 42, -8, -6, 6, 42, 6, -6, -2, -6, -8, -6, -2}},
	1: {
		{-1, -1, 0, 1, 1, -3, 13, 0, -13, 3, -3, 38, 0, -38, 3, -3, 13, 0, -13, 3, -1, -1, 0, 1, 1},
		{10: -7, 11: 50, 13: -50, 14: 7},
	},
	2: {
		{-1, -3, -3, -3, -1, -1, 13, 38, 13, -1, 0, 0, 0, 0, 0, 1, -13, -38, -13, 1, 1, 3, 3, 3, 1},
		{2: -7, 7: 50, 17: -50, 22: 7},
	},
	3: {
		{0, 0, 1, 0, 0, 0, 2, 7, 2, 0, 0, -5, -14, -5, 0, 0, 2, 7, 2, 0, 0, 0, 1, 0, 0},
		{2: -1, 7: 13, 12: -24, 17: 13, 22: -1},
	},
	4: {
		{0: -1, 4: 1, 6: 9, 8: -9, 16: -9, 18: 9, 20: 1, 24: -1},
		{0, -1, 0, 1, 0, -1, 10, 0, -10, 1, 0, 0, 0, 0, 0, 1, -10, 0, 10, -1, 0, 1, 0, -1, 0},
	},
	5: {
		{0, 0, 0, 0, 0, 0, 2, -5, 2, 0, 1, 7, -14, 7, 1, 0, 2, -5, 2, 0, 0, 0, 0, 0, 0},
		{10: -1, 11: 13, 12: -24, 13: 13, 14: -1},
	},
	6: {{6: 1, 8: -1, 11: 2, 13: -2, 16: 1, 18: -1}},
	7: {{6: 1, 7: -3, 8: 1, 16: -1, 17: 3, 18: -1}},
	8: {{6: 1, 8: -1, 11: -3, 13: 3, 16: 1, 18: -1}},
	9: {{6: 1, 7: 2, 8: 1, 16: -1, 17: -2, 18: -1}},
}

// smooth estimates low coefficients that a progressive file did not code to the
// last bit from the DC of the blocks around, as libjpeg-turbo does by default
// (jdcoefct.c, after T.81, K.8): it is what makes the beginning of a file that was
// cut look better. A file that is whole has nothing to estimate.
func (d *Decoder) smooth() {
	if !d.Unfinished() {
		return
	}
	for c := range d.Frame.N {
		d.smoothPlane(c)
	}
}

// Unfinished tells, behind Begin, whether a progressive file lacks some of what its low
// coefficients are made of, so that smoothing estimates them, unless d.Raw.
func (d *Decoder) Unfinished() bool {
	if d.Coding != Progressive {
		return false
	}
	useful := false
	for c := range d.Frame.N {
		for k := range smoothed {
			if !d.component[c].latched || d.Frame.Component[c].Quant[blocks.Order[k]] == 0 {
				return false
			}
			useful = useful || k > 0 && d.bits[c][k] != 0
		}
		if d.bits[c][0] < 0 {
			return false
		}
	}
	return useful
}

func (d *Decoder) smoothPlane(c int) {
	p, f := &d.strip.Plane[c], &d.Frame.Component[c]
	wide, high := d.component[c].wide, d.component[c].high
	// Libjpeg's rows of MCUs: where there is only one component, its factor counts here.
	v := d.component[c].v
	_, mcus := d.Frame.MCUs()
	if d.Frame.N == 1 {
		mcus = (high + v - 1) / v
	}
	d.dc = d.dc[:0]
	for at := range p.Stride * mcus * v {
		if 64*at < len(p.Coef) {
			d.dc = append(d.dc, p.Coef[64*at])
		} else {
			d.dc = append(d.dc, 0)
		}
	}
	var row, window [5][5]int32
	for y := range mcus {
		bits := &d.bits[c]
		if y > d.good {
			bits = &d.bitsBefore[c]
			if d.scans == 1 {
				bits = &unknown
			}
		}
		dcOnly := true
		for _, b := range bits[1:smoothed] {
			dcOnly = dcOnly && b == -1
		}
		rows := v
		if y == mcus-1 && high%v != 0 {
			rows = high % v
		}
		for r := range rows {
			// Libjpeg-turbo counts the rows so, and by that finds which have
			// neighbours; where rows is less than v they are not the image's.
			i, of := y*rows+r, rows*mcus
			at := y*v + r
			near := [5]int{2: at}
			near[1], near[3] = at, at
			if i > 0 {
				near[1] = at - 1
			}
			near[0] = near[1]
			if i > 1 {
				near[0] = at - 2
			}
			if i < of-1 {
				near[3] = at + 1
			}
			near[4] = near[3]
			if i < of-2 {
				near[4] = at + 2
			}
			for x := range wide {
				for i, n := range near {
					for h := range 5 {
						column := min(max(x+h-2, 0), wide-1)
						row[i][h] = int32(d.dc[n*p.Stride+column])
					}
				}
				window = row
				b := at*p.Stride + x
				d.smoothBlock((*[64]int16)(p.Coef[64*b:]), &window, &f.Quant, bits, dcOnly)
			}
		}
	}
}

var unknown = func() (bits [64]int8) {
	for k := range bits {
		bits[k] = -1
	}
	return bits
}()

func (d *Decoder) smoothBlock(blk *[64]int16, dc *[5][5]int32, quant *[64]uint16, bits *[64]int8, dcOnly bool) {
	from, to, which := 1, 6, 1
	if dcOnly {
		from, to, which = 0, smoothed, 0
	}
	for k := from; k < to; k++ {
		place := blocks.Order[k] & 63
		if k > 0 && (bits[k] == 0 || blk[place] != 0) {
			continue
		}
		sum := int32(0)
		for i, w := range estimate[k][which] {
			sum += w * dc[i/5][i%5]
		}
		num, q := int64(quant[0])*int64(sum), int64(quant[place])
		v := (q<<7 + max(num, -num)) / (q << 8)
		if al := bits[k]; k > 0 && al > 0 && v >= 1<<al {
			v = 1<<al - 1
		}
		if num < 0 {
			v = -v
		}
		blk[place] = int16(v)
	}
}
