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
	if j.canvas.varies {
		at = j.layPictures(&j.canvas.image, &j.imagesAt, j.pictures, at)
		j.sizesAt = align(at, slabAlign)
		at = j.sizesAt + 16*n
	}
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
		values := j.values[t*j.slots:][:j.slots]
		if m.channels > 0 {
			at = j.layPictures(m, p, values, at)
			continue
		}
		at = align(at, slabAlign)
		*p = place{at: at, stride: int64(m.PadTo) * m.unit}
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
	c, p := &j.pass.reader.config, &j.canvas
	tensors, dims := 4, 8
	for t := range p.makers {
		tensors += 1 + len(p.makers[t].beside)
		dims += 4 + len(p.makers[t].pattern)
	}
	j.tensors, j.dims = make([]Tensor, 0, tensors), make([]int, 0, dims)
	switch {
	case p.varies:
		j.gather(&p.image, &j.imagesAt, j.pictures)
		j.showSizes()
	case c.Decode == DecodeImage:
		data := j.slab.data[:int64(j.n)*p.bytes]
		if c.Layout == LayoutNCHW {
			j.list(imageTensor, c.DType, data, j.n, 3, p.height, p.width)
		} else {
			j.list(imageTensor, c.DType, data, j.n, p.height, p.width, 3)
		}
	}
	labels := j.list(labelTensor, DTypeInt64, j.slab.data[j.labelsAt:][:8*j.n], j.n)
	copy(labels.Int64(), j.labels)
	for t := range p.makers {
		j.gather(&p.makers[t], &j.places[t], j.values[t*j.slots:][:j.slots])
	}
}

// list adds a tensor to the batch.
func (j *job) list(name string, d DType, data []byte, shape ...int) *Tensor {
	at := len(j.dims)
	j.dims = append(j.dims, shape...)
	j.tensors = append(j.tensors, Tensor{Name: name, DType: d, Shape: j.dims[at:len(j.dims):len(j.dims)], Data: data})
	return &j.tensors[len(j.tensors)-1]
}

// gather moves the values of a tensor together, and lists it and those beside it.
func (j *job) gather(m *maker, p *place, values []value) {
	if m.channels > 0 && m.Collate == CollatePad {
		j.gatherPadded(m, p, values)
		return
	}
	n, longest, total, own := len(j.kept), m.PadTo, 0, false
	for _, i := range j.kept {
		longest = max(longest, values[i].length)
		total += values[i].length
		own = own || int64(len(values[i].data)) > values[i].room
	}
	data := j.slab.data[p.at:]
	x := j.list(m.Name, m.DType, nil, n)
	j.dims = append(j.dims, m.pattern...)
	x.Shape = j.dims[len(j.dims)-1-len(m.pattern) : len(j.dims) : len(j.dims)]
	switch m.Collate {
	case CollateStack:
		x.Data = data[:int64(n)*m.unit]
		for k, i := range j.kept {
			copy(x.Data[int64(k)*m.unit:], values[i].data)
		}

	case CollatePad:
		x.Shape[1+m.vary] = longest
		step := int64(longest) * m.unit
		mask := j.slab.data[p.mask:]
		if int64(longest) > p.most { // a substitute is longer than all that it was to be
			data, mask = aligned(int64(n)*step), aligned(int64(n*longest))
		}
		x.Data, mask = data[:int64(n)*step], mask[:n*longest]
		for k, i := range j.kept {
			m.pad(data[int64(k)*step:][:step:step], values[i].data)
			there := mask[k*longest:][:longest]
			clear(there[len(fill(there[:values[i].length], []byte{1})):])
		}
		j.list(m.beside[0], DTypeBool, mask, n, longest)
		lengths := j.list(m.beside[1], DTypeInt64, j.slab.data[p.numbers:][:8*n], n).Int64()
		for k, i := range j.kept {
			lengths[k] = int64(values[i].length)
		}

	case CollateRagged:
		x.Shape = x.Shape[1:]
		x.Shape[0] = total
		if own {
			data = aligned(int64(total) * m.unit)
		}
		x.Data = data[:int64(total)*m.unit]
		offsets := j.list(m.beside[0], DTypeInt64, j.slab.data[p.numbers:][:8*(n+1)], n+1).Int64()
		offsets[0] = 0
		at := 0
		for k, i := range j.kept {
			at += copy(data[at:], values[i].data)
			offsets[k+1] = offsets[k] + int64(values[i].length)
		}
	}
}

// pad makes of a value one of the longest, in dst. It may lie in the same memory, not
// before dst.
func (m *maker) pad(dst, value []byte) {
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
			j.samples[i], j.copies[i], j.labels[i], j.shards[i] = s.sample, 0, s.label, s.shard
			copy(j.fields[i*names:][:names], s.fields)
			keys = append(keys, s.key...)
		} else {
			keys = append(keys, j.key(i)...)
		}
		if k < i {
			j.samples[k], j.copies[k], j.labels[k], j.shards[k] = j.samples[i], j.copies[i], j.labels[i], j.shards[i]
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

// Tensors are those that a full batch will have, in order, without Data. A length that
// differs from batch to batch is -1.
func (r *Reader) Tensors() []Tensor {
	c, p := &r.config, r.canvases[0]
	n := c.BatchSize
	for _, other := range r.canvases[1:] { // sizes of buckets
		if other.height != p.height {
			p.height = -1
		}
		if other.width != p.width {
			p.width = -1
		}
	}
	var list []Tensor
	add := func(name string, d DType, shape ...int) {
		list = append(list, Tensor{Name: name, DType: d, Shape: shape})
	}
	picture := func(name string, d DType, kind Kind) {
		switch {
		case c.Collate == CollateRagged:
			add(name, d, -1)
			add(name+"_offsets", DTypeInt64, n+1)
		case kind == KindMask:
			add(name, d, n, p.height, p.width)
		case c.Layout == LayoutNCHW:
			add(name, d, n, 3, p.height, p.width)
		default:
			add(name, d, n, p.height, p.width, 3)
		}
	}
	if c.varies() {
		p.height, p.width = -1, -1
		if to := c.padTo(); to != (dims{}) {
			p.height, p.width = int(to.height), int(to.width)
		}
	}
	if c.Decode == DecodeImage {
		picture(imageTensor, c.DType, KindImage)
	}
	if c.varies() {
		add(sizesTensor, DTypeInt64, n, 2)
	}
	add(labelTensor, DTypeInt64, n)
	for i := range p.makers {
		m := &p.makers[i]
		if m.isPicture() {
			picture(m.Name, m.DType, m.Kind)
			continue
		}
		shape := append([]int{n}, m.pattern...)
		switch m.Collate {
		case CollatePad:
			longest := or(m.PadTo, -1)
			shape[1+m.vary] = longest
			add(m.Name, m.DType, shape...)
			add(m.beside[0], DTypeBool, n, longest)
			add(m.beside[1], DTypeInt64, n)
		case CollateRagged:
			add(m.Name, m.DType, shape[1:]...)
			add(m.beside[0], DTypeInt64, n+1)
		default:
			add(m.Name, m.DType, shape...)
		}
	}
	if c.blends() {
		add(partnerTensor, DTypeInt64, n)
		if c.Classes > 0 {
			add(softTensor, DTypeFloat32, n, c.Classes)
		}
	}
	return list
}

// Tensors are those that a full batch will have; see Reader.Tensors.
func (s *Stream) Tensors() []Tensor { return s.core.Tensors() }
