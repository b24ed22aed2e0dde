package reader

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"shardify/imaging"
	"shardify/imaging/jpeg"
	"shardify/imaging/transform"
	"shardify/index"
	"shardify/index/seek"
	"shardify/store/cache"
)

// Seek points come with the image: where they lie is read with the index and kept beside
// it, 8 bytes a sample, and they themselves are a piece of the sample, some hundred bytes
// that take memory of the pool like any other. No error of theirs is one of the sample:
// without them it is decoded from its beginning.
//
// Where an image's file is so large that it pays, only a part of it is read. The scheduler
// draws the crop, by the dimensions in the index, and so knows about how much that would
// save. The fetcher reads the points first; they say where the rows of the crop lie, and
// have checksums of the file's parts. What is read, header and rows, comes one behind the
// other into the memory that the whole file would take, and the points behind it. Should
// anything be wrong, the whole file is read after all.

// Seek says whether seek points are used.
type Seek string

const (
	// SeekAuto, the default, uses them where a store answers at once, where they come
	// with what is read ahead, and with Config.Cache. It does not where each sample's
	// would be a request of its own to a remote store. Of a file of which a crop leaves
	// much aside, 64 KiB on a disk and 256 KiB in other stores, it reads the rows of the
	// crop only; not with Config.Cache, which wants whole files for epochs to come.
	SeekAuto Seek = "auto"
	// SeekOn uses them wherever there are any, and reads the rows of a crop only where
	// that saves 16 KiB: for stores whose bandwidth is what holds training up.
	SeekOn Seek = "on"
	// SeekOff does not use them.
	SeekOff Seek = "off"
)

// SeekStats say how seek points have fared.
type SeekStats struct {
	// Used counts the images that were decoded with seek points.
	Used int64 `json:"used"`
	// Parts counts those of whose files only a part was read.
	Parts int64 `json:"parts"`
	// Refused counts those that were decoded without, as what the side file has of them
	// is damaged, of other bytes or cannot be read, and Files the side files that are
	// of no use at all. `shardify index --jpeg-seek` makes them anew.
	Refused int64 `json:"refused"`
	Files   int64 `json:"files"`
	// Error is what was wrong the first time.
	Error string `json:"error,omitempty"`
}

// seekCounters are what SeekStats are made of.
type seekCounters struct {
	used, parts, refused, files atomic.Int64

	mu    sync.Mutex
	first error
}

func (c *seekCounters) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == nil {
		c.first = err
	}
}

// refuse counts an image that is decoded without its points.
func (c *seekCounters) refuse(err error) {
	c.refused.Add(1)
	c.note(err)
}

