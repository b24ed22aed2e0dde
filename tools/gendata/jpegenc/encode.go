package jpegenc

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Options is how a picture is encoded. The zero value is a baseline file of
// quality 75 with the standard tables.
type Options struct {
	// Quality is libjpeg's, 1 to 100; 0 means 75.
	Quality int `json:"quality,omitempty"`
	// Optimize makes Huffman tables for this picture.
	Optimize bool `json:"optimize,omitempty"`
	// Progressive writes many scans, for which the tables are always made.
	Progressive bool `json:"progressive,omitempty"`
	// RestartInterval is the number of MCUs between restart markers, at most
	// 65535; 0 means no markers.
	RestartInterval int `json:"restart_interval,omitempty"`
	// Segments are written after the JFIF or Adobe segment.
	Segments []Segment `json:"segments,omitempty"`
}

// Segment is a marker segment, such as APP1 or COM.
type Segment struct {
	// Marker is its code's second byte: 0xe0 to 0xef for APP0 to APP15, 0xfe for a
	// comment.
	Marker byte `json:"marker"`
	// Data is at most 65533 bytes.
	Data []byte `json:"data"`
}

// Exif returns an APP1 segment that says nothing but the orientation, 1 to 8.
func Exif(orientation int) Segment {
	return Segment{Marker: 0xe1, Data: []byte{
		'E', 'x', 'i', 'f', 0, 0,
		'M', 'M', 0, 42, 0, 0, 0, 8, // big-endian TIFF, first directory at 8
		0, 1, // one entry
		0x01, 0x12, 0, 3, 0, 0, 0, 1, 0, byte(orientation), 0, 0, // Orientation, one SHORT
		0, 0, 0, 0, // no further directory
	}}
}

// Comment returns a COM segment.
func Comment(text string) Segment { return Segment{Marker: 0xfe, Data: []byte(text)} }

// Validate reports every fault of the options.
func (o *Options) Validate() error {
	var faults []error
	if o.Quality < 0 || o.Quality > 100 {
		faults = append(faults, fmt.Errorf("jpegenc: quality %d; it is 1 to 100", o.Quality))
	}
	if o.RestartInterval < 0 || o.RestartInterval > 65535 {
		faults = append(faults, fmt.Errorf("jpegenc: restart interval %d; it is 0 to 65535", o.RestartInterval))
	}
	for i, s := range o.Segments {
		if s.Marker&0xf0 != 0xe0 && s.Marker != 0xfe {
			faults = append(faults, fmt.Errorf("jpegenc: segment %d: marker %#x is neither APPn nor COM", i, s.Marker))
		}
		if len(s.Data) > 65533 {
			faults = append(faults, fmt.Errorf("jpegenc: segment %d has %d bytes; at most 65533 fit", i, len(s.Data)))
		}
	}
	return errors.Join(faults...)
}

// Encoder encodes pictures. Its zero value is ready. It keeps its memory from one
// picture to the next, and is for one goroutine.
type Encoder struct {
	comps   [4]component
	tok     tokenizer
	quality int
	tables  [2][64]uint8 // by zigzag position
	quant   [2]*quantiser
}

