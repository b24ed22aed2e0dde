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
)

// worker verifies and decodes samples, straight into their places in the slabs. Its
// memory is its own and used again for every image.
type worker struct {
	*pass
	imager imager
}

// decode does what the tasks ask for until the pass is over.
func (p *pass) decode() {
	w := worker{pass: p, imager: newImager(&p.reader.config, imaging.Std)}
	for {
		select {
		case t := <-p.tasks:
			w.do(t.job, t.slot)
		case <-p.ctx.Done():
			return
		}
	}
}

func (w *worker) do(j *job, i int) {
	start := time.Now()
	if !j.failed(i) {
		if err := w.sample(j, i); err != nil {
			j.fail(i, err)
		}
	}
	if w.reader.wanted.image {
		if x := &j.images[i]; x.read != nil {
			r := x.read
			x.read, x.data = nil, nil
			w.unuse(r)
		}
	}
	w.counters.decodeBusy.since(start)
	j.finish()
}

// sample makes slot i. An error is a *SampleError, unless the store failed.
func (w *worker) sample(j *job, i int) (err error) {
	// Decoders see hostile bytes. One that gives up in a panic loses a sample, not
	// a training run.
	defer func() {
		if p := recover(); p != nil {
			err = j.sampleError(i, "", -1, fmt.Errorf("decoder panicked: %v\n%s", p, debug.Stack()))
		}
	}()
	names := w.reader.wanted.names
	for f, name := range names {
		x := &j.fields[i*len(names)+f]
		if x.offset >= 0 {
			if err := w.verify(j, i, name, x, j.slab.data[x.at:x.at+x.size]); err != nil {
				return err
			}
		}
		w.counters.fieldBytes.Add(x.size)
	}
	if !w.reader.wanted.image {
		return nil
	}
	x := &j.images[i]
	w.counters.fieldBytes.Add(x.size)
	name := imageNames[x.name]
	switch {
	case x.offset == absent:
		return j.sampleError(i, "", -1, errors.New("it has no image"))
	case x.offset >= 0:
		if err := w.verify(j, i, name, x, x.data); err != nil {
			return err
		}
	}
	o := &w.plan.order
	random := augment.NewRand(o.Seed, uint64(w.plan.epoch), uint64(j.samples[i]))
	dst := j.slab.data[int64(i)*w.imageBytes:][:w.imageBytes:w.imageBytes]
	if err := w.imager.make(dst, x.data, random); err != nil {
		return j.sampleError(i, name, x.offset, err)
	}
	return nil
}

// verify compares a field with its checksum. Where they differ it is read once
// more: what a disk or a network has spoiled on the way may come whole then.
func (w *worker) verify(j *job, i int, name string, x *extent, data []byte) error {
	if w.reader.config.SkipChecksums || index.FieldChecksum(data) == x.crc {
		return nil
	}
	w.counters.rereads.Add(1)
	// A stream of its own, so as not to put back one that only goes forward.
	f, err := w.reader.files.acquire(w.ctx, fileKey{j.shards[i], 0})
	if err != nil {
		return err
	}
	defer w.reader.files.release(f)
	if err := w.readFull(f, data, x.offset); err != nil {
		return err
	}
	if sum := index.FieldChecksum(data); sum != x.crc {
		return j.sampleError(i, name, x.offset, fmt.Errorf(
			"%w, also when read again: %d bytes have CRC-32C %08x, the index says %08x; `shardify verify` lists all such samples",
			shard.ErrChecksum, len(data), sum, x.crc))
	}
	return nil
}
