package resize

import (
	"errors"
	"fmt"

	"shardify/imaging/internal/raster"
	"shardify/imaging/tensor"
	"shardify/internal/simd"
)

// Task says what a source image becomes.
type Task struct {
	// SourceWidth and SourceHeight are the source's, when it stands upright.
	SourceWidth, SourceHeight int
	// Turn is the orientation in which the source comes, as EXIF counts them, 1 to 8; 0
	// is upright too. The source is turned upright on its way, and all else here is of
	// the upright one: the result is what it would be if it were turned before.
	Turn int
	// Part is what of it is scaled; the filter sees the pixels around it.
	Part Rect
	// Filter is the filter.
	Filter Filter
	// Width and Height are what Part is scaled to.
	Width, Height int
	// X and Y are the upper left corner of the window of that which is made: the
	// [Target] has its size. All of it is the window at (0, 0).
	X, Y int
	// FlipX mirrors the window left to right, FlipY top to bottom.
	FlipX, FlipY bool
}

// Target is where the pixels go: one sample's place in a batch,
// Channels·Width·Height elements. One of the slices is set.
type Target struct {
	Width, Height int
	// Channels is 3, which 0 means too, or 1: then the first plane of the source
	// is all that counts.
	Channels int
	Layout   tensor.Layout
	Uint8    []uint8
	// Stride is the distance between two rows of Uint8 under NHWC, where it is not
	// Channels·Width, which 0 means.
	Stride int
	// Float32 takes Table's floats, one for each byte of each channel.
	Float32 []float32
	Table   *tensor.Table
	// Half takes Table16's, which are float16 or bfloat16.
	Half    []uint16
	Table16 *tensor.Table16
}

// Span is a rectangle of source pixels, [X0, X1) by [Y0, Y1).
type Span struct{ X0, Y0, X1, Y1 int }

// Rows returns rows of the task's source, [from, to), among which are all that a window h
// rows high needs. That costs next to nothing: no weight is worked out.
func (t *Task) Rows(h int) (from, to int) {
	y0, y1 := float32(t.Part.Y0), float32(t.Part.Y1)
	if t.Height == t.SourceHeight && y0 == 0 && y1 == float32(t.Height) {
		return t.Y, t.Y + h
	}
	scale := float64(y1-y0) / float64(t.Height)
	support := filters[t.Filter].support * max(scale, 1)
	center := func(i int) float64 { return float64(y0) + (float64(t.Y+i)+0.5)*scale }
	from = min(max(int(center(0)-support), 0), t.SourceHeight-1)
	to = min(int(center(h-1)+support)+1, t.SourceHeight)
	return from, max(to, from+1)
}

// Rows is memory for some rows of samples, of which each has its planes side by
// side: sample x of plane c of row r is Pix[r*Stride+c*Pitch+x], and x may go up to
// Pitch.
type Rows struct {
	Pix           []uint8
	Pitch, Stride int
}

// feed is the part of a Resizer that takes source rows from top to bottom and
// writes an output row as soon as the last row that it needs is there. Between the
// two lies a ring of rows: scaled ones where the horizontal pass goes first, source
// rows otherwise.
type feed struct {
	out          sink
	flip         bool // rows are written from the last to the first
	level        simd.Level
	across, down bool // is there a pass along this axis at all
	columnsFirst bool
	span         Span

	from, planes  int // the source column of a row's first sample; planes of a row
	pitch, stride int // of source rows
	fresh         []uint8
	room          int // rows that Room gave and Push has not taken

	ring       []uint8
	ringStride int
	ringPitch  int
	top        int // which row, counted from span.Y0, is the ring's first
	have       int // rows pushed
	next       int // the output row that comes next

	line, narrow []uint8 // an output row on its way
	narrowPitch  int
	wait         []uint8 // rows that become columns
}

