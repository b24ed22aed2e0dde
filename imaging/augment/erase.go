package augment

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"sync"

	"shardify/imaging"
)

// RandomErasing is torchvision's: a rectangle of random area and aspect ratio is
// painted over. torchvision does so after Normalize, we on bytes: its value 0 is the
// data set's mean colour (124, 116, 104 for ImageNet), ours is black.
type RandomErasing struct {
	// P is the probability of erasing at all; 0 means 0.5.
	P float64 `json:"p,omitempty"`
	// Scale bounds the rectangle's share of the image's area; 0, 0 means 0.02, 0.33.
	Scale [2]float64 `json:"scale,omitzero"`
	// Ratio bounds the rectangle's height over its width; 0, 0 means 0.3, 3.3.
	Ratio [2]float64 `json:"ratio,omitzero"`
	// Value is what is painted.
	Value ErasingValue `json:"value,omitzero"`
}

// ErasingValue is a colour or noise. In JSON it is one number, three, or "random".
type ErasingValue struct {
	Color Color
	// Random paints noise instead: each sample of its own, which after the
	// normalisation for ImageNet is of the standard normal distribution, cut to bytes.
	Random bool
}

// MarshalJSON returns three numbers or "random".
func (v ErasingValue) MarshalJSON() ([]byte, error) {
	if v.Random {
		return []byte(`"random"`), nil
	}
	return json.Marshal([3]int{int(v.Color[0]), int(v.Color[1]), int(v.Color[2])})
}

// UnmarshalJSON takes one number, three, or "random".
func (v *ErasingValue) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte(`"random"`)) {
		*v = ErasingValue{Random: true}
		return nil
	}
	c := v.Color
	if err := c.UnmarshalJSON(data); err != nil {
		return fmt.Errorf(`augment: value: want a number, three, or "random": %w`, err)
	}
	*v = ErasingValue{Color: c}
	return nil
}

func (c RandomErasing) withDefaults() RandomErasing {
	if c.Scale == [2]float64{} {
		c.Scale = [2]float64{0.02, 0.33}
	}
	if c.Ratio == [2]float64{} {
		c.Ratio = [2]float64{0.3, 3.3}
	}
	return c
}

// Validate reports every fault.
func (c RandomErasing) Validate() error {
	c = c.withDefaults()
	var scale, ratio error
	if s := c.Scale; !(s[0] >= 0 && s[0] <= s[1] && s[1] <= 1) {
		scale = fmt.Errorf("scale is %v; want two numbers from 0 to 1, the smaller first", s)
	}
	if r := c.Ratio; !(r[0] > 0 && r[0] <= r[1] && !math.IsInf(r[1], 0)) {
		ratio = fmt.Errorf("ratio is %v; want two numbers above 0, the smaller first", r)
	}
	return invalid("RandomErasing", validateP(c.P), scale, ratio)
}

// Draw returns what to erase of an image of width x height, perhaps nothing. Up to ten
// times it draws an area (uniform) and a ratio (its logarithm uniform), and takes the
// first rectangle that is lower and narrower than the image, at a uniform place, the
// row drawn before the column; if none is, nothing is erased.
func (c RandomErasing) Draw(r *Rand, width, height int) Erasing {
	c = c.withDefaults()
	if !chance(r, c.P, 0.5) {
		return Erasing{}
	}
	area := float64(width) * float64(height)
	low, high := math.Log(c.Ratio[0]), math.Log(c.Ratio[1])
	for range 10 {
		target := area * r.Uniform(c.Scale[0], c.Scale[1])
		ratio := math.Exp(r.Uniform(low, high))
		h := math.RoundToEven(math.Sqrt(target * ratio))
		w := math.RoundToEven(math.Sqrt(target / ratio))
		if h < float64(height) && w < float64(width) {
			e := Erasing{Region: Region{Width: int(w), Height: int(h)}, Value: c.Value}
			e.Region.Y = r.IntN(height - e.Region.Height + 1)
			e.Region.X = r.IntN(width - e.Region.Width + 1)
			if noise := r.Uint64(); c.Value.Random {
				e.Noise = noise
			}
			return e
		}
	}
	return Erasing{}
}

// Erasing is what RandomErasing draws.
type Erasing struct {
	// Region is what is painted over; empty, nothing is.
	Region Region       `json:"region"`
	Value  ErasingValue `json:"value"`
	// Noise is the key of random values.
	Noise uint64 `json:"noise,omitempty"`
}

// Apply paints over the region of m, which must lie within it.
func (e Erasing) Apply(_ *Workspace, m *imaging.Image) error {
	if err := check(m); err != nil {
		return err
	}
	g := e.Region
	if g.X < 0 || g.Y < 0 || g.Width < 0 || g.Height < 0 || g.Width > m.Width-g.X || g.Height > m.Height-g.Y {
		return fmt.Errorf("augment: erasing %+v: it does not lie within %d x %d", g, m.Width, m.Height)
	}
	if g.Width == 0 {
		return nil
	}
	p := imagePlane(m)
	noise := Rand{seed: e.Noise, use: forNoise}
	var levels *[3][1 << noiseBits]uint8
	if e.Value.Random {
		levels = noiseLevels()
	}
	var bits uint64
	left := 0
	for y := g.Y; y < g.Y+g.Height; y++ {
		row := m.Pix[y*m.Stride+3*g.X:][:3*g.Width]
		if levels == nil {
			p.fill(row, &e.Value.Color)
			continue
		}
		for ; len(row) >= 3; row = row[3:] {
			o := row[:3:3]
			for c := range o {
				if left == 0 {
					bits, left = noise.Uint64(), 64/noiseBits
				}
				o[c] = levels[c][bits&(1<<noiseBits-1)]
				bits >>= noiseBits
				left--
			}
		}
	}
	return nil
}

const noiseBits = 12

// NoiseLevels has, for every channel and equally likely number of 12 bits, the byte that
// stands for a normal deviate under ImageNet's normalisation. Sample k of what is erased
// with noise, counted along the rows of its region, three to a pixel, has bits 12*(k%5) on
// of word k/5 of the numbers under the key Erasing.Noise. It must not be changed.
func NoiseLevels() *[3][1 << noiseBits]uint8 { return noiseLevels() }

var noiseLevels = sync.OnceValue(func() *[3][1 << noiseBits]uint8 {
	var t [3][1 << noiseBits]uint8
	mean, std := [3]float64{0.485, 0.456, 0.406}, [3]float64{0.229, 0.224, 0.225}
	for i := range t[0] {
		z := math.Sqrt2 * math.Erfinv(float64(2*i+1)/(1<<noiseBits)-1)
		for c := range t {
			v := 255 * (mean[c] + float64(std[c]*z))
			t[c][i] = uint8(math.RoundToEven(min(max(v, 0), 255)))
		}
	}
	return &t
})
