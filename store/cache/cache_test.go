package cache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shardify/store"
	"shardify/store/fault"
	"shardify/store/file"
	"shardify/store/mem"
	"shardify/store/retry"
	"shardify/store/storetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
	}
	goleak.VerifyTestMain(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pattern(seed byte, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// wrap wraps a store whose objects count as old enough to be kept.
func wrap(t testing.TB, inner store.Store, c Config) *Store {
	t.Helper()
	if c.Dir == "" {
		c.Dir = filepath.Join(t.TempDir(), "not", "made")
	}
	s, err := New(&aged{inner, time.Hour}, c)
	must(t, err)
	s.folder.step = 0
	return s
}

// aged is a store whose objects are older than they are.
type aged struct {
	store.Store
	by time.Duration
}

func (s *aged) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return agedObject{o, s.by}, nil
}

func (s *aged) Stat(ctx context.Context, name string) (store.Info, error) {
	return store.Stat(ctx, s.Store, name)
}

type agedObject struct {
	store.Object
	by time.Duration
}

func (o agedObject) Info() store.Info {
	info := o.Object.Info()
	info.ModTime = info.ModTime.Add(-o.by)
	return info
}

// shards fills a store with n objects of about size bytes.
func shards(t testing.TB, s store.Store, n, size int) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for i := range n {
		name := fmt.Sprintf("train/%05d.tar", i)
		all[name] = pattern(byte(i), size+i)
		must(t, store.WriteAll(t.Context(), s, name, all[name]))
	}
	return all
}

func sorted(all map[string][]byte) []string {
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// identical reads all of every object, in pieces of the given size, and fails the
// test where they are not what they should be.
func identical(t testing.TB, s store.Store, all map[string][]byte, piece int) {
	t.Helper()
	for _, name := range sorted(all) {
		o, err := s.Open(t.Context(), name)
		must(t, err)
		whole(t, o, all[name], piece)
		must(t, o.Close())
	}
}

// whole reads the first bytes of an object, the last piece over its end if they are
// all.
func whole(t testing.TB, o store.Object, want []byte, piece int) {
	t.Helper()
	p := make([]byte, piece)
	for off := 0; off < len(want); off += piece {
		if int64(len(want)) < o.Info().Size {
			p = p[:min(piece, len(want)-off)]
		}
		n, err := o.ReadAt(t.Context(), p, int64(off))
		expected := want[off:min(len(want), off+piece)]
		if !bytes.Equal(p[:n], expected) || err != nil && (err != io.EOF || n == piece) {
			t.Fatalf("%s: ReadAt(%d bytes, %d) = %d, %v; the same bytes: %v", o.Info().Name, len(p), off, n, err, bytes.Equal(p[:n], expected[:n]))
		}
	}
}

// files are the blocks in a folder.
func files(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, blocksDir, "*", "*"))
	must(t, err)
	return paths
}

// takenBy is what the blocks in a folder take.
func takenBy(t testing.TB, dir string) (sum int64) {
	t.Helper()
	for _, path := range files(t, dir) {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			t.Error(err)
			continue
		}
		sum += roundUp(info.Size(), page)
	}
	return sum
}

func used(t testing.TB, s *Store) (n int64) {
	t.Helper()
	must(t, s.folder.locked(t.Context(), func() error {
		c, err := s.folder.used()
		if err == nil {
			n = c.total()
		}
		return err
	}))
	return n
}

