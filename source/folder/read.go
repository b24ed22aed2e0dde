package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"shardify/source"
)

// Read returns the content of a whole file, as source.Source's Read does; other
// sources of files use it too.
func Read(ctx context.Context, loc source.Location, buf []byte) ([]byte, error) {
	return read(ctx, loc, buf, false)
}

// ReadPart returns the loc.Size bytes of a file at loc.Offset, as Read does.
func ReadPart(ctx context.Context, loc source.Location, buf []byte) ([]byte, error) {
	return read(ctx, loc, buf, true)
}

// changed makes the error for a file that is not what was planned.
func changed(loc source.Location, format string, args ...any) error {
	return &source.EntryError{Path: loc.Name, Err: fmt.Errorf("%w: "+format, append([]any{source.ErrChanged}, args...)...)}
}

// ReadError makes of what the system says the error that source.Source's Read
// returns: one of this entry, or another.
func ReadError(loc source.Location, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return changed(loc, "vanished: %w", bare(err))
	}
	if isFatal(err) {
		return fmt.Errorf("%q: %w", loc.Name, err)
	}
	return &source.EntryError{Path: loc.Name, Err: bare(err)}
}

// check compares a file with what was planned: all of it, or a part.
func check(loc source.Location, part, regular bool, size, modTime int64) error {
	switch {
	case !regular:
		return changed(loc, "no longer a file")
	case part && (loc.Offset > size || loc.Size > size-loc.Offset):
		return changed(loc, "it ends at %d", size)
	case !part && size != loc.Size:
		return changed(loc, "its size is %d bytes, not %d", size, loc.Size)
	case loc.ModTime != 0 && modTime != loc.ModTime:
		return changed(loc, "it was written since")
	}
	return nil
}

// room returns a slice of size bytes, buf if that is large enough.
func room(loc source.Location, buf []byte) ([]byte, error) {
	if loc.Size < 0 || loc.Size > math.MaxInt || loc.Offset < 0 {
		return nil, &source.EntryError{Path: loc.Name, Err: fmt.Errorf("%d bytes at %d", loc.Size, loc.Offset)}
	}
	if int64(cap(buf)) >= loc.Size {
		return buf[:loc.Size], nil
	}
	return make([]byte, loc.Size), nil
}
