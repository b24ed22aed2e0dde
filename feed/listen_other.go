//go:build !unix

package feed

import "net"

func listenPrivate(string) (net.Listener, error) { return nil, errNoShared }

// isRefused says that nobody listens.
func isRefused(error) bool { return false }