func TestStore(t *testing.T) {
	bad := func(inner store.Store) store.Store {
		s, err := retry.New(fault.New(inner, fault.Config{
			Kinds:     []fault.Kind{fault.Open, fault.ReadAt, fault.List},
			ErrorRate: 0.1, ShortReadRate: 0.1, StallRate: 0.01, Stall: time.Millisecond,
		}), retry.Config{Attempts: 20, Backoff: time.Microsecond, MaxBackoff: 10 * time.Microsecond})
		must(t, err)
		return s
	}
	for _, c := range []struct {
		name   string
		config Config
		wrap   func(store.Store) store.Store
	}{
		{"mem", Config{}, nil},
		{"small blocks", Config{Block: 4 * page}, nil},
		{"little room", Config{Block: 16 * page, MaxBytes: 100 * page}, nil},
		{"no room", Config{MaxBytes: page}, nil},
		{"faults below", Config{Block: 2 * page}, bad},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all []*Store
			storetest.Run(t, func(t *testing.T) store.Store {
				var inner store.Store = mem.New()
				if c.wrap != nil {
					inner = c.wrap(inner)
				}
				s := wrap(t, inner, c.config)
				all = append(all, s)
				return s
			})
			var sum Stats
			for _, s := range all {
				sum.Add(s.Stats())
			}
			if sum.Corrupt+sum.Faults != 0 {
				t.Errorf("counted %+v", sum)
			}
			switch c.name {
			case "no room":
				if sum.UnkeptBytes != sum.OriginBytes || sum.CacheBytes != 0 {
					t.Errorf("counted %+v", sum)
				}
			case "little room":
				if sum.Evictions == 0 || sum.Hits == 0 {
					t.Errorf("counted %+v", sum)
				}
			default:
				if sum.Hits < 500 || sum.UnkeptBytes != 0 || sum.Evictions != 0 {
					t.Errorf("counted %+v", sum)
				}
			}
		})
	}
	t.Run("file", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) store.Store {
			s, err := New(file.New(t.TempDir()), Config{Dir: t.TempDir()})
			must(t, err)
			return s
		})
	})
}

// counted is a store that counts its operations.
func counted(inner store.Store, kinds ...fault.Kind) *fault.Store {
	return fault.New(inner, fault.Config{Kinds: kinds})
}

// The second epoch, in this process or another, reads nothing from the inner store,
// in whatever pieces; where it was told what to expect, it does not even ask. The
// first fetches every byte once.
func TestWarm(t *testing.T) {
	for _, expect := range []bool{false, true} {
		dir := t.TempDir()
		inner := counted(mem.New())
		all := shards(t, inner, 5, 1_000_000)
		var size int64
		for _, data := range all {
			size += int64(len(data))
		}
		for epoch, piece := range []int{100_000, 100_000, 1 << 20, 4 << 20} {
			s := wrap(t, inner, Config{Dir: dir, Block: 256 << 10})
			if expect {
				for name, data := range all {
					s.Expect(name, int64(len(data)), fmt.Sprintf("%x", sha256.Sum256(data)))
				}
			}
			before := inner.Ops()
			identical(t, s, all, piece)
			ops := inner.Ops() - before
			stats := s.Stats()
			switch {
			case epoch == 0:
				if stats.OriginBytes != size || stats.UnkeptBytes != 0 || stats.CacheBytes == 0 {
					t.Errorf("cold: %+v", stats)
				}
				// A piece needs at most one request for what it lacks.
				if stats.OriginReads > 5*11 || ops != stats.OriginReads+5 {
					t.Errorf("cold: %d operations, %+v", ops, stats)
				}
			case expect && ops != 0, !expect && ops != 5: // Open asks what the object is
				t.Errorf("warm: %d operations", ops)
			case stats.Misses != 0 || stats.OriginBytes != 0 || stats.CacheBytes != size:
				t.Errorf("warm: %+v", stats)
			}
			if got := takenBy(t, dir); got < size || got > size+5*4*2*page || got != used(t, s) {
				t.Errorf("%d bytes on the disk for %d, %d counted", got, size, used(t, s))
			}
		}
	}
}

// A sequential reader's requests are its own, where it misses; a random reader's
// are blocks.
func TestRequests(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 1, 20<<20)
	data := all["train/00000.tar"]
	s := wrap(t, inner, Config{Block: 256 << 10})
	o, err := s.Open(t.Context(), "train/00000.tar")
	must(t, err)
	defer o.Close()
	var last Stats
	for _, c := range []struct{ off, size, requests, bytes int64 }{
		{0, 4 << 20, 1, 4 << 20},
		{4 << 20, 4 << 20, 1, 4 << 20},
		{1 << 20, 4 << 20, 0, 0},
		{8<<20 + 200<<10, 110 << 10, 1, 512 << 10},
		{8<<20 + 400<<10, 110 << 10, 0, 0},
		{8 << 20, 1 << 20, 1, 512 << 10},
		{9 << 20, 11 << 20, 2, 11 << 20},
	} {
		p := make([]byte, c.size)
		n, err := o.ReadAt(t.Context(), p, c.off)
		if int64(n) != c.size || err != nil || !bytes.Equal(p, data[c.off:c.off+c.size]) {
			t.Errorf("ReadAt = %d, %v", n, err)
		}
		stats := s.Stats()
		if stats.OriginReads-last.OriginReads != c.requests || stats.OriginBytes-last.OriginBytes != c.bytes {
			t.Errorf("%+v: %d requests of %d bytes", c, stats.OriginReads-last.OriginReads, stats.OriginBytes-last.OriginBytes)
		}
		last = stats
	}
}

