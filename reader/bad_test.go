package reader

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/imaging"
	"shardify/index"
	"shardify/sample"
	"shardify/shard"
	"shardify/store"
	"shardify/store/cache"
	"shardify/store/fault"
	"shardify/store/file"
	"shardify/store/retry"
)

// damage flips a bit in the image of each of the samples, whose shards have per each.
func damage(t *testing.T, d *dataset.Dataset, per int64, samples ...int64) {
	t.Helper()
	for _, n := range samples {
		sh := &d.Manifest().Splits[0].Shards[n/per]
		rows, err := d.Rows(context.Background(), sh)
		if err != nil {
			t.Fatal(err)
		}
		f := rows[n%per].Field("jpg")
		flipByte(t, d.Store(), sh.Name, f.Offset+f.Size/2)
	}
}

// slot is one sample of a batch.
type slot struct {
	label  int64
	key    string
	image  string
	fields string
}

// slots maps the samples of an epoch to what the batches have of them.
func slots(all []copied, side int) (byNumber map[int64]slot, order [][]int64) {
	byNumber = map[int64]slot{}
	for _, b := range all {
		for i, n := range b.samples {
			s := slot{label: b.labels[i], key: b.keys[i]}
			if len(b.images) > 0 {
				s.image = string(b.images[i*3*side*side:][:3*side*side])
			}
			for _, f := range b.fields {
				if rest, ok := strings.CutPrefix(f, fmt.Sprint(i, " ")); ok {
					s.fields += rest + "\n"
				}
			}
			byNumber[n] = s
		}
		order = append(order, b.samples)
	}
	return byNumber, order
}

// Another sample of the same shard stands where a damaged one would, whole: key, label,
// fields and the pixels it has in that epoch. All the rest is as if nothing had been
// damaged; and it is the same sample in another world, with other workers, and after
// a resume.
func TestSubstitute(t *testing.T) {
	for _, format := range []string{"tar", "tar.zst", "tar.gz"} {
		for _, decode := range []Decode{DecodeImage, DecodeNone} {
			if format != "tar" && decode == DecodeNone {
				continue
			}
			t.Run(format+"/"+string(decode), func(t *testing.T) {
				c := Config{BatchSize: 8, Shuffle: ShuffleWindow, Lanes: 4, Window: 16, Seed: 2, Decode: decode, OnBad: OnBadSubstitute, Ends: EndsExact}
				if decode == DecodeImage {
					c.Transform, c.Fields = crop, []string{"cls", "seg.png"}
				}
				whole := small(t, datasettest.Options{})
				want, order := slots(epochOf(t, newReader(t, whole, c), 1), 24)
				d := small(t, datasettest.Options{})
				if format == "tar" {
					damage(t, d, 10, 3, 14, 16, 39)
				} else {
					// A flipped bit would damage a whole frame. These have no image.
					d = small(t, datasettest.Options{Format: format, Make: func(n, classes int) datasettest.Made {
						m := datasettest.Sample(n, classes)
						if n == 3 || n == 14 || n == 16 || n == 39 {
							m.Fields, m.Paths = m.Fields[:1], nil
						}
						return m
					}})
				}
				r := newReader(t, d, c)
				all := epochOf(t, r, 1)
				got, places := slots(all, 24)
				stands := map[int64]int64{}
				for b, list := range order {
					if len(places[b]) != len(list) {
						t.Fatalf("batch %d has %d samples of %d", b, len(places[b]), len(list))
					}
					for i, n := range list {
						m := places[b][i]
						if got[m] != want[m] {
							t.Errorf("sample %d, in the place of %d, is not what it should be", m, n)
						}
						if m != n {
							stands[n] = m
						}
					}
				}
				if len(stands) != 4 {
					t.Errorf("substitutes are %v", stands)
				}
				for n, m := range stands {
					if m/10 != n/10 || !slices.Contains([]int64{3, 14, 16, 39}, n) || slices.Contains([]int64{3, 14, 16, 39}, m) {
						t.Errorf("%d stands in for %d", m, n)
					}
				}
				if st := r.Stats(); st.Substituted != 4 || st.Skipped != 0 || st.Samples != 40 {
					t.Errorf("%+v", st)
				}
				report := r.BadSamples()
				if len(report) != 4 || report[1].Sample != 14 || report[1].Key != datasettest.Sample(14, 5).Key || report[1].Field == "jpg" != (format == "tar") ||
					report[1].Times < 1 || report[1].Reason == "" || !strings.Contains(report[1].Shard, "train-000001") {
					t.Errorf("%+v", report)
				}
				if data, err := json.Marshal(report); err != nil || !bytes.Contains(data, []byte(`"times":`)) {
					t.Errorf("%s, %v", data, err)
				}

				c.Workers = 7
				if again := epochOf(t, newReader(t, d, c), 1); !reflect.DeepEqual(again, all) {
					t.Error("other batches with other workers")
				}
				s, err := r.State(1, 2)
				if err != nil {
					t.Fatal(err)
				}
				if tail, _ := tailOf(t, newReader(t, d, c), s); !reflect.DeepEqual(tail, all[2:]) {
					t.Error("other batches after a resume")
				}
				c.World, c.BatchSize = 4, 2
				var worlds []int64
				for rank := range 4 {
					c.Rank = rank
					for _, b := range epochOf(t, newReader(t, d, c), 1) {
						worlds = append(worlds, b.samples...)
					}
				}
				var one []int64
				for _, list := range places {
					one = append(one, list...)
				}
				slices.Sort(worlds)
				slices.Sort(one)
				if !slices.Equal(worlds, one) {
					t.Errorf("in a world of 4:\n got %v\nwant %v", worlds, one)
				}
			})
		}
	}
}

