package feed

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A connection is a stream of frames:
//
//	4 bytes  length of the text, little-endian
//	4 bytes  0
//	8 bytes  length of the payload, little-endian
//	         the text: one JSON object
//	         the payload
const (
	headBytes = 16
	// maxText bounds a message.
	maxText = 64 << 20
	// maxFirst bounds a client's first one: it has not said yet who it is.
	maxFirst = 64 << 10
	// maxPayload bounds a batch.
	maxPayload = 1 << 40
)

// errFrame: what came is no frame.
var errFrame = errors.New("not a frame of this protocol")

// appendHead appends the head of a frame.
func appendHead(b []byte, text int, payload int64) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(text))
	b = binary.LittleEndian.AppendUint32(b, 0)
	return binary.LittleEndian.AppendUint64(b, uint64(payload))
}

// readFrame reads a frame's text, of most bytes at most, and how long the payload behind
// it is. The error is io.EOF where the stream ends before it, and wraps errFrame where it
// is none.
func readFrame(r io.Reader, most int) (text []byte, payload int64, err error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: it ends within its head", errFrame)
		}
		return nil, 0, err
	}
	n, zero, p := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(head[4:]), binary.LittleEndian.Uint64(head[8:])
	switch {
	case zero != 0:
		return nil, 0, fmt.Errorf("%w: bytes 4 to 8 are %#x, not 0", errFrame, zero)
	case n < 2 || n > uint32(most):
		return nil, 0, fmt.Errorf("%w: a message of %d bytes, where 2 to %d may come", errFrame, n, most)
	case p > maxPayload:
		return nil, 0, fmt.Errorf("%w: a payload of %d bytes, where %d may come", errFrame, p, int64(maxPayload))
	}
	// Memory is taken as bytes come, not as they are claimed.
	var b bytes.Buffer
	b.Grow(int(min(n, 64<<10)))
	if _, err := io.CopyN(&b, r, int64(n)); err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: it ends after %d of %d bytes", errFrame, b.Len(), n)
		}
		return nil, 0, err
	}
	return b.Bytes(), int64(p), nil
}
