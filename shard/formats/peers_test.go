package formats

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"image/color"
	"image/jpeg"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shardify/internal/peers"
	"shardify/sample"
	"shardify/shard"
	"shardify/shard/compress"
)

// digest is a sample as the scripts print it: the key, and the SHA-256 of each
// field.
type digest struct {
	key    string
	fields map[string]string
}

func (d *digest) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&d.key, &d.fields})
}

func digestOf(s *sample.Sample) digest {
	d := digest{s.Key, map[string]string{}}
	for _, f := range s.Fields {
		sum := sha256.Sum256(f.Data)
		d.fields[f.Name] = hex.EncodeToString(sum[:])
	}
	return d
}

func digests(samples []sample.Sample) (all []digest) {
	for i := range samples {
		all = append(all, digestOf(&samples[i]))
	}
	return all
}

// python runs a script and returns its lines, decoded.
func python[T any](t *testing.T, script string, args ...string) (lines []T) {
	t.Helper()
	cmd := exec.Command(peers.Python(t), append([]string{script}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), "TF_CPP_MIN_LOG_LEVEL=3", "CUDA_VISIBLE_DEVICES=")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, stderr.Bytes())
	}
	for scan := bufio.NewScanner(bytes.NewReader(out)); scan.Scan(); {
		var line T
		if err := json.Unmarshal(scan.Bytes(), &line); err != nil {
			t.Fatalf("%s printed %q: %v", script, scan.Text(), err)
		}
		lines = append(lines, line)
	}
	return lines
}

// photographs returns samples of real photographs.
func photographs(t *testing.T, n int) (samples []sample.Sample) {
	t.Helper()
	dir := peers.Photographs(t)
	files, err := filepath.Glob(filepath.Join(dir, "*.*"))
	if err != nil || len(files) < n {
		t.Fatalf("%d photographs in %s, want %d (%v)", len(files), dir, n, err)
	}
	for i, file := range files[:n] {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		stem, _, _ := strings.Cut(filepath.Base(file), ".")
		samples = append(samples, sample.Sample{Key: "train/" + sample.KeyOf(stem), Fields: []sample.Field{
			{Name: "cls", Data: fmt.Append(nil, i)}, {Name: "jpg", Data: data}, {Name: "json", Data: fmt.Appendf(nil, `{"n": %d}`, i)},
		}})
	}
	return samples
}

