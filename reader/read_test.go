package reader

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/imaging/augment"
	"shardify/imaging/transform"
	"shardify/store"
	"shardify/store/mem"
)

// everything is all that a batch has, but for its place.
func everything(b *Batch) (list []string) {
	list = append(tensorCopy(b), fmt.Sprint(b.Len(), b.Samples(), b.Keys(), b.Labels(), b.Fields(), len(b.Bad())))
	for i := range b.Len() {
		for _, name := range b.Fields() {
			if data, ok := b.Field(i, name); ok {
				list = append(list, fmt.Sprintf("%d %s %x", i, name, data))
			}
		}
	}
	return list
}

// readOf is everything that a call gives.
func readOf(t testing.TB, r *Reader, samples []int64, epoch int) []string {
	t.Helper()
	b, err := r.Read(t.Context(), samples, epoch)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	if b.Epoch() != epoch {
		t.Errorf("epoch %d, want %d", b.Epoch(), epoch)
	}
	return everything(b)
}

// A call makes what a pass makes of the same samples, byte for byte.
func TestReadAsEpoch(t *testing.T) {
	for name, c := range map[string]struct {
		o datasettest.Options
		c Config
	}{
		"crops":    {datasettest.Options{}, Config{Transform: crop, Fields: []string{"cls", "jpg", "seg.png"}}},
		"zst":      {datasettest.Options{Format: "tar.zst"}, Config{Transform: crop, Fields: []string{"cls"}}},
		"gz":       {datasettest.Options{Format: "tar.gz"}, Config{Transform: crop, Fields: []string{"cls"}, Ends: EndsPad}},
		"tfrecord": {datasettest.Options{Format: "tfrecord"}, Config{Transform: crop, Fields: []string{"cls"}}},
		"fields":   {datasettest.Options{}, Config{Decode: DecodeNone}},
		"tensors":  {datasettest.Options{Make: rich}, Config{Transform: crop, Tensors: richSpecs}},
		"ragged":   {datasettest.Options{Make: mixture}, Config{Collate: CollateRagged, Transform: transform.List{transform.Resize{Size: transform.Size{30}}, transform.RandomHorizontalFlip{}}}},
		"pad":      {datasettest.Options{Make: scene}, Config{Collate: CollatePad, Tensors: []TensorSpec{{Field: "seg.png", Kind: KindMask}}}},
		"window":   {datasettest.Options{}, Config{Transform: crop, Shuffle: ShuffleWindow, ReadAhead: 1 << 20}},
		"chosen":   {datasettest.Options{}, Config{Transform: crop, Sampling: Sampling{Where: "label < 3"}}},
		"buckets": {datasettest.Options{}, Config{Transform: crop, Ends: EndsExact,
			Buckets: Buckets{Edges: []float64{1}, Sizes: []transform.Size{{24, 16}, {16, 24}}}}},
		"half": {datasettest.Options{}, Config{DType: DTypeFloat16, Layout: LayoutNHWC, Transform: append(slices.Clone(crop), transform.ImageNet), World: 2, Rank: 1}},
	} {
		c.c.BatchSize, c.c.Seed, c.c.Workers = 6, 11, 2
		r := newReader(t, small(t, c.o), c.c)
		for epoch := range 2 {
			batches := 0
			for b, err := range r.Epoch(t.Context(), epoch) {
				if err != nil {
					t.Fatal(err)
				}
				samples, want := slices.Clone(b.Samples()), everything(b)
				b.Release()
				if got := readOf(t, r, samples, epoch); !reflect.DeepEqual(got, want) {
					t.Fatalf("%s: samples %v of epoch %d: other contents than in the pass", name, samples, epoch)
				}
				batches++
			}
			if batches < 2 {
				t.Errorf("%s: %d batches", name, batches)
			}
		}
	}
}

