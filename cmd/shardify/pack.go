package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shardify/index"
	"shardify/pack"
	"shardify/shard/formats"
	"shardify/source"
	"shardify/store"
	"shardify/store/open"
)

const packLong = `Pack image files into shards with an index.

SRC is a folder of class folders (ImageFolder: the class is the first folder), a
folder of splits (train/, val/, ...) of class folders, a flat folder of images, or
existing shards (a.tar b.tar.zst ...). Several SRCs make one data set. With
--files-from or --table, the list or table says which files there are, and SRC is
the folder that their paths are relative to (default: this one for a list, its own
for a table).

SRC may lie in a bucket, too: s3://bucket/prefix. Its objects, images or shards, are
packed as the files of a folder are. A quoted pattern ('s3://bucket/train-*.tar') is the
shards that it matches.

Shards of a web server are named one by one, with braces: 'https://host/train-{000..146}.tar',
each with its signature if it has one; a data set of ours, https://host/folder, is packed by
its index. Nothing else can be listed there.

Which files make a sample: files of one folder and one stem are one sample (a.jpg,
a.json); a.seg.png belongs to a.jpg as its field seg.png. Hidden files are left
out, links are followed. Files that are no images and belong to none are ignored.

Labels are the classes in the order of their names, as torchvision's ImageFolder
numbers them; each sample gets a field "cls" with its number.

Stop it at any time, and give the same command again to go on: finished shards are
kept, and without manifest.json nobody takes DST for a data set. The result does not
depend on --workers or on interruptions, byte for byte.

Several machines: give each the same command with --worker 0/8, 1/8, ... They share
only SRC and DST; the last one writes the manifest. Any of them may be run again.

Images are packed as they are, byte for byte, unless --max-side, --min-side, --quality,
--jpeg-baseline or --store ask for something else. They concern the image of each
sample; masks and other images beside it stay as they are.

Exit code 3 says that the data set is finished and that bad files were left out of
it; DST/bad.jsonl lists them.`

// packOptions are the flags of pack.
type packOptions struct {
	config    pack.Config
	env       pack.Env
	shardSize string
	memory    string
	worker    string
	classes   string
	dryRun    bool
	json      bool
}

