package tars

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"shardify/sample"
	"shardify/shard"
	"shardify/shard/compress"
	"shardify/source"
)

// noise makes n samples of size bytes, which do not compress.
func noise(seed uint64, n, size int) []sample.Sample {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	samples := make([]sample.Sample, n)
	for i := range samples {
		data := make([]byte, size)
		r.Read(data)
		samples[i] = sample.Sample{Key: fmt.Sprintf("%d-%05d", seed, i), Fields: []sample.Field{{Name: "jpg", Data: data}}}
	}
	return samples
}

// packers compress as others do: what they write cannot be read at offsets, or only
// at great cost.
var packers = map[string]func(t testing.TB, tar []byte) []byte{
	".tar.gz": func(t testing.TB, tar []byte) []byte {
		var b bytes.Buffer
		w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Write(tar)
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	},
	".tar.zst": func(t testing.TB, tar []byte) []byte {
		var b bytes.Buffer
		w, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Write(tar)
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	},
	// A seek table of one frame, as the default of pyzstd gives.
	".one-frame.tar.zst": func(t testing.TB, tar []byte) []byte {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		b := w.EncodeAll(tar, nil)
		n := len(b)
		for _, v := range []uint32{0x184D2A5E, 8 + 9, uint32(n), uint32(len(tar)), 1} {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
		return binary.LittleEndian.AppendUint32(append(b, 0), 0x8F92EAB1)
	},
}

// packed writes samples into a shard that ends in one of the endings of packers, and
// returns its path, and that of a plain tar of the same samples.
func packed(t testing.TB, dir, name, ending string, samples []sample.Sample) (path, plain string) {
	t.Helper()
	plain = writeShard(t, filepath.Join(dir, "plain", name+".tar"), samples...)
	tar, err := os.ReadFile(plain)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "packed", name+ending)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, packers[ending](t, tar), 0o644)); err != nil {
		t.Fatal(err)
	}
	return path, plain
}

// cost is how many bytes of shards' files were read to read samples.
func (t *Tars) cost() (n int64) {
	for _, f := range t.files {
		n += f.access.cost.Load()
	}
	return n
}

func sizeOf(t testing.TB, paths ...string) (n int64) {
	t.Helper()
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		n += info.Size()
	}
	return n
}

// orders are orders in which pack reads samples: where it keeps theirs, its
// goroutines are a little out of step.
var orders = map[string]func(n int) []int{
	"path": func(n int) []int {
		order := rand.New(rand.NewPCG(1, 2)).Perm(n)
		slices.SortFunc(order, func(a, b int) int { return a/8 - b/8 })
		return order
	},
	"reverse": func(n int) (order []int) {
		for i := range n {
			order = append(order, n-1-i)
		}
		return order
	},
	"shuffle": func(n int) []int { return rand.New(rand.NewPCG(3, 4)).Perm(n) },
}

// Whatever the order, each byte of a shard is decompressed once, and what is read is
// what a plain tar holds.
func TestLinear(t *testing.T) {
	for ending := range packers {
		n, size, most := 300, 20_000, int64(1)
		if strings.HasPrefix(ending, ".one") {
			// More than what is decoded in one piece. Each of the readers may begin one
			// more read that is as dear as the shard.
			n, most = 900, dear+1+4+1
		}
		path, plain := packed(t, t.TempDir(), "a", ending, noise(1, n, size))
		for name, order := range orders {
			t.Run(name+ending, func(t *testing.T) {
				temp := t.TempDir()
				src, want := openTars(t, Config{TempDir: temp}, path), openTars(t, Config{}, plain)
				entries, _ := gather(t, src)
				plainEntries, _ := gather(t, want)
				if len(entries) != n || len(plainEntries) != n {
					t.Fatalf("%d and %d entries", len(entries), len(plainEntries))
				}
				work := make(chan int)
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						var a, b []byte
						for i := range work {
							var errA, errB error
							a, errA = src.Read(t.Context(), entries[i].Location, a)
							b, errB = want.Read(t.Context(), plainEntries[i].Location, b)
							if errA != nil || errB != nil || !bytes.Equal(a, b) || len(a) != size {
								t.Errorf("%s: %v, %v, %d bytes", entries[i].Key, errA, errB, len(a))
							}
						}
					})
				}
				for _, i := range order(n) {
					work <- i
				}
				close(work)
				wg.Wait()
				if cost, size := src.cost(), sizeOf(t, path); cost > most*size+1000 {
					t.Errorf("%d bytes of the shard's %d were read", cost, size)
				}
				if left, err := os.ReadDir(temp); err != nil || len(left) > 0 && runtime.GOOS != "windows" {
					t.Errorf("%v, %v", left, err)
				}
			})
		}
	}
}

