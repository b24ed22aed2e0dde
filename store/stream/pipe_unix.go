//go:build unix

package stream

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// openPipe opens what is no regular file, such as a named pipe: that waits for a
// writer, or for the end of ctx.
func openPipe(ctx context.Context, path string) (*os.File, error) {
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened, 1)
	go func() {
		f, err := os.Open(path)
		done <- opened{f, err}
	}()
	select {
	case o := <-done:
		return o.f, o.err
	case <-ctx.Done():
	}
	// A writer that comes and goes lets the open return.
	for {
		if fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
			_ = unix.Close(fd)
		} else if !errors.Is(err, unix.ENXIO) { // nobody reads: it has not begun, or is over
			return nil, fmt.Errorf("open %s: %w", path, context.Cause(ctx))
		}
		select {
		case o := <-done:
			if o.err == nil {
				_ = o.f.Close() // nothing was read
			}
			return nil, fmt.Errorf("open %s: %w", path, context.Cause(ctx))
		case <-time.After(time.Millisecond):
		}
	}
}

// reopen opens the pipe that f is anew, so that its reads can be interrupted; nil where
// that is not possible.
func reopen(f *os.File) *os.File {
	info, err := f.Stat()
	if err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		return nil
	}
	var again *os.File
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) {
		again, _ = os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	})
	if again == nil {
		return nil
	}
	if same, err := again.Stat(); err != nil || !os.SameFile(info, same) || again.SetReadDeadline(time.Time{}) != nil {
		_ = again.Close()
		return nil
	}
	return again
}

func isTerminal(f *os.File) bool {
	is := false
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { is = term.IsTerminal(int(fd)) })
	}
	return is
}
