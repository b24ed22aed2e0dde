package tar

import (
	stdtar "archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"shardify/sample"
	"shardify/shard"
)

const noLimit = 1 << 40

// pack writes samples and returns the archive and where they lie.
func pack(t testing.TB, samples []sample.Sample) ([]byte, []shard.Placement) {
	t.Helper()
	var b bytes.Buffer
	w := Container{}.NewWriter(&b)
	var places []shard.Placement
	for i := range samples {
		p, err := w.Write(&samples[i], nil)
		if err != nil {
			t.Fatal(err)
		}
		p.Fields = slices.Clone(p.Fields)
		places = append(places, p)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), places
}

// clone copies what Scan yields.
func clone(l *shard.Located) shard.Located {
	c := *l
	c.Sample.Fields = slices.Clone(l.Sample.Fields)
	for i := range c.Sample.Fields {
		c.Sample.Fields[i].Data = bytes.Clone(c.Sample.Fields[i].Data)
	}
	c.Placement.Fields = slices.Clone(l.Placement.Fields)
	return c
}

// scanAll collects what a scan yields, up to its error.
// scanAll collects what Scan yields. Of what is in memory, Load must yield the same,
// with the same error.
func scanAll(r io.Reader, limit int64) (all []shard.Located, err error) {
	var file []byte
	if b, ok := r.(*bytes.Reader); ok {
		file, _ = io.ReadAll(b)
		b.Reset(file)
	}
	for l, e := range (Container{}).Scan(r, limit) {
		if err = e; e != nil {
			break
		}
		all = append(all, clone(l))
	}
	if file != nil {
		if differs := sameAsLoad(file, all, err); differs != nil {
			return nil, differs
		}
	}
	return all, err
}

// sameAsLoad compares what Scan yields of a file with what Load does. Load knows no
// limit, and leaves it to the caller to find fields that come twice.
func sameAsLoad(file []byte, all []shard.Located, want error) error {
	more := want != nil && (strings.Contains(want.Error(), "twice") || strings.Contains(want.Error(), "limit"))
	n := 0
	asked := int64(0)
	room := func(_ string, old []byte, n int64) ([]byte, error) {
		if len(old) == 0 && n > shard.FirstRoom || len(old) > 0 && n > 4*int64(len(old)) {
			return nil, fmt.Errorf("asks for %d bytes, having %d", n, len(old))
		}
		asked += n - int64(len(old))
		return append(make([]byte, 0, n), old...)[:n], nil
	}
	for l, err := range (Container{}).Load(bytes.NewReader(file), room) {
		switch {
		case more && n == len(all):
			return nil
		case err != nil && (want == nil || err.Error() != want.Error()):
			return fmt.Errorf("Load: %v, Scan: %v", err, want)
		case err != nil:
			want = nil
		case n == len(all) || !equal(&l.Sample, &all[n].Sample) || !samePlace(&l.Placement, &all[n].Placement):
			return fmt.Errorf("Load: sample %d is %q at %d, not as Scan has it", n, l.Key, l.Offset)
		default:
			n++
		}
	}
	if want != nil && !more || n != len(all) || asked > int64(len(file))+shard.FirstRoom {
		return fmt.Errorf("Load has %d samples, Scan %d (%v); it asks for %d bytes", n, len(all), want, asked)
	}
	return nil
}

func equal(a, b *sample.Sample) bool {
	return a.Key == b.Key && slices.EqualFunc(a.Fields, b.Fields, func(a, b sample.Field) bool {
		return a.Name == b.Name && bytes.Equal(a.Data, b.Data)
	})
}

func samePlace(a, b *shard.Placement) bool {
	return a.Offset == b.Offset && a.Size == b.Size && slices.Equal(a.Fields, b.Fields)
}

// awkward holds samples whose names and sizes stand on every edge of the format.
func awkward() []sample.Sample {
	r := rand.New(rand.NewPCG(1, 2))
	data := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	var all []sample.Sample
	for _, n := range []int{0, 1, 511, 512, 513, 10_000, 256<<10 - 1, 256 << 10, 256<<10 + 1, 1<<20 + 5} {
		all = append(all, sample.Sample{Key: fmt.Sprintf("n%08d/size", n), Fields: []sample.Field{
			{Name: "cls", Data: []byte("7")}, {Name: "jpg", Data: data(n)}, {Name: "seg.png", Data: data(n / 3)},
		}})
	}
	dir := strings.Repeat("d", 49) + "/"
	for _, n := range []int{1, 95, 96, 97, 98, 99, 100, 101, 154, 155, 156, 157, 251, 252, 253, 254, 255, 256, 257, 300, 4096} {
		key := strings.Repeat(dir, 82)[:n-1] + "x"
		key = strings.ReplaceAll(key, "/x", "yx")
		all = append(all, sample.Sample{Key: key, Fields: []sample.Field{{Name: "jpg", Data: data(n)}}})
		flat := strings.Repeat("f", n)
		all = append(all, sample.Sample{Key: flat, Fields: []sample.Field{{Name: "jpg", Data: data(n)}}})
	}
	for _, key := range []string{"café/ü", strings.Repeat("é", 60), strings.Repeat("é/", 60) + "é", strings.Repeat("a", 99) + "/x/" + strings.Repeat("b", 99)} {
		all = append(all, sample.Sample{Key: key, Fields: []sample.Field{{Name: "txt", Data: data(3)}, {Name: "x", Data: nil}}})
	}
	return all
}

