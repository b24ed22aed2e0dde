package reader

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"shardify/dataset"
	"shardify/dataset/datasettest"
)

// The n! orders of a few elements must all be equally frequent over the keys.
func TestPermutationUniform(t *testing.T) {
	for n, critical := range map[int64]float64{2: 10.8, 3: 20.5, 4: 49.7, 5: 172} { // chi-square, p = 0.001, n!-1 degrees
		const keys = 60000
		seen := map[string]int{}
		for k := range uint64(keys) {
			p := newPermutation(n, hashKey(k))
			var order strings.Builder
			for i := range n {
				fmt.Fprint(&order, p.at(i))
			}
			seen[order.String()]++
		}
		orders := math.Gamma(float64(n) + 1)
		if len(seen) != int(orders) {
			t.Errorf("n=%d: %d orders of %v", n, len(seen), orders)
		}
		want, chi := keys/orders, 0.0
		for _, got := range seen {
			chi += (float64(got) - want) * (float64(got) - want) / want
		}
		if chi > critical {
			t.Errorf("n=%d: chi-square %.1f, more than %.1f", n, chi, critical)
		}
	}
}

func TestPermutationBijective(t *testing.T) {
	for _, n := range []int64{1, 2, 63, 64, 65, 127, 1000, 1 << 12, 1<<12 + 1, 100003} {
		p := newPermutation(n, uint64(n))
		seen := make([]bool, n)
		for i := range n {
			x := p.at(i)
			if x < 0 || x >= n || seen[x] {
				t.Fatalf("n=%d: place %d has %d, out of range or for the second time", n, i, x)
			}
			seen[x] = true
		}
	}
	// Far beyond what a test can list: places next to each other stay in range
	// and apart.
	p := newPermutation(maxSamples-1, 3)
	seen := map[int64]bool{}
	for i := range int64(10000) {
		x := p.at(maxSamples - 2 - i)
		if x < 0 || x >= maxSamples-1 || seen[x] {
			t.Fatalf("place %d has %d", i, x)
		}
		seen[x] = true
	}
}

// Place against element, and first place against next: no correlation, and every
// sixteenth of the places reaches every sixteenth of the elements.
func TestPermutationMixes(t *testing.T) {
	const n = 1 << 16
	for _, size := range []int64{n, n - 1000, n/2 + 7} {
		p := newPermutation(size, 1)
		var cells [16][16]float64
		var same, next float64
		mean, last := float64(size-1)/2, 0.0
		for i := range size {
			x := p.at(i)
			cells[i*16/size][x*16/size]++
			d := float64(x) - mean
			same += (float64(i) - mean) * d
			next += last * d
			last = d
		}
		variance := mean * mean / 3 * float64(size)
		if r := same / variance; math.Abs(r) > 4/math.Sqrt(float64(size)) {
			t.Errorf("size %d: correlation of place and element %.4f", size, r)
		}
		if r := next / variance; math.Abs(r) > 4/math.Sqrt(float64(size)) {
			t.Errorf("size %d: correlation of an element and the next %.4f", size, r)
		}
		want, chi := float64(size)/256, 0.0
		for _, row := range cells {
			for _, got := range row {
				chi += (got - want) * (got - want) / want
			}
		}
		if chi > 291 { // 225 degrees of freedom, p = 0.002
			t.Errorf("size %d: chi-square %.1f", size, chi)
		}
	}
}

func TestHashKeySeparates(t *testing.T) {
	seen := map[uint64]string{}
	for seed := range uint64(300) {
		for epoch := range uint64(300) {
			k := hashKey(seed, epoch, purposeGlobal)
			at := fmt.Sprint(seed, epoch)
			if other, twice := seen[k]; twice {
				t.Fatalf("(%s) and (%s) have the same key", at, other)
			}
			seen[k] = at
		}
	}
}

func plan(t testing.TB, counts []int64, o Order, epoch int) *Plan {
	t.Helper()
	p, err := NewPlan(counts, o, epoch)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// places lists the epoch in the order of places.
func places(p *Plan) []int64 {
	list := make([]int64, p.Samples())
	for g := range list {
		list[g], _ = p.number(p.at(int64(g)))
	}
	return list
}

var modes = []Shuffle{ShuffleNone, ShuffleShards, ShuffleWindow, ShuffleGlobal}

// orders yields many small data sets and orders, the odd ones among them.
func orders(visit func(counts []int64, o Order)) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		counts := make([]int64, rng.IntN(12))
		for s := range counts {
			if rng.IntN(5) > 0 {
				counts[s] = rng.Int64N(40)
			}
		}
		lanes := []int{1, 2, 6, 12, 24}[rng.IntN(5)]
		visit(counts, Order{
			Shuffle: modes[i%4], Seed: rng.Uint64(), Window: 1 + rng.IntN(100), Lanes: lanes,
			Interleave: 1 + rng.IntN(5), Block: 1 + rng.IntN(6), BatchSize: 1 + rng.IntN(9),
		})
	}
}

