package reader

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"shardify/dataset"
	"shardify/imaging"
	"shardify/imaging/transform"
	"shardify/index"
	"shardify/sample"
	"shardify/shard"
	"shardify/store/stream"
)

// The filler is the first stage of a pass over a Stream, in place of the scheduler and
// the fetchers: one goroutine that scans the open shards in turn, lets the samples pass
// through the sliding buffer, and fills jobs with what comes out. As the scheduler does,
// it alone takes memory, and it does so before it reads; so the memory in use depends
// on what has been read and not on who is quick, and the order with it.
//
// To go on from a state it does the same over again, but makes no jobs of what comes
// out before the state, and of tars on a disk reads no more than the headers.
type filler struct {
	*pass
	plan   *Plan // order and epoch, no places
	s      *Stream
	list   *shardList
	target int64 // batches; -1: as many as there are

	// from is the first batch to make; state is where it comes from, or nil.
	from  int64
	state *State

	open  []*source // those that are taken in turn
	ahead []*source // those that are opened before they are needed
	later *listed   // what could not be opened yet
	turn  int
	taken int // in a row from open[turn]
	ends  int // of shards

	// in is the sample that is being read.
	in *sampleIn
	// buffer and pending, the batch being filled, hold held by cost; limit bounds it.
	buffer  []*sampleIn
	pending []*sampleIn
	held    int64
	limit   int64
	own     int64 // bytes of the blocks that the filler has

	arrived int64 // samples, of all ranks where all read all
	emitted int64
	number  int64 // of the next batch
	seen    *xxhash.Digest
	ended   bool // all samples have arrived

	chunks chan []byte // buffers for reading ahead

	last   *job // the last one made, held back until it is known whether others follow
	lost   []*SampleError
	free   []*sampleIn
	recipe transform.Recipe // to see how large an image becomes
	past   bool             // the state was that behind the last batch
}

// sampleIn is a sample on its way from its shard to a batch.
type sampleIn struct {
	shard  int32
	number int64
	round  int64
	key    string
	size   int64 // in the shard
	cost   int64
	fields []fieldIn
	blocks []*block
	room   []byte // of the last block, not used yet
	loose  []byte // fields that are in no block
	mine   bool   // of this rank
	direct bool   // it may be skimmed
	err    error
}

// fieldIn is a field of it. Its data is nil while it has only been skimmed.
type fieldIn struct {
	name         string
	offset, size int64
	data         []byte
}

// missing says that the field has only been skimmed.
func (x fieldIn) missing() bool { return x.data == nil && x.size > 0 }

func newFiller(s *Stream, p *pass, epoch int, from *State) *filler {
	c := &s.core.config
	order := c.Order()
	f := &filler{
		pass: p, plan: &Plan{order: order, epoch: epoch}, s: s, target: -1, limit: s.buffer, seen: xxhash.New(), state: from,
		chunks: make(chan []byte, chunks*standby),
		list:   newShardList(order, epoch, c.Rank, len(s.names), c.Sampling.Samples > 0),
	}
	if n, known := s.Len(); known {
		f.target = n
	}
	if from != nil {
		f.from = from.Batch
	}
	return f
}

// fill is the goroutine.
func (f *filler) fill() {
	defer close(f.ready)
	f.counters.memory.add(f.s.ahead())
	defer f.counters.memory.add(-f.s.ahead())
	err := f.run()
	f.release()
	switch {
	case err == errPast:
		f.past = true
	case err != nil && err != errEnough:
		for _, one := range f.lost {
			f.reader.bad.add(one)
		}
		f.sendLast(false)
		f.sendJob(&job{fatal: err})
	default:
		f.sendLast(true)
	}
}

var (
	// errEnough: the epoch has all its batches.
	errEnough = errors.New("the epoch is over")
	// errPast: the state is that behind the epoch's last batch.
	errPast = errors.New("nothing of the epoch is left")
)

