package cache

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"shardify/store"
	"shardify/store/fault"
	"shardify/store/mem"
)

// Every block that rots while nobody looks, or while the object is open under
// CheckAlways, is found, dropped, counted and fetched again.
func TestRot(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 1, 20*page+100)
	data := all["train/00000.tar"]
	for _, always := range []bool{false, true} {
		dir := t.TempDir()
		s := wrap(t, inner, Config{Dir: dir, Block: 2 * page, CheckAlways: always})
		o, err := s.Open(t.Context(), "train/00000.tar")
		must(t, err)
		whole(t, o, data, 3000)
		if !always {
			must(t, o.Close())
			o = nil
		}
		l := layoutOf("", int64(len(data)), 2*page) // what follows the head is as far from the end
		f, err := os.OpenFile(only(t, dir), os.O_RDWR, 0)
		must(t, err)
		info, err := f.Stat()
		must(t, err)
		for b := range l.blocks {
			at := info.Size() - int64(len(data)) + b*2*page + (b*977)%l.length(b)
			var one [1]byte
			_, err := f.ReadAt(one[:], at)
			must(t, err)
			one[0] ^= 1 << (b % 8)
			_, err = f.WriteAt(one[:], at)
			must(t, err)
		}
		must(t, f.Close())
		before, room := s.Stats(), used(t, s)
		if o == nil {
			o, err = s.Open(t.Context(), "train/00000.tar")
			must(t, err)
		}
		for range 2 {
			whole(t, o, data, 3000)
		}
		must(t, o.Close())
		stats := s.Stats()
		if stats.Corrupt != l.blocks || stats.FetchedBytes-before.FetchedBytes != int64(len(data)) || stats.Faults+stats.Bypasses != 0 {
			t.Errorf("counted %+v", stats)
		}
		if got := used(t, s); got != room {
			t.Errorf("fetched again, the blocks are counted as %d bytes; before as %d", got, room)
		}
	}
}

// Of two that find a block rotten, the second does not drop what the first has
// fetched again.
func TestRotTwice(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 1, 3*page)
	s := wrap(t, inner, Config{Block: page})
	o, err := s.Open(t.Context(), "train/00000.tar")
	must(t, err)
	defer o.Close()
	whole(t, o, all["train/00000.tar"], page)
	before := s.Stats()
	must(t, o.(*object).file.drop(t.Context(), 0, 3, true))
	whole(t, o, all["train/00000.tar"], page)
	if stats := s.Stats(); stats.Fetches != before.Fetches || stats.Corrupt != 0 {
		t.Errorf("counted %+v", stats)
	}
}

// A folder in which anything has been cut, changed or removed still yields the
// right bytes, once healed out of the folder alone.
func TestDamage(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 1, 3*page+100)
	data := all["train/00000.tar"]
	dir := t.TempDir()
	identical(t, wrap(t, inner, Config{Dir: dir, Block: page}), all, 5000)
	path := only(t, dir)
	sound, err := os.ReadFile(path)
	must(t, err)
	head := int64(len(sound)) - int64(len(data))

	type damage struct {
		name string
		do   func(file []byte) []byte
	}
	var damages []damage
	for at := int64(0); at < int64(len(sound)); at += max(1, at/40) {
		damages = append(damages,
			damage{"flipped", func(file []byte) []byte { file[at] ^= 0x10; return file }},
			damage{"zeroed", func(file []byte) []byte { clear(file[at : at+(int64(len(file))-at+1)/2]); return file }},
			damage{"cut", func(file []byte) []byte { return file[:at] }})
	}
	damages = append(damages,
		damage{"longer", func(file []byte) []byte { return append(file, 0) }},
		damage{"counted as less than nothing", func(file []byte) []byte {
			binary.LittleEndian.PutUint64(file[reservedAt:], 1<<63)
			return file
		}},
		damage{"claimed by the dead", func(file []byte) []byte {
			for at := head - page; at < head; at += 8 {
				if binary.LittleEndian.Uint64(file[at:]) == taken {
					binary.LittleEndian.PutUint64(file[at:], 0xDEAD)
				}
			}
			return file
		}})
	for i, d := range damages {
		must(t, os.WriteFile(path, d.do(append([]byte(nil), sound...)), 0o666))
		s, err := New(inner, Config{Dir: dir, Block: page, Bytes: 1 << 20, Settle: -1})
		must(t, err)
		identical(t, s, all, 5000)
		before := s.Stats()
		identical(t, s, all, 5000)
		stats := s.Stats()
		if stats.Fetches != before.Fetches || stats.Faults+stats.NoSpace+stats.Bypasses != 0 {
			t.Fatalf("damage %d, %s: %+v, then %+v", i, d.name, before, stats)
		}
		must(t, s.Close())
	}
	if len(damages) < 300 {
		t.Errorf("%d damages", len(damages))
	}
}

