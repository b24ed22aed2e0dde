//go:build race

package imaging

// every thins out the longest tests under the race detector, which slows them
// tenfold and has little to find in them.
const every = 8
