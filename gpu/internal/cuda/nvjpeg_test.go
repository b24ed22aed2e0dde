//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"shardify/gpu/gputest"
	"shardify/imaging/jpeg"
	"shardify/internal/peers"
)

// jpegDouble is a double of the driver and nvJPEG.
type jpegDouble struct {
	*fake
	nvjpeg                *NVJPEG
	known, left, set, all proc
}

func newJPEGDouble(t *testing.T, settings ...any) *jpegDouble {
	t.Helper()
	path := gputest.CudaWithNVJPEG(t)
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	x := &jpegDouble{fake: &fake{Driver: d}}
	if err := d.lib.bind([]symbol{
		{&x.fail, "fake_fail"}, {&x.live, "fake_live"}, {&x.known, "fake_jpeg"}, {&x.left, "fake_nvjpeg_live"}, {&x.set, "fake_set"}, {&x.all, "fake_served"},
	}); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(settings); i += 2 {
		name := append([]byte(settings[i].(string)), 0)
		x.set.call(uintptr(unsafe.Pointer(&name[0])), uintptr(settings[i+1].(int)))
	}
	if x.nvjpeg, err = OpenNVJPEG(d, path); err != nil {
		t.Fatal(err)
	}
	return x
}

// knows tells the double of a file.
func (x *jpegDouble) knows(data []byte, width, height int, rgb []byte, bad uintptr) {
	x.known.call(uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)), uintptr(width), uintptr(height), uintptr(unsafe.Pointer(&rgb[0])), bad)
}

func (x *jpegDouble) clean(t *testing.T) {
	t.Helper()
	x.fake.clean(t)
	for i, kind := range []string{"handles", "states", "streams of files", "params"} {
		if n := x.left.call(uintptr(i)); n != 0 {
			t.Errorf("%d of nvJPEG's %s are left", n, kind)
		}
	}
}

func TestOpenNVJPEG(t *testing.T) {
	x := newJPEGDouble(t)
	if x.nvjpeg.Version() != "12.4.0" || !strings.HasSuffix(x.nvjpeg.Path(), "libcuda.so.1") {
		t.Errorf("%s of %s", x.nvjpeg.Version(), x.nvjpeg.Path())
	}
	nowhere := filepath.Join(t.TempDir(), "libnvjpeg.so.12")
	other := gputest.CudaWithNVJPEG(t, "-DnvjpegDecodeBatchedEx=other", "-DnvjpegCreateExV2=others")
	for _, c := range []struct {
		name  string
		paths []string
		env   string
		wants []string
	}{
		{"not there", []string{nowhere}, "", []string{"libnvjpeg.so.12: cannot open shared object file", "pip install nvidia-nvjpeg`", "LD_LIBRARY_PATH", "libnvjpeg.so.13"}},
		{"functions missing", []string{nowhere, other, nowhere}, "", []string{"lacks nvjpegCreateExV2, nvjpegDecodeBatchedEx", "CUDA 11.6"}},
		{"too new", []string{gputest.CudaWithNVJPEG(t)}, "FAKE_NVJPEG_CUDA", []string{"is for CUDA 14.9, and the driver serves CUDA 13"}},
		{"broken", []string{gputest.CudaWithNVJPEG(t)}, "FAKE_NVJPEG_BROKEN", []string{"nvjpegGetProperty: NVJPEG_STATUS_INTERNAL_ERROR (8)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.env != "" {
				t.Setenv(c.env, "14") // the libraries of this case see it: they are their own
			}
			_, err := OpenNVJPEG(x.Driver, c.paths...)
			if !errors.Is(err, ErrUnavailable) {
				t.Fatal(err)
			}
			for _, want := range c.wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %q", err, want)
				}
			}
		})
	}
	// For an older driver, what is too new is passed over, and the advice is of its CUDA.
	x.version = 11080
	if _, err := OpenNVJPEG(x.Driver, x.nvjpeg.Path()); err == nil || !strings.Contains(err.Error(), "pip install nvidia-nvjpeg-cu11`") {
		t.Error(err)
	}
}