func (f *filler) run() error {
	if f.state != nil && f.from == 0 {
		if err := f.found(); err != nil {
			return err
		}
	}
	for {
		in, err := f.arrive()
		if err != nil {
			return err
		}
		if in == nil {
			break
		}
		if len(f.buffer) >= f.window() {
			if err := f.emit(); err != nil {
				return err
			}
		}
		if !f.skimming() {
			if err := f.complete(in); err != nil {
				return err
			}
		}
		f.buffer = append(f.buffer, in)
	}
	f.ended = true
	for len(f.buffer) > 0 {
		if err := f.emit(); err != nil {
			return err
		}
	}
	return f.finish()
}

// window is the number of samples in the sliding buffer.
func (f *filler) window() int {
	if f.plan.order.Shuffle == ShuffleWindow {
		return f.plan.order.Window
	}
	return 1
}

// skimming says that the state has not been reached.
func (f *filler) skimming() bool { return f.number < f.from }

// arrive returns the next sample of this rank, nil at the end.
func (f *filler) arrive() (*sampleIn, error) {
	for {
		f.openAhead()
		if len(f.open) == 0 {
			return nil, nil
		}
		if f.arrived == 0 && f.ends > 2*len(f.s.names)+int(f.s.mostOpen()) { // of shards, again and again
			return nil, f.nothing()
		}
		if f.turn >= len(f.open) {
			f.turn = 0
		}
		if f.taken == f.plan.order.Block {
			f.taken = 0
			f.turn = (f.turn + 1) % len(f.open)
		}
		src := f.open[f.turn]
		in, err := f.scan(src)
		if err != nil {
			return nil, err
		}
		if in == nil {
			f.close(src)
			continue
		}
		f.taken++
		f.arrived++
		if in.mine {
			return in, nil
		}
		f.drop(in)
	}
}

// openAhead fills the places of shards that are open, and opens those that come next.
func (f *filler) openAhead() {
	for len(f.open)+len(f.ahead) < f.plan.order.Interleave+standby {
		next := f.later
		if f.later = nil; next == nil {
			if next = f.list.next(); next == nil {
				break
			}
		}
		if f.busy(next.shard) {
			f.later = next
			break
		}
		f.ahead = append(f.ahead, f.openSource(next))
	}
	for len(f.open) < f.plan.order.Interleave && len(f.ahead) > 0 {
		f.open, f.ahead = append(f.open, f.ahead[0]), f.ahead[1:]
	}
}

// busy says that a shard is open, of an earlier round. To read it twice at a time would
// mix it with itself, and of a pipe give each reader a part.
func (f *filler) busy(shard int32) bool {
	is := func(src *source) bool { return src.shard == shard }
	return f.list.round > 0 && (slices.ContainsFunc(f.open, is) || slices.ContainsFunc(f.ahead, is))
}

// close ends a shard; the next takes its place.
func (f *filler) close(src *source) {
	src.close()
	f.ends++
	f.taken = 0
	if len(f.ahead) > 0 {
		f.open[f.turn], f.ahead = f.ahead[0], f.ahead[1:]
		return
	}
	f.open = slices.Delete(f.open, f.turn, f.turn+1)
}

// scan reads the next sample of a shard; nil at its end.
func (f *filler) scan(src *source) (*sampleIn, error) {
	f.in = f.newSample(src)
	err := error(nil)
	if src.next == nil {
		err = src.begin()
	}
	if err == nil {
		located, e, ok := src.next()
		if err = e; ok && err == nil {
			src.row++
			return f.accept(located)
		}
	}
	in := f.in
	f.in = nil
	f.drop(in)
	if err == nil {
		return nil, nil
	}
	if f.ctx.Err() != nil {
		return nil, context.Cause(f.ctx)
	}
	if !isDamage(err) {
		return nil, f.shardError(src, err)
	}
	return nil, f.damaged(src, err)
}

// shardError names the shard where err does not.
func (f *filler) shardError(src *source, err error) error {
	title := f.s.titles[src.shard]
	if strings.Contains(err.Error(), title) {
		return err
	}
	return fmt.Errorf("shard %s: %w", title, err)
}

