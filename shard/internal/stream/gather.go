// Package stream holds what the containers share: a buffer that makes few and large
// writes of many small ones, and a window that slides over what is read.
package stream

import "io"

const (
	// gatherSize is the size of the writes of many small pieces.
	gatherSize = 1 << 20
	// directSize is the size from which a piece is written without being copied
	// into the buffer first.
	directSize = 256 << 10
)

// Gather gathers small pieces into writes of 1 MiB; pieces from 256 KiB on pass
// its buffer by. Its methods do nothing once a write has failed.
type Gather struct {
	// Offset is how many bytes it was given.
	Offset int64
	// Err is the error of the underlying writer.
	Err error

	w   io.Writer
	buf []byte
}

// NewGather returns a Gather that writes to w.
func NewGather(w io.Writer) *Gather { return &Gather{w: w, buf: make([]byte, 0, gatherSize)} }

// Write takes p, which it does not keep.
func (g *Gather) Write(p []byte) {
	g.Offset += int64(len(p))
	if len(p) > cap(g.buf)-len(g.buf) {
		g.Flush()
	}
	if len(p) >= directSize {
		g.Flush()
		g.write(p)
		return
	}
	g.buf = append(g.buf, p...)
}

// Next returns room for the next n bytes, at most gatherSize, for the caller to
// fill before the next call. It holds what it happens to hold.
func (g *Gather) Next(n int) []byte {
	if n > cap(g.buf)-len(g.buf) {
		g.Flush()
	}
	g.Offset += int64(n)
	at := len(g.buf)
	g.buf = g.buf[:at+n]
	return g.buf[at : at+n : at+n]
}

// Flush writes what was gathered.
func (g *Gather) Flush() {
	g.write(g.buf)
	g.buf = g.buf[:0]
}

func (g *Gather) write(p []byte) {
	if g.Err != nil || len(p) == 0 {
		return
	}
	n, err := g.w.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	g.Err = err
}
