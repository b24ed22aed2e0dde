package reader

import "time"

// DeviceStats say how batches came to a GPU, over all passes to it up to now, as package
// gpu measures it (gpu.Device.Stats; gpu.Uploader.Stats, of batches for another process). It
// is plain data; times are nanoseconds in JSON.
//
// The host runs ahead of a GPU: it puts work into streams, and may wait for a batch while
// the GPU has enough to do. So there are two clocks. By the host's, the consumer's loop
// waits for batches; only what it waits for the reader or for uploads is time that the GPU
// may lack. By the GPU's, the consumer's stream stands where it waits for a copy.
type DeviceStats struct {
	// Device is the GPU as PyTorch numbers it, cuda:0, and Name what it is.
	Device string `json:"device"`
	Name   string `json:"name"`
	// Batches were handed out, Bytes copied to the GPU.
	Batches int64 `json:"batches"`
	Bytes   int64 `json:"bytes"`

	// Elapsed is the time during which a pass to the GPU was running.
	Elapsed time.Duration `json:"elapsed_ns"`
	// FirstBatch is from the start of the first pass to when its first batch was handed
	// out.
	FirstBatch time.Duration `json:"first_batch_ns"`
	// Waiting is how long the consumer's loop waited for batches, WaitP50 and WaitP99 how
	// long for one (within 7%; the first of each pass does not count); Holding is how long
	// it was busy between two batches.
	Waiting time.Duration `json:"waiting_ns"`
	WaitP50 time.Duration `json:"wait_p50_ns"`
	WaitP99 time.Duration `json:"wait_p99_ns"`
	Holding time.Duration `json:"holding_ns"`
	// Waits is Waiting by what the batch lacked; their sum is Waiting.
	Waits DeviceWaits `json:"waits"`

	// Copying is how long copies ran, by the GPU's clock.
	Copying time.Duration `json:"copying_ns"`
	// Stalled is how long the consumer's streams stood at gpu.Batch.Wait, by the GPU's
	// clock, and Exposed how long of that the copy of that batch ran: the copy time that
	// is not hidden behind work. Late counts the batches that were stood for. Batches that
	// were neither waited for nor released are in none of these.
	Stalled time.Duration `json:"stalled_ns"`
	Exposed time.Duration `json:"exposed_ns"`
	Late    int64         `json:"late"`

	// Readings is what NVML told of the GPU while passes ran; nil where it tells nothing,
	// and Unread says why.
	Readings *DeviceReadings `json:"readings,omitempty"`
	Unread   string          `json:"unread,omitempty"`
}

// DeviceWaits divides the loop's waiting. While it waits for a batch, each moment counts
// for the first of these that is not over.
type DeviceWaits struct {
	// GPU: all memory of the ring was in batches that are on their way, worked at, or held:
	// the GPU is behind, and lacks nothing.
	GPU time.Duration `json:"gpu_ns"`
	// Reader: the reader had no batch. Its own Waits say why.
	Reader time.Duration `json:"reader_ns"`
	// Upload: copies were put into their stream, which takes as long as they run where a
	// slab is not pinned, and memory on the GPU was taken, the first time.
	Upload time.Duration `json:"upload_ns"`
	// CPU: the batch was there, and no processor was free to go on with the loop.
	CPU time.Duration `json:"cpu_ns"`
}

// DeviceReadings are readings of a GPU, of all processes that use it, taken twice a second.
// What the GPU does not tell is -1.
type DeviceReadings struct {
	// Count is how many there were.
	Count int64 `json:"count"`
	// Busy is the mean percentage of the time during which a kernel ran, MemoryBusy during
	// which its memory was read or written.
	Busy       float64 `json:"busy_percent"`
	MemoryBusy float64 `json:"memory_busy_percent"`
	// MemoryUsed is the most that was seen, of MemoryTotal, in bytes.
	MemoryUsed  int64 `json:"memory_used"`
	MemoryTotal int64 `json:"memory_total"`
	// Power is the mean, in milliwatts, PowerLimit what it may be now; Temperature is the
	// highest, in °C.
	Power       float64 `json:"power_mw"`
	PowerLimit  int     `json:"power_limit_mw"`
	Temperature int     `json:"temperature_celsius"`
}

// Rate is how fast copies ran, in bytes a second; 0 where there were none.
func (s DeviceStats) Rate() float64 {
	if s.Copying <= 0 {
		return 0
	}
	return float64(s.Bytes) / s.Copying.Seconds()
}

// Hidden is the part of the copy time, 0 to 1, that was hidden behind work: during which
// the consumer's stream did not stand for the copy. Without copies it is 1.
func (s DeviceStats) Hidden() float64 {
	if s.Copying <= 0 {
		return 1
	}
	return 1 - min(1, float64(s.Exposed)/float64(s.Copying))
}

// boundReader: one of the reader's.
const boundReader Bound = ""

// devicesBound names what holds the passes to devices up: the greatest of what their
// consumers lacked, where that is a twentieth of the time; else the consumers, or their
// GPUs where these kept them waiting. A reader that is late exposes copies, too, as they
// are waited for at once; so uploads are the bound only where they take longer than it.
func devicesBound(devices []DeviceStats) Bound {
	var elapsed, upload time.Duration
	var waits DeviceWaits
	for _, d := range devices {
		elapsed += d.Elapsed
		upload += d.Stalled + d.Waits.Upload
		waits.Reader += d.Waits.Reader
		waits.CPU += d.Waits.CPU
		waits.GPU += d.Waits.GPU
	}
	few := elapsed / 20
	switch most := max(waits.Reader, upload, waits.CPU); {
	case most < few && waits.GPU < few:
		return BoundConsumer
	case most < few:
		return BoundGPU
	case most == waits.Reader:
		return boundReader
	case most == upload:
		return BoundUpload
	}
	return BoundCPU
}
