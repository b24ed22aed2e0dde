package cache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/minio/crc64nvme"
)

const (
	magic      = "SHCACHE1"
	reservedAt = 8
	identityAt = 32
	keySize    = 16 // bytes of a SHA-256
)

// taken is the claim that says that room is taken for a block which nobody fetches.
const taken = 1

// maxBlocks bounds the blocks of an object that is kept; longer ones (4 TiB by
// default) are not.
const maxBlocks = 1 << 24

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

// check is a block's checksum, never 0.
func check(data []byte) uint64 { return max(crc64nvme.Checksum(data), 1) }

// layout is where things lie in an object's file.
type layout struct {
	head                 []byte // what comes before checks, with 0 bytes counted
	size, block, blocks  int64
	checks, claims, data int64 // offsets
}

func layoutOf(identity string, size, block int64) layout {
	head := make([]byte, roundUp(identityAt+int64(len(identity)), 8))
	copy(head, magic)
	binary.LittleEndian.PutUint32(head[16:], uint32(block))
	binary.LittleEndian.PutUint32(head[20:], uint32(len(identity)))
	binary.LittleEndian.PutUint64(head[24:], uint64(size))
	copy(head[identityAt:], identity)
	l := layout{head: head, size: size, block: block, blocks: roundUp(size, block) / block}
	l.checks = int64(len(head))
	l.claims = l.checks + 8*l.blocks
	l.data = roundUp(l.claims+8*l.blocks, page)
	return l
}

// is says that head is that of a file of this layout.
func (l *layout) is(head []byte) bool {
	return bytes.Equal(head[:reservedAt], l.head[:reservedAt]) && bytes.Equal(head[reservedAt+8:], l.head[reservedAt+8:])
}

// length is the block b's.
func (l *layout) length(b int64) int64 { return min(l.block, l.size-b*l.block) }

// entry is an object's file, open in this Store.
type entry struct {
	layout
	s     *Store
	key   string
	users int           // under s.mu
	ready chan struct{} // closed when file or err is set
	err   error         // why it is not open; nil with a nil file: there is no room
	file  *os.File
	held  *flock.Flock

	sound []atomic.Uint32 // a bit for each block that has been compared with its check

	mu      sync.Mutex
	fetched map[int64]chan struct{} // blocks that this Store is fetching; closed at the end
}

// acquire opens the file of the object that identity names. It returns nil where
// there is none to use; then reads go to the inner store. The error is ctx's.
func (s *Store) acquire(ctx context.Context, identity string, size int64) (*entry, error) {
	sum := sha256.Sum256([]byte(identity))
	key := hex.EncodeToString(sum[:keySize])
	for {
		s.mu.Lock()
		e, ok := s.entries[key]
		if !ok {
			e = &entry{s: s, key: key, layout: layoutOf(identity, size, s.c.Block), ready: make(chan struct{}), fetched: map[int64]chan struct{}{}}
			s.entries[key] = e
		}
		e.users++
		s.mu.Unlock()
		if !ok {
			e.err = s.folder.locked(ctx, e.open)
			if err := ctx.Err(); err != nil && e.file == nil {
				e.err = err
			} else if e.err != nil {
				s.folder.trouble(e.err)
			}
			s.mu.Lock()
			if e.file == nil {
				delete(s.entries, key) // the next one tries again
			}
			s.mu.Unlock()
			close(e.ready)
		}
		select {
		case <-e.ready:
		case <-ctx.Done():
			s.release(e)
			return nil, ctx.Err()
		}
		if e.file != nil {
			return e, nil
		}
		s.release(e)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if ok && (errors.Is(e.err, context.Canceled) || errors.Is(e.err, context.DeadlineExceeded)) {
			continue // that was the end of another's context
		}
		return nil, nil
	}
}

// release ends a use of e; after the last one its file may be evicted.
func (s *Store) release(e *entry) {
	s.mu.Lock()
	e.users--
	last := e.users == 0
	if last && s.entries[e.key] == e {
		delete(s.entries, e.key)
	}
	s.mu.Unlock()
	if !last || e.file == nil {
		return
	}
	e.use()
	e.file.Close()
	if err := e.held.Close(); err != nil {
		s.folder.trouble(err)
	}
	s.folder.full.Store(0) // there may be room now
}

// use says that the file is used now.
func (e *entry) use() {
	now := time.Now()
	if err := os.Chtimes(e.s.folder.at(objectsDir, e.key), now, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.s.folder.trouble(err)
	}
}

// open opens or makes the file. It is called under the folder's lock.
func (e *entry) open() error {
	f := &e.s.folder
	if err := f.register(); err != nil {
		return err
	}
	path := f.at(objectsDir, e.key)
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil && !e.fits(file) {
		file.Close()
		if err := os.Remove(path); err != nil {
			return err
		}
		err = fs.ErrNotExist
	}
	if errors.Is(err, fs.ErrNotExist) {
		file, err = e.create(path)
	}
	if err != nil || file == nil {
		return err
	}
	held := lockOf(path, 0)
	// The only others that lock it do so under the folder's lock.
	if got, err := held.TryRLock(); err != nil || !got {
		return errors.Join(fmt.Errorf("lock %s: shared with others: %v", path, got), err, file.Close(), held.Close())
	}
	e.sound = make([]atomic.Uint32, roundUp(e.blocks, 32)/32)
	e.file, e.held = file, held
	e.use()
	return nil
}

