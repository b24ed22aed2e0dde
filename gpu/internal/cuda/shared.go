package cuda

import (
	"errors"
	"fmt"
	"os"
	"unsafe"
)

// Shared is memory of a card that processes share by a file (virtual memory management,
// cuMemCreate and cuMemExportToShareableHandle): in the one that has made it, or in one
// that has mapped it. The memory is there until the last of them has freed it, or ended.
type Shared struct {
	context *Context
	at      Pointer
	size    int64
}

// At is where it begins in this process, at a multiple of the card's granularity.
func (m *Shared) At() Pointer { return m.at }

// Size is how many bytes it has: a multiple of the granularity.
func (m *Shared) Size() int64 { return m.size }

// Attributes that say whether a device can share memory so.
const (
	attrVirtualMemory = 102
	attrHandlePOSIX   = 103
)

// What CUDA calls a location on a device, pinned memory, a file descriptor as its handle,
// and access for reading and writing.
const (
	locationDevice   = 1
	allocationPinned = 1
	handlePOSIX      = 1
	accessReadWrite  = 3
)

// location is a CUmemLocation, allocation a CUmemAllocationProp, access a CUmemAccessDesc.
type (
	location struct {
		kind, id int32
	}
	allocation struct {
		kind, handles int32
		at            location
		_             uintptr // for Windows
		_             [8]byte // flags
	}
	access struct {
		at    location
		flags int32
	}
)

// allocation describes memory of the context's card.
func (c *Context) allocation() allocation {
	return allocation{kind: allocationPinned, handles: handlePOSIX, at: location{locationDevice, c.device.handle}}
}

// Sharing says whether the card can share memory by files; the error is ErrUnavailable.
func (c *Context) Sharing() error {
	for _, a := range []struct {
		attr uintptr
		what string
	}{{attrVirtualMemory, "virtual memory management"}, {attrHandlePOSIX, "handles that are file descriptors"}} {
		var yes int32
		d := c.driver
		if err := d.check(&d.f.deviceGetAttribute, d.f.deviceGetAttribute.call(uintptr(unsafe.Pointer(&yes)), a.attr, uintptr(c.device.handle))); err != nil {
			return c.wrap(err)
		}
		if yes == 0 {
			return c.wrap(fmt.Errorf("%w to several processes: the driver has no %s for this card", ErrUnavailable, a.what))
		}
	}
	return nil
}

// Share takes n bytes of the card's memory, or what more its granularity demands, that
// another process can map by the file, which is the caller's to close, and only good for
// that. What they hold is not known.
func (c *Context) Share(n int64) (m *Shared, f *os.File, err error) {
	if n < 1 {
		return nil, nil, fmt.Errorf("cuda: sharing %d bytes", n)
	}
	a, granularity := c.allocation(), uint64(0)
	if err := c.call(&c.driver.f.memGetAllocationGranularity, uintptr(unsafe.Pointer(&granularity)), uintptr(unsafe.Pointer(&a)), 0); err != nil {
		return nil, nil, err
	}
	size := (n + int64(granularity) - 1) / int64(granularity) * int64(granularity)
	var handle uint64
	if err := c.call(&c.driver.f.memCreate, uintptr(unsafe.Pointer(&handle)), uintptr(size), uintptr(unsafe.Pointer(&a)), 0); err != nil {
		if errors.Is(err, ErrOutOfMemory) {
			if free, total, other := c.MemInfo(); other == nil {
				err = fmt.Errorf("%w: %d bytes were asked for, and %d of %d are free", err, size, free, total)
			}
		}
		return nil, nil, err
	}
	fd := int32(-1)
	err = c.call(&c.driver.f.memExportToShareableHandle, uintptr(unsafe.Pointer(&fd)), uintptr(handle), handlePOSIX, 0)
	if err == nil {
		f = os.NewFile(uintptr(fd), "memory of "+c.device.UUID)
	}
	if m, err = c.mapped(handle, size, err); err != nil {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
		return nil, nil, err
	}
	return m, f, nil
}

// Map maps memory that another process has shared, of size bytes, by its file, which may be
// closed afterwards. Both must use the same card.
func (c *Context) Map(f *os.File, size int64) (*Shared, error) {
	if size < 1 {
		return nil, fmt.Errorf("cuda: mapping %d bytes", size)
	}
	var handle uint64
	if err := c.call(&c.driver.f.memImportFromShareableHandle, uintptr(unsafe.Pointer(&handle)), f.Fd(), handlePOSIX); err != nil {
		return nil, err
	}
	return c.mapped(handle, size, nil)
}

// mapped maps a handle, unless there is an error already, and lets go of it: what is mapped
// stays.
func (c *Context) mapped(handle uint64, size int64, err error) (*Shared, error) {
	f, m := &c.driver.f, &Shared{context: c, size: size}
	if err == nil {
		err = c.call(&f.memAddressReserve, uintptr(unsafe.Pointer(&m.at)), uintptr(size), 0, 0, 0)
	}
	if err != nil {
		return nil, errors.Join(err, c.call(&f.memRelease, uintptr(handle)))
	}
	err = c.call(&f.memMap, uintptr(m.at), uintptr(size), 0, uintptr(handle), 0)
	released := c.call(&f.memRelease, uintptr(handle))
	if err != nil {
		return nil, errors.Join(err, released, c.call(&f.memAddressFree, uintptr(m.at), uintptr(size)))
	}
	a := access{location{locationDevice, c.device.handle}, accessReadWrite}
	if err := errors.Join(released, c.call(&f.memSetAccess, uintptr(m.at), uintptr(size), uintptr(unsafe.Pointer(&a)), 1)); err != nil {
		return nil, errors.Join(err, m.Free())
	}
	return m, nil
}

// Free unmaps the memory in this process. Nothing that this one has put into a stream may
// still use it.
func (m *Shared) Free() error {
	c := m.context
	return errors.Join(
		c.call(&c.driver.f.memUnmap, uintptr(m.at), uintptr(m.size)),
		c.call(&c.driver.f.memAddressFree, uintptr(m.at), uintptr(m.size)),
	)
}

// DeviceOf finds a device by its UUID, as nvidia-smi shows it.
func (d *Driver) DeviceOf(uuid string) (Device, error) {
	n, err := d.Devices()
	if err != nil {
		return Device{}, err
	}
	var there []string
	for i := range n {
		v, err := d.Device(i)
		if err != nil {
			return Device{}, err
		}
		if v.UUID == uuid {
			return v, nil
		}
		there = append(there, v.UUID)
	}
	return Device{}, fmt.Errorf("%w: there is no GPU %s here, where CUDA_VISIBLE_DEVICES lets be seen: %v", ErrUnavailable, uuid, there)
}
