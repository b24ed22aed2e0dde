package retry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"shardify/store"
	"shardify/store/fault"
	"shardify/store/file"
	"shardify/store/mem"
	"shardify/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wrap(t *testing.T, inner store.Store, c Config) *Store {
	t.Helper()
	s, err := New(inner, c)
	must(t, err)
	return s
}

func pattern(seed byte, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func TestStore(t *testing.T) {
	reads := []fault.Kind{fault.Open, fault.ReadAt, fault.List}
	bad := fault.Config{Kinds: reads, ErrorRate: 0.2, ShortReadRate: 0.2, StallRate: 0.01, Stall: time.Millisecond, Seed: 1}
	quick := Config{Attempts: 25, Backoff: time.Microsecond, MaxBackoff: 10 * time.Microsecond}
	hedged := quick
	hedged.Hedge = 100 * time.Microsecond
	for _, c := range []struct {
		name  string
		fault fault.Config
		retry Config
	}{
		{"sound", fault.Config{}, Config{}},
		{"bad", bad, quick},
		{"bad, hedged", bad, hedged},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all []*Store
			storetest.Run(t, func(t *testing.T) store.Store {
				s := wrap(t, fault.New(mem.New(), c.fault), c.retry)
				all = append(all, s)
				return s
			})
			var sum Stats
			for _, s := range all {
				stats := s.Stats()
				sum.Retries += stats.Retries
				sum.Continued += stats.Continued
				sum.GaveUp += stats.GaveUp
				sum.Hedges += stats.Hedges
			}
			bad := c.fault.ErrorRate > 0
			if sum.GaveUp != 0 || (sum.Retries > 1000) != bad || (sum.Continued > 500) != bad || (sum.Hedges > 0) != (c.retry.Hedge > 0) {
				t.Errorf("counted %+v", sum)
			}
		})
	}
	t.Run("file", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) store.Store { return wrap(t, file.New(t.TempDir()), Config{}) })
	})
}

// Random ranges, read by several goroutines from a store that fails, cuts and
// stalls (each stall longer than the timeout, so it is cut off too), are the
// object's bytes; and the names listed are the store's.
func TestIdentical(t *testing.T) {
	for _, rate := range []float64{0.01, 0.05, 0.2} {
		for _, hedge := range []time.Duration{0, 50 * time.Millisecond} {
			t.Run(fmt.Sprint(rate, hedge), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					inner := mem.New()
					data := map[string][]byte{}
					for i := range 20 {
						name := fmt.Sprintf("shards/%02d", i)
						data[name] = pattern(byte(i), 10_000+3_000*i)
						must(t, store.WriteAll(t.Context(), inner, name, data[name]))
					}
					s := wrap(t, fault.New(inner, fault.Config{
						ErrorRate: rate, ShortReadRate: rate, StallRate: rate, Stall: time.Hour, Seed: 7,
					}), Config{Timeout: time.Second, Hedge: hedge, Attempts: 30})
					var wg sync.WaitGroup
					for g := range 8 {
						wg.Go(func() {
							r := rand.New(rand.NewPCG(uint64(g), 1))
							for name, want := range data {
								o, err := s.Open(t.Context(), name)
								if err != nil {
									t.Error(err)
									return
								}
								for range 20 {
									off, p := r.IntN(len(want)), make([]byte, 1+r.IntN(8_000))
									n, err := o.ReadAt(t.Context(), p, int64(off))
									expected := want[off:min(len(want), off+len(p))]
									if !bytes.Equal(p[:n], expected) || n < len(p) && err != io.EOF || n == len(p) && err != nil && err != io.EOF {
										t.Errorf("%s: ReadAt(%d bytes, %d) = %d, %v", name, len(p), off, n, err)
									}
								}
								if err := o.Close(); err != nil {
									t.Error(err)
								}
							}
							n := 0
							for info, err := range s.List(t.Context(), "shards/") {
								if err != nil || info.Name != fmt.Sprintf("shards/%02d", n) {
									t.Errorf("listed %+v, %v", info, err)
								}
								n++
							}
							if n != len(data) {
								t.Errorf("%d names of %d", n, len(data))
							}
						})
					}
					wg.Wait()
					stats := s.Stats()
					if stats.GaveUp != 0 || stats.Retries == 0 || stats.Continued == 0 || (stats.Hedges > 0) != (hedge > 0) || (stats.HedgesWon > 0) != (hedge > 0) {
						t.Errorf("counted %+v", stats)
					}
					// Open and List have no hedge, so stalls there end by the timeout.
					if stats.Timeouts == 0 && rate > 0.01 {
						t.Errorf("no timeout: %+v", stats)
					}
				})
			})
		}
	}
}

