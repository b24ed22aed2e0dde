package reader

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/index"
	"shardify/shard"
	"shardify/store/cache"
)

// worker verifies and decodes samples, straight into their places in the slabs. Its
// memory is its own and used again for every image.
type worker struct {
	*pass
	imager imager
	lap    lap
	job    *job // in hand
	scratch
}

// decode does what the tasks ask for until the pass is over.
func (p *pass) decode() {
	w := worker{pass: p, imager: newImager(&p.reader.config, p.reader.canvases, imaging.Std)}
	w.imager.onDecoded = w.decoded
	w.lap.leave()
	for {
		select {
		case t := <-p.tasks:
			p.counters.decode.queued.Add(-1)
			w.do(t.job, t.slot)
		case <-p.ctx.Done():
			return
		}
	}
}

// decoded says that the image of the slot in hand is decoded.
func (w *worker) decoded() {
	w.enter(&w.counters.transform, "transform")
}

// enter charges the time to a stage from here on.
func (w *worker) enter(stage *stageCounters, name string) {
	before := w.lap.of
	w.charge(before, w.lap.enter(w.job.ctx, stage, &w.counters.decode, name))
}

// charge notes what the job in hand has cost in a stage.
func (w *worker) charge(stage *stageCounters, spent time.Duration) {
	switch stage {
	case &w.counters.decode:
		w.job.marks.decode.Add(int64(spent))
	case &w.counters.transform:
		w.job.marks.transform.Add(int64(spent))
	}
}

func (w *worker) do(j *job, i int) {
	w.job = j
	w.enter(&w.counters.decode, "decode")
	err := j.fault(i)
	if err == nil {
		err = w.sample(j, i)
	}
	if w.reader.wanted.image {
		w.drop(&j.images[i])
	}
	fields := j.slotFields(i)
	for f := range fields {
		w.drop(&fields[f])
	}
	w.counters.decode.items.Add(1)
	if err != nil {
		w.counters.decode.errors.Add(1)
		w.enter(&w.counters.decode, "substitute")
		w.bad(j, i, err)
	} else if w.reader.wanted.image {
		w.counters.transform.items.Add(1)
		w.counters.transform.bytes.Add(j.canvas.bytes)
	}
	last := w.lap.of
	w.charge(last, w.lap.leave())
	j.leave(stepWork)
	j.finish()
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

// sample makes slot i. An error is a *SampleError, unless the store failed.
func (w *worker) sample(j *job, i int) error {
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
	if w.reader.wanted.image {
		if err := w.image(j, i); err != nil {
			return err
		}
	}
	if len(j.canvas.makers) == 0 {
		return nil
	}
	w.enter(&w.counters.decode, "decode")
	if field, err := w.values(j, i, fields); err != nil {
		name, offset := j.at(field, fields)
		return j.sampleError(i, name, offset, err)
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
	data, err := w.whole(j, i, name, x)
	if err != nil {
		return err
	}
	if !j.stays(&piece{field: int32(f)}) {
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

// image makes the picture of slot i.
func (w *worker) image(j *job, i int) error {
	x := &j.images[i]
	w.counters.decode.bytes.Add(x.size)
	name := imageNames[x.name]
	if x.offset == absent {
		return j.sampleError(i, "", -1, errNoImage)
	}
	file, err := w.whole(j, i, name, x)
	if err != nil {
		return err
	}
	if err := w.picture(j, i, j.samples[i], j.copies[i], file); err != nil {
		return j.sampleError(i, name, x.offset, err)
	}
	return nil
}

var errNoImage = errors.New("it has no image")

// picture makes the picture of sample n in slot i. Copies of a sample in one epoch
// differ in what is random.
func (w *worker) picture(j *job, i int, n, copies int64, file []byte) (err error) {
	defer guard(&err)
	seed := w.plan.order.Seed
	if copies > 0 {
		seed = hashKey(seed, purposeCopy, uint64(copies))
	}
	random := augment.NewRand(seed, uint64(w.plan.epoch), uint64(n))
	w.imager.program = j.canvas.program
	size := j.canvas.bytes
	return w.imager.make(j.slab.data[int64(i)*size:][:size:size], file, random)
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
