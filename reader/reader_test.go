package reader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/imaging/resize"
	"shardify/imaging/transform"
	"shardify/index"
	"shardify/sample"
	"shardify/shard"
	"shardify/store"
	"shardify/store/fault"
	"shardify/store/file"
	"shardify/store/mem"
	"shardify/store/retry"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(rankEnv); job != "" {
		if err := runRank(job, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if job := os.Getenv(cacheEnv); job != "" {
		if err := runCached(job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// small is a data set of 4 × 10 samples in memory.
func small(t testing.TB, o datasettest.Options) *dataset.Dataset {
	t.Helper()
	if o.Shards == 0 {
		o.Shards = 4
	}
	return datasettest.Write(t, mem.New(), o)
}

func newReader(t testing.TB, d *dataset.Dataset, c Config) *Reader {
	t.Helper()
	r, err := New(context.Background(), d, c)
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

// crop is the transform of most tests.
var crop = transform.List{transform.RandomResizedCrop{Size: transform.Size{24}}, transform.RandomHorizontalFlip{}}

// copied is what a batch held.
type copied struct {
	number  int64
	images  []byte
	shape   []int
	labels  []int64
	samples []int64
	keys    []string
	fields  []string
	bad     int
}

func copyOf(b *Batch) copied {
	c := copied{
		number: b.Number(), images: bytes.Clone(b.Images().Data), shape: b.Images().Shape,
		labels: slices.Clone(b.Labels()), samples: slices.Clone(b.Samples()), keys: b.Keys(), bad: len(b.Bad()),
	}
	for i := range b.Len() {
		for _, name := range b.Fields() {
			if data, ok := b.Field(i, name); ok {
				c.fields = append(c.fields, fmt.Sprintf("%d %s %x", i, name, data))
			}
		}
	}
	return c
}

// epochOf copies an epoch.
func epochOf(t testing.TB, r *Reader, epoch int) []copied {
	t.Helper()
	var all []copied
	for b, err := range r.Epoch(context.Background(), epoch) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, copyOf(b))
		b.Release()
	}
	return all
}

// quiet fails the test where goroutines are left the moment a pass is over.
func quiet(t *testing.T, before goleak.Option) {
	t.Helper()
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

func TestLeavingTheLoop(t *testing.T) {
	r := newReader(t, small(t, datasettest.Options{}), Config{BatchSize: 3, Transform: crop})
	before := goleak.IgnoreCurrent()
	for leave := range 5 {
		n := 0
		for b, err := range r.Epoch(context.Background(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			b.Release()
			if n++; n > leave {
				break
			}
		}
		quiet(t, before)
	}
}

func TestPanicInTheLoop(t *testing.T) {
	r := newReader(t, small(t, datasettest.Options{}), Config{BatchSize: 3, Transform: crop})
	before := goleak.IgnoreCurrent()
	func() {
		defer func() {
			if p := recover(); p != "the caller's" {
				t.Errorf("recovered %v", p)
			}
		}()
		for range r.Epoch(context.Background(), 0) {
			panic("the caller's")
		}
	}()
	quiet(t, before)
}

func TestCancel(t *testing.T) {
	d := datasettest.Write(t, mem.New(), datasettest.Options{})
	// A store that stalls for ever, until the context ends.
	slow := fault.New(d.Store(), fault.Config{Kinds: []fault.Kind{fault.ReadAt}, StallRate: 0.2, Stall: time.Hour})
	stalled, err := dataset.New(slow, d.Manifest())
	if err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	for _, d := range []*dataset.Dataset{d, stalled} {
		r := newReader(t, d, Config{BatchSize: 2, Transform: crop})
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(50*time.Millisecond, func() { cancel(cause) })
		var last error
		for epoch := 0; last == nil; epoch++ {
			for b, err := range r.Epoch(ctx, epoch) {
				if last != nil {
					t.Error("yielded after an error")
				}
				if last = err; err == nil {
					b.Release()
				}
			}
			quiet(t, before)
		}
		if !errors.Is(last, cause) && !errors.Is(last, context.Canceled) {
			t.Errorf("cancelled: %v", last)
		}
	}
}

// A read that never comes back, of a shard of any format, ends with the pass's context
// at once, and so does what waits for it: the store is tried with neither a timeout nor
// an end of its stall.
func TestCancelStalledRead(t *testing.T) {
	for _, c := range []struct {
		format string
		reads  int32 // of a shard that come back
	}{{"tar", 0}, {"tar", 1}, {"tar.zst", 0}, {"tar.zst", 1}, {"tar.zst", 2}, {"tar.gz", 0}, {"tfrecord", 0}, {"tfrecord", 1}} {
		format := c.format
		d := small(t, datasettest.Options{Format: format, Shards: 4, Samples: 30})
		stalled := make(chan struct{}, 100)
		st := &stallingStore{Store: d.Store(), stalled: stalled, reads: c.reads}
		other, err := dataset.New(st, d.Manifest())
		if err != nil {
			t.Fatal(err)
		}
		r := newReader(t, other, Config{BatchSize: 4, Decode: DecodeNone, Retry: retry.Config{Timeout: -1}})
		before := goleak.IgnoreCurrent()
		for range 3 {
			ctx, cancel := context.WithCancel(context.Background())
			var last error
			go func() {
				<-stalled
				time.Sleep(20 * time.Millisecond)
				cancel()
			}()
			for b, err := range r.Epoch(ctx, 0) {
				if last = err; err == nil {
					b.Release()
				}
			}
			if !errors.Is(last, context.Canceled) {
				t.Errorf("%s: %v", format, last)
			}
			quiet(t, before)
			for len(stalled) > 0 {
				<-stalled
			}
		}
		// Without the stall it goes on, with the same files.
		st.off.Store(true)
		if all := epochOf(t, r, 0); len(all) != 30 {
			t.Errorf("%s: %d batches", format, len(all))
		}
	}
}

// stallingStore has shards of which only the first reads come back before their context
// ends.
type stallingStore struct {
	store.Store
	stalled chan struct{}
	reads   int32
	indexes bool // indexes stall, and not shards
	off     atomic.Bool
}

func (s *stallingStore) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Store.Open(ctx, name)
	if err != nil || strings.HasSuffix(name, ".parquet") != s.indexes {
		return o, err
	}
	return &stallingObject{Object: o, s: s}, nil
}

type stallingObject struct {
	store.Object
	s     *stallingStore
	reads atomic.Int32
}

func (o *stallingObject) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if o.reads.Add(1) > o.s.reads && !o.s.off.Load() {
		o.s.stalled <- struct{}{}
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return o.Object.ReadAt(ctx, p, off)
}

func TestCloseEndsPasses(t *testing.T) {
	r, err := New(context.Background(), small(t, datasettest.Options{}), Config{BatchSize: 1, Transform: crop})
	if err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	var last error
	n := 0
	for b, err := range r.Epoch(context.Background(), 0) {
		if last = err; err != nil {
			break
		}
		b.Release()
		if n++; n == 2 {
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !errors.Is(last, ErrClosed) {
		t.Errorf("after Close: %v", last)
	}
	quiet(t, before)

	// Also while nothing comes: of an index, or of a shard.
	for _, indexes := range []bool{false, true} {
		d := small(t, datasettest.Options{})
		st := &stallingStore{Store: d.Store(), stalled: make(chan struct{}, 100), indexes: indexes}
		other, err := dataset.New(st, d.Manifest())
		if err != nil {
			t.Fatal(err)
		}
		r := newReader(t, other, Config{BatchSize: 4, Decode: DecodeNone, Retry: retry.Config{Timeout: -1}})
		closed := make(chan error, 1)
		go func() {
			<-st.stalled
			closed <- r.Close()
		}()
		last = nil
		for _, err := range r.Epoch(context.Background(), 0) {
			last = err
		}
		if err := <-closed; err != nil || !errors.Is(last, ErrClosed) {
			t.Errorf("Close while a read stalls (of indexes: %v): %v, %v", indexes, err, last)
		}
		quiet(t, before)
	}
}

// Every batch has what the plan says, with the label, key and fields that the data
// set gives these samples.
func TestEpoch(t *testing.T) {
	for _, format := range []string{"tar", "tar.zst", "tar.gz", "tfrecord"} {
		d := small(t, datasettest.Options{Format: format})
		for _, mode := range append(modes, ShuffleAuto) {
			t.Run(format+"/"+string(mode), func(t *testing.T) {
				r := newReader(t, d, Config{
					BatchSize: 7, Shuffle: mode, Seed: 3, Lanes: 4, Window: 16, Ends: EndsExact,
					Transform: crop, Fields: []string{"seg.png", "cls"}, World: 2, Rank: 1,
				})
				for epoch := range 2 {
					plan, err := r.Plan(epoch)
					if err != nil {
						t.Fatal(err)
					}
					all := epochOf(t, r, epoch)
					if len(all) != r.Len() || r.Len() != 3 {
						t.Fatalf("%d batches, Len is %d", len(all), r.Len())
					}
					for k, b := range all {
						want := plan.Batch(nil, int64(k), 1)
						if b.number != int64(k) || !slices.Equal(b.samples, want) || !slices.Equal(b.shape, []int{len(want), 3, 24, 24}) {
							t.Fatalf("batch %d is %d %v %v, want %v", k, b.number, b.samples, b.shape, want)
						}
						var fields []string
						for i, n := range want {
							s := datasettest.Sample(int(n), 5)
							if b.keys[i] != s.Key || b.labels[i] != s.Label {
								t.Errorf("sample %d is %q %d, want %q %d", n, b.keys[i], b.labels[i], s.Key, s.Label)
							}
							for _, f := range s.Fields {
								if f.Name != "jpg" {
									fields = append(fields, fmt.Sprintf("%d %s %x", i, f.Name, f.Data))
								}
							}
						}
						if !slices.Equal(b.fields, fields) {
							t.Errorf("fields\n got %v\nwant %v", b.fields, fields)
						}
					}
				}
			})
		}
	}
}

func TestDecodeNone(t *testing.T) {
	for _, format := range []string{"tar", "tar.zst", "tar.gz", "tfrecord"} {
		d := small(t, datasettest.Options{Format: format})
		for _, fields := range [][]string{nil, {"jpg"}, {"cls", "seg.png"}, {}} {
			r := newReader(t, d, Config{BatchSize: 9, Decode: DecodeNone, Seed: 1, Ends: EndsPad, Fields: fields})
			for _, b := range epochOf(t, r, 0) {
				if b.shape != nil || len(b.images) != 0 || len(b.samples) != 9 {
					t.Fatalf("%v: %d samples, images of %v", fields, len(b.samples), b.shape)
				}
				var want []string
				for i, n := range b.samples {
					for _, f := range datasettest.Sample(int(n), 5).Fields {
						if fields == nil || slices.Contains(fields, f.Name) {
							want = append(want, fmt.Sprintf("%d %s %x", i, f.Name, f.Data))
						}
					}
				}
				if !slices.Equal(b.fields, want) {
					t.Errorf("%s %v:\n got %v\nwant %v", format, fields, b.fields, want)
				}
			}
		}
	}
}

// What comes does not depend on workers, memory or the store's format.
func TestSameBytes(t *testing.T) {
	d := small(t, datasettest.Options{})
	config := Config{BatchSize: 8, Seed: 5, Transform: crop, Shuffle: ShuffleWindow, Lanes: 2, Window: 20, Fields: []string{"cls"}, Workers: 1}
	want := epochOf(t, newReader(t, d, config), 2)
	if len(want) != 5 {
		t.Fatalf("%d batches", len(want))
	}
	for name, c := range map[string]func(*Config){
		"16 workers": func(c *Config) { c.Workers = 16 },
		"3 workers":  func(c *Config) { c.Workers = 3 },
		"little":     func(c *Config) { c.Memory, c.Workers = 2<<20, 4 },
	} {
		config := config
		c(&config)
		if got := epochOf(t, newReader(t, d, config), 2); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: other batches", name)
		}
	}
	zst := small(t, datasettest.Options{Format: "tar.zst"})
	if got := epochOf(t, newReader(t, zst, config), 2); !reflect.DeepEqual(got, want) {
		t.Error("tar.zst: other batches")
	}
	// A sample looks the same in another world, on another rank.
	looks := map[int64][]byte{}
	for _, b := range want {
		for i, n := range b.samples {
			looks[n] = b.images[i*24*24*3:][:24*24*3]
		}
	}
	config.World, config.Rank, config.BatchSize = 2, 1, 4
	for _, b := range epochOf(t, newReader(t, d, config), 2) {
		for i, n := range b.samples {
			if !bytes.Equal(looks[n], b.images[i*24*24*3:][:24*24*3]) {
				t.Errorf("sample %d looks different in another world", n)
			}
		}
	}
	// And another in another epoch.
	config.World, config.Rank, config.BatchSize = 1, 0, 8
	same := 0
	for _, b := range epochOf(t, newReader(t, d, config), 3) {
		for i, n := range b.samples {
			if bytes.Equal(looks[n], b.images[i*24*24*3:][:24*24*3]) {
				same++
			}
		}
	}
	if same > 2 {
		t.Errorf("%d samples look the same in another epoch", same)
	}
}

// The slab of a batch stays as it is while it is held, whatever comes after, and
// is 64-byte aligned.
func TestHeldBatches(t *testing.T) {
	r := newReader(t, small(t, datasettest.Options{}), Config{BatchSize: 4, Transform: crop, Fields: []string{"jpg"}})
	var held []*Batch
	var were []copied
	for b, err := range r.Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if at := reflect.ValueOf(b.Images().Data).Pointer(); at%64 != 0 {
			t.Errorf("images at %#x", at)
		}
		held, were = append(held, b), append(were, copyOf(b))
	}
	for i, b := range held {
		if got := copyOf(b); !reflect.DeepEqual(got, were[i]) {
			t.Errorf("batch %d has changed while it was held", i)
		}
		b.Release()
	}
}

// What the consumer still has is its own after the loop was left, its context has ended,
// and the reader is closed, while other passes take memory.
func TestHeldBatchesOutliveTheirPass(t *testing.T) {
	d := small(t, datasettest.Options{})
	// A batch of 3 MiB, whose memory is the system's, and one of 14 KB, of Go's heap.
	for _, side := range []int{512, 24} {
		r := newReader(t, d, Config{BatchSize: 4, Transform: transform.List{transform.CenterCrop{Size: transform.Size{side}}}})
		var held []*Batch
		var were []copied
		for leave := range 4 {
			ctx, cancel := context.WithCancel(context.Background())
			for b, err := range r.Epoch(ctx, leave) {
				if err != nil {
					break // the context's end
				}
				held, were = append(held, b), append(were, copyOf(b))
				if len(held)%2 == 0 && leave != 1 {
					break
				} else if len(held)%2 == 0 {
					cancel()
				}
			}
			cancel()
		}
		epochOf(t, r, 9)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		for i, b := range held {
			if got := copyOf(b); !reflect.DeepEqual(got, were[i]) {
				t.Errorf("batch %d of images of %d has changed while it was held", i, side)
			}
			b.Release()
		}
		if len(held) < 8 {
			t.Errorf("%d batches", len(held))
		}
	}
}

func TestReleaseTwice(t *testing.T) {
	r := newReader(t, small(t, datasettest.Options{}), Config{BatchSize: 4, Transform: crop})
	panics := func(want string, f func()) {
		t.Helper()
		defer func() {
			if p := fmt.Sprint(recover()); !strings.Contains(p, want) {
				t.Errorf("panic %q, want %q", p, want)
			}
		}()
		f()
	}
	for b, err := range r.Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
		panics("released twice", b.Release)
		panics("used after Release", func() { b.Images() })
		panics("used after Release", func() { b.Labels() })
		break
	}
}

// A loop that forgets Release gets an error, not a pass that waits for ever; one
// that holds more than there is memory waits until another goroutine releases.
func TestForgottenRelease(t *testing.T) {
	c := Config{BatchSize: 4, Transform: crop, Memory: 3 << 20}
	d := small(t, datasettest.Options{Shards: 30, Samples: 10, Make: plain})
	c.Transform = transform.List{transform.CenterCrop{Size: transform.Size{160}}}
	var last error
	for _, err := range newReader(t, d, c).Epoch(context.Background(), 0) {
		last = err
	}
	if !errors.Is(last, errLeaked) || !strings.Contains(last.Error(), "call Release") {
		t.Errorf("got %v", last)
	}

	n := 0
	queue := make(chan *Batch, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := range queue {
			time.Sleep(time.Millisecond)
			b.Release()
		}
	}()
	for b, err := range newReader(t, d, c).Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		queue <- b
	}
	close(queue)
	<-done
	if n != 75 {
		t.Errorf("%d batches", n)
	}
}

// plain is a sample with a small image of one colour, quick to decode.
func plain(n, classes int) datasettest.Made {
	m := datasettest.Sample(n%4, classes)
	m.Key = fmt.Sprintf("k%d", n)
	return m
}

// flipByte changes byte i of an object.
func flipByte(t *testing.T, st store.Store, name string, i int64) {
	t.Helper()
	flipBit(t, st, name, i, 6)
}

func flipBit(t *testing.T, st store.Store, name string, i int64, bit int) {
	t.Helper()
	data, err := store.ReadAll(context.Background(), st, name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	data[i] ^= 1 << bit
	if err := store.WriteAll(context.Background(), st, name, data); err != nil {
		t.Fatal(err)
	}
}

// What a batch's caller finds to be damaged has its place, and is in the report, also where
// a sample before it was left out.
func TestFault(t *testing.T) {
	d := small(t, datasettest.Options{})
	sh := &d.Manifest().Splits[0].Shards[1]
	rows, err := d.Rows(context.Background(), sh)
	if err != nil {
		t.Fatal(err)
	}
	f := rows[1].Field("jpg")
	flipByte(t, d.Store(), sh.Name, f.Offset+f.Size/2)
	r := newReader(t, d, Config{BatchSize: 8, Shuffle: ShuffleNone, Decode: DecodeNone, OnBad: OnBadSkip})
	spoilt := errors.New("spoilt")
	for b, err := range r.Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.Index(b.Samples(), 14); i >= 0 { // the shard's sample 4
			e := b.Fault(i, "jpg", spoilt)
			if !errors.Is(e, spoilt) || !strings.HasSuffix(e.Shard, sh.Name) || e.Key != rows[4].Key || e.Sample != 14 || e.Field != "jpg" || e.Offset != rows[4].Field("jpg").Offset {
				t.Errorf("%+v, want the jpg at %d", e, rows[4].Field("jpg").Offset)
			}
			if e := b.Fault(i, "png", spoilt); e.Field != "png" || e.Offset != -1 {
				t.Errorf("%+v", e)
			}
		}
		b.Release()
	}
	if bad := r.BadSamples(); len(bad) != 2 || bad[0].Sample != 11 || bad[1].Sample != 14 || bad[1].Reason != "spoilt" || bad[1].Times != 2 {
		t.Errorf("%+v", bad)
	}
}

func TestDamagedSample(t *testing.T) {
	d := small(t, datasettest.Options{})
	sh := &d.Manifest().Splits[0].Shards[1]
	rows, err := d.Rows(context.Background(), sh)
	if err != nil {
		t.Fatal(err)
	}
	f := rows[4].Field("jpg")
	flipByte(t, d.Store(), sh.Name, f.Offset+f.Size/2)
	for _, decode := range []Decode{DecodeImage, DecodeNone} {
		c := Config{BatchSize: 8, Shuffle: ShuffleNone, Decode: decode}
		if decode == DecodeImage {
			c.Transform = crop
		}
		r := newReader(t, d, c)
		var last error
		n := 0
		for b, err := range r.Epoch(context.Background(), 0) {
			if last = err; err == nil {
				n++
				b.Release()
			}
		}
		var bad *SampleError
		if !errors.Is(last, shard.ErrChecksum) || !errors.As(last, &bad) || bad.Key != rows[4].Key || bad.Sample != 14 || bad.Field != "jpg" || bad.Offset != f.Offset {
			t.Errorf("%s: %v", decode, last)
		}
		for _, want := range []string{sh.Name, rows[4].Key, fmt.Sprint(f.Offset)} {
			if !strings.Contains(fmt.Sprint(last), want) {
				t.Errorf("%s: %v does not name %q", decode, last, want)
			}
		}
		if n != 1 || r.Stats().Rereads != 1 {
			t.Errorf("%s: %d batches before the error, %d rereads", decode, n, r.Stats().Rereads)
		}

		c.OnBad = OnBadSkip
		r = newReader(t, d, c)
		all := epochOf(t, r, 0)
		if len(all) != 5 || all[1].bad != 1 || !slices.Equal(all[1].samples, []int64{8, 9, 10, 11, 12, 13, 15}) {
			t.Fatalf("%s: skipped: %+v", decode, all[1])
		}
		for i, n := range all[1].samples {
			if s := datasettest.Sample(int(n), 5); all[1].keys[i] != s.Key || all[1].labels[i] != s.Label {
				t.Errorf("%s: sample %d is %q %d", decode, n, all[1].keys[i], all[1].labels[i])
			}
		}
		if r.Stats().Skipped != 1 {
			t.Errorf("skipped %d", r.Stats().Skipped)
		}
		if decode == DecodeImage {
			// The pictures moved up with their labels.
			whole := newReader(t, small(t, datasettest.Options{}), Config{BatchSize: 8, Shuffle: ShuffleNone, Transform: crop})
			size := 24 * 24 * 3
			want := slices.Delete(bytes.Clone(epochOf(t, whole, 0)[1].images), 6*size, 7*size)
			if !bytes.Equal(all[1].images, want) {
				t.Error("the images behind a skipped one are not in their places")
			}
		}
	}
	// Unverified, the flipped bit of a JPEG passes or is the decoder's fault.
	r := newReader(t, d, Config{BatchSize: 8, Decode: DecodeNone, SkipChecksums: true})
	if n := len(epochOf(t, r, 0)); n != 5 {
		t.Errorf("%d batches", n)
	}
}

// A fault of the way, not of the data, is cured by reading again.
func TestReadAgain(t *testing.T) {
	d := small(t, datasettest.Options{})
	r := newReader(t, small(t, datasettest.Options{}), Config{BatchSize: 8, Decode: DecodeNone})
	want := epochOf(t, r, 0)
	once := &spoil{Store: d.Store()}
	other, err := dataset.New(once, d.Manifest())
	if err != nil {
		t.Fatal(err)
	}
	r = newReader(t, other, Config{BatchSize: 8, Decode: DecodeNone})
	if got := epochOf(t, r, 0); !reflect.DeepEqual(got, want) {
		t.Error("other batches")
	}
	if once.n.Load() != 8 || r.Stats().Rereads < 8 {
		t.Errorf("%d reads spoiled, %d rereads", once.n.Load(), r.Stats().Rereads)
	}
}

// spoil flips a bit in the first read of every file, as a network does; or in all
// reads of the first object opened of a file, as a cache does that keeps what it got.
type spoil struct {
	store.Store
	cached bool
	names  sync.Map
	n      atomic.Int32
}

func (s *spoil) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	if s.cached {
		if _, seen := s.names.LoadOrStore(name, true); seen || !strings.HasSuffix(name, ".tar") {
			return o, nil
		}
	}
	return &spoiledObject{o, s}, nil
}

type spoiledObject struct {
	store.Object
	s *spoil
}

func (o *spoiledObject) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	n, err := o.Object.ReadAt(ctx, p, off)
	if n == 0 {
		return n, err
	}
	if !o.s.cached {
		if _, seen := o.s.names.LoadOrStore(o.Info().Name, true); seen {
			return n, err
		}
	}
	p[0] ^= 1
	o.s.n.Add(1)
	return n, err
}

