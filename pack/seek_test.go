package pack

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shardify/dataset"
	"shardify/imaging/jpeg"
	"shardify/index/seek"
	"shardify/internal/peers"
	"shardify/store/mem"
)

// Every JPEG has the points that the engine finds in it, in the side file of its shard;
// other images have none, and a shard without a JPEG has no side file.
func TestJPEGSeek(t *testing.T) {
	dir := t.TempDir()
	files := tree(30)
	for i := range 9 {
		files[fmt.Sprintf("class 0/x%d.bmp", i)] = bitmap(byte(i))
	}
	files["class 1/cut.jpg"] = photo(1, 3000)[:3300] // damaged; --check header may let it pass
	write(t, filepath.Join(dir, "train"), files)
	write(t, filepath.Join(dir, "val"), map[string][]byte{"class 0/a.bmp": bitmap(1)})
	for _, spacing := range []string{"row", "1", "3"} {
		st := mem.New()
		cfg := config(dir)
		cfg.JPEGSeek, cfg.Check = spacing, CheckNone
		mustRun(t, st, cfg, Env{})
		problems(t, st)
		ds, err := dataset.Open(t.Context(), st)
		if err != nil {
			t.Fatal(err)
		}
		every, err := seek.ParseSpacing(spacing)
		if err != nil {
			t.Fatal(err)
		}
		jpegs := 0
		for _, s := range ds.Manifest().Splits {
			for i := range s.Shards {
				sh := &s.Shards[i]
				if s.Name == "val" {
					if sh.Seek != nil {
						t.Errorf("%s: a shard of BMPs has a side file", spacing)
					}
					continue
				}
				jpegs += checkPoints(t, ds, s.Name, i, every)
			}
		}
		if jpegs != 30 {
			t.Errorf("%s: %d JPEGs have points", spacing, jpegs)
		}
	}
}

// checkPoints compares the side file of a shard with what the engine finds, and returns
// how many samples have points.
func checkPoints(t *testing.T, ds *dataset.Dataset, split string, n, every int) (with int) {
	t.Helper()
	s, err := ds.Manifest().Split(split)
	if err != nil {
		t.Fatal(err)
	}
	sh := &s.Shards[n]
	rows, err := ds.Rows(t.Context(), sh)
	if err != nil {
		t.Fatal(err)
	}
	if sh.Seek == nil {
		t.Fatalf("%s has no side file", sh.Name)
	}
	f, err := ds.OpenSeek(t.Context(), sh)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := f.Table(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var d jpeg.Decoder
	for i := range rows {
		at, size := table.Extent(i)
		var field = rows[i].Field("jpeg")
		if field == nil {
			field = rows[i].Field("jpg")
		}
		if field == nil {
			if size != 0 {
				t.Errorf("%q has points and no JPEG", rows[i].Key)
			}
			continue
		}
		data, err := ds.ReadField(t.Context(), sh, &rows[i], field)
		if err != nil {
			t.Fatal(err)
		}
		found, err := d.MakeSeek(data, every)
		if err != nil {
			if size != 0 {
				t.Errorf("%q has points: %v", rows[i].Key, err)
			}
			continue
		}
		entry := make([]byte, size)
		if _, err := f.ReadAt(t.Context(), entry, at); err != nil {
			t.Fatal(err)
		}
		has, err := seek.ParseEntry(entry, field.CRC32C, field.Size)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(has.Points, found.Append(nil)) {
			t.Errorf("%q: the points are not those of its image", rows[i].Key)
		}
		var back jpeg.Seek
		if err := d.ParseSeek(&back, has.Points, data); err != nil {
			t.Errorf("%q: %v", rows[i].Key, err)
		}
		with++
	}
	if int64(with) != sh.Seek.Samples || sh.Seek.Every != every {
		t.Errorf("the manifest says points every %d of %d samples, want %d of %d", sh.Seek.Every, sh.Seek.Samples, every, with)
	}
	return with
}

// Without the flag there is no trace of it: the fingerprints and manifests of data sets
// that were packed before are what they were.
func TestJPEGSeekOff(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, tree(4))
	st := mem.New()
	mustRun(t, st, config(dir), Env{})
	for name, data := range content(t, st) {
		if strings.HasSuffix(name, ".seek") || strings.Contains(data, "jpeg_seek") {
			t.Errorf("%s speaks of seek points", name)
		}
	}
	cfg := config(dir)
	cfg.JPEGSeek = "row"
	if _, err := Run(t.Context(), st, cfg, Env{}); !errors.Is(err, ErrOther) {
		t.Errorf("packed without, wanted with: %v", err)
	}
	cfg.JPEGSeek = "rows"
	if _, err := Run(t.Context(), mem.New(), cfg, Env{}); err == nil || !strings.Contains(err.Error(), "jpeg-seek") {
		t.Errorf("spacing rows: %v", err)
	}
}

// A side file that is lost before the commit is made again, with its shard.
func TestJPEGSeekLost(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, tree(20))
	cfg := config(dir)
	cfg.JPEGSeek = "row"
	clean := mem.New()
	mustRun(t, clean, cfg, Env{})
	want := content(t, clean)
	st := mem.New()
	if _, err := Run(t.Context(), st, cfg, Env{Of: 2}); !errors.Is(err, ErrIncomplete) {
		t.Fatal(err)
	}
	lost := ""
	for name := range content(t, st) {
		if strings.HasSuffix(name, ".seek") {
			lost = name
		}
	}
	if err := st.Remove(t.Context(), lost); err != nil || lost == "" {
		t.Fatalf("%q: %v", lost, err)
	}
	mustRun(t, st, cfg, Env{})
	same(t, "after "+lost+" was lost", content(t, st), want)
}

// BenchmarkJPEGSeek says what seek points cost on photographs: bytes of an image, and
// time of packing.
func BenchmarkJPEGSeek(b *testing.B) {
	photos := peers.Photographs(b)
	var bytes, files int64
	if err := filepath.WalkDir(photos, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		bytes += info.Size()
		files++
		return err
	}); err != nil {
		b.Fatal(err)
	}
	for _, spacing := range []string{"", "row", "8"} {
		b.Run("spacing="+spacing, func(b *testing.B) {
			b.SetBytes(bytes)
			var size int64
			for b.Loop() {
				st := mem.New()
				r, err := Run(b.Context(), st, Config{Source: Source{Paths: []string{photos}, Layout: "flat"}, JPEGSeek: spacing}, Env{TempDir: os.TempDir()})
				if err != nil {
					b.Fatal(err)
				}
				if p := r.Manifest.Splits[0].Shards[0].Seek; p != nil {
					size = p.Bytes
				}
			}
			b.ReportMetric(float64(size)/float64(files), "bytes/image")
			b.ReportMetric(float64(files)*float64(b.N)/b.Elapsed().Seconds(), "img/s")
		})
	}
}
