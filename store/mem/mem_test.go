package mem

import (
	"testing"

	"shardify/store"
	"shardify/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return New() })
}
