// Package retry wraps a store so that reading outlives what passes: a server that
// answers 503, a body that breaks off, a connection that stalls.
//
// Call [New] on the store that fails, beneath whatever keeps what was read.
//
// # What is retried
//
// Open, Stat, ReadAt and List. A ReadAt that came short goes on at the byte where it
// broke off, in the same buffer; a List goes on behind the last name that it has
// yielded. So bytes and names come once each, in order, as if nothing had happened.
// A read that ends before the object's size is one that came short, whatever the
// inner store calls it.
//
// An error is final, and returned as it is, where another attempt cannot help:
// [fs.ErrNotExist], [fs.ErrPermission], [fs.ErrInvalid] (with it [store.ErrName]),
// [fs.ErrExist], [fs.ErrClosed], [errors.ErrUnsupported], [syscall.ENOTDIR],
// [store.ErrChanged], whatever Config.Retryable denies, and the end of the caller's context.
//
// What writes (Create and its Writer, Remove, Sweep) and Lock is not retried: a
// Commit whose answer got lost may have happened, and only the writer can tell what
// to do about it. Those calls go to the inner store unchanged.
//
// # Waiting
//
// Between attempts passes a random time from 0 to min(MaxBackoff, Backoff × 2ⁿ)
// after n failures in a row: "full jitter" of Marc Brooker, "Exponential Backoff
// And Jitter", AWS Architecture Blog, March 2015, where it cost the server the
// least work and the clients hardly more time than its rivals. A server that says for how
// long it wants to be left alone (an error with a method RetryAfter() time.Duration, as
// store/http has for the header Retry-After) is left alone for so long, but no longer
// than a minute.
//
// # How many at once
//
// Open and ReadAt take turns where more of them are made at once than Config.Reads
// allows; below that the number finds itself, by what the server bears and the line
// holds, as package store/limit says. A read that waits for its turn uses up none of
// its Timeout, and a hedge takes no turn.
//
// # Stalls
//
// Each attempt has the time Config.Timeout, then its context ends. That needs an
// inner store which obeys its context; one that does not (a read of a disk cannot
// be called back) holds ReadAt for as long as it takes, unless Config.Hedge is set.
//
// With Hedge, a ReadAt without an answer after that time is made a second time
// beside the first; the first whole answer counts (Dean and Barroso, "The Tail at
// Scale", CACM 56(2), 2013). Both read into memory of their own, as large as what
// is asked for, and only the answer is copied to the caller: the loser, which may
// wake up much later, never writes there, and nobody waits for it.
package retry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"shardify/store"
	"shardify/store/limit"
)

// ErrStalled: the inner store gave no answer within Config.Timeout.
var ErrStalled = errors.New("the store has stalled")

// Defaults of a zero Config.
const (
	// DefaultAttempts and the two times below outlast about ten seconds of
	// trouble on average.
	DefaultAttempts   = 8
	DefaultBackoff    = 100 * time.Millisecond
	DefaultMaxBackoff = 10 * time.Second
	// DefaultTimeout lets 32 MiB through a line of 10 Mbit/s.
	DefaultTimeout = 30 * time.Second
)

// inAll bounds the attempts of one call of which each brings a little, as a
// multiple of Config.Attempts.
const inAll = 8

// maxAsked bounds what a server may ask to wait.
const maxAsked = time.Minute

// Config says how often and how long. The zero value is a good one for stores
// behind a network. In JSON, times have their units: {"timeout": "30s"}.
type Config struct {
	// Attempts is how many attempts in a row may bring nothing before the last
	// one's error is returned; 1: nothing is retried. 0: DefaultAttempts. However
	// little each of them brings, a call makes no more than 8 × Attempts.
	Attempts int `json:"attempts,omitempty"`
	// Timeout is the time for one attempt; of List, for the way to the next name.
	// Give it the time that the largest read takes on the slowest line. 0:
	// DefaultTimeout; -1: none.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Backoff is the longest wait after the first failure. 0: DefaultBackoff.
	Backoff time.Duration `json:"backoff,omitempty"`
	// MaxBackoff is the longest wait. 0: DefaultMaxBackoff, or Backoff where that
	// is longer.
	MaxBackoff time.Duration `json:"max_backoff,omitempty"`
	// Hedge is the time after which a ReadAt without an answer is made a second
	// time. 0: never. Choose about the 95th percentile of a read's time, so that
	// one read in twenty is made twice.
	Hedge time.Duration `json:"hedge,omitempty"`
	// Reads is how many attempts of Open and ReadAt may be under way at once, at most.
	// 0: limit.DefaultMax; -1: no limit at all.
	Reads int `json:"reads,omitempty"`
	// Retryable says whether an error that is not final in itself may pass; nil:
	// all may. It is called by many goroutines at once.
	Retryable func(error) bool `json:"-"`
}

