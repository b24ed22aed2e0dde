package table

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"shardify/store"
	"shardify/store/mem"
)

// bucket is a store that lists, and counts what it is asked.
type bucket struct {
	store.Store
	lists, stats atomic.Int64
}

func (b *bucket) ListFrom(ctx context.Context, prefix, after string, folders bool) iter.Seq2[store.Info, error] {
	b.lists.Add(1)
	return store.ListFrom(ctx, b.Store, prefix, after, folders)
}

func (b *bucket) Stat(ctx context.Context, name string) (store.Info, error) {
	b.stats.Add(1)
	return store.Stat(ctx, b.Store, name)
}

// The objects that rows name are looked for in lists, in whatever order; what is not found
// there is asked for. The rows are what they are when each object is asked for.
func TestStoreAsksSeldom(t *testing.T) {
	memory := mem.New()
	const n = 3000
	rows := []string{"none/1.jpg,0,not there", "../x.jpg,1,no name"}
	for i := range n {
		name := fmt.Sprintf("c%d/%d.jpg", i%7, i)
		if err := store.WriteAll(t.Context(), memory, name, fmt.Appendf(nil, "image %d", i)); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, fmt.Sprintf("%s,%d,number %d", name, i%7, i))
	}
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	path := write(t, "t.csv", "path,label,caption\n"+strings.Join(rows, "\n")+"\n")
	want := lines(t, openTable(t, path, Config{Store: memory}))
	st := &bucket{Store: memory}
	got := lines(t, openTable(t, path, Config{Store: st}))
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], memory.URL(), st.URL())
	}
	if !slices.Equal(got, want) || len(want) != 2*n+2 {
		t.Errorf("%d lines, want %d", len(got), len(want))
	}
	if st.lists.Load() > n/1000+2 || st.stats.Load() != 1 {
		t.Errorf("%d lists and %d stats for %d rows", st.lists.Load(), st.stats.Load(), n)
	}
}
