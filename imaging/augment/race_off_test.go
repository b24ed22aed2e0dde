//go:build !race

package augment

const every = 1
