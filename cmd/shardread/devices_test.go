package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"shardify/gpu"
	"shardify/gpu/gputest"
	"shardify/reader"
)

// Against doubles of the driver's libraries: batches go to one GPU or several, and how that
// fared is printed and in the JSON.
func TestBenchDevice(t *testing.T) {
	cuda, nvml := gputest.Cuda(t), gputest.NVML(t)
	both := "LD_LIBRARY_PATH=" + filepath.Dir(cuda) + ":" + filepath.Dir(nvml)
	data := small(t)
	out, errs, code := runProgram(t, []string{"bench", data, "--crop", "24", "--batch", "4", "--device", "cuda:0", "--pinned", "1GiB"}, both)
	lines := []string{
		`bound by: [a-z]+; waited`,
		`cuda:0: 5\d\.?\d* kB in copies of .*B/s, 100\.0% of their time hidden; its stream stood for 0 of 8 batches, 0\.0% of the time; the loop waited .*%, for: gpu .*%, reader .*%, upload .*%, cpu .*%`,
		`cuda:0: Fake GPU A: 1 readings, 93% busy \(its memory 41%\), 25 MB used, 312 of 700 W, 47 °C at most`,
		`pinned: .*B at most; 0 B beyond --pinned, 0 B refused by the driver`,
	}
	for _, want := range lines {
		if !regexp.MustCompile(`(?m)^` + want).MatchString(out) {
			t.Errorf("no line %q in\n%s", want, out)
		}
	}
	if errs != "" || code != 0 {
		t.Errorf("(%d) %s", code, errs)
	}
	var line struct {
		Bound    reader.Bound       `json:"bound_by"`
		Stats    reader.Stats       `json:"stats"`
		Prefetch gpu.PrefetchConfig `json:"prefetch"`
		Pinned   gpu.PinnedStats    `json:"pinned"`
	}
	// All of them, in turn; in a limit that allows no slab to be pinned; from a stream.
	for _, args := range [][]string{
		{"bench", data, "--device", "all"}, {"bench", data, "--device", "cuda:1,cuda:0"}, {"bench", data + "/train-*.tar", "--device", "all"},
	} {
		args = append(args, "--crop", "24", "--batch", "4", "--depth", "2", "--pinned", "1KiB", "--epochs", "2", "--json")
		out, errs, code = runProgram(t, args, both)
		line.Stats = reader.Stats{}
		if err := json.Unmarshal([]byte(out), &line); err != nil || errs != "" || code != 0 {
			t.Fatalf("%v: (%d) %s%s: %v", args, code, out, errs, err)
		}
		d := line.Stats.Devices
		if line.Stats.Samples != 60 || len(d) != 2 || d[0].Batches != 8 || d[1].Batches != 8 || d[0].Bytes+d[1].Bytes != 60*(3*24*24+8) ||
			line.Prefetch.Depth != 2 || line.Pinned.Pinned != 0 || line.Pinned.Ordinary == 0 || line.Bound == "" {
			t.Errorf("%v: %s", args, out)
		}
	}
	if first := line.Stats.Devices[0]; first.Device != "cuda:0" || first.Readings == nil {
		t.Errorf("%+v", first)
	}
	// The state of batches that went to several GPUs is a place to go on from.
	state := filepath.Join(t.TempDir(), "state")
	if _, errs, code = runProgram(t, []string{"bench", data, "--device", "all", "--batch", "4", "--batches", "3", "--state-out", state}, both); code != 0 {
		t.Fatalf("(%d) %s", code, errs)
	}
	out, errs, code = runProgram(t, []string{"bench", data, "--device", "all", "--resume", state, "--json"}, both)
	if err := json.Unmarshal([]byte(out), &line); err != nil || line.Stats.Samples != 18 {
		t.Errorf("(%d) %s%s: %v", code, out, errs, err)
	}
	// What is wrong is said: before the data set is looked at, as far as it can be.
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--device", "cuda:2"}, 1, "there is no GPU 2: there are 2, 0 to 1"},
		{[]string{"--device", "gpu0"}, 2, `--device: "gpu0" is no GPU; want cuda:0, several with commas between, or all`},
		{[]string{"--device", "cuda:0,cuda:0"}, 2, "--device: cuda:0 is there twice"},
		{[]string{"--device", "cuda:0", "--pinned", "lots"}, 2, `--pinned: "lots" is no size`},
		{[]string{"--device", "cuda:0", "--depth", "-1"}, 2, "--depth: -1; want 1 to 1024"},
		{[]string{"--depth", "2"}, 2, "which is not given"},
	} {
		if out, errs, code := runProgram(t, append([]string{"bench", data}, c.args...), both); out != "" || code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("%v: (%d) %s%s", c.args, code, out, errs)
		}
	}
	// A GPU that fails ends it.
	if _, errs, code := runProgram(t, []string{"bench", data, "--device", "cuda:0"}, both, "FAKE_CUDA_FAIL=cuEventRecord:3:719"); code != 1 || !strings.Contains(errs, "cuEventRecord") {
		t.Errorf("(%d) %s", code, errs)
	}
	if _, errs, code := runProgram(t, []string{"bench", data, "--device", "all"}, both, "FAKE_CUDA_DEVICES=0"); code != 1 || !strings.Contains(errs, "CUDA_ERROR_NO_DEVICE") {
		t.Errorf("(%d) %s", code, errs)
	}
}
