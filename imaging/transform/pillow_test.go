package transform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/internal/peers"
)

// follow carries a step of Pillow's out, as torchvision's functions of PIL images do.
const follow = `
import json, math, sys
import numpy as np
from PIL import Image, ImageChops, ImageEnhance, ImageOps
given = json.load(sys.stdin)
data = open(given["Raw"], "rb").read()

def pad(im, p, mode, fill):
    left, top, right, bottom = p
    if mode == "constant":
        if im.mode == "L":
            fill = given["MaskFill"]
        return ImageOps.expand(im, border=tuple(p), fill=tuple(fill) if im.mode == "RGB" else fill)
    a = np.asarray(im)
    widths = ((top, bottom), (left, right)) + ((0, 0),) * (a.ndim - 2)
    return Image.fromarray(np.pad(a, widths, mode=mode))

def step(im, s):
    k, v, mask = s["Kind"], s.get("Values"), im.mode == "L"
    if k == "crop":
        x, y, w, h = map(int, v)
        p = [max(-x, 0), max(-y, 0), max(x + w - im.width, 0), max(y + h - im.height, 0)]
        if any(p):
            im = pad(im, p, s["Mode"], s["Fill"])
        return im.crop((x + p[0], y + p[1], x + p[0] + w, y + p[1] + h))
    if k == "resize":
        how = Image.Resampling.NEAREST if mask else Image.Resampling[s["Mode"].upper()]
        return im.resize((int(v[0]), int(v[1])), how)
    if k == "flipx":
        return im.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if k == "flipy":
        return im.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    if k == "warp":
        how = Image.Resampling.NEAREST if mask or s["Mode"] == "nearest" else Image.Resampling.BILINEAR
        fill = given["MaskFill"] if mask else tuple(s["Fill"])
        return im.transform(im.size, Image.Transform.AFFINE, v, how, fillcolor=fill)
    if mask:
        return im
    if k == "Brightness":
        return ImageEnhance.Brightness(im).enhance(v[0])
    if k == "Contrast":
        return ImageEnhance.Contrast(im).enhance(v[0])
    if k == "Color":
        return ImageEnhance.Color(im).enhance(v[0])
    if k == "Sharpness":
        return ImageEnhance.Sharpness(im).enhance(v[0])
    if k == "Hue":
        h, c, b = im.convert("HSV").split()
        a = np.array(h)
        a += np.int32(v[0] * 255).astype(np.uint8)
        return Image.merge("HSV", (Image.fromarray(a), c, b)).convert("RGB")
    if k == "Posterize":
        return ImageOps.posterize(im, int(v[0]))
    if k == "Solarize":
        return ImageOps.solarize(im, v[0])
    if k == "AutoContrast":
        return ImageOps.autocontrast(im)
    if k == "Equalize":
        return ImageOps.equalize(im)
    if k == "Invert":
        return ImageOps.invert(im)
    if k == "Grayscale":
        return im.convert("L").convert("RGB")
    if k == "erase":
        x, y, w, h = map(int, v)
        im.paste(tuple(s["Fill"]), (x, y, x + w, y + h))
        return im
    raise ValueError(k)

for case in given["Cases"]:
    w, h, at = case["Width"], case["Height"], case["At"]
    image = Image.frombytes("RGB", (w, h), data[at : at + 3 * w * h])
    mask = image.getchannel("R")
    for s in case["Steps"] or []:
        image, mask = step(image, s), step(mask, s)
    sys.stdout.buffer.write(image.tobytes() + mask.tobytes())
`

// pilStep is a call of Pillow.
type pilStep struct {
	Kind   string
	Values []float64 `json:",omitempty"`
	Mode   string    `json:",omitempty"`
	Fill   [3]int
}

type pilCase struct {
	Width, Height, At int
	Steps             []pilStep
}

// byHand says what a list does to an image, step by step as torchvision would do it: it
// draws with the same functions from the same numbers, and knows no stages, no flips
// that wait, and nothing of recipes.
type byHand struct {
	r             augment.Rand
	width, height int
	steps         []pilStep
}

