package jpeg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"shardify/imaging/internal/fault"
	"shardify/imaging/internal/raster"
	"shardify/imaging/jpeg/internal/blocks"
	"shardify/imaging/jpeg/internal/encode"
	"shardify/imaging/jpeg/internal/entropy"
	"shardify/internal/simd"
)

// ErrVerify: the file that Transcode has made does not show what the original does. That
// is a fault of this package, or of the machine's memory, and never one of the file.
var ErrVerify = errors.New("the transcoded file differs from the original, by a fault of this program or of the machine")

// TranscodeOptions say which files are transcoded. The zero value takes all.
type TranscodeOptions struct {
	// MaxPixels is as in [Options]. Transcoding takes memory for all coefficients: 3
	// bytes a pixel of a baseline file of 4:2:0, twice that of a progressive one, and at
	// most 18, of four components at full size.
	MaxPixels int64 `json:"max_pixels,omitempty"`
	// Verify makes Transcode decode the file that it has made, and compare it with the
	// original as [Transcoder.Verify] does, in less time, since the original need not be
	// decoded again.
	Verify bool `json:"verify,omitempty"`
}

// Validate reports every fault of the options.
func (o *TranscodeOptions) Validate() error {
	if o.MaxPixels < 0 {
		return fmt.Errorf("jpeg: max_pixels is %d; want 0 for the default of %d, or more", o.MaxPixels, int64(raster.DefaultMaxPixels))
	}
	return nil
}

// Transcoder makes baseline files of other JPEG files without a change to any pixel:
// the same quantised coefficients in one interleaved scan, with Huffman tables made for
// the image. Progressive files become several times quicker to decode, can have seek
// points, and get some per cent larger; others mostly get smaller.
//
// It keeps its memory between files, and allocates nothing once it has seen the
// largest, but for dst where that is too short. Its zero value is ready; one goroutine
// may use it at a time.
type Transcoder struct {
	entropy entropy.Decoder
	group   entropy.Group
	writer  encode.Writer

	// Of the decoding that is under way: whether it has still to begin, what is done
	// with its strips, and how it ended.
	fresh   bool
	compare bool // its strips with the planes; otherwise they are copied there
	err     error
}

// Transcode appends the transcoded file of data to dst, which may be nil, and returns
// that. After an error dst is as it was. Data is neither changed nor kept; it must not lie
// in dst's memory.
//
// The file is, byte for byte, what libjpeg-turbo's "jpegtran -copy all -optimize" makes.
// It has all APPn and COM segments in their order, with these exceptions, by which
// decoders see the colours of the original: a JFIF segment comes first, and gets no
// thumbnail; grey and YCbCr files get one unless their first segment is EXIF's; RGB, CMYK
// and YCCK files get an Adobe segment in place of the one they have, or have not (a CMYK
// file that had none, some decoders, but not libjpeg, Pillow and this one, then take for
// inverted). Restart markers, and bytes behind the end marker, are left out. Where steps of quantisation are larger than
// 255, the file is "extended" (SOF1), since a baseline file must not have them.
//
// What is not decoded gives an *UnsupportedError (see the package's comment), and so do
// files of other than 8 bits; those with more than 10 blocks in an MCU, which may not be
// interleaved; and progressive files that lack their last scans, for which decoders show
// an estimate. A file with any damage gives a *DamagedError or another error of
// package imaging, never a file.
func (t *Transcoder) Transcode(dst, data []byte, o TranscodeOptions) ([]byte, error) {
	out, err := t.transcode(dst, data, &o)
	if err != nil {
		return dst, err
	}
	return out, nil
}

func (t *Transcoder) transcode(dst, data []byte, o *TranscodeOptions) ([]byte, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	t.entropy.Raw = true
	if err := t.open(data, o.MaxPixels); err != nil {
		return nil, err
	}
	w, f := &t.writer, &t.entropy.Frame
	n := 0
	for _, c := range f.Component[:f.N] {
		n += c.H * c.V
	}
	if f.N > 1 && n > 10 {
		return nil, &UnsupportedError{Format: "jpeg", Msg: fmt.Sprintf("%d blocks in an MCU, which may not be interleaved,", n)}
	}
	_, high := f.MCUs()
	w.Shape(high)
	if err := t.decode(data, false); err != nil {
		return nil, err
	}
	if t.entropy.Unfinished() {
		return nil, &UnsupportedError{Format: "jpeg", Msg: "transcoding a progressive file that lacks its last scans"}
	}
	var m meta
	m.read(data)
	t.describe(&m)
	w.SetMasks()
	w.Pad(0, high)
	if err := w.Optimize(high); err != nil {
		return nil, fault.Malformed("jpeg", -1, err.Error())
	}
	w.Begin(dst)
	t.segments(data, &m)
	w.Header()
	w.Rows(high)
	out := w.End()
	if o.Verify {
		shown := t.shown()
		if err := t.equal(&shown, out[len(dst):], o.MaxPixels); err != nil {
			return nil, fmt.Errorf("jpeg: %w: %w", ErrVerify, err)
		}
	}
	return out, nil
}

