package reader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/store"
	"shardify/store/mem"
)

// throughJSON is a state as it comes back from a checkpoint.
func throughJSON(t testing.TB, s State) State {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 600 {
		t.Errorf("a state of %d bytes: %s", len(data), data)
	}
	back, err := ParseState(data)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// tailOf copies what is left of a state's epoch, and the states behind its batches.
func tailOf(t testing.TB, r *Reader, s State) (tail []copied, states []State) {
	t.Helper()
	for b, err := range r.Epochs(context.Background(), s, s.Epoch+1) {
		if err != nil {
			t.Fatal(err)
		}
		tail = append(tail, copyOf(b))
		states = append(states, b.State())
		b.Release()
	}
	return tail, states
}

// Restored at every step, by a reader that has read nothing else, all that comes
// after is the same to the last byte.
func TestResumeAtEveryStep(t *testing.T) {
	for i, format := range []string{"tar", "tar.zst", "tar.gz", "tfrecord"} {
		d := small(t, datasettest.Options{Format: format})
		for k, mode := range modes {
			ends := []Ends{EndsExact, EndsPad, EndsDrop}[(i+k)%3]
			t.Run(fmt.Sprintf("%s/%s/%s", format, mode, ends), func(t *testing.T) {
				c := Config{
					BatchSize: 3, Shuffle: mode, Seed: 3, Lanes: 4, Window: 16, Interleave: 2, Block: 3, Ends: ends,
					Transform: crop, Fields: []string{"cls"}, World: 2, Rank: i % 2,
				}
				r := newReader(t, d, c)
				s, err := r.State(1, 0)
				if err != nil {
					t.Fatal(err)
				}
				whole, states := tailOf(t, r, s)
				if want := epochOf(t, r, 1); !reflect.DeepEqual(whole, want) || len(whole) != r.Len() {
					t.Fatal("resumed at its beginning, the epoch is another one")
				}
				for step, s := range states {
					r := newReader(t, d, c)
					if want, err := r.State(1, int64(step)+1); err != nil || s != want {
						t.Fatalf("behind batch %d: %+v, want %+v, %v", step, s, want, err)
					}
					s = throughJSON(t, s)
					if s.Epoch == 2 {
						break
					}
					got, ahead := tailOf(t, r, s)
					if !reflect.DeepEqual(got, whole[step+1:]) {
						t.Fatalf("resumed behind batch %d: other batches", step)
					}
					if !slices.Equal(ahead, states[step+1:]) {
						t.Fatalf("resumed behind batch %d: other states", step)
					}
				}
			})
		}
	}
}

// The loop of Resume's comment runs epoch after epoch, and ends.
func TestResumeLoop(t *testing.T) {
	r := newReader(t, small(t, datasettest.Options{}), Config{BatchSize: 7, Decode: DecodeNone})
	state, err := r.State(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got [][]int64
	for state.Epoch < 3 {
		for b, err := range r.Epochs(context.Background(), state, state.Epoch+1) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, slices.Clone(b.Samples()))
			state = b.State()
			b.Release()
		}
	}
	if state.Epoch != 3 || state.Batch != 0 {
		t.Errorf("it ends before batch %d of epoch %d", state.Batch, state.Epoch)
	}
	var want [][]int64
	for epoch := range 3 {
		for _, b := range epochOf(t, r, epoch) {
			want = append(want, b.samples)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("other batches than epoch by epoch")
	}
}

// An epoch that is begun by 8 ranks, goes on with 4, 2, 1 and 3, and ends with 8 has
// the batches of the plan, and every sample its own pixels.
func TestResumeElastic(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 6, Samples: 33})
	for _, mode := range modes {
		rng := rand.New(rand.NewPCG(uint64(len(mode)), 1))
		c := Config{Shuffle: mode, Seed: 11, Lanes: 24, Window: 48, Block: 4, Ends: EndsExact, Transform: crop}
		c.World, c.BatchSize = 1, 24
		one := newReader(t, d, c)
		plan, err := one.Plan(4)
		if err != nil {
			t.Fatal(err)
		}
		looks := map[int64][]byte{}
		for _, b := range epochOf(t, one, 4) {
			for i, n := range b.samples {
				looks[n] = b.images[i*24*24*3:][:24*24*3]
			}
		}
		state, err := one.State(4, 0)
		if err != nil {
			t.Fatal(err)
		}
		worlds := []int{8, 4, 2, 1, 3, 8}
		for at := 0; state.Epoch == 4; at = (at + 1) % len(worlds) {
			world := worlds[at]
			steps := min(1+rng.Int64N(2), plan.Batches()-state.Batch)
			c.World, c.BatchSize = world, 24/world
			got := make([][]int64, steps)
			next := make([]State, world)
			for rank := range world {
				c.Rank = rank
				r := newReader(t, d, c)
				k := int64(0)
				for b, err := range r.Epochs(context.Background(), throughJSON(t, state), -1) {
					if err != nil {
						t.Fatal(err)
					}
					got[k] = append(got[k], b.Samples()...)
					for i, n := range b.Samples() {
						if !bytes.Equal(b.Images().Data[i*24*24*3:][:24*24*3], looks[n]) {
							t.Errorf("%s, world %d: sample %d looks different", mode, world, n)
						}
					}
					next[rank] = b.State()
					b.Release()
					if k++; k == steps {
						break
					}
				}
				if next[rank] != next[0] {
					t.Errorf("%s, world %d: ranks 0 and %d have different states", mode, world, rank)
				}
			}
			for k, all := range got {
				want := plan.GlobalBatch(nil, state.Batch+int64(k))
				slices.Sort(all)
				slices.Sort(want)
				if !slices.Equal(all, want) {
					t.Errorf("%s, world %d, batch %d: %v, want %v", mode, world, state.Batch+int64(k), all, want)
				}
			}
			state = next[0]
		}
	}
}

