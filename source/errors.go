package source

import (
	"errors"
	"fmt"
)

var (
	// ErrChanged: the file is not what it was when the data set was planned.
	ErrChanged = errors.New("changed since the data set was planned")
	// ErrDuplicate: two files would be the same field of one sample.
	ErrDuplicate = errors.New("duplicate")
)

// EntryError is a fault of one entry: a broken link, a file that may not be read,
// a row without a label. What becomes of it is the user's policy for bad files.
type EntryError struct {
	// Path is the entry's path within the source.
	Path string
	Err  error
}

func (e *EntryError) Error() string { return fmt.Sprintf("%q: %v", e.Path, e.Err) }
func (e *EntryError) Unwrap() error { return e.Err }
