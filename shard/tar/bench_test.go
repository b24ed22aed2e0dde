package tar

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"shardify/sample"
	"shardify/shard"
)

// photographs makes n samples of the size of ImageNet's, tiny ones of a kilobyte.
func photographs(n, size int) []sample.Sample {
	all := make([]sample.Sample, n)
	for i := range all {
		all[i] = sample.Sample{Key: fmt.Sprintf("n%08d/n%08d_%d", i, i, i), Fields: []sample.Field{
			{Name: "cls", Data: []byte("123")}, {Name: "jpg", Data: make([]byte, size+i)},
		}}
	}
	return all
}

var benchSizes = []struct {
	name string
	size int
}{{"110KB", 110_000}, {"1KB", 1000}, {"1MB", 1 << 20}}

func BenchmarkWrite(b *testing.B) {
	for _, c := range benchSizes {
		b.Run(c.name, func(b *testing.B) {
			samples := photographs(100, c.size)
			w := Container{}.NewWriter(io.Discard)
			b.SetBytes(int64(c.size))
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, err := w.Write(&samples[i%len(samples)], nil); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

func BenchmarkScan(b *testing.B) {
	for _, c := range benchSizes {
		b.Run(c.name, func(b *testing.B) {
			n := max(100, 20<<20/c.size)
			archive, _ := pack(b, photographs(n, c.size))
			b.SetBytes(int64(len(archive)))
			b.ReportAllocs()
			total := 0
			for b.Loop() {
				for _, err := range (Container{}).Scan(bytes.NewReader(archive), noLimit) {
					if err != nil {
						b.Fatal(err)
					}
					total++
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(total), "ns/sample")
		})
	}
}

func BenchmarkParse(b *testing.B) {
	archive, places := pack(b, photographs(1, 110_000))
	b.SetBytes(places[0].Size)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (Container{}).Parse(archive[:places[0].Size], 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSize(b *testing.B) {
	fields := []shard.FieldSize{{Name: "cls", Size: 3}, {Name: "jpg", Size: 110_000}}
	for b.Loop() {
		Container{}.Size("n01440764/n01440764_10026", fields)
	}
}
