package pixel

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"shardify/imaging/jpeg/internal/blocks"
	"shardify/imaging/jpeg/internal/entropy"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
	"shardify/internal/peers"
	"shardify/internal/simd"
)

// photo is a photograph's coefficients and a random crop of it.
type photo struct {
	name   string
	frame  blocks.Frame
	strips []blocks.Strip
	spec   Spec
}

// photographs reads as many colour photographs as asked for, of up to 640 pixels a
// side.
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
		p := photo{name: name, frame: d.Frame}
		x, y := p.frame.MCUs()
		if err := d.Begin(blocks.Window{X1: x, Y1: y}, nil); err != nil {
			b.Fatal(err)
		}
		c := &collector{d: &d, p: &p}
		new(entropy.Group).Decode(c)
		if c.err != nil {
			b.Fatal(c.err)
		}
		p.frame = d.Frame       // with its quantisation
		if len(p.strips) != y { // a progressive one
			continue
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

// collector is a source of one file, whose strips it copies.
type collector struct {
	d    *entropy.Decoder
	p    *photo
	done bool
	err  error
}

func (c *collector) Next() (int, *entropy.Decoder) {
	if c.done {
		return 0, nil
	}
	c.done = true
	return 0, c.d
}

func (c *collector) Strip(_ int, s *blocks.Strip) error {
	t := *s
	for i := range c.p.frame.N {
		t.Plane[i].Coef = slices.Clone(s.Plane[i].Coef)
	}
	c.p.strips = append(c.p.strips, t)
	return nil
}

func (c *collector) End(_ int, err error) { c.err = err }

// crop is roughly torchvision's RandomResizedCrop(224).
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

// BenchmarkCrop is crops to 224 x 224 from blocks; of the images in turn, so that
// their coefficients come from memory.
func BenchmarkCrop(b *testing.B) {
	photos := photographs(b, 100)
	pix, floats := make([]uint8, 3*224*224), make([]float32, 3*224*224)
	table := tensor.ImageNet.Table()
	for _, c := range []struct {
		name   string
		target resize.Target
	}{
		{"NCHW", resize.Target{Width: 224, Height: 224, Uint8: pix}},
		{"NHWC", resize.Target{Width: 224, Height: 224, Layout: tensor.NHWC, Uint8: pix}},
		{"float32", resize.Target{Width: 224, Height: 224, Float32: floats, Table: table}},
	} {
		for _, level := range simd.All() {
			b.Run(c.name+"/"+level.String(), func(b *testing.B) {
				d := Decoder{level: level + 1}
				i := 0
				b.ReportAllocs()
				for b.Loop() {
					p := &photos[i%len(photos)]
					p.decode(b, &d, p.spec, c.target)
					i++
				}
			})
		}
	}
}

// BenchmarkFull is whole images from blocks to RGB, by the size of a block.
func BenchmarkFull(b *testing.B) {
	photos := photographs(b, 100)
	pix := make([]uint8, 3*640*640)
	for _, size := range []int{8, 4, 2, 1} {
		for _, level := range simd.All() {
			b.Run(fmt.Sprint(size, "/", level), func(b *testing.B) {
				d := Decoder{level: level + 1}
				i := 0
				for b.Loop() {
					p := &photos[i%len(photos)]
					w, h := Scaled(p.frame.Width, size), Scaled(p.frame.Height, size)
					p.decode(b, &d, Spec{Size: size}, resize.Target{Width: w, Height: h, Layout: tensor.NHWC, Uint8: pix[:3*w*h]})
					i++
				}
			})
		}
	}
}

// BenchmarkPeers compares, in one run, crops to 224 x 224 from blocks with
// libjpeg-turbo's second half of as large a part of the image and Pillow's crop and
// resize; and whole images to RGB with libjpeg-turbo's second half. Of each image
// the least of many rounds counts, so that other work on the machine does not.
func BenchmarkPeers(b *testing.B) {
	const rounds = 25
	photos := photographs(b, 60)
	var names, crops strings.Builder
	for i := range photos {
		p := &photos[i]
		fmt.Fprintln(&names, p.name)
		fmt.Fprintln(&crops, p.spec.X, p.spec.Y, p.spec.X+p.spec.Width, p.spec.Y+p.spec.Height, p.name)
	}
	bin := filepath.Join(b.TempDir(), "secondhalf")
	if out, err := exec.Command(peers.Program(b, "gcc"), "-O2", "-o", bin, "testdata/secondhalf.c", "-ljpeg").CombinedOutput(); err != nil {
		b.Skipf("no libjpeg to compile with: %v\n%s", err, out)
	}
	second := numbers(b, names.String(), len(photos), bin, fmt.Sprint(rounds))
	scaled := numbers(b, crops.String(), len(photos), peers.Python(b), "-c", `
import sys, time
from PIL import Image
for line in sys.stdin:
    *box, name = line.rstrip("\n").split(" ", 4)
    box = tuple(map(int, box))
    im = Image.open(name).convert("RGB")
    best = 1e12
    for _ in range(int(sys.argv[1])):
        t = time.perf_counter()
        im.crop(box).resize((224, 224), Image.Resampling.BILINEAR)
        best = min(best, time.perf_counter() - t)
    print(best * 1e6, flush=True)
`, fmt.Sprint(rounds))
	var theirsCrop, theirsFull float64
	for i := range photos {
		p := &photos[i]
		part := float64(p.spec.Width*p.spec.Height) / float64(p.frame.Width*p.frame.Height)
		theirsCrop += second[i]*part + scaled[i]
		theirsFull += second[i]
	}
	pix := make([]uint8, 3*640*640)
	for _, level := range simd.All()[1:] {
		b.Run(level.String(), func(b *testing.B) {
			d := Decoder{level: level + 1}
			var crops, fulls time.Duration
			for b.Loop() {
				crops, fulls = 0, 0
				for i := range photos {
					p := &photos[i]
					least := [2]time.Duration{time.Hour, time.Hour}
					for range rounds {
						start := time.Now()
						p.decode(b, &d, p.spec, resize.Target{Width: 224, Height: 224, Uint8: pix[:3*224*224]})
						middle := time.Now()
						p.decode(b, &d, Spec{}, resize.Target{Width: p.frame.Width, Height: p.frame.Height, Layout: tensor.NHWC, Uint8: pix[:3*p.frame.Width*p.frame.Height]})
						least[0], least[1] = min(least[0], middle.Sub(start)), min(least[1], time.Since(middle))
					}
					crops, fulls = crops+least[0], fulls+least[1]
				}
			}
			each := float64(len(photos)) * 1000
			b.ReportMetric(float64(crops)/each, "µs/crop")
			b.ReportMetric(float64(fulls)/each, "µs/full")
			b.ReportMetric(theirsCrop/float64(len(photos)), "peers-µs/crop")
			b.ReportMetric(theirsFull/float64(len(photos)), "peers-µs/full")
			b.ReportMetric(theirsCrop*1000/float64(crops), "x-crop")
			b.ReportMetric(theirsFull*1000/float64(fulls), "x-full")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// numbers runs a program and reads the numbers it prints.
func numbers(b *testing.B, in string, n int, name string, args ...string) []float64 {
	b.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.Stderr = strings.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatal(err)
	}
	var numbers []float64
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		var v float64
		if _, err := fmt.Sscan(s.Text(), &v); err != nil {
			b.Fatal(err)
		}
		numbers = append(numbers, v)
	}
	if len(numbers) != n {
		b.Fatalf("%d numbers; want %d", len(numbers), n)
	}
	return numbers
}
