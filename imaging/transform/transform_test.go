package transform

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
)

// Each transform in JSON, as short as can be and with all parameters, and what it is in
// Go; together they are all there are.
func TestJSON(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range []struct {
		text string
		want Transform
	}{
		{`{"resize": 256}`, Resize{Size: Size{256}}},
		{`{"resize": [256]}`, Resize{Size: Size{256}}},
		{`{"resize": [200, 300]}`, Resize{Size: Size{200, 300}}},
		{`{"resize": {"size": 256, "max_size": 512, "interpolation": "bicubic"}}`, Resize{Size{256}, 512, resize.Bicubic}},
		{`{"resize": {"max_size": 512}}`, Resize{MaxSize: 512}},
		{`{"center_crop": 224}`, CenterCrop{Size{224}}},
		{`{"center_crop": {"size": [3, 4]}}`, CenterCrop{Size{3, 4}}},
		{`{"random_resized_crop": 224}`, RandomResizedCrop{Size: Size{224}}},
		{`{"random_resized_crop": {"size": 224, "scale": [0.5, 1], "ratio": [1, 2], "interpolation": "box"}}`, RandomResizedCrop{Size{224}, [2]float64{0.5, 1}, [2]float64{1, 2}, resize.Box}},
		{`{"random_crop": [32, 16]}`, RandomCrop{Size: Size{32, 16}}},
		{`{"random_crop": {"size": 32, "padding": 4, "pad_if_needed": true, "fill": 9, "padding_mode": "reflect"}}`, RandomCrop{Size{32}, augment.Padding{4, 4, 4, 4}, true, augment.Color{9, 9, 9}, augment.Reflect}},
		{`{"pad": 3}`, Pad{Padding: augment.Padding{3, 3, 3, 3}}},
		{`{"pad": {"padding": [1, 2], "fill": [1, 2, 3], "padding_mode": "edge"}}`, Pad{augment.Padding{1, 2, 1, 2}, augment.Color{1, 2, 3}, augment.Edge}},
		{`"random_horizontal_flip"`, RandomHorizontalFlip{}},
		{`{"random_horizontal_flip": {}}`, RandomHorizontalFlip{}},
		{`{"random_horizontal_flip": 0.25}`, RandomHorizontalFlip{0.25}},
		{`{"random_vertical_flip": {"p": 1}}`, RandomVerticalFlip{1}},
		{`{"random_rotation": 30}`, RandomRotation{Degrees: augment.Spread{-30, 30}}},
		{`{"random_rotation": {"degrees": [0, 9], "interpolation": "bilinear", "center": [1, 2], "fill": 3}}`, RandomRotation{augment.Spread{0, 9}, augment.Bilinear, &[2]float64{1, 2}, augment.Color{3, 3, 3}}},
		{`{"random_affine": 5}`, RandomAffine{Degrees: augment.Spread{-5, 5}}},
		{`{"random_affine": {"degrees": 0, "translate": [0.1, 0.2], "scale": [0.5, 2], "shear": [1, 2], "interpolation": "bilinear", "fill": 1, "center": [3, 4]}}`,
			RandomAffine{augment.Spread{}, [2]float64{0.1, 0.2}, [2]float64{0.5, 2}, augment.ShearRange{1, 2}, augment.Bilinear, augment.Color{1, 1, 1}, &[2]float64{3, 4}}},
		{`{"color_jitter": {"brightness": 0.5, "contrast": [0.5, 2], "saturation": 0.25, "hue": 0.1, "p": 0.8}}`, ColorJitter{augment.GainOf(0.5), augment.Gain{0.5, 2}, augment.GainOf(0.25), augment.SpreadOf(0.1), 0.8}},
		{`{"random_grayscale": 0.2}`, RandomGrayscale{0.2}},
		{`"grayscale"`, Grayscale{}},
		{`{"grayscale": {"num_output_channels": 3}}`, Grayscale{3}},
		{`{"gaussian_blur": 23}`, GaussianBlur{KernelSize: [2]int{23, 23}}},
		{`{"gaussian_blur": {"kernel_size": [5, 9], "sigma": 1.5, "p": 0.5}}`, GaussianBlur{[2]int{5, 9}, [2]float64{1.5, 1.5}, 0.5}},
		{`{"random_erasing": {"p": 0.25, "scale": [0.1, 0.2], "ratio": [0.5, 2], "value": "random"}}`, RandomErasing{0.25, [2]float64{0.1, 0.2}, [2]float64{0.5, 2}, augment.ErasingValue{Random: true}}},
		{`{"rand_augment": {"num_ops": 3, "magnitude": 0, "num_magnitude_bins": 11, "interpolation": "bilinear", "fill": 7}}`, RandAugment{3, new(int), 11, augment.Bilinear, augment.Color{7, 7, 7}}},
		{`{"trivial_augment_wide": {"num_magnitude_bins": 11, "interpolation": "bilinear", "fill": 7}}`, TrivialAugmentWide{11, augment.Bilinear, augment.Color{7, 7, 7}}},
		{`"random_invert"`, RandomInvert{}},
		{`{"random_posterize": 3}`, RandomPosterize{Bits: 3}},
		{`{"random_solarize": {"threshold": 0, "p": 0.1}}`, RandomSolarize{0, 0.1}},
		{`{"random_adjust_sharpness": 2}`, RandomAdjustSharpness{SharpnessFactor: 2}},
		{`"random_autocontrast"`, RandomAutocontrast{}},
		{`"random_equalize"`, RandomEqualize{}},
		{`{"random_apply": [{"grayscale": {}}, {"resize": 3}]}`, RandomApply{Transforms: List{Grayscale{}, Resize{Size: Size{3}}}}},
		{`{"random_choice": {"transforms": ["random_equalize", "grayscale"], "p": [1, 3]}}`, RandomChoice{List{RandomEqualize{}, Grayscale{}}, []float64{1, 3}}},
		{`{"normalize": "imagenet"}`, ImageNet},
		{`{"normalize": 0.5}`, Normalize{Mean: [3]float32{0.5, 0.5, 0.5}}},
		{`{"normalize": {"mean": [0.1, 0.2, 0.3], "std": 2}}`, Normalize{[3]float32{0.1, 0.2, 0.3}, [3]float32{2, 2, 2}}},
	} {
		l := jsonList(t, "["+c.text+"]")
		if !reflect.DeepEqual(l, List{c.want}) {
			t.Errorf("%s: %+v; want %+v", c.text, l[0], c.want)
			continue
		}
		if err := l.Validate(); err != nil {
			t.Errorf("%s: %v", c.text, err)
		}
		data, err := json.Marshal(l)
		if err != nil || !reflect.DeepEqual(jsonList(t, string(data)), l) {
			t.Errorf("%s became %s, %v", c.text, data, err)
		}
		name, err := nameOf(c.want)
		if err != nil || !strings.Contains(c.text, `"`+name+`"`) {
			t.Errorf("%s is called %q, %v", c.text, name, err)
		}
		seen[name] = true
	}
	for _, name := range Names() {
		if !seen[name] {
			t.Errorf("%s is not tried", name)
		}
	}
	var none List
	if data, err := json.Marshal(none); string(data) != "null" || err != nil {
		t.Errorf("%s, %v", data, err)
	}
	if err := json.Unmarshal([]byte("null"), &none); none != nil || err != nil {
		t.Errorf("%v, %v", none, err)
	}
}