func TestPlanEverySampleOnce(t *testing.T) {
	orders(func(counts []int64, o Order) {
		p := plan(t, counts, o, 3)
		n := p.Samples()
		for w := 1; w <= o.Lanes; w++ {
			if o.Lanes%w != 0 {
				continue
			}
			for _, ends := range []Ends{EndsDrop, EndsPad, EndsExact} {
				o := o
				o.World, o.Ends = w, ends
				p := plan(t, counts, o, 3)
				times := make([]int, n)
				size := p.GlobalBatchSize()
				for r := range w {
					for b := range p.Batches() {
						batch := p.Batch(nil, b, r)
						for _, s := range batch {
							times[s]++
						}
						if full := ends != EndsExact || b < p.Batches()-1; full && len(batch) != o.BatchSize {
							t.Fatalf("%+v rank %d batch %d: %d samples", o, r, b, len(batch))
						}
						if len(batch) < int(min(size, n-b*size))/w || len(batch) > o.BatchSize {
							t.Fatalf("%+v rank %d batch %d: %d samples", o, r, b, len(batch))
						}
					}
				}
				total := int64(0)
				for s, k := range times {
					total += int64(k)
					if ends == EndsExact && k != 1 || ends == EndsDrop && k > 1 || ends == EndsPad && k < 1 {
						t.Fatalf("%+v: sample %d comes %d times", o, s, k)
					}
				}
				if ends == EndsDrop && (total > n || n-total >= size) || ends == EndsPad && n > 0 && total-n >= size {
					t.Fatalf("%+v: %d samples of %d", o, total, n)
				}
			}
		}
	})
}

// The samples of a global batch are the same for every world size, and each
// rank's are those of its lanes.
func TestPlanWorlds(t *testing.T) {
	orders(func(counts []int64, o Order) {
		o.BatchSize = o.Lanes // so that every world can have an equal share
		one := plan(t, counts, o, 0)
		for w := 1; w <= o.Lanes; w++ {
			if o.Lanes%w != 0 {
				continue
			}
			o := o
			o.World, o.BatchSize = w, o.Lanes/w
			p := plan(t, counts, o, 0)
			if p.Batches() != one.Batches() || p.GlobalBatchSize() != one.GlobalBatchSize() {
				t.Fatalf("%+v: %d batches of %d", o, p.Batches(), p.GlobalBatchSize())
			}
			for b := range p.Batches() {
				var all []int64
				for r := range w {
					from := len(all)
					all = p.Batch(all, b, r)
					if o.Shuffle != ShuffleShards && o.Shuffle != ShuffleWindow {
						continue
					}
					for i, n := range all[from:] {
						// What stands there is the next of one of the rank's lanes.
						g := b*p.GlobalBatchSize() + int64(r+i*w)
						lane, pos := int(g)%o.Lanes, g/int64(o.Lanes)
						if lane%w != r || n != laneAt(p, lane, pos) {
							t.Fatalf("%+v batch %d: sample %d of rank %d is not at %d of lane %d", o, b, n, r, pos, lane)
						}
					}
				}
				want := one.Batch(nil, b, 0)
				if got := p.GlobalBatch(nil, b); !slices.Equal(got, want) {
					t.Fatalf("%+v batch %d: %v, with world 1 %v", o, b, got, want)
				}
				slices.Sort(all)
				slices.Sort(want)
				if !slices.Equal(all, want) {
					t.Fatalf("%+v batch %d: ranks have %v, world 1 has %v", o, b, all, want)
				}
			}
		}
	})
}

