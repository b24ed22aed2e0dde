// Package exif reads the one thing of EXIF that pixels depend on, and sets it.
package exif

import (
	"bytes"
	"encoding/binary"
)

const (
	littleMagic    = "II*\x00"
	bigMagic       = "MM\x00*"
	tagOrientation = 0x112
)

// Orientation returns the Orientation (tag 0x112) of an EXIF block, which is
// the beginning of a TIFF file (EXIF 2.32, 4.5): 1 to 8; 1 if it is missing or
// makes no sense, for a damaged EXIF block is no reason to refuse an image.
func Orientation(data []byte) int {
	entry, order := find(data)
	if entry == nil {
		return 1
	}
	return Valid(Inline(order, entry))
}

// SetUpright makes the Orientation of an EXIF block 1, in place, if it has one.
func SetUpright(data []byte) {
	entry, order := find(data)
	if entry == nil || Inline(order, entry) <= 1 {
		return
	}
	switch order.Uint16(entry[2:]) {
	case 1:
		entry[8] = 1
	case 3:
		order.PutUint16(entry[8:], 1)
	case 4:
		order.PutUint32(entry[8:], 1)
	}
}

// find returns the 12-byte directory entry of the Orientation, nil if there is none.
func find(data []byte) ([]byte, binary.ByteOrder) {
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(data, []byte(littleMagic)):
		order = binary.LittleEndian
	case bytes.HasPrefix(data, []byte(bigMagic)):
		order = binary.BigEndian
	default:
		return nil, nil
	}
	if len(data) < 8 {
		return nil, nil
	}
	at := uint64(order.Uint32(data[4:]))
	if at+2 > uint64(len(data)) {
		return nil, nil
	}
	entries := int(order.Uint16(data[at:]))
	rest := data[at+2:]
	for ; entries > 0 && len(rest) >= 12; entries-- {
		if order.Uint16(rest) == tagOrientation {
			return rest[:12], order
		}
		rest = rest[12:]
	}
	return nil, nil
}

// Inline returns the first value of a 12-byte directory entry that holds its
// value itself as a BYTE, SHORT or LONG; 0 if it is something else.
func Inline(order binary.ByteOrder, entry []byte) uint64 {
	if order.Uint32(entry[4:]) == 0 {
		return 0
	}
	switch order.Uint16(entry[2:]) {
	case 1:
		return uint64(entry[8])
	case 3:
		return uint64(order.Uint16(entry[8:]))
	case 4:
		return uint64(order.Uint32(entry[8:]))
	}
	return 0
}

// Valid returns v if it is an orientation, and else 1: upright.
func Valid(v uint64) int {
	if v < 1 || v > 8 {
		return 1
	}
	return int(v)
}
