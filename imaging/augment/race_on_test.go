//go:build race

package augment

// every thins out what only computes.
const every = 16