func TestRoundTrip(t *testing.T) {
	samples := awkward()
	archive, places := pack(t, samples)
	all, err := scanAll(bytes.NewReader(archive), noLimit)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(samples) {
		t.Fatalf("%d samples come back, want %d", len(all), len(samples))
	}
	end := int64(0)
	for i := range samples {
		s, p := &samples[i], &places[i]
		if !equal(s, &all[i].Sample) || !samePlace(p, &all[i].Placement) {
			t.Fatalf("sample %q comes back as %q, at %+v, written at %+v", s.Key, all[i].Key, all[i].Placement, p)
		}
		if p.Offset != end {
			t.Fatalf("sample %q begins at %d, want %d", s.Key, p.Offset, end)
		}
		end += p.Size
		var sizes []shard.FieldSize
		for j, f := range s.Fields {
			sizes = append(sizes, shard.FieldSize{Name: f.Name, Size: int64(len(f.Data))})
			at := p.Fields[j].Offset
			if at%blockSize != 0 || !bytes.Equal(archive[at:at+p.Fields[j].Size], f.Data) {
				t.Fatalf("sample %q: field %q is not at %d", s.Key, f.Name, at)
			}
		}
		if got := (Container{}).Size(s.Key, sizes); got != p.Size {
			t.Fatalf("sample %q: Size says %d, it takes %d", s.Key, got, p.Size)
		}
		l, err := Container{}.Parse(archive[p.Offset:p.Offset+p.Size:p.Offset+p.Size], p.Offset)
		if err != nil {
			t.Fatal(err)
		}
		if !equal(s, &l.Sample) || !samePlace(p, &l.Placement) {
			t.Fatalf("sample %q is parsed as %q at %+v", s.Key, l.Key, l.Placement)
		}
		for j := range l.Sample.Fields {
			if d := l.Sample.Fields[j].Data; len(d) > 0 && &d[0] != &archive[p.Fields[j].Offset] {
				t.Fatalf("sample %q: Parse has copied field %d", s.Key, j)
			}
		}
	}
	if want := end + 2*blockSize; int64(len(archive)) != want {
		t.Fatalf("the archive has %d bytes, want %d", len(archive), want)
	}
}

