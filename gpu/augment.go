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
	// Matrix leads from places in the result to such in the image; the zero value is the
	// identity. It is what augment.RandomRotation and RandomAffine draw, or augment.Op's
	// Matrix.
	Matrix        augment.Matrix        `json:"matrix,omitzero"`
	Interpolation augment.Interpolation `json:"interpolation,omitzero"`
	Border        Border                `json:"border,omitzero"`
	Fill          augment.Color         `json:"fill,omitzero"`
	// Ops are operations on colours, one after another: all but those that move pixels,
	// whose Matrix they have.
	Ops []augment.Op `json:"ops,omitempty"`
	// Erasing paints a part over.
	Erasing augment.Erasing `json:"erasing,omitzero"`
}

const (
	maxOps    = 8  // of a pass
	maxPasses = 8  // of a batch
	maxBlur   = 32 // weights of half a kernel
)

// augmentOp and augmentSample are structs op and sample of kernels.c; statisticsBytes has
// struct statistics.
type augmentOp struct {
	kind  uint32
	value float32
}

type augmentSample struct {
	matrix           [6]float64
	noise            uint64
	warp, border     uint32
	flipX, flipY     uint32
	mirrorX, mirrorY uint32
	fill             uint32
	erase, noisy     uint32
	x0, y0, x1, y1   uint32
	ops, needs       uint32
	blur             [2]uint32
	op               [maxOps]augmentOp
}

const statisticsBytes = 8 + (4+1)*3*256

// blurWeights are those of an image, across and down.
type blurWeights [2][maxBlur]float32

// The numbers of operations and ways to map, in kernels.c.
const (
	opContrast     = 2
	opSharpness    = 9
	opAutoContrast = 10
	opEqualize     = 11

	warpSmooth = 1
	warpAlong  = 2
	warpFixed  = 3
	warpAdded  = 4
)

// passes are what kernels do to one image, one after the other: each maps it, changes its
// colours pixel by pixel and paints a part over, of which any may be missing. A pass can
// know one thing of all of the image, or look at the neighbours of a pixel before all else.
type passes struct {
	width, height int
	list          []augmentSample
	weights       []blurWeights // of list; as long as that where a pass blurs
	faults        []error
	half          [2][]float32 // memory for a blur's weights
}

func (p *passes) reset(width, height int) {
	*p = passes{width: width, height: height, list: p.list[:0], weights: p.weights[:0], half: p.half}
}

func (p *passes) fault(format string, args ...any) {
	p.faults = append(p.faults, fmt.Errorf(format, args...))
}

// next is a pass that is empty.
func (p *passes) next() *augmentSample {
	p.list = append(p.list, augmentSample{})
	return &p.list[len(p.list)-1]
}

// open is the last pass, for a step that may stand behind what it has.
func (p *passes) open(fits func(*augmentSample) bool) *augmentSample {
	if n := len(p.list); n > 0 && p.list[n-1].blur[0] == 0 && p.list[n-1].x1 == 0 && fits(&p.list[n-1]) {
		return &p.list[n-1]
	}
	return p.next()
}

// geometry mirrors the image, and maps it then.
func (p *passes) geometry(flipX, flipY bool, w augment.Warp, border Border) {
	m := w.Matrix
	for _, v := range m {
		if v-v != 0 {
			p.fault("the matrix %v; want finite numbers", m)
			return
		}
	}
	if border < 0 || int(border) >= len(borders) {
		p.fault("no border has the number %d", int(border))
		return
	}
	if w.Interpolation != augment.Nearest && w.Interpolation != augment.Bilinear {
		p.fault("no interpolation has the number %d", int(w.Interpolation))
		return
	}
	warps := m != augment.Matrix{} && m != augment.IdentityMatrix
	if !flipX && !flipY && !warps {
		return
	}
	s := p.next()
	s.flipX, s.flipY = flag(flipX), flag(flipY)
	if !warps {
		return
	}
	s.matrix, s.border, s.fill = m, uint32(border), packed(w.Fill)
	fixed, fits := m.Fixed(p.width, p.height)
	switch {
	case w.Interpolation == augment.Bilinear:
		s.warp = warpSmooth
	case m[1] == 0 && m[3] == 0:
		s.warp = warpAlong
	case fits:
		s.warp = warpFixed
		for i, v := range fixed {
			s.matrix[i] = math.Float64frombits(uint64(v))
		}
	default:
		s.warp = warpAdded
	}
}

