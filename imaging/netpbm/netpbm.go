// Package netpbm reads and writes netpbm files (PPM, PGM, PBM), in which an image stands
// as it is: a header of some 15 bytes, then the rows. A data set that is packed with
// --store raw has such files, and nothing is left to decode of them.
//
// [ReadHeader] tells what a file is. [View] shows the pixels of the usual kinds where they
// lie, and [Pixels.ResizeInto] scales a crop of them straight into a batch: of the file it
// reads the crop's rows, and nothing else. [Header.RGB] makes pixels of the other kinds.
// [AppendHeader] begins a file; its rows, as they are, are the rest.
//
// # The format
//
//	"P6" or "P5" or "P4"   red, green, blue; grey; one bit
//	white space, comments  comments are from '#' to the end of the line
//	width, height          decimal, with white space and comments between
//	maximum                decimal, 1 to 65535; not in P4
//	one white space
//	the rows, top to bottom, without gaps
//
// A sample takes a byte, with a maximum above 255 two (the first is the high one); in P4
// eight pixels share a byte, the leftmost one its highest bit, 1 is black, and each row
// begins a byte. P1 to P3 are the same as text: they have a header here, and no pixels.
//
// # Damaged and hostile files
//
// Any bytes may be passed to any function here. The errors are those of package imaging:
// ErrTruncated, *FormatError, *UnsupportedError, ErrTooLarge. Nothing is allocated but in errors.
package netpbm

import (
	"fmt"
	"math"
	"strconv"

	"shardify/imaging/internal/fault"
	"shardify/imaging/internal/raster"
	"shardify/imaging/resize"
)

const format = "pnm"

// MaxSide is the largest width and height.
const MaxSide = math.MaxInt32

// Header is what a file says of its image.
type Header struct {
	// Kind is '1' to '6', the second letter of the file.
	Kind byte
	// Width and Height are in pixels, 1 to MaxSide.
	Width, Height int
	// Channels is 3 for red, green and blue, else 1.
	Channels int
	// Max is the value of white: 1 to 65535; 1 where a pixel is one bit.
	Max int
	// Size is the header's, in bytes: there the rows begin.
	Size int
	// Row is the bytes of a row; 0 where the rows are text.
	Row int
}

// Is reports whether a file that begins so is one of P1 to P6.
func Is(data []byte) bool {
	return len(data) >= 2 && data[0] == 'P' && data[1] >= '1' && data[1] <= '6' &&
		(len(data) == 2 || space(data[2]) || data[2] == '#')
}

