package cache

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
)

// page is the unit in which room on the disk is counted.
const page = 4096

const (
	objectsDir = "objects"
	usersDir   = "users"
	lockName   = "lock"
	usedName   = "used"
	tagName    = "CACHEDIR.TAG"
)

// tag is a file by which programs know a cache: https://bford.info/cachedir/
const tag = "Signature: 8a477f597d28d172789f06886806bc55\n" +
	"# Parts of remote objects that shardify keeps here; it may be removed while nothing uses it.\n"

// folder is the folder that the processes of a host share. Its methods are called
// under its lock unless they say otherwise.
type folder struct {
	path     string
	bytes    int64
	patience time.Duration
	counters *counters

	turn  chan struct{} // goes before the lock, within this Store
	id    uint64        // of this Store, from register on
	alive *flock.Flock  // on DIR/users/ID

	// Unix nanoseconds until which nothing is written: after trouble, and for want
	// of room.
	idle, full atomic.Int64
}

func (f *folder) at(names ...string) string {
	return filepath.Join(append([]string{f.path}, names...)...)
}

func lockOf(path string, flag int) *flock.Flock {
	return flock.New(path, flock.SetFlag(flag|os.O_RDWR), flock.SetPermissions(0o666))
}

// errHeld: the folder's lock was not free for as long as patience lasted.
var errHeld = errors.New("another process holds the lock; see which, and end it")

// locked calls act under the folder's lock, for which it waits for no longer than
// patience. It makes the folder if it is missing. It is called without the lock.
func (f *folder) locked(ctx context.Context, act func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, f.patience,
		fmt.Errorf("%s, for %v already: %w", f.at(lockName), f.patience, errHeld))
	defer cancel()
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l, err := f.lock(ctx)
	if err != nil {
		return err
	}
	return errors.Join(act(), l.Close())
}

// lock takes the lock, in this Store's turn.
func (f *folder) lock(ctx context.Context) (*flock.Flock, error) {
	l := lockOf(f.at(lockName), os.O_CREATE)
	for delay := 50 * time.Microsecond; ctx.Err() == nil; {
		got, err := l.TryLock()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err := f.make(); err != nil {
				return nil, err
			}
			continue
		case err != nil:
			return nil, err
		case got && f.current(l):
			return l, nil
		}
		// It is held; or it is no more the file at that path, for the folder has been
		// removed since it was opened.
		if err := l.Close(); err != nil {
			return nil, err
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		delay = min(2*delay, 5*time.Millisecond)
	}
	return nil, context.Cause(ctx)
}

// current says that the file that l has locked is the one at its path.
func (f *folder) current(l *flock.Flock) bool {
	held, err := l.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(l.Path())
	return err == nil && os.SameFile(held, there)
}

// make makes the folder and those in it. It is called without the lock.
func (f *folder) make() error {
	for _, dir := range []string{objectsDir, usersDir} {
		if err := os.MkdirAll(f.at(dir), 0o777); err != nil {
			return err
		}
	}
	if _, err := os.Stat(f.at(tagName)); err == nil {
		return nil
	}
	return os.WriteFile(f.at(tagName), []byte(tag), 0o666)
}

// trouble counts that the folder could not be used, and keeps away from it for a
// while. It is called with and without the lock.
func (f *folder) trouble(err error) {
	if noSpace(err) {
		f.counters.noSpace.Add(1)
		err = fmt.Errorf("the disk of the cache is full, so reads go past it: %w; make room there, or give it fewer bytes", err)
	} else {
		f.counters.faults.Add(1)
		err = fmt.Errorf("the cache cannot be used, so reads go past it: %w", err)
	}
	text := err.Error()
	f.counters.warning.Store(&text)
	f.idle.Store(time.Now().Add(pause).UnixNano())
}

// resting says that nothing is to be written now. It is called without the lock.
func (f *folder) resting() bool {
	return time.Now().UnixNano() < max(f.idle.Load(), f.full.Load())
}