// damaged is the end of a shard that is damaged.
func (f *filler) damaged(src *source, err error) error {
	one := &SampleError{
		Shard: f.s.titles[src.shard], Sample: int64(src.shard)<<32 | src.row, Offset: -1,
		Err: err,
	}
	if src.row > 0 {
		one.Err = fmt.Errorf("%w; the %d samples before it are read", err, src.row)
	}
	var format *shard.FormatError
	var unsupported *shard.UnsupportedError
	switch {
	case errors.As(err, &format):
		one.Offset = format.Offset
	case errors.As(err, &unsupported):
		one.Offset = unsupported.Offset
	}
	if f.skimming() {
		return nil // it was met before the state
	}
	if f.reader.config.OnBad == OnBadFail {
		f.reader.bad.add(one)
		return one
	}
	f.lost = append(f.lost, one)
	return nil
}

// newSample begins a sample.
func (f *filler) newSample(src *source) *sampleIn {
	var in *sampleIn
	if n := len(f.free); n > 0 {
		in, f.free = f.free[n-1], f.free[:n-1]
	} else {
		in = new(sampleIn)
	}
	in.shard, in.round, in.number = src.shard, src.round, int64(src.shard)<<32|src.row
	in.direct = src.direct != nil
	in.mine = f.list.dealt() || f.arrived%int64(f.plan.order.World) == int64(f.reader.config.Rank)
	return in
}

// room gives memory to what Load is about to read of the sample in.
func (f *filler) room(field string, old []byte, n int64) ([]byte, error) {
	in := f.in
	if len(old) == 0 {
		in.size += n
	} else {
		in.size += n - int64(len(old))
	}
	switch {
	case field != "" && (!in.mine || in.direct && f.skimming() || !f.loads(field, n)):
		return nil, nil
	case in.mine:
		if err := f.makeRoom(cost(in.size)); err != nil {
			return nil, err
		}
	}
	return f.memory(in, old, n)
}

// loads says whether a field must be read.
func (f *filler) loads(field string, size int64) bool {
	switch {
	case f.reader.config.allFields(), field == "cls":
		return true
	case field == "json" && size <= 1<<20: // it may say the label
		return true
	}
	if _, found := slices.BinarySearch(f.reader.wanted.names, field); found {
		return true
	}
	return f.reader.wanted.image && sample.Image([]string{field}, func(s string) string { return s }) == 0
}

// makeRoom lets samples go until one of that cost may come in.
func (f *filler) makeRoom(cost int64) error {
	for f.held+cost > f.limit && len(f.buffer) > 0 {
		if err := f.emit(); err != nil {
			return err
		}
	}
	return nil
}

// memory takes memory for n bytes of a sample, old among them.
func (f *filler) memory(in *sampleIn, old []byte, n int64) ([]byte, error) {
	if n > int64(len(in.room)) || len(old) > 0 {
		b, err := f.get(n, false)
		if err != nil {
			return nil, fmt.Errorf("sample %d of shard %s: %w", in.number&(1<<32-1), f.s.titles[in.shard], err)
		}
		if len(old) > 0 {
			copy(b.data, old)
			last := len(in.blocks) - 1
			f.put(in.blocks[last])
			in.blocks[last] = b
		} else {
			in.blocks = append(in.blocks, b)
		}
		in.room = b.data
	}
	data := in.room[:n:n]
	in.room = in.room[n:]
	return data, nil
}

// get takes a block from the pool. Where it must wait for one, the consumer must not
// wait for the job that is held back.
func (f *filler) get(n int64, slab bool) (*block, error) {
	if f.last != nil && f.pool.full(n) {
		f.sendLast(false)
	}
	if most := max(f.pool.size, maxLent); n > most {
		return nil, fmt.Errorf("takes %d bytes of memory, more than the %d that one may; a smaller batch_size or more memory helps", n, most)
	}
	k := kind{sizeClass(n), slab}
	b, err := f.pool.try(k, f.own)
	if b == nil && err == nil {
		b, err = f.pool.wait(f.ctx, k, f.own, nil)
	}
	if err != nil {
		return nil, err
	}
	f.own += int64(len(b.data))
	return b, nil
}

// put gives one back.
func (f *filler) put(b *block) {
	f.own -= int64(len(b.data))
	f.pool.put(b)
}

// drop gives back what a sample holds, but for its picture's block where a worker has
// it.
func (f *filler) drop(in *sampleIn) {
	for _, b := range in.blocks {
		f.put(b)
	}
	clear(in.blocks)
	clear(in.fields)
	*in = sampleIn{fields: in.fields[:0], blocks: in.blocks[:0], loose: in.loose[:0]}
	f.free = append(f.free, in)
}

