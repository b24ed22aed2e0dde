//go:build !unix

package main

import (
	"errors"
	"syscall"
)

func ignoreBrokenPipe() {}

// The errors of Windows for a pipe that nobody reads: ERROR_BROKEN_PIPE and
// ERROR_NO_DATA.
func isBrokenPipe(err error) bool {
	return errors.Is(err, syscall.Errno(109)) || errors.Is(err, syscall.Errno(232))
}