// However many workers take a rank's batches in turn, from wherever, each batch is taken
// once, and in turn they come in their order.
func TestPlanWorkers(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	orders(func(counts []int64, o Order) {
		o.Ends = EndsExact
		p := plan(t, counts, o, 0)
		from := rng.Int64N(p.Batches() + 2)
		for workers := 1; workers < 6; workers++ {
			var of [][]int64
			for i := range workers {
				mine, err := p.Worker(from, i, workers)
				if err != nil {
					t.Fatal(err)
				}
				of = append(of, slices.Collect(mine))
			}
			// As DataLoader joins them: one of each in turn, leaving out who is done.
			var all []int64
			for turn := 0; len(all) < int(p.Batches()-from); turn++ {
				before := len(all)
				for _, list := range of {
					if turn < len(list) {
						all = append(all, list[turn])
					}
				}
				if len(all) == before {
					break
				}
			}
			for i, b := range all {
				if b != from+int64(i) {
					t.Fatalf("%d workers from batch %d on: batch %d comes at %d", workers, from, b, i)
				}
			}
			if int64(len(all)) != max(0, p.Batches()-from) {
				t.Fatalf("%d workers from batch %d of %d on: %d batches", workers, from, p.Batches(), len(all))
			}
		}
	})
	p := plan(t, []int64{100}, Order{Shuffle: ShuffleNone}, 0)
	for _, c := range [][3]int{{-1, 0, 1}, {0, -1, 1}, {0, 1, 1}, {0, 0, 0}} {
		if _, err := p.Worker(int64(c[0]), c[1], c[2]); err == nil {
			t.Errorf("worker %d of %d from %d", c[1], c[2], c[0])
		}
	}
	whole, _ := p.Worker(0, 0, 1)
	for b := range whole {
		if b > 0 {
			t.Fatal("it goes on after the loop was left")
		}
		break
	}
}

// laneAt is what stands at a position of a lane, by the rank that serves it alone.
func laneAt(p *Plan, lane int, pos int64) int64 {
	o := p.order
	o.BatchSize, o.World, o.Ends = 1, o.Lanes, EndsExact
	all := *p
	all.order = o
	return all.Batch(nil, pos, lane)[0]
}

func TestPlanLanes(t *testing.T) {
	orders(func(counts []int64, o Order) {
		p := plan(t, counts, o, 1)
		total, low, high := int64(0), int64(math.MaxInt64), int64(0)
		for l := range o.Lanes {
			n := p.laneSize(l)
			total, low, high = total+n, min(low, n), max(high, n)
			for pos := range n {
				if a, b := laneAt(p, l, pos), p.at(pos*int64(o.Lanes)+int64(l)); a != b {
					t.Fatalf("%+v: lane %d position %d is %d, its place has %d", o, l, pos, a, b)
				}
			}
		}
		if total != p.Samples() || high-low > 1 {
			t.Fatalf("%+v: lanes of %d to %d, together %d of %d", o, low, high, total, p.Samples())
		}
	})
}

// laneModel is the order of a lane as DESIGN.md and Plan's comment tell it, made
// by moving through the shards rather than by seeking.
func laneModel(counts []int64, o Order, epoch, lane int, p *Plan) []int64 {
	start := make([]int64, len(counts)+1)
	for i, n := range counts {
		start[i+1] = start[i] + n
	}
	perm := newPermutation(int64(len(counts)), hashKey(o.Seed, uint64(epoch), purposeShards))
	var epochParts [][]int64 // by shard, the numbers of all
	for i := range counts {
		s := perm.at(int64(i))
		var list []int64
		for n := start[s]; n < start[s+1]; n++ {
			list = append(list, n)
		}
		epochParts = append(epochParts, list)
	}
	skip := int64(0)
	for l := range lane {
		skip += p.laneSize(l)
	}
	want := p.laneSize(lane)
	var parts [][]int64
	for _, list := range epochParts {
		n := min(skip, int64(len(list)))
		list, skip = list[n:], skip-n
		n = min(want, int64(len(list)))
		list, want = list[:n], want-n
		if n > 0 {
			parts = append(parts, list)
		}
	}
	var out []int64
	for left := (len(parts) + o.Interleave - 1) / o.Interleave; left > 0; left-- {
		n := (len(parts) + left - 1) / left
		g := slices.Clone(parts[:n])
		parts = parts[n:]
		slices.SortStableFunc(g, func(a, b []int64) int { return len(b)/o.Block - len(a)/o.Block })
		for some := true; some; {
			some = false
			for i := range g {
				if len(g[i]) >= o.Block {
					out = append(out, g[i][:o.Block]...)
					g[i] = g[i][o.Block:]
					some = true
				}
			}
		}
		for _, rest := range g {
			out = append(out, rest...)
		}
	}
	return out
}

func TestPlanInterleave(t *testing.T) {
	orders(func(counts []int64, o Order) {
		if o.Shuffle != ShuffleShards && o.Shuffle != ShuffleWindow {
			return
		}
		p := plan(t, counts, o, 5)
		for l := range o.Lanes {
			want := laneModel(counts, o, 5, l, p)
			got := make([]int64, p.laneSize(l))
			for pos := range got {
				got[pos] = laneAt(p, l, int64(pos))
			}
			if o.Shuffle == ShuffleShards {
				if !slices.Equal(got, want) {
					t.Fatalf("%+v lane %d:\n got %v\nwant %v", o, l, got, want)
				}
				continue
			}
			// A window has the samples that stand there without it. Where a lane has
			// several, the first one ends the sooner the later the lane is.
			w := max(1, o.Window/o.Lanes)
			first := w
			if w < len(got) {
				first -= w * l / o.Lanes
			}
			for i, end := 0, first; i < len(got); i, end = end, end+w {
				end = min(end, len(got))
				a, b := slices.Clone(got[i:end]), slices.Clone(want[i:end])
				slices.Sort(a)
				slices.Sort(b)
				if !slices.Equal(a, b) {
					t.Fatalf("%+v lane %d window at %d:\n got %v\nwant %v", o, l, i, a, b)
				}
			}
		}
	})
}

