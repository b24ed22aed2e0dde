package reader

import (
	"bytes"
	"context"
	"encoding/json"
	"image"
	"image/jpeg"
	"math/rand/v2"
	"reflect"
	"runtime/trace"
	"slices"
	"testing"
	"time"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/imaging/transform"
	"shardify/sample"
	"shardify/store/fault"
)

// slowly wraps a data set's store so that every read takes a time.
func slowly(t testing.TB, d *dataset.Dataset, latency time.Duration, kinds ...fault.Kind) *dataset.Dataset {
	t.Helper()
	slow, err := dataset.New(fault.New(d.Store(), fault.Config{Kinds: kinds, StallRate: 1, Stall: latency}), d.Manifest())
	if err != nil {
		t.Fatal(err)
	}
	return slow
}

// jpegOf is a data set whose images are noise of a size.
func jpegOf(t testing.TB, side int) func(n, classes int) datasettest.Made {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(side)))
	img := image.NewGray(image.Rect(0, 0, side, side))
	for i := range img.Pix {
		img.Pix[i] = byte(rng.Uint32())
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, &jpeg.Options{Quality: 95}); err != nil {
		t.Fatal(err)
	}
	return func(n, classes int) datasettest.Made {
		m := datasettest.Sample(n, classes)
		m.Fields = []sample.Field{{Name: "jpg", Data: b.Bytes()}}
		m.Paths = nil
		return m
	}
}

// What the consumer waits for is named, and its waiting is divided without rest.
func TestWaitsByCause(t *testing.T) {
	for _, c := range []struct {
		name   string
		data   *dataset.Dataset
		config Config
		hold   time.Duration
		want   Bound
		wait   func(*Waits) time.Duration
	}{
		{
			name: "store", want: BoundStore, wait: func(w *Waits) time.Duration { return w.Store },
			data:   slowly(t, small(t, datasettest.Options{}), 60*time.Millisecond, fault.ReadAt),
			config: Config{BatchSize: 4, Transform: crop},
		},
		{
			name: "decode", want: BoundDecode, wait: func(w *Waits) time.Duration { return w.Decode },
			data:   small(t, datasettest.Options{Make: jpegOf(t, 1200)}),
			config: Config{BatchSize: 4, Transform: transform.List{transform.Resize{Size: transform.Size{24, 24}}}},
		},
		{
			name: "transform", want: BoundTransform, wait: func(w *Waits) time.Duration { return w.Transform },
			data:   small(t, datasettest.Options{Make: jpegOf(t, 16)}),
			config: Config{BatchSize: 4, Transform: transform.List{transform.CenterCrop{Size: transform.Size{500}}, transform.GaussianBlur{KernelSize: [2]int{31, 31}}}},
		},
		{
			name: "consumer", want: BoundConsumer, wait: func(w *Waits) time.Duration { return 0 },
			data: small(t, datasettest.Options{}), hold: 60 * time.Millisecond,
			config: Config{BatchSize: 4, Transform: crop},
		},
	} {
		r := newReader(t, c.data, c.config)
		if err := r.warm(); err != nil {
			t.Fatal(err)
		}
		for b, err := range r.Epoch(context.Background(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(c.hold)
			b.Release()
		}
		s := r.Stats()
		if got := s.Bound(); got != c.want {
			t.Errorf("%s: bound by %s: %+v of %v", c.name, got, s.Waits, s.Elapsed)
		}
		w := &s.Waits
		if sum := w.Index + w.Memory + w.Store + w.Decode + w.Transform + w.Collate + w.CPU; sum != s.Waiting {
			t.Errorf("%s: %v of %v have a cause", c.name, sum, s.Waiting)
		}
		if wait := c.wait(w); wait < s.Waiting/2 && c.want != BoundConsumer {
			t.Errorf("%s: %v of %v waited for it: %+v", c.name, wait, s.Waiting, *w)
		}
		if c.hold > 0 && (s.Holding < 10*c.hold || s.Waiting+s.Holding > s.Elapsed) {
			t.Errorf("%s: held %v, waited %v of %v", c.name, s.Holding, s.Waiting, s.Elapsed)
		}
	}
}

// warm reads all indexes, so that waiting for them does not count.
func (r *Reader) warm() error {
	for shard := range r.split.Shards {
		if _, err := r.rows.get(context.Background(), shard); err != nil {
			return err
		}
	}
	return nil
}

// A consumer that holds the memory waits for memory.
func TestWaitsForMemory(t *testing.T) {
	r := newReader(t, small(t, datasettest.Options{}), Config{BatchSize: 4, Transform: transform.List{transform.CenterCrop{Size: transform.Size{512}}}, Memory: 27 << 19})
	if err := r.warm(); err != nil {
		t.Fatal(err)
	}
	var last *Batch
	for b, err := range r.Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if last != nil {
			old := last
			time.AfterFunc(100*time.Millisecond, old.Release) // while the next one is waited for
		}
		last = b
	}
	last.Release()
	if s := r.Stats(); s.Bound() != BoundMemory {
		t.Errorf("bound by %s: %+v", s.Bound(), s.Waits)
	}
}

