package gpu

import (
	"strings"
	"testing"
	"time"

	"shardify/reader"
)

// Copies that run before the consumer's stream comes to them are hidden; those that it
// stands for are not, and each is counted.
func TestPrefetchHides(t *testing.T) {
	p := play{depth: 3, batches: 20}
	// first has what a run does first, whenever it can.
	first := func(does func(name string) bool) func(*sim, []string) int {
		return func(_ *sim, names []string) int {
			for i, name := range names {
				if does(name) {
					return i
				}
			}
			return 0
		}
	}
	copies := func(name string) bool { return strings.Contains(name, ": copy ") }
	others := func(name string) bool { return !copies(name) }
	s := newSim()
	came, end := p.run(t, s, first(copies))
	p.judge(s, came, end)
	st := s.meter.stats()
	if st.Late != 0 || st.Exposed != 0 || st.Copying != 20*time.Millisecond || st.Bytes != 20*300 || st.Hidden() != 1 {
		t.Errorf("hidden: %+v", st)
	}
	s = newSim()
	came, end = p.run(t, s, first(others))
	p.judge(s, came, end)
	// Each copy but the first begins while the batch before is worked at, which takes as long
	// as the copy, and the stream then stands for the rest.
	if st = s.meter.stats(); st.Late != 20 || st.Exposed != 20*time.Millisecond || st.Copying != 39*time.Millisecond {
		t.Errorf("exposed: %+v", st)
	}
	for _, s := range s.wrong {
		t.Error(s)
	}
}

// The loop's waiting is divided by what the batch lacked, without rest.
func TestMeterDivides(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	for _, c := range []struct {
		asked, memory, read, put, now int
		want                          reader.DeviceWaits
	}{
		{0, 1, 3, 7, 15, reader.DeviceWaits{GPU: 1, Reader: 2, Upload: 4, CPU: 8}},
		{5, 1, 3, 7, 15, reader.DeviceWaits{Upload: 2, CPU: 8}},
		{20, 1, 3, 7, 20, reader.DeviceWaits{}},
		{20, 1, 3, 7, 21, reader.DeviceWaits{CPU: 1}},
		{2, 1, 10, 10, 10, reader.DeviceWaits{Reader: 8}},
	} {
		var m meter
		for range 2 {
			m.delivered(at(c.asked), at(c.now), marks{at(c.memory), at(c.read), at(c.put)}, true)
		}
		s := m.stats()
		twice := func(ms time.Duration) time.Duration { return time.Duration(2*ms.Nanoseconds()) * time.Millisecond }
		want := reader.DeviceWaits{GPU: twice(c.want.GPU), Reader: twice(c.want.Reader), Upload: twice(c.want.Upload), CPU: twice(c.want.CPU)}
		if s.Waits != want || s.Waiting != want.GPU+want.Reader+want.Upload+want.CPU || s.Batches != 2 || s.FirstBatch != s.Waiting/2 || s.WaitP99 != 0 {
			t.Errorf("%+v: %+v", c, s)
		}
	}
}

// Readings are means of what the GPU tells, and taken as long as a pass runs.
func TestReadingSums(t *testing.T) {
	var s readingSums
	if s.readings() != nil {
		t.Error("readings of nothing")
	}
	s.add(Reading{Busy: 90, MemoryBusy: -1, Used: 7, Total: 9, Power: 1000, PowerLimit: 5000, Temperature: 50})
	s.add(Reading{Busy: 95, MemoryBusy: -1, Used: 3, Total: 9, Power: -1, PowerLimit: 4000, Temperature: -1})
	want := reader.DeviceReadings{Count: 2, Busy: 92.5, MemoryBusy: -1, MemoryUsed: 7, MemoryTotal: 9, Power: 1000, PowerLimit: 4000, Temperature: 50}
	if got := s.readings(); *got != want {
		t.Errorf("%+v", *got)
	}
	samples := 0
	m := meter{sample: func(stop <-chan struct{}) { <-stop; samples++ }}
	for range 2 {
		m.started()
		m.started()
		m.ended()
		if samples%2 != 0 {
			t.Error("sampling ended with one pass of two")
		}
		m.ended()
		samples++
	}
	if samples != 4 {
		t.Errorf("%d, want twice one that ran and ended", samples)
	}
	if e := m.stats().Elapsed; e <= 0 {
		t.Error(e)
	}
}