// Orders as they were first published. A change of them is a change of what a seed
// means: say so in the changelog, and keep the old one for old cursors.
func TestPlanFrozen(t *testing.T) {
	counts := []int64{7, 0, 9, 5, 3}
	for _, c := range []struct {
		o     Order
		epoch int
		want  string
	}{
		{Order{Shuffle: ShuffleNone}, 0, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23"},
		{Order{Shuffle: ShuffleGlobal, Seed: 1}, 0, "8 10 13 14 4 20 17 6 7 9 18 19 12 15 5 21 0 16 3 1 22 2 11 23"},
		{Order{Shuffle: ShuffleGlobal, Seed: 1}, 1, "9 10 12 17 13 18 23 20 7 16 19 2 22 4 0 6 15 21 8 1 3 11 5 14"},
		{Order{Shuffle: ShuffleShards, Seed: 1, Lanes: 2}, 0, "21 18 22 19 23 20 0 7 1 8 2 9 3 10 4 11 5 12 6 13 16 14 17 15"},
		{Order{Shuffle: ShuffleShards, Seed: 1, Lanes: 2, Interleave: 3, Block: 2}, 0, "0 7 1 8 21 18 22 19 16 9 17 10 2 11 3 12 4 13 5 14 6 15 23 20"},
		{Order{Shuffle: ShuffleWindow, Seed: 1, Lanes: 2, Window: 8, Interleave: 3, Block: 2}, 0, "0 8 1 7 21 19 22 9 2 18 3 10 16 14 17 13 5 12 23 11 6 15 4 20"},
		{Order{Shuffle: ShuffleWindow, Seed: 1, Lanes: 2, Window: 8, Interleave: 3, Block: 2}, 1, "17 0 8 1 16 21 7 19 11 20 10 22 9 2 12 3 18 4 15 5 13 23 14 6"},
		{Order{Shuffle: ShuffleWindow, Seed: 1}, 0, "21 22 23 0 1 2 3 4 5 6 16 17 18 19 20 7 8 9 10 11 12 13 14 15"},
	} {
		if got := strings.Trim(fmt.Sprint(places(plan(t, counts, c.o, c.epoch))), "[]"); got != c.want {
			t.Errorf("{Order%+v, %d, %q},", c.o, c.epoch, got)
		}
	}
}

// Ranks' batches, with each of the ends, and places of a billion samples.
func TestPlanFrozenBatches(t *testing.T) {
	for _, c := range []struct {
		ends Ends
		want string
	}{
		{EndsDrop, "[1 22 4 23 0][7 5 21 3 8] [6 11 20 10 16][13 18 12 17 14] "},
		{EndsPad, "[1 22 4 23 0][7 5 21 3 8][2 9 1 22 4] [6 11 20 10 16][13 18 12 17 14][19 15 6 11 20] "},
		{EndsExact, "[1 22 4 23 0][7 5 21 3 8][2 9] [6 11 20 10 16][13 18 12 17 14][19 15] "},
	} {
		got := ""
		for rank := range 2 {
			p := plan(t, []int64{7, 0, 9, 5, 3}, Order{Shuffle: ShuffleWindow, Seed: 1, Lanes: 4, Window: 24, World: 2, BatchSize: 5, Ends: c.ends}, 3)
			for b := range p.Batches() {
				got += fmt.Sprint(p.Batch(nil, b, rank))
			}
			got += " "
		}
		if got != c.want {
			t.Errorf("{%q, %q},", c.ends, got)
		}
	}
	counts := make([]int64, 1000)
	for i := range counts {
		counts[i] = 1_000_000
	}
	for _, c := range []struct {
		mode Shuffle
		want string
	}{
		{ShuffleShards, "[58333335 251666671][869000002 58333336][583500004 203833335][231000001 531333337]"},
		{ShuffleWindow, "[901000199 251666703][869000017 814000011][583375007 364208260][990999930 415999816]"},
		{ShuffleGlobal, "[674074864 495589507][460922172 195428253][790467890 179031204][482423978 482602488]"},
	} {
		p := plan(t, counts, Order{Shuffle: c.mode, Seed: 1<<64 - 1, World: 8, BatchSize: 2}, 1<<31-1)
		got := ""
		for _, b := range []int64{0, 1, p.Batches() / 2, p.Batches() - 1} {
			got += fmt.Sprint(p.Batch(nil, b, 5))
		}
		if got != c.want {
			t.Errorf("{%q, %q},", c.mode, got)
		}
	}
}

// An epoch's order does not depend on which epochs were planned before, or at the same
// time: that is what set_epoch means.
func TestPlanSetEpoch(t *testing.T) {
	d := small(t, datasettest.Options{})
	for _, c := range []Config{
		{Shuffle: ShuffleGlobal},
		{Shuffle: ShuffleWindow, Window: 48},
		{Shuffle: ShuffleShards, Sampling: Sampling{Balanced: true, Samples: 33}},
		{Shuffle: ShuffleGlobal, Sampling: Sampling{Weights: []Weight{{"label = 1", 2.5}}}, Buckets: Buckets{Edges: []float64{1}}},
	} {
		c.BatchSize, c.Decode, c.Ends, c.Seed = 4, DecodeNone, EndsExact, 3
		list := func(r *Reader, epoch int) (all []int64) {
			p, err := r.Plan(epoch)
			if err != nil {
				t.Error(err)
				return nil
			}
			for b := range p.Batches() {
				all = p.Batch(all, b, 0)
			}
			return all
		}
		var fresh [][]int64
		for epoch := range 4 {
			fresh = append(fresh, list(newReader(t, d, c), epoch))
			if epoch > 0 && slices.Equal(fresh[epoch], fresh[epoch-1]) {
				t.Errorf("%+v: epochs %d and %d are the same", c, epoch-1, epoch)
			}
		}
		r := newReader(t, d, c)
		var wg sync.WaitGroup
		for _, epoch := range []int{3, 0, 2, 3, 1, 1, 0} {
			if !slices.Equal(list(r, epoch), fresh[epoch]) {
				t.Errorf("%+v: epoch %d is another one after others", c, epoch)
			}
			wg.Go(func() {
				for range 20 {
					if !slices.Equal(list(r, epoch), fresh[epoch]) {
						t.Errorf("%+v: epoch %d is another one beside others", c, epoch)
					}
				}
			})
		}
		wg.Wait()
		// And so are the batches that are read.
		for _, epoch := range []int{2, 0, 2} {
			var got []int64
			for _, b := range epochOf(t, r, epoch) {
				got = append(got, b.samples...)
			}
			if !slices.Equal(got, fresh[epoch]) {
				t.Errorf("%+v: epoch %d reads other samples", c, epoch)
			}
		}
	}
}

// Over the seeds and over the epochs, a place has every sample equally often, as its
// neighbours have, independently of each other and of the seed and the epoch before.
// Each test is a chi-square over 16 × 16 cells, 225 degrees of freedom, that fails by
// chance once in 1,000; the keys are fixed, so that it does not fail by chance.
func TestPlanUniform(t *testing.T) {
	const n, trials, cells = 1000, 20000, 16
	const critical = 293.7
	chi := func(what string, pair func(k uint64) (a, b int64)) {
		var count [cells][cells]float64
		for k := range uint64(trials) {
			a, b := pair(k)
			count[a*cells/n][b*cells/n]++
		}
		// Cells are not quite of one size: 1000 is no multiple of 16.
		var size [cells]float64
		for x := range n {
			size[x*cells/n]++
		}
		sum := 0.0
		for i, row := range count {
			for j, got := range row {
				want := trials * size[i] / n * size[j] / n
				sum += (got - want) * (got - want) / want
			}
		}
		if sum > critical {
			t.Errorf("%s: chi-square %.1f, more than %.1f", what, sum, critical)
		}
	}
	at := func(o Order, epoch int, g int64) int64 {
		return plan(t, []int64{n / 4, n / 2, n / 4}, o, epoch).at(g)
	}
	global := func(seed uint64) Order { return Order{Shuffle: ShuffleGlobal, Seed: seed} }
	for _, g := range []int64{0, 499, 998} {
		chi(fmt.Sprintf("global, places %d and %d", g, g+1), func(k uint64) (int64, int64) { return at(global(k), 0, g), at(global(k), 0, g+1) })
		chi(fmt.Sprintf("global, place %d, seeds k and k+1", g), func(k uint64) (int64, int64) { return at(global(2*k), 0, g), at(global(2*k+1), 0, g) })
		chi(fmt.Sprintf("global, place %d, epochs k and k+1", g), func(k uint64) (int64, int64) { return at(global(7), int(2*k), g), at(global(7), int(2*k+1), g) })
		chi(fmt.Sprintf("global, place %d, seed k epoch k+1 and seed k+1 epoch k", g), func(k uint64) (int64, int64) {
			return at(global(2*k), int(2*k+1), g), at(global(2*k+1), int(2*k), g)
		})
	}
	// A window of everything in one lane permutes as global does.
	window := func(seed uint64) Order { return Order{Shuffle: ShuffleWindow, Seed: seed, Lanes: 1, Window: n} }
	for _, g := range []int64{0, 998} {
		chi(fmt.Sprintf("window, places %d and %d", g, g+1), func(k uint64) (int64, int64) { return at(window(k), 0, g), at(window(k), 0, g+1) })
		chi(fmt.Sprintf("window, place %d, epochs k and k+1", g), func(k uint64) (int64, int64) { return at(window(7), int(2*k), g), at(window(7), int(2*k+1), g) })
	}
	// Windows of one epoch, and lanes, are permuted independently of each other.
	two := func(seed uint64, lanes, window int) *Plan {
		return plan(t, []int64{2 * n}, Order{Shuffle: ShuffleWindow, Seed: seed, Lanes: lanes, Window: window, Interleave: 1}, 0)
	}
	chi("two windows of a lane", func(k uint64) (int64, int64) {
		p := two(k, 1, n)
		return p.at(5), p.at(n+5) - n
	})
	chi("the windows of two lanes", func(k uint64) (int64, int64) {
		p := two(k, 2, 2*n)
		return p.at(10), p.at(11) - n
	})
}

// The order of a billion samples needs no more memory than that of a million in as many
// shards, and walking through it none.
func TestPlanMemory(t *testing.T) {
	sizes := func(each int64) []int64 {
		counts := make([]int64, 1000)
		for i := range counts {
			counts[i] = each + int64(i%7)
		}
		return counts
	}
	for _, mode := range modes {
		o := Order{Shuffle: mode, World: 8, BatchSize: 256}
		bytes := func(counts []int64) uint64 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			plan(t, counts, o, 1)
			runtime.ReadMemStats(&after)
			return after.TotalAlloc - before.TotalAlloc
		}
		small, large := bytes(sizes(1000)), bytes(sizes(1_000_000))
		if large > small+small/10+4096 {
			t.Errorf("%s: a plan of a billion samples takes %d bytes, of a million %d", mode, large, small)
		}
		p := plan(t, sizes(1_000_000), o, 1)
		batch := make([]int64, 0, 256)
		b := int64(0)
		if n := testing.AllocsPerRun(100, func() {
			batch = p.Batch(batch[:0], b, 3)
			b += p.Batches() / 200
		}); n > 0 {
			t.Errorf("%s: %v allocations a batch", mode, n)
		}
	}
}