// In a TFRecord, where fields are parsed out of their record.
func TestSubstituteTFRecord(t *testing.T) {
	d := small(t, datasettest.Options{Format: "tfrecord"})
	want, _ := slots(epochOf(t, newReader(t, d, Config{BatchSize: 8, Decode: DecodeNone}), 0), 0)
	damage(t, d, 10, 14, 15)
	r := newReader(t, d, Config{BatchSize: 8, Shuffle: ShuffleNone, Decode: DecodeNone, OnBad: OnBadSubstitute})
	all := epochOf(t, r, 0)
	got, places := slots(all, 0)
	if m := places[1][6]; m == 14 || m/10 != 1 || got[m] != want[m] || len(places[1]) != 8 || all[1].bad != 2 {
		t.Errorf("%v", places[1])
	}
}

// Where nothing whole is found to put there, the pass ends and says so.
func TestSubstituteWithNothing(t *testing.T) {
	d := small(t, datasettest.Options{Shards: 2, Samples: 3})
	damage(t, d, 3, 0, 1, 2, 3, 4, 5)
	one := small(t, datasettest.Options{Shards: 1, Samples: 1})
	damage(t, one, 1, 0)
	for want, d := range map[string]*dataset.Dataset{"is damaged, too": d, "no other sample": one} {
		r := newReader(t, d, Config{BatchSize: 1, Decode: DecodeNone, OnBad: OnBadSubstitute})
		var last error
		for b, err := range r.Epoch(context.Background(), 0) {
			if last = err; err == nil {
				b.Release()
			}
		}
		var bad *SampleError
		if !errors.As(last, &bad) || !errors.Is(last, shard.ErrChecksum) || !strings.Contains(last.Error(), want) {
			t.Errorf("%v, want %q", last, want)
		}
	}
}

