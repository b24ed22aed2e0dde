package dataset_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/sample"
	"shardify/shard"
	"shardify/shard/formats"
	"shardify/store/mem"
)

// tree reads all files below a folder.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if e.Type()&fs.ModeSymlink != 0 {
			files[filepath.ToSlash(name)] = "-> link"
			return nil
		}
		data, err := os.ReadFile(path)
		files[filepath.ToSlash(name)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func extract(t *testing.T, d *dataset.Dataset, dir string, opts dataset.ExtractOptions) (dataset.ExtractResult, []error) {
	t.Helper()
	var reported []error
	result, err := dataset.Extract(t.Context(), d, dir, opts, func(err error) { reported = append(reported, err) })
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(reported)) != result.Failed {
		t.Errorf("%d reported, %d failed", len(reported), result.Failed)
	}
	return result, reported
}

func sameTree(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name, data := range want {
		if g, ok := got[name]; !ok || g != data {
			t.Errorf("%q: %d bytes (there: %v), want %d", name, len(g), ok, len(data))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%q should not be there", name)
		}
	}
}

func TestExtract(t *testing.T) {
	for _, format := range formats.Names() {
		t.Run(format, func(t *testing.T) {
			d := datasettest.Write(t, mem.New(), datasettest.Options{Format: format, Splits: []string{"train", "val"}})
			want, generated := map[string]string{}, map[string]string{}
			for n := range 60 {
				m := datasettest.Sample(n, 5)
				for i, f := range m.Fields {
					if m.Paths[i] != "" {
						want[m.Paths[i]] = string(f.Data)
					} else {
						generated[m.Key+"."+f.Name] = string(f.Data)
					}
				}
			}
			dir := filepath.Join(t.TempDir(), "a", "b")
			result, _ := extract(t, d, dir, dataset.ExtractOptions{})
			sameTree(t, tree(t, dir), want)
			if result.Samples != 60 || result.Files != int64(len(want)) || result.Generated != 60 || result.Same != 0 || result.Failed != 0 {
				t.Errorf("result %+v", result)
			}
			// Again: nothing to do. After a loss: only that.
			result, _ = extract(t, d, dir, dataset.ExtractOptions{})
			if result.Files != 0 || result.Same != int64(len(want)) {
				t.Errorf("again: %+v", result)
			}
			if err := os.Remove(filepath.Join(dir, "class-001", "img_000001.JPEG")); err != nil {
				t.Fatal(err)
			}
			result, _ = extract(t, d, dir, dataset.ExtractOptions{})
			if result.Files != 1 {
				t.Errorf("after a loss: %+v", result)
			}
			sameTree(t, tree(t, dir), want)
			// With what was generated.
			for name, data := range generated {
				want[name] = data
			}
			extract(t, d, dir, dataset.ExtractOptions{AllFields: true})
			sameTree(t, tree(t, dir), want)
		})
	}
}

func TestExtractSelection(t *testing.T) {
	d := datasettest.Write(t, mem.New(), datasettest.Options{Splits: []string{"train", "val"}})
	for name, c := range map[string]struct {
		opts  dataset.ExtractOptions
		files int
	}{
		"split":  {dataset.ExtractOptions{Selection: dataset.Selection{Split: "val"}}, 40},
		"label":  {dataset.ExtractOptions{Selection: dataset.Selection{Label: "1"}}, 16},
		"where":  {dataset.ExtractOptions{Selection: dataset.Selection{Where: "key like '%_000007'"}}, 1},
		"fields": {dataset.ExtractOptions{Fields: []string{"seg.png"}}, 20},
		"cls":    {dataset.ExtractOptions{Fields: []string{"cls"}, AllFields: true}, 60},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			extract(t, d, dir, c.opts)
			if n := len(tree(t, dir)); n != c.files {
				t.Errorf("%d files, want %d", n, c.files)
			}
		})
	}
	if _, err := dataset.Extract(t.Context(), d, t.TempDir(), dataset.ExtractOptions{Fields: []string{"jgp"}}, nil); err == nil || !strings.Contains(err.Error(), "did you mean jpg?") {
		t.Errorf("wrong field: %v", err)
	}
}

