package tfrecord

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"google.golang.org/protobuf/encoding/protowire"

	"shardify/sample"
	"shardify/shard"
)

// record frames data.
func record(data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, mask(crc32.Checksum(b, castagnoli)))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, mask(crc32.Checksum(data, castagnoli)))
}

// The messages, written without any thrift.
func message(number protowire.Number, parts ...[]byte) []byte {
	b := protowire.AppendTag(nil, number, protowire.BytesType)
	return protowire.AppendBytes(b, slices.Concat(parts...))
}

func varint(number protowire.Number, n int64) []byte {
	b := protowire.AppendTag(nil, number, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(n))
}

func fixed(number protowire.Number, x float32) []byte {
	b := protowire.AppendTag(nil, number, protowire.Fixed32Type)
	return protowire.AppendFixed32(b, math.Float32bits(x))
}

func example(entries ...[]byte) []byte { return message(1, entries...) }

func entryOf(name string, values ...[]byte) []byte {
	return message(1, message(1, []byte(name)), message(2, values...))
}

func text(s string) []byte { return message(1, message(1, []byte(s))) }

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

// checkPlaces holds placements to the file's bytes, and Parse to them.
func checkPlaces(t *testing.T, file []byte, all []shard.Located) {
	t.Helper()
	for i := range all {
		l := &all[i]
		for j, f := range l.Placement.Fields {
			if f.HeaderOffset != l.Offset || f.Offset >= 0 && !bytes.Equal(file[f.Offset:f.Offset+f.Size], l.Sample.Fields[j].Data) {
				t.Errorf("sample %q: field %q is not at %+v", l.Key, l.Sample.Fields[j].Name, f)
			}
		}
		p, err := Container{}.Parse(file[l.Offset:l.Offset+l.Size], l.Offset)
		if err != nil {
			t.Errorf("sample %q: Parse: %v", l.Key, err)
		} else if !equal(&p.Sample, &l.Sample) || !samePlace(&p.Placement, &l.Placement) {
			t.Errorf("sample %q is parsed as %+v, want %+v", l.Key, p, l)
		}
	}
}