// Damaged samples pass up to the limit, which every pass has for itself; one more ends
// it, at the same place however many workers there are.
func TestMaxBad(t *testing.T) {
	d := small(t, datasettest.Options{})
	damage(t, d, 10, 3, 14, 16, 39)
	for _, policy := range []OnBad{OnBadSkip, OnBadSubstitute} {
		for _, c := range []struct{ limit, batches int }{{-1, 8}, {0, 8}, {4, 8}, {3, 7}, {2, 3}, {1, 2}} {
			for _, workers := range []int{1, 7} {
				r := newReader(t, d, Config{BatchSize: 5, Shuffle: ShuffleNone, Decode: DecodeNone, OnBad: policy, MaxBad: c.limit, Workers: workers})
				for range 2 {
					n := 0
					var last error
					for b, err := range r.Epoch(context.Background(), 0) {
						if last = err; err == nil {
							n++
							b.Release()
						}
					}
					if n != c.batches || (last == nil) != (n == 8) {
						t.Errorf("%s, limit %d: %d batches, then %v", policy, c.limit, n, last)
					}
					var bad *SampleError
					if last != nil && (!errors.Is(last, ErrTooManyBad) || !errors.As(last, &bad) || !strings.Contains(last.Error(), fmt.Sprint("allows ", c.limit))) {
						t.Errorf("%s, limit %d: %v", policy, c.limit, last)
					}
				}
				if want := min(4, c.limit+1); c.limit > 0 && len(r.BadSamples()) != want {
					t.Errorf("%s, limit %d: %d reported", policy, c.limit, len(r.BadSamples()))
				}
			}
		}
	}
	if n := newReader(t, d, Config{BatchSize: 5}).Config().MaxBad; n != 16 {
		t.Errorf("the default is %d", n)
	}
}

// Whatever is skipped, every rank gets the same number of batches, and each sample that
// is whole in the batch where it would have been.
func TestSkipKeepsBatchCounts(t *testing.T) {
	d := small(t, datasettest.Options{})
	c := Config{BatchSize: 2, World: 4, Lanes: 4, Shuffle: ShuffleGlobal, Seed: 1, Decode: DecodeNone, OnBad: OnBadSkip}
	plan, err := newReader(t, d, c).Plan(0)
	if err != nil {
		t.Fatal(err)
	}
	bad := plan.Batch(nil, 2, 3) // all that one rank would have
	bad = append(bad, plan.Batch(nil, 4, 0)[1])
	damage(t, d, 10, bad...)
	for rank := range 4 {
		c.Rank = rank
		all := epochOf(t, newReader(t, d, c), 0)
		if len(all) != 5 {
			t.Errorf("rank %d has %d batches", rank, len(all))
		}
		for b, got := range all {
			want := slices.DeleteFunc(plan.Batch(nil, int64(b), rank), func(n int64) bool { return slices.Contains(bad, n) })
			if got.number != int64(b) || !slices.Equal(got.samples, want) || got.bad != 2-len(want) {
				t.Errorf("rank %d batch %d: %v and %d bad ones, want %v", rank, b, got.samples, got.bad, want)
			}
		}
	}
}

// An image that claims to be huge costs nothing but its sample.
func TestDecoderBomb(t *testing.T) {
	d := small(t, datasettest.Options{})
	sh := &d.Manifest().Splits[0].Shards[0]
	rows, err := d.Rows(context.Background(), sh)
	if err != nil {
		t.Fatal(err)
	}
	// The frame header of sample 7 says 65,000 × 65,000.
	f := rows[7].Field("jpg")
	at := bytes.Index(datasettest.Sample(7, 5).Fields[1].Data, []byte{0xff, 0xc0, 0, 17, 8}) + 5
	size := datasettest.Sample(7, 5).Fields[1].Data[at : at+4]
	for i, b := range binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, 65000), 65000) {
		for bit := range 8 {
			if (size[i]^b)>>bit&1 == 1 {
				flipBit(t, d.Store(), sh.Name, f.Offset+int64(at+i), bit)
			}
		}
	}
	c := Config{BatchSize: 10, Shuffle: ShuffleNone, Transform: crop, OnBad: OnBadSkip, SkipChecksums: true}
	r := newReader(t, d, c)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	epochOf(t, r, 0)
	runtime.ReadMemStats(&after)
	if report := r.BadSamples(); len(report) != 1 || report[0].Sample != 7 {
		t.Errorf("%+v", report)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 200<<20 {
		t.Errorf("%d bytes allocated", n)
	}
	// A limit of one's own: all that are larger, and only those.
	c.MaxPixels, c.MaxBad = 1500, -1
	var want []int64
	for n := range int64(40) {
		info, err := imaging.Probe(datasettest.Sample(int(n), 5).Fields[1].Data)
		if err != nil {
			t.Fatal(err)
		}
		if n == 7 || info.Width*info.Height > 1500 {
			want = append(want, n)
		}
	}
	r = newReader(t, d, c)
	epochOf(t, r, 0)
	var got []int64
	for _, s := range r.BadSamples() {
		got = append(got, s.Sample)
	}
	if !slices.Equal(got, want) || len(want) < 5 {
		t.Errorf("above 1500 pixels: %v, want %v", got, want)
	}
	c.OnBad = OnBadFail
	for b, err := range newReader(t, d, c).Epoch(context.Background(), 0) {
		if err != nil {
			if !errors.Is(err, imaging.ErrTooLarge) {
				t.Error(err)
			}
			break
		}
		b.Release()
	}
}

