package dataset_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"shardify/dataset"
	"shardify/internal/peers"
	"shardify/store/file"
)

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Shards that webdataset's ShardWriter wrote of real photographs become a data set
// whose samples are those that webdataset reads, byte for byte.
func TestIndexWebdataset(t *testing.T) {
	python, photos := peers.Python(t), peers.Photographs(t)
	dir := t.TempDir()
	cmd := exec.Command(python, "-c", `
import glob, hashlib, json, os, sys
import webdataset as wds
photos, out = sys.argv[1:]
names = sorted(os.listdir(photos))
with wds.ShardWriter(os.path.join(out, "photos-train-%06d.tar"), maxcount=100, verbose=0) as sink:
    for i, name in enumerate(names):
        data = open(os.path.join(photos, name), "rb").read()
        sink.write({"__key__": name.split(".")[0], "jpg": data, "cls": i, "json": {"label": i, "class_name": name.split(".")[0]}})
seen = {}
for s in wds.WebDataset(sorted(glob.glob(os.path.join(out, "*.tar"))), shardshuffle=False):
    seen[s["__key__"]] = {k: hashlib.sha256(v).hexdigest() for k, v in s.items() if not k.startswith("__")}
json.dump(seen, sys.stdout)
`, photos, dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("webdataset: %v", err)
	}
	var want map[string]map[string]string
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	st := file.New(dir)
	m, bad, err := indexAll(t, st, dataset.IndexOptions{})
	if err != nil || len(bad) > 0 {
		t.Fatal(err, bad)
	}
	if m.Samples() != int64(len(want)) || len(want) < 100 || m.Splits[0].Name != "train" || len(m.Classes) != len(want) {
		t.Errorf("%d samples of %d, %d classes, split %s", m.Samples(), len(want), len(m.Classes), m.Splits[0].Name)
	}
	d, err := dataset.Open(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	for s, err := range d.Select(t.Context(), dataset.Selection{}) {
		if err != nil {
			t.Fatal(err)
		}
		if s.Row.Width == 0 || s.Row.Format != "jpeg" || s.Row.LabelName != s.Row.Key {
			t.Errorf("row %+v", s.Row)
		}
		fields := want[s.Row.Key]
		if len(fields) != len(s.Row.Fields) {
			t.Errorf("%s: %d fields, want %d", s.Row.Key, len(s.Row.Fields), len(fields))
		}
		for i := range s.Row.Fields {
			f := &s.Row.Fields[i]
			data, err := d.ReadField(t.Context(), s.Shard, s.Row, f)
			if err != nil || digest(data) != fields[f.Name] {
				t.Errorf("%s.%s differs: %v", s.Row.Key, f.Name, err)
			}
		}
	}
	if found, _ := verify(t, st, dataset.VerifyOptions{}); len(found) > 0 {
		t.Errorf("verify: %v", found)
	}
	back := t.TempDir()
	extract(t, d, back, dataset.ExtractOptions{Fields: []string{"jpg"}})
	for key := range want {
		data, err := os.ReadFile(filepath.Join(back, key+".jpg"))
		if err != nil || digest(data) != want[key]["jpg"] {
			t.Errorf("%s: %v", key, err)
		}
	}
}
