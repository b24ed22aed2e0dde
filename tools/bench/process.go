package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Run is one measured run of a process.
type Run struct {
	// Seconds is how long it took until its output was on the disk, Process the
	// same from the start of the process, where a tool is charged for less. CPU is
	// what the process spent in user and system mode.
	Seconds float64 `json:"seconds"`
	Process float64 `json:"process_seconds"`
	CPU     float64 `json:"cpu_seconds"`
	// PeakRSS is the greatest resident memory of it and all below it, in bytes; 0 where
	// the system does not tell. PeakPSS counts what several share once.
	PeakRSS int64 `json:"peak_rss"`
	PeakPSS int64 `json:"peak_pss,omitempty"`
	// Output is the bytes of what it made.
	Output int64 `json:"output_bytes,omitempty"`

	stdout string
}

// process is what is measured.
type process struct {
	name string
	argv []string
	env  []string
	// out is the folder it makes, which is removed before and after; empty if it
	// makes none.
	out string
	// selfTimed: its last line of output is the seconds that count.
	selfTimed bool
	// peer: the others go on without it if it fails; failed is why it is not run, or not
	// again.
	peer   bool
	failed error
}

// measure runs a process once.
func (b *bench) measure(ctx context.Context, p *process) (r Run, err error) {
	if p.out != "" {
		if err := os.RemoveAll(p.out); err != nil {
			return r, err
		}
	}
	t, err := track(ctx, p.argv, p.env)
	if err != nil {
		return r, err
	}
	seconds := t.seconds
	r.Process = seconds
	r.stdout = t.text()
	if p.selfTimed {
		lines := strings.Fields(r.stdout)
		if len(lines) == 0 {
			return r, fmt.Errorf("%s: says no time", p.name)
		}
		if seconds, err = strconv.ParseFloat(lines[len(lines)-1], 64); err != nil {
			return r, fmt.Errorf("%s: says no time: %w", p.name, err)
		}
	}
	if p.out != "" {
		start := time.Now()
		if err := syncAll(p.out); err != nil {
			return r, err
		}
		synced := time.Since(start).Seconds()
		seconds += synced
		r.Process += synced
		if _, r.Output, err = files(ctx, p.out, false); err != nil {
			return r, err
		}
	}
	r.Seconds = seconds
	r.CPU = t.cpu.Seconds()
	r.PeakRSS, r.PeakPSS = t.rss, t.pss
	return r, nil
}

// command is a process that an interrupt lets finish by itself before it is killed.
func command(ctx context.Context, argv []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// do runs a process that is not measured.
func (b *bench) do(ctx context.Context, argv ...string) error {
	cmd := command(ctx, argv)
	cmd.Dir = b.root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, tail(bytes.NewBuffer(out)))
	}
	return nil
}

// tail is the end of what a process said.
func tail(b *bytes.Buffer) string {
	s := strings.TrimSpace(b.String())
	return s[max(0, len(s)-2000):]
}

// alternate measures every process once a round, beginning each round with another, so
// that none always follows the same. A peer that fails is out from then on.
func (b *bench) alternate(ctx context.Context, processes []*process, check func(*process) error) (map[string][]Run, error) {
	runs := map[string][]Run{}
	for round := range b.rounds {
		b.say("round %d of %d:", round+1, b.rounds)
		for i := range processes {
			p := processes[(i+round)%len(processes)]
			if p.failed != nil {
				continue
			}
			r, err := b.measure(ctx, p)
			if err == nil && round == 0 && check != nil {
				err = check(p)
			}
			if err != nil && p.peer && ctx.Err() == nil {
				p.failed = err
				delete(runs, p.name)
				b.say("  %s: %v", p.name, err)
				if err := os.RemoveAll(p.out); err != nil {
					return nil, err
				}
				continue
			}
			if err != nil {
				return nil, err
			}
			runs[p.name] = append(runs[p.name], r)
			b.say("  %s %.2f s", p.name, r.Seconds)
			if p.out != "" {
				if err := os.RemoveAll(p.out); err != nil {
					return nil, err
				}
			}
		}
		b.say("\n")
	}
	return runs, nil
}

// files counts the regular files below dir and their bytes. With read, it reads
// them, so that they are in the page cache.
func files(ctx context.Context, dir string, read bool) (n, size int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if n%1000 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		n++
		if !read {
			info, err := d.Info()
			if err == nil {
				size += info.Size()
			}
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		k, err := io.Copy(io.Discard, f)
		size += k
		return errors.Join(err, f.Close())
	})
	return n, size, err
}

// syncAll makes all files below dir durable.
func syncAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrPermission) { // a read-only file can be synced as well
			f, err = os.Open(path)
		}
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}
