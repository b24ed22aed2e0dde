//go:build !unix

package feed

import (
	"errors"
	"net"
	"os"
	"runtime"
)

var errNoShared = errors.New("memory is not shared between processes on " + runtime.GOOS + ": feed over TCP (--listen)")

// canShare: memory can be shared with another process.
const canShare = false

func newShared(int64) (*os.File, []byte, error) { return nil, nil, errNoShared }
func freeShared([]byte)                         {}
func sharedHint(error) string                   { return "" }
func sendFile(net.Conn, []byte, *os.File) error { return errNoShared }
