package pixel

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"shardify/imaging/jpeg/internal/blocks"
	"shardify/imaging/jpeg/internal/entropy"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
	"shardify/internal/peers"
	"shardify/internal/simd"
)

// photo is a photograph's coefficients and a random crop of it.
type photo struct {
	frame  blocks.Frame
	strips []blocks.Strip
	spec   Spec
}

// photographs reads as many photographs as asked for, of up to 640 pixels a side.
func photographs(b *testing.B, n int) []photo {
	b.Helper()
	files, err := filepath.Glob(filepath.Join(peers.Photographs(b), "*"))
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(25, 26))
	var photos []photo
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		var d entropy.Decoder
		if d.ReadHeader(data) != nil || d.Supported() != nil || d.Frame.Width > 640 || d.Frame.Height > 640 || d.Frame.N != 3 {
			continue
		}
		p := photo{frame: d.Frame}
		x, y := p.frame.MCUs()
		if err := d.Begin(blocks.Window{X1: x, Y1: y}); err != nil {
			b.Fatal(err)
		}
		for {
			s, err := d.Next()
			if err != nil {
				b.Fatal(err)
			}
			if s == nil {
				break
			}
			c := *s
			for i := range d.Frame.N {
				c.Plane[i].Coef = append([]int16(nil), s.Plane[i].Coef...)
			}
			p.strips = append(p.strips, c)
		}
		p.spec = crop(r, p.frame.Width, p.frame.Height)
		if photos = append(photos, p); len(photos) == n {
			break
		}
	}
	if len(photos) == 0 {
		b.Skip("no photographs")
	}
	return photos
}

// crop is torchvision's RandomResizedCrop(224), roughly.
func crop(r *rand.Rand, w, h int) Spec {
	area := (0.08 + 0.92*r.Float64()) * float64(w*h)
	cw := min(w, max(1, int(math.Sqrt(area*(0.75+0.58*r.Float64())))))
	ch := min(h, max(1, int(area/float64(cw))))
	return Spec{
		X: r.IntN(w - cw + 1), Y: r.IntN(h - ch + 1), Width: cw, Height: ch,
		Task: resize.Task{Part: resize.Rect{X1: float64(cw), Y1: float64(ch)}, Width: 224, Height: 224},
	}
}

func (p *photo) decode(b *testing.B, d *Decoder, s Spec, target resize.Target) {
	w, err := d.Begin(&p.frame, s, target)
	if err != nil {
		b.Fatal(err)
	}
	for i := w.Y0; i < w.Y1; i++ {
		if err := d.Strip(&p.strips[i]); err != nil {
			b.Fatal(err)
		}
	}
}

// Images in turn: their coefficients come from memory, as from a decoder that is a
// batch ahead at the worst.
func BenchmarkCrop(b *testing.B) {
	photos := photographs(b, 100)
	for _, layout := range []tensor.Layout{tensor.NCHW, tensor.NHWC} {
		for _, level := range simd.All() {
			b.Run(layout.String()+"/"+level.String(), func(b *testing.B) {
				d := Decoder{level: level + 1}
				target := resize.Target{Width: 224, Height: 224, Layout: layout, Uint8: make([]uint8, 3*224*224)}
				b.ReportAllocs()
				for b.Loop() {
					for i := range photos {
						photos[i].decode(b, &d, photos[i].spec, target)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(photos)), "µs/image")
			})
		}
	}
}

func BenchmarkFull(b *testing.B) {
	photos := photographs(b, 100)
	for _, level := range simd.All() {
		b.Run(level.String(), func(b *testing.B) {
			d := Decoder{level: level + 1}
			pix := make([]uint8, 3*640*640)
			for b.Loop() {
				for i := range photos {
					f := &photos[i].frame
					photos[i].decode(b, &d, Spec{}, resize.Target{Width: f.Width, Height: f.Height, Layout: tensor.NHWC, Uint8: pix[:3*f.Width*f.Height]})
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(photos)), "µs/image")
		})
	}
}
