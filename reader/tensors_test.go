package reader

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/sample"
	"shardify/sample/typed"
	"shardify/store/mem"
)

// npyFile is an array as NumPy writes it.
func npyFile[T typed.Element](shape []int, values ...T) []byte {
	data := typed.AppendNPYHeader(nil, typed.DTypeOf[T](), shape)
	data, err := binary.Append(data, binary.LittleEndian, values)
	if err != nil {
		panic(err)
	}
	return data
}

// caption is the text of sample n, and tracks its numbers; the lengths differ.
func caption(n int) string { return strings.Repeat(fmt.Sprintf("ü%d ", n), n%7) }

func tracks(n int) (values []float32, rows int) {
	for k := range 3 * (n % 5) {
		values = append(values, float32(n)+float32(k)/8)
	}
	return values, n % 5
}

// rich is a sample with a field of every kind.
func rich(n, classes int) datasettest.Made {
	m := datasettest.Sample(n, classes)
	track, rows := tracks(n)
	wide := make([]int16, 2*(n%4))
	for i := range wide {
		wide[i] = int16(100*n + i)
	}
	objects := []map[string]any{}
	for k := range n % 3 {
		objects = append(objects, map[string]any{"id": 10*n + k, "score": float64(k) / 4, "bbox": []int{k, k, k + 5, k + 6}})
	}
	doc, err := json.Marshal(map[string]any{
		"width": 100 + n, "objects": objects, "caption": caption(n), "pose": [][]int{{n, 1}, {2, 3}},
	})
	if err != nil {
		panic(err)
	}
	jpg := m.Fields[slices.IndexFunc(m.Fields, func(f sample.Field) bool { return f.Name == "jpg" })]
	m.Fields = []sample.Field{
		{Name: "cls", Data: fmt.Append(nil, m.Label, "\n")},
		jpg,
		{Name: "json", Data: doc},
		{Name: "score.txt", Data: fmt.Append(nil, float64(n)/2)},
		{Name: "track.npy", Data: npyFile([]int{rows, 3}, track...)},
		{Name: "txt", Data: []byte(caption(n))},
		{Name: "vec.npy", Data: npyFile([]int{2, 2}, float64(n), 1, 2, -3)},
		{Name: "wide.npy", Data: npyFile([]int{2, n % 4}, wide...)},
	}
	m.Paths = nil
	return m
}

// richSpecs are tensors of all its fields.
var richSpecs = []TensorSpec{
	{Field: "cls"},
	{Field: "score.txt", Name: "score", Kind: KindFloat, DType: DTypeFloat64},
	{Field: "txt", Collate: CollateRagged},
	{Field: "json", Name: "caption", Kind: KindText, Path: "/caption", Fill: 32},
	{Field: "json", Name: "width", Path: "/width", DType: DTypeInt32},
	{Field: "json", Name: "pose", Path: "/pose", Shape: []int{2, 2}, DType: DTypeInt8},
	{Field: "json", Name: "ids", Path: "/objects/*/id", Shape: []int{-1}, DType: DTypeInt64, Fill: -1, PadTo: 4},
	{Field: "json", Name: "corners", Path: "/objects/*/bbox", Shape: []int{-1, 4}, Collate: CollateRagged},
	{Field: "vec.npy", Name: "vec", Shape: []int{2, 2}},
	{Field: "track.npy", Name: "track", Shape: []int{-1, 3}, Collate: CollateRagged},
	{Field: "track.npy", Name: "padded", Shape: []int{-1, 3}, Fill: -1, DType: DTypeFloat16, Stored: DTypeFloat32},
	{Field: "wide.npy", Name: "wide", Shape: []int{2, -1}, Stored: DTypeInt16, DType: DTypeInt32, Fill: 7},
}

// numbers are the elements of a tensor as float64s.
func numbers(t testing.TB, x Tensor) []float64 {
	t.Helper()
	data := bytes.Clone(x.Data)
	a := typed.Array{DType: DTypeFloat64}
	n := typed.NPY{DType: x.DType, BigEndian: binary.NativeEndian.Uint16([]byte{0, 1}) == 1, Shape: []int{len(x.Data) / x.DType.Size()}, Data: data}
	if err := a.ConvertNPY(&n); err != nil {
		t.Fatal(err)
	}
	values, _ := typed.As[float64](a.DType, a.Data)
	size := 1
	for _, d := range x.Shape {
		size *= d
	}
	if size != len(values) {
		t.Fatalf("%s has %d elements and the shape %v", x.Name, len(values), x.Shape)
	}
	return values
}

