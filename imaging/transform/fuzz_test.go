package transform

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"testing"

	"shardify/imaging"
	"shardify/imaging/augment"
)

// What JSON made is written and read again as it was. What compiles makes of any image,
// mask and boxes what its program and recipe say, or an error where an image is too small
// or would become too large.
func FuzzList(f *testing.F) {
	for i, text := range pillowLists {
		f.Add([]byte(text), uint64(i), uint16(0))
		f.Add([]byte(text), uint64(i), uint16(20<<8|31))
	}
	f.Add([]byte(`[{"gaussian_blur": {"kernel_size": [3, 9], "sigma": 1e-300}}, {"random_erasing": {"p": 1, "value": "random"}}, {"center_crop": [1, 40]}, {"normalize": "imagenet"}]`), uint64(1), uint16(0))
	f.Add([]byte(`[{"random_choice": {"transforms": ["grayscale", {"resize": 9}], "p": [1e-300, 1e9]}}, {"random_apply": [{"random_choice": ["random_invert"]}]}]`), uint64(1), uint16(0))
	const maxPixels = 1 << 14
	f.Fuzz(func(t *testing.T, text []byte, seed uint64, size uint16) {
		var l, back List
		if json.Unmarshal(text, &l) != nil {
			return
		}
		again, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(again, &back); err != nil || !reflect.DeepEqual(l, back) {
			t.Fatalf("%s became %s: %v", text, again, err)
		}
		o := Options{MaxPixels: maxPixels, Size: Size{int(size >> 8), int(size & 255)}}
		p, err := Compile(l, o)
		if err != nil {
			return
		}
		var ws Workspace
		var r Recipe
		for _, size := range [][2]int{{1, 1}, {7, 5}, {2, 40}, {33, 9}} {
			w, h := size[0], size[1]
			random := augment.NewRand(seed, 1, 1)
			if err := p.Draw(&r, &random, w, h); err != nil {
				// RandomCrop has no error of its own.
				if !errors.Is(err, imaging.ErrTooLarge) && !hasCrop(l) {
					t.Fatalf("%s of %d x %d: %v", again, w, h, err)
				}
				continue
			}
			ow, oh := r.Size()
			if pw, ph := p.Size(); pw != 0 && (pw != ow || ph != oh) {
				t.Fatalf("%s of %d x %d: %d x %d, where the program says %d x %d", again, w, h, ow, oh, pw, ph)
			}
			if head := r.Head(); !inside(head.Crop, augment.Region{Width: w, Height: h}) || head.Width < 1 || head.Height < 1 {
				t.Fatalf("%s of %d x %d looks at %+v", again, w, h, head)
			}
			if ow*oh > maxPixels {
				t.Fatalf("%s of %d x %d: %d x %d are too many pixels", again, w, h, ow, oh)
			}
			m := picture(w, h)
			mask := red(m)
			view, err := r.Image(&ws, m)
			if err != nil {
				t.Fatalf("%s of %d x %d: %v", again, w, h, err)
			}
			want := upright(view)
			if view.Width != ow || view.Height != oh || len(want) != 3*ow*oh {
				t.Fatalf("%s of %d x %d: the view has %d x %d", again, w, h, view.Width, view.Height)
			}
			if got, err := throughHead(&ws, &r, picture(w, h)); err != nil || string(got) != string(want) {
				t.Fatalf("%s of %d x %d: head and rest make another picture; %v", again, w, h, err)
			}
			var out imaging.Mask
			if err := r.Mask(&ws, &out, mask, 9); err != nil || out.Width != ow || out.Height != oh {
				t.Fatalf("%s of %d x %d: a mask of %d x %d, %v", again, w, h, out.Width, out.Height, err)
			}
			boxes, kept, err := r.Boxes([]augment.Box{{0, 0, 1, 1}, {-1, 2, 30, 3}, {0, 0, float64(w), float64(h)}}, nil, augment.BoxFilter{})
			if err != nil || len(boxes) != len(kept) {
				t.Fatalf("%s of %d x %d: %d boxes, %d kept, %v", again, w, h, len(boxes), len(kept), err)
			}
			for _, b := range boxes {
				if !(b[0] >= 0 && b[1] >= 0 && b[2] <= float64(ow) && b[3] <= float64(oh) && b[0] < b[2] && b[1] < b[3]) {
					t.Fatalf("%s of %d x %d: the box %v of %d x %d", again, w, h, b, ow, oh)
				}
			}
		}
	})
}

// hasCrop says whether a RandomCrop is in a list, which images may be too small for.
func hasCrop(l List) bool {
	for _, t := range l {
		switch t := t.(type) {
		case RandomCrop:
			return true
		case RandomApply:
			if hasCrop(t.Transforms) {
				return true
			}
		case RandomChoice:
			if hasCrop(t.Transforms) {
				return true
			}
		}
	}
	return false
}

