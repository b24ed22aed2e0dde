package tars

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"shardify/shard"
	"shardify/shard/compress"
	"shardify/source"
	"shardify/source/folder"
	"shardify/store"
	"shardify/store/ahead"
)

const (
	// spoolSize is how many bytes of shards a spool holds before it drops one: four
	// shards of the usual size, so that several goroutines can go from one shard to
	// the next without any being decompressed anew.
	spoolSize = 4 << 30
	// spoolBlock is the unit in which room in the spool is given out. What the last
	// block of a shard leaves free takes no room on most file systems.
	spoolBlock = 256 << 10
	// maxLacks is how often a shard may come back that was dropped because the disk
	// was full.
	maxLacks = 2
)

// spool keeps decompressed shards in one temporary file, which is made when it is
// first needed. When its limit is reached it drops those not used for longest. A
// dropped shard that is needed again doubles the limit. So, of n shards that need m
// times the first limit, at most n + n + log2 m are decompressed: each once, each
// that was dropped before the limit was large enough a second time, and those that
// doubled it. If the disk is full first, a shard is dropped maxLacks+1 times at most.
type spool struct {
	dir string // "" for the system's

	mu     sync.Mutex
	limit  int64
	file   *os.File
	path   string // of file, where it could not be removed at once
	closed bool
	blocks int64     // in file, used or not
	free   []int64   // those not used, to be taken from the end
	held   list.List // of *kept, the last used last
}

// kept is a shard in the spool.
type kept struct {
	// turn is held while the shard is decompressed.
	turn chan struct{}

	// All below belongs to the spool's mu, but content does not change while there
	// are users.
	content
	place   *list.Element // in held; nil if the shard is not in the spool
	users   int
	dropped bool  // at the limit
	lacks   int   // how often it was dropped because the disk was full
	full    error // what was said about the disk then
}

// content is what a shard holds.
type content struct {
	blocks []int64
	size   int64
	// damage is why it ends there, if not because the shard does.
	damage error
	// stamp is that of the shard.
	stamp int64
}

// read fills p from loc on. It is an error that wraps store.ErrNoSpace if the shard
// does not fit into the spool.
func (s *spool) read(ctx context.Context, f *file, loc source.Location, p []byte) error {
	k := &f.access.kept
	stamp := loc.ModTime // of an object, whose version was compared when it was read
	if f.st == nil {
		info, err := os.Stat(f.path)
		if err != nil {
			return folder.ReadError(loc, err)
		}
		stamp = info.ModTime().UnixNano()
		if loc.ModTime != 0 && stamp != loc.ModTime {
			return faultAt(loc, source.ErrChanged)
		}
	}
	if err := s.hold(ctx, f, loc); err != nil {
		return err
	}
	defer s.release(k)
	if k.stamp != stamp {
		return faultAt(loc, fmt.Errorf("%w, and since it was decompressed", source.ErrChanged))
	}
	if loc.Offset > k.size-int64(len(p)) {
		if k.damage != nil {
			return faultAt(loc, k.damage)
		}
		return faultAt(loc, shard.ErrTruncated)
	}
	return s.readAt(k.blocks, p, loc.Offset)
}

// readAt reads from a run of blocks at a time.
func (s *spool) readAt(blocks []int64, p []byte, off int64) error {
	for len(p) > 0 {
		first := off / spoolBlock
		run := int64(1)
		most := (off%spoolBlock + int64(len(p)) + spoolBlock - 1) / spoolBlock
		for run < most && blocks[first+run] == blocks[first]+run {
			run++
		}
		n := min(int64(len(p)), run*spoolBlock-off%spoolBlock)
		if m, err := s.file.ReadAt(p[:n], blocks[first]*spoolBlock+off%spoolBlock); int64(m) < n {
			return fmt.Errorf("a temporary file of decompressed shards: %w", err)
		}
		p = p[n:]
		off += n
	}
	return nil
}

// hold has the shard decompressed, if it is not, and keeps it from being dropped
// until release.
func (s *spool) hold(ctx context.Context, f *file, loc source.Location) error {
	k := &f.access.kept
	if s.use(k) {
		return nil
	}
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.use(k) { // another reader has done it
		return nil
	}
	return s.fill(ctx, f, loc)
}

// use takes the shard into use if it is in the spool.
func (s *spool) use(k *kept) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.place == nil {
		return false
	}
	k.users++
	s.held.MoveToBack(k.place)
	return true
}

func (s *spool) release(k *kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.users--
}

