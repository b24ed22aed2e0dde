package reader

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"slices"
	"sort"
)

// Plan is the order of an epoch in sample numbers: a pure function of the number
// of samples in each shard, an [Order] and the epoch's number. A sample's number
// counts the samples of all shards of the split, in the manifest's order, from 0.
//
// The epoch is one sequence of places, from 0. Place g belongs to lane
// g mod Lanes, where it is position g div Lanes, so lanes are equal ±1 sample.
// Under ShuffleShards and ShuffleWindow a lane is a contiguous part of the
// permuted shards, with the shard on a cut shared by two lanes; its shards are
// mixed in groups of Interleave, a block of each in turn (what is left of each,
// less than a block, ends the group), and the lane's windows are permuted. Windows of
// lanes do not end together, but in turn, so that what they need is read evenly: lane l's
// first one is shorter, by the (l div Lanes)-th part of it, where it has several. Under
// ShuffleNone and ShuffleGlobal places are sample numbers, and permuted sample
// numbers.
//
// Global batch b has the places from b·G on, G = BatchSize·World, and rank r those
// of them that are congruent to r modulo World, which are those of the lanes
// congruent to r: the samples of a global batch of G are the same for every World.
//
// Under Config.Sampling, Reader.Plan gives a plan of the samples that an epoch draws:
// places are dealt and permuted as if these, in the order of their numbers, were all
// that the shards have. Under Config.Buckets every bucket has places of its own, and of
// the window the share that it has of the samples.
//
// Any place is found in O(log shards) steps without looking at those before it.
// A Plan needs memory for its shards and lanes, not for samples. (What Config.Sampling
// and Config.Buckets choose is the Reader's, which all its plans share.) It is
// immutable and safe for concurrent use.
type Plan struct {
	order   Order
	epoch   int
	samples int64
	laneLen int64 // of the shorter lanes; the first longer ones have one more
	longer  int64
	starts  []int64 // the first entry of each shard; ends with samples
	split   []int64 // the first sample of each shard
	// members says which samples the entries are; nil: each sample once.
	members *members

	// bucket is the number of the bucket that this is the plan of, or noBucket.
	// buckets are the plans of all; such a plan has no places itself. turns has the
	// order of their batches.
	bucket  int
	buckets []*Plan
	turns   turns

	global permutation // ShuffleGlobal

	// ShuffleShards and ShuffleWindow: the parts of shards, in the order of lanes
	// and groups; groups of lane l are groups[lanes[l]:lanes[l+1]].
	parts     []part
	groups    []group
	lanes     []int32
	block     int64
	window    int64 // of a lane; 1 is unpermuted
	windowKey uint64
}

// An entry is a number of the list of all samples that the epoch has, in the order of
// shards and rows; without members it is the sample's number.

// part is a run of entries of one shard: n from entry first on, which make so
// many whole blocks.
type part struct{ first, n, blocks int64 }

// group is some parts that are mixed in blocks, those with most blocks first, so
// that the parts that still have blocks are always the first ones.
type group struct {
	start int64 // position in the lane
	parts []part
	// whole is how many samples come before what is left of each part.
	whole int64
}

// NewPlan plans an epoch of shards with counts samples each.
func NewPlan(counts []int64, order Order, epoch int) (*Plan, error) {
	if len(counts) > math.MaxInt32/2 {
		return nil, errors.New("more than a billion shards")
	}
	starts := make([]int64, len(counts)+1)
	for i, n := range counts {
		if n < 0 || n > maxSamples-starts[i] {
			return nil, fmt.Errorf("shard %d has %d samples, after %d in those before", i, n, starts[i])
		}
		starts[i+1] = starts[i] + n
	}
	return newPlan(starts, order, epoch, noBucket, starts[len(counts)])
}

