package feed

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"shardify/index"
	"shardify/reader"
)

// DialConfig says how a client connects. The zero value is good for the same host.
type DialConfig struct {
	// Name is the client's name and version, for people: by default the program's.
	Name string `json:"name,omitempty"`
	// Token is what a server that listens on TCP asks for. It does not go into JSON.
	Token string `json:"-"`
	// TLS, if not nil, is what a TCP connection is encrypted by.
	TLS *tls.Config `json:"-"`
}

// Client is a connection to a server. It is safe for concurrent use.
type Client struct {
	conn net.Conn
	// server is what it has said of itself.
	server helloOK
	done   chan struct{} // closed when the connection has ended, and err is set

	write sync.Mutex // held while a frame is written

	mu      sync.Mutex
	ids     int64
	waiting map[int64]*call
	passes  map[int64]*clientPass
	slabs   map[int64]*clientSlab
	devices map[string]Device // of OpenOn, by their UUIDs
	buffers [][]byte          // of batches that came as payload, to be used again
	err     error
}

// call is a request that waits for its reply.
type call struct {
	// ok gets what is in the reply, and the payload that came with it, before the next
	// frame is read; it may be nil.
	ok func(data json.RawMessage, payload []byte) error
	// undo undoes what ok did where nobody waits any more; it may be nil.
	undo func()
	// fate says who was first: the reply, or a caller who gave up.
	fate atomic.Int32
	// err is there when done is closed.
	err  error
	done chan struct{}
}

// What a call has come to.
const (
	callAnswered = 1
	callLeft     = 2
)

// Dial connects to a server: network is "unix" or "tcp". The context is for that alone.
func Dial(ctx context.Context, network, address string, c DialConfig) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if c.TLS != nil {
		config := c.TLS
		if config.ServerName == "" && !config.InsecureSkipVerify {
			if host, _, err := net.SplitHostPort(address); err == nil {
				config = config.Clone()
				config.ServerName = host
			}
		}
		t := tls.Client(conn, config)
		if err := t.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		conn = t
	}
	return NewClient(ctx, conn, c)
}

