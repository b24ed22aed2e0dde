package reader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/transform"
	"shardify/index"
	"shardify/sample"
	"shardify/store"
	"shardify/store/mem"
)

// whole is an image taken out of a batch, without its padding.
type whole struct {
	height, width int
	data          string
}

// unpadded takes the pictures of a tensor, that lies on the images, out of a batch, and
// checks all padding.
func unpadded(t *testing.T, b *Batch, name string, layout Layout, padding float64) []whole {
	t.Helper()
	x, ok := b.Tensor(name)
	sizes, ok2 := b.Tensor("image_sizes")
	if !ok || !ok2 || sizes.DType != DTypeInt64 || !slices.Equal(sizes.Shape, []int{b.Len(), 2}) {
		t.Fatalf("%s: %v; sizes %s %v", name, ok, sizes.DType, sizes.Shape)
	}
	channels := 3
	if strings.Contains(name, "seg") {
		channels = 1
	}
	size := x.DType.Size()
	list := make([]whole, b.Len())
	for i := range list {
		w := &list[i]
		w.height, w.width = int(sizes.Int64()[2*i]), int(sizes.Int64()[2*i+1])
		if offsets, ragged := b.Tensor(name + "_offsets"); ragged {
			if !slices.Equal(offsets.Shape, []int{b.Len() + 1}) || len(x.Shape) != 1 || x.Shape[0] != int(offsets.Int64()[b.Len()]) || offsets.Int64()[0] != 0 {
				t.Fatalf("%s %v: offsets %v %v", name, x.Shape, offsets.Shape, offsets.Int64())
			}
			w.data = string(x.Data[int(offsets.Int64()[i])*size : int(offsets.Int64()[i+1])*size])
			if len(w.data) != channels*w.height*w.width*size {
				t.Fatalf("%s: image %d of %d x %d has %d bytes", name, i, w.width, w.height, len(w.data))
			}
			continue
		}
		// [n, 3, H, W], [n, H, W, 3], [n, H, W]
		planes, pixel, rows := 1, channels, x.Shape[1:]
		if channels == 3 && layout == LayoutNCHW {
			planes, pixel, rows = 3, 1, x.Shape[2:]
		}
		high, wide := rows[0], rows[1]
		values := numbers(t, x)
		var out bytes.Buffer
		for p := range planes {
			for y := range high {
				at := ((i*planes+p)*high + y) * wide * pixel
				inside := 0
				if y < w.height {
					inside = w.width * pixel
				}
				out.Write(x.Data[at*size : (at+inside)*size])
				for k := at + inside; k < at+wide*pixel; k++ {
					if values[k] != padding {
						t.Fatalf("%s: image %d of %d x %d, plane %d, row %d: padding is %v", name, i, w.width, w.height, p, y, values[k])
					}
				}
			}
		}
		w.data = out.String()
	}
	return list
}

// apart makes the picture of a sample by itself.
func apart(t testing.TB, c Config, n int64, epoch int, file []byte) whole {
	t.Helper()
	c = c.withDefaults()
	m, in := imagerOf(t, &c)
	var p picture
	info, err := m.draw(&p, &in, file, augment.NewRand(c.Seed, uint64(epoch), uint64(n)))
	if err != nil {
		t.Fatal(err)
	}
	p.dst = aligned(int64(3 * p.width * p.height * c.DType.Size()))
	if err := m.decode(&p, info, file); err != nil {
		t.Fatal(err)
	}
	return whole{p.height, p.width, string(p.dst)}
}

// mixture is a data set of JPEGs and PNGs in many sizes; no two samples have the same
// picture.
func mixture(n, classes int) datasettest.Made {
	m := datasettest.Sample(n, classes)
	if n%4 == 1 {
		s := scene(n, classes)
		m.Fields, m.Paths = []sample.Field{{Name: "cls", Data: []byte("1")}, {Name: "png", Data: s.Fields[1].Data}}, nil
	}
	return m
}

func imageOf(n int64) []byte {
	m := mixture(int(n), 5)
	return m.Fields[sample.Image(m.Fields, func(f sample.Field) string { return f.Name })].Data
}

