package file

import (
	"path/filepath"
	"testing"

	"shardify/store"
	"shardify/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return New(filepath.Join(t.TempDir(), "not", "made")) })
}
