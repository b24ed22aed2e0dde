// Package cuda calls NVIDIA's driver: libcuda, and NVML and nvJPEG beside it. All are loaded
// at run time, without cgo, so that one binary runs with and without them: [Open],
// [OpenNVML] and [OpenNVJPEG] say what is missing. Names and numbers are those of cuda.h,
// nvml.h and nvjpeg.h.
//
// Begin with [Open], which gives a [Driver], and [Driver.Retain], which gives the primary
// [Context] of a device: the one that the CUDA runtime, and so PyTorch, JAX and CuPy, use
// in the same process, so that memory, streams and events are shared with them. Every call
// makes its context current on the thread that it runs on and puts back the one that was,
// so a goroutine may use any number of contexts, and a context any number of goroutines.
//
// # Errors
//
// What the driver refuses is an [*Error], with the function's name and CUDA's name for the
// fault. It is [ErrOutOfMemory], after which everything goes on; or [ErrContextLost]: a
// kernel or the card has failed, and CUDA lets a process do nothing more with that context
// but end. The first such error of a context is kept and is what every later call
// returns, since the driver would blame whoever calls next.
package cuda

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// The oldest driver that is taken: CUDA 11.0 has all functions that are called.
const minVersion = 11000

var (
	// ErrUnavailable: there is no driver, or none that can be used.
	ErrUnavailable = errors.New("CUDA is not available")
	// ErrOutOfMemory: of the card's memory, or of what may be pinned of the host's.
	ErrOutOfMemory = errors.New("out of GPU memory")
	// ErrContextLost: a kernel or the card failed; the process must be started again to
	// use that card.
	ErrContextLost = errors.New("the GPU's context is lost")
)

// Code is a CUresult.
type Code uint32

// The results that are told apart.
const (
	success                Code = 0
	errInvalidValue        Code = 1
	errOutOfMemory         Code = 2
	errDeinitialized       Code = 4
	errStubLibrary         Code = 34
	errDeviceUnavailable   Code = 46
	errNoDevice            Code = 100
	errECC                 Code = 214
	errNVLink              Code = 220
	errNotReady            Code = 600
	errIllegalAddress      Code = 700
	errLaunchTimeout       Code = 702
	errContextDestroyed    Code = 709
	errAssert              Code = 710
	errHardwareStack       Code = 714
	errIllegalInstruction  Code = 715
	errMisalignedAddress   Code = 716
	errInvalidAddressSpace Code = 717
	errInvalidPC           Code = 718
	errLaunchFailed        Code = 719
	errSystemNotReady      Code = 802
	errDriverMismatch      Code = 803
	errCompatNotSupported  Code = 804
	errUnknown             Code = 999
)

// lost says that a result ends its context: cuda.h has "the process must be terminated
// and relaunched", "the context cannot be used anymore" beside these.
func (c Code) lost() bool {
	switch c {
	case errDeinitialized, errDeviceUnavailable, errECC, errNVLink, errIllegalAddress, errLaunchTimeout, errContextDestroyed,
		errAssert, errHardwareStack, errIllegalInstruction, errMisalignedAddress, errInvalidAddressSpace, errInvalidPC, errLaunchFailed:
		return true
	}
	return false
}

// Error is what a function of the driver answered instead of CUDA_SUCCESS.
type Error struct {
	// Call is the function.
	Call string
	Code Code
	// Name and Text are CUDA's: CUDA_ERROR_OUT_OF_MEMORY, "out of memory".
	Name, Text string
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s (%d)", e.Call, e.Name, e.Code)
	if e.Text != "" {
		s += ": " + e.Text
	}
	if e.Code.lost() {
		s += " (it may have happened earlier, in a kernel or copy of any part of this process; only a new process can use this GPU again)"
	}
	return s
}

// Is makes errors.Is know ErrOutOfMemory and ErrContextLost.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrOutOfMemory:
		return e.Code == errOutOfMemory
	case ErrContextLost:
		return e.Code.lost()
	}
	return false
}

// Driver is libcuda. It is safe for concurrent use, and stays loaded as long as the
// process lives: CUDA has threads of its own, under which it must not be taken away.
type Driver struct {
	lib     *library
	version int
	f       functions
}