// Each image comes as it is when it is made alone: whole, or as transforms leave it, with
// its size, ragged or padded, in every type and layout.
func TestImagesOfTheirOwnSizes(t *testing.T) {
	d := small(t, datasettest.Options{Make: mixture})
	for name, list := range map[string]transform.List{
		"whole":      nil,
		"short side": {transform.Resize{Size: transform.Size{32}}, transform.RandomHorizontalFlip{}},
		"much":       {transform.Pad{Padding: [4]int{1, 2, 3, 4}}, transform.RandomRotation{Degrees: [2]float64{-20, 20}}, transform.RandomVerticalFlip{}},
		"one size":   crop,
	} {
		for k, dtype := range []DType{DTypeUint8, DTypeFloat32, DTypeFloat16} {
			if name != "short side" && k != len(name)%3 {
				continue // one type is enough
			}
			for _, collate := range []Collate{CollateRagged, CollatePad} {
				c := Config{BatchSize: 7, Seed: 5, Ends: EndsExact, Transform: list, Collate: collate, DType: dtype, Workers: 1 + k}
				if k == 1 {
					c.Layout = LayoutNHWC
				}
				if collate == CollatePad {
					c.Fill = 3
				}
				seen := 0
				for b, err := range newReader(t, d, c).Epoch(context.Background(), 1) {
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					images := unpadded(t, b, "image", c.Layout, c.Fill)
					high, wide := 0, 0
					for i, n := range b.Samples() {
						if want := apart(t, c, n, 1, imageOf(n)); images[i] != want {
							t.Fatalf("%s, %s, %s: sample %d is %d x %d, want %d x %d; the same pixels: %v", name, dtype, collate, n,
								images[i].width, images[i].height, want.width, want.height, images[i].data == want.data)
						}
						high, wide = max(high, images[i].height), max(wide, images[i].width)
						x := b.Image(i)
						if size := x.Shape[0] * x.Shape[1] * x.Shape[2] * x.DType.Size(); size != len(x.Data) || collate == CollateRagged && string(x.Data) != images[i].data {
							t.Fatalf("Image(%d) is %v, %d bytes", i, x.Shape, len(x.Data))
						}
						seen++
					}
					if shape := b.Images().Shape; collate == CollatePad && c.Layout == LayoutNCHW && !slices.Equal(shape, []int{b.Len(), 3, high, wide}) {
						t.Fatalf("%s: %v, and the largest are %d x %d", name, shape, wide, high)
					}
					if at := addressOf(b.Images().Data); at%64 != 0 || !within(b.job.slab.data, b.Images().Data) {
						t.Errorf("the images are not aligned, or not in the slab")
					}
					b.Release()
				}
				if seen != 40 {
					t.Errorf("%d samples", seen)
				}
			}
		}
	}
}

// A whole image has the pixels that decoding its file gives.
func TestWholeImages(t *testing.T) {
	d := small(t, datasettest.Options{Make: mixture})
	for b, err := range newReader(t, d, Config{BatchSize: 9, Collate: CollateRagged, Layout: LayoutNHWC, Ends: EndsExact}).Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range b.Samples() {
			var want imaging.Image
			if err := imaging.Std.Decode(imageOf(n), &want, imaging.DecodeOptions{}); err != nil {
				t.Fatal(err)
			}
			x := b.Image(i)
			if !slices.Equal(x.Shape, []int{want.Height, want.Width, 3}) {
				t.Fatalf("sample %d: %v, want %d x %d", n, x.Shape, want.Width, want.Height)
			}
			for y := range want.Height {
				row := want.Pix[y*want.Stride:][:3*want.Width]
				if !bytes.Equal(x.Data[3*y*want.Width:][:3*want.Width], row) {
					t.Fatalf("sample %d: row %d differs", n, y)
				}
			}
		}
		b.Release()
	}
}

