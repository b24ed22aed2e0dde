package dataset_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/index"
	"shardify/sample"
	"shardify/shard/formats"
	"shardify/store"
	"shardify/store/file"
	"shardify/store/mem"
)

func indexAll(t *testing.T, st store.Store, opts dataset.IndexOptions) (*index.Manifest, []dataset.BadSample, error) {
	t.Helper()
	var bad []dataset.BadSample
	m, err := dataset.Index(t.Context(), st, opts, func(b dataset.BadSample) { bad = append(bad, b) })
	return m, bad, err
}

// names lists what a store has.
func names(t *testing.T, st store.Store) (list []string) {
	t.Helper()
	for info, err := range st.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, info.Name)
	}
	return list
}

// What Index writes for shards is, byte for byte, what was written with them, but
// for the original paths, which shards do not tell.
func TestIndexSameAsWritten(t *testing.T) {
	for _, format := range formats.Names() {
		t.Run(format, func(t *testing.T) {
			written, foreign := mem.New(), mem.New()
			d := datasettest.Write(t, written, datasettest.Options{Format: format, Splits: []string{"train", "val"}, Make: func(n, classes int) datasettest.Made {
				m := datasettest.Sample(n, classes)
				m.Paths = nil
				return m
			}})
			for _, name := range names(t, written) {
				if _, err := formats.OfFile(name); err == nil {
					write(t, foreign, name, read(t, written, name))
				}
			}
			m, bad, err := indexAll(t, foreign, dataset.IndexOptions{Name: "test", Tool: "datasettest", Classes: d.Manifest().Classes})
			if err != nil || len(bad) > 0 {
				t.Fatal(err, bad)
			}
			if !slices.Equal(names(t, foreign), names(t, written)) || m.Samples() != 60 {
				t.Errorf("wrote %v with %d samples", names(t, foreign), m.Samples())
			}
			for _, name := range names(t, written) {
				if !bytes.Equal(read(t, foreign, name), read(t, written, name)) {
					t.Errorf("%s differs", name)
				}
			}
			if found, _ := verify(t, foreign, dataset.VerifyOptions{}); len(found) > 0 {
				t.Errorf("verify: %v", found)
			}
		})
	}
}

