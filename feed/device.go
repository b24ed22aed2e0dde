package feed

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"shardify/reader"
)

// Uploader brings the batches of one reader to memory on a GPU that a client maps. Package
// gpu has it: gpu.Uploader says what its methods do. It is closed when the reader is, and
// the client holds nothing any more.
type Uploader interface {
	Device() string
	Config() reader.Config
	Wanted(of reader.Config) reader.Config
	Tensors(host []reader.Tensor) (made []reader.Tensor, bytes []int64)
	Share(n int64) (at uint64, size int64, f *os.File, err error)
	Unshare(at uint64) error
	Upload(b *reader.Batch, at []uint64) (wait func() (over bool, err error), over bool, err error)
	Started()
	Waited(w reader.DeviceWaits, first bool)
	Ended()
	Stats() reader.DeviceStats
	Close() error
}

// TransformOn says where transforms are carried out: by the reader, or on the GPU that its
// batches come to, with the same bytes, which spares the processors.
type TransformOn string

// The places. The empty one is TransformOnHost.
const (
	TransformOnHost   TransformOn = "host"
	TransformOnDevice TransformOn = "device"
)

// deviceAlign is the alignment of tensors on a GPU: that of its allocations.
const deviceAlign = 256

// openOn opens a reader whose batches lie on a GPU.
func (s *Server) openOn(x *session, q *request, c reader.Config) (*opened, error) {
	if x.inline() {
		return nil, errorf(CodeConfig, "open: device: batches can be brought to a GPU of the server's host only, over its Unix socket")
	}
	if s.config.Uploader == nil {
		return nil, errorf(CodeDevice, "open: device: this server (%s) brings no batches to GPUs", s.config.Name)
	}
	checked := c
	if !q.Stream {
		if _, err := parseData(q.Data, &checked); err != nil {
			return nil, err
		}
	}
	// What was asked for, not what is left of it for the reader.
	if err := checked.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", reader.ErrConfig, err)
	}
	u, err := s.config.Uploader(q.Device, c, q.TransformOn == TransformOnDevice)
	if errors.Is(err, reader.ErrConfig) {
		return nil, errorf(CodeConfig, "open: transform_on: %v", err)
	}
	if err != nil {
		return nil, errorf(CodeDevice, "open: device: %v", err)
	}
	o, err := s.openWith(x, q, u.Config())
	if err != nil {
		return nil, errors.Join(err, u.Close())
	}
	o.ring = &ring{uploader: u, slabs: x.slabs, transforms: q.TransformOn == TransformOnDevice}
	return o, nil
}

// ring is the memory on a GPU in which a reader's batches lie, with its tables in the host's.
type ring struct {
	uploader Uploader
	slabs    *slabs
	// transforms: the GPU carries them out.
	transforms bool

	mu     sync.Mutex
	free   []*place
	lent   int
	closed bool
}

// place is room for a batch.
type place struct {
	device *slab
	tables []byte
}

// defaultAhead is how many batches come to a GPU by default before others are released: one
// that is in use, one whose use the GPU has not ended yet, one that is there, and one on its
// way; and half of one for tables.
const defaultAhead = 4.5

// credit is what a pass may lend.
func (r *ring) credit(want int64, of source) int64 {
	if want > 0 {
		return want
	}
	each := 0.0
	made, _ := r.uploader.Tensors(of.Tensors())
	for _, t := range made {
		n := float64(t.DType.Size())
		for _, d := range t.Shape {
			n *= float64(d)
		}
		if n < 0 { // nobody knows; what the reader reckons with, in the largest type
			n = 4 * float64(of.BatchBytes())
		}
		each += n
	}
	if r.transforms { // what the reader reckons with are images that are not yet cut
		return int64(min(defaultAhead*max(each, 1), math.MaxInt64/2))
	}
	// Where fields are most of a batch, they are what the reader reckons with.
	return int64(min(defaultAhead*max(each, float64(of.BatchBytes()), 1), math.MaxInt64/2))
}

// take returns room for a batch, of so many bytes on the GPU and of its tables.
func (r *ring) take(device, tables int64) (*place, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var p *place
	if n := len(r.free); n > 0 {
		// The smallest that is large enough, or else the smallest.
		best := 0
		for i, x := range r.free {
			has, least := x.device.size, r.free[best].device.size
			if fits := least >= device; fits && has >= device && has < least || !fits && (has >= device || has < least) {
				best = i
			}
		}
		p = r.free[best]
		r.free = append(r.free[:best], r.free[best+1:]...)
	} else {
		p = &place{}
	}
	if err := r.grow(p, device, tables); err != nil {
		return nil, errors.Join(err, r.drop(p))
	}
	r.lent++
	return p, nil
}

