package entropy

import (
	"bytes"

	"shardify/imaging/jpeg/internal/blocks"
)

// strand is a place from which a scan's entropy-coded data are decoded: its
// beginning, or an entry further on. It goes from MCU to MCU, and over restart
// markers.
//
// What it decodes without looking up is a part: MCUs of one row in one segment. next
// prepares a part, stream.run or a lane decodes it, done ends it.
type strand struct {
	d *Decoder
	s stream
	// Where reading goes on, and the marker that ended the segment; see File.
	pos    int
	marker byte
	ended  bool

	clean   []byte // the segment's bytes without stuffing
	segment int    // where in the file they begin
	left    int    // MCUs until a restart
	number  int    // of the next restart marker
	// insufficient: the segment has no more data; libjpeg's name.
	insufficient bool

	wide        int // MCUs of a row of the scan
	row, column int // the next MCU

	lay   layout // of the scan, pointing into the strip
	waste layout // the same, pointing into scratch
	coef  [maxBlocks * 64]int16

	part   *layout // what is being decoded,
	n      int     // how many MCUs of it,
	before stream  // and from where
}

// start begins the scan that the decoder has read the header of.
func (t *strand) start(d *Decoder) {
	t.d = d
	t.pos, t.marker, t.ended = d.pos, d.marker, d.ended
	t.number, t.left, t.insufficient = 0, d.Restart, false
	t.wide, _ = d.mcus()
	t.row, t.column = 0, 0
	t.open()
}

// end ends the scan's entropy-coded data, and the decoder reads on behind it.
// Libjpeg does not miss the few bytes that it had read ahead; a sound file has
// none.
func (t *strand) end() {
	if t.rest() > 0 {
		t.d.note(Extraneous, t.offset(), -1)
	}
	t.d.pos, t.d.marker, t.d.ended = t.pos, t.marker, t.ended
}

// open begins the segment behind pos, which is empty in front of a marker that is
// still to be dealt with.
func (t *strand) open() {
	t.clean, t.segment = t.clean[:0], t.pos
	if t.marker == 0 {
		var n int
		t.clean, n, t.marker = unstuff(t.clean, t.d.Data[t.pos:])
		t.pos += n
		if t.marker == 0 {
			t.marker, t.ended = mEOI, true
		}
	}
	t.s = t.stream()
}

// stream returns a stream at the beginning of the clean bytes.
func (t *strand) stream() stream {
	end := len(t.clean)
	var zero [pad]byte
	t.clean = append(t.clean, zero[:]...)
	return stream{data: t.clean, end: end}
}

// offset returns about where in the file the strand is.
func (t *strand) offset() int {
	p := min(t.s.p, t.s.end)
	return t.segment + p + bytes.Count(t.clean[:p], []byte{0xff})
}

// rest returns how many whole bytes of the segment have not been used.
func (t *strand) rest() int { return (8*t.s.end - t.s.bit()) / 8 }

// partBlocks is how many blocks a part has at most, all of whose MCUs are whole: most
// rows of photographs are one part. A lane's turn costs more than that its blocks, 40
// kB, are in the second-level cache when they are brought to their places; 60 at a time
// take 1.03 to 1.06 of the time.
const partBlocks = 250

// next prepares the next part of the row. It returns false at MCU stop of the row.
func (t *strand) next(stop int) bool {
	w := &t.d.window
	for t.column < stop {
		l, n := &t.waste, stop-t.column
		switch {
		case t.row < w.Y0:
		case t.column < w.X0:
			n = w.X0 - t.column
		case t.column < w.X1:
			l, n = &t.lay, w.X1-t.column
		}
		n = min(n, stop-t.column, max(partBlocks/l.n, 1))
		if t.d.Restart > 0 {
			if t.left == 0 {
				t.restart()
			}
			n = min(n, t.left)
		}
		if !t.insufficient {
			t.part, t.n, t.before = l, n, t.s
			return true
		}
		l.blank(n)
		t.forward(n)
	}
	return false
}

