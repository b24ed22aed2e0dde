package folder

import (
	"context"
	"errors"
	"io"
	"os"

	"shardify/source"
)

// readPortable is read made of package os.
func readPortable(ctx context.Context, loc source.Location, buf []byte, part bool) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := os.Open(loc.Name)
	if err != nil {
		return nil, ReadError(loc, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, ReadError(loc, err)
	}
	if err := check(loc, part, info.Mode().IsRegular(), info.Size(), info.ModTime().UnixNano()); err != nil {
		return nil, err
	}
	data, err := room(loc, buf)
	if err != nil {
		return nil, err
	}
	n, err := io.ReadFull(io.NewSectionReader(f, loc.Offset, loc.Size), data)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, changed(loc, "it ends after %d bytes, not %d", n, loc.Size)
	}
	if err != nil {
		return nil, ReadError(loc, err)
	}
	return data, nil
}
