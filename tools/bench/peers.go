package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
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
	// venv is the environment, of tools/peers/VENV.txt; tensorflow is the one of tests.
	venv   string
	script string
	kind   string
	// data is what it reads: "folder", the folder of classes; "tar", our own shards; or
	// the name of one of writerTable.
	data string
}

// peerTable is all that there are. A new one needs a line here, its packages in a list of
// tools/peers, and its program; and if it reads what nobody else does, a line in
// writerTable.
var peerTable = []peer{
	{"DALI 2.4.0, CPU", "dali", "load_dali.py", "dali", "tar"},
	{"FFCV 1.0.2", "ffcv", "load_ffcv.py", "ffcv", "ffcv"},
	{"tf.data, TensorFlow 2.21.0", "tensorflow", "load_tfdata.py", "tfdata", "tfrecord"},
	{"Grain 0.2.18, OpenCV", "grain", "load_grain.py", "grain", "arrayrecord"},
	{"LitData 0.2.76", "loaders", "load_litdata.py", "litdata", "litdata"},
	{"MosaicML Streaming 0.13.0", "loaders", "load_mds.py", "mds", "mds"},
	{"SPDL 0.8.0", "loaders", "load_spdl.py", "spdl", "folder"},
	{"torchvision 0.29.2, decode_jpeg", "torch", "load_torch.py", "decode_jpeg", "folder"},
	{"torchvision 0.29.2, Pillow", "torch", "load_torch.py", "pil", "folder"},
	{"WebDataset 1.0.2", "torch", "load_torch.py", "webdataset", "tar"},
}

// dtypes are what the images are loaded as: as they are decoded, or normalised.
var dtypes = []string{"uint8", "float32"}

// Loading is one loader's figures.
type Loading struct {
	Name    string `json:"name"`
	DType   string `json:"dtype"`
	Ours    bool   `json:"ours,omitempty"`
	Command string `json:"command"`
	// Error is why there are no figures.
	Error string       `json:"error,omitempty"`
	Runs  []LoadingRun `json:"runs,omitempty"`
	// Rate is images a second in the best epoch of a run, First the seconds from a
	// process's start to its first batch, CPU the seconds of processor time for 1,000
	// images: medians of the runs. RSS and PSS are the greatest of all, in bytes.
	Rate  float64 `json:"images_per_second"`
	First float64 `json:"first_batch_seconds"`
	CPU   float64 `json:"cpu_seconds_per_1000"`
	RSS   int64   `json:"peak_rss"`
	PSS   int64   `json:"peak_pss"`
	// Ratio is this rate over that of the first peer with the same images, RatioCPU its
	// CPU over this one; 0 where there is none. On a machine that has other work, the
	// latter is the fairer.
	Ratio    float64 `json:"ratio,omitempty"`
	RatioCPU float64 `json:"ratio_cpu,omitempty"`
}

// LoadingRun is one process of a loader.
type LoadingRun struct {
	Rates []float64 `json:"images_per_second"` // of each epoch; of shardread bench, of all together
	First float64   `json:"first_batch_seconds"`
	CPU   float64   `json:"cpu_seconds_per_1000"`
	RSS   int64     `json:"peak_rss"`
	PSS   int64     `json:"peak_pss"`
}

// loader is what is run: one of the peers, or ours.
type loader struct {
	name  string
	dtype string
	ours  bool
	argv  []string
	env   []string
	// batch makes a process of ours that ends with the first batch, from the command
	// that reads all; nil for one who says when it has it.
	batch []string
	// points: seek points are to be used for all images.
	points bool
	// failed is why it is not run, or not again.
	failed error
}

