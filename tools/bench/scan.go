package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// copiesOfShards is how often each shard lies in the bucket that is indexed, so that the
// start of a process is a small part of what is measured.
const copiesOfShards = 4

// upload puts a file into the bucket, as others do.
const upload = "import boto3, sys; boto3.client('s3').upload_file(sys.argv[1], 'data', sys.argv[2])"

// scan measures reading shards in a bucket front to back: others', to be indexed and to be
// packed, and ours, to be verified; with latency and without.
func (b *bench) scan(ctx context.Context) (rep report, err error) {
	src, n, _, note, err := b.photographs(ctx)
	if err != nil {
		return rep, err
	}
	server, plain, late, stop, err := b.startFronts(ctx)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, stop()) }()

	// Shards as others leave them: without index and manifest.
	set := filepath.Join(b.dir, "set")
	if err := b.do(ctx, b.shardify, "pack", src, set, "--shard-size", "64MiB"); err != nil {
		return rep, err
	}
	tars, err := filepath.Glob(filepath.Join(set, "*.tar"))
	if err != nil || len(tars) == 0 {
		return rep, errors.Join(err, errors.New("there are no shards"))
	}
	_, size, err := files(ctx, set, false)
	if err != nil {
		return rep, err
	}
	for to, copies := range map[string]int{"once": 1, "often": copiesOfShards} {
		for i := range copies {
			for _, tar := range tars {
				cp := command(ctx, []string{b.python, "-c", upload, tar, fmt.Sprintf("%s/%d-%s", to, i, filepath.Base(tar))})
				cp.Env = append(os.Environ(), server.environment(server.endpoint)...)
				if out, err := cp.CombinedOutput(); err != nil {
					return rep, fmt.Errorf("upload: %w\n%s", err, tail(bytes.NewBuffer(out)))
				}
			}
		}
	}
	index := command(ctx, []string{b.shardify, "index", "s3://data/often", "--quiet"}) // for verify
	index.Env = append(os.Environ(), server.environment(server.endpoint)...)
	if out, err := index.CombinedOutput(); err != nil {
		return rep, fmt.Errorf("shardify index: %w\n%s", err, tail(bytes.NewBuffer(out)))
	}

	var processes []*process
	var to []string
	for _, c := range []struct {
		name, out string
		argv      []string
	}{
		{"index", "", []string{"index", "s3://data/often", "--force", "--quiet"}},
		{"verify", "", []string{"verify", "s3://data/often", "--quiet"}},
		{"pack", filepath.Join(b.dir, "packed"), []string{"pack", "s3://data/once", filepath.Join(b.dir, "packed"), "--shard-size", "64MiB"}},
	} {
		to = append(to, c.name)
		for _, at := range []*front{plain, late} {
			name := c.name
			if at == late {
				name += ", 50 ms"
			}
			processes = append(processes, &process{name: name, env: server.environment(at.url), out: c.out, argv: append([]string{b.shardify}, c.argv...)})
		}
	}
	runs, err := b.alternate(ctx, processes, nil)
	if err != nil {
		return rep, err
	}
	return report{
		Title: "Shards in a bucket, front to back", Date: time.Now().UTC(), Unit: "images",
		Files: n, Bytes: size, Rows: b.rows(processes, runs, to...),
		Notes: []string{
			note + " Packed into shards of 64 MiB, without their indexes.",
			fmt.Sprintf("index and verify read each shard %d times, under as many names; images/s and MB/s count only one of them. pack reads them once front to back, and then each photograph by itself.", copiesOfShards),
			fmt.Sprintf("%d rounds in one run, in turn; versitygw on loopback, with its files in the page cache, takes its part of the same cores. Times are those of whole processes.", b.rounds),
			"All go through a front, which passes requests on, at once or 50 ms later.",
		},
	}, nil
}