// TestStandardWriter holds our writer to the bytes that archive/tar writes, for all
// names but those that it puts into PAX headers only because they are not ASCII.
func TestStandardWriter(t *testing.T) {
	var want bytes.Buffer
	w := stdtar.NewWriter(&want)
	var samples []sample.Sample
	for _, s := range awkward() {
		name := sample.Join(s.Key, s.Fields[0].Name)
		ascii := !strings.Contains(name, "é") && !strings.Contains(name, "ü")
		if _, fits := splitPoint(s.Key, len(name)); fits && !ascii {
			continue
		}
		samples = append(samples, s)
		for _, f := range s.Fields {
			h := &stdtar.Header{Typeflag: stdtar.TypeReg, Name: sample.Join(s.Key, f.Name), Size: int64(len(f.Data)), Mode: 0o444}
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(f.Data); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, _ := pack(t, samples)
	if !bytes.Equal(got, want.Bytes()) {
		at := 0
		for got[at] == want.Bytes()[at] {
			at++
		}
		block := at / blockSize * blockSize
		t.Fatalf("differs from archive/tar at %d:\n%q\n%q", at, got[block:block+blockSize], want.Bytes()[block:block+blockSize])
	}
}

// TestStandardWriterHuge does the same for headers of members that are too large to
// write here.
func TestStandardWriterHuge(t *testing.T) {
	for _, size := range []int64{ustarSize - 1, ustarSize, 1 << 40} {
		for _, key := range []string{"k", strings.Repeat("d/", 60) + "k", strings.Repeat("k", 200), strings.Repeat("é", 20)} {
			var want, got bytes.Buffer
			w := stdtar.NewWriter(&want)
			h := &stdtar.Header{Typeflag: stdtar.TypeReg, Name: key + ".bin", Size: size, Mode: 0o444}
			if strings.HasPrefix(key, "é") && size < ustarSize {
				continue
			}
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			ours := newWriter(&got)
			ours.header(key, "bin", size)
			ours.out.Flush()
			if !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Errorf("%q of %d bytes: the header differs from that of archive/tar:\n%q\n%q", key, size, got.Bytes(), want.Bytes())
			}
			if n := memberSize(key, "bin", size); n != int64(got.Len())+padded(size) {
				t.Errorf("%q of %d bytes: Size says %d, it takes %d", key, size, n, int64(got.Len())+padded(size))
			}
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	jpg := []sample.Field{{Name: "jpg", Data: []byte("x")}}
	var b bytes.Buffer
	w := Container{}.NewWriter(&b)
	good := &sample.Sample{Key: "a", Fields: jpg}
	if _, err := w.Write(good, nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		s    sample.Sample
		name bool // wraps sample.ErrName
		want string
	}{
		{sample.Sample{Key: "", Fields: jpg}, true, "empty"},
		{sample.Sample{Key: "../a", Fields: jpg}, true, ".."},
		{sample.Sample{Key: "b.c", Fields: jpg}, true, "dot"},
		{sample.Sample{Key: "b", Fields: []sample.Field{{Name: "JPG"}}}, true, "JPG"},
		{sample.Sample{Key: "b", Fields: []sample.Field{{Name: "a/b"}}}, true, "a/b"},
		{sample.Sample{Key: "b"}, false, "no fields"},
		{sample.Sample{Key: "b", Fields: []sample.Field{{Name: "jpg"}, {Name: "cls"}}}, false, "sorted"},
		{sample.Sample{Key: "b", Fields: []sample.Field{{Name: "jpg"}, {Name: "jpg"}}}, false, "sorted"},
		{sample.Sample{Key: "a", Fields: jpg}, false, "twice in a row"},
	} {
		_, err := w.Write(&c.s, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, sample.ErrName) != c.name {
			t.Errorf("writing %+v: %v, want an error about %q", c.s, err, c.want)
		}
	}
	if _, err := w.Write(&sample.Sample{Key: "b", Fields: jpg}, nil); err != nil {
		t.Fatalf("after refusals: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	if _, err := w.Write(&sample.Sample{Key: "c", Fields: jpg}, nil); err == nil {
		t.Error("Write after Close works")
	}
	want, _ := pack(t, []sample.Sample{{Key: "a", Fields: jpg}, {Key: "b", Fields: jpg}})
	if !bytes.Equal(b.Bytes(), want) {
		t.Error("a refused sample has left traces")
	}
}

// TestLoad: memory comes from the caller, piece by piece for a large field; what it
// gives none for is skipped, by a reader that can without being read.
func TestLoad(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 21<<16) // 21 MiB
	archive, places := pack(t, []sample.Sample{
		{Key: "a", Fields: []sample.Field{{Name: "bin", Data: large}, {Name: "cls", Data: []byte("7")}, {Name: "txt"}}},
		{Key: "b", Fields: []sample.Field{{Name: "bin", Data: large[:1<<20]}, {Name: "cls", Data: []byte("8")}}},
	})
	var asked []int64
	n := 0
	for l, err := range (Container{}).Load(bytes.NewReader(archive), func(field string, old []byte, n int64) ([]byte, error) {
		if field == "bin" {
			asked = append(asked, n)
		}
		return append(old, make([]byte, n-int64(len(old)))...), nil
	}) {
		if err != nil {
			t.Fatal(err)
		}
		if want := large[:len(l.Sample.Fields[0].Data)]; !bytes.Equal(l.Sample.Fields[0].Data, want) || !samePlace(&l.Placement, &places[n]) {
			t.Errorf("sample %q differs", l.Key)
		}
		n++
	}
	if want := []int64{4 << 20, 16 << 20, 21 << 20, 1 << 20}; n != 2 || !slices.Equal(asked, want) {
		t.Errorf("%d samples; room was asked for %d bytes, want %d", n, asked, want)
	}

	// Without the large fields.
	r := &skipping{Reader: bytes.NewReader(archive)}
	var cls string
	for l, err := range (Container{}).Load(r, func(field string, _ []byte, n int64) ([]byte, error) {
		if field == "bin" {
			return nil, nil
		}
		return make([]byte, n), nil
	}) {
		if err != nil || l.Sample.Fields[0].Data != nil || l.Placement.Fields[0].Size < 1<<20 || l.Sample.Fields[1].Name != "cls" {
			t.Fatalf("%v, %v", l, err)
		}
		cls += string(l.Sample.Fields[1].Data)
	}
	if cls != "78" || r.read > 300<<10 {
		t.Errorf("cls are %q; %d bytes were read of %d", cls, r.read, len(archive))
	}
	// Skipping must not hide that the archive is cut.
	for _, end := range []int{len(large) / 2, len(large) + 600, len(archive) - 512*5} {
		r := &skipping{Reader: bytes.NewReader(archive[:end])}
		var last error
		for _, last = range (Container{}).Load(r, func(string, []byte, int64) ([]byte, error) { return nil, nil }) {
		}
		if !errors.Is(last, shard.ErrTruncated) {
			t.Errorf("cut at %d: %v", end, last)
		}
	}
	fault := errors.New("no room")
	for _, err := range (Container{}).Load(bytes.NewReader(archive), func(string, []byte, int64) ([]byte, error) { return nil, fault }) {
		if err != fault {
			t.Errorf("%v, want %v", err, fault)
		}
	}
}

type skipping struct {
	*bytes.Reader
	read int
}

func (s *skipping) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.read += n
	return n, err
}

func (s *skipping) Skip(n int64) (int64, error) {
	if left := int64(s.Len()); n > left {
		s.Reader.Seek(0, io.SeekEnd)
		return left, io.EOF
	}
	_, err := s.Seek(n, io.SeekCurrent)
	return n, err
}
