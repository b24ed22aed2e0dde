// Package limit finds how many requests a server should be sent at once: so many that
// its latency is hidden, so few that it does not turn them away. Call [New], and put
// every request between [Limiter.Acquire] and [Limiter.Release].
//
// # How the limit moves
//
// Time is divided into windows, each as long as two requests take, at least 100 ms and
// at least as many requests as the limit allows at once. The first one begins with the
// first answer: before it nothing could come. Only windows count in which requests had to
// wait for a slot: what is not at the limit says nothing about it.
//
//   - As long as nothing is known, requests that ask for 16 MiB together may be under way
//     at once, however small they are: 130 of a photograph, so that a first batch of 256
//     comes in two rounds. That many is the limit then.
//   - Then the limit doubles with each window, as long as the throughput grows by a
//     tenth at least. When it does not, the last doubling is taken back.
//   - From then on one window in thirty tries a quarter more, and keeps it if the
//     throughput grows by a twentieth.
//   - When the server turns a request away, the limit is halved, once for all requests
//     that were under way at that moment, and after that grows by one each window, as
//     far as it had once grown: additive increase, multiplicative decrease (Chiu and
//     Jain, "Analysis of the increase and decrease algorithms for congestion
//     avoidance in computer networks", Computer Networks and ISDN Systems 17, 1989).
//
// Throughput is bytes, and 16 KiB for each request, a second.
package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Defaults of a zero Config.
const (
	// DefaultStart are enough large requests for a line of 10 Gb/s and 50 ms.
	DefaultStart = 32
	// DefaultMax hides 50 ms from some 5,000 requests a second.
	DefaultMax = 256
)

const (
	leastWindow = 100 * time.Millisecond
	startBytes  = 16 << 20 // that are asked for at once, as long as nothing is known
	perRequest  = 16 << 10 // bytes that a request counts for
	probeEvery  = 30       // windows
)

// Config bounds the limit. The zero value is the defaults.
type Config struct {
	// Start is the limit at first, 0: DefaultStart, or Max where that is less.
	Start int
	// Max is the largest limit. 0: DefaultMax. The smallest is 1.
	Max int
}

// Validate reports every fault of c.
func (c Config) Validate() error {
	var faults []error
	if c.Start < 0 {
		faults = append(faults, fmt.Errorf("start: %d is negative", c.Start))
	}
	if c.Max < 0 {
		faults = append(faults, fmt.Errorf("max: %d is negative", c.Max))
	}
	if m := c.max(); c.Start > m {
		faults = append(faults, fmt.Errorf("start: %d is more than the largest limit, %d", c.Start, m))
	}
	return errors.Join(faults...)
}

func (c Config) max() int {
	if c.Max == 0 {
		return DefaultMax
	}
	return c.Max
}

// Stats is how a Limiter stands.
type Stats struct {
	Limit     int   // requests that may be under way at once
	Used      int   // that are
	Waiting   int   // that wait for a slot
	Throttled int64 // that were turned away, since New
}

// Limiter is a semaphore whose size finds itself. It is safe for concurrent use.
type Limiter struct {
	mu      sync.Mutex
	max     int
	limit   int
	used    int
	asked   int64 // by those, with perRequest for each
	waiting queue
	cuts    int64 // halvings so far
	turned  int64

	// The window: since when (zero before the first answer), what ended in it, and for how long it was full.
	since    time.Time
	work     int64
	requests int64
	latency  time.Duration // of those requests, in sum
	full     time.Duration // while somebody waited
	fullAt   time.Time     // since when somebody waits; zero if nobody does

	phase  phase
	before level // from where the limit was raised
	ceil   int   // where additive growth ends
	calm   int   // windows since the last probe
}

// level is a limit and the throughput under it.
type level struct {
	limit int
	rate  float64
}

type phase int

const (
	doubling phase = iota
	holding
	probing
	adding
)

// New returns a limiter. The error is that c is not valid.
func New(c Config) (*Limiter, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("limit: %w", err)
	}
	l := &Limiter{max: c.max()}
	if l.limit = c.Start; l.limit == 0 {
		l.limit = min(DefaultStart, l.max)
	}
	return l, nil
}

// Slot is a request that may be under way.
type Slot struct {
	began time.Time
	cuts  int64
	asked int64
}

