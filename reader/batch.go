package reader

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"

	"shardify/imaging/augment"
)

// Batch is the samples of one step. It is the caller's until Release: its memory
// is not touched before, and lent to another batch after. What its methods return
// points into that memory, unless they say otherwise, and must not be used after
// Release either. The contents may be changed. Any goroutine may hold a batch, and
// release it.
type Batch struct {
	job      *job
	released atomic.Bool
	lost     runtime.Cleanup
}

func newBatch(j *job) *Batch {
	b := &Batch{job: j}
	b.lost = runtime.AddCleanup(b, func(j *job) { j.pass.pool.lose(j.plan.epoch, j.number) }, j)
	return b
}

// use returns what is in the batch, or panics where it is no longer there.
func (b *Batch) use() *job {
	if b.released.Load() {
		panic("reader: Batch used after Release")
	}
	return b.job
}

// Release gives the batch's memory back to the pass. To release a batch twice, or to
// use it afterwards, is a bug of the caller that could show as pictures under
// wrong labels, so it panics.
func (b *Batch) Release() {
	if b.released.Swap(true) {
		panic("reader: Batch released twice")
	}
	b.lost.Stop()
	j := b.job
	b.job = nil
	j.pass.giveBack(j)
}

// Epoch and Number tell the batch's place: Number counts the batches of the epoch
// from 0.
func (b *Batch) Epoch() int { return b.use().plan.epoch }

// Number is the batch's place within the epoch, from 0; of a batch that Reader.Read has
// made, the number of the call.
func (b *Batch) Number() int64 { return b.use().number }

// Bucket is the bucket, from 0, of whose samples the batch is; 0 without Config.Buckets.
func (b *Batch) Bucket() int { return max(0, b.use().plan.bucket) }

// Len is the number of samples.
func (b *Batch) Len() int { return b.use().n }

// Tensors are the batch's arrays, in order: "image" (but for DecodeNone), with the ones
// beside it (see Config.Collate), "label", and those of Config.Tensors, each with the ones
// beside it (see Collate), and those that Blend names. The first dimension of each is Len, but for ragged ones. The list is the
// caller's, what it points at is not.
func (b *Batch) Tensors() []Tensor { return slices.Clone(b.use().tensors) }

// Tensor is the tensor of a name; ok is false where there is none.
func (b *Batch) Tensor(name string) (t Tensor, ok bool) {
	for _, t := range b.use().tensors {
		if t.Name == name {
			return t, true
		}
	}
	return Tensor{}, false
}

// Images is the tensor "image", whose shape is [Len, 3, height, width] or, under
// LayoutNHWC, [Len, height, width, 3]; under CollateRagged it is [elements of all], and
// Image has them one by one. Under DecodeNone there is none: its shape is nil.
func (b *Batch) Images() Tensor {
	t, _ := b.Tensor(imageTensor)
	return t
}

// Image is the image of sample i, a part of Images: its shape is [3, height, width] or,
// under LayoutNHWC, [height, width, 3], of its own size under CollateRagged, and with its
// padding under CollatePad. Its Data begins at a multiple of an element's size. Under
// DecodeNone its shape is nil.
func (b *Batch) Image(i int) Tensor {
	j := b.use()
	t, _ := b.Tensor(imageTensor)
	if t.Shape == nil {
		return t
	}
	c := &j.pass.reader.config
	if !c.varies() || c.Collate != CollateRagged {
		size := len(t.Data) / j.n
		t.Data, t.Shape = t.Data[i*size:][:size:size], t.Shape[1:]
		return t
	}
	sizes, _ := b.Tensor(sizesTensor)
	height, width := int(sizes.Int64()[2*i]), int(sizes.Int64()[2*i+1])
	if t.Shape = []int{3, height, width}; c.Layout == LayoutNHWC {
		t.Shape = []int{height, width, 3}
	}
	offsets, _ := b.Tensor(imageTensor + "_offsets")
	size := t.DType.Size()
	from, to := int(offsets.Int64()[i])*size, int(offsets.Int64()[i+1])*size
	t.Data = t.Data[from:to:to]
	return t
}

