package encode

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"

	"shardify/imaging/jpeg/internal/blocks"
	"shardify/imaging/jpeg/internal/entropy"
	"shardify/internal/simd"
)

// Writer writes blocks of coefficients as a file with one interleaved scan.
type Writer struct {
	Frame Frame
	Plane [blocks.MaxComponents]Plane
	// Layout is that of the blocks in the planes.
	Layout *Layout
	Level  simd.Level

	def   [2][2][]byte // DC and AC, by number
	own   [2]codes
	codes *[2]codes
	freq  [2][2]frequencies
	tally [2]tally

	pred [blocks.MaxComponents]int32
	acc  uint64 // its low n bits are still to be written
	n    uint
	raw  []byte // without stuffing,
	at   int    // so many
	out  []byte

	context context // of the assembly
}

// maxMCU is how many bytes an MCU takes at most: 10 blocks of a difference of 27 bits
// and 63 coefficients of 26, and what is written at a time.
const maxMCU = 10*(27+63*26)/8 + 8

// rawSize is how many bytes are written before they are stuffed and brought to their
// place.
const rawSize = 16 << 10

// Begin begins a file behind what dst holds.
func (w *Writer) Begin(dst []byte) {
	w.out = dst
	w.out = append(w.out, 0xff, mSOI)
	w.raw = grow(w.raw, rawSize)
	w.acc, w.n, w.at = 0, 0, 0
	w.pred = [blocks.MaxComponents]int32{}
}

// Standard takes the standard's own Huffman tables.
func (w *Writer) Standard() {
	w.codes = standard()
	for i := range 2 {
		w.def[0][i] = append(w.def[0][i][:0], entropy.Standard[0][i]...)
		w.def[1][i] = append(w.def[1][i][:0], entropy.Standard[1][i]...)
	}
}

// RangeError is a coefficient that a baseline file cannot hold.
type RangeError struct {
	Component, Column, Row int // of the block
	DC                     bool
	Value                  int
}

func (e *RangeError) Error() string {
	what := "coefficient"
	if e.DC {
		what = "difference of DC coefficients"
	}
	return fmt.Sprintf("a %s of %d in component %d, block column %d, row %d: too large for 8-bit samples", what, e.Value, e.Component, e.Column, e.Row)
}

// Largest sizes, in bits, of values of 8-bit samples (T.81, F.1.2).
const (
	maxDC = 11
	maxAC = 10
)

// tally counts symbols as codes has them: small those of values that are looked up
// together with their codes.
type tally struct {
	dc    [32]uint32
	ac    [272]uint32
	small [16 * 2 * near]uint32
}

// fold adds what was tallied to the frequencies.
func (w *Writer) fold() {
	for i := range w.tally {
		t, dc, ac := &w.tally[i], &w.freq[0][i], &w.freq[1][i]
		for size, n := range t.dc {
			dc[size] += int64(n)
		}
		for symbol, n := range t.ac[:len(ac)] {
			ac[symbol] += int64(n)
		}
		for j, n := range t.small {
			v := j%(2*near) - near
			ac[j/(2*near)<<4|bits.Len32(uint32(max(v, -v)))] += int64(n)
		}
		*t = tally{}
	}
}

// Optimize makes Huffman tables for what is in rows rows of MCUs, all there are. An error
// is a *RangeError.
func (w *Writer) Optimize(rows int) error {
	w.freq = [2][2]frequencies{}
	if err := w.count(rows); err != nil {
		return err
	}
	tables := uint8(0)
	for _, f := range w.Frame.Component[:w.Frame.N] {
		tables = max(tables, f.Table)
	}
	for i := range tables + 1 {
		for class := range 2 {
			w.def[class][i] = optimal(w.def[class][i], &w.freq[class][i])
		}
		w.own[i].set(w.def[0][i], w.def[1][i])
	}
	w.codes = &w.own
	return nil
}

// countGeneric counts the symbols of rows rows of MCUs.
func (w *Writer) countGeneric(rows int) error {
	x, _ := w.Frame.mcus()
	for c := range w.Frame.N {
		p, f := &w.Plane[c], &w.Frame.Component[c]
		dc, ac := &w.freq[0][f.Table], &w.freq[1][f.Table]
		pred := int32(0)
		for row := 0; row < rows*f.V; row += f.V {
			for column := 0; column < x*f.H; column += f.H {
				for i := range f.V * f.H {
					at := (row+i/f.H)*p.Stride + column + i%f.H
					b := (*[64]int16)(p.Coef[64*at:])
					diff := int32(b[w.Layout.order[0]&63]) - pred
					pred += diff
					size := bits.Len32(uint32(max(diff, -diff)))
					if size > maxDC {
						return &RangeError{c, column + i%f.H, row + i/f.H, true, int(diff)}
					}
					dc[size]++
					if k, ok := countAC(ac, b, p.Mask[at], &w.Layout.order); !ok {
						return &RangeError{c, column + i%f.H, row + i/f.H, false, int(b[w.Layout.order[k]&63])}
					}
				}
			}
		}
	}
	return nil
}

