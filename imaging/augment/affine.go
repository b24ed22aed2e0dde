package augment

import (
	"fmt"
	"math"

	"shardify/imaging"
)

// RandomRotation is torchvision's: it turns the image by a random angle about its
// centre; what turns out of the picture is lost (expand=False).
type RandomRotation struct {
	// Degrees bounds the angle, counter-clockwise.
	Degrees       Spread        `json:"degrees"`
	Interpolation Interpolation `json:"interpolation,omitzero"`
	// Center is what the image turns about, in pixels from its upper left corner;
	// nil means its centre.
	Center *[2]float64 `json:"center,omitempty"`
	Fill   Color       `json:"fill,omitzero"`
}

// Validate reports every fault.
func (c RandomRotation) Validate() error {
	return invalid("RandomRotation", c.Degrees.validate("degrees", -maxAngle, maxAngle), c.Interpolation.validate(), validateCenter(c.Center))
}

// Draw returns the warp of an image of width x height.
func (c RandomRotation) Draw(r *Rand, width, height int) Warp {
	cx, cy := center(c.Center, width, height)
	return Warp{rotation(r.Uniform(c.Degrees[0], c.Degrees[1]), cx, cy), c.Interpolation, c.Fill}
}

// RandomAffine is torchvision's: it turns, moves, scales and shears the image about
// its centre.
type RandomAffine struct {
	// Degrees bounds the angle, clockwise.
	Degrees Spread `json:"degrees"`
	// Translate bounds the shift to either side, as parts of the width and height,
	// 0 to 1; a shift is of whole pixels.
	Translate [2]float64 `json:"translate,omitzero"`
	// Scale bounds the factor of size; 0, 0 means 1, 1.
	Scale [2]float64 `json:"scale,omitzero"`
	// Shear bounds the angles of shear, in degrees.
	Shear         ShearRange    `json:"shear,omitzero"`
	Interpolation Interpolation `json:"interpolation,omitzero"`
	Fill          Color         `json:"fill,omitzero"`
	// Center is what the image turns about, in pixels from its upper left corner;
	// nil means its centre.
	Center *[2]float64 `json:"center,omitempty"`
}

// Validate reports every fault.
func (c RandomAffine) Validate() error {
	var translate, scale error
	for _, v := range c.Translate {
		if !(v >= 0 && v <= 1) {
			translate = fmt.Errorf("translate is %v; want two numbers from 0 to 1", c.Translate)
		}
	}
	if s := c.Scale; s != [2]float64{} && !(s[0] >= 1/maxScale && s[0] <= s[1] && s[1] <= maxScale) {
		scale = fmt.Errorf("scale is %v; want two numbers from %v to %v, the smaller first", s, 1./maxScale, maxScale)
	}
	return invalid("RandomAffine", c.Degrees.validate("degrees", -maxAngle, maxAngle), translate, scale,
		Spread(c.Shear[:2]).validate("shear along x", -maxShear, maxShear),
		Spread(c.Shear[2:]).validate("shear along y", -maxShear, maxShear),
		c.Interpolation.validate(), validateCenter(c.Center))
}

const (
	maxAngle = 360000 // degrees
	maxScale = 1000.
	maxShear = 89 // degrees; at 90 an image becomes a line
)

// Draw returns the warp of an image of width x height. It uses six random numbers
// whatever the options: angle, shift in x, in y, scale, shear along x, along y.
func (c RandomAffine) Draw(r *Rand, width, height int) Warp {
	if c.Scale == [2]float64{} {
		c.Scale = [2]float64{1, 1}
	}
	angle := r.Uniform(c.Degrees[0], c.Degrees[1])
	dx, dy := float64(c.Translate[0]*float64(width)), float64(c.Translate[1]*float64(height))
	tx := math.RoundToEven(r.Uniform(-dx, dx))
	ty := math.RoundToEven(r.Uniform(-dy, dy))
	scale := r.Uniform(c.Scale[0], c.Scale[1])
	sx, sy := r.Uniform(c.Shear[0], c.Shear[1]), r.Uniform(c.Shear[2], c.Shear[3])
	cx, cy := center(c.Center, width, height)
	return Warp{affine(cx, cy, angle, tx, ty, scale, sx, sy), c.Interpolation, c.Fill}
}

// Warp is an affine map of an image that keeps its size: what RandomRotation and
// RandomAffine draw.
type Warp struct {
	Matrix        Matrix        `json:"matrix"`
	Interpolation Interpolation `json:"interpolation,omitzero"`
	Fill          Color         `json:"fill,omitzero"`
}

// Apply maps m, in place.
func (p Warp) Apply(ws *Workspace, m *imaging.Image) error {
	if err := check(m); err != nil {
		return err
	}
	if err := p.Matrix.validate(); err != nil {
		return err
	}
	return ws.warpInPlace(m, &p.Matrix, p.Interpolation, p.Fill)
}

func center(c *[2]float64, width, height int) (x, y float64) {
	if c != nil {
		return c[0], c[1]
	}
	return float64(width) * 0.5, float64(height) * 0.5
}

func validateCenter(c *[2]float64) error {
	if c != nil {
		for _, v := range c {
			if !(math.Abs(v) <= 1<<24) {
				return fmt.Errorf("center is %v; want a place near the image, in pixels", *c)
			}
		}
	}
	return nil
}
