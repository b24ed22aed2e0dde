package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"image"
	"image/jpeg"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"shardify/dataset/datasettest"
	"shardify/imaging/transform"
	"shardify/internal/peers"
	"shardify/reader"
	"shardify/sample"
	"shardify/store/file"
)

// loadable makes 60 small photographs of three classes, reddish all of them, as a folder
// and as tar shards.
func loadable(t *testing.T) (folder, shards string, n int64) {
	t.Helper()
	dir := t.TempDir()
	folder, shards = filepath.Join(dir, "folder"), filepath.Join(dir, "shards")
	r := rand.New(rand.NewPCG(3, 4))
	_, err := datasettest.Make(file.New(shards), datasettest.Options{
		Shards: 2, Samples: 30, Classes: 3,
		Make: func(n, classes int) datasettest.Made {
			label := n * n % classes
			m := image.NewRGBA(image.Rect(0, 0, 100+r.IntN(60), 100+r.IntN(60)))
			for i := range m.Pix {
				m.Pix[i] = [4]uint8{180, 110, 40, 255}[i%4] + uint8(i/9%30)
			}
			var data bytes.Buffer
			if err := jpeg.Encode(&data, m, &jpeg.Options{Quality: 95}); err != nil {
				t.Fatal(err)
			}
			name := filepath.Join(folder, fmt.Sprint(label), fmt.Sprintf("%03d.jpg", n))
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, data.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			return datasettest.Made{Label: int64(label), Sample: sample.Sample{
				Key: fmt.Sprintf("%03d", n), Fields: []sample.Field{{Name: "cls", Data: fmt.Append(nil, label)}, {Name: "jpg", Data: data.Bytes()}},
			}}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return folder, shards, 60
}

// seen is what peers/loading.py says of an epoch.
type seen struct {
	images int
	crc    uint32
	means  [3]float64
}

func seenByOurs(t *testing.T, shards string) seen {
	t.Helper()
	data, err := reader.Open(t.Context(), shards, reader.Config{
		BatchSize: 256, Ends: reader.EndsExact, Transform: transform.List{transform.RandomResizedCrop{Size: transform.Size{224}}, transform.RandomHorizontalFlip{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	var s seen
	var labels []int64
	for b, err := range data.Epoch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		labels = append(labels, b.Labels()...)
		for i, v := range b.Images().Uint8() {
			s.means[i/(224*224)%3] += float64(v)
		}
		b.Release()
	}
	slices.Sort(labels)
	s.images = len(labels)
	var sorted bytes.Buffer
	if err := binary.Write(&sorted, binary.LittleEndian, labels); err != nil {
		t.Fatal(err)
	}
	s.crc = crc32.ChecksumIEEE(sorted.Bytes())
	for c := range s.means {
		s.means[c] /= float64(224 * 224 * s.images)
	}
	return s
}

// checked are the environments whose peers TestLoadersAgree starts, which takes seconds
// each; `make bench-check` has it start all.
var checked = flag.String("peers", "torch", "TestLoadersAgree: the `environments` of the peers to check")

// Every peer that is there makes batches of the same images with the same labels, in
// RGB, as bytes or normalised, of data that its writer made, and says how long it took in
// the way that is understood.
func TestLoadersAgree(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	folder, shards, n := loadable(t)
	want := seenByOurs(t, shards)
	if want.images != int(n) || math.Abs(want.means[0]-194) > 5 || math.Abs(want.means[2]-54) > 5 {
		t.Fatalf("ours: %+v", want)
	}
	chosen, err := chosenPeers(*checked)
	if err != nil {
		t.Fatal(err)
	}
	for at, p := range chosen {
		t.Run(p.name, func(t *testing.T) {
			b := &bench{root: root, python: filepath.Join(root, ".venv", "bin", "python"), dir: t.TempDir(), epochs: 1}
			if _, err := b.interpreter(p.venv); err != nil {
				t.Skipf("SKIPPED LOUDLY: %v, for benchmarks alone", err)
			}
			t.Parallel()
			data := map[string]string{"folder": folder, "tar": shards}[p.data]
			if data == "" {
				made, err := b.write(t.Context(), p.data, folder, 30_000)
				if err := errors.Join(err, made.failed); err != nil {
					t.Fatal(err)
				}
				data = made.dir
			}
			// Both kinds of images, but not of each peer: starts are slow.
			l := b.peer(p, dtypes[at%len(dtypes)], data, "check")
			agrees(t, b, &l, want, n)
		})
	}
}

// agrees runs a loader that is asked to check, and compares what it has seen.
func agrees(t *testing.T, b *bench, l *loader, want seen, n int64) {
	t.Helper()
	out, err := track(t.Context(), l.argv, l.env)
	if err != nil {
		t.Fatal(err)
	}
	var got seen
	_, said, _ := strings.Cut("\n"+out.text(), "\nseen ")
	if _, err := fmt.Sscanf(said, "%d %d %f %f %f\n", &got.images, &got.crc, &got.means[0], &got.means[1], &got.means[2]); err != nil {
		t.Fatalf("%v: %q", err, out.text())
	}
	if got.images != want.images || got.crc != want.crc {
		t.Errorf("has seen %d images with labels of CRC %08x; ours %d, %08x", got.images, got.crc, want.images, want.crc)
	}
	for c := range want.means {
		if math.Abs(got.means[c]-want.means[c]) > 2 {
			t.Errorf("channel %d is %.1f on average, ours %.1f", c, got.means[c], want.means[c])
		}
	}
	r := LoadingRun{RSS: out.rss, PSS: out.pss}
	if err := r.peer(out, b.epochs, n); err != nil {
		t.Fatal(err)
	}
	if len(r.Rates) != 1 || r.First <= 0 || r.RSS < r.PSS || r.PSS < 1<<20 {
		t.Errorf("%+v", r)
	}
}

// There is a writer of all that peers read, and each is written about once.
func TestPeerTable(t *testing.T) {
	made := map[string]bool{"folder": true, "tar": true}
	for _, w := range writerTable {
		if made[w.data] {
			t.Errorf("%q is written twice", w.data)
		}
		made[w.data] = true
	}
	names := map[string]bool{}
	for _, p := range peerTable {
		if names[p.name] || !made[p.data] {
			t.Errorf("%+v: the name is taken, or nobody writes its data", p)
		}
		names[p.name] = true
	}
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	for _, venv := range allPeers() {
		list := filepath.Join(root, "tools", "peers", venv+".txt")
		if _, err := os.Stat(list); err != nil && venv != "tensorflow" {
			t.Error(err)
		}
	}
	if all, err := chosenPeers(strings.Join(allPeers(), " ")); err != nil || !slices.Equal(all, peerTable) {
		t.Errorf("%v, %v", all, err)
	}
	if some, err := chosenPeers("torch,dali"); err != nil || len(some) != 4 || some[0].venv != "dali" {
		t.Errorf("%v, %v", some, err)
	}
	if _, err := chosenPeers("dali torhc"); err == nil || !strings.Contains(err.Error(), `no "torhc"; want some of dali, ffcv`) {
		t.Errorf("%v", err)
	}
	b := &bench{root: root, dir: t.TempDir()}
	if _, err := b.write(t.Context(), "punched cards", "", 1); err == nil {
		t.Error("a writer of what is not known")
	}
}

// One that fails is out, with why, and the others go on; in the end it is an error if that
// is one of ours.
func TestLoadAll(t *testing.T) {
	shell(t)
	sh := func(name, script string) loader {
		return loader{name: name, dtype: "uint8", argv: []string{"sh", "-c", script}}
	}
	const good = "echo start; echo first; echo epoch 2 10"
	once := filepath.Join(t.TempDir(), "once")
	absent := sh("absent", "exit 1")
	absent.failed = errors.New("not installed")
	loaders := []loader{
		sh("broken", "echo no cheese >&2; exit 1"),
		sh("good", good),
		sh("second time", fmt.Sprintf("test ! -e %s || exit 1; : >%s; %s", once, once, good)),
		absent,
	}
	b := &bench{epochs: 1, rounds: 2}
	runs, err := b.loadAll(t.Context(), loaders, 10)
	if err != nil {
		t.Fatal(err)
	}
	rows := b.loadingTable(loaders, runs)
	if len(rows[1].Runs) != 2 || rows[1].Rate != 5 || rows[1].Ratio != 1 {
		t.Errorf("%+v", rows[1])
	}
	for i, want := range map[int]string{0: "no cheese", 2: "exit status 1", 3: "not installed"} {
		if r := rows[i]; len(r.Runs) != 0 || !strings.Contains(r.Error, want) || r.Ratio != 0 {
			t.Errorf("%+v: want an error with %q", r, want)
		}
	}
	mine := sh("ours", "echo no idea >&2; exit 1")
	mine.ours = true
	loaders = []loader{loaders[1], mine, loaders[0]}
	if runs, err = b.loadAll(t.Context(), loaders, 10); err != nil {
		t.Fatal(err)
	}
	rep := report{Loading: b.loadingTable(loaders, runs)}
	if err := rep.failed(); err == nil || !strings.Contains(err.Error(), "ours, uint8: ") || !strings.Contains(err.Error(), "no idea") || strings.Contains(err.Error(), "cheese") {
		t.Errorf("ours has failed: %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.loadAll(cancelled, loaders[:1], 10); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// What does not end is killed with all that it has started, which else would keep the
// output open.
func TestTrackEnds(t *testing.T) {
	shell(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough of it")
	dir := t.TempDir()
	go func() {
		for range 6000 {
			if _, err := os.Stat(filepath.Join(dir, "started")); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		cancel(cause)
	}()
	_, err := track(ctx, []string{"sh", "-c", `(: >"$1/started"; sleep 600) & wait`, "sh", dir}, nil)
	if !errors.Is(err, cause) {
		t.Errorf("error %v, want %v", err, cause)
	}
}

// What `shardread bench` says is understood, and an epoch that lacks images, or is not
// read as it should be, is an error.
func TestLoadOurs(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED LOUDLY: memory is known on Linux alone")
	}
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	shardread := filepath.Join(t.TempDir(), "shardread")
	cmd := exec.Command("go", "build", "-o", shardread, "./cmd/shardread")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, shards, n := loadable(t)
	b := &bench{root: root, epochs: 2}
	l := oursLoader(shardread, shards, "float32", b.epochs)
	l.name = "ours"
	r, err := b.load(t.Context(), &l, n)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rates) != 1 || r.Rates[0] <= 0 || r.First <= 0 || r.CPU < 0 || r.RSS < 1<<20 || r.PSS != r.RSS {
		t.Errorf("%+v", r)
	}
	if _, err := b.load(t.Context(), &l, n+1); err == nil || !strings.Contains(err.Error(), "has read 120 images") {
		t.Errorf("an image more is missing: %v", err)
	}
	t.Run("in Python", func(t *testing.T) {
		b := &bench{root: root, python: peers.Python(t), dir: t.TempDir(), epochs: 1}
		want := seenByOurs(t, shards)
		for _, dtype := range dtypes {
			l := b.pythonLoader("ours", dtype, shards, "check")
			l.env = append(l.env, "SHARDREAD_PROGRAMS="+filepath.Dir(shardread))
			agrees(t, b, &l, want, n)
		}
	})
	l.points = true
	if _, err := b.load(t.Context(), &l, n); err == nil || !strings.Contains(err.Error(), "seek points") {
		t.Errorf("there are no seek points: %v", err)
	}
}

func TestLoadPeerFaults(t *testing.T) {
	shell(t)
	for _, c := range []struct{ script, want string }{
		{"echo no module called torch >&2; exit 1", "no module called torch"},
		{"echo start; echo first; echo epoch 1.5 10", "1 epochs, want 2"},
		{"echo start; echo epoch 1.5 10; echo epoch 1.5 10", "first batch after 0 s"},
		{"echo start; echo first; echo epoch 1.5 9; echo epoch 1.5 10", "9 images in an epoch of 10"},
		{"echo start; echo first; echo epoch 1.5 266; echo epoch 1.5 10", "266 images in an epoch of 10"},
		{"echo start; echo first; echo epoch soon 10", "epoch soon 10"},
	} {
		b := &bench{epochs: 2}
		_, err := b.load(t.Context(), &loader{name: "it", argv: []string{"sh", "-c", c.script}}, 10)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q in it", c.script, err, c.want)
		}
	}
	b := &bench{epochs: 1}
	r, err := b.load(t.Context(), &loader{name: "it", argv: []string{"sh", "-c", "echo hello; echo start; sleep 0.1; echo first; echo epoch 2 10"}}, 10)
	if err != nil || !slices.Equal(r.Rates, []float64{5}) || r.First < 0.1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A process's children count.
func TestTreeUsage(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED LOUDLY: known on Linux alone")
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sleep 60 & sleep 60 & wait")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var u usage
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(time.Millisecond) {
		var err error
		if u, err = treeUsage(cmd.Process.Pid, true); err != nil {
			t.Fatal(err)
		}
		if u.processes == 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, want three processes", u)
		}
	}
	// They have just become sleep, or are about to: memory is theirs soon.
	for deadline := time.Now().Add(60 * time.Second); u.rss <= u.pss || u.pss == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v: they share libc, so a sum that counts it once is less", u)
		}
		var err error
		if u, err = treeUsage(cmd.Process.Pid, true); err != nil {
			t.Fatal(err)
		}
	}
	// The sleeps are the shell's, which ends with them.
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for child := range strings.FieldsSeq(string(children)) {
		if out, err := exec.Command("kill", child).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the shell: %v", err)
	}
	if u, err = treeUsage(cmd.Process.Pid, true); err != nil || u != (usage{}) {
		t.Errorf("ended: %+v, %v", u, err)
	}
}

func TestLoadingTable(t *testing.T) {
	both := []loader{
		{name: "DALI", dtype: "uint8"},
		{name: "FFCV", dtype: "uint8", failed: errors.New("FFCV: exit status 1\nlong\nno g++ in /root/it")},
		{name: "ours", dtype: "uint8", ours: true, argv: []string{"/root/bin/shardread", "/root/w/x"}, env: []string{"A=1"}},
	}
	runs := [][]LoadingRun{
		{{Rates: []float64{900, 1000}, First: 2, CPU: 2, RSS: 900e6, PSS: 800e6}},
		nil,
		{{Rates: []float64{3000}, First: 0.1, CPU: 0.5, RSS: 2e8, PSS: 2e8}, {Rates: []float64{5000}, First: 0.3, CPU: 0.7, RSS: 3e8, PSS: 3e8}},
	}
	// Of float32 the first peer has failed, so the ratios are to the next.
	for i := range 3 {
		l := both[i]
		l.dtype = "float32"
		both = append(both, l)
	}
	both[3].failed, both[4].failed = both[1].failed, nil
	runs = append(runs, nil, runs[0], runs[2])
	b := &bench{root: "/root", dir: "/root/w"}
	rep := report{Title: "Batches", Files: 4000, Bytes: 4e8, Loading: b.loadingTable(both, runs), Notes: []string{"A note."}}
	var out strings.Builder
	if err := rep.print(&out); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(out.String(), "load before it 0.0.\n")
	const want = `
| uint8 | images/s | × DALI | by CPU | first batch, s | CPU s per 1,000 | memory (RSS) | (PSS) |
|---|---:|---:|---:|---:|---:|---:|---:|
| DALI | 1,000 | 1.00 | 1.00 | 2.00 | 2.00 | 900 MB | 800 MB |
| FFCV | failed | | | | | | |
| **ours** | **4,000** | 4.00 | 3.33 | 0.20 | 0.60 | 300 MB | 300 MB |

| float32 | images/s | × FFCV | by CPU | first batch, s | CPU s per 1,000 | memory (RSS) | (PSS) |
|---|---:|---:|---:|---:|---:|---:|---:|
| DALI | failed | | | | | | |
| FFCV | 1,000 | 1.00 | 1.00 | 2.00 | 2.00 | 900 MB | 800 MB |
| **ours** | **4,000** | 4.00 | 3.33 | 0.20 | 0.60 | 300 MB | 300 MB |

- failed: FFCV, uint8: FFCV: exit status 1 … no g++ in it
- failed: DALI, float32: FFCV: exit status 1 … no g++ in it

- A note.
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if c := rep.Loading[2].Command; c != "A=1 bin/shardread WORK/x" {
		t.Errorf("command %q", c)
	}
	alone := b.loadingTable(both[2:3], runs[2:3])
	out.Reset()
	printLoading(&out, alone)
	if !strings.Contains(out.String(), "| × – |") || !strings.Contains(out.String(), "| **ours** | **4,000** | – | – |") {
		t.Errorf("without peers: %s", out.String())
	}
}
