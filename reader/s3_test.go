package reader

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"shardify/dataset/datasettest"
	"shardify/sample"
	"shardify/store/cache"
	"shardify/store/open"
	"shardify/store/s3/s3test"
)

// largeSample is a sample of about the size of a photograph, without pixels.
func largeSample(n, _ int) datasettest.Made {
	data := make([]byte, 110_000)
	for i := range data {
		data[i] = byte(i*n + i>>8)
	}
	return datasettest.Made{Sample: sample.Sample{Key: fmt.Sprintf("%06d", n), Fields: []sample.Field{{Name: "bin", Data: data}}}, Label: int64(n % 5)}
}

// inBucket is a data set of such samples in a bucket, and what stands before it. Requests
// take the time wait.
func inBucket(t *testing.T, shards, samples int, wait *time.Duration) (url string, front *s3test.Front) {
	t.Helper()
	server := s3test.Start(t)
	server.Setenv(t, server.Endpoint)
	url = "s3://" + s3test.Bucket + "/set"
	st, err := open.URL(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	datasettest.Write(t, st, datasettest.Options{Shards: shards, Samples: samples, Make: largeSample})
	front = server.Front(t, func(s3test.Request) s3test.Fault { return s3test.Fault{Stall: *wait} })
	t.Setenv("AWS_ENDPOINT_URL_S3", front.URL)
	return url, front
}

// epoch reads an epoch as a process does that begins, and returns how many samples it
// had.
func epoch(t *testing.T, url string, c Config) (n int) {
	t.Helper()
	c.Decode, c.Fields = DecodeNone, []string{"bin"}
	r, err := Open(t.Context(), url, c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	seen := map[int64]bool{}
	for b, err := range r.Epoch(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range b.Samples() {
			seen[s] = true
		}
		b.Release()
	}
	return len(seen)
}

// What an epoch costs in requests: in a window, ranges of 4 MiB and more; in global
// order, hardly more than one for each sample; from a cache that is warm, the manifest's.
func TestS3Requests(t *testing.T) {
	const shards, samples, batch = 2, 200, 16
	url, front := inBucket(t, shards, samples, new(time.Duration))
	const total, bytes = shards * samples, shards * samples * 110_000

	if n := epoch(t, url, Config{BatchSize: batch, Ends: EndsExact}); n != total {
		t.Errorf("window: %d samples; want %d", n, total)
	}
	var sizes []int64
	small := 0
	for _, r := range front.Forget() {
		if strings.HasSuffix(r.Path, ".tar") {
			sizes = append(sizes, r.Sent)
		} else {
			small++
		}
	}
	slices.Sort(sizes)
	t.Logf("window: %d ranges of shards, from %d to %d bytes, and %d other requests", len(sizes), sizes[0], sizes[len(sizes)-1], small)
	// The first batch is read by itself, so that it comes soon.
	alone, _ := slices.BinarySearch(sizes, 110_001)
	if spans := sizes[alone:]; alone > batch || len(spans) > bytes/(4<<20)+shards || spans[len(spans)/2] < 4<<20 {
		t.Errorf("window: %d samples alone, %d ranges, half of them less than %d bytes; want %d and %d at most, of 4 MiB",
			alone, len(spans), spans[len(spans)/2], batch, bytes/(4<<20)+shards)
	}
	if small > 1+shards {
		t.Errorf("window: %d requests for a manifest and %d indexes", small, shards)
	}

	if n := epoch(t, url, Config{BatchSize: batch, Ends: EndsExact, Shuffle: ShuffleGlobal}); n != total {
		t.Errorf("global: %d samples; want %d", n, total)
	}
	n := len(front.Forget())
	t.Logf("global: %.2f requests a sample", float64(n)/total)
	if n > total*12/10 {
		t.Errorf("global: %d requests for %d samples", n, total)
	}

	c := Config{BatchSize: batch, Ends: EndsExact, Cache: cache.Config{Dir: filepath.Join(t.TempDir(), "cache")}}
	epoch(t, url, c)
	t.Logf("cache, cold: %d requests", len(front.Forget()))
	epoch(t, url, c)
	if warm := front.Forget(); len(warm) != 1 || !strings.HasSuffix(warm[0].Path, "/manifest.json") {
		t.Errorf("cache, warm: %d requests, the first %+v; want the manifest's alone", len(warm), warm[0])
	}
}

// The first batch takes no more than four times the time of a request, one after the
// other: the manifest, an index, samples.
func TestS3FirstBatch(t *testing.T) {
	wait := time.Second // what the machine does besides is nothing against it
	url, _ := inBucket(t, 2, 50, &wait)
	first := func(shuffle Shuffle) error {
		r, err := Open(t.Context(), url, Config{BatchSize: 8, Decode: DecodeNone, Fields: []string{"bin"}, Shuffle: shuffle})
		if err != nil {
			return err
		}
		defer r.Close()
		for b, err := range r.Epoch(t.Context(), 0) {
			if err != nil {
				return err
			}
			b.Release()
			break
		}
		return nil
	}
	var wg sync.WaitGroup
	for _, shuffle := range []Shuffle{ShuffleAuto, ShuffleGlobal, ShuffleNone} {
		wg.Go(func() {
			began := time.Now()
			if err := first(shuffle); err != nil {
				t.Errorf("%q: %v", shuffle, err)
				return
			}
			took := time.Since(began)
			t.Logf("%q: first batch after %.1f requests' time", shuffle, float64(took)/float64(wait))
			if took >= 5*wait {
				t.Errorf("%q: the first batch took %v, with requests of %v", shuffle, took, wait)
			}
		})
	}
	wg.Wait()
}
