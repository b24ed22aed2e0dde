package augment

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shardify/imaging"
)

// Parameters are part of what a seed means: these never change.
func TestDrawsAreFrozen(t *testing.T) {
	const w, h = 500, 375
	jitter := ColorJitter{Brightness: GainOf(0.4), Contrast: GainOf(0.4), Saturation: Gain{0.5, 1.5}, Hue: SpreadOf(0.1), P: 0.8}
	affine := RandomAffine{Degrees: SpreadOf(15), Translate: [2]float64{0.1, 0.2}, Scale: [2]float64{0.8, 1.2}, Shear: ShearRange{-10, 10, -5, 5}}
	transforms := []struct {
		name string
		draw func(r *Rand) any
		want string
	}{
		{"ColorJitter", func(r *Rand) any { return jitter.Draw(r, w, h) }, `kind Brightness value 0.954997537 kind Color value 1.00902619 kind Contrast value 1.25311368 kind Hue value -0.0224762714 | kind Color value 0.904046498 kind Hue value -0.0255470833 kind Brightness value 1.24067493 kind Contrast value 1.0907063 | kind Hue value -0.0195725125 kind Contrast value 1.02322534 kind Color value 1.45528316 kind Brightness value 0.722435468`},
		{"RandomGrayscale", func(r *Rand) any { return RandomGrayscale{P: 0.5}.Draw(r, w, h).Kind }, `Grayscale | Identity | Identity`},
		{"RandomSolarize", func(r *Rand) any { return RandomSolarize{Threshold: 128}.Draw(r, w, h).Kind }, `Solarize | Identity | Identity`},
		{"RandomVerticalFlip", func(r *Rand) any { return RandomVerticalFlip{}.Draw(r, w, h) }, `true | false | false`},
		{"GaussianBlur", func(r *Rand) any { return GaussianBlur{P: 0.5}.Draw(r, w, h) }, `kind GaussianBlur value 0.467729787 kernel 23 23 | kind Identity value 0 | kind Identity value 0`},
		{"RandomRotation", func(r *Rand) any { return RandomRotation{Degrees: SpreadOf(30)}.Draw(r, w, h).Matrix }, `0.991161443 0.132661197 -22.6643354 -0.132661197 0.991161443 34.8225288 | 0.995415162 -0.0956486057 19.0803231 0.0956486057 0.995415162 -23.0524942 | 0.955886603 -0.293735939 66.1038377 0.293735939 0.955886603 -65.1627228`},
		{"RandomAffine", func(r *Rand) any { return affine.Draw(r, w, h).Matrix }, `1.12527907 -0.0972219689 24.0291086 0.137503026 1.12382527 -79.1783813 | 1.24478567 0.191563383 -130.247491 -0.035135678 1.24967348 -91.0631035 | 1.18859328 0.0331490059 -85.7777261 -0.169487496 1.16885442 88.0957816`},
		{"RandomCrop", func(r *Rand) any {
			c, err := RandomCrop{Size: Size{224, 256}, Padding: Padding{4, 4, 4, 4}}.Draw(r, w, h)
			return fmt.Sprint(c, err)
		}, `{44 55 256 224} <nil> | {173 90 256 224} <nil> | {195 121 256 224} <nil>`},
		{"RandomErasing", func(r *Rand) any { return RandomErasing{Value: ErasingValue{Random: true}}.Draw(r, w, h) }, `region x 177 y 48 width 102 height 147 value random noise 15059776042128308896 | region x 0 y 0 width 0 height 0 value 0 0 0 | region x 0 y 0 width 0 height 0 value 0 0 0`},
		{"RandAugment", func(r *Rand) any { return RandAugment{}.Draw(nil, r, w, h) }, `kind Rotate value -9 kind Sharpness value 0.730000019 | kind Contrast value 1.26999998 kind Solarize value 178.499997 | kind Posterize value 7 kind ShearX value -0.0900000036`},
		{"TrivialAugmentWide", func(r *Rand) any { return TrivialAugmentWide{}.Draw(r, w, h) }, `kind Rotate value 22.5 | kind Contrast value 1.69300002 | kind Posterize value 3`},
		{"CutMix", func(r *Rand) any { return CutMix{}.Draw(r, w, h) }, `lambda 0.565578667 region x 0 y 97 width 293 height 278 | lambda 0.673696 region x 191 y 177 width 309 height 198 | lambda 0.859738667 region x 279 y 0 width 221 height 119`},
		{"MixUp", func(r *Rand) any { return MixUp{Alpha: 0.2}.Draw(r) }, `lambda 0.110797852 | lambda 0.361029814 | lambda 0.00334160905`},
		{"Normal", func(r *Rand) any { return r.Normal() }, `-0.490591775 | 0.746681202 | 0.6371879`},
	}
	for _, c := range transforms {
		var got []string
		for sample := range uint64(3) {
			r := NewRand(42, 1, sample)
			got = append(got, short(c.draw(&r)))
		}
		if got := strings.Join(got, " | "); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	r := NewBatchRand(42, 1, 0)
	if got := fmt.Sprintf("%#x", r.Uint64()); got != "0x8eff7fb453c912a" {
		t.Errorf("NewBatchRand: %s", got)
	}
}

// short prints v with 9 digits of every number that is not whole.
func short(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var b strings.Builder
	for {
		token, err := d.Token()
		if err != nil {
			return strings.TrimSpace(b.String())
		}
		switch token := token.(type) {
		case json.Number:
			if f, err := token.Float64(); err == nil && strings.ContainsAny(token.String(), ".e") {
				fmt.Fprintf(&b, "%.9g ", f)
				continue
			}
			fmt.Fprint(&b, token, " ")
		case json.Delim:
		default:
			fmt.Fprint(&b, token, " ")
		}
	}
}

// What options change of one draw does not touch the others, nor those of the transform
// after it.
func TestOptionsDoNotShiftOtherDraws(t *testing.T) {
	a, b := NewRand(1, 1, 1), NewRand(1, 1, 1)
	x := ColorJitter{Brightness: GainOf(0.4), Hue: SpreadOf(0.1)}.Draw(&a, 10, 10)
	y := ColorJitter{Contrast: GainOf(0.4), Saturation: GainOf(0.2), Hue: SpreadOf(0.1)}.Draw(&b, 10, 10)
	if i, j := slices.IndexFunc(x[:], isHue), slices.IndexFunc(y[:], isHue); i != j || x[i] != y[j] {
		t.Errorf("%v and %v", x, y)
	}
	RandomAffine{Degrees: SpreadOf(5)}.Draw(&a, 10, 10)
	RandomAffine{Translate: [2]float64{0.1, 0.1}, Shear: ShearRange{1, 2, 3, 4}}.Draw(&b, 10, 10)
	GaussianBlur{P: 0.01}.Draw(&a, 10, 10)
	GaussianBlur{}.Draw(&b, 10, 10)
	if a.Uint64() != b.Uint64() {
		t.Error("the streams are apart")
	}
}

func isHue(o Op) bool { return o.Kind == Hue }

const draws = 40000

// moments checks the mean and the variance of what draw yields, each within four
// standard errors; the fourth moment bounds the variance's.
func moments(t *testing.T, name string, mean, variance float64, draw func(r *Rand) float64) {
	t.Helper()
	var s1, s2, s4 float64
	for i := range uint64(draws) {
		r := NewRand(5, 3, i)
		v := draw(&r) - mean
		s1, s2, s4 = s1+v, s2+v*v, s4+v*v*v*v
	}
	s1, s2, s4 = s1/draws, s2/draws, s4/draws
	if math.Abs(s1) > 4*math.Sqrt(variance/draws) {
		t.Errorf("%s: the mean is off by %v", name, s1)
	}
	if math.Abs(s2-variance) > 4*math.Sqrt((s4-s2*s2)/draws)+1e-12 {
		t.Errorf("%s: the variance is %v; want %v", name, s2, variance)
	}
}

// evenly checks that n values are equally likely.
func evenly(t *testing.T, name string, n int, draw func(r *Rand) int) {
	t.Helper()
	seen := make([]int, n)
	for i := range uint64(draws) {
		r := NewRand(6, 3, i)
		seen[draw(&r)]++
	}
	chi, each := 0.0, draws/float64(n)
	for _, k := range seen {
		chi += (float64(k) - each) * (float64(k) - each) / each
	}
	if df := float64(n - 1); chi > df+4*math.Sqrt(2*df)+8 {
		t.Errorf("%s: chi squared is %.1f with %v degrees of freedom: %v", name, chi, df, seen)
	}
}

func TestDrawsFollowTheirLaws(t *testing.T) {
	jitter := ColorJitter{Brightness: GainOf(0.4), Contrast: Gain{0.5, 3}, Saturation: GainOf(2), Hue: SpreadOf(0.1)}
	at := func(k Kind) func(r *Rand) float64 {
		return func(r *Rand) float64 {
			for _, op := range jitter.Draw(r, 1, 1) {
				if op.Kind == k {
					return op.Value
				}
			}
			t.Fatal("it lacks", k)
			return 0
		}
	}
	moments(t, "brightness", 1, 0.8*0.8/12, at(Brightness))
	moments(t, "contrast", 1.75, 2.5*2.5/12, at(Contrast))
	moments(t, "saturation", 1.5, 3*3./12, at(Saturation)) // from 0, not -1
	moments(t, "hue", 0, 0.2*0.2/12, at(Hue))
	evenly(t, "order of the jitter", 24, func(r *Rand) int {
		rank := 0
		ops := jitter.Draw(r, 1, 1)
		for i := range ops {
			for _, later := range ops[i+1:] {
				if later.Kind < ops[i].Kind {
					rank += []int{6, 2, 1}[i]
				}
			}
		}
		return rank
	})
	probability := func(name string, p float64, draw func(r *Rand) bool) {
		moments(t, name, p, p*(1-p), func(r *Rand) float64 {
			if draw(r) {
				return 1
			}
			return 0
		})
	}
	is := func(k Kind, draw func(r *Rand, w, h int) Op) func(r *Rand) bool {
		return func(r *Rand) bool { return draw(r, 9, 9).Kind == k }
	}
	probability("jitter", 0.8, func(r *Rand) bool { return (ColorJitter{P: 0.8}).Draw(r, 1, 1) != Ops4{} })
	probability("grayscale", 0.1, is(Grayscale, RandomGrayscale{}.Draw))
	probability("invert", 0.5, is(Invert, RandomInvert{}.Draw))
	probability("posterize", 0.3, is(Posterize, RandomPosterize{Bits: 4, P: 0.3}.Draw))
	probability("solarize", 0.5, is(Solarize, RandomSolarize{}.Draw))
	probability("sharpness", 0.5, is(Sharpness, RandomAdjustSharpness{SharpnessFactor: 2}.Draw))
	probability("autocontrast", 0.5, is(AutoContrast, RandomAutocontrast{}.Draw))
	probability("equalize", 0.5, is(Equalize, RandomEqualize{}.Draw))
	probability("blur", 0.25, is(Blur, GaussianBlur{P: 0.25}.Draw))
	probability("horizontal flip", 0.5, func(r *Rand) bool { return RandomHorizontalFlip{}.Draw(r, 1, 1) })
	probability("vertical flip", 0.2, func(r *Rand) bool { return RandomVerticalFlip{P: 0.2}.Draw(r, 1, 1) })
	probability("erasing", 0.5, func(r *Rand) bool { return RandomErasing{}.Draw(r, 300, 300).Region != Region{} })
	moments(t, "sigma", 1.05, 1.9*1.9/12, func(r *Rand) float64 { return GaussianBlur{}.Draw(r, 1, 1).Value })

	moments(t, "normal", 0, 1, (*Rand).Normal)
	for _, alpha := range []float64{0.01, 0.2, 0.4, 1, 1.5, 8} {
		moments(t, fmt.Sprintf("Beta(%v)", alpha), 0.5, 1/(4*(2*alpha+1)), func(r *Rand) float64 { return r.Beta(alpha) })
	}
	for i := range uint64(1000) {
		r := NewRand(1, 1, i)
		if v := r.Beta(1e-6); !(v >= 0 && v <= 1) {
			t.Fatalf("Beta(1e-6) is %v", v)
		}
	}
	// The distribution function of Beta(2, 2) is 3x²-2x³.
	below := 0
	for i := range uint64(draws) {
		r := NewRand(8, 1, i)
		if r.Beta(2) < 0.2 {
			below++
		}
	}
	if p := 3*0.04 - 2*0.008; math.Abs(float64(below)-p*draws) > 4*math.Sqrt(draws*p*(1-p)) {
		t.Errorf("Beta(2) is below 0.2 in %d of %d draws; want %v", below, draws, p*draws)
	}

	evenly(t, "RandAugment's first", automatic, func(r *Rand) int { return int(RandAugment{}.Draw(nil, r, 9, 9)[0].Kind) })
	evenly(t, "RandAugment's second", automatic, func(r *Rand) int { return int(RandAugment{}.Draw(nil, r, 9, 9)[1].Kind) })
	evenly(t, "TrivialAugmentWide", automatic, func(r *Rand) int { return int(TrivialAugmentWide{}.Draw(r, 9, 9).Kind) })
	evenly(t, "RandomCrop", 12, func(r *Rand) int {
		c, err := RandomCrop{Size: Size{8, 7}, Padding: Padding{1, 0, 0, 2}}.Draw(r, 9, 8)
		if err != nil {
			t.Fatal(err)
		}
		return (c.X+1)*3 + c.Y // 4 columns from -1, 3 rows from 0
	})
	angle := func(m Matrix) float64 { return math.Atan2(m[1], m[0]) * 180 / math.Pi }
	moments(t, "rotation", 0, 60*60./12, func(r *Rand) float64 {
		return angle(RandomRotation{Degrees: SpreadOf(30)}.Draw(r, 100, 100).Matrix)
	})
	shifts := RandomAffine{Translate: [2]float64{0.25, 0}}
	evenly(t, "translation", 49, func(r *Rand) int { // the outermost of 51 are half as likely
		for {
			if x := int(shifts.Draw(r, 100, 100).Matrix[2]); x > -25 && x < 25 {
				return x + 24
			}
		}
	})
}

// torchvision's algorithms in Python, fed with the same random numbers, give the same
// parameters.
func TestParametersEqualTorchvisions(t *testing.T) {
	type test struct {
		W, H    int
		Numbers []string // the stream's
	}
	stream := func(r Rand) (n []string) {
		for range 64 {
			n = append(n, fmt.Sprint(r.Uint64()))
		}
		return n
	}
	var cases []test
	sizes := [][2]int{{500, 375}, {33, 500}, {7, 5}, {1, 9}, {1, 1}, {224, 224}}
	for i := range uint64(600) {
		s := sizes[i%6]
		cases = append(cases, test{s[0], s[1], stream(NewRand(3, 4, i))})
	}
	out := ask(t, `
class Stream:
    def __init__(self, numbers):
        self.numbers = list(map(int, numbers))
    def rand(self):
        return (self.numbers.pop(0) >> 11) * 2.0**-53
    def uniform(self, low, high):
        return low + (high - low) * self.rand()
    def randint(self, n):
        return self.numbers.pop(0) * n >> 64

def erasing(r, img_w, img_h, scale=(0.02, 0.33), ratio=(0.3, 3.3)):
    if r.rand() >= 0.9:
        return [0, 0, 0, 0]
    area = img_h * img_w
    for _ in range(10):
        erase_area = area * r.uniform(*scale)
        aspect_ratio = math.exp(r.uniform(math.log(ratio[0]), math.log(ratio[1])))
        h = int(round(math.sqrt(erase_area * aspect_ratio)))
        w = int(round(math.sqrt(erase_area / aspect_ratio)))
        if not (h < img_h and w < img_w):
            continue
        i = r.randint(img_h - h + 1)
        j = r.randint(img_w - w + 1)
        return [j, i, w, h]
    return [0, 0, 0, 0]

def cutmix(s, W, H):
    lam = s.rand()
    r_x, r_y = s.randint(W), s.randint(H)
    r = 0.5 * math.sqrt(1.0 - lam)
    r_w_half, r_h_half = int(r * W), int(r * H)
    x1, y1 = max(r_x - r_w_half, 0), max(r_y - r_h_half, 0)
    x2, y2 = min(r_x + r_w_half, W), min(r_y + r_h_half, H)
    return [x1, y1, x2 - x1, y2 - y1, float(1.0 - (x2 - x1) * (y2 - y1) / (W * H))]

f32 = np.float32
def linspace(start, end, n):  # torch's, whose sums of products are rounded once
    start, end = float(f32(start)), float(f32(end))
    step = float((f32(end) - f32(start)) / f32(n - 1))
    return [float(f32(start + step * i if i < n // 2 else end - step * (n - 1 - i))) for i in range(n)]

NAMES = "Identity ShearX ShearY TranslateX TranslateY Rotate Brightness Color Contrast Sharpness Posterize Solarize AutoContrast Equalize".split()

def auto(r, w, h, wide, num_bins=31):
    k = NAMES[r.randint(14)]
    bin = r.randint(num_bins) if wide else 9
    sign = -1 if r.rand() < 0.5 else 1
    m = {
        "ShearX": 0.99 if wide else 0.3, "ShearY": 0.99 if wide else 0.3,
        "TranslateX": 32.0 if wide else 150.0 / 331.0 * w, "TranslateY": 32.0 if wide else 150.0 / 331.0 * h,
        "Rotate": 135.0 if wide else 30.0,
    }.get(k, 0.99 if wide else 0.9)
    m = linspace(0.0, m, num_bins)[bin]
    if k == "Posterize":
        return [k, int((8 - np.arange(num_bins, dtype=np.int64).astype(f32) / f32((num_bins - 1) / (6 if wide else 4))).round()[bin])]
    if k == "Solarize":
        return [k, 255.0 * linspace(1.0, 0.0, num_bins)[bin]]
    if k in ("Identity", "AutoContrast", "Equalize"):
        return [k, 0]
    if k.startswith("Translate"):
        return [k, int(sign * m)]
    if k in ("Brightness", "Color", "Contrast", "Sharpness"):
        return [k, 1.0 + sign * m]
    return [k, sign * m]

json.dump([[
    erasing(Stream(c["Numbers"]), c["W"], c["H"]), cutmix(Stream(c["Numbers"]), c["W"], c["H"]),
    auto(Stream(c["Numbers"]), c["W"], c["H"], False), auto(Stream(c["Numbers"]), c["W"], c["H"], True),
] for c in cases], sys.stdout)
`, nil, cases)
	var want [][4]json.RawMessage
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	list := func(v ...any) []any { return v }
	for i, c := range cases {
		fresh := func() *Rand { r := NewRand(3, 4, uint64(i)); return &r }
		e := RandomErasing{P: 0.9}.Draw(fresh(), c.W, c.H).Region
		m := CutMix{}.Draw(fresh(), c.W, c.H)
		a := RandAugment{}.Draw(nil, fresh(), c.W, c.H)[0]
		b := TrivialAugmentWide{}.Draw(fresh(), c.W, c.H)
		for j, got := range [][]any{
			list(e.X, e.Y, e.Width, e.Height), list(m.Region.X, m.Region.Y, m.Region.Width, m.Region.Height, m.Lambda),
			list(a.Kind.String(), a.Value), list(b.Kind.String(), b.Value),
		} {
			var w []any
			if err := json.Unmarshal(want[i][j], &w); err != nil {
				t.Fatal(err)
			}
			// Both as text: numbers of Go and JSON have other types.
			if g, w := fmt.Sprint(got), fmt.Sprint(w); strings.ReplaceAll(g, "-0]", "0]") != strings.ReplaceAll(w, "-0]", "0]") {
				t.Errorf("%d x %d, sample %d, algorithm %d: %s; want %s", c.W, c.H, i, j, g, w)
			}
		}
	}
}

func TestRandomCropPadsIfNeeded(t *testing.T) {
	r := NewRand(1, 1, 1)
	c := RandomCrop{Size: Size{32, 40}}
	if _, err := c.Draw(&r, 100, 31); err == nil || !strings.Contains(err.Error(), "pad_if_needed") {
		t.Errorf("%v", err)
	}
	c.PadIfNeeded = true
	seen := map[int]bool{}
	for range 200 {
		g, err := c.Draw(&r, 100, 30)
		if err != nil || g.Width != 40 || g.Height != 32 || g.X < 0 || g.X > 60 {
			t.Fatalf("%+v, %v", g, err)
		}
		seen[g.Y] = true
	}
	if len(seen) != 3 || !seen[-2] || !seen[-1] || !seen[0] { // 30 rows and 2 on each side
		t.Errorf("rows %v", seen)
	}
}

func TestErasingPaints(t *testing.T) {
	var ws Workspace
	for _, random := range []bool{false, true} {
		m := picture(60, 50, true)
		view, untouched := strided(m)
		e := Erasing{Region: Region{7, 9, 30, 20}, Value: ErasingValue{Color: Color{1, 2, 3}, Random: random}, Noise: 77}
		if err := e.Apply(&ws, view); err != nil {
			t.Fatal(err)
		}
		if !untouched() {
			t.Error("wrote outside the image")
		}
		for y := range 50 {
			for x := range 60 {
				got, was := view.Pix[y*view.Stride+3*x:][:3], m.Pix[y*m.Stride+3*x:][:3]
				switch inside := x >= 7 && x < 37 && y >= 9 && y < 29; {
				case !inside && !bytes.Equal(got, was):
					t.Fatalf("(%d, %d) changed", x, y)
				case inside && !random && !bytes.Equal(got, []byte{1, 2, 3}):
					t.Fatalf("(%d, %d) is %v", x, y, got)
				}
			}
		}
	}
	// Noise, normalised as for ImageNet, has the moments of a standard normal deviate
	// that is cut to the range of a byte.
	m := picture(256, 256, true)
	if err := (Erasing{Region: Region{0, 0, 256, 256}, Value: ErasingValue{Random: true}, Noise: 5}).Apply(&ws, m); err != nil {
		t.Fatal(err)
	}
	density := func(z float64) float64 { return math.Exp(-z*z/2) / math.Sqrt(2*math.Pi) }
	below := func(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }
	mean, std := [3]float64{0.485, 0.456, 0.406}, [3]float64{0.229, 0.224, 0.225}
	for c := range 3 {
		low, high := -mean[c]/std[c], (1-mean[c])/std[c]
		want1 := density(low) - density(high) + low*below(low) + high*(1-below(high))
		want2 := below(high) - below(low) + low*density(low) - high*density(high) + low*low*below(low) + high*high*(1-below(high))
		var s1, s2 float64
		for i := c; i < len(m.Pix); i += 3 {
			z := (float64(m.Pix[i])/255 - mean[c]) / std[c]
			s1, s2 = s1+z, s2+z*z
		}
		if s1, s2 = s1/65536, s2/65536; math.Abs(s1-want1) > 4./256 || math.Abs(s2-want2) > 4*1.5/256 {
			t.Errorf("channel %d: mean %v, mean square %v; want %v, %v", c, s1, s2, want1, want2)
		}
	}
	other := picture(256, 256, true)
	if err := (Erasing{Region: Region{0, 0, 256, 256}, Value: ErasingValue{Random: true}, Noise: 6}).Apply(&ws, other); err != nil || bytes.Equal(m.Pix, other.Pix) {
		t.Errorf("other noise is the same; %v", err)
	}
	for _, g := range []Region{{-1, 0, 2, 2}, {0, 0, 257, 1}, {255, 0, 2, 1}, {0, 0, 1, -1}} {
		if (Erasing{Region: g}).Apply(&ws, m) == nil {
			t.Errorf("%+v passed", g)
		}
	}
	if (Erasing{}).Apply(&ws, &imaging.Image{}) == nil {
		t.Error("no image passed")
	}
}

func TestPartners(t *testing.T) {
	var got []int
	for i := range 4 {
		got = append(got, Partner(i, 4))
	}
	if !reflect.DeepEqual(got, []int{3, 0, 1, 2}) { // torch.roll(1, 0)
		t.Errorf("%v", got)
	}
}

// All that torchvision takes in JSON's form is taken, and comes back as it was.
func TestTransformsAreJSON(t *testing.T) {
	nine := 9
	for _, c := range []struct {
		text string
		want any
	}{
		{`{"brightness":0.4,"contrast":[0.5,3],"saturation":2,"hue":0.1,"p":0.8}`, ColorJitter{Brightness: Gain{0.6, 1.4}, Contrast: Gain{0.5, 3}, Saturation: Gain{0, 3}, Hue: Spread{-0.1, 0.1}, P: 0.8}},
		{`{}`, ColorJitter{}},
		{`{"brightness":null}`, ColorJitter{}},
		{`{"degrees":30,"interpolation":"bilinear","center":[3,4],"fill":7}`, RandomRotation{Degrees: Spread{-30, 30}, Interpolation: Bilinear, Center: &[2]float64{3, 4}, Fill: Color{7, 7, 7}}},
		{`{"degrees":[10,20],"translate":[0.1,0.2],"scale":[0.5,2],"shear":5,"fill":[1,2,3]}`, RandomAffine{Degrees: Spread{10, 20}, Translate: [2]float64{0.1, 0.2}, Scale: [2]float64{0.5, 2}, Shear: ShearRange{-5, 5}, Fill: Color{1, 2, 3}}},
		{`{"degrees":0,"shear":[1,2]}`, RandomAffine{Shear: ShearRange{1, 2}}},
		{`{"degrees":0,"shear":[1,2,3,4]}`, RandomAffine{Shear: ShearRange{1, 2, 3, 4}}},
		{`{"padding":4,"padding_mode":"reflect"}`, Pad{Padding: Padding{4, 4, 4, 4}, PaddingMode: Reflect}},
		{`{"padding":[1,2]}`, Pad{Padding: Padding{1, 2, 1, 2}}},
		{`{"size":[24,32],"padding":[1,2,3,4],"pad_if_needed":true}`, RandomCrop{Size: Size{24, 32}, Padding: Padding{1, 2, 3, 4}, PadIfNeeded: true}},
		{`{"size":32}`, RandomCrop{Size: Size{32, 32}}},
		{`{"p":0.3,"scale":[0.1,0.2],"ratio":[0.5,2],"value":"random"}`, RandomErasing{P: 0.3, Scale: [2]float64{0.1, 0.2}, Ratio: [2]float64{0.5, 2}, Value: ErasingValue{Random: true}}},
		{`{"value":[1,2,3]}`, RandomErasing{Value: ErasingValue{Color: Color{1, 2, 3}}}},
		{`{"kernel_size":[5,9],"sigma":[1,2]}`, GaussianBlur{KernelSize: [2]int{5, 9}, Sigma: [2]float64{1, 2}}},
		{`{"num_ops":3,"magnitude":9}`, RandAugment{NumOps: 3, Magnitude: &nine}},
		{`{"num_magnitude_bins":10,"interpolation":"nearest"}`, TrivialAugmentWide{NumMagnitudeBins: 10}},
		{`{"bits":3}`, RandomPosterize{Bits: 3}},
		{`{"kind":"Color","value":1.5}`, Op{Kind: Saturation, Value: 1.5}},
		{`{"alpha":0.2}`, MixUp{Alpha: 0.2}},
	} {
		got := reflect.New(reflect.TypeOf(c.want))
		if err := json.Unmarshal([]byte(c.text), got.Interface()); err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if !reflect.DeepEqual(got.Elem().Interface(), c.want) {
			t.Errorf("%s: %+v; want %+v", c.text, got.Elem(), c.want)
		}
		if v, ok := c.want.(interface{ Validate() error }); ok && v.Validate() != nil {
			t.Errorf("%s: %v", c.text, v.Validate())
		}
		text, err := json.Marshal(c.want)
		if err != nil {
			t.Error(err)
			continue
		}
		back := reflect.New(reflect.TypeOf(c.want))
		if err := json.Unmarshal(text, back.Interface()); err != nil || !reflect.DeepEqual(back.Elem().Interface(), c.want) {
			t.Errorf("%s: %+v, %v", text, back.Elem(), err)
		}
	}
	for _, c := range []struct {
		text string
		into any
	}{
		{`{"brightness":-1}`, new(ColorJitter)}, {`{"brightness":[1,2,3]}`, new(ColorJitter)}, {`{"hue":"x"}`, new(ColorJitter)}, {`{"hue":-0.1}`, new(ColorJitter)},
		{`{"fill":256}`, new(RandomRotation)}, {`{"fill":[1,2]}`, new(RandomRotation)}, {`{"fill":1.5}`, new(RandomRotation)}, {`{"interpolation":"lanczos"}`, new(RandomRotation)},
		{`{"shear":[1,2,3]}`, new(RandomAffine)}, {`{"shear":-1}`, new(RandomAffine)}, {`{"padding":[1,2,3]}`, new(Pad)}, {`{"padding":1.5}`, new(Pad)}, {`{"padding_mode":"wrap"}`, new(Pad)},
		{`{"size":[1,2,3]}`, new(RandomCrop)}, {`{"size":0.5}`, new(RandomCrop)}, {`{"value":"noise"}`, new(RandomErasing)}, {`{"kind":"Saturation"}`, new(Op)},
	} {
		if json.Unmarshal([]byte(c.text), c.into) == nil {
			t.Errorf("%s was taken: %+v", c.text, c.into)
		}
	}
	for _, v := range []any{Op{Kind: kinds}, Pad{PaddingMode: 9}, RandomRotation{Interpolation: 3}} {
		if text, err := json.Marshal(v); err == nil {
			t.Errorf("%+v became %s", v, text)
		}
	}
}

func TestValidateRefusesFaults(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	big := 31
	for _, v := range []interface{ Validate() error }{
		ColorJitter{Brightness: Gain{-1, 1}}, ColorJitter{Contrast: Gain{2, 1}}, ColorJitter{Saturation: Gain{0, inf}}, ColorJitter{Hue: Spread{-0.6, 0}}, ColorJitter{Hue: Spread{0, nan}}, ColorJitter{P: 1.1},
		RandomHorizontalFlip{P: 1.5}, RandomVerticalFlip{P: nan}, RandomGrayscale{P: -1}, RandomInvert{P: 2}, RandomPosterize{}, RandomPosterize{Bits: 9}, RandomSolarize{Threshold: 257}, RandomSolarize{Threshold: nan},
		RandomAdjustSharpness{SharpnessFactor: -1}, RandomAutocontrast{P: nan}, RandomEqualize{P: 3},
		GaussianBlur{KernelSize: [2]int{4, 5}}, GaussianBlur{KernelSize: [2]int{5, 2000001}}, GaussianBlur{Sigma: [2]float64{0, 1}}, GaussianBlur{Sigma: [2]float64{2, 1}},
		RandomRotation{Degrees: Spread{1, 0}}, RandomRotation{Degrees: Spread{0, inf}}, RandomRotation{Interpolation: 5}, RandomRotation{Center: &[2]float64{nan, 0}},
		RandomAffine{Translate: [2]float64{0, 1.1}}, RandomAffine{Scale: [2]float64{0, 1}}, RandomAffine{Scale: [2]float64{1, 1e9}}, RandomAffine{Shear: ShearRange{0, 90}}, RandomAffine{Shear: ShearRange{0, 0, 5, 1}},
		Pad{Padding: Padding{-1, 0, 0, 0}}, Pad{PaddingMode: 4}, RandomCrop{}, RandomCrop{Size: Size{5, -5}}, RandomCrop{Size: Size{5, 5}, Padding: Padding{0, 0, 0, 1 << 20}},
		RandomErasing{Scale: [2]float64{0.5, 1.5}}, RandomErasing{Ratio: [2]float64{0, 1}}, RandomErasing{P: -0.1},
		RandAugment{NumOps: -1}, RandAugment{Magnitude: &big}, RandAugment{NumMagnitudeBins: 1}, TrivialAugmentWide{NumMagnitudeBins: -1}, MixUp{Alpha: -1}, CutMix{Alpha: nan},
	} {
		if v.Validate() == nil {
			t.Errorf("%T%+v passed", v, v)
		}
	}
	for _, v := range []interface{ Validate() error }{
		RandomHorizontalFlip{}, RandomVerticalFlip{}, ColorJitter{}, RandomGrayscale{}, RandomInvert{}, RandomPosterize{Bits: 1}, RandomSolarize{}, RandomAdjustSharpness{}, RandomAutocontrast{}, RandomEqualize{},
		GaussianBlur{}, RandomRotation{}, RandomAffine{}, Pad{}, RandomCrop{Size: Size{1, 1}}, RandomErasing{}, RandAugment{}, TrivialAugmentWide{}, MixUp{}, CutMix{}, BoxFilter{},
	} {
		if err := v.Validate(); err != nil {
			t.Errorf("%T: %v", v, err)
		}
	}
	err := ColorJitter{Brightness: Gain{-1, 1}, Hue: Spread{-1, 0}, P: 2}.Validate()
	for _, name := range []string{"ColorJitter", "brightness", "hue", "p is 2"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v; it does not name %s", err, name)
		}
	}
}