// Objects that are replaced, by one of the same length too, are read as they are;
// one that is open stays what it was.
func TestReplaced(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	inner := file.New(root)
	s := wrap(t, inner, Config{Dir: dir})
	for i := range 5 {
		data := pattern(byte(i), 50_000)
		must(t, store.WriteAll(t.Context(), inner, "a", data))
		at := time.Unix(1_700_000_000, int64(i))
		must(t, os.Chtimes(filepath.Join(root, "a"), at, at))
		identical(t, s, map[string][]byte{"a": data}, 1000)
		identical(t, s, map[string][]byte{"a": data}, 1000)
	}
	if stats := s.Stats(); stats.OriginBytes != 5*50_000 {
		t.Errorf("counted %+v", stats)
	}
	o, err := s.Open(t.Context(), "a")
	must(t, err)
	must(t, store.WriteAll(t.Context(), s, "a", []byte("other")))
	whole(t, o, pattern(4, 50_000), 7000)
	must(t, o.Close())
	identical(t, s, map[string][]byte{"a": []byte("other")}, 3)

	// The same name in another store is another object.
	elsewhere := file.New(t.TempDir())
	must(t, store.WriteAll(t.Context(), elsewhere, "a", []byte("third")))
	at := time.Unix(1_700_000_000, 0)
	for _, dir := range []string{root, elsewhere.URL()} {
		must(t, os.Chtimes(filepath.Join(dir, "a"), at, at))
	}
	identical(t, s, map[string][]byte{"a": []byte("other")}, 3)
	identical(t, wrap(t, elsewhere, Config{Dir: dir}), map[string][]byte{"a": []byte("third")}, 3)
}

// What two versions could share a ModTime with is not kept.
func TestSettle(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 1, 1000)
	for _, c := range []struct {
		age  time.Duration
		kept bool
	}{
		{time.Minute, true}, {settle, true}, {0, false}, {settle / 2, false},
		{-time.Hour, false}, // a clock that is ahead
	} {
		s, err := New(&aged{inner, c.age}, Config{Dir: t.TempDir()})
		must(t, err)
		identical(t, s, all, 1000)
		identical(t, s, all, 1000)
		if stats := s.Stats(); (stats.Hits == 1) != c.kept || (stats.UnkeptBytes == 0) != c.kept {
			t.Errorf("%+v: %+v", c, stats)
		}
	}
}

// An object whose ModTime is not known is not kept.
func TestNoModTime(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 1, 1000)
	s, err := New(timeless{inner}, Config{Dir: t.TempDir()})
	must(t, err)
	identical(t, s, all, 1000)
	identical(t, s, all, 1000)
	if stats := s.Stats(); stats.Hits != 0 || stats.UnkeptBytes != 2000 {
		t.Errorf("counted %+v", stats)
	}
}

type timeless struct{ store.Store }

func (s timeless) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Store.Open(ctx, name)
	return timelessObject{o}, err
}

type timelessObject struct{ store.Object }

func (o timelessObject) Info() store.Info {
	info := o.Object.Info()
	info.ModTime = time.Time{}
	return info
}

