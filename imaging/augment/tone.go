package augment

import (
	"math"

	"shardify/imaging"
)

// The operations that make a pixel of the pixel at its place.

// look replaces every sample by its table's.
func (ws *Workspace) look(m *imaging.Image, t *table) {
	n, pieces := runs(m)
	for i := range pieces {
		lookup(m.Pix[i*m.Stride:][:n], t, ws.simd())
	}
}

// look3 does so with a table for every channel.
func (ws *Workspace) look3(m *imaging.Image, t *[3]table) {
	n, pieces := runs(m)
	for i := range pieces {
		lookup3(m.Pix[i*m.Stride:][:n], t, ws.simd())
	}
}

// fade is the blend of every sample with one level.
func fade(level uint8, factor float64) (t table) {
	for v := range t {
		t[v] = blend(level, uint8(v), float32(factor))
	}
	return t
}

func (ws *Workspace) brightness(m *imaging.Image, factor float64) {
	if float32(factor) != 1 {
		t := fade(0, factor)
		ws.look(m, &t)
	}
}

func (ws *Workspace) contrast(m *imaging.Image, factor float64) {
	if float32(factor) != 1 {
		t := fade(ws.meanLuma(m), factor)
		ws.look(m, &t)
	}
}

// meanLuma is the mean of the grey, rounded.
func (ws *Workspace) meanLuma(m *imaging.Image) uint8 {
	n, pieces := runs(m)
	var sum uint64
	for i := range pieces {
		sum += sumLuma(m.Pix[i*m.Stride:][:n], ws.simd())
	}
	return uint8(float64(sum)/float64(m.Width*m.Height) + 0.5)
}

func (ws *Workspace) saturation(m *imaging.Image, factor float64) {
	alpha := float32(factor)
	switch alpha {
	case 0:
		ws.grayscale(m)
		return
	case 1:
		return
	}
	n, pieces := runs(m)
	for i := range pieces {
		saturate(m.Pix[i*m.Stride:][:n], alpha, ws.simd())
	}
}

func (ws *Workspace) grayscale(m *imaging.Image) {
	n, pieces := runs(m)
	for i := range pieces {
		gray(m.Pix[i*m.Stride:][:n], ws.simd())
	}
}

// hue goes through Pillow's mode HSV, of 8 bits each, as torchvision does.
func (ws *Workspace) hue(m *imaging.Image, factor float64) {
	shift := uint8(int32(factor * 255))
	n, pieces := runs(m)
	for i := range pieces {
		turnHue(m.Pix[i*m.Stride:][:n], shift, ws.simd())
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

// bitwise keeps some bits of every sample and turns some round.
func (ws *Workspace) bitwise(m *imaging.Image, keep, flip uint8) {
	n, pieces := runs(m)
	for i := range pieces {
		mask(m.Pix[i*m.Stride:][:n], keep, flip, ws.simd())
	}
}

func (ws *Workspace) invert(m *imaging.Image) { ws.bitwise(m, 0xff, 0xff) }

func (ws *Workspace) posterize(m *imaging.Image, n int) { ws.bitwise(m, 0xff<<(8-n), 0) }

func (ws *Workspace) solarize(m *imaging.Image, threshold float64) {
	var t table
	for v := range t {
		t[v] = uint8(v)
		if float64(v) >= threshold {
			t[v] = uint8(255 - v)
		}
	}
	ws.look(m, &t)
}

// histogram counts the levels of every channel. Neighbouring pixels, which are often
// equal, are counted apart, so that one need not wait for the other.
func histogram(m *imaging.Image) (h [3][256]int) {
	var apart [4][3][256]uint32
	n, pieces := runs(m)
	for i := range pieces {
		pix := m.Pix[i*m.Stride:][:n]
		for ; len(pix) >= 12; pix = pix[12:] {
			p := pix[:12:12]
			for k := range apart {
				apart[k][0][p[3*k]]++
				apart[k][1][p[3*k+1]]++
				apart[k][2][p[3*k+2]]++
			}
		}
		for ; len(pix) >= 3; pix = pix[3:] {
			h[0][pix[0]]++
			h[1][pix[1]]++
			h[2][pix[2]]++
		}
	}
	for k := range apart {
		for c := range h {
			for v := range h[c] {
				h[c][v] += int(apart[k][c][v])
			}
		}
	}
	return h
}

func (ws *Workspace) autoContrast(m *imaging.Image) {
	least, most := [3]uint8{255, 255, 255}, [3]uint8{}
	n, pieces := runs(m)
	for i := range pieces {
		extremes(m.Pix[i*m.Stride:][:n], &least, &most, ws.simd())
	}
	var t [3]table
	for c := range t {
		low, high := int(least[c]), int(most[c])
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
	ws.look3(m, &t)
}

func (ws *Workspace) equalize(m *imaging.Image) {
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
	ws.look3(m, &t)
}

// sharpness blends with a smoothed image, whose outermost pixels are the image's. Of what
// is overwritten, two rows are kept.
func (ws *Workspace) sharpness(m *imaging.Image, factor float64) {
	alpha := float32(factor)
	if alpha == 1 || m.Width < 3 || m.Height < 3 {
		return
	}
	n := 3 * m.Width
	ws.kept = grow(ws.kept, 2*n)
	above, row := ws.kept[:n], ws.kept[n:]
	copy(above, m.Pix)
	for y := 1; y < m.Height-1; y++ {
		out := m.Pix[y*m.Stride:][:n]
		copy(row, out)
		sharpen(out, above, row, m.Pix[(y+1)*m.Stride:][:n], alpha, ws.simd())
		above, row = row, above
	}
}
