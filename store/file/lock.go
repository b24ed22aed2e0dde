package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/gofrs/flock"

	"shardify/store"
)

// ownerAt is where a lock file holds its owner's line. The byte before it is the
// one that flock locks on Windows, where nobody else could read it.
const ownerAt = 1

// Lock takes the lock called name: flock(2), or LockFileEx on Windows, on the file
// of that name, which holds the owner's line while it is held. Over NFS, Linux
// makes it a lock of the server, which holds between machines.
//
// unlock removes the file while it still has the lock, and Lock, once it has one,
// looks whether its file is still the one at that path, and starts again if not;
// so two can never hold it. A process that is killed leaves the file behind,
// unlocked; so does unlock on Windows, which cannot remove an open file. Such a
// file is an object to List.
func (s *Store) Lock(ctx context.Context, name, owner string) (unlock func() error, err error) {
	path, err := s.path(ctx, "lock", name)
	if err != nil {
		return nil, err
	}
	for range tries {
		if err = makeFolders(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		l := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o666))
		var got bool
		if got, err = l.TryLock(); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, fault("lock", path, err)
		}
		if !got {
			return nil, &fs.PathError{Op: "lock", Path: path, Err: fmt.Errorf("%w: %s; wait for it to end, or stop it", store.ErrLocked, heldBy(path))}
		}
		if !current(l) {
			if err = l.Close(); err != nil {
				return nil, fault("lock", path, err)
			}
			err = fmt.Errorf("%w: taken and freed by others %d times meanwhile", store.ErrLocked, tries)
			continue
		}
		held.Store(l, true)
		unlock = sync.OnceValue(func() error { return s.unlock(l, name) })
		if err := writeOwner(path, owner); err != nil {
			return nil, errors.Join(fault("lock", path, err), unlock())
		}
		return unlock, nil
	}
	return nil, fault("lock", path, err)
}

// held has the locks of this process. Without it, the collector would close the file
// of a lock whose unlock nobody keeps, and so free it.
var held sync.Map // *flock.Flock → true

func (s *Store) unlock(l *flock.Flock, name string) error {
	held.Delete(l)
	var err error
	if runtime.GOOS != "windows" && current(l) {
		if err = os.Remove(l.Path()); err != nil {
			err = fault("unlock", l.Path(), err)
		}
	}
	if e := l.Close(); e != nil {
		err = errors.Join(err, fault("unlock", l.Path(), e))
	}
	if err != nil {
		return err
	}
	return s.prune(name)
}

// current says that the file that l has locked is the one at its path.
func current(l *flock.Flock) bool {
	locked, err := l.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(l.Path())
	return err == nil && os.SameFile(locked, there)
}

func writeOwner(path, owner string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	// Behind it may stand the rest of a longer line of one who was killed.
	line := strings.ReplaceAll(owner, "\n", " ") + "\n"
	_, err = f.WriteAt([]byte(line), ownerAt)
	return errors.Join(err, f.Close())
}

// heldBy quotes the owner's line in the lock file at path.
func heldBy(path string) string {
	const unknown = "it does not say by whom"
	f, err := os.Open(path)
	if err != nil {
		return unknown
	}
	defer f.Close()
	text := make([]byte, 1024)
	n, err := f.ReadAt(text, ownerAt)
	line, _, _ := strings.Cut(string(text[:n]), "\n")
	if line == "" || err != nil && !errors.Is(err, io.EOF) {
		return unknown
	}
	return fmt.Sprintf("held by %q", line)
}