// want is what a tensor should be.
type want struct {
	name  string
	dtype DType
	shape []int
	data  []float64
}

// richWant makes, straight from the samples' numbers, the tensors that richSpecs should.
func richWant(samples []int64) []want {
	n := len(samples)
	list := func(name string, dtype DType, shape ...int) want {
		return want{name, dtype, append([]int{n}, shape...), nil}
	}
	cls, score, width, pose, vec := list("cls", DTypeInt64), list("score", DTypeFloat64), list("width", DTypeInt32), list("pose", DTypeInt8, 2, 2), list("vec", DTypeFloat32, 2, 2)
	txt, offsets := want{"txt", DTypeUint8, []int{0}, nil}, want{"txt_offsets", DTypeInt64, []int{n + 1}, []float64{0}}
	track, trackOffsets := want{"track", DTypeFloat32, []int{0, 3}, nil}, want{"track_offsets", DTypeInt64, []int{n + 1}, []float64{0}}
	corners, cornerOffsets := want{"corners", DTypeFloat32, []int{0, 4}, nil}, want{"corners_offsets", DTypeInt64, []int{n + 1}, []float64{0}}
	longest, most, widest := 0, 0, 0
	for _, s := range samples {
		longest, most, widest = max(longest, len(caption(int(s)))), max(most, int(s)%5), max(widest, int(s)%4)
	}
	captions, captionMask, captionLengths := list("caption", DTypeUint8, longest), list("caption_mask", DTypeBool, longest), list("caption_lengths", DTypeInt64)
	ids, idMask, idLengths := list("ids", DTypeInt64, 4), list("ids_mask", DTypeBool, 4), list("ids_lengths", DTypeInt64)
	padded, paddedMask, paddedLengths := list("padded", DTypeFloat16, most, 3), list("padded_mask", DTypeBool, most), list("padded_lengths", DTypeInt64)
	wide, wideMask, wideLengths := list("wide", DTypeInt32, 2, widest), list("wide_mask", DTypeBool, widest), list("wide_lengths", DTypeInt64)
	row := func(w, mask, lengths *want, values []float64, unit, most int, fill float64) {
		for k := range most * unit {
			if k < len(values) {
				w.data = append(w.data, values[k])
			} else {
				w.data = append(w.data, fill)
			}
		}
		for k := range most {
			v := 0.
			if k*unit < len(values) {
				v = 1
			}
			mask.data = append(mask.data, v)
		}
		lengths.data = append(lengths.data, float64(len(values)/unit))
	}
	for _, s := range samples {
		k := int(s)
		cls.data = append(cls.data, float64(k%5))
		score.data = append(score.data, float64(k)/2)
		width.data = append(width.data, float64(100+k))
		pose.data = append(pose.data, float64(k), 1, 2, 3)
		vec.data = append(vec.data, float64(k), 1, 2, -3)
		var text, track32 []float64
		for _, c := range []byte(caption(k)) {
			text = append(text, float64(c))
		}
		txt.data = append(txt.data, text...)
		txt.shape[0] = len(txt.data)
		offsets.data = append(offsets.data, float64(len(txt.data)))
		row(&captions, &captionMask, &captionLengths, text, 1, longest, 32)
		values, rows := tracks(k)
		for _, v := range values {
			track32 = append(track32, float64(v))
		}
		track.data = append(track.data, track32...)
		track.shape[0] += rows
		trackOffsets.data = append(trackOffsets.data, float64(track.shape[0]))
		row(&padded, &paddedMask, &paddedLengths, track32, 3, most, -1)
		var id []float64
		for o := range k % 3 {
			id = append(id, float64(10*k+o))
			corners.data = append(corners.data, float64(o), float64(o), float64(o+5), float64(o+6))
			corners.shape[0]++
		}
		cornerOffsets.data = append(cornerOffsets.data, float64(corners.shape[0]))
		row(&ids, &idMask, &idLengths, id, 1, 4, -1)
		for r := range 2 {
			for c := range widest {
				v := 7.
				if c < k%4 {
					v = float64(100*k + r*(k%4) + c)
				}
				wide.data = append(wide.data, v)
			}
		}
		for c := range widest {
			wideMask.data = append(wideMask.data, float64(min(1, max(0, k%4-c))))
		}
		wideLengths.data = append(wideLengths.data, float64(k%4))
	}
	return []want{
		cls, score, txt, offsets, captions, captionMask, captionLengths, width, pose, ids, idMask, idLengths,
		corners, cornerOffsets, vec, track, trackOffsets, padded, paddedMask, paddedLengths, wide, wideMask, wideLengths,
	}
}

