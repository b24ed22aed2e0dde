package main

import (
	"testing"

	"shardify/tools/gendata/jpegenc"
	"shardify/tools/gendata/photo"
)

// One core's photographs a second, from the specification to the file's bytes.
func BenchmarkPhotograph(b *testing.B) {
	painter, enc := photo.NewPainter(photo.NewLibrary()), new(jpegenc.Encoder)
	var data []byte
	var err error
	n, total := uint64(0), 0
	for b.Loop() {
		spec := photo.Draw(1, n)
		n++
		if data, err = enc.Append(data[:0], painter.Paint(&spec), &spec.Options); err != nil {
			b.Fatal(err)
		}
		total += len(data)
	}
	b.SetBytes(int64(total / b.N))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "images/s")
}
