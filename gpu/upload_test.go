//go:build linux && (amd64 || arm64) && !nogpu

package gpu

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shardify/gpu/gputest"
	"shardify/gpu/internal/cuda"
	"shardify/imaging/transform"
	"shardify/reader"
)

// device opens a GPU: under `make test-gpu` a real one, else a test double of the driver.
func device(t testing.TB) *Device {
	t.Helper()
	if os.Getenv("SHARDIFY_GPU") == "require" {
		d, err := Open(0)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("on %s", d.Name())
		return d
	}
	driver, err := cuda.Open(gputest.CudaWithKernels(t, "kernels/kernels.c"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := open(driver, 0)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// shard writes a tar of n JPEGs with labels.
func shard(t testing.TB, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	for i := range n {
		m := image.NewRGBA(image.Rect(0, 0, 48, 40))
		for y := range 40 {
			for x := range 48 {
				m.Set(x, y, color.RGBA{uint8(5 * x), uint8(6 * y), uint8(13 * i), 255})
			}
		}
		var b bytes.Buffer
		if err := jpeg.Encode(&b, m, nil); err != nil {
			t.Fatal(err)
		}
		for _, e := range []struct {
			ext  string
			data []byte
		}{{"jpg", b.Bytes()}, {"cls", fmt.Append(nil, i%7)}} {
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%04d.%s", i, e.ext), Mode: 0o644, Size: int64(len(e.data))}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(e.data); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// batches opens a stream of small batches.
func batches(t testing.TB, path string, slabs reader.Slabs) *reader.Stream {
	t.Helper()
	r, err := reader.OpenStream(t.Context(), []string{path}, reader.Config{
		BatchSize: 8, Ends: reader.EndsExact, Seed: 3, Slabs: slabs, DType: reader.DTypeFloat32,
		Transform: transform.List{transform.RandomResizedCrop{Size: transform.Size{32}}, transform.RandomHorizontalFlip{}, transform.ImageNet},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// What comes out on the GPU are the reader's batches, byte for byte, with their places in
// the epoch; the slabs are pinned, and everything is freed.
func TestPrefetchBatches(t *testing.T) {
	d := device(t)
	free, total, err := d.Memory()
	if err != nil {
		t.Fatal(err)
	}
	path := shard(t, 50)
	type sent struct {
		number  int64
		state   reader.State
		samples []int64
		keys    []string
		tensors []reader.Tensor
	}
	var want []sent
	for b, err := range batches(t, path, nil).Epoch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		s := sent{b.Number(), b.State(), append([]int64{}, b.Samples()...), b.Keys(), b.Tensors()}
		for i := range s.tensors {
			s.tensors[i].Data = bytes.Clone(s.tensors[i].Data)
		}
		want = append(want, s)
		b.Release()
	}
	if len(want) != 7 {
		t.Fatalf("%d batches", len(want))
	}
	for _, limit := range []int64{0, 200000, 1} {
		pinned := d.Pinned(PinnedConfig{Limit: limit})
		r := batches(t, path, pinned)
		stream, err := d.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		begin := func(ctx context.Context) iter.Seq2[*reader.Batch, error] { return r.Epoch(ctx, 0) }
		i := 0
		for b, err := range Prefetch(t.Context(), d, begin, PrefetchConfig{Depth: 2, Keys: true}) {
			if err != nil {
				t.Fatal(err)
			}
			w := want[i]
			if !reflect.DeepEqual([]any{b.Number, b.Epoch, b.State, b.Samples, b.Keys}, []any{w.number, 0, w.state, w.samples, w.keys}) {
				t.Errorf("batch %d: %+v", i, b)
			}
			if err := b.Wait(stream); err != nil {
				t.Fatal(err)
			}
			for k, x := range b.Tensors() {
				of := w.tensors[k]
				if x.Name != of.Name || x.DType != of.DType || !slices.Equal(x.Shape, of.Shape) || x.Bytes != int64(len(of.Data)) {
					t.Errorf("batch %d: tensor %+v, want %s %v %v", i, x, of.Name, of.DType, of.Shape)
				}
				got := make([]byte, x.Bytes)
				if err := errors.Join(d.Download(got, x.Data, stream), d.Synchronize(stream)); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, of.Data) {
					t.Errorf("batch %d: tensor %s has other bytes", i, x.Name)
				}
			}
			if err := b.Release(stream); err != nil {
				t.Fatal(err)
			}
			if s := pinned.Stats(); limit == 0 && (s.Pinned == 0 || s.Ordinary != 0) || limit == 1 && (s.Pinned != 0 || s.Ordinary == 0) || limit > 1 && s.Pinned > limit {
				t.Errorf("under a limit of %d: %+v", limit, s)
			}
			i++
		}
		if i != len(want) {
			t.Errorf("%d batches", i)
		}
		if err := errors.Join(r.Close(), d.DestroyStream(stream), pinned.Close()); err != nil {
			t.Error(err)
		}
		if s := pinned.Stats(); s != (PinnedStats{}) {
			t.Errorf("left: %+v", s)
		}
	}
	// Three passes, and what they copied.
	var bytes int64
	for _, s := range want {
		for _, x := range s.tensors {
			bytes += 3 * int64(len(x.Data))
		}
	}
	st := d.Stats()
	if st.Device != "cuda:0" || st.Name == "" || st.Batches != int64(3*len(want)) || st.Bytes != bytes || st.Copying <= 0 || st.Rate() <= 0 ||
		st.Exposed > st.Copying || st.Hidden() < 0 || st.Elapsed < st.Waiting+st.Holding || st.FirstBatch <= 0 || st.WaitP99 < st.WaitP50 {
		t.Errorf("%+v", st)
	}
	if w := st.Waits; w.GPU+w.Reader+w.Upload+w.CPU != st.Waiting {
		t.Errorf("%+v of %v", w, st.Waiting)
	}
	if now, _, err := d.Memory(); err != nil || now < free {
		t.Errorf("%d of %d bytes were free, now %d, %v", free, total, now, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// NVML is read while a pass runs, also a short one; and where there is none, the statistics
// say why, and nothing else happens.
func TestReadings(t *testing.T) {
	if os.Getenv("SHARDIFY_GPU") == "require" {
		d := device(t)
		prefetchOnce(t, d)
		st := d.Stats()
		if r := st.Readings; r == nil || st.Unread != "" || r.Count < 1 || r.Busy > 100 || r.MemoryUsed <= 0 || r.MemoryTotal < r.MemoryUsed {
			t.Errorf("%+v: %+v", st, r)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		return
	}
	d, absent := device(t), device(t)
	path := gputest.NVML(t)
	d.monitor.open = func() (*cuda.NVML, error) { return cuda.OpenNVML(path) }
	absent.monitor.open = func() (*cuda.NVML, error) {
		return cuda.OpenNVML(filepath.Join(t.TempDir(), "libnvidia-ml.so.1"))
	}
	for range 2 {
		prefetchOnce(t, d)
		prefetchOnce(t, absent)
	}
	want := reader.DeviceReadings{Count: 2, Busy: 93, MemoryBusy: 41, MemoryUsed: 24 << 20, MemoryTotal: 1 << 30, Power: 311500, PowerLimit: 700000, Temperature: 47}
	if st := d.Stats(); st.Readings == nil || *st.Readings != want || st.Unread != "" {
		t.Errorf("%+v: %+v", st, st.Readings)
	}
	if st := absent.Stats(); st.Readings != nil || !strings.Contains(st.Unread, "NVML is not available") || !strings.Contains(st.Unread, "libnvidia-ml") {
		t.Errorf("%+v", st)
	}
	if err := errors.Join(d.Close(), absent.Close()); err != nil {
		t.Error(err)
	}
	if _, err := d.monitor.read("10de:1b:00.0"); err == nil {
		t.Error("NVML was read after Close")
	}
}

// prefetchOnce runs a pass of one batch.
func prefetchOnce(t *testing.T, d *Device) {
	t.Helper()
	r := batches(t, shard(t, 3), nil)
	begin := func(ctx context.Context) iter.Seq2[*reader.Batch, error] { return r.Epoch(ctx, 0) }
	for b, err := range Prefetch(t.Context(), d, begin, PrefetchConfig{}) {
		if err == nil {
			err = errors.Join(b.Wait(0), b.Release(0))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestPinned(t *testing.T) {
	d := device(t)
	p := d.Pinned(PinnedConfig{Limit: 10 << 20})
	var all [][]byte
	for range 3 {
		b, err := p.Alloc(4 << 20)
		if err != nil {
			t.Fatal(err)
		}
		b[0], b[len(b)-1] = 1, 2
		all = append(all, b)
	}
	if s := p.Stats(); s != (PinnedStats{Pinned: 8 << 20, Ordinary: 4 << 20}) {
		t.Errorf("%+v", s)
	}
	if err := p.Close(); err == nil || !strings.Contains(err.Error(), "3 slabs were not given back") {
		t.Error(err)
	}
	for _, b := range all {
		p.Free(b)
	}
	if s := p.Stats(); s != (PinnedStats{}) || p.Close() != nil {
		t.Errorf("%+v, %v", s, p.Close())
	}
	if _, err := p.Alloc(0); err == nil {
		t.Error("a slab of no bytes")
	}
	memory, err := mapMemory(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	unpin, err := d.Pin(memory)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Pin(memory); err == nil {
		t.Error("pinned twice")
	}
	if err := errors.Join(unpin(), unmapMemory(memory), d.Close()); err != nil {
		t.Error(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("memory was freed that is not there")
		}
	}()
	p.Free(make([]byte, 10))
}

// What the driver does not pin is ordinary memory.
func TestPinnedRefused(t *testing.T) {
	if os.Getenv("SHARDIFY_GPU") == "require" {
		t.Skip("SKIPPED LOUDLY: a real driver refuses only when the machine's memory is full; make test has the test")
	}
	t.Setenv("FAKE_CUDA_PINNED_MIB", "6")
	d := device(t)
	p := d.Pinned(PinnedConfig{})
	a, err := p.Alloc(4 << 20)
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.Alloc(4 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if s := p.Stats(); s != (PinnedStats{Pinned: 4 << 20, Refused: 4 << 20}) {
		t.Errorf("%+v", s)
	}
	p.Free(a)
	p.Free(b)
	if err := errors.Join(p.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}
