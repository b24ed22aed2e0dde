// Package exif reads the one thing of EXIF that pixels depend on.
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
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(data, []byte(littleMagic)):
		order = binary.LittleEndian
	case bytes.HasPrefix(data, []byte(bigMagic)):
		order = binary.BigEndian
	default:
		return 1
	}
	if len(data) < 8 {
		return 1
	}
	at := uint64(order.Uint32(data[4:]))
	if at+2 > uint64(len(data)) {
		return 1
	}
	entries := int(order.Uint16(data[at:]))
	rest := data[at+2:]
	for ; entries > 0 && len(rest) >= 12; entries-- {
		if order.Uint16(rest) == tagOrientation {
			return Valid(Inline(order, rest))
		}
		rest = rest[12:]
	}
	return 1
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
