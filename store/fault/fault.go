// Package fault wraps a store and makes it fail: at the operation one names, at
// random, slowly, or for good, as when the process is killed. It is for tests.
//
// Call [New]. Whatever does not fail goes to the inner store unchanged, so a
// wrapper with the zero [Config] is as good as the store in it.
//
// # Killing at every step
//
//	for n := int64(1); ; n++ {
//		inner := mem.New()
//		s := fault.New(inner, fault.Config{CrashAt: n})
//		err := work(s)
//		if !s.Crashed() {
//			break // err is nil: the work takes fewer than n operations
//		}
//		// inner is now what a killed process would have left:
//		// check it, do the work again on it, compare.
//	}
//
// Once an operation has returned [ErrCrashed], nothing reaches the inner store any
// more, Abort and unlock least of all: unfinished writes stay as they are until a
// Sweep, a Write that the crash strikes has written half its bytes, and locks are
// free, as the inner store would free them at the end of the process. (Freed by
// unlock, so store/file's lock file is gone, where that of a killed process stays.)
package fault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"shardify/store"
)

var (
	// ErrCrashed: the store is as if the process had been killed.
	ErrCrashed = errors.New("crashed by the fault injector")
	// ErrInjected: the operation failed because the Config says so.
	ErrInjected = errors.New("failed by the fault injector")
)

// Kind is a kind of operation.
type Kind string

// The kinds of operation. A pass over List is one operation, at its start; an
// Abort that does nothing is none.
const (
	Open   Kind = "open"
	ReadAt Kind = "readat"
	Create Kind = "create"
	Write  Kind = "write"
	Commit Kind = "commit"
	Abort  Kind = "abort"
	List   Kind = "list"
	Remove Kind = "remove"
	Lock   Kind = "lock"
	Unlock Kind = "unlock"
	Sweep  Kind = "sweep"
)

var kinds = []Kind{Open, ReadAt, Create, Write, Commit, Abort, List, Remove, Lock, Unlock, Sweep}

// Op is an operation that is about to reach the inner store.
type Op struct {
	Kind Kind
	// Name is the object's or the lock's, or the prefix of List and Sweep.
	Name string
	// N counts the operations from 1, in the order in which they begin.
	N int64
}

// Config says what fails. The zero value fails nothing.
type Config struct {
	// Kinds are those that fail, stall and are counted; empty: all.
	Kinds []Kind `json:"kinds,omitempty"`
	// Before is asked before each operation, by many goroutines at once where the
	// store is used so; an error is what the operation then returns, with its name
	// and number. One that wraps ErrCrashed crashes the store.
	Before func(op Op) error `json:"-"`
	// CrashAt is the number of the operation at which the store crashes; 0: never.
	CrashAt int64 `json:"crash_at,omitempty"`
	// FailAt is the number of the one operation that fails with ErrInjected; 0:
	// none.
	FailAt int64 `json:"fail_at,omitempty"`
	// ErrorRate is the share of operations, from 0 to 1, that fail with ErrInjected
	// at random.
	ErrorRate float64 `json:"error_rate,omitempty"`
	// ShortReadRate is the share of ReadAt, from 0 to 1, that fill only a part of
	// the buffer and return io.ErrUnexpectedEOF with ErrInjected.
	ShortReadRate float64 `json:"short_read_rate,omitempty"`
	// StallRate is the share of operations, from 0 to 1, that wait for Stall first,
	// or until their context ends (a Write's is that of its Create).
	StallRate float64       `json:"stall_rate,omitempty"`
	Stall     time.Duration `json:"stall,omitempty"` // nanoseconds in JSON
	// Seed and the operation's number decide what happens at random.
	Seed uint64 `json:"seed,omitempty"`
}