// grow makes sure that a place has room. (r.mu)
func (r *ring) grow(p *place, device, tables int64) error {
	if p.device != nil && p.device.size < device {
		old := p.device
		p.device = nil
		if err := r.unshare(old); err != nil {
			return err
		}
	}
	if p.device == nil {
		at, size, f, err := r.uploader.Share(max(device, 1))
		if err != nil {
			return errorf(CodeDevice, "memory for a batch of %s on the GPU: %v; lower prefetch or batch_size", bytesText(device), err)
		}
		p.device = &slab{device: r.uploader.Device(), memory: at, size: size, file: f}
		r.slabs.add(p.device)
	}
	// A batch of which all samples are damaged has tables of no bytes, in a slab all the same.
	if tables = max(tables, 1); int64(len(p.tables)) < tables {
		r.slabs.Free(p.tables)
		p.tables = nil
		var err error
		// Those of the next batches are a little longer or shorter.
		if p.tables, err = r.slabs.Alloc((tables + tables/4 + 4095) / 4096 * 4096); err != nil {
			return err
		}
	}
	return nil
}

// unshare frees memory of the GPU.
func (r *ring) unshare(x *slab) error {
	r.slabs.out.put(message{text: text(slabEvent{Event: "unslab", Slab: x.number})})
	return r.uploader.Unshare(x.memory)
}

// drop frees a place. (r.mu)
func (r *ring) drop(p *place) error {
	r.slabs.Free(p.tables)
	if p.device == nil {
		return nil
	}
	return r.unshare(p.device)
}

// give takes a place back.
func (r *ring) give(p *place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lent--
	if !r.closed {
		r.free = append(r.free, p)
		return
	}
	// The reader was closed while the client held it. Nobody is there to be told.
	_ = r.drop(p)
	if r.lent == 0 {
		_ = r.uploader.Close()
	}
}

// close frees what is not lent; what is, is freed when it is given back.
func (r *ring) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	var faults []error
	for _, p := range r.free {
		faults = append(faults, r.drop(p))
	}
	r.free = nil
	if r.lent == 0 {
		faults = append(faults, r.uploader.Close())
	}
	return errors.Join(faults...)
}

// upload is a batch on its way to a GPU.
type upload struct {
	batch *reader.Batch
	event *batchEvent
	wait  func() (over bool, err error)
}

// uploads returns what sends batches by way of a GPU, and what waits for those that are on
// their way, at the end. While one is copied, the next one is laid out; the client is told
// of each when it is there, so that its streams have nothing to wait for.
func (p *pass) uploads() (send func(*reader.Batch) error, finish func() error) {
	under := make(chan upload, 1)
	done := make(chan error, 1)
	go func() {
		var fault error
		for x := range under {
			over, err := x.wait()
			if over {
				x.batch.Release()
			}
			if err != nil && fault == nil {
				fault = errorf(CodeDevice, "a batch on its way to the GPU: %v", err)
				p.cancel()
			}
			p.arrived(x.event, fault == nil, over)
		}
		done <- fault
	}()
	u := p.reader.ring.uploader
	u.Started()
	asked, first := time.Now(), true
	send = func(b *reader.Batch) error {
		w := reader.DeviceWaits{Reader: time.Since(asked)}
		x, err := p.upload(b, &w)
		if err == nil {
			put := time.Now()
			under <- x
			w.Upload += time.Since(put)
			u.Waited(w, first)
		}
		asked, first = time.Now(), false
		return err
	}
	return send, func() error {
		close(under)
		err := <-done
		u.Ended()
		return err
	}
}

