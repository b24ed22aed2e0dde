package folder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"shardify/source"
	"shardify/store"
	filestore "shardify/store/file"
	"shardify/store/mem"
	"shardify/store/retry"
	"shardify/store/s3"
	"shardify/store/s3/s3test"
)

// listing is what a pass yields, as lines in one order.
func listing(t *testing.T, f *Folder) (lines []string) {
	t.Helper()
	for e, err := range f.Entries(t.Context()) {
		var bad *source.EntryError
		switch {
		case errors.As(err, &bad):
			lines = append(lines, "error "+err.Error())
		case err != nil:
			t.Fatal(err)
		default:
			lines = append(lines, fmt.Sprintf("%s|%s|%s|%s|%d", e.Split, e.Class, e.Path, e.KeyPath, e.Size))
		}
	}
	slices.Sort(lines)
	return lines
}

// write writes a file, which need not outlive a power failure.
func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o666); err != nil {
		t.Fatal(err)
	}
}

// A store is listed as the folder with the same files is, under every layout, and as a
// list of all names selects.
func TestStoreIsFolder(t *testing.T) {
	many := map[string]string{}
	for c := range 300 {
		many[fmt.Sprintf("n%04d/%d.jpg", c, c)] = "x"
		many[fmt.Sprintf("n%04d/deep/er/%d.jpg", c, c)] = "xy"
	}
	for name, tree := range map[string]map[string]string{
		"empty classes": {"a/.hidden": "x", "b/1.jpg": "x"},
		"classes": {
			"n1/a.jpg": "1", "n1/a.json": "22", "n1/deep/b.jpg": "333", "n2/c.png": "", "n2-x/d.jpg": "4", "n2.jpg": "5", "notes.txt": "6",
			".git/x": "7", "n1/.x/y.jpg": "8", "__MACOSX/n1/a.jpg": "9", "n3/@eaDir/a.jpg": "0", "n1/.y.jpg": "1",
		},
		"splits": {
			"train/n1/a.jpg": "1", "train/n2/b.jpg": "2", "train/readme.txt": "3", "train/top.jpg": "4", "val/x.jpg": "5", "val/y.jpg": "6", "beside.jpg": "7", "beside.txt": "8",
		},
		"flat": {"a.jpg": "1", "b.jpg": "2", "c.txt": "3", ".d.jpg": "4"},
		"many": many,
		"odd":  {"é/日本.jpg": "1", "a b/c d.jpg": "2", "%2E/x.jpg": "3", "100%#?/y.jpg": "4"},
	} {
		dir := t.TempDir()
		memory := mem.New()
		for path, data := range tree {
			write(t, filepath.Join(dir, filepath.FromSlash(path)), data)
			if err := store.WriteAll(t.Context(), memory, path, []byte(data)); err != nil {
				t.Fatal(err)
			}
		}
		for _, cfg := range []Config{
			{}, {Layout: Classes}, {Layout: Splits}, {Layout: Flat},
			{Include: []string{"*.jpg"}, Exclude: []string{"n1/deep", "val", "**/b.jpg"}},
			{Exclude: []string{"n2", "top.jpg"}},
		} {
			local, err := Open(dir, cfg)
			if err != nil {
				t.Fatal(err)
			}
			want := listing(t, local)
			for _, st := range []store.Store{memory, filestore.New(dir)} {
				if st != store.Store(memory) && len(tree) > 100 {
					continue // it lists all for each part of a list
				}
				f, err := OpenStore(t.Context(), st, cfg)
				if err != nil {
					t.Fatal(err)
				}
				if f.Layout() != local.Layout() || f.Name() != st.URL() {
					t.Errorf("%s, %+v: layout %s, want %s; name %s", name, cfg, f.Layout(), local.Layout(), f.Name())
				}
				for range 2 {
					if got := listing(t, f); !slices.Equal(got, want) {
						t.Errorf("%s, %+v: %d entries, want %d:\n%s\nwant\n%s", name, cfg, len(got), len(want), strings.Join(got[:min(len(got), 20)], "\n"), strings.Join(want[:min(len(want), 20)], "\n"))
					}
				}
				// By a list, half of the names as URLs.
				var names []string
				for i, path := range slices.Sorted(maps.Keys(tree)) {
					if i%2 == 0 && st == store.Store(memory) {
						path = st.URL() + "/" + path
					}
					names = append(names, path)
				}
				each := func(yield func(string, error) bool) {
					for _, n := range names {
						if !yield(n, nil) {
							return
						}
					}
				}
				relative := func(yield func(string, error) bool) {
					for path := range tree {
						if !yield(path, nil) {
							return
						}
					}
				}
				byList, err := ListStore(t.Context(), st, each, cfg)
				if err != nil {
					t.Fatal(err)
				}
				localList, err := List(dir, relative, cfg)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := listing(t, byList), listing(t, localList); !slices.Equal(got, want) {
					t.Errorf("%s, %+v, by a list: %q; want %q", name, cfg, got, want)
				}
			}
		}
	}
}