func newPackCommand() *cobra.Command {
	o := new(packOptions)
	cmd := &cobra.Command{
		Use:   "pack SRC... DST",
		Short: "Pack image files into shards with an index",
		Long:  packLong,
		Example: `  shardify pack ~/imagenet /data/imagenet-shards
  shardify pack photos out --format tar.zst --shard-size 128MiB --exclude '**/thumbs/**'
  find photos -name '*.jpg' -print0 | shardify pack --files-from - . out
  shardify pack --table labels.csv out
  shardify pack ~/imagenet out --min-side 256
  shardify pack ~/imagenet out --max-side 500 --store raw
  shardify pack s3://bucket/images s3://bucket/shards
  shardify pack 's3://bucket/shards/train-*.tar' s3://bucket/shards2 --shards 8
  shardify pack 'https://host/laion/{00000..00041}.tar' s3://bucket/laion
  shardify pack photos out --dry-run`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef("pack needs a source and a destination: shardify pack SRC... DST")
			case len(args) == 1 && o.config.Source.Table == "" && o.config.Source.FilesFrom == "":
				return usagef("pack needs a source and a destination; only %q was given", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.config.Source.Paths = args[:len(args)-1]
			return runPack(cmd.Context(), o, args[len(args)-1], streamsOf(cmd))
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *packOptions) addFlags(f *pflag.FlagSet) {
	c, s := &o.config, &o.config.Source
	f.SortFlags = false
	f.StringVar(&s.Layout, "layout", "", "how SRC is laid out: classes, splits or flat (default: found out)")
	f.StringArrayVar(&s.Include, "include", nil, "take only files that match, e.g. '**/*.jpg' (repeatable)")
	f.StringArrayVar(&s.Exclude, "exclude", nil, "leave out files that match (repeatable)")
	f.StringVar(&s.FilesFrom, "files-from", "", "take the files listed in this `FILE` (- for stdin), one a line or NUL-separated")
	f.StringVar(&s.Table, "table", "", "take the files, labels and fields of this `FILE` (.csv, .tsv, .jsonl, .parquet)")
	f.StringVar(&s.PathColumn, "path-column", "", "column of --table with the path (default: path, file_name, filename, image or file)")
	f.StringVar(&s.LabelColumn, "label-column", "", "column of --table with the label (default: label or class)")
	f.StringVar(&s.SplitColumn, "split-column", "", "column of --table with the split (default: split)")
	f.StringVar(&s.KeyColumn, "key-column", "", "column of --table with the sample's key (default: made of the path)")
	f.StringVar(&s.Split, "split", "", "name of the split where SRC has none (default train)")
	f.StringVar(&o.classes, "classes", "", "number the classes as in this `FILE`, one name a line")

	f.StringVarP(&c.Format, "format", "f", "", "format of the shards: "+strings.Join(formats.Names(), ", ")+" (default tar)")
	f.IntVar(&c.Level, "level", 0, "level of the compressor (default: its own)")
	f.StringVar(&o.shardSize, "shard-size", "", fmt.Sprintf("size that shards have at most, before compression (default %s)", humanize.IBytes(pack.DefaultShardSize)))
	f.Int64Var(&c.ShardSamples, "shard-samples", 0, "number of samples that shards have at most")
	f.Int64Var(&c.Shards, "shards", 0, "number of shards of each split")
	f.StringVar(&c.Template, "template", "", "names of the shards (default \"{split}-{shard:06}\")")
	f.StringVar(&c.Name, "name", "", "name of the data set (default: DST's)")
	f.StringVar(&c.Order, "order", "", "order of the samples: shuffle, path or class-interleaved (default shuffle)")
	f.Uint64Var(&c.Seed, "seed", 0, "seed of the shuffled order")
	f.StringVar(&c.Check, "check", "", "check images: header, none or decode (default header)")
	f.StringVar(&c.OnBad, "on-bad", "", "bad files: quarantine (leave out, list in bad.jsonl, copy to quarantine/),\nskip (leave out and list) or fail (default quarantine)")
	addJPEGSeek(f, &c.JPEGSeek)

	v := &c.Convert
	f.IntVar(&v.MaxSide, "max-side", 0, "scale JPEGs down to at most `N` pixels on the longer side (with --store, other\nformats, too)")
	f.IntVar(&v.MinSide, "min-side", 0, "scale JPEGs down to at most `N` pixels on the shorter side")
	f.StringVar(&v.Filter, "resize-filter", "", "filter that scales: lanczos, bicubic, bilinear or box (default lanczos)")
	f.IntVar(&v.Quality, "quality", 0, fmt.Sprintf("quality of JPEGs that are made, 1 to 100 (default %d); without --max-side and\n--min-side, make every JPEG anew and take it if it is smaller", pack.DefaultQuality))
	f.StringVar((*string)(&v.Subsampling), "subsampling", "", "chroma of JPEGs that are made: 4:4:4, 4:2:2, 4:4:0, 4:2:0 or 4:1:1 (default 4:2:0)")
	f.BoolVar(&v.JPEGBaseline, "jpeg-baseline", false, "make baseline JPEGs of progressive ones, without a change to any pixel")
	f.StringVar(&v.Store, "store", "", "how to store images: jpeg (make JPEGs of other formats, too) or raw (pixels, not\ncompressed, as PPM and PGM; default: as they come)")

	f.BoolVarP(&o.dryRun, "dry-run", "n", false, "say what would be done, check the images, and write nothing")
	f.IntVar(&o.env.Workers, "workers", 0, "goroutines that read, check and convert (default: the cores)")
	f.StringVar(&o.memory, "memory", "", "bytes of samples held at once (default 128 MiB; where images are converted, 64 MiB\nmore for each worker)")
	f.StringVar(&o.worker, "worker", "", "pack part `i/n` only, i from 0, as one of n processes or machines")
	f.StringVar(&o.env.TempDir, "temp-dir", "", "folder to sort the plan and to unpack .tar.gz sources in (default: the system's)")
	f.BoolVar(&o.env.Restart, "restart", false, "drop an unfinished run in DST instead of going on with it")
	f.BoolVar(&o.json, "json", false, "print events as JSON lines")
}

// addJPEGSeek adds the flag for seek points.
func addJPEGSeek(f *pflag.FlagSet, spacing *string) {
	f.StringVar(spacing, "jpeg-seek", "", "note where JPEGs can be entered, so that crops of them are decoded faster:\n`row` (at each row of MCUs, the default of this flag), or a number as in\n--jpeg-seek=8 (every 8 MCUs, too); in a .seek file beside each shard")
	f.Lookup("jpeg-seek").NoOptDefVal = "row"
}

// finish turns the flags' texts into the configuration.
func (o *packOptions) finish() error {
	var faults []error
	size := func(flag, text string) int64 {
		if text == "" {
			return 0
		}
		n, err := humanize.ParseBytes(text)
		if err != nil || n == 0 || n > 1<<60 {
			faults = append(faults, fmt.Errorf("--%s %q is no size; write it like 256MiB", flag, text))
		}
		return int64(n)
	}
	o.config.ShardSize = size("shard-size", o.shardSize)
	o.env.Memory = size("memory", o.memory)
	if o.worker != "" {
		var i, n int
		if k, err := fmt.Sscanf(o.worker+"\n", "%d/%d\n", &i, &n); k != 2 || err != nil || i < 0 || n < 1 || i >= n {
			faults = append(faults, fmt.Errorf("--worker %q: want i/n with i from 0 to n-1, as in 0/8", o.worker))
		}
		o.env.Worker, o.env.Of = i, n
		if o.env.Restart {
			faults = append(faults, errors.New("--restart goes with a run of its own, not with --worker"))
		}
	}
	if o.classes != "" {
		names, err := readClasses(o.classes)
		if err != nil {
			faults = append(faults, err)
		}
		o.config.Classes = names
	}
	if err := o.config.Validate(); err != nil {
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return usage(err)
	}
	return nil
}

// readClasses reads a class list, one name a line.
func readClasses(name string) ([]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("--classes: %w", err)
	}
	defer f.Close()
	var names []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" {
			names = append(names, line)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("--classes %s: %w", name, err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("--classes %s: no class in it", name)
	}
	return names, nil
}

func runPack(ctx context.Context, o *packOptions, dst string, s streams) error {
	if err := o.finish(); err != nil {
		return err
	}
	st, err := open.Writable(ctx, dst)
	if err != nil {
		return err
	}
	o.env.Tool = toolName()
	o.env.Stdin = s.in
	o.env.Progress = new(pack.Progress)
	ui := newPackUI(o, s)
	if o.dryRun {
		ui.start()
		report, err := pack.DryRun(ctx, st, o.config, o.env)
		ui.stop()
		if err != nil {
			return ui.failed(packHint(err))
		}
		return printReport(s, report, st, o)
	}
	stop := make(chan struct{})
	o.env.Stop = stop
	done := s.onInterrupt(func() {
		fmt.Fprintln(s.err, "\nstopping: finishing the shards in hand; press Ctrl-C again to stop at once")
		close(stop)
	})
	defer done()
	ui.start()
	result, err := pack.Run(ctx, st, o.config, o.env)
	ui.stop()
	if o.env.Of > 1 && errors.Is(err, pack.ErrIncomplete) {
		return ui.part(err)
	}
	if err != nil {
		return ui.failed(packHint(err))
	}
	return ui.result(result, st)
}

// packHint adds what the user can do.
func packHint(err error) error {
	switch {
	case errors.Is(err, pack.ErrStopped), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w; what is finished is kept: give the same command again to go on", err)
	case errors.Is(err, source.ErrChanged):
		return fmt.Errorf("%w; put it back as it was and give the same command again, or give --restart to begin anew with the files as they are", err)
	case errors.Is(err, store.ErrNoSpace):
		return fmt.Errorf("%w; finished shards are kept: make room and give the same command again", err)
	}
	return err
}

// packUI shows how a run goes: a bar on a terminal, a line now and then in a log,
// JSON lines for programs.
type packUI struct {
	o       *packOptions
	s       streams
	p       *pack.Progress
	began   time.Time
	planned time.Time
	quit    chan struct{}
	ended   chan struct{}
	bar     *bar
	// Of --json: the phase of the last event, and when that was.
	phase pack.Phase
	shown time.Time
}

func newPackUI(o *packOptions, s streams) *packUI {
	return &packUI{o: o, s: s, p: o.env.Progress, quit: make(chan struct{}), ended: make(chan struct{})}
}

// event is a line of --json.
type event struct {
	Event   string  `json:"event"` // "progress", "part", "done" or "error"
	Phase   string  `json:"phase,omitempty"`
	Seconds float64 `json:"seconds"`
	// Files and bytes listed.
	Files     int64 `json:"files"`
	FileBytes int64 `json:"file_bytes"`
	// Of samples, shards and bytes of files: how many there are, and are done.
	Samples     int64 `json:"samples"`
	DoneSamples int64 `json:"done_samples"`
	Shards      int64 `json:"shards"`
	DoneShards  int64 `json:"done_shards"`
	DoneBytes   int64 `json:"done_bytes"`
	Bad         int64 `json:"bad"`
	// Images converted, their bytes before and after, and images that stay as they are,
	// where images are converted; of "done" more of that, in images.
	Converted int64             `json:"converted,omitempty"`
	FromBytes int64             `json:"from_bytes,omitempty"`
	ToBytes   int64             `json:"to_bytes,omitempty"`
	Kept      int64             `json:"kept,omitempty"`
	Images    *pack.Conversions `json:"images,omitempty"`
	// Of "done": the data set was finished before; its splits; where bad files are
	// listed; how many files are no images and belong to none.
	Already bool         `json:"already,omitempty"`
	Splits  []splitEvent `json:"splits,omitempty"`
	BadList string       `json:"bad_list,omitempty"`
	Ignored int64        `json:"ignored,omitempty"`
	// Of "error".
	Error string `json:"error,omitempty"`
}

type splitEvent struct {
	Name    string `json:"name"`
	Samples int64  `json:"samples"`
	Shards  int    `json:"shards"`
	Bytes   int64  `json:"bytes"`
}

func (u *packUI) event(kind string) event {
	p := u.p
	return event{
		Event: kind, Phase: p.Phase().String(), Seconds: time.Since(u.began).Seconds(),
		Files: p.Files.Load(), FileBytes: p.FileBytes.Load(), Samples: p.Samples.Load(), DoneSamples: p.DoneSamples.Load(),
		Shards: p.Shards.Load(), DoneShards: p.DoneShards.Load(), DoneBytes: p.DoneBytes.Load(), Bad: p.Bad.Load(),
		Converted: p.Converted.Load(), FromBytes: p.ConvertedFrom.Load(), ToBytes: p.ConvertedTo.Load(), Kept: p.Kept.Load(),
	}
}

func (u *packUI) start() {
	u.began = time.Now()
	every := 10 * time.Second
	if u.o.json || u.s.terminal {
		every = 100 * time.Millisecond
	}
	if u.s.terminal && !u.o.json {
		u.bar = newBar(u.s.err)
	}
	go func() {
		defer close(u.ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				u.show()
			case <-u.quit:
				return
			}
		}
	}()
}

