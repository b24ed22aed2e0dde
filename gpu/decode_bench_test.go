//go:build linux && (amd64 || arm64) && !nogpu

package gpu

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"shardify/gpu/internal/cuda"
	"shardify/imaging/augment"
	"shardify/imaging/jpeg"
	"shardify/internal/peers"
	"shardify/reader"
)

// pinnedFiles is a batch of files in pinned memory, that is never given back.
type pinnedFiles struct {
	data   [][]byte
	number *int64
}

func (f pinnedFiles) Tensors() []reader.Tensor { return nil }
func (f pinnedFiles) Release()                 {}
func (f pinnedFiles) Len() int                 { return len(f.data) }
func (f pinnedFiles) Samples() []int64 {
	n := make([]int64, len(f.data))
	for i := range n {
		n[i] = *f.number
		*f.number++
	}
	return n
}
func (f pinnedFiles) Random(int) augment.Rand                 { return augment.Rand{} }
func (f pinnedFiles) Field(i int, name string) ([]byte, bool) { return f.data[i], name == "jpg" }
func (f pinnedFiles) Fault(i int, field string, err error) *reader.SampleError {
	return &reader.SampleError{Field: field, Err: err}
}

// common: a file is of a kind that every backend of nvJPEG takes.
func common(data []byte) bool {
	h, err := jpeg.ReadHeader(data)
	one := [2]int{1, 1}
	return err == nil && h.Coding == "baseline" && h.Model == jpeg.YCbCr && h.OneScan && h.Sampling[0][0] <= 2 && h.Sampling[0][1] <= 2 && h.Sampling[1] == one && h.Sampling[2] == one
}

// baselineFiles are the first baseline ones of the sample, of 256 at most.
func baselineFiles(b testing.TB) (all [][]byte) {
	paths, err := filepath.Glob(filepath.Join(peers.Photographs(b), "*"))
	if err != nil {
		b.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join(peers.Photographs(b), "*", "*"))
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range append(paths, more...) {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // a folder
		}
		if !common(data) {
			continue
		}
		all = append(all, data)
		if len(all) == benchBatch {
			break
		}
	}
	if len(all) == 0 {
		b.Fatal("no photographs")
	}
	return all
}

// jpegRun measures nvJPEG through Decode beside nvJPEG alone.
type jpegRun struct {
	device *jpegCard
	files  [][]byte // baseline ones
	rounds int
	least  time.Duration // for each measurement
}

