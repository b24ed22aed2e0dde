package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"shardify/reader"
)

// peer is a loader of others: a program in peers/, which says what peers/loading.py
// describes, and an environment that has what it needs.
type peer struct {
	name string
	// venv is the environment, .cache/peers/VENV of tools/peers/VENV.txt.
	venv   string
	script string
	kind   string
	// folder: it reads the folder of classes; otherwise the tar shards.
	folder bool
}

// peerTable is all that there are. A new one needs a line here, its packages in a list of
// tools/peers, and its program.
var peerTable = []peer{
	{"DALI 2.4.0, CPU", "dali", "load_dali.py", "dali", false},
	{"torchvision 0.29.2, DataLoader, decode_jpeg", "torch", "load_torch.py", "decode_jpeg", true},
	{"torchvision 0.29.2, DataLoader, Pillow", "torch", "load_torch.py", "pil", true},
	{"WebDataset 1.0.2, WebLoader, Pillow", "torch", "load_torch.py", "webdataset", false},
}

// Loading is one loader's figures.
type Loading struct {
	Name    string       `json:"name"`
	Command string       `json:"command"`
	Runs    []LoadingRun `json:"runs"`
	// Rate is images a second in the best epoch of a run, First the seconds from a
	// process's start to its first batch, CPU the seconds of processor time for 1,000
	// images: medians of the runs. RSS and PSS are the greatest of all, in bytes.
	Rate  float64 `json:"images_per_second"`
	First float64 `json:"first_batch_seconds"`
	CPU   float64 `json:"cpu_seconds_per_1000"`
	RSS   int64   `json:"peak_rss"`
	PSS   int64   `json:"peak_pss"`
	// Ratio is this rate over the first peer's, RatioCPU its CPU over this one; 0 where
	// there is none. On a machine that has other work, the latter is the fairer.
	Ratio    float64 `json:"ratio"`
	RatioCPU float64 `json:"ratio_cpu"`
}

// LoadingRun is one process of a loader.
type LoadingRun struct {
	Rates []float64 `json:"images_per_second"` // of each epoch; of ours, of all together
	First float64   `json:"first_batch_seconds"`
	CPU   float64   `json:"cpu_seconds_per_1000"`
	RSS   int64     `json:"peak_rss"`
	PSS   int64     `json:"peak_pss"`
}

// loader is what is run: one of the peers, or ours.
type loader struct {
	name string
	argv []string
	env  []string
	// batch makes a process of ours that ends with the first batch, from the command
	// that reads all; nil for a peer, who says when it has it.
	batch []string
	// points: seek points are to be used for all images.
	points bool
}

// peers measures shards, or a folder, → training batches of random crops.
func (b *bench) peers(ctx context.Context) (report, error) {
	var chosen []peer
	for name := range strings.FieldsFuncSeq(b.which, func(r rune) bool { return r == ' ' || r == ',' }) {
		n := len(chosen)
		for _, p := range peerTable {
			if p.venv == name {
				chosen = append(chosen, p)
			}
		}
		if len(chosen) == n {
			return report{}, fmt.Errorf("-peers: there is no %q", name)
		}
	}
	shardread := filepath.Join(b.root, "bin", "shardread"+exe())
	if _, err := os.Stat(shardread); err != nil {
		return report{}, fmt.Errorf("%w; run `make build`", err)
	}
	folder, n, _, note, err := b.photographs(ctx)
	if err != nil {
		return report{}, err
	}
	// As many shards for each of a peer's workers, and as many images in each.
	sets := []struct{ name, dir, points string }{
		{"no seek points", "plain", ""}, {"points of rows", "rows", "row"}, {"points every 8 MCUs", "every8", "8"},
	}
	var size int64
	for i, s := range sets {
		dir := filepath.Join(b.dir, s.dir)
		argv := []string{b.shardify, "pack", folder, dir, "--shards", "16"}
		if s.points != "" {
			argv = append(argv, "--jpeg-seek="+s.points)
		}
		if err := b.do(ctx, argv...); err != nil {
			return report{}, err
		}
		_, bytes, err := files(ctx, dir, true)
		if err != nil {
			return report{}, err
		}
		if i == 0 {
			size = bytes
		}
	}
	var loaders []loader
	for _, p := range chosen {
		loaders = append(loaders, b.peer(p, folder, filepath.Join(b.dir, sets[0].dir)))
	}
	for _, level := range []struct{ name, env string }{{"", ""}, {", AVX-512 off", noAVX512}} {
		for _, s := range sets {
			l := oursLoader(shardread, filepath.Join(b.dir, s.dir), b.epochs)
			l.name, l.points = "shardread, "+s.name+level.name, s.points != ""
			if level.env != "" {
				l.env = append(l.env, level.env)
			}
			loaders = append(loaders, l)
		}
	}
	runs := make([][]LoadingRun, len(loaders))
	for round := range b.rounds {
		b.say("round %d of %d:", round+1, b.rounds)
		for i := range loaders {
			i = (i + round) % len(loaders)
			r, err := b.load(ctx, &loaders[i], n)
			if err != nil {
				return report{}, err
			}
			runs[i] = append(runs[i], r)
			b.say("  %s %.0f/s", loaders[i].name, slices.Max(r.Rates))
		}
		b.say("\n")
	}
	notes := []string{
		note + " In the page cache; packed as 16 tar shards.",
		fmt.Sprintf("RandomResizedCrop to 224 x 224 and a flip, batches of 256 of bytes, shuffled; two workers or threads. %d rounds in one run, %d epochs in each process.", b.rounds, b.epochs),
		"images/s: of a peer, in the better epoch of a process, without start, imports and building; of ours, over all epochs. First batch: from the start of the process; ours is a process that ends with it, charged to its end. CPU: of a peer, of its epochs; of ours, of the whole process.",
		"Memory of the processes together: RSS counts what several share in each; PSS once.",
	}
	return report{
		Title: "Training batches", Date: time.Now().UTC(), unit: "images", Files: n, Bytes: size,
		Loading: loadingTable(loaders, runs, len(chosen) > 0), Notes: notes,
	}, nil
}

