package feed

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"
)

// maxSocketPath is how long the path of a Unix socket may be on every system.
const maxSocketPath = 103

// Listen makes a Unix socket that only its user may open. One that a dead server has left
// is replaced; one that is served, and any other file, is an error.
func Listen(path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("%s: the path has %d bytes, where sockets may have %d: use a shorter one, such as in /tmp", path, len(path), maxSocketPath)
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s is there, and is no socket", path)
	default:
		conn, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			_ = conn.Close()
			return nil, fmt.Errorf("%s: a server is there already", path)
		}
		if !isRefused(err) {
			return nil, err
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return listenPrivate(path)
}
