//go:build unix

package feed

import (
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// fileQueue has the files that came over a socket, in order.
type fileQueue struct {
	conn  *net.UnixConn
	files []int
	room  []byte
}

// maxFiles is how many files may wait: a frame has one.
const maxFiles = 64

// reader reads from a connection, and keeps the files that come with the bytes.
func (q *fileQueue) reader(conn net.Conn) io.Reader {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return conn
	}
	q.conn, q.room = u, make([]byte, unix.CmsgSpace(4*maxFiles))
	return q
}

// Read reads from the socket.
func (q *fileQueue) Read(p []byte) (int, error) {
	n, oobn, flags, _, err := q.conn.ReadMsgUnix(p, q.room)
	if oobn > 0 {
		if err := q.take(q.room[:oobn]); err != nil {
			return 0, err
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return 0, errorf(CodeProtocol, "files that the server sent could not be taken: the process may open no more of them (ulimit -n)")
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err
}

func (q *fileQueue) take(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return err
		}
		q.files = append(q.files, fds...)
	}
	if len(q.files) > maxFiles {
		return errorf(CodeProtocol, "the server sent %d files that no frame is about", len(q.files))
	}
	return nil
}

// next is the next file; nil if there is none.
func (q *fileQueue) next() *os.File {
	if len(q.files) == 0 {
		return nil
	}
	f := os.NewFile(uintptr(q.files[0]), "slab")
	q.files = q.files[1:]
	return f
}

// close closes those that nobody has taken.
func (q *fileQueue) close() {
	for f := q.next(); f != nil; f = q.next() {
		_ = f.Close()
	}
}

// mapSlab maps a file that the server has sent, and closes it.
func mapSlab(f *os.File, n int64) (*clientSlab, error) {
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if n <= 0 || info.Size() < n {
		return nil, errorf(CodeProtocol, "the server sent a slab of %d bytes in a file of %d", n, info.Size())
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping a slab of %d bytes: %w", n, err)
	}
	s := &clientSlab{data: data}
	s.users.Store(1)
	return s, nil
}
