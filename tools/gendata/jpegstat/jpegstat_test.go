package jpegstat

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shardify/internal/peers"
	"shardify/tools/gendata/jpegenc"
)

// noisy is a picture with blocks of every kind: flat ones, noise, and between.
func noisy(w, h int, model jpegenc.Model, sub jpegenc.Subsampling) *jpegenc.Picture {
	rng := rand.New(rand.NewPCG(1, 2))
	p := jpegenc.NewPicture(w, h, model, sub)
	for i := range model.Planes() {
		pl := p.Planes[i]
		for j := range pl.Pix {
			x, y := j%pl.Stride, j/pl.Stride
			if reach := (x/8*7 + y/8*3) % 60; reach > 15 {
				pl.Pix[j] = uint8(100 + rng.IntN(reach*2))
			} else {
				pl.Pix[j] = uint8(90 + x/8)
			}
		}
	}
	return p
}

func encode(t testing.TB, p *jpegenc.Picture, o jpegenc.Options) []byte {
	t.Helper()
	data, err := new(jpegenc.Encoder).Append(nil, p, &o)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What Parse says of a file is how it was made.
func TestParseHeaders(t *testing.T) {
	for _, c := range []struct {
		kind  string
		model jpegenc.Model
		sub   jpegenc.Subsampling
		opt   jpegenc.Options
	}{
		{"4:4:4", jpegenc.YCbCr, jpegenc.S444, jpegenc.Options{Quality: 96, Optimize: true}},
		{"4:2:2", jpegenc.YCbCr, jpegenc.S422, jpegenc.Options{Quality: 1}},
		{"4:2:0", jpegenc.YCbCr, jpegenc.S420, jpegenc.Options{Quality: 50, RestartInterval: 2}},
		{"grey", jpegenc.Gray, jpegenc.S444, jpegenc.Options{Quality: 100, Segments: []jpegenc.Segment{jpegenc.Comment("12345678")}}},
		{"4 components", jpegenc.CMYK, jpegenc.S444, jpegenc.Options{Quality: 75}},
		{"4:4:4", jpegenc.YCbCr, jpegenc.S444, jpegenc.Options{Quality: 80, Progressive: true}},
	} {
		data := encode(t, noisy(53, 37, c.model, c.sub), c.opt)
		f, err := Parse(data)
		if err != nil {
			t.Errorf("%s %+v: %v", c.kind, c.opt, err)
			continue
		}
		headers := 18
		if c.model == jpegenc.CMYK {
			headers = 16
		}
		for _, s := range c.opt.Segments {
			headers += 4 + len(s.Data)
		}
		own := c.opt.Optimize || c.opt.Progressive
		if f.Bytes != len(data) || f.Width != 53 || f.Height != 37 || f.Kind != c.kind || f.Quality != c.opt.Quality ||
			!f.Exact || f.Progressive != c.opt.Progressive || f.OwnTables != own || f.Headers != headers {
			t.Errorf("%s %+v: %+v", c.kind, c.opt, f)
		}
	}
}

// The coefficients are counted as a transform by the textbook finds them. Rounding
// may differ in a few.
func TestCoefficientsAgainstDefinition(t *testing.T) {
	const w, h = 96, 64
	p := noisy(w, h, jpegenc.Gray, jpegenc.S444)
	for _, quality := range []int{30, 90} {
		f, err := Parse(encode(t, p, jpegenc.Options{Quality: quality}))
		if err != nil {
			t.Fatal(err)
		}
		luma, _ := jpegenc.Tables(quality)
		var want Coefficients
		for by := 0; by < h; by += 8 {
			for bx := 0; bx < w; bx += 8 {
				last, run := 0, 0
				for k := 1; k < 64; k++ {
					u, v := zigzag(k)
					sum := 0.0
					for y := range 8 {
						for x := range 8 {
							sum += float64(p.Planes[0].Pix[(by+y)*w+bx+x]) *
								math.Cos(float64((2*x+1)*u)*math.Pi/16) * math.Cos(float64((2*y+1)*v)*math.Pi/16)
						}
					}
					for _, i := range []int{u, v} {
						if i == 0 {
							sum *= math.Sqrt2 / 2
						}
					}
					q := int(math.Round(sum / 4 / float64(luma[k])))
					if q == 0 {
						run++
						continue
					}
					bits := 0
					for q = max(q, -q); q > 0; q >>= 1 {
						bits++
					}
					want.Nonzero[bits]++
					want.Runs[run]++
					last, run = k, 0
				}
				want.Blocks++
				want.Last[last]++
			}
		}
		got := f.Luma
		if got.Blocks != want.Blocks || got.AC() == 0 {
			t.Fatalf("%d blocks, want %d", got.Blocks, want.Blocks)
		}
		near := func(what string, got, want []int) {
			for i := range got {
				if d := got[i] - want[i]; max(d, -d) > 2+want[i]/50 {
					t.Errorf("quality %d: %s %d: %d, want %d", quality, what, i, got[i], want[i])
				}
			}
		}
		near("bits", got.Nonzero[:], want.Nonzero[:])
		near("run", got.Runs[:], want.Runs[:])
		near("last", got.Last[:], want.Last[:])
	}
}

// zigzag returns the horizontal and the vertical frequency at position k.
func zigzag(k int) (u, v int) {
	for d := 0; ; d++ {
		n := min(d, 7) - max(d-7, 0) + 1
		if k >= n {
			k -= n
			continue
		}
		a := max(d-7, 0) + k
		if d%2 == 0 {
			return a, d - a
		}
		return d - a, a
	}
}

// However the coefficients are coded, they are counted alike.
func TestSameCounts(t *testing.T) {
	p := noisy(129, 97, jpegenc.YCbCr, jpegenc.S420)
	first, err := Parse(encode(t, p, jpegenc.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []jpegenc.Options{{Optimize: true}, {RestartInterval: 1}, {RestartInterval: 7, Optimize: true}} {
		f, err := Parse(encode(t, p, o))
		if err != nil {
			t.Errorf("%+v: %v", o, err)
		}
		if f.Luma != first.Luma || f.Chroma != first.Chroma {
			t.Errorf("%+v: other counts", o)
		}
	}
	if blocks := 2 * 9 * 2 * 7; first.Luma.Blocks != blocks || first.Chroma.Blocks != blocks/2 {
		t.Errorf("%d and %d blocks, want %d and half of it", first.Luma.Blocks, first.Chroma.Blocks, blocks)
	}
}

// A file that ends early is an error, wherever it ends.
func TestCutAnywhere(t *testing.T) {
	for _, o := range []jpegenc.Options{{Quality: 60}, {Optimize: true, RestartInterval: 2}} {
		data := encode(t, noisy(40, 24, jpegenc.YCbCr, jpegenc.S422), o)
		for n := range len(data) - 2 { // EOI is not needed
			if _, err := Parse(data[:n:n]); !errors.Is(err, ErrFormat) {
				t.Fatalf("cut to %d of %d bytes: %v", n, len(data), err)
			}
		}
	}
}

func TestPhotographsParse(t *testing.T) {
	dir := peers.Photographs(t)
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMeasure(t *testing.T) {
	var files []File
	for i := range 101 {
		files = append(files, File{Bytes: 100 - i, Width: 2, Height: 2, Kind: "grey"})
	}
	m := Summarise(files).Measure("bytes")
	if m.Mean() != 50 || m.Percentile(0) != 0 || m.Percentile(25) != 25 || m.Percentile(99.5) != 99.5 || m.Percentile(100) != 100 {
		t.Errorf("mean %v, quartile %v, 99.5 %v, maximum %v", m.Mean(), m.Percentile(25), m.Percentile(99.5), m.Percentile(100))
	}
	one := Summarise(files[:1])
	if got := one.Measure("bytes").Percentile(50); got != 100 {
		t.Errorf("the median of one file is %v", got)
	}
	if got := one.Measure("luma: nonzero AC per block").Percentile(50); got != 0 {
		t.Errorf("the median of no values is %v", got)
	}
	if one.Share("grey") != 1 || one.Share("4:4:4") != 0 {
		t.Errorf("shares %v", one.Shares)
	}
	var out bytes.Buffer
	if err := Write(&out, []string{"a", "b"}, []*Summary{Summarise(files), one}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a: 101 files", "b: 1 files", "megapixels", "100.0 %"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q", want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for i, sub := range []jpegenc.Subsampling{jpegenc.S444, jpegenc.S422, jpegenc.S420} {
		f.Add(encode(f, noisy(24, 17, jpegenc.YCbCr, sub), jpegenc.Options{Optimize: i == 0, RestartInterval: i}))
	}
	f.Add(encode(f, noisy(9, 9, jpegenc.YCCK, jpegenc.S420), jpegenc.Options{Progressive: true}))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data)
		if err != nil && !errors.Is(err, ErrFormat) && !errors.Is(err, ErrUnsupported) {
			t.Fatalf("an error of no kind: %v", err)
		}
		// Every block takes four bits at least: two codes for each.
		for _, c := range []Coefficients{file.Luma, file.Chroma} {
			last, runs := 0, 0
			for k := range 64 {
				last += c.Last[k]
				runs += c.Runs[k]
			}
			if last != c.Blocks || c.Blocks > 4*len(data) || err == nil && runs != c.AC() {
				t.Fatalf("%+v of %d bytes", c, len(data))
			}
		}
	})
}
