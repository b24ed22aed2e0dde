package dataset

import (
	"context"
	"io"
	"path"
	"strings"

	"shardify/index"
	"shardify/shard/compress"
	"shardify/shard/formats"
	"shardify/store"
)

// rawReader reads a container at its offsets before compression.
type rawReader interface {
	ReadAt(ctx context.Context, p []byte, off int64) (int, error)
}

// openRaw opens the container in an object.
func openRaw(ctx context.Context, f formats.Format, o store.Object, frames *compress.Frames) (rawReader, error) {
	if f.Compression == compress.None {
		return o, nil
	}
	return compress.NewSourceReader(ctx, o, o.Info().Size, f.Compression, frames)
}

// streamRaw reads the container in r front to back.
func streamRaw(f formats.Format, r io.Reader) (io.ReadCloser, error) {
	return compress.NewReader(r, f.Compression)
}

func formatOf(m *index.Manifest) (formats.Format, error) {
	return formats.Of(m.Container, m.Compression)
}

// isShard says whether a name is that of a shard.
func isShard(name string) bool {
	_, err := formats.OfFile(name)
	return err == nil
}

// IndexName returns the name of the index that goes with a shard: .parquet in place
// of the format's ending. "train/000000.tar.zst" has "train/000000.parquet", and
// "a.tfrecord-00000-of-00008" has "a-00000-of-00008.parquet".
func IndexName(shard string) string {
	dir, base := path.Split(shard)
	if f, err := formats.OfFile(base); err == nil {
		if at := strings.LastIndex(strings.ToLower(base), f.Extension()); at >= 0 {
			base = base[:at] + base[at+len(f.Extension()):]
		} else {
			// The ending is another spelling of the format's: .tgz.
			base = strings.TrimSuffix(base, path.Ext(base))
		}
	}
	return dir + base + ".parquet"
}
