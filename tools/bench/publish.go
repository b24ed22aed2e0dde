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

// published are the benchmarks whose last results publish takes over into docs/: the
// figures of every run as docs/benchmarks/NAME.json, plots of them beside it, and the table
// in docs/benchmarks.md between two lines that marks makes.
var published = []string{"pack", "peers"}

// marks are the lines between which the table of a benchmark stands.
func marks(name string) (begin, end string) {
	return "<!-- " + name + ": by make bench-publish, from benchmarks/" + name + ".json -->\n", "<!-- end of " + name + " -->\n"
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
	doc, dir := filepath.Join(root, "docs", "benchmarks.md"), filepath.Join(root, "docs", "benchmarks")
	text, err := os.ReadFile(doc)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range published {
		data, err := os.ReadFile(filepath.Join(b.results, name+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			b.say("no results of %s; `make bench-%s` makes them\n", name, name)
			continue
		}
		if err != nil {
			return err
		}
		if text, err = b.tabulate(text, name, data); err != nil {
			return err
		}
		figures := filepath.Join(dir, name+".json")
		if err := os.WriteFile(figures, data, 0o644); err != nil {
			return err
		}
		if err := b.do(ctx, python, filepath.Join(root, "tools", "bench", "peers", "plot.py"), figures, dir); err != nil {
			return err
		}
		b.say("docs/benchmarks/%s.json, .png, .svg\n", name)
	}
	return os.WriteFile(doc, text, 0o644)
}

// tabulate puts the table of a benchmark's results into the text, in its place.
func (b *bench) tabulate(text []byte, name string, data []byte) ([]byte, error) {
	var rep report
	if err := json.Unmarshal(data, &rep); err != nil {
		return nil, fmt.Errorf("%s.json: %w", name, err)
	}
	var table strings.Builder
	if err := rep.print(&table); err != nil {
		return nil, err
	}
	begin, end := marks(name)
	before, rest, ok := bytes.Cut(text, []byte(begin))
	if !ok {
		return nil, fmt.Errorf("docs/benchmarks.md has no line %q", strings.TrimSpace(begin))
	}
	_, after, ok := bytes.Cut(rest, []byte(end))
	if !ok {
		return nil, fmt.Errorf("docs/benchmarks.md has no line %q", strings.TrimSpace(end))
	}
	return fmt.Appendf(nil, "%s%s%s\n%s%s", before, begin, table.String(), end, after), nil
}
