package compress

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"testing"
)

func TestSizeClass(t *testing.T) {
	last := class(0)
	for n := 1; n < 1<<21; n++ {
		c := sizeClass(n)
		if size := c.size(); size < n || n > 16 && size > n+n/4+1 || c < last || sizeClass(size) != c {
			t.Fatalf("%d bytes: class %d of %d", n, c, size)
		}
		last = c
	}
	if c := sizeClass(maxWhole); int(c) >= len(Frames{}.spared) {
		t.Errorf("class %d", c)
	}
}

// Readers that share little memory get what they would get alone, and never keep more
// than it.
func TestSharedFrames(t *testing.T) {
	data := [2][]byte{content(3_000_000, 1), content(2_000_000, 2)}
	frames := NewFrames(600_000)
	var readers [2]SourceReader
	for i := range data {
		c := compressed(t, Zstd, 1, data[i], boundaries(len(data[i]), 90_000, uint64(i)), 1<<20, 0)
		at, err := NewSourceReader(context.Background(), withContext{bytes.NewReader(c)}, int64(len(c)), Zstd, frames)
		if err != nil {
			t.Fatal(err)
		}
		readers[i] = at
	}
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 150 {
				i := r.IntN(2)
				off := r.IntN(len(data[i]))
				p := make([]byte, min(1+r.IntN(1<<(4+r.IntN(16))), len(data[i])-off))
				if n, err := readers[i].ReadAt(context.Background(), p, int64(off)); n != len(p) || err != nil || !bytes.Equal(p, data[i][off:off+n]) {
					t.Errorf("%d bytes at %d: %d, %v", len(p), off, n, err)
					return
				}
				frames.mu.Lock()
				bytes := frames.bytes
				frames.mu.Unlock()
				if bytes > 300_000 {
					t.Errorf("%d bytes are kept", bytes)
				}
			}
		})
	}
	wg.Wait()
	// A frame that is kept is not decoded again.
	p := make([]byte, 10)
	for range 3 {
		if _, err := readers[0].ReadAt(context.Background(), p, 100); err != nil {
			t.Fatal(err)
		}
	}
	before := frames.Decoded()
	if _, err := readers[0].ReadAt(context.Background(), p, 200); err != nil || frames.Decoded() != before {
		t.Errorf("%d frames decoded, %v", frames.Decoded()-before, err)
	}
}