// functions are those of libcuda that are called, by their names in the library.
type functions struct {
	init, driverGetVersion, getErrorName, getErrorString proc

	deviceGetCount, deviceGet, deviceGetName, deviceGetUUID, deviceTotalMem, deviceGetAttribute, deviceGetPCIBusID, deviceCanAccessPeer proc

	primaryCtxRetain, primaryCtxRelease, ctxPushCurrent, ctxPopCurrent, ctxSynchronize proc

	memGetInfo, memAlloc, memFree, memHostAlloc, memFreeHost, memHostRegister, memHostUnregister proc
	memcpyHtoDAsync, memcpyDtoHAsync, memcpyDtoDAsync, memsetD8Async                             proc

	memGetAllocationGranularity, memCreate, memRelease, memExportToShareableHandle, memImportFromShareableHandle proc
	memAddressReserve, memAddressFree, memMap, memUnmap, memSetAccess                                            proc

	streamCreate, streamDestroy, streamSynchronize, streamWaitEvent                        proc
	eventCreate, eventDestroy, eventRecord, eventQuery, eventSynchronize, eventElapsedTime proc

	moduleLoadDataEx, moduleUnload, moduleGetFunction, funcGetAttribute, launchKernel proc
}

// table has every function's place and name.
func (f *functions) table() []symbol {
	return []symbol{
		{&f.init, "cuInit"},
		{&f.driverGetVersion, "cuDriverGetVersion"},
		{&f.getErrorName, "cuGetErrorName"},
		{&f.getErrorString, "cuGetErrorString"},
		{&f.deviceGetCount, "cuDeviceGetCount"},
		{&f.deviceGet, "cuDeviceGet"},
		{&f.deviceGetName, "cuDeviceGetName"},
		{&f.deviceGetUUID, "cuDeviceGetUuid"},
		{&f.deviceTotalMem, "cuDeviceTotalMem_v2"},
		{&f.deviceGetAttribute, "cuDeviceGetAttribute"},
		{&f.deviceGetPCIBusID, "cuDeviceGetPCIBusId"},
		{&f.deviceCanAccessPeer, "cuDeviceCanAccessPeer"},
		{&f.primaryCtxRetain, "cuDevicePrimaryCtxRetain"},
		{&f.primaryCtxRelease, "cuDevicePrimaryCtxRelease_v2"},
		{&f.ctxPushCurrent, "cuCtxPushCurrent_v2"},
		{&f.ctxPopCurrent, "cuCtxPopCurrent_v2"},
		{&f.ctxSynchronize, "cuCtxSynchronize"},
		{&f.memGetInfo, "cuMemGetInfo_v2"},
		{&f.memAlloc, "cuMemAlloc_v2"},
		{&f.memFree, "cuMemFree_v2"},
		{&f.memHostAlloc, "cuMemHostAlloc"},
		{&f.memFreeHost, "cuMemFreeHost"},
		{&f.memHostRegister, "cuMemHostRegister_v2"},
		{&f.memHostUnregister, "cuMemHostUnregister"},
		{&f.memcpyHtoDAsync, "cuMemcpyHtoDAsync_v2"},
		{&f.memcpyDtoHAsync, "cuMemcpyDtoHAsync_v2"},
		{&f.memcpyDtoDAsync, "cuMemcpyDtoDAsync_v2"},
		{&f.memsetD8Async, "cuMemsetD8Async"},
		{&f.memGetAllocationGranularity, "cuMemGetAllocationGranularity"},
		{&f.memCreate, "cuMemCreate"},
		{&f.memRelease, "cuMemRelease"},
		{&f.memExportToShareableHandle, "cuMemExportToShareableHandle"},
		{&f.memImportFromShareableHandle, "cuMemImportFromShareableHandle"},
		{&f.memAddressReserve, "cuMemAddressReserve"},
		{&f.memAddressFree, "cuMemAddressFree"},
		{&f.memMap, "cuMemMap"},
		{&f.memUnmap, "cuMemUnmap"},
		{&f.memSetAccess, "cuMemSetAccess"},
		{&f.streamCreate, "cuStreamCreate"},
		{&f.streamDestroy, "cuStreamDestroy_v2"},
		{&f.streamSynchronize, "cuStreamSynchronize"},
		{&f.streamWaitEvent, "cuStreamWaitEvent"},
		{&f.eventCreate, "cuEventCreate"},
		{&f.eventDestroy, "cuEventDestroy_v2"},
		{&f.eventRecord, "cuEventRecord"},
		{&f.eventQuery, "cuEventQuery"},
		{&f.eventSynchronize, "cuEventSynchronize"},
		{&f.eventElapsedTime, "cuEventElapsedTime"},
		{&f.moduleLoadDataEx, "cuModuleLoadDataEx"},
		{&f.moduleUnload, "cuModuleUnload"},
		{&f.moduleGetFunction, "cuModuleGetFunction"},
		{&f.funcGetAttribute, "cuFuncGetAttribute"},
		{&f.launchKernel, "cuLaunchKernel"},
	}
}

