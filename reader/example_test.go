package reader_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"os"
	"testing"

	"shardify/dataset/datasettest"
	"shardify/imaging/transform"
	"shardify/reader"
	"shardify/sample"
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
func ExampleReader_Epochs() {
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
		for batch, err := range data.Epochs(ctx, state, 2) {
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

// annotated is a data set of 8 images of 64 × 48 with captions, and boxes as COCO writes
// them.
func annotated() (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	captions := []string{"a dog", "two cats on a mat", "", "rain"}
	datasettest.Write(new(testing.T), file.New(dir), datasettest.Options{Shards: 1, Samples: 8, Make: func(n, _ int) datasettest.Made {
		var picture bytes.Buffer
		if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 64, 48))); err != nil {
			panic(err)
		}
		annotations := ""
		for k := range n % 3 {
			annotations += fmt.Sprintf(`%s{"category_id": %d, "bbox": [%d, 8, 16, 32]}`, ", "[:min(2*k, 2)], 10*n+k, 4+40*k)
		}
		m := datasettest.Made{Label: -1}
		m.Key = fmt.Sprintf("%06d", n)
		m.Fields = []sample.Field{
			{Name: "json", Data: []byte(`{"annotations": [` + annotations + `]}`)},
			{Name: "png", Data: picture.Bytes()},
			{Name: "txt", Data: []byte(captions[n%4])},
		}
		return m
	}})
	return dir, func() { os.RemoveAll(dir) }
}

// Batches for detection: the boxes go through the transforms with their image, are padded
// to the most that an image of the batch has, and their classes follow them: those of
// boxes outside of the crop are gone.
func ExampleTensorSpec_boxes() {
	dir, remove := annotated()
	defer remove()
	ctx := context.Background()
	data, err := reader.Open(ctx, dir, reader.Config{
		BatchSize: 4,
		Shuffle:   reader.ShuffleNone,
		Transform: transform.List{transform.CenterCrop{Size: transform.Size{48}}},
		Tensors: []reader.TensorSpec{
			{Field: "json", Name: "boxes", Kind: reader.KindBoxes, Path: "/annotations/*/bbox", Boxes: reader.BoxSpec{Format: reader.BoxXYWH}},
			{Field: "json", Name: "classes", Path: "/annotations/*/category_id", Shape: []int{-1}, DType: reader.DTypeInt64, Follows: "boxes", Fill: -1},
		},
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
		boxes, _ := batch.Tensor("boxes")
		mask, _ := batch.Tensor("boxes_mask")
		classes, _ := batch.Tensor("classes")
		fmt.Println("boxes", boxes.Shape, "classes", classes.Int64())
		for i, there := range mask.Bool() {
			if there {
				fmt.Println("  image", i/boxes.Shape[1], boxes.Float32()[4*i:][:4])
			}
		}
		batch.Release()
	}
	// Output:
	// boxes [4 2 4] classes [-1 -1 10 -1 20 21 -1 -1]
	//   image 1 [0 8 12 40]
	//   image 2 [0 8 12 40]
	//   image 2 [36 8 48 40]
	// boxes [4 2 4] classes [40 -1 50 51 -1 -1 70 -1]
	//   image 0 [0 8 12 40]
	//   image 1 [0 8 12 40]
	//   image 1 [36 8 48 40]
	//   image 3 [0 8 12 40]
}

// Captions of different lengths, one behind the other.
func ExampleTensorSpec_ragged() {
	dir, remove := annotated()
	defer remove()
	ctx := context.Background()
	data, err := reader.Open(ctx, dir, reader.Config{
		BatchSize: 4,
		Shuffle:   reader.ShuffleNone,
		Decode:    reader.DecodeNone,
		Tensors:   []reader.TensorSpec{{Field: "txt", Name: "caption", Collate: reader.CollateRagged}},
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
		text, _ := batch.Tensor("caption")
		offsets, _ := batch.Tensor("caption_offsets")
		at := offsets.Int64()
		fmt.Println(text.DType, text.Shape, at)
		for i := range batch.Len() {
			fmt.Printf("  %q\n", text.Uint8()[at[i]:at[i+1]])
		}
		batch.Release()
		break
	}
	// Output:
	// uint8 [26] [0 5 22 22 26]
	//   "a dog"
	//   "two cats on a mat"
	//   ""
	//   "rain"
}

// Whole images, each of its own size, for transforms elsewhere.
func ExampleConfig_ragged() {
	dir, remove := packed()
	defer remove()
	ctx := context.Background()
	data, err := reader.Open(ctx, dir, reader.Config{BatchSize: 3, Shuffle: reader.ShuffleNone, Layout: reader.LayoutNHWC, Collate: reader.CollateRagged})
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
		offsets, _ := batch.Tensor("image_offsets")
		sizes, _ := batch.Tensor("image_sizes")
		fmt.Println(batch.Images().Shape, offsets.Int64(), sizes.Int64())
		for i := range batch.Len() {
			fmt.Println(batch.Image(i).Shape)
		}
		batch.Release()
		break
	}
	// Output:
	// [9231] [0 3021 3939 9231] [53 19 17 18 42 42]
	// [53 19 3]
	// [17 18 3]
	// [42 42 3]
}

// Samples by their numbers, for a data set in the style of a map.
func ExampleReader_Read() {
	dir, remove := packed()
	defer remove()
	ctx := context.Background()
	data, err := reader.Open(ctx, dir, reader.Config{
		Ends:      reader.EndsExact,
		Transform: transform.List{transform.RandomResizedCrop{Size: transform.Size{32}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer data.Close()
	batch, err := data.Read(ctx, []int64{7, 0, 7}, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer batch.Release()
	fmt.Println(batch.Images().Shape, batch.Labels(), batch.Keys())
	// Output:
	// [3 3 32 32] [2 0 2] [class-002/img_000007 class-000/img_000000 class-002/img_000007]
}

// Shards that nobody has indexed, as webdataset has them.
func ExampleOpenStream() {
	dir, remove := packed()
	defer remove()

	ctx := context.Background()
	data, err := reader.OpenStream(ctx, []string{dir + "/train-{000000..000002}.tar"}, reader.Config{
		BatchSize: 8,
		Seed:      1,
		Transform: transform.List{transform.RandomResizedCrop{Size: transform.Size{32}}, transform.RandomHorizontalFlip{}},
		Sampling:  reader.Sampling{Samples: 24}, // so that ranks would have equally many batches
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
		fmt.Println(batch.Images().Shape, batch.Labels())
		batch.Release()
	}
	// Output:
	// [8 3 32 32] [4 1 1 2 1 4 2 4]
	// [8 3 32 32] [2 0 1 2 0 1 1 2]
	// [8 3 32 32] [1 0 3 1 2 2 0 1]
}
