package reader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/imaging/transform"
	"shardify/index"
	"shardify/store/mem"
)

// turnsOf are the turns of buckets with so many batches.
func turnsOf(counts []int64, key uint64, even bool) turns {
	var t turns
	for k, n := range counts {
		t.buckets = append(t.buckets, turn{batches: n, key: hashKey(key, uint64(k)), even: even})
		t.batches += n
	}
	return t
}

// Every batch of every bucket has its turn once, in order, and at any place of the epoch
// each bucket has had its share, give or take a batch and what rounding makes of it.
func TestTurns(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range 300 {
		counts := make([]int64, 1+rng.IntN(9))
		for k := range counts {
			switch rng.IntN(4) {
			case 0:
			case 1:
				counts[k] = rng.Int64N(3)
			case 2:
				counts[k] = rng.Int64N(40)
			case 3:
				counts[k] = 17 // moments that coincide, where they are even
			}
		}
		s := turnsOf(counts, rng.Uint64(), i%3 == 0)
		had := make([]int64, len(counts))
		for b := range s.batches {
			k, batch := s.at(b)
			if batch != had[k] {
				t.Fatalf("%v: batch %d is number %d of bucket %d, which has had %d", counts, b, batch, k, had[k])
			}
			had[k]++
			for k, n := range counts {
				share := float64(n) * float64(b+1) / float64(s.batches)
				if most := 1 + float64(len(counts))*float64(n)/float64(s.batches); math.Abs(float64(had[k])-share) > most {
					t.Fatalf("%v: after batch %d bucket %d has had %d, its share is %.1f", counts, b, k, had[k], share)
				}
			}
		}
		if !slices.Equal(had, counts) {
			t.Fatalf("%v: the buckets have had %v", counts, had)
		}
	}
	// As many as there can be, found as quickly.
	s := turnsOf([]int64{maxSamples / 2, 3, maxSamples/2 - 3}, 1, false)
	last := [3]int64{-1, -1, -1}
	for i := range int64(1000) {
		if k, batch := s.at(s.batches - 1000 + i); last[k] >= 0 && batch != last[k]+1 || batch >= s.buckets[k].batches {
			t.Fatalf("place %d from the end: batch %d of bucket %d, after %d", 1000-i, batch, k, last[k])
		} else {
			last[k] = batch
		}
	}
}

// A single batch among others may come between any two of them, each as often, and half as
// often before or after all; and which of two buckets comes first says nothing about the
// next part of the epoch.
func TestTurnsUniform(t *testing.T) {
	const keys, others = 20000, 19
	var at [others + 1]float64
	var pairs [2][2]float64
	for key := range uint64(keys) {
		s := turnsOf([]int64{others, 1}, key, false)
		for b := range s.batches {
			if k, _ := s.at(b); k == 1 {
				at[b]++
			}
		}
		s = turnsOf([]int64{2, 2}, key, false)
		first, _ := s.at(0)
		third, _ := s.at(2)
		pairs[first][third]++
	}
	chi := 0.0
	for b, got := range at {
		want := keys / float64(others)
		if b == 0 || b == others {
			want /= 2
		}
		chi += (got - want) * (got - want) / want
	}
	if chi > 43.8 { // 19 degrees of freedom, p = 0.001
		t.Errorf("places of a single batch: chi-square %.1f: %v", chi, at)
	}
	chi = 0
	for _, row := range pairs {
		for _, got := range row {
			const want = keys / 4.0
			chi += (got - want) * (got - want) / want
		}
	}
	if chi > 16.3 { // 3 degrees of freedom, p = 0.001
		t.Errorf("who comes first and third: chi-square %.1f: %v", chi, pairs)
	}
}

