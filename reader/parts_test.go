package reader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/imaging"
	engine "shardify/imaging/jpeg"
	"shardify/imaging/resize"
	"shardify/imaging/transform"
	"shardify/index"
	"shardify/index/seek"
	"shardify/internal/peers"
	"shardify/sample"
	"shardify/store"
	"shardify/store/mem"
)

// panorama makes samples whose JPEGs are so large that it pays to read a part of them:
// some 300 kB, of 40 rows of MCUs.
func panorama(n, classes int) datasettest.Made {
	m := datasettest.Sample(n, classes)
	data, _ := panoramas.LoadOrStore(n, sync.OnceValue(func() []byte {
		r := rand.New(rand.NewPCG(uint64(n), 12))
		img := image.NewYCbCr(image.Rect(0, 0, 600+r.IntN(60), 640+r.IntN(60)), image.YCbCrSubsampleRatio420)
		for i := range img.Y {
			img.Y[i] = byte(r.Uint32())
		}
		for i := range img.Cb {
			img.Cb[i], img.Cr[i] = byte(i+n), byte(r.Uint32())
		}
		var b bytes.Buffer
		if err := jpeg.Encode(&b, img, nil); err != nil {
			panic(err)
		}
		return b.Bytes()
	}))
	for i := range m.Fields {
		if m.Fields[i].Name == "jpg" {
			m.Fields[i].Data = data.(func() []byte)()
		}
	}
	return m
}

var panoramas sync.Map // of func() []byte, by their number

// slivers are random crops that take a fifth of an image at most.
var slivers = transform.List{transform.RandomResizedCrop{Size: transform.Size{20}, Scale: [2]float64{0.02, 0.2}}, transform.RandomHorizontalFlip{}}

// Of large files a part is read, and the batches are what they are without: in every
// order, from a disk and from afar, with reading ahead and without, with crops that lie
// anywhere, and where a resize reaches beyond its window.
func TestSeekParts(t *testing.T) {
	const samples = 20
	st := mem.New()
	plain := datasettest.Write(t, st, datasettest.Options{Shards: 2, Samples: samples / 2, Make: panorama})
	center := transform.List{transform.Resize{Size: transform.Size{100}}, transform.CenterCrop{Size: transform.Size{24}}}
	for name, list := range map[string]transform.List{"random": slivers, "center": center} {
		c := Config{BatchSize: 4, Transform: list, Fields: []string{"cls"}, Lanes: 2, Window: 10, Seed: 3, Workers: 2, Ends: EndsExact, Seek: SeekOff}
		for _, mode := range modes {
			c.Shuffle = mode
			off := newReader(t, plain, c)
			want := epochOf(t, off, 0)
			whole := off.Stats().Stages.Store.Bytes
			for _, every := range []int{0, 8} {
				d := withSeek(t, plain, every)
				for _, far := range []bool{false, true} {
					for _, ahead := range []int64{-1, 64 << 20} {
						what := fmt.Sprintf("%s, %s, every %d, far %v, ahead %d", name, mode, every, far, ahead)
						c := c
						c.Seek, c.ReadAhead = SeekAuto, ahead
						set := d
						if far {
							c.Seek = SeekOn
							set = at(t, remote{st}, d.Manifest())
						}
						r := newReader(t, set, c)
						if got := epochOf(t, r, 0); !reflect.DeepEqual(got, want) {
							t.Errorf("%s: other batches", what)
						}
						s := r.Stats()
						if s.Seek.Used != samples || s.Seek.Parts < samples*3/4 || s.Seek.Refused != 0 || s.Seek.Error != "" || s.Rereads != 0 {
							t.Errorf("%s: %+v, %d reread", what, s.Seek, s.Rereads)
						}
						if got := s.Stages.Store.Bytes; got > whole*3/4 {
							t.Errorf("%s: %d bytes read, whole files are %d", what, got, whole)
						}
					}
				}
			}
		}
	}
}

