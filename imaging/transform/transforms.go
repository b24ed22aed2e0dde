package transform

import (
	"errors"
	"fmt"

	"shardify/imaging/augment"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
)

// Resize is torchvision's: it scales the image, always with antialiasing.
type Resize struct {
	// Size is a height and a width, or one number for the shorter side, whose image
	// keeps its shape.
	Size Size `json:"size,omitzero"`
	// MaxSize bounds the longer side, where Size is one number or 0; with Size 0 the
	// longer side becomes MaxSize.
	MaxSize int `json:"max_size,omitempty"`
	// Interpolation is the filter.
	Interpolation resize.Filter `json:"interpolation,omitzero"`
}

// Validate reports every fault.
func (t Resize) Validate() error {
	var faults []error
	if t.Size != (Size{}) || t.MaxSize == 0 {
		faults = append(faults, t.Size.validate())
	}
	switch {
	case t.MaxSize < 0 || t.MaxSize > maxSide:
		faults = append(faults, fmt.Errorf("max_size is %d; want a number from 1 to %d, or 0 for none", t.MaxSize, maxSide))
	case t.MaxSize > 0 && t.Size[1] != 0:
		faults = append(faults, errors.New("max_size goes with a single number as size, which is the shorter side"))
	case t.MaxSize > 0 && t.MaxSize <= t.Size[0]:
		faults = append(faults, fmt.Errorf("max_size is %d; want more than size, %d, which is the shorter side", t.MaxSize, t.Size[0]))
	}
	return errors.Join(append(faults, validateFilter(t.Interpolation))...)
}

// target returns the dimensions that an image is scaled to.
func (t Resize) target(width, height int) (w, h int) {
	switch {
	case t.Size[1] != 0:
		return t.Size.sides()
	case t.Size[0] == 0: // the longer side
		long := max(width, height)
		return max(1, scaled(t.MaxSize, width, long)), max(1, scaled(t.MaxSize, height, long))
	}
	return cover(width, height, t.Size[0], t.Size[0], t.MaxSize)
}

func (t Resize) draw(r *Recipe) error {
	w, h := t.target(r.Size())
	return r.scale(w, h, t.Interpolation)
}

// covering is a Resize to the shorter side for images of another shape than a square:
// it scales the image so that it just covers Width x Height.
type covering struct {
	width, height, most int
	filter              resize.Filter
}

func (t covering) Validate() error { return nil }

func (t covering) draw(r *Recipe) error {
	width, height := r.Size()
	w, h := cover(width, height, t.width, t.height, t.most)
	return r.scale(w, h, t.filter)
}

// CenterCrop is torchvision's: it cuts out the middle. What lies outside the image is
// black.
type CenterCrop struct {
	Size Size `json:"size"`
}

// Validate reports every fault.
func (t CenterCrop) Validate() error { return t.Size.validate() }

func (t CenterCrop) draw(r *Recipe) error {
	width, height := r.Size()
	w, h := t.Size.sides()
	return r.cut(centered(width, height, w, h), augment.Constant, augment.Color{})
}

// RandomResizedCrop is torchvision's: it scales a part of random area and aspect ratio
// to the size.
type RandomResizedCrop struct {
	Size Size `json:"size"`
	// Scale bounds the part's share of the image's area; 0, 0 means 0.08, 1.
	Scale [2]float64 `json:"scale,omitzero"`
	// Ratio bounds the part's width over its height; 0, 0 means 3/4, 4/3.
	Ratio [2]float64 `json:"ratio,omitzero"`
	// Interpolation is the filter.
	Interpolation resize.Filter `json:"interpolation,omitzero"`
}

// Validate reports every fault.
func (t RandomResizedCrop) Validate() error {
	return errors.Join(t.Size.validate(), t.part().Validate(), validateFilter(t.Interpolation))
}

func (t RandomResizedCrop) part() augment.RandomResizedCrop {
	return augment.RandomResizedCrop{Scale: t.Scale, Ratio: t.Ratio}
}

func (t RandomResizedCrop) draw(r *Recipe) error {
	width, height := r.Size()
	if err := r.cut(t.part().Draw(&r.rand, width, height), augment.Constant, augment.Color{}); err != nil {
		return err
	}
	w, h := t.Size.sides()
	return r.scale(w, h, t.Interpolation)
}

