package feed

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"shardify/reader"
)

// clientPass is a pass that a client has begun.
type clientPass struct {
	client *Client
	number int64

	mu     sync.Mutex
	queue  []clientEvent
	wake   chan struct{}
	lost   error // a batch was dropped that can never be given back
	closed bool
}

// clientEvent is what happens to a pass.
type clientEvent struct {
	batch *Batch
	held  bool
	end   bool
	err   error
}

func (p *clientPass) put(e clientEvent) {
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.queue = append(p.queue, e)
	}
	p.mu.Unlock()
	if closed && e.batch != nil {
		e.batch.release()
	}
	p.notify()
}

func (p *clientPass) notify() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// stalled is how often next looks for lost batches, when the credit is used up.
const stalled = 2 * time.Second

// next waits for what happens next; full: the credit is used up.
func (p *clientPass) next(ctx context.Context, full bool) (clientEvent, error) {
	var tick <-chan time.Time
	if full {
		ticker := time.NewTicker(stalled)
		defer ticker.Stop()
		tick = ticker.C
		runtime.GC() // finds batches that were dropped
	}
	for {
		p.mu.Lock()
		lost := p.lost
		var e clientEvent
		some := len(p.queue) > 0
		if some {
			e, p.queue[0] = p.queue[0], clientEvent{} // the batch is the caller's alone
			p.queue = p.queue[1:]
		}
		p.mu.Unlock()
		switch {
		case some:
			return e, nil
		case lost != nil:
			return e, lost
		}
		select {
		case <-p.wake:
		case <-tick:
			runtime.GC()
		case <-ctx.Done():
			return e, context.Cause(ctx)
		}
	}
}

// lose notes that a batch can never be released any more.
func (p *clientPass) lose(number int64) {
	p.mu.Lock()
	if p.lost == nil {
		p.lost = fmt.Errorf("feed: batch %d was dropped without Release; call Release on every batch, when its tensors are no longer needed", number)
	}
	p.mu.Unlock()
	p.notify()
}

// Epoch reads an epoch and yields its batches, as reader.Reader.Epoch does. Those that come
// before they are asked for, and those that are held, take SetCredit bytes at most; who
// holds more waits until one is released.
func (r *Reader) Epoch(ctx context.Context, epoch int) iter.Seq2[*Batch, error] {
	return r.begin(ctx, request{Epoch: &epoch})
}

// Resume reads what is left of a state's epoch: the batches from state.Batch on.
func (r *Reader) Resume(ctx context.Context, s reader.State) iter.Seq2[*Batch, error] {
	return r.begin(ctx, request{State: text(s)})
}

func (r *Reader) begin(ctx context.Context, q request) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		q := q
		q.Op, q.Reader, q.Credit = "start", r.opened.Reader, r.credit
		p := &clientPass{client: r.client, wake: make(chan struct{}, 1)}
		begun := func(data json.RawMessage, _ []byte) error {
			var ok startOK
			if err := json.Unmarshal(data, &ok); err != nil {
				return err
			}
			p.number = ok.Pass
			r.client.mu.Lock()
			defer r.client.mu.Unlock()
			if r.client.passes != nil {
				r.client.passes[p.number] = p
			}
			return nil
		}
		// Not the caller's context: a pass that was begun must be stopped.
		if err := r.client.call(context.WithoutCancel(ctx), &q, begun); err != nil {
			yield(nil, err)
			return
		}
		defer p.end()
		full := false
		for {
			e, err := p.next(ctx, full)
			full = e.held
			switch {
			case err != nil:
			case e.err != nil:
				err = e.err
			case e.end:
				return
			case e.held:
				continue
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(e.batch.give(p), nil) {
				return
			}
		}
	}
}

// end ends a pass: nothing of it comes any more.
func (p *clientPass) end() {
	// Where the connection has ended, so has the pass.
	_ = p.client.call(context.Background(), &request{Op: "stop", Pass: p.number}, nil)
	p.client.mu.Lock()
	delete(p.client.passes, p.number)
	p.client.mu.Unlock()
	p.mu.Lock()
	queue := p.queue
	p.queue, p.closed = nil, true
	p.mu.Unlock()
	for _, e := range queue {
		if e.batch != nil {
			e.batch.release()
		}
	}
}

