package dataset_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/index"
	"shardify/shard"
	"shardify/shard/formats"
	"shardify/store"
	"shardify/store/file"
	"shardify/store/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, st store.Store, name string, data []byte) {
	t.Helper()
	if err := store.WriteAll(t.Context(), st, name, data); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, st store.Store, name string) []byte {
	t.Helper()
	data, err := store.ReadAll(t.Context(), st, name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestOpenFaults(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		is    error
		want  string
	}{
		"nothing":    {nil, dataset.ErrNotDataset, "nothing is there: check the path"},
		"tars":       {map[string]string{"a/x-000.tar": "", "readme.txt": ""}, dataset.ErrNotDataset, "it has shards (a/x-000.tar) but no manifest.json: run `shardify index mem:` to write one; or read them without an index: `shardread stream 'mem:/a/*.tar'`"},
		"records":    {map[string]string{"x.tfrecord-00000-of-00008": ""}, dataset.ErrNotDataset, "`shardread stream 'mem:/*.tfrecord*'`"},
		"unfinished": {map[string]string{".shardify/plan": "", "train-000000.tar": ""}, dataset.ErrUnfinished, "run the same `shardify pack` command again to finish it"},
		"images":     {map[string]string{"n01/x.jpg": ""}, dataset.ErrNotDataset, "`shardify pack SRC DST` makes a data set"},
		"another's":  {map[string]string{"manifest.json": `{"name":"a web app"}`}, index.ErrNotManifest, "mem:/manifest.json: not a shardify manifest"},
		"newer":      {map[string]string{"manifest.json": `{"format":"shardify","version":9}`}, index.ErrVersion, "install a newer shardify"},
		"container":  {map[string]string{"manifest.json": `{"format":"shardify","version":1,"container":"zip","splits":[{"name":"train","shards":[]}]}`}, nil, `"zip"`},
	} {
		t.Run(name, func(t *testing.T) {
			st := mem.New()
			for name, text := range c.files {
				write(t, st, name, []byte(text))
			}
			_, err := dataset.Open(t.Context(), st)
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if c.is == dataset.ErrUnfinished && (!errors.Is(err, dataset.ErrNotDataset) || !errors.Is(err, fs.ErrNotExist)) {
				t.Errorf("%v is not ErrNotDataset and ErrNotExist as well", err)
			}
		})
	}
	t.Run("a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "shard.tar")
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := dataset.Open(t.Context(), file.New(path))
		if !errors.Is(err, dataset.ErrNotDataset) || !strings.Contains(err.Error(), "it is a file") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no permission", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("SKIPPED LOUDLY: Windows has no permission bits")
		}
		dir := t.TempDir()
		datasettest.Write(t, file.New(dir), datasettest.Options{})
		if err := os.Chmod(filepath.Join(dir, index.ManifestName), 0); err != nil {
			t.Fatal(err)
		}
		unprivileged(t, func() {
			if _, err := dataset.Open(t.Context(), file.New(dir)); !errors.Is(err, fs.ErrPermission) {
				t.Errorf("got %v", err)
			}
		})
	})
}