// newPlan plans an epoch of shards that start at these entries, or a bucket's part of it;
// all buckets have together so many samples.
func newPlan(starts []int64, order Order, epoch, bucket int, all int64) (*Plan, error) {
	if err := order.Validate(); err != nil {
		return nil, err
	}
	if epoch < 0 {
		return nil, fmt.Errorf("epoch %d is negative", epoch)
	}
	p := &Plan{order: order.withDefaults(), epoch: epoch, starts: starts, split: starts, bucket: bucket}
	p.samples = starts[len(starts)-1]
	p.laneLen, p.longer = p.samples/int64(p.order.Lanes), p.samples%int64(p.order.Lanes)
	switch o := &p.order; o.Shuffle {
	case ShuffleGlobal:
		p.global = newPermutation(p.samples, epochKey(o.Seed, epoch, purposeGlobal, bucket))
	case ShuffleShards, ShuffleWindow:
		p.block, p.window = int64(o.Block), 1
		if o.Shuffle == ShuffleWindow {
			window := int64(o.Window) / int64(o.Lanes)
			if p.samples < all {
				// A bucket's windows reach as far in the data set as all have together.
				hi, lo := bits.Mul64(uint64(window), uint64(p.samples))
				share, _ := bits.Div64(hi, lo, uint64(all))
				window = int64(share)
			}
			p.window = max(1, window)
			p.windowKey = epochKey(o.Seed, epoch, purposeWindow, bucket)
		}
		p.cut()
	}
	return p, nil
}

// maxSamples keeps places within int64 when a last batch reaches beyond the end.
const maxSamples = 1 << 60

// cut permutes the shards and cuts them into lanes and groups.
func (p *Plan) cut() {
	shards := int64(len(p.starts) - 1)
	// All buckets go through the shards in the same order.
	perm := newPermutation(shards, epochKey(p.order.Seed, p.epoch, purposeShards, noBucket))
	lanes := p.order.Lanes
	// No append below moves parts, of which groups hold slices.
	p.parts = make([]part, 0, int(shards)+lanes)
	p.lanes = make([]int32, 1, lanes+1)
	next := int64(0) // the next shard in permuted order
	var rest part    // what is left of the shard before it
	for l := range lanes {
		from := len(p.parts)
		for want := p.laneSize(l); want > 0; {
			if rest.n == 0 {
				s := perm.at(next)
				next++
				rest = part{first: p.starts[s], n: p.starts[s+1] - p.starts[s]}
				continue
			}
			n := min(want, rest.n)
			p.parts = append(p.parts, part{first: rest.first, n: n, blocks: n / p.block})
			rest.first += n
			rest.n -= n
			want -= n
		}
		p.group(p.parts[from:])
		p.lanes = append(p.lanes, int32(len(p.groups)))
	}
}

// group divides the parts of a lane evenly into groups of at most Interleave.
func (p *Plan) group(parts []part) {
	k := p.order.Interleave
	start := int64(0)
	for left := (len(parts) + k - 1) / k; left > 0; left-- {
		n := (len(parts) + left - 1) / left
		g := group{start: start, parts: parts[:n]}
		slices.SortStableFunc(g.parts, func(a, b part) int { return cmp.Compare(b.blocks, a.blocks) })
		for _, part := range g.parts {
			start += part.n
			g.whole += part.blocks * p.block
		}
		p.groups = append(p.groups, g)
		parts = parts[n:]
	}
}

// Order returns the plan's order with its defaults filled in.
func (p *Plan) Order() Order { return p.order }

// Samples is the number of samples of the epoch, before Ends drops or pads some.
func (p *Plan) Samples() int64 { return p.samples }

// GlobalBatchSize is BatchSize × World.
func (p *Plan) GlobalBatchSize() int64 { return int64(p.order.BatchSize) * int64(p.order.World) }

// Batches is the number of batches in the epoch, the same for every rank.
func (p *Plan) Batches() int64 {
	if p.buckets != nil {
		return p.turns.batches
	}
	g := p.GlobalBatchSize()
	if p.order.Ends == EndsDrop {
		return p.samples / g
	}
	return (p.samples + g - 1) / g
}

