// Package jpegstat measures what matters of JPEG files for the speed of a loader:
// sizes, sampling, quality, and how many coefficients there are to decode.
//
// Call [Parse] for a file and [Summarise] for a set. Parse decodes the Huffman
// symbols of baseline files and makes no pixels. It reads hostile input without
// harm: it allocates nothing that depends on the announced dimensions.
package jpegstat

import (
	"encoding/binary"
	"errors"
	"fmt"

	"shardify/tools/gendata/jpegenc"
)

// File is what one file is like.
type File struct {
	Bytes         int
	Width, Height int
	// Kind is the subsampling ("4:4:4", "4:2:0", "4:2:2"), "grey", "4 components",
	// or the sampling factors of anything rarer.
	Kind        string
	Progressive bool
	// Quality is the libjpeg quality whose luma table is nearest to the file's, and
	// Exact tells whether it is that table.
	Quality int
	Exact   bool
	// OwnTables tells that the Huffman tables are not those of T.81 annex K.
	OwnTables bool
	// Headers is the bytes of the segments APPn and COM.
	Headers int
	// Luma and Chroma are of the first and of the other components, zero for
	// progressive files.
	Luma, Chroma Coefficients
}

// Coefficients counts what a component's blocks consist of.
type Coefficients struct {
	Blocks int
	// Nonzero counts AC coefficients, by the bits of their magnitude.
	Nonzero [16]int
	// Runs counts the zeros before each of them.
	Runs [64]int
	// Last counts blocks by the zigzag position of their last coefficient that is
	// not zero; 0 means that there is only DC.
	Last [64]int
}

// AC is the number of nonzero AC coefficients.
func (c *Coefficients) AC() int {
	n := 0
	for _, k := range c.Nonzero {
		n += k
	}
	return n
}

func (c *Coefficients) add(o *Coefficients) {
	c.Blocks += o.Blocks
	for i := range c.Nonzero {
		c.Nonzero[i] += o.Nonzero[i]
	}
	for i := range c.Runs {
		c.Runs[i] += o.Runs[i]
		c.Last[i] += o.Last[i]
	}
}

// ErrFormat is wrapped by the errors of files that are no JPEG, or a broken one;
// ErrUnsupported by those of kinds that Parse does not know.
var (
	ErrFormat      = errors.New("not a whole JPEG file")
	ErrUnsupported = errors.New("unsupported kind of JPEG")
)

func broken(offset int, format string, args ...any) error {
	return fmt.Errorf("%w: at byte %d: %s", ErrFormat, offset, fmt.Sprintf(format, args...))
}

// huffman maps the next 16 bits to length<<8 | symbol, 0 where there is no code.
type huffman [1 << 16]uint16

type component struct {
	id, h, v, quant byte
	dc, ac          byte
}

type parser struct {
	data     []byte
	file     File
	comps    []component
	quant    [4]*[64]uint16
	tables   [8]*huffman // DC 0–3, AC 0–3
	interval int
	frame    byte // the marker of the frame header
}

// Parse reads a file. It returns what it learned also when there is an error.
func Parse(data []byte) (File, error) {
	p := &parser{data: data}
	p.file.Bytes = len(data)
	return p.file, p.parse()
}

func (p *parser) parse() error {
	if len(p.data) < 4 || p.data[0] != 0xff || p.data[1] != 0xd8 {
		return broken(0, "no SOI marker")
	}
	at := 2
	for {
		if at+4 > len(p.data) {
			return broken(at, "the file ends between segments")
		}
		if p.data[at] != 0xff {
			return broken(at, "no marker where a segment should begin")
		}
		marker := p.data[at+1]
		if marker == 0xff { // fill
			at++
			continue
		}
		size := int(binary.BigEndian.Uint16(p.data[at+2:]))
		if size < 2 || at+2+size > len(p.data) {
			return broken(at, "segment %#x of %d bytes does not fit", marker, size)
		}
		body := p.data[at+4 : at+2+size]
		var err error
		switch {
		case marker == 0xda:
			return p.scan(body, at, at+2+size)
		case marker == 0xdb:
			err = p.dqt(body, at)
		case marker == 0xc4:
			err = p.dht(body, at)
		case marker == 0xdd:
			if len(body) != 2 {
				return broken(at, "DRI of %d bytes", len(body))
			}
			p.interval = int(binary.BigEndian.Uint16(body))
		case marker >= 0xc0 && marker <= 0xcf && marker != 0xc8 && marker != 0xcc:
			err = p.sof(marker, body, at)
		case marker&0xf0 == 0xe0 || marker == 0xfe:
			p.file.Headers += 2 + size
		}
		if err != nil {
			return err
		}
		at += 2 + size
	}
}

