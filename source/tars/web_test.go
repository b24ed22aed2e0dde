package tars

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"shardify/index"
	"shardify/source"
)

// webServer serves a folder, with ETags, and remembers what it was asked for.
type webServer struct {
	*httptest.Server
	dir string
	// refuse, if it is not nil, answers in place of the server where it returns true.
	refuse func(w http.ResponseWriter, r *http.Request) bool

	mu       sync.Mutex
	requests []string
}

func serveWeb(t testing.TB, dir string) *webServer {
	t.Helper()
	t.Setenv("NETRC", os.DevNull)
	for _, name := range []string{"SHARDIFY_HTTP_HEADER", "SHARDIFY_HTTP_OBJECTS"} {
		t.Setenv(name, "")
	}
	s := &webServer{dir: dir}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *webServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, fmt.Sprintf("%s %s %s", r.Method, r.URL.Path, r.Header.Get("Range")))
	s.mu.Unlock()
	if s.refuse != nil && s.refuse(w, r) {
		return
	}
	f, err := os.Open(filepath.Join(s.dir, filepath.FromSlash(r.URL.Path)))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size()))
	http.ServeContent(w, r, "", info.ModTime(), f)
}

// asked returns the requests since it was called last.
func (s *webServer) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.requests
	s.requests = nil
	return all
}