// Samples come in the order in which they are asked for, as often as they are, one or many
// more than a batch has, or none.
func TestReadAnyOrder(t *testing.T) {
	d := small(t, datasettest.Options{})
	r := newReader(t, d, Config{BatchSize: 4, Transform: crop, Fields: []string{"cls"}, Seed: 3})
	one := make([][]byte, 40)
	for n := range one {
		b, err := r.Read(t.Context(), []int64{int64(n)}, 1)
		if err != nil {
			t.Fatal(err)
		}
		one[n] = slices.Clone(b.Images().Data)
		if key, err := r.Key(t.Context(), int64(n)); err != nil || b.Len() != 1 || b.Key(0) != key || b.Number() != int64(n) {
			t.Fatalf("sample %d: %q, batch %d", n, b.Keys(), b.Number())
		}
		if b.State() != (State{}) {
			t.Errorf("a state: %+v", b.State())
		}
		b.Release()
	}
	for _, list := range [][]int64{{39, 0, 20, 5}, {7, 7, 3, 7}, {}, slices.Repeat([]int64{12, 31, 1}, 50)} {
		b, err := r.Read(t.Context(), list, 1)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(b.Samples(), list) || b.Images().Shape[0] != len(list) {
			t.Fatalf("%v, images %v", b.Samples(), b.Images().Shape)
		}
		for i, n := range list {
			if !slices.Equal(b.Image(i).Data, one[n]) {
				t.Errorf("sample %d at %d of %v is another one", n, i, list)
			}
		}
		b.Release()
	}
	again := newReader(t, d, Config{BatchSize: 4, Transform: crop, Seed: 4})
	if slices.Equal(readOf(t, r, []int64{1, 2}, 0)[:1], readOf(t, r, []int64{1, 2}, 1)[:1]) || slices.Equal(readOf(t, r, []int64{1, 2}, 0)[:1], readOf(t, again, []int64{1, 2}, 0)[:1]) {
		t.Error("epochs, or seeds, have the same crops")
	}
	if s := r.Stats(); s.Batches != 40+4+3 || s.Samples != 40+8+150+6 || s.Waiting != 0 || s.Elapsed == 0 {
		t.Errorf("%d batches of %d samples, %v, %v", s.Batches, s.Samples, s.Waiting, s.Elapsed)
	}
}

// What cannot be read is an error that says so.
func TestReadFaults(t *testing.T) {
	d := small(t, datasettest.Options{})
	plain := newReader(t, d, Config{BatchSize: 4, Transform: crop})
	blended := newReader(t, d, Config{BatchSize: 4, Transform: crop, DType: DTypeFloat32, MixUp: &augment.MixUp{}})
	sized := newReader(t, d, Config{BatchSize: 2, Transform: crop, Buckets: Buckets{Edges: []float64{1}, Sizes: []transform.Size{{24, 16}, {16, 24}}}})
	chosen := newReader(t, d, Config{BatchSize: 2, Transform: crop, Sampling: Sampling{Where: "label = 1"}, Buckets: Buckets{Edges: []float64{1}, Sizes: []transform.Size{{24, 16}, {16, 24}}}})
	all := make([]int64, 40)
	for n := range all {
		all[n] = int64(n)
	}
	for _, c := range []struct {
		r       *Reader
		samples []int64
		epoch   int
		want    string
	}{
		{plain, []int64{3, 40}, 0, `sample 40 of split "train", which has 40`},
		{plain, []int64{-1}, 0, "sample -1"},
		{plain, []int64{1}, -1, "epoch -1 is negative"},
		{blended, []int64{1}, 0, "blend the batches of an epoch"},
		{sized, all, 0, "whose images differ in size"},
		{chosen, all[:1], 0, "sample 0 is in no bucket"},
	} {
		if b, err := c.r.Read(t.Context(), c.samples, c.epoch); err == nil || !strings.Contains(err.Error(), c.want) || b != nil {
			t.Errorf("%v: %v; want %q", c.samples, err, c.want)
		}
	}
	if b, err := sized.Read(t.Context(), nil, 0); err != nil || b.Len() != 0 {
		t.Errorf("nothing: %v", err)
	} else {
		b.Release()
	}
}

