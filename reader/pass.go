package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime/trace"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// pass is a run of epochs being read. The goroutine that ranges over Reader.Epochs is its
// last stage and owns all the others, which are
//
//	schedule   1          plan → jobs and reads, memory
//	fetch      fetchers   reads → bytes
//	decode     Workers    bytes → verified fields and pixels, in the batch's slab
//
// The stages know of no end of an epoch: behind its last batch comes the first one of the
// next. A batch's place in the pass counts the batches from the beginning of the pass's
// first epoch on, over all of its epochs, which are equally long.
type pass struct {
	reader *Reader
	// from is the place of the first batch, and until that behind the last one.
	from, until int64
	// plans are those of the epochs that the scheduler schedules or looks ahead to, and
	// begin is the first one's first place. They are the scheduler's.
	plans    []*Plan
	begin    int64
	counters *counters
	began    time.Time
	ctx      context.Context
	cancel   context.CancelCauseFunc
	pool     *pool

	reads chan *read
	spans chan *span
	tasks chan task
	// ready has the jobs in the order of batches, finished or not.
	ready    chan *job
	wg       sync.WaitGroup
	verdicts verdicts // on shards
	// large is what is free of the scratch memory.
	large *semaphore.Weighted
	// source, if not nil, is the goroutine that makes the jobs, in place of schedule and
	// fetch.
	source func()
	// requests, if not nil, has the jobs of Reader.Read: there is no order of batches, and
	// no consumer but the callers.
	requests chan *job
	// bad counts the damaged samples so far of the epoch that the consumer is in.
	bad, epoch int
	// taken counts the batches that the consumer has got; asked is the place of the last
	// one that it found not even begun, for which others give up memory.
	taken int64
	asked atomic.Int64
	// whole: the last epoch has come to its end, so that only the caller still has
	// memory of the pool.
	whole bool
	// finished counts the batches that are done and not yet taken.
	finished atomic.Int64
}

// task is a slot whose pieces have all been read.
type task struct {
	job  *job
	slot int
}

// ahead bounds the batches under way, where memory does not.
const ahead = 32

// Of a local store, which answers at once, and of one that is read ahead, batches wait
// for the consumer up to readyBytes of slabs, or as many as have readySamples for each
// worker. More would only take memory: new to the process, and then new again each time
// reads and slabs take it from each other, which cost a fifth of the processor time of
// random crops of photographs. What of a remote store is in no span is asked for by the
// batches that wait: of remoteSamples, whose latency is hidden.
const (
	readyBytes    = 64 << 20
	readySamples  = 64
	remoteSamples = 512
)

// localReady is how many batches wait for the consumer, besides the one that is being
// scheduled.
func localReady(slab int64, batchSize, workers int) int {
	n := max(readyBytes/slab, int64((readySamples*workers+batchSize-1)/batchSize))
	return int(min(n, ahead))
}

// maxTasks bounds the samples that have been read and wait for a worker, where memory
// and ahead do not. It takes no part in what is read when: that a slow worker should
// not keep a store from being asked, the list is longer than batches usually fill it.
const maxTasks = 1 << 16

// Epoch reads an epoch and yields its batches in the order of the plan: exactly
// Len of them. Every range is a fresh pass. The batches are the caller's, who must
// Release each; a pass that has lent all its memory waits until one comes back, and
// one that finds a batch dropped without Release ends with an error.
//
// A non-nil error is the last thing yielded. It is the first in the order of
// batches, however many workers there are: those before it are yielded. Leaving the
// loop, a panic in it, the end of ctx and Reader.Close end all of the pass's
// goroutines before the range statement is left; batches that are still held stay
// good.
func (r *Reader) Epoch(ctx context.Context, epoch int) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) { r.read(ctx, epoch, 0, 1, yield) }
}

