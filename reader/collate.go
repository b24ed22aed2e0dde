package reader

import "errors"

// The last stage before delivery: a job whose slots are all done becomes a batch. The
// worker that ends the last slot does it, so that the consumer waits for none of it.
// All memory was taken with the slab, by the scheduler.

// lay gives the tensors besides the images their places in the slab, from at on, and
// returns where they end.
func (j *job) lay(at int64) int64 {
	j.labelsAt = align(at, slabAlign)
	return j.layBlend(j.labelsAt + 8*int64(j.n))
}

// slabAlign is the alignment of tensors in a slab.
const slabAlign = 64

// collate makes the tensors of what the slots hold. A job that ends its pass stays as
// it is: judge reports what is wrong with it.
func (j *job) collate() {
	damaged, ends := j.damaged()
	if ends {
		return
	}
	if damaged {
		j.compact()
	}
	j.show()
	// What is done to a batch as a whole comes last: the samples and their pixels are
	// final, and lie side by side.
	if j.pass.reader.config.blends() {
		j.blend()
	}
}

// damaged says whether a sample of the job is left out or has a substitute, and whether
// the pass ends here.
func (j *job) damaged() (damaged, ends bool) {
	for i := range j.slots {
		damaged = damaged || j.stands[i] != nil || j.faults[i] != nil
		if err := j.faults[i]; err != nil && j.stands[i] == nil {
			var one *SampleError
			if j.pass.reader.config.OnBad != OnBadSkip || !errors.As(err, &one) {
				return true, true
			}
		}
	}
	return damaged, false
}

// show lists the tensors.
func (j *job) show() {
	c := &j.pass.reader.config
	j.tensors = make([]Tensor, 0, 2)
	if c.Decode == DecodeImage {
		p := &j.canvas
		shape := []int{j.n, p.height, p.width, 3}
		if c.Layout == LayoutNCHW {
			shape = []int{j.n, 3, p.height, p.width}
		}
		data := j.slab.data[:int64(j.n)*p.bytes]
		j.tensors = append(j.tensors, Tensor{Name: imageTensor, DType: c.DType, Shape: shape, Data: data})
	}
	labels := Tensor{Name: labelTensor, DType: DTypeInt64, Shape: []int{j.n}, Data: j.slab.data[j.labelsAt:][:8*j.n]}
	copy(labels.Int64(), j.labels)
	j.tensors = append(j.tensors, labels)
}

// compact takes out the slots with a fault, moving those behind them up, and puts
// what stands in for a damaged sample in its place.
func (j *job) compact() {
	names := len(j.names)
	size := j.canvas.bytes
	kept := 0
	keys := make([]byte, 0, len(j.keys))
	ends := make([]int32, 0, j.slots)
	for i := range j.slots {
		if s := j.stands[i]; s != nil {
			j.samples[i], j.labels[i], j.shards[i] = s.sample, s.label, s.shard
			copy(j.fields[i*names:][:names], s.fields)
			keys = append(keys, s.key...)
		} else if j.faults[i] != nil {
			continue
		} else {
			keys = append(keys, j.key(i)...)
		}
		if kept < i {
			j.samples[kept], j.labels[kept], j.shards[kept] = j.samples[i], j.labels[i], j.shards[i]
			copy(j.fields[kept*names:][:names], j.fields[i*names:][:names])
			if size > 0 {
				copy(j.slab.data[int64(kept)*size:][:size], j.slab.data[int64(i)*size:][:size])
			}
		}
		ends = append(ends, int32(len(keys)))
		kept++
	}
	j.n = kept
	j.samples, j.labels = j.samples[:kept], j.labels[:kept]
	j.keys, j.keyEnds = keys, ends
}
