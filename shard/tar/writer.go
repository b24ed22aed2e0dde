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
	"shardify/shard/internal/stream"
)

var errClosed = errors.New("tar: write to a closed archive")

type writer struct {
	out    *stream.Gather
	closed bool

	key    string   // of the last sample
	names  []string // field names that have been checked, by place in the sample
	fields []shard.FieldPlacement
}

func newWriter(w io.Writer) *writer { return &writer{out: stream.NewGather(w)} }

// Write appends a sample; tar has no room for facts.
func (w *writer) Write(s *sample.Sample, _ *shard.Facts) (shard.Placement, error) {
	if w.closed {
		return shard.Placement{}, errClosed
	}
	if err := w.check(s); err != nil {
		return shard.Placement{}, err
	}
	start := w.out.Offset
	w.fields = w.fields[:0]
	for i := range s.Fields {
		f := &s.Fields[i]
		size := int64(len(f.Data))
		header := w.out.Offset
		w.header(s.Key, f.Name, size)
		w.fields = append(w.fields, shard.FieldPlacement{HeaderOffset: header, Offset: w.out.Offset, Size: size})
		w.out.Write(f.Data)
		w.out.Write(zeros[:padded(size)-size])
	}
	if w.out.Err != nil {
		return shard.Placement{}, w.out.Err
	}
	w.key = s.Key
	return shard.Placement{Offset: start, Size: w.out.Offset - start, Fields: w.fields}, nil
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
	if !w.closed {
		w.closed = true
		w.out.Write(zeros[:])
		w.out.Flush()
	}
	return w.out.Err
}

// block returns the next 512 bytes of the archive, to be filled.
func (w *writer) block() *[blockSize]byte { return (*[blockSize]byte)(w.out.Next(blockSize)) }

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
	w.out.Write(text[:cap(text)])

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
