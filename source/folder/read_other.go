//go:build !linux

package folder

import (
	"context"

	"shardify/source"
)

func read(ctx context.Context, loc source.Location, buf []byte, part bool) ([]byte, error) {
	return readPortable(ctx, loc, buf, part)
}
