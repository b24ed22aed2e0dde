package photo

import (
	"math"
	"math/rand/v2"
	"sync"
)

const (
	side = 1 << sideBits // of a texture, which repeats
	// 512 is more than most pictures show of it.
	sideBits = 9
	mask     = side - 1

	// deviation is the standard deviation of every texture.
	deviation = 32
)

// texture is a periodic field with mean 0.
type texture [side * side]int8

// Library is the textures that scenes are composed of. It is made once and not
// changed.
type Library struct {
	// grain is the sensor's noise: white for luma, and for chroma blurred, as cameras
	// do. The fractals are ordered from smooth to rough.
	grain     [2]*texture
	fractals  []*texture
	structure []*texture
}

// NewLibrary returns the library, which is the same for every seed.
var NewLibrary = sync.OnceValue(makeLibrary)

func makeLibrary() *Library {
	rng := rand.New(rand.NewPCG(0x7e87, 0))
	var bands [bandCount]*field
	for k := range bands {
		bands[k] = noise(rng, 1<<k, 1<<k)
	}
	// sum adds octaves, shifted at random so that one set of them serves all
	// textures. The amplitude of frequency f is f^-exponent.
	sum := func(exponent float64, first int, shape func(float32) float32) *field {
		out := new(field)
		for k := first; k < bandCount; k++ {
			gain := float32(math.Pow(2, float64(k)*(exponent-1)))
			out.add(bands[k], rng.IntN(side), rng.IntN(side), gain, shape)
		}
		return out
	}
	plain := func(v float32) float32 { return v }
	ridge := func(v float32) float32 { return 0.8 - float32(math.Abs(float64(v))) }

	l := &Library{grain: [2]*texture{bands[0].texture(), bands[1].texture()}}
	for _, exponent := range []float64{1.7, 1.45, 1.25, 1.1, 0.95, 0.8} {
		f := sum(exponent, 0, plain)
		f.patch(sum(1.6, 3, plain))
		l.fractals = append(l.fractals, f.texture())
	}
	// Bark and stone.
	for _, exponent := range []float64{1.3, 1.0} {
		l.structure = append(l.structure, sum(exponent, 1, ridge).texture())
	}
	// Grass, hair and water: noise drawn out along one axis, then bent.
	for _, cells := range [][2]int{{1, 16}, {2, 32}, {16, 2}} {
		f := new(field)
		for k := range 3 {
			f.add(noise(rng, min(cells[0]<<k, side/4), min(cells[1]<<k, side/4)), 0, 0, float32(math.Pow(2, 0.15*float64(k))), plain)
		}
		f.bend(sum(2.2, 5, plain), sum(2.2, 5, plain), 14)
		f.patch(sum(1.6, 4, plain))
		l.structure = append(l.structure, f.texture())
	}
	// Foliage, gravel, crowds: small things before small things.
	for _, radius := range []float64{3, 7, 16} {
		f := leaves(rng, radius)
		f.add(bands[0], rng.IntN(side), rng.IntN(side), 0.08, plain)
		f.add(bands[1], rng.IntN(side), rng.IntN(side), 0.08, plain)
		f.blur()
		l.structure = append(l.structure, f.texture())
	}
	// Cloth and masonry.
	for _, period := range []float64{4, 16} {
		f := new(field)
		for y := range side {
			for x := range side {
				u, v := float64(x)*2*math.Pi/period, float64(y)*2*math.Pi/period
				f[y<<sideBits|x] = float32(math.Tanh(2*math.Sin(u)) * math.Cos(v+u/2))
			}
		}
		f.bend(sum(2.2, 5, plain), sum(2.2, 5, plain), 6)
		f.add(sum(1.1, 0, plain), 0, 0, 0.2, plain)
		l.structure = append(l.structure, f.texture())
	}
	return l
}

// bandCount octaves reach from single pixels to an eighth of the side.
const bandCount = sideBits - 2

// field is a texture in the making.
type field [side * side]float32

