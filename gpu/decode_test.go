//go:build linux && (amd64 || arm64) && !nogpu

package gpu

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"shardify/gpu/gputest"
	"shardify/gpu/internal/cuda"
	"shardify/imaging"
	"shardify/imaging/augment"
	"shardify/imaging/jpeg"
	"shardify/imaging/transform"
	"shardify/reader"
)

// jpegCard is a GPU with nvJPEG: a real one under `make test-gpu`, else the double.
type jpegCard struct {
	*Device
	real                                 bool
	fail, live, left, set, know, pending func(args ...uintptr) uintptr
}

func newJPEGCard(t testing.TB, settings ...any) *jpegCard {
	t.Helper()
	if os.Getenv("SHARDIFY_GPU") == "require" {
		return &jpegCard{Device: device(t), real: true}
	}
	path := gputest.CudaWithNVJPEG(t)
	driver, err := cuda.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		t.Fatal(err)
	}
	x := &jpegCard{}
	for name, to := range map[string]*func(args ...uintptr) uintptr{"fake_fail": &x.fail, "fake_live": &x.live, "fake_nvjpeg_live": &x.left, "fake_set": &x.set, "fake_jpeg": &x.know, "fake_pending": &x.pending} {
		addr, err := purego.Dlsym(handle, name)
		if err != nil {
			t.Fatal(err)
		}
		*to = func(args ...uintptr) uintptr { r, _, _ := purego.SyscallN(addr, args...); return r }
	}
	for i := 0; i < len(settings); i += 2 {
		name := append([]byte(settings[i].(string)), 0)
		x.set(uintptr(unsafe.Pointer(&name[0])), uintptr(settings[i+1].(int)))
	}
	if x.Device, err = open(driver, 0); err != nil {
		t.Fatal(err)
	}
	x.nvjpeg = []string{path}
	return x
}

// knows tells the double of files, as the CPU shows them; bad: nvJPEG gives up on them.
func (x *jpegCard) knows(t testing.TB, entries []entry) {
	if x.real {
		return
	}
	for i := range entries {
		e := &entries[i]
		rgb := &e.image
		bad := uintptr(0)
		if e.err != nil || e.refused {
			bad = 1
			if rgb.Width == 0 {
				rgb = &imaging.Image{Pix: []byte{0}, Width: 1, Height: 1}
			}
		}
		if rgb.Stride != 3*rgb.Width && bad == 0 {
			t.Fatalf("%s: rows of %d bytes", e.name, rgb.Stride)
		}
		x.know(uintptr(unsafe.Pointer(&e.data[0])), uintptr(len(e.data)), uintptr(rgb.Width), uintptr(rgb.Height), uintptr(unsafe.Pointer(&rgb.Pix[0])), bad)
	}
}

// fails makes the n-th call from now of a function of the double fail.
func (x *jpegCard) fails(name string, n, code int) {
	text := append([]byte(name), 0)
	x.fail(uintptr(unsafe.Pointer(&text[0])), uintptr(n), uintptr(code))
}

// clean closes the GPU, and fails the test where something is left.
func (x *jpegCard) clean(t *testing.T) {
	t.Helper()
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	if x.real {
		return
	}
	for kind := range 7 {
		if n := x.live(uintptr(kind)); n != 0 {
			t.Errorf("%d of the driver's things of kind %d are left", n, kind)
		}
	}
	for kind := range 4 {
		if n := int32(x.left(uintptr(kind))); n != 0 {
			t.Errorf("%d of nvJPEG's things of kind %d are left", n, kind)
		}
	}
}

// entry is a file of a data set.
type entry struct {
	name, field string
	data        []byte
	// image is what the CPU makes of it, and err what it says.
	image imaging.Image
	err   error
	// baseline: nvJPEG is to be asked. refused: it gives up on it.
	baseline, refused bool
}

