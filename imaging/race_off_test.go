//go:build !race

package imaging

const every = 1