// paint changes colours.
func (p *passes) paint(o augment.Op) {
	if !(math.Abs(o.Value) <= 1<<20) {
		p.fault("%v with the value %v", o.Kind, o.Value)
		return
	}
	op := augmentOp{value: float32(o.Value)}
	needs, first := false, false
	switch o.Kind {
	case augment.Identity:
		return
	case augment.Brightness:
		op.kind = 1
	case augment.Contrast:
		op.kind, needs = opContrast, true
	case augment.Saturation:
		op.kind = 3
	case augment.Hue:
		if o.Value < -0.5 || o.Value > 0.5 {
			p.fault("Hue by %v; want -0.5 to 0.5", o.Value)
		}
		op = augmentOp{4, float32(uint8(int32(o.Value * 255)))}
	case augment.Grayscale:
		op.kind = 5
	case augment.Invert:
		op.kind = 6
	case augment.Posterize:
		if !(o.Value >= 1 && o.Value < 9) {
			p.fault("Posterize to %v bits; want 1 to 8", o.Value)
		}
		op = augmentOp{7, float32(uint8(0xff << (8 - int(min(max(o.Value, 0), 8)))))}
	case augment.Solarize:
		op = augmentOp{8, float32(math.Ceil(min(max(o.Value, 0), 256)))}
	case augment.Sharpness:
		if op.value == 1 {
			return
		}
		op.kind, first = opSharpness, true
	case augment.AutoContrast:
		op.kind, needs = opAutoContrast, true
	case augment.Equalize:
		op.kind, needs = opEqualize, true
	case augment.Blur:
		p.blur(o)
		return
	default:
		p.fault("%v moves pixels; a GPU takes its Matrix", o.Kind)
		return
	}
	s := p.open(func(s *augmentSample) bool {
		return s.ops < maxOps && (!needs || s.needs == s.ops) && (!first || s.ops == 0 && s.warp == 0)
	})
	if needs {
		s.needs = s.ops
	} else if s.needs == s.ops {
		s.needs++
	}
	s.op[s.ops] = op
	s.ops++
}

// blur is a pass of its own.
func (p *passes) blur(o augment.Op) {
	across, down, err := o.BlurWeights(p.half[0][:0], p.half[1][:0])
	if err != nil {
		p.faults = append(p.faults, err)
		return
	}
	p.half = [2][]float32{across, down}
	if n := max(len(across), len(down)); n > maxBlur {
		p.fault("a blur by %v pixels, whose kernel reaches %d to each side; a GPU takes up to %d", o.Value, n-1, maxBlur-1)
		return
	}
	s := p.next()
	s.blur = [2]uint32{uint32(len(across)), uint32(len(down))}
	for len(p.weights) < len(p.list) {
		p.weights = append(p.weights, blurWeights{})
	}
	w := &p.weights[len(p.list)-1]
	copy(w[0][:], across)
	copy(w[1][:], down)
}

// erase paints a part over.
func (p *passes) erase(e augment.Erasing) {
	g := e.Region
	if g.X < 0 || g.Y < 0 || g.Width < 0 || g.Height < 0 || g.Width > p.width-g.X || g.Height > p.height-g.Y {
		p.fault("erasing %+v: it does not lie within %d x %d", g, p.width, p.height)
		return
	}
	if g.Width == 0 || g.Height == 0 {
		return
	}
	s := p.open(func(*augmentSample) bool { return true })
	s.x0, s.y0, s.x1, s.y1 = uint32(g.X), uint32(g.Y), uint32(g.X+g.Width), uint32(g.Y+g.Height)
	s.erase, s.noisy, s.noise = packed(e.Value.Color), flag(e.Value.Random), e.Noise
}

// mirror flips the result.
func (p *passes) mirror(x, y bool) {
	if !x && !y {
		return
	}
	n := len(p.list)
	if n == 0 || p.list[n-1].blur[0] > 0 {
		p.next()
		n = len(p.list)
	}
	p.list[n-1].mirrorX, p.list[n-1].mirrorY = flag(x), flag(y)
}

// end returns what was wrong.
func (p *passes) end() error {
	if len(p.list) > maxPasses {
		p.fault("its operations take %d passes over the image; a GPU does %d", len(p.list), maxPasses)
	}
	return errors.Join(p.faults...)
}

// augmentArgs is struct augment of kernels.c.
type augmentArgs struct {
	src, dst, samples, statistics, weights, levels Pointer
	n, height, width, _                            uint32
}

// AugmenterConfig bounds an Augmenter.
type AugmenterConfig struct {
	// Images is how many a batch has at most.
	Images int `json:"images"`
	// Width and Height bound them, by Width times Height.
	Width  int `json:"width"`
	Height int `json:"height"`
}

