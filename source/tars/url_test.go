package tars

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"shardify/index"
	"shardify/sample"
	"shardify/source"
	"shardify/store"
	"shardify/store/s3"
	"shardify/store/s3/s3test"
)

const atBucket = "s3://" + s3test.Bucket

// upload writes the files of a folder into a bucket.
func upload(t testing.TB, st store.Store, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		return store.WriteAll(t.Context(), st, filepath.ToSlash(rel), data)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func bucketAt(t testing.TB, url string) store.Store {
	t.Helper()
	st, err := s3.New(t.Context(), url, s3.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// Shards in a bucket are listed and read as those of a folder with the same files are:
// of every compression, damaged ones, those of a data set of ours, by prefix, by pattern
// and one by one.
func TestBucketIsFolder(t *testing.T) {
	server := s3test.Start(t)
	front := server.Front(t, func(s3test.Request) s3test.Fault { return s3test.Fault{} })
	server.Setenv(t, front.URL)
	dir := t.TempDir()
	few := []sample.Sample{one("1", "cls=1", "jpg=a"), one("2", "cls=2", "jpg=b", "json={}"), one("3", "jpg=")}
	for _, ending := range []string{".tar", ".tar.gz", ".tar.zst", ".tfrecord", ".tfrecord.gz"} {
		writeShard(t, filepath.Join(dir, "loose", "deep", "few"+ending), few...)
	}
	// More than the ranges that are under way at once.
	big := writeShard(t, filepath.Join(dir, "loose", "big.tar"), noise(7, 60, 400<<10)...)
	for ending := range packers {
		path, _ := packed(t, t.TempDir(), "x", ending, noise(8, 20, 300<<10))
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(
			os.WriteFile(filepath.Join(dir, "loose", "whole"+ending), data, 0o644),
			os.WriteFile(filepath.Join(dir, "loose", "cut"+ending), data[:len(data)*2/3], 0o644),
		); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"notes.txt": "none", ".hidden.tar": "none", ".git/x.tar": "none", "manifest.json": `{"of": "another"}`} {
		path := filepath.Join(dir, "loose", filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	set := filepath.Join(dir, "set")
	var own []index.Shard
	for i, name := range []string{"a.tar", "b.tar.zst", "c.tar.gz"} {
		writeShard(t, filepath.Join(set, name), noise(uint64(20+i), 5, 9000)...)
		own = append(own, writeIndex(t, set, name))
	}
	writeManifest(t, set, &index.Manifest{Container: "tar", Splits: []index.Split{{Name: "train", Shards: own[:2]}, {Name: "val", Shards: own[2:]}}})
	upload(t, bucketAt(t, atBucket+"/up"), dir)

	for _, c := range []struct {
		local, remote []string
		requests      int // that listing takes, with Open; 0: any number
	}{
		{[]string{"loose"}, []string{"loose"}, 0},
		{[]string{"loose"}, []string{"loose/"}, 0},
		// A list, the manifest, and an index and a HEAD a shard, whatever it is long.
		{[]string{"set"}, []string{"set"}, 1 + 2*3},
		{[]string{"set/a.tar", "set/b.tar.zst"}, []string{"set/a.tar", "set/b.tar.zst"}, 0},
		{[]string{"loose/deep/few.tar", "loose/deep/few.tfrecord"}, []string{"loose/deep/few.t{ar,frecord}"}, 0},
		{[]string{"loose/deep/few.tar", "loose/big.tar"}, []string{"loose/**/[bf]*.tar"}, 0},
		{[]string{"loose/deep/few.tar", "set/a.tar"}, []string{"loose/deep/few.tar", "set/?.tar"}, 0},
	} {
		var local, remote []string
		for _, p := range c.local {
			local = append(local, filepath.Join(dir, filepath.FromSlash(p)))
		}
		for _, p := range c.remote {
			remote = append(remote, atBucket+"/up/"+p)
		}
		want := listing(t, openTars(t, Config{}, local...))
		front.Forget()
		src := openTars(t, Config{}, remote...)
		entries, _ := gather(t, src)
		if requests := front.Forget(); c.requests > 0 && len(requests) != c.requests {
			t.Errorf("%q: %d requests, want %d: %+v", c.remote, len(requests), c.requests, requests)
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name, atBucket+"/up/") || e.ModTime == 0 {
				t.Fatalf("%q: %+v", c.remote, e.Location)
			}
		}
		if got := listing(t, src); len(want) == 0 || !slices.Equal(got, want) || !src.Remote() {
			t.Errorf("%q: %d lines, want %d", c.remote, len(got), len(want))
		}
	}

	// A field of a plain shard takes one request.
	src := openTars(t, Config{}, atBucket+"/up/loose/big.tar")
	entries, _ := gather(t, src)
	front.Forget()
	for _, e := range entries[:10] {
		if _, err := src.Read(t.Context(), e.Location, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(front.Requests()); n != 10 {
		t.Errorf("%d requests for 10 fields", n)
	}
	// Those of a bucket and of this machine go together.
	both := openTars(t, Config{ShardKeys: true}, big, atBucket+"/up/loose/deep/few.tar")
	if entries, faults := gather(t, both); len(entries) != 60+4 || len(faults) > 0 {
		t.Errorf("%d entries, %q", len(entries), faults)
	}

	for _, c := range []struct {
		paths []string
		is    error
		says  string
	}{
		{[]string{atBucket + "/up/none.tar"}, fs.ErrNotExist, atBucket + "/up/none.tar"},
		{[]string{atBucket + "/up/none"}, fs.ErrNotExist, "check the bucket"},
		{[]string{atBucket + "/up/none-*.tar"}, nil, "no shards"},
		{[]string{atBucket + "/up/[.tar"}, nil, "syntax error in pattern"},
		{[]string{"s3://no-such-bucket/x.tar"}, fs.ErrNotExist, "no bucket"},
		{[]string{"s3://no-such-*/x.tar"}, nil, "no-such-*"},
		{[]string{atBucket + "/up/loose/big.tar", atBucket + "/up/loose/*.tar"}, nil, "named twice"},
	} {
		if _, err := Open(t.Context(), c.paths, Config{}); err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want %q", c.paths, err, c.says)
		}
	}
}

// A shard that is replaced or removed is source.ErrChanged, whenever that happens; what
// may not be read, and a server that fails, is no fault of one shard.
func TestBucketChanged(t *testing.T) {
	server := s3test.Start(t)
	var deny atomic.Bool
	front := server.Front(t, func(s3test.Request) s3test.Fault {
		if deny.Load() {
			return s3test.Fault{Status: http.StatusForbidden, Code: "AccessDenied"}
		}
		return s3test.Fault{}
	})
	server.Setenv(t, front.URL)
	for _, ending := range []string{".tar", ".tar.gz", ".tar.zst", ".tfrecord"} {
		url := atBucket + "/" + ending[1:]
		st := bucketAt(t, url)
		versions := make([][]byte, 2)
		for v := range versions {
			path := writeShard(t, filepath.Join(t.TempDir(), "x"+ending), noise(uint64(30+v), 20, 10_000)...)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			versions[v] = data
		}
		name := "x" + ending
		put := func(v int) {
			t.Helper()
			if err := store.WriteAll(t.Context(), st, name, versions[v]); err != nil {
				t.Fatal(err)
			}
		}
		ofShard := func(err error) bool { return errors.As(err, new(*source.EntryError)) }
		last := func(src *Tars) (last error) {
			for _, err := range src.Entries(t.Context()) {
				last = err
			}
			return last
		}
		changes := map[string]func(){
			"replaced": func() { put(1) },
			"removed": func() {
				if err := st.Remove(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			},
		}
		for change, do := range changes {
			for _, warm := range []bool{false, true} {
				put(0)
				src := openTars(t, Config{}, url)
				entries, faults := gather(t, src)
				if len(entries) != 20 || len(faults) > 0 {
					t.Fatalf("%s: %d entries, %q", name, len(entries), faults)
				}
				if warm {
					if _, err := src.Read(t.Context(), entries[0].Location, nil); err != nil {
						t.Fatal(err)
					}
				}
				do()
				data, err := src.Read(t.Context(), entries[19].Location, nil)
				if warm && ending == ".tar.gz" && err == nil { // it is decompressed already, as it was
					if !reflect.DeepEqual(data, noise(30, 20, 10_000)[19].Fields[0].Data) {
						t.Errorf("%s, %s: other bytes", name, change)
					}
				} else if !errors.Is(err, source.ErrChanged) || !ofShard(err) || !strings.Contains(err.Error(), url+"/"+name) {
					t.Errorf("%s, %s, warm %v: %v", name, change, warm, err)
				}
			}
			// Between the list and the scan.
			put(0)
			src := openTars(t, Config{}, url)
			do()
			err := last(src)
			if change == "replaced" && (!errors.Is(err, source.ErrChanged) || ofShard(err)) || change == "removed" && (!errors.Is(err, fs.ErrNotExist) || !ofShard(err)) {
				t.Errorf("%s, %s before it is scanned: %v", name, change, err)
			}
		}
		put(0)
		src := openTars(t, Config{}, url)
		entries, _ := gather(t, src)
		deny.Store(true)
		if _, err := src.Read(t.Context(), entries[3].Location, nil); !errors.Is(err, fs.ErrPermission) || ofShard(err) {
			t.Errorf("%s, denied: %v", name, err)
		}
		if err := last(src); !errors.Is(err, fs.ErrPermission) || ofShard(err) {
			t.Errorf("%s, denied, a pass: %v", name, err)
		}
		if _, err := Open(t.Context(), []string{url}, Config{}); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s, denied, Open: %v", name, err)
		}
		deny.Store(false)
		if data, err := src.Read(t.Context(), entries[3].Location, nil); err != nil || int64(len(data)) != entries[3].Size {
			t.Errorf("%s, allowed again: %v", name, err)
		}
	}
}