func TestPlanEpochsDiffer(t *testing.T) {
	counts := []int64{500, 500, 500, 500, 500, 500, 500, 500}
	for _, mode := range modes {
		o := Order{Shuffle: mode, Seed: 7, Lanes: 2, Window: 1000}
		a, b := places(plan(t, counts, o, 0)), places(plan(t, counts, o, 1))
		o.Seed = 8
		c := places(plan(t, counts, o, 0))
		if mode == ShuffleNone {
			if !slices.Equal(a, b) || !slices.Equal(a, c) || !slices.IsSorted(a) {
				t.Error("none is shuffled")
			}
			continue
		}
		if slices.Equal(a, b) || slices.Equal(a, c) || slices.Equal(b, c) {
			t.Errorf("%s: two epochs or seeds have the same order", mode)
		}
		if mode != ShuffleShards {
			for _, other := range [][]int64{b, c} {
				if r := rankCorrelation(a, other); mode == ShuffleGlobal && math.Abs(r) > 4/math.Sqrt(4000) {
					t.Errorf("%s: two epochs are correlated: %.3f", mode, r)
				}
			}
		}
		if !slices.Equal(a, places(plan(t, counts, Order{Shuffle: mode, Seed: 7, Lanes: 2, Window: 1000}, 0))) {
			t.Errorf("%s: a second plan differs", mode)
		}
	}
}

