package tfrecord

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"shardify/sample"
	"shardify/shard"
	"shardify/shard/internal/stream"
)

// parser makes samples of examples; its memory is used again for the next.
type parser struct {
	features []parsed
	reuse    bool              // more samples follow: remember names
	intern   map[string]string // the features' names
	legal    map[string]bool   // which of them are fields' names
	class    []byte            // the field cls, made of a number
	out      shard.Located
}

// parsed is an entry of the map of features.
type parsed struct {
	name string
	kind protowire.Number // 0 if it has none
	list []byte           // the list's encoded message
	// merged: list is no part of the record, but put together of several.
	merged bool
}

func scan(r io.Reader, limit int64, yield func(*shard.Located, error) bool) {
	in := stream.NewWindow(r)
	p := parser{reuse: true, intern: make(map[string]string), legal: make(map[string]bool)}
	for {
		in.Drop()
		offset := in.Offset
		frame, err := nextFrame(in, limit)
		if err != nil {
			yield(nil, err)
			return
		}
		if frame == nil {
			return
		}
		if err := p.parse(frame, offset); err != nil {
			yield(nil, err)
			return
		}
		if !yield(&p.out, nil) {
			return
		}
		in.Consume(len(frame))
	}
}

func parse(frame []byte, offset int64) (*shard.Located, error) {
	in := stream.WindowOf(frame, offset)
	whole, err := nextFrame(in, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	if whole == nil {
		return nil, fmt.Errorf("tfrecord at offset %d: no record: %w", offset, shard.ErrTruncated)
	}
	if len(whole) != len(frame) {
		return nil, formatError(offset+int64(len(whole)), "the record ends before its frame does")
	}
	// Room for what most records have.
	p := parser{features: make([]parsed, 0, 16)}
	p.out.Sample.Fields = make([]sample.Field, 0, 4)
	p.out.Placement.Fields = make([]shard.FieldPlacement, 0, 4)
	if err := p.parse(frame, offset); err != nil {
		return nil, err
	}
	located := p.out
	return &located, nil
}

// load is scan into the caller's memory.
func load(r io.Reader, room shard.Room, yield func(*shard.Located, error) bool) {
	in := stream.NewSmallWindow(r)
	p := parser{reuse: true, intern: make(map[string]string), legal: make(map[string]bool)}
	for {
		in.Drop()
		offset := in.Offset
		n, err := frameLength(in, math.MaxInt64)
		if err == nil && n > 0 {
			var frame []byte
			if frame, err = loadFrame(in, n, room); err == nil {
				err = p.parse(frame, offset)
			}
		}
		if err != nil {
			yield(nil, err)
			return
		}
		if n == 0 || !yield(&p.out, nil) {
			return
		}
	}
}

// loadFrame consumes a record of n bytes, checked against its checksum.
func loadFrame(in *stream.Window, n int, room shard.Room) ([]byte, error) {
	offset := in.Offset
	frame, err := room("", nil, int64(min(n, shard.FirstRoom)))
	for have := 0; err == nil; {
		var got int
		got, err = in.ReadFull(frame[have:])
		if have += got; err != nil {
			return nil, cut(err, offset, offset+int64(have), fmt.Sprintf("the %d bytes", n))
		}
		if have == n {
			return frame, verifyFrame(frame, offset)
		}
		frame, err = room("", frame, min(int64(n), 4*int64(have)))
	}
	return nil, err
}

// cut says that the file ends at an offset, within a part of the record at begin.
func cut(err error, begin, at int64, within string) error {
	if err == io.EOF {
		err = shard.ErrTruncated
	}
	return fmt.Errorf("tfrecord at offset %d: within %s of the record that begins at %d: %w", at, within, begin, err)
}

// frameLength returns the length of the next record, frame and all; 0 at the end.
func frameLength(in *stream.Window, limit int64) (int, error) {
	offset := in.Offset
	head, err := in.Peek(headSize)
	if err == io.EOF && len(head) == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, cut(err, offset, offset+int64(len(head)), "the head")
	}
	length := binary.LittleEndian.Uint64(head)
	if mask(crc32.Checksum(head[:8], castagnoli)) != binary.LittleEndian.Uint32(head[8:]) {
		if offset == 0 && head[0] == 0x1f && head[1] == 0x8b {
			return 0, formatError(0, "this is gzip, not a record; a compressed file's name ends in .gz")
		}
		return 0, fmt.Errorf("tfrecord at offset %d: the record's length: %w", offset, shard.ErrChecksum)
	}
	if most := min(limit, math.MaxInt) - frameSize; most < 0 || length > uint64(most) {
		return 0, unsupported(offset, "a record of %d bytes, more than the limit of %d", length, limit)
	}
	return int(length) + frameSize, nil
}

