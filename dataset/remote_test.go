package dataset_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/store"
	"shardify/store/mem"
)

// distant is a store behind a network, whose reads of shards wait for each other until so
// many are under way.
type distant struct {
	store.Store
	t        *testing.T
	together int64
	waiting  *atomic.Int64
	enough   chan struct{}
}

func (d distant) URL() string { return "test://distant" }

func (d distant) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := d.Store.Open(ctx, name)
	if err != nil || !strings.HasSuffix(name, ".tar") {
		return o, err
	}
	return distantObject{o, d}, nil
}

type distantObject struct {
	store.Object
	d distant
}

func (o distantObject) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if o.d.waiting.Add(1) == o.d.together {
		close(o.d.enough)
	}
	select {
	case <-o.d.enough:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(time.Minute):
		o.d.t.Errorf("only %d of %d ranges are asked for at once", o.d.waiting.Load(), o.d.together)
	}
	return o.Object.ReadAt(ctx, p, off)
}

// Behind a network, shards are begun while others are read, whatever the workers are; what
// is found is the same.
func TestManyAtOnce(t *testing.T) {
	inner := mem.New()
	datasettest.Write(t, inner, datasettest.Options{Shards: 24})
	found, want := verify(t, inner, dataset.VerifyOptions{Workers: 2})
	if len(found) > 0 || want.Shards != 24 {
		t.Fatalf("%+v, %v", want, found)
	}
	far := func() distant {
		return distant{inner, t, 20, new(atomic.Int64), make(chan struct{})}
	}
	if found, got := verify(t, far(), dataset.VerifyOptions{Workers: 2}); got != want || len(found) > 0 {
		t.Errorf("verify finds %+v, want %+v; %v", got, want, found)
	}
	m, bad, err := indexAll(t, far(), dataset.IndexOptions{Workers: 2, Force: true})
	if err != nil || len(bad) > 0 || m.Samples() != want.Samples {
		t.Fatalf("index: %d samples, want %d; %v, %v", m.Samples(), want.Samples, bad, err)
	}
	if found, got := verify(t, inner, dataset.VerifyOptions{}); got.Samples != want.Samples || len(found) > 0 {
		t.Errorf("what was indexed: %+v, %v", got, found)
	}
}
