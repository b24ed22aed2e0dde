// Package guardtest gives tests memory that ends in a page which may not be
// touched, so that assembly that reads or writes a byte too far is found out.
package guardtest

import "testing"

// Side is where the forbidden page lies.
type Side int

const (
	// After the memory.
	After Side = iota
	// Before it.
	Before
)

// Bytes returns n bytes with a forbidden page right before or right after them, until
// the test ends. Where there is no such thing as a forbidden page, they are plain
// memory.
func Bytes(t testing.TB, n int, side Side) []byte {
	t.Helper()
	return bytes(t, n, side)
}