func TestResumeRefuses(t *testing.T) {
	d := small(t, datasettest.Options{Splits: []string{"train", "val"}})
	base := Config{BatchSize: 4, Decode: DecodeNone, Seed: 1, Shuffle: ShuffleWindow, Lanes: 8, Window: 16, World: 2}
	state, err := newReader(t, d, base).State(2, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what   string
		data   *dataset.Dataset
		change func(*Config)
		want   string // empty: it fits
	}{
		{"seed", d, func(c *Config) { c.Seed = 2 }, "seed: the state has 1, the reader 2"},
		{"shuffle", d, func(c *Config) { c.Shuffle = ShuffleGlobal }, "shuffle: the state has window, the reader global"},
		{"ends", d, func(c *Config) { c.Ends = EndsPad }, "ends: the state has drop, the reader pad"},
		{"lanes", d, func(c *Config) { c.Lanes = 16 }, "lanes: the state has 8, the reader 16"},
		{"window", d, func(c *Config) { c.Window = 17 }, "window: the state has 16, the reader 17"},
		{"interleave", d, func(c *Config) { c.Interleave = 3 }, "interleave: the state has 4, the reader 3"},
		{"block", d, func(c *Config) { c.Block = 3 }, "block: the state has 16, the reader 3"},
		{"batch", d, func(c *Config) { c.BatchSize = 3 }, "batch_size × world: the state has 4 × 2, the reader 3 × 2; the product must stay"},
		{"world", d, func(c *Config) { c.World = 4 }, "batch_size × world: the state has 4 × 2, the reader 4 × 4"},
		{"split", d, func(c *Config) { c.Split = "val" }, `split: the state has "train", the reader "val"`},
		{"several", d, func(c *Config) { c.Seed, c.Lanes = 2, 16 }, "lanes: the state has 8, the reader 16"},
		{"more data", small(t, datasettest.Options{Splits: []string{"train", "val"}, Shards: 5}), nil, "40 samples in 4 shards"},
		{"other data", small(t, datasettest.Options{Splits: []string{"train", "val"}, Classes: 4}), nil, "was the data set packed again?"},
		{"other world", d, func(c *Config) { c.World, c.BatchSize = 8, 1 }, ""},
		{"other transforms", d, func(c *Config) { c.Decode, c.Transform = DecodeImage, crop }, ""},
		{"other rank, workers, memory", d, func(c *Config) { c.Rank, c.Workers, c.Memory = 1, 7, 20<<20 }, ""},
		{"the same data elsewhere", small(t, datasettest.Options{Splits: []string{"train", "val"}}), nil, ""},
	} {
		config := base
		if c.change != nil {
			c.change(&config)
		}
		r := newReader(t, c.data, config)
		err := r.CheckState(state)
		var yielded error
		for b, err := range r.Epochs(context.Background(), state, state.Epoch+1) {
			if yielded = err; err == nil {
				b.Release()
				break
			}
		}
		if c.want == "" {
			if err != nil || yielded != nil {
				t.Errorf("%s: %v, %v", c.what, err, yielded)
			}
			continue
		}
		for _, err := range []error{err, yielded} {
			if !errors.Is(err, ErrState) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.what, err, c.want)
			}
		}
		if c.what == "several" && !strings.Contains(err.Error(), "seed: ") {
			t.Errorf("%v does not name the seed", err)
		}
	}
	// What decides nothing may differ, and then the tail is the same indeed.
	d = small(t, datasettest.Options{Shards: 6})
	for _, mode := range modes {
		a := Config{BatchSize: 4, Decode: DecodeNone, Seed: 1, Shuffle: mode, Lanes: 2, Window: 16, Interleave: 2, Block: 2}
		r := newReader(t, d, a)
		s, _ := r.State(0, 5)
		want, _ := tailOf(t, r, s)
		whole := places(r.base)
		for _, change := range []func(*Config){
			func(c *Config) { c.Seed = 2 },
			func(c *Config) { c.Lanes = 3 },
			func(c *Config) { c.Window = 24 },
			func(c *Config) { c.Interleave = 3 },
			func(c *Config) { c.Block = 3 },
		} {
			b := a
			change(&b)
			r := newReader(t, d, b)
			if r.CheckState(s) == nil {
				if got, _ := tailOf(t, r, s); len(got) != len(want) || !reflect.DeepEqual(samplesOf(got), samplesOf(want)) {
					t.Errorf("%s: a state was taken from %+v to %+v, and the order is another one", mode, a, b)
				}
			} else if slices.Equal(places(r.base), whole) {
				t.Errorf("%s: a state was refused from %+v to %+v, though the order is the same", mode, a, b)
			}
		}
	}
	r := newReader(t, small(t, datasettest.Options{Splits: []string{"train", "val"}}), base)
	for _, s := range []State{{}, {Version: 9}} {
		if err := r.CheckState(s); !errors.Is(err, ErrState) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for _, at := range [][2]int64{{-1, 0}, {0, -1}, {0, 5}, {0, 1 << 62}} {
		s := state
		s.Epoch, s.Batch = int(at[0]), at[1]
		if err := r.CheckState(s); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "0 to 4") {
			t.Errorf("batch %d of epoch %d: %v", at[1], at[0], err)
		}
		if at[1] == 5 {
			continue // the end of an epoch is a place
		}
		if _, err := r.State(int(at[0]), at[1]); !errors.Is(err, ErrState) {
			t.Errorf("State(%d, %d): %v", at[0], at[1], err)
		}
	}
	if s, err := r.State(6, 5); err != nil || s.Epoch != 7 || s.Batch != 0 {
		t.Errorf("behind epoch 6: %+v, %v", s, err)
	}
}

