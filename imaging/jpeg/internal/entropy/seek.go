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
	tall       int // rows of 8 pixels that an MCU has
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
	*s = Seek{every: every, wide: wide, high: high, tall: d.Frame.MaxV, comps: d.Frame.N, points: s.points[:0]}
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
			d.finish(t)
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
	*s = Seek{wide: wide, high: high, tall: d.Frame.MaxV, comps: d.Frame.N, points: s.points[:0]}
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
	column := 0
	if s.every > 0 {
		column = d.window.X0 / s.every * s.every
	}
	p := &s.points[s.entry(d, y)]
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
		if next := s.following(d, y); next < len(s.points) {
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

// Append appends the points in their stored form: the uvarints every, width and height
// in MCUs, where the scan begins in the file, and the byte of how many rows of 8 pixels an
// MCU has, and that of the number of components; then, for all points but the
// first, which is the beginning of the scan, the uvarint of the distance in bits
// from the one before, and for each component the varint (zigzag) of the change of
// its DC predictor.
func (s *Seek) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(s.every))
	b = binary.AppendUvarint(b, uint64(s.wide))
	b = binary.AppendUvarint(b, uint64(s.high))
	b = binary.AppendUvarint(b, uint64(s.points[0].byte))
	b = append(b, byte(s.tall), byte(s.comps))
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

// stored is the head of the stored form.
type stored struct{ every, wide, high, start, tall, comps int }

// parseStored reads the head of the stored form, and returns what is behind it.
func parseStored(b []byte) (h stored, rest []byte, err error) {
	for i, to := range []*int{&h.every, &h.wide, &h.high, &h.start} {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > math.MaxInt32 || i < 3 && v > math.MaxUint16 {
			return h, nil, errStored
		}
		*to, b = int(v), b[n:]
	}
	if len(b) < 2 {
		return h, nil, errStored
	}
	h.tall, h.comps = int(b[0]), int(b[1])
	if h.wide == 0 || h.high == 0 || h.tall < 1 || h.tall > 4 || h.comps < 1 || h.comps > blocks.MaxComponents {
		return h, nil, errStored
	}
	return h, b[2:], nil
}

// per returns how many points a row has.
func (h *stored) per() int {
	s := Seek{every: h.every, wide: h.wide}
	return s.per()
}

// Parse reads what Append wrote about the file whose header d has read, which has size
// bytes in all, into the memory that s has. Points that cannot be the file's are an error.
func (s *Seek) Parse(b []byte, d *Decoder, size int) error {
	if err := d.Seekable(); err != nil {
		return err
	}
	h, b, err := parseStored(b)
	if err != nil {
		return err
	}
	wide, high := d.mcus()
	if h.wide != wide || h.high != high || h.comps != d.Frame.N || h.start != d.pos || h.tall != d.Frame.MaxV {
		return ErrSeek
	}
	*s = Seek{every: h.every, wide: wide, high: high, tall: h.tall, comps: h.comps, points: s.points[:0]}
	n := s.per() * high
	if len(b) < (n-1)*(1+s.comps) {
		return errStored
	}
	if cap(s.points) < n {
		s.points = make([]point, 0, n)
	}
	s.points = s.points[:n]
	p := point{byte: d.pos}
	bit, most := 8*uint64(d.pos), 8*uint64(size)
	s.points[0] = p
	for i := 1; i < n; i++ {
		for c := -1; c < s.comps; c++ {
			if len(b) == 0 {
				return errStored
			}
			v := uint64(b[0])
			switch { // most take one byte or two
			case v < 0x80:
				b = b[1:]
			case len(b) > 1 && b[1] < 0x80:
				v = v&0x7f | uint64(b[1])<<7
				b = b[2:]
			default:
				var k int
				if v, k = binary.Uvarint(b); k <= 0 {
					return errStored
				}
				b = b[k:]
			}
			if c < 0 {
				if bit += v; v > most || bit > most {
					return errStored
				}
				p.byte, p.bit = int(bit/8), uint8(bit%8)
				continue
			}
			pred := int64(v>>1) ^ -int64(v&1) + int64(p.pred[c&3])
			if v > 2*math.MaxUint16 || pred != int64(int16(pred)) {
				return errStored
			}
			p.pred[c&3] = int16(pred)
		}
		s.points[i] = p
	}
	if len(b) != 0 {
		return errStored
	}
	return nil
}

