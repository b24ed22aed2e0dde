//go:build unix

package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"shardify/store"
)

const full = syscall.ENOSPC

func TestQuota(t *testing.T) {
	if err := fault("write", "/x/a", syscall.EDQUOT); !errors.Is(err, store.ErrNoSpace) {
		t.Error(err)
	}
}

func TestNotRegular(t *testing.T) {
	dir := t.TempDir()
	s := New(dir)
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o666); err != nil {
		t.Skipf("SKIPPED LOUDLY: no named pipes here: %v", err)
	}
	// Opening it for reading would wait for a writer for ever.
	if _, err := s.Open(t.Context(), "pipe"); !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "regular") {
		t.Errorf("Open of a named pipe: %v", err)
	}
	if got, err := list(t, s, ""); len(got) != 0 || err != nil {
		t.Errorf("List = %q, %v", got, err)
	}
}

func TestPermission(t *testing.T) {
	base, err := os.MkdirTemp("", "permission")
	must(t, err)
	defer os.RemoveAll(base)
	must(t, os.Chmod(base, 0o755))
	dir := filepath.Join(base, "store")
	s := New(dir)
	put(t, s, "secret", "x")
	put(t, s, "open", "x")
	put(t, s, "shut/a", "x")
	for path, mode := range map[string]fs.FileMode{"secret": 0, "shut": 0, "open": 0o444, "": 0o555} {
		must(t, os.Chmod(filepath.Join(dir, path), mode))
	}
	defer os.Chmod(filepath.Join(dir, "shut"), 0o755)
	defer os.Chmod(dir, 0o755)
	unprivileged(t, func() {
		denied := func(what string, err error, name string) {
			if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), filepath.Join(dir, name)) {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err := s.Open(t.Context(), "secret")
		denied("Open", err, "secret")
		_, err = s.Open(t.Context(), "shut/a")
		denied("Open", err, "shut/a")
		_, err = s.Create(t.Context(), "new")
		denied("Create", err, "new")
		_, err = s.Create(t.Context(), "new/folder")
		denied("Create", err, "new")
		denied("Remove", s.Remove(t.Context(), "open"), "open")
		_, err = s.Lock(t.Context(), "lock", "")
		denied("Lock", err, "lock")
		_, err = list(t, s, "shut/")
		denied("List", err, "shut")
		if got, err := list(t, s, "o"); len(got) != 1 || err != nil {
			t.Errorf("List = %q, %v", got, err)
		}
		if got, err := store.ReadAll(t.Context(), s, "open", 10); string(got) != "x" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
	})
}
