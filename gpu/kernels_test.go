//go:build linux && (amd64 || arm64) && !nogpu

package gpu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/tensor"
	"shardify/internal/peers"
	"shardify/reader"
)

// The committed code is what the compiler makes of the source, byte for byte. The
// compiler's version is in the Makefile, as other versions make other code.
func TestKernelsAreMade(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	variable := func(name string) string {
		for line := range strings.Lines(string(makefile)) {
			if value, ok := strings.CutPrefix(line, name+" := "); ok {
				return strings.TrimSpace(value)
			}
		}
		t.Fatalf("the Makefile does not set %s", name)
		return ""
	}
	clang := variable("KERNEL_CLANG")
	peers.Program(t, clang)
	made := filepath.Join(t.TempDir(), "kernels.ptx")
	args := append(strings.Fields(variable("KERNEL_FLAGS")), "-o", made, "kernels/kernels.c")
	if out, err := exec.Command(clang, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, ptx) {
		t.Error("kernels/kernels.ptx is not what `make kernels` makes of kernels.c")
	}
	if bytes.Contains(ptx, []byte(".local ")) || bytes.Contains(ptx, []byte("call")) {
		t.Error("a kernel uses local memory, or calls a function")
	}
}

// NVIDIA's assembler, which the driver has too, takes the code for the oldest GPUs and for
// newer ones, and has registers for all of it.
func TestKernelsAssemble(t *testing.T) {
	ptxas, err := exec.LookPath("ptxas")
	if err != nil { // PyTorch comes with one
		ptxas = peers.Files(t, "ptxas", "torch/lib/python3*/site-packages/triton/backends/nvidia/bin/ptxas")[0]
	}
	for _, arch := range []string{"sm_75", "sm_90"} {
		out, err := exec.Command(ptxas, "-v", "-arch="+arch, "-o", filepath.Join(t.TempDir(), arch), "kernels/kernels.ptx").CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", arch, err, out)
		}
		kernels := 0
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "spill") {
				if kernels++; !strings.Contains(line, "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads") {
					t.Errorf("%s: a kernel spills: %s", arch, line)
				}
			}
			// Three blocks of 256 threads at least fit a multiprocessor's registers.
			if _, used, ok := strings.Cut(line, "Used "); ok {
				var n int
				if _, err := fmt.Sscanf(used, "%d registers", &n); err != nil || n > 80 {
					t.Errorf("%s: %s (%v)", arch, line, err)
				}
			}
		}
		if want := bytes.Count(ptx, []byte(".entry ")); kernels != want {
			t.Errorf("%s: %d of %d kernels\n%s", arch, kernels, want, out)
		}
	}
}

// images is a batch of random bytes on the GPU.
func images(t *testing.T, d *Device, r *rand.Rand, n, h, w int) ([]byte, Tensor) {
	t.Helper()
	host := make([]byte, n*h*w*3)
	for i := range host {
		host[i] = byte(r.Uint32())
	}
	x, err := d.Alloc("image", reader.DTypeUint8, n, h, w, 3)
	if err == nil {
		err = errors.Join(d.Upload(x.Data, host, 0), d.Synchronize(0))
	}
	if err != nil {
		t.Fatal(err)
	}
	return host, x
}

