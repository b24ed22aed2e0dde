package augment

import (
	"errors"
	"fmt"
	"math"

	"shardify/imaging"
	"shardify/internal/simd"
)

// Matrix is an affine map from places in the result to places in the source, as
// Pillow's Image.transform(size, AFFINE, matrix) takes it: the result's place (x, y)
// shows the source's (m[0]*x + m[1]*y + m[2], m[3]*x + m[4]*y + m[5]). A pixel's
// centre lies half a pixel from its edges.
type Matrix [6]float64

// IdentityMatrix leaves everything where it is.
var IdentityMatrix = Matrix{1, 0, 0, 0, 1, 0}

func (m *Matrix) validate() error {
	for _, v := range m {
		if v-v != 0 {
			return fmt.Errorf("augment: the matrix %v; want finite numbers", *m)
		}
	}
	return nil
}

// at maps a place.
func (m *Matrix) at(x, y float64) (float64, float64) {
	return float64(m[0]*x) + float64(m[1]*y) + m[2], float64(m[3]*x) + float64(m[4]*y) + m[5]
}

// Inverse returns the map from the source to the result, and whether there is one.
func (m Matrix) Inverse() (Matrix, bool) {
	det := float64(m[0]*m[4]) - float64(m[1]*m[3])
	inv := Matrix{m[4] / det, -m[1] / det, 0, -m[3] / det, m[0] / det, 0}
	x, y := inv.at(m[2], m[5])
	inv[2], inv[5] = -x, -y
	return inv, inv.validate() == nil
}

// rotation is the matrix of Pillow's Image.rotate(degrees, center=(cx, cy)): counter-
// clockwise, with sine and cosine rounded to 15 decimals.
func rotation(degrees, cx, cy float64) Matrix {
	angle := math.Mod(degrees, 360)
	if angle < 0 {
		angle += 360
	}
	radians := -angle * (math.Pi / 180)
	sin, cos := sine(radians), cosine(radians)
	m := Matrix{round15(cos), round15(sin), 0, round15(-sin), round15(cos), 0}
	x, y := m.at(-cx, -cy)
	m[2], m[5] = x+cx, y+cy
	return m
}

// round15 rounds a number from -1 to 1 to 15 decimals, half to even, as Python's
// round does: by the exact product, of which e is what a float64 cannot hold.
func round15(v float64) float64 {
	p := v * 1e15
	e := math.FMA(v, 1e15, -p)
	r := math.RoundToEven(p)
	if e != 0 && math.Abs(p-r) == 0.5 {
		r = math.Floor(p)
		if e > 0 {
			r = math.Ceil(p)
		}
	}
	return r / 1e15
}

// affine is torchvision's _get_inverse_affine_matrix: about (cx, cy) turned by
// degrees (clockwise), scaled, sheared by the angles shearX and shearY in degrees,
// then moved by (tx, ty).
func affine(cx, cy, degrees, tx, ty, scale, shearX, shearY float64) Matrix {
	const radian = math.Pi / 180
	rot, sx, sy := float64(degrees*radian), float64(shearX*radian), float64(shearY*radian)
	a := cosine(rot-sy) / cosine(sy)
	b := -(float64(a*tangent(sx)) + sine(rot))
	c := sine(rot-sy) / cosine(sy)
	d := cosine(rot) - float64(c*tangent(sx))
	m := Matrix{d / scale, -b / scale, 0, -c / scale, a / scale, 0}
	x, y := cx+tx, cy+ty
	m[2] += cx - float64(m[0]*x) - float64(m[1]*y)
	m[5] += cy - float64(m[3]*x) - float64(m[4]*y)
	return m
}

// Matrix returns the map of an operation that moves the pixels of an image of width x
// height, so that it can go into a [Geometry] which masks and boxes share; ok is false
// for all other operations, and for a Value that is out of all bounds.
func (o Op) Matrix(width, height int) (m Matrix, ok bool) {
	if o.Kind < ShearX || o.Kind > Rotate {
		return Matrix{}, false
	}
	m, err := o.matrix(width, height)
	return m, err == nil
}

// matrix is the map of an operation that moves pixels.
func (o Op) matrix(width, height int) (Matrix, error) {
	const degree = 180 / math.Pi
	cx, cy := float64(width)*0.5, float64(height)*0.5
	var m Matrix
	switch o.Kind {
	case ShearX:
		m = affine(0, 0, 0, 0, 0, 1, arctangent(o.Value)*degree, 0)
	case ShearY:
		m = affine(0, 0, 0, 0, 0, 1, 0, arctangent(o.Value)*degree)
	case TranslateX:
		m = affine(cx, cy, 0, math.Trunc(o.Value), 0, 1, 0, 0)
	case TranslateY:
		m = affine(cx, cy, 0, 0, math.Trunc(o.Value), 1, 0, 0)
	case Rotate:
		m = rotation(o.Value, cx, cy)
	}
	return m, m.validate()
}

