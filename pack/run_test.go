package pack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shardify/dataset"
	"shardify/index"
	"shardify/source"
	"shardify/store"
	"shardify/store/fault"
	"shardify/store/file"
	"shardify/store/mem"
)

func TestMain(m *testing.M) {
	if dst := os.Getenv("SHARDIFY_TEST_PACK"); dst != "" {
		os.Exit(packChild(dst))
	}
	goleak.VerifyTestMain(m)
}

// photo returns a small JPEG with size bytes of comment or a bit more.
func photo(seed uint64, size int) []byte {
	r := rand.New(rand.NewPCG(seed, 3))
	im := image.NewRGBA(image.Rect(0, 0, 8+r.IntN(20), 8+r.IntN(20)))
	c := color.RGBA{byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32()), 255}
	for y := range im.Rect.Dy() {
		for x := range im.Rect.Dx() {
			im.SetRGBA(x, y, c)
		}
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, im, nil); err != nil {
		panic(err)
	}
	data := b.Bytes()
	out := append([]byte{}, data[:2]...)
	for size > 0 { // comments, after the start of the image
		n := min(size, 60_000)
		out = append(out, 0xff, 0xfe, byte((n+2)>>8), byte(n+2))
		for range n {
			out = append(out, 'a'+byte(r.Uint32()%26))
		}
		size -= n
	}
	return append(out, data[2:]...)
}

// write makes files under dir.
func write(t testing.TB, dir string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// tree is an ImageFolder of n photos of some KB in five classes, with side-cars.
func tree(n int) map[string][]byte {
	files := map[string][]byte{}
	for i := range n {
		name := fmt.Sprintf("class %d/img%03d", i%5, i)
		files[name+".JPEG"] = photo(uint64(i), i*97%9000)
		if i%3 == 0 {
			files[name+".json"] = fmt.Appendf(nil, `{"i":%d}`, i)
		}
	}
	return files
}

// config packs dir into shards of a few samples.
func config(dir string) Config {
	return Config{Source: Source{Paths: []string{dir}}, Name: "test", ShardSize: 60_000}
}

// content reads every object of a store.
func content(t testing.TB, st store.Store) map[string]string {
	t.Helper()
	out := map[string]string{}
	for info, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		data, err := store.ReadAll(t.Context(), st, info.Name, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		out[info.Name] = string(data)
	}
	return out
}

func mustRun(t testing.TB, st store.Store, cfg Config, env Env) *Result {
	t.Helper()
	r, err := Run(t.Context(), st, cfg, env)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func same(t testing.TB, what string, got, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if g, ok := got[name]; !ok {
			t.Errorf("%s: %s is missing", what, name)
		} else if g != want[name] {
			t.Errorf("%s: %s differs", what, name)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is there too", what, name)
		}
	}
}

// problems verifies a data set against its checksums and indexes.
func problems(t testing.TB, st store.Store) {
	t.Helper()
	ds, err := dataset.Open(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dataset.Verify(t.Context(), ds, dataset.VerifyOptions{}, func(p dataset.Problem) { t.Errorf("verify: %v", p) }); err != nil {
		t.Fatal(err)
	}
}

// rows returns all index rows of a data set, in order, by split.
func rows(t testing.TB, st store.Store) map[string][]index.Row {
	t.Helper()
	ds, err := dataset.Open(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]index.Row{}
	for i := range ds.Manifest().Splits {
		s := &ds.Manifest().Splits[i]
		for j := range s.Shards {
			rows, err := ds.Rows(t.Context(), &s.Shards[j])
			if err != nil {
				t.Fatal(err)
			}
			out[s.Name] = append(out[s.Name], rows...)
		}
	}
	return out
}

// The bytes do not depend on workers, memory, or on how many share the work.
func TestSameBytes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, tree(60))
	for _, format := range []string{"tar", "tar.zst", "tar.gz", "tfrecord"} {
		for _, order := range []string{OrderShuffle, OrderPath, OrderInterleaved} {
			cfg := config(dir)
			cfg.Format, cfg.Order = format, order
			if order != OrderPath {
				cfg.JPEGSeek = map[string]string{OrderShuffle: "row", OrderInterleaved: "2"}[order]
			}
			first := mem.New()
			mustRun(t, first, cfg, Env{Workers: 1})
			problems(t, first)
			want := content(t, first)
			if n := len(want); n < 5 {
				t.Fatalf("%d files", n)
			}
			for _, env := range []Env{{Workers: 2}, {Workers: 9, Memory: 1000}, {Workers: 16}} {
				st := mem.New()
				mustRun(t, st, cfg, env)
				same(t, fmt.Sprint(format, order, env), content(t, st), want)
			}
			st := mem.New()
			for i := range 3 {
				_, err := Run(t.Context(), st, cfg, Env{Worker: 2 - i, Of: 3})
				if (i < 2) != errors.Is(err, ErrIncomplete) || i == 2 && err != nil {
					t.Fatalf("worker %d of 3: %v", 2-i, err)
				}
			}
			same(t, fmt.Sprint(format, order, " three workers"), content(t, st), want)
		}
	}
}

