package feed

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"shardify/reader"
)

// Config says how a server serves. The zero value is good for clients of the same host.
type Config struct {
	// Name is the server's name and version, for people.
	Name string `json:"name,omitempty"`
	// Memory is how many bytes all passes of all clients may hold together; 0 is no
	// limit but each reader's own.
	Memory int64 `json:"memory,omitempty"`
	// Token is what clients must know; empty: nothing. It does not go into JSON.
	Token string `json:"-"`
	// Uploader opens a GPU for a reader with this configuration: gpu.NewUploader. device
	// is what a client calls it: a UUID, or a number; transform says that the GPU carries
	// out the transforms. nil: there are no GPUs.
	Uploader func(device string, c reader.Config, transform bool) (Uploader, error) `json:"-"`
}

// minToken is the least length of a token.
const minToken = 16

// Validate reports every fault of the configuration at once.
func (c Config) Validate() error {
	var faults []error
	if c.Memory < 0 {
		faults = append(faults, fmt.Errorf("memory: %d bytes", c.Memory))
	}
	if c.Token != "" && len(c.Token) < minToken {
		faults = append(faults, fmt.Errorf("token: it has %d bytes; want %d or more, of random", len(c.Token), minToken))
	}
	if !littleEndian() {
		faults = append(faults, errors.New("this machine is big-endian, and the protocol is not"))
	}
	return errors.Join(faults...)
}

// Server feeds clients. It is safe for concurrent use.
type Server struct {
	config Config
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	memory memory

	mu       sync.Mutex
	bases    map[string]*base
	sessions map[*session]struct{}
	idle     time.Time // since when no client is there
}

// NewServer makes a server, which ends when it is closed.
func NewServer(c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("feed config: %w", err)
	}
	if c.Name == "" {
		c.Name = "shardread"
	}
	s := &Server{
		config: c, memory: memory{limit: c.Memory, loans: map[*loan]struct{}{}},
		bases: map[string]*base{}, sessions: map[*session]struct{}{}, idle: time.Now(),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Serve takes clients from a listener until the server is closed, which is no error, or
// the listener fails. It closes the listener.
func (s *Server) Serve(l net.Listener) error {
	stop := context.AfterFunc(s.ctx, func() {
		// Accept says what is wrong.
		_ = l.Close()
	})
	defer func() {
		if stop() {
			_ = l.Close()
		}
	}()
	for {
		conn, err := l.Accept()
		if err != nil {
			if s.ctx.Err() != nil {
				return nil
			}
			return err
		}
		s.wg.Go(func() { s.ServeConn(conn) })
	}
}

// ServeConn serves one client until it goes or the server is closed, and closes the
// connection. Over a *net.UnixConn, memory is shared; over all others, bytes go with the
// batches.
func (s *Server) ServeConn(conn net.Conn) {
	x := &session{
		server: s, conn: conn, out: newOutbox(),
		under: map[int64]bool{}, readers: map[int64]*opened{}, passes: map[int64]*pass{},
		tables: make(chan struct{}, 1),
	}
	_, unix := conn.(*net.UnixConn)
	if unix && canShare {
		x.slabs = newSlabs(x.out)
		x.slabs.starved = x.starved
	}
	x.remote = !unix
	x.reads = &pass{session: x, back: make(chan struct{}, 1), held: map[int64]lent{}}
	x.ctx, x.cancel = context.WithCancelCause(s.ctx)
	s.mu.Lock()
	s.sessions[x] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.sessions, x); len(s.sessions) == 0 {
			s.idle = time.Now()
		}
	}()
	x.serve()
}

// Idle is how long no client has been there; 0 while one is.
func (s *Server) Idle() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) > 0 {
		return 0
	}
	return time.Since(s.idle)
}

// Close tells all clients that the server ends, and waits until nothing is left of them.
func (s *Server) Close() error {
	s.cancel()
	s.wg.Wait()
	return nil
}

// part of a mix, as a client writes it.
type share struct {
	URL   string   `json:"url"`
	Split string   `json:"split,omitempty"`
	Share *float64 `json:"share,omitempty"`
}

