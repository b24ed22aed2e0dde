package imaging

import (
	"encoding/binary"

	"shardify/imaging/internal/exif"
)

// A TIFF file (TIFF 6.0, section 2) is a byte order ("II" little, "MM" big), the
// number 42, and the offset of the first directory:
//
//	u16 n | n × { u16 tag | u16 type | u32 count | u32 value, or its offset } | u32 next
//
// BigTIFF says 43, and has u64 for n, count, value and offsets.
const tagOrientation = 274

// tiffSizes are the bytes of one value of each type; 0 for unknown types.
var tiffSizes = [19]uint64{1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}

// tiffValues is a directory entry's array of values.
type tiffValues struct {
	order binary.ByteOrder
	kind  uint16
	raw   []byte
}

func (v *tiffValues) len() int {
	if v.raw == nil {
		return 0
	}
	return len(v.raw) / int(tiffSizes[v.kind])
}

// at returns value i as a number; 0 for types that are none.
func (v *tiffValues) at(i int) uint64 {
	switch v.kind {
	case 1, 7:
		return uint64(v.raw[i])
	case 3:
		return uint64(v.order.Uint16(v.raw[2*i:]))
	case 4, 13:
		return uint64(v.order.Uint32(v.raw[4*i:]))
	case 16, 18:
		return v.order.Uint64(v.raw[8*i:])
	}
	return 0
}

// first returns the first value, or def if there is none.
func (v *tiffValues) first(def uint64) uint64 {
	if v.len() == 0 {
		return def
	}
	return v.at(0)
}

// tiffDir is a file's first directory, as far as it concerns us.
type tiffDir struct {
	offset int
	big    bool
	width, height, bits, compression, photometric, fillOrder, orientation, samples,
	planar, t4, predictor, extra, sampleFormat, offsets, counts tiffValues
}

// readTIFF reads the first directory. All its values are known to lie within data.
func readTIFF(data []byte) (d tiffDir, err error) {
	cut := func(what string) (tiffDir, error) { return tiffDir{}, truncated(TIFF, what, len(data)) }
	var order binary.ByteOrder = le
	if data[0] == 'M' {
		order = be
	}
	size := uint64(len(data))
	d.big = data[2] == 43 || data[3] == 43
	word, head := uint64(4), uint64(2) // bytes of an offset; of the number of entries
	if d.big {
		word, head = 8, 8
	}
	number := func(at uint64) uint64 {
		if d.big {
			return order.Uint64(data[at:])
		}
		return uint64(order.Uint32(data[at:]))
	}
	if size < 2*word {
		return cut("its header")
	}
	// Offsets are compared so that no sum can overflow.
	dir := number(word)
	if dir > size || size-dir < head {
		return cut("its directory")
	}
	d.offset = int(dir)
	var entries uint64
	if d.big {
		entries = order.Uint64(data[dir:])
	} else {
		entries = uint64(order.Uint16(data[dir:]))
	}
	entry := 4 + 2*word
	if left := size - dir - head; entries > left/entry || left-entries*entry < word {
		return cut("its directory")
	}
	for i := range entries {
		at := dir + head + i*entry
		kind := order.Uint16(data[at+2:])
		if int(kind) >= len(tiffSizes) || tiffSizes[kind] == 0 {
			continue // types to come are to be skipped
		}
		count, each := number(at+4), tiffSizes[kind]
		from := at + 4 + word
		if count > word/each {
			from = number(from)
			if from > size || count > (size-from)/each {
				return cut("the values of its directory")
			}
		}
		if v := d.tag(order.Uint16(data[at:])); v != nil {
			*v = tiffValues{order: order, kind: kind, raw: data[from : from+count*each]}
		}
	}
	return d, nil
}

// tag returns where the values of a tag are kept; nil if they are not.
func (d *tiffDir) tag(tag uint16) *tiffValues {
	switch tag {
	case 256:
		return &d.width
	case 257:
		return &d.height
	case 258:
		return &d.bits
	case 259:
		return &d.compression
	case 262:
		return &d.photometric
	case 266:
		return &d.fillOrder
	case tagOrientation:
		return &d.orientation
	case 277:
		return &d.samples
	case 284:
		return &d.planar
	case 292:
		return &d.t4
	case 317:
		return &d.predictor
	case 338:
		return &d.extra
	case 339:
		return &d.sampleFormat
	case 273, 324: // of strips, of tiles
		return &d.offsets
	case 279, 325:
		return &d.counts
	}
	return nil
}

func probeTIFF(data []byte) (Info, error) {
	d, err := readTIFF(data)
	if err != nil {
		return Info{}, err
	}
	w, h := d.width.first(0), d.height.first(0)
	if w == 0 || h == 0 || w > 1<<31-1 || h > 1<<31-1 {
		return Info{}, malformed(TIFF, d.offset, "the directory gives an impossible width or height")
	}
	channels, depth := d.samples.first(1), d.bits.first(1)
	if channels == 0 || channels > 1<<16 || depth == 0 || depth > 64 {
		return Info{}, malformed(TIFF, d.offset, "the directory gives an impossible number of samples or bits")
	}
	info := Info{
		Format: TIFF, Width: int(w), Height: int(h), Channels: int(channels), Bits: int(depth),
		Orientation: exif.Valid(d.orientation.first(1)),
	}
	switch d.photometric.first(1 << 32) {
	case 0, 1, 4:
		info.Colorspace = Gray
	case 2, 6, 8, 9, 10:
		info.Colorspace = RGB
	case 3:
		info.Colorspace, info.Channels = RGB, info.Channels+2
	case 5:
		info.Colorspace = CMYK
	default:
		return Info{}, &UnsupportedError{Format: TIFF, Msg: "a photometric interpretation other than grey, RGB, palette, CMYK, YCbCr and Lab"}
	}
	if d.offsets.len() == 0 {
		return Info{}, malformed(TIFF, d.offset, "it has neither strips nor tiles")
	}
	if d.counts.len() != d.offsets.len() {
		return Info{}, &UnsupportedError{Format: TIFF, Msg: "strips or tiles without their byte counts"}
	}
	size := uint64(len(data))
	for i := range d.offsets.len() {
		from, n := d.offsets.at(i), d.counts.at(i)
		if from > size || n > size-from {
			return Info{}, truncated(TIFF, "its strips or tiles", len(data))
		}
	}
	return info, nil
}
