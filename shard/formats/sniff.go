package formats

import (
	"bytes"
	"errors"
	"fmt"

	"shardify/shard"
	"shardify/shard/compress"
	"shardify/shard/tar"
	"shardify/shard/tfrecord"
)

// HeadSize is how many bytes of a shard tell its format.
const HeadSize = 512

// CompressionOf returns the compression of a file by its first bytes: compress.None
// where they are none's.
func CompressionOf(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return compress.Gzip
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}),
		len(head) >= 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:4], []byte{0x2a, 0x4d, 0x18}): // a skippable frame
		return compress.Zstd
	}
	return compress.None
}

// ContainerOf returns the container of what begins with head, HeadSize bytes or all
// there is, before compression: by these bytes, or by the file's name where they do
// not tell, as those of an empty file.
func ContainerOf(head []byte, name string) (shard.Container, error) {
	switch {
	case tar.Begins(head):
		return tar.Container{}, nil
	case tfrecord.Begins(head):
		return tfrecord.Container{}, nil
	case len(head) == 0:
		if f, err := OfFile(name); err == nil && f.Container.Name() == (tfrecord.Container{}).Name() {
			return f.Container, nil // what TensorFlow writes where a shard has no records
		}
		return nil, fmt.Errorf("%w: it is empty", shard.ErrTruncated)
	}
	if f, err := OfFile(name); err == nil {
		return f.Container, nil // and says what is wrong with it
	}
	if bytes.HasPrefix(bytes.TrimSpace(head), []byte("<")) {
		return nil, errors.New("this is no shard but a page of HTML or XML: does the server want a login, or is the link one to a page about the file?")
	}
	return nil, fmt.Errorf("this is no shard: it begins with % x, as neither tar nor TFRecord does", head[:min(len(head), 8)])
}
