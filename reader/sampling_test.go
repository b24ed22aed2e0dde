package reader

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/index"
	"shardify/sample"
	"shardify/store"
	"shardify/store/fault"
)

// drawn lists what all ranks get in an epoch.
func drawn(t testing.TB, d *dataset.Dataset, c Config, epoch int) (all []int64) {
	t.Helper()
	for rank := range max(1, c.World) {
		c.Rank = rank
		r := newReader(t, d, c)
		n := 0
		for b, err := range r.Epoch(context.Background(), epoch) {
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range b.Samples() {
				if b.Key(i) != datasettest.Sample(int(s), 5).Key {
					t.Errorf("sample %d is %q", s, b.Key(i))
				}
			}
			all = append(all, b.Samples()...)
			n++
			b.Release()
		}
		if n != r.Len() {
			t.Errorf("rank %d gets %d batches, Len is %d", rank, n, r.Len())
		}
	}
	return all
}

// Exactly the samples that are asked for come, each once, in every mode, dealt to the
// ranks.
func TestSubset(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 5, Samples: 9})
	jpg := func(n int64) int { return len(datasettest.Sample(int(n), 5).Fields[1].Data) }
	for _, c := range []struct {
		s    Sampling
		want func(n int64) bool
	}{
		{Sampling{Where: "label = 2"}, func(n int64) bool { return n%5 == 2 }},
		{Sampling{Labels: []string{"class-001", "4"}}, func(n int64) bool { return n%5 == 1 || n%5 == 4 }},
		{Sampling{Where: "jpg.size > 1500 and label_name <> 'class-000'"}, func(n int64) bool { return jpg(n) > 1500 && n%5 != 0 }},
		{Sampling{Where: "seg.png.size is not null", Labels: []string{"0", "1", "2"}}, func(n int64) bool { return n%3 == 0 && n%5 < 3 }},
		{Sampling{Keys: []string{datasettest.Sample(40, 5).Key, datasettest.Sample(3, 5).Key, datasettest.Sample(4, 5).Key}}, func(n int64) bool { return n == 3 || n == 4 || n == 40 }},
		{Sampling{Where: "key >= 'a'"}, func(int64) bool { return true }},
	} {
		var want []int64
		for n := range int64(45) {
			if c.want(n) {
				want = append(want, n)
			}
		}
		for _, mode := range modes {
			for _, world := range []int{1, 3} {
				config := Config{
					BatchSize: 4, World: world, Shuffle: mode, Lanes: 6, Window: 20, Block: 2, Seed: 3, Ends: EndsExact,
					Decode: DecodeNone, Sampling: c.s,
				}
				got := drawn(t, d, config, 1)
				if mode == ShuffleNone && world == 1 && !slices.Equal(got, want) {
					t.Errorf("%+v: in order: %v, want %v", c.s, got, want)
				}
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("%+v, %s, world %d: %v, want %v", c.s, mode, world, got, want)
				}
				if n := newReader(t, d, config).Samples(); n != int64(len(want)) {
					t.Errorf("%+v: %d samples", c.s, n)
				}
			}
		}
	}
}

// times counts how often each of n samples stands in a list.
func times(list []int64, n int) []int {
	times := make([]int, n)
	for _, s := range list {
		times[s]++
	}
	return times
}

