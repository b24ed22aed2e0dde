package compress

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"shardify/shard"
)

// content makes n bytes that compress to about half.
func content(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32() & 15)
	}
	return b
}

// boundaries cuts n bytes into samples of at most most bytes.
func boundaries(n, most int, seed uint64) (ends []int64) {
	r := rand.New(rand.NewPCG(seed, 2))
	for at := 0; at < n; {
		at = min(n, at+1+r.IntN(most))
		ends = append(ends, int64(at))
	}
	return ends
}

// compressed writes data in pieces of at most piece bytes. Boundaries are announced
// as a shard.Writer's caller does it, while up to lag bytes are held back.
func compressed(t testing.TB, kind string, level int, data []byte, ends []int64, piece, lag int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, kind, level)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	write := func(to int) {
		for at < to {
			n := min(piece, to-at)
			if m, err := w.Write(data[at : at+n]); m != n || err != nil {
				t.Fatalf("Write of %d bytes: %d, %v", n, m, err)
			}
			at += n
		}
	}
	for _, end := range ends {
		write(int(end) - lag)
		w.EndSample(end)
	}
	write(len(data))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func decompressed(t testing.TB, kind string, data []byte) []byte {
	t.Helper()
	r, err := NewReader(bytes.NewReader(data), kind)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestRoundTrip(t *testing.T) {
	for _, kind := range Kinds() {
		for _, n := range []int{0, 1, 1000, FrameSize, FrameSize + 1, MaxFrame + 1} {
			data := content(n, 1)
			c := compressed(t, kind, min(1, len(kind)), data, boundaries(n, 150_000, 1), 1<<20, 0)
			if got := decompressed(t, kind, c); !bytes.Equal(got, data) {
				t.Fatalf("%q: %d bytes do not come back", kind, n)
			}
			at, err := NewReaderAt(bytes.NewReader(c), int64(len(c)), kind)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, n+1)
			if m, err := at.ReadAt(got, 0); m != n || err != io.EOF || !bytes.Equal(got[:n], data) {
				t.Fatalf("%q: ReadAt of %d bytes: %d, %v", kind, n, m, err)
			}
			if size := at.Size(); size != int64(n) {
				t.Fatalf("%q: the size is %d, want %d", kind, size, n)
			}
		}
	}
}

// TestSameBytes: the bytes depend on content, boundaries and level alone.
func TestSameBytes(t *testing.T) {
	for _, c := range []struct {
		kind    string
		n, most int
	}{{Gzip, 200_000, 5_000}, {Zstd, 300_000, 5_000}, {Zstd, 1_000_000, 150_000}, {Zstd, MaxFrame + 300_000, 2 * MaxFrame}} {
		kind, n := c.kind, c.n
		data := content(n, 2)
		ends := boundaries(n, c.most, 2)
		want := compressed(t, kind, 1, data, ends, n, 0)
		for _, c := range []struct{ piece, lag int }{{100_003, 1 << 20}, {512, 300}, {n, 3 << 20}} {
			if got := compressed(t, kind, 1, data, ends, c.piece, c.lag); !bytes.Equal(got, want) {
				t.Errorf("%q: pieces of %d bytes, %d bytes behind, give other bytes", kind, c.piece, c.lag)
			}
		}
	}
}

// TestFrames: frames end where the first sample ends that fills them, and at
// MaxFrame.
func TestFrames(t *testing.T) {
	const n = 2 * MaxFrame
	data := content(n, 3)
	for _, most := range []int{1_000, 150_000, 1 << 20, 2 * MaxFrame} {
		ends := boundaries(n, most, 3)
		c := compressed(t, Zstd, 1, data, ends, 1<<20, 1<<20)
		table, err := readSeekTable(t.Context(), withContext{bytes.NewReader(c)}, int64(len(c)))
		if err != nil {
			t.Fatal(err)
		}
		isEnd := map[int64]bool{}
		for _, e := range ends {
			isEnd[e] = true
		}
		for i := range len(table.frames) - 1 {
			start, end := table.frames[i].raw, table.frames[i+1].raw
			want := min(start+MaxFrame, n)
			for _, e := range ends {
				if e-start >= FrameSize && e < want {
					want = e
				}
			}
			if end != want {
				t.Fatalf("samples of up to %d bytes: frame %d from %d on ends at %d, want %d", most, i, start, end, want)
			}
			if most < MaxFrame-FrameSize && !isEnd[end] {
				t.Fatalf("samples of up to %d bytes: frame %d ends within a sample, at %d", most, i, end)
			}
		}
	}
}

