package gpu

import (
	"math"

	"golang.org/x/sys/unix"
)

func inspectHost() HostInfo {
	h := HostInfo{Lockable: -1}
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) == nil {
		h.Memory = int64(s.Totalram) * int64(s.Unit)
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil && limit.Cur <= math.MaxInt64 {
		h.Lockable = int64(limit.Cur)
	}
	return h
}
