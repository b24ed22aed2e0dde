package entropy

import (
	"math"
)

// progressive decodes a scan of a progressive file (T.81, Annex G) into the strip
// that is the whole image.
func (d *Decoder) progressive() error {
	sc := &d.scan
	dc := sc.ss == 0
	if dc && sc.se != 0 || !dc && (sc.ss > sc.se || sc.se > 63 || sc.n != 1) ||
		sc.ah != 0 && sc.al != sc.ah-1 || sc.al > 13 {
		return d.malformed(d.pos, "a progressive scan has impossible parameters")
	}
	if err := d.latch(); err != nil {
		return err
	}
	for i := range sc.n {
		bits, before := &d.bits[sc.component[i]], &d.bitsBefore[sc.component[i]]
		for k := min(sc.ss, 1); k <= max(sc.se, smoothed-1); k++ {
			before[k] = bits[k]
			if d.scans == 1 {
				before[k] = 0
			}
		}
		if !dc && bits[0] < 0 {
			d.note(Progression, d.pos, 0)
		}
		for k := sc.ss; k <= sc.se; k++ {
			if sc.ah != max(int(bits[k]), 0) {
				d.note(Progression, d.pos, 0)
			}
			bits[k] = int8(sc.al)
		}
	}
	t := &d.main
	n := 0
	var symbols *symbolTable
	for i := range sc.n {
		var table *symbolTable
		if !dc || sc.ah == 0 {
			class, slot, build := 0, sc.dc[i], buildSizes
			if !dc {
				class, slot, build = 1, sc.ac[i], buildSymbols
			}
			def, err := d.table(class, slot, false)
			if err != nil {
				return err
			}
			if dc {
				table = d.tables.dcs.get(def, build)
			} else {
				table = d.tables.bands.get(def, build)
			}
			if table == nil {
				return d.malformed(d.pos, "a Huffman table makes no sense")
			}
			symbols = table
		}
		h, v := d.blocksOf(i)
		if n+h*v > maxBlocks {
			return d.malformed(d.pos, "an MCU has more than 10 blocks")
		}
		for range h * v {
			t.lay.slot[n] = slot{symbols: table, pred: uint8(i)}
			n++
		}
	}
	t.lay.n = n
	t.start(d)

	x, y := d.mcus()
	if err := d.pay(x * y * n); err != nil {
		return err
	}
	var run uint32 // blocks without further coefficients: libjpeg's EOBRUN
	var err error
	for row := range y {
		t.row = row
		if sc.n == 1 {
			t.row = row / d.component[sc.component[0]].v
		}
		t.place(&d.strip, row)
		t.lay.slot[0].last = d.last[sc.component[0]] // of scans of AC
		for left := x; left > 0; {
			m := left
			if d.Restart > 0 {
				if t.left == 0 {
					t.restart()
					run = 0
				}
				m = min(m, t.left)
				t.left -= m
			}
			left -= m
			if !t.insufficient {
				d.good = t.row
			}
			switch {
			case t.insufficient:
				t.lay.forward(m)
			case dc && sc.ah == 0:
				err = d.dcFirst(m)
			case dc:
				d.dcRefine(m)
			case sc.ah == 0:
				run = d.acFirst(m, run, symbols)
			default:
				run = d.acRefine(m, run, symbols)
			}
			if err != nil {
				return err
			}
		}
		if t.insufficient && d.Restart == 0 {
			break
		}
	}
	return nil
}

func buildSizes(t *symbolTable, def []byte) bool { return t.build(def, true) }

func buildSymbols(t *symbolTable, def []byte) bool { return t.build(def, false) }

func (d *Decoder) dcFirst(n int) error {
	s, l, al := &d.main.s, &d.main.lay, d.scan.al
	for i := range n {
		for j := range l.slot[:l.n] {
			b := &l.slot[j]
			x := s.peek()
			length, size := b.symbols.symbol(x)
			s.bad = s.bad || length == badLength
			s.skip(length + size)
			diff := int64(extend(x<<length, size))
			pred := int64(s.pred[b.pred&3]) + diff
			if pred != int64(int32(pred)) {
				return d.malformed(d.main.offset(), "a DC coefficient is out of range")
			}
			s.pred[b.pred&3] = int32(pred)
			b.coef[64*b.at] = int16(int32(pred) << al)
			b.at += b.step
		}
		if !d.main.check() {
			l.forward(n - i - 1)
			break
		}
	}
	return nil
}

