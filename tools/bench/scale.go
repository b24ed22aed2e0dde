package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"
)

// scale measures a data set of very many tiny files, where memory and the cost of a
// file, not of a byte, are what counts.
func (b *bench) scale(ctx context.Context) (report, error) {
	src, out := filepath.Join(b.dir, "tiny"), filepath.Join(b.dir, "shards")
	b.say("making %s files\n", thousands(int64(b.files)))
	if err := b.do(ctx, "go", "run", "./tools/gendata", src, "--tiny", "--images", strconv.Itoa(b.files), "--classes", "1000"); err != nil {
		return report{}, err
	}
	n, size, err := files(ctx, src, true)
	if err != nil {
		return report{}, err
	}
	processes := []*process{
		{name: "find", argv: []string{"find", src, "-type", "f", "-size", "+1000000k"}},
		{name: "shardify pack --dry-run", argv: []string{b.shardify, "pack", src, out, "--dry-run", "--check", "none"}},
		{name: "shardify pack", out: out, argv: []string{b.shardify, "pack", src, out}},
	}
	runs, err := b.alternate(ctx, processes, func(p *process) error {
		if p.out == "" {
			return nil
		}
		return b.do(ctx, b.shardify, "verify", p.out)
	})
	if err != nil {
		return report{}, err
	}
	return report{
		Title: thousands(n) + " tiny files", Date: time.Now().UTC(), Unit: "files",
		Files: n, Bytes: size, Rows: b.rows(processes, runs, "find"),
		Notes: []string{
			fmt.Sprintf("%d rounds in one run, metadata and content in the cache.", b.rounds),
			"find looks at the size of every file, which is the least a scan can do, with one thread. The dry run scans and plans: it lists, looks at sizes and times, groups, numbers, shuffles and cuts into shards, without opening a file.",
		},
	}, nil
}