// checkRich compares the tensors behind "label" with what the samples, whose numbers
// their keys tell, should have.
func checkRich(t *testing.T, b *Batch) {
	t.Helper()
	samples := make([]int64, b.Len())
	for i, key := range b.Keys() {
		if _, err := fmt.Sscanf(key[strings.LastIndexByte(key, '_')+1:], "%d", &samples[i]); err != nil {
			t.Fatal(err)
		}
	}
	tensors := b.Tensors()
	at := slices.IndexFunc(tensors, func(x Tensor) bool { return x.Name == "label" })
	tensors = tensors[at+1:]
	wants := richWant(samples)
	if len(tensors) != len(wants) {
		t.Fatalf("%d tensors, want %d", len(tensors), len(wants))
	}
	for i, w := range wants {
		x := tensors[i]
		if x.Name != w.name || x.DType != w.dtype || !slices.Equal(x.Shape, w.shape) {
			t.Fatalf("tensor %d is %s %s %v, want %s %s %v", i, x.Name, x.DType, x.Shape, w.name, w.dtype, w.shape)
		}
		if at := reflect.ValueOf(x.Data).Pointer(); at%64 != 0 {
			t.Errorf("%s at %#x", x.Name, at)
		}
		if got := numbers(t, x); !slices.Equal(got, w.data) {
			t.Errorf("%s of %v:\n got %v\nwant %v", x.Name, samples, got, w.data)
		}
	}
}

// Each tensor of a batch has, sample by sample, what the fields have, whatever the
// format of the shards; and a field that no one asked for is not in the batch.
func TestTensorsOfFields(t *testing.T) {
	for _, format := range []string{"tar", "tar.zst", "tar.gz", "tfrecord"} {
		d := small(t, datasettest.Options{Format: format, Make: rich})
		for name, c := range map[string]Config{
			"images":      {Transform: crop},
			"with fields": {Transform: crop, Fields: []string{"txt", "cls"}},
			"none":        {Decode: DecodeNone},
			"none, field": {Decode: DecodeNone, Fields: []string{"jpg"}},
		} {
			c.BatchSize, c.Seed, c.Ends, c.Tensors, c.Workers = 7, 3, EndsExact, richSpecs, 3
			n := 0
			r := newReader(t, d, c)
			for b, err := range r.Epoch(context.Background(), 0) {
				if err != nil {
					t.Fatalf("%s, %s: %v", format, name, err)
				}
				checkRich(t, b)
				n += b.Len()
				if got := b.Fields(); !slices.Equal(got, slices.Sorted(slices.Values(c.Fields))) {
					t.Errorf("%s, %s: fields %v", format, name, got)
				}
				for i, s := range b.Samples() {
					for _, f := range rich(int(s), 5).Fields {
						data, ok := b.Field(i, f.Name)
						if ok != slices.Contains(c.Fields, f.Name) || ok && !bytes.Equal(data, f.Data) {
							t.Errorf("%s, %s: field %s of %d: %v %q", format, name, f.Name, s, ok, data)
						}
					}
				}
				b.Release()
			}
			if n != 40 {
				t.Errorf("%s, %s: %d samples", format, name, n)
			}
		}
	}
}

// Of shards without an index, too.
func TestTensorsOfStreams(t *testing.T) {
	for _, format := range []string{"tar", "tar.gz", "tfrecord"} {
		dir := t.TempDir()
		writeShards(t, dir, format, []int{10, 10, 10, 10}, func(n int) sample.Sample { return rich(n, 5).Sample })
		for _, decode := range []Decode{DecodeImage, DecodeNone} {
			c := Config{BatchSize: 7, Seed: 3, Shuffle: ShuffleWindow, Window: 16, Ends: EndsExact, Decode: decode, Tensors: richSpecs, Workers: 2}
			if decode == DecodeImage {
				c.Transform = crop
			}
			n := 0
			for b, err := range newStream(t, []string{dir}, c).Epoch(context.Background(), 0) {
				if err != nil {
					t.Fatal(err)
				}
				checkRich(t, b)
				n += b.Len()
				b.Release()
			}
			if n != 40 {
				t.Errorf("%s: %d samples", format, n)
			}
		}
	}
}