// A sample of weight w comes ⌊w⌋ or ⌈w⌉ times, w times on average, and an epoch has
// always the same length.
func TestWeights(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 4, Samples: 15})
	weight := func(n int) float64 {
		switch {
		case n == 7:
			return 2.25
		case n%5 == 0:
			return 0
		case n%5 == 1:
			return 3
		case n%5 == 2:
			return 0.3
		}
		return 1
	}
	s := Sampling{
		Weights:    []Weight{{"label = 0", 0}, {"label in (0, 1)", 3}, {"label_name = 'class-002'", 0.3}},
		KeyWeights: map[string]float64{datasettest.Sample(7, 5).Key: 2.25},
	}
	sum := 0.0
	for n := range 60 {
		sum += weight(n)
	}
	r := newReader(t, d, Config{BatchSize: 1, Decode: DecodeNone, Shuffle: ShuffleWindow, Lanes: 4, Window: 20, Ends: EndsExact, Sampling: s, World: 2})
	if r.Samples() != int64(math.Round(sum)) {
		t.Fatalf("%d samples, the weights sum up to %v", r.Samples(), sum)
	}
	// The total is rounded, so that those with fractions come a little more or less often.
	const epochs = 3000
	all, both := make([]int, 60), 0
	fractions, picks := 0.0, float64(r.Samples())
	for n := range 60 {
		whole, fraction := math.Modf(weight(n))
		fractions, picks = fractions+fraction, picks-whole
	}
	for epoch := range epochs {
		p, err := r.Plan(epoch)
		if err != nil {
			t.Fatal(err)
		}
		list := places(p)
		if int64(len(list)) != r.Samples() {
			t.Fatalf("epoch %d has %d samples, not %d", epoch, len(list), r.Samples())
		}
		got := times(list, 60)
		for n, k := range got {
			if w := weight(n); float64(k) < math.Floor(w) || float64(k) > math.Ceil(w) {
				t.Fatalf("epoch %d: sample %d of weight %v comes %d times", epoch, n, w, k)
			}
			all[n] += k
		}
		if got[2] == 1 && got[12] == 1 {
			both++
		}
	}
	for n, k := range all {
		whole, fraction := math.Modf(weight(n))
		want := whole + fraction*picks/fractions
		if got, dev := float64(k)/epochs, 4.5*math.Sqrt(0.25/epochs); math.Abs(got-want) > dev {
			t.Errorf("sample %d comes %.3f times, want %.3f", n, got, want)
		}
	}
	// Two with a fraction come together about as often as by chance.
	p := 0.3 * picks / fractions
	if got := float64(both) / epochs; math.Abs(got-p*p) > 0.05 {
		t.Errorf("samples 2 and 12 come together in %.3f of the epochs, by chance %.3f", got, p*p)
	}
	// Over ranks, with data, the epoch is what the plan says.
	c := Config{BatchSize: 4, World: 2, Shuffle: ShuffleGlobal, Ends: EndsExact, Decode: DecodeNone, Sampling: s}
	plan, err := newReader(t, d, c).Plan(5)
	if err != nil {
		t.Fatal(err)
	}
	if got := drawn(t, d, c, 5); !slices.Equal(times(got, 60), times(places(plan), 60)) {
		t.Errorf("ranks get %v", got)
	}
}

// Balanced, each class comes equally often, however many samples it has.
func TestBalanced(t *testing.T) {
	// Class 0 has 60 of 80 samples, classes 1 to 4 have 5 each.
	d := small(t, datasettest.Options{Shards: 4, Samples: 20, Make: func(n, classes int) datasettest.Made {
		m := datasettest.Sample(n, classes)
		m.Label = int64(max(0, n%20-15))
		return m
	}})
	for _, s := range []Sampling{{Balanced: true}, {Balanced: true, Samples: 200}, {Balanced: true, Where: "label > 0", Distinct: true}} {
		r := newReader(t, d, Config{BatchSize: 5, Decode: DecodeNone, Shuffle: ShuffleWindow, Sampling: s})
		want, classes, first := int64(80), 5.0, 0
		switch {
		case s.Samples > 0:
			want = s.Samples
		case s.Where != "": // all that there are of 4 classes
			want, classes, first = 16, 4, 1
		}
		if r.Samples() != want {
			t.Errorf("%+v: %d samples, want %d", s, r.Samples(), want)
		}
		const epochs = 200
		count := make([]float64, 5)
		for epoch := range epochs {
			p, err := r.Plan(epoch)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range places(p) {
				count[max(0, n%20-15)]++
			}
		}
		for label := first; label < 5; label++ {
			got, want := count[label]/epochs, float64(want)/classes
			if math.Abs(got-want) > 0.05*want {
				t.Errorf("%+v: class %d comes %.2f times in an epoch, want %.2f", s, label, got, want)
			}
		}
	}
}

