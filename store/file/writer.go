package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"shardify/store"
)

// digits is the number of hexadecimal digits that end a temporary file's name.
const digits = 16

// tempName returns a new name for the temporary file of an object whose name ends
// in base, of at most the 255 bytes that file systems allow.
func tempName(base string) string {
	const most = 255 - len(store.TempPrefix) - 1 - digits
	for len(base) > most {
		_, n := utf8.DecodeLastRuneInString(base)
		base = base[:len(base)-n]
	}
	return fmt.Sprintf("%s%s-%0*x", store.TempPrefix, base, digits, rand.Uint64())
}

// objectOf undoes tempName. Other names are an object's own.
func objectOf(file string) (base string, temp bool) {
	rest, ok := strings.CutPrefix(file, store.TempPrefix)
	cut := len(rest) - digits - 1
	if !ok || cut < 1 || rest[cut] != '-' || strings.Trim(rest[cut+1:], "0123456789abcdef") != "" {
		return file, false
	}
	return rest[:cut], true
}

// tries is how often something is tried because somebody else removes a folder that
// is empty, or a lock that is free, in between.
const tries = 100

// Create starts the object called name.
func (s *Store) Create(ctx context.Context, name string) (store.Writer, error) {
	path, err := s.path(ctx, "create", name)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, &fs.PathError{Op: "create", Path: path, Err: syscall.EISDIR}
	}
	dir, base := filepath.Dir(path), filepath.Base(path)
	for range tries {
		if err = makeFolders(dir); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		var f *os.File
		if f, err = os.OpenFile(filepath.Join(dir, tempName(base)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666); err == nil {
			return &writer{s: s, f: f, name: name, path: path}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return nil, fault("create", path, err)
}

type writer struct {
	s    *Store
	f    *os.File
	name string
	path string
	err  error // what the first failed Write said, or that the Writer is done
	done bool

	written, started int64 // bytes; those for which writing to the disk was started
}

func (w *writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.f.Write(p)
	w.written += int64(n)
	if err != nil {
		w.err = fault("write", w.path, err)
		return n, w.err
	}
	if w.written-w.started >= writeback {
		startWriteback(w.f, w.started, w.written-w.started)
		w.started = w.written
	}
	return n, nil
}

// Commit makes the object durable and visible. Where the last step fails, making
// the rename durable, the object is already visible; that is an error all the
// same, and what a crash would leave, the old object or the new, is not known.
func (w *writer) Commit(ctx context.Context) error {
	if w.done {
		return w.err
	}
	err := w.err
	if err == nil && ctx.Err() != nil {
		err = &fs.PathError{Op: "commit", Path: w.path, Err: ctx.Err()}
	}
	if err == nil {
		err = w.commit()
	}
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	w.end()
	return nil
}

func (w *writer) commit() error {
	if err := w.f.Sync(); err != nil {
		return fault("commit", w.path, err)
	}
	if err := w.f.Close(); err != nil {
		return fault("commit", w.path, err)
	}
	if err := rename(w.f.Name(), w.path); errors.Is(err, fs.ErrNotExist) {
		return fault("commit", w.path, fmt.Errorf("%w: its temporary file is gone: something swept it while it was written", fs.ErrNotExist))
	} else if err != nil {
		return fault("commit", w.path, err)
	}
	for dir := above(w.name); ; dir = above(dir) {
		// A folder may be gone again: the object was removed at once.
		if err := syncFolder(w.s.at(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fault("commit", w.path, err)
		}
		if dir == "" {
			return nil
		}
	}
}

func (w *writer) end() {
	w.done = true
	w.err = &fs.PathError{Op: "write", Path: w.path, Err: fs.ErrClosed}
}

func (w *writer) Abort() error {
	if w.done {
		return nil
	}
	w.end()
	// Nothing written counts any more, so neither does an error of Close; and after
	// a failed Commit it is closed already.
	_ = w.f.Close()
	if err := os.Remove(w.f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault("abort", w.path, err)
	}
	return w.s.prune(w.name)
}