// Any number of goroutines read at the same time, beside passes; each gets what it asked
// for.
func TestReadConcurrently(t *testing.T) {
	d := small(t, datasettest.Options{Make: mixture})
	r := newReader(t, d, Config{BatchSize: 4, Collate: CollateRagged, Fields: []string{"cls"}, Seed: 3, Memory: 24 << 20, Workers: 3})
	want := make([][2]string, 40)
	for n := range want {
		for epoch := range 2 {
			b, err := r.Read(t.Context(), []int64{int64(n)}, epoch)
			if err != nil {
				t.Fatal(err)
			}
			want[n][epoch] = b.Key(0) + string(b.Image(0).Data)
			b.Release()
		}
	}
	var all sync.WaitGroup
	for k := range 12 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(k)))
			var held *Batch
			for range 25 {
				samples, epoch := make([]int64, 1+random.IntN(9)), random.IntN(2)
				for i := range samples {
					samples[i] = int64(random.IntN(40))
				}
				b, err := r.Read(t.Context(), samples, epoch)
				if err != nil {
					t.Error(err)
					return
				}
				for i, n := range samples {
					if b.Key(i)+string(b.Image(i).Data) != want[n][epoch] {
						t.Errorf("sample %d is another one", n)
					}
				}
				if held != nil {
					held.Release()
				}
				held = b
			}
			held.Release()
		})
	}
	all.Go(func() {
		for range 3 {
			if got := epochOf(t, r, 0); len(got) != 10 {
				t.Errorf("%d batches", len(got))
			}
		}
	})
	all.Wait()
	if s := r.Stats(); s.Ready != 0 || s.Stages.Store.Queue != 0 || s.Stages.Decode.Queue != 0 {
		t.Errorf("something is left: %+v", s.Stages)
	}
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// A call whose context ends returns at once, also while a shard or an index stalls, gives its
// memory back, and leaves others as they are.
func TestReadCancel(t *testing.T) {
	for _, indexes := range []bool{false, true} {
		d := small(t, datasettest.Options{Shards: 3})
		st := &stallingStore{Store: d.Store(), stalled: make(chan struct{}, 1000), indexes: indexes}
		slow, err := dataset.New(st, d.Manifest())
		if err != nil {
			t.Fatal(err)
		}
		r := newReader(t, slow, Config{BatchSize: 4, Transform: crop})
		r.calls.wait = time.Hour
		if !indexes {
			st.off.Store(true)
			if err := r.warm(); err != nil {
				t.Fatal(err)
			}
			readOf(t, r, []int64{0, 9}, 0)
			st.off.Store(false)
		}
		for range 3 {
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := r.Read(ctx, []int64{1, 15, 25, 2}, 0)
				done <- err
			}()
			<-st.stalled
			why := errors.New("why")
			cancel(why)
			if err := <-done; !errors.Is(err, why) {
				t.Fatalf("the call ends with %v", err)
			}
		}
		st.off.Store(true)
		readOf(t, r, []int64{1, 15, 25, 2}, 0)
		if !indexes {
			eventually(t, "memory does not come back", func() bool { return len(r.calls.pass.pool.lentBlocks()) == 0 })
		}
		if n := len(r.BadSamples()); n != 0 {
			t.Errorf("%d damaged samples", n)
		}
	}
	// One that has ended before it began.
	r := newReader(t, small(t, datasettest.Options{}), Config{BatchSize: 4, Transform: crop})
	readOf(t, r, []int64{1}, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Read(ctx, []int64{1}, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// lentBlocks are the blocks that neither lie idle nor are the consumer's.
func (p *pool) lentBlocks() (list []*block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for b := range p.lent {
		list = append(list, b)
	}
	return list
}

// Damaged samples go the way of OnBad: they are the error, or left out, or the same stand in
// for them as in a pass.
func TestReadDamaged(t *testing.T) {
	for _, sampling := range []Sampling{{}, {Where: "label < 4"}, {Weights: []Weight{{Where: "label = 1", Weight: 2}}}} {
		d := small(t, datasettest.Options{})
		damage(t, d, 10, 3, 12, 31)
		c := Config{BatchSize: 5, Transform: crop, Seed: 2, Sampling: sampling, Fields: []string{"cls"}, Ends: EndsExact}
		r := newReader(t, d, c)
		var one *SampleError
		if b, err := r.Read(t.Context(), []int64{1, 12, 3}, 0); !errors.As(err, &one) || one.Sample != 12 || b != nil {
			t.Errorf("%v", err)
		}
		if list := r.BadSamples(); len(list) != 1 || list[0].Sample != 12 {
			t.Errorf("%v", list)
		}
		c.OnBad, c.MaxBad = OnBadSkip, -1
		r = newReader(t, d, c)
		b, err := r.Read(t.Context(), []int64{3, 1, 12, 2}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(b.Samples(), []int64{1, 2}) || len(b.Bad()) != 2 || b.Images().Shape[0] != 2 {
			t.Errorf("%v, %v", b.Samples(), b.Bad())
		}
		b.Release()
		// No number of calls has too many.
		c.MaxBad = 1
		r = newReader(t, d, c)
		for range 5 {
			if got := readOf(t, r, []int64{3, 12}, 0); len(got) == 0 {
				t.Error("nothing")
			}
		}
		c.OnBad, c.MaxBad = OnBadSubstitute, -1
		r = newReader(t, d, c)
		asked, _ := r.Plan(1)
		met := 0
		for b, err := range r.Epoch(t.Context(), 1) {
			if err != nil {
				t.Fatal(err)
			}
			want := everything(b)
			met += len(b.Bad())
			samples := asked.Batch(nil, b.Number(), 0)
			b.Release()
			if got := readOf(t, r, samples, 1); sampling.Weights == nil && !reflect.DeepEqual(got, want) {
				t.Errorf("samples %v: other contents", samples)
			}
		}
		if met == 0 {
			t.Error("no sample was damaged")
		}
		// Also for one that the sampling does not choose, in shards where it chooses none.
		c.Sampling = Sampling{Keys: []string{"class-000/img_000000", "class-001/img_000001"}}
		c.BatchSize = 1
		r = newReader(t, d, c)
		b, err = r.Read(t.Context(), []int64{31}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n := b.Samples()[0]; n != 0 && n != 1 {
			t.Errorf("sample %d stands in", n)
		}
		b.Release()
	}
}

// A shard that is missing damages its samples, until it is there again.
func TestReadLostShard(t *testing.T) {
	d := small(t, datasettest.Options{})
	name := d.Manifest().Splits[0].Shards[1].Name
	data, err := store.ReadAll(t.Context(), d.Store(), name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Store().Remove(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	r := newReader(t, d, Config{BatchSize: 5, Transform: crop})
	r.calls.wait = time.Hour
	var one *SampleError
	if _, err := r.Read(t.Context(), []int64{1, 12}, 0); !errors.As(err, &one) || one.Sample != 12 || !strings.Contains(err.Error(), "missing") {
		t.Errorf("%v", err)
	}
	if err := store.WriteAll(t.Context(), d.Store(), name, data); err != nil {
		t.Fatal(err)
	}
	r.calls.pass.verdicts.forget(0)
	readOf(t, r, []int64{1, 12}, 0)
}

// All calls together hold no more than a pass may.
func TestReadMemoryBound(t *testing.T) {
	d := small(t, datasettest.Options{Make: rich})
	r := newReader(t, d, Config{BatchSize: 8, Memory: 16 << 20, Workers: 2, Transform: transform.List{transform.RandomResizedCrop{Size: transform.Size{128}}}, Fields: []string{"jpg"}})
	var all sync.WaitGroup
	for k := range 16 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(k)))
			for range 10 {
				samples := make([]int64, 1+random.IntN(40))
				for i := range samples {
					samples[i] = int64(random.IntN(40))
				}
				b, err := r.Read(t.Context(), samples, 0)
				if err != nil {
					t.Error(err)
					return
				}
				b.Release()
			}
		})
	}
	all.Wait()
	if s := r.Stats().Memory; s.Peak > s.Limit || s.Peak == 0 {
		t.Errorf("%d bytes of %d", s.Peak, s.Limit)
	}
	// One that is larger than all of it is made alone.
	all40 := make([]int64, 600)
	for i := range all40 {
		all40[i] = int64(i % 40)
	}
	b, err := r.Read(t.Context(), all40, 0)
	if err != nil || b.Len() != 600 {
		t.Fatalf("%v", err)
	}
	// While it is held there is no memory: a call waits for it, or for its own end.
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := r.Read(ctx, []int64{1, 2, 3}, 0)
		failed <- err
	}()
	waited := make(chan error, 1)
	go func() {
		b, err := r.Read(t.Context(), []int64{4}, 0)
		if err == nil {
			b.Release()
		}
		waited <- err
	}()
	eventually(t, "the calls do not wait", func() bool { return r.calls.number.Load() >= 163 })
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	select {
	case err := <-waited:
		t.Errorf("there was memory: %v", err)
	default:
	}
	b.Release()
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

// A batch that is dropped shows as an error where a call waits for its memory.
func TestReadForgottenRelease(t *testing.T) {
	d := small(t, datasettest.Options{})
	r := newReader(t, d, Config{BatchSize: 2, Memory: 16 << 20, Workers: 1, Transform: transform.List{transform.CenterCrop{Size: transform.Size{512}}}})
	for range 100 {
		_, err := r.Read(t.Context(), []int64{1, 2}, 0)
		if err != nil {
			if !strings.Contains(err.Error(), "call Release on every batch") {
				t.Error(err)
			}
			return
		}
		runtime.GC()
	}
	t.Error("no error")
}

// Close ends calls that are under way, and their goroutines, also while a shard stalls.
func TestReadClose(t *testing.T) {
	for _, indexes := range []bool{false, true} {
		before := goleak.IgnoreCurrent()
		d := small(t, datasettest.Options{Shards: 3})
		st := &stallingStore{Store: d.Store(), stalled: make(chan struct{}, 1000), indexes: indexes}
		slow, err := dataset.New(st, d.Manifest())
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(t.Context(), slow, Config{BatchSize: 4, Transform: crop})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for k := range 5 {
			all.Go(func() {
				if _, err := r.Read(t.Context(), []int64{int64(k), 15, 25}, 0); !errors.Is(err, ErrClosed) {
					t.Errorf("the call ends with %v", err)
				}
			})
		}
		<-st.stalled
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if _, err := r.Read(t.Context(), []int64{1}, 0); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		quiet(t, before)
		if used := r.Stats().Memory.Used; indexes && used != r.reserved {
			t.Errorf("%d bytes are held, and %d are reserved", used, r.reserved)
		}
	}
	// What is held stays good.
	r, err := New(t.Context(), small(t, datasettest.Options{}), Config{BatchSize: 4, Transform: crop})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Read(t.Context(), []int64{1, 2, 3}, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := everything(b)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(everything(b), want) {
		t.Error("the batch has changed")
	}
	b.Release()
}

// Where nobody calls, the goroutines end, and come back with the next call.
func TestReadIdle(t *testing.T) {
	before := goleak.IgnoreCurrent()
	r := newReader(t, small(t, datasettest.Options{}), Config{BatchSize: 4, Transform: crop})
	r.calls.wait = time.Millisecond
	for range 3 {
		readOf(t, r, []int64{1, 2}, 0)
		eventually(t, "the goroutines do not end", func() bool {
			r.calls.mu.Lock()
			defer r.calls.mu.Unlock()
			return r.calls.pass == nil
		})
		quiet(t, before)
	}
}

// Of a store that answers late, the samples of a call are asked for at once, and those that
// lie together with one request.
func TestReadRemote(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 2, Samples: 64, Make: plain})
	far, seen := recordedSet(t, remote{d.Store()}, d)
	r := newReader(t, far, Config{BatchSize: 4, Decode: DecodeNone})
	var samples []int64
	for n := range int64(64) {
		samples = append(samples, 63-n)
	}
	readOf(t, r, samples, 0)
	if n, _ := seen.shardReads(); n != 1 {
		t.Errorf("%d requests for neighbouring samples", n)
	}
}