// open reads the header, and checks whether the file can be transcoded.
func (t *Transcoder) open(data []byte, limit int64) error {
	e := &t.entropy
	if err := e.ReadHeader(data); err != nil {
		return err
	}
	if err := e.Supported(); err != nil {
		return err
	}
	f := &e.Frame
	if f.Precision != 8 {
		return &UnsupportedError{Format: "jpeg", Msg: fmt.Sprintf("%d bits a sample", f.Precision)}
	}
	if limit == 0 {
		limit = raster.DefaultMaxPixels
	}
	if int64(f.Height) > limit/int64(f.Width) {
		return fmt.Errorf("jpeg: %w: %d x %d; the bound (max_pixels) is %d", ErrTooLarge, f.Width, f.Height, limit)
	}
	// A block takes at least a bit.
	if x, y := f.MCUs(); int64(x)*int64(y) > 8*int64(len(data)) {
		return fault.Truncated("jpeg", "the image data, which cannot hold all of its pixels", len(data))
	}
	w := &t.writer
	w.Level, w.Layout = simd.Best(), encode.Stored
	w.Frame = encode.Frame{Width: f.Width, Height: f.Height, MaxH: f.MaxH, MaxV: f.MaxV, N: f.N}
	for c := range f.N {
		k := &w.Frame.Component[c]
		k.H, k.V = f.Component[c].H, f.Component[c].V
		if (f.Model == blocks.YCbCr || f.Model == blocks.YCCK) && (c == 1 || c == 2) {
			k.Table = 1
		}
	}
	return nil
}

// decode copies all blocks to the planes, or compares them with those.
func (t *Transcoder) decode(data []byte, compare bool) error {
	e := &t.entropy
	t.compare = compare
	seek := (*entropy.Seek)(nil)
	for {
		x, y := e.Frame.MCUs()
		if err := e.Begin(blocks.Window{X1: x, Y1: y}, seek); err != nil {
			return err
		}
		t.fresh, t.err = true, nil
		t.group.Decode((*single)(t))
		if !errors.Is(t.err, entropy.ErrSeek) {
			break
		}
		// Restart markers that are not where they should be.
		if err := e.ReadHeader(data); err != nil {
			return err
		}
		seek = entropy.Plain
	}
	if t.err != nil {
		return t.err
	}
	if e.Count > 0 {
		return damaged(e, e.First)
	}
	return nil
}

// single is the Transcoder as the entropy layer sees it: a source of one file, of which
// all blocks are wanted.
type single Transcoder

func (t *single) Next() (int, *entropy.Decoder) {
	if !t.fresh {
		return 0, nil
	}
	t.fresh = false
	return 0, &t.entropy
}

func (t *single) Strip(_ int, s *blocks.Strip) error {
	if t.compare {
		return comparePlanes(&t.writer, s)
	}
	fillPlanes(&t.writer, s)
	return nil
}

func (t *single) End(_ int, err error) { t.err = err }

// fillPlanes copies a strip to the planes.
func fillPlanes(w *encode.Writer, s *blocks.Strip) {
	for c := range w.Frame.N {
		from, to, v := &s.Plane[c], &w.Plane[c], w.Frame.Component[c].V
		n := 64 * min(from.Stride, to.Stride)
		for r := range (s.Y1 - s.Y0) * v {
			copy(to.Coef[64*(s.Y0*v+r)*to.Stride:][:n], from.Coef[64*r*from.Stride:])
		}
	}
}

// meta is what a file's markers say that matters to none but another file.
type meta struct {
	jfif   encode.JFIF
	exif   bool // the first segment is EXIF's
	id     [blocks.MaxComponents]uint8
	factor [blocks.MaxComponents]uint8
	quant  [blocks.MaxComponents]uint8
}

