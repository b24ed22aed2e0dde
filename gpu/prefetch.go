package gpu

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"shardify/gpu/internal/cuda"
	"shardify/imaging/augment"
	"shardify/reader"
)

// PrefetchConfig is how batches are brought to a GPU.
type PrefetchConfig struct {
	// Depth is how many batches have memory on the GPU at once, those that the consumer
	// holds among them; 0 means 3: one that is worked at, one that is ready, one on its
	// way.
	Depth int `json:"depth,omitempty"`
	// Keys: batches have the keys of their samples.
	Keys bool `json:"keys,omitempty"`
}

// maxDepth bounds a ring.
const maxDepth = 1024

// Validate reports every fault.
func (c PrefetchConfig) Validate() error {
	if c.Depth < 0 || c.Depth > maxDepth {
		return fmt.Errorf("depth: %d; want 1 to %d, or 0 for 3", c.Depth, maxDepth)
	}
	return nil
}

func (c PrefetchConfig) withDefaults() PrefetchConfig {
	if c.Depth == 0 {
		c.Depth = 3
	}
	return c
}

// Tensor is a dense array in the GPU's memory, row by row, as reader.Tensor is one in the
// host's.
type Tensor struct {
	Name  string
	DType reader.DType
	Shape []int
	// Data begins at a multiple of 256, and has Bytes bytes.
	Data  Pointer
	Bytes int64
}

// Batch is a batch on the GPU, perhaps still on its way there. It is the caller's until
// Release. Any goroutine may have it, one at a time.
type Batch struct {
	// Epoch, Number, State, Samples, Bad and Keys are those of the reader's batch, whose
	// slab has gone back or soon will. State is what a checkpoint keeps once this batch
	// was trained on; Keys are there under PrefetchConfig.Keys.
	Epoch   int
	Number  int64
	State   reader.State
	Samples []int64
	Bad     []*reader.SampleError
	Keys    []string
	// Device is the GPU that it is on.
	Device *Device
	// Random is where all comes from that is random in each image; it is there where they
	// have sizes of their own (reader.CollateRagged, or Decode), for a Pipeline.
	Random []augment.Rand
	// Decoded says who has decoded the images, in batches of Decode.
	Decoded Decoded

	offsets, sizes []int64 // of such images
	tensors        []Tensor
	ring           *ring
	slot           *slot
	released       atomic.Bool
	lost           runtime.Cleanup
}

// Prefetch brings batches to a GPU ahead of their use. batches begins a pass over them, such
// as
//
//	func(ctx context.Context) iter.Seq2[*reader.Batch, error] { return r.Epochs(ctx, state, epochs) }
//
// which ends with its context. Each batch is copied on a stream of its own, beside whatever
// else the GPU does, and comes out at once, before its copy has ended: Wait makes a stream
// wait for it, and not the host.
//
//	for b, err := range gpu.Prefetch(ctx, device, batches, gpu.PrefetchConfig{}) {
//		if err != nil { … }
//		err = b.Wait(stream)
//		images, _ := b.Tensor("image")
//		… // put work on images.Data into the stream
//		err = b.Release(stream)
//	}
//
// A reader's batch is released when its copy has ended, and no batch is asked for before
// there is memory for it on the GPU. That is taken when it is needed first, Depth times the
// largest batch, and freed at the end.
//
// The pass ends with the batches, with an error, which is the last, or when the loop is
// left or ctx cancelled; all goroutines, the stream and the memory are gone then, but for
// the memory of batches that the consumer still holds, which their Release frees.
func Prefetch(ctx context.Context, d *Device, batches func(context.Context) iter.Seq2[*reader.Batch, error], c PrefetchConfig) iter.Seq2[*Batch, error] {
	return prefetch(ctx, d.context, &d.meter, hosts(batches), d.describe, c)
}

// hosts are a reader's batches, as the ring takes them.
func hosts(batches func(context.Context) iter.Seq2[*reader.Batch, error]) func(context.Context) iter.Seq2[host, error] {
	return func(ctx context.Context) iter.Seq2[host, error] {
		return func(yield func(host, error) bool) {
			for b, err := range batches(ctx) {
				if err != nil {
					yield(nil, err)
					return
				}
				if !yield(b, nil) {
					return
				}
			}
		}
	}
}

