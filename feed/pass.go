package feed

import (
	"context"
	"fmt"
	"io"
	"iter"
	"sync"

	"shardify/reader"
)

// pass is an epoch on its way to a client.
type pass struct {
	session *session
	number  int64
	reader  *opened
	credit  int64
	batches iter.Seq2[*reader.Batch, error]
	cancel  context.CancelFunc
	ctx     context.Context
	done    chan struct{}

	mu   sync.Mutex
	back chan struct{} // something was released
	held map[int64]lent
	next int64 // the number of the next batch of reads
	used int64
	// released counts what was, coming those of held that are.
	released int64
	coming   int
	ended    bool
}

// lent is a batch that the client has, or that is coming.
type lent struct {
	bytes   int64
	release func()
	// coming: it is on its way to a GPU, and the client has not been told of it.
	coming bool
}

// run sends the batches, and that there are no more. It reports how long the client
// keeps it waiting for room.
func (p *pass) run() {
	defer close(p.done)
	end := endEvent{Event: "end", Pass: p.number}
	send, finish := p.send, func() error { return nil }
	if p.reader.ring != nil {
		send, finish = p.uploads()
	}
	for b, err := range p.batches {
		if err == nil {
			err = send(b)
		}
		if err != nil {
			end.Error = wireError(err)
			break
		}
	}
	stopped := p.ctx.Err() != nil
	if err := finish(); err != nil {
		end.Error, stopped = wireError(err), false
	}
	if !stopped {
		p.session.out.put(message{text: text(end)})
	}
	p.session.over(p)
}

// send sends a batch when the credit allows it. The error ends the pass.
func (p *pass) send(b *reader.Batch) error {
	l, one, payload, err := p.session.prepare(b)
	if err != nil {
		b.Release()
		return err
	}
	l.event.Pass, l.event.Bytes = p.number, one.bytes
	if err := p.wait(one.bytes); err != nil {
		one.release()
		return err
	}
	m := message{}
	if payload != nil {
		m.size, m.payload, m.sent = one.bytes, payload, one.release
		one.release = func() {}
	}
	m.text = text(&l.event)
	p.mu.Lock()
	p.held[l.event.Number] = one
	p.used += one.bytes
	p.mu.Unlock()
	p.session.out.put(m)
	return nil
}

// prepare lays a batch out for the client: where it lies, or, over TCP, as the payload that
// is written.
func (s *session) prepare(b *reader.Batch) (l *layout, one lent, payload func(io.Writer) error, err error) {
	if s.inline() {
		l = layOut(b, nil, 0)
		return l, lent{bytes: l.end, release: b.Release}, l.write, nil
	}
	memory, used := b.Slab()
	if l = layOut(b, memory, used); l.end <= int64(len(memory)) {
		l.fill(memory)
		x := s.slabs.lend(memory)
		l.event.Slab = x.number
		return l, lent{bytes: int64(len(memory)), release: b.Release}, nil, nil
	}
	// What stands in for damaged samples is larger than the room behind the batch: all
	// goes to a slab of its own.
	l = layOut(b, nil, 0)
	if memory, err = s.slabs.Alloc(l.end); err != nil {
		return nil, lent{}, nil, err
	}
	l.fill(memory)
	b.Release()
	l.event.Slab = s.slabs.lend(memory).number
	return l, lent{bytes: int64(len(memory)), release: func() { s.slabs.Free(memory) }}, nil, nil
}

// wait waits until so many bytes may be lent, and tells the client when it has all that it
// may have, again after each release that is not enough.
func (p *pass) wait(bytes int64) error {
	told := int64(-1)
	for {
		p.mu.Lock()
		room, released, coming := len(p.held) == 0 || p.used+bytes <= p.credit, p.released, p.coming
		p.mu.Unlock()
		if room {
			return p.ctx.Err()
		}
		if told != released && coming == 0 {
			told = p.tellHeld()
		}
		select {
		case <-p.back:
		case <-p.ctx.Done():
			return p.ctx.Err()
		}
	}
}

// tellHeld tells the client that no batch comes before it has released one.
// It returns how many were released by then.
func (p *pass) tellHeld() (released int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session.out.put(message{text: text(heldEvent{Event: "held", Pass: p.number, Batches: len(p.held), Bytes: p.used, Released: p.released})})
	return p.released
}

// passKey is that of a *pass in its context.
type passKey struct{}

// starved tells the client that it holds all that a pass has, or all that reads may.
func (s *session) starved(ctx context.Context) {
	p, ok := ctx.Value(passKey{}).(*pass)
	if !ok {
		p = s.reads
	}
	p.tellHeld()
}

// release takes batches back. The error is the client's.
func (p *pass) release(numbers []int64) error {
	for _, n := range numbers {
		p.mu.Lock()
		one, held := p.held[n]
		held = held && !one.coming
		if held {
			delete(p.held, n)
			p.used -= one.bytes
			p.released++
			p.gave(one.bytes)
		}
		p.mu.Unlock()
		if !held {
			return errorf(CodeProtocol, "batch %d of pass %d is not held, and was released", n, p.number)
		}
		one.release()
	}
	select {
	case p.back <- struct{}{}:
	default:
	}
	return nil
}

// gave notes that so many bytes came back: of the server's memory, if not of a GPU's.
func (p *pass) gave(bytes int64) {
	if p.ended && p.reader.ring == nil {
		p.session.server.memory.back(p.reader.loan, bytes)
	}
}

// drop releases all, when the client has gone. The pass has ended.
func (p *pass) drop() {
	p.mu.Lock()
	held := p.held
	p.gave(p.used)
	p.held, p.used = map[int64]lent{}, 0
	p.mu.Unlock()
	for _, one := range held {
		one.release()
	}
}

// stop ends the pass and waits for that.
func (p *pass) stop() {
	p.cancel()
	<-p.done
}

func (p *pass) String() string { return fmt.Sprintf("pass %d", p.number) }
