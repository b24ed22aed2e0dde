package gpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"shardify/gpu/internal/cuda"
)

// Info is what a machine offers, and what is missing there.
type Info struct {
	// Problem says why no GPU can be used, and what to do about it; empty where one can.
	Problem string `json:"problem,omitempty"`
	// Library is the file of libcuda, CUDA the newest version that it serves, and Driver
	// the driver's version, where NVML tells it.
	Library string `json:"library,omitempty"`
	CUDA    string `json:"cuda,omitempty"`
	Driver  string `json:"driver,omitempty"`
	// Unread says why the devices have no Reading.
	Unread string `json:"unread,omitempty"`
	// NVJPEG is the library that decodes JPEG on GPUs; nil where there is none that can be
	// used, and NoNVJPEG says why, and what to do about it.
	NVJPEG   *NVJPEGInfo `json:"nvjpeg,omitempty"`
	NoNVJPEG string      `json:"no_nvjpeg,omitempty"`
	// Host is what of the host's memory may be pinned.
	Host    HostInfo     `json:"host"`
	Devices []DeviceInfo `json:"devices"`
}

// HostInfo is the memory that batches lie in, in bytes. The reader's memory bounds it, and
// PinnedConfig.Limit what of that is pinned.
type HostInfo struct {
	// Memory is all that the machine has; 0 where that is not known.
	Memory int64 `json:"memory"`
	// Lockable is the process's limit of locked memory (ulimit -l), under which some
	// systems refuse to pin more; -1: there is none.
	Lockable int64 `json:"lockable"`
}

// NVJPEGInfo is NVIDIA's library for JPEG.
type NVJPEGInfo struct {
	Library string `json:"library"`
	Version string `json:"version"`
}

// JPEGInfo is how a GPU decodes JPEG.
type JPEGInfo struct {
	// Backends are those of nvJPEG that it has, of hardware, gpu_hybrid and hybrid, the
	// fastest first.
	Backends []Backend `json:"backends"`
	// Engines is how many JPEG engines it has, Cores how many cores each of them.
	Engines int `json:"engines"`
	Cores   int `json:"cores"`
}

// DeviceInfo is a GPU.
type DeviceInfo struct {
	// Ordinal is its number among those that CUDA_VISIBLE_DEVICES lets be seen: what Open
	// takes.
	Ordinal int    `json:"ordinal"`
	Name    string `json:"name"`
	UUID    string `json:"uuid"`
	PCI     string `json:"pci"`
	// NUMANode is the part of the machine whose processors and memory are closest; -1
	// where there is none, or it is not known.
	NUMANode int `json:"numa_node"`
	// Memory is in bytes.
	Memory int64 `json:"memory"`
	// Capability is the compute capability: 9.0
	Capability      string `json:"compute_capability"`
	Multiprocessors int    `json:"multiprocessors"`
	// CopyEngines is how many copies can run beside kernels, and each other.
	CopyEngines int `json:"copy_engines"`
	// Kernels: it runs those of this package. Shares: its memory can be shared with other
	// processes by files. Peers are the GPUs whose memory it reaches without a detour.
	Kernels bool  `json:"kernels"`
	Shares  bool  `json:"shares"`
	Peers   []int `json:"peers"`
	// Closed says that no process, or only one, may use it, as `nvidia-smi -c` was told;
	// empty where any number may.
	Closed string `json:"closed,omitempty"`
	// Reading is what the GPU is doing now; nil where NVML does not tell.
	Reading *Reading `json:"reading,omitempty"`
	// JPEG is what InspectJPEG has found.
	JPEG *JPEGInfo `json:"jpeg,omitempty"`
}

// Reading is what a GPU is doing, as NVML tells it.
type Reading = cuda.Reading

