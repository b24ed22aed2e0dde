package photo

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"shardify/tools/gendata/jpegenc"
)

func clone(p *jpegenc.Picture) *jpegenc.Picture {
	c := *p
	for i := range c.Planes {
		c.Planes[i].Pix = bytes.Clone(p.Planes[i].Pix)
	}
	return &c
}

// A picture depends on its specification only, not on what was painted before.
func TestRepeatable(t *testing.T) {
	lib := NewLibrary()
	used := NewPainter(lib)
	for n := range uint64(12) {
		s := Draw(7, n)
		again := Draw(7, n)
		got := clone(used.Paint(&s))
		want := NewPainter(lib).Paint(&again)
		for i := range s.Model.Planes() {
			if !bytes.Equal(got.Planes[i].Pix, want.Planes[i].Pix) {
				t.Errorf("photograph %d: plane %d depends on the painter's past", n, i)
			}
		}
		other := Draw(8, n)
		other.Width, other.Height, other.Model, other.Sub = s.Width, s.Height, s.Model, s.Sub
		if bytes.Equal(got.Planes[0].Pix, used.Paint(&other).Planes[0].Pix) {
			t.Errorf("photograph %d is the same for another seed", n)
		}
	}
}

// Pictures of every size and model are painted over and over.
func TestEverySample(t *testing.T) {
	p := NewPainter(NewLibrary())
	rng := rand.New(rand.NewPCG(1, 1))
	for n := range uint64(400) {
		s := Draw(3, n)
		s.Width, s.Height = 1+rng.IntN(40), 1+rng.IntN(40)
		if n%20 == 0 {
			s.Width = 1 + rng.IntN(700)
		}
		s.Model = []jpegenc.Model{jpegenc.YCbCr, jpegenc.Gray}[n/3%2]
		if s.Sub = jpegenc.Subsampling(n % 3); s.Model == jpegenc.Gray {
			s.Sub = jpegenc.S444
		}
		pic := p.Paint(&s)
		// A sample that is never painted keeps what the last picture left there.
		first := clone(pic)
		for i := range s.Model.Planes() {
			for j := range pic.Planes[i].Pix {
				pic.Planes[i].Pix[j] ^= 0xff
			}
		}
		for i, second := range p.Paint(&s).Planes {
			if !bytes.Equal(first.Planes[i].Pix, second.Pix) {
				t.Fatalf("%d×%d, model %d, %v: plane %d is not painted whole", s.Width, s.Height, s.Model, s.Sub, i)
			}
		}
		var enc jpegenc.Encoder
		if _, err := enc.Append(nil, pic, &s.Options); err != nil {
			t.Fatal(err)
		}
	}
}

// The mean brightness and colour of many pictures are those of photographs, and few
// samples are clipped.
func TestExposure(t *testing.T) {
	p := NewPainter(NewLibrary())
	var sum [3]float64
	var samples, clipped int
	const pictures = 40
	for n := range uint64(pictures) {
		s := Draw(5, n)
		s.Width, s.Height, s.Model, s.Sub = 160, 120, jpegenc.YCbCr, jpegenc.S444
		for i, plane := range p.Paint(&s).Planes[:3] {
			mean := 0.0
			for _, v := range plane.Pix {
				mean += float64(v)
				samples++
				if v == 0 || v == 255 {
					clipped++
				}
			}
			sum[i] += mean / float64(len(plane.Pix)) / pictures
		}
	}
	for i, want := range []float64{118, 128, 128} {
		if math.Abs(sum[i]-want) > 18 {
			t.Errorf("plane %d has mean %.0f, want about %.0f", i, sum[i], want)
		}
	}
	if share := float64(clipped) / float64(samples); share > 0.06 {
		t.Errorf("%.1f %% of the samples are clipped", 100*share)
	}
}

func BenchmarkPaint(b *testing.B) {
	p := NewPainter(NewLibrary())
	pixels, n := 0, uint64(0)
	for b.Loop() {
		s := Draw(1, n)
		n++
		p.Paint(&s)
		pixels += s.Width * s.Height
	}
	b.SetBytes(int64(pixels / b.N))
}

func BenchmarkLibrary(b *testing.B) {
	for b.Loop() {
		makeLibrary()
	}
}
