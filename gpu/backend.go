package gpu

import (
	"errors"
	"fmt"

	"shardify/gpu/internal/cuda"
)

// Backend is how nvJPEG decodes.
type Backend string

const (
	// BackendAuto, the default, is the first of the following that the GPU has.
	BackendAuto Backend = ""
	// BackendHardware has engines for JPEG beside the GPU's multiprocessors, on A100, H100,
	// H200 and their like. They take baseline files, and regions of them.
	BackendHardware Backend = "hardware"
	// BackendGPUHybrid decodes on the multiprocessors, of large batches the Huffman codes
	// too; of small ones these are the CPU's.
	BackendGPUHybrid Backend = "gpu_hybrid"
	// BackendHybrid leaves Huffman codes to the CPU.
	BackendHybrid Backend = "hybrid"
)

var backends = []struct {
	name   Backend
	number cuda.Backend
}{
	{BackendHardware, cuda.BackendHardware},
	{BackendGPUHybrid, cuda.BackendGPUHybrid},
	{BackendHybrid, cuda.BackendHybrid},
}

// Validate says whether there is such a backend.
func (b Backend) Validate() error {
	for _, k := range backends {
		if b == BackendAuto || b == k.name {
			return nil
		}
	}
	return fmt.Errorf("backend: %q; want hardware, gpu_hybrid, hybrid, or none for the first of these that the GPU has", b)
}

// newCodec starts nvJPEG by a backend; scratch bounds what it takes for itself.
func (d *Device) newCodec(n *cuda.NVJPEG, b Backend, scratch int64) (*cuda.Codec, error) {
	var faults []error
	for _, k := range backends {
		if b != BackendAuto && b != k.name {
			continue
		}
		codec, err := d.context.NewCodec(n, k.number, scratch, scratch)
		if err == nil {
			return codec, nil
		}
		faults = append(faults, fmt.Errorf("backend %s: %w", k.name, err))
		if lost := d.context.Lost(); lost != nil {
			return nil, lost
		}
	}
	return nil, fmt.Errorf("gpu: nvJPEG does not start: %w; or set share to -1, to decode on the CPU alone", errors.Join(faults...))
}
