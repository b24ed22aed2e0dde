package gpu

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	"shardify/gpu/internal/cuda"
)

// play is what is done with a ring: how many batches there are, and what their consumer
// does with them.
type play struct {
	depth, batches int
	// leave: the loop is left with this batch, from 1.
	leave int
	// hold: batches are released so many later; after the end, where there are none.
	hold int
	// source: what ends the source, in place of its end.
	source error
	// cancel: the context is cancelled when this batch, from 1, has come.
	cancel int
	// decode: batches are files, which are decoded by decoder.
	decode  bool
	decoder simDecoder
}

// run runs a play on a simulated GPU, in the order that choose chooses, and returns the
// error with which the pass ended and the batches that came.
func (p play) run(t *testing.T, s *sim, choose func(s *sim, names []string) int) (came int, end error) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		source := func(ctx context.Context) iter.Seq2[host, error] {
			return func(yield func(host, error) bool) {
				for i := range p.batches {
					b := &slab{sim: s, number: i, content: i, bytes: make([]byte, 300)}
					var h host = b
					if p.decode {
						b.bytes = shaded(i)
						h = files{b}
					}
					s.mu.Lock()
					s.slabs[&b.bytes[0]] = b
					s.live["slabs"]++
					s.mu.Unlock()
					if !yield(h, nil) {
						return
					}
				}
				if p.source != nil {
					yield(nil, p.source)
				}
			}
		}
		number := func(b *Batch, h host, _ PrefetchConfig) {
			if f, ok := h.(files); ok {
				h = f.slab
			}
			b.Number = int64(h.(*slab).number)
		}
		done := false
		go func() {
			defer func() { done = true }()
			pass := prefetch(ctx, s, &s.meter, source, number, PrefetchConfig{Depth: p.depth})
			if p.decode {
				pass = prefetchWith(ctx, s, &s.meter, source, number, PrefetchConfig{Depth: p.depth}, func() (*decoding, error) { return p.decoder.begin(s, p.depth) })
			}
			came, end = p.consume(s, pass, cancel)
		}()
		for {
			synctest.Wait()
			names, do := s.actions()
			if len(names) == 0 {
				if done {
					return
				}
				t.Fatalf("deadlock: nothing may go on; pending: %v, done: %v", s.pending, s.history)
			}
			do[choose(s, names)]()
		}
	})
	return came, end
}

func (p play) consume(s *sim, batches iter.Seq2[*Batch, error], cancel func()) (came int, end error) {
	var held []*Batch
	release := func(most int) error {
		for len(held) > most {
			if err := held[0].Release(compute); err != nil && !errors.Is(err, ErrContextLost) {
				// It was not released.
				if err := held[0].Release(compute); err != nil && !errors.Is(err, ErrContextLost) {
					return err
				}
			}
			held = held[1:]
		}
		return nil
	}
	for b, err := range batches {
		if err != nil {
			end = err
			continue // it is the last, which the caller sees to
		}
		if end != nil {
			s.wrongly("a batch after an error")
		}
		if int(b.Number) != came {
			s.wrongly("batch %d in the place of %d", b.Number, came)
		}
		came++
		held = append(held, b)
		data, ok := b.Tensor("image")
		if size := map[bool]int64{false: 300, true: 3 * shadeSide * shadeSide}[p.decode]; !ok || data.Bytes != size || data.Data%tensorAlign != 0 {
			s.wrongly("tensor %+v", data)
		}
		if b.Wait(compute) == nil {
			_ = s.kernel(data.Data, int(b.Number)) // a kernel that fails has not run
		}
		if err := release(p.hold); err != nil {
			end = err
			break
		}
		if came == p.cancel {
			cancel()
		}
		if came == p.leave {
			break
		}
	}
	if err := release(0); err != nil {
		s.wrongly("released after the end: %v", err)
	}
	return came, end
}

// freed says what was not.
func (s *sim) freed() {
	for what, n := range s.live {
		if n != 0 {
			s.wrongly("%d %s left", n, what)
		}
	}
	for h, st := range s.streams {
		if len(st.queue) > 0 {
			s.wrongly("work left in stream %x", h)
		}
	}
}

