//go:build !race

package gpu

const racing = false