func samplesOf(list []copied) (all [][]int64) {
	for _, b := range list {
		all = append(all, b.samples)
	}
	return all
}

// The form of version 1, as it lies in people's checkpoints.
const goldenState = `{"version":1,"data":{"name":"test","split":"train","shards":4,"samples":40,"checksum":"crc64nvme:908e68db883190f6"},` +
	`"order":{"shuffle":"window","seed":18446744073709551615,"window":24576,"lanes":24,"interleave":4,"block":16,"batch_size":3,"world":4,"ends":"drop"},"epoch":89,"batch":2}`

func TestStateJSON(t *testing.T) {
	r := newReader(t, small(t, datasettest.Options{}), Config{BatchSize: 3, World: 4, Shuffle: ShuffleWindow, Seed: 1<<64 - 1, Decode: DecodeNone})
	s, err := r.State(89, 2)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(s)
	if err != nil || string(data) != goldenState {
		t.Errorf("%s, %v", data, err)
	}
	back, err := ParseState([]byte(goldenState))
	if err != nil || back != s || r.CheckState(back) != nil {
		t.Errorf("%+v, %v", back, err)
	}
	// As part of a larger checkpoint.
	var c struct{ Reader State }
	if err := json.Unmarshal([]byte(`{"reader":`+goldenState+`}`), &c); err != nil || c.Reader != s {
		t.Errorf("%+v, %v", c, err)
	}
	for text, want := range map[string]string{
		"":                          "EOF",
		"{}":                        "no version",
		"[]":                        "cannot unmarshal",
		`{"version":2}`:             "install a newer",
		`{"version":1,"ep0ch":3}`:   "ep0ch",
		`{"version":1,"batch":"3"}`: "batch",
		goldenState + "}":           "more behind",
		goldenState[:100]:           "EOF",
	} {
		if _, err := ParseState([]byte(text)); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A state fills in what a configuration leaves open.
func TestStateConfig(t *testing.T) {
	d := small(t, datasettest.Options{Splits: []string{"train", "val"}})
	full := Config{Split: "val", BatchSize: 2, World: 4, Seed: 5, Shuffle: ShuffleWindow, Lanes: 8, Window: 24, Interleave: 3, Block: 5, Ends: EndsExact}
	r := newReader(t, d, full)
	s, err := r.State(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, world := range []int{0, 2, 4, 8} {
		c := s.Config(Config{World: world, Decode: DecodeNone})
		if err := newReader(t, d, c).CheckState(s); err != nil {
			t.Errorf("world %d: %v", world, err)
		}
	}
	if c := s.Config(Config{Seed: 9, BatchSize: 7, World: 3}); c.Seed != 9 || c.BatchSize != 7 || c.World != 3 {
		t.Errorf("overwritten: %+v", c)
	}
}

func FuzzState(f *testing.F) {
	d := small(f, datasettest.Options{})
	r := newReader(f, d, Config{BatchSize: 3, World: 4, Shuffle: ShuffleWindow, Seed: 1<<64 - 1, Decode: DecodeNone})
	f.Add([]byte(goldenState))
	f.Add([]byte(strings.Replace(goldenState, `"world":4`, `"world":-4611686018427387904`, 1)))
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseState(data)
		if err != nil {
			if !errors.Is(err, ErrState) {
				t.Fatal(err)
			}
			return
		}
		s.Config(Config{World: 3})
		if again := throughJSON2(t, s); again != s {
			t.Fatalf("%+v comes back as %+v", s, again)
		}
		if err := r.CheckState(s); err != nil {
			if !errors.Is(err, ErrState) {
				t.Fatal(err)
			}
			return
		}
		n := 0
		for b, err := range r.Epochs(context.Background(), s, s.Epoch+1) {
			if err != nil {
				t.Fatal(err)
			}
			b.Release()
			n++
		}
		if int64(n) != int64(r.Len())-s.Batch || n == 0 {
			t.Fatalf("%d batches from %+v on", n, s)
		}
	})
}

// throughJSON2 is throughJSON for states of any length.
func throughJSON2(t testing.TB, s State) State {
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseState(data)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// recorder notes what is read of a store.
type recorder struct {
	store.Store
	mu    sync.Mutex
	reads []recorded
}

type recorded struct {
	name    string
	off, to int64
}

func (s *recorder) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return &recordedObject{o, s, name}, nil
}

type recordedObject struct {
	store.Object
	s    *recorder
	name string
}

func (o *recordedObject) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	o.s.mu.Lock()
	o.s.reads = append(o.s.reads, recorded{o.name, off, off + int64(len(p))})
	o.s.mu.Unlock()
	return o.Object.ReadAt(ctx, p, off)
}

