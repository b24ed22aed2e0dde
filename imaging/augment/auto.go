package augment

import (
	"fmt"
	"math"

	"shardify/imaging"
)

// automatic is what RandAugment and TrivialAugmentWide choose from, in torchvision's
// order.
const automatic = int(Equalize) + 1

var automaticKinds = [automatic]Kind{
	Identity, ShearX, ShearY, TranslateX, TranslateY, Rotate, Brightness, Saturation,
	Contrast, Sharpness, Posterize, Solarize, AutoContrast, Equalize,
}

// ranges has the largest magnitudes of one of the two.
type ranges struct {
	shear, rotate, factor float64
	translateX            float64 // in pixels
	translateY            float64
	bits                  int // that Posterize takes away at most
}

// randRanges are RandAugment's.
func randRanges(width, height int) ranges {
	return ranges{
		shear: 0.3, rotate: 30, factor: 0.9, bits: 4,
		translateX: 150. / 331 * float64(width), translateY: 150. / 331 * float64(height),
	}
}

// op returns the operation that a bin of so many means. torch computes magnitudes in
// float32, and so do we.
func (g ranges) op(k Kind, bin, bins int, negative bool) Op {
	sign := 1.0
	if negative {
		sign = -1
	}
	switch k {
	case ShearX, ShearY:
		return Op{Kind: k, Value: sign * linspace(0, g.shear, bin, bins)}
	case TranslateX:
		return Op{Kind: k, Value: math.Trunc(sign * linspace(0, g.translateX, bin, bins))}
	case TranslateY:
		return Op{Kind: k, Value: math.Trunc(sign * linspace(0, g.translateY, bin, bins))}
	case Rotate:
		return Op{Kind: k, Value: sign * linspace(0, g.rotate, bin, bins)}
	case Brightness, Saturation, Contrast, Sharpness:
		return Op{Kind: k, Value: 1 + float64(sign*linspace(0, g.factor, bin, bins))}
	case Posterize:
		part := float32(float64(bins-1) / float64(g.bits))
		return Op{Kind: k, Value: math.RoundToEven(float64(8 - float32(float32(bin)/part)))}
	case Solarize:
		return Op{Kind: k, Value: 255 * linspace(1, 0, bin, bins)}
	default:
		return Op{Kind: k}
	}
}

// linspace is element i of torch.linspace(start, end, n), whose vector instructions round
// the sum of a product once.
func linspace(start, end float64, i, n int) float64 {
	first, last := float32(start), float32(end)
	step := (last - first) / float32(n-1)
	if i < n/2 {
		return float64(float32(float64(first) + float64(float64(step)*float64(i))))
	}
	return float64(float32(float64(last) - float64(float64(step)*float64(n-1-i))))
}

// RandAugment is torchvision's: NumOps operations, each one of 14 at random, all of one
// magnitude. The zero value has torchvision's defaults.
type RandAugment struct {
	// NumOps is how many; 0 means 2.
	NumOps int `json:"num_ops,omitempty"`
	// Magnitude is 0 to NumMagnitudeBins - 1; nil means 9.
	Magnitude *int `json:"magnitude,omitempty"`
	// NumMagnitudeBins is how many magnitudes there are; 0 means 31.
	NumMagnitudeBins int           `json:"num_magnitude_bins,omitempty"`
	Interpolation    Interpolation `json:"interpolation,omitzero"`
	Fill             Color         `json:"fill,omitzero"`
}

func (c RandAugment) withDefaults() (ops, magnitude, bins int) {
	ops, magnitude, bins = c.NumOps, 9, c.NumMagnitudeBins
	if ops == 0 {
		ops = 2
	}
	if c.Magnitude != nil {
		magnitude = *c.Magnitude
	}
	if bins == 0 {
		bins = 31
	}
	return ops, magnitude, bins
}

// Validate reports every fault.
func (c RandAugment) Validate() error {
	ops, magnitude, bins := c.withDefaults()
	var number, level error
	if ops < 1 || ops > 100 {
		number = fmt.Errorf("num_ops is %d; want 1 to 100", ops)
	}
	if bins >= 2 && (magnitude < 0 || magnitude >= bins) {
		level = fmt.Errorf("magnitude is %d; want 0 to %d, below num_magnitude_bins", magnitude, bins-1)
	}
	return invalid("RandAugment", number, validateBins(bins), level, c.Interpolation.validate())
}

func validateBins(bins int) error {
	if bins < 2 || bins > 1<<20 {
		return fmt.Errorf("num_magnitude_bins is %d; want 2 to %d", bins, 1<<20)
	}
	return nil
}

// Draw appends to ops the operations for an image of width x height, in order. It uses
// two random numbers for each: which, and the sign of its magnitude.
func (c RandAugment) Draw(ops Ops, r *Rand, width, height int) Ops {
	n, magnitude, bins := c.withDefaults()
	g := randRanges(width, height)
	for range n {
		k := automaticKinds[r.IntN(automatic)]
		op := g.op(k, magnitude, bins, r.Float64() < 0.5)
		op.Interpolation, op.Fill = c.Interpolation, c.Fill
		ops = append(ops, op)
	}
	return ops
}

// TrivialAugmentWide is torchvision's: one operation of 14 at random, of a random
// magnitude. The zero value has torchvision's defaults.
type TrivialAugmentWide struct {
	// NumMagnitudeBins is how many magnitudes there are; 0 means 31.
	NumMagnitudeBins int           `json:"num_magnitude_bins,omitempty"`
	Interpolation    Interpolation `json:"interpolation,omitzero"`
	Fill             Color         `json:"fill,omitzero"`
}

func (c TrivialAugmentWide) bins() int {
	if c.NumMagnitudeBins == 0 {
		return 31
	}
	return c.NumMagnitudeBins
}

// Validate reports every fault.
func (c TrivialAugmentWide) Validate() error {
	return invalid("TrivialAugmentWide", validateBins(c.bins()), c.Interpolation.validate())
}

// Draw returns the operation. It uses three random numbers: which, its magnitude, and
// that one's sign.
func (c TrivialAugmentWide) Draw(r *Rand, _, _ int) Op {
	g := ranges{shear: 0.99, rotate: 135, factor: 0.99, bits: 6, translateX: 32, translateY: 32}
	k := automaticKinds[r.IntN(automatic)]
	bin := r.IntN(c.bins())
	op := g.op(k, bin, c.bins(), r.Float64() < 0.5)
	op.Interpolation, op.Fill = c.Interpolation, c.Fill
	return op
}

// Ops is operations, one after another.
type Ops []Op

// Apply carries them out on m, in place.
func (p Ops) Apply(ws *Workspace, m *imaging.Image) error {
	for _, op := range p {
		if err := op.Apply(ws, m); err != nil {
			return err
		}
	}
	return nil
}