// Masks and other images keep lying over their images.
func TestMasksOfTheirOwnSizes(t *testing.T) {
	d := small(t, datasettest.Options{Make: func(n, c int) datasettest.Made {
		m := scene(n, c)
		if n%5 == 2 {
			m.Fields = m.Fields[:2] // without a mask
		}
		return m
	}})
	list := transform.List{transform.RandomHorizontalFlip{}, transform.Pad{Padding: [4]int{3, 0, 1, 2}}, transform.RandomVerticalFlip{}}
	for _, collate := range []Collate{CollateRagged, CollatePad} {
		for _, dtype := range []DType{DTypeUint8, DTypeInt64} {
			for _, layout := range []Layout{LayoutNCHW, LayoutNHWC} {
				r := newReader(t, d, Config{
					BatchSize: 7, Seed: 5, Ends: EndsExact, Transform: list, Layout: layout, Workers: 3, Collate: collate,
					Tensors: []TensorSpec{
						{Field: "seg.png", Kind: KindMask, DType: dtype, Fill: 255, Optional: true},
						{Field: "depth.png", Name: "depth", Kind: KindImage},
					},
				})
				for b, err := range r.Epoch(context.Background(), 1) {
					if err != nil {
						t.Fatal(err)
					}
					images, depth := unpadded(t, b, "image", layout, 0), unpadded(t, b, "depth", layout, 0)
					if !slices.Equal(images, depth) {
						t.Fatal("another image of the same file is not the same")
					}
					for i, m := range unpadded(t, b, "seg.png", layout, 255) {
						n := b.Samples()[i]
						classes := numbers(t, Tensor{Name: "mask", DType: dtype, Shape: []int{m.height, m.width}, Data: padded(m.data)})
						if len(classes) != m.height*m.width {
							t.Fatalf("%d classes of %d x %d", len(classes), m.width, m.height)
						}
						for k, got := range classes {
							red, green := images[i].data[3*k], images[i].data[min(3*k+1, len(images[i].data)-1)]
							if layout == LayoutNCHW {
								red, green = images[i].data[k], images[i].data[len(classes)+k]
							}
							want := 255. // beyond the image
							if red > 0 && n%5 != 2 {
								want = float64(class(int(red)-1, int(green)-1))
							}
							if got != want {
								t.Fatalf("sample %d, pixel %d: class %v, want %v", n, k, got, want)
							}
						}
					}
					b.Release()
				}
			}
		}
	}
}

// padded copies a string to aligned memory.
func padded(s string) []byte {
	data := aligned(int64(len(s)))
	copy(data, s)
	return data
}

// Boxes lie in the image's own pixels; fractions are of its own size.
func TestBoxesInImagesOfTheirOwnSizes(t *testing.T) {
	d := small(t, datasettest.Options{Make: crowd})
	r := newReader(t, d, Config{BatchSize: 4, Ends: EndsExact, Collate: CollateRagged, Layout: LayoutNHWC, Transform: transform.List{transform.RandomHorizontalFlip{}}, Tensors: []TensorSpec{
		{Field: "json", Name: "boxes", Kind: KindBoxes, Path: "/objects/*/bbox", Collate: CollateRagged, Boxes: BoxSpec{Format: BoxXYWH}},
		{Field: "boxes.npy", Name: "centres", Kind: KindBoxes, Collate: CollateRagged, Boxes: BoxSpec{Format: BoxCXCYWH, Unit: BoxFractions, ToUnit: BoxFractions}},
	}})
	seen := 0
	for b, err := range r.Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		boxes, _ := b.Tensor("boxes")
		centres, _ := b.Tensor("centres")
		offsets, _ := b.Tensor("boxes_offsets")
		for i := range b.Len() {
			x := b.Image(i)
			height, width := x.Shape[0], x.Shape[1]
			for k := offsets.Int64()[i]; k < offsets.Int64()[i+1]; k++ {
				box, fractions := boxes.Float32()[4*k:][:4], centres.Float32()[4*k:][:4]
				color := x.Data[3*(int(box[1])*width+int(box[0]))]
				last := x.Data[3*(int(box[3]-1)*width+int(box[2]-1))]
				if color < 50 || last != color || int(box[0]) > 0 && x.Data[3*(int(box[1])*width+int(box[0])-1)] == color {
					t.Fatalf("sample %d: at the corners of box %v are %d and %d", b.Samples()[i], box, color, last)
				}
				for at, v := range []float32{box[0] / float32(width), box[1] / float32(height), box[2] / float32(width), box[3] / float32(height)} {
					if diff := fractions[at] - v; diff > 1e-5 || diff < -1e-5 {
						t.Fatalf("sample %d: fractions %v of box %v in %d x %d", b.Samples()[i], fractions, box, width, height)
					}
				}
				seen++
			}
		}
		b.Release()
	}
	if seen != 60 {
		t.Errorf("%d boxes", seen)
	}
}

