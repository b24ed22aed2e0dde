// Package encode is the JPEG engine the other way: pixels to blocks of quantised
// coefficients, and such blocks, whoever made them, to a file's bytes.
//
// [Encoder.Encode] does both. [Writer] does the second half alone: fill its [Frame] and
// the planes, then call Count where the Huffman tables are to be made for the image,
// Header, and Rows.
//
// The bytes are libjpeg-turbo's: its colour conversion, downsampling and "islow"
// forward DCT, its quantisation, its way with the blocks beyond the image's edge and
// with ties among the frequencies of an optimal Huffman table. Nothing is allocated
// once the largest image has been seen.
package encode

import (
	"shardify/imaging/jpeg/internal/blocks"
	"shardify/internal/simd"
)

// Component is one of a frame's.
type Component struct {
	ID   uint8 // in the file
	H, V int   // sampling factors
	// FileH and FileV are those that the frame header gives. They differ from H and V
	// for images of one component only, whose factors mean nothing.
	FileH, FileV int
	Quant        uint8 // its quantisation table, 0 to 3
	Table        uint8 // its Huffman tables, 0 or 1
}

// Frame is what a file's headers say of its image.
type Frame struct {
	Width, Height int
	MaxH, MaxV    int
	N             int
	Component     [blocks.MaxComponents]Component
	// Quant has the quantisation steps in zigzag order.
	Quant [4][64]uint16
}

// mcus returns how many MCUs the image is wide and high.
func (f *Frame) mcus() (x, y int) {
	return (f.Width + 8*f.MaxH - 1) / (8 * f.MaxH), (f.Height + 8*f.MaxV - 1) / (8 * f.MaxV)
}

// Real returns how many blocks of component c are not all padding.
func (f *Frame) Real(c int) (wide, high int) {
	p := &f.Component[c]
	w, h := (f.Width*p.H+f.MaxH-1)/f.MaxH, (f.Height*p.V+f.MaxV-1)/f.MaxV
	return (w + 7) / 8, (h + 7) / 8
}

// Layout says in which order the coefficients of a block lie.
type Layout struct {
	// order is where the coefficient at a zigzag index is.
	order [64]uint8
	// pick, for each 16 zigzag indices and each 16 places, says which of the places
	// make a bit of the mask; 0x80 for none. It comes twice, for two blocks at a time.
	pick [4][4][32]uint8
}

// The layouts: in natural order, and in that of package blocks.
var (
	Natural = newLayout(&blocks.Zigzag)
	Stored  = newLayout(&blocks.Order)
)

func newLayout(order *[64]uint8) *Layout {
	l := &Layout{order: *order}
	for i := range l.pick {
		for j := range l.pick[i] {
			for k := range 16 {
				v := uint8(0x80)
				if at := order[16*i+k]; int(at/16) == j {
					v = at % 16
				}
				l.pick[i][j][k], l.pick[i][j][16+k] = v, v
			}
		}
	}
	return l
}

// Plane has the coefficients of one component, of some rows of MCUs or all.
type Plane struct {
	// Coef has 64 of each block, Mask a bit for each that is not 0, in zigzag order.
	// The block in column x and row y is number y*Stride+x; Stride is even.
	Coef   []int16
	Mask   []uint64
	Stride int
}

// shape gives p room for rows x columns of blocks.
func (p *Plane) shape(columns, rows int) {
	p.Stride = (columns + 1) &^ 1
	p.Coef = grow(p.Coef, 64*p.Stride*rows)
	p.Mask = grow(p.Mask, p.Stride*rows)
}

// grow returns s with length n, new memory where it has too little; what it holds is
// not defined.
func grow[T any](s []T, n int) []T {
	if n <= cap(s) {
		return s[:n]
	}
	return make([]T, n)
}

// Shape gives the planes room for rows rows of MCUs.
func (w *Writer) Shape(rows int) {
	x, _ := w.Frame.mcus()
	for c := range w.Frame.N {
		p := &w.Frame.Component[c]
		w.Plane[c].shape(x*p.H, rows*p.V)
	}
}

