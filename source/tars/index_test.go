package tars

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"shardify/index"
	"shardify/sample"
	"shardify/shard"
	"shardify/shard/compress"
	"shardify/shard/formats"
	"shardify/source"
)

// writeIndex writes the index of a shard that is there and returns its entry in a
// manifest. Labels are the numbers, or of the classes, that stand in the field cls.
func writeIndex(t testing.TB, dir, name string, classes ...string) index.Shard {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	format, err := formats.OfFile(name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := compress.NewReader(bytes.NewReader(data), format.Compression)
	if err != nil {
		t.Fatal(err)
	}
	counter := &countingReader{r: r}
	var rows []index.Row
	for l, err := range format.Container.Scan(counter, 1<<30) {
		if err != nil {
			t.Fatal(err)
		}
		row := index.Row{Key: l.Key, Offset: l.Offset, Size: l.Size}
		if cls, ok := l.Field("cls"); ok {
			text := strings.TrimSpace(string(cls))
			if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
				row.Label = &n
			} else if n := int64(slices.Index(classes, text)); n >= 0 {
				row.Label, row.LabelName = &n, text
			}
		}
		for i, f := range l.Sample.Fields {
			at := l.Placement.Fields[i]
			row.Fields = append(row.Fields, index.FieldRow{Name: strings.Clone(f.Name), HeaderOffset: at.HeaderOffset, Offset: at.Offset, Size: at.Size, CRC32C: index.FieldChecksum(f.Data)})
		}
		rows = append(rows, row)
	}
	var b bytes.Buffer
	if err := index.WriteRows(&b, rows); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".parquet"), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	sh := index.Shard{
		File: index.File{Name: name, Bytes: int64(len(data)), Checksum: index.Sum(data)}, Samples: int64(len(rows)),
		Index: index.File{Name: name + ".parquet", Bytes: int64(b.Len()), Checksum: index.Sum(b.Bytes())},
	}
	if counter.n != sh.Bytes {
		sh.RawBytes = counter.n
	}
	return sh
}

type countingReader struct {
	r interface{ Read([]byte) (int, error) }
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func writeManifest(t testing.TB, dir string, m *index.Manifest) {
	t.Helper()
	for i := range m.Splits {
		s := &m.Splits[i]
		s.Samples, s.Bytes = 0, 0
		for _, sh := range s.Shards {
			s.Samples += sh.Samples
			s.Bytes += sh.Bytes
		}
	}
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, index.ManifestName), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// gather returns what a pass yields, entries sorted.
func gather(t testing.TB, src *Tars) (entries []source.Entry, faults []string) {
	t.Helper()
	for e, err := range src.Entries(t.Context()) {
		switch {
		case errors.As(err, new(*source.EntryError)):
			faults = append(faults, err.Error())
		case err != nil:
			t.Fatal(err)
		default:
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b source.Entry) int { return strings.Compare(a.Split+a.Path, b.Split+b.Path) })
	slices.Sort(faults)
	return entries, faults
}

// The index says the same of a shard as reading it, in every format, to the last
// detail; and the shards are not read for it.
func TestIndex(t *testing.T) {
	for _, f := range formats.All() {
		t.Run(f.String(), func(t *testing.T) {
			dir := t.TempDir()
			var samples []sample.Sample
			for i := range 600 { // several batches
				samples = append(samples, one(fmt.Sprintf("n/%04d", i), fmt.Sprintf("cls=%d", i%7), "jpg="+strings.Repeat("x", i), "json={}"))
			}
			samples = append(samples, one("n/no class", "jpg=\xff\xd8\xff", "seg.png=y"))
			if f.Container.Name() == "tar" { // TFRecord would make numbers of these
				samples = append(samples, one("o/1", "cls=dog", "jpg=a"), one("o/2", "cls=cat\n", "jpg=b"), one("o/3", "cls=4\n", "jpg=c"),
					one("o/4", "cls=-1", "jpg=d"), one("o/5", "cls=3"))
			}
			name := "train" + f.Extension()
			path := writeShard(t, filepath.Join(dir, name), samples...)
			m := index.Manifest{Container: f.Container.Name(), Compression: f.Compression, Classes: []string{"dog", "cat"}}
			m.Splits = []index.Split{{Name: "train", Shards: []index.Shard{writeIndex(t, dir, name, m.Classes...)}}}
			writeManifest(t, dir, &m)
			limit := int64(3500)
			if f.Container.Name() != "tar" {
				limit = 500
			}
			for _, cfg := range []Config{{}, {ShardKeys: true}, {MaxSample: limit}} {
				own := openTars(t, cfg, dir)
				cfg.Split = "train"
				foreign := openTars(t, cfg, path)
				entries, faults := gather(t, own)
				want, wantFaults := gather(t, foreign)
				if !reflect.DeepEqual(entries, want) {
					t.Errorf("%+v: %d entries by the index, %d by reading, or others", cfg, len(entries), len(want))
				}
				if len(faults) != len(wantFaults) || cfg.MaxSample == 0 && !slices.Equal(faults, wantFaults) {
					t.Errorf("%+v: faults\n%q, want\n%q", cfg, faults, wantFaults)
				}
				if cfg.MaxSample > 0 && (len(faults) != 1 || len(entries) == 0) {
					t.Errorf("%d entries, faults %q", len(entries), faults)
				}
				if own.Numeric() != foreign.Numeric() {
					t.Errorf("numeric: %v", own.Numeric())
				}
				for _, e := range entries {
					if data, err := own.Read(t.Context(), e.Location, nil); err != nil || int64(len(data)) != e.Size {
						t.Fatalf("%s: %d bytes, %v", e.Path, len(data), err)
					}
				}
			}

			own := openTars(t, Config{}, dir)
			want, _ := gather(t, own)
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.WriteFile(path, make([]byte, info.Size()), 0o644), os.Chtimes(path, time.Time{}, info.ModTime())); err != nil {
				t.Fatal(err)
			}
			got, _ := gather(t, own)
			if !reflect.DeepEqual(got, want) {
				t.Error("the shard was read")
			}
			// Then it is the checksums that tell.
			for _, e := range got[:3] {
				if e.Size == 0 {
					continue
				}
				if _, err := own.Read(t.Context(), e.Location, nil); !errors.As(err, new(*source.EntryError)) {
					t.Errorf("%s: %v", e.Path, err)
				} else if f.Compression == compress.None && !errors.Is(err, shard.ErrChecksum) {
					t.Errorf("%s: %v", e.Path, err)
				}
			}
		})
	}
}

