package pack

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

type pair struct{ key, val []byte }

func pairs(n int, seed uint64) []pair {
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([]pair, n)
	for i := range out {
		key := make([]byte, r.IntN(20))
		for k := range key {
			key[k] = byte(r.IntN(3)) // many equal keys and common prefixes
		}
		val := make([]byte, r.IntN(300))
		for k := range val {
			val[k] = byte(r.Uint32())
		}
		if r.IntN(1000) == 0 {
			val = bytes.Repeat(val, 10_000) // larger than a block
		}
		out[i] = pair{key, val}
	}
	return out
}

// The sorter gives what sorting in memory gives, whatever it spills.
func TestSorter(t *testing.T) {
	for _, n := range []int{0, 1, 2, 5000} {
		for _, limit := range []int64{1, 1 << 20, 3 << 20, 1 << 30} {
			t.Run(fmt.Sprint(n, " in ", limit), func(t *testing.T) {
				dir := t.TempDir()
				s := newSorter(dir, limit)
				s.limit = int(limit) // below the least that newSorter gives
				if limit == 1 && n > 100 {
					s.limit = 50_000
				}
				want := pairs(n, uint64(n))
				for _, p := range want {
					if err := s.add(p.key, p.val); err != nil {
						t.Fatal(err)
					}
				}
				slices.SortFunc(want, func(a, b pair) int {
					return cmp.Or(bytes.Compare(a.key, b.key), bytes.Compare(a.val, b.val))
				})
				i := 0
				for val, err := range s.sorted(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(val, want[i].val) {
						t.Fatalf("value %d differs", i)
					}
					i++
				}
				if i != n {
					t.Errorf("%d values of %d", i, n)
				}
				empty(t, dir)
			})
		}
	}
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Leaving the loop, and a cancelled context, leave no file behind.
func TestSorterLeft(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		dir := t.TempDir()
		s := newSorter(dir, 1<<20)
		for _, p := range pairs(20_000, 7) {
			if err := s.add(p.key, p.val); err != nil {
				t.Fatal(err)
			}
		}
		if len(s.runs) < 2 {
			t.Fatalf("%d runs: nothing was spilled", len(s.runs))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var last error
		for _, err := range s.sorted(ctx) {
			if last = err; !cancelled || err != nil {
				break
			}
			cancel()
		}
		cancel()
		if cancelled && !errors.Is(last, context.Canceled) {
			t.Errorf("after cancelling: %v", last)
		}
		empty(t, dir)
	}
}

// A spill that cannot be written names the remedy.
func TestSorterNoRoom(t *testing.T) {
	s := newSorter("/nonexistent/folder", 1<<20)
	var err error
	for _, p := range pairs(20_000, 7) {
		if err = s.add(p.key, p.val); err != nil {
			break
		}
	}
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func BenchmarkSorter(b *testing.B) {
	dir := b.TempDir()
	key := make([]byte, 40)
	val := make([]byte, 80)
	const n = 1_000_000
	for b.Loop() {
		r := rand.New(rand.NewPCG(1, 2))
		s := newSorter(dir, 64<<20)
		for range n {
			for i := 0; i < 40; i += 8 {
				key[i] = byte(r.Uint32())
			}
			if err := s.add(key, val); err != nil {
				b.Fatal(err)
			}
		}
		for _, err := range s.sorted(b.Context()) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
