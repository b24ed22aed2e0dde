package reader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"shardify/dataset/datasettest"
	"shardify/imaging/augment"
	"shardify/sample"
	"shardify/shard"
	"shardify/store/cache"
	"shardify/store/retry"
	"shardify/store/stream"
)

// firstError ranges over batches and returns how many samples come before the error.
func firstError(batches func(func(*Batch, error) bool)) (samples int, bad []*SampleError, err error) {
	for b, e := range batches {
		if e != nil {
			return samples, bad, e
		}
		samples += b.Len()
		bad = append(bad, b.Bad()...)
		b.Release()
	}
	return samples, bad, nil
}

// A shard that is cut or spoiled, in every format, ends a pass with its name and
// offset, or is read up to there.
func TestStreamDamagedShards(t *testing.T) {
	for _, format := range []string{"tar", "tar.gz", "tar.zst", "tfrecord"} {
		dir := t.TempDir()
		names := writeShards(t, dir, format, []int{10, 10, 10}, ordinary)
		whole, err := os.ReadFile(names[1])
		if err != nil {
			t.Fatal(err)
		}
		for what, spoil := range map[string][]byte{
			"cut":   whole[:len(whole)/2+100],
			"empty": {},
			"other": []byte(strings.Repeat("<html>", 1000)),
			"gone":  nil,
		} {
			if what == "empty" && format == "tfrecord" {
				continue // that is a shard without records
			}
			if err := os.WriteFile(names[1], spoil, 0o666); err != nil {
				t.Fatal(err)
			}
			c := Config{BatchSize: 4, Decode: DecodeNone, Ends: EndsExact, Shuffle: ShuffleNone}
			s := newStream(t, names, c)
			if what == "gone" { // after it was listed
				if err := os.Remove(names[1]); err != nil {
					t.Fatal(err)
				}
			}
			n, _, err := firstError(s.Epoch(context.Background(), 0))
			var one *SampleError
			if !errors.As(err, &one) || one.Shard != names[1] || n < 8 || n > 20 || !strings.Contains(err.Error(), names[1]) {
				t.Errorf("%s, %s: %d samples, then %v", format, what, n, err)
				continue
			}
			switch what {
			case "cut", "empty":
				if !errors.Is(err, shard.ErrTruncated) {
					t.Errorf("%s, %s: %v", format, what, err)
				}
			case "gone":
				if !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s, %s: %v", format, what, err)
				}
			}

			c.OnBad = OnBadSkip
			s = newStreamOf(t, names, c, names[1], spoil)
			all, bad, err := firstError(s.Epoch(context.Background(), 0))
			if err != nil || len(bad) != 1 || all < 20 || all > 29 || s.Stats().Skipped != 1 {
				t.Errorf("%s, %s, skipped: %d samples, %d bad, %v", format, what, all, len(bad), err)
				continue
			}
			if list := s.BadSamples(); len(list) != 1 || list[0].Shard != names[1] || list[0].Sample>>32 != 1 {
				t.Errorf("%s, %s: reported are %+v", format, what, list)
			}
			c.MaxBad = 1
			twice := newStreamOf(t, append(slices.Clone(names), names[1]), c, names[1], spoil)
			if _, _, err := firstError(twice.Epoch(context.Background(), 0)); !errors.Is(err, ErrTooManyBad) {
				t.Errorf("%s, %s, too many: %v", format, what, err)
			}
		}
	}
}