// Whom a substitute is drawn for, in which epoch, under which seed and at which try all
// decide who it is; a seed stands for the same ones in every release.
func TestSubstituteFrozen(t *testing.T) {
	draw := func(seed uint64, epoch int, n int64, try int) int64 {
		p, err := NewPlan([]int64{1000, 1000, 1000}, Order{Shuffle: ShuffleGlobal, Seed: seed}, epoch)
		if err != nil {
			t.Fatal(err)
		}
		return p.substitute(n, try)
	}
	got := []int64{draw(1, 0, 1500, 0), draw(2, 0, 1500, 0), draw(1, 1, 1500, 0), draw(1, 0, 1501, 0), draw(1, 0, 1500, 1), draw(1, 0, 1500, substitutes/2+1)}
	if want := []int64{1480, 1914, 1146, 1539, 1119, 2343}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Through a store with 1% errors, 2% short reads and 2% stalls of 100 ms (of which a
// part is cut off by the timeout) come the same samples in the same order.
func TestFaultyStore(t *testing.T) {
	for _, format := range []string{"tar", "tar.zst", "tar.gz", "tfrecord"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			d := small(t, datasettest.Options{Shards: 30, Samples: 10, Format: format, Make: plain})
			for k, mode := range modes[1:] {
				if format == "tar.gz" && mode != ShuffleShards {
					continue // the others read shards from their start, over and over
				}
				c := Config{
					BatchSize: 16, Shuffle: mode, Seed: 1, Lanes: 2, Window: 64, Ends: EndsExact,
					Transform: crop, Fields: []string{"cls"}, OnBad: OnBadFail,
				}
				want := epochOf(t, newReader(t, d, c), 0)
				for timeout, stalls := range map[time.Duration]bool{50 * time.Millisecond: true, -1: false} {
					st := fault.New(d.Store(), fault.Config{
						ErrorRate: 0.01, ShortReadRate: 0.02, StallRate: 0.02, Stall: 100 * time.Millisecond, Seed: uint64(k + 1),
					})
					shaky, err := dataset.New(st, d.Manifest())
					if err != nil {
						t.Fatal(err)
					}
					c.Retry = retry.Config{Timeout: timeout, Backoff: time.Millisecond}
					r := newReader(t, shaky, c)
					if got := epochOf(t, r, 0); !reflect.DeepEqual(got, want) {
						t.Errorf("%s: other batches", mode)
					}
					s := r.Stats()
					if s.Retries == 0 || s.Rereads != 0 || len(r.BadSamples()) != 0 || stalls != (s.Stalls > 0) {
						t.Errorf("%s: %d operations, %d retries, %d stalls, %d rereads", mode, st.Ops(), s.Retries, s.Stalls, s.Rereads)
					}
				}
			}
		})
	}
}