// fill decompresses a shard into the spool and takes it into use.
func (s *spool) fill(ctx context.Context, f *file, loc source.Location) error {
	if err := s.begin(f); err != nil {
		return err
	}
	h, err := f.open(ctx, loc.ModTime)
	if err != nil {
		return readError(loc, err)
	}
	defer h.Close()
	size, stamp, err := h.state()
	if err != nil {
		return readError(loc, err)
	}
	in := &inOrder{handle: h, f: h.front(ctx, ahead.Ranges), n: &f.access.cost}
	defer in.f.Close()
	stream, err := decompressed(ctx, in, size, f.format.Compression)
	if err != nil {
		return readError(loc, err)
	}
	defer stream.Close()
	c := content{stamp: stamp}
	defer func() { s.giveBack(c.blocks) }()
	for buf := make([]byte, spoolBlock); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(stream, buf)
		if n > 0 {
			block, err := s.write(f, buf[:n])
			if err != nil {
				return err
			}
			c.blocks = append(c.blocks, block)
			c.size += int64(n)
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if in.fail != nil {
				return readError(loc, in.fail)
			}
			c.damage = err
			break
		}
	}
	if errors.Is(c.damage, shard.ErrChecksum) {
		s.giveBack(c.blocks) // any of it may be wrong
		c.blocks, c.size = nil, 0
	}
	if sizeNow, stampNow, err := h.state(); err != nil {
		return readError(loc, err)
	} else if sizeNow != size || stampNow != stamp {
		return faultAt(loc, source.ErrChanged)
	}
	s.keep(&f.access.kept, c)
	c.blocks = nil
	return nil
}

// decompressed streams what is compressed in the size bytes of r: by its seek table,
// which has checksums that the frames may lack, if it has one.
func decompressed(ctx context.Context, r compress.Source, size int64, kind string) (io.ReadCloser, error) {
	at, err := compress.NewSourceReader(ctx, r, size, kind, nil)
	if err != nil {
		return nil, err
	}
	if n := at.Size(); n >= 0 {
		return io.NopCloser(io.NewSectionReader(withContext{ctx, at}, 0, n)), nil
	}
	return compress.NewReader(io.NewSectionReader(withContext{ctx, r}, 0, size), kind)
}

// begin makes the file, and learns of shards that return.
func (s *spool) begin(f *file) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &f.access.kept
	if k.lacks > maxLacks {
		return s.noRoom(f, k.full)
	}
	if k.dropped {
		k.dropped = false
		s.limit = max(2*s.limit, (s.blocks-int64(len(s.free)))*spoolBlock+k.size)
	}
	if s.closed {
		return os.ErrClosed
	}
	if s.file != nil {
		return nil
	}
	file, err := os.CreateTemp(s.dir, "shardify-shards-")
	if noSpace(err) {
		return s.noRoom(f, err)
	}
	if err != nil {
		return fmt.Errorf("a temporary file for decompressed shards: %w; set --temp-dir", err)
	}
	s.file = file
	if os.Remove(file.Name()) != nil {
		s.path = file.Name()
	}
	return nil
}

// noRoom makes the error for a shard that does not fit.
func (s *spool) noRoom(f *file, err error) error {
	tool := "gunzip"
	if f.format.Compression == compress.Zstd {
		tool = "zstd -d"
	}
	dir := s.dir
	if dir == "" {
		dir = os.TempDir()
	}
	return fmt.Errorf("%q cannot be read at offsets, and is decompressed to a temporary file in %q: %w (%w); give --temp-dir a folder with more room, decompress the shards with %s first, or keep to --order path, which needs few of them at a time",
		f.path, dir, store.ErrNoSpace, err, tool)
}

// write writes p into a block of its own.
func (s *spool) write(f *file, p []byte) (block int64, err error) {
	for {
		block := s.take()
		_, err := s.file.WriteAt(p, block*spoolBlock)
		if err == nil {
			return block, nil
		}
		s.mu.Lock()
		// It may be one that the disk has no room for: others are to be taken before.
		s.free = slices.Insert(s.free, 0, block)
		again := noSpace(err) && s.drop(err)
		s.mu.Unlock()
		if again {
			continue
		}
		if noSpace(err) {
			return 0, s.noRoom(f, err)
		}
		return 0, fmt.Errorf("a temporary file for decompressed shards: %w", err)
	}
}

// take returns a block that is not used.
func (s *spool) take() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.free) == 0 && (s.blocks+1)*spoolBlock > s.limit && s.drop(nil) {
	}
	if n := len(s.free) - 1; n >= 0 {
		block := s.free[n]
		s.free = s.free[:n]
		return block
	}
	s.blocks++
	return s.blocks - 1
}

// drop drops the shard that was not used for longest, because the disk is full or,
// if that is nil, because the limit is reached; false if all are in use.
func (s *spool) drop(full error) bool {
	for e := s.held.Front(); e != nil; e = e.Next() {
		k := e.Value.(*kept)
		if k.users > 0 {
			continue
		}
		s.held.Remove(e)
		s.recycle(k.blocks)
		k.place, k.blocks = nil, nil
		if full != nil {
			k.lacks++
			k.full = full
		} else {
			k.dropped = true
		}
		return true
	}
	return false
}

// giveBack says that blocks are not used any more.
func (s *spool) giveBack(blocks []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recycle(blocks)
}

// recycle frees blocks so that they are taken again in their order.
func (s *spool) recycle(blocks []int64) {
	for _, b := range slices.Backward(blocks) {
		s.free = append(s.free, b)
	}
}

// keep takes a shard into the spool, and into use.
func (s *spool) keep(k *kept, c content) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.content = c
	k.place = s.held.PushBack(k)
	k.users = 1
}

// close removes the file.
func (s *spool) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	if s.path != "" {
		err = errors.Join(err, os.Remove(s.path))
	}
	return err
}