func TestExpect(t *testing.T) {
	inner := counted(mem.New(), fault.Open)
	all := shards(t, inner, 2, 100_000)
	first, second := all["train/00000.tar"], all["train/00001.tar"]
	s := wrap(t, inner, Config{})
	s.Expect("train/00000.tar", int64(len(first)), "crc64nvme:1")
	s.Expect("train/00001.tar", int64(len(second))+1, "crc64nvme:2")
	s.Expect("gone", 5, "crc64nvme:3")
	s.Expect("empty", 0, "crc64nvme:4")

	o, err := s.Open(t.Context(), "train/00000.tar")
	must(t, err)
	if inner.Ops() != 0 || o.Info() != (store.Info{Name: "train/00000.tar", Size: int64(len(first))}) {
		t.Errorf("%d operations, %+v", inner.Ops(), o.Info())
	}
	whole(t, o, first, 30_000)
	must(t, o.Close())

	for name, want := range map[string]error{"train/00001.tar": ErrChanged, "gone": fs.ErrNotExist} {
		o, err := s.Open(t.Context(), name)
		must(t, err)
		n, err := o.ReadAt(t.Context(), make([]byte, 5), 0)
		if n != 0 || !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), name) {
			t.Errorf("%s: ReadAt = %d, %v; want %v", name, n, err, want)
		}
		must(t, o.Close())
	}
	identical(t, s, map[string][]byte{"empty": nil}, 10)

	// Another version is another object.
	s.Expect("train/00000.tar", int64(len(first)), "crc64nvme:5")
	before := s.Stats().OriginBytes
	identical(t, s, map[string][]byte{"train/00000.tar": first}, 1<<20)
	if got := s.Stats().OriginBytes - before; got != int64(len(first)) {
		t.Errorf("fetched %d bytes", got)
	}

	// What is written here is not what was expected.
	must(t, store.WriteAll(t.Context(), s, "train/00001.tar", []byte("new")))
	identical(t, s, map[string][]byte{"train/00001.tar": []byte("new")}, 10)
	must(t, s.Remove(t.Context(), "train/00000.tar"))
	if _, err := s.Open(t.Context(), "train/00000.tar"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open after Remove: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Open(ctx, "gone"); !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v", err)
	}
}

// wrong is a store whose reads a test changes.
type wrong struct {
	store.Store
	readAt func(n int64, o store.Object, ctx context.Context, p []byte, off int64) (int, error)
	reads  atomic.Int64
}

func (s *wrong) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Store.Open(ctx, name)
	return &wrongObject{o, s}, err
}

type wrongObject struct {
	store.Object
	s *wrong
}

func (o *wrongObject) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	return o.s.readAt(o.s.reads.Add(1), o.Object, ctx, p, off)
}

// Bytes that came wrong over the network are kept as they came, until somebody who
// knows better reads them under Fresh.
func TestFresh(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 1, 100_000)
	data := all["train/00000.tar"]
	w := &wrong{Store: inner, readAt: func(n int64, o store.Object, ctx context.Context, p []byte, off int64) (int, error) {
		k, err := o.ReadAt(ctx, p, off)
		if n == 1 {
			p[50_000-off] ^= 1
		}
		return k, err
	}}
	s := wrap(t, w, Config{Block: 2 * page})
	o, err := s.Open(t.Context(), "train/00000.tar")
	must(t, err)
	defer o.Close()
	p := make([]byte, len(data))
	for range 2 {
		if n, err := o.ReadAt(t.Context(), p, 0); n != len(p) || err != nil || p[50_000] == data[50_000] {
			t.Fatalf("ReadAt = %d, %v", n, err)
		}
	}
	q := make([]byte, 2000)
	if n, err := o.ReadAt(Fresh(t.Context()), q, 49_000); n != len(q) || err != nil || !bytes.Equal(q, data[49_000:51_000]) {
		t.Errorf("ReadAt = %d, %v", n, err)
	}
	whole(t, o, data, 100_000)
	if stats := s.Stats(); stats.OriginReads != 2 || stats.OriginBytes != int64(len(data))+4*page || stats.Corrupt != 0 {
		t.Errorf("counted %+v", stats)
	}
}

// Of two reads under Fresh at the same time neither is answered by the disk.
func TestFreshTwice(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 1, 1000)
	begun, wake := make(chan struct{}), make(chan struct{})
	w := &wrong{Store: inner, readAt: func(n int64, o store.Object, ctx context.Context, p []byte, off int64) (int, error) {
		if n == 2 {
			close(begun)
			<-wake
		}
		return o.ReadAt(ctx, p, off)
	}}
	s := wrap(t, w, Config{})
	o, err := s.Open(t.Context(), "train/00000.tar")
	must(t, err)
	defer o.Close()
	whole(t, o, all["train/00000.tar"], 1000)
	read := func() {
		p := make([]byte, 1000)
		if n, err := o.ReadAt(Fresh(t.Context()), p, 0); n != 1000 || err != nil || !bytes.Equal(p, all["train/00000.tar"]) {
			t.Errorf("ReadAt = %d, %v", n, err)
		}
	}
	var wg sync.WaitGroup
	wg.Go(read)
	<-begun
	wg.Go(read)
	for s.Stats().Waits == 0 {
		time.Sleep(time.Millisecond)
	}
	close(wake)
	wg.Wait()
	if w.reads.Load() != 3 {
		t.Errorf("%d reads", w.reads.Load())
	}
}

