// Package file keeps a store in a folder of the local file system, or of one that
// is mounted: an object is a regular file whose path below the folder is its name.
//
// Call [New]; it touches nothing. The folder is made by the first Create or Lock.
//
// # How an object becomes visible
//
// Create opens
//
//	DIR/.tmp-BASE-RANDOM     RANDOM: 16 hexadecimal digits
//
// beside the place DIR/BASE where the object will be (BASE is cut where the whole
// would be longer than 255 bytes), Write writes to it unbuffered, and Commit calls
// fsync on it, renames it to BASE, and calls fsync on DIR and on the folders above
// it up to the store's. What a killed process leaves is such a file; List hides
// it, Sweep removes it. Files called .tmp-* that are not of this form are nobody's
// objects and are left alone.
//
// # Speed
//
// On Linux a Writer has the kernel start writing to the disk every 8 MiB, so that
// Commit has little left to wait for: on a virtual disk that writes 1 GB/s, Commit
// of 1 GiB took 130 ms where it took 440 without, of 64 MiB 22 ms where it took 35
// (BenchmarkWrite). Write and ReadAt are one system call each; give them 1 MiB or
// more. No posix_fadvise: from a cold cache POSIX_FADV_SEQUENTIAL made reads of
// 1 MiB two to five times slower, and POSIX_FADV_RANDOM helped smaller ones only.
//
// # What the file system brings with it
//
// Symbolic links are followed, to files and to folders. Files that are no regular
// ones, and files whose names no store could hold, are not objects. Where the file
// system holds "a" and "A" for one name, so does the store. Remove is not durable
// by itself: after a power failure an object removed shortly before may be back.
//
// On Windows folders are not synced, as it has no call for that.
package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"shardify/store"
)

// Store is the store in one folder. It holds no state of its own: any number of
// Stores, processes and machines may use a folder at once.
type Store struct {
	root string
}

var _ store.Store = (*Store)(nil)

// New returns the store in the folder root, which need not exist yet. A relative
// path is one from the working directory of the moment of use.
func New(root string) *Store { return &Store{filepath.Clean(root)} }

// URL is the folder's path.
func (s *Store) URL() string { return s.root }

// path is where the object called name lies, if name is legal and ctx alive.
func (s *Store) path(ctx context.Context, op, name string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", &fs.PathError{Op: op, Path: s.at(name), Err: err}
	}
	err := store.CheckName(name)
	if err == nil && runtime.GOOS == "windows" {
		if _, local := filepath.Localize(name); local != nil {
			err = fmt.Errorf("%q: %w that Windows allows", name, store.ErrName)
		}
	}
	if err != nil {
		return "", fmt.Errorf("%s in %s: %w", op, s.root, err)
	}
	return s.at(name), nil
}

func (s *Store) at(name string) string { return filepath.Join(s.root, filepath.FromSlash(name)) }

// fault is err, of the operation op on the object at path, for the user's eyes:
// with the object's path in place of a temporary one, and with advice.
func fault(op, path string, err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	} else if e, ok := errors.AsType[*os.LinkError](err); ok {
		err = e.Err
	} else if e, ok := errors.AsType[*os.SyscallError](err); ok {
		err = e.Err
	}
	if noSpace(err) {
		err = fmt.Errorf("%w: %w: make room on the disk or in the quota, then run the same command again", store.ErrNoSpace, err)
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// Open opens the object called name.
func (s *Store) Open(ctx context.Context, name string) (store.Object, error) {
	path, err := s.path(ctx, "open", name)
	if err != nil {
		return nil, err
	}
	// Looked at before it is opened, as opening a named pipe would wait for its
	// other end.
	info, err := os.Stat(path)
	if err != nil {
		return nil, absent("open", path, err)
	}
	if info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w: this is a folder", fs.ErrNotExist)}
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w: not a regular file", fs.ErrInvalid)}
	}
	f, err := open(path)
	if err != nil {
		return nil, absent("open", path, err)
	}
	if info, err = f.Stat(); err != nil {
		f.Close()
		return nil, fault("open", path, err)
	}
	return &object{f, path, store.Info{Name: name, Size: info.Size(), ModTime: info.ModTime()}}, nil
}

// absent is fault for looking up a path: that something above it is no folder
// means that there is no such object.
func absent(op, path string, err error) error {
	if errors.Is(err, syscall.ENOTDIR) {
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, syscall.ENOTDIR)
	}
	return fault(op, path, err)
}

