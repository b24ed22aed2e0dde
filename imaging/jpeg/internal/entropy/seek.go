package entropy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"shardify/imaging/jpeg/internal/blocks"
)

// Seek has the points at which a file's entropy-coded data can be entered: of every
// row of MCUs its beginning, and every so many MCUs further on.
type Seek struct {
	every      int // MCUs between points of a row; 0 for none but its beginning
	wide, high int // MCUs
	comps      int
	points     []point
}

// point is the state before an MCU.
type point struct {
	byte int // of the file
	bit  uint8
	pred [4]int16
}

// per returns how many points a row has.
func (s *Seek) per() int {
	if s.every == 0 {
		return 1
	}
	return (s.wide + s.every - 1) / s.every
}

// Seekable is why a file has no seek points, nil if it can have.
func (d *Decoder) Seekable() error {
	if err := d.Supported(); err != nil {
		return err
	}
	if d.multi() {
		return unsupported("seek points of a file with several scans")
	}
	return nil
}

// maxPoints bounds a file's seek points, which take 24 bytes each in memory: a hundred
// times as many as a photograph of 100 megapixels has of its rows.
const maxPoints = 1 << 22

// survey is a strand's way through a file whose seek points are wanted.
type survey struct {
	seek *Seek
	step int // MCUs from point to point
	// Of the place up to which bytes were counted: the segment, and how many bytes of
	// it there are before the place without stuffing, and of the file.
	segment, clean, raw int
}

// BeginSeek starts to decode a file whose header has been read to find its seek points,
// which are in s when the file has ended: of every row of MCUs the beginning, and where
// every is not 0, further ones every so many MCUs. There are no strips. A file with any
// damage has no points, which is an error. s may have memory of other ones before.
func (d *Decoder) BeginSeek(s *Seek, every int) error {
	if err := d.Seekable(); err != nil {
		return err
	}
	wide, high := d.mcus()
	*s = Seek{every: every, wide: wide, high: high, comps: d.Frame.N, points: s.points[:0]}
	if s.per() > maxPoints/high {
		return unsupported(fmt.Sprintf("more than %d seek points", maxPoints))
	}
	if err := d.sequential(); err != nil {
		return err
	}
	d.several, d.entries, d.busy = false, nil, false
	d.opened, d.given = 0, 0
	d.window = blocks.Window{X1: wide, Y0: high, Y1: high}
	d.survey = survey{seek: s, step: every, segment: -1}
	if every == 0 {
		d.survey.step = wide
	}
	d.main.start(d)
	return nil
}

// explore notes the points that a strand comes by, and prepares its next part. It
// returns false if the file has ended.
func (d *Decoder) explore(t *strand) (bool, error) {
	v := &d.survey
	for {
		if t.column == t.wide {
			t.row, t.column = t.row+1, 0
		}
		if t.row == v.seek.high {
			t.end()
			d.trailer()
		} else if d.Count == 0 && t.column%v.step == 0 {
			if err := v.note(t); err != nil {
				return false, err
			}
		}
		switch {
		case d.Count > 0:
			return false, fmt.Errorf("jpeg: a damaged file has no seek points: %v", d.First)
		case t.row == v.seek.high:
			d.given = d.window.Y1
			return false, nil
		case t.next(min((t.column/v.step+1)*v.step, t.wide)):
			return true, nil
		}
	}
}

// note notes the point at which a strand is.
func (v *survey) note(t *strand) error {
	if t.d.Restart > 0 && t.left == 0 {
		t.restart()
	}
	if t.segment != v.segment {
		v.segment, v.clean, v.raw = t.segment, 0, t.segment
	}
	t.s.peek() // leaves less than 8 bits in used
	v.raw += stuffed(t.d.Data[v.raw:], t.s.p-v.clean)
	v.clean = t.s.p
	p := point{byte: v.raw, bit: uint8(t.s.used)}
	for c := range v.seek.comps {
		pred := t.s.pred[c]
		if pred != int32(int16(pred)) {
			return t.d.malformed(v.raw, "a DC coefficient is out of range")
		}
		p.pred[c] = int16(pred)
	}
	v.seek.points = append(v.seek.points, p)
	return nil
}

// stuffed returns how many bytes of data make n bytes without stuffing.
func stuffed(data []byte, n int) int {
	at := 0
	for {
		i := bytes.IndexByte(data[at:], 0xff)
		if i < 0 || i >= n {
			return at + n
		}
		n -= i + 1
		at += i + 1
		for at < len(data) && data[at] == 0xff {
			at++
		}
		at++
	}
}

// Fits tells whether the points may be those of d's file: their number is right, and
// they lie in its scan. That they are, only a checksum of the file's bytes can tell.
func (s *Seek) Fits(d *Decoder) bool {
	if d.Seekable() != nil {
		return false
	}
	wide, high := d.mcus()
	return s.wide == wide && s.high == high && s.comps == d.Frame.N &&
		s.points[0].byte == d.pos && s.points[len(s.points)-1].byte <= len(d.Data)
}

