package folder

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
)

// portableDir is an openedDir made of package os.
type portableDir struct {
	f    *os.File
	refs atomic.Int32
}

func openPortableDir(path string) (*portableDir, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	d := &portableDir{f: f}
	d.refs.Store(1)
	return d, nil
}

// It can do all that another openedDir can, also where that is used in its place.
var _ interface {
	hold()
	release()
	next(prefix string) ([]child, error)
} = (*portableDir)(nil)

func (d *portableDir) hold() { d.refs.Add(1) }

func (d *portableDir) release() {
	if d.refs.Add(-1) == 0 {
		d.f.Close()
	}
}

func (d *portableDir) next(prefix string) ([]child, error) {
	for {
		entries, err := d.f.ReadDir(512)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if len(entries) == 0 {
			return nil, nil
		}
		children := make([]child, 0, len(entries))
		for _, e := range entries {
			if e.Name()[0] == '.' {
				continue
			}
			k := link
			switch e.Type() {
			case 0:
				k = file
			case fs.ModeDir:
				k = dir
			case fs.ModeNamedPipe, fs.ModeSocket, fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice:
				k = other
			}
			children = append(children, child{prefix + e.Name(), k})
		}
		if len(children) > 0 {
			return children, nil
		}
	}
}

// stat asks the file, not what its folder says of it: on Windows, that may be old.
func (d *portableDir) stat(c child, _ string) (k kind, size, modTime int64, err error) {
	info, err := os.Stat(c.path)
	switch {
	case err != nil:
		return other, 0, 0, err
	case info.Mode().IsRegular():
		return file, info.Size(), info.ModTime().UnixNano(), nil
	case info.IsDir():
		return linkedDir, 0, 0, nil
	}
	return other, 0, 0, nil
}
