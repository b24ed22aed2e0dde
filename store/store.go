// Package store says where shards live: a [Store] is a folder of named objects,
// on a disk, in memory or in a bucket.
//
// Open one with the table in store/open, or directly (store/file, store/mem, store/s3,
// store/http).
// Wrappers (store/fault) implement the same interface, and one conformance suite
// (store/storetest) holds all of them to what is said here.
//
// # What is promised
//
// An object is visible whole or not at all: what [Store.Create] writes lies under
// a temporary name until [Writer.Commit], which makes the bytes durable first and
// visible second, replacing an older object of that name in one step. A crash at
// any moment leaves the old object, the new one, or none; never a part.
//
// Names are relative slash-separated paths without empty, "." or ".." components,
// and no component that starts with ".tmp-", the prefix of unfinished writes:
// [CheckName]. Everything is safe for concurrent use unless said otherwise.
//
// # Errors
//
// Errors wrap the standard sentinels [fs.ErrNotExist], [fs.ErrExist] and
// [fs.ErrPermission], and [ErrLocked], [ErrNoSpace], [ErrChanged], [ErrThrottled] and
// [ErrReadOnly] here; they name the object's URL. Test with errors.Is.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"strings"
	"time"
)

var (
	// ErrLocked: another process holds the lock.
	ErrLocked = errors.New("locked by another process")
	// ErrNoSpace: the disk, or a quota on it, is full.
	ErrNoSpace = errors.New("no space left")
	// ErrChanged: the object was replaced or removed since it was opened, and the
	// store keeps no version but the last.
	ErrChanged = errors.New("the object has changed since it was opened")
	// ErrThrottled: the store turns requests away for being too many. It passes.
	ErrThrottled = errors.New("the store wants fewer requests")
	// ErrReadOnly: nothing can be written there. It is errors.ErrUnsupported, too.
	ErrReadOnly = fmt.Errorf("%w: it can only be read", errors.ErrUnsupported)
	// ErrName: the name is none that a store could hold.
	ErrName = fmt.Errorf("%w: not a relative slash-separated path", fs.ErrInvalid)
)

// Info describes an object.
type Info struct {
	// Name is the object's name within the store.
	Name string
	// Size is its length in bytes.
	Size int64
	// ModTime is when it was last written; zero if the store does not know.
	ModTime time.Time
	// Version tells one content of that name from another, as an ETag does; "" if the
	// store has none. Of an object that was opened under WithSize, it is known when
	// something was read.
	Version string
}

// Store is a place of named objects.
type Store interface {
	// URL names the store for people and for errors: a path or an s3:// URL,
	// without secrets.
	URL() string
	// Open opens an object for reading.
	Open(ctx context.Context, name string) (Object, error)
	// Create starts a new object, which becomes visible when it is committed. It
	// makes the folders it needs.
	Create(ctx context.Context, name string) (Writer, error)
	// List yields the objects whose names begin with prefix, in the order of their
	// names' bytes; temporary ones are left out. A store that does not exist is
	// empty; one that has no lists, as a web server, is errors.ErrUnsupported.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// Remove deletes an object, and folders that this leaves empty. A missing
	// object is no error.
	Remove(ctx context.Context, name string) error
	// Lock takes the lock called name or fails at once with ErrLocked. The lock
	// ends with unlock and with the process, however it ends: at once on a disk, after
	// a lease elsewhere. owner is a line for people that a later ErrLocked quotes.
	Lock(ctx context.Context, name, owner string) (unlock func() error, err error)
	// Sweep removes what unfinished writes have left under names that begin with
	// prefix. Call it only under a lock that excludes their writers.
	Sweep(ctx context.Context, prefix string) error
}

// Object is an object open for reading. It shows one version of the object for as
// long as it is open, or ErrChanged where the store does not keep replaced ones, and may
// be read by many goroutines at once.
type Object interface {
	// Info describes the object as it was when opened.
	Info() Info
	// ReadAt fills p from byte off on. As with io.ReaderAt, n < len(p) comes with
	// an error, which is io.EOF at the object's end.
	ReadAt(ctx context.Context, p []byte, off int64) (n int, err error)
	// Close ends reading.
	Close() error
}

// Writer writes one object, front to back. It is not for concurrent use.
type Writer interface {
	io.Writer
	// Commit makes the object durable and then visible. The Writer is done after
	// it, also where it fails; then nothing is visible.
	Commit(ctx context.Context) error
	// Abort drops the object. After Commit, or a second time, it does nothing; so
	// it can be deferred.
	Abort() error
}

// IsLocal says that a store of this URL is a folder of this machine, or its memory, so
// that small reads cost little; not one behind a network.
func IsLocal(url string) bool {
	return !strings.Contains(url, "://") || strings.HasPrefix(url, "file://")
}

// CheckName reports why name cannot be an object's name; nil if it can.
func CheckName(name string) error {
	for c := range strings.SplitSeq(name, "/") {
		if c == "" || c == "." || c == ".." || strings.HasPrefix(c, TempPrefix) || strings.ContainsAny(c, "\x00\\") {
			return fmt.Errorf("%q: %w", name, ErrName)
		}
	}
	return nil
}

