// Package entropy is the first half of the JPEG engine: it reads a file's markers
// and turns its Huffman-coded data into blocks of quantised coefficients
// (package blocks).
//
// Call [Decoder.ReadHeader], look at the frame, then [Decoder.Begin] with the
// window of MCUs that is wanted, and [Decoder.Next] until it returns nil.
//
// Coefficients are those of libjpeg-turbo, also for files that are damaged, as long
// as libjpeg only warns of the damage. Sequential scans are decoded strip by strip,
// and of a window nothing below it; files of several scans, among them all
// progressive ones, need memory for the whole image's coefficients.
package entropy

import (
	"bytes"
	"fmt"

	"shardify/imaging/internal/fault"
	"shardify/imaging/jpeg/internal/blocks"
)

// Decoder decodes one file after the other, and keeps its memory. Its zero value is
// ready.
type Decoder struct {
	File
	// Raw leaves the coefficients as the file has them, also those that a cut
	// progressive file has not; for decoding to pixels they are estimated.
	Raw bool

	tables tables
	memory blocks.Memory
	strip  blocks.Strip

	window blocks.Window
	row    int // of MCUs, the next one to decode

	lay   layout // of the scan, pointing into the strip
	waste layout // the same, pointing into scratch
	coef  [maxBlocks * 64]int16
	last  [maxBlocks]uint8

	s       stream
	clean   []byte // the segment's bytes without stuffing
	segment int    // where in the file they begin
	left    int    // MCUs until a restart
	number  int    // of the next restart marker
	// insufficient: the segment has no more data; libjpeg's name.
	insufficient bool

	// Of several scans: visits of blocks that are still allowed.
	work int64
	// Of progressive scans: how many low bits of a coefficient are not known, -1
	// for all, after the last scan and before; the row of MCUs up to which the last
	// scan went; and memory for smoothing.
	bits, bitsBefore [blocks.MaxComponents][64]int8
	good             int
	dc               []int16
}

// Begin starts to decode the coefficients of a window, which must not be empty and
// must lie in the image.
func (d *Decoder) Begin(w blocks.Window) error {
	if err := d.Supported(); err != nil {
		return err
	}
	d.window, d.row = w, 0
	if d.multi() {
		return d.whole()
	}
	if err := d.sequential(); err != nil {
		return err
	}
	d.memory.Shape(&d.strip, &d.Frame, w, 1)
	return nil
}

// Next decodes the next strip. It returns nil at the end of the window.
func (d *Decoder) Next() (*blocks.Strip, error) {
	if d.row >= d.window.Y1 {
		return nil, nil
	}
	if d.multi() {
		d.row = d.window.Y1
		return &d.strip, nil
	}
	wide, high := d.mcus()
	d.skipTo(wide)
	for ; d.row < d.window.Y0; d.row++ {
		d.mcuRow(&d.waste, wide)
	}
	d.mcuRow(&d.waste, d.window.X0)
	d.lay.place(&d.File, &d.strip, 0, 0)
	d.mcuRow(&d.lay, d.window.X1-d.window.X0)
	d.strip.Window = blocks.Window{X0: d.window.X0, X1: d.window.X1, Y0: d.row, Y1: d.row + 1}
	if d.row+1 < d.window.Y1 || d.window.Y1 == high {
		d.mcuRow(&d.waste, wide-d.window.X1)
	}
	d.row++
	if d.row == high {
		d.finish()
		d.trailer()
	}
	return &d.strip, nil
}

// sequential prepares a sequential scan.
func (d *Decoder) sequential() error {
	if err := d.latch(); err != nil {
		return err
	}
	n := 0
	for i := range d.scan.n {
		h, v := d.blocksOf(i)
		dc, err := d.table(0, d.scan.dc[i], true)
		if err != nil {
			return err
		}
		ac, err := d.table(1, d.scan.ac[i], true)
		if err != nil {
			return err
		}
		if n+h*v > maxBlocks {
			return d.malformed(d.pos, "an MCU has more than 10 blocks")
		}
		b := slot{
			dc:   d.tables.dc.get(dc, buildDC),
			ac:   d.tables.ac.get(ac, (*acTable).build),
			pred: uint8(i),
		}
		if b.dc == nil || b.ac == nil {
			return d.malformed(d.pos, "a Huffman table makes no sense")
		}
		for range h * v {
			d.lay.slot[n] = b
			b.coef, b.last = d.coef[64*n:64*n+64], d.last[n:n+1]
			d.waste.slot[n] = b
			b.coef, b.last = nil, nil
			n++
		}
	}
	d.lay.n, d.waste.n = n, n
	d.start()
	return nil
}

func buildDC(t *symbolTable, def []byte) bool { return t.build(def, true) }

// table returns the definition of a Huffman table. Sequential files may leave the
// standard's own away (Motion JPEG does).
func (d *Decoder) table(class int, slot uint8, standard bool) ([]byte, error) {
	if slot <= 3 {
		if def := d.huffman[class][slot]; def != nil {
			return def, nil
		}
		if slot < 2 && standard {
			return standardTables[class][slot], nil
		}
	}
	return nil, d.malformed(d.pos, fmt.Sprintf("Huffman table %d is missing", slot))
}

// start begins the scan's entropy-coded data.
func (d *Decoder) start() {
	d.number, d.left, d.insufficient = 0, d.Restart, false
	d.open()
}

// open begins the segment behind pos, which is empty in front of a marker that is
// still to be dealt with.
func (d *Decoder) open() {
	d.clean, d.segment = d.clean[:0], d.pos
	if d.marker == 0 {
		var n int
		d.clean, n, d.marker = unstuff(d.clean, d.Data[d.pos:])
		d.pos += n
		if d.marker == 0 {
			d.marker, d.ended = mEOI, true
		}
	}
	end := len(d.clean)
	var zero [pad]byte
	d.clean = append(d.clean, zero[:]...)
	d.s = stream{data: d.clean, end: end}
}

// offset returns about where in the file the stream is.
func (d *Decoder) offset() int {
	p := min(d.s.p, d.s.end)
	return d.segment + p + bytes.Count(d.clean[:p], []byte{0xff})
}

// rest returns how many whole bytes of the segment have not been used.
func (d *Decoder) rest() int { return (8*d.s.end - d.s.bit()) / 8 }

// mcuRow decodes n MCUs of a row.
func (d *Decoder) mcuRow(l *layout, n int) {
	for n > 0 {
		m := n
		if d.Restart > 0 {
			if d.left == 0 {
				d.restart()
			}
			m = min(n, d.left)
			d.left -= m
		}
		d.decode(l, m)
		n -= m
	}
}

// decode decodes n MCUs of a segment.
func (d *Decoder) decode(l *layout, n int) {
	if d.insufficient {
		l.blank(n)
		return
	}
	before, at := d.s, l.slot[0].at
	d.s.run(l, n)
	if !d.s.bad && !d.s.over() {
		return
	}
	// Again, one by one, to see where it went wrong.
	d.s = before
	l.back(at)
	for i := range n {
		d.s.run(l, 1)
		if d.s.bad {
			d.s.bad = false
			d.note(BadCode, d.offset(), d.row)
		}
		if d.s.over() {
			d.short()
			l.blank(n - i - 1)
			return
		}
	}
}

// short notes that the segment has no more data.
func (d *Decoder) short() {
	d.insufficient = true
	k := Short
	if d.ended {
		k = Ended
	}
	d.note(k, d.offset(), d.row)
}

// restart goes to the next segment as libjpeg does: if the marker that ended this
// one is not the one expected, it is passed over, or left for a later restart.
func (d *Decoder) restart() {
	if d.rest() > 0 {
		d.note(Extraneous, d.offset(), d.row)
	}
	if want := byte(mRST0 + d.number); d.marker == want {
		d.marker = 0
	} else {
		d.note(Lost, d.pos, d.row)
		for d.resync(want) {
			d.nextMarker()
		}
	}
	d.number = (d.number + 1) & 7
	d.left = d.Restart
	if d.marker == 0 {
		d.insufficient = false
	}
	d.open()
}

// resync decides what to do with a marker that is not the one wanted. It returns
// true if the next marker should be looked at (jpeg_resync_to_restart).
func (d *Decoder) resync(want byte) bool {
	switch m := d.marker; {
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
		d.marker = 0
		return false
	}
}

// skipTo goes on at the last restart marker before the window, if the markers up to
// there are all in place.
func (d *Decoder) skipTo(wide int) {
	if d.Restart == 0 || d.row != 0 || d.left != d.Restart || d.number != 0 {
		return
	}
	goal := d.window.Y0 * wide / d.Restart
	if goal == 0 {
		return
	}
	pos := d.segment
	for i := range goal {
		for {
			j := bytes.IndexByte(d.Data[pos:], 0xff)
			if j < 0 {
				return
			}
			pos += j + 1
			for pos < len(d.Data) && d.Data[pos] == 0xff {
				pos++
			}
			if pos == len(d.Data) {
				return
			}
			pos++
			if d.Data[pos-1] != 0 {
				break
			}
		}
		if d.Data[pos-1] != byte(mRST0+i&7) {
			return
		}
	}
	d.pos, d.marker, d.ended = pos, 0, false
	d.number = goal & 7
	d.left = d.Restart
	d.open()
	done := goal * d.Restart
	d.row = done / wide
	if column := done % wide; column > 0 {
		d.mcuRow(&d.waste, wide-column)
		d.row++
	}
}

// finish ends a scan's entropy-coded data. Libjpeg does not miss the few bytes that
// it had read ahead; a sound file has none.
func (d *Decoder) finish() {
	if d.rest() > 0 {
		d.note(Extraneous, d.offset(), -1)
	}
}

// trailer reads what is behind the last scan.
func (d *Decoder) trailer() {
	if d.marker == mEOI && !d.ended {
		return
	}
	if more, err := d.nextScan(); more || err != nil {
		d.note(Extraneous, d.pos, -1)
	} else if d.ended {
		d.note(Ended, len(d.Data), -1)
	}
}

// blank makes n MCUs grey.
func (l *layout) blank(n int) {
	for j := range l.slot[:l.n] {
		b := &l.slot[j]
		for range n {
			clear(b.coef[64*b.at:][:64])
			b.last[b.at] = 0
			b.at += b.step
		}
	}
}

// back moves l back to where its first slot was at at.
func (l *layout) back(at int) {
	if l.slot[0].step == 0 {
		return
	}
	n := (l.slot[0].at - at) / l.slot[0].step
	for j := range l.slot[:l.n] {
		l.slot[j].at -= n * l.slot[j].step
	}
}

// whole decodes all scans of a file that has several.
func (d *Decoder) whole() error {
	x, y := d.Frame.MCUs()
	d.memory.Shape(&d.strip, &d.Frame, blocks.Window{X1: x, Y1: y}, y)
	d.memory.Clear()
	for c := range d.bits {
		d.bits[c], d.bitsBefore[c] = unknown, unknown
	}
	d.budget()
	for {
		d.row = -1
		var err error
		if d.Coding == Progressive {
			err = d.progressive()
		} else {
			err = d.sequentialWhole()
		}
		if err != nil {
			return err
		}
		d.finish()
		more, err := d.nextScan()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if d.scans > maxScans {
			return unsupported(fmt.Sprintf("more than %d scans", maxScans))
		}
	}
	if d.ended && !d.Has(Ended) {
		d.note(Ended, len(d.Data), -1)
	}
	for c := range d.Frame.N {
		if !d.component[c].latched {
			d.note(Missing, len(d.Data), -1)
		}
	}
	if !d.Raw {
		d.smooth()
	}
	d.row = 0
	d.crop()
	return nil
}

// crop makes the strip, which is all of the image, the window of it.
func (d *Decoder) crop() {
	w := d.window
	for c := range d.Frame.N {
		p, f := &d.strip.Plane[c], &d.Frame.Component[c]
		at := w.Y0*f.V*p.Stride + w.X0*f.H
		p.Coef, p.Last = p.Coef[64*at:], p.Last[at:]
	}
	d.strip.Window = w
}

// codedTwice is what libjpeg lets pass: it lays the second scan over the first.
const codedTwice = "two sequential scans code the same component"

// sequentialWhole decodes one of several sequential scans.
func (d *Decoder) sequentialWhole() error {
	for _, c := range d.scan.component[:d.scan.n] {
		if d.component[c].latched {
			return d.malformed(d.pos, codedTwice)
		}
	}
	if err := d.sequential(); err != nil {
		return err
	}
	x, y := d.mcus()
	if err := d.pay(x * y); err != nil {
		return err
	}
	for row := range y {
		d.lay.place(&d.File, &d.strip, 0, row)
		if d.insufficient && d.Restart == 0 {
			break
		}
		d.mcuRow(&d.lay, x)
	}
	return nil
}

// maxScans is the largest number of scans: a file with many small scans would take
// a time out of proportion to its size. Encoders make about ten; libjpeg-turbo's
// own fuzzing stops at 500.
const maxScans = 500

// budget sets how many visits of blocks the scans may make: in every image 64 for
// each block, and beyond that in proportion to the file.
func (d *Decoder) budget() {
	n := int64(0)
	for c := range d.Frame.N {
		n += int64(d.component[c].wide) * int64(d.component[c].high)
	}
	d.work = 64*n + 512*int64(len(d.Data))
}

// pay takes n visits from the budget.
func (d *Decoder) pay(n int) error {
	if d.work -= int64(n); d.work < 0 {
		return &fault.UnsupportedError{Format: format, Msg: "scans that code next to nothing, over and over"}
	}
	return nil
}
