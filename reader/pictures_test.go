package reader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"slices"
	"strings"
	"testing"

	"shardify/dataset/datasettest"
	"shardify/imaging/augment"
	"shardify/imaging/transform"
	"shardify/sample"
)

// pngOf draws a picture.
func pngOf(m image.Image) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// sceneSize is the size of the picture of sample n.
func sceneSize(n int) (w, h int) { return 40 + n%23, 40 + n%17 }

// class is the class of a pixel in a scene's mask.
func class(x, y int) uint8 { return uint8(1 + (7*x+13*y)%250) }

// scene is a sample whose pixels tell where they were, as red and green; its mask tells
// the same, in a palette, and so does its depth, another picture.
func scene(n, _ int) datasettest.Made {
	w, h := sceneSize(n)
	picture := image.NewRGBA(image.Rect(0, 0, w, h))
	palette := make(color.Palette, 256)
	for i := range palette {
		palette[i] = color.RGBA{uint8(3 * i), uint8(5 * i), uint8(i), 255}
	}
	mask := image.NewPaletted(picture.Bounds(), palette)
	for y := range h {
		for x := range w {
			picture.SetRGBA(x, y, color.RGBA{uint8(1 + x), uint8(1 + y), uint8(1 + n), 255})
			mask.SetColorIndex(x, y, class(x, y))
		}
	}
	m := datasettest.Made{Label: -1}
	m.Key = fmt.Sprint("k", n)
	m.Fields = []sample.Field{
		{Name: "depth.png", Data: pngOf(picture)}, {Name: "png", Data: pngOf(picture)}, {Name: "seg.png", Data: pngOf(mask)},
	}
	return m
}

// Masks and other images lie exactly over their image, whatever is cut, padded and
// flipped.
func TestMasksLieOverTheirImages(t *testing.T) {
	d := small(t, datasettest.Options{Make: scene})
	for name, list := range map[string]transform.List{
		"crop and flips": {
			transform.RandomCrop{Size: transform.Size{24}}, transform.RandomHorizontalFlip{}, transform.RandomVerticalFlip{},
		},
		"pad": {
			transform.RandomHorizontalFlip{}, transform.Pad{Padding: [4]int{9, 3, 1, 6}}, transform.RandomCrop{Size: transform.Size{30, 36}},
		},
		"centre": {transform.CenterCrop{Size: transform.Size{70}}},
	} {
		for _, dtype := range []DType{DTypeUint8, DTypeInt64} {
			for _, layout := range []Layout{LayoutNCHW, LayoutNHWC} {
				r := newReader(t, d, Config{
					BatchSize: 7, Seed: 5, Ends: EndsExact, Transform: list, Layout: layout, Workers: 3,
					Tensors: []TensorSpec{
						{Field: "seg.png", Name: "mask", Kind: KindMask, DType: dtype, Fill: 255},
						{Field: "depth.png", Name: "depth", Kind: KindImage},
					},
				})
				seen := map[[2]uint8]bool{}
				for b, err := range r.Epoch(context.Background(), 1) {
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					images := b.Images()
					depth, _ := b.Tensor("depth")
					if !slices.Equal(depth.Shape, images.Shape) || !bytes.Equal(depth.Data, images.Data) {
						t.Fatalf("%s: another image of the same file is %v, not the same", name, depth.Shape)
					}
					mask, _ := b.Tensor("mask")
					h, w := mask.Shape[1], mask.Shape[2]
					at := func(i, c, y, x int) uint8 { return images.Data[((i*3+c)*h+y)*w+x] }
					if layout == LayoutNHWC {
						at = func(i, c, y, x int) uint8 { return images.Data[((i*h+y)*w+x)*3+c] }
					}
					classes := numbers(t, mask)
					if mask.DType != dtype || len(mask.Shape) != 3 || len(classes)*3 != len(images.Data) {
						t.Fatalf("%s: mask %s %v of images %v", name, mask.DType, mask.Shape, images.Shape)
					}
					for i := range b.Len() {
						for y := range h {
							for x := range w {
								red, green := at(i, 0, y, x), at(i, 1, y, x)
								want := 255. // beyond the image
								if red > 0 {
									want = float64(class(int(red)-1, int(green)-1))
								}
								if got := classes[(i*h+y)*w+x]; got != want {
									t.Fatalf("%s: sample %d at %d, %d: class %v over the pixel from %d, %d, whose class is %v", name, b.Samples()[i], x, y, got, red, green, want)
								}
								if x == 0 && y == 0 {
									seen[[2]uint8{red, green}] = true
								}
							}
						}
					}
					b.Release()
				}
				if name == "crop and flips" && len(seen) < 20 {
					t.Errorf("only %d different corners", len(seen))
				}
			}
		}
	}
}