// upload begins to bring a batch to the GPU, when the credit allows it. On an error the
// batch has been released, unless the GPU may still read it. w gets what was waited for.
func (p *pass) upload(b *reader.Batch, w *reader.DeviceWaits) (upload, error) {
	r := p.reader.ring
	l := newLayout(b, 0)
	l.addTables(b, nil)
	made, sizes := r.uploader.Tensors(b.Tensors())
	var device int64
	at := make([]uint64, len(made))
	for i, t := range made {
		place := (device + deviceAlign - 1) / deviceAlign * deviceAlign
		device, at[i] = place+sizes[i], uint64(place)
		l.event.Tensors = append(l.event.Tensors, tensorInfo{Name: t.Name, DType: t.DType, Shape: t.Shape, At: &place})
	}
	l.event.Pass, l.event.Bytes = p.number, device+l.end
	asked := time.Now()
	err := p.wait(l.event.Bytes)
	w.GPU = time.Since(asked)
	asked = asked.Add(w.GPU)
	var to *place
	if err == nil {
		to, err = r.take(device, l.end)
	}
	if err != nil {
		b.Release()
		return upload{}, err
	}
	for i := range at {
		at[i] += to.device.memory
	}
	l.fill(to.tables)
	wait, over, err := r.uploader.Upload(b, at)
	w.Upload = time.Since(asked)
	if err != nil {
		if over { // or else the GPU may still read the one, and write the other
			r.give(to)
			b.Release()
		}
		return upload{}, errorf(CodeDevice, "bringing a batch to the GPU: %v", err)
	}
	l.event.DeviceSlab, l.event.Slab = to.device.number, r.slabs.lend(to.tables).number
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[l.event.Number] = lent{bytes: l.event.Bytes, release: func() { r.give(to) }, coming: true}
	p.used += l.event.Bytes
	p.coming++
	return upload{b, &l.event, wait}, nil
}

// arrived tells the client of a batch that is on the GPU. One that did not get there is
// given up, and its place used again if nothing is written there any more.
func (p *pass) arrived(e *batchEvent, whole, over bool) {
	p.mu.Lock()
	one := p.held[e.Number]
	p.coming--
	if one.coming = false; whole {
		p.held[e.Number] = one
	} else {
		delete(p.held, e.Number)
		p.used -= one.bytes
	}
	p.mu.Unlock()
	switch {
	case whole:
		p.session.out.put(message{text: text(e)})
	case over:
		one.release()
	}
	select {
	case p.back <- struct{}{}:
	default:
	}
}

// Device is a GPU as a client uses it: package gpu has it as gpu.Device.
type Device interface {
	// UUID is the GPU's, the same in every process.
	UUID() string
	// Map maps memory that the server has shared by a file, which is closed afterwards.
	Map(f *os.File, size int64) (at uint64, unmap func() error, err error)
}

// DeviceTensor is a dense array on a GPU, as reader.Tensor is one in the host's memory.
type DeviceTensor struct {
	Name  string
	DType reader.DType
	Shape []int
	// Data is a pointer of CUDA's to its first element, at a multiple of 256.
	Data uint64
}

// DeviceTensors are the batch's arrays on the GPU that its reader was opened for; nil of
// other batches. They are there when the batch comes: streams have nothing to wait for.
func (b *Batch) DeviceTensors() []DeviceTensor {
	b.use()
	if b.device == nil {
		return nil
	}
	list := make([]DeviceTensor, len(b.event.Tensors))
	for i, t := range b.event.Tensors {
		list[i] = DeviceTensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Data: b.device.memory + uint64(*t.At)}
	}
	return list
}

// mapSlab maps what the server has sent, and closes the file.
func (c *Client) mapSlab(f *os.File, m *serverMessage) (*clientSlab, error) {
	if m.Device == "" {
		return mapSlab(f, m.Bytes)
	}
	defer f.Close()
	c.mu.Lock()
	d := c.devices[m.Device]
	c.mu.Unlock()
	if d == nil {
		return nil, errorf(CodeProtocol, "the server sent memory of the GPU %q, which was not asked for", shorten(m.Device))
	}
	at, unmap, err := d.Map(f, m.Bytes)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes of the server's on the GPU: %w; client and server must use the same GPU", m.Bytes, err)
	}
	s := &clientSlab{device: d, memory: at, size: m.Bytes, unmap: unmap}
	s.users.Store(1)
	return s, nil
}

// onDevice finds where a batch's tensors lie on a GPU.
func (c *Client) onDevice(b *Batch) error {
	n := b.event.DeviceSlab
	if n == 0 {
		if b.slab != nil && b.slab.device != nil {
			return errorf(CodeProtocol, "the server sent a batch whose tables lie on a GPU")
		}
		return nil
	}
	c.mu.Lock()
	s := c.slabs[n]
	c.mu.Unlock()
	if s == nil || s.device == nil || b.slab == nil || b.slab.device != nil {
		return errorf(CodeProtocol, "the server sent a batch in slab %d, which is not there on a GPU", n)
	}
	s.use()
	b.device = s
	return nil
}