// Validate reports every fault of c.
func (c Config) Validate() error {
	var faults []error
	for _, k := range c.Kinds {
		if !slices.Contains(kinds, k) {
			faults = append(faults, fmt.Errorf("kinds: %q is none of %q", k, kinds))
		}
	}
	for _, f := range []struct {
		name string
		rate float64
	}{{"error_rate", c.ErrorRate}, {"short_read_rate", c.ShortReadRate}, {"stall_rate", c.StallRate}} {
		if !(f.rate >= 0 && f.rate <= 1) {
			faults = append(faults, fmt.Errorf("%s: %v is not between 0 and 1", f.name, f.rate))
		}
	}
	if c.CrashAt < 0 {
		faults = append(faults, fmt.Errorf("crash_at: %d is negative", c.CrashAt))
	}
	if c.FailAt < 0 {
		faults = append(faults, fmt.Errorf("fail_at: %d is negative", c.FailAt))
	}
	if c.Stall < 0 {
		faults = append(faults, fmt.Errorf("stall: %v is negative", c.Stall))
	}
	return errors.Join(faults...)
}

// Store is a store that fails as its Config says.
type Store struct {
	inner store.Store
	c     Config
	ops   atomic.Int64

	// An operation holds mu for reading while it is in the inner store; a crash
	// waits for those and bars the way for all that come later.
	mu      sync.RWMutex
	crashed bool

	locksMu sync.Mutex
	locks   map[*lock]struct{}
}

var _ store.Store = (*Store)(nil)

// New wraps inner. It panics where c is not valid.
func New(inner store.Store, c Config) *Store {
	if err := c.Validate(); err != nil {
		panic(fmt.Sprintf("fault.New: %v", err))
	}
	return &Store{inner: inner, c: c, locks: map[*lock]struct{}{}}
}

// URL is the inner store's.
func (s *Store) URL() string { return s.inner.URL() }

// Ops returns the number of operations so far.
func (s *Store) Ops() int64 { return s.ops.Load() }

// Crashed says whether the store has crashed.
func (s *Store) Crashed() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.crashed
}

// Crash crashes the store now. When it returns, the inner store has been reached
// for the last time.
func (s *Store) Crash() { s.crash(func() {}) }

// crash crashes the store; last is the struck operation's last act.
func (s *Store) crash(last func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crashed {
		return
	}
	last()
	s.crashed = true
	s.locksMu.Lock()
	defer s.locksMu.Unlock()
	for l := range s.locks {
		// The process is dead; nobody is there to hear of an error.
		_ = l.unlock()
	}
	clear(s.locks)
}

// do performs an operation: what the Config has for it, then, unless that fails,
// act on the inner store. Where the operation crashes the store, struck is its
// last act. r is nil where the Config has nothing for operations of this kind.
func (s *Store) do(ctx context.Context, kind Kind, name string, struck func(), act func(r *rand.Rand) error) error {
	fail := func(n int64, err error) error {
		return fmt.Errorf("%s: %s %q, operation %d: %w", s.URL(), kind, name, n, err)
	}
	if s.Crashed() {
		return fail(s.Ops(), ErrCrashed)
	}
	var n int64
	var r *rand.Rand
	if len(s.c.Kinds) == 0 || slices.Contains(s.c.Kinds, kind) {
		n = s.ops.Add(1)
		r = rand.New(rand.NewPCG(s.c.Seed, uint64(n)))
		stall, broken := r.Float64() < s.c.StallRate, r.Float64() < s.c.ErrorRate
		if stall {
			timer := time.NewTimer(s.c.Stall)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
				return fail(n, ctx.Err())
			}
		}
		var err error
		if s.c.Before != nil {
			err = s.c.Before(Op{kind, name, n})
		}
		switch {
		case n == s.c.CrashAt || errors.Is(err, ErrCrashed):
			s.crash(struck)
			return fail(n, ErrCrashed)
		case err != nil:
			return fail(n, err)
		case broken || n == s.c.FailAt:
			return fail(n, ErrInjected)
		}
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.crashed {
		return fail(n, ErrCrashed)
	}
	return act(r)
}

func nothing() {}