// Where each bucket has a size of its own, a mask has that of its images.
func TestMasksInBuckets(t *testing.T) {
	d := small(t, datasettest.Options{Make: scene})
	r := newReader(t, d, Config{BatchSize: 4, Seed: 5, Ends: EndsExact,
		Buckets:   Buckets{Edges: []float64{0.9, 1.1}, Sizes: []transform.Size{{30, 20}, {24, 24}, {20, 30}}},
		Transform: transform.List{transform.Pad{Padding: [4]int{9, 3, 1, 6}}, transform.RandomHorizontalFlip{}, transform.RandomCrop{Size: transform.Size{24}}},
		Tensors:   []TensorSpec{{Field: "seg.png", Name: "mask", Kind: KindMask, Fill: 0}},
	})
	sizes := map[string]int{}
	for b, err := range r.Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		mask, _ := b.Tensor("mask")
		images := b.Images()
		if !slices.Equal(mask.Shape[1:], images.Shape[2:]) {
			t.Fatalf("mask %v of images %v", mask.Shape, images.Shape)
		}
		sizes[fmt.Sprint(mask.Shape[1:])] += b.Len()
		plane := mask.Shape[1] * mask.Shape[2]
		for i := range b.Len() {
			for k, v := range mask.Data[i*plane:][:plane] {
				red, green := images.Data[3*i*plane+k], images.Data[(3*i+1)*plane+k]
				if red > 0 && v != class(int(red)-1, int(green)-1) || red == 0 && v != 0 {
					t.Fatalf("sample %d: class %d over the pixel from %d, %d", b.Samples()[i], v, red, green)
				}
			}
		}
		b.Release()
	}
	if len(sizes) != 3 {
		t.Errorf("sizes %v", sizes)
	}
}

// Scaled, too: every pixel of the mask is the nearest one's, to which the image's colour is
// near.
func TestMasksAreScaledWithTheirImages(t *testing.T) {
	d := small(t, datasettest.Options{Make: func(n, c int) datasettest.Made {
		m := scene(n, c)
		w, h := sceneSize(n)
		mask := image.NewGray(image.Rect(0, 0, w, h))
		for i := range mask.Pix {
			mask.Pix[i] = uint8(1 + i%mask.Stride) // the column
		}
		m.Fields[2].Data = pngOf(mask)
		return m
	}})
	r := newReader(t, d, Config{BatchSize: 10, Seed: 5, Ends: EndsExact,
		Transform: transform.List{transform.RandomResizedCrop{Size: transform.Size{32}}, transform.RandomHorizontalFlip{}},
		Tensors:   []TensorSpec{{Field: "seg.png", Kind: KindMask}},
	})
	for b, err := range r.Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		mask, _ := b.Tensor("seg.png")
		for i := range b.Len() {
			for k, v := range mask.Data[i*1024:][:1024] {
				if red := b.Images().Data[3*i*1024+k]; math.Abs(float64(red)-float64(v)) > 1.5 {
					t.Fatalf("sample %d, pixel %d: column %d in the mask, %d in the image", b.Samples()[i], k, v, red)
				}
			}
		}
		b.Release()
	}
}

// boxes of sample n: left, top, width, height; they do not overlap.
func rectangles(n int) (list [][4]int) {
	w, h := sceneSize(n)
	for k := range n % 4 {
		list = append(list, [4]int{2 + k*w/4, 3 + k, w/4 - 3 - n%2, h/2 + n%5})
	}
	return list
}

