package cuda

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"
)

// Module is code on the card.
type Module struct {
	context *Context
	handle  uintptr
}

// Options of cuModuleLoadDataEx.
const (
	jitErrorLog     = 5
	jitErrorLogSize = 6
)

// Load has the driver compile PTX for the card. What it finds wrong with it is in the
// error.
func (c *Context) Load(ptx []byte) (*Module, error) {
	m := &Module{context: c}
	text := append(append([]byte{}, ptx...), 0)
	log := make([]byte, 8192)
	options := [...]uint32{jitErrorLog, jitErrorLogSize}
	// Values lie where pointers would, numbers among them.
	values := [...]uintptr{uintptr(unsafe.Pointer(&log[0])), uintptr(len(log))}
	var pin runtime.Pinner
	pin.Pin(&log[0])
	defer pin.Unpin()
	err := c.call(&c.driver.f.moduleLoadDataEx, uintptr(unsafe.Pointer(&m.handle)), uintptr(unsafe.Pointer(unsafe.SliceData(text))), uintptr(len(options)),
		uintptr(unsafe.Pointer(&options)), uintptr(unsafe.Pointer(&values)))
	if err != nil {
		if said := strings.TrimSpace(stringOf(&log[0])); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return nil, err
	}
	return m, nil
}

// Unload frees the module; none of its functions may run.
func (m *Module) Unload() error { return m.context.call(&m.context.driver.f.moduleUnload, m.handle) }

// Function is a kernel.
type Function struct {
	context *Context
	handle  uintptr
	name    string
}

// Function looks a kernel up.
func (m *Module) Function(name string) (*Function, error) {
	f := &Function{context: m.context, name: name}
	text := append([]byte(name), 0)
	err := m.context.call(&m.context.driver.f.moduleGetFunction, uintptr(unsafe.Pointer(&f.handle)), m.handle, uintptr(unsafe.Pointer(unsafe.SliceData(text))))
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", name, err)
	}
	return f, nil
}

// Attributes, of CUfunction_attribute.
const (
	funcLocalBytes = 3
	funcRegisters  = 4
)

// Resources says how many registers a thread of the kernel takes, and how many bytes of
// local memory: where that is not 0, some of them spill.
func (f *Function) Resources() (registers, local int, err error) {
	for _, a := range []struct {
		to   *int
		attr uintptr
	}{{&registers, funcRegisters}, {&local, funcLocalBytes}} {
		var v int32
		if err := f.context.call(&f.context.driver.f.funcGetAttribute, uintptr(unsafe.Pointer(&v)), a.attr, f.handle); err != nil {
			return 0, 0, err
		}
		*a.to = int(v)
	}
	return registers, local, nil
}

// Grid is how many blocks a kernel has, Block how many threads a block.
type Grid [3]uint32

// Launch puts a run of the kernel into the stream. args is its only parameter, a struct
// as C lays it out, which is copied before Launch returns.
func (f *Function) Launch(blocks, threads Grid, s Stream, args unsafe.Pointer) error {
	params := [1]uintptr{uintptr(args)}
	var pin runtime.Pinner
	pin.Pin(args)
	defer pin.Unpin()
	err := f.context.call(&f.context.driver.f.launchKernel, f.handle,
		uintptr(blocks[0]), uintptr(blocks[1]), uintptr(blocks[2]),
		uintptr(threads[0]), uintptr(threads[1]), uintptr(threads[2]),
		0, uintptr(s), uintptr(unsafe.Pointer(&params)), 0)
	if err != nil {
		return fmt.Errorf("kernel %s: %w", f.name, err)
	}
	return nil
}
