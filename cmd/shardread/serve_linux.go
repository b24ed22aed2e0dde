package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// stepBack sets the niceness of all threads of the process. Threads that are started
// later have that of the one that starts them.
func stepBack(nice int) error {
	for changed := true; changed; {
		changed = false
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil {
				return err
			}
			// The system call returns 20 less the niceness.
			if at, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err != nil || 20-at >= nice {
				continue // it has ended, or is as nice
			}
			if err := unix.Setpriority(unix.PRIO_PROCESS, tid, nice); err != nil && err != unix.ESRCH {
				return os.NewSyscallError("setpriority", err)
			}
			changed = true
		}
	}
	return nil
}

// machineMemory is the memory of the machine, or of the container that the process is
// in, whichever is less.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	least := int64(1) << 62
	if unix.Sysinfo(&info) == nil {
		least = int64(info.Totalram) * int64(info.Unit)
	}
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return least
	}
	for line := range bytes.Lines(data) {
		parts := bytes.SplitN(bytes.TrimSpace(line), []byte(":"), 3)
		if len(parts) != 3 {
			continue
		}
		root, file := "/sys/fs/cgroup", "memory.max"
		if len(parts[1]) > 0 {
			if string(parts[1]) != "memory" {
				continue
			}
			root, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		// Every group above it limits it, too; a container sees its own as the root.
		for path := filepath.Join("/", string(parts[2])); ; path = filepath.Dir(path) {
			if text, err := os.ReadFile(filepath.Join(root, path, file)); err == nil {
				if n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64); err == nil {
					least = min(least, n)
				}
			}
			if path == "/" {
				break
			}
		}
	}
	return least
}
