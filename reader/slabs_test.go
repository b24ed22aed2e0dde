package reader

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shardify/dataset/datasettest"
	"shardify/imaging/augment"
	"shardify/imaging/transform"
)

// shelf is Slabs that notes what is taken, and fills it with rubbish.
type shelf struct {
	mu    sync.Mutex
	taken map[*byte]int
	used  int64
	peak  int64
	news  int
	fail  error

	// told, if not nil, hears of Starved.
	told chan struct{}
}

func (s *shelf) Alloc(n int64) ([]byte, error) {
	b := aligned(n)
	for i := range b {
		b[i] = 0xa5
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	if s.taken == nil {
		s.taken = map[*byte]int{}
	}
	s.taken[&b[0]] = len(b)
	s.news++
	s.used += n
	s.peak = max(s.peak, s.used)
	return b, nil
}

func (s *shelf) Free(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[&b[0]] != len(b) {
		panic("what was not taken comes back")
	}
	delete(s.taken, &b[0])
	s.used -= int64(len(b))
}

func (s *shelf) Starved(ctx context.Context) {
	if s.told == nil || ctx.Value(shelfKey{}) != s {
		panic("nobody is to be told")
	}
	s.told <- struct{}{}
}

func (s *shelf) holds(b []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(b) > 0 && s.taken[&b[0]] == len(b)
}

func (s *shelf) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.taken)
}

// Batches lie in the memory that Slabs gives, with all that they have, are those that
// come without it, and leave the room for tables behind them alone.
func TestSlabs(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 4, Samples: 40})
	c := Config{BatchSize: 8, Seed: 3, Fields: []string{"cls"}, Transform: transform.List{transform.RandomResizedCrop{Size: transform.Size{32}}}}
	want := epochOf(t, newReader(t, d, c), 0)
	s := new(shelf)
	c.Slabs = s
	r := newReader(t, d, c)
	for epoch := range 2 {
		i := 0
		for b, err := range r.Epoch(t.Context(), epoch) {
			if err != nil {
				t.Fatal(err)
			}
			slab, used := b.Slab()
			if !s.holds(slab) {
				t.Fatalf("batch %d lies elsewhere", i)
			}
			keys := 0
			for k := range b.Len() {
				field, ok := b.Field(k, "cls")
				if !ok || !within(slab[:used], field) {
					t.Errorf("batch %d: field of sample %d: %v", i, k, ok)
				}
				keys += len(b.Key(k))
			}
			for _, x := range b.Tensors() {
				if !within(slab[:used], x.Data) {
					t.Errorf("batch %d: tensor %s lies elsewhere", i, x.Name)
				}
			}
			if room := len(slab) - used; room < b.Len()*(8+16+16)+3*64+keys {
				t.Errorf("batch %d leaves %d bytes", i, room)
			}
			if !slices.Equal(slab[used:], bytes.Repeat([]byte{0xa5}, len(slab)-used)) {
				t.Errorf("batch %d: the room behind it was used", i)
			}
			if got := copyOf(b); epoch == 0 && !reflect.DeepEqual(got, want[i]) {
				t.Errorf("batch %d is another one:\n%v\n%v", i, got.samples, want[i].samples)
			}
			b.Release()
			i++
		}
		if i != len(want) {
			t.Fatalf("%d batches, want %d", i, len(want))
		}
	}
	if s.news >= 2*len(want) {
		t.Errorf("%d slabs for %d batches: they are not used again", s.news, 2*len(want))
	}
	if s.peak > r.Config().Memory {
		t.Errorf("%d bytes, where memory is %d", s.peak, r.Config().Memory)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if n := s.left(); n != 0 {
		t.Errorf("%d slabs did not come back", n)
	}
}

// A batch that is held when its pass is left keeps its slab, and gives it back then.
func TestSlabsHeld(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 4, Samples: 40})
	s := new(shelf)
	r := newReader(t, d, Config{BatchSize: 8, Decode: DecodeNone, Slabs: s})
	var held *Batch
	for b, err := range r.Epoch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		held = b
		break
	}
	if n := s.left(); n != 1 {
		t.Errorf("%d slabs are out, want that of the batch", n)
	}
	if slab, _ := held.Slab(); !s.holds(slab) {
		t.Error("the batch's slab is gone")
	}
	held.Release()
	if n := s.left(); n != 0 {
		t.Errorf("%d slabs did not come back", n)
	}
}

// A slab that cannot be had, or is none, ends the pass, with the allocator's error.
func TestSlabsFail(t *testing.T) {
	none := errors.New("none left")
	for _, c := range []struct {
		slabs func(s *shelf) Slabs
		want  string
	}{
		{func(s *shelf) Slabs { s.fail = none; return s }, "none left"},
		{func(s *shelf) Slabs { return crooked{s} }, "at a multiple of 64 were asked for"},
	} {
		s := new(shelf)
		r := newReader(t, small(t, datasettest.Options{}), Config{BatchSize: 8, Decode: DecodeNone, Fields: []string{"cls"}, Slabs: c.slabs(s)})
		var last error
		for b, err := range r.Epoch(t.Context(), 0) {
			if last = err; err == nil {
				b.Release()
			}
		}
		if last == nil || !strings.Contains(last.Error(), c.want) {
			t.Errorf("the pass ends with %v, want %q", last, c.want)
		}
		if n := s.left(); n != 0 {
			t.Errorf("%d slabs did not come back", n)
		}
	}
}