// Every field of every sample comes back, from every format, by itself and as part
// of its shard.
func TestReadField(t *testing.T) {
	for _, format := range formats.Names() {
		t.Run(format, func(t *testing.T) {
			d := datasettest.Write(t, mem.New(), datasettest.Options{Format: format, Splits: []string{"train", "val"}})
			shards, err := d.Shards("")
			if err != nil || len(shards) != 6 {
				t.Fatalf("%d shards: %v", len(shards), err)
			}
			n := 0
			for _, sh := range shards {
				rows, err := d.Rows(t.Context(), sh)
				if err != nil {
					t.Fatal(err)
				}
				f, err := d.OpenShard(t.Context(), sh)
				if err != nil {
					t.Fatal(err)
				}
				var buf []byte
				// Backwards, as the hard way for compressed shards.
				for i := len(rows) - 1; i >= 0; i-- {
					want := datasettest.Sample(n+i, 5)
					if rows[i].Key != want.Key || len(rows[i].Fields) != len(want.Fields) {
						t.Fatalf("row %d is %q with %d fields, want %q with %d", i, rows[i].Key, len(rows[i].Fields), want.Key, len(want.Fields))
					}
					for j, field := range want.Fields {
						got, err := f.ReadField(t.Context(), &rows[i], &rows[i].Fields[j], buf)
						if err != nil || !bytes.Equal(got, field.Data) {
							t.Fatalf("sample %q field %q: %d bytes, want %d: %v", want.Key, field.Name, len(got), len(field.Data), err)
						}
						buf = got
					}
				}
				if got, err := d.ReadField(t.Context(), sh, &rows[0], &rows[0].Fields[1]); err != nil || !bytes.Equal(got, datasettest.Sample(n, 5).Fields[1].Data) {
					t.Errorf("Dataset.ReadField: %d bytes: %v", len(got), err)
				}
				// The container ends where the manifest says.
				end := dataset.RawBytes(sh)
				if k, err := f.ReadAt(t.Context(), make([]byte, 10), end-4); k != 4 || !errors.Is(err, io.EOF) {
					t.Errorf("read over the end: %d, %v", k, err)
				}
				canceled, cancel := context.WithCancel(t.Context())
				cancel()
				if _, err := f.ReadAt(canceled, make([]byte, 10), 0); !errors.Is(err, context.Canceled) {
					t.Errorf("read when cancelled: %v", err)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
				n += len(rows)
			}
		})
	}
}

func TestReadFaults(t *testing.T) {
	const shardName, indexName = "train-000001.tar", "train-000001.parquet"
	for name, c := range map[string]struct {
		broken func(t *testing.T, st store.Store)
		rows   error // of Rows
		open   error // of OpenShard
		field  error // of ReadField
		want   string
	}{
		"index missing": {func(t *testing.T, st store.Store) { st.Remove(t.Context(), indexName) }, fs.ErrNotExist, nil, nil, indexName},
		"index cut": {func(t *testing.T, st store.Store) { write(t, st, indexName, read(t, st, indexName)[:100]) },
			dataset.ErrMismatch, nil, nil, "100 bytes of"},
		"index longer": {func(t *testing.T, st store.Store) { write(t, st, indexName, append(read(t, st, indexName), 0)) },
			dataset.ErrMismatch, nil, nil, "the manifest says"},
		"index flipped": {func(t *testing.T, st store.Store) { flip(t, st, indexName, 50, 1) }, shard.ErrChecksum, nil, nil, "crc64nvme:"},
		"shard missing": {func(t *testing.T, st store.Store) { st.Remove(t.Context(), shardName) }, nil, fs.ErrNotExist, nil, shardName},
		"shard cut": {func(t *testing.T, st store.Store) { write(t, st, shardName, read(t, st, shardName)[:1000]) },
			nil, shard.ErrTruncated, nil, "1000 bytes of"},
		"shard longer": {func(t *testing.T, st store.Store) { write(t, st, shardName, append(read(t, st, shardName), 0)) },
			nil, dataset.ErrMismatch, nil, "the manifest says"},
		"field flipped": {func(t *testing.T, st store.Store) { flip(t, st, shardName, 512+1024+100, 1) },
			nil, nil, shard.ErrChecksum, `sample "class-000/img_000010" field "jpg" at 1536`},
	} {
		t.Run(name, func(t *testing.T) {
			st := mem.New()
			d := datasettest.Write(t, st, datasettest.Options{})
			shards, err := d.Shards("train")
			if err != nil {
				t.Fatal(err)
			}
			sh := shards[1]
			rows, err := d.Rows(t.Context(), sh)
			if err != nil {
				t.Fatal(err)
			}
			c.broken(t, st)
			check := func(what string, err, is error) {
				t.Helper()
				if !errors.Is(err, is) || (is != nil && !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%s: %v, want %v with %q", what, err, is, c.want)
				}
			}
			_, err = d.Rows(t.Context(), sh)
			check("Rows", err, c.rows)
			f, err := d.OpenShard(t.Context(), sh)
			check("OpenShard", err, c.open)
			if err == nil {
				_, err = f.ReadField(t.Context(), &rows[0], rows[0].Field("jpg"), nil)
				check("ReadField", err, c.field)
				f.Close()
			}
		})
	}
}

// flip flips bits of one byte.
func flip(t *testing.T, st store.Store, name string, at int, bits byte) {
	t.Helper()
	data := read(t, st, name)
	data[at] ^= bits
	write(t, st, name, data)
}

// A manifest and an index that claim petabytes cost no memory.
func TestReadHostileSizes(t *testing.T) {
	for _, format := range []string{"tar", "tar.gz", "tar.zst"} {
		t.Run(format, func(t *testing.T) {
			st := mem.New()
			d := datasettest.Write(t, st, datasettest.Options{Format: format, Shards: 1})
			sh := d.Manifest().Splits[0].Shards[0]
			rows, err := d.Rows(t.Context(), &sh)
			if err != nil {
				t.Fatal(err)
			}
			const huge = 1 << 50
			sh.RawBytes = huge
			row := rows[0]
			row.Size = huge - row.Offset
			f, err := d.OpenShard(t.Context(), &sh)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for _, field := range []index.FieldRow{{Name: "jpg", Offset: 512, Size: huge / 2}, {Name: "jpg", Offset: -1}, {Name: "jpg", Offset: huge - 5, Size: 10}} {
				if _, err := f.ReadField(t.Context(), &row, &field, nil); !errors.Is(err, shard.ErrTruncated) {
					t.Errorf("field of %d bytes at %d: %v", field.Size, field.Offset, err)
				}
			}
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 200<<20 {
				t.Errorf("it allocated %d bytes", grown)
			}
		})
	}
}

func TestIndexName(t *testing.T) {
	for name, want := range map[string]string{
		"train-000000.tar":             "train-000000.parquet",
		"a/b.c/train.x-000000.tar.zst": "a/b.c/train.x-000000.parquet",
		"x.tar.gz":                     "x.parquet",
		"x.tgz":                        "x.parquet",
		"X.TAR":                        "X.parquet",
		"x":                            "x.parquet",
		"a.tar-00000-of-00008":         "a-00000-of-00008.parquet",
		"train-00000-of-00008.tar":     "train-00000-of-00008.parquet",
	} {
		if got := dataset.IndexName(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestFieldStats(t *testing.T) {
	var a dataset.FieldStats
	if got := a.List(); got == nil || len(got) != 0 {
		t.Errorf("empty: %v", got)
	}
	a.Add(&index.Row{Fields: []index.FieldRow{{Name: "jpg", Size: 5}, {Name: "cls", Size: 1}}})
	a.Add(&index.Row{Fields: []index.FieldRow{{Name: "jpg", Size: 7}}})
	a.Merge([]index.FieldStat{{Name: "json", Count: 2, Bytes: 9}, {Name: "cls", Count: 1, Bytes: 1}})
	want := []index.FieldStat{{Name: "cls", Count: 2, Bytes: 2}, {Name: "jpg", Count: 2, Bytes: 12}, {Name: "json", Count: 2, Bytes: 9}}
	got := a.List()
	if len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %v, want %v", got[i], want[i])
		}
	}
}