// verifyFrame compares a record at an offset with the checksum of its data.
func verifyFrame(frame []byte, offset int64) error {
	n := len(frame)
	if mask(crc32.Checksum(frame[headSize:n-4], castagnoli)) != binary.LittleEndian.Uint32(frame[n-4:]) {
		return fmt.Errorf("tfrecord at offset %d: the data of the record that begins at %d: %w", offset+headSize, offset, shard.ErrChecksum)
	}
	return nil
}

// nextFrame returns the next record, checked against its checksums, without
// consuming it; nil at the end.
func nextFrame(in *stream.Window, limit int64) ([]byte, error) {
	offset := in.Offset
	n, err := frameLength(in, limit)
	if n == 0 || err != nil {
		return nil, err
	}
	frame, err := in.Peek(n)
	if err != nil {
		return nil, cut(err, offset, offset+int64(len(frame)), fmt.Sprintf("the %d bytes", n))
	}
	return frame, verifyFrame(frame, offset)
}

// parse makes p.out of a record, whose frame lies at offset.
func (p *parser) parse(frame []byte, offset int64) error {
	data := frame[headSize : len(frame)-4]
	fail := func(format string, args ...any) error {
		return formatError(offset, "the record is no tf.train.Example: %s", fmt.Sprintf(format, args...))
	}
	p.features = p.features[:0]
	err := messages(data, func(number protowire.Number, features []byte) error {
		if number == 2 {
			return unsupported(offset, "a tf.train.SequenceExample")
		}
		if number != 1 {
			return nil
		}
		return messages(features, func(number protowire.Number, entry []byte) error {
			if number != 1 {
				return nil
			}
			if len(p.features) == maxFeatures {
				return unsupported(offset, "a record of more than %d features", maxFeatures)
			}
			var f parsed
			err := messages(entry, func(number protowire.Number, part []byte) error {
				switch number {
				case 1:
					f.name = p.internName(part)
				case 2:
					return f.parse(part)
				}
				return nil
			})
			p.features = append(p.features, f)
			return err
		})
	})
	var wire wireError
	if errors.As(err, &wire) {
		return fail("%v", err)
	} else if err != nil {
		return err
	}
	p.last()

	p.out.Key = ""
	p.out.Sample.Fields = p.out.Sample.Fields[:0]
	p.out.Placement = shard.Placement{Offset: offset, Size: int64(len(frame)), Fields: p.out.Placement.Fields[:0]}
	if err := p.fields(frame, offset); err != nil {
		return err
	}
	l := (*byName)(&p.out)
	if !sort.IsSorted(l) {
		sort.Stable(l)
	}
	fields := p.out.Sample.Fields
	for i := 1; i < len(fields); i++ {
		if fields[i-1].Name == fields[i].Name {
			return formatError(offset, "record %q has two features for the field %q", sample.Shorten(p.out.Key), fields[i].Name)
		}
	}
	return nil
}

type wireError struct{ error }

// messages calls f for each length-delimited field of a message and skips others.
func messages(b []byte, f func(number protowire.Number, part []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return wireError{protowire.ParseError(n)}
		}
		b = b[n:]
		if kind != protowire.BytesType {
			n := protowire.ConsumeFieldValue(number, kind, b)
			if n < 0 {
				return wireError{protowire.ParseError(n)}
			}
			b = b[n:]
			continue
		}
		part, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return wireError{protowire.ParseError(n)}
		}
		b = b[n:]
		if err := f(number, part); err != nil {
			return err
		}
	}
	return nil
}

// parse parses a tf.train.Feature: of several lists of one kind, the parts of one,
// of several kinds, the last.
func (f *parsed) parse(b []byte) error {
	return messages(b, func(number protowire.Number, list []byte) error {
		if number < bytesKind || number > intsKind {
			return nil
		}
		switch {
		case f.kind != number:
			f.kind, f.list, f.merged = number, list, false
		case f.merged:
			f.list = append(f.list, list...)
		default:
			f.list, f.merged = append(slices.Clip(f.list), list...), true
		}
		return nil
	})
}

// last sorts the features and leaves the last of each name, as protobuf's maps do.
func (p *parser) last() {
	compare := func(a, b parsed) int { return strings.Compare(a.name, b.name) }
	if !slices.IsSortedFunc(p.features, compare) {
		slices.SortStableFunc(p.features, compare)
	}
	n := 0
	for i, f := range p.features {
		if i+1 == len(p.features) || f.name != p.features[i+1].name {
			p.features[n] = f
			n++
		}
	}
	p.features = p.features[:n]
}

// find returns the feature of that name; nil if there is none.
func (p *parser) find(name string) *parsed {
	i, ok := slices.BinarySearchFunc(p.features, name, func(f parsed, name string) int {
		return strings.Compare(f.name, name)
	})
	if !ok {
		return nil
	}
	return &p.features[i]
}