// While objects are open and read: the folder disappears, its file is cut, the
// count is lost.
func TestPulledAway(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 3, 100_000)
	for name, do := range map[string]func(dir string) error{
		"all":     os.RemoveAll,
		"objects": func(dir string) error { return os.RemoveAll(filepath.Join(dir, objectsDir)) },
		"users":   func(dir string) error { return os.RemoveAll(filepath.Join(dir, usersDir)) },
		"used":    func(dir string) error { return os.Remove(filepath.Join(dir, usedName)) },
		"lock":    func(dir string) error { return os.Remove(filepath.Join(dir, lockName)) },
		"cut": func(dir string) error {
			files, err := filepath.Glob(filepath.Join(dir, objectsDir, "*"))
			if err != nil {
				return err
			}
			return os.Truncate(files[0], 20_000)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			s := wrap(t, inner, Config{Dir: dir, Block: page})
			first, err := s.Open(t.Context(), "train/00000.tar")
			must(t, err)
			whole(t, first, all["train/00000.tar"][:50_000], 7000)
			must(t, do(dir))
			whole(t, first, all["train/00000.tar"], 7000)
			must(t, first.Close())
			identical(t, s, all, 7000)
			identical(t, s, all, 7000)
		})
	}
}

// Objects go in the order of their last use, as many as needed; what is open stays.
func TestEviction(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 6, 100*page)
	names := sorted(all)
	// Room for four: 100 pages, a part of one, and one of the file's own.
	const each = 102 * page
	s := wrap(t, inner, Config{Block: 10 * page, Bytes: 4*each + 10*page})
	read := func(i int) (fetched int64) {
		t.Helper()
		before := s.Stats().FetchedBytes
		identical(t, s, map[string][]byte{names[i]: all[names[i]]}, 50_000)
		if got := takenBy(t, s.c.Dir); got > s.c.Bytes {
			t.Errorf("%d bytes on the disk; the bound is %d", got, s.c.Bytes)
		}
		if got := used(t, s); got > s.c.Bytes || got < takenBy(t, s.c.Dir) {
			t.Errorf("%d bytes counted, %d there", got, takenBy(t, s.c.Dir))
		}
		time.Sleep(5 * time.Millisecond) // longer than the step of a file's time
		return s.Stats().FetchedBytes - before
	}
	for i, c := range []struct {
		object  int
		fetched bool
	}{{0, true}, {1, true}, {2, true}, {3, true}, {0, false}, {4, true}, {0, false}, {2, false}, {3, false}, {4, false}, {1, true}, {2, false}, {0, true}} {
		if got := read(c.object); (got > 0) != c.fetched {
			t.Errorf("step %d: fetched %d bytes", i, got)
		}
	}
	if stats := s.Stats(); stats.Evictions != 3 || stats.EvictedBytes < 3*100*page || stats.Bypasses != 0 {
		t.Errorf("counted %+v", stats)
	}

	// With four open, and so the room taken, the fifth is read past the cache.
	var open []store.Object
	for _, name := range names[:4] {
		o, err := s.Open(t.Context(), name)
		must(t, err)
		whole(t, o, all[name], 50_000)
		open = append(open, o)
	}
	before := s.Stats()
	for range 2 {
		if got := read(5); got != int64(len(all[names[5]])) {
			t.Errorf("fetched %d bytes", got)
		}
	}
	after := s.Stats()
	if after.Bypasses == before.Bypasses || after.Evictions > before.Evictions+1 {
		t.Errorf("counted %+v, then %+v", before, after)
	}
	for i, o := range open {
		whole(t, o, all[names[i]], 50_000)
	}
	if got := s.Stats().Fetches; got != after.Fetches {
		t.Errorf("what was open has gone: %d fetches", got-after.Fetches)
	}
	// Once one is closed there is room at once.
	must(t, open[0].Close())
	if read(5); read(5) != 0 {
		t.Error("the fifth is not kept")
	}
	for _, o := range open[1:] {
		must(t, o.Close())
	}

	// A lower bound is obeyed from New on.
	must(t, s.Close())
	smaller := wrap(t, inner, Config{Dir: s.c.Dir, Block: 10 * page, Bytes: 2 * each})
	if got := takenBy(t, s.c.Dir); got > 2*each || got == 0 {
		t.Errorf("%d bytes on the disk", got)
	}
	identical(t, smaller, all, 50_000)
}

