package cache

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"
)

const (
	lockName  = "lock"
	usedName  = "used"
	tagName   = "CACHEDIR.TAG"
	blocksDir = "blocks"
	// sets is the number of folders in DIR/blocks.
	sets = 256
	// evictSample is how many blocks are looked at to find those that were not used
	// for longest; of more than that, they are the oldest eighth of a random sample.
	evictSample = 4096
	// touchStep is how old a block's time gets before a use renews it.
	touchStep = 10 * time.Second
	// lockPatience is how long the folder's lock is waited for, which is held for
	// microseconds, and while a few hundred files are removed.
	lockPatience = 5 * time.Second
)

// tag is a file by which programs know a cache: https://bford.info/cachedir/
const tag = "Signature: 8a477f597d28d172789f06886806bc55\n" +
	"# Parts of remote objects that shardify keeps here; it may be removed at any time.\n"

// folder is the folder that the processes of a host share.
type folder struct {
	path     string
	max      int64
	sample   int           // evictSample
	step     time.Duration // touchStep
	patience time.Duration // lockPatience
	counters *counters
	turn     chan struct{} // goes before the lock, so that goroutines get it in their order
	// idle is the time in Unix nanoseconds until which nothing is written, after
	// trouble.
	idle atomic.Int64
}

func (f *folder) at(names ...string) string {
	return filepath.Join(append([]string{f.path}, names...)...)
}

// make makes the folder.
func (f *folder) make() error {
	if err := os.MkdirAll(f.at(blocksDir), 0o777); err != nil {
		return err
	}
	if _, err := os.Stat(f.at(tagName)); err == nil {
		return nil
	}
	return os.WriteFile(f.at(tagName), []byte(tag), 0o666)
}

// trouble counts that the folder could not be used, and keeps away from it for a
// while.
func (f *folder) trouble(err error) {
	if noSpace(err) {
		err = fmt.Errorf("the disk of the cache is full, so that reads go past it: %w; make room there, or give the cache fewer bytes", err)
	} else {
		err = fmt.Errorf("the cache cannot be written to, so that reads go past it: %w", err)
	}
	f.counters.faults.Add(1)
	text := err.Error()
	f.counters.warning.Store(&text)
	f.idle.Store(time.Now().Add(pause).UnixNano())
}

// resting says that nothing is to be written now.
func (f *folder) resting() bool { return time.Now().UnixNano() < f.idle.Load() }

// look fills x.p if the block is here, and notes that it was used.
func (f *folder) look(x part) bool {
	file, err := openFile(f.block(x.block), os.O_RDONLY)
	if err != nil {
		// Not there, as a rule; what else it may be shows when it is to be filled.
		return false
	}
	defer file.Close()
	if sound, _ := x.read(file); !sound {
		return false
	}
	if info, err := file.Stat(); err == nil && time.Since(info.ModTime()) >= f.step && !f.resting() {
		now := time.Now()
		if err := os.Chtimes(file.Name(), now, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.trouble(err)
		}
	}
	return true
}

// What became of a claim.
type claim int

const (
	mine claim = iota // its file is locked: fill it, and close it
	here              // the block is here
	busy              // another one is filling it
	none              // there is no room for it, or no folder
)

// claim locks the block's file, to fill it; it makes the file if need be. Where the
// block turns out to be here, it fills x.p, unless the claim is a fresh one.
func (f *folder) claim(ctx context.Context, x part, fresh bool) (*os.File, claim) {
	file, err := openFile(f.block(x.block), os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return f.create(ctx, x.block)
	}
	if err != nil {
		f.trouble(err)
		return nil, none
	}
	c, err := f.take(ctx, file, x, fresh)
	if err != nil {
		if ctx.Err() == nil {
			f.trouble(err)
		}
		c = none
	}
	if c != mine {
		file.Close()
		return nil, c
	}
	return file, mine
}