// read reads the markers of a sound file.
func (m *meta) read(data []byte) {
	*m = meta{jfif: encode.DefaultJFIF}
	first := true
	for k := range markers(data) {
		p := k.payload
		switch {
		case k.marker >= 0xc0 && k.marker <= 0xc2 && len(p) > 6:
			c := 0
			for p := p[6:]; len(p) >= 3 && c < len(m.id); p = p[3:] {
				m.id[c], m.factor[c], m.quant[c] = p[0], p[1], p[2]
				c++
			}
		case isJFIF(k) && len(p) >= 14:
			version := m.jfif
			m.jfif = encode.JFIF{Major: p[5], Minor: p[6], Unit: p[7], X: binary.BigEndian.Uint16(p[8:]), Y: binary.BigEndian.Uint16(p[10:])}
			if p[5] != 1 { // there is no other
				m.jfif.Major, m.jfif.Minor = version.Major, version.Minor
			}
		}
		if carried(k) {
			m.exif = m.exif || first && isEXIF(k)
			first = false
		}
	}
}

// kept is a marker segment.
type kept struct {
	marker  byte
	payload []byte
}

func (k kept) begins(marker byte, id string) bool {
	return k.marker == marker && len(k.payload) >= len(id) && string(k.payload[:len(id)]) == id
}

func isEXIF(k kept) bool  { return k.begins(0xe1, exifID) }
func isJFIF(k kept) bool  { return k.begins(0xe0, "JFIF\x00") }
func isAdobe(k kept) bool { return k.begins(0xee, "Adobe") }

// carried says that segments of this marker say nothing of the coding: APPn and COM.
func carried(k kept) bool { return k.marker >= 0xe0 && k.marker <= 0xef || k.marker == 0xfe }

// markers yields the marker segments of a file that the entropy layer has found sound,
// up to the end marker, or the end of data.
func markers(data []byte) iter.Seq[kept] {
	return func(yield func(kept) bool) {
		for pos := 2; ; {
			for pos < len(data) && data[pos] != 0xff {
				pos++
			}
			for pos < len(data) && data[pos] == 0xff {
				pos++
			}
			if pos == len(data) || data[pos] == 0xd9 {
				return
			}
			m := data[pos]
			pos++
			if m == 0 || m == 0x01 || m >= 0xd0 && m <= 0xd7 { // of a scan's data
				continue
			}
			if len(data)-pos < 2 {
				return
			}
			n := int(binary.BigEndian.Uint16(data[pos:]))
			if n < 2 || n > len(data)-pos || !yield(kept{m, data[pos+2 : pos+n]}) {
				return
			}
			pos += n
		}
	}
}

// describe completes the frame: by the markers, and by the quantisation tables that the
// scans were found to use. A file may define a table anew between scans; each of its
// contents then gets a number of its own.
func (t *Transcoder) describe(m *meta) {
	f := &t.writer.Frame
	var taken [4]bool
	for c := range f.N {
		k := &f.Component[c]
		k.ID, k.Quant, k.FileH, k.FileV = m.id[c], m.quant[c], int(m.factor[c]>>4), int(m.factor[c]&15)
		var steps [64]uint16
		for i, place := range blocks.Order {
			steps[i] = t.entropy.Frame.Component[c].Quant[place]
		}
		for taken[k.Quant&3] && f.Quant[k.Quant&3] != steps {
			k.Quant = (k.Quant + 1) & 3
		}
		f.Quant[k.Quant&3], taken[k.Quant&3] = steps, true
	}
}

// segments writes the application's segments.
func (t *Transcoder) segments(data []byte, m *meta) {
	w := &t.writer
	model := t.entropy.Frame.Model
	jfif := (model == blocks.Gray || model == blocks.YCbCr) && !m.exif
	adobe := model != blocks.Gray && model != blocks.YCbCr
	if jfif {
		w.JFIF(m.jfif)
	}
	if adobe {
		transform := byte(0)
		if model == blocks.YCCK {
			transform = 2
		}
		w.Adobe(transform)
	}
	for k := range markers(data) {
		if carried(k) && (!jfif || !isJFIF(k)) && (!adobe || !isAdobe(k)) {
			w.Segment(k.marker, k.payload)
		}
	}
}