func (p *parser) dqt(b []byte, at int) error {
	for len(b) > 0 {
		wide, id := int(b[0]>>4), b[0]&15
		if wide > 1 || id > 3 || len(b) < 1+64*(wide+1) {
			return broken(at, "bad DQT")
		}
		t := new([64]uint16)
		for i := range t {
			if wide == 1 {
				t[i] = binary.BigEndian.Uint16(b[1+2*i:])
			} else {
				t[i] = uint16(b[1+i])
			}
		}
		p.quant[id] = t
		b = b[1+64*(wide+1):]
	}
	return nil
}

func (p *parser) dht(b []byte, at int) error {
	for len(b) > 0 {
		if len(b) < 17 || b[0]>>4 > 1 || b[0]&15 > 3 {
			return broken(at, "bad DHT")
		}
		class, id := b[0]>>4, b[0]&15
		total := 0
		for _, n := range b[1:17] {
			total += int(n)
		}
		if total > 256 || len(b) < 17+total {
			return broken(at, "DHT of %d codes", total)
		}
		if !jpegenc.IsStandardTable(int(class), int(id), b[1:17], b[17:17+total]) {
			p.file.OwnTables = true
		}
		t := new(huffman)
		code, k := 0, 17
		for l := 1; l <= 16; l++ {
			for range b[l] {
				first := code << (16 - l)
				if first+1<<(16-l) > len(t) {
					return broken(at, "DHT has more codes than bits allow")
				}
				for i := range 1 << (16 - l) {
					t[first+i] = uint16(l)<<8 | uint16(b[k])
				}
				code++
				k++
			}
			code <<= 1
		}
		p.tables[class<<2|id] = t
		b = b[17+total:]
	}
	return nil
}

func (p *parser) sof(marker byte, b []byte, at int) error {
	if p.frame != 0 {
		return broken(at, "a second frame header")
	}
	if len(b) < 6 || len(b) != 6+3*int(b[5]) {
		return broken(at, "bad frame header")
	}
	p.frame = marker
	p.file.Height, p.file.Width = int(binary.BigEndian.Uint16(b[1:])), int(binary.BigEndian.Uint16(b[3:]))
	if p.file.Height == 0 || p.file.Width == 0 {
		return broken(at, "%d×%d pixels", p.file.Width, p.file.Height)
	}
	p.file.Progressive = marker == 0xc2 || marker == 0xca
	for i := range int(b[5]) {
		c := b[6+3*i:]
		comp := component{id: c[0], h: c[1] >> 4, v: c[1] & 15, quant: c[2] & 3}
		if comp.h < 1 || comp.h > 4 || comp.v < 1 || comp.v > 4 {
			return broken(at, "sampling factors %d×%d", comp.h, comp.v)
		}
		p.comps = append(p.comps, comp)
	}
	p.file.Kind = kind(p.comps)
	return nil
}

func kind(comps []component) string {
	switch len(comps) {
	case 1:
		return "grey"
	case 3:
		a, b, c := comps[0], comps[1], comps[2]
		if b.h*b.v*c.h*c.v == 1 {
			switch [2]byte{a.h, a.v} {
			case [2]byte{1, 1}:
				return "4:4:4"
			case [2]byte{2, 1}:
				return "4:2:2"
			case [2]byte{2, 2}:
				return "4:2:0"
			}
		}
		return fmt.Sprintf("%d×%d,%d×%d,%d×%d", a.h, a.v, b.h, b.v, c.h, c.v)
	default:
		return fmt.Sprintf("%d components", len(comps))
	}
}

