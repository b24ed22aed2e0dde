//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"fmt"
	"strings"

	"github.com/ebitengine/purego"
)

// library is a shared library that was loaded.
type library struct {
	path   string
	handle uintptr
}

// load loads the first of several libraries that is there.
func load(paths []string) (*library, error) {
	var fault error
	for _, path := range paths {
		handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err == nil {
			return &library{path, handle}, nil
		}
		// A library that is there and does not load says more than one that is not.
		if fault == nil || !strings.Contains(err.Error(), "No such file") {
			fault = err
		}
	}
	return nil, fault
}

// bind looks up functions, and names all that are missing.
func (l *library) bind(symbols []symbol) error {
	var missing []string
	for _, s := range symbols {
		addr, err := purego.Dlsym(l.handle, s.name)
		if err != nil {
			missing = append(missing, s.name)
			continue
		}
		*s.to = proc{s.name, addr}
	}
	if missing != nil {
		return fmt.Errorf("%s lacks %s", l.path, strings.Join(missing, ", "))
	}
	return nil
}

// call calls the function.
//
//go:uintptrescapes
func (p *proc) call(args ...uintptr) Code {
	r, _, _ := purego.SyscallN(p.addr, args...)
	return Code(r)
}

// newCallback makes a function that C may call, from any thread. It is never freed.
func newCallback(f func(a, b, c, d uintptr) uintptr) uintptr { return purego.NewCallback(f) }
