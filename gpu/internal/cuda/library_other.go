//go:build !linux || !(amd64 || arm64) || nogpu

package cuda

import (
	"fmt"
	"runtime"
)

type library struct{ path string }

// load refuses: there is no CUDA for macOS, and on Windows it was never tried. The build
// tag nogpu leaves it out on Linux, where it takes the C library to load another one.
func load([]string) (*library, error) {
	if runtime.GOOS == "linux" && (runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64") {
		return nil, fmt.Errorf("this program was built with the tag nogpu, without support for GPUs")
	}
	return nil, fmt.Errorf("GPUs are supported on linux/amd64 and linux/arm64, not on %s/%s", runtime.GOOS, runtime.GOARCH)
}

func (l *library) bind([]symbol) error { panic("cuda: there is no library") }

func (p *proc) call(...uintptr) Code { panic("cuda: there is no library") }

func newCallback(func(a, b, c, d uintptr) uintptr) uintptr { panic("cuda: there is no library") }

func advice(Code) string { return "" }
