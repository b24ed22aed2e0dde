package reader

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"shardify/dataset/datasettest"
	"shardify/imaging/augment"
	"shardify/imaging/transform"
)

// blended is what a batch says of its blending.
type blended struct {
	blend    Blend
	images   []float64
	labels   []int64
	partners []int64
	soft     []float32
	samples  []int64
}

func blendedEpoch(t *testing.T, r *Reader, epoch int) (all []blended) {
	t.Helper()
	for b, err := range r.Epoch(context.Background(), epoch) {
		if err != nil {
			t.Fatal(err)
		}
		var c blended
		images := b.Images()
		for _, v := range floats(images) {
			c.images = append(c.images, float64(v))
		}
		c.labels, c.samples = slices.Clone(b.Labels()), slices.Clone(b.Samples())
		var ok bool
		if c.blend, ok = b.Blend(); ok {
			partners, found := b.Tensor("partner_label")
			if !found || !slices.Equal(partners.Shape, []int{b.Len()}) {
				t.Fatalf("%+v", partners)
			}
			c.partners = slices.Clone(partners.Int64())
			if soft, found := b.Tensor("soft_label"); found {
				if !slices.Equal(soft.Shape, []int{b.Len(), r.Config().Classes}) {
					t.Fatalf("%+v", soft)
				}
				c.soft = slices.Clone(soft.Float32())
			} else if r.Config().Classes > 0 {
				t.Fatal("no soft labels")
			}
		}
		b.Release()
		all = append(all, c)
	}
	return all
}

// checkBlend compares an epoch with the same one that is not blended.
func checkBlend(t *testing.T, got, plain []blended, layout Layout, side, classes int) {
	t.Helper()
	if len(got) != len(plain) {
		t.Fatalf("%d batches, %d", len(got), len(plain))
	}
	for k, b := range got {
		n, size := len(b.samples), 3*side*side
		if !slices.Equal(b.samples, plain[k].samples) || !slices.Equal(b.labels, plain[k].labels) {
			t.Fatalf("batch %d has samples %v and labels %v; want %v and %v", k, b.samples, b.labels, plain[k].samples, plain[k].labels)
		}
		g := b.blend.Region
		if !b.blend.Cut && g != (augment.Region{}) || b.blend.Lambda < 0 || b.blend.Lambda > 1 {
			t.Fatalf("batch %d: %+v", k, b.blend)
		}
		for i := range n {
			p := (i + n - 1) % n
			if b.partners[i] != b.labels[p] {
				t.Fatalf("batch %d: partners %v of labels %v", k, b.partners, b.labels)
			}
			if classes > 0 {
				want := make([]float64, classes)
				want[b.labels[i]] += b.blend.Lambda
				want[b.labels[p]] += 1 - b.blend.Lambda
				for c := range want {
					if math.Abs(want[c]-float64(b.soft[i*classes+c])) > 1e-6 {
						t.Fatalf("batch %d: soft label %v; want %v", k, b.soft[i*classes:][:classes], want)
					}
				}
			}
			for at := range size {
				y, x := at/side%side, at%side
				if layout == LayoutNHWC {
					y, x = at/(3*side), at/3%side
				}
				own, other := plain[k].images[i*size+at], plain[k].images[p*size+at]
				want := own
				if !b.blend.Cut {
					want = own*b.blend.Lambda + other*(1-b.blend.Lambda)
				} else if x >= g.X && x < g.X+g.Width && y >= g.Y && y < g.Y+g.Height {
					want = other
				}
				if v := b.images[i*size+at]; math.Abs(v-want) > 2e-6*math.Max(1, math.Abs(want)) {
					t.Fatalf("batch %d %+v: image %d has %v at (%d, %d); want %v", k, b.blend, i, v, x, y, want)
				}
			}
		}
	}
}

// Blended batches are those of the epoch without, blended as Blend says, with labels that
// say so, in both layouts and types, with any workers.
func TestBlend(t *testing.T) {
	d := small(t, datasettest.Options{})
	const side = 10
	list := transform.List{transform.RandomResizedCrop{Size: transform.Size{side}}, transform.RandomHorizontalFlip{}}
	kinds := map[bool]int{}
	for _, c := range []Config{
		{MixUp: &augment.MixUp{}, DType: DTypeFloat32, Transform: append(slices.Clone(list), transform.ImageNet)},
		{CutMix: &augment.CutMix{Alpha: 2}, DType: DTypeFloat32, Layout: LayoutNHWC},
		{CutMix: &augment.CutMix{}, Layout: LayoutNHWC, Classes: 9},
		{CutMix: &augment.CutMix{}, Classes: -1},
		{CutMix: &augment.CutMix{}, DType: DTypeFloat16},
		{CutMix: &augment.CutMix{}, DType: DTypeBFloat16, Layout: LayoutNHWC},
		{CutMix: &augment.CutMix{}, MixUp: &augment.MixUp{Alpha: 0.2}, DType: DTypeFloat32},
	} {
		c.BatchSize, c.Seed, c.Ends = 4, 3, EndsExact
		if c.Transform == nil {
			c.Transform = list
		}
		without := c
		without.MixUp, without.CutMix, without.Classes = nil, nil, 0
		classes := map[int]int{0: 5, 9: 9, -1: 0}[c.Classes]
		for epoch := range 2 {
			plain := blendedEpoch(t, newReader(t, d, without), epoch)
			c.Workers = 1 + 4*epoch
			got := blendedEpoch(t, newReader(t, d, c), epoch)
			checkBlend(t, got, plain, c.Layout, side, classes)
			if c.MixUp != nil && c.CutMix != nil {
				for _, b := range got {
					kinds[b.blend.Cut]++
				}
			}
		}
	}
	if kinds[true] < 3 || kinds[false] < 3 {
		t.Errorf("of both, one is chosen how often: %v", kinds)
	}
}

