package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"math"

	"shardify/source"
)

// changed makes the error for a file that is not what was planned.
func changed(loc source.Location, format string, args ...any) error {
	return &source.EntryError{Path: loc.Name, Err: fmt.Errorf("%w: "+format, append([]any{source.ErrChanged}, args...)...)}
}

// readErr makes an error of one file of what the system says, or leaves it.
func readErr(loc source.Location, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return changed(loc, "vanished: %w", bare(err))
	}
	if isFatal(err) {
		return fmt.Errorf("%q: %w", loc.Name, err)
	}
	return &source.EntryError{Path: loc.Name, Err: bare(err)}
}

// check compares a file with what was planned.
func check(loc source.Location, regular bool, size, modTime int64) error {
	switch {
	case !regular:
		return changed(loc, "no longer a file")
	case size != loc.Size:
		return changed(loc, "its size is %d bytes, not %d", size, loc.Size)
	case loc.ModTime != 0 && modTime != loc.ModTime:
		return changed(loc, "it was written since")
	}
	return nil
}

// room returns a slice of size bytes, buf if that is large enough.
func room(loc source.Location, buf []byte) ([]byte, error) {
	if loc.Size < 0 || loc.Size > math.MaxInt {
		return nil, &source.EntryError{Path: loc.Name, Err: fmt.Errorf("a size of %d bytes", loc.Size)}
	}
	if int64(cap(buf)) >= loc.Size {
		return buf[:loc.Size], nil
	}
	return make([]byte, loc.Size), nil
}
