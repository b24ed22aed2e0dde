package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// epoch measures shards → training batches of random crops.
func (b *bench) epoch(ctx context.Context) (report, error) {
	if _, err := os.Stat(b.python); err != nil {
		return report{}, fmt.Errorf("%w; run `make peers`", err)
	}
	shardread := filepath.Join(b.root, "bin", "shardread"+exe())
	if _, err := os.Stat(shardread); err != nil {
		return report{}, fmt.Errorf("%w; run `make build`", err)
	}
	src, n, _, note, err := b.photographs(ctx)
	if err != nil {
		return report{}, err
	}
	data := filepath.Join(b.dir, "shards")
	// As many shards for each of the peer's processes.
	if err := b.do(ctx, b.shardify, "pack", src, data, "--shard-size", "64MB"); err != nil {
		return report{}, err
	}
	_, size, err := files(ctx, data, true)
	if err != nil {
		return report{}, err
	}
	const batch = "256"
	script := filepath.Join(b.root, "tools", "bench", "webdataset_read.py")
	peer := func(processes int) *process {
		name := "webdataset + Pillow, 1 process"
		if processes > 1 {
			name = fmt.Sprintf("webdataset + Pillow, %d processes", processes)
		}
		return &process{name: name, selfTimed: true, argv: []string{b.python, script, data, strconv.Itoa(processes), batch}}
	}
	ours := func(workers int) *process {
		return &process{
			name: fmt.Sprintf("shardread bench, workers %d", workers), env: []string{"GOMAXPROCS=" + strconv.Itoa(workers)},
			argv: []string{shardread, "bench", data, "--crop", "224", "--batch", batch, "--workers", strconv.Itoa(workers), "--ends", "exact", "--json"},
		}
	}
	processes := []*process{peer(1), peer(2), ours(1), ours(2)}
	runs, err := b.alternate(ctx, processes, nil)
	if err != nil {
		return report{}, err
	}
	// All must have seen all images.
	for _, p := range processes {
		for _, r := range runs[p.name] {
			var line struct {
				Stats struct {
					Samples int64 `json:"samples"`
				} `json:"stats"`
			}
			seen := int64(0)
			if words := strings.Fields(r.stdout); p.selfTimed && len(words) == 2 {
				if seen, err = strconv.ParseInt(words[0], 10, 64); err != nil {
					return report{}, err
				}
			} else if err := json.Unmarshal([]byte(r.stdout), &line); err == nil {
				seen = line.Stats.Samples
			}
			if seen != n {
				return report{}, fmt.Errorf("%s has read %d images of %d", p.name, seen, n)
			}
		}
	}
	return report{
		Title: "An epoch of random crops", Date: time.Now().UTC(), unit: "images",
		Files: n, Bytes: size, Rows: rows(processes, runs, peer(2).name),
		Notes: []string{
			note + " Packed as tar; shards in the page cache.",
			"RandomResizedCrop to 224 x 224 and a flip, batches of 256 of bytes. " + strconv.Itoa(b.rounds) + " rounds in one run.",
			"shardread is charged for its whole process; the peer for neither start nor imports, nor for handing batches to the process that trains.",
		},
	}, nil
}