// What the index does not tell is looked up in the shard.
func TestIndexUntold(t *testing.T) {
	for ending, samples := range map[string][]sample.Sample{
		".tar":      {one("1", "cls=1", "jpg=a"), one("2", "cls= 2", "jpg=b"), one("3", "cls=\x80\x04", "jpg=c")},
		".tfrecord": {one("1", "cls=1", "jpg=a"), one("2", "cls=2", "jpg=b", "json={}")},
	} {
		dir := t.TempDir()
		path := writeShard(t, filepath.Join(dir, "a"+ending), samples...)
		sh := writeIndex(t, dir, "a"+ending)
		if ending == ".tfrecord" { // as if the numbers of a feature had become the field
			rows, err := (&file{index: filepath.Join(dir, sh.Index.Name), own: &sh}).rows(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			rows[1].Fields[2].Offset = -1
			var b bytes.Buffer
			if err := errors.Join(index.WriteRows(&b, rows), os.WriteFile(filepath.Join(dir, sh.Index.Name), b.Bytes(), 0o644)); err != nil {
				t.Fatal(err)
			}
			sh.Index.Bytes, sh.Index.Checksum = int64(b.Len()), index.Sum(b.Bytes())
		}
		writeManifest(t, dir, &index.Manifest{Container: ending[1:], Splits: []index.Split{{Name: "s", Shards: []index.Shard{sh}}}})
		entries, faults := gather(t, openTars(t, Config{}, dir))
		want, wantFaults := gather(t, openTars(t, Config{Split: "s"}, path))
		if len(want) < 2 || !reflect.DeepEqual(entries, want) || len(faults) != len(wantFaults) {
			t.Errorf("%s: %v, %q; want %v, %q", ending, entries, faults, want, wantFaults)
		}
	}
}

func TestIndexFaults(t *testing.T) {
	dir := t.TempDir()
	path := writeShard(t, filepath.Join(dir, "a.tar"), one("1", "cls=1", "jpg=a"), one("2", "cls=2", "jpg=b"))
	writeShard(t, filepath.Join(dir, "b.tar"), one("3", "cls=1", "jpg=c"))
	whole, other := writeIndex(t, dir, "a.tar"), writeIndex(t, dir, "b.tar")
	rows, err := os.ReadFile(filepath.Join(dir, whole.Index.Name))
	if err != nil {
		t.Fatal(err)
	}
	bytesOf, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(rows)
	flipped[len(flipped)/2] ^= 1
	file := func(name string, data []byte) func(*index.Shard) {
		return func(*index.Shard) {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*index.Shard)
		is     error
		text   string
	}{
		{"index flipped", file(whole.Index.Name, flipped), shard.ErrChecksum, "name the shard"},
		{"index cut", file(whole.Index.Name, rows[:len(rows)-1]), nil, "the manifest says"},
		{"index gone", func(*index.Shard) { os.Remove(filepath.Join(dir, whole.Index.Name)) }, fs.ErrNotExist, "name the shard"},
		{"no index", func(sh *index.Shard) {
			file(whole.Index.Name, []byte("PAR1"))(nil)
			sh.Index.Bytes, sh.Index.Checksum = 4, index.Sum([]byte("PAR1"))
		}, index.ErrInvalid, whole.Index.Name},
		{"rows missing", func(sh *index.Shard) { sh.Samples = 3 }, index.ErrInvalid, "2 rows for 3 samples"},
		{"rows too far", func(sh *index.Shard) { sh.RawBytes = 1000 }, index.ErrInvalid, "the shard at 1000"},
		{"shard cut", file("a.tar", bytesOf[:2048]), shard.ErrTruncated, "the manifest says"},
		{"shard longer", file("a.tar", append(bytes.Clone(bytesOf), 0)), nil, "not the shard that was packed"},
		{"shard gone", func(*index.Shard) { os.Remove(path) }, fs.ErrNotExist, "a.tar"},
		{"shard a folder", func(*index.Shard) { os.Remove(path); os.Mkdir(path, 0o755) }, errIrregular, "a.tar"},
	} {
		t.Run(c.name, func(t *testing.T) {
			os.Remove(path)
			file("a.tar", bytesOf)(nil)
			file(whole.Index.Name, rows)(nil)
			sh := whole
			c.change(&sh)
			writeManifest(t, dir, &index.Manifest{Container: "tar", Splits: []index.Split{{Name: "s", Shards: []index.Shard{sh, other}}}})
			n := 0
			for e, err := range openTars(t, Config{}, dir).Entries(t.Context()) {
				switch {
				case err == nil && e.Key == "3": // the other shard's
				case err == nil:
					t.Errorf("%q was listed", e.Key)
				default:
					n++
					if !errors.As(err, new(*source.EntryError)) || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) {
						t.Error(err)
					}
				}
			}
			if n != 1 {
				t.Errorf("%d errors", n)
			}
		})
	}
}

