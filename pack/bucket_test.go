package pack

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"shardify/store"
	"shardify/store/file"
	"shardify/store/s3"
	"shardify/store/s3/s3test"
)

// BenchmarkBucket packs 10,000 objects of 10 KB of a bucket, each request of which takes
// so many milliseconds more than the server needs.
//
//	go test ./pack -run none -bench Bucket -benchtime 1x
func BenchmarkBucket(b *testing.B) {
	const objects = 10_000
	server := s3test.Start(b)
	server.Setenv(b, server.Endpoint)
	const images = "s3://" + s3test.Bucket + "/images"
	st, err := s3.New(b.Context(), images, s3.Config{})
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < objects; i += 8 {
				data := make([]byte, 10_000)
				copy(data, fmt.Sprint(i))
				if err := store.WriteAll(b.Context(), st, fmt.Sprintf("n%02d/%d.jpg", i%20, i), data); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, ms := range []int{0, 20} {
		b.Run(strconv.Itoa(ms)+"ms", func(b *testing.B) {
			front := server.Front(b, func(s3test.Request) s3test.Fault {
				return s3test.Fault{Stall: time.Duration(ms) * time.Millisecond}
			})
			server.Setenv(b, front.URL)
			cfg := Config{Source: Source{Paths: []string{images}}, Check: CheckNone}
			for b.Loop() {
				if _, err := Run(b.Context(), file.New(b.TempDir()), cfg, Env{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(objects*float64(b.N)/b.Elapsed().Seconds(), "objects/s")
		})
	}
}
