package file

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"shardify/store"
)

// Set, it makes the test binary a process that uses the store in that folder.
const (
	crashDir = "SHARDIFY_TEST_CRASH_DIR"
	traceDir = "SHARDIFY_TEST_TRACE_DIR"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		writeForEver(New(dir))
	}
	if dir := os.Getenv(traceDir); dir != "" {
		if err := store.WriteAll(context.Background(), New(dir), "d/e/x", []byte("x")); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// sealed returns n bytes that end in the hash of the others.
func sealed(r *rand.ChaCha8, n int) []byte {
	b := make([]byte, n+sha256.Size)
	r.Read(b[:n])
	sum := sha256.Sum256(b[:n])
	copy(b[n:], sum[:])
	return b
}

func isSealed(b []byte) bool {
	n := len(b) - sha256.Size
	if n < 0 {
		return false
	}
	sum := sha256.Sum256(b[:n])
	return bytes.Equal(sum[:], b[n:])
}

const crashOwner = "the process that will be killed"

// writeForEver takes the lock, then makes new objects and replaces one, several at
// once, and prints the name of each once it is committed.
func writeForEver(s *Store) {
	check := func(err error) {
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
	_, err := s.Lock(context.Background(), ".shardify/lock", crashOwner)
	check(err)
	for i := range 2 {
		go func() {
			var seed [32]byte
			copy(seed[:], fmt.Sprint(i, os.Getpid(), time.Now().UnixNano()))
			r := rand.NewChaCha8(seed)
			for n := 0; ; n++ {
				name := fmt.Sprintf("%d/%d/%d", os.Getpid(), i, n)
				if n%2 == 1 {
					name = "same/object"
				}
				w, err := s.Create(context.Background(), name)
				check(err)
				for data := sealed(r, int(r.Uint64()%300_000)); len(data) > 0; {
					piece := data[:min(len(data), 50_000)]
					_, err := w.Write(piece)
					check(err)
					data = data[len(piece):]
				}
				check(w.Commit(context.Background()))
				fmt.Println(name)
			}
		}()
	}
	select {}
}

// A process is killed at random moments: all that is visible is whole, all that it
// committed is there, its lock is free, and Sweep removes the rest.
func TestKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := New(dir)
	kills := 25
	if testing.Short() {
		kills = 10
	}
	committed := map[string]bool{}
	left := 0
	for i := range kills {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), crashDir+"="+dir)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		var kill sync.Once
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "error:") {
				t.Fatal(lines.Text())
			}
			committed[lines.Text()] = true
			kill.Do(func() {
				if _, err := s.Lock(t.Context(), ".shardify/lock", ""); !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), crashOwner) {
					t.Errorf("Lock while the process lives: %v", err)
				}
				time.AfterFunc(time.Duration(rand.IntN(20_000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
			})
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the process ended by itself")
		}

		// The lock file is still there, but held by nobody.
		if got := get(t, s, ".shardify/lock"); !strings.Contains(got, crashOwner) {
			t.Errorf("the lock file holds %q", got)
		}
		unlock, err := s.Lock(t.Context(), ".shardify/lock", "the test")
		must(t, err)
		seen := 0
		for info, err := range s.List(t.Context(), "") {
			must(t, err)
			if info.Name == ".shardify/lock" {
				continue
			}
			if data := get(t, s, info.Name); !isSealed([]byte(data)) {
				t.Errorf("kill %d: %s shows a part, %d bytes", i, info.Name, len(data))
			}
			if committed[info.Name] {
				seen++
			}
		}
		if seen != len(committed) {
			t.Errorf("kill %d: %d objects of %d that were committed are there", i, seen, len(committed))
		}
		left += temporary(t, dir)
		must(t, s.Sweep(t.Context(), ""))
		if n := temporary(t, dir); n != 0 {
			t.Errorf("kill %d: Sweep has left %d temporary files", i, n)
		}
		must(t, unlock())
		for name := range committed { // bounds the test's own work
			if name != "same/object" {
				must(t, s.Remove(t.Context(), name))
				delete(committed, name)
			}
		}
	}
	if left < kills/4 {
		t.Errorf("%d kills have left %d temporary files: they do not strike while objects are written", kills, left)
	}
}

// temporary counts the temporary files below dir.
func temporary(t *testing.T, dir string) (n int) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), store.TempPrefix) {
			n++
		}
		return err
	}))
	return n
}
