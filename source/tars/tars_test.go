package tars

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shardify/index"
	"shardify/internal/peers"
	"shardify/sample"
	"shardify/shard"
	"shardify/shard/compress"
	"shardify/shard/formats"
	"shardify/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// writeShard writes samples into a file whose ending says its format.
func writeShard(t testing.TB, path string, samples ...sample.Sample) string {
	t.Helper()
	format, err := formats.OfFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z, err := compress.NewWriter(&b, format.Compression, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := format.Container.NewWriter(z)
	for _, s := range samples {
		at, err := w.Write(&s, &shard.Facts{Label: -1, Image: sample.Image(s.Fields, func(f sample.Field) string { return f.Name })})
		if err != nil {
			t.Fatal(err)
		}
		z.EndSample(at.Offset + at.Size)
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// one makes a sample of fields "name=content", sorted.
func one(key string, fields ...string) sample.Sample {
	s := sample.Sample{Key: key}
	for _, f := range fields {
		name, data, _ := strings.Cut(f, "=")
		s.Fields = append(s.Fields, sample.Field{Name: name, Data: []byte(data)})
	}
	return s
}

func openTars(t testing.TB, cfg Config, paths ...string) *Tars {
	t.Helper()
	src, err := Open(t.Context(), paths, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	})
	return src
}

// listing writes what a pass yields, a line each, sorted, with the contents read.
func listing(t testing.TB, src *Tars) []string {
	t.Helper()
	out := []string{}
	var entries []source.Entry
	for e, err := range src.Entries(t.Context()) {
		switch {
		case errors.As(err, new(*source.EntryError)):
			out = append(out, "error "+filepath.Base(err.Error()))
		case err != nil:
			t.Fatal(err)
		default:
			entries = append(entries, e)
		}
	}
	for _, e := range entries {
		data, err := src.Read(t.Context(), e.Location, nil)
		if err != nil || int64(len(data)) != e.Size {
			t.Errorf("%q: %d bytes of %d, %v", e.Path, len(data), e.Size, err)
		}
		line := fmt.Sprintf("%s %s %q", e.Key, e.Field, data[:min(len(data), 100)])
		if len(data) > 100 {
			line += fmt.Sprintf(" … %08x", index.FieldChecksum(data))
		}
		if e.Class != "" {
			line += " class " + e.Class
		}
		if e.Split != "" {
			line += " split " + e.Split
		}
		if want := e.Key + "." + e.Field; e.Path != want {
			t.Errorf("path %q, want %q", e.Path, want)
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

func check(t *testing.T, src *Tars, numeric bool, want ...string) {
	t.Helper()
	slices.Sort(want)
	for range 2 {
		if got := listing(t, src); !slices.Equal(got, want) {
			t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
		}
		if src.Numeric() != numeric {
			t.Errorf("numeric: %v", src.Numeric())
		}
	}
}

func TestFormats(t *testing.T) {
	for _, f := range formats.All() {
		t.Run(f.String(), func(t *testing.T) {
			dir := t.TempDir()
			writeShard(t, filepath.Join(dir, "a"+f.Extension()), one("n/1", "cls=3", "jpg=\xff\xd8\xffone", "json={}"), one("n/2", "cls=10", "jpg=\xff\xd8\xfftwo"))
			writeShard(t, filepath.Join(dir, "sub", "b"+f.Extension()), one("n/3", "jpg=\xff\xd8\xffthree"))
			src := openTars(t, Config{}, dir)
			check(t, src, true, `n/1 jpg "\xff\xd8\xffone" class 3`, `n/1 json "{}" class 3`, `n/2 jpg "\xff\xd8\xfftwo" class 10`, `n/3 jpg "\xff\xd8\xffthree"`)

			src = openTars(t, Config{ShardKeys: true, Split: "s"}, filepath.Join(dir, "a"+f.Extension()))
			check(t, src, true, `a/n/1 jpg "\xff\xd8\xffone" class 3 split s`, `a/n/1 json "{}" class 3 split s`, `a/n/2 jpg "\xff\xd8\xfftwo" class 10 split s`)
		})
	}
}

func TestClasses(t *testing.T) {
	path := writeShard(t, filepath.Join(t.TempDir(), "x.tar"),
		one("1", "cls=007\n", "jpg=a"), one("2", "cls=-1", "jpg=b"), one("3", "cls=-2", "jpg=c"), one("4", "cls=", "jpg=d"), one("5", "cls=\x80\x04", "jpg=e"), one("6", "cls=1"))
	check(t, openTars(t, Config{}, path), true, `1 jpg "a" class 7`, `2 jpg "b"`,
		`error x.tar, sample 3": its class is -2: numbers of classes count from 0`,
		`error x.tar, sample 4": its field cls, "", is neither a number nor a name`,
		`error x.tar, sample 5": its field cls, "\x80\x04", is neither a number nor a name`,
		`error x.tar, sample 6": it has no field but cls`)
	path = writeShard(t, filepath.Join(t.TempDir(), "x.tar"), one("1", "cls=7", "jpg=a"), one("2", "cls=a cat", "jpg=b"))
	check(t, openTars(t, Config{}, path), false, `1 jpg "a" class 7`, `2 jpg "b" class a cat`)
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a-0.tar", "a-1.tgz", "b/c.tar.zst", ".hidden/x.tar"} {
		writeShard(t, filepath.Join(dir, filepath.FromSlash(name)), one(strings.ReplaceAll(name, ".", "_"), "jpg=x"))
	}
	for _, c := range []struct{ pattern, want string }{
		{"a-*", "a-0_tar a-1_tgz"}, {"{a-1,b/*}.t*", "a-1_tgz b/c_tar_zst"}, {"**/*.tar*", "_hidden/x_tar a-0_tar b/c_tar_zst"}, {".", "a-0_tar a-1_tgz b/c_tar_zst"},
	} {
		var keys []string
		for e, err := range openTars(t, Config{}, filepath.Join(dir, filepath.FromSlash(c.pattern))).Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, e.Key)
		}
		slices.Sort(keys)
		if got := strings.Join(keys, " "); got != c.want {
			t.Errorf("%s: %s", c.pattern, got)
		}
	}
	a := filepath.Join(dir, "a-0.tar")
	if err := os.WriteFile(filepath.Join(dir, "x.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		paths []string
		cfg   Config
		want  string
	}{
		{nil, Config{}, "no shards are named"},
		{[]string{a, a}, Config{}, "named twice"},
		{[]string{filepath.Join(dir, "none.tar")}, Config{}, "no such file"},
		{[]string{filepath.Join(dir, "none*.tar")}, Config{}, "no shards"},
		{[]string{filepath.Join(dir, "[")}, Config{}, "syntax error"},
		{[]string{filepath.Join(dir, "x.txt")}, Config{}, "ending of a shard"},
		{[]string{t.TempDir()}, Config{}, "no shards"},
		{[]string{a}, Config{MaxSample: -1, Workers: -1}, "-1 workers"},
	} {
		if _, err := Open(t.Context(), c.paths, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.paths, err, c.want)
		}
	}
}

func TestStem(t *testing.T) {
	for _, c := range [][2]string{
		{"train-0.tar", "train-0"}, {"a.b.TAR.GZ", "a.b"}, {"x.tgz", "x"}, {"train.tfrecord-00000-of-00010", "train-00000-of-00010"}, {"x.tar.zst", "x"},
	} {
		f, err := formats.OfFile(c[0])
		if err != nil {
			t.Fatal(err)
		}
		if got := stem(&file{path: c[0], format: f}); got != c[1] {
			t.Errorf("%s: %q", c[0], got)
		}
	}
}

func TestDamage(t *testing.T) {
	dir := t.TempDir()
	path := writeShard(t, filepath.Join(dir, "a.tar"), one("1", "jpg=one"), one("2", "jpg=two"))
	writeShard(t, filepath.Join(dir, "b.tfrecord"), one("3", "jpg=three"))
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data[:1536+100], 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "c.tar"), 0o755); err != nil {
		t.Fatal(err)
	}
	src := openTars(t, Config{}, dir)
	keys := map[string]bool{}
	errs := 0
	for e, err := range src.Entries(t.Context()) {
		if err != nil {
			if !errors.Is(err, shard.ErrTruncated) || !errors.As(err, new(*source.EntryError)) || !strings.Contains(err.Error(), "a.tar") {
				t.Error(err)
			}
			errs++
			continue
		}
		keys[e.Key] = true
	}
	if errs != 1 || !keys["3"] {
		t.Errorf("%d errors, keys %v", errs, keys)
	}

	// A sample that is too large, and a shard that has gone.
	src = openTars(t, Config{MaxSample: 1000}, writeShard(t, filepath.Join(t.TempDir(), "x.tar"), one("1", "jpg="+strings.Repeat("x", 5000))))
	n := 0
	for _, err := range src.Entries(t.Context()) {
		if n++; !errors.As(err, new(*source.EntryError)) {
			t.Error(err)
		}
	}
	if n != 1 {
		t.Errorf("%d items", n)
	}
	if err := os.Remove(src.files[0].path); err != nil {
		t.Fatal(err)
	}
	for _, err := range src.Entries(t.Context()) {
		if !errors.Is(err, fs.ErrNotExist) || !errors.As(err, new(*source.EntryError)) {
			t.Error(err)
		}
	}
}

