package photo

import (
	"math"
	"math/rand/v2"

	"shardify/tools/gendata/jpegenc"
)

// Spec is what a photograph is like.
type Spec struct {
	Width, Height int
	Model         jpegenc.Model // YCbCr or Gray
	Sub           jpegenc.Subsampling
	Options       jpegenc.Options
	// Detail multiplies the contrast of textures; 1 is the median.
	Detail float64
	// Noise is the standard deviation of the sensor's noise, of 255.
	Noise float64
	// Studio tells that the background is a backdrop without detail or noise.
	Studio bool
	// Seed and Number tell scenes apart.
	Seed, Number uint64
}

// Draw draws the specification of a photograph of a seed.
func Draw(seed, number uint64) Spec {
	rng := rand.New(rand.NewPCG(seed, number<<1))
	s := Spec{Seed: seed, Number: number}
	s.Options = jpegenc.Options{Optimize: rng.Float64() < 0.972}
	if rng.Float64() < 0.66 {
		s.scaled(rng)
	} else {
		s.found(rng)
	}
	s.segments(rng)
	return s
}

// scaled is a photograph that was scaled down to 500 pixels by the collectors.
func (s *Spec) scaled(rng *rand.Rand) {
	s.Options.Quality = 96
	if rng.Float64() < 0.02 {
		s.Model = jpegenc.Gray
	}
	var short int
	switch u := rng.Float64(); {
	case u < 0.44:
		short = 375
	case u < 0.70:
		short = 332 + rng.IntN(3)
	case u < 0.73:
		short = 500
	default:
		short = min(max(int(360+50*rng.NormFloat64()), 250), 500)
	}
	s.orient(rng, 500, short, 0.75)
	s.content(rng, 1.12)
}

// found is a photograph that is kept as it was on the web.
func (s *Spec) found(rng *rand.Rand) {
	s.Options.Quality = qualities[rng.IntN(len(qualities))]
	switch u := rng.Float64(); {
	case u < 0.26:
		s.Sub = jpegenc.S444
	case u < 0.28:
		s.Sub = jpegenc.S422
	default:
		s.Sub = jpegenc.S420
	}
	var long int
	if rng.Float64() < 0.5 {
		long = []int{500, 500, 500, 400, 400, 600, 600, 640, 800, 300}[rng.IntN(10)]
	} else {
		long = min(max(int(400*math.Exp(0.6*rng.NormFloat64())), 110), 1600)
	}
	ratio := 0.75
	switch u := rng.Float64(); {
	case u < 0.45:
	case u < 0.65:
		ratio = 2.0 / 3
	default:
		ratio = min(max(0.8+0.13*rng.NormFloat64(), 0.45), 1)
	}
	s.orient(rng, long, int(float64(long)*ratio+0.5), 0.72)
	s.content(rng, 0.85)
}

// content draws how much there is to see.
func (s *Spec) content(rng *rand.Rand, detail float64) {
	s.Detail = detail * math.Exp(0.55*rng.NormFloat64())
	s.Noise = min(0.75*math.Exp(0.8*rng.NormFloat64()), 3.5)
	if rng.Float64() < 0.12 {
		s.Studio = true
		s.Noise = 0.1
	}
}

func (s *Spec) orient(rng *rand.Rand, long, short int, landscape float64) {
	s.Width, s.Height = long, short
	if rng.Float64() >= landscape {
		s.Width, s.Height = short, long
	}
}

// qualities is those of the photographs that were not scaled, each as often as it
// occurs.
var qualities = expand([][2]int{
	{60, 3}, {68, 1}, {69, 3}, {70, 3}, {75, 18}, {78, 1}, {80, 11}, {82, 4}, {84, 2}, {85, 7}, {86, 4}, {90, 3},
	{91, 4}, {92, 7}, {93, 1}, {94, 2}, {95, 2}, {99, 4}, {100, 2},
})

func expand(counts [][2]int) (values []int) {
	for _, c := range counts {
		for range c[1] {
			values = append(values, c[0])
		}
	}
	return values
}

// segments adds what editors and colour management leave in files: in a quarter of
// them three kilobytes, in a few of them twenty.
func (s *Spec) segments(rng *rand.Rand) {
	size := 0
	switch u := rng.Float64(); {
	case u < 0.25:
		size = 3144
	case u < 0.32:
		size = 5000 + rng.IntN(20000)
	}
	if size > 0 {
		// One Photoshop resource, of a plug-in, without a name.
		data := append([]byte("Photoshop 3.0\x008BIM"), 0x0f, 0xa0, 0, 0, 0, 0, byte(size>>8), byte(size))
		for range size {
			data = append(data, byte(rng.Uint32()))
		}
		if size%2 == 1 {
			data = append(data, 0)
		}
		s.Options.Segments = append(s.Options.Segments, jpegenc.Segment{Marker: 0xed, Data: data})
	}
	if rng.Float64() < 0.1 {
		s.Options.Segments = append(s.Options.Segments, jpegenc.Comment("a generated photograph"))
	}
}
