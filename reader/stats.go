package reader

import (
	"context"
	"runtime/trace"
	"sync"
	"sync/atomic"
	"time"

	"shardify/internal/histogram"
	"shardify/store/cache"
)

// Stats say how a reader has fared, over all its passes up to now. It is plain data;
// times are nanoseconds in JSON.
type Stats struct {
	// Batches and Samples were delivered, those of Reader.Read among them; Skipped samples
	// were not, being damaged, and for Substituted ones others were.
	Batches     int64 `json:"batches"`
	Samples     int64 `json:"samples"`
	Skipped     int64 `json:"skipped"`
	Substituted int64 `json:"substituted"`
	// ReadBytes came from the store, in offsets of the container (before
	// compression, where there is one); FieldBytes of them were fields wanted.
	// Rereads counts fields and indexes that were read a second time, as their
	// checksum was wrong. Retries counts operations of the store that were tried
	// again, as they failed or, so many as Stalls, gave no answer in time.
	ReadBytes  int64 `json:"read_bytes"`
	FieldBytes int64 `json:"field_bytes"`
	// Frames are those of .zst shards that were decompressed.
	Frames  int64 `json:"frames,omitempty"`
	Rereads int64 `json:"rereads"`
	Retries int64 `json:"retries"`
	Stalls  int64 `json:"stalls"`
	// Throttled counts requests that the store turned away as one too many, and Reads is
	// how many are sent at once at most, as package store/limit finds it; 0 where nothing
	// limits it. Of several stores it is the sum.
	Throttled int64 `json:"throttled,omitempty"`
	Reads     int   `json:"reads,omitempty"`
	// Seek says how the seek points of images have fared; nil where there are none, or
	// they are not used.
	Seek *SeekStats `json:"seek,omitempty"`
	// Cache says how Config.Cache has fared; nil without.
	Cache *cache.Stats `json:"cache,omitempty"`

	// Elapsed is the time during which a pass, or a call of Reader.Read, was running. What
	// follows is of passes only.
	Elapsed time.Duration `json:"elapsed_ns"`
	// FirstBatch is from the start of the first pass to its first batch.
	FirstBatch time.Duration `json:"first_batch_ns"`
	// Waiting is how long the consumer waited for batches, WaitP50 and WaitP99
	// how long for one (within 7%; the first of each pass does not count).
	Waiting time.Duration `json:"waiting_ns"`
	WaitP50 time.Duration `json:"wait_p50_ns"`
	WaitP99 time.Duration `json:"wait_p99_ns"`
	// Waits is Waiting by what the batch lacked; their sum is Waiting.
	Waits Waits `json:"waits"`
	// Holding is how long the consumer was busy between two batches; Ready is how
	// many batches lie finished before it now.
	Holding time.Duration `json:"holding_ns"`
	Ready   int64         `json:"ready"`

	Stages Stages      `json:"stages"`
	Memory MemoryStats `json:"memory"`

	// Devices says how the batches came to GPUs, where they go there through package gpu:
	// its Device.Stats, which who has both appends. The consumer of the reader's passes is
	// gpu.Prefetch then, and that of its batches is in Devices.
	Devices []DeviceStats `json:"devices,omitempty"`
}

// Waits divides the consumer's waiting by cause. While it waits for a batch, each
// moment counts for the first of these that is not yet over for all of the batch's
// samples: their indexes, memory, their bytes (Store), the workers, Collate, CPU. What
// counts for the workers is divided between Decode and Transform as the time is that
// they spent on the batch. So what a batch lacks counts, also where it lacks it because
// others came first: where reading is ahead, its bytes are there and it waits for
// workers; where it is not, reading holds it up.
type Waits struct {
	// Index: the indexes of its shards were being read.
	Index time.Duration `json:"index_ns"`
	// Memory: no memory was free for it: the budget is small, or the consumer
	// holds batches.
	Memory    time.Duration `json:"memory_ns"`
	Store     time.Duration `json:"store_ns"`
	Decode    time.Duration `json:"decode_ns"`
	Transform time.Duration `json:"transform_ns"`
	Collate   time.Duration `json:"collate_ns"`
	// CPU: the batch was there, and no processor was free to go on with the
	// consumer's goroutine.
	CPU time.Duration `json:"cpu_ns"`
}

func (w *Waits) add(v Waits) {
	w.Index += v.Index
	w.Memory += v.Memory
	w.Store += v.Store
	w.Decode += v.Decode
	w.Transform += v.Transform
	w.Collate += v.Collate
	w.CPU += v.CPU
}

// Stages are the stages of a pass, as in the package's documentation.
type Stages struct {
	// Index reads and packs indexes. Its items are shards.
	Index StageStats `json:"index"`
	// Store reads bytes, with decompression; retries count as one. Its items are
	// reads, its bytes those read.
	Store StageStats `json:"store"`
	// Decode verifies checksums and decodes. Cropping and scaling are part of it, as they
	// are done while an image is decoded; and so are the flip, the normalisation and
	// the place in the batch, where nothing else is to be done. Its items are samples,
	// its bytes those of their fields, its errors damaged samples. A worker that has
	// several images in hand counts as one that is active.
	Decode StageStats `json:"decode"`
	// Transform is all other transforms, and is done by the workers of Decode, which
	// have the idle time of both. Its items are images that have any, its bytes those
	// of their tensors.
	Transform StageStats `json:"transform"`
	// Collate makes a batch of its samples, on the worker that has ended its last
	// one. Its items are batches.
	Collate StageStats `json:"collate"`
}

// StageStats are the counters of a stage.
type StageStats struct {
	// Goroutines is how many work at most at once.
	Goroutines int `json:"goroutines"`
	// Queue is how many items wait for it now, Active how many are being worked at.
	Queue  int64 `json:"queue"`
	Active int64 `json:"active"`
	// Items, Bytes and Errors are what has gone through it.
	Items  int64 `json:"items"`
	Bytes  int64 `json:"bytes"`
	Errors int64 `json:"errors"`
	// Busy and Idle are sums over its goroutines: the time at work, and without
	// any.
	Busy time.Duration `json:"busy_ns"`
	Idle time.Duration `json:"idle_ns"`
}

// MemoryStats is the memory that counts against Config.Memory.
type MemoryStats struct {
	// Limit is Config.Memory, for each pass.
	Limit int64 `json:"limit"`
	// Used is what is taken now by all passes and the index, Peak the most that
	// ever was.
	Used int64 `json:"used"`
	Peak int64 `json:"peak"`
}

// Bound is what holds a pass up.
type Bound string

const (
	BoundIndex     Bound = "index"
	BoundMemory    Bound = "memory"
	BoundStore     Bound = "store"
	BoundDecode    Bound = "decode"
	BoundTransform Bound = "transform"
	BoundCollate   Bound = "collate"
	BoundCPU       Bound = "cpu"
	BoundConsumer  Bound = "consumer"
	// BoundUpload and BoundGPU are those of batches that go to GPUs: the copies there, and
	// what the consumer has these do, which is where a pass should be held up.
	BoundUpload Bound = "upload"
	BoundGPU    Bound = "gpu"
)

// Bound names the consumer where it waited for less than a twentieth of the time, or
// the cause of most of its waiting. Where there are Devices, it is their consumer.
func (s Stats) Bound() Bound {
	if len(s.Devices) > 0 {
		if bound := devicesBound(s.Devices); bound != boundReader {
			return bound
		}
	} else if s.Waiting < s.Elapsed/20 {
		return BoundConsumer
	}
	w := &s.Waits
	most, bound := time.Duration(-1), BoundConsumer
	for _, c := range []struct {
		wait  time.Duration
		bound Bound
	}{
		{w.Decode, BoundDecode}, {w.Store, BoundStore}, {w.Transform, BoundTransform},
		{w.Index, BoundIndex}, {w.Memory, BoundMemory}, {w.Collate, BoundCollate}, {w.CPU, BoundCPU},
	} {
		if c.wait > most {
			most, bound = c.wait, c.bound
		}
	}
	return bound
}

// Share is the part of its goroutines' time, 0 to 1, that a stage was busy while a
// pass ran.
func (s Stats) Share(stage StageStats) float64 {
	if s.Elapsed <= 0 || stage.Goroutines == 0 {
		return 0
	}
	return min(1, float64(stage.Busy)/float64(s.Elapsed)/float64(stage.Goroutines))
}

// duration is a sum of durations.
type duration struct{ atomic.Int64 }

func (d *duration) since(start time.Time) { d.Add(int64(time.Since(start))) }
func (d *duration) load() time.Duration   { return time.Duration(d.Load()) }

// stageCounters are what StageStats are made of.
type stageCounters struct {
	queued, active, items, bytes, errors atomic.Int64
	busy, idle                           duration
}

func (c *stageCounters) stats(goroutines int) StageStats {
	return StageStats{
		Goroutines: goroutines, Queue: c.queued.Load(), Active: c.active.Load(),
		Items: c.items.Load(), Bytes: c.bytes.Load(), Errors: c.errors.Load(),
		Busy: c.busy.load(), Idle: c.idle.load(),
	}
}

// counters are what Stats are made of.
type counters struct {
	batches, samples, skipped, substituted, rereads, ready atomic.Int64
	index, store, decode, transform, collate               stageCounters
	seek                                                   seekCounters
	waiting, heldBusy                                      duration
	memory                                                 *meter

	mu      sync.Mutex
	running int
	since   time.Time // since when something runs
	elapsed time.Duration
	first   time.Duration
	waited  histogram.Durations
	waits   Waits
}

// meter counts memory.
type meter struct{ used, peak atomic.Int64 }

func (m *meter) add(n int64) {
	used := m.used.Add(n)
	for {
		peak := m.peak.Load()
		if used <= peak || m.peak.CompareAndSwap(peak, used) {
			return
		}
	}
}

// started notes the start of a pass.
func (c *counters) started() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running++; c.running == 1 {
		c.since = time.Now()
	}
}

