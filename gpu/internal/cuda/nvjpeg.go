package cuda

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"
)

// Status is an nvjpegStatus_t.
type Status int32

// The results that are told apart.
const (
	nvjpegBadJPEG           Status = 3
	nvjpegJPEGNotSupported  Status = 4
	nvjpegAllocatorFailure  Status = 5
	nvjpegExecutionFailed   Status = 6
	nvjpegInternalError     Status = 8
	nvjpegNotImplemented    Status = 9
	nvjpegIncomplete        Status = 10
	nvjpegStatusUnsupported        = "NVJPEG_STATUS_unknown_to_this_program"
)

var nvjpegStatusNames = []string{
	"NVJPEG_STATUS_SUCCESS", "NVJPEG_STATUS_NOT_INITIALIZED", "NVJPEG_STATUS_INVALID_PARAMETER", "NVJPEG_STATUS_BAD_JPEG",
	"NVJPEG_STATUS_JPEG_NOT_SUPPORTED", "NVJPEG_STATUS_ALLOCATOR_FAILURE", "NVJPEG_STATUS_EXECUTION_FAILED",
	"NVJPEG_STATUS_ARCH_MISMATCH", "NVJPEG_STATUS_INTERNAL_ERROR", "NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED",
	"NVJPEG_STATUS_INCOMPLETE_BITSTREAM",
}

func (s Status) String() string {
	if s >= 0 && int(s) < len(nvjpegStatusNames) {
		return nvjpegStatusNames[s]
	}
	return nvjpegStatusUnsupported
}

// ErrJPEG: nvJPEG does not decode a file, or one of a batch: it is damaged, or of a kind
// that the backend does not know.
var ErrJPEG = errors.New("nvJPEG does not decode it")

// NVJPEGError is what a function of nvJPEG answered instead of NVJPEG_STATUS_SUCCESS.
type NVJPEGError struct {
	// Call is the function.
	Call   string
	Status Status
}

func (e *NVJPEGError) Error() string {
	return fmt.Sprintf("%s: %v (%d)", e.Call, e.Status, int(e.Status))
}

// Is makes errors.Is know ErrOutOfMemory and ErrJPEG.
func (e *NVJPEGError) Is(target error) bool {
	switch target {
	case ErrOutOfMemory:
		return e.Status == nvjpegAllocatorFailure
	case ErrJPEG:
		return slices.Contains([]Status{nvjpegBadJPEG, nvjpegJPEGNotSupported, nvjpegNotImplemented, nvjpegIncomplete}, e.Status)
	}
	return false
}

// NVJPEG is NVIDIA's JPEG library. It is safe for concurrent use, and stays loaded.
type NVJPEG struct {
	lib           *library
	version, cuda [3]int
	f             nvjpegFunctions
}

type nvjpegFunctions struct {
	getProperty, getCudartProperty                                        proc
	create, destroy, hardwareInfo                                         proc
	stateCreate, stateDestroy, streamCreate, streamDestroy, streamParse   proc
	paramsCreate, paramsDestroy, paramsSetROI, paramsSetFormat, supported proc
	initialize, decode, decodeROI                                         proc
}

func (f *nvjpegFunctions) table() []symbol {
	return []symbol{
		{&f.getProperty, "nvjpegGetProperty"},
		{&f.getCudartProperty, "nvjpegGetCudartProperty"},
		{&f.create, "nvjpegCreateExV2"},
		{&f.destroy, "nvjpegDestroy"},
		{&f.hardwareInfo, "nvjpegGetHardwareDecoderInfo"},
		{&f.stateCreate, "nvjpegJpegStateCreate"},
		{&f.stateDestroy, "nvjpegJpegStateDestroy"},
		{&f.streamCreate, "nvjpegJpegStreamCreate"},
		{&f.streamDestroy, "nvjpegJpegStreamDestroy"},
		{&f.streamParse, "nvjpegJpegStreamParseHeader"},
		{&f.paramsCreate, "nvjpegDecodeParamsCreate"},
		{&f.paramsDestroy, "nvjpegDecodeParamsDestroy"},
		{&f.paramsSetROI, "nvjpegDecodeParamsSetROI"},
		{&f.paramsSetFormat, "nvjpegDecodeParamsSetOutputFormat"},
		{&f.supported, "nvjpegDecodeBatchedSupportedEx"},
		{&f.initialize, "nvjpegDecodeBatchedInitialize"},
		{&f.decode, "nvjpegDecodeBatched"},
		{&f.decodeROI, "nvjpegDecodeBatchedEx"},
	}
}

