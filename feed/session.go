package feed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"shardify/reader"
)

// source is what gives batches: a reader.Reader or a reader.Stream.
type source interface {
	Epoch(ctx context.Context, epoch int) iter.Seq2[*reader.Batch, error]
	State(epoch int, batch int64) (reader.State, error)
	CheckState(s reader.State) error
	Epochs(ctx context.Context, from reader.State, end int) iter.Seq2[*reader.Batch, error]
	Config() reader.Config
	Tensors() []reader.Tensor
	Stats() reader.Stats
	Lendable() int64
	BatchBytes() int64
	Trim()
	Close() error
}

// opened is a reader of a client's.
type opened struct {
	number int64
	source source
	// indexed is it, where the data has an index.
	indexed *reader.Reader
	// base is what it shares with others; nil for a stream.
	base *base
	loan *loan
	// ring is where its batches lie on a GPU; nil: they lie in the host's memory.
	ring *ring

	mu sync.Mutex
	// reads: memory is lent for reads.
	reads bool
}

// credit is what a pass may lend, of so many bytes that the client wants; 0 is as much as
// the pass can spare without being slower, and two batches if it can lend as many.
func (o *opened) credit(want int64) int64 {
	if o.ring != nil {
		return o.ring.credit(want, o.source)
	}
	most := o.source.Lendable()
	if want == 0 {
		// A loop has the batch before still in its variables when it asks for the next one.
		want = max(most/2, 2*o.source.BatchBytes())
	}
	return min(want, most)
}

// length is the number of batches of an epoch; -1 where that is not known.
func (o *opened) length() int64 {
	if o.indexed != nil {
		return int64(o.indexed.Len())
	}
	if n, known := o.source.(*reader.Stream).Len(); known {
		return n
	}
	return -1
}

// session is a client's connection.
type session struct {
	server *Server
	conn   net.Conn
	ctx    context.Context
	cancel context.CancelCauseFunc
	out    *outbox
	slabs  *slabs
	// remote: the client may be on another host, and must know the token.
	remote bool
	// name is the client's, for people.
	name string

	mu      sync.Mutex
	under   map[int64]bool // requests under way
	readers map[int64]*opened
	passes  map[int64]*pass
	numbers int64 // of readers and passes, so far
	// reads has the batches of read, as pass 0.
	reads *pass
	// tables is full while a part of a table is made, or waits to be written.
	tables chan struct{}
	wg     sync.WaitGroup
}

const (
	// maxUnder is how many requests may be under way.
	maxUnder = 256
	// helloTime is how long a client may take to say who it is.
	helloTime = 10 * time.Second
)

// inline says that the client shares no memory with the server.
func (s *session) inline() bool { return s.slabs == nil }

// serve serves the client until it goes, or ctx ends. All that it had is free then.
func (s *session) serve() {
	written := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(written)
		err := s.out.write(s.conn, stop)
		if err == nil {
			err = errors.New("the connection has ended")
		}
		s.cancel(err)
		// Who reads is woken up.
		_ = s.conn.Close()
	}()
	unwatch := context.AfterFunc(s.server.ctx, func() {
		s.fail(&Error{CodeCanceled, "the server was told to end", nil})
		// One who does not read hears nothing.
		time.AfterFunc(lastWords, func() { _ = s.conn.Close() })
	})
	err := s.read()
	unwatch()
	if err != nil {
		s.fail(err)
		select {
		case <-written: // as it has read why
		case <-time.After(lastWords):
		}
	}
	s.cancel(errGone)
	close(stop)
	_ = s.conn.Close()
	<-written
	s.out.close()
	s.wg.Wait()
	s.mu.Lock()
	// Passes that end are forgotten meanwhile.
	passes, readers := slices.Collect(maps.Values(s.passes)), s.readers
	s.mu.Unlock()
	for _, p := range passes {
		p.stop()
		p.drop()
	}
	s.reads.drop()
	for _, r := range readers {
		// Who would want to know has gone.
		_ = s.server.closeReader(r)
	}
}

// lastWords is how long a client may take to read why its connection ends.
const lastWords = 2 * time.Second

var errGone = errors.New("the client has gone")

// fail says why the connection ends, and ends it.
func (s *session) fail(err error) {
	s.out.put(message{text: text(errorEvent{Event: "error", Error: wireError(err)}), last: true})
}

