package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// publication is a benchmark whose last results publish takes over into docs/: the figures
// of every run as docs/benchmarks/NAME.json, plots of them beside it, and table and plot into
// docs/benchmarks.md, between two lines that marks makes.
type publication struct {
	name string
	// plot says what the plot shows.
	plot string
	// front: README.md shows the loaders' rates.
	front bool
}

var publications = []publication{
	{"pack", "Images a second, processor time, memory and output of the packers", false},
	{"peers", "Images a second, processor time, memory and first batch of the loaders", true},
}

// marks are the lines between which the table of a benchmark stands.
func marks(name string) (begin, end string) {
	return "<!-- " + name + ": by make bench-publish -->\n", "<!-- end of " + name + " -->\n"
}

// publish takes the results over that are there.
func publish(ctx context.Context) error {
	root, err := repository()
	if err != nil {
		return err
	}
	b := &bench{root: root, results: filepath.Join(root, ".cache", "bench")}
	python, err := b.interpreter("plot")
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "docs", "benchmarks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, p := range publications {
		data, err := os.ReadFile(filepath.Join(b.results, p.name+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			b.say("no results of %s; `make bench-%s` makes them\n", p.name, p.name)
			continue
		}
		if err != nil {
			return err
		}
		figures := filepath.Join(dir, p.name+".json")
		if err := os.WriteFile(figures, data, 0o644); err != nil {
			return err
		}
		if err := b.do(ctx, python, filepath.Join(root, "tools", "bench", "peers", "plot.py"), figures, dir); err != nil {
			return err
		}
		for name, show := range p.pages() {
			page := filepath.Join(root, name)
			text, err := os.ReadFile(page)
			if err != nil {
				return err
			}
			if text, err = show(text, data); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err := os.WriteFile(page, text, 0o644); err != nil {
				return err
			}
		}
		b.say("docs/benchmarks/%s.json and plots\n", p.name)
	}
	return nil
}

// pages are the pages that show a benchmark, and what puts its results into each.
func (p publication) pages() map[string]func(text, data []byte) ([]byte, error) {
	pages := map[string]func(text, data []byte) ([]byte, error){"docs/benchmarks.md": p.table}
	if p.front {
		pages["README.md"] = p.summary
	}
	return pages
}

// table puts the table and the plot of a benchmark's results into a text, in their place.
func (p publication) table(text, data []byte) ([]byte, error) {
	var rep report
	if err := json.Unmarshal(data, &rep); err != nil {
		return nil, fmt.Errorf("%s.json: %w", p.name, err)
	}
	var table strings.Builder
	if err := rep.print(&table); err != nil {
		return nil, err
	}
	return p.between(text, fmt.Sprintf("\n![%s](benchmarks/%s.png)\n%s\n", p.plot, p.name, table.String()))
}

// summary puts the plot of the loaders' rates, and a table of all but what the plot leaves
// out, into a text, in their place.
func (p publication) summary(text, data []byte) ([]byte, error) {
	var rep report
	if err := json.Unmarshal(data, &rep); err != nil {
		return nil, fmt.Errorf("%s.json: %w", p.name, err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n![Images a second of the loaders](docs/benchmarks/%s-rate.png)\n\n", p.name)
	fmt.Fprintf(&b, "%s photographs to random crops of 224 × 224 in batches of 256, on %d cores (%s), all in one run:\n\n",
		thousands(rep.Files), rep.Host.Cores, rep.Host.CPU)
	printSummary(&b, rep.Loading)
	fmt.Fprintln(&b)
	return p.between(text, b.String())
}

// between puts something between the marks of a benchmark.
func (p publication) between(text []byte, what string) ([]byte, error) {
	begin, end := marks(p.name)
	before, rest, ok := bytes.Cut(text, []byte(begin))
	if !ok {
		return nil, fmt.Errorf("there is no line %q", strings.TrimSpace(begin))
	}
	_, after, ok := bytes.Cut(rest, []byte(end))
	if !ok {
		return nil, fmt.Errorf("there is no line %q", strings.TrimSpace(end))
	}
	return fmt.Appendf(nil, "%s%s%s%s%s", before, begin, what, end, after), nil
}