// nvjpegMajors are the versions of CUDA whose nvJPEG is known, the newest first: their
// functions and structures are the same.
var nvjpegMajors = []int{13, 12, 11}

// nvjpegLibraries are where libnvjpeg is looked for, for each version in this order: by the
// system's loader, in the CUDA toolkit, in a conda environment, in Python's packages
// nvidia-nvjpeg-cu11, -cu12, nvidia-nvjpeg and torchvision, of the virtual environment that
// is active and of the system.
func nvjpegLibraries(getenv func(string) string) []string {
	var roots []string
	for _, home := range []string{getenv("VIRTUAL_ENV"), getenv("CONDA_PREFIX")} {
		if home != "" {
			roots = append(roots, filepath.Join(home, "lib", "python3*", "site-packages"))
		}
	}
	roots = append(roots, "/usr/local/lib/python3*/*-packages", "/usr/lib/python3*/*-packages")
	var paths []string
	for _, major := range nvjpegMajors {
		name := fmt.Sprintf("libnvjpeg.so.%d", major)
		paths = append(paths, name)
		folders := []string{getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda", fmt.Sprintf("/usr/local/cuda-%d", major), fmt.Sprintf("/usr/local/cuda-%d.*", major)}
		var patterns []string
		for _, folder := range folders {
			if folder != "" {
				patterns = append(patterns, filepath.Join(folder, "lib64", name))
			}
		}
		if home := getenv("CONDA_PREFIX"); home != "" {
			patterns = append(patterns, filepath.Join(home, "lib", name))
		}
		for _, root := range roots {
			patterns = append(patterns, filepath.Join(root, "nvidia", "*", "lib", name), filepath.Join(root, "torchvision.libs", fmt.Sprintf("libnvjpeg.*.so.%d", major)))
		}
		for _, pattern := range patterns {
			found, _ := filepath.Glob(pattern)
			paths = append(paths, found...)
		}
	}
	return paths
}

// OpenNVJPEG loads nvJPEG, of a version of CUDA that the driver serves. paths are where it
// is looked for, in place of the usual places. The error is ErrUnavailable, and says what is
// missing and what to do about it.
func OpenNVJPEG(d *Driver, paths ...string) (*NVJPEG, error) {
	if len(paths) == 0 {
		paths = nvjpegLibraries(os.Getenv)
	}
	serves := d.version / 1000
	install := "nvidia-nvjpeg"
	if serves < 13 {
		install = fmt.Sprintf("nvidia-nvjpeg-cu%d", serves)
	}
	var fault error
	for _, path := range paths {
		n, err := openNVJPEG(path, serves)
		if err == nil {
			return n, nil
		}
		// A library that is there and is of no use says more than one that is not.
		if fault == nil || !strings.Contains(err.Error(), "No such file") && strings.Contains(fault.Error(), "No such file") {
			fault = err
		}
	}
	return nil, &unavailable{fmt.Errorf("nvJPEG is not available: %w; `pip install %s` into the environment that is active, or install libnvjpeg of the CUDA toolkit %d, or set LD_LIBRARY_PATH to the folder that has libnvjpeg.so.%d",
		fault, install, serves, serves)}
}

// unavailable is ErrUnavailable of something else than CUDA itself.
type unavailable struct{ error }

func (e *unavailable) Unwrap() error        { return e.error }
func (e *unavailable) Is(target error) bool { return target == ErrUnavailable }

func openNVJPEG(path string, serves int) (*NVJPEG, error) {
	lib, err := load([]string{path})
	if err != nil {
		return nil, err
	}
	n := &NVJPEG{lib: lib}
	if err := lib.bind(n.f.table()); err != nil {
		return nil, fmt.Errorf("%w: it is older than that of CUDA 11.6, or is no nvJPEG", err)
	}
	for i := range 3 {
		var v int32
		if err := n.check(&n.f.getProperty, uintptr(i), uintptr(unsafe.Pointer(&v))); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		n.version[i] = int(v)
		if err := n.check(&n.f.getCudartProperty, uintptr(i), uintptr(unsafe.Pointer(&v))); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		n.cuda[i] = int(v)
	}
	if n.cuda[0] > serves {
		return nil, fmt.Errorf("%s is for CUDA %d.%d, and the driver serves CUDA %d", path, n.cuda[0], n.cuda[1], serves)
	}
	return n, nil
}

// Path is the library that was loaded.
func (n *NVJPEG) Path() string { return n.lib.path }

// Version is nvJPEG's own: 12.4.0
func (n *NVJPEG) Version() string {
	return fmt.Sprintf("%d.%d.%d", n.version[0], n.version[1], n.version[2])
}

// check calls a function that needs no context.
//
//go:uintptrescapes
func (n *NVJPEG) check(p *proc, args ...uintptr) error {
	if s := Status(p.call(args...)); s != 0 {
		return &NVJPEGError{Call: p.name, Status: s}
	}
	return nil
}

// Backend is how nvJPEG decodes: an nvjpegBackend_t.
type Backend int

const (
	// BackendHybrid decodes Huffman codes on the CPU, the rest on the card.
	BackendHybrid Backend = 1
	// BackendGPUHybrid decodes Huffman codes of large batches on the card, too.
	BackendGPUHybrid Backend = 2
	// BackendHardware uses the JPEG engines of A100, H100, H200 and their like: baseline
	// files in one scan.
	BackendHardware Backend = 3
)

func (b Backend) String() string {
	switch b {
	case BackendHybrid:
		return "hybrid"
	case BackendGPUHybrid:
		return "gpu_hybrid"
	case BackendHardware:
		return "hardware"
	}
	return fmt.Sprintf("Backend(%d)", int(b))
}

const (
	outputRGBI = 5 // nvjpegOutputFormat_t: interleaved RGB
	// interpolate is NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION, of nvJPEG 12.1 and newer:
	// chroma is upsampled as libjpeg does it by default, with a triangle filter.
	interpolate = 1 << 5
)

// Codec is nvJPEG for a device and a backend. What it allocates, on the card and pinned, is
// counted and bounded, and taken from the context like everything else. Its methods and
// those of its States may be called by one goroutine at a time.
type Codec struct {
	context *Context
	nvjpeg  *NVJPEG
	backend Backend
	handle  uintptr
	stream  uintptr // of nvJPEG: a file's header
	params  []uintptr
	memory  *allocations
	// nvJPEG may keep pointers to them.
	device, pinned allocator
}

// allocator is an nvjpegDevAllocatorV2_t or nvjpegPinnedAllocatorV2_t.
type allocator struct{ malloc, free, context uintptr }

// NewCodec starts nvJPEG. device and pinned bound in bytes what it may take of the card's
// memory and of pinned memory of the host; 0 is no bound. Close it at the end.
func (c *Context) NewCodec(n *NVJPEG, b Backend, device, pinned int64) (*Codec, error) {
	x := &Codec{context: c, nvjpeg: n, backend: b, memory: newAllocations(c, device, pinned)}
	call := callbacks()
	x.device = allocator{call.mallocDevice, call.free, x.memory.number}
	x.pinned = allocator{call.mallocPinned, call.free, x.memory.number}
	flags := uintptr(0)
	if n.version[0] > 12 || n.version[0] == 12 && n.version[1] >= 1 {
		flags = interpolate
	}
	f := &n.f
	err := x.call(&f.create, uintptr(b), uintptr(unsafe.Pointer(&x.device)), uintptr(unsafe.Pointer(&x.pinned)), flags, uintptr(unsafe.Pointer(&x.handle)))
	if err == nil {
		err = x.call(&f.streamCreate, x.handle, uintptr(unsafe.Pointer(&x.stream)))
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// Backend is that of NewCodec.
func (x *Codec) Backend() Backend { return x.backend }

// Engines is how many JPEG engines the card has, and how many cores each of them.
func (x *Codec) Engines() (engines, cores int, err error) {
	var e, c uint32
	err = x.call(&x.nvjpeg.f.hardwareInfo, x.handle, uintptr(unsafe.Pointer(&e)), uintptr(unsafe.Pointer(&c)))
	return int(e), int(c), err
}

// Memory is what nvJPEG holds now of the card's memory and of pinned memory, in bytes.
func (x *Codec) Memory() (device, pinned int64) { return x.memory.held() }

// Close frees all but the memory of States: close these before. No work of theirs may be
// left in a stream.
func (x *Codec) Close() error {
	f := &x.nvjpeg.f
	var faults []error
	for _, p := range x.params {
		faults = append(faults, x.call(&f.paramsDestroy, p))
	}
	if x.stream != 0 {
		faults = append(faults, x.call(&f.streamDestroy, x.stream))
	}
	if x.handle != 0 {
		faults = append(faults, x.call(&f.destroy, x.handle))
	}
	x.params, x.stream, x.handle = nil, 0, 0
	return errors.Join(append(faults, x.memory.close())...)
}

// call calls a function of nvJPEG with the context current. Where it has failed by what
// the driver has answered to our allocator, that is the error.
//
//go:uintptrescapes
func (x *Codec) call(p *proc, args ...uintptr) error {
	x.memory.forget()
	err := x.context.within(p.name, func() error { return x.nvjpeg.check(p, args...) })
	if err == nil {
		return nil
	}
	if fault := x.memory.fault(); fault != nil {
		return x.context.wrap(fmt.Errorf("%s: %w", p.name, fault))
	}
	var e *NVJPEGError
	if errors.As(err, &e) && (e.Status == nvjpegExecutionFailed || e.Status == nvjpegInternalError) {
		// CUDA refused it something; the driver may know what.
		if fault := x.context.Synchronize(); fault != nil {
			return fmt.Errorf("%w: %w", err, fault)
		}
	}
	return x.context.wrap(err)
}

// Region is a part of an image in pixels, as it is stored; a Width of 0 is all of it.
type Region struct{ X, Y, Width, Height int }

// param is the i-th nvjpegDecodeParams_t.
func (x *Codec) param(i int, r Region) (uintptr, error) {
	f := &x.nvjpeg.f
	for len(x.params) <= i {
		var p uintptr
		if err := x.call(&f.paramsCreate, x.handle, uintptr(unsafe.Pointer(&p))); err != nil {
			return 0, err
		}
		x.params = append(x.params, p)
		if err := x.call(&f.paramsSetFormat, p, outputRGBI); err != nil {
			return 0, err
		}
	}
	if r.Width == 0 {
		r = Region{0, 0, -1, -1}
	}
	return x.params[i], x.call(&f.paramsSetROI, x.params[i], uintptr(r.X), uintptr(r.Y), uintptr(r.Width), uintptr(r.Height))
}

// Supports says whether the backend decodes a region of a file, by the file's header, in
// a batch.
func (x *Codec) Supports(data []byte, r Region) (bool, error) {
	f := &x.nvjpeg.f
	err := x.call(&f.streamParse, x.handle, uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)), x.stream)
	if errors.Is(err, ErrJPEG) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	p, err := x.param(0, r)
	if err != nil {
		return false, err
	}
	var not int32
	err = x.call(&f.supported, x.handle, x.stream, p, uintptr(unsafe.Pointer(&not)))
	if errors.Is(err, ErrJPEG) {
		return false, nil
	}
	return err == nil && not == 0, err
}

// State is what nvJPEG needs to decode one batch at a time.
type State struct {
	codec  *Codec
	handle uintptr
	// What the library is given, and may look at until the batch is done.
	data    []uintptr
	sizes   []uintptr
	images  []image
	params  []uintptr
	pinning runtime.Pinner
}

// image is an nvjpegImage_t.
type image struct {
	channel [4]uintptr
	pitch   [4]uintptr
}

// NewState makes one; Close it.
func (x *Codec) NewState() (*State, error) {
	s := &State{codec: x}
	return s, x.call(&x.nvjpeg.f.stateCreate, x.handle, uintptr(unsafe.Pointer(&s.handle)))
}

// Close frees it. Its work must be done.
func (s *State) Close() error {
	s.pinning.Unpin()
	if s.handle == 0 {
		return nil
	}
	h := s.handle
	s.handle = 0
	return s.codec.call(&s.codec.nvjpeg.f.stateDestroy, h)
}

// JPEG is a file to decode.
type JPEG struct {
	// Data is whole, and should be pinned.
	Data []byte
	// Region is what is wanted of it; other than all, only of BackendHardware.
	Region Region
	// Dst takes interleaved RGB, the rows Pitch bytes apart.
	Dst   Pointer
	Pitch int
}

// Decode puts the decoding of a batch into a stream. The files must be such as Supports has
// said yes to. Their Data must stay as it is, and the state not be used, until it is
// done. threads is how many threads of the CPU may help.
//
// BackendHardware does not wait for the stream before it writes to Dst, whatever CUDA's
// rules say (seen by others on H100 with nvJPEG 12.3 to 13.2): all that still uses Dst must
// have been waited for by the host.
//
// On ErrJPEG, one of the files, it is not known which, is not decoded; others may be,
// when the stream is done. The state may be used again then.
func (s *State) Decode(files []JPEG, threads int, stream Stream) error {
	f := &s.codec.nvjpeg.f
	s.pinning.Unpin()
	s.data, s.sizes, s.images, s.params = s.data[:0], s.sizes[:0], s.images[:0], s.params[:0]
	regions := false
	for i := range files {
		j := &files[i]
		p := unsafe.SliceData(j.Data)
		s.pinning.Pin(p)
		s.data, s.sizes = append(s.data, uintptr(unsafe.Pointer(p))), append(s.sizes, uintptr(len(j.Data)))
		s.images = append(s.images, image{channel: [4]uintptr{uintptr(j.Dst)}, pitch: [4]uintptr{uintptr(j.Pitch)}})
		regions = regions || j.Region.Width != 0
	}
	if err := s.codec.call(&f.initialize, s.codec.handle, s.handle, uintptr(len(files)), uintptr(threads), outputRGBI); err != nil {
		return err
	}
	if !regions {
		return s.codec.call(&f.decode, s.codec.handle, s.handle, uintptr(unsafe.Pointer(&s.data[0])), uintptr(unsafe.Pointer(&s.sizes[0])), uintptr(unsafe.Pointer(&s.images[0])), uintptr(stream))
	}
	for i := range files {
		p, err := s.codec.param(i, files[i].Region)
		if err != nil {
			return err
		}
		s.params = append(s.params, p)
	}
	return s.codec.call(&f.decodeROI, s.codec.handle, s.handle, uintptr(unsafe.Pointer(&s.data[0])), uintptr(unsafe.Pointer(&s.sizes[0])), uintptr(unsafe.Pointer(&s.images[0])), uintptr(unsafe.Pointer(&s.params[0])), uintptr(stream))
}

// allocations are what a Codec's nvJPEG has taken. nvJPEG calls from threads of its own,
// too.
type allocations struct {
	context *Context
	number  uintptr

	mu      sync.Mutex
	limit   [2]int64 // of the card's memory, of pinned memory
	bytes   [2]int64
	taken   map[uintptr]codecMemory
	refused error
	freeing []error
}

type codecMemory struct {
	kind int
	size int64
	host []byte
}

const (
	onDevice = iota
	onHost
)

// codecs are the allocations by their numbers, which is what nvJPEG is given to call back
// with, in place of a pointer of Go's.
var codecs = struct {
	sync.Mutex
	next uintptr
	all  map[uintptr]*allocations
}{all: map[uintptr]*allocations{}}

func newAllocations(c *Context, device, pinned int64) *allocations {
	codecs.Lock()
	defer codecs.Unlock()
	codecs.next++
	a := &allocations{context: c, number: codecs.next, limit: [2]int64{device, pinned}, taken: map[uintptr]codecMemory{}}
	codecs.all[a.number] = a
	return a
}

// close ends the callbacks; nothing may be left.
func (a *allocations) close() error {
	codecs.Lock()
	delete(codecs.all, a.number)
	codecs.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.taken); n > 0 {
		a.freeing = append(a.freeing, fmt.Errorf("nvJPEG has left %d allocations, %d bytes of the GPU's and %d of pinned memory", n, a.bytes[onDevice], a.bytes[onHost]))
	}
	return errors.Join(a.freeing...)
}