func (t *strand) forward(n int) {
	t.column += n
	if t.d.Restart > 0 {
		t.left -= n
	}
}

// done ends a part that has been decoded: if it was not sound, it is decoded again,
// MCU by MCU, to see where it went wrong.
func (t *strand) done() {
	t.forward(t.n)
	if !t.s.bad && !t.s.over() {
		t.part.forward(t.n)
		return
	}
	t.s = t.before
	for i := range t.n {
		t.s.run(t.part, 1)
		t.part.forward(1)
		if !t.check() {
			t.part.blank(t.n - i - 1)
			return
		}
	}
}

// decode decodes the row up to MCU stop.
func (t *strand) decode(stop int) {
	for t.next(stop) {
		t.s.run(t.part, t.n)
		t.done()
	}
}

// check looks whether the last MCU was sound. It returns false if there is no more
// data.
func (t *strand) check() bool {
	if t.s.bad {
		t.s.bad = false
		t.note(BadCode, t.offset())
	}
	if !t.s.over() {
		return true
	}
	t.insufficient = true
	k := Short
	if t.ended {
		k = Ended
	}
	t.note(k, t.offset())
	return false
}

// note notes damage in the row. Where there are several scans, of which the later ones
// are of all rows, these suffer too.
func (t *strand) note(k Kind, offset int) {
	row := t.row
	if t.d.several {
		row = 0
	}
	t.d.note(k, offset, row)
}

// restart goes to the next segment as libjpeg does: if the marker that ended this
// one is not the one expected, it is passed over, or left for a later restart.
func (t *strand) restart() {
	if t.rest() > 0 {
		t.note(Extraneous, t.offset())
	}
	if want := byte(mRST0 + t.number); t.marker == want {
		t.marker = 0
	} else {
		t.note(Lost, t.pos)
		for t.resync(want) {
			t.d.pos = t.pos
			t.d.nextMarker()
			t.pos, t.marker, t.ended = t.d.pos, t.d.marker, t.d.ended
		}
	}
	t.number = (t.number + 1) & 7
	t.left = t.d.Restart
	if t.marker == 0 {
		t.insufficient = false
	}
	t.open()
}

// resync decides what to do with a marker that is not the one wanted. It returns
// true if the next marker should be looked at (jpeg_resync_to_restart).
func (t *strand) resync(want byte) bool {
	switch m := t.marker; {
	case m < mSOF0:
		return true
	case m < mRST0 || m > mRST7:
		return false
	default:
		switch (m - want) & 7 {
		case 1, 2: // to come
			return false
		case 6, 7: // past
			return true
		}
		t.marker = 0
		return false
	}
}

// skip goes on at the last restart marker before row y, if the markers up to there
// are all in place.
func (t *strand) skip(y int) {
	if t.d.Restart == 0 {
		return
	}
	goal := y * t.wide / t.d.Restart
	if goal == 0 {
		return
	}
	data, pos := t.d.Data, t.segment
	for i := range goal {
		for {
			j := bytes.IndexByte(data[pos:], 0xff)
			if j < 0 {
				return
			}
			pos += j + 1
			for pos < len(data) && data[pos] == 0xff {
				pos++
			}
			if pos == len(data) {
				return
			}
			pos++
			if data[pos-1] != 0 {
				break
			}
		}
		if data[pos-1] != byte(mRST0+i&7) {
			return
		}
	}
	t.pos, t.marker, t.ended = pos, 0, false
	t.number, t.left = goal&7, t.d.Restart
	t.open()
	done := goal * t.d.Restart
	t.row, t.column = done/t.wide, done%t.wide
}

// place points the strand at row y of the scan's MCUs in a strip, counted from the
// strip's first row.
func (t *strand) place(s *blocks.Strip, y int) { t.lay.place(&t.d.File, s, 0, y) }