// noise returns normal random numbers on a lattice with cells of cx×cy pixels,
// powers of two, interpolated by Catmull and Rom's cubic.
func noise(rng *rand.Rand, cx, cy int) *field {
	w, h := side/cx, side/cy
	lattice := make([]float32, w*h)
	for i := range lattice {
		lattice[i] = float32(rng.NormFloat64())
	}
	wide := make([]float32, side*h) // interpolated along rows
	for x := range side {
		k, i := cubic(float32(x%cx)/float32(cx)), x/cx+w
		for y := range h {
			row := lattice[y*w:][:w]
			wide[y<<sideBits|x] = k[0]*row[(i-1)%w] + k[1]*row[i%w] + k[2]*row[(i+1)%w] + k[3]*row[(i+2)%w]
		}
	}
	out := new(field)
	for y := range side {
		k, i := cubic(float32(y%cy)/float32(cy)), y/cy+h
		row := func(j int) []float32 { return wide[(i+j)%h<<sideBits:][:side] }
		a, b, c, d := row(-1), row(0), row(1), row(2)
		to := out[y<<sideBits:][:side]
		for x := range to {
			to[x] = k[0]*a[x] + k[1]*b[x] + k[2]*c[x] + k[3]*d[x]
		}
	}
	return out
}

func cubic(t float32) [4]float32 {
	return [4]float32{
		t * (-0.5 + t*(1-0.5*t)),
		1 + t*t*(-2.5+1.5*t),
		t * (0.5 + t*(2-1.5*t)),
		t * t * (-0.5 + 0.5*t),
	}
}

// add adds a field that is shifted, shaped and multiplied.
func (f *field) add(g *field, dx, dy int, gain float32, shape func(float32) float32) {
	for y := range side {
		from := g[(y+dy)&mask<<sideBits:][:side]
		to := f[y<<sideBits:][:side]
		for x := range to {
			to[x] += gain * shape(from[(x+dx)&mask])
		}
	}
}

// patch makes the contrast vary from place to place, e-fold for a standard deviation
// of by.
func (f *field) patch(by *field) {
	_, dev := by.moments()
	for i, v := range by {
		f[i] *= float32(math.Exp(float64(v / dev * 0.7)))
	}
}

// bend moves each pixel by up to about reach pixels.
func (f *field) bend(dx, dy *field, reach float32) {
	_, sx := dx.moments()
	_, sy := dy.moments()
	from := *f
	at := func(x, y int) float32 { return from[y&mask<<sideBits|x&mask] }
	for y := range side {
		for x := range side {
			i := y<<sideBits | x
			u, v := dx[i]/sx*reach/2+float32(x)+side, dy[i]/sy*reach/2+float32(y)+side
			ui, vi := int(u), int(v)
			uf, vf := u-float32(ui), v-float32(vi)
			top := at(ui, vi)*(1-uf) + at(ui+1, vi)*uf
			bottom := at(ui, vi+1)*(1-uf) + at(ui+1, vi+1)*uf
			f[i] = top*(1-vf) + bottom*vf
		}
	}
}

// leaves covers the field with discs of random brightness, the large ones below.
func leaves(rng *rand.Rand, radius float64) *field {
	f := new(field)
	for covered := 0.0; covered < 3*side*side; {
		r := radius * (2.5 - 2*covered/(3*side*side)) * (0.5 + rng.Float64())
		flat := 0.4 + 0.6*rng.Float64() // height over width
		cx, cy := rng.Float64()*side, rng.Float64()*side
		v, slope := float32(rng.NormFloat64()), float32(rng.NormFloat64()*0.4/r)
		for dy := -math.Floor(r * flat); dy <= r*flat; dy++ {
			half := r * math.Sqrt(math.Max(0, 1-dy*dy/(r*r*flat*flat)))
			y := int(cy+dy+side) & mask
			for dx := -math.Floor(half); dx <= half; dx++ {
				f[y<<sideBits|int(cx+dx+side)&mask] = v + slope*float32(dx)
			}
		}
		covered += math.Pi * r * r * flat
	}
	return f
}

// blur averages with weights 1 2 1 along rows and columns, as lenses do.
func (f *field) blur() {
	from := *f
	for i := range from {
		y, x := i&^mask, i&mask
		f[i] = (from[y|(x-1)&mask] + 2*from[i] + from[y|(x+1)&mask]) / 4
	}
	from = *f
	const all = side*side - 1
	for i := range from {
		f[i] = (from[(i-side)&all] + 2*from[i] + from[(i+side)&all]) / 4
	}
}

func (f *field) moments() (mean, dev float32) {
	var sum, squares float64
	for _, v := range f {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	m := sum / (side * side)
	return float32(m), float32(math.Sqrt(squares/(side*side) - m*m))
}

// texture rounds the field to deviation.
func (f *field) texture() *texture {
	mean, dev := f.moments()
	t := new(texture)
	for i, v := range f {
		t[i] = int8(min(max((v-mean)/dev*deviation, -127), 127))
	}
	return t
}