// Validate reports every fault of c.
func (c Config) Validate() error {
	var faults []error
	if c.Attempts < 0 {
		faults = append(faults, fmt.Errorf("attempts: %d is negative", c.Attempts))
	}
	if c.Reads < -1 {
		faults = append(faults, fmt.Errorf("reads: %d is negative; -1 means no limit", c.Reads))
	}
	if c.Timeout < -1 {
		faults = append(faults, fmt.Errorf("timeout: %v is negative; -1 means none", c.Timeout))
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"backoff", c.Backoff}, {"max_backoff", c.MaxBackoff}, {"hedge", c.Hedge}} {
		if f.d < 0 {
			faults = append(faults, fmt.Errorf("%s: %v is negative", f.name, f.d))
		}
	}
	d := c.withDefaults()
	if c.MaxBackoff > 0 && c.MaxBackoff < d.Backoff {
		faults = append(faults, fmt.Errorf("max_backoff: %v is less than the first backoff, %v", c.MaxBackoff, d.Backoff))
	}
	if d.Timeout > 0 && c.Hedge >= d.Timeout {
		faults = append(faults, fmt.Errorf("hedge: %v is not less than the timeout, %v, so it would never come", c.Hedge, d.Timeout))
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	if c.Attempts == 0 {
		c.Attempts = DefaultAttempts
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Backoff == 0 {
		c.Backoff = DefaultBackoff
	}
	if c.MaxBackoff == 0 {
		c.MaxBackoff = max(DefaultMaxBackoff, c.Backoff)
	}
	return c
}

// Stats counts since New.
type Stats struct {
	Attempts  int64 `json:"attempts"`   // on the inner store, without hedges
	Retries   int64 `json:"retries"`    // attempts but the first of a call
	Continued int64 `json:"continued"`  // retries that went on behind what an earlier attempt had brought
	Timeouts  int64 `json:"timeouts"`   // attempts that stalled
	Hedges    int64 `json:"hedges"`     // reads made a second time
	HedgesWon int64 `json:"hedges_won"` // of those, the ones whose answer counted
	GaveUp    int64 `json:"gave_up"`    // calls that failed although they were retried as often as allowed
	Throttled int64 `json:"throttled"`  // attempts that the server turned away as too many
	Reads     int   `json:"reads"`      // how many may be under way at once, now; 0: no limit
}

// Store is a store whose reads are retried.
type Store struct {
	store.Store // what is not retried
	c           Config
	buffers     sync.Pool      // of *[]byte, for hedged reads
	limiter     *limit.Limiter // nil: there is no limit

	attempts, retries, continued, timeouts, hedges, hedgesWon, gaveUp atomic.Int64
}

var _ store.Store = (*Store)(nil)

// New wraps inner. The error is that c is not valid.
func New(inner store.Store, c Config) (*Store, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("retries of %s: %w", inner.URL(), err)
	}
	s := &Store{Store: inner, c: c.withDefaults()}
	if c.Reads >= 0 {
		l, err := limit.New(limit.Config{Max: c.Reads})
		if err != nil {
			return nil, fmt.Errorf("reads of %s: %w", inner.URL(), err)
		}
		s.limiter = l
	}
	return s, nil
}

// Stats returns the counters as they are now.
func (s *Store) Stats() Stats {
	var reads limit.Stats
	if s.limiter != nil {
		reads = s.limiter.Stats()
	}
	return Stats{
		Throttled: reads.Throttled,
		Reads:     reads.Limit,
		Attempts:  s.attempts.Load(),
		Retries:   s.retries.Load(),
		Continued: s.continued.Load(),
		Timeouts:  s.timeouts.Load(),
		Hedges:    s.hedges.Load(),
		HedgesWon: s.hedgesWon.Load(),
		GaveUp:    s.gaveUp.Load(),
	}
}