// divided are samples of shards with counts, divided at random among buckets; some come
// twice and some not at all, where draws is set. all are their numbers.
func divided(rng *rand.Rand, counts []int64, buckets int, draws bool) (list []*members, split []int64, bucketOf map[int64]int, all []int64) {
	split = []int64{0}
	for range buckets {
		list = append(list, &members{starts: []int64{0}})
	}
	bucketOf = map[int64]int{}
	for _, n := range counts {
		for row := range n {
			number := split[len(split)-1] + row
			k := rng.IntN(buckets)
			bucketOf[number] = k
			times := 1
			if draws {
				times = rng.IntN(3)
			}
			for range times {
				list[k].rows = append(list[k].rows, uint32(row))
				all = append(all, number)
			}
		}
		for _, m := range list {
			m.starts = append(m.starts, int64(len(m.rows)))
		}
		split = append(split, split[len(split)-1]+n)
	}
	return list, split, bucketOf, all
}

// Over all buckets and ranks every sample comes once (or as often as it is drawn), every
// batch is of one bucket, the same on all ranks, and its samples are the same in every
// world; ends drop or pad less than a global batch of each bucket.
func TestBucketsEverySampleOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 1))
	i := 0
	orders(func(counts []int64, o Order) {
		if i++; i > 200 {
			return
		}
		buckets := 1 + rng.IntN(5)
		list, split, bucketOf, all := divided(rng, counts, buckets, i%2 == 0)
		want := times(all, int(split[len(split)-1]))
		for _, ends := range []Ends{EndsDrop, EndsPad, EndsExact} {
			o := o
			o.Ends, o.World, o.BatchSize = ends, 1, o.Lanes*(1+i%2)
			one, err := newBucketPlan(list, split, o, 3)
			if err != nil {
				t.Fatal(err)
			}
			total := 0
			for k := range buckets {
				samples, batches := one.BucketLen(k)
				g := one.GlobalBatchSize()
				if n := (samples + g - 1) / g; batches != n && (ends != EndsDrop || batches != samples/g) {
					t.Fatalf("%+v: bucket %d has %d batches for %d samples", o, k, batches, samples)
				}
				total += int(samples)
			}
			if total != len(all) || one.Samples() != int64(len(all)) || one.Buckets() != buckets {
				t.Fatalf("%+v: %d samples in %d buckets, want %d in %d", o, one.Samples(), one.Buckets(), len(all), buckets)
			}
			for w := 1; w <= o.Lanes; w++ {
				if o.Lanes%w != 0 {
					continue
				}
				o := o
				o.BatchSize, o.World = o.BatchSize/w, w
				p, err := newBucketPlan(list, split, o, 3)
				if err != nil {
					t.Fatal(err)
				}
				if p.Batches() != one.Batches() {
					t.Fatalf("%+v: %d batches, world 1 has %d", o, p.Batches(), one.Batches())
				}
				var got []int64
				for b := range p.Batches() {
					var of []int64
					for r := range w {
						batch := p.Batch(nil, b, r)
						if ends != EndsExact && len(batch) != o.BatchSize {
							t.Fatalf("%+v: batch %d of rank %d has %d samples", o, b, r, len(batch))
						}
						of = append(of, batch...)
					}
					for _, n := range of {
						if bucketOf[n] != p.Bucket(b) {
							t.Fatalf("%+v: batch %d of bucket %d has sample %d of bucket %d", o, b, p.Bucket(b), n, bucketOf[n])
						}
					}
					if len(of) == 0 {
						t.Fatalf("%+v: batch %d is empty on all ranks", o, b)
					}
					got = append(got, of...)
					global := p.GlobalBatch(nil, b)
					if !slices.Equal(global, one.Batch(nil, b, 0)) {
						t.Fatalf("%+v: batch %d has %v, world 1 has %v", o, b, global, one.Batch(nil, b, 0))
					}
					slices.Sort(of)
					slices.Sort(global)
					if !slices.Equal(of, global) {
						t.Fatalf("%+v: batch %d: the ranks have %v, the global batch is %v", o, b, of, global)
					}
				}
				for n, k := range times(got, len(want)) {
					if ends == EndsExact && k != want[n] || ends == EndsDrop && k > want[n] || ends == EndsPad && k < want[n] {
						t.Fatalf("%+v: sample %d comes %d times, want %d", o, n, k, want[n])
					}
				}
				if d, most := len(got)-len(all), buckets*int(p.GlobalBatchSize()); d >= most || -d >= most && most > 0 {
					t.Fatalf("%+v: %d samples come of %d", o, len(got), len(all))
				}
			}
		}
	})
}

// As TestPlanFrozen.
func TestBucketsFrozen(t *testing.T) {
	list, split, _, _ := divided(rand.New(rand.NewPCG(1, 1)), []int64{7, 0, 9, 5, 3}, 3, false)
	for _, c := range []struct {
		o    Order
		want string
	}{
		{Order{Shuffle: ShuffleNone, BatchSize: 3, Ends: EndsExact}, "0 [1 4 7] 2 [0 2 3] 1 [8 10 12] 0 [9 14 16] 2 [5 6 11] 0 [17 19 20] 1 [13 18 21] 2 [15 22] 0 [23] "},
		{Order{Shuffle: ShuffleShards, Seed: 1, Lanes: 2, BatchSize: 3, Ends: EndsExact}, "1 [8 13 10] 0 [7 19 9] 2 [11 3 15] 0 [20 14 1] 2 [5 0 6] 1 [18 12 21] 0 [16 4 17] 2 [2 22] 0 [23] "},
		{Order{Shuffle: ShuffleWindow, Seed: 1, Lanes: 2, Window: 18, Interleave: 3, Block: 2, BatchSize: 3, Ends: EndsPad}, "1 [8 13 10] 0 [7 19 9] 2 [15 5 11] 0 [20 16 1] 2 [3 0 22] 1 [18 12 21] 0 [14 23 17] 2 [2 6 15] 0 [4 7 19] "},
		{Order{Shuffle: ShuffleGlobal, Seed: 1, BatchSize: 3}, "1 [8 18 21] 0 [14 9 16] 0 [20 17 1] 2 [5 15 0] 1 [10 12 13] 2 [3 2 6] 0 [4 19 7] "},
	} {
		p, err := newBucketPlan(list, split, c.o, 1)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for b := range p.Batches() {
			got += fmt.Sprint(p.Bucket(b), p.Batch(nil, b, 0), " ")
		}
		if got != c.want {
			t.Errorf("%+v:\n%q", c.o, got)
		}
	}
}

// Buckets leave the reads where they are: while any shards are interleaved or stand in
// windows, all buckets read at these.
func TestBucketsStayLocal(t *testing.T) {
	counts := make([]int64, 200)
	for s := range counts {
		counts[s] = 100
	}
	rng := rand.New(rand.NewPCG(2, 3))
	list, split, _, _ := divided(rng, counts, 5, false)
	for _, mode := range []Shuffle{ShuffleShards, ShuffleWindow} {
		o := Order{Shuffle: mode, Seed: 1, Lanes: 4, Window: 800, Interleave: 4, BatchSize: 40, Ends: EndsExact}
		bucketed, err := newBucketPlan(list, split, o, 0)
		if err != nil {
			t.Fatal(err)
		}
		// The most shards that are read at in a hundredth of the epoch.
		most := func(p *Plan) (most int) {
			step := p.Batches() / 100
			for from := int64(0); from+step <= p.Batches(); from += step {
				shards := map[int]bool{}
				for b := from; b < from+step; b++ {
					for _, n := range p.Batch(nil, b, 0) {
						shard, _ := p.Locate(n)
						shards[shard] = true
					}
				}
				most = max(most, len(shards))
			}
			return most
		}
		with, without := most(bucketed), most(plan(t, counts, o, 0))
		if with > 2*without {
			t.Errorf("%s: at most %d shards are read at a time, without buckets %d", mode, with, without)
		}
	}
}

// indexOf are the index rows of a data set's only split, by sample numbers.
func indexOf(t testing.TB, d *dataset.Dataset) (rows []*index.Row) {
	t.Helper()
	for row, err := range d.Select(context.Background(), dataset.Selection{}) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row.Row)
	}
	return rows
}