func (c *seekCounters) stats() *SeekStats {
	s := &SeekStats{Used: c.used.Load(), Parts: c.parts.Load(), Refused: c.refused.Load(), Files: c.files.Load()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first != nil {
		s.Error = c.first.Error()
	}
	return s
}

// pointsStream is the stream of a shard's side file.
const pointsStream = -1

// Reading a part of a file costs another read, before or between: it should save so many
// bytes at least. On a disk that is what takes some 10 µs to copy and to check.
const (
	localPartGain  = 64 << 10
	remotePartGain = remoteGap
	leastPartGain  = maxGap // under SeekOn
)

// chooseSeek decides what seek points are used for, when it is known what is read ahead.
func (r *Reader) chooseSeek() {
	c := &r.config
	if c.Decode != DecodeImage || c.Seek == SeekOff || r.stream != nil ||
		!slices.ContainsFunc(r.split.Shards, func(s index.Shard) bool { return s.Seek != nil }) {
		return
	}
	cached := c.Cache != (cache.Config{})
	switch {
	case r.sequential || r.frames || slices.ContainsFunc(r.wanted.names, func(name string) bool { return slices.Contains(imageNames, name) }):
		// What is not wanted is read nevertheless.
	case c.Seek == SeekOn:
		r.partGain = leastPartGain
	case cached:
	case r.remote():
		r.partGain = remotePartGain
	default:
		r.partGain = localPartGain
	}
	r.points = true
	if c.Seek != SeekOn && r.remote() && r.ahead.bytes == 0 && !cached {
		r.onlyParts = true
		r.points = r.meanImage() > 2*r.partGain
	}
}

// meanImage is how large images are, by the manifest.
func (r *Reader) meanImage() int64 {
	var bytes, n int64
	for i := range r.split.Shards {
		for _, f := range r.split.Shards[i].Fields {
			if slices.Contains(imageNames, f.Name) {
				bytes, n = bytes+f.Bytes, n+f.Count
			}
		}
	}
	return bytes / max(1, n)
}

// loadPoints reads where a shard's seek points are; nil where that does not help.
func (r *Reader) loadPoints(ctx context.Context, number int) []int64 {
	t, err := r.readPoints(ctx, number)
	if errors.Is(err, index.ErrInvalid) || errors.Is(err, seek.ErrStale) {
		// What the way has spoiled may come whole the next time.
		r.counters.rereads.Add(1)
		t, err = r.readPoints(cache.Fresh(ctx), number)
	}
	if err == nil {
		return t.Offsets
	}
	if ctx.Err() == nil {
		r.counters.seek.files.Add(1)
		r.counters.seek.note(err)
	}
	return nil
}

func (r *Reader) readPoints(ctx context.Context, number int) (*seek.Table, error) {
	f, err := r.setOf(number).data.OpenSeek(ctx, &r.split.Shards[number])
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Table(ctx)
}

// excerpt says which rows of an image its crop needs, [from, to), and which bytes of its
// file are there when it has been read; the zero value of gap is all of them.
type excerpt struct {
	from, to int
	gap      jpeg.Gap
}

// lookUpPoints notes where the seek points of slot i's image are, if it has any, and
// whether only a part of it is to be read. Its piece is the last one.
func (s *scheduler) lookUpPoints(j *job, i int, r *rows, row int64) {
	offset, size := r.points[row], r.points[row+1]-r.points[row]
	if size == 0 {
		return
	}
	j.points[i] = extent{offset: offset, size: size}
	if p, ok := s.crop(&s.recipe, &j.canvas, j.plan, r, row, j.samples[i], j.copies[i]); ok {
		j.parts[i] = p
		j.pieces[len(j.pieces)-1].part = true
		return
	}
	if s.reader.onlyParts {
		return
	}
	j.pieces = append(j.pieces, piece{
		shard: j.shards[i], stream: pointsStream, slot: int32(i), field: pointsField, row: int32(row),
		offset: offset, size: size,
	})
	j.missing[i].Add(1)
}

// crop draws the crop of a copy of sample n, which is a row of a shard, and returns what of
// the image is needed. It is not ok where all of it should be read.
func (p *pass) crop(recipe *transform.Recipe, c *canvas, plan *Plan, r *rows, row, n, copies int64) (_ excerpt, ok bool) {
	gain := p.reader.partGain
	image := &r.cols[0]
	size := image.size[row]
	if gain == 0 || size < 2*gain || image.offset[row] < 0 || r.dims == nil || r.points == nil || r.points[row+1] == r.points[row] {
		return excerpt{}, false
	}
	d := r.dims[row]
	if d == (dims{}) || size > math.MaxInt32 {
		return excerpt{}, false
	}
	random := plan.random(n, copies)
	if err := c.program.Draw(recipe, &random, int(d.width), int(d.height)); err != nil {
		return excerpt{}, false // which is an error of the sample, when it is decoded
	}
	h := recipe.Head()
	from, to := h.Task.Rows(h.Height)
	from, to = h.Crop.Y+from, h.Crop.Y+to
	saved := size - size*int64(to-from)/int64(d.height)
	return excerpt{from: from, to: to}, saved >= gain
}

// readPart reads what a crop needs of an image's file. It is false where the whole file is
// to be read instead.
func (p *pass) readPart(r *read) bool {
	q := &r.pieces[0]
	j, slot := r.job, q.slot
	at, want, size := &j.points[slot], &j.parts[slot], q.size
	if at.size > size/2 {
		return false
	}
	whole := func(err error) bool {
		if err != nil && j.ctx.Err() == nil {
			p.counters.seek.refuse(fmt.Errorf("shard %s: sample %q: %w", p.reader.shardPath(q.shard), j.key(int(slot)), err))
		}
		return false
	}
	raw := r.data[size-at.size:]
	if err := p.loadFrom(j.ctx, fileKey{q.shard, pointsStream}, raw, at.offset); err != nil {
		return whole(err)
	}
	p.counters.store.items.Add(1)
	p.counters.store.bytes.Add(at.size)
	entry, err := seek.ParseEntry(raw, j.images[slot].crc, size)
	if err != nil {
		return whole(err)
	}
	head, from, to, err := jpeg.Extent(entry.Points, int(size), want.from, want.to)
	if err != nil {
		return whole(err)
	}
	// Behind the header and what is read with it, to no use, for its checksum.
	ends := partsOf(&entry, int64(head), int64(from), int64(to), p.partGap())
	n := ends.head + ends.to - ends.from
	if entry.Part == 0 || n > size-at.size {
		at.data = slices.Clone(raw) // the file comes in its place
		return whole(nil)
	}
	data, key, ctx := r.data[:n:n], fileKey{r.shard, r.stream}, j.ctx
	var rest chan error
	if ends.to > ends.from {
		rest = make(chan error, 1)
		tail := func() { rest <- p.loadFrom(ctx, key, data[ends.head:], q.offset+ends.from) }
		p.counters.store.items.Add(1)
		if p.reader.remote() {
			go tail()
		} else {
			tail()
		}
	}
	err = p.loadFrom(ctx, key, data[:ends.head], q.offset)
	if rest != nil {
		err = errors.Join(err, <-rest)
	}
	p.counters.store.items.Add(1)
	p.counters.store.bytes.Add(n)
	if err != nil || !entry.Check(data[:ends.head], 0) || n > ends.head && !entry.Check(data[ends.head:], ends.from) {
		// What is wrong with the file is said when it has been read whole.
		p.counters.rereads.Add(1)
		at.data = slices.Clone(raw)
		return whole(nil)
	}
	at.data = entry.Points
	want.gap = jpeg.Gap{Size: int(size), Head: int(ends.head), From: int(ends.from)}
	q.size = n
	return true
}

// partGap is how many bytes that are not wanted are read rather than with two reads.
func (p *pass) partGap() int64 {
	if p.reader.remote() && p.reader.config.Seek != SeekOn {
		return remoteGap
	}
	return maxGap
}

// ends are the bytes of a file that are read: those before head, and those from from to to.
type ends struct{ head, from, to int64 }

// partsOf makes whole parts of what is needed, which can be checked, and one read where
// the second is not further than gap from the first.
func partsOf(e *seek.Entry, head, from, to, gap int64) (x ends) {
	if e.Part == 0 {
		return x
	}
	_, x.head = e.Parts(0, head)
	x.from, x.to = e.Parts(from, to)
	if x.from <= x.head+gap {
		x.head = max(x.head, x.to)
		x.from, x.to = x.head, x.head
	}
	return x
}

// pointsOf is the read of the seek points of a span's rows, if they are not too much for
// what they bring to a span of so many bytes.
func (a *lookahead) pointsOf(w *wants, from, to int32, bytes int64) read {
	if w.rows.points == nil {
		return read{}
	}
	offset, end := w.rows.points[from], w.rows.points[to+1]
	if end-offset > bytes/4 {
		return read{}
	}
	return read{offset: offset, size: end - offset}
}

// pointsFor returns the seek points of slot i's image for its decoder, which are held
// against the checksum of the file; nil where there are none.
func (w *worker) pointsFor(j *job, i int, file []byte) []byte {
	if !w.reader.points || j.points[i].data == nil {
		return nil
	}
	entry, err := seek.ParseEntry(j.points[i].data, w.checksumOf(j.images[i].crc, file), int64(len(file)))
	if err != nil {
		w.counters.seek.refuse(fmt.Errorf("shard %s: sample %q: %w", w.reader.shardPath(j.shards[i]), j.key(i), err))
		return nil
	}
	return entry.Points
}

// drawPart begins the picture of a slot of whose file a part is there. An error says that
// this does not do.
func (w *worker) drawPart(f *flight) (together bool, err error) {
	defer guard(&err)
	j, i, p := f.job, f.slot, &f.picture
	gap, data := j.parts[i].gap, j.images[i].data
	h, err := jpeg.ReadHeader(data[:gap.Head])
	if err != nil {
		return false, err
	}
	if err := j.images[i].dims.check(h.Width, h.Height); err != nil {
		return false, err
	}
	if err := p.draw(&j.canvas, h.Width, h.Height, j.plan.random(j.samples[i], j.copies[i])); err != nil {
		return false, err
	}
	if err := j.seat(i, p); err != nil {
		return false, err
	}
	p.points, p.gap = j.points[i].data, gap
	return w.drawn(f, imaging.Info{Format: imaging.JPEG, Coding: h.Coding, Width: h.Width, Height: h.Height}, data)
}

// drawAgain begins the picture of a slot of whose file a part is there, which does not do,
// because of cause: with the whole file.
func (w *worker) drawAgain(f *flight, cause error) (together bool, err error) {
	j, i := f.job, f.slot
	if w.ctx.Err() != nil {
		return false, cause
	}
	x := &j.images[i]
	if j.parts[i].gap != (jpeg.Gap{}) {
		w.counters.seek.refuse(fmt.Errorf("shard %s: sample %q: a part of its file: %w", w.reader.shardPath(j.shards[i]), j.key(i), cause))
	}
	j.parts[i].gap, j.points[i].data = jpeg.Gap{}, nil
	w.drop(x)
	w.counters.rereads.Add(1)
	file := make([]byte, x.size)
	if err := w.readAgain(j.shards[i], x, file); err != nil {
		return false, w.slotFault(j, i, imageNames[x.name], x.offset, err)
	}
	if together, err = w.draw(f, file); err != nil && w.ctx.Err() == nil {
		err = j.imageError(i, err)
	}
	return together, err
}

// makeAgain is drawAgain, and makes the picture.
func (w *worker) makeAgain(f *flight, cause error) error {
	together, err := w.drawAgain(f, cause)
	if err != nil || !together {
		return err
	}
	if err = guarded(w.imager.decodeAlone, &f.picture); err != nil {
		err = f.job.imageError(f.slot, err)
	}
	return err
}

// standInPoints returns the seek points of the image of a sample that stands in for
// another, a row of a shard; nil where there are none.
func (w *worker) standInPoints(s *standIn, r *rows, row int64, file []byte) []byte {
	if r.points == nil || w.reader.onlyParts || r.points[row+1] == r.points[row] {
		return nil
	}
	raw := make([]byte, r.points[row+1]-r.points[row])
	err := w.loadFrom(w.ctx, fileKey{s.shard, pointsStream}, raw, r.points[row])
	var entry seek.Entry
	if err == nil {
		entry, err = seek.ParseEntry(raw, w.checksumOf(r.cols[0].crc[row], file), int64(len(file)))
	}
	if err != nil {
		w.counters.seek.refuse(fmt.Errorf("shard %s: sample %q: %w", w.reader.shardPath(s.shard), s.key, err))
		return nil
	}
	return entry.Points
}

// checksumOf is the CRC-32C of a file, of which the index says that it is crc.
func (w *worker) checksumOf(crc uint32, file []byte) uint32 {
	if w.reader.config.SkipChecksums { // nobody has compared it with the bytes
		return index.FieldChecksum(file)
	}
	return crc
}

// countPoints counts a JPEG that is decoded, by whether its points were of use.
func (w *worker) countPoints(p *picture) {
	if p.points == nil {
		return
	}
	p.points = nil
	if err := p.job.SeekErr; err != nil {
		w.counters.seek.refuse(err)
	} else {
		w.counters.seek.used.Add(1)
		if p.gap != (jpeg.Gap{}) {
			w.counters.seek.parts.Add(1)
		}
	}
}