// Labels are the samples' class numbers, the tensor "label"; -1 where a sample has
// none.
func (b *Batch) Labels() []int64 {
	t, _ := b.Tensor(labelTensor)
	return t.Int64()
}

// Blend says how the images of the batch were blended under Config.MixUp and CutMix; ok is
// false without either. Image i is then, but for rounding, Lambda times what its sample
// made and 1 - Lambda times what sample augment.Partner(i, Len) made; or, where Cut is
// set, its Region comes from there. Labels are the samples' own, and the batch has two
// more tensors: "partner_label", shape [Len] of int64, the labels of the partners; and
// "soft_label", shape [Len, Classes] of float32, with Lambda at the sample's own label and
// 1 - Lambda at its partner's, both where they are the same.
func (b *Batch) Blend() (m Blend, ok bool) {
	j := b.use()
	return j.blended, j.pass.reader.config.blends()
}

// Samples are the samples' numbers in the split, as in Plan. Under OnBadSubstitute
// they are those of the samples that are there. Of a Stream they are its own numbers.
func (b *Batch) Samples() []int64 { return b.use().samples }

// Random is where all comes from that Config.Transform draws for sample i. Transforms that
// are carried out elsewhere, on a GPU, say, draw the same from it.
func (b *Batch) Random(i int) augment.Rand {
	j := b.use()
	return j.plan.random(j.samples[i], j.copies[i])
}

// Key is the key of sample i. It is the caller's.
func (b *Batch) Key(i int) string { return string(b.use().key(i)) }

// Keys are all keys. They are the caller's.
func (b *Batch) Keys() []string {
	j := b.use()
	keys := make([]string, j.n)
	for i := range keys {
		keys[i] = string(j.key(i))
	}
	return keys
}

// Fields are the names of the fields that Field may return, sorted.
func (b *Batch) Fields() []string {
	j := b.use()
	if fields := j.pass.reader.wanted.fields; fields != nil {
		return fields
	}
	return j.names
}

// Field is the content of a field of sample i; ok is false where the sample has no
// such field, or Config.Fields does not name it.
func (b *Batch) Field(i int, name string) (data []byte, ok bool) {
	j := b.use()
	names := j.names
	at, found := slices.BinarySearch(names, name)
	if !found || j.stay != nil && !j.stay[at] || i < 0 || i >= j.n {
		return nil, false
	}
	return j.content(&j.fields[i*len(names)+at])
}

// Fault says that a field of sample i is damaged, as its caller has found who decodes what
// DecodeNone leaves as it is. It is reported in Reader.BadSamples, and what becomes of the
// sample is the caller's to do.
func (b *Batch) Fault(i int, field string, err error) *SampleError {
	j := b.use()
	offset := int64(-1)
	if at, found := slices.BinarySearch(j.names, field); found {
		if x := &j.fields[i*len(j.names)+at]; x.offset != absent {
			offset = x.offset
		}
	}
	e := j.sampleError(i, field, offset, err)
	j.pass.reader.bad.add(e)
	return e
}

// Bad are the damaged samples that the batch lacks under OnBadSkip, or in whose place
// others stand under OnBadSubstitute. It is the caller's.
func (b *Batch) Bad() []*SampleError { return b.use().bad }

// SampleError says what is wrong with a sample.
type SampleError struct {
	// Shard is the shard's file, Key the sample's key and Sample its number. Where it is
	// the rest of a shard of a Stream, Key and Field are empty.
	Shard  string
	Key    string
	Sample int64
	// Field is the field that is at fault, which begins at Offset in the shard
	// before compression; empty and -1 where it is no certain one.
	Field  string
	Offset int64
	Err    error
}

func (e *SampleError) Error() string {
	switch {
	case e.Key == "" && e.Field == "":
		return fmt.Sprintf("shard %s: %v", e.Shard, e.Err)
	case e.Field == "":
		return fmt.Sprintf("shard %s: sample %q: %v", e.Shard, e.Key, e.Err)
	}
	return fmt.Sprintf("shard %s: sample %q: field %q at %d: %v", e.Shard, e.Key, e.Field, e.Offset, e.Err)
}

func (e *SampleError) Unwrap() error { return e.Err }