// accept makes a sample of what was read.
func (f *filler) accept(l *shard.Located) (*sampleIn, error) {
	in := f.in
	f.in = nil
	in.key, in.size, in.cost = l.Key, l.Size, cost(l.Size)
	if !in.mine {
		return in, nil
	}
	if err := f.makeRoom(in.cost); err != nil {
		return nil, err
	}
	f.held += in.cost
	for i := range l.Sample.Fields {
		from, at := &l.Sample.Fields[i], &l.Placement.Fields[i]
		if i > 0 && from.Name == l.Sample.Fields[i-1].Name {
			in.err = fmt.Errorf("it has the field %q twice", sample.Shorten(from.Name))
			continue
		}
		if !f.loads(from.Name, at.Size) {
			continue
		}
		field := fieldIn{name: from.Name, offset: at.Offset, size: at.Size, data: from.Data}
		if at.Offset < 0 { // it is in no memory of ours
			n := len(in.loose)
			in.loose = append(in.loose, from.Data...)
			field.data = in.loose[n:len(in.loose):len(in.loose)]
		}
		in.fields = append(in.fields, field)
	}
	if err := dataset.CheckKey(in.key); err != nil && in.err == nil {
		in.err = err
	}
	return in, nil
}

// complete reads the fields of a sample that was skimmed.
func (f *filler) complete(in *sampleIn) error {
	if !slices.ContainsFunc(in.fields, fieldIn.missing) {
		return nil
	}
	body, err := f.s.opener.Open(f.ctx, f.s.names[in.shard])
	if err != nil {
		return err
	}
	defer body.Close()
	file, ok := body.(*stream.File)
	if !ok {
		return fmt.Errorf("shard %s: %w: it was a file", f.s.titles[in.shard], stream.ErrChanged)
	}
	for i := range in.fields {
		x := &in.fields[i]
		if !x.missing() {
			continue
		}
		if x.data, err = f.memory(in, nil, x.size); err != nil {
			return err
		}
		n, err := file.ReadAt(x.data, x.offset)
		if f.counters.store.bytes.Add(int64(n)); n < len(x.data) {
			if err == io.EOF {
				err = stream.ErrChanged
			}
			return fmt.Errorf("shard %s: %d bytes at %d: %w", f.s.titles[in.shard], x.size, x.offset, err)
		}
	}
	return nil
}

// emit takes a sample out of the buffer and into the batch.
func (f *filler) emit() error {
	for len(f.pending) == f.size(f.number) { // which may be 0
		if err := f.flush(); err != nil {
			return err
		}
	}
	n := len(f.buffer)
	i := slide(f.plan.order, f.plan.epoch, f.reader.config.Rank, f.emitted, n)
	f.pending = append(f.pending, f.buffer[i])
	f.buffer[i], f.buffer[n-1] = f.buffer[n-1], nil
	f.buffer = f.buffer[:n-1]
	f.emitted++
	return nil
}

// size is the number of samples in a batch, if there are enough.
func (f *filler) size(number int64) int {
	o := &f.plan.order
	if number == f.target-1 && o.Ends == EndsExact {
		rest := f.reader.config.Sampling.Samples - number*o.globalBatch()
		return int((rest + int64(o.World-1-f.reader.config.Rank)) / int64(o.World))
	}
	return o.BatchSize
}

// finish makes the last batches, when no sample comes any more.
func (f *filler) finish() error {
	o := &f.plan.order
	total := f.number
	switch {
	case f.target >= 0:
		panic("reader: an endless stream has ended")
	case !f.list.dealt() && o.Ends == EndsDrop:
		total = f.arrived / o.globalBatch()
	case !f.list.dealt():
		total = (f.arrived + o.globalBatch() - 1) / o.globalBatch()
	case len(f.pending) == o.BatchSize || len(f.pending) > 0 && o.Ends == EndsExact:
		total++
	}
	for f.number < total {
		if err := f.flush(); err != nil {
			return err
		}
	}
	switch {
	case f.from > 0 && f.from == f.number:
		return errPast
	case f.from > f.number:
		return fmt.Errorf("%w: it stands before batch %d of epoch %d, which has %d: are these the same shards?", ErrState, f.from, f.plan.epoch, f.number)
	case f.number == 0 && f.emitted > 0:
		return fmt.Errorf("%w: the shards of rank %d have %d samples, less than a batch of %d: lower batch_size, or set ends to %q", ErrConfig, f.reader.config.Rank, f.emitted, o.BatchSize, EndsExact)
	case f.arrived == 0:
		return f.nothing()
	}
	return nil
}