func (u *packUI) show() {
	p := u.p
	phase := p.Phase()
	if phase >= pack.PhasePack && u.planned.IsZero() {
		u.planned = time.Now()
	}
	if u.o.json {
		if phase != u.phase || time.Since(u.shown) >= time.Second {
			u.phase, u.shown = phase, time.Now()
			// A closed pipe shows at the last event, too.
			_ = printJSON(u.s.out, u.event("progress"))
		}
		return
	}
	switch {
	case u.bar != nil && phase < pack.PhasePack:
		u.bar.text(fmt.Sprintf("%-8s %s files  %s", phase, humanize.Comma(p.Files.Load()), bytesText(p.FileBytes.Load())))
	case u.bar != nil:
		u.bar.set(phase.String(), p.DoneBytes.Load(), p.SourceBytes.Load())
	case phase < pack.PhasePack:
		fmt.Fprintf(u.s.err, "%-8s %s files, %s\n", phase, humanize.Comma(p.Files.Load()), bytesText(p.FileBytes.Load()))
	default:
		rate := ""
		if took := time.Since(u.planned).Seconds(); took >= 1 {
			perSecond := float64(p.DoneBytes.Load()-p.FoundBytes.Load()) / took
			rate = fmt.Sprintf(" at %s/s", bytesText(int64(perSecond)))
			if left := p.SourceBytes.Load() - p.DoneBytes.Load(); perSecond > 0 && left > 0 {
				rate += fmt.Sprintf(", %s left", time.Duration(float64(left)/perSecond*float64(time.Second)).Round(time.Second))
			}
		}
		fmt.Fprintf(u.s.err, "%-8s %s of %s samples, %d of %d shards, %s%s\n", phase,
			humanize.Comma(p.DoneSamples.Load()), humanize.Comma(p.Samples.Load()), p.DoneShards.Load(), p.Shards.Load(),
			bytesText(p.DoneBytes.Load()), rate)
	}
}