// What is drawn depends on seed, epoch and batch, not on the world or the rank; where
// damaged samples are left out, the others are blended with each other.
func TestBlendWorlds(t *testing.T) {
	list := transform.List{transform.CenterCrop{Size: transform.Size{8}}}
	c := Config{Seed: 3, Transform: list, DType: DTypeFloat32, MixUp: &augment.MixUp{}, CutMix: &augment.CutMix{}, Ends: EndsExact, Lanes: 4}
	d := small(t, datasettest.Options{})
	read := func(epoch, batch, world, rank int, seed uint64) (drawn []Blend) {
		c := c
		c.BatchSize, c.World, c.Rank, c.Seed = batch, world, rank, seed
		for _, b := range blendedEpoch(t, newReader(t, d, c), epoch) {
			drawn = append(drawn, b.blend)
		}
		return drawn
	}
	want := read(0, 8, 1, 0, 3)
	for rank := range 2 {
		if got := read(0, 4, 2, rank, 3); !slices.Equal(got, want) {
			t.Errorf("rank %d: %+v; want %+v", rank, got, want)
		}
	}
	if slices.Equal(read(1, 8, 1, 0, 3), want) || slices.Equal(read(0, 8, 1, 0, 4), want) {
		t.Error("another epoch or seed draws the same")
	}
}

func TestBlendDamaged(t *testing.T) {
	list := transform.List{transform.CenterCrop{Size: transform.Size{8}}}
	for _, bad := range []OnBad{OnBadSkip, OnBadSubstitute} {
		d := small(t, datasettest.Options{})
		damage(t, d, 10, 3, 12, 13, 14, 15, 20)
		c := Config{BatchSize: 4, Shuffle: ShuffleNone, Transform: list, OnBad: bad}
		plain := blendedEpoch(t, newReader(t, d, c), 0)
		c.CutMix = &augment.CutMix{}
		got := blendedEpoch(t, newReader(t, d, c), 0)
		checkBlend(t, got, plain, c.Layout, 8, 5)
		if n := len(got[3].samples); bad == OnBadSkip && n != 0 {
			t.Errorf("%d samples in the batch of damaged ones", n)
		}
	}
}

// A sample whose label has no place in a soft label is damaged, and says what to do.
func TestBlendLabels(t *testing.T) {
	d := small(t, datasettest.Options{Make: func(n, classes int) datasettest.Made {
		m := datasettest.Sample(n, classes)
		if n%7 == 3 {
			m.Label = -1
		}
		return m
	}})
	list := transform.List{transform.CenterCrop{Size: transform.Size{8}}}
	c := Config{BatchSize: 5, Shuffle: ShuffleNone, Transform: list, CutMix: &augment.CutMix{}}
	end := func(c Config) (n int, err error) {
		for b, e := range newReader(t, d, c).Epoch(context.Background(), 0) {
			if e != nil {
				return n, e
			}
			n += b.Len()
			b.Release()
		}
		return n, nil
	}
	var one *SampleError
	if _, err := end(c); !errors.As(err, &one) || one.Sample != 3 || !strings.Contains(err.Error(), "its label is -1, and soft labels are of the classes 0 to 4") {
		t.Error(err)
	}
	c.OnBad = OnBadSkip
	if n, err := end(c); err != nil || n != 34 {
		t.Errorf("%d samples, %v", n, err)
	}
	c.OnBad = OnBadSubstitute
	if n, err := end(c); err != nil || n != 40 {
		t.Errorf("%d samples, %v", n, err)
	}
	c.OnBad, c.Classes = "", 3
	if _, err := end(c); !errors.As(err, &one) || !strings.Contains(err.Error(), "classes 0 to 2") {
		t.Error(err)
	}
	c.Classes = -1
	if n, err := end(c); err != nil || n != 40 {
		t.Errorf("%d samples, %v", n, err)
	}
}

func TestBlendFaults(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{MixUp: &augment.MixUp{}}, `mixup: blends in float32; set dtype to "float32"`},
		{Config{MixUp: &augment.MixUp{Alpha: -1}, DType: DTypeFloat32}, "mixup: alpha is -1"},
		{Config{CutMix: &augment.CutMix{Alpha: math.NaN()}}, "cutmix: alpha is NaN"},
		{Config{CutMix: &augment.CutMix{}, Decode: DecodeNone}, "no images to blend"},
		{Config{CutMix: &augment.CutMix{}, Classes: -2}, "classes: -2"},
		{Config{CutMix: &augment.CutMix{}, Tensors: []TensorSpec{{Field: "cls"}, {Field: "seg.png", Kind: KindMask}}}, `tensor 2 (seg.png): of kind "mask"`},
		{Config{Classes: 3}, "classes: soft labels come with mixup and cutmix only"},
	} {
		if err := c.config.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want %s", c.config, err, c.want)
		}
	}
}
