package imaging

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"runtime"
	"strings"
	"testing"

	"shardify/imaging/internal/exif"
)

// seg is a JPEG marker segment.
func seg(marker byte, payload string) string {
	return string([]byte{0xff, marker, byte((len(payload) + 2) >> 8), byte(len(payload) + 2)}) + payload
}

// frame is a frame header of 5 x 3 pixels and n components.
func frame(sof byte, bits, n int) string {
	p := string([]byte{byte(bits), 0, 3, 0, 5, byte(n)})
	for i := range n {
		p += string([]byte{byte(i + 1), 0x11, 0})
	}
	return seg(sof, p)
}

// scan is a scan of n components with three bytes of data.
func scan(n int) string {
	p := string([]byte{byte(n)})
	for i := range n {
		p += string([]byte{byte(i + 1), 0})
	}
	return seg(mSOS, p+"\x00\x3f\x00") + "abc"
}

const (
	mDHT = 0xc4
	mSOS = 0xda

	soi = "\xff\xd8"
	eoi = "\xff\xd9"
)

func TestProbeReadsEveryKindOfJPEG(t *testing.T) {
	for _, c := range []struct {
		data string
		want Info
	}{
		{soi + frame(0xc0, 8, 3) + scan(3) + eoi, Info{Coding: "baseline", Channels: 3, Bits: 8, Colorspace: RGB}},
		{soi + frame(0xc1, 12, 1) + scan(1) + eoi, Info{Coding: "extended", Channels: 1, Bits: 12, Colorspace: Gray}},
		{soi + frame(0xc2, 8, 4) + scan(4) + eoi, Info{Coding: "progressive", Channels: 4, Bits: 8, Colorspace: CMYK}},
		{soi + frame(0xc3, 16, 1) + scan(1) + eoi, Info{Coding: "lossless", Channels: 1, Bits: 16, Colorspace: Gray}},
		{soi + frame(0xc9, 8, 3) + scan(3) + eoi, Info{Coding: "extended arithmetic", Channels: 3, Bits: 8, Colorspace: RGB}},
		{soi + frame(0xca, 8, 3) + scan(3) + eoi, Info{Coding: "progressive arithmetic", Channels: 3, Bits: 8, Colorspace: RGB}},
		{soi + frame(0xcb, 8, 3) + scan(3) + eoi, Info{Coding: "lossless arithmetic", Channels: 3, Bits: 8, Colorspace: RGB}},
		// Several scans, tables between them that hold the bytes of an end marker,
		// stuffed bytes, restarts, fill bytes, stray bytes.
		{soi + frame(0xc0, 8, 3) + scan(1) + seg(mDHT, eoi) + scan(1) + "\xff\x00\xff\xd0x" + scan(1) + "\xff\xff" + eoi, Info{Coding: "baseline", Channels: 3, Bits: 8, Colorspace: RGB}},
		{soi + seg(0xe0, "JFIF") + "stray\xff\xff\xff" + frame(0xc0, 8, 1)[1:] + scan(1) + eoi, Info{Coding: "baseline", Channels: 1, Bits: 8, Colorspace: Gray}},
	} {
		c.want.Format, c.want.Width, c.want.Height, c.want.Orientation = JPEG, 5, 3, 1
		if got, err := Probe([]byte(c.data)); err != nil || got != c.want {
			t.Errorf("%q: %+v, %v; want %+v", c.data, got, err, c.want)
		}
		for n := range len(c.data) {
			if _, err := Probe([]byte(c.data[:n])); !damaged(err) {
				t.Errorf("%q cut to %d bytes: %v", c.data, n, err)
				break
			}
		}
		// Junk behind the end is no fault, nor can it stand in for the end.
		for _, junk := range []string{"\x00", "junk", "\xff", "x" + eoi} {
			if _, err := Probe([]byte(c.data + junk)); err != nil {
				t.Errorf("%q: %v", c.data+junk, err)
			}
		}
	}
}

