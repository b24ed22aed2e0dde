package gpu

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"shardify/gpu/internal/cuda"
	"shardify/imaging/augment"
	"shardify/imaging/resize"
	"shardify/reader"
)

// Image is where an image lies on a GPU: bytes, channels last, its rows Stride bytes apart.
type Image struct {
	Data                  Pointer
	Width, Height, Stride int
}

// Ragged are the images of a batch of their own sizes, of a reader with DTypeUint8,
// LayoutNHWC and CollateRagged: images is that tensor on the GPU; offsets and sizes are, in
// the host's memory, "image_offsets" and "image_sizes", of which each pair is a height and
// a width. They are checked to lie within the tensor.
func Ragged(images Tensor, offsets, sizes []int64) ([]Image, error) {
	if images.DType != reader.DTypeUint8 || len(images.Shape) != 1 {
		return nil, fmt.Errorf("gpu: ragged images of dtype %q and shape %v; want uint8 and one dimension", images.DType, images.Shape)
	}
	n := len(offsets) - 1
	if n < 0 || len(sizes) != 2*n {
		return nil, fmt.Errorf("gpu: ragged images with %d offsets and %d sizes; want one offset more than images, and a height and a width of each", len(offsets), len(sizes))
	}
	all := make([]Image, n)
	for i := range all {
		from, to, h, w := offsets[i], offsets[i+1], sizes[2*i], sizes[2*i+1]
		if from < 0 || to < from || to > images.Bytes || h < 1 || w < 1 || h > math.MaxInt32 || w > math.MaxInt32 || 3*h > (to-from)/w || 3*h*w != to-from {
			return nil, fmt.Errorf("gpu: ragged images: image %d of %d x %d does not take the bytes %d to %d of %d", i, w, h, from, to, images.Bytes)
		}
		all[i] = Image{Data: images.Data + Pointer(from), Width: int(w), Height: int(h), Stride: 3 * int(w)}
	}
	return all, nil
}

// Resizing is what is made of an image by cutting and scaling, with everything drawn: of
// the transforms of imaging/transform, what a Recipe does first. The zero value leaves it
// as it is. Its steps are taken in the order of the fields.
type Resizing struct {
	// Crop is the part of the image that is looked at, beside which the filter sees
	// nothing; the zero value is all of it.
	Crop augment.Region `json:"crop,omitzero"`
	// Part is the part of that which is scaled, beside which the filter sees the rest; the
	// zero value is all of it.
	Part resize.Rect `json:"part,omitzero"`
	// Width and Height are to what it is scaled, with Filter; 0, 0 means not at all.
	Width  int           `json:"width,omitempty"`
	Height int           `json:"height,omitempty"`
	Filter resize.Filter `json:"filter,omitzero"`
	// Window is the part of the scaled image that is shown; the zero value is all of it.
	// What lies beyond is as PaddingMode and Fill say.
	Window      augment.Region      `json:"window,omitzero"`
	PaddingMode augment.PaddingMode `json:"padding_mode,omitzero"`
	Fill        augment.Color       `json:"fill,omitzero"`
	// FlipX mirrors left to right, FlipY top to bottom.
	FlipX bool `json:"flip_x,omitempty"`
	FlipY bool `json:"flip_y,omitempty"`
}

// resizeAxis and resizeSample are structs axis and resizing of kernels.c.
type resizeAxis struct {
	from, scale, support, step float64
	table                      Pointer
	source, size               uint32
	window                     int32
	scales, flip               uint32
	_                          uint32
}

type resizeSample struct {
	axes                          [2]resizeAxis
	src, begin, end               Pointer
	stride, filter, padding, fill uint32
	acrossFirst                   uint32
	_                             uint32
}

// resizeArgs is struct resize of kernels.c.
type resizeArgs struct {
	each, dst           Pointer
	n, width, height, _ uint32
}