// openReader opens what a request names, for a client.
func (s *Server) openReader(x *session, q *request) (*opened, error) {
	c, err := parseConfig(q.Config)
	if err != nil {
		return nil, err
	}
	switch q.TransformOn {
	case "", TransformOnHost:
	case TransformOnDevice:
		if q.Device == "" {
			return nil, errorf(CodeConfig, "open: transform_on: %q without a device; name the GPU, or leave it out", q.TransformOn)
		}
	default:
		return nil, errorf(CodeConfig, "open: transform_on: %q; want %q or %q", shorten(string(q.TransformOn)), TransformOnHost, TransformOnDevice)
	}
	if q.Device != "" {
		return s.openOn(x, q, c)
	}
	if !x.inline() {
		c.Slabs = x.slabs
	}
	return s.openWith(x, q, c)
}

// openWith opens what a request names with a configuration that has the slabs.
func (s *Server) openWith(x *session, q *request, c reader.Config) (*opened, error) {
	if q.Stream {
		return s.openStream(x, q, c)
	}
	sources, err := parseData(q.Data, &c)
	if err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil { // which knows the rank
		return nil, fmt.Errorf("%w: %w", reader.ErrConfig, err)
	}
	slabs := c.Slabs
	b, err := s.baseOf(x.ctx, sources, c)
	if err != nil {
		return nil, err
	}
	r, err := b.of.ForRank(c.Rank, slabs)
	if err != nil {
		s.leave(b)
		return nil, err
	}
	var urls []string
	for _, source := range sources {
		urls = append(urls, source.URL)
	}
	return x.opened(&opened{source: r, indexed: r, base: b}, urls), nil
}

// openStream opens shards without an index.
func (s *Server) openStream(x *session, q *request, c reader.Config) (*opened, error) {
	names, err := parseNames(q.Data)
	if err != nil {
		return nil, err
	}
	r, err := reader.OpenStream(x.ctx, names, c)
	if err != nil {
		return nil, err
	}
	if has, limit := r.Config().Memory, s.memory.limit; limit > 0 && has > limit {
		err := r.Close()
		if c.Memory != 0 {
			return nil, errors.Join(tooMuch(has, limit), err)
		}
		c.Memory = limit
		if r, err = reader.OpenStream(x.ctx, names, c); err != nil {
			return nil, err
		}
	}
	return x.opened(&opened{source: r}, names), nil
}

// closeReader closes a reader whose passes have ended.
func (s *Server) closeReader(o *opened) error {
	s.memory.close(o.loan)
	err := o.source.Close()
	o.mu.Lock()
	if o.reads {
		o.reads = false
		s.memory.end(o.loan, 0)
	}
	o.mu.Unlock()
	if o.base != nil {
		s.leave(o.base)
	}
	if o.ring != nil {
		err = errors.Join(err, o.ring.close())
	}
	return err
}

// parseNames reads a name or a list of names.
func parseNames(data json.RawMessage) ([]string, error) {
	var one string
	if json.Unmarshal(data, &one) == nil {
		return []string{one}, nil
	}
	var list []string
	if err := json.Unmarshal(data, &list); err != nil || len(list) == 0 {
		return nil, errorf(CodeConfig, "open: data: want the name of a stream, or a list of names")
	}
	return list, nil
}

// parseData reads what data sets are to be opened; shares go into the configuration.
func parseData(data json.RawMessage, c *reader.Config) ([]reader.Source, error) {
	var one string
	if json.Unmarshal(data, &one) == nil {
		return []reader.Source{{URL: one}}, nil
	}
	var list []share
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&list); err != nil || len(list) == 0 {
		return nil, errorf(CodeConfig, `open: data: want a path or URL, or a list of {"url", "share"}`)
	}
	var sources []reader.Source
	var shares []float64
	for _, s := range list {
		sources = append(sources, reader.Source{URL: s.URL, Split: s.Split})
		if s.Share != nil {
			shares = append(shares, *s.Share)
		}
	}
	switch {
	case len(shares) == 0:
	case len(shares) < len(list):
		return nil, errorf(CodeConfig, "open: data: %d of %d have a share; give all of them one, or none", len(shares), len(list))
	case c.Sampling.Shares != nil:
		return nil, errorf(CodeConfig, "open: shares stand in data and in config.sampling; give them once")
	default:
		c.Sampling.Shares = shares
	}
	return sources, nil
}

// newFrameReader reads frames of a connection.
func newFrameReader(conn net.Conn) io.Reader { return bufio.NewReaderSize(conn, 16<<10) }