func TestProbeSaysWhatIsWrong(t *testing.T) {
	head := frame(0xc0, 8, 3)
	for _, c := range []struct{ data, want string }{
		{soi + eoi, "jpeg: the end marker comes before any image data (at byte 2)"},
		{soi + head + eoi, "before any image data"},
		{soi + scan(3) + eoi, "jpeg: image data comes before the frame header (at byte 2)"},
		{soi + head + head + scan(3) + eoi, "jpeg: it has two frame headers (at byte 21)"},
		{soi + soi, "a second image starts"},
		{soi + seg(0xc0, "\x08\x00\x03\x00\x00\x01\x01\x11\x00") + scan(1) + eoi, "width 0"},
		{soi + seg(0xc0, "\x08\x00\x00\x00\x05\x01\x01\x11\x00") + scan(1) + eoi, "DNL"},
		{soi + seg(0xc0, "\x08\x00\x03\x00\x05\x00") + scan(1) + eoi, "no components"},
		{soi + seg(0xc0, "\x08\x00\x03\x00\x05\x03\x01\x11\x00") + scan(1) + eoi, "the frame header has the wrong length"},
		{soi + frame(0xc0, 8, 2) + scan(2) + eoi, "components other than"},
		{soi + frame(0xc5, 8, 3) + scan(3) + eoi, "hierarchical"},
		{soi + head + "\xff\xda\x00\x01" + eoi, "shorter than its own length"},
		{soi + head + seg(mSOS, "\x03\x01") + eoi, "the scan header has the wrong length"},
		{soi + head + scan(3), "jpeg: the file ends early: 38 bytes, and it stops inside the image data: its end marker is missing"},
		{pngMagic + "\x00\x00\x00\x00IEND\xae\x42\x60\x82", "the first chunk is no IHDR"},
		{pngMagic + chunk("IHDR", "\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00") + chunk("IEND", ""), "png: it ends without image data (at byte 33)"},
		{pngMagic + chunk("IHDR", "\x00\x00\x00\x00\x00\x00\x00\x01\x08\x02\x00\x00\x00"), "impossible width"},
		{pngMagic + chunk("IHDR", "\x00\x00\x00\x01\x00\x00\x00\x01\x08\x05\x00\x00\x00"), "unknown colour type"},
		{pngMagic + chunk("IHDR", "\x00\x00\x00\x01\x00\x00\x00\x01\x10\x03\x00\x00\x00"), "bit depth"},
		{pngMagic + strings.Replace(chunk("IHDR", "\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00"), "\x08", "\x10", 1), "checksum"},
		{"GIF89a\x01\x00\x01\x00\x00\x00\x00\x3b", "gif: it ends without a frame (at byte 13)"},
		{"GIF89a\x01\x00\x01\x00\x00\x00\x00\x77", "gif: an unknown block (at byte 13)"},
		{"RIFF\x04\x00\x00\x00WEBP", "webp: it has no image data"},
		{"RIFF\x0c\x00\x00\x00WEBPVP8 \x05\x00\x00\x00", "longer than the file's RIFF chunk"},
		{"RIFF\xff\x00\x00\x00WEBPVP8 \x05\x00\x00\x00", "the file ends early"},
		{"II*\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00", "tiff: the directory gives an impossible width or height (at byte 8)"},
	} {
		_, err := Probe([]byte(c.data))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v; want %q", c.data, err, c.want)
		}
	}
}

// chunk is a PNG chunk.
func chunk(kind, data string) string {
	b := make([]byte, 4)
	be.PutUint32(b, uint32(len(data)))
	sum := make([]byte, 4)
	be.PutUint32(sum, crc32.ChecksumIEEE([]byte(kind+data)))
	return string(b) + kind + data + string(sum)
}

