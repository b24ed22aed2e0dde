package file

import (
	"os"

	"golang.org/x/sys/unix"
)

// writeback is after how many bytes a Writer has the kernel start writing them to
// the disk.
const writeback = 8 << 20

// startWriteback has the kernel start writing n bytes from off to the disk; see
// sync_file_range(2). It is a hint: should it fail, or the disk, fsync will tell.
func startWriteback(f *os.File, off, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}
