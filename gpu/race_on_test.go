//go:build race

package gpu

// racing: the race detector makes everything ten times slower.
const racing = true
