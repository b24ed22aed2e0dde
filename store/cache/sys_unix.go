//go:build unix

package cache

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// allocated is what the file takes on the disk.
func allocated(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return 512 * int64(stat.Blocks) //nolint:unconvert // not an int64 everywhere
	}
	return 0
}

// sparse says that what is not written takes no room, as it does anyway.
func sparse(*os.File) error { return nil }
