package source

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"shardify/sample"
)

// Group is the entries that make one sample, or one that make none.
type Group struct {
	// Split and Class are those of its entries.
	Split, Class string
	// Key is the sample's key. It is legal by sample.CheckKey, except in an
	// ignored group, where it says nothing.
	Key string
	// Fields are sorted by name, each name once; at least one. They are valid until
	// the next iteration, their strings for ever.
	Fields []FieldEntry
	// Ignored says that the files are no sample: none of them is an image
	// ("README.md", "Thumbs.db"). Such files may lack a field name.
	Ignored bool
}

// FieldEntry is a field of a sample that is to be.
type FieldEntry struct {
	// Name is the field's name ("jpg", "seg.png") and Path the entry's path.
	Name, Path string
	// Location says where its content is.
	Location
}

// MaxFields bounds the fields of a sample, and with them the memory of Groups.
const MaxFields = 4096

// Groups finds out which entries make one sample.
//
// # The rule
//
// A file's name is STEM.EXT, cut at the last dot. Files of one folder with one
// stem are one sample: a.jpg, a.json and a.png are its fields jpg, json and png.
// Its key is the path of folder and stem under sample.KeyOf, so img.001.jpg has
// the key "img%2E001"; a field's name is its extension under sample.FieldOf, so
// a.JPEG is the field jpg.
//
// A file P.w1.w2.EXT is a side-car of the sample with stem P, as its field
// "w1.w2.ext", if there is a file with exactly that stem in its folder and w1, w2
// are words: a letter and then letters, digits, "_" and "-" (all ASCII). So
// a.seg.png belongs to a.jpg, but img.001.jpg does not belong to img.jpg. Where
// several stems P fit, the shortest wins.
//
// A sample has an image among its fields whose name is one word (jpg, not
// seg.png); files that make none are yielded as an ignored group. So are, one by
// one, files without stem or extension (README, .jpg), or with an extension that
// is no legal field name (a.jpg~); they do not count as files of that stem.
//
// Entries with an explicit Key and Field make the sample of that key, with or
// without an image, together with files that the rule gives the same key. They
// count as files of that stem. Entries that only declare a class are left out.
//
// # Use
//
// The entries must come in the bytewise order of their SortKeys; equal ones in an
// order that is the same every time. Groups come out in an order that depends
// only on the entries. The memory needed does not grow with the number of entries:
// it holds the samples whose stems begin the current one, each of at most MaxFields
// fields.
//
// # Errors
//
// An error that is an [*EntryError], from the entries or from here, concerns one
// entry or sample only, and the iteration goes on: ErrDuplicate for the second file
// that would be the same field of a sample, of which the first in path order
// stays (one without an explicit key before those with one); a class that is not the one that another file of the sample has, which
// leaves out the sample; a key or field that is illegal (sample.ErrName), for
// example longer than allowed; a field beyond MaxFields. Any other error is the
// last.
func Groups(entries iter.Seq2[Entry, error]) iter.Seq2[Group, error] {
	return func(yield func(Group, error) bool) {
		g := grouper{yield: yield, fields: make(map[string]fieldInfo)}
		for e, err := range entries {
			if err != nil {
				var entry *EntryError
				if !yield(Group{}, err) || !errors.As(err, &entry) {
					return
				}
				continue
			}
			if !g.add(&e) {
				return
			}
		}
		for len(g.stack) > 0 {
			if !g.pop() {
				return
			}
		}
	}
}

// The sort key is, for a derived and for an explicit entry
//
//	SPLIT 0 'p' FOLDER 0 WORD 1 WORD 1 … WORD 0 EXT
//	SPLIT 0 'p' FOLDER 0 WORD 1 WORD 1 … WORD 0 FIELD 0 PATH
//
// where the words are the stem's, split at dots. What is before EXT is called the
// head. All names are escaped (appendName), so that the separators are less than
// all that is between them: the files of a folder are contiguous, and within it
// the files of one stem, after which come those whose stems continue it. An
// explicit key stands as the path that sample.KeyOf would make it of; where there
// is none, because the key came from elsewhere and has a '%' that KeyOf would not
// write, as
//
//	SPLIT 0 'k' KEY 0 FIELD 0 PATH

// SortKey appends bytes to dst whose bytewise order is the order of entries that
// Groups needs, and returns the extended slice.
func (e *Entry) SortKey(dst []byte) []byte {
	if e.declares() {
		return dst
	}
	dst = e.appendHead(dst)
	dst = append(dst, 0)
	if !e.explicit() {
		_, ext := cutName(e.keyPath())
		return appendName(dst, ext, 0)
	}
	dst = appendName(dst, e.Field, 0)
	dst = append(dst, 0)
	return appendName(dst, e.Path, 0)
}

