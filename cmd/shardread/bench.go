package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shardify/gpu"
	"shardify/reader"
)

type benchOptions struct {
	configOptions
	deviceOptions
	epochs  int
	batches int64
	json    bool
}

func newBenchCommand() *cobra.Command {
	o := new(benchOptions)
	cmd := &cobra.Command{
		Use:   "bench DST",
		Short: "Read an epoch, and say how fast and what bounds it",
		Long: `Read an epoch as a training loop would that takes no time itself, and say how many
images a second came, how many bytes of fields that is, how long the first batch and
the next ones were waited for, the most memory the process had, and which stage held
the others up.

With --device the batches lie in pinned memory and are brought to GPUs, and it says too
how fast that went and how much of it was hidden.
` + streamHelp,
		Example: `  shardread bench /data/imagenet --split train --crop 224 --batch 256
  shardread bench /data/imagenet --decode none
  shardread bench /data/imagenet --crop 224 --layout nhwc --device cuda:0
  shardread bench 'https://host/train-{0000..0146}.tar' --crop 224`,
		Args: oneSource,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.configFor(cmd.Flags(), args[0])
			if err != nil {
				return err
			}
			return runBench(cmd.Context(), o, c, args[0], streamsOf(cmd))
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *benchOptions) addFlags(f *pflag.FlagSet) {
	o.configOptions.addFlags(f, orderFlags|imageFlags|readFlags)
	o.deviceOptions.addFlags(f)
	f.IntVar(&o.epochs, "epochs", 1, "how many epochs to read; with --resume, the rest of one counts as one")
	f.Int64Var(&o.batches, "batches", 0, "stop after so many batches (default: all)")
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
}

// benchLine is the result in JSON.
type benchLine struct {
	ImagesPerSecond float64       `json:"images_per_second"`
	BytesPerSecond  float64       `json:"bytes_per_second"`
	PeakMemory      int64         `json:"peak_memory_bytes"`
	Bound           reader.Bound  `json:"bound_by"`
	Stats           reader.Stats  `json:"stats"`
	Config          reader.Config `json:"config"`
	// Prefetch is how batches went to GPUs, and Pinned the most memory for batches that
	// there was; nil without --device.
	Prefetch *gpu.PrefetchConfig `json:"prefetch,omitempty"`
	Pinned   *gpu.PinnedStats    `json:"pinned,omitempty"`
	// Bad are the damaged samples.
	Bad []reader.BadSample `json:"bad"`
}

func runBench(ctx context.Context, o *benchOptions, c reader.Config, dst string, s streams) (err error) {
	if o.epochs < 1 || o.batches < 0 {
		return usagef("--epochs must be 1 or more, --batches 0 or more")
	}
	d, err := o.deviceOptions.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if d != nil {
		c.Slabs = d.pinned
	}
	r, err := o.openBatches(ctx, dst, c)
	if err != nil {
		return err
	}
	defer r.Close()
	state, err := o.start(r, 0, 0)
	if err != nil {
		return err
	}
	file, err := o.begin(state, nil)
	if err != nil {
		return err
	}
	defer func() {
		st := r.Stats()
		reportCache(s.err, st)
		reportSeek(s.err, st)
	}()
	if err := file.end(benchEpochs(ctx, o, r, d, state, file, s.err)); err != nil {
		return err
	}
	st := d.stats(r.Stats())
	line := benchLine{
		ImagesPerSecond: perSecond(st.Samples, st.Elapsed), BytesPerSecond: perSecond(st.FieldBytes, st.Elapsed),
		PeakMemory: peakMemory(), Bound: st.Bound(), Stats: st, Config: r.Config(), Bad: r.BadSamples(),
	}
	if d != nil {
		line.Prefetch, line.Pinned = &d.config, &d.most
	}
	if o.json {
		err = printJSON(s.out, line)
	} else {
		err = printBench(s.out, line)
	}
	if err != nil {
		return err
	}
	return damage(st)
}

// benchEpochs reads the epochs, or the first batches of them.
func benchEpochs(ctx context.Context, o *benchOptions, r batches, d *devices, state reader.State, file *stateFile, report io.Writer) error {
	left := o.batches
	begin := func(ctx context.Context) iter.Seq2[*reader.Batch, error] {
		return r.Epochs(ctx, state, state.Epoch+o.epochs)
	}
	for b, err := range d.steps(ctx, begin) {
		if err != nil {
			return err
		}
		reportBad(report, r.Config().OnBad, b.bad)
		if err := b.release(); err != nil {
			return err
		}
		if err := file.done(b.state); err != nil {
			return err
		}
		if left--; left == 0 {
			return nil
		}
	}
	return nil
}

func perSecond(n int64, d time.Duration) float64 { return float64(n) / max(d.Seconds(), 1e-9) }

// shareOf gives parts of a time, for people.
func shareOf(of time.Duration) func(part time.Duration) string {
	return func(part time.Duration) string { return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(max(of, 1))) }
}

