//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"os"
	"path/filepath"
	"strings"
)

// advice says what to do about a driver that is not there (0), or has answered so.
func advice(c Code) string {
	switch c {
	case 0:
		return absent("/")
	case errNoDevice:
		if v, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES"); ok {
			return "; CUDA_VISIBLE_DEVICES=" + v + " hides the GPUs that it does not name: unset it, or name one that nvidia-smi lists"
		}
		return "; the driver is there and sees no GPU: look at nvidia-smi; a container needs `docker run --gpus all`"
	case errStubLibrary:
		return "; this is the stub that the CUDA toolkit has for linking: take its folder out of LD_LIBRARY_PATH"
	case errSystemNotReady:
		return "; on machines with NVSwitch the fabric manager must run: systemctl start nvidia-fabricmanager"
	case errDriverMismatch:
		return "; the library and the kernel's module are of different versions, as after an update: restart the machine, or reload the module nvidia"
	case errCompatNotSupported:
		return "; the CUDA compatibility package does not serve this GPU: take its folder out of LD_LIBRARY_PATH"
	case errUnknown:
		return "; often the kernel's module nvidia_uvm is not loaded: run nvidia-smi or nvidia-modprobe -u once, or restart the machine"
	}
	return ""
}

// absent looks why there is no libcuda, in the file system at root.
func absent(root string) string {
	at := func(path string) bool {
		_, err := os.Stat(filepath.Join(root, path))
		return err == nil
	}
	switch {
	case at("dev/nvidiactl") || at("proc/driver/nvidia/version") || at("dev/dxg"):
		return "; NVIDIA's kernel module is loaded, and its library libcuda.so.1 is not to be found: in a container, run it with the NVIDIA Container Toolkit (docker run --gpus all); else set LD_LIBRARY_PATH to the folder that has it"
	case hasCard(root):
		return "; there is an NVIDIA card, and no driver for it: install NVIDIA's driver (https://www.nvidia.com/drivers, or the system's package nvidia-driver)"
	}
	return "; no NVIDIA card is to be seen here"
}

// hasCard looks for NVIDIA's vendor number on the PCI bus, at a display controller.
func hasCard(root string) bool {
	vendors, _ := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*/vendor"))
	for _, path := range vendors {
		vendor, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(vendor)) != "0x10de" {
			continue
		}
		class, err := os.ReadFile(filepath.Join(filepath.Dir(path), "class"))
		if err == nil && strings.HasPrefix(string(class), "0x03") {
			return true
		}
	}
	return false
}
