// Package pixel is the second half of the JPEG engine: quantised coefficients
// (package blocks) become pixels, byte for byte those of libjpeg-turbo with its
// defaults: inverse DCT "islow", "fancy" upsampling.
//
// It works strip by strip behind whatever makes the coefficients, in memory that
// stays in the processor's cache, and hands its rows to a [resize.Resizer], which
// scales them and writes them where they belong in a batch. Neither the image at
// full size nor the scaled one exists besides. Only the blocks that the wanted
// pixels need are transformed.
//
// A [Decoder]'s Begin says which [blocks.Window] it wants; Strip takes the strips of
// it from top to bottom.
//
// # Equality
//
// The generic version and those in assembly give the same bytes for any
// coefficients. They are libjpeg-turbo 3's on x86-64 for any 8-bit coefficients
// that a file can hold, also for those that overflow its arithmetic (its SIMD code;
// the C code that it has for other processors treats these otherwise).
package pixel

import (
	"fmt"

	"shardify/imaging/jpeg/internal/blocks"
	"shardify/imaging/resize"
	"shardify/internal/simd"
)

// Color is what comes out.
type Color int

const (
	// RGB is Pillow's convert("RGB"); of grey images, three equal channels.
	RGB Color = iota
	// Gray is one channel: the image's luma; of RGB and CMYK images Pillow's
	// convert("L") of the RGB.
	Gray
	// YCbCr is luma and chroma as they are, upsampled; of grey images, with
	// chroma 128. Other images have none.
	YCbCr
)

// Spec says which pixels of an image are wanted, and how they are scaled.
type Spec struct {
	Color Color
	// Size is that of a block after the inverse DCT: 8, 4, 2 or 1; 0 is 8. The
	// image is made Size/8 as wide and high, rounded up, as libjpeg does with a
	// scale of 1/2, 1/4 and 1/8.
	Size int
	// X, Y, Width and Height are a rectangle of the image at that size: what the
	// resizer takes for its whole source. A Width of 0 is all of the image.
	X, Y, Width, Height int
	// Task is how that is scaled, and turned; SourceWidth and SourceHeight are filled in.
	// A Width of 0 leaves the rectangle as it is.
	Task resize.Task
}

// Scaled returns how wide or high an image is whose blocks are made size x size.
func Scaled(length, size int) int { return (length*size + 7) / 8 }

// Decoder makes pixels of coefficients. It keeps its memory between images: the
// zero value is ready, one goroutine may use it at a time, and once it has seen the
// largest of its images it allocates nothing.
type Decoder struct {
	resizer resize.Resizer
	level   simd.Level // plus 1; 0 is the best there is

	frame         *blocks.Frame
	color         Color
	width, height int // of the image at this size
	size          int // of a block of the component with the largest factors
	n             int // components that are used
	planes        int // planes that are handed on
	lag           int // 1 if the last row of an MCU row waits for the next one
	y0, y1        int // the rows that are wanted
	from, to      int // the columns that are made
	next          int // the row that is handed on next
	mcu           int // the MCU row that comes next
	part          [blocks.MaxComponents]component

	carry []uint8 // the row that waits
	key   []uint8 // the fourth plane of a strip
	deep  deep    // of images of 12 bits
}

// method is how a component is upsampled.
type method int

const (
	asIs method = iota
	fancyH2V1
	fancyH2V2
	fancyH1V2
	repeated
)

// component is what holds for one component of an image.
type component struct {
	size          int // of its blocks
	h, v          int // how many pixels stand for one sample
	method        method
	width, height int // samples that are the image's
	// Of those that are not asIs: what is transformed, rounded to whole blocks.
	x0, x1, y0, y1 int
	// Their samples of one MCU row, below the last one of the MCU row before.
	band   []uint8
	stride int
	first  int // the sample row of the band's second row
}

// Left of a band's rows there is room for the sample before the first, right of
// them for what the kernels read beyond the last.
const marginLeft, marginRight = 32, 96

func (d *Decoder) simd() simd.Level {
	if d.level == 0 {
		return simd.Best()
	}
	return d.level - 1
}

