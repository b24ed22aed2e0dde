package file

import (
	"fmt"
	"testing"
	"time"

	"shardify/store"
)

// BenchmarkWrite writes a shard in pieces of 1 MiB and commits it; commit-ms is
// the part of it that Commit takes.
func BenchmarkWrite(b *testing.B) {
	for _, mib := range []int{1, 64, 1024} {
		b.Run(fmt.Sprintf("%dMiB", mib), func(b *testing.B) {
			s := New(b.TempDir())
			piece := make([]byte, 1<<20)
			for i := range piece {
				piece[i] = byte(i * 7)
			}
			b.SetBytes(int64(mib) << 20)
			var commit time.Duration
			for b.Loop() {
				w, err := s.Create(b.Context(), "a")
				if err != nil {
					b.Fatal(err)
				}
				for range mib {
					if _, err := w.Write(piece); err != nil {
						b.Fatal(err)
					}
				}
				start := time.Now()
				if err := w.Commit(b.Context()); err != nil {
					b.Fatal(err)
				}
				commit += time.Since(start)
			}
			b.ReportMetric(float64(commit.Milliseconds())/float64(b.N), "commit-ms/op")
		})
	}
}

// BenchmarkReadAt reads an object from the page cache.
func BenchmarkReadAt(b *testing.B) {
	s := New(b.TempDir())
	if err := store.WriteAll(b.Context(), s, "a", make([]byte, 64<<20)); err != nil {
		b.Fatal(err)
	}
	o, err := s.Open(b.Context(), "a")
	if err != nil {
		b.Fatal(err)
	}
	defer o.Close()
	for _, size := range []int{4 << 10, 110 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			p := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			off := int64(0)
			for b.Loop() {
				if _, err := o.ReadAt(b.Context(), p, off); err != nil {
					b.Fatal(err)
				}
				if off += int64(size); off > 63<<20 {
					off = 0
				}
			}
		})
	}
}
