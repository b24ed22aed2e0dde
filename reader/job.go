package reader

import (
	"context"
	"runtime"
	"runtime/trace"
	"slices"
	"sync"
	"sync/atomic"
)

// job is a batch on its way through the stages. Its arrays are used again.
type job struct {
	pass *pass
	// turn is the batch's place in the pass, number that in its epoch.
	turn, number int64
	// plan and canvas are those of the batch's bucket.
	plan   *Plan
	canvas canvas
	// seats is for how many images the slab has room, where all have one size; slots is
	// the number of slots, one for each sample, and n how many of them have one when the
	// job is collated; slot i's image is the i-th of the slab.
	seats int
	slots int
	n     int
	slab  *block
	used  int64 // of the slab
	// over is memory of the pool that decoding takes beyond the scratch memory.
	over    *block
	samples []int64
	copies  []int64 // how often the sample stands before this in the epoch's list
	streams []int32
	labels  []int64
	keys    []byte
	keyEnds []int32
	shards  []int32
	// names are those of the fields, sorted: the reader's wanted.names, unless nobody
	// knows which fields there are before the samples come.
	names []string
	// images has the image of each slot (under DecodeImage), points its seek points
	// (under Reader.points), fields for each slot those of names.
	images []extent
	points []extent
	fields []extent
	// parts says what of an image's file is wanted, and there (under Reader.points).
	parts []excerpt
	// Where images have sizes of their own: sizes are those of the slots' images, as they
	// were planned and then as they are, most the largest height and width that were
	// planned; pictures are the images, imagesAt and sizesAt their place in the slab.
	sizes    []dims
	most     dims
	pictures []value
	imagesAt place
	sizesAt  int64
	// labelsAt is the place of the labels in the slab; tensors are what the batch
	// shows, made by collate.
	blended  Blend // where batches are blended
	blendAt  int64 // memory for that in the slab
	labelsAt int64
	tensors  []Tensor
	dims     []int // of their shapes
	// places has the place in the slab of each of Config.Tensors, columns the number of
	// its field in names (-1: there is none), and values what it has of each slot, all
	// slots of the first, then of the second. kept are the slots that are in the batch.
	places  []place
	columns []int
	values  []value
	kept    []int
	// stay says which fields stay for Batch.Field, nil is all; others are gone when
	// their values are made.
	stay []bool
	// faults has each slot's error: a *SampleError, which concerns it alone, or
	// what ended the pass.
	mu     sync.Mutex // of faults
	faults []error
	// stands has what stands in for a damaged sample; bad all that are damaged.
	stands []*standIn
	bad    []*SampleError
	// Of a Stream: lost are the rests of shards that were damaged while the job was
	// filled, place is the state behind it, and ends says that it is the epoch's last.
	lost  []*SampleError
	place *StreamState
	ends  bool
	// fatal ends the pass at this place; the job has nothing else.
	fatal error
	// fate says which came first, in a call of Reader.Read: the end of the job, or that of
	// the caller's patience.
	fate atomic.Int32

	// pieces are what must be read, in the order of the shards' bytes.
	pieces []piece
	reads  []read
	leases []lease
	// missing counts the pieces of each slot that are not read yet; left counts
	// the slots that are not done, and the goroutine that fills the job. done gets a
	// value when left becomes 0.
	missing []atomic.Int32
	empty   []bool // slots of which nothing is to be read
	left    atomic.Int32
	done    chan struct{}

	marks marks
	// ctx is the pass's, or that of a call, which ends with it; within a task of
	// runtime/trace where that is on.
	ctx  context.Context
	task *trace.Task
}

// extent is where a field lies, and later where its bytes are.
type extent struct {
	offset, size int64
	crc          uint32
	name         uint8
	dims         dims // of an image, as the index has them
	// at is the field's place in the slab.
	at int64
	// data are its bytes where they are not in the slab; under parse those of the whole
	// sample, which begins at whole, out of which it is to be parsed. They belong to
	// lease; where there is none they stay.
	data  []byte
	parse bool
	whole int64
	lease *lease
}

// piece is a field that is to be read for a slot.
type piece struct {
	shard, stream int32
	slot, field   int32 // of names, or imageField, or pointsField
	row           int32
	offset, size  int64
	span          *span // that has it; nil: it is read alone
	part          bool  // not all of it need be read; see excerpt
}

const (
	imageField  = -1
	pointsField = -2
)