// Resuming reads the indexes and the bytes of the batches that come, and nothing of
// those before.
func TestResumeReadsOnlyWhatComes(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 20, Samples: 10})
	for _, mode := range modes {
		rec := &recorder{Store: d.Store()}
		seen, err := dataset.New(rec, d.Manifest())
		if err != nil {
			t.Fatal(err)
		}
		r := newReader(t, seen, Config{BatchSize: 5, Shuffle: mode, Lanes: 1, Window: 30, Interleave: 2, Seed: 1, Transform: crop})
		s, err := r.State(3, 37) // of 40
		if err != nil {
			t.Fatal(err)
		}
		if len(rec.reads) != 0 {
			t.Errorf("%s: opening reads %v", mode, rec.reads)
		}
		tail, _ := tailOf(t, r, s)
		wanted := map[string][]recorded{} // extents of the tail's samples
		for _, b := range tail {
			for _, n := range b.samples {
				sh := &d.Manifest().Splits[0].Shards[n/10]
				rows, err := d.Rows(context.Background(), sh)
				if err != nil {
					t.Fatal(err)
				}
				row := &rows[n%10]
				wanted[sh.Name] = append(wanted[sh.Name], recorded{off: row.Offset, to: row.Offset + row.Size})
				wanted[sh.Index.Name] = []recorded{{off: 0, to: sh.Index.Bytes}}
			}
		}
		total := int64(0)
		for _, got := range rec.reads {
			// Reads of neighbours take what lies between along, so the ends must be
			// those of samples that come.
			begins, ends := false, false
			for _, w := range wanted[got.name] {
				begins = begins || got.off >= w.off && got.off < w.to
				ends = ends || got.to > w.off && got.to <= w.to
			}
			if !begins || !ends {
				t.Errorf("%s: reads %+v, of which nothing comes", mode, got)
			}
			total += got.to - got.off
		}
		if len(tail) != 3 || len(rec.reads) == 0 || len(wanted) > 30 {
			t.Fatalf("%s: %d batches by %d reads of %d files", mode, len(tail), len(rec.reads), len(wanted))
		}
	}
}