// Begin starts an image and returns the window of it that Strip must be given. The
// frame is kept until the last strip. A target of one channel takes Gray, one of
// three takes any.
func (d *Decoder) Begin(f *blocks.Frame, s Spec, target resize.Target) (blocks.Window, error) {
	if f.Precision != 8 && f.Precision != 12 {
		return blocks.Window{}, fmt.Errorf("pixel: samples of %d bits", f.Precision)
	}
	if err := d.layout(f, s); err != nil {
		return blocks.Window{}, err
	}
	if s.Width == 0 && s.Height == 0 {
		s.X, s.Y, s.Width, s.Height = 0, 0, d.width, d.height
	}
	if s.X < 0 || s.Y < 0 || s.Width < 1 || s.Height < 1 || s.Width > d.width-s.X || s.Height > d.height-s.Y {
		return blocks.Window{}, fmt.Errorf("pixel: a rectangle of %d x %d at (%d, %d) does not lie within %d x %d", s.Width, s.Height, s.X, s.Y, d.width, d.height)
	}
	t := s.Task
	t.SourceWidth, t.SourceHeight = s.Width, s.Height
	if t.Turn >= 5 {
		t.SourceWidth, t.SourceHeight = s.Height, s.Width
	}
	if t.Width == 0 && t.Height == 0 {
		t.Width, t.Height = t.SourceWidth, t.SourceHeight
		t.Part = resize.Rect{X1: float64(t.Width), Y1: float64(t.Height)}
	}
	span, err := d.resizer.Begin(t, target)
	if err != nil {
		return blocks.Window{}, err
	}
	x0, x1 := s.X+span.X0, s.X+span.X1
	d.y0, d.y1 = s.Y+span.Y0, s.Y+span.Y1
	w := d.window(x0, x1)
	if err := d.resizer.Columns(d.from-s.X, d.to-d.from, d.planes); err != nil {
		return blocks.Window{}, err
	}
	d.next, d.mcu = d.y0, w.Y0
	return w, nil
}

// layout works out how large the components are and how they are upsampled:
// jdmaster.c's jpeg_calc_output_dimensions, jdsample.c's jinit_upsampler.
func (d *Decoder) layout(f *blocks.Frame, s Spec) error {
	size := s.Size
	if size == 0 {
		size = 8
	}
	if size != 8 && size != 4 && size != 2 && size != 1 {
		return fmt.Errorf("pixel: blocks of %d x %d; want 8, 4, 2 or 1", size, size)
	}
	d.frame, d.color, d.size = f, s.Color, size
	d.width, d.height = Scaled(f.Width, size), Scaled(f.Height, size)
	d.n, d.planes = f.N, 3
	switch s.Color {
	case RGB:
		if f.Model == blocks.Gray {
			d.planes = 1
		}
	case Gray:
		d.planes = 1
		if f.Model == blocks.Gray || f.Model == blocks.YCbCr {
			d.n = 1
		} else {
			d.planes = 3 // until they are added up
		}
	case YCbCr:
		if f.Model != blocks.Gray && f.Model != blocks.YCbCr {
			return fmt.Errorf("pixel: the image has no luma and chroma")
		}
	default:
		return fmt.Errorf("pixel: no colour has the number %d", int(s.Color))
	}
	d.lag = 0
	for c := range d.n {
		k, p := &f.Component[c], &d.part[c]
		// Where an image is made smaller, a component with smaller factors is made
		// less small instead of being upsampled.
		p.size = size
		for p.size < 8 && f.MaxH*size%(k.H*p.size*2) == 0 && f.MaxV*size%(k.V*p.size*2) == 0 {
			p.size *= 2
		}
		p.h, p.v = f.MaxH*size/(k.H*p.size), f.MaxV*size/(k.V*p.size)
		p.width = (f.Width*k.H*p.size + 8*f.MaxH - 1) / (8 * f.MaxH)
		p.height = (f.Height*k.V*p.size + 8*f.MaxV - 1) / (8 * f.MaxV)
		fancy := size > 1
		switch {
		case p.h == 1 && p.v == 1 && f.Precision == 8:
			p.method = asIs
		case p.h == 2 && p.v == 1 && fancy && p.width > 2:
			p.method = fancyH2V1
		case p.h == 1 && p.v == 2 && fancy:
			p.method = fancyH1V2
		case p.h == 2 && p.v == 2 && fancy && p.width > 2:
			p.method = fancyH2V2
		default:
			p.method = repeated
		}
		if p.method == fancyH1V2 || p.method == fancyH2V2 {
			d.lag = 1
		}
	}
	return nil
}

