package reader

import (
	"container/list"
	"context"
	"sync"

	"shardify/dataset"
)

// maxOpen bounds the shards that are kept open while nobody reads them; systems
// allow 256 files and more.
const maxOpen = 128

// files keeps the shards that were read last open, for all passes of a reader.
type files struct {
	open func(ctx context.Context, key fileKey) (openFile, error)

	mu      sync.Mutex
	entries map[fileKey]*fileEntry
	recent  *list.List // of *fileEntry, the last used in front
	idle    int        // those that nobody uses
	closed  bool
}

// fileKey is a shard, and which of several files open on it; pointsStream is its side
// file.
type fileKey struct{ shard, stream int32 }

// openFile is a shard, or its side file.
type openFile struct {
	file   *dataset.ShardFile
	points *dataset.SeekFile
}

func (f openFile) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if f.points != nil {
		return f.points.ReadAt(ctx, p, off)
	}
	return f.file.ReadAt(ctx, p, off)
}

func (f openFile) Close() error {
	if f.points != nil {
		return f.points.Close()
	}
	return f.file.Close()
}

// openFile opens a shard or its side file.
func (r *Reader) openFile(ctx context.Context, key fileKey) (f openFile, err error) {
	if key.stream == pointsStream {
		f.points, err = r.setOf(int(key.shard)).data.OpenSeek(ctx, &r.split.Shards[key.shard])
	} else {
		f.file, err = r.openShard(ctx, key.shard)
	}
	return f, err
}

type fileEntry struct {
	key fileKey
	openFile
	users int
	at    *list.Element
	ready chan struct{}
	err   error
}

func newFiles(open func(ctx context.Context, key fileKey) (openFile, error)) *files {
	return &files{open: open, entries: map[fileKey]*fileEntry{}, recent: list.New()}
}

// acquire returns an open shard for use until release.
func (f *files) acquire(ctx context.Context, key fileKey) (*fileEntry, error) {
	for {
		f.mu.Lock()
		e := f.entries[key]
		if e == nil {
			e = &fileEntry{key: key, users: 1, ready: make(chan struct{})}
			e.at = f.recent.PushFront(e)
			f.entries[key] = e
			f.mu.Unlock()
			e.openFile, e.err = f.open(ctx, key)
			if e.err != nil {
				f.mu.Lock()
				f.remove(e)
				f.mu.Unlock()
			}
			close(e.ready)
			return e, e.err
		}
		if e.users++; e.users == 1 {
			f.idle--
		}
		f.mu.Unlock()
		select {
		case <-e.ready:
		case <-ctx.Done():
			f.abandon(e)
			return nil, context.Cause(ctx)
		}
		if e.err == nil {
			return e, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		// The one that opened it may have been cancelled: try for ourselves.
	}
}

// abandon is release for one that may not be open yet.
func (f *files) abandon(e *fileEntry) {
	f.mu.Lock()
	if e.users > 1 || f.entries[e.key] != e {
		// Whoever opens it is a user, too, or it could not be opened.
		e.users--
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()
	f.release(e)
}

func (f *files) release(e *fileEntry) {
	f.mu.Lock()
	var old []*fileEntry
	if e.users--; e.users == 0 {
		f.idle++
		f.recent.MoveToFront(e.at)
		old = f.shed()
	}
	f.mu.Unlock()
	for _, e := range old {
		_ = e.Close() // it was only read
	}
}

// shed takes out the idle files that are too many.
func (f *files) shed() (old []*fileEntry) {
	limit := maxOpen
	if f.closed {
		limit = 0
	}
	for at := f.recent.Back(); at != nil && f.idle > limit; {
		e := at.Value.(*fileEntry)
		at = at.Prev()
		if e.users == 0 {
			f.remove(e)
			f.idle--
			old = append(old, e)
		}
	}
	return old
}

func (f *files) remove(e *fileEntry) {
	f.recent.Remove(e.at)
	delete(f.entries, e.key)
}

// close closes the files, those in use when they are released.
func (f *files) close() error {
	f.mu.Lock()
	f.closed = true
	old := f.shed()
	f.mu.Unlock()
	var first error
	for _, e := range old {
		if err := e.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
