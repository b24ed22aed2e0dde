//go:build unix

package gpu

import "golang.org/x/sys/unix"

// mapMemory takes n bytes of the system's memory, outside Go's heap, which has no use for
// as much garbage.
func mapMemory(n int64) ([]byte, error) {
	return unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

func unmapMemory(b []byte) error { return unix.Munmap(b) }
