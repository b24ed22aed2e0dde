package cache

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"shardify/store"
	"shardify/store/mem"
)

// Every block that rots on the disk, while the object is open or not, is found,
// counted and fetched again.
func TestRot(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 1, 20*page+100)
	data := all["train/00000.tar"]
	dir := t.TempDir()
	s := wrap(t, inner, Config{Dir: dir, Block: 2 * page})
	o, err := s.Open(t.Context(), "train/00000.tar")
	must(t, err)
	defer o.Close()
	whole(t, o, data, 3000)
	room := used(t, s)
	for round := range 3 {
		for i, path := range files(t, dir) {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			must(t, err)
			info, err := f.Stat()
			must(t, err)
			at := page + int64(i*977+round*3333)%(info.Size()-page)
			var one [1]byte
			_, err = f.ReadAt(one[:], at)
			must(t, err)
			one[0] ^= 1 << (i % 8)
			_, err = f.WriteAt(one[:], at)
			must(t, errors.Join(err, f.Close()))
		}
		before := s.Stats()
		whole(t, o, data, 3000)
		whole(t, o, data, 3000)
		stats := s.Stats()
		if stats.Corrupt-before.Corrupt != 11 || stats.OriginBytes-before.OriginBytes != int64(len(data)) || stats.Faults+stats.UnkeptBytes != 0 {
			t.Errorf("counted %+v", stats)
		}
		if got := used(t, s); got != room {
			t.Errorf("fetched again, the blocks are counted as %d bytes; before as %d", got, room)
		}
	}
}

// A block's file in which anything has been cut, changed or exchanged still yields
// the right bytes, once healed out of the folder alone.
func TestDamage(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 1, 3*page+100)
	dir := t.TempDir()
	s := wrap(t, inner, Config{Dir: dir, Block: 4 * page})
	identical(t, s, all, 5000)
	path := files(t, dir)[0]
	sound, err := os.ReadFile(path)
	must(t, err)
	other := wrap(t, inner, Config{Dir: t.TempDir(), Block: 4 * page})
	other.Expect("train/00000.tar", 3*page+100, "another")
	identical(t, other, all, 5000)
	exchanged, err := os.ReadFile(files(t, other.folder.path)[0])
	must(t, err)

	type damage struct {
		name string
		do   func(file []byte) []byte
	}
	damages := []damage{
		{"another's", func([]byte) []byte { return exchanged }},
		{"empty", func([]byte) []byte { return nil }},
		{"unfilled", func(file []byte) []byte { return make([]byte, len(file)) }},
		{"of another size", func(file []byte) []byte { binary.LittleEndian.PutUint64(file[40:], 1); return file }},
	}
	b := block{size: 3*page + 100}
	for at := int64(0); at < int64(len(sound)); at += max(1, at/15) {
		if at >= b.checks() && at < b.head() {
			continue // nobody reads that
		}
		damages = append(damages,
			damage{"flipped", func(file []byte) []byte { file[at] ^= 0x10; return file }},
			damage{"zeroed", func(file []byte) []byte { clear(file[at : at+(int64(len(file))-at+1)/2]); return file }},
			damage{"cut", func(file []byte) []byte { return file[:at] }})
	}
	for i, d := range damages {
		must(t, os.WriteFile(path, d.do(append([]byte(nil), sound...)), 0o666))
		before := s.Stats()
		identical(t, s, all, 5000)
		healed := s.Stats()
		identical(t, s, all, 5000)
		after := s.Stats()
		if healed.OriginReads != before.OriginReads+1 || after.OriginReads != healed.OriginReads || after.Faults+after.UnkeptBytes != 0 {
			t.Fatalf("damage %d, %s: %+v, then %+v", i, d.name, before, after)
		}
		if want := d.name != "empty" && d.name != "unfilled" && len(d.do(append([]byte(nil), sound...))) > 0; want != (after.Corrupt == before.Corrupt+1) &&
			d.name != "zeroed" {
			t.Errorf("damage %d, %s: %d corrupt blocks", i, d.name, after.Corrupt-before.Corrupt)
		}
	}
	if len(damages) < 150 {
		t.Errorf("%d damages", len(damages))
	}
}

// While objects are open and read: the folder disappears, a file is cut, the count
// is lost.
func TestPulledAway(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 3, 100_000)
	for name, do := range map[string]func(dir string) error{
		"all":    os.RemoveAll,
		"blocks": func(dir string) error { return os.RemoveAll(filepath.Join(dir, blocksDir)) },
		"used":   func(dir string) error { return os.Remove(filepath.Join(dir, usedName)) },
		"lock":   func(dir string) error { return os.Remove(filepath.Join(dir, lockName)) },
		"cut":    func(dir string) error { return os.Truncate(files(t, dir)[0], 5000) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cache")
			s := wrap(t, inner, Config{Dir: dir, Block: 4 * page})
			first, err := s.Open(t.Context(), "train/00000.tar")
			must(t, err)
			whole(t, first, all["train/00000.tar"][:50_000], 7000)
			must(t, do(dir))
			whole(t, first, all["train/00000.tar"], 7000)
			must(t, first.Close())
			identical(t, s, all, 7000)
			before := s.Stats()
			identical(t, s, all, 7000)
			if after := s.Stats(); after.Misses != before.Misses || after.Faults != 0 {
				t.Errorf("counted %+v", after)
			}
		})
	}
}

