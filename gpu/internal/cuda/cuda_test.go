//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"shardify/gpu/gputest"
)

// double opens a double of the driver. Each is a library of its own, with a state of its
// own.
func double(t *testing.T, flags ...string) *fake {
	t.Helper()
	d, err := Open(gputest.Cuda(t, flags...))
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{Driver: d}
	if err := d.lib.bind([]symbol{{&f.fail, "fake_fail"}, {&f.live, "fake_live"}}); err != nil {
		t.Fatal(err)
	}
	return f
}

type fake struct {
	*Driver
	fail, live proc
}

// failing makes the n-th call from now of a function return a code.
func (f *fake) failing(name string, n int, code Code) {
	text := append([]byte(name), 0)
	f.fail.call(uintptr(unsafe.Pointer(&text[0])), uintptr(n), uintptr(code))
}

// set makes a double with a setting, and returns its path.
func set(t *testing.T, name string, value int) string {
	t.Helper()
	path := gputest.Cuda(t)
	lib, err := load([]string{path})
	if err != nil {
		t.Fatal(err)
	}
	var p proc
	if err := lib.bind([]symbol{{&p, "fake_set"}}); err != nil {
		t.Fatal(err)
	}
	text := append([]byte(name), 0)
	p.call(uintptr(unsafe.Pointer(&text[0])), uintptr(value))
	return path
}

// kinds are the double's kinds of things, in its order.
var kinds = []string{"allocations", "pinned allocations", "registrations", "streams", "events", "modules", "contexts", "handles of memory", "ranges of addresses", "mappings"}

// clean fails the test where something was not freed.
func (f *fake) clean(t *testing.T) {
	t.Helper()
	for i, kind := range kinds {
		if n := f.live.call(uintptr(i)); n != 0 {
			t.Errorf("%d %s are left", n, kind)
		}
	}
}

func (f *fake) context(t *testing.T, ordinal int) *Context {
	t.Helper()
	v, err := f.Device(ordinal)
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.Retain(v)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOpen(t *testing.T) {
	d := double(t)
	if d.Version().String() != "13.0" || !strings.HasSuffix(d.Path(), "libcuda.so.1") {
		t.Errorf("version %v of %s", d.Version(), d.Path())
	}
	if n, err := d.Devices(); n != 2 || err != nil {
		t.Errorf("%d devices, %v", n, err)
	}
	v, err := d.Device(1)
	want := Device{
		driver: d.Driver, handle: 1, Ordinal: 1, Name: "Fake GPU B", UUID: "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f", PCI: "10de:1c:00.0",
		Memory: 1 << 30, Major: 9, Minor: 0, Multiprocessors: 132, CopyEngines: 3, Shares: true,
	}
	if err != nil || v != want {
		t.Errorf("got  %+v, %v\nwant %+v", v, err, want)
	}
	first, err := d.Device(0)
	if yes, other := d.Reaches(first, v); !yes || err != nil || other != nil {
		t.Error(yes, err, other)
	}
	for _, ordinal := range []int{-1, 2} {
		if _, err := d.Device(ordinal); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "there are 2, 0 to 1") {
			t.Errorf("device %d: %v", ordinal, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		path  func(t *testing.T) string
		wants []string
	}{
		{"no library", func(t *testing.T) string { return filepath.Join(t.TempDir(), "libcuda.so.1") }, []string{"libcuda.so.1: cannot open shared object file"}},
		{"no library at all", func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "libcuda.so.1")
			if err := os.WriteFile(path, []byte("not a library"), 0o644); err != nil {
				t.Fatal(err)
			}
			return path
		}, []string{"libcuda.so.1: "}},
		{"functions missing", func(t *testing.T) string {
			return gputest.Cuda(t, "-DcuMemHostAlloc=other", "-DcuLaunchKernel=others")
		}, []string{"lacks cuMemHostAlloc, cuLaunchKernel", "450 or newer"}},
		{"too old", func(t *testing.T) string { return set(t, "FAKE_CUDA_VERSION", 10020) }, []string{"CUDA 10.2", "11.0 is needed"}},
		{"no card", func(t *testing.T) string { return set(t, "FAKE_CUDA_DEVICES", 0) }, []string{"cuInit: CUDA_ERROR_NO_DEVICE (100)", "nvidia-smi"}},
		{"stub", func(t *testing.T) string { return set(t, "FAKE_CUDA_INIT", 34) }, []string{"cuInit: CUDA_ERROR_STUB_LIBRARY (34)", "LD_LIBRARY_PATH"}},
		{"another module", func(t *testing.T) string { return set(t, "FAKE_CUDA_INIT", 803) }, []string{"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "restart"}},
		{"a code of tomorrow", func(t *testing.T) string { return set(t, "FAKE_CUDA_INIT", 4242) }, []string{"cuInit: CUDA_ERROR_unknown_to_this_driver (4242)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("CUDA_VISIBLE_DEVICES", "")
			os.Unsetenv("CUDA_VISIBLE_DEVICES")
			d, err := Open(c.path(t))
			if d != nil || !errors.Is(err, ErrUnavailable) {
				t.Fatalf("%v, %v", d, err)
			}
			for _, want := range c.wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\ndoes not say %q", err, want)
				}
			}
		})
	}
	t.Run("hidden cards", func(t *testing.T) {
		t.Setenv("CUDA_VISIBLE_DEVICES", "7")
		if _, err := Open(set(t, "FAKE_CUDA_DEVICES", 0)); err == nil || !strings.Contains(err.Error(), "CUDA_VISIBLE_DEVICES=7 hides") {
			t.Error(err)
		}
	})
}