// fits says that file is the object's, and whole.
func (e *entry) fits(file *os.File) bool {
	head := make([]byte, len(e.head))
	if _, err := file.ReadAt(head, 0); err != nil || !e.is(head) {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Size() == e.data+e.size
}

// create makes the file; nil: there is no room.
func (e *entry) create(path string) (*os.File, error) {
	f := &e.s.folder
	if ok, err := f.reserve(e.data); err != nil || !ok {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	head := bytes.Clone(e.head)
	binary.LittleEndian.PutUint64(head[reservedAt:], uint64(e.data))
	err = sparse(file)
	if err == nil {
		err = file.Truncate(e.data + e.size)
	}
	if err == nil {
		_, err = file.WriteAt(head, 0)
	}
	if err != nil {
		err = errors.Join(err, file.Close(), os.Remove(path))
		used, again := f.used()
		if again == nil {
			again = f.setUsed(max(used-e.data, 0))
		}
		return nil, errors.Join(err, again)
	}
	return file, nil
}

func (e *entry) isSound(b int64) bool { return e.sound[b/32].Load()>>(b%32)&1 != 0 }

// setSound says that b is as its check says; it need not be compared again.
func (e *entry) setSound(b int64) {
	if !e.s.c.CheckAlways {
		e.sound[b/32].Or(1 << (b % 32))
	}
}

func (e *entry) unsetSound(b int64) { e.sound[b/32].And(^uint32(1 << (b % 32))) }

// numbers reads a table, from its entry b on, n of them.
func (e *entry) numbers(table, b, n int64) ([]uint64, error) {
	data := make([]byte, 8*n)
	if _, err := e.file.ReadAt(data, table+8*b); err != nil {
		return nil, err
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = binary.LittleEndian.Uint64(data[8*i:])
	}
	return out, nil
}

func (e *entry) setNumbers(table, b int64, values []uint64) error {
	data := make([]byte, 0, 8*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint64(data, v)
	}
	_, err := e.file.WriteAt(data, table+8*b)
	return err
}

// same is n times the number v.
func same(v uint64, n int64) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// What became of a claim.
type claim int

const (
	mine   claim = iota
	here         // the block is on the disk
	others       // another process is fetching it
	full         // there is no room for it
)

// claim claims the blocks from b on, n at most, as far as nobody has or fetches
// them; got is how many that are if it is the claim mine.
func (e *entry) claim(ctx context.Context, b, n int64) (c claim, got int64, err error) {
	f := &e.s.folder
	err = f.locked(ctx, func() error {
		if f.alive == nil {
			c = full // the Store has been closed
			return nil
		}
		checks, err := e.numbers(e.checks, b, n)
		if err != nil {
			return err
		}
		claims, err := e.numbers(e.claims, b, n)
		if err != nil {
			return err
		}
		alive := map[uint64]bool{}
		var need int64
		for got < n && checks[got] == 0 {
			id := claims[got]
			if id > taken && id != f.id {
				lives, ok := alive[id]
				if !ok {
					lives = f.lives(id)
					alive[id] = lives
				}
				if lives {
					break
				}
			}
			if id == 0 {
				need += roundUp(e.length(b+got), page)
			}
			got++
		}
		switch {
		case got == 0 && checks[0] != 0:
			c = here
			return nil
		case got == 0:
			c = others
			return nil
		case need > 0:
			ok, err := f.reserve(need)
			if err != nil {
				return err
			}
			if !ok {
				c = full
				return nil
			}
			counted, err := e.numbers(reservedAt, 0, 1)
			if err != nil {
				return err
			}
			if err := e.setNumbers(reservedAt, 0, []uint64{counted[0] + uint64(need)}); err != nil {
				return err
			}
		}
		return e.setNumbers(e.claims, b, same(f.id, got))
	})
	return c, got, err
}

// keep writes the blocks from b on, which data begins with, for this Store has
// claimed them.
func (e *entry) keep(b int64, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if _, err := e.file.WriteAt(data, e.data+b*e.block); err != nil {
		return err
	}
	var checks []uint64
	for rest := data; len(rest) > 0; {
		n := min(int64(len(rest)), e.block)
		checks = append(checks, check(rest[:n]))
		rest = rest[n:]
	}
	if err := e.setNumbers(e.checks, b, checks); err != nil {
		return err
	}
	for i := range checks {
		e.setSound(b + int64(i))
	}
	return nil
}

// drop takes the blocks from b on, n of them, for missing: all of them, or if bad
// only those that are not as their checks say.
func (e *entry) drop(ctx context.Context, b, n int64, bad bool) error {
	return e.s.folder.locked(ctx, func() error {
		checks, err := e.numbers(e.checks, b, n)
		if err != nil {
			return err
		}
		for i, sum := range checks {
			b := b + int64(i)
			if sum == 0 {
				continue
			}
			if bad {
				// Another one may have fetched it again meanwhile.
				buffer := e.s.buffer(e.length(b))
				_, err := e.file.ReadAt(*buffer, e.data+b*e.block)
				sound := err == nil && check(*buffer) == sum
				e.s.buffers.Put(buffer)
				if sound {
					continue
				}
				e.s.counters.corrupt.Add(1)
			}
			e.unsetSound(b)
			if err := e.setNumbers(e.checks, b, []uint64{0}); err != nil {
				return err
			}
		}
		return nil
	})
}