func (b *byHand) add(s pilStep) { b.steps = append(b.steps, s) }

func (b *byHand) crop(r augment.Region, mode augment.PaddingMode, fill augment.Color) {
	b.add(pilStep{"crop", []float64{float64(r.X), float64(r.Y), float64(r.Width), float64(r.Height)}, mode.String(), ints(fill)})
	b.width, b.height = r.Width, r.Height
}

func (b *byHand) resize(w, h int, filter fmt.Stringer) {
	b.add(pilStep{Kind: "resize", Values: []float64{float64(w), float64(h)}, Mode: filter.String()})
	b.width, b.height = w, h
}

func (b *byHand) warp(m augment.Matrix, ip augment.Interpolation, fill augment.Color) {
	b.add(pilStep{"warp", m[:], ip.String(), ints(fill)})
}

func (b *byHand) ops(ops ...augment.Op) {
	for _, op := range ops {
		if op.Kind == augment.Identity {
			continue
		}
		if m, ok := op.Matrix(b.width, b.height); ok {
			b.warp(m, op.Interpolation, op.Fill)
			continue
		}
		b.add(pilStep{Kind: op.Kind.String(), Values: []float64{op.Value}})
	}
}

func ints(c augment.Color) [3]int { return [3]int{int(c[0]), int(c[1]), int(c[2])} }

func (b *byHand) do(t *testing.T, list ...Transform) {
	r := &b.r
	for _, step := range list {
		switch x := step.(type) {
		case Resize:
			w, h := x.Size[1], x.Size[0]
			if w == 0 { // torchvision's _compute_resized_output_size
				short, long := min(b.width, b.height), max(b.width, b.height)
				newShort, newLong := h, int(float64(h*long)/float64(short))
				if x.Size == (Size{}) {
					newShort, newLong = int(float64(x.MaxSize*short)/float64(long)), x.MaxSize
				} else if x.MaxSize > 0 && newLong > x.MaxSize {
					newShort, newLong = int(float64(x.MaxSize*newShort)/float64(newLong)), x.MaxSize
				}
				if w, h = newShort, newLong; b.width > b.height {
					w, h = h, w
				}
			}
			b.resize(w, h, x.Interpolation)
		case CenterCrop:
			w, h := x.Size.sides()
			place := func(length, part int) int {
				if part > length {
					return -((part - length) / 2)
				}
				return int(math.RoundToEven(float64(length-part) / 2))
			}
			b.crop(augment.Region{X: place(b.width, w), Y: place(b.height, h), Width: w, Height: h}, augment.Constant, augment.Color{})
		case RandomResizedCrop:
			b.crop(augment.RandomResizedCrop{Scale: x.Scale, Ratio: x.Ratio}.Draw(r, b.width, b.height), augment.Constant, augment.Color{})
			w, h := x.Size.sides()
			b.resize(w, h, x.Interpolation)
		case RandomCrop:
			w, h := x.Size.sides()
			part, err := augment.RandomCrop{Size: augment.Size{h, w}, Padding: x.Padding, PadIfNeeded: x.PadIfNeeded}.Draw(r, b.width, b.height)
			if err != nil {
				t.Fatal(err)
			}
			b.crop(part, x.PaddingMode, x.Fill)
		case Pad:
			b.crop(augment.Pad{Padding: x.Padding}.Window(b.width, b.height), x.PaddingMode, x.Fill)
		case RandomHorizontalFlip:
			if augment.RandomHorizontalFlip(x).Draw(r, 0, 0) {
				b.add(pilStep{Kind: "flipx"})
			}
		case RandomVerticalFlip:
			if augment.RandomVerticalFlip(x).Draw(r, 0, 0) {
				b.add(pilStep{Kind: "flipy"})
			}
		case RandomRotation:
			w := augment.RandomRotation(x).Draw(r, b.width, b.height)
			b.warp(w.Matrix, w.Interpolation, w.Fill)
		case RandomAffine:
			w := augment.RandomAffine(x).Draw(r, b.width, b.height)
			b.warp(w.Matrix, w.Interpolation, w.Fill)
		case ColorJitter:
			ops := augment.ColorJitter(x).Draw(r, 0, 0)
			b.ops(ops[:]...)
		case RandomGrayscale:
			b.ops(augment.RandomGrayscale(x).Draw(r, 0, 0))
		case Grayscale:
			b.ops(augment.Op{Kind: augment.Grayscale})
		case RandomErasing:
			if e := augment.RandomErasing(x).Draw(r, b.width, b.height); e.Region.Width > 0 {
				g := e.Region
				b.add(pilStep{"erase", []float64{float64(g.X), float64(g.Y), float64(g.Width), float64(g.Height)}, "", ints(e.Value.Color)})
			}
		case RandAugment:
			b.ops(augment.RandAugment(x).Draw(nil, r, b.width, b.height)...)
		case TrivialAugmentWide:
			b.ops(augment.TrivialAugmentWide(x).Draw(r, b.width, b.height))
		case RandomInvert:
			b.ops(augment.RandomInvert(x).Draw(r, 0, 0))
		case RandomPosterize:
			b.ops(augment.RandomPosterize(x).Draw(r, 0, 0))
		case RandomSolarize:
			b.ops(augment.RandomSolarize(x).Draw(r, 0, 0))
		case RandomAdjustSharpness:
			b.ops(augment.RandomAdjustSharpness(x).Draw(r, 0, 0))
		case RandomAutocontrast:
			b.ops(augment.RandomAutocontrast(x).Draw(r, 0, 0))
		case RandomEqualize:
			b.ops(augment.RandomEqualize(x).Draw(r, 0, 0))
		case RandomApply:
			p := x.P
			if p == 0 {
				p = 0.5
			}
			if r.Float64() < p {
				b.do(t, x.Transforms...)
			}
		case RandomChoice:
			b.do(t, x.Transforms[r.IntN(len(x.Transforms))])
		default:
			t.Fatalf("%T is not known here", step)
		}
	}
}

