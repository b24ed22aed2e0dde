package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"shardify/store"
	"shardify/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return New(filepath.Join(t.TempDir(), "not", "made")) })
}

func TestStoreHere(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { t.Chdir(t.TempDir()); return New("") })
}

func TestRelativeRoot(t *testing.T) {
	for _, root := range []string{"..", "not/made", "../not/made/", "./x"} {
		base := t.TempDir()
		here := filepath.Join(base, "here")
		must(t, os.Mkdir(here, 0o777))
		t.Chdir(here)
		s := New(root)
		put(t, s, "a/b/c", "x")
		if got, err := list(t, s, "a/"); !slices.Equal(got, []string{"a/b/c"}) || err != nil {
			t.Errorf("List in %q = %q, %v", root, got, err)
		}
		if got, err := os.ReadFile(filepath.Join(here, root, "a", "b", "c")); string(got) != "x" || err != nil {
			t.Errorf("%q: %q, %v", root, got, err)
		}
		unlock, err := s.Lock(t.Context(), "d/lock", "x")
		must(t, err)
		must(t, unlock())
		must(t, s.Remove(t.Context(), "a/b/c"))
		if root == ".." {
			holds(t, base, "here/")
		} else {
			holds(t, filepath.Join(here, root))
		}
	}
}

func put(t *testing.T, s *Store, name, data string) {
	t.Helper()
	if err := store.WriteAll(t.Context(), s, name, []byte(data)); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, s *Store, name string) string {
	t.Helper()
	data, err := store.ReadAll(t.Context(), s, name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// list returns the names in s and the error that ends them.
func list(t *testing.T, s *Store, prefix string) (names []string, err error) {
	t.Helper()
	for info, e := range s.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal("List goes on after an error")
		}
		if err = e; err == nil {
			names = append(names, info.Name)
		}
	}
	return names, err
}

// holds fails the test unless just these files and folders (with a slash) lie
// below dir.
func holds(t *testing.T, dir string, want ...string) {
	t.Helper()
	var got []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if d.IsDir() {
			name += "/"
		}
		got = append(got, filepath.ToSlash(name))
		return err
	})
	must(t, err)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the folder holds %q; want %q", got, want)
	}
}

func TestNewTouchesNothing(t *testing.T) {
	dir := t.TempDir()
	s := New(filepath.Join(dir, "a", "b"))
	if got, err := list(t, s, ""); len(got) != 0 || err != nil {
		t.Errorf("List = %q, %v", got, err)
	}
	must(t, s.Remove(t.Context(), "x/y"))
	must(t, s.Sweep(t.Context(), ""))
	if _, err := s.Open(t.Context(), "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open: %v", err)
	}
	holds(t, dir)
}

// Nothing is left but the objects: no temporary file, no folder, no lock.
func TestLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	s := New(dir)
	must(t, os.Mkdir(filepath.Join(dir, "user"), 0o777))
	put(t, s, "a/b/c", "x")
	put(t, s, "a/d", "x")
	put(t, s, "a/d", "y")
	holds(t, dir, "a/", "a/b/", "a/b/c", "a/d", "user/")
	w, err := s.Create(t.Context(), "e/f/g")
	must(t, err)
	must(t, w.Abort())
	unlock, err := s.Lock(t.Context(), ".shardify/lock", "x")
	must(t, err)
	must(t, unlock())
	if runtime.GOOS == "windows" {
		must(t, s.Remove(t.Context(), ".shardify/lock"))
	}
	must(t, s.Remove(t.Context(), "a/b"))
	must(t, s.Remove(t.Context(), "user"))
	holds(t, dir, "a/", "a/b/", "a/b/c", "a/d", "user/")
	must(t, s.Remove(t.Context(), "a/b/c"))
	holds(t, dir, "a/", "a/d", "user/")
	must(t, s.Remove(t.Context(), "a/d"))
	holds(t, dir, "user/")
	must(t, os.Remove(filepath.Join(dir, "user")))
	put(t, s, "a", "x")
	must(t, s.Remove(t.Context(), "a"))
	holds(t, dir) // dir itself stays
}

