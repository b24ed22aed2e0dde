package dataset_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/imaging/jpeg"
	"shardify/index"
	"shardify/index/seek"
	"shardify/internal/peers"
	"shardify/sample"
	"shardify/shard/formats"
	"shardify/store"
	"shardify/store/fault"
	"shardify/store/mem"
)

// added runs AddSeek, opens the result and verifies it.
func added(t *testing.T, st store.Store, opts dataset.SeekOptions) *dataset.Dataset {
	t.Helper()
	d, err := dataset.Open(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dataset.AddSeek(t.Context(), d, opts, func(b dataset.BadSample) { t.Errorf("bad: %v", b) }); err != nil {
		t.Fatal(err)
	}
	if d, err = dataset.Open(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	intact(t, d)
	return d
}

func intact(t *testing.T, d *dataset.Dataset) {
	t.Helper()
	if _, err := dataset.Verify(t.Context(), d, dataset.VerifyOptions{}, func(p dataset.Problem) { t.Errorf("verify: %v", p) }); err != nil {
		t.Fatal(err)
	}
}

// A data set that was packed without seek points gets them: nothing else changes, every
// JPEG has those that the engine finds, and they are the ones that Index would have
// written for the same shards.
func TestAddSeek(t *testing.T) {
	for _, format := range formats.Names() {
		for _, every := range []int{0, 2} {
			t.Run(fmt.Sprint(format, "/", every), func(t *testing.T) {
				st, foreign := mem.New(), mem.New()
				datasettest.Write(t, st, datasettest.Options{Format: format, Splits: []string{"train", "val"}})
				before := map[string][]byte{}
				for _, name := range names(t, st) {
					before[name] = read(t, st, name)
					if _, err := formats.OfFile(name); err == nil {
						write(t, foreign, name, before[name])
					}
				}
				d := added(t, st, dataset.SeekOptions{Every: every})
				for name, data := range before {
					if name != index.ManifestName && !bytes.Equal(data, read(t, st, name)) {
						t.Errorf("%s was changed", name)
					}
				}
				shards, err := d.Shards("")
				if err != nil {
					t.Fatal(err)
				}
				var decoder jpeg.Decoder
				for _, sh := range shards {
					checkSeek(t, d, sh, &decoder, every)
				}
				if _, bad, err := indexAll(t, foreign, dataset.IndexOptions{JPEGSeek: seek.Spacing(every)}); err != nil || bad != nil {
					t.Fatal(err, bad)
				}
				for _, sh := range shards {
					if !bytes.Equal(read(t, foreign, sh.Seek.Name), read(t, st, sh.Seek.Name)) {
						t.Errorf("Index writes another %s", sh.Seek.Name)
					}
				}
				other, err := dataset.Open(t.Context(), foreign)
				if err != nil {
					t.Fatal(err)
				}
				intact(t, other)

				// Again, nothing is written but the manifest, which is the same.
				manifest := read(t, st, index.ManifestName)
				added(t, st, dataset.SeekOptions{Every: every})
				if !bytes.Equal(read(t, st, index.ManifestName), manifest) {
					t.Error("another manifest")
				}
			})
		}
	}
}

// checkSeek compares the side file of a shard with what the engine finds.
func checkSeek(t *testing.T, d *dataset.Dataset, sh *index.Shard, decoder *jpeg.Decoder, every int) {
	t.Helper()
	if sh.Seek == nil || sh.Seek.Every != every || sh.Seek.Samples != sh.Samples {
		t.Fatalf("shard %s: the manifest says %+v", sh.Name, sh.Seek)
	}
	rows, err := d.Rows(t.Context(), sh)
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.OpenSeek(t.Context(), sh)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := f.Table(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		field := rows[i].Field("jpg")
		data, err := d.ReadField(t.Context(), sh, &rows[i], field)
		if err != nil {
			t.Fatal(err)
		}
		found, err := decoder.MakeSeek(data, every)
		if err != nil {
			t.Fatal(err)
		}
		at, size := table.Extent(i)
		entry := make([]byte, size)
		if _, err := f.ReadAt(t.Context(), entry, at); err != nil {
			t.Fatal(err)
		}
		has, err := seek.ParseEntry(entry, field.CRC32C, field.Size)
		if err != nil || !bytes.Equal(has.Points, found.Append(nil)) {
			t.Fatalf("sample %q: %v, %d bytes of points", rows[i].Key, err, len(has.Points))
		}
	}
}

// Verify finds a bit that is flipped anywhere in a side file, and a file that is cut, gone
// or another shard's. No sample is lost by it, and AddSeek mends it.
func TestVerifySeek(t *testing.T) {
	st := mem.New()
	datasettest.Write(t, st, datasettest.Options{Shards: 2})
	d := added(t, st, dataset.SeekOptions{})
	shards, err := d.Shards("")
	if err != nil {
		t.Fatal(err)
	}
	name := shards[0].Seek.Name
	whole := read(t, st, name)
	found := func(what string, kind dataset.Kind) {
		t.Helper()
		var problems []dataset.Problem
		r, err := dataset.Verify(t.Context(), d, dataset.VerifyOptions{}, func(p dataset.Problem) { problems = append(problems, p) })
		if err != nil {
			t.Fatal(err)
		}
		if len(problems) != 1 || problems[0].Kind != kind || problems[0].File != name || problems[0].Samples != 0 || r.Problems != 1 {
			t.Fatalf("%s: %v, want one of kind %s about %s", what, problems, kind, name)
		}
	}
	for at := 0; at < len(whole); at += 7 {
		bad := bytes.Clone(whole)
		bad[at] ^= 1 << (at % 8)
		write(t, st, name, bad)
		found(fmt.Sprintf("a bit of byte %d", at), dataset.KindChecksum)
	}
	added(t, st, dataset.SeekOptions{})
	if !bytes.Equal(read(t, st, name), whole) {
		t.Error("not mended")
	}
	write(t, st, name, whole[:len(whole)-1])
	found("cut", dataset.KindSize)
	if err := st.Remove(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	found("gone", dataset.KindMissing)
	added(t, st, dataset.SeekOptions{})

	// A manifest that speaks of another shard's file, as whole as that is.
	data, err := store.ReadAll(t.Context(), st, index.ManifestName, index.MaxManifest)
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.DecodeManifest(data)
	if err != nil {
		t.Fatal(err)
	}
	a, b := &m.Splits[0].Shards[0], &m.Splits[0].Shards[1]
	a.Seek, b.Seek = b.Seek, a.Seek
	if data, err = m.Encode(); err != nil {
		t.Fatal(err)
	}
	write(t, st, index.ManifestName, data)
	if d, err = dataset.Open(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	var problems []dataset.Problem
	if _, err := dataset.Verify(t.Context(), d, dataset.VerifyOptions{}, func(p dataset.Problem) { problems = append(problems, p) }); err != nil {
		t.Fatal(err)
	}
	if len(problems) != 2 || !errors.Is(problems[0].Err, seek.ErrStale) || !errors.Is(problems[1].Err, seek.ErrStale) {
		t.Errorf("swapped: %v", problems)
	}
}

// Update makes points for shards that are new or have none, and takes away those of
// shards that have changed, or are gone.
func TestIndexUpdateSeek(t *testing.T) {
	st := mem.New()
	datasettest.Write(t, st, datasettest.Options{Shards: 3})
	for _, name := range names(t, st) {
		if _, err := formats.OfFile(name); err != nil {
			if err := st.Remove(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	opts := dataset.IndexOptions{}
	without, _, err := indexAll(t, st, opts)
	if err != nil {
		t.Fatal(err)
	}
	if without.Splits[0].Shards[0].Seek != nil {
		t.Fatal("seek points that nobody asked for")
	}
	opts.Update, opts.JPEGSeek = true, "row"
	with, _, err := indexAll(t, st, opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, sh := range with.Splits[0].Shards {
		if sh.Seek == nil || sh.Seek.Samples != sh.Samples {
			t.Errorf("%s: %+v", sh.Name, sh.Seek)
		}
	}
	gone := with.Splits[0].Shards[1]
	if err := st.Remove(t.Context(), gone.Name); err != nil {
		t.Fatal(err)
	}
	opts.JPEGSeek = ""
	left, _, err := indexAll(t, st, opts)
	if err != nil {
		t.Fatal(err)
	}
	if len(left.Splits[0].Shards) != 2 || left.Splits[0].Shards[0].Seek == nil {
		t.Errorf("without the option: %+v", left.Splits[0].Shards)
	}
	for _, name := range []string{gone.Seek.Name, gone.Index.Name} {
		if slices.Contains(names(t, st), name) {
			t.Errorf("%s of a shard that is gone is there", name)
		}
	}
	d, err := dataset.Open(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	intact(t, d)

	// A file of that name which is not ours stays.
	write(t, st, gone.Seek.Name, []byte("my diary"))
	write(t, st, gone.Name, read(t, st, left.Splits[0].Shards[0].Name))
	opts.JPEGSeek = "row"
	if _, _, err := indexAll(t, st, opts); !errors.Is(err, dataset.ErrInTheWay) || !strings.Contains(err.Error(), gone.Seek.Name) {
		t.Errorf("a diary in the way: %v", err)
	}
}

// A damaged sample has no points; it is reported, and the others have theirs.
func TestAddSeekDamaged(t *testing.T) {
	st := mem.New()
	d := datasettest.Write(t, st, datasettest.Options{Shards: 1})
	sh := &d.Manifest().Splits[0].Shards[0]
	rows, err := d.Rows(t.Context(), sh)
	if err != nil {
		t.Fatal(err)
	}
	data := read(t, st, sh.Name)
	data[rows[1].Field("jpg").Offset+100] ^= 1
	write(t, st, sh.Name, data)
	var bad []dataset.BadSample
	m, err := dataset.AddSeek(t.Context(), d, dataset.SeekOptions{}, func(b dataset.BadSample) { bad = append(bad, b) })
	if err != nil {
		t.Fatal(err)
	}
	if len(bad) != 1 || bad[0].Key != rows[1].Key || bad[0].Field != "jpg" {
		t.Errorf("reported: %v", bad)
	}
	if got := m.Splits[0].Shards[0].Seek; got == nil || got.Samples != sh.Samples-1 {
		t.Errorf("%+v", got)
	}
}

func TestSeekOptions(t *testing.T) {
	o := dataset.SeekOptions{Every: -1, Workers: -2}
	err := o.Validate()
	if err == nil || !strings.Contains(err.Error(), "every: -1") || !strings.Contains(err.Error(), "workers: -2") {
		t.Errorf("%v", err)
	}
}

// The points of images are found by whoever has time, and lie in the file in the order of
// the samples, with any number of goroutines.
func TestAddSeekOrder(t *testing.T) {
	st := mem.New()
	d := datasettest.Write(t, st, datasettest.Options{Shards: 2, Samples: 270})
	want := map[string][]byte{}
	for _, workers := range []int{1, 7} {
		if _, err := dataset.AddSeek(t.Context(), d, dataset.SeekOptions{Workers: workers, Every: 1}, func(b dataset.BadSample) { t.Errorf("bad: %v", b) }); err != nil {
			t.Fatal(err)
		}
		shards, err := d.Shards("")
		if err != nil {
			t.Fatal(err)
		}
		for _, sh := range shards {
			name := dataset.SeekName(sh.Name)
			data := read(t, st, name)
			if want[name] == nil {
				want[name] = data
			} else if !bytes.Equal(data, want[name]) {
				t.Errorf("%d workers: another %s", workers, name)
			}
			if err := st.Remove(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// An AddSeek that is cancelled leaves neither a side file nor goroutines that go on.
func TestAddSeekCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	// No side file is there before all is over: so it is cancelled before it is done.
	st := mem.New()
	datasettest.Write(t, st, datasettest.Options{Shards: 2, Samples: 300})
	d, err := dataset.Open(ctx, fault.New(st, fault.Config{Kinds: []fault.Kind{fault.Commit}, Before: func(op fault.Op) error {
		if !strings.HasSuffix(op.Name, ".seek") {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}}))
	if err != nil {
		t.Fatal(err)
	}
	progress := new(dataset.Progress)
	done := make(chan error, 1)
	go func() {
		_, err := dataset.AddSeek(ctx, d, dataset.SeekOptions{Progress: progress}, func(dataset.BadSample) {})
		done <- err
	}()
	for progress.Samples.Load() < 20 && len(done) == 0 {
		runtime.Gosched()
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := dataset.Open(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	added(t, st, dataset.SeekOptions{})
}

// BenchmarkAddSeek gives one shard of photographs seek points.
func BenchmarkAddSeek(b *testing.B) {
	names, err := filepath.Glob(filepath.Join(peers.Photographs(b), "*"))
	if err != nil {
		b.Fatal(err)
	}
	photo := func(n, classes int) datasettest.Made {
		data, err := os.ReadFile(names[n%len(names)])
		if err != nil {
			b.Fatal(err)
		}
		m := datasettest.Made{Label: int64(n % classes)}
		m.Key, m.Fields = fmt.Sprintf("%06d", n), []sample.Field{{Name: "jpg", Data: data}}
		return m
	}
	samples := 4 * len(names)
	d := datasettest.Write(b, mem.New(), datasettest.Options{Shards: 1, Samples: samples, Make: photo})
	for b.Loop() {
		if _, err := dataset.AddSeek(b.Context(), d, dataset.SeekOptions{}, func(bad dataset.BadSample) { b.Error(bad) }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(samples)*float64(b.N)/b.Elapsed().Seconds(), "img/s")
}

// A side file that is whole, and of no use, is made anew: one of a form that is read no
// more, and one of what the shard was before.
func TestAddSeekUseless(t *testing.T) {
	st := mem.New()
	datasettest.Write(t, st, datasettest.Options{Shards: 1, Samples: 4})
	d := added(t, st, dataset.SeekOptions{})
	sh := &d.Manifest().Splits[0].Shards[0]
	want := read(t, st, sh.Seek.Name)
	for _, at := range []int{36, 16} { // in the footer: the version, the shard's checksum
		data := bytes.Clone(want)
		foot := data[len(data)-56:]
		foot[at] = 1
		binary.LittleEndian.PutUint32(foot[44:], index.FieldChecksum(foot[:44]))
		write(t, st, sh.Seek.Name, data)
		m := *d.Manifest()
		m.Splits[0].Shards[0].Seek.Checksum = index.Sum(data)
		old, err := dataset.New(st, &m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dataset.AddSeek(t.Context(), old, dataset.SeekOptions{}, func(b dataset.BadSample) { t.Errorf("bad: %v", b) }); err != nil {
			t.Fatal(err)
		}
		if got := read(t, st, sh.Seek.Name); !bytes.Equal(got, want) {
			t.Errorf("byte %d of the footer changed: the file stays", at)
		}
	}
}