// The shards stay as they are, to the nanosecond.
func TestIndexTouchesNothing(t *testing.T) {
	dir := t.TempDir()
	st := file.New(dir)
	datasettest.Write(t, st, datasettest.Options{})
	for _, name := range []string{"manifest.json", "train-000000.parquet", "train-000001.parquet", "train-000002.parquet"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	type state struct {
		data string
		mod  time.Time
		mode fs.FileMode
	}
	look := func() map[string]state {
		states := map[string]state{}
		for i := range 3 {
			name := filepath.Join(dir, fmt.Sprintf("train-%06d.tar", i))
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			states[name] = state{string(data), info.ModTime(), info.Mode()}
		}
		return states
	}
	for i := range 3 {
		name := filepath.Join(dir, fmt.Sprintf("train-%06d.tar", i))
		if err := os.Chtimes(name, time.Unix(1e9, 123), time.Unix(1e9, 123)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	before := look()
	if _, _, err := indexAll(t, st, dataset.IndexOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, opts := range []dataset.IndexOptions{{Update: true}, {Force: true}} {
		if _, _, err := indexAll(t, st, opts); err != nil {
			t.Fatal(err)
		}
	}
	after := look()
	for name, b := range before {
		if after[name] != b {
			t.Errorf("%s was touched", name)
		}
	}
}

// member is a member of a tar made with archive/tar.
type member struct{ name, data string }

func tarOf(t *testing.T, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		if err := w.WriteHeader(&tar.Header{Name: m.name, Size: int64(len(m.data)), Mode: 0o644, ModTime: time.Unix(5, 5), Format: tar.FormatPAX}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(m.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// labels returns the label and class name of every sample.
func labels(t *testing.T, st store.Store) (list []string) {
	t.Helper()
	d, err := dataset.Open(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	for s, err := range d.Select(t.Context(), dataset.Selection{}) {
		if err != nil {
			t.Fatal(err)
		}
		label := "-"
		if s.Row.Label != nil {
			label = fmt.Sprint(*s.Row.Label)
		}
		list = append(list, label+" "+s.Row.LabelName)
	}
	return list
}

func TestIndexLabels(t *testing.T) {
	for name, c := range map[string]struct {
		fields  []member // of samples 0, 1, …
		opts    dataset.IndexOptions
		labels  string // joined by commas
		classes string
		bad     string
		err     string
	}{
		"numbers":             {[]member{{"cls", "7"}, {"cls", " 3\n"}}, dataset.IndexOptions{}, "7 ,3 ", "", "", ""},
		"numbers, classes":    {[]member{{"cls", "1"}, {"cls", "0"}}, dataset.IndexOptions{Classes: []string{"cat", "dog"}}, "1 dog,0 cat", "cat,dog", "", ""},
		"out of the list":     {[]member{{"cls", "2"}}, dataset.IndexOptions{Classes: []string{"cat", "dog"}}, "", "", "the label 2, but the list of classes has 2", "bad samples"},
		"names":               {[]member{{"cls", "dog"}, {"cls", "cat"}, {"cls", "dog"}}, dataset.IndexOptions{}, "1 dog,0 cat,1 dog", "cat,dog", "", ""},
		"names, classes":      {[]member{{"cls", "dog"}, {"cls", "cat"}}, dataset.IndexOptions{Classes: []string{"dog", "cat"}}, "0 dog,1 cat", "dog,cat", "", ""},
		"names not in list":   {[]member{{"cls", "cow"}}, dataset.IndexOptions{Classes: []string{"dog", "cat"}}, "", "", `the class "cow" is not in the list`, "bad samples"},
		"json number":         {[]member{{"json", `{"label":4,"x":1}`}}, dataset.IndexOptions{}, "4 ", "", "", ""},
		"json both":           {[]member{{"json", `{"label":1,"class_name":"dog"}`}, {"json", `{"label":0,"label_name":"cat"}`}, {"json", `{"label":1}`}}, dataset.IndexOptions{}, "1 dog,0 cat,1 dog", "cat,dog", "", ""},
		"json name":           {[]member{{"json", `{"class":"dog"}`}, {"json", `{"class":"cat"}`}, {"json", `{}`}}, dataset.IndexOptions{}, "1 dog,0 cat,- ", "cat,dog", "", ""},
		"json gaps":           {[]member{{"json", `{"label":1,"class_name":"dog"}`}}, dataset.IndexOptions{}, "1 dog", "", "", ""},
		"json clash":          {[]member{{"json", `{"label":1,"class_name":"dog"}`}, {"json", `{"label":1,"class_name":"cat"}`}}, dataset.IndexOptions{}, "", "", "elsewhere: give the classes", "bad samples"},
		"json broken":         {[]member{{"json", `{"label":`}}, dataset.IndexOptions{}, "- ", "", "", ""},
		"json text number":    {[]member{{"json", `{"label":"12"}`}, {"json", `{"label":"3"}`}}, dataset.IndexOptions{}, "0 12,1 3", "12,3", "", ""},
		"json negative":       {[]member{{"json", `{"label":-1}`}, {"json", `{"label":1.5}`}, {"cls", "-5"}}, dataset.IndexOptions{}, "- ,- ,- ", "", "", ""},
		"json caption":        {[]member{{"json", `{"label":"` + strings.Repeat("long ", 100) + `"}`}}, dataset.IndexOptions{}, "- ", "", "", ""},
		"from a member":       {[]member{{"json", `{"label":1,"category":"dog"}`}}, dataset.IndexOptions{LabelFrom: "json.category"}, "0 dog", "dog", "", ""},
		"from a field":        {[]member{{"txt", "dog"}, {"cls", "5"}}, dataset.IndexOptions{LabelFrom: "txt"}, "0 dog,- ", "dog", "", ""},
		"from a dotted field": {[]member{{"meta.txt", "dog"}}, dataset.IndexOptions{LabelFrom: "meta.txt"}, "0 dog", "dog", "", ""},
		"none":                {[]member{{"cls", "5"}}, dataset.IndexOptions{LabelFrom: "none"}, "- ", "", "", ""},
		"binary cls":          {[]member{{"cls", "\x93NUMPY\x01\x00"}}, dataset.IndexOptions{}, "- ", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			st := mem.New()
			// A shard for each sample, so that classes are gathered over shards.
			for i, f := range c.fields {
				write(t, st, fmt.Sprintf("x-%d.tar", i), tarOf(t, member{fmt.Sprintf("s%d.%s", i, f.name), f.data}))
			}
			before := names(t, st)
			m, bad, err := indexAll(t, st, c.opts)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || len(bad) == 0 || !strings.Contains(bad[0].String(), c.bad) {
					t.Errorf("%v, bad %v", err, bad)
				}
				if after := names(t, st); !slices.Equal(after, before) {
					t.Errorf("left behind: %v", after)
				}
				return
			}
			if err != nil {
				t.Fatal(err, bad)
			}
			if got := strings.Join(labels(t, st), ","); got != c.labels {
				t.Errorf("labels %q, want %q", got, c.labels)
			}
			if got := strings.Join(m.Classes, ","); got != c.classes {
				t.Errorf("classes %q, want %q", got, c.classes)
			}
			if found, _ := verify(t, st, dataset.VerifyOptions{}); len(found) > 0 {
				t.Errorf("verify: %v", found)
			}
		})
	}
}

func TestIndexBadSamples(t *testing.T) {
	good := string(datasettest.Sample(1, 5).Fields[1].Data)
	cut := good[:len(good)-30]
	archive := tarOf(t,
		member{"./a.jpg", good}, member{"./a.cls", "1"},
		member{"b.jpg", cut}, member{"b.cls", "1"},
		member{"c.jpg", "not an image"},
		member{"d.seg.png", "no png"}, member{"d.txt", "fine"},
		member{"../e.jpg", good}, member{"folder.name/f.jpg", good}, member{"no field", ""}, member{"__skip__/z.jpg", ""},
		member{"g.JPEG", good})
	st := mem.New()
	write(t, st, "x-0.tar", archive)
	write(t, st, "x-1.tar", archive[:len(archive)-3000])
	_, bad, err := indexAll(t, st, dataset.IndexOptions{})
	if !errors.Is(err, dataset.ErrBadSamples) || !strings.Contains(err.Error(), "7 bad samples") || !strings.Contains(err.Error(), "--on-bad skip") {
		t.Errorf("got %v", err)
	}
	if list := names(t, st); !slices.Equal(list, []string{"x-0.tar", "x-1.tar"}) {
		t.Errorf("left behind: %v", list)
	}
	slices.SortFunc(bad, func(a, b dataset.BadSample) int { return strings.Compare(a.Shard, b.Shard) })
	for i, want := range []string{
		`x-0.tar: sample "b" field "jpg" at`, `x-0.tar: sample "c" field "jpg" at`, `x-0.tar: sample "d" field "seg.png" at`,
		`x-1.tar: sample "b" field "jpg" at`, `x-1.tar: sample "c" field "jpg" at`, `x-1.tar: sample "d" field "seg.png" at`, `x-1.tar at `,
	} {
		if !strings.HasPrefix(bad[i].String(), want) {
			t.Errorf("bad %d is %s, want %s", i, bad[i], want)
		}
	}
	m, bad, err := indexAll(t, st, dataset.IndexOptions{Skip: true})
	if err != nil || len(bad) != 7 {
		t.Fatal(err, bad)
	}
	if n := m.Splits[0].Shards[0].Samples; n != 4 {
		t.Errorf("%d samples of the whole shard", n)
	}
	d, err := dataset.Open(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for s, err := range d.Select(t.Context(), dataset.Selection{}) {
		if err != nil {
			t.Fatal(err)
		}
		if s.Number == 0 {
			keys = append(keys, s.Shard.Name)
		}
		keys = append(keys, s.Row.Key)
		f := s.Row.Fields[len(s.Row.Fields)-1]
		if got, err := d.ReadField(t.Context(), s.Shard, s.Row, &f); err != nil || string(got) != good {
			t.Errorf("%s.%s: %v", s.Row.Key, f.Name, err)
		}
	}
	if got := strings.Join(keys[:5], " "); got != "x-0.tar ./a ../e folder.name/f g" {
		t.Errorf("keys %s", got)
	}
	// What was left out is a warning to verify, not a fault.
	found, _ := verify(t, st, dataset.VerifyOptions{})
	for _, p := range found {
		if !p.Warning && p.File != "x-1.tar" {
			t.Errorf("verify: %v", p)
		}
	}
	// And what lies outside the folder is not extracted.
	_, reported := extract(t, d, t.TempDir(), dataset.ExtractOptions{})
	if !errors.Is(errors.Join(reported...), dataset.ErrUnsafePath) {
		t.Errorf("extract: %v", reported)
	}
}

// However many samples were left out of the index, the data set is whole.
func TestIndexManyLeftOut(t *testing.T) {
	st := mem.New()
	var members []member
	for i := range 50 {
		members = append(members, member{fmt.Sprintf("bad%d.jpg", i), "no"}, member{fmt.Sprintf("good%d.txt", i), "yes"})
	}
	write(t, st, "x-0.tar", tarOf(t, members...))
	if _, bad, err := indexAll(t, st, dataset.IndexOptions{Skip: true}); err != nil || len(bad) != 50 {
		t.Fatal(err, len(bad))
	}
	found, result := verify(t, st, dataset.VerifyOptions{MaxProblems: 3})
	if len(found) != 4 || len(errorsOf(found)) != 0 || result.Problems != 0 || result.Warnings != 50 || result.Samples != 50 || found[3].Kind != dataset.KindMore {
		t.Errorf("%+v, found %v", result, found)
	}
}

func TestIndexInTheWay(t *testing.T) {
	made := func(t *testing.T) store.Store {
		st := mem.New()
		write(t, st, "x-0.tar", tarOf(t, member{"a.txt", "a"}))
		write(t, st, "x-1.tar", tarOf(t, member{"b.txt", "b"}))
		return st
	}
	packed := func(t *testing.T) store.Store {
		st := made(t)
		m, _, err := indexAll(t, st, dataset.IndexOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m.Options = []byte(`{"seed":1}`)
		data, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		write(t, st, index.ManifestName, data)
		return st
	}
	indexed := func(t *testing.T) store.Store {
		st := made(t)
		if _, _, err := indexAll(t, st, dataset.IndexOptions{}); err != nil {
			t.Fatal(err)
		}
		return st
	}
	with := func(name, data string) func(t *testing.T) store.Store {
		return func(t *testing.T) store.Store {
			st := made(t)
			write(t, st, name, []byte(data))
			return st
		}
	}
	for name, c := range map[string]struct {
		store         func(t *testing.T) store.Store
		plain         string // the error without options; empty for none
		update, force string
	}{
		"nothing":            {made, "", "", ""},
		"indexed":            {indexed, "--update brings it up to date", "", ""},
		"packed":             {packed, "this is a packed data set", "this is a packed data set", ""},
		"another's manifest": {with("manifest.json", "{}"), "it is not ours", "it is not ours", ""},
		"another's parquet":  {with("x-1.parquet", "PAR1"), "no index of shardify", "no index of shardify", ""},
		"parquet beside":     {with("y.parquet", "PAR1"), "", "", ""},
		"unfinished":         {with(".shardify/plan", ""), "run the same `shardify pack`", "run the same", "run the same"},
		"formats":            {with("x-2.tar.gz", ""), "several formats", "several formats", "several formats"},
		"quarantine":         {with("quarantine/x.tar", "no shard of it"), "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, o := range []struct {
				opts dataset.IndexOptions
				want string
			}{{dataset.IndexOptions{}, c.plain}, {dataset.IndexOptions{Update: true}, c.update}, {dataset.IndexOptions{Force: true}, c.force}} {
				st := c.store(t)
				before := map[string]string{}
				for _, name := range names(t, st) {
					before[name] = string(read(t, st, name))
				}
				_, bad, err := indexAll(t, st, o.opts)
				if o.want == "" {
					if err != nil || len(bad) > 0 {
						t.Errorf("%+v: %v", o.opts, err)
					}
					if errs := errorsOf(second(verify(t, st, dataset.VerifyOptions{}))); len(errs) > 0 {
						t.Errorf("%+v: verify: %v", o.opts, errs)
					}
					continue
				}
				if err == nil || !strings.Contains(err.Error(), o.want) {
					t.Errorf("%+v: %v, want %q", o.opts, err, o.want)
				}
				for _, name := range names(t, st) {
					if string(read(t, st, name)) != before[name] {
						t.Errorf("%+v: %s was changed", o.opts, name)
					}
				}
			}
		})
	}
	for want, opts := range map[string]dataset.IndexOptions{
		"give one":       {Update: true, Force: true},
		"listed twice":   {Classes: []string{"a", "a"}},
		"not shards":     {Update: true, Shards: []string{"x-0.tar"}},
		"is negative":    {Workers: -1},
		"does not exist": {Shards: []string{"nope.tar"}},
	} {
		if _, _, err := indexAll(t, made(t), opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", opts, err, want)
		}
	}
	if _, _, err := indexAll(t, mem.New(), dataset.IndexOptions{}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "no shards there") {
		t.Errorf("nothing there: %v", err)
	}
}

func second(found []dataset.Problem, _ dataset.VerifyResult) []dataset.Problem { return found }

// Update reads only what is new, drops what is gone, and ends where a new index
// would.
func TestIndexUpdate(t *testing.T) {
	dir := t.TempDir()
	st := &counting{Store: file.New(dir), read: map[string]int64{}}
	put := func(name string, members ...member) {
		t.Helper()
		write(t, st, name, tarOf(t, members...))
	}
	put("x-0.tar", member{"a.cls", "dog"})
	put("x-1.tar", member{"b.cls", "cat"})
	put("x-2.tar", member{"c.cls", "cat"})
	if _, _, err := indexAll(t, st, dataset.IndexOptions{}); err != nil {
		t.Fatal(err)
	}
	put("x-1.tar", member{"b.cls", "dog"}) // of the same size
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "x-1.tar"), later, later); err != nil {
		t.Fatal(err)
	}
	put("x-3.tar", member{"d.cls", "cat"})
	if err := os.Remove(filepath.Join(dir, "x-2.tar")); err != nil {
		t.Fatal(err)
	}
	clear(st.read)
	if _, bad, err := indexAll(t, st, dataset.IndexOptions{Update: true}); err != nil {
		t.Fatal(err, bad)
	}
	if st.read["x-0.tar"] != 0 || st.read["x-1.tar"] == 0 || st.read["x-3.tar"] == 0 {
		t.Errorf("read %v", st.read)
	}
	if got := strings.Join(labels(t, st), ","); got != "1 dog,1 dog,0 cat" {
		t.Errorf("labels %s", got)
	}
	if found, _ := verify(t, st, dataset.VerifyOptions{}); len(found) > 0 {
		t.Errorf("verify: %v", found)
	}
	updated := read(t, st, index.ManifestName)
	if _, _, err := indexAll(t, st, dataset.IndexOptions{Force: true, Classes: []string{"cat", "dog"}}); err != nil {
		t.Fatal(err)
	}
	if again := read(t, st, index.ManifestName); !bytes.Equal(again, updated) {
		t.Errorf("updated:\n%s\nanew:\n%s", updated, again)
	}
	put("x-4.tar", member{"e.cls", "cow"})
	if _, bad, err := indexAll(t, st, dataset.IndexOptions{Update: true}); !errors.Is(err, dataset.ErrBadSamples) || len(bad) != 1 {
		t.Errorf("a new class: %v", err)
	}
}

func TestIndexCancelled(t *testing.T) {
	st := mem.New()
	datasettest.Write(t, st, datasettest.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dataset.Index(ctx, st, dataset.IndexOptions{Force: true}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestSplitOf(t *testing.T) {
	for name, want := range map[string]string{
		"train-000000.tar":             "train",
		"imagenet-train-000123.tar.gz": "train",
		"imagenet1k-validation-00.tar": "validation",
		"val/000000.tar":               "val",
		"test/cats-000.tar":            "test",
		"000000.tar":                   "train",
		"a/b/7.tar":                    "train",
		"cats-000.tar":                 "cats",
		"imagenet1k-0001.tar":          "imagenet1k",
		"cats_and_dogs_000.tar":        "cats_and_dogs",
		"shard-00000-of-00128.tar":     "shard",
		"VAL-3.tar":                    "val",
		"trainer-3.tar":                "trainer",
		"mydata.tar":                   "train",
		"mnist-test.tar":               "test",
		"train-cats-val-000.tar":       "val",
	} {
		if got := dataset.SplitOf(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// No bytes in place of a shard may crash Index or get it to write what does not
// verify.
func FuzzIndex(f *testing.F) {
	st := mem.New()
	datasettest.Write(f, st, datasettest.Options{Shards: 1, Samples: 2})
	data, err := store.ReadAll(context.Background(), st, "train-000000.tar", 1<<30)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		st := mem.New()
		write(t, st, "x.tar", data)
		if _, _, err := indexAll(t, st, dataset.IndexOptions{Skip: true}); err != nil {
			t.Fatal(err)
		}
		found, _ := verify(t, st, dataset.VerifyOptions{})
		for _, p := range found {
			// A container that breaks off is one after Index, too.
			if !p.Warning && p.Kind != dataset.KindFormat && p.Kind != dataset.KindMore {
				t.Errorf("%s: %v", p.Kind, p)
			}
		}
	})
}

func BenchmarkIndex(b *testing.B) {
	photo := datasettest.Sample(1, 5).Fields[1].Data
	photo = append(slices.Clone(photo[:len(photo)-2]), append(bytes.Repeat([]byte{0x55}, 110<<10), photo[len(photo)-2:]...)...)
	st := file.New(b.TempDir())
	d := datasettest.Write(b, st, datasettest.Options{Shards: 2, Samples: 1200, Make: func(n, classes int) datasettest.Made {
		m := datasettest.Made{Label: int64(n % classes)}
		m.Key = fmt.Sprintf("n%03d/img_%06d", n%classes, n)
		m.Fields = []sample.Field{{Name: "cls", Data: fmt.Append(nil, m.Label)}, {Name: "jpg", Data: photo}}
		return m
	}})
	b.SetBytes(d.Manifest().Bytes())
	for b.Loop() {
		if _, err := dataset.Index(b.Context(), st, dataset.IndexOptions{Force: true, Workers: 1}, func(x dataset.BadSample) { b.Fatal(x) }); err != nil {
			b.Fatal(err)
		}
	}
}
