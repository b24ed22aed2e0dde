package gpu

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"shardify/gpu/internal/cuda"
	"shardify/reader"
)

// sim is a GPU on paper, to try the ring's real code in every order that CUDA allows. Work
// that is put into a stream is done whenever the explorer chooses, as long as streams keep
// their order and waits are kept; and so is every call of the ring's goroutines that can
// meet another: they stop in it until the explorer lets them go on. All else that they
// do is determined by these calls, so that choices, replayed, lead to the same place.
//
// Of what CUDA does, it has: an event is done when what was before it in the stream at the
// last Record is; a Wait is for the event as recorded when Wait is called; an event that was
// never recorded is done.
type sim struct {
	mutant mutant
	meter  meter
	// failing: this call, counted from 1, returns fault.
	failing int
	fault   error
	failed  string // which it was

	mu      sync.Mutex
	calls   int
	next    uint64 // handles
	memory  map[Pointer]*int
	streams map[Stream]*simStream
	events  map[cuda.Event]*record
	slabs   map[*byte]*slab // by their bytes
	staging map[*byte]bool
	live    map[string]int
	pending map[string]*call
	// history is what decides the state, besides what is pending.
	history map[string][]string
	wrong   []string
	lost    error
	// clock counts the work that was done, in milliseconds.
	clock int
}

// mutant is what is left out of what the ring asks for.
type mutant int

const (
	faithful        mutant = iota
	noReuseWait            // the copy stream does not wait for the consumer
	noReadyWait            // the consumer's stream does not wait for the copy
	noReadySync            // a slab is released at once
	noReuseSync            // memory is freed at once
	reuseBeforeWork        // the reuse event is recorded before the work is done
	readyBeforeCopy        // the ready event is done before the copy
	mutants
)

// simStream is a stream: what is in it and was not done.
type simStream struct{ queue []*simOp }

// simOp is work in a stream: a copy, a kernel that reads, an event, or a wait for one.
type simOp struct {
	name    string
	waits   *record
	records *record
	src     *slab
	staged  []byte // copied, in place of a slab
	at      Pointer
	want    int // what a kernel has to find
}

// works: it is done when the explorer chooses.
func (op *simOp) works() bool { return op.src != nil || op.staged != nil || op.want != 0 }

// record is an event as it was recorded once, and where. at is when it was done.
type record struct {
	done, timed bool
	in          Stream
	at          int
}

// call is a goroutine's that waits to go on.
type call struct {
	enabled func() bool
	effect  func()
	proceed chan struct{}
}

// slab is a batch in the host's memory.
type slab struct {
	sim      *sim
	number   int
	content  int
	bytes    []byte
	released bool
}

func newSim() *sim {
	return &sim{
		memory: map[Pointer]*int{}, streams: map[Stream]*simStream{compute: {}}, events: map[cuda.Event]*record{},
		slabs: map[*byte]*slab{}, staging: map[*byte]bool{}, live: map[string]int{}, pending: map[string]*call{}, history: map[string][]string{},
	}
}