// rankCorrelation is Spearman's, of the places that two orders give the samples.
func rankCorrelation(a, b []int64) float64 {
	n := float64(len(a))
	at := make([]float64, len(a))
	for i, s := range a {
		at[s] = float64(i)
	}
	sum := 0.0
	for i, s := range b {
		d := float64(i) - at[s]
		sum += d * d
	}
	return 1 - 6*sum/(n*(n*n-1))
}

func TestPlanShuffles(t *testing.T) {
	counts := make([]int64, 200)
	for i := range counts {
		counts[i] = 100
	}
	identity := make([]int64, 20000)
	for i := range identity {
		identity[i] = int64(i)
	}
	limit := 4 / math.Sqrt(20000)
	for _, c := range []struct {
		o Order
		// at most so much correlation with the order of the data set
		most float64
	}{
		{Order{Shuffle: ShuffleGlobal}, limit},
		// Shards are the unit: 200 of them.
		{Order{Shuffle: ShuffleWindow}, 4 / math.Sqrt(200)},
		{Order{Shuffle: ShuffleShards}, 4 / math.Sqrt(200)},
	} {
		if r := rankCorrelation(identity, places(plan(t, counts, c.o, 0))); math.Abs(r) > c.most {
			t.Errorf("%s: correlation %.4f, limit %.4f", c.o.Shuffle, r, c.most)
		}
	}
	// A batch of a class-sorted data set has many classes under window, too.
	p := plan(t, counts, Order{Shuffle: ShuffleWindow, BatchSize: 256}, 0)
	for b := range p.Batches() {
		shards := map[int]bool{}
		for _, s := range p.Batch(nil, b, 0) {
			shard, _ := p.Locate(s)
			shards[shard] = true
		}
		if len(shards) < 60 {
			t.Errorf("batch %d: samples of %d shards only", b, len(shards))
		}
	}
}

