package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"shardify/source"
)

// kind is what a child of a folder is.
type kind uint8

const (
	other     kind = iota // a pipe, a socket, a device
	file                  // a regular file, or a link to one
	dir                   // a folder
	link                  // a link, or unknown: stat tells
	linkedDir             // a folder that stat found at a link
)

// child is a name in a folder.
type child struct {
	path string // with the folder's prefix
	kind kind
}

// isFatal says that an error is not of one file, but will be met with the next one
// just as well.
func isFatal(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// fault makes an error of one entry, unless it is more than that.
func fault(rel string, err error) error {
	if isFatal(err) {
		return err
	}
	return &source.EntryError{Path: strings.TrimSuffix(rel, "/"), Err: bare(err)}
}

// bare leaves out the path that package os puts into its errors.
func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

func brokenLink(to string, err error) error {
	return fmt.Errorf("a broken link, to %q: %w", to, bare(err))
}
