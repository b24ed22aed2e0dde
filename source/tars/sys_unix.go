//go:build unix

package tars

import (
	"errors"
	"syscall"
)

// noSpace says whether err is that of a full disk.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