// Distinct draws have no sample twice, and weights as near as that allows.
func TestDistinct(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 4, Samples: 25})
	s := Sampling{Samples: 40, Distinct: true, Weights: []Weight{{"label = 0", 50}, {"label = 1", 2}, {"label = 2", 0}}}
	r := newReader(t, d, Config{BatchSize: 5, Decode: DecodeNone, Sampling: s})
	const epochs = 1000
	all := make([]int, 5)
	for epoch := range epochs {
		p, err := r.Plan(epoch)
		if err != nil {
			t.Fatal(err)
		}
		list := places(p)
		for n, k := range times(list, 100) {
			if k > 1 {
				t.Fatalf("epoch %d: sample %d comes %d times", epoch, n, k)
			}
			all[n%5] += k
		}
		if len(list) != 40 {
			t.Fatalf("epoch %d has %d samples", epoch, len(list))
		}
	}
	// All 20 of class 0; the other 20 divided 2 : 1 : 1 among 1, 3 and 4.
	for label, want := range []float64{20, 10, 0, 5, 5} {
		if got := float64(all[label]) / epochs; math.Abs(got-want) > 0.3 {
			t.Errorf("class %d comes %.2f times, want %v", label, got, want)
		}
	}
}

// A sample that comes twice looks different each time, and the same in every run, in any
// world.
func TestCopiesLookDifferent(t *testing.T) {
	d := small(t, datasettest.Options{})
	c := Config{BatchSize: 10, Shuffle: ShuffleWindow, Seed: 1, Transform: crop, Sampling: Sampling{Weights: []Weight{{"", 3}}}, Ends: EndsExact}
	const size = 24 * 24 * 3
	looks := func(c Config) map[int64][]string {
		m := map[int64][]string{}
		for rank := range max(1, c.World) {
			c.Rank = rank
			for _, b := range epochOf(t, newReader(t, d, c), 0) {
				for i, n := range b.samples {
					m[n] = append(m[n], string(b.images[i*size:][:size]))
				}
			}
		}
		for _, l := range m {
			slices.Sort(l)
		}
		return m
	}
	one := looks(c)
	different := 0
	for n, l := range one {
		if len(l) != 3 {
			t.Fatalf("sample %d comes %d times", n, len(l))
		}
		if l[0] != l[1] && l[1] != l[2] {
			different++
		}
	}
	if different < 38 {
		t.Errorf("%d of 40 samples look different in their three copies", different)
	}
	c.World, c.BatchSize = 5, 2
	if !reflect.DeepEqual(looks(c), one) {
		t.Error("in another world they look different")
	}
	// Another seed has other copies, but for a few small images.
	c.World, c.BatchSize, c.Seed = 1, 10, 2
	same := 0
	for n, l := range looks(c) {
		for _, look := range l {
			if slices.Contains(one[n], look) {
				same++
			}
		}
	}
	if same > 4 {
		t.Errorf("%d of 120 copies look as one does under another seed", same)
	}
	c.Seed = 1
	// The first copy is what the sample looks like where it comes once.
	c.World, c.BatchSize, c.Sampling = 1, 10, Sampling{}
	for n, l := range looks(c) {
		if !slices.Contains(one[n], l[0]) {
			t.Errorf("sample %d never looks as it does alone", n)
		}
	}
}

// What is drawn resumes as all else does; with another sampling it does not.
func TestResumeSampling(t *testing.T) {
	d := small(t, datasettest.Options{})
	for i, s := range []Sampling{
		{Where: "label <> 3"},
		{Balanced: true, Samples: 37, Where: "jpg.size > 1000"},
		{Weights: []Weight{{"label = 1", 2.5}, {"label = 2", 0.5}}},
		{KeyWeights: map[string]float64{datasettest.Sample(1, 5).Key: 5, datasettest.Sample(2, 5).Key: 0.5, datasettest.Sample(3, 5).Key: 0, datasettest.Sample(4, 5).Key: 1.5, datasettest.Sample(5, 5).Key: 1.5, datasettest.Sample(6, 5).Key: 1.5, datasettest.Sample(7, 5).Key: 0.25, datasettest.Sample(8, 5).Key: 0.25, datasettest.Sample(10, 5).Key: 0.25}},
	} {
		c := Config{BatchSize: 3, World: 2, Shuffle: modes[i], Seed: 4, Lanes: 4, Window: 12, Transform: crop, Sampling: s}
		r := newReader(t, d, c)
		start, err := r.State(2, 0)
		if err != nil {
			t.Fatal(err)
		}
		whole, states := tailOf(t, r, start)
		for step, state := range states[:len(states)-1] {
			state = throughJSON(t, state)
			if got, _ := tailOf(t, newReader(t, d, c), state); !reflect.DeepEqual(got, whole[step+1:]) {
				t.Fatalf("%+v: resumed behind batch %d: other batches", s, step)
			}
		}
		for _, other := range []Sampling{{}, {Where: "label <> 2"}, {Samples: 30}} {
			c := c
			c.Sampling = other
			if err := newReader(t, d, c).CheckState(states[0]); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "sampling: the state has ") {
				t.Errorf("%+v, resumed with %+v: %v", s, other, err)
			}
		}
		filled := states[0].Config(Config{World: 2, Decode: DecodeNone})
		if err := newReader(t, d, filled).CheckState(states[0]); (err == nil) != (i < 3) { // the last is but a checksum
			t.Errorf("%+v, from the state: %+v: %v", s, filled.Sampling, err)
		}
		// Drawn by the seed, also where that shuffles nothing.
		if s.weighs() {
			c.Shuffle = ShuffleNone
			state, err := newReader(t, d, c).State(0, 1)
			if err != nil {
				t.Fatal(err)
			}
			c.Seed++
			if err := newReader(t, d, c).CheckState(state); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "seed") {
				t.Errorf("%+v, another seed: %v", s, err)
			}
		}
	}
}

