package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"shardify/dataset/datasettest"
	"shardify/imaging/augment"
	"shardify/imaging/transform"
	"shardify/internal/peers"
	"shardify/reader"
	"shardify/shard/tar"
	"shardify/store"
	"shardify/store/file"
)

func TestMain(m *testing.M) {
	if address, dir, ok := strings.Cut(os.Getenv(holderEnv), "\n"); ok {
		if err := hold(address, dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testscript.Main(m, map[string]func(){"shardread": main})
}

// Every script has $WORK/data, a data set of two splits of 3 × 10 samples, and
// $WORK/damaged, one in which a sample of the first shard has a flipped bit.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			datasettest.Write(t, file.New(filepath.Join(e.WorkDir, "data")), datasettest.Options{Splits: []string{"train", "val"}})
			damaged(t, filepath.Join(e.WorkDir, "damaged"))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			// append FILE: stdout of the last command behind what FILE has.
			"append": func(ts *testscript.TestScript, _ bool, args []string) {
				all := ts.ReadFile(args[0]) + ts.ReadFile("stdout")
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(all), 0o666))
			},
			// lines N: stdout of the last command has N lines.
			"lines": func(ts *testscript.TestScript, neg bool, args []string) {
				out := ts.ReadFile("stdout")
				if n := strings.Count(out, "\n"); fmt.Sprint(n) != args[0] != neg {
					ts.Fatalf("%d lines, want %s", n, args[0])
				}
			},
		},
	})
}