// peer is how a peer is run.
func (b *bench) peer(p peer, folder, shards string, more ...string) loader {
	data := shards
	if p.folder {
		data = folder
	}
	argv := []string{
		filepath.Join(b.venv(p.venv), "bin", "python"), filepath.Join(b.root, "tools", "bench", "peers", p.script),
		p.kind, data, strconv.Itoa(b.epochs),
	}
	return loader{name: p.name, argv: append(argv, more...)}
}

// oursLoader is how ours is run.
func oursLoader(shardread, data string, epochs int) loader {
	argv := []string{shardread, "bench", data, "--crop", "224", "--batch", "256", "--workers", "2", "--ends", "exact", "--json"}
	return loader{
		argv: append(slices.Clone(argv), "--epochs", strconv.Itoa(epochs)), env: []string{"GOMAXPROCS=2"},
		batch: append(slices.Clone(argv), "--batches", "1"),
	}
}

// load runs a loader over n images an epoch.
func (b *bench) load(ctx context.Context, l *loader, n int64) (LoadingRun, error) {
	t, err := track(ctx, l.argv, l.env)
	if err != nil {
		return LoadingRun{}, fmt.Errorf("%s: %w", l.name, err)
	}
	r := LoadingRun{RSS: t.rss, PSS: t.pss}
	if l.batch == nil {
		err = r.peer(t, b.epochs, n)
	} else if err = r.ours(t, l, int64(b.epochs)*n); err == nil {
		var first *tracked
		if first, err = track(ctx, l.batch, l.env); err == nil {
			r.First = first.seconds
		}
	}
	if err != nil {
		return LoadingRun{}, fmt.Errorf("%s: %w", l.name, err)
	}
	return r, nil
}

// peer reads what a peer has said, and when.
func (r *LoadingRun) peer(t *tracked, epochs int, n int64) error {
	var start, end time.Duration
	var images int64
	for _, line := range t.lines {
		words := strings.Fields(line.text)
		switch {
		case len(words) == 0:
		case words[0] == "start":
			start = line.cpu
		case words[0] == "first":
			r.First = line.at.Seconds()
		case words[0] == "epoch" && len(words) == 3:
			seconds, err := strconv.ParseFloat(words[1], 64)
			if err != nil || !(seconds > 0) {
				return fmt.Errorf("says %q", line.text)
			}
			count, err := strconv.ParseInt(words[2], 10, 64)
			// A whole batch more where an epoch's last one goes on into the next.
			if err != nil || count < n || count >= n+256 {
				return fmt.Errorf("has read %s images in an epoch of %d", words[2], n)
			}
			r.Rates = append(r.Rates, float64(count)/seconds)
			images += count
			end = line.cpu
		}
	}
	if len(r.Rates) != epochs || r.First == 0 {
		return fmt.Errorf("has told of %d epochs, want %d, and of a first batch after %v s", len(r.Rates), epochs, r.First)
	}
	r.CPU = (end - start).Seconds() * 1000 / float64(images)
	return nil
}

