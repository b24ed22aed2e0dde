//go:build !unix

package guardtest

import "testing"

func bytes(_ testing.TB, n int, _ Side) []byte { return make([]byte, n) }