// write packs samples as pack does: container, compression, boundaries.
func write(t *testing.T, f Format, file string, samples []sample.Sample, facts []shard.Facts) {
	t.Helper()
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	z, err := compress.NewWriter(out, f.Compression, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := f.Container.NewWriter(z)
	for i := range samples {
		var known *shard.Facts
		if facts != nil {
			known = &facts[i]
		}
		p, err := w.Write(&samples[i], known)
		if err != nil {
			t.Fatal(err)
		}
		z.EndSample(p.Offset + p.Size)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}

// read returns the samples of a file, by Scan; and holds what Parse makes of the
// bytes at their placements to them.
func read(t *testing.T, file string) (samples []sample.Sample) {
	t.Helper()
	f, err := OfFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	z, err := compress.NewReader(bytes.NewReader(data), f.Compression)
	if err != nil {
		t.Fatal(err)
	}
	at, err := compress.NewReaderAt(bytes.NewReader(data), int64(len(data)), f.Compression)
	if err != nil {
		t.Fatal(err)
	}
	for l, err := range f.Container.Scan(z, 1<<30) {
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		s := sample.Sample{Key: l.Key}
		for _, field := range l.Sample.Fields {
			s.Fields = append(s.Fields, sample.Field{Name: field.Name, Data: bytes.Clone(field.Data)})
		}
		frame := make([]byte, l.Size)
		if n, err := at.ReadAt(frame, l.Offset); n < len(frame) {
			t.Fatalf("%s: sample %q: %v", file, l.Key, err)
		}
		p, err := f.Container.Parse(frame, l.Offset)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !reflect.DeepEqual(digestOf(&p.Sample), digestOf(&s)) || p.Offset != l.Offset || p.Size != l.Size || !slices.Equal(p.Placement.Fields, l.Placement.Fields) {
			t.Fatalf("%s: sample %q is parsed as %q at %+v, want %+v", file, l.Key, p.Key, p.Placement, l.Placement)
		}
		samples = append(samples, s)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return samples
}

// compare holds samples to what they should be.
func compare(t *testing.T, what string, got, want []digest) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d samples, want %d", what, len(got), len(want))
		return
	}
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("%s: sample %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// TestPeersReadTar: webdataset, Hugging Face datasets and Python's tarfile read our
// shards.
func TestPeersReadTar(t *testing.T) {
	dir := t.TempDir()
	uniform := photographs(t, 30)
	mixed := append(photographs(t, 30),
		sample.Sample{Key: strings.Repeat("d/", 90) + strings.Repeat("x", 120), Fields: []sample.Field{{Name: "a.b", Data: []byte("1")}, {Name: "jpg"}}},
		sample.Sample{Key: "café/漢", Fields: []sample.Field{{Name: "txt", Data: []byte("é")}}},
		sample.Sample{Key: strings.Repeat("漢/", 40) + "字", Fields: []sample.Field{{Name: "txt", Data: []byte("é")}}},
		sample.Sample{Key: "a b'\"\\*", Fields: []sample.Field{{Name: "txt"}}})
	for _, name := range []string{"tar", "tar.gz", "tar.zst"} {
		f, err := Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, f, filepath.Join(dir, "x"+f.Extension()), mixed, nil)
		write(t, f, filepath.Join(dir, "uniform"+f.Extension()), uniform, nil)
		compare(t, name, digests(read(t, filepath.Join(dir, "x"+f.Extension()))), digests(mixed))
	}
	type line struct {
		Reader  string
		Samples []digest
	}
	lines := python[line](t, "testdata/tar_read.py", dir)
	if len(lines) != 7 {
		t.Errorf("%d readers, want 7", len(lines))
	}
	for _, l := range lines {
		want := mixed
		if strings.Contains(l.Reader, "uniform") {
			want = uniform
		}
		compare(t, l.Reader, l.Samples, digests(want))
	}
}

// TestGNUTarReads: tar, gzip and zstd take our shards without a word of complaint,
// and the files come out as they went in.
func TestGNUTarReads(t *testing.T) {
	tar := peers.Program(t, "tar")
	samples := append(photographs(t, 10),
		sample.Sample{Key: strings.Repeat("d/", 90) + strings.Repeat("x", 120), Fields: []sample.Field{{Name: "jpg", Data: []byte("1")}}},
		sample.Sample{Key: "café/漢", Fields: []sample.Field{{Name: "txt", Data: []byte("é")}}})
	for _, c := range []struct {
		format, program string
	}{{"tar", ""}, {"tar.gz", "gzip"}, {"tar.zst", "zstd"}} {
		dir := t.TempDir()
		f, err := Parse(c.format)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "x"+f.Extension())
		write(t, f, file, samples, nil)
		quiet := func(name string, args ...string) {
			t.Helper()
			if out, err := exec.Command(name, args...).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s %s: %v\n%s", name, args, err, out)
			}
		}
		if c.program != "" {
			quiet(peers.Program(t, c.program), "-tq", file)
		}
		out := filepath.Join(dir, "out")
		if err := os.Mkdir(out, 0o755); err != nil {
			t.Fatal(err)
		}
		quiet(tar, "-xf", file, "-C", out)
		for _, s := range samples {
			for _, field := range s.Fields {
				got, err := os.ReadFile(filepath.Join(out, filepath.FromSlash(sample.Join(s.Key, field.Name))))
				if err != nil || !bytes.Equal(got, field.Data) {
					t.Errorf("%s: %s.%s comes out with %d bytes, want %d (%v)", c.format, s.Key, field.Name, len(got), len(field.Data), err)
				}
			}
		}
	}
}

