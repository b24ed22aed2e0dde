//go:build !linux

package folder

import (
	"os"
	"testing"
)

func unprivileged(t *testing.T) {
	if os.Geteuid() <= 0 {
		t.Skip("SKIPPED LOUDLY: this user may read everything")
	}
}
