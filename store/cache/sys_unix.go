//go:build unix

package cache

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func openFile(path string, flag int) (*os.File, error) { return os.OpenFile(path, flag, 0o666) }

// tryLock locks an open file with flock(2), if nobody has. Closing it unlocks it,
// and so does the end of the process.
func tryLock(file *os.File) (bool, error) {
	conn, err := file.SyscallConn()
	if err != nil {
		return false, err
	}
	var locked error
	err = conn.Control(func(fd uintptr) {
		for {
			if locked = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(locked, syscall.EINTR) {
				return
			}
		}
	})
	switch {
	case err != nil:
		return false, err
	case errors.Is(locked, syscall.EWOULDBLOCK):
		return false, nil
	case locked != nil:
		return false, &os.PathError{Op: "lock", Path: file.Name(), Err: locked}
	}
	return true, nil
}
