package imaging

import (
	"fmt"
	"math/bits"
)

// bmp decodes as Pillow does, and moreover 2 bits a pixel and any masks.
// golang.org/x/image/bmp knows no 16 bits, run lengths, masks or old headers.
func (c *canvas) bmp(data []byte) error {
	h, err := readBMP(data)
	if err != nil {
		return err
	}
	var palette [256][3]uint8
	if h.bits <= 8 {
		each := 4
		if h.size == 12 {
			each = 3
		}
		colours := data[14+h.size:]
		n := min(int(bmpPalette(h, data))/each, len(colours)/each, 1<<h.bits)
		for i := range n {
			p := colours[i*each:]
			palette[i] = [3]uint8{p[2], p[1], p[0]}
		}
	}
	masks, err := bmpMasks(h, data)
	if err != nil {
		return err
	}
	if err := c.open(h.Info); err != nil {
		return err
	}
	rows, stride := data[h.rows:], (h.Width*h.bits+31)/32*4
	if h.compression == 1 || h.compression == 2 {
		if rows, err = bmpRuns(rows, h.Width, h.Height, h.compression == 2); err != nil {
			return err
		}
		stride, h.bits = h.Width, 8
	}
	c.rows(func(y int, line []uint8) {
		if !h.topDown {
			y = h.Height - 1 - y
		}
		row := rows[y*stride:]
		switch h.bits {
		case 1, 2, 4:
			mask := uint8(1<<h.bits - 1)
			for x := range h.Width {
				bit := x * h.bits
				v := row[bit/8] >> (8 - h.bits - bit%8) & mask
				copy(line[3*x:3*x+3], palette[v][:])
			}
		case 8:
			lookup(line, row, &palette)
		case 16:
			for x := range h.Width {
				masks.pixel(line[3*x:3*x+3], uint32(le.Uint16(row[2*x:])))
			}
		case 24:
			for x := range h.Width {
				p, s := line[3*x:3*x+3], row[3*x:3*x+3]
				p[0], p[1], p[2] = s[2], s[1], s[0]
			}
		case 32:
			for x := range h.Width {
				masks.pixel(line[3*x:3*x+3], le.Uint32(row[4*x:]))
			}
		}
	})
	return nil
}

// bmpChannels tells where red, green and blue lie in a pixel of 16 or 32 bits.
type bmpChannels [3]struct {
	shift int
	max   uint32
}

func bmpMasks(h bmpHeader, data []byte) (m bmpChannels, err error) {
	masks := [3]uint32{0xff0000, 0xff00, 0xff}
	if h.bits == 16 {
		masks = [3]uint32{0x7c00, 0x3e0, 0x1f}
	}
	if h.compression == 3 || h.compression == 6 {
		if h.bits <= 8 {
			return m, malformed(BMP, 30, "a palette and masks")
		}
		if len(data) < 14+40+12 {
			return m, truncated(BMP, "its masks", len(data))
		}
		given := [3]uint32{le.Uint32(data[54:]), le.Uint32(data[58:]), le.Uint32(data[62:])}
		if given != [3]uint32{} {
			masks = given
		}
	}
	for i, mask := range masks {
		m[i].shift = bits.TrailingZeros32(mask)
		m[i].max = mask >> m[i].shift
		if mask == 0 || m[i].max&(m[i].max+1) != 0 {
			return m, malformed(BMP, 54, fmt.Sprintf("the mask %#x is no run of bits", mask))
		}
		if h.bits == 24 && (m[i].max != 255 || m[i].shift != 16-8*i) {
			return m, &UnsupportedError{Format: BMP, Msg: "masks for 24 bits a pixel"}
		}
	}
	return m, nil
}

func (m *bmpChannels) pixel(p []uint8, v uint32) {
	for i := range m {
		p[i] = uint8(uint64(v>>m[i].shift&m[i].max) * 255 / uint64(m[i].max))
	}
}

// bmpRuns expands run lengths to one byte a pixel, row by row in the order of the
// file. A pair (n, v) is n pixels v (of 4 bits: the two halves in turn); (0, 0)
// ends a row, (0, 1) the image, (0, 2) skips right and up by the next two bytes,
// (0, n) is n pixels as they are, padded to 2 bytes. What is skipped is colour 0.
func bmpRuns(data []byte, w, h int, nibbles bool) ([]uint8, error) {
	out := make([]uint8, w*h)
	cut := func() ([]uint8, error) { return nil, truncated(BMP, "its run lengths", len(data)) }
	at, i := 0, 0 // in out, in data
	for at < len(out) {
		if len(data)-i < 2 {
			return cut()
		}
		n, v := int(data[i]), data[i+1]
		i += 2
		switch {
		case n > 0:
			n = min(n, w-at%w)
			for k := range n {
				switch {
				case !nibbles:
					out[at+k] = v
				case k%2 == 0:
					out[at+k] = v >> 4
				default:
					out[at+k] = v & 15
				}
			}
			at += n
		case v == 0:
			at = (at + w - 1) / w * w
		case v == 1:
			return out, nil
		case v == 2:
			if len(data)-i < 2 {
				return cut()
			}
			at += int(data[i]) + int(data[i+1])*w
			i += 2
		default:
			n := min(int(v), len(out)-at)
			bytes := int(v)
			if nibbles {
				bytes = (int(v) + 1) / 2
			}
			if len(data)-i < bytes {
				return cut()
			}
			for k := range n {
				switch {
				case !nibbles:
					out[at+k] = data[i+k]
				case k%2 == 0:
					out[at+k] = data[i+k/2] >> 4
				default:
					out[at+k] = data[i+k/2] & 15
				}
			}
			at += n
			i += bytes + bytes&1
		}
	}
	return out, nil
}
