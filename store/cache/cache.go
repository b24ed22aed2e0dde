// Package cache wraps a remote or slow store so that what is read of an object
// stays on a local disk, where the next epoch, and every other process of the
// host, finds it.
//
// Call [New] with the folder and the bytes it may hold, and use the [Store] in
// place of the inner one. Where the caller knows what an object is (a manifest
// says its size and checksum), [Store.Expect] spares the question: then an epoch of
// which all is on the disk asks the inner store nothing at all.
//
// # What is promised
//
//   - A byte is what the inner store said, or is fetched again: each block has a
//     CRC-64/NVME, taken when it came and compared before the first use after
//     opening (Config.CheckAlways: before every use). A block that is cut, lost in
//     a power failure or rotten is dropped, counted and fetched again.
//   - A block is fetched once, however many goroutines and processes want it. Those
//     that come later wait for it; but no longer than Config.Patience, then they
//     fetch for themselves.
//   - The folder never holds more than Config.Bytes, over all processes, counted
//     before anything is written. To make room, objects go in the order of when
//     they were last open; one that a process has open stays.
//   - A process may be killed at any moment: what it was fetching is fetched by the
//     next that wants it.
//   - The disk is never the reason why a read fails. Where it is full, read-only or
//     broken, or all of Bytes is taken by open objects, reads go to the inner store,
//     and [Stats] says so.
//   - Versions are never mixed. An object is known by the inner store's URL, its
//     name, size and ModTime; one without a ModTime is not kept, nor one so young
//     that another version could have the same (Config.Settle). One told to Expect
//     is known by its version instead.
//
// Bytes that come wrong from the inner store are kept as they came. Who finds that
// by a checksum of the content reads again under [Fresh].
//
// # Blocks, not shards
//
// The unit is a block (Config.Block). Fetching whole shards would serve a reader
// that takes all of a shard in order, but in `global` order the first batch of 256
// samples would wait for as many whole shards. With blocks a sequential reader's
// missing ones come in one request, as large as what it asked for; a random
// reader's request grows by half a block at either end, and what it brought more
// than the sample needed serves its neighbours. Either way each byte of the data
// set comes once.
//
// # On the disk
//
//	DIR/CACHEDIR.TAG    tells backup programs to leave the folder out
//	DIR/lock            held (flock) for the microseconds of a change in what follows
//	DIR/used            bytes that all objects' files may take (8 bytes)
//	DIR/users/ID        held (flock) by the Store ID until it or its process ends
//	DIR/objects/KEY     one version of one object; held (flock, shared) while open
//
// KEY is the start of the SHA-256 of the identity. An object's file is sparse, and
// as long as all of it would be; its last use is its time. All numbers are
// little-endian; C is the number of blocks:
//
//	 0      8    "SHCACHE1"
//	 8      8    bytes of this file that are counted in DIR/used
//	16      4    size of a block
//	20      4    length of the identity
//	24      8    size of the object
//	32      …    identity: URL, name, size, version; then zeros up to a multiple of 8
//	A     8×C    checks: of each block its CRC-64/NVME; 0: it is not here
//	B     8×C    claims: 0: no room is taken for the block; 1: room is taken;
//	             other: also, the Store of that ID is fetching it
//	D       …    the blocks, from a multiple of 4096 on
//
// A claim is made under DIR/lock, after its bytes have been counted in DIR/used and
// in the file; whoever has it writes the block, then its check, then 1. A claim of
// an ID that nobody holds is free to take. So whatever a killed process has left
// is at worst counted too high, and counted anew when something has to go, or when
// the folder is opened while nobody uses it. Nothing calls fsync: the checks find
// what a power failure took.
//
// DIR lies on a local disk. Whoever may write there decides what is read.
package cache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"shardify/store"
)

// ErrChanged: the inner store's object is not the one told to Expect.
var ErrChanged = errors.New("the object is not the expected one")

