//go:build !race

package reader

const racing = false
