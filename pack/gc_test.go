package pack

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"shardify/store"
	"shardify/store/file"
)

// collect runs GC and returns what it reports, as lines, and how it ends.
func collect(t *testing.T, st store.Store, o GCOptions) (lines []string, r GCResult, err error) {
	t.Helper()
	r, err = GC(t.Context(), st, o, func(l Leftover) error {
		lines = append(lines, fmt.Sprintf("%s: %s %s", l.Kind, l.Name, l.Needs))
		return nil
	})
	slices.Sort(lines)
	return lines, r, err
}

// there are the files in a folder, all of them.
func there(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		all[filepath.ToSlash(rel)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// age makes all files in a folder so old.
func age(t *testing.T, dir string, by time.Duration) {
	t.Helper()
	for name := range there(t, dir) {
		if err := os.Chtimes(filepath.Join(dir, name), time.Now().Add(-by), time.Now().Add(-by)); err != nil {
			t.Fatal(err)
		}
	}
}

// Around a finished data set, GC finds what is ours and old, and removes that alone.
func TestGCFinished(t *testing.T) {
	src, dir := t.TempDir(), t.TempDir()
	write(t, src, tree(20))
	st := file.New(dir)
	if _, err := Run(t.Context(), st, config(src), Env{}); err != nil {
		t.Fatal(err)
	}
	clean := there(t, dir)
	if lines, r, err := collect(t, st, GCOptions{OlderThan: 1, Delete: true}); err != nil || len(lines) > 0 || r != (GCResult{}) || !maps.Equal(there(t, dir), clean) {
		t.Fatalf("of a clean data set GC says %q, %+v, %v", lines, r, err)
	}
	const digits = "-0123456789abcdef"
	left := map[string]string{
		".tmp-train-000000.tar" + digits: "12345", ".tmp-manifest.json" + digits: "1", ".shardify/.tmp-plan" + digits: "1",
		".tmp-notes.txt" + digits: "theirs", ".tmp-train-000000.tar": "theirs", "notes.txt": "theirs", "sub/labels.csv": "theirs",
		".shardify/plan": "x", ".shardify/done/000000": "y", ".shardify/lock-0-of-1": "z",
		"other.tar": "stray", "other.parquet": "stray", "sub/other.seek": "stray", "quarantine/a.tar": "kept",
	}
	for name, data := range left {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if lines, r, err := collect(t, st, GCOptions{Delete: true, Strays: true, Unfinished: true}); err != nil || len(lines) > 0 || r.Young != 9 || r.Removed != 0 {
		t.Errorf("of what is young GC says %q, %+v, %v", lines, r, err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".shardify/lock-0-of-1"), []byte("z"), 0o666); err != nil { // it has gone with the others
		t.Fatal(err)
	}
	age(t, dir, 25*time.Hour)
	before := there(t, dir)
	want := []string{
		"journal: .shardify/done/000000 ", "journal: .shardify/plan ", "lock: .shardify/lock-0-of-1 ",
		"stray: other.parquet strays", "stray: other.tar strays", "stray: sub/other.seek strays",
		"unfinished write: .shardify/plan ", "unfinished write: manifest.json ", "unfinished write: train-000000.tar ",
	}
	lines, r, err := collect(t, st, GCOptions{})
	if err != nil || !slices.Equal(lines, want) || r.Found != 6 || r.Kept != 3 || r.Removed != 0 {
		t.Errorf("GC says %q, %+v, %v; want %q", lines, r, err, want)
	}
	if !maps.Equal(there(t, dir), before) {
		t.Error("without Delete something was changed")
	}
	// A run holds a lock: nothing is removed.
	unlock, err := st.Lock(t.Context(), ".shardify/lock-0-of-1", "somebody")
	if err != nil {
		t.Fatal(err)
	}
	if _, r, err := collect(t, st, GCOptions{Delete: true}); !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), "nothing was removed") || r.Removed != 0 || len(there(t, dir)) != len(before) {
		t.Errorf("while a run holds a lock: %+v, %v", r, err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if lines, r, err = collect(t, st, GCOptions{Delete: true}); err != nil || r.Removed != 5 || r.Kept != 3 {
		t.Errorf("GC says %q, %+v, %v", lines, r, err)
	}
	if _, r, err = collect(t, st, GCOptions{Delete: true, Strays: true}); err != nil || r.Removed != 3 || r.Kept != 0 {
		t.Errorf("GC of strays says %+v, %v", r, err)
	}
	for name, data := range left {
		if data == "theirs" || data == "kept" {
			clean[name] = data
		}
	}
	if got := there(t, dir); !maps.Equal(got, clean) {
		t.Errorf("left are %q; want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(clean)))
	}
}

// The files of an unfinished data set stay, unless they are asked for; then all of them go.
func TestGCUnfinished(t *testing.T) {
	src, dir := t.TempDir(), t.TempDir()
	write(t, src, tree(40))
	st := file.New(dir)
	cfg := config(src)
	cfg.ShardSize, cfg.Shards = 0, 4
	stop := make(chan struct{})
	close(stop)
	stopped := Env{Stop: stop}
	for _, env := range []Env{{Worker: 1, Of: 2}, stopped} {
		if _, err := Run(t.Context(), st, cfg, env); !errors.Is(err, ErrIncomplete) && !errors.Is(err, ErrStopped) {
			t.Fatal(err)
		}
	}
	before := there(t, dir)
	if len(before) < 5 {
		t.Fatalf("the unfinished data set has %q", slices.Sorted(maps.Keys(before)))
	}
	lines, r, err := collect(t, st, GCOptions{OlderThan: 1, Delete: true})
	if err != nil || r.Removed != 0 || int(r.Kept) != len(before) || !maps.Equal(there(t, dir), before) {
		t.Errorf("GC says %q, %+v, %v of %q", lines, r, err, slices.Sorted(maps.Keys(before)))
	}
	// One young file keeps all of them.
	age(t, dir, 25*time.Hour)
	if err := os.Chtimes(filepath.Join(dir, ".shardify", "plan"), time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, r, err := collect(t, st, GCOptions{Delete: true, Unfinished: true}); err != nil || r.Removed != 0 || int(r.Young) != len(before) {
		t.Errorf("of a young data set GC says %+v, %v", r, err)
	}
	age(t, dir, 25*time.Hour)
	if _, r, err := collect(t, st, GCOptions{Delete: true, Unfinished: true}); err != nil || int(r.Removed) != len(before) || len(there(t, dir)) != 0 {
		t.Errorf("GC says %+v, %v; left are %q", r, err, slices.Sorted(maps.Keys(there(t, dir))))
	}
	// Nothing of ours is there any more, and what is not ours is nobody's leftover.
	if _, _, err := collect(t, st, GCOptions{}); !errors.Is(err, ErrForeign) {
		t.Errorf("of an empty folder: %v", err)
	}
	if _, _, err := collect(t, st, GCOptions{OlderThan: -1}); err == nil {
		t.Error("a negative age is no error")
	}
}
