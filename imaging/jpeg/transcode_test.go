package jpeg

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"shardify/imaging/internal/raster"
	"shardify/internal/peers"
)

// jpegtran returns what jpegtran makes of a file, nil where it makes none.
func jpegtran(t testing.TB, data []byte) []byte {
	t.Helper()
	cmd := exec.Command(peers.Program(t, "jpegtran"), "-copy", "all", "-optimize")
	cmd.Stdin = bytes.NewReader(data)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out // also where it warns, and exits with 2
}

// transcodes tells whether a file of the corpus can be transcoded.
func transcodes(name string) bool {
	switch name {
	case "unfinished.jpg", "dc-only.jpg", "planes4x4.jpg":
		return false
	}
	return true
}

// Every kind of file becomes what jpegtran makes of it, a baseline file of one scan with
// Pillow's pixels of the original.
func TestTranscodeCorpus(t *testing.T) {
	files, want := corpus(t), sums(t)
	var tr Transcoder
	var d Decoder
	for _, name := range sorted(files) {
		data := files[name]
		out, err := tr.Transcode([]byte("x"), data, TranscodeOptions{Verify: true})
		if !transcodes(name) {
			var unsupported *UnsupportedError
			if !errors.As(err, &unsupported) || string(out) != "x" {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		out = out[1:]
		if want := jpegtran(t, data); !bytes.Equal(out, want) {
			t.Errorf("%s: %s", name, differ(out, want))
		}
		var m raster.Image
		if err := d.Decode(out, &m, Options{Orient: true}); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := sum(&m); got != want[name] {
			t.Errorf("%s: %s, not %s", name, got, want[name])
		}
		if h, err := ReadHeader(out); err != nil || !h.OneScan || h.Coding == "progressive" || h.RestartInterval != 0 {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
		if err := tr.Verify(data, out, TranscodeOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if again, err := tr.Transcode(nil, out, TranscodeOptions{}); err != nil || !bytes.Equal(again, out) {
			t.Errorf("%s: transcoded again it is another file: %v", name, err)
		}
	}
}

// So do photographs, as they are and made progressive.
func TestTranscodePhotographs(t *testing.T) {
	program := peers.Program(t, "jpegtran")
	var tr Transcoder
	var out []byte
	for i, name := range photographs(t) {
		if i%20 != 0 {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		progressive, err := exec.Command(program, "-copy", "all", "-progressive", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		for kind, data := range map[string][]byte{"as it is": data, "progressive": progressive} {
			if out, err = tr.Transcode(out[:0], data, TranscodeOptions{Verify: true}); err != nil {
				t.Errorf("%s, %s: %v", name, kind, err)
				continue
			}
			if want := jpegtran(t, data); !bytes.Equal(out, want) {
				t.Errorf("%s, %s: %s", name, kind, differ(out, want))
			}
		}
	}
}

// What segments a file has, and in which order, decides which ones come first.
func TestTranscodeSegments(t *testing.T) {
	files := corpus(t)
	app := func(marker byte, payload string) []byte {
		return append(appendHead(nil, marker, len(payload)), payload...)
	}
	jfif := app(0xe0, "JFIF\x00\x01\x02\x01\x00\x48\x00\x49\x00\x00")
	thumbnail := app(0xe0, "JFIF\x00\x01\x02\x01\x00\x48\x00\x49\x01\x01abc")
	jfxx := app(0xe0, "JFXX\x00\x10")
	two := app(0xe0, "JFIF\x00\x02\x02\x01\x00\x48\x00\x49\x00\x00")
	short := app(0xe0, "JFIF\x00\x01")
	exif := app(0xe1, "Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x00")
	xmp := app(0xe1, "http://ns.adobe.com/xap/1.0/\x00<x/>")
	comment := app(0xfe, "words")
	adobe := app(0xee, "Adobe\x00\x64\x00\x00\x00\x00\x01")
	adobeRGB := app(0xee, "Adobe\x00\x64\x00\x00\x00\x00\x00")
	ducky := app(0xec, "Ducky")
	other := app(0xee, "Other")
	var tr Transcoder
	for _, name := range []string{"70x41-sample2x2.jpg", "3x200-restart1.jpg", "cmyk.jpg", "70x41-rgb-quality90.jpg", "17x17-progressive.jpg"} {
		for i, list := range [][][]byte{
			{}, {jfif}, {exif}, {exif, jfif}, {jfif, exif}, {comment, exif, jfif}, {xmp, exif}, {thumbnail, comment}, {two},
			{jfxx, jfif, jfif}, {short}, {adobe}, {adobe, jfif, adobe}, {adobeRGB}, {adobeRGB, exif, comment, xmp, comment, ducky},
			{other, exif}, {exif, adobe, ducky, other},
		} {
			data := files[name]
			end := 2
			for data[end+1] >= 0xe0 && data[end+1] <= 0xef || data[end+1] == 0xfe {
				end += 2 + int(data[end+2])<<8 + int(data[end+3])
			}
			file := slices.Concat(data[:2], slices.Concat(list...), data[end:])
			// And one behind the frame header, or between scans.
			at := bytes.LastIndex(file, []byte{0xff, 0xc4})
			file = slices.Insert(file, at, app(0xfe, "late")...)
			out, err := tr.Transcode(nil, file, TranscodeOptions{})
			if want := jpegtran(t, file); err != nil || !bytes.Equal(out, want) {
				t.Errorf("%s, %d: %v: %s", name, i, err, differ(out, want))
				continue
			}
			if err := tr.Verify(file, out, TranscodeOptions{}); err != nil {
				t.Errorf("%s, %d: %v", name, i, err)
			}
		}
	}
}

// Steps of more than 8 bits need another frame header; a table that changes between scans
// becomes two.
func TestTranscodeQuantisation(t *testing.T) {
	files := corpus(t)
	var tr Transcoder
	data := bytes.Clone(files["70x41-sample2x2.jpg"])
	at := bytes.Index(data, []byte{0xff, 0xdb})
	wide := append(appendHead(nil, 0xdb, 129), 0x10)
	for i := range 64 {
		wide = append(wide, byte(i/40), byte(i*5))
	}
	data = slices.Concat(data[:at], wide, data[at+69:])
	out, err := tr.Transcode(nil, data, TranscodeOptions{})
	if want := jpegtran(t, data); err != nil || !bytes.Equal(out, want) {
		t.Errorf("%v: %s", err, differ(out, want))
	}
	if h, err := ReadHeader(out); err != nil || h.Coding != "extended" {
		t.Errorf("%+v, %v", h, err)
	}

	// Three scans; before the third, chroma's table is defined anew.
	data = files["planes1x1.jpg"]
	last := bytes.LastIndex(data, []byte{0xff, 0xda})
	table := bytes.Index(data, append([]byte{0xff, 0xdb, 0, 67}, 1))
	other := bytes.Clone(data[table : table+69])
	other[5]++
	data = slices.Insert(bytes.Clone(data), last, other...)
	if out, err = tr.Transcode(nil, data, TranscodeOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := tr.Verify(data, out, TranscodeOptions{}); err != nil {
		t.Error(err)
	}
	var d Decoder
	var m, n raster.Image
	if err := errors.Join(d.Decode(data, &m, Options{}), d.Decode(out, &n, Options{})); err != nil || !bytes.Equal(m.Pix, n.Pix) {
		t.Errorf("%v, or other pixels", err)
	}
}

// What is refused, and why.
func TestTranscodeErrors(t *testing.T) {
	good := corpus(t)["70x41-sample2x2.jpg"]
	sof := bytes.Index(good, []byte{0xff, 0xc0})
	set := func(at int, b ...byte) func([]byte) []byte {
		return func(data []byte) []byte { copy(data[at:], b); return data }
	}
	var unsupported *UnsupportedError
	var format *FormatError
	var damaged *DamagedError
	var tr Transcoder
	for name, c := range map[string]struct {
		change func([]byte) []byte
		as     any
		is     error
		text   string
	}{
		"empty":      {func([]byte) []byte { return nil }, nil, ErrTruncated, ""},
		"lossless":   {set(sof+1, 0xc3), &unsupported, nil, "lossless"},
		"arithmetic": {set(sof+1, 0xc9), &unsupported, nil, "arithmetic"},
		"12 bits":    {set(sof+4, 12), &unsupported, nil, "12 bits"},
		"huge":       {set(sof+5, 0xff, 0xff, 0xff, 0xff), nil, ErrTooLarge, "65535 x 65535"},
		"large":      {set(sof+5, 0x2f, 0xff, 0x2f, 0xff), nil, ErrTruncated, "cannot hold"},
		"cut":        {func(d []byte) []byte { return d[:len(d)/2] }, &damaged, ErrTruncated, "inside the image data"},
		"no end":     {func(d []byte) []byte { return d[:len(d)-2] }, &damaged, ErrTruncated, ""},
		"rest":       {func(d []byte) []byte { return slices.Insert(d, len(d)-2, 1, 2, 3) }, &damaged, nil, "at byte"},
		"a table":    {set(sof+12, 3), &format, nil, "quantisation table 3 is missing"},
	} {
		data := c.change(slices.Clone(good))
		out, err := tr.Transcode([]byte("x"), data, TranscodeOptions{})
		if err == nil || string(out) != "x" || c.as != nil && !errors.As(err, c.as) || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
	if _, err := tr.Transcode(nil, good, TranscodeOptions{MaxPixels: 70*41 - 1}); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if _, err := tr.Transcode(nil, good, TranscodeOptions{MaxPixels: -1}); err == nil {
		t.Error("max_pixels -1 passes")
	}
	if _, err := tr.Transcode(nil, good, TranscodeOptions{}); err != nil {
		t.Error(err)
	}
}

// A coefficient that no 8-bit samples make is refused, as jpegtran refuses it, and where.
func TestTranscodeRange(t *testing.T) {
	one := func(class, symbol byte) []byte {
		def := append(appendHead(nil, 0xc4, 18), class<<4, 1)
		return append(append(def, make([]byte, 15)...), symbol)
	}
	for size, ok := range map[byte]bool{11: true, 12: false} {
		quant := append(appendHead(nil, 0xdb, 65), 0)
		quant = append(quant, bytes.Repeat([]byte{1}, 64)...)
		frame := append(appendHead(nil, 0xc0, 9), 8, 0, 8, 0, 8, 1, 1, 0x11, 0)
		scan := append(appendHead(nil, 0xda, 6), 1, 1, 0, 0, 63, 0)
		// A difference of 1 and zeros, in so many bits; the end of the block; ones.
		bits := uint16(1)<<14 | (1<<(14-size) - 1)
		data := slices.Concat([]byte{0xff, 0xd8}, quant, frame, one(0, size), one(1, 0), scan, []byte{byte(bits >> 8), byte(bits)}, []byte{0xff, 0xd9})
		out, err := new(Transcoder).Transcode(nil, data, TranscodeOptions{Verify: true})
		if want := jpegtran(t, data); !bytes.Equal(out, want) || ok != (len(want) > 0) {
			t.Errorf("size %d: %v: %s", size, err, differ(out, want))
		}
		var format *FormatError
		if !ok && (!errors.As(err, &format) || !strings.Contains(err.Error(), "2048 in component 0, block column 0, row 0")) {
			t.Errorf("size %d: %v", size, err)
		}
	}
}

// Verify finds every difference.
func TestVerify(t *testing.T) {
	files := corpus(t)
	good := files["70x41-sample2x2.jpg"]
	var tr Transcoder
	out, err := tr.Transcode(nil, good, TranscodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string][]byte{
		"pixels":       files["70x41-rgb-quality90.jpg"],
		"sampled":      files["70x41-sample2x1.jpg"],
		"orientation":  files["exif6.jpg"],
		"Gray":         files["3x200-restart1.jpg"],
		"profile":      files["icc.jpg"],
		"second":       out[:len(out)-2],
		"quantisation": set1(out, bytes.Index(out, []byte{0xff, 0xdb})+10),
	} {
		switch err := tr.Verify(good, other, TranscodeOptions{}); {
		case err == nil:
			t.Errorf("%s passes", name)
		case name == "Gray", name == "orientation", name == "pixels": // other dimensions come first, or models
		case !strings.Contains(err.Error(), name):
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := tr.Verify(good[:200], good, TranscodeOptions{}); err == nil || !strings.Contains(err.Error(), "first") {
		t.Error(err)
	}
	// Of bits changed in the scan, all that leave a file are found, by place.
	scan := bytes.LastIndex(out, []byte{0xff, 0xda}) + 14
	var d Decoder
	var m, n raster.Image
	if err := d.Decode(good, &m, Options{}); err != nil {
		t.Fatal(err)
	}
	found := 0
	for at := scan; at < len(out)-2; at += 11 {
		for bit := range 8 {
			bad := bytes.Clone(out)
			bad[at] ^= 1 << bit
			err := tr.Verify(good, bad, TranscodeOptions{})
			if err == nil {
				if e := d.Decode(bad, &n, Options{}); e != nil || !bytes.Equal(m.Pix, n.Pix) {
					t.Fatalf("bit %d of byte %d: passes", bit, at)
				}
			} else if strings.Contains(err.Error(), "block column") {
				found++
			}
		}
	}
	if found == 0 {
		t.Error("no coefficient was found to differ")
	}
}

// set1 adds 1 to a byte of a copy.
func set1(data []byte, at int) []byte {
	data = bytes.Clone(data)
	data[at]++
	return data
}

// Cut anywhere, or with a bit changed, a file is refused, or what comes of it shows what
// the decoder shows.
func TestTranscodeDamaged(t *testing.T) {
	files := corpus(t)
	r := rand.New(rand.NewPCG(7, 8))
	var tr Transcoder
	var d Decoder
	for _, name := range sorted(files) {
		if !transcodes(name) {
			continue
		}
		for range 10 {
			data := damage(r, files[name])
			out, err := tr.Transcode(nil, data, TranscodeOptions{MaxPixels: 1 << 20})
			if err != nil {
				continue
			}
			var m, n raster.Image
			if err := errors.Join(d.Decode(data, &m, Options{}), d.Decode(out, &n, Options{})); err != nil || !bytes.Equal(m.Pix, n.Pix) {
				t.Errorf("%s: %v, or other pixels", name, err)
			}
		}
	}
}

// Once warm, transcoding allocates nothing.
func TestTranscodeAllocations(t *testing.T) {
	files := corpus(t)
	var tr Transcoder
	out := make([]byte, 0, 1<<20)
	for _, name := range []string{"70x41-sample2x2.jpg", "70x41-sample1x1-progressive.jpg", "120x90-quality98.jpg", "3x200-restart1.jpg", "cmyk.jpg", "exif6.jpg", "17x17-progressive.jpg"} {
		if n := testing.AllocsPerRun(20, func() {
			if _, err := tr.Transcode(out, files[name], TranscodeOptions{Verify: true}); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// The bytes are frozen.
func TestTranscodeGolden(t *testing.T) {
	files := corpus(t)
	var tr Transcoder
	h := sha256.New()
	for _, name := range sorted(files) {
		if !transcodes(name) {
			continue
		}
		out, err := tr.Transcode(nil, files[name], TranscodeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		h.Write(out)
	}
	if got, want := hex.EncodeToString(h.Sum(nil)), "7b5fa01bfb1fdb01bf38fef67c4ddf4f1a21395d6ea2e894317dec9024cd80db"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
}

// Any bytes: no fault; what is transcoded is the same to Verify and the decoder, and
// transcoded again it stays as it is.
func FuzzTranscode(f *testing.F) {
	for _, data := range corpus(f) {
		f.Add(data)
	}
	var tr Transcoder
	var d Decoder
	f.Fuzz(func(t *testing.T, data []byte) {
		o := TranscodeOptions{MaxPixels: 1 << 18, Verify: true}
		out, err := tr.Transcode(nil, data, o)
		if err != nil {
			if strings.Contains(err.Error(), "verification") {
				t.Fatal(err)
			}
			return
		}
		if err := tr.Verify(data, out, o); err != nil {
			t.Fatal(err)
		}
		again, err := tr.Transcode(nil, out, o)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("transcoded again it is another file: %v", err)
		}
		var m, n raster.Image
		if err := errors.Join(d.Decode(data, &m, Options{}), d.Decode(out, &n, Options{})); err != nil || !bytes.Equal(m.Pix, n.Pix) {
			t.Fatalf("%v, or other pixels", err)
		}
	})
}