// Warp writes to dst what the map m shows of src: Pillow's Image.transform, and the
// same pixels. Where m leads outside src, dst becomes fill. The caller sets
// dst.Width and dst.Height, at least 1; if dst.Pix has the length for these with
// dst.Stride, it is written there, otherwise dst takes memory as its Reset does. dst
// and src must not share pixels.
func (ws *Workspace) Warp(dst, src *imaging.Image, m Matrix, ip Interpolation, fill Color) error {
	if err := errors.Join(check(src), m.validate()); err != nil {
		return err
	}
	if err := ip.validate(); err != nil {
		return fmt.Errorf("augment: %w", err)
	}
	if dst.Width < 1 || dst.Height < 1 {
		return fmt.Errorf("augment: a warp to %d x %d; both must be at least 1", dst.Width, dst.Height)
	}
	if check(dst) != nil {
		dst.Reset(dst.Width, dst.Height)
	}
	ws.warp(dst, src, &m, ip, fill)
	return nil
}

// WarpMask does the same with a mask, whose pixels are always the nearest.
func (ws *Workspace) WarpMask(dst, src *imaging.Mask, m Matrix, fill uint8) error {
	if err := errors.Join(checkMask(src), m.validate()); err != nil {
		return err
	}
	if dst.Width < 1 || dst.Height < 1 {
		return fmt.Errorf("augment: a warp to %d x %d; both must be at least 1", dst.Width, dst.Height)
	}
	if checkMask(dst) != nil {
		dst.Reset(dst.Width, dst.Height)
	}
	ws.nearest(maskPlane(dst), maskPlane(src), &m, Color{fill})
	return nil
}

func (ws *Workspace) warpInPlace(m *imaging.Image, matrix *Matrix, ip Interpolation, fill Color) error {
	if err := ip.validate(); err != nil {
		return fmt.Errorf("augment: %w", err)
	}
	if *matrix != IdentityMatrix {
		ws.warp(m, ws.copy(m), matrix, ip, fill)
	}
	return nil
}

func (ws *Workspace) warp(dst, src *imaging.Image, m *Matrix, ip Interpolation, fill Color) {
	if ip == Bilinear {
		ws.interpolate(dst, src, m, &fill)
		return
	}
	ws.nearest(imagePlane(dst), imagePlane(src), m, fill)
}

// plane is an image of n bytes a pixel.
type plane struct {
	pix                      []uint8
	width, height, stride, n int
}

func imagePlane(m *imaging.Image) plane { return plane{m.Pix, m.Width, m.Height, m.Stride, 3} }
func maskPlane(m *imaging.Mask) plane   { return plane{m.Pix, m.Width, m.Height, m.Stride, 1} }

// nearest takes the pixel in which a place lies. Pillow computes the place in one of
// three ways, and so do we: by repeated addition along each axis where the axes do
// not mix, else in 16.16 fixed point, else, where that would overflow, by addition.
func (ws *Workspace) nearest(dst, src plane, m *Matrix, fill Color) {
	if m[1] == 0 && m[3] == 0 {
		ws.columns = grow(ws.columns, dst.width)
		x := m[2] + float64(m[0]*0.5)
		for i := range ws.columns {
			ws.columns[i] = int32(index(x, src.width))
			x += m[0]
		}
		ws.together(ws.columns)
		y := m[5] + float64(m[4]*0.5)
		for i := range dst.height {
			src.gather(dst.pix[i*dst.stride:][:dst.n*dst.width], ws.pieces, index(y, src.height), &fill)
			y += m[4]
		}
		return
	}
	if f, ok := m.Fixed(dst.width, dst.height); ok {
		a0, a1, a2, a3, a4, a5 := f[0], f[1], f[2], f[3], f[4], f[5]
		for i := range dst.height {
			out := dst.pix[i*dst.stride:][:dst.n*dst.width]
			// Which pixels lie within the source.
			from, to := span(a2, a0, src.width<<16, dst.width)
			first, last := span(a5, a3, src.height<<16, dst.width)
			from, to = max(from, first), min(to, last)
			if to <= from {
				src.fill(out, &fill)
			} else {
				src.fill(out[:dst.n*from], &fill)
				src.slanted(out[dst.n*from:dst.n*to], a2+from*a0, a5+from*a3, a0, a3, ws.simd())
				src.fill(out[dst.n*to:], &fill)
			}
			a2 += a1
			a5 += a4
		}
		return
	}
	x0 := m[2] + float64(m[1]*0.5) + float64(m[0]*0.5)
	y0 := m[5] + float64(m[4]*0.5) + float64(m[3]*0.5)
	for i := range dst.height {
		x, y := x0, y0
		for out := dst.pix[i*dst.stride:][:dst.n*dst.width]; len(out) > 0; out = out[dst.n:] {
			if sx, sy := index(x, src.width), index(y, src.height); sx >= 0 && sy >= 0 {
				copy(out[:dst.n], src.pix[sy*src.stride+sx*src.n:])
			} else {
				copy(out[:dst.n], fill[:])
			}
			x += m[0]
			y += m[3]
		}
		x0 += m[1]
		y0 += m[4]
	}
}