// read reads requests until the client goes, which is no error, or sends what is none.
func (s *session) read() error {
	most := maxFirst
	if err := s.conn.SetReadDeadline(time.Now().Add(helloTime)); err != nil {
		return err
	}
	r := newFrameReader(s.conn)
	greeted := false
	for {
		data, payload, err := readFrame(r, most)
		if err != nil {
			if errors.Is(err, errFrame) {
				return errorf(CodeProtocol, "%v", err)
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return errorf(CodeProtocol, "the client did not say hello within %v", helloTime)
			}
			return nil // the client has gone, or the connection: that is how they end
		}
		if payload != 0 {
			return errorf(CodeProtocol, "a request with a payload of %d bytes; requests have none", payload)
		}
		q, err := parseRequest(data)
		if err != nil {
			return err
		}
		if !greeted {
			if q.Op != "hello" || q.ID == nil {
				return errorf(CodeProtocol, "the first request is %q, with hello to be said first", shorten(q.Op))
			}
			if err := s.hello(q); err != nil {
				s.reply(*q.ID, nil, err)
				return err
			}
			greeted, most = true, maxText
			if err := s.conn.SetReadDeadline(time.Time{}); err != nil {
				return err
			}
			continue
		}
		if q.Op == "release" {
			if err := s.release(q); err != nil {
				return err
			}
			continue
		}
		if q.ID == nil {
			return errorf(CodeProtocol, "request %q has no id", shorten(q.Op))
		}
		if err := s.begin(*q.ID); err != nil {
			return err
		}
		s.wg.Go(func() {
			ok, then, err := s.do(q)
			s.reply(*q.ID, ok, err)
			if then != nil {
				then()
			}
		})
	}
}