// TempPrefix begins the last component of the name under which a folder holds an
// object that is not yet committed.
const TempPrefix = ".tmp-"

// ReaderAt adapts an object to io.ReaderAt, with ctx for every read.
func ReaderAt(ctx context.Context, o Object) io.ReaderAt { return readerAt{ctx, o} }

type readerAt struct {
	ctx context.Context
	o   Object
}

func (r readerAt) ReadAt(p []byte, off int64) (int, error) { return r.o.ReadAt(r.ctx, p, off) }

// Lister is a store that can begin a list in its middle and stop at folders, so that
// several can list a part each. Call it by [ListFrom].
type Lister interface {
	// ListFrom is as the function.
	ListFrom(ctx context.Context, prefix, after string, folders bool) iter.Seq2[Info, error]
}

// ListFrom yields, as List does, the objects whose names begin with prefix, but only those
// that come after the name after. With folders, objects whose names go on with a slash
// behind prefix are one Info all together, whose name ends in that slash and which has
// nothing else. What is no [Lister] is listed from the beginning, and whole.
func ListFrom(ctx context.Context, s Store, prefix, after string, folders bool) iter.Seq2[Info, error] {
	if l, ok := s.(Lister); ok {
		return l.ListFrom(ctx, prefix, after, folders)
	}
	return func(yield func(Info, error) bool) {
		for info, err := range s.List(ctx, prefix) {
			if err != nil {
				yield(Info{}, err)
				return
			}
			if folders {
				if slash := strings.IndexByte(info.Name[len(prefix):], '/'); slash >= 0 {
					info = Info{Name: info.Name[:len(prefix)+slash+1]}
				}
			}
			if info.Name <= after {
				continue
			}
			if after = info.Name; !yield(info, nil) {
				return
			}
		}
	}
}

// Stater is a store that can describe an object without opening it. Call it by [Stat].
type Stater interface {
	// Stat is as the function.
	Stat(ctx context.Context, name string) (Info, error)
}

// Stat describes an object. What is no [Stater] opens it for that.
func Stat(ctx context.Context, s Store, name string) (Info, error) {
	if st, ok := s.(Stater); ok {
		return st.Stat(ctx, name)
	}
	o, err := s.Open(ctx, name)
	if err != nil {
		return Info{}, err
	}
	return o.Info(), o.Close()
}

// Unfinished is what a write that was not committed has left, or one that is under way.
type Unfinished struct {
	// Name is the name that the object would have; of one so long that its temporary
	// name had to cut it, the beginning.
	Name string
	// ID tells several of one name apart, for Drop.
	ID string
	// Size is what has been written, in bytes.
	Size int64
	// ModTime is when something was last written.
	ModTime time.Time
}

// Sweeper is a store that says what Sweep would remove, and removes a part of it.
type Sweeper interface {
	// Unfinished yields what writes of names that begin with prefix have left, also those
	// that are under way.
	Unfinished(ctx context.Context, prefix string) iter.Seq2[Unfinished, error]
	// Drop removes one of them, whose write then fails. What is gone is no error.
	Drop(ctx context.Context, u Unfinished) error
}

type sizeKey struct{}

// WithSize returns a context under which Open may take the size of the object, which the
// caller knows from a manifest, for granted. A store behind a network then sends no
// request: that the object is missing, forbidden or of another size (ErrChanged) shows
// with the first ReadAt, and Info has no ModTime.
func WithSize(ctx context.Context, size int64) context.Context {
	return context.WithValue(ctx, sizeKey{}, size)
}

// SizeOf is the size that WithSize has said.
func SizeOf(ctx context.Context) (size int64, ok bool) {
	size, ok = ctx.Value(sizeKey{}).(int64)
	return size, ok
}

// rereads is how often ReadAll begins again with an object that is being replaced.
const rereads = 16

// ReadAll returns the whole content of a small object, as it was at one moment; one that
// is larger than limit bytes is an error.
func ReadAll(ctx context.Context, s Store, name string, limit int64) (data []byte, err error) {
	for range rereads {
		if data, err = readAll(ctx, s, name, limit); !errors.Is(err, ErrChanged) {
			break
		}
	}
	return data, err
}

func readAll(ctx context.Context, s Store, name string, limit int64) ([]byte, error) {
	o, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	size := o.Info().Size
	if size > limit {
		return nil, fmt.Errorf("%s/%s: %d bytes, more than the %d that such a file may have", s.URL(), name, size, limit)
	}
	data := make([]byte, size)
	if n, err := o.ReadAt(ctx, data, 0); err != nil && !(errors.Is(err, io.EOF) && int64(n) == size) {
		return nil, err
	}
	return data, nil
}

// WriteAll writes and commits an object.
func WriteAll(ctx context.Context, s Store, name string, data []byte) error {
	w, err := s.Create(ctx, name)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(data); err != nil {
		return err
	}
	return w.Commit(ctx)
}