func (d *Decoder) dcRefine(n int) {
	s, l, bit := &d.main.s, &d.main.lay, int16(1)<<d.scan.al
	for i := range n {
		for j := range l.slot[:l.n] {
			b := &l.slot[j]
			if int64(s.peek()) < 0 {
				b.coef[64*b.at] |= bit
			}
			s.skip(1)
			b.at += b.step
		}
		if !d.main.check() {
			l.forward(n - i - 1)
			break
		}
	}
}

// acFirst decodes the first pass over a band of coefficients of n blocks, of which
// the first run have none. It returns how many blocks that follow have none.
func (d *Decoder) acFirst(n int, run uint32, t *symbolTable) uint32 {
	s, b := &d.main.s, &d.main.lay.slot[0]
	ss, se, al := uint(d.scan.ss), uint(d.scan.se), d.scan.al
	for n > 0 {
		if run > 0 {
			m := min(n, int(min(run, math.MaxInt32)))
			run -= uint32(m)
			n -= m
			b.at += m
			continue
		}
		blk := (*[64]int16)(b.coef[64*b.at:])
		last := uint(b.last[b.at])
		for k := ss; k <= se; k++ {
			x := s.peek()
			length, rs := t.symbol(x)
			s.bad = s.bad || length == badLength
			x <<= length
			r, size := rs>>4, rs&15
			s.skip(length + size)
			if size != 0 {
				k += r
				blk[order[k&255]&63] = int16(extend(x, size) << al)
				last = max(last, min(k, 63))
			} else if r == 15 {
				k += 15
			} else {
				run = 1<<r - 1 + uint32(x>>1>>(63-r))
				s.skip(r)
				break
			}
		}
		b.last[b.at] = uint8(last)
		b.at++
		n--
		if !d.main.check() {
			b.at += n
			break
		}
	}
	return run
}

// acRefine decodes a further bit of a band of coefficients of n blocks, of which
// the first run get no new ones.
func (d *Decoder) acRefine(n int, run uint32, t *symbolTable) uint32 {
	s, b := &d.main.s, &d.main.lay.slot[0]
	ss, se, al := uint(d.scan.ss), uint(d.scan.se), d.scan.al
	plus, minus := int16(1)<<al, int16(-1)<<al
	for ; n > 0; n-- {
		last := uint(b.last[b.at])
		if run > 0 && last < ss {
			run--
			b.at++
			continue
		}
		blk := (*[64]int16)(b.coef[64*b.at:])
		k := ss
		if run == 0 {
			for ; k <= se; k++ {
				x := s.peek()
				length, rs := t.symbol(x)
				s.skip(length)
				s.bad = s.bad || length == badLength || rs&15 > 1
				x <<= length
				r := int(rs >> 4)
				var v int16
				if rs&15 != 0 {
					v = minus
					if int64(x) < 0 {
						v = plus
					}
					s.skip(1)
				} else if r != 15 {
					run = 1<<r + uint32(x>>1>>(63-r))
					s.skip(uint(r))
					break
				}
				// Over r zeros to the place of the new coefficient, and a bit for
				// each coefficient on the way.
				for ; k <= se; k++ {
					if c := &blk[order[k]&63]; *c != 0 {
						s.refine(c, plus, minus)
					} else if r--; r < 0 {
						break
					}
				}
				if v != 0 {
					blk[order[k&255]&63] = v
					last = max(last, min(k, 63))
				}
			}
		}
		if run > 0 {
			for end := min(se, last); k <= end; k++ {
				if c := &blk[order[k]&63]; *c != 0 {
					s.refine(c, plus, minus)
				}
			}
			run--
		}
		b.last[b.at] = uint8(last)
		b.at++
		if !d.main.check() {
			b.at += n - 1
			break
		}
	}
	return run
}

// refine takes a bit, and moves a coefficient that lacks it away from zero if it is
// set.
func (s *stream) refine(c *int16, plus, minus int16) {
	if int64(s.peek()) < 0 && *c&plus == 0 {
		if *c >= 0 {
			*c += plus
		} else {
			*c += minus
		}
	}
	s.skip(1)
}