// A read that would never come back is made again.
func TestHangingStore(t *testing.T) {
	for _, format := range []string{"tar", "tar.zst"} {
		d := small(t, datasettest.Options{Format: format})
		c := Config{BatchSize: 4, Transform: crop, Retry: retry.Config{Timeout: 20 * time.Millisecond, Backoff: time.Millisecond}}
		want := epochOf(t, newReader(t, d, c), 0)
		st := fault.New(d.Store(), fault.Config{Kinds: []fault.Kind{fault.ReadAt, fault.Open}, StallRate: 0.15, Stall: time.Hour, Seed: 5})
		hanging, err := dataset.New(st, d.Manifest())
		if err != nil {
			t.Fatal(err)
		}
		r := newReader(t, hanging, c)
		if got := epochOf(t, r, 0); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: other batches", format)
		}
		if r.Stats().Stalls == 0 {
			t.Errorf("%s: nothing has stalled", format)
		}
	}
}

// lose does to a shard what makes all its samples unreadable.
var lose = map[string]func(t *testing.T, st store.Store, name string){
	"missing": func(t *testing.T, st store.Store, name string) {
		if err := st.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	},
	"cut": func(t *testing.T, st store.Store, name string) {
		data, err := store.ReadAll(t.Context(), st, name, 1<<30)
		if err == nil {
			err = store.WriteAll(t.Context(), st, name, data[:len(data)-1])
		}
		if err != nil {
			t.Fatal(err)
		}
	},
	"empty": func(t *testing.T, st store.Store, name string) {
		if err := store.WriteAll(t.Context(), st, name, nil); err != nil {
			t.Fatal(err)
		}
	},
}

// A shard that is missing or cut costs its samples, one by one and by key, of every
// rank; batches and all other samples stay where they are.
func TestLostShard(t *testing.T) {
	for how, lose := range lose {
		for _, format := range []string{"tar", "tar.zst", "tar.gz", "tfrecord"} {
			for _, cached := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/cached %v", how, format, cached), func(t *testing.T) {
					t.Parallel()
					d := small(t, datasettest.Options{Format: format})
					name := d.Manifest().Splits[0].Shards[2].Name
					c := Config{BatchSize: 4, World: 2, Lanes: 2, Shuffle: ShuffleShards, Interleave: 3, Block: 1, Seed: 3, Decode: DecodeNone}
					plan, err := newReader(t, d, c).Plan(0)
					if err != nil {
						t.Fatal(err)
					}
					lose(t, d.Store(), name)
					for _, policy := range []OnBad{OnBadSkip, OnBadSubstitute} {
						reported := 0
						for rank := range 2 {
							c.Rank, c.OnBad, c.Cache = rank, policy, cache.Config{}
							if cached {
								c.Cache.Dir = t.TempDir()
							}
							r := newReader(t, d, c)
							all := epochOf(t, r, 0)
							if len(all) != 5 {
								t.Fatalf("%d batches", len(all))
							}
							for b, got := range all {
								want := plan.Batch(nil, int64(b), rank)
								lost := 0
								for _, n := range want {
									if n/10 == 2 {
										lost++
									}
								}
								whole := slices.DeleteFunc(slices.Clone(want), func(n int64) bool { return n/10 == 2 })
								have := got.samples
								if policy == OnBadSubstitute {
									if len(have) != len(want) || slices.ContainsFunc(have, func(n int64) bool { return n/10 == 2 }) {
										t.Errorf("batch %d is %v for %v", b, have, want)
									}
									have = slices.DeleteFunc(slices.Clone(have), func(n int64) bool { return !slices.Contains(want, n) })
								}
								if got.bad != lost || !slices.Equal(have, whole) && policy == OnBadSkip || !containsAll(have, whole) {
									t.Errorf("batch %d: %v and %d bad ones, of %v", b, got.samples, got.bad, want)
								}
							}
							for _, s := range r.BadSamples() {
								if s.Sample/10 != 2 || s.Key != datasettest.Sample(int(s.Sample), 5).Key || !strings.HasSuffix(s.Shard, name) || !strings.Contains(s.Reason, "the shard is") {
									t.Errorf("reported %+v", s)
								}
							}
							s := r.Stats()
							reported += int(s.Skipped + s.Substituted)
						}
						if reported != 10 {
							t.Errorf("%s: %d samples lost", policy, reported)
						}
					}
					c.World, c.Rank, c.OnBad, c.MaxBad, c.Shuffle = 1, 0, OnBadSkip, 9, ShuffleNone
					n := 0
					var last error
					for b, err := range newReader(t, d, c).Epoch(context.Background(), 0) {
						if last = err; err == nil {
							n++
							b.Release()
						}
					}
					if !errors.Is(last, ErrTooManyBad) || n != 7 {
						t.Errorf("max_bad 9: %d batches, then %v", n, last)
					}
				})
			}
		}
	}
}