// window returns the MCUs that the rows that are wanted and the columns [x0, x1)
// need, and decides which samples are made.
func (d *Decoder) window(x0, x1 int) blocks.Window {
	f := d.frame
	mcuX, mcuY := f.MCUs()
	w := blocks.Window{X0: mcuX, Y0: mcuY}
	largest := d.size
	for c := range d.n {
		k, p := &f.Component[c], &d.part[c]
		p.x0, p.x1, p.y0, p.y1 = x0/p.h, (x1-1)/p.h+1, d.y0/p.v, (d.y1-1)/p.v+1
		if p.method == fancyH2V1 || p.method == fancyH2V2 {
			p.x0, p.x1 = max(p.x0-1, 0), min(p.x1+1, p.width)
		}
		if p.method == fancyH1V2 || p.method == fancyH2V2 {
			// The row above of an upper row, the row below of a lower one.
			p.y0, p.y1 = max(p.y0-(1-d.y0&1), 0), min(p.y1+(d.y1-1)&1, p.height)
		}
		wide, high := k.H*p.size, k.V*p.size // samples in an MCU
		w.X0, w.X1 = min(w.X0, p.x0/wide), max(w.X1, (p.x1-1)/wide+1)
		w.Y0, w.Y1 = min(w.Y0, p.y0/high), max(w.Y1, (p.y1-1)/high+1)
		if p.method == asIs {
			largest = max(largest, p.size)
		}
	}
	// Blocks by twos, which the kernels take, counted from the window's first.
	align := func(start, from, to, step int) (int, int) {
		from = start + (from-start)/step*step
		return from, from + (to-from+step-1)/step*step
	}
	d.from, d.to = align(w.X0*f.MaxH*d.size, x0, x1, 2*largest)
	for c := range d.n {
		k, p := &f.Component[c], &d.part[c]
		if p.method == asIs {
			continue
		}
		p.x0, p.x1 = align(w.X0*k.H*p.size, p.x0, p.x1, 2*p.size)
		p.stride = marginLeft + p.x1 - p.x0 + marginRight
		// Where upsampling begins before what it needs, it reads what is there.
		p.stride += (d.to - d.from) / p.h
		if f.Precision == 8 {
			p.band = grow(p.band, (1+k.V*p.size)*p.stride)
			continue
		}
		d.deep.band[c] = grow(d.deep.band[c], (1+k.V*p.size)*p.stride)
		d.deep.line[c] = grow(d.deep.line[c], d.to-d.from+1)
	}
	return w
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// Strip takes the next strip of the window.
func (d *Decoder) Strip(s *blocks.Strip) error {
	if s.Y0 != d.mcu {
		return fmt.Errorf("pixel: a strip from MCU row %d on; want %d", s.Y0, d.mcu)
	}
	for row := s.Y0; row < s.Y1; row++ {
		d.row(s, row)
	}
	d.mcu = s.Y1
	return nil
}

// Done says whether all pixels are written.
func (d *Decoder) Done() bool { return d.resizer.Done() }

// row does one MCU row.
func (d *Decoder) row(s *blocks.Strip, mcu int) {
	if d.next == d.y1 {
		return
	}
	f := d.frame
	high := f.MaxV * d.size // pixels
	top := mcu * high
	limit := min(top+high, d.y1) // the row before which rows are complete
	for c := range d.n {
		p := &d.part[c]
		if p.method == fancyH1V2 || p.method == fancyH2V2 {
			if end := (mcu + 1) * f.Component[c].V * p.size; end < p.height {
				limit = min(limit, 2*end-1)
			}
		}
	}
	if f.Precision != 8 {
		d.deepRow(s, mcu, limit)
		return
	}
	rows := d.lag + high
	room := d.resizer.Room(rows)
	if d.n == 4 {
		d.key = grow(d.key, rows*room.Pitch)
	}
	// plane is row i of the room, of component c.
	plane := func(c, i int) []uint8 {
		if c == 3 {
			return d.key[i*room.Pitch:]
		}
		return room.Pix[i*room.Stride+c*room.Pitch:]
	}
	stride := func(c int) int {
		if c == 3 {
			return room.Pitch
		}
		return room.Stride
	}
	if d.next < top { // the row that waited
		for c := range d.n {
			if d.part[c].method == asIs {
				copy(plane(c, 0)[:room.Pitch], d.carry[c*room.Pitch:])
			}
		}
	}
	for c := range d.n {
		k, p, in := &f.Component[c], &d.part[c], &s.Plane[c]
		samples := k.V * p.size
		start := mcu * samples
		if p.method != asIs {
			d.keep(p, samples, start)
		}
		for v := range k.V {
			y := start + v*p.size // of the block row, in samples
			if p.method == asIs {
				if y+p.size <= d.next || y >= d.y1 {
					continue
				}
				// Where the columns end beyond the window, for the sake of another
				// component's larger blocks, nobody looks.
				x := d.from/p.size - s.X0*k.H
				n := min((d.to-d.from)/p.size, in.Stride-x)
				transform(plane(c, d.lag+y-top), stride(c), in.Coef[64*(((mcu-s.Y0)*k.V+v)*in.Stride+x):], &k.Quant, n, p.size, d.simd())
				continue
			}
			if y+p.size <= p.y0 || y >= p.y1 {
				continue
			}
			n, at := (p.x1-p.x0)/p.size, ((mcu-s.Y0)*k.V+v)*in.Stride+p.x0/p.size-s.X0*k.H
			transform(p.band[(1+v*p.size)*p.stride+marginLeft:], p.stride, in.Coef[64*at:], &k.Quant, n, p.size, d.simd())
		}
		if p.method == fancyH2V1 || p.method == fancyH2V2 {
			edges(p, p.band, 1, samples)
		}
	}
	for c := range d.n {
		p := &d.part[c]
		if p.method == asIs {
			continue
		}
		for y := d.next; y < limit; y++ {
			d.upsample(plane(c, d.lag+y-top), p, y)
		}
	}
	d.convert(room, d.lag+d.next-top, d.lag+limit-top)
	if d.next <= limit && limit < min(top+high, d.y1) {
		d.carry = grow(d.carry, blocks.MaxComponents*room.Pitch)
		for c := range d.n {
			if d.part[c].method == asIs {
				copy(d.carry[c*room.Pitch:][:room.Pitch], plane(c, d.lag+limit-top))
			}
		}
	}
	if d.next < limit {
		d.resizer.Push(d.lag+d.next-top, d.lag+limit-top)
		d.next = limit
	}
}

// keep moves the last row of a band's samples to its top, before the next MCU row's
// come.
func (d *Decoder) keep(p *component, samples, start int) {
	copy(p.band[:p.stride], p.band[samples*p.stride:])
	p.first = start
}

// edges repeats the image's first and last column to the left and right, where the
// band holds them.
func edges[T uint8 | uint16](p *component, band []T, from, n int) {
	for i := from; i < from+n; i++ {
		row := band[i*p.stride:][:p.stride]
		if p.x0 == 0 {
			row[marginLeft-1] = row[marginLeft]
		}
		if p.x1 >= p.width {
			row[marginLeft+p.width-p.x0] = row[marginLeft+p.width-p.x0-1]
		}
	}
}

// upsample makes row y of a component.
func (d *Decoder) upsample(dst []uint8, p *component, y int) {
	n := d.to - d.from
	near := y / p.v
	row := func(i int) []uint8 { return p.band[(1+i-p.first)*p.stride:][:p.stride] }
	far := near
	if p.method == fancyH1V2 || p.method == fancyH2V2 {
		far = min(max(near-1+2*(y&1), 0), p.height-1)
	}
	// The place of the sample for the first column that is made. It may lie before
	// the band, by less than the blocks that were rounded to.
	at := marginLeft + d.from/p.h - p.x0
	switch p.method {
	case fancyH2V1:
		h2(dst, row(near), row(near), at, n, 4, 8, d.simd())
	case fancyH2V2:
		h2(dst, row(near), row(far), at, n, 8, 7, d.simd())
	case fancyH1V2:
		v2(dst, row(near)[at:], row(far)[at:], n, 1+uint32(y&1), d.simd())
	default:
		replicate(dst[:n], row(near)[at:], p.h, d.from%p.h)
	}
}

// convert makes the wanted colour of the rows [from, to) of the room.
func (d *Decoder) convert(room resize.Rows, from, to int) {
	for i := from; i < to; i++ {
		pix := room.Pix[i*room.Stride:][:room.Stride]
		if m := d.frame.Model; m == blocks.YCbCr && d.color == RGB || m == blocks.YCCK {
			rgb(pix, room.Pitch, d.to-d.from, d.simd())
		}
		d.colors(pix, room.Pitch, i)
	}
}

// colors makes the wanted colour of row i of the room, pix, in which YCbCr has become RGB.
func (d *Decoder) colors(pix []uint8, pitch, i int) {
	n := d.to - d.from
	switch d.frame.Model {
	case blocks.Gray:
		if d.color == YCbCr {
			neutral := pix[pitch:]
			for x := range neutral {
				neutral[x] = 128
			}
		}
	case blocks.YCCK:
		cmyk(pix, pitch, d.key[i*pitch:][:n], false)
	case blocks.CMYK:
		cmyk(pix, pitch, d.key[i*pitch:][:n], true)
	case blocks.YCbCr, blocks.RGB:
	}
	if d.color == Gray && d.planes == 3 {
		luma(pix, pitch, n)
	}
}
