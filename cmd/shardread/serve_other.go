//go:build !linux && !darwin

package main

import (
	"errors"
	"runtime"
)

// stepBack is not there.
func stepBack(int) error { return errors.New("not supported on " + runtime.GOOS) }

// machineMemory is what is taken for the memory of a machine that cannot be asked.
func machineMemory() int64 { return 8 << 30 }