// The whole of a small data set, frozen: a change here breaks the promise that the
// same input gives the same bytes with every later version.
func TestFrozen(t *testing.T) {
	dir := t.TempDir()
	files := map[string][]byte{}
	for i := range 12 {
		// Bytes that do not depend on Go's encoder.
		files[fmt.Sprintf("train/%c/%d.bmp", 'a'+i%3, i)] = bitmap(byte(i))
	}
	files["val/a/x.y.bmp"] = bitmap(99)
	write(t, dir, files)
	st := mem.New()
	cfg := Config{Source: Source{Paths: []string{dir}}, Name: "frozen", ShardSamples: 5}
	// The source's path is in the manifest, and differs from run to run.
	t.Chdir(dir)
	cfg.Source.Paths = []string{"."}
	mustRun(t, st, cfg, Env{Tool: "test"})
	got := map[string]string{}
	for name, data := range content(t, st) {
		got[name] = string(index.Sum([]byte(data)))
	}
	want := map[string]string{
		"manifest.json":        "crc64nvme:75abf1c36cd7cd6c",
		"train-000000.parquet": "crc64nvme:f838929e377b556e",
		"train-000000.tar":     "crc64nvme:8a359231379735a1",
		"train-000001.parquet": "crc64nvme:f0e761268affc056",
		"train-000001.tar":     "crc64nvme:32f969705fea6b6f",
		"train-000002.parquet": "crc64nvme:30cbce3401beb9f9",
		"train-000002.tar":     "crc64nvme:3a88f3c408e7d7c5",
		"val-000000.parquet":   "crc64nvme:b0c8efb67a8e1b1e",
		"val-000000.tar":       "crc64nvme:9cb2c70cdda72dae",
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if got[name] != want[name] {
			t.Errorf("%q: %q,", name, got[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d files, want %d", len(got), len(want))
	}
}

// bitmap returns a BMP of 2 by 1 pixels.
func bitmap(c byte) []byte {
	return []byte{'B', 'M', 62, 0, 0, 0, 0, 0, 0, 0, 54, 0, 0, 0, 40, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 24, 0,
		0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, c, c, c, 255, 255, 255, 0, 0}
}

// Killed at any operation of the store, the same call again gives the bytes of an
// undisturbed run, and does not write finished shards again.
func TestCrashAnywhere(t *testing.T) {
	dir := t.TempDir()
	files := tree(12)
	files["class 0/bad.jpg"] = []byte("not an image")
	write(t, dir, files)
	cfg := config(dir)
	cfg.ShardSize, cfg.JPEGSeek = 20_000, "row"
	clean := mem.New()
	mustRun(t, clean, cfg, Env{})
	want := content(t, clean)
	crashes := 0
	for n := int64(1); ; n++ {
		inner := mem.New()
		st := fault.New(inner, fault.Config{CrashAt: n})
		_, err := Run(t.Context(), st, cfg, Env{})
		if !st.Crashed() {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		crashes++
		if err != nil && !errors.Is(err, fault.ErrCrashed) {
			t.Fatalf("crash at operation %d: %v", n, err)
		}
		left := content(t, inner)
		for name, data := range left {
			if w, ok := want[name]; ok && w != data {
				t.Fatalf("crash at operation %d: %s is there, but not as it will be", n, name)
			}
		}
		finished := map[string]bool{}
		for name := range left {
			if rest, ok := strings.CutPrefix(name, donePrefix); ok {
				var rec done
				if err := json.Unmarshal([]byte(left[donePrefix+rest]), &rec); err != nil {
					t.Fatalf("crash at operation %d: a record that is no JSON: %v", n, err)
				}
				finished[rec.Shard.Name] = true
				if left[rec.Shard.Name] != want[rec.Shard.Name] || left[rec.Shard.Index.Name] != want[rec.Shard.Index.Name] ||
					left[rec.Shard.Seek.Name] != want[rec.Shard.Seek.Name] {
					t.Fatalf("crash at operation %d: %s has a record but is not finished", n, rec.Shard.Name)
				}
			}
		}
		// Half of a data set must not look like one.
		if _, ok := left[index.ManifestName]; ok {
			for name := range want {
				if _, ok := left[name]; !ok {
					t.Fatalf("crash at operation %d: a manifest without %s", n, name)
				}
			}
		}
		again := fault.New(inner, fault.Config{Before: func(op fault.Op) error {
			if op.Kind == fault.Create && finished[op.Name] {
				t.Errorf("crash at operation %d: %s was finished and is written again", n, op.Name)
			}
			return nil
		}})
		if _, err := Run(t.Context(), again, cfg, Env{}); err != nil {
			t.Fatalf("crash at operation %d, then: %v", n, err)
		}
		same(t, fmt.Sprintf("crash at operation %d", n), content(t, inner), want)
		if t.Failed() {
			return
		}
	}
	if crashes < 50 {
		t.Errorf("only %d crashes", crashes)
	}
}

// Every operation fails once, in turn: the error is told, and the call again works.
func TestFailAnywhere(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, tree(6))
	cfg := config(dir)
	cfg.JPEGSeek = "row"
	clean := mem.New()
	mustRun(t, clean, cfg, Env{})
	want := content(t, clean)
	for n := int64(1); ; n++ {
		inner := mem.New()
		var hit, reached atomic.Bool
		st := fault.New(inner, fault.Config{Before: func(op fault.Op) error {
			reached.CompareAndSwap(false, op.N == n)
			if op.N == n && op.Kind != fault.Abort && op.Kind != fault.Unlock {
				hit.Store(true)
				return store.ErrNoSpace
			}
			return nil
		}})
		_, err := Run(t.Context(), st, cfg, Env{})
		if hit.Load() && !errors.Is(err, store.ErrNoSpace) {
			t.Fatalf("operation %d failed, and the run returned %v", n, err)
		}
		if !reached.Load() {
			if n < 40 {
				t.Errorf("only %d operations", n)
			}
			break
		}
		if err == nil && hit.Load() {
			t.Fatalf("operation %d failed in silence", n)
		}
		mustRun(t, inner, cfg, Env{})
		same(t, fmt.Sprintf("failure of operation %d", n), content(t, inner), want)
		if t.Failed() {
			return
		}
	}
}

// packChild is the process that TestKill kills.
func packChild(dst string) int {
	var cfg Config
	if err := json.Unmarshal([]byte(os.Getenv("SHARDIFY_TEST_CONFIG")), &cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if _, err := Run(context.Background(), file.New(dst), cfg, Env{Workers: 2}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Real processes are killed by SIGKILL at random moments until one gets through.
func TestKill(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED LOUDLY: no SIGKILL on Windows; TestCrashAnywhere covers the same states")
	}
	dir := t.TempDir()
	write(t, dir, tree(150))
	cfg := config(dir)
	cfg.JPEGSeek = "row"
	clean := mem.New()
	mustRun(t, clean, cfg, Env{})
	want := content(t, clean)
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "out")
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	killed, most := 0, float64(10*time.Millisecond)
	for try := 0; ; try++ {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SHARDIFY_TEST_PACK="+dst, "SHARDIFY_TEST_CONFIG="+string(text))
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// Longer each time, so that the run moves on and ends.
		most *= 1.15
		timer := time.AfterFunc(time.Duration(r.Float64()*most), func() { cmd.Process.Kill() })
		err := cmd.Wait()
		timer.Stop()
		if err == nil {
			break
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("try %d: %v: %s", try, err, stderr.String())
		}
		killed++
		for name, data := range content(t, file.New(dst)) {
			if w, ok := want[name]; ok && w != data {
				t.Fatalf("try %d: %s is half-visible", try, name)
			}
		}
		if try > 500 {
			t.Fatal("500 tries")
		}
	}
	t.Logf("killed %d times", killed)
	if killed == 0 {
		t.Error("no process was killed")
	}
	st := file.New(dst)
	same(t, "after all", content(t, st), want)
	problems(t, st)
	for path, d := range walk(t, dst) {
		if !d.IsDir() && (strings.Contains(path, store.TempPrefix) || strings.Contains(path, workDir)) {
			t.Errorf("%s is left behind", path)
		}
	}
}

func walk(t *testing.T, dir string) map[string]fs.DirEntry {
	out := map[string]fs.DirEntry{}
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		out[path] = d
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// A full disk: a clear error, and the same call goes on when there is room.
func TestNoSpace(t *testing.T) {
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("SKIPPED LOUDLY: mounting a small tmpfs takes Linux and root")
	}
	dir := t.TempDir()
	write(t, dir, tree(150))
	cfg := config(dir)
	clean := mem.New()
	mustRun(t, clean, cfg, Env{})
	want := content(t, clean)
	disk := t.TempDir()
	mount := func(args ...string) {
		if out, err := exec.Command("mount", append(args, disk)...).CombinedOutput(); err != nil {
			t.Skipf("SKIPPED LOUDLY: mount: %v: %s", err, out)
		}
	}
	mount("-t", "tmpfs", "-o", "size=300k", "tmpfs")
	defer func() {
		if out, err := exec.Command("umount", disk).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	}()
	st := file.New(filepath.Join(disk, "out"))
	_, err := Run(t.Context(), st, cfg, Env{TempDir: t.TempDir()})
	if !errors.Is(err, store.ErrNoSpace) || !strings.Contains(fmt.Sprint(err), disk) {
		t.Fatalf("on a full disk: %v", err)
	}
	finished := 0
	for name, data := range content(t, st) {
		if w, ok := want[name]; ok {
			finished++
			if w != data {
				t.Errorf("%s is half-visible", name)
			}
		}
	}
	if finished == 0 {
		t.Error("nothing was finished before the disk was full")
	}
	mount("-o", "remount,size=10m")
	mustRun(t, st, cfg, Env{})
	same(t, "with room", content(t, st), want)
}

// A file that changes or vanishes between planning and packing ends the run, by
// name; put right, the same call goes on.
func TestSourceChanges(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"grows":    func(p string) error { return os.WriteFile(p, photo(1, 5000), 0o666) },
		"vanishes": os.Remove,
		"touched":  func(p string) error { return os.Chtimes(p, time.Time{}, time.Now().Add(time.Hour)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files := tree(20)
			write(t, dir, files)
			path := filepath.Join(dir, "class 1", "img006.JPEG")
			was, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			cfg := config(dir)
			clean := mem.New()
			mustRun(t, clean, cfg, Env{})
			inner := mem.New()
			var once sync.Once
			st := fault.New(inner, fault.Config{Before: func(op fault.Op) error {
				var err error
				if op.Kind == fault.Create && strings.HasSuffix(op.Name, ".tar") {
					once.Do(func() { err = change(path) })
				}
				return err
			}})
			_, err = Run(t.Context(), st, cfg, Env{Workers: 1})
			if !errors.Is(err, source.ErrChanged) || !strings.Contains(fmt.Sprint(err), "img006.JPEG") {
				t.Fatalf("got %v", err)
			}
			if _, ok := content(t, inner)[index.ManifestName]; ok {
				t.Error("a manifest all the same")
			}
			if err := os.WriteFile(path, files["class 1/img006.JPEG"], 0o666); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, time.Time{}, was.ModTime()); err != nil {
				t.Fatal(err)
			}
			mustRun(t, inner, cfg, Env{})
			same(t, name, content(t, inner), content(t, clean))
		})
	}
}

// What is not ours is never touched.
func TestForeign(t *testing.T) {
	src := t.TempDir()
	write(t, src, tree(3))
	for name, files := range map[string]map[string][]byte{
		"a file":            {"notes.txt": []byte("mine")},
		"another manifest":  {"manifest.json": []byte(`{"name":"a web app"}`)},
		"no JSON":           {"manifest.json": []byte("hello")},
		"a newer manifest":  {"manifest.json": []byte(`{"format":"shardify","version":9}`)},
		"a shard of others": {"train-000000.tar": []byte("tar")},
		"sorted before":     {"!first": []byte("x")},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, files)
			before := content(t, file.New(dir))
			for _, env := range []Env{{}, {Restart: true}, {Of: 2}} {
				_, err := Run(t.Context(), file.New(dir), config(src), env)
				if !errors.Is(err, ErrForeign) && !errors.Is(err, index.ErrVersion) {
					t.Errorf("got %v", err)
				}
				if _, err := DryRun(t.Context(), file.New(dir), config(src), env); !errors.Is(err, ErrForeign) && !errors.Is(err, index.ErrVersion) {
					t.Errorf("dry run: %v", err)
				}
			}
			same(t, name, content(t, file.New(dir)), before)
			if len(walk(t, dir)) != len(files)+1 {
				t.Error("something was left behind")
			}
		})
	}
}