// variants returns ways to compress data of which each is read in its own way.
func variants(t testing.TB, data []byte) map[string]struct {
	kind string
	c    []byte
} {
	t.Helper()
	type variant = struct {
		kind string
		c    []byte
	}
	n := len(data)
	half := n / 2
	ours := compressed(t, Zstd, 1, data, boundaries(n, 100_000, 1), 1<<20, 0)
	foreign := func(opts ...zstd.EOption) []byte {
		enc, err := zstd.NewWriter(nil, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return append(enc.EncodeAll(data[:half], nil), enc.EncodeAll(data[half:], nil)...)
	}
	members := append(compressed(t, Gzip, 1, data[:half], nil, n, 0), compressed(t, Gzip, 9, data[half:], nil, n, 0)...)
	return map[string]variant{
		"none":                 {None, data},
		"zst":                  {Zstd, ours},
		"zst without a table":  {Zstd, foreign()},
		"zst without checksum": {Zstd, foreign(zstd.WithEncoderCRC(false))},
		"gz":                   {Gzip, compressed(t, Gzip, 1, data, nil, n, 0)},
		"gz of two members":    {Gzip, members},
	}
}

func TestReadAt(t *testing.T) {
	const n = 600_000
	data := content(n, 4)
	for name, v := range variants(t, data) {
		at, err := NewReaderAt(bytes.NewReader(v.c), int64(len(v.c)), v.kind)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 5))
				p := make([]byte, 1<<20)
				for range 12 {
					off := r.Int64N(n + 10)
					p := p[:r.IntN(1<<r.IntN(20))+1]
					m, err := at.ReadAt(p, off)
					want := data[min(off, n):min(off+int64(len(p)), n)]
					wantErr := error(nil)
					if len(want) < len(p) {
						wantErr = io.EOF
					}
					if err != wantErr || !bytes.Equal(p[:m], want) {
						t.Errorf("%s: ReadAt(%d bytes, %d) = %d, %v; want %d, %v", name, len(p), off, m, err, len(want), wantErr)
						return
					}
				}
			})
		}
		wg.Wait()
		if _, err := at.ReadAt(make([]byte, 1), -1); err == nil {
			t.Errorf("%s: ReadAt(-1) = %v", name, err)
		}
	}
}

func TestLevels(t *testing.T) {
	for _, c := range []struct {
		kind  string
		level int
		ok    bool
	}{
		{None, 0, true}, {None, 1, false}, {Gzip, 9, true}, {Gzip, 10, false}, {Gzip, -1, false},
		{Zstd, 22, true}, {Zstd, 23, false}, {Zstd, -1, false}, {"xz", 0, false},
	} {
		if err := CheckLevel(c.kind, c.level); (err == nil) != c.ok {
			t.Errorf("CheckLevel(%q, %d) = %v", c.kind, c.level, err)
		}
		if w, err := NewWriter(io.Discard, c.kind, c.level); (err == nil) != c.ok {
			t.Errorf("NewWriter(%q, %d) = %v, %v", c.kind, c.level, w, err)
		}
	}
	if _, err := NewReader(nil, "xz"); err == nil {
		t.Error("NewReader of an unknown kind works")
	}
	if _, err := NewReaderAt(nil, 0, "xz"); err == nil {
		t.Error("NewReaderAt of an unknown kind works")
	}
}

// known says that err is of one of the kinds that are promised for bad data.
func known(err error) bool {
	var format *shard.FormatError
	var unsupported *shard.UnsupportedError
	return errors.Is(err, shard.ErrTruncated) || errors.Is(err, shard.ErrChecksum) || errors.As(err, &format) || errors.As(err, &unsupported)
}

// TestCut cuts compressed data at every offset. A stream must not seem whole, but
// where the cut leaves whole frames or members.
func TestCut(t *testing.T) {
	data := content(700, 6)
	whole := map[string]bool{}
	for name, v := range variants(t, data) {
		if v.kind == None {
			continue
		}
		for n := range len(v.c) {
			r, err := NewReader(bytes.NewReader(v.c[:n]), v.kind)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(r)
			if !bytes.HasPrefix(data, got) {
				t.Fatalf("%s, cut at %d: other bytes", name, n)
			}
			switch {
			case err == nil:
				whole[fmt.Sprint(name, " ", len(got))] = true
			case !errors.Is(err, shard.ErrTruncated):
				t.Errorf("%s, cut at %d of %d: %v, want ErrTruncated", name, n, len(v.c), err)
			}
			at, err := NewReaderAt(bytes.NewReader(v.c[:n]), int64(n), v.kind)
			if err == nil {
				_, err = at.ReadAt(make([]byte, len(data)+1), 0)
			}
			if err != io.EOF && !errors.Is(err, shard.ErrTruncated) {
				t.Errorf("%s, cut at %d of %d, ReadAt: %v, want ErrTruncated", name, n, len(v.c), err)
			}
		}
	}
	want := map[string]bool{"zst 700": true, "zst without a table 350": true, "zst without checksum 350": true, "gz of two members 350": true}
	if fmt.Sprint(whole) != fmt.Sprint(want) {
		t.Errorf("these cuts pass as whole: %v, want %v", whole, want)
	}
}

// TestFlip flips every bit: with checksums, no wrong byte comes through as right.
func TestFlip(t *testing.T) {
	data := content(60, 7)
	p := make([]byte, 1<<18) // more than a flip can make of it
	for name, v := range variants(t, data) {
		if v.kind == None || name == "zst without checksum" {
			continue
		}
		for i := range 8 * len(v.c) {
			c := bytes.Clone(v.c)
			c[i/8] ^= 1 << (i % 8)
			r, err := NewReader(bytes.NewReader(c), v.kind)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(r)
			if err == nil && !bytes.Equal(got, data) || err != nil && !known(err) {
				t.Fatalf("%s, bit %d flipped: %d bytes, %v", name, i, len(got), err)
			}
			n := 0
			at, err := NewReaderAt(bytes.NewReader(c), int64(len(c)), v.kind)
			if err == nil {
				n, err = at.ReadAt(p, 0)
			}
			if err == io.EOF && !bytes.Equal(p[:n], data) || err != io.EOF && !known(err) {
				t.Fatalf("%s, bit %d flipped, ReadAt: %d bytes, %v", name, i, n, err)
			}
		}
	}
}