// Batches are of one bucket by the index's own values, all ranks have the same one in
// each step, with every mode and kind of sampling, and the epoch's length is exact.
func TestBuckets(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 6, Samples: 20})
	rows := indexOf(t, d)
	ratio := func(r *index.Row) float64 { return float64(r.Width) / float64(r.Height) }
	size := func(r *index.Row) float64 { return float64(r.Field("jpg").Size) }
	i := 0
	for _, c := range []struct {
		b     Buckets
		value func(*index.Row) float64
	}{
		{Buckets{Edges: []float64{0.8, 1.25}}, ratio},
		{Buckets{By: "jpg.size", Edges: []float64{1000, 1500, 2500}}, size},
		{Buckets{By: "Width * height", Edges: []float64{2000}}, func(r *index.Row) float64 { return float64(r.Width) * float64(r.Height) }},
		{Buckets{By: "label", Edges: []float64{1, 2, 3, 4, 99}}, func(r *index.Row) float64 { return float64(*r.Label) }}, // on the edges, and an empty one
	} {
		for _, s := range []Sampling{
			{},
			{Where: "label <> 3"},
			{Weights: []Weight{{"label = 0", 2.5}, {"label = 1", 0.25}}},
			{Balanced: true, Samples: 97},
			{Samples: 50, Distinct: true, Weights: []Weight{{"label = 0", 3}}},
		} {
			mode := modes[i%len(modes)]
			i++
			config := Config{BatchSize: 3, World: 2, Shuffle: mode, Seed: 5, Lanes: 4, Window: 24, Ends: EndsExact, Decode: DecodeNone, Buckets: c.b, Sampling: s}
			name := fmt.Sprintf("%+v, %+v, %s", c.b, s, mode)
			var got []int64
			var buckets [2][]int
			for rank := range 2 {
				config.Rank = rank
				r := newReader(t, d, config)
				for b, err := range r.Epoch(context.Background(), 2) {
					if err != nil {
						t.Fatal(err)
					}
					buckets[rank] = append(buckets[rank], b.Bucket())
					for i, n := range b.Samples() {
						if b.Key(i) != rows[n].Key {
							t.Errorf("%s: sample %d is %q", name, n, b.Key(i))
						}
						v := c.value(rows[n])
						k := 0
						for k < len(c.b.Edges) && c.b.Edges[k] <= v {
							k++
						}
						if k != b.Bucket() {
							t.Errorf("%s: sample %d of %v in bucket %d", name, n, v, b.Bucket())
						}
					}
					got = append(got, b.Samples()...)
					b.Release()
				}
				if len(buckets[rank]) != r.Len() {
					t.Errorf("%s: %d batches, Len is %d", name, len(buckets[rank]), r.Len())
				}
				if rank == 1 && int64(len(got)) != r.Samples() {
					t.Errorf("%s: %d samples, Samples is %d", name, len(got), r.Samples())
				}
			}
			if !slices.Equal(buckets[0], buckets[1]) {
				t.Errorf("%s: rank 0 has the buckets %v, rank 1 %v", name, buckets[0], buckets[1])
			}
			config.Buckets = Buckets{}
			plain := newReader(t, d, config)
			if int64(len(got)) != plain.Samples() {
				t.Errorf("%s: %d samples, without buckets %d", name, len(got), plain.Samples())
			}
			if !s.weighs() {
				want := places(plain.base)
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("%s: %v, want %v", name, got, want)
				}
			}
		}
	}
}