// What counts is what the shard has when it is opened anew: an object that shows
// spoiled bytes for as long as it is open does no harm.
func TestReadAgainFromTheOrigin(t *testing.T) {
	d := small(t, datasettest.Options{})
	want := epochOf(t, newReader(t, d, Config{BatchSize: 8, Decode: DecodeNone}), 0)
	cache := &spoil{Store: d.Store(), cached: true}
	other, err := dataset.New(cache, d.Manifest())
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(t, other, Config{BatchSize: 8, Decode: DecodeNone})
	if got := epochOf(t, r, 0); !reflect.DeepEqual(got, want) {
		t.Error("other batches")
	}
	if cache.n.Load() == 0 || r.Stats().Rereads == 0 {
		t.Errorf("%d reads spoiled, %d rereads", cache.n.Load(), r.Stats().Rereads)
	}
}

func TestBadImages(t *testing.T) {
	make := func(n, classes int) datasettest.Made {
		m := datasettest.Sample(n, classes)
		if n == 9 {
			m.Fields, m.Paths = m.Fields[:1], nil
		}
		return m
	}
	d := small(t, datasettest.Options{Make: make})
	sh := &d.Manifest().Splits[0].Shards[0]
	rows, err := d.Rows(context.Background(), sh)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []int{3, 5, 7} {
		flipByte(t, d.Store(), sh.Name, rows[row].Field("jpg").Offset+int64(row-3)) // of FF D8 FF E0 00
	}
	r := newReader(t, d, Config{BatchSize: 10, Shuffle: ShuffleNone, Transform: crop, OnBad: OnBadSkip, SkipChecksums: true})
	for b, err := range r.Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if b.Number() == 0 {
			var bad []int64
			for _, e := range b.Bad() {
				bad = append(bad, e.Sample)
			}
			if !slices.Equal(bad, []int64{3, 5, 7, 9}) || b.Len() != 6 {
				t.Errorf("skipped %v, left %d: %v", bad, b.Len(), errors.Join(asErrors(b.Bad())...))
			}
		} else if len(b.Bad()) != 0 || b.Len() != 10 {
			t.Errorf("batch %d: %v", b.Number(), b.Bad())
		}
		b.Release()
	}
}