// final says that err will not pass by itself.
func (s *Store) final(err error) bool {
	for _, e := range []error{fs.ErrNotExist, fs.ErrPermission, fs.ErrInvalid, fs.ErrExist, fs.ErrClosed, errors.ErrUnsupported, syscall.ENOTDIR, store.ErrChanged} {
		if errors.Is(err, e) {
			return true
		}
	}
	return s.c.Retryable != nil && !s.c.Retryable(err)
}

// call is one call that is retried.
type call struct {
	s        *Store
	ctx      context.Context // the caller's
	op, name string
	start    time.Time
	attempts int
	failures int // in a row, that brought nothing
}

func (s *Store) call(ctx context.Context, op, name string) *call {
	return &call{s: s, ctx: ctx, op: op, name: name, start: time.Now()}
}

// where names what is called.
func (c *call) where() string {
	if c.s.Store == nil {
		return c.name
	}
	return c.s.URL() + "/" + c.name
}

// Calls try again, in the same way, what is no call of a store: the answer to a
// request that is read as a stream, for one. They are safe for concurrent use.
type Calls struct{ s Store }

// NewCalls returns calls under c. The error is that c is not valid.
func NewCalls(c Config) (*Calls, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Calls{Store{c: c.withDefaults()}}, nil
}

// Config is what was given to NewCalls, with defaults.
func (c *Calls) Config() Config { return c.s.c }

// Stats returns the counters as they are now.
func (c *Calls) Stats() Stats { return c.s.Stats() }

// Call is one call that is tried again, by one goroutine.
type Call struct{ c *call }

// Begin begins a call: op, a verb, of what name says.
func (c *Calls) Begin(ctx context.Context, op, name string) *Call {
	return &Call{c.s.call(ctx, op, name)}
}

// Attempt begins an attempt. continued says that it goes on behind what an earlier one
// has brought.
func (c *Call) Attempt(continued bool) {
	c.c.attempt()
	if continued {
		c.c.s.continued.Add(1)
	}
}

// Again waits for the time of the next attempt after one that failed with err, or
// returns what the call fails with. got says that the attempt brought something;
// stalled, that it was ended as it had no answer within Config.Timeout.
func (c *Call) Again(err error, got, stalled bool) error { return c.c.again(err, got, stalled) }

// attempt begins an attempt.
func (c *call) attempt() {
	c.attempts++
	c.s.attempts.Add(1)
	if c.attempts > 1 {
		c.s.retries.Add(1)
	}
}

// again waits for the time of the next attempt after one that failed with err; or
// returns what the call fails with. got says that the attempt brought something;
// stalled, that it ended for its time being over.
func (c *call) again(err error, got, stalled bool) error {
	s := c.s
	if ctxErr := c.ctx.Err(); ctxErr != nil {
		if !errors.Is(err, ctxErr) {
			err = fmt.Errorf("%s %s: %w, after: %w", c.op, c.where(), ctxErr, err)
		}
		return err
	}
	if stalled {
		s.timeouts.Add(1)
		// Not wrapped: the deadline in it is none of the caller's.
		err = fmt.Errorf("%s %s: %w: no answer within %v: %v", c.op, c.where(), ErrStalled, s.c.Timeout, err) //nolint:errorlint // see above
	}
	if s.final(err) {
		return err
	}
	if got {
		c.failures = 0
	} else {
		c.failures++
	}
	if c.failures >= s.c.Attempts || c.attempts >= inAll*s.c.Attempts {
		if c.attempts == 1 {
			return err
		}
		s.gaveUp.Add(1)
		return fmt.Errorf("%s %s: given up after %d attempts in %v: %w",
			c.op, c.where(), c.attempts, time.Since(c.start).Round(time.Millisecond), err)
	}
	timer := time.NewTimer(max(s.backoff(max(c.failures, 1)), asked(err)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.ctx.Done():
		return fmt.Errorf("%s %s: %w, after: %w", c.op, c.where(), c.ctx.Err(), err)
	}
}

// asked is how long the server that err comes from asks to wait.
func asked(err error) time.Duration {
	var e interface{ RetryAfter() time.Duration }
	if !errors.As(err, &e) {
		return 0
	}
	return min(e.RetryAfter(), maxAsked)
}

// backoff is the time to wait after so many failures in a row.
func (s *Store) backoff(failures int) time.Duration {
	most := s.c.Backoff
	for i := 1; i < failures && most < s.c.MaxBackoff; i++ {
		most *= 2
	}
	return rand.N(min(most, s.c.MaxBackoff) + 1)
}

// turn waits until an attempt that asks for so many bytes may be made. done ends it.
func (c *call) turn(bytes int) (done func(n int, err error), err error) {
	l := c.s.limiter
	if l == nil {
		return func(int, error) {}, nil
	}
	slot, err := l.Acquire(c.ctx, int64(bytes))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", c.op, c.where(), err)
	}
	return func(n int, err error) { l.Release(slot, int64(n), errors.Is(err, store.ErrThrottled)) }, nil
}

