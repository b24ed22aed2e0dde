//go:build linux && (amd64 || arm64) && !nogpu

package gpu

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"shardify/gpu/gputest"
	"shardify/gpu/internal/cuda"
	"shardify/imaging/tensor"
	"shardify/reader"
)

// opener opens the same GPU again and again: by one driver, as a process has one.
func opener(t *testing.T) func() *Device {
	t.Helper()
	driver, err := cuda.Default()
	if os.Getenv("SHARDIFY_GPU") != "require" {
		driver, err = cuda.Open(gputest.CudaWithKernels(t, "kernels/kernels.c"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() *Device {
		t.Helper()
		d, err := open(driver, 0)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
}

// Whatever is done with a GPU, and however it ends, nothing is left of it: by the driver's
// own account of its memory, and on the double by the number of all things that must be
// freed.
func TestNothingIsLeft(t *testing.T) {
	counts := t.TempDir()
	t.Setenv("FAKE_CUDA_COUNTS", counts)
	again := opener(t)
	path := shard(t, 50)
	var first int64
	const rounds = 12
	for round := range rounds {
		d := again()
		free, _, err := d.Memory()
		if err != nil {
			t.Fatal(err)
		}
		// The first opening may leave what the driver keeps for the process.
		if round == 1 {
			first = free
		}
		if round > 1 && free < first-8<<20 {
			t.Fatalf("round %d began with %d bytes free, the second one with %d", round, free, first)
		}
		life(t, d, path, round)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getenv("SHARDIFY_GPU") == "require" {
		return
	}
	data, err := os.ReadFile(filepath.Join(counts, strconv.Itoa(os.Getpid())))
	if err != nil || len(data) < 7*8 {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	for kind := range len(data) / 8 {
		if n := binary.LittleEndian.Uint64(data[8*kind:]); n != 0 {
			t.Errorf("%d things of kind %d are left", n, kind)
		}
	}
}

// life uses all of a device that takes anything.
func life(t *testing.T, d *Device, path string, round int) {
	t.Helper()
	check := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	// A pass that ends, one that is left, one that is cancelled; batches that are held
	// until it is over.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pinned := d.Pinned(PinnedConfig{Limit: []int64{0, 200000, 1}[round%3]})
	r := batches(t, path, pinned)
	stream, err := d.NewStream()
	check(err)
	var held []*Batch
	begin := func(ctx context.Context) iter.Seq2[*reader.Batch, error] { return r.Epoch(ctx, round) }
	n := 0
	for b, err := range Prefetch(ctx, d, begin, PrefetchConfig{Depth: 3}) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			break
		}
		check(b.Wait(stream))
		if held = append(held, b); len(held) > 2 {
			check(held[0].Release(stream))
			held = held[1:]
		}
		if n++; n == 4 && round%4 == 1 {
			break
		}
		if n == 4 && round%4 == 2 {
			cancel()
		}
	}
	for _, b := range held {
		check(b.Release(stream))
	}
	// Kernels, and memory of every sort.
	src, err := d.Alloc("image", reader.DTypeUint8, 2, 8, 8, 3)
	check(err)
	dst, err := d.Alloc("image", reader.DTypeFloat32, 2, 3, 8, 8)
	check(err)
	pixels := make([]byte, src.Bytes)
	check(d.Upload(src.Data, pixels, stream), d.Normalize(dst, src, NormalizeConfig{Normalize: tensor.ImageNet}, stream))
	g, err := d.NewAugmenter(AugmenterConfig{Images: 2, Width: 8, Height: 8})
	check(err)
	z, err := d.NewResizer(ResizerConfig{Images: 2})
	check(err)
	memory, err := mapMemory(1 << 16)
	check(err)
	unpin, err := d.Pin(memory)
	check(err)
	check(d.Synchronize(stream), unpin(), unmapMemory(memory), z.Close(), g.Close(), d.Free(src), d.Free(dst), r.Close(), d.DestroyStream(stream), pinned.Close())
}

// Who opens a GPU twice, as two libraries of a process do, has one context: what one has
// the other uses, and either may close first.
func TestContextIsShared(t *testing.T) {
	again := opener(t)
	a, b := again(), again()
	x, err := a.Alloc("image", reader.DTypeUint8, 1000)
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	sent, got := bytes.Repeat([]byte{1, 2, 3, 4, 5}, 200), make([]byte, 1000)
	if err := errors.Join(b.Upload(x.Data, sent, s), b.Synchronize(s), b.Close(), a.Download(got, x.Data, s), a.Synchronize(s)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Error("one context has other bytes than the other")
	}
	if err := errors.Join(a.DestroyStream(s), a.Free(x), a.Close()); err != nil {
		t.Error(err)
	}
}

// astray is set in the process in which a kernel goes astray.
const astray = "SHARDIFY_GPU_ASTRAY"

// A kernel that goes astray is an error from then on, in every call, and a pass of Prefetch
// ends with it; the process goes on. (It can do nothing more with the GPU, so it is one of
// its own. The double only says that a kernel did.)
func TestKernelAstray(t *testing.T) {
	if os.Getenv(astray) == "" {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(exe, "-test.run=^TestKernelAstray$", "-test.v", "-test.count=1")
		cmd.Env = append(os.Environ(), astray+"=1")
		if os.Getenv("SHARDIFY_GPU") != "require" {
			cmd.Env = append(cmd.Env, "FAKE_CUDA_FAIL=cuStreamSynchronize:2:700")
		}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestKernelAstray") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	d := device(t)
	pinned := d.Pinned(PinnedConfig{})
	slab, err := pinned.Alloc(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	dst, err := d.Alloc("image", reader.DTypeFloat32, 2, 3, 8, 8)
	if err != nil {
		t.Fatal(err)
	}
	src, err := d.Alloc("image", reader.DTypeUint8, 2, 8, 8, 3)
	if err != nil {
		t.Fatal(err)
	}
	normalize := func() error {
		return errors.Join(d.Normalize(dst, src, NormalizeConfig{Normalize: tensor.ImageNet}, 0), d.Synchronize(0))
	}
	if err := normalize(); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("SHARDIFY_GPU") == "require" {
		src.Data = 1 << 20 // nobody's memory
	}
	if err := normalize(); !errors.Is(err, ErrContextLost) {
		t.Fatalf("a kernel that went astray: %v", err)
	}
	if _, _, err := d.Memory(); !errors.Is(err, ErrContextLost) {
		t.Error(err)
	}
	if _, err := pinned.Alloc(1 << 16); !errors.Is(err, ErrContextLost) {
		t.Error(err)
	}
	r := batches(t, shard(t, 50), nil)
	begin := func(ctx context.Context) iter.Seq2[*reader.Batch, error] { return r.Epoch(ctx, 0) }
	var end error
	for b, err := range Prefetch(t.Context(), d, begin, PrefetchConfig{}) {
		if b != nil {
			t.Error("a batch came")
		}
		end = err
	}
	if !errors.Is(end, ErrContextLost) {
		t.Errorf("a pass ended with %v", end)
	}
	pinned.Free(slab)
	if err := pinned.Close(); !errors.Is(err, ErrContextLost) {
		t.Errorf("pinned memory was freed: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	_ = d.Close() // whatever the driver says to that
}
