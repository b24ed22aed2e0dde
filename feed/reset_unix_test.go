//go:build unix

package feed

import (
	"errors"

	"golang.org/x/sys/unix"
)

// isReset says that the other side has closed a connection with bytes unread.
func isReset(err error) bool { return errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) }
