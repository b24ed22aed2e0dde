//go:build race

package pixel

// every thins out the random cases under the race detector, which slows them
// tenfold and has nothing to find in them.
const every = 8
