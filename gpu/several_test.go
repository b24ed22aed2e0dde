//go:build linux && (amd64 || arm64) && !nogpu

package gpu

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"os"
	"testing"

	"shardify/gpu/gputest"
	"shardify/gpu/internal/cuda"
	"shardify/reader"
)

// devices opens all GPUs: of `make test-gpu` those of the machine, else two of the double.
func devices(t *testing.T) []*Device {
	t.Helper()
	driver, err := cuda.Default()
	if os.Getenv("SHARDIFY_GPU") != "require" {
		driver, err = cuda.Open(gputest.Cuda(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	n, err := driver.Devices()
	if err != nil {
		t.Fatal(err)
	}
	var all []*Device
	for i := range n {
		d, err := open(driver, i)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

// One process feeds all GPUs from one pass: the batches go to them in turn, come out in the
// pass's order, each is on its GPU byte for byte, and everything is freed; also where the
// loop is left, the pass fails, or the context is cancelled.
func TestPrefetchAll(t *testing.T) {
	all := devices(t)
	var free []int64
	for _, d := range all {
		n, _, err := d.Memory()
		if err != nil {
			t.Fatal(err)
		}
		free = append(free, n)
	}
	path := shard(t, 50)
	var want [][]byte
	for b, err := range batches(t, path, nil).Epoch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, bytes.Clone(b.Tensors()[0].Data))
		b.Release()
	}
	broken := errors.New("no more")
	for _, c := range []struct {
		name               string
		leave, fail, stops int // after so many batches; 0: not
		want               int
		err                error
	}{
		{name: "whole", want: len(want)},
		{name: "left", leave: 3, want: 3},
		{name: "source fails", fail: 4, want: 4, err: broken},
		{name: "cancelled", stops: 2, want: 2, err: context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			pinned := all[0].Pinned(PinnedConfig{})
			r := batches(t, path, pinned)
			ended := false
			begin := func(ctx context.Context) iter.Seq2[*reader.Batch, error] {
				return func(yield func(*reader.Batch, error) bool) {
					defer func() { ended = true }()
					n := 0
					for b, err := range r.Epoch(ctx, 0) {
						if c.fail > 0 && n == c.fail {
							b.Release()
							yield(nil, broken)
							return
						}
						if n++; !yield(b, err) {
							return
						}
					}
				}
			}
			came, end := 0, error(nil)
			for b, err := range PrefetchAll(ctx, all, begin, PrefetchConfig{Depth: 2}) {
				if err != nil {
					end = err
					continue
				}
				d := all[came%len(all)]
				if b.Device != d || int(b.Number) != came {
					t.Errorf("batch %d in the place of %d, on %s", b.Number, came, b.Device.Name())
				}
				x := b.Tensors()[0]
				got := make([]byte, x.Bytes)
				if err := errors.Join(b.Wait(0), d.Download(got, x.Data, 0), d.Synchronize(0), b.Release(0)); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want[came]) {
					t.Errorf("batch %d has other bytes", came)
				}
				if came++; came == c.stops {
					cancel()
				}
				if came == c.leave {
					break
				}
			}
			if came != c.want || !errors.Is(end, c.err) || c.err == nil && end != nil || !ended {
				t.Errorf("%d batches came, %v; the source has ended: %v", came, end, ended)
			}
			if err := errors.Join(r.Close(), pinned.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	if len(all) > 1 {
		if a, b := all[0].Stats(), all[1].Stats(); a.Batches == 0 || b.Batches == 0 || a.Device == b.Device {
			t.Errorf("%+v, %+v", a, b)
		}
	}
	for b, err := range PrefetchAll(t.Context(), nil, nil, PrefetchConfig{}) {
		if b != nil || err == nil {
			t.Error("a batch for no GPU")
		}
	}
	for i, d := range all {
		if now, _, err := d.Memory(); err != nil || now < free[i] {
			t.Errorf("%s: %d bytes were free, now %d, %v", d.Name(), free[i], now, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// One GPU of several that fails ends the loop with its error, and nothing waits for ever.
func TestPrefetchAllGPUFails(t *testing.T) {
	if os.Getenv("SHARDIFY_GPU") == "require" {
		t.Skip("SKIPPED LOUDLY: a real GPU does not fail on request; make test has the test")
	}
	path := shard(t, 50)
	for _, fault := range []string{"cuMemcpyHtoDAsync_v2:4:700", "cuMemAlloc_v2:2:2", "cuEventSynchronize:3:719", "cuStreamWaitEvent:5:719", "cuStreamCreate:2:2"} {
		t.Setenv("FAKE_CUDA_FAIL", fault)
		all := devices(t)
		r := batches(t, path, nil)
		begin := func(ctx context.Context) iter.Seq2[*reader.Batch, error] { return r.Epoch(ctx, 0) }
		var end error
		for b, err := range PrefetchAll(t.Context(), all, begin, PrefetchConfig{Depth: 2}) {
			if err == nil {
				err = errors.Join(b.Wait(0), b.Release(0))
			}
			end = errors.Join(end, err)
		}
		if !errors.Is(end, ErrContextLost) && !errors.Is(end, ErrOutOfMemory) {
			t.Errorf("%s: ended with %v", fault, end)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		for _, d := range all {
			if err := d.Close(); err != nil && !errors.Is(err, ErrContextLost) {
				t.Error(err)
			}
		}
	}
}
