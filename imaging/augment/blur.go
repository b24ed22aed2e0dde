package augment

import (
	"fmt"
	"math"
	"slices"

	"shardify/imaging"
)

// GaussianBlur is torchvision's: a convolution with a Gaussian of random width, the
// image mirrored at its edges (without repeating the outermost pixel).
//
// Pixels are the exact sums rounded half to even, but where float32 puts a sum that lies
// within 0.001 of a half on its other side: 2 in a million. torchvision sums in float32
// too, in an order that depends on the machine, and so differs from us by 1 in as few.
type GaussianBlur struct {
	// KernelSize is the kernel's width and height in pixels, both odd; 0, 0 means
	// 23, 23, which SimCLR uses for images of 224 pixels.
	KernelSize [2]int `json:"kernel_size,omitzero"`
	// Sigma bounds the standard deviation in pixels; 0, 0 means 0.1, 2.
	Sigma [2]float64 `json:"sigma,omitzero"`
	// P is the probability of blurring at all; 0 means 1, as torchvision has it. (Its
	// users write RandomApply([GaussianBlur(…)], p).)
	P float64 `json:"p,omitempty"`
}

// maxKernel bounds the side of a kernel.
const maxKernel = 1023

func (c GaussianBlur) withDefaults() GaussianBlur {
	if c.KernelSize == [2]int{} {
		c.KernelSize = [2]int{23, 23}
	}
	if c.Sigma == [2]float64{} {
		c.Sigma = [2]float64{0.1, 2}
	}
	return c
}

// Validate reports every fault.
func (c GaussianBlur) Validate() error {
	c = c.withDefaults()
	var sigma error
	if s := c.Sigma; !(s[0] > 0 && s[0] <= s[1] && s[1] <= maxFactor) {
		sigma = fmt.Errorf("sigma is %v; want two numbers above 0, up to %v, the smaller first", s, maxFactor)
	}
	return invalid("GaussianBlur", validateKernel(c.KernelSize), sigma, validateP(c.P))
}

func validateKernel(k [2]int) error {
	for _, n := range k {
		if n < 1 || n > maxKernel || n%2 == 0 {
			return fmt.Errorf("kernel_size is %v; want two odd numbers from 1 to %d", k, maxKernel)
		}
	}
	return nil
}

// Draw returns the operation to apply, perhaps none. It uses two random numbers.
func (c GaussianBlur) Draw(r *Rand, _, _ int) Op {
	c = c.withDefaults()
	blurred := chance(r, c.P, 1)
	sigma := r.Uniform(c.Sigma[0], c.Sigma[1])
	if !blurred {
		return Op{}
	}
	return Op{Kind: Blur, Value: sigma, Kernel: c.KernelSize}
}

// gaussian writes to half a kernel's middle weight and those after it; all together
// they sum to 1.
func gaussian(half []float32, sigma float64) {
	sum := 0.0
	for i := range half {
		v := float64(i) / sigma
		w := math.Exp(-0.5 * v * v)
		half[i] = float32(w)
		if i > 0 {
			w *= 2
		}
		sum += w
	}
	for i := range half {
		half[i] = float32(float64(half[i]) / sum)
	}
}

// BlurWeights returns the weights that a Blur convolves with, across and down: of each
// kernel the middle one and those after it, which are the same before it, without those
// that change nothing. They are appended to the slices, of which across comes to no more
// than Kernel[0]/2+1, and down to Kernel[1]/2+1. Sums go down the columns first; each is of
// float32: the middle product, then, from the inside, of each weight and the sum of the two
// samples that it is for.
func (o Op) BlurWeights(across, down []float32) (_, _ []float32, err error) {
	if err := validateKernel(o.Kernel); err != nil {
		return nil, nil, fmt.Errorf("augment: Blur: %w", err)
	}
	if !(o.Value > 0) {
		return nil, nil, fmt.Errorf("augment: Blur of the standard deviation %v; want one above 0", o.Value)
	}
	for i, half := range []*[]float32{&across, &down} {
		from, n := len(*half), o.Kernel[i]/2+1
		*half = slices.Grow(*half, n)[:from+n]
		gaussian((*half)[from:], o.Value)
		*half = (*half)[:from+len(trim((*half)[from:]))]
	}
	return across, down, nil
}

func (ws *Workspace) blur(m *imaging.Image, o Op) error {
	var err error
	if ws.kernel[0], ws.kernel[1], err = o.BlurWeights(ws.kernel[0][:0], ws.kernel[1][:0]); err != nil {
		return err
	}
	// Sums down the columns of a row, with the mirrored pixels on both sides, and the
	// sums along that. Rows that are overwritten are kept as long as rows below need
	// them, each at its number modulo as many.
	across, down := ws.kernel[0], ws.kernel[1]
	n, side, keep := 3*m.Width, len(across)-1, min(len(down), m.Height)
	ws.floats = grow(ws.floats, n+6*side)
	line := ws.floats
	middle := line[3*side:][:n]
	ws.kept = grow(ws.kept, keep*n)
	ws.shown = grow(ws.shown, 2*len(down)-1)
	defer clear(ws.shown)
	for y := range m.Height {
		out := m.Pix[y*m.Stride:][:n]
		copy(ws.kept[y%keep*n:][:n], out)
		row := func(i int) *uint8 {
			if i = mirror(i, m.Height); i <= y {
				return &ws.kept[i%keep*n]
			}
			return &m.Pix[i*m.Stride]
		}
		ws.shown[0] = row(y)
		for k := 1; k < len(down); k++ {
			ws.shown[2*k-1], ws.shown[2*k] = row(y-k), row(y+k)
		}
		blurDown(middle, ws.shown, down, ws.simd())
		for x := range side {
			left, right := mirror(x-side, m.Width), mirror(m.Width+x, m.Width)
			copy(line[3*x:][:3], middle[3*left:])
			copy(line[3*(side+m.Width+x):][:3], middle[3*right:])
		}
		blurAcross(out, line, across, ws.simd())
	}
	return nil
}

// trim leaves out the weights at the end of half a kernel that together change no sum of
// bytes by more than 0.0001.
func trim(half []float32) []float32 {
	rest := float32(0)
	for len(half) > 1 {
		if rest += half[len(half)-1]; 2*255*rest > 0.0001 {
			break
		}
		half = half[:len(half)-1]
	}
	return half
}

// mirror is the pixel, of n, that stands for number i: pixels beyond an edge are
// those as far within it.
func mirror(i, n int) int {
	if n == 1 {
		return 0
	}
	period := 2 * (n - 1)
	i = (i%period + period) % period
	return min(i, period-i)
}
