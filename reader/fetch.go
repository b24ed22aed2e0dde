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
)

// fetchers is how many reads of a store are under way at once: enough to keep an
// SSD's queue filled. Reads from the page cache need no more than one a core.
const fetchers = 8

// fetch does the reads that the scheduler sends, and hands on the samples whose
// last piece has come.
func (p *pass) fetch() {
	var l lap
	c := &p.counters.store
	l.leave()
	for {
		select {
		case r := <-p.reads:
			c.queued.Add(-1)
			if r.before != nil {
				select {
				case <-r.before:
				case <-p.ctx.Done():
					return
				}
			}
			l.enter(r.job.ctx, c, c, "fetch")
			err := p.read(r)
			l.leave()
			if err != nil {
				return
			}
		case <-p.ctx.Done():
			return
		}
	}
}

// read does one read. Its error is that the pass is over.
func (p *pass) read(r *read) error {
	j, pieces := r.job, r.pieces
	parsed, err := p.load(r)
	var apart []error
	if !r.parse && damaged(err) {
		apart = p.apart(r)
	}
	p.counters.store.items.Add(1)
	p.counters.store.bytes.Add(r.size)
	if err != nil {
		p.counters.store.errors.Add(1)
	}
	for i := range pieces {
		q := &pieces[i]
		if apart != nil {
			err = apart[i]
		}
		if err != nil {
			j.fail(int(q.slot), p.pieceError(j, q, err))
			if !j.stays(q) {
				p.unuse(r)
			}
			continue
		}
		data := parsed
		if !r.parse {
			data = r.data[q.offset-r.offset:][:q.size:q.size]
		}
		if !j.stays(q) {
			x := p.extent(j, q)
			x.data, x.read = data, r
		} else if r.at < 0 {
			copy(j.slab.data[p.extent(j, q).at:], data)
		}
	}
	if r.after != nil {
		close(r.after)
	}
	p.unuse(r)
	// From a slot's last piece on it is the next stage's; r is the job's, which
	// may be used again after the last one.
	for i := range pieces {
		slot := int(pieces[i].slot)
		if j.missing[slot].Add(-1) == 0 {
			if err := p.hand(task{j, slot}); err != nil {
				return err
			}
		}
	}
	return nil
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
	fresh := cache.Fresh(p.ctx)
	f, err := p.reader.openShard(fresh, r.shard)
	for i := range r.pieces {
		if errs[i] = err; err == nil {
			q := &r.pieces[i]
			errs[i] = p.readFull(fresh, f, r.shard, r.data[q.offset-r.offset:][:q.size], q.offset)
		}
	}
	if err == nil {
		_ = f.Close() // it was only read
	}
	return errs
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
	if q.field < 0 {
		return &j.images[q.slot]
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

// unuse says that one user less needs r's block.
func (p *pass) unuse(r *read) {
	if r.users.Add(-1) == 0 && r.block != nil {
		b := r.block
		r.block = nil
		p.pool.put(b)
	}
}

// load fills r.data, or where the read is to be parsed returns the field.
func (p *pass) load(r *read) (parsed []byte, err error) {
	if err := p.verdicts.known(r.shard); err != nil {
		return nil, err
	}
	f, err := p.reader.files.acquire(p.ctx, fileKey{r.shard, r.stream})
	if err != nil {
		return nil, err
	}
	defer p.reader.files.release(f)
	if !r.parse {
		return nil, p.readFull(p.ctx, f.file, r.shard, r.data, r.offset)
	}
	j, q := r.job, &r.pieces[0]
	x := p.extent(j, q)
	row := index.Row{Key: string(j.key(int(q.slot))), Offset: q.offset, Size: q.size}
	field := index.FieldRow{Name: p.fieldName(j, q), Offset: notVerbatim, Size: x.size, CRC32C: x.crc}
	return p.readField(f.file, r.shard, &row, &field, r.data[:0])
}

// readField reads a field, once more from the shard opened anew, past the cache, where
// it is damaged.
func (p *pass) readField(f *dataset.ShardFile, number int32, row *index.Row, field *index.FieldRow, buf []byte) ([]byte, error) {
	data, err := f.ReadField(p.ctx, row, field, buf)
	if !damaged(err) {
		return data, err
	}
	p.counters.rereads.Add(1)
	fresh := cache.Fresh(p.ctx)
	again, err := p.reader.openShard(fresh, number)
	if err != nil {
		return nil, err
	}
	defer again.Close()
	return again.ReadField(fresh, row, field, buf)
}

// readFull fills data from offset on.
func (p *pass) readFull(ctx context.Context, f *dataset.ShardFile, number int32, data []byte, offset int64) error {
	n, err := f.ReadAt(ctx, data, offset)
	switch {
	case n == len(data):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		err = fmt.Errorf("shard %s: %w: it ends at byte %d", p.reader.shardPath(number), shard.ErrTruncated, offset+int64(n))
	}
	return fmt.Errorf("%d bytes at %d: %w", len(data), offset, err)
}