// A second call finds the data set finished; with other options it refuses; an
// unfinished one of other options is refused too, and dropped on request.
func TestAgain(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, tree(20))
	cfg := config(dir)
	st := mem.New()
	mustRun(t, st, cfg, Env{})
	want := content(t, st)
	if r := mustRun(t, st, cfg, Env{}); !r.Already || r.Manifest.Samples() != 20 {
		t.Errorf("again: %+v", r)
	}
	other := cfg
	other.Seed = 7
	if _, err := Run(t.Context(), st, other, Env{}); !errors.Is(err, ErrOther) {
		t.Errorf("other options: %v", err)
	}
	same(t, "again", content(t, st), want)

	cfg.ShardSize, other.ShardSize = 10_000, 10_000
	inner := mem.New()
	stop := make(chan struct{})
	halted := fault.New(inner, fault.Config{Before: func(op fault.Op) error {
		if op.Kind == fault.Create && op.Name == doneName(0) {
			close(stop)
		}
		return nil
	}})
	if _, err := Run(t.Context(), halted, cfg, Env{Stop: stop}); !errors.Is(err, ErrStopped) {
		t.Fatalf("stopped: %v", err)
	}
	left := content(t, inner)
	if left[doneName(0)] == "" || left["train-000000.tar"] == "" {
		t.Error("the shard in flight was not finished")
	}
	if _, err := Run(t.Context(), inner, other, Env{}); !errors.Is(err, ErrOther) {
		t.Errorf("unfinished, other options: %v", err)
	}
	mustRun(t, inner, other, Env{Restart: true})
	clean := mem.New()
	mustRun(t, clean, other, Env{})
	same(t, "restarted", content(t, inner), content(t, clean))
}