// describe copies what a batch on the GPU keeps of one in the host's memory.
func (d *Device) describe(b *Batch, h host, c PrefetchConfig) {
	from := h.(*reader.Batch)
	b.Device = d
	b.Epoch, b.Number, b.State, b.Bad = from.Epoch(), from.Number(), from.State(), from.Bad()
	b.Samples = slices.Clone(from.Samples())
	if c.Keys {
		b.Keys = from.Keys()
	}
	if offsets, ok := from.Tensor("image_offsets"); ok {
		sizes, _ := from.Tensor("image_sizes")
		b.offsets, b.sizes = slices.Clone(offsets.Int64()), slices.Clone(sizes.Int64())
		b.Random = make([]augment.Rand, from.Len())
		for i := range b.Random {
			b.Random[i] = from.Random(i)
		}
	}
}

// Images are the images of a batch of a reader with DTypeUint8, LayoutNHWC and
// CollateRagged, or of Decode, where they lie in its tensor "image".
func (b *Batch) Images() ([]Image, error) {
	images, _ := b.Tensor("image")
	return Ragged(images, b.offsets, b.sizes)
}

// host is a batch in the host's memory.
type host interface {
	Tensors() []reader.Tensor
	Release()
}

// driver is what the ring asks of a GPU: *cuda.Context is one, another is the simulation
// of the tests.
type driver interface {
	Alloc(n int64) (Pointer, error)
	Free(p Pointer) error
	NewStream() (Stream, error)
	DestroyStream(s Stream) error
	SynchronizeStream(s Stream) error
	NewEvent(timed bool) (cuda.Event, error)
	DestroyEvent(e cuda.Event) error
	Record(e cuda.Event, s Stream) error
	Wait(s Stream, e cuda.Event) error
	SynchronizeEvent(e cuda.Event) error
	Elapsed(from, to cuda.Event) (d time.Duration, done bool, err error)
	Upload(dst Pointer, src []byte, s Stream) error
}

var _ driver = (*cuda.Context)(nil)

// ring is a pass.
//
//	producer   takes a free slot, and then a batch of the host's; has the copy stream wait for
//	           the slot's reuse event; puts the copies there, and the ready event behind them
//	reaper     waits for the ready event, and releases the host's batch
//	           reads the stamps of the slot's last batch, which are all over by then
//	consumer   Wait: its stream waits for the ready event
//	           Release: the reuse event goes into its stream
//
// A slot is free again when it was both reaped and released, since only then nobody looks
// at its events any more, and they may be recorded anew.
type ring struct {
	driver   driver
	meter    *meter
	config   PrefetchConfig
	describe func(*Batch, host, PrefetchConfig)
	decoding *decoding // of Decode's batches; nil where all that they have is copied
	copies   Stream

	ctx    context.Context
	cancel context.CancelCauseFunc
	free   chan *slot // these never block: there are Depth slots
	filled chan filled
	reap   chan reaping
	leak   func() // called when a batch was dropped

	mu    sync.Mutex
	ended bool
	slots []*slot
}

// slot is memory on the GPU for a batch.
type slot struct {
	memory Pointer
	size   int64
	// ready is behind the copies, reuse behind what the consumer does with them.
	ready, reuse cuda.Event
	// stamps are of the batch that is in it, and of the last one, in turn.
	stamps [2]stamps
	turn   int
	// reused: reuse was recorded.
	reused bool
	// room is what decoding has for it.
	room *room
	// holders counts the reaper, and who is to release the batch.
	holders atomic.Int32
	// out: the consumer has it. (ring.mu)
	out bool
}

// stamps are events that know when they were over, and for which nobody waits: around a
// batch's copies, and before the consumer's stream waits for it.
type stamps struct {
	begin, end, asked cuda.Event
	// bytes are those that were copied between begin and end; 0 where these are not
	// recorded. waited: asked is.
	bytes  int64
	waited bool
}

type filled struct {
	batch *Batch
	at    marks
	err   error
}

type reaping struct {
	slot *slot
	host host
}

// errDropped: a batch became garbage that had not been released.
var errDropped = errors.New("gpu: a batch was dropped without Release; call it on every batch, when all that uses it was put into a stream")

func prefetch(ctx context.Context, d driver, m *meter, batches func(context.Context) iter.Seq2[host, error], describe func(*Batch, host, PrefetchConfig), c PrefetchConfig) iter.Seq2[*Batch, error] {
	return prefetchWith(ctx, d, m, batches, describe, c, func() (*decoding, error) { return nil, nil })
}