// RandomCrop is torchvision's: it cuts out a part of the size at a random place.
type RandomCrop struct {
	Size Size `json:"size"`
	// Padding is added to the image before.
	Padding augment.Padding `json:"padding,omitzero"`
	// PadIfNeeded adds to both sides what an image lacks to the size; without it such
	// an image is an error.
	PadIfNeeded bool `json:"pad_if_needed,omitempty"`
	// Fill and PaddingMode say what is seen beyond the image.
	Fill        augment.Color       `json:"fill,omitzero"`
	PaddingMode augment.PaddingMode `json:"padding_mode,omitzero"`
}

// Validate reports every fault.
func (t RandomCrop) Validate() error {
	if err := t.Size.validate(); err != nil {
		return errors.Join(err, bare(augment.Pad{Padding: t.Padding, PaddingMode: t.PaddingMode}.Validate()))
	}
	return bare(t.crop().Validate())
}

func (t RandomCrop) crop() augment.RandomCrop {
	w, h := t.Size.sides()
	return augment.RandomCrop{Size: augment.Size{h, w}, Padding: t.Padding, PadIfNeeded: t.PadIfNeeded, PaddingMode: t.PaddingMode}
}

func (t RandomCrop) draw(r *Recipe) error {
	width, height := r.Size()
	part, err := t.crop().Draw(&r.rand, width, height)
	if err != nil {
		return err
	}
	return r.cut(part, t.PaddingMode, t.Fill)
}

// Pad is torchvision's: it adds pixels on all sides.
type Pad struct {
	Padding     augment.Padding     `json:"padding"`
	Fill        augment.Color       `json:"fill,omitzero"`
	PaddingMode augment.PaddingMode `json:"padding_mode,omitzero"`
}

// Validate reports every fault.
func (t Pad) Validate() error { return bare(t.pad().Validate()) }

func (t Pad) pad() augment.Pad { return augment.Pad{Padding: t.Padding, PaddingMode: t.PaddingMode} }

func (t Pad) draw(r *Recipe) error {
	width, height := r.Size()
	return r.cut(t.pad().Window(width, height), t.PaddingMode, t.Fill)
}

// RandomHorizontalFlip is torchvision's: see [augment.RandomHorizontalFlip].
type RandomHorizontalFlip augment.RandomHorizontalFlip

// Validate reports every fault.
func (t RandomHorizontalFlip) Validate() error {
	return bare(augment.RandomHorizontalFlip(t).Validate())
}

func (t RandomHorizontalFlip) draw(r *Recipe) error {
	if augment.RandomHorizontalFlip(t).Draw(&r.rand, 0, 0) {
		r.flipX = !r.flipX
	}
	return nil
}

// RandomVerticalFlip is torchvision's: see [augment.RandomVerticalFlip].
type RandomVerticalFlip augment.RandomVerticalFlip

// Validate reports every fault.
func (t RandomVerticalFlip) Validate() error { return bare(augment.RandomVerticalFlip(t).Validate()) }

func (t RandomVerticalFlip) draw(r *Recipe) error {
	if augment.RandomVerticalFlip(t).Draw(&r.rand, 0, 0) {
		r.flipY = !r.flipY
	}
	return nil
}

// RandomRotation is torchvision's: see [augment.RandomRotation].
type RandomRotation augment.RandomRotation

// Validate reports every fault.
func (t RandomRotation) Validate() error { return bare(augment.RandomRotation(t).Validate()) }

func (t RandomRotation) draw(r *Recipe) error {
	width, height := r.Size()
	return r.warp(augment.RandomRotation(t).Draw(&r.rand, width, height))
}

// RandomAffine is torchvision's: see [augment.RandomAffine].
type RandomAffine augment.RandomAffine

// Validate reports every fault.
func (t RandomAffine) Validate() error { return bare(augment.RandomAffine(t).Validate()) }

func (t RandomAffine) draw(r *Recipe) error {
	width, height := r.Size()
	return r.warp(augment.RandomAffine(t).Draw(&r.rand, width, height))
}

// ColorJitter is torchvision's: see [augment.ColorJitter].
type ColorJitter augment.ColorJitter

// Validate reports every fault.
func (t ColorJitter) Validate() error { return bare(augment.ColorJitter(t).Validate()) }

func (t ColorJitter) draw(r *Recipe) error {
	for _, op := range augment.ColorJitter(t).Draw(&r.rand, 0, 0) {
		if err := r.paint(op); err != nil {
			return err
		}
	}
	return nil
}

// RandomGrayscale is torchvision's: see [augment.RandomGrayscale].
type RandomGrayscale augment.RandomGrayscale