// TestPeersWriteTar: we read what webdataset's writers, Python's tarfile and GNU tar
// write.
func TestPeersWriteTar(t *testing.T) {
	dir := t.TempDir()
	type line struct {
		File    string
		Samples []digest
	}
	lines := python[line](t, "testdata/tar_write.py", dir, peers.Photographs(t))
	if len(lines) != 7 {
		t.Errorf("%d files, want 7", len(lines))
	}
	for _, l := range lines {
		compare(t, l.File, digests(read(t, filepath.Join(dir, l.File))), l.Samples)
	}

	samples := photographs(t, 10)
	tree := filepath.Join(dir, "tree")
	for _, s := range samples {
		for _, field := range s.Fields {
			file := filepath.Join(tree, filepath.FromSlash(sample.Join(s.Key, field.Name)))
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, field.Data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range samples {
		samples[i].Key = "./" + samples[i].Key
	}
	for _, format := range []string{"gnu", "pax", "ustar", "v7"} {
		for _, c := range []struct{ ending, flag string }{{".tar", ""}, {".tar.gz", "--gzip"}, {".tar.zst", "--zstd"}} {
			file := filepath.Join(dir, format+c.ending)
			args := []string{"-cf", file, "--sort=name", "--format=" + format, "-C", tree, "."}
			if c.flag != "" {
				args = append(args, c.flag)
			}
			if out, err := exec.Command(peers.Program(t, "tar"), args...).CombinedOutput(); err != nil {
				t.Fatalf("tar %s: %v\n%s", args, err, out)
			}
			compare(t, filepath.Base(file), digests(read(t, file)), digests(samples))
		}
	}
}

// TestTruncatedShards: a shard that is cut shows an error of the promised kind
// through every compression, and never a wrong sample.
func TestTruncatedShards(t *testing.T) {
	var samples []sample.Sample
	for i := range 20 {
		samples = append(samples, sample.Sample{Key: fmt.Sprintf("k%03d", i), Fields: []sample.Field{{Name: "cls", Data: fmt.Append(nil, i)}, {Name: "txt", Data: bytes.Repeat([]byte("text "), i*20)}}})
	}
	want := digests(samples)
	for _, f := range All() {
		file := filepath.Join(t.TempDir(), "x"+f.Extension())
		write(t, f, file, samples, nil)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; n < len(data); n += 1 + len(data)/200 {
			z, err := compress.NewReader(bytes.NewReader(data[:n]), f.Compression)
			if err != nil {
				t.Fatal(err)
			}
			i := 0
			for l, err := range f.Container.Scan(z, 1<<30) {
				if err != nil {
					if err == io.EOF {
						t.Errorf("%s, cut at %d: a bare io.EOF", f, n)
					}
					break
				}
				// The last one may lack fields, where the cut is between two.
				if got := digestOf(&l.Sample); !reflect.DeepEqual(got, want[i]) && len(got.fields) == 2 {
					t.Errorf("%s, cut at %d: sample %d is %v, want %v", f, n, i, got, want[i])
				}
				i++
			}
		}
	}
}

// TestTensorFlowReads: TensorFlow reads our records, features and all, and would
// have serialised them to the same bytes.
func TestTensorFlowReads(t *testing.T) {
	dir := t.TempDir()
	samples := photographs(t, 12)
	var facts []shard.Facts
	for i, s := range samples {
		config, err := jpeg.DecodeConfig(bytes.NewReader(s.Fields[1].Data))
		if err != nil {
			t.Fatal(err)
		}
		f := shard.Facts{Label: int64(i), LabelName: "tench, é", Path: "a/b/" + filepath.Base(s.Key) + ".JPEG", Image: 1, Format: "jpeg", Colorspace: "RGB", Width: config.Width, Height: config.Height, Channels: 3}
		if config.ColorModel == color.GrayModel {
			f.Channels, f.Colorspace = 1, "Gray"
		}
		facts = append(facts, f)
	}
	for _, name := range []string{"tfrecord", "tfrecord.gz", "tfrecord.zst"} {
		f, err := Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "x"+f.Extension())
		write(t, f, file, samples, facts)
		compare(t, name, digests(read(t, file)), digests(samples))
	}
	type line struct {
		File    string
		Samples []digest
		Facts   []map[string]any
		Same    bool
	}
	lines := python[line](t, "testdata/tfrecord_read.py", dir)
	if len(lines) != 2 {
		t.Errorf("%d files, want 2", len(lines))
	}
	want := digests(samples)
	for i := range want {
		delete(want[i].fields, "cls")
	}
	for _, l := range lines {
		if !l.Same {
			t.Errorf("%s: protobuf would have serialised the records to other bytes", l.File)
		}
		compare(t, l.File, l.Samples, want)
		for i, got := range l.Facts {
			f := facts[i]
			want := map[string]any{
				"key": samples[i].Key, "image/format": "JPEG", "image/filename": filepath.Base(f.Path), "image/colorspace": f.Colorspace,
				"image/height": float64(f.Height), "image/width": float64(f.Width), "image/channels": float64(f.Channels),
				"image/class/label": float64(f.Label), "image/class/text": f.LabelName,
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: record %d has\n%v, want\n%v", l.File, i, got, want)
			}
		}
	}
}

// TestTensorFlowWrites: we read what TensorFlow writes, in the layouts of ImageNet,
// TensorFlow Datasets and img2dataset.
func TestTensorFlowWrites(t *testing.T) {
	dir := t.TempDir()
	type line struct {
		File    string
		Samples []digest
	}
	lines := python[line](t, "testdata/tfrecord_write.py", dir, peers.Photographs(t))
	if len(lines) != 5 {
		t.Errorf("%d files, want 5", len(lines))
	}
	for _, l := range lines {
		compare(t, l.File, digests(read(t, filepath.Join(dir, l.File))), l.Samples)
	}
}
