package tfrecord

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"shardify/sample"
	"shardify/shard"
	"shardify/shard/internal/stream"
)

var errClosed = errors.New("tfrecord: write to a closed file")

type writer struct {
	out    *stream.Gather
	closed bool

	names    []string // field names that have been checked, by place in the sample
	features []feature
	text     []byte // what small values are made in
	head     []byte
	fields   []shard.FieldPlacement
}

// feature is an entry of the map, to be written.
type feature struct {
	prefix, name string // together the name
	kind         protowire.Number
	empty        bool   // a list of bytes without a value
	bytes        []byte // the value of kind bytesKind
	number       int64  // of kind intsKind
	field        int    // the number of the field that it is; -1 if it is none

	// Sizes of the encoded messages.
	list, value, entry int
}

// The kinds of tf.train.Feature.
const (
	bytesKind  = 1
	floatsKind = 2
	intsKind   = 3
)

func newWriter(w io.Writer) *writer { return &writer{out: stream.NewGather(w)} }

// Write appends a sample as one record. Without facts, the label is that of the
// field cls.
func (w *writer) Write(s *sample.Sample, facts *shard.Facts) (shard.Placement, error) {
	if w.closed {
		return shard.Placement{}, errClosed
	}
	if err := w.check(s); err != nil {
		return shard.Placement{}, err
	}
	if facts == nil {
		facts = &shard.Facts{Label: -1, Image: sample.Image(s.Fields, func(f sample.Field) string { return f.Name })}
	} else if facts.Image < -1 || facts.Image >= len(s.Fields) {
		return shard.Placement{}, fmt.Errorf("sample %q: the image is field %d of %d", s.Key, facts.Image, len(s.Fields))
	}
	w.gather(s, facts)
	total := w.measure()
	if total > maxExample {
		return shard.Placement{}, fmt.Errorf("sample %q takes %d bytes; a tf.train.Example has less than 2 GiB", s.Key, total)
	}
	start := w.out.Offset
	w.write(total)
	if w.out.Err != nil {
		return shard.Placement{}, w.out.Err
	}
	return shard.Placement{Offset: start, Size: w.out.Offset - start, Fields: w.fields}, nil
}

// Close writes what has been gathered; the format has no end of its own.
func (w *writer) Close() error {
	if !w.closed {
		w.closed = true
		w.out.Flush()
	}
	return w.out.Err
}

// check reports why no record can hold s.
func (w *writer) check(s *sample.Sample) error {
	if err := sample.CheckKey(s.Key); err != nil {
		return err
	}
	if len(s.Fields) == 0 {
		return fmt.Errorf("sample %q has no fields", s.Key)
	}
	for i := range s.Fields {
		name := s.Fields[i].Name
		if i >= len(w.names) || w.names[i] != name {
			if err := sample.CheckField(name); err != nil {
				return fmt.Errorf("sample %q: %w", s.Key, err)
			}
			if i < len(w.names) {
				w.names[i] = name
			} else if i == len(w.names) && i < 64 {
				w.names = append(w.names, name)
			}
		}
		if i > 0 && s.Fields[i-1].Name >= name {
			return fmt.Errorf("sample %q: field %q comes after %q: fields must be sorted by name, each name once",
				s.Key, name, s.Fields[i-1].Name)
		}
	}
	if len(s.Fields) > maxFeatures-16 {
		return fmt.Errorf("sample %q has %d fields; a record has at most %d", s.Key, len(s.Fields), maxFeatures-16)
	}
	return nil
}

// gather fills w.features, sorted by name.
func (w *writer) gather(s *sample.Sample, facts *shard.Facts) {
	w.features = w.features[:0]
	w.text = w.text[:0]
	w.fields = w.fields[:0]
	bytesFeature := func(name string, value []byte, field int) {
		w.features = append(w.features, feature{name: name, kind: bytesKind, bytes: value, field: field})
	}
	textFeature := func(name string, value ...string) {
		at := len(w.text)
		for _, v := range value {
			w.text = append(w.text, v...)
		}
		bytesFeature(name, w.text[at:len(w.text):len(w.text)], -1)
	}
	intFeature := func(name string, value int64) {
		w.features = append(w.features, feature{name: name, kind: intsKind, number: value, field: -1})
	}

	label := facts.Label
	class := -1 // the field cls
	for i := range s.Fields {
		if s.Fields[i].Name == classField && i != facts.Image {
			class = i
		}
	}
	if class >= 0 && label < 0 {
		if n, ok := canonical(s.Fields[class].Data); ok {
			label = n
			intFeature(labelName, n)
		}
	} else if label >= 0 {
		intFeature(labelName, label)
		if class < 0 {
			w.features = append(w.features, feature{name: classField, kind: bytesKind, empty: true, field: -1})
		}
	}
	textFeature(keyName, s.Key)
	if facts.LabelName != "" {
		textFeature(textName, facts.LabelName)
	}

	for i := range s.Fields {
		f := &s.Fields[i]
		place := shard.FieldPlacement{HeaderOffset: w.out.Offset, Offset: -1, Size: int64(len(f.Data))}
		w.fields = append(w.fields, place)
		switch {
		case i == facts.Image:
			bytesFeature(imageName, f.Data, i)
			format := formatOf(facts.Format, f.Name)
			if format != "" {
				textFeature(formatName, format)
			}
			if imageField([]byte(format), f.Data) != f.Name {
				textFeature(fieldName, f.Name)
			}
			if facts.Path != "" {
				textFeature(filenameName, sample.Unescape(path.Base(facts.Path)))
			} else {
				textFeature(filenameName, path.Base(s.Key), ".", f.Name)
			}
		case i == class:
			if n, ok := canonical(f.Data); !ok || n != label {
				bytesFeature(f.Name, f.Data, i)
			}
		case f.Name == tfdsImage || f.Name == keyName:
			bytesFeature(f.Name, f.Data, i)
			w.features[len(w.features)-1].prefix = ownPrefix
		default:
			bytesFeature(f.Name, f.Data, i)
		}
	}
	if facts.Image >= 0 {
		if facts.Height > 0 && facts.Width > 0 {
			intFeature(heightName, int64(facts.Height))
			intFeature(widthName, int64(facts.Width))
		}
		if facts.Channels > 0 {
			intFeature(channelsName, int64(facts.Channels))
		}
		if facts.Colorspace != "" {
			textFeature(colorspaceName, facts.Colorspace)
		}
	}
	slices.SortFunc(w.features, func(a, b feature) int {
		if a.prefix == b.prefix {
			return strings.Compare(a.name, b.name)
		}
		return strings.Compare(a.prefix+a.name, b.prefix+b.name)
	})
}

