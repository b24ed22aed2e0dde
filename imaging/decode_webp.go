package imaging

import (
	"bytes"
	"image"
	"io"

	"golang.org/x/image/vp8"
	"golang.org/x/image/vp8l"
)

// webp decodes the bitstreams itself found: golang.org/x/image/webp takes no
// animations, decodes alpha that we drop, and leaves VP8's colours to image/color,
// whose YCbCr is another.
func (c *canvas) webp(data []byte) error {
	h, err := readWebP(data)
	if err != nil {
		return err
	}
	left, top, w, height := 0, 0, h.Width, h.Height
	frame := h.frame
	coding := h.Coding
	if coding == "animated" {
		// ANMF: u24 x/2, y/2, width-1, height-1, duration; flags; chunks.
		if len(frame) < 16 {
			return malformed(WebP, -1, "the first frame is too short")
		}
		u24 := func(at int) int { return int(frame[at]) | int(frame[at+1])<<8 | int(frame[at+2])<<16 }
		left, top, w, height = 2*u24(0), 2*u24(3), 1+u24(6), 1+u24(9)
		if left+w > h.Width || top+height > h.Height {
			return malformed(WebP, -1, "the first frame juts out of the canvas")
		}
		if coding, frame = webpBitstream(frame[16:]); coding == "" {
			return malformed(WebP, -1, "the first frame has no image data")
		}
	}
	var m image.Image
	if coding == "VP8" {
		d := vp8.NewDecoder()
		d.Init(bytes.NewReader(frame), len(frame))
		header, err := library(WebP, nil, func(io.Reader) (vp8.FrameHeader, error) { return d.DecodeFrameHeader() })
		if err != nil {
			return err
		}
		if header.Width != w || header.Height != height {
			return malformed(WebP, -1, "the VP8 chunk's width and height are not those of the canvas")
		}
		if err := c.open(h.Info); err != nil {
			return err
		}
		yuv, err := library(WebP, nil, func(io.Reader) (*image.YCbCr, error) { return d.DecodeFrame() })
		if err != nil {
			return err
		}
		m = yuv
	} else {
		config, err := library(WebP, bytes.NewReader(frame), vp8l.DecodeConfig)
		if err != nil {
			return err
		}
		if config.Width != w || config.Height != height {
			return malformed(WebP, -1, "the VP8L chunk's width and height are not those of the canvas")
		}
		if err := c.open(h.Info); err != nil {
			return err
		}
		if m, err = library(WebP, bytes.NewReader(frame), vp8l.Decode); err != nil {
			return err
		}
	}
	var fill func(y int, line []uint8)
	switch m := m.(type) {
	case *image.NRGBA:
		fill = func(y int, line []uint8) { pick(line, m.Pix[y*m.Stride:], 4, 1) }
	case *image.YCbCr:
		fill = func(y int, line []uint8) { vp8Row(line, m, y, height) }
	default:
		return &UnsupportedError{Format: WebP, Msg: "its colour model"}
	}
	c.rows(func(y int, line []uint8) {
		if w < h.Width || height < h.Height {
			clear(line) // Pillow's canvas is black around the frame
		}
		if y -= top; y >= 0 && y < height {
			fill(y, line[3*left:3*(left+w)])
		}
	})
	return nil
}

// webpBitstream finds the VP8 or VP8L chunk of an animation's frame.
func webpBitstream(rest []byte) (coding string, body []byte) {
	for len(rest) >= 8 {
		n := uint64(le.Uint32(rest[4:]))
		if n > uint64(len(rest)-8) {
			return "", nil
		}
		body = rest[8 : 8+n]
		switch string(rest[:4]) {
		case "VP8 ":
			return "VP8", body
		case "VP8L":
			return "VP8L", body
		}
		rest = rest[min(8+n+n&1, uint64(len(rest))):]
	}
	return "", nil
}

// vp8Row makes row y of RGB pixels as libwebp does by default: chroma upsampled
// by "fancy" weights of 9, 3, 3, 1 (upsampling.c) and converted from BT.601's
// limited range in fixed point of 14 bits (yuv.h).
func vp8Row(line []uint8, m *image.YCbCr, y, height int) {
	w := len(line) / 3
	cw, ch := (w+1)/2, (height+1)/2
	near := y / 2
	far := min(max(near-1+2*(y%2), 0), ch-1)
	luma := m.Y[y*m.YStride:][:w]
	un, uf := m.Cb[near*m.CStride:][:cw], m.Cb[far*m.CStride:][:cw]
	vn, vf := m.Cr[near*m.CStride:][:cw], m.Cr[far*m.CStride:][:cw]
	for x, l := range luma {
		i := x / 2
		j := min(max(i-1+2*(x%2), 0), cw-1)
		// An even width's last pixel has no chroma beyond it.
		u := vp8Chroma(un[i], un[j], uf[i], uf[j])
		v := vp8Chroma(vn[i], vn[j], vf[i], vf[j])
		p := line[3*x : 3*x+3]
		k := (int32(l) * 19077) >> 8
		p[0] = vp8Clip(k + v*26149>>8 - 14234)
		p[1] = vp8Clip(k - u*6419>>8 - v*13320>>8 + 8708)
		p[2] = vp8Clip(k + u*33050>>8 - 17685)
	}
}

// vp8Chroma is (9a + 3b + 3c + d + 8)/16 rounded as libwebp does, through the
// mean of a and the diagonal's.
func vp8Chroma(a, b, c, d uint8) int32 {
	A, B, C, D := int32(a), int32(b), int32(c), int32(d)
	return ((A+3*B+3*C+D+8)>>3 + A) >> 1
}

func vp8Clip(v int32) uint8 { return uint8(min(max(v>>6, 0), 255)) }
