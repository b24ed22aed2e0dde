//go:build linux && (amd64 || arm64) && !nogpu

package gpu

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shardify/imaging/augment"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
	"shardify/imaging/transform"
	"shardify/reader"
)

// BenchmarkFloors measures the floors of docs/gpu.md; these are of single kernels.

// card is the machine's GPU; the double of the driver has no speed worth knowing.
func card(b *testing.B) *Device {
	if os.Getenv("SHARDIFY_GPU") != "require" {
		b.Skip("SKIPPED LOUDLY: needs an NVIDIA card; `make bench-gpu` runs it there")
	}
	return device(b)
}

const benchBatch, benchSide = 256, 224

// pinnedBatch is a batch of bytes that is never given back.
type pinnedBatch struct{ data []byte }

func (p pinnedBatch) Tensors() []reader.Tensor {
	return []reader.Tensor{{Name: "image", DType: reader.DTypeUint8, Shape: []int{benchBatch, benchSide, benchSide, 3}, Data: p.data}}
}

func (p pinnedBatch) Release() {}

// pinnedBatches are as many as a ring may have on their way, and one more.
func pinnedBatches(b *testing.B, d *Device) []pinnedBatch {
	p := d.Pinned(PinnedConfig{})
	var all []pinnedBatch
	for range 4 {
		data, err := p.Alloc(benchBatch * benchSide * benchSide * 3)
		if err != nil {
			b.Fatal(err)
		}
		for i := range data {
			data[i] = byte(i * 7919 >> 3)
		}
		all = append(all, pinnedBatch{data})
	}
	b.Cleanup(func() {
		for _, x := range all {
			p.Free(x.data)
		}
		if err := errors.Join(p.Close(), d.Close()); err != nil {
			b.Error(err)
		}
	})
	return all
}

// onCard puts work into a stream as often as b asks for; bytes are those that it reads and
// writes. Batches take turns, so that none is in the cache of the card.
func onCard(b *testing.B, bytes int64, work func(d *Device, src Tensor, s Stream, i int) error) {
	d := card(b)
	var sources []Tensor
	for _, x := range pinnedBatches(b, d) {
		t, err := d.Alloc("image", reader.DTypeUint8, benchBatch, benchSide, benchSide, 3)
		if err == nil {
			err = errors.Join(d.Upload(t.Data, x.data, 0), d.Synchronize(0))
		}
		if err != nil {
			b.Fatal(err)
		}
		sources = append(sources, t)
	}
	s, err := d.NewStream()
	if err == nil {
		err = errors.Join(work(d, sources[0], s, 0), d.Synchronize(s)) // the kernel is compiled
	}
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(bytes)
	b.ResetTimer()
	for i := range b.N {
		if err := work(d, sources[i%len(sources)], s, i); err != nil {
			b.Fatal(err)
		}
	}
	if err := d.Synchronize(s); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	for _, t := range sources {
		err = errors.Join(err, d.Free(t))
	}
	if err = errors.Join(err, d.DestroyStream(s)); err != nil {
		b.Error(err)
	}
}

const benchBytes = benchBatch * benchSide * benchSide * 3

// results are two tensors that take turns.
func results(b *testing.B, d *Device, made *[]Tensor, dtype reader.DType, shape ...int) []Tensor {
	for len(*made) < 2 {
		t, err := d.Alloc("out", dtype, shape...)
		if err != nil {
			b.Fatal(err)
		}
		*made = append(*made, t)
		b.Cleanup(func() {
			if err := d.Free(t); err != nil {
				b.Error(err)
			}
		})
	}
	return *made
}

// BenchmarkDeviceCopy is the card's own copy, of as much as Normalize to float32 moves.
func BenchmarkDeviceCopy(b *testing.B) {
	var made []Tensor
	const n = benchBytes * 5 / 2
	onCard(b, 2*n, func(d *Device, _ Tensor, s Stream, i int) error {
		t := results(b, d, &made, reader.DTypeUint8, n)
		return d.context.Copy(t[i%2].Data, t[1-i%2].Data, n, s)
	})
}

// BenchmarkNormalize counts the bytes that it reads and writes, as BenchmarkDeviceCopy does.
func BenchmarkNormalize(b *testing.B) {
	for _, dtype := range []reader.DType{reader.DTypeFloat32, reader.DTypeBFloat16} {
		for _, layout := range []reader.Layout{reader.LayoutNCHW, reader.LayoutNHWC} {
			b.Run(string(dtype)+"/"+layout.String(), func(b *testing.B) {
				var made []Tensor
				shape := []int{benchBatch, 3, benchSide, benchSide}
				if layout == reader.LayoutNHWC {
					shape = []int{benchBatch, benchSide, benchSide, 3}
				}
				c := NormalizeConfig{Layout: layout, Normalize: tensor.ImageNet}
				onCard(b, benchBytes*int64(1+dtype.Size()), func(d *Device, src Tensor, s Stream, i int) error {
					return d.Normalize(results(b, d, &made, dtype, shape...)[i%2], src, c, s)
				})
			})
		}
	}
}

