// Gendata makes image data sets for tests and benchmarks: trees of class folders with
// pictures that cost a loader what photographs cost it, with broken and unusual files
// on request, with a million tiny files, with shapes that a model can learn, or with
// copies of photographs that one has.
//
//	go run ./tools/gendata DIR                                     1000 photographs in 10 classes
//	go run ./tools/gendata DIR --images 50000 --classes 1000 --splits train:0.9,val:0.1
//	go run ./tools/gendata DIR --odd 8                             and 8 files of each odd kind
//	go run ./tools/gendata DIR --with truncated,empty --json       and tell which files are bad
//	go run ./tools/gendata DIR --tiny --images 1000000 --classes 1000
//	go run ./tools/gendata DIR --shapes --splits train:0.8,val:0.2 ten shapes to tell apart
//	go run ./tools/gendata DIR --from PHOTOS --copies 16 --classes 1000 --link
//	go run ./tools/gendata stats DIR...                            what JPEG files are like
//
// The files and their bytes depend on the flags, the Go version and the architecture
// only, not on the number of workers. A folder that has content is refused, unless
// the same command has made it: then there is nothing to do, or, if that run was
// interrupted, it is made anew. What was made is written to DIR.gendata.json, beside
// the tree.
//
// # How near to photographs
//
// The first column of each pair is 250 photographs of ImageNet, the second 4,000
// generated ones (`gendata stats` shows more of it). A test holds 250 generated ones
// to the photographs.
//
//	                                mean           10 %           50 %           90 %
//	bytes                     107809 105186   27773  24648  105486 109784  178046 171818
//	width                        467    467     333    319     500    500     527    517
//	height                       395    400     295    289     375    375     500    500
//	megapixels                  0.19   0.20    0.12   0.11    0.19   0.19    0.25   0.25
//	bits per pixel              4.67   4.56    1.42   1.47    4.73   4.83    7.57   7.33
//	quality                     91.4   91.5    75.0   75.0    96.0   96.0    96.0   96.0
//	nonzero AC a luma block     30.1   29.1    10.9   11.4    30.1   30.9    47.8   44.2
//	last coefficient of it      42.7   42.1    19.2   19.3    45.4   46.8    59.3   58.7
//	nonzero AC a chroma block   8.30   8.60    1.47   1.95    7.33   8.12    16.0   15.3
//	last coefficient of it      17.5   16.3    2.47   3.30    14.6   15.3    36.7   30.4
//
//	share of files: 4:4:4      74.0   74.0 %
//	  4:2:0                    24.0   23.6 %
//	  4:2:2                     0.4    0.8 %
//	  grey                      1.6    1.7 %
//	  own Huffman tables       97.2   97.2 %
//	share of luma AC: ±1       36.4   39.6 %
//	  2 bits                   23.9   23.3 %
//	  3 or 4 bits              26.7   24.5 %
//	  5 bits or more           13.1   12.7 %
//	  after no zero            80.6   79.8 %
//	  after one                11.2   11.3 %
//	  after two or three        5.2    5.6 %
//	  after more                3.1    3.3 %
//	blocks with DC only, luma     4      3 %
//	  chroma                     15     15 %
//
// A photograph takes about 5 ms of a core (BenchmarkPhotograph). Two cores make about
// 50,000 tiny files a second on a fresh ext4; where many files were deleted in the
// last minutes, ext4 is several times slower.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"shardify/tools/gendata/tree"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gendata:", err)
		os.Exit(1)
	}
}

// generateFlags is the command line but for its folder.
type generateFlags struct {
	config  tree.Config
	splits  string
	with    []string
	workers int
	json    bool
	quiet   bool
}

func (g *generateFlags) add(f *pflag.FlagSet) {
	f.IntVar(&g.config.Images, "images", 0, "number of images (default 1000)")
	f.IntVar(&g.config.Classes, "classes", 0, "number of class folders (default 10)")
	f.StringVar(&g.splits, "splits", "", "split folders and their shares, as in train:0.9,val:0.1")
	f.Uint64Var(&g.config.Seed, "seed", 0, "another seed gives other images")
	f.BoolVar(&g.config.Tiny, "tiny", false, "files of a few hundred bytes, quickly")
	f.BoolVar(&g.config.Shapes, "shapes", false, "small pictures of ten shapes, each a class, for a model to learn")
	f.StringVar(&g.config.From, "from", "", "copy the files of this folder rather than make images")
	f.IntVar(&g.config.Copies, "copies", 0, "with --from: copies of each file (default 1)")
	f.BoolVar(&g.config.Link, "link", false, "with --from: hard links rather than copies, where possible")
	f.StringSliceVar(&g.with, "with", nil, fmt.Sprintf("kinds of odd files to add: %s", join(tree.Kinds())))
	f.IntVar(&g.config.Odd, "odd", 0, "odd files of each kind of --with (default 8); without --with, of every kind")
	f.IntVar(&g.workers, "workers", 0, "number of workers (default: one a core); the files do not depend on it")
	f.BoolVar(&g.json, "json", false, "write JSON lines: one for each odd file, then the summary")
	f.BoolVar(&g.quiet, "quiet", false, "show no progress")
}

