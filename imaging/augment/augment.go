// Package augment draws random augmentations and carries them out, on images and on
// the masks and boxes that go with them.
//
// Every transform is a plain struct with the names, defaults and distributions of
// torchvision's transforms v2. Its Draw(r, width, height) makes parameters of random
// numbers and of the image's size alone, so that they are known before a byte is
// decoded; what it returns has an Apply(workspace, image), or can be sent elsewhere
// (to a GPU, say) to be applied there:
//
//	r := augment.NewRand(seed, epoch, sample)
//	ops := augment.ColorJitter{Brightness: augment.GainOf(0.4)}.Draw(&r, w, h)
//	err := ops.Apply(&workspace, &image)
//
// What changes colours draws an [Op] or several; what moves pixels draws a [Region],
// a flip or a [Warp]. The latter go together into one [Geometry], which an image, its
// masks and its boxes share. [MixUp] and [CutMix] draw for a whole batch.
//
// # Promises
//
// Parameters are pure functions of a [Rand], and a Rand is a pure function of
// (seed, epoch, sample number): whichever worker handles a sample, whenever and
// after whatever others, it sees the same crop. What a Rand yields, and what the
// functions here make of it, will not change; tests hold literal values. How many
// numbers a Draw uses does not depend on the transform's options, except where one
// is refused and drawn again.
//
// Pixels are those of Pillow 13, and so of torchvision's transforms of PIL images,
// byte for byte; where they are not, the transform states the bound. In steady state
// nothing is allocated.
package augment

import (
	"errors"
	"fmt"
	"math"
)

// Region is a part of an image, in pixels.
type Region struct {
	X      int `json:"x"`
	Y      int `json:"y"`
	Width  int `json:"width"`
	Height int `json:"height"`
}

// RandomResizedCrop is torchvision's transform of that name: a part of random
// area and aspect ratio, which is then scaled to the model's size. The zero value
// has torchvision's defaults.
type RandomResizedCrop struct {
	// Scale bounds the crop's share of the image's area; 0, 0 means 0.08, 1.
	Scale [2]float64 `json:"scale"`
	// Ratio bounds the crop's width over its height; 0, 0 means 3/4, 4/3.
	Ratio [2]float64 `json:"ratio"`
}

func (c RandomResizedCrop) withDefaults() RandomResizedCrop {
	if c.Scale == [2]float64{} {
		c.Scale = [2]float64{0.08, 1}
	}
	if c.Ratio == [2]float64{} {
		c.Ratio = [2]float64{3. / 4, 4. / 3}
	}
	return c
}

// Validate reports every fault: bounds that are not above 0 or in the wrong order.
func (c RandomResizedCrop) Validate() error {
	c = c.withDefaults()
	check := func(name string, v [2]float64) error {
		if !(v[0] > 0 && v[0] <= v[1] && !math.IsInf(v[1], 0)) {
			return fmt.Errorf("%s is %v; want two numbers above 0, the smaller first", name, v)
		}
		return nil
	}
	return errors.Join(check("scale", c.Scale), check("ratio", c.Ratio))
}

// Draw returns a crop of an image of width x height, both at least 1; it always
// lies within and is never empty. The options must be valid.
//
// As torchvision's RandomResizedCrop.make_params: up to ten times it draws an area
// (uniform) and a ratio (its logarithm uniform), rounds the sides half to even,
// and takes the first that fits, at a uniform place, the row drawn before the
// column; else the largest central part of an allowed ratio. It computes in
// float64 where torch draws in float32.
func (c RandomResizedCrop) Draw(r *Rand, width, height int) Region {
	c = c.withDefaults()
	area := float64(width) * float64(height)
	low, high := math.Log(c.Ratio[0]), math.Log(c.Ratio[1])
	for range 10 {
		target := area * r.Uniform(c.Scale[0], c.Scale[1])
		ratio := math.Exp(r.Uniform(low, high))
		w := math.RoundToEven(math.Sqrt(target * ratio))
		h := math.RoundToEven(math.Sqrt(target / ratio))
		if w >= 1 && h >= 1 && w <= float64(width) && h <= float64(height) {
			crop := Region{Width: int(w), Height: int(h)}
			crop.Y = r.IntN(height - crop.Height + 1)
			crop.X = r.IntN(width - crop.Width + 1)
			return crop
		}
	}
	crop := Region{Width: width, Height: height}
	switch ratio := float64(width) / float64(height); {
	case ratio < c.Ratio[0]:
		crop.Height = max(1, int(math.RoundToEven(float64(width)/c.Ratio[0])))
	case ratio > c.Ratio[1]:
		crop.Width = max(1, int(math.RoundToEven(float64(height)*c.Ratio[1])))
	}
	crop.X, crop.Y = (width-crop.Width)/2, (height-crop.Height)/2
	return crop
}

