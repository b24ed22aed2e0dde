//go:build !linux

package folder

import (
	"context"

	"shardify/source"
)

// Read returns the content of a whole file, as source.Source's Read does; other
// sources of files use it too.
func Read(ctx context.Context, loc source.Location, buf []byte) ([]byte, error) {
	return readPortable(ctx, loc, buf)
}
