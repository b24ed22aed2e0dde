package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func shell(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED LOUDLY: needs sh")
	}
}

func TestMeasure(t *testing.T) {
	shell(t)
	b := &bench{rounds: 3}
	out := filepath.Join(t.TempDir(), "out")
	write := &process{name: "write", out: out,
		argv: []string{"sh", "-c", `mkdir "$1" && echo "$TEXT" >"$1/file" && sleep 0.05`, "sh", out}, env: []string{"TEXT=hello"}}
	timed := &process{name: "timed", argv: []string{"sh", "-c", "echo loading; sleep 0.1; echo 0.001"}, selfTimed: true}
	checked := 0
	runs, err := b.alternate(t.Context(), []*process{write, timed}, func(p *process) error {
		checked++
		if p != write {
			return nil
		}
		data, err := os.ReadFile(filepath.Join(out, "file"))
		if string(data) != "hello\n" {
			t.Errorf("the process wrote %q", data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked != 2 || len(runs["write"]) != 3 || len(runs["timed"]) != 3 {
		t.Fatalf("%d checks, runs %v", checked, runs)
	}
	for _, r := range runs["write"] {
		if r.Seconds < 0.05 || r.PeakRSS < 100<<10 || r.CPU < 0 {
			t.Errorf("measured %+v", r)
		}
	}
	for _, r := range runs["timed"] {
		if r.Seconds != 0.001 || r.Process < 0.1 {
			t.Errorf("%v s of %v, the process says 0.001 of 0.1", r.Seconds, r.Process)
		}
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the output is still there: %v", err)
	}
}

func TestMeasureFaults(t *testing.T) {
	shell(t)
	b := &bench{rounds: 1}
	for _, c := range []struct {
		p    process
		want string
	}{
		{process{argv: []string{"sh", "-c", "echo out of cheese >&2; exit 3"}}, "out of cheese"},
		{process{argv: []string{"sh", "-c", "echo soon"}, selfTimed: true}, "says no time"},
		{process{argv: []string{"sh", "-c", "true"}, selfTimed: true}, "says no time"},
		{process{argv: []string{"sh", "-c", "true"}, out: filepath.Join(t.TempDir(), "none")}, "no such file"},
	} {
		if _, err := b.measure(t.Context(), &c.p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want %q in it", c.p.argv, err, c.want)
		}
	}
}

func TestReport(t *testing.T) {
	processes := []*process{{name: "tar", argv: []string{"tar", "cf"}}, {name: "ours", argv: []string{"pack"}, env: []string{"A=1"}}}
	rep := report{
		Title: "Packing", Files: 4000, Bytes: 440e6, unit: "images", Notes: []string{"A note."},
		Host: Host{Commit: "abc", Go: "go1.26", System: "Linux", CPU: "CPU", Cores: 2, MemoryGB: 8, Disk: "ext4"},
		Rows: rows(processes, map[string][]Run{
			"tar":  {{Seconds: 3, Process: 7, CPU: 1, PeakRSS: 2e6}, {Seconds: 1, Process: 5, CPU: 1}, {Seconds: 2, Process: 6, CPU: 1}},
			"ours": {{Seconds: 1, Process: 1, CPU: 4, PeakRSS: 5e6}, {Seconds: 1, Process: 1, CPU: 2, PeakRSS: 9e6}},
		}, "tar"),
	}
	var b strings.Builder
	if err := rep.print(&b); err != nil {
		t.Fatal(err)
	}
	const want = `
### Packing

4,000 files, 440.0 MB. CPU, 2 cores, 8 GB, ext4, Linux; go1.26, commit abc.

| | s (median) | s (min) | process s | CPU s | images/s | MB/s | MB/s a CPU | peak memory | × tar |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|
| tar | 2.00 | 1.00 | 6.00 | 1.00 | 2,000 | 220 | 440 | 2 MB | 1.00 |
| ours | 1.00 | 1.00 | 1.00 | 3.00 | 4,000 | 440 | 147 | 9 MB | 2.00 |

- A note.
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	if rep.Rows[1].Command != "A=1 pack" {
		t.Errorf("command %q", rep.Rows[1].Command)
	}
}