// Begin starts a task and returns which pixels of the source it needs, as it comes: all
// rows from Y0 to Y1 must be pushed, columns X0 to X1 of them. A task that was not
// finished is given up.
func (z *Resizer) Begin(task Task, target Target) (Span, error) {
	f := &z.feed
	if err := target.check(); err != nil {
		return Span{}, err
	}
	if err := z.plan(task, target.Width, target.Height); err != nil {
		return Span{}, err
	}
	f.out = sink{
		layout: target.Layout, width: target.Width, height: target.Height, channels: target.channels(), flip: f.flip, turned: task.Turn >= 5,
		bytes: target.Uint8, floats: target.Float32, table: target.Table, halves: target.Half, table16: target.Table16,
		stride: max(target.Stride, target.channels()*target.Width),
	}
	if f.out.turned {
		f.out.width, f.out.height = target.Height, target.Width
	}
	f.planes = 0
	return f.span, nil
}

func (t *Target) channels() int {
	if t.Channels == 0 {
		return 3
	}
	return t.Channels
}

func (t *Target) check() error {
	if t.Width < 1 || t.Height < 1 {
		return fmt.Errorf("resize: to %d x %d; both must be at least 1", t.Width, t.Height)
	}
	if t.Layout != tensor.NCHW && t.Layout != tensor.NHWC {
		return fmt.Errorf("resize: no layout has the number %d", int(t.Layout))
	}
	if t.Channels != 0 && t.Channels != 1 && t.Channels != 3 {
		return fmt.Errorf("resize: a target of %d channels; want 1 or 3", t.Channels)
	}
	row := t.channels() * t.Width
	want := row * t.Height
	if t.Stride != 0 {
		if t.Uint8 == nil || t.Layout != tensor.NHWC || t.Stride < row {
			return fmt.Errorf("resize: rows %d apart; only bytes in NHWC may have gaps, and a row has %d", t.Stride, row)
		}
		want = (t.Height-1)*t.Stride + row
	}
	set, n := 0, 0
	if t.Uint8 != nil {
		set, n = set+1, len(t.Uint8)
	}
	if t.Float32 != nil {
		set, n = set+1, len(t.Float32)
	}
	if t.Half != nil {
		set, n = set+1, len(t.Half)
	}
	switch {
	case set != 1:
		return fmt.Errorf("resize: a target has one kind of elements; this has %d", set)
	case n != want && (t.Stride == 0 || n < want):
		return fmt.Errorf("resize: an image of %d x %d takes %d elements; its place has %d", t.Width, t.Height, want, n)
	case t.Float32 != nil && t.Table == nil, t.Half != nil && t.Table16 == nil:
		return errors.New("resize: a target of floats needs a table")
	}
	return nil
}

// plan works out the weights and the order of the passes for a window of w x h.
func (z *Resizer) plan(task Task, w, h int) error {
	if err := task.check(w, h); err != nil {
		return err
	}
	f := &z.feed
	f.level = z.simd()
	r, turn := task.Part, task.Turn
	// Keys of the axes of the upright image, which side of the source they begin at, and
	// whether the window is flipped along them.
	key := [2]axisKey{
		{source: task.SourceWidth, from: float32(r.X0), to: float32(r.X1), size: task.Width, skip: task.X, n: w, filter: task.Filter, level: f.level, mirrored: turn == 2 || turn == 3 || turn == 6 || turn == 7},
		{source: task.SourceHeight, from: float32(r.Y0), to: float32(r.Y1), size: task.Height, skip: task.Y, n: h, filter: task.Filter, level: f.level, mirrored: turn == 3 || turn == 4 || turn == 7 || turn == 8},
	}
	flip := [2]bool{task.FlipX, task.FlipY}
	f.columnsFirst = task.acrossFirst()
	if turn >= 5 {
		key[0], key[1] = key[1], key[0]
		flip[0], flip[1] = flip[1], flip[0]
		f.columnsFirst = !f.columnsFirst
	}
	column, row := &key[0], &key[1]
	f.across, f.down = column.scales(), row.scales()
	f.span.X0, f.span.X1 = column.window()
	f.span.Y0, f.span.Y1 = row.window()
	if flip[0] != column.mirrored && !f.across {
		// The box filter at scale 1 changes nothing but the order.
		f.across, column.filter = true, Box
	}
	if f.across {
		column.reversed, column.columns = flip[0], true
		z.columns.set(*column)
		f.span.X0, f.span.X1 = z.columns.span()
	}
	// Rows are made in the order of the source, and flipped as they are written.
	f.flip = flip[1] != row.mirrored
	if f.down {
		row.reversed = row.mirrored
		z.rows.set(*row)
		f.span.Y0, f.span.Y1 = z.rows.span()
	}
	f.top, f.have, f.next, f.room = 0, 0, 0, 0
	return nil
}