// prefetchWith is prefetch, with what each pass begins for Decode.
func prefetchWith(ctx context.Context, d driver, m *meter, batches func(context.Context) iter.Seq2[host, error], describe func(*Batch, host, PrefetchConfig), c PrefetchConfig, begin func() (*decoding, error)) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		decoding, err := begin() // which checks c, too
		if err != nil {
			yield(nil, err)
			return
		}
		if err := c.Validate(); err != nil {
			yield(nil, fmt.Errorf("gpu: prefetch: %w", err))
			return
		}
		c := c.withDefaults()
		ctx, cancel := context.WithCancelCause(ctx)
		r := &ring{
			driver: d, meter: m, config: c, describe: describe, decoding: decoding, ctx: ctx, cancel: cancel,
			free: make(chan *slot, c.Depth), filled: make(chan filled, c.Depth+1), reap: make(chan reaping, c.Depth),
			leak: func() { cancel(errDropped) },
		}
		if err := r.pass(batches, yield); err != nil {
			yield(nil, err)
		}
	}
}

// pass returns the error with which the pass ends; none where the loop was left.
func (r *ring) pass(batches func(context.Context) iter.Seq2[host, error], yield func(*Batch, error) bool) (err error) {
	var stages sync.WaitGroup
	var reaped error
	whole := false
	r.meter.started()
	defer r.meter.ended()
	defer func() { // also where the loop's body panics
		r.cancel(nil)
		stages.Wait()
		if end := r.end(); whole {
			err = errors.Join(reaped, end)
		}
	}()
	if r.copies, err = r.driver.NewStream(); err != nil {
		return err
	}
	stages.Go(func() {
		defer close(r.filled)
		defer close(r.reap)
		if err := r.produce(batches); err != nil {
			r.filled <- filled{err: err}
		}
	})
	stages.Go(func() { reaped = r.reaper() })
	for asked, first := time.Now(), true; ; first = false {
		if r.ctx.Err() != nil {
			return context.Cause(r.ctx)
		}
		select {
		case <-r.ctx.Done():
		case f, more := <-r.filled:
			if !more || f.err != nil {
				whole = !more
				return f.err
			}
			r.mu.Lock()
			f.batch.slot.out = true
			r.mu.Unlock()
			f.batch.lost = runtime.AddCleanup(f.batch, func(leak func()) { leak() }, r.leak)
			now := time.Now()
			r.meter.delivered(asked, now, f.at, first)
			more = yield(f.batch, nil)
			asked = time.Now()
			r.meter.held(asked.Sub(now))
			if !more {
				return nil
			}
		}
	}
}

// produce uploads batches until they end.
func (r *ring) produce(batches func(context.Context) iter.Seq2[host, error]) error {
	s, err := r.take()
	if err != nil {
		return err
	}
	at := marks{memory: time.Now()}
	for h, err := range batches(r.ctx) {
		if err != nil {
			return err
		}
		at.read = time.Now()
		b, err := r.upload(s, h)
		if err != nil {
			return err
		}
		at.put = time.Now()
		r.filled <- filled{batch: b, at: at}
		if s, err = r.take(); err != nil {
			return err
		}
		at.memory = time.Now()
	}
	return nil
}

// stalled is how long take waits before it looks for batches that were dropped.
const stalled = 2 * time.Second

// take returns a free slot.
func (r *ring) take() (*slot, error) {
	tick := time.NewTicker(stalled)
	defer tick.Stop()
	for r.ctx.Err() == nil {
		select {
		case s := <-r.free:
			return s, nil
		default:
		}
		if len(r.slots) < r.config.Depth {
			return r.newSlot()
		}
		select {
		case s := <-r.free:
			return s, nil
		case <-tick.C:
			runtime.GC()
		case <-r.ctx.Done():
		}
	}
	return nil, context.Cause(r.ctx)
}

