//go:build unix

package feed

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// listenPrivate makes a socket with mode 0600 from its first moment on.
func listenPrivate(path string) (net.Listener, error) {
	old := unix.Umask(0o177)
	defer unix.Umask(old)
	return net.Listen("unix", path)
}

// isRefused says that nobody listens.
func isRefused(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }
