package reader

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/color"
	stdjpeg "image/jpeg"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/jpeg"
	"shardify/imaging/transform"
	"shardify/sample"
)

// waves is a JPEG of a size.
func waves(t testing.TB, w, h int) []byte {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(w), uint64(h)))
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			m.SetNRGBA(x, y, color.NRGBA{uint8(x*3 + y), uint8(y*5 + random.IntN(20)), uint8(x * y >> 3), 255})
		}
	}
	var b bytes.Buffer
	if err := stdjpeg.Encode(&b, m, &stdjpeg.Options{Quality: 80}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// ofFiles is a data set of these files, 5 times 8 of them.
func ofFiles(t testing.TB, files [][]byte) *dataset.Dataset {
	return small(t, datasettest.Options{Make: func(n, classes int) datasettest.Made {
		m := datasettest.Sample(n, classes)
		m.Fields, m.Paths = []sample.Field{{Name: "jpg", Data: files[n%len(files)]}}, nil
		return m
	}})
}

// poisonous is a decoder of JPEG that panics over a file.
type poisonous struct {
	jpegDecoder
	poison []byte
}

func (d *poisonous) DecodeQueue(q jpeg.Queue) {
	d.jpegDecoder.DecodeQueue(&poisonousQueue{q, d.poison})
}

type poisonousQueue struct {
	jpeg.Queue
	poison []byte
}

func (q *poisonousQueue) Next() *jpeg.Job {
	j := q.Queue.Next()
	if j != nil && bytes.Equal(j.Data, q.poison) {
		panic("index out of range")
	}
	return j
}

// A file over which the decoder panics costs its sample, and not those that are decoded
// together with it.
func TestDecoderPanics(t *testing.T) {
	var files [][]byte
	for i := range 40 {
		files = append(files, waves(t, 60+i, 50))
	}
	d := ofFiles(t, files)
	config := Config{BatchSize: 10, Transform: crop, Workers: 2}
	want := epochOf(t, newReader(t, d, config), 0)
	for _, c := range []Config{{OnBad: OnBadSkip}, {OnBad: OnBadSubstitute}, {OnBad: OnBadSkip, Workers: 1}} {
		config.OnBad = c.OnBad
		r := newReader(t, d, config)
		r.newDecoder = func() jpegDecoder { return &poisonous{newJPEGDecoder(), files[17]} }
		bad, number := 0, 0
		for b, err := range r.Epoch(context.Background(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range b.Bad() {
				if bad++; e.Sample != 17 || e.Field != "jpg" || !strings.Contains(e.Error(), "decoder panicked: index out of range") {
					t.Error(e)
				}
			}
			each := int64(3 * 24 * 24)
			pix := b.Images().Data
			for k, n := range b.Samples() {
				at := slices.Index(want[number].samples, n)
				if at < 0 { // it stands in for the damaged one
					continue
				}
				if !bytes.Equal(pix[int64(k)*each:][:each], want[number].images[int64(at)*each:][:each]) {
					t.Errorf("sample %d has another picture", n)
				}
			}
			number++
			b.Release()
		}
		if bad != 1 {
			t.Errorf("%s: %d damaged samples", c.OnBad, bad)
		}
	}
}

// Of damaged JPEGs, those that end early are refused, and of all others the pixels that
// Pillow shows come.
func TestDamagedJPEG(t *testing.T) {
	good := waves(t, 100, 80)
	scan := bytes.Index(good, []byte{0xff, 0xda}) + 14
	half := scan + (len(good)-scan)/2
	broken := bytes.Clone(good)
	copy(broken[half:], "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b")
	for name, c := range map[string]struct {
		data    []byte
		refused bool
	}{
		"whole":         {good, false},
		"cut":           {good[:half], true},
		"no end marker": {good[:len(good)-2], true},
		"bad codes":     {broken, false},
		// libjpeg says "premature end of data segment", and fills up with grey.
		"short": {append(bytes.Clone(good[:half]), 0xff, 0xd9), false},
		"rest":  {slices.Insert(bytes.Clone(good), len(good)-2, 1, 2, 3), false},
	} {
		d := ofFiles(t, [][]byte{good, good, c.data, good})
		r := newReader(t, d, Config{BatchSize: 4, Shuffle: ShuffleNone, OnBad: OnBadSkip, MaxBad: -1, Transform: transform.List{transform.CenterCrop{Size: transform.Size{60}}}})
		for b, err := range r.Epoch(context.Background(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if refused := len(b.Bad()) == 1 && b.Bad()[0].Sample%4 == 2 && errors.Is(b.Bad()[0], imaging.ErrTruncated); refused != c.refused || !refused && len(b.Bad()) > 0 {
				t.Errorf("%s: %v", name, b.Bad())
			}
			if !c.refused {
				var m imaging.Image
				if err := imaging.Std.Decode(c.data, &m, imaging.DecodeOptions{}); err != nil {
					t.Fatal(err)
				}
				got := b.Images().Data[2*3*60*60:]
				for y := range 60 {
					for x := range 60 {
						for ch := range 3 {
							if got[(ch*60+y)*60+x] != m.Pix[(10+y)*m.Stride+3*(20+x)+ch] {
								t.Fatalf("%s: pixel (%d, %d) is not the whole image's", name, x, y)
							}
						}
					}
				}
			}
			b.Release()
		}
	}
}

// In steady state no image costs an allocation: an epoch of five times as many images has
// as many as a short one, but for those of its batches.
func TestDecodeAllocations(t *testing.T) {
	var files [][]byte
	for i := range 40 {
		files = append(files, waves(t, 60+10*i, 250-5*i))
	}
	set := func(samples int) *dataset.Dataset {
		return small(t, datasettest.Options{Samples: samples / 4, Make: func(n, classes int) datasettest.Made {
			m := datasettest.Sample(n, classes)
			m.Fields, m.Paths = []sample.Field{{Name: "jpg", Data: files[n%len(files)]}}, nil
			return m
		}})
	}
	short, long := set(200), set(1000)
	for name, c := range map[string]Config{
		"crop":      {Transform: crop},
		"normalize": {DType: DTypeFloat32, Transform: append(slices.Clone(crop), transform.ImageNet)},
		"jitter":    {Transform: append(slices.Clone(crop), transform.ColorJitter{Brightness: augment.GainOf(0.4)}, transform.GaussianBlur{KernelSize: [2]int{3, 3}})},
	} {
		c.BatchSize, c.Workers = 40, 2
		// A pass has workers of its own, whose memory is new.
		mallocs := func(d *dataset.Dataset) (n float64, samples int64) {
			r := newReader(t, d, c)
			read := func() {
				for b, err := range r.Epoch(context.Background(), 0) {
					if err != nil {
						t.Fatal(err)
					}
					b.Release()
				}
			}
			read()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range 3 {
				read()
			}
			runtime.ReadMemStats(&after)
			return float64(after.Mallocs-before.Mallocs) / 3, r.Samples()
		}
		few, n := mallocs(short)
		many, m := mallocs(long)
		if each := (many - few) / float64(m-n); each > 0.5 {
			t.Errorf("%s: %.2f allocations a sample: %v for %d, %v for %d", name, each, few, n, many, m)
		}
	}
}
