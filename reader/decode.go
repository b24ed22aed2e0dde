package reader

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/jpeg"
	"shardify/index"
	"shardify/shard"
	"shardify/store/cache"
)

// worker verifies and decodes samples, straight into their places in the slabs. It has
// several JPEGs in hand at a time, since that takes less time than one after the other: as
// soon as one is done it takes the next task, if there is one, and it waits for none while
// it has any. Its memory is its own and used again for every image.
type worker struct {
	*pass
	imager  imager
	jpegs   jpegDecoder
	first   task // the next one to be taken; its job may be nil
	flights []*flight
	lap     lap
	job     *job // whose time it is
	scratch
	picture *picture // of the sample whose values are being made
	apart   picture  // of a sample that stands in for another
	ours    bool     // what runs is ours, not the decoder's
}

// flight is a task whose JPEG is being decoded.
type flight struct {
	task
	picture picture
	busy    bool
}

// decode does what the tasks ask for until the pass is over.
func (p *pass) decode() {
	r := p.reader
	w := worker{pass: p, imager: newImager(&r.config, r.canvases, r.newDecoder), jpegs: r.newDecoder()}
	w.imager.onMade = w.made
	w.lap.leave()
	for {
		select {
		case w.first = <-p.tasks:
			p.counters.decode.queued.Add(-1)
			w.together()
		case <-p.ctx.Done():
			return
		}
	}
}

// together does a task, and those that come before it is done.
func (w *worker) together() {
	defer w.mend()
	w.jpegs.DecodeQueue((*queue)(w))
}

// mend, deferred, makes sure that a file over which the decoder panics costs its own
// sample only: those that were in hand are decoded once more, each alone.
func (w *worker) mend() {
	p := recover()
	if p == nil {
		return
	}
	if w.ours {
		panic(p)
	}
	w.jpegs = w.reader.newDecoder()
	for _, f := range w.flights {
		if f.busy {
			f.picture.job.Points, f.picture.points = nil, nil
			w.land(f, w.imager.decodeAlone)
		}
	}
}

// queue is a worker as its decoder sees it.
type queue worker

// Next begins tasks until one has a JPEG to decode.
func (q *queue) Next() *jpeg.Job {
	w := (*worker)(q)
	w.ours = true
	for {
		t, ok := w.take()
		if !ok {
			w.ours = false
			return nil
		}
		if f := w.begin(t); f != nil {
			w.ours = false
			return &f.picture.job
		}
	}
}

// Done ends the task of a JPEG.
func (q *queue) Done(j *jpeg.Job) {
	w := (*worker)(q)
	w.ours = true
	for _, f := range w.flights {
		if &f.picture.job == j {
			w.land(f, w.imager.finish)
			break
		}
	}
	w.ours = false
}

// take returns a task if one is waiting.
func (w *worker) take() (task, bool) {
	if t := w.first; t.job != nil {
		w.first = task{}
		return t, true
	}
	if w.ctx.Err() != nil {
		return task{}, false
	}
	select {
	case t := <-w.tasks:
		w.counters.decode.queued.Add(-1)
		return t, true
	default:
		return task{}, false
	}
}

// made says that the image of the sample in hand is decoded, and something is left to do.
func (w *worker) made() {
	w.counters.transform.items.Add(1)
	w.counters.transform.bytes.Add(int64(len(w.picture.dst)))
	w.enter(&w.counters.transform, "transform")
}

// enter charges the time to a stage from here on.
func (w *worker) enter(stage *stageCounters, name string) {
	before := w.lap.of
	w.charge(before, w.lap.enter(w.job.ctx, stage, &w.counters.decode, name))
}

// leave charges the time to nothing from here on.
func (w *worker) leave() {
	before := w.lap.of
	w.charge(before, w.lap.leave())
	w.job = nil
}

// charge notes what the job in hand has cost in a stage. Of JPEGs that are decoded
// together, the time between two that are done counts for the second one.
func (w *worker) charge(stage *stageCounters, spent time.Duration) {
	switch stage {
	case &w.counters.decode:
		w.job.marks.decode.Add(int64(spent))
	case &w.counters.transform:
		w.job.marks.transform.Add(int64(spent))
	}
}

