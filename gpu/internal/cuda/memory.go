package cuda

import (
	"errors"
	"fmt"
	"time"
	"unsafe"
)

// Pointer is a place in a card's memory: a CUdeviceptr.
type Pointer uint64

// Alloc takes n bytes of the card's memory, at a multiple of 256. What they hold is not
// known. They are the caller's until Free.
func (c *Context) Alloc(n int64) (Pointer, error) {
	if n < 1 {
		return 0, fmt.Errorf("cuda: an allocation of %d bytes", n)
	}
	var p Pointer
	err := c.call(&c.driver.f.memAlloc, uintptr(unsafe.Pointer(&p)), uintptr(n))
	if errors.Is(err, ErrOutOfMemory) {
		if free, total, other := c.MemInfo(); other == nil {
			err = fmt.Errorf("%w: %d bytes were asked for, and %d of %d are free", err, n, free, total)
		}
	}
	return p, err
}

// Free gives memory back. Nothing that was asked of the card may still use it.
func (c *Context) Free(p Pointer) error { return c.call(&c.driver.f.memFree, uintptr(p)) }

// Flags of cuMemHostAlloc and cuMemHostRegister: pinned for every context of the process.
const portable = 1

// AllocHost takes n bytes of the host's memory, pinned, which the card reads and writes
// without a detour; for every device of the process. They are the caller's until
// FreeHost, and no memory of Go's: nothing keeps them alive, or frees them.
func (c *Context) AllocHost(n int64) ([]byte, error) {
	if n < 1 {
		return nil, fmt.Errorf("cuda: a pinned allocation of %d bytes", n)
	}
	var p *byte
	if err := c.call(&c.driver.f.memHostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(n), portable); err != nil {
		if errors.Is(err, ErrOutOfMemory) {
			err = fmt.Errorf("%w: %d bytes of pinned host memory were asked for", err, n)
		}
		return nil, err
	}
	return unsafe.Slice(p, n), nil
}

// FreeHost gives what AllocHost has returned back, which must be as long as it was.
func (c *Context) FreeHost(b []byte) error {
	return c.call(&c.driver.f.memFreeHost, uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// Register pins memory that is there already, such as a mapped file; until Unregister,
// before which it must not be unmapped. It should begin and end at pages.
func (c *Context) Register(b []byte) error {
	if len(b) == 0 {
		return errors.New("cuda: pinning no bytes")
	}
	err := c.call(&c.driver.f.memHostRegister, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), portable)
	if errors.Is(err, ErrOutOfMemory) {
		err = fmt.Errorf("%w: %d bytes of host memory were to be pinned: see `ulimit -l`", err, len(b))
	}
	return err
}

// Unregister undoes Register, by the same bytes.
func (c *Context) Unregister(b []byte) error {
	return c.call(&c.driver.f.memHostUnregister, uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// Stream is a queue of work, a CUstream: what is put into it is done in that order, and
// beside what is in others. 0 is the default stream of the process. A Stream may come from
// elsewhere, such as torch.cuda.Stream.cuda_stream.
type Stream uintptr

// nonBlocking: the stream does not wait for the default stream, nor that one for it.
const nonBlocking = 1

// NewStream makes a stream that does not wait for the default stream.
func (c *Context) NewStream() (Stream, error) {
	var s Stream
	err := c.call(&c.driver.f.streamCreate, uintptr(unsafe.Pointer(&s)), nonBlocking)
	return s, err
}

// DestroyStream frees a stream; what is in it is still done.
func (c *Context) DestroyStream(s Stream) error {
	return c.call(&c.driver.f.streamDestroy, uintptr(s))
}

// SynchronizeStream waits until all in the stream is done.
func (c *Context) SynchronizeStream(s Stream) error {
	return c.call(&c.driver.f.streamSynchronize, uintptr(s))
}

// Event is a mark in a stream: a CUevent.
type Event uintptr

// Flags of cuEventCreate.
const (
	blockingSync  = 1 // who waits sleeps
	disableTiming = 2
)

// NewEvent makes an event, which counts as done until it is recorded. timed events know
// when they were done, for Elapsed, and take longer.
func (c *Context) NewEvent(timed bool) (Event, error) {
	flags := uintptr(blockingSync | disableTiming)
	if timed {
		flags = blockingSync
	}
	var e Event
	err := c.call(&c.driver.f.eventCreate, uintptr(unsafe.Pointer(&e)), flags)
	return e, err
}

// DestroyEvent frees an event.
func (c *Context) DestroyEvent(e Event) error { return c.call(&c.driver.f.eventDestroy, uintptr(e)) }

// Record puts the event behind what is in the stream now; it is done when that is.
func (c *Context) Record(e Event, s Stream) error {
	return c.call(&c.driver.f.eventRecord, uintptr(e), uintptr(s))
}

// Wait makes what is put into the stream from now on wait for the event, as it was
// recorded last. The caller does not wait.
func (c *Context) Wait(s Stream, e Event) error {
	return c.call(&c.driver.f.streamWaitEvent, uintptr(s), uintptr(e), 0)
}

// Done says whether the event is done.
func (c *Context) Done(e Event) (bool, error) {
	err := c.result(&c.driver.f.eventQuery, uintptr(e))
	if notReady(err) {
		return false, nil
	}
	return err == nil, c.wrap(err)
}

// notReady tells an event that is not over from an error.
func notReady(err error) bool {
	var not *Error
	return errors.As(err, &not) && not.Code == errNotReady
}

// Synchronize waits, asleep, until the event is done.
func (c *Context) SynchronizeEvent(e Event) error {
	return c.call(&c.driver.f.eventSynchronize, uintptr(e))
}

// Elapsed is the time from one timed event to another, below 0 where that was first; done
// is false where one of them is not over.
func (c *Context) Elapsed(from, to Event) (d time.Duration, done bool, err error) {
	var ms float32
	err = c.result(&c.driver.f.eventElapsedTime, uintptr(unsafe.Pointer(&ms)), uintptr(from), uintptr(to))
	if notReady(err) {
		return 0, false, nil
	}
	return time.Duration(float64(ms) * float64(time.Millisecond)), err == nil, c.wrap(err)
}

// Upload puts a copy to the card into the stream. src must stay as it is until that is
// done; where it is not pinned, the driver copies it first, and the caller waits.
func (c *Context) Upload(dst Pointer, src []byte, s Stream) error {
	if len(src) == 0 {
		return nil
	}
	return c.call(&c.driver.f.memcpyHtoDAsync, uintptr(dst), uintptr(unsafe.Pointer(unsafe.SliceData(src))), uintptr(len(src)), uintptr(s))
}

// Download puts a copy from the card into the stream. dst must be left alone until that
// is done.
func (c *Context) Download(dst []byte, src Pointer, s Stream) error {
	if len(dst) == 0 {
		return nil
	}
	return c.call(&c.driver.f.memcpyDtoHAsync, uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(src), uintptr(len(dst)), uintptr(s))
}

// Copy puts a copy within the card into the stream.
func (c *Context) Copy(dst, src Pointer, n int64, s Stream) error {
	if n == 0 {
		return nil
	}
	return c.call(&c.driver.f.memcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(n), uintptr(s))
}

// Set puts into the stream that n bytes become b.
func (c *Context) Set(dst Pointer, b byte, n int64, s Stream) error {
	if n == 0 {
		return nil
	}
	return c.call(&c.driver.f.memsetD8Async, uintptr(dst), uintptr(b), uintptr(n), uintptr(s))
}