// picture is smooth with noise, like a photograph.
func picture(w, h int) *imaging.Image {
	r := rand.New(rand.NewPCG(uint64(w), uint64(h)))
	m := new(imaging.Image)
	m.Reset(w, h)
	for y := range h {
		for x := range w {
			for c := range 3 {
				v := 128 + 110*math.Sin(float64(x)/17+float64(c))*math.Cos(float64(y)/23) + 16*r.Float64() - 8
				m.Pix[y*m.Stride+3*x+c] = uint8(min(max(v, 0), 255))
			}
		}
	}
	return m
}

// red is the red channel as a mask.
func red(m *imaging.Image) *imaging.Mask {
	k := new(imaging.Mask)
	k.Reset(m.Width, m.Height)
	for i := range k.Pix {
		k.Pix[i] = m.Pix[3*i]
	}
	return k
}

// upright does the flips of a view.
func upright(v View) []byte {
	var m imaging.Image
	m.Reset(v.Width, v.Height)
	for y := range v.Height {
		copy(m.Pix[y*m.Stride:], v.Pix[y*v.Stride:][:3*v.Width])
	}
	if v.FlipX {
		augment.FlipX(&m)
	}
	if v.FlipY {
		augment.FlipY(&m)
	}
	return m.Pix
}

func jsonList(t testing.TB, text string) List {
	t.Helper()
	var l List
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return l
}

