package cache

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"shardify/store/mem"
)

// tmpfs mounts a small file system.
func tmpfs(t *testing.T, options string) string {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("SKIPPED LOUDLY: mounting a small file system: %v; run the tests as root", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A disk that is fuller than the cache was told makes reads slower, not wrong.
func TestFullDisk(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 4, 1_000_000)
	for _, size := range []int{1, 2, 3, 5, 50, 300, 301, 302, 303, 600} {
		dir := tmpfs(t, fmt.Sprintf("size=%d", size*page))
		s := wrap(t, inner, Config{Dir: dir, Block: 16 * page})
		for range 2 {
			identical(t, s, all, 70_000)
			s.folder.idle.Store(0)
		}
		stats := s.Stats()
		if stats.Faults == 0 || stats.UnkeptBytes == 0 || !strings.Contains(stats.Warning, "full") {
			t.Errorf("%d pages: %+v", size, stats)
		}
		if size >= 50 && stats.Hits == 0 {
			t.Errorf("%d pages: what fits is not kept: %+v", size, stats)
		}

		// With room again, and after the pause, it goes on.
		must(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=16m"))
		s.folder.idle.Store(0)
		identical(t, s, all, 70_000)
		before := s.Stats()
		identical(t, s, all, 70_000)
		if after := s.Stats(); after.Misses != before.Misses || after.Faults != before.Faults {
			t.Errorf("%d pages, then 16 MiB: %+v", size, after)
		}
	}
}

func TestNoInodes(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 4, 10_000)
	// Two blocks may fall into one set, by their names and times.
	dir := t.TempDir()
	identical(t, wrap(t, inner, Config{Dir: dir}), all, 3_000)
	needed := 0
	must(t, filepath.WalkDir(dir, func(_ string, _ fs.DirEntry, err error) error {
		needed++
		return err
	}))
	// The folder, tag, lock, used, blocks; and for each block one, and its set.
	if most := 5 + 2*4; needed > most || needed < most-3 {
		t.Fatalf("it takes %d inodes; want at most %d", needed, most)
	}
	for inodes := 2; inodes < 16; inodes++ {
		s := wrap(t, inner, Config{Dir: tmpfs(t, fmt.Sprintf("nr_inodes=%d", inodes))})
		for range 2 {
			identical(t, s, all, 3_000)
		}
		if stats := s.Stats(); (stats.Faults > 0) != (inodes < needed) {
			t.Errorf("%d inodes of %d: %+v", inodes, needed, stats)
		}
	}
}

// A folder on a disk that is or becomes read-only is read, and not missed else.
func TestReadOnly(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 2, 100_000)
	first, second := sorted(all)[0], sorted(all)[1]
	dir := tmpfs(t, "size=4m")
	s := wrap(t, inner, Config{Dir: dir, Block: page})
	identical(t, s, map[string][]byte{first: all[first]}, 7000)
	must(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	for _, s := range []*Store{s, wrap(t, inner, Config{Dir: dir, Block: page})} {
		before := s.Stats()
		identical(t, s, map[string][]byte{first: all[first]}, 7000)
		warm := s.Stats()
		if warm.Misses != before.Misses {
			t.Errorf("what is there is not read: %+v", warm)
		}
		identical(t, s, map[string][]byte{second: all[second]}, 7000)
		if stats := s.Stats(); stats.Faults == 0 || !strings.Contains(stats.Warning, "read-only") || stats.UnkeptBytes-warm.UnkeptBytes != int64(len(all[second])) {
			t.Errorf("counted %+v", stats)
		}
	}
}
