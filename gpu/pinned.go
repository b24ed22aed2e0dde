package gpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"shardify/reader"
)

// Pinned gives a reader slabs of pinned memory (reader.Config.Slabs), from which a GPU
// copies at the full rate of the bus and beside everything else; from other memory, the
// driver copies to a pinned buffer of its own first, and the uploading goroutine waits for
// that. It is pinned for all GPUs of the process. Safe for concurrent use.
//
//	pinned := device.Pinned(gpu.PinnedConfig{})
//	r, err := reader.Open(ctx, url, reader.Config{Slabs: pinned, …})
//	…
//	err = errors.Join(r.Close(), pinned.Close(), device.Close())
//
// What is pinned counts against reader.Config.Memory as other slabs do; the limit here is
// for what cannot be swapped out, or given to anything else.
type Pinned struct {
	device *Device
	config PinnedConfig

	mu    sync.Mutex
	lent  map[*byte]*int64 // which of the numbers in stats it counts in
	stats PinnedStats
	fault error // the first one of Free
}

// PinnedConfig bounds pinned memory.
type PinnedConfig struct {
	// Limit is in bytes; 0 means no limit but reader.Config.Memory. Slabs beyond it are
	// of ordinary memory.
	Limit int64 `json:"limit,omitempty"`
}

// Validate reports every fault.
func (c PinnedConfig) Validate() error {
	if c.Limit < 0 {
		return fmt.Errorf("limit: %d bytes of pinned memory; want 0 for no limit, or more", c.Limit)
	}
	return nil
}

// PinnedStats says how much there is now, in bytes.
type PinnedStats struct {
	Pinned int64 `json:"pinned"`
	// Ordinary is what came beyond the limit, Refused what the driver would not pin.
	Ordinary int64 `json:"ordinary"`
	Refused  int64 `json:"refused"`
}

var _ reader.Slabs = (*Pinned)(nil)

// Pinned makes an allocator. It takes no memory yet. A limit below 0 is none.
func (d *Device) Pinned(c PinnedConfig) *Pinned {
	return &Pinned{device: d, config: c, lent: map[*byte]*int64{}}
}

// Alloc takes n bytes, pinned where the limit and the driver allow it.
func (p *Pinned) Alloc(n int64) ([]byte, error) {
	if n < 1 {
		return nil, fmt.Errorf("gpu: a slab of %d bytes", n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	as := &p.stats.Ordinary
	if limit := p.config.Limit; limit <= 0 || p.stats.Pinned+n <= limit {
		b, err := p.device.context.AllocHost(n)
		if err == nil {
			p.lend(b, &p.stats.Pinned)
			return b, nil
		}
		if !errors.Is(err, ErrOutOfMemory) {
			return nil, err
		}
		as = &p.stats.Refused
	}
	b, err := mapMemory(n)
	if err != nil {
		return nil, fmt.Errorf("gpu: a slab of %d bytes: %w", n, err)
	}
	p.lend(b, as)
	return b, nil
}

func (p *Pinned) lend(b []byte, as *int64) {
	*as += int64(len(b))
	p.lent[unsafe.SliceData(b)] = as
}

// Free takes back what Alloc has returned.
func (p *Pinned) Free(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := unsafe.SliceData(b)
	as := p.lent[at]
	if as == nil {
		panic("gpu: Pinned.Free of memory that Alloc has not returned")
	}
	delete(p.lent, at)
	*as -= int64(len(b))
	var err error
	if as == &p.stats.Pinned {
		err = p.device.context.FreeHost(b)
	} else {
		err = unmapMemory(b)
	}
	if p.fault == nil {
		p.fault = err
	}
}

// Starved does nothing: what Prefetch holds, it releases by itself.
func (p *Pinned) Starved(context.Context) {}

// Stats says how much memory there is now.
func (p *Pinned) Stats() PinnedStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// Close returns the first error that giving memory back has met. It is an error, too, if
// there is memory that was not given back: close the reader first, and release its batches.
func (p *Pinned) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.lent); n > 0 {
		return errors.Join(p.fault, fmt.Errorf("gpu: %d slabs were not given back: close the reader, and release its batches, before the pinned memory", n))
	}
	return p.fault
}

// Pin pins memory that is there already, such as a mapped file that another process reads,
// for all GPUs of the process. It should begin and end at pages. unpin must be called once
// before it is unmapped, when all copies have ended.
func (d *Device) Pin(b []byte) (unpin func() error, err error) {
	if err := d.context.Register(b); err != nil {
		return nil, err
	}
	return func() error { return d.context.Unregister(b) }, nil
}