// tensorCopy is the tensors of a batch, for comparisons.
func tensorCopy(b *Batch) (all []string) {
	for _, x := range b.Tensors() {
		all = append(all, fmt.Sprintf("%s %s %v %x", x.Name, x.DType, x.Shape, x.Data))
	}
	return all
}

// tensorsOf copies the tensors of the batches that follow a state.
func tensorsOf(t *testing.T, d *dataset.Dataset, c Config, epoch, from int) (all [][]string) {
	t.Helper()
	r := newReader(t, d, c)
	s, err := r.State(epoch, int64(from))
	if err != nil {
		t.Fatal(err)
	}
	for b, err := range r.Epochs(context.Background(), s, s.Epoch+1) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tensorCopy(b))
		b.Release()
	}
	return all
}

// Tensors do not depend on workers, memory, or where the pass began.
func TestTensorsAreTheSame(t *testing.T) {
	d := small(t, datasettest.Options{Make: rich})
	c := Config{BatchSize: 6, Seed: 9, Ends: EndsExact, Tensors: richSpecs, Transform: crop, Workers: 1}
	want := tensorsOf(t, d, c, 1, 0)
	if len(want) != 7 {
		t.Fatalf("%d batches", len(want))
	}
	for from := range want {
		c.Workers, c.Memory = 1+from*2, int64(from)<<21
		if got := tensorsOf(t, d, c, 1, from); !reflect.DeepEqual(got, want[from:]) {
			t.Errorf("from batch %d with %d workers: other tensors", from, c.Workers)
		}
	}
}

// Padded and ragged, the same values come, whatever their lengths.
func TestPadAndRaggedHoldTheSame(t *testing.T) {
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 1))
		lengths := make([]int, 40)
		for i := range lengths {
			lengths[i] = random.IntN(1 << random.IntN(12))
		}
		d := small(t, datasettest.Options{Make: func(n, _ int) datasettest.Made {
			values := make([]int32, 2*lengths[n])
			for i := range values {
				values[i] = int32(n)<<16 + int32(i)
			}
			m := datasettest.Made{Label: -1}
			m.Key, m.Fields = fmt.Sprint("k", n), []sample.Field{{Name: "npy", Data: npyFile([]int{lengths[n], 2}, values...)}}
			return m
		}})
		c := Config{BatchSize: 1 + random.IntN(9), Seed: seed, Ends: EndsExact, Decode: DecodeNone, Tensors: []TensorSpec{
			{Field: "npy", Name: "p", Shape: []int{-1, 2}, DType: DTypeInt32, Fill: -5},
			{Field: "npy", Name: "r", Shape: []int{-1, 2}, DType: DTypeInt32, Collate: CollateRagged},
		}}
		for b, err := range newReader(t, d, c).Epoch(context.Background(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			tensor := func(name string) Tensor {
				x, ok := b.Tensor(name)
				if !ok {
					t.Fatalf("no tensor %s", name)
				}
				return x
			}
			padded, ragged := tensor("p"), tensor("r")
			mask, counts, offsets := tensor("p_mask").Bool(), tensor("p_lengths").Int64(), tensor("r_offsets").Int64()
			most := padded.Shape[1]
			longest := 0
			for i, n := range b.Samples() {
				l := lengths[n]
				longest = max(longest, l)
				row := padded.Int32()[2*i*most:][:2*most]
				values := ragged.Int32()[2*offsets[i] : 2*offsets[i+1]]
				if int(counts[i]) != l || !slices.Equal(row[:2*l], values) || l > 0 && values[2*l-1] != int32(n)<<16+int32(2*l-1) {
					t.Fatalf("sample %d of length %d: %d, %d values", n, l, counts[i], len(values))
				}
				for k := range most {
					if mask[i*most+k] != (k < l) || k >= l && (row[2*k] != -5 || row[2*k+1] != -5) {
						t.Fatalf("sample %d of length %d: element %d is %v %v", n, l, k, mask[i*most+k], row[2*k:2*k+2])
					}
				}
			}
			if most != longest || int(offsets[b.Len()]) != ragged.Shape[0] {
				t.Errorf("padded to %d, the longest is %d", most, longest)
			}
			b.Release()
		}
	}
}

