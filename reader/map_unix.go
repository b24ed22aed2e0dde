//go:build unix

package reader

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mapMemory maps n bytes of memory of zeros.
func mapMemory(n int64) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes of memory: %w", n, err)
	}
	return b, nil
}

// unmapMemory gives mapped memory back to the system.
func unmapMemory(b []byte) {
	if err := unix.Munmap(b); err != nil {
		panic(fmt.Sprintf("reader: unmapping %d bytes: %v", len(b), err)) // not what mapMemory gave
	}
}