// A window in bytes is one in samples of the split's mean size.
func TestWindowBytes(t *testing.T) {
	d := small(t, datasettest.Options{})
	split := d.Manifest().Splits[0]
	each := split.Bytes / split.Samples
	c := Config{BatchSize: 4, Seed: 1, Decode: DecodeNone, Lanes: 2, Shuffle: ShuffleWindow}
	for _, w := range []struct {
		bytes int64
		want  int
	}{{each * 20, 20}, {each*20 + each - 1, 20}, {1, 1}, {1 << 62, 1 << 30}} {
		c.Window, c.WindowBytes = 0, w.bytes
		r := newReader(t, d, c)
		if got := r.Config(); got.Window != w.want || got.WindowBytes != 0 {
			t.Errorf("%d bytes: a window of %d samples and %d bytes, want %d", w.bytes, got.Window, got.WindowBytes, w.want)
		}
		c.Window, c.WindowBytes = w.want, 0
		same := newReader(t, d, c)
		if !slices.Equal(places(r.base), places(same.base)) {
			t.Errorf("%d bytes: another order than with %d samples", w.bytes, w.want)
		}
		s, err := r.State(0, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := same.CheckState(s); err != nil {
			t.Error(err)
		}
		filled := s.Config(Config{WindowBytes: w.bytes, Decode: DecodeNone})
		if err := newReader(t, d, filled).CheckState(s); err != nil {
			t.Error(err)
		}
	}
	// The default is bounded in bytes, whatever the store and the world.
	m := *d.Manifest()
	m.Splits = slices.Clone(m.Splits)
	for _, w := range []struct {
		each int64
		want int
	}{{110_000, DefaultWindowBytes / 110_000}, {DefaultWindowBytes / DefaultWindow, DefaultWindow}, {100, DefaultWindow}, {1 << 40, 1}} {
		m.Splits[0].Bytes = w.each * m.Splits[0].Samples
		sized, err := dataset.New(d.Store(), &m)
		if err != nil {
			t.Fatal(err)
		}
		c.Window, c.WindowBytes = 0, 0
		if got := newReader(t, sized, c).Config().Window; got != w.want {
			t.Errorf("samples of %d bytes: a window of %d, want %d", w.each, got, w.want)
		}
	}
	c.Window, c.WindowBytes = 5, 6
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "window: 5 samples and 6 bytes; give one of window and window_bytes") {
		t.Error(err)
	}
	c.Window, c.WindowBytes = 0, -1
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "window_bytes: -1") {
		t.Error(err)
	}
}

func TestPlanLocate(t *testing.T) {
	counts := []int64{0, 3, 0, 0, 2, 1, 0}
	p := plan(t, counts, Order{Shuffle: ShuffleNone}, 0)
	n := int64(0)
	for s, k := range counts {
		for row := range k {
			if shard, r := p.Locate(n); shard != s || r != row {
				t.Errorf("sample %d is in shard %d row %d, want %d, %d", n, shard, r, s, row)
			}
			n++
		}
	}
}

