package reader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"shardify/dataset/datasettest"
	"shardify/imaging/augment"
	"shardify/imaging/transform"
	"shardify/sample"
	"shardify/shard"
	"shardify/shard/compress"
	"shardify/shard/formats"
	"shardify/store/file"
)

// writeShards writes shards of samples, numbered on, as files of a format and returns
// their names.
func writeShards(t testing.TB, dir, format string, counts []int, make func(n int) sample.Sample) []string {
	t.Helper()
	f, err := formats.Parse(format)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	n := 0
	for i, count := range counts {
		name := filepath.Join(dir, fmt.Sprintf("x-%03d%s", i, f.Extension()))
		out, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		z, err := compress.NewWriter(out, f.Compression, 0)
		if err != nil {
			t.Fatal(err)
		}
		w := f.Container.NewWriter(z)
		for range count {
			s := make(n)
			if _, err := w.Write(&s, &shard.Facts{Label: -1, Image: -1}); err != nil {
				t.Fatal(err)
			}
			n++
		}
		if err := errors.Join(w.Close(), z.Close(), out.Close()); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// ordinary is sample n of datasettest.
func ordinary(n int) sample.Sample { return datasettest.Sample(n, 5).Sample }

func newStream(t testing.TB, names []string, c Config) *Stream {
	t.Helper()
	s, err := OpenStream(context.Background(), names, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// passOver copies the batches of a range.
func passOver(t testing.TB, batches func(func(*Batch, error) bool)) (all []copied, states []State) {
	t.Helper()
	for b, err := range batches {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, copyOf(b))
		states = append(states, b.State())
		b.Release()
	}
	return all, states
}

func keysOf(all []copied) (keys []string) {
	for _, c := range all {
		keys = append(keys, c.keys...)
	}
	return keys
}

// Every sample comes once in every epoch, over all ranks, with its label and its
// fields, in every format and shuffle.
func TestStreamEverySampleOnce(t *testing.T) {
	counts := []int{13, 1, 20, 7, 0, 11, 9}
	total := 61
	for _, f := range formats.All() {
		dir := t.TempDir()
		writeShards(t, dir, f.String(), counts, ordinary)
		for _, shuffle := range []Shuffle{ShuffleNone, ShuffleShards, ShuffleWindow} {
			worlds, epochs := []int{1, 3, 10}, 2
			if f.String() != "tar" { // what is in the shards does not decide who reads them
				worlds, epochs = worlds[1:2], 1
			}
			for _, world := range worlds {
				for epoch := range epochs {
					seen := map[string]bool{}
					for rank := range world {
						s := newStream(t, []string{dir}, Config{
							BatchSize: 4, Shuffle: shuffle, Window: 16, Seed: 3, Ends: EndsExact, Decode: DecodeNone, World: world, Rank: rank,
						})
						for b, err := range s.Epoch(context.Background(), epoch) {
							if err != nil {
								t.Fatal(err)
							}
							for i := range b.Len() {
								if seen[b.Key(i)] {
									t.Fatalf("%s, %s, world %d: sample %s comes twice", f, shuffle, world, b.Key(i))
								}
								seen[b.Key(i)] = true
								var n int
								if _, err := fmt.Sscanf(b.Key(i)[strings.LastIndexByte(b.Key(i), '_')+1:], "%d", &n); err != nil {
									t.Fatal(err)
								}
								want := datasettest.Sample(n, 5)
								if b.Labels()[i] != want.Label {
									t.Errorf("%s has the label %d", b.Key(i), b.Labels()[i])
								}
								for _, field := range want.Fields {
									if data, ok := b.Field(i, field.Name); !ok || string(data) != string(field.Data) {
										t.Errorf("%s: %s: field %s differs", f, b.Key(i), field.Name)
									}
								}
								if _, ok := b.Field(i, "seg.png"); ok != (n%3 == 0) {
									t.Errorf("%s has a mask: %v", b.Key(i), ok)
								}
							}
							b.Release()
						}
					}
					if len(seen) != total {
						t.Errorf("%s, %s, world %d: %d samples of %d", f, shuffle, world, len(seen), total)
					}
				}
			}
		}
	}
}

// The batches do not depend on workers or on how the shards are compressed, with
// pictures or without.
func TestStreamSameBytes(t *testing.T) {
	dir, zst, gz := t.TempDir(), t.TempDir(), t.TempDir()
	counts := []int{15, 20, 9, 16}
	names := writeShards(t, dir, "tar", counts, ordinary)
	for d, format := range map[string]string{zst: "tar.zst", gz: "tar.gz"} {
		writeShards(t, d, format, counts, ordinary)
	}
	for _, c := range []Config{
		{BatchSize: 8, Window: 20, Seed: 1, Transform: crop, Fields: []string{"cls", "seg.png"}},
		{BatchSize: 8, Window: 20, Seed: 1, Decode: DecodeNone, Ends: EndsExact},
	} {
		c.Workers = 1
		want, _ := passOver(t, newStream(t, names, c).Epoch(context.Background(), 1))
		c.Workers = 8
		for _, names := range [][]string{{dir}, {filepath.Join(zst, "x-{000..003}.tar.zst")}, {filepath.Join(gz, "*.gz")}} {
			s := newStream(t, names, c)
			got, _ := passOver(t, s.Epoch(context.Background(), 1))
			if !equalBatches(got, want) {
				t.Errorf("%s: other batches", names)
			}
			// A second pass of the same stream, beside nothing else's memory.
			if again, _ := passOver(t, s.Epoch(context.Background(), 1)); !equalBatches(again, want) {
				t.Errorf("%s: other batches in the second pass", names)
			}
			if other, _ := passOver(t, s.Epoch(context.Background(), 2)); slices.Equal(keysOf(other), keysOf(want)) {
				t.Errorf("%s: epoch 2 is as epoch 1", names)
			}
		}
	}
}

func equalBatches(a, b []copied) bool {
	return reflect.DeepEqual(a, b)
}

// Leaving the loop, a panic in it, a cancelled context and Close end all goroutines.
func TestStreamEnds(t *testing.T) {
	names := writeShards(t, t.TempDir(), "tar.gz", []int{50, 50, 50, 50}, ordinary)
	s := newStream(t, names, Config{BatchSize: 4, Window: 30, Transform: crop})
	before := goleak.IgnoreCurrent()
	for range 5 {
		for b, err := range s.Epoch(context.Background(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			b.Release()
			break
		}
		quiet(t, before)
		func() {
			defer func() { _ = recover() }()
			for range s.Epoch(context.Background(), 0) {
				panic("stop")
			}
		}()
		quiet(t, before)
		ctx, cancel := context.WithCancelCause(context.Background())
		why := errors.New("why")
		n := 0
		for b, err := range s.Epoch(ctx, 0) {
			if n++; err != nil {
				if !errors.Is(err, why) {
					t.Errorf("cancelled: %v", err)
				}
				break
			}
			b.Release()
			cancel(why)
		}
		if n < 2 || n > 3 {
			t.Errorf("%d batches", n)
		}
		cancel(nil)
		quiet(t, before)
	}
	for b, err := range s.Epoch(context.Background(), 0) {
		if err != nil {
			if !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
			break
		}
		b.Release()
		s.Close()
	}
	quiet(t, before)
}

// Restored at every step of an epoch, all that follows is the same to the last byte,
// and so are the next states; also where the shards cannot be skimmed.
func TestStreamResumeAtEveryStep(t *testing.T) {
	for _, format := range []string{"tar", "tar.gz", "tfrecord"} {
		names := writeShards(t, t.TempDir(), format, []int{13, 21, 8, 17}, ordinary)
		for name, c := range map[string]Config{
			"window":   {BatchSize: 5, Window: 12, Seed: 5, Transform: crop, Fields: []string{"cls"}},
			"exact":    {BatchSize: 5, Window: 300, Seed: 5, Decode: DecodeNone, Ends: EndsExact},
			"none":     {BatchSize: 7, Shuffle: ShuffleNone, Decode: DecodeNone},
			"samples":  {BatchSize: 5, Window: 12, Decode: DecodeNone, Sampling: Sampling{Samples: 150}},
			"bytes":    {BatchSize: 2, Window: 1000, Decode: DecodeNone, Memory: 8 << 20, Interleave: 1},
			"rank":     {BatchSize: 5, Window: 12, World: 2, Rank: 1, Decode: DecodeNone, Ends: EndsExact},
			"few":      {BatchSize: 2, Window: 7, World: 5, Rank: 3, Decode: DecodeNone, Ends: EndsExact},
			"few drop": {BatchSize: 2, Window: 7, World: 5, Rank: 4, Decode: DecodeNone},
		} {
			if format != "tar" && name != "window" && name != "samples" {
				continue // the order is not the format's matter, skimming to a place in it is
			}
			s := newStream(t, names, c)
			want, states := passOver(t, s.Epoch(context.Background(), 3))
			if last := states[len(states)-1]; last.Epoch != 4 || last.Batch != 0 {
				t.Errorf("%s, %s: the last state is %+v", format, name, last)
			}
			for i, state := range states[:len(states)-1] {
				got, next := passOver(t, s.Epochs(context.Background(), state, state.Epoch+1))
				if !equalBatches(got, want[i+1:]) {
					t.Fatalf("%s, %s: behind batch %d come other batches", format, name, i)
				}
				if fmt.Sprint(statesJSON(t, next)) != fmt.Sprint(statesJSON(t, states[i+1:])) {
					t.Fatalf("%s, %s: behind batch %d come other states", format, name, i)
				}
			}
		}
	}
}

func statesJSON(t *testing.T, states []State) (all []string) {
	for _, s := range states {
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := ParseState(data); err != nil || back.Batch != s.Batch || *back.Stream != *s.Stream {
			t.Fatalf("%s comes back as %+v, %v", data, back, err)
		}
		all = append(all, string(data))
	}
	return all
}

// A Stream gives the batches that a Reader gives of the same shards: only the order, and
// with it what is random, is its own.
func TestStreamAsReader(t *testing.T) {
	dir := t.TempDir()
	datasettest.Write(t, file.New(dir), datasettest.Options{})
	for _, c := range []Config{
		{Decode: DecodeNone},
		{Transform: transform.List{transform.Resize{Size: transform.Size{30}}, transform.CenterCrop{Size: transform.Size{24}}}, Fields: []string{"cls", "seg.png"}},
		{
			Transform: transform.List{transform.CenterCrop{Size: transform.Size{24}}}, DType: DTypeFloat32, Layout: LayoutNHWC,
			MixUp: &augment.MixUp{Alpha: 0.4}, Classes: 5,
		},
		{Decode: DecodeNone, Tensors: []TensorSpec{{Field: "cls", Name: "text", Kind: KindText, Collate: CollateRagged}}},
		{Decode: DecodeNone, Tensors: []TensorSpec{{Field: "cls", Name: "text", Kind: KindText, PadTo: 5}}, Fields: []string{"jpg"}},
	} {
		c.BatchSize, c.Shuffle, c.Ends = 7, ShuffleNone, EndsExact
		r, err := Open(context.Background(), dir, c)
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		for from, into := range map[interface {
			Epoch(context.Context, int) iter.Seq2[*Batch, error]
		}]*[]string{r: &want, newStream(t, []string{filepath.Join(dir, "train-{000000..000002}.tar")}, c): &got} {
			for b, err := range from.Epoch(context.Background(), 1) {
				if err != nil {
					t.Fatal(err)
				}
				copied := copyOf(b)
				copied.samples = nil
				blend, _ := b.Blend()
				fields := b.Fields()
				if c.allFields() { // a stream knows those of the batch only
					fields = nil
				}
				*into = append(*into, fmt.Sprint(copied, fields, blend, b.Tensors()))
				b.Release()
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if len(want) != 5 || !slices.Equal(got, want) {
			t.Errorf("%+v: other batches", c)
		}
	}
}
