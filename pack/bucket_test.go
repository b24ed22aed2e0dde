package pack

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// Objects of a bucket are fetched many at once, however few cores there are, when they are
// packed and when they are only looked at.
func TestBucketAtOnce(t *testing.T) {
	const objects, together = 64, 24
	server := s3test.Start(t)
	server.Setenv(t, server.Endpoint)
	const images = "s3://" + s3test.Bucket + "/images"
	st, err := s3.New(t.Context(), images, s3.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range objects {
		var file bytes.Buffer
		img := image.NewGray(image.Rect(0, 0, 8, 8))
		img.Pix[i] = 200
		if err := png.Encode(&file, img); err != nil {
			t.Fatal(err)
		}
		if err := store.WriteAll(t.Context(), st, fmt.Sprintf("%d.png", i), file.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	for name, read := range map[string]func(Config, Env) error{
		"run":     func(c Config, e Env) error { _, err := Run(t.Context(), file.New(t.TempDir()), c, e); return err },
		"dry run": func(c Config, e Env) error { _, err := DryRun(t.Context(), file.New(t.TempDir()), c, e); return err },
	} {
		// Requests wait for each other until so many are there.
		var waiting atomic.Int64
		enough := make(chan struct{})
		front := server.Front(t, func(r s3test.Request) s3test.Fault {
			if r.Method == http.MethodGet && strings.HasSuffix(r.Path, ".png") {
				if waiting.Add(1) == together {
					close(enough)
				}
				select {
				case <-enough:
				case <-time.After(time.Minute):
					t.Errorf("%s: only %d of %d requests are sent at once", name, waiting.Load(), together)
				}
			}
			return s3test.Fault{}
		})
		server.Setenv(t, front.URL)
		if err := read(Config{Source: Source{Paths: []string{images}}}, Env{Workers: 2}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
