package dataset_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/index"
	"shardify/sample"
	"shardify/shard/formats"
	"shardify/store"
	"shardify/store/file"
	"shardify/store/mem"
)

// verify returns what Verify finds.
func verify(t testing.TB, st store.Store, opts dataset.VerifyOptions) ([]dataset.Problem, dataset.VerifyResult) {
	t.Helper()
	d, err := dataset.Open(context.Background(), st)
	if err != nil {
		return []dataset.Problem{{Kind: "open", File: index.ManifestName, Err: err}}, dataset.VerifyResult{Problems: 1}
	}
	var found []dataset.Problem
	result, err := dataset.Verify(context.Background(), d, opts, func(p dataset.Problem) { found = append(found, p) })
	if err != nil {
		t.Fatal(err)
	}
	return found, result
}

func errorsOf(found []dataset.Problem) (errs []dataset.Problem) {
	for _, p := range found {
		if !p.Warning {
			errs = append(errs, p)
		}
	}
	return errs
}

func TestVerifyIntact(t *testing.T) {
	for _, format := range formats.Names() {
		t.Run(format, func(t *testing.T) {
			st := mem.New()
			datasettest.Write(t, st, datasettest.Options{Format: format, Splits: []string{"train", "val"}})
			found, result := verify(t, st, dataset.VerifyOptions{})
			if len(found) != 0 {
				t.Errorf("found in an intact data set: %v", found)
			}
			if result.Shards != 6 || result.Samples != 60 || result.Fields != 140 || result.Bytes == 0 {
				t.Errorf("result %+v", result)
			}
			_, result = verify(t, st, dataset.VerifyOptions{Split: "val"})
			if result.Shards != 3 || result.Samples != 30 {
				t.Errorf("of one split: %+v", result)
			}
		})
	}
}

// The files are watched over in every byte: whichever is flipped, Verify finds it,
// names the file, and where it is a field's, the sample and the field. Nothing else
// is blamed. (Steps are primes, so that they come past every place of a header.)
func TestVerifyFlips(t *testing.T) {
	for _, format := range formats.Names() {
		t.Run(format, func(t *testing.T) {
			st := mem.New()
			d := datasettest.Write(t, st, datasettest.Options{Format: format, Shards: 1, Samples: 3, Make: small})
			for i := range d.Manifest().Splits[0].Shards {
				sh := &d.Manifest().Splits[0].Shards[i]
				rows, err := d.Rows(t.Context(), sh)
				if err != nil {
					t.Fatal(err)
				}
				flipAll(t, st, sh.Name, 13, func(at int, found []dataset.Problem) {
					if format != "tar" {
						return
					}
					key, field := owner(rows, int64(at))
					named := slices.ContainsFunc(found, func(p dataset.Problem) bool { return p.Key == key && p.Field == field })
					if at%512 >= 148 && at%512 < 156 && field == "" {
						// A header's checksum ends in a blank that nobody reads.
						named = true
					}
					if key != "" && !named {
						t.Errorf("byte %d belongs to sample %q field %q; found %v", at, key, field, found)
					}
					for _, p := range found {
						if p.Key != "" && p.Key != key && !p.Warning {
							t.Errorf("byte %d belongs to sample %q; blamed: %v", at, key, p)
						}
					}
				})
				flipAll(t, st, sh.Index.Name, 61, nil)
			}
			flipAll(t, st, index.ManifestName, 17, nil)
		})
	}
}

// small makes samples of some hundred bytes.
func small(n, classes int) datasettest.Made {
	m := datasettest.Sample(n, classes)
	m.Fields, m.Paths = m.Fields[:2], m.Paths[:2]
	m.Fields[1] = sample.Field{Name: "txt", Data: bytes.Repeat([]byte{byte('a' + n)}, 100+n)}
	return m
}

// owner returns the sample and field whose content has byte at of the container; a
// byte of a header belongs to a sample, and no field.
func owner(rows []index.Row, at int64) (key, field string) {
	for i := range rows {
		r := &rows[i]
		if at < r.Offset || at >= r.Offset+r.Size {
			continue
		}
		for _, f := range r.Fields {
			if at >= f.Offset && at < f.Offset+f.Size {
				return r.Key, f.Name
			}
			if at >= f.HeaderOffset && at < f.Offset {
				return r.Key, ""
			}
		}
	}
	return "", ""
}

