package resize

import (
	"encoding/binary"
	"math"
	"slices"

	"shardify/internal/simd"
)

// precision is the number of bits after the point of a weight: 32 bits less 8 of
// the sample and 2 for the sums of negative weights.
const precision = 32 - 8 - 2

// most is the largest weight that the kernels in assembly take: almost 2.
const most = 127 << 16

// axis holds the weights of one axis: output sample i is the sum of
// weights[i*stride+j] times source sample base+first[i]+j, for j < count[i]. There
// is at least one, and those at the ends are zero only where all are.
type axis struct {
	key          axisKey
	base, end    int // the source samples that are used: [base, end)
	first, count []int32
	weights      []int32
	stride       int
	taps         int       // the largest of count
	keep         []int32   // the least of first from here on
	exact        []float64 // the weights of one sample before rounding
	large        bool      // a weight is too large for the kernels in assembly

	// What the kernels in assembly take: the weights, taken apart.
	form    form
	fine    bool // tables are for AVX-512, not for AVX2
	blocks  int
	steps   int
	offsets []int32
	table   []uint8
}

type axisKey struct {
	source   int     // samples there are
	from, to float32 // the part that is scaled
	size     int     // what it is scaled to
	skip, n  int     // the window of that
	filter   Filter
	reversed bool // the window's samples in reverse
	mirrored bool // the source's samples in reverse, as they come
	columns  bool // for the horizontal pass
	level    simd.Level
}

// set works the weights out as Pillow's precompute_coeffs and
// normalize_coeffs_8bpc do. Products are rounded before they are added to (float64
// conversions see to that), as they are in C on amd64.
func (a *axis) set(key axisKey) {
	if a.key == key {
		return
	}
	a.key = key
	f := &filters[key.filter]
	plan := key.axis()
	scale, support, step := plan.Scale, plan.Support, plan.Step
	a.stride = 2*int(math.Ceil(support)) + 1
	a.first, a.count = grow(a.first, key.n), grow(a.count, key.n)
	a.weights = grow(a.weights, key.n*a.stride)
	a.exact = grow(a.exact, a.stride)
	a.base, a.end, a.taps, a.large = key.source, 0, 0, false
	for i := range key.n {
		center := float64(key.from) + float64((float64(i+key.skip)+0.5)*scale)
		first := max(int(center-support+0.5), 0)
		n := min(int(center+support+0.5), key.source) - first
		if n <= 0 { // only where rounding takes the centre to the very end
			first, n = key.source-1, 1
		}
		at := i
		if key.reversed {
			at = key.n - 1 - i
		}
		weights, exact := a.weights[at*a.stride:][:n], a.exact[:n]
		if key.filter == Bilinear {
			bilinearWeights(weights, exact, first, center, step)
		} else {
			a.filterWeights(weights, exact, f.weight, first, center, step)
		}
		from, to := 0, n
		for from < n-1 && weights[from] == 0 {
			from++
		}
		for to > from+1 && weights[to-1] == 0 {
			to--
		}
		if from == n-1 && weights[from] == 0 { // all are nought
			from, to = 0, 1
		}
		if from > 0 {
			copy(weights, weights[from:to])
		}
		first, n = first+from, to-from
		if key.mirrored {
			first = key.source - first - n
			slices.Reverse(weights[:n])
		}
		a.first[at], a.count[at] = int32(first), int32(n)
		a.base, a.end = min(a.base, first), max(a.end, first+n)
		a.taps = max(a.taps, n)
	}
	for i := range a.first {
		a.first[i] -= int32(a.base)
	}
	if key.columns {
		a.prepareColumns()
	} else {
		a.prepareRows()
	}
}

// filterWeights makes the weights of one sample; exact has room for them before they
// are rounded.
func (a *axis) filterWeights(weights []int32, exact []float64, weight func(float64) float64, first int, center, step float64) {
	sum := 0.0
	for j := range exact {
		w := weight((float64(j+first) - center + 0.5) * step)
		exact[j] = w
		sum += w
	}
	for j, w := range exact {
		if sum != 0 {
			w /= sum
		}
		w = float64(w * (1 << precision))
		if w < 0 {
			w -= 0.5
		} else {
			w += 0.5
		}
		v := int32(w)
		weights[j] = v
		a.large = a.large || v > most || v < -most
	}
}

