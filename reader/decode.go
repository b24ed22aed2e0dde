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
	if r := x.read; r != nil {
		x.read, x.data = nil, nil
		w.unuse(r)
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
		if x.offset >= 0 {
			data, _ := j.content(x)
			if err := w.verify(j, i, name, x, data); err != nil {
				return err
			}
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
	switch {
	case x.offset == absent:
		return j.sampleError(i, "", -1, errNoImage)
	case x.offset >= 0:
		if err := w.verify(j, i, name, x, x.data); err != nil {
			return err
		}
	}
	if err := w.picture(j, i, j.samples[i], j.copies[i], x.data); err != nil {
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

// verify compares a field with its checksum. Where they differ it is read once more,
// from the shard opened anew and past the cache: what a disk, a network or a cache has
// spoiled on the way may come whole then.
func (w *worker) verify(j *job, i int, name string, x *extent, data []byte) error {
	if w.reader.config.SkipChecksums || index.FieldChecksum(data) == x.crc {
		return nil
	}
	w.counters.rereads.Add(1)
	err := w.readAgain(j.shards[i], x, data)
	if err == nil {
		return nil
	}
	return w.atFault(j.shards[i], name, x.offset, err, func(field string, offset int64, err error) error {
		return j.sampleError(i, field, offset, err)
	})
}

// readAgain is verify's second look at a field.
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
