package gpu

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"shardify/gpu/internal/cuda"
	"shardify/imaging/tensor"
	"shardify/reader"
)

// ptx is the kernels' code, for every GPU from compute capability 7.5 on: the driver
// compiles it for the card that is there, and keeps the result in ~/.nv/ComputeCache.
// `make kernels` makes it of kernels/kernels.c.
//
//go:embed kernels/kernels.ptx
var ptx []byte

// The oldest GPUs that the kernels run on: Turing.
const minMajor, minMinor = 7, 5

func runsKernels(v cuda.Device) bool {
	return v.Major > minMajor || v.Major == minMajor && v.Minor >= minMinor
}

// kernels are a device's, compiled when the first is asked for.
type kernels struct {
	mu        sync.Mutex
	module    *cuda.Module
	functions map[string]*cuda.Function
}

// kernel returns a kernel by its name.
func (d *Device) kernel(name string) (*cuda.Function, error) {
	k := &d.kernels
	k.mu.Lock()
	defer k.mu.Unlock()
	if f := k.functions[name]; f != nil {
		return f, nil
	}
	if k.module == nil {
		if v := d.context.Device(); !runsKernels(v) {
			return nil, fmt.Errorf("%w: kernels need compute capability %d.%d, and %s has %d.%d", ErrUnavailable, minMajor, minMinor, d.Name(), v.Major, v.Minor)
		}
		m, err := d.context.Load(ptx)
		if err != nil {
			return nil, err
		}
		k.module, k.functions = m, map[string]*cuda.Function{}
	}
	f, err := k.module.Function(name)
	if err != nil {
		return nil, err
	}
	k.functions[name] = f
	return f, nil
}

// unload frees the kernels.
func (k *kernels) unload() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.module == nil {
		return nil
	}
	m := k.module
	k.module, k.functions = nil, nil
	return m.Unload()
}

// Alloc takes memory for a tensor on the GPU. What is in it is not known. It is the
// caller's until Free.
func (d *Device) Alloc(name string, dtype reader.DType, shape ...int) (Tensor, error) {
	size := int64(dtype.Size())
	for _, n := range shape {
		if n < 0 || n > 0 && size > math.MaxInt64/int64(n) {
			return Tensor{}, fmt.Errorf("gpu: a tensor of shape %v", shape)
		}
		size *= int64(n)
	}
	if size == 0 {
		return Tensor{}, fmt.Errorf("gpu: a tensor of shape %v and dtype %q has no bytes", shape, dtype)
	}
	p, err := d.context.Alloc(size)
	if err != nil {
		return Tensor{}, fmt.Errorf("tensor %q: %w", name, err)
	}
	return Tensor{Name: name, DType: dtype, Shape: slices.Clone(shape), Data: p, Bytes: size}, nil
}

// Free gives back what Alloc has taken. Nothing in any stream may still use it.
func (d *Device) Free(t Tensor) error { return d.context.Free(t.Data) }

// Upload puts a copy to the GPU into a stream. src must stay as it is until that is done.
func (d *Device) Upload(dst Pointer, src []byte, s Stream) error {
	return d.context.Upload(dst, src, s)
}

// NormalizeConfig is what Device.Normalize makes of images.
type NormalizeConfig struct {
	// Layout is that of the result.
	Layout reader.Layout `json:"layout"`
	// Normalize makes floats of bytes; a result of DTypeUint8 is left alone by it.
	Normalize tensor.Normalize `json:"normalize"`
	// Blend blends the batch on the way, as reader.Config.MixUp and CutMix do on the host:
	// what augment.MixUp and augment.CutMix draw for it.
	Blend *reader.Blend `json:"blend,omitempty"`
}

// The numbers that a division by multiplication is exact with; ImageNet's are near 1.
const leastStd, mostStd = 0x1p-60, 0x1p60

// Validate reports every fault.
func (c NormalizeConfig) Validate() error {
	var faults []error
	if c.Layout != reader.LayoutNCHW && c.Layout != reader.LayoutNHWC {
		faults = append(faults, fmt.Errorf("layout: %v", c.Layout))
	}
	err := c.Normalize.Validate()
	if err != nil {
		faults = append(faults, err)
	}
	for i := range 3 {
		if m := math.Abs(float64(c.Normalize.Mean[i])); err == nil && m > mostStd {
			faults = append(faults, fmt.Errorf("mean[%d] is %v; a GPU takes up to 2^60", i, c.Normalize.Mean[i]))
		}
		if v := c.Normalize.Std[i]; err == nil && c.Normalize.Std != [3]float32{} && (v < leastStd || v > mostStd) {
			faults = append(faults, fmt.Errorf("std[%d] is %v; a GPU takes 2^-60 to 2^60", i, v))
		}
	}
	if b := c.Blend; b != nil && !b.Cut && !(b.Lambda >= 0 && b.Lambda <= 1) {
		faults = append(faults, fmt.Errorf("mixup with lambda %v; want 0 to 1", b.Lambda))
	}
	return errors.Join(faults...)
}

