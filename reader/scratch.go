package reader

import (
	"runtime/debug"

	"shardify/imaging"
	"shardify/imaging/transform"
)

// What workers decode into counts against the budget, too. Most JPEGs need memory for some
// rows only, and other small images little: each worker has room for that, and for what
// transforms make on the way. Files that are
// decoded whole (progressive JPEGs, other formats) and larger than a megapixel share the
// scratch memory, an eighth of Config.Memory, of which a worker takes what an image needs
// while it decodes. For an image that may need more than all of that, the scheduler takes
// the rest from the pool with its batch, in the plan's order, and it has the scratch to
// itself: an outlier slows its batch, and no more than its batch. What it has left is given
// back to the system before the pool has its memory again.
//
// The scheduler knows of an image what stands in the index: dimensions and format. Where
// they do not, an image that is larger than the scratch memory is not in the budget, but
// the only one of its kind at a time.

const (
	// jpegBytes is what a progressive JPEG takes for each pixel: coefficients of three
	// whole components, and what goes with them.
	jpegBytes = 8
	// otherBytes is what another format takes: 3 bytes of the image, and as much as the
	// standard library takes for 16 bits and an alpha channel.
	otherBytes = 11
	// smallPixels is how large an image is that a worker has room for, at half of
	// otherBytes for each pixel, as most are smaller and simpler.
	smallPixels = 1 << 20
	// Of the pictures that a worker makes together with others, where the transforms do
	// more than to crop, scale and flip: how many there are at a time, what is decoded of
	// one, and what the transforms make of that, which is done for one after the other.
	// Pictures that need more are made alone.
	inHand    = 5
	headBytes = 1 << 20
	restBytes = 4 << 20
	// roomBytes is what each worker has room for.
	roomBytes = smallPixels*otherBytes/2 + inHand*headBytes + restBytes
	// autoScratch is the Config.Memory by which scratch memory is measured where that is
	// left to the reader: 128 MiB.
	autoScratch = 1 << 30
)

// scratchMemory is what workers decode into.
type scratchMemory struct {
	size int64 // that large images share
	// small is what all workers need for small ones.
	small int64
	// each is what a worker keeps between images.
	each int64
}

// newScratchMemory divides a Config.Memory. Where that is little, small images have less
// than they may need.
func newScratchMemory(memory int64, workers int) scratchMemory {
	if memory == 0 {
		memory = autoScratch
	}
	n := int64(workers)
	s := scratchMemory{size: memory / 8, small: min(memory/8, n*roomBytes)}
	s.each = (s.size + s.small) / n
	return s
}

// decodeCost is what decoding an image may take, by what an index says of it; 0 where
// that is little, or not known.
func decodeCost(format string, width, height int32) int64 {
	pixels := int64(width) * int64(height)
	switch {
	case pixels <= smallPixels:
		return 0
	case format == imaging.JPEG:
		return pixels * jpegBytes
	case format == imaging.PNM: // as a rule it is not decoded at all
		return 0
	}
	return pixels * otherBytes
}

// over is what the largest of a job's images may need beyond the scratch memory.
func (s *scheduler) over(j *job) (bytes int64) {
	for i := range j.slots {
		bytes = max(bytes, s.loaded[j.shards[i]].costs[int32(s.rowOf[i])]-s.reader.scratch.size)
	}
	return bytes
}

// cost is what decoding a picture by itself takes; 0 where that is little.
func (p *picture) cost(info imaging.Info) (bytes int64) {
	pixels := int64(info.Width) * int64(info.Height)
	switch {
	case direct(info):
	case info.Format != imaging.JPEG:
		bytes = pixels * otherBytes
	case info.Coding == "progressive":
		bytes = pixels * jpegBytes
	}
	head, rest := p.further()
	bytes += head + rest
	if bytes <= smallPixels*otherBytes/2 {
		return 0
	}
	return bytes
}

// further is what a picture takes where its head is not all: what is decoded of it, and
// what the transforms make of that.
func (p *picture) further() (head, rest int64) {
	if p.head.Whole {
		return 0, 0
	}
	return 3 * int64(p.head.Width) * int64(p.head.Height), p.recipe.Scratch()
}

// alone says that a picture takes too much memory to be made together with others.
func (p *picture) alone() bool {
	head, rest := p.further()
	return head > headBytes || rest > restBytes
}

// decodeAlone makes a picture that is drawn, which may be large, by itself.
func (w *worker) decodeAlone(p *picture, info imaging.Info, file []byte) error {
	cost := p.cost(info)
	if cost == 0 {
		return w.imager.decode(p, info, file)
	}
	s := &w.reader.scratch
	take := min(cost, s.size)
	if err := w.large.Acquire(w.ctx, take); err != nil {
		return err
	}
	defer func() {
		if cost > s.each {
			w.imager.shrink()
		}
		if cost > s.size {
			debug.FreeOSMemory()
		}
		w.large.Release(take)
	}()
	return w.imager.decode(p, info, file)
}

// shrink drops memory that an image has grown.
func (m *imager) shrink() {
	m.decoded, m.made, m.workspace, m.alone = imaging.Image{}, imaging.Image{}, transform.Workspace{}, nil
}