// parseRequest reads a request.
func parseRequest(data []byte) (*request, error) {
	q := new(request)
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(q); err != nil {
		return nil, errorf(CodeProtocol, "a message that is no request: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errorf(CodeProtocol, "a message with more than a request in it")
	}
	return q, nil
}

// shorten is a name from a client, as it may stand in a message.
func shorten(name string) string {
	if len(name) > 64 {
		name = name[:64] + "…"
	}
	return strings.ToValidUTF8(name, "?")
}

// begin notes a request under way.
func (s *session) begin(id int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.under[id] {
		return errorf(CodeProtocol, "the id %d is that of a request under way", id)
	}
	if len(s.under) == maxUnder {
		return errorf(CodeProtocol, "%d requests are under way; read their replies first", maxUnder)
	}
	s.under[id] = true
	return nil
}

// reply answers a request, which is under way until that is written.
func (s *session) reply(id int64, ok any, err error) {
	r := reply{ID: id, OK: ok}
	if err != nil {
		r.OK, r.Error = nil, wireError(err)
	}
	m := message{text: text(r)}
	if len(m.text) > maxText {
		m.text = text(reply{ID: id, Error: errorf(CodeInternal, "the reply has %d bytes, where %d may go", len(m.text), maxText)})
	}
	var sent func()
	switch ok := ok.(type) {
	case readOK:
		m.size, m.payload, sent = ok.size, ok.payload, ok.sent
	case tableOK:
		sent = ok.sent
	}
	m.sent = func() {
		if sent != nil {
			sent()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.under, id)
	}
	s.out.put(m)
}

// hello checks who the client is.
func (s *session) hello(q *request) error {
	if want := s.server.config.Token; want != "" && s.remote {
		got, have := sha256.Sum256([]byte(q.Token)), sha256.Sum256([]byte(want))
		if subtle.ConstantTimeCompare(got[:], have[:]) != 1 {
			return errorf(CodeToken, "the token is not the one of this server")
		}
	}
	if q.Protocol != Protocol {
		return errorf(CodeVersion, "the client (%s) speaks version %d of the protocol, the server (%s) version %d: install the same release of both",
			shorten(q.Client), q.Protocol, s.server.config.Name, Protocol)
	}
	s.name = shorten(q.Client)
	s.reply(*q.ID, helloOK{Protocol: Protocol, Server: s.server.config.Name, PID: os.Getpid(), Inline: s.inline()}, nil)
	return nil
}

// do does a request. then, if not nil, comes after the reply.
func (s *session) do(q *request) (ok any, then func(), err error) {
	switch q.Op {
	case "open":
		ok, err = s.open(q)
	case "start":
		return s.start(q)
	case "read":
		ok, err = s.readSamples(q)
	case "state":
		ok, err = s.state(q)
	case "plan":
		ok, err = s.plan(q)
	case "manifest":
		ok, err = s.manifest(q)
	case "table":
		ok, err = s.table(q)
	case "stats":
		ok, err = s.stats(q)
	case "stop":
		ok, err = s.stop(q)
	case "close":
		ok, err = s.close(q)
	default:
		err = errorf(CodeProtocol, "no request is called %q", shorten(q.Op))
	}
	return ok, nil, err
}

// reader is the one that a request names.
func (s *session) reader(number int64) (*opened, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.readers[number]; r != nil {
		return r, nil
	}
	return nil, errorf(CodeNotFound, "reader %d is not open", number)
}

func (s *session) open(q *request) (any, error) {
	o, err := s.server.openReader(s, q)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.numbers++
	o.number = s.numbers
	s.readers[o.number] = o
	s.mu.Unlock()
	ok := openOK{Reader: o.number, Len: o.length(), Samples: -1, Config: o.source.Config(), Classes: []string{}}
	if o.indexed != nil {
		ok.Samples = o.indexed.Samples()
		ok.Classes = append(ok.Classes, o.indexed.Manifest().Classes...)
	}
	tensors := o.source.Tensors()
	if o.ring != nil {
		u := o.ring.uploader
		ok.Config, ok.Device = u.Wanted(ok.Config), u.Device()
		tensors, _ = u.Tensors(tensors)
	}
	for _, t := range tensors {
		ok.Tensors = append(ok.Tensors, tensorInfo{Name: t.Name, DType: t.DType, Shape: t.Shape})
	}
	return ok, nil
}

// opened notes whose a reader is, and of what.
func (s *session) opened(o *opened, urls []string) *opened {
	data := urls[0]
	if len(urls) > 1 {
		data = fmt.Sprintf("%s and %d more", data, len(urls)-1)
	}
	o.loan = &loan{who: s.name, data: data, each: o.source.Config().Memory, trim: o.source.Trim}
	return o
}

func (s *session) start(q *request) (any, func(), error) {
	o, err := s.reader(q.Reader)
	if err != nil {
		return nil, nil, err
	}
	var state reader.State
	switch {
	case q.State != nil && q.Epoch != nil:
		return nil, nil, errorf(CodeConfig, "start: epoch and state both say where to begin; give one")
	case q.State != nil:
		if state, err = reader.ParseState(q.State); err == nil {
			err = o.source.CheckState(state)
		}
	default:
		epoch := 0
		if q.Epoch != nil {
			epoch = *q.Epoch
		}
		state, err = o.source.State(epoch, 0)
	}
	if err != nil {
		return nil, nil, err
	}
	if q.Credit < 0 {
		return nil, nil, errorf(CodeConfig, "start: credit: %d bytes", q.Credit)
	}
	if err := s.server.memory.start(o.loan); err != nil {
		return nil, nil, err
	}
	p := &pass{
		session: s, reader: o, back: make(chan struct{}, 1), held: map[int64]lent{}, done: make(chan struct{}),
		credit: o.credit(q.Credit),
	}
	p.ctx, p.cancel = context.WithCancel(context.WithValue(s.ctx, passKey{}, p))
	p.batches = o.source.Epochs(p.ctx, state, state.Epoch+1)
	s.mu.Lock()
	s.numbers++
	p.number = s.numbers
	s.passes[p.number] = p
	s.mu.Unlock()
	left := o.length()
	if left >= 0 {
		left -= state.Batch
	}
	return startOK{Pass: p.number, Credit: p.credit, Batches: left}, func() { go p.run() }, nil
}

// over forgets a pass that has ended, when nothing of it is held any more.
func (s *session) over(p *pass) {
	p.mu.Lock()
	p.ended = true
	forget := len(p.held) == 0
	used := p.used
	if p.reader.ring != nil {
		used = 0
	}
	s.server.memory.end(p.reader.loan, used)
	p.mu.Unlock()
	if forget {
		s.forget(p)
	}
}

func (s *session) forget(p *pass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.passes, p.number)
}

// pass is the one of a number; nil if it has ended, and nothing of it is held.
func (s *session) pass(number int64) (*pass, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number == 0 {
		return s.reads, nil
	}
	p := s.passes[number]
	if p == nil && (number < 1 || number > s.numbers || s.readers[number] != nil) {
		return nil, errorf(CodeNotFound, "there is no pass %d", number)
	}
	return p, nil
}

func (s *session) release(q *request) error {
	p, err := s.pass(q.Pass)
	if err != nil {
		return errorf(CodeProtocol, "release: %v", err)
	}
	if p == nil {
		return errorf(CodeProtocol, "batches %v of pass %d are not held, and were released", q.Batches, q.Pass)
	}
	if err := p.release(q.Batches); err != nil {
		return err
	}
	p.mu.Lock()
	forget := p.ended && len(p.held) == 0
	p.mu.Unlock()
	if forget {
		s.forget(p)
	}
	return nil
}