// Whatever is wrong with a field makes a sample damaged, which the error names, and goes
// the way of OnBad: the other samples keep their values, and a substitute has its own,
// also where they are longer than all that was planned.
func TestTensorFaults(t *testing.T) {
	wide := make([]float32, 3*200)
	for name, c := range map[string]struct {
		field string
		data  []byte // nil: the sample lacks it
		want  string
	}{
		"no integer":     {"cls", []byte("cat"), `"cat" is none`},
		"no number":      {"score.txt", []byte("1,5"), `for tensor "score"`},
		"not UTF-8":      {"txt", []byte("a\xff"), "0xff is not UTF-8"},
		"not JSON":       {"json", []byte(`{"width": 1`), "JSON: unexpected end"},
		"nothing there":  {"json", []byte(`{"caption": ""}`), "/width: there is nothing"},
		"too large":      {"json", []byte(`{"width": 3000000000, "caption": "", "pose": [[1, 1], [1, 1]], "objects": []}`), "3000000000 does not fit int32"},
		"other shape":    {"json", []byte(`{"width": 3, "caption": "", "pose": [[1, 1, 1], [1, 1, 1]], "objects": []}`), "its shape is [2 3]; want [2 2]"},
		"too many":       {"json", []byte(`{"width": 3, "caption": "", "pose": [[1, 1], [1, 1]], "objects": [{"id": 1}, {"id": 1}, {"id": 1}, {"id": 1}, {"id": 1}]}`), "its length is 5, where pad_to is 4"},
		"cut":            {"vec.npy", npyFile([]int{2, 2}, 1., 2, 3, 4)[:140], "npy: it ends early"},
		"transposed":     {"track.npy", npyFile([]int{3, 200}, wide...), "its shape is [3 200]; want [* 3]"},
		"narrow":         {"track.npy", npyFile([]int{1, 3}, uint8(1), 2, 3), "narrower than the float32 by which memory is planned: set stored (or dtype) to uint8"},
		"strange":        {"wide.npy", []byte("\x93NUMPY\x01\x00\x3a\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }      "), "not supported"},
		"missing":        {"vec.npy", nil, "the sample lacks it; set optional"},
		"missing, shown": {"txt", nil, "the sample lacks it; set optional"},
	} {
		t.Run(name, func(t *testing.T) {
			d := small(t, datasettest.Options{Make: func(n, classes int) datasettest.Made {
				m := rich(n, classes)
				if n == 14 || n == 36 {
					at := slices.IndexFunc(m.Fields, func(f sample.Field) bool { return f.Name == c.field })
					if m.Fields[at].Data = c.data; c.data == nil {
						m.Fields = slices.Delete(m.Fields, at, at+1)
					}
				}
				return m
			}})
			config := Config{BatchSize: 8, Shuffle: ShuffleNone, Tensors: richSpecs, Transform: crop, Fields: []string{"txt"}, Workers: 3}

			var last error
			for b, err := range newReader(t, d, config).Epoch(context.Background(), 0) {
				if last = err; err == nil {
					b.Release()
				}
			}
			var bad *SampleError
			if !errors.As(last, &bad) || bad.Sample != 14 || c.data != nil && bad.Field != c.field || !strings.Contains(last.Error(), c.want) {
				t.Errorf("%v, want %q", last, c.want)
			}

			for _, policy := range []OnBad{OnBadSkip, OnBadSubstitute} {
				config.OnBad = policy
				r := newReader(t, d, config)
				n := 0
				for b, err := range r.Epoch(context.Background(), 0) {
					if err != nil {
						t.Fatal(err)
					}
					checkRich(t, b)
					n += b.Len()
					b.Release()
				}
				if want := map[OnBad]int{OnBadSkip: 38, OnBadSubstitute: 40}[policy]; n != want || len(r.BadSamples()) != 2 {
					t.Errorf("%s: %d samples, %+v", policy, n, r.BadSamples())
				}
			}
		})
	}
}

