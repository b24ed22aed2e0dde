package reader

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

// What holds passes to GPUs up is named, of several GPUs together, and the reader's own
// cause where it is the reader.
func TestBoundOfDevices(t *testing.T) {
	const s = time.Second
	of := func(gpu, reader, upload, cpu, stalled time.Duration) DeviceStats {
		return DeviceStats{Elapsed: 100 * s, Waits: DeviceWaits{GPU: gpu, Reader: reader, Upload: upload, CPU: cpu}, Stalled: stalled}
	}
	for _, c := range []struct {
		devices []DeviceStats
		want    Bound
	}{
		{[]DeviceStats{of(0, 0, 0, 0, 0)}, BoundConsumer},
		{[]DeviceStats{of(4*s, 4*s, 2*s, 0, 2*s)}, BoundConsumer},
		{[]DeviceStats{of(90*s, 4*s, 0, 0, 0)}, BoundGPU},
		{[]DeviceStats{of(40*s, 30*s, 0, 0, 20*s)}, BoundStore},
		{[]DeviceStats{of(40*s, 20*s, 0, 0, 30*s)}, BoundUpload},
		{[]DeviceStats{of(0, 5*s, 20*s, 0, 30*s)}, BoundUpload},
		{[]DeviceStats{of(0, 0, 0, 6*s, 0)}, BoundCPU},
		// One that starves for four that do not is no bound; two are.
		{[]DeviceStats{of(90*s, 0, 0, 0, 0), of(90*s, 0, 0, 0, 0), of(90*s, 0, 0, 0, 0), of(90*s, 0, 0, 0, 0), of(70*s, 20*s, 0, 0, 0)}, BoundGPU},
		{[]DeviceStats{of(90*s, 0, 0, 0, 0), of(70*s, 20*s, 0, 0, 0)}, BoundStore},
	} {
		// The reader's consumer, gpu.Prefetch, waits for it or not: that is not what counts.
		for _, waiting := range []time.Duration{0, 80 * s} {
			st := Stats{Elapsed: 100 * s, Waiting: waiting, Waits: Waits{Store: waiting/2 + 1}, Devices: c.devices}
			if got := st.Bound(); got != c.want {
				t.Errorf("%+v: %q, want %q", c.devices, got, c.want)
			}
		}
	}
}

func TestDeviceStatsShares(t *testing.T) {
	d := DeviceStats{Device: "cuda:0", Bytes: 3e9, Copying: 2 * time.Second, Exposed: time.Second / 2, Readings: &DeviceReadings{Count: 1, Busy: 12.5, Power: -1}}
	if d.Rate() != 1.5e9 || d.Hidden() != 0.75 {
		t.Error(d.Rate(), d.Hidden())
	}
	var none DeviceStats
	if none.Rate() != 0 || none.Hidden() != 1 {
		t.Error(none.Rate(), none.Hidden())
	}
	text, err := json.Marshal(Stats{Devices: []DeviceStats{d}})
	if err != nil {
		t.Fatal(err)
	}
	var back Stats
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back.Devices, []DeviceStats{d}) {
		t.Errorf("%s: %+v, %v", text, back.Devices, err)
	}
}
