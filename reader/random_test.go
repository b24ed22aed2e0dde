package reader

import (
	"bytes"
	"testing"

	"shardify/dataset/datasettest"
	"shardify/imaging"
	"shardify/imaging/transform"
)

// Whoever carries the transforms out elsewhere, by Batch.Random, makes the reader's
// pictures: of samples that come several times in an epoch, that stand in for damaged ones,
// and behind such that are left out.
func TestBatchRandom(t *testing.T) {
	list := transform.List{transform.RandomResizedCrop{Size: transform.Size{16}}, transform.RandomHorizontalFlip{}, transform.TrivialAugmentWide{}}
	program, err := transform.Compile(list, transform.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range []OnBad{OnBadSkip, OnBadSubstitute} {
		d := small(t, datasettest.Options{})
		damage(t, d, 10, 3, 14, 16, 39)
		c := Config{
			BatchSize: 8, Seed: 5, Ends: EndsExact, OnBad: policy, MaxBad: -1, Layout: LayoutNHWC, Transform: list,
			Sampling: Sampling{Weights: []Weight{{"label = 0", 3}, {"label = 3", 2}}},
		}
		bare := c
		bare.Transform, bare.Collate = nil, CollateRagged
		here, elsewhere := newReader(t, d, c), newReader(t, d, bare)
		var want [][]byte
		for b, err := range here.Epoch(t.Context(), 1) {
			if err != nil {
				t.Fatal(err)
			}
			for i := range b.Len() {
				want = append(want, bytes.Clone(b.Image(i).Data))
			}
			b.Release()
		}
		var ws transform.Workspace
		var recipe transform.Recipe
		k := 0
		for b, err := range elsewhere.Epoch(t.Context(), 1) {
			if err != nil {
				t.Fatal(err)
			}
			for i := range b.Len() {
				x, random := b.Image(i), b.Random(i)
				m := imaging.Image{Pix: x.Data, Width: x.Shape[1], Height: x.Shape[0], Stride: 3 * x.Shape[1]}
				if err := program.Draw(&recipe, &random, m.Width, m.Height); err != nil {
					t.Fatal(err)
				}
				view, err := recipe.Image(&ws, &m)
				if err != nil {
					t.Fatal(err)
				}
				var got []byte
				for y := range view.Height {
					for x := range view.Width {
						if view.FlipX {
							x = view.Width - 1 - x
						}
						got = append(got, view.Pix[y*view.Stride+3*x:][:3]...)
					}
				}
				if !bytes.Equal(got, want[k]) {
					t.Errorf("%s: picture %d, of sample %d, is another", policy, k, b.Samples()[i])
				}
				k++
			}
			b.Release()
		}
		if k != len(want) || k < 50 {
			t.Errorf("%s: %d pictures, want %d", policy, k, len(want))
		}
	}
}