// Where samples may lack a field, or a path leads nowhere, there is Fill, or nothing.
func TestOptional(t *testing.T) {
	d := small(t, datasettest.Options{Make: func(n, classes int) datasettest.Made {
		m := datasettest.Made{Label: -1}
		m.Key, m.Fields = fmt.Sprint("k", n), []sample.Field{{Name: "id", Data: fmt.Append(nil, n)}}
		switch {
		case n%2 == 0:
			m.Fields = append(m.Fields, sample.Field{Name: "json", Data: []byte(`{"v": [1, 2], "x": 5}`)})
		case n%3 == 0:
			m.Fields = append(m.Fields, sample.Field{Name: "json", Data: []byte(`{}`)})
		}
		return m
	}})
	r := newReader(t, d, Config{BatchSize: 4, Shuffle: ShuffleNone, Decode: DecodeNone, Tensors: []TensorSpec{
		{Field: "json", Name: "v", Path: "/v", Shape: []int{-1}, Optional: true, Fill: 9},
		{Field: "json", Name: "r", Path: "/v", Shape: []int{-1}, Optional: true, Collate: CollateRagged},
		{Field: "json", Name: "x", Path: "/x", Optional: true, Fill: -2, DType: DTypeInt16},
		{Field: "json", Name: "pair", Path: "/v", Shape: []int{2}, Optional: true, Fill: 0.5},
	}})
	for b, err := range r.Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string][]float64{
			"v": {1, 2, 9, 9, 1, 2, 9, 9}, "v_mask": {1, 1, 0, 0, 1, 1, 0, 0}, "v_lengths": {2, 0, 2, 0},
			"r": {1, 2, 1, 2}, "r_offsets": {0, 2, 2, 4, 4}, "x": {5, -2, 5, -2}, "pair": {1, 2, 0.5, 0.5, 1, 2, 0.5, 0.5},
		} {
			x, ok := b.Tensor(name)
			if got := numbers(t, x); !ok || !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
		b.Release()
	}
}

// A substitute whose values are longer than any that the batch was planned for comes
// whole, and so do those beside it.
func TestLongSubstitute(t *testing.T) {
	length := func(n int) int {
		if n%8 == 5 { // the damaged ones stand in batches of short ones
			return 0
		}
		return 1 + n/8*n/8*20 // of 32 samples
	}
	d := small(t, datasettest.Options{Shards: 1, Samples: 32, Make: func(n, _ int) datasettest.Made {
		values := make([]int64, length(n))
		for i := range values {
			values[i] = int64(1000*n + i)
		}
		m := datasettest.Made{Label: -1}
		m.Key, m.Fields = fmt.Sprint("k", n), []sample.Field{{Name: "npy", Data: npyFile([]int{length(n)}, values...)}}
		if n%8 == 5 {
			m.Fields[0].Data = []byte("broken")
		}
		return m
	}})
	longer := 0
	for seed := range uint64(8) {
		r := newReader(t, d, Config{BatchSize: 8, Seed: seed, Shuffle: ShuffleNone, Decode: DecodeNone, OnBad: OnBadSubstitute, Tensors: []TensorSpec{
			{Field: "npy", Name: "p", Shape: []int{-1}, DType: DTypeInt64},
			{Field: "npy", Name: "r", Shape: []int{-1}, DType: DTypeInt64, Collate: CollateRagged},
		}})
		for b, err := range r.Epoch(context.Background(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			p, _ := b.Tensor("p")
			ragged, _ := b.Tensor("r")
			offsets, _ := b.Tensor("r_offsets")
			mask, _ := b.Tensor("p_mask")
			planned := 0
			for i := range 8 {
				planned = max(planned, length(int(b.Number())*8+i))
			}
			if p.Shape[1] > planned {
				longer++
			}
			for i, n := range b.Samples() {
				values := ragged.Int64()[offsets.Int64()[i]:offsets.Int64()[i+1]]
				if len(values) != length(int(n)) {
					t.Fatalf("sample %d has %d values, want %d", n, len(values), length(int(n)))
				}
				for k := range p.Shape[1] {
					v := int64(0)
					if k < len(values) {
						if v = int64(1000*int(n) + k); values[k] != v {
							t.Fatalf("sample %d: element %d is %d", n, k, values[k])
						}
					}
					if p.Int64()[i*p.Shape[1]+k] != v || mask.Bool()[i*p.Shape[1]+k] != (k < len(values)) {
						t.Fatalf("sample %d: padded element %d is %d", n, k, p.Int64()[i*p.Shape[1]+k])
					}
				}
			}
			b.Release()
		}
	}
	if longer < 5 {
		t.Errorf("only %d batches were longer than planned", longer)
	}
}

// However the lengths vary, a pass holds no more than its budget.
func TestRaggedMemoryBound(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 8, Samples: 50, Make: func(n, _ int) datasettest.Made {
		size := 1000
		if n%97 == 3 {
			size = 200_000
		}
		m := datasettest.Made{Label: -1}
		m.Key = fmt.Sprint("k", n)
		m.Fields = []sample.Field{
			{Name: "json", Data: []byte("[" + strings.Repeat("7,", size/2) + "7]")},
			{Name: "npy", Data: npyFile([]int{size}, make([]uint8, size)...)},
			{Name: "txt", Data: bytes.Repeat([]byte("x"), size)},
		}
		return m
	}})
	r := newReader(t, d, Config{BatchSize: 8, Decode: DecodeNone, Memory: 24 << 20, Workers: 4, Tensors: []TensorSpec{
		{Field: "txt"},
		{Field: "json", Shape: []int{-1}, Collate: CollateRagged},
		{Field: "npy", Shape: []int{-1}, Stored: DTypeUint8, Collate: CollateRagged},
	}})
	p, err := r.newPass(context.Background(), 0, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.end()
	p.start()
	longest := 0
	for {
		b, err := p.next()
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			break
		}
		slab := b.job.slab.data
		for _, x := range b.Tensors() {
			at := reflect.ValueOf(x.Data).Pointer() - reflect.ValueOf(slab).Pointer()
			if int(at)+len(x.Data) > len(slab) {
				t.Errorf("%s is not in the slab", x.Name)
			}
		}
		x, _ := b.Tensor("txt")
		longest = max(longest, x.Shape[1])
		b.Release()
	}
	if longest != 200_000 {
		t.Errorf("the longest text has %d bytes", longest)
	}
	if p.pool.peak > p.pool.size {
		t.Errorf("%d bytes of %d", p.pool.peak, p.pool.size)
	}
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	if p.pool.used != p.pool.free {
		t.Errorf("%d bytes were not given back", p.pool.used-p.pool.free)
	}
}