// Pad fills the blocks beyond the image's edge, with zeros and the DC coefficient of
// the block that is coded before them, so that they take next to no bits. Its planes
// hold the rows of MCUs [from, to).
func (w *Writer) Pad(from, to int) {
	x, _ := w.Frame.mcus()
	for c := range w.Frame.N {
		p, f := &w.Plane[c], &w.Frame.Component[c]
		wide, high := w.Frame.Real(c)
		for row := range (to - from) * f.V {
			if from*f.V+row < high {
				for b := wide; b < x*f.H; b++ {
					at := row*p.Stride + b
					p.blank(at, at-1)
				}
				continue
			}
			for b := range x * f.H {
				at := row*p.Stride + b
				p.blank(at, at-b%f.H+f.H-1-p.Stride)
			}
		}
	}
}

// blank makes block at a block with no more than the DC coefficient of another.
func (p *Plane) blank(at, from int) {
	dc := p.Coef[64*from]
	clear(p.Coef[64*at:][:64])
	p.Coef[64*at] = dc
	p.Mask[at] = 0
	if dc != 0 {
		p.Mask[at] = 1
	}
}

// SetMasks sets the masks of all blocks by their coefficients.
func (w *Writer) SetMasks() {
	for c := range w.Frame.N {
		p := &w.Plane[c]
		masks(p.Mask, p.Coef, w.Layout, w.Level)
	}
}

func masksGeneric(mask []uint64, coef []int16, l *Layout) {
	for i := range mask {
		b := (*[64]int16)(coef[64*i:])
		m := uint64(0)
		for k, at := range &l.order {
			v := uint32(b[at&63])
			m |= uint64((v|-v)>>31) << (k & 63)
		}
		mask[i] = m
	}
}

// Source is the pixels to encode: RGB (3 channels) or grey (1), rows Stride bytes
// apart.
type Source struct {
	Pix                             []uint8
	Width, Height, Stride, Channels int
}

// Spec says how to encode pixels.
type Spec struct {
	Quality int // 1 to 100
	// H and V are luma's sampling factors, where chroma's are 1: 1 or 2; H may be 4.
	H, V int
	// Optimize makes Huffman tables for the image.
	Optimize bool
	// Segments are marker segments to be written behind the JFIF segment.
	Segments []byte
}

// Encoder encodes one image after the other. Its zero value is ready.
type Encoder struct {
	Writer Writer

	quality  int
	divisors [2]divisors // of luma and chroma

	// Samples of a row of MCUs: as many as there are pixels, then what is left of
	// chroma. pitch is from row to row.
	full  [3][]uint8
	small [2][]uint8
	pitch int
	edge  [3 * chunk]uint8
}

// chunk is how many samples the kernels for pixels make at a time.
const chunk = 32

// begin prepares for an image.
func (e *Encoder) begin(s *Source, o *Spec) {
	w := &e.Writer
	w.Level, w.Layout = simd.Best(), Natural
	e.prepare(s, o)
}

func (e *Encoder) prepare(s *Source, o *Spec) {
	w := &e.Writer
	f := &w.Frame
	f.Width, f.Height, f.N, f.MaxH, f.MaxV = s.Width, s.Height, s.Channels, 1, 1
	if s.Channels == 3 {
		f.MaxH, f.MaxV = o.H, o.V
	}
	for c := range f.N {
		f.Component[c] = Component{ID: uint8(c + 1), H: 1, V: 1, FileH: 1, FileV: 1, Quant: uint8(min(c, 1)), Table: uint8(min(c, 1))}
	}
	p := &f.Component[0]
	p.H, p.V, p.FileH, p.FileV = f.MaxH, f.MaxV, f.MaxH, f.MaxV
	if e.quality != o.Quality {
		e.quality = o.Quality
		for i := range e.divisors {
			scaleSteps(&f.Quant[i], i, o.Quality)
			e.divisors[i].set(&f.Quant[i])
		}
	}
	// Full-size rows end on a whole pair of blocks of all components.
	e.pitch = (s.Width + 16*f.MaxH - 1) / (16 * f.MaxH) * (16 * f.MaxH)
	e.pitch = (e.pitch + 2*chunk - 1) &^ (2*chunk - 1)
	for c := range f.N {
		e.full[c] = grow(e.full[c], e.pitch*8*f.MaxV)
		if c > 0 {
			e.small[c-1] = grow(e.small[c-1], e.pitch*8)
		}
	}
}