// Weights mean what they mean without buckets: a sample of weight w comes ⌊w⌋ or ⌈w⌉
// times, w times on average but for the rounding of a bucket's length, which is the same
// in every epoch.
func TestBucketsWeights(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 4, Samples: 15})
	weight := []float64{2.5, 0.25, 0, 1, 1.5}
	s := Sampling{}
	for label, w := range weight {
		s.Weights = append(s.Weights, Weight{fmt.Sprintf("label = %d", label), w})
	}
	r := newReader(t, d, Config{BatchSize: 2, Decode: DecodeNone, Ends: EndsExact, Buckets: Buckets{By: "jpg.size", Edges: []float64{1200, 2000}}, Sampling: s})
	const epochs = 1000
	all := make([]int, 60)
	samples, batches := r.base.BucketLen(1)
	for epoch := range epochs {
		p, err := r.Plan(epoch)
		if err != nil {
			t.Fatal(err)
		}
		if n, b := p.BucketLen(1); n != samples || b != batches || p.Samples() != 63 || p.Batches() != int64(r.Len()) {
			t.Fatalf("epoch %d: bucket 1 has %d samples in %d batches, in epoch 0 %d in %d; all %d in %d", epoch, n, b, samples, batches, p.Samples(), p.Batches())
		}
		var list []int64
		for b := range p.Batches() {
			list = p.Batch(list, b, 0)
		}
		for n, k := range times(list, 60) {
			if w := weight[n%5]; float64(k) < math.Floor(w) || float64(k) > math.Ceil(w) {
				t.Fatalf("epoch %d: sample %d of weight %v comes %d times", epoch, n, w, k)
			}
			all[n] += k
		}
	}
	rows := indexOf(t, d)
	var got, want [3]float64
	for n, k := range all {
		b := r.config.Buckets.of(float64(rows[n].Field("jpg").Size))
		got[b] += float64(k) / epochs
		want[b] += weight[n%5]
	}
	for k := range got {
		if math.Abs(got[k]-want[k]) >= 1 {
			t.Errorf("bucket %d has %v samples in an epoch, its weights sum up to %v", k, got[k], want[k])
		}
	}
}

// apportion gives each its share, rounded up or down, and all of it.
func TestApportion(t *testing.T) {
	for _, c := range []struct {
		n      int64
		whole  []int64
		shares []float64
		want   []int64
	}{
		{10, []int64{0, 0, 0}, []float64{1.5, 1.7, 6.8}, []int64{1, 2, 7}},
		{3, []int64{1, 1}, []float64{0.5, 0.5}, []int64{2, 1}},
		{4, []int64{3, 0}, []float64{0, 0.9999999}, []int64{3, 1}},
		{5, []int64{5}, []float64{0}, []int64{5}},
		{2, []int64{0, 0, 0, 0}, []float64{0.5, 0.5, 0.5, 0.5}, []int64{1, 1, 0, 0}},
	} {
		var shares []uint64
		for _, s := range c.shares {
			shares = append(shares, uint64(s*(1<<32)))
		}
		if got := apportion(c.n, c.whole, shares); !slices.Equal(got, c.want) {
			t.Errorf("%d by %v + %v: %v, want %v", c.n, c.whole, c.shares, got, c.want)
		}
	}
}

// Buckets resume at every step, in other worlds, and only with the same buckets.
func TestResumeBuckets(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 5, Samples: 12})
	for i, mode := range modes {
		c := Config{BatchSize: 2, World: 2, Shuffle: mode, Seed: 4, Lanes: 4, Window: 12, Ends: []Ends{EndsExact, EndsPad}[i%2], Transform: crop, Buckets: Buckets{Edges: []float64{0.75, 1.5}}}
		if i == 2 {
			c.Sampling = Sampling{Weights: []Weight{{"label = 1", 2.5}}}
		}
		r := newReader(t, d, c)
		start, err := r.State(2, 0)
		if err != nil {
			t.Fatal(err)
		}
		whole, states := tailOf(t, r, start)
		if len(whole) != r.Len() {
			t.Fatalf("%d batches of %d", len(whole), r.Len())
		}
		for step, state := range states[:len(states)-1] {
			state = throughJSON(t, state)
			if got, _ := tailOf(t, newReader(t, d, c), state); !reflect.DeepEqual(got, whole[step+1:]) {
				t.Fatalf("%s: resumed behind batch %d: other batches", mode, step)
			}
			// Four ranks instead of two: together they have the same.
			elastic := c
			elastic.World, elastic.BatchSize = 4, 1
			got := make([][]int64, len(whole)-step-1)
			for rank := range 4 {
				elastic.Rank = rank
				tail, _ := tailOf(t, newReader(t, d, elastic), state)
				for k, b := range tail {
					got[k] = append(got[k], b.samples...)
				}
			}
			p, err := r.Plan(2)
			if err != nil {
				t.Fatal(err)
			}
			for k, of := range got {
				want := p.GlobalBatch(nil, int64(step+1+k))
				slices.Sort(of)
				slices.Sort(want)
				if !slices.Equal(of, want) {
					t.Fatalf("%s: resumed with four ranks behind batch %d: batch %d is %v, want %v", mode, step, step+1+k, of, want)
				}
			}
		}
		for _, other := range []Buckets{{}, {Edges: []float64{0.75, 1.6}}, {By: "height / width", Edges: []float64{0.75, 1.5}}} {
			c := c
			c.Buckets = other
			if err := newReader(t, d, c).CheckState(states[0]); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), `buckets: the state has {"by":"width / height","edges":[0.75,1.5]}, the reader `) {
				t.Errorf("%+v: %v", other, err)
			}
		}
		filled := states[0].Config(Config{World: 2, Transform: crop})
		if err := newReader(t, d, filled).CheckState(states[0]); err != nil {
			t.Errorf("from the state: %+v: %v", filled.Buckets, err)
		}
	}
	// Long ones are told apart by their checksums.
	var long Buckets
	for k := range 60 {
		long.Edges = append(long.Edges, math.Sqrt(float64(k+2)))
	}
	r := newReader(t, d, Config{BatchSize: 1, Decode: DecodeNone, Buckets: long})
	s, err := r.State(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	throughJSON(t, s)
	if err := r.CheckState(s); err != nil {
		t.Error(err)
	}
	long.Edges[0] = 1.4
	if err := newReader(t, d, Config{BatchSize: 1, Decode: DecodeNone, Buckets: long}).CheckState(s); !errors.Is(err, ErrState) {
		t.Error(err)
	}
}