// Faults of tensors are all reported, by number and name; and a configuration with them
// survives JSON.
func TestTensorConfig(t *testing.T) {
	bad := []TensorSpec{
		{Field: "A"},
		{Field: "seg.png"},
		{Field: "bin"},
		{Field: "txt", Name: "image"},
		{Field: "txt", Name: "a b"},
		{Field: "npy", Shape: []int{-1, -1}},
		{Field: "npy", Name: "n1", Shape: []int{0}},
		{Field: "npy", Name: "n2", Shape: []int{1 << 20, 1 << 20}},
		{Field: "npy", Name: "n3", Shape: []int{3}, Collate: CollatePad},
		{Field: "npy", Name: "n4", Shape: []int{-1}, Collate: CollateStack},
		{Field: "npy", Name: "n5", Shape: []int{3, -1}, Collate: CollateRagged},
		{Field: "npy", Name: "n6", Shape: []int{3}, PadTo: 5},
		{Field: "npy", Name: "n7", Shape: []int{3}, Stored: DTypeUint8},
		{Field: "npy", Name: "n8", Path: "/a"},
		{Field: "cls", Shape: []int{3}},
		{Field: "cls", Name: "c2", DType: "int128"},
		{Field: "cls", Name: "c3", Fill: 0.5},
		{Field: "json", Path: "a"},
		{Field: "json", Name: "txt_mask"},
		{Field: "txt"},
		{Field: "json", Name: "j2", Follows: "j1", Shape: []int{-1}},
		{Field: "json", Name: "j3", Kind: KindBoxes, DType: DTypeInt32, Boxes: BoxSpec{Format: "yxyx"}},
		{Field: "json", Name: "j4", Boxes: BoxSpec{Format: BoxXYWH}},
		{Field: "json", Name: "j5", Kind: "lines"},
		{Field: "seg.png", Name: "m", Kind: KindMask, Fill: 256, DType: DTypeInt32},
	}
	err := Config{Tensors: bad}.Validate()
	for _, want := range []string{
		`tensor 1 (A): illegal name`, `tensor 2 (seg.png): kind: say whether`, `tensor 3 (bin): kind: the field's name does not tell`,
		`tensor 4 (image): the name "image" is taken`, `tensor 5 (a b): name`, `tensor 6 (npy): shape: only one dimension`,
		`tensor 7 (n1): shape: 0`, `tensor 8 (n2): shape: [1048576 1048576] has more`, `tensor 9 (n3): collate: pad is for`,
		`tensor 10 (n4): collate: values whose shape varies cannot`, `tensor 11 (n5): collate: ragged needs`, `tensor 12 (n6): pad_to belongs`,
		`tensor 13 (n7): stored belongs`, `tensor 14 (n8): path belongs`, `tensor 15 (cls): shape belongs`, `tensor 16 (c2): dtype: "int128"`,
		`tensor 17 (c3): fill: 0.5 does not fit int64`, `tensor 18 (json): path "a"`, `tensor 20 (txt): the name "txt_mask" is taken`,
		`tensor 21 (j2): follows: no tensor of boxes is called "j1"`, `tensor 22 (j3): dtype: boxes`, `tensor 22 (j3): boxes: format: "yxyx"`,
		`tensor 23 (j4): boxes belongs`, `tensor 24 (j5): kind: "lines"`, `tensor 25 (m): fill: 256`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no fault %q in:\n%v", want, err)
		}
	}
	err = Config{Decode: DecodeNone, Tensors: []TensorSpec{{Field: "json", Kind: KindBoxes}}}.Validate()
	if err == nil || !strings.Contains(err.Error(), "kind boxes goes the way of the sample's image") {
		t.Errorf("%v", err)
	}
	if err := (Config{Tensors: make([]TensorSpec, 1000)}).Validate(); err == nil || !strings.Contains(err.Error(), "256 at most") {
		t.Errorf("%v", err)
	}

	d := small(t, datasettest.Options{Make: rich})
	if _, err := New(context.Background(), d, Config{Tensors: []TensorSpec{{Field: "x.txt"}}}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), `no field "x.txt"`) {
		t.Errorf("%v", err)
	}
	r := newReader(t, d, Config{BatchSize: 4, Transform: crop, Tensors: richSpecs})
	data, err := json.Marshal(r.Config())
	if err != nil {
		t.Fatal(err)
	}
	var back Config
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, r.Config()) {
		t.Errorf("%s", data)
	}
	if again := newReader(t, d, back).Config(); !reflect.DeepEqual(again, back) {
		t.Error("a filled in configuration is filled in differently")
	}
	if richSpecs[0].Name != "" {
		t.Error("the caller's list was changed")
	}
}