// broken is a store of which calls go wrong as a test says.
type broken struct {
	store.Store
	readAt func(n int64, o store.Object, ctx context.Context, p []byte, off int64) (int, error)
	opens  func(n int64) error
	list   func(pass int64, i int) error // before the name i of a pass
	calls  atomic.Int64
	closed atomic.Int64
}

func (b *broken) Open(ctx context.Context, name string) (store.Object, error) {
	if b.opens != nil {
		if err := b.opens(b.calls.Add(1)); err != nil {
			return nil, err
		}
	}
	o, err := b.Store.Open(ctx, name)
	return &brokenObject{o, b}, err
}

type brokenObject struct {
	store.Object
	b *broken
}

func (o *brokenObject) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	return o.b.readAt(o.b.calls.Add(1), o.Object, ctx, p, off)
}

func (o *brokenObject) Close() error {
	o.b.closed.Add(1)
	return o.Object.Close()
}

func (b *broken) List(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		pass := b.calls.Add(1)
		i := 0
		for info, err := range b.Store.List(ctx, prefix) {
			if b.list != nil {
				if err := b.list(pass, i); err != nil {
					yield(store.Info{}, err)
					return
				}
			}
			if !yield(info, err) {
				return
			}
			i++
		}
	}
}

func open(t *testing.T, b *broken, c Config) (*Store, store.Object, []byte) {
	t.Helper()
	data := pattern(1, 1000)
	b.Store = mem.New()
	must(t, store.WriteAll(t.Context(), b.Store, "d/a", data))
	s := wrap(t, b, c)
	o, err := s.Open(t.Context(), "d/a")
	must(t, err)
	b.calls.Store(0)
	return s, o, data
}

var errBroken = errors.New("503 Slow Down")

// A read that comes short goes on where it broke off: the inner store is asked for
// no byte twice. An end before the object's is no end.
func TestContinues(t *testing.T) {
	for name, err := range map[string]error{"error": errBroken, "EOF": io.EOF, "wrapped EOF": fmt.Errorf("body: %w", io.EOF), "none": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []string
				b := &broken{readAt: func(n int64, o store.Object, ctx context.Context, p []byte, off int64) (int, error) {
					asked = append(asked, fmt.Sprintf("%d+%d", off, len(p)))
					if n < 4 {
						n, _ := o.ReadAt(ctx, p[:100*(n-1)], off)
						return n, err
					}
					return o.ReadAt(ctx, p, off)
				}}
				s, o, data := open(t, b, Config{})
				defer o.Close()
				p := make([]byte, 600)
				n, err := o.ReadAt(t.Context(), p, 50)
				if n != 600 || err != nil || !bytes.Equal(p, data[50:650]) {
					t.Errorf("ReadAt = %d, %v", n, err)
				}
				if want := []string{"50+600", "50+600", "150+500", "350+300"}; !slices.Equal(asked, want) {
					t.Errorf("asked for %q; want %q", asked, want)
				}
				if got := s.Stats(); got.Retries != 3 || got.Continued != 2 {
					t.Errorf("counted %+v", got)
				}
				b.calls.Store(0)
				n, err = o.ReadAt(t.Context(), p, 500)
				if n != 500 || err != io.EOF || !bytes.Equal(p[:n], data[500:]) {
					t.Errorf("ReadAt over the end = %d, %v", n, err)
				}
			})
		})
	}
}

// A store that brings one byte an attempt does not hold a call for ever, nor does
// one that brings nothing.
func TestGivesUp(t *testing.T) {
	for _, c := range []struct{ brings, attempts, n int }{{0, 5, 0}, {1, 5 * inAll, 5 * inAll}} {
		synctest.Test(t, func(t *testing.T) {
			b := &broken{readAt: func(_ int64, o store.Object, ctx context.Context, p []byte, off int64) (int, error) {
				n, _ := o.ReadAt(ctx, p[:c.brings], off)
				return n, errBroken
			}}
			s, o, _ := open(t, b, Config{Attempts: 5})
			defer o.Close()
			n, err := o.ReadAt(t.Context(), make([]byte, 600), 50)
			if n != c.n || !errors.Is(err, errBroken) || int(b.calls.Load()) != c.attempts {
				t.Errorf("ReadAt = %d, %v after %d attempts", n, err, b.calls.Load())
			}
			if text := fmt.Sprint(err); !strings.Contains(text, fmt.Sprintf("%d attempts", c.attempts)) || !strings.Contains(text, "mem:/d/a") {
				t.Errorf("the error says %q", text)
			}
			if got := s.Stats(); got.GaveUp != 1 || got.Attempts != int64(c.attempts)+1 {
				t.Errorf("counted %+v", got)
			}
		})
	}
}

