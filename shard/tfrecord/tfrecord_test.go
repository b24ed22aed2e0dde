package tfrecord

import (
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

type written struct {
	sample.Sample
	facts *shard.Facts
}

// pack writes samples and returns the file and where they lie.
func pack(t testing.TB, samples []written) ([]byte, []shard.Placement) {
	t.Helper()
	var b bytes.Buffer
	w := Container{}.NewWriter(&b)
	var places []shard.Placement
	for i := range samples {
		p, err := w.Write(&samples[i].Sample, samples[i].facts)
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

func clone(l *shard.Located) shard.Located {
	c := *l
	c.Sample.Fields = slices.Clone(l.Sample.Fields)
	for i := range c.Sample.Fields {
		c.Sample.Fields[i].Data = bytes.Clone(c.Sample.Fields[i].Data)
	}
	c.Placement.Fields = slices.Clone(l.Placement.Fields)
	return c
}

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

// random makes samples of names and facts that stand in one another's way as often
// as can be.
func random(r *rand.Rand, n int) []written {
	names := []string{"bmp", "cls", "cls2", "features.json", "gif", "image", "jpeg", "jpg", "json", "key", "label", "png", "seg.png", "tif", "txt", "webp"}
	starts := []string{"", "\xff\xd8\xff\xe0", "\x89PNG\r\n\x1a\n", "GIF89a", "BM", "RIFF1234WEBP", "II*\x00", "7", "-3", "007", "+7", "9223372036854775808", "7\n"}
	all := make([]written, n)
	for i := range all {
		s := &all[i]
		s.Key = fmt.Sprintf("d%d/%06d", r.IntN(3), i)
		for _, name := range names {
			if r.IntN(3) > 0 {
				continue
			}
			data := []byte(starts[r.IntN(len(starts))])
			if r.IntN(2) == 0 {
				data = append(data, make([]byte, r.IntN(300))...)
			}
			if r.IntN(400) == 0 {
				data = append(data, make([]byte, r.IntN(1<<20))...)
			}
			s.Fields = append(s.Fields, sample.Field{Name: name, Data: data})
		}
		if len(s.Fields) == 0 {
			s.Fields = []sample.Field{{Name: "jpg"}}
		}
		if r.IntN(4) == 0 {
			continue
		}
		s.facts = &shard.Facts{Label: int64(r.IntN(10) - 1), Image: r.IntN(len(s.Fields)+1) - 1}
		if r.IntN(2) == 0 {
			s.facts.Format = []string{"jpeg", "png", "webp", "heic"}[r.IntN(4)]
			s.facts.Width, s.facts.Height, s.facts.Channels, s.facts.Colorspace = 640, 480, 3, "RGB"
		}
		if r.IntN(2) == 0 {
			s.facts.LabelName, s.facts.Path = "tench, Tinca tinca", "a/b/caf%E9.JPEG"
		}
	}
	return all
}

// TestRoundTrip: whatever the names, the data and the facts, the sample comes back,
// from where the placement says.
func TestRoundTrip(t *testing.T) {
	samples := random(rand.New(rand.NewPCG(1, 1)), 2000)
	file, places := pack(t, samples)
	all, err := scanAll(bytes.NewReader(file), noLimit)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(samples) {
		t.Fatalf("%d samples come back, want %d", len(all), len(samples))
	}
	end := int64(0)
	for i := range samples {
		s, p := &samples[i].Sample, &places[i]
		if !equal(s, &all[i].Sample) || !samePlace(p, &all[i].Placement) {
			t.Fatalf("sample %q with %+v:\n%.300q\ncomes back as\n%.300q\nat %+v, written at %+v", s.Key, samples[i].facts, s.Fields, all[i].Sample.Fields, all[i].Placement, p)
		}
		if p.Offset != end {
			t.Fatalf("sample %q begins at %d, want %d", s.Key, p.Offset, end)
		}
		end += p.Size
		for j, f := range s.Fields {
			switch at := p.Fields[j].Offset; {
			case at >= 0 && !bytes.Equal(file[at:at+p.Fields[j].Size], f.Data):
				t.Fatalf("sample %q: field %q is not at %d", s.Key, f.Name, at)
			case at < 0 && f.Name != "cls":
				t.Fatalf("sample %q: field %q is nowhere", s.Key, f.Name)
			}
		}
		l, err := Container{}.Parse(file[p.Offset:p.Offset+p.Size:p.Offset+p.Size], p.Offset)
		if err != nil {
			t.Fatal(err)
		}
		if !equal(s, &l.Sample) || !samePlace(p, &l.Placement) {
			t.Fatalf("sample %q is parsed as %+v", s.Key, l)
		}
	}
	if end != int64(len(file)) {
		t.Fatalf("the file has %d bytes, want %d", len(file), end)
	}
}

// TestSize: the promise of Container.Size, for samples as they are.
func TestSize(t *testing.T) {
	for _, n := range []int{0, 100, 10_000, 120_000, 5 << 20} {
		for _, many := range []int{0, 5, 40} {
			s := written{facts: &shard.Facts{Label: 999, LabelName: strings.Repeat("n", many), Path: strings.Repeat("p", many) + ".JPEG", Format: "jpeg", Colorspace: "RGB", Width: 4000, Height: 3000, Channels: 3}}
			s.Key = "n01440764/n01440764_10026"
			s.Fields = []sample.Field{{Name: "cls", Data: []byte("999")}, {Name: "jpg", Data: make([]byte, n)}}
			s.facts.Image = 1
			for i := range many {
				s.Fields = append(s.Fields, sample.Field{Name: fmt.Sprintf("x%03d.png", i), Data: make([]byte, n/10)})
			}
			for _, facts := range []*shard.Facts{s.facts, nil} {
				s.facts = facts
				_, places := pack(t, []written{s})
				var sizes []shard.FieldSize
				for _, f := range s.Fields {
					sizes = append(sizes, shard.FieldSize{Name: f.Name, Size: int64(len(f.Data))})
				}
				got, want := (Container{}).Size(s.Key, sizes), places[0].Size
				if d := max(got-want, want-got); d > want/100+512 {
					t.Errorf("%d bytes, %d more fields: Size says %d, it takes %d", n, many, got, want)
				}
			}
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	jpg := []sample.Field{{Name: "jpg", Data: []byte("x")}}
	var b bytes.Buffer
	w := Container{}.NewWriter(&b)
	for _, c := range []struct {
		s     sample.Sample
		facts *shard.Facts
		name  bool // wraps sample.ErrName
		want  string
	}{
		{sample.Sample{Key: "", Fields: jpg}, nil, true, "empty"},
		{sample.Sample{Key: "b", Fields: []sample.Field{{Name: "image/encoded"}}}, nil, true, "image/encoded"},
		{sample.Sample{Key: "b"}, nil, false, "no fields"},
		{sample.Sample{Key: "b", Fields: []sample.Field{{Name: "jpg"}, {Name: "cls"}}}, nil, false, "sorted"},
		{sample.Sample{Key: "b", Fields: []sample.Field{{Name: "jpg"}, {Name: "jpg"}}}, nil, false, "sorted"},
		{sample.Sample{Key: "b", Fields: jpg}, &shard.Facts{Image: 1}, false, "field 1 of 1"},
	} {
		_, err := w.Write(&c.s, c.facts)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, sample.ErrName) != c.name {
			t.Errorf("writing %+v: %v, want an error about %q", c.s, err, c.want)
		}
	}
	if _, err := w.Write(&sample.Sample{Key: "a", Fields: jpg}, nil); err != nil {
		t.Fatalf("after refusals: %v", err)
	}
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(&sample.Sample{Key: "c", Fields: jpg}, nil); err == nil {
		t.Error("Write after Close works")
	}
	want, _ := pack(t, []written{{Sample: sample.Sample{Key: "a", Fields: jpg}}})
	if !bytes.Equal(b.Bytes(), want) {
		t.Error("a refused sample has left traces")
	}
}
