package reader

import (
	"errors"
	"slices"
)

// The last stage before delivery: a job whose slots are all done becomes a batch. The
// worker that ends the last slot does it, so that the consumer waits for none of it.
// All memory was taken with the slab, by the scheduler.
//
// How large a value whose shape varies is, nobody knows before its field is read; but the
// index says how large the field is, and so how large the value can be. By that its place
// in the slab is laid out:
//
//	stack   value | value | value           each where it stays
//	pad     value… | value… | value…        as far apart as the largest can be long
//	ragged  value… | value…… | value…       each with as much room as it can need
//
// When all are there they are moved together, towards the front. No value moves past the
// beginning of one that has not been moved yet.

// place is where a tensor and those that come beside it lie in the slab.
type place struct {
	// at is where the tensor begins; values that are stacked or padded are stride apart.
	at, stride int64
	// mask has a byte for each of most elements of each slot; numbers has lengths or
	// offsets.
	mask, most, numbers int64
}

// slabAlign is the alignment of tensors in a slab.
const slabAlign = 64

// lay gives the tensors besides the images their places in the slab, from at on, and
// returns where they end.
func (j *job) lay(at int64) int64 {
	n := int64(j.slots)
	j.labelsAt = align(at, slabAlign)
	at = j.labelsAt + 8*n
	makers := j.canvas.makers
	j.places = sized(j.places, len(makers))
	j.columns = sized(j.columns, len(makers))
	j.values = sized(j.values, len(makers)*j.slots)
	for t := range makers {
		m, p := &makers[t], &j.places[t]
		field, found := slices.BinarySearch(j.names, m.Field)
		if j.columns[t] = field; !found {
			j.columns[t] = -1
		}
		at = align(at, slabAlign)
		*p = place{at: at, stride: int64(m.PadTo) * m.unit}
		values := j.values[t*j.slots:][:j.slots]
		for i := range values {
			field := int64(0)
			if found {
				field = j.fields[i*len(j.names)+j.columns[t]].size
			}
			values[i] = value{at: at, room: m.room(field)}
			at += values[i].room
			p.stride = max(p.stride, values[i].room)
		}
		if m.Collate != CollateRagged {
			at = p.at + n*p.stride
			for i := range values {
				values[i].at = p.at + int64(i)*p.stride
			}
		}
		switch m.Collate {
		case CollatePad:
			p.most = p.stride / m.unit
			p.mask = align(at, slabAlign)
			p.numbers = align(p.mask+n*p.most, slabAlign)
			at = p.numbers + 8*n
		case CollateRagged:
			p.numbers = align(at, slabAlign)
			at = p.numbers + 8*(n+1)
		}
	}
	return j.layBlend(at)
}

