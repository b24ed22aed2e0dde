package jpeg_test

import (
	"errors"
	"fmt"
	"log"
	"os"

	"shardify/imaging"
	"shardify/imaging/jpeg"
	"shardify/imaging/resize"
	"shardify/imaging/tensor"
)

func Example() {
	data, err := os.ReadFile("cat.jpg")
	if err != nil {
		log.Fatal(err)
	}
	var d jpeg.Decoder
	var m imaging.Image
	if err := d.Decode(data, &m, jpeg.Options{Orient: true}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Width, m.Height)
}

// A random crop of each of some files, scaled to 224 x 224, in the places of a batch.
func ExampleDecoder_DecodeAll() {
	files := readFiles() // of a batch
	batch := make([]uint8, len(files)*3*224*224)
	jobs := make([]jpeg.Job, len(files))
	for i, data := range files {
		j := &jobs[i]
		j.Data = data
		j.X, j.Y, j.Width, j.Height = 10, 20, 300, 200
		j.Task = resize.Task{Part: resize.Rect{X1: 300, Y1: 200}, Width: 224, Height: 224, FlipX: i%2 == 0}
		j.Target = resize.Target{Width: 224, Height: 224, Layout: tensor.NCHW, Uint8: batch[i*3*224*224:][:3*224*224]}
	}
	var d jpeg.Decoder
	d.DecodeAll(jobs)
	for i := range jobs {
		if jobs[i].Err != nil {
			log.Fatalf("file %d: %v", i, jobs[i].Err)
		}
	}
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

func readFiles() [][]byte { return nil }
