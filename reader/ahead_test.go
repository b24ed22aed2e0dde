package reader

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/sample"
	"shardify/store"
	"shardify/store/fault"
	"shardify/store/file"
	"shardify/store/mem"
)

// remote is a store that says it lies elsewhere.
type remote struct{ store.Store }

func (remote) URL() string { return "test://elsewhere" }

// blobs makes samples of so many random bytes and a number.
func blobs(size int) func(n, classes int) datasettest.Made {
	rng := rand.New(rand.NewPCG(3, 3))
	data := make([]byte, 2*size)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return func(n, classes int) datasettest.Made {
		m := datasettest.Made{Label: int64(n % classes)}
		m.Key = fmt.Sprintf("%06d", n)
		at := n * 37 % size
		m.Fields = []sample.Field{{Name: "bin", Data: data[at : at+size]}, {Name: "cls", Data: fmt.Append(nil, m.Label)}}
		return m
	}
}

// recorded wraps a data set so that reads of its shards are recorded.
func recordedSet(t testing.TB, st store.Store, d *dataset.Dataset) (*dataset.Dataset, *recorder) {
	t.Helper()
	rec := &recorder{Store: st}
	seen, err := dataset.New(rec, d.Manifest())
	if err != nil {
		t.Fatal(err)
	}
	return seen, rec
}

// shardReads are the reads of shards, and their bytes.
func (s *recorder) shardReads() (n int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.reads {
		if strings.HasSuffix(r.name, ".tar") || strings.HasSuffix(r.name, ".tfrecord") {
			n++
			bytes += r.to - r.off
		}
	}
	return n, bytes
}

// A store that counts requests is asked for spans: under ShuffleNone, ShuffleShards and
// ShuffleWindow each byte is asked for once, nearly all in requests of 4 MiB and more.
// Under ShuffleGlobal it is a request a sample.
func TestReadAheadRequests(t *testing.T) {
	const size, shards, samples = 24 << 10, 4, 512
	for _, format := range []string{"tar", "tfrecord"} {
		st := remote{mem.New()}
		d := datasettest.Write(t, st, datasettest.Options{Format: format, Shards: shards, Samples: samples, Make: blobs(size)})
		for mode, most := range map[Shuffle]float64{ShuffleNone: 0.02, ShuffleShards: 0.02, ShuffleWindow: 0.03, ShuffleGlobal: 1.2} {
			seen, rec := recordedSet(t, st, d)
			r := newReader(t, seen, Config{
				BatchSize: 16, Decode: DecodeNone, Shuffle: mode, Lanes: 2, Window: 1024, Interleave: 2, Seed: 3, SkipChecksums: true,
			})
			n := 0
			for b, err := range r.Epoch(context.Background(), 0) {
				if err != nil {
					t.Fatal(err)
				}
				n += b.Len()
				b.Release()
			}
			requests, bytes := rec.shardReads()
			t.Logf("%s %s: %d requests for %d samples, %.1f MiB of %.1f", format, mode, requests, n, float64(bytes)/(1<<20), float64(r.split.Bytes)/(1<<20))
			if per := float64(requests) / float64(n); per > most {
				t.Errorf("%s %s: %.3f requests a sample, want %.3f at most", format, mode, per, most)
			}
			if float64(bytes) > 1.05*float64(r.split.Bytes) {
				t.Errorf("%s %s: %d bytes read of %d", format, mode, bytes, r.split.Bytes)
			}
			if st := r.Stats(); st.Memory.Peak > st.Memory.Limit || st.Stages.Store.Items != int64(requests) {
				t.Errorf("%s %s: %+v, %d requests", format, mode, st.Memory, requests)
			}
		}
	}
}

