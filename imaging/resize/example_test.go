package resize_test

import (
	"fmt"

	"shardify/imaging"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
)

// A crop of an image becomes one sample of a batch, mirrored.
func ExampleResizer_ResizeInto() {
	var photo imaging.Image
	photo.Reset(640, 480)
	for i := range photo.Pix {
		photo.Pix[i] = uint8(i / photo.Stride)
	}
	crop, err := resize.Crop(&photo, 100, 40, 300, 200)
	if err != nil {
		fmt.Println(err)
		return
	}
	const batch, side = 32, 224
	slab := make([]float32, batch*3*side*side)
	var z resize.Resizer // one for each goroutine
	err = z.ResizeInto(resize.Target{
		Width: side, Height: side, Layout: tensor.NCHW,
		Float32: slab[5*3*side*side:][:3*side*side], Table: tensor.ImageNet.Table(),
	}, &crop, resize.Task{Part: resize.Full(&crop), Width: side, Height: side, FlipX: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.3f\n", slab[5*3*side*side])
	// Output: -1.433
}

// Rows are pushed as they are made.
func ExampleResizer_Begin() {
	var z resize.Resizer
	thumbnail := make([]uint8, 3*64*48)
	need, err := z.Begin(
		resize.Task{SourceWidth: 640, SourceHeight: 480, Part: resize.Rect{X1: 640, Y1: 480}, Width: 64, Height: 48},
		resize.Target{Width: 64, Height: 48, Layout: tensor.NHWC, Uint8: thumbnail})
	if err == nil {
		err = z.Columns(need.X0, need.X1-need.X0, 3)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	for y := need.Y0; y < need.Y1; y += 8 {
		rows := z.Room(8)
		for r := range 8 {
			for c := range 3 {
				plane := rows.Pix[r*rows.Stride+c*rows.Pitch:][:need.X1-need.X0]
				for x := range plane {
					plane[x] = uint8(100 * c)
				}
			}
		}
		z.Push(0, 8)
	}
	fmt.Println(z.Done(), thumbnail[:3])
	// Output: true [0 100 200]
}