// limited is ctx for one attempt.
func (s *Store) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.c.Timeout < 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.c.Timeout)
}

// Open opens an object for reading.
func (s *Store) Open(ctx context.Context, name string) (store.Object, error) {
	for c := s.call(ctx, "open", name); ; {
		done, err := c.turn(0)
		if err != nil {
			return nil, err
		}
		c.attempt()
		limited, cancel := s.limited(ctx)
		o, err := s.Store.Open(limited, name)
		stalled := limited.Err() != nil
		cancel()
		done(0, err)
		if err == nil {
			return &object{inner: o, s: s}, nil
		}
		if err := c.again(err, false, stalled); err != nil {
			return nil, err
		}
	}
}

type object struct {
	inner store.Object
	s     *Store

	mu     sync.Mutex
	users  int // attempts under way
	closed bool
}

func (o *object) Info() store.Info { return o.inner.Info() }

// hold keeps inner open until release.
func (o *object) hold() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return &fs.PathError{Op: "read", Path: o.s.URL() + "/" + o.Info().Name, Err: fs.ErrClosed}
	}
	o.users++
	return nil
}

func (o *object) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.users--; o.users == 0 && o.closed {
		o.inner.Close()
	}
}

// Close ends reading; the inner object ends with the last attempt that is still
// under way, which may be the loser of a hedged read.
func (o *object) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return &fs.PathError{Op: "close", Path: o.s.URL() + "/" + o.Info().Name, Err: fs.ErrClosed}
	}
	o.closed = true
	if o.users > 0 {
		return nil
	}
	return o.inner.Close()
}

// ReadAt fills p from byte off on.
func (o *object) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if err := o.hold(); err != nil {
		return 0, err
	}
	defer o.release()
	info := o.Info()
	done := 0
	for c := o.s.call(ctx, "read", info.Name); ; {
		end, err := c.turn(len(p) - done)
		if err != nil {
			return done, err
		}
		c.attempt()
		if done > 0 {
			o.s.continued.Add(1)
		}
		limited, cancel := o.s.limited(ctx)
		n, err := o.read(limited, p[done:], off+int64(done))
		stalled := limited.Err() != nil
		cancel()
		end(n, err)
		done += n
		at := off + int64(done)
		switch {
		case done == len(p) && (err == nil || errors.Is(err, io.EOF)):
			return done, err
		case err == nil, errors.Is(err, io.EOF):
			if err != nil && off >= 0 && at >= info.Size {
				return done, io.EOF
			}
			stalled = false
			err = fmt.Errorf("read %s/%s: %w: the answer ends at byte %d, the object has %d",
				o.s.URL(), info.Name, io.ErrUnexpectedEOF, at, info.Size)
		case done == len(p) && len(p) > 0:
			return done, nil // an error behind what was asked for
		}
		if err := c.again(err, n > 0, stalled); err != nil {
			return done, err
		}
	}
}

// read is one attempt. What it brings, n bytes, is in p; nothing writes to p after
// it has returned.
func (o *object) read(ctx context.Context, p []byte, off int64) (n int, err error) {
	if o.s.c.Hedge == 0 || len(p) == 0 {
		return o.inner.ReadAt(ctx, p, off)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		buffer *[]byte
		n      int
		err    error
		hedge  bool
	}
	answers := make(chan answer, 2) // so the loser can leave its own and go
	ask := func(hedge bool) error {
		if err := o.hold(); err != nil {
			return err
		}
		go func() {
			defer o.release()
			b := o.s.buffer(len(p))
			n, err := o.inner.ReadAt(ctx, *b, off)
			answers <- answer{b, n, err, hedge}
		}()
		return nil
	}
	if err := ask(false); err != nil {
		return 0, err
	}
	asked := 1
	timer := time.NewTimer(o.s.c.Hedge)
	defer timer.Stop()
	for asked > 0 {
		select {
		case a := <-answers:
			asked--
			if a.n > n {
				n = copy(p, (*a.buffer)[:a.n])
			}
			o.s.buffers.Put(a.buffer)
			whole := a.n == len(p) || errors.Is(a.err, io.EOF) && off+int64(a.n) >= o.Info().Size
			if whole && a.hedge {
				o.s.hedgesWon.Add(1)
			}
			if whole || a.err != nil && o.s.final(a.err) {
				return n, a.err
			}
			err = a.err
		case <-timer.C:
			// Where the object has been closed meanwhile, the first answer must do.
			if ask(true) == nil {
				o.s.hedges.Add(1)
				asked++
			}
		case <-ctx.Done():
			return n, fmt.Errorf("read %s/%s at %d: %w", o.s.URL(), o.Info().Name, off, ctx.Err())
		}
	}
	return n, err
}

