// Package sample holds the noun that flows through shardify: a sample, what a
// model sees once, made of a key and of named blobs of bytes, its fields.
//
// # Names
//
// A sample is stored under WebDataset's naming rule, so that any of its readers
// understands our shards: a container entry is called KEY.FIELD, the key is all
// up to the first dot of the last path component, and the rest is the field's
// name, in lower case ("n01440764/x.seg.png" is field "seg.png" of key
// "n01440764/x"). [Split] and [Join] apply the rule.
//
// File names are not always legal keys: they have dots, bytes that are no UTF-8,
// names of the form __x__ that WebDataset's readers skip. [Escape] and [KeyOf]
// map any path to a legal text and key by percent-encoding the offending bytes
// ("img.001" becomes "img%2E001"); [Unescape] gives back the original bytes. The
// mapping is injective: different paths never get one key.
package sample

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Field is one named blob of a sample.
type Field struct {
	// Name is the field's name, in lower case and without a leading dot: "jpg",
	// "cls", "seg.png".
	Name string
	// Data is the field's content. Who owns it, and for how long it is valid, is
	// said by whoever hands out the sample.
	Data []byte
}

// Sample is a key and its fields. Fields are sorted by name, each name once.
type Sample struct {
	Key    string
	Fields []Field
}

// Field returns the content of the field called name.
func (s *Sample) Field(name string) (data []byte, ok bool) {
	for i := range s.Fields {
		if s.Fields[i].Name == name {
			return s.Fields[i].Data, true
		}
	}
	return nil, false
}

// ErrName is wrapped by the errors for keys and field names that no container
// could hold.
var ErrName = errors.New("illegal name")

var (
	// A field name is made of dot-separated words.
	fieldName = regexp.MustCompile(`^[a-z0-9_][a-z0-9_+-]*(\.[a-z0-9_][a-z0-9_+-]*)*$`)
	// Readers of WebDataset skip every member whose name matches this.
	skipped = regexp.MustCompile(`__[^/]*__($|/)`)
)

// Split applies WebDataset's rule to the name of a container entry. ok is false
// where the rule gives no sample: no dot in the last component, a leading dot,
// or a name of the form __x__.
func Split(name string) (key, field string, ok bool) {
	base := name[strings.LastIndexByte(name, '/')+1:]
	dot := strings.IndexByte(base, '.')
	if dot <= 0 || skipped.MatchString(name) {
		return "", "", false
	}
	cut := len(name) - len(base) + dot
	return name[:cut], strings.ToLower(name[cut+1:]), true
}

// Join is the inverse of Split.
func Join(key, field string) string { return key + "." + field }

// CheckKey reports why key cannot be a sample's key; nil if it can. A key is a
// relative slash-separated path in UTF-8, without control characters, without a
// dot in the last component, without "." and ".." components, and of at most
// 4,096 bytes.
func CheckKey(key string) error {
	fault := func(why string) error { return fmt.Errorf("%w: key %q %s", ErrName, Shorten(key), why) }
	switch {
	case key == "":
		return fault("is empty")
	case len(key) > 4096:
		return fault("is longer than 4,096 bytes")
	case !utf8.ValidString(key):
		return fault("is not UTF-8")
	case skipped.MatchString(key):
		return fault("has the form __x__, which WebDataset's readers skip")
	}
	for i := range len(key) {
		if key[i] < 0x20 || key[i] == 0x7f {
			return fault("has a control character")
		}
	}
	rest := key
	for last := false; !last; {
		var c string
		c, rest, last = strings.Cut(rest, "/")
		last = !last
		switch {
		case c == "" || c == "." || c == "..":
			return fault(fmt.Sprintf("has the path component %q", c))
		case last && strings.Contains(c, "."):
			return fault("has a dot in its last component")
		}
	}
	return nil
}

// CheckField reports why name cannot be a field's name; nil if it can. A field
// name is made of words of a-z, 0-9, "_", "+" and "-", separated by dots, does
// not end in "__", and is at most 255 bytes long.
func CheckField(name string) error {
	if len(name) > 255 || !fieldName.MatchString(name) || strings.HasSuffix(name, "__") {
		return fmt.Errorf("%w: field %q: want words of a-z, 0-9, _, + and - separated by dots", ErrName, Shorten(name))
	}
	return nil
}

const hexDigits = "0123456789ABCDEF"

// Escape maps any path to printable UTF-8: '%', '\', control characters and bytes
// that are not UTF-8 become %XX, and so does the first underscore of a component of
// the form __x__. Slashes and dots stay.
func Escape(path string) string { return escape(path, len(path)) }

