package augment

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"shardify/imaging"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
	"shardify/internal/simd"
)

// goldenMove is a warp in torchvision's terms.
type goldenMove struct {
	Affine        []float64
	Rotate        *float64
	Interpolation Interpolation
}

func (g goldenMove) warp(width, height int) (w Warp, ok bool) {
	cx, cy := float64(width)*0.5, float64(height)*0.5
	w.Interpolation, w.Fill = g.Interpolation, goldenFill
	switch a := g.Affine; {
	case g.Rotate != nil:
		w.Matrix = rotation(*g.Rotate, cx, cy)
	case a != nil:
		w.Matrix = affine(cx, cy, a[0], a[1], a[2], a[3], a[4], a[5])
	default:
		return w, false
	}
	return w, true
}

var goldenFill = Color{9, 8, 7}

// golden is testdata/torchvision.json, which testdata/golden.py has made with torchvision
// itself.
type golden struct {
	Images []struct {
		Width, Height int
		RGB           []byte
	}
	Operations []struct {
		goldenMove
		Name     string
		Op       *Op
		Geometry *Geometry
		Filter   resize.Filter
		Pad      *Padding
		Mode     PaddingMode
		Erase    *Region
		SHA256   []string
		Pixels   [][]byte // where rounding may differ
		// Of the bytes that torchvision makes of tensors, so many differ from those that
		// it makes of PIL images, by so much at most.
		Bytes, Apart, By int
	}
	Floats struct {
		Normalize, Mixup string
		Lambda           float64
	}
	Masks []struct {
		Name     string
		Geometry Geometry
		Mask     []byte
	}
	Boxes []struct {
		goldenMove
		Geometry Geometry
		Boxes    []Box
	}
	Magnitudes []struct {
		Policy        string
		Width, Height int
		Kind          Kind
		Signed        bool
		Values        []float64
	}
	Drawn []struct {
		Transform     string
		Sample        uint64
		Width, Height int
		Values        []float64
	}
}