// Newer ones come first; of one version what the loader finds, then toolkit, then Python.
func TestNVJPEGLibraries(t *testing.T) {
	home := t.TempDir()
	var want []string
	for _, path := range []string{
		"cuda/lib64/libnvjpeg.so.13", "venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvjpeg.so.13",
		"venv/lib/python3.12/site-packages/torchvision.libs/libnvjpeg.4a0b5c81.so.13",
		"conda/lib/libnvjpeg.so.12", "venv/lib/python3.12/site-packages/nvidia/nvjpeg/lib/libnvjpeg.so.12",
	} {
		path = filepath.Join(home, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		want = append(want, path)
	}
	env := map[string]string{"VIRTUAL_ENV": filepath.Join(home, "venv"), "CONDA_PREFIX": filepath.Join(home, "conda"), "CUDA_HOME": filepath.Join(home, "cuda")}
	paths := nvjpegLibraries(func(name string) string { return env[name] })
	var got []string
	for _, path := range paths {
		if strings.HasPrefix(path, home) {
			got = append(got, path)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	by := func(name string) int { return slices.Index(paths, name) }
	if by("libnvjpeg.so.13") != 0 || by("libnvjpeg.so.12") < by(want[2]) || by("libnvjpeg.so.12") > by(want[3]) || by("libnvjpeg.so.11") < by(want[4]) {
		t.Errorf("%q", paths)
	}
}

// served are the pixels that the double makes of a region.
func served(rgb []byte, width int, r Region) []byte {
	var out []byte
	for y := range r.Height {
		for x := range 3 * r.Width {
			out = append(out, rgb[3*((r.Y+y)*width+r.X)+x]^0xa5)
		}
	}
	return out
}

// file makes a file that the double knows, of width × 5 pixels.
func (x *jpegDouble) file(seed, width int) (data, rgb []byte) {
	data, rgb = make([]byte, 100+seed), make([]byte, 3*width*5)
	for i := range data {
		data[i] = byte(i * (seed + 3))
	}
	for i := range rgb {
		rgb[i] = byte(i*7 + seed)
	}
	x.knows(data, width, 5, rgb, 0)
	return data, rgb
}

// decodeBatch decodes two batches with a codec of its own, and checks them.
func (x *jpegDouble) decodeBatch(t *testing.T, c *Context, backend Backend) (err error) {
	t.Helper()
	codec, err := c.NewCodec(x.nvjpeg, backend, 0, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, codec.Close()) }()
	if _, _, err := codec.Engines(); err != nil {
		return err
	}
	state, err := codec.NewState()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	const size = 4096
	dst, err := c.Alloc(size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Free(dst)) }()
	var files []JPEG
	var want [][]byte
	for i := range 3 {
		width := 6 + i
		data, rgb := x.file(i, width)
		r := Region{0, 0, width, 5}
		f := JPEG{Data: data, Dst: dst + Pointer(1024*i), Pitch: 3*width + i}
		if i == 1 && backend == BackendHardware {
			r = Region{2, 1, 4, 3}
			f.Region = r
		}
		if ok, err := codec.Supports(data, f.Region); err != nil || !ok {
			return errors.Join(err, errors.New("not supported"))
		}
		files, want = append(files, f), append(want, served(rgb, width, r))
	}
	for range 2 {
		if err := c.Set(dst, 1, size, 0); err != nil {
			return err
		}
		if err := state.Decode(files, 2, 0); err != nil {
			return err
		}
		got := make([]byte, size)
		if err := errors.Join(c.Download(got, dst, 0), c.SynchronizeStream(0)); err != nil {
			return err
		}
		for i, f := range files {
			row := 3 * f.Region.Width
			if row == 0 {
				row = 3 * (6 + i)
			}
			for y := range len(want[i]) / row {
				if g, w := got[1024*i+y*f.Pitch:][:row], want[i][y*row:][:row]; !bytes.Equal(g, w) {
					t.Errorf("file %d, row %d:\ngot  %v\nwant %v", i, y, g, w)
				}
			}
		}
	}
	if device, pinned := codec.Memory(); device != 303 || pinned != 303 {
		t.Errorf("nvJPEG has %d and %d bytes", device, pinned)
	}
	return nil
}

// Files, regions of them, their places and their pixels go through as they are; everything
// is freed, and the context current before stays so.
func TestNVJPEGDecodes(t *testing.T) {
	x := newJPEGDouble(t)
	c := x.context(t, 1)
	for _, backend := range []Backend{BackendHybrid, BackendGPUHybrid, BackendHardware} {
		if err := x.decodeBatch(t, c, backend); err != nil {
			t.Errorf("%v: %v", backend, err)
		}
	}
	if n := x.all.call(); n != 18 {
		t.Errorf("%d files were decoded", n)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	x.clean(t)
}

// Each function fails in turn: the error has its name and nvJPEG's for the fault, and what
// can be freed is.
func TestNVJPEGFaults(t *testing.T) {
	x := newJPEGDouble(t)
	c := x.context(t, 0)
	const invalid = 2
	for _, s := range x.nvjpeg.f.table() {
		if strings.Contains(s.name, "Property") {
			continue
		}
		var before [4]Code
		for i := range before {
			before[i] = x.left.call(uintptr(i))
		}
		x.failing(s.name, 1, invalid)
		backend := BackendHardware
		if s.name == "nvjpegDecodeBatched" {
			backend = BackendGPUHybrid
		}
		err := x.decodeBatch(t, c, backend)
		var e *NVJPEGError
		if !errors.As(err, &e) || e.Call != s.name || !strings.Contains(err.Error(), s.name+": NVJPEG_STATUS_INVALID_PARAMETER (2)") {
			t.Errorf("%s: %v", s.name, err)
		}
		if !strings.Contains(s.name, "Destroy") {
			for i := range 4 {
				if n := x.left.call(uintptr(i)); n != before[i] {
					t.Fatalf("%s: %d things of kind %d are left, %d were", s.name, n, i, before[i])
				}
			}
		}
	}
	x.failing("", 0, 0)
	if c.Lost() != nil {
		t.Error(c.Lost())
	}
}

// Memory that nvJPEG asks for is bounded, and what the driver refuses it is the error.
func TestNVJPEGMemory(t *testing.T) {
	for _, of := range []struct {
		name           string
		device, pinned int64
		settings       []any
		want           string
	}{
		{"bound of the GPU's", 90, 0, nil, "nvjpegDecodeBatched: out of GPU memory: nvJPEG asked for 100 bytes of the GPU's memory beside 0 that it has, and the bound is 90"},
		{"bound of pinned", 0, 90, nil, "nvjpegDecodeBatched: out of GPU memory: nvJPEG asked for 100 bytes of pinned memory beside 0 that it has, and the bound is 90"},
		{"of the driver", 0, 0, []any{"FAKE_CUDA_PINNED_MIB", 0}, "nvjpegDecodeBatched: GPU 0 (Fake GPU A): cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)"},
	} {
		t.Run(of.name, func(t *testing.T) {
			x := newJPEGDouble(t, of.settings...)
			c := x.context(t, 0)
			codec, err := c.NewCodec(x.nvjpeg, BackendGPUHybrid, of.device, of.pinned)
			if err != nil {
				t.Fatal(err)
			}
			s, err := codec.NewState()
			if err != nil {
				t.Fatal(err)
			}
			dst, err := c.Alloc(1000)
			if err != nil {
				t.Fatal(err)
			}
			data, _ := x.file(0, 6)
			err = s.Decode([]JPEG{{Data: data, Dst: dst, Pitch: 18}}, 1, 0)
			if !errors.Is(err, ErrOutOfMemory) || !strings.Contains(err.Error(), of.want) {
				t.Error(err)
			}
			if err := errors.Join(s.Close(), codec.Close(), c.Free(dst), c.Close()); err != nil {
				t.Error(err)
			}
			x.clean(t)
		})
	}
}

// A file that is not decoded is ErrJPEG, whether its header says so or only its data; the
// state is of use afterwards.
func TestNVJPEGRefusesFiles(t *testing.T) {
	x := newJPEGDouble(t, "FAKE_NVJPEG_ODD", 1)
	c := x.context(t, 0)
	codec, err := c.NewCodec(x.nvjpeg, BackendHardware, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	good, _ := x.file(0, 6)
	odd, _ := x.file(1, 6)
	bad := []byte("some that is damaged")
	x.knows(bad, 6, 5, bad, 1)
	for data, want := range map[*[]byte]bool{&good: true, &odd: false, &bad: true, {1, 2, 3}: false} {
		if ok, err := codec.Supports(*data, Region{}); ok != want || err != nil {
			t.Errorf("%v: %v, %v", *data, ok, err)
		}
	}
	s, err := codec.NewState()
	if err != nil {
		t.Fatal(err)
	}
	dst, err := c.Alloc(2000)
	if err != nil {
		t.Fatal(err)
	}
	batch := []JPEG{{Data: good, Dst: dst, Pitch: 18}, {Data: bad, Dst: dst + 1000, Pitch: 18}}
	if err := s.Decode(batch, 1, 0); !errors.Is(err, ErrJPEG) || !strings.Contains(err.Error(), "NVJPEG_STATUS_BAD_JPEG (3)") {
		t.Error(err)
	}
	if err := s.Decode(batch[:1], 1, 0); err != nil {
		t.Error(err)
	}
	// A card without engines has no such backend.
	none := newJPEGDouble(t, "FAKE_NVJPEG_ENGINES", 0)
	other := none.context(t, 0)
	if _, err := other.NewCodec(none.nvjpeg, BackendHardware, 0, 0); err == nil || !strings.Contains(err.Error(), "GPU 0 (Fake GPU A): nvjpegCreateExV2: NVJPEG_STATUS_ARCH_MISMATCH (7)") {
		t.Error(err)
	}
	if err := errors.Join(s.Close(), codec.Close(), c.Free(dst), c.Close(), other.Close()); err != nil {
		t.Error(err)
	}
	x.clean(t)
	none.clean(t)
}

// Without a card the real library tells its version, has every function that is called,
// and reads headers: it knows every file of the corpus that imaging/jpeg knows as baseline
// by the same dimensions.
func TestNVJPEGReal(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	paths := peers.Files(t, "nvJPEG", "dali/lib/python3*/site-packages/nvidia/nvjpeg/lib/libnvjpeg.so.12", "torch/lib/python3*/site-packages/torchvision.libs/libnvjpeg.*.so.13")
	corpus, err := zip.OpenReader(filepath.Join(root, "imaging", "jpeg", "testdata", "corpus.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer corpus.Close()
	d := double(t)
	for _, path := range paths {
		n, err := OpenNVJPEG(d.Driver, path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		var dimensions proc
		if err := n.lib.bind([]symbol{{&dimensions, "nvjpegJpegStreamGetFrameDimensions"}}); err != nil {
			t.Fatal(err)
		}
		// There is no handle without a card, and reading headers needs none: only that it be
		// no null pointer is checked.
		noHandle := make([]byte, 1<<16)
		handle := uintptr(unsafe.Pointer(&noHandle[0]))
		var stream uintptr
		if err := n.check(&n.f.streamCreate, handle, uintptr(unsafe.Pointer(&stream))); err != nil {
			t.Fatal(err)
		}
		files := 0
		for _, f := range corpus.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(r)
			r.Close()
			if err != nil {
				t.Fatal(err)
			}
			h, err := jpeg.ReadHeader(data)
			if err != nil || h.Coding != "baseline" || h.Bits != 8 || h.Components == 4 {
				continue
			}
			files++
			if err := n.check(&n.f.streamParse, handle, uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)), stream); err != nil {
				t.Errorf("%s: %s: %v", n.Version(), f.Name, err)
				continue
			}
			var width, height uint32
			if err := n.check(&dimensions, stream, uintptr(unsafe.Pointer(&width)), uintptr(unsafe.Pointer(&height))); err != nil || int(width) != h.Width || int(height) != h.Height {
				t.Errorf("%s: %s: %d x %d, want %d x %d, %v", n.Version(), f.Name, width, height, h.Width, h.Height, err)
			}
		}
		if err := n.check(&n.f.streamDestroy, stream); err != nil {
			t.Error(err)
		}
		t.Logf("nvJPEG %s reads the headers of %d files (%s)", n.Version(), files, path)
		if files < 50 {
			t.Errorf("only %d files", files)
		}
	}
}
