package entropy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
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

// MakeSeek decodes a file whose header has been read, to find its seek points: of
// every row of MCUs the beginning, and further ones every so many MCUs, where that
// is not 0. A file with any damage has none, which is an error.
func (d *Decoder) MakeSeek(every int) (*Seek, error) {
	if err := d.Seekable(); err != nil {
		return nil, err
	}
	if err := d.sequential(); err != nil {
		return nil, err
	}
	s := &Seek{every: every, comps: d.Frame.N}
	s.wide, s.high = d.mcus()
	t := &d.main
	t.start(d)
	d.window.X0, d.window.Y0, d.window.X1, d.window.Y1 = 0, s.high, s.wide, s.high
	d.entries = nil
	step := every
	if step == 0 {
		step = s.wide
	}
	s.points = make([]point, 0, s.per()*s.high)
	segment, clean, raw := -1, 0, 0
	for y := range s.high {
		t.row, t.column = y, 0
		for x := 0; x < s.wide; x += step {
			if d.Restart > 0 && t.left == 0 {
				t.restart()
			}
			if t.segment != segment {
				segment, clean, raw = t.segment, 0, t.segment
			}
			t.s.peek() // leaves less than 8 bits in used
			raw += stuffed(d.Data[raw:], t.s.p-clean)
			clean = t.s.p
			p := point{byte: raw, bit: uint8(t.s.used)}
			for c := range s.comps {
				v := t.s.pred[c]
				if v != int32(int16(v)) {
					return nil, d.malformed(raw, "a DC coefficient is out of range")
				}
				p.pred[c] = int16(v)
			}
			s.points = append(s.points, p)
			t.decode(min(x+step, s.wide))
			if d.Count > 0 {
				return nil, d.noPoints()
			}
		}
	}
	t.end()
	d.trailer()
	if d.Count > 0 {
		return nil, d.noPoints()
	}
	return s, nil
}

func (d *Decoder) noPoints() error {
	return fmt.Errorf("jpeg: a damaged file has no seek points: %v", d.First)
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
