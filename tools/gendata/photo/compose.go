package photo

import (
	"math"
	"math/rand/v2"
)

// palettes are sets of colours that are seen together: luma, Cb − 128, Cr − 128.
var palettes = [][][3]float64{
	{{190, 22, -14}, {90, -18, -8}, {60, -14, -6}, {130, -20, 4}, {150, -6, 6}},   // meadow and sky
	{{60, -12, -10}, {95, -20, -12}, {40, -6, -2}, {150, -26, 8}, {120, -14, 14}}, // forest
	{{175, 18, -16}, {110, 16, -14}, {200, -4, 4}, {140, -12, 8}, {70, 6, -6}},    // water and sand
	{{150, -8, 10}, {90, -10, 14}, {45, -2, 4}, {200, -6, 8}, {120, 2, 2}},        // rooms and skin
	{{125, 0, 0}, {70, 3, -2}, {190, -2, 1}, {95, -4, 4}, {40, 0, 2}},             // stone and streets
	{{110, -22, 36}, {80, -16, -10}, {150, -40, 22}, {60, 10, 18}, {190, -10, 6}}, // flowers and fruit
	{{225, 4, -3}, {170, 12, -8}, {60, 2, -1}, {130, -3, 6}, {240, 1, 0}},         // snow and studio
	{{30, 4, -2}, {60, 8, -4}, {20, 1, 1}, {110, -16, 18}, {150, -24, 14}},        // night
}

// composer draws one scene.
type composer struct {
	rng  *rand.Rand
	lib  *Library
	spec *Spec
	// palette and contrast are common to the scene's materials.
	palette  [][3]float64
	contrast float64
	// rough is the position among the fractals around which textures are drawn.
	rough float64
	// size is the geometric mean of the picture's sides.
	size float64
}

// compose draws the scene and its shapes.
func (p *Painter) compose(rng *rand.Rand, s *Spec) *scene {
	c := &composer{
		rng: rng, lib: p.lib, spec: s,
		palette:  palettes[rng.IntN(len(palettes))],
		contrast: 0.7 + 0.5*rng.Float64(),
		rough:    1.5 + 2.2*rng.Float64(),
		size:     math.Sqrt(float64(s.Width) * float64(s.Height)),
	}
	sc := &scene{background: c.material(0, 0.5+0.8*rng.Float64())}
	if s.Studio {
		sc.background = c.material(0, 0)
	}
	for j := range sc.light.values {
		for i := range sc.light.values[j] {
			u, v := float64(i)/2.5-1, float64(j)/2-1
			sc.light.values[j][i] = min(max(1+0.14*rng.NormFloat64()-0.1*(u*u+v*v), 0.3), 1.7)
		}
	}
	for i := range sc.grain {
		sc.ox[i], sc.oy[i] = rng.IntN(side), rng.IntN(side)
	}
	sc.grain[0] = int32(s.Noise * 256 / deviation)
	sc.grain[1] = int32(s.Noise * 256 / deviation)

	p.shapes = p.shapes[:0]
	// The middle distance: what covers most of the background, less and less soft.
	horizon := 0.25 + 0.5*rng.Float64()
	if !s.Studio && rng.Float64() < 0.5 {
		c.ground(p, horizon)
	}
	for range 2 + rng.IntN(6) {
		if s.Studio {
			break
		}
		c.blob(p, c.size*(0.12+0.25*rng.Float64()), 1+5*rng.Float64()*rng.Float64(), 0.5+rng.Float64())
	}
	switch rng.IntN(4) {
	case 0:
		c.grid(p)
	case 1, 2:
		c.strokes(p, 6+rng.IntN(24))
	}
	// The subject, in focus, of many parts.
	cx, cy := (0.3+0.4*rng.Float64())*float64(s.Width), (0.3+0.4*rng.Float64())*float64(s.Height)
	reach := c.size * (0.12 + 0.22*rng.Float64())
	for range 4 + rng.IntN(14) {
		r := reach * math.Pow(rng.Float64(), 1.3)
		c.blobAt(p, cx+reach*0.6*rng.NormFloat64(), cy+reach*0.5*rng.NormFloat64(), 2+r*0.8, 0.6+0.5*rng.Float64(), 1.2)
	}
	if rng.Float64() < 0.4 {
		c.strokes(p, 3+rng.IntN(10))
	}
	// Small things anywhere.
	for range rng.IntN(30) {
		c.blob(p, 2+c.size*0.03*rng.ExpFloat64(), 0.6+rng.Float64(), 1)
	}
	return sc
}

