package gpu_test

import (
	"context"
	"iter"
	"log"

	"shardify/gpu"
	"shardify/imaging/augment"
	"shardify/imaging/transform"
	"shardify/reader"
)

// The reader decodes, and the GPU does the rest: the transforms, the normalisation, MixUp.
func ExampleSplit() {
	ctx := context.Background()
	device, err := gpu.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	pinned := device.Pinned(gpu.PinnedConfig{})
	// All that is to become of the images, as a reader alone would do it.
	config := reader.Config{
		BatchSize: 256, Seed: 1, DType: reader.DTypeFloat32, Slabs: pinned,
		Transform: transform.List{
			transform.RandomResizedCrop{Size: transform.Size{224}}, transform.RandomHorizontalFlip{},
			transform.RandAugment{}, transform.ImageNet,
		},
		MixUp: &augment.MixUp{Alpha: 0.2},
	}
	host, onCard, err := gpu.Split(config)
	if err != nil {
		log.Fatal(err)
	}
	r, err := reader.Open(ctx, "/data/imagenet-shards", host)
	if err != nil {
		log.Fatal(err)
	}
	p, err := device.NewPipeline(onCard)
	if err != nil {
		log.Fatal(err)
	}
	stream, err := device.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	dst, err := device.Alloc("image", p.DType(), p.Shape(256)...)
	if err != nil {
		log.Fatal(err)
	}
	epoch := func(ctx context.Context) iter.Seq2[*reader.Batch, error] { return r.Epoch(ctx, 0) }
	for b, err := range gpu.Prefetch(ctx, device, epoch, gpu.PrefetchConfig{}) {
		if err != nil {
			log.Fatal(err)
		}
		images, err := b.Images()
		if err != nil {
			log.Fatal(err)
		}
		if err := b.Wait(stream); err != nil {
			log.Fatal(err)
		}
		blend := p.Blend(b.Epoch, b.Number) // and so are the labels blended
		if err := p.Apply(dst, images, b.Random, blend, stream); err != nil {
			log.Fatal(err)
		}
		// Put the model's step on dst into the stream, and then:
		if err := b.Release(stream); err != nil {
			log.Fatal(err)
		}
	}
}