// Every fault is named with its place, all at once.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string // of the error
	}{
		{`{"resize": 3}`, []string{`{"resize": 3} is no list of transforms; want [{"resize": 256}, …]`}},
		{`[{"resize": 3}, 7]`, []string{`transform 2: 7; want an object with the name of one transform`}},
		{`[{"resize": 3, "center_crop": 2}, {}]`, []string{`transform 1: {"resize": 3, "center_crop": 2}; want an object with`, `transform 2: {}; want an object with`}},
		{`[null, "resise", {"to_tensor": {}}]`, []string{"transform 1: null;", `transform 2: no transform "resise"; did you mean "resize"?`, `transform 3: no transform "to_tensor"; there are: resize, center_crop`}},
		{`[{"center_crop": {}}, "random_crop", {"center_crop": {"siz": 3}}]`, []string{"transform 1: center_crop: size is missing", "transform 2: random_crop: size is missing",
			`transform 3: center_crop: size is missing`, `transform 3: center_crop: no parameter "siz"; did you mean "size"?`}},
		{`[{"color_jitter": 0.4}, {"grayscale": null}, {"resize": null}]`, []string{"transform 1: color_jitter: 0.4; want an object of parameters: brightness, contrast, saturation, hue, p",
			"transform 2: grayscale: null; want an object", "transform 3: resize: null; want an object"}},
		{`[{"resize": {"size": null, "max_size": 1.5, "interpolation": "cubic", "antialias": true}}]`, []string{"transform 1: resize: size: null;", "resize: max_size: 1.5; want a whole number",
			"resize: interpolation: resize: unknown filter \"cubic\"", `resize: no parameter "antialias"; there are: size, max_size, interpolation`}},
		{`[{"resize": "large"}, {"resize": [1, 2, 3]}, {"center_crop": [3, 0]}]`, []string{`transform 1: resize: size: "large" is no size`, "transform 2: resize: size: [1, 2, 3] is no size", "transform 3: center_crop: size: [3, 0] is no size"}},
		{`[{"random_resized_crop": {"size": 3, "scale": [1], "ratio": [1, 2, 3], "interpolation": 2}}]`, []string{"scale: [1]; want 2 numbers, or one for all", "ratio: [1, 2, 3]; want 2 numbers", "interpolation: 2; want a name"}},
		{`[{"random_horizontal_flip": 0}, {"random_apply": {"transforms": ["grayscale"], "p": 0}}]`, []string{"transform 1: random_horizontal_flip: p is 0: leave the transform out", "transform 2: random_apply: p is 0"}},
		{`[{"random_crop": {"size": 3, "pad_if_needed": 1, "padding": "x"}}]`, []string{"pad_if_needed: 1; want true or false", "padding: "}},
		{`[{"random_apply": [{"resize": {"size": "x"}}, "grayscael"]}]`, []string{"transform 1: random_apply: transforms: transform 1: resize: size: ", "transform 1: random_apply: transforms: transform 2: no transform"}},
		{`[{"normalize": "cifar"}, {"normalize": {"mean": [1, 2], "std": 1}}, {"normalize": {}}]`, []string{"transform 1: normalize: mean: \"cifar\"", "transform 2: normalize: mean: [1, 2]; want 3 numbers", "transform 3: normalize: mean is missing"}},
		// Values, and the order.
		{`[{"resize": 0}, {"resize": {"size": [3, 4], "max_size": 9}}, {"resize": {"size": 9, "max_size": 9}}, {"resize": 20000}]`, []string{"transform 1: resize: size is 0", "transform 2: resize: max_size goes with a single number",
			"transform 3: resize: max_size is 9; want more than size, 9", "transform 4: resize: size is 20000"}},
		{`[{"resize": {}}, {"color_jitter": {"brightness": [2, 1], "hue": 0.7}}, {"random_posterize": 0}]`, []string{"transform 1: resize: size is 0", "transform 2: color_jitter: brightness is [2 1]", "transform 2: color_jitter: hue is [-0.7 0.7]", "transform 3: random_posterize: bits is 0"}},
		{`[{"random_crop": {"size": -1, "padding": -1}}, {"pad": -2}, {"grayscale": {"num_output_channels": 1}}]`, []string{"transform 1: random_crop: size is -1", "random_crop: padding is", "transform 2: pad: padding is", "transform 3: grayscale: num_output_channels is 1"}},
		{`[{"random_apply": []}, {"random_choice": {"transforms": ["grayscale"], "p": [1, 2]}}, {"random_choice": {"transforms": ["grayscale"], "p": [0]}}, {"random_choice": {"transforms": ["grayscale"], "p": [-1]}}, {"random_apply": {"transforms": [{"resize": 0}], "p": 2}}]`,
			[]string{"transform 1: random_apply: transforms is empty", "transform 2: random_choice: p has 2 weights for 1 transforms", "transform 3: random_choice: p is 0 for all", "transform 4: random_choice: p[0] is -1", "transform 5: random_apply: p is 2", "transform 5: random_apply: transform 1: resize: size is 0"}},
		{`[{"normalize": 0.5}, {"center_crop": 3}, {"random_apply": [{"normalize": 0.5}]}, {"random_choice": ["grayscale", {"random_apply": [{"normalize": 0.5}]}]}]`,
			[]string{"transform 1: normalize: must come last", "transform 3: random_apply: transform 1: normalize: must come last, for all images", "transform 4: random_choice: transform 2: random_apply: transform 1: normalize: must"}},
		{`[{"center_crop": 8}, {"random_apply": [{"random_crop": 9}]}]`, []string{"transform 2: random_apply: transform 1: random_crop: augment: RandomCrop of 9 x 9 from an image of 8 x 8"}},
		{`[{"center_crop": 8}, {"random_choice": ["grayscale", {"random_crop": 9}]}]`, []string{"transform 2: random_choice: transform 2: random_crop: "}},
	} {
		var l List
		err := json.Unmarshal([]byte(c.text), &l)
		if err == nil {
			_, err = Compile(l, Options{})
		} else if l != nil {
			t.Errorf("%s: %+v and an error", c.text, l)
		}
		if err == nil {
			t.Errorf("%s passed", c.text)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains("\n"+err.Error(), "\n"+want) && !strings.Contains(err.Error(), ": "+want) {
				t.Errorf("%s:\n%v\nlacks\n%s", c.text, err, want)
			}
		}
		if n := strings.Count(err.Error(), "\n") + 1; n != len(c.want) {
			t.Errorf("%s: %d faults:\n%v", c.text, n, err)
		}
	}
	for _, l := range []List{{nil}, {&Resize{Size: Size{3}}}, {covering{}}} {
		if _, err := Compile(l, Options{}); err == nil || !strings.Contains(err.Error(), "transform 1: a ") {
			t.Errorf("%#v: %v", l, err)
		}
		if _, err := json.Marshal(l); err == nil {
			t.Errorf("%#v has JSON", l)
		}
	}
	if _, err := Compile(nil, Options{Size: Size{-1, 3}, MaxPixels: -1}); err == nil || !strings.Contains(err.Error(), "max_pixels") || !strings.Contains(err.Error(), "size is [-1 3]") {
		t.Error(err)
	}
}