// Append appends the JPEG file of p to dst and returns the extended slice.
func (e *Encoder) Append(dst []byte, p *Picture, opt *Options) ([]byte, error) {
	if err := errors.Join(p.validate(), opt.Validate()); err != nil {
		return dst, err
	}
	quality := opt.Quality
	if quality == 0 {
		quality = 75
	}
	if quality != e.quality {
		e.setQuality(quality)
	}

	n := p.Model.Planes()
	fh, fv := p.Sub.factors()
	mcuAcross, mcuDown := (p.Width+8*fh-1)/(8*fh), (p.Height+8*fv-1)/(8*fv)
	for i := range n {
		c := &e.comps[i]
		c.h, c.v, c.table = 1, 1, 0
		if i == 0 || i == 3 {
			c.h, c.v = fh, fv
		} else if p.Model != CMYK {
			c.table = 1
		}
		w, h := p.PlaneSize(i)
		c.transform(e.quant[c.table], p.Planes[i], w, h, mcuAcross, mcuDown)
	}

	dst = append(dst, 0xff, 0xd8)
	switch p.Model {
	case Gray, YCbCr: // version 1.1, no unit, aspect 1:1, no thumbnail
		dst = segment(dst, 0xe0, []byte{'J', 'F', 'I', 'F', 0, 1, 1, 0, 0, 1, 0, 1, 0, 0})
	case CMYK:
		dst = segment(dst, 0xee, []byte{'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, 0})
	case YCCK:
		dst = segment(dst, 0xee, []byte{'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, 2})
	}
	for _, s := range opt.Segments {
		dst = segment(dst, s.Marker, s.Data)
	}
	for i := range p.Model.tables() {
		dst = segment(dst, 0xdb, []byte{byte(i)}, e.tables[i][:])
	}
	dst = e.frame(dst, p, opt.Progressive)

	if !opt.Progressive {
		return append(e.scan(dst, sequential(n)[0], opt, p.Model, mcuAcross, mcuDown, true), 0xff, 0xd9), nil
	}
	for i, s := range progressive(p.Model) {
		dst = e.scan(dst, s, opt, p.Model, mcuAcross, mcuDown, i == 0)
	}
	return append(dst, 0xff, 0xd9), nil
}

// frame appends SOF0 or SOF2.
func (e *Encoder) frame(dst []byte, p *Picture, progressive bool) []byte {
	n := p.Model.Planes()
	sof := []byte{8, byte(p.Height >> 8), byte(p.Height), byte(p.Width >> 8), byte(p.Width), byte(n)}
	for i := range n {
		c := &e.comps[i]
		sof = append(sof, p.Model.id(i), byte(c.h<<4|c.v), byte(c.table))
	}
	if progressive {
		return segment(dst, 0xc2, sof)
	}
	return segment(dst, 0xc0, sof)
}

// scan appends the tables, the header and the data of one scan.
func (e *Encoder) scan(dst []byte, s scan, opt *Options, model Model, mcuAcross, mcuDown int, first bool) []byte {
	e.tok.tokens = e.tok.tokens[:0]
	e.tok.all(s, e.comps[:model.Planes()], opt.Progressive, mcuAcross, mcuDown, opt.RestartInterval)

	var specs [4]*spec
	if opt.Optimize || opt.Progressive {
		var freq [4 * 256]int64
		count(e.tok.tokens, &freq)
		for slot := range 4 {
			f := (*[256]int64)(freq[slot*256:])
			if *f != ([256]int64{}) {
				made := optimal(f)
				specs[slot] = &made
			}
		}
	} else {
		for slot := range 4 {
			if slot&1 < model.tables() {
				specs[slot] = &standard[slot]
			}
		}
	}
	var codes [4 * 256]code
	for _, slot := range []int{slotDC, slotAC, slotDC + 1, slotAC + 1} {
		if t := specs[slot]; t != nil {
			t.codes((*[256]code)(codes[slot*256:]))
			dst = segment(dst, 0xc4, []byte{byte(slot>>1<<4 | slot&1)}, t.count[:], t.values)
		}
	}
	if first && opt.RestartInterval > 0 {
		dst = segment(dst, 0xdd, []byte{byte(opt.RestartInterval >> 8), byte(opt.RestartInterval)})
	}
	sos := []byte{byte(len(s.comps))}
	for _, i := range s.comps {
		table := byte(e.comps[i].table)
		dc, ac := table, table
		if opt.Progressive { // a table that the scan does not use is number 0
			if s.from > 0 || s.high > 0 {
				dc = 0
			}
			if s.from == 0 {
				ac = 0
			}
		}
		sos = append(sos, model.id(i), dc<<4|ac)
	}
	sos = append(sos, byte(s.from), byte(s.to), byte(s.high<<4|s.low))
	dst = segment(dst, 0xda, sos)
	return write(dst, e.tok.tokens, &codes)
}

// segment appends a marker segment made of parts.
func segment(dst []byte, marker byte, parts ...[]byte) []byte {
	n := 2
	for _, p := range parts {
		n += len(p)
	}
	dst = append(dst, 0xff, marker)
	dst = binary.BigEndian.AppendUint16(dst, uint16(n))
	for _, p := range parts {
		dst = append(dst, p...)
	}
	return dst
}

// setQuality makes the encoder's quantisers.
func (e *Encoder) setQuality(quality int) {
	e.quality = quality
	e.tables[0], e.tables[1] = Tables(quality)
	for i := range e.tables {
		e.quant[i] = newQuantiser(&e.tables[i])
	}
}

// Tables returns libjpeg's quantisation tables of a quality, 1 to 100, in zigzag
// order: those of T.81 K.1, scaled.
func Tables(quality int) (lumaTable, chromaTable [64]uint8) {
	scale := 200 - 2*quality
	if quality < 50 {
		scale = 5000 / quality
	}
	scaled := func(v uint8) uint8 { return uint8(min(max((int(v)*scale+50)/100, 1), 255)) }
	for k, i := range natural {
		lumaTable[k], chromaTable[k] = scaled(luma[i]), scaled(chroma[i])
	}
	return lumaTable, chromaTable
}

// The tables of T.81 K.1.
var (
	luma = [64]uint8{
		16, 11, 10, 16, 24, 40, 51, 61,
		12, 12, 14, 19, 26, 58, 60, 55,
		14, 13, 16, 24, 40, 57, 69, 56,
		14, 17, 22, 29, 51, 87, 80, 62,
		18, 22, 37, 56, 68, 109, 103, 77,
		24, 35, 55, 64, 81, 104, 113, 92,
		49, 64, 78, 87, 103, 121, 120, 101,
		72, 92, 95, 98, 112, 100, 103, 99,
	}
	chroma = [64]uint8{
		17, 18, 24, 47, 99, 99, 99, 99,
		18, 21, 26, 66, 99, 99, 99, 99,
		24, 26, 56, 99, 99, 99, 99, 99,
		47, 66, 99, 99, 99, 99, 99, 99,
		99, 99, 99, 99, 99, 99, 99, 99,
		99, 99, 99, 99, 99, 99, 99, 99,
		99, 99, 99, 99, 99, 99, 99, 99,
		99, 99, 99, 99, 99, 99, 99, 99,
	}
)