// The images of each bucket have its size, and are what a reader makes that has this size
// alone; also where a sample is left out.
func TestBucketsSizes(t *testing.T) {
	st := mem.New()
	d := datasettest.Write(t, st, datasettest.Options{Shards: 3, Samples: 20})
	rows := indexOf(t, d)
	flipByte(t, st, d.Manifest().Splits[0].Shards[0].Name, rows[7].Field("jpg").Offset+50)
	sizes := []transform.Size{{40, 20}, {32}, {20, 44}}
	for _, c := range []Config{
		{Transform: transform.List{transform.RandomResizedCrop{Size: transform.Size{24}}, transform.RandomHorizontalFlip{}}},
		{Transform: transform.List{transform.RandomResizedCrop{Size: transform.Size{16, 24}}, transform.ImageNet}, DType: DTypeFloat32, Layout: LayoutNHWC},
	} {
		c.BatchSize, c.World, c.Seed, c.Ends, c.OnBad = 4, 1, 9, EndsExact, OnBadSkip
		looks := make([]map[int64][]byte, len(sizes))
		for k, size := range sizes {
			one := c
			one.Transform = append(transform.List{transform.RandomResizedCrop{Size: size}}, c.Transform[1:]...)
			looks[k] = map[int64][]byte{}
			for _, b := range epochOf(t, newReader(t, d, one), 1) {
				for i, n := range b.samples {
					each := len(b.images) / len(b.samples)
					looks[k][n] = b.images[i*each:][:each]
				}
			}
		}
		c.Buckets.Sizes = sizes
		r := newReader(t, d, c)
		if got := r.Config().Buckets; got.By != "width / height" || !slices.Equal(got.Edges, []float64{0.70711, 1.4832}) {
			t.Errorf("%+v", got)
		}
		seen := map[int]int{}
		for b, err := range r.Epoch(context.Background(), 1) {
			if err != nil {
				t.Fatal(err)
			}
			k := b.Bucket()
			size := sizes[k]
			if size[1] == 0 {
				size[1] = size[0]
			}
			want := []int{b.Len(), 3, size[0], size[1]}
			if c.Layout == LayoutNHWC {
				want = []int{b.Len(), size[0], size[1], 3}
			}
			images := b.Images()
			if !slices.Equal(images.Shape, want) || images.DType != r.Config().DType {
				t.Fatalf("bucket %d: images of %v, want %v", k, images.Shape, want)
			}
			each := len(images.Data) / max(1, b.Len())
			for i, n := range b.Samples() {
				if !bytes.Equal(images.Data[i*each:][:each], looks[k][n]) {
					t.Errorf("bucket %d: sample %d looks different", k, n)
				}
				seen[k]++
			}
			b.Release()
		}
		if seen[0] < 5 || seen[1] < 5 || seen[2] < 5 || seen[0]+seen[1]+seen[2] != 59 {
			t.Errorf("samples of the buckets: %v", seen)
		}
		// To go on with larger images is no other order.
		s, err := r.State(0, 3)
		if err != nil {
			t.Fatal(err)
		}
		c.Buckets.Sizes = []transform.Size{{80, 40}, {64}, {40, 88}}
		if err := newReader(t, d, c).CheckState(s); err != nil {
			t.Error(err)
		}
	}
	// Memory is for the largest.
	c := Config{BatchSize: 4, Ends: EndsExact, Buckets: Buckets{Sizes: []transform.Size{{20, 10}, {2000}, {20, 44}}}, Memory: 50 << 20}
	if _, err := New(context.Background(), d, c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "do not hold two batches of 50331648") {
		t.Error(err)
	}
}