// The size of the results is known before any image is, or that it varies.
func TestProgramSize(t *testing.T) {
	for _, c := range []struct {
		text string
		w, h int
	}{
		{`[]`, 0, 0},
		{`["random_horizontal_flip", {"resize": 20}]`, 0, 0},
		{`[{"resize": [20, 30]}, {"resize": 10}]`, 15, 10},
		{`[{"resize": {"max_size": 20}}]`, 0, 0},
		{`[{"center_crop": [20, 30]}, {"resize": {"max_size": 15}}]`, 15, 10},
		{`[{"center_crop": [20, 30]}, {"resize": {"size": 15, "max_size": 16}}]`, 16, 10},
		{`[{"pad": 3}]`, 0, 0},
		{`[{"random_crop": [20, 30]}, {"pad": [1, 2, 3, 4]}, {"normalize": "imagenet"}]`, 34, 26},
		{`[{"random_resized_crop": [20, 30]}, {"random_rotation": 3}, "rand_augment"]`, 30, 20},
		{`[{"random_resized_crop": 20}, {"random_apply": [{"random_crop": 20}]}]`, 20, 20},
		{`[{"random_resized_crop": 20}, {"random_apply": [{"random_crop": 19}]}]`, 0, 0},
		{`[{"random_choice": [{"random_crop": 19}, {"resize": 20}]}]`, 0, 0},
		{`[{"random_choice": [{"random_crop": 19}, {"resize": [19, 19]}]}]`, 19, 19},
		{`[{"random_choice": [{"random_crop": 19}, {"resize": 20}]}, {"center_crop": [7, 8]}]`, 8, 7},
	} {
		p, err := Compile(jsonList(t, c.text), Options{})
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if w, h := p.Size(); w != c.w || h != c.h {
			t.Errorf("%s: %d x %d; want %d x %d", c.text, w, h, c.w, c.h)
		}
		_, normal := p.Normalize()
		if normal != strings.Contains(c.text, "normalize") {
			t.Errorf("%s: normalisation: %v", c.text, normal)
		}
	}
}

