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

// A peer that fails, or writes what does not hold what was read, is out; of the others an
// error ends all.
func TestPeerFails(t *testing.T) {
	shell(t)
	b := &bench{rounds: 2}
	out := func() string { return filepath.Join(t.TempDir(), "out") }
	made := func(name, text string) *process {
		dir := out()
		return &process{name: name, out: dir, peer: true, argv: []string{"sh", "-c", `mkdir "$1" && echo "$2" >"$1/file"`, "sh", dir, text}}
	}
	good, short := made("good", "all of it"), made("short", "")
	broken := &process{name: "broken", out: out(), peer: true, argv: []string{"sh", "-c", "echo out of cheese >&2; exit 3"}}
	absent := &process{name: "absent", peer: true, argv: []string{"sh"}, failed: errors.New("not installed")}
	check := func(p *process) error {
		_, n, err := files(t.Context(), p.out, false)
		if err == nil && n < 5 {
			err = errors.New("too few bytes")
		}
		return err
	}
	runs, err := b.alternate(t.Context(), []*process{broken, absent, good, short}, check)
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) != 1 || len(runs["good"]) != 2 || runs["good"][0].Output != 10 {
		t.Errorf("%+v", runs)
	}
	for p, want := range map[*process]string{broken: "out of cheese", absent: "not installed", short: "too few bytes"} {
		if p.failed == nil || !strings.Contains(p.failed.Error(), want) {
			t.Errorf("%s: %v, want %q in it", p.name, p.failed, want)
		}
	}
	if _, err := os.Stat(short.out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what it wrote is still there: %v", err)
	}
	broken.peer, broken.failed = false, nil
	if _, err := b.alternate(t.Context(), []*process{good, broken}, check); err == nil || !strings.Contains(err.Error(), "out of cheese") {
		t.Errorf("ours has failed: %v", err)
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
	processes := []*process{
		{name: "tar", argv: []string{"tar", "cf"}},
		{name: "ours", argv: []string{"/root/bin/pack", "/root/.cache/w/x"}, env: []string{"A=1"}},
		{name: "theirs", argv: []string{"it"}, failed: errors.New("it: exit status 1\nin /root/x\nno room in /root/.cache/w")},
	}
	b := &bench{root: "/root", dir: "/root/.cache/w"}
	rep := report{
		Title: "Packing", Files: 4000, Bytes: 440e6, Unit: "images", Notes: []string{"A note."},
		Host: Host{Commit: "abc", Go: "go1.26", System: "Linux", CPU: "CPU", Cores: 2, MemoryGB: 8, Disk: "ext4", Load: 0.5},
		Rows: b.rows(processes, map[string][]Run{
			"tar":  {{Seconds: 3, Process: 7, CPU: 1, PeakRSS: 2e6}, {Seconds: 1, Process: 5, CPU: 1}, {Seconds: 2, Process: 6, CPU: 1}},
			"ours": {{Seconds: 1, Process: 1, CPU: 4, PeakRSS: 5e6}, {Seconds: 1, Process: 1, CPU: 2, PeakRSS: 9e6, PeakPSS: 8e6, Output: 5e6}},
		}, "tar"),
	}
	var out strings.Builder
	if err := rep.print(&out); err != nil {
		t.Fatal(err)
	}
	const want = `
### Packing

4,000 files, 440.0 MB. CPU, 2 cores, 8 GB, ext4, Linux; go1.26, commit abc; load before it 0.5.

| | s (median) | s (min) | process s | CPU s | images/s | MB/s | MB/s a CPU | peak memory | output, MB | × tar |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
| tar | 2.00 | 1.00 | 6.00 | 1.00 | 2,000 | 220 | 440 | 2 MB | 0.0 | 1.00 |
| ours | 1.00 | 1.00 | 1.00 | 3.00 | 4,000 | 440 | 147 | 8 MB | 5.0 | 2.00 |
| theirs | failed | | | | | | | | | |

- failed: theirs: it: exit status 1 … no room in WORK

- A note.
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	if rep.Rows[1].Command != "A=1 bin/pack WORK/x" {
		t.Errorf("command %q", rep.Rows[1].Command)
	}
}