// declares says that e only declares a class.
func (e *Entry) declares() bool { return e.Path == "" && !e.explicit() }

func (e *Entry) explicit() bool { return e.Key != "" || e.Field != "" }

func (e *Entry) keyPath() string {
	if e.KeyPath != "" {
		return e.KeyPath
	}
	return e.Path
}

// stem returns the path of e's folder and stem. ok is false where e has an
// explicit key that no path leads to; then it is that key.
func (e *Entry) stem() (stem string, ok bool) {
	if !e.explicit() {
		stem, _ = cutName(e.keyPath())
		return stem, true
	}
	if !strings.Contains(e.Key, "%") {
		return e.Key, true
	}
	stem = sample.Unescape(e.Key)
	if sample.KeyOf(stem) != e.Key {
		return e.Key, false
	}
	return stem, true
}

func (e *Entry) appendHead(dst []byte) []byte {
	dst = appendName(dst, e.Split, 0)
	dst = append(dst, 0)
	stem, ok := e.stem()
	if !ok {
		dst = append(dst, 'k')
		return appendName(dst, stem, 0)
	}
	dst = append(dst, 'p')
	base := strings.LastIndexByte(stem, '/') + 1
	dst = appendName(dst, stem[:base], 0)
	dst = append(dst, 0)
	return appendName(dst, stem[base:], '.')
}

