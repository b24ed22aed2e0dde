package jpegenc

import (
	"errors"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// Optimal tables are prefix codes of at most 16 bits, without the code of all ones,
// and near the entropy.
func TestOptimal(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for n := range 300 {
		var freq [256]int64
		switch n % 3 {
		case 0: // Fibonacci numbers give codes longer than 16 bits
			a, b := int64(1), int64(1)
			for i := range min(n/3+1, 60) {
				freq[i*7%256] = a
				a, b = b, a+b
			}
		case 1:
			for range n * 10 {
				freq[rng.IntN(n)&rng.IntN(n)&255]++
			}
		default:
			for i := range freq {
				freq[i] = 1 + int64(rng.IntN(1<<(n/12)))
			}
		}
		s := optimal(&freq)
		var codes [256]code
		s.codes(&codes)
		total := 0.0
		for _, f := range freq {
			total += float64(f)
		}
		space, cost := 0, 0.0
		for sym, f := range freq {
			l := int(codes[sym] & 0xff)
			if (f > 0) != (l > 0) {
				t.Fatalf("case %d: symbol %d occurs %d times and has %d bits", n, sym, f, l)
			}
			if l == 0 {
				continue
			}
			space += 1 << (16 - l)
			if l > 16 || bits.OnesCount(uint(codes[sym]>>8)) == l {
				t.Errorf("case %d: symbol %d has code %b of %d bits", n, sym, codes[sym]>>8, l)
			}
			cost += float64(f) * (float64(l) - math.Log2(total/float64(f)))
		}
		// Limited to 16 bits, the Fibonacci numbers need more.
		if cost/total > 1 && n%3 > 0 {
			t.Errorf("case %d: %.2f bits a symbol above the entropy", n, cost/total)
		}
		if space >= 1<<16 {
			t.Errorf("case %d: the codes fill %d of %d", n, space, 1<<16)
		}
	}
}

func TestRefuses(t *testing.T) {
	good := func() *Picture { return NewPicture(20, 10, YCbCr, S420) }
	for name, spoil := range map[string]func(*Picture, *Options){
		"no width":          func(p *Picture, _ *Options) { p.Width = 0 },
		"too high":          func(p *Picture, _ *Options) { p.Height = 65536 },
		"short plane":       func(p *Picture, _ *Options) { p.Planes[2].Pix = p.Planes[2].Pix[1:] },
		"narrow stride":     func(p *Picture, _ *Options) { p.Planes[0].Stride = 19 },
		"subsampled grey":   func(p *Picture, _ *Options) { p.Model = Gray },
		"unknown model":     func(p *Picture, _ *Options) { p.Model = 9 },
		"no fourth plane":   func(p *Picture, _ *Options) { p.Model = YCCK },
		"quality 101":       func(_ *Picture, o *Options) { o.Quality = 101 },
		"negative interval": func(_ *Picture, o *Options) { o.RestartInterval = -1 },
		"long segment":      func(_ *Picture, o *Options) { o.Segments = []Segment{{0xe1, make([]byte, 65534)}} },
		"marker of a scan":  func(_ *Picture, o *Options) { o.Segments = []Segment{{0xda, nil}} },
	} {
		p, o := good(), &Options{}
		spoil(p, o)
		dst := []byte("before")
		got, err := new(Encoder).Append(dst, p, o)
		if err == nil || string(got) != "before" {
			t.Errorf("%s: %v, and %d bytes", name, err, len(got))
		}
		if o.Validate() == nil && !errors.Is(err, ErrPicture) {
			t.Errorf("%s: %v is no ErrPicture", name, err)
		}
	}
	if _, err := new(Encoder).Append(nil, good(), &Options{}); err != nil {
		t.Error(err)
	}
}
