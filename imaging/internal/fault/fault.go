// Package fault has the errors of imaging, for imaging and for the packages below
// it that imaging imports. Both give them to their callers under their own names.
package fault

import (
	"errors"
	"fmt"
)

// ErrTruncated is wrapped by errors for files that end early.
var ErrTruncated = errors.New("the file ends early")

// ErrTooLarge is wrapped by errors for images of more pixels than the caller
// allows.
var ErrTooLarge = errors.New("too many pixels")

// FormatError is a breach of a format's rules: the file is damaged.
type FormatError struct {
	Format string
	// Offset is where in the file the fault lies, or -1 if the decoder did not
	// say.
	Offset int64
	// Msg says what is wrong.
	Msg string
}

func (e *FormatError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("%s: %s", e.Format, e.Msg)
	}
	return fmt.Sprintf("%s: %s (at byte %d)", e.Format, e.Msg, e.Offset)
}

// UnsupportedError is a legal file that uses what we do not decode.
type UnsupportedError struct {
	Format string
	// Msg names the feature.
	Msg string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s: %s: not supported; convert the image to another kind", e.Format, e.Msg)
}

// Truncated is the error for a file of size bytes that ends inside what.
func Truncated(format, what string, size int) error {
	return fmt.Errorf("%s: %w: %d bytes, and it stops inside %s", format, ErrTruncated, size, what)
}

// Malformed is a FormatError.
func Malformed(format string, offset int, msg string) error {
	return &FormatError{Format: format, Offset: int64(offset), Msg: msg}
}
