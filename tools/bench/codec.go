package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"shardify/imaging"
	"shardify/imaging/jpeg"
)

// picture is an image of the list that contenders are given: a file, and a region of it.
type picture struct {
	path                string
	x, y, width, height int
}

func (p picture) line() string {
	return fmt.Sprintf("%d %d %d %d %s\n", p.x, p.y, p.width, p.height, p.path)
}

// readPictures reads a list of pictures.
func readPictures(name string) ([]picture, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var list []picture
	for line := range strings.Lines(string(data)) {
		var p picture
		if _, err := fmt.Sscanf(line, "%d %d %d %d", &p.x, &p.y, &p.width, &p.height); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", name, line, err)
		}
		p.path = strings.TrimSuffix(strings.SplitN(line, " ", 5)[4], "\n")
		list = append(list, p)
	}
	return list, nil
}

// codec is this repository's contender: `bench codec LIST`. Beside the tasks of the others
// it knows
//
//	one          whole, but one call of Decode for each image
//	region-rows  region, with the seek points of rows of MCUs
//	region-8     region, with those of every 8 MCUs
//
// of which points are parsed anew in each pass, as the reader does it.
type codec struct {
	files   [][]byte
	regions []jpeg.Options
	points  map[string][][]byte
	decoder jpeg.Decoder

	// One pass: of the jobs, which are handed out in the list's order, those that are
	// under way, and those that can be used again.
	task string
	next int
	busy []*job
	free []*job
	keep [][]byte // pixels by image, where they are wanted
	err  error
}

// job is a jpeg.Job with the memory for its pixels.
type job struct {
	jpeg.Job
	index int
	image imaging.Image
}

func runCodec(args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("codec: want the list, not %q", args)
	}
	list, err := readPictures(args[0])
	if err != nil {
		return err
	}
	c := &codec{points: map[string][][]byte{}}
	for _, p := range list {
		data, err := os.ReadFile(p.path)
		if err != nil {
			return err
		}
		c.files = append(c.files, data)
		c.regions = append(c.regions, jpeg.Options{X: p.x, Y: p.y, Width: p.width, Height: p.height})
		for task, every := range map[string]int{"region-rows": 0, "region-8": 8} {
			// Files without points, such as progressive ones, are decoded without.
			var points []byte
			if s, err := c.decoder.MakeSeek(data, every); err == nil {
				points = s.Append(nil)
			}
			c.points[task] = append(c.points[task], points)
		}
	}
	if _, err := fmt.Fprintln(stdout, "ready", mine); err != nil {
		return err
	}
	lines := bufio.NewScanner(stdin)
	for lines.Scan() {
		task, out, _ := strings.Cut(lines.Text(), " ")
		seconds, err := c.pass(task, out)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(stdout, "%.9f\n", seconds); err != nil {
			return err
		}
	}
	return lines.Err()
}

// pass does a task once, and writes the pixels to the file out unless that is "".
func (c *codec) pass(task, out string) (float64, error) {
	c.task, c.next, c.err, c.keep = task, 0, nil, nil
	if out != "" {
		c.keep = make([][]byte, len(c.files))
	}
	start, err := processorTime()
	if err != nil {
		return 0, err
	}
	switch task {
	case "one":
		var image imaging.Image
		for i, data := range c.files {
			if err := c.decoder.Decode(data, &image, jpeg.Options{}); err != nil {
				return 0, err
			}
			c.kept(i, &image)
		}
	case "whole", "region", "region-rows", "region-8":
		c.decoder.DecodeQueue(c)
	default:
		return 0, fmt.Errorf("codec: no such task: %s", task)
	}
	end, err := processorTime()
	if err != nil {
		return 0, err
	}
	if c.err == nil && out != "" {
		c.err = os.WriteFile(out, bytes.Join(c.keep, nil), 0o600)
	}
	return (end - start).Seconds(), c.err
}

// kept notes the pixels of an image, where they are wanted.
func (c *codec) kept(i int, m *imaging.Image) {
	if c.keep == nil {
		return
	}
	for y := range m.Height {
		c.keep[i] = append(c.keep[i], m.Pix[y*m.Stride:][:3*m.Width]...)
	}
}

// Next implements [jpeg.Queue].
func (c *codec) Next() *jpeg.Job {
	if c.next == len(c.files) || c.err != nil {
		return nil
	}
	if len(c.free) == 0 {
		c.free = append(c.free, new(job))
	}
	j := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	c.busy = append(c.busy, j)
	j.index = c.next
	c.next++
	j.Job = jpeg.Job{Data: c.files[j.index], Image: &j.image}
	if c.task != "whole" {
		j.Options = c.regions[j.index]
		if points := c.points[c.task]; points != nil {
			j.Points = points[j.index]
		}
	}
	return &j.Job
}

// Done implements [jpeg.Queue].
func (c *codec) Done(done *jpeg.Job) {
	for i, j := range c.busy {
		if &j.Job != done {
			continue
		}
		c.busy[i] = c.busy[len(c.busy)-1]
		c.busy = c.busy[:len(c.busy)-1]
		c.free = append(c.free, j)
		switch {
		case done.Err != nil && c.err == nil:
			c.err = fmt.Errorf("image %d: %w", j.index, done.Err)
		case done.SeekErr != nil && c.err == nil:
			c.err = fmt.Errorf("image %d: its seek points: %w", j.index, done.SeekErr)
		default:
			c.kept(j.index, &j.image)
		}
		return
	}
}
