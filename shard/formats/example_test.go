package formats_test

import (
	"bytes"
	"fmt"
	"log"

	"shardify/sample"
	"shardify/shard/compress"
	"shardify/shard/formats"
)

// A shard is written through a container and a compressor, which is told where each
// sample ends; and read as a stream, or sample by sample at offsets.
func Example() {
	format, err := formats.Parse("tar.zst")
	if err != nil {
		log.Fatal(err)
	}

	var file bytes.Buffer
	z, err := compress.NewWriter(&file, format.Compression, 0)
	if err != nil {
		log.Fatal(err)
	}
	w := format.Container.NewWriter(z)
	s := sample.Sample{Key: "n01440764/10026", Fields: []sample.Field{
		{Name: "cls", Data: []byte("0")},
		{Name: "jpg", Data: []byte("the bytes of a photograph")},
	}}
	place, err := w.Write(&s, nil)
	if err != nil {
		log.Fatal(err)
	}
	z.EndSample(place.Offset + place.Size)
	place.Fields = nil // valid until the next Write
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	if err := z.Close(); err != nil {
		log.Fatal(err)
	}

	stream, err := compress.NewReader(bytes.NewReader(file.Bytes()), format.Compression)
	if err != nil {
		log.Fatal(err)
	}
	defer stream.Close()
	for s, err := range format.Container.Scan(stream, 1<<30) {
		if err != nil {
			log.Fatal(err)
		}
		for i, f := range s.Sample.Fields {
			fmt.Printf("%s.%s: %d bytes at %d\n", s.Key, f.Name, len(f.Data), s.Placement.Fields[i].Offset)
		}
	}

	at, err := compress.NewReaderAt(bytes.NewReader(file.Bytes()), int64(file.Len()), format.Compression)
	if err != nil {
		log.Fatal(err)
	}
	frame := make([]byte, place.Size)
	if _, err := at.ReadAt(frame, place.Offset); err != nil {
		log.Fatal(err)
	}
	again, err := format.Container.Parse(frame, place.Offset)
	if err != nil {
		log.Fatal(err)
	}
	class, _ := again.Field("cls")
	fmt.Printf("class %s\n", class)
	// Output:
	// n01440764/10026.cls: 1 bytes at 512
	// n01440764/10026.jpg: 25 bytes at 1536
	// class 0
}
