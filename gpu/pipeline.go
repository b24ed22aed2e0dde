package gpu

import (
	"errors"
	"fmt"
	"slices"

	"shardify/imaging/augment"
	"shardify/imaging/transform"
	"shardify/reader"
)

// PipelineConfig is what a GPU does of a reader.Config: its fields are those of that, with
// the same names and defaults.
type PipelineConfig struct {
	BatchSize int    `json:"batch_size,omitempty"`
	Seed      uint64 `json:"seed,omitempty"`
	// Transform is the list that a reader would carry out. On a GPU, what cuts and scales
	// (resize, center_crop, random_resized_crop, random_crop, pad) stands before what
	// changes colours, turns or erases, and scales once; all results have one size.
	Transform transform.List `json:"transform,omitempty"`
	DType     reader.DType   `json:"dtype,omitempty"`
	Layout    reader.Layout  `json:"layout,omitempty"`
	// MixUp goes with every dtype of floats here, where a reader blends in float32 only.
	MixUp     *augment.MixUp  `json:"mixup,omitempty"`
	CutMix    *augment.CutMix `json:"cutmix,omitempty"`
	MaxPixels int64           `json:"max_pixels,omitempty"`
}

// Split divides what a reader is to do between it and a GPU: the first reads and decodes,
// to bytes in images of their own sizes (CollateRagged), the second does the rest, in a
// Pipeline. Together they make the batches that a reader would make of c alone, byte for
// byte, but for the tensors of blended labels, which the caller makes of Pipeline.Blend
// (reader.Blend.SoftLabels). It is an error, which says why, where that cannot be.
func Split(c reader.Config) (reader.Config, PipelineConfig, error) {
	if err := c.Validate(); err != nil {
		return reader.Config{}, PipelineConfig{}, err
	}
	p := PipelineConfig{
		BatchSize: c.BatchSize, Seed: c.Seed, Transform: c.Transform, DType: c.DType, Layout: c.Layout,
		MixUp: c.MixUp, CutMix: c.CutMix, MaxPixels: c.MaxPixels,
	}
	var faults []error
	if c.Decode == reader.DecodeNone {
		faults = append(faults, fmt.Errorf("decode: %q leaves nothing to do for a GPU", reader.DecodeNone))
	}
	if c.Collate != "" && c.Collate != reader.CollateStack {
		faults = append(faults, fmt.Errorf("collate: %q; a GPU makes images of one size", c.Collate))
	}
	if len(c.Buckets.Sizes) > 0 {
		faults = append(faults, errors.New("buckets: sizes: a GPU makes images of one size"))
	}
	for i, t := range c.Tensors {
		if t.Kind == reader.KindImage || t.Kind == reader.KindMask || t.Kind == reader.KindBoxes {
			faults = append(faults, fmt.Errorf("tensors: %d (%s): of kind %q, which goes the way of the image; a GPU transforms images alone", i+1, t.Field, t.Kind))
		}
	}
	faults = append(faults, p.Validate())
	if err := errors.Join(faults...); err != nil {
		return reader.Config{}, PipelineConfig{}, fmt.Errorf("gpu: pipeline: %w", err)
	}
	c.Transform, c.DType, c.Layout, c.Collate = nil, reader.DTypeUint8, reader.LayoutNHWC, reader.CollateRagged
	c.MixUp, c.CutMix, c.Classes = nil, nil, 0
	return c, p, nil
}

func (c PipelineConfig) withDefaults() PipelineConfig {
	c.BatchSize = reader.Config{BatchSize: c.BatchSize}.Order().BatchSize
	if c.Transform == nil {
		c.Transform = reader.DefaultTransform()
	}
	if c.DType == "" {
		c.DType = reader.DTypeUint8
	}
	return c
}

// Validate reports every fault, and every transform that a GPU cannot do where it stands.
func (c PipelineConfig) Validate() error {
	_, err := c.compile()
	return err
}