// Validate reports every fault.
func (c AugmenterConfig) Validate() error {
	var faults []error
	if c.Images < 1 || c.Images > 1<<20 {
		faults = append(faults, fmt.Errorf("images: %d; want 1 to %d", c.Images, 1<<20))
	}
	if c.Width < 1 || c.Height < 1 || c.Width > 1<<14 || c.Height > 1<<14 {
		faults = append(faults, fmt.Errorf("width and height: %d x %d; want 1 to %d", c.Width, c.Height, 1<<14))
	}
	return errors.Join(faults...)
}

// Augmenter augments batches on a GPU. It has memory there, for the parameters of a batch
// and for a batch on its way, so that it may be used for one stream at a time only.
type Augmenter struct {
	device  *Device
	config  AugmenterConfig
	each    passes
	samples []augmentSample // [maxPasses][Images]
	weights []blurWeights   // the same
	memory  Pointer         // samples, weights, statistics, levels of noise, a batch
	lies    struct{ weights, statistics, levels, batch Pointer }
}

// NewAugmenter makes an augmenter. Close it.
func (d *Device) NewAugmenter(c AugmenterConfig) (*Augmenter, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("gpu: augmenter: %w", err)
	}
	return d.augmenter(c, true)
}

// augmenter makes one, with memory for a batch if need be.
func (d *Device) augmenter(c AugmenterConfig, batch bool) (*Augmenter, error) {
	a := &Augmenter{device: d, config: c, samples: make([]augmentSample, maxPasses*c.Images), weights: make([]blurWeights, maxPasses*c.Images)}
	levels := augment.NoiseLevels()
	var size int64
	take := func(n int64) Pointer {
		p := Pointer(size)
		size += (n + tensorAlign - 1) / tensorAlign * tensorAlign
		return p
	}
	take(int64(len(a.samples)) * int64(unsafe.Sizeof(a.samples[0])))
	a.lies.weights = take(int64(len(a.weights)) * int64(unsafe.Sizeof(a.weights[0])))
	a.lies.statistics = take(int64(c.Images) * statisticsBytes)
	a.lies.levels = take(int64(unsafe.Sizeof(*levels)))
	if batch {
		a.lies.batch = take(3 * int64(c.Images) * int64(c.Width) * int64(c.Height))
	}
	p, err := d.context.Alloc(size)
	if err != nil {
		return nil, fmt.Errorf("gpu: augmenter: %w", err)
	}
	a.memory = p
	for _, at := range []*Pointer{&a.lies.weights, &a.lies.statistics, &a.lies.levels, &a.lies.batch} {
		*at += p
	}
	// In a stream of its own, as the default stream would wait for others, and they for it.
	s, err := d.NewStream()
	if err == nil {
		err = errors.Join(d.Upload(a.lies.levels, unsafe.Slice(&levels[0][0], unsafe.Sizeof(*levels)), s), d.Synchronize(s), d.DestroyStream(s))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("gpu: augmenter: %w", err), a.Close())
	}
	return a, nil
}

// Close frees the memory. The streams that it was used for must have done their work.
func (a *Augmenter) Close() error { return a.device.context.Free(a.memory) }

// Apply puts into a stream what makes of a batch of bytes, channels last, another: src and
// dst are of DTypeUint8 and the shape [N, height, width, 3], and do not overlap; each has an
// augmentation for each image. Pixels are those that imaging/augment, and so Pillow, makes
// of the same parameters, byte for byte. Normalize makes floats of them afterwards. What
// is wrong is found before anything is put into the stream.
func (a *Augmenter) Apply(dst, src Tensor, each []Augmentation, s Stream) error {
	if src.DType != reader.DTypeUint8 || dst.DType != reader.DTypeUint8 || len(src.Shape) != 4 || src.Shape[3] != 3 || !slices.Equal(src.Shape, dst.Shape) {
		return fmt.Errorf("gpu: augment: %q %v to %q %v; want uint8 and [N, height, width, 3] of both", src.DType, src.Shape, dst.DType, dst.Shape)
	}
	n, h, w := src.Shape[0], src.Shape[1], src.Shape[2]
	if len(each) != n || n < 1 || n > a.config.Images {
		return fmt.Errorf("gpu: augment: %d images, %d augmentations, and an augmenter for 1 to %d", n, len(each), a.config.Images)
	}
	if h < 1 || w < 1 || int64(h)*int64(w) > int64(a.config.Height)*int64(a.config.Width) {
		return fmt.Errorf("gpu: augment: images of shape %v, and an augmenter for up to %d x %d pixels", src.Shape, a.config.Height, a.config.Width)
	}
	if dst.Data%4 != 0 {
		return fmt.Errorf("gpu: augment: the result begins at %#x; want a multiple of 4", dst.Data)
	}
	if size := int64(n) * int64(h) * int64(w) * 3; src.Bytes != size || dst.Bytes != size {
		return fmt.Errorf("gpu: augment: %d and %d bytes do not hold %d images of %d x %d", src.Bytes, dst.Bytes, n, w, h)
	}
	rounds := 1 // a copy, where there is nothing to do
	for i := range each {
		p, of := &a.each, &each[i]
		p.reset(w, h)
		p.geometry(of.FlipX, of.FlipY, augment.Warp{Matrix: of.Matrix, Interpolation: of.Interpolation, Fill: of.Fill}, of.Border)
		for _, o := range of.Ops {
			p.paint(o)
		}
		p.erase(of.Erasing)
		if err := a.take(i); err != nil {
			return err
		}
		rounds = max(rounds, len(p.list))
	}
	way := [2]Pointer{dst.Data, a.lies.batch}
	if rounds%2 == 0 {
		way[0], way[1] = way[1], way[0]
	}
	return a.run(src.Data, way, rounds, n, h, w, s)
}

