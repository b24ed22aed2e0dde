package typed

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"shardify/internal/peers"
)

// kindOf names the kind of an error.
func kindOf(err error) string {
	var f *FormatError
	var u *UnsupportedError
	var m *MismatchError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &f):
		return "malformed"
	case errors.As(err, &u):
		return "unsupported"
	case errors.As(err, &m):
		return "mismatch"
	case errors.Is(err, ErrNotFound):
		return "not found"
	}
	return "unknown"
}

// values are the elements as float64s.
func values(t testing.TB, a *Array) []float64 {
	t.Helper()
	b := Array{DType: Float64}
	if err := b.DecodeNPY(append(AppendNPYHeader(nil, a.DType, a.Shape), little(a)...)); err != nil {
		t.Fatal(err)
	}
	v, ok := As[float64](b.DType, b.Data)
	if !ok {
		t.Fatal("an array's memory is not aligned")
	}
	return v
}

// little are the elements in little-endian order.
func little(a *Array) []byte {
	data := bytes.Clone(a.Data)
	if bigEndian {
		for n := a.DType.Size(); len(data) >= n; data = data[n:] {
			slices.Reverse(data[:n])
		}
	}
	return data
}

func TestInt(t *testing.T) {
	for _, c := range []struct {
		text  string
		dtype DType
		want  int64
		fault string
	}{
		{"7", "", 7, ""},
		{" \t-12\r\n", "", -12, ""},
		{"9223372036854775807", "", math.MaxInt64, ""},
		{"255", Uint8, 255, ""},
		{"1", Bool, 1, ""},
		{"9223372036854775808", "", 0, "mismatch"},
		{"256", Uint8, 0, "mismatch"},
		{"-1", Uint64, 0, "mismatch"},
		{"2", Bool, 0, "mismatch"},
		{"70000", Float16, 0, "mismatch"},
		{"1", "int7", 0, "mismatch"},
		{"", "", 0, "malformed"},
		{"n02", "", 0, "malformed"},
		{"1.0", "", 0, "malformed"},
		{"1_0", "", 0, "malformed"},
		{"1 2", "", 0, "malformed"},
		{"1\x00", "", 0, "malformed"},
		{strings.Repeat("1", 1000), "", 0, "malformed"},
	} {
		a := Array{DType: c.dtype}
		err := a.DecodeInt([]byte(c.text))
		if kindOf(err) != c.fault {
			t.Errorf("%.40q as %q: %v, want %q", c.text, c.dtype, err, c.fault)
		} else if err == nil && (len(a.Shape) != 0 || a.Len() != 1 || int64(values(t, &a)[0]) != c.want && c.want < 1<<53) {
			t.Errorf("%q: %v %v", c.text, a.Shape, values(t, &a))
		}
	}
}

func TestFloat(t *testing.T) {
	for _, c := range []struct {
		text  string
		dtype DType
		want  float64
		fault string
	}{
		{"0.5\n", "", 0.5, ""},
		{" -1e3", Int16, -1000, ""},
		{"inf", "", math.Inf(1), ""},
		{"-Infinity", Float16, math.Inf(-1), ""},
		{"0.1", Float64, 0.1, ""},
		{"nan", Int8, 0, "mismatch"},
		{"0.5", Int8, 0, "mismatch"},
		{"1e39", Float32, 0, "mismatch"},
		{"1e309", Float64, 0, "mismatch"},
		{"65520", Float16, 0, "mismatch"},
		{"3e38", BFloat16, 0x1.c4p127, ""},
		{"3.4e38", BFloat16, 0, "mismatch"},
		{"18446744073709551616", Uint64, 0, "mismatch"},
		{"0x1p3", "", 0, "malformed"},
		{"1_0", "", 0, "malformed"},
		{"", "", 0, "malformed"},
		{strings.Repeat("1", 1000), "", 0, "malformed"},
	} {
		a := Array{DType: c.dtype}
		err := a.DecodeFloat([]byte(c.text))
		if kindOf(err) != c.fault {
			t.Errorf("%.40q as %q: %v, want %q", c.text, c.dtype, err, c.fault)
		} else if err == nil && values(t, &a)[0] != c.want {
			t.Errorf("%q: %v", c.text, values(t, &a))
		}
	}
	a := Array{DType: Float32}
	if err := a.DecodeFloat([]byte("NaN")); err != nil || !math.IsNaN(values(t, &a)[0]) {
		t.Errorf("NaN: %v", err)
	}
}

func TestText(t *testing.T) {
	var a Array
	if err := a.DecodeText([]byte("größe")); err != nil || a.DType != Uint8 || string(a.Data) != "größe" || !slices.Equal(a.Shape, []int{7}) {
		t.Errorf("%+v, %v", a, err)
	}
	if err := a.DecodeText(nil); err != nil || !slices.Equal(a.Shape, []int{0}) {
		t.Errorf("%+v, %v", a, err)
	}
	var f *FormatError
	if err := a.DecodeText([]byte("ab�\xffc")); !errors.As(err, &f) || f.Offset != 5 {
		t.Errorf("%v", err)
	}
	a = Array{DType: Int64}
	if err := a.DecodeText([]byte("ab")); err != nil || !slices.Equal(values(t, &a), []float64{97, 98}) {
		t.Errorf("%v", err)
	}
	a = Array{DType: Int8}
	if err := a.DecodeText([]byte("ö")); kindOf(err) != "mismatch" {
		t.Errorf("%v", err)
	}
}

const document1 = ` {"image": {"width": 640, "a/b": [1, 2], "m~n": 3, "*": 4, "u": true},
  "objects": [{"bbox": [1, 2.5, 3, 4], "id": 7, "crowd": false}, {"id": 8, "bbox": [5, 6, 7, -8e0], "crowd": true, "score": 1}],
  "none": [], "rows": [[1, 2], [3, 4], [5, 6]], "ragged": [[1], [2, 3]], "mixed": [1, [2]], "mixed2": [[], 1], "empty": [[], []],
  "null": null, "text": "a\u00e9\n", "plain": "xyz", "big": 18446744073709551615, "huge": 1e400, "twice": 1, "twice": 2, "a\u0062": 5,
  "ones": [[[1]]] }`

