package gpu

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unsafe"

	"shardify/gpu/internal/cuda"
	"shardify/imaging/augment"
	"shardify/reader"
)

// Border is what a map shows beside the image.
type Border int

// The borders. The zero value is Fill, as torchvision has it.
const (
	// BorderFill shows Augmentation.Fill.
	BorderFill Border = iota
	// BorderEdge repeats the outermost pixels.
	BorderEdge
	// BorderReflect mirrors the image, without its edge twice.
	BorderReflect
)

var borders = [...]string{"fill", "edge", "reflect"}

func (b Border) String() string {
	if b < 0 || int(b) >= len(borders) {
		return fmt.Sprintf("Border(%d)", int(b))
	}
	return borders[b]
}

// MarshalText returns fill, edge or reflect.
func (b Border) MarshalText() ([]byte, error) {
	if b < 0 || int(b) >= len(borders) {
		return nil, fmt.Errorf("gpu: no border has the number %d", int(b))
	}
	return []byte(borders[b]), nil
}

// UnmarshalText takes fill, edge or reflect.
func (b *Border) UnmarshalText(text []byte) error {
	i := slices.Index(borders[:], string(text))
	if i < 0 {
		return fmt.Errorf("gpu: unknown border %q; want %s", text, strings.Join(borders[:], ", "))
	}
	*b = Border(i)
	return nil
}

// Augmentation is what is done to one image, with everything drawn: by the transforms of
// imaging/augment, from the random numbers of its sample, so that a GPU shows the pictures
// that a CPU would. The zero value leaves it as it is. Its steps are taken in the order of
// the fields.
type Augmentation struct {
	// FlipX mirrors left to right, FlipY top to bottom.
	FlipX bool `json:"flip_x,omitempty"`
	FlipY bool `json:"flip_y,omitempty"`
	// Matrix leads from places in the result to such in the image, which are interpolated
	// bilinearly; the zero value is the identity. It is what augment.RandomRotation and
	// RandomAffine draw, or augment.Op's Matrix.
	Matrix augment.Matrix `json:"matrix,omitzero"`
	Border Border         `json:"border,omitzero"`
	Fill   augment.Color  `json:"fill,omitzero"`
	// Ops are up to 8 operations on colours, one after another: Brightness, Contrast (at
	// most one), Saturation, Hue, Grayscale, Invert, Posterize, Solarize; Identity is none.
	Ops []augment.Op `json:"ops,omitempty"`
	// Erasing paints a part over, with a colour.
	Erasing augment.Erasing `json:"erasing,omitzero"`
}

const maxOps = 8

// augmentOp and augmentSample are structs op and sample of kernels.c.
type augmentOp struct {
	kind  uint32
	value float32
}

type augmentSample struct {
	matrix         [6]float64
	warp, border   uint32
	flipX, flipY   uint32
	fill, erase    uint32
	x0, y0, x1, y1 uint32
	ops, contrast  uint32
	op             [maxOps]augmentOp
}

// opContrast is the number of an operation in kernels.c; the others are in resolve.
const opContrast = 2

// resolve checks an augmentation of an image, and writes it as the kernel takes it.
func (a *Augmentation) resolve(width, height int) (s augmentSample, err error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	s = augmentSample{
		matrix: a.Matrix, border: uint32(a.Border), flipX: flag(a.FlipX), flipY: flag(a.FlipY),
		fill: packed(a.Fill), erase: packed(a.Erasing.Value.Color),
	}
	s.warp = flag(a.Matrix != augment.Matrix{} && a.Matrix != augment.IdentityMatrix)
	for _, v := range a.Matrix {
		if v-v != 0 {
			fault("the matrix %v; want finite numbers", a.Matrix)
			break
		}
	}
	if a.Border < 0 || int(a.Border) >= len(borders) {
		fault("no border has the number %d", int(a.Border))
	}
	contrast := -1
	for _, o := range a.Ops {
		if o.Kind == augment.Identity {
			continue
		}
		if s.ops == maxOps {
			fault("more than %d operations", maxOps)
			break
		}
		op := augmentOp{value: float32(o.Value)}
		if !(math.Abs(o.Value) <= 1<<20) {
			fault("%v with the value %v", o.Kind, o.Value)
		}
		switch o.Kind {
		case augment.Brightness:
			op.kind = 1
		case augment.Contrast:
			if op.kind = opContrast; contrast >= 0 {
				fault("Contrast twice; a GPU changes it once in an image")
			}
			contrast = int(s.ops)
		case augment.Saturation:
			op.kind = 3
		case augment.Hue:
			if o.Value < -0.5 || o.Value > 0.5 {
				fault("Hue by %v; want -0.5 to 0.5", o.Value)
			}
			op = augmentOp{4, float32(uint8(int32(o.Value * 255)))}
		case augment.Grayscale:
			op.kind = 5
		case augment.Invert:
			op.kind = 6
		case augment.Posterize:
			if !(o.Value >= 1 && o.Value < 9) {
				fault("Posterize to %v bits; want 1 to 8", o.Value)
			}
			op = augmentOp{7, float32(uint8(0xff << (8 - int(min(max(o.Value, 0), 8)))))}
		case augment.Solarize:
			op = augmentOp{8, float32(math.Ceil(min(max(o.Value, 0), 256)))}
		default:
			fault("%v is not among what a GPU does", o.Kind)
		}
		s.op[s.ops] = op
		s.ops++
	}
	if s.contrast = s.ops; contrast >= 0 {
		s.contrast = uint32(contrast)
	}
	if g := a.Erasing.Region; g.X < 0 || g.Y < 0 || g.Width < 0 || g.Height < 0 || g.Width > width-g.X || g.Height > height-g.Y {
		fault("erasing %+v: it does not lie within %d x %d", g, width, height)
	} else {
		s.x0, s.y0, s.x1, s.y1 = uint32(g.X), uint32(g.Y), uint32(g.X+g.Width), uint32(g.Y+g.Height)
	}
	if a.Erasing.Value.Random && a.Erasing.Region.Width > 0 {
		fault("erasing with random values; a GPU erases with a colour")
	}
	return s, errors.Join(faults...)
}

