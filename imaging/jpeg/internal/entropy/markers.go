package entropy

import (
	"encoding/binary"
	"fmt"

	"shardify/imaging/internal/exif"
	"shardify/imaging/internal/fault"
	"shardify/imaging/jpeg/internal/blocks"
)

const format = "jpeg"

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
	mSOF15 = 0xcf
	mDHT   = 0xc4
	mJPG   = 0xc8
	mDAC   = 0xcc
	mRST0  = 0xd0
	mRST7  = 0xd7
	mSOI   = 0xd8
	mEOI   = 0xd9
	mSOS   = 0xda
	mDQT   = 0xdb
	mDNL   = 0xdc
	mDRI   = 0xdd
	mAPP0  = 0xe0
	mAPP1  = 0xe1
	mAPP2  = 0xe2
	mAPP14 = 0xee
	mAPP15 = 0xef
	mCOM   = 0xfe
)

// Coding is a frame's kind: the low four bits of its SOF marker.
type Coding uint8

// The kinds that are decoded; Coding.String names all.
const (
	Baseline    Coding = 0
	Extended    Coding = 1
	Progressive Coding = 2
)

// Those of hierarchical files (SOF5 to 7, 13 to 15) are differences to another
// frame and cannot come first.
var codings = [16]string{
	0: "baseline", 1: "extended", 2: "progressive", 3: "lossless",
	9: "extended arithmetic", 10: "progressive arithmetic", 11: "lossless arithmetic",
}

func (c Coding) String() string { return codings[c&15] }

// component is what the frame header and the scans say of a component.
type component struct {
	id, quant  uint8
	latched    bool // its quantisation table is the frame's
	wide, high int  // blocks that are not all padding
	v          int  // the vertical factor as it stands in the file
}

// scan is a scan header.
type scan struct {
	n              int // components
	component      [blocks.MaxComponents]uint8
	dc, ac         [blocks.MaxComponents]uint8 // tables
	ss, se, ah, al int
}

// File is what a file's markers say, as far as they were read. They are read as
// libjpeg reads them: what makes libjpeg give up is an error, what it warns of is a
// fault that is noted.
type File struct {
	Data  []byte
	Frame blocks.Frame
	// Coding is valid if there was a frame header.
	Coding Coding
	// Orientation is EXIF's, 1 to 8.
	Orientation int
	JFIF        bool
	// Restart is the number of MCUs between restart markers, 0 for none.
	Restart int
	// Inside says that the file ended inside a marker segment.
	Inside bool
	// skipped says that it was one which libjpeg skips.
	skipped bool
	Faults

	framed    bool
	oriented  bool  // there was an EXIF segment
	transform uint8 // Adobe's
	component [blocks.MaxComponents]component
	// huffman has the tables' definitions, DC and AC: 16 counts of codes by
	// length, then their symbols. quant is in the order of the coefficients.
	huffman [2][4][]byte
	quant   [4][64]uint16
	quants  uint8 // which there are, a bit each

	pos    int  // where reading goes on
	marker byte // a marker that was met before pos and not yet dealt with; or 0
	ended  bool // the file ended where a marker was wanted
	scan   scan // the last one read
	scans  int
	icc    int // APP2 segments of a profile
}

// ReadHeader reads data up to its first scan, and forgets what f held. Kinds that
// cannot be decoded are no error as long as the frame header makes sense; see
// [File.Supported]. It keeps data.
func (f *File) ReadHeader(data []byte) error {
	*f = File{Data: data, Orientation: 1}
	if len(data) < 2 || data[0] != 0xff || data[1] != mSOI {
		if len(data) < 2 {
			return fault.Truncated(format, "the start marker", len(data))
		}
		return fault.Malformed(format, 0, "it does not begin with the start marker")
	}
	f.pos = 2
	more, err := f.nextScan()
	if err != nil {
		return err
	}
	if !more {
		if f.ended {
			return fault.Truncated(format, "its header", len(data))
		}
		return f.malformed(f.pos-2, "the end marker comes before any image data")
	}
	f.model()
	return nil
}

