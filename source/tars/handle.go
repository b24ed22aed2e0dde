package tars

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"shardify/shard/compress"
	"shardify/source"
	"shardify/source/folder"
	"shardify/store"
	"shardify/store/ahead"
)

// handle is a shard that is open for reading: a file of this machine, or an object of a
// store. It may be read by many goroutines at once.
type handle interface {
	// ReadAt is as that of io.ReaderAt. What a store says is a *storeError.
	compress.Source
	// state returns the size of what is read, and its stamp, as source.Location has it in
	// ModTime. Those of a file are what they are now, those of an object never change.
	state() (size, stamp int64, err error)
	// front returns a reader from the beginning to the end, for one goroutine; of an object
	// it has so many ranges in memory.
	front(ctx context.Context, ranges int) front
	Close() error
}

// front reads a shard front to back. Close it, and what reads it before that.
type front interface {
	io.Reader
	// Begin asks for what is read first, without waiting, where that takes long.
	Begin()
	// failure is the *storeError that a Read has returned, if one has: decoders do not
	// always hand it on as it is.
	failure() error
	Close()
}

// storeError is what a store says of an object, which is not what the bytes say of a shard.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

// readError makes of an error of a handle the one that Read returns.
func readError(loc source.Location, err error) error {
	var of *storeError
	if errors.As(err, &of) {
		return folder.ObjectError(loc, of.err)
	}
	return folder.ReadError(loc, err)
}

// open opens the shard. An object must be that of the given stamp, or if that is 0, of the
// one that it is known by.
func (f *file) open(ctx context.Context, stamp int64) (handle, error) {
	if f.st == nil {
		file, _, err := openRegular(f.path)
		if err != nil {
			return nil, err
		}
		return localFile{file}, nil
	}
	o, size, known, err := f.openObject(ctx)
	if err != nil {
		return nil, &storeError{err}
	}
	return &object{of: o, path: f.path, size: size, stamp: cmp.Or(stamp, known)}, nil
}

// localFile is a file of this machine.
type localFile struct{ *os.File }

func (l localFile) ReadAt(_ context.Context, p []byte, off int64) (int, error) {
	return l.File.ReadAt(p, off)
}

func (l localFile) state() (size, stamp int64, err error) {
	info, err := l.Stat()
	if err != nil {
		return 0, 0, err
	}
	return info.Size(), info.ModTime().UnixNano(), nil
}

func (l localFile) front(ctx context.Context, _ int) front { return &watched{ctx, l.File} }

// watched is a file that ends with its context.
type watched struct {
	ctx context.Context
	r   io.Reader
}

func (w *watched) Read(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.r.Read(p)
}

func (*watched) Begin()         {}
func (*watched) failure() error { return nil }
func (*watched) Close()         {}

// object is an object of a store.
type object struct {
	of    store.Object
	path  string
	size  int64
	stamp int64 // that it must have; 0: any
}

func (o *object) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	n, err := o.of.ReadAt(ctx, p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, &storeError{err}
	}
	if o.stamp != 0 && n > 0 && folder.VersionOf(o.of.Info()) != o.stamp {
		return 0, &storeError{fmt.Errorf("read %s: %w: it was written since it was listed", o.path, store.ErrChanged)}
	}
	return n, err
}

func (o *object) state() (size, stamp int64, err error) { return o.size, o.stamp, nil }
func (o *object) Close() error                          { return o.of.Close() }

// front reads the object front to back, ranges before they are needed.
func (o *object) front(ctx context.Context, ranges int) front {
	return &objectFront{Reader: ahead.NewReader(ctx, o, o.size, ranges), path: o.path}
}

type objectFront struct {
	*ahead.Reader
	path string
}

func (f *objectFront) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if n == 0 && err != nil && err != io.EOF {
		err = f.failure()
	}
	return n, err
}

// failure is what a range has ended with, which is of the store.
func (f *objectFront) failure() error {
	err := f.Err()
	if err == nil || errors.As(err, new(*storeError)) {
		return err
	}
	return &storeError{fmt.Errorf("read %s: %w", f.path, err)}
}

// inOrder is a handle of which most is read in order, as a front can. It is not for
// concurrent use.
type inOrder struct {
	handle
	f    front
	at   int64         // of f
	n    *atomic.Int64 // counts what is read
	fail error         // the *storeError that was met
}

func (r *inOrder) ReadAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	if off == r.at {
		n, err = io.ReadFull(r.f, p)
		if err == io.ErrUnexpectedEOF {
			err = io.EOF
		}
		r.at += int64(n)
	} else {
		n, err = r.handle.ReadAt(ctx, p, off)
	}
	r.n.Add(int64(n))
	var of *storeError
	if errors.As(err, &of) && r.fail == nil {
		r.fail = of
	}
	return n, err
}

// withContext makes an io.ReaderAt of a compress.Source.
type withContext struct {
	ctx context.Context
	r   compress.Source
}

func (w withContext) ReadAt(p []byte, off int64) (int, error) { return w.r.ReadAt(w.ctx, p, off) }