// turn gives the time to a job from here on.
func (w *worker) turn(j *job) {
	if w.job != nil {
		w.leave()
	}
	w.job = j
	w.enter(&w.counters.decode, "decode")
}

// begin begins a task. It returns nil where there is no JPEG to be decoded with others,
// and the task is done.
func (w *worker) begin(t task) *flight {
	j, i := t.job, t.slot
	w.turn(j)
	w.picture = nil
	err := j.fault(i)
	if err == nil && j.abandoned() {
		err = errAbandoned
	}
	if err == nil {
		err = w.fields(j, i)
	}
	if err == nil && w.reader.wanted.image {
		f := w.flight(t)
		w.picture = &f.picture
		var together bool
		if together, err = w.image(f); together {
			return f
		}
		f.busy = false
	}
	w.finish(j, i, err)
	return nil
}

// flight is one that is not busy.
func (w *worker) flight(t task) *flight {
	for _, f := range w.flights {
		if !f.busy {
			f.task, f.busy = t, true
			return f
		}
	}
	f := &flight{task: t, busy: true}
	w.flights = append(w.flights, f)
	return f
}

// land ends a task whose JPEG is decoded, by what makes the picture of that.
func (w *worker) land(f *flight, end func(*picture) error) {
	j, i := f.job, f.slot
	if w.job != j {
		w.job = j // the time since the last one is this one's
	}
	w.picture = &f.picture
	err := guarded(end, &f.picture)
	if err != nil && f.picture.gap != (jpeg.Gap{}) {
		err = w.makeAgain(f, err)
	} else if w.countPoints(&f.picture); err != nil {
		err = j.imageError(i, err)
	}
	f.busy = false
	w.finish(j, i, err)
}

// guarded calls end under guard.
func guarded(end func(*picture) error, p *picture) (err error) {
	defer guard(&err)
	return end(p)
}

// finish ends slot i, of which fields and picture are there, or an error.
func (w *worker) finish(j *job, i int, err error) {
	fields := j.slotFields(i)
	if err == nil && len(j.canvas.makers) > 0 {
		err = w.valuesOf(j, i, fields)
	}
	if w.reader.wanted.image {
		w.drop(&j.images[i])
	}
	if w.reader.points {
		w.drop(&j.points[i])
	}
	for f := range fields {
		w.drop(&fields[f])
	}
	w.counters.decode.items.Add(1)
	if err != nil {
		if !j.abandoned() {
			w.counters.decode.errors.Add(1)
		}
		w.enter(&w.counters.decode, "substitute")
		w.bad(j, i, err)
	}
	j.padSlot(i)
	w.leave()
	j.leave(stepWork)
	j.finish()
	for _, f := range w.flights {
		if f.busy {
			w.job = f.job
			w.lap.enter(w.job.ctx, &w.counters.decode, nil, "decode")
			break
		}
	}
}

// valuesOf makes the values of slot i.
func (w *worker) valuesOf(j *job, i int, fields []extent) error {
	w.enter(&w.counters.decode, "decode")
	field, err := w.values(j, i, fields)
	if err == nil {
		return nil
	}
	name, offset := j.at(field, fields)
	return j.sampleError(i, name, offset, err)
}

// drop gives back the bytes of a field that does not stay.
func (w *worker) drop(x *extent) {
	if l := x.lease; l != nil {
		x.lease, x.data = nil, nil
		w.pool.done(l)
	}
}

// bad puts a substitute in slot i, or notes what is wrong with it.
func (w *worker) bad(j *job, i int, err error) {
	var bad *SampleError
	if w.reader.config.OnBad == OnBadSubstitute && errors.As(err, &bad) {
		j.stands[i], err = w.substitute(j, i, bad)
	}
	if err != nil {
		j.fail(i, err)
	}
}

