//go:build !linux

package main

import "runtime"

// peakMemory is the memory that Go's runtime has had from the system, in bytes.
func peakMemory() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys)
}
