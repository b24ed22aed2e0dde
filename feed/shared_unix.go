//go:build unix

package feed

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// newUnlinked is newShared by a file that has lost its name.
func newUnlinked(n int64) (*os.File, []byte, error) {
	f, err := os.CreateTemp("", "shardread-slab-*")
	if err != nil {
		return nil, nil, err
	}
	err = os.Remove(f.Name())
	var data []byte
	if err == nil {
		if err = reserve(f, n); err == nil {
			data, err = mapShared(f, n)
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, data, nil
}

func mapShared(f *os.File, n int64) ([]byte, error) {
	if err := f.Truncate(n); err != nil {
		return nil, err
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return data, os.NewSyscallError("mmap", err)
}

// canShare: memory can be shared with another process.
const canShare = true

// freeShared unmaps memory.
func freeShared(b []byte) {
	if err := unix.Munmap(b); err != nil {
		panic(fmt.Sprintf("feed: unmapping %d bytes: %v", len(b), err)) // not what was mapped
	}
}

// sharedHint is what to do about an error of newShared.
func sharedHint(err error) string {
	switch {
	case errors.Is(err, unix.EMFILE):
		return "; the process may open no more files: raise `ulimit -n`"
	case errors.Is(err, unix.ENFILE):
		return "; the system may open no more files: raise fs.file-max"
	case errors.Is(err, unix.ENOMEM):
		return "; give the server less --memory, or the machine or its container more"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return "; make room in " + os.TempDir() + ", or name another folder in TMPDIR"
	}
	return ""
}

// sendFile writes data with the descriptor of a file.
func sendFile(conn net.Conn, data []byte, f *os.File) error {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("a file cannot be sent over %T", conn)
	}
	n, _, err := u.WriteMsgUnix(data, unix.UnixRights(int(f.Fd())), nil)
	if err == nil && n < len(data) {
		_, err = u.Write(data[n:])
	}
	return err
}