// Epochs reads from a state on until epoch end would begin, which is never where end is
// negative: what training for so many epochs is, from its beginning, State(0, 0), or from
// a checkpoint's state:
//
//	for b, err := range r.Epochs(ctx, state, epochs) {
//		…
//		state = b.State()
//		b.Release()
//	}
//
// The batches are those of Epoch, epoch after epoch, each as long as Len, and of the first
// one those from state.Batch on: to the last byte those that Epoch would have given from
// there, also where World has become another one. Where state.Epoch is not before end
// there are none.
//
// It is one pass, which does not stop between two epochs: while the last batches of one
// are worked at or wait for the caller, the next one's samples are being read, as far as
// memory goes. So an epoch's first batch comes as soon as any other, and what the caller
// does between two epochs (see Batch.Epoch), such as validation, finds batches ready
// behind it. MaxBad counts anew in each epoch, and a shard that was missing in one is looked
// for again in the next. All else is as Epoch says.
//
// Nothing that comes before the state is read, or planned. (In .gz shards, what lies before
// the next sample in its shard is, as after every jump.) A state that does not fit is an
// error that wraps ErrState.
func (r *Reader) Epochs(ctx context.Context, from State, end int) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		if err := r.CheckState(from); err != nil {
			yield(nil, err)
			return
		}
		switch {
		case end < 0:
			r.read(ctx, from.Epoch, from.Batch, -1, yield)
		case from.Epoch < end:
			r.read(ctx, from.Epoch, from.Batch, int64(end)-int64(from.Epoch), yield)
		}
	}
}

// read yields the batches of so many epochs (-1: all), of the first one from a number on.
func (r *Reader) read(ctx context.Context, epoch int, from, epochs int64, yield func(*Batch, error) bool) {
	p, err := r.newPass(ctx, epoch, from, epochs)
	if err != nil {
		yield(nil, err)
		return
	}
	r.deliver(p, yield)
}

// deliver runs a pass.
func (r *Reader) deliver(p *pass, yield func(*Batch, error) bool) {
	defer p.end()
	p.start()
	for {
		start := time.Now()
		wait := trace.StartRegion(p.ctx, "wait")
		b, err := p.next()
		wait.End()
		if err != nil {
			yield(nil, err)
			return
		}
		if b == nil {
			return
		}
		asked := p.counters.delivered(start, b.job)
		more := yield(b, nil)
		p.counters.heldBusy.since(asked)
		if !more {
			return
		}
	}
}

// newPass makes a pass over so many epochs (-1: all), from a batch of the first one on.
func (r *Reader) newPass(ctx context.Context, epoch int, from, epochs int64) (*pass, error) {
	plan, err := r.Plan(epoch)
	if err != nil {
		return nil, err
	}
	p := r.emptyPass(ctx)
	p.plans, p.from, p.until = []*Plan{plan}, from, math.MaxInt64
	if n := plan.Batches(); epochs >= 0 && epochs < math.MaxInt64/n {
		p.until = epochs * n
	}
	return p, nil
}

// planAt is the plan of the epoch that has a place, and which of its batches is there. The
// place must not lie before those that pastEpoch has left behind.
func (p *pass) planAt(place int64) (plan *Plan, number int64, err error) {
	n := p.reader.base.Batches()
	epoch := int((place - p.begin) / n)
	for i := len(p.plans); i <= epoch; i++ {
		if plan, err = p.reader.Plan(p.plans[i-1].epoch + 1); err != nil {
			return nil, 0, err
		}
		p.plans = append(p.plans, plan)
	}
	return p.plans[epoch], (place - p.begin) % n, nil
}

// pastEpoch leaves the first plan behind.
func (p *pass) pastEpoch() {
	p.begin += p.plans[0].Batches()
	p.plans = slices.Delete(p.plans, 0, 1)
}

// emptyPass is a pass without anything to read.
func (r *Reader) emptyPass(ctx context.Context) *pass {
	p := &pass{
		reader: r, counters: &r.counters,
		pool:  r.takePool(),
		reads: make(chan *read, 2*max(1, r.fetchers)),
		spans: make(chan *span, maxSpans),
		tasks: make(chan task, min(ahead*r.config.BatchSize, maxTasks)),
		ready: make(chan *job, cmp.Or(r.ready, ahead)),
	}
	p.asked.Store(-1)
	p.large = semaphore.NewWeighted(max(1, r.scratch.size))
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	return p
}

// takePool returns the memory that the last pass has left, or some of its own.
func (r *Reader) takePool() *pool {
	if p := r.spare.Swap(nil); p != nil {
		return p
	}
	return newPool(r.poolBytes, r.counters.memory, r.config.Slabs)
}

