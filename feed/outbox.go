package feed

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
)

// outbox is what waits to be written to a client. Who puts a message in never waits for
// the client: a pass may be about to end, a slab about to be freed. How much can lie in it
// is bounded by what puts it there: replies by the requests under way, batches by their
// credit, and the rest by these.
type outbox struct {
	mu     sync.Mutex
	queue  []message
	wake   chan struct{}
	closed bool
}

// message is a frame to be written.
type message struct {
	text []byte
	// fresh is a slab whose descriptor goes along; nil: none.
	fresh *slab
	// payload writes so many bytes.
	size    int64
	payload func(w io.Writer) error
	// sent, if not nil, is called when it has been written, or never will be.
	sent func()
	// last: the connection ends behind it.
	last bool
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// put puts a message in. After close it is dropped.
func (o *outbox) put(m message) {
	o.mu.Lock()
	closed := o.closed
	if !closed {
		o.queue = append(o.queue, m)
	}
	o.mu.Unlock()
	if closed {
		m.drop()
		return
	}
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// close drops what is in it.
func (o *outbox) close() {
	o.mu.Lock()
	queue := o.queue
	o.queue, o.closed = nil, true
	o.mu.Unlock()
	for _, m := range queue {
		m.drop()
	}
}

// drop ends a message, written or not.
func (m *message) drop() {
	if m.fresh != nil {
		m.fresh.closeFile()
	}
	if m.sent != nil {
		m.sent()
	}
}

// take waits for messages; none come after done.
func (o *outbox) take(done <-chan struct{}) []message {
	for {
		o.mu.Lock()
		queue := o.queue
		o.queue = nil
		o.mu.Unlock()
		if len(queue) > 0 {
			return queue
		}
		select {
		case <-o.wake:
		case <-done:
			return nil
		}
	}
}

// text is the JSON of a message.
func text(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("feed: a message that is no JSON: %v", err)) // they are plain structs
	}
	return b
}

// write writes messages to a client until done, or the last one. The error is the
// connection's.
func (o *outbox) write(conn net.Conn, done <-chan struct{}) error {
	w := bufio.NewWriterSize(conn, 64<<10)
	for {
		queue := o.take(done)
		if queue == nil {
			return nil
		}
		for i := range queue {
			m := &queue[i]
			err := m.write(conn, w)
			m.drop()
			if err != nil || m.last {
				for k := range queue[i+1:] {
					queue[i+1+k].drop()
				}
				return err
			}
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
}

func (m *message) write(conn net.Conn, w *bufio.Writer) error {
	var room [headBytes]byte
	head := appendHead(room[:0], len(m.text), m.size)
	if m.fresh != nil {
		// The descriptor goes with the frame's first byte.
		if err := w.Flush(); err != nil {
			return err
		}
		if err := sendFile(conn, head, m.fresh.file); err != nil {
			return err
		}
	} else if _, err := w.Write(head); err != nil {
		return err
	}
	if _, err := w.Write(m.text); err != nil {
		return err
	}
	if m.payload != nil {
		if err := m.payload(w); err != nil {
			return err
		}
	}
	if m.last {
		return w.Flush()
	}
	return nil
}