func TestFinal(t *testing.T) {
	denied := errors.New("the caller's own")
	for _, final := range []error{
		fs.ErrNotExist, fs.ErrPermission, fs.ErrInvalid, store.ErrName, fs.ErrClosed, fs.ErrExist, errors.ErrUnsupported, syscall.ENOTDIR, denied,
	} {
		final := fmt.Errorf("s3://x/a: %w", final)
		b := &broken{
			readAt: func(int64, store.Object, context.Context, []byte, int64) (int, error) { return 3, final },
			list:   func(int64, int) error { return final },
		}
		s, o, _ := open(t, b, Config{Retryable: func(err error) bool { return !errors.Is(err, denied) }})
		if n, err := o.ReadAt(t.Context(), make([]byte, 10), 0); n != 3 || err != final {
			t.Errorf("ReadAt = %d, %v; want 3, %v", n, err, final)
		}
		for _, err := range s.List(t.Context(), "") {
			if err != final {
				t.Errorf("List: %v; want %v", err, final)
			}
		}
		b.opens = func(int64) error { return final }
		if _, err := s.Open(t.Context(), "d/a"); err != final {
			t.Errorf("Open: %v; want %v", err, final)
		}
		if b.calls.Load() != 3 || s.Stats().Retries != 0 || s.Stats().GaveUp != 0 {
			t.Errorf("%v: %d calls, %+v", final, b.calls.Load(), s.Stats())
		}
		must(t, o.Close())
	}
}

// The caller's context ends a backoff and a stalled attempt at once.
func TestCancelled(t *testing.T) {
	for name, hedge := range map[string]time.Duration{"plain": 0, "hedged": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &broken{readAt: func(_ int64, _ store.Object, ctx context.Context, _ []byte, off int64) (int, error) {
					if off == 0 {
						return 0, errBroken
					}
					<-ctx.Done()
					return 0, ctx.Err()
				}}
				_, o, _ := open(t, b, Config{Hedge: hedge, Backoff: 24 * time.Hour, MaxBackoff: 24 * time.Hour})
				defer o.Close()
				for _, c := range []struct {
					off int64
					why error
				}{{0, errBroken}, {1, nil}} {
					start := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					n, err := o.ReadAt(ctx, make([]byte, 10), c.off)
					cancel()
					if took := time.Since(start); n != 0 || took != time.Second {
						t.Errorf("ReadAt = %d after %v", n, took)
					}
					if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrStalled) || c.why != nil && !errors.Is(err, c.why) {
						t.Errorf("ReadAt: %v", err)
					}
				}
			})
		})
	}
}

func TestStalled(t *testing.T) {
	for name, hedge := range map[string]time.Duration{"plain": 0, "hedged": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := mem.New()
				must(t, store.WriteAll(t.Context(), inner, "a", pattern(1, 100)))
				s := wrap(t, fault.New(inner, fault.Config{StallRate: 1, Stall: time.Hour}),
					Config{Timeout: 10 * time.Second, Attempts: 3, Backoff: 1, MaxBackoff: 1, Hedge: hedge})
				stalled := func(what string, start time.Time, err error) {
					t.Helper()
					if !errors.Is(err, ErrStalled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || !strings.Contains(fmt.Sprint(err), "10s") {
						t.Errorf("%s: %v", what, err)
					}
					if took := time.Since(start).Round(time.Second); took != 30*time.Second {
						t.Errorf("%s: %v", what, took)
					}
				}
				start := time.Now()
				_, err := s.Open(t.Context(), "a")
				stalled("Open", start, err)
				start = time.Now()
				n := 0
				for _, err := range s.List(t.Context(), "") {
					stalled("List", start, err)
					n++
				}
				if n != 1 || s.Stats().Timeouts != 6 {
					t.Errorf("%d items; %+v", n, s.Stats())
				}
				in, err := inner.Open(t.Context(), "a")
				must(t, err)
				b := &broken{readAt: func(_ int64, _ store.Object, ctx context.Context, _ []byte, _ int64) (int, error) {
					<-ctx.Done()
					return 0, ctx.Err()
				}}
				o := &object{inner: &brokenObject{in, b}, s: s}
				start = time.Now()
				_, err = o.ReadAt(t.Context(), make([]byte, 10), 0)
				stalled("ReadAt", start, err)
				must(t, o.Close())
			})
		})
	}
}