// peers measures shards, or a folder, → training batches of random crops.
func (b *bench) peers(ctx context.Context) (report, error) {
	chosen, err := chosenPeers(b.which)
	if err != nil {
		return report{}, err
	}
	shardread := filepath.Join(b.root, "bin", "shardread"+exe())
	if _, err := os.Stat(shardread); err != nil {
		return report{}, fmt.Errorf("%w; run `make build`", err)
	}
	folder, n, size, note, err := b.photographs(ctx)
	if err != nil {
		return report{}, err
	}
	// As many shards for each of a peer's workers, and as many images in each.
	const shards = 16
	sets := []struct{ name, dir, points string }{
		{"no seek points", "plain", ""}, {"points of rows", "rows", "row"}, {"points every 8 MCUs", "every8", "8"},
	}
	for _, s := range sets {
		argv := []string{b.shardify, "pack", folder, filepath.Join(b.dir, s.dir), "--shards", strconv.Itoa(shards)}
		if s.points != "" {
			argv = append(argv, "--jpeg-seek="+s.points)
		}
		if err := b.do(ctx, argv...); err != nil {
			return report{}, err
		}
		if _, _, err := files(ctx, filepath.Join(b.dir, s.dir), true); err != nil {
			return report{}, err
		}
	}
	data := map[string]madeData{"folder": {dir: folder}, "tar": {dir: filepath.Join(b.dir, sets[0].dir)}}
	for _, p := range chosen {
		if _, ok := data[p.data]; !ok {
			b.say("writing %s\n", p.data)
			if data[p.data], err = b.write(ctx, p.data, folder, size/shards); err != nil {
				return report{}, err
			}
		}
	}
	var loaders []loader
	for _, dtype := range dtypes {
		for _, p := range chosen {
			l := b.peer(p, dtype, data[p.data].dir)
			if l.failed == nil {
				l.failed = data[p.data].failed
			}
			loaders = append(loaders, l)
		}
		for _, s := range sets {
			l := oursLoader(shardread, filepath.Join(b.dir, s.dir), dtype, b.epochs)
			l.name, l.points = "shardread bench, "+s.name, s.points != ""
			loaders = append(loaders, l)
			if dtype == "uint8" {
				l.name += ", AVX-512 off"
				l.env = append(slices.Clone(l.env), noAVX512)
				loaders = append(loaders, l)
			}
		}
		for _, s := range sets {
			loaders = append(loaders, b.pythonLoader("shardread in Python, "+s.name, dtype, filepath.Join(b.dir, s.dir)))
		}
	}
	runs, err := b.loadAll(ctx, loaders, n)
	if err != nil {
		return report{}, err
	}
	notes := []string{
		note + " In the page cache; each loader reads its own format, written before, in about 16 shards.",
		fmt.Sprintf("RandomResizedCrop to 224 x 224 and a flip, batches of 256, shuffled; two workers or threads. %d rounds in one run, %d epochs in each process.", b.rounds, b.epochs),
		"images/s: in the best epoch of a process, without start, imports and building; of shardread bench, over all epochs. First batch: from the start of the process; of shardread bench it is a process that ends with it, charged to its end. CPU: of the epochs; of shardread bench, of the whole process.",
		"Memory of the processes together: RSS counts what several share in each; PSS once.",
	}
	return report{
		Title: "Training batches", Date: time.Now().UTC(), Unit: "images", Files: n, Bytes: size,
		Loading: b.loadingTable(loaders, runs), Notes: notes,
	}, nil
}

// chosenPeers are those whose environments are named.
func chosenPeers(which string) ([]peer, error) {
	named := strings.FieldsFunc(which, func(r rune) bool { return r == ' ' || r == ',' })
	for _, name := range named {
		if !slices.Contains(allPeers(), name) {
			return nil, fmt.Errorf("-peers: there is no %q; want some of %s", name, strings.Join(allPeers(), ", "))
		}
	}
	var chosen []peer
	for _, p := range peerTable {
		if slices.Contains(named, p.venv) {
			chosen = append(chosen, p)
		}
	}
	return chosen, nil
}

