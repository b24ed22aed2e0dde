// Package cache wraps a remote or slow store so that what is read of an object
// stays on a local disk, where the next epoch, and every other process of the
// host, finds it.
//
// Call [New] with a folder and the bytes it may hold, and use the [Store] in place
// of the inner one. Where the caller knows what an object is (a manifest says its
// size and checksum), [Store.Expect] spares the question: an epoch of which all is
// on the disk then asks the inner store nothing at all. The inner store should be
// one that tries again (store/retry): what fails below the cache fails above it.
//
// # What is promised
//
//   - A byte is what the inner store said, or is fetched again: whatever is read
//     from the disk is compared with checksums that were taken when it came. What
//     is cut, lost in a power failure or rotten is counted and replaced.
//   - A block is fetched once, however many goroutines and processes want it. Those
//     that come later wait for it; but no longer than 10 seconds, then they fetch
//     for themselves.
//   - The folder's blocks never take more than Config.MaxBytes, over all processes.
//     Room is taken before anything is written; to make it, blocks go that were not
//     used for longest. A reader whose block goes fetches it again, and sees no
//     error.
//   - A process may be killed at any moment: what it was fetching is fetched by the
//     next that wants it.
//   - The disk is never the reason why a read fails. Where it is full, read-only or
//     broken, what is there is read, all else comes from the inner store, and
//     [Stats] says so.
//   - Versions are never mixed. An object is known by the inner store's URL, its
//     name, its size, and what Expect said of it or else its ModTime. One without
//     either is not kept, nor one so young that another version could have the same
//     ModTime.
//
// Bytes that come wrong from the inner store are kept as they came. Who finds that
// by a checksum of the content reads again under [Fresh].
//
// # Blocks, not shards
//
// The unit is a block (Config.Block): a reader that wants one sample out of a shard
// does not wait for all of it. Neighbouring blocks that are missing come in one
// request, as large as what was asked for, rounded to whole blocks. So a reader that
// goes through a shard in order makes the requests it would have made, and each byte
// of the data set comes once.
//
// # On the disk
//
//	DIR/CACHEDIR.TAG      tells backup programs to leave the folder out
//	DIR/lock              held (flock) for the microseconds of a change in DIR/used
//	DIR/used              256 numbers of 8 bytes: what the files of each folder may take
//	DIR/blocks/XX/KEY     one block; held (flock) while it is being filled
//
// KEY is the start of the SHA-256 of (URL, name, size, version, number of the block,
// Config.Block), XX the start of KEY. The time of a block's file is that of its last
// use, to within 10 seconds. The file, all numbers little-endian:
//
//	 0     8    "SHBLOCK1"
//	 8    32    that SHA-256
//	40     8    n, the bytes of the block
//	48   8×c    CRC-64/NVME of each 4096 bytes of the block, the last ones may be fewer
//	 …     8    CRC-64/NVME of all before
//	 H     n    the block, from the next multiple of 4096 on
//
// Who makes the file counts it in DIR/used first, then gives it its full length;
// who has its lock writes the block, then what stands before it. So a file that
// begins with zeros and is locked is on its way; one that is not locked was left by
// a process that was killed, and is anybody's to fill. Whatever happens, DIR/used
// says no less than what is there; who makes room counts anew. Nothing calls fsync:
// the checksums find what a power failure took.
//
// Files and folders may be removed at any time, all of DIR included. DIR lies on a
// local disk. Whoever may write there decides what is read.
package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"shardify/store"
)

// ErrChanged: the inner store's object is not the one told to Expect.
var ErrChanged = errors.New("the object is not the expected one")

// Defaults of a zero Config.
const (
	// DefaultMaxBytes has room for most data sets of a few million photographs.
	DefaultMaxBytes = 100e9
	// DefaultBlock takes S3 about as long to begin sending as to send, so that larger
	// ones would make a random reader wait longer, and smaller ones no less.
	DefaultBlock = 1 << 20
)

const (
	// maxFetch is the most that one request to the inner store brings, unless a block
	// is larger. It bounds the locks that are held at once.
	maxFetch = 8 << 20
	maxBlock = 8 << 20
	// patience is longer than 8 MiB take at 10 Mbit/s.
	patience = 10 * time.Second
	// pause is how long a disk that could not be written to is left alone.
	pause = 10 * time.Second
	// settle is the age, by this host's clock, from which on an object is kept that is
	// known by its ModTime: twice the step of that in HTTP and S3.
	settle = 2 * time.Second
)

