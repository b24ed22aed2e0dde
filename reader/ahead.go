package reader

import (
	"slices"
	"sync"

	"shardify/dataset"
	"shardify/imaging/transform"
	"shardify/shard/compress"
)

// Reading ahead: what batches to come need is read with what lies beside it, in spans of
// some 4 MiB where there is so much, and kept until its batch has its turn. A store that
// answers late, or counts requests, is asked once for some forty photographs, and a frame
// of .tar.zst that holds several samples is decompressed once for all of them.
//
// The plan says what to read. The scheduler looks some batches ahead in it: as far as
// ShuffleWindow mixes, or as a span reaches in each lane. A sample that has no span yet
// gets one, together with those beside it that will be needed, too. Whatever is in no
// span when its batch's turn comes is read alone.
//
// Spans take memory that nobody needs at the moment, up to Config.ReadAhead. When the
// consumer waits for a batch that finds no memory, spans are given up, the latest one
// first; what was in them is read alone. So reading ahead takes nothing from the
// promise that the earliest batch can always be finished.

const (
	// spanSize is how long spans are at least, where so much is wanted that lies
	// together. They are less than twice as long.
	spanSize = 4 << 20
	// runSize is how far around a sample those are looked for that lie beside it.
	runSize = 8 * spanSize
	// remoteGap is maxGap for spans of remote stores: what comes in some milliseconds.
	remoteGap = 256 << 10
	// depthSpans is how many spans there are at least of a store that is read in the order
	// of its shards: 200 MB hide 50 ms of a line of 25 Gb/s.
	depthSpans = 48
	// laneSpans is how many there are of each shard that is open: one whose samples are
	// being used, and the next two.
	laneSpans = 3
	// maxLooked bounds the samples that are looked at ahead of their batch.
	maxLooked = 1 << 18
	// maxSpans bounds the spans that wait for a fetcher.
	maxSpans = 256
)

// lookahead is what the scheduler knows of batches to come. It belongs to the scheduling
// goroutine, but for what spans share with fetchers. A nil one looks at nothing.
type lookahead struct {
	*pass
	gap   int64
	limit int64 // of the bytes of spans
	depth int   // samples to look ahead
	// looked are the batches that have been looked at, from the one that is next; next
	// is the place of the first that has not. Of looked, batches before at, and entries of
	// looked[at] before entry, have their spans.
	looked    []lookedAt
	next      int64
	samples   int
	at, entry int
	shards    map[shardOf]*wants
	tables    map[int32]*table // of those shards
	rowBytes  int64            // that both take
	spans     []*span
	live      int64 // bytes of these; pool.ahead has those that are still in use, too
	// refused is behind the last batch that could not be looked at: none is before that has
	// had its turn.
	refused int64
	// entries, group, missing, loaded and free are memory to be used again.
	entries []int64
	group   []lookedAt
	missing []int32
	loaded  map[int32]*rows
	free    [][]spot
	recipe  transform.Recipe
}

// lookedAt is a batch that has been looked at, and where its samples lie.
type lookedAt struct {
	at    int64 // its place
	epoch int
	// plan is that of its bucket, while it is looked at, and of its number there.
	plan  *Plan
	of    int64
	spots []spot
}

// spot is where a copy of a sample lies.
type spot struct {
	shard, row int32
	copies     int64
}

// shardOf is a shard in an epoch. What two epochs need of a shard is read for each of them,
// when it needs it: they need it in other orders, and what both need would be kept for as
// long as the later one needs it.
type shardOf struct {
	epoch int
	shard int32
}

// table is the index of a shard, and how many wants use it.
type table struct {
	*rows
	users int
}

// wants is what the batches of an epoch that were looked at need of a shard.
type wants struct {
	rows *rows
	uses []int32 // of each row
	turn []int32 // the number of its lane's window
	span []*span // in which the row is, or nil
	// alone says that not all of the row need be read, so that no span should have it;
	// nil for none.
	alone []bool
	all   int // the sum of uses
}

// bytes is the memory that wants take, beside the index.
func (w *wants) bytes() int64 { return wantBytes * int64(len(w.uses)) }

const wantBytes = 17 // for each row

// open says that a row is wanted and has no span yet.
func (w *wants) open(row int32) bool {
	return w.uses[row] > 0 && w.span[row] == nil && (w.alone == nil || !w.alone[row])
}

// span is neighbouring samples of a shard that are read together.
type span struct {
	epoch  int
	read   read
	points read // of their seek points, in the same block; its size may be 0
	lease  lease
	bytes  int64 // of its block
	rows   []int32
	left   int // rows that are still wanted; then the scheduler needs the lease no more

	mu      sync.Mutex
	done    bool
	err     error // of read
	refused error // of points
	waiters []waiter
}

