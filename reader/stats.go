package reader

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Stats say how a reader has fared, over all its passes up to now.
type Stats struct {
	// Batches and Samples were delivered; Skipped samples were not, being damaged,
	// and for Substituted ones others were.
	Batches     int64 `json:"batches"`
	Samples     int64 `json:"samples"`
	Skipped     int64 `json:"skipped"`
	Substituted int64 `json:"substituted"`
	// ReadBytes came from the store (before decompression in it, so offsets of the
	// container); FieldBytes of them were fields wanted. Rereads counts fields and
	// indexes that were read a second time, as their checksum was wrong. Retries
	// counts operations of the store that were tried again, as they failed or, so
	// many as Stalls, gave no answer in time.
	ReadBytes  int64 `json:"read_bytes"`
	FieldBytes int64 `json:"field_bytes"`
	Rereads    int64 `json:"rereads"`
	Retries    int64 `json:"retries"`
	Stalls     int64 `json:"stalls"`

	// Elapsed is the time during which a pass was running.
	Elapsed time.Duration `json:"elapsed_ns"`
	// FirstBatch is from the start of the first pass to its first batch.
	FirstBatch time.Duration `json:"first_batch_ns"`
	// Waiting is how long the consumer waited for batches, WaitP50 and WaitP99
	// how long for one (within 7%; the first of each pass does not count).
	// Holding is how long it was busy with them.
	Waiting time.Duration `json:"waiting_ns"`
	WaitP50 time.Duration `json:"wait_p50_ns"`
	WaitP99 time.Duration `json:"wait_p99_ns"`
	Holding time.Duration `json:"holding_ns"`

	// IndexBusy is the time spent on reading indexes, NoMemory that in which
	// nothing could be read as all memory was lent, by the one scheduler.
	IndexBusy time.Duration `json:"index_busy_ns"`
	NoMemory  time.Duration `json:"no_memory_ns"`
	// FetchBusy and DecodeBusy are sums over Fetchers and Workers.
	FetchBusy  time.Duration `json:"fetch_busy_ns"`
	DecodeBusy time.Duration `json:"decode_busy_ns"`
	Fetchers   int           `json:"fetchers"`
	Workers    int           `json:"workers"`
}

// Bound is a stage that holds the others up.
type Bound string

const (
	BoundDecode   Bound = "decode"
	BoundStore    Bound = "store"
	BoundIndex    Bound = "index"
	BoundConsumer Bound = "consumer"
)

// Busy is the share of its time, 0 to 1, that a stage was at work.
func (s Stats) Busy(stage Bound) float64 {
	share := func(d time.Duration, of int) float64 {
		if s.Elapsed <= 0 || of == 0 {
			return 0
		}
		return min(1, float64(d)/float64(s.Elapsed)/float64(of))
	}
	switch stage {
	case BoundDecode:
		return share(s.DecodeBusy, s.Workers)
	case BoundStore:
		return share(s.FetchBusy, s.Fetchers)
	case BoundIndex:
		return share(s.IndexBusy, 1)
	case BoundConsumer:
		return share(s.Holding, 1)
	}
	return 0
}

// Bound names the slowest stage: the consumer where it hardly had to wait, or the
// stage before it that was busy most.
func (s Stats) Bound() Bound {
	if s.Waiting < s.Elapsed/20 {
		return BoundConsumer
	}
	most := BoundDecode
	for _, stage := range []Bound{BoundStore, BoundIndex} {
		if s.Busy(stage) > s.Busy(most) {
			most = stage
		}
	}
	return most
}

// duration is a sum of durations.
type duration struct{ atomic.Int64 }

func (d *duration) since(start time.Time) { d.Add(int64(time.Since(start))) }
func (d *duration) load() time.Duration   { return time.Duration(d.Load()) }

// counters are what Stats are made of.
type counters struct {
	batches, samples, skipped, substituted, readBytes, fieldBytes, rereads atomic.Int64
	indexBusy, roomWait, fetchBusy, decodeBusy, waiting, heldBusy          duration

	mu      sync.Mutex
	running int
	since   time.Time // since when something runs
	elapsed time.Duration
	first   time.Duration
	waits   histogram
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
func (c *counters) delivered(start time.Time, b *Batch) (now time.Time) {
	now = time.Now()
	wait := now.Sub(start)
	j := b.job
	c.batches.Add(1)
	c.samples.Add(int64(j.n))
	c.waiting.Add(int64(wait))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == 0 {
		c.first = wait
	}
	if j.number > j.pass.from {
		c.waits.add(wait)
	}
	return now
}

func (c *counters) stats() Stats {
	s := Stats{
		Batches: c.batches.Load(), Samples: c.samples.Load(), Skipped: c.skipped.Load(), Substituted: c.substituted.Load(),
		ReadBytes: c.readBytes.Load(), FieldBytes: c.fieldBytes.Load(), Rereads: c.rereads.Load(),
		Waiting: c.waiting.load(), Holding: c.heldBusy.load(),
		IndexBusy: c.indexBusy.load(), NoMemory: c.roomWait.load(),
		FetchBusy: c.fetchBusy.load(), DecodeBusy: c.decodeBusy.load(), Fetchers: fetchers,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Elapsed, s.FirstBatch = c.elapsed, c.first
	if c.running > 0 {
		s.Elapsed += time.Since(c.since)
	}
	s.WaitP50, s.WaitP99 = c.waits.quantile(0.5), c.waits.quantile(0.99)
	return s
}

// histogram counts durations in eight steps between powers of two nanoseconds.
type histogram struct {
	counts [64 * 8]int64
	n      int64
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucket(uint64(max(d, 0)))]++
	h.n++
}

func bucket(v uint64) int {
	if v < 16 {
		return int(v)
	}
	e := bits.Len64(v) - 4 // v>>e is 8 … 15
	return e*8 + int(v>>e)
}

// quantile returns the middle of the step in which the quantile lies.
func (h *histogram) quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := int64(q * float64(h.n-1))
	for i, k := range h.counts {
		if rank -= k; rank < 0 {
			if i < 16 {
				return time.Duration(i)
			}
			e := i/8 - 1
			low := int64(i-e*8) << e
			return time.Duration(low + int64(1)<<e/2)
		}
	}
	return 0
}
