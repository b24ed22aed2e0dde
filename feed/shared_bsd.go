//go:build unix && !linux && !darwin

package feed

import "os"

func newShared(n int64) (*os.File, []byte, error) { return newUnlinked(n) }

// reserve fills a file with zeros, so that it has room for n bytes, which a write through
// a mapping could not report.
func reserve(f *os.File, n int64) error {
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < n; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), n-at)], at); err != nil {
			return err
		}
	}
	return nil
}