// Blocks go in the order of their last use, as many as needed, those of open objects,
// too; whose reader fetches them again.
func TestEviction(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 6, 4*page)
	names := sorted(all)
	const each = 5 * page
	for i := range names { // the same size for all
		all[names[i]] = all[names[i]][:4*page]
		must(t, store.WriteAll(t.Context(), inner, names[i], all[names[i]]))
	}
	s := wrap(t, inner, Config{Block: 4 * page, MaxBytes: 4*each + page})
	var open []store.Object
	for _, name := range names {
		o, err := s.Open(t.Context(), name)
		must(t, err)
		defer o.Close()
		open = append(open, o)
	}
	for i, c := range []struct {
		object  int
		fetched bool
	}{{0, true}, {1, true}, {2, true}, {3, true}, {0, false}, {4, true}, {0, false}, {2, false}, {3, false}, {4, false}, {1, true}, {2, false}, {0, true}} {
		before := s.Stats().Misses
		whole(t, open[c.object], all[names[c.object]], 4*page)
		if got := s.Stats().Misses - before; (got > 0) != c.fetched {
			t.Errorf("step %d: %d misses", i, got)
		}
		if got := takenBy(t, s.folder.path); got > s.folder.max || got != used(t, s) {
			t.Errorf("%d bytes on the disk, %d counted; the bound is %d", got, used(t, s), s.folder.max)
		}
		time.Sleep(5 * time.Millisecond) // longer than the step of a file's time
	}
	if stats := s.Stats(); stats.Evictions != 3 || stats.EvictedBytes != 3*each || stats.UnkeptBytes != 0 {
		t.Errorf("counted %+v", stats)
	}

	// A lower bound is obeyed from the next block on.
	smaller := wrap(t, inner, Config{Dir: s.folder.path, Block: 4 * page, MaxBytes: 2 * each})
	identical(t, smaller, all, 5000)
	if got := takenBy(t, s.folder.path); got > 2*each || got == 0 {
		t.Errorf("%d bytes on the disk", got)
	}
}

// What is being filled stays; who finds no room else reads past the cache.
func TestNoRoom(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 2, 4*page)
	s := wrap(t, inner, Config{Block: 8 * page, MaxBytes: 10 * page})
	a, b := sorted(all)[0], sorted(all)[1]
	o, err := s.Open(t.Context(), a)
	must(t, err)
	defer o.Close()
	file, c := s.folder.claim(t.Context(), o.(*object).part(make([]byte, 1), 0, 0), false)
	if c != mine {
		t.Fatalf("claim: %v", c)
	}
	identical(t, s, map[string][]byte{b: all[b]}, 5000)
	if stats := s.Stats(); stats.UnkeptBytes != int64(len(all[b])) || stats.Evictions+stats.Faults != 0 {
		t.Errorf("counted %+v", stats)
	}
	must(t, file.Close())
	identical(t, s, map[string][]byte{b: all[b]}, 5000)
	identical(t, s, all, 5000)
	if stats := s.Stats(); stats.Evictions != 3 || stats.Faults != 0 {
		t.Errorf("counted %+v", stats)
	}
}

// Whoever opened a block's file before it was evicted, and locks it afterwards, does not
// fill what nobody can find.
func TestEvictedBeforeTheLock(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 1, 2*page)
	s := wrap(t, inner, Config{})
	identical(t, s, all, 5000)
	o, err := s.Open(t.Context(), sorted(all)[0])
	must(t, err)
	defer o.Close()
	x := o.(*object).part(make([]byte, 1), 0, 0)
	path := s.folder.block(x.block)
	file, err := openFile(path, os.O_RDWR)
	must(t, err)
	defer file.Close()
	if gone, err := s.folder.remove(path); !gone || err != nil {
		t.Fatalf("%v, %v", gone, err)
	}
	if c, err := s.folder.take(t.Context(), file, x, false); c != busy || err != nil {
		t.Errorf("%v, %v", c, err)
	}
}

// A block that is being fetched again is nobody's before it is whole, also if that comes
// to nothing.
func TestFreshClaim(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 1, 2*page)
	s := wrap(t, inner, Config{})
	identical(t, s, all, 5000)
	o, err := s.Open(t.Context(), sorted(all)[0])
	must(t, err)
	defer o.Close()
	x := o.(*object).part(make([]byte, 1), 0, 0)
	if !s.folder.look(x) {
		t.Fatal("it is not there")
	}
	file, c := s.folder.claim(t.Context(), x, true)
	if c != mine || s.folder.look(x) {
		t.Errorf("%v, and it is still to be read", c)
	}
	must(t, file.Close())
	before := s.Stats()
	identical(t, s, all, 5000)
	if after := s.Stats(); after.OriginReads != before.OriginReads+1 || after.Corrupt != 0 {
		t.Errorf("counted %+v", after)
	}
}

