package imaging

import (
	"bytes"

	"shardify/imaging/internal/exif"
)

// A JPEG file (ITU-T T.81, Annex B) is SOI, marker segments, and scans of
// entropy-coded data behind SOS segments, up to EOI:
//
//	FF D8 | FF marker, u16 length (itself included), payload | … | FF DA … scan | FF D9
//
// Inside a scan FF is followed by 00 (a stuffed FF), D0 to D7 (a restart) or the
// marker that ends it.
const (
	mTEM   = 0x01
	mSOF0  = 0xc0
	mDHT   = 0xc4
	mJPG   = 0xc8
	mDAC   = 0xcc
	mRST0  = 0xd0
	mRST7  = 0xd7
	mSOI   = 0xd8
	mEOI   = 0xd9
	mSOS   = 0xda
	mAPP1  = 0xe1
	mAPP14 = 0xee
)

// jpegCodings names the frame types by the low four bits of their SOF markers.
// Those of hierarchical files (SOF5 to 7, 13 to 15) are differences to another
// frame and cannot come first.
var jpegCodings = [16]string{
	0: "baseline", 1: "extended", 2: "progressive", 3: "lossless",
	9: "extended arithmetic", 10: "progressive arithmetic", 11: "lossless arithmetic",
}

// jpegHeader is what a JPEG's markers tell.
type jpegHeader struct {
	Info
	// adobe: there is an Adobe segment, which tells the colour space.
	adobe bool
	// scans counts the scans, as far as they had to be read.
	scans int
}

func probeJPEG(data []byte) (Info, error) {
	h, err := readJPEG(data)
	return h.Info, err
}

func readJPEG(data []byte) (jpegHeader, error) {
	info := jpegHeader{Info: Info{Format: JPEG, Orientation: 1}}
	end := func(what string) (jpegHeader, error) { return jpegHeader{}, truncated(JPEG, what, len(data)) }
	fault := func(at int, msg string) (jpegHeader, error) { return jpegHeader{}, malformed(JPEG, at, msg) }
	oriented := false
	pos := 2
	for {
		// To the next marker; libjpeg skips stray bytes and fill bytes too.
		i := bytes.IndexByte(data[pos:], 0xff)
		if i < 0 {
			return end("the image data: its end marker is missing")
		}
		pos += i + 1
		if pos == len(data) {
			return end("a marker")
		}
		marker := data[pos]
		switch {
		case marker == 0xff:
			continue
		case marker == 0, marker == mTEM, mRST0 <= marker && marker <= mRST7:
			pos++
			continue
		case marker == mEOI:
			if info.scans == 0 {
				return fault(pos-1, "the end marker comes before any image data")
			}
			return info, nil
		case marker == mSOI:
			return fault(pos-1, "a second image starts before the first one ends")
		}
		at := pos - 1
		pos++
		if len(data)-pos < 2 {
			return end("a marker segment")
		}
		n := int(be.Uint16(data[pos:]))
		if n < 2 {
			return fault(at, "a marker segment is shorter than its own length")
		}
		if n > len(data)-pos {
			return end("a marker segment")
		}
		payload := data[pos+2 : pos+n]
		pos += n
		switch {
		case marker == mAPP1 && !oriented && has(payload, "Exif\x00\x00"):
			info.Orientation, oriented = exif.Orientation(payload[6:]), true
		case marker == mAPP14 && len(payload) >= 12 && has(payload, "Adobe"):
			info.adobe = true
		case marker >= mSOF0 && marker <= 0xcf && marker != mDHT && marker != mJPG && marker != mDAC:
			if info.Coding != "" {
				return fault(at, "it has two frame headers")
			}
			info.Coding = jpegCodings[marker&15]
			if info.Coding == "" {
				return jpegHeader{}, &UnsupportedError{Format: JPEG, Msg: "hierarchical coding"}
			}
			if len(payload) < 6 || len(payload) < 6+3*int(payload[5]) {
				return fault(at, "the frame header is too short")
			}
			info.Bits = int(payload[0])
			info.Height = int(be.Uint16(payload[1:]))
			info.Width = int(be.Uint16(payload[3:]))
			info.Channels = int(payload[5])
			if info.Bits < 2 || info.Bits > 16 {
				return fault(at, "the frame header gives an impossible number of bits")
			}
			if info.Width == 0 {
				return fault(at, "the frame header gives width 0")
			}
			if info.Height == 0 {
				return jpegHeader{}, &UnsupportedError{Format: JPEG, Msg: "a height that only a DNL marker gives"}
			}
			switch info.Channels {
			case 1:
				info.Colorspace = Gray
			case 3:
				info.Colorspace = RGB
			case 4:
				info.Colorspace = CMYK
			case 0:
				return fault(at, "the frame header gives no components")
			default:
				return jpegHeader{}, &UnsupportedError{Format: JPEG, Msg: "a number of components other than 1, 3 and 4"}
			}
		case marker == mSOS:
			if info.Coding == "" {
				return fault(at, "image data comes before the frame header")
			}
			if len(payload) == 0 || len(payload) < 4+2*int(payload[0]) {
				return fault(at, "the scan header is too short")
			}
			info.scans++
			// Of the files with one scan, nearly all end in the end marker, and it
			// can stand nowhere else: no need to read the scan. Others may have its
			// bytes in a segment between two scans, or bytes behind it.
			single := info.Coding != "progressive" && info.Coding != "progressive arithmetic" && int(payload[0]) == info.Channels
			if n := len(data); single && n-pos >= 2 && data[n-2] == 0xff && data[n-1] == mEOI {
				return info, nil
			}
		}
	}
}
