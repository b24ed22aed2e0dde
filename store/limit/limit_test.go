package limit

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// server is one in a bubble of testing/synctest: it answers after a latency, sends over
// a line of so many bytes a second, and turns away what is more than most at once.
type server struct {
	latency time.Duration
	line    float64 // 0: no bound
	most    int     // 0: no bound

	mu   sync.Mutex
	free time.Time // when the line is
	now  int
}

func (s *server) get(size int64) (throttled bool) {
	s.mu.Lock()
	if s.now++; s.most > 0 && s.now > s.most {
		s.now--
		s.mu.Unlock()
		time.Sleep(s.latency / 4)
		return true
	}
	s.mu.Unlock()
	time.Sleep(s.latency/2 + rand.N(s.latency))
	s.mu.Lock()
	wait := time.Duration(0)
	if s.line > 0 {
		if now := time.Now(); s.free.Before(now) {
			s.free = now
		}
		s.free = s.free.Add(time.Duration(float64(size) / s.line * float64(time.Second)))
		wait = time.Until(s.free)
	}
	s.mu.Unlock()
	time.Sleep(wait)
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
	return false
}

// load has so many clients ask the server for so long, and returns how many answers a
// second came in the last half, and how many were turned away, of all.
func load(t *testing.T, l *Limiter, s *server, clients int, size int64, lasts time.Duration) (rate, turned float64) {
	t.Helper()
	begin := time.Now()
	var late, all, away atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for time.Since(begin) < lasts {
				slot, err := l.Acquire(t.Context(), size)
				if err != nil {
					t.Error(err)
					return
				}
				throttled := s.get(size)
				bytes := size
				all.Add(1)
				if throttled {
					bytes = 0
					away.Add(1)
				} else if time.Since(begin) > lasts/2 {
					late.Add(1)
				}
				l.Release(slot, bytes, throttled)
				if throttled {
					time.Sleep(rand.N(100 * time.Millisecond))
				}
			}
		})
	}
	wg.Wait()
	return float64(late.Load()) / (lasts / 2).Seconds(), float64(away.Load()) / float64(all.Load())
}

func newLimiter(t *testing.T, c Config) *Limiter {
	t.Helper()
	l, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Where latency is all that there is, the limit grows to the largest.
func TestHidesLatency(t *testing.T) {
	for _, latency := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, Config{})
			rate, _ := load(t, l, &server{latency: latency}, 400, 110_000, max(20*latency, 5*time.Second))
			if got := l.Stats().Limit; got != DefaultMax {
				t.Errorf("%v: the limit is %d", latency, got)
			}
			if want := DefaultMax / latency.Seconds(); rate < 0.95*want {
				t.Errorf("%v: %.0f answers a second of %.0f", latency, rate, want)
			}
		})
	}
}

// Where the line is full, the limit stays near what fills it.
func TestFillsLine(t *testing.T) {
	for _, c := range []struct {
		latency time.Duration
		line    float64
		size    int64
	}{
		{50 * time.Millisecond, 125e6, 110_000}, // 57 requests fill it
		{20 * time.Millisecond, 1e9, 4 << 20},   // 5 do
		{100 * time.Millisecond, 10e6, 4 << 20}, // 1 does
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, Config{})
			rate, _ := load(t, l, &server{latency: c.latency, line: c.line}, 400, c.size, time.Minute)
			want := c.line / float64(c.size)
			if rate < 0.95*want {
				t.Errorf("%+v: %.0f answers a second of %.0f", c, rate, want)
			}
			fills := int(c.latency.Seconds()*want) + 1
			if got := l.Stats().Limit; got > max(DefaultStart, 4*fills) {
				t.Errorf("%+v: the limit is %d, and %d requests fill the line", c, got, fills)
			}
		})
	}
}

// A server that turns requests away is left alone, and used well all the same.
func TestThrottled(t *testing.T) {
	for _, most := range []int{4, 8, 40, 100} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, Config{})
			const latency = 50 * time.Millisecond
			rate, turned := load(t, l, &server{latency: latency, most: most}, 200, 110_000, 2*time.Minute)
			stats := l.Stats()
			t.Logf("at most %d at once: limit %d, %.2f of the rate, %.4f turned away", most, stats.Limit, rate*latency.Seconds()/float64(most), turned)
			if want := float64(most) / latency.Seconds(); rate < 0.7*want {
				t.Errorf("at most %d at once: %.0f answers a second of %.0f", most, rate, want)
			}
			if turned > 0.03 || stats.Throttled == 0 {
				t.Errorf("at most %d at once: %.3f of the requests are turned away, %d counted", most, turned, stats.Throttled)
			}
			if stats.Limit > 2*most {
				t.Errorf("at most %d at once: the limit is %d", most, stats.Limit)
			}
		})
	}
}