// The tensors do not depend on workers, memory, where the pass began, or on whether the
// index knows the dimensions.
func TestOwnSizesAreTheSame(t *testing.T) {
	d := small(t, datasettest.Options{Make: mixture})
	for _, collate := range []Collate{CollateRagged, CollatePad} {
		c := Config{BatchSize: 6, Seed: 9, Ends: EndsExact, Collate: collate, Transform: transform.List{transform.Resize{Size: transform.Size{40}}, transform.RandomHorizontalFlip{}}, Workers: 1}
		want := tensorsOf(t, d, c, 1, 0)
		if len(want) != 7 {
			t.Fatalf("%d batches", len(want))
		}
		for from := range want {
			c.Workers, c.Memory = 1+from%3, int64(from)<<21
			if got := tensorsOf(t, d, c, 1, from); !reflect.DeepEqual(got, want[from:]) {
				t.Errorf("%s: from batch %d with %d workers: other tensors", collate, from, c.Workers)
			}
		}
	}
}

// Where the index has no dimensions they are read from the files, in every container.
func TestOwnSizesWithoutDimensions(t *testing.T) {
	for _, format := range []string{"tar", "tar.zst", "tar.gz", "tfrecord"} {
		d := small(t, datasettest.Options{Make: mixture, Format: format})
		for _, collate := range []Collate{CollateRagged, CollatePad} {
			c := Config{BatchSize: 6, Seed: 9, Ends: EndsExact, Collate: collate, Shuffle: ShuffleWindow}
			want := tensorsOf(t, d, c, 0, 0)
			r := newReader(t, d, c)
			if err := r.warm(); err != nil {
				t.Fatal(err)
			}
			for shard := range d.Manifest().Splits[0].Shards {
				rows, err := r.rows.get(context.Background(), shard)
				if err != nil {
					t.Fatal(err)
				}
				if rows.dims == nil {
					t.Fatal("there are no dimensions to forget")
				}
				rows.dims = nil
			}
			p, err := r.newPass(context.Background(), 0, 0, 1)
			if err != nil {
				t.Fatal(err)
			}
			p.start()
			var got [][]string
			for {
				b, err := p.next()
				if err != nil {
					t.Fatal(err)
				}
				if b == nil {
					break
				}
				if !within(b.job.slab.data, b.Images().Data) {
					t.Errorf("%s: the images are not in the slab", format)
				}
				got = append(got, tensorCopy(b))
				b.Release()
			}
			p.end()
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %s: other tensors", format, collate)
			}
		}
	}
}

// Shards without an index give the same.
func TestOwnSizesOfStreams(t *testing.T) {
	dir := t.TempDir()
	names := writeShards(t, dir, "tar", []int{11, 9}, func(n int) sample.Sample { return mixture(n, 5).Sample })
	for _, collate := range []Collate{CollateRagged, CollatePad} {
		c := Config{BatchSize: 6, Ends: EndsExact, Shuffle: ShuffleNone, Collate: collate, Tensors: []TensorSpec{{Field: "cls"}}}
		seen := 0
		for b, err := range newStream(t, names, c).Epoch(context.Background(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			for i, got := range unpadded(t, b, "image", LayoutNCHW, 0) {
				if want := apart(t, c, b.Samples()[i], 0, imageOf(int64(seen))); got != want {
					t.Fatalf("sample %d is another one", seen)
				}
				seen++
			}
			if !within(b.job.slab.data, b.Images().Data) {
				t.Error("the images are not in the slab")
			}
			b.Release()
		}
		if seen != 20 {
			t.Errorf("%d samples", seen)
		}
	}
	// One that is no image costs its batch one sample, and a shard that is cut its rest.
	bad := writeShards(t, t.TempDir(), "tar", []int{4}, func(n int) sample.Sample {
		s := mixture(n, 5).Sample
		if n == 2 {
			s.Fields[1].Data = []byte("no image")
		}
		return s
	})
	for b, err := range newStream(t, bad, Config{BatchSize: 4, Shuffle: ShuffleNone, Collate: CollateRagged, OnBad: OnBadSkip}).Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if b.Len() != 3 || len(b.Bad()) != 1 || b.Image(2).Shape[1] != apart(t, Config{Collate: CollateRagged}, 3, 0, imageOf(3)).height {
			t.Errorf("%d samples, %v", b.Len(), b.Bad())
		}
		b.Release()
	}
}

