package resize

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"shardify/imaging/internal/raster"
	"shardify/internal/peers"
	"shardify/internal/simd"
)

func BenchmarkResize(b *testing.B) {
	var src, dst raster.Image
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

// BenchmarkPillow compares with Pillow in one run: the least of many rounds, so that
// other work on the machine does not count.
func BenchmarkPillow(b *testing.B) {
	const rounds = 40
	out, err := exec.Command(peers.Python(b), "-c", `
import sys, time
from PIL import Image
im = Image.frombytes("RGB", (500, 375), bytes(i * 7 & 255 for i in range(3 * 500 * 375)))
for f in sys.argv[2:]:
    best = 1e9
    for i in range(int(sys.argv[1])):
        t = time.perf_counter()
        im.resize((224, 224), Image.Resampling[f], box=(i % 7 / 8, i % 5 / 8, 500, 375))
        best = min(best, time.perf_counter() - t)
    print(best)
`, fmt.Sprint(rounds), "BILINEAR", "BOX", "BICUBIC", "LANCZOS").Output()
	if err != nil {
		b.Fatal(err)
	}
	theirs := strings.Fields(string(out))
	m := raster.Image{}
	m.Reset(500, 375)
	for _, level := range simd.All() {
		for f := range filters {
			b.Run(fmt.Sprint(Filter(f), "/", level), func(b *testing.B) {
				z := at(level)
				dst := raster.Image{Width: 224, Height: 224}
				least := time.Hour
				for b.Loop() {
					for i := range rounds {
						start := time.Now()
						if err := z.Resize(&dst, &m, Rect{float64(i%7) / 8, float64(i%5) / 8, 500, 375}, Filter(f)); err != nil {
							b.Fatal(err)
						}
						least = min(least, time.Since(start))
					}
				}
				var pillow float64
				if _, err := fmt.Sscan(theirs[f], &pillow); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(least.Seconds()*1e6, "µs/image")
				b.ReportMetric(pillow*1e6, "pillow-µs/image")
				b.ReportMetric(pillow/least.Seconds(), "x")
			})
		}
	}
}
