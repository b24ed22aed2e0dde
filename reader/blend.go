package reader

import (
	"errors"
	"fmt"

	"shardify/imaging/augment"
	"shardify/imaging/tensor"
)

// MixUp and CutMix: the images of a finished batch are blended with each other, and so
// are their labels. The worker that ends the batch does it, on the samples that are left.

// The names of the tensors that blended batches have besides.
const (
	partnerTensor = "partner_label"
	softTensor    = "soft_label"
)

// Blend is what was done to a blended batch.
type Blend struct {
	augment.Mix
	// Cut says that it was CutMix; otherwise it was MixUp.
	Cut bool
}

// SoftLabels puts into dst the soft labels of a batch with these labels, which are less than
// classes: for each of them so many weights.
func (m Blend) SoftLabels(dst []float32, labels []int64, classes int) {
	clear(dst)
	own, other := float32(m.Lambda), float32(1-m.Lambda)
	for i, label := range labels {
		row := dst[i*classes:][:classes]
		row[labels[augment.Partner(i, len(labels))]] += other
		row[label] += own
	}
}

// blends says that batches are blended.
func (c *Config) blends() bool { return c.MixUp != nil || c.CutMix != nil }

// validateBlend reports the faults of MixUp, CutMix and Classes.
func (c *Config) validateBlend() (faults []error) {
	if c.MixUp != nil {
		if err := c.MixUp.Validate(); err != nil {
			faults = append(faults, fmt.Errorf("mixup: %w", errors.Unwrap(err)))
		}
		if c.DType != DTypeFloat32 {
			faults = append(faults, fmt.Errorf("mixup: blends in float32; set dtype to %q, not %q", DTypeFloat32, c.DType))
		}
	}
	if c.CutMix != nil {
		if err := c.CutMix.Validate(); err != nil {
			faults = append(faults, fmt.Errorf("cutmix: %w", errors.Unwrap(err)))
		}
	}
	if c.blends() && c.Decode != DecodeImage {
		faults = append(faults, fmt.Errorf("mixup, cutmix: there are no images to blend with decode %q", c.Decode))
	}
	if c.blends() && c.Collate != CollateStack {
		faults = append(faults, fmt.Errorf("mixup, cutmix: blend images of one size; collate %q keeps theirs", c.Collate))
	}
	for i := range c.Tensors {
		if t := &c.Tensors[i]; c.blends() && (t.Kind == KindImage || t.Kind == KindMask || t.Kind == KindBoxes) {
			faults = append(faults, fmt.Errorf("mixup, cutmix: tensor %d (%s): of kind %q; only images with labels can be blended, as in torchvision", i+1, t.Field, t.Kind))
		}
	}
	if c.Classes < -1 || c.Classes > maxClasses {
		faults = append(faults, fmt.Errorf("classes: %d; want 1 to %d, 0 for those of the data set, -1 for no soft labels", c.Classes, maxClasses))
	}
	if c.Classes != 0 && !c.blends() {
		faults = append(faults, errors.New("classes: soft labels come with mixup and cutmix only"))
	}
	return faults
}

// maxClasses bounds the memory of soft labels.
const maxClasses = 1 << 20

// chooseClasses fills in Config.Classes.
func (r *Reader) chooseClasses() error {
	c := &r.config
	if !c.blends() || c.Classes != 0 {
		return nil
	}
	for i := range r.sets {
		c.Classes = max(c.Classes, len(r.sets[i].data.Manifest().Classes))
	}
	if c.Classes == 0 {
		return fmt.Errorf("%w: classes: soft labels need their number, and %s does not name its classes: set it, or -1 for no soft labels", ErrConfig, r.url())
	}
	if c.Classes > maxClasses {
		return fmt.Errorf("%w: classes: %s has %d, too many for soft labels: set it to -1, for none", ErrConfig, r.url(), c.Classes)
	}
	return nil
}

