package imaging

import (
	"bytes"

	"shardify/imaging/jpeg"
)

// A JPEG file (ITU-T T.81, Annex B) is SOI, marker segments, and scans of
// entropy-coded data behind SOS segments, up to EOI:
//
//	FF D8 | FF marker, u16 length (itself included), payload | … | FF DA … scan | FF D9
//
// Inside a scan FF is followed by 00 (a stuffed FF), D0 to D7 (a restart) or the
// marker that ends it.
const (
	mTEM  = 0x01
	mRST0 = 0xd0
	mRST7 = 0xd7
	mSOI  = 0xd8
	mEOI  = 0xd9
)

func probeJPEG(data []byte) (Info, error) {
	h, err := jpeg.ReadHeader(data)
	if err != nil {
		return Info{}, err
	}
	// Of the files with one scan, nearly all end in the end marker, and it can stand
	// nowhere else: no need to read the scan. Others may have its bytes in a segment
	// between two scans, or bytes behind it.
	n := len(data)
	if !h.OneScan || n-h.Size < 2 || data[n-2] != 0xff || data[n-1] != mEOI {
		if err := findEOI(data, h.Size); err != nil {
			return Info{}, err
		}
	}
	info := Info{
		Format: JPEG, Coding: h.Coding, Width: h.Width, Height: h.Height,
		Channels: h.Components, Bits: h.Bits, Orientation: h.Orientation,
	}
	switch h.Components {
	case 1:
		info.Colorspace = Gray
	case 3:
		info.Colorspace = RGB
	default:
		info.Colorspace = CMYK
	}
	return info, nil
}

// findEOI goes from a scan's data, at pos, to the end marker.
func findEOI(data []byte, pos int) error {
	for {
		// To the next marker; libjpeg skips stray bytes and fill bytes too.
		i := bytes.IndexByte(data[pos:], 0xff)
		if i < 0 {
			return truncated(JPEG, "the image data: its end marker is missing", len(data))
		}
		pos += i + 1
		if pos == len(data) {
			return truncated(JPEG, "a marker", len(data))
		}
		marker := data[pos]
		switch {
		case marker == 0xff:
			continue
		case marker == 0, marker == mTEM, mRST0 <= marker && marker <= mRST7:
			pos++
			continue
		case marker == mEOI:
			return nil
		case marker == mSOI:
			return malformed(JPEG, pos-1, "a second image starts before the first one ends")
		}
		at := pos - 1
		pos++
		if len(data)-pos < 2 {
			return truncated(JPEG, "a marker segment", len(data))
		}
		n := int(be.Uint16(data[pos:]))
		if n < 2 {
			return malformed(JPEG, at, "a marker segment is shorter than its own length")
		}
		if n > len(data)-pos {
			return truncated(JPEG, "a marker segment", len(data))
		}
		pos += n
	}
}