// Two runs at once: the second is told who is at it.
func TestLocked(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, tree(5))
	st := mem.New()
	var second error
	outer := fault.New(st, fault.Config{Before: func(op fault.Op) error {
		if op.Kind == fault.Create && op.Name == planName {
			_, second = Run(t.Context(), st, config(dir), Env{})
		}
		return nil
	}})
	mustRun(t, outer, config(dir), Env{})
	if !errors.Is(second, store.ErrLocked) || !strings.Contains(fmt.Sprint(second), "process") {
		t.Errorf("the second run: %v", second)
	}
}

// Several workers that start at once make one plan and one data set.
func TestWorkersAtOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, tree(40))
	cfg := config(dir)
	clean := mem.New()
	mustRun(t, clean, cfg, Env{})
	st := file.New(t.TempDir())
	const n = 4
	errs := make(chan error, n)
	for i := range n {
		go func() {
			_, err := Run(context.Background(), st, cfg, Env{Worker: i, Of: n, Workers: 1})
			errs <- err
		}()
	}
	committed := 0
	for range n {
		if err := <-errs; err == nil {
			committed++
		} else if !errors.Is(err, ErrIncomplete) {
			t.Error(err)
		}
	}
	if committed == 0 {
		t.Error("nobody committed")
	}
	same(t, "workers", content(t, st), content(t, clean))
}

