package cache

import (
	"errors"
	"fmt"
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
	for _, size := range []int{0, 1, 2, 3, 5, 50, 300, 301, 302, 303, 600} {
		dir := tmpfs(t, fmt.Sprintf("size=%d", (size+1)*page))
		s := wrap(t, inner, Config{Dir: dir, Block: 4 * page})
		for range 2 {
			identical(t, s, all, 70_000)
		}
		stats := s.Stats()
		if stats.NoSpace == 0 || stats.Faults != 0 || stats.Bypasses == 0 || !strings.Contains(stats.Warning, "full") {
			t.Errorf("%d pages: %+v", size, stats)
		}
		if size >= 300 && stats.Hits == 0 {
			t.Errorf("%d pages: what fits is not kept: %+v", size, stats)
		}

		// With room again, and after the pause, it goes on.
		must(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=16m"))
		s.folder.idle.Store(0)
		identical(t, s, all, 70_000)
		before := s.Stats().Fetches
		identical(t, s, all, 70_000)
		if after := s.Stats(); after.Fetches != before {
			t.Errorf("%d pages, then 16 MiB: %+v", size, after)
		}
	}
}

func TestNoInodes(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 4, 10_000)
	for inodes := 2; inodes < 12; inodes++ {
		s := wrap(t, inner, Config{Dir: tmpfs(t, fmt.Sprintf("nr_inodes=%d", inodes))})
		for range 2 {
			identical(t, s, all, 3_000)
		}
		if stats := s.Stats(); stats.Faults != 0 || (stats.NoSpace > 0) != (inodes < 11) {
			t.Errorf("%d inodes: %+v", inodes, stats)
		}
		must(t, s.folder.locked(t.Context(), func() error { return nil }))
	}
}

// A folder that becomes read-only is not used any more, and not missed.
func TestReadOnly(t *testing.T) {
	inner := mem.New()
	all := shards(t, inner, 2, 100_000)
	dir := tmpfs(t, "size=4m")
	s, err := New(inner, Config{Dir: dir, Bytes: 1 << 30, Block: page, Settle: -1})
	must(t, err)
	identical(t, s, all, 7000)
	must(t, s.Close())
	must(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	if _, err := New(inner, Config{Dir: dir, Bytes: 1 << 30}); !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), dir) {
		t.Errorf("New: %v", err)
	}
	before := s.Stats()
	identical(t, s, all, 7000)
	stats := s.Stats()
	if stats.Faults == 0 || stats.NoSpace != 0 || stats.Hits != before.Hits || !strings.Contains(stats.Warning, "read-only") {
		t.Errorf("counted %+v", stats)
	}
}