// Defaults of a zero Config.
const (
	// DefaultBlock makes a sample of 110 KB touch 1.4 blocks, so that a random
	// reader's request is about three times what it needs, for two thirds of the
	// requests of an epoch that it would need without.
	DefaultBlock = 256 << 10
	// DefaultPatience is longer than 8 MiB take at 10 Mbit/s.
	DefaultPatience = 10 * time.Second
	// DefaultSettle is twice the step of ModTime in HTTP and S3.
	DefaultSettle = 2 * time.Second
)

// maxFetch is the most that one request to the inner store brings, if a block is no
// larger; it bounds the memory of one ReadAt.
const maxFetch = 8 << 20

// pause is how long a disk that could not be written to is left alone.
const pause = 10 * time.Second

// Config says where and how much. Dir and Bytes are required. Times are
// nanoseconds in JSON.
type Config struct {
	// Dir is the folder; it is made if missing. Give every process of the host the
	// same, with the same Bytes and Block.
	Dir string `json:"dir"`
	// Bytes is the most that the folder may hold. More than the data set: every
	// byte is fetched once. Less: shards that are open at the same time, and do not
	// fit, are read from the inner store in part.
	Bytes int64 `json:"bytes"`
	// Block is the unit of fetching and checking, a multiple of 4096 up to 64 MiB.
	// 0: DefaultBlock.
	Block int64 `json:"block,omitempty"`
	// CheckAlways compares a block with its checksum before every use, not only
	// before the first after opening.
	CheckAlways bool `json:"check_always,omitempty"`
	// Patience is how long a read waits for a block that another one is fetching,
	// or for the folder's lock. 0: DefaultPatience.
	Patience time.Duration `json:"patience,omitempty"`
	// Settle is the age, by this host's clock, from which on an object is kept:
	// longer than the step of the store's ModTime and than its clock may be behind.
	// 0: DefaultSettle; -1: any age, for stores of which each version has its own
	// ModTime.
	Settle time.Duration `json:"settle,omitempty"`
}

// Validate reports every fault of c.
func (c Config) Validate() error {
	var faults []error
	if c.Dir == "" {
		faults = append(faults, errors.New("dir: missing; name a folder on a local disk"))
	}
	if c.Bytes <= 0 {
		faults = append(faults, fmt.Errorf("bytes: %d; say how many bytes the folder may hold", c.Bytes))
	}
	if c.Block != 0 && (c.Block < page || c.Block > 64<<20 || c.Block%page != 0) {
		faults = append(faults, fmt.Errorf("block: %d is no multiple of %d up to 64 MiB", c.Block, page))
	}
	if c.Patience < 0 {
		faults = append(faults, fmt.Errorf("patience: %v is negative", c.Patience))
	}
	if c.Settle < -1 {
		faults = append(faults, fmt.Errorf("settle: %v is negative; -1 means any age", c.Settle))
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	if c.Block == 0 {
		c.Block = DefaultBlock
	}
	if c.Patience == 0 {
		c.Patience = DefaultPatience
	}
	if c.Settle == 0 {
		c.Settle = DefaultSettle
	}
	return c
}

// Stats counts since New, for this Store alone.
type Stats struct {
	Reads        int64 `json:"reads"`         // ReadAt of objects
	Hits         int64 `json:"hits"`          // of those, the ones for which nothing was fetched
	DiskBytes    int64 `json:"disk_bytes"`    // returned by ReadAt out of the folder
	Fetches      int64 `json:"fetches"`       // ReadAt of the inner store
	FetchedBytes int64 `json:"fetched_bytes"` // bytes that they brought
	Bypasses     int64 `json:"bypasses"`      // of Fetches, those whose bytes were not kept
	Waits        int64 `json:"waits"`         // waits for what another process or goroutine was fetching
	Corrupt      int64 `json:"corrupt"`       // blocks dropped for not being what was fetched
	Evictions    int64 `json:"evictions"`     // objects dropped to make room
	EvictedBytes int64 `json:"evicted_bytes"` // bytes that it gave
	NoSpace      int64 `json:"no_space"`      // times that the disk was full
	Faults       int64 `json:"faults"`        // times that the folder could not be used otherwise
	// Warning is the last such fault, for people; "" if there was none.
	Warning string `json:"warning,omitempty"`
}

type counters struct {
	reads, hits, diskBytes, fetches, fetchedBytes, bypasses, waits, corrupt,
	evictions, evictedBytes, noSpace, faults atomic.Int64
	warning atomic.Pointer[string]
}

// Store is a store whose objects are kept on a local disk once read.
type Store struct {
	store.Store // what is not kept
	c           Config
	folder      folder
	buffers     sync.Pool // of *[]byte

	mu       sync.Mutex
	entries  map[string]*entry // open ones by key
	expected map[string]expectation
	counters counters
}

type expectation struct {
	size    int64
	version string
}

var _ store.Store = (*Store)(nil)

// New wraps inner, whose URL must name it alike in every process: give a store in
// a folder its absolute path. It makes c.Dir; that it cannot, or may not write
// there, is an error. A full disk, or a lock that is not free, is only counted.
func New(inner store.Store, c Config) (*Store, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("cache of %s: %w", inner.URL(), err)
	}
	c = c.withDefaults()
	s := &Store{Store: inner, c: c, entries: map[string]*entry{}, expected: map[string]expectation{}}
	s.folder = folder{path: c.Dir, bytes: c.Bytes, patience: c.Patience, counters: &s.counters, turn: make(chan struct{}, 1)}
	err := s.folder.locked(context.Background(), s.folder.register)
	switch {
	case noSpace(err), errors.Is(err, errHeld):
		s.folder.trouble(err)
	case err != nil:
		return nil, fmt.Errorf("cache of %s: %w; name a folder that this process may write to", inner.URL(), err)
	}
	return s, nil
}

