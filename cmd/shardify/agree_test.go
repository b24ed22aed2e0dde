package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/index"
	"shardify/shard/formats"
	"shardify/store/file"
)

// What index writes for shards that pack has written is what pack wrote: the same
// manifest and the same rows, but for the options, and for the files' original paths,
// which shards do not tell.
func TestIndexAgreesWithPack(t *testing.T) {
	src := t.TempDir()
	for n := range 60 {
		m := datasettest.Sample(n, 5)
		split := []string{"train", "train", "val"}[n%3]
		for i, f := range m.Fields {
			if m.Paths[i] == "" {
				continue
			}
			name := filepath.Join(src, split, filepath.FromSlash(m.Paths[i]))
			if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, f.Data, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, format := range formats.Names() {
		t.Run(format, func(t *testing.T) {
			packed, foreign, back := filepath.Join(t.TempDir(), "set"), filepath.Join(t.TempDir(), "set"), t.TempDir()
			do(t, "pack", src, packed, "--format", format, "--shards", "2", "--seed", "7")
			do(t, "verify", packed)
			do(t, "extract", packed, back)
			if got, want := files(t, back), files(t, src); !reflect.DeepEqual(got, want) {
				t.Errorf("extracted %d files, want the %d of the source", len(got), len(want))
			}

			p, err := dataset.Open(t.Context(), file.New(packed))
			if err != nil {
				t.Fatal(err)
			}
			shards, err := p.Shards("")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(foreign, 0o777); err != nil {
				t.Fatal(err)
			}
			for _, sh := range shards {
				if err := os.Rename(filepath.Join(packed, sh.Name), filepath.Join(foreign, sh.Name)); err != nil {
					t.Fatal(err)
				}
			}
			classes := filepath.Join(t.TempDir(), "classes.txt")
			if err := os.WriteFile(classes, []byte(strings.Join(p.Manifest().Classes, "\n")), 0o666); err != nil {
				t.Fatal(err)
			}
			do(t, "index", foreign, "--classes", classes)
			do(t, "verify", foreign)
			f, err := dataset.Open(t.Context(), file.New(foreign))
			if err != nil {
				t.Fatal(err)
			}
			for i, sh := range shards {
				got := &f.Manifest().Splits[i/2].Shards[i%2]
				if want := strip(t, p, sh); !reflect.DeepEqual(strip(t, f, got), want) {
					t.Errorf("the rows of %s differ", sh.Name)
				}
				got.Index = sh.Index
			}
			want, got := *p.Manifest(), *f.Manifest()
			want.Options, want.Checksum, got.Checksum = nil, "", ""
			if !reflect.DeepEqual(got, want) {
				t.Errorf("manifest\n%+v\nwant\n%+v", got, want)
			}
		})
	}
}

// strip returns the rows of a shard without paths.
func strip(t *testing.T, d *dataset.Dataset, sh *index.Shard) []index.Row {
	t.Helper()
	rows, err := d.Rows(t.Context(), sh)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		for j := range rows[i].Fields {
			rows[i].Fields[j].Path = ""
		}
	}
	return rows
}
