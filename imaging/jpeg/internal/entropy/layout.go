package entropy

import "shardify/imaging/jpeg/internal/blocks"

// A block of an MCU, of which a scan has at most 10.
type slot struct {
	dc, ac  *codeTable
	symbols *symbolTable // of progressive scans
	pred    uint8        // index of the component's predictor
	// The block's place in the strip: that of the MCU that comes next, and by how
	// many blocks that moves from MCU to MCU. last is for progressive scans: the
	// zigzag index of a block's last coefficient that is not zero.
	coef []int16
	last []uint8
	at   int
	step int
}

// maxBlocks is the largest number of blocks of an MCU (T.81, B.2.3).
const maxBlocks = 10

// layout is an MCU of a scan.
type layout struct {
	slot [maxBlocks]slot
	n    int
}

// blocksOf returns how many blocks of component i of the scan an MCU has.
func (f *File) blocksOf(i int) (h, v int) {
	if f.scan.n == 1 {
		return 1, 1
	}
	p := &f.Frame.Component[f.scan.component[i]]
	return p.H, p.V
}

// mcus returns how many MCUs the scan has in a row, and how many rows.
func (f *File) mcus() (x, y int) {
	if f.scan.n == 1 {
		c := &f.component[f.scan.component[0]]
		return c.wide, c.high
	}
	return f.Frame.MCUs()
}

// place points the slots at row y of the scan's MCUs, counted from the first row of
// the strip, and its column x.
func (l *layout) place(f *File, s *blocks.Strip, x, y int) {
	j := 0
	for i := range f.scan.n {
		h, v := f.blocksOf(i)
		p := &s.Plane[f.scan.component[i]]
		for r := range v {
			for c := range h {
				b := &l.slot[j]
				b.coef = p.Coef
				b.at, b.step = (y*v+r)*p.Stride+x*h+c, h
				j++
			}
		}
	}
}

// blank makes n MCUs grey, and moves l behind them.
func (l *layout) blank(n int) {
	for j := range l.slot[:l.n] {
		b := &l.slot[j]
		for range n {
			clear(b.coef[64*b.at:][:64])
			b.at += b.step
		}
	}
}

// forward moves l by n MCUs.
func (l *layout) forward(n int) {
	for j := range l.slot[:l.n] {
		l.slot[j].at += n * l.slot[j].step
	}
}