// pool is transforms to make lists of.
var pool = []string{
	`{"resize": 12}`, `{"resize": [9, 14]}`, `{"resize": {"max_size": 15, "interpolation": "lanczos"}}`,
	`{"center_crop": 10}`, `{"center_crop": [7, 13]}`, `{"random_resized_crop": {"size": [11, 8], "scale": [0.3, 1]}}`,
	`{"random_crop": {"size": 9, "pad_if_needed": true, "fill": 50}}`, `{"random_crop": {"size": 8, "padding": 3, "pad_if_needed": true, "padding_mode": "reflect"}}`,
	`{"pad": {"padding": [1, 2, 3, 0], "fill": [7, 8, 9]}}`, `{"pad": {"padding": 2, "padding_mode": "edge"}}`, `{"pad": {"padding": [3, 1], "padding_mode": "symmetric"}}`,
	`"random_horizontal_flip"`, `"random_vertical_flip"`,
	`{"random_rotation": {"degrees": 90, "fill": 50}}`, `{"random_affine": {"degrees": 10, "translate": 0.3, "scale": [0.5, 1.5], "interpolation": "bilinear"}}`,
	`{"color_jitter": {"brightness": 0.5, "contrast": 0.5, "saturation": 0.5, "hue": 0.5}}`, `"random_grayscale"`, `"grayscale"`,
	`{"gaussian_blur": [3, 5]}`, `{"random_erasing": {"p": 1, "value": [1, 2, 3]}}`, `{"random_erasing": {"p": 1, "value": "random"}}`,
	`"rand_augment"`, `"trivial_augment_wide"`, `"random_invert"`, `{"random_posterize": 2}`, `{"random_solarize": 90}`, `{"random_adjust_sharpness": 3}`,
	`"random_autocontrast"`, `"random_equalize"`, `{"random_apply": ["random_invert", {"center_crop": 6}]}`, `{"random_choice": ["random_vertical_flip", {"resize": 8}]}`,
}

// A list does what its transforms do one by one, each with a recipe of its own and its
// flips done: for the image (unless a flip comes before a resize), the mask and the boxes.
func FuzzJoining(f *testing.F) {
	for i := range byte(len(pool)) {
		f.Add([]byte{i, 11, 3}, uint64(i))
		f.Add([]byte{0, 12, i, 8, 9, i, 11}, uint64(i))
	}
	f.Fuzz(func(t *testing.T, picks []byte, seed uint64) {
		if len(picks) == 0 {
			return // no step clips the boxes
		}
		var l List
		for _, k := range picks[:min(len(picks), 8)] {
			l = append(l, jsonList(t, "["+pool[int(k)%len(pool)]+"]")...)
		}
		p, err := Compile(l, Options{})
		if err != nil {
			t.Fatal(err)
		}
		const w, h = 17, 13
		random := augment.NewRand(seed, 2, 3)
		m := picture(w, h)
		mask := red(m)
		filter := augment.BoxFilter{}
		boxes := []augment.Box{{1, 2, 9, 8}, {-5, -5, 3, 4}, {10, 3, 30, 20}}
		mirrored := false // a resize follows a flip
		flipped := false
		one := random
		image, masked, found := *picture(w, h), *mask, append([]augment.Box(nil), boxes...)
		for _, step := range l {
			p, err := Compile(List{step}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			var r Recipe
			var ws Workspace
			if err := p.Draw(&r, &one, image.Width, image.Height); err != nil {
				t.Fatal(err)
			}
			for i := range r.stages {
				mirrored = mirrored || flipped && r.stages[i].geometry.Width != 0
			}
			flipped = flipped || r.flipX || r.flipY
			out := new(imaging.Mask)
			if err := r.Mask(&ws, out, &masked, 50); err != nil {
				t.Fatal(err)
			}
			if found, _, err = r.Boxes(found, nil, filter); err != nil {
				t.Fatal(err)
			}
			view, err := r.Image(&ws, &image)
			if err != nil {
				t.Fatal(err)
			}
			image = imaging.Image{Pix: upright(view), Width: view.Width, Height: view.Height, Stride: 3 * view.Width}
			masked = *out
		}
		var r Recipe
		var ws Workspace
		if err := p.Draw(&r, &random, w, h); err != nil {
			t.Fatal(err)
		}
		if random != one {
			t.Fatalf("%+v: other random numbers", l)
		}
		view, err := r.Image(&ws, m)
		if err != nil {
			t.Fatal(err)
		}
		var out imaging.Mask
		if err := r.Mask(&ws, &out, mask, 50); err != nil {
			t.Fatal(err)
		}
		boxes, _, err = r.Boxes(boxes, nil, filter)
		if err != nil {
			t.Fatal(err)
		}
		if view.Width != image.Width || view.Height != image.Height || out.Width != image.Width || out.Height != image.Height {
			t.Fatalf("%+v: %d x %d, one by one %d x %d", l, view.Width, view.Height, image.Width, image.Height)
		}
		if !mirrored && string(upright(view)) != string(image.Pix) {
			t.Fatalf("%+v: other pixels than one by one", l)
		}
		if !mirrored && string(out.Pix) != string(masked.Pix) {
			t.Fatalf("%+v: another mask than one by one", l)
		}
		if len(boxes) != len(found) {
			t.Fatalf("%+v: boxes %v, one by one %v", l, boxes, found)
		}
		for i := range boxes {
			for c := range boxes[i] {
				if math.Abs(boxes[i][c]-found[i][c]) > 1e-9 {
					t.Fatalf("%+v: boxes %v, one by one %v", l, boxes, found)
				}
			}
		}
	})
}