// The loser of a hedged read, which here does not obey its context and wakes up
// long after, writes nothing into the caller's memory, delays nobody, and has an
// open object until it ends.
func TestHedge(t *testing.T) {
	for _, early := range []bool{false, true} { // closed before the loser ends
		synctest.Test(t, func(t *testing.T) {
			wake := make(chan struct{})
			b := &broken{}
			b.readAt = func(n int64, o store.Object, ctx context.Context, p []byte, off int64) (int, error) {
				if n == 1 {
					<-wake
					if b.closed.Load() != 0 {
						t.Error("the object is closed while it is read")
					}
					for i := range p {
						p[i] = 0xEE
					}
					return len(p), nil
				}
				return o.ReadAt(context.WithoutCancel(ctx), p, off)
			}
			s, o, data := open(t, b, Config{Hedge: 30 * time.Millisecond})
			start := time.Now()
			p := make([]byte, 500)
			n, err := o.ReadAt(t.Context(), p, 100)
			if n != 500 || err != nil || !bytes.Equal(p, data[100:600]) || time.Since(start) != 30*time.Millisecond {
				t.Errorf("ReadAt = %d, %v after %v", n, err, time.Since(start))
			}
			if early {
				must(t, o.Close())
				if b.closed.Load() != 0 {
					t.Error("Close closes what is still read")
				}
			}
			close(wake)
			synctest.Wait()
			if !bytes.Equal(p, data[100:600]) {
				t.Error("the loser has written to the caller's memory")
			}
			// The loser's memory is used again: it must not be in two hands.
			for i := range 50 {
				n, err := o.ReadAt(t.Context(), p, int64(i))
				if early {
					if n != 0 || !errors.Is(err, fs.ErrClosed) {
						t.Errorf("ReadAt after Close = %d, %v", n, err)
					}
				} else if n != 500 || err != nil || !bytes.Equal(p, data[i:i+500]) {
					t.Errorf("ReadAt = %d, %v", n, err)
				}
			}
			if got := s.Stats(); got.Hedges != 1 || got.HedgesWon != 1 || got.Retries != 0 {
				t.Errorf("counted %+v", got)
			}
			if !early {
				must(t, o.Close())
			}
			if b.closed.Load() != 1 {
				t.Errorf("closed %d times", b.closed.Load())
			}
			if err := o.Close(); !errors.Is(err, fs.ErrClosed) {
				t.Errorf("a second Close: %v", err)
			}
		})
	}
}

// Where the first of two attempts fails, the second one's answer counts; where
// both do, what the better one brought is kept.
func TestHedgeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broken{readAt: func(n int64, o store.Object, ctx context.Context, p []byte, off int64) (int, error) {
			switch n {
			case 1, 3, 6:
				time.Sleep(50 * time.Millisecond)
				n, _ := o.ReadAt(ctx, p[:map[int64]int{1: 40, 3: 40, 6: 70}[n]], off)
				return n, errBroken
			case 2:
				time.Sleep(40 * time.Millisecond)
				return o.ReadAt(ctx, p, off)
			case 4, 7:
				time.Sleep(40 * time.Millisecond)
				n, _ := o.ReadAt(ctx, p[:map[int64]int{4: 70, 7: 40}[n]], off)
				return n, errBroken
			}
			if off%100 != 70 || len(p) != 30 {
				t.Errorf("asked for %d+%d", off, len(p))
			}
			return o.ReadAt(ctx, p, off)
		}}
		s, o, data := open(t, b, Config{Hedge: 30 * time.Millisecond})
		defer o.Close()
		for i := range int64(3) {
			p := make([]byte, 100)
			if n, err := o.ReadAt(t.Context(), p, 100*i); n != 100 || err != nil || !bytes.Equal(p, data[100*i:100*i+100]) {
				t.Errorf("ReadAt = %d, %v", n, err)
			}
		}
		if got := s.Stats(); got.Hedges != 3 || got.HedgesWon != 1 || got.Continued != 2 || b.calls.Load() != 8 {
			t.Errorf("counted %+v, %d calls", got, b.calls.Load())
		}
	})
}