// Edges are the geometric means of the ratios, rounded where there is room for it.
func TestBucketsEdges(t *testing.T) {
	for _, c := range []struct {
		sizes []transform.Size
		want  []float64
	}{
		{[]transform.Size{{3, 1}, {2, 1}, {224}, {1, 2}}, []float64{0.40825, 0.70711, 1.4142}},
		{[]transform.Size{{10000, 9999}, {10001, 10000}}, []float64{math.Sqrt(9999. / 10000 * 10000 / 10001)}},
	} {
		b := Buckets{Sizes: c.sizes}.withDefaults()
		if !slices.Equal(b.Edges, c.want) {
			t.Errorf("%v: %v, want %v", c.sizes, b.Edges, c.want)
		}
		for i := range c.sizes {
			if k := b.of(ratio(c.sizes[i])); k != i {
				t.Errorf("%v: a ratio of %v comes into bucket %d, not %d", c.sizes, ratio(c.sizes[i]), k, i)
			}
		}
		if err := b.Validate(); err != nil {
			t.Error(err)
		}
		if again := b.withDefaults(); !reflect.DeepEqual(again, b) {
			t.Errorf("%+v become %+v", b, again)
		}
	}
}

// What stands in for a damaged sample is of its bucket.
func TestBucketsSubstitute(t *testing.T) {
	st := mem.New()
	d := datasettest.Write(t, st, datasettest.Options{Shards: 2, Samples: 30})
	rows := indexOf(t, d)
	for _, n := range []int{3, 14, 33, 47} {
		flipByte(t, st, d.Manifest().Splits[0].Shards[n/30].Name, rows[n].Field("jpg").Offset+50)
	}
	r := newReader(t, d, Config{BatchSize: 4, Transform: crop, OnBad: OnBadSubstitute, Ends: EndsExact, Buckets: Buckets{Edges: []float64{0.7, 1, 1.4}}})
	substituted := 0
	for epoch := range 4 {
		for b, err := range r.Epoch(context.Background(), epoch) {
			if err != nil {
				t.Fatal(err)
			}
			substituted += len(b.Bad())
			for i, n := range b.Samples() {
				if b.Key(i) != rows[n].Key {
					t.Errorf("sample %d is %q", n, b.Key(i))
				}
				if k := r.config.Buckets.of(float64(rows[n].Width) / float64(rows[n].Height)); k != b.Bucket() {
					t.Errorf("a sample of bucket %d stands in bucket %d", k, b.Bucket())
				}
			}
			b.Release()
		}
	}
	if substituted != 16 {
		t.Errorf("%d samples were substituted in 4 epochs, want 4 in each", substituted)
	}
}