func TestReadErrors(t *testing.T) {
	for _, ending := range []string{".tar", ".tar.gz", ".tar.zst"} {
		path := writeShard(t, filepath.Join(t.TempDir(), "x"+ending), one("1", "jpg=one"))
		src := openTars(t, Config{}, path)
		var loc source.Location
		for e := range src.Entries(t.Context()) {
			loc = e.Location
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := src.Read(ctx, loc, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", ending, err)
		}
		stranger := loc
		stranger.Name = "/etc/passwd"
		if _, err := src.Read(t.Context(), stranger, nil); err == nil {
			t.Errorf("%s: a file that is no shard", ending)
		}
		for _, wrong := range []source.Location{
			{Name: loc.Name, Offset: loc.Offset, Size: -1, ModTime: loc.ModTime}, {Name: loc.Name, Offset: 1 << 40, Size: 9, ModTime: loc.ModTime},
		} {
			if _, err := src.Read(t.Context(), wrong, nil); !errors.As(err, new(*source.EntryError)) {
				t.Errorf("%s: %v", ending, err)
			}
		}
		if err := os.Chtimes(path, time.Time{}, time.Unix(9, 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := src.Read(t.Context(), loc, nil); !errors.Is(err, source.ErrChanged) || !errors.As(err, new(*source.EntryError)) {
			t.Errorf("%s: %v", ending, err)
		}
	}
}

// More shards than are kept open, read side by side and in no order.
func TestReadMany(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 * keptOpen {
		ending := []string{".tar.zst", ".tar.gz", ".tar.zst", ".tar"}[i%4]
		var samples []sample.Sample
		for j := range 20 {
			samples = append(samples, one(fmt.Sprintf("%d-%d", i, j), fmt.Sprintf("jpg=%d %d", i, j)))
		}
		writeShard(t, filepath.Join(dir, fmt.Sprintf("%d%s", i, ending)), samples...)
	}
	src := openTars(t, Config{Workers: 3}, dir)
	var all []source.Entry
	for e, err := range src.Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	if len(all) != 3*keptOpen*20 {
		t.Fatalf("%d entries", len(all))
	}
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			var buf []byte
			for i := range all {
				e := all[(i*37+g*11)%len(all)]
				var err error
				if buf, err = src.Read(t.Context(), e.Location, buf); err != nil || strings.Replace(string(buf), " ", "-", 1) != e.Key {
					t.Errorf("%s: %q, %v", e.Key, buf, err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(src.open.opened); n != keptOpen {
		t.Errorf("%d shards are open", n)
	}
}

func TestLeaving(t *testing.T) {
	dir := t.TempDir()
	for i := range 6 {
		var samples []sample.Sample
		for j := range 500 {
			samples = append(samples, one(fmt.Sprint(i, "-", j), "jpg=x"))
		}
		writeShard(t, filepath.Join(dir, fmt.Sprintf("%d.tar.gz", i)), samples...)
	}
	src := openTars(t, Config{Workers: 4}, dir)
	defer goleak.VerifyNone(t)
	n := 0
	for range src.Entries(t.Context()) {
		if n++; n == 300 {
			break
		}
	}
	if src.Numeric() {
		t.Error("numeric")
	}
	func() {
		defer func() {
			if recover() != "out" {
				t.Error("no panic")
			}
		}()
		for range src.Entries(t.Context()) {
			panic("out")
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range src.Entries(ctx) {
		cancel()
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Error(last)
	}
}

// What webdataset and TensorFlow write comes back whole.
func TestPeers(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(peers.Python(t), "-c", `
import webdataset as wds, os
os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
with wds.ShardWriter('w-%03d.tar.gz', maxcount=2) as w:
    for i in range(3):
        w.write({'__key__': f'./{i:06}', 'cls': i, 'seg.PNG': b'mask', 'input.jpg': bytes([i]), 'json': {'a': i}, 'txt': 'é'})
import tensorflow as tf
def b(x): return tf.train.Feature(bytes_list=tf.train.BytesList(value=[x]))
with tf.io.TFRecordWriter('t.tfrecord-00000-of-00001') as w:
    for i in range(2):
        w.write(tf.train.Example(features=tf.train.Features(feature={'image/encoded': b(b'\xff\xd8\xff' + bytes([i])), 'image/class/label': tf.train.Feature(int64_list=tf.train.Int64List(value=[i]))})).SerializeToString())
`)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var want []string
	for i := range 3 {
		for _, f := range []string{`input.jpg "\x0` + fmt.Sprint(i) + `"`, fmt.Sprintf(`json "{\"a\": %d}"`, i), `seg.png "mask"`, `txt "é"`} {
			want = append(want, fmt.Sprintf("w-%03d/%06d %s class %d", i/2, i, f, i))
		}
	}
	check(t, openTars(t, Config{ShardKeys: true}, filepath.Join(dir, "w-*")), true, want...)
	want = nil
	for e, err := range openTars(t, Config{ShardKeys: true}, filepath.Join(dir, "t.tfrecord-00000-of-00001")).Entries(t.Context()) {
		want = append(want, fmt.Sprint(e.Key, " ", e.Field, " ", e.Class, " ", err))
	}
	slices.Sort(want)
	if len(want) != 2 || want[0] != "t-00000-of-00001/record-000000000000 jpg 0 <nil>" {
		t.Errorf("%q", want)
	}
}
