package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Random access. All calls of Read share one pass, which has no order: a call makes a job
// of its samples, and the pass's scheduler, fetchers and workers do it as they do those of
// an epoch. The pass begins with the first call and ends a while after the last one, or
// with the reader.
//
// A call that its caller gives up leaves its job to the stages, which have it in hand: they
// do no more of it than they must, and the last of them gives its memory back.

// callsLinger is how long the goroutines of Read wait for another call.
const callsLinger = 10 * time.Second

// verdictAge is for how long Read believes that a shard is missing or cut without looking
// again. (A pass believes it to its end.)
const verdictAge = 10 * time.Second

// callStream is the stream of Read's calls where shards can only be read forward.
const callStream = -3

// What a job of Read has come to.
const (
	jobUnderWay int32 = iota
	jobEnded          // it is done
	jobLeft           // its caller did not wait
)

// errAbandoned: nobody waits for the sample any more.
var errAbandoned = errors.New("the call has been given up")

// calls is what the calls of Read share.
type calls struct {
	mu     sync.Mutex
	pass   *pass // nil where none runs
	active int   // calls
	left   *sync.Cond
	linger *time.Timer
	wait   time.Duration // callsLinger where it is 0
	closed bool
	number atomic.Int64 // of the next call
}

// Read makes a batch of samples by their numbers in the split, in the order in which they
// are given; one may be given several times. It is the batch that a pass over the epoch
// would make of them: verified, decoded, transformed with the random numbers that they have
// in that epoch, with all tensors and fields. (Where Config.Sampling lets a sample come
// several times in an epoch, its picture is that of the first time; Read takes any sample of
// the split, chosen or not.) It is for map-style data sets and for looking at samples; an
// epoch in order is several times faster with Epoch.
//
// The batch is the caller's until Release. Its Number is that of the call, from 0, and its
// State is empty.
//
// Any number of goroutines may call Read at the same time, also beside passes. All calls
// together hold no more than a pass may, Config.Memory: a call for which there is no memory
// waits until batches are released, and one that is larger than all of it is made alone.
// What a call needs is read with few requests where it lies together, and as many at once
// as in a pass; nothing is read ahead. Goroutines for it, as many as a pass has, run from
// the first call on, and end with Close, or when there was no call for ten seconds.
//
// A damaged sample is the error, a *SampleError, under OnBadFail. Under OnBadSkip the batch
// lacks it, and under OnBadSubstitute another stands in for it, the same as in a pass;
// Batch.Samples and Batch.Bad say so. MaxBad does not count. An error leaves nothing to
// release. The end of ctx, and Close (ErrClosed), end the call at once.
//
// With Buckets.Sizes all samples of a call must be of one bucket. MixUp and CutMix, which
// blend the batches of an epoch, are an ErrConfig.
func (r *Reader) Read(ctx context.Context, samples []int64, epoch int) (*Batch, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	plan, err := r.planFor(samples, epoch)
	if err != nil {
		return nil, err
	}
	p, err := r.calls.join(r)
	if err != nil {
		return nil, err
	}
	defer r.calls.leave()
	return p.call(ctx, plan, samples)
}

// planFor checks what Read is asked for, and returns a plan by which it can be done: all
// of one that does not depend on the order of the epoch.
func (r *Reader) planFor(samples []int64, epoch int) (*Plan, error) {
	switch {
	case epoch < 0:
		return nil, fmt.Errorf("epoch %d is negative", epoch)
	case r.config.blends():
		return nil, fmt.Errorf("%w: mixup, cutmix: they blend the batches of an epoch; for Read, leave them out", ErrConfig)
	case len(samples) > maxBatch:
		return nil, fmt.Errorf("%d samples in one batch; %d are the most", len(samples), maxBatch)
	}
	for _, n := range samples {
		if n < 0 || n >= r.split.Samples {
			return nil, fmt.Errorf("sample %d of split %q, which has %d", n, r.split.Name, r.split.Samples)
		}
	}
	p := &Plan{order: r.base.order, epoch: epoch, samples: r.split.Samples, starts: r.base.split, split: r.base.split, bucket: noBucket}
	if r.chosen == nil || !r.chosen.bucketed {
		return p, nil
	}
	if len(r.canvases) > 1 {
		p.bucket = 0
	}
	for i, n := range samples {
		k := r.chosen.bucketOf(n)
		switch {
		case len(r.canvases) > 1 && k < 0:
			return nil, fmt.Errorf("sample %d is in no bucket, so that its image has no size", n)
		case len(r.canvases) > 1 && i > 0 && k != p.bucket:
			return nil, fmt.Errorf("samples %d and %d are of the buckets %d and %d, whose images differ in size: read them one after the other", samples[0], n, p.bucket, k)
		case i == 0:
			p.bucket = k
		}
	}
	return p, nil
}

// bucketOf is the bucket that has a sample; noBucket where it is not chosen.
func (c *chosen) bucketOf(n int64) int {
	shard := find(c.split, n)
	row := uint32(n - c.split[shard])
	for k := range c.strata {
		m := &c.strata[k].members
		if _, found := slices.BinarySearch(m.rows[m.starts[shard]:m.starts[shard+1]], row); found {
			return k
		}
	}
	return noBucket
}

// planOf is the plan of a job's epoch, of which substitutes are drawn for sample n. That of
// a pass is the job's.
func (r *Reader) planOf(j *job, n int64) (*Plan, error) {
	if j.pass.requests == nil || r.chosen == nil {
		return j.plan, nil
	}
	p, err := r.Plan(j.plan.epoch)
	if err == nil && p.buckets != nil {
		p = p.buckets[max(0, r.chosen.bucketOf(n))]
	}
	return p, err
}

