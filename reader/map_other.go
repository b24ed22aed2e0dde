//go:build !unix

package reader

import "errors"

// mapMemory is not there: memory is taken from Go's heap.
func mapMemory(int64) ([]byte, error) { return nil, errors.ErrUnsupported }

// unmapMemory is never called.
func unmapMemory([]byte) {}
