package feed

import (
	"context"
	"encoding/json"
	"errors"

	"shardify/reader"
)

// base is a reader that clients of the same data and configuration, but for the rank, have
// their own of: with what does not depend on the rank, once for all of them.
type base struct {
	key   string
	users int
	ready chan struct{} // closed when reader and err are there
	of    *reader.Reader
	err   error
}

// baseOf opens a base, or returns one that is open, for use until leave.
func (s *Server) baseOf(ctx context.Context, sources []reader.Source, c reader.Config) (*base, error) {
	c.Rank, c.Slabs = 0, noSlabs{}
	key, err := json.Marshal(struct {
		Sources []reader.Source
		Config  reader.Config
	}{sources, c})
	if err != nil {
		return nil, errorf(CodeConfig, "config: %v", err)
	}
	s.mu.Lock()
	b := s.bases[string(key)]
	if b == nil {
		b = &base{key: string(key), ready: make(chan struct{})}
		s.bases[b.key] = b
		s.wg.Go(func() {
			// Not the first client's context: others may wait for it.
			b.of, b.err = s.openBase(sources, c)
			close(b.ready)
		})
	}
	b.users++
	s.mu.Unlock()
	select {
	case <-b.ready:
	case <-ctx.Done():
		s.leave(b)
		return nil, context.Cause(ctx)
	}
	if b.err != nil {
		s.leave(b)
		return nil, b.err
	}
	return b, nil
}

// openBase opens a reader that has room in the server's memory.
func (s *Server) openBase(sources []reader.Source, c reader.Config) (*reader.Reader, error) {
	r, err := reader.OpenMix(s.ctx, sources, c)
	if err != nil {
		return nil, err
	}
	limit, has := s.memory.limit, r.Config().Memory
	if limit == 0 || has <= limit {
		return r, nil
	}
	err = r.Close()
	if c.Memory != 0 {
		return nil, errors.Join(tooMuch(has, limit), err)
	}
	if err != nil {
		return nil, err
	}
	c.Memory = limit
	return reader.OpenMix(s.ctx, sources, c)
}

func tooMuch(has, limit int64) error {
	return errorf(CodeMemory, "memory: the configuration has %s, and the server %s for all passes of all clients: set it to less, or start the server with more --memory", bytesText(has), bytesText(limit))
}

// leave ends the use of a base; the last one closes it.
func (s *Server) leave(b *base) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.users--; b.users > 0 {
		return
	}
	delete(s.bases, b.key)
	s.wg.Go(func() {
		if <-b.ready; b.of != nil {
			// No pass was ever read by it: no file is open.
			_ = b.of.Close()
		}
	})
}

// noSlabs are those of a base, which reads no pass.
type noSlabs struct{}

func (noSlabs) Alloc(int64) ([]byte, error) { return nil, errors.ErrUnsupported }
func (noSlabs) Free([]byte)                 {}
func (noSlabs) Starved(context.Context)     {}

// parseConfig reads a reader's configuration, as a client writes it.
func parseConfig(data json.RawMessage) (c reader.Config, err error) {
	if data == nil {
		return c, nil
	}
	if err := reader.DecodeConfig(data, &c); err != nil {
		return c, errorf(CodeConfig, "config: %v", err)
	}
	return c, nil
}