func (c PipelineConfig) compile() (*transform.Program, error) {
	c = c.withDefaults()
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.BatchSize < 1 || c.BatchSize > 1<<20 {
		fault("batch_size: %d; want 1 to %d", c.BatchSize, 1<<20)
	}
	if !slices.Contains([]reader.DType{reader.DTypeUint8, reader.DTypeFloat32, reader.DTypeFloat16, reader.DTypeBFloat16}, c.DType) {
		fault("dtype: %q; want uint8, float32, float16 or bfloat16", c.DType)
	}
	if _, err := c.Layout.MarshalText(); err != nil {
		fault("layout: %w", err)
	}
	if c.MixUp != nil {
		if err := c.MixUp.Validate(); err != nil {
			fault("mixup: %w", errors.Unwrap(err))
		}
		if c.DType == reader.DTypeUint8 {
			fault("mixup: makes fractions; set dtype to %q, %q or %q", reader.DTypeFloat32, reader.DTypeFloat16, reader.DTypeBFloat16)
		}
	}
	if c.CutMix != nil {
		if err := c.CutMix.Validate(); err != nil {
			fault("cutmix: %w", errors.Unwrap(err))
		}
	}
	program, err := transform.Compile(c.Transform, transform.Options{MaxPixels: max(0, c.MaxPixels)})
	if err != nil {
		return nil, errors.Join(append(faults, err)...)
	}
	if w, _ := program.Size(); w == 0 {
		fault("transform: images would differ in size; add a random_resized_crop, center_crop or random_crop, or a resize to [height, width]")
	}
	if n, ok := program.Normalize(); ok && c.DType == reader.DTypeUint8 {
		fault("transform %d: normalize: makes fractions; set dtype to %q, %q or %q", len(c.Transform), reader.DTypeFloat32, reader.DTypeFloat16, reader.DTypeBFloat16)
	} else if err := (NormalizeConfig{Layout: c.Layout, Normalize: n}).Validate(); ok && err != nil {
		fault("transform %d: normalize: %w", len(c.Transform), err)
	}
	var order order
	order.list("transform", c.Transform)
	return program, errors.Join(append(faults, order.faults...)...)
}

// order is what a list of transforms has done so far, as far as that decides what a GPU
// can do next: a Resizer cuts, scales and cuts again, an Augmenter does the rest.
type order struct {
	scaled, padded, changed string // by which transform
	faults                  []error
}

func (o *order) list(where string, l transform.List) {
	for i, t := range l {
		o.step(fmt.Sprintf("%s %d", where, i+1), t)
	}
}

func (o *order) step(where string, t transform.Transform) {
	var name string
	cuts, scales, pads := false, false, false
	switch t := t.(type) {
	case transform.Resize:
		name, scales = "resize", true
	case transform.CenterCrop:
		name, cuts = "center_crop", true
	case transform.RandomResizedCrop:
		name, cuts, scales = "random_resized_crop", true, true
	case transform.RandomCrop:
		name, cuts = "random_crop", true
		pads = t.PadIfNeeded || t.Padding != (augment.Padding{})
	case transform.Pad:
		name, cuts, pads = "pad", true, true
	case transform.RandomHorizontalFlip, transform.RandomVerticalFlip, transform.Normalize:
		return
	case transform.GaussianBlur:
		o.blur(where, t)
	case transform.RandomApply:
		o.list(where+": random_apply: transform", t.Transforms)
		return
	case transform.RandomChoice:
		// Whichever is done, the next transforms stand behind it.
		before, after := *o, *o
		for i, one := range t.Transforms {
			branch := before
			branch.faults = nil
			branch.step(fmt.Sprintf("%s: random_choice: transform %d", where, i+1), one)
			after.faults = append(after.faults, branch.faults...)
			after.scaled, after.padded, after.changed = either(after.scaled, branch.scaled), either(after.padded, branch.padded), either(after.changed, branch.changed)
		}
		*o = after
		return
	}
	fault := func(format string, args ...any) {
		o.faults = append(o.faults, fmt.Errorf("%s: %s: %s", where, name, fmt.Sprintf(format, args...)))
	}
	switch {
	case !cuts && !scales:
		o.changed = either(o.changed, where)
	case o.changed != "":
		fault("stands behind %s, which changes pixels; a GPU cuts and scales first: put it before that, or leave the transforms to the reader", o.changed)
	case scales && (o.scaled != "" || o.padded != ""):
		fault("stands behind %s; a GPU scales images once, before they are padded: leave the transforms to the reader", either(o.scaled, o.padded))
	case pads && o.padded != "":
		fault("stands behind %s; a GPU pads images once: leave the transforms to the reader", o.padded)
	}
	if scales {
		o.scaled = where
	}
	if pads {
		o.padded = where
	}
}

