package resize

import (
	"testing"

	"shardify/imaging"
)

func BenchmarkResize(b *testing.B) {
	var src, dst imaging.Image
	src.Reset(500, 375)
	for i := range src.Pix {
		src.Pix[i] = uint8(i * 7)
	}
	dst.Reset(224, 224)
	for f := range filters {
		b.Run(Filter(f).String(), func(b *testing.B) {
			var z Resizer
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++ // never the same weights
				r := Rect{float64(i%7) / 8, float64(i%5) / 8, 500, 375}
				if err := z.Resize(&dst, &src, r, Filter(f)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
