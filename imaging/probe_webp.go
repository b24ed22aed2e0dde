package imaging

import "shardify/imaging/internal/exif"

// A WebP file (RFC 9649) is one RIFF chunk that holds chunks padded to even
// lengths:
//
//	"RIFF" | u32 size of all that follows | "WEBP" | type[4] | u32 length | data | …
//
// A simple file has a VP8 or VP8L chunk; an extended one starts with VP8X, which
// gives the canvas.

// webpHeader is what the chunks of a WebP tell.
type webpHeader struct {
	Info
	// frame is the VP8 or VP8L chunk's data, or the first ANMF chunk's.
	frame []byte
}

func probeWebP(data []byte) (Info, error) {
	h, err := readWebP(data)
	return h.Info, err
}

func readWebP(data []byte) (webpHeader, error) {
	fault := func(at int, msg string) (webpHeader, error) { return webpHeader{}, malformed(WebP, at, msg) }
	size := uint64(le.Uint32(data[4:])) + 8
	if size > uint64(len(data)) {
		return webpHeader{}, truncated(WebP, "its RIFF chunk", len(data))
	}
	if size < 12 {
		return fault(4, "the RIFF chunk is shorter than its own header")
	}
	info := webpHeader{Info: Info{Format: WebP, Orientation: 1, Channels: 3, Bits: 8, Colorspace: RGB}}
	extended := false
	for pos := 12; pos < int(size); {
		rest := data[pos:size]
		if len(rest) < 8 || uint64(le.Uint32(rest[4:])) > uint64(len(rest)-8) {
			return fault(pos, "a chunk is longer than the file's RIFF chunk")
		}
		n := int(le.Uint32(rest[4:]))
		body := rest[8 : 8+n]
		switch string(rest[:4]) {
		case "VP8X":
			if extended || info.Coding != "" {
				return fault(pos, "the VP8X chunk does not come first")
			}
			if n < 10 {
				return fault(pos, "the VP8X chunk is too short")
			}
			extended = true
			if body[0]&0x10 != 0 {
				info.Channels = 4
			}
			info.Width = 1 + (int(body[4]) | int(body[5])<<8 | int(body[6])<<16)
			info.Height = 1 + (int(body[7]) | int(body[8])<<8 | int(body[9])<<16)
		case "ANMF":
			if !extended {
				return fault(pos, "an animation without a VP8X chunk")
			}
			if info.Coding == "" {
				info.Coding, info.frame = "animated", body
			}
		case "VP8 ":
			if info.Coding != "" {
				break
			}
			// RFC 6386, 9.1: a frame tag whose bit 0 is clear in a key frame, a
			// start code, 14 bits each of width and height.
			if n < 10 || body[0]&1 != 0 || string(body[3:6]) != "\x9d\x01\x2a" {
				return fault(pos, "the VP8 chunk does not start with a key frame")
			}
			info.Coding, info.frame = "VP8", body
			if !extended {
				info.Width = int(le.Uint16(body[6:]) & 0x3fff)
				info.Height = int(le.Uint16(body[8:]) & 0x3fff)
			}
		case "VP8L":
			if info.Coding != "" {
				break
			}
			// RFC 9649, 3.4: a signature, 14 bits each of width-1 and height-1, a
			// bit for alpha, three for the version.
			if n < 5 || body[0] != 0x2f || body[4]>>5 != 0 {
				return fault(pos, "the VP8L chunk has no lossless header of version 0")
			}
			info.Coding, info.frame = "VP8L", body
			if !extended {
				bits := le.Uint32(body[1:])
				info.Width = 1 + int(bits&0x3fff)
				info.Height = 1 + int(bits>>14&0x3fff)
				if bits>>28&1 != 0 {
					info.Channels = 4
				}
			}
		case "EXIF":
			block := body
			if has(block, "Exif\x00\x00") { // not by the letter, but common
				block = block[6:]
			}
			info.Orientation = exif.Orientation(block)
		}
		pos += 8 + n + n&1
	}
	if info.Coding == "" {
		return fault(12, "it has no image data")
	}
	if info.Width == 0 || info.Height == 0 {
		return fault(12, "its width or height is 0")
	}
	return info, nil
}