func (s *session) stop(q *request) (any, error) {
	p, err := s.pass(q.Pass)
	if err != nil {
		return nil, err
	}
	if p == s.reads {
		return nil, errorf(CodeNotFound, "there is no pass 0 that could be stopped")
	}
	if p != nil {
		p.stop()
	}
	return emptyOK{}, nil
}

func (s *session) close(q *request) (any, error) {
	o, err := s.reader(q.Reader)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	_, open := s.readers[o.number]
	delete(s.readers, o.number)
	var passes []*pass
	for _, p := range s.passes {
		if p.reader == o {
			passes = append(passes, p)
		}
	}
	s.mu.Unlock()
	if !open { // by another request
		return emptyOK{}, nil
	}
	for _, p := range passes {
		p.stop()
	}
	return emptyOK{}, s.server.closeReader(o)
}

// readSamples makes a batch of any samples.
func (s *session) readSamples(q *request) (any, error) {
	o, err := s.indexed(q)
	if err != nil {
		return nil, err
	}
	if o.ring != nil {
		return nil, errorf(CodeConfig, "read: the batches of reader %d are on a GPU; open the data without device to read single samples", o.number)
	}
	if err := s.lendReads(o); err != nil {
		return nil, err
	}
	epoch := 0
	if q.Epoch != nil {
		epoch = *q.Epoch
	}
	b, err := o.indexed.Read(s.ctx, q.Samples, epoch)
	if err != nil {
		return nil, err
	}
	l, one, payload, err := s.prepare(b)
	if err != nil {
		b.Release()
		return nil, err
	}
	p := s.reads
	p.mu.Lock()
	defer p.mu.Unlock()
	l.event.Event, l.event.Number, l.event.Bytes = "", p.next, one.bytes
	p.next++
	ok := readOK{Batch: &l.event}
	if payload != nil {
		ok.size, ok.payload, ok.sent = one.bytes, payload, one.release
		one.release = func() {}
	}
	p.held[l.event.Number] = one
	p.used += one.bytes
	return ok, nil
}

// lendReads lends a reader what all its reads together may hold, until it is closed.
func (s *session) lendReads(o *opened) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reads {
		return nil
	}
	if err := s.server.memory.start(o.loan); err != nil {
		return err
	}
	o.reads = true
	return nil
}

func (s *session) state(q *request) (any, error) {
	o, err := s.reader(q.Reader)
	if err != nil {
		return nil, err
	}
	epoch := 0
	if q.Epoch != nil {
		epoch = *q.Epoch
	}
	state, err := o.source.State(epoch, q.Batch)
	return stateOK{state}, err
}

// maxPlanned bounds the sample numbers of a reply.
const maxPlanned = 4 << 20

func (s *session) plan(q *request) (any, error) {
	o, err := s.indexed(q)
	if err != nil {
		return nil, err
	}
	epoch := 0
	if q.Epoch != nil {
		epoch = *q.Epoch
	}
	plan, err := o.indexed.Plan(epoch)
	if err != nil {
		return nil, errorf(CodeConfig, "plan: %v", err)
	}
	c := o.indexed.Config()
	n, to := plan.Batches(), plan.Batches()
	if q.To != nil {
		to = *q.To
	}
	switch {
	case q.From < 0 || to < q.From || to > n:
		return nil, errorf(CodeConfig, "plan: batches %d to %d; the epoch has %d", q.From, to, n)
	case (to-q.From)*int64(c.BatchSize) > maxPlanned:
		return nil, errorf(CodeConfig, "plan: batches %d to %d have more than %d samples; ask for fewer at a time", q.From, to, maxPlanned)
	}
	ok := planOK{Samples: make([][]int64, 0, to-q.From)}
	for b := q.From; b < to; b++ {
		ok.Samples = append(ok.Samples, plan.Batch(nil, b, c.Rank))
	}
	return ok, nil
}

// indexed is the reader that a request names, which must have an index.
func (s *session) indexed(q *request) (*opened, error) {
	o, err := s.reader(q.Reader)
	if err == nil && o.indexed == nil {
		err = errorf(CodeNotFound, "%s: reader %d is of a stream, which has no index", q.Op, q.Reader)
	}
	return o, err
}

func (s *session) manifest(q *request) (any, error) {
	o, err := s.indexed(q)
	if err != nil {
		return nil, err
	}
	return manifestOK{o.indexed.Manifest()}, nil
}

func (s *session) stats(q *request) (any, error) {
	o, err := s.reader(q.Reader)
	if err != nil {
		return nil, err
	}
	st := o.source.Stats()
	if o.ring != nil {
		st.Devices = append(st.Devices, o.ring.uploader.Stats())
	}
	return statsOK{Stats: st, Bound: st.Bound()}, nil
}