func asErrors(list []*SampleError) (errs []error) {
	for _, e := range list {
		errs = append(errs, e)
	}
	return errs
}

// Store errors end the pass, in the order of batches, with the shard's name; also
// where bad samples are skipped.
func TestStoreErrors(t *testing.T) {
	d := small(t, datasettest.Options{})
	name := d.Manifest().Splits[0].Shards[2].Name
	for what, spoil := range map[string]func(st store.Store){
		"missing shard": func(st store.Store) { st.Remove(context.Background(), name) },
		"cut shard": func(st store.Store) {
			data, _ := store.ReadAll(context.Background(), st, name, 1<<30)
			store.WriteAll(context.Background(), st, name, data[:len(data)/2])
		},
		"missing index": func(st store.Store) {
			st.Remove(context.Background(), d.Manifest().Splits[0].Shards[2].Index.Name)
		},
		"broken index": func(st store.Store) {
			flipByte(t, st, d.Manifest().Splits[0].Shards[2].Index.Name, 40)
		},
	} {
		d := small(t, datasettest.Options{})
		spoil(d.Store())
		c := Config{BatchSize: 5, Shuffle: ShuffleNone, Transform: crop}
		if strings.HasSuffix(what, "index") {
			c.OnBad = OnBadSkip // nothing is known of its samples, so it ends the pass all the same
		}
		r := newReader(t, d, c)
		n := 0
		var last error
		for b, err := range r.Epoch(context.Background(), 0) {
			if last = err; err == nil {
				n++
				b.Release()
			}
		}
		if n != 4 || last == nil || !strings.Contains(last.Error(), strings.TrimSuffix(name, ".tar")) {
			t.Errorf("%s: %d batches, then %v", what, n, last)
		}
		switch what {
		case "missing shard", "missing index":
			if !errors.Is(last, fs.ErrNotExist) {
				t.Errorf("%s: %v", what, last)
			}
		case "cut shard":
			if !errors.Is(last, shard.ErrTruncated) {
				t.Errorf("%s: %v", what, last)
			}
		case "broken index":
			if !errors.Is(last, shard.ErrChecksum) {
				t.Errorf("%s: %v", what, last)
			}
		}
	}
}