// join returns the pass that does the calls, and begins it where there is none.
func (c *calls) join(r *Reader) (*pass, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if c.pass == nil {
		c.pass = r.emptyPass(context.Background())
		c.pass.requests = make(chan *job, 1)
		c.pass.pool.asking.Store(true)
		c.pass.start()
	}
	c.active++
	return c.pass, nil
}

// leave ends a call.
func (c *calls) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.active--; c.active > 0 {
		return
	}
	if c.closed {
		c.left.Broadcast()
		return
	}
	wait := c.wait
	if wait == 0 {
		wait = callsLinger
	}
	if c.linger == nil {
		c.linger = time.AfterFunc(wait, c.idle)
	} else {
		c.linger.Reset(wait)
	}
}

// idle ends the pass, unless somebody calls again.
func (c *calls) idle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pass; p != nil && c.active == 0 && !c.closed {
		c.pass = nil
		p.end()
	}
}

// close ends all calls, and the pass.
func (c *calls) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == nil {
		c.left = sync.NewCond(&c.mu)
	}
	c.closed = true
	if c.linger != nil {
		c.linger.Stop()
	}
	if c.pass == nil {
		return
	}
	c.pass.cancel(ErrClosed)
	for c.active > 0 {
		c.left.Wait()
	}
	if p := c.pass; p != nil { // two may close at once
		c.pass = nil
		p.end()
	}
}

// call makes the batch of a call.
func (p *pass) call(ctx context.Context, plan *Plan, samples []int64) (*Batch, error) {
	p.counters.started()
	defer p.counters.ended()
	p.verdicts.forget(verdictAge)
	j := p.newJob()
	j.plan, j.canvas = plan, p.reader.canvas(plan)
	j.samples = append(j.samples[:0], samples...)
	j.copies, j.streams = sized(j.copies, len(samples)), sized(j.streams, len(samples))
	clear(j.copies)
	clear(j.streams)
	if p.reader.sequential {
		for i := range j.streams {
			j.streams[i] = callStream
		}
	}
	j.seats = len(samples)
	number := p.reader.calls.number.Add(1) - 1
	j.reset(number, number, len(samples), p.reader.wanted.names, p.reader.wanted.image)
	own, cancel := context.WithCancel(p.ctx)
	defer cancel() // what is still being read for a caller who has gone
	j.begin(own)
	if err := p.warm(ctx, j); err != nil {
		p.giveBack(j)
		return nil, err
	}
	select {
	case p.requests <- j:
	case <-ctx.Done():
		p.giveBack(j)
		return nil, context.Cause(ctx)
	case <-p.ctx.Done():
		p.giveBack(j)
		return nil, context.Cause(p.ctx)
	}
	select {
	case <-j.done:
	case <-ctx.Done():
		p.abandon(j)
		return nil, context.Cause(ctx)
	case <-p.ctx.Done():
		p.abandon(j)
		return nil, context.Cause(p.ctx)
	}
	p.received(j)
	err := j.fatal
	if err == nil {
		err = p.judge(j)
	}
	if err != nil {
		p.giveBack(j)
		return nil, err
	}
	p.pool.keep(j.slab)
	p.counters.batches.Add(1)
	p.counters.samples.Add(int64(j.n))
	return newBatch(j), nil
}

// warm reads the indexes that a call needs and that are not there, so that no other call
// waits for them.
func (p *pass) warm(ctx context.Context, j *job) error {
	var missing []int32
	for _, n := range j.samples {
		shard, _ := j.plan.Locate(n)
		if !slices.Contains(missing, int32(shard)) && p.reader.rows.cached(shard) == nil {
			missing = append(missing, int32(shard))
		}
	}
	if missing == nil {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(context.Cause(p.ctx)) })()
	err := p.loadRows(ctx, missing, func(int32, *rows) {})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// abandoned says that nobody waits for the job.
func (j *job) abandoned() bool { return j.fate.Load() == jobLeft }

// abandon leaves a job that has been sent to who has it in hand.
func (p *pass) abandon(j *job) {
	if j.fate.CompareAndSwap(jobUnderWay, jobLeft) {
		return
	}
	<-j.done // at once
	p.received(j)
	p.giveBack(j)
}

// received notes that a job which is done has been taken.
func (p *pass) received(j *job) {
	p.finished.Add(-1)
	p.counters.ready.Add(-1)
	j.delivered()
}

// serve is the scheduler of a pass that does calls.
func (p *pass) serve() {
	s := newScheduler(p)
	for {
		select {
		case j := <-p.requests:
			s.do(j)
		case <-p.ctx.Done():
			return
		}
	}
}

// do brings the job of a call on its way.
func (s *scheduler) do(j *job) {
	if j.abandoned() {
		j.end()
		return
	}
	err := s.fill(j)
	switch {
	case err == nil || s.ctx.Err() != nil: // the caller knows when the pass is over
	case j.slab == nil: // nothing has begun
		j.fatal = err
		j.end()
	default:
		s.fail(j, err)
	}
}

// fail ends the slots of a job of which not all reads could be sent.
func (s *scheduler) fail(j *job, err error) {
	hand := func(i int) {
		j.fail(i, err)
		// That nobody takes it any more means that the pass is over.
		_ = s.hand(task{j, i})
	}
	for i := range j.reads[s.sent:] {
		for _, q := range j.reads[s.sent+i].pieces {
			j.fail(int(q.slot), err)
			if j.missing[q.slot].Add(-1) == 0 {
				hand(int(q.slot))
			}
		}
	}
	for i := range j.slots {
		if j.empty[i] {
			hand(i)
		}
	}
	j.finish()
}