// Bad files under each policy.
func TestBad(t *testing.T) {
	dir := t.TempDir()
	files := tree(20)
	bad := map[string][]byte{
		"class 1/empty.jpg":     {},
		"class 2/text.png":      []byte("not an image at all"),
		"class 3/truncated.jpg": photo(5, 4000)[:3000],
		"class 4/mask.seg.png":  []byte("broken mask"),
	}
	maps.Copy(files, bad)
	files["class 4/mask.jpg"] = photo(6, 10)
	write(t, dir, files)
	if err := os.Symlink("nowhere", filepath.Join(dir, "class 0", "broken.jpg")); err != nil {
		t.Fatal(err)
	}
	for _, policy := range []string{OnBadQuarantine, OnBadSkip, OnBadFail} {
		t.Run(policy, func(t *testing.T) {
			cfg := config(dir)
			cfg.OnBad = policy
			st := mem.New()
			r, err := Run(t.Context(), st, cfg, Env{})
			if policy == OnBadFail {
				if !errors.Is(err, ErrBad) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.Manifest.Samples() != 20 || r.Bad != 5 {
				t.Errorf("%d samples, %d bad", r.Manifest.Samples(), r.Bad)
			}
			got := content(t, st)
			var paths []string
			for line := range strings.Lines(got[index.BadName]) {
				var b Bad
				if err := json.Unmarshal([]byte(line), &b); err != nil || b.Reason == "" {
					t.Errorf("%q: %v", line, err)
				}
				paths = append(paths, b.Path)
			}
			slices.Sort(paths)
			want := append(slices.Collect(maps.Keys(bad)), "class 0/broken.jpg")
			slices.Sort(want)
			if !slices.Equal(paths, want) {
				t.Errorf("bad.jsonl lists %q, want %q", paths, want)
			}
			for name, data := range bad {
				kept, ok := got[index.QuarantinePrefix+name]
				if ok != (policy == OnBadQuarantine) || ok && kept != string(data) {
					t.Errorf("%s in quarantine: %v", name, ok)
				}
			}
			if policy == OnBadQuarantine && got[index.QuarantinePrefix+"class 4/mask.jpg"] == "" {
				t.Error("the sample of the broken mask is not in quarantine")
			}
			problems(t, st)
		})
	}
	cfg := config(dir)
	cfg.Check = CheckNone
	st := mem.New()
	if r := mustRun(t, st, cfg, Env{}); r.Manifest.Samples() != 24 {
		t.Errorf("unchecked: %d samples, want 24", r.Manifest.Samples())
	}
}

// --check decode finds what a header does not tell.
func TestCheckDecode(t *testing.T) {
	dir := t.TempDir()
	data := photo(1, 0)
	sos := bytes.Index(data, []byte{0xff, 0xda})
	broken := append(bytes.Clone(data[:sos+14]), 0x00, 0xff, 0xd9)
	write(t, dir, map[string][]byte{"a/1.jpg": data, "a/2.jpg": broken})
	for check, want := range map[string]int64{CheckHeader: 2, CheckDecode: 1} {
		cfg := config(dir)
		cfg.Check = check
		if r := mustRun(t, mem.New(), cfg, Env{}); r.Manifest.Samples() != want {
			t.Errorf("check %s: %d samples, want %d", check, r.Manifest.Samples(), want)
		}
	}
}

// Labels are numbered as torchvision's ImageFolder does, empty classes included, or
// by the user's list.
func TestLabels(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string][]byte{
		"train/b/1.jpg": photo(1, 0), "train/a/1.jpg": photo(2, 0), "train/10/1.jpg": photo(3, 0), "train/9/1.jpg": photo(3, 0),
		"val/a/1.jpg": photo(4, 0), "val/Z/1.jpg": photo(5, 0),
	})
	if err := os.MkdirAll(filepath.Join(dir, "train", "aa empty"), 0o777); err != nil {
		t.Fatal(err)
	}
	st := mem.New()
	r := mustRun(t, st, config(dir), Env{})
	if want := []string{"10", "9", "Z", "a", "aa empty", "b"}; !slices.Equal(r.Manifest.Classes, want) {
		t.Fatalf("classes %q, want %q", r.Manifest.Classes, want)
	}
	for split, rows := range rows(t, st) {
		for _, row := range rows {
			class, _, _ := strings.Cut(row.Key, "/")
			if row.LabelName != class || row.Label == nil || r.Manifest.Classes[*row.Label] != class {
				t.Errorf("%s/%s: label %v, %q", split, row.Key, row.Label, row.LabelName)
			}
			if f := row.Field(labelField); f == nil || f.Size == 0 || f.Path != "" {
				t.Errorf("%s/%s: %+v", split, row.Key, f)
			}
		}
	}
	cfg := config(dir)
	cfg.Classes = []string{"b", "a", "Z", "10", "9", "aa empty", "unused"}
	st = mem.New()
	r = mustRun(t, st, cfg, Env{})
	if !slices.Equal(r.Manifest.Classes, cfg.Classes) {
		t.Errorf("classes %q", r.Manifest.Classes)
	}
	for _, row := range rows(t, st)["val"] {
		if row.LabelName != cfg.Classes[*row.Label] {
			t.Errorf("%s: %d, %q", row.Key, *row.Label, row.LabelName)
		}
	}
	cfg.Classes = []string{"a"}
	if _, err := Run(t.Context(), mem.New(), cfg, Env{}); err == nil || !strings.Contains(err.Error(), "class list") {
		t.Errorf("class outside the list: %v", err)
	}
}

