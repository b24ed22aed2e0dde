package folder

import (
	"context"

	"golang.org/x/sys/unix"

	"shardify/source"
)

// Read returns the content of a whole file, as source.Source's Read does; other
// sources of files use it too. On Linux it makes four system calls, where os.Open
// would make a fifth to watch the file for readiness.
func Read(ctx context.Context, loc source.Location, buf []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// With O_NONBLOCK, a pipe that has taken the file's place does not block.
	fd, err := unix.Open(loc.Name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	for err == unix.EINTR {
		fd, err = unix.Open(loc.Name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		return nil, readErr(loc, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, readErr(loc, err)
	}
	if err := check(loc, st.Mode&unix.S_IFMT == unix.S_IFREG, st.Size, st.Mtim.Nano()); err != nil {
		return nil, err
	}
	data, err := room(loc, buf)
	if err != nil {
		return nil, err
	}
	for n := 0; n < len(data); {
		m, err := unix.Read(fd, data[n:]) // at most 2 GiB a call
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, readErr(loc, err)
		case m == 0:
			return nil, changed(loc, "it ends after %d bytes, not %d", n, loc.Size)
		default:
			n += m
		}
	}
	return data, nil
}
