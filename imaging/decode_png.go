package imaging

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
)

// pngHeader is probePNG for a file that is to be decoded.
func pngHeader(data []byte) (Info, error) {
	info, err := probePNG(data)
	if err != nil {
		return info, err
	}
	bits := int64(info.Channels * info.Bits)
	if data[25] == 3 { // indices of a palette
		bits = int64(info.Bits)
	}
	// Deflate makes at most 1032 bytes of one.
	if (int64(info.Width)*bits+7)/8*int64(info.Height)/1032 > int64(len(data)) {
		return info, malformed(PNG, -1, "the file is too short for its width and height")
	}
	return info, nil
}

func (c *canvas) png(data []byte) error {
	info, err := pngHeader(data)
	if err != nil {
		return err
	}
	if err := c.open(info); err != nil {
		return err
	}
	m, err := library(PNG, bytes.NewReader(data), png.Decode)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *image.Gray:
		c.rows(func(y int, line []uint8) { grey(line, m.Pix[y*m.Stride:]) })
	case *image.Gray16:
		c.rows(func(y int, line []uint8) { grey16(line, m.Pix[y*m.Stride:], 2) })
	case *image.RGBA:
		c.rows(func(y int, line []uint8) { pick(line, m.Pix[y*m.Stride:], 4, 1) })
	case *image.NRGBA:
		c.rows(func(y int, line []uint8) { pick(line, m.Pix[y*m.Stride:], 4, 1) })
	case *image.RGBA64:
		c.rows(func(y int, line []uint8) { pick(line, m.Pix[y*m.Stride:], 8, 2) })
	case *image.NRGBA64:
		if info.Channels == 1 { // grey with one transparent value
			c.rows(func(y int, line []uint8) { grey16(line, m.Pix[y*m.Stride:], 8) })
			break
		}
		c.rows(func(y int, line []uint8) { pick(line, m.Pix[y*m.Stride:], 8, 2) })
	case *image.Paletted:
		palette := paletteOf(m.Palette)
		c.rows(func(y int, line []uint8) { lookup(line, m.Pix[y*m.Stride:], palette) })
	default:
		return &UnsupportedError{Format: PNG, Msg: "its colour model"}
	}
	return nil
}

// paletteOf drops the alpha of a palette; what it lacks is black.
func paletteOf(p color.Palette) *[256][3]uint8 {
	var palette [256][3]uint8
	for i, v := range p[:min(len(p), 256)] {
		switch v := v.(type) {
		case color.RGBA: // opaque
			palette[i] = [3]uint8{v.R, v.G, v.B}
		case color.NRGBA:
			palette[i] = [3]uint8{v.R, v.G, v.B}
		case color.RGBA64: // opaque; TIFF's
			palette[i] = [3]uint8{uint8(v.R >> 8), uint8(v.G >> 8), uint8(v.B >> 8)}
		}
	}
	return &palette
}