// waiter is a piece that waits for its span.
type waiter struct {
	job   *job
	piece *piece
}

// aheadPlan is how a reader reads ahead.
type aheadPlan struct {
	bytes   int64 // 0: not at all
	samples int
	turns   int32 // of how many windows of a lane a span may have samples
	gap     int64
	rows    int64 // bytes of indexes that are held beside the cache of indexes
}

// maxAutoAhead bounds what reading ahead adds to Config.Memory where that is left to the
// reader.
const maxAutoAhead = 2 << 30

// planAhead decides how to read ahead by what the manifest says of the samples, the order
// and the stores.
func (r *Reader) planAhead() (a aheadPlan) {
	c := &r.config
	if r.sequential || c.ReadAhead < 0 {
		return a
	}
	var bytes, all int64
	for i := range r.split.Shards {
		sh := &r.split.Shards[i]
		all += dataset.RawBytes(sh)
		for _, f := range sh.Fields {
			_, found := slices.BinarySearch(r.wanted.names, f.Name)
			if found || r.wanted.image && slices.Contains(imageNames, f.Name) {
				bytes += f.Bytes
			}
		}
	}
	n := max(1, r.split.Samples)
	sample := bytes/n + 1
	framed := r.frames && all/n < compress.FrameSize/2
	remote := r.remote()
	o := c.Order()
	var window int64 // samples of this rank, in which spans are used in any order
	places := o.Lanes / o.World * o.Interleave
	switch o.Shuffle {
	case ShuffleGlobal:
		if framed {
			window = 1 << 16
		}
	case ShuffleWindow:
		window = min(int64(o.Window/o.World*(len(c.Buckets.Edges)+1)), n)
	case ShuffleNone:
		places = 1
	}
	// A span has samples of one window of a lane, or of as many as are about its size: what
	// is used later would keep it for longer.
	a.turns = 1
	if of := window*sample/int64(places) + 1; o.Shuffle == ShuffleWindow {
		a.turns = int32(max(1, (spanSize+of/2)/of))
	}
	switch {
	case c.ReadAhead > 0:
		a.bytes = c.ReadAhead
	case remote && o.Shuffle != ShuffleGlobal, framed:
		switch lanes := int64(o.Lanes / o.World); {
		case o.Shuffle == ShuffleGlobal:
			a.bytes = 2 * window * sample
		case o.Shuffle == ShuffleWindow:
			// All spans of a lane's window stay until it ends: some sample of each is used
			// late. Lanes come to that end in turn, so that only of some the next one's
			// need room, too: of a quarter, and one.
			next := min(lanes, (lanes+7)/4)
			a.bytes = window * sample * (lanes + next) / lanes
			if a.turns > 1 {
				a.bytes += int64(places) * spanSize
			}
		default:
			a.bytes = max(depthSpans, laneSpans*int64(places)) * max(spanSize, sample)
		}
		a.bytes += a.bytes / 8 // by which blocks may be larger
	default:
		return a
	}
	// Two windows, so that a span has all that is wanted of its bytes.
	a.samples = int(min(max(2*window, a.bytes/sample), maxLooked))
	a.gap = maxGap
	if framed {
		a.gap = compress.FrameSize
	}
	if remote {
		a.gap = max(a.gap, remoteGap)
	}
	return a
}

func newLookahead(p *pass) *lookahead {
	r := p.reader
	if r.ahead.bytes == 0 {
		return nil
	}
	return &lookahead{
		pass: p, gap: r.ahead.gap, limit: r.ahead.bytes, depth: r.ahead.samples, next: p.from,
		shards: map[shardOf]*wants{}, tables: map[int32]*table{}, loaded: map[int32]*rows{},
	}
}

// rows are those of a shard that has been looked at; nil of others.
func (a *lookahead) rows(shard int32) *rows {
	if a != nil {
		if t := a.tables[shard]; t != nil {
			return t.rows
		}
	}
	return nil
}

// want begins with what an epoch needs of a shard, of which r is the index.
func (a *lookahead) want(of shardOf, r *rows) *wants {
	t := a.tables[of.shard]
	if t == nil {
		t = &table{rows: r}
		a.tables[of.shard] = t
		a.rowBytes += r.bytes()
	}
	t.users++
	n := len(t.labels)
	w := &wants{rows: t.rows, uses: make([]int32, n), turn: make([]int32, n), span: make([]*span, n)}
	a.shards[of] = w
	a.rowBytes += w.bytes()
	return w
}