// Extent tells from points in their stored form which bytes of a file of size bytes are
// needed to decode its rows of pixels [y0, y1), or somewhat more: those before head, and
// those from from to to.
func Extent(b []byte, size, y0, y1 int) (head, from, to int, err error) {
	h, b, err := parseStored(b)
	if err != nil {
		return 0, 0, 0, err
	}
	// Upsampling looks at the row of samples before and behind.
	first, last := max(0, y0-h.tall)/(8*h.tall), (y1+h.tall-1)/(8*h.tall)+1
	if y0 < 0 || y1 <= y0 || first >= h.high {
		return 0, 0, 0, fmt.Errorf("jpeg: rows %d to %d are not of an image of %d", y0, y1, 8*h.tall*h.high)
	}
	per := h.per()
	bit := 8 * uint64(h.start)
	from, to = h.start, size
	for i := 1; i <= last*per && i < h.high*per; i++ {
		v, k := binary.Uvarint(b)
		if bit += v; k <= 0 || v > 8*uint64(size) || bit > 8*uint64(size) {
			return 0, 0, 0, errStored
		}
		b = b[k:]
		for range h.comps {
			n := 0
			for n < len(b) && b[n] >= 0x80 {
				n++
			}
			if n == len(b) {
				return 0, 0, 0, errStored
			}
			b = b[n+1:]
		}
		switch i {
		case first * per:
			from = int(bit / 8)
		case last * per:
			// The byte in which the next row begins, which may be a stuffed one.
			to = min(int(bit/8)+2, size)
		}
	}
	if h.start > size {
		return 0, 0, 0, errStored
	}
	return h.start, from, to, nil
}

// Gap says that of a file of Size bytes only a part is there: its first Head bytes, and
// behind them those from From on, as many as there are. The zero value is a whole file.
type Gap struct{ Size, Head, From int }

// ErrGap says that what is there of a file does not do.
var ErrGap = errors.New("jpeg: a part of the file that is needed is not there")

// close makes of the points of a file, which d has the part g of, those of that part. It
// is ErrGap where that has not all that is needed to decode d's window.
func (s *Seek) close(g Gap, d *Decoder) error {
	if g.Head < d.pos || g.Head > len(d.Data) || g.From < g.Head || len(d.Data)-g.Head > g.Size-g.From {
		return ErrGap
	}
	end := g.From + len(d.Data) - g.Head
	whole := func(from, to int) bool {
		return to <= g.Head || to <= end && (from >= g.From || g.From == g.Head)
	}
	for y := d.window.Y0; y < d.window.Y1; y++ {
		i, next := s.entry(d, y), s.following(d, y)
		to := g.Size
		if next < len(s.points) {
			to = s.points[next].byte + 2
		}
		if !whole(s.points[i].byte, min(to, g.Size)) {
			return ErrGap
		}
	}
	for i := range s.points {
		if p := &s.points[i]; p.byte >= g.From {
			p.byte -= g.From - g.Head
		}
	}
	return nil
}

// entry is the last point before the first MCU of the window in row y.
func (s *Seek) entry(d *Decoder, y int) int {
	i := y * s.per()
	if s.every > 0 {
		i += d.window.X0 / s.every
	}
	return i
}

// following is the first point behind the window in row y.
func (s *Seek) following(d *Decoder, y int) int {
	if s.every > 0 {
		return y*s.per() + (d.window.X1+s.every-1)/s.every
	}
	return (y + 1) * s.per()
}
