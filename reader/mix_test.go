package reader

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shardify/dataset/datasettest"
	"shardify/imaging"
	"shardify/store/file"
)

// two are data sets of 30 and 60 samples on disk, as tar and .tar.zst; the samples of
// the second are numbers 100 and up of datasettest.
func two(t *testing.T) []Source {
	t.Helper()
	a, b := t.TempDir(), t.TempDir()
	datasettest.Write(t, file.New(a), datasettest.Options{})
	datasettest.Write(t, file.New(b), datasettest.Options{
		Shards: 4, Samples: 15, Format: "tar.zst", Splits: []string{"test", "val"},
		Make: func(n, classes int) datasettest.Made { return datasettest.Sample(40+n, classes) },
	})
	return []Source{{URL: a}, {URL: b, Split: "val"}}
}

// mixedSample is the number that sample n of the mixture has in datasettest.
func mixedSample(n int64) int {
	if n < 30 {
		return int(n)
	}
	return 40 + 60 + int(n) - 30 // the second split
}

func openMix(t *testing.T, sources []Source, c Config) *Reader {
	t.Helper()
	r, err := OpenMix(context.Background(), sources, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// Several data sets are read as one: every sample once, with what it has in its own; in
// every mode, over ranks.
func TestMix(t *testing.T) {
	sources := two(t)
	for _, mode := range modes {
		for _, world := range []int{1, 2} {
			var all []int64
			for rank := range world {
				c := Config{BatchSize: 7, World: world, Rank: rank, Shuffle: mode, Lanes: 4, Window: 32, Ends: EndsExact, Transform: crop, Fields: []string{"cls", "jpg"}}
				r := openMix(t, sources, c)
				if r.Samples() != 90 {
					t.Fatalf("%d samples", r.Samples())
				}
				for b, err := range r.Epoch(context.Background(), 1) {
					if err != nil {
						t.Fatal(err)
					}
					for i, n := range b.Samples() {
						want := datasettest.Sample(mixedSample(n), 5)
						jpg, _ := b.Field(i, "jpg")
						if b.Key(i) != want.Key || b.Labels()[i] != want.Label || string(jpg) != string(want.Fields[1].Data) {
							t.Errorf("sample %d is %q, want %q", n, b.Key(i), want.Key)
						}
						if s, err := r.Source(n); err != nil || (s == 1) != (n >= 30) {
							t.Errorf("sample %d is of source %d, %v", n, s, err)
						}
					}
					all = append(all, b.Samples()...)
					b.Release()
				}
			}
			slices.Sort(all)
			for i, n := range all {
				if int64(i) != n || len(all) != 90 {
					t.Fatalf("%s, world %d: %v", mode, world, all)
				}
			}
		}
	}
}

// Each data set has its share of an epoch.
func TestShares(t *testing.T) {
	sources := two(t)
	for _, c := range []struct {
		s     Sampling
		total int64
		first float64
	}{
		{Sampling{Shares: []float64{1, 1}}, 90, 45},
		{Sampling{Shares: []float64{3, 1}, Samples: 200}, 200, 150},
		{Sampling{Shares: []float64{0, 2}}, 90, 0},
		{Sampling{Shares: []float64{1, 1}, Balanced: true, Where: "label <> 0 or key > 'class-000/img_00011'"}, 0, 0},
		{Sampling{Samples: 45}, 45, 15},
	} {
		r := openMix(t, sources, Config{BatchSize: 5, Decode: DecodeNone, Sampling: c.s})
		if c.total == 0 {
			c.total, c.first = r.Samples(), float64(r.Samples())/2
		}
		const epochs = 100
		first := 0.0
		for epoch := range epochs {
			p, err := r.Plan(epoch)
			if err != nil {
				t.Fatal(err)
			}
			list := places(p)
			if int64(len(list)) != c.total {
				t.Fatalf("%+v: %d samples, want %d", c.s, len(list), c.total)
			}
			for _, n := range list {
				if n < 30 {
					first++
				}
			}
		}
		if got := first / epochs; math.Abs(got-c.first) > 1.5 {
			t.Errorf("%+v: %v of the first, want %v", c.s, got, c.first)
		}
	}
}

// A mixture resumes at every step, and only as the same mixture.
func TestResumeMix(t *testing.T) {
	sources := two(t)
	c := Config{BatchSize: 8, Shuffle: ShuffleWindow, Lanes: 2, Window: 24, Transform: crop, Sampling: Sampling{Shares: []float64{2, 1}}}
	r := openMix(t, sources, c)
	start, err := r.State(3, 0)
	if err != nil {
		t.Fatal(err)
	}
	whole, states := tailOf(t, r, start)
	for step, s := range states[:len(states)-1] {
		if got, _ := tailOf(t, openMix(t, sources, c), throughJSON(t, s)); !reflect.DeepEqual(got, whole[step+1:]) {
			t.Fatalf("resumed behind batch %d: other batches", step)
		}
	}
	if err := openMix(t, sources, states[0].Config(Config{Decode: DecodeNone})).CheckState(states[0]); err != nil {
		t.Errorf("from the state: %v", err)
	}
	for what, other := range map[string][]Source{"order": {sources[1], sources[0]}, "split": {sources[0], {URL: sources[1].URL, Split: "test"}}} {
		if err := openMix(t, other, c).CheckState(states[0]); !errors.Is(err, ErrState) {
			t.Errorf("another %s: %v", what, err)
		}
	}
	c.Sampling.Shares = []float64{1, 2}
	if err := openMix(t, sources, c).CheckState(states[0]); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "sampling") {
		t.Errorf("other shares: %v", err)
	}
}

func TestMixFaults(t *testing.T) {
	sources := two(t)
	for _, c := range []struct {
		sources []Source
		config  Config
		want    string
	}{
		{nil, Config{}, "no sources"},
		{sources, Config{Split: "val"}, `has split "val", the config "val"`},
		{[]Source{sources[0], {URL: sources[1].URL, Split: "x"}}, Config{}, `no split "x"`},
		{sources, Config{Sampling: Sampling{Shares: []float64{1}}}, "shares: 1 of them for 2 data sets"},
		{sources, Config{Sampling: Sampling{Shares: []float64{0, 0}}}, "sum up to 0"},
		{sources, Config{Sampling: Sampling{Shares: []float64{1, -1}}}, "shares 2: -1"},
		{sources, Config{Sampling: Sampling{Shares: []float64{1, 1}, Where: "key < 'class-000/img_00009'", Labels: []string{"0"}}}, "source 2 has no sample"},
		{append(slices.Clone(sources), Source{URL: t.TempDir()}), Config{}, "nothing is there"},
	} {
		c.config.BatchSize, c.config.Decode = 4, DecodeNone
		if _, err := OpenMix(context.Background(), c.sources, c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v %+v: %v, want %q", c.sources, c.config.Sampling, err, c.want)
		}
	}
}

// Buckets divide the samples of all data sets.
func TestMixBuckets(t *testing.T) {
	c := Config{BatchSize: 7, Shuffle: ShuffleWindow, Lanes: 4, Window: 32, Ends: EndsExact, Transform: crop, Buckets: Buckets{Edges: []float64{0.8, 1.2}}}
	r := openMix(t, two(t), c)
	var all []int64
	for b, err := range r.Epoch(context.Background(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range b.Samples() {
			made := datasettest.Sample(mixedSample(n), 5)
			info, err := imaging.Probe(made.Fields[1].Data)
			if err != nil {
				t.Fatal(err)
			}
			k := 0
			for _, e := range c.Buckets.Edges {
				if float64(info.Width)/float64(info.Height) >= e {
					k++
				}
			}
			if b.Key(i) != made.Key || k != b.Bucket() {
				t.Errorf("sample %d of %d x %d is %q in bucket %d, want %q", n, info.Width, info.Height, b.Key(i), b.Bucket(), made.Key)
			}
		}
		all = append(all, b.Samples()...)
		b.Release()
	}
	slices.Sort(all)
	for i, n := range all {
		if n != int64(i) {
			t.Fatalf("%v", all)
		}
	}
	if len(all) != 90 {
		t.Errorf("%d samples", len(all))
	}
	// A field that only one of them has is no value of all.
	c.Buckets = Buckets{By: "txt.size", Edges: []float64{1}}
	if _, err := OpenMix(context.Background(), two(t), c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), `no field "txt"`) {
		t.Error(err)
	}
}
