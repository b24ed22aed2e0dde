package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shardify/imaging/transform"
	"shardify/reader"
	"shardify/store"
	"shardify/store/open"
	"shardify/store/s3/s3test"
)

// crops are the pictures of an epoch of a data set, in order, and how its seek points fared.
func crops(t *testing.T, url string, use reader.Seek) (pixels []byte, st reader.Stats) {
	t.Helper()
	r, err := reader.Open(t.Context(), url, reader.Config{
		BatchSize: 20, Shuffle: reader.ShuffleGlobal, Lanes: 1, Seed: 3, Ends: reader.EndsExact, Seek: use,
		Transform: transform.List{transform.RandomResizedCrop{Size: transform.Size{32}, Scale: [2]float64{0.05, 0.3}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for b, err := range r.Epoch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		pixels = append(pixels, b.Images().Data...)
		b.Release()
	}
	return pixels, r.Stats()
}

// Tars that others made, and data sets packed without, get seek points in a bucket: the
// same as in a folder. They serve crops of the bucket, and of a web server, with ranged
// reads of a part of the files, and the pixels are the same.
func TestSeekElsewhere(t *testing.T) {
	src := imagenet(t)
	dir := t.TempDir()
	packed, foreign := filepath.Join(dir, "packed"), filepath.Join(dir, "foreign")
	do(t, "pack", src, packed, "--shards", "2", "--seed", "7")
	if err := os.Mkdir(foreign, 0o777); err != nil {
		t.Fatal(err)
	}
	tars, err := filepath.Glob(filepath.Join(packed, "*.tar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tar := range tars {
		if err := os.Link(tar, filepath.Join(foreign, filepath.Base(tar))); err != nil {
			t.Fatal(err)
		}
	}
	server := s3test.Start(t)
	server.Setenv(t, server.Endpoint)
	web := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer web.Close()
	want, _ := crops(t, packed, reader.SeekOff)
	for _, set := range []string{"packed", "foreign"} {
		local, remote := filepath.Join(dir, set), "s3://"+s3test.Bucket+"/"+set
		bucket := filepath.Join(server.Dir, s3test.Bucket, set)
		st, err := open.URL(t.Context(), remote)
		if err != nil {
			t.Fatal(err)
		}
		for name := range files(t, local) {
			data, err := os.ReadFile(filepath.Join(local, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := store.WriteAll(t.Context(), st, name, data); err != nil {
				t.Fatal(err)
			}
		}
		do(t, "index", local, "--jpeg-seek")
		do(t, "index", remote, "--jpeg-seek")
		there, here := files(t, bucket), files(t, local)
		n := 0
		for name, data := range here {
			if strings.HasSuffix(name, ".seek") {
				if n++; there[name] != data {
					t.Errorf("%s: %s in the bucket is another than in the folder", set, name)
				}
			}
		}
		if n != 2 {
			t.Fatalf("%s: %d files of seek points", set, n)
		}
		do(t, "verify", remote)
		for _, url := range []string{local, remote, web.URL + "/" + set} {
			off, whole := crops(t, url, reader.SeekOff)
			on, st := crops(t, url, reader.SeekOn)
			if !slices.Equal(on, off) || set == "packed" && !slices.Equal(on, want) {
				t.Errorf("%s: other pixels with seek points", url)
			}
			if s := st.Seek; s == nil || s.Used < 240 || s.Parts < 100 || s.Refused > 0 || s.Files > 0 || s.Error != "" {
				t.Errorf("%s: %+v", url, s)
			}
			if a, b := st.Stages.Store.Bytes, whole.Stages.Store.Bytes; a > b*8/10 {
				t.Errorf("%s: %d bytes were read, of files of %d", url, a, b)
			}
		}
	}
}