// TestWire reads what protobuf allows though TensorFlow does not write it.
func TestWire(t *testing.T) {
	key := entryOf("key", text("k"))
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"nothing", nil, "record-000000000000{}"},
		{"an empty map", example(), "record-000000000000{}"},
		{"a key", example(key), "k{}"},
		{"a key that is none", example(entryOf("key", message(3, varint(1, 5))), entryOf("a", text("1"))), `record-000000000000{a=1 features.json={"key":[5]}}`},
		{"an empty key", example(entryOf("key", text("")), entryOf("a", text("1"))), "record-000000000000{a=1 key=}"},
		{"unpacked integers", example(key, entryOf("n", message(3, varint(1, 1), varint(1, -2)))), `k{features.json={"n":[1,-2]}}`},
		{"packed and unpacked integers", example(key, entryOf("n", message(3, message(1, []byte{1, 2}), varint(1, 3), message(1, nil), message(1, []byte{4})))), `k{features.json={"n":[1,2,3,4]}}`},
		{"unpacked floats", example(key, entryOf("x", message(2, fixed(1, 0.1), fixed(1, -1e30)))), `k{features.json={"x":[0.1,-1e+30]}}`},
		{"a label unpacked", example(key, entryOf("image/class/label", message(3, varint(1, 7)))), "k{cls=7}"},
		{"two labels", example(key, entryOf("image/class/label", message(3, varint(1, 7), varint(1, 8)))), `k{features.json={"image/class/label":[7,8]}}`},
		{"both labels", example(key, entryOf("image/class/label", message(3, varint(1, 7))), entryOf("label", message(3, varint(1, 8)))), `k{cls=7 features.json={"label":[8]}}`},
		{"a label of text", example(key, entryOf("label", text("cat"))), "k{label=cat}"},
		{"both images", example(key, entryOf("image/encoded", text("GIF8")), entryOf("image", text("x"))), "k{gif=GIF8 image=x}"},
		{"unsorted features", example(entryOf("b", text("2")), key, entryOf("a", text("1"))), "k{a=1 b=2}"},
		{"a feature twice: the last counts", example(key, entryOf("a", text("1")), entryOf("a", text("2"))), "k{a=2}"},
		{"two maps", append(example(key), example(entryOf("a", text("1")))...), "k{a=1}"},
		{"a list in two parts", example(key, entryOf("a", text("1"), text("2"))), `k{features.json={"a":["1","2"]}}`},
		{"a list in three parts, two empty", example(key, entryOf("a", message(1), text("1"), message(1))), "k{a=1}"},
		{"two kinds: the last counts", example(key, entryOf("a", text("1"), message(3, varint(1, 2)))), `k{features.json={"a":[2]}}`},
		{"an entry without a name", example(key, message(1, message(2, text("1")))), `k{features.json={"":["1"]}}`},
		{"an entry without a value", example(key, message(1, message(1, []byte("a")))), "k{}"},
		{"unknown fields everywhere", slices.Concat(varint(9, 1), message(8, []byte("x")), message(1, varint(9, 1), message(7, []byte("x")), message(1, varint(9, 1), message(1, []byte("key")), message(2, varint(9, 1), message(9, nil), message(1, varint(9, 1), fixed(8, 1), message(1, []byte("k"))))))), "k{}"},
		{"names that are no field's", example(key, entryOf("A/b c", text("\xff")), entryOf("../x", text("\xfe")), entryOf("__a__", text("\xfd"))), "k{__a=\xfd a.b_c=\xff x=\xfe}"},
		{"a name that is no text", example(key, entryOf("\xff", text("1"))), "k{feature=1}"},
	} {
		file := record(c.data)
		for _, r := range []io.Reader{bytes.NewReader(file), iotest.OneByteReader(bytes.NewReader(file)), iotest.DataErrReader(bytes.NewReader(file))} {
			all, err := scanAll(r, noLimit)
			if got := brief(all); err != nil || got != c.want {
				t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
			}
			checkPlaces(t, file, all)
		}
	}
}

func TestBroken(t *testing.T) {
	key := entryOf("key", text("k"))
	var format *shard.FormatError
	var unsupported *shard.UnsupportedError
	many := make([]byte, 0, 3*maxFeatures)
	for range maxFeatures + 1 {
		many = append(many, message(1)...)
	}
	for _, c := range []struct {
		name string
		file []byte
		as   any
		text string
	}{
		{"gzip", append([]byte("\x1f\x8b\x08"), make([]byte, 20)...), &format, ".gz"},
		{"no records", []byte(strings.Repeat("text ", 10)), nil, "checksum"},
		{"data that is no message", record([]byte("\xff\xff\xff")), &format, "offset 0"},
		{"a feature that is no message", record(example(key, message(1, message(1, []byte("a")), message(2, []byte("\xff"))))), &format, "tf.train.Example"},
		{"a list that is none", record(example(key, entryOf("a", message(3, []byte("\x0a\x05\x01"))))), &format, `"a"`},
		{"a broken packed integer", record(example(key, entryOf("a", message(3, message(1, []byte("\xff")))))), &format, `"a"`},
		{"half a float", record(example(key, entryOf("a", message(2, message(1, []byte("12345")))))), &format, `"a"`},
		{"a SequenceExample", record(append(example(key), message(2, []byte("x"))...)), &unsupported, "SequenceExample"},
		{"too many features", record(message(1, many)), &unsupported, "features"},
		{"two features of one field", record(example(key, entryOf("image/encoded", text("GIF8")), entryOf("gif", text("x")))), &format, `"gif"`},
	} {
		_, err := scanAll(bytes.NewReader(c.file), noLimit)
		ok := c.as == nil && errors.Is(err, shard.ErrChecksum) || c.as != nil && errors.As(err, c.as)
		if !ok || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want a %T about %q", c.name, err, c.as, c.text)
		}
	}
}