func TestMarksDivide(t *testing.T) {
	var m marks
	for s, at := range map[step]int64{stepIndex: 10, stepRead: 30, stepWork: 50, stepCollate: 58} {
		m.at[s].Store(at)
	}
	m.decode.Store(300)
	m.transform.Store(100)
	for _, c := range []struct {
		from, to time.Duration
		want     Waits
	}{
		{0, 60, Waits{Index: 10, Store: 20, Decode: 15, Transform: 5, Collate: 8, CPU: 2}},
		{20, 42, Waits{Store: 10, Decode: 9, Transform: 3}},
		{57, 57, Waits{}},
	} {
		if got := m.divide(c.from, c.to); got != c.want {
			t.Errorf("%d to %d: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}

// The counters of stages count what an epoch does, gauges are 0 between passes, and
// all of it has a JSON form.
func TestStageStats(t *testing.T) {
	d := small(t, datasettest.Options{})
	blurred := append(slices.Clone(crop), transform.GaussianBlur{KernelSize: [2]int{3, 3}})
	r := newReader(t, d, Config{BatchSize: 8, Transform: blurred, Fields: []string{"cls"}})
	held := int64(0)
	for b, err := range r.Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		held = max(held, r.Stats().Memory.Used)
		b.Release()
	}
	s := r.Stats()
	g := &s.Stages
	if g.Index.Items != 4 || g.Index.Bytes == 0 || g.Store.Items < 4 || g.Store.Bytes < g.Decode.Bytes ||
		g.Decode.Items != 40 || g.Decode.Bytes != s.FieldBytes || g.Transform.Items != 40 ||
		g.Transform.Bytes != 40*3*24*24 || g.Collate.Items != 5 {
		t.Errorf("%+v", *g)
	}
	for _, st := range []StageStats{g.Index, g.Store, g.Decode, g.Transform, g.Collate} {
		if st.Queue != 0 || st.Active != 0 || st.Errors != 0 || st.Busy <= 0 || st.Busy > time.Duration(st.Goroutines)*s.Elapsed {
			t.Errorf("%+v in %v", st, s.Elapsed)
		}
	}
	if s.Ready != 0 || held == 0 || s.Memory.Peak < held || s.Memory.Peak > s.Memory.Limit || s.Memory.Limit != r.Config().Memory {
		t.Errorf("%d ready, %d held, %+v", s.Ready, held, s.Memory)
	}
	// Gauges are right also when a pass is left in the middle.
	for b, err := range r.Epoch(context.Background(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
		break
	}
	if s := r.Stats(); s.Ready != 0 || s.Stages.Store.Queue != 0 || s.Stages.Decode.Queue != 0 || s.Stages.Store.Active != 0 || s.Stages.Decode.Active != 0 {
		t.Errorf("after leaving: %+v", s)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if used := r.Stats().Memory.Used; used != r.rows.bytes+r.reserved {
		t.Errorf("%d bytes are in use, indexes and buffers have %d", used, r.rows.bytes+r.reserved)
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back Stats
	if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(back, s) {
		t.Errorf("%v: %s", err, data)
	}
}

// A crop, scaled and flipped, is made as its image is decoded.
func TestStatsOfCrops(t *testing.T) {
	r := newReader(t, small(t, datasettest.Options{}), Config{BatchSize: 8, Transform: crop})
	for b, err := range r.Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
	}
	if g := r.Stats().Stages; g.Decode.Items != 40 || g.Decode.Busy <= 0 || g.Transform.Items != 0 || g.Transform.Busy != 0 {
		t.Errorf("%+v", g)
	}
}

// Under runtime/trace a batch is a task, with regions for what is done to it.
func TestTraceRegions(t *testing.T) {
	d := small(t, datasettest.Options{})
	r := newReader(t, d, Config{BatchSize: 8, Transform: append(slices.Clone(crop), transform.GaussianBlur{KernelSize: [2]int{3, 3}})})
	var out bytes.Buffer
	if err := trace.Start(&out); err != nil {
		t.Skip("SKIPPED LOUDLY: a trace is being made already:", err)
	}
	for b, err := range r.Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
	}
	trace.Stop()
	for _, word := range []string{"batch", "index", "fetch", "decode", "transform", "collate", "wait"} {
		if !bytes.Contains(out.Bytes(), []byte(word)) {
			t.Errorf("no %q in the trace", word)
		}
	}
}
