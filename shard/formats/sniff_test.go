package formats

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"shardify/sample"
	"shardify/shard"
	"shardify/shard/compress"
)

// Every format is told by its first bytes, whatever its file is called.
func TestSniff(t *testing.T) {
	for _, f := range All() {
		var file bytes.Buffer
		z, err := compress.NewWriter(&file, f.Compression, 0)
		if err != nil {
			t.Fatal(err)
		}
		w := f.Container.NewWriter(z)
		_, err = w.Write(&sample.Sample{Key: "a", Fields: []sample.Field{{Name: "txt", Data: []byte("text")}}}, &shard.Facts{Label: -1, Image: -1})
		if err := errors.Join(err, w.Close(), z.Close()); err != nil {
			t.Fatal(err)
		}
		kind := CompressionOf(file.Bytes())
		if kind != f.Compression {
			t.Errorf("%s: compression %q", f, kind)
			continue
		}
		r, err := compress.NewReader(&file, kind)
		if err != nil {
			t.Fatal(err)
		}
		head := make([]byte, HeadSize)
		n, _ := io.ReadFull(r, head)
		if c, err := ContainerOf(head[:n], "x.bin"); err != nil || c != f.Container {
			t.Errorf("%s: %v, %v", f, c, err)
		}
	}
	for _, c := range []struct{ head, name, want string }{
		{"", "x.tfrecord-00000-of-00001", "tfrecord"},
		{"", "x.tar", "empty"},
		{"nonsense", "x.tar.gz", "tar"},
		{"nonsense", "x", "neither"},
		{" <!DOCTYPE html>", "x", "HTML"},
		{strings.Repeat("\x00", 512), "x", "tar"},
	} {
		got, err := ContainerOf([]byte(c.head), c.name)
		if err == nil && got.Name() != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %q: %v, %v", c.head, c.name, got, err)
		}
	}
	if CompressionOf([]byte("\x5e\x2a\x4d\x18")) != compress.Zstd {
		t.Error("a skippable frame is not taken for zstd")
	}
}
