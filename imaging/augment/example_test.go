package augment_test

import (
	"encoding/json"
	"fmt"

	"shardify/imaging"
	"shardify/imaging/augment"
)

func Example() {
	var jitter augment.ColorJitter
	if err := json.Unmarshal([]byte(`{"brightness": 0.4, "saturation": [0.5, 1.5]}`), &jitter); err != nil {
		fmt.Println(err)
		return
	}
	if err := jitter.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	image := imaging.Image{Pix: []uint8{200, 100, 50}, Width: 1, Height: 1, Stride: 3}

	r := augment.NewRand(42, 0, 7) // seed, epoch, sample
	ops := jitter.Draw(&r, image.Width, image.Height)

	var ws augment.Workspace // one a goroutine, for all its images
	if err := ops.Apply(&ws, &image); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(image.Pix)
	// Output: [195 94 43]
}

// An image, the classes of its pixels and the boxes of its objects stay together.
func ExampleGeometry() {
	const width, height = 500, 375
	var image, resized imaging.Image
	image.Reset(width, height)
	var mask, resizedMask imaging.Mask
	mask.Reset(width, height)
	boxes := []augment.Box{{100, 100, 200, 300}, {450, 0, 500, 50}}

	r := augment.NewRand(42, 0, 7)
	g := augment.Geometry{
		Crop:  augment.RandomResizedCrop{Scale: [2]float64{0.5, 1}}.Draw(&r, width, height),
		Width: 224, Height: 224,
		FlipX: augment.RandomHorizontalFlip{}.Draw(&r, width, height),
	}
	turn := augment.RandomRotation{Degrees: augment.SpreadOf(10)}.Draw(&r, 224, 224)
	g.Matrix = turn.Matrix

	var ws augment.Workspace
	if err := ws.Image(&resized, &image, g, augment.Look{Interpolation: augment.Bilinear}); err != nil {
		fmt.Println(err)
		return
	}
	const ignore = 255 // the class of what turned into view
	if err := ws.Mask(&resizedMask, &mask, g, ignore); err != nil {
		fmt.Println(err)
		return
	}
	boxes, kept, err := g.Boxes(boxes, nil, width, height, augment.BoxFilter{MinSize: 1, MinArea: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(resized.Width, resizedMask.Height, kept)
	for _, b := range boxes {
		fmt.Printf("%.1f\n", b)
	}
	// Output:
	// 224 224 [0]
	// [166.9 65.8 224.0 203.8]
}
