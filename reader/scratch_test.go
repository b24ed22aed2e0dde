package reader

import (
	"bytes"
	"context"
	"image"
	"image/png"
	"math/rand/v2"
	"testing"

	"shardify/dataset/datasettest"
	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/transform"
	"shardify/sample"
)

// An image that may need more than the scratch memory has memory of its own while it is
// decoded, and where that is more than there is, it is decoded alone. An index that does
// not know how large it is changes nothing but the budget.
func TestLargeImage(t *testing.T) {
	const side = 2000
	img := image.NewGray(image.Rect(0, 0, side, side))
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range img.Pix[:side*50] {
		img.Pix[i] = byte(rng.Uint32())
	}
	var file bytes.Buffer
	if err := png.Encode(&file, img); err != nil {
		t.Fatal(err)
	}
	d := small(t, datasettest.Options{Samples: 12, Make: func(n, classes int) datasettest.Made {
		m := datasettest.Sample(n, classes)
		if n == 13 || n == 40 {
			m.Fields, m.Paths = []sample.Field{{Name: "cls", Data: []byte("1")}, {Name: "png", Data: file.Bytes()}}, nil
		}
		return m
	}})
	const need = side * side * otherBytes
	c := Config{BatchSize: 4, Transform: transform.List{transform.Resize{Size: transform.Size{32}}, transform.CenterCrop{Size: transform.Size{32}}}, Workers: 2}
	want := epochOf(t, newReader(t, d, c), 0)
	forget := func(r *Reader, all bool) (known int) {
		t.Helper()
		if err := r.warm(); err != nil {
			t.Fatal(err)
		}
		for shard := range d.Manifest().Splits[0].Shards {
			rows, err := r.rows.get(context.Background(), shard)
			if err != nil {
				t.Fatal(err)
			}
			for _, cost := range rows.costs {
				if known++; cost != need {
					t.Errorf("shard %d: %d bytes, want %d", shard, cost, need)
				}
			}
			if all {
				clear(rows.costs)
			}
		}
		return known
	}
	for _, memory := range []int64{16 << 20, 100 << 20} {
		c.Memory = memory
		r := newReader(t, d, c)
		if known := forget(r, false); known != 2 {
			t.Errorf("%d images are known to be large", known)
		}
		if need <= r.scratch.size {
			t.Fatalf("%d bytes of scratch memory", r.scratch.size)
		}
		if got := epochOf(t, r, 0); !equalBatches(got, want) {
			t.Errorf("%d MiB: other batches", memory>>20)
		}
		// Beside it are its file and its batch.
		peak := r.Stats().Memory.Peak
		if alone := need + r.reserved + 16<<20; peak < need || peak > max(memory, alone) {
			t.Errorf("%d MiB: %d bytes were counted", memory>>20, peak)
		}
	}
	c.Memory = 16 << 20
	r := newReader(t, d, c)
	if known := forget(r, true); known != 2 {
		t.Errorf("%d images are known to be large", known)
	}
	if got := epochOf(t, r, 0); !equalBatches(got, want) {
		t.Error("unknown dimensions: other batches")
	}
}

// Pictures of which much is decoded, or made on the way, are made alone, in memory that is
// counted; those that are made together with others stay small.
func TestPicturesInHandAreSmall(t *testing.T) {
	for _, c := range []struct {
		list  transform.List
		side  int
		alone bool
		cost  int64
	}{
		{transform.List{transform.RandomResizedCrop{Size: transform.Size{224}}}, 3000, false, 0},
		{transform.List{transform.RandomResizedCrop{Size: transform.Size{224}}, transform.RandomRotation{Degrees: [2]float64{10, 20}}}, 3000, false, 0},
		{transform.List{transform.RandomRotation{Degrees: [2]float64{10, 20}}, transform.CenterCrop{Size: transform.Size{224}}}, 500, false, 0},
		{transform.List{transform.RandomRotation{Degrees: [2]float64{10, 20}}, transform.CenterCrop{Size: transform.Size{224}}}, 700, true, 0},
		{transform.List{transform.RandomRotation{Degrees: [2]float64{10, 20}}, transform.CenterCrop{Size: transform.Size{224}}}, 3000, true, 9 * 3000 * 3000},
		{transform.List{transform.Pad{Padding: [4]int{900, 900, 900, 900}, PaddingMode: augment.Reflect}, transform.CenterCrop{Size: transform.Size{2000}}, transform.Resize{Size: transform.Size{64}}}, 400, true, 2000 * 2000 * 3},
	} {
		program, err := transform.Compile(c.list, transform.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var p picture
		random := augment.NewRand(1, 1, 1)
		if err := program.Draw(&p.recipe, &random, c.side, c.side); err != nil {
			t.Fatal(err)
		}
		p.head = p.recipe.Head()
		if got := p.alone(); got != c.alone {
			t.Errorf("%v of side %d: alone: %v", c.list, c.side, got)
		}
		info := imaging.Info{Format: imaging.JPEG, Width: c.side, Height: c.side}
		if got := p.cost(info); got < c.cost || c.cost == 0 && got != 0 {
			t.Errorf("%v of side %d: it costs %d bytes; want %d at least", c.list, c.side, got, c.cost)
		}
	}
}
