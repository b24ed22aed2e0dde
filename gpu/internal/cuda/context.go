package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Context is the primary context of a device. It is safe for concurrent use.
type Context struct {
	device Device
	driver *Driver
	handle uintptr
	lost   atomic.Pointer[Error]
	closed atomic.Bool
}

// Retain makes sure that a device has its primary context, which exists once for a
// process, and keeps it until Close.
func (d *Driver) Retain(v Device) (*Context, error) {
	c := &Context{device: v, driver: d}
	if err := d.check(&d.f.primaryCtxRetain, d.f.primaryCtxRetain.call(uintptr(unsafe.Pointer(&c.handle)), uintptr(v.handle))); err != nil {
		return nil, fmt.Errorf("GPU %d (%s): %w", v.Ordinal, v.Name, err)
	}
	return c, nil
}

// Close lets the context go. Where nobody else has it, all that is still in it is freed
// with it: close everything else first. A second Close does nothing.
func (c *Context) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	d := c.driver
	return c.wrap(d.check(&d.f.primaryCtxRelease, d.f.primaryCtxRelease.call(uintptr(c.device.handle))))
}

// Driver is whose the device is.
func (c *Context) Driver() *Driver { return c.driver }

// Device is whose context it is.
func (c *Context) Device() Device { return c.device }

// Lost is why the context can no longer be used; nil while it can.
func (c *Context) Lost() error {
	if e := c.lost.Load(); e != nil {
		return c.wrap(e)
	}
	return nil
}

// wrap names the device.
func (c *Context) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("GPU %d (%s): %w", c.device.Ordinal, c.device.Name, err)
}

// errClosed: a bug of ours.
var errClosed = errors.New("the context was closed")

// call calls a function with the context current.
//
//go:uintptrescapes
func (c *Context) call(p *proc, args ...uintptr) error {
	return c.wrap(c.result(p, args...))
}

//go:uintptrescapes
func (c *Context) result(p *proc, args ...uintptr) error {
	return c.within(p.name, func() error { return c.driver.check(p, p.call(args...)) })
}

// within calls f, which calls a function of that name, with the context current.
func (c *Context) within(name string, f func() error) error {
	if e := c.lost.Load(); e != nil {
		return e
	}
	if c.closed.Load() {
		return fmt.Errorf("%s: %w", name, errClosed)
	}
	d := &c.driver.f
	// What is current belongs to the thread, and other code of the process that calls
	// CUDA may have set its own there.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.keep(c.driver.check(&d.ctxPushCurrent, d.ctxPushCurrent.call(c.handle))); err != nil {
		return err
	}
	err := c.keep(f())
	var old uintptr
	if popped := c.keep(c.driver.check(&d.ctxPopCurrent, d.ctxPopCurrent.call(uintptr(unsafe.Pointer(&old))))); err == nil {
		err = popped
	}
	return err
}

// keep remembers the error after which nothing goes any more.
func (c *Context) keep(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Code.lost() {
		c.lost.CompareAndSwap(nil, e)
	}
	return err
}

// Synchronize waits for all that was ever asked of the context.
func (c *Context) Synchronize() error { return c.call(&c.driver.f.ctxSynchronize) }

// MemInfo is how much of the card's memory is free now, of how much, in bytes.
func (c *Context) MemInfo() (free, total int64, err error) {
	var f, t uint64
	err = c.call(&c.driver.f.memGetInfo, uintptr(unsafe.Pointer(&f)), uintptr(unsafe.Pointer(&t)))
	return int64(f), int64(t), err
}
