package gpu

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"shardify/gpu/internal/cuda"
	"shardify/internal/histogram"
	"shardify/reader"
)

// Stats say how batches came to the GPU, over all passes of Prefetch to it up to now. What
// holds a pass up, its reader's Stats say together with these:
//
//	st := r.Stats()
//	st.Devices = append(st.Devices, device.Stats())
//	fmt.Println(st.Bound())
func (d *Device) Stats() reader.DeviceStats {
	s := d.meter.stats()
	v := d.context.Device()
	s.Device, s.Name = fmt.Sprintf("cuda:%d", v.Ordinal), v.Name
	return s
}

// meter counts what DeviceStats are made of. It is safe for concurrent use.
type meter struct {
	// sample takes readings until it is told to stop, and is done then; nil for none.
	sample func(stop <-chan struct{})

	mu      sync.Mutex
	running int
	since   time.Time // since when something runs
	stop    func()    // ends sampling
	waited  histogram.Durations
	total   reader.DeviceStats
	sums    readingSums
}

// started notes the start of a pass.
func (m *meter) started() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running++; m.running > 1 {
		return
	}
	m.since, m.stop = time.Now(), func() {}
	if m.sample != nil {
		end, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			m.sample(end)
		}()
		m.stop = func() { close(end); <-done }
	}
}

// ended notes the end of a pass. What took readings for the last one has ended then.
func (m *meter) ended() {
	m.mu.Lock()
	stop := func() {}
	if m.running--; m.running == 0 {
		m.total.Elapsed += time.Since(m.since)
		stop = m.stop
	}
	m.mu.Unlock()
	stop()
}

// marks are the moments at which what a batch needs was there, in this order: memory on the
// GPU, the reader's batch, its copies in their stream.
type marks struct{ memory, read, put time.Time }

// delivered notes that the loop has waited from asked to now for a batch.
func (m *meter) delivered(asked, now time.Time, at marks, first bool) {
	var w reader.DeviceWaits
	from := asked
	for _, part := range []struct {
		of *time.Duration
		to time.Time
	}{{&w.GPU, at.memory}, {&w.Reader, at.read}, {&w.Upload, at.put}, {&w.CPU, now}} {
		if part.to.After(from) {
			*part.of = part.to.Sub(from)
			from = part.to
		}
	}
	m.waitedFor(w, now.Sub(asked), first)
}

// waitedFor notes a batch, and what was waited for until it was there; first: of its pass.
func (m *meter) waitedFor(w reader.DeviceWaits, all time.Duration, first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &m.total
	t.Batches++
	t.Waiting += all
	t.Waits.GPU += w.GPU
	t.Waits.Reader += w.Reader
	t.Waits.Upload += w.Upload
	t.Waits.CPU += w.CPU
	if !first {
		m.waited.Add(all)
	} else if t.FirstBatch == 0 {
		t.FirstBatch = all
	}
}

func (m *meter) held(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total.Holding += d
}

// copied notes a batch's copy: how long it ran, and how long before its end the consumer's
// stream had begun to wait for it, where it had.
func (m *meter) copied(bytes int64, copying, stalled time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &m.total
	t.Bytes += bytes
	t.Copying += copying
	if stalled > 0 {
		t.Late++
		t.Stalled += stalled
		t.Exposed += min(stalled, copying)
	}
}

func (m *meter) stats() reader.DeviceStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.total
	if m.running > 0 {
		s.Elapsed += time.Since(m.since)
	}
	s.WaitP50, s.WaitP99 = m.waited.Quantile(0.5), m.waited.Quantile(0.99)
	s.Readings = m.sums.readings()
	return s
}

// readingSums are what DeviceReadings are made of.
type readingSums struct {
	count                   int64
	busy, memoryBusy, power mean
	used, total             int64
	limit, hottest          int
}

// mean is one of what was told.
type mean struct {
	sum float64
	n   int64
}

func (m *mean) add(v int) {
	if v >= 0 {
		m.sum += float64(v)
		m.n++
	}
}

func (m mean) value() float64 {
	if m.n == 0 {
		return -1
	}
	return m.sum / float64(m.n)
}

func (s *readingSums) add(r Reading) {
	if s.count == 0 {
		s.used, s.hottest = -1, -1
	}
	s.count++
	s.busy.add(r.Busy)
	s.memoryBusy.add(r.MemoryBusy)
	s.power.add(r.Power)
	s.used, s.hottest = max(s.used, r.Used), max(s.hottest, r.Temperature)
	s.total, s.limit = r.Total, r.PowerLimit
}

func (s *readingSums) readings() *reader.DeviceReadings {
	if s.count == 0 {
		return nil
	}
	return &reader.DeviceReadings{
		Count: s.count, Busy: s.busy.value(), MemoryBusy: s.memoryBusy.value(), MemoryUsed: s.used, MemoryTotal: s.total,
		Power: s.power.value(), PowerLimit: s.limit, Temperature: s.hottest,
	}
}

// sampling is how often readings are taken. NVML's percentages are of the last sixth of a
// second to a second.
const sampling = 500 * time.Millisecond

// monitor is NVML, opened when it is needed first.
type monitor struct {
	open func() (*cuda.NVML, error)

	mu     sync.Mutex
	nvml   *cuda.NVML
	opened bool
}

// errNoNVML: what was wrong with it was said when it was opened.
var errNoNVML = errors.New("NVML is not available")

// read reads a GPU by its bus address. NVML is looked for once.
func (n *monitor) read(pci string) (Reading, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.opened {
		n.opened = true
		var err error
		if n.nvml, err = n.open(); err != nil {
			return Reading{}, err
		}
	}
	if n.nvml == nil {
		return Reading{}, errNoNVML
	}
	return n.nvml.Read(pci)
}

func (n *monitor) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	nvml := n.nvml
	n.nvml, n.opened = nil, true
	if nvml == nil {
		return nil
	}
	return nvml.Close()
}

// sample takes readings of the device until stop is closed; one, where that is before the
// first is due. It ends with the first that fails.
func (d *Device) sample(stop <-chan struct{}) {
	m := &d.meter
	tick := time.NewTicker(sampling)
	defer tick.Stop()
	for last, taken := false, false; !last; taken = true {
		select {
		case <-stop:
			if taken {
				return
			}
			last = true
		case <-tick.C:
		}
		r, err := d.monitor.read(d.context.Device().PCI)
		m.mu.Lock()
		if err == nil {
			m.sums.add(r)
		} else if m.total.Unread == "" {
			m.total.Unread = err.Error()
		}
		m.mu.Unlock()
		if err != nil {
			return
		}
	}
}