// crowd is a sample with coloured rectangles on black, and their boxes in every form.
func crowd(n, _ int) datasettest.Made {
	w, h := sceneSize(n)
	picture := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := 3; i < len(picture.Pix); i += 4 {
		picture.Pix[i] = 255
	}
	type object struct {
		ID    int        `json:"id"`
		Box   [4]int     `json:"bbox"`
		Point [2]float64 `json:"point"`
	}
	objects := []object{}
	var centres []float64
	corners := [][4]int{}
	for k, b := range rectangles(n) {
		for y := b[1]; y < b[1]+b[3]; y++ {
			for x := b[0]; x < b[0]+b[2]; x++ {
				picture.SetRGBA(x, y, color.RGBA{uint8(50 + k), 0, 0, 255})
			}
		}
		objects = append(objects, object{50 + k, b, [2]float64{float64(n), float64(k)}})
		corners = append(corners, [4]int{b[0], b[1], b[0] + b[2], b[1] + b[3]})
		centres = append(centres, (float64(b[0])+float64(b[2])/2)/float64(w), (float64(b[1])+float64(b[3])/2)/float64(h), float64(b[2])/float64(w), float64(b[3])/float64(h))
	}
	doc, err := json.Marshal(map[string]any{"objects": objects, "corners": corners})
	if err != nil {
		panic(err)
	}
	m := datasettest.Made{Label: -1}
	m.Key = fmt.Sprint("k", n)
	m.Fields = []sample.Field{
		{Name: "boxes.npy", Data: npyFile([]int{len(objects), 4}, centres...)},
		{Name: "json", Data: doc}, {Name: "png", Data: pngOf(picture)},
	}
	return m
}

var crowdSpecs = []TensorSpec{
	{Field: "json", Name: "ids", Path: "/objects/*/id", Shape: []int{-1}, DType: DTypeInt64, Follows: "boxes", Fill: -1},
	{Field: "json", Name: "boxes", Kind: KindBoxes, Path: "/objects/*/bbox", Boxes: BoxSpec{Format: BoxXYWH}},
	{Field: "json", Name: "points", Path: "/objects/*/point", Shape: []int{-1, 2}, Follows: "boxes", Collate: CollateRagged},
	{Field: "boxes.npy", Name: "centres", Kind: KindBoxes, DType: DTypeFloat64, Collate: CollateRagged, Boxes: BoxSpec{Format: BoxCXCYWH, Unit: BoxFractions, ToFormat: BoxXYWH}},
	{Field: "json", Name: "corners", Kind: KindBoxes, Path: "/corners", Boxes: BoxSpec{ToFormat: BoxCXCYWH, ToUnit: BoxFractions}},
}