// A temporary file lies beside its object's place, says whose it is, and is all
// that a crash can leave.
func TestTemporary(t *testing.T) {
	dir := t.TempDir()
	s := New(dir)
	for range 2 {
		w, err := s.Create(t.Context(), "a/train-0.tar")
		must(t, err)
		defer w.Abort()
		_, err = w.Write([]byte("half"))
		must(t, err)
	}
	files, err := os.ReadDir(filepath.Join(dir, "a"))
	must(t, err)
	if len(files) != 2 {
		t.Fatalf("%d files", len(files))
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), ".tmp-train-0.tar-") || len(f.Name()) != len(".tmp-train-0.tar-")+digits {
			t.Errorf("temporary file %q", f.Name())
		}
	}
	must(t, s.Sweep(t.Context(), "a/train-00"))
	holds(t, dir, "a/", "a/"+files[0].Name(), "a/"+files[1].Name())
	must(t, s.Sweep(t.Context(), "a/train-0"))
	holds(t, dir)
}

// What is not ours is not listed, and left alone.
func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	s := New(dir)
	foreign := []string{
		".tmp-", ".tmp-x", ".tmp--0123456789abcdef", ".tmp-x-0123456789ABCDEF", ".tmp-x-123456789abcdef", ".tmp-x0123456789abcdef",
		".tmp-x-0123456789abcdef/", ".tmp-x-0123456789abcdef/y", ".tmp-y/", ".tmp-y/.tmp-a-0123456789abcdef",
	}
	if runtime.GOOS != "windows" {
		foreign = append(foreign, `back\slash`, `d\/`, `d\/x`)
	}
	for _, name := range foreign {
		path := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			must(t, os.Mkdir(path, 0o777))
		} else {
			must(t, os.WriteFile(path, nil, 0o666))
		}
	}
	slices.Sort(foreign)
	if got, err := list(t, s, ""); len(got) != 0 || err != nil {
		t.Errorf("List = %q, %v", got, err)
	}
	must(t, s.Sweep(t.Context(), ""))
	holds(t, dir, foreign...)
}

func TestLinks(t *testing.T) {
	base := t.TempDir()
	dir, disk := filepath.Join(base, "store"), filepath.Join(base, "disk")
	must(t, os.MkdirAll(filepath.Join(disk, "sub"), 0o777))
	must(t, os.MkdirAll(filepath.Join(dir, "d"), 0o777))
	must(t, os.WriteFile(filepath.Join(disk, "f"), []byte("far"), 0o666))
	must(t, os.WriteFile(filepath.Join(disk, "sub", "g"), []byte("farther"), 0o666))
	for link, target := range map[string]string{
		"file": filepath.Join(disk, "f"), "folder": disk, "d/up": "..", "d/self": ".", "loop": "loop", "gone": "nowhere",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Skipf("SKIPPED LOUDLY: no symbolic links here: %v", err)
		}
	}
	s := New(dir)
	want := []string{"file", "folder/f", "folder/sub/g"}
	if got, err := list(t, s, ""); !slices.Equal(got, want) || err != nil {
		t.Errorf("List = %q, %v; want %q", got, err, want)
	}
	for info, err := range s.List(t.Context(), "file") {
		if err != nil || info.Size != 3 {
			t.Errorf("List: %+v, %v", info, err)
		}
	}
	if got := get(t, s, "folder/sub/g"); got != "farther" {
		t.Errorf("read %q", got)
	}
	if _, err := s.Open(t.Context(), "gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open of a link to nowhere: %v", err)
	}
	put(t, s, "folder/new", "x")
	if got, err := os.ReadFile(filepath.Join(disk, "new")); string(got) != "x" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	// A link is replaced and removed itself; what it leads to stays.
	put(t, s, "file", "near")
	must(t, s.Remove(t.Context(), "file"))
	must(t, s.Remove(t.Context(), "folder/sub/g"))
	must(t, s.Remove(t.Context(), "gone"))
	if got, err := os.ReadFile(filepath.Join(disk, "f")); string(got) != "far" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link to nowhere: %v", err)
	}
}