// Supported returns an error for a kind of file that is not decoded.
func (f *File) Supported() error {
	switch {
	case f.Coding > Progressive:
		return unsupported(f.Coding.String() + " coding")
	case f.Frame.Precision != 8 && f.Frame.Precision != 12:
		return unsupported(fmt.Sprintf("%d bits a sample", f.Frame.Precision))
	}
	for c := range f.Frame.N {
		if p := &f.Frame.Component[c]; f.Frame.MaxH%p.H != 0 || f.Frame.MaxV%p.V != 0 {
			return unsupported("a sampling ratio that is not a whole number")
		}
	}
	return nil
}

func unsupported(msg string) error { return &fault.UnsupportedError{Format: format, Msg: msg} }

func (f *File) malformed(at int, msg string) error { return fault.Malformed(format, at, msg) }

// Size is how many bytes have been read: behind ReadHeader, all up to the first scan's data.
func (f *File) Size() int { return f.pos }

// OneScan says, behind ReadHeader, that the first scan has all of the image.
func (f *File) OneScan() bool {
	return f.Coding&3 != Progressive && f.scan.n == f.Frame.N
}

// multi tells whether the image's coefficients come in more than one scan.
func (f *File) multi() bool {
	return f.Coding == Progressive || f.scan.n < f.Frame.N
}

// nextMarker goes to the next marker, which it leaves in f.marker with f.pos behind
// it. Like libjpeg, it skips bytes that belong nowhere, and takes the end of the
// file for the end marker.
func (f *File) nextMarker() {
	skipped := 0
	for {
		i := f.pos
		for i < len(f.Data) && f.Data[i] != 0xff {
			i++
		}
		skipped += i - f.pos
		for i < len(f.Data) && f.Data[i] == 0xff {
			i++
		}
		if i >= len(f.Data) {
			f.pos, f.marker, f.ended = len(f.Data), mEOI, true
			break
		}
		f.pos = i + 1
		if f.Data[i] != 0 {
			f.marker = f.Data[i]
			break
		}
		skipped += 2
	}
	if skipped > 0 {
		f.note(Extraneous, f.pos, -1)
	}
}

// nextScan reads the markers up to the next scan. It returns false if there is
// none before the end marker, or the end of the file.
func (f *File) nextScan() (bool, error) {
	for {
		if f.marker == 0 {
			f.nextMarker()
		}
		m := f.marker
		at := f.pos - 2
		switch {
		case m == mEOI:
			return false, nil // and stays
		case m == mSOI:
			return false, f.malformed(at, "a second image starts before the first one ends")
		case m == mTEM, mRST0 <= m && m <= mRST7:
			f.marker = 0
			continue
		case m >= mSOF0 && m <= mSOF15, m == mSOS, m == mDQT, m == mDNL, m == mDRI, mAPP0 <= m && m <= mAPP15, m == mCOM:
		default:
			return false, f.malformed(at, fmt.Sprintf("an unknown marker %#02x", m))
		}
		f.marker = 0
		rest := f.Data[f.pos:]
		if len(rest) < 2 {
			return f.cut(m)
		}
		n := int(binary.BigEndian.Uint16(rest))
		if n < 2 {
			return false, f.malformed(at, "a marker segment is shorter than its own length")
		}
		if n > len(rest) {
			return f.cut(m)
		}
		payload := rest[2:n]
		f.pos += n
		var err error
		switch {
		case m == mDHT:
			err = f.dht(at, payload)
		case m == mDQT:
			err = f.dqt(at, payload)
		case m == mDRI:
			if len(payload) != 2 {
				return false, f.malformed(at, "the restart interval has the wrong length")
			}
			f.Restart = int(binary.BigEndian.Uint16(payload))
		case m == mDAC:
			err = f.dac(at, payload)
		case m == mDNL, m == mCOM:
		case m >= mAPP0 && m <= mAPP15:
			f.app(m, payload)
		case m == mSOS:
			err = f.sos(at, payload)
			if err == nil {
				return true, nil
			}
		default:
			err = f.sof(at, m, payload)
		}
		if err != nil {
			return false, err
		}
	}
}

// cut ends the markers where the file ends inside the segment of one.
func (f *File) cut(m byte) (bool, error) {
	f.skipped = m == mDNL || m == mCOM || m >= mAPP0 && m <= mAPP15
	f.pos, f.marker, f.ended, f.Inside = len(f.Data), mEOI, true, true
	return false, nil
}

