package tensor

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"shardify/internal/guardtest"
	"shardify/internal/simd"
)

// numpy's float32, by torchvision's formula: roll(1, 0) * (1 - lam) + x * lam.
func TestMixUp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 2, 5} {
		for _, lambda := range []float64{0, 0.3, 0.77, 1} {
			const size = 12
			batch := make([]float32, n*size)
			for i := range batch {
				batch[i] = float32(r.NormFloat64())
			}
			before := slices.Clone(batch)
			if err := MixUp(batch, make([]float32, size), n, lambda); err != nil {
				t.Fatal(err)
			}
			for i := range batch {
				other := before[(i+(n-1)*size)%(n*size)]
				a, b := float32(other*float32(1-lambda)), float32(before[i]*float32(lambda))
				if want := a + b; batch[i] != want {
					t.Fatalf("%d images, lambda %v: element %d is %v; want %v", n, lambda, i, batch[i], want)
				}
			}
		}
	}
}

// Whatever instructions there are, floats are blended alike, and nothing else is touched.
func TestMixOfAllLengths(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 1))
	floats := func(n int, side guardtest.Side) []float32 {
		b := guardtest.Bytes(t, 4*n, side)
		if n == 0 {
			return nil
		}
		v := unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), n)
		for i := range v {
			v[i] = float32(random.NormFloat64())
		}
		return v
	}
	for _, side := range []guardtest.Side{guardtest.After, guardtest.Before} {
		for n := range 140 {
			image, before := floats(n, side), floats(n, side)
			for _, level := range simd.All() {
				got, want := image, slices.Clone(image)
				if level == simd.Generic {
					got = slices.Clone(image)
				}
				mix(got, before, 0.3, 0.7, level)
				mixGeneric(want, before, 0.3, 0.7)
				if !slices.Equal(got, want) {
					t.Fatalf("%v: %d floats differ from generic", level, n)
				}
			}
		}
	}
}

func TestCutMix(t *testing.T) {
	const n, w, h = 3, 7, 5
	for _, layout := range []Layout{NCHW, NHWC} {
		for _, part := range [][4]int{{2, 1, 3, 4}, {0, 0, w, h}, {6, 4, 1, 1}, {3, 3, 0, 0}} {
			batch := make([]uint8, n*3*w*h)
			for i := range batch {
				batch[i] = uint8(i)
			}
			before := slices.Clone(batch)
			if err := CutMix(batch, make([]uint8, 3*w*h), n, w, h, layout, part[0], part[1], part[2], part[3]); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				for c := range 3 {
					for y := range h {
						for x := range w {
							at := (c*h+y)*w + x
							if layout == NHWC {
								at = (y*w+x)*3 + c
							}
							from := i
							if x >= part[0] && x < part[0]+part[2] && y >= part[1] && y < part[1]+part[3] {
								from = (i + n - 1) % n
							}
							if got, want := batch[i*3*w*h+at], before[from*3*w*h+at]; got != want {
								t.Fatalf("%v, part %v: image %d, channel %d at (%d, %d) is %d; want %d", layout, part, i, c, x, y, got, want)
							}
						}
					}
				}
			}
		}
	}
}

func TestMixingRefusesWhatDoesNotFit(t *testing.T) {
	f, b := make([]float32, 24), make([]uint8, 24)
	for name, err := range map[string]error{
		"no images":       MixUp(f, f, 0, 0.5),
		"a part of one":   MixUp(f, f, 5, 0.5),
		"little memory":   MixUp(f, f[:11], 2, 0.5),
		"lambda":          MixUp(f, f, 2, 1.1),
		"size":            CutMix(b, b, 2, 3, 2, NCHW, 0, 0, 1, 1),
		"layout":          CutMix(b, b, 2, 2, 2, 7, 0, 0, 1, 1),
		"outside":         CutMix(b, b, 2, 2, 2, NCHW, 1, 0, 2, 1),
		"cutmix's memory": CutMix(b, b[:1], 2, 2, 2, NCHW, 0, 0, 1, 1),
		"negative":        CutMix(b, b, 2, 2, 2, NHWC, 0, -1, 1, 1),
	} {
		if err == nil {
			t.Errorf("%s: passed", name)
		}
	}
}

func BenchmarkMix(b *testing.B) {
	const n, size = 32, 3 * 224 * 224
	floats, spare := make([]float32, n*size), make([]float32, size)
	levels, spareLevels := make([]uint8, n*size), make([]uint8, size)
	b.Run("mixup of 32", func(b *testing.B) {
		for b.Loop() {
			if err := MixUp(floats, spare, n, 0.4); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("cutmix of 32", func(b *testing.B) {
		for b.Loop() {
			if err := CutMix(levels, spareLevels, n, 224, 224, NCHW, 50, 60, 100, 120); err != nil {
				b.Fatal(err)
			}
		}
	})
}
