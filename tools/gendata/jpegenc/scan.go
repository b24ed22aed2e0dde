package jpegenc

import "math/bits"

// scan is what one SOS segment announces.
type scan struct {
	comps []int // numbers of the components
	// from and to are the first and last coefficient in zigzag order.
	from, to int
	// high and low are the successive approximation: bits from low on have been
	// sent after this scan, bits from high on before it; 0 where none were.
	high, low int
}

// sequential is the one scan of a baseline file.
func sequential(comps int) []scan { return []scan{{comps: allOf(comps), to: 63}} }

func allOf(n int) []int { return []int{0, 1, 2, 3}[:n] }

// progressive is libjpeg's default script.
func progressive(model Model) []scan {
	n := model.Planes()
	all := allOf(n)
	script := []scan{{comps: all, low: 1}}
	each := func(s scan) {
		for i := range n {
			s.comps = []int{i}
			script = append(script, s)
		}
	}
	if model == YCbCr {
		// Few luma coefficients first, then all of the chroma, which is small.
		script = append(script,
			scan{comps: []int{0}, from: 1, to: 5, low: 2},
			scan{comps: []int{2}, from: 1, to: 63, low: 1},
			scan{comps: []int{1}, from: 1, to: 63, low: 1},
			scan{comps: []int{0}, from: 6, to: 63, low: 2},
			scan{comps: []int{0}, from: 1, to: 63, high: 2, low: 1},
			scan{comps: all, high: 1},
			scan{comps: []int{2}, from: 1, to: 63, high: 1},
			scan{comps: []int{1}, from: 1, to: 63, high: 1},
			scan{comps: []int{0}, from: 1, to: 63, high: 1},
		)
		return script
	}
	each(scan{from: 1, to: 5, low: 2})
	each(scan{from: 6, to: 63, low: 2})
	each(scan{from: 1, to: 63, high: 2, low: 1})
	script = append(script, scan{comps: all, high: 1})
	each(scan{from: 1, to: 63, high: 1})
	return script
}

// tokenizer turns the blocks of a scan into tokens.
type tokenizer struct {
	tokens []token
	scan   scan
	dc     [4]int32 // the last DC value of each component

	// For AC scans of progressive files:
	slot int
	// run counts blocks whose end-of-band has not been written yet, and pending
	// holds the correction bits that follow it.
	run     int
	pending []uint8
}

// all appends the tokens of a scan, with a restart marker after every interval
// MCUs if that is not 0.
func (t *tokenizer) all(s scan, comps []component, progressive bool, mcuAcross, mcuDown, interval int) {
	t.scan, t.dc = s, [4]int32{}
	block := t.baseline
	switch {
	case !progressive:
	case s.from == 0 && s.high == 0:
		block = t.dcFirst
	case s.from == 0:
		block = t.dcRefine
	case s.high == 0:
		block = t.acFirst
	default:
		block = t.acRefine
	}
	left := interval
	next := func() {
		if interval == 0 {
			return
		}
		if left == 0 {
			t.endRun()
			t.tokens = append(t.tokens, restart)
			t.dc = [4]int32{}
			left = interval
		}
		left--
	}
	if len(s.comps) == 1 {
		// Not interleaved: an MCU is a block, and there are no blocks over the edge.
		i := s.comps[0]
		c := &comps[i]
		t.slot = c.table
		for y := range c.down {
			for x := range c.across {
				next()
				b := y*c.stride + x
				block(i, c.table, &c.coefs[b], c.nonzero[b])
			}
		}
		t.endRun()
		return
	}
	for my := range mcuDown {
		for mx := range mcuAcross {
			next()
			for _, i := range s.comps {
				c := &comps[i]
				for y := range c.v {
					for x := range c.h {
						b := (my*c.v+y)*c.stride + mx*c.h + x
						block(i, c.table, &c.coefs[b], c.nonzero[b])
					}
				}
			}
		}
	}
}

// difference appends a DC difference (F.1.2.1).
func (t *tokenizer) difference(comp, table int, dc int32) {
	d := dc - t.dc[comp]
	t.dc[comp] = dc
	n, extra := magnitude(d)
	t.tokens = append(t.tokens, symbol(slotDC+table, n, n, extra))
}

// magnitude returns the category of v and its extra bits.
func magnitude(v int32) (n int, extra uint32) {
	sign := v >> 31
	return bits.Len32(uint32((v ^ sign) - sign)), uint32(v + sign)
}

func (t *tokenizer) baseline(comp, table int, coefs *[64]int16, nonzero uint64) {
	t.difference(comp, table, int32(coefs[0]))
	slot := slotAC + table
	last := 0
	for m := nonzero &^ 1; m != 0; m &= m - 1 {
		k := bits.TrailingZeros64(m)
		run := k - last - 1
		for ; run > 15; run -= 16 {
			t.tokens = append(t.tokens, symbol(slot, 0xf0, 0, 0))
		}
		n, extra := magnitude(int32(coefs[k&63]))
		t.tokens = append(t.tokens, symbol(slot, run<<4|n, n, extra))
		last = k
	}
	if last < 63 {
		t.tokens = append(t.tokens, symbol(slot, 0, 0, 0))
	}
}

func (t *tokenizer) dcFirst(comp, table int, coefs *[64]int16, _ uint64) {
	t.difference(comp, table, int32(coefs[0])>>t.scan.low)
}

func (t *tokenizer) dcRefine(_, _ int, coefs *[64]int16, _ uint64) {
	t.tokens = append(t.tokens, plain(1, uint32(coefs[0])>>t.scan.low&1))
}

// acFirst is G.1.2.2.
func (t *tokenizer) acFirst(_, table int, coefs *[64]int16, _ uint64) {
	slot := slotAC + table
	run := 0
	for k := t.scan.from; k <= t.scan.to; k++ {
		v := int32(coefs[k])
		sign := v >> 31
		if v = ((v ^ sign) - sign) >> t.scan.low; v == 0 {
			run++
			continue
		}
		t.endRun()
		for ; run > 15; run -= 16 {
			t.tokens = append(t.tokens, symbol(slot, 0xf0, 0, 0))
		}
		n, extra := magnitude((v ^ sign) - sign)
		t.tokens = append(t.tokens, symbol(slot, run<<4|n, n, extra))
		run = 0
	}
	if run > 0 {
		t.run++
		if t.run == 0x7fff {
			t.endRun()
		}
	}
}

// maxPending bounds the correction bits that wait for an end-of-band, as libjpeg
// does.
const maxPending = 1000 - 63

// acRefine is G.1.2.3.
func (t *tokenizer) acRefine(_, table int, coefs *[64]int16, _ uint64) {
	slot := slotAC + table
	var values [64]uint16
	end := 0 // the last coefficient that becomes nonzero in this scan
	for k := t.scan.from; k <= t.scan.to; k++ {
		v := coefs[k]
		sign := v >> 15
		values[k] = uint16((v^sign)-sign) >> t.scan.low
		if values[k] == 1 {
			end = k
		}
	}
	run := 0
	var corrections []uint8 // of this block, since its last symbol
	for k := t.scan.from; k <= t.scan.to; k++ {
		v := values[k]
		if v == 0 {
			run++
			continue
		}
		for run > 15 && k <= end {
			t.endRun()
			t.tokens = append(t.tokens, symbol(slot, 0xf0, 0, 0))
			run -= 16
			t.corrections(corrections)
			corrections = corrections[:0]
		}
		if v > 1 {
			corrections = append(corrections, uint8(v&1))
			continue
		}
		t.endRun()
		positive := uint32(1)
		if coefs[k] < 0 {
			positive = 0
		}
		t.tokens = append(t.tokens, symbol(slot, run<<4|1, 1, positive))
		t.corrections(corrections)
		corrections = corrections[:0]
		run = 0
	}
	if run > 0 || len(corrections) > 0 {
		t.run++
		t.pending = append(t.pending, corrections...)
		if t.run == 0x7fff || len(t.pending) > maxPending {
			t.endRun()
		}
	}
}

func (t *tokenizer) corrections(b []uint8) {
	for _, bit := range b {
		t.tokens = append(t.tokens, plain(1, uint32(bit)))
	}
}

// endRun writes the end-of-band run that is open, if any, and its correction bits.
func (t *tokenizer) endRun() {
	if t.run == 0 {
		return
	}
	n := bits.Len(uint(t.run)) - 1
	t.tokens = append(t.tokens, symbol(slotAC+t.slot, n<<4, n, uint32(t.run)))
	t.run = 0
	t.corrections(t.pending)
	t.pending = t.pending[:0]
}
