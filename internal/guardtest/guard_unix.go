//go:build unix

package guardtest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func bytes(t testing.TB, n int, side Side) []byte {
	page := os.Getpagesize()
	size := (n + page - 1) / page * page
	m, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(m); err != nil {
			t.Error(err)
		}
	})
	for _, guard := range [][]byte{m[:page], m[page+size:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	if side == Before {
		return m[page : page+n : page+n]
	}
	return m[page+size-n : page+size : page+size]
}
