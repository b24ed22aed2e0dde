package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"shardify/gpu"
	"shardify/reader"
)

// deviceOptions say to which GPUs batches go.
type deviceOptions struct {
	names  []string
	depth  int
	pinned string
}

func (o *deviceOptions) addFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.names, "device", nil, "bring the batches to these GPUs, in turn: cuda:0, with commas between, or all")
	f.IntVar(&o.depth, "depth", 0, "with --device: how many batches have memory on a GPU (default 3)")
	f.StringVar(&o.pinned, "pinned", "", "with --device: how much of --memory may be pinned: 2GiB (default: all batches)")
}

// devices are GPUs that batches go to.
type devices struct {
	gpus    []*gpu.Device
	streams []gpu.Stream
	pinned  *gpu.Pinned
	config  gpu.PrefetchConfig
	// most is the most memory for batches that was seen.
	most gpu.PinnedStats
}

// open opens the GPUs; nil where there are to be none. close closes them.
func (o *deviceOptions) open() (_ *devices, err error) {
	d := &devices{config: gpu.PrefetchConfig{Depth: o.depth}}
	if err := d.config.Validate(); err != nil {
		return nil, usagef("--%v", err)
	}
	var limit uint64
	if o.pinned != "" {
		if limit, err = humanize.ParseBytes(o.pinned); err != nil || limit < 1 || limit > 1<<62 {
			return nil, usagef("--pinned: %q is no size such as 512MiB or 2GB", o.pinned)
		}
	}
	if len(o.names) == 0 {
		if o.depth != 0 || limit != 0 {
			return nil, usagef("--depth and --pinned are of --device, which is not given")
		}
		return nil, nil
	}
	ordinals, err := o.ordinals()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	for _, n := range ordinals {
		v, err := gpu.Open(n)
		if err != nil {
			return nil, err
		}
		d.gpus = append(d.gpus, v)
		s, err := v.NewStream()
		if err != nil {
			return nil, err
		}
		d.streams = append(d.streams, s)
	}
	d.pinned = d.gpus[0].Pinned(gpu.PinnedConfig{Limit: int64(limit)})
	return d, nil
}

// ordinals are the numbers of the GPUs.
func (o *deviceOptions) ordinals() (all []int, err error) {
	if slices.Equal(o.names, []string{"all"}) {
		info := gpu.Inspect()
		if info.Problem != "" {
			return nil, errors.New(info.Problem)
		}
		for _, v := range info.Devices {
			all = append(all, v.Ordinal)
		}
		return all, nil
	}
	for _, name := range o.names {
		number, found := strings.CutPrefix(name, "cuda:")
		n, err := strconv.Atoi(number)
		if name == "cuda" {
			n, err, found = 0, nil, true
		}
		if !found || err != nil || n < 0 {
			return nil, usagef("--device: %q is no GPU; want cuda:0, several with commas between, or all", name)
		}
		if slices.Contains(all, n) {
			return nil, usagef("--device: %s is there twice", name)
		}
		all = append(all, n)
	}
	return all, nil
}

// close closes the GPUs, after the reader.
func (d *devices) close() (err error) {
	if d == nil {
		return nil
	}
	if d.pinned != nil {
		err = d.pinned.Close()
	}
	for i, v := range d.gpus {
		if i < len(d.streams) {
			err = errors.Join(err, v.DestroyStream(d.streams[i]))
		}
		err = errors.Join(err, v.Close())
	}
	return err
}

// step is a batch of a loop that takes no time itself.
type step struct {
	state   reader.State
	bad     []*reader.SampleError
	release func() error
}

// steps run a pass, whose batches go to the GPUs, where there are any.
func (d *devices) steps(ctx context.Context, pass func(context.Context) iter.Seq2[*reader.Batch, error]) iter.Seq2[step, error] {
	if d == nil {
		return func(yield func(step, error) bool) {
			for b, err := range pass(ctx) {
				if err != nil {
					yield(step{}, err)
					return
				}
				if !yield(step{b.State(), b.Bad(), func() error { b.Release(); return nil }}, nil) {
					return
				}
			}
		}
	}
	return func(yield func(step, error) bool) {
		for b, err := range gpu.PrefetchAll(ctx, d.gpus, pass, d.config) {
			if err != nil {
				yield(step{}, err)
				return
			}
			stream := d.streams[slices.Index(d.gpus, b.Device)]
			release := func() error { return b.Release(stream) }
			if err := b.Wait(stream); err != nil {
				yield(step{}, errors.Join(err, release()))
				return
			}
			now := d.pinned.Stats()
			d.most = gpu.PinnedStats{Pinned: max(d.most.Pinned, now.Pinned), Ordinary: max(d.most.Ordinary, now.Ordinary), Refused: max(d.most.Refused, now.Refused)}
			if !yield(step{b.State, b.Bad, release}, nil) {
				return
			}
		}
	}
}

// stats adds those of the GPUs.
func (d *devices) stats(st reader.Stats) reader.Stats {
	if d != nil {
		for _, v := range d.gpus {
			st.Devices = append(st.Devices, v.Stats())
		}
	}
	return st
}

// printDevices says how batches came to GPUs.
func printDevices(w io.Writer, st reader.Stats, pinned *gpu.PinnedStats) error {
	for _, d := range st.Devices {
		percent := shareOf(d.Elapsed)
		_, err := fmt.Fprintf(w, "%s: %s in copies of %s/s, %.1f%% of their time hidden; its stream stood for %s of %s batches, %s of the time; the loop waited %s, for: gpu %s, reader %s, upload %s, cpu %s\n",
			d.Device, bytesText(d.Bytes), bytesText(int64(d.Rate())), 100*d.Hidden(), humanize.Comma(d.Late), humanize.Comma(d.Batches), percent(d.Stalled),
			percent(d.Waiting), percent(d.Waits.GPU), percent(d.Waits.Reader), percent(d.Waits.Upload), percent(d.Waits.CPU))
		if err != nil {
			return err
		}
		text := "not known: " + printable(d.Unread)
		if r := d.Readings; r != nil {
			text = meanText(r)
		}
		if _, err := fmt.Fprintf(w, "%s: %s: %s\n", d.Device, printable(d.Name), text); err != nil {
			return err
		}
	}
	if pinned == nil {
		return nil
	}
	_, err := fmt.Fprintf(w, "pinned: %s at most; %s beyond --pinned, %s refused by the driver\n", bytesText(pinned.Pinned), bytesText(pinned.Ordinary), bytesText(pinned.Refused))
	return err
}

// meanText leaves out what the card does not tell.
func meanText(r *reader.DeviceReadings) string {
	text := fmt.Sprintf("%d readings", r.Count)
	if r.Busy >= 0 {
		text += fmt.Sprintf(", %.0f%% busy", r.Busy)
	}
	if r.MemoryBusy >= 0 {
		text += fmt.Sprintf(" (its memory %.0f%%)", r.MemoryBusy)
	}
	if r.MemoryUsed >= 0 {
		text += fmt.Sprintf(", %s used", bytesText(r.MemoryUsed))
	}
	if r.Power >= 0 && r.PowerLimit >= 0 {
		text += fmt.Sprintf(", %.0f of %.0f W", r.Power/1000, float64(r.PowerLimit)/1000)
	}
	if r.Temperature >= 0 {
		text += fmt.Sprintf(", %d °C at most", r.Temperature)
	}
	return text
}
