package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// verify measures how fast a data set is checked, on one core and on all.
func (b *bench) verify(ctx context.Context) (report, error) {
	src, n, _, note, err := b.photographs(ctx)
	if err != nil {
		return report{}, err
	}
	data := filepath.Join(b.dir, "shards")
	if err := b.do(ctx, b.shardify, "pack", src, data); err != nil {
		return report{}, err
	}
	_, size, err := files(ctx, data, true)
	if err != nil {
		return report{}, err
	}
	pin, how := onOneCore()
	one := func(argv ...string) []string { return append(pin[:len(pin):len(pin)], argv...) }
	processes := []*process{
		{name: "cat", argv: one("sh", "-c", `exec cat "$1"/*.tar >/dev/null`, "sh", data)},
		{name: "md5sum", argv: one("sh", "-c", `exec md5sum "$1"/*.tar`, "sh", data)},
		{name: "shardify verify, one core", env: []string{"GOMAXPROCS=1"}, argv: one(b.shardify, "verify", data)},
		{name: "shardify verify", argv: []string{b.shardify, "verify", data}},
	}
	runs, err := b.alternate(ctx, processes, nil)
	if err != nil {
		return report{}, err
	}
	return report{
		Title: "Verifying a data set", Date: time.Now().UTC(), Unit: "images",
		Files: n, Bytes: size, Rows: b.rows(processes, runs, "md5sum"),
		Notes: []string{
			note + " Packed with the defaults.",
			fmt.Sprintf("%d rounds in one run, shards in the page cache. cat, md5sum and the first of ours run on %s.", b.rounds, how),
			"cat is the cost of reading alone. verify compares every shard's and index's CRC-64, every field's CRC-32C, and the container's structure with the index.",
		},
	}, nil
}
