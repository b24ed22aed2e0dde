package reader

import (
	"cmp"
	"context"
	"fmt"
	"runtime/trace"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"shardify/imaging/transform"
)

// The scheduler is one goroutine that turns the plan into jobs, batch by batch: it
// looks the samples up in the index, lays out the slab, joins what is to be read to
// reads of neighbouring bytes, and takes memory from the pool for all of it, in
// that order. It alone takes memory; the stages behind it only give back. So
// however little memory there is, the earliest batch has all that it needs, and
// can be finished.

const (
	// maxGap is how many unwanted bytes a read takes along rather than being two
	// reads: a tar header and its padding, or a small field.
	maxGap = 16 << 10
	// maxRead bounds a read of several samples.
	maxRead = 4 << 20
	// maxLent bounds what one sample or batch may take beyond the pool's size.
	maxLent = 4 << 30
	// localIndexLoads is how many indexes are read at once of a disk, and remoteIndexLoads
	// of other stores: those of all shards that the lanes of a first batch have open, whose
	// requests then take the time of one.
	localIndexLoads  = 8
	remoteIndexLoads = 128
	// maxShared bounds what several small reads share, so that there are few blocks,
	// and large ones.
	maxShared = 2 << 20
	// fieldAlign is the alignment of fields in a slab.
	fieldAlign = 16
)

// scheduler is the state of the scheduling goroutine.
type scheduler struct {
	*pass
	rowOf  []int64
	loaded map[int32]*rows // of the batch's shards
	// held are blocks of the batch in hand that cannot come back before read until
	// has been sent, as a sample that is in them is not whole before.
	held    []heldBlock
	last    []int32 // the last read of each slot
	unknown []int   // slots whose images' dimensions the index does not have
	sent    int     // reads of the batch in hand that are on their way
	// streams has the last read on each forward-only stream.
	streams map[fileKey]chan struct{}
	look    *lookahead
	recipe  transform.Recipe // to see what an image's crop needs, and how large it becomes
}

type heldBlock struct {
	until int
	bytes int64
}

