package reader

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"shardify/index"
)

// ErrTooManyBad: a pass met more damaged samples than Config.MaxBad allows.
var ErrTooManyBad = errors.New("too many damaged samples")

// BadSample is a damaged sample in Reader's report.
type BadSample struct {
	Sample int64  `json:"sample"`
	Key    string `json:"key"`
	Shard  string `json:"shard"`
	// Field and Offset are as in SampleError.
	Field  string `json:"field,omitempty"`
	Offset int64  `json:"offset"`
	// Reason is what was wrong with it the first time, and Times how often it was
	// met.
	Reason string `json:"reason"`
	Times  int    `json:"times"`
}

// maxReported bounds the report.
const maxReported = 10_000

// badSamples collects the report.
type badSamples struct {
	mu   sync.Mutex
	list map[int64]*BadSample
}

func (b *badSamples) add(e *SampleError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.list[e.Sample]; s != nil {
		s.Times++
		return
	}
	if len(b.list) == maxReported {
		return
	}
	if b.list == nil {
		b.list = map[int64]*BadSample{}
	}
	b.list[e.Sample] = &BadSample{
		Sample: e.Sample, Key: e.Key, Shard: e.Shard, Field: e.Field, Offset: e.Offset, Reason: e.Err.Error(), Times: 1,
	}
}

// BadSamples reports the damaged samples that all passes have met so far, by their
// numbers: the first 10,000 of them. (Stats counts all.)
func (r *Reader) BadSamples() []BadSample {
	r.bad.mu.Lock()
	defer r.bad.mu.Unlock()
	list := make([]BadSample, 0, len(r.bad.list))
	for _, s := range r.bad.list {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b BadSample) int { return cmp.Compare(a.Sample, b.Sample) })
	return list
}

// standIn is a sample that stands in for a damaged one. Its picture is in the slot.
type standIn struct {
	bad    *SampleError
	sample int64
	shard  int32
	label  int64
	key    []byte
	fields []extent
}

// substitutes is how many samples are tried in place of a damaged one; the first
// half are of its shard, all of its bucket.
const substitutes = 8

// substitute draws the sample to try in place of sample n. It may be n.
func (p *Plan) substitute(n int64, try int) int64 {
	random := hashKey(p.order.Seed, uint64(p.epoch), purposeSubstitute, uint64(n), uint64(try))
	from, to := int64(0), p.samples
	if shard, _ := p.Locate(n); try < substitutes/2 && p.starts[shard] < p.starts[shard+1] {
		from, to = p.starts[shard], p.starts[shard+1]
	}
	n, _ = p.number(from + int64(random%uint64(to-from)))
	return n
}

// substitute puts another sample in slot i. An error ends the pass.
func (w *worker) substitute(j *job, i int, bad *SampleError) (*standIn, error) {
	plan, err := w.reader.planOf(j, bad.Sample)
	if err != nil {
		return nil, err
	}
	var last *SampleError
	for try := range substitutes {
		n := plan.substitute(bad.Sample, try)
		if n == bad.Sample {
			continue
		}
		s, err := w.standIn(j, i, n)
		if err == nil {
			s.bad = bad
			return s, nil
		}
		if !errors.As(err, &last) {
			return nil, err
		}
		w.reader.bad.add(last)
	}
	if last == nil {
		return nil, fmt.Errorf("%w; and there is no other sample to put in its place", bad)
	}
	return nil, fmt.Errorf("%w; and what was to stand in for it is damaged, too: %w", bad, last)
}

// standIn reads sample n and makes its picture in slot i.
func (w *worker) standIn(j *job, i int, n int64) (*standIn, error) {
	number, row := j.plan.Locate(n)
	r, err := w.reader.rows.get(w.ctx, number)
	if err != nil {
		return nil, err
	}
	s := &standIn{sample: n, shard: int32(number), label: r.labels[row], key: r.key(row)}
	fault := func(field string, offset int64, err error) error {
		return &SampleError{Shard: w.reader.shardPath(s.shard), Key: string(s.key), Sample: n, Field: field, Offset: offset, Err: err}
	}
	if err := w.reader.checkLabel(s.label); err != nil {
		return nil, fault("", -1, err)
	}
	if err := w.verdicts.known(s.shard); err != nil {
		return nil, w.atFault(s.shard, "", -1, err, fault)
	}
	f, err := w.reader.files.acquire(w.ctx, fileKey{s.shard, 0})
	if err != nil {
		return nil, w.atFault(s.shard, "", -1, err, fault)
	}
	defer w.reader.files.release(f)
	whole := index.Row{Key: string(s.key)}
	if r.offsets != nil {
		whole.Offset, whole.Size = r.offsets[row], r.sizes[row]
	}
	read := func(c *column, name string) ([]byte, error) {
		field := index.FieldRow{Name: name, Offset: c.offset[row], Size: c.size[row], CRC32C: c.crc[row]}
		data, err := w.readField(f.file, s.shard, &whole, &field)
		if err != nil {
			err = w.atFault(s.shard, name, field.Offset, err, fault)
		}
		w.counters.store.bytes.Add(field.Size)
		w.counters.decode.bytes.Add(field.Size)
		return data, err
	}
	cols := r.cols
	if w.reader.wanted.image {
		c := &cols[0]
		cols = cols[1:]
		if c.offset[row] == absent {
			return nil, fault("", -1, errNoImage)
		}
		name := imageNames[c.name[row]]
		data, err := read(c, name)
		if err != nil {
			return nil, err
		}
		var of dims
		if r.dims != nil {
			of = r.dims[row]
		}
		if err := w.standInPicture(j, i, n, data, of, w.standInPoints(s, r, row, data)); err != nil {
			if w.ctx.Err() != nil {
				return nil, err
			}
			return nil, fault(name, c.offset[row], err)
		}
	}
	s.fields = make([]extent, 0, len(j.names))
	for k, name := range w.reader.wanted.names {
		x := extent{offset: cols[k].offset[row], size: cols[k].size[row]}
		if x.offset != absent {
			if x.data, err = read(&cols[k], name); err != nil {
				return nil, err
			}
			if x.data == nil {
				x.data = []byte{}
			}
		}
		s.fields = append(s.fields, x)
	}
	if field, err := w.values(j, i, s.fields); err != nil {
		name, offset := j.at(field, s.fields)
		return nil, fault(name, offset, err)
	}
	return s, nil
}
