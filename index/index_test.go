package index

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

func manifest() *Manifest {
	file := func(name string, n int64) File { return File{Name: name, Bytes: n, Checksum: Sum([]byte(name))} }
	return &Manifest{
		Format: Format, Version: Version, Tool: "shardify test", Name: "pets", Container: "tar",
		Options: json.RawMessage(`{"seed":1}`),
		Classes: []string{"cat", "dög"},
		Splits: []Split{{
			Name: "train", Samples: 3, Bytes: 30720,
			Shards: []Shard{
				{File: file("train-000000.tar", 20480), Samples: 2, Index: file("train-000000.parquet", 900),
					Fields: []FieldStat{{"cls", 2, 2}, {"jpg", 2, 15000}}},
				{File: file("train-000001.tar", 10240), Samples: 1, Index: file("train-000001.parquet", 800),
					Fields: []FieldStat{{"jpg", 1, 8000}}},
			},
		}},
	}
}

// The manifest's written form, frozen: a change of it is a new Version.
const golden = `{
 "format": "shardify",
 "version": 1,
 "tool": "shardify test",
 "name": "pets",
 "container": "tar",
 "options": {
  "seed": 1
 },
 "classes": [
  "cat",
  "dög"
 ],
 "splits": [
  {
   "name": "train",
   "samples": 3,
   "bytes": 30720,
   "shards": [
    {
     "name": "train-000000.tar",
     "bytes": 20480,
     "checksum": "crc64nvme:483ba44523587404",
`

func TestManifestRoundTrip(t *testing.T) {
	m := manifest()
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(data), golden) {
		t.Errorf("the manifest's form has changed:\n%s", data)
	}
	back, err := DecodeManifest(data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := back.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, again) {
		t.Errorf("encoded again:\n%s", again)
	}
	if back.Samples() != 3 || back.Bytes() != 30720 {
		t.Errorf("%d samples, %d bytes", back.Samples(), back.Bytes())
	}
}

func TestChecksum(t *testing.T) {
	// The check values of CRC-64/NVME and CRC-32C in the catalogue of
	// parametrised CRC algorithms.
	if got := Sum([]byte("123456789")); got != "crc64nvme:ae8b14860a799888" {
		t.Errorf("Sum = %s", got)
	}
	if got := FieldChecksum([]byte("123456789")); got != 0xe3069283 {
		t.Errorf("FieldChecksum = %#x", got)
	}
}

// The manifest finds a change of any of its own bytes, where it still is JSON and
// where it is not.
func TestCheckManifest(t *testing.T) {
	data, err := manifest().Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckManifest(data); err != nil {
		t.Fatal(err)
	}
	for at := range data {
		for bit := range 8 {
			data[at] ^= 1 << bit
			if err := CheckManifest(data); !errors.Is(err, ErrInvalid) {
				t.Fatalf("bit %d of byte %d flipped: %v", bit, at, err)
			}
			data[at] ^= 1 << bit
		}
		if err := CheckManifest(data[:at]); !errors.Is(err, ErrInvalid) {
			t.Fatalf("cut at %d: %v", at, err)
		}
	}
	// By hand, it can still be edited.
	if _, err := DecodeManifest(bytes.Replace(data, []byte("cat"), []byte("dog"), 1)); err != nil {
		t.Errorf("edited: %v", err)
	}
}

func TestManifestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		broken func(*Manifest)
		want   string
	}{
		"escape":    {func(m *Manifest) { m.Splits[0].Shards[0].Name = "../x.tar" }, "no file name"},
		"absolute":  {func(m *Manifest) { m.Splits[0].Shards[0].Index.Name = "/x" }, "no file name"},
		"itself":    {func(m *Manifest) { m.Splits[0].Shards[0].Name = ManifestName }, "twice"},
		"twice":     {func(m *Manifest) { m.Splits[0].Shards[1].Name = "train-000000.tar" }, "twice"},
		"sum":       {func(m *Manifest) { m.Splits[0].Samples = 4 }, "its shards have 3"},
		"negative":  {func(m *Manifest) { m.Splits[0].Shards[0].Bytes = -1 }, "-1 bytes"},
		"checksum":  {func(m *Manifest) { m.Splits[0].Shards[0].Checksum = "md5:00" }, "crc64nvme"},
		"no splits": {func(m *Manifest) { m.Splits = nil }, "no splits"},
		"order":     {func(m *Manifest) { m.Splits = append(m.Splits, m.Splits[0]) }, "not sorted"},
	} {
		t.Run(name, func(t *testing.T) {
			m := manifest()
			c.broken(m)
			data, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range []error{m.Validate(), second(DecodeManifest(data)), second(m.Encode())} {
				if !errors.Is(err, ErrInvalid) || !strings.Contains(fmt.Sprint(err), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
			}
		})
	}
	if _, err := DecodeManifest([]byte(`{"format":"shardify","version":2}`)); !errors.Is(err, ErrVersion) {
		t.Errorf("version 2: %v", err)
	}
	for _, text := range []string{"", "[]", `{"format":"other"}`, `{"format":"shardify","version":1,"splits":3}`} {
		if _, err := DecodeManifest([]byte(text)); !errors.Is(err, ErrNotManifest) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func second[A, B any](_ A, b B) B { return b }

func TestManifestSplit(t *testing.T) {
	m := manifest()
	if s, err := m.Split(""); err != nil || s.Name != "train" {
		t.Errorf("only split: %v, %v", s, err)
	}
	m.Splits = append(m.Splits, Split{Name: "val"})
	if s, err := m.Split(""); err != nil || s.Name != "train" {
		t.Errorf("default split: %v, %v", s, err)
	}
	if _, err := m.Split("test"); err == nil || !strings.Contains(err.Error(), "train, val") {
		t.Errorf("no such split: %v", err)
	}
}

func rows(n int) []Row {
	out := make([]Row, n)
	at := int64(0)
	for i := range out {
		label := int64(i % 10)
		size := int64(100_000 + i%7)
		out[i] = Row{
			Key: fmt.Sprintf("n%08d/x_%d", i%10, i), Label: &label, LabelName: fmt.Sprint("class ", label),
			Offset: at, Size: size + 2048, Format: "jpeg", Width: 500, Height: 375, Orientation: 1, Channels: 3,
			Fields: []FieldRow{
				{Name: "cls", HeaderOffset: at, Offset: at + 512, Size: 1, CRC32C: uint32(i)},
				{Name: "jpg", HeaderOffset: at + 1024, Offset: at + 1536, Size: size, CRC32C: ^uint32(i), Path: "x.JPEG"},
			},
		}
		at += size + 2048
	}
	if n > 0 {
		out[0].Label, out[0].LabelName, out[0].Fields[0].Offset = nil, "", -1
	}
	return out
}

func TestRows(t *testing.T) {
	for _, n := range []int{0, 1, 3, rowGroup + 1} {
		want := rows(n)
		var a, b bytes.Buffer
		for _, w := range []*bytes.Buffer{&a, &b} {
			if err := WriteRows(w, want); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("%d rows: two runs, two results", n)
		}
		got, err := ReadRows(bytes.NewReader(a.Bytes()), int64(a.Len()))
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != n || n > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("%d rows come back as %d, or changed", n, len(got))
		}
		keys, err := ReadKeys(bytes.NewReader(a.Bytes()), int64(a.Len()))
		if err != nil || len(keys) != n {
			t.Fatalf("%d keys of %d: %v", len(keys), n, err)
		}
		for i := range keys {
			if keys[i] != want[i].Key {
				t.Fatalf("key %d is %q, want %q", i, keys[i], want[i].Key)
			}
		}
	}
}

func TestTable(t *testing.T) {
	var want []TableRow
	for i, row := range rows(3 * batchRows / 2) {
		want = append(want, TableRow{Split: "val", Shard: fmt.Sprintf("val-%06d.tar", i/1000), Number: int64(i % 1000), Sample: int64(i), Row: row})
	}
	var b bytes.Buffer
	w := NewTableWriter(&b)
	for _, row := range want {
		if err := w.Write(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	type place struct {
		Split  string `parquet:"split"`
		Shard  string `parquet:"shard"`
		Number int64  `parquet:"number"`
		Sample int64  `parquet:"sample"`
	}
	places, err := parquet.Read[place](bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	got, err := parquet.Read[Row](bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) || len(places) != len(want) {
		t.Fatalf("%d rows, and %d places, of %d", len(got), len(places), len(want))
	}
	for i, w := range want {
		if !reflect.DeepEqual(got[i], w.Row) || places[i] != (place{w.Split, w.Shard, w.Number, w.Sample}) {
			t.Fatalf("row %d is %+v at %+v, want %+v", i, got[i], places[i], w)
		}
	}
	// A table is no index: its samples are of several shards.
	if _, err := ReadRows(bytes.NewReader(b.Bytes()), int64(b.Len())); !errors.Is(err, ErrInvalid) {
		t.Errorf("read as an index: %v", err)
	}
}

func TestRowsFaults(t *testing.T) {
	for name, broken := range map[string]func([]Row){
		"overlap":  func(r []Row) { r[1].Offset = 5 },
		"negative": func(r []Row) { r[1].Size = -1 },
		"outside":  func(r []Row) { r[1].Fields[1].Size = 1 << 40 },
		"before":   func(r []Row) { r[1].Fields[1].Offset = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			r := rows(3)
			broken(r)
			var b bytes.Buffer
			if err := WriteRows(&b, r); err != nil {
				t.Fatal(err)
			}
			if _, err := ReadRows(bytes.NewReader(b.Bytes()), int64(b.Len())); !errors.Is(err, ErrInvalid) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Every index cut short must be an error, and none may panic.
func TestRowsCut(t *testing.T) {
	var b bytes.Buffer
	if err := WriteRows(&b, rows(20)); err != nil {
		t.Fatal(err)
	}
	for n := range b.Len() {
		if _, err := ReadRows(bytes.NewReader(b.Bytes()[:n]), int64(n)); !errors.Is(err, ErrInvalid) {
			t.Fatalf("cut at %d of %d: %v", n, b.Len(), err)
		}
	}
}

func FuzzReadRows(f *testing.F) {
	for _, n := range []int{0, 1, 20} {
		var b bytes.Buffer
		if err := WriteRows(&b, rows(n)); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := ReadRows(bytes.NewReader(data), int64(len(data)))
		if err == nil {
			var b bytes.Buffer
			if err := WriteRows(&b, rows); err != nil {
				t.Fatalf("what was read cannot be written: %v", err)
			}
		}
	})
}

func FuzzDecodeManifest(f *testing.F) {
	data, err := manifest().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := DecodeManifest(data)
		if err != nil {
			return
		}
		if _, err := m.Encode(); err != nil {
			t.Fatalf("what was decoded cannot be encoded: %v", err)
		}
	})
}

func BenchmarkReadRows(b *testing.B) {
	var buf bytes.Buffer
	if err := WriteRows(&buf, rows(2400)); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(buf.Len())/2400, "bytes/row")
	for b.Loop() {
		if _, err := ReadRows(bytes.NewReader(buf.Bytes()), int64(buf.Len())); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(2400*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkReadKeys(b *testing.B) {
	var buf bytes.Buffer
	if err := WriteRows(&buf, rows(2400)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := ReadKeys(bytes.NewReader(buf.Bytes()), int64(buf.Len())); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(2400*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkWriteRows(b *testing.B) {
	r := rows(2400)
	var buf bytes.Buffer
	for b.Loop() {
		buf.Reset()
		if err := WriteRows(&buf, r); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(2400*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
