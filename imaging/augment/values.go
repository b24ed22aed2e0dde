package augment

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// Gain is a range of factors about 1, smaller first. In JSON it is [min, max], or
// as in torchvision one number v for [max(0, 1-v), 1+v]. The zero value is none:
// the factor 1.
type Gain [2]float64

// maxFactor keeps products with bytes far from float32's bounds.
const maxFactor = 1e6

// GainOf returns the range that the number v stands for.
func GainOf(v float64) Gain { return Gain{max(0, 1-v), 1 + v} }

// UnmarshalJSON takes one number or two.
func (g *Gain) UnmarshalJSON(data []byte) error {
	return unmarshalRange((*[2]float64)(g), data, func(v float64) [2]float64 { return GainOf(v) })
}

// unmarshalRange reads two numbers, or one, not below 0, that stands for a range.
func unmarshalRange(dst *[2]float64, data []byte, of func(float64) [2]float64) error {
	v, err := numbers(data, 1, 2)
	switch {
	case err != nil:
		return err
	case len(v) == 1 && v[0] < 0:
		return fmt.Errorf("augment: %v; a single number must not be below 0", v[0])
	case len(v) == 1:
		*dst = of(v[0])
	case len(v) == 2:
		*dst = [2]float64{v[0], v[1]}
	}
	return nil
}

func (g Gain) validate(name string) error {
	if g[0] >= 0 && g[0] <= g[1] && g[1] <= maxFactor {
		return nil
	}
	return fmt.Errorf("%s is %v; want two numbers from 0 to %v, the smaller first", name, [2]float64(g), maxFactor)
}

// draw returns a factor; it uses one random number whatever the range.
func (g Gain) draw(r *Rand) float64 {
	if g == (Gain{}) {
		g = Gain{1, 1}
	}
	return r.Uniform(g[0], g[1])
}

// Spread is a range of values about 0, smaller first. In JSON it is [min, max], or
// as in torchvision one number v for [-v, v]. The zero value is none.
type Spread [2]float64

// SpreadOf returns the range that the number v stands for.
func SpreadOf(v float64) Spread { return Spread{-v, v} }

// UnmarshalJSON takes one number or two.
func (s *Spread) UnmarshalJSON(data []byte) error {
	return unmarshalRange((*[2]float64)(s), data, func(v float64) [2]float64 { return SpreadOf(v) })
}

func (s Spread) validate(name string, low, high float64) error {
	if s[0] >= low && s[0] <= s[1] && s[1] <= high {
		return nil
	}
	return fmt.Errorf("%s is %v; want two numbers from %v to %v, the smaller first", name, [2]float64(s), low, high)
}

// Color fills what no pixel reaches: red, green, blue. In JSON it is three numbers,
// or one for all. The zero value is black.
type Color [3]uint8

// UnmarshalJSON takes one number or three, each a whole one from 0 to 255.
func (c *Color) UnmarshalJSON(data []byte) error {
	v, err := numbers(data, 1, 3)
	if err != nil || v == nil {
		return err
	}
	for _, n := range v {
		if n != math.Trunc(n) || n < 0 || n > 255 {
			return fmt.Errorf("augment: the colour %s; want whole numbers from 0 to 255", data)
		}
	}
	for i := range c {
		c[i] = uint8(v[i%len(v)])
	}
	return nil
}

// Padding counts pixels on the left, top, right and bottom. In JSON it is four
// numbers, or as in torchvision two (left and right, top and bottom) or one.
type Padding [4]int

// UnmarshalJSON takes one, two or four whole numbers.
func (p *Padding) UnmarshalJSON(data []byte) error {
	v, err := numbers(data, 1, 2, 4)
	if err != nil || v == nil {
		return err
	}
	for _, n := range v {
		if n != math.Trunc(n) || math.Abs(n) > 1<<30 {
			return fmt.Errorf("augment: the padding %s; want whole numbers", data)
		}
	}
	for i := range p {
		p[i] = int(v[i%len(v)])
	}
	return nil
}

func (p Padding) validate() error {
	for _, n := range p {
		if n < 0 || n > maxSide {
			return fmt.Errorf("padding is %v; want numbers from 0 to %d", [4]int(p), maxSide)
		}
	}
	return nil
}

// maxSide bounds what is added to an image's sides.
const maxSide = 1 << 16

// ShearRange is a range of angles in degrees for a shear along x and one along y:
// x's smallest and largest, then y's. In JSON it is four numbers, or as in
// torchvision two (x only) or one (v for x from -v to v). The zero value is none.
type ShearRange [4]float64

// UnmarshalJSON takes one number, two or four.
func (s *ShearRange) UnmarshalJSON(data []byte) error {
	v, err := numbers(data, 1, 2, 4)
	switch {
	case err != nil:
		return err
	case len(v) == 1 && v[0] < 0:
		return fmt.Errorf("augment: %v; a single number must not be below 0", v[0])
	case len(v) == 1:
		*s = ShearRange{-v[0], v[0]}
	case len(v) > 1:
		*s = ShearRange{}
		copy(s[:], v)
	}
	return nil
}

// numbers reads one number, or a list of them that has one of the given lengths;
// null is none.
func numbers(data []byte, lengths ...int) (v []float64, err error) {
	data = bytes.TrimSpace(data)
	if bytes.Equal(data, []byte("null")) {
		return nil, nil
	}
	if bytes.HasPrefix(data, []byte("[")) {
		err = json.Unmarshal(data, &v)
	} else {
		v = make([]float64, 1)
		err = json.Unmarshal(data, &v[0])
	}
	if err != nil {
		return nil, fmt.Errorf("augment: %s: want a number or a list of them: %w", data, err)
	}
	for _, n := range lengths {
		if len(v) == n {
			return v, nil
		}
	}
	return nil, fmt.Errorf("augment: %s: %d numbers; the lengths allowed are %v", data, len(v), lengths)
}

// Interpolation says how a pixel is made of those it falls between. The zero value
// is Nearest, torchvision's default for rotations and affine maps.
type Interpolation int

const (
	Nearest Interpolation = iota
	Bilinear
)

func (i Interpolation) String() string {
	switch i {
	case Nearest:
		return "nearest"
	case Bilinear:
		return "bilinear"
	}
	return fmt.Sprintf("Interpolation(%d)", int(i))
}

func (i Interpolation) validate() error {
	if i != Nearest && i != Bilinear {
		return fmt.Errorf("no interpolation has the number %d", int(i))
	}
	return nil
}

// MarshalText returns nearest or bilinear.
func (i Interpolation) MarshalText() ([]byte, error) {
	if err := i.validate(); err != nil {
		return nil, fmt.Errorf("augment: %w", err)
	}
	return []byte(i.String()), nil
}

// UnmarshalText takes nearest or bilinear; an empty text is Nearest.
func (i *Interpolation) UnmarshalText(text []byte) error {
	switch string(text) {
	case "", "nearest":
		*i = Nearest
	case "bilinear":
		*i = Bilinear
	default:
		return fmt.Errorf("augment: unknown interpolation %q; want nearest or bilinear", text)
	}
	return nil
}

// chance reports whether something happens that has the probability p, where 0
// stands for the probability otherwise.
func chance(r *Rand, p, otherwise float64) bool {
	if p == 0 {
		p = otherwise
	}
	return r.Float64() < p
}

func validateP(p float64) error {
	if p >= 0 && p <= 1 {
		return nil
	}
	return fmt.Errorf("p is %v; want a probability from 0 to 1", p)
}

func invalid(transform string, faults ...error) error {
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("%s: %w", transform, err)
	}
	return nil
}
