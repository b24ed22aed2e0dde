//go:build linux && (amd64 || arm64) && !nogpu

package gpu

import (
	"errors"
	"os"
	"testing"

	"shardify/imaging/augment"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
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
			const w, h = 500, 375
			src, err := d.Alloc("image", reader.DTypeUint8, benchBatch*w*h*3)
			if err != nil {
				b.Fatal(err)
			}
			offsets, sizes, each, bytes := []int64{0}, []int64{}, make([]Resizing, benchBatch), int64(benchBytes)
			for i := range each {
				r := augment.NewRand(1, 0, uint64(i))
				each[i] = Resizing{Crop: augment.RandomResizedCrop{}.Draw(&r, w, h), Width: benchSide, Height: benchSide, Filter: filter}
				offsets, sizes = append(offsets, int64(i+1)*w*h*3), append(sizes, h, w)
				bytes += 3 * int64(each[i].Crop.Width) * int64(each[i].Crop.Height)
			}
			images, err := Ragged(src, offsets, sizes)
			if err != nil {
				b.Fatal(err)
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
			b.SetBytes(bytes)
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

// BenchmarkAugment is rotation, jitter and flip of every image.
func BenchmarkAugment(b *testing.B) {
	var made []Tensor
	var g *Augmenter
	each := make([]Augmentation, benchBatch)
	for i := range each {
		r := augment.NewRand(1, 0, uint64(i))
		jitter := augment.ColorJitter{Brightness: augment.GainOf(0.4), Contrast: augment.GainOf(0.4), Saturation: augment.GainOf(0.4), Hue: augment.Spread{-0.1, 0.1}}.Draw(&r, benchSide, benchSide)
		each[i] = Augmentation{FlipX: i%2 == 0, Matrix: augment.RandomRotation{Degrees: augment.Spread{-30, 30}}.Draw(&r, benchSide, benchSide).Matrix, Ops: jitter[:]}
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
}