// scales says whether there is a pass along an axis at all.
func (k *axisKey) scales() bool {
	return k.size != k.source || k.from != 0 || k.to != float32(k.size)
}

// window returns the source samples of an axis that is not scaled: all that the window
// shows.
func (k *axisKey) window() (from, to int) {
	if k.mirrored {
		return k.source - k.skip - k.n, k.source - k.skip
	}
	return k.skip, k.skip + k.n
}

func (t *Task) check(w, h int) error {
	var faults []error
	if t.Turn < 0 || t.Turn > 8 {
		faults = append(faults, fmt.Errorf("resize: no orientation has the number %d", t.Turn))
	}
	if !t.Filter.valid() {
		faults = append(faults, fmt.Errorf("resize: no filter has the number %d", int(t.Filter)))
	}
	if t.SourceWidth < 1 || t.SourceHeight < 1 {
		faults = append(faults, fmt.Errorf("resize: a source of %d x %d; both must be at least 1", t.SourceWidth, t.SourceHeight))
	}
	// Written so that NaN fails. The differences are those of float32, in which
	// they must not vanish.
	if r := t.Part; !(r.X0 >= 0 && r.Y0 >= 0 && r.X1 <= float64(t.SourceWidth) && r.Y1 <= float64(t.SourceHeight) &&
		float32(r.X0) < float32(r.X1) && float32(r.Y0) < float32(r.Y1)) {
		faults = append(faults, fmt.Errorf("resize: the box (%v, %v, %v, %v) is empty or reaches beyond the source of %d x %d", r.X0, r.Y0, r.X1, r.Y1, t.SourceWidth, t.SourceHeight))
	}
	if t.X < 0 || t.Y < 0 || w > t.Width-t.X || h > t.Height-t.Y {
		faults = append(faults, fmt.Errorf("resize: a window of %d x %d at (%d, %d) does not lie within %d x %d", w, h, t.X, t.Y, t.Width, t.Height))
	}
	return errors.Join(faults...)
}

// Columns says how the source rows of the task come: with planes planes (3, or 1
// of grey), their first sample in column from, and width of them. It follows
// Begin.
func (z *Resizer) Columns(from, width, planes int) error {
	f := &z.feed
	if from > f.span.X0 || from+width < f.span.X1 {
		return fmt.Errorf("resize: columns %d to %d do not cover %d to %d", from, from+width, f.span.X0, f.span.X1)
	}
	if planes != 1 && planes != 3 {
		return fmt.Errorf("resize: rows of %d planes; want 1 or 3", planes)
	}
	z.columnsOf(from, width, planes)
	return nil
}

func (z *Resizer) columnsOf(from, width, planes int) {
	f := &z.feed
	f.from, f.planes = from, planes
	f.pitch = width
	if f.across {
		f.pitch += z.columns.over()
	}
	f.pitch = (f.pitch + 63) &^ 63
	f.stride = planes * f.pitch
	w := f.out.width
	// Of scaled rows, the kernel for one plane may write into the next one, or
	// behind the last.
	f.ringPitch, f.ringStride = w, planes*w+64
	if !f.scaledWait() {
		f.ringPitch, f.ringStride = f.pitch, f.stride
	}
	f.line = grow(f.line, max(f.stride, 3*w+64))
	f.narrowPitch = (w + 31) &^ 31 // the kernel writes whole blocks
	f.narrow = grow(f.narrow, planes*f.narrowPitch)
}

// scaledWait says whether the rows that wait have had the horizontal pass.
func (f *feed) scaledWait() bool { return f.across && (f.columnsFirst || !f.down) }

// Room returns memory for the next n rows, or fewer, of the source.
func (z *Resizer) Room(n int) Rows {
	f := &z.feed
	f.room = n
	if f.scaledWait() {
		f.fresh = grow(f.fresh, n*f.stride)
		return Rows{f.fresh[:n*f.stride], f.pitch, f.stride}
	}
	z.makeRoom(n)
	at := (f.have - f.top) * f.stride
	return Rows{f.ring[at : at+n*f.stride], f.pitch, f.stride}
}