// Why there is no library is read off the file system.
func TestAbsent(t *testing.T) {
	for _, c := range []struct {
		files []string
		want  string
	}{
		{nil, "no NVIDIA card"},
		{[]string{"dev/nvidiactl"}, "NVIDIA Container Toolkit"},
		{[]string{"dev/dxg"}, "LD_LIBRARY_PATH"},
		{[]string{"sys/bus/pci/devices/0/vendor=0x10de\n", "sys/bus/pci/devices/0/class=0x030200\n"}, "no driver for it"},
		// The sound of a card, and a card of somebody else's.
		{[]string{"sys/bus/pci/devices/0/vendor=0x10de\n", "sys/bus/pci/devices/0/class=0x040300\n", "sys/bus/pci/devices/1/vendor=0x1002\n", "sys/bus/pci/devices/1/class=0x030000\n"}, "no NVIDIA card"},
	} {
		root := t.TempDir()
		for _, f := range c.files {
			name, content, _ := strings.Cut(f, "=")
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := absent(root); !strings.Contains(got, c.want) {
			t.Errorf("%q: %q", c.files, got)
		}
	}
}

// Bytes go to the card, within it, and back; all is freed.
func TestCopies(t *testing.T) {
	d := double(t)
	c := d.context(t, 0)
	src, err := c.AllocHost(5000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range src {
		src[i] = byte(i * 7)
	}
	a, err := c.Alloc(5000)
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Alloc(6000)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	e, err := c.NewEvent(true)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 6000)
	for _, err := range []error{
		c.Record(e, 0), c.Upload(a, src, s), c.Set(b, 9, 6000, s), c.Copy(b+1000, a, 5000, s), c.Record(e, s), c.Wait(0, e), c.Download(got, b, 0),
		c.SynchronizeStream(s), c.SynchronizeEvent(e), c.Synchronize(), c.Upload(a, nil, s), c.Copy(a, b, 0, s),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, append(bytes.Repeat([]byte{9}, 1000), src...)) {
		t.Error("the bytes came back as others")
	}
	if done, err := c.Done(e); !done || err != nil {
		t.Error(done, err)
	}
	d.failing("cuEventQuery", 1, errNotReady)
	if done, err := c.Done(e); done || err != nil {
		t.Error(done, err)
	}
	later, err := c.NewEvent(true)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Millisecond)
	if err := c.Record(later, s); err != nil {
		t.Error(err)
	}
	if d, done, err := c.Elapsed(e, later); d < time.Millisecond || !done || err != nil {
		t.Error(d, done, err)
	}
	if d, _, err := c.Elapsed(later, e); d > -time.Millisecond || err != nil {
		t.Error(d, err)
	}
	d.failing("cuEventElapsedTime", 1, errNotReady)
	if _, done, err := c.Elapsed(e, later); done || err != nil {
		t.Error(done, err)
	}
	untimed, err := c.NewEvent(false)
	if err != nil {
		t.Fatal(err)
	}
	if _, done, err := c.Elapsed(e, untimed); done || err == nil || !strings.Contains(err.Error(), "cuEventElapsedTime") {
		t.Error(done, err)
	}
	if free, total, err := c.MemInfo(); free != 1<<30-11000 || total != 1<<30 || err != nil {
		t.Error(free, total, err)
	}
	// The double refuses what lies in no allocation: it does look.
	if err := c.Upload(a+1, src, s); err == nil || !strings.Contains(err.Error(), "GPU 0 (Fake GPU A): cuMemcpyHtoDAsync_v2: CUDA_ERROR_INVALID_VALUE (1)") {
		t.Error(err)
	}
	own := make([]byte, 8192)
	for _, err := range []error{c.Register(own), c.Unregister(own), c.FreeHost(src), c.Free(a), c.Free(b), c.DestroyEvent(e), c.DestroyEvent(later), c.DestroyEvent(untimed), c.DestroyStream(s), c.Close(), c.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
	d.clean(t)
	if err := c.Synchronize(); !errors.Is(err, errClosed) {
		t.Error(err)
	}
}

// Calls of many goroutines for several devices each find their context current, and
// leave none behind. (The double refuses a call without.)
func TestContextsAreCurrent(t *testing.T) {
	d := double(t)
	contexts := []*Context{d.context(t, 0), d.context(t, 1)}
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			for i := range 100 {
				c := contexts[(g+i)%2]
				p, err := c.Alloc(int64(1 + g))
				if err == nil {
					runtime.Gosched()
					err = c.Free(p)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var now uintptr
	if r := d.f.ctxPopCurrent.call(uintptr(unsafe.Pointer(&now))); r == success {
		t.Error("a context was left current")
	}
	for _, c := range contexts {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	d.clean(t)
}

func TestOutOfMemory(t *testing.T) {
	d := double(t)
	c := d.context(t, 0)
	p, err := c.Alloc(1000 << 20)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Alloc(100 << 20)
	if !errors.Is(err, ErrOutOfMemory) || errors.Is(err, ErrContextLost) {
		t.Error(err)
	}
	for _, want := range []string{"CUDA_ERROR_OUT_OF_MEMORY (2): out of memory", "104857600 bytes were asked for", "25165824 of 1073741824 are free"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %q", err, want)
		}
	}
	if _, err := c.AllocHost(2 << 30); !errors.Is(err, ErrOutOfMemory) || !strings.Contains(err.Error(), "pinned") {
		t.Error(err)
	}
	d.failing("cuMemHostRegister_v2", 1, errOutOfMemory)
	if err := c.Register(make([]byte, 4096)); !errors.Is(err, ErrOutOfMemory) || !strings.Contains(err.Error(), "ulimit -l") {
		t.Error(err)
	}
	// Everything goes on.
	if err := errors.Join(c.Free(p), c.Close()); err != nil {
		t.Error(err)
	}
	d.clean(t)
}

// A context that is lost stays lost, by the error that it was lost by.
func TestContextLost(t *testing.T) {
	d := double(t)
	c, other := d.context(t, 0), d.context(t, 1)
	s, err := c.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	d.failing("cuStreamSynchronize", 2, errIllegalAddress)
	if err := c.SynchronizeStream(s); err != nil || c.Lost() != nil {
		t.Fatal(err, c.Lost())
	}
	first := c.SynchronizeStream(s)
	if !errors.Is(first, ErrContextLost) || !strings.Contains(first.Error(), "GPU 0 (Fake GPU A): cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)") {
		t.Fatal(first)
	}
	for _, err := range []error{c.SynchronizeStream(s), c.Synchronize(), c.Lost()} {
		if !errors.Is(err, ErrContextLost) || err.Error() != first.Error() {
			t.Errorf("%v\nis not\n%v", err, first)
		}
	}
	if err := errors.Join(other.Synchronize(), other.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	// Each code that ends a context is known to.
	var lost []Code
	for code := Code(1); code < 1000; code++ {
		if errors.Is(&Error{Code: code}, ErrContextLost) {
			lost = append(lost, code)
		}
	}
	want := []Code{4, 46, 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719}
	if !slices.Equal(lost, want) {
		t.Error(lost)
	}
}

func TestModules(t *testing.T) {
	d := double(t)
	c := d.context(t, 0)
	if _, err := c.Load([]byte("no code")); err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_INVALID_IMAGE") || !strings.Contains(err.Error(), "ptxas fatal: no PTX") {
		t.Error(err)
	}
	m, err := c.Load([]byte(".version 6.3\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Function("absent"); err == nil || !strings.Contains(err.Error(), "kernel absent: GPU 0 (Fake GPU A): cuModuleGetFunction: CUDA_ERROR_NOT_FOUND") {
		t.Error(err)
	}
	if err := errors.Join(m.Unload(), c.Close()); err != nil {
		t.Error(err)
	}
	d.clean(t)
}

func TestNVML(t *testing.T) {
	n, err := OpenNVML(gputest.NVML(t))
	if err != nil {
		t.Fatal(err)
	}
	if v, err := n.DriverVersion(); v != "580.159.03" || err != nil {
		t.Error(v, err)
	}
	r, err := n.Read("10de:1b:00.0")
	want := Reading{
		Busy: 93, MemoryBusy: 41, Used: 24 << 20, Total: 1 << 30, Power: 311500, PowerLimit: 700000, Temperature: 47,
		LinkGeneration: 5, LinkWidth: 16,
	}
	if r != want || err != nil {
		t.Errorf("got  %+v, %v\nwant %+v", r, err, want)
	}
	// The second one does not tell its power.
	want.Power = -1
	if r, err := n.Read("10de:1c:00.0"); r != want || err != nil {
		t.Errorf("got  %+v, %v\nwant %+v", r, err, want)
	}
	if _, err := n.Read("10de:00:00.0"); err == nil || !strings.Contains(err.Error(), "GPU at 10de:00:00.0: nvmlDeviceGetHandleByPciBusId_v2: NVML error 6") {
		t.Error(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ flag, want string }{
		{"-DnvmlDeviceGetPowerUsage=other", "lacks nvmlDeviceGetPowerUsage"}, {"-DINIT=9", "nvmlInit_v2: NVML error 9"},
	} {
		if _, err := OpenNVML(gputest.NVML(t, c.flag)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Error(err)
		}
	}
	if _, err := OpenNVML(filepath.Join(t.TempDir(), "libnvidia-ml.so.1")); err == nil {
		t.Error("no library was opened")
	}
}

// BenchmarkCall is what a call of the driver takes, with its context made current.
func BenchmarkCall(b *testing.B) {
	d, err := Open(gputest.Cuda(b))
	if err != nil {
		b.Fatal(err)
	}
	v, err := d.Device(0)
	if err != nil {
		b.Fatal(err)
	}
	c, err := d.Retain(v)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Synchronize(); err != nil {
			b.Fatal(err)
		}
	}
}
