package imaging

import (
	"hash/crc32"

	"shardify/imaging/internal/exif"
)

// A PNG file (W3C PNG, section 5) is its signature and chunks, IHDR first, IEND
// last:
//
//	u32 length | type[4] | data[length] | u32 crc of type and data
//
// IHDR is u32 width, u32 height, and a byte each for depth, colour type,
// compression, filter, interlace.
func probePNG(data []byte) (Info, error) {
	info := Info{Format: PNG, Orientation: 1}
	pos, pixels := len(pngMagic), false
	for {
		at, rest := pos, data[pos:]
		if len(rest) < 12 {
			return Info{}, truncated(PNG, "a chunk", len(data))
		}
		n := be.Uint32(rest)
		kind := rest[4:8]
		if n > 1<<31-1 {
			return Info{}, malformed(PNG, at, "a chunk's length is out of range")
		}
		if uint64(n)+12 > uint64(len(rest)) {
			return Info{}, truncated(PNG, "a chunk", len(data))
		}
		body := rest[8 : 8+n]
		pos += 12 + int(n)
		if info.Width == 0 {
			if string(kind) != "IHDR" || n != 13 {
				return Info{}, malformed(PNG, at, "the first chunk is no IHDR of 13 bytes")
			}
			if crc32.ChecksumIEEE(rest[4:8+n]) != be.Uint32(rest[8+n:]) {
				return Info{}, malformed(PNG, at, "the header's checksum is wrong")
			}
			w, h := be.Uint32(body), be.Uint32(body[4:])
			if w == 0 || h == 0 || w > 1<<31-1 || h > 1<<31-1 {
				return Info{}, malformed(PNG, at, "the header gives an impossible width or height")
			}
			info.Width, info.Height, info.Bits = int(w), int(h), int(body[8])
			depths := uint32(1<<8 | 1<<16)
			switch body[9] {
			case 0:
				info.Channels, info.Colorspace, depths = 1, Gray, 1<<1|1<<2|1<<4|1<<8|1<<16
			case 2:
				info.Channels, info.Colorspace = 3, RGB
			case 3:
				info.Channels, info.Colorspace, depths = 3, RGB, 1<<1|1<<2|1<<4|1<<8
			case 4:
				info.Channels, info.Colorspace = 2, Gray
			case 6:
				info.Channels, info.Colorspace = 4, RGB
			default:
				return Info{}, malformed(PNG, at, "the header gives an unknown colour type")
			}
			if info.Bits > 16 || depths>>info.Bits&1 == 0 {
				return Info{}, malformed(PNG, at, "the header gives a bit depth that its colour type does not allow")
			}
			continue
		}
		switch string(kind) {
		case "IDAT":
			pixels = true
		case "eXIf":
			info.Orientation = exif.Orientation(body)
		case "IEND":
			if !pixels {
				return Info{}, malformed(PNG, at, "it ends without image data")
			}
			return info, nil
		}
	}
}