// Weights keep the reads of window where they were: a batch touches no more shards.
func TestWeightsStayLocal(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 64, Samples: 20, Make: plain})
	most := func(s Sampling) int {
		r := newReader(t, d, Config{BatchSize: 32, Decode: DecodeNone, Shuffle: ShuffleWindow, Lanes: 2, Window: 64, Interleave: 2, Sampling: s})
		most := 0
		for b := range r.base.Batches() {
			shards := map[int]bool{}
			for _, n := range r.base.Batch(nil, b, 0) {
				shard, _ := r.base.Locate(n)
				shards[shard] = true
			}
			most = max(most, len(shards))
		}
		return most
	}
	without, with := most(Sampling{}), most(Sampling{Weights: []Weight{{"label = 0", 2}, {"label = 1", 0.5}}})
	if with > without+2 || without > 12 {
		t.Errorf("a batch touches %d shards, without weights %d", with, without)
	}
}

// tiny makes a sample that has only its label.
func tiny(n, classes int) datasettest.Made {
	m := datasettest.Made{Label: int64(n % classes)}
	m.Key = fmt.Sprintf("k%06d", n)
	m.Fields = []sample.Field{{Name: "cls", Data: fmt.Append(nil, n)}}
	return m
}

// opened counts how often the files of a store are opened.
type opened struct {
	store.Store
	mu    sync.Mutex
	times map[string]int
}

func (s *opened) Open(ctx context.Context, name string) (store.Object, error) {
	s.mu.Lock()
	s.times[name]++
	s.mu.Unlock()
	return s.Store.Open(ctx, name)
}

// In shards and window, weights open each shard once (one on a cut of lanes twice),
// however many shards there are; in global, shards are opened again and again. With
// buckets, whose lanes are not cut at quite the same places, some more are opened twice.
func TestSamplingOpensShardsOnce(t *testing.T) {
	const shards, lanes = 300, 3
	d := small(t, datasettest.Options{Shards: shards, Samples: 12, Make: tiny})
	for _, c := range []struct {
		what string
		s    Sampling
		b    Buckets
	}{
		{what: "plain"},
		{what: "weights", s: Sampling{Weights: []Weight{{"label = 0", 2.5}, {"label = 1", 0.5}}}},
		{what: "balanced", s: Sampling{Balanced: true, Where: "label <> 3 or offset = 0"}},
		{what: "buckets", b: Buckets{By: "label", Edges: []float64{2}}},
	} {
		for _, mode := range []Shuffle{ShuffleShards, ShuffleWindow, ShuffleGlobal} {
			if mode == ShuffleGlobal && c.what != "weights" {
				continue
			}
			st := &opened{Store: d.Store(), times: map[string]int{}}
			seen, err := dataset.New(st, d.Manifest())
			if err != nil {
				t.Fatal(err)
			}
			r := newReader(t, seen, Config{
				BatchSize: 8, Decode: DecodeNone, Shuffle: mode, Lanes: lanes, Window: 400, Ends: EndsExact, Sampling: c.s, Buckets: c.b,
			})
			for b, err := range r.Epoch(context.Background(), 1) {
				if err != nil {
					t.Fatal(err)
				}
				b.Release()
			}
			opens := 0
			for _, sh := range d.Manifest().Splits[0].Shards {
				opens += st.times[sh.Name]
			}
			most := shards + lanes
			if !c.b.isZero() {
				most += shards / 20
			}
			if got := opens > 3*most; mode == ShuffleGlobal {
				if !got {
					t.Errorf("%s, global: shards are opened %d times; so the test says nothing", c.what, opens)
				}
			} else if opens > most {
				t.Errorf("%s, %s: shards are opened %d times, more than %d", c.what, mode, opens, most)
			}
		}
	}
}