// A spool keeps to its limit where shards are read one after the other, and grows
// where they are not.
func TestSpoolLimit(t *testing.T) {
	const shards, each = 8, 4
	dir := t.TempDir()
	var paths []string
	for i := range shards {
		path, _ := packed(t, dir, fmt.Sprint(i), ".tar.gz", noise(uint64(i), 50, (each*spoolBlock-60_000)/50))
		paths = append(paths, path)
	}
	for name, c := range map[string]struct{ anew, blocks int64 }{
		// The last samples of a shard and the first of the next are read together.
		"path":    {0, 2 * each},
		"reverse": {0, 2 * each},
		// Those come back that were dropped before the limit had grown to 4, then 8.
		"shuffle": {3, shards * each},
	} {
		t.Run(name, func(t *testing.T) {
			src := openTars(t, Config{TempDir: t.TempDir()}, paths...)
			src.spool.limit = 2 * each * spoolBlock
			entries, _ := gather(t, src)
			if len(entries) != shards*50 {
				t.Fatalf("%d entries", len(entries))
			}
			read := func() {
				for _, i := range orders[name](len(entries)) {
					if _, err := src.Read(t.Context(), entries[i].Location, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			read()
			cost, size := src.cost(), sizeOf(t, paths...)
			if cost > size*(shards+c.anew)/shards+1000 {
				t.Errorf("%d bytes of the shards' %d were read", cost, size)
			}
			if src.spool.blocks > c.blocks {
				t.Errorf("%d blocks", src.spool.blocks)
			}
			if name == "shuffle" {
				if read(); src.cost() > cost {
					t.Errorf("%d bytes were read once all was there", src.cost()-cost)
				}
			}
		})
	}
}

// late is a context that is cancelled when it was asked n times.
type late struct {
	context.Context
	n atomic.Int64
}

func (l *late) Err() error {
	if l.n.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

func TestSpoolCancel(t *testing.T) {
	path, _ := packed(t, t.TempDir(), "a", ".tar.gz", noise(1, 100, 20_000))
	src := openTars(t, Config{TempDir: t.TempDir()}, path)
	entries, _ := gather(t, src)

	// One that decompresses leaves nothing.
	ctx := &late{Context: t.Context()}
	ctx.n.Store(4)
	if _, err := src.Read(ctx, entries[0].Location, nil); !errors.Is(err, context.Canceled) || errors.As(err, new(*source.EntryError)) {
		t.Error(err)
	}
	if s := &src.spool; s.blocks == 0 || int64(len(s.free)) != s.blocks || s.held.Len() != 0 {
		t.Errorf("%d blocks, %d of them free", s.blocks, len(s.free))
	}

	// One that waits does not wait on, and others do.
	turn := src.files[0].access.kept.turn
	turn <- struct{}{}
	cancelled, cancel := context.WithCancel(t.Context())
	results := make(chan error, 8)
	for i := range cap(results) {
		ctx := t.Context()
		if i%2 == 0 {
			ctx = cancelled
		}
		go func() {
			_, err := src.Read(ctx, entries[i].Location, nil)
			results <- err
		}()
	}
	time.Sleep(10 * time.Millisecond)
	cancel()
	for range cap(results) / 2 {
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	<-turn
	before := src.cost()
	for range cap(results) / 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if cost := src.cost() - before; cost > sizeOf(t, path) {
		t.Errorf("%d bytes read", cost)
	}
}

// A damaged shard is read up to the damage, and never gives other bytes than it
// held.
func TestSpoolDamage(t *testing.T) {
	for ending, place := range map[string]int{".tar.gz": 8, ".tar.zst": 4} { // of the checksum before the end
		dir := t.TempDir()
		samples := noise(1, 100, 20_000)
		path, _ := packed(t, dir, "a", ending, samples)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		src := openTars(t, Config{TempDir: t.TempDir()}, path)
		entries, _ := gather(t, src)
		modTime := time.Unix(0, entries[0].ModTime)
		flip := func(at int) []byte {
			b := bytes.Clone(whole)
			b[at] ^= 0x40
			return b
		}
		for _, c := range []struct {
			name  string
			data  []byte
			is    error
			least int
		}{
			{"cut", whole[:len(whole)/2], shard.ErrTruncated, 30},
			{"cut at the end", whole[:len(whole)-1], shard.ErrTruncated, 90},
			{"checksum", flip(len(whole) - place), shard.ErrChecksum, 0},
			{"content", flip(len(whole) / 2), nil, 0},
			{"start", flip(0), nil, 0},
			{"empty", nil, shard.ErrTruncated, 0},
		} {
			t.Run(c.name+ending, func(t *testing.T) {
				if err := errors.Join(os.WriteFile(path, c.data, 0o644), os.Chtimes(path, time.Time{}, modTime)); err != nil {
					t.Fatal(err)
				}
				src := openTars(t, Config{TempDir: t.TempDir()}, path)
				read := 0
				for _, i := range orders["shuffle"](len(entries)) {
					data, err := src.Read(t.Context(), entries[i].Location, nil)
					if err == nil {
						if !bytes.Equal(data, samples[i].Fields[0].Data) {
							t.Errorf("sample %d: other bytes", i)
						}
						read++
						continue
					}
					if !errors.As(err, new(*source.EntryError)) || !strings.Contains(err.Error(), path) || c.is != nil && !errors.Is(err, c.is) {
						t.Errorf("sample %d: %v", i, err)
					}
				}
				if read < c.least || read == len(entries) && c.name != "cut at the end" {
					t.Errorf("%d samples were read", read)
				}
				if cost, size := src.cost(), int64(len(c.data)); cost > size+1000 {
					t.Errorf("%d bytes of %d were read", cost, size)
				}
			})
		}
	}
}

// The bytes that are read back are not trusted.
func TestSpoolChanged(t *testing.T) {
	path, _ := packed(t, t.TempDir(), "a", ".tar.gz", noise(1, 10, 20_000))
	src := openTars(t, Config{TempDir: t.TempDir()}, path)
	entries, _ := gather(t, src)
	if _, err := src.Read(t.Context(), entries[5].Location, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := src.spool.file.WriteAt([]byte("oops"), entries[5].Offset+100); err != nil {
		t.Fatal(err)
	}
	if _, err := src.Read(t.Context(), entries[5].Location, nil); !errors.Is(err, shard.ErrChecksum) {
		t.Error(err)
	}
	if err := src.spool.file.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if _, err := src.Read(t.Context(), entries[4].Location, nil); err == nil || errors.As(err, new(*source.EntryError)) {
		t.Error(err)
	}
	// The shard itself.
	if err := os.Chtimes(path, time.Time{}, time.Unix(9, 0)); err != nil {
		t.Fatal(err)
	}
	again, _ := gather(t, src)
	for _, e := range []source.Entry{entries[0], again[0]} {
		if _, err := src.Read(t.Context(), e.Location, nil); !errors.Is(err, source.ErrChanged) || !errors.As(err, new(*source.EntryError)) {
			t.Error(err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := src.Read(t.Context(), entries[0].Location, nil); !errors.Is(err, source.ErrChanged) {
		t.Error(err)
	}
}

func TestSpoolClose(t *testing.T) {
	path, _ := packed(t, t.TempDir(), "a", ".tar.gz", noise(1, 10, 20_000))
	src := openTars(t, Config{}, path)
	if err := src.Close(); err != nil { // nothing to remove
		t.Fatal(err)
	}
	entries, _ := gather(t, src)
	if _, err := src.Read(t.Context(), entries[0].Location, nil); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}

	// Where an open file cannot be removed, Close does it.
	temp := t.TempDir()
	src = openTars(t, Config{TempDir: temp}, path)
	if _, err := src.Read(t.Context(), entries[0].Location, nil); err != nil {
		t.Fatal(err)
	}
	if src.spool.path == "" {
		src.spool.path = filepath.Join(temp, "kept")
		if err := os.WriteFile(src.spool.path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := src.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if err := src.Close(); err != nil {
		t.Fatal(err)
	}

	src = openTars(t, Config{TempDir: filepath.Join(temp, "none")}, path)
	if _, err := src.Read(t.Context(), entries[0].Location, nil); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "--temp-dir") || errors.As(err, new(*source.EntryError)) {
		t.Error(err)
	}
}

// Blocks are given out singly, so that a shard lies in pieces when others are
// decompressed beside it, or have left holes.
func TestSpoolPieces(t *testing.T) {
	const n = 40
	s := spool{dir: t.TempDir(), limit: spoolSize}
	f := &file{path: "x", access: newAccess(compress.Gzip)}
	if err := s.begin(f); err != nil {
		t.Fatal(err)
	}
	defer s.close()
	content := make([]byte, n*spoolBlock-1000)
	rand.NewChaCha8([32]byte{}).Read(content)
	s.blocks = n + 5
	for _, b := range rand.New(rand.NewPCG(5, 6)).Perm(n + 5) {
		s.free = append(s.free, int64(b))
	}
	slices.Sort(s.free[:n/2]) // in runs, too
	var blocks []int64
	for at := 0; at < len(content); at += spoolBlock {
		b, err := s.write(f, content[at:min(at+spoolBlock, len(content))])
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, b)
	}
	r := rand.New(rand.NewPCG(7, 8))
	for i := range 500 {
		from := r.IntN(len(content) + 1)
		to := from + r.IntN(min(len(content)-from, 1<<(i%24))+1)
		if i%7 == 0 {
			from, to = from/spoolBlock*spoolBlock, to/spoolBlock*spoolBlock
		}
		p := make([]byte, max(to-from, 0))
		if err := s.readAt(blocks, p, int64(from)); err != nil || !bytes.Equal(p, content[from:from+len(p)]) {
			t.Fatalf("%d bytes at %d: other bytes, or %v", len(p), from, err)
		}
	}
}