// Against imaging/tensor, which the reader uses: the same bits, for every dtype, layout
// and blend; for sizes that vectors fit, and that they do not.
func TestNormalize(t *testing.T) {
	d := device(t)
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range [][3]int{{3, 8, 16}, {2, 7, 5}, {1, 1, 1}, {4, 36, 32}, {2, 6, 6}} {
		n, h, w := size[0], size[1], size[2]
		host, src := images(t, d, r, n, h, w)
		for _, dtype := range []reader.DType{reader.DTypeFloat32, reader.DTypeFloat16, reader.DTypeBFloat16, reader.DTypeUint8} {
			for _, layout := range []reader.Layout{reader.LayoutNCHW, reader.LayoutNHWC} {
				cut := augment.Mix{Region: augment.Region{X: w / 3, Y: h / 4, Width: w / 2, Height: h / 2}}
				for _, blend := range []*reader.Blend{nil, {Mix: augment.Mix{Lambda: r.Float64()}}, {Mix: cut, Cut: true}} {
					if dtype == reader.DTypeUint8 && blend != nil && !blend.Cut {
						continue
					}
					c := NormalizeConfig{Layout: layout, Normalize: tensor.ImageNet, Blend: blend}
					shape := []int{n, 3, h, w}
					if layout == reader.LayoutNHWC {
						shape = []int{n, h, w, 3}
					}
					dst, err := d.Alloc("out", dtype, shape...)
					if err != nil {
						t.Fatal(err)
					}
					got := make([]byte, dst.Bytes)
					// Poisoned, so that what is not written shows.
					if err := errors.Join(d.context.Set(dst.Data, 0xee, dst.Bytes, 0), d.Normalize(dst, src, c, 0), d.Download(got, dst.Data, 0), d.Synchronize(0), d.Free(dst)); err != nil {
						t.Fatal(err)
					}
					if want := normalized(t, host, n, h, w, dtype, c); !bytes.Equal(got, want) {
						t.Errorf("%v %s %v %+v: other numbers", size, dtype, layout, blend)
					}
				}
			}
		}
		if err := d.Free(src); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// normalized is what imaging/tensor makes.
func normalized(t *testing.T, host []byte, n, h, w int, dtype reader.DType, c NormalizeConfig) []byte {
	t.Helper()
	each := 3 * h * w
	floats, spare := make([]float32, n*each), make([]float32, each)
	raw := make([]uint8, n*each)
	table := c.Normalize.Table()
	for i := range n {
		m := imaging.Image{Pix: host[i*each:][:each], Width: w, Height: h, Stride: 3 * w}
		if err := errors.Join(tensor.PutFloat32(floats[i*each:][:each], &m, c.Layout, false, false, table), tensor.PutUint8(raw[i*each:][:each], &m, c.Layout, false, false)); err != nil {
			t.Fatal(err)
		}
	}
	if b := c.Blend; b != nil {
		g := b.Region
		var err error
		if b.Cut {
			err = errors.Join(tensor.CutMix(floats, spare, n, w, h, c.Layout, g.X, g.Y, g.Width, g.Height), tensor.CutMix(raw, make([]uint8, each), n, w, h, c.Layout, g.X, g.Y, g.Width, g.Height))
		} else {
			err = tensor.MixUp(floats, spare, n, b.Lambda)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var out []byte
	for i, f := range floats {
		switch dtype {
		case reader.DTypeFloat32:
			out = binary.NativeEndian.AppendUint32(out, math.Float32bits(f))
		case reader.DTypeFloat16:
			out = binary.NativeEndian.AppendUint16(out, (&tensor.Table{{f}}).Float16()[0][0])
		case reader.DTypeBFloat16:
			out = binary.NativeEndian.AppendUint16(out, (&tensor.Table{{f}}).BFloat16()[0][0])
		default:
			out = append(out, raw[i])
		}
	}
	return out
}

// The division by multiplication is exact, for every byte under many normalisations.
func TestNormalizeDivides(t *testing.T) {
	d := device(t)
	r := rand.New(rand.NewPCG(3, 4))
	host := make([]byte, 3*256)
	for i := range host {
		host[i] = byte(i / 3)
	}
	src, err := d.Alloc("image", reader.DTypeUint8, 1, 16, 16, 3)
	if err != nil {
		t.Fatal(err)
	}
	dst, err := d.Alloc("out", reader.DTypeFloat32, 1, 3, 16, 16)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Upload(src.Data, host, 0), d.Synchronize(0)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, dst.Bytes)
	for i := range 2000 {
		var c NormalizeConfig
		switch {
		case i == 0:
		case i == 1:
			c.Normalize = tensor.ImageNet
		default:
			for k := range 3 {
				c.Normalize.Mean[k] = r.Float32()
				c.Normalize.Std[k] = float32(math.Exp2(40*r.Float64()-20)) * math.Float32frombits(0x3f800000|r.Uint32()>>9)
				if i%3 == 0 { // near what people write
					c.Normalize.Std[k] = 0.05 + r.Float32()/2
				}
			}
			if i%50 == 0 {
				c.Normalize.Std = [3]float32{leastStd, mostStd, math.Float32frombits(0x3fffffff)}
			}
		}
		if err := errors.Join(d.Normalize(dst, src, c, 0), d.Download(got, dst.Data, 0), d.Synchronize(0)); err != nil {
			t.Fatal(err)
		}
		table := c.Normalize.Table()
		want := unsafe.Slice((*byte)(unsafe.Pointer(table)), len(got))
		if !bytes.Equal(got, want) {
			t.Fatalf("%+v: other numbers than a division's", c.Normalize)
		}
	}
	if err := errors.Join(d.Free(src), d.Free(dst), d.Close()); err != nil {
		t.Error(err)
	}
}

func TestNormalizeRefuses(t *testing.T) {
	d := device(t)
	src := Tensor{DType: reader.DTypeUint8, Shape: []int{2, 4, 5, 3}, Data: 256, Bytes: 120}
	dst := Tensor{DType: reader.DTypeFloat32, Shape: []int{2, 3, 4, 5}, Data: 1024, Bytes: 480}
	for _, c := range []struct {
		change func(dst, src *Tensor, c *NormalizeConfig)
		want   string
	}{
		{func(dst, src *Tensor, c *NormalizeConfig) { src.DType = reader.DTypeInt8 }, `of dtype "int8" and shape [2 4 5 3]; want uint8`},
		{func(dst, src *Tensor, c *NormalizeConfig) { src.Shape = []int{2, 3, 4, 5} }, "want uint8 and [N, height, width, 3]"},
		{func(dst, src *Tensor, c *NormalizeConfig) { c.Layout = reader.LayoutNHWC }, "the result has shape [2 3 4 5]; want [2 4 5 3]"},
		{func(dst, src *Tensor, c *NormalizeConfig) { c.Layout = 7 }, "layout: Layout(7)"},
		{func(dst, src *Tensor, c *NormalizeConfig) { dst.Bytes-- }, "120 and 479 bytes do not hold 2 images of 5 x 4"},
		{func(dst, src *Tensor, c *NormalizeConfig) { src.Data++ }, "want multiples of 16"},
		{func(dst, src *Tensor, c *NormalizeConfig) { dst.DType = reader.DTypeInt32 }, `the result is of dtype "int32"`},
		{func(dst, src *Tensor, c *NormalizeConfig) { c.Normalize.Std = [3]float32{1, 0, 1} }, "std[1] is 0"},
		{func(dst, src *Tensor, c *NormalizeConfig) { c.Normalize.Std = [3]float32{1, 1e-30, 1} }, "std[1] is 1e-30; a GPU takes 2^-60 to 2^60"},
		{func(dst, src *Tensor, c *NormalizeConfig) { c.Normalize.Mean[2] = 1e30 }, "mean[2] is 1e+30"},
		{func(dst, src *Tensor, c *NormalizeConfig) { c.Blend = &reader.Blend{Mix: augment.Mix{Lambda: 2}} }, "lambda 2"},
		{func(dst, src *Tensor, c *NormalizeConfig) {
			c.Blend = &reader.Blend{Cut: true, Mix: augment.Mix{Region: augment.Region{X: 3, Width: 3}}}
		}, "does not lie within 5 x 4"},
		{func(dst, src *Tensor, c *NormalizeConfig) {
			dst.DType, dst.Bytes = reader.DTypeUint8, 120
			c.Blend = &reader.Blend{}
		}, "mixup makes floats"},
		{func(dst, src *Tensor, c *NormalizeConfig) {
			src.Shape, dst.Shape = []int{0, 4, 5, 3}, []int{0, 3, 4, 5}
		}, "images of shape [0 4 5 3]"},
	} {
		to, from, config := dst, src, NormalizeConfig{}
		c.change(&to, &from, &config)
		if err := d.Normalize(to, from, config, 0); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v\ndoes not say %q", err, c.want)
		}
	}
	if _, err := d.Alloc("x", reader.DTypeFloat32, 1<<40, 1<<40); err == nil {
		t.Error("a tensor of 2^82 bytes")
	}
	if _, err := d.Alloc("x", "float128", 4); err == nil {
		t.Error("a tensor of no dtype")
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// Kernels are for GPUs that they were compiled for.
func TestKernelsNeedTuring(t *testing.T) {
	if os.Getenv("SHARDIFY_GPU") == "require" {
		t.Skip("SKIPPED LOUDLY: a real card's capability cannot be changed; make test has the test")
	}
	t.Setenv("FAKE_CUDA_CAPABILITY", "70")
	d := device(t)
	_, src := images(t, d, rand.New(rand.NewPCG(1, 1)), 1, 4, 4)
	dst := Tensor{DType: reader.DTypeUint8, Shape: slices.Clone([]int{1, 3, 4, 4}), Data: src.Data, Bytes: 48}
	err := d.Normalize(dst, src, NormalizeConfig{}, 0)
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "need compute capability 7.5, and GPU 0 (Fake GPU A) has 7.0") {
		t.Error(err)
	}
	if err := errors.Join(d.Free(src), d.Close()); err != nil {
		t.Error(err)
	}
}