// allPeers are the environments of peerTable.
func allPeers() []string {
	names := map[string]bool{}
	for _, p := range peerTable {
		names[p.venv] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// loadAll runs every loader once a round, beginning each round with another. One that fails
// is out from then on.
func (b *bench) loadAll(ctx context.Context, loaders []loader, n int64) ([][]LoadingRun, error) {
	runs := make([][]LoadingRun, len(loaders))
	for round := range b.rounds {
		b.say("round %d of %d:\n", round+1, b.rounds)
		for i := range loaders {
			i = (i + round) % len(loaders)
			l := &loaders[i]
			if l.failed != nil {
				continue
			}
			r, err := b.load(ctx, l, n)
			switch {
			case ctx.Err() != nil:
				return nil, errors.Join(err, ctx.Err())
			case err != nil:
				l.failed, runs[i] = err, nil
				b.say("  %s %s: %v\n", l.name, l.dtype, err)
			default:
				runs[i] = append(runs[i], r)
				b.say("  %s %s: %.0f/s\n", l.name, l.dtype, slices.Max(r.Rates))
			}
		}
	}
	return runs, nil
}

// interpreter is the Python of an environment, and an error that says what to do if it is
// not there.
func (b *bench) interpreter(venv string) (string, error) {
	python, target := filepath.Join(b.venv(venv), "bin", "python"), "peers-"+venv
	if venv == "tensorflow" {
		python, target = b.python, "peers"
	}
	if _, err := os.Stat(python); err != nil {
		return python, fmt.Errorf("it is not installed; `make %s` does it, or says why not", target)
	}
	return python, nil
}

// peer is how a peer is run.
func (b *bench) peer(p peer, dtype, data string, more ...string) loader {
	python, err := b.interpreter(p.venv)
	argv := []string{
		python, filepath.Join(b.root, "tools", "bench", "peers", p.script), p.kind, dtype, data, strconv.Itoa(b.epochs),
	}
	return loader{name: p.name, dtype: dtype, argv: append(argv, more...), env: b.scratch(), failed: err}
}

// scratch is where LitData and others put what they make on the way, of which some is
// left when they have ended.
func (b *bench) scratch() []string {
	dir := filepath.Join(b.dir, "scratch")
	return []string{"DATA_OPTIMIZER_CACHE_FOLDER=" + filepath.Join(dir, "chunks"), "DATA_OPTIMIZER_DATA_CACHE_FOLDER=" + filepath.Join(dir, "data")}
}

// oursLoader is how ours is run.
func oursLoader(shardread, data, dtype string, epochs int) loader {
	argv := []string{shardread, "bench", data, "--batch", "256", "--workers", "2", "--ends", "exact", "--json"}
	if dtype == "float32" {
		argv = append(argv, "--dtype", dtype, "--transform", `[{"random_resized_crop":224},"random_horizontal_flip",{"normalize":"imagenet"}]`)
	} else {
		argv = append(argv, "--crop", "224")
	}
	return loader{
		dtype: dtype, ours: true, env: []string{"GOMAXPROCS=2"},
		argv:  append(slices.Clone(argv), "--epochs", strconv.Itoa(epochs)),
		batch: append(slices.Clone(argv), "--batches", "1"),
	}
}

// pythonLoader is how the package shardread is run, with the programs of bin/.
func (b *bench) pythonLoader(name, dtype, data string, more ...string) loader {
	l := b.peer(peer{name, "tensorflow", "load_shardread.py", "shardread", ""}, dtype, data, more...)
	l.ours = true
	l.env = []string{"PYTHONPATH=" + filepath.Join(b.root, "python"), "SHARDREAD_PROGRAMS=" + filepath.Join(b.root, "bin")}
	return l
}

// load runs a loader over n images an epoch.
func (b *bench) load(ctx context.Context, l *loader, n int64) (LoadingRun, error) {
	// The slowest takes half a minute on a machine that has nothing else to do.
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("it has not ended in ten minutes"))
	defer cancel()
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
// second at what is resident, and where it has others below it, every second, and when they
// grow, at what is shared, which takes the kernel a while. When ctx is done, all of them are killed.
func track(ctx context.Context, argv, env []string) (t *tracked, err error) {
	cmd := command(ctx, argv)
	// Those below it hold its output open, and so would keep us waiting.
	killTogether(cmd)
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
	if err := errors.Join(context.Cause(ctx), err, watchErr, listenErr); err != nil {
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
		if t.several && (i%50 == 0 || u.rss > t.rss+t.rss/20) {
			if u, err = treeUsage(pid, true); err != nil {
				return err
			}
		}
		t.rss, t.pss = max(t.rss, u.rss), max(t.pss, u.pss)
	}
}

// loadingTable makes the table's rows, with ratios to the first of those with the same
// images, if that is a peer.
func (b *bench) loadingTable(loaders []loader, runs [][]LoadingRun) []Loading {
	var out []Loading
	for i, l := range loaders {
		r := Loading{
			Name: l.name, DType: l.dtype, Ours: l.ours, Runs: runs[i],
			Command: b.relative(strings.Join(append(slices.Clone(l.env), l.argv...), " ")),
		}
		if l.failed != nil {
			r.Error = b.relative(l.failed.Error())
			out = append(out, r)
			continue
		}
		var rates, first, cpu []float64
		for _, run := range runs[i] {
			rates, first, cpu = append(rates, slices.Max(run.Rates)), append(first, run.First), append(cpu, run.CPU)
			r.RSS, r.PSS = max(r.RSS, run.RSS), max(r.PSS, run.PSS)
		}
		r.Rate, r.First, r.CPU = median(rates), median(first), median(cpu)
		if to := base(append(out, r), l.dtype); to != nil {
			r.Ratio, r.RatioCPU = r.Rate/to.Rate, to.CPU/r.CPU
		}
		out = append(out, r)
	}
	return out
}

// base is the row whose multiple the others with the same images are: the first that has
// figures, if that is a peer.
func base(rows []Loading, dtype string) *Loading {
	for i := range rows {
		if r := &rows[i]; r.DType == dtype && r.Error == "" {
			if r.Ours {
				return nil
			}
			return r
		}
	}
	return nil
}

// relative takes this machine's folders out of a text, as it is to be published.
func (b *bench) relative(s string) string {
	if b.dir != "" {
		s = strings.ReplaceAll(s, b.dir, "WORK")
	}
	if b.root != "" {
		s = strings.ReplaceAll(s, b.root+string(filepath.Separator), "")
	}
	return s
}

// printLoading writes a table for each kind of images, and why some have no figures.
func printLoading(w io.Writer, rows []Loading) {
	for i, dtype := range dtypes {
		rows := slices.DeleteFunc(slices.Clone(rows), func(r Loading) bool { return r.DType != dtype })
		if len(rows) == 0 {
			continue
		}
		if i > 0 {
			fmt.Fprintln(w)
		}
		of := "–"
		if to := base(rows, dtype); to != nil {
			of = to.Name
		}
		fmt.Fprintf(w, "| %s | images/s | × %s | by CPU | first batch, s | CPU s per 1,000 | memory (RSS) | (PSS) |\n|---|---:|---:|---:|---:|---:|---:|---:|\n", dtype, of)
		for _, r := range rows {
			bold := ""
			if r.Ours {
				bold = "**"
			}
			if r.Error != "" {
				fmt.Fprintf(w, "| %s | failed | | | | | | |\n", r.Name)
				continue
			}
			ratio := "– | –"
			if r.Ratio > 0 {
				ratio = fmt.Sprintf("%.2f | %.2f", r.Ratio, r.RatioCPU)
			}
			fmt.Fprintf(w, "| %s%s%s | %s%s%s | %s | %.2f | %.2f | %.0f MB | %.0f MB |\n", bold, r.Name, bold, bold, thousands(int64(r.Rate)), bold,
				ratio, r.First, r.CPU, float64(r.RSS)/1e6, float64(r.PSS)/1e6)
		}
	}
	if slices.ContainsFunc(rows, func(r Loading) bool { return r.Error != "" }) {
		fmt.Fprintln(w)
	}
	for _, r := range rows {
		if r.Error != "" {
			fmt.Fprintf(w, "- failed: %s, %s: %s\n", r.Name, r.DType, firstAndLast(r.Error))
		}
	}
}

// printSummary writes a line for each loader, the fastest first, without what is there to
// show what AVX-512 does. First batch, CPU and memory are those of the first type.
func printSummary(w io.Writer, rows []Loading) {
	byName := map[string]map[string]Loading{}
	var names []string
	for _, r := range rows {
		if strings.Contains(r.Name, "AVX-512 off") {
			continue
		}
		if byName[r.Name] == nil {
			byName[r.Name] = map[string]Loading{}
			names = append(names, r.Name)
		}
		byName[r.Name][r.DType] = r
	}
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(byName[b][dtypes[0]].Rate, byName[a][dtypes[0]].Rate)
	})
	fmt.Fprint(w, "| |")
	for _, dtype := range dtypes {
		fmt.Fprintf(w, " images/s, %s |", dtype)
	}
	fmt.Fprintf(w, " first batch, s | CPU s per 1,000 | memory |\n|---|%s\n", strings.Repeat("---:|", len(dtypes)+3))
	for _, name := range names {
		first := byName[name][dtypes[0]]
		bold := ""
		if first.Ours {
			bold = "**"
		}
		fmt.Fprintf(w, "| %s%s%s |", bold, name, bold)
		for _, dtype := range dtypes {
			switch r, ok := byName[name][dtype]; {
			case !ok:
				fmt.Fprint(w, " – |")
			case r.Error != "":
				fmt.Fprint(w, " failed |")
			default:
				fmt.Fprintf(w, " %s%s%s |", bold, thousands(int64(r.Rate)), bold)
			}
		}
		if first.Rate == 0 {
			fmt.Fprint(w, " | | |\n")
			continue
		}
		fmt.Fprintf(w, " %.2f | %.2f | %.0f MB |\n", first.First, first.CPU, float64(first.PSS)/1e6)
	}
}

// firstAndLast are the lines of an error that say what failed and, last, why.
func firstAndLast(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) == 1 {
		return lines[0]
	}
	return lines[0] + " … " + strings.TrimSpace(lines[len(lines)-1])
}