// A sample larger than the whole budget passes, alone.
func TestOutlier(t *testing.T) {
	make := func(n, classes int) datasettest.Made {
		m := datasettest.Sample(n, classes)
		m.Fields = append(m.Fields[:2], sample.Field{Name: "npy", Data: bytes.Repeat([]byte{byte(n)}, 1000)})
		m.Paths = nil
		if n == 17 {
			m.Fields[2].Data = bytes.Repeat([]byte{17}, 20<<20)
		}
		return m
	}
	d := small(t, datasettest.Options{Make: make})
	for _, c := range []Config{
		{BatchSize: 4, Decode: DecodeNone, Memory: 8 << 20},
		{BatchSize: 4, Transform: crop, Fields: []string{"npy"}, Memory: 8 << 20},
	} {
		// The mean over samples is 0.5 MB.
		r := newReader(t, d, c)
		seen := false
		for b, err := range r.Epoch(context.Background(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			for i, n := range b.Samples() {
				data, ok := b.Field(i, "npy")
				if !ok || data[0] != byte(n) || data[len(data)-1] != byte(n) {
					t.Errorf("sample %d: %d bytes", n, len(data))
				}
				seen = seen || len(data) == 20<<20
			}
			b.Release()
		}
		if !seen {
			t.Error("the large sample is missing")
		}
	}
}

// The pool never holds more than its size, unless one block alone does.
func TestMemoryBound(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 8, Samples: 50, Make: plain})
	r := newReader(t, d, Config{BatchSize: 8, Transform: transform.List{transform.CenterCrop{Size: transform.Size{64}}}, Memory: 2 << 20, Workers: 4})
	p, err := r.newPass(context.Background(), 0, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.end()
	p.start()
	for {
		b, err := p.next()
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			break
		}
		b.Release()
	}
	if p.pool.peak > p.pool.size {
		t.Errorf("%d bytes of %d", p.pool.peak, p.pool.size)
	}
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	if p.pool.used != p.pool.free {
		t.Errorf("%d bytes were not given back", p.pool.used-p.pool.free)
	}
}