// An object that is not changed through the store, but behind its back.
func TestChangedMeanwhile(t *testing.T) {
	dir := t.TempDir()
	s := New(dir)
	put(t, s, "a", strings.Repeat("x", 1000))
	o, err := s.Open(t.Context(), "a")
	must(t, err)
	defer o.Close()
	path := filepath.Join(dir, "a")

	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString("yyy")
	must(t, err)
	must(t, f.Close())
	p := make([]byte, 2000)
	if n, err := o.ReadAt(t.Context(), p, 0); n != 1000 || err != io.EOF || bytes.ContainsRune(p, 'y') {
		t.Errorf("ReadAt of a file that grew = %d, %v", n, err)
	}

	must(t, os.Truncate(path, 400))
	for _, c := range []struct{ off, size, n int }{{0, 1000, 400}, {0, 2000, 400}, {300, 200, 100}, {500, 10, 0}} {
		n, err := o.ReadAt(t.Context(), p[:c.size], int64(c.off))
		if n != c.n || !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), path) {
			t.Errorf("ReadAt(%d, %d) of a file that shrank = %d, %v", c.size, c.off, n, err)
		}
	}
	if n, err := o.ReadAt(t.Context(), p[:400], 0); n != 400 || err != nil {
		t.Errorf("ReadAt of what is left = %d, %v", n, err)
	}
}

func TestFileAndFolder(t *testing.T) {
	s := New(t.TempDir())
	put(t, s, "a", "x")
	put(t, s, "d/b", "x")
	for _, name := range []string{"a/b", "a/b/c", "d"} {
		w, err := s.Create(t.Context(), name)
		if err == nil {
			w.Abort()
			t.Errorf("Create(%q) succeeded", name)
		} else if !strings.Contains(err.Error(), s.at(strings.TrimSuffix(strings.TrimSuffix(name, "/c"), "/b"))) {
			t.Errorf("Create(%q): %v does not name what is in the way", name, err)
		}
	}
	if _, err := s.Lock(t.Context(), "a/lock", ""); err == nil {
		t.Error("Lock below an object succeeded")
	}
	// A folder that comes into the way while the object is written.
	w, err := s.Create(t.Context(), "e")
	must(t, err)
	put(t, s, "e/f", "x")
	if err := w.Commit(t.Context()); err == nil || !strings.Contains(err.Error(), s.at("e")) {
		t.Errorf("Commit over a folder: %v", err)
	}
	holds(t, s.root, "a", "d/", "d/b", "e/", "e/f")
}

func TestRootIsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(path, nil, 0o666))
	s := New(path)
	for _, prefix := range []string{"", "a", "a/b"} {
		if got, err := list(t, s, prefix); len(got) != 0 || err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("List(%q) = %q, %v", prefix, got, err)
		}
	}
	if _, err := s.Create(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("Create: %v", err)
	}
	if _, err := s.Open(t.Context(), "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open: %v", err)
	}
}

func TestErrorSpeaks(t *testing.T) {
	for _, err := range []error{
		&fs.PathError{Op: "write", Path: "/x/.tmp-a-1", Err: full},
		&os.LinkError{Op: "rename", Old: "/x/.tmp-a-1", New: "/x/a", Err: full},
		os.NewSyscallError("fsync", full),
	} {
		err = fault("commit", "/x/a", err)
		text := err.Error()
		if !errors.Is(err, store.ErrNoSpace) || !errors.Is(err, full) || strings.Contains(text, ".tmp-") ||
			!strings.HasPrefix(text, "commit /x/a: no space left: ") || !strings.Contains(text, "make room") {
			t.Errorf("%v", err)
		}
	}
	if err := fault("open", "/x/a", &fs.PathError{Op: "open", Path: "/x/a", Err: syscall.EACCES}); !errors.Is(err, fs.ErrPermission) || errors.Is(err, store.ErrNoSpace) {
		t.Errorf("%v", err)
	}
}

func TestLockFile(t *testing.T) {
	s := New(t.TempDir())
	path := filepath.Join(s.root, "d", "lock")
	must(t, os.Mkdir(filepath.Dir(path), 0o777))
	// What one who was killed has left; longer than the new line.
	must(t, os.WriteFile(path, []byte("\x00an old owner with a long line\n"), 0o666))
	unlock, err := s.Lock(t.Context(), "d/lock", "new\nowner")
	must(t, err)
	_, err = s.Lock(t.Context(), "d/lock", "")
	if !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), `held by "new owner"`) {
		t.Errorf("Lock: %v", err)
	}
	must(t, unlock())

	// A lock file that somebody has removed, and somebody else made again, is not
	// removed by the first.
	if runtime.GOOS == "windows" {
		return
	}
	first, err := s.Lock(t.Context(), "d/lock", "first")
	must(t, err)
	must(t, os.Remove(path))
	second, err := s.Lock(t.Context(), "d/lock", "second")
	must(t, err)
	must(t, first())
	if _, err := s.Lock(t.Context(), "d/lock", ""); !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), "second") {
		t.Errorf("Lock: %v", err)
	}
	must(t, os.WriteFile(path, nil, 0o666))
	if _, err := s.Lock(t.Context(), "d/lock", ""); !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), "does not say") {
		t.Errorf("Lock: %v", err)
	}
	must(t, second())
	holds(t, s.root)
}