// Len and Samples are exact before anything is read, and the same in every epoch, for
// any sampling, any buckets and each of the ends.
func TestLenIsExact(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 5, Samples: 11, Make: tiny})
	rng := rand.New(rand.NewPCG(8, 9))
	read := 0
	for i := range 300 {
		var s Sampling
		if rng.IntN(2) == 0 {
			s.Where = fmt.Sprintf("label <> %d", rng.IntN(5))
		}
		if rng.IntN(3) == 0 {
			s.Labels = []string{fmt.Sprint(rng.IntN(5)), fmt.Sprint(rng.IntN(5))}
		}
		if rng.IntN(2) == 0 {
			s.Weights = []Weight{{fmt.Sprintf("label = %d", rng.IntN(5)), rng.Float64() * 3}, {"", float64(rng.IntN(3))}}
		}
		s.Balanced = rng.IntN(3) == 0
		if rng.IntN(3) == 0 {
			s.Samples = 1 + rng.Int64N(120)
		}
		s.Distinct = rng.IntN(4) == 0
		c := Config{
			BatchSize: 1 + rng.IntN(5), World: []int{1, 2, 3}[rng.IntN(3)], Lanes: 6, Shuffle: modes[i%len(modes)], Window: 30, Seed: rng.Uint64(),
			Ends: []Ends{EndsDrop, EndsPad, EndsExact}[rng.IntN(3)], Decode: DecodeNone, Sampling: s,
		}
		if rng.IntN(2) == 0 {
			c.Buckets = Buckets{By: "label", Edges: []float64{1 + rng.Float64()*3}}
		}
		r, err := New(context.Background(), d, c)
		if errors.Is(err, ErrConfig) {
			continue // nothing is chosen, or too little
		}
		if err != nil {
			t.Fatal(err)
		}
		for epoch := range 3 {
			p, err := r.Plan(epoch)
			if err != nil {
				t.Fatal(err)
			}
			if p.Samples() != r.Samples() || p.Batches() != int64(r.Len()) {
				t.Fatalf("%+v: epoch %d has %d samples in %d batches, not %d in %d", c, epoch, p.Samples(), p.Batches(), r.Samples(), r.Len())
			}
			total := int64(0)
			for b := range p.Batches() {
				total += int64(len(p.GlobalBatch(nil, b)))
			}
			if slack := int64(p.Buckets()) * p.GlobalBatchSize(); c.Ends == EndsExact && total != r.Samples() || total <= r.Samples()-slack || total >= r.Samples()+slack {
				t.Fatalf("%+v: epoch %d has %d samples, Samples is %d", c, epoch, total, r.Samples())
			}
		}
		batches := 0
		for b, err := range r.Epoch(context.Background(), 2) {
			if err != nil {
				t.Fatal(err)
			}
			batches++
			b.Release()
		}
		if batches != r.Len() {
			t.Fatalf("%+v: %d batches, Len is %d", c, batches, r.Len())
		}
		read++
		r.Close()
	}
	if read < 150 {
		t.Errorf("only %d of the samplings could be read", read)
	}
}