// benchCrop is what RandomResizedCrop draws for image i.
func benchCrop(i, width, height int) augment.Region {
	r := augment.NewRand(1, 0, uint64(i))
	return augment.RandomResizedCrop{}.Draw(&r, width, height)
}

// photographs are a batch of images of 500 x 375 pixels, and how many bytes their crops have.
func photographs(b *testing.B, d *Device) (src Tensor, images []Image, bytes int64) {
	const w, h = 500, 375
	src, err := d.Alloc("image", reader.DTypeUint8, benchBatch*w*h*3)
	if err != nil {
		b.Fatal(err)
	}
	offsets, sizes := []int64{0}, []int64{}
	for i := range benchBatch {
		offsets, sizes = append(offsets, int64(i+1)*w*h*3), append(sizes, h, w)
		g := benchCrop(i, w, h)
		bytes += 3 * int64(g.Width) * int64(g.Height)
	}
	if images, err = Ragged(src, offsets, sizes); err != nil {
		b.Fatal(err)
	}
	return src, images, bytes
}

// BenchmarkResize is RandomResizedCrop of images of 500 x 375 pixels to 224 x 224, under the
// filter of its name: what it reads of them, and what it writes.
func BenchmarkResize(b *testing.B) {
	for _, filter := range []resize.Filter{resize.Bilinear, resize.Bicubic} {
		b.Run(filter.String(), func(b *testing.B) {
			d := card(b)
			b.Cleanup(func() {
				if err := d.Close(); err != nil {
					b.Error(err)
				}
			})
			src, images, bytes := photographs(b, d)
			each := make([]Resizing, benchBatch)
			for i, m := range images {
				each[i] = Resizing{Crop: benchCrop(i, m.Width, m.Height), Width: benchSide, Height: benchSide, Filter: filter}
			}
			z, err := d.NewResizer(ResizerConfig{Images: benchBatch})
			if err != nil {
				b.Fatal(err)
			}
			var made []Tensor
			out := results(b, d, &made, reader.DTypeUint8, benchBatch, benchSide, benchSide, 3)
			s, err := d.NewStream()
			if err == nil {
				err = errors.Join(z.Apply(out[0], images, each, s), d.Synchronize(s))
			}
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(bytes + benchBytes)
			b.ResetTimer()
			for i := range b.N {
				if err := z.Apply(out[i%2], images, each, s); err != nil {
					b.Fatal(err)
				}
			}
			if err := d.Synchronize(s); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := errors.Join(d.DestroyStream(s), z.Close(), d.Free(src)); err != nil {
				b.Error(err)
			}
		})
	}
}

// BenchmarkPipeline makes batches for a model of images of 500 x 375 pixels: what it reads
// of them, and what it writes at the end.
func BenchmarkPipeline(b *testing.B) {
	for _, x := range []struct {
		name string
		list transform.List
	}{
		{"crop", transform.List{transform.RandomResizedCrop{Size: transform.Size{benchSide}}, transform.RandomHorizontalFlip{}, transform.ImageNet}},
		{"jitter", transform.List{
			transform.RandomResizedCrop{Size: transform.Size{benchSide}}, transform.RandomHorizontalFlip{},
			transform.ColorJitter{Brightness: augment.GainOf(0.4), Contrast: augment.GainOf(0.4), Saturation: augment.GainOf(0.4), Hue: augment.Spread{-0.1, 0.1}}, transform.ImageNet,
		}},
		{"randaugment", transform.List{transform.RandomResizedCrop{Size: transform.Size{benchSide}}, transform.RandomHorizontalFlip{}, transform.RandAugment{}, transform.ImageNet}},
	} {
		b.Run(x.name, func(b *testing.B) {
			d := card(b)
			b.Cleanup(func() {
				if err := d.Close(); err != nil {
					b.Error(err)
				}
			})
			src, images, bytes := photographs(b, d)
			p, err := d.NewPipeline(PipelineConfig{BatchSize: benchBatch, Transform: x.list, DType: reader.DTypeFloat32})
			if err != nil {
				b.Fatal(err)
			}
			random := make([]augment.Rand, benchBatch)
			for i := range random {
				random[i] = augment.NewRand(1, 0, uint64(i))
			}
			var made []Tensor
			out := results(b, d, &made, p.DType(), p.Shape(benchBatch)...)
			s, err := d.NewStream()
			if err == nil {
				err = errors.Join(p.Apply(out[0], images, random, nil, s), d.Synchronize(s))
			}
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(bytes + out[0].Bytes)
			b.ResetTimer()
			for i := range b.N {
				if err := p.Apply(out[i%2], images, random, nil, s); err != nil {
					b.Fatal(err)
				}
			}
			if err := d.Synchronize(s); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := errors.Join(d.DestroyStream(s), p.Close(), d.Free(src)); err != nil {
				b.Error(err)
			}
		})
	}
}