// single returns the value of a feature of one bytes value.
func (f *parsed) single() (value []byte, ok bool) {
	if f == nil || f.kind != bytesKind {
		return nil, false
	}
	n := 0
	err := f.eachBytes(func(b []byte) {
		value = b
		n++
	})
	return value, err == nil && n == 1
}

// integer returns the value of a feature of one integer.
func (f *parsed) integer() (value int64, ok bool) {
	if f == nil || f.kind != intsKind {
		return 0, false
	}
	n := 0
	err := f.eachInt(func(i int64) {
		value = i
		n++
	})
	return value, err == nil && n == 1
}

func (f *parsed) eachBytes(do func([]byte)) error {
	return messages(f.list, func(number protowire.Number, b []byte) error {
		if number == 1 {
			do(b)
		}
		return nil
	})
}

// eachInt and eachFloat take packed values and others.
func (f *parsed) eachInt(do func(int64)) error {
	return numbers(f.list, protowire.VarintType, func(b []byte) int {
		v, n := protowire.ConsumeVarint(b)
		if n > 0 {
			do(int64(v))
		}
		return n
	})
}

func (f *parsed) eachFloat(do func(float32)) error {
	return numbers(f.list, protowire.Fixed32Type, func(b []byte) int {
		v, n := protowire.ConsumeFixed32(b)
		if n > 0 {
			do(math.Float32frombits(v))
		}
		return n
	})
}

// numbers calls consume for each value of field 1 of a list, which has kind want
// where it is not packed.
func numbers(b []byte, want protowire.Type, consume func([]byte) int) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return wireError{protowire.ParseError(n)}
		}
		b = b[n:]
		switch {
		case number == 1 && kind == want:
			n = consume(b)
		case number == 1 && kind == protowire.BytesType:
			var packed []byte
			packed, n = protowire.ConsumeBytes(b)
			for len(packed) > 0 && n >= 0 {
				m := consume(packed)
				if m < 0 {
					return wireError{protowire.ParseError(m)}
				}
				packed = packed[m:]
			}
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return wireError{protowire.ParseError(n)}
		}
		b = b[n:]
	}
	return nil
}