// As TestPlanFrozen: what weights draw.
func TestDrawFrozen(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 3, Samples: 10, Make: tiny})
	for _, c := range []struct {
		s    Sampling
		b    Buckets
		want string
	}{
		{Sampling{Weights: []Weight{{"label = 0", 2.5}, {"label = 1", 0.5}, {"label = 2", 0}}}, Buckets{}, "[0 0 0 1][3 4 5 5][5 8 9 10][10 10 13 14][15 15 18 19][20 20 20 21][23 24 25 25][28 29] [0 0 0 3][4 5 5 8][9 10 10 11][13 14 15 15][16 18 19 20][20 20 21 23][24 25 25 26][28 29] "},
		{Sampling{Balanced: true, Samples: 17, Where: "label < 3"}, Buckets{}, "[1 2 5 6][7 10 11 12][15 16 17 20][21 22 25 26][27] [0 1 2 5][6 7 10 11][12 15 16 17][20 22 25 26][27] "},
		{Sampling{Samples: 12, Distinct: true, Weights: []Weight{{"label = 0", 9}}}, Buckets{}, "[0 1 4 5][7 10 15 19][20 21 24 25] [0 1 2 3][5 7 10 13][15 20 22 25] "},
		{Sampling{Samples: 12}, Buckets{By: "label", Edges: []float64{1}}, "[1 4 6 7][10 25][9 17 18 19][23 28] [4 9 11 13][10 20][16 18 19 21][23 26] "},
	} {
		r := newReader(t, d, Config{BatchSize: 4, Seed: 7, Shuffle: ShuffleNone, Ends: EndsExact, Decode: DecodeNone, Sampling: c.s, Buckets: c.b})
		got := ""
		for _, epoch := range []int{0, 1} {
			p, err := r.Plan(epoch)
			if err != nil {
				t.Fatal(err)
			}
			for b := range p.Batches() {
				got += fmt.Sprint(p.Batch(nil, b, 0))
			}
			got += " "
		}
		if got != c.want {
			t.Errorf("%+v, %+v:\n%q", c.s, c.b, got)
		}
	}
	// Several blocks of a draw.
	const n = 3*drawBlock + 100
	weights := make([]float64, n)
	for i := range weights {
		weights[i] = float64(i%4) / 4
	}
	var s Sampling
	length, often, err := s.weigh(weights)
	if err != nil {
		t.Fatal(err)
	}
	h := index.NewHash()
	drawn := newStratum(allOf(n), often, length)
	for epoch := range uint64(3) {
		fmt.Fprintln(h, drawn.draw(hashKey(epoch)).rows)
	}
	if got := fmt.Sprintf("%d %016x", length, h.Sum64()); got != "4646 13b0a6458ceed6ba" {
		t.Error(got)
	}
}

// Over the epochs, samples of the same block and of others come together as often as by
// chance: neighbours, too.
func TestDrawIndependent(t *testing.T) {
	const n, epochs, p = 2*drawBlock + 50, 3000, 0.25
	weights := slices.Repeat([]float64{p}, n)
	var s Sampling
	length, often, err := s.weigh(weights)
	if err != nil {
		t.Fatal(err)
	}
	drawn := newStratum(allOf(n), often, length)
	pairs := [][2]int{{0, 1}, {100, 101}, {100, 104}, {7, 4000}, {drawBlock - 1, drawBlock}, {5, drawBlock + 5}, {3, n - 1}, {2 * drawBlock, 2*drawBlock + 1}}
	together := make([]float64, len(pairs))
	for epoch := range uint64(epochs) {
		picked := drawn.pick(hashKey(epoch))
		for i, pair := range pairs {
			if picked[pair[0]] && picked[pair[1]] {
				together[i]++
			}
		}
	}
	dev := 4 * math.Sqrt(p*p*(1-p*p)/epochs)
	for i, pair := range pairs {
		if got := together[i] / epochs; math.Abs(got-p*p) > dev+0.01 { // a small last block has a little less
			t.Errorf("samples %d and %d come together in %.4f of the epochs, by chance %.4f", pair[0], pair[1], got, p*p)
		}
	}
}

// allOf are all n samples of one shard.
func allOf(n int) members {
	m := members{rows: make([]uint32, n), starts: []int64{0, int64(n)}}
	for i := range m.rows {
		m.rows[i] = uint32(i)
	}
	return m
}