// collate makes the tensors of what the slots hold. A job that ends its pass stays as
// it is: judge reports what is wrong with it.
func (j *job) collate() {
	damaged, ends := j.damaged()
	if ends {
		return
	}
	j.kept = sized(j.kept, j.slots)[:0]
	for i := range j.slots {
		if j.faults[i] == nil || j.stands[i] != nil {
			j.kept = append(j.kept, i)
		}
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
	makers := j.canvas.makers
	j.tensors = make([]Tensor, 0, 2+3*len(makers))
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
	for t := range makers {
		j.gather(&makers[t], &j.places[t], j.values[t*j.slots:][:j.slots])
	}
}

// gather moves the values of a tensor together, and lists it and those beside it.
func (j *job) gather(m *maker, p *place, values []value) {
	longest, total, own := m.PadTo, 0, false
	for _, i := range j.kept {
		longest = max(longest, values[i].length)
		total += values[i].length
		own = own || int64(len(values[i].data)) > values[i].room
	}
	n := len(j.kept)
	shape := append(make([]int, 0, 1+len(m.pattern)), n)
	shape = append(shape, m.pattern...)
	numbers := func(count int) Tensor {
		return Tensor{DType: DTypeInt64, Shape: []int{count}, Data: j.slab.data[p.numbers:][:8*count]}
	}
	switch m.Collate {
	case CollateStack:
		data := j.slab.data[p.at:][:int64(n)*m.unit]
		for k, i := range j.kept {
			copy(data[int64(k)*m.unit:], values[i].data)
		}
		j.tensors = append(j.tensors, Tensor{Name: m.Name, DType: m.DType, Shape: shape, Data: data})

	case CollatePad:
		shape[1+m.vary] = longest
		step := int64(longest) * m.unit
		data, mask := j.slab.data[p.at:], j.slab.data[p.mask:]
		if int64(longest) > p.most { // a substitute is longer than all that it was to be
			data, mask = aligned(int64(n)*step), aligned(int64(n*longest))
		}
		data, mask = data[:int64(n)*step], mask[:n*longest]
		lengths := numbers(n)
		for k, i := range j.kept {
			v := &values[i]
			m.pad(data[int64(k)*step:][:step:step], v.data, v.length, longest)
			row := mask[k*longest:][:longest]
			clear(row[copyOnes(row[:v.length]):])
			lengths.Int64()[k] = int64(v.length)
		}
		names := m.companions()
		lengths.Name = names[1]
		j.tensors = append(j.tensors,
			Tensor{Name: m.Name, DType: m.DType, Shape: shape, Data: data},
			Tensor{Name: names[0], DType: DTypeBool, Shape: []int{n, longest}, Data: mask},
			lengths)

	case CollateRagged:
		shape = shape[1:]
		shape[0] = total
		data := j.slab.data[p.at:]
		if own {
			data = aligned(int64(total) * m.unit)
		}
		data = data[:int64(total)*m.unit]
		offsets := numbers(n + 1)
		list := offsets.Int64()
		list[0] = 0
		at := 0
		for k, i := range j.kept {
			at += copy(data[at:], values[i].data)
			list[k+1] = list[k] + int64(values[i].length)
		}
		offsets.Name = m.companions()[0]
		j.tensors = append(j.tensors, Tensor{Name: m.Name, DType: m.DType, Shape: shape, Data: data}, offsets)
	}
}

// copyOnes fills a mask and returns its length.
func copyOnes(mask []byte) int { return len(fill(mask, []byte{1})) }

// pad makes of a value of some length one of the longest, in dst. It may lie in the same
// memory, not before dst.
func (m *maker) pad(dst, value []byte, length, longest int) {
	// Where another dimension stands before the one that varies, each of its rows is
	// padded: from the end of dst, where the value is put first, they move to the front.
	outer := 1
	for _, d := range m.pattern[:m.vary] {
		outer *= d
	}
	if outer > 1 {
		copy(dst[len(dst)-len(value):], value)
		value = dst[len(dst)-len(value):]
	}
	from, to := len(value)/outer, len(dst)/outer
	for r := range outer {
		row := dst[r*to:][:to:to]
		fill(row[copy(row, value[r*from:][:from]):], m.fill)
	}
}

// compact takes out the slots with a fault, moving those behind them up, and puts
// what stands in for a damaged sample in its place.
func (j *job) compact() {
	names := len(j.names)
	size := j.canvas.bytes
	keys := make([]byte, 0, len(j.keys))
	ends := make([]int32, 0, j.slots)
	for k, i := range j.kept {
		if s := j.stands[i]; s != nil {
			j.samples[i], j.labels[i], j.shards[i] = s.sample, s.label, s.shard
			copy(j.fields[i*names:][:names], s.fields)
			keys = append(keys, s.key...)
		} else {
			keys = append(keys, j.key(i)...)
		}
		if k < i {
			j.samples[k], j.labels[k], j.shards[k] = j.samples[i], j.labels[i], j.shards[i]
			copy(j.fields[k*names:][:names], j.fields[i*names:][:names])
			if size > 0 {
				copy(j.slab.data[int64(k)*size:][:size], j.slab.data[int64(i)*size:][:size])
			}
		}
		ends = append(ends, int32(len(keys)))
	}
	j.n = len(j.kept)
	j.samples, j.labels = j.samples[:j.n], j.labels[:j.n]
	j.keys, j.keyEnds = keys, ends
}
