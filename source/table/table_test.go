package table

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shardify/internal/peers"
	"shardify/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write makes a table and the images it may name.
func write(t testing.TB, name, text string, images ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range append(images, name) {
		content := f
		if f == name {
			content = text
		}
		path := filepath.Join(dir, filepath.FromSlash(f))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, name)
}

// lines writes what a pass yields, a line each, sorted; the table's folder is
// written as DIR.
func lines(t testing.TB, tab *Table) []string {
	t.Helper()
	out := []string{}
	for e, err := range tab.Entries(t.Context()) {
		if err != nil {
			if !errors.As(err, new(*source.EntryError)) {
				out = append(out, "end")
			}
			out = append(out, strings.ReplaceAll("error "+err.Error(), filepath.Dir(tab.path), "DIR"))
			continue
		}
		data, err := tab.Read(t.Context(), e.Location, nil)
		if err != nil {
			t.Errorf("%q: %v", e.Path, err)
		}
		if int64(len(data)) != e.Size && e.Location.Name != "" {
			t.Errorf("%q has %d bytes, not %d", e.Path, len(data), e.Size)
		}
		line := fmt.Sprintf("%s.%s %s %q", e.Key, e.Field, e.Path, data)
		if e.Class != "" {
			line += " class " + e.Class
		}
		if e.Split != "" {
			line += " split " + e.Split
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

func openTable(t testing.TB, path string, cfg Config) *Table {
	t.Helper()
	tab, err := Open(path, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tab.Close(); err != nil {
			t.Error(err)
		}
	})
	return tab
}

func TestTables(t *testing.T) {
	for _, c := range []struct {
		name, file, text string
		images           []string
		cfg              Config
		numeric          bool
		want             []string
	}{
		{"csv", "x.csv", "path,label,caption,split\na/1.jpg,cat,\"a \"\"cat\"\"\nsits\",train\na/2.JPEG,dog,,val\n", []string{"a/1.jpg", "a/2.JPEG"}, Config{}, false, []string{
			`a/1.caption.txt a/1.caption.txt "a \"cat\"\nsits" split train`, `a/1.jpg a/1.jpg "a/1.jpg" class cat split train`, `a/2.jpg a/2.JPEG "a/2.JPEG" class dog split val`,
		}},
		{"tsv, other names, a mark, CR", "x.TSV", "\ufeffFileName\tClass\r\n1.jpg\t3\r\n2.jpg\t10\r\n3.jpg\t4.0\r\n", []string{"1.jpg", "2.jpg", "3.jpg"}, Config{}, true, []string{
			`1.jpg 1.jpg "1.jpg" class 3`, `2.jpg 2.jpg "2.jpg" class 10`, `3.jpg 3.jpg "3.jpg" class 4`,
		}},
		{"names that look like numbers", "x.csv", "path,label\n1.jpg,007\n2.jpg,8\n", []string{"1.jpg", "2.jpg"}, Config{}, false, []string{
			`1.jpg 1.jpg "1.jpg" class 007`, `2.jpg 2.jpg "2.jpg" class 8`,
		}},
		{"labels that are none", "x.csv", "path,label\n1.jpg,-1\n2.jpg,0.5\n3.jpg,\n4.jpg,5\n", []string{"4.jpg"}, Config{}, true, []string{
			`4.jpg 4.jpg "4.jpg" class 5`,
			`error "DIR/x.csv:2": its label, "-1", is no number of a class: these count from 0`,
			`error "DIR/x.csv:3": its label, "0.5", is no number of a class: these count from 0`, `error "DIR/x.csv:4": it has no label`,
		}},
		{"no labels", "x.csv", "path,label\n1.jpg,0.5\n", []string{"1.jpg"}, Config{LabelColumn: None}, false, []string{
			`1.jpg 1.jpg "1.jpg"`, `1.label.txt 1.label.txt "0.5"`,
		}},
		{"named columns", "x.csv", "f,y,part,id,path,a b\n1.jpg,y1,p,k.1,zz,s\n", []string{"1.jpg"}, Config{PathColumn: "f", LabelColumn: "y", SplitColumn: "part", KeyColumn: "id", Columns: []string{"path"}}, false, []string{
			`k%2E1.jpg 1.jpg "1.jpg" class y1 split p`, `k%2E1.path.txt 1.path.txt "zz" split p`,
		}},
		{"no other columns, numbered rows", "x.csv", "path,x,label\n1.jpg,x,a\n1.jpg,x,a\n", []string{"1.jpg"}, Config{Columns: []string{None}, KeyColumn: RowNumber}, false, []string{
			`000000000.jpg 1.jpg "1.jpg" class a`, `000000001.jpg 1.jpg "1.jpg" class a`,
		}},
		{"bad rows", "x.csv", "path,label,c,split\n1.jpg,a,x,s\n2.jpg,a\n\n3.jpg,b\"b,x,s\n../4.jpg,a,x,s\nnone.jpg,a,x,s\n,a,x,s\nnoext,a,x,s\n1.jpg,a,x,\n", []string{"1.jpg"}, Config{}, false, []string{
			`1.c.txt 1.c.txt "x" split s`, `1.jpg 1.jpg "1.jpg" class a split s`,
			`error "DIR/x.csv:3": it has 2 cells, and there are 4 columns`, `error "DIR/x.csv:5": bare " in non-quoted-field`,
			`error "DIR/x.csv:6": "../4.jpg": does not lie in "DIR"; name a root folder that holds all files`,
			`error "DIR/x.csv:8": it has no path`, `error "DIR/x.csv:9": "noext" has no extension, or no name before it`,
			`error "DIR/x.csv:10": it has no split`, `error "none.jpg": no such file or directory`,
		}},
		{"an open quote", "x.csv", "path,label\n1.jpg,\"a\n2.jpg,b\n3.jpg,c\n", nil, Config{}, false, []string{
			`error "DIR/x.csv:2": extraneous or missing " in quoted-field; so all up to line 4 is one row`,
		}},
		{"jsonl", "x.jsonl", `{"file_name":"1.jpg","label":0,"caption":"a\ncat","bbox":[[1, 2.50],[]],"ok":true,"w":1e3,"none":null,"json":"{}"}` + "\n\n" +
			`{"file_name":"2.jpg","label":12,"caption":3,"w":"x","meta":{"a": "<b>"}}` + "\n", []string{"1.jpg", "2.jpg"}, Config{}, true, []string{
			`1.bbox.json 1.bbox.json "[[1,2.50],[]]"`, `1.caption.txt 1.caption.txt "a\ncat"`, `1.jpg 1.jpg "1.jpg" class 0`, `1.json 1.json "{}"`, `1.ok.json 1.ok.json "true"`,
			`1.w.json 1.w.json "1e3"`, `2.caption.txt 2.caption.txt "3"`, `2.jpg 2.jpg "2.jpg" class 12`, `2.meta.json 2.meta.json "{\"a\":\"<b>\"}"`, `2.w.json 2.w.json "\"x\""`,
		}},
		{"jsonl with bad rows", "x.ndjson", "{\"path\":\"1.jpg\",\"label\":\"a\"}\n[1]\n{\"path\":\nnull\n{\"path\":7,\"label\":1}\n{\"path\":\"1.jpg\",\"label\":[1]}\n{\"label\":\"a\"}", []string{"1.jpg"}, Config{}, false, []string{
			`1.jpg 1.jpg "1.jpg" class a`, `error "DIR/x.ndjson:2": not a JSON object: json: cannot unmarshal array into Go value of type map[string]json.RawMessage`,
			`error "DIR/x.ndjson:3": not a JSON object: unexpected end of JSON input`, `error "DIR/x.ndjson:4": not a JSON object: null`,
			`error "DIR/x.ndjson:5": "7" is no path`, `error "DIR/x.ndjson:6": its label, "[1]", is neither a name nor a number; to keep such a column as a field, say that there are no labels`,
			`error "DIR/x.ndjson:7": it has no path`,
		}},
		{"a column that comes late", "x.jsonl", "{\"path\":\"1.jpg\"}\n{\"path\":\"1.jpg\",\"a b\":1}\n{\"path\":\"1.jpg\"}\n", []string{"1.jpg"}, Config{}, false, []string{
			`1.jpg 1.jpg "1.jpg"`, "end",
			`error table "DIR/x.jsonl": DIR/x.jsonl:2: rename these columns, or name the columns to keep as fields: column "a b": illegal name: field "a b.json": want words of a-z, 0-9, _, + and - separated by dots`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tab := openTable(t, write(t, c.file, c.text, c.images...), c.cfg)
			slices.Sort(c.want)
			for range 2 {
				if got := lines(t, tab); !slices.Equal(got, c.want) {
					t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(c.want, "\n\t"))
				}
				if tab.Numeric() != c.numeric {
					t.Errorf("numeric: %v", tab.Numeric())
				}
			}
		})
	}
}

func TestRoot(t *testing.T) {
	path := write(t, "x.csv", "path\n1.jpg\n", "images/1.jpg")
	root := filepath.Join(filepath.Dir(path), "images")
	if got := lines(t, openTable(t, path, Config{Root: root})); !slices.Equal(got, []string{`1.jpg 1.jpg "images/1.jpg"`}) {
		t.Errorf("%q", got)
	}
	abs := write(t, "x.csv", "path\n"+filepath.Join(root, "1.jpg")+"\n")
	if got := lines(t, openTable(t, abs, Config{Root: root})); !slices.Equal(got, []string{`1.jpg 1.jpg "images/1.jpg"`}) {
		t.Errorf("%q", got)
	}
}

func TestOpenErrors(t *testing.T) {
	for _, c := range []struct {
		name, file, text string
		cfg              Config
		want             string
	}{
		{"no such column", "x.csv", "path,label\n", Config{PathColumn: "img", LabelColumn: "y", Columns: []string{"z"}}, `there is no column "img" for the paths
there is no column "y" for the labels
there is no column "z"; its columns are ["path" "label"]`},
		{"no paths", "x.csv", "a,b\n", Config{}, `there is no column of paths (path, file_name, filename, image, file); name it; its columns are ["a" "b"]`},
		{"no paths in jsonl", "x.jsonl", `{"b":1,"a":2}`, Config{}, `its columns are ["a" "b"]`},
		{"illegal columns", "x.csv", "path,,a b,A,a\n", Config{}, `columns "A" and "a" would both be the field "a"`},
		{"empty", "x.csv", "", Config{}, "it is empty"},
		{"empty jsonl", "x.jsonl", "\n\n", Config{}, "it is empty"},
		{"no JSON", "x.jsonl", "path,label\n", Config{}, "not a JSON object"},
		{"UTF-16", "x.csv", "\xff\xfep\x00", Config{}, "UTF-16"},
		{"no Parquet", "x.parquet", "PAR1", Config{}, "no Parquet file"},
		{"ending", "x.txt", "", Config{}, `the ending ".txt" is none of`},
		{"config", "x.csv", "", Config{Workers: -1, PathColumn: "-", LabelColumn: "a", SplitColumn: "a", Columns: []string{"-", "x"}}, `column "a" is to be both label and split`},
	} {
		_, err := Open(write(t, c.file, c.text), c.cfg)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.file) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for _, name := range []string{"none.csv", "none.jsonl", "none.parquet"} {
		if _, err := Open(filepath.Join(t.TempDir(), name), Config{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An open quotation mark, or a line without an end, does not fill the memory.
func TestLongRows(t *testing.T) {
	endless := func(start, body string) io.Reader {
		return io.MultiReader(strings.NewReader(start), &repeat{text: body})
	}
	c, err := newCSV("x.csv", endless("path\n\"", "0123456789\n"), ',')
	if err != nil {
		t.Fatal(err)
	}
	if err := c.next(new(row)); !errors.Is(err, errLongRow) || errors.As(err, new(*source.EntryError)) {
		t.Error(err)
	}
	if _, err := newJSONL("x.jsonl", endless(`{"a":"`, "0123456789")); !errors.Is(err, errLongRow) {
		t.Error(err)
	}
	// A long one that is no longer than allowed.
	long := strings.Repeat("x", 300_000)
	j, err := newJSONL("x.jsonl", strings.NewReader(`{"path":"`+long+`"}`+"\n"+`{"path":"y"}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{long, "y"} {
		var r row
		if err := j.next(&r); err != nil || string(r.cells[0].data) != want {
			t.Errorf("%d bytes, %v", len(r.cells), err)
		}
	}
	if err := j.next(new(row)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// repeat is an endless text.
type repeat struct {
	text string
	at   int
}

func (r *repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = r.text[r.at]
		r.at = (r.at + 1) % len(r.text)
	}
	return len(p), nil
}

func TestLeaving(t *testing.T) {
	text := "path,label\n" + strings.Repeat("1.jpg,a\n", 20_000)
	tab := openTable(t, write(t, "x.csv", text, "1.jpg"), Config{})
	defer goleak.VerifyNone(t)
	n := 0
	for range tab.Entries(t.Context()) {
		if n++; n == 700 {
			break
		}
	}
	func() {
		defer func() {
			if recover() != "out" {
				t.Error("no panic")
			}
		}()
		for range tab.Entries(t.Context()) {
			panic("out")
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range tab.Entries(ctx) {
		cancel()
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Error(last)
	}
}

// python runs a script of pyarrow's in a new folder, which it returns.
func python(t *testing.T, script string) string {
	t.Helper()
	cmd := exec.Command(peers.Python(t), "-c", script)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "HF_HOME="+t.TempDir(), "HF_HUB_OFFLINE=1", "HF_DATASETS_DISABLE_PROGRESS_BARS=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return cmd.Dir
}

func TestParquetOfPyarrow(t *testing.T) {
	dir := python(t, `
import pyarrow as pa, pyarrow.parquet as pq, datetime, decimal
for name in ('1.jpg', '2.jpg'): open(name, 'w').write(name)
t = pa.table({
 'path': ['1.jpg', '2.jpg'],
 'label': pa.array([3, 10], pa.int64()),
 'caption': ['été', None],
 'l': pa.array([[1, 2], None], pa.list_(pa.int32())),
 'ls': pa.array([['x', None], []], pa.list_(pa.string())),
 'bb': pa.array([[[1.5, 2], [3, 4]], [[]]], pa.list_(pa.list_(pa.float32()))),
 's': pa.array([{'a': 1, 'b': '<x>'}, None], pa.struct([('a', pa.int64()), ('b', pa.string())])),
 'objs': pa.array([[{'d': datetime.date(2020, 1, 2), 'c': 1}], []], pa.list_(pa.struct([('d', pa.date32()), ('c', pa.uint8())]))),
 'm': pa.array([[('k', 2**63)], []], pa.map_(pa.string(), pa.uint64())),
 'us': pa.array([datetime.datetime(1960, 1, 2, 3, 4, 5, 6), None], pa.timestamp('us')),
 'ms': pa.array([datetime.datetime(2020, 1, 2, 3, 4, 5), None], pa.timestamp('ms', 'UTC')),
 'd': pa.array([datetime.date(2020, 1, 2), None], pa.date32()),
 'tm': pa.array([datetime.time(1, 2, 3, 40), None], pa.time64('us')),
 'dec': pa.array([decimal.Decimal('-1.23'), decimal.Decimal('99999999.99')], pa.decimal128(10, 2)),
 'dec64': pa.array([decimal.Decimal('-0.05'), None], pa.decimal128(18, 2)),
 'dec38': pa.array([decimal.Decimal('1234567890123456789012345678.0123456789'), decimal.Decimal('-0.0000000001')], pa.decimal128(38, 10)),
 'bin': pa.array([b'\x00\xff', b''], pa.binary()),
 'b': [True, False],
 'u64': pa.array([2**64 - 1, 0], pa.uint64()),
 'f': [float('nan'), 1e300],
 'whole': pa.array([2.0, None], pa.float32()),
 'cat': pa.array(['x', 'y']).dictionary_encode(),
 'large': pa.array(['x', None], pa.large_string()),
 '__index_level_0__': [0, 1],
})
pq.write_table(t, 't.parquet')
pq.write_table(t, 'small.parquet', row_group_size=1, store_decimal_as_integer=True, compression='zstd', data_page_version='2.0')
`)
	want := []string{
		`1.jpg 1.jpg "1.jpg" class 3`, `2.jpg 2.jpg "2.jpg" class 10`,
	}
	for _, f := range []string{
		`1.caption.txt été`, `1.l.json [1,2]`, `1.ls.json ["x",null]`, `1.bb.json [[1.5,2.0],[3.0,4.0]]`, `1.s.json {"a":1,"b":"<x>"}`,
		`1.objs.json [{"c":1,"d":"2020-01-02"}]`, `1.m.json {"k":9223372036854775808}`, `1.us.txt 1960-01-02T03:04:05.000006`, `1.ms.txt 2020-01-02T03:04:05Z`,
		`1.d.txt 2020-01-02`, `1.tm.txt 01:02:03.00004`, `1.dec.json -1.23`, `1.dec64.json -0.05`, `1.dec38.json 1234567890123456789012345678.0123456789`, "1.bin \x00\xff", `1.b.json true`, `1.u64.json 18446744073709551615`,
		`1.whole.json 2.0`, `1.cat.txt x`, `1.large.txt x`,
		`2.ls.json []`, `2.bb.json [[]]`, `2.objs.json []`, `2.m.json {}`, `2.dec.json 99999999.99`, `2.dec38.json -0.0000000001`, `2.bin `, `2.b.json false`, `2.u64.json 0`, `2.f.json 1e+300`, `2.cat.txt y`,
	} {
		name, value, _ := strings.Cut(f, " ")
		want = append(want, fmt.Sprintf("%s %s %q", name, name, value))
	}
	slices.Sort(want)
	for _, name := range []string{"t.parquet", "small.parquet"} {
		tab := openTable(t, filepath.Join(dir, name), Config{})
		if got := lines(t, tab); !slices.Equal(got, want) {
			t.Errorf("%s: got\n\t%s\nwant\n\t%s", name, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
		}
		if !tab.Numeric() {
			t.Error("not numeric")
		}
	}
}

// png is the beginning of a PNG, with something to tell one from another.
func png(i, size int) []byte {
	b := append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, size)...)
	binary.LittleEndian.PutUint64(b[8:], uint64(i))
	return b
}

func TestParquetOfHuggingFace(t *testing.T) {
	dir := python(t, `
import datasets, io, struct
from datasets import Features, Image, ClassLabel, Value
def png(i, size): return b'\x89PNG\r\n\x1a\n' + struct.pack('<Q', i) + bytes(size - 8)
def one(i):
    paths = {0: 'n/a.png', 1: '/home/me/b.PNG', 2: None, 3: 'noext'}
    return {'img': {'bytes': png(i, 20000 + i), 'path': paths.get(i, f'{i:05}.png')}, 'label': i % 3 - 1, 'mask': {'bytes': b'BM' + bytes([i % 256]), 'path': None} if i % 2 else None}
f = Features({'img': Image(decode=False), 'label': ClassLabel(names=['z', 'a']), 'mask': Image(decode=False)})
d = datasets.Dataset.from_list([one(i) for i in range(400)], features=f)
d.to_parquet('hf.parquet', batch_size=150)
import pyarrow.parquet as pq, pyarrow as pa
pq.write_table(pq.read_table('hf.parquet'), 'pages.parquet', row_group_size=170, data_page_size=64 << 10, write_batch_size=3, write_page_index=True, compression='none', use_dictionary=False)
pq.write_table(pa.table({'jpg': [b'\xff\xd8\xff' + bytes([i]) for i in range(3)] + [None], 'key': ['00' + str(i) for i in range(4)], 'caption': ['c'] * 4}), 'i2d.parquet')
`)
	for _, name := range []string{"hf.parquet", "pages.parquet"} {
		tab := openTable(t, filepath.Join(dir, name), Config{})
		if got := tab.Classes(); !slices.Equal(got, []string{"z", "a"}) {
			t.Errorf("classes %q", got)
		}
		var all []source.Entry
		for e, err := range tab.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
		if !tab.Numeric() || len(all) != 600 {
			t.Errorf("numeric %v, %d entries", tab.Numeric(), len(all))
		}
		// Read in the order of rows and in another.
		for _, step := range []int{1, 7} {
			for i := range all {
				e := all[i*step%len(all)]
				row := int(e.Offset >> rowShift)
				want, key := png(row, 20000+row), fmt.Sprintf("%05d.png", row)
				switch row {
				case 0:
					key = "n/a.png"
				case 1:
					key = "b.PNG"
				case 2:
					key = "000000002.png"
				case 3:
					key = "noext"
				}
				class := ""
				if row%3 > 0 {
					class = fmt.Sprint(row%3 - 1)
				}
				field := "png"
				if strings.HasPrefix(e.Field, "mask") {
					want, class, field = append([]byte("BM"), byte(row)), "", "mask.bmp"
					key = strings.TrimSuffix(key, filepath.Ext(key)) + ".mask.bmp"
				}
				got, err := tab.Read(t.Context(), e.Location, nil)
				if err != nil || !bytes.Equal(got, want) || e.Path != key || e.Class != class || e.Field != field {
					t.Fatalf("%s, row %d: %d bytes, %v, path %q, class %q, field %q", name, row, len(got), err, e.Path, e.Class, e.Field)
				}
			}
		}
		past := all[0].Location
		past.Offset = 400 << rowShift
		if _, err := tab.Read(t.Context(), past, nil); !errors.As(err, new(*source.EntryError)) {
			t.Error(err)
		}
		if err := os.Chtimes(filepath.Join(dir, name), time.Time{}, time.Unix(9, 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := tab.Read(t.Context(), all[0].Location, nil); !errors.Is(err, source.ErrChanged) {
			t.Error(err)
		}
	}
	want := []string{
		`000.caption.txt 000.caption.txt "c"`, `000.jpg 000.jpg "\xff\xd8\xff\x00"`, `001.caption.txt 001.caption.txt "c"`, `001.jpg 001.jpg "\xff\xd8\xff\x01"`,
		`002.caption.txt 002.caption.txt "c"`, `002.jpg 002.jpg "\xff\xd8\xff\x02"`, `error "DIR/i2d.parquet, row 3": it has no path`,
	}
	if got := lines(t, openTable(t, filepath.Join(dir, "i2d.parquet"), Config{})); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}

	// Cut anywhere, it is an error, and no panic.
	data, err := os.ReadFile(filepath.Join(dir, "i2d.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut.parquet")
	for n := range data {
		if err := os.WriteFile(cut, data[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(cut, Config{}); err == nil {
			t.Fatalf("cut after %d of %d bytes", n, len(data))
		}
	}
	// A changed byte, here and there, is no panic.
	for i := 0; i < len(data); i += 3 {
		flipped := bytes.Clone(data)
		flipped[i] ^= 0x55
		if err := os.WriteFile(cut, flipped, 0o644); err != nil {
			t.Fatal(err)
		}
		tab, err := Open(cut, Config{})
		if err != nil {
			continue
		}
		for e, err := range tab.Entries(t.Context()) {
			if err == nil {
				tab.Read(t.Context(), e.Location, nil)
			}
		}
		tab.Close()
	}
}

func fuzz(f *testing.F, newReader func(io.Reader) (reader, error)) {
	f.Fuzz(func(t *testing.T, text string) {
		r, err := newReader(strings.NewReader(text))
		if err != nil {
			return
		}
		tab := &Table{root: filepath.FromSlash("/r")}
		tab.open = func() (reader, error) { return r, nil }
		rows := 0
		tab.eachRow(func(b *builder, r *row, err error) bool {
			if err != nil {
				return true
			}
			items, err := b.items(nil, r)
			if err != nil {
				if !errors.As(err, new(*source.EntryError)) {
					t.Fatal(err)
				}
				return true
			}
			rows++
			// What is yielded can be grouped.
			for _, err := range source.Groups(func(yield func(source.Entry, error) bool) {
				for _, i := range items[:1] {
					yield(i.Entry, nil)
				}
			}) {
				if err != nil {
					t.Fatal(err)
				}
			}
			return true
		})
		if rows > len(text) {
			t.Fatalf("%d rows", rows)
		}
	})
}

type closer struct{}

func (closer) Close() error { return nil }

func FuzzCSV(f *testing.F) {
	f.Add("path,label,c\na.jpg,1,x\n\"b\nc.png\",2,\n")
	f.Add("\ufeffFile,Class\r\na.jpg,-1\r\n")
	fuzz(f, func(r io.Reader) (reader, error) {
		c, err := newCSV("x", r, ',')
		if err == nil {
			c.f = closer{}
		}
		return c, err
	})
}

func FuzzJSONL(f *testing.F) {
	f.Add(`{"path":"a.jpg","label":1,"c":[1,{"x":null}]}` + "\n" + `{"path":"b","n":1e5,"c":"x"}`)
	f.Add(`{"image":"\u0000.jpg","class":true}`)
	fuzz(f, func(r io.Reader) (reader, error) {
		j, err := newJSONL("x", r)
		if err == nil {
			j.f = closer{}
		}
		return j, err
	})
}

func BenchmarkCSV(b *testing.B) {
	var text strings.Builder
	text.WriteString("path,label,caption\n")
	const n = 100_000
	for i := range n {
		fmt.Fprintf(&text, "n%02d/%07d.jpg,%d,a photograph of something or other\n", i%50, i, i%50)
	}
	tab := openTable(b, write(b, "x.csv", text.String()), Config{})
	for b.Loop() {
		rows := 0
		err := tab.eachRow(func(build *builder, r *row, err error) bool {
			if err == nil {
				_, err = build.items(nil, r)
			}
			if err != nil {
				b.Fatal(err)
			}
			rows++
			return true
		})
		if err != nil || rows != n {
			b.Fatal(rows, err)
		}
	}
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