// normalizeArgs is struct normalize of kernels.c.
type normalizeArgs struct {
	src, dst           Pointer
	n, plane, width    uint32
	own, other         float32
	x0, y0, x1, y1     uint32
	mean, std, inverse [3]float32
	_                  uint32
}

// threads is how many a block has.
const threads = 256

// maxBlocks is how many blocks a grid has in its second dimension.
const maxBlocks = 65535

// Normalize puts into a stream what makes of a batch of bytes, channels last, as a reader
// with DTypeUint8 and LayoutNHWC gives it (a quarter of the bytes to upload that floats
// would be), a batch for a model: src has the shape [N, height, width, 3], and dst the
// dtype float32, float16, bfloat16 or uint8, with the shape [N, 3, height, width] or, under
// LayoutNHWC, that of src. They must not overlap.
//
// The numbers are those of a reader with that dtype, layout and transform.Normalize, bit
// for bit; under MixUp too, which a reader has in float32 only: others are rounded once, at
// the end.
func (d *Device) Normalize(dst, src Tensor, c NormalizeConfig, s Stream) error {
	put, err := d.normalize(dst, src, c)
	if err != nil {
		return err
	}
	return put(src.Data, s)
}

// normalize does so with images that lie where those of src do, or in another place.
func (d *Device) normalize(dst, src Tensor, c NormalizeConfig) (put func(src Pointer, s Stream) error, err error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("gpu: normalize: %w", err)
	}
	if src.DType != reader.DTypeUint8 || len(src.Shape) != 4 || src.Shape[3] != 3 {
		return nil, fmt.Errorf("gpu: normalize: the images are of dtype %q and shape %v; want uint8 and [N, height, width, 3]", src.DType, src.Shape)
	}
	n, h, w := src.Shape[0], src.Shape[1], src.Shape[2]
	want := []int{n, 3, h, w}
	if c.Layout == reader.LayoutNHWC {
		want = src.Shape
	}
	if !slices.Equal(dst.Shape, want) {
		return nil, fmt.Errorf("gpu: normalize: the result has shape %v; want %v", dst.Shape, want)
	}
	if n < 1 || h < 1 || w < 1 || int64(h)*int64(w) > math.MaxInt32 || int64(n) > math.MaxInt32 {
		return nil, fmt.Errorf("gpu: normalize: images of shape %v", src.Shape)
	}
	elements := int64(n) * int64(h) * int64(w) * 3
	if src.Bytes != elements || dst.Bytes != elements*int64(dst.DType.Size()) {
		return nil, fmt.Errorf("gpu: normalize: %d and %d bytes do not hold %d images of %d x %d", src.Bytes, dst.Bytes, n, w, h)
	}
	if src.Data%16 != 0 || dst.Data%16 != 0 {
		return nil, fmt.Errorf("gpu: normalize: the tensors begin at %#x and %#x; want multiples of 16", src.Data, dst.Data)
	}
	args := normalizeArgs{
		src: src.Data, dst: dst.Data, n: uint32(n), plane: uint32(h * w), width: uint32(w),
		mean: c.Normalize.Mean, std: c.Normalize.Std,
	}
	if args.std == [3]float32{} {
		args.std = [3]float32{1, 1, 1}
	}
	for i, v := range args.std {
		args.inverse[i] = 1 / v
	}
	name := "normalize_"
	if b := c.Blend; b != nil && b.Cut {
		name = "cutmix_"
		g := b.Region
		if g.X < 0 || g.Y < 0 || g.Width < 0 || g.Height < 0 || g.Width > w-g.X || g.Height > h-g.Y {
			return nil, fmt.Errorf("gpu: normalize: cutmix of %+v, which does not lie within %d x %d", g, w, h)
		}
		args.x0, args.y0, args.x1, args.y1 = uint32(g.X), uint32(g.Y), uint32(g.X+g.Width), uint32(g.Y+g.Height)
	} else if b != nil {
		name = "mixup_"
		args.own, args.other = float32(b.Lambda), float32(1-b.Lambda)
	}
	each := 16 / max(1, dst.DType.Size())
	switch dst.DType {
	case reader.DTypeFloat32, reader.DTypeFloat16, reader.DTypeBFloat16:
	case reader.DTypeUint8:
		if name == "mixup_" {
			return nil, errors.New("gpu: normalize: mixup makes floats; the result is of dtype \"uint8\"")
		}
	default:
		return nil, fmt.Errorf("gpu: normalize: the result is of dtype %q; want float32, float16, bfloat16 or uint8", dst.DType)
	}
	f, err := d.kernel(name + string(dst.DType) + "_" + strings.ToLower(c.Layout.String()))
	if err != nil {
		return nil, err
	}
	blocks := (h*w + each*threads - 1) / (each * threads)
	return func(src Pointer, s Stream) error {
		args.src = src
		return f.Launch(cuda.Grid{uint32(blocks), uint32(min(n, maxBlocks)), 1}, cuda.Grid{threads, 1, 1}, s, unsafe.Pointer(&args))
	}, nil
}