func TestExifOrientation(t *testing.T) {
	entry := func(order, tag, kind, count, value string) string {
		if order == "II" {
			return "II*\x00\x08\x00\x00\x00\x01\x00" + tag + kind + count + value + "\x00\x00\x00\x00"
		}
		return "MM\x00*\x00\x00\x00\x08\x00\x01" + tag + kind + count + value + "\x00\x00\x00\x00"
	}
	for _, c := range []struct {
		exif string
		want int
	}{
		{entry("II", "\x12\x01", "\x03\x00", "\x01\x00\x00\x00", "\x06\x00\x00\x00"), 6},
		{entry("MM", "\x01\x12", "\x00\x03", "\x00\x00\x00\x01", "\x00\x08\x00\x00"), 8},
		{entry("II", "\x12\x01", "\x04\x00", "\x01\x00\x00\x00", "\x03\x00\x00\x00"), 3},
		{entry("II", "\x12\x01", "\x03\x00", "\x01\x00\x00\x00", "\x09\x00\x00\x00"), 1},
		{entry("II", "\x12\x01", "\x03\x00", "\x01\x00\x00\x00", "\x00\x00\x00\x00"), 1},
		{entry("II", "\x12\x01", "\x02\x00", "\x01\x00\x00\x00", "\x06\x00\x00\x00"), 1},
		{entry("II", "\x12\x01", "\x03\x00", "\x00\x00\x00\x00", "\x06\x00\x00\x00"), 1},
		{entry("II", "\x13\x01", "\x03\x00", "\x01\x00\x00\x00", "\x06\x00\x00\x00"), 1},
		{"II*\x00\xff\xff\xff\xff", 1},
		{"junk", 1},
		{"", 1},
	} {
		if got := exif.Orientation([]byte(c.exif)); got != c.want {
			t.Errorf("%q: %d; want %d", c.exif, got, c.want)
		}
		for n := range len(c.exif) {
			exif.Orientation([]byte(c.exif[:n]))
		}
	}
}

// known reports whether err is of a kind that the package's doc names.
func known(err error) bool {
	var format *FormatError
	var unsupported *UnsupportedError
	return errors.Is(err, ErrTruncated) || errors.Is(err, ErrUnknownFormat) || errors.Is(err, ErrTooLarge) ||
		errors.As(err, &format) || errors.As(err, &unsupported)
}

func TestDecodeSurvivesEveryFlippedByte(t *testing.T) {
	var m Image
	for _, f := range corpus(t) {
		data := bytes.Clone(f.data)
		for i := 0; i < len(data); i += every {
			flip := [...]byte{0xff, 0x01, 0x80}[i%3]
			data[i] ^= flip
			if err := Std.Decode(data, &m, DecodeOptions{MaxPixels: 1 << 16}); err != nil && !known(err) {
				t.Fatalf("%s, byte %d ^ %#x: %v", f.name, i, flip, err)
			}
			data[i] ^= flip
		}
	}
}

func TestDecodeRefusesACutFile(t *testing.T) {
	var m Image
	for _, f := range corpus(t) {
		for n := 0; n < len(f.data)-spare[f.name]; n += 7 {
			if err := Std.Decode(f.data[:n:n], &m, DecodeOptions{}); !damaged(err) {
				t.Errorf("%s cut from %d to %d bytes: %v", f.name, len(f.data), n, err)
				break
			}
		}
	}
}

