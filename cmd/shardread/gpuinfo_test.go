package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"shardify/gpu"
	"shardify/gpu/gputest"
)

// gpuInfo runs `shardread gpu-info`.
func gpuInfo(t *testing.T, args []string, env ...string) (stdout, stderr string, code int) {
	t.Helper()
	return runProgram(t, append([]string{"gpu-info"}, args...), env...)
}

// runProgram runs shardread as a process with an environment of its own.
func runProgram(t *testing.T, args []string, env ...string) (stdout, stderr string, code int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "shardread") // the name that testscript.Main looks at
	if err := os.Symlink(exe, link); err != nil {
		t.Skipf("SKIPPED LOUDLY: no symbolic links here: %v", err)
	}
	cmd := exec.Command(link, args...)
	cmd.Env = append(os.Environ(), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), errs.String(), cmd.ProcessState.ExitCode()
}

// Against doubles of the driver's libraries: what there is, and what is missing.
func TestGPUInfo(t *testing.T) {
	cuda, nvml := gputest.CudaWithNVJPEG(t), gputest.NVML(t)
	both := "LD_LIBRARY_PATH=" + filepath.Dir(cuda) + ":" + filepath.Dir(nvml)
	out, errs, code := gpuInfo(t, nil, both)
	// What the machine has of memory and limits is its own.
	out = regexp.MustCompile(`(?m)^(pinned  all batches, within --memory or --pinned); the machine has [0-9.]+ .?B, and (no limit of locked memory|at most .*B locked where .*)$`).ReplaceAllString(out, "$1")
	want := `driver  580.159.03, for CUDA up to 13.0 (libcuda.so.1)
nvJPEG  12.4.0 (libnvjpeg.so.12)
pinned  all batches, within --memory or --pinned
GPU 0   Fake GPU A, compute capability 9.0, 1.1 GB, 132 multiprocessors, 3 copy engines
        GPU-00010203-0405-0607-0809-0a0b0c0d0e0f, PCI 10de:1b:00.0, no NUMA node
        uses: uploads beside kernels, kernels, batches for other processes by files, reaches GPU 1
        now: 25 MB used, 93% busy, 312 of 700 W, 47 °C, PCIe 5.0 x16
GPU 1   Fake GPU B, compute capability 9.0, 1.1 GB, 132 multiprocessors, 3 copy engines
        GPU-10111213-1415-1617-1819-1a1b1c1d1e1f, PCI 10de:1c:00.0, no NUMA node
        uses: uploads beside kernels, kernels, batches for other processes by files, reaches GPU 0
        now: 25 MB used, 93% busy, 47 °C, PCIe 5.0 x16
`
	if out != want || errs != "" || code != 0 {
		t.Errorf("%s%s(%d)\nwant\n%s", out, errs, code, want)
	}
	var info gpu.Info
	if out, _, code = gpuInfo(t, []string{"--json"}, both); code != 0 || json.Unmarshal([]byte(out), &info) != nil || len(info.Devices) != 2 || info.Devices[1].Reading.Power != -1 {
		t.Errorf("(%d) %s", code, out)
	}
	// What cannot be used is said.
	out, errs, code = gpuInfo(t, nil, both, "FAKE_CUDA_CAPABILITY=70", "FAKE_CUDA_SHARES=0", "FAKE_CUDA_PEERS=0", "FAKE_CUDA_MODE=3")
	if !strings.Contains(out, `
        uses: uploads beside kernels, no kernels, which need compute capability 7.5, no batches for other processes (the driver cannot share memory by files)
        only one process may use it at a time (nvidia-smi -c 0 opens it)
`) || errs != "" || code != 0 {
		t.Errorf("(%d) %s%s", code, out, errs)
	}
	// What nvJPEG knows: with engines, and without.
	out, errs, code = gpuInfo(t, []string{"--engines"}, both)
	if !strings.Contains(out, "        JPEG: 8 engines, cores of each: 1; nvJPEG's backends: hardware, gpu_hybrid, hybrid\nGPU 1") || errs != "" || code != 0 {
		t.Errorf("(%d) %s%s", code, out, errs)
	}
	out, errs, code = gpuInfo(t, []string{"--engines", "--json"}, both, "FAKE_NVJPEG_ENGINES=0")
	info = gpu.Info{}
	if err := json.Unmarshal([]byte(out), &info); err != nil || errs != "" || code != 0 || !reflect.DeepEqual(info.Devices[1].JPEG, &gpu.JPEGInfo{Backends: []gpu.Backend{gpu.BackendGPUHybrid, gpu.BackendHybrid}}) {
		t.Errorf("(%d) %s%s: %v", code, out, errs, err)
	}
	// Without nvJPEG: the double's is for a CUDA that its driver does not serve.
	out, errs, code = gpuInfo(t, nil, both, "FAKE_NVJPEG_CUDA=14")
	if !strings.Contains(out, "GPU 1") || !strings.Contains(errs, "JPEG is decoded by the CPU alone: nvJPEG is not available: libnvjpeg.so.12 is for CUDA 14.9, and the driver serves CUDA 13; `pip install nvidia-nvjpeg`") || code != 0 {
		t.Errorf("(%d) %s%s", code, out, errs)
	}
	if _, errs, code = gpuInfo(t, []string{"--engines"}, both, "FAKE_NVJPEG_CUDA=14"); !strings.Contains(errs, "is for CUDA 14.9") || code != 1 {
		t.Errorf("(%d) %s", code, errs)
	}
	// Without NVML.
	out, errs, code = gpuInfo(t, nil, "LD_LIBRARY_PATH="+filepath.Dir(cuda))
	if !strings.Contains(out, "GPU 1") || !strings.Contains(errs, "NVML is not available") || code != 0 {
		t.Errorf("(%d) %s%s", code, out, errs)
	}
	// Without a GPU.
	out, errs, code = gpuInfo(t, nil, both, "FAKE_CUDA_DEVICES=0")
	if out != "" || !strings.Contains(errs, "shardread: CUDA is not available: libcuda.so.1: cuInit: CUDA_ERROR_NO_DEVICE (100)") || code != 1 {
		t.Errorf("(%d) %s%s", code, out, errs)
	}
	out, _, code = gpuInfo(t, []string{"--json"}, both, "FAKE_CUDA_DEVICES=0")
	info = gpu.Info{}
	if err := json.Unmarshal([]byte(out), &info); err != nil || code != 1 || !strings.Contains(info.Problem, "NO_DEVICE") || info.Devices == nil {
		t.Errorf("(%d) %s: %v", code, out, err)
	}
}

// Where there is no driver, or no support for one.
func TestGPUInfoNowhere(t *testing.T) {
	out, errs, code := gpuInfo(t, nil)
	if code == 0 && runtime.GOOS == "linux" {
		t.Skip("SKIPPED LOUDLY: there is a GPU here; what is said without one cannot be seen")
	}
	if out != "" || !strings.HasPrefix(errs, "shardread: CUDA is not available: ") || code != 1 {
		t.Errorf("(%d) %s%s", code, out, errs)
	}
	if _, errs, code = gpuInfo(t, []string{"0"}); code != 2 {
		t.Errorf("(%d) %s", code, errs)
	}
}
