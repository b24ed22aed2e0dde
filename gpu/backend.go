package gpu

import "shardify/gpu/internal/cuda"

// Backend is how nvJPEG decodes.
type Backend string

const (
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