func containsAll(have, want []int64) bool {
	return !slices.ContainsFunc(want, func(n int64) bool { return !slices.Contains(have, n) })
}

// A shard that is cut while it is open and read costs what lies behind the cut, and
// what is read of it from then on.
func TestCutWhileReading(t *testing.T) {
	dir := t.TempDir()
	d := datasettest.Write(t, file.New(dir), datasettest.Options{Shards: 2, Samples: 200})
	c := Config{
		BatchSize: 4, Shuffle: ShuffleNone, Decode: DecodeNone, OnBad: OnBadSkip, MaxBad: -1, Memory: 1<<20 + 200_000,
		Retry: retry.Config{Attempts: 2, Backoff: time.Millisecond},
	}
	want, _ := slots(epochOf(t, newReader(t, d, c), 0), 0)
	sh := d.Manifest().Splits[0].Shards[1]
	r := newReader(t, d, c)
	samples, bad := 0, 0
	for b, err := range r.Epoch(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if b.Number() == 51 { // of the second shard
			if err := os.Truncate(filepath.Join(dir, sh.Name), sh.Bytes*9/10); err != nil {
				t.Fatal(err)
			}
		}
		got, _ := slots([]copied{copyOf(b)}, 0)
		for n, s := range got {
			if s != want[n] {
				t.Errorf("sample %d is another", n)
			}
		}
		samples += b.Len()
		bad += len(b.Bad())
		b.Release()
	}
	if samples+bad != 400 || bad < 15 || bad > 195 {
		t.Errorf("%d samples and %d bad ones", samples, bad)
	}
}

