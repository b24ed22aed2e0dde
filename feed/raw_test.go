package feed

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"testing"
	"time"
)

// raw is a client that sends what it likes.
type raw struct {
	t      testing.TB
	conn   net.Conn
	r      *bufio.Reader
	ids    int64
	events []map[string]any
}

// talk is a raw client of a server.
func talk(t testing.TB, s *Server, network string) *raw {
	t.Helper()
	there, here := pair(t, network)
	s.wg.Go(func() { s.ServeConn(there) })
	if err := here.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = here.Close() })
	return &raw{t: t, conn: here, r: bufio.NewReader(here)}
}

// send sends a message.
func (x *raw) send(message string) {
	x.t.Helper()
	if _, err := x.conn.Write(append(appendHead(nil, len(message), 0), message...)); err != nil {
		x.t.Fatal(err)
	}
}

// frame reads a message; nil at the end.
func (x *raw) frame() map[string]any {
	x.t.Helper()
	data, payload, err := readFrame(x.r, maxText)
	if err == io.EOF || err != nil && isReset(err) {
		return nil
	}
	if err != nil {
		x.t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, x.r, payload); err != nil {
		x.t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		x.t.Fatal(err)
	}
	return m
}

// ask sends a request and reads its ok into ok.
func (x *raw) ask(q *request, ok any) {
	x.t.Helper()
	x.ids++
	id := x.ids
	q.ID = &id
	x.send(string(text(q)))
	for {
		m := x.frame()
		switch {
		case m == nil:
			x.t.Fatalf("%s: the connection has ended", q.Op)
		case m["id"] == nil:
			x.events = append(x.events, m)
		case m["id"] != float64(id) || m["ok"] == nil:
			x.t.Fatalf("%s: the answer is %v", q.Op, m)
		default:
			if ok != nil {
				if err := json.Unmarshal(text(m["ok"]), ok); err != nil {
					x.t.Fatal(err)
				}
			}
			return
		}
	}
}

// event is the next one that is no slab's, which must be of that name.
func (x *raw) event(name string) map[string]any {
	x.t.Helper()
	for {
		var m map[string]any
		if len(x.events) > 0 {
			m, x.events = x.events[0], x.events[1:]
		} else {
			m = x.frame()
		}
		switch {
		case m["event"] == "slab" || m["event"] == "unslab":
		case m["event"] == name:
			return m
		default:
			x.t.Fatalf("%v came, want %s", m, name)
		}
	}
}

// end ends the connection.
func (x *raw) end() {
	x.t.Helper()
	if err := x.conn.Close(); err != nil {
		x.t.Error(err)
	}
}