// flipAll flips every step-th byte of a file, one after the other.
func flipAll(t *testing.T, st store.Store, name string, step int, check func(at int, found []dataset.Problem)) {
	t.Helper()
	good := read(t, st, name)
	for at := 0; at < len(good); at += step {
		bad := bytes.Clone(good)
		bad[at] ^= 1 << (at % 8)
		write(t, st, name, bad)
		found, result := verify(t, st, dataset.VerifyOptions{Workers: 1})
		switch errs := errorsOf(found); {
		case len(errs) == 0 || result.Problems == 0:
			t.Errorf("%s: byte %d of %d flipped, nothing found", name, at, len(good))
		case !slices.ContainsFunc(errs, func(p dataset.Problem) bool { return p.File == name }):
			t.Errorf("%s: byte %d of %d flipped, found %v", name, at, len(good), errs)
		case check != nil:
			check(at, found)
		}
	}
	write(t, st, name, good)
	if found, _ := verify(t, st, dataset.VerifyOptions{}); len(found) != 0 {
		t.Fatalf("%s: put right again: %v", name, found)
	}
}

func TestVerifyCuts(t *testing.T) {
	for _, format := range formats.Names() {
		t.Run(format, func(t *testing.T) {
			st := mem.New()
			d := datasettest.Write(t, st, datasettest.Options{Format: format, Shards: 2, Samples: 4, Make: small})
			sh := &d.Manifest().Splits[0].Shards[0]
			for _, name := range []string{sh.Name, sh.Index.Name, index.ManifestName} {
				good := read(t, st, name)
				for n := 0; n < len(good); n += 83 {
					write(t, st, name, good[:n])
					found, _ := verify(t, st, dataset.VerifyOptions{})
					if errs := errorsOf(found); len(errs) == 0 || errs[0].File != name {
						t.Errorf("%s cut to %d of %d: %v", name, n, len(good), errs)
					}
				}
				write(t, st, name, append(bytes.Clone(good), 0))
				found, _ := verify(t, st, dataset.VerifyOptions{})
				if errs := errorsOf(found); len(errs) == 0 || errs[0].File != name {
					t.Errorf("%s with a byte more: %v", name, errs)
				}
				write(t, st, name, good)
			}
		})
	}
}

