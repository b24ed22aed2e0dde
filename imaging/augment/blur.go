package augment

import (
	"fmt"
	"math"

	"shardify/imaging"
)

// GaussianBlur is torchvision's: a convolution with a Gaussian of random width, the
// image mirrored at its edges (without repeating the outermost pixel).
//
// torchvision sums in float32 in an order that depends on the machine, we in float32
// along each axis in turn. Both lie within 0.001 of the exact value before they
// round, half to even, so they differ by 1 in the few pixels that lie so near a half.
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
	if s := c.Sigma; !(s[0] > 0 && s[0] <= s[1] && !math.IsInf(s[1], 0)) {
		sigma = fmt.Errorf("sigma is %v; want two numbers above 0, the smaller first", s)
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

func (ws *Workspace) blur(m *imaging.Image, kernel [2]int, sigma float64) error {
	if err := validateKernel(kernel); err != nil {
		return fmt.Errorf("augment: Blur: %w", err)
	}
	if !(sigma > 0) {
		return fmt.Errorf("augment: Blur of the standard deviation %v; want one above 0", sigma)
	}
	for i, n := range kernel {
		ws.kernel[i] = grow(ws.kernel[i], n/2+1)
		gaussian(ws.kernel[i], sigma)
	}
	// Rows of floats, with the mirrored pixels on both sides, and after them the
	// last rows' sums down the columns.
	across, down := ws.kernel[0], ws.kernel[1]
	src := ws.copy(m)
	n, side := 3*m.Width, len(across)-1
	ws.floats = grow(ws.floats, n+6*side)
	line := ws.floats
	middle := line[3*side:][:n]
	for y := range m.Height {
		for i, v := range src.Pix[y*n:][:n] {
			middle[i] = float32(float32(v) * down[0])
		}
		for k := 1; k < len(down); k++ {
			above := src.Pix[mirror(y-k, m.Height)*n:][:n]
			below := src.Pix[mirror(y+k, m.Height)*n:][:n]
			w := down[k]
			for i, v := range above {
				middle[i] += float32(w * float32(int(v)+int(below[i])))
			}
		}
		for x := range side {
			left, right := mirror(x-side, m.Width), mirror(m.Width+x, m.Width)
			copy(line[3*x:][:3], middle[3*left:])
			copy(line[3*(side+m.Width+x):][:3], middle[3*right:])
		}
		out := m.Pix[y*m.Stride:][:n]
		for i := range out {
			at := i + 3*side
			sum := float32(across[0] * line[at])
			for k := 1; k < len(across); k++ {
				sum += float32(across[k] * (line[at-3*k] + line[at+3*k]))
			}
			out[i] = uint8(math.RoundToEven(float64(min(max(sum, 0), 255))))
		}
	}
	return nil
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