// at is a data set in another store that has the same.
func at(t testing.TB, st store.Store, m *index.Manifest) *dataset.Dataset {
	t.Helper()
	d, err := dataset.New(st, m)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Parts are read only where that is worth a request, and where nobody wants the rest.
func TestSeekPartsChosen(t *testing.T) {
	const samples = 8
	inner := mem.New()
	d := withSeek(t, datasettest.Write(t, inner, datasettest.Options{Shards: 1, Samples: samples, Make: panorama}), 0)
	far := at(t, remote{inner}, d.Manifest())
	base := Config{BatchSize: 4, Transform: slivers, Ends: EndsExact}
	for _, c := range []struct {
		what   string
		d      *dataset.Dataset
		change func(*Config)
		parts  bool
	}{
		{"a disk", d, func(*Config) {}, true},
		{"far, of files that are not large enough", far, func(*Config) {}, false},
		{"far, all the same", far, func(c *Config) { c.Seek = SeekOn }, true},
		{"all of the image", d, func(c *Config) {
			c.Transform = transform.List{transform.Resize{Size: transform.Size{20, 20}}}
		}, false},
		{"the file itself is wanted", d, func(c *Config) { c.Fields = []string{"jpg"} }, false},
		{"far, with a cache", far, func(c *Config) { c.Cache.Dir = t.TempDir() }, false},
	} {
		config := base
		c.change(&config)
		r := newReader(t, c.d, config)
		epochOf(t, r, 0)
		s := r.Stats().Seek
		if parts := s != nil && s.Parts > 0; parts != c.parts {
			t.Errorf("%s: %+v", c.what, s)
		}
	}
}

// A bit that is flipped anywhere in a shard: what is read of it is noticed, and the sample
// is bad, as it is where files are read whole; what is not read does no harm. Pixels are
// never others.
func TestSeekPartsDamaged(t *testing.T) {
	const samples = 4
	st := mem.New()
	d := withSeek(t, datasettest.Write(t, st, datasettest.Options{Shards: 1, Samples: samples, Make: panorama}), 0)
	c := Config{BatchSize: samples, Transform: slivers, Shuffle: ShuffleNone, Seed: 5, OnBad: OnBadSkip, MaxBad: -1, Workers: 2}
	r := newReader(t, d, c)
	want := epochOf(t, r, 0)
	if s := r.Stats().Seek; s.Parts != samples {
		t.Fatalf("%+v", s)
	}
	sh := &d.Manifest().Splits[0].Shards[0]
	rows, err := d.Rows(t.Context(), sh)
	if err != nil {
		t.Fatal(err)
	}
	data, err := store.ReadAll(t.Context(), st, sh.Name, 1<<26)
	if err != nil {
		t.Fatal(err)
	}
	f := rows[2].Field("jpg")
	noticed := 0
	for at := int64(0); at < f.Size; at += f.Size / 23 {
		bad := bytes.Clone(data)
		bad[f.Offset+at] ^= 1 << (at % 8)
		if err := store.WriteAll(t.Context(), st, sh.Name, bad); err != nil {
			t.Fatal(err)
		}
		r := newReader(t, d, c)
		got := epochOf(t, r, 0)
		list := r.BadSamples()
		if len(list) == 0 {
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("byte %d: other batches, and nobody knows", at)
			}
			continue
		}
		noticed++
		if len(list) != 1 || list[0].Key != rows[2].Key || len(got[0].keys) != samples-1 || !strings.Contains(list[0].Reason, "checksum") {
			t.Fatalf("byte %d: %+v", at, list)
		}
	}
	if noticed == 0 || noticed == 24 {
		t.Errorf("%d of 24 flipped bits were noticed", noticed)
	}
}

// Points with sound checksums that are wrong nevertheless, as no program of ours writes
// them: no sample is lost and nothing panics, as the whole file is read when the part does
// not do. (Who falsifies points together with their checksums can falsify colours, as with
// a shard and its index.)
func TestSeekPartsHostile(t *testing.T) {
	const samples = 6
	st := mem.New()
	d := withSeek(t, datasettest.Write(t, st, datasettest.Options{Shards: 1, Samples: samples, Make: panorama}), 0)
	c := Config{BatchSize: samples, Transform: slivers, Shuffle: ShuffleNone, Seed: 5, Workers: 2, Seek: SeekOff}
	want := epochOf(t, newReader(t, d, c), 0)
	sh := &d.Manifest().Splits[0].Shards[0]
	var decoder engine.Decoder
	r := rand.New(rand.NewPCG(4, 4))
	for round := range 8 {
		var b bytes.Buffer
		w := seek.NewWriter(&b, 0)
		for i := range samples {
			m := panorama(i, 5)
			file, _ := m.Field("jpg")
			s, err := decoder.MakeSeek(file, 0)
			if err != nil {
				t.Fatal(err)
			}
			points := s.Append(nil)
			if round == 0 { // another picture's
				o := panorama(i+1, 5)
				other, _ := o.Field("jpg")
				if s, err = decoder.MakeSeek(other, 0); err != nil {
					t.Fatal(err)
				}
				points = s.Append(nil)
			}
			for range round {
				points[8+r.IntN(len(points)-8)] ^= 1 << r.IntN(7)
			}
			if err := w.Add(index.FieldChecksum(file), seek.Append(nil, file, points)); err != nil {
				t.Fatal(err)
			}
		}
		said, err := w.Close(&sh.File)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.WriteAll(t.Context(), st, sh.Seek.Name, b.Bytes()); err != nil {
			t.Fatal(err)
		}
		sh.Seek.Bytes, sh.Seek.Checksum = said.Bytes, said.Checksum
		for _, use := range []Seek{SeekAuto, SeekOn} {
			c.Seek = use
			reader := newReader(t, d, c)
			if got := epochOf(t, reader, 0); round == 0 && !reflect.DeepEqual(got, want) {
				t.Errorf("%s: other pixels", use)
			}
			if s := reader.Stats(); len(reader.BadSamples()) > 0 || s.Seek.Used+s.Seek.Refused < samples || round == 0 && s.Seek.Refused == 0 {
				t.Errorf("round %d, %s: %+v, %+v", round, use, s.Seek, reader.BadSamples())
			}
		}
	}
}

// An image whose dimensions are not those of the index is a damaged sample, whether its
// crop is drawn before it is read or after.
func TestDimensionsOfIndex(t *testing.T) {
	for _, make := range []func(n, classes int) datasettest.Made{view, panorama} {
		st := mem.New()
		d := withSeek(t, datasettest.Write(t, st, datasettest.Options{Shards: 1, Samples: 3, Make: make}), 0)
		sh := &d.Manifest().Splits[0].Shards[0]
		rows, err := d.Rows(t.Context(), sh)
		if err != nil {
			t.Fatal(err)
		}
		rows[1].Width--
		var b bytes.Buffer
		w := index.NewRowWriter(&b)
		for _, row := range rows {
			if err := w.Write(row); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := store.WriteAll(t.Context(), st, sh.Index.Name, b.Bytes()); err != nil {
			t.Fatal(err)
		}
		sh.Index.Bytes, sh.Index.Checksum = int64(b.Len()), index.Sum(b.Bytes())
		for _, use := range []Seek{SeekAuto, SeekOff} {
			r := newReader(t, d, Config{BatchSize: 3, Transform: slivers, Shuffle: ShuffleNone, Seek: use})
			var bad *SampleError
			for b, err := range r.Epoch(context.Background(), 0) {
				if err == nil {
					b.Release()
				} else if !errors.As(err, &bad) {
					t.Fatal(err)
				}
			}
			if bad == nil || bad.Key != rows[1].Key || !strings.Contains(bad.Error(), "the index is not that of this file") {
				t.Errorf("%s: %v", use, bad)
			}
		}
	}
}

// What stands in for a damaged sample is decoded with its points.
func TestSeekStandIn(t *testing.T) {
	const samples = 6
	st := mem.New()
	d := seekable(t, st, datasettest.Options{Shards: 1, Samples: samples}, 0)
	sh := &d.Manifest().Splits[0].Shards[0]
	rows, err := d.Rows(t.Context(), sh)
	if err != nil {
		t.Fatal(err)
	}
	data, err := store.ReadAll(t.Context(), st, sh.Name, 1<<24)
	if err != nil {
		t.Fatal(err)
	}
	f := rows[3].Field("jpg")
	data[f.Offset+f.Size/2] ^= 1
	if err := store.WriteAll(t.Context(), st, sh.Name, data); err != nil {
		t.Fatal(err)
	}
	c := Config{BatchSize: samples, Transform: halves, Seed: 5, OnBad: OnBadSubstitute, MaxBad: -1, Seek: SeekOff}
	want := epochOf(t, newReader(t, d, c), 0)
	c.Seek = SeekAuto
	r := newReader(t, d, c)
	if got := epochOf(t, r, 0); !reflect.DeepEqual(got, want) {
		t.Error("other batches")
	}
	if s := r.Stats().Seek; s.Used != samples || s.Refused != 0 {
		t.Errorf("%+v, want %d used", s, samples)
	}
}

// narrow is a remote store that answers after a while, and whose line carries so many
// bytes a second.
type narrow struct {
	store.Store
	latency time.Duration
	rate    float64

	mu   sync.Mutex
	free time.Time // when the line has nothing to carry any more
}

func (*narrow) URL() string { return "test://narrow" }

func (s *narrow) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Store.Open(ctx, name)
	return &narrowObject{o, s}, err
}

