package tar

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"sort"
	"strconv"
	"strings"

	"shardify/sample"
	"shardify/shard"
	"shardify/shard/internal/stream"
)

// A member is what a chain of headers says of one entry of the archive.
type member struct {
	offset int64 // of the first header
	size   int64 // of the data, which follow in the window
	file   bool  // a regular file
	end    bool  // no member: the archive ends
	// name is valid until the next header is read.
	name []byte
}

type scanner struct {
	in    *stream.Window
	limit int64

	name, long []byte            // room for names
	intern     map[string]string // the fields' names; nil if they are not kept

	out *shard.Located // the sample that is being gathered
	at  []int          // where its fields begin in the window's Kept
	// room gives memory to the fields, which are then loaded; nil where they stay in
	// the window.
	room   shard.Room
	loaded [][]byte
}

// parsed is a sample with room for the fields of most.
type parsed struct {
	shard.Located
	fields [4]sample.Field
	places [4]shard.FieldPlacement
}

func newLocated() *shard.Located {
	p := new(parsed)
	p.Sample.Fields, p.Placement.Fields = p.fields[:0], p.places[:0]
	return &p.Located
}

func (s *scanner) scan(yield func(*shard.Located, error) bool) {
	for {
		m, err := s.header()
		if err != nil {
			yield(nil, err)
			return
		}
		if m.end {
			if len(s.at) > 0 && !s.yield(yield) {
				return
			}
			if err := s.in.Drain(); err != nil {
				yield(nil, fmt.Errorf("tar at offset %d: behind the end of the archive: %w", s.in.Offset, err))
			}
			return
		}
		key, field, ok := s.split(m)
		if ok && key != s.out.Key && len(s.at) > 0 {
			if !s.yield(yield) {
				return
			}
		}
		if !ok {
			err = s.skipData(m)
		} else {
			err = s.field(m, key, field)
		}
		if err != nil {
			yield(nil, err)
			return
		}
	}
}