// NewClient greets a server over a connection, which is the client's from then on.
func NewClient(ctx context.Context, conn net.Conn, c DialConfig) (*Client, error) {
	if !littleEndian() {
		_ = conn.Close()
		return nil, errors.New("this machine is big-endian, and the protocol is not")
	}
	if c.Name == "" {
		c.Name = fmt.Sprintf("%s (pid %d)", os.Args[0], os.Getpid())
	}
	x := &Client{
		conn: conn, done: make(chan struct{}),
		waiting: map[int64]*call{}, passes: map[int64]*clientPass{}, slabs: map[int64]*clientSlab{}, devices: map[string]Device{},
	}
	go x.read()
	err := x.call(ctx, &request{Op: "hello", Protocol: Protocol, Client: c.Name, Token: c.Token}, x.decode(&x.server))
	if err == nil && x.server.Protocol != Protocol {
		err = errorf(CodeVersion, "the server (%s) speaks version %d of the protocol, this client version %d", x.server.Server, x.server.Protocol, Protocol)
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// Server is the server's name and version, and the number of its process.
func (c *Client) Server() (name string, pid int) { return c.server.Server, c.server.PID }

// Close ends the connection. Batches that are held stay good.
func (c *Client) Close() error {
	err := c.conn.Close()
	<-c.done
	if errors.Is(err, net.ErrClosed) { // by its end
		err = nil
	}
	return err
}

// decode is what puts the ok of a reply into v.
func (c *Client) decode(v any) func(json.RawMessage, []byte) error {
	return func(data json.RawMessage, _ []byte) error { return json.Unmarshal(data, v) }
}

// call sends a request and waits for the reply.
func (c *Client) call(ctx context.Context, q *request, ok func(data json.RawMessage, payload []byte) error) error {
	return c.do(ctx, q, &call{ok: ok, done: make(chan struct{})})
}

func (c *Client) do(ctx context.Context, q *request, x *call) error {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return c.err
	}
	c.ids++
	id := c.ids
	q.ID = &id
	c.waiting[id] = x
	c.mu.Unlock()
	if err := c.send(q); err != nil {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
		select {
		case <-c.done: // that says why
			return c.err
		default:
			return err
		}
	}
	select {
	case <-x.done:
		return x.err
	case <-ctx.Done():
		if x.fate.CompareAndSwap(0, callLeft) {
			return context.Cause(ctx)
		}
		<-x.done
		return x.err
	}
}

// send writes a request.
func (c *Client) send(q *request) error {
	data := text(q)
	frame := append(appendHead(make([]byte, 0, headBytes+len(data)), len(data), 0), data...)
	c.write.Lock()
	defer c.write.Unlock()
	_, err := c.conn.Write(frame)
	return err
}

// read reads what the server sends until the connection ends.
func (c *Client) read() {
	files := new(fileQueue)
	defer files.close()
	r := bufio.NewReaderSize(files.reader(c.conn), 64<<10)
	var err error
	for err == nil {
		err = c.frame(r, files)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		err = errorf(CodeCanceled, "the feed's server (%s, pid %d) has gone, or the connection to it", c.server.Server, c.server.PID)
	}
	_ = c.conn.Close() // err says why
	c.mu.Lock()
	c.err = err
	waiting, passes := c.waiting, c.passes
	c.waiting, c.passes = nil, nil
	slabs := c.slabs
	c.slabs = map[int64]*clientSlab{}
	c.mu.Unlock()
	for _, x := range waiting {
		x.err = err
		close(x.done)
	}
	for _, p := range passes {
		p.put(clientEvent{err: err})
	}
	for _, s := range slabs {
		s.drop()
	}
	close(c.done)
}

// serverMessage is all that a message of a server's may have.
type serverMessage struct {
	ID    *int64          `json:"id"`
	OK    json.RawMessage `json:"ok"`
	Error *Error          `json:"error"`

	Event string `json:"event"`
	Pass  int64  `json:"pass"`
	Slab  int64  `json:"slab"`
	Bytes int64  `json:"bytes"`
	// Device is the GPU whose memory a slab is.
	Device string `json:"device"`
}

// frame reads a frame and does what it says.
func (c *Client) frame(r *bufio.Reader, files *fileQueue) error {
	data, payload, err := readFrame(r, maxText)
	if err != nil {
		return err
	}
	var m serverMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return errorf(CodeProtocol, "the server sent what is no message: %v", err)
	}
	var bytes []byte
	if payload != 0 {
		if !c.server.Inline || m.ID == nil && m.Event != "batch" {
			return errorf(CodeProtocol, "the server sent %d bytes with %q", payload, shorten(m.Event))
		}
		bytes = c.buffer(payload)
		if _, err := io.ReadFull(r, bytes); err != nil {
			return err
		}
	}
	switch {
	case m.ID != nil:
		return c.reply(&m, bytes)
	case m.Event == "slab":
		f := files.next()
		if f == nil {
			return errorf(CodeProtocol, "the server sent a slab without its file")
		}
		s, err := c.mapSlab(f, &m)
		if err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.slabs[m.Slab] = s
	case m.Event == "unslab":
		c.mu.Lock()
		s := c.slabs[m.Slab]
		delete(c.slabs, m.Slab)
		c.mu.Unlock()
		if s == nil {
			return errorf(CodeProtocol, "the server has freed slab %d, which is not there", m.Slab)
		}
		s.drop()
	case m.Event == "batch":
		return c.batch(data, bytes)
	case m.Event == "held":
		if p := c.pass(m.Pass); p != nil {
			p.put(clientEvent{held: true})
		}
	case m.Event == "end":
		if p := c.pass(m.Pass); p != nil {
			e := clientEvent{end: true}
			if m.Error != nil {
				e.err = m.Error
			}
			p.put(e)
		}
	case m.Event == "error" && m.Error != nil:
		return m.Error
	default:
		return errorf(CodeProtocol, "the server sent the event %q, which version %d does not have", shorten(m.Event), Protocol)
	}
	return nil
}