// nothing is the error for shards that are all empty.
func (f *filler) nothing() error {
	return fmt.Errorf("shard %s: there are no samples, also not in the other shards of rank %d", f.s.titles[0], f.reader.config.Rank)
}

// flush makes a job of the batch, or leaves it out where it comes before the state.
func (f *filler) flush() error {
	for _, in := range f.pending {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(in.number))
		_, _ = f.seen.Write(b[:]) // it never fails
		_, _ = f.seen.WriteString(in.key)
		binary.LittleEndian.PutUint64(b[:], uint64(in.size))
		_, _ = f.seen.Write(b[:])
	}
	f.sendLast(false) // this one comes after it
	if f.skimming() {
		f.clear()
		if f.number++; f.number == f.from {
			return f.found()
		}
		return nil
	}
	j, err := f.job()
	if err != nil {
		return fmt.Errorf("batch %d of epoch %d: %w", f.number, f.plan.epoch, err)
	}
	f.clear()
	f.number++
	j.place = &StreamState{Seen: index.NewChecksum(f.seen.Sum64()), Rank: f.reader.config.Rank}
	f.last = j
	f.own += int64(len(j.slab.data))
	for i := range j.slots {
		if err := f.hand(task{j, i}); err != nil {
			return err
		}
	}
	j.finish()
	if f.number == f.target {
		return errEnough
	}
	return nil
}

// clear empties the batch.
func (f *filler) clear() {
	for i, in := range f.pending {
		f.held -= in.cost
		f.drop(in)
		f.pending[i] = nil
	}
	f.pending = f.pending[:0]
}

// found ends skimming: what came before the state must be what came before it then.
func (f *filler) found() error {
	if at := f.state.Stream; at != nil && at.Seen != "" && at.Rank == f.reader.config.Rank {
		if seen := index.NewChecksum(f.seen.Sum64()); seen != at.Seen && f.from > 0 {
			return fmt.Errorf("%w: the %d batches before it have other samples now (%s, the state has %s): the shards have changed, or a pipe gives other bytes", ErrState, f.from, seen, at.Seen)
		}
	}
	for _, in := range f.buffer {
		if err := f.complete(in); err != nil {
			return err
		}
	}
	return nil
}

// job makes a job of the batch, with memory of its own for all but the images.
func (f *filler) job() (*job, error) {
	j := f.newJob()
	n := len(f.pending)
	names := f.names()
	j.plan = f.plan
	j.samples, j.copies = sized(j.samples, n), sized(j.copies, n)
	j.reset(f.number, f.number, n, names, f.reader.wanted.image)
	j.begin(f.ctx)
	if cap(j.leases) < n { // leases are pointed at: they must not move
		j.leases = make([]lease, 0, n)
	}
	j.leases = j.leases[:n]
	j.canvas = f.reader.canvas(f.plan)
	at := j.canvas.bytes * int64(f.plan.order.BatchSize)
	for i, in := range f.pending {
		j.samples[i], j.copies[i], j.shards[i] = in.number, in.round, in.shard
		j.keys = append(j.keys, in.key...)
		j.keyEnds[i] = int32(len(j.keys))
		j.labels[i] = in.label()
		j.leases[i].block = nil
		for k, name := range names {
			x := &j.fields[i*len(names)+k]
			*x = extent{offset: absent}
			if field := in.field(name); field != nil {
				at = align(at, fieldAlign)
				*x = extent{offset: max(field.offset, notVerbatim), size: field.size, at: at}
				at += field.size
			}
		}
		if in.err != nil {
			j.fail(i, j.sampleError(i, "", -1, in.err))
		}
	}
	f.measure(j)
	slab, err := f.get(j.seal(j.lay(at)), true)
	if err != nil {
		return nil, err
	}
	f.own -= int64(len(slab.data)) // it is the job's
	j.slab = slab
	for i, in := range f.pending {
		for k, name := range names {
			if x := &j.fields[i*len(names)+k]; x.offset != absent {
				copy(slab.data[x.at:x.at+x.size], in.field(name).data)
			}
		}
		if f.reader.wanted.image {
			j.images[i] = f.image(in, &j.leases[i])
		}
	}
	return j, nil
}