// checkLabel says why a sample cannot have a soft label.
func (r *Reader) checkLabel(label int64) error {
	if n := int64(r.config.Classes); r.config.blends() && n > 0 && (label < 0 || label >= n) {
		return fmt.Errorf("its label is %d, and soft labels are of the classes 0 to %d: choose samples (where: \"label is not null\"), or set classes", label, n-1)
	}
	return nil
}

// blendBytes is the memory that blending a batch of n takes besides its images.
func (c *Config) blendBytes(n int, image int64) int64 {
	if !c.blends() {
		return 0
	}
	return align(8*int64(n), slabAlign) + align(4*int64(n)*int64(max(c.Classes, 0)), slabAlign) + align(image, slabAlign)
}

// layBlend gives what blending takes its place in the slab, from at on.
func (j *job) layBlend(at int64) int64 {
	c := &j.pass.reader.config
	if !c.blends() {
		return at
	}
	j.blendAt = align(at, slabAlign)
	return j.blendAt + c.blendBytes(j.n, j.canvas.bytes)
}

// DrawBlend returns how batch b of an epoch, of images of width x height, is blended, which
// depends on Seed, MixUp and CutMix alone; ok is false where it is not. It is for those who
// blend batches elsewhere, on a GPU, say.
func (c *Config) DrawBlend(epoch int, b int64, width, height int) (m Blend, ok bool) {
	if !c.blends() {
		return m, false
	}
	random := augment.NewBatchRand(c.Seed, uint64(epoch), uint64(b))
	cut := c.CutMix != nil
	if cut && c.MixUp != nil {
		cut = random.Float64() < 0.5
	}
	if cut {
		return Blend{c.CutMix.Draw(&random, width, height), true}, true
	}
	return Blend{c.MixUp.Draw(&random), false}, true
}

// blend blends the images of the job, and lists the tensors of their labels.
func (j *job) blend() {
	c := &j.pass.reader.config
	p := &j.canvas
	m, _ := c.DrawBlend(j.plan.epoch, j.number, p.width, p.height)
	j.blended = m
	n := j.n
	at := j.blendAt
	take := func(size int64) []byte {
		b := j.slab.data[at:][:size:size]
		at = align(at+size, slabAlign)
		return b
	}
	partners := Tensor{Name: partnerTensor, DType: DTypeInt64, Shape: []int{n}, Data: take(8 * int64(n))}
	for i, out := 0, partners.Int64(); i < n; i++ {
		out[i] = j.labels[augment.Partner(i, n)]
	}
	j.tensors = append(j.tensors, partners)
	if c.Classes > 0 {
		soft := Tensor{Name: softTensor, DType: DTypeFloat32, Shape: []int{n, c.Classes}, Data: take(4 * int64(n) * int64(c.Classes))}
		m.SoftLabels(soft.Float32(), j.labels[:n], c.Classes)
		j.tensors = append(j.tensors, soft)
	}
	if n == 0 {
		return
	}
	images, spare := j.slab.data[:int64(n)*p.bytes], take(p.bytes)
	var err error
	switch g := m.Region; {
	case !m.Cut:
		err = tensor.MixUp(elementsOf[float32](images), elementsOf[float32](spare), n, m.Lambda)
	case c.DType.Size() == 4:
		err = tensor.CutMix(elementsOf[float32](images), elementsOf[float32](spare), n, p.width, p.height, c.Layout, g.X, g.Y, g.Width, g.Height)
	case c.DType.Size() == 2:
		err = tensor.CutMix(elementsOf[uint16](images), elementsOf[uint16](spare), n, p.width, p.height, c.Layout, g.X, g.Y, g.Width, g.Height)
	default:
		err = tensor.CutMix(images, spare, n, p.width, p.height, c.Layout, g.X, g.Y, g.Width, g.Height)
	}
	if err != nil {
		panic("reader: a batch that cannot be blended: " + err.Error())
	}
}