// take is claim for a file that is there.
func (f *folder) take(ctx context.Context, file *os.File, x part, fresh bool) (claim, error) {
	got, err := tryLock(file)
	if err != nil {
		return none, err
	}
	if !got || !current(file) {
		return busy, nil // or gone since it was opened: look again
	}
	// Only now, as whoever had the lock may have filled it since it was looked at.
	info, err := file.Stat()
	if err != nil {
		return none, err
	}
	sound, blank := x.read(file)
	if sound && !fresh {
		return here, nil
	}
	if !sound && !blank && info.Size() > 0 {
		f.counters.corrupt.Add(1)
	}
	if info.Size() != x.length() {
		// It is not as long as it is counted. Under the folder's lock, as whoever makes
		// it may be about to lock it.
		return busy, f.locked(ctx, func() error { return os.Remove(file.Name()) })
	}
	if !blank {
		// From here on nobody takes what is in it for sound.
		if _, err := file.WriteAt(make([]byte, len(magic)), 0); err != nil {
			return none, err
		}
	}
	return mine, nil
}

// create makes the block's file, locked, if there is room or room can be made.
func (f *folder) create(ctx context.Context, b block) (file *os.File, c claim) {
	if b.room() > f.max {
		return nil, none
	}
	c = busy
	err := f.locked(ctx, func() error {
		var err error
		path := f.block(b)
		file, err = openFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL)
		if errors.Is(err, fs.ErrNotExist) {
			if err = os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
				return err
			}
			file, err = openFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL)
		}
		if errors.Is(err, fs.ErrExist) {
			return nil // another one was faster
		}
		if err != nil {
			return err
		}
		got, err := tryLock(file)
		if err == nil && !got {
			return file.Close() // another one was, and is about to remove it
		}
		if err == nil {
			c, err = f.reserve(b)
		}
		if err == nil && c == mine {
			err = file.Truncate(b.length())
		}
		if err != nil || c != mine {
			err = errors.Join(err, os.Remove(path), file.Close())
		}
		return err
	})
	switch {
	case err == nil && c == mine:
		return file, mine
	case err != nil && ctx.Err() == nil:
		f.trouble(err)
		fallthrough
	case err != nil:
		return nil, none
	}
	return nil, c
}

// fill writes a block that is claimed.
func (f *folder) fill(x claimed, data []byte) error {
	_, err := x.file.WriteAt(data, x.head())
	if err == nil {
		_, err = x.file.WriteAt(x.header(data), 0)
	}
	if err != nil {
		// Gives back what room it has taken. It stays counted until DIR/used is
		// counted anew.
		return errors.Join(err, os.Remove(x.file.Name()))
	}
	return nil
}

// current says that an open file is the one at its path.
func current(file *os.File) bool {
	held, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(file.Name())
	return err == nil && os.SameFile(held, there)
}

// errHeld: the folder's lock was not free for as long as patience lasted.
var errHeld = errors.New("another process holds the lock; see which, and end it")

