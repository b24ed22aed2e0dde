package jpegenc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shardify/internal/peers"
)

// scene is a picture with all that makes codes differ: smooth colour, hard edges,
// noise, and saturated pixels.
func scene(w, h int, seed uint64) *image.RGBA {
	rng := rand.New(rand.NewPCG(seed, 0))
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			c := color.RGBA{uint8(128 + 100*math.Sin(float64(x)/17)), uint8(y * 255 / h), uint8((x + y) & 255), 255}
			switch {
			case (x/29+y/31)%3 == 0:
				n := rng.IntN(90)
				c.R, c.G = c.R/2+uint8(n), c.G/2+uint8(n)
			case (x/29+y/31)%5 == 1:
				c = color.RGBA{uint8(255 * (x / 3 & 1)), 0, uint8(255 * (y & 1)), 255}
			}
			img.SetRGBA(x, y, c)
		}
	}
	return img
}

type variant struct {
	Name  string
	Model Model
	Sub   Subsampling
	Options
}

func variants() []variant {
	var vs []variant
	for _, m := range []struct {
		name  string
		model Model
		sub   Subsampling
	}{
		{"444", YCbCr, S444}, {"422", YCbCr, S422}, {"420", YCbCr, S420}, {"grey", Gray, S444},
		{"cmyk", CMYK, S444}, {"ycck", YCCK, S444}, {"ycck420", YCCK, S420},
	} {
		for _, o := range []struct {
			name string
			Options
		}{
			{"standard", Options{}},
			{"optimized", Options{Optimize: true}},
			{"progressive", Options{Progressive: true}},
			{"restarts", Options{RestartInterval: 3}},
			{"restarts,progressive", Options{RestartInterval: 5, Progressive: true}},
		} {
			for _, q := range []int{1, 30, 75, 96, 100} {
				o.Quality = q
				vs = append(vs, variant{fmt.Sprintf("%s,%s,%d", m.name, o.name, q), m.model, m.sub, o.Options})
			}
		}
	}
	return vs
}