// An object longer than the folder may be is kept as far as it goes.
func TestLarge(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 1, 100*page)
	s := wrap(t, inner, Config{Block: page, Bytes: 60 * page})
	o, err := s.Open(t.Context(), "train/00000.tar")
	must(t, err)
	defer o.Close()
	for range 3 {
		whole(t, o, all["train/00000.tar"], 3*page)
	}
	stats := s.Stats()
	if got := takenBy(t, s.c.Dir); got > 60*page || got < 50*page || stats.Hits < 2*16 {
		t.Errorf("%d pages, %+v", got/page, stats)
	}
	// Where not even its table fits, it is not kept at all, and nothing goes for it.
	small := map[string][]byte{"small": pattern(1, page)}
	must(t, store.WriteAll(t.Context(), inner, "small", small["small"]))
	tiny := wrap(t, inner, Config{Block: page, Bytes: 3 * page})
	identical(t, tiny, small, page)
	tiny.Expect("huge", 10_000*page, "1")
	huge, err := tiny.Open(t.Context(), "huge")
	must(t, err)
	must(t, huge.Close())
	identical(t, tiny, small, page)
	if stats := tiny.Stats(); stats.Evictions != 0 || stats.Fetches != 1 {
		t.Errorf("counted %+v", stats)
	}
}

// Files that are none of the cache's are left alone, whatever folder the user
// names.
func TestStrangers(t *testing.T) {
	dir := t.TempDir()
	strangers := []string{"objects/thesis.tex", "users/ann/photo.jpg", "users/0123", "x", "objects/0123456789abcdef0123456789abcdeg"}
	for _, name := range strangers {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777))
		must(t, os.WriteFile(filepath.Join(dir, name), make([]byte, 100*page), 0o666))
	}
	inner := mem.New()
	all := shards(t, inner, 5, 20*page)
	s := wrap(t, inner, Config{Dir: dir, Block: page, Bytes: 30 * page})
	for range 2 {
		identical(t, s, all, 5000)
	}
	if s.Stats().Evictions == 0 {
		t.Error("nothing was evicted")
	}
	must(t, s.Close())
	for _, name := range strangers {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() != 100*page {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBadFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, nil, 0o666))
	for _, dir := range []string{path, filepath.Join(path, "below")} {
		if _, err := New(mem.New(), Config{Dir: dir, Bytes: 1}); err == nil {
			t.Errorf("New in %s: no error", dir)
		}
	}
}

// What a crash in the middle of counting leaves is counted again.
func TestRecount(t *testing.T) {
	inner := counted(mem.New(), fault.ReadAt)
	all := shards(t, inner, 3, 10*page)
	dir := t.TempDir()
	s := wrap(t, inner, Config{Dir: dir, Block: page})
	identical(t, s, all, 5000)
	want := used(t, s)
	for _, said := range [][]byte{nil, {1, 2}, make([]byte, 8), {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F}, {0, 0, 0, 0, 0, 0, 0, 0x80}} {
		must(t, s.Close())
		must(t, os.WriteFile(filepath.Join(dir, usedName), said, 0o666))
		s = wrap(t, inner, Config{Dir: dir, Block: page})
		if got := used(t, s); got != want {
			t.Errorf("%x: %d bytes counted; want %d", said, got, want)
		}
	}
	// Counted too high while in use, it is put right when room is wanted.
	must(t, s.folder.locked(t.Context(), func() error { return s.folder.setUsed(1 << 40) }))
	must(t, store.WriteAll(t.Context(), inner, "another", make([]byte, 10*page)))
	identical(t, s, map[string][]byte{"another": make([]byte, 10*page)}, 5000)
	if got := used(t, s); got != want+11*page {
		t.Errorf("%d bytes counted; want %d", got, want+11*page)
	}
	if _, err := os.Stat(filepath.Join(dir, tagName)); errors.Is(err, fs.ErrNotExist) {
		t.Error("no tag")
	}
}
