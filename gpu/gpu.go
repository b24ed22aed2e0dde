// Package gpu brings batches to NVIDIA's GPUs before they are asked for. It is pure Go: the
// driver is loaded at run time, and where there is none everything else of this module
// works. [Inspect] says what the machine offers, or what is missing and what to do;
// `shardread gpu-info` prints it.
//
// Begin with [Open]. Its [Device.Pinned] gives a reader memory from which the GPU copies
// beside everything else, and [Prefetch] has the next batches on the GPU while the
// current one is worked at:
//
//	device, err := gpu.Open(0)
//	pinned := device.Pinned(gpu.PinnedConfig{})
//	r, err := reader.Open(ctx, url, reader.Config{Slabs: pinned, …})
//	begin := func(ctx context.Context) iter.Seq2[*reader.Batch, error] { return r.Epochs(ctx, state, epochs) }
//	for b, err := range gpu.Prefetch(ctx, device, begin, gpu.PrefetchConfig{}) {
//		err = b.Wait(stream)        // the stream waits for the copy; the host does not
//		x, _ := b.Tensor("image")   // x.Data is a device pointer
//		…                           // put work that reads it into the stream
//		err = b.Release(stream)     // the memory is used again when the stream is past that
//	}
//
// A [Pipeline] carries out on the GPU what a reader.Config says is to become of images:
// [Split] divides it. A [Resizer] cuts and scales images of any sizes, an [Augmenter] does
// what the transforms of imaging/augment draw, and [Device.Normalize] makes of bytes what a
// reader would at the end: normalised floats of either layout, blended under MixUp and
// CutMix. All give the CPU's numbers, bit for bit.
//
// [Decode] is Prefetch for batches of image files: nvJPEG decodes them on the card, beside the
// CPU, which does what nvJPEG cannot, and as much of the rest as it has time for.
//
// Streams and pointers are CUDA's own, of the primary context, so that they go to and come
// from any other library of the process that uses CUDA. One process feeds any number of
// GPUs: each by a Prefetch of a pass of its own, or all in turn by [PrefetchAll].
//
// # Errors
//
// What the driver refuses bears CUDA's name for it. [ErrOutOfMemory] leaves everything
// usable; after [ErrContextLost] (a kernel went astray, or the card failed) only a new
// process can use that GPU again. None of them is a crash.
//
// # Status
//
// No part of this package has run on hardware yet. What is claimed is checked without a
// card: by a simulation of streams and events in every order that CUDA allows, and against
// a test double of the driver library, which runs the kernels' source thread by thread;
// docs/gpu.md says what that shows and what not.
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
