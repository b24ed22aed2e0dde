package photo

import (
	"math"
	"math/rand/v2"

	"shardify/tools/gendata/jpegenc"
)

// Painter paints photographs. It keeps its memory from one to the next, and is for
// one goroutine.
type Painter struct {
	lib    *Library
	pic    jpegenc.Picture
	planes [3][]uint8
	shapes []shape
	// A row of the scene, in 1/256.
	rows [3][]int32
	// With 4:2:0, the sums of a pair of chroma rows.
	sums  [2][]int32
	light []int32
}

// NewPainter returns a painter who uses a library.
func NewPainter(lib *Library) *Painter { return &Painter{lib: lib} }

// material is what a shape is made of.
type material struct {
	base [3]int32 // colour, in 1/256
	// The luma changes by gx from column to column, by gy from row to row.
	gx, gy  int32
	texture *texture
	// The texture begins here.
	ox, oy int
	// gain multiplies the texture, for each plane, to 1/256.
	gain [3]int32
}

// shape is a region of which each row is one run of pixels.
type shape struct {
	material
	soft        float32 // half the width of its border
	top, bottom int     // rows from top to before bottom
	first, last float32 // where its outline begins and ends, in rows
	// left and right are where the outline crosses each row, from top on, and how
	// much wider its border is there because the outline is oblique.
	left, right        []float32
	obliqueL, obliqueR []float32
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// Paint paints a picture. It is valid until the next call.
func (p *Painter) Paint(s *Spec) *jpegenc.Picture {
	rng := rand.New(rand.NewPCG(s.Seed, s.Number<<1|1))
	p.pic = jpegenc.Picture{Width: s.Width, Height: s.Height, Model: s.Model, Sub: s.Sub}
	for i := range s.Model.Planes() {
		w, h := p.pic.PlaneSize(i)
		p.planes[i] = grow(p.planes[i], w*h)
		p.pic.Planes[i] = jpegenc.Plane{Pix: p.planes[i], Stride: w}
	}
	for i := range p.rows {
		p.rows[i] = grow(p.rows[i], s.Width+1)
	}
	for i := range p.sums {
		p.sums[i] = grow(p.sums[i], s.Width+1)
	}
	p.light = grow(p.light, s.Width)

	sc := p.compose(rng, s)
	for y := range s.Height {
		p.fill(&sc.background, 0, s.Width, y)
		for i := range p.shapes {
			if sh := &p.shapes[i]; sh.top <= y && y < sh.bottom {
				p.shape(sh, y)
			}
		}
		p.develop(sc, s, y)
	}
	return &p.pic
}

// fill paints columns from x0 to before x1 of row y.
func (p *Painter) fill(m *material, x0, x1, y int) {
	if x0 >= x1 {
		return
	}
	t := (*[side]int8)(m.texture[(y+m.oy)&mask<<sideBits:])
	luma := p.rows[0][x0:x1]
	cb, cr := p.rows[1][x0:x1][:len(luma)], p.rows[2][x0:x1][:len(luma)]
	v := m.base[0] + int32(x0)*m.gx + int32(y)*m.gy
	u := x0 + m.ox
	for x := range luma {
		d := int32(t[(u+x)&mask])
		luma[x] = v + d*m.gain[0]
		cb[x] = m.base[1] + d*m.gain[1]
		cr[x] = m.base[2] + d*m.gain[2]
		v += m.gx
	}
}

// blend paints one pixel that the shape covers to cover/256.
func (p *Painter) blend(m *material, x, y int, cover int32) {
	d := int32(m.texture[(y+m.oy)&mask<<sideBits|(x+m.ox)&mask])
	v := m.base[0] + int32(x)*m.gx + int32(y)*m.gy + d*m.gain[0]
	mix := func(at *int32, v int32) { *at += (v - *at) >> 4 * cover >> 4 }
	mix(&p.rows[0][x], v)
	mix(&p.rows[1][x], m.base[1]+d*m.gain[1])
	mix(&p.rows[2][x], m.base[2]+d*m.gain[2])
}

// shape paints row y of a shape, with its borders.
func (p *Painter) shape(sh *shape, y int) {
	i := y - sh.top
	l, r := sh.left[i], sh.right[i]
	wl, wr := sh.soft*sh.obliqueL[i], sh.soft*sh.obliqueR[i]
	vertical := min(float32(y)-sh.first, sh.last-float32(y))/(2*sh.soft) + 0.5
	width := p.pic.Width
	begin := min(max(int(l-wl), 0), width)
	end := max(min(int(r+wr)+1, width), begin)
	solidL, solidR := min(max(int(l+wl)+1, begin), end), max(min(int(r-wr), end), begin)
	if vertical < 1 || solidL >= solidR {
		solidL, solidR = end, end
	}
	edge := func(from, to int) {
		for x := from; x < to; x++ {
			c := min((float32(x)-l)/(2*wl), (r-float32(x))/(2*wr)) + 0.5
			c = min(c, vertical, 1)
			if c > 0 {
				p.blend(&sh.material, x, y, int32(c*256))
			}
		}
	}
	edge(begin, solidL)
	p.fill(&sh.material, solidL, solidR, y)
	edge(solidR, end)
}

// scene is what holds for the whole picture.
type scene struct {
	background material
	light      lightField
	// The sensor's noise: its gain for luma and chroma, and where it begins.
	grain  [2]int32
	ox, oy [2]int
}

// lightField is a smooth factor over the picture, by its values on a lattice.
type lightField struct {
	values [5][6]float64
}

// row interpolates the factors of row y, in 1/1024.
func (l *lightField) row(out []int32, y, height int) {
	v := float64(y) / float64(height) * 4
	j := min(int(v), 3)
	t := smooth(v - float64(j))
	var line [6]float64
	for i := range line {
		line[i] = l.values[j][i]*(1-t) + l.values[j+1][i]*t
	}
	begin := 0
	for i := range 5 {
		end := (i + 1) * len(out) / 5
		n := end - begin
		if n == 0 {
			continue
		}
		a, step := int32(line[i]*(1<<20)), int32((line[i+1]-line[i])*(1<<20))/int32(n)
		for x := begin; x < end; x++ {
			out[x] = a >> 10
			a += step
		}
		begin = end
	}
}

func smooth(t float64) float64 { return t * t * (3 - 2*t) }

// develop turns the painted row into samples: light, noise, rounding.
func (p *Painter) develop(sc *scene, s *Spec, y int) {
	w := s.Width
	sc.light.row(p.light[:w], y, s.Height)
	grain := func(i int) *[side]int8 {
		return (*[side]int8)(p.lib.grain[i][(y+sc.oy[i])&mask<<sideBits:])
	}
	t := grain(0)
	luma, light := p.rows[0][:w], p.light[:w]
	out := p.planes[0][y*w:][:w]
	ox, gain := sc.ox[0], sc.grain[0]
	for x := range out {
		v := luma[x]>>2*light[x]>>8 + int32(t[(x+ox)&mask])*gain
		out[x] = clamp(v >> 8)
	}
	if s.Model == jpegenc.Gray {
		return
	}
	t = grain(1)
	ox, gain = sc.ox[1], sc.grain[1]
	for c := range 2 {
		chroma := p.rows[c+1][:w]
		if s.Sub == jpegenc.S444 {
			out := p.planes[c+1][y*w:][:w]
			for x := range out {
				out[x] = clamp((chroma[x] + int32(t[(x+ox)&mask])*gain) >> 8)
			}
			ox += side / 2
			continue
		}
		// The mean of two pixels, and with 4:2:0 of two rows.
		sum, half := p.sums[c][:(w+1)/2], (w+1)/2
		p.rows[c+1][w] = p.rows[c+1][w-1]
		chroma = p.rows[c+1][:w+1]
		first := s.Sub == jpegenc.S422 || y&1 == 0
		for x := range sum {
			v := chroma[2*x] + chroma[2*x+1] + int32(t[(x+ox)&mask])*gain
			if first {
				sum[x] = v
			} else {
				sum[x] = (sum[x] + v) / 2
			}
		}
		ox += side / 2
		row := y
		if s.Sub == jpegenc.S420 {
			row = y / 2
			if first && y != s.Height-1 {
				continue
			}
		}
		out := p.planes[c+1][row*half:][:half]
		for x := range out {
			out[x] = clamp(sum[x] >> 9)
		}
	}
}

func clamp(v int32) uint8 {
	if uint32(v) > 255 {
		return uint8(^(v >> 31))
	}
	return uint8(v)
}

// polygon computes the rows of a shape from its outline, whose concave parts in
// horizontal direction are filled.
func (sh *shape) polygon(xs, ys []float64, height int) {
	first, last := math.Inf(1), math.Inf(-1)
	for _, y := range ys {
		first, last = min(first, y), max(last, y)
	}
	sh.first, sh.last = float32(first), float32(last)
	sh.top = max(int(math.Ceil(first)), 0)
	sh.bottom = min(int(math.Floor(last))+1, height)
	n := max(sh.bottom-sh.top, 0)
	sh.left, sh.right = grow(sh.left, n), grow(sh.right, n)
	sh.obliqueL, sh.obliqueR = grow(sh.obliqueL, n), grow(sh.obliqueR, n)
	for i := range n {
		sh.left[i], sh.right[i] = math.MaxFloat32, -math.MaxFloat32
	}
	for i := range xs {
		x0, y0 := xs[i], ys[i]
		j := (i + 1) % len(xs)
		x1, y1 := xs[j], ys[j]
		if y0 > y1 {
			x0, y0, x1, y1 = x1, y1, x0, y0
		}
		if y1-y0 < 1e-6 {
			continue
		}
		slope := (x1 - x0) / (y1 - y0)
		oblique := float32(min(math.Sqrt(1+slope*slope), 40))
		for y := max(int(math.Ceil(y0)), sh.top); y <= min(int(math.Floor(y1)), sh.bottom-1); y++ {
			x := float32(x0 + (float64(y)-y0)*slope)
			k := y - sh.top
			if x < sh.left[k] {
				sh.left[k], sh.obliqueL[k] = x, oblique
			}
			if x > sh.right[k] {
				sh.right[k], sh.obliqueR[k] = x, oblique
			}
		}
	}
}