// makeRoom sees to it that the ring has room for n rows more.
func (z *Resizer) makeRoom(n int) {
	f := &z.feed
	size := f.ringStride
	if (f.have-f.top+n)*size <= len(f.ring) {
		return
	}
	least := f.have // the first row that is still needed
	if f.down && f.next < f.out.height {
		least = min(least, int(z.rows.keep[f.next]))
	}
	keep := f.ring[min((least-f.top)*size, len(f.ring)):min((f.have-f.top)*size, len(f.ring))]
	taps := 1
	if f.down {
		taps = z.rows.taps
	}
	// Twice what is needed, so that rows move seldom.
	if want := (2*taps + n + 32) * size; len(f.ring) < want && (f.have-least+n)*size > len(f.ring)/2 {
		if cap(f.ring) >= want {
			f.ring = f.ring[:want]
			copy(f.ring, keep)
		} else {
			ring := make([]uint8, want)
			copy(ring, keep)
			f.ring = ring
		}
	} else {
		copy(f.ring, keep)
	}
	f.top = least
}

// Push takes the rows [skip, n) of those that Room gave as the next of the source,
// and writes the output rows that they complete. Rows beyond those that Begin asked
// for are dropped.
func (z *Resizer) Push(skip, n int) {
	f := &z.feed
	n = min(n, skip+f.span.Y1-f.span.Y0-f.have)
	if n <= skip || n > f.room {
		return
	}
	f.room = 0
	rows := n - skip
	switch {
	case f.scaledWait():
		z.makeRoom(rows)
		at := (f.have - f.top) * f.ringStride
		for c := range f.planes {
			horizontal(f.ring[at+c*f.ringPitch:], f.ringStride, f.fresh[skip*f.stride+c*f.pitch+f.span.X0-f.from:], f.stride, rows, &z.columns)
		}
	case skip > 0:
		at := (f.have - f.top) * f.stride
		copy(f.ring[at:], f.ring[at+skip*f.stride:at+n*f.stride])
	}
	f.have += rows
	for ; f.next < f.out.height; f.next++ {
		if !f.down {
			if f.next >= f.have {
				return
			}
			row := f.ring[(f.next-f.top)*f.ringStride:]
			if !f.across {
				row = row[f.span.X0-f.from:]
			}
			f.out.put(f, f.next, row, f.ringPitch)
			continue
		}
		first := int(z.rows.first[f.next])
		if first+int(z.rows.count[f.next]) > f.have {
			return
		}
		z.row(f.ring[(first-f.top)*f.ringStride:])
	}
}

// row makes the next output row of the rows that wait, and the vertical pass is for.
func (z *Resizer) row(src []uint8) {
	f := &z.feed
	y, w := f.next, f.out.width
	switch {
	case !f.across:
		src = src[f.span.X0-f.from:]
		n := f.pitch*(f.planes-1) + w
		vertical(f.line[:n], src, f.ringStride, &z.rows, y)
		f.out.put(f, y, f.line, f.pitch)
	case !f.columnsFirst:
		vertical(f.line[:f.stride], src, f.ringStride, &z.rows, y)
		horizontal(f.narrow, f.narrowPitch, f.line[f.span.X0-f.from:], f.pitch, f.planes, &z.columns)
		f.out.put(f, y, f.narrow, f.narrowPitch)
	case f.out.bytes != nil && f.out.layout == tensor.NCHW && !f.out.turned:
		first := f.out.plane(0, y)
		for c := range f.out.channels {
			to := f.out.plane(c, y)
			if f.planes == 1 && c > 0 {
				copy(to, first)
				continue
			}
			vertical(to, src[c*w:], f.ringStride, &z.rows, y)
		}
	default:
		vertical(f.line[:f.planes*w], src, f.ringStride, &z.rows, y)
		f.out.put(f, y, f.line, w)
	}
}

// Done says whether all output rows are written.
func (z *Resizer) Done() bool { return z.feed.next >= z.feed.out.height }

// sink writes output rows.
type sink struct {
	layout        tensor.Layout
	width, height int // of the rows, and how many there are
	channels      int
	flip          bool // the last row comes first
	turned        bool // rows become columns of the target
	stride        int  // of bytes under NHWC
	bytes         []uint8
	floats        []float32
	table         *tensor.Table
	halves        []uint16
	table16       *tensor.Table16
}

