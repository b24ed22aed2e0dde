package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"time"
)

// localPath is the path of a file URL.
func localPath(path string) string {
	if runtime.GOOS == "windows" && len(path) > 2 && path[0] == '/' && path[2] == ':' {
		return path[1:]
	}
	return path
}

// File is a regular file being read. Besides being read it can be skipped, and read
// at offsets.
type File struct {
	ctx  context.Context
	f    *os.File
	size int64
	at   int64
}

// Size is the file's size when it was opened.
func (f *File) Size() int64 { return f.size }

func (f *File) Read(p []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, context.Cause(f.ctx)
	}
	n, err := f.f.Read(p)
	f.at += int64(n)
	return n, err
}

// ReadAt is io.ReaderAt's.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, context.Cause(f.ctx)
	}
	return f.f.ReadAt(p, off)
}

// Skip moves past n bytes, fewer with an error, which is io.EOF at the end.
func (f *File) Skip(n int64) (int64, error) {
	if n > f.size-f.at {
		// A file that grows meanwhile is as long as it was.
		left := max(0, f.size-f.at)
		f.at += left
		return left, io.EOF
	}
	at, err := f.f.Seek(n, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	f.at = at
	return n, nil
}

// Close closes the file.
func (f *File) Close() error { return f.f.Close() }

// openPath opens a file, or waits for a pipe's writer.
func openPath(ctx context.Context, path string) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s: %w: it is a folder", path, fs.ErrInvalid)
	case !info.Mode().IsRegular():
		f, err := openPipe(ctx, path)
		if err != nil {
			return nil, err
		}
		return interruptible(ctx, f, f.Close), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &File{ctx: ctx, f: f, size: info.Size()}, nil
}

func openStdin(ctx context.Context) (io.ReadCloser, error) {
	stay := func() error { return nil } // it is the process's
	info, err := os.Stdin.Stat()
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	if info.Mode()&fs.ModeCharDevice != 0 && isTerminal(os.Stdin) {
		return nil, fmt.Errorf("standard input: %w: it is a terminal; pipe a shard into it: COMMAND | shardread … -", fs.ErrInvalid)
	}
	if !info.Mode().IsRegular() && os.Stdin.SetReadDeadline(time.Time{}) != nil {
		if again := reopen(os.Stdin); again != nil {
			return interruptible(ctx, again, again.Close), nil
		}
	}
	return interruptible(ctx, os.Stdin, stay), nil
}

// interruptible reads f until ctx ends.
func interruptible(ctx context.Context, f *os.File, end func() error) io.ReadCloser {
	r := &interruptibleFile{ctx: ctx, f: f, end: end}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		r.stop = func() bool { return true } // a read of a file ends by itself
		return r
	}
	if f.SetReadDeadline(time.Time{}) == nil {
		r.stop = context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
		return r
	}
	return &abandoned{ctx: ctx, f: f, end: end, answers: make(chan answer, 1)}
}

type interruptibleFile struct {
	ctx  context.Context
	f    *os.File
	stop func() bool
	end  func() error
}

func (r *interruptibleFile) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	n, err := r.f.Read(p)
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) && r.ctx.Err() != nil {
		err = context.Cause(r.ctx)
	}
	return n, err
}

func (r *interruptibleFile) Close() error {
	r.stop()
	_ = r.f.SetReadDeadline(time.Time{}) // where it was possible it is again
	return r.end()
}

// abandoned reads a file whose reads cannot be interrupted, in a goroutine for each:
// when the context ends, one that waits is left behind.
type abandoned struct {
	ctx     context.Context
	f       *os.File
	end     func() error
	answers chan answer
	buf     []byte
}

type answer struct {
	n   int
	err error
}

func (a *abandoned) Read(p []byte) (int, error) {
	if a.ctx.Err() != nil {
		return 0, context.Cause(a.ctx)
	}
	if a.buf == nil {
		a.buf = make([]byte, 256<<10)
	}
	buf := a.buf[:min(len(p), len(a.buf))]
	go func() {
		n, err := a.f.Read(buf)
		a.answers <- answer{n, err}
	}()
	select {
	case got := <-a.answers:
		return copy(p, buf[:got.n]), got.err
	case <-a.ctx.Done():
		return 0, context.Cause(a.ctx)
	}
}

func (a *abandoned) Close() error { return a.end() }