// bigAndSmall has small pictures, and those of samples 3, 14, 25, 36 are large.
func bigAndSmall(t *testing.T) func(n, classes int) datasettest.Made {
	return func(n, classes int) datasettest.Made {
		w, h := 10+n%7, 12+n%5
		if n%11 == 3 {
			w, h = 90+n, 70+n
		}
		m := datasettest.Made{Label: int64(n % 5)}
		m.Key = fmt.Sprint("k", n)
		mask := image.NewGray(image.Rect(0, 0, w, h))
		for i := range mask.Pix {
			mask.Pix[i] = uint8(n)
		}
		file := waves(t, w, h)
		m.Fields = []sample.Field{{Name: "jpg", Data: file}, {Name: "seg.png", Data: pngOf(mask)}}
		return m
	}
}

// Damaged samples, among them the largest and such as have larger ones stand in for them,
// leave all others as they are.
func TestOwnSizesDamaged(t *testing.T) {
	make := bigAndSmall(t)
	d := small(t, datasettest.Options{Make: make})
	files := map[int64][]byte{}
	for n := range int64(40) {
		files[n] = make(int(n), 5).Fields[0].Data
	}
	broken := []int64{3, 7, 12, 14, 20, 33}
	damage(t, d, 10, broken...)
	for _, onBad := range []OnBad{OnBadSkip, OnBadSubstitute} {
		for _, collate := range []Collate{CollateRagged, CollatePad} {
			larger := 0
			for seed := range uint64(8) {
				c := Config{BatchSize: 4, Seed: seed, Collate: collate, OnBad: onBad, Tensors: []TensorSpec{{Field: "seg.png", Kind: KindMask}}}
				r := newReader(t, d, c)
				met := 0
				for b, err := range r.Epoch(context.Background(), 0) {
					if err != nil {
						t.Fatal(err)
					}
					met += len(b.Bad())
					images, masks := unpadded(t, b, "image", LayoutNCHW, 0), unpadded(t, b, "seg.png", LayoutNCHW, 0)
					for i, n := range b.Samples() {
						if slices.Contains(broken, n) {
							t.Fatalf("sample %d is damaged", n)
						}
						if want := apart(t, c, n, 0, files[n]); images[i] != want {
							t.Fatalf("%s, %s: sample %d is another one", onBad, collate, n)
						}
						if masks[i].data != strings.Repeat(string([]byte{uint8(n)}), images[i].width*images[i].height) {
							t.Fatalf("%s, %s: sample %d has the mask of another", onBad, collate, n)
						}
					}
					if !within(b.job.slab.data, b.Images().Data) {
						larger++
					}
					b.Release()
				}
				if met != len(broken) {
					t.Errorf("%d damaged samples", met)
				}
			}
			if (larger > 0) != (onBad == OnBadSubstitute) {
				t.Errorf("%s, %s: %d batches did not have the room", onBad, collate, larger)
			}
		}
	}
}