// laneSize is the number of entries of a lane.
func (p *Plan) laneSize(lane int) int64 {
	if int64(lane) < p.longer {
		return p.laneLen + 1
	}
	return p.laneLen
}

// laneCursor finds positions of a lane, faster where they come in order.
type laneCursor struct {
	plan   *Plan
	number int
	groups []group
	n      int64
	// The window from first to last, and the group from start to end.
	first, last int64
	perm        permutation
	group       *group
	start, end  int64
}

// lane is for ShuffleShards and ShuffleWindow.
func (p *Plan) lane(lane int) laneCursor {
	return laneCursor{plan: p, number: lane, groups: p.groups[p.lanes[lane]:p.lanes[lane+1]], n: p.laneSize(lane)}
}

// shift is by how much a lane's first window is shorter.
func (p *Plan) shift(lane int) int64 {
	if p.window >= p.laneSize(lane) {
		return 0
	}
	return p.window * int64(lane) / int64(p.order.Lanes)
}

// turn is the number of the window, of its lane, in which a slot of a rank's batch lies,
// of a plan without buckets; 0 where there are none.
func (p *Plan) turn(b int64, slot, rank int) int32 {
	if p.window <= 1 {
		return 0
	}
	g := (b*p.GlobalBatchSize() + int64(slot)*int64(p.order.World) + int64(rank)) % p.samples
	lanes := int64(p.order.Lanes)
	return int32((g/lanes + p.shift(int(g%lanes))) / p.window)
}

func (c *laneCursor) at(pos int64) int64 {
	if size := c.plan.window; size > 1 {
		if pos < c.first || pos >= c.last {
			shift := c.plan.shift(c.number)
			w := (pos + shift) / size
			c.first = max(0, w*size-shift)
			c.last = min((w+1)*size-shift, c.n)
			c.perm = newPermutation(c.last-c.first, mix64(c.plan.windowKey^mix64(uint64(w)*golden+uint64(c.number))))
		}
		pos = c.first + c.perm.at(pos-c.first)
	}
	if pos < c.start || pos >= c.end {
		i := sort.Search(len(c.groups), func(i int) bool { return c.groups[i].start > pos }) - 1
		c.group, c.start, c.end = &c.groups[i], c.groups[i].start, c.n
		if i+1 < len(c.groups) {
			c.end = c.groups[i+1].start
		}
	}
	return c.group.at(pos-c.start, c.plan.block)
}

// at returns the number of the sample at a position of the group.
func (g *group) at(pos, block int64) int64 {
	if len(g.parts) == 1 {
		return g.parts[0].first + pos
	}
	if pos >= g.whole {
		pos -= g.whole
		for i := range g.parts {
			part := &g.parts[i]
			left := part.n - part.blocks*block
			if pos < left {
				return part.first + part.n - left + pos
			}
			pos -= left
		}
		panic("reader: a place beyond its group")
	}
	// Stages of equally many active parts: in the first all have blocks, in the
	// next those that have more blocks than the last part, …
	done := int64(0) // blocks taken from each of the active parts
	for active := len(g.parts); ; active-- {
		blocks := g.parts[active-1].blocks - done
		if n := blocks * int64(active) * block; pos >= n {
			pos -= n
			done += blocks
			continue
		}
		b := pos / block
		turn := b / int64(active)
		part := &g.parts[b-turn*int64(active)]
		return part.first + (done+turn)*block + (pos - b*block)
	}
}

// at returns the entry at place g.
func (p *Plan) at(g int64) int64 {
	switch p.order.Shuffle {
	case ShuffleNone:
		return g
	case ShuffleGlobal:
		return p.global.at(g)
	}
	c := int64(p.order.Lanes)
	pos := g / c
	lane := p.lane(int(g - pos*c))
	return lane.at(pos)
}

// Batch appends to dst the sample numbers of batch b of a rank.
func (p *Plan) Batch(dst []int64, b int64, rank int) []int64 {
	from := len(dst)
	p, b = p.of(b)
	dst = p.batch(dst, b, rank)
	if p.members != nil {
		for i, e := range dst[from:] {
			dst[from+i], _ = p.number(e)
		}
	}
	return dst
}