// Boxes come where the transformed image has what is in them, and those that no longer
// show take what belongs to them along.
func TestBoxesLieOverTheirImages(t *testing.T) {
	d := small(t, datasettest.Options{Make: crowd})
	const side = 26
	list := transform.List{transform.RandomHorizontalFlip{}, transform.RandomCrop{Size: transform.Size{side}}, transform.RandomVerticalFlip{}}
	r := newReader(t, d, Config{BatchSize: 6, Seed: 2, Ends: EndsExact, Transform: list, Tensors: crowdSpecs, Workers: 2})
	dropped, kept := 0, 0
	for b, err := range r.Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		tensor := func(name string) Tensor {
			x, ok := b.Tensor(name)
			if !ok {
				t.Fatalf("no tensor %q", name)
			}
			return x
		}
		boxes, ids, points := tensor("boxes"), tensor("ids"), tensor("points")
		lengths, offsets := tensor("boxes_lengths").Int64(), tensor("points_offsets").Int64()
		most := boxes.Shape[1]
		if ids.Shape[1] != most || !slices.Equal(tensor("ids_lengths").Int64(), lengths) || !slices.Equal(tensor("centres_offsets").Int64(), offsets) {
			t.Fatalf("%d boxes, %d ids; lengths %v", most, ids.Shape[1], lengths)
		}
		for i, n := range b.Samples() {
			image := b.Images().Data[3*i*side*side:][:side*side] // red
			want := map[int64][4]float32{}
			for k := range rectangles(int(n)) {
				box := [4]float32{side, side, 0, 0}
				for at, v := range image {
					if int(v) == 50+k {
						x, y := float32(at%side), float32(at/side)
						box = [4]float32{min(box[0], x), min(box[1], y), max(box[2], x+1), max(box[3], y+1)}
					}
				}
				if box[2] > 0 {
					want[int64(50+k)] = box
					kept++
				} else {
					dropped++
				}
			}
			if int(lengths[i]) != len(want) || int(offsets[i+1]-offsets[i]) != len(want) {
				t.Fatalf("sample %d: %d boxes, %d show", n, lengths[i], len(want))
			}
			for k := range most {
				id, box := ids.Int64()[i*most+k], [4]float32(boxes.Float32()[4*(i*most+k):])
				if k >= len(want) {
					if id != -1 || box != [4]float32{} {
						t.Errorf("sample %d: padding is %d %v", n, id, box)
					}
					continue
				}
				if w, ok := want[id]; !ok || box != w {
					t.Errorf("sample %d: box of %d is %v, want %v", n, id, box, w)
				}
				at := int(offsets[i]) + k
				if p := points.Float32()[2*at:][:2]; p[0] != float32(n) || p[1] != float32(id-50) {
					t.Errorf("sample %d: the point of box %d is %v", n, id, p)
				}
				near := func(name string, got, want float64) {
					if math.Abs(got-want) > 1e-5 {
						t.Errorf("sample %d: %s of box %d is off by %v", n, name, id, got-want)
					}
				}
				for c, v := range tensor("centres").Float64()[4*at:][:4] {
					near("centres", v, float64([4]float32{box[0], box[1], box[2] - box[0], box[3] - box[1]}[c]))
				}
				corners := tensor("corners").Float32()[4*(i*most+k):]
				for c, v := range []float32{box[0] + box[2], box[1] + box[3], 2 * (box[2] - box[0]), 2 * (box[3] - box[1])} {
					near("corners", float64(corners[c]), float64(v)/2/side)
				}
			}
		}
		b.Release()
	}
	if dropped < 5 || kept < 20 {
		t.Errorf("%d boxes dropped, %d kept", dropped, kept)
	}
}

// A filter drops what is too small, and Optional lets a sample have no boxes.
func TestBoxFilter(t *testing.T) {
	d := small(t, datasettest.Options{Make: func(n, c int) datasettest.Made {
		m := crowd(n, c)
		if n%2 == 0 {
			m.Fields = slices.Delete(m.Fields, 0, 2)
			return m
		}
		m.Fields[1].Data = []byte(`{"b": [[0, 0, 30, 30], [1, 1, 3, 3], [5, 5, 4, 9], [-100, -100, 2, 2], [10, 10, 16, 16]], "v": [1, 2, 3, 4, 5]}`)
		return m
	}})
	r := newReader(t, d, Config{BatchSize: 2, Shuffle: ShuffleNone, Transform: transform.List{transform.CenterCrop{Size: transform.Size{70}}}, Tensors: []TensorSpec{
		{Field: "json", Name: "b", Kind: KindBoxes, Path: "/b", Optional: true, Collate: CollateRagged, Boxes: BoxSpec{BoxFilter: augment.BoxFilter{MinSize: 2, MinVisibility: 0.5}}},
		{Field: "json", Name: "v", Path: "/v", Shape: []int{-1}, Follows: "b", Optional: true, PadTo: 3},
	}})
	for b, err := range r.Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		v, _ := b.Tensor("v")
		offsets, _ := b.Tensor("b_offsets")
		if got := numbers(t, v); !slices.Equal(got, []float64{0, 0, 0, 1, 2, 5}) || !slices.Equal(offsets.Int64(), []int64{0, 0, 3}) {
			t.Fatalf("%v, %v", got, offsets.Int64())
		}
		b.Release()
	}
}

