package augment

import (
	"fmt"

	"shardify/imaging"
)

// ColorJitter is torchvision's: brightness, contrast, saturation and hue are changed
// by random factors, in random order. The zero value changes nothing.
type ColorJitter struct {
	Brightness Gain `json:"brightness,omitzero"`
	Contrast   Gain `json:"contrast,omitzero"`
	Saturation Gain `json:"saturation,omitzero"`
	// Hue is in parts of the circle, -0.5 to 0.5.
	Hue Spread `json:"hue,omitzero"`
	// P is the probability of changing anything; 0 means 1, as torchvision has it.
	// (Its users write RandomApply([ColorJitter(…)], p).)
	P float64 `json:"p,omitempty"`
}

// Validate reports every fault.
func (c ColorJitter) Validate() error {
	return invalid("ColorJitter", c.Brightness.validate("brightness"), c.Contrast.validate("contrast"),
		c.Saturation.validate("saturation"), c.Hue.validate("hue", -0.5, 0.5), validateP(c.P))
}

// Draw returns the operations in the order in which to apply them; those that the
// options leave out are Identity. It uses eight random numbers whatever the options:
// whether, three for the order, and four factors.
func (c ColorJitter) Draw(r *Rand, _, _ int) Ops4 {
	changed := chance(r, c.P, 1)
	order := [4]int{0, 1, 2, 3}
	for i := range 3 {
		j := i + r.IntN(4-i)
		order[i], order[j] = order[j], order[i]
	}
	ops := [4]Op{
		{Kind: Brightness, Value: c.Brightness.draw(r)},
		{Kind: Contrast, Value: c.Contrast.draw(r)},
		{Kind: Saturation, Value: c.Saturation.draw(r)},
		{Kind: Hue, Value: r.Uniform(c.Hue[0], c.Hue[1])},
	}
	if c.Hue == (Spread{}) {
		ops[3] = Op{} // a hue of 0 is no identity: it goes through 8-bit HSV
	}
	var drawn Ops4
	for i, k := range order {
		if changed {
			drawn[i] = ops[k]
		}
	}
	return drawn
}

// Ops4 is four operations, one after another.
type Ops4 [4]Op

// Apply carries them out on m, in place.
func (p Ops4) Apply(ws *Workspace, m *imaging.Image) error {
	for _, op := range p {
		if err := op.Apply(ws, m); err != nil {
			return err
		}
	}
	return nil
}

// RandomGrayscale is torchvision's: the image loses its colour with probability P; 0
// means 0.1.
type RandomGrayscale struct {
	P float64 `json:"p,omitempty"`
}

// Validate reports every fault.
func (c RandomGrayscale) Validate() error { return invalid("RandomGrayscale", validateP(c.P)) }

// Draw returns the operation to apply, perhaps none.
func (c RandomGrayscale) Draw(r *Rand, _, _ int) Op { return perhaps(r, c.P, 0.1, Grayscale, 0) }

// RandomInvert is torchvision's: the image becomes its negative with probability P; 0
// means 0.5.
type RandomInvert struct {
	P float64 `json:"p,omitempty"`
}

// Validate reports every fault.
func (c RandomInvert) Validate() error { return invalid("RandomInvert", validateP(c.P)) }

// Draw returns the operation to apply, perhaps none.
func (c RandomInvert) Draw(r *Rand, _, _ int) Op { return perhaps(r, c.P, 0.5, Invert, 0) }

// RandomPosterize is torchvision's: with probability P (0 means 0.5) only the highest
// Bits of every sample stay.
type RandomPosterize struct {
	// Bits is 1 to 8.
	Bits int     `json:"bits"`
	P    float64 `json:"p,omitempty"`
}

// Validate reports every fault.
func (c RandomPosterize) Validate() error {
	var bits error
	if c.Bits < 1 || c.Bits > 8 {
		bits = fmt.Errorf("bits is %d; want 1 to 8", c.Bits)
	}
	return invalid("RandomPosterize", bits, validateP(c.P))
}

// Draw returns the operation to apply, perhaps none.
func (c RandomPosterize) Draw(r *Rand, _, _ int) Op {
	return perhaps(r, c.P, 0.5, Posterize, float64(c.Bits))
}

// RandomSolarize is torchvision's: with probability P (0 means 0.5) samples of at
// least Threshold are inverted.
type RandomSolarize struct {
	// Threshold is 0 to 256, at which nothing is inverted.
	Threshold float64 `json:"threshold"`
	P         float64 `json:"p,omitempty"`
}

// Validate reports every fault.
func (c RandomSolarize) Validate() error {
	var threshold error
	if !(c.Threshold >= 0 && c.Threshold <= 256) {
		threshold = fmt.Errorf("threshold is %v; want 0 to 256", c.Threshold)
	}
	return invalid("RandomSolarize", threshold, validateP(c.P))
}

// Draw returns the operation to apply, perhaps none.
func (c RandomSolarize) Draw(r *Rand, _, _ int) Op {
	return perhaps(r, c.P, 0.5, Solarize, c.Threshold)
}

// RandomAdjustSharpness is torchvision's: with probability P (0 means 0.5) the image
// is sharpened (a factor above 1) or smoothed (below 1).
type RandomAdjustSharpness struct {
	SharpnessFactor float64 `json:"sharpness_factor"`
	P               float64 `json:"p,omitempty"`
}

// Validate reports every fault.
func (c RandomAdjustSharpness) Validate() error {
	f := c.SharpnessFactor
	return invalid("RandomAdjustSharpness", Gain{f, f}.validate("sharpness_factor, as a range,"), validateP(c.P))
}

// Draw returns the operation to apply, perhaps none.
func (c RandomAdjustSharpness) Draw(r *Rand, _, _ int) Op {
	return perhaps(r, c.P, 0.5, Sharpness, c.SharpnessFactor)
}

// RandomAutocontrast is torchvision's: with probability P (0 means 0.5) every channel
// is stretched to the whole range.
type RandomAutocontrast struct {
	P float64 `json:"p,omitempty"`
}

// Validate reports every fault.
func (c RandomAutocontrast) Validate() error { return invalid("RandomAutocontrast", validateP(c.P)) }

// Draw returns the operation to apply, perhaps none.
func (c RandomAutocontrast) Draw(r *Rand, _, _ int) Op {
	return perhaps(r, c.P, 0.5, AutoContrast, 0)
}

// RandomEqualize is torchvision's: with probability P (0 means 0.5) every channel's
// histogram is made flat.
type RandomEqualize struct {
	P float64 `json:"p,omitempty"`
}

// Validate reports every fault.
func (c RandomEqualize) Validate() error { return invalid("RandomEqualize", validateP(c.P)) }

// Draw returns the operation to apply, perhaps none.
func (c RandomEqualize) Draw(r *Rand, _, _ int) Op { return perhaps(r, c.P, 0.5, Equalize, 0) }

// perhaps returns an operation with probability p, of which 0 means otherwise; it uses
// one random number.
func perhaps(r *Rand, p, otherwise float64, k Kind, value float64) Op {
	if !chance(r, p, otherwise) {
		return Op{}
	}
	return Op{Kind: k, Value: value}
}
