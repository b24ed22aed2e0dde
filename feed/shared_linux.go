package feed

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// newShared makes memory of n bytes that other processes can map: a memfd, which has no
// name and counts as the process's memory, not as a file in /dev/shm. It can never shrink,
// so that no client can make the server's access fail.
func newShared(n int64) (*os.File, []byte, error) {
	fd, err := unix.MemfdCreate("shardread", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return newUnlinked(n) // where a sandbox forbids it
	}
	if err != nil {
		return nil, nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "memfd:shardread")
	data, err := mapShared(f, n)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
		if err != nil {
			err = fmt.Errorf("sealing it: %w", err)
			freeShared(data)
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, data, nil
}

// reserve makes sure that a file has room for n bytes, which a write through a mapping
// could not report.
func reserve(f *os.File, n int64) error {
	return os.NewSyscallError("fallocate", unix.Fallocate(int(f.Fd()), 0, 0, n))
}
