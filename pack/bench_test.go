package pack

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"shardify/source"
	"shardify/store/file"
)

// synthetic is a source of n files that are not there, in a thousand folders.
type synthetic struct{ n int }

func (s synthetic) Name() string  { return "synthetic" }
func (s synthetic) Numeric() bool { return false }
func (s synthetic) Read(context.Context, source.Location, []byte) ([]byte, error) {
	return nil, source.ErrChanged
}

func (s synthetic) Entries(context.Context) iter.Seq2[source.Entry, error] {
	return func(yield func(source.Entry, error) bool) {
		for i := range s.n {
			class := fmt.Sprintf("n%08d", i%1000*7919)
			// Not in the order of names, as folders list them.
			path := class + "/" + class + "_" + strconv.Itoa(i*7%s.n) + ".JPEG"
			e := source.Entry{Class: class, Path: path, Location: source.Location{
				Name: "/data/imagenet/train/" + path, Size: 60_000 + int64(i%100_000), ModTime: 1_700_000_000_000_000_000 + int64(i)}}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// BenchmarkPlan plans data sets that are larger than memory should be. Run it alone
// to see the peak of its resident memory, for which ten million files must stay
// below 1 GiB:
//
//	go test ./pack -run none -bench Plan/10000000 -benchtime 1x
func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000, 10_000_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			cfg := Config{Source: Source{Paths: []string{"synthetic"}}}
			var size int64
			for b.Loop() {
				w, err := file.New(b.TempDir()).Create(b.Context(), "plan")
				if err != nil {
					b.Fatal(err)
				}
				f, err := makePlan(b.Context(), sources{synthetic{n}}, cfg, Env{TempDir: b.TempDir()}, w)
				if err != nil {
					b.Fatal(err)
				}
				if f.Files != int64(n) {
					b.Fatalf("%d files", f.Files)
				}
				size = f.Shards[len(f.Shards)-1].Offset
				if err := w.Abort(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "files/s")
			b.ReportMetric(float64(size)/float64(n), "plan-bytes/file")
			if peak, ok := peakMiB(); ok {
				b.ReportMetric(peak, "peak-MiB")
			}
		})
	}
}

// peakMiB is the process's peak resident memory, where the system tells.
func peakMiB() (float64, bool) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, false
	}
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.SplitN(string(rest), "\n", 2)[0], "kB")), 64)
	return kib / 1024, err == nil
}

// BenchmarkPack packs photographs of a hundred KB from the page cache.
func BenchmarkPack(b *testing.B) {
	for _, format := range []string{"tar", "tar.zst", "tfrecord"} {
		b.Run(format, func(b *testing.B) {
			dir := b.TempDir()
			const n = 500
			files := map[string][]byte{}
			size := int64(0)
			for i := range n {
				data := photo(uint64(i), 110_000)
				files[fmt.Sprintf("%d/%d.jpg", i%10, i)] = data
				size += int64(len(data))
			}
			write(b, dir, files)
			b.SetBytes(size)
			for i := 0; b.Loop(); i++ {
				cfg := config(dir)
				cfg.Format, cfg.ShardSize = format, 0
				mustRun(b, file.New(filepath.Join(b.TempDir(), strconv.Itoa(i))), cfg, Env{})
			}
			b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "images/s")
		})
	}
}
