//go:build linux && (amd64 || arm64) && !nogpu

package gpu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"shardify/imaging/tensor"
	"shardify/reader"
)

// A floor is a ratio that is promised of a card: docs/gpu.md lists them.
type floor struct {
	Name string  `json:"name"`
	Got  float64 `json:"got"`
	Want float64 `json:"want"`
	// AtMost: Want is the most that it may be, instead of the least.
	AtMost bool   `json:"at_most,omitempty"`
	Detail string `json:"detail"`
}

func (f floor) holds() bool { return f.AtMost && f.Got <= f.Want || !f.AtMost && f.Got >= f.Want }

// floorsRun measures the floors on a card: everything that a ratio is made of in turn, in
// rounds, of which medians count.
type floorsRun struct {
	device *Device
	// batch is how many images a batch has, side how high and wide they are.
	batch, side int
	rounds      int
	// least is how long one measurement takes.
	least time.Duration

	stream Stream
	host   []pinnedBatch
	card   []Tensor // the same on the card
	out    []Tensor // float32
}

// BenchmarkFloors prints every floor that this package can measure, and whether it holds.
func BenchmarkFloors(b *testing.B) {
	d := card(b)
	f := &floorsRun{device: d, batch: benchBatch, side: benchSide, rounds: 5, least: 500 * time.Millisecond}
	for b.Loop() {
		all, err := f.measure(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := printFloors(os.Stdout, d.Name(), all); err != nil {
			b.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		b.Error(err)
	}
}

// What BenchmarkFloors does on a card, small and on the double: the ratios themselves mean
// nothing there.
func TestFloors(t *testing.T) {
	d := device(t)
	free, _, err := d.Memory()
	if err != nil {
		t.Fatal(err)
	}
	f := &floorsRun{device: d, batch: 8, side: 32, rounds: 1, least: time.Millisecond}
	all, err := f.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range all {
		names = append(names, x.Name)
		if !(x.Got >= 0 && x.Got < 1e6) || x.Detail == "" {
			t.Errorf("%+v", x)
		}
	}
	want := []string{
		"upload: ring / bare loop", "overlap: copy time hidden", "overlap: load with uploads / alone",
		"normalise float32 NCHW / device copy", "normalise float32 NHWC / device copy", "normalise bfloat16 NCHW / device copy", "normalise bfloat16 NHWC / device copy",
	}
	if !slices.Equal(names, want) {
		t.Errorf("measured %q, want %q", names, want)
	}
	if err := printFloors(t.Output(), d.Name(), all); err != nil {
		t.Error(err)
	}
	if now, _, err := d.Memory(); err != nil || now < free {
		t.Errorf("%d bytes were free, now %d, %v", free, now, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		f    floor
		want bool
	}{{floor{Got: 0.95, Want: 0.95}, true}, {floor{Got: 0.94, Want: 0.95}, false}, {floor{Got: 1.03, Want: 1.03, AtMost: true}, true}, {floor{Got: 1.04, Want: 1.03, AtMost: true}, false}} {
		if c.f.holds() != c.want {
			t.Errorf("%+v", c.f)
		}
	}
}

func printFloors(w io.Writer, name string, all []floor) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\n%s\n", name)
	for _, f := range all {
		sign, verdict := "≥", "holds"
		if f.AtMost {
			sign = "≤"
		}
		if !f.holds() {
			verdict = "FALLS SHORT"
		}
		fmt.Fprintf(t, "%s\t%.3f\t%s %.2f\t%s\t%s\n", f.Name, f.Got, sign, f.Want, verdict, f.Detail)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	text, err := json.Marshal(all)
	if err == nil {
		_, err = fmt.Fprintf(w, "floors %s\n", text)
	}
	return err
}

func (f *floorsRun) measure(ctx context.Context) (all []floor, err error) {
	d, p := f.device, f.device.Pinned(PinnedConfig{})
	defer func() {
		for _, b := range f.host {
			p.Free(b.data)
		}
		for _, t := range append(f.card, f.out...) {
			err = errors.Join(err, d.Free(t))
		}
		if f.stream != 0 {
			err = errors.Join(err, d.DestroyStream(f.stream))
		}
		err = errors.Join(err, p.Close())
	}()
	if f.stream, err = d.NewStream(); err != nil {
		return nil, err
	}
	for range 4 {
		data, err := p.Alloc(f.bytes())
		if err != nil {
			return nil, err
		}
		for i := range data {
			data[i] = byte(i * 7919 >> 3)
		}
		f.host = append(f.host, pinnedBatch{data})
		t, err := d.Alloc("image", reader.DTypeUint8, f.batch, f.side, f.side, 3)
		if err != nil {
			return nil, err
		}
		f.card = append(f.card, t)
		if err := d.Upload(t.Data, data, f.stream); err != nil {
			return nil, err
		}
	}
	for range 2 {
		t, err := d.Alloc("out", reader.DTypeFloat32, f.batch, 3, f.side, f.side)
		if err != nil {
			return nil, err
		}
		f.out = append(f.out, t)
	}
	if s := p.Stats(); s.Pinned != 4*f.bytes() {
		return nil, fmt.Errorf("only %d bytes could be pinned", s.Pinned)
	}
	for _, part := range []func(context.Context) ([]floor, error){f.uploads, f.overlap, f.normalize} {
		some, err := part(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// bytes are those of a batch.
func (f *floorsRun) bytes() int64 { return int64(f.batch) * int64(f.side) * int64(f.side) * 3 }

// timed runs work n times and waits for the stream; it returns the time of one.
func (f *floorsRun) timed(n int, work func(n int) error) (time.Duration, error) {
	start := time.Now()
	err := errors.Join(work(n), f.device.Synchronize(f.stream))
	return max(time.Since(start)/time.Duration(n), 1), err
}

// rate is timed, as often as takes long enough.
func (f *floorsRun) rate(work func(n int) error) (one time.Duration, n int, err error) {
	for n = 1; ; n *= 2 {
		if one, err = f.timed(n, work); err != nil || one*time.Duration(n) >= f.least {
			return one, n, err
		}
	}
}

// turns measures works in turn, round by round, each as often as takes long enough; medians.
func (f *floorsRun) turns(works ...func(n int) error) ([]time.Duration, error) {
	times, counts := make([][]time.Duration, len(works)), make([]int, len(works))
	for i, work := range works { // which also warms up
		var err error
		if _, counts[i], err = f.rate(work); err != nil {
			return nil, err
		}
	}
	for range f.rounds {
		for i, work := range works {
			one, err := f.timed(counts[i], work)
			if err != nil {
				return nil, err
			}
			times[i] = append(times[i], one)
		}
	}
	medians := make([]time.Duration, len(works))
	for i, all := range times {
		slices.Sort(all)
		medians[i] = all[len(all)/2]
	}
	return medians, nil
}

func gigabytes(bytes int64, d time.Duration) float64 { return float64(bytes) / d.Seconds() / 1e9 }

// ring has n batches go through the ring, with work on each in the consumer's stream.
func (f *floorsRun) ring(ctx context.Context, n int, work func(i int) error) error {
	source := func(context.Context) iter.Seq2[host, error] {
		return func(yield func(host, error) bool) {
			for i := range n {
				if !yield(f.host[i%len(f.host)], nil) {
					return
				}
			}
		}
	}
	i := 0
	for b, err := range prefetch(ctx, f.device.context, &f.device.meter, source, func(*Batch, host, PrefetchConfig) {}, PrefetchConfig{}) {
		if err == nil {
			err = errors.Join(b.Wait(f.stream), work(i), b.Release(f.stream))
		}
		if err != nil {
			return err
		}
		i++
	}
	return nil
}

// bare copies the same batches in a loop.
func (f *floorsRun) bare(n int) error {
	for i := range n {
		if err := f.device.Upload(f.card[i%len(f.card)].Data, f.host[i%len(f.host)].data, f.stream); err != nil {
			return err
		}
	}
	return nil
}

func (f *floorsRun) uploads(ctx context.Context) ([]floor, error) {
	t, err := f.turns(f.bare, func(n int) error { return f.ring(ctx, n, func(int) error { return nil }) })
	if err != nil {
		return nil, err
	}
	return []floor{{
		Name: "upload: ring / bare loop", Got: t[0].Seconds() / t[1].Seconds(), Want: 0.95,
		Detail: fmt.Sprintf("%.2f and %.2f GB/s, batches of %.1f MB, pinned", gigabytes(f.bytes(), t[1]), gigabytes(f.bytes(), t[0]), float64(f.bytes())/1e6),
	}}, nil
}

// overlap is of a load that takes twice as long as the copies beside it: kernels that keep
// the card's memory busy, which is where copies come, too.
func (f *floorsRun) overlap(ctx context.Context) ([]floor, error) {
	c := NormalizeConfig{Layout: reader.LayoutNCHW, Normalize: tensor.ImageNet}
	kernel := func(i int) error { return f.device.Normalize(f.out[i%2], f.card[i%len(f.card)], c, f.stream) }
	kernels := func(n int) error {
		for i := range n {
			if err := kernel(i); err != nil {
				return err
			}
		}
		return nil
	}
	if err := kernels(1); err != nil { // it is compiled
		return nil, err
	}
	one, _, err := f.rate(kernels)
	if err != nil {
		return nil, err
	}
	upload, _, err := f.rate(f.bare)
	if err != nil {
		return nil, err
	}
	each := int(2*upload/one) + 1
	step := func(int) error { return kernels(each) }
	alone := func(n int) error {
		for i := range n {
			if err := step(i); err != nil {
				return err
			}
		}
		return nil
	}
	before := f.device.Stats()
	t, err := f.turns(alone, func(n int) error { return f.ring(ctx, n, step) })
	if err != nil {
		return nil, err
	}
	after := f.device.Stats()
	copying, exposed := after.Copying-before.Copying, after.Exposed-before.Exposed
	detail := fmt.Sprintf("steps of %d kernels, %.2f ms alone, %.2f ms with an upload of %.2f ms each", each, t[0].Seconds()*1e3, t[1].Seconds()*1e3, upload.Seconds()*1e3)
	return []floor{
		{Name: "overlap: copy time hidden", Got: 1 - exposed.Seconds()/max(copying.Seconds(), 1e-9), Want: 0.97, Detail: fmt.Sprintf("%v of %v exposed, %d of %d batches late", exposed, copying, after.Late-before.Late, after.Batches-before.Batches)},
		{Name: "overlap: load with uploads / alone", Got: t[1].Seconds() / t[0].Seconds(), Want: 1.03, AtMost: true, Detail: detail},
	}, nil
}

func (f *floorsRun) normalize(context.Context) (all []floor, err error) {
	for _, dtype := range []reader.DType{reader.DTypeFloat32, reader.DTypeBFloat16} {
		for _, layout := range []reader.Layout{reader.LayoutNCHW, reader.LayoutNHWC} {
			c := NormalizeConfig{Layout: layout, Normalize: tensor.ImageNet}
			shape := []int{f.batch, 3, f.side, f.side}
			if layout == reader.LayoutNHWC {
				shape = []int{f.batch, f.side, f.side, 3}
			}
			out := make([]Tensor, len(f.out))
			for i, t := range f.out {
				out[i] = Tensor{Name: t.Name, DType: dtype, Shape: shape, Data: t.Data, Bytes: f.bytes() * int64(dtype.Size())}
			}
			// Both move as many bytes, counting those read and those written.
			moved := f.bytes() * int64(1+dtype.Size())
			half := moved / 2
			t, err := f.turns(func(n int) error {
				for i := range n {
					if err := f.device.context.Copy(f.out[i%2].Data, f.out[1-i%2].Data, half, f.stream); err != nil {
						return err
					}
				}
				return nil
			}, func(n int) error {
				for i := range n {
					if err := f.device.Normalize(out[i%2], f.card[i%len(f.card)], c, f.stream); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
			all = append(all, floor{
				Name: fmt.Sprintf("normalise %s %v / device copy", dtype, layout), Got: t[0].Seconds() / t[1].Seconds(), Want: 0.8,
				Detail: fmt.Sprintf("%.0f and %.0f GB/s read and written", gigabytes(moved, t[1]), gigabytes(moved, t[0])),
			})
		}
	}
	return all, nil
}