// BenchmarkAugment augments every image, by what its name says: colour is rotation, jitter and
// flip; blur is SimCLR's, of 23 pixels; levels is equalise.
func BenchmarkAugment(b *testing.B) {
	for _, x := range []struct {
		name string
		draw func(r *augment.Rand, i int) Augmentation
	}{
		{"flip", func(_ *augment.Rand, i int) Augmentation { return Augmentation{FlipX: i%2 == 0} }},
		{"colour", func(r *augment.Rand, i int) Augmentation {
			jitter := augment.ColorJitter{Brightness: augment.GainOf(0.4), Contrast: augment.GainOf(0.4), Saturation: augment.GainOf(0.4), Hue: augment.Spread{-0.1, 0.1}}.Draw(r, benchSide, benchSide)
			return Augmentation{
				FlipX: i%2 == 0, Ops: jitter[:], Interpolation: augment.Bilinear,
				Matrix: augment.RandomRotation{Degrees: augment.Spread{-30, 30}}.Draw(r, benchSide, benchSide).Matrix,
			}
		}},
		{"blur", func(r *augment.Rand, _ int) Augmentation {
			return Augmentation{Ops: []augment.Op{augment.GaussianBlur{}.Draw(r, benchSide, benchSide)}}
		}},
		{"levels", func(*augment.Rand, int) Augmentation {
			return Augmentation{Ops: []augment.Op{{Kind: augment.Equalize}}}
		}},
	} {
		b.Run(x.name, func(b *testing.B) {
			var made []Tensor
			var g *Augmenter
			each := make([]Augmentation, benchBatch)
			for i := range each {
				r := augment.NewRand(1, 0, uint64(i))
				each[i] = x.draw(&r, i)
			}
			onCard(b, 2*benchBytes, func(d *Device, src Tensor, s Stream, i int) error {
				if g == nil {
					var err error
					if g, err = d.NewAugmenter(AugmenterConfig{Images: benchBatch, Width: benchSide, Height: benchSide}); err != nil {
						return err
					}
					b.Cleanup(func() {
						if err := g.Close(); err != nil {
							b.Error(err)
						}
					})
				}
				return g.Apply(results(b, d, &made, reader.DTypeUint8, benchBatch, benchSide, benchSide, 3)[i%2], src, each, s)
			})
		})
	}
}

// BenchmarkPinned takes a slab of 256 MiB in each of three ways, writes it, uploads it and
// gives it back: as the driver pins memory of its own, which is what Pinned does; mapped and
// registered; and that on huge pages where the system allows them.
func BenchmarkPinned(b *testing.B) {
	const n = 256 << 20
	mapped := func(huge bool) func(d *Device) ([]byte, func() error, error) {
		return func(d *Device) ([]byte, func() error, error) {
			data, err := mapMemory(n)
			if err == nil && huge {
				err = unix.Madvise(data, unix.MADV_HUGEPAGE)
			}
			if err != nil {
				return nil, nil, err
			}
			unpin, err := d.Pin(data)
			if err != nil {
				return nil, nil, err
			}
			return data, func() error { return errors.Join(unpin(), unmapMemory(data)) }, nil
		}
	}
	for _, c := range []struct {
		name string
		take func(d *Device) ([]byte, func() error, error)
	}{
		{"allocated", func(d *Device) ([]byte, func() error, error) {
			data, err := d.context.AllocHost(n)
			return data, func() error { return d.context.FreeHost(data) }, err
		}},
		{"registered", mapped(false)}, {"huge", mapped(true)},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := card(b)
			dst, err := d.Alloc("slab", reader.DTypeUint8, n)
			if err != nil {
				b.Fatal(err)
			}
			var took, wrote, copied time.Duration
			for b.Loop() {
				start := time.Now()
				data, free, err := c.take(d)
				if err != nil {
					b.Fatal(err)
				}
				took += time.Since(start)
				start = time.Now()
				for i := 0; i < n; i += 64 {
					data[i] = byte(i >> 6)
				}
				wrote += time.Since(start)
				start = time.Now()
				if err := errors.Join(d.Upload(dst.Data, data, 0), d.Synchronize(0)); err != nil {
					b.Fatal(err)
				}
				copied += time.Since(start)
				if err := free(); err != nil {
					b.Fatal(err)
				}
			}
			times := float64(b.N)
			b.ReportMetric(took.Seconds()*1e3/times, "ms/take")
			b.ReportMetric(wrote.Seconds()*1e3/times, "ms/write")
			b.ReportMetric(n*times/copied.Seconds()/1e9, "GB/s")
			if err := errors.Join(d.Free(dst), d.Close()); err != nil {
				b.Error(err)
			}
		})
	}
}