// All requests that were under way when one was turned away halve the limit once.
func TestHalvedOnce(t *testing.T) {
	l := newLimiter(t, Config{Start: 32})
	var slots []Slot
	for range 32 {
		s, err := l.Acquire(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, s)
	}
	for i, s := range slots {
		l.Release(s, 0, true)
		if got := l.Stats(); got.Limit != 16 || got.Throttled != int64(i+1) || got.Used != 31-i {
			t.Fatalf("after %d: %+v", i+1, got)
		}
	}
	s, err := l.Acquire(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	l.Release(s, 0, true)
	if got := l.Stats().Limit; got != 8 {
		t.Errorf("the limit is %d after a request that was sent later", got)
	}
}

// Slots go in the order of asking, and none is lost when who waits goes away.
func TestAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Config{Start: 1, Max: 1})
		held, err := l.Acquire(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		var order []int
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 200 {
			wg.Go(func() {
				mine := t.Context()
				if i%2 == 1 {
					mine = ctx
				}
				s, err := l.Acquire(mine, 0)
				if i%2 == 1 {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("%d: %v", i, err)
					}
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i) // one at a time: the limit is 1
				l.Release(s, 0, false)
			})
			synctest.Wait()
		}
		if got := l.Stats(); got.Waiting != 200 || got.Used != 1 {
			t.Errorf("%+v", got)
		}
		cancel()
		synctest.Wait()
		l.Release(held, 0, false)
		wg.Wait()
		for i := range order {
			if order[i] != 2*i {
				t.Fatalf("the order is %v", order)
			}
		}
		if got := l.Stats(); got.Waiting != 0 || got.Used != 0 || len(order) != 100 {
			t.Errorf("%+v, %d had a slot", got, len(order))
		}
		if _, err := l.Acquire(ctx, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that is over: %v", err)
		}
	})
}

// Whoever comes and goes, no more than the limit are under way, and in the end none.
func TestBound(t *testing.T) {
	l := newLimiter(t, Config{Start: 3, Max: 7})
	var now atomic.Int64
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				if rand.IntN(3) == 0 {
					go cancel()
				}
				s, err := l.Acquire(ctx, 0)
				cancel()
				if err != nil {
					continue
				}
				if n := now.Add(1); n > 7 {
					t.Errorf("%d at once", n)
				}
				now.Add(-1)
				l.Release(s, 1000, rand.IntN(50) == 0)
			}
		})
	}
	wg.Wait()
	if got := l.Stats(); got.Used != 0 || got.Waiting != 0 || got.Limit < 1 || got.Limit > 7 {
		t.Errorf("%+v", got)
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{{Start: -1}, {Max: -1}, {Start: 300}, {Start: 9, Max: 8}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	if got := newLimiter(t, Config{Max: 5}).Stats().Limit; got != 5 {
		t.Errorf("the limit begins at %d", got)
	}
}

// At first small requests go at once as far as 16 MiB reach, and large ones as far as the
// limit does; and what has gone out so is the limit from then on.
func TestFirstRequests(t *testing.T) {
	for _, c := range []struct {
		size    int64
		want    int
		because string
	}{
		{4 << 20, DefaultStart, "large ones could fill a slow line for longer than an attempt may take"},
		{110_000, startBytes / (110_000 + perRequest), "16 MiB are so many photographs"},
		{0, DefaultMax, "more are never under way"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, Config{})
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range 400 {
				wg.Go(func() {
					if s, err := l.Acquire(ctx, c.size); err == nil {
						<-ctx.Done()
						l.Release(s, c.size, false)
					}
				})
			}
			synctest.Wait()
			if got := l.Stats(); got.Used != c.want || got.Limit != c.want || got.Waiting != 400-c.want {
				t.Errorf("of 400 requests for %d bytes: %+v, want %d under way: %s", c.size, got, c.want, c.because)
			}
			cancel()
			wg.Wait()
			if got := l.Stats(); got.Used != 0 || got.Waiting != 0 || l.asked != 0 {
				t.Errorf("in the end: %+v, %d bytes", got, l.asked)
			}
		})
	}
	// A server that has turned a request away gets no such flood again.
	l := newLimiter(t, Config{})
	s, err := l.Acquire(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	l.Release(s, 0, true)
	for range DefaultStart / 2 {
		if _, err := l.Acquire(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := l.Acquire(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one more than half as many: %v", err)
	}
}