// For any weights: the length is exact, and each sample comes ⌊e⌋ or ⌈e⌉ times, e its
// share of the length.
func TestDrawProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		n := 1 + rng.IntN(60)
		weights := make([]float64, n)
		for i := range weights {
			switch rng.IntN(4) {
			case 0:
			case 1:
				weights[i] = float64(rng.IntN(4))
			case 2:
				weights[i] = rng.Float64()
			case 3:
				weights[i] = rng.ExpFloat64() * math.Pow(10, float64(rng.IntN(7)-3))
			}
		}
		s := Sampling{Distinct: rng.IntN(2) == 0}
		if rng.IntN(2) == 0 {
			s.Samples = 1 + rng.Int64N(100)
		}
		length, often, err := s.weigh(slices.Clone(weights))
		if err != nil {
			continue // nothing to draw, or too few to be distinct
		}
		drawn := newStratum(allOf(n), often, length)
		seed := rng.Uint64()
		total := 0.0
		for _, w := range weights {
			total += w
		}
		for epoch := range 3 {
			m := drawn.draw(hashKey(seed, uint64(epoch)))
			if m.starts[1] != length || int64(len(m.rows)) != length || s.Samples > 0 && length != s.Samples {
				t.Fatalf("%+v %v: %d drawn, want %d", s, weights, len(m.rows), length)
			}
			count := make([]int, n)
			for _, row := range m.rows {
				count[row]++
			}
			if !slices.IsSorted(m.rows) {
				t.Fatalf("rows %v", m.rows)
			}
			for i, k := range count {
				e := weights[i]
				if s.Samples > 0 {
					e *= float64(s.Samples) / total
				}
				if s.Distinct {
					if k > 1 || k == 1 && weights[i] == 0 {
						t.Fatalf("%+v %v: row %d of weight %v comes %d times", s, weights, i, weights[i], k)
					}
				} else if float64(k) < math.Floor(e-1e-8) || float64(k) > math.Ceil(e+1e-8) {
					t.Fatalf("%+v %v: row %d comes %d times, want %v", s, weights, i, k, e)
				}
			}
		}
	}
}

func TestSamplingFaults(t *testing.T) {
	d := small(t, datasettest.Options{Make: func(n, classes int) datasettest.Made {
		m := datasettest.Sample(n, classes)
		if n == 3 {
			m.Label = -1
		}
		return m
	}})
	for _, c := range []struct {
		s    Sampling
		want string
	}{
		{Sampling{Where: "lable = 3"}, "did you mean label?"},
		{Sampling{Where: "label = 'a'"}, "condition"},
		{Sampling{Where: "label = 77"}, "no sample of split"},
		{Sampling{Labels: []string{"class-01"}}, `did you mean "class-001"?`},
		{Sampling{Labels: []string{"5"}}, `no class "5"`},
		{Sampling{Keys: []string{"x", datasettest.Sample(1, 5).Key}}, `the first of them "x"`},
		{Sampling{KeyWeights: map[string]float64{"x": 1}}, `the first of them "x"`},
		{Sampling{Weights: []Weight{{"", -1}}}, "weights 1: -1 is not between"},
		{Sampling{Weights: []Weight{{"", math.NaN()}}}, "NaN is not between"},
		{Sampling{Weights: []Weight{{"", 0}}}, "no samples"},
		{Sampling{Weights: []Weight{{"", 1 << 32}}}, "set samples"},
		{Sampling{Weights: []Weight{{"x", 1}}}, "weights 1: condition"},
		{Sampling{Samples: -1}, "samples: -1"},
		{Sampling{Samples: 41, Distinct: true}, "41 distinct ones in an epoch, of 40"},
		{Sampling{Balanced: true}, "has no label"},
	} {
		_, err := New(context.Background(), d, Config{BatchSize: 1, Decode: DecodeNone, Sampling: c.s})
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.s, err, c.want)
		}
	}
	// A store that fails is no fault of the configuration.
	st := fault.New(d.Store(), fault.Config{ErrorRate: 1})
	broken, err := dataset.New(st, d.Manifest())
	if err != nil {
		t.Fatal(err)
	}
	c := Config{BatchSize: 1, Decode: DecodeNone, Sampling: Sampling{Where: "label = 1"}}
	c.Retry.Attempts = 1
	if _, err := New(context.Background(), broken, c); !errors.Is(err, fault.ErrInjected) || errors.Is(err, ErrConfig) {
		t.Errorf("%v", err)
	}
}

// An epoch of ImageNet's size.
func BenchmarkDraw(b *testing.B) {
	const n = 1281167
	weights := make([]float64, n)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range weights {
		weights[i] = 0.5 + rng.Float64()
	}
	var s Sampling
	length, often, err := s.weigh(weights)
	if err != nil {
		b.Fatal(err)
	}
	drawn := newStratum(allOf(n), often, length)
	epoch := uint64(0)
	for b.Loop() {
		epoch++
		if m := drawn.draw(hashKey(epoch)); int64(len(m.rows)) != length {
			b.Fatal(len(m.rows))
		}
	}
}