// fields makes fields of the features.
func (p *parser) fields(frame []byte, offset int64) error {
	// add appends a field. Its data are a slice of the frame if f is a feature whose
	// list is; then they share the frame's end.
	add := func(name string, data []byte, f *parsed) {
		place := shard.FieldPlacement{HeaderOffset: offset, Offset: -1, Size: int64(len(data))}
		if f != nil && !f.merged {
			place.Offset = offset + int64(cap(frame)-cap(data))
		}
		p.out.Sample.Fields = append(p.out.Sample.Fields, sample.Field{Name: name, Data: data[:len(data):len(data)]})
		p.out.Placement.Fields = append(p.out.Placement.Fields, place)
	}
	key, keyed := p.find(keyName).single()
	keyed = keyed && len(key) > 0
	if keyed {
		p.out.Key = string(key)
	} else {
		p.out.Key = fmt.Sprintf("record-%012d", offset)
	}
	image := imageName
	if _, ok := p.find(image).single(); !ok {
		image = tfdsImage
	}
	label := labelName
	if _, ok := p.find(label).integer(); !ok {
		label = tfdsLabel
	}

	var rest []*parsed
	for i := range p.features {
		f := &p.features[i]
		value, single := f.single()
		switch name := f.name; {
		case name == keyName && keyed:
		case name == image && single:
			format, _ := p.find(formatName).single()
			field := imageField(format, value)
			if own, ok := p.find(fieldName).single(); ok && sample.CheckField(string(own)) == nil {
				field = p.internName(own)
			}
			add(field, value, f)
		case name == label && f.kind == intsKind:
			n, ok := f.integer()
			if !ok {
				rest = append(rest, f)
			} else if p.find(classField) == nil {
				p.class = strconv.AppendInt(p.class[:0], n, 10)
				add(classField, p.class, nil)
			}
		case name == formatName, name == fieldName, name == heightName, name == widthName,
			name == channelsName, name == colorspaceName:
		case keyed && (name == filenameName || name == textName):
		case single:
			if field, ok := strings.CutPrefix(name, ownPrefix); ok && (field == tfdsImage || field == keyName) {
				add(field, value, f)
			} else if p.isField(name) {
				add(name, value, f)
			} else {
				rest = append(rest, f)
			}
		default:
			rest = append(rest, f)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return p.rest(rest, offset, add)
}

// internName returns a name as a string, the same for all samples.
func (p *parser) internName(name []byte) string {
	switch string(name) {
	case keyName:
		return keyName
	case imageName:
		return imageName
	case formatName:
		return formatName
	case heightName:
		return heightName
	case widthName:
		return widthName
	case channelsName:
		return channelsName
	case colorspaceName:
		return colorspaceName
	case filenameName:
		return filenameName
	case labelName:
		return labelName
	case textName:
		return textName
	}
	if s, ok := p.intern[string(name)]; ok {
		return s
	}
	s := string(name)
	if p.reuse && len(p.intern) < 256 && len(s) < 256 {
		p.intern[s] = s
	}
	return s
}

// isField says whether a name is a field's name.
func (p *parser) isField(name string) bool {
	if legal, ok := p.legal[name]; ok {
		return legal
	}
	legal := sample.CheckField(name) == nil
	if p.reuse && len(p.legal) < 256 && len(name) < 256 {
		p.legal[name] = legal
	}
	return legal
}

// rest makes fields of the features that are none by themselves.
func (p *parser) rest(rest []*parsed, offset int64, add func(name string, data []byte, f *parsed)) error {
	object := make(map[string]any)
	for _, f := range rest {
		var err error
		name := f.name
		switch f.kind {
		case intsKind:
			list := []int64{}
			err = f.eachInt(func(n int64) { list = append(list, n) })
			if len(list) > 0 {
				object[name] = list
			}
		case floatsKind:
			list := []any{}
			err = f.eachFloat(func(x float32) { list = append(list, jsonFloat(x)) })
			if len(list) > 0 {
				object[name] = list
			}
		case bytesKind:
			var values [][]byte
			text := utf8.ValidString(name)
			err = f.eachBytes(func(b []byte) {
				values = append(values, b)
				text = text && utf8.Valid(b)
			})
			switch field := legalField(name); {
			case len(values) == 0:
			case text:
				list := make([]string, len(values))
				for i, v := range values {
					list[i] = string(v)
				}
				object[name] = list
			case len(values) == 1:
				add(field, values[0], f)
			default:
				for i, v := range values {
					add(fmt.Sprintf("%s.%d", field, i), v, f)
				}
			}
		}
		if err != nil {
			return formatError(offset, "the feature %q of the record is broken: %v", sample.Shorten(name), err)
		}
	}
	if len(object) == 0 {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(object); err != nil {
		return formatError(offset, "the features of the record: %v", err)
	}
	add(restField, bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil)
	return nil
}

// jsonFloat is x, or its name where JSON has no number for it.
func jsonFloat(x float32) any {
	if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.FormatFloat(f, 'g', -1, 32)
	}
	return x
}

// legalField makes a field's name of a feature's: "Image/mask 1" becomes
// "image.mask_1".
func legalField(name string) string {
	b := []byte(strings.ToLower(name))
	for i, c := range b {
		switch {
		case c == '/':
			b[i] = '.'
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == '.', c == '-', c == '+':
		default:
			b[i] = '_'
		}
	}
	words := strings.FieldsFunc(string(b), func(r rune) bool { return r == '.' })
	for i, w := range words {
		if w[0] == '-' || w[0] == '+' {
			words[i] = "_" + w
		}
	}
	field := strings.Join(words, ".")
	if len(field) > 200 {
		field = field[:200]
	}
	field = strings.TrimRight(field, "_.")
	if field == "" {
		field = "feature"
	}
	return field
}

// imageField returns what the field of an image is called, by image/format, or by
// its first bytes.
func imageField(format, data []byte) string {
	switch string(format) {
	case "JPEG", "jpeg", "JPG", "jpg":
		return "jpg"
	case "PNG", "png":
		return "png"
	case "WEBP", "webp":
		return "webp"
	case "GIF", "gif":
		return "gif"
	case "BMP", "bmp":
		return "bmp"
	case "TIFF", "tiff", "TIF", "tif":
		return "tiff"
	case "PNM", "pnm":
		return "pnm"
	}
	has := func(prefix string) bool { return bytes.HasPrefix(data, []byte(prefix)) }
	switch {
	case has("\xff\xd8\xff"):
		return "jpg"
	case has("\x89PNG\r\n\x1a\n"):
		return "png"
	case has("RIFF") && len(data) >= 12 && string(data[8:12]) == "WEBP":
		return "webp"
	case has("GIF8"):
		return "gif"
	case has("BM"):
		return "bmp"
	case has("II*\x00"), has("MM\x00*"):
		return "tiff"
	}
	return "image"
}

type byName shard.Located

func (l *byName) Len() int           { return len(l.Sample.Fields) }
func (l *byName) Less(i, j int) bool { return l.Sample.Fields[i].Name < l.Sample.Fields[j].Name }
func (l *byName) Swap(i, j int) {
	f, p := l.Sample.Fields, l.Placement.Fields
	f[i], f[j] = f[j], f[i]
	p[i], p[j] = p[j], p[i]
}

// Begins says whether bytes are the beginning of a record.
func Begins(head []byte) bool {
	return len(head) >= headSize && mask(crc32.Checksum(head[:8], castagnoli)) == binary.LittleEndian.Uint32(head[8:])
}
