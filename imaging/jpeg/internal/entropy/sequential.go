package entropy

import (
	"encoding/binary"

	"shardify/imaging/jpeg/internal/blocks"
)

// order has the place of a coefficient by its zigzag index. A run that leads beyond
// the block ends at its last coefficient, as in libjpeg.
var order = func() (o [256]uint8) {
	for i := range o {
		o[i] = blocks.Order[min(i, 63)]
	}
	return o
}()

// run decodes n MCUs to where l points. It looks at
// neither the end of the segment nor the validity of codes beyond noting it in
// s.bad: the caller does, once for many MCUs.
func (s *stream) run(l *layout, n int) {
	data := s.data
	p, used := s.p, s.used
	limit := s.end + 8
	final := order[63] & 63
	for i := range n {
		for j := range l.slot[:l.n] {
			b := &l.slot[j]
			at := b.at + i*b.step
			blk := (*[64]int16)(b.coef[64*at:])
			*blk = [64]int16{}
			p = min(p+int(used>>3), limit)
			used &= 7
			buf := binary.BigEndian.Uint64(data[p:]) << used

			e := b.dc.entry[buf>>(64-codeBits)]
			diff := int32(e) >> 16
			if e&escape == escape {
				var length, size uint
				length, size, buf = b.dc.symbol(e, buf)
				s.bad = s.bad || length == badLength
				diff = extend(buf, size)
				used += length + size
			} else {
				used += uint(e & 63)
			}
			pred := &s.pred[b.pred&3]
			*pred += diff
			blk[0] = int16(*pred)

			ac := &b.ac.entry
			k := uint32(0)
			for {
				p += int(used >> 3)
				used &= 7
				buf := binary.BigEndian.Uint64(data[p:]) << used
				e := ac[buf>>(64-codeBits)]
				if k += e >> 8 & 255; k >= 63 {
					goto special
				}
				blk[order[k]&63] = int16(e >> 16)
				buf <<= e & 63
				used += uint(e & 63)

				e = ac[buf>>(64-codeBits)]
				if k += e >> 8 & 255; k >= 63 {
					goto special
				}
				blk[order[k]&63] = int16(e >> 16)
				buf <<= e & 63
				used += uint(e & 63)

				e = ac[buf>>(64-codeBits)]
				if k += e >> 8 & 255; k >= 63 {
					goto special
				}
				blk[order[k]&63] = int16(e >> 16)
				buf <<= e & 63
				used += uint(e & 63)

				e = ac[buf>>(64-codeBits)]
				if k += e >> 8 & 255; k >= 63 {
					goto special
				}
				blk[order[k]&63] = int16(e >> 16)
				used += uint(e & 63)
				continue

			special:
				if e&escape != escape {
					used += uint(e & 63)
					switch {
					case k < acEnd:
						blk[final] = int16(e >> 16)
					case k >= acLast+63:
						used -= uint(b.ac.last & 63)
						blk[final] = int16(e >> 16)
					case k > acLast:
						blk[order[k-acLast]&63] = int16(e >> 16)
					}
					break
				}
				k -= escape >> 8
				p += int(used >> 3)
				used &= 7
				buf = binary.BigEndian.Uint64(data[p:]) << used
				length, rs, buf := b.ac.symbol(e, buf)
				s.bad = s.bad || length == badLength
				used += length
				if rs == 0 {
					break
				}
				used += rs & 15
				if k += uint32(rs>>4) + 1; k >= 63 {
					if rs&15 != 0 {
						blk[final] = int16(extend(buf, rs&15))
					}
					break
				}
				if rs&15 != 0 {
					blk[order[k]&63] = int16(extend(buf, rs&15))
				}
			}
		}
	}
	s.p, s.used = p+int(used>>3), used&7
}