func TestJSON(t *testing.T) {
	for _, c := range []struct {
		path  string
		dtype DType
		shape []int
		want  []float64
		fault string
	}{
		{"/image/width", "", nil, []float64{640}, ""},
		{"/image/a~1b", Int8, []int{2}, []float64{1, 2}, ""},
		{"/image/a~1b/1", Int8, nil, []float64{2}, ""},
		{"/image/m~0n", "", nil, []float64{3}, ""},
		{"/image/~2", "", nil, []float64{4}, ""},
		{"/image/u", Bool, nil, []float64{1}, ""},
		{"/objects/*/bbox", Float64, []int{2, 4}, []float64{1, 2.5, 3, 4, 5, 6, 7, -8}, ""},
		{"/objects/*/bbox/1", Float64, []int{2}, []float64{2.5, 6}, ""},
		{"/objects/*/id", Int64, []int{2}, []float64{7, 8}, ""},
		{"/objects/*/crowd", Bool, []int{2}, []float64{0, 1}, ""},
		{"/objects/*/crowd", Float32, []int{2}, []float64{0, 1}, ""},
		{"/none", "", []int{0}, nil, ""},
		{"/none/*", "", []int{0}, nil, ""},
		{"/none/*/x", "", []int{0}, nil, ""},
		{"/empty", "", []int{2, 0}, nil, ""},
		{"/rows", Uint8, []int{3, 2}, []float64{1, 2, 3, 4, 5, 6}, ""},
		{"/rows/*/*", Uint8, []int{3, 2}, []float64{1, 2, 3, 4, 5, 6}, ""},
		{"/rows/*/0", Uint8, []int{3}, []float64{1, 3, 5}, ""},
		{"/ones", Uint8, []int{1, 1, 1}, []float64{1}, ""},
		{"/twice", "", nil, []float64{2}, ""},
		{"/ab", "", nil, []float64{5}, ""},
		{"/big", Uint64, nil, []float64{1 << 64}, ""},
		{"/big", Float32, nil, []float64{1 << 64}, ""},
		{"/big", Int64, nil, nil, "mismatch"},
		{"/huge", Float64, nil, nil, "mismatch"},
		{"/objects/*/bbox", Int32, nil, nil, "mismatch"},
		{"/ragged", "", nil, nil, "mismatch"},
		{"/mixed", "", nil, nil, "mismatch"},
		{"/mixed2", "", nil, nil, "mismatch"},
		{"/null", "", nil, nil, "mismatch"},
		{"/plain", "", nil, nil, "mismatch"},
		{"/image", "", nil, nil, "mismatch"},
		{"", "", nil, nil, "mismatch"},
		{"/image/*", "", nil, nil, "mismatch"},
		{"/objects/*/score", "", nil, nil, "mismatch"},
		{"/objects/bbox", "", nil, nil, "mismatch"},
		{"/objects/01", "", nil, nil, "mismatch"},
		{"/plain/x", "", nil, nil, "mismatch"},
		{"/objects/2", "", nil, nil, "not found"},
		{"/image/height", "", nil, nil, "not found"},
		{"/", "", nil, nil, "not found"},
	} {
		p, err := ParsePath(c.path)
		if err != nil {
			t.Fatal(err)
		}
		a := Array{DType: c.dtype}
		err = a.DecodeJSON([]byte(document1), p)
		switch {
		case kindOf(err) != c.fault:
			t.Errorf("%s: %v, want %q", c.path, err, c.fault)
		case err != nil:
			if c.path != "" && !strings.Contains(err.Error(), c.path) {
				t.Errorf("%s: the error does not name it: %v", c.path, err)
			}
		case !slices.Equal(a.Shape, c.shape) || !slices.Equal(values(t, &a), c.want):
			t.Errorf("%s: %v %v, want %v %v", c.path, a.Shape, values(t, &a), c.shape, c.want)
		}
	}
	var a Array
	var f *FormatError
	if err := a.DecodeJSON([]byte(`{"a": [1, 2}`), Path{}); !errors.As(err, &f) || f.Offset != 12 {
		t.Errorf("%v", err)
	}
	if err := a.DecodeJSON(nil, Path{}); kindOf(err) != "malformed" {
		t.Errorf("%v", err)
	}
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	if err := a.DecodeJSON([]byte(deep), Path{}); kindOf(err) != "mismatch" {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{"a", "/a~", "/a~3", strings.Repeat("/*", 40)} {
		if _, err := ParsePath(bad); err == nil {
			t.Errorf("path %q is taken", bad)
		}
	}
}

// A number in JSON becomes the float32 nearest to it, not the one nearest to the float64
// that is nearest to it.
func TestJSONRoundsOnce(t *testing.T) {
	// Half way between two float32s, and a little more than float64 can tell.
	const text = "1.00000005960464477539062500001"
	a := Array{DType: Float32}
	if err := a.DecodeJSON([]byte(text), Path{}); err != nil {
		t.Fatal(err)
	}
	if got := values(t, &a)[0]; got != 1+0x1p-23 {
		t.Errorf("%v, want %v", got, 1+0x1p-23)
	}
}

func TestJSONText(t *testing.T) {
	for _, c := range []struct{ path, want, fault string }{
		{"/text", "aé\n", ""}, {"/plain", "xyz", ""}, {"/image", "", "mismatch"}, {"/no", "", "not found"}, {"/objects/*/id", "", "mismatch"},
	} {
		p, err := ParsePath(c.path)
		if err != nil {
			t.Fatal(err)
		}
		var a Array
		if err := a.DecodeJSONText([]byte(document1), p); kindOf(err) != c.fault || err == nil && string(a.Data) != c.want {
			t.Errorf("%s: %q, %v", c.path, a.Data, err)
		}
	}
	var a Array
	if err := a.DecodeJSONText([]byte("\"a\xff\""), Path{}); kindOf(err) != "malformed" {
		t.Errorf("%v", err)
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		shape, pattern []int
		length         int
		ok             bool
	}{
		{nil, nil, -1, true},
		{[]int{3}, []int{3}, -1, true},
		{[]int{3}, []int{-1}, 3, true},
		{[]int{3, 4}, []int{-1, 4}, 3, true},
		{[]int{80, 7}, []int{80, -1}, 7, true},
		{[]int{0}, []int{-1, 4}, 0, true},
		{[]int{2, 0}, []int{2, -1, 5}, 0, true},
		{[]int{0, 4}, []int{-1, 4}, 0, true},
		{[]int{0, 5}, []int{-1, 4}, 0, false},
		{[]int{2, 0}, []int{-1, 4}, 0, false},
		{[]int{3}, []int{-1, 4}, 0, false},
		{[]int{3, 4}, []int{-1}, 0, false},
		{[]int{3, 5}, []int{-1, 4}, 0, false},
		{nil, []int{-1}, 0, false},
		{[]int{1}, nil, 0, false},
	} {
		a := Array{Shape: c.shape}
		if length, err := a.Match(c.pattern); err == nil != c.ok || c.ok && length != c.length {
			t.Errorf("%v against %v: %d, %v", c.shape, c.pattern, length, err)
		}
	}
}

// Arrays of every type, order, byte order and version, written by NumPy, come as NumPy
// has them, also as other types.
func TestNPYAgainstNumPy(t *testing.T) {
	python := peers.Python(t)
	cmd := exec.Command(python, "-c", `
import base64, io, itertools, json, sys, warnings
import numpy as np
from numpy.lib import format
warnings.simplefilter("ignore")
rng = np.random.default_rng(1)
for kind, order, fortran, version, shape in itertools.product(
        "? u1 u2 u4 u8 i1 i2 i4 i8 f2 f4 f8".split(), "<>", (False, True), ((1, 0), (2, 0), (3, 0)),
        ((), (1,), (7,), (0,), (3, 4), (0, 5), (5, 0), (2, 3, 4), (300, 3), (1, 2, 1, 3))):
    t = np.dtype(kind).newbyteorder(order)
    a = rng.integers(0, 256, np.prod(shape, dtype=int) * t.itemsize, dtype=np.uint8).view(t).reshape(shape)
    if kind == "?":
        a = rng.integers(0, 2, shape).astype(t) if shape else np.asarray(rng.integers(0, 2)).astype(t)
    if fortran:
        a = np.asfortranarray(a)
    f = io.BytesIO()
    format.write_array(f, a, version=version)
    print(json.dumps({
        "file": base64.b64encode(f.getvalue()).decode(), "dtype": t.newbyteorder("=").name, "shape": a.shape,
        "data": base64.b64encode(a.astype(t.newbyteorder("<")).tobytes()).decode(),
        "float64": base64.b64encode(a.astype("<f8").tobytes()).decode()}))
`)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range bytes.Lines(out) {
		var c struct {
			File    []byte `json:"file"`
			DType   DType  `json:"dtype"`
			Shape   []int  `json:"shape"`
			Data    []byte `json:"data"`
			Float64 []byte `json:"float64"`
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		var a Array
		if err := a.DecodeNPY(c.File); err != nil {
			t.Fatalf("%s %v: %v", c.DType, c.Shape, err)
		}
		if a.DType != c.DType || !slices.Equal(a.Shape, c.Shape) || !bytes.Equal(little(&a), c.Data) {
			t.Fatalf("%s %v: got %s %v\n%x\n%x", c.DType, c.Shape, a.DType, a.Shape, a.Data, c.Data)
		}
		b := Array{DType: Float64}
		if err := b.DecodeNPY(c.File); err != nil || !bytes.Equal(floats(little(&b)), floats(c.Float64)) {
			t.Fatalf("%s %v as float64: %v", c.DType, c.Shape, err)
		}
		n++
	}
	if n != 12*2*2*3*10 {
		t.Errorf("%d files", n)
	}
}

// floats makes all NaNs the same.
func floats(data []byte) []byte {
	data = bytes.Clone(data)
	for i := 0; i < len(data); i += 8 {
		if v := math.Float64frombits(binary.LittleEndian.Uint64(data[i:])); v != v {
			binary.LittleEndian.PutUint64(data[i:], math.Float64bits(math.NaN()))
		}
	}
	return data
}

// npy makes a file of a header and elements.
func npy(header string, elements int) []byte {
	data := append([]byte(npyMagic), 1, 0, byte(len(header)), byte(len(header)>>8))
	return append(append(data, header...), make([]byte, elements)...)
}

func TestNPYFaults(t *testing.T) {
	for _, c := range []struct {
		file  []byte
		fault string
	}{
		{npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }\n", 48), ""},
		{npy(`{"shape":(3,),"descr":"|u1","fortran_order":True}`, 3), ""},
		{npy("{'descr': '<i8', 'fortran_order': False, 'shape': (2L, 3L), }", 48), ""},
		{npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }\n", 47), "malformed"},
		{npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }\n", 49), "malformed"},
		{npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3), }\n", 12), "malformed"},
		{npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }\n", 12), "malformed"},
		{npy("{'descr': '<f4', 'fortran_order': False, 'shape': 3, }\n", 12), "malformed"},
		{npy("{'descr': '<f4', 'fortran_order': 0, 'shape': (3,), }\n", 12), "malformed"},
		{npy("{'descr': '<f4', 'fortran_order': False, }\n", 12), "malformed"},
		{npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n", 12), "malformed"},
		{npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x': 1}\n", 12), "malformed"},
		{npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} 1\n", 12), "malformed"},
		{npy("{'descr': '<f4' 'fortran_order': False, 'shape': (3,)}\n", 12), "malformed"},
		{npy("{'descr': '<f4, }\n", 12), "malformed"},
		{npy("{", 0), "malformed"},
		{npy("", 0), "malformed"},
		{npy("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 9223372036854775807), }", 12), "malformed"},
		{npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2305843009213693952,), }", 0), "malformed"},
		{npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 12), "malformed"},
		{npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9223372036854775807), }", 0), ""},
		{npy("{'descr': '<f4', 'fortran_order': False, 'shape': ("+strings.Repeat("1,", 33)+"), }", 4), "unsupported"},
		{npy("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }\n", 12), "unsupported"},
		{npy("{'descr': '<U4', 'fortran_order': False, 'shape': (3,), }\n", 12), "unsupported"},
		{npy("{'descr': '<c8', 'fortran_order': False, 'shape': (3,), }\n", 12), "unsupported"},
		{npy("{'descr': '|f4', 'fortran_order': False, 'shape': (3,), }\n", 12), "unsupported"},
		{npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }\n", 12), "unsupported"},
		{[]byte("\x93NUMPY\x04\x00\x01\x00{}"), "unsupported"},
		{append([]byte("\x93NUMPY\x02\x00\x01\x00\x01\x00"), make([]byte, 1<<17)...), "unsupported"},
		{[]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"), "malformed"},
		{[]byte("\x93NUMPY\x02\x00\xff\xff"), "malformed"},
		{[]byte("\x93NUMPY\x01\x00\xff\xff"), "malformed"},
		{[]byte("PK\x03\x04 an npz file"), "malformed"},
		{nil, "malformed"},
	} {
		var a Array
		if err := a.DecodeNPY(c.file); kindOf(err) != c.fault {
			t.Errorf("%.120q: %v, want %q", c.file, err, c.fault)
		}
		n := NPY{DType: Bool, Fortran: true, Shape: []int{1, 2, 3}}
		if err := n.Parse(c.file); kindOf(err) != c.fault || err == nil && !slices.Equal(n.Shape, a.Shape) {
			t.Errorf("Parse of %.120q: %v", c.file, err)
		}
	}
	for dtype, data := range map[DType][]byte{
		Uint8: binary.LittleEndian.AppendUint64(nil, 256), Uint64: binary.LittleEndian.AppendUint64(nil, 1<<63),
		Bool: binary.LittleEndian.AppendUint64(nil, 2), Float16: binary.LittleEndian.AppendUint64(nil, 65520),
	} {
		file := append(npy("{'descr': '<i8', 'fortran_order': False, 'shape': (3,)}", 16), data...)
		a := Array{DType: dtype}
		if err := a.DecodeNPY(file); kindOf(err) != "mismatch" || !strings.Contains(err.Error(), "element 2 does not fit") {
			t.Errorf("%s: %v", dtype, err)
		}
	}
}

// Every cut of a file is malformed, and no flipped bit in its header does worse.
func TestNPYCut(t *testing.T) {
	file := append(AppendNPYHeader(nil, Int16, []int{3, 4}), make([]byte, 24)...)
	for n := range file {
		var a Array
		if err := a.DecodeNPY(file[:n]); kindOf(err) != "malformed" {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	for i := range (len(file) - 24) * 8 {
		file[i/8] ^= 1 << (i % 8)
		var a Array
		if err := a.DecodeNPY(file); kindOf(err) == "unknown" {
			t.Errorf("bit %d: %v", i, err)
		}
		file[i/8] ^= 1 << (i % 8)
	}
}

// All halves, and the roundings of all neighbours, are NumPy's.
func TestHalfAgainstNumPy(t *testing.T) {
	python := peers.Python(t)
	cmd := exec.Command(python, "-c", `
import sys, numpy as np
np.seterr(all="ignore")
h = np.arange(65536, dtype=np.uint16).view("<f2")
sys.stdout.buffer.write(h.astype("<f4").tobytes())
f = h.astype("<f8")
mid = (f[:-1] + f[1:]) / 2
mid = mid[np.isfinite(mid)]
for v in (mid, np.nextafter(mid, np.inf), np.nextafter(mid, -np.inf)):
    sys.stdout.buffer.write(np.int64(len(v)).tobytes() + v.tobytes() + v.astype("<f2").tobytes())
`)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1 << 16 {
		want := math.Float32frombits(binary.LittleEndian.Uint32(out[4*i:]))
		if got := Half(i).Float32(); math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
			t.Fatalf("half %#x is %v, want %v", i, got, want)
		}
		if back := HalfOf(float64(want)); want == want && back != Half(i) {
			t.Fatalf("half of %v is %#x, want %#x", want, back, i)
		}
	}
	for out = out[4<<16:]; len(out) > 0; {
		n := int(binary.LittleEndian.Uint64(out))
		from, to := out[8:8+8*n], out[8+8*n:8+10*n]
		for i := range n {
			v := math.Float64frombits(binary.LittleEndian.Uint64(from[8*i:]))
			if got, want := HalfOf(v), Half(binary.LittleEndian.Uint16(to[2*i:])); got != want {
				t.Fatalf("half of %v is %#x, want %#x", v, got, want)
			}
		}
		out = out[8+10*n:]
	}
}

// All bfloat16s, and the roundings of all neighbours, are those of ml_dtypes; and so is a
// file that it writes.
func TestBHalfAgainstMLDtypes(t *testing.T) {
	python := peers.Python(t)
	cmd := exec.Command(python, "-c", `
import sys, numpy as np, ml_dtypes
np.seterr(all="ignore")
h = np.arange(65536, dtype=np.uint16).view(ml_dtypes.bfloat16)
sys.stdout.buffer.write(h.astype("<f4").tobytes())
f = h.astype("<f8")
mid = (f[:-1] + f[1:]) / 2
mid = mid[np.isfinite(mid)].astype("<f4") # ml_dtypes rounds by way of float32
for v in (mid, np.nextafter(mid, np.float32("inf")), np.nextafter(mid, np.float32("-inf"))):
    sys.stdout.buffer.write(np.int64(len(v)).tobytes() + v.tobytes() + v.astype(ml_dtypes.bfloat16).tobytes())
np.save(sys.stdout.buffer, h[16000:16003])
`)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1 << 16 {
		want := math.Float32frombits(binary.LittleEndian.Uint32(out[4*i:]))
		if got := BHalf(i).Float32(); math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
			t.Fatalf("bfloat16 %#x is %v, want %v", i, got, want)
		}
		if back := BHalfOf(float64(want)); want == want && back != BHalf(i) {
			t.Fatalf("bfloat16 of %v is %#x, want %#x", want, back, i)
		}
	}
	out = out[4<<16:]
	for range 3 {
		n := int(binary.LittleEndian.Uint64(out))
		from, to := out[8:8+4*n], out[8+4*n:8+6*n]
		for i := range n {
			v := float64(math.Float32frombits(binary.LittleEndian.Uint32(from[4*i:])))
			if got, want := BHalfOf(v), BHalf(binary.LittleEndian.Uint16(to[2*i:])); got != want {
				t.Fatalf("bfloat16 of %v is %#x, want %#x", v, got, want)
			}
		}
		out = out[8+6*n:]
	}
	// A little above half way, which a float32 cannot tell.
	if got := BHalfOf(1 + 0x1p-8 + 0x1p-40); got != 0x3f81 {
		t.Errorf("%#x", got)
	}
	if got := BHalfOf(math.NaN()).Float32(); got == got {
		t.Errorf("NaN is %v", got)
	}
	var a Array
	if err := a.DecodeNPY(out); err != nil || a.DType != BFloat16 || !slices.Equal(a.Shape, []int{3}) {
		t.Fatalf("%v: %+v", err, a)
	}
	values, _ := As[BHalf](BFloat16, a.Data)
	if !slices.Equal(values, []BHalf{16000, 16001, 16002}) {
		t.Errorf("%v", values)
	}
	if header := AppendNPYHeader(nil, BFloat16, []int{3}); !bytes.HasPrefix(out, header) {
		t.Errorf("ml_dtypes writes %q, we write %q", out[:len(header)], header)
	}
}

func TestDTypes(t *testing.T) {
	for i, d := range DTypes {
		if d.Size() == 0 || slices.Contains(DTypes[:i], d) {
			t.Errorf("%s", d)
		}
		if _, ok := npyDescr[d]; !ok {
			t.Errorf("%s has no name in npy", d)
		}
	}
	memory := make([]uint64, 2)
	data := binary.NativeEndian.AppendUint64(nil, 5)
	if v, ok := As[int64](Int64, data); !ok || v[0] != 5 {
		t.Errorf("%v", v)
	}
	for name, ok := range map[string]bool{
		"other type":   second(As[uint64](Int64, data)),
		"no such type": second(As[uint64]("x", data)),
		"part":         second(As[int64](Int64, data[:7])),
		"misaligned":   second(As[int64](Int64, bytesOf(memory)[1:9])),
	} {
		if ok {
			t.Errorf("%s passes", name)
		}
	}
	none := Array{DType: "x"}
	if none.Append(1) || none.Append(0.5) {
		t.Error("a number of no type")
	}
	if DTypeOf[bool]() != Bool || DTypeOf[Half]() != Float16 || DTypeOf[BHalf]() != BFloat16 || DTypeOf[int8]() != Int8 {
		t.Error("DTypeOf")
	}
}

func second[T any](_ T, ok bool) bool { return ok }

func bytesOf(v []uint64) []byte {
	b, _ := binary.Append(nil, binary.NativeEndian, v)
	return b
}

// In steady state nothing is allocated.
func TestAllocations(t *testing.T) {
	path, err := ParsePath("/objects/*/bbox")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := ParsePath("/plain")
	if err != nil {
		t.Fatal(err)
	}
	doc := []byte(strings.Replace(document1, `a\u0062`, "ab", 1)) // a name with an escape costs some
	file := append(AppendNPYHeader(nil, Float64, []int{300, 4}), make([]byte, 300*4*8)...)
	fortran := bytes.Replace(file, []byte("False,"), []byte("True, "), 1)
	class, score := []byte("12\n"), []byte("0.25\n")
	a := Array{DType: Float32}
	b := Array{DType: Uint8}
	for name, f := range map[string]func() error{
		"int":       func() error { return a.DecodeInt(class) },
		"float":     func() error { return a.DecodeFloat(score) },
		"text":      func() error { return b.DecodeText(doc) },
		"json":      func() error { return a.DecodeJSON(doc, path) },
		"json text": func() error { return b.DecodeJSONText(doc, plain) },
		"npy":       func() error { return a.DecodeNPY(file) },
		"fortran":   func() error { return a.DecodeNPY(fortran) },
	} {
		if n := testing.AllocsPerRun(100, func() {
			if err := f(); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	path, err := ParsePath("/annotations/*/bbox")
	if err != nil {
		b.Fatal(err)
	}
	doc := `{"annotations": [`
	for i := range 20 {
		doc += fmt.Sprintf(`%s{"id": %d, "bbox": [%d.25, 17.5, 200.0, %d], "segmentation": [%s1]}`, ", "[:min(i, 1)*2], i, i, i, strings.Repeat("123.25, ", 50))
	}
	doc += "]}"
	f8 := append(AppendNPYHeader(nil, Float64, []int{100, 100}), make([]byte, 80000)...)
	for _, c := range []struct {
		name string
		data []byte
		f    func(a *Array, data []byte) error
	}{
		{"json", []byte(doc), func(a *Array, data []byte) error { return a.DecodeJSON(data, path) }},
		{"npy/float64-float64", f8, func(a *Array, data []byte) error { a.DType = Float64; return a.DecodeNPY(data) }},
		{"npy/float64-float32", f8, func(a *Array, data []byte) error { a.DType = Float32; return a.DecodeNPY(data) }},
		{"npy/float64-int16", f8, func(a *Array, data []byte) error { a.DType = Int16; return a.DecodeNPY(data) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			var a Array
			b.SetBytes(int64(len(c.data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := c.f(&a, c.data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Whatever is in a file, nothing panics, memory is in proportion, errors have a kind, and
// what is read comes back from its own npy form.
func FuzzNPY(f *testing.F) {
	f.Add(append(AppendNPYHeader(nil, Int16, []int{3, 4}), make([]byte, 24)...), 3)
	f.Add(append(AppendNPYHeader(nil, Float64, nil), make([]byte, 8)...), 11)
	f.Add(npy("{'descr': '>f2', 'fortran_order': True, 'shape': (2, 3), }\n", 12), 0)
	f.Fuzz(func(t *testing.T, data []byte, as int) {
		var a Array
		if err := a.DecodeNPY(data); err != nil {
			if kindOf(err) == "unknown" {
				t.Fatal(err)
			}
			return
		}
		if cap(a.Data) > len(data)+64 || len(a.Data) > len(data) {
			t.Fatalf("%d bytes of memory for a file of %d", cap(a.Data), len(data))
		}
		again := append(AppendNPYHeader(nil, a.DType, a.Shape), little(&a)...)
		var b Array
		if err := b.DecodeNPY(again); err != nil || !slices.Equal(a.Shape, b.Shape) || !bytes.Equal(a.Data, b.Data) {
			t.Fatalf("%v: %v %v", err, a.Shape, b.Shape)
		}
		c := Array{DType: DTypes[uint(as)%uint(len(DTypes))]}
		if err := c.DecodeNPY(data); err != nil && kindOf(err) != "mismatch" {
			t.Fatal(err)
		}
	})
}

// What DecodeJSON finds is what encoding/json finds there.
func FuzzJSON(f *testing.F) {
	for _, path := range []string{"/objects/*/bbox", "/rows", "/image/a~1b/1", "/text", "/empty/*/*", ""} {
		f.Add([]byte(document1), path)
	}
	f.Add([]byte(`[[1,2],[3]]`), "/*/0")
	f.Add([]byte(`"a\"b"`), "")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		p, err := ParsePath(text)
		if err != nil {
			return
		}
		valid := json.Valid(data) && utf8.Valid(data)
		a := Array{DType: Float64}
		err = a.DecodeJSON(data, p)
		if kind := kindOf(err); valid == (kind == "malformed") || kind == "unknown" {
			t.Fatalf("%q at %q: %v", data, text, err)
		}
		var b Array
		if err := b.DecodeJSONText(data, p); kindOf(err) == "unknown" {
			t.Fatal(err)
		}
		if err != nil {
			return
		}
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber() // some that are not asked for are too large
		var doc any
		if err := dec.Decode(&doc); err != nil {
			t.Fatal(err)
		}
		if want, ok := reference(doc, p.steps); !ok || !slices.Equal(values(t, &a), want) {
			t.Fatalf("%q at %q: %v, want %v", data, text, values(t, &a), want)
		}
		n := 1
		for _, d := range a.Shape {
			n *= d
		}
		if n != a.Len() || a.Len() > (len(data)+1)/2 {
			t.Fatalf("%v has %d elements of %d bytes", a.Shape, a.Len(), len(data))
		}
	})
}

// reference is what is at a path, flat.
func reference(v any, steps []step) (all []float64, ok bool) {
	if len(steps) == 0 {
		switch v := v.(type) {
		case json.Number:
			f, err := v.Float64()
			return []float64{f}, err == nil
		case bool:
			return []float64{float64(b2i(v))}, true
		case []any:
			for _, e := range v {
				part, ok := reference(e, nil)
				if !ok {
					return nil, false
				}
				all = append(all, part...)
			}
			return all, true
		}
		return nil, false
	}
	switch v := v.(type) {
	case map[string]any:
		e, ok := v[steps[0].name]
		if !ok || steps[0].all {
			return nil, false
		}
		return reference(e, steps[1:])
	case []any:
		for i, e := range v {
			if steps[0].all || fmt.Sprint(i) == steps[0].name {
				part, ok := reference(e, steps[1:])
				if !ok {
					return nil, false
				}
				all = append(all, part...)
			}
		}
		return all, true
	}
	return nil, false
}