// canonical returns the number that data is in decimal, as Go and Python write it.
func canonical(data []byte) (int64, bool) {
	if len(data) == 0 || len(data) > 20 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		return 0, false
	}
	var b [20]byte
	return n, string(strconv.AppendInt(b[:0], n, 10)) == string(data)
}

// formats maps the kinds of images to what image/format calls them.
var formats = map[string]string{
	"jpeg": "JPEG", "png": "PNG", "webp": "WEBP", "gif": "GIF", "bmp": "BMP", "tiff": "TIFF", "pnm": "PNM",
}

// formatOf returns image/format for an image of that format, or in a field of that
// name where the format is not known.
func formatOf(format, field string) string {
	if format != "" {
		if f, ok := formats[format]; ok {
			return f
		}
		return strings.ToUpper(format)
	}
	field = sample.FieldOf(field)
	if field == "jpg" {
		return "JPEG"
	}
	return formats[field]
}

// measure finds the sizes of all messages and returns that of the whole.
func (w *writer) measure() int {
	total := 0
	for i := range w.features {
		f := &w.features[i]
		switch {
		case f.empty:
			f.list = 0
		case f.kind == bytesKind:
			f.list = 1 + protowire.SizeBytes(len(f.bytes))
		default:
			f.list = 1 + protowire.SizeBytes(protowire.SizeVarint(uint64(f.number)))
		}
		f.value = 1 + protowire.SizeBytes(f.list)
		f.entry = 1 + protowire.SizeBytes(len(f.prefix)+len(f.name)) + 1 + protowire.SizeBytes(f.value)
		total += 1 + protowire.SizeBytes(f.entry)
	}
	return 1 + protowire.SizeBytes(total)
}

// write writes the record, whose data have total bytes.
func (w *writer) write(total int) {
	head := binary.LittleEndian.AppendUint64(w.head[:0], uint64(total))
	head = binary.LittleEndian.AppendUint32(head, mask(crc32.Checksum(head, castagnoli)))
	w.out.Write(head)

	var crc uint32
	put := func(p []byte) {
		crc = crc32.Update(crc, castagnoli, p)
		w.out.Write(p)
	}
	features := 0
	for i := range w.features {
		features += 1 + protowire.SizeBytes(w.features[i].entry)
	}
	// b holds what stands before the next large value.
	b := appendHead(head[:0], 1, features) // Example.features
	for i := range w.features {
		f := &w.features[i]
		b = appendHead(b, 1, f.entry) // Features.feature
		b = appendHead(b, 1, len(f.prefix)+len(f.name))
		b = append(b, f.prefix...)
		b = append(b, f.name...)
		b = appendHead(b, 2, f.value)
		b = appendHead(b, f.kind, f.list)
		switch {
		case f.empty:
		case f.kind == bytesKind:
			b = appendHead(b, 1, len(f.bytes))
			put(b)
			b = b[:0]
			if f.field >= 0 {
				w.fields[f.field].Offset = w.out.Offset
			}
			put(f.bytes)
		default:
			b = appendHead(b, 1, protowire.SizeVarint(uint64(f.number)))
			b = protowire.AppendVarint(b, uint64(f.number))
		}
	}
	put(b)
	b = binary.LittleEndian.AppendUint32(b[:0], mask(crc))
	w.out.Write(b)
	w.head = b
}

// appendHead appends what stands before a message or bytes of that size.
func appendHead(b []byte, number protowire.Number, size int) []byte {
	b = protowire.AppendTag(b, number, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(size))
}

// estimate is Container.Size.
func estimate(key string, fields []shard.FieldSize) int64 {
	// The frame, the tags of the whole, and key; then what the image brings along:
	// format, height, width, channels, colorspace, filename, class/label and
	// class/text, for whose names 60 bytes are reckoned.
	n := int64(frameSize + 6 + 14 + len(key))
	if sample.Image(fields, func(f shard.FieldSize) string { return f.Name }) >= 0 {
		n += 23 + 23 + 23 + 25 + 28 + 26 + 29 + 26 + 60 + 8
	}
	for _, f := range fields {
		n += 14 + int64(len(f.Name)) + f.Size
		if f.Size >= 1<<14 {
			n += 4
		}
	}
	return n
}