// drop ends with a shard of which nothing is needed any more in an epoch.
func (a *lookahead) drop(of shardOf) {
	a.rowBytes -= a.shards[of].bytes()
	delete(a.shards, of)
	t := a.tables[of.shard]
	if t.users--; t.users == 0 {
		a.rowBytes -= t.bytes()
		delete(a.tables, of.shard)
	}
}

// spanOf is the span that has a piece of a job; nil if there is none, or it could not be
// read.
func (a *lookahead) spanOf(j *job, q *piece) *span {
	if a == nil {
		return nil
	}
	w := a.shards[shardOf{j.plan.epoch, q.shard}]
	if w == nil || w.span[q.row] == nil {
		return nil
	}
	s := w.span[q.row]
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.field == pointsField {
		if s.points.size == 0 || s.refused != nil {
			return nil
		}
	} else if s.err != nil {
		return nil
	}
	return s
}

// attach gives a piece its bytes of its span, now or when they have come.
func (a *lookahead) attach(j *job, q *piece) error {
	s := q.span
	q.span = nil
	s.lease.users.Add(1)
	s.mu.Lock()
	if !s.done {
		s.waiters = append(s.waiters, waiter{j, q})
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	return a.provide(j, q, s)
}

// provide gives a piece its bytes of a span that is done. Where that could not be read,
// a piece of it can perhaps: it is tried alone.
func (p *pass) provide(j *job, q *piece, s *span) error {
	if q.field == pointsField {
		return p.deliver(j, q, &s.points, s.refused)
	}
	err := s.err
	if err != nil {
		data := s.read.data[q.offset-s.read.offset:][:q.size]
		if err = p.loadFrom(j.ctx, fileKey{s.read.shard, 0}, data, q.offset); damaged(err) {
			p.counters.rereads.Add(1)
			err = p.loadAgain(s.read.shard, data, q.offset)
		}
	}
	return p.deliver(j, q, &s.read, err)
}

// readSpan reads a span, for a fetcher. Its error is that the pass is over.
func (p *pass) readSpan(s *span) error {
	var points chan error
	if s.points.size > 0 {
		points = make(chan error, 1)
		go func() { points <- p.load(&s.points) }()
	}
	err := p.load(&s.read)
	var refused error
	if points != nil {
		refused = <-points
	}
	s.mu.Lock()
	s.done, s.err, s.refused = true, err, refused
	waiters := s.waiters
	s.waiters = nil
	s.mu.Unlock()
	for _, w := range waiters {
		if err := p.provide(w.job, w.piece, s); err != nil {
			return err
		}
	}
	p.pool.done(&s.lease)
	return nil
}

// settle waits until what the batch at a place needs has its spans, as long as much room
// is to come for them: that of spans which no later batch needs, and which go back when the
// batches before this one have been worked at. Where windows of all lanes end together, as
// at the end of an epoch that is one window, that is most of the memory, and the batch
// would ask for its samples one by one.
func (a *lookahead) settle(place int64) {
	if a == nil || len(a.looked) == 0 || a.looked[0].at != place {
		return
	}
	for a.fill(); a.lacks(&a.looked[0]) && a.pool.ahead.Load()-a.live > a.limit/4; a.fill() {
		select {
		case <-a.pool.wake:
		case <-a.ctx.Done():
			return
		}
	}
}

// lacks says that a sample of a batch has no span yet and should have one.
func (a *lookahead) lacks(b *lookedAt) bool {
	if a.at > 0 {
		return false // all have been looked for, and were given up since
	}
	return slices.ContainsFunc(b.spots[min(a.entry, len(b.spots)):], func(p spot) bool {
		return a.shards[shardOf{b.epoch, p.shard}].open(p.row)
	})
}

// passed says that the batch at a place has all its reads.
func (a *lookahead) passed(place int64) {
	if a == nil {
		return
	}
	a.next = max(a.next, place+1)
	if len(a.looked) == 0 || a.looked[0].at != place {
		return
	}
	b := a.looked[0]
	a.looked = slices.Delete(a.looked, 0, 1)
	if a.at > 0 {
		a.at--
	} else {
		a.entry = 0
	}
	a.samples -= len(b.spots)
	for _, p := range b.spots {
		of := shardOf{b.epoch, p.shard}
		w := a.shards[of]
		if w.uses[p.row]--; w.uses[p.row] == 0 {
			a.forget(w, p.row)
		}
		if w.all--; w.all == 0 {
			a.drop(of)
		}
	}
	a.free = append(a.free, b.spots[:0])
}

// forget takes a row out of its span, and ends the span with its last row.
func (a *lookahead) forget(w *wants, row int32) {
	s := w.span[row]
	if s == nil {
		return
	}
	w.span[row] = nil
	if s.left--; s.left == 0 {
		i := slices.Index(a.spans, s)
		a.spans = slices.Delete(a.spans, i, i+1)
		a.live -= s.bytes
		a.pool.done(&s.lease)
	}
}

// giveUp gives the latest span up; it is false if there is none.
func (a *lookahead) giveUp() bool {
	if a == nil || len(a.spans) == 0 {
		return false
	}
	s := a.spans[len(a.spans)-1]
	w := a.shards[shardOf{s.epoch, s.read.shard}]
	for _, row := range s.rows {
		if w.span[row] == s {
			a.forget(w, row)
		}
	}
	return true
}

// fill looks at batches and sends spans for what they need, as far as there is memory.
// It waits for nothing but indexes.
func (a *lookahead) fill() {
	if a == nil {
		return
	}
	for a.next >= a.refused && a.samples < a.depth && a.next < a.until && a.rowBytes <= a.reader.ahead.rows {
		if to := a.look(); a.next < to {
			// An index that cannot be read is an error when its batch has its turn.
			a.refused = to
		}
	}
	for ; a.at < len(a.looked); a.at, a.entry = a.at+1, 0 {
		for b := &a.looked[a.at]; a.entry < len(b.spots); a.entry++ {
			p := b.spots[a.entry]
			if w := a.shards[shardOf{b.epoch, p.shard}]; w.open(p.row) && !a.send(w, b.epoch, p) {
				return
			}
		}
	}
}

// look notes what the next batches need: one, or as many as lack indexes that can be read
// at once. It returns the place behind them, which a.next is not where that failed.
func (a *lookahead) look() (to int64) {
	a.group, a.missing = a.group[:0], a.missing[:0]
	samples := a.samples
	for to = a.next; to < a.until; {
		b, err := a.locate(to)
		if to++; err != nil {
			return to
		}
		a.group = append(a.group, b)
		samples += len(b.spots)
		if n := len(a.missing); n == 0 || n >= a.reader.indexLoads || samples >= a.depth {
			break
		}
	}
	clear(a.loaded)
	if err := a.loadRows(a.ctx, a.missing, func(shard int32, r *rows) { a.loaded[shard] = r }); err != nil {
		return to
	}
	for _, b := range a.group {
		a.note(b)
	}
	clear(a.group) // of plans
	a.next = to
	return to
}

// locate finds where the samples of the batch at a place lie, and of which shards the index
// is missing for that.
func (a *lookahead) locate(place int64) (b lookedAt, err error) {
	plan, number, err := a.planAt(place)
	if err != nil {
		return b, err
	}
	b = lookedAt{at: place, epoch: plan.epoch}
	if n := len(a.free); n > 0 {
		b.spots, a.free = a.free[n-1], a.free[:n-1]
	}
	b.plan, b.of = plan.of(number)
	a.entries = b.plan.batch(a.entries[:0], b.of, a.reader.config.Rank)
	for _, e := range a.entries {
		n, copies := b.plan.number(e)
		shard, row := b.plan.Locate(n)
		b.spots = append(b.spots, spot{int32(shard), int32(row), copies})
		if a.tables[int32(shard)] == nil && !slices.Contains(a.missing, int32(shard)) {
			a.missing = append(a.missing, int32(shard))
		}
	}
	return b, nil
}

// note counts what a batch needs, of shards whose indexes are there.
func (a *lookahead) note(b lookedAt) {
	canvas := a.reader.canvas(b.plan)
	for i, p := range b.spots {
		w := a.shards[shardOf{b.epoch, p.shard}]
		if w == nil {
			w = a.want(shardOf{b.epoch, p.shard}, a.loaded[p.shard])
		}
		if w.uses[p.row]++; w.uses[p.row] == 1 {
			w.turn[p.row] = b.plan.turn(b.of, i, a.reader.config.Rank)
		}
		w.all++
		if a.reader.partGain > 0 {
			n := b.plan.split[p.shard] + int64(p.row)
			if _, ok := a.crop(&a.recipe, &canvas, b.plan, w.rows, int64(p.row), n, p.copies); ok {
				if w.alone == nil {
					w.alone = make([]bool, len(w.uses))
				}
				w.alone[p.row] = true
			}
		}
	}
	b.plan = nil
	a.looked = append(a.looked, b)
	a.samples += len(b.spots)
}

// send makes the span of a sample of an epoch and sends it on its way. It is false where
// there is no room.
func (a *lookahead) send(w *wants, epoch int, p spot) bool {
	from, to, ok := w.run(p.row, a.gap, a.reader.ahead.turns)
	if !ok {
		return true
	}
	start, _, _ := w.rows.extent(from)
	_, end, _ := w.rows.extent(to)
	size := end - start
	points := a.pointsOf(w, from, to, size)
	if points.size > 0 {
		points.shard, points.stream, points.at = p.shard, pointsStream, align(size, fieldAlign)
		size = points.at + points.size
	}
	class := sizeClass(size)
	if a.pool.ahead.Load()+class > a.limit || len(a.pass.spans) == cap(a.pass.spans) {
		return false
	}
	b, err := a.pool.try(kind{class: class}, 0)
	if b == nil || err != nil {
		return false // also where the system has none: batches report that
	}
	a.pool.ahead.Add(int64(len(b.data)))
	s := &span{epoch: epoch, read: read{shard: p.shard, offset: start, size: end - start, data: b.data[:end-start], at: -1}}
	s.read.lease = &s.lease
	if points.size > 0 {
		s.points = points
		s.points.data, s.points.lease = b.data[points.at:size], &s.lease
		s.points.at = -1
	}
	s.lease.block, s.lease.ahead = b, true
	s.lease.users.Store(2) // this goroutine and a fetcher
	for row := from; row <= to; row++ {
		if w.open(row) && w.turn[row]-w.turn[p.row] < a.reader.ahead.turns {
			if _, _, ok := w.rows.extent(row); ok {
				w.span[row] = s
				s.rows = append(s.rows, row)
			}
		}
	}
	s.left = len(s.rows)
	s.bytes = int64(len(b.data))
	a.spans = append(a.spans, s)
	a.live += s.bytes
	a.counters.store.queued.Add(1)
	a.pass.spans <- s // there is room, and nobody else sends
	return true
}

// run finds the first and the last row of the span for a row. Of the run of wanted rows
// that lie beside each other, it is one of equal parts that are not much shorter than
// spanSize: so what is left of the run is cut in the same way. It is false where a row
// is better read alone. It has rows of so many windows.
func (w *wants) run(row int32, gap int64, turns int32) (from, to int32, ok bool) {
	near := func(i int32) bool { return w.open(i) && w.turn[i]-w.turn[row] < turns }
	start, end, ok := w.rows.extent(row)
	if !ok {
		return 0, 0, false
	}
	from, to = row, row
	first, last := start, end
	for i := row + 1; int(i) < len(w.uses); i++ {
		s, e, ok := w.rows.extent(i)
		if s < 0 {
			continue
		}
		if s < last || s-last > gap || e-start > runSize {
			break
		}
		if ok && near(i) {
			to, last = i, e
		}
	}
	for i := row - 1; i >= 0; i-- {
		s, e, ok := w.rows.extent(i)
		if s < 0 {
			continue
		}
		if e > first || first-e > gap || end-s > runSize {
			break
		}
		if ok && near(i) {
			from, first = i, s
		}
	}
	if parts := (last - first) / spanSize; parts > 1 {
		part := func(at int64) int64 { return (at - first) * parts / (last - first) }
		of := part(start)
		for i := from; i < row; i++ {
			if s, _, _ := w.rows.extent(i); s >= 0 && part(s) == of && near(i) {
				from = i
				break
			} else if i == row-1 {
				from = row
			}
		}
		for i := to; i > row; i-- {
			if s, _, _ := w.rows.extent(i); s >= 0 && part(s) == of && near(i) {
				to = i
				break
			} else if i == row+1 {
				to = row
			}
		}
	}
	return from, to, from < to || end-start >= spanSize/4
}

// extent is where what is wanted of a row begins and ends; -1 where nothing is. It is
// not ok where that is little of what lies between, so that a span should not have it.
func (r *rows) extent(row int32) (start, end int64, ok bool) {
	start = -1
	var wanted int64
	for i := range r.cols {
		offset, size := r.cols[i].offset[row], r.cols[i].size[row]
		switch {
		case offset == notVerbatim:
			return r.offsets[row], r.offsets[row] + r.sizes[row], true
		case offset == absent || size == 0:
			continue
		}
		if start < 0 || offset < start {
			start = offset
		}
		end = max(end, offset+size)
		wanted += size
	}
	return start, end, start >= 0 && end-start <= 2*wanted+maxGap
}