// Segments appends to dst the APPn and COM segments of the file data, but for JFIF's and
// Adobe's, which say how it is coded: its EXIF, colour profile, XMP, comments, for
// EncodeOptions.Segments. Bytes that follow the first scan are not looked at. A profile for
// CMYK does not fit the RGB pixels that a decoder makes.
func Segments(dst, data []byte) ([]byte, error) {
	h, err := ReadHeader(data)
	if err != nil {
		return dst, err
	}
	for k := range markers(data[:h.Size]) {
		if carried(k) && !isJFIF(k) && !isAdobe(k) {
			dst = append(appendHead(dst, k.marker, len(k.payload)), k.payload...)
		}
	}
	return dst, nil
}

// Verify tells whether two files show the same pixels, whichever decoder shows them: of
// the same dimensions, sampling, colours and orientation, with the same colour profile, the
// same steps of quantisation and the same coefficients. The error says where they differ
// first, or that one of them is damaged or not decoded. It takes as much memory as
// Transcode, and as much time as decoding both files to coefficients.
func (t *Transcoder) Verify(a, b []byte, o TranscodeOptions) error {
	if err := o.Validate(); err != nil {
		return err
	}
	// What libjpeg makes of a progressive file that lacks scans counts.
	t.entropy.Raw = false
	if err := t.open(a, o.MaxPixels); err != nil {
		return fmt.Errorf("the first file: %w", err)
	}
	_, high := t.entropy.Frame.MCUs()
	t.writer.Shape(high)
	if err := t.decode(a, false); err != nil {
		return fmt.Errorf("the first file: %w", err)
	}
	shown := t.shown()
	return t.equal(&shown, b, o.MaxPixels)
}

// shown is what pixels depend on, beside coefficients.
type shown struct {
	frame       blocks.Frame
	orientation int
	icc         []byte
}

// shown returns that of the file that has been decoded.
func (t *Transcoder) shown() shown {
	return shown{t.entropy.Frame, t.entropy.Orientation, t.entropy.ICC()}
}

// equal compares a file with one that lies in the planes.
func (t *Transcoder) equal(s *shown, data []byte, limit int64) error {
	e := &t.entropy
	if err := t.open(data, limit); err != nil {
		return fmt.Errorf("the second file: %w", err)
	}
	f, g := &s.frame, &e.Frame
	switch {
	case g.Width != f.Width || g.Height != f.Height:
		return fmt.Errorf("jpeg: one file has %d x %d pixels, the other %d x %d", f.Width, f.Height, g.Width, g.Height)
	case g.N != f.N || g.Model != f.Model:
		return fmt.Errorf("jpeg: one file is %v, the other %v", model(f.Model), model(g.Model))
	case e.Orientation != s.orientation:
		return fmt.Errorf("jpeg: one file has the orientation %d, the other %d", s.orientation, e.Orientation)
	case !bytes.Equal(e.ICC(), s.icc):
		return errors.New("jpeg: the files have different colour profiles")
	}
	for c := range g.N {
		if p, q := &f.Component[c], &g.Component[c]; p.H != q.H || p.V != q.V {
			return fmt.Errorf("jpeg: component %d is sampled %d x %d in one file, %d x %d in the other", c, p.H, p.V, q.H, q.V)
		}
	}
	if err := t.decode(data, true); err != nil {
		return fmt.Errorf("the second file: %w", err)
	}
	for c := range g.N {
		if f.Component[c].Quant != g.Component[c].Quant {
			return fmt.Errorf("jpeg: component %d has different steps of quantisation", c)
		}
	}
	return nil
}

// comparePlanes compares a strip with the planes.
func comparePlanes(w *encode.Writer, s *blocks.Strip) error {
	for c := range w.Frame.N {
		p, have, v := &s.Plane[c], &w.Plane[c], w.Frame.Component[c].V
		wide, high := w.Frame.Real(c)
		for r := range min((s.Y1-s.Y0)*v, high-s.Y0*v) {
			row := s.Y0*v + r
			one, other := have.Coef[64*row*have.Stride:][:64*wide], p.Coef[64*r*p.Stride:][:64*wide]
			if slices.Equal(one, other) {
				continue
			}
			i := 0
			for one[i] == other[i] {
				i++
			}
			return fmt.Errorf("jpeg: component %d, block column %d, row %d: a coefficient is %d in one file, %d in the other", c, i/64, row, one[i], other[i])
		}
	}
	return nil
}