func (r *ring) newSlot() (*slot, error) {
	s := new(slot)
	for i, e := range s.events() {
		var err error
		if *e, err = r.driver.NewEvent(i >= untimed); err != nil {
			return nil, errors.Join(err, r.destroy(s.events()[:i]))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots = append(r.slots, s)
	return s, nil
}

// events are all that a slot has, the untimed ones first.
func (s *slot) events() []*cuda.Event {
	all := []*cuda.Event{&s.ready, &s.reuse}
	for i := range s.stamps {
		t := &s.stamps[i]
		all = append(all, &t.begin, &t.end, &t.asked)
	}
	return all
}

// untimed is how many events of a slot are waited for, and so are not timed.
const untimed = 2

func (r *ring) destroy(events []*cuda.Event) error {
	var faults []error
	for _, e := range events {
		faults = append(faults, r.driver.DestroyEvent(*e))
	}
	return errors.Join(faults...)
}

// tensorAlign is the alignment of tensors on the GPU: that of cuMemAlloc.
const tensorAlign = 256

// upload puts a batch's copies into the stream, and sees to it that the host's batch is
// released.
func (r *ring) upload(s *slot, h host) (*Batch, error) {
	b := &Batch{ring: r, slot: s}
	r.describe(b, h, r.config)
	var err error
	if r.decoding != nil {
		err = r.decoding.fill(r, s, b, h)
	} else {
		err = r.fill(s, b, h.Tensors())
	}
	if err != nil {
		if r.over(r.driver.SynchronizeStream(r.copies)) {
			h.Release()
		}
		return nil, err
	}
	s.holders.Store(2)
	r.reap <- reaping{s, h}
	return b, nil
}

// fill copies tensors as they are.
func (r *ring) fill(s *slot, b *Batch, from []reader.Tensor) error {
	if err := r.lay(s, b, from); err != nil {
		return err
	}
	pieces := make([]piece, len(from))
	for i, t := range from {
		pieces[i] = piece{t.Name, b.tensors[i].Data, t.Data}
	}
	return r.copy(s, pieces)
}

// lay gives a batch its tensors, of the names, types and shapes of others, and memory.
func (r *ring) lay(s *slot, b *Batch, as []reader.Tensor) error {
	b.tensors = make([]Tensor, len(as))
	var size int64
	for i, t := range as {
		bytes := int64(t.DType.Size())
		for _, n := range t.Shape {
			bytes *= int64(n)
		}
		b.tensors[i] = Tensor{Name: t.Name, DType: t.DType, Shape: slices.Clone(t.Shape), Data: Pointer(size), Bytes: bytes}
		size += (bytes + tensorAlign - 1) / tensorAlign * tensorAlign
	}
	if err := r.grow(s, size); err != nil {
		return err
	}
	for i := range b.tensors {
		b.tensors[i].Data += s.memory
	}
	return nil
}

// piece is something to copy: of a tensor's, or all of it.
type piece struct {
	tensor string
	to     Pointer
	from   []byte
}

// copy puts all copies of a batch into the stream, and the ready event behind them.
func (r *ring) copy(s *slot, pieces []piece) error {
	if s.reused {
		if err := r.driver.Wait(r.copies, s.reuse); err != nil {
			return err
		}
	}
	s.turn = 1 - s.turn
	t := &s.stamps[s.turn]
	t.bytes, t.waited = 0, false
	if err := r.driver.Record(t.begin, r.copies); err != nil {
		return err
	}
	var bytes int64
	for _, x := range pieces {
		if err := r.driver.Upload(x.to, x.from, r.copies); err != nil {
			return fmt.Errorf("tensor %q: %w", x.tensor, err)
		}
		bytes += int64(len(x.from))
	}
	if err := r.driver.Record(t.end, r.copies); err != nil {
		return err
	}
	t.bytes = bytes
	return r.driver.Record(s.ready, r.copies)
}

// settle reads the stamps of a batch for whose copies, and for whose consumer's stream,
// somebody has waited. Where a stamp is not over nevertheless, as a consumer may have
// released the batch on a stream that does not know of the one that waited, it goes
// uncounted.
func (r *ring) settle(t *stamps) error {
	if t.bytes == 0 {
		return nil
	}
	bytes := t.bytes
	t.bytes = 0
	copying, done, err := r.driver.Elapsed(t.begin, t.end)
	if err != nil || !done {
		return err
	}
	var stalled time.Duration
	if t.waited {
		if stalled, done, err = r.driver.Elapsed(t.asked, t.end); err != nil {
			return err
		} else if !done {
			stalled = 0
		}
	}
	r.meter.copied(bytes, copying, stalled)
	return nil
}

// over says, by what a wait for copies has returned, that they have ended: also where the
// context is lost, in which nothing runs any more. Otherwise the host's memory must not be
// used again, and the batch that has it is never released.
func (r *ring) over(err error) bool { return err == nil || errors.Is(err, ErrContextLost) }

// grow makes sure that a slot has so many bytes.
func (r *ring) grow(s *slot, size int64) error {
	if size <= s.size {
		return nil
	}
	if s.size > 0 {
		if s.reused {
			if err := r.driver.SynchronizeEvent(s.reuse); err != nil {
				return err
			}
		}
		if err := r.driver.Free(s.memory); err != nil {
			return err
		}
		s.size = 0
	}
	p, err := r.driver.Alloc(size)
	if err != nil {
		return fmt.Errorf("prefetching %d batches: %w; lower depth or batch_size", r.config.Depth, err)
	}
	s.memory, s.size = p, size
	return nil
}

// reaper releases the host's batches when their copies have ended. Its first error cancels
// the pass.
func (r *ring) reaper() (first error) {
	fault := func(err error) {
		r.cancel(err)
		if first == nil {
			first = err
		}
	}
	for x := range r.reap {
		err := r.driver.SynchronizeEvent(x.slot.ready)
		if err != nil {
			fault(err)
			if !r.over(err) {
				err = r.driver.SynchronizeStream(r.copies)
			}
		}
		if r.over(err) {
			x.host.Release()
		}
		// The copy stream has waited for the reuse event of the batch before.
		if err == nil {
			if err := r.settle(&x.slot.stamps[1-x.slot.turn]); err != nil {
				fault(err)
			}
		}
		r.drop(x.slot)
	}
	return first
}

// drop lets a slot go, and makes it free where the other has done so already.
func (r *ring) drop(s *slot) {
	if s.holders.Add(-1) == 0 {
		r.free <- s
	}
}

// end frees everything but the slots that the consumer has. The stages have ended, and so
// have all copies.
func (r *ring) end() error {
	r.mu.Lock()
	r.ended = true
	var mine []*slot
	for _, s := range r.slots {
		if !s.out {
			mine = append(mine, s)
		}
	}
	r.mu.Unlock()
	var faults []error
	for _, s := range mine {
		faults = append(faults, r.retire(s))
	}
	if r.copies != 0 {
		faults = append(faults, r.driver.DestroyStream(r.copies))
	}
	if r.decoding != nil {
		faults = append(faults, r.decoding.leave())
	}
	return errors.Join(faults...)
}

// retire frees a slot when the consumer's stream has passed it.
func (r *ring) retire(s *slot) error {
	var faults []error
	if s.reused {
		if err := r.driver.SynchronizeEvent(s.reuse); !r.over(err) {
			return err // who knows what still uses it
		} else if err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) == 0 {
		faults = append(faults, r.settle(&s.stamps[s.turn]))
	}
	if s.room != nil {
		faults = append(faults, r.decoding.vacate(r, s))
	}
	if s.size > 0 {
		faults = append(faults, r.driver.Free(s.memory))
	}
	return errors.Join(append(faults, r.destroy(s.events()))...)
}

// use panics where the batch is no longer there.
func (b *Batch) use() *slot {
	if b.released.Load() {
		panic("gpu: Batch used after Release")
	}
	return b.slot
}

// Wait makes what is put into a stream from now on wait until the batch is there. The
// caller does not wait.
func (b *Batch) Wait(s Stream) error {
	slot, d := b.use(), b.ring.driver
	if t := &slot.stamps[slot.turn]; !t.waited { // else another stream has waited already
		if err := d.Record(t.asked, s); err != nil {
			return err
		}
		t.waited = true
	}
	return d.Wait(s, slot.ready)
}

// Tensors are those of the reader's batch, in its order. They are the GPU's, and must not be
// used by anything that is put into a stream after Release.
func (b *Batch) Tensors() []Tensor {
	b.use()
	return b.tensors
}

// Tensor is the tensor of a name; ok is false where there is none.
func (b *Batch) Tensor(name string) (t Tensor, ok bool) {
	for _, t := range b.Tensors() {
		if t.Name == name {
			return t, true
		}
	}
	return Tensor{}, false
}

// Release gives the batch's memory back as soon as the stream has done all that is in it
// now; the caller does not wait. What uses the batch on other streams, this one must have
// been made to wait for. When the pass has ended it does wait, and frees the memory.
//
// To release a batch twice, or to use it afterwards, panics. On an error other than
// ErrContextLost, such as for a stream that does not exist, the batch is not released.
func (b *Batch) Release(s Stream) error {
	r, slot := b.ring, b.slot
	if b.released.Swap(true) {
		panic("gpu: Batch released twice")
	}
	err := r.driver.Record(slot.reuse, s)
	if !r.over(err) {
		b.released.Store(false)
		return err
	}
	r.mu.Lock()
	slot.reused = err == nil || slot.reused
	slot.out = false
	ended := r.ended
	r.mu.Unlock()
	b.lost.Stop()
	if ended {
		return errors.Join(err, r.retire(slot))
	}
	r.drop(slot)
	return err
}