func (u *packUI) stop() {
	close(u.quit)
	<-u.ended
	if u.bar != nil {
		u.bar.clear()
	}
}

// failed reports an error to programs; people get it from main.
func (u *packUI) failed(err error) error {
	if u.o.json {
		e := u.event("error")
		e.Error = err.Error()
		return errors.Join(err, printJSON(u.s.out, e))
	}
	return err
}

// part prints that this worker is done while others are not.
func (u *packUI) part(left error) error {
	if u.o.json {
		return printJSON(u.s.out, u.event("part"))
	}
	fmt.Fprintf(u.s.err, "%-8s part %d of %d is done; %v; the last worker writes the manifest\n", "done", u.o.env.Worker, u.o.env.Of, left)
	return nil
}

// result prints what a run came to.
func (u *packUI) result(r *pack.Result, st store.Store) error {
	var left error // what was left out
	if r.Bad > 0 {
		left = foundDamage()
	}
	e := u.event("done")
	if u.o.json {
		e.Already, e.Bad, e.Ignored = r.Already, r.Bad, r.Ignored
		for i := range r.Manifest.Splits {
			s := &r.Manifest.Splits[i]
			e.Splits = append(e.Splits, splitEvent{s.Name, s.Samples, len(s.Shards), s.Bytes})
		}
		if r.Bad > 0 {
			e.BadList = index.BadName
		}
		if r.Images != (pack.Conversions{}) {
			e.Images = &r.Images
		}
		return errors.Join(printJSON(u.s.out, e), left)
	}
	if r.Already {
		fmt.Fprintf(u.s.err, "%s is finished already: %s. Nothing to do; files that came to the source since are not looked at.\n", st.URL(), splitsText(r.Manifest))
		return nil
	}
	fmt.Fprintf(u.s.err, "%-8s %s files  %s\n", "scan", humanize.Comma(e.Files), classesText(r.Manifest))
	packed := e.DoneBytes - u.p.FoundBytes.Load()
	found := ""
	if n := u.p.FoundShards.Load(); n > 0 {
		found = fmt.Sprintf("  after %s of an earlier run", count(n, "shard", "shards"))
	}
	rate := float64(packed) / max(time.Since(u.began).Seconds(), 1e-9)
	fmt.Fprintf(u.s.err, "%-8s %s in %s  %s/s%s\n", "pack", bytesText(packed), time.Since(u.began).Round(10*time.Millisecond), bytesText(int64(rate)), found)
	printImages(u.s.err, &r.Images, u.o.config.Convert.Store)
	text := splitsText(r.Manifest)
	if r.Bad > 0 {
		word := map[string]string{pack.OnBadSkip: "skipped"}[u.o.config.OnBad]
		if word == "" {
			word = "quarantined"
		}
		text += fmt.Sprintf("; %s %s (%s/%s)", count(r.Bad, "bad file", "bad files"), word, st.URL(), index.BadName)
	}
	if r.Ignored > 0 {
		text += fmt.Sprintf("; %s ignored, no images (%s)", humanize.Comma(r.Ignored), printable(strings.Join(r.Names[:min(3, len(r.Names))], ", ")))
	}
	fmt.Fprintf(u.s.err, "%-8s %s\n", "done", text)
	return left
}

