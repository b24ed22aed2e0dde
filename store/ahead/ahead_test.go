package ahead

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"

	"shardify/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// slow is a source that answers when it is let.
type slow struct {
	data []byte
	// before, if it is not nil, comes before an answer.
	before func(ctx context.Context, off int64) error

	mu        sync.Mutex
	offs      []int64
	now, most int
}

func (s *slow) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	s.mu.Lock()
	s.offs = append(s.offs, off)
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	if s.before != nil {
		if err := s.before(ctx, off); err != nil {
			return 0, err
		}
	}
	return bytes.NewReader(s.data).ReadAt(p, off)
}

func random(n int) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n)}).Read(p)
	return p
}

const (
	ranges = 5
	early  = ranges / 2
)

// All bytes come, once and in order, whatever the size, each range asked for once.
func TestReader(t *testing.T) {
	all := random(7*rangeSize + 100)
	for _, size := range []int{0, 1, rangeSize - 1, rangeSize, rangeSize + 1, ranges * rangeSize, len(all)} {
		s := &slow{data: all[:size]}
		r := NewReader(t.Context(), s, int64(size), ranges)
		if size%2 == 1 {
			r.Begin()
		}
		data, err := io.ReadAll(iotest.HalfReader(r))
		if err != nil || !bytes.Equal(data, all[:size]) || r.Err() != nil {
			t.Errorf("%d bytes: %d come, %v", size, len(data), err)
		}
		r.Close()
		slices.Sort(s.offs)
		if want := (size + rangeSize - 1) / rangeSize; len(s.offs) != want || s.most > ranges || len(slices.Compact(s.offs)) != want {
			t.Errorf("%d bytes: ranges from %d on, %d at once", size, s.offs, s.most)
		}
	}
}

// Ranges are asked for before they are needed: half of them by Begin, and all while nothing
// has come.
func TestAhead(t *testing.T) {
	asked := make(chan int64, 100)
	let := make(chan struct{})
	s := &slow{data: random(9 * rangeSize), before: func(_ context.Context, off int64) error {
		asked <- off
		<-let
		return nil
	}}
	r := NewReader(t.Context(), s, int64(len(s.data)), ranges)
	defer r.Close()
	expect := func(n int) {
		t.Helper()
		for range n {
			select {
			case <-asked:
			case <-time.After(time.Minute):
				t.Fatal("a range is not asked for")
			}
		}
		select {
		case off := <-asked:
			t.Fatalf("the range at %d is asked for, too", off)
		case <-time.After(20 * time.Millisecond):
		}
	}
	r.Begin()
	expect(early)
	read := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(r, make([]byte, rangeSize))
		read <- err
	}()
	expect(ranges - early)
	close(let)
	if err := <-read; err != nil {
		t.Error(err)
	}
	if s.most != ranges {
		t.Errorf("%d at once", s.most)
	}
}

// What lies before an error comes first; a source that ends early has changed; and Close
// and the context end what is under way.
func TestReaderErrors(t *testing.T) {
	broken := errors.New("broken")
	data := random(5 * rangeSize)
	s := &slow{data: data, before: func(_ context.Context, off int64) error {
		if off == 2*rangeSize {
			return broken
		}
		return nil
	}}
	r := NewReader(t.Context(), s, int64(len(data)), ranges)
	got, err := io.ReadAll(r)
	if !errors.Is(err, broken) || !errors.Is(r.Err(), broken) || !bytes.Equal(got, data[:2*rangeSize]) {
		t.Errorf("%d bytes, then %v", len(got), err)
	}
	r.Close()

	r = NewReader(t.Context(), &slow{data: data[:rangeSize+5]}, int64(len(data)), ranges)
	got, err = io.ReadAll(r)
	if !errors.Is(err, store.ErrChanged) || !bytes.Equal(got, data[:rangeSize+5]) {
		t.Errorf("of one that ends early %d bytes, then %v", len(got), err)
	}
	r.Close()

	for _, end := range []func(context.CancelFunc, *Reader){
		func(cancel context.CancelFunc, _ *Reader) { cancel() },
		func(_ context.CancelFunc, r *Reader) { r.cancel() }, // as Close does
	} {
		ctx, cancel := context.WithCancel(t.Context())
		begun := make(chan struct{}, 100)
		r := NewReader(ctx, &slow{data: data, before: func(ctx context.Context, _ int64) error {
			begun <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}}, int64(len(data)), ranges)
		r.Begin()
		<-begun
		end(cancel, r)
		if _, err := r.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("ended: %v", err)
		}
		r.Close()
		cancel()
	}
}

// As many objects are read at once as was said, more are begun meanwhile, and what those
// take stays below what the others take; every one gets its turn, whatever their sizes.
func TestTurns(t *testing.T) {
	const at = 3
	for _, size := range []int64{0, 1, 1 << 20, rangeSize, 100 * rangeSize, -1} {
		turns := NewTurns(at)
		var reading, begun, bytes, mostReading, mostBegun, mostBytes atomic.Int64
		top := func(of *atomic.Int64, n int64) {
			for m := of.Load(); n > m && !of.CompareAndSwap(m, n); m = of.Load() {
			}
		}
		taken := min(max(size, 0), int64(turns.Ranges()/2)*rangeSize)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var left atomic.Int64
		left.Store(300)
		var wg sync.WaitGroup
		for range turns.Goroutines() {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					turn, err := turns.Begin(ctx, size)
					if err != nil {
						t.Error(err)
						return
					}
					top(&mostBegun, begun.Add(1))
					top(&mostBytes, bytes.Add(taken))
					if n := left.Load(); n%7 != 0 {
						bytes.Add(-taken)
						if err := turn.Take(ctx); err != nil {
							t.Error(err)
						}
						top(&mostReading, reading.Add(1))
						time.Sleep(100 * time.Microsecond)
						reading.Add(-1)
					} else {
						bytes.Add(-taken)
					}
					begun.Add(-1)
					turn.Done()
				}
			})
		}
		wg.Wait()
		cancel()
		if mostReading.Load() > at || mostBytes.Load() > at*int64(turns.Ranges())*rangeSize || mostBegun.Load() <= at {
			t.Errorf("%d bytes: %d are read at once, %d begun, which take %d bytes", size, mostReading.Load(), mostBegun.Load(), mostBytes.Load())
		}
	}
	for n, want := range map[int]int{1: 8, 2: 8, 4: 8, 6: 5, 8: 4, 64: 4} {
		if got := NewTurns(n).Ranges(); got != want {
			t.Errorf("%d at once have %d ranges, want %d", n, got, want)
		}
	}
	// Who waits is let go.
	turns := NewTurns(1)
	ctx, cancel := context.WithCancel(t.Context())
	var all []*Turn
	for range 2 {
		turn, err := turns.Begin(ctx, 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, turn)
	}
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := turns.Begin(ctx, 1<<40); !errors.Is(err, context.Canceled) {
		t.Errorf("Begin: %v", err)
	}
	if err := all[0].Take(t.Context()); err != nil {
		t.Error(err)
	}
	if err := all[1].Take(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Take: %v", err)
	}
	for _, turn := range all {
		turn.Done()
		turn.Done()
	}
	if turn, err := turns.Begin(t.Context(), 1<<40); err != nil || turn.Take(t.Context()) != nil {
		t.Error(err)
	}
}