func TestBucketsFaults(t *testing.T) {
	d := small(t, datasettest.Options{})
	many := make([]float64, 64)
	for i := range many {
		many[i] = float64(i)
	}
	for _, c := range []struct {
		b    Buckets
		want []string
	}{
		{Buckets{By: "width / height"}, []string{"edges: there are none"}},
		{Buckets{By: "widht / height", Edges: []float64{1}}, []string{"buckets: by: expression", "did you mean width?"}},
		{Buckets{By: "txt.size", Edges: []float64{1}}, []string{`no field "txt"`, "the fields are cls, jpg, seg.png"}},
		{Buckets{By: "label_name", Edges: []float64{1}}, []string{"this is a text, not a number"}},
		{Buckets{By: strings.Repeat("width + ", 40) + "1", Edges: []float64{1}}, []string{"longer than 256 bytes"}},
		{Buckets{Edges: []float64{1, 1, math.NaN(), math.Inf(1)}}, []string{"1 comes after 1; they must ascend", "NaN is no number", "+Inf is no number"}},
		{Buckets{Edges: many}, []string{"they make 65 buckets, more than 64"}},
		{Buckets{By: "seg.png.size", Edges: []float64{1}}, []string{`the index knows no seg.png.size of sample "class-001/img_000001"`}},
		{Buckets{By: "width / (height - height)", Edges: []float64{1}}, []string{"the index knows no width / (height - height) of sample"}},
		{Buckets{Sizes: []transform.Size{{24}}}, []string{"a single one makes no buckets"}},
		{Buckets{Sizes: []transform.Size{{24}, {32}}}, []string{"must ascend, from 1 to 1 it does not"}},
		{Buckets{Sizes: []transform.Size{{-24, 24}, {32}}}, []string{"-24 x 24 is none"}},
		{Buckets{By: "jpg.size", Sizes: []transform.Size{{24}, {32}}}, []string{`edges: there are none; sizes make them only by "width / height"`}},
		{Buckets{Edges: []float64{1, 2}, Sizes: []transform.Size{{24}, {32}}}, []string{"2 of them for 3 buckets"}},
		{Buckets{By: "label", Edges: []float64{1, 4}}, []string{
			"bucket 0 (label < 1) has 8 samples, less than one global batch of 9", "bucket 2 (label >= 4) has 8 samples", `set ends to "pad" or "exact"`}},
	} {
		_, err := New(context.Background(), d, Config{BatchSize: 9, Decode: DecodeNone, Buckets: c.b})
		for _, want := range c.want {
			if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %q", c.b, err, want)
			}
		}
	}
	// Buckets without a sample are no fault, and what is left out needs no value.
	r := newReader(t, d, Config{BatchSize: 1, Decode: DecodeNone, Buckets: Buckets{By: "seg.png.size", Edges: []float64{1, 1e9}}, Sampling: Sampling{Where: "seg.png.size is not null"}})
	if n, b := r.base.BucketLen(2); n != 0 || b != 0 || r.Samples() != 14 {
		t.Errorf("%d samples in %d batches, %d in all", n, b, r.Samples())
	}
	data, err := json.Marshal(r.Config().Buckets)
	if err != nil || string(data) != `{"by":"seg.png.size","edges":[1,1000000000]}` {
		t.Errorf("%s, %v", data, err)
	}
}

// Batches of an ImageNet in 20 buckets, and the place of one.
func BenchmarkBuckets(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	counts := make([]int64, 1281)
	for i := range counts {
		counts[i] = 1000
	}
	list, split, _, _ := divided(rng, counts, 20, false)
	b.Run("batch", func(b *testing.B) {
		p, err := newBucketPlan(list, split, Order{Shuffle: ShuffleWindow, BatchSize: 256}, 0)
		if err != nil {
			b.Fatal(err)
		}
		var batch []int64
		n, at := 0, int64(0)
		for b.Loop() {
			batch = p.Batch(batch[:0], at, 0)
			at = (at + 1) % p.Batches()
			n += len(batch)
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mnumbers/s")
	})
	b.Run("turn", func(b *testing.B) {
		p, err := newBucketPlan(list, split, Order{Shuffle: ShuffleGlobal, BatchSize: 256}, 0)
		if err != nil {
			b.Fatal(err)
		}
		at := int64(0)
		for b.Loop() {
			p.Bucket(at)
			at = (at + 1) % p.Batches()
		}
	})
}