// Acquire waits until a request for so many bytes may be sent, first come, first served, or
// for the end of ctx, whose error it then returns.
func (l *Limiter) Acquire(ctx context.Context, bytes int64) (Slot, error) {
	if err := ctx.Err(); err != nil {
		return Slot{}, err
	}
	l.mu.Lock()
	bytes += perRequest
	if l.waiting.len() == 0 && l.room(bytes) {
		s := l.take(time.Now(), bytes)
		l.mu.Unlock()
		return s, nil
	}
	w := waiter{make(chan Slot, 1), bytes}
	if l.waiting.len() == 0 {
		l.fullAt = time.Now()
	}
	l.waiting.push(w)
	l.mu.Unlock()
	select {
	case s := <-w.slot:
		return s, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.waiting.remove(w) {
		// It has got its slot in the same moment.
		s := <-w.slot
		l.used--
		l.asked -= s.asked
	}
	l.admit(time.Now())
	return Slot{}, ctx.Err()
}

// room says that a request which asks for so much may be sent.
func (l *Limiter) room(bytes int64) bool {
	if l.used < l.limit {
		return true
	}
	unknown := l.phase == doubling && l.before.limit == 0
	return unknown && l.used < l.max && l.asked+bytes <= startBytes
}

// take gives a request that may be sent its slot.
func (l *Limiter) take(now time.Time, bytes int64) Slot {
	l.used++
	l.limit = max(l.limit, l.used)
	l.asked += bytes
	return Slot{now, l.cuts, bytes}
}

// Release ends a request that has brought so many bytes. throttled says that the server
// has turned it away for being one too many.
func (l *Limiter) Release(s Slot, bytes int64, throttled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.since.IsZero() {
		l.begin(now)
	}
	l.used--
	l.asked -= s.asked
	l.requests++
	l.latency += now.Sub(s.began)
	if throttled {
		l.turned++
		if s.cuts == l.cuts {
			l.cut(now)
		}
	} else {
		l.work += bytes + perRequest
	}
	l.admit(now)
	l.look(now)
}

// Stats returns how l stands.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{l.limit, l.used, l.waiting.len(), l.turned}
}

// admit gives free slots to those who wait.
func (l *Limiter) admit(now time.Time) {
	for l.waiting.len() > 0 && l.room(l.waiting.first().asks) {
		w := l.waiting.pop()
		w.slot <- l.take(now, w.asks)
	}
	if l.waiting.len() == 0 && !l.fullAt.IsZero() {
		l.full += now.Sub(l.fullAt)
		l.fullAt = time.Time{}
	}
}

// cut halves the limit.
func (l *Limiter) cut(now time.Time) {
	l.ceil = max(1, l.limit-1)
	l.limit = max(1, l.limit/2)
	l.cuts++
	l.phase = adding
	l.begin(now)
}

// begin begins a window.
func (l *Limiter) begin(now time.Time) {
	l.since, l.work, l.requests, l.latency, l.full = now, 0, 0, 0, 0
	if !l.fullAt.IsZero() {
		l.fullAt = now
	}
}

// look ends a window that is over, and moves the limit.
func (l *Limiter) look(now time.Time) {
	took := now.Sub(l.since)
	if took < leastWindow || l.requests < int64(l.limit) || took < 2*l.latency/time.Duration(l.requests) {
		return
	}
	full := l.full
	if !l.fullAt.IsZero() {
		full += now.Sub(l.fullAt)
	}
	at := level{l.limit, float64(l.work) / took.Seconds()}
	l.begin(now)
	if full < took/2 {
		return
	}
	switch l.phase {
	case doubling:
		if l.before.limit > 0 && at.rate < 1.1*l.before.rate {
			l.limit, l.phase = l.before.limit, holding
			break
		}
		l.raise(at, 2*l.limit)
	case holding:
		if l.calm++; l.calm >= probeEvery {
			l.phase = probing
			l.raise(at, l.limit+max(1, l.limit/4))
		}
	case probing:
		if at.rate < 1.05*l.before.rate {
			l.limit, l.phase = l.before.limit, holding
			break
		}
		l.raise(at, l.limit+max(1, l.limit/4))
	case adding:
		if l.limit++; l.limit >= l.ceil {
			l.limit, l.phase = l.ceil, holding
		}
	}
	l.admit(now)
}

// raise goes from a level to another limit, or holds where there is no higher one.
func (l *Limiter) raise(from level, to int) {
	l.calm = 0
	if to = min(to, l.max); to == l.limit {
		l.phase = holding
		return
	}
	l.before, l.limit = from, to
}

// waiter is one who waits for a slot.
type waiter struct {
	slot chan Slot
	asks int64
}

// queue is those who wait, in their order.
type queue struct {
	waiters []waiter
	head    int
}

func (q *queue) len() int { return len(q.waiters) - q.head }

func (q *queue) first() waiter { return q.waiters[q.head] }

func (q *queue) push(w waiter) {
	if q.head > 64 && q.head > len(q.waiters)/2 {
		n := copy(q.waiters, q.waiters[q.head:])
		clear(q.waiters[n:])
		q.waiters, q.head = q.waiters[:n], 0
	}
	q.waiters = append(q.waiters, w)
}

func (q *queue) pop() waiter {
	w := q.waiters[q.head]
	q.waiters[q.head] = waiter{}
	q.head++
	return w
}

func (q *queue) remove(w waiter) bool {
	for i := q.head; i < len(q.waiters); i++ {
		if q.waiters[i] == w {
			copy(q.waiters[i:], q.waiters[i+1:])
			q.waiters[len(q.waiters)-1] = waiter{}
			q.waiters = q.waiters[:len(q.waiters)-1]
			return true
		}
	}
	return false
}