// Inspect looks at the machine. It makes no context on a GPU, and takes none of its
// memory.
func Inspect() Info {
	info := Info{Host: inspectHost(), Devices: []DeviceInfo{}}
	d, err := cuda.Default()
	if err != nil {
		info.Problem = err.Error()
		return info
	}
	info.Library, info.CUDA = d.Path(), d.Version().String()
	n, err := d.Devices()
	if err != nil {
		info.Problem = err.Error()
		return info
	}
	if n, err := cuda.OpenNVJPEG(d); err != nil {
		info.NoNVJPEG = err.Error()
	} else {
		info.NVJPEG = &NVJPEGInfo{Library: n.Path(), Version: n.Version()}
	}
	nvml, err := cuda.OpenNVML()
	if err != nil {
		info.Unread = err.Error()
	} else {
		defer func() {
			if err := nvml.Close(); err != nil && info.Unread == "" {
				info.Unread = err.Error()
			}
		}()
		if info.Driver, err = nvml.DriverVersion(); err != nil {
			info.Unread = err.Error()
		}
	}
	all := make([]cuda.Device, n)
	for i := range all {
		if all[i], err = d.Device(i); err != nil {
			info.Problem = err.Error()
			return info
		}
	}
	for i, v := range all {
		one := DeviceInfo{
			Ordinal: i, Name: v.Name, UUID: v.UUID, PCI: v.PCI, NUMANode: numaNode("/sys", v.PCI), Memory: v.Memory,
			Capability: fmt.Sprintf("%d.%d", v.Major, v.Minor), Multiprocessors: v.Multiprocessors, CopyEngines: v.CopyEngines,
			Kernels: runsKernels(v), Shares: v.Shares, Peers: []int{}, Closed: closed[v.Mode],
		}
		for _, other := range all {
			if other.Ordinal == v.Ordinal {
				continue
			}
			yes, err := d.Reaches(v, other)
			if err != nil {
				info.Problem = err.Error()
				return info
			}
			if yes {
				one.Peers = append(one.Peers, other.Ordinal)
			}
		}
		if nvml != nil {
			if r, err := nvml.Read(v.PCI); err != nil {
				info.Unread = err.Error()
			} else {
				one.Reading = &r
			}
		}
		info.Devices = append(info.Devices, one)
	}
	return info
}

// closed says of modes who may use a GPU.
var closed = map[cuda.ComputeMode]string{
	cuda.ModeProhibited: "no process may use it (nvidia-smi -c 0 opens it)",
	cuda.ModeExclusive:  "only one process may use it at a time (nvidia-smi -c 0 opens it)",
}

// InspectJPEG asks nvJPEG which of its backends each GPU has, and completes what Inspect has
// returned. Nothing but nvJPEG knows, and it needs a context: so it makes one on each GPU for
// a moment, which takes some 500 MB there, and fails on one that another process has for
// itself.
func (i *Info) InspectJPEG() error {
	if i.NVJPEG == nil {
		return errors.New(i.NoNVJPEG)
	}
	driver, err := cuda.Default()
	if err != nil {
		return err
	}
	n, err := cuda.OpenNVJPEG(driver)
	if err != nil {
		return err
	}
	for k := range i.Devices {
		d, err := open(driver, i.Devices[k].Ordinal)
		if err != nil {
			return err
		}
		jpeg, err := d.inspectJPEG(n)
		if err := errors.Join(err, d.Close()); err != nil {
			return err
		}
		i.Devices[k].JPEG = jpeg
	}
	return nil
}

func (d *Device) inspectJPEG(n *cuda.NVJPEG) (*JPEGInfo, error) {
	info := &JPEGInfo{Backends: []Backend{}}
	for _, b := range backends {
		codec, err := d.context.NewCodec(n, b.number, 0, 0)
		if lost := d.context.Lost(); lost != nil {
			return nil, lost
		}
		if err != nil {
			continue // the GPU has no such backend
		}
		info.Backends = append(info.Backends, b.name)
		if b.number == cuda.BackendHardware {
			info.Engines, info.Cores, err = codec.Engines()
		}
		if err := errors.Join(err, codec.Close()); err != nil {
			return nil, err
		}
	}
	return info, nil
}

// numaNode reads a PCI device's node off the file system that lies at sys.
func numaNode(sys, pci string) int {
	text, err := os.ReadFile(filepath.Join(sys, "bus/pci/devices", strings.ToLower(pci), "numa_node"))
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return -1
	}
	return n
}
