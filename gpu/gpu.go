// Package gpu brings batches to NVIDIA's GPUs. It is pure Go: the driver is loaded at run
// time, and where there is none everything else of this module works. [Inspect] says what
// the machine offers, or what is missing and what to do; `shardread gpu-info` prints it.
//
// # Status
//
// No part of this package has run on hardware yet. What is claimed is checked without a
// card: against a test double of the driver library, and docs/gpu.md says what that shows
// and what it cannot.
package gpu

import "shardify/gpu/internal/cuda"

var (
	// ErrUnavailable: there is no driver or GPU that can be used. The message says why.
	ErrUnavailable = cuda.ErrUnavailable
	// ErrOutOfMemory: of the GPU's memory, or of what may be pinned of the host's.
	ErrOutOfMemory = cuda.ErrOutOfMemory
	// ErrContextLost: a kernel or the GPU failed, and only a new process can use it again.
	ErrContextLost = cuda.ErrContextLost
)