// resolve checks what is made of an image for a place of width x height, and writes it as
// the kernels take it; taps are how many numbers each of the axes' weights has.
func (r *Resizing) resolve(src Image, width, height int) (s resizeSample, taps [2]int, err error) {
	const most = 1 << 24 // pixels along a side
	if src.Width < 1 || src.Height < 1 || src.Width > most || src.Height > most || src.Stride < 3*src.Width || src.Stride > math.MaxInt32 {
		return s, taps, fmt.Errorf("an image of %d x %d in rows of %d bytes", src.Width, src.Height, src.Stride)
	}
	g := augment.Geometry{Crop: r.Crop, Width: r.Width, Height: r.Height, Window: r.Window, PaddingMode: r.PaddingMode}
	if err := g.Validate(src.Width, src.Height); err != nil {
		return s, taps, err
	}
	if w, h := g.Size(src.Width, src.Height); w != width || h != height {
		return s, taps, fmt.Errorf("it makes %d x %d pixels of an image of %d x %d, in a batch of %d x %d", w, h, src.Width, src.Height, width, height)
	}
	crop := r.Crop
	if crop == (augment.Region{}) {
		crop = augment.Region{Width: src.Width, Height: src.Height}
	}
	t := resize.Task{SourceWidth: crop.Width, SourceHeight: crop.Height, Part: r.Part, Filter: r.Filter, Width: r.Width, Height: r.Height}
	if t.Part == (resize.Rect{}) {
		t.Part = resize.Rect{X1: float64(crop.Width), Y1: float64(crop.Height)}
	}
	if t.Width == 0 {
		t.Width, t.Height = crop.Width, crop.Height
	}
	across, down, acrossFirst, err := t.Plan()
	if err != nil {
		return s, taps, err
	}
	axis := func(a resize.Axis, source, size, window int, flip bool) resizeAxis {
		return resizeAxis{a.From, a.Scale, a.Support, a.Step, 0, uint32(source), uint32(size), int32(window), flag(a.Scales), flag(flip), 0}
	}
	s = resizeSample{
		axes: [2]resizeAxis{
			axis(across, crop.Width, t.Width, r.Window.X, r.FlipX),
			axis(down, crop.Height, t.Height, r.Window.Y, r.FlipY),
		},
		src: src.Data + Pointer(crop.Y*src.Stride+3*crop.X), begin: src.Data, end: src.Data + Pointer((src.Height-1)*src.Stride+3*src.Width),
		stride: uint32(src.Stride), filter: uint32(r.Filter), padding: uint32(r.PaddingMode), fill: packed(r.Fill), acrossFirst: flag(acrossFirst),
	}
	return s, [2]int{across.Taps(), down.Taps()}, nil
}

// flag and packed are as kernels take a truth and a colour.
func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

func packed(c augment.Color) uint32 { return uint32(c[0]) | uint32(c[1])<<8 | uint32(c[2])<<16 }

// ResizerConfig bounds a Resizer.
type ResizerConfig struct {
	// Images is how many a batch has at most.
	Images int `json:"images"`
	// Memory is for weights, on the GPU; 0 means 64 KiB for each image. The bilinear filter
	// takes some 8 bytes for each row and column of an image that it makes smaller, the
	// bicubic one 16, and 20 for each of the result. A batch that takes more is made in
	// parts, one after the other.
	Memory int64 `json:"memory,omitempty"`
}

// Validate reports every fault.
func (c ResizerConfig) Validate() error {
	var faults []error
	if c.Images < 1 || c.Images > 1<<24 {
		faults = append(faults, fmt.Errorf("images: %d; want 1 or more", c.Images))
	}
	if c.Memory < 0 || c.Memory > 1<<50 {
		faults = append(faults, fmt.Errorf("memory: %d bytes", c.Memory))
	}
	return errors.Join(faults...)
}

// Resizer cuts and scales batches on a GPU: images of any sizes become such of one. It has
// memory there for a batch's parameters and weights, so that it may be used for one stream
// at a time only.
type Resizer struct {
	device  *Device
	config  ResizerConfig
	samples []resizeSample
	parts   []int   // of a batch: the first image of each, and their number
	memory  Pointer // samples, then weights
}

// NewResizer makes a resizer. Close it.
func (d *Device) NewResizer(c ResizerConfig) (*Resizer, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("gpu: resizer: %w", err)
	}
	if c.Memory == 0 {
		c.Memory = int64(c.Images) << 16
	}
	const each = int64(unsafe.Sizeof(resizeSample{}))
	p, err := d.context.Alloc(int64(c.Images)*each + c.Memory)
	if err != nil {
		return nil, fmt.Errorf("gpu: resizer: %w", err)
	}
	return &Resizer{device: d, config: c, samples: make([]resizeSample, c.Images), memory: p}, nil
}

