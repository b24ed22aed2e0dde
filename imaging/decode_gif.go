package imaging

import (
	"compress/lzw"
	"io"
)

// gif decodes the first frame. It reads the frame itself, with the standard
// library's LZW: image/gif forgets the colour of a transparent index and
// refuses frames that jut out of the canvas, where Pillow does neither.
func (c *canvas) gif(data []byte) error {
	h, err := readGIF(data)
	if err != nil {
		return err
	}
	if err := c.open(h.Info); err != nil {
		return err
	}
	d := data[h.frame+1:]
	left, top := int(le.Uint16(d)), int(le.Uint16(d[2:]))
	w, height := int(le.Uint16(d[4:])), int(le.Uint16(d[6:]))
	flags := d[8]
	colours, rest := data[13:13+gifColours(data[10])], d[9:]
	if n := gifColours(flags); n > 0 {
		colours, rest = rest[:n], rest[n:]
	}
	var palette [256][3]uint8
	for i := range len(colours) / 3 {
		palette[i] = [3]uint8(colours[3*i:])
	}
	if len(colours) == 0 {
		// No table at all: indices are grey values.
		for i := range palette {
			palette[i] = [3]uint8{uint8(i), uint8(i), uint8(i)}
		}
	}
	bits := int(rest[0])
	if bits < 2 || bits > 8 {
		return malformed(GIF, h.frame, "the code size is out of range")
	}
	indices := make([]uint8, w*height)
	r := lzw.NewReader(&gifBlocks{rest: rest[1:]}, lzw.LSB, bits)
	defer r.Close()
	if _, err := io.ReadFull(r, indices); err != nil {
		return decodeError(GIF, err)
	}
	// Around the frame, Pillow shows the transparent index, else index 0.
	around := make([]uint8, h.Width)
	if h.transparent > 0 {
		for i := range around {
			around[i] = uint8(h.transparent)
		}
	}
	interlaced := flags&0x40 != 0
	c.rows(func(y int, line []uint8) {
		if w < h.Width || height < h.Height {
			lookup(line, around, &palette)
		}
		if y -= top; y < 0 || y >= height {
			return
		}
		if interlaced {
			y = gifPlace(y, height)
		}
		lookup(line[3*left:3*(left+w)], indices[y*w:], &palette)
	})
	return nil
}

// gifPlace returns the place of row y among the rows of an interlaced frame, which
// come as every 8th from 0, every 8th from 4, every 4th from 2, every 2nd from 1.
func gifPlace(y, height int) int {
	n := func(from, step int) int { return max(0, (height-from+step-1)/step) }
	switch {
	case y%8 == 0:
		return y / 8
	case y%8 == 4:
		return n(0, 8) + y/8
	case y%4 == 2:
		return n(0, 8) + n(4, 8) + y/4
	}
	return n(0, 8) + n(4, 8) + n(2, 4) + y/2
}

// gifBlocks reads the data of sub-blocks, which are known to be whole.
type gifBlocks struct {
	rest []byte
	left int // of the block at the front
}

func (b *gifBlocks) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if b.left == 0 {
		if len(b.rest) == 0 || b.rest[0] == 0 {
			return 0, io.EOF
		}
		b.left, b.rest = int(b.rest[0]), b.rest[1:]
	}
	n := copy(p, b.rest[:b.left])
	b.rest, b.left = b.rest[n:], b.left-n
	return n, nil
}

func (b *gifBlocks) ReadByte() (byte, error) {
	var p [1]byte
	_, err := b.Read(p[:])
	return p[0], err
}