// Of a local data set a pass takes no more memory than keeps its workers busy, however
// much it might have: the consumer's batch, one that waits for it, and one that comes.
func TestLocalMemory(t *testing.T) {
	for _, c := range []struct {
		slab           int64
		batch, workers int
		ready          int
		because        string
	}{
		{40 << 20, 256, 2, 1, "one is enough"},
		{10 << 20, 64, 2, 6, "of what is in 64 MiB"},
		{40 << 20, 256, 16, 4, "each worker has 64 samples"},
		{4096, 1, 1, ahead, "nothing is as small"},
		{1 << 40, 1 << 20, 1, 1, "nothing is as large"},
	} {
		if got := localReady(c.slab, c.batch, c.workers); got != c.ready {
			t.Errorf("%d wait, want %d: %s", got, c.ready, c.because)
		}
	}
	d := small(t, datasettest.Options{Shards: 6, Samples: 256})
	r := newReader(t, d, Config{BatchSize: 256, Transform: transform.List{transform.CenterCrop{Size: transform.Size{224}}}, Workers: 2})
	slab := sizeClass(256 * 3 * 224 * 224)
	if r.poolBytes < 5*slab {
		t.Fatalf("with a pool of %d bytes this shows nothing", r.poolBytes)
	}
	p, err := r.newPass(t.Context(), 0, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.end()
	p.start()
	for i := 0; ; i++ {
		b, err := p.next()
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			break
		}
		// All that can come while the consumer has the first batch comes.
		for deadline := time.Now().Add(time.Minute); i == 0 && p.finished.Load() < 2; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d batches are finished, want 2", p.finished.Load())
			}
		}
		b.Release()
	}
	if p.pool.peak < 3*slab || p.pool.peak >= 4*slab {
		t.Errorf("it has taken %d bytes, want three slabs of %d, and reads", p.pool.peak, slab)
	}
}