// A pass over List that breaks off before each name in turn, and again and again,
// yields all names once.
func TestListResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := mem.New()
		var want []string
		for i := range 10 {
			want = append(want, fmt.Sprintf("p/%d", i))
			must(t, store.WriteAll(t.Context(), inner, want[i], nil))
		}
		must(t, store.WriteAll(t.Context(), inner, "q", nil))
		for _, breaks := range [][]int{{0}, {5}, {9}, {0, 0, 0, 0, 0}, {3, 3, 3, 7, 7, 9}, {5, 2, 2, 7}, {1, 2, 3, 4, 5, 6, 7, 8, 9}} {
			b := &broken{Store: inner, list: func(pass int64, i int) error {
				if int(pass) <= len(breaks) && i == breaks[pass-1] {
					return errBroken
				}
				return nil
			}}
			s := wrap(t, b, Config{Attempts: 6})
			var got []string
			for info, err := range s.List(t.Context(), "p/") {
				must(t, err)
				got = append(got, info.Name)
				time.Sleep(time.Hour) // the caller's time is not the store's
			}
			if !slices.Equal(got, want) || int(b.calls.Load()) != len(breaks)+1 {
				t.Errorf("broken at %d: %q in %d passes", breaks, got, b.calls.Load())
			}
			for info, err := range s.List(t.Context(), "p/") {
				if err != nil || info.Name != "p/0" {
					t.Errorf("%+v, %v", info, err)
				}
				break
			}
		}
		b := &broken{Store: inner, list: func(_ int64, i int) error {
			if i == 4 {
				return errBroken
			}
			return nil
		}}
		s := wrap(t, b, Config{Attempts: 6})
		n := 0
		var last error
		for _, err := range s.List(t.Context(), "p/") {
			if last = err; err == nil {
				n++
			}
		}
		if n != 4 || !errors.Is(last, errBroken) || b.calls.Load() != 7 {
			t.Errorf("%d names, then %v after %d passes", n, last, b.calls.Load())
		}
	})
}

// What writes reaches the inner store once, whatever comes of it.
func TestWritesOnce(t *testing.T) {
	var ops []string
	inner := fault.New(mem.New(), fault.Config{Before: func(op fault.Op) error {
		ops = append(ops, string(op.Kind))
		if op.Kind == fault.Write {
			return nil
		}
		return errBroken
	}})
	s := wrap(t, inner, Config{})
	ctx := t.Context()
	_, err := s.Create(ctx, "a")
	for _, err := range []error{err, s.Remove(ctx, "a"), s.Sweep(ctx, "")} {
		if !errors.Is(err, errBroken) {
			t.Error(err)
		}
	}
	if _, err := s.Lock(ctx, "l", "x"); !errors.Is(err, errBroken) {
		t.Error(err)
	}
	if want := []string{"create", "remove", "sweep", "lock"}; !slices.Equal(ops, want) {
		t.Errorf("operations %q; want %q", ops, want)
	}
}

// Waits are spread evenly from 0 to the exponential's value, and never longer.
func TestBackoff(t *testing.T) {
	s := wrap(t, mem.New(), Config{Backoff: 100 * time.Millisecond, MaxBackoff: 1500 * time.Millisecond})
	for failures, most := range map[int]time.Duration{1: 100e6, 2: 200e6, 3: 400e6, 4: 800e6, 5: 1500e6, 6: 1500e6, 1000: 1500e6} {
		var sum, least, longest time.Duration = 0, most, 0
		const n = 10_000
		for range n {
			d := s.backoff(failures)
			sum, least, longest = sum+d, min(least, d), max(longest, d)
		}
		// The mean of n even numbers has the standard deviation most/√(12n) ≈ most/346.
		if mean := sum / n; (mean-most/2).Abs() > most/50 || least > most/100 || longest > most || longest < most-most/100 {
			t.Errorf("after %d failures: from %v to %v, mean %v; want 0 to %v", failures, least, longest, mean, most)
		}
	}
}