func (a *allocations) held() (device, pinned int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bytes[onDevice], a.bytes[onHost]
}

func (a *allocations) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused = nil
}

func (a *allocations) fault() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused
}

// malloc takes memory; 0 where there is none.
func (a *allocations) malloc(kind int, n int64) (p uintptr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var err error
	of := codecMemory{kind: kind, size: n}
	what := [...]string{"the GPU's memory", "pinned memory"}[kind]
	switch limit := a.limit[kind]; {
	case limit > 0 && a.bytes[kind]+n > limit:
		err = fmt.Errorf("%w: nvJPEG asked for %d bytes of %s beside %d that it has, and the bound is %d", ErrOutOfMemory, n, what, a.bytes[kind], limit)
	case kind == onDevice:
		var d Pointer
		d, err = a.context.Alloc(n)
		p = uintptr(d)
	default:
		of.host, err = a.context.AllocHost(n)
		p = uintptr(unsafe.Pointer(unsafe.SliceData(of.host)))
	}
	if err != nil {
		a.refused = err
		return 0
	}
	a.taken[p] = of
	a.bytes[kind] += n
	return p
}

// free gives memory back when the stream is done with it. It says whether that is so.
func (a *allocations) free(p uintptr, s Stream) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	of, ok := a.taken[p]
	if !ok {
		a.freeing = append(a.freeing, fmt.Errorf("nvJPEG has freed %#x, which it does not have", p))
		return false
	}
	err := a.context.SynchronizeStream(s)
	if err == nil || errors.Is(err, ErrContextLost) {
		if of.kind == onDevice {
			err = errors.Join(err, a.context.Free(Pointer(p)))
		} else {
			err = errors.Join(err, a.context.FreeHost(of.host))
		}
	}
	delete(a.taken, p)
	a.bytes[of.kind] -= of.size
	if err != nil {
		a.freeing = append(a.freeing, err)
	}
	return err == nil
}

// callback is what C calls, addresses of Go functions: there is one set for the process,
// as they are never freed.
type callback struct{ mallocDevice, mallocPinned, free uintptr }

var callbacks = sync.OnceValue(func() callback {
	malloc := func(kind int) func(number, to, n, stream uintptr) uintptr {
		return func(number, to, n, _ uintptr) uintptr {
			a := allocationsOf(number)
			if a == nil {
				return 1
			}
			if n == 0 {
				store(to, 0)
				return 0
			}
			p := a.malloc(kind, int64(n))
			if p == 0 {
				return 1
			}
			store(to, p)
			return 0
		}
	}
	return callback{
		mallocDevice: newCallback(malloc(onDevice)), mallocPinned: newCallback(malloc(onHost)),
		free: newCallback(func(number, p, _, stream uintptr) uintptr {
			if a := allocationsOf(number); a == nil || p != 0 && !a.free(p, Stream(stream)) {
				return 1
			}
			return 0
		}),
	}
})

func allocationsOf(number uintptr) *allocations {
	codecs.Lock()
	defer codecs.Unlock()
	return codecs.all[number]
}

// store writes to memory of C's, whose address is an argument that C has given.
func store(to, value uintptr) { **(**uintptr)(unsafe.Pointer(&to)) = value }
