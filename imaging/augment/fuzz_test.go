package augment

import (
	"encoding/json"
	"reflect"
	"testing"

	"shardify/imaging"
)

// everything has every transform.
type everything struct {
	Crop        RandomResizedCrop
	Center      CenterCrop
	Jitter      ColorJitter
	Grayscale   RandomGrayscale
	Posterize   RandomPosterize
	Solarize    RandomSolarize
	Sharpness   RandomAdjustSharpness
	Blur        GaussianBlur
	Rotation    RandomRotation
	Affine      RandomAffine
	Pad         Pad
	RandomCrop  RandomCrop
	Erasing     RandomErasing
	RandAugment RandAugment
	Trivial     TrivialAugmentWide
	MixUp       MixUp
	CutMix      CutMix
	Geometry    Geometry
	Boxes       BoxFilter
	Op          Op
}

// What JSON made is written and read again as it was. What is valid can be drawn and
// applied to any image.
func FuzzTransforms(f *testing.F) {
	f.Add([]byte(`{"Jitter":{"brightness":0.4,"contrast":[0.5,3],"hue":0.5},"Rotation":{"degrees":30,"fill":7,"center":[1,2]}}`), uint64(1))
	f.Add([]byte(`{"Affine":{"degrees":[-9,9],"translate":[0.1,1],"scale":[0.001,1000],"shear":[1,2,3,4],"interpolation":"bilinear"}}`), uint64(2))
	f.Add([]byte(`{"Pad":{"padding":[1,2],"padding_mode":"symmetric"},"RandomCrop":{"size":[3,9],"padding":4,"pad_if_needed":true}}`), uint64(3))
	f.Add([]byte(`{"Erasing":{"p":1,"scale":[0,1],"ratio":[0.1,9],"value":"random"},"Blur":{"kernel_size":[5,3],"sigma":[1e-300,1e6]}}`), uint64(4))
	f.Add([]byte(`{"RandAugment":{"num_ops":9,"magnitude":30},"Trivial":{"num_magnitude_bins":2},"MixUp":{"alpha":1e-9},"CutMix":{"alpha":1e6}}`), uint64(5))
	f.Add([]byte(`{"Geometry":{"crop":{"x":1,"y":0,"width":2,"height":3},"width":5,"height":1,"window":{"x":-9,"y":2,"width":30,"height":3},"flip_x":true,"padding_mode":"reflect","matrix":[1,0.5,0,0,2,1]},"Op":{"kind":"GaussianBlur","value":2,"kernel":[3,3]}}`), uint64(6))
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		var e, back everything
		if json.Unmarshal(text, &e) != nil {
			return
		}
		again, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(again, &back); err != nil || !reflect.DeepEqual(e, back) {
			t.Fatalf("%s became %s: %v", text, again, err)
		}
		var ws Workspace
		for _, size := range [][2]int{{1, 1}, {7, 5}, {2, 40}} {
			w, h := size[0], size[1]
			r := NewRand(seed, 1, 1)
			m := picture(w, h, true)
			do := func(valid error, apply func() error) {
				if valid == nil {
					if err := apply(); err != nil {
						t.Fatalf("%s: %v", again, err)
					}
				}
			}
			var dst imaging.Image
			show := func(g Geometry) error {
				if gw, gh := g.Size(w, h); gw*gh > 1<<16 || g.Width*g.Height > 1<<16 || g.Width > 1<<16 || g.Height > 1<<16 {
					return nil // slow
				}
				if err := ws.Image(&dst, m, g, Look{}); err != nil {
					return err
				}
				var mask imaging.Mask
				if err := ws.Mask(&mask, red(m), g, 9); err != nil {
					return err
				}
				boxes, kept, err := g.Boxes([]Box{{0, 0, 1, 1}, {-1, 2, 30, 3}}, nil, w, h, e.Boxes)
				if len(boxes) != len(kept) {
					t.Fatalf("%s: %d boxes, %d kept", again, len(boxes), len(kept))
				}
				for _, b := range boxes {
					if !(b[0] >= 0 && b[1] >= 0 && b[2] <= float64(dst.Width) && b[3] <= float64(dst.Height)) {
						t.Fatalf("%s: the box %v of %d x %d", again, b, dst.Width, dst.Height)
					}
				}
				return err
			}
			do(e.Crop.Validate(), func() error { return show(Geometry{Crop: e.Crop.Draw(&r, w, h)}) })
			do(e.Center.Validate(), func() error { e.Center.Window(w, h); return nil })
			do(e.Jitter.Validate(), func() error { return e.Jitter.Draw(&r, w, h).Apply(&ws, m) })
			do(e.Grayscale.Validate(), func() error { return e.Grayscale.Draw(&r, w, h).Apply(&ws, m) })
			do(e.Posterize.Validate(), func() error { return e.Posterize.Draw(&r, w, h).Apply(&ws, m) })
			do(e.Solarize.Validate(), func() error { return e.Solarize.Draw(&r, w, h).Apply(&ws, m) })
			do(e.Sharpness.Validate(), func() error { return e.Sharpness.Draw(&r, w, h).Apply(&ws, m) })
			do(e.Blur.Validate(), func() error { return e.Blur.Draw(&r, w, h).Apply(&ws, m) })
			do(e.Rotation.Validate(), func() error { return e.Rotation.Draw(&r, w, h).Apply(&ws, m) })
			do(e.Affine.Validate(), func() error { return e.Affine.Draw(&r, w, h).Apply(&ws, m) })
			do(e.Pad.Validate(), func() error { return show(Geometry{Window: e.Pad.Window(w, h), PaddingMode: e.Pad.PaddingMode}) })
			do(e.RandomCrop.Validate(), func() error {
				c, err := e.RandomCrop.Draw(&r, w, h)
				if err != nil && !e.RandomCrop.PadIfNeeded {
					return nil
				}
				if err != nil {
					return err
				}
				return show(Geometry{Window: c, PaddingMode: e.RandomCrop.PaddingMode})
			})
			do(e.Erasing.Validate(), func() error { return e.Erasing.Draw(&r, w, h).Apply(&ws, m) })
			do(e.RandAugment.Validate(), func() error { return e.RandAugment.Draw(nil, &r, w, h).Apply(&ws, m) })
			do(e.Trivial.Validate(), func() error { return e.Trivial.Draw(&r, w, h).Apply(&ws, m) })
			do(e.MixUp.Validate(), func() error {
				if v := e.MixUp.Draw(&r).Lambda; !(v >= 0 && v <= 1) {
					t.Fatalf("%s: lambda is %v", again, v)
				}
				return nil
			})
			do(e.CutMix.Validate(), func() error {
				g := e.CutMix.Draw(&r, w, h)
				if c := g.Region; !(g.Lambda >= 0 && g.Lambda <= 1 && c.X >= 0 && c.Y >= 0 && c.Width >= 0 && c.Height >= 0 && c.X+c.Width <= w && c.Y+c.Height <= h) {
					t.Fatalf("%s: %+v of %d x %d", again, g, w, h)
				}
				return nil
			})
			do(e.Geometry.Validate(w, h), func() error { return show(e.Geometry) })
			if err := e.Op.Apply(&ws, m); err != nil && e.Op.Kind == Identity && e.Op.Value == 0 {
				t.Fatal(err)
			}
		}
	})
}