// fields brings the fields of slot i to their places. An error is a *SampleError, unless
// the store failed.
func (w *worker) fields(j *job, i int) error {
	if err := w.reader.checkLabel(j.labels[i]); err != nil {
		return j.sampleError(i, "", -1, err)
	}
	fields := j.slotFields(i)
	for f, name := range j.names {
		x := &fields[f]
		if err := w.field(j, i, f, name, x); err != nil {
			return err
		}
		w.counters.decode.bytes.Add(x.size)
	}
	return nil
}

// field brings a field whole to where Batch.Field and tensors find it.
func (w *worker) field(j *job, i, f int, name string, x *extent) error {
	if x.offset == absent {
		return nil
	}
	if x.lease == nil { // it is in its place
		data, _ := j.content(x)
		_, err := w.intact(j, i, name, x, data)
		return err
	}
	stays := j.stays(&piece{field: int32(f)})
	if stays && !x.parse {
		// Bytes that are in no cache any more are copied faster than they are checked, and
		// are in a cache then.
		place := j.slab.data[x.at : x.at+x.size]
		copy(place, x.data)
		w.drop(x)
		_, err := w.intact(j, i, name, x, place)
		return err
	}
	data, err := w.whole(j, i, name, x)
	if err != nil {
		return err
	}
	if !stays {
		x.data = data
		return nil
	}
	copy(j.slab.data[x.at:x.at+x.size], data)
	w.drop(x)
	return nil
}

// whole is a field's bytes, verified. They lie in the memory that it has, or in new one.
func (w *worker) whole(j *job, i int, name string, x *extent) ([]byte, error) {
	if !x.parse {
		return w.intact(j, i, name, x, x.data)
	}
	f, err := w.reader.files.acquire(w.ctx, fileKey{j.shards[i], j.streams[i]})
	if err != nil {
		return nil, err
	}
	defer w.reader.files.release(f)
	row := index.Row{Key: string(j.key(i)), Offset: x.whole, Size: int64(len(x.data))}
	field := index.FieldRow{Name: name, Offset: notVerbatim, Size: x.size, CRC32C: x.crc}
	data, err := f.file.ParseField(x.data, &row, &field)
	if damaged(err) {
		data, err = w.fieldAgain(j.shards[i], &row, &field)
	}
	if err != nil {
		return nil, w.slotFault(j, i, name, x.whole, err)
	}
	return data, nil
}

// slotFault is err of a field of a slot: an error of the sample, if that is what is wrong.
func (w *worker) slotFault(j *job, i int, name string, offset int64, err error) error {
	return w.atFault(j.shards[i], name, offset, err, func(field string, offset int64, err error) error {
		return j.sampleError(i, field, offset, err)
	})
}

// at is the name and offset of a field, for errors; field may be -1.
func (j *job) at(field int, fields []extent) (name string, offset int64) {
	if field < 0 {
		return "", -1
	}
	return j.names[field], max(-1, fields[field].offset)
}

// image begins the picture of a slot. It is together where that is a JPEG's that should be
// decoded together with others, or else done.
func (w *worker) image(f *flight) (together bool, err error) {
	j, i := f.job, f.slot
	x := &j.images[i]
	w.counters.decode.bytes.Add(x.size)
	if x.offset == absent {
		return false, j.sampleError(i, "", -1, errNoImage)
	}
	if w.reader.points && j.parts[i].gap != (jpeg.Gap{}) {
		if together, err = w.drawPart(f); err == nil {
			return together, nil
		}
		return w.drawAgain(f, err)
	}
	file, err := w.whole(j, i, imageNames[x.name], x)
	if err != nil {
		return false, err
	}
	if together, err = w.draw(f, file); err != nil && w.ctx.Err() == nil {
		err = j.imageError(i, err)
	}
	return together, err
}

// imageError is an error of the image of slot i.
func (j *job) imageError(i int, err error) error {
	x := &j.images[i]
	return j.sampleError(i, imageNames[x.name], x.offset, err)
}

var errNoImage = errors.New("it has no image")