func (p *pass) schedule() {
	defer close(p.ready)
	s := newScheduler(p)
	s.look = newLookahead(p)
	// The first batch is read alone, so that it comes soon; in later passes nobody waits
	// for it longer than for the second.
	if p.reader.begun.Swap(true) {
		s.look.fill()
	}
	for place := p.from; place < p.until; place++ {
		s.look.settle(place)
		j := p.newJob()
		err := s.batch(j, place)
		if err != nil {
			j = &job{fatal: err}
		}
		// The consumer need not wait for what is looked up for later batches, and that need
		// not wait for the consumer.
		sent := false
		select {
		case p.ready <- j:
			sent = true
		default:
		}
		if err == nil {
			s.look.passed(place)
			s.look.fill()
		}
		if !sent {
			select {
			case p.ready <- j:
			case <-p.ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func newScheduler(p *pass) *scheduler {
	return &scheduler{pass: p, loaded: map[int32]*rows{}, streams: map[fileKey]chan struct{}{}}
}

// newJob returns a job to fill, one that has come back if there is any.
func (p *pass) newJob() *job {
	select {
	case j := <-p.pool.jobs:
		j.pass = p
		return j
	default:
		return &job{pass: p, done: make(chan struct{}, 1)}
	}
}

// batch fills j with the batch at a place and sends its reads on their way.
func (s *scheduler) batch(j *job, place int64) error {
	plan, number, err := s.planAt(place)
	if err != nil {
		return err
	}
	if plan != s.plans[0] {
		s.pastEpoch()
		s.verdicts.forget(0)
	}
	var of int64 // the batch's number in its bucket
	j.plan, of = plan.of(number)
	j.canvas = s.reader.canvas(j.plan)
	j.samples = j.plan.batch(j.samples[:0], of, s.reader.config.Rank)
	j.seats = plan.order.BatchSize
	j.copies = sized(j.copies, len(j.samples))
	j.streams = sized(j.streams, len(j.samples))
	for i, e := range j.samples {
		j.samples[i], j.copies[i] = j.plan.number(e)
		j.streams[i] = s.stream(j.plan, of, i)
	}
	j.reset(place, number, len(j.samples), s.reader.wanted.names, s.reader.wanted.image)
	j.begin(s.ctx)
	return s.fill(j)
}

// fill brings a job on its way of which the samples are known.
func (s *scheduler) fill(j *job) error {
	s.sent = 0
	if err := s.locate(j); err != nil {
		return err
	}
	j.passed(stepIndex)
	s.lookUp(j)
	if err := s.measure(j); err != nil {
		return err
	}
	for j.slab == nil { // again where a span was given up
		var err error
		if j.slab, err = s.take(j, j.seal(s.lay(j)), 0, true); err != nil {
			return fmt.Errorf("batch %d of epoch %d: %w", j.number, j.plan.epoch, err)
		}
	}
	if n := s.over(j); n > 0 {
		for j.over == nil {
			var err error
			if j.over, err = s.takeOver(j, n); err != nil {
				return fmt.Errorf("batch %d of epoch %d: decoding an image: %w", j.number, j.plan.epoch, err)
			}
		}
	}
	for i := range j.pieces {
		if q := &j.pieces[i]; q.span != nil {
			if err := s.look.attach(j, q); err != nil {
				return err
			}
		}
	}
	if err := s.sendAll(j); err != nil {
		return err
	}
	for i := range j.slots {
		if j.empty[i] {
			if err := s.hand(task{j, i}); err != nil {
				return err
			}
		}
	}
	j.finish()
	return nil
}

// locate finds the shard and row of each sample, and the shards' indexes.
func (s *scheduler) locate(j *job) error {
	clear(s.loaded)
	s.rowOf = sized(s.rowOf, j.n)
	var load []int32
	for i, n := range j.samples {
		shard, row := j.plan.Locate(n)
		j.shards[i], s.rowOf[i] = int32(shard), row
		if _, seen := s.loaded[int32(shard)]; !seen {
			r := s.look.rows(int32(shard))
			s.loaded[int32(shard)] = r
			if r == nil {
				load = append(load, int32(shard))
			}
		}
	}
	return s.loadRows(j.ctx, load, func(shard int32, r *rows) { s.loaded[shard] = r })
}

// loadRows gets the indexes of shards, several at once, and gives each to got.
func (p *pass) loadRows(ctx context.Context, shards []int32, got func(shard int32, r *rows)) error {
	left := shards[:0]
	for _, shard := range shards {
		if r := p.reader.rows.cached(int(shard)); r != nil {
			got(shard, r)
		} else {
			left = append(left, shard)
		}
	}
	if len(left) == 0 {
		return nil
	}
	defer trace.StartRegion(ctx, "index").End()
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(p.reader.indexLoads)
	for _, shard := range left {
		g.Go(func() error {
			r, err := p.reader.rows.get(ctx, int(shard))
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			got(shard, r)
			return nil
		})
	}
	return g.Wait()
}

// lookUp copies what the index says of each sample into the job, and lists the
// pieces that must be read.
func (s *scheduler) lookUp(j *job) {
	names := j.names
	for i := range j.n {
		r, row := s.loaded[j.shards[i]], s.rowOf[i]
		j.labels[i] = r.labels[row]
		j.keys = append(j.keys, r.key(row)...)
		j.keyEnds[i] = int32(len(j.keys))
		add := func(c *column, field int32) extent {
			e := extent{offset: c.offset[row], size: c.size[row], crc: c.crc[row]}
			p := piece{
				shard: j.shards[i], stream: j.streams[i], slot: int32(i), field: field, row: int32(row),
				offset: e.offset, size: e.size,
			}
			switch {
			case e.offset == notVerbatim:
				p.offset, p.size = r.offsets[row], r.sizes[row]
				e.parse, e.whole = true, p.offset
			case e.offset == absent || e.size == 0:
				return e
			}
			j.pieces = append(j.pieces, p)
			j.missing[i].Add(1)
			return e
		}
		cols := r.cols
		if s.reader.wanted.image {
			j.images[i] = add(&cols[0], imageField)
			if cols[0].name != nil {
				j.images[i].name = cols[0].name[row]
			}
			cols = cols[1:]
			if r.dims != nil {
				j.images[i].dims = r.dims[row]
			}
			if r.points != nil && j.images[i].size > 0 {
				s.lookUpPoints(j, i, r, row)
			}
		}
		for f := range names {
			j.fields[i*len(names)+f] = add(&cols[f], int32(f))
		}
		j.empty[i] = j.missing[i].Load() == 0
	}
}

// stream is 0, or where shards can only be read forward, a number for each lane of each
// bucket, so that two that share a shard do not make each other start over.
func (s *scheduler) stream(p *Plan, batch int64, slot int) int32 {
	if !s.reader.sequential {
		return 0
	}
	lane := p.laneOf(batch, slot, s.reader.config.Rank)
	return int32(max(0, p.bucket)*p.order.Lanes+lane) + 1
}

// lay joins pieces to reads and gives everything that stays in the batch its place
// in the slab, whose size it returns.
func (s *scheduler) lay(j *job) int64 {
	at := j.lay(j.canvas.bytes * int64(j.seats))
	slices.SortFunc(j.pieces, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.stream, b.stream),
			cmp.Compare(a.offset, b.offset), cmp.Compare(a.slot, b.slot), cmp.Compare(a.field, b.field))
	})
	for i := range j.pieces {
		if !j.pieces[i].part {
			j.pieces[i].span = s.look.spanOf(j, &j.pieces[i])
		}
	}
	if cap(j.reads) < len(j.pieces) { // reads are pointed at: they must not move
		j.reads = make([]read, 0, len(j.pieces)+len(j.pieces)/4)
	}
	j.reads = j.reads[:0]
	for from := 0; from < len(j.pieces); {
		p := &j.pieces[from]
		if p.span != nil {
			at = s.place(j, p, at)
			from++
			continue
		}
		end := p.offset + p.size
		to := from + 1
		for ; to < len(j.pieces); to++ {
			q := &j.pieces[to]
			if q.span != nil || p.part || q.part || q.shard != p.shard || q.stream != p.stream || q.offset-end > maxGap ||
				max(end, q.offset+q.size)-p.offset > maxRead {
				break
			}
			end = max(end, q.offset+q.size)
		}
		j.reads = j.reads[:len(j.reads)+1]
		r := &j.reads[len(j.reads)-1]
		*r = read{job: j, shard: p.shard, stream: p.stream, offset: p.offset, size: end - p.offset, pieces: j.pieces[from:to], at: -1}
		if !slices.ContainsFunc(r.pieces, func(q piece) bool { return !j.stays(&q) || s.extent(j, &q).parse }) {
			at = align(at, fieldAlign)
			r.at = at
			at += r.size
		}
		for i := range r.pieces {
			if q := &r.pieces[i]; r.at >= 0 {
				s.extent(j, q).at = r.at + q.offset - r.offset
			} else {
				at = s.place(j, q, at)
			}
		}
		from = to
	}
	return at
}

// place gives a field that stays a place of its own in the slab, from at on, and returns
// where it ends.
func (s *scheduler) place(j *job, q *piece, at int64) int64 {
	if !j.stays(q) {
		return at
	}
	x := s.extent(j, q)
	x.at = align(at, fieldAlign)
	return x.at + x.size
}

func align(n, to int64) int64 { return (n + to - 1) / to * to }

// sendAll gives the reads memory and sends them on their way. Small ones share a block.
func (s *scheduler) sendAll(j *job) error {
	s.last = sized(s.last, j.n)
	for i := range j.reads {
		for _, q := range j.reads[i].pieces {
			s.last[q.slot] = int32(i)
		}
	}
	if cap(j.leases) < len(j.reads) { // leases are pointed at: they must not move
		j.leases = make([]lease, 0, cap(j.reads))
	}
	s.held = s.held[:0]
	most := min(maxShared, s.pool.size/16)
	for from := 0; from < len(j.reads); {
		r := &j.reads[from]
		if r.at >= 0 {
			r.data = j.slab.data[r.at : r.at+r.size]
			if err := s.send(r); err != nil {
				return err
			}
			from++
			continue
		}
		size, to := r.size, from+1
		for ; to < len(j.reads) && j.reads[to].at < 0; to++ {
			end := align(size, slabAlign) + j.reads[to].size
			if end > most {
				break
			}
			size = end
		}
		if err := s.lend(j, from, to, size); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// lend takes a block of size bytes for some reads of a job and sends them.
func (s *scheduler) lend(j *job, from, to int, size int64) error {
	s.held = slices.DeleteFunc(s.held, func(h heldBlock) bool { return h.until < from })
	own := int64(len(j.slab.data))
	if j.over != nil {
		own += j.over.elsewhere
	}
	for _, h := range s.held {
		own += h.bytes
	}
	var b *block
	for b == nil {
		var err error
		if b, err = s.take(j, size, own, false); err != nil {
			return fmt.Errorf("sample %q: %w", j.key(int(j.reads[from].pieces[0].slot)), err)
		}
	}
	j.leases = j.leases[:len(j.leases)+1]
	l := &j.leases[len(j.leases)-1]
	l.block = b
	users, until, at := 0, 0, int64(0)
	for i := from; i < to; i++ {
		r := &j.reads[i]
		r.lease, r.data = l, b.data[at:at+r.size:at+r.size]
		at = align(at+r.size, slabAlign)
		users += len(r.pieces)
		for _, q := range r.pieces {
			until = max(until, int(s.last[q.slot]))
		}
	}
	l.users.Store(int32(users))
	if until >= to {
		s.held = append(s.held, heldBlock{until, int64(len(b.data))})
	}
	for i := from; i < to; i++ {
		if err := s.send(&j.reads[i]); err != nil {
			return err
		}
	}
	return nil
}

// send sends a read to the fetchers.
func (s *scheduler) send(r *read) error {
	if s.reader.sequential && r.stream != pointsStream {
		key := fileKey{r.shard, r.stream}
		r.before, r.after = s.streams[key], make(chan struct{})
		s.streams[key] = r.after
	}
	s.counters.store.queued.Add(1)
	select {
	case s.reads <- r:
		s.sent++
		return nil
	case <-s.ctx.Done():
		s.counters.store.queued.Add(-1)
		return context.Cause(s.ctx)
	}
}

// take takes memory from the pool for a job. It returns nil where it has given up a span
// for that, and may be called again.
func (s *scheduler) take(j *job, n, own int64, slab bool) (*block, error) {
	if most := max(s.pool.size, maxLent); n > most {
		return nil, fmt.Errorf("takes %d bytes of memory, more than the %d that one may; a smaller batch_size or more memory helps", n, most)
	}
	return s.lent(j, kind{sizeClass(n), slab}, own)
}

// takeOver takes room for n bytes that decoding takes.
func (s *scheduler) takeOver(j *job, n int64) (*block, error) {
	return s.lent(j, kind{class: -n}, int64(len(j.slab.data)))
}

func (s *scheduler) lent(j *job, k kind, own int64) (*block, error) {
	if b, err := s.pool.try(k, own); b != nil || err != nil {
		return b, err
	}
	defer j.passed(stepMemory)
	defer trace.StartRegion(j.ctx, "memory").End()
	return s.pool.wait(j.ctx, k, own, func() bool { return s.asked.Load() >= j.turn && s.look.giveUp() })
}