func few() []written {
	return []written{
		{sample.Sample{Key: "a", Fields: []sample.Field{{Name: "cls", Data: []byte("1")}, {Name: "jpg", Data: []byte("\xff\xd8\xff\xd9")}}}, nil},
		{sample.Sample{Key: "b", Fields: []sample.Field{{Name: "txt", Data: []byte("x")}}}, nil},
	}
}

// TestCut cuts a file at every offset: between records it ends cleanly, elsewhere
// it is truncated, and says where.
func TestCut(t *testing.T) {
	file, places := pack(t, few())
	for n := range int64(len(file)) {
		all, err := scanAll(bytes.NewReader(file[:n]), noLimit)
		want := 0
		if n >= places[0].Size {
			want = 1
		}
		if len(all) != want {
			t.Errorf("cut at %d: %d samples, want %d", n, len(all), want)
		}
		if n == 0 || n == places[0].Size {
			if err != nil {
				t.Errorf("cut at %d: %v, want a clean end", n, err)
			}
		} else if !errors.Is(err, shard.ErrTruncated) || !strings.Contains(err.Error(), fmt.Sprintf("offset %d:", n)) {
			t.Errorf("cut at %d: %v, want ErrTruncated there", n, err)
		}
		if n < places[0].Size {
			if _, err := (Container{}).Parse(file[:n], 0); !errors.Is(err, shard.ErrTruncated) {
				t.Errorf("Parse of %d bytes: %v, want ErrTruncated", n, err)
			}
		}
	}
	for n := places[0].Size + 1; n <= int64(len(file)); n++ {
		if _, err := (Container{}).Parse(file[:n], 0); err == nil {
			t.Errorf("Parse of %d bytes, of which the record has %d, works", n, places[0].Size)
		}
	}
}

// TestFlip flips every bit: each is found, by one checksum or the other.
func TestFlip(t *testing.T) {
	file, places := pack(t, few())
	for i := range 8 * len(file) {
		b := bytes.Clone(file)
		b[i/8] ^= 1 << (i % 8)
		all, err := scanAll(bytes.NewReader(b), noLimit)
		want := 0
		if i/8 >= int(places[0].Size) {
			want = 1
		}
		if !errors.Is(err, shard.ErrChecksum) || len(all) != want {
			t.Errorf("bit %d flipped: %d samples, %v", i, len(all), err)
		}
	}
}

