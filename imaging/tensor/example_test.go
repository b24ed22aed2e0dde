package tensor_test

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"log"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
)

// A file becomes a training sample: header, crop, pixels, scaling, its place in the
// batch.
func Example() {
	picture := image.NewRGBA(image.Rect(0, 0, 320, 240))
	for i := range 320 * 240 {
		picture.Set(i%320, i/320, color.RGBA{uint8(i % 320), uint8(i / 320), 128, 255})
	}
	var file bytes.Buffer
	if err := png.Encode(&file, picture); err != nil {
		log.Fatal(err)
	}

	info, err := imaging.Probe(file.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.Format, info.Width, info.Height)

	// One of each for a goroutine; they keep their memory.
	var full, small imaging.Image
	var resizer resize.Resizer
	table := tensor.ImageNet.Table()

	seed, epoch, number := uint64(42), uint64(0), uint64(1234)
	r := augment.NewRand(seed, epoch, number)
	region := augment.RandomResizedCrop{}.Draw(&r, info.Width, info.Height)
	flip := augment.HorizontalFlip(&r, 0.5)
	fmt.Println(region, flip)

	if err := imaging.Std.Decode(file.Bytes(), &full, imaging.DecodeOptions{}); err != nil {
		log.Fatal(err)
	}
	crop, err := resize.Crop(&full, region.X, region.Y, region.Width, region.Height)
	if err != nil {
		log.Fatal(err)
	}
	small.Reset(224, 224)
	if err := resizer.Resize(&small, &crop, resize.Full(&crop), resize.Bilinear); err != nil {
		log.Fatal(err)
	}
	batch := make([]float32, 8*3*224*224)
	place := batch[2*3*224*224:][:3*224*224] // the third sample's
	if err := tensor.PutFloat32(place, &small, tensor.NCHW, flip, false, table); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.3f\n", place[0])
	// Output:
	// png 320 240
	// {43 26 241 197} true
	// -1.656
}