func (f *File) dht(at int, payload []byte) error {
	for len(payload) >= 17 {
		class, slot := payload[0]>>4, payload[0]&15
		n := 0
		for _, c := range payload[1:17] {
			n += int(c)
		}
		if n > 256 || n > len(payload)-17 {
			return f.malformed(at, "a Huffman table has too many codes")
		}
		if class > 1 || slot > 3 {
			return f.malformed(at, "a Huffman table has an impossible number")
		}
		f.huffman[class][slot] = payload[1 : 17+n]
		payload = payload[17+n:]
	}
	if len(payload) != 0 {
		return f.malformed(at, "the Huffman tables have the wrong length")
	}
	return nil
}

func (f *File) dqt(at int, payload []byte) error {
	for len(payload) > 0 {
		wide, slot := payload[0]>>4, payload[0]&15
		size := 65
		if wide != 0 {
			size = 129
		}
		if slot > 3 {
			return f.malformed(at, "a quantisation table has an impossible number")
		}
		if len(payload) < size {
			return f.malformed(at, "the quantisation tables have the wrong length")
		}
		q := &f.quant[slot]
		for i, place := range blocks.Order {
			if wide != 0 {
				q[place] = binary.BigEndian.Uint16(payload[1+2*i:])
			} else {
				q[place] = uint16(payload[1+i])
			}
		}
		f.quants |= 1 << slot
		payload = payload[size:]
	}
	return nil
}

// dac checks the conditioning of arithmetic coding, which has no other use here.
func (f *File) dac(at int, payload []byte) error {
	if len(payload)%2 != 0 {
		return f.malformed(at, "the arithmetic conditioning has the wrong length")
	}
	for ; len(payload) > 0; payload = payload[2:] {
		if slot, value := payload[0], payload[1]; slot >= 32 || slot < 16 && value&15 > value>>4 {
			return f.malformed(at, "the arithmetic conditioning makes no sense")
		}
	}
	return nil
}

func (f *File) sof(at int, m byte, payload []byte) error {
	if m == mJPG || codings[m&15] == "" {
		return unsupported("hierarchical coding")
	}
	if f.framed {
		return f.malformed(at, "it has two frame headers")
	}
	if len(payload) < 6 || len(payload) != 6+3*int(payload[5]) {
		return f.malformed(at, "the frame header has the wrong length")
	}
	f.Coding = Coding(m & 15)
	fr := &f.Frame
	fr.Precision = int(payload[0])
	fr.Height = int(binary.BigEndian.Uint16(payload[1:]))
	fr.Width = int(binary.BigEndian.Uint16(payload[3:]))
	fr.N = int(payload[5])
	if fr.Precision < 2 || fr.Precision > 16 {
		return f.malformed(at, "the frame header gives an impossible number of bits")
	}
	if fr.Width == 0 {
		return f.malformed(at, "the frame header gives width 0")
	}
	if fr.Height == 0 {
		return unsupported("a height that only a DNL marker gives")
	}
	switch fr.N {
	case 1, 3, 4:
	case 0:
		return f.malformed(at, "the frame header gives no components")
	default:
		return unsupported("a number of components other than 1, 3 and 4")
	}
	fr.MaxH, fr.MaxV = 1, 1
	for c := range fr.N {
		b := payload[6+3*c:]
		h, v := int(b[1]>>4), int(b[1]&15)
		if h < 1 || h > 4 || v < 1 || v > 4 {
			return f.malformed(at, "the frame header gives an impossible sampling factor")
		}
		if fr.N == 1 {
			// An MCU of one component is one block, whatever its factors.
			h, v = 1, 1
		}
		f.component[c] = component{id: b[0], quant: b[2], v: int(b[1] & 15)}
		fr.Component[c] = blocks.Component{H: h, V: v}
		fr.MaxH, fr.MaxV = max(fr.MaxH, h), max(fr.MaxV, v)
	}
	for c := range fr.N {
		w, h := fr.Samples(c)
		f.component[c].wide, f.component[c].high = (w+7)/8, (h+7)/8
	}
	f.framed = true
	return nil
}