// printImages says what became of the images.
func printImages(w io.Writer, c *pack.Conversions, store string) {
	if *c == (pack.Conversions{}) {
		return
	}
	text := "no image converted"
	if c.Converted > 0 {
		text = fmt.Sprintf("%s converted, %s → %s", count(c.Converted, "image", "images"), bytesText(c.From), bytesText(c.To))
		var parts []string
		part := func(n int64, what string) {
			if n > 0 {
				parts = append(parts, humanize.Comma(n)+" "+what)
			}
		}
		part(c.Scaled, "scaled")
		part(c.Baseline, "made baseline")
		part(c.Alpha, "lost their alpha channel")
		if len(parts) > 0 {
			text += " (" + strings.Join(parts, ", ") + ")"
		}
	}
	if c.Kept > 0 {
		text += fmt.Sprintf("; %s kept as they are", humanize.Comma(c.Kept))
	}
	fmt.Fprintf(w, "%-8s %s\n", "convert", text)
	if c.Other > 0 {
		fmt.Fprintf(w, "%-8s %s of these cannot be converted: 16 bits, a kind that is not decoded, or damaged\n", "", humanize.Comma(c.Other))
	}
	if c.Fixed > 0 {
		fmt.Fprintf(w, "%-8s %s not scaled: their samples have masks or other images, which would not fit any more\n", "", count(c.Fixed, "image", "images"))
	}
	if c.Large > 0 {
		hint := ""
		if store == "" {
			hint = "; --store jpeg scales other formats than JPEG, too"
		}
		fmt.Fprintf(w, "%-8s %s of these larger than asked for%s\n", "", humanize.Comma(c.Large), hint)
	}
}