// A data set that knows no paths gives KEY.FIELD, all of them.
func TestExtractKeys(t *testing.T) {
	d := datasettest.Write(t, mem.New(), datasettest.Options{Shards: 1, Samples: 2, Make: func(n, classes int) datasettest.Made {
		m := datasettest.Sample(n, classes)
		m.Paths = nil
		return m
	}})
	dir := t.TempDir()
	extract(t, d, dir, dataset.ExtractOptions{})
	got := tree(t, dir)
	for _, name := range []string{"class-000/img_000000.cls", "class-000/img_000000.jpg", "class-000/img_000000.seg.png", "class-001/img_000001.cls", "class-001/img_000001.jpg"} {
		if got[name] == "" {
			t.Errorf("no %s", name)
		}
	}
	if len(got) != 5 {
		t.Errorf("%d files", len(got))
	}
}

// one makes a data set of one sample whose field came from path.
func one(t *testing.T, paths ...string) *dataset.Dataset {
	t.Helper()
	return datasettest.Write(t, mem.New(), datasettest.Options{Shards: 1, Samples: len(paths), Make: func(n, _ int) datasettest.Made {
		return datasettest.Made{
			Sample: sample.Sample{Key: fmt.Sprint("k", n), Fields: []sample.Field{{Name: "txt", Data: fmt.Appendf(nil, "content %d", n)}}},
			Label:  -1, Paths: []string{sample.Escape(paths[n])},
		}
	}})
}

// Whatever the names in a data set are, nothing is written outside the folder, or
// anywhere but under the very name.
func TestExtractHostilePaths(t *testing.T) {
	for _, path := range []string{"../x", "a/../../x", "/etc/x", "..", ".", "a/", "/", "a/\x00b", "../" + strings.Repeat("../", 50) + "tmp/x"} {
		t.Run(path, func(t *testing.T) {
			above := t.TempDir()
			dir := filepath.Join(above, "dir")
			result, reported := extract(t, one(t, path, "good"), dir, dataset.ExtractOptions{})
			if len(reported) != 1 || !errors.Is(reported[0], dataset.ErrUnsafePath) || !strings.Contains(reported[0].Error(), `sample "k0" field "txt"`) || result.Damaged != 0 {
				t.Errorf("reported %v", reported)
			}
			sameTree(t, tree(t, above), map[string]string{"dir/good": "content 1"})
		})
	}
	// These are odd, and inside.
	t.Run("inside", func(t *testing.T) {
		dir := t.TempDir()
		paths := []string{"a/../b", "./c", "d//e", "...", ".hidden", "~", "-rf", "%41", "x y"}
		want := []string{"b", "c", "d/e", "...", ".hidden", "~", "-rf", "%41", "x y"}
		if runtime.GOOS == "linux" {
			paths, want = append(paths, "\xff\xfe", "CON", "a:b"), append(want, "\xff\xfe", "CON", "a:b")
		}
		_, reported := extract(t, one(t, paths...), dir, dataset.ExtractOptions{})
		got := tree(t, dir)
		for i, name := range want {
			if got[name] != fmt.Sprint("content ", i) {
				t.Errorf("%q: %q (%v)", name, got[name], reported)
			}
		}
	})
}

// Links in the folder lead nowhere outside.
func TestExtractLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED LOUDLY: links need a privilege on Windows")
	}
	above := t.TempDir()
	dir, outside := filepath.Join(above, "dir"), filepath.Join(above, "outside")
	for _, d := range []string{dir, outside} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "victim"), []byte("mine"), 0o666); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"folder": outside, "relative": "../outside", "file": filepath.Join(outside, "victim")} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	d := one(t, "folder/x", "relative/x", "file", "folder/victim")
	_, reported := extract(t, d, dir, dataset.ExtractOptions{})
	if len(reported) != 4 {
		t.Errorf("reported %v", reported)
	}
	// By force, a link is replaced, not followed.
	_, reported = extract(t, d, dir, dataset.ExtractOptions{Force: true})
	if len(reported) != 3 {
		t.Errorf("by force: reported %v", reported)
	}
	sameTree(t, tree(t, above), map[string]string{"dir/file": "content 2", "dir/folder": "-> link", "dir/relative": "-> link", "outside/victim": "mine"})
}