func readGolden(t *testing.T) *golden {
	t.Helper()
	text, err := os.ReadFile("testdata/torchvision.json")
	if err != nil {
		t.Fatal(err)
	}
	g := new(golden)
	if err := json.Unmarshal(text, g); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *golden) image(i int) *imaging.Image {
	m := g.Images[i]
	return &imaging.Image{Pix: bytes.Clone(m.RGB), Width: m.Width, Height: m.Height, Stride: 3 * m.Width}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// What torchvision's functions make of PIL images, we make, too, byte for byte.
func TestPixelsEqualTorchvisions(t *testing.T) {
	g := readGolden(t)
	for _, level := range simd.All() {
		ws := workspaceAt(level)
		for _, c := range g.Operations {
			for i := range g.Images {
				m := g.image(i)
				var err error
				warp, moved := c.warp(m.Width, m.Height)
				switch {
				case moved:
					err = warp.Apply(ws, m)
				case c.Op != nil:
					err = c.Op.Apply(ws, m)
				case c.Erase != nil:
					err = Erasing{Region: *c.Erase, Value: ErasingValue{Color: goldenFill}}.Apply(ws, m)
				case c.Pad != nil, c.Geometry != nil:
					var geometry Geometry
					if c.Geometry != nil {
						geometry = *c.Geometry
					} else {
						geometry.Window, geometry.PaddingMode = Pad{Padding: *c.Pad}.Window(m.Width, m.Height), c.Mode
					}
					l := Look{Filter: c.Filter}
					if c.Pad != nil {
						l.Fill = goldenFill
					}
					dst := new(imaging.Image)
					err = ws.Image(dst, m, geometry, l)
					m = dst
				default:
					t.Fatalf("%s: nothing to do", c.Name)
				}
				if err != nil {
					t.Fatalf("%s: %v", c.Name, err)
				}
				if c.Pixels != nil {
					if count, most := difference(m.Pix, c.Pixels[i]); count > 1 || most > 1 {
						t.Errorf("%v: %s of image %d: %d of %d bytes differ from torchvision's, by up to %d", level, c.Name, i, count, len(m.Pix), most)
					}
				} else if got, want := digest(packed(m)), c.SHA256[i]; got != want {
					t.Errorf("%v: %s of image %d: its SHA-256 is %s; torchvision's is %s", level, c.Name, i, got, want)
				}
			}
		}
	}
	if len(g.Operations) < 70 {
		t.Errorf("only %d operations", len(g.Operations))
	}
}

// Normalised floats and blended batches are torchvision's to the last bit.
func TestFloatsEqualTorchvisions(t *testing.T) {
	g := readGolden(t)
	m := g.image(0)
	n := len(m.Pix)
	batch := make([]float32, 2*n)
	if err := tensor.PutFloat32(batch[:n], m, tensor.NCHW, false, false, tensor.ImageNet.Table()); err != nil {
		t.Fatal(err)
	}
	check := func(name string, v []float32, want string) {
		var b []byte
		for _, f := range v {
			b = le.AppendUint32(b, math.Float32bits(f))
		}
		if got := digest(b); got != want {
			t.Errorf("%s: the floats' SHA-256 is %s; torchvision's is %s", name, got, want)
		}
	}
	check("normalize", batch[:n], g.Floats.Normalize)
	for i, v := range batch[:n] {
		batch[n+i] = -v
	}
	if err := tensor.MixUp(batch, make([]float32, n), 2, float64(float32(g.Floats.Lambda))); err != nil {
		t.Fatal(err)
	}
	check("mixup", batch, g.Floats.Mixup)
}

// Masks are torchvision's where nothing is scaled by a fraction; where it is, ours are
// chosen by the pixels' centres, which is stated.
func TestMasksEqualTorchvisions(t *testing.T) {
	g := readGolden(t)
	source := red(g.image(0))
	for _, c := range g.Masks {
		var got imaging.Mask
		if err := new(Workspace).Mask(&got, source, c.Geometry, 211); err != nil {
			t.Fatal(err)
		}
		if len(got.Pix) != len(c.Mask) {
			t.Fatalf("%s: %d pixels; torchvision makes %d", c.Name, len(got.Pix), len(c.Mask))
		}
		if scaled := c.Geometry.Width != 0; bytes.Equal(got.Pix, c.Mask) == scaled {
			t.Errorf("%s: equal to torchvision's: %v", c.Name, !scaled)
		}
	}
}

// Boxes lie where torchvision, which computes in float32, puts them.
func TestBoxesEqualTorchvisions(t *testing.T) {
	g := readGolden(t)
	for i, c := range g.Boxes {
		boxes := []Box{{1, 2, 30, 20}, {-5, 3, 12, 40}, {20, 10, 47, 35}, {0, 0, 48, 36}}
		geometry := c.Geometry
		if w, ok := c.warp(48, 36); ok {
			geometry.Matrix = w.Matrix
		}
		width, height := geometry.Size(48, 36)
		for k, b := range boxes {
			clipped, whole := b, b
			clipped, whole = geometry.Box(clipped, whole, 48, 36)
			whole.clip(float64(width), float64(height))
			for j, v := range whole {
				if want := c.Boxes[k][j]; math.Abs(v-want) > 1e-4 {
					t.Errorf("case %d, box %d: %v (clipped %v); torchvision has %v", i, k, whole, clipped, c.Boxes[k])
					break
				}
			}
		}
	}
}

// The automatic augmentations hand the operations what torchvision's do.
func TestMagnitudesEqualTorchvisions(t *testing.T) {
	g := readGolden(t)
	for _, c := range g.Magnitudes {
		of := ranges{shear: 0.99, rotate: 135, factor: 0.99, bits: 6, translateX: 32, translateY: 32}
		if c.Policy == "RandAugment" {
			of = randRanges(c.Width, c.Height)
		}
		for bin, want := range c.Values {
			if got := of.op(c.Kind, bin, len(c.Values), false).Value; got != want {
				t.Errorf("%s of %d x %d: %v of bin %d is %v; torchvision's %v", c.Policy, c.Width, c.Height, c.Kind, bin, got, want)
			}
			if c.Signed {
				positive, negative := of.op(c.Kind, bin, len(c.Values), false).Value, of.op(c.Kind, bin, len(c.Values), true).Value
				if centre := (positive + negative) / 2; centre != 0 && centre != 1 {
					t.Errorf("%s: %v of bin %d is %v or %v", c.Policy, c.Kind, bin, positive, negative)
				}
			}
		}
	}
}

// Of the same random numbers torchvision's make_params and our Draw make the same. (It
// draws in float32, but for this; and it decides about erasing elsewhere.)
func TestDrawsEqualTorchvisions(t *testing.T) {
	g := readGolden(t)
	for _, c := range g.Drawn {
		r := NewRand(11, 5, c.Sample)
		var got []float64
		region := func(g Region) {
			for _, v := range []int{g.Y, g.X, g.Height, g.Width} {
				got = append(got, float64(v))
			}
		}
		switch c.Transform {
		case "RandomResizedCrop":
			region(RandomResizedCrop{}.Draw(&r, c.Width, c.Height))
		case "RandomErasing":
			region(RandomErasing{P: 1}.Draw(&r, c.Width, c.Height).Region)
		case "RandomCrop":
			crop, err := RandomCrop{Size: Size{32, 24}}.Draw(&r, c.Width, c.Height)
			if err != nil {
				t.Fatal(err)
			}
			region(crop)
		case "RandomRotation", "RandomAffine":
			// As the matrix that torchvision's parameters make.
			v, w, h := c.Values, float64(c.Width), float64(c.Height)
			want := rotation(v[0], w*0.5, h*0.5)
			have := RandomRotation{Degrees: SpreadOf(30)}.Draw(&r, c.Width, c.Height).Matrix
			if c.Transform == "RandomAffine" {
				r = NewRand(11, 5, c.Sample)
				want = affine(w*0.5, h*0.5, v[0], v[1], v[2], v[3], v[4], v[5])
				have = RandomAffine{Degrees: SpreadOf(15), Translate: [2]float64{0.1, 0.2}, Scale: [2]float64{0.8, 1.2}, Shear: ShearRange{-10, 10, -5, 5}}.Draw(&r, c.Width, c.Height).Matrix
			}
			for i := range want {
				if math.Abs(want[i]-have[i]) > 1e-9 {
					t.Errorf("%s, sample %d: %v; torchvision's parameters make %v", c.Transform, c.Sample, have, want)
					break
				}
			}
			continue
		default:
			t.Fatalf("%s is not known here", c.Transform)
		}
		if fmt.Sprint(got) != fmt.Sprint(c.Values) {
			t.Errorf("%s of %d x %d, sample %d: %v; torchvision draws %v", c.Transform, c.Width, c.Height, c.Sample, got, c.Values)
		}
	}
}

// docs/transforms.md says how far torchvision's two ways are apart.
func TestDocsStateDifferences(t *testing.T) {
	g := readGolden(t)
	type apart struct{ bytes, apart, by int }
	want := map[string]apart{}
	for _, c := range g.Operations {
		if c.Bytes > 0 {
			a := want[c.Name]
			want[c.Name] = apart{a.bytes + c.Bytes, a.apart + c.Apart, max(a.by, c.By)}
		}
	}
	doc, err := os.ReadFile("../../docs/transforms.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z][A-Za-z, ]*) \| ([0-9.]+) % \| ([0-9]+) \|`).FindAllStringSubmatch(string(doc), -1) {
		a := want[m[1]]
		part := strconv.FormatFloat(100*float64(a.apart)/float64(max(a.bytes, 1)), 'f', 1, 64)
		if m[2] != part || m[3] != strconv.Itoa(a.by) || a.apart == 0 {
			t.Errorf("docs/transforms.md has %q; it is %s %% and %d", strings.TrimSpace(m[0]), part, a.by)
		}
		found++
	}
	differ := 0
	for name, a := range want {
		if a.apart > 0 {
			differ++
			t.Logf("| %s | %.1f %% | %d |", name, 100*float64(a.apart)/float64(a.bytes), a.by)
		}
	}
	if found != differ {
		t.Errorf("docs/transforms.md states %d differences of %d", found, differ)
	}
}
