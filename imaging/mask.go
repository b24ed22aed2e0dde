package imaging

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
)

// Mask is one byte a pixel, such as the class of each pixel in a segmentation: the
// pixel in column x of row y is Pix[y*Stride+x]. The bytes are names, not levels:
// they are copied, never interpolated.
type Mask struct {
	Pix           []uint8
	Width, Height int
	// Stride is the distance between two rows in bytes, at least Width.
	Stride int
}

// Reset gives m the dimensions and rows without gaps, in the memory it has where
// that is enough; the pixels are then whatever lay there. Dimensions must not be
// negative.
func (m *Mask) Reset(width, height int) {
	m.Width, m.Height, m.Stride = width, height, width
	if n := width * height; n <= cap(m.Pix) {
		m.Pix = m.Pix[:n]
	} else {
		m.Pix = make([]uint8, n)
	}
}

// DecodeMask makes a mask of data, a whole PNG file of one byte or less a pixel, in dst,
// whose memory it uses again where it is large enough. After an error, dst holds nothing
// of use. It may be called from any goroutine. An image of more than maxPixels, of which
// 0 means DefaultMaxPixels, is an error before memory is taken for it.
//
// The bytes are those of numpy's array(Image.open(f)) with Pillow: of a palette the
// indices, not the colours; of 8-bit grey the values as they are; of 1-bit grey 0 and 1.
// (Grey of 2 and 4 bits becomes levels from 0 to 255 there, and so here: 85 and 17 times
// the values.) Transparency is ignored.
//
// RGB, alpha and 16 bits are an [*UnsupportedError], and so are other formats: what a
// colour stands for is not ours to guess, and JPEG does not keep values.
func DecodeMask(data []byte, dst *Mask, maxPixels int64) error {
	if err := (DecodeOptions{MaxPixels: maxPixels}).Validate(); err != nil {
		return err
	}
	switch format := sniff(data); format {
	case PNG:
	case JPEG:
		return &UnsupportedError{Format: format, Msg: "a mask in a format that changes values as it compresses"}
	case "":
		_, err := Probe(data)
		return err
	default:
		return &UnsupportedError{Format: format, Msg: "a mask in another format than PNG"}
	}
	info, err := pngHeader(data)
	if err != nil {
		return err
	}
	switch palette := data[25] == 3; {
	case !palette && info.Channels > 1:
		return &UnsupportedError{Format: PNG, Msg: fmt.Sprintf("a mask of %d channels, where one is wanted (8-bit grey, or the indices of a palette)", info.Channels)}
	case info.Bits > 8:
		return &UnsupportedError{Format: PNG, Msg: "a mask of 16 bits, where 8 or less are wanted"}
	}
	if err := bounded(info, maxPixels); err != nil {
		return err
	}
	m, err := library(PNG, bytes.NewReader(data), png.Decode)
	if err != nil {
		return err
	}
	dst.Reset(info.Width, info.Height)
	var pix []uint8
	var stride int
	step := 1
	switch m := m.(type) {
	case *image.Paletted:
		pix, stride = m.Pix, m.Stride
	case *image.Gray:
		pix, stride = m.Pix, m.Stride
	case *image.NRGBA: // grey with one transparent value
		pix, stride, step = m.Pix, m.Stride, 4
	default:
		return &UnsupportedError{Format: PNG, Msg: "its colour model"}
	}
	level := uint8(0xff)
	if info.Channels == 1 && info.Bits == 1 {
		level = 1
	}
	for y := range info.Height {
		row, in := dst.Pix[y*dst.Stride:][:info.Width], pix[y*stride:]
		if step == 1 && level == 0xff {
			copy(row, in)
			continue
		}
		for x := range row {
			row[x] = in[x*step] & level
		}
	}
	return nil
}
