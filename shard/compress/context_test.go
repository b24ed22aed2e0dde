package compress

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// stalling is a Source that gives no answer, until the context ends, while it is told
// so.
type stalling struct {
	data    []byte
	stalls  atomic.Bool
	waiting chan struct{} // gets a value for each read that stalls
}

func (s *stalling) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if s.stalls.Load() {
		s.waiting <- struct{}{}
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return bytes.NewReader(s.data).ReadAt(p, off)
}

// A read that stalls ends with its context at once, and so does one that waits for it;
// the next ones are none the worse.
func TestStalledRead(t *testing.T) {
	const size = 4 << 20 // more than a decoder reads ahead
	data := content(size, 1)
	for name, v := range variants(t, data) {
		if len(v.c) < size/4 {
			t.Fatalf("%s: %d bytes", name, len(v.c))
		}
		src := &stalling{data: v.c, waiting: make(chan struct{}, 10)}
		at, err := NewSourceReader(t.Context(), src, int64(len(v.c)), v.kind, nil)
		if err != nil {
			t.Fatal(err)
		}
		read := func(ctx context.Context, off int64) error {
			p := make([]byte, 100)
			n, err := at.ReadAt(ctx, p, off)
			if err == nil && (n != len(p) || !bytes.Equal(p, data[off:off+100])) {
				t.Errorf("%s: %d other bytes at %d", name, n, off)
			}
			return err
		}
		if err := read(t.Context(), 50); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		src.stalls.Store(true)
		first, cancelFirst := context.WithCancel(t.Context())
		second, cancelSecond := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		secondDone := make(chan struct{})
		wg.Go(func() {
			if err := read(first, size-1000); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: the stalled read: %v", name, err)
			}
		})
		<-src.waiting
		wg.Go(func() {
			if err := read(second, size-900_000); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: the one that waits: %v", name, err)
			}
			close(secondDone)
		})
		time.Sleep(5 * time.Millisecond)
		cancelSecond()
		select {
		case <-secondDone:
		case <-time.After(time.Minute):
			t.Fatalf("%s: it waits for another's context", name)
		}
		cancelFirst()
		wg.Wait()
		src.stalls.Store(false)
		for _, off := range []int64{size - 1000, size - 900_000, 0, size / 2} {
			if err := read(t.Context(), off); err != nil {
				t.Errorf("%s: later: %v", name, err)
			}
		}
		if err := read(second, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: a read that comes cancelled: %v", name, err)
		}
	}
}

// To open, the seek table is read under the context that is given.
func TestStalledOpen(t *testing.T) {
	data := content(300_000, 1)
	var c []byte
	for _, v := range variants(t, data) {
		if v.kind == Zstd {
			c = v.c
		}
	}
	src := &stalling{data: c, waiting: make(chan struct{}, 10)}
	src.stalls.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := NewSourceReader(ctx, src, int64(len(c)), Zstd, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