// KeyOf returns the key of a file whose slash-separated relative path, less its
// extension, is stem: Escape, and moreover every dot of the last component
// becomes %2E.
func KeyOf(stem string) string { return escape(stem, strings.LastIndexByte(stem, '/')+1) }

// escape escapes path; from byte base on, dots too.
func escape(path string, base int) string {
	if clean(path, base) {
		return path
	}
	var b strings.Builder
	b.Grow(len(path) + 8)
	hex := func(c byte) {
		b.WriteByte('%')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	for i := 0; i < len(path); {
		c := path[i]
		switch {
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRuneInString(path[i:])
			if r == utf8.RuneError && n == 1 {
				hex(c)
			} else {
				b.WriteString(path[i : i+n])
			}
			i += n
			continue
		case c < 0x20, c == 0x7f, c == '%', c == '\\', c == '.' && i >= base:
			hex(c)
		case skippedFrom(path[i:]):
			hex(c)
		default:
			b.WriteByte(c)
		}
		i++
	}
	return b.String()
}

// skippedFrom says that rest, up to its first slash, has the form __x__.
func skippedFrom(rest string) bool {
	if !strings.HasPrefix(rest, "__") {
		return false
	}
	component, _, _ := strings.Cut(rest, "/")
	return len(component) >= 4 && strings.HasSuffix(component, "__")
}

// clean says that escape would change nothing, or may change something: it is
// the quick way out for most names.
func clean(path string, base int) bool {
	for i := range len(path) {
		c := path[i]
		if c < 0x20 || c == 0x7f || c == '%' || c == '\\' || c == '.' && i >= base ||
			c == '_' && i+1 < len(path) && path[i+1] == '_' {
			return false
		}
	}
	return utf8.ValidString(path)
}

// Unescape gives back the bytes that Escape or KeyOf was given. A '%' that is not
// followed by two hexadecimal digits stands for itself, so that keys of other
// tools' shards pass unharmed.
func Unescape(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			hi, lo := strings.IndexByte(hexDigits, text[i+1]), strings.IndexByte(hexDigits, text[i+2])
			if hi >= 0 && lo >= 0 {
				b = append(b, byte(hi<<4|lo))
				i += 2
				continue
			}
		}
		b = append(b, text[i])
	}
	return string(b)
}

// aliases maps extensions to the field name that the field uses for them.
var aliases = map[string]string{
	"jpeg": "jpg", "jpe": "jpg", "jfif": "jpg", "tif": "tiff", "dib": "bmp",
}

// FieldOf returns the field name for a file's extension, which has no leading dot
// but may have several words ("seg.PNG"): lower case, and one spelling for each
// image format ("JPEG" becomes "jpg", "seg.tif" becomes "seg.tiff").
func FieldOf(ext string) string {
	ext = strings.ToLower(ext)
	dot := strings.LastIndexByte(ext, '.')
	if a, ok := aliases[ext[dot+1:]]; ok {
		return ext[:dot+1] + a
	}
	return ext
}

// imageFields lists the names of image fields, in the order in which they are
// looked for when a sample has several.
var imageFields = [...]string{"jpg", "png", "webp", "gif", "bmp", "tiff", "pnm", "ppm", "pgm", "pbm"}

// IsImage says whether a field of this name, or its last word, holds an image
// file: "jpg", "png", "webp", "gif", "bmp", "tiff", "pnm", "ppm", "pgm", "pbm", "seg.png".
func IsImage(field string) bool {
	last := FieldOf(field[strings.LastIndexByte(field, '.')+1:])
	for _, f := range imageFields {
		if f == last {
			return true
		}
	}
	return false
}

// Image returns the number of the field that holds the sample's picture: the
// first of jpg, png, webp, gif, bmp, tiff, pnm, ppm, pgm and pbm (under any of their
// spellings) that is there; -1 if there is none. Masks such as "seg.png" do not count.
func Image[F any](fields []F, name func(F) string) int {
	best, at := len(imageFields), -1
	for i, f := range fields {
		n := FieldOf(name(f))
		for rank, want := range imageFields[:best] {
			if n == want {
				best, at = rank, i
				break
			}
		}
	}
	return at
}

// Shorten cuts a name from hostile input to a length fit for an error message.
func Shorten(name string) string {
	const most = 200
	if len(name) <= most {
		return name
	}
	return name[:most] + "…"
}