// Windows of lanes end in turn, so that reading ahead takes less than one and a half, and
// still asks for each byte once.
func TestReadAheadInTurn(t *testing.T) {
	const size, shards, samples, window, lanes = 24 << 10, 12, 512, 3072, 12
	st := remote{mem.New()}
	d := datasettest.Write(t, st, datasettest.Options{Shards: shards, Samples: samples, Make: blobs(size)})
	seen, rec := recordedSet(t, st, d)
	r := newReader(t, seen, Config{
		BatchSize: 16, Decode: DecodeNone, Shuffle: ShuffleWindow, Lanes: lanes, Window: window, Interleave: 1, Seed: 3, SkipChecksums: true,
	})
	if most := int64(window * size * 3 / 2); r.ahead.bytes > most+most/100 {
		t.Errorf("%d bytes for a window of %d", r.ahead.bytes, window*size)
	}
	for b, err := range r.Epoch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
	}
	requests, bytes := rec.shardReads()
	t.Logf("%d requests for %d samples, %.1f MiB of %.1f", requests, shards*samples, float64(bytes)/(1<<20), float64(r.split.Bytes)/(1<<20))
	if requests > 3*16+shards*samples*size/(4<<20)+2*lanes || float64(bytes) > 1.05*float64(r.split.Bytes) {
		t.Errorf("%d requests, %d bytes of %d", requests, bytes, r.split.Bytes)
	}
}

// Reading ahead changes no byte, also where it has little memory, with weights, in
// buckets, in several formats.
func TestReadAheadSameBytes(t *testing.T) {
	for _, format := range []string{"tar", "tar.zst", "tfrecord"} {
		d := small(t, datasettest.Options{Format: format, Shards: 6, Samples: 20})
		for _, mode := range modes {
			for name, c := range map[string]Config{
				"none":     {Decode: DecodeNone},
				"image":    {Transform: crop, Fields: []string{"cls", "seg.png"}},
				"weighted": {Decode: DecodeNone, Sampling: Sampling{Balanced: true, Samples: 300}},
				"buckets":  {Transform: crop, Buckets: Buckets{Edges: []float64{1}}, Ends: EndsPad},
			} {
				if format != "tar" && (name == "weighted" || name == "buckets") {
					continue // which samples come is not the format's matter
				}
				c.BatchSize, c.Shuffle, c.Lanes, c.Window, c.Interleave, c.Seed = 8, mode, 2, 60, 2, 5
				c.ReadAhead = -1
				want := epochOf(t, newReader(t, d, c), 1)
				for _, bytes := range []int64{20 << 10, 64 << 20} {
					c.ReadAhead = bytes
					r := newReader(t, d, c)
					if got := epochOf(t, r, 1); !reflect.DeepEqual(got, want) {
						t.Errorf("%s %s %s: other batches when %d bytes are read ahead", format, mode, name, bytes)
					}
				}
			}
		}
	}
}

// A consumer that holds batches, an outlier, and spans compete for memory: each batch
// comes, and the budget is kept.
func TestReadAheadMemory(t *testing.T) {
	made := blobs(40 << 10)
	big := make([]byte, 2<<20)
	d := small(t, datasettest.Options{Shards: 8, Samples: 64, Make: func(n, classes int) datasettest.Made {
		m := made(n, classes)
		if n%200 == 77 {
			m.Fields[0].Data = big
		}
		return m
	}})
	for _, hold := range []int{0, 2, 4} {
		r := newReader(t, d, Config{
			BatchSize: 8, Decode: DecodeNone, Shuffle: ShuffleWindow, Window: 512, Lanes: 2, Seed: 1,
			Memory: 12 << 20, ReadAhead: 1 << 30,
		})
		if r.ahead.bytes < 4<<20 {
			t.Fatalf("%d bytes are read ahead", r.ahead.bytes)
		}
		var held []*Batch
		n := 0
		for b, err := range r.Epoch(context.Background(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			n += b.Len()
			if held = append(held, b); len(held) > hold {
				held[0].Release()
				held = held[1:]
			}
		}
		for _, b := range held {
			b.Release()
		}
		if n != 512 {
			t.Errorf("%d samples", n)
		}
		if st := r.Stats(); st.Memory.Peak > st.Memory.Limit {
			t.Errorf("held %d: %+v", hold, st.Memory)
		}
	}
}

// short fails all reads of more than most bytes.
type short struct {
	store.Store
	most   int
	failed atomic.Int64
}

func (s *short) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Store.Open(ctx, name)
	return &shortObject{o, s}, err
}

