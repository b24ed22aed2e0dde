//go:build !amd64 || purego

package simd

const best = Generic
