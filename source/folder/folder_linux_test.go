package folder

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"shardify/source"
)

// unprivileged makes the process another user than root for the rest of the test.
func unprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		return
	}
	const nobody = 65534
	if err := syscall.Setresuid(-1, nobody, -1); err != nil {
		t.Skipf("SKIPPED LOUDLY: root may read everything, and may not become another user: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Setresuid(-1, 0, -1); err != nil {
			t.Fatal(err)
		}
	})
}

// Pipes and sockets are not listed, and do not block reading.
func TestSpecialFiles(t *testing.T) {
	root := tree(t, "a.jpg", "link.jpg -> pipe.jpg")
	pipe := filepath.Join(root, "pipe.jpg")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	got := lines(t, open(t, root, Config{}).Entries(t.Context()))
	if len(got) != 1 || got[0] != "a.jpg" {
		t.Errorf("%q", got)
	}
	if got := lines(t, listOf(t, root, Config{}, "pipe.jpg").Entries(t.Context())); len(got) != 1 || got[0] != `error "pipe.jpg": is not a regular file` {
		t.Errorf("%q", got)
	}
	if _, err := Read(t.Context(), source.Location{Name: pipe}, nil); !errors.Is(err, source.ErrChanged) {
		t.Error(err)
	}
}

// What every next file would meet as well is no error of one file.
func TestTooManyOpenFiles(t *testing.T) {
	root := tree(t, "a/1.jpg", "b/2.jpg")
	f := open(t, root, Config{})
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, readErr := f.Read(context.Background(), source.Location{Name: filepath.Join(root, "a/1.jpg"), Size: 7}, nil)
	var listErr error
	for _, listErr = range f.Entries(context.Background()) {
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{readErr, listErr} {
		if !errors.Is(err, syscall.EMFILE) || errors.As(err, new(*source.EntryError)) {
			t.Error(err)
		}
	}
}