// cudaLibraries are where libcuda is looked for, in this order: by the system's loader,
// then where the driver's library lies in containers, under WSL and on NixOS, whose
// loaders may not know it.
var cudaLibraries = []string{
	"libcuda.so.1",
	"/usr/local/nvidia/lib64/libcuda.so.1",
	"/usr/lib/wsl/lib/libcuda.so.1",
	"/run/opengl-driver/lib/libcuda.so.1",
}

// Open loads the driver and initialises it. paths are where libcuda is looked for, in
// place of the usual ones. The error is ErrUnavailable, and says what is missing and what
// to do about it.
func Open(paths ...string) (*Driver, error) {
	if len(paths) == 0 {
		paths = cudaLibraries
	}
	lib, err := load(paths)
	if err != nil {
		return nil, fmt.Errorf("%w: %w%s", ErrUnavailable, err, advice(0))
	}
	d := &Driver{lib: lib}
	if err := lib.bind(d.f.table()); err != nil {
		return nil, fmt.Errorf("%w: %w: it is older than CUDA %s, or is no CUDA driver; install NVIDIA's driver 450 or newer", ErrUnavailable, err, Version(minVersion))
	}
	var version int32
	if err := d.check(&d.f.driverGetVersion, d.f.driverGetVersion.call(uintptr(unsafe.Pointer(&version)))); err != nil {
		return nil, d.refuse(err)
	}
	d.version = int(version)
	if d.version < minVersion {
		return nil, fmt.Errorf("%w: %s is a driver for CUDA %s, and %s is needed: install NVIDIA's driver 450 or newer", ErrUnavailable, lib.path, Version(d.version), Version(minVersion))
	}
	if err := d.check(&d.f.init, d.f.init.call(0)); err != nil {
		return nil, d.refuse(err)
	}
	return d, nil
}

// refuse says what to do about a driver that does not start.
func (d *Driver) refuse(err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, d.lib.path, err)
	}
	return fmt.Errorf("%w: %s: %w%s", ErrUnavailable, d.lib.path, err, advice(e.Code))
}

// Path is the library that was loaded, Version the newest CUDA that the driver serves.
func (d *Driver) Path() string { return d.lib.path }

// Version is the newest CUDA that the driver serves.
func (d *Driver) Version() Version { return Version(d.version) }

// Version is a version of CUDA: 1000 times the first part, 10 times the second.
type Version int

func (v Version) String() string { return fmt.Sprintf("%d.%d", int(v)/1000, int(v)%1000/10) }

// check makes an error of a result.
func (d *Driver) check(p *proc, r Code) error {
	if r == success {
		return nil
	}
	e := &Error{Call: p.name, Code: r, Name: d.text(&d.f.getErrorName, r), Text: d.text(&d.f.getErrorString, r)}
	if e.Name == "" {
		e.Name = "CUDA_ERROR_unknown_to_this_driver"
	}
	return e
}

// text asks the driver for a word on a result.
func (d *Driver) text(p *proc, r Code) string {
	var s *byte
	if p.call(uintptr(r), uintptr(unsafe.Pointer(&s))) != success {
		return ""
	}
	return stringOf(s)
}

// symbol is a function that is wanted of a library.
type symbol struct {
	to   *proc
	name string
}

// proc is a function of a library.
type proc struct {
	name string
	addr uintptr
}

// Devices is how many there are; CUDA_VISIBLE_DEVICES chooses.
func (d *Driver) Devices() (int, error) {
	var n int32
	if err := d.check(&d.f.deviceGetCount, d.f.deviceGetCount.call(uintptr(unsafe.Pointer(&n)))); err != nil {
		return 0, err
	}
	return int(n), nil
}

// Device is a card, or a part of one that was made by MIG.
type Device struct {
	driver  *Driver
	handle  int32
	Ordinal int
	Name    string
	// UUID is as nvidia-smi shows it: GPU-6fd6...
	UUID string
	// PCI is the bus address: 0000:1b:00.0
	PCI string
	// Memory is in bytes.
	Memory int64
	// Major and Minor are the compute capability.
	Major, Minor int
	// Multiprocessors is their number.
	Multiprocessors int
	// CopyEngines is how many copies can run beside kernels and each other.
	CopyEngines int
	// Integrated: host and device share their memory.
	Integrated bool
	// Shares: its memory can be shared with other processes by files.
	Shares bool
	// Mode is who may have contexts on it.
	Mode ComputeMode
}