func TestLimit(t *testing.T) {
	file, places := pack(t, few())
	size := max(places[0].Size, places[1].Size)
	if all, err := scanAll(bytes.NewReader(file), size); err != nil || len(all) != 2 {
		t.Errorf("with a limit of %d: %v", size, err)
	}
	var unsupported *shard.UnsupportedError
	for _, limit := range []int64{size - 1, 16, 1, 0, -1} {
		if _, err := scanAll(bytes.NewReader(file), limit); !errors.As(err, &unsupported) {
			t.Errorf("with a limit of %d: %v", limit, err)
		}
	}
	// Heads that lie.
	for _, length := range []uint64{1 << 40, 1<<63 - 1, math.MaxUint64} {
		head := binary.LittleEndian.AppendUint64(nil, length)
		head = binary.LittleEndian.AppendUint32(head, mask(crc32.Checksum(head, castagnoli)))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := scanAll(bytes.NewReader(head), 1<<50)
		_, parsed := Container{}.Parse(head, 0)
		runtime.ReadMemStats(&after)
		for _, err := range []error{err, parsed} {
			if !errors.Is(err, shard.ErrTruncated) && !errors.As(err, &unsupported) {
				t.Errorf("a record of %d bytes that is not there: %v", length, err)
			}
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 10<<20 {
			t.Errorf("%d bytes were allocated for what is not there", n)
		}
	}
}

func TestReaderErrors(t *testing.T) {
	file, _ := pack(t, few())
	fault := errors.New("cable pulled")
	for _, n := range []int{0, 5, 50, len(file)} {
		_, err := scanAll(io.MultiReader(bytes.NewReader(file[:n]), iotest.ErrReader(fault)), noLimit)
		if !errors.Is(err, fault) || !strings.Contains(err.Error(), "tfrecord at offset") {
			t.Errorf("a fault at %d: %v", n, err)
		}
	}
}

func TestLeavingTheLoop(t *testing.T) {
	file, _ := pack(t, few())
	n := 0
	for range (Container{}).Scan(bytes.NewReader(file), noLimit) {
		n++
		break
	}
	if n != 1 {
		t.Errorf("%d iterations", n)
	}
}

// FuzzExample parses arbitrary messages, and feeds what comes out back to the
// writer.
func FuzzExample(f *testing.F) {
	file, places := pack(f, few())
	for _, p := range places {
		f.Add(file[p.Offset+headSize : p.Offset+p.Size-4])
	}
	f.Add(example(entryOf("key", text("k")), entryOf("n", message(3, varint(1, 1), message(1, []byte{2, 3}))), entryOf("x", message(2, fixed(1, 0.5)))))
	f.Add(example(entryOf("A/b", text("\xff"), text("2")), entryOf("label", message(3, varint(1, 8))), entryOf("image", text("GIF8"))))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := record(data)
		all, err := scanAll(bytes.NewReader(file), noLimit)
		if err != nil {
			var format *shard.FormatError
			var unsupported *shard.UnsupportedError
			if !errors.As(err, &format) && !errors.As(err, &unsupported) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		checkPlaces(t, file, all)
		s := all[0].Sample
		for _, f := range s.Fields {
			if err := sample.CheckField(f.Name); err != nil {
				t.Fatalf("a field with an illegal name: %v", err)
			}
		}
		if sample.CheckKey(s.Key) != nil || len(s.Fields) == 0 {
			return
		}
		again, _ := pack(t, []written{{Sample: s}})
		back, err := scanAll(bytes.NewReader(again), noLimit)
		if err != nil || len(back) != 1 || !equal(&back[0].Sample, &s) {
			t.Fatalf("%q comes back as %q (%v)", brief(all), brief(back), err)
		}
	})
}

// FuzzScan reads arbitrary files.
func FuzzScan(f *testing.F) {
	file, _ := pack(f, few())
	f.Add(file)
	f.Add(file[:len(file)-1])
	f.Fuzz(func(t *testing.T, file []byte) {
		all, err := scanAll(bytes.NewReader(file), 1<<20)
		checkPlaces(t, file, all)
		var format *shard.FormatError
		var unsupported *shard.UnsupportedError
		if err != nil && !errors.Is(err, shard.ErrTruncated) && !errors.Is(err, shard.ErrChecksum) && !errors.As(err, &format) && !errors.As(err, &unsupported) {
			t.Fatalf("an error of another kind: %v", err)
		}
	})
}

// TestGolden holds the writer to bytes that must never change.
func TestGolden(t *testing.T) {
	got, _ := pack(t, golden())
	const file = "testdata/golden.tfrecord"
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the file is no longer %s", file)
	}
}

func golden() []written {
	return []written{
		{sample.Sample{Key: "n01440764/ILSVRC2012_val_00000293", Fields: []sample.Field{{Name: "cls", Data: []byte("0")}, {Name: "jpg", Data: []byte("\xff\xd8\xff\xd9")}}},
			&shard.Facts{Label: 0, LabelName: "n01440764", Path: "n01440764/ILSVRC2012_val_00000293.JPEG", Image: 1, Format: "jpeg", Colorspace: "RGB", Width: 500, Height: 375, Channels: 3}},
		{sample.Sample{Key: "é/x", Fields: []sample.Field{{Name: "cls", Data: []byte("cat")}, {Name: "key", Data: []byte("k")}}}, nil},
		{sample.Sample{Key: "y", Fields: []sample.Field{{Name: "jpeg", Data: []byte("\x89PNG")}, {Name: "json", Data: []byte("{}")}}}, &shard.Facts{Label: 5, Image: 0}},
	}
}