type object struct {
	f    *os.File
	path string
	info store.Info
}

func (o *object) Info() store.Info { return o.info }

func (o *object) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, &fs.PathError{Op: "read", Path: o.path, Err: err}
	}
	if off < 0 {
		return 0, &fs.PathError{Op: "read", Path: o.path, Err: fmt.Errorf("%w: offset %d", fs.ErrInvalid, off)}
	}
	left := o.info.Size - off
	short := int64(len(p)) > left
	if short {
		p = p[:max(left, 0)]
	}
	n, err := o.f.ReadAt(p, off)
	switch {
	case errors.Is(err, io.EOF):
		return n, &fs.PathError{Op: "read", Path: o.path, Err: fmt.Errorf(
			"%w: the file ends at byte %d, it had %d when it was opened: something has cut it meanwhile",
			io.ErrUnexpectedEOF, off+int64(n), o.info.Size)}
	case err != nil:
		return n, fault("read", o.path, err)
	case short:
		return n, io.EOF
	}
	return n, nil
}

func (o *object) Close() error {
	if err := o.f.Close(); err != nil {
		return fault("close", o.path, err)
	}
	return nil
}

// Remove deletes the object called name and folders that this leaves empty, but
// never the store's own.
func (s *Store) Remove(ctx context.Context, name string) error {
	path, err := s.path(ctx, "remove", name)
	if err != nil {
		return err
	}
	// os.Remove would take an empty folder too.
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		return nil
	}
	if err := os.Remove(path); err != nil && !missing(err) {
		return fault("remove", path, err)
	}
	return s.prune(name)
}

// missing says that err means that there is nothing at a path.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// prune removes the folders above name, below the store's own, as far as they are
// empty.
func (s *Store) prune(name string) error {
	for name = above(name); name != ""; name = above(name) {
		dir := s.at(name)
		err := syscall.Rmdir(dir)
		switch {
		case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.EBUSY):
			return nil // not empty, or a mount point
		case errors.Is(err, syscall.ENOTDIR):
			return nil // a link
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return fault("remove the empty folder", dir, err)
		}
	}
	return nil
}

// above returns the name of the folder that name lies in; "" is the store's own.
func above(name string) string { return name[:max(0, strings.LastIndexByte(name, '/'))] }

// makeFolders makes dir and the folders missing above it, each durable in the one
// above.
func makeFolders(dir string) error {
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return fault("make the folder", dir, fmt.Errorf("%w: a file is in its place", syscall.ENOTDIR))
		}
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fault("make the folder", dir, err)
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeFolders(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o777); errors.Is(err, fs.ErrExist) {
		return nil
	} else if err != nil {
		return fault("make the folder", dir, err)
	}
	if err := syncFolder(parent); err != nil {
		return fault("sync the folder", parent, err)
	}
	return nil
}

// List yields the objects whose names begin with prefix.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		for e, err := range s.entries(ctx, "list", prefix) {
			if err != nil {
				yield(store.Info{}, err)
				return
			}
			if e.temp {
				continue
			}
			name := e.folder + e.base
			if e.info == nil {
				if e.info, err = e.d.Info(); errors.Is(err, fs.ErrNotExist) {
					continue // removed since its folder was read
				} else if err != nil {
					yield(store.Info{}, fault("list", s.at(name), err))
					return
				}
			}
			if !yield(store.Info{Name: name, Size: e.info.Size(), ModTime: e.info.ModTime()}, nil) {
				return
			}
		}
	}
}

// Sweep removes the temporary files of objects whose names begin with prefix, and
// the folders that this leaves empty. Of a name so long that its temporary file
// had to cut it, only what is left counts.
func (s *Store) Sweep(ctx context.Context, prefix string) error {
	for e, err := range s.entries(ctx, "sweep", prefix) {
		if err != nil {
			return err
		}
		if !e.temp {
			continue
		}
		name := e.folder + e.d.Name()
		if err := os.Remove(s.at(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fault("sweep", s.at(name), err)
		}
		if err := s.prune(name); err != nil {
			return err
		}
	}
	return nil
}

// Unfinished yields the temporary files of objects whose names begin with prefix.
func (s *Store) Unfinished(ctx context.Context, prefix string) iter.Seq2[store.Unfinished, error] {
	return func(yield func(store.Unfinished, error) bool) {
		for e, err := range s.entries(ctx, "list unfinished writes", prefix) {
			if err != nil {
				yield(store.Unfinished{}, err)
				return
			}
			if !e.temp {
				continue
			}
			info, err := e.d.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				yield(store.Unfinished{}, fault("list unfinished writes", s.at(e.folder+e.d.Name()), err))
				return
			}
			if !yield(store.Unfinished{Name: e.folder + e.base, ID: e.d.Name(), Size: info.Size(), ModTime: info.ModTime()}, nil) {
				return
			}
		}
	}
}