func damaged(t *testing.T, dir string) {
	st := file.New(dir)
	d := datasettest.Write(t, st, datasettest.Options{})
	sh := &d.Manifest().Splits[0].Shards[0]
	rows, err := d.Rows(context.Background(), sh)
	if err != nil {
		t.Fatal(err)
	}
	data, err := store.ReadAll(context.Background(), st, sh.Name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	data[rows[4].Field("jpg").Offset+99] ^= 4
	if err := store.WriteAll(context.Background(), st, sh.Name, data); err != nil {
		t.Fatal(err)
	}
}

// shardread runs the command and returns its stdout.
func shardread(t *testing.T, args ...string) []byte {
	t.Helper()
	root := newRootCommand()
	var out, errs bytes.Buffer
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("shardread %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.Bytes()
}

func small(t *testing.T) string {
	dir := t.TempDir()
	datasettest.Write(t, file.New(dir), datasettest.Options{})
	return dir
}

// order lists the samples that plan prints.
func order(t *testing.T, args ...string) (numbers []int) {
	for line := range strings.Lines(string(shardread(t, append([]string{"plan"}, args...)...))) {
		var batch, n, row int
		var shard string
		if _, err := fmt.Sscanf(line, "%d\t%d\t%s\t%d", &batch, &n, &shard, &row); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// The tar has every sample once, with its fields, in the order that plan prints.
func TestStreamTar(t *testing.T) {
	dir := small(t)
	out := shardread(t, "stream", dir, "--seed", "4", "--epoch", "2", "--batch", "7")
	want := order(t, dir, "--seed", "4", "--epoch", "2", "--batch", "7")
	n := 0
	for s, err := range (tar.Container{}).Scan(bytes.NewReader(out), 1<<20) {
		if err != nil {
			t.Fatal(err)
		}
		made := datasettest.Sample(want[n], 5)
		if s.Sample.Key != made.Key || len(s.Sample.Fields) != len(made.Fields) {
			t.Fatalf("sample %d is %q, want %q", n, s.Sample.Key, made.Key)
		}
		for i, f := range made.Fields {
			if s.Sample.Fields[i].Name != f.Name || !bytes.Equal(s.Sample.Fields[i].Data, f.Data) {
				t.Errorf("%s: field %s differs", s.Sample.Key, f.Name)
			}
		}
		n++
	}
	if n != 30 {
		t.Errorf("%d samples", n)
	}
}

func TestStreamTarInWebDataset(t *testing.T) {
	python := peers.Python(t)
	dir := small(t)
	name := filepath.Join(t.TempDir(), "epoch.tar")
	if err := os.WriteFile(name, shardread(t, "stream", dir, "--shuffle", "none"), 0o666); err != nil {
		t.Fatal(err)
	}
	got, err := exec.Command(python, "-c", `
import sys, webdataset as wds
for s in wds.WebDataset(sys.argv[1], shardshuffle=False, empty_check=False):
    print(s["__key__"], s["cls"].decode(), len(s["jpg"]))
`, name).Output()
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for n := range 30 {
		s := datasettest.Sample(n, 5)
		fmt.Fprintln(&want, s.Key, n%5, len(s.Fields[1].Data))
	}
	if string(got) != want.String() {
		t.Errorf("webdataset reads\n%s\nwant\n%s", got, want.String())
	}
}

func TestStreamJSON(t *testing.T) {
	dir := small(t)
	dec := json.NewDecoder(bytes.NewReader(shardread(t, "stream", dir, "--format", "jsonl", "--shuffle", "none")))
	for n := 0; ; n++ {
		var l sampleLine
		if err := dec.Decode(&l); err == io.EOF {
			if n != 30 {
				t.Errorf("%d samples", n)
			}
			return
		} else if err != nil {
			t.Fatal(err)
		}
		made := datasettest.Sample(n, 5)
		if l.Sample != int64(n) || l.Key != made.Key || l.Label != made.Label || len(l.Fields) != len(made.Fields) {
			t.Fatalf("%+v", l)
		}
		for _, f := range made.Fields {
			got := l.Fields[f.Name]
			if f.Name == "cls" {
				if got.Text == nil || *got.Text != string(f.Data) || got.Base64 != nil {
					t.Errorf("cls of %d: %+v", n, got)
				}
				continue
			}
			data, err := base64.StdEncoding.DecodeString(*got.Base64)
			if err != nil || !bytes.Equal(data, f.Data) || got.Bytes != len(f.Data) {
				t.Errorf("%s of %d: %v", f.Name, n, err)
			}
		}
	}
}

// NumPy reads the arrays, and they are the batches of package reader.
func TestStreamNpy(t *testing.T) {
	python := peers.Python(t)
	dir := small(t)
	for _, kind := range []string{"uint8", "float32", "float16", "bfloat16", "uint8 cutmix"} {
		dtype, cut := strings.CutSuffix(kind, " cutmix")
		args := []string{"stream", dir, "--format", "npy", "--crop", "32", "--seed", "9", "--batch", "8", "--dtype", dtype, "--layout", "nhwc"}
		if cut {
			args = append(args, "--cutmix", "1")
		}
		cmd := exec.Command(python, "-c", `
import sys, hashlib, types
from numpy.lib import format
pipe = types.SimpleNamespace(read=sys.stdin.buffer.read)
while sys.stdin.buffer.peek(1):
    images, labels = format.read_array(pipe), format.read_array(pipe)
    seen = labels.tolist() if labels.ndim == 1 else hashlib.sha256(labels.tobytes()).hexdigest()
    print(images.shape, images.dtype, hashlib.sha256(images.tobytes()).hexdigest(), seen, labels.dtype)
`)
		cmd.Stdin = bytes.NewReader(shardread(t, args...))
		cmd.Stderr = os.Stderr
		got, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var mix *augment.CutMix
		if cut {
			mix = &augment.CutMix{Alpha: 1}
		}
		r, err := reader.Open(t.Context(), dir, reader.Config{
			CutMix:    mix,
			BatchSize: 8, Seed: 9, Ends: reader.EndsExact, DType: reader.DType(dtype), Layout: reader.LayoutNHWC,
			Transform: transform.List{transform.RandomResizedCrop{Size: transform.Size{32}}, transform.RandomHorizontalFlip{}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var want strings.Builder
		for b, err := range r.Epoch(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			labels, of := strings.ReplaceAll(fmt.Sprint(b.Labels()), " ", ", "), "int64"
			if soft, ok := b.Tensor("soft_label"); ok {
				labels, of = sum(soft.Data), "float32"
			}
			seenAs := dtype
			if dtype == "bfloat16" {
				seenAs = "|V2" // NumPy has none
			}
			fmt.Fprintf(&want, "(%d, 32, 32, 3) %s %s %s %s\n", b.Len(), seenAs, sum(b.Images().Data), labels, of)
			b.Release()
		}
		if string(got) != want.String() {
			t.Errorf("NumPy reads\n%s\nwant\n%s", got, want.String())
		}
	}
}

// NumPy reads all tensors, from a pipe and from an archive, and they are the batches of
// package reader.
func TestStreamTensors(t *testing.T) {
	python := peers.Python(t)
	dir := small(t)
	const tensors = `[{"field":"cls","name":"text","kind":"text"},{"field":"cls","name":"half","kind":"float","dtype":"float16"},` +
		`{"field":"cls","name":"flag","kind":"json","dtype":"int8","shape":[]},{"field":"cls","name":"ragged","kind":"text","collate":"ragged","dtype":"uint16"}]`
	c := reader.Config{BatchSize: 8, Seed: 9, Ends: reader.EndsExact, Transform: transform.List{transform.RandomResizedCrop{Size: transform.Size{32}}, transform.RandomHorizontalFlip{}}}
	if err := json.Unmarshal([]byte(tensors), &c.Tensors); err != nil {
		t.Fatal(err)
	}
	r, err := reader.Open(t.Context(), dir, c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var want strings.Builder
	for b, err := range r.Epoch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range b.Tensors() {
			shape := strings.ReplaceAll(strings.Trim(fmt.Sprint(x.Shape), "[]"), " ", ",")
			fmt.Fprintf(&want, "%d %s %s %s %s\n", b.Number(), x.Name, x.DType, shape, sum(x.Data))
		}
		b.Release()
	}
	for format, script := range map[string]string{
		"npy": `
pipe = types.SimpleNamespace(read=sys.stdin.buffer.read)
b = 0
while sys.stdin.buffer.peek(1):
    for name in "image label text text_mask text_lengths half flag ragged ragged_offsets".split():
        show(b, name, np.lib.format.read_array(pipe))
    b += 1
`,
		"npz": `
f = np.load(io.BytesIO(sys.stdin.buffer.read()))
for name in f:
    b, name = name.split("/")
    show(int(b), name, f["%s/%s" % (b, name)])
`,
	} {
		args := []string{"stream", dir, "--format", format, "--crop", "32", "--seed", "9", "--batch", "8", "--tensors", tensors}
		cmd := exec.Command(python, "-c", `
import sys, hashlib, io, types
import numpy as np
def show(b, name, a):
    print(b, name, a.dtype, ",".join(map(str, a.shape)), hashlib.sha256(a.tobytes()).hexdigest())
`+script)
		cmd.Stdin = bytes.NewReader(shardread(t, args...))
		cmd.Stderr = os.Stderr
		got, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want.String() {
			t.Errorf("%s: NumPy reads\n%s\nwant\n%s", format, got, want.String())
		}
	}
}

// Ranks share an epoch: every sample once.
func TestPlanRanks(t *testing.T) {
	dir := small(t)
	var all []int
	for rank := range 4 {
		all = append(all, order(t, dir, "--world", "4", "--rank", fmt.Sprint(rank), "--batch", "2", "--shuffle", "window")...)
	}
	slices.Sort(all)
	for i, n := range all {
		if i != n || len(all) != 30 {
			t.Fatalf("%v", all)
		}
	}
}

// A reader that has had enough, as in `shardread stream … | head`, is no error.
func TestClosedPipe(t *testing.T) {
	dir := t.TempDir()
	datasettest.Write(t, file.New(dir), datasettest.Options{Samples: 40})
	bash := peers.Program(t, "bash")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "shardread") // the name that testscript.Main looks at
	if err := os.Symlink(exe, link); err != nil {
		t.Skipf("SKIPPED LOUDLY: no symbolic links here: %v", err)
	}
	// Each writes more than a pipe's 64 KiB.
	for _, args := range []string{"stream", "stream --format jsonl", "plan --json --batch 2000 --ends pad", "stream --format npy --crop 64 --batch 1"} {
		script := link + " " + args + " " + dir + " | head -c 10 >/dev/null; echo ${PIPESTATUS[0]}"
		out, err := exec.Command(bash, "-c", script).CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		if string(out) != "0\n" {
			t.Errorf("%s: %q", args, out)
		}
	}
}

func sum(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }
