// Package entropy is the first half of the JPEG engine: it reads a file's markers
// and turns its Huffman-coded data into blocks of quantised coefficients
// (package blocks).
//
// Call [Decoder.ReadHeader], look at the frame, then [Decoder.Begin] with the
// window of MCUs that is wanted. [Group.Decode] decodes several files
// at once: a Huffman code's length has to be known before the next can be
// looked up, so that one stream leaves most of a processor idle, and four keep it
// busy. Files with entries ([Seek], restart markers) make several streams each.
//
// Coefficients are those of libjpeg-turbo, also for files that are damaged, as long
// as libjpeg only warns of the damage. Sequential scans are decoded strip by strip,
// and of a window nothing below it; files of several scans, among them all
// progressive ones, need memory for the whole image's coefficients.
package entropy

import (
	"errors"
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

	window  blocks.Window
	several bool // the coefficients come in several scans
	serial  int  // of the scan
	main    strand

	// With entries, the rows of MCUs that are being decoded, of which the one of
	// row y is at y%rows. Without, main decodes all.
	entries *Seek
	ring    [rows]ahead
	opened  int // the next row to begin, with entries
	given   int // the next row to give out
	busy    bool
	found   Seek // markers' memory
	survey  survey

	// Of several scans: visits of blocks that are still allowed.
	work int64
	// Of progressive scans: how many low bits of a coefficient are not known, -1
	// for all, after the last scan and before; the row of MCUs up to which the last
	// scan went; and memory for smoothing.
	bits, bitsBefore [blocks.MaxComponents][64]int8
	good             int
	dc               []int16
	last             [blocks.MaxComponents][]uint8 // see slot
}

// Begin starts to decode the coefficients of a window, which must not be empty and
// must lie in the image. With seek, which may be nil, it enters the data at the
// window's rows; see [Seek.Fits]. It does so at restart markers too, unless seek is
// [Plain].
func (d *Decoder) Begin(w blocks.Window, seek *Seek) error {
	if err := d.Supported(); err != nil {
		return err
	}
	d.window, d.several, d.entries, d.survey = w, d.multi(), nil, survey{}
	d.opened, d.given, d.busy = w.Y0, w.Y0, false
	if d.several {
		return d.whole(w)
	}
	if err := d.sequential(); err != nil {
		return err
	}
	if seek == nil {
		seek = d.markers()
	}
	if seek != nil && seek != Plain {
		d.entries = seek
		return nil
	}
	d.memory.Shape(&d.strip, &d.Frame, w, 1)
	d.main.start(d)
	d.main.skip(w.Y0)
	return nil
}

// BeginPart is Begin for a file of which only the part g is there, with its points, which
// it changes: they are of use for this part of the file only, and for this window. Where
// the part has not all that the window needs, the error is [ErrGap].
func (d *Decoder) BeginPart(w blocks.Window, seek *Seek, g Gap) error {
	d.window = w
	if err := seek.close(g, d); err != nil {
		return err
	}
	return d.Begin(w, seek)
}

// Plain is no seek points, and no use of restart markers as such.
var Plain = new(Seek)

// ErrSeek says that entries do not belong to the file, or that it is damaged: read
// its header again, and decode it with [Plain].
var ErrSeek = errors.New("jpeg: the seek points do not fit the file")

// rows is how many rows of MCUs are decoded ahead of the one that is given out,
// where there are entries: somewhat more than lanes, so that none has to wait for
// the slowest.
const rows = lanes + 2

// ahead is a row that is decoded from an entry.
type ahead struct {
	strand
	memory blocks.Memory
	strip  blocks.Strip
	ready  bool
}

// take returns a strand that has a part to decode, nil if there is none now.
func (d *Decoder) take() *strand {
	if d.entries == nil {
		if d.busy || d.several || d.given >= d.window.Y1 {
			return nil
		}
		d.busy = true
		if d.survey.seek == nil {
			d.main.place(&d.strip, 0)
		}
		return &d.main
	}
	if d.opened == d.window.Y1 || d.opened-d.given == rows {
		return nil
	}
	a := &d.ring[d.opened%rows]
	a.ready = false
	a.memory.Shape(&a.strip, &d.Frame, blocks.Window{X0: d.window.X0, X1: d.window.X1, Y0: d.opened, Y1: d.opened + 1}, 1)
	a.enter(d, d.entries, d.opened)
	a.place(&a.strip, 0)
	d.opened++
	return &a.strand
}

// more prepares the next part of a strand. It returns false if there is none; what
// the strand has finished then goes to g's source.
func (d *Decoder) more(t *strand, g *Group, file int) (bool, error) {
	if d.survey.seek != nil {
		return d.explore(t)
	}
	for {
		if t.next(d.stop(t.row)) {
			return true, nil
		}
		if d.entries != nil {
			return false, d.deliver(t, g, file)
		}
		row := t.row
		t.row, t.column = row+1, 0
		if row < d.window.Y0 {
			continue
		}
		_, high := d.mcus()
		if t.row == high {
			d.finish(t)
		}
		d.strip.Window = blocks.Window{X0: d.window.X0, X1: d.window.X1, Y0: row, Y1: row + 1}
		if err := g.source.Strip(file, &d.strip); err != nil {
			return false, err
		}
		if d.given = row + 1; d.given == d.window.Y1 {
			return false, nil
		}
		t.place(&d.strip, 0)
	}
}

// stop returns up to which MCU a row is decoded.
func (d *Decoder) stop(row int) int {
	wide, high := d.mcus()
	if d.entries != nil || row+1 == d.window.Y1 && row+1 < high {
		return d.window.X1
	}
	return wide
}

// deliver gives the rows that are ready to g's source, in order.
func (d *Decoder) deliver(t *strand, g *Group, file int) error {
	_, high := d.mcus()
	if t.row+1 == high && t.column == t.wide {
		d.finish(t)
	}
	if d.Count > 0 || !t.arrived() {
		return ErrSeek
	}
	d.ring[t.row%rows].ready = true
	for d.given < d.opened && d.ring[d.given%rows].ready {
		a := &d.ring[d.given%rows]
		a.ready = false
		if err := g.source.Strip(file, &a.strip); err != nil {
			return err
		}
		d.given++
	}
	return nil
}

// sequential prepares a sequential scan.
func (d *Decoder) sequential() error {
	if err := d.latch(); err != nil {
		return err
	}
	t := &d.main
	d.serial++
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
			ac:   d.tables.ac.get(ac, buildAC),
			pred: uint8(i),
		}
		if b.dc == nil || b.ac == nil {
			return d.malformed(d.pos, "a Huffman table makes no sense")
		}
		for range h * v {
			t.lay.slot[n] = b
			t.waste.slot[n] = b
			t.waste.slot[n].coef = t.coef[64*n : 64*n+64]
			n++
		}
	}
	t.lay.n, t.waste.n = n, n
	t.wide, _ = d.mcus()
	return nil
}

// table returns the definition of a Huffman table. Sequential files may leave the
// standard's own away (Motion JPEG does).
func (d *Decoder) table(class int, slot uint8, standard bool) ([]byte, error) {
	if slot <= 3 {
		if def := d.huffman[class][slot]; def != nil {
			return def, nil
		}
		if slot < 2 && standard {
			return Standard[class][slot], nil
		}
	}
	return nil, d.malformed(d.pos, fmt.Sprintf("Huffman table %d is missing", slot))
}

// finish ends the only scan, and reads what is behind it.
func (d *Decoder) finish(t *strand) {
	// Libjpeg reads 8 bytes ahead in the scan.
	ahead := t.rest() < 8
	t.end()
	if d.marker == mEOI && !d.ended {
		return
	}
	k := Endless
	if d.ended && ahead {
		k = Ended
	}
	more, err := d.nextScan()
	switch {
	case more, err != nil, d.Inside && !d.skipped:
		d.note(Behind, d.pos, -1)
	case d.ended:
		d.note(k, len(d.Data), -1)
	}
}

// whole decodes all scans of a file that has several.
func (d *Decoder) whole(w blocks.Window) error {
	x, y := d.Frame.MCUs()
	d.memory.Shape(&d.strip, &d.Frame, blocks.Window{X1: x, Y1: y}, y)
	d.memory.Clear()
	for c := range d.Frame.N {
		n := len(d.strip.Plane[c].Coef) / 64
		if cap(d.last[c]) < n {
			d.last[c] = make([]uint8, n)
		}
		d.last[c] = d.last[c][:n]
		clear(d.last[c])
	}
	for c := range d.bits {
		d.bits[c], d.bitsBefore[c] = unknown, unknown
	}
	d.budget()
	for {
		var err error
		if d.Coding == Progressive {
			err = d.progressive()
		} else {
			err = d.sequentialWhole()
		}
		if err != nil {
			return err
		}
		d.main.end()
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
		d.note(Ended, len(d.Data), 0)
	}
	for c := range d.Frame.N {
		if !d.component[c].latched {
			d.note(Missing, len(d.Data), 0)
		}
	}
	if !d.Raw {
		d.smooth()
	}
	d.window = w
	d.strip.Crop(&d.Frame, w)
	return nil
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
	t := &d.main
	t.start(d)
	d.window = blocks.Window{X1: x, Y1: y}
	for t.row < y && (!t.insufficient || d.Restart > 0) {
		t.place(&d.strip, t.row)
		t.decode(x)
		t.row, t.column = t.row+1, 0
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