// register makes this Store known as a user, if it is not.
func (f *folder) register() error {
	if f.alive != nil {
		return nil
	}
	if err := f.make(); err != nil {
		return err
	}
	users, err := os.ReadDir(f.at(usersDir))
	if err != nil {
		return err
	}
	others := 0
	for _, u := range users {
		id, err := strconv.ParseUint(u.Name(), 16, 64)
		if err != nil || f.user(id) != f.at(usersDir, u.Name()) {
			continue // none of ours
		}
		if f.lives(id) {
			others++
		} else if err := os.Remove(f.user(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	id := uint64(0)
	for id <= taken {
		id = rand.Uint64()
	}
	l := lockOf(f.user(id), os.O_CREATE)
	if got, err := l.TryLock(); err != nil || !got {
		return errors.Join(fmt.Errorf("lock %s: taken: %v", l.Path(), !got), err, l.Close())
	}
	if others == 0 {
		// What killed processes, or a power failure, have left is counted anew.
		if err := os.Remove(f.at(usedName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(err, l.Close())
		}
	}
	if _, err := f.reserve(0); err != nil {
		return errors.Join(err, l.Close())
	}
	f.id, f.alive = id, l
	return nil
}

// leave is the end of this Store as a user. It is called without the lock, and does
// not need it.
func (f *folder) leave() error {
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	if f.alive == nil {
		return nil
	}
	path, err := f.alive.Path(), f.alive.Close()
	if e := os.Remove(path); e != nil && !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	f.alive, f.id = nil, 0
	return err
}

func (f *folder) user(id uint64) string { return f.at(usersDir, fmt.Sprintf("%016x", id)) }

// lives says that the process of the Store called id lives.
func (f *folder) lives(id uint64) bool {
	free, err := isFree(f.user(id))
	return !free && !errors.Is(err, fs.ErrNotExist)
}

// isFree says that nobody has the file at path locked.
func isFree(path string) (bool, error) {
	l := lockOf(path, 0)
	got, err := l.TryLock()
	return got, errors.Join(err, l.Close())
}

// reserve counts n more bytes as used, once there is room for them; false: there is
// none.
func (f *folder) reserve(n int64) (bool, error) {
	used, err := f.used()
	if err != nil {
		return false, err
	}
	if n > f.bytes {
		return false, nil
	}
	if used+n > f.bytes {
		start := time.Now()
		// A little more than needed goes, so that looking for it is seldom.
		if used, err = f.evict(f.bytes - n - f.bytes/64); err != nil {
			return false, err
		}
		if used+n > f.bytes {
			// Until one is closed here, or may have been elsewhere.
			f.full.Store(time.Now().Add(max(time.Second, 20*time.Since(start))).UnixNano())
			return false, f.setUsed(used)
		}
	}
	return true, f.setUsed(used + n)
}

// used is how many bytes all objects' files may take.
func (f *folder) used() (int64, error) {
	data, err := os.ReadFile(f.at(usedName))
	if err == nil && len(data) == 8 {
		if n := int64(binary.LittleEndian.Uint64(data)); n >= 0 {
			return n, nil
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	files, err := f.files()
	var sum int64
	for _, x := range files {
		sum += x.bytes
	}
	return sum, err
}

func (f *folder) setUsed(n int64) error {
	file, err := os.OpenFile(f.at(usedName), os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(n)), 0)
	return errors.Join(err, file.Close())
}

// kept is a file in DIR/objects.
type kept struct {
	path  string
	bytes int64 // that it may take
	last  time.Time
}

// files returns the files in DIR/objects. Those that cannot be read count as all
// of their length, and as never used.
func (f *folder) files() ([]kept, error) {
	dir, err := os.ReadDir(f.at(objectsDir))
	if err != nil {
		return nil, err
	}
	files := make([]kept, 0, len(dir))
	for _, d := range dir {
		if sum, err := hex.DecodeString(d.Name()); err != nil || len(sum) != keySize || !d.Type().IsRegular() {
			continue // none of ours
		}
		x := kept{path: f.at(objectsDir, d.Name())}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		if n, err := reserved(x.path); err == nil && n >= 0 && n <= info.Size()+page {
			x.bytes, x.last = max(n, allocated(info)), info.ModTime()
		} else {
			x.bytes = max(info.Size(), allocated(info))
		}
		files = append(files, x)
	}
	return files, nil
}

// reserved is how many bytes the object's file at path says that it may take.
func reserved(path string) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	var head [16]byte
	if _, err := io.ReadFull(file, head[:]); err != nil {
		return 0, err
	}
	if string(head[:8]) != magic {
		return 0, fmt.Errorf("%s is no file of a cache", path)
	}
	return int64(binary.LittleEndian.Uint64(head[8:])), nil
}

// evict removes objects that nobody has open, those last used first, until no more
// than target bytes are used, and returns how many are. All are counted anew.
func (f *folder) evict(target int64) (used int64, err error) {
	files, err := f.files()
	if err != nil {
		return 0, err
	}
	for _, x := range files {
		used += x.bytes
	}
	slices.SortFunc(files, func(a, b kept) int {
		return cmp.Or(a.last.Compare(b.last), cmp.Compare(a.path, b.path))
	})
	for _, x := range files {
		if used <= target {
			break
		}
		if free, err := isFree(x.path); err != nil || !free {
			continue
		}
		// Nobody can open it before the folder's lock is free.
		if err := os.Remove(x.path); err != nil {
			return used, err
		}
		used -= x.bytes
		f.counters.evictions.Add(1)
		f.counters.evictedBytes.Add(x.bytes)
	}
	return used, nil
}
