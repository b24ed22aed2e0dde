//go:build unix

package stream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shardify/store/retry"
)

func opener(t *testing.T) *Opener {
	o, err := New(retry.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

func TestFile(t *testing.T) {
	data := noise(100_000)
	name := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(name, data, 0o666); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := opener(t).Open(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f := r.(*File)
	buf := make([]byte, 1000)
	if _, err := io.ReadFull(f, buf); err != nil || !bytes.Equal(buf, data[:1000]) || f.Size() != 100_000 {
		t.Errorf("the first bytes: %v", err)
	}
	if n, err := f.Skip(50_000); n != 50_000 || err != nil {
		t.Errorf("skips %d, %v", n, err)
	}
	if _, err := io.ReadFull(f, buf); err != nil || !bytes.Equal(buf, data[51_000:52_000]) {
		t.Errorf("behind what was skipped: %v", err)
	}
	if n, err := f.Skip(50_000); n != 48_000 || err != io.EOF {
		t.Errorf("skips %d beyond the end, %v", n, err)
	}
	if _, err := f.ReadAt(buf, 7); err != nil || !bytes.Equal(buf, data[7:1007]) {
		t.Errorf("at an offset: %v", err)
	}
	cancel()
	if _, err := f.Read(buf); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	for name, want := range map[string]error{filepath.Dir(name): fs.ErrInvalid, name + "x": fs.ErrNotExist, "s3://x/y": errors.ErrUnsupported} {
		if _, err := opener(t).Open(t.Context(), name); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A named pipe is read to its writer's end, and nobody waits for a writer whose
// context has ended.
func TestPipe(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(name, 0o666); err != nil {
		t.Fatal(err)
	}
	data := noise(1 << 20)
	wrote := make(chan error, 1)
	go func() { wrote <- os.WriteFile(name, data, 0) }()
	r, err := opener(t).Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := errors.Join(r.Close(), <-wrote); err != nil {
		t.Error(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := opener(t).Open(ctx, name); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a writer: %v", err)
	}

	// A writer that writes nothing.
	w, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	r, err = opener(t).Open(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent writer: %v", err)
	}
}

func withStdin(t *testing.T, f *os.File) {
	old := os.Stdin
	os.Stdin = f
	t.Cleanup(func() { os.Stdin = old })
}

func TestStdin(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	withStdin(t, r)
	in, err := opener(t).Open(t.Context(), Stdin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("abc"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	if n, err := in.Read(buf); string(buf[:n]) != "abc" || err != nil {
		t.Errorf("%q, %v", buf[:n], err)
	}
	in.Close()

	// Cancelled, and open for who comes after.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if in, err = opener(t).Open(ctx, Stdin); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Read(buf); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cancelled: %v", err)
	}
	in.Close()
	if _, err := w.WriteString("def"); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(buf); string(buf[:n]) != "def" || err != nil {
		t.Errorf("after it: %q, %v", buf[:n], err)
	}
	w.Close()
}

// The standard input that a shell gives is none whose reads could be interrupted as it
// is.
func TestStdinOfAShell(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux opens a pipe anew")
	}
	var fds [2]int
	if err := unix.Pipe(fds[:]); err != nil {
		t.Fatal(err)
	}
	r, w := os.NewFile(uintptr(fds[0]), "stdin"), os.NewFile(uintptr(fds[1]), "w")
	defer r.Close()
	defer w.Close()
	withStdin(t, r)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	in, err := opener(t).Open(ctx, Stdin)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	buf := make([]byte, 10)
	if _, err := w.WriteString("abc"); err != nil {
		t.Fatal(err)
	}
	if n, err := in.Read(buf); string(buf[:n]) != "abc" || err != nil {
		t.Errorf("%q, %v", buf[:n], err)
	}
	if _, err := in.Read(buf); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cancelled: %v", err)
	}
}

// Where a read cannot be interrupted, it is abandoned.
func TestAbandoned(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	a := &abandoned{ctx: ctx, f: r, end: r.Close, answers: make(chan answer, 1)}
	if _, err := w.WriteString("abc"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2)
	if n, err := a.Read(buf); string(buf[:n]) != "ab" || err != nil {
		t.Errorf("%q, %v", buf[:n], err)
	}
	if n, err := a.Read(buf); string(buf[:n]) != "c" || err != nil {
		t.Errorf("%q, %v", buf[:n], err)
	}
	if _, err := a.Read(buf); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cancelled: %v", err)
	}
	w.Close() // lets it go
}

func TestTitle(t *testing.T) {
	for name, want := range map[string]string{
		"-": "standard input", "/data/x.tar": "/data/x.tar",
		"https://u:p@host/a%20b/x.tar?sig=1#f": "https://host/a%20b/x.tar",
	} {
		if got := Title(name); got != want {
			t.Errorf("%q: %q", name, got)
		}
	}
	if !Once(Stdin) || Once("x") || !IsHTTP("HTTPS://x") || IsHTTP("http:/x") || IsFile("-") || !IsFile("file_test.go") || Path("http://h/x.tar?y.zip") != "/x.tar" {
		t.Error("a name is taken for another")
	}
}
