package folder

import (
	"context"

	"golang.org/x/sys/unix"

	"shardify/source"
)

// read makes four system calls, where os.Open would make a fifth to watch the file
// for readiness.
func read(ctx context.Context, loc source.Location, buf []byte, part bool) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// With O_NONBLOCK, a pipe that has taken the file's place does not block.
	fd, err := unix.Open(loc.Name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	for err == unix.EINTR {
		fd, err = unix.Open(loc.Name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		return nil, ReadError(loc, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, ReadError(loc, err)
	}
	if err := check(loc, part, st.Mode&unix.S_IFMT == unix.S_IFREG, st.Size, st.Mtim.Nano()); err != nil {
		return nil, err
	}
	data, err := room(loc, buf)
	if err != nil {
		return nil, err
	}
	for n := 0; n < len(data); {
		m, err := unix.Pread(fd, data[n:], loc.Offset+int64(n)) // at most 2 GiB a call
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, ReadError(loc, err)
		case m == 0:
			return nil, changed(loc, "it ends after %d bytes, not %d", n, loc.Size)
		default:
			n += m
		}
	}
	return data, nil
}
