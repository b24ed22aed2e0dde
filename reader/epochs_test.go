package reader

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/imaging/augment"
	"shardify/store"
	"shardify/store/fault"
	"shardify/store/mem"
)

// start is the state before a batch of an epoch.
func start(t testing.TB, r *Reader, epoch int, batch int64) State {
	t.Helper()
	s, err := r.State(epoch, batch)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A run of epochs has the batches of its epochs one by one, and the same states behind
// them, in every order, of every rank, drawn by weights, in buckets, read ahead over
// several epochs or little, and begun at any state round an epoch's end.
func TestEpochsSameAsOneByOne(t *testing.T) {
	for _, format := range []string{"tar", "tar.zst", "tar.gz"} {
		d := small(t, datasettest.Options{Format: format, Shards: 6, Samples: 9})
		for _, mode := range modes {
			for name, c := range map[string]Config{
				"image":    {Transform: crop, Fields: []string{"cls"}, Ends: EndsExact, World: 2, Rank: 1},
				"weighted": {Decode: DecodeNone, Sampling: Sampling{Balanced: true, Samples: 70}},
				"buckets":  {Transform: crop, Buckets: Buckets{Edges: []float64{1}}, Ends: EndsPad},
				"blends":   {Transform: crop, DType: DTypeFloat32, MixUp: &augment.MixUp{Alpha: 0.5}},
			} {
				if format != "tar" && name != "image" {
					continue // which samples come is not the format's matter
				}
				c.BatchSize, c.Shuffle, c.Lanes, c.Window, c.Interleave, c.Seed = 5, mode, 4, 24, 2, 5
				one := newReader(t, d, c)
				var want []copied
				var states []State
				for epoch := 1; epoch < 5; epoch++ {
					batches, behind := passOver(t, one.Epoch(t.Context(), epoch))
					want, states = append(want, batches...), append(states, behind...)
				}
				n := one.Len()
				for at, ahead := range map[int]int64{0: 0, 1: 20 << 10, n - 1: 64 << 20, n: 20 << 10, n + 1: 64 << 20, 3*n - 1: 0} {
					c.ReadAhead = ahead
					r := newReader(t, d, c)
					from := start(t, r, 1, 0)
					if at > 0 {
						from = throughJSON(t, states[at-1])
					}
					got, behind := passOver(t, r.Epochs(t.Context(), from, 5))
					if !reflect.DeepEqual(got, want[at:]) || !slices.Equal(behind, states[at:]) {
						t.Fatalf("%s, %s, %s, reading %d bytes ahead, from batch %d of epoch %d: not what the epochs have one by one",
							format, mode, name, ahead, from.Batch, from.Epoch)
					}
				}
			}
		}
	}
}

// The run ends before the epoch that it is told, has nothing where that has come, and else
// goes on for as long as it is read.
func TestEpochsEnd(t *testing.T) {
	r := newReader(t, small(t, datasettest.Options{}), Config{BatchSize: 7, Decode: DecodeNone})
	for _, c := range []struct{ epoch, end, batches int }{
		{0, 0, 0}, {3, 3, 0}, {3, 1, 0}, {0, 1, r.Len()}, {2, 5, 3 * r.Len()}, {7, -1, 40 * r.Len()},
	} {
		n := 0
		for b, err := range r.Epochs(t.Context(), start(t, r, c.epoch, 0), c.end) {
			if err != nil {
				t.Fatal(err)
			}
			if b.Epoch() != c.epoch+n/r.Len() || b.Number() != int64(n%r.Len()) {
				t.Fatalf("batch %d of epoch %d comes as the %d-th of epoch %d on", b.Number(), b.Epoch(), n, c.epoch)
			}
			b.Release()
			if n++; c.end < 0 && n == c.batches {
				break
			}
		}
		if n != c.batches {
			t.Errorf("from epoch %d to %d: %d batches, want %d", c.epoch, c.end, n, c.batches)
		}
	}
	for _, err := range r.Epochs(t.Context(), State{}, 1) {
		if !errors.Is(err, ErrState) {
			t.Errorf("the empty state: %v", err)
		}
	}
}

// Leaving the loop in a later epoch, a panic there, a cancelled context and Close end every
// goroutine at once, while the next epoch is being read already.
func TestEpochsLeave(t *testing.T) {
	d := datasettest.Write(t, remote{mem.New()}, datasettest.Options{Shards: 4, Make: blobs(4 << 10)})
	for name, leave := range map[string]func(r *Reader, cancel func()) (more bool){
		"break":  func(*Reader, func()) bool { return false },
		"panic":  func(*Reader, func()) bool { panic("the caller's") },
		"cancel": func(_ *Reader, cancel func()) bool { cancel(); return true },
		"close":  func(r *Reader, _ func()) bool { return r.Close() == nil },
	} {
		for _, at := range []int{0, 1, 5} { // of epoch 1, which has 6 batches
			r := newReader(t, d, Config{BatchSize: 7, Decode: DecodeNone, Ends: EndsExact, ReadAhead: 8 << 20})
			before := goleak.IgnoreCurrent()
			ctx, cancel := context.WithCancel(t.Context())
			func() {
				defer func() { _ = recover() }()
				for b, err := range r.Epochs(ctx, start(t, r, 0, 0), -1) {
					if err != nil {
						if !errors.Is(err, context.Canceled) && !errors.Is(err, ErrClosed) {
							t.Errorf("%s: %v", name, err)
						}
						break
					}
					here := b.Epoch() == 1 && b.Number() == int64(at)
					if b.Epoch() > 1 {
						t.Errorf("%s: it goes on", name)
						break
					}
					b.Release()
					if here && !leave(r, cancel) {
						break
					}
				}
			}()
			quiet(t, before)
			cancel()
		}
	}
}

// A run holds no more than its budget across epochs, and gives all of it back.
func TestEpochsMemory(t *testing.T) {
	d := datasettest.Write(t, remote{mem.New()}, datasettest.Options{Shards: 4, Samples: 64, Make: blobs(24 << 10)})
	for _, mode := range modes {
		for _, memory := range []int64{0, 5 << 20} {
			r := newReader(t, d, Config{BatchSize: 16, Decode: DecodeNone, Fields: []string{"bin"}, Shuffle: mode, Lanes: 2, Window: 100, Memory: memory})
			p, err := r.newPass(t.Context(), 0, 0, 5)
			if err != nil {
				t.Fatal(err)
			}
			p.start()
			n := 0
			var held []*Batch
			for {
				b, err := p.next()
				if err != nil {
					t.Fatal(err)
				}
				if b == nil {
					break
				}
				n++
				if held = append(held, b); len(held) > 2 {
					held[0].Release()
					held = held[1:]
				}
			}
			for _, b := range held {
				b.Release()
			}
			if n != 5*r.Len() {
				t.Errorf("%s: %d batches", mode, n)
			}
			if p.pool.peak > p.pool.size {
				t.Errorf("%s: %d bytes of %d", mode, p.pool.peak, p.pool.size)
			}
			if p.pool.used != p.pool.free || p.pool.ahead.Load() != 0 {
				t.Errorf("%s: %d bytes were not given back, %d of them spans", mode, p.pool.used-p.pool.free, p.pool.ahead.Load())
			}
			p.end()
			if st := r.Stats(); st.Memory.Peak > st.Memory.Limit {
				t.Errorf("%s: %+v", mode, st.Memory)
			}
		}
	}
}

// An error of a later epoch comes behind all batches before it, and names its sample,
// though reading is ahead.
func TestEpochsError(t *testing.T) {
	d := small(t, datasettest.Options{})
	damage(t, d, 10, 17)
	c := Config{BatchSize: 4, Transform: crop, Sampling: Sampling{Samples: 16, Distinct: true}, Workers: 4}
	// The first epoch that draws the damaged sample, and is not the first of all.
	r := newReader(t, d, c)
	from, at := -1, int64(-1)
	for epoch := 1; from < 0; epoch++ {
		clean := func(epoch int) int64 {
			p, err := r.Plan(epoch)
			if err != nil {
				t.Fatal(err)
			}
			b := int64(0)
			for b < p.Batches() && !slices.Contains(p.Batch(nil, b, 0), 17) {
				b++
			}
			return b
		}
		if clean(epoch-1) == int64(r.Len()) && clean(epoch) < int64(r.Len()) {
			from, at = epoch-1, clean(epoch)
		}
	}
	n, _, err := firstError(r.Epochs(t.Context(), start(t, r, from, 0), -1))
	var bad *SampleError
	if want := 4 * (r.Len() + int(at)); !errors.As(err, &bad) || bad.Sample != 17 || n != want {
		t.Errorf("%d samples, want %d, and then: %v", n, want, err)
	}
}

// MaxBad is the limit of an epoch: that much damage in each of many ends nothing, and one
// sample more ends the first.
func TestEpochsMaxBad(t *testing.T) {
	for _, most := range []int{2, 3} {
		d := small(t, datasettest.Options{})
		damage(t, d, 10, 3, 14, 16)
		r := newReader(t, d, Config{BatchSize: 4, Transform: crop, OnBad: OnBadSkip, MaxBad: most})
		n, bad, err := firstError(r.Epochs(t.Context(), start(t, r, 0, 0), 4))
		switch {
		case most == 2 && !errors.Is(err, ErrTooManyBad):
			t.Errorf("three of two: %v", err)
		case most == 3 && (err != nil || len(bad) != 4*3 || n != 4*(40-3)):
			t.Errorf("%d samples, %d damaged: %v", n, len(bad), err)
		}
	}
}

// A shard that was missing is there again in a later epoch.
func TestEpochsShardComesBack(t *testing.T) {
	st := mem.New()
	d := datasettest.Write(t, st, datasettest.Options{Shards: 4})
	name := d.Manifest().Splits[0].Shards[2].Name
	whole, err := store.ReadAll(t.Context(), st, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Remove(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	r := newReader(t, d, Config{BatchSize: 4, Decode: DecodeNone, OnBad: OnBadSkip, MaxBad: -1})
	bad := map[int]int{}
	for b, err := range r.Epochs(t.Context(), start(t, r, 0, 0), 9) {
		if err != nil {
			t.Fatal(err)
		}
		bad[b.Epoch()] += len(b.Bad())
		if b.Epoch() == 1 && b.Number() == 0 {
			if err := store.WriteAll(t.Context(), st, name, whole); err != nil {
				t.Fatal(err)
			}
		}
		b.Release()
	}
	if bad[0] != 10 || bad[8] != 0 {
		t.Errorf("%d samples were missing in the first epoch, want 10, and %d in the last", bad[0], bad[8])
	}
}

// Of a store that answers late, the first batch of a later epoch is waited for no longer
// than any other: epochs follow each other as batches do. In virtual time, where nothing
// but the store's answers and the consumer's steps takes any.
func TestEpochsHideLatency(t *testing.T) {
	const late, step, epochs = 50 * time.Millisecond, 20 * time.Millisecond, 4
	for _, mode := range modes {
		for name, window := range map[string]int{"several windows": 256, "one window": 1 << 20} {
			if mode != ShuffleWindow && window > 256 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", mode, name), func(t *testing.T) {
				st := mem.New()
				made := datasettest.Write(t, st, datasettest.Options{Shards: 8, Samples: 128, Make: blobs(24 << 10)})
				synctest.Test(t, func(t *testing.T) {
					slow := fault.New(remote{st}, fault.Config{Kinds: []fault.Kind{fault.ReadAt}, StallRate: 1, Stall: late})
					d, err := dataset.New(slow, made.Manifest())
					if err != nil {
						t.Fatal(err)
					}
					r := newReader(t, d, Config{
						BatchSize: 16, Decode: DecodeNone, Fields: []string{"bin"}, Shuffle: mode, Window: window, Lanes: 4, Interleave: 2,
						Workers: 2, // as many goroutines on every machine
					})
					waits := func(batches func(func(*Batch, error) bool)) (firsts, others time.Duration) {
						began := time.Now()
						for b, err := range batches {
							if err != nil {
								t.Fatal(err)
							}
							wait := time.Since(began)
							if b.Number() == 0 {
								firsts += wait
							} else {
								others += wait
							}
							b.Release()
							time.Sleep(step)
							began = time.Now()
						}
						return firsts, others
					}
					start := start(t, r, 0, 0)
					cold, _ := waits(r.Epochs(t.Context(), start, 1))
					start.Epoch = 1
					warm, _ := waits(r.Epochs(t.Context(), start, 2))
					start.Epoch = 2
					firsts, others := waits(r.Epochs(t.Context(), start, 2+epochs))
					t.Logf("first batches: %v cold, %v of one epoch, %v of %d epochs on end; all others of these %v", cold, warm, firsts, epochs, others)
					if warm < late || cold < 2*late {
						t.Fatalf("the store answers at once: this shows nothing")
					}
					if firsts > warm || others > 0 {
						t.Errorf("the first batches of %d epochs were waited for %v, the others %v; of one epoch it was %v", epochs, firsts, others, warm)
					}
				})
			})
		}
	}
}

// A stream's epochs follow each other, each as it is alone, up to the end; and a state goes
// on from anywhere.
func TestStreamEpochs(t *testing.T) {
	s := newStream(t, writeShards(t, t.TempDir(), "tar", []int{9, 11, 10}, ordinary), Config{BatchSize: 4, Window: 8, Transform: crop, Ends: EndsExact})
	var want []copied
	for epoch := range 3 {
		batches, _ := passOver(t, s.Epoch(t.Context(), epoch))
		want = append(want, batches...)
	}
	from, err := s.State(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, states := passOver(t, s.Epochs(t.Context(), from, 3))
	if !equalBatches(got, want) || states[len(states)-1].Epoch != 3 {
		t.Error("not what the epochs have one by one")
	}
	for _, at := range []int{3, len(want)/3 - 1, len(want) / 3} {
		if got, _ := passOver(t, s.Epochs(t.Context(), states[at], 3)); !equalBatches(got, want[at+1:]) {
			t.Errorf("behind batch %d: other batches", at)
		}
	}
	n := 0
	for b, err := range s.Epochs(t.Context(), from, -1) {
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
		if n++; n > len(want) {
			break
		}
	}
	if more, _ := passOver(t, s.Epochs(t.Context(), states[len(states)-1], 3)); n <= len(want) || len(more) > 0 {
		t.Errorf("%d batches without an end, %d behind it", n, len(more))
	}
}

// In a run of epochs, too, each byte is asked for once in each of them, in large requests:
// the next epoch's spans find room when those of the one before have had their turn, also
// where all of an epoch is one window, which ends at once. Where the last of that room comes
// late, a few samples are read alone, and once more within a span.
func TestEpochsRequests(t *testing.T) {
	const shards, samples, epochs = 4, 512, 4
	st := remote{mem.New()}
	d := datasettest.Write(t, st, datasettest.Options{Shards: shards, Samples: samples, Make: blobs(24 << 10)})
	for _, c := range []struct {
		shuffle Shuffle
		window  int
	}{{ShuffleNone, 0}, {ShuffleShards, 0}, {ShuffleWindow, 512}, {ShuffleWindow, shards * samples}} {
		seen, rec := recordedSet(t, st, d)
		r := newReader(t, seen, Config{
			BatchSize: 16, Decode: DecodeNone, Shuffle: c.shuffle, Window: c.window, Lanes: 8, Interleave: 2, Seed: 3,
		})
		n := 0
		for b, err := range r.Epochs(t.Context(), start(t, r, 0, 0), epochs) {
			if err != nil {
				t.Fatal(err)
			}
			n += b.Len()
			b.Release()
		}
		requests, bytes := rec.shardReads()
		t.Logf("%s, window of %d: %d requests for %d samples, %.1f MiB of %.1f", c.shuffle, c.window, requests, n, float64(bytes)/(1<<20), float64(epochs*r.split.Bytes)/(1<<20))
		if float64(requests) > 0.03*float64(n) || float64(bytes) > 1.1*float64(epochs*r.split.Bytes) {
			t.Errorf("%s, window of %d: %d requests for %d samples, %d bytes of %d", c.shuffle, c.window, requests, n, bytes, epochs*r.split.Bytes)
		}
	}
}