func (c *Client) pass(number int64) *clientPass {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passes[number]
}

func (c *Client) reply(m *serverMessage, payload []byte) error {
	c.mu.Lock()
	x := c.waiting[*m.ID]
	delete(c.waiting, *m.ID)
	c.mu.Unlock()
	if x == nil {
		return errorf(CodeProtocol, "the server answered request %d, which was not made", *m.ID)
	}
	switch {
	case m.Error != nil:
		x.err = m.Error
	case x.ok != nil:
		x.err = x.ok(m.OK, payload)
	}
	if !x.fate.CompareAndSwap(0, callAnswered) && x.err == nil && x.undo != nil {
		x.undo()
	}
	close(x.done)
	return nil
}

// batch takes a batch of a pass.
func (c *Client) batch(data, payload []byte) error {
	b, err := c.newBatch(data, payload)
	if err != nil {
		return err
	}
	p := c.pass(b.event.Pass)
	if p == nil { // nobody wants it any more
		b.release()
		return nil
	}
	p.put(clientEvent{batch: b})
	return nil
}

// newBatch makes a batch of what the server says of it.
func (c *Client) newBatch(data, payload []byte) (*Batch, error) {
	b := &Batch{client: c, memory: payload}
	if err := json.Unmarshal(data, &b.event); err != nil {
		return nil, errorf(CodeProtocol, "the server sent a batch that is none: %v", err)
	}
	if !c.server.Inline {
		c.mu.Lock()
		b.slab = c.slabs[b.event.Slab]
		c.mu.Unlock()
		if b.slab == nil {
			return nil, errorf(CodeProtocol, "the server sent a batch in slab %d, which is not there", b.event.Slab)
		}
		b.memory = b.slab.data
		b.slab.use()
	}
	err := c.onDevice(b)
	if err == nil {
		err = b.check()
	}
	if err != nil {
		b.drop()
		return nil, err
	}
	return b, nil
}

// maxBuffers is how many buffers are kept for batches to come.
const maxBuffers = 8

// buffer returns memory for a batch that comes as payload.
func (c *Client) buffer(n int64) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, b := range c.buffers {
		if int64(cap(b)) >= n && int64(cap(b)) <= n+n/4+4096 {
			c.buffers = slices.Delete(c.buffers, i, i+1)
			return b[:n]
		}
	}
	return alignedBytes(n)
}

func (c *Client) keep(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	if len(c.buffers) == maxBuffers {
		c.buffers = slices.Delete(c.buffers, 0, 1)
	}
	c.buffers = append(c.buffers, b)
}

// Open opens a data set on the server, whose paths are the server's, as reader.Open does.
func (c *Client) Open(ctx context.Context, url string, config reader.Config) (*Reader, error) {
	return c.OpenMix(ctx, []reader.Source{{URL: url}}, config)
}

// OpenMix opens several data sets on the server to read them as one, as reader.OpenMix
// does.
func (c *Client) OpenMix(ctx context.Context, sources []reader.Source, config reader.Config) (*Reader, error) {
	return c.open(ctx, &request{Op: "open", Data: text(sources)}, config)
}

// OpenOn opens data sets on the server, as OpenMix does, whose batches come on a GPU: the
// server copies them there, and they lie in memory that both processes have. Their tensors are
// those of Batch.DeviceTensors. transforms says where images are transformed. The client must
// use the server's GPU, and be connected over its Unix socket.
func (c *Client) OpenOn(ctx context.Context, device Device, transforms TransformOn, sources []reader.Source, config reader.Config) (*Reader, error) {
	c.mu.Lock()
	c.devices[device.UUID()] = device
	c.mu.Unlock()
	return c.open(ctx, &request{Op: "open", Data: text(sources), Device: device.UUID(), TransformOn: transforms}, config)
}