// bilinearWeights does the same for the filter that most use, whose weights are
// neither negative nor large.
func bilinearWeights(weights []int32, exact []float64, first int, center, step float64) {
	sum := 0.0
	for j := range exact {
		w := 1 - math.Abs(float64((float64(j+first)-center+0.5)*step))
		if w < 0 {
			w = 0
		}
		exact[j] = w
		sum += w
	}
	if sum == 0 {
		sum = 1
	}
	weights = weights[:len(exact)]
	for j, w := range exact {
		weights[j] = int32(float64(w/sum*(1<<precision)) + 0.5)
	}
}

// over is how far beyond the last source sample that is used the horizontal
// kernels may read.
func (a *axis) over() int { return a.taps + 80 }

// span returns the source samples that are used: [from, to).
func (a *axis) span() (from, to int) { return a.base, a.end }

func (a *axis) row(i int) []int32 { return a.weights[i*a.stride:][:a.count[i]] }

// form is which kernel the tables are for.
type form int

const (
	formGeneric form = iota
	formShort        // all taps of a group of outputs lie in one register
	formLong         // the first few taps do
	formWide         // each output for itself
)

// prepareRows makes the tables of the vertical pass. Of a weight, AVX2 wants the
// bits above the lowest 8 and those (two signed words, by pairs of taps), AVX-512
// three signed bytes, by fours of taps.
func (a *axis) prepareRows() {
	n := len(a.first)
	a.keep = grow(a.keep, n)
	least := int32(math.MaxInt32)
	for i := n - 1; i >= 0; i-- {
		least = min(least, a.first[i])
		a.keep[i] = least
	}
	if a.form = formGeneric; a.large {
		return
	}
	switch a.key.level {
	case simd.Generic:
		return
	case simd.AVX2:
		a.steps = (a.taps + 1) / 2
		a.table = grow(a.table, 8*a.steps*n)
		for i := range n {
			words(a.table[8*a.steps*i:][:8*a.steps], a.row(i))
		}
	case simd.AVX512:
		a.steps = (a.taps + 3) / 4
		a.table = grow(a.table, 12*a.steps*n)
		for i := range n {
			t := a.table[12*a.steps*i:][:12*a.steps]
			clear(t)
			for j, w := range a.row(i) {
				q := t[j/4*12+j%4:]
				q[0], q[4], q[8] = digits(w)
			}
		}
	}
	a.form = formShort
}

func words(t []uint8, weights []int32) {
	clear(t)
	for j, w := range weights {
		p := t[j/2*8+j%2*2:]
		binary.LittleEndian.PutUint16(p, uint16(w>>8))
		binary.LittleEndian.PutUint16(p[4:], uint16(w&255))
	}
}

// digits takes a weight apart: high·65536 + middle·256 + low, each a signed byte.
func digits(w int32) (high, middle, low uint8) {
	l := int8(w)
	w = (w - int32(l)) >> 8
	m := int8(w)
	return uint8((w - int32(m)) >> 8), uint8(m), uint8(l)
}

// reach returns the first source sample of the outputs [from, to), how far beyond
// it their first taps begin, and their most taps. There may be fewer outputs than
// asked for.
func (a *axis) reach(from, to int) (base, spread, taps int) {
	to = min(to, len(a.first))
	low, high := a.first[from], a.first[from]
	for i := from; i < to; i++ {
		low, high = min(low, a.first[i]), max(high, a.first[i])
		taps = max(taps, int(a.count[i]))
	}
	return int(low), int(high - low), taps
}