// material draws a material. depth is 0 for the background; detail multiplies the
// picture's.
func (c *composer) material(depth int, detail float64) material {
	rng := c.rng
	colour := c.palette[rng.IntN(len(c.palette))]
	if depth == 0 {
		colour = c.palette[rng.IntN(2)]
	}
	var m material
	luma := min(max(118+(colour[0]-118)*c.contrast+22*rng.NormFloat64(), 12), 245)
	m.base = [3]int32{
		int32(luma * 256),
		int32((128.5 + colour[1]*0.8 + 2.5*rng.NormFloat64()) * 256),
		int32((128.5 + colour[2]*0.8 + 2.5*rng.NormFloat64()) * 256),
	}
	m.gx = int32(30 * rng.NormFloat64() / c.size * 256)
	m.gy = int32(40 * rng.NormFloat64() / c.size * 256)

	// A texture, and a contrast that differs much from shape to shape.
	if rng.Float64() < 0.45 {
		m.texture = c.lib.structure[rng.IntN(len(c.lib.structure))]
	} else {
		i := int(c.rough + 1.1*rng.NormFloat64())
		m.texture = c.lib.fractals[min(max(i, 0), len(c.lib.fractals)-1)]
	}
	m.ox, m.oy = rng.IntN(side), rng.IntN(side)
	dev := 28 * detail * c.spec.Detail * math.Exp(0.8*rng.NormFloat64())
	dev = min(dev, 64)
	m.gain[0] = int32(dev * 256 / deviation)
	// Light and shade change the colour in proportion; the rest is tint.
	for i := 1; i <= 2; i++ {
		ratio := min(max(0.8*colour[i]/luma, -0.3), 0.3) + 0.18*rng.NormFloat64()
		m.gain[i] = int32(dev * 256 / deviation * ratio)
	}
	return m
}

// next returns a shape to be filled in, on top of the others.
func (p *Painter) next(m material, soft float64) *shape {
	if len(p.shapes) < cap(p.shapes) {
		p.shapes = p.shapes[:len(p.shapes)+1]
	} else {
		p.shapes = append(p.shapes, shape{})
	}
	sh := &p.shapes[len(p.shapes)-1]
	sh.material, sh.soft = m, float32(soft)
	return sh
}

// centre moves the material's gradient so that its base is the luma at (x, y).
func (m *material) centre(x, y float64) {
	m.base[0] -= int32(x)*m.gx + int32(y)*m.gy
}

func (c *composer) blob(p *Painter, radius, soft, detail float64) {
	c.blobAt(p, c.rng.Float64()*float64(c.spec.Width), c.rng.Float64()*float64(c.spec.Height), radius, soft, detail)
}

// blobAt adds a shape with a wavy round outline, or an angular one.
func (c *composer) blobAt(p *Painter, x, y, radius, soft, detail float64) {
	rng := c.rng
	m := c.material(1, detail)
	m.gx, m.gy = m.gx*3, m.gy*3
	m.centre(x, y)
	n := 28
	wave := 0.12
	if rng.Float64() < 0.3 {
		n, wave = 3+rng.IntN(4), 0.3
	}
	flat, turn := 0.4+0.6*rng.Float64(), rng.Float64()*math.Pi
	a2, a3, a5 := wave*rng.NormFloat64(), wave*rng.NormFloat64(), wave*0.5*rng.NormFloat64()
	p2, p3, p5 := rng.Float64()*7, rng.Float64()*7, rng.Float64()*7
	xs, ys := make([]float64, n), make([]float64, n)
	sin, cos := math.Sincos(turn)
	for i := range n {
		phi := float64(i) / float64(n) * 2 * math.Pi
		r := radius * (1 + a2*math.Sin(2*phi+p2) + a3*math.Sin(3*phi+p3) + a5*math.Sin(5*phi+p5))
		u, v := r*math.Cos(phi), r*flat*math.Sin(phi)
		xs[i], ys[i] = x+u*cos-v*sin, y+u*sin+v*cos
	}
	p.next(m, max(min(soft, radius/2), 0.5)).polygon(xs, ys, c.spec.Height)
}