// read is one read of a store, of neighbouring pieces.
type read struct {
	shard, stream int32
	offset, size  int64
	data          []byte
	// A read for one job has its pieces. at is data's place in the job's slab, or -1
	// where data belongs to a lease.
	job    *job
	pieces []piece
	at     int64
	lease  *lease
	// before is closed when the read before it on a stream that only goes forward
	// has been done, and after when this one has; both nil for others.
	before, after chan struct{}
}

// lease is a block that several use. It goes back to the pool when users is 0.
type lease struct {
	block *block
	users atomic.Int32
	ahead bool // a span's
}

// done says that one user less needs the block.
func (p *pool) done(l *lease) {
	if l.users.Add(-1) == 0 {
		b := l.block
		l.block = nil
		if l.ahead {
			p.ahead.Add(-int64(len(b.data)))
		}
		p.put(b)
	}
}

// slotFields are the fields of slot i.
func (j *job) slotFields(i int) []extent { return j.fields[i*len(j.names):][:len(j.names)] }

func (j *job) key(i int) []byte {
	from := int32(0)
	if i > 0 {
		from = j.keyEnds[i-1]
	}
	return j.keys[from:j.keyEnds[i]]
}

// sampleError names slot i and the field that f is.
func (j *job) sampleError(i int, field string, offset int64, err error) *SampleError {
	r := j.pass.reader
	return &SampleError{
		Shard: r.shardPath(j.shards[i]),
		Key:   string(j.key(i)), Sample: j.samples[i], Field: field, Offset: offset, Err: err,
	}
}

// reset prepares a job for n slots.
func (j *job) reset(turn, number int64, n int, names []string, image bool) {
	j.over, j.fatal = nil, nil
	j.fate.Store(0)
	j.turn, j.number = turn, number
	j.slots, j.n, j.slab, j.bad, j.tensors = n, n, nil, nil, nil
	j.lost, j.place, j.ends = nil, nil, false
	j.labels = sized(j.labels, n)
	j.keys, j.keyEnds = slices.Grow(j.keys[:0], 32*n), sized(j.keyEnds, n)
	j.shards = sized(j.shards, n)
	j.faults = sized(j.faults, n)
	clear(j.faults)
	j.stands = sized(j.stands, n)
	clear(j.stands)
	j.names, j.fields = names, sized(j.fields, n*len(names))
	j.stay = j.pass.reader.wanted.stay(j.stay, names)
	if image {
		j.images = sized(j.images, n)
	}
	if j.pass.reader.config.varies() {
		j.sizes, j.pictures, j.most = sized(j.sizes, n), sized(j.pictures, n), dims{}
		clear(j.sizes)
	}
	if j.pass.reader.points {
		j.points = sized(j.points, n)
		clear(j.points)
		j.parts = sized(j.parts, n)
		clear(j.parts)
	}
	j.empty = sized(j.empty, n)
	j.pieces, j.reads, j.leases = slices.Grow(j.pieces[:0], n*(len(names)+1)), j.reads[:0], j.leases[:0]
	if cap(j.missing) < n {
		j.missing = make([]atomic.Int32, n)
	}
	j.missing = j.missing[:n]
	for i := range j.missing {
		j.missing[i].Store(0)
	}
	j.left.Store(int32(n) + 1)
	j.marks.reset(n)
}

func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	return s[:n]
}

// fail notes what is wrong with slot i; the first fault stays.
func (j *job) fail(i int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.faults[i] == nil {
		j.faults[i] = err
	}
}

// fault is what is wrong with slot i so far; call it when its pieces are read.
func (j *job) fault(i int) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.faults[i]
}

// stays says that a piece has its place in the slab; others are gone when the slot is done.
func (j *job) stays(q *piece) bool { return q.field >= 0 && (j.stay == nil || j.stay[q.field]) }

// finish ends a slot, or the filling of the job. Who ends the last one makes the batch.
func (j *job) finish() {
	if j.left.Add(-1) == 0 {
		j.end()
	}
}

// end makes the batch and says that it is there.
func (j *job) end() {
	if j.over != nil {
		j.pass.pool.put(j.over)
		j.over = nil
	}
	if !j.fate.CompareAndSwap(jobUnderWay, jobEnded) {
		j.pass.giveBack(j)
		return
	}
	if j.fatal == nil {
		c := &j.pass.counters.collate
		var l lap
		l.enter(j.ctx, c, nil, "collate")
		j.collate()
		l.leave()
		c.items.Add(1)
		if j.slab != nil {
			c.bytes.Add(int64(len(j.slab.data)))
		}
	}
	j.passed(stepCollate)
	j.pass.finished.Add(1)
	j.pass.counters.ready.Add(1)
	j.done <- struct{}{}
	runtime.Gosched() // the consumer goes first
}
