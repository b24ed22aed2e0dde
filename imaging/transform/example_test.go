package transform_test

import (
	"encoding/json"
	"fmt"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/transform"
)

// A photograph of 640 x 480 with a mask and two boxes, on the way to a detector.
func Example() {
	var list transform.List
	err := json.Unmarshal([]byte(`[{"resize": 256}, {"random_crop": 224}, {"random_horizontal_flip": 1}, {"color_jitter": {"brightness": 0.4}}]`), &list)
	if err != nil {
		fmt.Println(err)
		return
	}
	program, err := transform.Compile(list, transform.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	// What follows is for each image. Recipe and workspace are used again.
	var recipe transform.Recipe
	var workspace transform.Workspace

	seed, epoch, sample := uint64(1), uint64(0), uint64(42)
	random := augment.NewRand(seed, epoch, sample)
	if err := program.Draw(&recipe, &random, 640, 480); err != nil {
		fmt.Println(err)
		return
	}
	head := recipe.Head() // what a decoder can do on its way
	fmt.Println("of", head.Crop, "scaled to", head.Task.Width, head.Task.Height, "the decoder makes", head.Width, head.Height)

	var image imaging.Image
	var mask, segmentation imaging.Mask
	image.Reset(640, 480)
	segmentation.Reset(640, 480)
	view, err := recipe.Image(&workspace, &image)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := recipe.Mask(&workspace, &mask, &segmentation, 255); err != nil {
		fmt.Println(err)
		return
	}
	boxes, kept, err := recipe.Boxes([]augment.Box{{0, 0, 50, 50}, {300, 100, 400, 200}}, nil, augment.BoxFilter{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("image", view.Width, view.Height, "to be mirrored:", view.FlipX)
	fmt.Println("mask", mask.Width, mask.Height)
	fmt.Printf("boxes %.1f, of which those kept are %v\n", boxes, kept)
	// Output:
	// of {0 0 640 480} scaled to 341 256 the decoder makes 224 224
	// image 224 224 to be mirrored: true
	// mask 224 224
	// boxes [[62.9 24.3 116.2 77.7]], of which those kept are [1]
}