// ground adds a half plane below a horizon that may be oblique.
func (c *composer) ground(p *Painter, horizon float64) {
	w, h := float64(c.spec.Width), float64(c.spec.Height)
	y := horizon * h
	tilt := 0.08 * h * c.rng.NormFloat64()
	m := c.material(1, 1)
	m.centre(w/2, (y+h)/2)
	p.next(m, 0.6+3*c.rng.Float64()).polygon(
		[]float64{-20, w + 20, w + 20, -20}, []float64{y - tilt, y + tilt, 2 * h, 2 * h}, c.spec.Height)
}

// strokes adds lines of one material: branches, wires, grass.
func (c *composer) strokes(p *Painter, n int) {
	rng := c.rng
	w, h := float64(c.spec.Width), float64(c.spec.Height)
	m := c.material(1, 1)
	width := 0.7 + c.size*0.012*rng.ExpFloat64()
	main, spread := rng.Float64()*math.Pi, 0.05+0.5*rng.Float64()
	for range n {
		x, y := rng.Float64()*w, rng.Float64()*h
		length := c.size * (0.1 + 0.5*rng.Float64())
		sin, cos := math.Sincos(main + spread*rng.NormFloat64())
		t := width * (0.5 + rng.Float64())
		u, v := cos*length/2, sin*length/2
		du, dv := -sin*t, cos*t
		mm := m
		mm.centre(x, y)
		mm.base[0] += int32(12 * 256 * rng.NormFloat64())
		p.next(mm, 0.6).polygon(
			[]float64{x - u - du, x + u - du/3, x + u + du/3, x - u + du},
			[]float64{y - v - dv, y + v - dv/3, y + v + dv/3, y - v + dv}, c.spec.Height)
	}
}

// grid adds quadrangles in rows: windows, tiles, fences.
func (c *composer) grid(p *Painter) {
	rng := c.rng
	m, pane := c.material(1, 0.7), c.material(1, 0.7)
	w, h := c.size*(0.3+0.5*rng.Float64()), c.size*(0.3+0.4*rng.Float64())
	x, y := rng.Float64()*float64(c.spec.Width)-w/2, rng.Float64()*float64(c.spec.Height)-h/2
	m.centre(x+w/2, y+h/2)
	pane.centre(x+w/2, y+h/2)
	shear, lean := 0.15*rng.NormFloat64(), 0.06*rng.NormFloat64()
	quad := func(m material, x0, y0, x1, y1 float64) {
		var xs, ys []float64
		for _, c := range [][2]float64{{x0, y0}, {x1, y0}, {x1, y1}, {x0, y1}} {
			xs = append(xs, x+c[0]*w+lean*c[1]*h)
			ys = append(ys, y+c[1]*h+shear*c[0]*w)
		}
		p.next(m, 0.6).polygon(xs, ys, c.spec.Height)
	}
	quad(m, -0.05, -0.05, 1.05, 1.05)
	nx, ny := 2+rng.IntN(6), 2+rng.IntN(6)
	for j := range ny {
		for i := range nx {
			mm := pane
			mm.base[0] += int32(10 * 256 * rng.NormFloat64())
			quad(mm, (float64(i)+0.15)/float64(nx), (float64(j)+0.15)/float64(ny), (float64(i)+0.85)/float64(nx), (float64(j)+0.85)/float64(ny))
		}
	}
}
