package imaging

// A BMP file (Microsoft's BITMAPFILEHEADER and BITMAPINFOHEADER) is
//
//	"BM" | u32 file size | u32 0 | u32 offset of the rows
//	u32 size of this header | i32 width | i32 height | u16 1 | u16 bits |
//	u32 compression | u32 bytes of the rows | …
//
// and the rows, bottom up unless height is negative, each padded to 4 bytes. The
// oldest second header, of 12 bytes, has u16 width and height. The file size is
// wrong in many files, so only the rows count.

// bmpHeaderSize reports whether n is the size of one of the known second headers.
func bmpHeaderSize(n uint32) bool {
	switch n {
	case 12, 40, 52, 56, 64, 108, 124:
		return true
	}
	return false
}

// bmpHeader is what both headers tell.
type bmpHeader struct {
	Info
	size        int // of the second header
	rows        int // where the rows start
	bits        int // a pixel
	compression uint32
	topDown     bool
}

func probeBMP(data []byte) (Info, error) {
	h, err := readBMP(data)
	return h.Info, err
}

func readBMP(data []byte) (bmpHeader, error) {
	cut := func(what string) (bmpHeader, error) { return bmpHeader{}, truncated(BMP, what, len(data)) }
	fault := func(at int, msg string) (bmpHeader, error) { return bmpHeader{}, malformed(BMP, at, msg) }
	if len(data) < 18 {
		return cut("its header")
	}
	size := le.Uint32(data[14:])
	if uint64(len(data)) < 14+uint64(size) {
		return cut("its header")
	}
	rows := uint64(le.Uint32(data[10:]))
	var w, h int64
	var bits, compression uint32
	var bytes uint64
	if size == 12 {
		w, h = int64(le.Uint16(data[18:])), int64(le.Uint16(data[20:]))
		bits = uint32(le.Uint16(data[24:]))
	} else {
		w, h = int64(int32(le.Uint32(data[18:]))), int64(int32(le.Uint32(data[22:])))
		bits = uint32(le.Uint16(data[28:]))
		compression = le.Uint32(data[30:])
		bytes = uint64(le.Uint32(data[34:]))
	}
	topDown := h < 0
	if topDown {
		h = -h
	}
	if w <= 0 || h == 0 || h > 1<<31-1 {
		return fault(18, "the header gives an impossible width or height")
	}
	if rows < 14+uint64(size) {
		return fault(10, "the rows start inside the header")
	}
	info := bmpHeader{
		Info: Info{Format: BMP, Width: int(w), Height: int(h), Channels: 3, Colorspace: RGB, Orientation: 1},
		size: int(size), bits: int(bits), compression: compression, topDown: topDown,
	}
	switch bits {
	case 1, 2, 4, 8:
		info.Bits = int(bits)
	case 16:
		info.Bits = 5
	case 24:
		info.Bits = 8
	case 32:
		info.Bits = 8
		info.Channels = 4
	default:
		return bmpHeader{}, &UnsupportedError{Format: BMP, Msg: "a number of bits a pixel other than 1, 2, 4, 8, 16, 24 and 32"}
	}
	switch compression {
	case 0, 3, 6: // uncompressed; with masks
		// At most 2^31·32 bits a row, 2^31 rows: no overflow.
		bytes = (uint64(w)*uint64(bits) + 31) / 32 * 4
		if hi := (uint64(len(data)) + bytes - 1) / bytes; hi < uint64(h) {
			return cut("its rows")
		}
		bytes *= uint64(h)
	case 1, 2: // run lengths
		if bytes == 0 {
			return fault(34, "run-length coding without the number of bytes")
		}
	default:
		return bmpHeader{}, &UnsupportedError{Format: BMP, Msg: "rows that hold a JPEG or PNG"}
	}
	if bits <= 8 && rows == 14+uint64(size) {
		// As Pillow: some writers forget the palette that stands between.
		rows += bmpPalette(info, data)
	}
	if rows+bytes > uint64(len(data)) {
		return cut("its rows")
	}
	info.rows = int(rows)
	return info, nil
}

// bmpPalette returns the bytes of the palette.
func bmpPalette(h bmpHeader, data []byte) uint64 {
	if h.size == 12 {
		return 3 << h.bits
	}
	if n := le.Uint32(data[46:]); n != 0 {
		return 4 * uint64(n)
	}
	return 4 << h.bits
}