func TestOpenFaults(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	datasettest.Write(t, file.New(dir), datasettest.Options{Splits: []string{"train", "val"}})
	for _, c := range []struct {
		url    string
		config Config
		want   string
	}{
		{dir, Config{Split: "test"}, "train, val"},
		{dir, Config{BatchSize: 31}, "lower batch_size"},
		{dir, Config{Fields: []string{"txt"}}, "its fields are: cls, jpg, seg.png"},
		{dir, Config{Fields: []string{"A"}}, "fields:"},
		{dir, Config{Memory: 1000, BatchSize: 8}, "give"},
		{dir, Config{Rank: 2, World: 2}, "rank: 2"},
		{dir, Config{World: 5, Lanes: 24}, "does not divide"},
		{dir, Config{Decode: DecodeNone, Transform: crop}, "no images to transform"},
		{dir, Config{Transform: transform.List{transform.Resize{Size: transform.Size{3}}}}, "differ in size"},
		{dir, Config{Transform: transform.List{transform.CenterCrop{}, nil}}, "transform 1: center_crop: size is 0"},
		{dir, Config{Transform: transform.List{transform.CenterCrop{Size: transform.Size{3}}, transform.ImageNet}}, "set dtype"},
		{dir + "/nowhere", Config{}, "nothing is there"},
	} {
		_, err := Open(ctx, c.url, c.config)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.want)
		}
	}
	r, err := Open(ctx, dir, Config{Split: "val", BatchSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n := len(epochOf(t, r, 0)); n != 7 || r.Config().Shuffle != ShuffleGlobal {
		t.Errorf("%d batches, %+v", n, r.Config())
	}
}

// What a configuration leaves open is chosen by where the data set is, and how it is packed.
func TestDefaultsByStore(t *testing.T) {
	for _, c := range []struct {
		format string
		remote bool
		want   Shuffle
	}{
		{"tar", false, ShuffleGlobal}, {"tar", true, ShuffleWindow}, {"tar.zst", false, ShuffleGlobal},
		{"tar.zst", true, ShuffleWindow}, {"tar.gz", false, ShuffleShards}, {"tar.gz", true, ShuffleShards},
	} {
		d := small(t, datasettest.Options{Format: c.format})
		if c.remote {
			var err error
			if d, err = dataset.New(remote{d.Store()}, d.Manifest()); err != nil {
				t.Fatal(err)
			}
		}
		if got := newReader(t, d, Config{BatchSize: 4}).Config().Shuffle; got != c.want {
			t.Errorf("%s, remote: %v: %s, want %s", c.format, c.remote, got, c.want)
		}
	}
	for url, want := range map[string]time.Duration{"/data/x": -1, "file:///data/x": -1, "data": -1, "s3://bucket/x": 0, "https://host/x": 0} {
		if got := retryConfig(url, retry.Config{}).Timeout; got != want {
			t.Errorf("%s has the timeout %v, want %v", url, got, want)
		}
		if got := retryConfig(url, retry.Config{Timeout: time.Second}).Timeout; got != time.Second {
			t.Errorf("%s has the timeout %v, where one second was set", url, got)
		}
	}
}

// A configuration survives JSON, and its zero value stays one.
func TestConfigJSON(t *testing.T) {
	zero, err := json.Marshal(Config{})
	if err != nil || string(zero) != "{}" {
		t.Errorf("%s, %v", zero, err)
	}
	r := newReader(t, small(t, datasettest.Options{}), Config{
		BatchSize: 3, DType: DTypeFloat32, Layout: LayoutNHWC, Fields: []string{"cls"},
		Transform: transform.List{transform.RandomResizedCrop{Size: transform.Size{32}, Scale: [2]float64{0.5, 1}, Interpolation: resize.Bicubic}, transform.RandomHorizontalFlip{P: 0.25}, transform.ImageNet},
	})
	data, err := json.Marshal(r.Config())
	if err != nil {
		t.Fatal(err)
	}
	var back Config
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, r.Config()) {
		t.Errorf("%s\n%+v\n%+v", data, back, r.Config())
	}
	again := newReader(t, small(t, datasettest.Options{}), back)
	if !reflect.DeepEqual(again.Config(), back) {
		t.Error("a filled in configuration is filled in differently")
	}
}