// An error of the inner store is the reader's, and what came before it is kept; one
// behind what was asked for is none.
func TestInnerFails(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 1, 100_000)
	data := all["train/00000.tar"]
	broken := errors.New("connection reset")
	for name, c := range map[string]struct{ say, want error }{
		"error": {broken, broken}, "EOF": {io.EOF, io.ErrUnexpectedEOF}, "nothing": {nil, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			w := &wrong{Store: inner, readAt: func(n int64, o store.Object, ctx context.Context, p []byte, off int64) (int, error) {
				asked = append(asked, fmt.Sprintf("%d+%d", off, len(p)))
				if n < 3 {
					p = p[:2*page+100]
				}
				k, err := o.ReadAt(ctx, p, off)
				if n < 3 {
					err = c.say
				}
				return k, err
			}}
			s := wrap(t, w, Config{Block: page})
			o, err := s.Open(t.Context(), "train/00000.tar")
			must(t, err)
			defer o.Close()
			p := make([]byte, 3*page)
			n, err := o.ReadAt(t.Context(), p, 10)
			if n != 2*page+90 || !errors.Is(err, c.want) || err == io.EOF || !bytes.Equal(p[:n], data[10:10+n]) {
				t.Errorf("ReadAt = %d, %v", n, err)
			}
			n, err = o.ReadAt(t.Context(), p[:2*page+50], 2*page) // fails behind it
			if n != 2*page+50 || err != nil || !bytes.Equal(p[:n], data[2*page:2*page+n]) {
				t.Errorf("ReadAt = %d, %v", n, err)
			}
			whole(t, o, data, len(data))
			want := []string{
				fmt.Sprintf("0+%d", 4*page), fmt.Sprintf("%d+%d", 2*page, 3*page), fmt.Sprintf("%d+%d", 4*page, len(data)-4*page),
			}
			if !slices.Equal(asked, want) {
				t.Errorf("asked for %q; want %q", asked, want)
			}
			// Twice came 100 bytes of a block that did not come whole.
			if stats := s.Stats(); stats.Faults+stats.Corrupt != 0 || stats.UnkeptBytes != 200 {
				t.Errorf("counted %+v", stats)
			}
		})
	}
}

// A store that panics leaves nothing behind that others would wait for.
func TestInnerPanics(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 1, 10_000)
	w := &wrong{Store: inner, readAt: func(n int64, o store.Object, ctx context.Context, p []byte, off int64) (int, error) {
		if n == 1 {
			panic("a bug")
		}
		return o.ReadAt(ctx, p, off)
	}}
	s := wrap(t, w, Config{})
	func() {
		defer func() { _ = recover() }()
		identical(t, s, all, 10_000)
	}()
	identical(t, s, all, 10_000)
	identical(t, s, all, 10_000)
	if stats := s.Stats(); stats.OriginReads != 2 || stats.UnkeptBytes+stats.Waits != 0 {
		t.Errorf("counted %+v", stats)
	}
}

