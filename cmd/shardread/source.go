package main

import (
	"context"
	"errors"
	"iter"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"shardify/reader"
	"shardify/shard/formats"
	"shardify/store/stream"
)

// batches is what gives batches: a reader.Reader or a reader.Stream.
type batches interface {
	Epoch(ctx context.Context, epoch int) iter.Seq2[*reader.Batch, error]
	State(epoch int, batch int64) (reader.State, error)
	CheckState(s reader.State) error
	Epochs(ctx context.Context, from reader.State, end int) iter.Seq2[*reader.Batch, error]
	Config() reader.Config
	Stats() reader.Stats
	BadSamples() []reader.BadSample
	Close() error
}

// isStream says that DST names shards to be streamed, and no packed data set: standard
// input, a pattern, a file or a pipe, and of a web server a pattern or what has a shard's
// ending. A folder is a data set.
func isStream(dst string) bool {
	if dst == stream.Stdin || strings.HasPrefix(dst, "pipe:") {
		return true
	}
	if stream.IsHTTP(dst) {
		path := stream.Path(dst)
		_, err := formats.OfFile(path)
		return err == nil || strings.ContainsAny(path, "{*?[")
	}
	info, err := os.Stat(strings.TrimPrefix(dst, "file://"))
	if err == nil {
		return !info.IsDir()
	}
	_, err = formats.OfFile(dst)
	return err == nil || strings.ContainsAny(dst, "{*?[")
}

// openBatches opens DST for reading batches, as a data set or as streams.
func (o *configOptions) openBatches(ctx context.Context, dst string, c reader.Config) (batches, error) {
	if !isStream(dst) {
		return o.open(ctx, dst, c)
	}
	if len(o.mix) > 0 {
		return nil, usagef("--mix: %s has no index, which mixing needs: `shardify index` writes one beside the shards", stream.Title(dst))
	}
	s, err := reader.OpenStream(ctx, []string{dst}, c)
	if err == nil {
		return s, nil
	}
	if errors.Is(err, reader.ErrConfig) {
		err = usage(err)
	}
	return nil, err
}

// oneSource wants a data set or streams as the only argument.
func oneSource(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("DST, the data set's folder, is missing, or what names shards without an index: %s", cmd.UseLine())
	}
	return oneDataset(cmd, args)
}

// streamHelp is for the commands that take streams.
const streamHelp = `
DST may also name shards that have no index, in the way of webdataset: a file, a
pattern ('/data/x-{000..146}.tar', '/data/*.tar.zst'), a URL of shards
('https://host/x-{000..146}.tar'), a named pipe, or - for standard input. They are read
from front to back, shuffled by a sliding buffer (--window, by default 4096 samples and
half of --memory), and their length is not known: give --samples where ranks must have equally many
batches. --resume makes their order over again to find its place.`