// CenterCrop is torchvision's Resize and CenterCrop, the usual transform for
// evaluation: the shorter side is scaled to Resize, and the middle Size x Size
// pixels are kept. The zero value is 256 and 224, of ImageNet's evaluation.
type CenterCrop struct {
	// Resize is the length of the shorter side; 0 means 8/7 of Size, rounded.
	Resize int `json:"resize,omitempty"`
	// Size is the side of the result; 0 means 224.
	Size int `json:"size,omitempty"`
}

func (c CenterCrop) withDefaults() CenterCrop {
	if c.Size == 0 {
		c.Size = 224
	}
	if c.Resize == 0 {
		c.Resize = (8*c.Size + 3) / 7
	}
	return c
}

// Validate reports every fault. Resize below Size, where torchvision would pad
// with black, is one.
func (c CenterCrop) Validate() error {
	if c.Size < 0 || c.Resize < 0 {
		return fmt.Errorf("resize is %d and size %d; neither may be below 0", c.Resize, c.Size)
	}
	if c := c.withDefaults(); c.Resize < c.Size {
		return fmt.Errorf("resize is %d and size %d; the image would be smaller than the crop", c.Resize, c.Size)
	}
	return nil
}

// Window returns to what an image of width x height is scaled, and which part of
// that is kept: what resize.Resizer's ResizeWindow takes. The options must be
// valid, width and height at least 1.
//
// The two steps are not one resize from a box of the original image: torchvision
// cuts the longer side's length to a whole number, and rounds the crop's place
// half to even in scaled pixels, and its pixels differ from such a box's by a few
// levels.
func (c CenterCrop) Window(width, height int) (scaledWidth, scaledHeight int, crop Region) {
	c = c.withDefaults()
	scaledWidth, scaledHeight = c.Resize, c.Resize
	if width <= height {
		scaledHeight = int(float64(c.Resize*height) / float64(width))
	} else {
		scaledWidth = int(float64(c.Resize*width) / float64(height))
	}
	place := func(length int) int { return int(math.RoundToEven(float64(length-c.Size) / 2)) }
	return scaledWidth, scaledHeight, Region{X: place(scaledWidth), Y: place(scaledHeight), Width: c.Size, Height: c.Size}
}

// HorizontalFlip reports whether to mirror the image left to right, which is so with
// probability p.
func HorizontalFlip(r *Rand, p float64) bool { return r.Float64() < p }

// RandomHorizontalFlip is torchvision's: with probability P (0 means 0.5) the image is
// mirrored left to right.
type RandomHorizontalFlip struct {
	P float64 `json:"p,omitempty"`
}

// Validate reports every fault.
func (c RandomHorizontalFlip) Validate() error {
	return invalid("RandomHorizontalFlip", validateP(c.P))
}

// Draw reports whether to mirror the image: a Geometry's FlipX.
func (c RandomHorizontalFlip) Draw(r *Rand, _, _ int) bool { return chance(r, c.P, 0.5) }

// RandomVerticalFlip is torchvision's: with probability P (0 means 0.5) the image is
// mirrored top to bottom.
type RandomVerticalFlip struct {
	P float64 `json:"p,omitempty"`
}

// Validate reports every fault.
func (c RandomVerticalFlip) Validate() error {
	return invalid("RandomVerticalFlip", validateP(c.P))
}

// Draw reports whether to mirror the image: a Geometry's FlipY.
func (c RandomVerticalFlip) Draw(r *Rand, _, _ int) bool { return chance(r, c.P, 0.5) }
