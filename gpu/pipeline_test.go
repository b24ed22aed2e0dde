//go:build linux && (amd64 || arm64) && !nogpu

package gpu

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/jpeg"
	"shardify/imaging/transform"
	"shardify/internal/peers"
	"shardify/reader"
)

// photographShard packs photographs with labels into a tar, and some small images, one of
// them a pixel wide.
func photographShard(t *testing.T, n int) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(peers.Photographs(t), "*.[jJ]*"))
	if err != nil || len(files) == 0 {
		t.Skipf("SKIPPED LOUDLY: no JPEG among the photographs: %v", err)
	}
	var all [][]byte
	for i := range n {
		data, err := os.ReadFile(files[i*len(files)/n])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data)
	}
	r := rand.New(rand.NewPCG(21, 22))
	var encoder jpeg.Encoder
	for _, size := range [][2]int{{1, 40}, {64, 20}, {300, 301}} {
		m := picture(r, size[0], size[1])
		data, err := encoder.Encode(nil, &m, jpeg.EncodeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data)
	}
	path := filepath.Join(t.TempDir(), "photographs.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	for i, data := range all {
		for _, e := range []struct {
			ext  string
			data []byte
		}{{"jpg", data}, {"cls", fmt.Append(nil, i%5)}} {
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

// made are the batches of two epochs that a reader makes.
func made(t *testing.T, path string, c reader.Config) (all [][]byte, blends []reader.Blend) {
	t.Helper()
	r, err := reader.OpenStream(t.Context(), []string{path}, c)
	if err != nil {
		t.Fatal(err)
	}
	for epoch := range 2 {
		for b, err := range r.Epoch(t.Context(), epoch) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, bytes.Clone(b.Images().Data))
			m, _ := b.Blend()
			blends = append(blends, m)
			b.Release()
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	return all, blends
}

var pipelines = []struct {
	name   string
	config string
}{
	{"default", `{}`},
	{"training", `{"transform": [{"random_resized_crop": 224}, "random_horizontal_flip", {"normalize": "imagenet"}], "dtype": "float32"}`},
	{"flip first", `{"transform": ["random_vertical_flip", {"random_horizontal_flip": 0.7}, {"random_resized_crop": {"size": [40, 70], "interpolation": "bicubic"}}], "layout": "NHWC"}`},
	{"jitter", `{"transform": [{"random_resized_crop": 64}, "random_horizontal_flip", {"color_jitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}}, {"random_grayscale": 0.3},
		{"random_apply": {"transforms": [{"gaussian_blur": 23}]}}, {"random_solarize": 128}, {"normalize": "imagenet"}], "dtype": "bfloat16", "layout": "NHWC"}`},
	{"randaugment", `{"transform": [{"random_resized_crop": 72}, "random_horizontal_flip", "rand_augment", "random_vertical_flip", {"random_erasing": {"value": "random", "p": 0.7}}], "layout": "NHWC"}`},
	{"trivial", `{"transform": [{"resize": 80}, {"center_crop": 72}, {"random_horizontal_flip": 0.5}, {"trivial_augment_wide": {"interpolation": "bilinear"}}, {"random_erasing": {"value": [3, 4, 5]}}, {"normalize": "imagenet"}], "dtype": "float16"}`},
	{"affine", `{"transform": [{"resize": [50, 60]}, {"random_crop": {"size": [50, 60], "padding": 7, "padding_mode": "reflect"}}, {"random_affine": {"degrees": 20, "translate": 0.1, "scale": [0.8, 1.2], "interpolation": "bilinear", "fill": 9}},
		{"random_equalize": 0.5}, {"random_rotation": 30}, {"random_autocontrast": 0.5}, {"random_adjust_sharpness": {"sharpness_factor": 2}}, {"random_invert": 0.3}, {"random_posterize": 3}]}`},
	{"choice", `{"transform": [{"random_choice": {"transforms": [{"random_resized_crop": 48}, {"resize": [48, 48]}]}}, {"random_choice": {"transforms": [{"gaussian_blur": 5}, {"random_invert": 1}, "grayscale"]}}, {"random_horizontal_flip": 0.5}]}`},
	{"cifar", `{"transform": [{"resize": [32, 32]}, {"pad": 4}, {"random_crop": 32}, "random_horizontal_flip", {"normalize": {"mean": 0.5, "std": 0.5}}], "dtype": "float32", "layout": "NHWC"}`},
	{"mixup and cutmix", `{"transform": [{"random_resized_crop": 64}, "random_horizontal_flip", {"normalize": "imagenet"}], "dtype": "float32", "mixup": {"alpha": 0.4}, "cutmix": {}, "classes": 5}`},
	{"cutmix of bytes", `{"transform": [{"random_resized_crop": 64}, {"color_jitter": {"contrast": 0.9}}], "layout": "NHWC", "cutmix": {}, "classes": -1}`},
}

// The same list of transforms, carried out by the reader and on the GPU: the same batches
// of photographs, byte for byte, in every epoch.
func TestPipeline(t *testing.T) {
	n := 9
	if racing || testing.Short() {
		n = 3
	}
	path := photographShard(t, n)
	d := device(t)
	free, _, err := d.Memory()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range pipelines {
		t.Run(x.name, func(t *testing.T) {
			var c reader.Config
			if err := reader.DecodeConfig([]byte(x.config), &c); err != nil {
				t.Fatal(err)
			}
			c.BatchSize, c.Ends, c.Seed = 5, reader.EndsExact, 17
			want, blends := made(t, path, c)
			host, config, err := Split(c)
			if err != nil {
				t.Fatal(err)
			}
			// As a configuration goes to another process.
			text, err := json.Marshal(config)
			if err != nil {
				t.Fatal(err)
			}
			var again PipelineConfig
			if err := reader.DecodeConfig(text, &again); err != nil || !reflect.DeepEqual(again, config) {
				t.Errorf("%s became %+v, %v", text, again, err)
			}
			p, err := d.NewPipeline(again)
			if err != nil {
				t.Fatal(err)
			}
			s, err := d.NewStream()
			if err != nil {
				t.Fatal(err)
			}
			r, err := reader.OpenStream(t.Context(), []string{path}, host)
			if err != nil {
				t.Fatal(err)
			}
			k := 0
			for epoch := range 2 {
				begin := func(ctx context.Context) iter.Seq2[*reader.Batch, error] { return r.Epoch(ctx, epoch) }
				for b, err := range Prefetch(t.Context(), d, begin, PrefetchConfig{}) {
					if err != nil {
						t.Fatal(err)
					}
					images, err := b.Images()
					if err != nil {
						t.Fatal(err)
					}
					dst, err := d.Alloc("out", p.DType(), p.Shape(len(images))...)
					if err != nil {
						t.Fatal(err)
					}
					got := make([]byte, dst.Bytes)
					blend := p.Blend(b.Epoch, b.Number)
					err = errors.Join(b.Wait(s), d.context.Set(dst.Data, 0xee, dst.Bytes, s), p.Apply(dst, images, b.Random, blend, s), b.Release(s),
						d.Download(got, dst.Data, s), d.Synchronize(s), d.Free(dst))
					if err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(got, want[k]) {
						t.Errorf("batch %d is another than the reader's, in %d of %d bytes", k, differences(got, want[k]), len(want[k]))
					}
					if blend != nil && *blend != blends[k] {
						t.Errorf("batch %d is blended by %+v; the reader's by %+v", k, *blend, blends[k])
					}
					k++
				}
			}
			if k != len(want) {
				t.Errorf("%d batches; the reader makes %d", k, len(want))
			}
			if err := errors.Join(r.Close(), d.DestroyStream(s), p.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	// A real driver keeps memory for each kernel that it has loaded.
	if now, _, err := d.Memory(); err != nil || now < free && os.Getenv("SHARDIFY_GPU") != "require" {
		t.Errorf("%d bytes were free, now %d, %v", free, now, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func differences(a, b []byte) (n int) {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			n++
		}
	}
	return n + max(len(a), len(b)) - min(len(a), len(b))
}

// What a GPU does not do is said before anything is read, with the transform's place.
func TestPipelineRefuses(t *testing.T) {
	for _, x := range []struct{ config, want string }{
		{`{"transform": [{"color_jitter": {"hue": 0.1}}, {"random_resized_crop": 8}]}`, "transform 2: random_resized_crop: stands behind transform 1, which changes pixels"},
		{`{"transform": [{"random_apply": {"transforms": [{"gaussian_blur": 3}]}}, "random_horizontal_flip", {"random_resized_crop": 8}]}`, "transform 3: random_resized_crop: stands behind transform 1: random_apply: transform 1, which"},
		{`{"transform": [{"resize": 20}, {"center_crop": 16}, {"resize": [8, 8]}]}`, "transform 3: resize: stands behind transform 1; a GPU scales images once"},
		{`{"transform": [{"pad": 3}, {"resize": [8, 8]}]}`, "transform 2: resize: stands behind transform 1; a GPU scales"},
		{`{"transform": [{"resize": [8, 8]}, {"pad": 3}, {"pad": 2}]}`, "transform 3: pad: stands behind transform 2; a GPU pads images once"},
		{`{"transform": [{"random_choice": {"transforms": ["random_invert", {"pad": 3}]}}, {"center_crop": 8}]}`, "transform 2: center_crop: stands behind transform 1: random_choice: transform 1"},
		{`{"transform": [{"resize": [8, 8]}, {"gaussian_blur": {"kernel_size": 99, "sigma": [1, 20]}}]}`, "transform 2: gaussian_blur: a blur by 20 pixels, whose kernel reaches 49 to each side; a GPU takes up to 31"},
		{`{"transform": [{"resize": 20}], "collate": "pad"}`, `collate: "pad"; a GPU makes images of one size`},
		{`{"decode": "none"}`, `decode: "none" leaves nothing to do`},
		{`{"buckets": {"sizes": [[8, 8], [8, 16]]}}`, "buckets: sizes: a GPU makes images of one size"},
		{`{"tensors": [{"field": "seg.png", "kind": "mask"}]}`, `tensors: 1 (seg.png): of kind "mask"`},
		{`{"transform": [{"center_crop": 0}]}`, "transform 1: center_crop: size is 0"},
		{`{"transform": [{"resize": [8, 8]}, {"normalize": {"mean": 0, "std": 1e-30}}], "dtype": "float32"}`, "transform 2: normalize: std[0] is 1e-30; a GPU takes"},
	} {
		var c reader.Config
		if err := reader.DecodeConfig([]byte(x.config), &c); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Split(c); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v\ndoes not say %q", x.config, err, x.want)
		}
	}
	for _, x := range []struct {
		config PipelineConfig
		want   string
	}{
		{PipelineConfig{BatchSize: -1}, "batch_size: -1"},
		{PipelineConfig{DType: reader.DTypeInt8}, `dtype: "int8"`},
		{PipelineConfig{MixUp: &augment.MixUp{}}, `mixup: makes fractions; set dtype to "float32"`},
		{PipelineConfig{MixUp: &augment.MixUp{Alpha: -1}}, "mixup: alpha is -1"},
		{PipelineConfig{CutMix: &augment.CutMix{Alpha: -1}}, "cutmix: alpha is -1"},
		{PipelineConfig{Layout: 7}, "layout"},
		{PipelineConfig{Transform: transform.List{transform.Resize{Size: transform.Size{8}}}}, "images would differ in size"},
		{PipelineConfig{Transform: transform.List{transform.Resize{Size: transform.Size{8, 8}}, transform.ImageNet}}, "transform 2: normalize: makes fractions"},
	} {
		if err := x.config.Validate(); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: %v\ndoes not say %q", x.config, err, x.want)
		}
	}
	d := device(t)
	if _, err := d.NewPipeline(PipelineConfig{BatchSize: -1}); err == nil {
		t.Error("a pipeline for nothing")
	}
	p, err := d.NewPipeline(PipelineConfig{BatchSize: 2, Transform: transform.List{transform.CenterCrop{Size: transform.Size{8}}, transform.Resize{Size: transform.Size{4, 4}}}})
	if err != nil {
		t.Fatal(err)
	}
	dst := Tensor{DType: reader.DTypeUint8, Shape: []int{1, 3, 4, 4}, Data: 256, Bytes: 48}
	large, small := Image{4096, 20, 10, 60}, Image{4096, 2, 3, 6}
	random := make([]augment.Rand, 3)
	apply := func(dst Tensor, src ...Image) error { return p.Apply(dst, src, random[:len(src)], nil, 0) }
	floats, short := dst, dst
	floats.DType, short.Bytes = reader.DTypeFloat32, 40
	for _, x := range []struct {
		err  error
		want string
	}{
		{apply(dst), "0 images, random numbers for 0, and a pipeline for 1 to 2"},
		{apply(dst, large, large, large), "3 images"},
		{p.Apply(dst, []Image{large}, nil, nil, 0), "random numbers for 0"},
		{apply(floats, large), `of dtype "float32"; want "uint8"`},
		{apply(short, large), "48 and 40 bytes do not hold"},
		{apply(dst, small), "image 0 of 2 x 3: it is cut or scaled behind what a GPU does first"},
		{apply(dst, Image{4096, 0, 3, 6}), "image 0 of 0 x 3"},
	} {
		if x.err == nil || !strings.Contains(x.err.Error(), x.want) {
			t.Errorf("%v\ndoes not say %q", x.err, x.want)
		}
	}
	if err := errors.Join(p.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

// In steady state a pipeline allocates on the host what launches take, and nothing for an
// image.
func TestPipelineAllocates(t *testing.T) {
	if racing {
		t.Skip("SKIPPED LOUDLY: the race detector allocates; make test has the test without it")
	}
	d := device(t)
	const n = 256
	p, err := d.NewPipeline(PipelineConfig{BatchSize: n, Transform: transform.List{
		transform.RandomResizedCrop{Size: transform.Size{8}}, transform.RandAugment{}, transform.GaussianBlur{KernelSize: [2]int{3, 3}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	m := picture(r, 20, 10)
	x, images := ragged(t, d, slices.Repeat([]imaging.Image{m}, n))
	random := make([]augment.Rand, n)
	dst, err := d.Alloc("out", p.DType(), p.Shape(n)...)
	if err != nil {
		t.Fatal(err)
	}
	round := uint64(0)
	allocs := testing.AllocsPerRun(20, func() {
		round++
		for i := range random {
			random[i] = augment.NewRand(round, 0, uint64(i))
		}
		if err := p.Apply(dst, images, random, nil, 0); err != nil {
			t.Fatal(err)
		}
	})
	if allocs >= n {
		t.Errorf("%v allocations for a batch of %d images", allocs, n)
	}
	if err := errors.Join(p.Close(), d.Free(x), d.Free(dst), d.Close()); err != nil {
		t.Error(err)
	}
}
