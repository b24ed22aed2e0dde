package jpegenc

import "encoding/binary"

// token is one step of an entropy-coded segment, before the codes are known: a
// Huffman symbol with the bits that follow it, bits alone, or a restart marker.
//
//	bits  0–15  the extra bits
//	bits 16–20  how many they are, 0 to 16
//	bits 21–28  the symbol
//	bits 29–30  the slot of its table
//	bit  31     there is no symbol, only the extra bits
type token uint32

const (
	slotDC = 0 // and 1
	slotAC = 2 // and 3

	restart token = 1<<31 | 31<<16
)

func symbol(slot, s, n int, extra uint32) token {
	return token(slot)<<29 | token(s)<<21 | token(n)<<16 | token(extra&(1<<n-1))
}

func plain(n int, extra uint32) token { return 1<<31 | token(n)<<16 | token(extra&(1<<n-1)) }

// count adds up how often each symbol of each table occurs.
func count(tokens []token, freq *[4 * 256]int64) {
	for _, t := range tokens {
		if t < 1<<31 {
			freq[t>>21&1023]++
		}
	}
}

// write appends the entropy-coded segment: codes, most significant bit first, a
// zero byte after each 0xff, ones up to the last byte's end, and the restart
// markers.
func write(dst []byte, tokens []token, tables *[4 * 256]code) []byte {
	var acc uint64 // the low n bits are still to be written
	n := 0
	marker := byte(0)
	for _, t := range tokens {
		extra, bits := uint64(t&0xffff), int(t>>16&31)
		if t < 1<<31 {
			c := tables[t>>21&1023]
			l := int(c & 0xff)
			acc = acc<<(l&31) | uint64(c>>8)
			n += l
		} else if t == restart {
			dst = finish(dst, acc, n)
			acc, n = 0, 0
			dst = append(dst, 0xff, 0xd0+marker)
			marker = (marker + 1) & 7
			continue
		}
		acc = acc<<(bits&31) | extra
		n += bits
		if n >= 32 {
			n -= 32
			w := uint32(acc >> (n & 63))
			if !hasFF(w) {
				dst = binary.BigEndian.AppendUint32(dst, w)
				continue
			}
			for s := 24; s >= 0; s -= 8 {
				dst = stuffed(dst, byte(w>>s))
			}
		}
	}
	return finish(dst, acc, n)
}

// hasFF reports whether one of the four bytes is 0xff.
func hasFF(w uint32) bool {
	w = ^w
	return (w-0x01010101)&^w&0x80808080 != 0
}

func stuffed(dst []byte, b byte) []byte {
	dst = append(dst, b)
	if b == 0xff {
		dst = append(dst, 0)
	}
	return dst
}

// finish writes the last n bits and fills up with ones.
func finish(dst []byte, acc uint64, n int) []byte {
	for ; n >= 8; n -= 8 {
		dst = stuffed(dst, byte(acc>>(n-8)))
	}
	if n > 0 {
		dst = stuffed(dst, byte(acc<<(8-n))|(1<<(8-n)-1))
	}
	return dst
}