// ComputeMode is a CUcomputemode.
type ComputeMode int

// The modes that are set by nvidia-smi -c: any number of processes, none, one.
const (
	ModeDefault    ComputeMode = 0
	ModeProhibited ComputeMode = 2
	ModeExclusive  ComputeMode = 3
)

// Attributes, of CUdevice_attribute.
const (
	attrMultiprocessors = 16
	attrIntegrated      = 18
	attrComputeMode     = 20
	attrCopyEngines     = 40
	attrMajor           = 75
	attrMinor           = 76
)

// Device tells of a device; the first is 0.
func (d *Driver) Device(ordinal int) (Device, error) {
	n, err := d.Devices()
	if err != nil {
		return Device{}, err
	}
	if ordinal < 0 || ordinal >= n {
		if n == 0 {
			return Device{}, fmt.Errorf("%w: there is no GPU%s", ErrUnavailable, advice(errNoDevice))
		}
		return Device{}, fmt.Errorf("%w: there is no GPU %d: there are %d, 0 to %d", ErrUnavailable, ordinal, n, n-1)
	}
	v := Device{driver: d, Ordinal: ordinal}
	f := &d.f
	if err := d.check(&f.deviceGet, f.deviceGet.call(uintptr(unsafe.Pointer(&v.handle)), uintptr(ordinal))); err != nil {
		return Device{}, err
	}
	h := uintptr(v.handle)
	var text [256]byte
	if err := d.check(&f.deviceGetName, f.deviceGetName.call(uintptr(unsafe.Pointer(&text)), uintptr(len(text)), h)); err != nil {
		return Device{}, err
	}
	v.Name = stringOf(&text[0])
	text = [256]byte{}
	if err := d.check(&f.deviceGetPCIBusID, f.deviceGetPCIBusID.call(uintptr(unsafe.Pointer(&text)), uintptr(len(text)), h)); err != nil {
		return Device{}, err
	}
	v.PCI = stringOf(&text[0])
	var id [16]byte
	if err := d.check(&f.deviceGetUUID, f.deviceGetUUID.call(uintptr(unsafe.Pointer(&id)), h)); err != nil {
		return Device{}, err
	}
	v.UUID = fmt.Sprintf("GPU-%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	var size uint64
	if err := d.check(&f.deviceTotalMem, f.deviceTotalMem.call(uintptr(unsafe.Pointer(&size)), h)); err != nil {
		return Device{}, err
	}
	v.Memory = int64(size)
	integrated, virtual, files, mode := 0, 0, 0, 0
	for _, a := range []struct {
		to   *int
		attr uintptr
	}{
		{&v.Major, attrMajor}, {&v.Minor, attrMinor}, {&v.Multiprocessors, attrMultiprocessors},
		{&v.CopyEngines, attrCopyEngines}, {&integrated, attrIntegrated},
		{&virtual, attrVirtualMemory}, {&files, attrHandlePOSIX}, {&mode, attrComputeMode},
	} {
		var value int32
		if err := d.check(&f.deviceGetAttribute, f.deviceGetAttribute.call(uintptr(unsafe.Pointer(&value)), a.attr, h)); err != nil {
			return Device{}, err
		}
		*a.to = int(value)
	}
	v.Integrated, v.Shares, v.Mode = integrated != 0, virtual != 0 && files != 0, ComputeMode(mode)
	return v, nil
}

// Reaches says whether a device reads and writes the memory of another without a detour
// through the host's.
func (d *Driver) Reaches(v, other Device) (bool, error) {
	var yes int32
	err := d.check(&d.f.deviceCanAccessPeer, d.f.deviceCanAccessPeer.call(uintptr(unsafe.Pointer(&yes)), uintptr(v.handle), uintptr(other.handle)))
	return yes != 0, err
}

// stringOf copies a string of C's.
func stringOf(s *byte) string {
	if s == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(s), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(s, n))
}

// theDriver is what Default returns.
var theDriver = sync.OnceValues(func() (*Driver, error) { return Open() })

// Default is the machine's driver, loaded the first time that it is asked for.
func Default() (*Driver, error) { return theDriver() }