// appendName appends name so that its bytes are greater than 1, in the same order;
// bytes equal to dot, unless that is 0, become 1.
func appendName(dst []byte, name string, dot byte) []byte {
	for i := range len(name) {
		switch c := name[i]; {
		case c <= 2:
			dst = append(dst, 2, c+3)
		case c == dot:
			dst = append(dst, 1)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// cutName cuts the path of a file into stem (with its folder) and extension. The
// extension is empty where there is none, or no stem.
func cutName(path string) (stem, ext string) {
	for i := len(path) - 1; i > 0 && path[i] != '/'; i-- {
		if path[i] == '.' {
			if path[i-1] == '/' {
				break
			}
			return path[:i], path[i+1:]
		}
	}
	return path, ""
}

// cutWords cuts off the side-car words at the end of head, each with the
// separator before it; the first word of a stem is none.
func cutWords(head []byte) []byte {
	for {
		i := len(head) - 1
		for i >= 0 && wordByte(head[i]) {
			i--
		}
		if i < 0 || head[i] != 1 || i+1 == len(head) || !letter(head[i+1]) {
			return head
		}
		head = head[:i]
	}
}

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func wordByte(c byte) bool {
	return letter(c) || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// fieldInfo is what Groups wants to know of an extension.
type fieldInfo struct {
	name  string // "" if it is no legal field name
	image bool
}

// pending is a sample that may still get fields.
type pending struct {
	Group
	head     []byte
	stem     int    // the length of the path of folder and stem
	classOf  string // the path that Class comes from
	conflict error
	explicit bool
	image    bool
}

type grouper struct {
	yield func(Group, error) bool
	// stack holds the samples whose heads are e's, or begin it with whole words;
	// shorter ones first. free keeps the buffers of those that are done.
	stack, free []*pending
	// last and key are the sort keys of the entry before and of this one.
	last, key []byte
	fields    map[string]fieldInfo
}

// fail yields an error of one entry.
func (g *grouper) fail(path string, err error) bool {
	return g.yield(Group{}, &EntryError{Path: path, Err: err})
}

// field looks up the field of an extension.
func (g *grouper) field(ext string) fieldInfo {
	if f, ok := g.fields[ext]; ok {
		return f
	}
	if len(g.fields) >= MaxFields {
		clear(g.fields)
	}
	var f fieldInfo
	if name := sample.FieldOf(ext); sample.CheckField(name) == nil {
		f.name = strings.Clone(name)
		f.image = !strings.Contains(name, ".") && sample.IsImage(name)
	}
	g.fields[strings.Clone(ext)] = f
	return f
}

func (g *grouper) add(e *Entry) bool {
	if e.declares() {
		return true
	}
	g.last, g.key = g.key, e.SortKey(g.last[:0])
	if bytes.Compare(g.last, g.key) > 0 {
		g.yield(Group{}, fmt.Errorf("%q: the entries are not sorted", e.Path))
		return false
	}
	if e.explicit() {
		return g.addExplicit(e)
	}
	path := e.keyPath()
	stem, ext := cutName(path)
	own := g.field(ext)
	if own.name == "" {
		return g.yield(Group{
			Split: e.Split, Class: e.Class, Ignored: true,
			Fields: []FieldEntry{{Path: e.Path, Location: e.Location}},
		}, nil)
	}
	head := g.key[:bytes.LastIndexByte(g.key, 0)]
	if !g.unwind(head) {
		return false
	}
	least := len(cutWords(head))
	for _, p := range g.stack {
		if len(p.head) < least {
			continue
		}
		if len(p.head) < len(head) {
			words := path[p.stem+1:]
			if own = g.field(words); own.name == "" {
				return g.fail(e.Path, sample.CheckField(sample.FieldOf(words)))
			}
		}
		return g.put(p, e, own)
	}
	return g.put(g.push(e, head, stem, ""), e, own)
}

func (g *grouper) addExplicit(e *Entry) bool {
	if err := sample.CheckKey(e.Key); err != nil {
		return g.fail(e.Path, err)
	}
	f := g.field(e.Field)
	if f.name == "" || f.name != e.Field {
		if err := sample.CheckField(e.Field); err != nil {
			return g.fail(e.Path, err)
		}
		f.name = e.Field // a legal name under another spelling (jpeg) stays
	}
	// The head ends before FIELD 0 PATH.
	head := g.key[:bytes.LastIndexByte(g.key, 0)]
	head = head[:bytes.LastIndexByte(head, 0)]
	if !g.unwind(head) {
		return false
	}
	if n := len(g.stack); n == 0 || len(g.stack[n-1].head) < len(head) {
		stem, _ := e.stem()
		g.push(e, head, stem, e.Key)
	}
	p := g.stack[len(g.stack)-1]
	p.explicit = true
	return g.put(p, e, f)
}

// unwind finishes the samples that an entry with this head, and those after it,
// cannot belong to.
func (g *grouper) unwind(head []byte) bool {
	for len(g.stack) > 0 {
		top := g.stack[len(g.stack)-1].head
		if bytes.HasPrefix(head, top) && (len(head) == len(top) || head[len(top)] == 1) {
			return true
		}
		if !g.pop() {
			return false
		}
	}
	return true
}

// push begins a sample; without a key, its stem makes it.
func (g *grouper) push(e *Entry, head []byte, stem, key string) *pending {
	var p *pending
	if n := len(g.free); n > 0 {
		p, g.free = g.free[n-1], g.free[:n-1]
	} else {
		p = new(pending)
	}
	if key == "" {
		key = sample.KeyOf(stem)
	}
	*p = pending{
		Group: Group{Split: e.Split, Key: key, Fields: p.Fields[:0]},
		head:  append(p.head[:0], head...),
		stem:  len(stem),
	}
	g.stack = append(g.stack, p)
	return p
}

// put adds a field to a sample.
func (g *grouper) put(p *pending, e *Entry, f fieldInfo) bool {
	if len(p.Fields) == MaxFields {
		return g.fail(e.Path, fmt.Errorf("sample %q has more than %d fields; are these samples of their own? then give them names of another stem",
			sample.Shorten(p.Key), MaxFields))
	}
	p.Fields = append(p.Fields, FieldEntry{Name: f.name, Path: e.Path, Location: e.Location})
	p.image = p.image || f.image
	switch {
	case e.Class == "" || e.Class == p.Class:
	case p.Class == "":
		p.Class, p.classOf = e.Class, e.Path
	case p.conflict == nil:
		p.conflict = &EntryError{Path: e.Path, Err: fmt.Errorf("sample %q has class %q here and class %q by %q",
			sample.Shorten(p.Key), e.Class, p.Class, p.classOf)}
	}
	return true
}

// pop finishes the last sample of the stack and yields it.
func (g *grouper) pop() bool {
	n := len(g.stack) - 1
	p := g.stack[n]
	g.stack = g.stack[:n]
	g.free = append(g.free, p)

	if len(p.Fields) > 1 {
		slices.SortStableFunc(p.Fields, func(a, b FieldEntry) int { return strings.Compare(a.Name, b.Name) })
	}
	p.Ignored = !p.image && !p.explicit
	if p.Ignored {
		return g.yield(p.Group, nil)
	}
	if err := sample.CheckKey(p.Key); err != nil {
		return g.fail(p.Fields[0].Path, err)
	}
	kept := p.Fields[:1]
	for _, f := range p.Fields[1:] {
		before := &kept[len(kept)-1]
		if f.Name != before.Name {
			kept = append(kept, f)
			continue
		}
		first := before.Path
		if first == f.Path && before.Location.Name != "" {
			first = before.Location.Name
		}
		if !g.fail(f.Path, fmt.Errorf("%w: field %q of sample %q is also in %q", ErrDuplicate, f.Name, sample.Shorten(p.Key), first)) {
			return false
		}
	}
	clear(p.Fields[len(kept):])
	p.Fields = kept
	if p.conflict != nil {
		return g.yield(Group{}, p.conflict)
	}
	return g.yield(p.Group, nil)
}
