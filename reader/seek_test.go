package reader

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/jpeg"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	engine "shardify/imaging/jpeg"
	"shardify/imaging/transform"
	"shardify/index"
	"shardify/index/seek"
	"shardify/internal/peers"
	"shardify/sample"
	"shardify/store"
	"shardify/store/mem"
)

// view makes samples whose JPEGs have several rows and columns of MCUs.
func view(n, classes int) datasettest.Made {
	m := datasettest.Sample(n, classes)
	r := rand.New(rand.NewPCG(uint64(n), 11))
	img := image.NewYCbCr(image.Rect(0, 0, 70+r.IntN(60), 70+r.IntN(60)), image.YCbCrSubsampleRatio420)
	for i := range img.Y {
		img.Y[i] = byte(i*n) + byte(r.Uint32()%64)
	}
	for i := range img.Cb {
		img.Cb[i], img.Cr[i] = byte(i+n), byte(r.Uint32()%200)
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, nil); err != nil {
		panic(err)
	}
	for i := range m.Fields {
		if m.Fields[i].Name == "jpg" {
			m.Fields[i].Data = b.Bytes()
		}
	}
	return m
}

// seekable is a data set with seek points.
func seekable(t testing.TB, st store.Store, o datasettest.Options, every int) *dataset.Dataset {
	t.Helper()
	if o.Make == nil {
		o.Make = view
	}
	d := datasettest.Write(t, st, o)
	return withSeek(t, d, every)
}

func withSeek(t testing.TB, d *dataset.Dataset, every int) *dataset.Dataset {
	t.Helper()
	m, err := dataset.AddSeek(t.Context(), d, dataset.SeekOptions{Every: every}, func(b dataset.BadSample) { t.Errorf("bad: %v", b) })
	if err != nil {
		t.Fatal(err)
	}
	if d, err = dataset.New(d.Store(), m); err != nil {
		t.Fatal(err)
	}
	return d
}

// halves are random crops of up to half the image, so that rows above them are left out.
var halves = transform.List{transform.RandomResizedCrop{Size: transform.Size{20}, Scale: [2]float64{0.1, 0.5}}, transform.RandomHorizontalFlip{}}

// With seek points every batch is what it is without, in every container and order, with
// and without reading ahead; and all JPEGs are decoded with them.
func TestSeekSamePixels(t *testing.T) {
	for _, format := range []string{"tar", "tar.zst", "tar.gz", "tfrecord"} {
		for _, every := range []int{0, 2} {
			d := seekable(t, mem.New(), datasettest.Options{Format: format, Shards: 3, Samples: 17}, every)
			for _, mode := range modes {
				c := Config{BatchSize: 8, Transform: halves, Fields: []string{"cls"}, Shuffle: mode, Lanes: 2, Window: 30, Seed: 3, Workers: 3, Ends: EndsExact, Seek: SeekOff}
				off := newReader(t, d, c)
				want := epochOf(t, off, 1)
				if off.Stats().Seek != nil {
					t.Error("points are counted that were not wanted")
				}
				for _, ahead := range []int64{-1, 64 << 20} {
					c.Seek, c.ReadAhead = SeekAuto, ahead
					r := newReader(t, d, c)
					if got := epochOf(t, r, 1); !reflect.DeepEqual(got, want) {
						t.Errorf("%s, every %d, %s, ahead %d: other batches with seek points", format, every, mode, ahead)
					}
					st := r.Stats()
					if st.Seek == nil || st.Seek.Used != 51 || st.Seek.Refused != 0 || st.Seek.Files != 0 || st.Seek.Error != "" {
						t.Errorf("%s, every %d, %s, ahead %d: %+v", format, every, mode, ahead, st.Seek)
					}
				}
			}
		}
	}
}

