package tfrecord

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"shardify/sample"
	"shardify/shard"
)

// photographs makes n samples of the size of ImageNet's.
func photographs(n, size int) []written {
	all := make([]written, n)
	for i := range all {
		all[i] = written{
			sample.Sample{Key: fmt.Sprintf("n%08d/n%08d_%d", i, i, i), Fields: []sample.Field{
				{Name: "cls", Data: []byte("123")}, {Name: "jpg", Data: make([]byte, size+i)},
			}},
			&shard.Facts{Label: 123, LabelName: "n01440764", Image: 1, Format: "jpeg", Colorspace: "RGB", Width: 500, Height: 375, Channels: 3},
		}
	}
	return all
}

var benchSizes = []struct {
	name string
	size int
}{{"110KB", 110_000}, {"1KB", 1000}}

func BenchmarkWrite(b *testing.B) {
	for _, c := range benchSizes {
		b.Run(c.name, func(b *testing.B) {
			samples := photographs(100, c.size)
			w := Container{}.NewWriter(io.Discard)
			b.SetBytes(int64(c.size))
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				s := &samples[i%len(samples)]
				if _, err := w.Write(&s.Sample, s.facts); err != nil {
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
			file, _ := pack(b, photographs(max(100, 20<<20/c.size), c.size))
			b.SetBytes(int64(len(file)))
			b.ReportAllocs()
			total := 0
			for b.Loop() {
				for _, err := range (Container{}).Scan(bytes.NewReader(file), noLimit) {
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
	file, places := pack(b, photographs(1, 110_000))
	b.SetBytes(places[0].Size)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (Container{}).Parse(file, 0); err != nil {
			b.Fatal(err)
		}
	}
}
