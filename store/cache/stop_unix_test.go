//go:build unix

package cache

import (
	"os"
	"syscall"
	"testing"
)

func stop(t *testing.T, p *os.Process) { must(t, p.Signal(syscall.SIGSTOP)) }

func wake(t *testing.T, p *os.Process) { must(t, p.Signal(syscall.SIGCONT)) }