func TestDataSet(t *testing.T) {
	dir := t.TempDir()
	m := index.Manifest{Container: "tar", Classes: []string{"dog", "cat"}}
	for i, split := range []string{"train", "val"} {
		name := split + "-000.tar"
		writeShard(t, filepath.Join(dir, name), one("n/1", fmt.Sprintf("cls=%d", i), "jpg="+split))
		m.Splits = append(m.Splits, index.Split{Name: split, Shards: []index.Shard{writeIndex(t, dir, name)}})
	}
	writeShard(t, filepath.Join(dir, "stray.tar"), one("x", "jpg=x"))
	writeManifest(t, dir, &m)
	src := openTars(t, Config{}, dir)
	check(t, src, true, `n/1 jpg "train" class 0 split train`, `n/1 jpg "val" class 1 split val`)
	if !slices.Equal(src.Classes(), m.Classes) {
		t.Errorf("classes %q", src.Classes())
	}
	if _, err := Open(t.Context(), []string{dir, filepath.Join(dir, "stray.tar")}, Config{}); err == nil || !strings.Contains(err.Error(), "other names") {
		t.Error(err)
	}
	manifest := filepath.Join(dir, index.ManifestName)
	data, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(manifest, data[:len(data)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	src = openTars(t, Config{}, dir) // no manifest of ours
	check(t, src, true, `n/1 jpg "train" class 0`, `n/1 jpg "val" class 1`, `x jpg "x"`)
}
