package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"shardify/tools/gendata/jpegstat"
)

// stats writes a table of what the JPEG files below each folder are like. Files that
// do not begin as JPEGs do are not counted; damaged ones are named on stderr.
func stats(ctx context.Context, dirs []string, stdout, stderr io.Writer) error {
	var sets []*jpegstat.Summary
	for _, dir := range dirs {
		files, err := parseTree(ctx, dir, stderr)
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return fmt.Errorf("%q has no JPEG files", dir)
		}
		sets = append(sets, jpegstat.Summarise(files))
	}
	var names []string
	for _, dir := range dirs {
		names = append(names, filepath.Base(dir))
	}
	return jpegstat.Write(stdout, names, sets)
}

// parseTree measures the JPEG files below dir, in no particular order.
func parseTree(ctx context.Context, dir string, stderr io.Writer) ([]jpegstat.File, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	group, ctx := errgroup.WithContext(ctx)
	paths := make(chan string)
	group.Go(func() error {
		defer close(paths)
		return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			select {
			case paths <- path:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	var mu sync.Mutex
	var files []jpegstat.File
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() error {
			for path := range paths {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				if !bytes.HasPrefix(data, []byte{0xff, 0xd8, 0xff}) {
					continue
				}
				file, err := jpegstat.Parse(data)
				mu.Lock()
				if err != nil {
					fmt.Fprintf(stderr, "not counted: %s: %v\n", path, err)
				} else {
					files = append(files, file)
				}
				mu.Unlock()
			}
			return nil
		})
	}
	err = group.Wait()
	return files, err
}