// Of a cache that is smaller than the object, all of it is used.
func TestLarge(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 1, 100*page)
	s := wrap(t, inner, Config{Block: 2 * page, MaxBytes: 60 * page})
	identical(t, s, all, 3*page)
	if got := takenBy(t, s.folder.path); got > 60*page || got < 57*page {
		t.Errorf("%d pages", got/page)
	}
	o, err := s.Open(t.Context(), "train/00000.tar")
	must(t, err)
	defer o.Close()
	before := s.Stats().Misses
	p := make([]byte, page)
	for at := 70; at < 100; at++ {
		if _, err := o.ReadAt(t.Context(), p, int64(at)*page); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Stats().Misses; got != before {
		t.Errorf("%d misses", got-before)
	}
}

// With many more blocks than are looked at, those that go are old ones.
func TestManyBlocks(t *testing.T) {
	const sample = 300
	s := wrap(t, mem.New(), Config{MaxBytes: 4 * sample * page})
	f := &s.folder
	f.sample = sample
	c := new(counts)
	now := time.Now()
	for i := range 4 * sample {
		b := block{sum: sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(i)))}
		path := f.block(b)
		must(t, os.MkdirAll(filepath.Dir(path), 0o777))
		must(t, os.WriteFile(path, make([]byte, page), 0o666))
		at := now.Add(time.Duration(i-4*sample) * time.Second)
		must(t, os.Chtimes(path, at, at))
		c[b.set()] += page
	}
	must(t, f.evict(c, block{}))
	var list []kept
	for set := range sets {
		var err error
		list, err = f.count(new(counts), set, list)
		must(t, err)
	}
	old := 0
	for _, x := range list {
		if now.Sub(x.last) > 3*sample*time.Second {
			old++
		}
	}
	gone := 4*sample - len(list)
	if want := 4 * sample / 64; gone < want || gone > want+2 || c.total() != int64(len(list))*page {
		t.Errorf("%d blocks of %d are gone, %d counted", gone, 4*sample, c.total()/page)
	}
	if sample-old != gone {
		t.Errorf("of %d blocks that went, %d were of the oldest quarter", gone, sample-old)
	}
}

// Files that are none of the cache's are left alone, whatever folder the user
// names.
func TestStrangers(t *testing.T) {
	dir := t.TempDir()
	strangers := []string{"blocks/thesis.tex", "blocks/01/photo.jpg", "blocks/01/0123", "x", "blocks/01/0123456789abcdef0123456789abcdeg", "blocks/02/0123456789abcdef0123456789abcdef"}
	for _, name := range strangers {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777))
		must(t, os.WriteFile(filepath.Join(dir, name), make([]byte, 100*page), 0o666))
	}
	inner := mem.New()
	all := shards(t, inner, 5, 20*page)
	s := wrap(t, inner, Config{Dir: dir, Block: 4 * page, MaxBytes: 30 * page})
	for range 2 {
		identical(t, s, all, 5000)
	}
	if s.Stats().Evictions == 0 {
		t.Error("nothing was evicted")
	}
	for _, name := range strangers {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() != 100*page {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A folder that cannot be made, or is none, is no error, but counted.
func TestBadFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, nil, 0o666))
	inner := mem.New()
	all := shards(t, inner, 2, 10_000)
	for _, dir := range []string{path, filepath.Join(path, "below")} {
		s := wrap(t, inner, Config{Dir: dir})
		identical(t, s, all, 3000)
		s.folder.idle.Store(0)
		identical(t, s, all, 3000)
		if stats := s.Stats(); stats.Faults != 2 || stats.Hits != 0 || stats.Warning == "" || stats.UnkeptBytes != stats.OriginBytes {
			t.Errorf("%+v", stats)
		}
	}
}

// What a crash in the middle of counting leaves is counted again.
func TestRecount(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 3, 10*page)
	dir := t.TempDir()
	s := wrap(t, inner, Config{Dir: dir, Block: 4 * page, MaxBytes: 200 * page})
	identical(t, s, all, 5000)
	want := used(t, s)
	for name, said := range map[string][]byte{
		"empty": nil, "short": {1, 2}, "negative": append(make([]byte, 8*sets-1), 0x80), "huge": append(make([]byte, 8*sets-1), 0x7F),
	} {
		must(t, os.WriteFile(filepath.Join(dir, usedName), said, 0o666))
		if got := used(t, s); got != want {
			t.Errorf("%s: %d bytes counted; want %d", name, got, want)
		}
	}
	// Counted too high, it is put right when room is wanted.
	c := new(counts)
	for set := range sets {
		c[set] = page
	}
	must(t, s.folder.setUsed(c))
	must(t, store.WriteAll(t.Context(), inner, "another", make([]byte, 10*page)))
	identical(t, s, map[string][]byte{"another": make([]byte, 10*page)}, 5000)
	if got := used(t, s); got != takenBy(t, dir) || got < want {
		t.Errorf("%d bytes counted; %d there", got, takenBy(t, dir))
	}
	if _, err := os.Stat(filepath.Join(dir, tagName)); errors.Is(err, fs.ErrNotExist) {
		t.Error("no tag")
	}
}