// span returns the i in [0, n) for which at + i*step lies in [0, limit): from the first
// to before the second.
func span(at, step, limit, n int) (from, to int) {
	if step < 0 { // the other way round
		at, step = limit-1-at, -step
	}
	switch {
	case at >= limit:
		return 0, 0
	case step == 0 && at < 0:
		return 0, 0
	case step == 0:
		return 0, n
	}
	if at < 0 {
		from = (-at + step - 1) / step
	}
	return from, min(n, (limit-1-at)/step+1)
}

// fill gives all pixels of a row one colour.
func (p *plane) fill(row []uint8, c *Color) {
	k := copy(row, c[:p.n])
	for k > 0 && k < len(row) {
		k += copy(row[k:], row[:k])
	}
}

// slanted copies pixels that all lie within p, along a line from (x, y) by (dx, dy), in
// 16.16 fixed point.
func (p *plane) slanted(out []uint8, x, y, dx, dy int, level simd.Level) {
	pix, stride := p.pix, p.stride
	if p.n == 1 {
		for i := range out {
			out[i] = pix[(y>>16)*stride+(x>>16)]
			x += dx
			y += dy
		}
		return
	}
	n := slanted(out, pix, stride, x, y, dx, dy, level)
	out = out[3*n:]
	x += n * dx
	y += n * dy
	for ; len(out) >= 3; out = out[3:] {
		at := (y>>16)*stride + 3*(x>>16)
		s, o := pix[at:at+3:at+3], out[:3:3]
		o[0], o[1], o[2] = s[0], s[1], s[2]
		x += dx
		y += dy
	}
}

// piece is so many pixels of a row from first on, or where that is -1 of the fill.
type piece struct{ first, n int32 }

// together makes pieces of columns: those that lie side by side are copied at once.
func (ws *Workspace) together(columns []int32) {
	ws.pieces = ws.pieces[:0]
	for len(columns) > 0 {
		p, step := piece{columns[0], 1}, int32(1)
		if p.first < 0 {
			step = 0
		}
		for int(p.n) < len(columns) && columns[p.n] == p.first+step*p.n {
			p.n++
		}
		ws.pieces = append(ws.pieces, p)
		columns = columns[p.n:]
	}
}

// gather makes a row of pieces of row y, or where that is -1 of the fill.
func (p *plane) gather(out []uint8, pieces []piece, y int, fill *Color) {
	if y < 0 {
		p.fill(out, fill)
		return
	}
	row := p.pix[y*p.stride:][:p.n*p.width]
	for _, c := range pieces {
		n := p.n * int(c.n)
		switch {
		case c.first < 0:
			p.fill(out[:n], fill)
		case n > 3:
			copy(out[:n], row[p.n*int(c.first):])
		case p.n == 1:
			for i := range out[:n] {
				out[i] = row[int(c.first)+i]
			}
		default:
			o, s := out[:3:3], row[3*c.first:][:3]
			o[0], o[1], o[2] = s[0], s[1], s[2]
		}
		out = out[n:]
	}
}

// index is the pixel, of n, in which a place lies, or -1.
func index(v float64, n int) int {
	if v >= 0 && v < float64(n) {
		return int(v)
	}
	return -1
}

// Fixed returns the map in 16.16 fixed point, in which Pillow, and so Warp, finds the
// nearest pixels of a result of width x height: its pixel (x, y) shows the source's
// ((f[2] + f[1]*y + f[0]*x) >> 16, (f[5] + f[4]*y + f[3]*x) >> 16). ok is false where that
// would overflow, and where the axes do not mix: there, places are found by adding m[0] for
// each column and m[4] for each row to that of the first pixel's centre, and in the former
// case m[3] and m[1] as well.
func (m *Matrix) Fixed(width, height int) (f [6]int, ok bool) {
	w, h := float64(width), float64(height)
	if m[1] == 0 && m[3] == 0 || !fits(m, 0, 0) || !fits(m, w, h) || !fits(m, 0, h) || !fits(m, w, 0) {
		return f, false
	}
	return [6]int{
		fixed(m[0]), fixed(m[1]), fixed(m[2] + float64(m[0]*0.5) + float64(m[1]*0.5)),
		fixed(m[3]), fixed(m[4]), fixed(m[5] + float64(m[3]*0.5) + float64(m[4]*0.5)),
	}, true
}

