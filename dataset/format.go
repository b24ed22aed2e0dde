package dataset

import (
	"context"
	"strings"

	"shardify/index"
	"shardify/shard"
	"shardify/store"
)

// format is how a data set's shards are to be read.
type format struct {
	container shard.Container
}

// rawReader reads a container before compression.
type rawReader interface {
	ReadAt(ctx context.Context, p []byte, off int64) (int, error)
	Close() error
}

// plain reads an uncompressed shard: its file is the container.
type plain struct{ store.Object }

func (plain) Close() error { return nil }

func (f format) open(_ context.Context, o store.Object) (rawReader, error) {
	return plain{o}, nil
}

func formatOf(m *index.Manifest) (format, error) {
	if m.Compression != "" {
		return format{}, &shard.UnsupportedError{Format: m.Compression, Msg: "compressed shards"}
	}
	return format{}, nil
}

func formatOfName(name string) (ending string, ok bool) {
	for _, e := range []string{".tar", ".tar.gz", ".tar.zst", ".tfrecord", ".tfrecord.gz"} {
		if strings.HasSuffix(name, e) {
			return e, true
		}
	}
	return "", false
}

func isShardName(name string) bool {
	_, ok := formatOfName(name)
	return ok
}