// pillowLists are what the test below tries: what people use, and combinations in which
// steps could be joined wrongly.
var pillowLists = []string{
	// ImageNet: evaluation and training; SimCLR; DeiT; CIFAR.
	`[{"resize": 40}, {"center_crop": 32}]`,
	`[{"random_resized_crop": 32}, {"random_horizontal_flip": {}}]`,
	`[{"random_resized_crop": {"size": [20, 32], "scale": [0.2, 1], "interpolation": "bicubic"}}, {"random_horizontal_flip": {}},
	  {"color_jitter": {"brightness": 0.8, "contrast": 0.8, "saturation": 0.8, "hue": 0.2, "p": 0.8}}, {"random_grayscale": 0.5}]`,
	`[{"random_resized_crop": 32}, {"random_horizontal_flip": {}}, {"rand_augment": {"interpolation": "bilinear", "fill": 124}}, {"random_erasing": {"p": 0.9, "value": [1, 2, 3]}}]`,
	`[{"random_crop": {"size": 32, "padding": 4, "pad_if_needed": true}}, {"random_horizontal_flip": {}}, {"trivial_augment_wide": {}}]`,
	// Geometry behind geometry.
	`[{"resize": {"size": 30, "max_size": 44}}, {"random_crop": {"size": [28, 24], "pad_if_needed": true, "padding_mode": "reflect"}}, {"random_vertical_flip": {}}]`,
	`[{"resize": {"max_size": 44, "interpolation": "box"}}, {"center_crop": [50, 30]}, {"center_crop": 20}]`,
	`[{"resize": [33, 21]}, {"pad": {"padding": [1, 2, 3, 4], "fill": [9, 8, 7]}}, {"center_crop": 30}, {"center_crop": 60}, {"resize": [10, 20]}]`,
	`[{"center_crop": 20}, {"pad": {"padding": 5, "padding_mode": "edge"}}, {"pad": {"padding": 3, "padding_mode": "symmetric"}}, {"random_crop": 31}]`,
	`[{"random_horizontal_flip": {}}, {"random_vertical_flip": {}}, {"random_crop": {"size": 17, "pad_if_needed": true, "fill": 200}}, {"random_horizontal_flip": {}}, {"pad": {"padding": [4, 0, 1, 2]}}]`,
	`[{"pad": {"padding": 6, "fill": 255}}, {"random_rotation": {"degrees": 40, "fill": [9, 99, 199]}}, {"random_horizontal_flip": {}}, {"center_crop": 25}]`,
	`[{"random_crop": {"size": 24, "pad_if_needed": true}}, {"random_horizontal_flip": {}}, {"random_rotation": [10, 80]}, {"random_vertical_flip": {}}, {"random_affine": {"degrees": 20, "translate": 0.1, "scale": [0.7, 1.2], "shear": 10, "interpolation": "bilinear"}}, {"random_horizontal_flip": {}}]`,
	`[{"random_rotation": 20}, {"resize": 24}, {"random_crop": 20}, {"random_affine": {"degrees": 0, "translate": [0.2, 0.1]}}, {"resize": [9, 31]}]`,
	`[{"pad": {"padding": 20, "padding_mode": "reflect"}}, {"random_crop": 12}, {"random_horizontal_flip": {}}]`,
	// Colours between geometry.
	`[{"random_horizontal_flip": {}}, {"random_solarize": 100}, {"center_crop": 22}, {"random_invert": {}}, {"random_vertical_flip": {}}, {"random_erasing": {"p": 1, "value": 77}}, {"center_crop": 18}]`,
	`[{"center_crop": 30}, {"random_horizontal_flip": {}}, {"random_adjust_sharpness": {"sharpness_factor": 2, "p": 1}}, {"random_autocontrast": {}}, {"random_posterize": 3}, {"random_equalize": {}}, {"random_crop": 20}, {"grayscale": {}}]`,
	`[{"random_vertical_flip": {}}, {"rand_augment": {"num_ops": 3, "magnitude": 12}}, {"center_crop": 26}, {"random_horizontal_flip": {}}, {"rand_augment": {}}]`,
	// A flip before a resize.
	`[{"random_horizontal_flip": {}}, {"resize": 30}, {"random_vertical_flip": {}}, {"random_resized_crop": {"size": [16, 20], "interpolation": "lanczos"}}]`,
	`[{"random_horizontal_flip": {}}, {"random_vertical_flip": {}}, {"resize": {"size": [45, 51], "interpolation": "bicubic"}}, {"random_grayscale": {}}]`,
	`[{"random_apply": {"transforms": [{"random_rotation": 30}, {"color_jitter": {"hue": 0.3}}], "p": 0.7}}, {"random_choice": [{"random_resized_crop": 16}, {"center_crop": 16}]}]`,
}