// No more reads are under way at once than Config.Reads says, or than the store bears.
// Waiting for a turn uses up no timeout.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most, away atomic.Int64
		bears := int64(100)
		b := &broken{readAt: func(_ int64, o store.Object, ctx context.Context, p []byte, off int64) (int, error) {
			n := now.Add(1)
			defer now.Add(-1)
			if n > bears {
				away.Add(1)
				return 0, fmt.Errorf("%w: %w", errBroken, store.ErrThrottled)
			}
			for {
				old := most.Load()
				if n <= old || most.CompareAndSwap(old, n) {
					break
				}
			}
			time.Sleep(900 * time.Millisecond)
			return o.ReadAt(ctx, p, off)
		}}
		all := func(c Config) Stats {
			s, o, data := open(t, b, c)
			defer o.Close()
			most.Store(0)
			var wg sync.WaitGroup
			for i := range 60 {
				wg.Go(func() {
					p := make([]byte, 10)
					if n, err := o.ReadAt(t.Context(), p, int64(i)); n != 10 || err != nil || !bytes.Equal(p, data[i:i+10]) {
						t.Errorf("ReadAt(%d) = %d, %v", i, n, err)
					}
				})
			}
			wg.Wait()
			return s.Stats()
		}
		if s := all(Config{Reads: 5, Timeout: time.Second}); most.Load() != 5 || s.Timeouts+s.Retries != 0 || s.Reads != 5 {
			t.Errorf("%d at once, %+v", most.Load(), s)
		}
		if s := all(Config{Reads: -1, Timeout: time.Second}); most.Load() != 60 || s.Timeouts+s.Retries != 0 || s.Reads != 0 {
			t.Errorf("without a limit: %d at once, %+v", most.Load(), s)
		}
		bears = 10
		if s := all(Config{Timeout: time.Second}); most.Load() != 10 || s.Timeouts != 0 || s.Throttled != away.Load() || s.Retries != away.Load() || s.Reads > 12 {
			t.Errorf("%d at once, %d turned away, %+v", most.Load(), away.Load(), s)
		}
		// A call that waits for its turn ends with its context.
		_, o, _ := open(t, b, Config{Reads: 1})
		defer o.Close()
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = o.ReadAt(t.Context(), make([]byte, 1), 0) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if n, err := o.ReadAt(ctx, make([]byte, 1), 0); n != 0 || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "d/a") {
			t.Errorf("ReadAt = %d, %v", n, err)
		}
		wg.Wait()
	})
}

func TestConfig(t *testing.T) {
	_, err := New(mem.New(), Config{Attempts: -1, Timeout: -2, Backoff: -1, MaxBackoff: -1, Hedge: -1, Reads: -2})
	for _, name := range []string{"attempts", "timeout", "backoff", "max_backoff", "hedge", "reads", "mem:"} {
		if !strings.Contains(fmt.Sprint(err), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
	for _, c := range []Config{{Hedge: time.Minute}, {MaxBackoff: time.Millisecond}} {
		if c.Validate() == nil {
			t.Errorf("%+v is valid", c)
		}
	}
	for _, c := range []Config{{}, {Timeout: -1, Hedge: time.Hour}, {Backoff: time.Hour}} {
		must(t, c.Validate())
	}
	c := Config{Attempts: 3, Timeout: 5, Backoff: 6, MaxBackoff: 7, Hedge: 4, Reads: 8}
	text, err := json.Marshal(c)
	must(t, err)
	if want := `{"attempts":3,"timeout":"5ns","backoff":"6ns","max_backoff":"7ns","hedge":"4ns","reads":8}`; string(text) != want {
		t.Errorf("%s; want %s", text, want)
	}
	var back Config
	must(t, json.Unmarshal(text, &back))
	if fmt.Sprint(back) != fmt.Sprint(c) {
		t.Errorf("%+v", back)
	}
	if text, err := json.Marshal(Config{}); string(text) != "{}" {
		t.Errorf("%s, %v", text, err)
	}
}

// wantsRest is an error whose server asks to be left alone.
type wantsRest struct{ rest time.Duration }

func (e wantsRest) Error() string             { return "busy" }
func (e wantsRest) RetryAfter() time.Duration { return e.rest }

// A server is left alone for as long as it asks, but not for ever.
func TestRetryAfter(t *testing.T) {
	for _, c := range []struct{ rest, least, most time.Duration }{
		{0, 0, time.Millisecond},
		{3 * time.Second, 3 * time.Second, 3 * time.Second},
		{time.Hour, time.Minute, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls, err := NewCalls(Config{Backoff: time.Millisecond, MaxBackoff: time.Millisecond})
			must(t, err)
			call := calls.Begin(t.Context(), "read", "x")
			call.Attempt(false)
			began := time.Now()
			must(t, call.Again(fmt.Errorf("wrapped: %w", wantsRest{c.rest}), false, false))
			if took := time.Since(began); took < c.least || took > c.most {
				t.Errorf("asked to wait for %v, it waited for %v", c.rest, took)
			}
		})
	}
}
