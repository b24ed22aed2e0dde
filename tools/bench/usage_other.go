//go:build !unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"time"
)

// peakRSS: the system does not tell once a process has finished.
func peakRSS(*os.ProcessState) int64 { return 0 }

func processorTime() (time.Duration, error) { return 0, errors.ErrUnsupported }

// killTogether: the process alone is killed here.
func killTogether(cmd *exec.Cmd) { cmd.Cancel = func() error { return cmd.Process.Kill() } }