// markers returns entries at restart markers, nil if not every row begins with one.
func (d *Decoder) markers() *Seek {
	wide, high := d.mcus()
	if d.Restart == 0 || wide%d.Restart != 0 || d.window.Y1-d.window.Y0 < 2 {
		return nil
	}
	per := wide / d.Restart
	s := &d.found
	*s = Seek{wide: wide, high: high, comps: d.Frame.N, points: s.points[:0]}
	s.points = append(s.points, point{byte: d.pos})
	n := 0
	for pos := d.pos; ; {
		i := bytes.IndexByte(d.Data[pos:], 0xff)
		if i < 0 || pos+i+1 >= len(d.Data) {
			return nil
		}
		pos += i + 2
		switch m := d.Data[pos-1]; {
		case m == 0:
		case m == byte(mRST0+n&7):
			if n++; n%per == 0 {
				s.points = append(s.points, point{byte: pos})
				if len(s.points) > d.window.Y1 || len(s.points) == high {
					return s
				}
			}
		default:
			return nil
		}
	}
}

// enter begins row y of the window from the last entry before its first MCU.
func (a *ahead) enter(d *Decoder, s *Seek, y int) {
	t := &a.strand
	per := s.per()
	i := y * per
	column := 0
	if s.every > 0 {
		i += d.window.X0 / s.every
		column = d.window.X0 / s.every * s.every
	}
	p := &s.points[i]
	t.d = d
	t.lay, t.waste = d.main.lay, d.main.waste
	for j := range t.waste.slot[:t.waste.n] {
		t.waste.slot[j].coef = t.coef[64*j : 64*j+64]
	}
	t.wide, t.row, t.column = s.wide, y, column
	t.insufficient = false
	t.marker, t.ended = 0, false
	end := len(d.Data)
	if d.Restart == 0 {
		// The byte in which the next entry lies is this one's last; it may be a
		// stuffed one.
		next := (y + 1) * per
		if s.every > 0 {
			next = y*per + (d.window.X1+s.every-1)/s.every
		}
		if next < len(s.points) {
			end = min(end, s.points[next].byte+2)
		}
	} else {
		mcu := y*s.wide + column
		t.number, t.left = mcu/d.Restart&7, d.Restart-mcu%d.Restart
	}
	t.segment = p.byte
	var n int
	t.clean, n, t.marker = unstuff(t.clean[:0], d.Data[p.byte:max(end, p.byte)])
	t.pos = p.byte + n
	if t.marker == 0 {
		t.marker, t.ended = mEOI, true
	}
	t.s = t.stream()
	t.s.used = uint(p.bit)
	for c, v := range p.pred {
		t.s.pred[c] = int32(v)
	}
}

// arrived tells whether a row that was decoded to its end ended where the next one
// is entered.
func (t *strand) arrived() bool {
	s := t.d.entries
	next := (t.row + 1) * s.per()
	switch {
	case t.column < t.wide:
		return true
	case t.d.Restart > 0 && t.left == 0:
		return t.rest() <= 0
	case next >= len(s.points):
		return true
	}
	t.s.peek()
	p := &s.points[next]
	for c := range s.comps {
		if t.s.pred[c] != int32(p.pred[c]) {
			return false
		}
	}
	return t.segment+stuffed(t.d.Data[t.segment:], t.s.p) == p.byte && t.s.used == uint(p.bit)
}

// Append appends the points in their stored form: the uvarints every, width and
// height in MCUs, and the number of components; then, for all points but the
// first, which is the beginning of the scan, the uvarint of the distance in bits
// from the one before, and for each component the varint (zigzag) of the change of
// its DC predictor.
func (s *Seek) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(s.every))
	b = binary.AppendUvarint(b, uint64(s.wide))
	b = binary.AppendUvarint(b, uint64(s.high))
	b = append(b, byte(s.comps))
	for i := range s.points[1:] {
		before, p := &s.points[i], &s.points[i+1]
		b = binary.AppendUvarint(b, uint64(8*(p.byte-before.byte)+int(p.bit)-int(before.bit)))
		for c := range s.comps {
			b = binary.AppendVarint(b, int64(p.pred[c])-int64(before.pred[c]))
		}
	}
	return b
}

var errStored = errors.New("jpeg: stored seek points make no sense")

// Parse reads what Append wrote about the file whose header d has read, into the
// memory that s has. Points that cannot be the file's are an error.
func (s *Seek) Parse(b []byte, d *Decoder) error {
	if err := d.Seekable(); err != nil {
		return err
	}
	head := [3]int{}
	for i := range head {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > math.MaxUint16 {
			return errStored
		}
		head[i], b = int(v), b[n:]
	}
	wide, high := d.mcus()
	if head[1] != wide || head[2] != high || len(b) == 0 || int(b[0]) != d.Frame.N {
		return ErrSeek
	}
	b = b[1:]
	*s = Seek{every: head[0], wide: wide, high: high, comps: d.Frame.N, points: s.points[:0]}
	n := s.per() * high
	if len(b) < (n-1)*(1+s.comps) {
		return errStored
	}
	p := point{byte: d.pos}
	bit := 8 * uint64(d.pos)
	s.points = append(s.points, p)
	for range n - 1 {
		v, k := binary.Uvarint(b)
		if k <= 0 || v > 8*uint64(len(d.Data)) {
			return errStored
		}
		b = b[k:]
		if bit += v; bit > 8*uint64(len(d.Data)) {
			return errStored
		}
		p.byte, p.bit = int(bit/8), uint8(bit%8)
		for c := range s.comps {
			v, k := binary.Varint(b)
			if k <= 0 || v < math.MinInt16-math.MaxInt16 || v > math.MaxInt16-math.MinInt16 {
				return errStored
			}
			b = b[k:]
			if v += int64(p.pred[c]); v != int64(int16(v)) {
				return errStored
			}
			p.pred[c] = int16(v)
		}
		s.points = append(s.points, p)
	}
	if len(b) != 0 {
		return errStored
	}
	return nil
}