// Config says where and how much. Dir is required by [New].
type Config struct {
	// Dir is the folder, on a local disk; it is made if missing. Give every process
	// of the host the same, with the same MaxBytes and Block.
	Dir string `json:"dir,omitempty"`
	// MaxBytes is the most that the blocks in Dir may take. More than the data set:
	// every byte is fetched once. 0: DefaultMaxBytes.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// Block is the unit of fetching and keeping, a multiple of 4096 up to 8 MiB. 0:
	// DefaultBlock. Smaller ones serve random reads of a data set that is much larger
	// than MaxBytes.
	Block int64 `json:"block,omitempty"`
}

// Validate reports every fault of c.
func (c Config) Validate() error {
	var faults []error
	if c.Dir == "" {
		faults = append(faults, errors.New("dir: missing; name a folder on a local disk"))
	}
	if c.MaxBytes < 0 {
		faults = append(faults, fmt.Errorf("max_bytes: %d; say how many bytes the folder may hold, or 0 for %d", c.MaxBytes, int64(DefaultMaxBytes)))
	}
	if c.Block != 0 && (c.Block < page || c.Block > maxBlock || c.Block%page != 0) {
		faults = append(faults, fmt.Errorf("block: %d is no multiple of %d up to %d", c.Block, page, maxBlock))
	}
	return errors.Join(faults...)
}

// withDefaults fills in what is left to the package.
func (c Config) withDefaults() Config {
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	if c.Block == 0 {
		c.Block = DefaultBlock
	}
	return c
}

// Buffer is the most memory that a ReadAt of n bytes takes beside the caller's.
func (c Config) Buffer(n int64) int64 { return min(n, maxFetch) + 2*c.withDefaults().Block }

// Stats counts since New, for this Store alone.
type Stats struct {
	// Hits are the ReadAt of objects for which nothing was fetched, Misses the others.
	Hits   int64 `json:"hits"`
	Misses int64 `json:"misses"`
	// CacheBytes were read from the disk, OriginBytes from the inner store, in so
	// many OriginReads. UnkeptBytes of OriginBytes did not stay on the disk.
	CacheBytes  int64 `json:"cache_bytes"`
	OriginBytes int64 `json:"origin_bytes"`
	OriginReads int64 `json:"origin_reads"`
	UnkeptBytes int64 `json:"unkept_bytes"`
	// Waits are reads that found another goroutine or process at fetching what they
	// wanted.
	Waits int64 `json:"waits"`
	// Corrupt blocks on the disk were not what had been fetched, and replaced.
	Corrupt int64 `json:"corrupt"`
	// Evictions are blocks that were removed to make room, of EvictedBytes.
	Evictions    int64 `json:"evictions"`
	EvictedBytes int64 `json:"evicted_bytes"`
	// Faults is how often the folder could not be used; the cache rests for ten
	// seconds after each. Warning is the last one, for people.
	Faults  int64  `json:"faults"`
	Warning string `json:"warning,omitempty"`
}

// Add adds what another Store has counted.
func (s *Stats) Add(t Stats) {
	s.Hits += t.Hits
	s.Misses += t.Misses
	s.CacheBytes += t.CacheBytes
	s.OriginBytes += t.OriginBytes
	s.OriginReads += t.OriginReads
	s.UnkeptBytes += t.UnkeptBytes
	s.Waits += t.Waits
	s.Corrupt += t.Corrupt
	s.Evictions += t.Evictions
	s.EvictedBytes += t.EvictedBytes
	s.Faults += t.Faults
	if t.Warning != "" {
		s.Warning = t.Warning
	}
}

type counters struct {
	hits, misses, cacheBytes, originBytes, originReads, unkeptBytes, waits, corrupt,
	evictions, evictedBytes, faults atomic.Int64
	warning atomic.Pointer[string]
}

// Store is a store whose objects are kept on a local disk once read. It holds
// nothing open and needs no end.
type Store struct {
	store.Store // what is not kept
	url         string
	block       int64
	patience    time.Duration
	folder      folder
	counters    counters

	mu       sync.Mutex
	expected map[string]expectation
}

type expectation struct {
	size    int64
	version string
}