// One large image among small ones does not make a pass take more than its budget.
func TestOwnSizesMemoryBound(t *testing.T) {
	large := pngOf(image.NewGray(image.Rect(0, 0, 900, 700)))
	little := pngOf(image.NewGray(image.Rect(0, 0, 50, 40)))
	d := small(t, datasettest.Options{Shards: 8, Samples: 50, Make: func(n, _ int) datasettest.Made {
		m := datasettest.Made{Label: -1}
		m.Key = fmt.Sprint("k", n)
		m.Fields = []sample.Field{{Name: "png", Data: little}}
		if n%97 == 3 {
			m.Fields[0].Data = large
		}
		return m
	}})
	for _, collate := range []Collate{CollateRagged, CollatePad} {
		r := newReader(t, d, Config{BatchSize: 8, Memory: 80 << 20, Workers: 2, Collate: collate})
		p, err := r.newPass(context.Background(), 0, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		p.start()
		largest := 0
		var held []*Batch
		for {
			b, err := p.next()
			if err != nil {
				t.Fatal(err)
			}
			if b == nil {
				break
			}
			if !within(b.job.slab.data, b.Images().Data) {
				t.Error("the images are not in the slab")
			}
			largest = max(largest, len(b.Images().Data))
			if held = append(held, b); len(held) == 2 {
				held[0].Release()
				held = held[1:]
			}
		}
		for _, b := range held {
			b.Release()
		}
		p.end()
		if largest < 3*900*700 {
			t.Errorf("the largest batch has %d bytes", largest)
		}
		if p.pool.peak > p.pool.size {
			t.Errorf("%s: %d bytes of %d", collate, p.pool.peak, p.pool.size)
		}
	}
}

// rewriteRow changes what the index says of sample n of the only shard of a data set.
func rewriteRow(t *testing.T, d *dataset.Dataset, n int, change func(*index.Row)) {
	t.Helper()
	sh := &d.Manifest().Splits[0].Shards[0]
	rows, err := d.Rows(t.Context(), sh)
	if err != nil {
		t.Fatal(err)
	}
	change(&rows[n])
	var b bytes.Buffer
	w := index.NewRowWriter(&b)
	for _, row := range rows {
		if err := w.Write(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := store.WriteAll(t.Context(), d.Store(), sh.Index.Name, b.Bytes()); err != nil {
		t.Fatal(err)
	}
	sh.Index.Bytes, sh.Index.Checksum = int64(b.Len()), index.Sum(b.Bytes())
}

// An image that is not of the size in the index, is larger than max_pixels or pad_to, or too
// small for its crop, is a damaged sample; no memory is taken for it.
func TestOwnSizesFaults(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*index.Row)
		config Config
		want   string
	}{
		"smaller in the index": {func(r *index.Row) { r.Width, r.Height = 1, 1 }, Config{Collate: CollateRagged}, "the index is not that of this file"},
		"larger in the index":  {func(r *index.Row) { r.Width, r.Height = 3_000, 500 }, Config{Collate: CollatePad}, "the index is not that of this file"},
		"max_pixels":           {nil, Config{Collate: CollateRagged, MaxPixels: 100}, "max_pixels"},
		"pad_to":               {nil, Config{Collate: CollatePad, PadTo: transform.Size{14, 12}}, "its image is 93 x 73, where pad_to is 12 x 14"},
		"too small":            {nil, Config{Collate: CollateRagged, Transform: transform.List{transform.RandomCrop{Size: transform.Size{50}}, transform.Resize{MaxSize: 7}}}, "RandomCrop of 50 x 50 from an image of 11 x 13"},
		"no image":             {func(r *index.Row) { r.Width, r.Height, r.Format = 0, 0, "" }, Config{Collate: CollateRagged, MaxPixels: 100}, "max_pixels"},
	} {
		made := bigAndSmall(t)
		d := datasettest.Write(t, mem.New(), datasettest.Options{Shards: 1, Samples: 3, Make: func(n, c int) datasettest.Made { return made(n+1, c) }})
		if c.change != nil {
			rewriteRow(t, d, 2, c.change)
		}
		c.config.BatchSize, c.config.Shuffle = 3, ShuffleNone
		var bad *SampleError
		for b, err := range newReader(t, d, c.config).Epoch(context.Background(), 0) {
			if err == nil {
				b.Release()
			} else if !errors.As(err, &bad) {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if bad == nil || !strings.Contains(bad.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, bad, c.want)
		}
	}
}

// PadTo gives all batches one shape.
func TestPadTo(t *testing.T) {
	d := small(t, datasettest.Options{Make: mixture})
	c := Config{BatchSize: 8, Ends: EndsExact, Collate: CollatePad, PadTo: transform.Size{90, 100}, DType: DTypeFloat32, Fill: -1.5,
		Transform: transform.List{transform.RandomHorizontalFlip{}, transform.Normalize{Mean: [3]float32{0.5, 0.5, 0.5}}}}
	for b, err := range newReader(t, d, c).Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(b.Images().Shape, []int{b.Len(), 3, 90, 100}) {
			t.Fatalf("%v", b.Images().Shape)
		}
		for i, got := range unpadded(t, b, "image", LayoutNCHW, -1.5) {
			if want := apart(t, c, b.Samples()[i], 0, imageOf(b.Samples()[i])); got != want {
				t.Fatalf("sample %d is another one", b.Samples()[i])
			}
		}
		b.Release()
	}
}

// Buckets make batches of images of like shape, which so have little padding.
func TestOwnSizesInBuckets(t *testing.T) {
	d := small(t, datasettest.Options{Make: func(n, c int) datasettest.Made {
		m := scene(n, c)
		w, h := 20, 60
		if n%2 == 0 {
			w, h = 60, 20
		}
		picture := image.NewRGBA(image.Rect(0, 0, w+n%3, h))
		picture.Set(1, 1, color.White)
		m.Fields = []sample.Field{{Name: "png", Data: pngOf(picture)}}
		return m
	}})
	batches := 0
	for b, err := range newReader(t, d, Config{BatchSize: 5, Ends: EndsExact, Collate: CollatePad, Buckets: Buckets{Edges: []float64{1}}}).Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if s := b.Images().Shape; s[2]*s[3] > 62*22 {
			t.Errorf("bucket %d: %v", b.Bucket(), s)
		}
		batches++
		b.Release()
	}
	if batches != 8 {
		t.Errorf("%d batches", batches)
	}
}