// Encode appends a file with the image to dst.
func (e *Encoder) Encode(dst []byte, s Source, o Spec) []byte {
	e.begin(&s, &o)
	return e.encode(dst, &s, &o)
}

func (e *Encoder) encode(dst []byte, s *Source, o *Spec) []byte {
	w := &e.Writer
	_, high := w.Frame.mcus()
	head := func() {
		w.Begin(dst)
		w.JFIF(DefaultJFIF)
		w.Segments(o.Segments)
		w.Header()
	}
	if !o.Optimize {
		w.Standard()
		head()
		w.Shape(1)
		for y := range high {
			e.transform(s, y, 0)
			w.Pad(y, y+1)
			w.Rows(1)
		}
		return w.End()
	}
	w.Shape(high)
	for y := range high {
		e.transform(s, y, y)
	}
	w.Pad(0, high)
	if err := w.Optimize(high); err != nil {
		panic(err) // 8-bit samples make no coefficient that is too large
	}
	head()
	w.Rows(high)
	return w.End()
}

// transform makes the coefficients of row y of MCUs, which go to row at of the
// planes.
func (e *Encoder) transform(s *Source, y, at int) {
	w := &e.Writer
	f := &w.Frame
	top := 8 * f.MaxV * y
	rows := min(8*f.MaxV, s.Height-top)
	for r := range rows {
		e.convert(s, s.Pix[(top+r)*s.Stride:][:s.Channels*s.Width], r*e.pitch)
	}
	// What is below the image repeats its last row; of chroma, the last that was
	// made smaller.
	groups := (rows + f.MaxV - 1) / f.MaxV
	for c := range f.N {
		repeat(e.full[c], e.pitch, rows, groups*f.MaxV)
	}
	for c := range f.N {
		p, k := &w.Plane[c], &f.Component[c]
		samples := e.full[c]
		if k.H < f.MaxH || k.V < f.MaxV {
			samples = e.small[c-1]
			for g := range groups {
				downsample(samples[g*e.pitch:], e.full[c][g*f.MaxV*e.pitch:], e.pitch, e.pitch/f.MaxH, f.MaxH, f.MaxV, w.Level)
			}
		}
		repeat(samples, e.pitch, groups*k.V, 8*k.V)
		for r := range k.V {
			to := (at*k.V + r) * p.Stride
			forward(p.Coef[64*to:][:64*p.Stride], samples[8*r*e.pitch:], e.pitch, &e.divisors[k.Quant], w.Level)
			masks(p.Mask[to:][:p.Stride], p.Coef[64*to:], w.Layout, w.Level)
		}
	}
}

// repeat copies row have-1 to the rows up to want.
func repeat(samples []uint8, pitch, have, want int) {
	for r := have; r < want; r++ {
		copy(samples[r*pitch:][:pitch], samples[(have-1)*pitch:][:pitch])
	}
}

// convert makes samples of a row of pixels, and repeats the last to the row's end.
func (e *Encoder) convert(s *Source, row []uint8, at int) {
	if s.Channels == 1 {
		to := e.full[0][at:][:e.pitch]
		copy(to, row)
		fill(to[s.Width:], row[s.Width-1])
		return
	}
	whole := s.Width &^ (chunk - 1)
	y, cb, cr := e.full[0][at:][:e.pitch], e.full[1][at:][:e.pitch], e.full[2][at:][:e.pitch]
	if whole > 0 {
		ycc(y, cb, cr, row, whole, e.Writer.Level)
	}
	if whole == s.Width {
		if whole < e.pitch {
			fill(y[whole:], y[whole-1])
			fill(cb[whole:], cb[whole-1])
			fill(cr[whole:], cr[whole-1])
		}
		return
	}
	rest := row[3*whole:]
	n := copy(e.edge[:], rest)
	for i := n; i < len(e.edge); i++ {
		e.edge[i] = e.edge[i-3]
	}
	ycc(y[whole:], cb[whole:], cr[whole:], e.edge[:], chunk, e.Writer.Level)
	if end := whole + chunk; end < e.pitch {
		fill(y[end:], y[end-1])
		fill(cb[end:], cb[end-1])
		fill(cr[end:], cr[end-1])
	}
}

func fill(s []uint8, v uint8) {
	for i := range s {
		s[i] = v
	}
}