func (s *sim) wrongly(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// fails counts the calls, of which one may fail.
func (s *sim) fails(name string) error {
	s.calls++
	if s.calls == s.failing {
		s.failed = name
		if errors.Is(s.fault, ErrContextLost) {
			s.lose()
		}
		return s.fault
	}
	return s.lost
}

// lose drops all work, as a context that is lost does.
func (s *sim) lose() {
	s.lost = s.fault
	for _, st := range s.streams {
		for _, op := range st.queue {
			if op.records != nil {
				op.records.done = true
			}
		}
		st.queue = nil
	}
}

// now does something at once.
func (s *sim) now(name string, f func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fails(name); err != nil {
		return err
	}
	f()
	return nil
}

// later does something when the explorer chooses to, and enabled allows it.
func (s *sim) later(name string, enabled func() bool, effect func()) error {
	s.mu.Lock()
	if err := s.fails(name); err != nil {
		s.mu.Unlock()
		return err
	}
	for s.pending[name] != nil { // two wait for a stream after a fault
		if !strings.HasPrefix(name, "synchronize stream") {
			panic("two calls are " + name)
		}
		name += " too"
	}
	c := &call{enabled, effect, make(chan struct{})}
	s.pending[name] = c
	s.mu.Unlock()
	<-c.proceed
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

func always() bool { return true }

func (s *sim) handle() uint64 { s.next++; return s.next << 20 }

func (s *sim) Alloc(n int64) (p Pointer, err error) {
	err = s.now("Alloc", func() {
		p = Pointer(s.handle())
		s.memory[p] = new(int)
		*s.memory[p] = -1
		s.live["memory"]++
	})
	return p, err
}

func (s *sim) Free(p Pointer) error {
	return s.now("Free", func() {
		if s.memory[p] == nil {
			s.wrongly("memory freed that is not there")
		}
		for _, st := range s.streams {
			for _, op := range st.queue {
				if op.at == p {
					s.wrongly("memory freed under %s", op.name)
				}
			}
		}
		delete(s.memory, p)
		s.live["memory"]--
	})
}

func (s *sim) NewStream() (h Stream, err error) {
	err = s.now("NewStream", func() {
		h = Stream(s.handle())
		s.streams[h] = new(simStream)
		s.live["streams"]++
	})
	return h, err
}

func (s *sim) DestroyStream(Stream) error {
	return s.now("DestroyStream", func() { s.live["streams"]-- })
}

func (s *sim) NewEvent(timed bool) (e cuda.Event, err error) {
	err = s.now("NewEvent", func() {
		e = cuda.Event(s.handle())
		s.events[e] = &record{done: true, timed: timed}
		s.live["events"]++
	})
	return e, err
}

func (s *sim) DestroyEvent(e cuda.Event) error {
	return s.now("DestroyEvent", func() { delete(s.events, e); s.live["events"]-- })
}

// put puts work into a stream, and does what is nothing to choose: events, and waits for
// those that are done. (To do them later allows no order that is not tried so, too: who
// waits for them may always be chosen later.)
func (s *sim) put(h Stream, op *simOp) {
	st := s.streams[h]
	st.queue = append(st.queue, op)
	key := fmt.Sprint("stream ", h)
	s.history[key] = append(s.history[key], op.name)
	s.settle()
}

func (s *sim) settle() {
	for again := true; again; {
		again = false
		for _, st := range s.streams {
			for len(st.queue) > 0 {
				op := st.queue[0]
				if op.works() || op.waits != nil && !op.waits.done {
					break
				}
				if op.records != nil {
					op.records.done, op.records.at = true, s.clock
				}
				st.queue = st.queue[1:]
				again = true
			}
		}
	}
}

// Record of an event that is timed meets no other call: nobody waits for it.
func (s *sim) Record(e cuda.Event, h Stream) error {
	s.mu.Lock()
	timed := s.events[e].timed
	s.mu.Unlock()
	if timed {
		name := fmt.Sprintf("stamp %x in %x", e, h)
		return s.now(name, func() {
			r := &record{in: h, timed: true}
			s.events[e] = r
			s.put(h, &simOp{name: name, records: r})
		})
	}
	name := fmt.Sprintf("record %x in %x", e, h)
	return s.later(name, always, func() {
		r := &record{in: h}
		s.events[e] = r
		op := &simOp{name: name, records: r}
		early := s.mutant == reuseBeforeWork && h == compute || s.mutant == readyBeforeCopy && h != compute
		if n := len(s.streams[h].queue); early && n > 0 {
			r.done = true
		}
		s.put(h, op)
	})
}

func (s *sim) Elapsed(from, to cuda.Event) (d time.Duration, done bool, err error) {
	err = s.now("Elapsed", func() {
		a, b := s.events[from], s.events[to]
		if !a.timed || !b.timed || a.in == 0 || b.in == 0 {
			s.wrongly("the time between events that are not timed, or were not recorded")
		}
		if done = a.done && b.done; !done {
			s.wrongly("the time between events that are not over")
		}
		d = time.Duration(b.at-a.at) * time.Millisecond
	})
	return d, done, err
}

func (s *sim) Wait(h Stream, e cuda.Event) error {
	name := fmt.Sprintf("wait in %x for %x", h, e)
	return s.later(name, always, func() {
		if s.mutant == noReadyWait && h == compute || s.mutant == noReuseWait && h != compute {
			return
		}
		s.put(h, &simOp{name: name, waits: s.events[e]})
	})
}

func (s *sim) SynchronizeEvent(e cuda.Event) error {
	s.mu.Lock()
	r := s.events[e]
	s.mu.Unlock()
	return s.later(fmt.Sprintf("synchronize %x", e), func() bool {
		return r.done || s.mutant == noReadySync && r.in != compute || s.mutant == noReuseSync && r.in == compute
	}, func() {})
}

func (s *sim) SynchronizeStream(h Stream) error {
	return s.later(fmt.Sprintf("synchronize stream %x", h), func() bool { return len(s.streams[h].queue) == 0 }, func() {})
}

func (s *sim) Upload(dst Pointer, src []byte, h Stream) error {
	return s.now("Upload", func() {
		if b := s.slabs[&src[0]]; b != nil {
			s.put(h, &simOp{name: fmt.Sprintf("copy %d to %x", b.number, dst), src: b, at: dst})
		} else if s.staging[&src[0]] {
			s.put(h, &simOp{name: fmt.Sprintf("copy %d to %x", shade(src), dst), staged: src, at: dst})
		} // else it is what says where images lie, whose fate is that of the images
	})
}

// compute is the consumer's stream.
const compute Stream = 7

// kernel puts work into the consumer's stream that reads a batch, and must find it whole.
func (s *sim) kernel(p Pointer, number int) error {
	return s.now("kernel", func() {
		s.put(compute, &simOp{name: fmt.Sprintf("kernel %d of %x", number, p), at: p, want: number + 1})
	})
}

func (b *slab) Tensors() []reader.Tensor {
	return []reader.Tensor{{Name: "image", DType: reader.DTypeUint8, Shape: []int{len(b.bytes)}, Data: b.bytes}}
}

func (b *slab) Release() {
	s := b.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.released {
		s.wrongly("slab %d released twice", b.number)
	}
	b.released = true
	for _, st := range s.streams {
		for _, op := range st.queue {
			if op.src == b {
				s.wrongly("slab %d released before its copy ended", b.number)
			}
		}
	}
	b.content = -1 // another batch's
	s.live["slabs"]--
	s.history["released"] = append(s.history["released"], fmt.Sprint(b.number))
}

// actions are what may happen next, in a fixed order.
func (s *sim) actions() (names []string, do []func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	type action struct {
		name string
		do   func()
	}
	var all []action
	for h, st := range s.streams {
		if len(st.queue) == 0 {
			continue
		}
		if op := st.queue[0]; op.works() {
			all = append(all, action{fmt.Sprintf("run %x: %s", h, op.name), func() { s.run(h) }})
		}
	}
	for name, c := range s.pending {
		if c.enabled() {
			all = append(all, action{name, func() {
				s.mu.Lock()
				delete(s.pending, name)
				s.history["calls "+role(name)] = append(s.history["calls "+role(name)], name)
				if strings.HasSuffix(name, fmt.Sprintf(" in %x", compute)) || strings.HasPrefix(name, "synchronize") {
					s.history["freed"] = append(s.history["freed"], name) // the order of slots
				}
				if s.lost == nil {
					c.effect()
				}
				s.mu.Unlock()
				close(c.proceed)
			}})
		}
	}
	slices.SortFunc(all, func(a, b action) int { return strings.Compare(a.name, b.name) })
	for _, a := range all {
		names, do = append(names, a.name), append(do, a.do)
	}
	return names, do
}

// role is whose call it is: that of a consumer's, or of a goroutine of the ring.
func role(name string) string {
	switch {
	case strings.HasSuffix(name, fmt.Sprintf(" in %x", compute)), strings.HasPrefix(name, fmt.Sprintf("wait in %x", compute)):
		return "consumer"
	case strings.HasPrefix(name, "synchronize"):
		return "reaper"
	}
	return "producer"
}

// run does the first work of a stream.
func (s *sim) run(h Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[h]
	op := st.queue[0]
	st.queue = st.queue[1:]
	m := s.memory[op.at&^(1<<20-1)]
	s.clock++
	switch {
	case m == nil:
		s.wrongly("%s: the memory was freed", op.name)
	case op.src != nil:
		*m = op.src.content
	case op.staged != nil:
		*m = shade(op.staged)
	case *m != op.want-1:
		s.wrongly("%s: found %d", op.name, *m)
	}
	key := fmt.Sprintf("stream %d done", h)
	s.history[key] = append(s.history[key], op.name)
	s.settle()
}

// state is a hash of everything that decides what may come.
func (s *sim) state(seed maphash.Seed) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var h maphash.Hash
	h.SetSeed(seed)
	var keys []string
	for k := range s.history {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		fmt.Fprintln(&h, k, s.history[k])
	}
	keys = keys[:0]
	for k := range s.pending {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	fmt.Fprintln(&h, keys)
	return h.Sum64()
}

var _ driver = (*sim)(nil)