func join(kinds []tree.Kind) string {
	var names []string
	for _, k := range kinds {
		names = append(names, string(k))
	}
	return strings.Join(names, ",")
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var g generateFlags
	f := pflag.NewFlagSet("gendata", pflag.ContinueOnError)
	f.SetOutput(stderr)
	f.SortFlags = false
	g.add(f)
	f.Usage = func() {
		fmt.Fprintf(stderr, "Usage:\n  gendata DIR [flags]   make a tree of images in DIR\n  gendata stats DIR...  show what the JPEG files of trees are like, side by side\n\nFlags:\n%s",
			f.FlagUsages())
	}
	if err := f.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return err
	}
	if f.NArg() > 1 && f.Arg(0) == "stats" {
		return stats(ctx, f.Args()[1:], stdout, stderr)
	}
	if f.NArg() != 1 {
		f.Usage()
		return fmt.Errorf("want one folder, have %d arguments", f.NArg())
	}

	if g.splits != "" {
		var err error
		if g.config.Splits, err = tree.ParseSplits(g.splits); err != nil {
			return err
		}
	}
	for _, k := range g.with {
		g.config.With = append(g.config.With, tree.Kind(k))
	}
	var m *meter
	if !g.quiet {
		m = newMeter(stderr)
	}
	report, err := tree.Generate(ctx, f.Arg(0), g.config, g.workers, m.add)
	m.stop()
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w; the same command makes the tree anew", err)
	}
	if err != nil {
		return err
	}
	return show(stdout, f.Arg(0), report, g.json)
}

// show writes the report.
func show(w io.Writer, dir string, r *tree.Report, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		for i := range r.Odd {
			if err := enc.Encode(&r.Odd[i]); err != nil {
				return err
			}
		}
		return enc.Encode(struct {
			Dir     string `json:"dir"`
			Files   int64  `json:"files"`
			Bytes   int64  `json:"bytes"`
			Linked  int64  `json:"linked"`
			Classes int    `json:"classes"`
			Odd     int    `json:"odd"`
			Already bool   `json:"already"`
		}{dir, r.Files, r.Bytes, r.Linked, r.Classes, len(r.Odd), r.Already})
	}
	var b strings.Builder
	for _, o := range r.Odd {
		if o.Bad != "" {
			fmt.Fprintf(&b, "bad: %s: %s\n", o.Path, o.Bad)
		}
	}
	fmt.Fprintf(&b, "%s: %d files of %.1f MB in %d classes", dir, r.Files, float64(r.Bytes)/1e6, r.Classes)
	if r.Linked > 0 {
		fmt.Fprintf(&b, ", %d of them hard links", r.Linked)
	}
	if len(r.Odd) > 0 {
		fmt.Fprintf(&b, ", %d of them odd", len(r.Odd))
	}
	if r.Already {
		b.WriteString("; they were there already")
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// meter shows progress: on a terminal a line that is rewritten, elsewhere a line
// every ten seconds. A nil meter shows nothing.
type meter struct {
	w            io.Writer
	terminal     bool
	files, bytes atomic.Int64
	begin        time.Time
	quit, done   chan struct{}
}

func newMeter(w io.Writer) *meter {
	m := &meter{w: w, begin: time.Now(), quit: make(chan struct{}), done: make(chan struct{})}
	if f, ok := w.(*os.File); ok {
		m.terminal = term.IsTerminal(int(f.Fd()))
	}
	go m.run()
	return m
}

func (m *meter) add(files, bytes int64) {
	if m != nil {
		m.files.Add(files)
		m.bytes.Add(bytes)
	}
}

func (m *meter) run() {
	defer close(m.done)
	every := 10 * time.Second
	if m.terminal {
		every = 200 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-m.quit:
			if m.files.Load() > 0 {
				m.line("\n")
			}
			return
		case <-tick.C:
			if m.terminal {
				m.line("")
			} else {
				m.line("\n")
			}
		}
	}
}

func (m *meter) line(end string) {
	files, mb, s := m.files.Load(), float64(m.bytes.Load())/1e6, time.Since(m.begin).Seconds()
	if m.terminal {
		fmt.Fprint(m.w, "\r\x1b[K")
	}
	fmt.Fprintf(m.w, "%d files, %.1f MB, %.1f s, %.0f files/s, %.1f MB/s%s", files, mb, s, float64(files)/s, mb/s, end)
}

func (m *meter) stop() {
	if m != nil {
		close(m.quit)
		<-m.done
	}
}