// corpus has the files of imaging/jpeg's tests, of every kind that there is, damaged ones
// too, and files of other formats.
func corpus(t testing.TB, archives ...string) []entry {
	t.Helper()
	var all []entry
	for _, archive := range archives {
		z, err := zip.OpenReader(filepath.Join("..", "imaging", "jpeg", "testdata", archive))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			if filepath.Ext(f.Name) != ".jpg" && archive != "damaged.zip" || f.Name == "sums" {
				continue
			}
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(r)
			if err := errors.Join(err, r.Close()); err != nil {
				t.Fatal(err)
			}
			if len(data) > 0 {
				all = append(all, entry{name: f.Name, field: "jpg", data: data})
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range all {
		e := &all[i]
		e.err = imaging.Std.Decode(e.data, &e.image, imaging.DecodeOptions{})
		h, err := jpeg.ReadHeader(e.data)
		_, unsound := imaging.Probe(e.data)
		e.baseline = err == nil && unsound == nil && h.Coding == "baseline" && h.Bits == 8 && h.OneScan && (h.Model == jpeg.YCbCr || h.Model == jpeg.Gray)
	}
	return all
}

// ppm is a file of another format.
func ppm(width, height int) entry {
	e := entry{name: "other", field: "ppm", data: fmt.Appendf(nil, "P6\n%d %d\n255\n", width, height)}
	for i := range 3 * width * height {
		e.data = append(e.data, byte(i*5))
	}
	e.err = imaging.Std.Decode(e.data, &e.image, imaging.DecodeOptions{})
	return e
}

// write makes a tar of them.
func write(t testing.TB, entries []entry) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i, e := range entries {
		for _, f := range []struct {
			ext  string
			data []byte
		}{{e.field, e.data}, {"cls", fmt.Append(nil, i)}} {
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%04d.%s", i, f.ext), Mode: 0o644, Size: int64(len(f.data))}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(f.data); err != nil {
				t.Fatal(err)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "data.tar")
	if err := errors.Join(w.Close(), os.WriteFile(path, b.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
	return path
}

// fileBatches opens a stream of batches of files.
func fileBatches(t testing.TB, path string, slabs reader.Slabs) *reader.Stream {
	t.Helper()
	r, err := reader.OpenStream(t.Context(), []string{path}, reader.Config{
		BatchSize: 16, Ends: reader.EndsExact, Seed: 3, Slabs: slabs, Decode: reader.DecodeNone, Fields: []string{"jpg", "ppm"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func epoch(r *reader.Stream) func(context.Context) iter.Seq2[*reader.Batch, error] {
	return func(ctx context.Context) iter.Seq2[*reader.Batch, error] { return r.Epoch(ctx, 0) }
}

// seen is a batch as it lay on the GPU.
type seen struct {
	labels, samples []int64
	keys            []string
	images          [][]byte
	sizes           []int64
	bad             []*reader.SampleError
	decoded         Decoded
}

// pass decodes all batches, and downloads them.
func (x *jpegCard) pass(t testing.TB, batches func(context.Context) iter.Seq2[*reader.Batch, error], c DecodeConfig) (all []seen, err error) {
	t.Helper()
	stream, err := x.NewStream()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, x.DestroyStream(stream)) }()
	c.Keys = true
	for b, err := range Decode(t.Context(), x.Device, batches, c) {
		if err != nil {
			return all, err
		}
		if err := b.Wait(stream); err != nil {
			return all, errors.Join(err, b.Release(stream))
		}
		s := seen{samples: b.Samples, keys: b.Keys, bad: b.Bad, decoded: b.Decoded}
		get := func(name string) []byte {
			of, ok := b.Tensor(name)
			if !ok {
				t.Fatalf("no tensor %q", name)
			}
			data := make([]byte, of.Bytes)
			if err = errors.Join(err, x.Download(data, of.Data, stream), x.Synchronize(stream)); err != nil {
				return nil
			}
			return data
		}
		numbers := func(data []byte) []int64 {
			return slices.Clone(reader.Tensor{DType: reader.DTypeInt64, Shape: []int{len(data) / 8}, Data: data}.Int64())
		}
		pixels, offsets := get("image"), get("image_offsets")
		if sizes, labels := get("image_sizes"), get("label"); err == nil {
			s.sizes, s.labels = numbers(sizes), numbers(labels)
			at := numbers(offsets)
			image, _ := b.Tensor("image")
			ragged, fault := Ragged(image, at, s.sizes)
			images, other := b.Images()
			if fault != nil || other != nil || !slices.Equal(ragged, images) || len(b.Random) != len(images) {
				t.Errorf("images %v, %v, by the tensors %v, %v", images, other, ragged, fault)
			}
			for i := range len(at) - 1 {
				s.images = append(s.images, pixels[at[i]:at[i+1]])
			}
			all = append(all, s)
		}
		if err := errors.Join(err, b.Release(stream)); err != nil {
			return all, err
		}
	}
	return all, nil
}

// by says who has made an image of the double, and whether it is right.
func (e *entry) by(got []byte, region augment.Region) (card, ok bool) {
	if region == (augment.Region{}) {
		region = augment.Region{Width: e.image.Width, Height: e.image.Height}
	}
	var want []byte
	for y := range region.Height {
		want = append(want, e.image.Pix[(region.Y+y)*e.image.Stride+3*region.X:][:3*region.Width]...)
	}
	if bytes.Equal(got, want) {
		return false, true
	}
	for i := range want {
		want[i] ^= 0xa5
	}
	return true, bytes.Equal(got, want)
}

// difference is the largest and the mean difference of bytes.
func difference(a, b []byte) (most int, mean float64) {
	for i := range a {
		d := int(a[i]) - int(b[i])
		most = max(most, d, -d)
		mean += float64(max(d, -d)) / float64(len(a))
	}
	return most, mean
}

// Files of every kind come out as the CPU shows them, in the reader's order, whoever decodes
// them; nvJPEG gets those baseline files that its backend takes, and no others; what it
// gives up on is the CPU's. Everything is freed.
func TestDecode(t *testing.T) {
	entries := corpus(t, "corpus.zip", "more.zip")
	entries = slices.DeleteFunc(entries, func(e entry) bool { return e.err != nil })
	entries = append(entries, ppm(21, 13), ppm(300, 2))
	baseline := 0
	for i := range entries {
		e := &entries[i]
		if e.baseline {
			baseline++
		}
		e.refused = e.baseline && i%17 == 0
	}
	if len(entries) < 150 || baseline < 80 || baseline > len(entries)-30 {
		t.Fatalf("%d files, %d for nvJPEG", len(entries), baseline)
	}
	path := write(t, entries)
	var order []int64
	for b, err := range fileBatches(t, path, nil).Epoch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		order = append(order, b.Labels()...)
		b.Release()
	}
	for _, c := range []DecodeConfig{
		{Share: -1}, {Share: 1}, {Share: 1, Backend: BackendGPUHybrid}, {Share: 0.5, Backend: BackendHybrid, Threads: 3}, {}, {PrefetchConfig: PrefetchConfig{Depth: 1}, Pinned: 1},
	} {
		t.Run(fmt.Sprintf("%v %s %d", c.Share, c.Backend, c.Depth), func(t *testing.T) {
			x := newJPEGCard(t, "FAKE_NVJPEG_ODD", 1)
			x.knows(t, entries)
			pinned := x.Pinned(PinnedConfig{})
			r := fileBatches(t, path, pinned)
			all, err := x.pass(t, epoch(r), c)
			if err != nil {
				t.Fatal(err)
			}
			at, cards, differ, sum, most := 0, 0, 0, 0., 0
			for n, s := range all {
				var card, refused int
				for i, got := range s.images {
					e := &entries[s.labels[i]]
					if s.labels[i] != order[at] || s.keys[i] != fmt.Sprintf("%04d", s.labels[i]) || s.sizes[2*i] != int64(e.image.Height) || s.sizes[2*i+1] != int64(e.image.Width) {
						t.Fatalf("batch %d: image %d is %s of %d x %d", n, i, s.keys[i], s.sizes[2*i+1], s.sizes[2*i])
					}
					at++
					if x.real {
						of, mean := difference(got, e.image.Pix)
						if mean > 3 {
							t.Errorf("%s differs by %d, %.2f in the mean", e.name, of, mean)
						}
						if mean > 0 {
							differ, sum, most = differ+1, sum+mean, max(most, of)
						}
						continue
					}
					is, ok := e.by(got, augment.Region{})
					able := e.baseline && (c.Backend != BackendAuto || len(e.data)%2 == 0)
					if !ok || is && (!able || e.refused) || c.Share == 1 && able && !e.refused && !is || c.Share == -1 && is {
						t.Errorf("batch %d: %s: by the card: %v, right: %v", n, e.name, is, ok)
					}
					if is {
						card++
					}
					if able && e.refused {
						refused++
					}
				}
				if d := s.decoded; !x.real && (d.Card != card || d.CPU != len(s.images)-card || c.Share == 1 && d.Refused != refused || d.Refused > refused || len(s.bad) > 0) {
					t.Errorf("batch %d: %+v, %d of the card's, %d refused, bad %v", n, d, card, refused, s.bad)
				}
				cards += s.decoded.Card
			}
			if x.real {
				t.Logf("%d of %d images by the card; %d differ from the CPU's, by %.3f in the mean and %d at most", cards, at, differ, sum/float64(max(1, differ)), most)
			}
			if at != len(order) || (cards > 0) != (c.Share >= 0) {
				t.Errorf("%d images, %d by the card", at, cards)
			}
			if err := errors.Join(r.Close(), pinned.Close()); err != nil {
				t.Error(err)
			}
			x.clean(t)
		})
	}
}

// What is damaged goes the way of OnBad, and is the same whoever decodes.
func TestDecodeDamaged(t *testing.T) {
	entries := corpus(t, "damaged.zip", "corpus.zip")
	entries = append(entries, entry{name: "nothing", field: "txt", data: []byte("no image"), err: errors.New("none")}, entry{name: "bytes", field: "jpg", data: []byte("no image"), err: errors.New("none")})
	bad := 0
	for i := range entries {
		// Of what is damaged inside, nvJPEG's word is not ours: there it gives up on it.
		entries[i].refused = i%5 == 0
		if entries[i].err != nil {
			bad++
		}
	}
	if bad < 20 || bad > len(entries)/2 {
		t.Fatalf("%d of %d are damaged", bad, len(entries))
	}
	path := write(t, entries)
	for _, onBad := range []reader.OnBad{reader.OnBadFail, reader.OnBadSkip, reader.OnBadSubstitute} {
		var first []seen
		for _, share := range []float64{-1, 1, 0} {
			t.Run(fmt.Sprintf("%s %v", onBad, share), func(t *testing.T) {
				x := newJPEGCard(t)
				x.knows(t, entries)
				r := fileBatches(t, path, nil)
				all, err := x.pass(t, epoch(r), DecodeConfig{OnBad: onBad, MaxBad: -1, Share: share})
				var one *reader.SampleError
				if onBad == reader.OnBadFail {
					if !errors.As(err, &one) || one.Key == "" || !strings.HasSuffix(one.Shard, "data.tar") || len(r.BadSamples()) != 1 {
						t.Error(err)
					}
				} else if err != nil {
					t.Fatal(err)
				}
				if first == nil {
					first = all
				}
				found := 0
				for n, s := range all {
					if w := first[n]; !slices.Equal(s.labels, w.labels) || !slices.Equal(s.samples, w.samples) || !slices.Equal(s.keys, w.keys) || !slices.Equal(s.sizes, w.sizes) || len(s.bad) != len(w.bad) {
						t.Errorf("batch %d: %+v, on the CPU %+v", n, s.labels, w.labels)
					}
					for i, got := range s.images {
						e := &entries[s.labels[i]]
						if _, ok := e.by(got, augment.Region{}); e.err != nil || !ok && !x.real || s.keys[i] != fmt.Sprintf("%04d", s.labels[i]) {
							t.Errorf("batch %d: %s is wrong", n, e.name)
						}
					}
					for k, b := range s.bad {
						found++
						var number int
						if _, err := fmt.Sscanf(b.Key, "%d", &number); err != nil || entries[number].err == nil || b.Error() != first[n].bad[k].Error() {
							t.Errorf("batch %d: %v, on the CPU %v", n, b, first[n].bad[k])
						}
						if e := &entries[number]; e.field == "jpg" && (b.Field != "jpg" || b.Offset < 0) {
							t.Errorf("%v, field %q at %d", b, b.Field, b.Offset)
						}
						if onBad == reader.OnBadSkip && slices.Contains(s.keys, b.Key) {
							t.Errorf("%s is there", b.Key)
						}
					}
					if onBad == reader.OnBadSubstitute && n < len(all)-1 && len(s.images) != 16 {
						t.Errorf("batch %d has %d images", n, len(s.images))
					}
				}
				if onBad != reader.OnBadFail && (found != bad || len(r.BadSamples()) != bad) {
					t.Errorf("%d of %d are reported, %d by the reader", found, bad, len(r.BadSamples()))
				}
				x.clean(t)
			})
		}
	}
	x := newJPEGCard(t)
	x.knows(t, entries)
	for most, want := range map[int]string{0: "more than 16 (max_bad)", 3: "more than 3 (max_bad)"} {
		r := fileBatches(t, path, nil)
		if _, err := x.pass(t, epoch(r), DecodeConfig{OnBad: reader.OnBadSkip, MaxBad: most, Share: -1}); !errors.Is(err, reader.ErrTooManyBad) || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
	x.clean(t)
}

// Through a Pipeline, files become the batches that a reader would make of them alone, byte
// for byte, where the CPU decodes them.
func TestDecodePipeline(t *testing.T) {
	path := photographShard(t, 7)
	c := reader.Config{
		BatchSize: 3, Ends: reader.EndsExact, Seed: 5, DType: reader.DTypeFloat32,
		Transform: transform.List{transform.RandomResizedCrop{Size: transform.Size{48}}, transform.RandomHorizontalFlip{}, transform.ImageNet},
	}
	want, _ := made(t, path, c)
	host, config, err := Split(c)
	if err != nil {
		t.Fatal(err)
	}
	host.Decode, host.Collate, host.DType, host.Layout, host.Fields = reader.DecodeNone, "", "", 0, []string{"jpg"}
	r, err := reader.OpenStream(t.Context(), []string{path}, host)
	if err != nil {
		t.Fatal(err)
	}
	d := device(t)
	p, err := d.NewPipeline(config)
	if err != nil {
		t.Fatal(err)
	}
	k := 0
	for epoch := range 2 {
		begin := func(ctx context.Context) iter.Seq2[*reader.Batch, error] { return r.Epoch(ctx, epoch) }
		for b, err := range Decode(t.Context(), d, begin, DecodeConfig{Share: -1}) {
			if err != nil {
				t.Fatal(err)
			}
			images, err := b.Images()
			if err != nil {
				t.Fatal(err)
			}
			dst, err := d.Alloc("out", p.DType(), p.Shape(len(images))...)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, dst.Bytes)
			if err := errors.Join(b.Wait(0), p.Apply(dst, images, b.Random, nil, 0), b.Release(0), d.Download(got, dst.Data, 0), d.Synchronize(0), d.Free(dst)); err != nil {
				t.Fatal(err)
			}
			if k >= len(want) || !bytes.Equal(got, want[k]) {
				t.Errorf("epoch %d: batch %d is not the reader's", epoch, b.Number)
			}
			k++
		}
	}
	if k != len(want) || k == 0 {
		t.Errorf("%d batches, want %d", k, len(want))
	}
	if err := errors.Join(p.Close(), r.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

// Regions are what the whole image has there; the engines decode them, and the CPU where
// there are none.
func TestDecodeRegions(t *testing.T) {
	entries := slices.DeleteFunc(corpus(t, "corpus.zip"), func(e entry) bool { return e.err != nil })
	path := write(t, entries)
	region := func(_ *reader.Batch, i, width, height int) augment.Region {
		r := augment.NewRand(1, 0, uint64(i))
		return augment.RandomResizedCrop{}.Draw(&r, width, height)
	}
	for _, backend := range []Backend{BackendHardware, BackendGPUHybrid} {
		x := newJPEGCard(t)
		x.knows(t, entries)
		r := fileBatches(t, path, nil)
		all, err := x.pass(t, epoch(r), DecodeConfig{Region: region, Share: 1, Backend: backend})
		if err != nil {
			t.Fatal(err)
		}
		cards := 0
		for n, s := range all {
			for i, got := range s.images {
				e := &entries[s.labels[i]]
				card, ok := e.by(got, region(nil, i, e.image.Width, e.image.Height))
				if !ok && !x.real {
					t.Errorf("%s: batch %d: %s is wrong", backend, n, e.name)
				}
				if card {
					cards++
				}
			}
		}
		if (cards > 50) != (backend == BackendHardware) && !x.real {
			t.Errorf("%s: %d by the card", backend, cards)
		}
		wrong := func(*reader.Batch, int, int, int) augment.Region { return augment.Region{X: 1, Width: 1000, Height: 1} }
		if _, err := x.pass(t, epoch(r), DecodeConfig{Region: wrong}); err == nil || !strings.Contains(err.Error(), "region: 1000 x 1 at (1, 0)") {
			t.Error(err)
		}
		x.clean(t)
	}
}

// Images are turned upright on request, by the CPU.
func TestDecodeOrients(t *testing.T) {
	entries := slices.DeleteFunc(corpus(t, "corpus.zip"), func(e entry) bool { return e.err != nil || !strings.HasPrefix(e.name, "exif") })
	turned := 0
	for i := range entries {
		e := &entries[i]
		if h, err := jpeg.ReadHeader(e.data); err == nil && h.Orientation != 1 {
			turned++
		}
		if err := imaging.Std.Decode(e.data, &e.image, imaging.DecodeOptions{Orient: true}); err != nil {
			t.Fatal(err)
		}
	}
	if turned < 5 {
		t.Fatalf("%d files to turn", turned)
	}
	x := newJPEGCard(t)
	x.knows(t, entries)
	all, err := x.pass(t, epoch(fileBatches(t, write(t, entries), nil)), DecodeConfig{Orient: true, Share: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		for i, got := range s.images {
			e := &entries[s.labels[i]]
			if _, ok := e.by(got, augment.Region{}); !ok && !x.real || s.sizes[2*i] != int64(e.image.Height) {
				t.Errorf("%s is wrong", e.name)
			}
		}
	}
	x.clean(t)
}

// What does not go is said before anything is decoded, with what to do; memory is bounded.
func TestDecodeRefuses(t *testing.T) {
	entries := slices.DeleteFunc(corpus(t, "corpus.zip"), func(e entry) bool { return e.err != nil })[:40]
	path := write(t, entries)
	x := newJPEGCard(t)
	if x.real {
		t.Skip("SKIPPED LOUDLY: the double's settings are what this is about; make test has the test")
	}
	x.knows(t, entries)
	large := 0
	for _, e := range entries {
		large = max(large, e.image.Width*e.image.Height)
	}
	tight := func(c reader.Config) func(context.Context) iter.Seq2[*reader.Batch, error] {
		c.BatchSize, c.Ends = 16, reader.EndsExact
		r, err := reader.OpenStream(t.Context(), []string{path}, c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		return epoch(r)
	}
	files := tight(reader.Config{Decode: reader.DecodeNone, Fields: []string{"jpg"}})
	for _, c := range []struct {
		name    string
		batches func(context.Context) iter.Seq2[*reader.Batch, error]
		config  DecodeConfig
		is      error
		want    string
	}{
		{"memory", files, DecodeConfig{Memory: 30_000}, ErrOutOfMemory, "and the bound for one of 3 batches is 10000: raise memory, or lower depth or batch_size"},
		{"scratch", files, DecodeConfig{Scratch: 100, Share: 1}, ErrOutOfMemory, "and the bound is 100"},
		{"too large", files, DecodeConfig{MaxPixels: int64(large) - 1, MaxBad: -1}, imaging.ErrTooLarge, "the bound (max_pixels) is"},
		{"no such field", files, DecodeConfig{Field: "png"}, nil, `it has no image: no field ["png"]`},
		{"decoded already", tight(reader.Config{Collate: reader.CollateRagged}), DecodeConfig{Field: "jpg"}, nil, "it has no image"},
		{"ragged", tight(reader.Config{Decode: reader.DecodeNone, Fields: []string{"jpg"}, Tensors: []reader.TensorSpec{{Field: "cls", Kind: reader.KindText, Collate: reader.CollateRagged}}}),
			DecodeConfig{OnBad: reader.OnBadSkip}, nil, `has no row for each sample, so that damaged images cannot be left out: collate it by "pad", or set on_bad to "fail"`},
		{"everything", files, DecodeConfig{PrefetchConfig: PrefetchConfig{Depth: -1}, Share: 2, Threads: -1, OnBad: "hope", MaxBad: -2, Memory: -1, Backend: "soft"}, nil,
			"depth: -1; want 1 to 1024, or 0 for 3\nbackend: \"soft\"; want hardware, gpu_hybrid, hybrid, or none for the first of these that the GPU has\nshare: 2;"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := x.pass(t, c.batches, c.config)
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
				t.Error(err)
			}
		})
	}
	// Without nvJPEG, and without engines.
	found := x.nvjpeg
	x.nvjpeg = []string{"/nowhere/libnvjpeg.so.12"}
	if _, err := x.pass(t, files, DecodeConfig{}); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "pip install") || !strings.Contains(err.Error(), "set share to -1") {
		t.Error(err)
	}
	if _, err := x.pass(t, files, DecodeConfig{Share: -1}); err != nil {
		t.Error(err)
	}
	x.nvjpeg = found
	x.fails("nvjpegCreateExV2", 1, 7)
	if _, err := x.pass(t, files, DecodeConfig{Backend: BackendHardware}); err == nil || !strings.Contains(err.Error(), "backend hardware: GPU 0 (Fake GPU A): nvjpegCreateExV2: NVJPEG_STATUS_ARCH_MISMATCH (7)") {
		t.Error(err)
	}
	x.fails("nvjpegCreateExV2", 1, 7)
	if _, err := x.pass(t, files, DecodeConfig{}); err != nil {
		t.Error(err)
	}
	x.clean(t)
}

// Every function of the driver and of nvJPEG fails, at its first calls: the pass ends with
// that error, and what can be freed is.
func TestDecodeCallsFail(t *testing.T) {
	entries := slices.DeleteFunc(corpus(t, "corpus.zip"), func(e entry) bool { return e.err != nil })[:60]
	path := write(t, entries)
	for _, name := range []string{
		"cuMemAlloc_v2", "cuMemHostAlloc", "cuMemcpyHtoDAsync_v2", "cuStreamCreate", "cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuEventElapsedTime", "cuEventSynchronize",
		"nvjpegCreateExV2", "nvjpegJpegStreamCreate", "nvjpegJpegStateCreate", "nvjpegJpegStreamParseHeader", "nvjpegDecodeParamsCreate", "nvjpegDecodeParamsSetOutputFormat",
		"nvjpegDecodeParamsSetROI", "nvjpegDecodeBatchedSupportedEx", "nvjpegDecodeBatchedInitialize", "nvjpegDecodeBatched",
	} {
		for call := 1; call <= 5; call++ {
			x := newJPEGCard(t)
			if x.real {
				t.Skip("SKIPPED LOUDLY: only the double fails on request; make test has the test")
			}
			x.knows(t, entries)
			pinned := x.Pinned(PinnedConfig{})
			r := fileBatches(t, path, pinned)
			x.fails(name, call, 1)
			_, err := x.pass(t, epoch(r), DecodeConfig{Backend: BackendGPUHybrid, PrefetchConfig: PrefetchConfig{Depth: 2}})
			if failed := x.pending() == 0; failed && (err == nil || !strings.Contains(err.Error(), name)) {
				t.Errorf("%s, call %d: %v", name, call, err)
			}
			x.fails("", 0, 0)
			if err := errors.Join(r.Close(), pinned.Close()); err != nil {
				t.Errorf("%s, call %d: %v", name, call, err)
			}
			// The card is as it was.
			if call == 1 {
				if _, err := x.pass(t, epoch(fileBatches(t, path, nil)), DecodeConfig{}); err != nil {
					t.Errorf("after %s: %v", name, err)
				}
			}
			x.clean(t)
		}
	}
}