// Batch is the samples of one step, as reader.Batch: it is the caller's until Release, and
// what its methods return points into memory that is used again after, unless they say
// otherwise. Any goroutine may hold it, and release it.
type Batch struct {
	client *Client
	event  batchEvent
	memory []byte
	slab   *clientSlab // nil: memory is the client's own
	device *clientSlab // nil: the tensors are in memory
	done   atomic.Bool
	lost   runtime.Cleanup
}

// give hands the batch to the caller.
func (b *Batch) give(p *clientPass) *Batch {
	number := b.event.Number
	b.lost = runtime.AddCleanup(b, func(p *clientPass) { p.lose(number) }, p)
	return b
}

// Read makes a batch of samples by their numbers, as reader.Reader.Read does.
func (r *Reader) Read(ctx context.Context, samples []int64, epoch int) (*Batch, error) {
	var b *Batch
	x := &call{done: make(chan struct{}), undo: func() { b.release() }}
	x.ok = func(data json.RawMessage, payload []byte) error {
		var ok struct {
			Batch json.RawMessage `json:"batch"`
		}
		err := json.Unmarshal(data, &ok)
		if err == nil {
			b, err = r.client.newBatch(ok.Batch, payload)
		}
		return err
	}
	if err := r.client.do(ctx, &request{Op: "read", Reader: r.opened.Reader, Samples: samples, Epoch: &epoch}, x); err != nil {
		return nil, err
	}
	return b, nil
}

