package entropy

import (
	"bytes"
	"encoding/binary"
)

// pad is how many zero bytes follow the clean bytes of a segment. The longest
// block takes less than 256 bytes, and 8 are read at a time.
const pad = 512

// stream is a place in an entropy-coded segment, from which stuffing has been
// removed.
type stream struct {
	data []byte // the clean bytes, and pad zero bytes behind them
	end  int    // how many clean bytes there are
	p    int    // the place, in bytes
	used uint   // and bits, 0 to 7 outside of loops
	pred [4]int32
	// bad says that bits were met that are no code.
	bad bool
}

// bit returns the place in bits.
func (s *stream) bit() int { return 8*s.p + int(s.used) }

// over tells whether more bits were taken than there are.
func (s *stream) over() bool { return s.bit() > 8*s.end }

// peek returns the next 57 bits or more at the top of a word, zero bits behind the
// end.
func (s *stream) peek() uint64 {
	s.p += int(s.used >> 3)
	s.used &= 7
	return binary.BigEndian.Uint64(s.data[min(s.p, s.end+pad-8):]) << s.used
}

// skip takes n bits.
func (s *stream) skip(n uint) { s.used += n }

// unstuff writes src into dst, without what dst holds, and without the 00 that
// follows an FF, up to the marker that ends the segment, whose code it returns with
// the number of bytes of src up to and including the marker. Like libjpeg it takes
// any number of FF before a 00 for one. At the end of src the marker is 0. What it
// returns has room for pad bytes more.
func unstuff(dst, src []byte) (clean []byte, n int, marker byte) {
	if cap(dst) < len(src)+pad {
		dst = make([]byte, 0, len(src)+pad)
	}
	var written int
	written, n = unstuffFast(dst[:cap(dst)], src)
	dst = dst[:written]
	for {
		i := bytes.IndexByte(src[n:], 0xff)
		if i < 0 {
			return append(dst, src[n:]...), len(src), 0
		}
		j := n + i + 1
		for j < len(src) && src[j] == 0xff {
			j++
		}
		if j == len(src) {
			return append(dst, src[n:n+i]...), len(src), 0
		}
		if src[j] != 0 {
			return append(dst, src[n:n+i]...), j + 1, src[j]
		}
		dst = append(dst, src[n:n+i+1]...)
		n = j + 1
	}
}