// A header that promises much more than the file can hold must not cost memory.
func TestDecodeChecksDimensionsBeforeItAllocates(t *testing.T) {
	files := map[string][]byte{}
	for _, f := range corpus(t) {
		files[f.name] = f.data
	}
	jpeg := bytes.Clone(files["444.jpg"])
	at := bytes.Index(jpeg, []byte{0xff, 0xc0})
	be.PutUint16(jpeg[at+5:], 13000)
	be.PutUint16(jpeg[at+7:], 13000)
	png := []byte(pngMagic + chunk("IHDR", "\x00\x00\x32\x00\x00\x00\x32\x00\x08\x02\x00\x00\x00") + chunk("IDAT", "x") + chunk("IEND", ""))
	gif := bytes.Clone(files["palette.gif"])
	le.PutUint16(gif[6:], 65535)
	le.PutUint16(gif[8:], 65535)
	webp := []byte("RIFF\x16\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x10\x00\x00\x00\xff\xff\xff\xff\xff\xff")
	webp = append(webp, files["lossless.webp"][12:]...)
	le.PutUint32(webp[4:], uint32(len(webp)-8))
	bmp := bytes.Clone(files["rle8.bmp"])
	le.PutUint32(bmp[18:], 1<<30)
	le.PutUint32(bmp[22:], 1<<30)
	tiff := bytes.Clone(files["rgb-le.tif"])
	dir := le.Uint32(tiff[4:])
	le.PutUint16(tiff[dir+2+8:], 60000)
	le.PutUint16(tiff[dir+2+12+8:], 60000)
	for name, data := range map[string][]byte{"jpeg": jpeg, "png": png, "gif": gif, "webp": webp, "bmp": bmp, "tiff": tiff} {
		if _, err := Probe(data); err != nil {
			t.Errorf("%s: Probe: %v; the file is to get past it", name, err)
		}
		var m Image
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := Std.Decode(data, &m, DecodeOptions{})
		runtime.ReadMemStats(&after)
		if err == nil || !known(err) {
			t.Errorf("%s: %v", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%s: %d bytes were allocated before %q", name, n, err)
		}
	}
}

// What libjpeg warns of is shown, unless Strict asks for more.
func TestStrict(t *testing.T) {
	var data []byte
	for _, f := range corpus(t) {
		if f.name == "444.jpg" {
			data = f.data
		}
	}
	scan := bytes.Index(data, []byte{0xff, mSOS}) + 14
	var m Image
	for name, file := range map[string][]byte{
		"short": append(bytes.Clone(data[:(scan+len(data))/2]), eoi...),
		"rest":  append(bytes.Clone(data[:len(data)-2]), "abc"+eoi...),
	} {
		if err := Std.Decode(file, &m, DecodeOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var format *FormatError
		if err := Std.Decode(file, &m, DecodeOptions{Strict: true}); !errors.As(err, &format) {
			t.Errorf("%s: strictly %v", name, err)
		}
	}
	if err := Std.Decode(data, &m, DecodeOptions{Strict: true}); err != nil {
		t.Error(err)
	}
}

func TestMaxPixels(t *testing.T) {
	var m Image
	for _, f := range corpus(t) {
		if unsupported[f.name] {
			continue
		}
		n := int64(f.width * f.height)
		if err := Std.Decode(f.data, &m, DecodeOptions{MaxPixels: n}); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
		err := Std.Decode(f.data, &m, DecodeOptions{MaxPixels: n - 1})
		if n > 1 && (!errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), fmt.Sprintf("the bound (max_pixels) is %d", n-1))) {
			t.Errorf("%s: %v; want ErrTooLarge", f.name, err)
		}
	}
	if err := Std.Decode(nil, &m, DecodeOptions{MaxPixels: -1}); err == nil {
		t.Error("a bound below 0: no error")
	}
}

func TestAPanicInALibraryIsAnError(t *testing.T) {
	_, err := library(PNG, nil, func(io.Reader) (int, error) { panic("index out of range") })
	var format *FormatError
	if !errors.As(err, &format) || !strings.Contains(err.Error(), "the decoder gave up: index out of range") {
		t.Error(err)
	}
}

func FuzzProbe(f *testing.F) {
	for _, file := range corpus(f) {
		f.Add(file.data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		info, err := Probe(data)
		if err != nil {
			if info != (Info{}) || !known(err) {
				t.Fatalf("%+v, %v", info, err)
			}
			return
		}
		if info.Width < 1 || info.Height < 1 || info.Channels < 1 || info.Bits < 1 || info.Orientation < 1 || info.Orientation > 8 ||
			info.Format != sniff(data) || info.Colorspace != RGB && info.Colorspace != Gray && info.Colorspace != CMYK {
			t.Fatalf("%+v", info)
		}
		// What lies behind the end does not matter. (It makes Probe read the scan of
		// a JPEG, which may show damage that it had no cause to look for.)
		if again, err := Probe(append(bytes.Clone(data), "behind the end"...)); (err != nil || again != info) && info.Format != JPEG {
			t.Fatalf("%+v, with bytes behind it %+v, %v", info, again, err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, file := range corpus(f) {
		f.Add(file.data, false)
		f.Add(file.data, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, orient bool) {
		var m Image
		if err := Std.Decode(data, &m, DecodeOptions{MaxPixels: 1 << 16, Orient: orient}); err != nil {
			if !known(err) {
				t.Fatal(err)
			}
			return
		}
		info, err := Probe(data)
		if err != nil {
			t.Fatalf("decoded what Probe refuses: %v", err)
		}
		w, h := info.Width, info.Height
		if orient {
			w, h = info.Upright()
		}
		if m.Width != w || m.Height != h || m.Stride != 3*w || len(m.Pix) != 3*w*h {
			t.Fatalf("%d x %d, stride %d, %d bytes of %+v", m.Width, m.Height, m.Stride, len(m.Pix), info)
		}
	})
}
