package augment

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"testing"

	"shardify/internal/peers"
)

// The numbers of a stream are part of what a seed means: they never change. These
// are numpy's, and of key 0 and counter 0 those of the known-answer tests that
// came with the paper.
func TestRandIsFrozen(t *testing.T) {
	for _, c := range []struct {
		seed, epoch, sample uint64
		want                []uint64
	}{
		{0, 0, 0, []uint64{0x16554d9eca36314c, 0xdb20fe9d672d0fdc, 0xd7e772cee186176b, 0x7e68b68aec7ba23b, 0x02f4ba6408e4d89b, 0x3dd62b0b9ca8c5b2}},
		{1, 2, 3, []uint64{0x3a7bd930370c326f, 0x7649c28e406cb278, 0xcabbc0bf6e193b9e, 0x0e5d7aa554518f3d, 0x23278960bbd21e3d, 0x39a88273926b8f36}},
	} {
		r := NewRand(c.seed, c.epoch, c.sample)
		for i, want := range c.want {
			if got := r.Uint64(); got != want {
				t.Errorf("(%d, %d, %d): number %d is %#x; want %#x", c.seed, c.epoch, c.sample, i, got, want)
			}
		}
	}
	r := NewRand(1, 2, 3)
	got := fmt.Sprint(r.Float64(), r.IntN(10), r.IntN(1), r.Uniform(-1, 1), HorizontalFlip(&r, 0.5))
	if want := "0.22845227648854016 4 0 -0.887772244713563 true"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

func TestCropsAreFrozen(t *testing.T) {
	var got []Region
	for sample := range uint64(6) {
		r := NewRand(42, 1, sample)
		got = append(got, RandomResizedCrop{}.Draw(&r, 500, 375))
	}
	want := []Region{{51, 44, 258, 308}, {0, 41, 363, 323}, {9, 1, 422, 357}, {206, 32, 244, 227}, {174, 7, 146, 155}, {18, 16, 324, 337}}
	if !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
}

func TestIntNIsUniform(t *testing.T) {
	r := NewRand(9, 9, 9)
	const n, draws = 7, 70000
	var seen [n]int
	for range draws {
		seen[r.IntN(n)]++
	}
	chi := 0.0
	for _, k := range seen {
		chi += math.Pow(float64(k)-draws/n, 2) / (draws / n)
	}
	if chi > 22.5 { // 0.1 % with 6 degrees of freedom
		t.Errorf("chi squared is %.1f: %v", chi, seen)
	}
	defer func() {
		if recover() == nil {
			t.Error("IntN(0) did not panic")
		}
	}()
	r.IntN(0)
}

// Streams of neighbouring keys are independent: the mean over many keys of the
// first number and of products of firsts is what it should be.
func TestStreamsAreIndependent(t *testing.T) {
	const n = 20000
	first := func(seed, epoch, sample uint64) float64 {
		r := NewRand(seed, epoch, sample)
		return r.Float64() - 0.5
	}
	var mean, bySeed, byEpoch, bySample, within float64
	for i := range uint64(n) {
		v := first(1, 1, i)
		mean += v
		bySeed += v * first(2, 1, i)
		byEpoch += v * first(1, 2, i)
		bySample += v * first(1, 1, i+1)
		r := NewRand(1, 1, i)
		r.Uint64()
		within += v * (r.Float64() - 0.5)
	}
	sigma := math.Sqrt(n)
	if math.Abs(mean) > 4*sigma/math.Sqrt(12) {
		t.Errorf("the mean is off by %v", mean/n)
	}
	for _, c := range []float64{bySeed, byEpoch, bySample, within} {
		if math.Abs(c) > 4*sigma/12 {
			t.Errorf("correlation of %v", 12*c/n)
		}
	}
}

func TestCropLiesWithin(t *testing.T) {
	sizes := []int{1, 2, 3, 5, 17, 100, 375, 500, 20000}
	for _, c := range []RandomResizedCrop{{}, {Scale: [2]float64{0.01, 4}, Ratio: [2]float64{0.01, 100}}, {Ratio: [2]float64{50, 60}}} {
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		for _, w := range sizes {
			for _, h := range sizes {
				for sample := range uint64(50) {
					r := NewRand(uint64(w), uint64(h), sample)
					g := c.Draw(&r, w, h)
					if g.X < 0 || g.Y < 0 || g.Width < 1 || g.Height < 1 || g.X+g.Width > w || g.Y+g.Height > h {
						t.Fatalf("%+v of %d x %d: %+v", c, w, h, g)
					}
				}
			}
		}
	}
}

// Where no draw is refused, the laws are known: the area is uniform, so is the
// logarithm of the ratio, so is the place.
func TestCropsFollowTheirLaws(t *testing.T) {
	c := RandomResizedCrop{Scale: [2]float64{0.1, 0.5}}
	const w, h, n = 4000, 4000, 40000
	var area, area2, ratio, ratio2, x, y float64
	for sample := range uint64(n) {
		r := NewRand(7, 0, sample)
		g := c.Draw(&r, w, h)
		a := float64(g.Width*g.Height) / (w * h)
		l := math.Log(float64(g.Width) / float64(g.Height))
		area, area2 = area+a, area2+a*a
		ratio, ratio2 = ratio+l, ratio2+l*l
		x += float64(g.X) / float64(w-g.Width)
		y += float64(g.Y) / float64(h-g.Height)
	}
	near := func(name string, got, want, sigma float64) {
		if math.Abs(got-want) > 4*sigma/math.Sqrt(n) {
			t.Errorf("%s is %v; want %v", name, got, want)
		}
	}
	logs := math.Log(4. / 3)
	near("mean area", area/n, 0.3, 0.4/math.Sqrt(12))
	near("mean square of the area", area2/n, 0.3*0.3+0.16/12, 0.4*0.4)
	near("mean log ratio", ratio/n, 0, logs/math.Sqrt(3))
	near("mean square of the log ratio", ratio2/n, logs*logs/3, logs*logs/2)
	near("mean x", x/n, 0.5, 1/math.Sqrt(12))
	near("mean y", y/n, 0.5, 1/math.Sqrt(12))
}

// torchvision's algorithm in Python, fed with the same random numbers, gives the
// same crops.
func TestCropsEqualTorchvisions(t *testing.T) {
	type test struct {
		W, H, Sample int
		Scale, Ratio [2]float64
	}
	var tests []test
	sizes := [][2]int{{500, 375}, {375, 500}, {640, 480}, {33, 500}, {500, 33}, {7, 5}, {1, 9}, {1, 1}, {3000, 2000}}
	for i := range 4000 {
		s := sizes[i%len(sizes)]
		c := RandomResizedCrop{}.withDefaults()
		if i%3 == 0 {
			c.Scale, c.Ratio = [2]float64{0.5, 1}, [2]float64{0.5, 3}
		}
		tests = append(tests, test{s[0], s[1], i, c.Scale, c.Ratio})
	}
	in, err := json.Marshal(tests)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(peers.Python(t), "-c", `
import json, math, sys
import numpy as np

class Stream:
    def __init__(self, seed, epoch, sample):
        counter = ((sample << 64) - 1) % (1 << 256)  # numpy counts before it draws
        self.bits = np.random.Philox(key=seed | epoch << 64, counter=counter)
    def uniform(self, low, high):
        return low + (high - low) * ((int(self.bits.random_raw()) >> 11) * 2.0**-53)
    def randint(self, n):
        m = int(self.bits.random_raw()) * n
        while m % 2**64 < 2**64 % n:
            m = int(self.bits.random_raw()) * n
        return m >> 64

def make_params(r, width, height, scale, ratio):
    area = height * width
    log_ratio = math.log(ratio[0]), math.log(ratio[1])
    for _ in range(10):
        target_area = area * r.uniform(*scale)
        aspect_ratio = math.exp(r.uniform(*log_ratio))
        w = int(round(math.sqrt(target_area * aspect_ratio)))
        h = int(round(math.sqrt(target_area / aspect_ratio)))
        if 0 < w <= width and 0 < h <= height:
            i = r.randint(height - h + 1)
            j = r.randint(width - w + 1)
            break
    else:
        in_ratio = float(width) / float(height)
        if in_ratio < min(ratio):
            w = width
            h = int(round(w / min(ratio)))
        elif in_ratio > max(ratio):
            h = height
            w = int(round(h * max(ratio)))
        else:
            w, h = width, height
        i, j = (height - h) // 2, (width - w) // 2
    return [j, i, w, h]

json.dump([make_params(Stream(11, 5, t["Sample"]), t["W"], t["H"], t["Scale"], t["Ratio"]) for t in json.load(sys.stdin)], sys.stdout)
`)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want [][4]int
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	central := 0
	for i, c := range tests {
		r := NewRand(11, 5, uint64(c.Sample))
		g := RandomResizedCrop{Scale: c.Scale, Ratio: c.Ratio}.Draw(&r, c.W, c.H)
		if got := [4]int{g.X, g.Y, g.Width, g.Height}; got != want[i] {
			t.Errorf("%+v: %v; want %v", c, got, want[i])
		}
		if g.Width == c.W || g.Height == c.H {
			central++
		}
	}
	if central == 0 {
		t.Error("no case took the fallback")
	}
}

func TestCenterCropIsTorchvisions(t *testing.T) {
	for _, c := range []struct {
		crop    CenterCrop
		w, h    int
		scaledW int
		scaledH int
		x, y    int
	}{
		{CenterCrop{}, 500, 375, 341, 256, 58, 16}, // 58.5 rounds to even
		{CenterCrop{}, 375, 500, 256, 341, 16, 58},
		{CenterCrop{}, 256, 256, 256, 256, 16, 16},
		{CenterCrop{}, 100, 103, 256, 263, 16, 20}, // 19.5
		{CenterCrop{Resize: 224}, 640, 480, 298, 224, 37, 0},
		{CenterCrop{Resize: 232}, 333, 500, 232, 348, 4, 62},
		{CenterCrop{Size: 299, Resize: 342}, 500, 333, 513, 342, 107, 22}, // 21.5
		{CenterCrop{}, 1, 1000, 256, 256000, 16, 127888},
	} {
		if err := c.crop.Validate(); err != nil {
			t.Error(err)
		}
		w, h, g := c.crop.Window(c.w, c.h)
		if w != c.scaledW || h != c.scaledH || g.X != c.x || g.Y != c.y {
			t.Errorf("%+v of %d x %d: %d x %d, %+v", c.crop, c.w, c.h, w, h, g)
		}
	}
}

func TestValidateRefusesNonsense(t *testing.T) {
	nan := math.NaN()
	for _, c := range []RandomResizedCrop{
		{Scale: [2]float64{1, 0.5}}, {Scale: [2]float64{0, 1}}, {Scale: [2]float64{nan, 1}},
		{Ratio: [2]float64{-1, 1}}, {Ratio: [2]float64{1, math.Inf(1)}},
	} {
		if c.Validate() == nil {
			t.Errorf("%+v passed", c)
		}
	}
	for _, c := range []CenterCrop{{Resize: -1}, {Size: -1}, {Resize: 100}, {Size: 300, Resize: 299}} {
		if c.Validate() == nil {
			t.Errorf("%+v passed", c)
		}
	}
}

func TestDrawingAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		r := NewRand(1, 2, 3)
		RandomResizedCrop{}.Draw(&r, 500, 375)
		HorizontalFlip(&r, 0.5)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkDraw(b *testing.B) {
	b.ReportAllocs()
	sample := uint64(0)
	for b.Loop() {
		sample++
		r := NewRand(1, 2, sample)
		RandomResizedCrop{}.Draw(&r, 500, 375)
		HorizontalFlip(&r, 0.5)
	}
}
