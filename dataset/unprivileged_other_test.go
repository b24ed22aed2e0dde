//go:build !linux

package dataset_test

import (
	"os"
	"testing"
)

func unprivileged(t *testing.T, f func()) {
	if os.Geteuid() == 0 {
		t.Skip("SKIPPED LOUDLY: root may do everything; run the tests as another user")
	}
	f()
}