// augmentArgs is struct augment of kernels.c.
type augmentArgs struct {
	src, dst, samples, sums Pointer
	n, height, width, _     uint32
}

// Augmenter augments batches on a GPU. It has memory there for the parameters of a batch,
// so that it may be used for one stream at a time only.
type Augmenter struct {
	device  *Device
	most    int
	samples []augmentSample
	bytes   []byte  // of samples
	memory  Pointer // samples, then sums
}

// NewAugmenter makes an augmenter for batches of up to most images. Close it.
func (d *Device) NewAugmenter(most int) (*Augmenter, error) {
	if most < 1 || most > 1<<24 {
		return nil, fmt.Errorf("gpu: an augmenter for batches of %d", most)
	}
	const each = int64(unsafe.Sizeof(augmentSample{}))
	p, err := d.context.Alloc(int64(most) * (each + 8))
	if err != nil {
		return nil, fmt.Errorf("gpu: augmenter: %w", err)
	}
	a := &Augmenter{device: d, most: most, samples: make([]augmentSample, most), memory: p}
	a.bytes = unsafe.Slice((*byte)(unsafe.Pointer(&a.samples[0])), int64(most)*each)
	return a, nil
}

// Close frees the memory. The streams that it was used for must have done their work.
func (a *Augmenter) Close() error { return a.device.context.Free(a.memory) }

// Apply puts into a stream what makes of a batch of bytes, channels last, another: src and
// dst are of DTypeUint8 and the shape [N, height, width, 3], and do not overlap; each has an
// augmentation for each image. Pixels are those that imaging/augment, and so Pillow, makes
// of the same parameters, byte for byte. Normalize makes floats of them afterwards.
func (a *Augmenter) Apply(dst, src Tensor, each []Augmentation, s Stream) error {
	if src.DType != reader.DTypeUint8 || dst.DType != reader.DTypeUint8 || len(src.Shape) != 4 || src.Shape[3] != 3 || !slices.Equal(src.Shape, dst.Shape) {
		return fmt.Errorf("gpu: augment: %q %v to %q %v; want uint8 and [N, height, width, 3] of both", src.DType, src.Shape, dst.DType, dst.Shape)
	}
	n, h, w := src.Shape[0], src.Shape[1], src.Shape[2]
	if len(each) != n || n < 1 || n > a.most {
		return fmt.Errorf("gpu: augment: %d images, %d augmentations, and an augmenter for 1 to %d", n, len(each), a.most)
	}
	if h < 1 || w < 1 || int64(h)*int64(w) > math.MaxInt32-16*threads {
		return fmt.Errorf("gpu: augment: images of shape %v", src.Shape)
	}
	if size := int64(n) * int64(h) * int64(w) * 3; src.Bytes != size || dst.Bytes != size {
		return fmt.Errorf("gpu: augment: %d and %d bytes do not hold %d images of %d x %d", src.Bytes, dst.Bytes, n, w, h)
	}
	means := false
	for i := range each {
		var err error
		if a.samples[i], err = each[i].resolve(w, h); err != nil {
			return fmt.Errorf("gpu: augment: image %d: %w", i, err)
		}
		means = means || a.samples[i].contrast < a.samples[i].ops
	}
	shade, err := a.device.kernel("augment")
	if err != nil {
		return err
	}
	const size = int64(unsafe.Sizeof(augmentSample{}))
	args := augmentArgs{
		src: src.Data, dst: dst.Data, samples: a.memory, sums: a.memory + Pointer(int64(a.most)*size),
		n: uint32(n), height: uint32(h), width: uint32(w),
	}
	// The samples are not pinned: the driver has copied them when Upload returns.
	c := a.device.context
	if err := c.Upload(args.samples, a.bytes[:int64(n)*size], s); err != nil {
		return err
	}
	grid := func(pixels int) cuda.Grid {
		return cuda.Grid{uint32((h*w + pixels*threads - 1) / (pixels * threads)), uint32(min(n, maxBlocks)), 1}
	}
	if means {
		luma, err := a.device.kernel("augment_luma")
		if err != nil {
			return err
		}
		if err := c.Set(args.sums, 0, 8*int64(n), s); err != nil {
			return err
		}
		if err := luma.Launch(grid(16), cuda.Grid{threads, 1, 1}, s, unsafe.Pointer(&args)); err != nil {
			return err
		}
	}
	return shade.Launch(grid(1), cuda.Grid{threads, 1, 1}, s, unsafe.Pointer(&args))
}
