package stream

import "io"

const (
	// firstSize is the size of a window at first, windowSize that to which it grows
	// with what is read, and beyond which only with what is kept.
	firstSize  = 64 << 10
	windowSize = 1 << 20
)

// Window slides over the bytes of a reader. Besides what has not been consumed it
// can keep a stretch of what has:
//
//	buf: … | kept | … | not consumed | room
//	       start  keep pos           end
//
// Memory is at most three times what is kept and asked for, and 1 MiB.
type Window struct {
	// Offset is the offset of the next byte in the container.
	Offset int64

	r                     io.Reader // nil if everything is in buf
	buf                   []byte
	start, keep, pos, end int
	err                   error // of r, behind buf[:end]
	small                 bool
}

// Skipper is a reader that can move past bytes without reading them. It moves by less
// than n only with an error, which is io.EOF at the end.
type Skipper interface {
	Skip(n int64) (int64, error)
}

// NewWindow returns a window over what r reads.
func NewWindow(r io.Reader) *Window { return &Window{r: r, buf: make([]byte, firstSize)} }

// NewSmallWindow is NewWindow for who reads most with ReadFull: it grows beyond 64 KiB
// only with what is kept and asked for.
func NewSmallWindow(r io.Reader) *Window {
	w := NewWindow(r)
	w.small = true
	return w
}

// WindowOf returns a window over frame, which lies at offset.
func WindowOf(frame []byte, offset int64) *Window {
	return &Window{buf: frame, end: len(frame), Offset: offset}
}

// Peek returns the next n bytes without consuming them, valid until the next call
// of any method. Fewer come with the error of the reader, which is io.EOF at its
// end. Memory grows with what is read, not with n.
func (w *Window) Peek(n int) ([]byte, error) {
	for w.end-w.pos < n && w.err == nil {
		w.fill(1)
	}
	if w.end-w.pos < n {
		return w.buf[w.pos:w.end], w.err
	}
	return w.buf[w.pos : w.pos+n : w.pos+n], nil
}

// Consume moves past n bytes, which Peek must have returned.
func (w *Window) Consume(n int) {
	w.pos += n
	w.Offset += int64(n)
}

// Drop gives up what is kept, and begins to keep with the next byte.
func (w *Window) Drop() { w.start, w.keep = w.pos, w.pos }

// Keep consumes n bytes, which Peek must have returned, and keeps them. It returns
// where they are in Kept.
func (w *Window) Keep(n int) int {
	at := w.pos - w.start
	w.Consume(n)
	w.keep = w.pos
	return at
}

// Kept returns the bytes from the last Drop to the last Keep, valid until the next
// Peek or Skip. Bytes between two Keeps may be missing.
func (w *Window) Kept() []byte { return w.buf[w.start:w.keep:w.keep] }

// Available is how many bytes can be consumed without reading.
func (w *Window) Available() int { return w.end - w.pos }

// ReadFull fills p with the next bytes and consumes them; what is not in the window
// already is read straight into p. It returns how many came; fewer with the error of
// the reader, which is io.EOF at its end. It ends what is kept.
func (w *Window) ReadFull(p []byte) (n int, err error) {
	n = copy(p, w.buf[w.pos:w.end])
	w.Consume(n)
	if n == len(p) {
		return n, nil
	}
	w.pos, w.end = 0, 0
	w.Drop()
	idle := 0
	for n < len(p) && w.err == nil {
		if w.r == nil {
			w.err = io.EOF
			break
		}
		var m int
		m, w.err = w.r.Read(p[n:])
		n += m
		w.Offset += int64(m)
		if idle++; m > 0 {
			idle = 0
		} else if idle == 100 && w.err == nil {
			w.err = io.ErrNoProgress
		}
	}
	if n == len(p) {
		return n, nil // an error behind it comes with the next call
	}
	return n, w.err
}

// Skip consumes n bytes without holding them, and without reading them where the
// reader is a Skipper.
func (w *Window) Skip(n int64) error {
	for {
		have := int64(w.end - w.pos)
		if n <= have {
			w.Consume(int(n))
			return nil
		}
		n -= have
		w.Consume(int(have))
		if s, ok := w.r.(Skipper); ok && w.err == nil && n > int64(len(w.buf)/4) {
			var m int64
			m, w.err = s.Skip(n)
			n -= m
			w.Offset += m
		}
		if w.err != nil {
			return w.err
		}
		if w.r != nil {
			w.pos, w.end = w.keep, w.keep
		}
		w.fill(len(w.buf) / 4)
	}
}

// Drain reads to the end of the reader, and returns nil there.
func (w *Window) Drain() error {
	w.Drop()
	for w.err == nil {
		w.Consume(w.end - w.pos)
		w.pos, w.end = 0, 0
		w.Drop()
		w.fill(1)
	}
	if w.err == io.EOF {
		return nil
	}
	return w.err
}

// fill reads once, into at least that much room.
func (w *Window) fill(room int) {
	if w.r == nil {
		w.err = io.EOF
		return
	}
	if len(w.buf)-w.end < room {
		n := copy(w.buf, w.buf[w.start:w.keep])
		m := copy(w.buf[n:], w.buf[w.pos:w.end])
		w.start, w.keep, w.pos, w.end = 0, n, n, n+m
		if w.end > len(w.buf)/4*3 || len(w.buf) < windowSize && !w.small {
			buf := make([]byte, 2*len(w.buf))
			copy(buf, w.buf[:w.end])
			w.buf = buf
		}
	}
	for range 100 {
		n, err := w.r.Read(w.buf[w.end:])
		w.end += n
		w.err = err
		if n > 0 || err != nil {
			return
		}
	}
	w.err = io.ErrNoProgress
}
