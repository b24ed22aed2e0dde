package jpeg

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"shardify/imaging/internal/raster"
	"shardify/imaging/resize"
)

// BenchmarkDecode decodes photographs in batches of 24: whole, and RandomResizedCrop
// regions, to RGB and scaled to 224 x 224; with seek points of rows, and of every 8
// MCUs.
func BenchmarkDecode(b *testing.B) {
	const batch = 24
	var d Decoder
	var files [][]byte
	var crops []Options
	var rows, fine []*Seek
	r := rand.New(rand.NewPCG(1, 2))
	for _, name := range photographs(b) {
		data, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		h, err := ReadHeader(data)
		if err != nil {
			b.Fatal(err)
		}
		files, crops = append(files, data), append(crops, crop(r, h.Width, h.Height))
		for every, to := range map[int]*[]*Seek{0: &rows, 8: &fine} {
			s, err := d.MakeSeek(data, every)
			if err != nil {
				b.Fatal(err)
			}
			*to = append(*to, s)
		}
	}
	images := make([]raster.Image, batch)
	scaled := make([]uint8, batch*3*224*224)
	for _, c := range []struct {
		name         string
		region, size bool
		seek         []*Seek
	}{
		{"whole", false, false, nil},
		{"whole,rows", false, false, rows},
		{"crop", true, false, nil},
		{"crop,rows", true, false, rows},
		{"crop,every8", true, false, fine},
		{"crop224", true, true, nil},
		{"crop224,rows", true, true, rows},
		{"crop224,every8", true, true, fine},
	} {
		b.Run(c.name, func(b *testing.B) {
			n := 0
			jobs := make([]Job, batch)
			for b.Loop() {
				for i := range jobs {
					k := n % len(files)
					n++
					jobs[i] = Job{Data: files[k]}
					j := &jobs[i]
					if c.region {
						j.Options = crops[k]
					}
					if c.seek != nil {
						j.Seek = c.seek[k]
					}
					if !c.size {
						j.Image = &images[i]
						continue
					}
					j.Task = resize.Task{Width: 224, Height: 224, Part: resize.Rect{X1: float64(j.Width), Y1: float64(j.Height)}}
					j.Target = resize.Target{Width: 224, Height: 224, Uint8: scaled[i*3*224*224:][:3*224*224]}
				}
				d.DecodeAll(jobs)
				for i := range jobs {
					if jobs[i].Err != nil {
						b.Fatal(jobs[i].Err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n), "µs/image")
		})
	}
}

// crop is torchvision's RandomResizedCrop.get_params: scale 0.08 to 1, ratio 3/4 to
// 4/3.
func crop(r *rand.Rand, width, height int) Options {
	for range 10 {
		area := float64(width*height) * (0.08 + 0.92*r.Float64())
		ratio := math.Exp(math.Log(4.0/3) * (2*r.Float64() - 1))
		w, h := int(math.Round(math.Sqrt(area*ratio))), int(math.Round(math.Sqrt(area/ratio)))
		if w > 0 && w <= width && h > 0 && h <= height {
			return Options{X: r.IntN(width - w + 1), Y: r.IntN(height - h + 1), Width: w, Height: h}
		}
	}
	side := min(width, height)
	return Options{X: (width - side) / 2, Y: (height - side) / 2, Width: side, Height: side}
}