func TestPlanFaults(t *testing.T) {
	for _, c := range []struct {
		o    Order
		want []string
	}{
		{Order{}, []string{`shuffle: "" is none of: none, shards, window, global`}},
		{Order{Shuffle: "full", Ends: "wrap", BatchSize: -1, Window: -1, Interleave: -1, Block: -1},
			[]string{`shuffle: "full"`, `ends: "wrap"`, "batch_size: -1", "window: -1", "interleave: -1", "block: -1"}},
		{Order{Shuffle: ShuffleGlobal, Lanes: 24, World: 5}, []string{"world: 5 does not divide the 24 lanes", "1, 2, 3, 4, 6, 8, 12, 24", "multiple of 5"}},
		{Order{Shuffle: ShuffleGlobal, World: -5}, []string{"world: -5 is not between 1 and"}},
		{Order{Shuffle: ShuffleGlobal, Lanes: -5}, []string{"lanes: -5 is not between 1 and"}},
	} {
		_, err := NewPlan(nil, c.o, 0)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %q", c.o, err, want)
			}
		}
	}
	good := Order{Shuffle: ShuffleWindow}
	if _, err := NewPlan(nil, good, -1); err == nil {
		t.Error("epoch -1")
	}
	if _, err := NewPlan([]int64{1, -1}, good, 0); err == nil {
		t.Error("a negative count")
	}
	if _, err := NewPlan([]int64{maxSamples, 1}, good, 0); err == nil {
		t.Error("too many samples")
	}
	for w := 1; w < 100; w++ {
		if err := (Order{Shuffle: ShuffleWindow, World: w}).Validate(); err != nil {
			t.Errorf("the default lanes do not do for world %d: %v", w, err)
		}
	}
}

// A data set of 10,000 shards and 1.2 billion samples plans in memory for shards.
func TestPlanLarge(t *testing.T) {
	counts := make([]int64, 10000)
	for i := range counts {
		counts[i] = 120000 + int64(i%7)
	}
	for _, mode := range modes {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		plan(t, counts, Order{Shuffle: mode}, 1)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
			t.Errorf("%s: %d bytes for 10,000 shards", mode, n)
		}
		p := plan(t, counts, Order{Shuffle: mode, World: 8}, 1)
		seen := map[int64]bool{}
		for _, b := range []int64{0, 1, p.Batches() / 2, p.Batches() - 1} {
			for _, s := range p.GlobalBatch(nil, b) {
				if s < 0 || s >= p.Samples() || seen[s] {
					t.Fatalf("%s batch %d: sample %d", mode, b, s)
				}
				seen[s] = true
			}
		}
	}
}

// Of a billion samples.
func BenchmarkPlan(b *testing.B) {
	counts := make([]int64, 10000)
	for i := range counts {
		counts[i] = 100000
	}
	for _, mode := range modes {
		b.Run(string(mode), func(b *testing.B) {
			b.ReportAllocs()
			p := plan(b, counts, Order{Shuffle: mode, BatchSize: 256}, 0)
			batch := make([]int64, 0, 256)
			n, at := 0, int64(0)
			for b.Loop() {
				batch = p.Batch(batch[:0], at, 0)
				at = (at + 1) % p.Batches()
				n += len(batch)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mnumbers/s")
		})
	}
	b.Run("new/window", func(b *testing.B) {
		for b.Loop() {
			plan(b, counts, Order{Shuffle: ShuffleWindow}, 0)
		}
	})
}

// Whatever the order, the ranks of an exact epoch have every sample once.
func FuzzPlan(f *testing.F) {
	f.Add(uint8(2), uint64(1), 8, 2, 3, 2, 4, 2, []byte{7, 0, 9, 5, 3})
	f.Add(uint8(3), uint64(1), 0, 0, 0, 0, 0, 0, []byte{1})
	f.Add(uint8(1), uint64(0), 1<<30, 24, 1<<16, 1<<24, 1<<24, 24, []byte{255, 255})
	f.Fuzz(func(t *testing.T, mode uint8, seed uint64, window, lanes, interleave, block, batch, world int, sizes []byte) {
		o := Order{
			Shuffle: modes[int(mode)%len(modes)], Seed: seed, Window: window, Lanes: lanes, Interleave: interleave,
			Block: block, BatchSize: batch, World: world, Ends: EndsExact,
		}
		if o.Validate() != nil || o.withDefaults().Lanes > 1000 || len(sizes) > 100 {
			return
		}
		counts := make([]int64, len(sizes))
		for i, n := range sizes {
			counts[i] = int64(n)
		}
		p, err := NewPlan(counts, o, 1)
		if err != nil {
			t.Fatal(err)
		}
		times := make([]int, p.Samples())
		for rank := range p.Order().World {
			for b := range p.Batches() {
				for _, n := range p.Batch(nil, b, rank) {
					times[n]++
				}
			}
		}
		for n, k := range times {
			if k != 1 {
				t.Fatalf("%+v: sample %d comes %d times", o, n, k)
			}
		}
	})
}
