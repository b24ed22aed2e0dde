package reader_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"shardify/dataset/datasettest"
	"shardify/imaging/transform"
	"shardify/reader"
	"shardify/store/file"
)

// packed is a data set of 30 small images, as `shardify pack` makes them.
func packed() (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	datasettest.Write(new(testing.T), file.New(dir), datasettest.Options{})
	return dir, func() { os.RemoveAll(dir) }
}

func Example() {
	dir, remove := packed()
	defer remove()

	ctx := context.Background()
	data, err := reader.Open(ctx, dir, reader.Config{
		BatchSize: 8,
		Seed:      1,
		Transform: transform.List{transform.RandomResizedCrop{Size: transform.Size{32}}, transform.RandomHorizontalFlip{}, transform.ImageNet},
		DType:     reader.DTypeFloat32,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer data.Close()

	for epoch := range 2 {
		for batch, err := range data.Epoch(ctx, epoch) {
			if err != nil {
				fmt.Println(err)
				return
			}
			images := batch.Images() // 8 × 3 × 32 × 32 float32
			if batch.Number() == 0 {
				fmt.Println("epoch", epoch, images.DType, images.Shape, batch.Labels())
			}
			batch.Release()
		}
	}
	// Output:
	// epoch 0 float32 [8 3 32 32] [3 0 1 4 4 0 2 1]
	// epoch 1 float32 [8 3 32 32] [4 0 2 4 3 3 3 0]
}

// A training loop that keeps the reader's state in its checkpoints goes on where it
// was, here with two ranks where there was one.
func ExampleReader_Resume() {
	dir, remove := packed()
	defer remove()
	ctx := context.Background()

	train := func(config reader.Config, checkpoint []byte, steps int) []byte {
		data, err := reader.Open(ctx, dir, config)
		if err != nil {
			panic(err)
		}
		defer data.Close()
		state, err := data.State(0, 0) // the beginning
		if checkpoint != nil {
			state, err = reader.ParseState(checkpoint)
		}
		if err != nil {
			panic(err)
		}
		for state.Epoch < 2 && steps > 0 {
			for batch, err := range data.Resume(ctx, state) {
				if err != nil {
					panic(err)
				}
				fmt.Println("epoch", batch.Epoch(), "batch", batch.Number(), "samples", batch.Samples())
				state = batch.State()
				batch.Release()
				if steps--; steps == 0 {
					break
				}
			}
		}
		checkpoint, err = json.Marshal(state)
		if err != nil {
			panic(err)
		}
		return checkpoint
	}
	checkpoint := train(reader.Config{BatchSize: 8, Seed: 1, Decode: reader.DecodeNone}, nil, 2)
	train(reader.Config{BatchSize: 4, World: 2, Rank: 1, Seed: 1, Decode: reader.DecodeNone}, checkpoint, 3)
	// Output:
	// epoch 0 batch 0 samples [8 10 26 14 4 20 17 6]
	// epoch 0 batch 1 samples [7 24 18 19 12 15 5 21]
	// epoch 0 batch 2 samples [16 1 25 23]
	// epoch 1 batch 0 samples [10 24 18 20]
	// epoch 1 batch 1 samples [16 2 4 25]
}

// An epoch of 12 samples of two classes, both equally often.
func ExampleSampling() {
	dir, remove := packed()
	defer remove()
	ctx := context.Background()
	data, err := reader.Open(ctx, dir, reader.Config{
		BatchSize: 4,
		Seed:      1,
		Decode:    reader.DecodeNone,
		Sampling:  reader.Sampling{Where: "label_name in ('class-001', 'class-003') and jpg.size > 1500", Balanced: true, Samples: 12},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer data.Close()
	for batch, err := range data.Epoch(ctx, 0) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("samples", batch.Samples(), "labels", batch.Labels())
		batch.Release()
	}
	// Output:
	// samples [21 23 6 18] labels [1 3 1 3]
	// samples [16 26 3 18] labels [1 1 3 3]
	// samples [21 23 11 3] labels [1 3 1 3]
}

// Images of any shape, hardly cropped: those in batches of one bucket have one size.
func ExampleBuckets() {
	dir, remove := packed()
	defer remove()
	ctx := context.Background()
	data, err := reader.Open(ctx, dir, reader.Config{
		BatchSize: 8,
		Seed:      1,
		Ends:      reader.EndsExact,
		Transform: transform.List{transform.Resize{Size: transform.Size{32}}, transform.CenterCrop{Size: transform.Size{32}}},
		Buckets:   reader.Buckets{Sizes: []transform.Size{{48, 24}, {32}, {24, 48}}}, // height, width
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer data.Close()
	b := data.Config().Buckets
	fmt.Println("divided by", b.By, "at", b.Edges)
	for batch, err := range data.Epoch(ctx, 0) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("bucket", batch.Bucket(), "images", batch.Images().Shape)
		batch.Release()
	}
	// Output:
	// divided by width / height at [0.70711 1.4142]
	// bucket 0 images [8 3 48 24]
	// bucket 2 images [6 3 24 48]
	// bucket 1 images [8 3 32 32]
	// bucket 0 images [1 3 48 24]
	// bucket 1 images [7 3 32 32]
}

// The order of an epoch is a pure function: no data set is needed to look at it.
func ExampleNewPlan() {
	shards := []int64{4, 4, 4} // samples in each
	order := reader.Order{Shuffle: reader.ShuffleWindow, Seed: 1, Lanes: 2, World: 2, BatchSize: 3}
	plan, err := reader.NewPlan(shards, order, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	for rank := range 2 {
		for b := range plan.Batches() {
			fmt.Println("rank", rank, "batch", b, "samples", plan.Batch(nil, b, rank))
		}
	}
	// Output:
	// rank 0 batch 0 samples [8 9 10]
	// rank 0 batch 1 samples [1 11 0]
	// rank 1 batch 0 samples [7 5 4]
	// rank 1 batch 1 samples [2 3 6]
}