// countAC counts the symbols of a block's AC coefficients. It returns false with the
// zigzag index of one that is too large.
func countAC(count *frequencies, b *[64]int16, mask uint64, order *[64]uint8) (int, bool) {
	last := 0
	for mask &^= 1; mask != 0; mask &= mask - 1 {
		k := bits.TrailingZeros64(mask)
		v := int32(b[order[k&63]&63])
		size := bits.Len32(uint32(max(v, -v)))
		if size > maxAC {
			return k, false
		}
		run := k - last - 1
		last = k
		for ; run > 15; run -= 16 {
			count[0xf0]++
		}
		count[(run<<4|size)&255]++
	}
	if last != 63 {
		count[0]++
	}
	return 0, true
}

// Rows writes the first rows rows of MCUs that the planes hold.
func (w *Writer) Rows(rows int) {
	x, _ := w.Frame.mcus()
	for y := range rows {
		for from := 0; from < x; {
			if w.at > len(w.raw)-maxMCU {
				w.drain()
			}
			from += w.row(y, from, x)
		}
	}
}

// rowGeneric writes MCUs [from, to) of row y, as far as there is room in raw for sure,
// and returns how many.
func (w *Writer) rowGeneric(y, from, to int) int {
	acc, n, at, raw, order := w.acc, w.n, w.at, w.raw, &w.Layout.order
	x := from
	for ; x < to && at <= len(raw)-maxMCU; x++ {
		for c := range w.Frame.N {
			p, f := &w.Plane[c], &w.Frame.Component[c]
			t := &w.codes[f.Table]
			for i := range f.V * f.H {
				block := (y*f.V+i/f.H)*p.Stride + x*f.H + i%f.H
				b := (*[64]int16)(p.Coef[64*block:])
				dc := int32(b[order[0]&63])
				diff := dc - w.pred[c]
				w.pred[c] = dc
				size := bits.Len32(uint32(max(diff, -diff)))
				e := t.dc[size&15]
				acc, n, at = put(acc, n, raw, at, e>>lengthBits<<size|value(diff, size), uint(e&63)+uint(size))

				last := 0
				for mask := p.Mask[block] &^ 1; mask != 0; mask &= mask - 1 {
					k := bits.TrailingZeros64(mask)
					v := int32(b[order[k&63]&63])
					run := k - last - 1
					last = k
					for ; run > 15; run -= 16 {
						acc, n, at = put(acc, n, raw, at, t.ac[0xf0]>>lengthBits, uint(t.ac[0xf0]&63))
					}
					if uint32(v+near) < 2*near {
						e := t.small[uint(run<<6|int(v+near))&(16*2*near-1)]
						acc, n, at = put(acc, n, raw, at, e>>lengthBits, uint(e&63))
						continue
					}
					size := bits.Len32(uint32(max(v, -v)))
					e := t.ac[(run<<4|size)&255]
					acc, n, at = put(acc, n, raw, at, e>>lengthBits<<size|value(v, size), uint(e&63)+uint(size))
				}
				if last != 63 {
					acc, n, at = put(acc, n, raw, at, t.ac[0]>>lengthBits, uint(t.ac[0]&63))
				}
			}
		}
	}
	w.acc, w.n, w.at = acc, n, at
	return x - from
}

// value returns the size bits that stand for v behind its code (T.81, F.1.2.1).
func value(v int32, size int) uint32 { return uint32(v+v>>31) & (1<<size - 1) }

// put adds n bits, at most 32, to less than 32.
func put(acc uint64, had uint, raw []byte, at int, code uint32, n uint) (uint64, uint, int) {
	acc = acc<<n | uint64(code)
	had += n
	if had >= 32 {
		had -= 32
		binary.BigEndian.PutUint32(raw[at:], uint32(acc>>had))
		at += 4
	}
	return acc, had, at
}

// drain brings whole bytes to the file.
func (w *Writer) drain() {
	for ; w.n >= 8; w.n -= 8 {
		w.raw[w.at] = byte(w.acc >> (w.n - 8))
		w.at++
	}
	for src := w.raw[:w.at]; ; {
		i := bytes.IndexByte(src, 0xff)
		if i < 0 {
			w.out = append(w.out, src...)
			break
		}
		w.out = append(append(w.out, src[:i+1]...), 0)
		src = src[i+1:]
	}
	w.at = 0
}

// End ends the file, and returns it.
func (w *Writer) End() []byte {
	w.drain()
	if w.n > 0 {
		w.acc, w.n = w.acc<<(8-w.n)|(1<<(8-w.n)-1), 8
		w.drain()
	}
	w.out = append(w.out, 0xff, mEOI)
	out := w.out
	w.out = nil
	return out
}