// Opening costs the manifest, and a pass reads indexes as their shards' turn comes.
func TestIndexesAreReadLazily(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 40, Samples: 2})
	var indexes atomic.Int32
	st := fault.New(d.Store(), fault.Config{Kinds: []fault.Kind{fault.Open}, Before: func(op fault.Op) error {
		if strings.HasSuffix(op.Name, ".parquet") {
			indexes.Add(1)
		}
		return nil
	}})
	lazy, err := dataset.New(st, d.Manifest())
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(t, lazy, Config{BatchSize: 2, Shuffle: ShuffleNone, Transform: crop})
	if n := indexes.Load(); n != 0 {
		t.Errorf("%d indexes read by New", n)
	}
	for b, err := range r.Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
	}
	epochOf(t, r, 1)
	if n := indexes.Load(); n != 40 {
		t.Errorf("%d indexes read in two epochs of 40 shards", n)
	}
}

// The cache stays within its limit and gives what load gives.
func TestRowCache(t *testing.T) {
	loads := 0
	one := rowsOf(t, 10)
	c := newRowCache(3*one.bytes(), new(meter), func(_ context.Context, shard int) (*rows, error) {
		if loads++; loads == 1 {
			return nil, errors.New("once")
		}
		return one, nil
	})
	ctx := context.Background()
	if _, err := c.get(ctx, 0); err == nil || c.bytes != 0 || len(c.entries) != 0 {
		t.Errorf("%v, %d bytes, %d entries", err, c.bytes, len(c.entries))
	}
	for shard := range 10 {
		for range 2 {
			if r, err := c.get(ctx, shard); r != one || err != nil {
				t.Fatal(err)
			}
		}
		if c.bytes > c.limit {
			t.Errorf("%d bytes of %d", c.bytes, c.limit)
		}
	}
	if loads != 11 || c.cached(9) == nil || c.cached(7) == nil || c.cached(6) != nil {
		t.Errorf("%d loads", loads)
	}
}

func rowsOf(t testing.TB, n int) *rows {
	table := make([]index.Row, n)
	for i := range table {
		table[i] = index.Row{Key: fmt.Sprint("key", i), Fields: []index.FieldRow{{Name: "jpg", Offset: int64(i) * 100, Size: 90}}}
	}
	r, err := (&wanted{image: true, names: []string{"cls"}}).pack(table)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRowsPack(t *testing.T) {
	r := rowsOf(t, 3)
	if string(r.key(0)) != "key0" || string(r.key(2)) != "key2" || r.labels[1] != -1 {
		t.Errorf("%q %q %d", r.key(0), r.key(2), r.labels[1])
	}
	if len(r.cols) != 2 || r.cols[0].offset[2] != 200 || r.cols[0].size[0] != 90 || r.cols[1].offset[0] != absent {
		t.Errorf("%+v", r.cols)
	}
}

// No more than a few allocations a batch in steady state, and none an image.
func TestAllocations(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 8, Samples: 100, Make: plain})
	r := newReader(t, d, Config{BatchSize: 50, Decode: DecodeNone, Workers: 2})
	read := func() {
		for b, err := range r.Epoch(context.Background(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			b.Release()
		}
	}
	read()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		read()
	}
	runtime.ReadMemStats(&after)
	if n := float64(after.Mallocs-before.Mallocs) / 8000; n > 0.5 {
		t.Errorf("%.2f allocations for a sample of %d bytes", n, len(datasettest.Sample(0, 5).Fields[1].Data))
	}
}

