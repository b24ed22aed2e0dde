package s3_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"shardify/store"
	"shardify/store/s3"
	"shardify/store/s3/s3test"
	"shardify/store/storetest"
)

func newStore(t testing.TB, url string, c s3.Config) *s3.Store {
	t.Helper()
	s, err := s3.New(t.Context(), url, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The suite runs with parts of 5 MiB, so that its largest object is an upload of two.
func TestConformance(t *testing.T) {
	for name, start := range s3test.Servers() {
		t.Run(name, func(t *testing.T) {
			server := start(t)
			server.Setenv(t, server.Endpoint)
			var n atomic.Int64
			storetest.RunChanged(t, func(t *testing.T) store.Store {
				return newStore(t, fmt.Sprintf("s3://%s/%d", s3test.Bucket, n.Add(1)), s3.Config{PartSize: 5 << 20})
			})
		})
	}
}