// reportBad names the samples that a batch lacks, or has others for.
func reportBad(w io.Writer, policy reader.OnBad, all []*reader.SampleError) {
	what := "skipped"
	if policy == reader.OnBadSubstitute {
		what = "replaced"
	}
	for _, bad := range all {
		// That nobody hears is no reason to stop.
		_, _ = fmt.Fprintf(w, "shardread: %s: %s\n", what, printable(bad.Error()))
	}
}

func printBench(w io.Writer, l benchLine) error {
	st := l.Stats
	what := "img/s"
	if l.Config.Decode == reader.DecodeNone {
		what = "samples/s"
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }
	percent := shareOf(st.Elapsed)
	busy := func(s reader.StageStats) string { return fmt.Sprintf("%.1f%%", 100*st.Share(s)) }
	_, err := fmt.Fprintf(w, "%s %s   %s/s   first batch %.2f s   wait p50 %s p99 %s   memory %s\n",
		humanize.CommafWithDigits(l.ImagesPerSecond, 0), what, bytesText(int64(l.BytesPerSecond)), st.FirstBatch.Seconds(),
		ms(st.WaitP50), ms(st.WaitP99), bytesText(l.PeakMemory))
	if err != nil {
		return err
	}
	of := &st.Waits
	_, err = fmt.Fprintf(w, "bound by: %s; waited %s of the time, for: index %s, memory %s, store %s, decode %s, transform %s, collate %s, cpu %s\n",
		l.Bound, percent(st.Waiting), percent(of.Index), percent(of.Memory), percent(of.Store),
		percent(of.Decode), percent(of.Transform), percent(of.Collate), percent(of.CPU))
	if err != nil {
		return err
	}
	stages := &st.Stages
	_, err = fmt.Fprintf(w, "busy: index %s, store %s (%s reads of %s on average, %d at once), decode %s (%d workers), transform %s, collate %s, consumer %s; budget %s, at most %s taken\n",
		busy(stages.Index), busy(stages.Store), humanize.Comma(stages.Store.Items), bytesText(stages.Store.Bytes/max(1, stages.Store.Items)), stages.Store.Goroutines,
		busy(stages.Decode), stages.Decode.Goroutines, busy(stages.Transform), busy(stages.Collate), percent(st.Holding),
		bytesText(st.Memory.Limit), bytesText(st.Memory.Peak))
	if p := st.Seek; p != nil && err == nil {
		parts := ""
		if p.Parts > 0 {
			parts = fmt.Sprintf("; of %s no more was read than the crop needs", humanize.Comma(p.Parts))
		}
		_, err = fmt.Fprintf(w, "seek points: of %s images%s\n", humanize.Comma(p.Used), parts)
	}
	if c := st.Cache; c != nil && err == nil {
		_, err = fmt.Fprintf(w, "cache: %.1f%% of %s reads were hits; %s from the cache, %s from the store in %s reads; %s evicted\n",
			100*float64(c.Hits)/float64(max(1, c.Hits+c.Misses)), humanize.Comma(c.Hits+c.Misses),
			bytesText(c.CacheBytes), bytesText(c.OriginBytes), humanize.Comma(c.OriginReads), bytesText(c.EvictedBytes))
	}
	if err == nil {
		err = printDevices(w, st, l.Pinned)
	}
	return err
}

// reportSeek says what was wrong with seek points, which is no fault of what was read.
func reportSeek(w io.Writer, st reader.Stats) {
	p := st.Seek
	if p == nil || p.Refused == 0 && p.Files == 0 {
		return
	}
	// That nobody hears is no reason to stop.
	_, _ = fmt.Fprintf(w, "shardread: the seek points of %d shards, and of %d images of others, were of no use; decoded without; `shardify index --jpeg-seek` makes them anew: %s\n",
		p.Files, p.Refused, printable(p.Error))
}

// reportCache says what was wrong with the cache, which is no fault of what was read.
func reportCache(w io.Writer, st reader.Stats) {
	c := st.Cache
	if c == nil {
		return
	}
	// That nobody hears is no reason to stop.
	if c.Warning != "" {
		_, _ = fmt.Fprintf(w, "shardread: %s\n", printable(c.Warning))
	}
	if c.Corrupt > 0 {
		_, _ = fmt.Fprintf(w, "shardread: %d blocks in the cache were not as they had been written, and fetched again: see to that disk\n", c.Corrupt)
	}
}