// explore runs a play in every order, or until check is false.
func (p play) explore(t *testing.T, make func() *sim, check func(s *sim, came int, end error) bool) (runs, states int) {
	seed := maphash.MakeSeed()
	visited := map[uint64]bool{}
	paths := [][]uint8{nil}
	for len(paths) > 0 {
		path := paths[len(paths)-1]
		paths = paths[:len(paths)-1]
		step, known := 0, false
		s := make()
		came, end := p.run(t, s, func(s *sim, names []string) int {
			if step++; step <= len(path) {
				if int(path[step-1]) >= len(names) {
					t.Fatalf("the run is not determined by its choices: step %d of %v: %v", step, path, names)
				}
				return int(path[step-1])
			}
			if known {
				return 0
			}
			state := s.state(seed)
			if visited[state] {
				known = true
				return 0
			}
			visited[state] = true
			for i := 1; i < len(names); i++ {
				paths = append(paths, append(path[:len(path):len(path)], uint8(i)))
			}
			path = append(path[:len(path):len(path)], 0)
			return 0
		})
		runs++
		if !check(s, came, end) {
			break
		}
	}
	return runs, len(visited)
}

// In every order that CUDA allows: each batch comes once, in order and whole; no memory on
// the GPU is overwritten before the consumer's stream is through with it; no slab is
// released before its copy has ended; nothing locks up; everything is freed.
func TestPrefetchEveryOrder(t *testing.T) {
	for _, p := range []play{
		{depth: 1, batches: 3}, {depth: 2, batches: 3}, {depth: 2, batches: 0}, {depth: 3, batches: 3, hold: 2},
		{depth: 2, batches: 3, leave: 1}, {depth: 2, batches: 3, leave: 2, hold: 1}, {depth: 2, batches: 2, source: errors.New("no more")},
		{depth: 2, batches: 3, cancel: 1}, {depth: 2, batches: 4}, {depth: 3, batches: 4, hold: 1},
		{depth: 3, batches: 4, leave: 3, hold: 2}, {depth: 3, batches: 4, cancel: 3, hold: 2},
	} {
		if racing && p.batches > 3 {
			continue // the orders of calls are not the race detector's matter
		}
		t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
			runs, states := p.explore(t, newSim, func(s *sim, came int, end error) bool {
				s.freed()
				p.judge(s, came, end)
				if len(s.wrong) > 0 {
					t.Errorf("%s\n%v", strings.Join(s.wrong, "\n"), s.history)
				}
				return len(s.wrong) == 0
			})
			t.Logf("%d runs, %d states", runs, states)
		})
	}
}

// judge says whether a pass ended as it should, where the GPU has no fault.
func (p play) judge(s *sim, came int, end error) {
	want := p.batches
	switch {
	case p.leave > 0:
		want = p.leave
		if end != nil {
			s.wrongly("ended with %v", end)
		}
	case p.cancel > 0:
		want = p.cancel
		if !errors.Is(end, context.Canceled) {
			s.wrongly("ended with %v", end)
		}
	case !errors.Is(end, p.source):
		s.wrongly("ended with %v", end)
	}
	if came != want {
		s.wrongly("%d batches came", came)
	}
	if p.decode {
		return
	}
	// Statistics count every copy, once.
	st := s.meter.stats()
	if st.Batches != int64(came) || st.Bytes%300 != 0 || st.Bytes < 300*int64(came) || st.Bytes > 300*int64(p.batches) ||
		st.Late > st.Batches || st.Exposed < 0 || st.Exposed > st.Stalled || st.Exposed > st.Copying || (st.Late == 0) != (st.Stalled == 0) {
		s.wrongly("%d batches came: %+v", came, st)
	}
}