// check says whether all that the batch has lies in its memory.
func (b *Batch) check() error {
	e, size := &b.event, int64(len(b.memory))
	within := func(what string, at, n int64) error {
		if at < 0 || n < 0 || at > size || n > size-at {
			return errorf(CodeProtocol, "the server sent a batch whose %s are not in its %d bytes", what, size)
		}
		return nil
	}
	if e.Len < 0 || int64(e.Len) > size {
		return errorf(CodeProtocol, "the server sent a batch of %d samples in %d bytes", e.Len, size)
	}
	tables := size
	if b.device != nil {
		size = b.device.size
	}
	for _, t := range e.Tensors {
		n := int64(t.DType.Size())
		for _, d := range t.Shape {
			if d < 0 || n > 0 && int64(d) > size/n+1 {
				return errorf(CodeProtocol, "the server sent the tensor %q of the shape %v in %d bytes", shorten(t.Name), t.Shape, size)
			}
			n *= int64(d)
		}
		if t.At == nil || n > 0 && *t.At%tableAlign != 0 {
			return errorf(CodeProtocol, "the server sent the tensor %q without its place", shorten(t.Name))
		}
		if err := within("tensors", *t.At, n); err != nil {
			return err
		}
	}
	size = tables
	if err := within("samples", e.SamplesAt, 8*int64(e.Len)); err != nil {
		return err
	}
	all := []int64{e.KeysAt}
	for _, at := range e.FieldsAt {
		all = append(all, at)
	}
	for _, at := range all {
		if err := within("tables", at, 16*int64(e.Len)); err != nil {
			return err
		}
		if at%8 != 0 {
			return errorf(CodeProtocol, "the server sent a table at %d, which is not aligned", at)
		}
		for _, x := range b.table(at) {
			if x[1] != -1 {
				if err := within("strings", x[0], x[1]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// table is that of byte strings: where each begins, and its length, -1 for none.
func (b *Batch) table(at int64) [][2]int64 {
	if b.event.Len == 0 {
		return nil
	}
	return unsafe.Slice((*[2]int64)(unsafe.Pointer(&b.memory[at])), b.event.Len)
}

// use panics where the batch is no longer there.
func (b *Batch) use() {
	if b.done.Load() {
		panic("feed: Batch used after Release")
	}
}

// Release gives the batch's memory back. What lies on a GPU must not be in use by any of its
// streams any more: wait for them first. To release a batch twice, or to use it after, is
// a bug of the caller, and panics.
func (b *Batch) Release() {
	if b.done.Swap(true) {
		panic("feed: Batch released twice")
	}
	b.lost.Stop()
	b.release()
}

func (b *Batch) release() {
	b.drop()
	if b.slab == nil {
		b.client.keep(b.memory)
	}
	b.memory = nil
	// Where the connection has ended, the server has it back.
	_ = b.client.send(&request{Op: "release", Pass: b.event.Pass, Batches: []int64{b.event.Number}})
}

// drop lets go of its slabs.
func (b *Batch) drop() {
	for _, s := range []*clientSlab{b.slab, b.device} {
		if s != nil {
			s.drop()
		}
	}
}

// Epoch is the batch's epoch.
func (b *Batch) Epoch() int { b.use(); return b.event.Epoch }

// Number is the batch's place within the epoch, from 0.
func (b *Batch) Number() int64 { b.use(); return b.event.Number }

// Bucket is the bucket, from 0, of whose samples the batch is.
func (b *Batch) Bucket() int { b.use(); return b.event.Bucket }

// Len is the number of samples.
func (b *Batch) Len() int { b.use(); return b.event.Len }

// Tensors are the batch's arrays, as reader.Batch.Tensors. The list is the caller's, what it
// points at is not. Those of a batch on a GPU have no Data: see DeviceTensors.
func (b *Batch) Tensors() []reader.Tensor {
	b.use()
	list := make([]reader.Tensor, len(b.event.Tensors))
	for i, t := range b.event.Tensors {
		if b.device != nil {
			list[i] = reader.Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape}
			continue
		}
		n := int64(t.DType.Size())
		for _, d := range t.Shape {
			n *= int64(d)
		}
		list[i] = reader.Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Data: b.memory[*t.At:][:n:n]}
	}
	return list
}

// Tensor is the tensor of a name; ok is false where there is none.
func (b *Batch) Tensor(name string) (t reader.Tensor, ok bool) {
	for _, t := range b.Tensors() {
		if t.Name == name {
			return t, true
		}
	}
	return reader.Tensor{}, false
}

// Samples are the samples' numbers.
func (b *Batch) Samples() []int64 {
	b.use()
	if b.event.Len == 0 {
		return nil
	}
	return unsafe.Slice((*int64)(unsafe.Pointer(&b.memory[b.event.SamplesAt])), b.event.Len)
}

// Keys are the samples' keys. They are the caller's.
func (b *Batch) Keys() []string {
	b.use()
	keys := make([]string, b.event.Len)
	for i, x := range b.table(b.event.KeysAt) {
		keys[i] = string(b.memory[x[0]:][:x[1]])
	}
	return keys
}

// Fields are the names of the fields that Field may return, sorted.
func (b *Batch) Fields() []string {
	b.use()
	names := make([]string, 0, len(b.event.FieldsAt))
	for name := range b.event.FieldsAt {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Field is the content of a field of sample i; ok is false where the sample has no such
// field, or the configuration does not name it.
func (b *Batch) Field(i int, name string) (data []byte, ok bool) {
	b.use()
	at, found := b.event.FieldsAt[name]
	if !found || i < 0 || i >= b.event.Len {
		return nil, false
	}
	x := b.table(at)[i]
	if x[1] < 0 {
		return nil, false
	}
	return b.memory[x[0]:][:x[1]:x[1]], true
}

// Bad are the damaged samples that the batch lacks, or in whose place others stand.
func (b *Batch) Bad() []*Sample { b.use(); return b.event.Bad }

// State is the place behind the batch, as reader.Batch.State.
func (b *Batch) State() reader.State {
	b.use()
	if b.event.State == nil {
		return reader.State{}
	}
	return *b.event.State
}

// clientSlab is a slab that is mapped.
type clientSlab struct {
	data []byte
	// device is the GPU on which it has size bytes, from memory on, and unmap unmaps them.
	device Device
	memory uint64
	size   int64
	unmap  func() error
	// users are the batches in it, and the server, as long as it has not freed it.
	users atomic.Int64
}

func (s *clientSlab) use() { s.users.Add(1) }

func (s *clientSlab) drop() {
	if s.users.Add(-1) > 0 {
		return
	}
	if s.unmap != nil {
		// The GPU says no more than that its context is lost.
		_ = s.unmap()
		return
	}
	freeShared(s.data)
}

// alignedBytes allocates n bytes at a multiple of 64.
func alignedBytes(n int64) []byte {
	b := make([]byte, n+tableAlign-1)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (tableAlign - 1)
	return b[skip : skip+int(n) : skip+int(n)]
}
