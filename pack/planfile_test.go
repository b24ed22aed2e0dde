package pack

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"shardify/source"
)

func planItems(n int) []item {
	items := make([]item, n)
	for i := range items {
		items[i] = item{key: fmt.Sprintf("class/%d", i), label: int64(i%5) - 1, fields: []source.FieldEntry{
			{Name: "jpg", Path: fmt.Sprintf("class/%d.JPEG", i), Location: source.Location{Name: fmt.Sprintf("/data/class/%d.JPEG", i), Size: 100, ModTime: -3, CRC32C: uint32(i * (i % 2)), HasCRC32C: i%2 == 1}},
			{Name: "txt", Location: source.Location{Inline: []byte("a caption"), Size: 9, Source: 2}},
		}}
	}
	return items
}

// writeTestPlan writes a plan of two shards of n samples.
func writeTestPlan(t testing.TB, n int) ([]byte, []item) {
	t.Helper()
	var b bytes.Buffer
	pw, err := newPlanWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	items := planItems(2 * n)
	var p prefixes
	f := &Footer{Fingerprint: "f", Classes: []string{"a"}}
	for s := range 2 {
		ps := PlannedShard{Split: "train", Name: fmt.Sprintf("%d.tar", s), Samples: int64(n), Offset: pw.at}
		pw.section()
		for i := range n {
			if err := pw.record(appendItem(nil, &p, &items[s*n+i])); err != nil {
				t.Fatal(err)
			}
		}
		if err := pw.zw.Close(); err != nil {
			t.Fatal(err)
		}
		ps.Length = pw.at - ps.Offset
		f.Shards = append(f.Shards, ps)
	}
	f.Prefixes = p.list
	if err := pw.footer(f); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), items
}

func readItems(p *plan) (out []item, err error) {
	for n := range p.Shards {
		for it, err := range p.items(n) {
			if err != nil {
				return out, err
			}
			out = append(out, it)
		}
	}
	return out, nil
}

func TestPlanFile(t *testing.T) {
	data, want := writeTestPlan(t, 1000)
	p, err := readPlan(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := readItems(p)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("the items come back changed")
	}
	if len(p.Prefixes) != 1 || string(p.Prefixes[0]) != "/data/" {
		t.Errorf("prefixes %q", p.Prefixes)
	}
}

// A plan that is cut anywhere, or has a byte changed anywhere, is an error or says
// the same as before (a byte in a zstd header may say nothing); it never panics.
func TestPlanFileDamage(t *testing.T) {
	data, want := writeTestPlan(t, 3)
	read := func(b []byte) ([]item, error) {
		p, err := readPlan(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return nil, err
		}
		return readItems(p)
	}
	for n := range data {
		if _, err := read(data[:n]); !errors.Is(err, errPlan) {
			t.Fatalf("cut at %d of %d: %v", n, len(data), err)
		}
		b := bytes.Clone(data)
		b[n] ^= 0x41
		if got, err := read(b); err == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("byte %d of %d changed: read without error as %v", n, len(data), got)
		}
	}
}

func FuzzPlan(f *testing.F) {
	data, _ := writeTestPlan(f, 3)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := readPlan(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		_, _ = readItems(p)
	})
}

func FuzzItem(f *testing.F) {
	var p prefixes
	for _, it := range planItems(2) {
		f.Add(appendItem(nil, &p, &it))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := decoder{b: data, prefixes: [][]byte{[]byte("/data/")}}
		it := d.item()
		if d.bad {
			return
		}
		p := prefixes{}
		back := decoder{b: appendItem(nil, &p, &it)}
		back.prefixes = p.list
		if got := back.item(); back.bad || !reflect.DeepEqual(got, it) {
			t.Fatalf("%+v comes back as %+v", it, got)
		}
	})
}