func fits(m *Matrix, x, y float64) bool {
	sx, sy := m.at(x, y)
	return math.Abs(sx) < 32768 && math.Abs(sy) < 32768
}

func fixed(v float64) int { return int(math.Floor(float64(v*65536) + 0.5)) }

// slope is the line across a source that a row of a warped image shows: pixel i's place
// is (stepX·(u+i) + fromX + addX, stepY·(u+i) + fromY + addY), summed in that order.
type slope struct {
	u                                      float64
	stepX, fromX, addX, stepY, fromY, addY float64
}

// interpolate weighs the four pixels round a place, in float64 as Pillow does; at the
// edges the outermost count twice.
func (ws *Workspace) interpolate(dst, src *imaging.Image, m *Matrix, fill *Color) {
	for i := range dst.Height {
		out := dst.Pix[i*dst.Stride:][:3*dst.Width]
		v := float64(i) + 0.5
		s := slope{0.5, m[0], float64(m[1] * v), m[2], m[3], float64(m[4] * v), m[5]}
		p := imagePlane(dst)
		from, to := s.within(dst.Width, src.Width, src.Height)
		p.fill(out[:3*from], fill)
		p.fill(out[3*to:], fill)
		out = out[3*from : 3*to]
		s.u += float64(from)
		for len(out) > 0 {
			// What lies well within the source goes quickly; if the next pixels do not,
			// some are made one by one.
			n := bilinear(out, src, &s, ws.simd())
			out = out[3*n:]
			s.u += float64(n)
			n = min(len(out)/3, 8)
			if ws.simd() == simd.Generic {
				n = len(out) / 3
			}
			s.pixels(out[:3*n], src, fill)
			out = out[3*n:]
		}
	}
}

// within bounds the pixels, of n, that may lie within a source: all before the first and
// from the second on lie outside, beyond doubt.
func (s *slope) within(n, width, height int) (from, to int) {
	first, last := 0.0, float64(n)
	for _, line := range [2]struct{ step, start, limit float64 }{
		{s.stepX, s.fromX + s.addX, float64(width)}, {s.stepY, s.fromY + s.addY, float64(height)},
	} {
		// Where numbers are so large or so small that it matters how they are rounded,
		// every pixel is looked at.
		if math.Abs(line.step) < 0x1p-16 || !(math.Abs(line.start) < 1<<24) || line.limit > 1<<24 {
			continue
		}
		a, b := -line.start/line.step, (line.limit-line.start)/line.step
		first, last = max(first, min(a, b)-s.u-2), min(last, max(a, b)-s.u+2)
	}
	if last <= first {
		return n, n
	}
	return int(first), int(last)
}

// pixels makes the pixels from u on, one by one.
func (s *slope) pixels(out []uint8, src *imaging.Image, fill *Color) {
	w, h := float64(src.Width), float64(src.Height)
	right, stride := 3*(src.Width-1), src.Stride
	for ; len(out) >= 3; s.u++ {
		x, y := float64(s.stepX*s.u)+s.fromX+s.addX, float64(s.stepY*s.u)+s.fromY+s.addY
		o := out[:3:3]
		out = out[3:]
		if !(x >= 0 && x < w && y >= 0 && y < h) {
			o[0], o[1], o[2] = fill[0], fill[1], fill[2]
			continue
		}
		x -= 0.5
		y -= 0.5
		left, top := int(x), int(y)
		if x < 0 {
			left = -1
		}
		if y < 0 {
			top = -1
		}
		dx, dy := x-float64(left), y-float64(top)
		x0, x1 := max(3*left, 0), min(3*left+3, right)
		y0, y1 := max(top, 0)*stride, min(top+1, src.Height-1)*stride
		p, q := src.Pix[y0+x0:y0+x0+3:y0+x0+3], src.Pix[y0+x1:y0+x1+3:y0+x1+3]
		r, t := src.Pix[y1+x0:y1+x0+3:y1+x0+3], src.Pix[y1+x1:y1+x1+3:y1+x1+3]
		o[0] = between(p[0], q[0], r[0], t[0], dx, dy)
		o[1] = between(p[1], q[1], r[1], t[1], dx, dy)
		o[2] = between(p[2], q[2], r[2], t[2], dx, dy)
	}
}

func between(p, q, r, s uint8, dx, dy float64) uint8 {
	above := float64(p) + float64(float64(int32(q)-int32(p))*dx)
	below := float64(r) + float64(float64(int32(s)-int32(r))*dx)
	return uint8(int32(above + float64((below-above)*dy)))
}