// Drop removes a temporary file that Unfinished has yielded.
func (s *Store) Drop(ctx context.Context, u store.Unfinished) error {
	if _, err := s.path(ctx, "drop", u.Name); err != nil {
		return err
	}
	base, temp := objectOf(u.ID)
	if !temp || strings.Contains(u.ID, "/") || base != u.Name[strings.LastIndexByte(u.Name, '/')+1:] {
		return fmt.Errorf("drop %s: %w: %q is no unfinished write of it", s.at(u.Name), fs.ErrInvalid, u.ID)
	}
	name := u.Name[:strings.LastIndexByte(u.Name, '/')+1] + u.ID
	if err := os.Remove(s.at(name)); err != nil && !missing(err) {
		return fault("drop", s.at(name), err)
	}
	return s.prune(name)
}

// entry is an object or the temporary file of one.
type entry struct {
	folder string // name of its folder, with the slash; "" for the store's
	base   string // the rest of the object's name
	temp   bool
	d      fs.DirEntry
	info   fs.FileInfo // nil where only d is known
}

// entries yields the objects, and the temporary files of objects, whose names
// begin with prefix; the objects in the order of their names' bytes.
func (s *Store) entries(ctx context.Context, op, prefix string) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		folder := prefix[:strings.LastIndexByte(prefix, '/')+1]
		if folder != "" && store.CheckName(folder[:len(folder)-1]) != nil {
			return // no name begins like this; "../" least of all
		}
		s.walk(ctx, op, folder, prefix, yield)
	}
}

// walk is entries for one folder and those in it; false means that all is over.
func (s *Store) walk(ctx context.Context, op, folder, prefix string, yield func(entry, error) bool) bool {
	over := func(err error) bool { yield(entry{}, err); return false }
	dir := s.at(folder)
	if err := ctx.Err(); err != nil {
		return over(&fs.PathError{Op: op, Path: dir, Err: err})
	}
	read, err := os.ReadDir(dir)
	if missing(err) {
		// What lies on the way there is an object, not a folder; unless it is the
		// store's own folder.
		if info, err := os.Stat(s.root); err != nil || info.IsDir() {
			return true
		}
	}
	if err != nil {
		return over(fault(op, dir, err))
	}

	type child struct {
		entry
		key string // a folder sorts by the names that begin with its own
	}
	children := make([]child, 0, len(read))
	for _, d := range read {
		base, temp := objectOf(d.Name())
		if !strings.HasPrefix(folder+base, prefix) || store.CheckName(base) != nil {
			continue
		}
		c := child{entry{folder, base, temp, d, nil}, base}
		mode := d.Type()
		if mode&fs.ModeSymlink != 0 && !temp {
			info, err := os.Stat(filepath.Join(dir, d.Name()))
			if err != nil || info.IsDir() && s.within(info, above(folder+base)) {
				continue // it leads nowhere, or round in a circle
			}
			c.info, mode = info, info.Mode().Type()
		}
		switch {
		case mode.IsDir() && !temp:
			c.key += "/"
		case !mode.IsRegular():
			continue
		}
		children = append(children, c)
	}
	slices.SortFunc(children, func(a, b child) int { return cmp.Compare(a.key, b.key) })
	for _, c := range children {
		if err := ctx.Err(); err != nil {
			return over(&fs.PathError{Op: op, Path: dir, Err: err})
		}
		if strings.HasSuffix(c.key, "/") {
			if !s.walk(ctx, op, folder+c.key, prefix, yield) {
				return false
			}
		} else if !yield(c.entry, nil) {
			return false
		}
	}
	return true
}

// within says that the folder that target describes is the one called name, or one
// above it in the store.
func (s *Store) within(target fs.FileInfo, name string) bool {
	for ; ; name = above(name) {
		if info, err := os.Stat(s.at(name)); err == nil && os.SameFile(info, target) {
			return true
		}
		if name == "" {
			return false
		}
	}
}
