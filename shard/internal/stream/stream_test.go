package stream

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// TestWindow holds a window to a model: the bytes themselves.
func TestWindow(t *testing.T) {
	data := noise(8 << 20)
	fault := errors.New("fault")
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 3))
		want := io.EOF
		reader := io.Reader(bytes.NewReader(data))
		switch seed % 4 {
		case 1:
			reader = iotest.HalfReader(reader)
		case 2:
			reader = iotest.DataErrReader(reader)
		case 3:
			reader, want = io.MultiReader(reader, iotest.ErrReader(fault)), fault
		}
		w := NewWindow(reader)
		if seed%3 == 1 {
			w = NewSmallWindow(reader)
		}
		if seed == 4 {
			w = WindowOf(data, 0)
		}
		most := 1 << (4 + r.IntN(18))
		at, held := int64(0), 0
		type stretch struct {
			at   int
			data []byte
		}
		var kept []stretch
		for {
			n := r.IntN(most)
			var err error
			switch op := r.IntN(8); {
			case op == 0:
				w.Drop()
				kept = kept[:0]
			case op == 1:
				if err = w.Skip(int64(n)); err == nil {
					at += int64(n)
				}
			case op == 2:
				p := make([]byte, n)
				var got int
				got, err = w.ReadFull(p)
				if !bytes.HasPrefix(data[at:], p[:got]) || err == nil && got != n {
					t.Fatalf("seed %d: ReadFull(%d) at %d gives other bytes", seed, n, at)
				}
				w.Drop()
				kept = kept[:0]
				if err == nil {
					at += int64(n)
				}
			default:
				var p []byte
				p, err = w.Peek(n)
				if !bytes.HasPrefix(data[at:], p) || err == nil && len(p) != n {
					t.Fatalf("seed %d: Peek(%d) at %d gives other bytes", seed, n, at)
				}
				if err != nil {
					break
				}
				at += int64(n)
				if op < 6 || len(w.Kept()) > 2<<20 {
					w.Consume(n)
					break
				}
				kept = append(kept, stretch{w.Keep(n), data[at-int64(n) : at]})
			}
			for _, k := range kept {
				if !bytes.Equal(w.Kept()[k.at:k.at+len(k.data)], k.data) {
					t.Fatalf("seed %d: what is kept has changed at %d", seed, at)
				}
			}
			if err != nil {
				if err != want || at+int64(n) <= int64(len(data)) {
					t.Fatalf("seed %d: %v at %d of %d, want %v at the end", seed, err, at, len(data), want)
				}
				break
			}
			if w.Offset != at {
				t.Fatalf("seed %d: the offset is %d, want %d", seed, w.Offset, at)
			}
			held = max(held, len(w.Kept())+n)
			if len(w.buf) > 3*held+windowSize && seed != 4 {
				t.Fatalf("seed %d: %d bytes are held where %d were needed", seed, len(w.buf), held)
			}
		}
	}
}

func TestDrain(t *testing.T) {
	data := noise(3 << 20)
	w := NewWindow(iotest.HalfReader(bytes.NewReader(data)))
	if _, err := w.Peek(1000); err != nil {
		t.Fatal(err)
	}
	if err := w.Drain(); err != nil || w.Offset != int64(len(data)) || len(w.buf) > windowSize {
		t.Errorf("Drain: %v at %d, with %d bytes held", err, w.Offset, len(w.buf))
	}
	fault := errors.New("fault")
	if err := NewWindow(iotest.ErrReader(fault)).Drain(); err != fault {
		t.Errorf("Drain of a failing reader: %v", err)
	}
	if _, err := NewWindow(idle{}).Peek(1); err != io.ErrNoProgress {
		t.Errorf("a reader that gives nothing: %v", err)
	}
}

type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

// sink remembers the sizes of writes.
type sink struct {
	bytes.Buffer
	sizes []int
}

func (s *sink) Write(p []byte) (int, error) {
	s.sizes = append(s.sizes, len(p))
	return s.Buffer.Write(p)
}

func TestGather(t *testing.T) {
	data := noise(10 << 20)
	var s sink
	g := NewGather(&s)
	r := rand.New(rand.NewPCG(1, 1))
	for at := 0; at < len(data); {
		n := min(r.IntN(1<<r.IntN(21)), len(data)-at)
		if r.IntN(2) == 0 {
			g.Write(data[at : at+n])
		} else {
			n = min(n, 512)
			copy(g.Next(n), data[at:])
		}
		at += n
		if g.Offset != int64(at) {
			t.Fatalf("the offset is %d, want %d", g.Offset, at)
		}
	}
	g.Flush()
	if g.Err != nil || !bytes.Equal(s.Bytes(), data) {
		t.Fatalf("other bytes come out (%v)", g.Err)
	}
	if mean := len(data) / len(s.sizes); mean < directSize/2 {
		t.Errorf("%d writes for %d bytes, %d bytes each", len(s.sizes), len(data), mean)
	}
}

func TestGatherError(t *testing.T) {
	fault := errors.New("fault")
	calls := 0
	g := NewGather(writer(func(p []byte) (int, error) { calls++; return 1, fault }))
	g.Write(make([]byte, 100))
	g.Flush()
	g.Write(make([]byte, directSize))
	g.Flush()
	if g.Err != fault || calls != 1 {
		t.Errorf("%v after %d calls, want %v after one", g.Err, calls, fault)
	}
	g = NewGather(writer(func(p []byte) (int, error) { return len(p) - 1, nil }))
	g.Write(make([]byte, 100))
	g.Flush()
	if g.Err != io.ErrShortWrite {
		t.Errorf("a short write: %v", g.Err)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
