// Command bench compares shardify with the tools people use today, end to end, on
// the machine it runs on: each as a process of its own, in turn with the others,
// several rounds in one run, so that the figures are ratios of neighbours.
//
//	bench pack     4,000 photographs in 1,000 class folders into shards: shardify,
//	               tar, and the writers of writerTable
//	bench scale    a million tiny files: peak memory, files/s
//	bench verify   checking a data set on one core
//	bench jpeg     decoding JPEG on one core: imaging/jpeg, libjpeg-turbo, and Python's
//	               bindings to it
//	bench peers    4,000 photographs to batches of random crops: shardread, and the
//	               loaders of peerTable; -peers chooses among those
//	bench augment  transforms on one core: imaging/augment, and torchvision's of tensors and
//	               of PIL images
//	bench first    from a process's start to the first batch of 10,000 shards
//	bench s3       shards in a bucket: reading and packing, against s5cmd; with latency
//	bench scan     shards in a bucket front to back: index, verify, pack; with latency
//	bench memory   reading with a budget of memory, with and without outliers
//	bench publish  the last results of pack and peers into docs/benchmarks and
//	               docs/benchmarks.md, with plots
//
// The Makefile has a target for each: bench-pack and so on. It needs bin/shardify,
// bin/shardread and, for pack, jpeg and peers, the peers in .venv and .cache/peers.
// Everything it writes lies in .cache/bench, of which only the results, as JSON, are left.
//
// Input is read from the page cache, output ends in fsync for every tool, and the
// Python tools are charged for packing only, not for starting and importing. Peak
// memory is what the system reports of the finished process; a figure below this
// program's own, some 20 MB, is not seen.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// bench is a run of this program.
type bench struct {
	root     string // the repository
	dir      string // .cache/bench/work-…, removed at the end
	results  string // .cache/bench
	shardify string
	python   string
	photos   string
	rounds   int
	files    int
	which    string // the environments of the peers of bench peers
	epochs   int
}

// benchmark is one of the things that can be measured, and how often it is by default.
type benchmark struct {
	name    string
	rounds  int
	measure func(*bench, context.Context) (report, error)
}

var benchmarks = []benchmark{
	{"pack", 3, (*bench).pack},
	{"scale", 2, (*bench).scale},
	{"verify", 5, (*bench).verify},
	{"jpeg", 15, (*bench).jpeg},
	{"augment", 9, (*bench).augment},
	{"peers", 1, (*bench).peers},
	{"memory", 1, (*bench).memory},
	{"first", 5, (*bench).first},
	{"s3", 3, (*bench).s3},
	{"scan", 3, (*bench).scan},
}

func names() string {
	var all []string
	for _, m := range benchmarks {
		all = append(all, m.name)
	}
	return strings.Join(all, "|")
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == "codec": // a contender of bench jpeg
		err = runCodec(os.Args[2:], os.Stdin, os.Stdout)
	case len(os.Args) == 2 && os.Args[1] == "publish":
		err = publish(ctx)
	case len(os.Args) == 2 && os.Args[1] == "augmenter": // and of bench augment
		err = runAugmenter(os.Stdin, os.Stdout)
	default:
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprintln(stderr, "usage: bench [flags] "+names())
		fs.PrintDefaults()
	}
	b := &bench{}
	fs.IntVar(&b.rounds, "rounds", 0, "how often each is measured; 0 for as often as suits the benchmark")
	fs.StringVar(&b.photos, "photos", "", "folder of JPEG `files` to make the data from; generated ones without it")
	fs.IntVar(&b.files, "files", 1_000_000, "scale: number of files")
	fs.StringVar(&b.which, "peers", strings.Join(allPeers(), " "), "peers: the `environments` of the peers to compare with, of tools/peers/*.txt")
	fs.IntVar(&b.epochs, "epochs", 2, "peers: epochs in a run")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() != 1 || b.rounds < 0 || b.files < 1 || b.epochs < 1 {
		fs.Usage()
		return fmt.Errorf("want one of %s; rounds of 0 and more, files and epochs of 1 and more", names())
	}
	i := slices.IndexFunc(benchmarks, func(m benchmark) bool { return m.name == fs.Arg(0) })
	if i < 0 {
		return fmt.Errorf("%q: want one of %s", fs.Arg(0), names())
	}
	measure := benchmarks[i].measure
	if b.rounds == 0 {
		b.rounds = benchmarks[i].rounds
	}

	if b.photos != "" {
		if b.photos, err = filepath.Abs(b.photos); err != nil {
			return err
		}
	}
	if b.root, err = repository(); err != nil {
		return err
	}
	b.shardify = filepath.Join(b.root, "bin", "shardify"+exe())
	if _, err := os.Stat(b.shardify); err != nil {
		return fmt.Errorf("%w; run `make build`", err)
	}
	b.python = filepath.Join(b.root, ".venv", "bin", "python")
	b.results = filepath.Join(b.root, ".cache", "bench")
	if err := os.MkdirAll(b.results, 0o755); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp(b.results, "work-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()

	machine := host(ctx, b)
	rep, err := measure(b, ctx)
	if err != nil {
		return err
	}
	rep.Host = machine
	if err := rep.print(stdout); err != nil {
		return err
	}
	data, err := json.MarshalIndent(rep, "", " ")
	if err != nil {
		return err
	}
	name := filepath.Join(b.results, fs.Arg(0)+".json")
	if err := os.WriteFile(name, append(data, '\n'), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "\nalso in %s\n", name)
	return rep.failed()
}

// say tells people how far it is.
func (b *bench) say(format string, args ...any) { fmt.Fprintf(os.Stderr, format, args...) }

// repository is the folder of go.mod, here or above.
func repository() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	mod := string(out[:max(0, len(out)-1)])
	if filepath.Base(mod) != "go.mod" {
		return "", errors.New("run it within the repository")
	}
	return filepath.Dir(mod), nil
}

func exe() string {
	if runtime.GOOS == "windows" {
		return ".exe"
	}
	return ""
}