func (f *File) sos(at int, payload []byte) error {
	if !f.framed {
		return f.malformed(at, "image data comes before the frame header")
	}
	if len(payload) == 0 {
		return f.malformed(at, "the scan header has the wrong length")
	}
	s := scan{n: int(payload[0])}
	if s.n < 1 || s.n > blocks.MaxComponents || len(payload) != 4+2*s.n {
		return f.malformed(at, "the scan header has the wrong length")
	}
	var taken [blocks.MaxComponents]bool
	for i := range s.n {
		id, tables := payload[1+2*i], payload[2+2*i]
		c := 0
		for c < f.Frame.N && (f.component[c].id != id || taken[c]) {
			c++
		}
		if c == f.Frame.N {
			return f.malformed(at, "the scan header names a component that the frame has not, or names it twice")
		}
		taken[c] = true
		s.component[i], s.dc[i], s.ac[i] = uint8(c), tables>>4, tables&15
	}
	b := payload[1+2*s.n:]
	s.ss, s.se, s.ah, s.al = int(b[0]), int(b[1]), int(b[2]>>4), int(b[2]&15)
	f.scan = s
	f.scans++
	return nil
}

func (f *File) app(m byte, p []byte) {
	has := func(id string) bool { return len(p) >= len(id) && string(p[:len(id)]) == id }
	switch {
	case m == mAPP0 && len(p) >= 14 && has("JFIF\x00"):
		f.JFIF = true
	case m == mAPP1 && !f.oriented && has("Exif\x00\x00"):
		f.Orientation, f.oriented = exif.Orientation(p[6:]), true
	case m == mAPP2 && has(iccID):
		f.icc++
	case m == mAPP14 && len(p) >= 12 && has("Adobe"):
		f.Frame.Adobe, f.transform = true, p[11]
	}
}

// model finds out what the components are, as libjpeg guesses it.
func (f *File) model() {
	fr := &f.Frame
	switch fr.N {
	case 1:
		fr.Model = blocks.Gray
	case 3:
		id := [3]uint8{f.component[0].id, f.component[1].id, f.component[2].id}
		fr.Model = blocks.YCbCr
		if !f.JFIF && (fr.Adobe && f.transform == 0 || !fr.Adobe && id == [3]uint8{'R', 'G', 'B'}) {
			fr.Model = blocks.RGB
		}
	case 4:
		fr.Model = blocks.CMYK
		if fr.Adobe && f.transform != 0 {
			fr.Model = blocks.YCCK
		}
	}
}

// iccID begins an APP2 segment of an ICC profile; two bytes follow, its number and
// how many there are (ICC.1, B.4).
const iccID = "ICC_PROFILE\x00"

// ICC returns the file's colour profile, nil if it has none or its segments do not
// fit together. A profile of one segment is a part of the file's data.
func (f *File) ICC() []byte {
	if f.icc == 0 {
		return nil
	}
	var few [4][]byte
	parts := few[:]
	if f.icc > len(few) {
		parts = make([][]byte, f.icc)
	}
	parts = parts[:f.icc]
	size := 0
	for pos := 2; pos+4 <= len(f.Data); {
		if f.Data[pos] != 0xff {
			return nil
		}
		m := f.Data[pos+1]
		if m == 0xff {
			pos++
			continue
		}
		if m == mTEM || mRST0 <= m && m <= mRST7 {
			pos += 2
			continue
		}
		n := int(binary.BigEndian.Uint16(f.Data[pos+2:]))
		if m == mSOS || n < 2 || n > len(f.Data)-pos-2 {
			break
		}
		p := f.Data[pos+4 : pos+2+n]
		pos += 2 + n
		if m != mAPP2 || len(p) < len(iccID)+2 || string(p[:len(iccID)]) != iccID {
			continue
		}
		number, of := int(p[len(iccID)]), int(p[len(iccID)+1])
		if of != f.icc || number < 1 || number > of || parts[number-1] != nil {
			return nil
		}
		parts[number-1] = p[len(iccID)+2:]
		size += len(parts[number-1])
	}
	if len(parts) == 1 {
		return parts[0]
	}
	profile := make([]byte, 0, size)
	for _, p := range parts {
		if p == nil {
			return nil
		}
		profile = append(profile, p...)
	}
	return profile
}

// latch fixes the quantisation tables of the scan's components, those that are
// known when their first scan begins.
func (f *File) latch() error {
	for i := range f.scan.n {
		c := &f.component[f.scan.component[i]]
		if c.latched {
			continue
		}
		if c.quant > 3 || f.quants>>c.quant&1 == 0 {
			return f.malformed(f.pos, fmt.Sprintf("quantisation table %d is missing", c.quant))
		}
		f.Frame.Component[f.scan.component[i]].Quant = f.quant[c.quant]
		c.latched = true
	}
	return nil
}
