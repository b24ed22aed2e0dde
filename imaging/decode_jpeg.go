package imaging

import (
	"bytes"
	"image"
	"image/jpeg"
	"io"
)

// maxScans bounds the work that a small progressive file can ask for. Encoders
// use about ten; libjpeg-turbo's own tools stop at 500 in their fuzzing.
const maxScans = 500

// adobeCMYK is an Adobe segment that says "no transform".
const adobeCMYK = "\xff\xd8\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00"

func (c *canvas) jpeg(data []byte) error {
	h, err := readJPEG(data)
	if err != nil {
		return err
	}
	if h.Coding != "baseline" && h.Coding != "extended" && h.Coding != "progressive" {
		return &UnsupportedError{Format: JPEG, Msg: h.Coding + " coding"}
	}
	if h.scans > maxScans {
		return &UnsupportedError{Format: JPEG, Msg: "more than 500 scans"}
	}
	// A block of 8 x 8 pixels takes at least one bit.
	if int64(h.Width)*int64(h.Height)/(64*8) > int64(len(data)) {
		return malformed(JPEG, -1, "the file is too short for its width and height")
	}
	if err := c.open(h.Info); err != nil {
		return err
	}
	var r io.Reader = bytes.NewReader(data)
	if h.Channels == 4 && !h.adobe {
		// The library wants to be told; libjpeg assumes this.
		r = io.MultiReader(bytes.NewReader([]byte(adobeCMYK)), bytes.NewReader(data[2:]))
	}
	m, err := library(JPEG, r, jpeg.Decode)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *image.Gray:
		c.rows(func(y int, line []uint8) { grey(line, m.Pix[y*m.Stride:]) })
	case *image.YCbCr:
		c.ycbcr(m)
	case *image.RGBA:
		c.rows(func(y int, line []uint8) { pick(line, m.Pix[y*m.Stride:], 4, 1) })
	case *image.CMYK:
		c.rows(func(y int, line []uint8) { cmyk(line, m.Pix[y*m.Stride:]) })
	default:
		return &UnsupportedError{Format: JPEG, Msg: "its colour model"}
	}
	return nil
}

// cmyk is Pillow's conversion of CMYK to RGB.
func cmyk(line, samples []uint8) {
	for i := range len(line) / 3 {
		p, s := line[3*i:3*i+3], samples[4*i:4*i+4]
		k := 255 - uint32(s[3])
		for j := range p {
			t := uint32(s[j])*k + 128
			p[j] = uint8(max(int32(k)-int32((t>>8+t)>>8), 0))
		}
	}
}

// ycbcr upsamples and converts as libjpeg-turbo does by default (jdsample.c, "fancy"
// upsampling; jdcolor.c).
func (c *canvas) ycbcr(m *image.YCbCr) {
	w, h := c.info.Width, c.info.Height
	dx, dy := 1, 1
	switch m.SubsampleRatio {
	case image.YCbCrSubsampleRatio422:
		dx = 2
	case image.YCbCrSubsampleRatio420:
		dx, dy = 2, 2
	case image.YCbCrSubsampleRatio440:
		dy = 2
	case image.YCbCrSubsampleRatio411:
		dx = 4
	case image.YCbCrSubsampleRatio410:
		dx, dy = 4, 2
	}
	cw, ch := (w+dx-1)/dx, (h+dy-1)/dy
	line := make([]uint8, 2*cw*dx)
	cb, cr := line[:cw*dx], line[cw*dx:]
	up := func(to, plane []uint8, y int) {
		near := y / dy
		far := near
		if dy == 2 && dx <= 2 {
			far = min(max(near-1+2*(y%2), 0), ch-1)
		}
		upsample(to, plane[near*m.CStride:][:cw], plane[far*m.CStride:][:cw], dx, dy, y%dy)
	}
	c.rows(func(y int, line []uint8) {
		up(cb, m.Cb, y)
		up(cr, m.Cr, y)
		luma := m.Y[y*m.YStride:][:w]
		for x, l := range luma {
			p := line[3*x : 3*x+3]
			l, b, r := int32(l), int32(cb[x])-128, int32(cr[x])-128
			p[0] = clip8(l + (91881*r+32768)>>16)
			p[1] = clip8(l + (-22554*b-46802*r+32768)>>16)
			p[2] = clip8(l + (116130*b+32768)>>16)
		}
	})
}

func clip8(v int32) uint8 { return uint8(min(max(v, 0), 255)) }

// upsample makes one full row of a chroma plane that is subsampled by dx and dy
// from the nearest of its rows and the second nearest; lower is 1 if the
// nearest is above.
func upsample(to, near, far []uint8, dx, dy, lower int) {
	n := len(near)
	switch {
	case dx == 1 && dy == 1:
		copy(to, near)
	case dx == 1:
		for i := range near {
			to[i] = uint8((3*uint32(near[i]) + uint32(far[i]) + 1 + uint32(lower)) >> 2)
		}
	case dx == 2 && dy == 1 && n > 2:
		to[0] = near[0]
		to[1] = uint8((3*uint32(near[0]) + uint32(near[1]) + 2) >> 2)
		for i := 1; i < n-1; i++ {
			v := 3 * uint32(near[i])
			to[2*i] = uint8((v + uint32(near[i-1]) + 1) >> 2)
			to[2*i+1] = uint8((v + uint32(near[i+1]) + 2) >> 2)
		}
		to[2*n-2] = uint8((3*uint32(near[n-1]) + uint32(near[n-2]) + 1) >> 2)
		to[2*n-1] = near[n-1]
	case dx == 2 && dy == 2 && n > 2:
		column := func(i int) uint32 { return 3*uint32(near[i]) + uint32(far[i]) }
		last, this := column(0), column(0)
		for i := range n {
			next := this
			if i+1 < n {
				next = column(i + 1)
			}
			// At the ends, 3v+v is libjpeg's 4v.
			to[2*i] = uint8((3*this + last + 8) >> 4)
			to[2*i+1] = uint8((3*this + next + 7) >> 4)
			last, this = this, next
		}
	default:
		for i, v := range near {
			for j := range dx {
				to[dx*i+j] = v
			}
		}
	}
}