// Tensors says what the batches have.
func TestTensorsBefore(t *testing.T) {
	pictures := []TensorSpec{{Field: "depth.png", Name: "again", Kind: KindImage}, {Field: "seg.png", Name: "mask", Kind: KindMask}}
	for _, c := range []struct {
		o datasettest.Options
		c Config
	}{
		{datasettest.Options{Make: rich}, Config{BatchSize: 7, Transform: crop, Tensors: richSpecs}},
		{datasettest.Options{Make: scene}, Config{BatchSize: 7, Transform: crop, Layout: LayoutNHWC, DType: DTypeFloat16, Tensors: pictures}},
		{datasettest.Options{}, Config{BatchSize: 7, Transform: crop, DType: DTypeFloat32, MixUp: &augment.MixUp{}}},
		{datasettest.Options{}, Config{BatchSize: 7, Transform: crop, DType: DTypeFloat32, CutMix: &augment.CutMix{}, Classes: -1}},
		{datasettest.Options{}, Config{BatchSize: 7, Decode: DecodeNone}},
		{datasettest.Options{Make: scene}, Config{BatchSize: 7, Collate: CollateRagged, Tensors: pictures}},
		{datasettest.Options{Make: scene}, Config{BatchSize: 7, Collate: CollatePad, Layout: LayoutNHWC, Tensors: pictures}},
		{datasettest.Options{Make: scene}, Config{BatchSize: 7, Collate: CollatePad, PadTo: transform.Size{80, 90}, Tensors: pictures}},
	} {
		r := newReader(t, small(t, c.o), c.c)
		said := r.Tensors()
		for b, err := range r.Epoch(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			got := b.Tensors()
			if len(got) != len(said) {
				t.Fatalf("%d tensors, %d were said", len(got), len(said))
			}
			for i, x := range got {
				shape := slices.Clone(x.Shape)
				for k, n := range said[i].Shape {
					if n == -1 && k < len(shape) {
						shape[k] = -1
					}
				}
				if x.Name != said[i].Name || x.DType != said[i].DType || !slices.Equal(shape, said[i].Shape) || said[i].Data != nil {
					t.Errorf("%s %s %v, said was %v", x.Name, x.DType, x.Shape, said[i])
				}
			}
			b.Release()
			break
		}
	}
}

// crooked gives less than is asked for.
type crooked struct{ *shelf }

func (c crooked) Alloc(n int64) ([]byte, error) { return c.shelf.Alloc(n - 64) }

// Who holds so many batches that the pass cannot go on is told; each release lets it go on.
func TestStarved(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 4, Samples: 40, Make: plain})
	s := new(shelf)
	r := newReader(t, d, Config{BatchSize: 4, Memory: 8 << 20, Workers: 2, Transform: transform.List{transform.CenterCrop{Size: transform.Size{224}}}, Slabs: s})
	batches := make(chan *Batch, r.Len())
	s.told = make(chan struct{}, r.Len())
	most := r.Lendable() / sizeClass(4*3*224*224)
	if most < 2 {
		t.Fatalf("%d batches can be lent: this shows nothing", most)
	}
	var released, got, handed atomic.Int64
	go func() {
		for range s.told {
			if g, h := got.Load(), handed.Load(); g != h {
				t.Errorf("told that it has all when it has handed on %d batches of %d", h, g)
			}
			if n := int64(len(batches)); n < most {
				t.Errorf("the pass cannot go on when %d batches are held, where %d may be", n, most)
			}
			(<-batches).Release()
			released.Add(1)
		}
	}()
	n := 0
	for b, err := range r.Epoch(context.WithValue(t.Context(), shelfKey{}, s), 0) {
		if err != nil {
			t.Fatal(err)
		}
		got.Add(1)
		time.Sleep(2 * time.Millisecond) // as if handing it on took so long
		batches <- b
		handed.Add(1)
		n++
	}
	close(s.told)
	if n != r.Len() || released.Load() == 0 || released.Load() > int64(n)-most {
		t.Errorf("%d batches of %d came, after %d releases", n, r.Len(), released.Load())
	}
	for len(batches) > 0 {
		(<-batches).Release()
	}
}

// shelfKey is that of the shelf in the context of a pass.
type shelfKey struct{}

// The readers of all ranks read what a reader of each would, and share their indexes.
func TestForRank(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 6, Samples: 40})
	c := Config{BatchSize: 5, Seed: 3, World: 4, Transform: crop, Fields: []string{"cls"}, Sampling: Sampling{Samples: 100}}
	first := newReader(t, d, c)
	for rank := range 4 {
		c.Rank = rank
		s := new(shelf)
		r, err := first.ForRank(rank, s)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := epochOf(t, r, 1), epochOf(t, newReader(t, d, c), 1); !reflect.DeepEqual(got, want) {
			t.Errorf("rank %d reads other batches", rank)
		}
		if s.news == 0 {
			t.Errorf("rank %d: the batches lie elsewhere", rank)
		}
		if got := r.Config().Rank; got != rank {
			t.Errorf("rank %d says that it is %d", rank, got)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if n := s.left(); n != 0 {
			t.Errorf("rank %d: %d slabs did not come back", rank, n)
		}
	}
	if n := first.Stats().Stages.Index.Items; n != 6 {
		t.Errorf("%d indexes were read, want 6", n)
	}
	for _, rank := range []int{-1, 4} {
		if _, err := first.ForRank(rank, nil); !errors.Is(err, ErrConfig) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	// It outlives the first one.
	r, err := first.ForRank(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(epochOf(t, r, 0)); n != r.Len() {
		t.Errorf("%d batches, want %d", n, r.Len())
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
