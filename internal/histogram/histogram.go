// Package histogram counts durations, for quantiles of waits that are too many to keep.
package histogram

import (
	"math/bits"
	"time"
)

// Durations counts durations in eight steps between powers of two nanoseconds: quantiles
// are within 7%. The zero value is empty. It is not safe for concurrent use.
type Durations struct {
	counts [64 * 8]int64
	n      int64
}

// Add counts one; below 0 it counts as 0.
func (h *Durations) Add(d time.Duration) {
	h.counts[bucket(uint64(max(d, 0)))]++
	h.n++
}

func bucket(v uint64) int {
	if v < 16 {
		return int(v)
	}
	e := bits.Len64(v) - 4 // v>>e is 8 … 15
	return e*8 + int(v>>e)
}

// Quantile returns the middle of the step in which the quantile, 0 to 1, lies; 0 where
// nothing was counted.
func (h *Durations) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := int64(q * float64(h.n-1))
	for i, k := range h.counts {
		if rank -= k; rank < 0 {
			if i < 16 {
				return time.Duration(i)
			}
			e := i/8 - 1
			low := int64(i-e*8) << e
			return time.Duration(low + int64(1)<<e/2)
		}
	}
	return 0
}