// scan reads the first scan: its header in b, from byte at on, and its data, from
// byte begin on.
func (p *parser) scan(b []byte, at, begin int) error {
	if p.frame == 0 || len(p.comps) == 0 {
		return broken(at, "a scan without a frame header")
	}
	if q := p.quant[p.comps[0].quant]; q != nil {
		p.file.Quality, p.file.Exact = quality(q)
	}
	if p.file.Progressive {
		return nil
	}
	if p.frame > 0xc1 {
		return fmt.Errorf("%w: frame marker %#x", ErrUnsupported, p.frame)
	}
	if len(b) != 4+2*len(p.comps) || int(b[0]) != len(p.comps) {
		return fmt.Errorf("%w: not all components in one scan", ErrUnsupported)
	}
	hmax, vmax := 1, 1
	for i := range p.comps {
		c := &p.comps[i]
		if b[1+2*i] != c.id {
			return broken(at, "scan component %d is not in the frame", b[1+2*i])
		}
		c.dc, c.ac = b[2+2*i]>>4&3, b[2+2*i]&3
		if p.tables[c.dc] == nil || p.tables[4|c.ac] == nil {
			return broken(at, "a Huffman table is missing")
		}
		hmax, vmax = max(hmax, int(c.h)), max(vmax, int(c.v))
	}
	if len(p.comps) == 1 { // not interleaved: an MCU is a block
		p.comps[0].h, p.comps[0].v, hmax, vmax = 1, 1, 1, 1
	}
	across := (p.file.Width + 8*hmax - 1) / (8 * hmax)
	down := (p.file.Height + 8*vmax - 1) / (8 * vmax)

	r := reader{data: p.data, at: begin}
	left := p.interval
	for range across * down {
		if p.interval > 0 {
			if left == 0 {
				if err := r.restart(); err != nil {
					return err
				}
				left = p.interval
			}
			left--
		}
		for i := range p.comps {
			c := &p.comps[i]
			counts := &p.file.Luma
			if i > 0 {
				counts = &p.file.Chroma
			}
			for range c.h * c.v {
				if err := r.block(p.tables[c.dc], p.tables[4|c.ac], counts); err != nil {
					return err
				}
			}
		}
	}
	if r.n < r.missing {
		return broken(r.at, "the entropy-coded data is cut off")
	}
	return nil
}

// reader reads bits of an entropy-coded segment.
type reader struct {
	data []byte
	at   int
	acc  uint64 // the low n bits are unread
	n    int
	// missing counts the zero bits that were made up at the end of the segment.
	missing int
}

func (r *reader) fill() {
	for r.n <= 48 {
		b := byte(0)
		switch {
		case r.at >= len(r.data) || r.data[r.at] == 0xff && (r.at+1 >= len(r.data) || r.data[r.at+1] != 0):
			r.missing += 8 // a marker, or the end
		case r.data[r.at] == 0xff:
			b = 0xff
			r.at += 2
		default:
			b = r.data[r.at]
			r.at++
		}
		r.acc = r.acc<<8 | uint64(b)
		r.n += 8
	}
}

func (r *reader) symbol(t *huffman) (int, error) {
	if r.n < 32 {
		r.fill()
	}
	e := t[r.acc>>(r.n-16)&0xffff]
	r.n -= int(e >> 8)
	if e == 0 || r.n < r.missing {
		return 0, broken(r.at, "the entropy-coded data is damaged or cut off")
	}
	return int(e & 0xff), nil
}

// skip passes over up to 15 bits.
func (r *reader) skip(n int) {
	r.n -= n
}

func (r *reader) restart() error {
	r.acc, r.n, r.missing = 0, 0, 0
	for r.at < len(r.data) && r.data[r.at] == 0xff && r.at+1 < len(r.data) && r.data[r.at+1] == 0xff {
		r.at++ // fill
	}
	if r.at+1 >= len(r.data) || r.data[r.at] != 0xff || r.data[r.at+1]&0xf8 != 0xd0 {
		return broken(r.at, "no restart marker where one is due")
	}
	r.at += 2
	return nil
}

func (r *reader) block(dc, ac *huffman, counts *Coefficients) error {
	n, err := r.symbol(dc)
	if err != nil {
		return err
	}
	if n > 11 {
		return broken(r.at, "a DC difference of %d bits", n)
	}
	r.skip(n)
	last, run := 0, 0
	for k := 1; k < 64; k++ {
		s, err := r.symbol(ac)
		if err != nil {
			return err
		}
		n := s & 15
		if n == 0 {
			if s>>4 != 15 {
				break
			}
			run += 16
			k += 15
			continue
		}
		run += s >> 4
		if k += s >> 4; k > 63 {
			return broken(r.at, "a block has more than 64 coefficients")
		}
		r.skip(n)
		counts.Nonzero[n]++
		counts.Runs[run&63]++
		last, run = k, 0
	}
	counts.Blocks++
	counts.Last[last]++
	return nil
}

// quality finds libjpeg's quality for a luma table in zigzag order.
func quality(t *[64]uint16) (q int, exact bool) {
	best := 1 << 30
	for i := 1; i <= 100; i++ {
		luma, _ := jpegenc.Tables(i)
		sum := 0
		for k, v := range luma {
			d := int(v) - int(t[k])
			sum += max(d, -d)
		}
		if sum < best {
			best, q = sum, i
		}
	}
	return q, best == 0
}
