package jpeg_test

import (
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

func readFiles() [][]byte { return nil }
