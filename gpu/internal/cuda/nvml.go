package cuda

import (
	"errors"
	"fmt"
	"unsafe"
)

// NVML is NVIDIA's management library: what the card is doing. It is safe for concurrent
// use.
type NVML struct {
	lib *library
	f   nvmlFunctions
}

type nvmlFunctions struct {
	init, shutdown, driverVersion, byPCI                            proc
	utilization, memory, power, powerLimit, temperature, gen, width proc
}

func (f *nvmlFunctions) table() []symbol {
	return []symbol{
		{&f.init, "nvmlInit_v2"},
		{&f.shutdown, "nvmlShutdown"},
		{&f.driverVersion, "nvmlSystemGetDriverVersion"},
		{&f.byPCI, "nvmlDeviceGetHandleByPciBusId_v2"},
		{&f.utilization, "nvmlDeviceGetUtilizationRates"},
		{&f.memory, "nvmlDeviceGetMemoryInfo"},
		{&f.power, "nvmlDeviceGetPowerUsage"},
		{&f.powerLimit, "nvmlDeviceGetEnforcedPowerLimit"},
		{&f.temperature, "nvmlDeviceGetTemperature"},
		{&f.gen, "nvmlDeviceGetCurrPcieLinkGeneration"},
		{&f.width, "nvmlDeviceGetCurrPcieLinkWidth"},
	}
}

var nvmlLibraries = []string{
	"libnvidia-ml.so.1",
	"/usr/local/nvidia/lib64/libnvidia-ml.so.1",
	"/usr/lib/wsl/lib/libnvidia-ml.so.1",
	"/run/opengl-driver/lib/libnvidia-ml.so.1",
}

// OpenNVML loads and starts NVML. paths are where it is looked for, in place of the usual
// ones.
func OpenNVML(paths ...string) (*NVML, error) {
	if len(paths) == 0 {
		paths = nvmlLibraries
	}
	lib, err := load(paths)
	if err != nil {
		return nil, fmt.Errorf("NVML is not available: %w", err)
	}
	n := &NVML{lib: lib}
	if err := lib.bind(n.f.table()); err != nil {
		return nil, fmt.Errorf("NVML is not available: %w", err)
	}
	if err := n.check(&n.f.init); err != nil {
		return nil, fmt.Errorf("NVML is not available: %s: %w", lib.path, err)
	}
	return n, nil
}

// Close ends NVML.
func (n *NVML) Close() error { return n.check(&n.f.shutdown) }

// errNotSupported: NVML_ERROR_NOT_SUPPORTED. The card, or its driver, has no such reading.
var errNotSupported = errors.New("the GPU does not support it")

// check calls a function and makes an error of what it returns.
//
//go:uintptrescapes
func (n *NVML) check(p *proc, args ...uintptr) error {
	const notSupported = 3
	switch r := p.call(args...); r {
	case success:
		return nil
	case notSupported:
		return fmt.Errorf("%s: %w", p.name, errNotSupported)
	default:
		return fmt.Errorf("%s: NVML error %d", p.name, r)
	}
}

// DriverVersion is as nvidia-smi shows it: 580.159.03
func (n *NVML) DriverVersion() (string, error) {
	var text [96]byte
	if err := n.check(&n.f.driverVersion, uintptr(unsafe.Pointer(&text)), uintptr(len(text))); err != nil {
		return "", err
	}
	return stringOf(&text[0]), nil
}

// Reading is what a card is doing now. What it does not tell is -1.
type Reading struct {
	// Busy is the percentage of the last moments during which a kernel ran, MemoryBusy
	// during which memory was read or written.
	Busy       int `json:"busy_percent"`
	MemoryBusy int `json:"memory_busy_percent"`
	// Used and Total are the card's memory, of all processes, in bytes.
	Used  int64 `json:"memory_used"`
	Total int64 `json:"memory_total"`
	// Power and PowerLimit are in milliwatts.
	Power       int `json:"power_mw"`
	PowerLimit  int `json:"power_limit_mw"`
	Temperature int `json:"temperature_celsius"`
	// LinkGeneration and LinkWidth are of the PCIe link as it is now: an idle card takes
	// it down.
	LinkGeneration int `json:"pcie_generation"`
	LinkWidth      int `json:"pcie_width"`
}

// Read reads a card, named by its PCI bus address.
func (n *NVML) Read(pci string) (Reading, error) {
	name := append([]byte(pci), 0)
	var device uintptr
	if err := n.check(&n.f.byPCI, uintptr(unsafe.Pointer(unsafe.SliceData(name))), uintptr(unsafe.Pointer(&device))); err != nil {
		return Reading{}, fmt.Errorf("GPU at %s: %w", pci, err)
	}
	r := Reading{Busy: -1, MemoryBusy: -1, Used: -1, Total: -1}
	var busy struct{ gpu, memory uint32 }
	var memory struct{ total, free, used uint64 }
	if ok, err := n.supported(n.check(&n.f.utilization, device, uintptr(unsafe.Pointer(&busy)))); err != nil {
		return Reading{}, err
	} else if ok {
		r.Busy, r.MemoryBusy = int(busy.gpu), int(busy.memory)
	}
	if ok, err := n.supported(n.check(&n.f.memory, device, uintptr(unsafe.Pointer(&memory)))); err != nil {
		return Reading{}, err
	} else if ok {
		r.Used, r.Total = int64(memory.used), int64(memory.total)
	}
	for _, q := range []struct {
		to *int
		p  *proc
	}{{&r.Power, &n.f.power}, {&r.PowerLimit, &n.f.powerLimit}, {&r.LinkGeneration, &n.f.gen}, {&r.LinkWidth, &n.f.width}} {
		var v uint32
		ok, err := n.supported(n.check(q.p, device, uintptr(unsafe.Pointer(&v))))
		if err != nil {
			return Reading{}, err
		}
		if *q.to = int(v); !ok {
			*q.to = -1
		}
	}
	const sensorGPU = 0
	var celsius uint32
	ok, err := n.supported(n.check(&n.f.temperature, device, sensorGPU, uintptr(unsafe.Pointer(&celsius))))
	if r.Temperature = int(celsius); !ok {
		r.Temperature = -1
	}
	return r, err
}

// supported tells a reading that there is not from one that failed.
func (n *NVML) supported(err error) (bool, error) {
	if errors.Is(err, errNotSupported) {
		return false, nil
	}
	return err == nil, err
}
