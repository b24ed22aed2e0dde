//go:build !unix

package feed

func isReset(error) bool { return false }
