package reader

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/imaging/transform"
	"shardify/index"
	"shardify/internal/peers"
	"shardify/sample"
	"shardify/store"
	"shardify/store/file"
)

// photographs is a data set of the 250 photographs 16 times over, on disk.
func photographs(b *testing.B, format string) *dataset.Dataset {
	b.Helper()
	names, err := filepath.Glob(filepath.Join(peers.Photographs(b), "*"))
	if err != nil || len(names) == 0 {
		b.Fatal(names, err)
	}
	var files [][]byte
	for _, name := range names {
		if data, err := os.ReadFile(name); err == nil && len(data) > 2 && data[0] == 0xff && data[1] == 0xd8 {
			files = append(files, data)
		}
	}
	if len(files) == 0 {
		b.Fatal("no photographs")
	}
	return datasettest.Write(b, file.New(b.TempDir()), datasettest.Options{
		Format: format, Shards: 16, Samples: len(files), Classes: 1000,
		Make: func(n, classes int) datasettest.Made {
			m := datasettest.Made{Label: int64(n % classes)}
			m.Key = fmt.Sprintf("%04d/%08d", m.Label, n)
			m.Fields = []sample.Field{{Name: "cls", Data: fmt.Append(nil, m.Label)}, {Name: "jpg", Data: files[n%len(files)]}}
			return m
		},
	})
}

func benchmark(b *testing.B, d *dataset.Dataset, c Config) {
	r, err := New(context.Background(), d, c)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	epoch := 0
	read := func() {
		for batch, err := range r.Epoch(context.Background(), epoch) {
			if err != nil {
				b.Fatal(err)
			}
			batch.Release()
		}
		epoch++
	}
	read() // takes memory, opens shards, reads indexes
	warm := r.Stats()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := cpuTime()
	for b.Loop() {
		read()
	}
	cpu = cpuTime() - cpu
	runtime.ReadMemStats(&after)
	st := r.Stats()
	samples := float64(st.Samples - warm.Samples)
	b.SetBytes((st.FieldBytes - warm.FieldBytes) / int64(epoch-1))
	b.ReportMetric(samples/b.Elapsed().Seconds(), "samples/s")
	b.ReportMetric(float64(cpu.Microseconds())/samples, "cpu-µs/sample")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/samples, "allocs/sample")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/samples, "B/sample")
}

// Everything but decoding: fetch, checksums, slabs.
func BenchmarkFetch(b *testing.B) {
	for _, format := range []string{"tar", "tar.zst"} {
		d := photographs(b, format)
		for _, mode := range []Shuffle{ShuffleNone, ShuffleWindow, ShuffleGlobal} {
			b.Run(format+"/"+string(mode), func(b *testing.B) {
				benchmark(b, d, Config{Decode: DecodeNone, Shuffle: mode, BatchSize: 64, Workers: 2})
			})
		}
	}
}

// The whole pipeline.
func BenchmarkEpoch(b *testing.B) {
	d := photographs(b, "tar")
	for name, t := range map[string]transform.List{
		"eval":  {transform.Resize{Size: transform.Size{256}}, transform.CenterCrop{Size: transform.Size{224}}},
		"train": {transform.RandomResizedCrop{Size: transform.Size{224}}, transform.RandomHorizontalFlip{}},
	} {
		b.Run(name, func(b *testing.B) {
			benchmark(b, d, Config{Transform: t, BatchSize: 64, Workers: 2})
		})
	}
	b.Run("whole", func(b *testing.B) {
		benchmark(b, d, Config{Collate: CollateRagged, BatchSize: 64, Workers: 2})
	})
	for _, collate := range []Collate{CollateRagged, CollatePad} {
		b.Run(string(collate), func(b *testing.B) {
			benchmark(b, d, Config{Collate: collate, BatchSize: 64, Workers: 2, Transform: transform.List{transform.Resize{Size: transform.Size{256}, MaxSize: 512}}})
		})
	}
}

// Single photographs, and batches of them, by their numbers.
func BenchmarkReadPhotographs(b *testing.B) {
	r := newReader(b, photographs(b, "tar"), Config{Transform: transform.List{transform.RandomResizedCrop{Size: transform.Size{224}}}})
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 256} {
		samples := make([]int64, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			decode := r.Stats().Stages
			for b.Loop() {
				for i := range samples {
					samples[i] = random.Int64N(r.split.Samples)
				}
				batch, err := r.Read(b.Context(), samples, 0)
				if err != nil {
					b.Fatal(err)
				}
				batch.Release()
			}
			now := r.Stats().Stages
			busy := now.Decode.Busy + now.Transform.Busy - decode.Decode.Busy - decode.Transform.Busy
			b.ReportMetric(float64(busy.Microseconds())/float64(now.Decode.Items-decode.Decode.Items), "decode-µs/sample")
		})
	}
}

// From opening to the first batch of a data set of 10,000 shards, of which 64 are touched.
func BenchmarkFirstBatch(b *testing.B) {
	dir := b.TempDir()
	small := datasettest.Write(b, file.New(dir), datasettest.Options{Shards: 1, Samples: 128})
	m := *small.Manifest()
	one := m.Splits[0].Shards[0]
	s := &m.Splits[0]
	s.Shards = nil
	for i := range 10000 { // the same file under every name
		sh := one
		sh.Name, sh.Index.Name = fmt.Sprintf("many-%06d.tar", i), fmt.Sprintf("many-%06d.parquet", i)
		err := errors.Join(
			os.Link(filepath.Join(dir, one.Name), filepath.Join(dir, sh.Name)),
			os.Link(filepath.Join(dir, one.Index.Name), filepath.Join(dir, sh.Index.Name)))
		if err != nil {
			b.Fatal(err)
		}
		s.Shards = append(s.Shards, sh)
	}
	s.Samples *= 10000
	s.Bytes *= 10000
	data, err := m.Encode()
	if err != nil {
		b.Fatal(err)
	}
	if err := store.WriteAll(context.Background(), small.Store(), index.ManifestName, data); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		r, err := Open(context.Background(), dir, Config{Transform: crop})
		if err != nil {
			b.Fatal(err)
		}
		for batch, err := range r.Epoch(context.Background(), 0) {
			if err != nil {
				b.Fatal(err)
			}
			batch.Release()
			break
		}
		r.Close()
	}
}
