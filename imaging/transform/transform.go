// Package transform says what is done to an image before a model sees it, as data: a
// [List] of transforms with the names, parameters and defaults of torchvision's
// transforms v2, as Go structs or as JSON.
//
//	list := transform.List{
//		transform.RandomResizedCrop{Size: transform.Size{224}},
//		transform.RandomHorizontalFlip{},
//		transform.ColorJitter{Brightness: augment.GainOf(0.4)},
//	}
//
// is the same as
//
//	[{"random_resized_crop": 224}, {"random_horizontal_flip": {}}, {"color_jitter": {"brightness": 0.4}}]
//
// [Compile] checks a list and makes a [Program] of it. [Program.Draw] draws everything
// that is random for one image, of its width and height alone, and writes it to a
// [Recipe], before a byte is decoded. The recipe then carries the same geometry out on
// the image, its masks and its boxes:
//
//	p, err := transform.Compile(list, transform.Options{})
//	r := augment.NewRand(seed, epoch, sample)
//	err = p.Draw(&recipe, &r, width, height)
//	view, err := recipe.Image(&workspace, &image)        // pixels, flips still to be done
//	err = recipe.Mask(&workspace, &mask, &segmentation, 255)
//	boxes, kept, err = recipe.Boxes(boxes, kept, augment.BoxFilter{})
//
// # Promises
//
// A recipe is a pure function of the program, the [augment.Rand] and the image's width
// and height. Pixels are those of Pillow 13 when it does one step after the other, byte
// for byte, with the differences that package augment states at each transform and one
// more: a flip is done last, so where an image is resized after a flip a byte may be
// off by one, rounded the other way. Steps that lie next to each other are done in one
// where that changes no byte: of a resize and a crop only what is kept is made. In
// steady state nothing is allocated.
//
// docs/transforms.md lists all transforms with their parameters.
package transform

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"shardify/imaging/augment"
)

// Transform is one step: one of the structs of this package, by value.
type Transform interface {
	// Validate reports every fault of the parameters.
	Validate() error

	// draw adds to a recipe what the transform does to an image of the recipe's size.
	draw(*Recipe) error
}

// List is transforms, in the order in which they are done.
type List []Transform

// Validate reports every fault of every transform, by its place (from 1) and name. It
// does not look at their order, which is [Compile]'s to check.
func (l List) Validate() error {
	var faults []error
	for i, t := range l {
		name, err := nameOf(t)
		if err == nil {
			err = t.Validate()
		}
		for _, fault := range split(err) {
			faults = append(faults, at(i, name, fault))
		}
	}
	return errors.Join(faults...)
}

// at says which transform a fault is of; name may be empty.
func at(i int, name string, fault error) error {
	if name == "" {
		return fmt.Errorf("transform %d: %w", i+1, fault)
	}
	return fmt.Errorf("transform %d: %s: %w", i+1, name, fault)
}

// split returns the errors that were joined to one.
func split(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, split(e)...)
		}
		return all
	}
	return []error{err}
}

// Size is a height and a width in pixels, in torchvision's order. Where the width is 0
// it is a single number: a square's side, or to [Resize] the length of the shorter
// side. In JSON it is a list of two numbers, or one number.
type Size [2]int

// maxSide bounds a size: the images of a batch are no larger.
const maxSide = 1 << 14

// MarshalJSON returns one number or two.
func (s Size) MarshalJSON() ([]byte, error) {
	if s[1] == 0 {
		return json.Marshal(s[0])
	}
	return json.Marshal([2]int(s))
}

// UnmarshalJSON takes one whole number or a list of one or two.
func (s *Size) UnmarshalJSON(data []byte) error {
	var one int
	if err := json.Unmarshal(data, &one); err == nil {
		*s = Size{one}
		return nil
	}
	var list []int
	if err := json.Unmarshal(data, &list); err != nil || len(list) < 1 || len(list) > 2 {
		return fmt.Errorf("%s is no size; want a whole number, or [height, width]", data)
	}
	*s = Size{}
	copy(s[:], list)
	if len(list) == 2 && list[1] == 0 {
		return fmt.Errorf("%s is no size; the width is 0", data)
	}
	return nil
}

// sides returns the width and height; of a single number a square's.
func (s Size) sides() (width, height int) {
	if s[1] == 0 {
		return s[0], s[0]
	}
	return s[1], s[0]
}

func (s Size) validate() error {
	if w, h := s.sides(); w < 1 || h < 1 || w > maxSide || h > maxSide {
		return fmt.Errorf("size is %s; want numbers from 1 to %d", s.text(), maxSide)
	}
	return nil
}

func (s Size) text() string {
	if s[1] == 0 {
		return fmt.Sprint(s[0])
	}
	return fmt.Sprint([2]int(s))
}

// cover returns the dimensions of an image that is scaled, keeping its shape, so that
// it just covers width x height; the longer side is cut to a whole number, as
// torchvision does. For a square, its shorter side becomes the square's. Where most is
// not 0 and a side would be longer, that side becomes so long and the image covers
// less.
func cover(imageWidth, imageHeight, width, height, most int) (w, h int) {
	if int64(width)*int64(imageHeight) >= int64(height)*int64(imageWidth) {
		w, h = width, scaled(width, imageHeight, imageWidth)
	} else {
		w, h = scaled(height, imageWidth, imageHeight), height
	}
	if long := max(w, h); most > 0 && long > most {
		w, h = max(1, scaled(most, w, long)), max(1, scaled(most, h, long))
	}
	return w, h
}

// scaled is n·times/by, cut to a whole number; it stays in the bounds of an int.
func scaled(n, times, by int) int {
	return int(min(int64(n)*int64(times)/int64(by), math.MaxInt32))
}

// window is the middle part of a length, rounded half to even as torchvision's
// center_crop does; a part that is longer reaches beyond on both sides, by one less at
// the start where the difference is odd.
func middle(length, part int) int {
	if part > length {
		return -((part - length) / 2)
	}
	return int(math.RoundToEven(float64(length-part) / 2))
}

// centered returns the middle of an image.
func centered(imageWidth, imageHeight, width, height int) augment.Region {
	return augment.Region{X: middle(imageWidth, width), Y: middle(imageHeight, height), Width: width, Height: height}
}