// On photographs, in the crops of training: with points of rows, and within them.
func TestSeekPhotographs(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(peers.Photographs(t), "*"))
	if err != nil {
		t.Fatal(err)
	}
	photo := func(n, classes int) datasettest.Made {
		m := datasettest.Made{Label: int64(n % classes)}
		m.Key = fmt.Sprintf("%06d", n)
		data, err := os.ReadFile(names[n])
		if err != nil {
			t.Fatal(err)
		}
		m.Fields = []sample.Field{{Name: "jpg", Data: data}}
		return m
	}
	d := datasettest.Write(t, mem.New(), datasettest.Options{Shards: 2, Samples: len(names) / 2, Make: photo})
	c := Config{BatchSize: 32, Transform: transform.List{transform.RandomResizedCrop{Size: transform.Size{64}}}, Seed: 4, Ends: EndsExact}
	without := newReader(t, d, c)
	var want [2][]copied
	for epoch := range want {
		want[epoch] = epochOf(t, without, epoch)
	}
	for _, every := range []int{0, 8} {
		r := newReader(t, withSeek(t, d, every), c)
		for epoch := range want {
			if got := epochOf(t, r, epoch); !reflect.DeepEqual(got, want[epoch]) {
				t.Errorf("every %d: other pixels in epoch %d", every, epoch)
			}
		}
		// Those in several scans have no points, and no others are without.
		if st := r.Stats().Seek; st.Refused != 0 || st.Used < 2*int64(len(names))*9/10 {
			t.Errorf("every %d: %+v of %d photographs", every, st, len(names))
		}
	}
}

// fare reads an epoch with seek points and compares it with want.
func fare(t *testing.T, what string, d *dataset.Dataset, c Config, want []copied) SeekStats {
	t.Helper()
	var total SeekStats
	for _, ahead := range []int64{-1, 64 << 20} {
		c.ReadAhead = ahead
		r := newReader(t, d, c)
		if got := epochOf(t, r, 0); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: other batches", what)
		}
		st := r.Stats()
		if bad := r.BadSamples(); len(bad) > 0 {
			t.Errorf("%s: bad samples: %v", what, bad)
		}
		total = *st.Seek
		if (total.Refused > 0 || total.Files > 0) != (total.Error != "") {
			t.Errorf("%s: %+v", what, total)
		}
	}
	return total
}