// draw begins the picture of a slot, and makes it unless it should be decoded together
// with others. (Progressive files gain nothing from that, and take memory for a whole
// image.)
func (w *worker) draw(f *flight, file []byte) (together bool, err error) {
	defer guard(&err)
	j, p := f.job, &f.picture
	info, err := w.imager.draw(p, &j.canvas, file, j.plan.random(j.samples[f.slot], j.copies[f.slot]))
	if err == nil {
		err = j.images[f.slot].dims.check(info.Width, info.Height)
	}
	if err == nil {
		err = j.seat(f.slot, p)
	}
	if err != nil {
		return false, err
	}
	if info.Format == imaging.JPEG {
		p.points = w.pointsFor(j, f.slot, file)
	}
	return w.drawn(f, info, file)
}

// drawn makes a picture that is drawn unless it should be decoded together with others.
func (w *worker) drawn(f *flight, info imaging.Info, file []byte) (together bool, err error) {
	p := &f.picture
	if info.Format != imaging.JPEG || info.Coding == "progressive" || p.alone() {
		err := w.decodeAlone(p, info, file)
		if err == nil || p.gap == (jpeg.Gap{}) {
			w.countPoints(p)
		}
		return false, err
	}
	p.made = &p.own
	w.imager.prepare(p, file)
	return true, nil
}

// random is where all comes from that is random in the picture of sample n. Copies of a
// sample in one epoch differ.
func (p *Plan) random(n, copies int64) augment.Rand {
	seed := p.order.Seed
	if copies > 0 {
		seed = hashKey(seed, purposeCopy, uint64(copies))
	}
	return augment.NewRand(seed, uint64(p.epoch), uint64(n))
}

// check compares the dimensions that the index has of an image, by which its crop may have
// been drawn before it was read, with those in its file.
func (d dims) check(width, height int) error {
	if d == (dims{}) || int64(d.width) == int64(width) && int64(d.height) == int64(height) {
		return nil
	}
	return fmt.Errorf("its header says %d x %d pixels, and the index %d x %d: the index is not that of this file", width, height, d.width, d.height)
}

// standInPicture makes the picture of sample n in slot i, where it stands in for another.
func (w *worker) standInPicture(j *job, i int, n int64, file []byte, of dims, points []byte) (err error) {
	defer guard(&err)
	p := &w.apart
	w.picture = p
	info, err := w.imager.draw(p, &j.canvas, file, j.plan.random(n, 0))
	if err == nil {
		err = of.check(info.Width, info.Height)
	}
	if err == nil {
		err = j.seat(i, p)
	}
	if err != nil {
		return err
	}
	if info.Format == imaging.JPEG {
		p.points = points
	}
	err = w.decodeAlone(p, info, file)
	w.countPoints(p)
	return err
}

// guard, deferred, makes an error of a panic. Decoders see hostile bytes: one that gives
// up in a panic loses a sample, not a training run.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("decoder panicked: %v\n%s", p, debug.Stack())
	}
}

// intact compares a field with its checksum, and returns its bytes. Where they differ it
// is read once more, from the shard opened anew and past the cache: what a disk, a
// network or a cache has spoiled on the way may come whole then. It comes into memory of
// its own where others may look at data.
func (w *worker) intact(j *job, i int, name string, x *extent, data []byte) ([]byte, error) {
	if x.offset < 0 || w.reader.config.SkipChecksums || index.FieldChecksum(data) == x.crc {
		return data, nil
	}
	w.counters.rereads.Add(1)
	if x.lease != nil {
		data = make([]byte, x.size)
	}
	if err := w.readAgain(j.shards[i], x, data); err != nil {
		return nil, w.slotFault(j, i, name, x.offset, err)
	}
	return data, nil
}

// readAgain is the second look at a field.
func (w *worker) readAgain(number int32, x *extent, data []byte) error {
	fresh := cache.Fresh(w.ctx)
	f, err := w.reader.openShard(fresh, number)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := w.readFull(fresh, f, number, data, x.offset); err != nil {
		return err
	}
	if sum := index.FieldChecksum(data); sum != x.crc {
		return fmt.Errorf("%w, also when read again: %d bytes have CRC-32C %08x, the index says %08x; `shardify verify` lists all such samples",
			shard.ErrChecksum, len(data), sum, x.crc)
	}
	return nil
}
