package compress

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"shardify/internal/peers"
	"shardify/sample"
	"shardify/shard"
	"shardify/shard/tar"
)

// tarOf is a tar shard and the places of its samples.
func tarOf(b *testing.B, samples []sample.Sample) (data []byte, places []shard.Placement) {
	b.Helper()
	var out bytes.Buffer
	w := tar.Container{}.NewWriter(&out)
	for i := range samples {
		p, err := w.Write(&samples[i], nil)
		if err != nil {
			b.Fatal(err)
		}
		p.Fields = nil
		places = append(places, p)
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	return out.Bytes(), places
}

// kinds of shards: photographs with their class, thumbnails of 2 KB with a caption
// and a record of facts, and captions alone.
func shards(b *testing.B) map[string][]sample.Sample {
	r := rand.New(rand.NewPCG(1, 1))
	words := make([]string, 2000)
	for i := range words {
		words[i] = fmt.Sprintf("%x", r.Uint32N(1<<(8+r.IntN(20))))
	}
	caption := func(n int) []byte {
		var t bytes.Buffer
		for range n {
			t.WriteString(words[int(r.ExpFloat64()*200)%len(words)])
			t.WriteByte(' ')
		}
		return t.Bytes()
	}
	all := map[string][]sample.Sample{}
	for i := range 3000 {
		thumbnail := make([]byte, 1500+r.IntN(1000))
		for j := range thumbnail {
			thumbnail[j] = byte(r.Uint32())
		}
		key := fmt.Sprintf("%09d", i)
		facts := fmt.Appendf(nil, `{"url": "https://example.org/%x/%x.jpg", "width": %d, "height": %d, "similarity": %.4f, "license": "CC BY 2.0", "status": "success"}`,
			r.Uint64(), r.Uint64(), 200+r.IntN(800), 200+r.IntN(800), r.Float64())
		all["thumbnails"] = append(all["thumbnails"], sample.Sample{Key: key, Fields: []sample.Field{{Name: "jpg", Data: thumbnail}, {Name: "json", Data: facts}, {Name: "txt", Data: caption(15)}}})
		all["captions"] = append(all["captions"], sample.Sample{Key: key, Fields: []sample.Field{{Name: "txt", Data: caption(200)}}})
	}
	files, err := filepath.Glob(filepath.Join(peers.Photographs(b), "*.*"))
	if err != nil {
		b.Fatal(err)
	}
	for i, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		all["photographs"] = append(all["photographs"], sample.Sample{Key: fmt.Sprintf("%09d", i), Fields: []sample.Field{{Name: "cls", Data: []byte("1")}, {Name: "jpg", Data: data}}})
	}
	return all
}

func compressFrames(b *testing.B, data []byte, places []shard.Placement, size int64) []byte {
	var out bytes.Buffer
	w, err := newZstdWriter(&out, 0)
	if err != nil {
		b.Fatal(err)
	}
	w.size = size
	for _, p := range places {
		w.EndSample(p.Offset + p.Size)
	}
	if _, err := w.Write(data); err != nil {
		b.Fatal(err)
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	return out.Bytes()
}

// BenchmarkFrameSize reads samples at random, for several sizes of frames, and
// reports what they cost in space.
func BenchmarkFrameSize(b *testing.B) {
	for kind, samples := range shards(b) {
		data, places := tarOf(b, samples)
		for _, size := range []int64{1, 64 << 10, FrameSize, 1 << 20, MaxFrame} {
			b.Run(fmt.Sprintf("%s/%dKiB", kind, size>>10), func(b *testing.B) {
				c := compressFrames(b, data, places, size)
				at, err := NewReaderAt(bytes.NewReader(c), int64(len(c)), Zstd)
				if err != nil {
					b.Fatal(err)
				}
				r := rand.New(rand.NewPCG(1, 1))
				p := make([]byte, 4<<20)
				for b.Loop() {
					place := places[r.IntN(len(places))]
					if _, err := at.ReadAt(p[:place.Size], place.Offset); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(len(c))/float64(len(data)), "ratio")
			})
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	for kind, samples := range shards(b) {
		data, places := tarOf(b, samples)
		b.Run("zst/"+kind, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				compressFrames(b, data, places, FrameSize)
			}
		})
	}
}

// BenchmarkRead decodes whole shards: as a stream, and at offsets in their order.
func BenchmarkRead(b *testing.B) {
	for kind, samples := range shards(b) {
		data, places := tarOf(b, samples)
		c := compressFrames(b, data, places, FrameSize)
		b.Run("stream/"+kind, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				r, err := NewReader(bytes.NewReader(c), Zstd)
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, r); n != int64(len(data)) || err != nil {
					b.Fatal(n, err)
				}
				if err := r.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("at/"+kind, func(b *testing.B) {
			at, err := NewReaderAt(bytes.NewReader(c), int64(len(c)), Zstd)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			p := make([]byte, 4<<20)
			for b.Loop() {
				for _, place := range places {
					if _, err := at.ReadAt(p[:place.Size], place.Offset); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
