package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"shardify/dataset"
	"shardify/dataset/datasettest"
	"shardify/index"
	"shardify/store"
	"shardify/store/file"
)

// first measures the time from the start of a process to the first batch of a data set
// of 10,000 shards.
func (b *bench) first(ctx context.Context) (report, error) {
	const shards = 10_000
	dir := filepath.Join(b.dir, "set")
	st := file.New(dir)
	small, err := datasettest.Make(st, datasettest.Options{Shards: 1, Samples: 128})
	if err != nil {
		return report{}, err
	}
	m := *small.Manifest()
	split := m.Splits[0]
	one := split.Shards[0]
	split.Shards = nil
	for i := range shards {
		sh := one
		sh.Name, sh.Index.Name = fmt.Sprintf("many-%06d.tar", i), fmt.Sprintf("many-%06d.parquet", i)
		err := errors.Join(
			os.Link(filepath.Join(dir, one.Name), filepath.Join(dir, sh.Name)),
			os.Link(filepath.Join(dir, one.Index.Name), filepath.Join(dir, sh.Index.Name)))
		if err != nil {
			return report{}, err
		}
		split.Shards = append(split.Shards, sh)
	}
	split.Samples, split.Bytes = shards*one.Samples, shards*one.Bytes
	m.Splits = []index.Split{split}
	data, err := m.Encode()
	if err != nil {
		return report{}, err
	}
	if err := store.WriteAll(ctx, st, index.ManifestName, data); err != nil {
		return report{}, err
	}
	if _, err := dataset.Open(ctx, st); err != nil {
		return report{}, err
	}
	shardread := filepath.Join(b.root, "bin", "shardread"+exe())
	argv := func(more ...string) []string {
		return append([]string{shardread, "bench", dir, "--batches", "1", "--crop", "224"}, more...)
	}
	processes := []*process{
		{name: "shardread --help", argv: []string{shardread, "--help"}},
		{name: "first batch of 64, global", argv: argv()},
		{name: "first batch of 64, window", argv: argv("--shuffle", "window")},
		{name: "first batch of 64, shards", argv: argv("--shuffle", "shards")},
	}
	runs, err := b.alternate(ctx, processes, nil)
	if err != nil {
		return report{}, err
	}
	return report{
		Title: "First batch of 10,000 shards", Date: time.Now().UTC(), Unit: "processes",
		Files: 1, Rows: b.rows(processes, runs),
		Notes: []string{
			fmt.Sprintf("%d rounds in one run. The seconds are of the whole process, from its start to its end: manifest, plan, the indexes of the batch's shards, 64 small images.", b.rounds),
			"All shards are one file under 10,000 names, in the page cache.",
		},
	}, nil
}