// BenchmarkJPEG prints the floor of docs/gpu.md, of photographs.
func BenchmarkJPEG(b *testing.B) {
	d := card(b)
	f := &jpegRun{device: &jpegCard{Device: d, real: true}, files: baselineFiles(b), rounds: 5, least: 500 * time.Millisecond}
	for b.Loop() {
		x, err := f.measure(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := printFloors(os.Stdout, d.Name(), []floor{x}); err != nil {
			b.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		b.Error(err)
	}
}

// What BenchmarkJPEG does on a card, small and on the double, where the ratio means nothing.
func TestJPEGFloor(t *testing.T) {
	entries := slices.DeleteFunc(corpus(t, "corpus.zip"), func(e entry) bool { return e.err != nil || !e.baseline || !common(e.data) })[:20]
	x := newJPEGCard(t)
	x.knows(t, entries)
	f := &jpegRun{device: x, rounds: 2, least: time.Millisecond}
	for _, e := range entries {
		f.files = append(f.files, e.data)
	}
	got, err := f.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !(got.Got > 0 && got.Got < 1e6) || got.Want != 0.95 || got.Detail == "" {
		t.Errorf("%+v", got)
	}
	x.clean(t)
}

// measure takes turns: nvJPEG's batches in a loop, Decode by the card alone, by both, by the
// CPU alone.
func (f *jpegRun) measure(ctx context.Context) (x floor, err error) {
	d := f.device
	pinned := d.Pinned(PinnedConfig{})
	size := int64(0)
	for _, data := range f.files {
		size += int64(len(data))
	}
	memory, err := pinned.Alloc(size)
	if err != nil {
		return x, err
	}
	defer func() {
		pinned.Free(memory)
		err = errors.Join(err, pinned.Close())
	}()
	files, at := pinnedFiles{make([][]byte, len(f.files)), new(int64)}, 0
	for i, data := range f.files {
		files.data[i] = memory[at:][:len(data):len(data)]
		at += copy(files.data[i], data)
	}
	var rates [4][]float64
	for range f.rounds {
		for k := range rates {
			n := 2 // batches
			for {
				var took time.Duration
				if k == 0 {
					took, err = f.bare(files.data, n)
				} else {
					took, err = f.decode(ctx, files, []float64{1, 0, -1}[k-1], n)
				}
				if err != nil {
					return x, err
				}
				if took >= f.least {
					rates[k] = append(rates[k], float64(n*len(f.files))/took.Seconds())
					break
				}
				n *= 2
			}
		}
	}
	var median [4]float64
	for k, r := range rates {
		slices.Sort(r)
		median[k] = r[len(r)/2]
	}
	return floor{
		Name: "JPEG: Decode on the card / nvJPEG's batches", Got: median[1] / median[0], Want: 0.95,
		Detail: fmt.Sprintf("%d files: %.0f and %.0f images/s; card and CPU %.0f, CPU alone %.0f", len(f.files), median[1], median[0], median[2], median[3]),
	}, nil
}

// bare has nvJPEG decode n batches, two on their way.
func (f *jpegRun) bare(data [][]byte, n int) (took time.Duration, err error) {
	d := f.device
	var undo []func() error
	defer func() {
		for _, u := range slices.Backward(undo) {
			err = errors.Join(err, u())
		}
	}()
	library, err := cuda.OpenNVJPEG(d.context.Driver(), d.nvjpeg...)
	if err != nil {
		return 0, err
	}
	codec, err := d.newCodec(library, BackendAuto, 0)
	if err != nil {
		return 0, err
	}
	undo = append(undo, codec.Close)
	stream, err := d.NewStream()
	if err != nil {
		return 0, err
	}
	undo = append(undo, func() error { return d.DestroyStream(stream) })
	type lane struct {
		state *cuda.State
		files []cuda.JPEG
		done  cuda.Event
	}
	var lanes [2]lane
	for k := range lanes {
		l := &lanes[k]
		size := int64(0)
		for _, data := range data {
			if ok, err := codec.Supports(data, cuda.Region{}); err != nil || !ok {
				return 0, errors.Join(err, errors.New("nvJPEG does not take one of the files"))
			}
			h, err := jpeg.ReadHeader(data)
			if err != nil {
				return 0, err
			}
			l.files = append(l.files, cuda.JPEG{Data: data, Dst: Pointer(size), Pitch: 3 * h.Width})
			size += 3 * int64(h.Width) * int64(h.Height)
		}
		dst, err := d.context.Alloc(size)
		if err != nil {
			return 0, err
		}
		undo = append(undo, func() error { return d.context.Free(dst) })
		for i := range l.files {
			l.files[i].Dst += dst
		}
		if l.state, err = codec.NewState(); err != nil {
			return 0, err
		}
		undo = append(undo, l.state.Close)
		if l.done, err = d.context.NewEvent(false); err != nil {
			return 0, err
		}
		undo = append(undo, func() error { return d.context.DestroyEvent(l.done) })
	}
	begin := time.Now()
	for i := range n + 2 {
		if i == 2 { // nvJPEG has its memory
			if err := d.Synchronize(stream); err != nil {
				return 0, err
			}
			begin = time.Now()
		}
		l := &lanes[i%2]
		if err := errors.Join(d.context.SynchronizeEvent(l.done), l.state.Decode(l.files, 1, stream), d.context.Record(l.done, stream)); err != nil {
			return 0, err
		}
	}
	err = d.Synchronize(stream)
	return time.Since(begin), err
}

// decode has Decode make n batches, behind those with which it takes its memory and learns
// rates.
func (f *jpegRun) decode(ctx context.Context, files pinnedFiles, share float64, n int) (took time.Duration, err error) {
	const before = 12
	source := func(context.Context) iter.Seq2[host, error] {
		return func(yield func(host, error) bool) {
			for range before + n {
				if !yield(files, nil) {
					return
				}
			}
		}
	}
	d := f.device
	stream, err := d.NewStream()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.DestroyStream(stream)) }()
	var begin time.Time
	c, k := DecodeConfig{Share: share}, 0
	for x, err := range prefetchWith(ctx, d.context, &d.meter, source, func(*Batch, host, PrefetchConfig) {}, c.PrefetchConfig, func() (*decoding, error) { return d.decoding(c) }) {
		if err == nil {
			err = errors.Join(x.Wait(stream), x.Release(stream))
		}
		if err != nil {
			return 0, err
		}
		if k++; k == before {
			if err := d.Synchronize(stream); err != nil {
				return 0, err
			}
			begin = time.Now()
		}
	}
	err = d.Synchronize(stream)
	return time.Since(begin), err
}