// newStreamOf is newStream; afterwards the named file has the content, or is gone.
func newStreamOf(t *testing.T, names []string, c Config, name string, content []byte) *Stream {
	t.Helper()
	if err := os.WriteFile(name, content, 0o666); err != nil {
		t.Fatal(err)
	}
	s := newStream(t, names, c)
	if content == nil {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// Damaged samples follow OnBad; the samples around them stay.
func TestStreamDamagedSamples(t *testing.T) {
	names := writeShards(t, t.TempDir(), "tar", []int{10, 10}, func(n int) sample.Sample {
		s := ordinary(n)
		switch n {
		case 4:
			s.Fields[1].Data = []byte("no image")
		case 13:
			s.Fields = s.Fields[:1]
		}
		return s
	})
	// One whose field comes twice, as no writer of ours would have it.
	twice, err := os.ReadFile(writeShards(t, t.TempDir(), "tar", []int{1}, ordinary)[0])
	if err != nil {
		t.Fatal(err)
	}
	member := twice[:1024] // header and content of cls
	archive := append(slices.Clone(member), twice...)
	odd := filepath.Join(t.TempDir(), "odd.tar")
	if err := os.WriteFile(odd, archive, 0o666); err != nil {
		t.Fatal(err)
	}
	names = append(names, odd)
	c := Config{BatchSize: 4, Transform: crop, Ends: EndsExact, Window: 8}
	_, _, err = firstError(newStream(t, names, c).Epoch(context.Background(), 0))
	var one *SampleError
	if !errors.As(err, &one) || one.Key == "" {
		t.Errorf("fails with %v", err)
	}
	c.OnBad = OnBadSkip
	s := newStream(t, names, c)
	n, bad, err := firstError(s.Epoch(context.Background(), 0))
	if err != nil || n != 18 || len(bad) != 3 {
		t.Errorf("%d samples, bad %v, %v", n, bad, err)
	}
	var why []string
	for _, b := range s.BadSamples() {
		why = append(why, b.Reason)
	}
	if all := strings.Join(why, "; "); !strings.Contains(all, "it has no image") || !strings.Contains(all, `the field "cls" twice`) {
		t.Errorf("reported are %s", all)
	}
}

func TestStreamConfig(t *testing.T) {
	names := writeShards(t, t.TempDir(), "tar", []int{3}, ordinary)
	for want, c := range map[string]Config{
		"split: streams have none":                      {Split: "train"},
		"sampling, but for samples: needs an index":     {Sampling: Sampling{Where: "label = 3"}},
		"buckets: needs an index":                       {Buckets: Buckets{By: "width"}},
		`on_bad "substitute": needs an index`:           {OnBad: OnBadSubstitute},
		`shuffle "global": needs an index`:              {Shuffle: ShuffleGlobal},
		"cache: needs an index":                         {Cache: cache.Config{Dir: "x"}},
		"interleave: shuffle \"none\" reads one":        {Shuffle: ShuffleNone, Interleave: 2},
		"lanes: 24; a stream has one for each rank, 1":  {Lanes: 24},
		"ends: \"pad\" cannot be":                       {Ends: EndsPad},
		"batch_size: -1":                                {BatchSize: -1},
		"window_bytes: -5":                              {WindowBytes: -5},
		"memory: 1048576 bytes do not hold":             {Memory: 1 << 20},
		"memory: 67108864 bytes do not hold":            {Memory: 64 << 20, WindowBytes: 63 << 20},
		"sampling: 10 samples are less than one global": {Sampling: Sampling{Samples: 10}},
		"classes: soft labels need their number":        {DType: DTypeFloat32, MixUp: &augment.MixUp{Alpha: 1}},
		"`shardify index` writes one beside the shards": {OnBad: OnBadSubstitute},
		"retry: attempts":                               {Retry: retry.Config{Attempts: -1}},
	} {
		if _, err := OpenStream(context.Background(), names, c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	s := newStream(t, names, Config{})
	c := s.Config()
	if c.Window != DefaultStreamWindow || c.WindowBytes != DefaultStreamBuffer || c.Memory == 0 || c.Shuffle != ShuffleWindow || c.Interleave != DefaultInterleave || c.Block != 1 {
		t.Errorf("the defaults are %+v", c)
	}
	again := newStream(t, names, c) // what it became is what it was
	if fmt.Sprint(again.Config()) != fmt.Sprint(c) {
		t.Errorf("%+v becomes %+v", c, again.Config())
	}
	// What the least memory that an error names holds is enough.
	for _, c := range []Config{{Memory: 1 << 20}, {Memory: 1 << 20, WindowBytes: 10 << 20}} {
		_, err := OpenStream(context.Background(), names, c)
		var least int64
		_, told, _ := strings.Cut(err.Error(), "give ")
		if _, e := fmt.Sscan(told, &least); e != nil {
			t.Fatal(err)
		}
		c.Memory = least
		newStream(t, names, c)
	}
	// A batch that never comes.
	if _, _, err := firstError(newStream(t, names, Config{BatchSize: 4, Decode: DecodeNone}).Epoch(context.Background(), 0)); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "have 3 samples, less than a batch of 4") {
		t.Errorf("fewer than a batch: %v", err)
	}
	none := writeShards(t, t.TempDir(), "tar", []int{0, 0}, ordinary)
	for _, c := range []Config{{Ends: EndsExact}, {Sampling: Sampling{Samples: 100}}} {
		if _, _, err := firstError(newStream(t, none, c).Epoch(context.Background(), 0)); err == nil || !strings.Contains(err.Error(), "there are no samples") {
			t.Errorf("no samples: %v", err)
		}
	}
}

// Ranks get equally many batches where they read the same shards, and where the epoch
// has a length.
func TestStreamRanks(t *testing.T) {
	names := writeShards(t, t.TempDir(), "tar", []int{10, 13, 4}, ordinary)
	for _, c := range []struct {
		config Config
		want   string // samples of each rank's batches
	}{
		{Config{World: 4, BatchSize: 3}, "[3 3] [3 3] [3 3] [3 3]"},
		{Config{World: 4, BatchSize: 3, Ends: EndsExact}, "[3 3 1] [3 3 1] [3 3 1] [3 3 0]"},
		{Config{World: 5, BatchSize: 4, Ends: EndsExact}, "[4 2] [4 2] [4 1] [4 1] [4 1]"},
		{Config{World: 3, BatchSize: 5, Sampling: Sampling{Samples: 64}}, "[5 5 5 5] [5 5 5 5] [5 5 5 5]"},
		{Config{World: 3, BatchSize: 5, Ends: EndsExact, Sampling: Sampling{Samples: 64}}, "[5 5 5 5 2] [5 5 5 5 1] [5 5 5 5 1]"},
		{Config{World: 2, BatchSize: 5, Ends: EndsPad, Sampling: Sampling{Samples: 11}}, "[5 5] [5 5]"},
		{Config{World: 4, BatchSize: 2, Ends: EndsExact, Sampling: Sampling{Samples: 9}}, "[2 1] [2 0] [2 0] [2 0]"},
	} {
		var got []string
		for rank := range c.config.World {
			config := c.config
			config.Rank, config.Decode, config.Window = rank, DecodeNone, 6
			s := newStream(t, names, config)
			all, _ := passOver(t, s.Epoch(context.Background(), 0))
			sizes := []int{}
			for _, b := range all {
				sizes = append(sizes, len(b.keys))
			}
			got = append(got, fmt.Sprint(sizes))
			if n, known := s.Len(); known != (config.Sampling.Samples > 0) || known && n != int64(len(all)) {
				t.Errorf("%+v: Len is %d, %v, where %d came", config, n, known, len(all))
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("world %d, ends %s: %s, want %s", c.config.World, c.config.Ends, text, c.want)
		}
	}
}

// The order that a seed stands for, which must be the same in every release.
func TestStreamFrozen(t *testing.T) {
	names := writeShards(t, t.TempDir(), "tar", []int{4, 4, 4, 4, 4}, ordinary)
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{}, "0.0 1.1 2.1 4.0 1.0 0.2 4.2 2.0 2.3 0.3 0.1 2.2 4.3 3.1 3.3 1.3 1.2 3.2 4.1 3.0"},
		{Config{Interleave: 2, Block: 2}, "2.1 0.2 2.2 0.1 0.0 1.1 4.1 2.0 1.2 1.3 2.3 1.0 4.3 3.1 3.3 4.2 4.0 3.2 0.3 3.0"},
		{Config{Shuffle: ShuffleShards}, "2.0 2.1 2.2 2.3 0.0 0.1 0.2 0.3 1.0 1.1 1.2 1.3 4.0 4.1 4.2 4.3 3.0 3.1 3.2 3.3"},
		{Config{Shuffle: ShuffleNone}, "0.0 0.1 0.2 0.3 1.0 1.1 1.2 1.3 2.0 2.1 2.2 2.3 3.0 3.1 3.2 3.3 4.0 4.1 4.2 4.3"},
		{Config{World: 2, Rank: 1}, "4.2 0.0 4.1 4.3 0.2 4.0 0.1 0.3"},
		{Config{World: 6, Rank: 4}, "1.2 2.1 3.0"},
		{Config{Sampling: Sampling{Samples: 12}, Interleave: 1}, "2.1 0.2 0.0 2.3 2.2 1.1 1.3 2.0 4.0 4.1 0.1 1.0"},
	} {
		c.config.Decode, c.config.BatchSize, c.config.Ends, c.config.Seed = DecodeNone, 5, EndsExact, 7
		c.config.Window = 6
		all, _ := passOver(t, newStream(t, names, c.config).Epoch(context.Background(), 1))
		var got []string
		for _, b := range all {
			for _, n := range b.samples {
				got = append(got, fmt.Sprintf("%d.%d", n>>32, n&(1<<32-1)))
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s %d×%d, world %d: %q, want %q", c.config.Shuffle, c.config.Interleave, c.config.Block, c.config.World, text, c.want)
		}
	}
}

// A state of other streams or of another order is refused, and one to which the
// shards do not lead any more, too.
func TestStreamResumeRefuses(t *testing.T) {
	dir := t.TempDir()
	names := writeShards(t, dir, "tar", []int{10, 10, 10}, ordinary)
	config := Config{BatchSize: 4, Window: 8, Decode: DecodeNone, Seed: 1}
	_, states := passOver(t, newStream(t, names, config).Epoch(context.Background(), 0))
	state := states[2]
	for want, c := range map[string]struct {
		names  []string
		change func(c *Config)
	}{
		"streams: the state is of 3":         {names[:2], func(*Config) {}},
		"seed: the state has 1":              {names, func(c *Config) { c.Seed = 2 }},
		"window: the state has 8":            {names, func(c *Config) { c.Window = 9 }},
		"batch_size: the state has 4":        {names, func(c *Config) { c.BatchSize = 2 }},
		"world: the state has 1":             {names, func(c *Config) { c.World = 2 }},
		"interleave: the state has 4":        {names, func(c *Config) { c.Interleave = 2 }},
		"block: the state has 1":             {names, func(c *Config) { c.Block = 2 }},
		"ends: the state has drop":           {names, func(c *Config) { c.Ends = EndsExact }},
		"shuffle: the state has window":      {names, func(c *Config) { c.Shuffle = ShuffleShards }},
		"sampling: the state has none":       {names, func(c *Config) { c.Sampling.Samples = 20 }},
		"window_bytes: the state has 268435": {names, func(c *Config) { c.Memory = 64 << 20 }},
	} {
		other := config
		c.change(&other)
		err := newStream(t, c.names, other).CheckState(state)
		if !errors.Is(err, ErrState) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	// What decides nothing may differ, and a config may come from the state.
	same := newStream(t, names, state.Config(Config{Decode: DecodeNone, Workers: 3}))
	if err := same.CheckState(state); err != nil {
		t.Error(err)
	}
	s := newStream(t, names, config)
	for _, bad := range []State{{}, {Version: 9}, {Version: 1}} {
		if err := s.CheckState(bad); !errors.Is(err, ErrState) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	late := state
	late.Batch = 99
	if _, _, err := firstError(s.Epochs(context.Background(), late, late.Epoch+1)); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "before batch 99 of epoch 0, which has 7") {
		t.Errorf("beyond the end: %v", err)
	}
	// At the end of an epoch whose end was not known, the next comes.
	end := state
	end.Batch, end.Stream = 7, &StreamState{Buffer: state.Stream.Buffer}
	next, _ := passOver(t, newStream(t, names, config).Epoch(context.Background(), 1))
	if got, _ := passOver(t, s.Epochs(context.Background(), end, end.Epoch+2)); !equalBatches(got, next) {
		t.Error("behind the last batch does not come the next epoch")
	}
	// The same names, other samples.
	writeShards(t, dir, "tar", []int{9, 11, 10}, ordinary)
	if _, _, err := firstError(s.Epochs(context.Background(), state, state.Epoch+1)); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "other samples now") {
		t.Errorf("other shards: %v", err)
	}
	// A data set's reader and a stream do not take each other's states.
	r := newReader(t, small(t, datasettest.Options{}), Config{BatchSize: 4, Decode: DecodeNone})
	own, err := r.State(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CheckState(own); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "with an index") {
		t.Errorf("a reader's state: %v", err)
	}
	if err := r.CheckState(state); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "of a stream") {
		t.Errorf("a stream's state: %v", err)
	}
}

// To find a place, of tars on a disk little more than the headers is read.
func TestStreamResumeSkims(t *testing.T) {
	big := func(n int) sample.Sample {
		return sample.Sample{Key: fmt.Sprint(n), Fields: []sample.Field{{Name: "bin", Data: bytes.Repeat([]byte{byte(n)}, 200<<10)}, {Name: "cls", Data: []byte("1")}}}
	}
	names := writeShards(t, t.TempDir(), "tar", []int{40, 40, 40}, big)
	config := Config{BatchSize: 5, Window: 10, Decode: DecodeNone}
	want, states := passOver(t, newStream(t, names, config).Epoch(context.Background(), 0))
	s := newStream(t, names, config)
	got, _ := passOver(t, s.Epochs(context.Background(), states[19], states[19].Epoch+1))
	if !equalBatches(got, want[20:]) {
		t.Error("other batches")
	}
	// 100 samples were skimmed, 20 and the 10 in the buffer read.
	if n := s.Stats().ReadBytes; n > 33*200<<10+120*16<<10 {
		t.Errorf("%d bytes were read of %d", n, 120*200<<10)
	}
}

// A pass holds no more than its budget, unless a sample alone does.
func TestStreamMemoryBound(t *testing.T) {
	for _, format := range []string{"tar", "tfrecord"} {
		const outlier = 40 << 20
		names := writeShards(t, t.TempDir(), format, []int{60, 60, 60}, func(n int) sample.Sample {
			size := 20<<10 + n*1000%(60<<10)
			if n == 70 {
				size = outlier
			}
			return sample.Sample{Key: fmt.Sprintf("%04d", n), Fields: []sample.Field{
				{Name: "bin", Data: bytes.Repeat([]byte{byte(n)}, size)}, {Name: "cls", Data: fmt.Append(nil, n)},
			}}
		})
		config := Config{BatchSize: 4, Decode: DecodeNone, Ends: EndsExact, Memory: 16 << 20}
		s := newStream(t, names, config)
		most := int64(0)
		seen := map[string]bool{}
		for b, err := range s.Epoch(context.Background(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			large := false
			for i := range b.Len() {
				data, _ := b.Field(i, "bin")
				if n := b.Labels()[i]; len(data) == 0 || data[0] != byte(n) || data[len(data)-1] != byte(n) {
					t.Errorf("%s: sample %d has %d bytes", format, n, len(data))
				}
				seen[b.Key(i)] = true
				large = large || len(data) == outlier
			}
			b.Release()
			if used := s.Stats().Memory.Used; !large {
				most = max(most, used)
			}
		}
		if len(seen) != 180 {
			t.Errorf("%s: %d samples", format, len(seen))
		}
		// The outlier lies in its block, then in its batch's slab beside it.
		if peak := s.Stats().Memory.Peak; peak > config.Memory+2*outlier*9/8 {
			t.Errorf("%s: %d bytes were held at most", format, peak)
		}
		if runtime.GC(); s.Stats().Memory.Used > config.Memory {
			t.Errorf("%s: %d bytes are held after the pass", format, s.Stats().Memory.Used)
		}
		// Without it, the bound is kept.
		s = newStream(t, []string{names[0], names[2]}, config)
		if n, _, err := firstError(s.Epoch(context.Background(), 0)); n != 120 || err != nil {
			t.Errorf("%s: %d samples, %v", format, n, err)
		}
		if st := s.Stats().Memory; st.Peak > config.Memory {
			t.Errorf("%s: %d bytes of %d were held", format, st.Peak, config.Memory)
		}
	}
}

// Releasing late does not lock a pass up: two batches may always be held.
func TestStreamHeldBatches(t *testing.T) {
	names := writeShards(t, t.TempDir(), "tar", []int{60, 60, 60}, func(n int) sample.Sample {
		return sample.Sample{Key: fmt.Sprint(n), Fields: []sample.Field{{Name: "bin", Data: make([]byte, 100<<10)}}}
	})
	s := newStream(t, names, Config{BatchSize: 10, Decode: DecodeNone, Memory: 8 << 20})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var held *Batch
	n := 0
	for b, err := range s.Epoch(ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; held != nil {
			held.Release()
		}
		held = b
	}
	held.Release()
	if n != 18 {
		t.Errorf("%d batches", n)
	}
}

// web is a server of a folder, with whims.
type web struct {
	dir      string
	requests atomic.Int64
	whim     func(n int64, w http.ResponseWriter, r *http.Request) bool
}

func (s *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := s.requests.Add(1)
	if s.whim != nil && s.whim(n, w, r) {
		return
	}
	http.ServeFile(w, r, filepath.Join(s.dir, filepath.Base(r.URL.Path)))
}

// Over HTTP come the same batches as from the disk, also from a server that breaks off,
// is busy, and knows no ranges; what changes is an error.
func TestStreamHTTP(t *testing.T) {
	dir := t.TempDir()
	names := writeShards(t, dir, "tar.gz", []int{30, 30, 30}, ordinary)
	config := Config{BatchSize: 8, Window: 20, Transform: crop, Retry: retry.Config{Backoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond}}
	for i := range names {
		names[i] = filepath.Base(names[i])
	}
	var want []copied
	for what, whim := range map[string]func(n int64, w http.ResponseWriter, r *http.Request) bool{
		"": nil,
		"busy": func(n int64, w http.ResponseWriter, _ *http.Request) bool {
			if n%3 != 0 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return n%3 != 0
		},
		"breaks off": func(n int64, w http.ResponseWriter, r *http.Request) bool {
			if n > 12 {
				return false
			}
			http.ServeFile(&breaking{w, 9000}, r, filepath.Join(dir, filepath.Base(r.URL.Path)))
			return true
		},
		"no ranges": func(n int64, w http.ResponseWriter, r *http.Request) bool {
			r.Header.Del("Range")
			if n%2 == 0 {
				return false
			}
			http.ServeFile(&breaking{w, 9000}, r, filepath.Join(dir, filepath.Base(r.URL.Path)))
			return true
		},
	} {
		server := httptest.NewServer(&web{dir: dir, whim: whim})
		s := newStream(t, []string{server.URL + "/x-{000..002}.tar.gz?token=secret"}, config)
		got, states := passOver(t, s.Epoch(context.Background(), 0))
		if want == nil {
			want = got
		} else if !slices.Equal(keysOf(got), keysOf(want)) || !equalBatches(got, want) {
			t.Errorf("%s: other batches", what)
		}
		if rest, _ := passOver(t, s.Epochs(context.Background(), states[3], states[3].Epoch+1)); !equalBatches(rest, want[4:]) {
			t.Errorf("%s: other batches after resuming", what)
		}
		if strings.Contains(states[0].Data.Name, "secret") {
			t.Errorf("the state has the secret: %s", states[0].Data.Name)
		}
		if st := s.Stats(); what != "" && st.Retries == 0 {
			t.Errorf("%s: %+v", what, st)
		}
		server.Close()
	}

	changing := httptest.NewServer(&web{dir: dir, whim: func(n int64, w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("ETag", fmt.Sprintf(`"%d"`, n))
		http.ServeFile(&breaking{w, 9000}, r, filepath.Join(dir, filepath.Base(r.URL.Path)))
		return true
	}})
	defer changing.Close()
	config.OnBad = OnBadSkip
	if _, _, err := firstError(newStream(t, []string{changing.URL + "/x-000.tar.gz"}, config).Epoch(context.Background(), 0)); !errors.Is(err, stream.ErrChanged) || !strings.Contains(err.Error(), "x-000.tar.gz") {
		t.Errorf("changing: %v", err)
	}
	missing := httptest.NewServer(&web{dir: dir})
	defer missing.Close()
	config.OnBad = OnBadFail
	if _, _, err := firstError(newStream(t, []string{missing.URL + "/y.tar"}, config).Epoch(context.Background(), 0)); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "check the URL") {
		t.Errorf("missing: %v", err)
	}
}

// breaking ends an answer after some bytes of its body.
type breaking struct {
	http.ResponseWriter
	left int
}

func (b *breaking) Write(p []byte) (int, error) {
	if len(p) > b.left {
		_, _ = b.ResponseWriter.Write(p[:b.left])
		b.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	b.left -= len(p)
	return b.ResponseWriter.Write(p)
}

// A server's latency is that of the first shards alone: the others are opened while
// they are not needed yet.
func TestStreamHidesLatency(t *testing.T) {
	dir := t.TempDir()
	writeShards(t, dir, "tar", slices.Repeat([]int{8}, 24), ordinary)
	// No answer comes before four requests wait for one.
	var waiting atomic.Int64
	four := make(chan struct{})
	server := httptest.NewServer(&web{dir: dir, whim: func(_ int64, _ http.ResponseWriter, r *http.Request) bool {
		if waiting.Add(1) == 4 {
			close(four)
		}
		select {
		case <-four:
		case <-time.After(time.Minute):
			t.Error("fewer than four shards are asked for at once")
		}
		return false
	}})
	defer server.Close()
	s := newStream(t, []string{server.URL + "/x-{000..023}.tar"}, Config{BatchSize: 8, Window: 8, Decode: DecodeNone})
	if n, _, err := firstError(s.Epoch(context.Background(), 0)); n != 192 || err != nil {
		t.Fatalf("%d samples, %v", n, err)
	}
}

// Standard input is read once: a second pass says so.
func TestStreamStdin(t *testing.T) {
	name := writeShards(t, t.TempDir(), "tar.zst", []int{20}, ordinary)[0]
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	old := os.Stdin
	os.Stdin = file
	defer func() { os.Stdin = old }()
	s := newStream(t, []string{"-"}, Config{BatchSize: 5, Decode: DecodeNone})
	all, states := passOver(t, s.Epoch(context.Background(), 0))
	if len(all) != 4 {
		t.Errorf("%d batches", len(all))
	}
	for _, err := range s.Epochs(context.Background(), states[0], states[0].Epoch+1) {
		if err == nil || !strings.Contains(err.Error(), "cannot be read again") {
			t.Errorf("a second pass: %v", err)
		}
	}
	// Another process that is given the same bytes goes on.
	if _, err := file.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	s = newStream(t, []string{"-"}, Config{BatchSize: 5, Decode: DecodeNone})
	if rest, _ := passOver(t, s.Epochs(context.Background(), states[0], states[0].Epoch+1)); !equalBatches(rest, all[1:]) {
		t.Error("other batches after resuming")
	}
}
