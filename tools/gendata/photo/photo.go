package photo

import (
	"math"
	"math/rand/v2"

	"shardify/tools/gendata/jpegenc"
)

const tileSide = 512

// Library is what all photographs of a seed are composed of. It is not changed
// after it is made.
type Library struct {
	seed uint64
	tile [tileSide * tileSide]int8
}

// NewLibrary makes the library of a seed.
func NewLibrary(seed uint64) *Library {
	l := &Library{seed: seed}
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range l.tile {
		l.tile[i] = int8(min(max(rng.NormFloat64()*32, -127), 127))
	}
	return l
}

// Spec is what a photograph is like.
type Spec struct {
	Width, Height int
	Model         jpegenc.Model
	Sub           jpegenc.Subsampling
	Options       jpegenc.Options
	// Number tells photographs of a seed apart.
	Number uint64
}

// Spec draws the specification of a photograph.
func (l *Library) Spec(number uint64) Spec {
	return Spec{Width: 500, Height: 375, Options: jpegenc.Options{Quality: 96, Optimize: true}, Number: number}
}

// Painter paints photographs, for one goroutine.
type Painter struct{ lib *Library }

// NewPainter returns a painter.
func (l *Library) NewPainter() *Painter { return &Painter{lib: l} }

// Paint returns the picture of a specification.
func (p *Painter) Paint(s *Spec) *jpegenc.Picture {
	rng := rand.New(rand.NewPCG(p.lib.seed, s.Number))
	pic := jpegenc.NewPicture(s.Width, s.Height, s.Model, s.Sub)
	off := rng.IntN(tileSide * tileSide)
	for c := range pic.Planes {
		pl := pic.Planes[c]
		a, b, base := rng.Float64()*80, rng.Float64()*50, 60+rng.Float64()*130
		for i := range pl.Pix {
			x, y := i%pl.Stride, i/pl.Stride
			v := base + a*math.Sin(float64(x)/90)*b/50*math.Cos(float64(y)/70)
			pl.Pix[i] = uint8(min(max(v+float64(p.lib.tile[(off+y*tileSide+x)&(tileSide*tileSide-1)])/8, 0), 255))
		}
	}
	return pic
}