// What is wrong with a mask or boxes is the sample's fault.
func TestPictureFaults(t *testing.T) {
	small1 := pngOf(image.NewGray(image.Rect(0, 0, 8, 8)))
	for name, c := range map[string]struct {
		make  func(n, c int) datasettest.Made
		spec  []TensorSpec
		field string
		data  []byte
		want  string
	}{
		"mask of another size":  {scene, []TensorSpec{{Field: "seg.png", Kind: KindMask}}, "seg.png", small1, "a mask of 8 x 8"},
		"mask cut":              {scene, []TensorSpec{{Field: "seg.png", Kind: KindMask}}, "seg.png", small1[:50], "the file ends early"},
		"mask of colours":       {scene, []TensorSpec{{Field: "seg.png", Kind: KindMask}}, "seg.png", scene(5, 0).Fields[1].Data, "not supported"},
		"class too large":       {scene, []TensorSpec{{Field: "seg.png", Kind: KindMask, DType: DTypeBool}}, "seg.png", scene(5, 0).Fields[2].Data, "does not fit bool"},
		"image of another size": {scene, []TensorSpec{{Field: "depth.png", Kind: KindImage}}, "depth.png", small1, "it has 8 x 8 pixels"},
		"mask too large":        {scene, []TensorSpec{{Field: "seg.png", Kind: KindMask}}, "seg.png", pngOf(image.NewGray(image.Rect(0, 0, 100, 41))), "max_pixels"},
		"three numbers":         {crowd, crowdSpecs[:2], "json", []byte(`{"objects": [{"id": 1, "bbox": [1, 2, 3]}]}`), "its shape is [1 3]; want [* 4]"},
		"a label too few":       {crowd, []TensorSpec{crowdSpecs[1], {Field: "json", Name: "v", Path: "/v", Shape: []int{-1}, Follows: "boxes"}}, "json", []byte(`{"objects": [{"bbox": [1, 2, 3, 4]}], "v": []}`), "there are 0, and 1 boxes"},
		"not finite":            {crowd, crowdSpecs[3:4], "boxes.npy", npyFile([]int{1, 4}, 0.5, math.NaN(), 0, 0), "must be finite"},
		"narrow":                {crowd, crowdSpecs[3:4], "boxes.npy", npyFile([]int{1, 4}, float32(0.5), 0, 0, 0), "set stored"},
	} {
		d := small(t, datasettest.Options{Make: func(n, classes int) datasettest.Made {
			m := c.make(n, classes)
			if n == 5 {
				at := slices.IndexFunc(m.Fields, func(f sample.Field) bool { return f.Name == c.field })
				m.Fields[at].Data = c.data
			} else if name == "class too large" {
				w, h := sceneSize(n)
				m.Fields[2].Data = pngOf(image.NewGray(image.Rect(0, 0, w, h)))
			} else if name == "a label too few" {
				m.Fields[1].Data = []byte(`{"objects": [], "v": []}`)
			}
			return m
		}})
		config := Config{BatchSize: 8, Shuffle: ShuffleNone, Transform: crop, Tensors: c.spec, MaxPixels: 4000}
		var last error
		for b, err := range newReader(t, d, config).Epoch(context.Background(), 0) {
			if last = err; err == nil {
				b.Release()
			}
		}
		var bad *SampleError
		if !errors.As(last, &bad) || bad.Sample != 5 || bad.Field != c.field || !strings.Contains(last.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, last, c.want)
		}
		for _, policy := range []OnBad{OnBadSkip, OnBadSubstitute} {
			config.OnBad = policy
			n := 0
			for b, err := range newReader(t, d, config).Epoch(context.Background(), 0) {
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				n += b.Len()
				b.Release()
			}
			if n != map[OnBad]int{OnBadSkip: 39, OnBadSubstitute: 40}[policy] {
				t.Errorf("%s, %s: %d samples", name, policy, n)
			}
		}
	}
}