// Orders: path is by path; shuffle is a permutation that the seed decides and that
// mixes the classes; interleaved has each class in its share everywhere.
func TestOrders(t *testing.T) {
	dir := t.TempDir()
	files := map[string][]byte{}
	for i := range 200 {
		files[fmt.Sprintf("a/%03d.jpg", i)] = photo(uint64(i), 0)
	}
	for i := range 100 {
		files[fmt.Sprintf("b/%03d.jpg", i)] = photo(uint64(i), 0)
	}
	write(t, dir, files)
	keys := func(order string, seed uint64) []string {
		cfg := config(dir)
		cfg.Order, cfg.Seed = order, seed
		st := mem.New()
		mustRun(t, st, cfg, Env{})
		var out []string
		for _, row := range rows(t, st)["train"] {
			out = append(out, row.Key)
		}
		return out
	}
	path := keys(OrderPath, 0)
	if len(path) != 300 || !slices.IsSorted(path) {
		t.Errorf("path: %d keys", len(path))
	}
	s0, s1 := keys(OrderShuffle, 0), keys(OrderShuffle, 1)
	if slices.Equal(s0, s1) || slices.Equal(s0, path) {
		t.Error("the seed changes nothing")
	}
	for _, order := range [][]string{s0, s1, keys(OrderInterleaved, 0)} {
		sorted := slices.Clone(order)
		slices.Sort(sorted)
		if !slices.Equal(sorted, path) {
			t.Error("not a permutation")
		}
	}
	// Of any 30 samples in a row 20 are of class a: exactly (but for ends) when
	// interleaved; shuffled, within five standard deviations of 2.5.
	for _, c := range []struct {
		order string
		slack int
	}{{OrderInterleaved, 1}, {OrderShuffle, 13}} {
		got := keys(c.order, 3)
		for at := 0; at+30 <= len(got); at++ {
			n := 0
			for _, key := range got[at : at+30] {
				if key[0] == 'a' {
					n++
				}
			}
			if n < 20-c.slack || n > 20+c.slack {
				t.Errorf("%s: %d of class a among 30 at %d", c.order, n, at)
			}
		}
	}
}

