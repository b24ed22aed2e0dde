package resize

import "shardify/imaging/tensor"

// Where an image lies on its side, rows that are made become columns of the target. Some
// of them wait for each other, so that what is written lies side by side.
const together = 16

// turn writes output row y as a column of the target.
func (s *sink) turn(f *feed, y int, row []uint8, pitch int) {
	n := s.channels
	f.wait = grow(f.wait, together*n*s.width)
	at := y % together
	for c := range n {
		copy(f.wait[(c*together+at)*s.width:][:s.width], row[c*pitch:])
	}
	if at+1 < together && y+1 < s.height {
		return
	}
	rows, first, step := at+1, y-at, 1
	if s.flip {
		first, step = s.height-1-first, -1
	}
	for c := range n {
		wait := f.wait[c*together*s.width:]
		switch {
		case s.bytes != nil:
			out := s.columns(c, first, step)
			for x := range s.width {
				at := out.at + x*out.row
				for i := range rows {
					s.bytes[at] = wait[i*s.width+x]
					at += out.step
				}
			}
		case s.floats != nil:
			turnTable(s.floats, &s.table[c], s.columns(c, first, step), wait, s.width, rows)
		default:
			turnTable(s.halves, &s.table16[c], s.columns(c, first, step), wait, s.width, rows)
		}
	}
}

// columns is where some columns of a channel lie: the first row's element of the first, how
// far the next column's is, and the next row's.
type columns struct{ at, step, row int }

func (s *sink) columns(c, first, step int) columns {
	width, height := s.height, s.width // the target's
	if s.layout == tensor.NCHW {
		return columns{c*width*height + first, step, width}
	}
	row := s.channels * width
	if s.bytes != nil {
		row = s.stride
	}
	return columns{first*s.channels + c, step * s.channels, row}
}

func turnTable[T any](dst []T, table *[256]T, out columns, wait []uint8, width, rows int) {
	for x := range width {
		at := out.at + x*out.row
		for i := range rows {
			dst[at] = table[wait[i*width+x]]
			at += out.step
		}
	}
}
