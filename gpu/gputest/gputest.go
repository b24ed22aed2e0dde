// Package gputest builds test doubles of NVIDIA's libraries: shared libraries in C with
// the functions of libcuda, NVML and nvJPEG that shardify calls, for tests of how these are loaded
// and called where there is no card. They show that our side of the calls is right, their
// order, their arguments, what becomes of their errors, and that all is freed; of the
// driver they show nothing.
package gputest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"shardify/internal/peers"
)

// Cuda builds a double of libcuda.so.1 into a folder and returns its path. flags are for
// the C compiler: -DcuInit=other leaves a function out.
func Cuda(t testing.TB, flags ...string) string {
	return build(t, "libcuda.so.1", append([]string{source("fakecuda.c")}, flags...))
}

// CudaWithKernels builds the same with a C file of kernels, which it runs thread by thread
// when they are launched.
func CudaWithKernels(t testing.TB, kernels string) string {
	return Cuda(t, kernels, "-DFAKE_KERNELS", "-ffp-contract=off", "-lm")
}

// CudaWithNVJPEG builds a double of libcuda.so.1 that has the functions of libnvjpeg, too: its
// path is that of both. Beside it there is libnvjpeg.so.12, the same file, for what finds
// libraries by their names.
func CudaWithNVJPEG(t testing.TB, flags ...string) string {
	path := build(t, "libcuda.so.1", append([]string{source("fakenvjpeg.c")}, flags...))
	if err := os.Symlink(filepath.Base(path), filepath.Join(filepath.Dir(path), "libnvjpeg.so.12")); err != nil {
		t.Fatal(err)
	}
	return path
}

// NVML does the same with libnvidia-ml.so.1, in a folder.
func NVML(t testing.TB, flags ...string) string {
	return build(t, "libnvidia-ml.so.1", append([]string{source("fakenvml.c")}, flags...))
}

func build(t testing.TB, name string, args []string) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED LOUDLY: GPUs are supported on Linux only")
	}
	path := filepath.Join(t.TempDir(), name)
	built.Lock()
	defer built.Unlock()
	key := strings.Join(args, " ")
	if built.libraries[key] == nil {
		cmd := exec.Command(peers.Program(t, "cc"), append([]string{"-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread", "-o", path}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		built.libraries[key] = data
		return path
	}
	// A file of its own is a library of its own, with a state of its own.
	if err := os.WriteFile(path, built.libraries[key], 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// built are libraries, by the compiler's arguments, so that a package's tests compile each
// once.
var built = struct {
	sync.Mutex
	libraries map[string][]byte
}{libraries: map[string][]byte{}}

func source(name string) string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "testdata", name)
}