// Resumed anywhere, a pass that is left after one batch has read nothing but of samples
// that come within the next window.
func TestResumeReadsNoMoreThanAWindow(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 64, Samples: 256, Make: tiny})
	const window, batch = 2048, 16
	for _, c := range []Config{
		{Shuffle: ShuffleShards}, {Shuffle: ShuffleWindow}, {Shuffle: ShuffleGlobal},
		{Shuffle: ShuffleWindow, Sampling: Sampling{Weights: []Weight{{"label = 1", 2.5}}}},
		{Shuffle: ShuffleWindow, Buckets: Buckets{By: "label", Edges: []float64{2}}},
	} {
		c.BatchSize, c.Decode, c.Lanes, c.Window, c.Ends = batch, DecodeNone, 4, window, EndsExact
		rec := &recorder{Store: d.Store()}
		seen, err := dataset.New(rec, d.Manifest())
		if err != nil {
			t.Fatal(err)
		}
		r := newReader(t, seen, c)
		rec.reads = nil // what Sampling has read of indexes
		const from = 600
		s, err := r.State(1, from)
		if err != nil {
			t.Fatal(err)
		}
		for b, err := range r.Epochs(context.Background(), s, s.Epoch+1) {
			if err != nil {
				t.Fatal(err)
			}
			b.Release()
			break
		}
		p, err := r.Plan(1)
		if err != nil {
			t.Fatal(err)
		}
		type extent struct{ off, to int64 }
		wanted := map[string][]extent{}
		for b := int64(from); b < from+window/batch; b++ {
			for _, n := range p.Batch(nil, b, 0) {
				shard, at := p.Locate(n)
				sh := &d.Manifest().Splits[0].Shards[shard]
				rows, err := r.rows.get(context.Background(), shard)
				if err != nil {
					t.Fatal(err)
				}
				off := rows.cols[0].offset[at]
				wanted[sh.Name] = append(wanted[sh.Name], extent{off, off + rows.cols[0].size[at]})
			}
		}
		data := 0
		for _, got := range rec.reads {
			if strings.HasSuffix(got.name, ".parquet") {
				continue
			}
			data++
			begins, ends := false, false
			for _, w := range wanted[got.name] {
				begins, ends = begins || w.off == got.off, ends || w.to == got.to
			}
			if !begins || !ends {
				t.Errorf("%+v: reads %+v, of which nothing comes in the next window", c, got)
			}
		}
		if data == 0 {
			t.Errorf("%+v: nothing was read", c)
		}
	}
}

