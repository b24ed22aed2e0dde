package augment

import (
	"math"

	"shardify/imaging"
)

// The operations that make a pixel of the pixel at its place. Sums and products
// stand in conversions where Pillow rounds between them, so that no compiler fuses
// them: pixels are the same on every machine.

type table [256]uint8

// look replaces every sample by its table's.
func look(m *imaging.Image, t *table) {
	for y := range m.Height {
		row := m.Pix[y*m.Stride:][:3*m.Width]
		for ; len(row) >= 8; row = row[8:] {
			p := row[:8:8]
			p[0], p[1], p[2], p[3] = t[p[0]], t[p[1]], t[p[2]], t[p[3]]
			p[4], p[5], p[6], p[7] = t[p[4]], t[p[5]], t[p[6]], t[p[7]]
		}
		for i, v := range row {
			row[i] = t[v]
		}
	}
}

// look3 does so with a table for every channel.
func look3(m *imaging.Image, t *[3]table) {
	for y := range m.Height {
		row := m.Pix[y*m.Stride:][:3*m.Width]
		for ; len(row) >= 3; row = row[3:] {
			p := row[:3:3]
			p[0], p[1], p[2] = t[0][p[0]], t[1][p[1]], t[2][p[2]]
		}
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

// luma is Pillow's conversion to mode L.
func luma(r, g, b uint8) uint8 {
	return uint8((uint32(r)*19595 + uint32(g)*38470 + uint32(b)*7471 + 0x8000) >> 16)
}

// fade blends every sample with one level.
func fade(m *imaging.Image, level uint8, factor float64) {
	alpha := float32(factor)
	if alpha == 1 {
		return
	}
	var t table
	for v := range t {
		t[v] = blend(level, uint8(v), alpha)
	}
	look(m, &t)
}

func brightness(m *imaging.Image, factor float64) { fade(m, 0, factor) }

func contrast(m *imaging.Image, factor float64) {
	var sum uint64
	for y := range m.Height {
		row := m.Pix[y*m.Stride:][:3*m.Width]
		var s uint32
		for ; len(row) >= 3; row = row[3:] {
			s += uint32(luma(row[0], row[1], row[2]))
			if s >= 1<<31 {
				sum, s = sum+uint64(s), 0
			}
		}
		sum += uint64(s)
	}
	mean := float64(sum) / float64(m.Width*m.Height)
	fade(m, uint8(mean+0.5), factor)
}

func saturation(m *imaging.Image, factor float64) {
	alpha := float32(factor)
	if alpha == 1 {
		return
	}
	if alpha == 0 {
		grayscale(m)
		return
	}
	// What is added to the grey level, by the difference from it.
	var add [512]float32
	for d := -255; d <= 255; d++ {
		add[d+255] = float32(alpha * float32(d))
	}
	if alpha > 0 && alpha <= 1 { // between the two: no clipping
		for y := range m.Height {
			row := m.Pix[y*m.Stride:][:3*m.Width]
			for ; len(row) >= 3; row = row[3:] {
				p := row[:3:3]
				l := luma(p[0], p[1], p[2])
				base, at := float32(l), 255-int(l)
				p[0] = uint8(int32(base + add[(at+int(p[0]))&511]))
				p[1] = uint8(int32(base + add[(at+int(p[1]))&511]))
				p[2] = uint8(int32(base + add[(at+int(p[2]))&511]))
			}
		}
		return
	}
	for y := range m.Height {
		row := m.Pix[y*m.Stride:][:3*m.Width]
		for ; len(row) >= 3; row = row[3:] {
			p := row[:3:3]
			l := luma(p[0], p[1], p[2])
			base, at := float32(l), 255-int(l)
			p[0] = clip(base + add[(at+int(p[0]))&511])
			p[1] = clip(base + add[(at+int(p[1]))&511])
			p[2] = clip(base + add[(at+int(p[2]))&511])
		}
	}
}

func grayscale(m *imaging.Image) {
	for y := range m.Height {
		row := m.Pix[y*m.Stride:][:3*m.Width]
		for ; len(row) >= 3; row = row[3:] {
			p := row[:3:3]
			l := luma(p[0], p[1], p[2])
			p[0], p[1], p[2] = l, l, l
		}
	}
}

// hue goes through Pillow's mode HSV, of 8 bits each, as torchvision does.
func hue(m *imaging.Image, factor float64) {
	shift := uint8(int32(factor * 255))
	for y := range m.Height {
		row := m.Pix[y*m.Stride:][:3*m.Width]
		for ; len(row) >= 3; row = row[3:] {
			p := row[:3:3]
			h, s, v := toHSV(p[0], p[1], p[2])
			p[0], p[1], p[2] = fromHSV(h+shift, s, v)
		}
	}
}

// toHSV is Pillow's conversion, which follows Python's colorsys.
func toHSV(r, g, b uint8) (h, s, v uint8) {
	most, least := max(r, g, b), min(r, g, b)
	if most == least {
		return 0, 0, most
	}
	span := float32(most - least)
	rc, gc, bc := float32(most-r)/span, float32(most-g)/span, float32(most-b)/span
	var turn float32
	switch most {
	case r:
		turn = bc - gc
	case g:
		turn = float32(2 + float64(rc) - float64(bc))
	default:
		turn = float32(4 + float64(gc) - float64(rc))
	}
	part := float64(turn)/6 + 1
	turn = float32(part - math.Trunc(part))
	return uint8(int(float64(turn) * 255)), uint8(int(float64(span/float32(most)) * 255)), most
}

func fromHSV(h, s, v uint8) (r, g, b uint8) {
	if s == 0 {
		return v, v, v
	}
	sextant := &sextants[h]
	// The smallest sample never lies near a tie, the middle one may.
	p := uint8((2*uint32(v)*(255-uint32(s)) + 255) / 510)
	fs := float32(float64(s) / 255)
	part := float64(fs * sextant.f)
	if sextant.i&1 == 0 {
		part = float64(float64(fs) * (1 - float64(sextant.f)))
	}
	q := uint8(int32(float64(float64(v)*(1-part)) + 0.5))
	switch sextant.i {
	case 0:
		return v, q, p
	case 1:
		return q, v, p
	case 2:
		return p, v, q
	case 3:
		return p, q, v
	case 4:
		return q, p, v
	default:
		return v, p, q
	}
}

// sextants has the part of the circle that a hue lies in, and how far in.
var sextants = func() (t [256]struct {
	i int
	f float32
}) {
	for h := range t {
		turn := float64(h) * 6 / 255
		t[h].i = int(turn) % 6
		t[h].f = float32(turn - math.Trunc(turn))
	}
	return t
}()

func invert(m *imaging.Image) {
	for y := range m.Height {
		row := m.Pix[y*m.Stride:][:3*m.Width]
		for i, v := range row {
			row[i] = ^v
		}
	}
}

func posterize(m *imaging.Image, bits int) {
	keep := uint8(0xff << (8 - bits))
	for y := range m.Height {
		row := m.Pix[y*m.Stride:][:3*m.Width]
		for i, v := range row {
			row[i] = v & keep
		}
	}
}

func solarize(m *imaging.Image, threshold float64) {
	var t table
	for v := range t {
		t[v] = uint8(v)
		if float64(v) >= threshold {
			t[v] = uint8(255 - v)
		}
	}
	look(m, &t)
}

func histogram(m *imaging.Image) (h [3][256]int) {
	for y := range m.Height {
		row := m.Pix[y*m.Stride:][:3*m.Width]
		for ; len(row) >= 3; row = row[3:] {
			h[0][row[0]]++
			h[1][row[1]]++
			h[2][row[2]]++
		}
	}
	return h
}

func autoContrast(m *imaging.Image) {
	h := histogram(m)
	var t [3]table
	for c := range h {
		low, high := 0, 255
		for h[c][low] == 0 {
			low++
		}
		for h[c][high] == 0 {
			high--
		}
		scale := 1.0
		if high > low {
			scale = 255 / float64(high-low)
		} else {
			low = 0
		}
		offset := float64(-float64(low) * scale)
		for v := range t[c] {
			t[c][v] = uint8(min(max(int(float64(float64(v)*scale)+offset), 0), 255))
		}
	}
	look3(m, &t)
}

func equalize(m *imaging.Image) {
	h := histogram(m)
	var t [3]table
	for c := range h {
		last := 255
		for h[c][last] == 0 {
			last--
		}
		step := (m.Width*m.Height - h[c][last]) / 255
		n := step / 2
		for v := range t[c] {
			if step == 0 {
				t[c][v] = uint8(v)
				continue
			}
			t[c][v] = uint8(min(n/step, 255))
			n += h[c][v]
		}
	}
	look3(m, &t)
}

// sharpness blends with a smoothed image (ImageFilter.SMOOTH: 1 1 1, 1 5 1, 1 1 1
// over 13), whose outermost pixels are the image's. Rounding thirteenths never meets
// a tie, nor comes near enough to one for Pillow's float32 to differ.
func (ws *Workspace) sharpness(m *imaging.Image, factor float64) {
	alpha := float32(factor)
	if alpha == 1 || m.Width < 3 || m.Height < 3 {
		return
	}
	src := ws.copy(m)
	n := 3 * m.Width
	for y := 1; y < m.Height-1; y++ {
		above, row, below := src.Pix[(y-1)*n:][:n], src.Pix[y*n:][:n], src.Pix[(y+1)*n:][:n]
		out := m.Pix[y*m.Stride:][:n]
		for c := range 3 {
			column := func(x int) uint32 { return uint32(above[x]) + uint32(row[x]) + uint32(below[x]) }
			left, middle := column(c), column(c+3)
			for x := c + 3; x < n-3; x += 3 {
				right := column(x + 3)
				v := row[x]
				out[x] = blend(uint8((2*(left+middle+right+4*uint32(v))+13)/26), v, alpha)
				left, middle = middle, right
			}
		}
	}
}
