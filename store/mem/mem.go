// Package mem keeps a store in memory: for tests, and for small data that need
// not outlive the process. Call [New].
//
// Objects lie in one flat table, so "a" and "a/b" may both exist. Nothing in it
// is bounded.
package mem

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"shardify/store"
)

// Store is a store in memory.
type Store struct {
	mu         sync.Mutex
	objects    map[string]object
	locks      map[string]string    // owners by name
	unfinished map[*writer]struct{} // Writers neither done nor swept
}

var _ store.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store {
	return &Store{
		objects:    map[string]object{},
		locks:      map[string]string{},
		unfinished: map[*writer]struct{}{},
	}
}

// URL is "mem:" for every store in memory.
func (s *Store) URL() string { return "mem:" }

func fault(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: "mem:/" + name, Err: err}
}

func check(ctx context.Context, op, name string) error {
	if err := ctx.Err(); err != nil {
		return fault(op, name, err)
	}
	if err := store.CheckName(name); err != nil {
		return fmt.Errorf("%s in mem: %w", op, err)
	}
	return nil
}

// Open opens the object called name.
func (s *Store) Open(ctx context.Context, name string) (store.Object, error) {
	if err := check(ctx, "open", name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[name]
	if !ok {
		return nil, fault("open", name, fs.ErrNotExist)
	}
	return &reader{object: o}, nil
}

// object is immutable.
type object struct {
	info store.Info
	data []byte
}

type reader struct {
	object
	mu     sync.RWMutex
	closed bool
}

func (r *reader) Info() store.Info { return r.info }

func (r *reader) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	switch {
	case ctx.Err() != nil:
		return 0, fault("read", r.info.Name, ctx.Err())
	case r.closed:
		return 0, fault("read", r.info.Name, fs.ErrClosed)
	case off < 0:
		return 0, fault("read", r.info.Name, fmt.Errorf("%w: offset %d", fs.ErrInvalid, off))
	}
	n := copy(p, r.data[min(off, int64(len(r.data))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (r *reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fault("close", r.info.Name, fs.ErrClosed)
	}
	r.closed = true
	return nil
}

// Create starts the object called name.
func (s *Store) Create(ctx context.Context, name string) (store.Writer, error) {
	if err := check(ctx, "create", name); err != nil {
		return nil, err
	}
	w := &writer{s: s, name: name}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unfinished[w] = struct{}{}
	return w, nil
}

type writer struct {
	s    *Store
	name string
	data []byte
	done bool
}

func (w *writer) Write(p []byte) (int, error) {
	if w.done {
		return 0, fault("write", w.name, fs.ErrClosed)
	}
	w.data = append(w.data, p...)
	return len(p), nil
}

func (w *writer) Commit(ctx context.Context) error {
	if w.done {
		return fault("commit", w.name, fs.ErrClosed)
	}
	data, swept := w.end()
	if err := ctx.Err(); err != nil {
		return fault("commit", w.name, err)
	}
	if swept {
		return fault("commit", w.name, fmt.Errorf("%w: it was swept while it was written", fs.ErrNotExist))
	}
	info := store.Info{Name: w.name, Size: int64(len(data)), ModTime: time.Now()}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.objects[w.name] = object{info, data}
	return nil
}

func (w *writer) Abort() error {
	w.end()
	return nil
}

// end ends writing; it returns what was written and whether a Sweep has dropped it.
func (w *writer) end() (data []byte, swept bool) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	_, ok := w.s.unfinished[w]
	delete(w.s.unfinished, w)
	data, w.data, w.done = w.data, nil, true
	return data, !ok
}

// List yields the objects whose names begin with prefix, as they are when the
// pass begins.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		var infos []store.Info
		s.mu.Lock()
		for name, o := range s.objects {
			if strings.HasPrefix(name, prefix) {
				infos = append(infos, o.info)
			}
		}
		s.mu.Unlock()
		slices.SortFunc(infos, func(a, b store.Info) int { return strings.Compare(a.Name, b.Name) })
		for i := 0; ; i++ {
			if err := ctx.Err(); err != nil {
				yield(store.Info{}, fault("list", prefix, err))
				return
			}
			if i == len(infos) || !yield(infos[i], nil) {
				return
			}
		}
	}
}

// Remove deletes the object called name.
func (s *Store) Remove(ctx context.Context, name string) error {
	if err := check(ctx, "remove", name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, name)
	return nil
}

// Lock takes the lock called name. It is no object, and holds within this Store.
func (s *Store) Lock(ctx context.Context, name, owner string) (unlock func() error, err error) {
	if err := check(ctx, "lock", name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if by, ok := s.locks[name]; ok {
		return nil, fault("lock", name, fmt.Errorf("%w: held by %q", store.ErrLocked, by))
	}
	s.locks[name] = owner
	return sync.OnceValue(func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.locks, name)
		return nil
	}), nil
}

// Sweep drops what Writers that are neither committed nor aborted have written
// under names that begin with prefix.
func (s *Store) Sweep(ctx context.Context, prefix string) error {
	if err := ctx.Err(); err != nil {
		return fault("sweep", prefix, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.unfinished {
		if strings.HasPrefix(w.name, prefix) {
			delete(s.unfinished, w)
		}
	}
	return nil
}
