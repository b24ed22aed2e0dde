package encode

import "encoding/binary"

const (
	mSOF0  = 0xc0
	mSOF1  = 0xc1
	mDHT   = 0xc4
	mSOI   = 0xd8
	mEOI   = 0xd9
	mSOS   = 0xda
	mDQT   = 0xdb
	mAPP0  = 0xe0
	mAPP14 = 0xee
)

// segment begins a marker segment with so many bytes of payload.
func (w *Writer) segment(marker byte, n int) {
	w.out = binary.BigEndian.AppendUint16(append(w.out, 0xff, marker), uint16(2+n))
}

// JFIF is what a JFIF segment says (ITU-T T.871, 10.1).
type JFIF struct {
	Major, Minor, Unit uint8
	X, Y               uint16 // density
}

// DefaultJFIF is what libjpeg writes of its own: version 1.1, square pixels.
var DefaultJFIF = JFIF{Major: 1, Minor: 1, X: 1, Y: 1}

// JFIF writes a JFIF segment.
func (w *Writer) JFIF(j JFIF) {
	w.segment(mAPP0, 14)
	w.out = append(w.out, "JFIF\x00"...)
	w.out = append(w.out, j.Major, j.Minor, j.Unit)
	w.out = binary.BigEndian.AppendUint16(w.out, j.X)
	w.out = binary.BigEndian.AppendUint16(w.out, j.Y)
	w.out = append(w.out, 0, 0)
}

// Adobe writes an Adobe segment, as libjpeg fills it.
func (w *Writer) Adobe(transform byte) {
	w.segment(mAPP14, 12)
	w.out = append(w.out, "Adobe"...)
	w.out = append(w.out, 0, 100, 0, 0, 0, 0, transform)
}

// Segments writes whole marker segments.
func (w *Writer) Segments(s []byte) { w.out = append(w.out, s...) }

// Segment writes a marker segment.
func (w *Writer) Segment(marker byte, payload []byte) {
	w.segment(marker, len(payload))
	w.out = append(w.out, payload...)
}

// Header writes all that stands between the application's segments and the scan's data.
func (w *Writer) Header() {
	f := &w.Frame
	sof := byte(mSOF0)
	var sent [4]bool
	for _, c := range f.Component[:f.N] {
		if sent[c.Quant] {
			continue
		}
		sent[c.Quant] = true
		q := &f.Quant[c.Quant]
		wide := byte(0)
		for _, step := range q {
			if step > 255 {
				wide, sof = 1, mSOF1
			}
		}
		w.segment(mDQT, 1+64*(1+int(wide)))
		w.out = append(w.out, wide<<4|c.Quant)
		for _, step := range q {
			if wide != 0 {
				w.out = append(w.out, byte(step>>8))
			}
			w.out = append(w.out, byte(step))
		}
	}
	w.segment(sof, 6+3*f.N)
	w.out = append(w.out, 8)
	w.out = binary.BigEndian.AppendUint16(w.out, uint16(f.Height))
	w.out = binary.BigEndian.AppendUint16(w.out, uint16(f.Width))
	w.out = append(w.out, byte(f.N))
	for _, c := range f.Component[:f.N] {
		w.out = append(w.out, c.ID, byte(c.FileH<<4|c.FileV), c.Quant)
	}
	sent = [4]bool{}
	for _, c := range f.Component[:f.N] {
		if sent[c.Table] {
			continue
		}
		sent[c.Table] = true
		for class := range byte(2) {
			def := w.def[class][c.Table]
			w.segment(mDHT, 1+len(def))
			w.out = append(append(w.out, class<<4|c.Table), def...)
		}
	}
	w.segment(mSOS, 4+2*f.N)
	w.out = append(w.out, byte(f.N))
	for _, c := range f.Component[:f.N] {
		w.out = append(w.out, c.ID, c.Table<<4|c.Table)
	}
	w.out = append(w.out, 0, 63, 0)
}