// measure works out how large the images of a job become, where they differ, by their
// headers.
func (f *filler) measure(j *job) {
	if !j.canvas.varies {
		return
	}
	for i, in := range f.pending {
		var d dims
		if at := in.picture(); at >= 0 {
			// One that cannot be told is a damaged sample when it is decoded.
			if info, err := imaging.Probe(in.fields[at].data); err == nil {
				d = dims{int32(info.Width), int32(info.Height)}
			}
		}
		f.sizeSlot(&f.recipe, j, i, d)
	}
}

// names are the fields that the batch carries.
func (f *filler) names() []string {
	if !f.reader.config.allFields() {
		return f.reader.wanted.names
	}
	var names []string
	for _, in := range f.pending {
		for i := range in.fields {
			if at, found := slices.BinarySearch(names, in.fields[i].name); !found {
				names = slices.Insert(names, at, in.fields[i].name)
			}
		}
	}
	return names
}

// picture is the number of the field that is the sample's image, -1 if there is none.
func (in *sampleIn) picture() int {
	if in.err != nil {
		return -1
	}
	return sample.Image(in.fields, func(x fieldIn) string { return x.name })
}

// image hands a sample's picture to a job, with the block that it is in.
func (f *filler) image(in *sampleIn, l *lease) extent {
	at := in.picture()
	if at < 0 {
		return extent{offset: absent}
	}
	field := &in.fields[at]
	x := extent{offset: max(field.offset, notVerbatim), size: field.size, data: field.data}
	for k, name := range imageNames {
		if name == field.name {
			x.name = uint8(k)
		}
	}
	for i, b := range in.blocks {
		if within(b.data, field.data) {
			l.block, x.lease = b, l
			l.users.Store(1)
			f.own -= int64(len(b.data))
			in.blocks = slices.Delete(in.blocks, i, i+1)
			return x
		}
	}
	x.data = bytes.Clone(field.data) // of a sample that is in no block
	return x
}

// within says that part lies in b, and is not empty.
func within(b, part []byte) bool {
	if len(part) == 0 || len(b) == 0 {
		return false
	}
	return addressOf(part) >= addressOf(b) && addressOf(part) < addressOf(b)+uintptr(len(b))
}

// field returns a field by its name; nil if there is none.
func (in *sampleIn) field(name string) *fieldIn {
	at, found := slices.BinarySearchFunc(in.fields, name, func(x fieldIn, name string) int { return cmp.Compare(x.name, name) })
	if !found {
		return nil
	}
	return &in.fields[at]
}

// label is the label by the rule of `shardify index`, where it is a number.
func (in *sampleIn) label() int64 {
	var room [2]sample.Field
	s := sample.Sample{Fields: room[:0]}
	for _, name := range [...]string{"cls", "json"} {
		if x := in.field(name); x != nil {
			s.Fields = append(s.Fields, sample.Field{Name: name, Data: x.data})
		}
	}
	n, _ := dataset.Label(&s, "")
	return n
}

// sendLast sends the job that was held back; ends says that it is the epoch's last.
func (f *filler) sendLast(ends bool) {
	j := f.last
	if j == nil {
		return
	}
	f.last = nil
	f.own -= int64(len(j.slab.data))
	j.lost, f.lost = f.lost, nil
	j.ends = ends
	f.sendJob(j)
}

func (f *filler) sendJob(j *job) {
	select {
	case f.ready <- j:
	case <-f.ctx.Done():
	}
}

// release gives back all that the filler has.
func (f *filler) release() {
	for _, src := range append(f.open, f.ahead...) {
		src.close()
	}
	f.open, f.ahead = nil, nil
	if f.in != nil {
		f.drop(f.in)
		f.in = nil
	}
	f.clear()
	for _, in := range f.buffer {
		f.drop(in)
	}
	f.buffer = nil
}
