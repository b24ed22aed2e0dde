package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"shardify/feed"
)

// niceness is that of each thread of a process.
func niceness(t *testing.T, pid int) map[string]int {
	t.Helper()
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(stats) == 0 {
		t.Fatalf("no threads: %v", err)
	}
	found := map[string]int{}
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if found[name], err = strconv.Atoi(fields[16]); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// openFilesOf is how many files a process has open.
func openFilesOf(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// slabsOf is how many slabs a process has mapped.
func slabsOf(t *testing.T, pid int) int {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(maps, []byte("memfd:shardread"))
}

// Where no file can be opened any more, the error says what to do.
func TestServeFileLimit(t *testing.T) {
	dir := small(t)
	here, there := socketPair(t)
	s := startServer(t, there, "--fd", "3")
	_ = there.Close()
	c, err := feed.NewClient(t.Context(), here, feed.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.Open(t.Context(), dir, smallConfig)
	if err != nil {
		t.Fatal(err)
	}
	limit := unix.Rlimit{Cur: uint64(openFilesOf(t, s.cmd.Process.Pid)), Max: 4096}
	if err := unix.Prlimit(s.cmd.Process.Pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	var last error
	for b, err := range r.Epoch(t.Context(), 0) {
		if last = err; err == nil {
			b.Release()
		}
	}
	if last == nil || !strings.Contains(last.Error(), "too many open files") {
		t.Errorf("the pass ends with %v", last)
	}
	limit.Cur = 256
	if err := unix.Prlimit(s.cmd.Process.Pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	if n := epochOf(t, c, dir); n != 30 {
		t.Errorf("%d samples when files can be opened again, want 30", n)
	}
}