var (
	_ store.Store  = (*Store)(nil)
	_ store.Stater = (*Store)(nil)
)

// New wraps inner. The error is that c is not valid. A folder that cannot be used is
// none: reading goes on without it, and Stats says so.
func New(inner store.Store, c Config) (*Store, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("cache of %s: %w", inner.URL(), err)
	}
	c = c.withDefaults()
	s := &Store{Store: inner, url: inner.URL(), block: c.Block, patience: patience, expected: map[string]expectation{}}
	if !strings.Contains(s.url, ":") {
		// A path, which means the same in every process only as an absolute one.
		if abs, err := filepath.Abs(s.url); err == nil {
			s.url = abs
		}
	}
	s.folder = folder{path: c.Dir, max: c.MaxBytes, sample: evictSample, step: touchStep, patience: lockPatience, counters: &s.counters, turn: make(chan struct{}, 1)}
	if err := s.folder.make(); err != nil {
		s.folder.trouble(err)
	}
	return s, nil
}

// Stats returns the counters as they are now.
func (s *Store) Stats() Stats {
	c := &s.counters
	out := Stats{
		Hits:         c.hits.Load(),
		Misses:       c.misses.Load(),
		CacheBytes:   c.cacheBytes.Load(),
		OriginBytes:  c.originBytes.Load(),
		OriginReads:  c.originReads.Load(),
		UnkeptBytes:  c.unkeptBytes.Load(),
		Waits:        c.waits.Load(),
		Corrupt:      c.corrupt.Load(),
		Evictions:    c.evictions.Load(),
		EvictedBytes: c.evictedBytes.Load(),
		Faults:       c.faults.Load(),
	}
	if w := c.warning.Load(); w != nil {
		out.Warning = *w
	}
	return out
}

// Expect says what the object called name is: how long, and which version, a text
// that no other content of that name and length has, as its checksum in a manifest.
// Open then returns it without asking the inner store, which is opened when
// something is missing; a different length there is ErrChanged. Info has no ModTime
// then. It holds until Create or Remove of the name here.
func (s *Store) Expect(name string, size int64, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expected[name] = expectation{size, version}
}

func (s *Store) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.expected, name)
}

type freshKey struct{}

// Fresh returns a context under which ReadAt fetches what it reads from the inner
// store, also where it is on the disk, and keeps that instead: for a second look
// at content that is not what its checksum says.
func Fresh(ctx context.Context) context.Context { return context.WithValue(ctx, freshKey{}, true) }

// Open opens an object for reading.
func (s *Store) Open(ctx context.Context, name string) (store.Object, error) {
	s.mu.Lock()
	want, known := s.expected[name]
	s.mu.Unlock()
	if known {
		if err := ctx.Err(); err != nil {
			return nil, s.fault("open", name, err)
		}
		return s.object(store.Info{Name: name, Size: want.size}, "version "+want.version, nil), nil
	}
	inner, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	info := inner.Info()
	if t := info.ModTime; !t.IsZero() && time.Since(t) >= settle {
		return s.object(info, fmt.Sprintf("time %d.%09d", t.Unix(), t.Nanosecond()), inner), nil
	}
	return s.object(info, "", inner), nil
}

// Create starts a new object, in the inner store.
func (s *Store) Create(ctx context.Context, name string) (store.Writer, error) {
	s.forget(name)
	return s.Store.Create(ctx, name)
}

// Remove deletes an object from the inner store. What the folder holds of it goes
// when its turn comes.
func (s *Store) Remove(ctx context.Context, name string) error {
	s.forget(name)
	return s.Store.Remove(ctx, name)
}

// Stat asks the inner store.
func (s *Store) Stat(ctx context.Context, name string) (store.Info, error) {
	return store.Stat(ctx, s.Store, name)
}

// List yields the inner store's objects.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return s.Store.List(ctx, prefix)
}

// fault is err, of the operation op on an object, for the user's eyes.
func (s *Store) fault(op, name string, err error) error {
	return fmt.Errorf("%s %s/%s: %w", op, s.URL(), name, err)
}

// cut says that an object ended before its size.
func (s *Store) cut(info store.Info, at int64) error {
	return s.fault("read", info.Name, fmt.Errorf("%w: it ends at byte %d, it had %d when it was opened: something has cut it meanwhile",
		io.ErrUnexpectedEOF, at, info.Size))
}