func TestExtractInTheWay(t *testing.T) {
	dir := t.TempDir()
	d := one(t, "a", "b", "c/d", "e")
	for name, data := range map[string]string{"a": "content 0", "b": "content X", "c": "a file"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "e"), 0o777); err != nil {
		t.Fatal(err)
	}
	result, reported := extract(t, d, dir, dataset.ExtractOptions{})
	if len(reported) != 3 || !errors.Is(reported[0], dataset.ErrExists) || !strings.Contains(reported[0].Error(), "--force") || result.Same != 1 || result.Damaged != 0 {
		t.Errorf("%+v, reported %v", result, reported)
	}
	sameTree(t, tree(t, dir), map[string]string{"a": "content 0", "b": "content X", "c": "a file"})
	_, reported = extract(t, d, dir, dataset.ExtractOptions{Force: true})
	if len(reported) != 2 {
		t.Errorf("by force: reported %v", reported)
	}
	sameTree(t, tree(t, dir), map[string]string{"a": "content 0", "b": "content 1", "c": "a file"})
}

// Two fields of one path: one is written, the other reported, in any order.
func TestExtractOnePath(t *testing.T) {
	dir := t.TempDir()
	result, reported := extract(t, one(t, "same", "same", "Same"), dir, dataset.ExtractOptions{})
	if !errors.Is(errors.Join(reported...), dataset.ErrExists) || len(reported) < 1 || result.Files < 1 {
		t.Errorf("%+v, reported %v", result, reported)
	}
}

// Damage is reported, written nowhere, and the rest goes on.
func TestExtractDamaged(t *testing.T) {
	st := mem.New()
	d := datasettest.Write(t, st, datasettest.Options{})
	flip(t, st, "train-000000.tar", 1700, 1)
	data := read(t, st, "train-000001.tar")
	write(t, st, "train-000001.tar", data[:len(data)-5])
	dir := t.TempDir()
	result, reported := extract(t, d, dir, dataset.ExtractOptions{})
	if result.Damaged != 2 || len(reported) != 2 || !slices.ContainsFunc(reported, func(err error) bool { return errors.Is(err, shard.ErrChecksum) }) ||
		!slices.ContainsFunc(reported, func(err error) bool { return errors.Is(err, shard.ErrTruncated) }) {
		t.Errorf("%+v, reported %v", result, reported)
	}
	got := tree(t, dir)
	if _, ok := got["class-000/img_000000.JPEG"]; ok {
		t.Error("the damaged file was written")
	}
	if len(got) != 27-1 {
		t.Errorf("%d files", len(got))
	}
}

// Cancelling leaves no temporary files, and what is there is whole.
func TestExtractCancelled(t *testing.T) {
	d := datasettest.Write(t, mem.New(), datasettest.Options{Shards: 4, Samples: 30})
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	progress := new(dataset.Progress)
	go func() {
		for progress.Samples.Load() < 10 && ctx.Err() == nil {
			runtime.Gosched()
		}
		cancel()
	}()
	_, err := dataset.Extract(ctx, d, dir, dataset.ExtractOptions{Progress: progress}, func(err error) { t.Error(err) })
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	whole := map[string]bool{}
	for n := range 120 {
		m := datasettest.Sample(n, 5)
		for i := range m.Fields {
			whole[m.Paths[i]+string(m.Fields[i].Data)] = true
		}
	}
	for name, data := range tree(t, dir) {
		if !whole[name+data] {
			t.Errorf("%q is not whole", name)
		}
	}
	extract(t, d, dir, dataset.ExtractOptions{})
	if n := len(tree(t, dir)); n != 160 {
		t.Errorf("%d files after going on", n)
	}
}

func TestExtractPermission(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED LOUDLY: Windows has no permission bits")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	d := one(t, "a")
	unprivileged(t, func() {
		_, err := dataset.Extract(t.Context(), d, dir, dataset.ExtractOptions{}, func(err error) { t.Error(err) })
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), dir) {
			t.Errorf("got %v", err)
		}
	})
}

func BenchmarkExtract(b *testing.B) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 110<<10/16)
	d := datasettest.Write(b, mem.New(), datasettest.Options{Shards: 4, Samples: 250, Make: func(n, classes int) datasettest.Made {
		m := datasettest.Made{Label: int64(n % classes), Paths: []string{fmt.Sprintf("%03d/%d.bin", n%classes, n)}}
		m.Key, m.Fields = fmt.Sprintf("%03d/%d", n%classes, n), []sample.Field{{Name: "bin", Data: data}}
		return m
	}})
	b.SetBytes(d.Manifest().Bytes())
	for b.Loop() {
		if _, err := dataset.Extract(b.Context(), d, b.TempDir(), dataset.ExtractOptions{}, func(err error) { b.Error(err) }); err != nil {
			b.Fatal(err)
		}
	}
}
