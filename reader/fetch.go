package reader

import (
	"context"
	"errors"
	"fmt"
	"io"

	"shardify/dataset"
	"shardify/index"
	"shardify/shard"
	"shardify/store/cache"
	"shardify/store/limit"
)

const (
	// localFetchers is how many reads of a disk are under way at once: enough to keep an
	// SSD's queue filled. Reads from the page cache need no more than one a core.
	localFetchers = 8
	// remoteFetchers is for other stores: so many reads of a photograph with 50 ms to
	// the first byte are some 5,000 a second. How many of them are sent at once
	// store/limit finds out.
	remoteFetchers = limit.DefaultMax
	// cachedFetchers is for those with a cache, which has a buffer for each.
	cachedFetchers = 16
)

// fetch does the reads that the scheduler sends, and hands on the samples whose
// last piece has come.
func (p *pass) fetch() {
	var l lap
	c := &p.counters.store
	l.leave()
	for {
		r, s := p.nextRead()
		if r == nil && s == nil {
			return
		}
		c.queued.Add(-1)
		var err error
		if s != nil {
			l.enter(p.ctx, c, c, "fetch ahead")
			err = p.readSpan(s)
		} else {
			if r.before != nil {
				select {
				case <-r.before:
				case <-p.ctx.Done():
					return
				}
			}
			l.enter(r.job.ctx, c, c, "fetch")
			err = p.read(r)
		}
		l.leave()
		if err != nil {
			return
		}
	}
}

// nextRead waits for a read, or where there is none for a span; both are nil when the
// pass is over.
func (p *pass) nextRead() (*read, *span) {
	select {
	case r := <-p.reads:
		return r, nil
	default:
	}
	select {
	case r := <-p.reads:
		return r, nil
	case s := <-p.spans:
		return nil, s
	case <-p.ctx.Done():
		return nil, nil
	}
}

// read does one read. Its error is that the pass is over.
func (p *pass) read(r *read) error {
	var err error
	if r.job.abandoned() {
		err = errAbandoned
	} else if !r.pieces[0].part || !p.readPart(r) {
		err = p.load(r)
	}
	var apart []error
	if damaged(err) && r.stream != pointsStream {
		apart = p.apart(r)
	}
	if r.after != nil {
		close(r.after)
	}
	// From a slot's last piece on it is the next stage's; r and its pieces are the
	// job's, which may be used again after the last one.
	for i, n := 0, len(r.pieces); i < n; i++ {
		last := i == n-1
		if apart != nil {
			err = apart[i]
		}
		if over := p.deliver(r.job, &r.pieces[i], r, err); over != nil || last {
			return over
		}
	}
	return nil
}

// deliver gives the slot of a piece its bytes, of a read in which it lies, or the error
// that there are none.
func (p *pass) deliver(j *job, q *piece, r *read, err error) error {
	slot := int(q.slot)
	switch x := p.extent(j, q); {
	case err != nil:
		if q.field == pointsField {
			p.counters.seek.refuse(err)
		} else {
			j.fail(slot, p.pieceError(j, q, err))
		}
		if r.lease != nil {
			p.pool.done(r.lease)
		}
	case r.lease != nil:
		x.data, x.lease = r.data[q.offset-r.offset:][:q.size:q.size], r.lease
	}
	if j.missing[slot].Add(-1) > 0 {
		return nil
	}
	return p.hand(task{j, slot})
}

// pieceError is err of a read for the slot of one of its pieces.
func (p *pass) pieceError(j *job, q *piece, err error) error {
	return p.atFault(q.shard, p.fieldName(j, q), q.offset, err, func(field string, offset int64, err error) error {
		return j.sampleError(int(q.slot), field, offset, err)
	})
}

// apart does a read once more, from the shard opened anew, past the cache, and piece by
// piece: where a compressed shard is damaged, not all of them need be.
func (p *pass) apart(r *read) []error {
	errs := make([]error, len(r.pieces))
	p.counters.rereads.Add(1)
	for i := range r.pieces {
		q := &r.pieces[i]
		errs[i] = p.loadAgain(r.shard, r.data[q.offset-r.offset:][:q.size], q.offset)
	}
	return errs
}

// loadAgain fills data from an offset of a shard on, opened anew, past the cache.
func (p *pass) loadAgain(number int32, data []byte, offset int64) error {
	fresh := cache.Fresh(p.ctx)
	f, err := p.reader.openShard(fresh, number)
	if err != nil {
		return err
	}
	defer f.Close()
	return p.readFull(fresh, f, number, data, offset)
}

// fieldName is the name of the field that q is.
func (p *pass) fieldName(j *job, q *piece) string {
	if q.field < 0 {
		return imageNames[j.images[q.slot].name]
	}
	return j.names[q.field]
}

// extent is the field that q is.
func (p *pass) extent(j *job, q *piece) *extent {
	switch q.field {
	case imageField:
		return &j.images[q.slot]
	case pointsField:
		return &j.points[q.slot]
	}
	return &j.fields[int(q.slot)*len(j.names)+int(q.field)]
}

// hand gives a sample to the workers.
func (p *pass) hand(t task) error {
	t.job.leave(stepRead)
	p.counters.decode.queued.Add(1)
	select {
	case p.tasks <- t:
		return nil
	case <-p.ctx.Done():
		p.counters.decode.queued.Add(-1)
		return context.Cause(p.ctx)
	}
}

// load fills r.data.
func (p *pass) load(r *read) error {
	ctx := p.ctx
	if r.job != nil {
		ctx = r.job.ctx
	}
	err := p.loadFrom(ctx, fileKey{r.shard, r.stream}, r.data, r.offset)
	p.counters.store.items.Add(1)
	p.counters.store.bytes.Add(r.size)
	if err != nil {
		p.counters.store.errors.Add(1)
	}
	return err
}

// loadFrom fills data from an offset of a shard on.
func (p *pass) loadFrom(ctx context.Context, key fileKey, data []byte, offset int64) error {
	if err := p.verdicts.known(key.shard); err != nil {
		return err
	}
	f, err := p.reader.files.acquire(ctx, key)
	if err != nil {
		return err
	}
	defer p.reader.files.release(f)
	return p.readFull(ctx, f, key.shard, data, offset)
}

// readField reads a field, once more from the shard opened anew, past the cache, where
// it is damaged.
func (p *pass) readField(f *dataset.ShardFile, number int32, row *index.Row, field *index.FieldRow) ([]byte, error) {
	data, err := f.ReadField(p.ctx, row, field, nil)
	if damaged(err) {
		return p.fieldAgain(number, row, field)
	}
	return data, err
}

// fieldAgain reads a field from the shard opened anew, past the cache.
func (p *pass) fieldAgain(number int32, row *index.Row, field *index.FieldRow) ([]byte, error) {
	p.counters.rereads.Add(1)
	fresh := cache.Fresh(p.ctx)
	f, err := p.reader.openShard(fresh, number)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadField(fresh, row, field, nil)
}

// readerAt is what can be read at any place.
type readerAt interface {
	ReadAt(ctx context.Context, p []byte, off int64) (int, error)
}

// readFull fills data from offset on.
func (p *pass) readFull(ctx context.Context, f readerAt, number int32, data []byte, offset int64) error {
	n, err := f.ReadAt(ctx, data, offset)
	switch {
	case n == len(data):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		err = fmt.Errorf("shard %s: %w: it ends at byte %d", p.reader.shardPath(number), shard.ErrTruncated, offset+int64(n))
	}
	return fmt.Errorf("%d bytes at %d: %w", len(data), offset, err)
}
