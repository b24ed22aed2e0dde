package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/store/file"
)

func TestExitCodes(t *testing.T) {
	plain := errors.New("no")
	for _, c := range []struct {
		err         error
		interrupted bool
		want        int
	}{
		{nil, false, exitOK},
		{nil, true, exitOK},
		{plain, false, exitError},
		{usagef("no"), false, exitUsage},
		{fmt.Errorf("more: %w", usage(plain)), false, exitUsage},
		{foundDamage(), false, exitDamaged},
		{foundDamage(), true, exitDamaged},
		{context.Canceled, true, exitInterrupted},
		{context.Canceled, false, exitError},
		{fmt.Errorf("interrupted: %w", plain), true, exitInterrupted},
	} {
		if got := exitCode(c.err, c.interrupted); got != c.want {
			t.Errorf("%v, interrupted %v: %d, want %d", c.err, c.interrupted, got, c.want)
		}
	}
}

func TestInterrupts(t *testing.T) {
	canceled := 0
	i := &interrupts{cancel: func() { canceled++ }}
	if i.raised() {
		t.Error("raised before any signal")
	}
	asked := 0
	s := streams{interrupts: i}
	done := s.onInterrupt(func() { asked++ })
	for n, want := range []struct {
		goOn            bool
		asked, canceled int
	}{{true, 1, 0}, {true, 1, 1}, {false, 1, 1}} {
		if got := i.raise(); got != want.goOn || asked != want.asked || canceled != want.canceled {
			t.Errorf("signal %d: %v, asked %d, cancelled %d; want %+v", n+1, got, asked, canceled, want)
		}
	}
	done()
	i = &interrupts{cancel: func() { canceled++ }}
	streams{interrupts: i}.onInterrupt(func() { asked++ })()
	if i.raise(); asked != 1 || canceled != 2 || !i.raised() {
		t.Errorf("after done: asked %d, cancelled %d", asked, canceled)
	}
}

// Ctrl-C ends a command soon, with its own exit code and nothing on stdout.
func TestCtrlC(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED LOUDLY: Windows cannot send Ctrl-C to one process")
	}
	dir := t.TempDir()
	datasettest.Write(t, file.New(dir), datasettest.Options{Shards: 1})
	// A hole of a terabyte takes minutes to read.
	if err := os.Truncate(filepath.Join(dir, "train-000000.tar"), 1<<40); err != nil {
		t.Skipf("SKIPPED LOUDLY: the file system of %s has no files with holes: %v", dir, err)
	}
	for wait := 100 * time.Millisecond; ; wait *= 2 {
		var stdout, stderr bytes.Buffer
		cmd := exec.Command("shardify", "verify", dir)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(wait)
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		sent := time.Now()
		err := cmd.Wait()
		if cmd.ProcessState.ExitCode() == -1 && wait < 5*time.Second {
			continue // it had not yet got to listen
		}
		if cmd.ProcessState.ExitCode() != exitInterrupted || stderr.String() != "shardify: interrupted\n" || stdout.Len() > 0 {
			t.Errorf("%v; stderr %q, stdout %q", err, stderr.String(), stdout.String())
		}
		if late := time.Since(sent); late > time.Minute {
			t.Errorf("it took %v", late)
		}
		return
	}
}

func TestPrintHistogram(t *testing.T) {
	var h dataset.Histogram
	for i := range int64(1000) {
		h.Add(i * i / 100)
	}
	h.Finish()
	var b strings.Builder
	printHistogram(&b, "things", &h, func(n int64) string { return fmt.Sprint(n) })
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if !strings.HasPrefix(lines[0], "things: 0 to 9980, average ") || len(lines) < 8 || len(lines) > 20 {
		t.Errorf("got\n%s", b.String())
	}
	full := 0
	for _, l := range lines[1:] {
		n := strings.Count(l, "█")
		if n > 32 {
			t.Errorf("a bar of %d: %s", n, l)
		}
		if n == 32 {
			full++
		}
	}
	if full == 0 {
		t.Errorf("no bar is full:\n%s", b.String())
	}
	b.Reset()
	printHistogram(&b, "nothing", &dataset.Histogram{}, nil)
	if b.Len() > 0 {
		t.Errorf("of nothing: %q", b.String())
	}
}
