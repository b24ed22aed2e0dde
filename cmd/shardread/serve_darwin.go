package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// stepBack sets the niceness of the process.
func stepBack(nice int) error {
	return os.NewSyscallError("setpriority", unix.Setpriority(unix.PRIO_PROCESS, 0, nice))
}

// machineMemory is the memory of the machine.
func machineMemory() int64 {
	if n, err := unix.SysctlUint64("hw.memsize"); err == nil {
		return int64(n)
	}
	return 8 << 30
}