// Open opens an object.
func (s *Store) Open(ctx context.Context, name string) (store.Object, error) {
	var o store.Object
	err := s.do(ctx, Open, name, nothing, func(*rand.Rand) (err error) {
		o, err = s.inner.Open(ctx, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &object{o, s}, nil
}

type object struct {
	store.Object // Info, and Close, which also a crash allows: it frees what is this process's alone
	s            *Store
}

func (o *object) ReadAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	name := o.Info().Name
	err = o.s.do(ctx, ReadAt, name, nothing, func(r *rand.Rand) error {
		short := r != nil && len(p) > 0 && r.Float64() < o.s.c.ShortReadRate
		if short {
			p = p[:r.IntN(len(p))]
		}
		n, err = o.Object.ReadAt(ctx, p, off)
		if short && err == nil {
			err = fmt.Errorf("%s: %s %q: %d bytes: %w: %w", o.s.URL(), ReadAt, name, n, ErrInjected, io.ErrUnexpectedEOF)
		}
		return err
	})
	return n, err
}

// Create starts an object.
func (s *Store) Create(ctx context.Context, name string) (store.Writer, error) {
	var w store.Writer
	err := s.do(ctx, Create, name, nothing, func(*rand.Rand) (err error) {
		w, err = s.inner.Create(ctx, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &writer{s: s, inner: w, ctx: ctx, name: name}, nil
}

type writer struct {
	s     *Store
	inner store.Writer
	ctx   context.Context // Create's, for stalls in Write and Abort
	name  string
	err   error // of the first Write that failed
	done  bool
}

func (w *writer) Write(p []byte) (n int, err error) {
	if w.err != nil {
		return 0, w.err
	}
	half := func() { _, _ = w.inner.Write(p[:len(p)/2]) }
	err = w.s.do(w.ctx, Write, w.name, half, func(*rand.Rand) error {
		n, err = w.inner.Write(p)
		return err
	})
	w.err = err
	return n, err
}

func (w *writer) Commit(ctx context.Context) error {
	if w.done {
		return fmt.Errorf("%s: %s %q: %w", w.s.URL(), Commit, w.name, fs.ErrClosed)
	}
	w.done = true
	reached := false
	err := w.s.do(ctx, Commit, w.name, nothing, func(*rand.Rand) error {
		reached = true
		if w.err != nil {
			return errors.Join(w.err, w.inner.Abort())
		}
		return w.inner.Commit(ctx)
	})
	if err != nil && !reached {
		// A Commit that fails is also the end of the object; unless all is over.
		err = errors.Join(err, w.s.alive(w.inner.Abort))
	}
	return err
}

// alive calls f on the inner store unless the store has crashed.
func (s *Store) alive(f func() error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.crashed {
		return nil
	}
	return f()
}

func (w *writer) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	return w.s.do(w.ctx, Abort, w.name, nothing, func(*rand.Rand) error { return w.inner.Abort() })
}

// List yields objects.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		// The pass itself does not hold the store: what it yields to may need it.
		if err := s.do(ctx, List, prefix, nothing, func(*rand.Rand) error { return nil }); err != nil {
			yield(store.Info{}, err)
			return
		}
		for info, err := range s.inner.List(ctx, prefix) {
			if s.Crashed() {
				yield(store.Info{}, fmt.Errorf("%s: %s %q: %w", s.URL(), List, prefix, ErrCrashed))
				return
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// Remove deletes an object.
func (s *Store) Remove(ctx context.Context, name string) error {
	return s.do(ctx, Remove, name, nothing, func(*rand.Rand) error { return s.inner.Remove(ctx, name) })
}

type lock struct{ unlock func() error }

// Lock takes a lock.
func (s *Store) Lock(ctx context.Context, name, owner string) (unlock func() error, err error) {
	l := &lock{}
	err = s.do(ctx, Lock, name, nothing, func(*rand.Rand) (err error) {
		if l.unlock, err = s.inner.Lock(ctx, name, owner); err != nil {
			return err
		}
		s.locksMu.Lock()
		defer s.locksMu.Unlock()
		s.locks[l] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return func() error {
		return s.do(ctx, Unlock, name, nothing, func(*rand.Rand) error {
			s.locksMu.Lock()
			delete(s.locks, l)
			s.locksMu.Unlock()
			return l.unlock()
		})
	}, nil
}

// Sweep removes what unfinished writes have left.
func (s *Store) Sweep(ctx context.Context, prefix string) error {
	return s.do(ctx, Sweep, prefix, nothing, func(*rand.Rand) error { return s.inner.Sweep(ctx, prefix) })
}