// Pillow's libjpeg-turbo must write the same bytes for the same pixels.
func TestSameBytesAsLibjpeg(t *testing.T) {
	python := peers.Python(t)
	type job struct {
		Name        string
		W, H        int
		Mode        string
		Quality     int
		Sub         string
		Optimize    bool
		Progressive bool
		Restart     int
	}
	dir := t.TempDir()
	var jobs []job
	want := map[string][]byte{}
	enc := new(Encoder)
	for _, size := range [][2]int{{1, 1}, {7, 19}, {64, 48}, {129, 97}, {256, 192}} {
		w, h := size[0], size[1]
		img := scene(w, h, uint64(w))
		raw := make([]byte, 0, w*h*4)
		for i := 0; i < len(img.Pix); i += 4 {
			raw = append(raw, img.Pix[i:i+3]...)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%dx%d.rgb", w, h)), raw, 0o666); err != nil {
			t.Fatal(err)
		}
		raw = raw[:0]
		for i := 0; i < len(img.Pix); i += 4 {
			c, m, y, k := color.RGBToCMYK(img.Pix[i], img.Pix[i+1], img.Pix[i+2])
			raw = append(raw, c, m, y, k)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%dx%d.cmyk", w, h)), raw, 0o666); err != nil {
			t.Fatal(err)
		}
		for _, v := range variants() {
			if v.Model == YCCK {
				continue // Pillow does not write it
			}
			if v.Sub != S444 && (w%16 != 0 || h%16 != 0) {
				continue // libjpeg repeats pixels over the edge, we repeat chroma samples
			}
			j := job{fmt.Sprintf("%dx%d,%s.jpg", w, h, v.Name), w, h, "RGB", v.Quality, v.Sub.String(),
				v.Optimize, v.Progressive, v.RestartInterval}
			switch v.Model {
			case Gray:
				j.Mode = "L"
			case CMYK:
				j.Mode = "CMYK"
			}
			data, err := enc.Append(nil, FromImage(img, v.Model, v.Sub), &v.Options)
			if err != nil {
				t.Fatal(err)
			}
			jobs, want[j.Name] = append(jobs, j), data
		}
	}
	list, err := json.Marshal(jobs)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-c", `
import json, os, sys
from PIL import Image
os.chdir(sys.argv[1])
for j in json.load(sys.stdin):
    size, base = (j["W"], j["H"]), "%dx%d." % (j["W"], j["H"])
    if j["Mode"] == "CMYK":
        im = Image.frombytes("CMYK", size, open(base + "cmyk", "rb").read())
    else:
        im = Image.frombytes("RGB", size, open(base + "rgb", "rb").read())
        if j["Mode"] == "L":
            im = im.convert("L")
    kw = dict(quality=j["Quality"], optimize=j["Optimize"], progressive=j["Progressive"])
    if j["Mode"] == "RGB":
        kw["subsampling"] = j["Sub"]
    if j["Restart"]:
        kw["restart_marker_blocks"] = j["Restart"]
    im.save(j["Name"], "JPEG", **kw)
`, dir)
	cmd.Stdin = bytes.NewReader(list)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, j := range jobs {
		data, err := os.ReadFile(filepath.Join(dir, j.Name))
		if err != nil {
			t.Fatal(err)
		}
		if ours := want[j.Name]; !bytes.Equal(ours, data) {
			at := 0
			for at < min(len(ours), len(data)) && ours[at] == data[at] {
				at++
			}
			t.Errorf("%s: %d bytes, libjpeg writes %d; they differ at %d: % x, libjpeg % x", j.Name, len(ours), len(data), at,
				ours[at:min(at+8, len(ours))], data[at:min(at+8, len(data))])
		}
	}
}

// What image/jpeg decodes is the picture, and the same for every way to code it.
func TestDecodes(t *testing.T) {
	img := scene(129, 97, 1)
	enc := new(Encoder)
	same := map[string]image.Image{}
	for _, v := range variants() {
		p := FromImage(img, v.Model, v.Sub)
		data, err := enc.Append(nil, p, &v.Options)
		if err != nil {
			t.Fatal(err)
		}
		if v.Progressive && v.RestartInterval > 0 && v.Sub != S444 {
			continue // image/jpeg miscounts the MCUs of its scans; Pillow reads them
		}
		got, err := jpeg.Decode(bytes.NewReader(data))
		if err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		group := fmt.Sprintf("%d,%v,%d", v.Model, v.Sub, v.Quality)
		if first := same[group]; first == nil {
			same[group] = got
		} else if !equalPixels(first, got) {
			t.Errorf("%s: other pixels than the baseline file of the same coefficients", v.Name)
		}
		if v.Model == YCCK && v.Sub != S444 {
			continue // no plane is what it was; the test with Pillow has the bounds
		}
		floor := map[int]float64{1: 8, 30: 16, 75: 19, 96: 26, 100: 40}[v.Quality]
		if db := psnr(p, got); db < floor {
			t.Errorf("%s: %.1f dB, below %v", v.Name, db, floor)
		}
	}
}

// Pillow does not write YCCK, but reads it as CMYK: the inks must be those that went
// in, and the same for every way to code them.
func TestPillowReadsYCCK(t *testing.T) {
	python := peers.Python(t)
	dir := t.TempDir()
	img := scene(129, 97, 1)
	enc := new(Encoder)
	for _, v := range variants() {
		if v.Model != YCCK {
			continue
		}
		data, err := enc.Append(nil, FromImage(img, v.Model, v.Sub), &v.Options)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, v.Name+".jpg"), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	var inks []byte
	for i := 0; i < len(img.Pix); i += 4 {
		c, m, y, k := color.RGBToCMYK(img.Pix[i], img.Pix[i+1], img.Pix[i+2])
		inks = append(inks, c, m, y, k)
	}
	cmd := exec.Command(python, "-c", `
import os, sys
import numpy as np
from PIL import Image
want = np.frombuffer(sys.stdin.buffer.read(), np.uint8).reshape(97, 129, 4).astype(int)
same = {}
for name in sorted(os.listdir(sys.argv[1])):
    im = Image.open(os.path.join(sys.argv[1], name))
    assert im.mode == "CMYK", (name, im.mode)
    got = np.asarray(im).astype(int)
    model, rest = name.split(",", 1)
    quality = int(rest.split(",")[-1][:-4])
    first = same.setdefault((model, quality), got)
    assert (first == got).all(), name
    error = np.abs(got - want).mean(axis=(0, 1))
    if quality == 100:
        limit = [2, 2, 2, 2] if model == "ycck" else [30, 30, 30, 2]
        assert (error <= limit).all(), (name, error)
print(len(same))
`, dir)
	cmd.Stdin = bytes.NewReader(inks)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := strings.TrimSpace(string(out)); got != "10" {
		t.Fatalf("compared %s groups, want 10", got)
	}
}

func equalPixels(a, b image.Image) bool {
	for y := a.Bounds().Min.Y; y < a.Bounds().Max.Y; y++ {
		for x := a.Bounds().Min.X; x < a.Bounds().Max.X; x++ {
			if a.At(x, y) != b.At(x, y) {
				return false
			}
		}
	}
	return a.Bounds() == b.Bounds()
}

// psnr compares the first plane of a picture, and for CMYK the ink.
func psnr(p *Picture, got image.Image) float64 {
	sum := 0.0
	for y := range p.Height {
		for x := range p.Width {
			want := float64(p.Planes[0].Pix[y*p.Planes[0].Stride+x])
			var have float64
			switch c := got.At(x, y).(type) {
			case color.Gray:
				have = float64(c.Y)
			case color.YCbCr:
				have = float64(c.Y)
			case color.CMYK:
				if have = 255 - float64(c.C); p.Model == YCCK {
					y, _, _ := toYCbCr(c.C, c.M, c.Y)
					have = float64(y)
				}
			}
			sum += (want - have) * (want - have)
		}
	}
	return 10 * math.Log10(255*255/(sum/float64(p.Width*p.Height)+1e-9))
}

func BenchmarkAppend(b *testing.B) {
	for _, v := range []variant{
		{"444,optimized,96", YCbCr, S444, Options{Quality: 96, Optimize: true}},
		{"420,standard,75", YCbCr, S420, Options{Quality: 75}},
	} {
		b.Run(v.Name, func(b *testing.B) {
			p := FromImage(scene(500, 375, 1), v.Model, v.Sub)
			enc := new(Encoder)
			var dst []byte
			var err error
			b.ReportAllocs()
			for b.Loop() {
				if dst, err = enc.Append(dst[:0], p, &v.Options); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(dst)))
		})
	}
}