// Validate reports every fault.
func (t RandomGrayscale) Validate() error { return bare(augment.RandomGrayscale(t).Validate()) }

func (t RandomGrayscale) draw(r *Recipe) error {
	return r.paint(augment.RandomGrayscale(t).Draw(&r.rand, 0, 0))
}

// Grayscale is torchvision's with num_output_channels=3: the image loses its colour,
// and its three channels become equal.
type Grayscale struct {
	// NumOutputChannels is 3, also where it is 0: images have three channels.
	// (torchvision's default is 1.)
	NumOutputChannels int `json:"num_output_channels,omitempty"`
}

// Validate reports every fault.
func (t Grayscale) Validate() error {
	if t.NumOutputChannels != 0 && t.NumOutputChannels != 3 {
		return fmt.Errorf("num_output_channels is %d; images have 3 channels, here equal ones", t.NumOutputChannels)
	}
	return nil
}

func (t Grayscale) draw(r *Recipe) error { return r.paint(augment.Op{Kind: augment.Grayscale}) }

// GaussianBlur is torchvision's: see [augment.GaussianBlur].
type GaussianBlur augment.GaussianBlur

// Validate reports every fault.
func (t GaussianBlur) Validate() error { return bare(augment.GaussianBlur(t).Validate()) }

func (t GaussianBlur) draw(r *Recipe) error {
	return r.paint(augment.GaussianBlur(t).Draw(&r.rand, 0, 0))
}

// RandomErasing is torchvision's, before the normalisation: see [augment.RandomErasing].
// Masks and boxes stay as they are.
type RandomErasing augment.RandomErasing

// Validate reports every fault.
func (t RandomErasing) Validate() error { return bare(augment.RandomErasing(t).Validate()) }

func (t RandomErasing) draw(r *Recipe) error {
	width, height := r.Size()
	return r.erase(augment.RandomErasing(t).Draw(&r.rand, width, height))
}

// RandAugment is torchvision's: see [augment.RandAugment]. What moves pixels moves masks
// and boxes, too, where torchvision refuses them.
type RandAugment augment.RandAugment

// Validate reports every fault.
func (t RandAugment) Validate() error { return bare(augment.RandAugment(t).Validate()) }

func (t RandAugment) draw(r *Recipe) error {
	width, height := r.Size()
	r.drawn = augment.RandAugment(t).Draw(r.drawn[:0], &r.rand, width, height)
	for _, op := range r.drawn {
		if err := r.paint(op); err != nil {
			return err
		}
	}
	return nil
}

// TrivialAugmentWide is torchvision's: see [augment.TrivialAugmentWide]. What moves
// pixels moves masks and boxes, too, where torchvision refuses them.
type TrivialAugmentWide augment.TrivialAugmentWide

// Validate reports every fault.
func (t TrivialAugmentWide) Validate() error { return bare(augment.TrivialAugmentWide(t).Validate()) }

func (t TrivialAugmentWide) draw(r *Recipe) error {
	width, height := r.Size()
	return r.paint(augment.TrivialAugmentWide(t).Draw(&r.rand, width, height))
}

// RandomInvert is torchvision's: see [augment.RandomInvert].
type RandomInvert augment.RandomInvert

// Validate reports every fault.
func (t RandomInvert) Validate() error { return bare(augment.RandomInvert(t).Validate()) }

func (t RandomInvert) draw(r *Recipe) error {
	return r.paint(augment.RandomInvert(t).Draw(&r.rand, 0, 0))
}

// RandomPosterize is torchvision's: see [augment.RandomPosterize].
type RandomPosterize augment.RandomPosterize

// Validate reports every fault.
func (t RandomPosterize) Validate() error { return bare(augment.RandomPosterize(t).Validate()) }

func (t RandomPosterize) draw(r *Recipe) error {
	return r.paint(augment.RandomPosterize(t).Draw(&r.rand, 0, 0))
}

// RandomSolarize is torchvision's: see [augment.RandomSolarize].
type RandomSolarize augment.RandomSolarize

// Validate reports every fault.
func (t RandomSolarize) Validate() error { return bare(augment.RandomSolarize(t).Validate()) }

func (t RandomSolarize) draw(r *Recipe) error {
	return r.paint(augment.RandomSolarize(t).Draw(&r.rand, 0, 0))
}

// RandomAdjustSharpness is torchvision's: see [augment.RandomAdjustSharpness].
type RandomAdjustSharpness augment.RandomAdjustSharpness

// Validate reports every fault.
func (t RandomAdjustSharpness) Validate() error {
	return bare(augment.RandomAdjustSharpness(t).Validate())
}