// findMutant looks for an order in which a mutant goes wrong, in small rings that are else as
// of is. found says what is wrong, after so many runs; it is empty if there is none.
func findMutant(t *testing.T, m mutant, of play) (found string, runs int) {
	for depth := 1; depth <= 2 && found == ""; depth++ {
		p := of
		p.depth, p.batches = depth, 3
		n, _ := p.explore(t, func() *sim { s := newSim(); s.mutant = m; return s }, func(s *sim, came int, end error) bool {
			s.freed()
			p.judge(s, came, end)
			found = strings.Join(s.wrong, "; ")
			return found == ""
		})
		runs += n
	}
	return found, runs
}

// Each wait of the ring is needed: without it, an order goes wrong, and is found.
func TestPrefetchMutants(t *testing.T) {
	for m := faithful + 1; m < mutants; m++ {
		found, runs := findMutant(t, m, play{})
		if found == "" {
			t.Errorf("mutant %d was not found", m)
		}
		t.Logf("mutant %d after %d runs: %s", m, runs, found)
	}
}

// Larger rings, in orders drawn at random.
func TestPrefetchRandomOrder(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 150 {
		p := play{depth: 1 + random.IntN(6), batches: random.IntN(25)}
		p.hold = random.IntN(p.depth)
		if p.batches > 0 {
			switch random.IntN(5) {
			case 0:
				p.leave = 1 + random.IntN(p.batches)
			case 1:
				p.cancel = 1 + random.IntN(p.batches)
			case 2:
				p.source = errors.New("no more")
			}
		}
		s := newSim()
		came, end := p.run(t, s, func(_ *sim, names []string) int { return random.IntN(len(names)) })
		s.freed()
		if p.cancel == p.batches && p.cancel > 0 && end == nil {
			p.cancel = 0 // the end came first
		}
		p.judge(s, came, end)
		if len(s.wrong) > 0 {
			t.Fatalf("%d: %+v: %s\n%v", i, p, strings.Join(s.wrong, "\n"), s.history)
		}
	}
}

// Every call of the driver fails once, in turn, in several orders: the error comes out and
// is the last, what can be freed is, no slab goes back before its copy has ended, and
// nothing locks up.
func TestPrefetchFaults(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	refused := &cuda.Error{Call: "cuCall", Code: 1, Name: "CUDA_ERROR_INVALID_VALUE"}
	memory := &cuda.Error{Call: "cuCall", Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY"}
	broken := &cuda.Error{Call: "cuCall", Code: 700, Name: "CUDA_ERROR_ILLEGAL_ADDRESS"}
	for _, fault := range []*cuda.Error{refused, memory, broken} {
		whole := newSim()
		play{depth: 2, batches: 4}.run(t, whole, func(_ *sim, names []string) int { return 0 })
		calls := whole.calls
		for failing := 1; failing <= calls; failing++ {
			for range 4 {
				s := newSim()
				s.failing, s.fault = failing, fault
				p := play{depth: 2, batches: 4}
				_, end := p.run(t, s, func(_ *sim, names []string) int { return random.IntN(len(names)) })
				gave := errors.Is(end, fault) && (fault != memory || errors.Is(end, ErrOutOfMemory)) && (fault != broken || errors.Is(end, ErrContextLost))
				// What the consumer itself asked for and was refused is its own to know.
				own := s.failed == "kernel" || strings.HasSuffix(s.failed, fmt.Sprintf(" in %x", compute)) || strings.HasPrefix(s.failed, fmt.Sprintf("wait in %x", compute))
				if s.failed != "" && !gave && !(own && end == nil) {
					s.wrongly("ended with %v", end)
				}
				if n := s.live["slabs"]; n != 0 {
					s.wrongly("%d slabs left", n)
				}
				// What could not be freed, as the fault was in freeing it or in waiting for
				// those who use it, is left.
				if fault != broken && !strings.HasPrefix(s.failed, "Free") && !strings.HasPrefix(s.failed, "Destroy") && !strings.HasPrefix(s.failed, "synchronize") {
					s.freed()
				}
				if len(s.wrong) > 0 {
					t.Fatalf("call %d, %s, fails with %v: %s\n%v", failing, s.failed, fault, strings.Join(s.wrong, "\n"), s.history)
				}
			}
		}
		if calls < 40 {
			t.Errorf("only %d calls", calls)
		}
	}
}
