//go:build !unix

package feed

import (
	"io"
	"net"
	"os"
)

// fileQueue is empty: files do not go over sockets.
type fileQueue struct{}

func (*fileQueue) reader(conn net.Conn) io.Reader { return conn }
func (*fileQueue) next() *os.File                 { return nil }
func (*fileQueue) close()                         {}

func mapSlab(*os.File, int64) (*clientSlab, error) { return nil, errNoShared }