func TestVerifyFiles(t *testing.T) {
	rename := func(t *testing.T, st store.Store, pairs ...string) {
		data := map[string][]byte{}
		for i := 0; i < len(pairs); i += 2 {
			data[pairs[i+1]] = read(t, st, pairs[i])
		}
		for name, d := range data {
			write(t, st, name, d)
		}
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, st store.Store)
		want   []string // the beginnings of the problems
	}{
		"shard deleted": {func(t *testing.T, st store.Store) { st.Remove(t.Context(), "train-000001.tar") },
			[]string{"missing train-000001.tar"}},
		"index deleted": {func(t *testing.T, st store.Store) { st.Remove(t.Context(), "train-000001.parquet") },
			[]string{"missing train-000001.parquet"}},
		"index deleted, shard damaged": {func(t *testing.T, st store.Store) {
			st.Remove(t.Context(), "train-000001.parquet")
			flip(t, st, "train-000001.tar", 700, 1)
		}, []string{"missing train-000001.parquet", "checksum train-000001.tar: checksum mismatch"}},
		"swapped with the indexes": {func(t *testing.T, st store.Store) {
			rename(t, st, "train-000000.tar", "train-000001.tar", "train-000001.tar", "train-000000.tar",
				"train-000000.parquet", "train-000001.parquet", "train-000001.parquet", "train-000000.parquet")
		}, []string{"size train-000000.parquet", "checksum train-000000.tar: checksum mismatch: these are the bytes of shard train-000001.tar",
			"size train-000001.parquet", "checksum train-000001.tar: checksum mismatch: these are the bytes of shard train-000000.tar"}},
		"extra": {func(t *testing.T, st store.Store) { write(t, st, "sub/notes.txt", nil) }, []string{"warning extra sub/notes.txt: not part of the data set"}},
		"leftover": {func(t *testing.T, st store.Store) { write(t, st, ".shardify/plan", nil) },
			[]string{"warning leftover .shardify/plan: left by a pack that did not end"}},
		"quarantine is pack's": {func(t *testing.T, st store.Store) {
			write(t, st, "bad.jsonl", nil)
			write(t, st, "quarantine/n01/x.jpg", nil)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			st := mem.New()
			// Samples of one size, so that swapped files have the sizes expected.
			datasettest.Write(t, st, datasettest.Options{Samples: 4, Make: func(n, classes int) datasettest.Made {
				m := small(n, classes)
				m.Fields[1].Data = bytes.Repeat([]byte{byte('a' + n)}, 700)
				return m
			}})
			c.change(t, st)
			found, _ := verify(t, st, dataset.VerifyOptions{})
			var got []string
			for _, p := range found {
				text := fmt.Sprintf("%s %s", p.Kind, p)
				if p.Warning {
					text = "warning " + text
				}
				got = append(got, text)
			}
			ok := len(got) == len(c.want)
			for i := range min(len(got), len(c.want)) {
				ok = ok && strings.HasPrefix(got[i], c.want[i])
			}
			if !ok {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// A sample that is too large to be held is checked all the same, field by field.
func TestVerifyLargeSample(t *testing.T) {
	st := mem.New()
	d := datasettest.Write(t, st, datasettest.Options{Shards: 1, Samples: 3, Make: func(n, classes int) datasettest.Made {
		m := small(n, classes)
		m.Fields = append(m.Fields, sample.Field{Name: "wav", Data: []byte{byte(n)}})
		m.Paths = nil
		if n == 1 {
			m.Fields[1].Data = make([]byte, 65<<20)
		}
		return m
	}})
	if found, _ := verify(t, st, dataset.VerifyOptions{}); len(found) > 0 {
		t.Fatal(found)
	}
	rows, err := d.Rows(t.Context(), &d.Manifest().Splits[0].Shards[0])
	if err != nil {
		t.Fatal(err)
	}
	for i, field := range []string{"cls", "txt", "wav"} {
		at := int(rows[1].Fields[i].Offset)
		if field == "txt" {
			at += 33 << 20
		}
		flip(t, st, "train-000000.tar", at, 1)
		found, _ := verify(t, st, dataset.VerifyOptions{})
		if len(found) != 2 || found[0].Key != rows[1].Key || found[0].Field != field || found[0].Kind != dataset.KindChecksum {
			t.Errorf("%s flipped: found %v", field, found)
		}
		flip(t, st, "train-000000.tar", at, 1)
	}
}

// Damage of one frame of a compressed shard is not blamed on samples of others.
func TestVerifyFrames(t *testing.T) {
	st := mem.New()
	r := rand.New(rand.NewPCG(5, 6))
	noise := make([]byte, 300<<10)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	d := datasettest.Write(t, st, datasettest.Options{Format: "tar.zst", Shards: 1, Samples: 20, Make: func(n, classes int) datasettest.Made {
		m := small(n, classes)
		m.Fields[1].Data = noise[n : n+250<<10]
		return m
	}})
	flip(t, st, "train-000000.tar.zst", int(d.Manifest().Bytes()/2), 1)
	found, result := verify(t, st, dataset.VerifyOptions{})
	samples := 0
	for _, p := range found {
		if p.Key != "" {
			samples++
			if n := numberOf(p.Key); n < 5 || n > 15 || p.Warning {
				t.Errorf("blamed: %v", p)
			}
		}
	}
	if samples == 0 || samples > 8 || result.Samples != int64(20-samples) {
		t.Errorf("%d samples blamed, %d checked: %v", samples, result.Samples, found)
	}
}

// Two shards that were swapped, with the indexes in their places: every sample
// differs, the report stays short, and says what has happened.
func TestVerifySwapped(t *testing.T) {
	st := mem.New()
	datasettest.Write(t, st, datasettest.Options{Samples: 50})
	a, b := read(t, st, "train-000000.tar"), read(t, st, "train-000001.tar")
	write(t, st, "train-000000.tar", b)
	write(t, st, "train-000001.tar", a)
	found, result := verify(t, st, dataset.VerifyOptions{MaxProblems: 5})
	if len(found) > 12 || result.Problems < 20 {
		t.Errorf("%d problems reported of %d", len(found), result.Problems)
	}
	for _, name := range []string{"train-000000.tar", "train-000001.tar"} {
		if !slices.ContainsFunc(found, func(p dataset.Problem) bool { return p.File == name && !p.Warning }) {
			t.Errorf("nothing about %s", name)
		}
	}
	if slices.ContainsFunc(found, func(p dataset.Problem) bool { return p.File == "train-000002.tar" }) {
		t.Errorf("the third shard is blamed: %v", found)
	}
}

// The index and the container agree with the manifest's checksums, but not with
// each other: only a comparison of the two finds that.
func TestVerifyRows(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *index.Manifest, rows []index.Row) []index.Row
		want   string
	}{
		"key":           {func(_ *index.Manifest, r []index.Row) []index.Row { r[1].Key = "other"; return r }, `the container has sample "class-001/img_000001" here`},
		"field missing": {func(_ *index.Manifest, r []index.Row) []index.Row { r[1].Fields = r[1].Fields[:1]; return r }, "the container has this field, the index does not"},
		"field name":    {func(_ *index.Manifest, r []index.Row) []index.Row { r[1].Fields[1].Name = "txx"; return r }, "the index has this field, the container does not"},
		"field more": {func(_ *index.Manifest, r []index.Row) []index.Row {
			r[1].Fields = append(r[1].Fields, index.FieldRow{Name: "zzz", Offset: r[1].Offset})
			return r
		}, "the index has this field, the container does not"},
		"crc":    {func(_ *index.Manifest, r []index.Row) []index.Row { r[1].Fields[1].CRC32C++; return r }, "checksum mismatch"},
		"size":   {func(_ *index.Manifest, r []index.Row) []index.Row { r[1].Fields[1].Size--; return r }, "the index says"},
		"header": {func(_ *index.Manifest, r []index.Row) []index.Row { r[1].Fields[1].HeaderOffset--; return r }, "the index says"},
		"twice":  {func(_ *index.Manifest, r []index.Row) []index.Row { r[1].Key = r[0].Key; return r }, "the key occurs twice"},
		"label": {func(_ *index.Manifest, r []index.Row) []index.Row {
			n := int64(77)
			r[1].Label = &n
			return r
		}, "label 77, but the data set has 5 classes"},
		"class": {func(_ *index.Manifest, r []index.Row) []index.Row { r[1].LabelName = "x"; return r }, `class 1 is "x" here and "class-001" in the manifest`},
		"left out": {func(m *index.Manifest, r []index.Row) []index.Row {
			m.Splits[0].Samples--
			m.Splits[0].Shards[0].Samples--
			return slices.Delete(r, 1, 2)
		}, "the container has this sample, the index leaves it out"},
		"last left out": {func(m *index.Manifest, r []index.Row) []index.Row {
			m.Splits[0].Samples--
			m.Splits[0].Shards[0].Samples--
			return r[:3]
		}, "the container has this sample, the index leaves it out"},
		"count": {func(_ *index.Manifest, r []index.Row) []index.Row { return r[:3] }, "3 rows for the 4 samples"},
		"stats": {func(m *index.Manifest, r []index.Row) []index.Row { m.Splits[0].Shards[0].Fields[0].Bytes++; return r }, "its rows have the fields"},
		"raw":   {func(m *index.Manifest, r []index.Row) []index.Row { m.Splits[0].Shards[0].RawBytes = 1 << 20; return r }, "bytes before compression, the manifest says 1048576"},
	} {
		t.Run(name, func(t *testing.T) {
			st := mem.New()
			d := datasettest.Write(t, st, datasettest.Options{Shards: 1, Samples: 4, Make: small})
			m := d.Manifest()
			sh := &m.Splits[0].Shards[0]
			rows, err := d.Rows(t.Context(), sh)
			if err != nil {
				t.Fatal(err)
			}
			rows = c.change(m, rows)
			var b bytes.Buffer
			if err := index.WriteRows(&b, rows); err != nil {
				t.Fatal(err)
			}
			if name != "stats" && name != "count" {
				var stats dataset.FieldStats
				for i := range rows {
					stats.Add(&rows[i])
				}
				sh.Fields = stats.List()
			}
			sh.Index.Bytes, sh.Index.Checksum = int64(b.Len()), index.Sum(b.Bytes())
			write(t, st, sh.Index.Name, b.Bytes())
			data, err := m.Encode()
			if err != nil {
				t.Fatal(err)
			}
			write(t, st, index.ManifestName, data)
			found, _ := verify(t, st, dataset.VerifyOptions{})
			if !slices.ContainsFunc(found, func(p dataset.Problem) bool { return strings.Contains(p.String(), c.want) }) {
				t.Errorf("found %v, want %q", found, c.want)
			}
		})
	}
}

// Reports come in the order of the shards, whatever the number of workers, and are
// the same.
func TestVerifyWorkers(t *testing.T) {
	st := mem.New()
	d := datasettest.Write(t, st, datasettest.Options{Shards: 12, Samples: 3})
	r := rand.New(rand.NewPCG(3, 4))
	for _, sh := range d.Manifest().Splits[0].Shards {
		flip(t, st, sh.Name, r.IntN(int(sh.Bytes)), 1)
	}
	var want []string
	for _, workers := range []int{1, 2, 7} {
		found, _ := verify(t, st, dataset.VerifyOptions{Workers: workers})
		var got []string
		for _, p := range found {
			got = append(got, p.String())
		}
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d workers:\n%s\nwant\n%s", workers, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	files := map[string]bool{}
	for _, w := range want {
		files[w[:len("train-000000.tar")]] = true
	}
	if len(files) != 12 {
		t.Errorf("problems in %v", slices.Sorted(maps.Keys(files)))
	}
}

// Nothing is read twice.
func TestVerifyReadsOnce(t *testing.T) {
	for _, format := range formats.Names() {
		st := &counting{Store: mem.New(), read: map[string]int64{}}
		d := datasettest.Write(t, st.Store, datasettest.Options{Format: format, Samples: 20})
		if found, _ := verify(t, st, dataset.VerifyOptions{}); len(found) > 0 {
			t.Fatal(found)
		}
		for _, sh := range d.Manifest().Splits[0].Shards {
			if st.read[sh.Name] != sh.Bytes || st.read[sh.Index.Name] != sh.Index.Bytes {
				t.Errorf("%s: %d bytes read of %d, of the index %d of %d", sh.Name, st.read[sh.Name], sh.Bytes, st.read[sh.Index.Name], sh.Index.Bytes)
			}
		}
	}
}

// counting counts the bytes that are read of each object.
type counting struct {
	store.Store
	mu   sync.Mutex
	read map[string]int64
}

func (s *counting) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Store.Open(ctx, name)
	return countingObject{o, s, name}, err
}

type countingObject struct {
	store.Object
	s    *counting
	name string
}

func (o countingObject) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	n, err := o.Object.ReadAt(ctx, p, off)
	o.s.mu.Lock()
	o.s.read[o.name] += int64(n)
	o.s.mu.Unlock()
	return n, err
}

func TestVerifyCancelled(t *testing.T) {
	st := mem.New()
	d := datasettest.Write(t, st, datasettest.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dataset.Verify(ctx, d, dataset.VerifyOptions{}, func(dataset.Problem) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := dataset.Verify(t.Context(), d, dataset.VerifyOptions{Workers: -1, MaxProblems: -1}, nil); err == nil || !strings.Contains(err.Error(), "max_problems") {
		t.Errorf("bad options: %v", err)
	}
	if _, err := dataset.Verify(t.Context(), d, dataset.VerifyOptions{Split: "nope"}, nil); err == nil || !strings.Contains(err.Error(), "train") {
		t.Errorf("no such split: %v", err)
	}
}

// BenchmarkVerify reads shards of photographs' size from the page cache, on one
// core.
func BenchmarkVerify(b *testing.B) {
	data := make([]byte, 220<<10)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	photograph := func(n, classes int) datasettest.Made {
		m := datasettest.Made{Label: int64(n % classes)}
		m.Key = fmt.Sprintf("n%03d/img_%06d", n%classes, n)
		from := n * 7919 % (110 << 10)
		m.Fields = []sample.Field{{Name: "bin", Data: data[from : from+110<<10]}, {Name: "cls", Data: fmt.Append(nil, m.Label)}}
		return m
	}
	for _, format := range []string{"tar", "tar.zst"} {
		b.Run(format, func(b *testing.B) {
			st := file.New(b.TempDir())
			d := datasettest.Write(b, st, datasettest.Options{Format: format, Shards: 2, Samples: 1200, Make: photograph})
			b.SetBytes(d.Manifest().Bytes())
			b.ReportAllocs()
			for b.Loop() {
				if found, _ := verify(b, st, dataset.VerifyOptions{Workers: 1}); len(found) > 0 {
					b.Fatal(found)
				}
			}
		})
	}
}