// Whatever becomes of a side file, no pixel changes and no sample is lost: what cannot be
// used is counted, and the images are decoded without.
func TestSeekDamaged(t *testing.T) {
	st := mem.New()
	const samples = 12
	d := seekable(t, st, datasettest.Options{Shards: 2, Samples: samples}, 0)
	c := Config{BatchSize: 6, Transform: halves, Shuffle: ShuffleShards, Lanes: 1, Seed: 9}
	off := c
	off.Seek = SeekOff
	want := epochOf(t, newReader(t, d, off), 0)
	sh := &d.Manifest().Splits[0].Shards[0]
	name := sh.Seek.Name
	whole, err := store.ReadAll(t.Context(), st, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string, data []byte) {
		t.Helper()
		if err := store.WriteAll(t.Context(), st, name, data); err != nil {
			t.Fatal(err)
		}
	}
	tail := len(whole) - int(seek.TailBytes(samples))
	for at := 8; at < len(whole); at += 11 {
		bad := bytes.Clone(whole)
		bad[at] ^= 1 << (at % 8)
		put(name, bad)
		s := fare(t, fmt.Sprintf("a bit of byte %d", at), d, c, want)
		if at < tail && (s.Refused != 1 || s.Files != 0 || s.Used != 2*samples-1) || at >= tail && (s.Refused != 0 || s.Files != 1 || s.Used != samples) {
			t.Errorf("a bit of byte %d of %d, entries to %d: %+v", at, len(whole), tail, s)
		}
	}
	useless := func(what string) {
		t.Helper()
		if s := fare(t, what, d, c, want); s.Files != 1 || s.Used != samples || !strings.Contains(s.Error, name) {
			t.Errorf("%s: %+v", what, s)
		}
	}
	put(name, whole[:len(whole)-5])
	useless("cut")
	put(name, nil)
	useless("empty")
	if err := st.Remove(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	useless("gone")
	put(name, bytes.Repeat([]byte{0xff}, len(whole)))
	useless("other bytes")

	// A side file that is whole, and of another shard.
	other := d.Manifest().Splits[0].Shards[1]
	data, err := store.ReadAll(t.Context(), st, other.Seek.Name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	put(name, data)
	was := sh.Seek.Bytes
	sh.Seek.Bytes = int64(len(data))
	useless("another shard's")
	sh.Seek.Bytes = was

	// One that says that it is this shard's, with points of other images: they were
	// made before the images were replaced.
	var b bytes.Buffer
	w := seek.NewWriter(&b, 0)
	var decoder engine.Decoder
	for i := range samples {
		m := view(100+i, 5)
		file, _ := m.Field("jpg")
		points, err := decoder.MakeSeek(file, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Add(index.FieldChecksum(file), seek.Append(nil, file, points.Append(nil))); err != nil {
			t.Fatal(err)
		}
	}
	said, err := w.Close(&sh.File)
	if err != nil {
		t.Fatal(err)
	}
	put(name, b.Bytes())
	sh.Seek.Bytes = said.Bytes
	if s := fare(t, "stale", d, c, want); s.Refused != samples || s.Used != samples || !strings.Contains(s.Error, "of other bytes") {
		t.Errorf("stale: %+v", s)
	}
	sh.Seek.Bytes = was
	put(name, whole)
	if s := fare(t, "mended", d, c, want); s.Refused != 0 || s.Files != 0 || s.Used != 2*samples {
		t.Errorf("mended: %+v", s)
	}
}

// Also where checksums are not verified, points are held against the bytes themselves.
func TestSeekSkipChecksums(t *testing.T) {
	st := mem.New()
	d := seekable(t, st, datasettest.Options{Shards: 1, Samples: 6}, 0)
	sh := &d.Manifest().Splits[0].Shards[0]
	rows, err := d.Rows(t.Context(), sh)
	if err != nil {
		t.Fatal(err)
	}
	data, err := store.ReadAll(t.Context(), st, sh.Name, 1<<24)
	if err != nil {
		t.Fatal(err)
	}
	f := rows[2].Field("jpg")
	// In the quantisation table, so that it is still a JPEG.
	data[f.Offset+30] ^= 3
	if err := store.WriteAll(t.Context(), st, sh.Name, data); err != nil {
		t.Fatal(err)
	}
	c := Config{BatchSize: 6, Transform: halves, Shuffle: ShuffleNone, SkipChecksums: true, Seek: SeekOff}
	want := epochOf(t, newReader(t, d, c), 0)
	c.Seek = SeekAuto
	if s := fare(t, "other bytes", d, c, want); s.Refused != 1 || s.Used != 5 {
		t.Errorf("%+v", s)
	}
}

// Points take memory of the pool like what they come with, and points of a remote store
// come with what is read ahead. Where each would be a request of its own, they are left.
func TestSeekRequests(t *testing.T) {
	const samples = 300
	st := remote{mem.New()}
	d := seekable(t, st, datasettest.Options{Shards: 4, Samples: samples}, 0)
	for _, mode := range []Shuffle{ShuffleWindow, ShuffleGlobal} {
		for _, use := range []Seek{SeekOff, SeekAuto, SeekOn} {
			seen, rec := recordedSet(t, st, d)
			r := newReader(t, seen, Config{BatchSize: 16, Transform: halves, Shuffle: mode, Lanes: 2, Window: 600, Interleave: 2, Seed: 3, Seek: use})
			for b, err := range r.Epoch(context.Background(), 0) {
				if err != nil {
					t.Fatal(err)
				}
				b.Release()
			}
			requests, _ := rec.shardReads()
			s := r.Stats()
			used := int64(0)
			if s.Seek != nil {
				used = s.Seek.Used
			}
			t.Logf("%s, %s: %d reads of shards, %d reads in all, points of %d", mode, use, requests, s.Stages.Store.Items, used)
			want := r.split.Samples
			if use == SeekOff || use == SeekAuto && mode == ShuffleGlobal {
				want = 0
			}
			if used != want {
				t.Errorf("%s, %s: points of %d of %d images", mode, use, used, want)
			}
			if mode == ShuffleWindow && s.Stages.Store.Items > 2*int64(requests) {
				t.Errorf("%s, %s: %d reads for %d of shards", mode, use, s.Stages.Store.Items, requests)
			}
			if s.Memory.Peak > s.Memory.Limit {
				t.Errorf("%s, %s: %+v", mode, use, s.Memory)
			}
		}
	}
}

func TestSeekConfig(t *testing.T) {
	if err := (Config{Seek: "maybe"}).Validate(); err == nil || !strings.Contains(err.Error(), "seek") {
		t.Errorf("%v", err)
	}
}
