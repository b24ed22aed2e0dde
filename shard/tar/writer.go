package tar

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"unicode/utf8"

	"shardify/sample"
	"shardify/shard"
)

const (
	// gatherSize is the size of the writes of many small members.
	gatherSize = 1 << 20
	// directSize is the size from which a field is written without being copied
	// into the buffer first.
	directSize = 256 << 10
)

var errClosed = errors.New("tar: write to a closed archive")

type writer struct {
	w      io.Writer
	buf    []byte // gathered, not yet written
	offset int64  // in the archive, of what is written next
	err    error  // of w, or errClosed

	key    string   // of the last sample
	names  []string // field names that have been checked, by place in the sample
	fields []shard.FieldPlacement
}

func newWriter(w io.Writer) *writer {
	return &writer{w: w, buf: make([]byte, 0, gatherSize)}
}

// Write appends a sample; tar has no room for facts.
func (w *writer) Write(s *sample.Sample, _ *shard.Facts) (shard.Placement, error) {
	if w.err != nil {
		return shard.Placement{}, w.err
	}
	if err := w.check(s); err != nil {
		return shard.Placement{}, err
	}
	start := w.offset
	w.fields = w.fields[:0]
	for i := range s.Fields {
		f := &s.Fields[i]
		size := int64(len(f.Data))
		header := w.offset
		w.header(s.Key, f.Name, size)
		w.fields = append(w.fields, shard.FieldPlacement{HeaderOffset: header, Offset: w.offset, Size: size})
		w.write(f.Data)
		w.write(zeros[:padded(size)-size])
	}
	if w.err != nil {
		return shard.Placement{}, w.err
	}
	w.key = s.Key
	return shard.Placement{Offset: start, Size: w.offset - start, Fields: w.fields}, nil
}

// check reports why the archive cannot hold s.
func (w *writer) check(s *sample.Sample) error {
	if err := sample.CheckKey(s.Key); err != nil {
		return err
	}
	if s.Key == w.key {
		return fmt.Errorf("sample %q comes twice in a row, which would make one sample of both: keys must be unique", s.Key)
	}
	if len(s.Fields) == 0 {
		return fmt.Errorf("sample %q has no fields", s.Key)
	}
	for i := range s.Fields {
		name := s.Fields[i].Name
		if i < len(w.names) && w.names[i] == name {
			// Checked for an earlier sample.
		} else if err := sample.CheckField(name); err != nil {
			return fmt.Errorf("sample %q: %w", s.Key, err)
		} else if i < len(w.names) {
			w.names[i] = name
		} else if i == len(w.names) && i < 64 {
			w.names = append(w.names, name)
		}
		if i > 0 && s.Fields[i-1].Name >= name {
			return fmt.Errorf("sample %q: field %q comes after %q: fields must be sorted by name, each name once",
				s.Key, name, s.Fields[i-1].Name)
		}
	}
	return nil
}

// Close writes the two zero blocks that end an archive.
func (w *writer) Close() error {
	if w.err == errClosed {
		return nil
	}
	w.write(zeros[:])
	w.flush()
	if w.err != nil {
		return w.err
	}
	w.err = errClosed
	return nil
}

func (w *writer) write(p []byte) {
	w.offset += int64(len(p))
	if len(p) > cap(w.buf)-len(w.buf) {
		w.flush()
	}
	if len(p) >= directSize {
		w.flush()
		if w.err == nil {
			w.err = writeAll(w.w, p)
		}
		return
	}
	w.buf = append(w.buf, p...)
}

// block returns the next 512 bytes of the buffer, with what they happen to hold.
func (w *writer) block() *[blockSize]byte {
	if blockSize > cap(w.buf)-len(w.buf) {
		w.flush()
	}
	n := len(w.buf)
	w.buf = w.buf[:n+blockSize]
	w.offset += blockSize
	return (*[blockSize]byte)(w.buf[n:])
}

func (w *writer) flush() {
	if w.err == nil && len(w.buf) > 0 {
		w.err = writeAll(w.w, w.buf)
	}
	w.buf = w.buf[:0]
}

func writeAll(w io.Writer, p []byte) error {
	n, err := w.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return err
}

var zeros [2 * blockSize]byte

// header writes the header of a member, and a PAX header before it where it needs
// one. Both are, for names in ASCII, those of archive/tar.
func (w *writer) header(key, field string, size int64) {
	if n := paxSize(key, field, size); n > 0 {
		w.paxHeader(key, field, n, size)
		return
	}
	at, _ := splitPoint(key, len(key)+1+len(field))
	b := w.block()
	*b = template
	sum := templateSum
	rest := key
	if at > 0 {
		sum += put(b[prefixAt:], key[:at])
		rest = key[at+1:]
	}
	sum += put(b[:], rest)
	b[len(rest)] = '.'
	sum += '.' + put(b[len(rest)+1:], field)
	sum += putOctal(b[sizeAt:sizeAt+11], size)
	putChecksum(b, sum)
}

// paxHeader writes the PAX header of a member and then the member's own, which
// repeats what has room there for readers that do not know PAX.
func (w *writer) paxHeader(key, field string, records, size int64) {
	name := sample.Join(key, field)
	dir, base := path.Split(name)
	b := w.asciiHeader(path.Join(dir, "PaxHeaders.0", base), records, 'x', 0)
	clear(b[deviceAt:prefixAt])
	putChecksum(b, checksum(b))

	text := make([]byte, 0, padded(records))
	if needsPath(key, len(name)) {
		text = appendRecord(text, "path", name)
	}
	if size >= ustarSize {
		text = appendRecord(text, "size", strconv.FormatInt(size, 10))
		size = 0
	}
	w.write(text[:cap(text)])

	b = w.asciiHeader(name, size, '0', 0o444)
	putChecksum(b, checksum(b))
}

// asciiHeader starts a header whose name is cut to ASCII and to 100 bytes.
func (w *writer) asciiHeader(name string, size int64, kind byte, mode int64) *[blockSize]byte {
	b := w.block()
	*b = template
	n := 0
	for i := 0; i < len(name) && n < nameSize; i++ {
		if name[i] < utf8.RuneSelf {
			b[n] = name[i]
			n++
		}
	}
	if n == nameSize && b[n-1] == '/' {
		b[n-1] = 0 // some readers take a name that ends in a slash for a folder
	}
	putOctal(b[modeAt:modeAt+7], mode)
	putOctal(b[sizeAt:sizeAt+11], size)
	b[kindAt] = kind
	return b
}

func appendRecord(b []byte, key, value string) []byte {
	b = strconv.AppendInt(b, int64(recordSize(len(key), len(value))), 10)
	b = append(b, ' ')
	b = append(b, key...)
	b = append(b, '=')
	b = append(b, value...)
	return append(b, '\n')
}