// A sample larger than all of the memory is packed, alone.
func TestLargeSample(t *testing.T) {
	dir := t.TempDir()
	files := tree(30)
	files["class 0/large.jpg"] = photo(1, 3<<20)
	write(t, dir, files)
	want := mem.New()
	mustRun(t, want, config(dir), Env{})
	st := mem.New()
	mustRun(t, st, config(dir), Env{Memory: 10_000, Workers: 8})
	same(t, "little memory", content(t, st), content(t, want))
}

// Cancelling ends everything at once, and what is finished stays.
func TestCancel(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, tree(60))
	cfg := config(dir)
	inner := mem.New()
	ctx, cancel := context.WithCancel(t.Context())
	st := fault.New(inner, fault.Config{Before: func(op fault.Op) error {
		if op.Kind == fault.Create && op.Name == doneName(2) {
			cancel()
		}
		return nil
	}})
	if _, err := Run(ctx, st, cfg, Env{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	clean := mem.New()
	mustRun(t, clean, cfg, Env{})
	mustRun(t, inner, cfg, Env{})
	same(t, "after cancelling", content(t, inner), content(t, clean))
}

// A dry run tells what the run then does, and writes nothing.
func TestDryRun(t *testing.T) {
	dir := t.TempDir()
	files := tree(40)
	files["class 0/bad.jpg"] = []byte("x")
	files["class 0/README.md"] = []byte("x")
	write(t, dir, files)
	dst := filepath.Join(t.TempDir(), "out")
	r, err := DryRun(t.Context(), file.New(dst), config(dir), Env{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dst); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the dry run wrote: %v", err)
	}
	got := mustRun(t, file.New(dst), config(dir), Env{})
	s := &got.Manifest.Splits[0]
	if r.Splits[0].Samples != s.Samples+1 || r.Splits[0].Shards != int64(len(s.Shards)) || len(r.Bad) != 1 || r.Ignored != 1 || len(r.Labels) != 5 {
		t.Errorf("dry run: %+v; run: %d samples in %d shards", r, s.Samples, len(s.Shards))
	}
	for _, h := range []*dataset.Histogram{&r.ImageBytes, &r.Width, &r.Height} {
		if h.Count != s.Samples {
			t.Errorf("a histogram of %d images", h.Count)
		}
	}
	if len(r.Formats) != 1 || r.Formats[0].Samples != s.Samples || r.Unlabelled != 0 {
		t.Errorf("formats %v, %d unlabelled", r.Formats, r.Unlabelled)
	}
}

// Sources that hold nothing say what was seen.
func TestEmpty(t *testing.T) {
	dir := t.TempDir()
	for _, files := range []map[string][]byte{{}, {"notes.txt": []byte("x")}} {
		write(t, dir, files)
		dst := t.TempDir()
		_, err := Run(t.Context(), file.New(dst), config(dir), Env{})
		if !errors.Is(err, ErrEmpty) {
			t.Errorf("got %v", err)
		}
		for name := range files {
			if !strings.Contains(fmt.Sprint(err), name) {
				t.Errorf("%v does not name %s", err, name)
			}
		}
	}
	if _, err := Run(t.Context(), mem.New(), config(filepath.Join(dir, "nope")), Env{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing source: %v", err)
	}
}

// Other sources: a list, a table, shards.
func TestSources(t *testing.T) {
	dir := t.TempDir()
	files := tree(12)
	write(t, dir, files)
	byFolder := mem.New()
	mustRun(t, byFolder, config(dir), Env{})
	want := rows(t, byFolder)["train"]

	var list []string
	for name := range files {
		list = append(list, name)
	}
	slices.Sort(list)
	cfg := config(dir)
	cfg.Source.FilesFrom = "-"
	st := mem.New()
	mustRun(t, st, cfg, Env{Stdin: strings.NewReader(strings.Join(list, "\n"))})
	if got := rows(t, st)["train"]; !rowsEqual(got, want) {
		t.Error("a list of all files gives other samples than the folder")
	}

	// The shards of one data set are the source of another.
	out := t.TempDir()
	mustRun(t, file.New(out), config(dir), Env{})
	shards, err := filepath.Glob(filepath.Join(out, "*.tar"))
	if err != nil || len(shards) == 0 {
		t.Fatal(shards, err)
	}
	cfg = config(dir)
	cfg.Source = Source{Paths: shards}
	cfg.Format = "tar.zst"
	st = mem.New()
	mustRun(t, st, cfg, Env{})
	problems(t, st)
	got := rows(t, st)["train"]
	if len(got) != len(want) {
		t.Fatalf("%d samples of %d", len(got), len(want))
	}
	for i := range got {
		if got[i].Key != want[i].Key || *got[i].Label != *want[i].Label || got[i].Field("jpg").CRC32C != want[i].Field("jpg").CRC32C {
			t.Errorf("sample %d: %+v, want %+v", i, got[i], want[i])
		}
	}

	csv := "path,label,caption\n"
	for i := range 12 {
		csv += fmt.Sprintf("class %d/img%03d.JPEG,%d,\"a caption, %d\"\n", i%5, i, i%5+10, i)
	}
	table := filepath.Join(dir, "table.csv")
	if err := os.WriteFile(table, []byte(csv), 0o666); err != nil {
		t.Fatal(err)
	}
	cfg = config(dir)
	cfg.Source = Source{Table: table}
	st = mem.New()
	r := mustRun(t, st, cfg, Env{})
	if len(r.Manifest.Classes) != 0 || r.Manifest.Samples() != 12 {
		t.Errorf("%q, %d samples", r.Manifest.Classes, r.Manifest.Samples())
	}
	for _, row := range rows(t, st)["train"] {
		if f := row.Field("caption.txt"); f == nil || f.Path != "" || row.Label == nil || *row.Label < 10 {
			t.Errorf("%s: label %v, caption %+v", row.Key, row.Label, f)
		}
	}
}

func rowsEqual(a, b []index.Row) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
