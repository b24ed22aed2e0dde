package imaging

// A GIF file (GIF89a) is a header, the screen descriptor, blocks and a trailer:
//
//	"GIF89a" | u16 width | u16 height | flags | background | aspect | colours[3·2^n]
//	21 label sub-blocks                                              an extension
//	2C u16 left, top, width, height | flags | colours | code size | sub-blocks   a frame
//	3B                                                               the end
//
// Sub-blocks are a length byte and that many bytes; length 0 ends them.

// gifHeader is what the blocks of a GIF up to its trailer tell.
type gifHeader struct {
	Info
	// frame is where the first frame's block starts.
	frame int
	// transparent is the first frame's transparent colour; -1 if it has none.
	transparent int
}

func probeGIF(data []byte) (Info, error) {
	h, err := readGIF(data)
	return h.Info, err
}

func readGIF(data []byte) (gifHeader, error) {
	info := gifHeader{
		Info:        Info{Format: GIF, Orientation: 1, Channels: 3, Bits: 8, Colorspace: RGB},
		transparent: -1,
	}
	cut := func() (gifHeader, error) {
		return gifHeader{}, truncated(GIF, "its blocks: the trailer is missing", len(data))
	}
	fault := func(at int, msg string) (gifHeader, error) { return gifHeader{}, malformed(GIF, at, msg) }
	if len(data) < 13 {
		return cut()
	}
	info.Width, info.Height = int(le.Uint16(data[6:])), int(le.Uint16(data[8:]))
	pos := 13 + gifColours(data[10])
	for {
		if pos >= len(data) {
			return cut()
		}
		switch data[pos] {
		case 0x21:
			// Graphic control: F9, length, flags, u16 delay, transparent colour.
			if g := data[pos:]; info.frame == 0 && len(g) >= 7 && g[1] == 0xf9 && g[2] >= 4 && g[3]&1 != 0 {
				info.transparent = int(g[6])
			}
			pos += 2
		case 0x2c:
			if len(data)-pos < 11 {
				return cut()
			}
			if info.frame == 0 {
				info.frame = pos
				// As Pillow: a first frame that juts out makes the canvas larger.
				d := data[pos+1:]
				info.Width = max(info.Width, int(le.Uint16(d))+int(le.Uint16(d[4:])))
				info.Height = max(info.Height, int(le.Uint16(d[2:]))+int(le.Uint16(d[6:])))
			}
			pos += 11 + gifColours(data[pos+9])
		case 0x3b:
			if info.frame == 0 {
				return fault(pos, "it ends without a frame")
			}
			if info.Width == 0 || info.Height == 0 {
				return fault(6, "its width or height is 0")
			}
			return info, nil
		default:
			return fault(pos, "an unknown block")
		}
		for {
			if pos >= len(data) {
				return cut()
			}
			n := int(data[pos])
			pos += 1 + n
			if n == 0 {
				break
			}
		}
	}
}

// gifColours returns the bytes of the colour table that flags announce.
func gifColours(flags byte) int {
	if flags&0x80 == 0 {
		return 0
	}
	return 3 << (flags&7 + 1)
}