// ours reads what `shardread bench --json` has said.
func (r *LoadingRun) ours(t *tracked, l *loader, n int64) error {
	var line struct {
		Rate  float64      `json:"images_per_second"`
		Peak  int64        `json:"peak_memory_bytes"`
		Stats reader.Stats `json:"stats"`
	}
	if err := json.Unmarshal([]byte(t.text()), &line); err != nil {
		return fmt.Errorf("says no JSON: %w", err)
	}
	if line.Stats.Samples != n || !(line.Rate > 0) {
		return fmt.Errorf("has read %d images at %v/s, want %d", line.Stats.Samples, line.Rate, n)
	}
	if p := line.Stats.Seek; l.points != (p != nil && p.Used == n) {
		return fmt.Errorf("seek points: %+v; is every image to be read with them: %v", p, l.points)
	}
	r.Rates = []float64{line.Rate}
	r.CPU = t.cpu.Seconds() * 1000 / float64(n)
	r.RSS = max(r.RSS, line.Peak)
	r.PSS = max(r.PSS, line.Peak)
	return nil
}

// tracked is a process that has been run, with all below it.
type tracked struct {
	lines    []spoken
	seconds  float64
	cpu      time.Duration // of all that was waited for
	rss, pss int64         // the greatest seen
	several  bool          // it had others below it
}

// spoken is a line of its output: when it came after the start, and the processor time
// used by then.
type spoken struct {
	text string
	at   time.Duration
	cpu  time.Duration
}

func (t *tracked) text() string {
	var b strings.Builder
	for _, l := range t.lines {
		b.WriteString(l.text + "\n")
	}
	return b.String()
}

// track runs a process, listens to it, and looks at its memory meanwhile: 50 times a
// second at what is resident, and where it has others below it, every second at what is
// shared, which takes the kernel a while.
func track(ctx context.Context, argv, env []string) (t *tracked, err error) {
	cmd := command(ctx, argv)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t = &tracked{}
	done := make(chan struct{})
	var watching sync.WaitGroup
	var watchErr error
	watching.Go(func() { watchErr = t.watch(cmd.Process.Pid, done) })
	listenErr := t.listen(out, start, cmd.Process.Pid)
	close(done)
	watching.Wait()
	err = cmd.Wait()
	t.seconds = time.Since(start).Seconds()
	if err := errors.Join(err, watchErr, listenErr); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, tail(&stderr))
	}
	t.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	t.rss = max(t.rss, peakRSS(cmd.ProcessState))
	if !t.several {
		t.pss = t.rss
	}
	return t, nil
}

func (t *tracked) listen(out io.Reader, start time.Time, pid int) error {
	lines := bufio.NewReader(out)
	for {
		text, err := lines.ReadString('\n')
		at := time.Since(start)
		if text != "" {
			u, err := treeUsage(pid, false)
			if err != nil {
				return err
			}
			t.lines = append(t.lines, spoken{strings.TrimSuffix(text, "\n"), at, u.cpu})
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (t *tracked) watch(pid int, done <-chan struct{}) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for i := 1; ; i++ {
		select {
		case <-done:
			return nil
		case <-ticker.C:
		}
		u, err := treeUsage(pid, false)
		if err != nil {
			return err
		}
		t.several = t.several || u.processes > 1
		if t.several && i%50 == 0 {
			if u, err = treeUsage(pid, true); err != nil {
				return err
			}
		}
		t.rss, t.pss = max(t.rss, u.rss), max(t.pss, u.pss)
	}
}

// loadingTable makes the table's rows, with ratios to the first if that is a peer.
func loadingTable(loaders []loader, runs [][]LoadingRun, ratios bool) []Loading {
	var out []Loading
	for i, l := range loaders {
		r := Loading{Name: l.name, Command: strings.Join(append(slices.Clone(l.env), l.argv...), " "), Runs: runs[i]}
		var rates, first, cpu []float64
		for _, run := range runs[i] {
			rates, first, cpu = append(rates, slices.Max(run.Rates)), append(first, run.First), append(cpu, run.CPU)
			r.RSS, r.PSS = max(r.RSS, run.RSS), max(r.PSS, run.PSS)
		}
		r.Rate, r.First, r.CPU = median(rates), median(first), median(cpu)
		if ratios {
			to := slices.Concat(out, []Loading{r})[0]
			r.Ratio, r.RatioCPU = r.Rate/to.Rate, to.CPU/r.CPU
		}
		out = append(out, r)
	}
	return out
}

func printLoading(w io.Writer, rows []Loading) {
	of := "–"
	if rows[0].Ratio > 0 {
		of = rows[0].Name
	}
	fmt.Fprintf(w, "| | images/s | × %s | by CPU | first batch, s | CPU s per 1,000 | memory (RSS) | (PSS) |\n|---|---:|---:|---:|---:|---:|---:|---:|\n", of)
	for _, r := range rows {
		ratio := "– | –"
		if r.Ratio > 0 {
			ratio = fmt.Sprintf("%.2f | %.2f", r.Ratio, r.RatioCPU)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %.2f | %.2f | %.0f MB | %.0f MB |\n", r.Name, thousands(int64(r.Rate)), ratio, r.First, r.CPU, float64(r.RSS)/1e6, float64(r.PSS)/1e6)
	}
}
