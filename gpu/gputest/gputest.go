// Package gputest builds test doubles of NVIDIA's libraries: shared libraries in C with
// the functions of libcuda and NVML that shardify calls, for tests of how these are loaded
// and called where there is no card. They show that our side of the calls is right, their
// order, their arguments, what becomes of their errors, and that all is freed; of the
// driver they show nothing. Tests that need a card ask for it with [Card].
package gputest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"shardify/internal/peers"
)

// Cuda builds a double of libcuda.so.1 into a folder and returns its path. flags are for
// the C compiler: -DcuInit=other leaves a function out.
func Cuda(t testing.TB, flags ...string) string {
	return build(t, "libcuda.so.1", append([]string{source("fakecuda.c")}, flags...))
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
	cmd := exec.Command(peers.Program(t, "cc"), append([]string{"-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread", "-o", path}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return path
}

func source(name string) string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "testdata", name)
}

// Card skips a test where `make test-gpu` does not run it: only there is a card wanted.
func Card(t testing.TB) {
	t.Helper()
	if !strings.EqualFold(os.Getenv("SHARDIFY_GPU"), "require") {
		t.Skip("SKIPPED LOUDLY: needs an NVIDIA card; `make test-gpu` runs it there")
	}
}