func (t RandomAdjustSharpness) draw(r *Recipe) error {
	return r.paint(augment.RandomAdjustSharpness(t).Draw(&r.rand, 0, 0))
}

// RandomAutocontrast is torchvision's: see [augment.RandomAutocontrast].
type RandomAutocontrast augment.RandomAutocontrast

// Validate reports every fault.
func (t RandomAutocontrast) Validate() error { return bare(augment.RandomAutocontrast(t).Validate()) }

func (t RandomAutocontrast) draw(r *Recipe) error {
	return r.paint(augment.RandomAutocontrast(t).Draw(&r.rand, 0, 0))
}

// RandomEqualize is torchvision's: see [augment.RandomEqualize].
type RandomEqualize augment.RandomEqualize

// Validate reports every fault.
func (t RandomEqualize) Validate() error { return bare(augment.RandomEqualize(t).Validate()) }

func (t RandomEqualize) draw(r *Recipe) error {
	return r.paint(augment.RandomEqualize(t).Draw(&r.rand, 0, 0))
}

// RandomApply is torchvision's: with probability P (0 means 0.5) all of Transforms are
// done, otherwise none.
type RandomApply struct {
	Transforms List    `json:"transforms"`
	P          float64 `json:"p,omitempty"`
}

// Validate reports every fault.
func (t RandomApply) Validate() error {
	var p error
	if !(t.P >= 0 && t.P <= 1) {
		p = fmt.Errorf("p is %v; want a probability from 0 to 1", t.P)
	}
	return errors.Join(p, validateInner(t.Transforms))
}

func (t RandomApply) draw(r *Recipe) error {
	p := t.P
	if p == 0 {
		p = 0.5
	}
	if r.rand.Float64() >= p {
		return nil
	}
	return r.drawAll(t.Transforms)
}

// RandomChoice is torchvision's: one of Transforms is done.
type RandomChoice struct {
	Transforms List `json:"transforms"`
	// P weighs them; where it is nil, all are equally likely.
	P []float64 `json:"p,omitzero"`
}

// Validate reports every fault.
func (t RandomChoice) Validate() error {
	var p error
	if t.P != nil && len(t.P) != len(t.Transforms) {
		p = fmt.Errorf("p has %d weights for %d transforms", len(t.P), len(t.Transforms))
	}
	sum := 0.0
	for i, v := range t.P {
		if !(v >= 0 && v <= 1e9) {
			p = errors.Join(p, fmt.Errorf("p[%d] is %v; want a weight from 0 to a billion", i, v))
		}
		sum += v
	}
	if p == nil && t.P != nil && sum == 0 {
		p = errors.New("p is 0 for all transforms")
	}
	return errors.Join(p, validateInner(t.Transforms))
}

func (t RandomChoice) draw(r *Recipe) error {
	if t.P == nil {
		return r.drawAt(t.Transforms, r.rand.IntN(len(t.Transforms)))
	}
	sum, last := 0.0, 0
	for i, v := range t.P {
		sum += v
		if v > 0 {
			last = i
		}
	}
	at := float64(r.rand.Float64() * sum)
	for i, v := range t.P[:last] {
		if at -= v; at < 0 {
			return r.drawAt(t.Transforms, i)
		}
	}
	return r.drawAt(t.Transforms, last)
}

// validateInner reports the faults of the transforms within another.
func validateInner(l List) error {
	if len(l) == 0 {
		return errors.New("transforms is empty; want one at least")
	}
	return l.Validate()
}

// Normalize is torchvision's ToDtype(float32, scale=True) and Normalize: it makes
// floats (v/255 - Mean) / Std of bytes. Mean and Std are of red, green and blue, for
// values from 0 to 1; a Std of all zeros means 1, 1, 1. It comes last, once.
type Normalize tensor.Normalize

// ImageNet is the normalisation that models trained on ImageNet expect. In JSON it is
// {"normalize": "imagenet"}.
var ImageNet = Normalize(tensor.ImageNet)

// Validate reports every fault.
func (t Normalize) Validate() error { return tensor.Normalize(t).Validate() }

// draw does nothing: the normalisation is done as the picture is written.
func (t Normalize) draw(*Recipe) error { return nil }

// bare takes the struct's name from a fault of package augment: the list says it.
func bare(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

func validateFilter(f resize.Filter) error {
	if _, err := f.MarshalText(); err != nil {
		return fmt.Errorf("interpolation: %w", err)
	}
	return nil
}