func (c *counters) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running--; c.running == 0 {
		c.elapsed += time.Since(c.since)
	}
}

// delivered notes a batch for which the consumer has waited since start.
func (c *counters) delivered(start time.Time, j *job) (now time.Time) {
	now = time.Now()
	wait := now.Sub(start)
	c.batches.Add(1)
	c.samples.Add(int64(j.n))
	c.waiting.Add(int64(wait))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits.add(j.marks.divide(start.Sub(j.pass.began), now.Sub(j.pass.began)))
	if c.first == 0 {
		c.first = wait
	}
	if j.turn > j.pass.from {
		c.waited.Add(wait)
	}
	return now
}

func (c *counters) stats() Stats {
	s := Stats{
		Batches: c.batches.Load(), Samples: c.samples.Load(), Skipped: c.skipped.Load(), Substituted: c.substituted.Load(),
		ReadBytes: c.store.bytes.Load(), FieldBytes: c.decode.bytes.Load(), Rereads: c.rereads.Load(),
		Waiting: c.waiting.load(), Holding: c.heldBusy.load(), Ready: c.ready.Load(),
		Memory: MemoryStats{Used: c.memory.used.Load(), Peak: c.memory.peak.Load()},
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Elapsed, s.FirstBatch, s.Waits = c.elapsed, c.first, c.waits
	if c.running > 0 {
		s.Elapsed += time.Since(c.since)
	}
	s.WaitP50, s.WaitP99 = c.waited.Quantile(0.5), c.waited.Quantile(0.99)
	return s
}

// step is what a job goes through, in this order.
type step int

const (
	stepIndex step = iota
	stepMemory
	stepRead
	stepWork
	stepCollate
	steps
)

// marks are the moments at which a job's last slot left each step, as times since the
// pass began.
type marks struct {
	// left counts the slots that have not left stepRead and stepWork.
	left [steps]atomic.Int32
	at   [steps]atomic.Int64
	// decode and transform are what workers have spent on the job.
	decode, transform duration
}

// reset prepares the marks of a job with n slots.
func (m *marks) reset(n int) {
	for s := range steps {
		m.left[s].Store(int32(n))
		m.at[s].Store(0)
	}
	m.decode.Store(0)
	m.transform.Store(0)
}

// divide says how much of the time from one moment to another a job was in each step.
// A step that it never was in has no mark and gets nothing.
func (m *marks) divide(from, to time.Duration) (w Waits) {
	var parts [steps]time.Duration
	for s := range steps {
		end := min(max(time.Duration(m.at[s].Load()), from), to)
		parts[s] = end - from
		from = end
	}
	w.Index, w.Memory, w.Store, w.Collate = parts[stepIndex], parts[stepMemory], parts[stepRead], parts[stepCollate]
	w.CPU = to - from
	decode, transform := m.decode.load(), m.transform.load()
	w.Transform = time.Duration(float64(parts[stepWork]) * float64(transform) / float64(max(1, decode+transform)))
	w.Decode = parts[stepWork] - w.Transform
	return w
}

// passed notes that the job as a whole has left a step.
func (j *job) passed(s step) { j.marks.at[s].Store(int64(time.Since(j.pass.began))) }

// leave notes that a slot has left a step.
func (j *job) leave(s step) {
	if j.marks.left[s].Add(-1) == 0 {
		j.passed(s)
	}
}

// begin gives a job its context, and makes it a task of runtime/trace, if that is on.
func (j *job) begin(ctx context.Context) {
	j.ctx = ctx
	if trace.IsEnabled() {
		j.ctx, j.task = trace.NewTask(ctx, "batch")
		trace.Logf(j.ctx, "batch", "%d of epoch %d", j.number, j.plan.epoch)
	}
}

// delivered ends the job's task.
func (j *job) delivered() {
	if j.task != nil {
		j.task.End()
	}
	j.ctx, j.task = nil, nil
}

// lap measures what one goroutine does, one thing after the other.
type lap struct {
	at     time.Time
	of     *stageCounters // nil between two items
	region *trace.Region
}

// enter charges the time since the last call, which it returns, to the stage that was
// entered then, or as idle time, and goes on with another stage, as a region of
// runtime/trace of that name.
func (l *lap) enter(ctx context.Context, of, idle *stageCounters, name string) (spent time.Duration) {
	spent = l.charge(idle)
	l.of = of
	of.active.Add(1)
	l.region = trace.StartRegion(ctx, name)
	return spent
}

// leave is enter for what is no stage.
func (l *lap) leave() (spent time.Duration) { return l.charge(nil) }

func (l *lap) charge(idle *stageCounters) (spent time.Duration) {
	now := time.Now()
	if !l.at.IsZero() {
		spent = now.Sub(l.at)
	}
	if l.of != nil {
		l.of.busy.Add(int64(spent))
		l.of.active.Add(-1)
		l.region.End()
	} else if idle != nil {
		idle.idle.Add(int64(spent))
	}
	l.at, l.of = now, nil
	return spent
}