// locked calls act under the folder's lock, for which it waits for no longer than
// patience lasts.
func (f *folder) locked(ctx context.Context, act func() error) error {
	path := f.at(lockName)
	ctx, cancel := context.WithTimeoutCause(ctx, f.patience, fmt.Errorf("%s, for %v already: %w", path, f.patience, errHeld))
	defer cancel()
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for delay := 50 * time.Microsecond; ctx.Err() == nil; delay = min(2*delay, 5*time.Millisecond) {
		file, err := openFile(path, os.O_RDWR|os.O_CREATE)
		if errors.Is(err, fs.ErrNotExist) {
			if err = f.make(); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		got, err := tryLock(file)
		if err != nil {
			return errors.Join(err, file.Close())
		}
		if got && current(file) {
			return errors.Join(act(), file.Close())
		}
		// It is held; or the folder has been removed since it was opened.
		if err := file.Close(); err != nil {
			return err
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return context.Cause(ctx)
}

// reserve counts the room of a block, once there is enough. It is called under the
// folder's lock, as all below.
func (f *folder) reserve(b block) (claim, error) {
	used, err := f.used()
	if err != nil {
		return none, err
	}
	if used.total()+b.room() > f.max {
		err := f.evict(used, b)
		if err != nil || used.total()+b.room() > f.max {
			return none, errors.Join(err, f.setUsed(used))
		}
	}
	used[b.set()] += b.room()
	return mine, f.setUsed(used)
}

// counts is what the files of each set may take.
type counts [sets]int64

func (c *counts) total() (sum int64) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// used reads DIR/used; where there is none that could be right, it counts.
func (f *folder) used() (*counts, error) {
	c := new(counts)
	data, err := os.ReadFile(f.at(usedName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	good := len(data) == 8*sets
	for i := 0; i < sets && good; i++ {
		c[i] = int64(binary.LittleEndian.Uint64(data[8*i:]))
		good = c[i] >= 0 && c[i] < 1<<50
	}
	if good {
		return c, nil
	}
	for set := range sets {
		if _, err := f.count(c, set, nil); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (f *folder) setUsed(c *counts) error {
	data := make([]byte, 0, 8*sets)
	for _, n := range c {
		data = binary.LittleEndian.AppendUint64(data, uint64(n))
	}
	file, err := openFile(f.at(usedName), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(data, 0)
	return errors.Join(err, file.Close())
}

// kept is a block's file.
type kept struct {
	path string
	set  int
	room int64
	last time.Time
}

// count counts a set anew, and appends its files to list.
func (f *folder) count(c *counts, set int, list []kept) ([]kept, error) {
	name := fmt.Sprintf("%02x", set)
	dir, err := os.ReadDir(f.at(blocksDir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	c[set] = 0
	for _, d := range dir {
		if !isBlock(name, d.Name()) || !d.Type().IsRegular() {
			continue // none of ours
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		x := kept{f.at(blocksDir, name, d.Name()), set, roundUp(info.Size(), page), info.ModTime()}
		c[set] += x.room
		list = append(list, x)
	}
	return list, nil
}

// evict removes blocks that nobody is filling, those not used for longest, until
// there is room for b and a little more, so that it is seldom called.
func (f *folder) evict(c *counts, b block) error {
	enough := f.max - b.room()
	goal := enough - min(f.max/64, 256<<20)
	first := rand.IntN(sets)
	for n := 0; n < sets && c.total() > enough; {
		var list []kept
		whole := n == 0
		for ; n < sets && len(list) < f.sample; n++ {
			var err error
			if set := (first + n) % sets; c[set] > 0 {
				if list, err = f.count(c, set, list); err != nil {
					return err
				}
			}
		}
		slices.SortFunc(list, func(a, b kept) int {
			return cmp.Or(a.last.Compare(b.last), cmp.Compare(a.path, b.path))
		})
		if whole = whole && n == sets; !whole {
			list = list[:(len(list)+7)/8]
		}
		for _, x := range list {
			if c.total() <= goal {
				break
			}
			gone, err := f.remove(x.path)
			if err != nil {
				return err
			}
			if gone {
				c[x.set] -= x.room
				f.counters.evictions.Add(1)
				f.counters.evictedBytes.Add(x.room)
			}
		}
	}
	return nil
}

// remove removes a block's file unless somebody is filling it.
func (f *folder) remove(path string) (bool, error) {
	file, err := openFile(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	defer file.Close()
	if got, err := tryLock(file); err != nil || !got {
		return false, err
	}
	// Whoever has opened it meanwhile finds that it is not current.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, nil
}

// full reads all of p.
func full(file io.ReaderAt, p []byte, off int64) bool {
	n, err := file.ReadAt(p, off)
	return n == len(p) && (err == nil || errors.Is(err, io.EOF))
}
