//go:build linux && (amd64 || arm64) && !nogpu

package gpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"shardify/gpu/gputest"
	"shardify/gpu/internal/cuda"
	"shardify/imaging/augment"
	"shardify/imaging/transform"
	"shardify/reader"
)

// What comes to the GPU is what a reader would have made in the host's memory, to the last
// bit, whatever of it is done there; also where copies are done as late as they may be.
func TestUploader(t *testing.T) {
	t.Setenv("FAKE_CUDA_LATE_COPIES", "1")
	path := shard(t, 20)
	crop := transform.RandomResizedCrop{Size: transform.Size{32}}
	mix := augment.MixUp{Alpha: 0.3}
	augmented := transform.List{crop, transform.RandomHorizontalFlip{P: 0.5}, transform.ColorJitter{Brightness: augment.GainOf(0.4)}, transform.ImageNet}
	for _, c := range []struct {
		name   string
		config reader.Config
		onCard bool
		all    bool // the card transforms
	}{
		{"bytes", reader.Config{Transform: transform.List{crop}}, false, false},
		{"bytes, channels last", reader.Config{Transform: transform.List{crop}, Layout: reader.LayoutNHWC}, false, false},
		{"float16", reader.Config{Transform: transform.List{crop, transform.ImageNet}, DType: reader.DTypeFloat16}, true, false},
		{"bfloat16, channels last", reader.Config{Transform: transform.List{crop, transform.ImageNet}, DType: reader.DTypeBFloat16, Layout: reader.LayoutNHWC}, true, false},
		{"float32, not normalised", reader.Config{Transform: transform.List{crop}, DType: reader.DTypeFloat32}, true, false},
		{"float32, evaluation", reader.Config{DType: reader.DTypeFloat32}, true, false},
		{"blended", reader.Config{Transform: transform.List{crop, transform.ImageNet}, DType: reader.DTypeFloat32, MixUp: &mix, Classes: 7}, false, false},
		{"bytes, transformed", reader.Config{Transform: transform.List{crop}}, false, true},
		{"float16, transformed", reader.Config{Transform: augmented, DType: reader.DTypeFloat16}, true, true},
		{"float32, transformed, channels last", reader.Config{Transform: augmented, DType: reader.DTypeFloat32, Layout: reader.LayoutNHWC, Tensors: []reader.TensorSpec{{Field: "cls", Name: "class"}}}, true, true},
		{"mixup and cutmix, transformed", reader.Config{Transform: augmented, DType: reader.DTypeFloat32, MixUp: &mix, CutMix: &augment.CutMix{}, Classes: 7}, true, true},
		{"cutmix of bytes, transformed", reader.Config{Transform: transform.List{crop}, CutMix: &augment.CutMix{}, Classes: -1}, false, true},
		{"evaluation, transformed", reader.Config{}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := device(t)
			c.config.BatchSize, c.config.Seed, c.config.Ends = 8, 3, reader.EndsExact
			u, err := newUploader(d, c.config, c.all)
			if err != nil {
				t.Fatal(err)
			}
			if u.Device() != d.UUID() {
				t.Errorf("on %s", u.Device())
			}
			host, err := reader.OpenStream(t.Context(), []string{path}, u.Config())
			if err != nil {
				t.Fatal(err)
			}
			if got := host.Config().DType == reader.DTypeUint8 && c.config.DType != "" && c.config.DType != reader.DTypeUint8; got != c.onCard {
				t.Errorf("done on the GPU: %v", got)
			}
			if got := host.Config().Collate == reader.CollateRagged && host.Config().Transform == nil; got != c.all {
				t.Errorf("transformed on the GPU: %v", got)
			}
			direct, err := reader.OpenStream(t.Context(), []string{path}, c.config)
			if err != nil {
				t.Fatal(err)
			}
			made, _ := u.Tensors(host.Tensors())
			if len(made) != len(direct.Tensors()) {
				t.Fatalf("tensors %v, want %v", made, direct.Tensors())
			}
			for i, want := range direct.Tensors() {
				if x := made[i]; x.Name != want.Name || x.DType != want.DType || len(x.Shape) != len(want.Shape) {
					t.Errorf("tensor %+v, want %+v", x, want)
				}
			}
			shown, want := u.Wanted(host.Config()), direct.Config()
			shown.Slabs, shown.Memory, want.Memory = nil, 0, 0 // which is less for bytes
			if a, b := asJSON(t, shown), asJSON(t, want); a != b {
				t.Errorf("the configuration is\n%s\nwant\n%s", a, b)
			}
			copied := uploads(t, u, host, direct)
			if st := u.Stats(); st.Device != "cuda:0" || st.Batches != 3 || st.Bytes != copied || st.Copying <= 0 || st.Elapsed <= 0 || st.Waiting != 6*time.Second || st.FirstBatch != 2*time.Second || st.Late+int64(st.Stalled) != 0 {
				t.Errorf("of %d bytes: %+v", copied, st)
			}
			free, _, err := d.Memory() // kernels are loaded, and take some
			if err != nil {
				t.Fatal(err)
			}
			uploads(t, u, host, direct)
			now, _, err := d.Memory()
			if err != nil || now < free {
				t.Errorf("%d bytes were free, now %d, %v", free, now, err)
			}
			if err := errors.Join(host.Close(), direct.Close()); err != nil {
				t.Error(err)
			}
			if err := u.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// uploads brings an epoch to the GPU, and compares it with what a reader has made itself. It
// returns how many bytes it has copied there.
func uploads(t *testing.T, u *Uploader, host, direct *reader.Stream) (copied int64) {
	u.Started()
	defer u.Ended()
	var want [][][]byte
	for b, err := range direct.Epoch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		var tensors [][]byte
		for _, x := range b.Tensors() {
			tensors = append(tensors, bytes.Clone(x.Data))
		}
		want = append(want, tensors)
		b.Release()
	}
	number := 0
	for b, err := range host.Epoch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		made, size := u.Tensors(b.Tensors())
		var all int64
		var at []uint64
		for _, n := range size {
			at = append(at, uint64(all))
			all += (n + 255) / 256 * 256
		}
		memory, has, f, err := u.Share(all)
		if err != nil || has < all {
			t.Fatal(has, err)
		}
		for i := range at {
			at[i] += memory
		}
		wait, _, err := u.Upload(b, at)
		if err != nil {
			t.Fatal(err)
		}
		u.Waited(reader.DeviceWaits{Reader: time.Second, GPU: time.Second}, number == 0)
		if over, err := wait(); !over || err != nil {
			t.Fatal(over, err)
		}
		for _, x := range b.Tensors() {
			if _, _, ok := u.makes(b.Tensors(), x); ok {
				copied += int64(len(x.Data))
			}
		}
		for i, x := range made {
			if u.pipeline != nil && (x.Name == "partner_label" || x.Name == "soft_label") {
				copied += size[i]
			}
		}
		// As another process does: it has nothing but the file.
		there, unmap, err := u.device.Map(f, has)
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range size {
			got := make([]byte, n)
			if err := errors.Join(u.device.Download(got, Pointer(there+at[i]-memory), 0), u.device.Synchronize(0)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want[number][i]) {
				t.Errorf("batch %d: tensor %s has other bytes", number, made[i].Name)
			}
		}
		if err := errors.Join(f.Close(), unmap(), u.Unshare(memory)); err != nil {
			t.Error(err)
		}
		b.Release()
		number++
	}
	if number != len(want) {
		t.Errorf("%d batches, want %d", number, len(want))
	}
	return copied
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A call of the driver that fails is an error, and nothing is left of it.
func TestUploaderFaults(t *testing.T) {
	if os.Getenv("SHARDIFY_GPU") == "require" {
		t.Skip("SKIPPED LOUDLY: a real driver fails nothing on request; make test has the test")
	}
	d := device(t)
	r, err := reader.OpenStream(t.Context(), []string{shard(t, 4)}, reader.Config{BatchSize: 4, Decode: reader.DecodeNone})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	u, err := newUploader(d, reader.Config{DType: reader.DTypeFloat16, Transform: transform.List{transform.ImageNet}}, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Unshare(4096); err == nil {
		t.Error("memory was given back that was not shared")
	}
	if _, _, _, err := u.Share(2 << 30); !errors.Is(err, ErrOutOfMemory) {
		t.Error(err)
	}
	for b, err := range r.Epoch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if _, over, err := u.Upload(b, []uint64{4096}); err == nil || !over || !strings.Contains(err.Error(), `tensor "label"`) {
			t.Errorf("to no memory: %v, %v", over, err)
		}
		b.Release()
	}
	if err := u.Close(); err != nil {
		t.Error(err)
	}
	t.Setenv("FAKE_CUDA_SHARES", "0")
	if _, err := newUploader(device(t), reader.Config{}, false); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}

// What a GPU cannot transform, or not yet, is refused with its place, and the GPU let go.
func TestUploaderRefuses(t *testing.T) {
	crop := transform.RandomResizedCrop{Size: transform.Size{32}}
	for want, c := range map[string]reader.Config{
		"transform 2: resize: stands behind": {Transform: transform.List{crop, transform.Resize{Size: transform.Size{40, 40}}}},
		"images would differ in size":        {Transform: transform.List{transform.Resize{Size: transform.Size{40}}}},
		"classes: soft labels need":          {Transform: transform.List{crop}, CutMix: &augment.CutMix{}},
		`decode: "none"`:                     {Decode: reader.DecodeNone},
	} {
		if _, err := newUploader(device(t), c, true); !errors.Is(err, reader.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestOpenNamed(t *testing.T) {
	driver, err := cuda.Open(gputest.Cuda(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"1", "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f"} {
		d, err := openNamed(driver, name)
		if err != nil {
			t.Fatal(err)
		}
		if d.UUID() != "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f" {
			t.Errorf("%s is %s", name, d.UUID())
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	for name, why := range map[string]string{"2": "there are 2, 0 to 1", "cuda:0": "want a UUID", "GPU-0": "CUDA_VISIBLE_DEVICES"} {
		if _, err := openNamed(driver, name); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
