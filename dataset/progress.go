package dataset

import "sync/atomic"

// Progress counts what long work has done so far. Whoever started the work may read
// it at any time from another goroutine. The zero value is ready.
type Progress struct {
	// Total is the number of bytes to go through; 0 while it is not known.
	Total atomic.Int64
	// Bytes, Samples and Shards are done.
	Bytes, Samples, Shards atomic.Int64
}