// Many goroutines, of two Stores that share a folder as two processes do, fetch
// every block once.
func TestConcurrent(t *testing.T) {
	inner := counted(mem.New(), fault.ReadAt)
	all := shards(t, inner, 4, 700_000)
	dir := t.TempDir()
	slow := fault.New(inner, fault.Config{Kinds: []fault.Kind{fault.ReadAt}, StallRate: 0.2, Stall: 3 * time.Millisecond})
	var fetched, size int64
	two := []*Store{wrap(t, slow, Config{Dir: dir, Block: 4 * page}), wrap(t, slow, Config{Dir: dir, Block: 4 * page})}
	var wg sync.WaitGroup
	for g := range 12 {
		wg.Go(func() {
			s, r := two[g%2], rand.New(rand.NewPCG(uint64(g), 0))
			for range 4 {
				for name, want := range all {
					o, err := s.Open(t.Context(), name)
					if err != nil {
						t.Error(err)
						return
					}
					for range 10 {
						off, p := r.IntN(len(want)), make([]byte, 1+r.IntN(200_000))
						n, err := o.ReadAt(t.Context(), p, int64(off))
						if !bytes.Equal(p[:n], want[off:min(len(want), off+len(p))]) || err != nil && err != io.EOF {
							t.Errorf("%s: ReadAt(%d bytes, %d) = %d, %v", name, len(p), off, n, err)
						}
					}
					if err := o.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	waits := int64(0)
	for _, s := range two {
		identical(t, s, all, 100_000)
		stats := s.Stats()
		fetched += stats.OriginBytes
		waits += stats.Waits
		if stats.UnkeptBytes+stats.Corrupt+stats.Faults != 0 || stats.OriginReads == 0 {
			t.Errorf("counted %+v", stats)
		}
	}
	for _, data := range all {
		size += int64(len(data))
	}
	if fetched != size || waits == 0 {
		t.Errorf("fetched %d bytes of %d; %d waits", fetched, size, waits)
	}
}

// A reader whose context ends goes, also while it waits for another's fetch, which
// goes on.
func TestCancelled(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 1, 10_000)
	dir := t.TempDir()
	begun, wake := make(chan struct{}), make(chan struct{})
	w := &wrong{Store: inner, readAt: func(n int64, o store.Object, ctx context.Context, p []byte, off int64) (int, error) {
		if n == 1 {
			close(begun)
			<-wake
		}
		return o.ReadAt(ctx, p, off)
	}}
	two := []*Store{wrap(t, w, Config{Dir: dir}), wrap(t, w, Config{Dir: dir})}
	var wg sync.WaitGroup
	wg.Go(func() { identical(t, two[0], all, 10_000) })
	<-begun
	for _, s := range two {
		o, err := s.Open(t.Context(), "train/00000.tar")
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		n, err := o.ReadAt(ctx, make([]byte, 10), 0)
		if cancel(); n != 0 || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "train/00000.tar") {
			t.Errorf("ReadAt = %d, %v", n, err)
		}
		must(t, o.Close())
	}
	close(wake)
	wg.Wait()
	identical(t, two[1], all, 10_000)
	if w.reads.Load() != 1 {
		t.Errorf("%d reads", w.reads.Load())
	}
}

// Whoever has waited long enough for another's fetch reads for itself.
func TestPatience(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 1, 10_000)
	dir := t.TempDir()
	begun, wake := make(chan struct{}), make(chan struct{})
	w := &wrong{Store: inner, readAt: func(n int64, o store.Object, ctx context.Context, p []byte, off int64) (int, error) {
		if n == 1 {
			close(begun)
			<-wake
		}
		return o.ReadAt(ctx, p, off)
	}}
	two := []*Store{wrap(t, w, Config{Dir: dir}), wrap(t, w, Config{Dir: dir})}
	var wg sync.WaitGroup
	wg.Go(func() { identical(t, two[0], all, 10_000) })
	<-begun
	for i, s := range two {
		s.patience = 50 * time.Millisecond
		start := time.Now()
		identical(t, s, all, 10_000)
		if took := time.Since(start); took < 50*time.Millisecond || s.Stats().UnkeptBytes != 10_000 {
			t.Errorf("store %d: %v, %+v", i, took, s.Stats())
		}
	}
	close(wake)
	wg.Wait()
	before := w.reads.Load()
	identical(t, two[1], all, 10_000)
	if got := w.reads.Load(); got != before {
		t.Errorf("%d more reads", got-before)
	}
}

// The folder's lock is waited for no longer than patience lasts, and then not tried
// again at once.
func TestHeldLock(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 2, 10_000)
	dir := t.TempDir()
	s := wrap(t, inner, Config{Dir: dir})
	other := wrap(t, inner, Config{Dir: dir})
	s.folder.patience = 50 * time.Millisecond
	must(t, other.folder.locked(t.Context(), func() error {
		start := time.Now()
		identical(t, s, all, 10_000)
		if took := time.Since(start); took < 50*time.Millisecond || took > time.Minute {
			t.Errorf("took %v", took)
		}
		return nil
	}))
	if stats := s.Stats(); stats.Faults != 1 || !strings.Contains(stats.Warning, filepath.Join(dir, lockName)) {
		t.Errorf("counted %+v", stats)
	}
}

// Close while the inner object is being opened, and a second time.
func TestClose(t *testing.T) {
	begun, wake := make(chan struct{}), make(chan struct{})
	inner := mem.New()
	must(t, store.WriteAll(t.Context(), inner, "a", make([]byte, 100)))
	opens := 0
	s := wrap(t, fault.New(inner, fault.Config{Kinds: []fault.Kind{fault.Open}, Before: func(fault.Op) error {
		opens++
		close(begun)
		<-wake
		return nil
	}}), Config{})
	s.Expect("a", 100, "1")
	o, err := s.Open(t.Context(), "a")
	must(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		if n, err := o.ReadAt(t.Context(), make([]byte, 10), 0); n != 0 || !errors.Is(err, fs.ErrClosed) {
			t.Errorf("ReadAt = %d, %v", n, err)
		}
	})
	<-begun
	must(t, o.Close())
	if err := o.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a second Close: %v", err)
	}
	close(wake)
	wg.Wait()
}

