package tars

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"shardify/source"
	"shardify/store"
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

func isNoRoom(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, store.ErrNoSpace) || !errors.Is(err, unix.ENOSPC) || errors.As(err, new(*source.EntryError)) {
		t.Errorf("on a full disk: %v", err)
		return
	}
	for _, remedy := range []string{"gunzip", "--temp-dir", "--order path"} {
		if !strings.Contains(err.Error(), remedy) {
			t.Errorf("no word of %s: %v", remedy, err)
		}
	}
}

func TestFullDisk(t *testing.T) {
	const shards, each = 6, 4
	dir := t.TempDir()
	var paths []string
	for i := range shards {
		path, _ := packed(t, dir, fmt.Sprint(i), ".tar.gz", noise(uint64(i), 50, (each*spoolBlock-60_000)/50))
		paths = append(paths, path)
	}
	total := sizeOf(t, paths...)
	for _, c := range []struct {
		order string
		disk  string // each shard takes nearly 1m
		fails bool
	}{
		{"path", "700k", true}, {"path", "2200k", false}, {"reverse", "2200k", false},
		{"shuffle", "2200k", true}, {"shuffle", "6m", false},
	} {
		t.Run(c.order+" "+c.disk, func(t *testing.T) {
			src := openTars(t, Config{TempDir: tmpfs(t, "size="+c.disk)}, paths...)
			entries, _ := gather(t, src)
			var err error
			for _, i := range orders[c.order](len(entries)) {
				if _, err = src.Read(t.Context(), entries[i].Location, nil); err != nil {
					break
				}
			}
			if !c.fails {
				if err != nil {
					t.Error(err)
				}
				if cost := src.cost(); cost > total+1000 {
					t.Errorf("%d bytes of %d were read", cost, total)
				}
				return
			}
			isNoRoom(t, err)
			if cost := src.cost(); cost > (maxLacks+1)*total+1000 {
				t.Errorf("%d bytes of %d were read before the error", cost, total)
			}
			// What was written for a shard that did not fit is free again.
			if s := &src.spool; s.held.Len() == 0 && int64(len(s.free)) != s.blocks {
				t.Errorf("%d blocks, %d of them free", s.blocks, len(s.free))
			}
		})
	}

	t.Run("no inodes", func(t *testing.T) {
		src := openTars(t, Config{TempDir: tmpfs(t, "nr_inodes=1")}, paths...)
		entries, _ := gather(t, src)
		_, err := src.Read(t.Context(), entries[0].Location, nil)
		isNoRoom(t, err)
	})

	// A shard with a seek table is read at offsets then, dear or not.
	t.Run("seekable", func(t *testing.T) {
		path, _ := packed(t, dir, "s", ".one-frame.tar.zst", noise(9, 900, 20_000))
		src := openTars(t, Config{TempDir: tmpfs(t, "size=1m")}, path)
		entries, _ := gather(t, src)
		for _, i := range orders["shuffle"](len(entries))[:100] {
			if data, err := src.Read(t.Context(), entries[i].Location, nil); err != nil || len(data) != 20_000 {
				t.Fatalf("%d bytes, %v", len(data), err)
			}
		}
		if src.files[0].access.mode.Load() != onlyAtOffsets {
			t.Error("it was never tried to keep it")
		}
	})
}