// batch is Batch for entries, of a plan without buckets.
func (p *Plan) batch(dst []int64, b int64, rank int) []int64 {
	w := int64(p.order.World)
	g := b*p.GlobalBatchSize() + int64(rank)
	n := int64(p.order.BatchSize)
	whole := min(n, (p.samples-g+w-1)/w) // before the epoch's end
	if p.samples <= g {
		whole = 0
	}
	dst = p.places(dst, g, whole)
	if p.order.Ends == EndsPad && p.samples > 0 {
		for i := whole; i < n; i++ {
			dst = append(dst, p.at((g+i*w)%p.samples))
		}
	}
	return dst
}

// places appends the entries at places g, g+World, … to dst, n of them.
func (p *Plan) places(dst []int64, g, n int64) []int64 {
	w := int64(p.order.World)
	if p.groups == nil {
		for i := range n {
			dst = append(dst, p.at(g+i*w))
		}
		return dst
	}
	// Lane by lane, each for as far as it goes.
	from := len(dst)
	dst = slices.Grow(dst, int(n))[:from+int(n)]
	lanes := int64(p.order.Lanes)
	turn := lanes / w // every so many of this rank's places are in one lane
	for first := range min(turn, n) {
		pos := (g + first*w) / lanes
		lane := p.lane(int(g + first*w - pos*lanes))
		for i := first; i < n; i += turn {
			dst[from+int(i)] = lane.at(pos)
			pos++
		}
	}
	return dst
}

// Worker yields the numbers of the batches, from batch from on, that fall to worker 0 ≤
// worker < workers, where several workers take a rank's batches in turn: from+worker and
// every workers-th after it. What the workers give in turn is then the rank's own order,
// however many they are; that is how PyTorch's DataLoader joins what its worker processes
// yield. With from a State's Batch, they go on from there.
func (p *Plan) Worker(from int64, worker, workers int) (iter.Seq[int64], error) {
	if from < 0 || worker < 0 || worker >= workers {
		return nil, fmt.Errorf("worker %d of %d from batch %d on: workers are numbered from 0, and so are batches", worker, workers, from)
	}
	return func(yield func(int64) bool) {
		for b := from + int64(worker); b < p.Batches() && yield(b); b += int64(workers) {
		}
	}, nil
}

// laneOf is the lane of a place in a batch of a rank, of a plan without buckets.
func (p *Plan) laneOf(b int64, slot, rank int) int {
	g := b*p.GlobalBatchSize() + int64(slot)*int64(p.order.World) + int64(rank)
	return int(g % p.samples % int64(p.order.Lanes))
}

// GlobalBatch appends to dst the sample numbers of batch b of all ranks, in the
// order of places.
func (p *Plan) GlobalBatch(dst []int64, b int64) []int64 {
	sub, b := p.of(b)
	all := *sub
	all.order.BatchSize *= p.order.World
	all.order.World = 1
	return all.Batch(dst, b, 0)
}

// number returns the sample that an entry is, and how many entries before it are the
// same one.
func (p *Plan) number(entry int64) (n, copies int64) {
	if p.members == nil {
		return entry, 0
	}
	shard := find(p.starts, entry)
	row := p.members.rows[entry]
	if of := p.members.rows[p.starts[shard]:entry]; len(of) > 0 && of[len(of)-1] == row {
		first, _ := slices.BinarySearch(of, row)
		copies = int64(len(of) - first)
	}
	return p.split[shard] + int64(row), copies
}

// Locate returns the shard in which sample n lies, and its row there.
func (p *Plan) Locate(n int64) (shard int, row int64) {
	shard = find(p.split, n)
	return shard, n - p.split[shard]
}

// find returns the shard that has n, by the shards' starts.
func find(starts []int64, n int64) int {
	return sort.Search(len(starts)-1, func(i int) bool { return starts[i+1] > n })
}