func TestConfig(t *testing.T) {
	_, err := New(mem.New(), Config{Block: 1000, MaxBytes: -1})
	for _, name := range []string{"dir", "max_bytes", "block", "mem:"} {
		if !strings.Contains(fmt.Sprint(err), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
	for _, block := range []int64{-page, 1, page + 1, maxBlock + page} {
		if (Config{Dir: "x", Block: block}).Validate() == nil {
			t.Errorf("a block of %d is valid", block)
		}
	}
	must(t, Config{Dir: "x"}.Validate())
	c := Config{Dir: "d", MaxBytes: 1, Block: page}
	must(t, c.Validate())
	text, err := json.Marshal(c)
	must(t, err)
	if want := `{"dir":"d","max_bytes":1,"block":4096}`; string(text) != want {
		t.Errorf("%s; want %s", text, want)
	}
	var back Config
	must(t, json.Unmarshal(text, &back))
	if back != c {
		t.Errorf("%+v", back)
	}
}

// BenchmarkReadAt reads samples of 110 KB at random from the page cache.
func BenchmarkReadAt(b *testing.B) {
	const size, sample = 64 << 20, 110 << 10
	inner := file.New(b.TempDir())
	must(b, store.WriteAll(b.Context(), inner, "a", pattern(1, size)))
	for _, name := range []string{"cache", "inner"} {
		b.Run(name, func(b *testing.B) {
			var s store.Store = inner
			if name == "cache" {
				c := wrap(b, inner, Config{})
				c.folder.step = touchStep
				s = c
			}
			o, err := s.Open(b.Context(), "a")
			must(b, err)
			defer o.Close()
			p := make([]byte, 1<<20)
			for off := int64(0); off < size; off += int64(len(p)) {
				_, err := o.ReadAt(b.Context(), p, off)
				must(b, err)
			}
			r := rand.New(rand.NewPCG(1, 1))
			b.SetBytes(sample)
			b.ReportAllocs()
			for b.Loop() {
				_, err := o.ReadAt(b.Context(), p[:sample], r.Int64N(size-sample))
				must(b, err)
			}
		})
	}
}

// BenchmarkFill fetches blocks one by one, from memory: what keeping them costs.
func BenchmarkFill(b *testing.B) {
	const size = 256 << 20
	inner := mem.New()
	must(b, store.WriteAll(b.Context(), inner, "a", make([]byte, size)))
	s := wrap(b, inner, Config{})
	i, version := int64(0), 0
	var o store.Object
	p := make([]byte, DefaultBlock)
	b.SetBytes(DefaultBlock)
	for b.Loop() {
		if i%size == 0 {
			if o != nil {
				o.Close()
			}
			var err error
			s.Expect("a", size, fmt.Sprint(version))
			o, err = s.Open(b.Context(), "a")
			must(b, err)
			version++
			i = 0
		}
		_, err := o.ReadAt(b.Context(), p, i)
		must(b, err)
		i += DefaultBlock
	}
	o.Close()
}
