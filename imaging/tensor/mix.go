package tensor

import (
	"fmt"

	"shardify/internal/simd"
)

// MixUp blends every image of a batch with the one before it, and the first with the
// last: image i becomes lambda times itself and 1 - lambda times image i-1, as
// torchvision's MixUp (augment.MixUp draws lambda, augment.Partner names the images).
// batch holds n images one after another, of any layout; spare is memory for one. Each
// product and sum is rounded to float32, as torch rounds them.
func MixUp(batch, spare []float32, n int, lambda float64) error {
	size, err := images(len(batch), len(spare), n)
	if err != nil {
		return err
	}
	if !(lambda >= 0 && lambda <= 1) {
		return fmt.Errorf("tensor: mixup with lambda %v; want 0 to 1", lambda)
	}
	own, other := float32(lambda), float32(1-lambda)
	copy(spare, batch[(n-1)*size:])
	for i := n - 1; i >= 0; i-- {
		image, before := batch[i*size:][:size], spare[:size]
		if i > 0 {
			before = batch[(i-1)*size:][:size]
		}
		mix(image, before, own, other, simd.Best())
	}
	return nil
}

// mixGeneric makes of every float of an image own times itself and other times the one
// before.
func mixGeneric(image, before []float32, own, other float32) {
	before = before[:len(image)]
	for j, v := range image {
		image[j] = float32(before[j]*other) + float32(v*own)
	}
}

// CutMix replaces, in every image of a batch, the part [x, x+w) x [y, y+h) by that of the
// image before it, and in the first by that of the last, as torchvision's CutMix
// (augment.CutMix draws the part; it may be empty). batch holds n images of width x height
// and 3 channels; spare is memory for one. A uint16 is a float16 or bfloat16.
func CutMix[T uint8 | uint16 | float32](batch, spare []T, n, width, height int, layout Layout, x, y, w, h int) error {
	size, err := images(len(batch), len(spare), n)
	switch {
	case err != nil:
		return err
	case layout != NCHW && layout != NHWC:
		return fmt.Errorf("tensor: no layout has the number %d", int(layout))
	case width < 1 || height < 1 || size != 3*width*height:
		return fmt.Errorf("tensor: cutmix of %d images of %d x %d in %d elements", n, width, height, len(batch))
	case x < 0 || y < 0 || w < 0 || h < 0 || w > width-x || h > height-y:
		return fmt.Errorf("tensor: cutmix of %d x %d at (%d, %d), which does not lie within %d x %d", w, h, x, y, width, height)
	}
	copy(spare, batch[(n-1)*size:])
	// Planes of rows of elements.
	planes, row, first, count := 3, width, x, w
	if layout == NHWC {
		planes, row, first, count = 1, 3*width, 3*x, 3*w
	}
	for i := n - 1; i >= 0; i-- {
		image, before := batch[i*size:][:size], spare[:size]
		if i > 0 {
			before = batch[(i-1)*size:][:size]
		}
		for p := range planes {
			for r := y; r < y+h; r++ {
				at := (p*height+r)*row + first
				copy(image[at:at+count], before[at:at+count])
			}
		}
	}
	return nil
}

// images returns how many elements each of n images of a batch has.
func images(batch, spare, n int) (int, error) {
	if n < 1 || batch%n != 0 {
		return 0, fmt.Errorf("tensor: a batch of %d images in %d elements", n, batch)
	}
	if spare < batch/n {
		return 0, fmt.Errorf("tensor: spare memory of %d elements; an image takes %d", spare, batch/n)
	}
	return batch / n, nil
}
