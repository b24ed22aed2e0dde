package augment

import (
	"fmt"
	"math"
)

// MixUp is torchvision's: each image of a batch is blended with another. It is drawn
// once a batch, from a NewBatchRand.
type MixUp struct {
	// Alpha is both parameters of the Beta distribution of the weight; 0 means 1.
	Alpha float64 `json:"alpha,omitempty"`
}

// Validate reports every fault.
func (c MixUp) Validate() error { return invalid("MixUp", validateAlpha(c.Alpha)) }

// Draw returns how to blend: image i of the batch becomes Lambda times itself and
// 1 - Lambda times image Partner(i), and so do their labels as one-hot vectors.
func (c MixUp) Draw(r *Rand) Mix {
	return Mix{Lambda: r.Beta(alphaOrOne(c.Alpha))}
}

// CutMix is torchvision's: into each image of a batch a part of another is pasted. It
// is drawn once a batch, from a NewBatchRand.
type CutMix struct {
	// Alpha is both parameters of the Beta distribution of the part's area; 0 means 1.
	Alpha float64 `json:"alpha,omitempty"`
}

// Validate reports every fault.
func (c CutMix) Validate() error { return invalid("CutMix", validateAlpha(c.Alpha)) }

// Draw returns what to paste in a batch of images of width x height: the Region of
// image Partner(i) replaces that of image i. Lambda is the part of the area that stays,
// which weighs the labels as with MixUp. The region has both sides of even length, drawn
// about a uniform centre, column before row, and is then cut to the image; it may be
// empty.
func (c CutMix) Draw(r *Rand, width, height int) Mix {
	lambda := r.Beta(alphaOrOne(c.Alpha))
	cx, cy := r.IntN(width), r.IntN(height)
	half := 0.5 * math.Sqrt(1-lambda)
	w, h := int(half*float64(width)), int(half*float64(height))
	x0, y0 := max(cx-w, 0), max(cy-h, 0)
	x1, y1 := min(cx+w, width), min(cy+h, height)
	m := Mix{Region: Region{X: x0, Y: y0, Width: x1 - x0, Height: y1 - y0}}
	m.Lambda = 1 - float64(m.Region.Width*m.Region.Height)/float64(width*height)
	return m
}

// Mix is what MixUp and CutMix draw.
type Mix struct {
	// Lambda weighs each image's own label; its partner's has 1 - Lambda.
	Lambda float64 `json:"lambda"`
	// Region is CutMix's.
	Region Region `json:"region,omitzero"`
}

// Partner returns which image of a batch of n is mixed into image i: the one before it,
// and the last into the first. The batch must be shuffled.
func Partner(i, n int) int { return (i + n - 1) % n }

func alphaOrOne(alpha float64) float64 {
	if alpha == 0 {
		return 1
	}
	return alpha
}

func validateAlpha(alpha float64) error {
	if a := alphaOrOne(alpha); !(a > 0 && a <= 1e6) {
		return fmt.Errorf("alpha is %v; want above 0, up to a million", alpha)
	}
	return nil
}