// With a size given, sizes keep their proportion to that of the result, and what would
// vary is scaled to cover it.
func TestSizeOption(t *testing.T) {
	size := Options{Size: Size{192, 288}}
	for _, c := range []struct {
		text         string
		imageW       int
		imageH       int
		scaledW      int
		scaledH      int
		windowX      int
		windowY      int
		windowW, crH int
	}{
		// 256/224 of 192 x 288 is 219 x 329.
		{`[{"resize": 256}, {"center_crop": 224}]`, 600, 400, 329, 219, 20, 14, 288, 192},
		{`[{"resize": 256}, {"center_crop": 224}]`, 600, 300, 438, 219, 75, 14, 288, 192},
		{`[{"resize": 256}, {"center_crop": 224}]`, 300, 400, 329, 438, 20, 123, 288, 192},
		{`[{"resize": [256, 256]}, {"center_crop": 224}]`, 300, 400, 329, 219, 20, 14, 288, 192},
		{`[{"resize": {"size": 256, "max_size": 300}}, {"center_crop": 224}]`, 600, 100, 386, 64, 49, -64, 288, 192},
		// Nothing sets a size.
		{`["random_horizontal_flip"]`, 600, 300, 384, 192, 48, 0, 288, 192},
		{`[{"resize": 50}]`, 50, 100, 288, 576, 0, 192, 288, 192},
		// Several do.
		{`[{"random_choice": [{"resize": [448, 448]}]}, {"center_crop": 224}]`, 50, 100, 576, 384, 144, 96, 288, 192},
		{`[{"random_apply": {"transforms": [{"resize": [448, 448]}], "p": 1}}, {"center_crop": 224}]`, 50, 100, 576, 384, 144, 96, 288, 192},
		{`[{"resize": {"max_size": 300}}, {"center_crop": 224}]`, 600, 772, 300, 386, 6, 97, 288, 192},
	} {
		p, err := Compile(jsonList(t, c.text), size)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if w, h := p.Size(); w != 288 || h != 192 {
			t.Errorf("%s: %d x %d", c.text, w, h)
		}
		var r Recipe
		random := augment.NewRand(1, 2, 3)
		if err := p.Draw(&r, &random, c.imageW, c.imageH); err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		s := r.last()
		w, h := s.scaled()
		if got, want := s.window(), (augment.Region{X: c.windowX, Y: c.windowY, Width: c.windowW, Height: c.crH}); w != c.scaledW || h != c.scaledH || got != want {
			t.Errorf("%s of %d x %d: scaled to %d x %d, of which %+v", c.text, c.imageW, c.imageH, w, h, got)
		}
	}
	for _, text := range []string{`[{"random_resized_crop": 32}, {"random_crop": {"size": 28, "padding": 4}}]`, `[{"random_crop": [40, 20]}, "rand_augment", {"normalize": 0.5}]`, `[{"pad": 3}, {"center_crop": 9}]`} {
		if p, err := Compile(jsonList(t, text), size); err != nil || p.size != (extent{288, 192}) {
			t.Errorf("%s: %+v, %v", text, p, err)
		}
	}
	if _, err := Compile(jsonList(t, `[{"center_crop": 200}, {"pad": 12}]`), size); err == nil || !strings.Contains(err.Error(), "before what sets the size") {
		t.Error(err)
	}
}

