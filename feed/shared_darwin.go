package feed

import (
	"os"

	"golang.org/x/sys/unix"
)

func newShared(n int64) (*os.File, []byte, error) { return newUnlinked(n) }

// reserve makes sure that a file has room for n bytes, which a write through a mapping
// could not report.
func reserve(f *os.File, n int64) error {
	store := unix.Fstore_t{Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: n}
	return os.NewSyscallError("fcntl", unix.FcntlFstore(f.Fd(), unix.F_PREALLOCATE, &store))
}
