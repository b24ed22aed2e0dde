package gpu

import (
	"errors"
	"fmt"

	"shardify/gpu/internal/cuda"
)

// Pointer is a place in a GPU's memory: a CUdeviceptr.
type Pointer = cuda.Pointer

// Stream is a queue of work on a GPU, a CUstream: what is put into it is done in order, and
// beside what is in others. 0 is CUDA's default stream. It may come from another library of
// the process, such as torch.cuda.current_stream().cuda_stream.
type Stream = cuda.Stream

// Device is a GPU that was opened. It is safe for concurrent use. It uses the primary
// context, as the CUDA runtime does: pointers, streams and events are good for PyTorch,
// JAX or CuPy in the same process, and theirs here.
type Device struct {
	context *cuda.Context
	kernels kernels
	meter   meter
	monitor monitor
	nvjpeg  []string // where nvJPEG is looked for; nil: in the usual places
}

// Open opens a GPU by its number, from 0, among those that CUDA_VISIBLE_DEVICES lets be
// seen. The error is ErrUnavailable where there is none. Close it at the end.
func Open(ordinal int) (*Device, error) {
	d, err := cuda.Default()
	if err != nil {
		return nil, err
	}
	return open(d, ordinal)
}

func open(d *cuda.Driver, ordinal int) (*Device, error) {
	v, err := d.Device(ordinal)
	if err != nil {
		return nil, err
	}
	c, err := d.Retain(v)
	if err != nil {
		return nil, err
	}
	device := &Device{context: c, monitor: monitor{open: func() (*cuda.NVML, error) { return cuda.OpenNVML() }}}
	device.meter.sample = device.sample
	return device, nil
}

// Close lets the GPU go. Passes of Prefetch must have ended, and their batches be released.
func (d *Device) Close() error {
	return errors.Join(d.kernels.unload(), d.monitor.close(), d.context.Close())
}

// Name is the GPU's, with its number.
func (d *Device) Name() string {
	v := d.context.Device()
	return fmt.Sprintf("GPU %d (%s)", v.Ordinal, v.Name)
}

// Memory is how much of the GPU's memory is free now, of how much, in bytes.
func (d *Device) Memory() (free, total int64, err error) { return d.context.MemInfo() }

// NewStream makes a stream that runs beside all others, the default stream too. It is the
// caller's until DestroyStream.
func (d *Device) NewStream() (Stream, error) { return d.context.NewStream() }

// DestroyStream frees a stream; what is in it is still done.
func (d *Device) DestroyStream(s Stream) error { return d.context.DestroyStream(s) }

// Synchronize waits until all that is in a stream is done.
func (d *Device) Synchronize(s Stream) error { return d.context.SynchronizeStream(s) }

// Download puts a copy from the GPU into a stream. dst must be left alone until that is
// done.
func (d *Device) Download(dst []byte, src Pointer, s Stream) error {
	return d.context.Download(dst, src, s)
}