// OpenStream opens shards without an index on the server, as reader.OpenStream does.
func (c *Client) OpenStream(ctx context.Context, names []string, config reader.Config) (*Reader, error) {
	return c.open(ctx, &request{Op: "open", Stream: true, Data: text(names)}, config)
}

func (c *Client) open(ctx context.Context, q *request, config reader.Config) (*Reader, error) {
	r := &Reader{client: c}
	var err error
	if q.Config, err = json.Marshal(config); err != nil {
		return nil, fmt.Errorf("%w: %w", reader.ErrConfig, err)
	}
	if err := c.call(ctx, q, c.decode(&r.opened)); err != nil {
		return nil, err
	}
	return r, nil
}

// Reader reads a data set through a server. It is safe for concurrent use.
type Reader struct {
	client *Client
	opened openOK
	credit int64
}

// SetCredit sets how many bytes of batches the server may send before others are released,
// in passes that begin later; 0, the default, leaves it to the server: half of what the
// reader's memory can spare. Call it before the reader is shared.
func (r *Reader) SetCredit(bytes int64) { r.credit = max(bytes, 0) }

// Len is the number of batches in every epoch; -1 of a stream of which that is not known.
func (r *Reader) Len() int64 { return r.opened.Len }

// Samples is the number of samples in every epoch, over all ranks; -1 of a stream.
func (r *Reader) Samples() int64 { return r.opened.Samples }

// Config returns the configuration with everything that was left to the reader filled in.
func (r *Reader) Config() reader.Config { return r.opened.Config }

// Classes are the names of the classes, by label. They are the caller's.
func (r *Reader) Classes() []string { return slices.Clone(r.opened.Classes) }

// Tensors are those that a full batch will have, as reader.Reader.Tensors.
func (r *Reader) Tensors() []reader.Tensor {
	var list []reader.Tensor
	for _, t := range r.opened.Tensors {
		list = append(list, reader.Tensor{Name: t.Name, DType: t.DType, Shape: slices.Clone(t.Shape)})
	}
	return list
}

// State returns the place before a batch of an epoch.
func (r *Reader) State(ctx context.Context, epoch int, batch int64) (reader.State, error) {
	var ok stateOK
	err := r.client.call(ctx, &request{Op: "state", Reader: r.opened.Reader, Epoch: &epoch, Batch: batch}, r.client.decode(&ok))
	return ok.State, err
}

// Plan returns the numbers of the samples of some batches of an epoch.
func (r *Reader) Plan(ctx context.Context, epoch int, from, to int64) ([][]int64, error) {
	var ok planOK
	err := r.client.call(ctx, &request{Op: "plan", Reader: r.opened.Reader, Epoch: &epoch, From: from, To: &to}, r.client.decode(&ok))
	return ok.Samples, err
}

// Manifest returns the manifest of the data set, of the first one where there are several.
func (r *Reader) Manifest(ctx context.Context) (*index.Manifest, error) {
	var ok struct {
		Manifest *index.Manifest `json:"manifest"`
	}
	err := r.client.call(ctx, &request{Op: "manifest", Reader: r.opened.Reader}, r.client.decode(&ok))
	return ok.Manifest, err
}

// Stats say how the server's reader has fared so far.
func (r *Reader) Stats(ctx context.Context) (reader.Stats, error) {
	var ok statsOK
	err := r.client.call(ctx, &request{Op: "stats", Reader: r.opened.Reader}, r.client.decode(&ok))
	return ok.Stats, err
}

// Close ends the reader's passes and closes it. Batches that are held stay good.
func (r *Reader) Close() error {
	err := r.client.call(context.Background(), &request{Op: "close", Reader: r.opened.Reader}, nil)
	select {
	case <-r.client.done: // it has ended with the connection
		return nil
	default:
		return err
	}
}
