package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shardify/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tree makes files, whose content is their path, folders (a slash at the end) and
// links ("name -> target") in a new folder.
func tree(t testing.TB, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		name, target, isLink := strings.Cut(name, " -> ")
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case isLink:
			if err = os.Symlink(target, path); errors.Is(err, fs.ErrPermission) || runtime.GOOS == "windows" && err != nil {
				t.Skipf("SKIPPED LOUDLY: no right to make links: %v", err)
			}
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		default:
			err = os.WriteFile(path, []byte(name), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// lines writes what a pass yields, a line each, sorted.
func lines(t testing.TB, entries iter.Seq2[source.Entry, error]) []string {
	t.Helper()
	out := []string{}
	for e, err := range entries {
		var entry *source.EntryError
		switch {
		case errors.As(err, &entry):
			out = append(out, "error "+err.Error())
		case err != nil:
			t.Fatal(err)
		case e.Path == "":
			out = append(out, "class "+e.Class)
		default:
			if e.Size != int64(len(e.Path)) && e.Size != 0 {
				if info, err := os.Stat(e.Location.Name); err != nil || info.Size() != e.Size {
					t.Errorf("%q has %d bytes (%v)", e.Path, e.Size, err)
				}
			}
			line := e.Path
			if e.Class != "" {
				line += " class " + e.Class
			}
			if e.Split != "" {
				line += " split " + e.Split
			}
			if e.KeyPath != "" {
				line += " key " + e.KeyPath
			}
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

func open(t testing.TB, root string, cfg Config) *Folder {
	t.Helper()
	f, err := Open(root, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestLayouts(t *testing.T) {
	for _, c := range []struct {
		name   string
		files  []string
		cfg    Config
		layout string
		want   []string
	}{
		{"classes", []string{"b/1.jpg", "a/2.jpg", "a/x/y/3.jpg", "empty/", "README.md", "labels.csv"}, Config{}, Classes, []string{
			"README.md", "a/2.jpg class a", "a/x/y/3.jpg class a", "b/1.jpg class b", "class a", "class b", "class empty", "labels.csv",
		}},
		{"an image beside the classes", []string{"a/1.jpg", "0.JPG", "0.json", "jpg"}, Config{}, Classes, []string{
			"0.json", "a/1.jpg class a", "class a", `error "0.JPG": lies beside the class folders: move it into one, or use --layout flat`, "jpg",
		}},
		{"splits", []string{"train/a/1.jpg", "train/b/2.jpg", "Val/a/1.jpg", "Val/a/x/4.jpg", "README.md"}, Config{}, Splits, []string{
			"README.md", "Val/a/1.jpg class a split Val key a/1.jpg", "Val/a/x/4.jpg class a split Val key a/x/4.jpg", "class a", "class a", "class b",
			"train/a/1.jpg class a split train key a/1.jpg", "train/b/2.jpg class b split train key b/2.jpg",
		}},
		{"a split without classes", []string{"train/a/1.jpg", "test/2.jpg", "test/.x/3.jpg"}, Config{}, Splits, []string{
			"class a", "test/2.jpg split test key 2.jpg", "train/a/1.jpg class a split train key a/1.jpg",
		}},
		{"images beside splits and classes", []string{"train/a/1.jpg", "train/0.jpg", "0.png", "train/x.txt"}, Config{}, Splits, []string{
			"class a", `error "0.png": lies beside the split folders: move it into one`, `error "train/0.jpg": lies beside the class folders: move it into one`,
			"train/a/1.jpg class a split train key a/1.jpg", "train/x.txt split train key x.txt",
		}},
		{"one folder that is no split", []string{"train/a/1.jpg", "cars/2.jpg"}, Config{}, Classes, []string{
			"cars/2.jpg class cars", "class cars", "class train", "train/a/1.jpg class train",
		}},
		{"flat", []string{"1.jpg", "2.jpg", ".hidden/3.jpg"}, Config{}, Flat, []string{"1.jpg", "2.jpg"}},
		{"flat as asked", []string{"1.jpg", "a/2.jpg", "train/b/3.jpg"}, Config{Layout: Flat}, Flat, []string{"1.jpg", "a/2.jpg", "train/b/3.jpg"}},
		{"classes as asked", []string{"train/1.jpg"}, Config{Layout: Classes}, Classes, []string{"class train", "train/1.jpg class train"}},
		{"splits as asked", []string{"a/b/1.jpg"}, Config{Layout: Splits}, Splits, []string{"a/b/1.jpg class b split a key b/1.jpg", "class b"}},
		{"empty", nil, Config{}, Flat, []string{}},
		{"hidden and system's", []string{"a/1.jpg", "a/.2.jpg", ".git/x.jpg", "__MACOSX/a/1.jpg", "a/@eaDir/1.jpg", "a/__MACOSX.jpg", "lost+found/"}, Config{}, Classes, []string{
			"a/1.jpg class a", "a/__MACOSX.jpg class a", "class a",
		}},
		{"include", []string{"a/1.jpg", "a/1.JPG", "a/1.txt", "b/x/2.jpg"}, Config{Include: []string{"*.jpg"}}, Classes, []string{
			"a/1.jpg class a", "b/x/2.jpg class b", "class a", "class b",
		}},
		{"include paths", []string{"a/1.jpg", "a/x/1.jpg", "b/1.jpg"}, Config{Include: []string{"a/*.{jpg,png}", "b/**"}}, Classes, []string{
			"a/1.jpg class a", "b/1.jpg class b", "class a", "class b",
		}},
		{"exclude", []string{"a/1.jpg", "a/1.txt", "b/2.jpg", "c/x/3.jpg", "c/4.jpg", "d/5.jpg"}, Config{Exclude: []string{"*.txt", "b", "c/x/**", "d/*"}}, Classes, []string{
			"a/1.jpg class a", "c/4.jpg class c", "class a", "class c", "class d",
		}},
		{"exclude makes a layout", []string{"train/1.jpg", "cache/2.jpg"}, Config{Exclude: []string{"cache"}}, Splits, []string{"train/1.jpg split train key 1.jpg"}},
		{"links", []string{"data/1.jpg", "data/x/2.jpg", "root/a -> ../data", "root/b/3.jpg -> ../../data/1.jpg", "root/b/4.txt -> nowhere"}, Config{}, Classes, []string{
			"class data", "class root", "data/1.jpg class data", "data/x/2.jpg class data", "root/a/1.jpg class root", "root/a/x/2.jpg class root",
			"root/b/3.jpg class root", `error "root/b/4.txt": a broken link, to "nowhere": no such file or directory`,
		}},
		{"a class that is a link", []string{".data/1.jpg", "a -> .data", "b -> .data"}, Config{}, Classes, []string{
			"a/1.jpg class a", "b/1.jpg class b", "class a", "class b",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := tree(t, c.files...)
			f := open(t, root, c.cfg)
			if f.Layout() != c.layout {
				t.Errorf("layout %q, want %q", f.Layout(), c.layout)
			}
			slices.Sort(c.want)
			for range 2 { // every range is a fresh pass
				if got := lines(t, f.Entries(t.Context())); !slices.Equal(got, c.want) {
					t.Errorf("got\n\t%q\nwant\n\t%q", got, c.want)
				}
			}
		})
	}
}

func TestLoops(t *testing.T) {
	root := tree(t, "a/1.jpg", "a/up -> ..", "a/self -> .", "b/2.jpg", "b/a -> ../a", "c/d/b -> ../../b", "d -> d", "e -> f", "f -> e")
	got := lines(t, open(t, root, Config{}).Entries(t.Context()))
	loop := func(path, to string) string {
		return fmt.Sprintf("error %q: a link to %q, the folder that it lies in: its files would never end", path, filepath.Join(root, to))
	}
	want := []string{
		"a/1.jpg class a", "b/2.jpg class b", "b/a/1.jpg class b", "c/d/b/2.jpg class c", "c/d/b/a/1.jpg class c",
		"class a", "class b", "class c",
		loop("a/up", "."), loop("a/self", "a"), loop("b/a/up", "."), loop("b/a/self", "b/a"), loop("c/d/b/a/up", "."), loop("c/d/b/a/self", "c/d/b/a"),
		`error "d": too many levels of symbolic links`, `error "e": too many levels of symbolic links`, `error "f": too many levels of symbolic links`,
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n\t%q\nwant\n\t%q", got, want)
	}
}

func TestUnreadable(t *testing.T) {
	unprivileged(t)
	root := tree(t, "a/1.jpg", "b/2.jpg", "c/3.jpg")
	for _, name := range []string{"b", "c/3.jpg"} {
		if err := os.Chmod(filepath.Join(root, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	defer os.Chmod(filepath.Join(root, "b"), 0o755)
	f := open(t, root, Config{})
	got := lines(t, f.Entries(t.Context()))
	want := []string{"a/1.jpg class a", "c/3.jpg class c", "class a", "class b", "class c", `error "b": permission denied`}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	_, err := f.Read(t.Context(), source.Location{Name: filepath.Join(root, "c/3.jpg"), Size: 7}, nil)
	var entry *source.EntryError
	if !errors.As(err, &entry) || !errors.Is(err, fs.ErrPermission) || errors.Is(err, source.ErrChanged) {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems do not keep all names as they are")
	}
	long := strings.Repeat("x", 251) + ".jpg"
	names := []string{"caf\xe9.jpg", "日本語.jpg", "new\nline.jpg", "a b.jpg", "x.tar.jpg", "\x01.jpg", "back\\slash.jpg", long, "%41.jpg"}
	var files []string
	for _, n := range names {
		files = append(files, "c\xff/"+n)
	}
	root := tree(t, files...)
	f := open(t, root, Config{})
	found := map[string]bool{}
	for e, err := range f.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Path == "" {
			continue
		}
		found[e.Path] = true
		data, err := f.Read(t.Context(), e.Location, nil)
		if err != nil || string(data) != e.Path || e.Class != "c\xff" {
			t.Errorf("%q of class %q: %q, %v", e.Path, e.Class, data, err)
		}
	}
	if len(found) != len(files) {
		t.Errorf("found %q", slices.Sorted(maps.Keys(found)))
	}
}

// A path can be longer than one that can be opened: what lies deeper is an error.
func TestDeep(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("made by the rules of Linux")
	}
	root := t.TempDir()
	back, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("d", 250)
	depth := 0
	if err := os.Chdir(root); err != nil {
		t.Fatal(err)
	}
	for ; depth < 20; depth++ {
		for _, err := range []error{os.Mkdir(name, 0o755), os.WriteFile("1.jpg", []byte("x"), 0o644), os.Chdir(name)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chdir(back); err != nil {
		t.Fatal(err)
	}
	files, errs := 0, 0
	for e, err := range open(t, root, Config{Layout: Flat}).Entries(t.Context()) {
		switch {
		case err == nil:
			files++
			if got, err := Read(t.Context(), e.Location, nil); err != nil || string(got) != "x" {
				t.Errorf("%d bytes deep: %v", len(e.Path), err)
			}
		case errors.As(err, new(*source.EntryError)) && strings.Contains(err.Error(), "name too long"):
			errs++
		default:
			t.Error(err)
		}
	}
	if want := (4095 - len(root)) / 251; files < want-1 || files > want+1 || errs != 1 {
		t.Errorf("%d files and %d errors, want about %d and 1", files, errs, want)
	}
}

// random makes a tree of n files and returns their paths.
func random(t testing.TB, n int, prefix ...string) (root string, paths []string) {
	rng := rand.New(rand.NewPCG(7, 7))
	var names []string
	for i := range n {
		p := ""
		for range rng.IntN(4) {
			p += string(rune('a'+rng.IntN(3))) + "/"
		}
		if len(prefix) > 0 {
			p = prefix[rng.IntN(len(prefix))] + p
		}
		paths = append(paths, fmt.Sprintf("%s%d.jpg", p, i))
	}
	names = append(names, paths...)
	names = append(names, "a/.x", "z/")
	slices.Sort(paths)
	return tree(t, names...), paths
}

// The listing does not depend on workers, and a list of all files lists what the
// folder does.
func TestSameForAllWorkers(t *testing.T) {
	for _, prefix := range [][]string{nil, {"train/", "val/", "test/", "test/"}} {
		root, paths := random(t, 700, prefix...)
		for i, layout := range []string{Auto, Classes, Splits, Flat} {
			want := lines(t, open(t, root, Config{Layout: layout, Workers: 1}).Entries(t.Context()))
			if len(want) < 700 {
				t.Fatalf("%d lines", len(want))
			}
			for _, workers := range []int{2, 7, 0} {
				got := lines(t, open(t, root, Config{Layout: layout, Workers: workers}).Entries(t.Context()))
				if !slices.Equal(got, want) {
					t.Errorf("%d workers: %d lines, want %d", workers, len(got), len(want))
				}
			}
			if i == 2 && prefix == nil {
				continue // an order of errors that a list does not share
			}
			l, err := List(root, func(yield func(string, error) bool) {
				for _, p := range paths {
					if !yield(p, nil) {
						return
					}
				}
			}, Config{Layout: layout})
			if err != nil {
				t.Fatal(err)
			}
			if got := lines(t, l.Entries(t.Context())); !slices.Equal(got, want) {
				t.Errorf("layout %q: the list has %d lines, want %d\n%q\n%q", layout, len(got), len(want), got, want)
			}
		}
	}
}

// One large folder is handed out among the workers.
func TestLargeFolder(t *testing.T) {
	root := t.TempDir()
	const n = 5000
	for i := range n {
		if err := os.WriteFile(filepath.Join(root, fmt.Sprintf("img.%07d.jpg", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	seen := make([]bool, n)
	for e, err := range open(t, root, Config{Workers: 4}).Entries(t.Context()) {
		var i int
		if _, scanErr := fmt.Sscanf(e.Path, "img.%d.jpg", &i); err != nil || scanErr != nil || seen[i] {
			t.Fatal(e.Path, err, scanErr)
		}
		seen[i] = true
	}
	if slices.Contains(seen, false) {
		t.Error("a file is missing")
	}
}

// When very many folders wait, they are read at once.
func TestManyFolders(t *testing.T) {
	root := t.TempDir()
	const n = maxWaiting + 700
	for i := range n {
		if err := os.Mkdir(filepath.Join(root, fmt.Sprintf("d%d", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "d77", "1.jpg"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	classes, files := 0, 0
	for e, err := range open(t, root, Config{}).Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Path == "" {
			classes++
		} else {
			files++
		}
	}
	if classes != n || files != 1 {
		t.Errorf("%d classes and %d files", classes, files)
	}
}

func TestLeaving(t *testing.T) {
	root, _ := random(t, 400)
	for name, f := range map[string]*Folder{
		"folder": open(t, root, Config{Workers: 5}),
		"list":   listOf(t, root, Config{Workers: 5}, "a/1.jpg\n"+strings.Repeat("x/y.jpg\n", 5000)),
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			for stop := range 5 {
				n := 0
				for range f.Entries(t.Context()) {
					if n++; n > stop*20 {
						break
					}
				}
			}
			func() {
				defer func() {
					if recover() != "out" {
						t.Error("no panic")
					}
				}()
				for range f.Entries(t.Context()) {
					panic("out")
				}
			}()
			cause := errors.New("enough")

			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var last error
			n := 0
			for _, err := range f.Entries(ctx) {
				if n++; n == 3 {
					cancel(cause)
				}
				last = err
			}
			if !errors.Is(last, cause) {
				t.Errorf("after cancelling: %v", last)
			}
			for _, err := range f.Entries(ctx) {
				if !errors.Is(err, cause) {
					t.Errorf("cancelled before: %v", err)
				}
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	root := tree(t, "file")
	if _, err := Open(filepath.Join(root, "none"), Config{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := Open(filepath.Join(root, "file"), Config{}); err == nil || !strings.Contains(err.Error(), "is not a folder") {
		t.Error(err)
	}
	_, err := Open(root, Config{Layout: "tree", Workers: -1, Include: []string{"[", ""}, Exclude: []string{"/x", "x/"}})
	if err == nil || strings.Count(err.Error(), "\n") != 5 {
		t.Error(err)
	}
	f := open(t, root, Config{})
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range f.Entries(t.Context()) {
		if n++; !errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*source.EntryError)) {
			t.Errorf("a root that has gone: %v", err)
		}
	}
	if n != 1 {
		t.Errorf("%d errors", n)
	}
}

// readers are both implementations of Read.
var readers = map[string]func(context.Context, source.Location, []byte, bool) ([]byte, error){"system": read, "portable": readPortable}

func TestRead(t *testing.T) {
	for name, read := range readers {
		t.Run(name, func(t *testing.T) {
			root := tree(t, "a.jpg", "empty.jpg", "dir/")
			path := filepath.Join(root, "a.jpg")
			e := source.Entry{Path: "a.jpg", Location: source.Location{Name: path}}
			if err := Stat(&e); err != nil {
				t.Fatal(err)
			}
			loc := e.Location
			buf := make([]byte, 0, 100)
			data, err := read(t.Context(), loc, buf, false)
			if err != nil || string(data) != "a.jpg" || &data[0] != &buf[:1][0] {
				t.Errorf("%q, %v", data, err)
			}
			if data, err = read(t.Context(), loc, buf[:1:2], false); err != nil || string(data) != "a.jpg" {
				t.Errorf("%q, %v", data, err)
			}
			unknown := loc
			unknown.ModTime = 0
			if _, err = read(t.Context(), unknown, nil, false); err != nil {
				t.Error(err)
			}
			if allocs := testing.AllocsPerRun(10, func() { _, err = read(t.Context(), loc, buf, false) }); name == "system" && runtime.GOOS == "linux" && allocs > 3 {
				t.Errorf("%v allocations", allocs)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := read(ctx, loc, nil, false); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if _, err := read(t.Context(), source.Location{Name: path, Size: -1}, nil, false); err == nil {
				t.Error("a negative size")
			}

			isChanged := func(what, path string, loc source.Location) {
				t.Helper()
				_, err := read(t.Context(), loc, nil, false)
				var entry *source.EntryError
				if !errors.Is(err, source.ErrChanged) || !errors.As(err, &entry) || entry.Path != path {
					t.Errorf("%s: %v", what, err)
				}
			}
			part := loc
			part.Offset, part.Size = 2, 3
			if data, err := read(t.Context(), part, buf, true); err != nil || string(data) != "jpg" {
				t.Errorf("%q, %v", data, err)
			}
			part.Size = 4
			if _, err := read(t.Context(), part, buf, true); !errors.Is(err, source.ErrChanged) {
				t.Error(err)
			}
			part.Offset = -1
			if _, err := read(t.Context(), part, buf, true); err == nil {
				t.Error("a negative offset")
			}

			longer := loc
			longer.Size++
			isChanged("size", path, longer)
			if err := os.Chtimes(path, time.Time{}, time.Unix(5, 0)); err != nil {
				t.Fatal(err)
			}
			isChanged("time", path, loc)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			isChanged("vanished", path, loc)
			if _, err := read(t.Context(), loc, nil, false); !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
			dir := filepath.Join(root, "dir")
			if runtime.GOOS != "windows" {
				isChanged("folder", dir, source.Location{Name: dir, Size: 5})
			}
			t.Log(read(t.Context(), loc, nil, false))
		})
	}
}

// Both implementations of reading a folder agree.
func TestPortableDir(t *testing.T) {
	root := tree(t, "a.jpg", "d/x", ".hidden", "l -> a.jpg", "ld -> d", "broken -> nowhere", "x.txt")
	prefix := root + string(filepath.Separator)
	type reader interface {
		next(string) ([]child, error)
		stat(child, string) (kind, int64, int64, error)
		release()
	}
	list := func(d reader, err error) map[string]string {
		if err != nil {
			t.Fatal(err)
		}
		defer d.release()
		out := map[string]string{}
		for {
			children, err := d.next(prefix)
			if err != nil {
				t.Fatal(err)
			}
			if len(children) == 0 {
				return out
			}
			for _, c := range children {
				k, size, modTime, err := d.stat(c, prefix)
				out[c.path] = fmt.Sprint(c.kind, k, size, modTime, err != nil)
			}
		}
	}
	system, err := openDir(prefix)
	got := list(system, err)
	portable, err := openPortableDir(prefix)
	want := list(portable, err)
	if !maps.Equal(got, want) || len(got) != 6 {
		t.Errorf("%v, want %v", got, want)
	}
}

func listOf(t testing.TB, root string, cfg Config, text string) *Folder {
	t.Helper()
	path := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := List(root, NamesFile(path), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestList(t *testing.T) {
	root := tree(t, "a/1.jpg", "a/2.jpg", "b/.3.jpg", "c/x/", "0.jpg", "a/broken.jpg -> none")
	abs := filepath.Join(root, "a", "2.jpg")
	f := listOf(t, root, Config{Exclude: []string{"*.txt", "c/x"}}, strings.Join([]string{
		"./a/1.jpg", "a//x/../1.jpg\r", "", abs, "b/.3.jpg", "0.jpg", "a/none.jpg", "a/broken.jpg", "a", "../" + filepath.Base(root) + "/a/1.jpg",
		"../x.jpg", "/x.jpg", "a/1.txt", "c/x/y.jpg", "  ",
	}, "\n"))
	want := []string{
		"a/1.jpg class a", "a/1.jpg class a", "a/2.jpg class a", "b/.3.jpg class b", "class a", "class b", "class c",
		`error "0.jpg": lies beside the class folders: move it into one, or use --layout flat`,
		`error "a/none.jpg": no such file or directory`, `error "a/broken.jpg": a broken link, to "none": no such file or directory`,
		`error "a": is a folder, not a file`,
		fmt.Sprintf(`error "../x.jpg": does not lie in %q; name a root folder that holds all files`, root),
		fmt.Sprintf(`error "/x.jpg": does not lie in %q; name a root folder that holds all files`, root),
		fmt.Sprintf(`error "../%s/a/1.jpg": does not lie in %q; name a root folder that holds all files`, filepath.Base(root), root),
	}
	slices.Sort(want)
	for range 2 {
		if got := lines(t, f.Entries(t.Context())); !slices.Equal(got, want) {
			t.Errorf("got\n\t%q\nwant\n\t%q", got, want)
		}
	}
}

func TestNamesParsing(t *testing.T) {
	long := strings.Repeat("x", maxName-1)
	for _, c := range []struct {
		text string
		want []string
		err  string
	}{
		{"", nil, ""},
		{"a", []string{"a"}, ""},
		{"a\nb\r\n\n \t\n c \n", []string{"a", "b", " c "}, ""},
		{"\ufeffa\n\ufeffb", []string{"a", "\ufeffb"}, ""},
		{"a\x00b\n\x00\x00 \x00c\r\x00", []string{"a", "b\n", " ", "c\r"}, ""},
		{"a\x00b", []string{"a", "b"}, ""},
		{"\xff\xfea\x00\n\x00", nil, "UTF-16"},
		{long + "\n" + long, []string{long, long}, ""},
		{"a\n" + long + "x\n", []string{"a"}, "line 2 is longer"},
		{strings.Repeat(long[:99]+"\n", 1000) + "a\x00\n", slices.Repeat([]string{long[:99]}, 1000), "line 1001 has a NUL"},
	} {
		var got []string
		var err error
		for name, e := range Names(strings.NewReader(c.text)) {
			if err = e; e == nil {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, c.want) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%.50q: got %.50q, %v", c.text, got, err)
		}
	}
	names := Names(strings.NewReader("a\nb"))
	for range names {
		break
	}
	for _, err := range names {
		if err == nil {
			t.Error("a second range over a stream")
		}
	}
	f := listOf(t, t.TempDir(), Config{}, "x")
	f.names = NamesFile(filepath.Join(t.TempDir(), "none"))
	for _, err := range f.Entries(t.Context()) {
		if !errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*source.EntryError)) {
			t.Error(err)
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add("a\nb\r\n\n")
	f.Add("a\x00b\n\x00")
	f.Add("\ufeffa")
	f.Fuzz(func(t *testing.T, text string) {
		var got []string
		for name, err := range Names(strings.NewReader(text)) {
			if err != nil {
				return
			}
			if name == "" {
				t.Fatal("an empty name")
			}
			if rel, err := Relative("/r", name); err == nil && !fs.ValidPath(strings.ToValidUTF8(rel, "x")) {
				t.Fatalf("%q is relative to %q", rel, name)
			}
			got = append(got, name)
		}
		// What was read, written with NULs, reads the same.
		if len(got) == 0 {
			return
		}
		i := 0
		for name, err := range Names(strings.NewReader(strings.Join(got, "\x00") + "\x00")) {
			if strings.HasPrefix(got[0], "\xff\xfe") || strings.HasPrefix(got[0], "\xfe\xff") || len(got[0]) >= maxName {
				return
			}
			if err != nil || name != got[i] {
				t.Fatalf("%q, %v; want %q", name, err, got[i])
			}
			i++
		}
		if i != len(got) {
			t.Fatalf("%d names, want %d", i, len(got))
		}
	})
}

// BenchmarkScan lists a tree of 1,000 folders of 200 files each from the cache.
func BenchmarkScan(b *testing.B) {
	root := b.TempDir()
	const folders, files = 1000, 200
	for i := range folders {
		dir := filepath.Join(root, fmt.Sprintf("n%08d", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		for j := range files {
			f, err := os.Create(filepath.Join(dir, fmt.Sprintf("n%08d_%05d.JPEG", i, j)))
			if err != nil {
				b.Fatal(err)
			}
			f.Close()
		}
	}
	for _, workers := range []int{1, 2, 4, 8, 16} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			f := open(b, root, Config{Workers: workers})
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				for _, err := range f.Entries(b.Context()) {
					if err != nil {
						b.Fatal(err)
					}
					n++
				}
				if n != folders*(files+1) {
					b.Fatal(n)
				}
			}
			b.ReportMetric(float64(folders*files*b.N)/b.Elapsed().Seconds(), "files/s")
		})
	}
}

// BenchmarkRead reads a file of an ImageNet photograph's size from the cache.
func BenchmarkRead(b *testing.B) {
	path := filepath.Join(b.TempDir(), "a.jpg")
	if err := os.WriteFile(path, make([]byte, 110<<10), 0o644); err != nil {
		b.Fatal(err)
	}
	e := source.Entry{Path: "a.jpg", Location: source.Location{Name: path}}
	if err := Stat(&e); err != nil {
		b.Fatal(err)
	}
	for name, read := range readers {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(e.Size)
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				var err error
				if buf, err = read(b.Context(), e.Location, buf, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