// line is which row of the target row y is.
func (s *sink) line(y int) int {
	if s.flip {
		return s.height - 1 - y
	}
	return y
}

// plane returns row y of channel c of bytes under NCHW.
func (s *sink) plane(c, y int) []uint8 {
	return s.bytes[(c*s.height+s.line(y))*s.width:][:s.width]
}

// pixels returns row y of bytes under NHWC.
func (s *sink) pixels(y int) []uint8 {
	return s.bytes[s.line(y)*s.stride:][:s.channels*s.width]
}

// put writes output row y, whose planes lie pitch apart.
func (s *sink) put(f *feed, y int, row []uint8, pitch int) {
	if f.planes == 1 {
		pitch = 0
	}
	switch {
	case s.turned:
		s.turn(f, y, row, pitch)
	case s.bytes != nil && s.layout == tensor.NHWC && s.channels == 1:
		copy(s.pixels(y), row)
	case s.bytes != nil && s.layout == tensor.NHWC:
		interleave(s.pixels(y), row, pitch, f.level)
	case s.bytes != nil:
		for c := range s.channels {
			copy(s.plane(c, y), row[c*pitch:])
		}
	case s.floats != nil:
		putTable(s.floats, (*[3][256]float32)(s.table), s, y, row, pitch, f.level, lookup32)
	default:
		putTable(s.halves, (*[3][256]uint16)(s.table16), s, y, row, pitch, f.level, lookup16)
	}
}

func putTable[T any](dst []T, table *[3][256]T, s *sink, y int, row []uint8, pitch int, level simd.Level, lookup func([]T, []uint8, *[256]T, simd.Level)) {
	w := s.width
	y = s.line(y)
	if s.layout == tensor.NHWC && s.channels == 3 {
		out := dst[3*y*w:][:3*w]
		r, g, b := row[:w], row[pitch:][:w], row[2*pitch:][:w]
		for x := range r {
			q := out[3*x : 3*x+3]
			q[0], q[1], q[2] = table[0][r[x]], table[1][g[x]], table[2][b[x]]
		}
		return
	}
	for c := range s.channels {
		lookup(dst[(c*s.height+y)*w:][:w], row[c*pitch:][:w], &table[c], level)
	}
}

// image runs a task on an image that lies in memory whole.
func (z *Resizer) image(src *raster.Image) {
	f := &z.feed
	n := f.span.X1 - f.span.X0
	pix := src.Pix[f.span.Y0*src.Stride+3*f.span.X0:]
	interleaved := f.out.bytes != nil && f.out.layout == tensor.NHWC && f.out.channels == 3 && !f.out.turned
	if f.down && (!f.across || !f.columnsFirst) {
		// The vertical pass takes pixels as they are.
		z.columnsOf(f.span.X0, n, 3)
		mixed := grow(f.fresh, 3*n)
		f.fresh = mixed
		for y := range f.out.height {
			in := pix[int(z.rows.first[y])*src.Stride:]
			if !f.across && interleaved {
				vertical(f.out.pixels(y), in, src.Stride, &z.rows, y)
				continue
			}
			vertical(mixed, in, src.Stride, &z.rows, y)
			deinterleave(f.line, f.pitch, mixed, f.level)
			if !f.across {
				f.out.put(f, y, f.line, f.pitch)
				continue
			}
			horizontal(f.narrow, f.narrowPitch, f.line, f.pitch, 3, &z.columns)
			f.out.put(f, y, f.narrow, f.narrowPitch)
		}
		return
	}
	if !f.down && !f.across && interleaved {
		for y := range f.out.height {
			copy(f.out.pixels(y), pix[y*src.Stride:])
		}
		return
	}
	z.columnsOf(f.span.X0, n, 3)
	const strip = 8 // rows at a time, which stay in the cache
	for y := 0; y < f.span.Y1-f.span.Y0; y += strip {
		rows := min(strip, f.span.Y1-f.span.Y0-y)
		room := z.Room(rows)
		for i := range rows {
			deinterleave(room.Pix[i*room.Stride:], room.Pitch, pix[(y+i)*src.Stride:][:3*n], f.level)
		}
		z.Push(0, rows)
	}
}