// blur checks that a blur does not reach too far.
func (o *order) blur(where string, t transform.GaussianBlur) {
	var p passes
	b := augment.GaussianBlur(t)
	size, sigma := b.KernelSize, b.Sigma[1]
	if size == [2]int{} {
		size = [2]int{23, 23}
	}
	if sigma == 0 {
		sigma = 2
	}
	p.blur(augment.Op{Kind: augment.Blur, Value: sigma, Kernel: size})
	if err := p.end(); err != nil {
		o.faults = append(o.faults, fmt.Errorf("%s: gaussian_blur: %w", where, err))
	}
}

func either(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// Pipeline makes batches for a model of images on a GPU: it cuts and scales them (Resizer),
// augments them (Augmenter), and normalises and blends them (Device.Normalize), in one
// stream. It has memory there for two batches of bytes and their parameters, so that it
// may be used for one stream at a time only.
type Pipeline struct {
	device        *Device
	config        PipelineConfig
	program       *transform.Program
	width, height int
	resizer       *Resizer
	augmenter     *Augmenter
	recipe        transform.Recipe
	each          []Resizing
	batches       [2]Tensor
}

// NewPipeline makes a pipeline. Close it.
func (d *Device) NewPipeline(c PipelineConfig) (*Pipeline, error) {
	program, err := c.compile()
	if err != nil {
		return nil, fmt.Errorf("gpu: pipeline: %w", err)
	}
	p := &Pipeline{device: d, config: c.withDefaults(), program: program}
	p.width, p.height = program.Size()
	n := p.config.BatchSize
	p.each = make([]Resizing, n)
	p.resizer, err = d.NewResizer(ResizerConfig{Images: n})
	if err == nil {
		p.augmenter, err = d.augmenter(AugmenterConfig{Images: n, Width: p.width, Height: p.height}, false)
	}
	for i := range p.batches {
		if err == nil {
			p.batches[i], err = d.Alloc("batch", reader.DTypeUint8, n, p.height, p.width, 3)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("gpu: pipeline: %w", err), p.Close())
	}
	return p, nil
}

// Close frees the memory. The streams that it was used for must have done their work.
func (p *Pipeline) Close() error {
	var err error
	if p.resizer != nil {
		err = p.resizer.Close()
	}
	if p.augmenter != nil {
		err = errors.Join(err, p.augmenter.Close())
	}
	for _, t := range p.batches {
		if t.Bytes > 0 {
			err = errors.Join(err, p.device.Free(t))
		}
	}
	return err
}

// DType and Shape are those of a batch of n images.
func (p *Pipeline) DType() reader.DType { return p.config.DType }

// Shape is [n, 3, height, width] or, under LayoutNHWC, [n, height, width, 3].
func (p *Pipeline) Shape(n int) []int {
	if p.config.Layout == reader.LayoutNHWC {
		return []int{n, p.height, p.width, 3}
	}
	return []int{n, 3, p.height, p.width}
}

// Blend draws how a batch is blended, by its place in the epoch; nil where it is not. Of
// labels, an image's own has the weight Lambda, and that of image augment.Partner has the
// rest.
func (p *Pipeline) Blend(epoch int, batch int64) *reader.Blend {
	c := reader.Config{Seed: p.config.Seed, MixUp: p.config.MixUp, CutMix: p.config.CutMix}
	if b, ok := c.DrawBlend(epoch, batch, p.width, p.height); ok {
		return &b
	}
	return nil
}

// Apply puts into a stream what makes a batch of images: dst has the pipeline's DType and
// Shape. src are the images, and random is where all comes from that is random in each, as
// Batch has both. What is wrong is found before anything is put into the stream; the error
// names the image of which the transforms cannot be done.
func (p *Pipeline) Apply(dst Tensor, src []Image, random []augment.Rand, blend *reader.Blend, s Stream) error {
	n := len(src)
	if len(random) != n || n < 1 || n > p.config.BatchSize {
		return fmt.Errorf("gpu: pipeline: %d images, random numbers for %d, and a pipeline for 1 to %d", n, len(random), p.config.BatchSize)
	}
	if dst.DType != p.config.DType {
		return fmt.Errorf("gpu: pipeline: the result is of dtype %q; want %q", dst.DType, p.config.DType)
	}
	var batches [2]Tensor
	for i, t := range p.batches {
		t.Shape = []int{n, p.height, p.width, 3}
		t.Bytes = t.Bytes / int64(p.config.BatchSize) * int64(n)
		batches[i] = t
	}
	normal, _ := p.program.Normalize()
	finish, err := p.device.normalize(dst, batches[0], NormalizeConfig{Layout: p.config.Layout, Normalize: normal, Blend: blend})
	if err != nil {
		return err
	}
	rounds := 0
	for i := range src {
		if err := p.draw(i, src[i], random[i]); err != nil {
			return fmt.Errorf("gpu: pipeline: image %d of %d x %d: %w", i, src[i].Width, src[i].Height, err)
		}
		if err := p.augmenter.take(i); err != nil {
			return err
		}
		rounds = max(rounds, len(p.augmenter.each.list))
	}
	// Bytes that are neither blended nor put in another order need no last kernel.
	plain := p.config.DType == reader.DTypeUint8 && p.config.Layout == reader.LayoutNHWC && blend == nil
	first, way := batches[0], [2]Pointer{batches[1].Data, batches[0].Data}
	last := batches[rounds%2].Data
	if plain && rounds == 0 {
		first = dst
	} else if plain {
		way = [2]Pointer{batches[1].Data, batches[1].Data}
		way[(rounds+1)%2] = dst.Data
	}
	if err := p.resizer.Apply(first, src, p.each[:n], s); err != nil {
		return err
	}
	if rounds > 0 {
		if err := p.augmenter.run(batches[0].Data, way, rounds, n, p.height, p.width, s); err != nil {
			return err
		}
	}
	if plain {
		return nil
	}
	return finish(last, s)
}

// draw works out what is done to image i: what the resizer does of it, and in the
// augmenter the passes of the rest.
func (p *Pipeline) draw(i int, src Image, random augment.Rand) error {
	if err := p.program.Draw(&p.recipe, &random, src.Width, src.Height); err != nil {
		return err
	}
	passes := &p.augmenter.each
	passes.reset(p.width, p.height)
	z := &p.each[i]
	*z = Resizing{}
	for k, stage := range p.recipe.Stages() {
		g, l := &stage.Geometry, &stage.Look
		warp := augment.Warp{Matrix: g.Matrix, Interpolation: l.Interpolation, Fill: l.Fill}
		if k == 0 {
			*z = Resizing{
				Crop: g.Crop, Width: g.Width, Height: g.Height, Filter: l.Filter, Window: g.Window, PaddingMode: g.PaddingMode, Fill: l.Fill,
				FlipX: g.FlipX, FlipY: g.FlipY,
			}
			passes.geometry(false, false, warp, BorderFill)
		} else if g.Crop != (augment.Region{}) || g.Width != 0 || g.Window != (augment.Region{}) {
			return errors.New("it is cut or scaled behind what a GPU does first, as it is so small or large: put a resize or random_resized_crop first, or leave the transforms to the reader")
		} else {
			passes.geometry(g.FlipX, g.FlipY, warp, BorderFill)
		}
		for _, paint := range stage.Paints {
			passes.paint(paint.Op)
			passes.erase(paint.Erasing)
		}
	}
	x, y := p.recipe.Flips()
	if len(passes.list) == 0 {
		z.FlipX, z.FlipY = z.FlipX != x, z.FlipY != y
		return nil
	}
	passes.mirror(x, y)
	return nil
}