// parse parses a frame that holds one sample.
func parse(frame []byte, offset int64) (*shard.Located, error) {
	var name [256]byte
	var at [4]int
	s := scanner{limit: math.MaxInt64, in: stream.WindowOf(frame, offset), out: newLocated(), name: name[:0], at: at[:0]}
	for {
		m, err := s.header()
		if err != nil {
			return nil, err
		}
		if m.end {
			break
		}
		key, field, ok := s.split(m)
		switch {
		case !ok && len(s.at) == 0:
			return nil, formatError(m.offset, "%q cannot begin a sample", nameOf(m.name))
		case !ok:
			err = s.skipData(m)
		case len(s.at) > 0 && key != s.out.Key:
			return nil, formatError(m.offset, "the sample %q begins where the frame of %q should end", sample.Shorten(key), sample.Shorten(s.out.Key))
		default:
			err = s.field(m, key, field)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(s.at) == 0 {
		return nil, fmt.Errorf("tar at offset %d: no sample: %w", offset, shard.ErrTruncated)
	}
	if s.in.Available() > 0 || s.out.Size != int64(len(frame)) {
		return nil, formatError(offset+s.out.Size, "sample %q ends before its frame does", sample.Shorten(s.out.Key))
	}
	if err := s.finish(); err != nil {
		return nil, err
	}
	return s.out, nil
}

func formatError(offset int64, format string, args ...any) error {
	return &shard.FormatError{Format: "tar", Offset: offset, Msg: fmt.Sprintf(format, args...)}
}

func unsupported(offset int64, format string, args ...any) error {
	return &shard.UnsupportedError{Format: "tar", Offset: offset, Msg: fmt.Sprintf(format, args...)}
}

// cut says that the archive ends at its end, within what.
func (s *scanner) cut(err error, format string, args ...any) error {
	if err == io.EOF {
		err = shard.ErrTruncated
	}
	return fmt.Errorf("tar at offset %d: %s: %w", s.in.Offset+int64(s.in.Available()), fmt.Sprintf(format, args...), err)
}

// header reads the headers of the next member.
func (s *scanner) header() (m member, err error) {
	m.offset = s.in.Offset
	var long, pax []byte // names from extended headers
	size := int64(-1)    // from a PAX header
	special := false
	for {
		at := s.in.Offset
		data, err := s.in.Peek(blockSize)
		if err != nil {
			if err == io.EOF && len(data) == 0 && !special {
				m.end = true
				return m, nil
			}
			return m, s.cut(err, "within a header")
		}
		b := (*[blockSize]byte)(data)
		if *b == [blockSize]byte{} {
			if special {
				return m, formatError(at, "the archive ends behind an extended header that has no member")
			}
			m.end = true
			return m, nil
		}
		stored, ok := octal(b[checksumAt : checksumAt+8])
		if !ok || stored != int64(checksum(b)) && stored != int64(signedChecksum(b)) {
			return m, formatError(at, "no tar header here: its checksum is wrong")
		}
		n, ok := number(b[sizeAt : sizeAt+12])
		if !ok {
			return m, formatError(at, "the header has the size %q", text(b[sizeAt:sizeAt+12]))
		}

		kind := b[kindAt]
		switch kind {
		case 'x', 'X', 'g', 'L', 'K':
			if n > maxSpecial {
				return m, unsupported(at, "an extended header of %d bytes, the most is %d", n, maxSpecial)
			}
			whole := blockSize + int(padded(n))
			data, err := s.in.Peek(whole)
			if err != nil {
				return m, s.cut(err, "within an extended header")
			}
			data = data[blockSize : blockSize+int(n)]
			switch kind {
			case 'L':
				s.long = append(s.long[:0], text(data)...)
				long = s.long
			case 'x', 'X':
				records, err := parsePAX(data, at)
				if err != nil {
					return m, err
				}
				if records.path != nil {
					s.name = append(s.name[:0], records.path...)
					pax = s.name
				}
				if records.size >= 0 {
					size = records.size
				}
			case 'g':
				records, err := parsePAX(data, at)
				if err != nil {
					return m, err
				}
				if records.path != nil || records.size >= 0 {
					return m, unsupported(at, "a global header that gives all members one path or size")
				}
			}
			if kind != 'g' {
				special = true
			}
			s.in.Consume(whole)
			if !special {
				m.offset = s.in.Offset
			}
			continue
		case 'S':
			return m, unsupported(at, "a sparse file")
		case 'M':
			return m, unsupported(at, "a part of a multi-volume archive")
		}

		switch {
		case long != nil:
			m.name = long
		case pax != nil:
			m.name = pax
		default:
			s.name = appendName(s.name[:0], b)
			m.name = s.name
		}
		if size >= 0 {
			n = size
		}
		m.size = n
		switch kind {
		case '0', '7':
			m.file = true
		case 0:
			m.file = !bytes.HasSuffix(m.name, []byte("/"))
		case '1', '2', '3', '4', '6':
			m.size = 0
		}
		if kind == '5' || kind == 0 && !m.file {
			m.size = 0
		}
		s.in.Consume(blockSize)
		return m, nil
	}
}

// appendName appends the name that a header holds.
func appendName(name []byte, b *[blockSize]byte) []byte {
	if string(b[magicAt:magicAt+6]) == "ustar\x00" {
		prefix := b[prefixAt : prefixAt+prefixSize]
		if string(b[starMagic:]) == "tar\x00" {
			prefix = prefix[:starPrefix]
		}
		if prefix = text(prefix); len(prefix) > 0 {
			name = append(append(name, prefix...), '/')
		}
	}
	return append(name, text(b[:nameSize])...)
}

type paxRecords struct {
	path []byte // nil if there is none
	size int64  // -1 if there is none
}

// parsePAX parses the records "SIZE KEY=VALUE\n" of a PAX header at an offset.
func parsePAX(data []byte, offset int64) (paxRecords, error) {
	records := paxRecords{size: -1}
	for len(data) > 0 {
		space := bytes.IndexByte(data[:min(len(data), 10)], ' ')
		if space <= 0 {
			return records, formatError(offset, "a PAX record without a size")
		}
		n, err := strconv.ParseUint(string(data[:space]), 10, 31)
		if err != nil || int(n) > len(data) || int(n) < space+2 || data[n-1] != '\n' {
			return records, formatError(offset, "a PAX record with the size %q", data[:space])
		}
		key, value, ok := bytes.Cut(data[space+1:n-1], []byte("="))
		if !ok || len(key) == 0 {
			return records, formatError(offset, "a PAX record without a key")
		}
		data = data[n:]
		switch {
		case len(value) == 0:
			// The record only takes back what a global header said.
		case string(key) == "path":
			if bytes.IndexByte(value, 0) >= 0 {
				return records, formatError(offset, "a PAX path with a NUL in it")
			}
			records.path = value
		case string(key) == "size":
			size, err := strconv.ParseUint(string(value), 10, 63)
			if err != nil {
				return records, formatError(offset, "a PAX size of %q", sample.Shorten(string(value)))
			}
			records.size = int64(size)
		case bytes.HasPrefix(key, []byte("GNU.sparse.")):
			return records, unsupported(offset, "a sparse file")
		}
	}
	return records, nil
}

// split applies WebDataset's rule to a member.
func (s *scanner) split(m member) (key, field string, ok bool) {
	if !m.file {
		return "", "", false
	}
	// Within a run, the name begins with the key, and nothing is allocated.
	if n := len(s.out.Key); len(s.at) > 0 && len(m.name) > n && m.name[n] == '.' && string(m.name[:n]) == s.out.Key {
		rest := m.name[n+1:]
		if f, ok := s.intern[string(rest)]; ok {
			return s.out.Key, f, true
		}
	}
	key, field, ok = sample.Split(string(m.name))
	if !ok {
		return "", "", false
	}
	return key, s.internField(field), true
}

// internField returns field as a string of its own, the same for all samples.
// Only names for which sample.Split depends on nothing else go into the table.
func (s *scanner) internField(field string) string {
	if s.intern == nil {
		return field
	}
	if f, ok := s.intern[field]; ok {
		return f
	}
	field = strings.Clone(field)
	if len(s.intern) < 256 && !strings.HasSuffix(field, "__") {
		s.intern[field] = field
	}
	return field
}

// field takes the data of a member into the sample.
func (s *scanner) field(m member, key, field string) error {
	if len(s.at) == 0 {
		s.in.Drop()
		s.out.Key, s.out.Offset = key, m.offset
	}
	data := s.in.Offset
	if room := min(s.limit, math.MaxInt) - (data - s.out.Offset); m.size > room || padded(m.size) > room {
		return unsupported(m.offset, "sample %q takes more than %d bytes, the limit: its field %q has %d", sample.Shorten(key), s.limit, sample.Shorten(field), m.size)
	}
	if s.room != nil {
		content, err := s.load(m, key, field)
		if err != nil {
			return err
		}
		s.loaded = append(s.loaded, content)
		s.at = append(s.at, 0)
	} else {
		n := int(padded(m.size))
		if _, err := s.in.Peek(n); err != nil {
			return s.cut(err, "within the member %q of %d bytes, which begins at %d", sample.Shorten(sample.Join(key, field)), m.size, m.offset)
		}
		s.at = append(s.at, s.in.Keep(n))
	}
	s.out.Size = s.in.Offset - s.out.Offset
	s.out.Sample.Fields = append(s.out.Sample.Fields, sample.Field{Name: field})
	s.out.Placement.Fields = append(s.out.Placement.Fields, shard.FieldPlacement{HeaderOffset: m.offset, Offset: data, Size: m.size})
	return nil
}

// load reads the data of a member into memory of the caller's; nil where that gives
// none.
func (s *scanner) load(m member, key, field string) ([]byte, error) {
	content, err := s.room(field, nil, min(m.size, shard.FirstRoom))
	if err != nil {
		return nil, err
	}
	if content == nil {
		return nil, s.skipData(m)
	}
	for n := 0; ; {
		got, err := s.in.ReadFull(content[n:])
		if n += got; err != nil {
			return nil, s.cut(err, "within the member %q of %d bytes, which begins at %d", sample.Shorten(sample.Join(key, field)), m.size, m.offset)
		}
		if int64(n) == m.size {
			break
		}
		if content, err = s.room(field, content, min(m.size, 4*int64(n))); err != nil {
			return nil, err
		}
	}
	if err := s.in.Skip(padded(m.size) - m.size); err != nil {
		return nil, s.cut(err, "within the member %q of %d bytes, which begins at %d", sample.Shorten(sample.Join(key, field)), m.size, m.offset)
	}
	return content, nil
}

// skipData skips the data of a member that is no part of a sample.
func (s *scanner) skipData(m member) error {
	if m.size > math.MaxInt64-blockSize {
		return s.cut(io.EOF, "within the member %q of %d bytes, which begins at %d", nameOf(m.name), m.size, m.offset)
	}
	if err := s.in.Skip(padded(m.size)); err != nil {
		return s.cut(err, "within the member %q of %d bytes, which begins at %d", nameOf(m.name), m.size, m.offset)
	}
	return nil
}

// finish points the fields of the sample to their data and sorts them.
func (s *scanner) finish() error {
	fields, places := s.out.Sample.Fields, s.out.Placement.Fields
	if s.room != nil {
		for i := range fields {
			fields[i].Data = s.loaded[i]
		}
		if byName := (*byName)(s.out); !sort.IsSorted(byName) {
			sort.Stable(byName)
		}
		return nil
	}
	kept := s.in.Kept()
	for i := range fields {
		end := s.at[i] + int(places[i].Size)
		fields[i].Data = kept[s.at[i]:end:end]
	}
	byName := (*byName)(s.out)
	if !sort.IsSorted(byName) {
		sort.Stable(byName)
	}
	for i := 1; i < len(fields); i++ {
		if fields[i-1].Name == fields[i].Name {
			return formatError(places[i].HeaderOffset, "sample %q has the field %q twice", sample.Shorten(s.out.Key), sample.Shorten(fields[i].Name))
		}
	}
	return nil
}

type byName shard.Located

func (l *byName) Len() int           { return len(l.Sample.Fields) }
func (l *byName) Less(i, j int) bool { return l.Sample.Fields[i].Name < l.Sample.Fields[j].Name }
func (l *byName) Swap(i, j int) {
	f, p := l.Sample.Fields, l.Placement.Fields
	f[i], f[j] = f[j], f[i]
	p[i], p[j] = p[j], p[i]
}

// yield yields the sample and starts the next.
func (s *scanner) yield(yield func(*shard.Located, error) bool) bool {
	if err := s.finish(); err != nil {
		yield(nil, err)
		return false
	}
	if !yield(s.out, nil) {
		return false
	}
	s.in.Drop()
	clear(s.loaded)
	s.at, s.loaded = s.at[:0], s.loaded[:0]
	s.out.Sample.Fields = s.out.Sample.Fields[:0]
	s.out.Placement.Fields = s.out.Placement.Fields[:0]
	return true
}

// Begins says whether bytes, of which there are 512 or all that a file has, are the
// beginning of an archive.
func Begins(head []byte) bool {
	if len(head) < blockSize {
		return false
	}
	b := (*[blockSize]byte)(head)
	if *b == [blockSize]byte{} {
		return true
	}
	stored, ok := octal(b[checksumAt : checksumAt+8])
	return ok && (stored == int64(checksum(b)) || stored == int64(signedChecksum(b)))
}