func FuzzTempName(f *testing.F) {
	for _, base := range []string{"a", "a-0123456789abcdef", ".tmp-a", strings.Repeat("é", 127), strings.Repeat("\xff", 255), "日本語.tar"} {
		f.Add(base)
	}
	f.Fuzz(func(t *testing.T, base string) {
		if got, temp := objectOf(base); temp {
			if len(got) == 0 || !strings.HasPrefix(base, store.TempPrefix+got+"-") {
				t.Fatalf("objectOf(%q) = %q", base, got)
			}
		} else if got != base {
			t.Fatalf("objectOf(%q) = %q, an object's own name", base, got)
		}
		if base == "" || len(base) > 255 {
			return
		}
		name := tempName(base)
		got, temp := objectOf(name)
		if !temp || len(name) > 255 || !strings.HasPrefix(base, got) {
			t.Fatalf("tempName(%q) = %q, of %q", base, name, got)
		}
		if got != base && len(name) < 255-utf8.UTFMax {
			t.Fatalf("tempName(%q) = %q is cut too short", base, name)
		}
		if utf8.ValidString(base) && !utf8.ValidString(name) {
			t.Fatalf("tempName(%q) = %q is cut in a rune", base, name)
		}
	})
}

func ExampleNew() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	s := New(dir)
	ctx := context.Background()
	if err := store.WriteAll(ctx, s, "train/00000.tar", []byte("a shard")); err != nil {
		panic(err)
	}
	for info, err := range s.List(ctx, "train/") {
		fmt.Println(info.Name, info.Size, err)
	}
	// Output: train/00000.tar 7 <nil>
}

// A lock is held until unlock or the end of the process, also if nobody keeps unlock.
func TestLockOutlivesCollector(t *testing.T) {
	s := New(t.TempDir())
	if _, err := s.Lock(t.Context(), "lock", "one that forgets"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		runtime.GC()
		time.Sleep(5 * time.Millisecond) // finalizers and clean-ups run in a goroutine
	}
	if _, err := s.Lock(t.Context(), "lock", ""); !errors.Is(err, store.ErrLocked) {
		t.Errorf("after collecting: %v", err)
	}
}

// What unfinished writes leave is told by name, and dropped one by one.
func TestUnfinished(t *testing.T) {
	dir := t.TempDir()
	s := New(dir)
	left := map[string]store.Writer{}
	for _, name := range []string{"a", "d/b", "d/c"} {
		w, err := s.Create(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(name)); err != nil {
			t.Fatal(err)
		}
		left[name] = w
	}
	unfinished := func(prefix string) map[string]store.Unfinished {
		all := map[string]store.Unfinished{}
		for u, err := range s.Unfinished(t.Context(), prefix) {
			if err != nil {
				t.Fatal(err)
			}
			if u.Size != int64(len(u.Name)) || time.Since(u.ModTime).Abs() > time.Minute {
				t.Errorf("%+v", u)
			}
			all[u.Name] = u
		}
		return all
	}
	all := unfinished("")
	if len(all) != 3 || len(unfinished("d/")) != 2 || len(unfinished("x")) != 0 || len(unfinished("../")) != 0 {
		t.Fatalf("unfinished are %v", all)
	}
	for range 2 {
		if err := s.Drop(t.Context(), all["d/b"]); err != nil {
			t.Fatal(err)
		}
	}
	if err := left["d/b"].Commit(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Commit after Drop: %v", err)
	}
	if err := left["d/c"].Commit(t.Context()); err != nil {
		t.Error(err)
	}
	// Drop removes nothing else.
	for _, u := range []store.Unfinished{{Name: "d/c", ID: "c"}, {Name: "d/c", ID: ".tmp-c"}, {Name: "d/c", ID: all["a"].ID}, {Name: "../d/c", ID: all["a"].ID}, {Name: "d/c", ID: "../" + all["a"].ID}} {
		if err := s.Drop(t.Context(), u); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("Drop(%+v): %v", u, err)
		}
	}
	if err := left["a"].Commit(t.Context()); err != nil {
		t.Error(err)
	}
	if all := unfinished(""); len(all) != 0 {
		t.Errorf("left are %v", all)
	}
}
