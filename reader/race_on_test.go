//go:build race

package reader

// racing: the race detector makes sync.Pool, which encoding/json keeps its scanners in,
// forget at random.
const racing = true
