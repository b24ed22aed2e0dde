package tar

import (
	stdtar "archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"shardify/sample"
	"shardify/shard"
)

// entry is a member of an archive that archive/tar writes.
type entry struct {
	name string
	data string
	kind byte // 0 means a regular file
	mod  func(*stdtar.Header)
}

func standard(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := stdtar.NewWriter(&b)
	for _, e := range entries {
		h := &stdtar.Header{Typeflag: stdtar.TypeReg, Name: e.name, Size: int64(len(e.data)), Mode: 0o644, Uname: "someone", Uid: 1000, ModTime: time.Unix(1e9, 5)}
		if e.kind != 0 {
			h.Typeflag = e.kind
		}
		if e.mod != nil {
			e.mod(h)
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// brief writes samples as "key{field=data field=data}".
func brief(all []shard.Located) string {
	var b strings.Builder
	for _, l := range all {
		fmt.Fprintf(&b, "%s{", l.Key)
		for i, f := range l.Sample.Fields {
			if i > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(&b, "%s=%s", f.Name, f.Data)
		}
		b.WriteString("} ")
	}
	return strings.TrimSpace(b.String())
}

// checkPlaces holds placements to the archive's bytes, and Parse to them.
func checkPlaces(t *testing.T, archive []byte, all []shard.Located) {
	t.Helper()
	for i := range all {
		l := &all[i]
		for j, f := range l.Placement.Fields {
			if f.HeaderOffset < l.Offset || f.Offset < f.HeaderOffset+blockSize || f.Offset+f.Size > l.Offset+l.Size {
				t.Errorf("sample %q at %d+%d has the field %+v", l.Key, l.Offset, l.Size, f)
			}
			if !bytes.Equal(archive[f.Offset:f.Offset+f.Size], l.Sample.Fields[j].Data) {
				t.Errorf("sample %q: field %q is not at %d", l.Key, l.Sample.Fields[j].Name, f.Offset)
			}
		}
		p, err := Container{}.Parse(archive[l.Offset:l.Offset+l.Size], l.Offset)
		if err != nil {
			t.Errorf("sample %q: Parse: %v", l.Key, err)
		} else if !equal(&p.Sample, &l.Sample) || !samePlace(&p.Placement, &l.Placement) {
			t.Errorf("sample %q is parsed as %+v, want %+v", l.Key, p, l)
		}
	}
}

// TestStrangers reads archives that others might have written.
func TestStrangers(t *testing.T) {
	long := strings.Repeat("d/", 100) + strings.Repeat("f", 150)
	gnu := func(h *stdtar.Header) { h.Format = stdtar.FormatGNU }
	pax := func(h *stdtar.Header) { h.Format = stdtar.FormatPAX }
	for _, c := range []struct {
		name    string
		entries []entry
		want    string
	}{
		{"nothing", nil, ""},
		{"runs", []entry{{name: "a.jpg", data: "1"}, {name: "a.cls", data: "2"}, {name: "b.jpg", data: "3"}}, "a{cls=2 jpg=1} b{jpg=3}"},
		{"a key that comes again later is a sample of its own", []entry{{name: "a.jpg", data: "1"}, {name: "b.jpg"}, {name: "a.cls"}}, "a{jpg=1} b{jpg=} a{cls=}"},
		{"case of the field", []entry{{name: "A.JPG", data: "1"}, {name: "A.Seg.PNG", data: "2"}, {name: "a.JPG", data: "3"}}, "A{jpg=1 seg.png=2} a{jpg=3}"},
		{"folders, links and devices", []entry{
			{name: "d/", kind: stdtar.TypeDir}, {name: "d/a.jpg", data: "1"}, {name: "d/l.jpg", kind: stdtar.TypeSymlink},
			{name: "d/h.jpg", kind: stdtar.TypeLink}, {name: "d/f.jpg", kind: stdtar.TypeFifo}, {name: "d/c.jpg", kind: stdtar.TypeChar}, {name: "d/a.cls", data: "2"},
		}, "d/a{cls=2 jpg=1}"},
		{"a contiguous file", []entry{{name: "a.jpg", data: "1", kind: stdtar.TypeCont}}, "a{jpg=1}"},
		{"names without a sample do not end a run", []entry{
			{name: "._a.jpg", data: "mac"}, {name: "a.jpg", data: "1"}, {name: "._a.cls", data: "mac"}, {name: "README", data: strings.Repeat("long ", 1000)}, {name: "a.cls", data: "2"}, {name: "README"},
		}, "a{cls=2 jpg=1}"},
		{"meta files", []entry{{name: "__index__.json", data: "{}"}, {name: "__meta__/x.json"}, {name: "x/__a__", data: "1"}, {name: "a.jpg", data: "1"}}, "__index__{json={}} a{jpg=1}"},
		{"odd names", []entry{{name: "./a.jpg"}, {name: "../a.jpg"}, {name: "/a.jpg"}, {name: "a//b.jpg"}, {name: "a b\n\xff.jpg", mod: gnu}, {name: "x."}}, "./a{jpg=} ../a{jpg=} /a{jpg=} a//b{jpg=} a b\n\xff{jpg=} x{=}"},
		{"GNU long names", []entry{{name: long + ".jpg", data: "1", mod: gnu}, {name: long + ".cls", data: "2", mod: gnu}, {name: "b.jpg", data: "3", mod: gnu}}, long + "{cls=2 jpg=1} b{jpg=3}"},
		{"a GNU long link", []entry{{name: "l.jpg", kind: stdtar.TypeSymlink, mod: func(h *stdtar.Header) { gnu(h); h.Linkname = long }}, {name: "b.jpg", data: "3"}}, "b{jpg=3}"},
		{"PAX long names", []entry{{name: long + ".jpg", data: "1", mod: pax}, {name: "é.jpg", data: "2", mod: pax}, {name: "b.jpg", data: "3"}}, long + "{jpg=1} é{jpg=2} b{jpg=3}"},
		{"PAX records of other programs", []entry{{name: "a.jpg", data: "1", mod: func(h *stdtar.Header) {
			h.PAXRecords = map[string]string{"SCHILY.xattr.x": "a=b\n\x00", "LIBARCHIVE.creationtime": "1.5"}
		}}}, "a{jpg=1}"},
		{"times in PAX headers, as webdataset writes them", []entry{{name: "a.jpg", data: "1", mod: func(h *stdtar.Header) { pax(h); h.ModTime = time.Unix(1, 5e8) }}, {name: "a.cls", data: "2", mod: pax}}, "a{cls=2 jpg=1}"},
		{"a global header", []entry{{name: "a.jpg", data: "1"}, {kind: stdtar.TypeXGlobalHeader, mod: func(h *stdtar.Header) {
			*h = stdtar.Header{Typeflag: stdtar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "0123"}}
		}}, {name: "a.cls", data: "2"}}, "a{cls=2 jpg=1}"},
		{"a ustar prefix", []entry{{name: strings.Repeat("d", 90) + "/" + strings.Repeat("f", 90) + ".jpg", data: "1", mod: func(h *stdtar.Header) { h.Format = stdtar.FormatUSTAR; h.ModTime = time.Time{} }}}, strings.Repeat("d", 90) + "/" + strings.Repeat("f", 90) + "{jpg=1}"},
	} {
		archive := standard(t, c.entries...)
		for _, r := range []io.Reader{bytes.NewReader(archive), iotest.OneByteReader(bytes.NewReader(archive)), iotest.DataErrReader(bytes.NewReader(archive))} {
			all, err := scanAll(r, noLimit)
			if got := brief(all); err != nil || got != c.want {
				t.Errorf("%s:\n%q, %v, want\n%q", c.name, got, err, c.want)
			}
			checkPlaces(t, archive, all)
		}
	}
}

// header makes a header by hand, for what archive/tar does not write.
func header(name string, size int64, mod func(b []byte)) []byte {
	b := template
	copy(b[:], name)
	putOctal(b[sizeAt:sizeAt+11], size)
	if mod != nil {
		mod(b[:])
	}
	putChecksum(&b, checksum(&b))
	return b[:]
}

func blocks(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			b = append(b, p...)
			b = append(b, make([]byte, padded(int64(len(p)))-int64(len(p)))...)
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

func kind(k byte) func([]byte) { return func(b []byte) { b[kindAt] = k } }

func TestRareHeaders(t *testing.T) {
	end := make([]byte, 1024)
	signed := header("\xe9.jpg", 1, nil)
	putOctal(signed[checksumAt:checksumAt+6], int64(signedChecksum((*[blockSize]byte)(signed))))
	for _, c := range []struct {
		name    string
		archive []byte
		want    string
	}{
		{"V7", blocks(header("a.jpg", 1, func(b []byte) { clear(b[magicAt:]); b[kindAt] = 0 }), "1", end), "a{jpg=1}"},
		{"a V7 folder", blocks(header("a.x/", 0, kind(0)), header("a.y", 1, kind(0)), "1", end), "a{y=1}"},
		{"a size with spaces", blocks(header("a.jpg", 1, func(b []byte) { copy(b[sizeAt:], "         1 \x00") }), "1", end), "a{jpg=1}"},
		{"a size of 12 digits", blocks(header("a.jpg", 1, func(b []byte) { copy(b[sizeAt:], "000000000001") }), "1", end), "a{jpg=1}"},
		{"a size in base 256", blocks(header("a.jpg", 1, func(b []byte) { copy(b[sizeAt:], "\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01") }), "1", end), "a{jpg=1}"},
		{"a signed checksum", blocks(signed, "1", end), "\xe9{jpg=1}"},
		{"a checksum with spaces", blocks(header("a.jpg", 1, nil), "1", end), "a{jpg=1}"},
		{"a name of 100 bytes", blocks(header(strings.Repeat("n", 96)+".jpg", 1, nil), "1", end), strings.Repeat("n", 96) + "{jpg=1}"},
		{"a star prefix, which is shorter", blocks(header("a.jpg", 1, func(b []byte) {
			copy(b[prefixAt:], "d")
			copy(b[prefixAt+starPrefix:], "000000000000 00000000000 ")
			copy(b[starMagic:], "tar\x00")
		}), "1", end), "d/a{jpg=1}"},
		{"no prefix in a GNU header", blocks(header("a.jpg", 1, func(b []byte) { copy(b[magicAt:], "ustar  \x00"); copy(b[prefixAt:], "14371231131") }), "1", end), "a{jpg=1}"},
		{"the size of a PAX header", blocks(header("x", 10, kind('x')), "10 size=1\n", header("a.jpg", 0, nil), "1", end), "a{jpg=1}"},
		{"an empty PAX record", blocks(header("x", 8, kind('x')), "8 path=\n", header("a.jpg", 1, nil), "1", end), "a{jpg=1}"},
		{"a Solaris PAX header", blocks(header("x", 16, kind('X')), "16 path=b/c.jpg\n", header("a.jpg", 1, nil), "1", end), "b/c{jpg=1}"},
		{"a GNU long name goes before a PAX path", blocks(header("x", 14, kind('x')), "14 path=b.jpg\n", header("././@LongLink", 6, kind('L')), "c.jpg\x00", header("a.jpg", 1, nil), "1", end), "c{jpg=1}"},
		{"a member of an unknown kind", blocks(header("a.jpg", 3, kind('Z')), "123", header("b.jpg", 1, nil), "1", end), "b{jpg=1}"},
		{"a GNU volume label", blocks(header("label.x", 0, kind('V')), header("b.jpg", 1, nil), "1", end), "b{jpg=1}"},
		{"a folder with a size", blocks(header("d.x/", 512, kind('5')), header("b.jpg", 1, nil), "1", end), "b{jpg=1}"},
		{"one zero block", blocks(header("a.jpg", 1, nil), "1", end[:512]), "a{jpg=1}"},
		{"no zero block", blocks(header("a.jpg", 1, nil), "1"), "a{jpg=1}"},
		{"something behind a zero block", blocks(header("a.jpg", 1, nil), "1", end[:512], header("b.jpg", 1, nil), "1"), "a{jpg=1}"},
		{"padding", blocks(header("a.jpg", 1, nil), "1", make([]byte, 10240)), "a{jpg=1}"},
	} {
		all, err := scanAll(bytes.NewReader(c.archive), noLimit)
		if got := brief(all); err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
		checkPlaces(t, c.archive, all)
	}
}

func TestBroken(t *testing.T) {
	end := make([]byte, 1024)
	for _, c := range []struct {
		name    string
		archive []byte
		want    any // shard.ErrTruncated, a *shard.FormatError or a *shard.UnsupportedError
		offset  int64
		text    string
	}{
		{"no tar", blocks(strings.Repeat("text ", 200)), &shard.FormatError{}, 0, "checksum"},
		{"gzip", append([]byte("\x1f\x8b"), make([]byte, 600)...), &shard.FormatError{}, 0, "checksum"},
		{"a wrong checksum", blocks(header("a.jpg", 1, nil), "1", header("b.jpg", 1, nil)[:511], "!"), &shard.FormatError{}, 1024, "checksum"},
		{"a size that is no number", blocks(header("a.jpg", 1, func(b []byte) { copy(b[sizeAt:], "1x") })), &shard.FormatError{}, 0, "size"},
		{"a negative size", blocks(header("a.jpg", 1, func(b []byte) { copy(b[sizeAt:], "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff") })), &shard.FormatError{}, 0, "size"},
		{"a size beyond 63 bits", blocks(header("a.jpg", 1, func(b []byte) { copy(b[sizeAt:], "\x80\x00\x00\x00\x80\x00\x00\x00\x00\x00\x00\x00") })), &shard.FormatError{}, 0, "size"},
		{"a size near 63 bits, to be skipped", blocks(header("a", 1, func(b []byte) { copy(b[sizeAt:], "\x80\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff") })), shard.ErrTruncated, 512, "within"},
		{"a field twice", blocks(header("a.jpg", 1, nil), "1", header("a.JPG", 1, nil), "1", end), &shard.FormatError{}, 1024, `field "jpg" twice`},
		{"an old sparse file", blocks(header("a.jpg", 1, kind('S')), "1", end), &shard.UnsupportedError{}, 0, "sparse"},
		{"a PAX sparse file", blocks(header("x", 21, kind('x')), "21 GNU.sparse.major=1\n", header("a.jpg", 1, nil), "1", end), &shard.FormatError{}, 0, "PAX record"},
		{"a PAX sparse file", blocks(header("x", 22, kind('x')), "22 GNU.sparse.major=1\n", header("a.jpg", 1, nil), "1", end), &shard.UnsupportedError{}, 0, "sparse"},
		{"a part of a multi-volume archive", blocks(header("a.jpg", 1, kind('M')), "1", end), &shard.UnsupportedError{}, 0, "multi-volume"},
		{"a global path", blocks(header("g", 9, kind('g')), "9 path=a\n", header("a.jpg", 1, nil), "1", end), &shard.UnsupportedError{}, 0, "global"},
		{"a huge PAX header", blocks(header("x", maxSpecial+1, kind('x'))), &shard.UnsupportedError{}, 0, "extended header"},
		{"an extended header without a member", blocks(header("x", 9, kind('x')), "9 path=a\n", end), &shard.FormatError{}, 1024, "no member"},
		{"the end behind an extended header", blocks(header("x", 9, kind('x')), "9 path=a\n"), shard.ErrTruncated, 1024, "header"},
		{"a PAX record without a size", blocks(header("x", 5, kind('x')), "path="), &shard.FormatError{}, 0, "PAX"},
		{"a PAX record that is too long", blocks(header("x", 9, kind('x')), "99 path=a\n"), &shard.FormatError{}, 0, "PAX"},
		{"a PAX record without =", blocks(header("x", 9, kind('x')), "9 path a\n"), &shard.FormatError{}, 0, "PAX"},
		{"a PAX size that is no number", blocks(header("x", 11, kind('x')), "11 size=-1\n", header("a.jpg", 1, nil), "1"), &shard.FormatError{}, 0, "PAX size"},
		{"a NUL in a PAX path", blocks(header("x", 12, kind('x')), "12 path=a\x00b\n"), &shard.FormatError{}, 0, "NUL"},
	} {
		_, err := scanAll(bytes.NewReader(c.archive), noLimit)
		var ok bool
		switch c.want.(type) {
		case *shard.FormatError:
			var e *shard.FormatError
			ok = errors.As(err, &e) && e.Offset == c.offset
		case *shard.UnsupportedError:
			var e *shard.UnsupportedError
			ok = errors.As(err, &e) && e.Offset == c.offset
		default:
			ok = errors.Is(err, shard.ErrTruncated) && strings.Contains(err.Error(), fmt.Sprintf("offset %d:", c.offset))
		}
		if !ok || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want a %T at %d about %q", c.name, err, c.want, c.offset, c.text)
		}
	}
}

// TestCut cuts an archive at every offset: at the end of a member it ends cleanly,
// elsewhere it is truncated, and says where; what comes before is right.
func TestCut(t *testing.T) {
	long := strings.Repeat("l", 200)
	samples := []sample.Sample{
		{Key: "a", Fields: []sample.Field{{Name: "cls", Data: []byte("1")}, {Name: "jpg", Data: bytes.Repeat([]byte("x"), 700)}}},
		{Key: long, Fields: []sample.Field{{Name: "jpg", Data: []byte("y")}}},
		{Key: "c", Fields: []sample.Field{{Name: "empty"}}},
	}
	archive, places := pack(t, samples)
	data := places[2].Offset + places[2].Size
	ends := map[int64]string{0: "", 1024: "a", 2560: "a", places[1].Offset + places[1].Size: "a " + long, data: "a " + long + " c", data + 512: "a " + long + " c"}
	for n := range int64(len(archive)) {
		all, err := scanAll(bytes.NewReader(archive[:n]), noLimit)
		var keys []string
		for i := range all {
			keys = append(keys, all[i].Key)
			if n != 1024 && !equal(&all[i].Sample, &samples[i]) {
				t.Fatalf("cut at %d: sample %q is not what it was", n, all[i].Key)
			}
		}
		if want, clean := ends[n]; clean || n > data+512 {
			// A partial block of zeros behind the end is no harm.
			if n > data {
				want = ends[data]
			}
			if err != nil || strings.Join(keys, " ") != want {
				t.Errorf("cut at %d: %q, %v; want a clean end behind %q", n, keys, err, want)
			}
		} else if !errors.Is(err, shard.ErrTruncated) || !strings.Contains(err.Error(), fmt.Sprintf("offset %d:", n)) {
			t.Errorf("cut at %d: %v, want ErrTruncated there", n, err)
		}
	}
	p := places[0]
	for n := range p.Size {
		if n == 1024 {
			continue // the first field alone is a sample too
		}
		if l, err := (Container{}).Parse(archive[p.Offset:p.Offset+n], p.Offset); !errors.Is(err, shard.ErrTruncated) {
			t.Errorf("Parse of %d of %d bytes: %v, %v", n, p.Size, l, err)
		}
	}
	for _, n := range []int64{p.Size + 1, p.Size + 512, p.Size + places[1].Size, int64(len(archive))} {
		if l, err := (Container{}).Parse(archive[:n], 0); err == nil {
			t.Errorf("Parse of a frame of %d bytes, of which the sample has %d: %v", n, p.Size, l)
		}
	}
}

// TestFlip flips every bit of every header: it is found, or it only changes what no
// one reads.
func TestFlip(t *testing.T) {
	samples := []sample.Sample{{Key: "a", Fields: []sample.Field{{Name: "cls", Data: []byte("1")}, {Name: "jpg", Data: []byte("x")}}}}
	archive, _ := pack(t, samples)
	for _, at := range []int{0, 1024} {
		for i := range 8 * blockSize {
			b := bytes.Clone(archive)
			b[at+i/8] ^= 1 << (i % 8)
			all, err := scanAll(bytes.NewReader(b), noLimit)
			var format *shard.FormatError
			byteAt := i / 8
			// The checksum's two last bytes, NUL and space, may change to digits or
			// each other's like without changing its value.
			if err == nil && byteAt >= checksumAt && byteAt < checksumAt+8 && len(all) == 1 && equal(&all[0].Sample, &samples[0]) {
				continue
			}
			if !errors.As(err, &format) || format.Offset != int64(at) {
				t.Fatalf("bit %d of byte %d flipped: %q, %v", i%8, at+byteAt, brief(all), err)
			}
		}
	}
}

// TestLimit: a sample of exactly the limit is read, one of more is refused before
// memory is taken for it.
func TestLimit(t *testing.T) {
	samples := []sample.Sample{
		{Key: "a", Fields: []sample.Field{{Name: "cls", Data: []byte("1")}, {Name: "jpg", Data: make([]byte, 10_000)}}},
		{Key: "b", Fields: []sample.Field{{Name: "jpg", Data: make([]byte, 10)}}},
	}
	archive, places := pack(t, samples)
	size := places[0].Size
	if all, err := scanAll(bytes.NewReader(archive), size); err != nil || len(all) != 2 {
		t.Errorf("with a limit of %d: %v", size, err)
	}
	var unsupported *shard.UnsupportedError
	for _, limit := range []int64{size - 1, 1024, 512, 1, 0, -1} {
		if _, err := scanAll(bytes.NewReader(archive), limit); !errors.As(err, &unsupported) {
			t.Errorf("with a limit of %d: %v", limit, err)
		}
	}

	// A header that lies about a member of a terabyte.
	liar := blocks(header("a.bin", 0, func(b []byte) { copy(b[sizeAt:], "\x80\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00") }), "x")
	if n := allocated(func() {
		if _, err := scanAll(bytes.NewReader(liar), 1<<30); !errors.As(err, &unsupported) {
			t.Errorf("a terabyte: %v", err)
		}
		if _, err := scanAll(bytes.NewReader(liar), 1<<50); !errors.Is(err, shard.ErrTruncated) {
			t.Errorf("a terabyte that is not there: %v", err)
		}
	}); n > 10<<20 {
		t.Errorf("%d bytes were allocated for what is not there", n)
	}

	// Large members that are no part of a sample are not held, wherever they stand.
	junk := io.MultiReader(
		bytes.NewReader(archive[:1024]), // a.cls
		bytes.NewReader(header("README", 1<<30, nil)), io.LimitReader(zeroReader{}, 1<<30),
		bytes.NewReader(archive[places[1].Offset:]))
	if n := allocated(func() {
		if all, err := scanAll(junk, 1<<20); err != nil || len(all) != 2 {
			t.Errorf("a gigabyte between samples: %q, %v", brief(all), err)
		}
	}); n > 10<<20 {
		t.Errorf("%d bytes were allocated to skip a member", n)
	}
	// But within a sample they count.
	within := io.MultiReader(
		bytes.NewReader(archive[:1024]), // a.cls
		bytes.NewReader(header("README", 2<<20, nil)), io.LimitReader(zeroReader{}, 2<<20),
		bytes.NewReader(archive[1024:])) // a.jpg, b.jpg
	if _, err := scanAll(within, 1<<20); !errors.As(err, &unsupported) {
		t.Errorf("two megabytes within a sample: %v", err)
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// allocated is how many bytes f allocates.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// TestReaderErrors: the reader's own errors come back, with the offset.
func TestReaderErrors(t *testing.T) {
	archive, _ := pack(t, []sample.Sample{{Key: "a", Fields: []sample.Field{{Name: "jpg", Data: make([]byte, 2000)}}}})
	fault := errors.New("cable pulled")
	for _, n := range []int{0, 100, 1000, len(archive)} {
		_, err := scanAll(io.MultiReader(bytes.NewReader(archive[:n]), iotest.ErrReader(fault)), noLimit)
		if !errors.Is(err, fault) || !strings.Contains(err.Error(), "tar at offset") {
			t.Errorf("a fault at %d: %v", n, err)
		}
	}
}

// TestReadsToTheEnd: what lies behind the archive's end is read, so that a
// compression's checksum there is verified.
func TestReadsToTheEnd(t *testing.T) {
	archive, _ := pack(t, []sample.Sample{{Key: "a", Fields: []sample.Field{{Name: "jpg"}}}})
	r := bytes.NewReader(append(archive, make([]byte, 3<<20)...))
	if _, err := scanAll(r, noLimit); err != nil || r.Len() > 0 {
		t.Errorf("%d bytes are left (%v)", r.Len(), err)
	}
}

func TestLeavingTheLoop(t *testing.T) {
	archive, _ := pack(t, awkward())
	n := 0
	for range (Container{}).Scan(bytes.NewReader(archive), noLimit) {
		if n++; n == 3 {
			break
		}
	}
	if n != 3 {
		t.Errorf("%d iterations", n)
	}
}

// reference reads an archive with archive/tar and groups it by the same rule.
func reference(archive []byte) (all []sample.Sample, err error) {
	r := stdtar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		if h.Typeflag != stdtar.TypeReg && h.Typeflag != stdtar.TypeCont {
			continue
		}
		for k := range h.PAXRecords {
			if strings.HasPrefix(k, "GNU.sparse.") {
				return all, errors.New("sparse")
			}
		}
		key, field, ok := sample.Split(h.Name)
		data, err := io.ReadAll(r)
		if err != nil {
			return all, err
		}
		if !ok {
			continue
		}
		if len(all) == 0 || all[len(all)-1].Key != key {
			all = append(all, sample.Sample{Key: key})
		}
		s := &all[len(all)-1]
		s.Fields = append(s.Fields, sample.Field{Name: field, Data: data})
	}
}

func seeds(f *testing.F) {
	archive, _ := pack(f, awkward()[:2])
	f.Add(archive)
	archive, _ = pack(f, []sample.Sample{{Key: strings.Repeat("l", 200), Fields: []sample.Field{{Name: "cls", Data: []byte("1")}, {Name: "jpg"}}}})
	f.Add(archive)
	f.Add(standard(f, entry{name: strings.Repeat("l", 200) + ".jpg", data: "x", mod: func(h *stdtar.Header) { h.Format = stdtar.FormatGNU }}, entry{name: "._a.jpg"}, entry{name: "a.b/", kind: stdtar.TypeDir}))
	f.Add(standard(f, entry{name: "é.jpg", data: "x", mod: func(h *stdtar.Header) { h.Format = stdtar.FormatPAX }}, entry{name: "é.cls"}))
	f.Add(blocks(header("a.jpg", 1, func(b []byte) { copy(b[sizeAt:], "\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01") }), "1"))
}

// mend gives every block that could be a header a right checksum, without which a
// fuzzer gets nowhere.
func mend(archive []byte) {
	for i := 0; i+blockSize <= len(archive); i += blockSize {
		b := (*[blockSize]byte)(archive[i:])
		if b[checksumAt+6] == 0 && b[checksumAt+7] == ' ' {
			putChecksum(b, checksum(b))
		}
	}
}

// FuzzScan compares with archive/tar, and feeds what was read back to the writer.
func FuzzScan(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, archive []byte) {
		mend(archive)
		all, err := scanAll(bytes.NewReader(archive), 1<<20)
		checkPlaces(t, archive, all)
		want, wantErr := reference(archive)
		if err == nil {
			// archive/tar may find faults where we do not look (times, owners,
			// one zero block); what it has read before is the same.
			for i := range want {
				sortFields(&want[i])
				if i < len(all) && !equal(&all[i].Sample, &want[i]) && (wantErr == nil || i < len(want)-1) {
					t.Fatalf("sample %d is %q, archive/tar reads %q", i, brief(all[i:i+1]), want[i])
				}
			}
			if wantErr == nil && len(all) != len(want) {
				t.Fatalf("%d samples, archive/tar reads %d", len(all), len(want))
			}
		} else if wantErr == nil && !stricter(err, archive) {
			t.Fatalf("%v, but archive/tar reads %d samples", err, len(want))
		}

		var legal []sample.Sample
		for i := range all {
			s := &all[i].Sample
			ok := sample.CheckKey(s.Key) == nil && (len(legal) == 0 || legal[len(legal)-1].Key != s.Key)
			for _, f := range s.Fields {
				ok = ok && sample.CheckField(f.Name) == nil
			}
			if ok {
				legal = append(legal, *s)
			}
		}
		again, places := pack(t, legal)
		back, err := scanAll(bytes.NewReader(again), noLimit)
		if err != nil || len(back) != len(legal) {
			t.Fatalf("%d samples written, %d read (%v)", len(legal), len(back), err)
		}
		for i := range legal {
			if !equal(&legal[i], &back[i].Sample) || !samePlace(&places[i], &back[i].Placement) {
				t.Fatalf("sample %q comes back as %q", legal[i].Key, back[i].Key)
			}
		}
	})
}

func sortFields(s *sample.Sample) {
	slices.SortStableFunc(s.Fields, func(a, b sample.Field) int { return strings.Compare(a.Name, b.Name) })
}

// stricter says that an error is about what archive/tar lets pass.
func stricter(err error, archive []byte) bool {
	if len(archive)%blockSize != 0 && errors.Is(err, shard.ErrTruncated) {
		return true // the last member lacks its padding
	}
	for _, s := range []string{"twice", "sparse", "multi-volume", "global header", "the limit", "within a header", "no member"} {
		if strings.Contains(err.Error(), s) {
			return true
		}
	}
	return false
}

func FuzzParse(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		mend(frame)
		l, err := Container{}.Parse(frame, 1000)
		if err != nil {
			return
		}
		all, err := scanAll(bytes.NewReader(frame), noLimit)
		if err != nil || len(all) != 1 || !equal(&all[0].Sample, &l.Sample) {
			t.Fatalf("Parse gives %q, Scan %q, %v", l.Key, brief(all), err)
		}
		if l.Offset != 1000 || l.Size != int64(len(frame)) {
			t.Fatalf("the sample is at %d+%d, want 1000+%d", l.Offset, l.Size, len(frame))
		}
	})
}

// TestGolden holds the writer to bytes that must never change: data sets that are
// packed again with a new version must come out the same.
func TestGolden(t *testing.T) {
	got, _ := pack(t, []sample.Sample{
		{Key: "n01440764/ILSVRC2012_val_00000293", Fields: []sample.Field{{Name: "cls", Data: []byte("0")}, {Name: "jpg", Data: []byte("\xff\xd8\xff\xd9")}}},
		{Key: "é/" + strings.Repeat("long", 30), Fields: []sample.Field{{Name: "seg.png", Data: nil}}},
	})
	const file = "testdata/golden.tar"
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the archive is no longer %s", file)
	}
}