func splitsText(m *index.Manifest) string {
	var parts []string
	for i := range m.Splits {
		s := &m.Splits[i]
		parts = append(parts, fmt.Sprintf("%s %s in %s", s.Name, count(s.Samples, "sample", "samples"), count(int64(len(s.Shards)), "shard", "shards")))
	}
	return strings.Join(parts, ", ")
}

func classesText(m *index.Manifest) string {
	text := ""
	if n := len(m.Classes); n > 0 {
		text = fmt.Sprintf("%s  ", count(int64(n), "class", "classes"))
	}
	names := make([]string, len(m.Splits))
	for i := range m.Splits {
		names[i] = m.Splits[i].Name
	}
	return text + fmt.Sprintf("%s (%s)", count(int64(len(names)), "split", "splits"), strings.Join(names, ", "))
}

// printReport prints what a dry run has found.
func printReport(s streams, r *pack.Report, st store.Store, o *packOptions) error {
	w := bufio.NewWriter(s.out)
	if o.json {
		if err := printJSON(w, r); err != nil {
			return err
		}
		return w.Flush()
	}
	if r.Already {
		fmt.Fprintf(w, "%s is finished already. Nothing would be done.\n", st.URL())
		return w.Flush()
	}
	fmt.Fprintf(w, "source   %s files, %s\n", humanize.Comma(r.Files), bytesText(r.FileBytes))
	for i := range r.Splits {
		p := &r.Splits[i]
		fmt.Fprintf(w, "split    %s: %s samples in %s, %s (%s to %s a shard): %s", p.Name, humanize.Comma(p.Samples), count(p.Shards, "shard", "shards"),
			bytesText(p.Bytes), bytesText(p.Smallest), bytesText(p.Largest), p.First)
		if p.Shards > 1 {
			fmt.Fprintf(w, " … %s", p.Last)
		}
		fmt.Fprintln(w)
	}
	printClasses(w, r.Labels, r.Unlabelled, false)
	for _, f := range r.Fields {
		fmt.Fprintf(w, "field    %-12s %s samples, %s\n", f.Name, humanize.Comma(f.Count), bytesText(f.Bytes))
	}
	for _, f := range r.Formats {
		fmt.Fprintf(w, "image    %-12s %s\n", f.Name, humanize.Comma(f.Samples))
	}
	if r.Images != nil {
		printImages(w, r.Images, o.config.Convert.Store)
	}
	printHistogram(w, "bytes of an image", &r.ImageBytes, bytesText)
	printHistogram(w, "width", &r.Width, humanize.Comma)
	printHistogram(w, "height", &r.Height, humanize.Comma)
	fmt.Fprintln(w)
	if r.Ignored > 0 {
		fmt.Fprintf(w, "ignored  %s without an image: %s\n", count(r.Ignored, "file", "files"), printable(strings.Join(r.IgnoredNames, ", ")))
	}
	fmt.Fprintf(w, "bad      %s\n", count(int64(len(r.Bad)), "file", "files"))
	const most = 20
	for i := range r.Bad[:min(most, len(r.Bad))] {
		fmt.Fprintf(w, "         %q: %s\n", r.Bad[i].Path, r.Bad[i].Reason)
	}
	if len(r.Bad) > most {
		fmt.Fprintf(w, "         and %d more (--json lists all)\n", len(r.Bad)-most)
	}
	for _, a := range r.Advice {
		fmt.Fprintf(w, "advice   %s\n", a)
	}
	fmt.Fprintf(w, "Nothing was written to %s.\n", st.URL())
	return w.Flush()
}