// Where there are more ranks than samples left, a rank gets an empty batch rather
// than one batch less.
func TestEmptyBatch(t *testing.T) {
	d := small(t, datasettest.Options{})
	total := 0
	for rank := range 24 {
		r := newReader(t, d, Config{BatchSize: 1, World: 24, Rank: rank, Ends: EndsExact, Transform: crop})
		all := epochOf(t, r, 0)
		if len(all) != 2 || len(all[0].samples) != 1 || (len(all[1].samples) == 1) != (rank < 16) {
			t.Fatalf("rank %d: %d batches", rank, len(all))
		}
		if want := []int{len(all[1].samples), 3, 24, 24}; !slices.Equal(all[1].shape, want) || len(all[1].images) != want[0]*3*24*24 {
			t.Errorf("rank %d: shape %v, %d bytes", rank, all[1].shape, len(all[1].images))
		}
		total += len(all[0].samples) + len(all[1].samples)
	}
	if total != 40 {
		t.Errorf("%d samples", total)
	}
}

// In a TFRecord a number has no bytes of its own: it is parsed out of its record,
// whose checksum a damaged image breaks.
func TestDamagedTFRecord(t *testing.T) {
	d := small(t, datasettest.Options{Format: "tfrecord"})
	sh := &d.Manifest().Splits[0].Shards[1]
	rows, err := d.Rows(context.Background(), sh)
	if err != nil {
		t.Fatal(err)
	}
	f := rows[4].Field("jpg")
	flipByte(t, d.Store(), sh.Name, f.Offset+f.Size/2)
	r := newReader(t, d, Config{BatchSize: 8, Shuffle: ShuffleNone, Decode: DecodeNone, OnBad: OnBadSkip})
	all := epochOf(t, r, 0)
	if all[1].bad != 1 || !slices.Equal(all[1].samples, []int64{8, 9, 10, 11, 12, 13, 15}) {
		t.Errorf("%+v", all[1])
	}
	r = newReader(t, d, Config{BatchSize: 8, Shuffle: ShuffleNone, Decode: DecodeNone})
	var bad *SampleError
	var last error
	for b, err := range r.Epoch(context.Background(), 0) {
		if last = err; err == nil {
			b.Release()
		}
	}
	if !errors.As(last, &bad) || !errors.Is(last, shard.ErrChecksum) || bad.Key != rows[4].Key {
		t.Errorf("got %v", last)
	}
}

// Several passes at once, and batches of one epoch held into the next, get what
// they would get alone.
func TestPassesAtOnce(t *testing.T) {
	d := small(t, datasettest.Options{})
	r := newReader(t, d, Config{BatchSize: 8, Transform: crop, Fields: []string{"jpg"}})
	var want [4][]copied
	for epoch := range want {
		want[epoch] = epochOf(t, newReader(t, d, Config{BatchSize: 8, Transform: crop, Fields: []string{"jpg"}}), epoch)
	}
	var wg sync.WaitGroup
	for range 2 {
		for epoch := range want {
			wg.Go(func() {
				if got := epochOf(t, r, epoch); !reflect.DeepEqual(got, want[epoch]) {
					t.Errorf("epoch %d differs beside others", epoch)
				}
			})
		}
	}
	wg.Wait()
	var held []*Batch
	for epoch := range want {
		for b, err := range r.Epoch(context.Background(), epoch) {
			if err != nil {
				t.Fatal(err)
			}
			if b.Number() == 4 {
				held = append(held, b)
			} else {
				b.Release()
			}
		}
	}
	for epoch, b := range held {
		if got := copyOf(b); !reflect.DeepEqual(got, want[epoch][4]) {
			t.Errorf("epoch %d: a batch that was held has changed", epoch)
		}
		b.Release()
	}
}

// A failing store ends the pass with its error wherever it fails, and leaves no
// goroutine; the next pass is none the worse.
func TestStoreFailsAnywhere(t *testing.T) {
	d := small(t, datasettest.Options{})
	want := epochOf(t, newReader(t, d, Config{BatchSize: 8, Transform: crop}), 0)
	before := goleak.IgnoreCurrent()
	for n := int64(1); ; n++ {
		st := fault.New(d.Store(), fault.Config{FailAt: n})
		shaky, err := dataset.New(st, d.Manifest())
		if err != nil {
			t.Fatal(err)
		}
		r := newReader(t, shaky, Config{BatchSize: 8, Transform: crop, OnBad: OnBadSkip, Retry: retry.Config{Attempts: 1}})
		var last error
		for b, err := range r.Epoch(context.Background(), 0) {
			if last = err; err == nil {
				b.Release()
			}
		}
		quiet(t, before)
		if last == nil {
			if n < 10 {
				t.Errorf("an epoch of %d operations", n)
			}
			break
		}
		if !errors.Is(last, fault.ErrInjected) {
			t.Fatalf("operation %d: %v", n, last)
		}
		if got := epochOf(t, r, 0); !reflect.DeepEqual(got, want) {
			t.Fatalf("the pass after a failure at operation %d differs", n)
		}
	}
}