// From a bucket, too.
func TestReadS3(t *testing.T) {
	wait := time.Duration(0)
	url, front := inBucket(t, 2, 20, &wait)
	r, err := Open(t.Context(), url, Config{BatchSize: 4, Decode: DecodeNone, Fields: []string{"bin"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	readOf(t, r, []int64{1, 21}, 0) // opens both shards
	for _, samples := range [][]int64{{3}, {39, 0, 17, 17}, {5, 6, 7, 8, 9}} {
		front.Forget()
		b, err := r.Read(t.Context(), samples, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(front.Forget()); n != 1 && len(samples) != 4 || n > 3 {
			t.Errorf("%d requests for %v", n, samples)
		}
		for i, n := range samples {
			want := largeSample(int(n), 5)
			if data, ok := b.Field(i, "bin"); !ok || string(data) != string(want.Fields[0].Data) || b.Key(i) != want.Key {
				t.Errorf("sample %d is another one", n)
			}
		}
		b.Release()
	}
}

// BenchmarkRead is the latency of a call, and how many samples a second many callers get.
func BenchmarkRead(b *testing.B) {
	d := datasettest.Write(b, mem.New(), datasettest.Options{Shards: 4, Samples: 100})
	for _, c := range []struct {
		name string
		c    Config
	}{
		{"fields", Config{Decode: DecodeNone}},
		{"crops", Config{Transform: crop}},
	} {
		r := newReader(b, d, c.c)
		for _, n := range []int{1, 16, 256} {
			samples := make([]int64, n)
			random := rand.New(rand.NewPCG(1, 2))
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					for i := range samples {
						samples[i] = int64(random.IntN(400))
					}
					batch, err := r.Read(b.Context(), samples, 0)
					if err != nil {
						b.Fatal(err)
					}
					batch.Release()
				}
				b.ReportMetric(float64(b.N)*float64(n)/b.Elapsed().Seconds(), "samples/s")
			})
		}
	}
}
