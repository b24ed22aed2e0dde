//go:build unix

package main

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// peakRSS is the greatest resident memory of a finished process, in bytes.
func peakRSS(s *os.ProcessState) int64 {
	usage, ok := s.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return int64(usage.Maxrss) //nolint:unconvert // an int32 or long on other systems; bytes here, kilobytes there
	}
	return int64(usage.Maxrss) << 10 //nolint:unconvert // as above
}

// processorTime is what this process has used of the processors so far.
func processorTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, os.NewSyscallError("getrusage", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// killTogether has a process that is not to go on, and all that it has started, killed.
func killTogether(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
