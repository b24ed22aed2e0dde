package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// contender is a decoder in a process of its own that is asked for one pass over the
// images at a time, so that passes of different decoders take turns within a second:
// the ratios of neighbours hold on a machine that is busy. What it is told, and what it
// answers, stands in peers/codecs.py.
type contender struct {
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

// ours says whether it is this repository's decoder.
func (c *contender) ours() bool { return strings.HasPrefix(c.name, mine) }

// contend starts a contender, on one core. A name of "" is the one that it says it has.
func (b *bench) contend(ctx context.Context, name string, env []string, argv ...string) (*contender, error) {
	pin, _ := onOneCore()
	argv = append(pin, argv...)
	c := &contender{name: cmp.Or(name, argv[len(argv)-2]), cmd: exec.CommandContext(ctx, argv[0], argv[1:]...)}
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stderr = &c.stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	line, err := c.line()
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	said, ok := strings.CutPrefix(line, "ready ")
	if !ok {
		return nil, errors.Join(fmt.Errorf("%s: says %q where it should be ready", name, line), c.close())
	}
	if name == "" {
		c.name = said
	}
	return c, nil
}

// pass has the contender do a task once, and returns the seconds.
func (c *contender) pass(task string) (float64, error) {
	if _, err := io.WriteString(c.in, task+"\n"); err != nil {
		return 0, fmt.Errorf("%s: %w", c.name, errors.Join(err, c.cmd.Wait(), c.said()))
	}
	line, err := c.line()
	if err != nil {
		return 0, err
	}
	seconds, err := strconv.ParseFloat(line, 64)
	if err != nil || !(seconds >= 0) {
		return 0, fmt.Errorf("%s: %s: says %q where it should say seconds", c.name, task, line)
	}
	return seconds, nil
}

// line is the contender's next one; where it has ended instead, the error says what of.
func (c *contender) line() (string, error) {
	line, err := c.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s: %w", c.name, errors.Join(err, c.cmd.Wait(), c.said()))
	}
	return strings.TrimSuffix(line, "\n"), nil
}

func (c *contender) said() error {
	if c.stderr.Len() == 0 {
		return nil
	}
	return errors.New(tail(&c.stderr))
}

// close ends the contender, which it does by itself when it is told nothing more.
func (c *contender) close() error {
	if c.cmd.ProcessState != nil {
		return nil
	}
	err := c.in.Close()
	// Wait closes the pipe, so what is still in it is read before.
	_, readErr := io.Copy(io.Discard, c.out)
	if err := errors.Join(err, readErr, c.cmd.Wait()); err != nil {
		return fmt.Errorf("%s: %w", c.name, errors.Join(err, c.said()))
	}
	return nil
}

// onOneCore is what to put before a command so that it stays on one core, the last one,
// which has the least to do for the system; and how to say so. Where there is no
// taskset, Go's own limit is nearly that, but for reads that the kernel does on another.
func onOneCore() (prefix []string, how string) {
	taskset, err := exec.LookPath("taskset")
	if err != nil {
		return nil, "one thread"
	}
	out, err := exec.Command(taskset, "-cp", strconv.Itoa(os.Getpid())).Output()
	if err != nil {
		return nil, "one thread"
	}
	// "pid 12's current affinity list: 0-3,6"
	list := strings.TrimSpace(string(out[bytes.LastIndexByte(out, ':')+1:]))
	last := list[strings.LastIndexAny(list, ",-")+1:]
	return []string{taskset, "-c", last}, "one core, by taskset"
}

// timing is how long each pass of a contender's task took.
type timing struct {
	contender *contender
	task      string
	seconds   []float64
}

func (t *timing) median() float64 { return median(t.seconds) }
func (t *timing) least() float64  { return slices.Min(t.seconds) }

// turns has each timing's pass done once a round, beginning each round with another.
func (b *bench) turns(timings []*timing) error {
	for round := range b.rounds {
		b.say("round %d of %d:", round+1, b.rounds)
		for i := range timings {
			t := timings[(i+round)%len(timings)]
			seconds, err := t.contender.pass(t.task)
			if err != nil {
				return err
			}
			t.seconds = append(t.seconds, seconds)
			b.say(" %.3f", seconds)
		}
		b.say("\n")
	}
	return nil
}
