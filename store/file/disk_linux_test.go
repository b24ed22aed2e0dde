package file

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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

func TestFullDisk(t *testing.T) {
	s := New(tmpfs(t, "size=4m"))
	old, new := strings.Repeat("old", 300_000), strings.Repeat("new", 2_000_000)
	put(t, s, "d/a", old)
	noSpace := func(what string, err error, name string) {
		t.Helper()
		if !errors.Is(err, store.ErrNoSpace) || !strings.Contains(err.Error(), s.at(name)+":") || !strings.Contains(err.Error(), "make room") {
			t.Errorf("%s on a full disk: %v", what, err)
		}
	}
	for range 3 {
		w, err := s.Create(t.Context(), "d/a")
		must(t, err)
		n, err := w.Write([]byte(new))
		noSpace(fmt.Sprintf("Write = %d", n), err, "d/a")
		if n == 0 || n >= len(new) {
			t.Errorf("Write = %d", n)
		}
		// While the unfinished write still fills the disk.
		_, err = s.Lock(t.Context(), "lock", "x")
		noSpace("Lock", err, "lock")
		if n, err := w.Write([]byte("x")); n != 0 || !errors.Is(err, store.ErrNoSpace) {
			t.Errorf("Write after one that failed = %d, %v", n, err)
		}
		noSpace("Commit", w.Commit(t.Context()), "d/a")
		must(t, w.Abort())
		holds(t, s.root, "d/", "d/a")
	}
	if get(t, s, "d/a") != old {
		t.Error("the old object has changed")
	}
	// The space is free again.
	put(t, s, "b", old)
	unlock, err := s.Lock(t.Context(), "lock", "x")
	must(t, err)
	must(t, unlock())
}

func TestNoInodes(t *testing.T) {
	s := New(tmpfs(t, "nr_inodes=4")) // the root's own is one
	put(t, s, "a", "x")
	put(t, s, "b", "x")
	_, err := s.Create(t.Context(), "d/e/f")
	if !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("Create: %v", err)
	}
	if _, err := s.Create(t.Context(), "g"); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("Create: %v", err)
	}
	if _, err := s.Lock(t.Context(), "lock", ""); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("Lock: %v", err)
	}
}

func TestReadOnly(t *testing.T) {
	dir := tmpfs(t, "size=1m")
	s := New(dir)
	put(t, s, "a", "x")
	must(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	if get(t, s, "a") != "x" {
		t.Error("other bytes")
	}
	if _, err := s.Create(t.Context(), "a"); !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), s.at("a")) {
		t.Errorf("Create: %v", err)
	}
	if err := s.Remove(t.Context(), "a"); !errors.Is(err, unix.EROFS) {
		t.Errorf("Remove: %v", err)
	}
}

// The order of the calls that make an object durable and then visible, as the
// kernel sees them.
func TestDurable(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skipf("SKIPPED LOUDLY: %v; install it", err)
	}
	base, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	dir, log := filepath.Join(base, "s"), filepath.Join(base, "log")
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-y", "-s", "4096", "-o", log,
		"-e", "trace=/^(mkdir|rename|f(data)?sync|write|close)", os.Args[0])
	cmd.Env = append(os.Environ(), traceDir+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		if bytes.Contains(out, []byte("ptrace")) {
			t.Skipf("SKIPPED LOUDLY: strace may not trace here: %s", out)
		}
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(log)
	must(t, err)
	temp := regexp.MustCompile(`\.tmp-x-[0-9a-f]{16}`)
	path := regexp.MustCompile(regexp.QuoteMeta(base) + `[^">,]*`)
	call := regexp.MustCompile(`^\d+\s+([a-z]+)`)
	var got []string
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		m, paths := call.FindStringSubmatch(line), path.FindAllString(line, -1)
		if m == nil || len(paths) == 0 || strings.Contains(line, "ENOENT") {
			continue
		}
		step := m[1]
		for _, p := range paths {
			step += " " + temp.ReplaceAllString(strings.TrimPrefix(strings.TrimPrefix(p, base), "/"), "TEMP")
		}
		// Closing a folder, or a descriptor that is passed beside a path, says nothing.
		if !strings.HasPrefix(step, "close") || strings.HasSuffix(step, "TEMP") {
			got = append(got, strings.TrimSpace(step))
		}
	}
	want := []string{
		"mkdirat s", "fsync", "mkdirat s/d", "fsync s", "mkdirat s/d/e", "fsync s/d",
		"write s/d/e/TEMP", "fsync s/d/e/TEMP", "close s/d/e/TEMP", "renameat s/d/e/TEMP s/d/e/x",
		"fsync s/d/e", "fsync s/d", "fsync s",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the calls are\n%q; want\n%q", got, want)
	}
	if info, err := os.Stat(filepath.Join(dir, "d", "e", "x")); err != nil || info.Mode().Type() != fs.FileMode(0) {
		t.Errorf("%v, %v", info, err)
	}
}