// Names that no object of the store could have.
func TestStoreNames(t *testing.T) {
	st := mem.New()
	if err := store.WriteAll(t.Context(), st, "a.jpg", []byte("x")); err != nil {
		t.Fatal(err)
	}
	names := []string{"a.jpg", "./a.jpg", "b.jpg", "../a.jpg", "s3://other/a.jpg", "/a.jpg", ".tmp-a"}
	f, err := ListStore(t.Context(), st, func(yield func(string, error) bool) {
		for _, n := range names {
			if !yield(n, nil) {
				return
			}
		}
	}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	good, bad := 0, 0
	for _, line := range listing(t, f) {
		if strings.HasPrefix(line, "error") {
			bad++
		} else {
			good++
		}
	}
	if good != 2 || bad != 5 {
		t.Errorf("of %q %d are there and %d are errors: %q", names, good, bad, listing(t, f))
	}
	if _, err := OpenStore(t.Context(), st, Config{Layout: "x"}); err == nil {
		t.Error("a wrong layout is no error")
	}
}

// A pass that is left, or whose context ends, leaves no goroutine; one that fails says so.
func TestStorePassEnds(t *testing.T) {
	st := mem.New()
	for i := range 3000 {
		if err := store.WriteAll(t.Context(), st, fmt.Sprintf("c%03d/%d.jpg", i%100, i), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	f, err := OpenStore(t.Context(), st, Config{})
	if err != nil {
		t.Fatal(err)
	}
	for range f.Entries(t.Context()) {
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	var last error
	for _, err := range f.Entries(ctx) {
		if n++; n == 500 {
			cancel()
		}
		last = err
	}
	cancel()
	if !errors.Is(last, context.Canceled) || n >= 3000 {
		t.Errorf("cancelled after 500 entries: %d, %v", n, last)
	}
}

// Objects of a bucket: what was changed, replaced or removed since it was listed is
// ErrChanged, even where size and second are the same; to read one is one request; and
// listing is shared out.
func TestBucket(t *testing.T) {
	server := s3test.Start(t)
	var deny atomic.Bool
	front := server.Front(t, func(r s3test.Request) s3test.Fault {
		if deny.Load() {
			return s3test.Fault{Status: 403, Code: "AccessDenied"}
		}
		return s3test.Fault{}
	})
	server.Setenv(t, front.URL)
	bucket, err := s3.New(t.Context(), "s3://"+s3test.Bucket+"/images", s3.Config{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := retry.New(bucket, retry.Config{Attempts: 2, Backoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(server.Dir, s3test.Bucket, "images")
	content := map[string][]byte{}
	for c := range 5 {
		n := 3
		if c < 2 {
			n = 1200
		}
		for i := range n {
			name := fmt.Sprintf("n%d/%04d.jpg", c, i)
			content[name] = fmt.Appendf(nil, "content %d of %d", i, c)
			if i >= 3 { // for the list alone: not through the server, which takes its time
				write(t, filepath.Join(dir, name), string(content[name]))
			} else if err := store.WriteAll(t.Context(), st, name, content[name]); err != nil {
				t.Fatal(err)
			}
		}
	}
	f, err := OpenStore(t.Context(), st, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if !f.Remote() || f.Layout() != Classes {
		t.Errorf("remote: %v, layout %s", f.Remote(), f.Layout())
	}
	front.Forget()
	at := map[string]source.Location{}
	for e, err := range f.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Path != "" {
			at[e.Path] = e.Location
		}
	}
	if len(at) != len(content) {
		t.Errorf("%d objects are listed, of %d", len(at), len(content))
	}
	if requests := len(front.Requests()); requests != 1+2+2+1+1+1 {
		t.Errorf("%d requests list 2 folders of 1200 objects and 3 small ones; want 8", requests)
	}
	front.Forget()
	buf := make([]byte, 0, 100)
	for c := range 5 {
		name := fmt.Sprintf("n%d/0000.jpg", c)
		data, err := f.Read(t.Context(), at[name], buf)
		if err != nil || !bytes.Equal(data, content[name]) {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if requests := len(front.Requests()); requests != 5 {
		t.Errorf("%d requests read 5 objects", requests)
	}
	for name, change := range map[string]func(name string) error{
		"n0/0001.jpg": func(name string) error { return store.WriteAll(t.Context(), st, name, []byte("CONTENT 1 of 0")) },
		"n1/0001.jpg": func(name string) error { return store.WriteAll(t.Context(), st, name, []byte("shorter")) },
		"n2/0001.jpg": func(name string) error { return store.WriteAll(t.Context(), st, name, []byte("longer than before")) },
		"n3/0001.jpg": func(name string) error { return st.Remove(t.Context(), name) },
	} {
		if err := change(name); err != nil {
			t.Fatal(err)
		}
		_, err := f.Read(t.Context(), at[name], nil)
		var entry *source.EntryError
		if !errors.Is(err, source.ErrChanged) || !errors.As(err, &entry) || !strings.Contains(err.Error(), st.URL()+"/"+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// That nothing may be read is no fault of one object.
	deny.Store(true)
	_, err = f.Read(t.Context(), at["n4/0001.jpg"], nil)
	var entry *source.EntryError
	if !errors.Is(err, fs.ErrPermission) || errors.As(err, &entry) {
		t.Errorf("denied: %v", err)
	}
	var last error
	for _, err := range f.Entries(t.Context()) {
		last = err
	}
	if !errors.Is(last, fs.ErrPermission) {
		t.Errorf("a list that is denied: %v", last)
	}
	if _, err := OpenStore(t.Context(), st, Config{}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("OpenStore, denied: %v", err)
	}
}

// What a list names is looked for by pages of the bucket where they tell of many, in
// whatever order it names them, and else each by itself, many at once; and so where the
// bucket may not be listed.
func TestListAsksSeldom(t *testing.T) {
	server := s3test.Start(t)
	var deny atomic.Bool
	front := server.Front(t, func(r s3test.Request) s3test.Fault {
		if deny.Load() && strings.Contains(r.Query, "list-type") {
			return s3test.Fault{Status: 403, Code: "AccessDenied"}
		}
		return s3test.Fault{}
	})
	server.Setenv(t, front.URL)
	st, err := s3.New(t.Context(), "s3://"+s3test.Bucket+"/images", s3.Config{})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(server.Dir, s3test.Bucket, "images")
	var all []string
	for i := range 2500 {
		name := fmt.Sprintf("n%d/é%04d.jpg", i%2, i)
		write(t, filepath.Join(dir, filepath.FromSlash(name)), name)
		all = append(all, name)
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	sparse := slices.Sorted(slices.Values(all))
	sparse = []string{sparse[3], sparse[1500], sparse[2400]}
	for _, c := range []struct {
		what               string
		names              []string
		missing            int
		denied             bool
		lists, heads, most int
	}{
		{"all", all, 0, false, 3, 0, 3},
		{"all and some that are not there", append(slices.Clone(all), "n0/x.jpg", "n1/é0001x.jpg", "zz.jpg"), 3, false, 3, 3, 4},
		{"three", sparse, 0, false, 1, 2, 3},
		{"denied", all[:100], 0, true, 1, 100, 1},
	} {
		f, err := ListStore(t.Context(), st, func(yield func(string, error) bool) {
			for _, n := range c.names {
				if !yield(n, nil) {
					return
				}
			}
		}, Config{Layout: Flat})
		if err != nil {
			t.Fatal(err)
		}
		deny.Store(c.denied)
		front.Forget()
		sizes, faults := map[string]int64{}, 0
		for e, err := range f.Entries(t.Context()) {
			switch {
			case errors.As(err, new(*source.EntryError)):
				faults++
			case err != nil:
				t.Fatal(err)
			default:
				sizes[e.Path] = e.Size
				if e.Size != int64(len(e.Path)) || e.ModTime == 0 {
					t.Errorf("%s: %+v", c.what, e)
				}
			}
		}
		deny.Store(false)
		lists, heads := 0, 0
		for _, r := range front.Forget() {
			if r.Method == "HEAD" {
				heads++
			} else {
				lists++
			}
		}
		if len(sizes) != len(c.names)-c.missing || faults != c.missing || lists < c.lists || lists > c.most || heads != c.heads {
			t.Errorf("%s: %d entries and %d faults of %d names, by %d lists and %d HEADs; want %d to %d and %d", c.what, len(sizes), faults, len(c.names), lists, heads, c.lists, c.most, c.heads)
		}
	}
}