// imagenet is a data set of 1,281,000 samples in 1,281 shards, which all are the same
// file.
func imagenet(t testing.TB, st store.Store) *dataset.Dataset {
	t.Helper()
	one := datasettest.Write(t, st, datasettest.Options{Shards: 1, Samples: 1000, Make: plain})
	m := *one.Manifest()
	s := &m.Splits[0]
	sh := s.Shards[0]
	s.Shards = nil
	for range 1281 {
		s.Shards = append(s.Shards, sh)
	}
	s.Samples *= 1281
	s.Bytes *= 1281
	d, err := dataset.New(one.Store(), &m)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// To resume 1.28 million samples in costs no more than to begin, and less than 50 ms
// until the first batch is asked for; with buckets, too. Weights are drawn for the whole
// epoch, which is bound by the permutation that it walks through.
func TestResumeIsInstant(t *testing.T) {
	d := imagenet(t, mem.New())
	var all members // of all of its samples
	for s := range 1282 {
		all.starts = append(all.starts, int64(s)*1000)
	}
	which := make([]uint8, all.starts[1281])
	weights := make([]float64, len(which))
	for i := range which {
		all.rows = append(all.rows, uint32(i%1000))
		which[i] = uint8(i % 7 % 3)
		weights[i] = 0.5 + float64(i%5)/4
	}
	length, often, err := new(Sampling).weigh(weights)
	if err != nil {
		t.Fatal(err)
	}
	drawn := &chosen{split: all.starts, weighted: true}
	drawn.divide(all, nil, 1, often, length)
	bucketed := &chosen{split: all.starts, bucketed: true}
	bucketed.divide(all, which, 3, frequencies{}, int64(len(which)))
	start := time.Now()
	sum := int64(0)
	for range len(weights) / drawBlock {
		p := newPermutation(drawBlock, uint64(sum))
		for i := range int64(drawBlock) {
			sum += p.at(i)
		}
	}
	walk := time.Since(start)
	for _, c := range []struct {
		what   string
		chosen *chosen
		modes  []Shuffle
		limit  time.Duration
	}{
		{"", nil, modes, 50 * time.Millisecond},
		{"buckets", bucketed, modes, 50 * time.Millisecond},
		{"weights", drawn, modes[3:], 50*time.Millisecond + 5*walk},
	} {
		for _, mode := range c.modes {
			r := newReader(t, d, Config{BatchSize: 256, Shuffle: mode, Decode: DecodeNone})
			r.chosen = c.chosen
			if r.base, err = r.Plan(0); err != nil {
				t.Fatal(err)
			}
			var best time.Duration
			for try := range 5 {
				s, err := r.State(89+try, r.base.Batches()-1)
				if err != nil {
					t.Fatal(err)
				}
				s = throughJSON(t, s)
				start := time.Now()
				if err := r.CheckState(s); err != nil {
					t.Fatal(err)
				}
				p, err := r.newPass(context.Background(), s.Epoch, s.Batch, 1)
				if err != nil {
					t.Fatal(err)
				}
				if len(p.plans[0].Batch(nil, s.Batch, 0)) == 0 {
					t.Fatal("no batch")
				}
				if took := time.Since(start); best == 0 || took < best {
					best = took
				}
				p.end()
			}
			if best > c.limit {
				t.Errorf("%s %s: %v, more than %v", mode, c.what, best, c.limit)
			}
		}
	}
}

// Indexes that were made anew, with other labels, are other data where these decide what
// comes; where they do not, they are not.
func TestResumeOtherIndex(t *testing.T) {
	labelled := func(shift int64) *dataset.Dataset {
		return small(t, datasettest.Options{Make: func(n, classes int) datasettest.Made {
			m := datasettest.Sample(n, classes)
			m.Label = (m.Label + shift) % 5
			return m
		}})
	}
	a, b := labelled(0), labelled(1)
	for _, c := range []struct {
		s       Sampling
		b       Buckets
		differs bool
	}{
		{Sampling{}, Buckets{}, false},
		{Sampling{Where: "jpg.size > 1000"}, Buckets{Edges: []float64{1}}, false},
		{Sampling{Where: "label <> 3"}, Buckets{}, true},
		{Sampling{Balanced: true, Where: "label < 3"}, Buckets{}, true},
		{Sampling{Weights: []Weight{{"label = 1", 2}}}, Buckets{}, true},
		{Sampling{Weights: []Weight{{"label = 1", 0.5}}}, Buckets{Edges: []float64{1}}, true},
		{Sampling{}, Buckets{By: "label", Edges: []float64{2}}, true},
	} {
		config := Config{BatchSize: 2, Decode: DecodeNone, Sampling: c.s, Buckets: c.b}
		s, err := newReader(t, a, config).State(0, 2)
		if err != nil {
			t.Fatal(err)
		}
		if (s.Chosen == "") != (c.s.isZero() && c.b.isZero()) {
			t.Errorf("%+v, %+v: %q", c.s, c.b, s.Chosen)
		}
		s = throughJSON(t, s)
		if err := newReader(t, a, config).CheckState(s); err != nil {
			t.Error(err)
		}
		err = newReader(t, b, config).CheckState(s)
		if c.differs && (!errors.Is(err, ErrState) || !strings.Contains(err.Error(), "were labels or fields changed?")) || !c.differs && err != nil {
			t.Errorf("%+v, %+v: %v", c.s, c.b, err)
		}
	}
}

// From a state of 1.28 million samples in to its batch, in a new reader: with
// "first" the same for the epoch's first batch.
func BenchmarkResume(b *testing.B) {
	d := imagenet(b, mem.New())
	for _, mode := range modes {
		for _, place := range []string{"resume", "first"} {
			b.Run(string(mode)+"/"+place, func(b *testing.B) {
				for b.Loop() {
					r, err := New(context.Background(), d, Config{BatchSize: 256, Shuffle: mode, Decode: DecodeNone})
					if err != nil {
						b.Fatal(err)
					}
					at := int64(0)
					if place == "resume" {
						at = r.base.Batches() - 1
					}
					s, err := r.State(89, at)
					if err != nil {
						b.Fatal(err)
					}
					for batch, err := range r.Epochs(context.Background(), s, s.Epoch+1) {
						if err != nil {
							b.Fatal(err)
						}
						batch.Release()
						break
					}
					r.Close()
				}
			})
		}
	}
}