// What an image's dimensions make impossible is an error of that image, found before it
// is decoded, and the recipe is then empty.
func TestDrawErrors(t *testing.T) {
	for _, c := range []struct {
		text string
		w, h int
		want string
	}{
		{`[{"random_crop": 32}]`, 31, 60, "transform 1: random_crop: augment: RandomCrop of 32 x 32 from an image of 31 x 60"},
		{`[{"random_apply": {"transforms": [{"random_crop": 32}], "p": 1}}, {"center_crop": 32}]`, 31, 60, "transform 1: random_apply: transform 1: random_crop"},
		{`[{"resize": 200}, "gaussian_blur", {"center_crop": 32}]`, 1, 5000, "transform 2: "},
		{`[{"resize": 200}]`, 1, 5000, "too many pixels: an image of 1 x 5000 would become one of 200 x 1000000"},
		{`[{"resize": 16000}, {"center_crop": 8}]`, 1, 5000, "transform 1: resize: too many pixels"},
		{`[{"resize": 200}, {"random_crop": {"size": 300, "pad_if_needed": true, "padding_mode": "edge"}}]`, 1, 50000, "too many pixels"},
		{`[{"center_crop": 8}]`, 0, 3, "0 x 3"},
		{`[{"center_crop": 8}]`, 3, -1, "3 x -1"},
	} {
		p, err := Compile(jsonList(t, c.text), Options{MaxPixels: 1e6})
		if err != nil {
			t.Fatal(err)
		}
		var r Recipe
		random := augment.NewRand(0, 0, 0)
		err = p.Draw(&r, &random, c.w, c.h)
		if strings.Contains(c.text, "gaussian") { // the blur wants all of it
			c.want = "too many pixels"
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "pixels") != errors.Is(err, imaging.ErrTooLarge) {
			t.Errorf("%s: %v; want %s", c.text, err, c.want)
		}
		var ws Workspace
		if _, err := r.Image(&ws, picture(3, 3)); err == nil || !strings.Contains(err.Error(), "empty") {
			t.Error(err)
		}
		if w, h := r.Size(); w != 0 || h != 0 {
			t.Error(w, h)
		}
	}
	p, err := Compile(jsonList(t, `[{"center_crop": 8}]`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var r Recipe
	var ws Workspace
	random := augment.NewRand(0, 0, 0)
	if err := p.Draw(&r, &random, 10, 20); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Image(&ws, picture(20, 10)); err == nil || !strings.Contains(err.Error(), "an image of 20 x 10, where the recipe is for an image of 10 x 20") {
		t.Error(err)
	}
	if err := r.Mask(&ws, new(imaging.Mask), red(picture(20, 10)), 0); err == nil || !strings.Contains(err.Error(), "a mask of 20 x 10") {
		t.Error(err)
	}
}

// A decoder that makes only the part of an image that Head names gives the same picture.
func TestHeadIsEnough(t *testing.T) {
	var ws Workspace
	var r Recipe
	parts, whole := 0, 0
	for i, text := range pillowLists {
		p, err := Compile(jsonList(t, text), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for k := range 40 {
			size := [][2]int{{61, 47}, {40, 77}, {33, 33}, {300, 31}}[k%4]
			random := augment.NewRand(uint64(i), uint64(k), 4)
			if err := p.Draw(&r, &random, size[0], size[1]); err != nil {
				t.Fatal(err)
			}
			h := r.Head()
			if !inside(h.Crop, augment.Region{Width: size[0], Height: size[1]}) {
				t.Fatalf("%s of %v: %+v", text, size, h)
			}
			view, err := r.Image(&ws, picture(size[0], size[1]))
			if err != nil {
				t.Fatal(err)
			}
			want := upright(view)
			m := picture(size[0], size[1])
			for y := range m.Height {
				for x := range m.Width {
					if g := h.Crop; x < g.X || y < g.Y || x >= g.X+g.Width || y >= g.Y+g.Height {
						copy(m.Pix[y*m.Stride+3*x:], "\xff\x00\xaa")
					}
				}
			}
			if view, err = r.Image(&ws, m); err != nil {
				t.Fatal(err)
			}
			if string(upright(view)) != string(want) {
				t.Fatalf("%s of %v: the picture needs more than %+v", text, size, h)
			}
			parts += h.Crop.Width * h.Crop.Height
			whole += size[0] * size[1]
		}
	}
	if parts*5 > whole*4 {
		t.Errorf("%d of %d pixels are looked at", parts, whole)
	}
}

// throughHead carries a recipe out as a decoder would: its head straight from the source,
// and then what is left.
func throughHead(ws *Workspace, r *Recipe, src *imaging.Image) ([]byte, error) {
	h := r.Head()
	part, err := resize.Crop(src, h.Crop.X, h.Crop.Y, h.Crop.Width, h.Crop.Height)
	if err != nil {
		return nil, err
	}
	var m imaging.Image
	m.Reset(h.Width, h.Height)
	var z resize.Resizer
	target := resize.Target{Width: h.Width, Height: h.Height, Layout: tensor.NHWC, Uint8: m.Pix}
	if err := z.ResizeInto(target, &part, h.Task); err != nil || h.Whole {
		return m.Pix, err
	}
	view, err := r.Rest(ws, &m)
	if err != nil {
		return nil, err
	}
	return upright(view), nil
}

// Head and Rest make the picture that Image makes.
func TestHead(t *testing.T) {
	var ws Workspace
	var r Recipe
	whole, parts := 0, 0
	lists := append([]string{
		`[{"random_resized_crop": 24}, "random_horizontal_flip", "random_vertical_flip"]`, `[{"center_crop": 20}, {"random_horizontal_flip": 1}]`,
		`[{"pad": {"padding": 3, "padding_mode": "reflect"}}, {"center_crop": 12}]`, `[{"center_crop": [90, 100]}, "random_horizontal_flip"]`,
		`[{"random_horizontal_flip": 1}, {"random_rotation": 30}, {"random_erasing": {"value": "random", "p": 1}}]`,
		`[{"pad": 60}, {"random_crop": 20}]`,
	}, pillowLists...)
	for i, text := range lists {
		p, err := Compile(jsonList(t, text), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for k := range 40 {
			size := [][2]int{{61, 47}, {40, 77}, {33, 33}, {300, 31}}[k%4]
			random := augment.NewRand(uint64(i), uint64(k), 4)
			if err := p.Draw(&r, &random, size[0], size[1]); err != nil {
				t.Fatal(err)
			}
			view, err := r.Image(&ws, picture(size[0], size[1]))
			if err != nil {
				t.Fatal(err)
			}
			want := upright(view)
			got, err := throughHead(&ws, &r, picture(size[0], size[1]))
			if err != nil {
				t.Fatalf("%s of %v: %v", text, size, err)
			}
			if string(got) != string(want) {
				t.Fatalf("%s of %v: head and rest make another picture: %+v", text, size, r.Head())
			}
			if h := r.Head(); h.Whole {
				whole++
				if _, err := r.Rest(&ws, &imaging.Image{Width: h.Width, Height: h.Height + 1}); err == nil {
					t.Fatal("a head of another size passes")
				}
			} else {
				parts++
			}
		}
	}
	if whole < 100 || parts < 100 {
		t.Errorf("%d recipes were whole, %d not", whole, parts)
	}
	if _, err := new(Recipe).Rest(&ws, new(imaging.Image)); err == nil {
		t.Error("an empty recipe has a rest")
	}
}

func inside(a, b augment.Region) bool {
	return a.Width > 0 && a.Height > 0 && a.X >= b.X && a.Y >= b.Y && a.X+a.Width <= b.X+b.Width && a.Y+a.Height <= b.Y+b.Height
}

// What a decoder is told of the usual transforms.
func TestHeadOfUsualTransforms(t *testing.T) {
	draw := func(text string, w, h int) Head {
		p, err := Compile(jsonList(t, text), Options{})
		if err != nil {
			t.Fatal(err)
		}
		var r Recipe
		random := augment.NewRand(1, 0, 7)
		if err := p.Draw(&r, &random, w, h); err != nil {
			t.Fatal(err)
		}
		return r.Head()
	}
	random := augment.NewRand(1, 0, 7)
	crop := augment.RandomResizedCrop{}.Draw(&random, 500, 375)
	if h := draw(`[{"random_resized_crop": [192, 224]}, "random_horizontal_flip", "rand_augment"]`, 500, 375); h.Crop != crop || h.Task.Width != 224 || h.Task.Height != 192 || h.Whole {
		t.Errorf("%+v", h)
	}
	// 224 of 341 columns, and 224 of 256 rows.
	if h := draw(`[{"resize": 256}, {"center_crop": 224}]`, 500, 375); h.Crop != (augment.Region{Width: 500, Height: 375}) ||
		h.Task.Width != 341 || h.Task.Height != 256 || h.Task.X != 58 || h.Task.Y != 16 || h.Width != 224 || h.Height != 224 || !h.Whole {
		t.Errorf("%+v", h)
	}
	// Nothing but a crop: nothing else.
	if h := draw(`[{"center_crop": [100, 200]}]`, 500, 375); h.Crop != (augment.Region{X: 150, Y: 138, Width: 200, Height: 100}) || h.Task.Width != 200 || h.Task.Height != 100 || !h.Whole {
		t.Errorf("%+v", h)
	}
}

// Boxes follow the pixels: a rectangle that is painted on the image is where its box
// says, whatever was drawn.
func TestBoxesFollowPixels(t *testing.T) {
	var ws Workspace
	var r Recipe
	checked := 0
	for i, text := range []string{
		`[{"resize": 64}, {"center_crop": 48}, "random_horizontal_flip"]`,
		`[{"random_horizontal_flip": 1}, {"random_resized_crop": {"size": 64, "scale": [0.5, 1]}}, {"random_vertical_flip": 0.5}]`,
		`[{"pad": 10}, "random_horizontal_flip", {"random_crop": [90, 100]}, {"resize": [80, 120]}, "random_vertical_flip"]`,
		`[{"random_rotation": [90, 90]}, "random_horizontal_flip", {"center_crop": 60}]`,
		`[{"random_apply": [{"random_affine": {"degrees": 0, "translate": [0.2, 0.2]}}]}, "random_vertical_flip", {"resize": [70, 140]}]`,
	} {
		p, err := Compile(jsonList(t, text), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for k := range 50 {
			const w, h = 97, 83
			box := augment.Box{float64(20 + k), float64(15 + k/2), float64(40 + k), float64(33 + k)}
			mask := new(imaging.Mask)
			mask.Reset(w, h)
			clear(mask.Pix)
			for y := int(box[1]); y < min(int(box[3]), h); y++ {
				for x := int(box[0]); x < min(int(box[2]), w); x++ {
					mask.Pix[y*w+x] = 1
				}
			}
			random := augment.NewRand(uint64(i), uint64(k), 5)
			if err := p.Draw(&r, &random, w, h); err != nil {
				t.Fatal(err)
			}
			var out imaging.Mask
			if err := r.Mask(&ws, &out, mask, 0); err != nil {
				t.Fatal(err)
			}
			lost := augment.Box{-30, -30, -10, -10}
			boxes, kept, err := r.Boxes([]augment.Box{lost, box}, []int{7}, augment.BoxFilter{})
			if err != nil {
				t.Fatal(err)
			}
			x0, y0, x1, y1 := math.MaxInt, math.MaxInt, -1, -1
			for at, v := range out.Pix {
				if v == 1 {
					x0, x1 = min(x0, at%out.Width), max(x1, at%out.Width+1)
					y0, y1 = min(y0, at/out.Width), max(y1, at/out.Width+1)
				}
			}
			if len(boxes) == 0 {
				if x1 >= 0 && (x1-x0 > 1 && y1-y0 > 1) {
					t.Fatalf("%s, %d: the box is gone, its pixels are at (%d, %d) to (%d, %d)", text, k, x0, y0, x1, y1)
				}
				continue
			}
			if len(boxes) != 1 || !reflect.DeepEqual(kept, []int{7, 1}) {
				t.Fatalf("%s: %v, kept %v", text, boxes, kept)
			}
			if b := boxes[0]; b[2]-b[0] > 2 && b[3]-b[1] > 2 {
				checked++
				for c, v := range []int{x0, y0, x1, y1} {
					if math.Abs(b[c]-float64(v)) > 1 {
						t.Fatalf("%s, %d: the box %v; its pixels are at (%d, %d) to (%d, %d)", text, k, b, x0, y0, x1, y1)
					}
				}
			}
		}
	}
	if checked < 150 {
		t.Errorf("only %d boxes were compared", checked)
	}
}

// How much of a box still shows is judged over all stages.
func TestBoxVisibility(t *testing.T) {
	p, err := Compile(jsonList(t, `[{"center_crop": 50}, {"random_rotation": [180, 180]}, {"center_crop": 40}]`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var r Recipe
	random := augment.NewRand(0, 0, 0)
	if err := p.Draw(&r, &random, 100, 100); err != nil {
		t.Fatal(err)
	}
	// Of 40 x 10, 20 x 10 are left: 25 columns by the first crop, 5 less by the second.
	for visibility, want := range map[float64]int{0.49: 1, 0.51: 0} {
		boxes, kept, err := r.Boxes([]augment.Box{{10, 40, 50, 50}}, nil, augment.BoxFilter{MinVisibility: visibility})
		if err != nil || len(boxes) != want || len(kept) != want {
			t.Errorf("%v: %v, %v", visibility, boxes, err)
		}
		if want == 1 {
			for c, v := range []float64{20, 20, 40, 30} {
				if math.Abs(boxes[0][c]-v) > 1e-9 {
					t.Errorf("%v", boxes[0])
				}
			}
		}
	}
}

// Noise that is painted after flips is not mirrored.
func TestNoiseAfterFlips(t *testing.T) {
	p, err := Compile(jsonList(t, `[{"center_crop": 30}, "random_horizontal_flip", "random_vertical_flip", {"random_erasing": {"p": 1, "value": "random"}}, "random_horizontal_flip"]`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var r Recipe
	var ws Workspace
	for k := range uint64(16) {
		m := picture(40, 50)
		random := augment.NewRand(0, 1, k)
		again := random
		if err := p.Draw(&r, &random, 40, 50); err != nil {
			t.Fatal(err)
		}
		view, err := r.Image(&ws, m)
		if err != nil {
			t.Fatal(err)
		}
		var want imaging.Image
		var by augment.Workspace
		g := augment.Geometry{Crop: augment.Region{X: 5, Y: 10, Width: 30, Height: 30}}
		g.FlipX = augment.RandomHorizontalFlip{}.Draw(&again, 0, 0)
		g.FlipY = augment.RandomVerticalFlip{}.Draw(&again, 0, 0)
		if err := by.Image(&want, m, g, augment.Look{}); err != nil {
			t.Fatal(err)
		}
		if err := (augment.RandomErasing{P: 1, Value: augment.ErasingValue{Random: true}}).Draw(&again, 30, 30).Apply(&by, &want); err != nil {
			t.Fatal(err)
		}
		if (augment.RandomHorizontalFlip{}).Draw(&again, 0, 0) {
			augment.FlipX(&want)
		}
		if string(upright(view)) != string(want.Pix) {
			t.Errorf("%d: %+v differs", k, g)
		}
	}
}

// Scratch bounds what Rest takes: no image but those that it counts, and little besides.
func TestScratch(t *testing.T) {
	const w, h = 800, 600
	for _, text := range []string{
		`["random_horizontal_flip", {"random_rotation": [20, 30]}, {"resize": [300, 400]}]`,
		`[{"color_jitter": {"brightness": 0.5, "hue": 0.2}}, {"gaussian_blur": 9}, {"random_adjust_sharpness": {"sharpness_factor": 2, "p": 1}}, {"center_crop": 500}]`,
		`[{"pad": {"padding": 50, "padding_mode": "reflect"}}, {"random_affine": {"degrees": [10, 20], "interpolation": "bilinear"}}, {"random_crop": 400}]`,
		`["random_equalize", {"random_rotation": [1, 2]}, "random_invert", {"resize": [500, 700]}, "random_autocontrast", {"random_rotation": [5, 6]}]`,
		`[{"center_crop": 550}, {"rand_augment": {"num_ops": 4}}, {"random_erasing": {"p": 1, "value": "random"}}]`,
		`[{"random_resized_crop": 224}]`,
	} {
		p, err := Compile(jsonList(t, text), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for sample := range uint64(6) {
			var r Recipe
			random := augment.NewRand(3, 3, sample)
			if err := p.Draw(&r, &random, w, h); err != nil {
				t.Fatal(err)
			}
			head := r.Head()
			if head.Whole {
				if n := r.Scratch(); n > 3*224*224 {
					t.Errorf("%s: %d bytes, where the head is all", text, n)
				}
				continue
			}
			m := new(imaging.Image)
			m.Reset(head.Width, head.Height)
			var ws Workspace
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := r.Rest(&ws, m)
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatal(err)
			}
			const besides = 512 << 10
			if took, bound := int64(after.TotalAlloc-before.TotalAlloc), r.Scratch(); took > bound+besides || bound > 15*int64(head.Width*head.Height+w*h) {
				t.Errorf("%s, sample %d: %d bytes; the bound is %d", text, sample, took, bound)
			}
		}
	}
}

// A seed stands for the same pixels in every release: SHA-256 of the first lists' images,
// masks and boxes.
func TestFrozen(t *testing.T) {
	sum := sha256.New()
	var r Recipe
	var ws Workspace
	for i, text := range pillowLists {
		p, err := Compile(jsonList(t, text), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for k := range uint64(8) {
			m := picture(61, 47)
			mask := red(m)
			random := augment.NewRand(uint64(i), 7, k)
			if err := p.Draw(&r, &random, 61, 47); err != nil {
				t.Fatal(err)
			}
			view, err := r.Image(&ws, m)
			if err != nil {
				t.Fatal(err)
			}
			var out imaging.Mask
			if err := r.Mask(&ws, &out, mask, 255); err != nil {
				t.Fatal(err)
			}
			boxes, _, err := r.Boxes([]augment.Box{{10, 20, 30, 40}}, nil, augment.BoxFilter{})
			if err != nil {
				t.Fatal(err)
			}
			sum.Write(upright(view))
			sum.Write(out.Pix)
			fmt.Fprintf(sum, "%.6f", boxes)
		}
	}
	const want = "1c42a26713969ca23c5aed0a2581330d009241257b96c6e7e2e14910825dca81"
	if got := fmt.Sprintf("%x", sum.Sum(nil)); got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

// RandomApply and RandomChoice choose as often as they should.
func TestChoices(t *testing.T) {
	count := func(text string) (done [3]float64) {
		p, err := Compile(jsonList(t, text), Options{})
		if err != nil {
			t.Fatal(err)
		}
		const n = 20000
		var r Recipe
		for i := range n {
			random := augment.NewRand(9, 9, uint64(i))
			if err := p.Draw(&r, &random, 8, 8); err != nil {
				t.Fatal(err)
			}
			for _, paint := range r.paints {
				switch paint.Op.Kind {
				case augment.Grayscale:
					done[0] += 1. / n
				case augment.Invert:
					done[1] += 1. / n
				case augment.Equalize:
					done[2] += 1. / n
				}
			}
		}
		return done
	}
	sure := `{"random_invert": 1}`
	for text, want := range map[string][3]float64{
		`[{"random_apply": ["grayscale", ` + sure + `]}]`:                                                                       {0.5, 0.5, 0},
		`[{"random_apply": {"transforms": ["grayscale"], "p": 0.2}}, {"random_apply": {"transforms": [` + sure + `], "p": 1}}]`: {0.2, 1, 0},
		`[{"random_choice": ["grayscale", ` + sure + `, {"random_equalize": 1}]}]`:                                              {1. / 3, 1. / 3, 1. / 3},
		`[{"random_choice": {"transforms": ["grayscale", ` + sure + `, {"random_equalize": 1}], "p": [3, 1, 0]}}]`:              {0.75, 0.25, 0},
		`[{"random_choice": {"transforms": ["grayscale", ` + sure + `, {"random_equalize": 1}], "p": [0, 0, 0.1]}}]`:            {0, 0, 1},
		`[{"random_choice": [{"random_apply": ["grayscale"]}, {"random_choice": ["grayscale", ` + sure + `]}]}]`:                {0.5, 0.25, 0},
	} {
		got := count(text)
		for i := range got {
			// Four standard deviations.
			if math.Abs(got[i]-want[i]) > 4*math.Sqrt(want[i]*(1-want[i])/20000)+1e-9 {
				t.Errorf("%s: %v; want %v", text, got, want)
			}
		}
	}
}

// A recipe is a pure function: what was drawn before with the same memory is forgotten.
// In steady state nothing is allocated.
func TestSteadyState(t *testing.T) {
	p, err := Compile(jsonList(t, `[{"resize": 40}, {"random_choice": {"transforms": ["rand_augment", {"random_rotation": 20}], "p": [2, 1]}}, {"random_apply": [{"color_jitter": {"hue": 0.2, "contrast": 0.3}}]},
		{"random_resized_crop": 32}, "random_vertical_flip", "random_horizontal_flip", {"gaussian_blur": {"kernel_size": 5, "p": 0.5}}, {"random_erasing": {"value": "random"}}, {"random_crop": {"size": 32, "padding": 4, "padding_mode": "reflect"}}]`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, mask, src := picture(61, 47), red(picture(61, 47)), new(imaging.Image)
	var used, dst Recipe
	var ws Workspace
	var out imaging.Mask
	src.Reset(61, 47)
	boxes, kept := make([]augment.Box, 2), make([]int, 0, 2)
	n := uint64(0)
	step := func(r *Recipe, ws *Workspace) View {
		random := augment.NewRand(1, 1, n)
		if err := p.Draw(r, &random, m.Width, m.Height); err != nil {
			t.Fatal(err)
		}
		copy(src.Pix, m.Pix)
		view, err := r.Image(ws, src)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Mask(ws, &out, mask, 3); err != nil {
			t.Fatal(err)
		}
		boxes = boxes[:2]
		boxes[0], boxes[1] = augment.Box{1, 2, 30, 40}, augment.Box{50, 2, 60, 7}
		if _, _, err := r.Boxes(boxes, kept, augment.BoxFilter{}); err != nil {
			t.Fatal(err)
		}
		return view
	}
	for ; n < 300; n++ {
		got := string(upright(step(&used, &ws))) + string(out.Pix)
		dst = Recipe{}
		if want := string(upright(step(&dst, &Workspace{}))) + string(out.Pix); got != want {
			t.Fatalf("sample %d depends on those before it", n)
		}
	}
	n = 0
	if a := testing.AllocsPerRun(299, func() {
		step(&used, &ws)
		n++
	}); a != 0 {
		t.Errorf("%v allocations an image", a)
	}
}