// prepareColumns makes the tables of the horizontal pass, for the first of the
// forms that holds for all outputs.
func (a *axis) prepareColumns() {
	a.form = formGeneric
	if a.large || a.key.level == simd.Generic {
		return
	}
	if a.fine = a.key.level == simd.AVX512 && a.prepareAVX512(); a.fine {
		return
	}
	n := len(a.first)
	pairs := (a.taps + 1) / 2
	short, long := pairs <= 4, true
	for q := 0; q < n; q += 4 {
		_, spread, _ := a.reach(q, q+4)
		short = short && spread+2*pairs <= 16
		long = long && spread+2 <= 16
	}
	switch {
	case short:
		a.form, a.steps = formShort, pairs
	case long:
		a.form, a.steps = formLong, pairs
	default:
		a.prepareWide()
		return
	}
	// Blocks of 32 outputs, each of four groups of two fours: the masks that pick
	// the taps' samples, and the weights.
	a.blocks = (n + 31) / 32
	group := 96 * pairs
	if long := a.form == formLong; long {
		group = 32 + 64*pairs
	}
	a.offsets, a.table = grow(a.offsets, 8*a.blocks), grow(a.table, 4*a.blocks*group)
	clear(a.offsets)
	clear(a.table)
	for four := 0; 4*four < n; four++ {
		base, _, _ := a.reach(4*four, 4*four+4)
		block, lane, g := four/8, four%8/4, four%4
		a.offsets[8*block+four%8] = int32(base)
		t := a.table[(4*block+g)*group+16*lane:]
		for j := range min(4, n-4*four) {
			i := 4*four + j
			d := uint8(int(a.first[i]) - base)
			weights := a.row(i)
			for p := range pairs {
				at, from := 96*p, d+uint8(2*p)
				if a.form == formLong { // one mask for all pairs
					at, from = 64*p, d
				}
				mask, w := t[at+4*j:], t[at+32+4*j:]
				if a.form == formShort || p == 0 {
					mask[0], mask[1], mask[2], mask[3] = from, 0x80, from+1, 0x80
				}
				for k := 2 * p; k < min(2*p+2, len(weights)); k++ {
					at := 2 * (k - 2*p)
					binary.LittleEndian.PutUint16(w[at:], uint16(weights[k]>>8))
					binary.LittleEndian.PutUint16(w[32+at:], uint16(weights[k]&255))
				}
			}
		}
	}
}

// prepareAVX512 does it for blocks of 16 outputs, if these find four of their taps
// at a time within 64 bytes.
func (a *axis) prepareAVX512() bool {
	n := len(a.first)
	quads := (a.taps + 3) / 4
	short := quads <= 3
	for b := 0; b < n; b += 16 {
		_, spread, _ := a.reach(b, b+16)
		if spread+4 > 64 {
			return false
		}
		short = short && spread+4*quads <= 64
	}
	a.form, a.steps = formLong, quads
	if short {
		a.form = formShort
	}
	a.blocks = (n + 15) / 16
	size := 64 + 192*quads
	a.offsets, a.table = grow(a.offsets, a.blocks), grow(a.table, a.blocks*size)
	clear(a.table)
	for b := range a.blocks {
		base, _, _ := a.reach(16*b, 16*b+16)
		a.offsets[b] = int32(base)
		t := a.table[b*size:][:size]
		for j := range min(16, n-16*b) {
			i := 16*b + j
			d := int(a.first[i]) - base
			binary.LittleEndian.PutUint32(t[4*j:], 0x03020100+0x01010101*uint32(d)) // d, d+1, d+2, d+3
			for k, w := range a.row(i) {
				q := t[64+192*(k/4)+4*j+k%4:]
				q[0], q[64], q[128] = digits(w)
			}
		}
	}
	return true
}

// prepareWide does it for outputs far apart: blocks of four, and of each output 16
// taps at a time.
func (a *axis) prepareWide() {
	n := len(a.first)
	chunks := (a.taps + 15) / 16
	a.form, a.steps, a.blocks = formWide, chunks, (n+3)/4
	a.offsets, a.table = grow(a.offsets, 4*a.blocks), grow(a.table, 256*chunks*a.blocks)
	clear(a.offsets)
	clear(a.table)
	for i := range n {
		a.offsets[i] = a.first[i]
		for k, w := range a.row(i) {
			p := a.table[256*(i/4*chunks+k/16)+64*(i%4)+2*(k%16):]
			binary.LittleEndian.PutUint16(p, uint16(w>>8))
			binary.LittleEndian.PutUint16(p[32:], uint16(w&255))
		}
	}
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

func box(x float64) float64 {
	if x > -0.5 && x <= 0.5 {
		return 1
	}
	return 0
}

func bilinear(x float64) float64 {
	return max(1-math.Abs(x), 0)
}

// bicubic is Keys's convolution with a = -0.5.
func bicubic(x float64) float64 {
	const a = -0.5
	x = math.Abs(x)
	switch {
	case x < 1:
		return float64((float64((a+2)*x)-(a+3))*x*x) + 1
	case x < 2:
		return (float64((float64((x-5)*x)+8)*x) - 4) * a
	}
	return 0
}

func lanczos(x float64) float64 {
	if x < -3 || x >= 3 {
		return 0
	}
	return sinc(x) * sinc(x/3)
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	x *= math.Pi
	return math.Sin(x) / x
}