func space(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// ReadHeader reads the header of a whole file, and checks that all rows are there. Bytes
// behind them are no fault. Of text it checks that it is long enough to hold the pixels.
func ReadHeader(data []byte) (Header, error) {
	if !Is(data) {
		return Header{}, fault.Malformed(format, 0, "it does not begin as P1 to P6 do")
	}
	h := Header{Kind: data[1], Channels: 1, Max: 1}
	if h.Kind == '3' || h.Kind == '6' {
		h.Channels = 3
	}
	p := parser{data: data, at: 2}
	h.Width = p.number("width", MaxSide)
	h.Height = p.number("height", MaxSide)
	if h.Kind != '1' && h.Kind != '4' {
		h.Max = p.number("maximum", math.MaxUint16)
	}
	if p.err == nil && p.at == len(data) {
		p.err = fault.Truncated(format, "its header", len(data))
	}
	if p.err != nil {
		return Header{}, p.err
	}
	h.Size = p.at + 1 // the white space behind the last number
	// A side is below 2^31 and a pixel has at most 6 bytes: no overflow.
	var row uint64
	switch h.Kind {
	case '4':
		row = (uint64(h.Width) + 7) / 8
	case '5', '6':
		row = uint64(h.Width) * uint64(h.Channels)
		if h.Max > math.MaxUint8 {
			row *= 2
		}
	default:
		// A bit takes a byte at least, a number one more for the white space, but for the
		// last one.
		least, rest := uint64(h.Width), uint64(len(data)-h.Size)
		if h.Kind != '1' {
			least, rest = 2*least*uint64(h.Channels), rest+1
		}
		if rest/least < uint64(h.Height) {
			return Header{}, fault.Truncated(format, "its pixels", len(data))
		}
		return h, nil
	}
	if uint64(len(data)-h.Size)/row < uint64(h.Height) {
		return Header{}, fault.Truncated(format, "its rows", len(data))
	}
	h.Row = int(row)
	return h, nil
}

// parser reads the numbers of a header. After a fault it gives 0.
type parser struct {
	data []byte
	at   int
	err  error
}

// number skips white space, of which there must be some, and comments, and reads a number
// from 1 to most. The white space behind it is not read.
func (p *parser) number(what string, most int) int {
	if p.err != nil {
		return 0
	}
	for p.at < len(p.data) {
		c := p.data[p.at]
		if c == '#' {
			for p.at < len(p.data) && p.data[p.at] != '\n' && p.data[p.at] != '\r' {
				p.at++
			}
			continue
		}
		if !space(c) {
			break
		}
		p.at++
	}
	from, n := p.at, 0
	for ; p.at < len(p.data) && p.data[p.at] >= '0' && p.data[p.at] <= '9'; p.at++ {
		if n = n*10 + int(p.data[p.at]-'0'); n > most {
			p.err = fault.Malformed(format, from, fmt.Sprintf("a %s of more than %d", what, most))
			return 0
		}
	}
	switch {
	case p.at == len(p.data):
		p.err = fault.Truncated(format, "its header", len(p.data))
	case p.at == from:
		p.err = fault.Malformed(format, from, fmt.Sprintf("the %s is no number", what))
	case n == 0:
		p.err = fault.Malformed(format, from, fmt.Sprintf("a %s of 0", what))
	case !space(p.data[p.at]):
		p.err = fault.Malformed(format, p.at, fmt.Sprintf("no white space behind the %s", what))
	default:
		return n
	}
	return 0
}

// AppendHeader appends the header of a file of width x height pixels with 3 channels (P6)
// or 1 (P5), of a byte each: their rows are to follow it.
func AppendHeader(b []byte, width, height, channels int) []byte {
	kind := "P5\n"
	if channels == 3 {
		kind = "P6\n"
	}
	b = append(b, kind...)
	b = append(strconv.AppendInt(b, int64(width), 10), ' ')
	b = append(strconv.AppendInt(b, int64(height), 10), '\n')
	return append(b, "255\n"...)
}

// Direct says that the pixels are bytes from 0 to 255, as [View] shows them.
func (h *Header) Direct() bool { return (h.Kind == '5' || h.Kind == '6') && h.Max == math.MaxUint8 }

// Pixels are those of a file, where they lie in it: sample c of the pixel in column x of
// row y is Pix[(y*Width+x)*Channels+c].
type Pixels struct {
	Pix           []uint8
	Width, Height int
	// Channels is 3 or 1.
	Channels int
}

// View returns the pixels of data, a whole file that is [Header.Direct], without copying
// them; others are an *UnsupportedError. Images of more than maxPixels are ErrTooLarge; 0
// means Pillow's bound, about 179 million. It allocates nothing unless there is an error.
func View(data []byte, maxPixels int64) (Pixels, error) {
	h, err := ReadHeader(data)
	if err != nil {
		return Pixels{}, err
	}
	if !h.Direct() {
		return Pixels{}, &fault.UnsupportedError{Format: format, Msg: "pixels that are no bytes from 0 to 255"}
	}
	if maxPixels == 0 {
		maxPixels = raster.DefaultMaxPixels
	}
	if int64(h.Height) > maxPixels/int64(h.Width) {
		return Pixels{}, fmt.Errorf("%s: %w: %d x %d; the bound (max_pixels) is %d", format, fault.ErrTooLarge, h.Width, h.Height, maxPixels)
	}
	n := h.Row * h.Height
	return Pixels{data[h.Size:][:n:n], h.Width, h.Height, h.Channels}, nil
}

// ResizeInto makes a target of the crop of width x height at (x, y), by a task whose Part
// is in pixels of the crop: what lies outside of that is not looked at. The task's
// SourceWidth and SourceHeight are the crop's, whatever they say. Grey pixels become three
// equal channels, or the only one.
func (p *Pixels) ResizeInto(z *resize.Resizer, x, y, width, height int, task resize.Task, target resize.Target) error {
	if p.Channels == 3 {
		m := raster.Image{Pix: p.Pix, Width: p.Width, Height: p.Height, Stride: 3 * p.Width}
		part, err := resize.Crop(&m, x, y, width, height)
		if err != nil {
			return err
		}
		return z.ResizeInto(target, &part, task)
	}
	if x < 0 || y < 0 || width < 1 || height < 1 || width > p.Width-x || height > p.Height-y {
		return fmt.Errorf("netpbm: a crop of %d x %d at (%d, %d) does not lie within %d x %d", width, height, x, y, p.Width, p.Height)
	}
	task.SourceWidth, task.SourceHeight = width, height
	span, err := z.Begin(task, target)
	if err != nil {
		return err
	}
	n := span.X1 - span.X0
	if err := z.Columns(span.X0, n, 1); err != nil {
		return err
	}
	const strip = 8 // rows at a time, which stay in the cache
	for at := span.Y0; at < span.Y1; at += strip {
		rows := min(strip, span.Y1-at)
		room := z.Room(rows)
		for i := range rows {
			copy(room.Pix[i*room.Stride:], p.Pix[(y+at+i)*p.Width+x+span.X0:][:n])
		}
		z.Push(0, rows)
	}
	return nil
}

// RGB writes row y of data, the file that h is the header of, to line, which takes
// 3·Width bytes: as Pillow 13 shows it, which scales values to 255, and clips grey of 16
// bits there. Kinds P1 to P3 have no rows.
func (h *Header) RGB(line, data []uint8, y int) {
	row := data[h.Size+y*h.Row:][:h.Row]
	switch {
	case h.Kind == '4':
		for x := range h.Width {
			v := row[x/8]>>(7-x%8)&1 - 1 // a 1 is black
			p := line[3*x : 3*x+3]
			p[0], p[1], p[2] = v, v, v
		}
	case h.Kind == '5':
		for x := range h.Width {
			v := h.sample(row, x)
			p := line[3*x : 3*x+3]
			p[0], p[1], p[2] = v, v, v
		}
	case h.Max == math.MaxUint8:
		copy(line, row)
	default:
		for i := range line[:3*h.Width] {
			line[i] = h.sample(row, i)
		}
	}
}

// sample is sample i of a row.
func (h *Header) sample(row []uint8, i int) uint8 {
	if h.Max == math.MaxUint8 {
		return row[i]
	}
	if h.Max < math.MaxUint8 {
		return scaled(row[i:i+1], h.Max, math.MaxUint8)
	}
	if h.Channels == 3 {
		return scaled(row[2*i:2*i+2], h.Max, math.MaxUint8)
	}
	return scaled(row[2*i:2*i+2], h.Max, math.MaxUint16)
}

// scaled is a sample of which limit is white, of 0 to top; clipped to 255.
func scaled(b []uint8, limit, top int) uint8 {
	v := int(b[0])
	if len(b) == 2 {
		v = v<<8 | int(b[1])
	}
	// The operations, and their order, are Pillow's.
	v = int(math.RoundToEven(float64(v) / float64(limit) * float64(top)))
	return uint8(min(v, math.MaxUint8))
}