// take puts the passes of an image to those of the batch.
func (a *Augmenter) take(i int) error {
	p := &a.each
	if err := p.end(); err != nil {
		return fmt.Errorf("gpu: augment: image %d: %w", i, err)
	}
	for r := range maxPasses {
		at := r*a.config.Images + i
		a.samples[at] = augmentSample{}
		if r < len(p.list) {
			a.samples[at] = p.list[r]
		}
		if r < len(p.weights) {
			a.weights[at] = p.weights[r]
		}
	}
	return nil
}

// run puts so many rounds into a stream, of which the first writes to way[0], the second
// to way[1] and so on.
func (a *Augmenter) run(src Pointer, way [2]Pointer, rounds, n, h, w int, s Stream) error {
	c, images := a.device.context, a.config.Images
	var blurs, shades, needs, tables [maxPasses]bool
	wanted := [4]bool{}
	for r := range rounds {
		for _, x := range a.samples[r*images:][:n] {
			blur, need := x.blur[0] > 0, x.needs < x.ops
			table := need && x.op[x.needs].kind != opContrast
			blurs[r], shades[r], needs[r], tables[r] = blurs[r] || blur, shades[r] || !blur, needs[r] || need, tables[r] || table
		}
		wanted = [4]bool{wanted[0] || blurs[r], wanted[1] || shades[r], wanted[2] || needs[r], wanted[3] || tables[r]}
	}
	var kernels [4]*cuda.Function
	for i, name := range [...]string{"augment_blur", "augment", "augment_statistics", "augment_tables"} {
		if wanted[i] {
			var err error
			if kernels[i], err = a.device.kernel(name); err != nil {
				return err
			}
		}
	}
	// The samples are not pinned: the driver has copied them when Upload returns.
	used := (rounds-1)*images + n
	if err := c.Upload(a.memory, bytesOf(a.samples[:used]), s); err != nil {
		return err
	}
	if wanted[0] {
		if err := c.Upload(a.lies.weights, bytesOf(a.weights[:used]), s); err != nil {
			return err
		}
	}
	rows := uint32(min(n, maxBlocks))
	grid := func(blocks int) cuda.Grid { return cuda.Grid{uint32(blocks), rows, 1} }
	over := func(each int) int { return (h*w + each - 1) / each }
	block := cuda.Grid{threads, 1, 1}
	for r := range rounds {
		args := augmentArgs{
			src: src, dst: way[r%2], samples: a.memory + Pointer(uintptr(r*images)*unsafe.Sizeof(a.samples[0])), statistics: a.lies.statistics,
			weights: a.lies.weights + Pointer(uintptr(r*images)*unsafe.Sizeof(a.weights[0])), levels: a.lies.levels,
			n: uint32(n), height: uint32(h), width: uint32(w),
		}
		src = args.dst
		launch := func(kernel int, blocks int) error {
			return kernels[kernel].Launch(grid(blocks), block, s, unsafe.Pointer(&args))
		}
		if needs[r] {
			if err := c.Set(a.lies.statistics, 0, int64(n)*statisticsBytes, s); err != nil {
				return err
			}
			const looks = 16 // LOOKS of kernels.c
			if err := launch(2, over(looks*threads)); err != nil {
				return err
			}
		}
		if tables[r] {
			if err := launch(3, 3); err != nil {
				return err
			}
		}
		if shades[r] {
			if err := launch(1, over(threads)); err != nil {
				return err
			}
		}
		if blurs[r] {
			const blurWidth, blurHeight = 32, 8 // BLUR_WIDTH and BLUR_HEIGHT of kernels.c
			if err := launch(0, ((w+blurWidth-1)/blurWidth)*((h+blurHeight-1)/blurHeight)); err != nil {
				return err
			}
		}
	}
	return nil
}

// bytesOf is the memory of a slice.
func bytesOf[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*unsafe.Sizeof(*new(T)))
}