// A recipe, which joins steps, puts flips off and makes only what is kept, gives the
// pixels of the image and the mask that Pillow gives when it does one step after the
// other. Only where it is resized after a flip may a byte be rounded the other way, and
// in a mask a pixel that is exactly between two be the other.
func TestEqualsPillowStepByStep(t *testing.T) {
	python := peers.Python(t)
	given := struct {
		Raw      string
		MaskFill int
		Cases    []pilCase
	}{filepath.Join(t.TempDir(), "raw"), 211, nil}
	var raw, got []byte
	var lengths []int
	var names []string
	var ws Workspace
	var recipe Recipe
	for i, text := range pillowLists {
		l := jsonList(t, text)
		p, err := Compile(l, Options{})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for k := range 24 {
			size := [][2]int{{61, 47}, {40, 77}, {33, 33}, {90, 31}}[k%4]
			m := picture(size[0], size[1])
			r := augment.NewRand(uint64(i), uint64(k), 3)
			b := byHand{r: r, width: m.Width, height: m.Height}
			b.do(t, l...)
			given.Cases = append(given.Cases, pilCase{m.Width, m.Height, len(raw), b.steps})
			raw = append(raw, m.Pix...)

			if err := p.Draw(&recipe, &r, m.Width, m.Height); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if r != b.r {
				t.Fatalf("%s: other random numbers were drawn", text)
			}
			mask := red(m)
			view, err := recipe.Image(&ws, m)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if w, h := recipe.Size(); view.Width != w || view.Height != h || w != b.width || h != b.height {
				t.Fatalf("%s: %d x %d; the recipe says %d x %d, by hand it is %d x %d", text, view.Width, view.Height, w, h, b.width, b.height)
			}
			pix := upright(view)
			var out imaging.Mask
			if err := recipe.Mask(&ws, &out, mask, uint8(given.MaskFill)); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			got = append(append(got, pix...), out.Pix...)
			lengths = append(lengths, len(pix), len(out.Pix))
			steps, _ := json.Marshal(b.steps)
			names = append(names, fmt.Sprintf("%s of %v: %s", text, size, steps))
		}
	}
	if err := os.WriteFile(given.Raw, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-c", follow)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	want, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if len(want) != len(got) {
		t.Fatalf("%d bytes, of Pillow %d", len(got), len(want))
	}
	rounded, ties := 0, 0
	for i, n := range lengths {
		c := &given.Cases[i/2]
		image := i%2 == 0
		bound, width, height := 0, c.Width, c.Height
		flipX, flipY, tie := false, false, false
		for _, s := range c.Steps {
			switch s.Kind {
			case "flipx":
				flipX = true
			case "flipy":
				flipY = true
			case "crop":
				width, height = int(s.Values[2]), int(s.Values[3])
			case "resize":
				if (flipX || flipY) && image {
					bound = 2*bound + 1
				}
				tie = tie || flipX && width%2 == 0 || flipY && height%2 == 0
				width, height = int(s.Values[0]), int(s.Values[1])
			}
		}
		if tie && !image { // of two pixels that are equally near, the other is taken
			got, want = got[n:], want[n:]
			ties++
			continue
		}
		for k := range n {
			d := int(got[k]) - int(want[k])
			if d != 0 {
				rounded++
			}
			if d > bound || d < -bound {
				t.Errorf("%s: byte %d (image: %v) is %d, Pillow's %d", names[i/2], k, image, got[k], want[k])
				break
			}
		}
		got, want = got[n:], want[n:]
	}
	t.Logf("%d images; %d of their bytes rounded otherwise after a flip, %d masks with ties", len(given.Cases), rounded, ties)
}