// Shards of a web server are listed and read as those of a folder with the same files are:
// by name, by braces, by signed URLs, those of a data set of ours, and those that have URLs
// of their own.
func TestWebIsFolder(t *testing.T) {
	dir := t.TempDir()
	few := []string{"a b.tar", "é+%.tar.zst", "few.tfrecord.gz"}
	for i, name := range few {
		writeShard(t, filepath.Join(dir, "loose", "deep", name), one(fmt.Sprint(i), "cls=1", "jpg=a", "json={}"))
	}
	for i := range 3 {
		writeShard(t, filepath.Join(dir, "loose", fmt.Sprintf("train-%03d.tar", i)), noise(uint64(i), 30, 60<<10)...)
	}
	set := filepath.Join(dir, "set")
	var own []index.Shard
	for i, name := range []string{"a.tar", "b.tar.zst", "c.tar.gz"} {
		writeShard(t, filepath.Join(set, name), noise(uint64(20+i), 5, 9000)...)
		own = append(own, writeIndex(t, set, name))
	}
	writeManifest(t, set, &index.Manifest{Container: "tar", Splits: []index.Split{{Name: "train", Shards: own[:2]}, {Name: "val", Shards: own[2:]}}})

	server := serveWeb(t, dir)
	server.refuse = func(w http.ResponseWriter, r *http.Request) bool {
		_, password, _ := r.BasicAuth()
		if password != "SECRET" && r.URL.Query().Get("sig") != "SECRET"+r.URL.Path && r.URL.Query().Get("sas") != "SECRET" {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		return false
	}
	at := strings.Replace(server.URL, "://", "://me:SECRET@", 1)
	signed := func(path string) string {
		return server.URL + (&url.URL{Path: path}).EscapedPath() + "?sig=" + url.QueryEscape("SECRET"+path)
	}
	for name, c := range map[string]struct {
		local, remote []string
		requests      int // that listing takes, with Open; 0: any number
	}{
		"braces":   {[]string{"loose/train-000.tar", "loose/train-001.tar", "loose/train-002.tar"}, []string{at + "/loose/train-{000..002}.tar"}, 3 * 2},
		"names":    {[]string{"loose/deep/" + few[0], "loose/deep/" + few[1], "loose/train-001.tar"}, []string{at + "/loose/deep/a%20b.tar", at + "/loose/deep/%C3%A9+%25.tar.zst", at + "/loose/train-001.tar"}, 0},
		"signed":   {[]string{"loose/deep/" + few[0], "loose/deep/" + few[1], "loose/train-002.tar"}, []string{signed("/loose/deep/" + few[0]), signed("/loose/deep/" + few[1]), signed("/loose/train-002.tar")}, 0},
		"set":      {[]string{"set"}, []string{at + "/set"}, 1 + 2*3},
		"set, sas": {[]string{"set"}, []string{server.URL + "/set/?sas=SECRET"}, 1 + 2*3},
		"mixed":    {[]string{"loose/train-000.tar", "set"}, []string{at + "/{loose/train-000.tar,set}"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var local []string
			for _, p := range c.local {
				local = append(local, filepath.Join(dir, filepath.FromSlash(p)))
			}
			want := listing(t, openTars(t, Config{}, local...))
			server.asked()
			src := openTars(t, Config{}, c.remote...)
			entries, faults := gather(t, src)
			if requests := server.asked(); len(faults) > 0 || c.requests > 0 && len(requests) != c.requests {
				t.Errorf("%d requests, want %d: %q; %q", len(requests), c.requests, requests, faults)
			}
			if got := listing(t, src); len(want) == 0 || !slices.Equal(got, want) || !src.Remote() {
				t.Errorf("%d lines, want %d", len(got), len(want))
			}
			for _, e := range entries {
				if !strings.HasPrefix(e.Name, server.URL+"/") || e.ModTime == 0 || strings.Contains(e.Name+src.Name(), "SECRET") {
					t.Fatalf("%q: %+v", src.Name(), e.Location)
				}
			}
			// Another run, which has planned nothing, reads what this one has.
			again := openTars(t, Config{}, c.remote...)
			for _, e := range entries {
				data, err := again.Read(t.Context(), e.Location, nil)
				if err != nil || int64(len(data)) != e.Size {
					t.Fatalf("%s at %d: %d bytes, %v", e.Name, e.Offset, len(data), err)
				}
			}
		})
	}

	// Objects with URLs of their own, and no list but that.
	objects := filepath.Join(t.TempDir(), "objects.json")
	text := fmt.Sprintf(`{"deep/%s": %q, "train-001.tar": %q, "notes.txt": %q}`, few[0], signed("/loose/deep/"+few[0]), signed("/loose/train-001.tar"), signed("/loose/notes.txt"))
	if err := os.WriteFile(objects, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SHARDIFY_HTTP_OBJECTS", objects)
	want := listing(t, openTars(t, Config{}, filepath.Join(dir, "loose", "deep", few[0]), filepath.Join(dir, "loose", "train-001.tar")))
	if got := listing(t, openTars(t, Config{}, "https://data.example.org/loose")); !slices.Equal(got, want) {
		t.Errorf("by URLs of their own: %d lines, want %d", len(got), len(want))
	}
	if err := os.WriteFile(objects, []byte(`{"notes.txt": "https://data.example.org/x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), []string{"https://data.example.org/loose"}, Config{}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "no shard among the 1 objects") {
		t.Errorf("without shards: %v", err)
	}
}

// Errors name the URL without its secrets, say what to do, and end the pass: a shard that
// was named and is missing, one behind a server that ignores ranges or redirects to http.
func TestWebErrors(t *testing.T) {
	dir := t.TempDir()
	writeShard(t, filepath.Join(dir, "x-0.tar"), noise(1, 20, 1<<20)...)
	writeShard(t, filepath.Join(dir, "other", "x-0.tar"), one("1", "jpg=a"))
	server := serveWeb(t, dir)
	server.refuse = func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasPrefix(r.URL.Path, "/denied"):
			w.WriteHeader(http.StatusForbidden)
		case strings.HasPrefix(r.URL.Path, "/loop"):
			http.Redirect(w, r, r.URL.Path+"x?SECRET", http.StatusFound)
		case r.URL.Path == "/whole/x-0.tar":
			r.Header.Del("Range")
			f, err := os.Open(filepath.Join(dir, "x-0.tar"))
			if err != nil {
				return false
			}
			defer f.Close()
			info, err := f.Stat()
			if err != nil {
				return false
			}
			w.Header().Set("Content-Length", fmt.Sprint(info.Size()))
			_, _ = io.Copy(w, f)
		default:
			return false
		}
		return true
	}
	for _, c := range []struct {
		path string
		is   error
		says []string
	}{
		{"/x-{0..1}.tar", fs.ErrNotExist, []string{"/x-1.tar", "404", "range of numbers"}},
		{"/none/x-0.tar", fs.ErrNotExist, []string{"/none/x-0.tar", "404", "check the URL"}},
		{"/none", fs.ErrNotExist, []string{"/none/train-{000000..000099}.tar", "--files-from"}},
		{"/x-*.tar", errors.ErrUnsupported, []string{"does not say which files", "{000000..000099}"}},
		{"/x-{0..1.tar", fs.ErrInvalid, []string{"is not closed"}},
		{"/x-0.tar#top", nil, nil},
		{"/denied/x-0.tar", fs.ErrPermission, []string{"/denied/x-0.tar", "SHARDIFY_HTTP_HEADER"}},
		{"/denied/set", fs.ErrPermission, []string{"/denied/set/manifest.json", "named one by one"}},
		{"/whole/x-0.tar", errors.ErrUnsupported, []string{"/whole/x-0.tar", "ignores ranges", "copy the files to a disk"}},
		{"/loop/x-0.tar", fs.ErrInvalid, []string{"/loop/x-0.tar", "more than 10 redirects"}},
		{"/{x-0,x-0}.tar", nil, []string{"named twice"}},
	} {
		src, err := Open(t.Context(), []string{strings.Replace(server.URL, "://", "://me:SECRET@", 1) + c.path + "?sas=SECRET"}, Config{})
		if err == nil {
			for _, e := range src.Entries(t.Context()) {
				if err = e; errors.As(e, new(*source.EntryError)) {
					t.Errorf("%s: of one shard alone: %v", c.path, e)
				}
			}
			if e := src.Close(); e != nil {
				t.Error(e)
			}
		}
		if c.says == nil {
			if err != nil {
				t.Errorf("%s: %v", c.path, err)
			}
			continue
		}
		for _, text := range c.says {
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("%s: %v, want %q", c.path, err, text)
			}
		}
	}
}

// A shard that is replaced or removed is source.ErrChanged.
func TestWebChanged(t *testing.T) {
	for _, ending := range []string{".tar", ".tar.gz", ".tar.zst"} {
		for _, removed := range []bool{false, true} {
			dir := t.TempDir()
			server := serveWeb(t, dir)
			path := filepath.Join(dir, "x"+ending)
			writeShard(t, path, noise(30, 20, 10_000)...)
			src := openTars(t, Config{}, server.URL+"/x"+ending)
			entries, faults := gather(t, src)
			if len(entries) != 20 || len(faults) > 0 {
				t.Fatalf("%s: %d entries, %q", ending, len(entries), faults)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if !removed {
				writeShard(t, path, noise(31, 20, 10_000)...)
			}
			// By the run that has listed it, and by another one.
			for _, s := range []*Tars{src, openTars(t, Config{}, server.URL+"/x"+ending)} {
				_, err := s.Read(t.Context(), entries[3].Location, nil)
				if !errors.Is(err, source.ErrChanged) || !errors.As(err, new(*source.EntryError)) || !strings.Contains(err.Error(), server.URL+"/x"+ending) {
					t.Errorf("%s, removed %v: %v", ending, removed, err)
				}
			}
		}
	}
}
