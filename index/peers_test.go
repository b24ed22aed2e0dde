package index

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"shardify/internal/peers"
)

// query reads an index with DuckDB and with pandas, as our users do.
const query = `
import json, sys
import duckdb, pandas
rows = duckdb.sql(f"""
    select key, label, label_name, width, height, "offset", size, f.name, f."offset", f.size, f.crc32c, f.path
    from (select *, unnest(fields) as f from '{sys.argv[1]}')
    where f.name = 'jpg' and (label is null or label >= 1) order by key""").fetchall()
frame = pandas.read_parquet(sys.argv[1])
frame = frame.sort_values("key")
print(json.dumps({"rows": rows, "keys": list(frame["key"]),
    "crc": [int(f["crc32c"]) for fields in frame["fields"] for f in fields if f["name"] == "jpg"]}))
`

func TestOtherEngines(t *testing.T) {
	python := peers.Python(t)
	path := filepath.Join(t.TempDir(), "train-000000.parquet")
	want := rows(25)
	var b bytes.Buffer
	if err := WriteRows(&b, want); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(python, "-c", query, path).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, err.(*exec.ExitError).Stderr)
	}
	var got struct {
		Rows [][]any
		Keys []string
		CRC  []uint32
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	byKey := map[string]*Row{}
	for i := range want {
		byKey[want[i].Key] = &want[i]
	}
	seen := 0
	for _, r := range got.Rows {
		w := byKey[r[0].(string)]
		jpg := w.Field("jpg")
		label, name := any(nil), any(nil)
		if w.Label != nil {
			label, name = float64(*w.Label), w.LabelName
		}
		for i, want := range []any{w.Key, label, name, float64(w.Width), float64(w.Height), float64(w.Offset), float64(w.Size),
			"jpg", float64(jpg.Offset), float64(jpg.Size), float64(jpg.CRC32C), jpg.Path} {
			if r[i] != want {
				t.Errorf("%s: column %d is %v, want %v", w.Key, i, r[i], want)
			}
		}
		seen++
	}
	if want := 25 - 2; seen != want { // labels 0 are left out, no label is not
		t.Errorf("DuckDB finds %d rows, want %d", seen, want)
	}
	if len(got.Keys) != 25 || len(got.CRC) != 25 {
		t.Fatalf("pandas finds %d rows, %d fields", len(got.Keys), len(got.CRC))
	}
	for i, key := range got.Keys {
		if got.CRC[i] != byKey[key].Field("jpg").CRC32C {
			t.Errorf("pandas: %s has CRC %d", key, got.CRC[i])
		}
	}
}