// buffer returns n bytes of memory.
func (s *Store) buffer(n int) *[]byte {
	b, ok := s.buffers.Get().(*[]byte)
	if !ok || cap(*b) < n {
		b = new([]byte)
		*b = make([]byte, n)
	}
	*b = (*b)[:n]
	return b
}

// Stat describes an object.
func (s *Store) Stat(ctx context.Context, name string) (store.Info, error) {
	for c := s.call(ctx, "stat", name); ; {
		done, err := c.turn(0)
		if err != nil {
			return store.Info{}, err
		}
		c.attempt()
		limited, cancel := s.limited(ctx)
		info, err := store.Stat(limited, s.Store, name)
		stalled := limited.Err() != nil
		cancel()
		done(0, err)
		if err == nil {
			return info, nil
		}
		if err := c.again(err, false, stalled); err != nil {
			return store.Info{}, err
		}
	}
}

// Unfinished is the inner store's, without retries, and nothing where that is no
// store.Sweeper.
func (s *Store) Unfinished(ctx context.Context, prefix string) iter.Seq2[store.Unfinished, error] {
	if inner, ok := s.Store.(store.Sweeper); ok {
		return inner.Unfinished(ctx, prefix)
	}
	return func(func(store.Unfinished, error) bool) {}
}

// Drop is the inner store's, without retries.
func (s *Store) Drop(ctx context.Context, u store.Unfinished) error {
	if inner, ok := s.Store.(store.Sweeper); ok {
		return inner.Drop(ctx, u)
	}
	return fmt.Errorf("drop %s/%s: %w", s.URL(), u.Name, errors.ErrUnsupported)
}

// List yields objects. A pass that fails goes on behind the last name that it has
// yielded; where the inner store is no store.Lister, it is begun again, and what was
// yielded is left out.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return s.ListFrom(ctx, prefix, "", false)
}

// ListFrom is as store.ListFrom, and as List.
func (s *Store) ListFrom(ctx context.Context, prefix, after string, folders bool) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		c := s.call(ctx, "list", prefix)
		last, any := after, false // the name yielded last
		for {
			c.attempt()
			if any {
				s.continued.Add(1)
			}
			from := after
			if _, ok := s.Store.(store.Lister); ok {
				from = last
			}
			got, stalled, err := s.list(ctx, prefix, from, folders, func(info store.Info) (more, isNew bool) {
				if any && info.Name <= last {
					return true, false
				}
				last, any = info.Name, true
				return yield(info, nil), true
			})
			if err == nil {
				return
			}
			if err := c.again(err, got, stalled); err != nil {
				yield(store.Info{}, err)
				return
			}
		}
	}
}

// list is one pass over the inner store. got says that next found something new;
// the pass is over, without an error, when next wants no more.
func (s *Store) list(ctx context.Context, prefix, after string, folders bool, next func(store.Info) (more, isNew bool)) (got, stalled bool, err error) {
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	arm := func() {}
	disarm := func() {}
	if s.c.Timeout > 0 {
		var timer *time.Timer
		arm = func() {
			if timer == nil {
				timer = time.AfterFunc(s.c.Timeout, cancel)
			} else {
				timer.Reset(s.c.Timeout)
			}
		}
		disarm = func() { timer.Stop() }
	}
	arm()
	defer disarm()
	for info, err := range store.ListFrom(limited, s.Store, prefix, after, folders) {
		disarm()
		if err != nil {
			return got, limited.Err() != nil, err
		}
		more, isNew := next(info)
		got = got || isNew
		if !more {
			return got, false, nil
		}
		arm()
	}
	return got, false, nil
}
