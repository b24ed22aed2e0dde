package transform

import (
	"testing"

	"shardify/imaging/augment"
)

// What is done to a decoded photograph, on one core.
func BenchmarkRecipe(b *testing.B) {
	for _, c := range []struct{ name, list string }{
		{"eval", `[{"resize": 256}, {"center_crop": 224}]`},
		{"train", `[{"random_resized_crop": 224}, "random_horizontal_flip"]`},
		{"trivial", `[{"random_resized_crop": 224}, "random_horizontal_flip", "trivial_augment_wide", {"random_erasing": 0.1}]`},
		{"randaugment", `[{"random_resized_crop": 224}, "random_horizontal_flip", "rand_augment"]`},
		{"simclr", `[{"random_resized_crop": 224}, "random_horizontal_flip", {"color_jitter": {"brightness": 0.8, "contrast": 0.8, "saturation": 0.8, "hue": 0.2, "p": 0.8}}, {"random_grayscale": 0.2}, {"gaussian_blur": {"kernel_size": 23, "p": 0.5}}]`},
	} {
		p, err := Compile(jsonList(b, c.list), Options{})
		if err != nil {
			b.Fatal(err)
		}
		m := picture(500, 375)
		b.Run(c.name+"/draw", func(b *testing.B) {
			b.ReportAllocs()
			var r Recipe
			for n := uint64(0); b.Loop(); n++ {
				random := augment.NewRand(1, 1, n)
				if err := p.Draw(&r, &random, m.Width, m.Height); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/image", func(b *testing.B) {
			b.ReportAllocs()
			var r Recipe
			var ws Workspace
			for n := uint64(0); b.Loop(); n++ {
				random := augment.NewRand(1, 1, n)
				if err := p.Draw(&r, &random, m.Width, m.Height); err != nil {
					b.Fatal(err)
				}
				if _, err := r.Image(&ws, m); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "images/s")
		})
	}
}
