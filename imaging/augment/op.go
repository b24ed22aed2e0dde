package augment

import (
	"fmt"
	"math"

	"shardify/imaging"
	"shardify/imaging/resize"
	"shardify/internal/simd"
)

// Kind names an operation on an image's pixels.
type Kind int

// The operations, and what Op.Value means to each. Those from ShearX to Invert bear
// the names that torchvision's RandAugment gives them.
const (
	// Identity does nothing.
	Identity Kind = iota
	// ShearX and ShearY shift each row (column) by Value times its distance from
	// the top (left).
	ShearX
	ShearY
	// TranslateX and TranslateY shift by the whole pixels in Value, to the right
	// and down.
	TranslateX
	TranslateY
	// Rotate turns by Value degrees, counter-clockwise, about the centre.
	Rotate
	// Brightness, Saturation, Contrast and Sharpness have the factor Value:
	// 0 leaves none, 1 changes nothing, more is more.
	Brightness
	Saturation
	Contrast
	Sharpness
	// Posterize keeps the highest Value bits, 1 to 8, of every sample.
	Posterize
	// Solarize inverts samples of at least Value.
	Solarize
	// AutoContrast stretches every channel to the range 0 to 255.
	AutoContrast
	// Equalize makes every channel's histogram flat.
	Equalize
	// Invert makes a negative.
	Invert
	// Hue turns the hue by Value of the circle, -0.5 to 0.5.
	Hue
	// Grayscale takes the colour away; the channels become equal.
	Grayscale
	// Blur convolves with a Gaussian of the standard deviation Value, in pixels, cut
	// to Op.Kernel.
	Blur

	kinds
)

// names has torchvision's, in whose RandAugment saturation is "Color".
var names = [kinds]string{
	"Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness",
	"Color", "Contrast", "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize",
	"Invert", "Hue", "Grayscale", "GaussianBlur",
}

func (k Kind) String() string {
	if k < 0 || k >= kinds {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return names[k]
}

// MarshalText returns the operation's name.
func (k Kind) MarshalText() ([]byte, error) {
	if k < 0 || k >= kinds {
		return nil, fmt.Errorf("augment: no operation has the number %d", int(k))
	}
	return []byte(names[k]), nil
}

// UnmarshalText takes an operation's name.
func (k *Kind) UnmarshalText(text []byte) error {
	for i, name := range names {
		if name == string(text) {
			*k = Kind(i)
			return nil
		}
	}
	return fmt.Errorf("augment: unknown operation %q; want one of %v", text, names)
}

// Op is an operation on pixels with everything drawn: what a transform's Draw
// returns, and Apply, or a GPU, carries out. The zero value does nothing.
type Op struct {
	Kind  Kind    `json:"kind"`
	Value float64 `json:"value"`
	// Kernel is Blur's width and height in pixels, both odd.
	Kernel [2]int `json:"kernel,omitzero"`
	// Interpolation and Fill are for the operations that move pixels.
	Interpolation Interpolation `json:"interpolation,omitzero"`
	Fill          Color         `json:"fill,omitzero"`
}

// Apply carries the operation out on m, in place. Its pixels are those of Pillow 13
// and of torchvision's transforms of PIL images, byte for byte, but for Blur, whose
// bound is at [GaussianBlur].
func (o Op) Apply(ws *Workspace, m *imaging.Image) error {
	if err := check(m); err != nil {
		return err
	}
	if !(math.Abs(o.Value) <= maxFactor) {
		return fmt.Errorf("augment: %v with the value %v; want one from %v to %v", o.Kind, o.Value, -maxFactor, maxFactor)
	}
	switch o.Kind {
	case Identity:
	case ShearX, ShearY, TranslateX, TranslateY, Rotate:
		matrix, err := o.matrix(m.Width, m.Height)
		if err != nil {
			return err
		}
		return ws.warpInPlace(m, &matrix, o.Interpolation, o.Fill)
	case Brightness:
		ws.brightness(m, o.Value)
	case Saturation:
		ws.saturation(m, o.Value)
	case Contrast:
		ws.contrast(m, o.Value)
	case Sharpness:
		ws.sharpness(m, o.Value)
	case Posterize:
		if o.Value < 1 || o.Value >= 9 {
			return fmt.Errorf("augment: Posterize to %v bits; want 1 to 8", o.Value)
		}
		ws.posterize(m, int(o.Value))
	case Solarize:
		ws.solarize(m, o.Value)
	case AutoContrast:
		ws.autoContrast(m)
	case Equalize:
		ws.equalize(m)
	case Invert:
		ws.invert(m)
	case Hue:
		if o.Value < -0.5 || o.Value > 0.5 {
			return fmt.Errorf("augment: Hue by %v; want -0.5 to 0.5", o.Value)
		}
		ws.hue(m, o.Value)
	case Grayscale:
		ws.grayscale(m)
	case Blur:
		return ws.blur(m, o)
	default:
		return fmt.Errorf("augment: no operation has the number %d", int(o.Kind))
	}
	return nil
}

// Workspace is the memory that transforms need besides the image, kept between
// calls: the zero value is ready, one goroutine may use it at a time, and once it
// has seen the largest of its images nothing is allocated.
type Workspace struct {
	copied  imaging.Image // of the image that is changed
	stage   [2]imaging.Image
	mask    imaging.Mask
	columns []int32 // which column of the source each one shows
	pieces  []piece
	rows    []int32
	resizer resize.Resizer
	kept    []uint8 // rows that an operation in place needs after they are overwritten
	shown   []*uint8
	floats  []float32
	kernel  [2][]float32
	level   simd.Level // plus 1; 0 is the best there is
}

func (ws *Workspace) simd() simd.Level {
	if ws.level == 0 {
		return simd.Best()
	}
	return ws.level - 1
}

// copy returns a copy of m that stays until the next call.
func (ws *Workspace) copy(m *imaging.Image) *imaging.Image {
	ws.copied.Reset(m.Width, m.Height)
	for y := range m.Height {
		copy(ws.copied.Pix[y*ws.copied.Stride:][:3*m.Width], m.Pix[y*m.Stride:])
	}
	return &ws.copied
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

func check(m *imaging.Image) error {
	if m.Width < 1 || m.Height < 1 || m.Stride < 3*m.Width || len(m.Pix) < (m.Height-1)*m.Stride+3*m.Width {
		return fmt.Errorf("augment: an image of %d x %d in rows of %d bytes does not fit its %d bytes", m.Width, m.Height, m.Stride, len(m.Pix))
	}
	return nil
}

func checkMask(m *imaging.Mask) error {
	if m.Width < 1 || m.Height < 1 || m.Stride < m.Width || len(m.Pix) < (m.Height-1)*m.Stride+m.Width {
		return fmt.Errorf("augment: a mask of %d x %d in rows of %d bytes does not fit its %d bytes", m.Width, m.Height, m.Stride, len(m.Pix))
	}
	return nil
}