// What does not go together is said at once.
func TestCollateConfig(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"word":           {Config{Collate: "raged"}, `collate: "raged" is none of`},
		"none":           {Config{Collate: CollatePad, Decode: DecodeNone}, "collate: there are no images"},
		"mixup":          {Config{Collate: CollateRagged, DType: DTypeFloat32, MixUp: &augment.MixUp{}}, "blend images of one size"},
		"cutmix":         {Config{Collate: CollatePad, CutMix: &augment.CutMix{}}, "blend images of one size"},
		"pad_to":         {Config{Collate: CollateRagged, PadTo: transform.Size{10}}, "pad_to: belongs to collate"},
		"pad_to of 0":    {Config{Collate: CollatePad, PadTo: transform.Size{-1, 4}}, "pad_to: size is"},
		"fill":           {Config{Fill: 1}, "fill: belongs to collate"},
		"fill too large": {Config{Collate: CollatePad, Fill: 256}, "fill: 256 does not fit uint8"},
		"sizes vary":     {Config{Transform: transform.List{transform.RandomHorizontalFlip{}}}, `or set collate to "ragged" or "pad"`},
		"mask":           {Config{Collate: CollateRagged, Tensors: []TensorSpec{{Field: "seg.png", Kind: KindMask, Collate: CollatePad}}}, "collate: pad, where the images have ragged"},
		"mask's pad_to":  {Config{Collate: CollatePad, Tensors: []TensorSpec{{Field: "seg.png", Kind: KindMask, PadTo: 7}}}, "pad_to belongs to"},
		"name":           {Config{Collate: CollateRagged, Tensors: []TensorSpec{{Field: "cls", Name: "image_sizes"}}}, `the name "image_sizes" is taken`},
		"name2":          {Config{Collate: CollateRagged, Tensors: []TensorSpec{{Field: "cls", Name: "image_offsets"}}}, `the name "image_offsets" is taken`},
	} {
		if err := c.config.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
	ok := Config{Tensors: []TensorSpec{{Field: "cls", Name: "image_sizes"}}}
	if err := ok.Validate(); err != nil {
		t.Error(err)
	}
}