// Close frees the memory. The streams that it was used for must have done their work.
func (z *Resizer) Close() error { return z.device.context.Free(z.memory) }

// Apply puts into a stream what makes of images of any sizes a batch: dst is of DTypeUint8
// and the shape [N, height, width, 3]; src and each have an image and what is made of it
// for each of its places. Pixels are those that imaging/resize, and so Pillow, makes, byte
// for byte, with every filter. What is wrong is found before anything is put into the
// stream.
func (z *Resizer) Apply(dst Tensor, src []Image, each []Resizing, s Stream) error {
	if dst.DType != reader.DTypeUint8 || len(dst.Shape) != 4 || dst.Shape[3] != 3 {
		return fmt.Errorf("gpu: resize: to dtype %q and shape %v; want uint8 and [N, height, width, 3]", dst.DType, dst.Shape)
	}
	n, h, w := dst.Shape[0], dst.Shape[1], dst.Shape[2]
	if len(src) != n || len(each) != n || n < 1 || n > z.config.Images {
		return fmt.Errorf("gpu: resize: a batch of %d, %d images and what is made of %d, and a resizer for 1 to %d", n, len(src), len(each), z.config.Images)
	}
	if h < 1 || w < 1 || h > 1<<14 || w > 1<<14 {
		return fmt.Errorf("gpu: resize: to images of %d x %d; want 1 to %d", w, h, 1<<14)
	}
	if size := int64(n) * int64(h) * int64(w) * 3; dst.Bytes != size || dst.Data%4 != 0 {
		return fmt.Errorf("gpu: resize: %d bytes at %#x do not hold %d images of %d x %d", dst.Bytes, dst.Data, n, w, h)
	}
	const size = int64(unsafe.Sizeof(resizeSample{}))
	tables := z.memory + Pointer(int64(z.config.Images)*size)
	z.parts = append(z.parts[:0], 0)
	at := int64(0)
	for i := range each {
		sample, taps, err := each[i].resolve(src[i], w, h)
		if err != nil {
			return fmt.Errorf("gpu: resize: image %d: %w", i, err)
		}
		across, down := 4*int64(w)*int64(2+taps[0]), 4*int64(h)*int64(2+taps[1])
		if across+down > z.config.Memory {
			return fmt.Errorf("gpu: resize: image %d: its weights take %d bytes, and the resizer has memory for %d; set more in ResizerConfig", i, across+down, z.config.Memory)
		}
		if at+across+down > z.config.Memory {
			z.parts, at = append(z.parts, i), 0
		}
		sample.axes[0].table, sample.axes[1].table = tables+Pointer(at), tables+Pointer(at+across)
		at += across + down
		z.samples[i] = sample
	}
	z.parts = append(z.parts, n)
	weigh, err := z.device.kernel("resize_weights")
	if err != nil {
		return err
	}
	scale, err := z.device.kernel("resize")
	if err != nil {
		return err
	}
	// The samples are not pinned: the driver has copied them when Upload returns.
	if err := z.device.context.Upload(z.memory, bytesOf(z.samples[:n]), s); err != nil {
		return err
	}
	const tileWidth, tileHeight = 32, 16 // TILE_WIDTH and TILE_HEIGHT of kernels.c
	tiles := ((w + tileWidth - 1) / tileWidth) * ((h + tileHeight - 1) / tileHeight)
	block := cuda.Grid{threads, 1, 1}
	for k, first := range z.parts[:len(z.parts)-1] {
		count := z.parts[k+1] - first
		args := resizeArgs{
			each: z.memory + Pointer(int64(first)*size), dst: dst.Data + Pointer(3*int64(first)*int64(h)*int64(w)),
			n: uint32(count), width: uint32(w), height: uint32(h),
		}
		rows := uint32(min(count, maxBlocks))
		if err := weigh.Launch(cuda.Grid{uint32((w + h + threads - 1) / threads), rows, 1}, block, s, unsafe.Pointer(&args)); err != nil {
			return err
		}
		if err := scale.Launch(cuda.Grid{uint32(tiles), rows, 1}, block, s, unsafe.Pointer(&args)); err != nil {
			return err
		}
	}
	return nil
}
