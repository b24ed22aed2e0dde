package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"shardify/index"
	"shardify/index/seek"
	"shardify/store/cache"
)

// Seek points come with the image: where they lie is read with the index and kept beside
// it, 8 bytes a sample, and they themselves are a piece of the sample, some hundred bytes
// that take memory of the pool like any other. No error of theirs is one of the sample:
// without them it is decoded from its beginning.

// Seek says whether seek points are used.
type Seek string

const (
	// SeekAuto, the default, uses them where a store answers at once, where they come
	// with what is read ahead, and with Config.Cache. It does not where each sample's
	// would be a request of its own to a remote store.
	SeekAuto Seek = "auto"
	// SeekOn uses them wherever there are any.
	SeekOn Seek = "on"
	// SeekOff does not use them.
	SeekOff Seek = "off"
)

// SeekStats say how seek points have fared.
type SeekStats struct {
	// Used counts the images that were decoded with seek points.
	Used int64 `json:"used"`
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
	used, refused, files atomic.Int64
	mu                   sync.Mutex
	first                error
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
	s := &SeekStats{Used: c.used.Load(), Refused: c.refused.Load(), Files: c.files.Load()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first != nil {
		s.Error = c.first.Error()
	}
	return s
}

// pointsStream is the stream of a shard's side file.
const pointsStream = -1

// usesSeek decides whether seek points are used, when it is known what is read ahead.
func (r *Reader) usesSeek() bool {
	if r.config.Decode != DecodeImage || r.config.Seek == SeekOff || r.stream != nil {
		return false
	}
	if r.config.Seek != SeekOn && r.remote() && r.ahead.bytes == 0 && r.config.Cache == (cache.Config{}) {
		return false
	}
	return slices.ContainsFunc(r.split.Shards, func(s index.Shard) bool { return s.Seek != nil })
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

// lookUpPoints notes where the seek points of slot i's image are, if it has any.
func (s *scheduler) lookUpPoints(j *job, i int, r *rows, row int64) {
	offset, size := r.points[row], r.points[row+1]-r.points[row]
	if size == 0 {
		return
	}
	j.points[i] = extent{offset: offset, size: size}
	j.pieces = append(j.pieces, piece{
		shard: j.shards[i], stream: pointsStream, slot: int32(i), field: pointsField, row: int32(row),
		offset: offset, size: size,
	})
	j.missing[i].Add(1)
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
	crc := j.images[i].crc
	if w.reader.config.SkipChecksums { // nobody has compared it with the bytes
		crc = index.FieldChecksum(file)
	}
	entry, err := seek.ParseEntry(j.points[i].data, crc, int64(len(file)))
	if err != nil {
		w.counters.seek.refuse(fmt.Errorf("shard %s: sample %q: %w", w.reader.shardPath(j.shards[i]), j.key(i), err))
		return nil
	}
	return entry.Points
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
	}
}
