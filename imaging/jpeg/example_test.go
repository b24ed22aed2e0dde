package jpeg_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"shardify/imaging"
	"shardify/imaging/jpeg"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
)

// A file becomes pixels, upright.
func Example() {
	data := photograph() // os.ReadFile("cat.jpg")
	var d jpeg.Decoder
	var m imaging.Image
	if err := d.Decode(data, &m, jpeg.Options{Orient: true}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Width, m.Height, m.Pix[:3])
	// Output: 640 480 [0 0 64]
}

// What a file is, without decoding it.
func ExampleReadHeader() {
	h, err := jpeg.ReadHeader(photograph())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(h.Width, h.Height, h.Coding, h.Model, h.Sampling[:h.Components], h.Orientation, len(h.ICC))
	// Output: 640 480 baseline YCbCr [[2 2] [1 1] [1 1]] 1 0
}

// Half as wide and high, and of that a part: what lies around it takes no time in the
// second half of decoding, and what lies below it none at all.
func ExampleDecoder_Decode() {
	var d jpeg.Decoder
	var m imaging.Image
	err := d.Decode(photograph(), &m, jpeg.Options{Scale: 2, X: 100, Y: 20, Width: 64, Height: 48})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Width, m.Height)
	// Output: 64 48
}

// A crop of each of some files, scaled to 224 x 224 and mirrored, in its place in a batch of
// normalised floats. The files are decoded together, in one goroutine.
func ExampleDecoder_DecodeAll() {
	files := [][]byte{photograph(), photograph(), photograph(), photograph()}
	const size = 3 * 224 * 224
	batch := make([]float32, len(files)*size)
	table := tensor.ImageNet.Table()
	jobs := make([]jpeg.Job, len(files))
	for i, data := range files {
		j := &jobs[i]
		j.Data = data
		j.X, j.Y, j.Width, j.Height = 10*i, 20, 300, 200
		j.Task = resize.Task{Part: resize.Rect{X1: 300, Y1: 200}, Width: 224, Height: 224, FlipX: i%2 == 1}
		j.Target = resize.Target{Width: 224, Height: 224, Layout: tensor.NCHW, Float32: batch[i*size:][:size], Table: table}
	}
	var d jpeg.Decoder
	d.DecodeAll(jobs)
	for i := range jobs {
		if jobs[i].Err != nil {
			log.Fatalf("file %d: %v", i, jobs[i].Err)
		}
	}
	fmt.Printf("%.2f\n", batch[0])
	// Output: -2.12
}

// Several cores: a decoder for each goroutine, which takes file after file from the same
// queue.
func ExampleDecoder_DecodeQueue() {
	files := make([][]byte, 100)
	for i := range files {
		files[i] = photograph()
	}
	images := make([]imaging.Image, len(files))
	var next atomic.Int64
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			var d jpeg.Decoder
			d.DecodeQueue(&queue{files: files, images: images, next: &next})
		})
	}
	wait.Wait()
	fmt.Println(images[99].Width)
	// Output: 640
}

// queue hands out files, each to the decoder that asks first.
type queue struct {
	files  [][]byte
	images []imaging.Image
	next   *atomic.Int64
}

func (q *queue) Next() *jpeg.Job {
	i := int(q.next.Add(1)) - 1
	if i >= len(q.files) {
		return nil
	}
	return &jpeg.Job{Data: q.files[i], Image: &q.images[i]}
}

func (q *queue) Done(j *jpeg.Job) {
	if j.Err != nil {
		log.Fatal(j.Err)
	}
}

// With a file's seek points, a region is decoded from its own first row on. Keep them beside
// the file, with a checksum of it.
func ExampleDecoder_MakeSeek() {
	data := photograph()
	var d jpeg.Decoder
	points, err := d.MakeSeek(data, 0)
	if err != nil {
		log.Fatal(err)
	}
	stored := points.Append(nil)

	var m imaging.Image
	jobs := []jpeg.Job{{Data: data, Points: stored, Image: &m, Options: jpeg.Options{Y: 400, Width: 640, Height: 80}}}
	d.DecodeAll(jobs)
	if err := errors.Join(jobs[0].Err, jobs[0].SeekErr); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(stored) < 300, m.Width, m.Height)
	// Output: true 640 80
}

// A file that was cut shows what there is of it, if that is wanted.
func ExampleDamagedError() {
	data := photograph()
	data = data[:len(data)/2]
	var d jpeg.Decoder
	var m imaging.Image
	err := d.Decode(data, &m, jpeg.Options{Damaged: jpeg.Keep})
	var damaged *jpeg.DamagedError
	if errors.As(err, &damaged) && errors.Is(err, jpeg.ErrTruncated) {
		fmt.Println("rows from", damaged.Row, "of", m.Height, "are not there")
	}
	// Output: rows from 223 of 480 are not there
}

// photograph is a JPEG file.
func photograph() []byte {
	var m imaging.Image
	m.Reset(640, 480)
	for y := range m.Height {
		for x := range m.Width {
			copy(m.Pix[y*m.Stride+3*x:], []uint8{uint8(x * 255 / 640), uint8(y * 255 / 480), 64})
		}
	}
	data, err := new(jpeg.Encoder).Encode(nil, &m, jpeg.EncodeOptions{Quality: 90})
	if err != nil {
		log.Fatal(err)
	}
	return data
}

// A file in another format, or too large, becomes a JPEG of quality 90, with the
// profile that says what its colours mean.
func ExampleEncoder_Encode() {
	var img imaging.Image // decoded, scaled
	var profile []byte    // of the source
	segments, err := jpeg.AppendICC(nil, profile)
	if err != nil {
		log.Fatal(err)
	}
	var e jpeg.Encoder
	data, err := e.Encode(nil, &img, jpeg.EncodeOptions{Quality: 90, Segments: segments})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(data))
}

// A progressive file becomes a baseline file, which is compared with it.
func ExampleTranscoder() {
	data, err := os.ReadFile("progressive.jpg")
	if err != nil {
		log.Fatal(err)
	}
	var t jpeg.Transcoder
	baseline, err := t.Transcode(nil, data, jpeg.TranscodeOptions{Verify: true})
	var unsupported *jpeg.UnsupportedError
	switch {
	case errors.As(err, &unsupported):
		baseline = data // stays as it is
	case err != nil:
		log.Fatal(err)
	}
	if err := os.WriteFile("baseline.jpg", baseline, 0o644); err != nil {
		log.Fatal(err)
	}
}