type narrowObject struct {
	store.Object
	s *narrow
}

func (o *narrowObject) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	n, err := o.Object.ReadAt(ctx, p, off)
	s := o.s
	s.mu.Lock()
	s.free = later(s.free, time.Now().Add(s.latency)).Add(time.Duration(float64(n) / s.rate * 1e9))
	wait := time.Until(s.free)
	s.mu.Unlock()
	time.Sleep(wait)
	return n, err
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// BenchmarkSeekParts reads photographs from a store of 10 ms and 100 MB/s: as they are,
// and five times as large in each direction, some 1.7 MB.
func BenchmarkSeekParts(b *testing.B) {
	names, err := filepath.Glob(filepath.Join(peers.Photographs(b), "*"))
	if err != nil {
		b.Fatal(err)
	}
	small := func(n, classes int) datasettest.Made {
		data, err := os.ReadFile(names[n%len(names)])
		if err != nil {
			b.Fatal(err)
		}
		m := datasettest.Made{Label: int64(n % classes)}
		m.Key, m.Fields = fmt.Sprintf("%06d", n), []sample.Field{{Name: "jpg", Data: data}}
		return m
	}
	var d engine.Decoder
	large := func(n, classes int) datasettest.Made {
		m := small(n, classes)
		var img, big imaging.Image
		if err := d.Decode(m.Fields[0].Data, &img, engine.Options{}); err != nil {
			b.Fatal(err)
		}
		big.Reset(5*img.Width, 5*img.Height)
		task := resize.Task{Part: resize.Full(&img), Width: big.Width, Height: big.Height, SourceWidth: img.Width, SourceHeight: img.Height, Filter: resize.Bicubic}
		var z resize.Resizer
		if err := z.ResizeInto(resize.Target{Width: big.Width, Height: big.Height, Layout: LayoutNHWC, Uint8: big.Pix}, &img, task); err != nil {
			b.Fatal(err)
		}
		rgba := image.NewRGBA(image.Rect(0, 0, big.Width, big.Height))
		for i := range big.Width * big.Height {
			copy(rgba.Pix[4*i:], big.Pix[3*i:3*i+3])
		}
		var out bytes.Buffer
		if err := jpeg.Encode(&out, rgba, &jpeg.Options{Quality: 97}); err != nil {
			b.Fatal(err)
		}
		m.Fields[0].Data = out.Bytes()
		return m
	}
	train := transform.List{transform.RandomResizedCrop{Size: transform.Size{224}}}
	patch := transform.List{transform.RandomCrop{Size: transform.Size{224}, PadIfNeeded: true}}
	for _, c := range []struct {
		name    string
		make    func(n, classes int) datasettest.Made
		samples int
		list    transform.List
	}{{"photographs", small, 1000, train}, {"large", large, 120, train}, {"large,patch", large, 120, patch}} {
		st := mem.New()
		set := datasettest.Write(b, st, datasettest.Options{Shards: 4, Samples: c.samples / 4, Make: c.make})
		m := withSeek(b, set, 0).Manifest()
		for _, far := range []bool{false, true} {
			for _, mode := range []Shuffle{ShuffleGlobal, ShuffleWindow} {
				for _, use := range []Seek{SeekOff, SeekAuto, SeekOn} {
					if !far && mode != ShuffleGlobal {
						continue
					}
					b.Run(fmt.Sprintf("%s/far=%v/%s/seek=%s", c.name, far, mode, use), func(b *testing.B) {
						line := &narrow{Store: st, latency: 10 * time.Millisecond, rate: 100e6}
						d := at(b, st, m)
						if far {
							d = at(b, line, m)
						}
						r := newReader(b, d, Config{BatchSize: 40, Transform: c.list, Shuffle: mode, Seek: use})
						epoch := 0
						for b.Loop() {
							for batch, err := range r.Epoch(b.Context(), epoch) {
								if err != nil {
									b.Fatal(err)
								}
								batch.Release()
							}
							epoch++
						}
						images := float64(r.Samples()) * float64(b.N)
						s := r.Stats()
						b.ReportMetric(float64(s.Stages.Store.Bytes)/images/1000, "kB/image")
						b.ReportMetric(images/b.Elapsed().Seconds(), "img/s")
					})
				}
			}
		}
	}
}