// Close says that the Store is not used any more; the end of the process does the
// same. Objects that are open stay so.
func (s *Store) Close() error { return s.folder.leave() }

// Stats returns the counters as they are now.
func (s *Store) Stats() Stats {
	c := &s.counters
	out := Stats{
		Reads:        c.reads.Load(),
		Hits:         c.hits.Load(),
		DiskBytes:    c.diskBytes.Load(),
		Fetches:      c.fetches.Load(),
		FetchedBytes: c.fetchedBytes.Load(),
		Bypasses:     c.bypasses.Load(),
		Waits:        c.waits.Load(),
		Corrupt:      c.corrupt.Load(),
		Evictions:    c.evictions.Load(),
		EvictedBytes: c.evictedBytes.Load(),
		NoSpace:      c.noSpace.Load(),
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
		o := s.object(store.Info{Name: name, Size: want.size})
		if err := o.keep(ctx, "version "+want.version); err != nil {
			return nil, err
		}
		return o, nil
	}
	inner, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	o := s.object(inner.Info())
	o.inner = inner
	t := o.info.ModTime
	if t.IsZero() || s.c.Settle >= 0 && time.Since(t) < s.c.Settle {
		return o, nil
	}
	if err := o.keep(ctx, fmt.Sprintf("time %d.%09d", t.Unix(), t.Nanosecond())); err != nil {
		inner.Close()
		return nil, err
	}
	return o, nil
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

// List yields the inner store's objects.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return s.Store.List(ctx, prefix)
}

// fault is err, of the operation op on an object, for the user's eyes.
func (s *Store) fault(op, name string, err error) error {
	return fmt.Errorf("%s %s/%s: %w", op, s.URL(), name, err)
}

// buffer returns n bytes of memory, to be given back to s.buffers.
func (s *Store) buffer(n int64) *[]byte {
	b, ok := s.buffers.Get().(*[]byte)
	if !ok || int64(cap(*b)) < n {
		b = new([]byte)
		*b = make([]byte, n)
	}
	*b = (*b)[:n]
	return b
}