// prose is a sample of text alone, of numbers and a short text.
func prose(n, _ int) datasettest.Made {
	m := datasettest.Made{Label: int64(n % 5)}
	m.Key = fmt.Sprint("k", n)
	m.Fields = []sample.Field{
		{Name: "cls", Data: fmt.Append(nil, n%5)},
		{Name: "json", Data: fmt.Appendf(nil, `{"caption": "a cat, number %d", "boxes": [[1, 2, 3, %d], [4, 5.5, 6, 7]]}`, n, n)},
		{Name: "npy", Data: npyFile([]int{n % 7, 3}, make([]float64, n%7*3)...)},
		{Name: "txt", Data: []byte(caption(n))},
	}
	return m
}

var proseSpecs = []TensorSpec{
	{Field: "cls"},
	{Field: "txt", Collate: CollateRagged},
	{Field: "json", Name: "caption", Kind: KindText, Path: "/caption"},
	{Field: "json", Name: "boxes", Path: "/boxes", Shape: []int{-1, 4}},
	{Field: "npy", Shape: []int{-1, 3}, Collate: CollateRagged},
}

// What is allocated is of the batch, not of its samples: ten times the samples cost next
// to nothing more.
func TestTensorAllocations(t *testing.T) {
	if racing {
		t.Skip("SKIPPED LOUDLY: under the race detector encoding/json allocates; `make test` counts without it, too")
	}
	d := small(t, datasettest.Options{Shards: 8, Samples: 400, Make: prose})
	perBatch := func(size int) float64 {
		r := newReader(t, d, Config{BatchSize: size, Decode: DecodeNone, Workers: 2, Tensors: proseSpecs})
		read := func() {
			for b, err := range r.Epoch(context.Background(), 0) {
				if err != nil {
					t.Fatal(err)
				}
				b.Release()
			}
		}
		read()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 5 {
			read()
		}
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / 5 / float64(r.Len())
	}
	small, large := perBatch(16), perBatch(160)
	if more := (large - small) / (160 - 16); more > 0.5 {
		t.Errorf("%.0f allocations for a batch of 16, %.0f for one of 160: %.2f for each sample", small, large, more)
	}
}

// What it costs to make tensors of fields, without images.
func BenchmarkTensors(b *testing.B) {
	d := datasettest.Write(b, mem.New(), datasettest.Options{Shards: 4, Samples: 1000, Make: prose})
	for name, specs := range map[string][]TensorSpec{"none": nil, "five": proseSpecs} {
		b.Run(name, func(b *testing.B) {
			c := Config{BatchSize: 100, Decode: DecodeNone, Tensors: specs}
			if specs == nil {
				c.Fields = []string{"cls", "json", "npy", "txt"}
			}
			r := newReader(b, d, c)
			b.ReportAllocs()
			samples := 0
			for b.Loop() {
				for batch, err := range r.Epoch(context.Background(), 0) {
					if err != nil {
						b.Fatal(err)
					}
					samples += batch.Len()
					batch.Release()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(samples), "ns/sample")
		})
	}
}