type shortObject struct {
	store.Object
	s *short
}

func (o *shortObject) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if len(p) > o.s.most && strings.Contains(o.Info().Name, ".tar") {
		o.s.failed.Add(1)
		return 0, fault.ErrInjected
	}
	return o.Object.ReadAt(ctx, p, off)
}

// Where a span cannot be read, its samples are read alone; what one of them lacks is no
// matter of the others.
func TestReadAheadFaults(t *testing.T) {
	for _, format := range []string{"tar", "tar.zst"} {
		d := small(t, datasettest.Options{Format: format, Shards: 4, Samples: 40, Make: blobs(70 << 10)})
		c := Config{BatchSize: 8, Decode: DecodeNone, Shuffle: ShuffleWindow, Window: 80, Lanes: 2, Seed: 1, ReadAhead: -1}
		want := epochOf(t, newReader(t, d, c), 0)
		c.ReadAhead = 64 << 20
		c.Retry.Attempts = 1
		st := &short{Store: d.Store(), most: 160 << 10}
		shaky, err := dataset.New(st, d.Manifest())
		if err != nil {
			t.Fatal(err)
		}
		if got := epochOf(t, newReader(t, shaky, c), 0); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: other batches", format)
		}
		if st.failed.Load() == 0 {
			t.Errorf("%s: no span failed", format)
		}
	}
}

// A .tar.zst whose frames hold several samples is decompressed about once in a window.
func TestFramesOnce(t *testing.T) {
	d := small(t, datasettest.Options{Format: "tar.zst", Shards: 8, Samples: 500, Make: blobs(2 << 10)})
	frames := func(c Config) float64 {
		r := newReader(t, d, c)
		n := 0
		for b, err := range r.Epoch(context.Background(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			n += b.Len()
			b.Release()
		}
		return float64(r.Stats().Frames) / float64(n)
	}
	for mode, most := range map[Shuffle]float64{ShuffleNone: 0.1, ShuffleShards: 0.1, ShuffleWindow: 0.1, ShuffleGlobal: 0.1} {
		c := Config{BatchSize: 16, Decode: DecodeNone, Shuffle: mode, Lanes: 2, Window: 1000, Seed: 3, Memory: 28 << 20}
		with := frames(c)
		c.ReadAhead = -1
		without := frames(c)
		t.Logf("%s: %.3f frames a sample, %.3f without reading ahead", mode, with, without)
		if with > most {
			t.Errorf("%s: %.3f frames are decompressed for a sample (%.3f without reading ahead)", mode, with, without)
		}
	}
}

// Epochs of a store that answers after 20 ms, as multiples of the time without.
func BenchmarkLatency(b *testing.B) {
	st := remote{file.New(b.TempDir())}
	d := datasettest.Write(b, st, datasettest.Options{Shards: 16, Samples: 250, Make: blobs(110 << 10)})
	for _, mode := range []Shuffle{ShuffleShards, ShuffleWindow, ShuffleGlobal} {
		for _, latency := range []time.Duration{0, 20 * time.Millisecond} {
			b.Run(fmt.Sprintf("%s/%v", mode, latency), func(b *testing.B) {
				seen, rec := recordedSet(b, st, d)
				if latency > 0 {
					seen, _ = recordedSet(b, fault.New(rec, fault.Config{Kinds: []fault.Kind{fault.ReadAt}, StallRate: 1, Stall: latency}), d)
				}
				benchmark(b, seen, Config{Decode: DecodeNone, Shuffle: mode, BatchSize: 64, Window: 2048})
				requests, _ := rec.shardReads()
				b.ReportMetric(float64(requests)/float64(4000*(b.N+1)), "requests/sample")
			})
		}
	}
}
