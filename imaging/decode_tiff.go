package imaging

import (
	"bytes"
	"image"

	"golang.org/x/image/tiff"
)

func (c *canvas) tiff(data []byte) error {
	info, err := probeTIFF(data)
	if err != nil {
		return err
	}
	d, err := readTIFF(data)
	if err != nil {
		return err
	}
	if msg := d.unsupported(); msg != "" {
		return &UnsupportedError{Format: TIFF, Msg: msg}
	}
	if err := c.open(info); err != nil {
		return err
	}
	m, err := library(TIFF, bytes.NewReader(data), tiff.Decode)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *image.Gray:
		// The library takes CCITT's white runs for white whatever the photometric
		// interpretation; to libtiff they are zeros.
		invert := uint8(0)
		if d.ccitt() && d.photometric.first(0) == 1 {
			invert = 255
		}
		c.rows(func(y int, line []uint8) {
			grey(line, m.Pix[y*m.Stride:])
			for i := range line {
				line[i] ^= invert
			}
		})
	case *image.Gray16:
		c.rows(func(y int, line []uint8) { grey16(line, m.Pix[y*m.Stride:], 2) })
	case *image.RGBA:
		c.rows(func(y int, line []uint8) { unmultiply(line, m.Pix[y*m.Stride:], 1) })
	case *image.RGBA64:
		c.rows(func(y int, line []uint8) { unmultiply(line, m.Pix[y*m.Stride:], 2) })
	case *image.NRGBA:
		c.rows(func(y int, line []uint8) { pick(line, m.Pix[y*m.Stride:], 4, 1) })
	case *image.NRGBA64:
		c.rows(func(y int, line []uint8) { pick(line, m.Pix[y*m.Stride:], 8, 2) })
	case *image.Paletted:
		palette := paletteOf(m.Palette)
		c.rows(func(y int, line []uint8) { lookup(line, m.Pix[y*m.Stride:], palette) })
	default:
		return &UnsupportedError{Format: TIFF, Msg: "its colour model"}
	}
	return nil
}

// unmultiply divides by the alpha as Pillow does, on the samples' first bytes.
func unmultiply(line, samples []uint8, width int) {
	for i := range len(line) / 3 {
		p, s := line[3*i:3*i+3], samples[4*width*i:4*width*(i+1)]
		a := uint32(s[3*width])
		for j := range p {
			v := uint32(s[j*width])
			switch a {
			case 0:
				v = 0
			case 255:
			default:
				v = min(v*255/a, 255)
			}
			p[j] = uint8(v)
		}
	}
}

// unsupported names what the library would decode wrongly, or call damaged
// though it is only beyond it; empty if there is nothing.
func (d *tiffDir) unsupported() string {
	samples, photometric, bits := d.samples.first(1), d.photometric.first(0), d.bits.first(1)
	switch {
	case d.big:
		return "BigTIFF"
	case bits != 1 && bits != 8 && bits != 16:
		return "a number of bits a sample other than 1, 8 and 16"
	case d.planar.first(1) != 1 && samples > 1:
		return "separate planes"
	case photometric > 3:
		return "colours other than grey, palette and RGB"
	case photometric == 0 && bits == 16:
		return "white as 0 in 16 bits"
	case photometric == 3 && bits == 16:
		return "a palette of 16 bits"
	case photometric != 2 && samples != 1:
		return "grey or palette with extra samples"
	case photometric == 2 && samples != 3 && (samples != 4 || d.extra.first(0) != 1 && d.extra.first(0) != 2):
		return "RGB with extra samples other than alpha"
	case d.predictor.first(1) > 2:
		return "a predictor for floating point"
	case d.sampleFormat.first(1) != 1:
		return "samples that are no unsigned integers"
	case d.fillOrder.first(1) != 1 && !d.ccitt():
		return "bits in reverse order"
	case d.t4.first(0) != 0 && d.ccitt():
		return "CCITT Group 3 in two dimensions or with fill bits"
	}
	return ""
}

// ccitt reports whether the compression is Group 3 or 4.
func (d *tiffDir) ccitt() bool {
	return d.compression.first(1) == 3 || d.compression.first(1) == 4
}