// What has been replaced since it was opened is not taken for damaged, under no policy.
func TestReplacedShard(t *testing.T) {
	another := func(n, classes int) datasettest.Made { return datasettest.Sample(n+1, classes) }
	for how, replace := range map[string]func(t *testing.T, d *dataset.Dataset){
		"longer": func(t *testing.T, d *dataset.Dataset) {
			name := d.Manifest().Splits[0].Shards[2].Name
			data, err := store.ReadAll(t.Context(), d.Store(), name, 1<<30)
			if err == nil {
				err = store.WriteAll(t.Context(), d.Store(), name, append(data, 0))
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		"packed anew": func(t *testing.T, d *dataset.Dataset) {
			datasettest.Write(t, d.Store(), datasettest.Options{Shards: 4, Make: another})
		},
		"fewer shards": func(t *testing.T, d *dataset.Dataset) {
			for _, sh := range d.Manifest().Splits[0].Shards {
				lose["missing"](t, d.Store(), sh.Name)
				lose["missing"](t, d.Store(), sh.Index.Name)
			}
			datasettest.Write(t, d.Store(), datasettest.Options{Shards: 1, Make: another})
		},
		"of the same size": func(t *testing.T, d *dataset.Dataset) {
			// As if only labels had changed: the manifest and one shard's bytes.
			sh := &d.Manifest().Splits[0].Shards[2]
			data, err := store.ReadAll(t.Context(), d.Store(), sh.Name, 1<<30)
			if err != nil {
				t.Fatal(err)
			}
			for i := range data {
				data[i] ^= 1
			}
			m := *d.Manifest()
			m.Splits = slices.Clone(m.Splits)
			m.Splits[0].Shards = slices.Clone(m.Splits[0].Shards)
			m.Splits[0].Shards[2].Checksum = index.Sum(data)
			text, err := m.Encode()
			if err == nil {
				err = errors.Join(store.WriteAll(t.Context(), d.Store(), sh.Name, data), store.WriteAll(t.Context(), d.Store(), index.ManifestName, text))
			}
			if err != nil {
				t.Fatal(err)
			}
		},
	} {
		for _, policy := range []OnBad{OnBadFail, OnBadSkip, OnBadSubstitute} {
			for _, loaded := range []bool{false, true} { // the indexes are
				for _, cached := range []bool{false, true} {
					d := small(t, datasettest.Options{})
					c := Config{BatchSize: 4, Shuffle: ShuffleNone, Decode: DecodeNone, OnBad: policy, MaxBad: -1}
					if cached {
						c.Cache.Dir = t.TempDir()
					}
					r := newReader(t, d, c)
					for n := int64(0); n < 40 && loaded; n += 10 {
						if _, err := r.Key(t.Context(), n); err != nil {
							t.Fatal(err)
						}
					}
					replace(t, d)
					var last error
					for b, err := range r.Epoch(context.Background(), 0) {
						if last = err; err == nil {
							b.Release()
						}
					}
					if !errors.Is(last, ErrReplaced) || len(r.BadSamples()) != 0 {
						t.Errorf("%s, %s, index loaded %v, cached %v: %v, %d bad samples", how, policy, loaded, cached, last, len(r.BadSamples()))
					}
				}
			}
		}
	}
}

// That everything is gone is no matter of samples: a disk that is not mounted must not
// look like a data set of damaged ones.
func TestUnmounted(t *testing.T) {
	d := small(t, datasettest.Options{})
	r := newReader(t, d, Config{BatchSize: 4, Decode: DecodeNone, OnBad: OnBadSkip, MaxBad: -1})
	for n := int64(0); n < 40; n += 10 {
		if _, err := r.Key(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	for info, err := range d.Store().List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		lose["missing"](t, d.Store(), info.Name)
	}
	var last error
	for b, err := range r.Epoch(context.Background(), 0) {
		if last = err; err == nil {
			b.Release()
		}
	}
	if !errors.Is(last, fs.ErrNotExist) || !strings.Contains(fmt.Sprint(last), "mounted") || len(r.BadSamples()) != 0 {
		t.Errorf("%v, %d bad samples", last, len(r.BadSamples()))
	}
}

// A damaged frame of a compressed shard costs the samples that lie in it, and no
// others that were to be read with them.
func TestDamagedFrame(t *testing.T) {
	d := small(t, datasettest.Options{Format: "tar.zst", Make: func(n, classes int) datasettest.Made {
		m := datasettest.Sample(n, classes)
		data := make([]byte, 40_000)
		rand.NewChaCha8([32]byte{byte(n)}).Read(data)
		m.Fields = append(m.Fields[:1], sample.Field{Name: "npy", Data: data})
		m.Paths = nil
		return m
	}})
	c := Config{BatchSize: 10, Shuffle: ShuffleNone, Decode: DecodeNone, OnBad: OnBadSkip}
	want, _ := slots(epochOf(t, newReader(t, d, c), 0), 0)
	sh := d.Manifest().Splits[0].Shards[1]
	flipByte(t, d.Store(), sh.Name, sh.Bytes/2)
	r := newReader(t, d, c)
	got, _ := slots(epochOf(t, r, 0), 0)
	for n, s := range got {
		if s != want[n] {
			t.Errorf("sample %d is another", n)
		}
	}
	bad := r.BadSamples()
	if len(bad) < 1 || len(bad) > 4 || len(got)+len(bad) != 40 {
		t.Errorf("%d samples, bad are %+v", len(got), bad)
	}
	for _, s := range bad {
		if s.Sample < 13 || s.Sample > 17 || s.Field == "" {
			t.Errorf("%+v", s)
		}
	}
}
