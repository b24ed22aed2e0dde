package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"
)

const (
	copies    = 16
	classes   = 1000
	shardSize = 256 << 20
)

// photographs makes the task: copies of the photographs, or generated ones, in
// class folders; all in the page cache.
func (b *bench) photographs(ctx context.Context) (dir string, n, size int64, note string, err error) {
	dir = filepath.Join(b.dir, "photos")
	argv := []string{"go", "run", "./tools/gendata", dir, "--classes", strconv.Itoa(classes)}
	if b.photos != "" {
		photos, err := filepath.Abs(b.photos)
		if err != nil {
			return "", 0, 0, "", err
		}
		argv = append(argv, "--from", photos, "--copies", strconv.Itoa(copies))
		note = fmt.Sprintf("Input: %d copies of each photograph in %d class folders.", copies, classes)
	} else {
		argv = append(argv, "--images", "4000")
		note = fmt.Sprintf("Input: generated pictures in %d class folders, no photographs (PHOTOS=dir).", classes)
	}
	b.say("making the data\n")
	if err := b.do(ctx, argv...); err != nil {
		return "", 0, 0, "", err
	}
	if err := syncAll(dir); err != nil {
		return "", 0, 0, "", err
	}
	n, size, err = files(ctx, dir, true)
	return dir, n, size, note, err
}

// pack measures folder → shards.
func (b *bench) pack(ctx context.Context) (report, error) {
	src, n, size, note, err := b.photographs(ctx)
	if err != nil {
		return report{}, err
	}
	out := func(name string) string { return filepath.Join(b.dir, name) }
	bytes := strconv.Itoa(shardSize)
	const tar = "tar cf"
	processes := []*process{
		{name: tar, out: out("tar"),
			argv: []string{"sh", "-c", `mkdir "$2" && exec tar -C "$1" -cf "$2/all.tar" .`, "sh", src, out("tar")}},
	}
	smaller := map[string]bool{}
	for _, w := range writerTable {
		processes = append(processes, b.writer(w, src, out(w.data), shardSize))
		smaller[w.name] = w.smaller
	}
	processes = append(processes,
		&process{name: "shardify pack", out: out("shardify"),
			argv: []string{b.shardify, "pack", src, out("shardify"), "--shard-size", bytes}},
		&process{name: "shardify pack, tfrecord", out: out("shardify-tfrecord"),
			argv: []string{b.shardify, "pack", src, out("shardify-tfrecord"), "--shard-size", bytes, "--format", "tfrecord"}},
	)
	// What was written must hold all that was read, and ours must be sound.
	check := func(p *process) error {
		_, written, err := files(ctx, p.out, false)
		if err != nil {
			return err
		}
		if written < size && !smaller[p.name] || written < size/4 {
			return fmt.Errorf("%s wrote %d bytes of %d", p.name, written, size)
		}
		if p.argv[0] == b.shardify {
			return b.do(ctx, b.shardify, "verify", p.out)
		}
		return nil
	}
	runs, err := b.alternate(ctx, processes, check)
	if err != nil {
		return report{}, err
	}
	return report{
		Title: "Packing photographs", Date: time.Now().UTC(), Unit: "images",
		Files: n, Bytes: size, Rows: b.rows(processes, runs, tar, writerTable[0].name),
		Notes: []string{
			note,
			fmt.Sprintf("%d rounds in one run, the tools in turn; input in the page cache; time ends when all output is synced.", b.rounds),
			"tar makes one file and nothing else, in the order of the folders. The Python tools are timed from the first file, without start and imports (with them: process s, which the CPU time is of), and write labels; optimize and DatasetWriter with two processes. TFRecord and ArrayRecord have checksums, the others none. ArrayRecord compresses, as it does by default. DatasetWriter decodes and encodes every image, at quality 90. shardify is timed as a process: scan, shuffle, header check, checksums, shards, index, manifest.",
			"× is the rate as a multiple of that tool's, by medians. Peak memory is of all processes together, what they share counted once.",
		},
	}, nil
}