func (p *pass) start() {
	p.began = time.Now()
	if p.requests == nil {
		p.counters.started()
	}
	switch {
	case p.source != nil:
		p.wg.Go(p.source)
	default:
		if p.requests != nil {
			p.wg.Go(p.serve)
		} else {
			p.wg.Go(p.schedule)
		}
		for range p.reader.fetchers {
			p.wg.Go(p.fetch)
		}
	}
	for range p.reader.config.Workers {
		p.wg.Go(p.decode)
	}
}

// end ends the goroutines and waits for them.
func (p *pass) end() {
	p.cancel(context.Canceled)
	p.wg.Wait()
	if !p.whole || !p.reader.spare.CompareAndSwap(nil, p.pool) {
		p.pool.end()
	}
	c := p.counters
	c.store.queued.Add(-int64(len(p.reads) + len(p.spans)))
	c.decode.queued.Add(-int64(len(p.tasks)))
	c.ready.Add(-p.finished.Load())
	if p.requests == nil {
		p.counters.ended()
	}
}

// next waits for the next batch; nil means that there is none.
func (p *pass) next() (*Batch, error) {
	// Before the batches that are ready.
	select {
	case <-p.reader.done:
		return nil, ErrClosed
	case <-p.ctx.Done():
		return nil, context.Cause(p.ctx)
	default:
	}
	p.pool.asking.Store(true)
	defer p.pool.asking.Store(false)
	if len(p.ready) == 0 {
		p.asked.Store(p.from + p.taken)
		p.pool.notify()
	}
	var j *job
	select {
	case j = <-p.ready:
	case <-p.reader.done:
		return nil, ErrClosed
	case <-p.ctx.Done():
		return nil, context.Cause(p.ctx)
	}
	p.taken++
	if j == nil {
		err := context.Cause(p.ctx)
		p.whole = err == nil
		return nil, err
	}
	if j.fatal != nil {
		return nil, j.fatal
	}
	select {
	case <-j.done:
	case <-p.reader.done:
		return nil, ErrClosed
	case <-p.ctx.Done():
		return nil, context.Cause(p.ctx)
	}
	p.finished.Add(-1)
	p.counters.ready.Add(-1)
	j.delivered()
	if e := j.plan.epoch; e != p.epoch {
		p.bad, p.epoch = 0, e
	}
	if err := p.judge(j); err != nil {
		return nil, err
	}
	// Nobody is told that the consumer has all, before it hands this one on.
	p.pool.asking.Store(false)
	p.pool.keep(j.slab)
	return newBatch(j), nil
}

// judge does with the damaged samples of a finished job what OnBad says.
func (p *pass) judge(j *job) error {
	c := &p.reader.config
	skipped, substituted := 0, 0
	for i := range j.slots {
		if s := j.stands[i]; s != nil {
			substituted++
			j.bad = append(j.bad, s.bad)
		} else if err := j.faults[i]; err != nil {
			one := (*SampleError)(nil)
			if !errors.As(err, &one) {
				return err
			}
			if c.OnBad != OnBadSkip {
				p.reader.bad.add(one)
				return err
			}
			skipped++
			j.bad = append(j.bad, one)
		} else {
			continue
		}
		if err := p.count(j.bad[len(j.bad)-1]); err != nil {
			return err
		}
	}
	for _, one := range j.lost {
		j.bad = append(j.bad, one)
		skipped++
		if err := p.count(one); err != nil {
			return err
		}
	}
	if len(j.bad) == 0 {
		return nil
	}
	p.counters.skipped.Add(int64(skipped))
	p.counters.substituted.Add(int64(substituted))
	return nil
}

// count reports a damaged sample; the error is that it is one too many.
func (p *pass) count(one *SampleError) error {
	p.reader.bad.add(one)
	if p.requests != nil {
		return nil // there is no epoch that could have too many
	}
	if most := p.reader.config.MaxBad; most >= 0 && p.bad >= most {
		return fmt.Errorf("%w: %d, where max_bad allows %d in an epoch; the last one: %w", ErrTooManyBad, p.bad+1, most, one)
	}
	p.bad++
	return nil
}

// giveBack takes back what a released batch held.
func (p *pass) giveBack(j *job) {
	j.delivered()
	slab := j.slab
	j.slab, j.pass, j.plan = nil, nil, nil
	select {
	case p.pool.jobs <- j: // it may be filled from here on
	default:
	}
	if slab != nil {
		p.pool.put(slab)
	}
}
