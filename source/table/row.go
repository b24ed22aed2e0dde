package table

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"shardify/sample"
	"shardify/source"
	"shardify/source/folder"
	"shardify/source/internal/pass"
)

// kind is what a cell holds.
type kind uint8

const (
	null   kind = iota
	text        // data is text
	number      // data is a number as JSON writes it
	other       // data is another JSON value
	blob        // data is bytes
	image       // an image in a Parquet file: loc, path and head
)

// cell is a value in a row.
type cell struct {
	kind kind
	data []byte
	// loc is where an image is, path what the table calls it, and head its first
	// bytes. loc.Name is empty if there are no bytes, but a path only.
	loc  source.Location
	path string
	head []byte
}

// row is a row of a table.
type row struct {
	// where names it in errors: "x.csv:17".
	where string
	// number counts from 0.
	number int64
	// cells has an element for each of the reader's columns, in their order;
	// fewer if the last ones are null.
	cells []cell
}

func (r *row) cell(column int) *cell {
	if column < 0 || column >= len(r.cells) {
		return &cell{}
	}
	return &r.cells[column]
}

var (
	pathNames  = []string{"path", "file_name", "filename", "image", "file"}
	labelNames = []string{"label", "class"}
	splitNames = []string{"split"}
	keyNames   = []string{"key", "__key__"}

	defaultNames = slices.Concat(pathNames, labelNames, splitNames, keyNames)
)

// column is what becomes of a column that is a field.
type column struct {
	field string // "" if it is left out or has another part
	kind  kind   // what its first value was; null before
	name  string // the field's whole name; "" before
}

// builder makes entries of rows.
type builder struct {
	t *Table
	r reader
	// path, label, split and key are the numbers of columns; -1 if there is none.
	path, label, split, key int
	rowNumber               bool
	found                   bool // the parts are found
	columns                 []column
	fields                  map[string]string // field to column
	// unnumbered says that some label was no number, labelled that there were any.
	unnumbered, labelled bool
}

func (t *Table) builder(r reader) *builder {
	return &builder{t: t, r: r, path: -1, label: -1, split: -1, key: -1, fields: make(map[string]string)}
}

// eachRow reads the table and calls f for each row, or error of one, until that
// says false. The error is that which ends the table.
func (t *Table) eachRow(f func(*builder, *row, error) bool) error {
	r, err := t.open()
	if err != nil {
		return err
	}
	defer r.close()
	b := t.builder(r)
	if err := b.grow(); err != nil {
		return err
	}
	var line row
	for {
		err := r.next(&line)
		var entry *source.EntryError
		switch {
		case errors.Is(err, io.EOF):
			t.numeric.Store(b.labelled && !b.unnumbered)
			return nil
		case err != nil && !errors.As(err, &entry):
			return err
		case err == nil:
			if err := b.grow(); err != nil {
				return fmt.Errorf("%s: %w", line.where, err)
			}
		}
		if !f(b, &line, err) {
			return nil
		}
	}
}

// grow takes notice of the columns that have come since it was last called.
func (b *builder) grow() error {
	names := b.r.columns()
	if b.found && len(names) == len(b.columns) {
		return nil
	}
	if !b.found {
		if err := b.findParts(names); err != nil {
			return err
		}
		b.found = true
	}
	cfg := &b.t.cfg
	var faults []error
	for i := len(b.columns); i < len(names); i++ {
		b.columns = append(b.columns, column{})
		name := names[i]
		switch {
		case i == b.path, i == b.label, i == b.split, i == b.key:
			continue
		case len(cfg.Columns) > 0 && !slices.Contains(cfg.Columns, name), strings.HasPrefix(name, "__index_level_"):
			continue
		}
		field := strings.ToLower(name)
		if err := sample.CheckField(fieldName(field, other)); err != nil {
			faults = append(faults, fmt.Errorf("column %q: %w", name, err))
			continue
		}
		if first, ok := b.fields[field]; ok {
			faults = append(faults, fmt.Errorf("columns %q and %q would both be the field %q", first, name, field))
			continue
		}
		b.fields[field] = name
		b.columns[i].field = field
	}
	if len(faults) > 0 {
		return fmt.Errorf("rename these columns, or name the columns to keep as fields: %w", errors.Join(faults...))
	}
	return nil
}

// findParts finds the columns that are no fields.
func (b *builder) findParts(names []string) error {
	cfg := &b.t.cfg
	var faults []error
	find := func(part, name string, defaults []string) int {
		if name == None {
			return -1
		}
		if name != "" {
			i := slices.Index(names, name)
			if i < 0 {
				faults = append(faults, fmt.Errorf("there is no column %q for the %s", name, part))
			}
			return i
		}
		for _, d := range defaults {
			if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, d) }); i >= 0 {
				return i
			}
		}
		return -1
	}
	b.path = find("paths", cfg.PathColumn, pathNames)
	inline := false
	if p, ok := b.r.(*parquetRows); ok {
		if b.path < 0 && cfg.PathColumn == "" {
			b.path = p.imageColumn()
		}
		inline = b.path >= 0 && p.isImage(b.path)
	}
	if b.path < 0 && cfg.PathColumn == "" {
		faults = append(faults, fmt.Errorf("there is no column of paths (%s); name it", strings.Join(pathNames, ", ")))
	}
	b.label = find("labels", cfg.LabelColumn, labelNames)
	b.split = find("splits", cfg.SplitColumn, splitNames)
	switch {
	case cfg.KeyColumn == RowNumber:
		b.rowNumber = true
	case cfg.KeyColumn != "":
		b.key = find("keys", cfg.KeyColumn, nil)
	case inline:
		b.key = find("keys", "", keyNames)
	}
	for _, c := range cfg.Columns {
		if c != None && !slices.Contains(names, c) {
			if _, growing := b.r.(*jsonlReader); !growing {
				faults = append(faults, fmt.Errorf("there is no column %q", c))
			}
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w; its columns are %q", errors.Join(faults...), names)
	}
	return nil
}

// fieldName adds to a column's name what it holds.
func fieldName(field string, k kind) string {
	word := "json"
	switch k {
	case text:
		word = "txt"
	case blob:
		word = "bin"
	}
	last := field[strings.LastIndexByte(field, '.')+1:]
	if last == word || k == text && last == "json" {
		return field
	}
	return field + "." + word
}

// items appends the items of a row to batch. An error is of the row, and then the
// batch is as before.
func (b *builder) items(batch []pass.Item, r *row) ([]pass.Item, error) {
	fail := func(format string, args ...any) ([]pass.Item, error) {
		return nil, &source.EntryError{Path: r.where, Err: fmt.Errorf(format, args...)}
	}
	e, err := b.image(r)
	if err != nil {
		return fail("%w", err)
	}
	if b.split >= 0 {
		c := r.cell(b.split)
		if (c.kind != text && c.kind != number) || len(c.data) == 0 {
			return fail("it has no split")
		}
		e.Split = string(c.data)
	}
	if b.label >= 0 {
		if e.Class, err = b.class(r.cell(b.label)); err != nil {
			return fail("%w", err)
		}
	}
	batch = append(batch, pass.Item{Entry: e})
	for i := range b.columns {
		col, c := &b.columns[i], r.cell(i)
		if col.field == "" || c.kind == null {
			continue
		}
		f := source.Entry{Split: e.Split, Key: e.Key}
		if c.kind == image {
			if f.Field, err = imageField(c); err != nil {
				return fail("column %q: %w", b.r.columns()[i], err)
			}
			if !sample.IsImage(col.field) {
				f.Field = col.field + "." + f.Field
			} else {
				f.Field = sample.FieldOf(col.field)
			}
			f.Location = c.loc
		} else {
			if col.kind == null {
				col.kind, col.name = c.kind, fieldName(col.field, c.kind)
			}
			f.Field = col.name
			f.Inline = content(c, col.kind)
		}
		f.Path = strings.TrimSuffix(e.Path, path.Ext(e.Path)) + "." + f.Field
		batch = append(batch, pass.Item{Entry: f})
	}
	return batch, nil
}

// content copies a cell's value into a field of a column that holds values of a
// kind.
func content(c *cell, column kind) []byte {
	if c.kind == text && column != text && column != blob {
		out, _ := json.Marshal(string(c.data)) // a string has a JSON form
		return out
	}
	return append([]byte{}, c.data...)
}

// image makes the entry of a row's image, with its key and field. Its Size is -1
// if it is a file.
func (b *builder) image(r *row) (source.Entry, error) {
	var e source.Entry
	c := r.cell(b.path)
	switch {
	case c.kind == image && c.loc.Name != "":
		field, err := imageField(c)
		if err != nil {
			return e, err
		}
		e.Field, e.Location = field, c.loc
		e.Path = localPath(c.path)
	case c.kind == text && len(c.data) > 0, c.kind == image && c.path != "":
		name := c.path
		if c.kind == text {
			name = string(c.data)
		}
		rel, at, err := b.t.locate(name)
		if err != nil {
			return e, err
		}
		ext := path.Ext(rel)
		if len(ext) < 2 || len(ext) == len(path.Base(rel)) {
			return e, fmt.Errorf("%q has no extension, or no name before it", name)
		}
		e.Field = sample.FieldOf(ext[1:])
		if err := sample.CheckField(e.Field); err != nil {
			return e, fmt.Errorf("the extension of %q: %w", name, err)
		}
		e.Path = rel
		e.Location = source.Location{Name: at, Size: -1}
	case c.kind == null || c.kind == image || len(c.data) == 0:
		return e, errors.New("it has no path")
	default:
		return e, fmt.Errorf("%.100q is no path", c.data)
	}
	switch {
	case b.key >= 0:
		k := r.cell(b.key)
		if (k.kind != text && k.kind != number) || len(k.data) == 0 {
			return e, errors.New("it has no key")
		}
		e.Key = sample.KeyOf(string(k.data))
	case b.rowNumber || e.Path == "":
		e.Key = fmt.Sprintf("%09d", r.number)
	default:
		e.Key = sample.KeyOf(strings.TrimSuffix(e.Path, path.Ext(e.Path)))
	}
	if e.Path == "" {
		e.Path = sample.Unescape(e.Key) + "." + e.Field
	}
	return e, sample.CheckKey(e.Key)
}

// locate returns the path, relative to the root, of a file that a row names, and the name
// by which it is read.
func (t *Table) locate(name string) (rel, at string, err error) {
	if t.cfg.Store != nil {
		rel, err = folder.RelativeObject(t.cfg.Store, name)
		return rel, rel, err
	}
	if rel, err = folder.Relative(t.root, name); err != nil {
		return "", "", err
	}
	return rel, filepath.Join(t.root, filepath.FromSlash(rel)), nil
}

// localPath returns a path that Hugging Face keeps beside an image's bytes, if it
// says something of it: what is absolute, or leads upwards, was so on another
// machine, and only its last component counts.
func localPath(p string) string {
	p = strings.ReplaceAll(p, `\`, "/")
	if p == "" {
		return ""
	}
	if p = path.Clean(p); !filepath.IsLocal(p) {
		p = path.Base(p)
	}
	if strings.Trim(p, "./") == "" {
		return ""
	}
	return p
}

// imageField finds an image's field by its path or its first bytes.
func imageField(c *cell) (string, error) {
	if ext := path.Ext(c.path); ext != "" && sample.IsImage(c.path) {
		return sample.FieldOf(ext[1:]), nil
	}
	for _, m := range [...]struct{ magic, field string }{
		{"\xff\xd8\xff", "jpg"}, {"\x89PNG\r\n\x1a\n", "png"}, {"GIF8", "gif"}, {"BM", "bmp"}, {"II*\x00", "tiff"}, {"MM\x00*", "tiff"},
	} {
		if bytes.HasPrefix(c.head, []byte(m.magic)) {
			return m.field, nil
		}
	}
	if len(c.head) >= 12 && string(c.head[:4]) == "RIFF" && string(c.head[8:12]) == "WEBP" {
		return "webp", nil
	}
	return "", errors.New("neither its path nor its first bytes say what kind of image it is")
}

// class makes a class of a label, "" for none.
func (b *builder) class(c *cell) (string, error) {
	label := string(c.data)
	switch {
	case c.kind == null || c.kind == text && label == "":
		return "", errors.New("it has no label")
	case c.kind == other && (label == "true" || label == "false"):
	case c.kind != text && c.kind != number:
		return "", fmt.Errorf("its label, %.40q, is neither a name nor a number; to keep such a column as a field, say that there are no labels", label)
	}
	b.labelled = true
	n, isNumber := wholeNumber(label, c.kind == number)
	switch {
	case !isNumber:
		b.unnumbered = true
		return label, nil
	case n == -1 && b.t.classes != nil:
		return "", nil
	case n < 0 || n != math.Trunc(n) || n > 1<<53:
		return "", fmt.Errorf("its label, %.40q, is no number of a class: these count from 0", label)
	}
	return strconv.FormatFloat(n, 'f', -1, 64), nil
}

// wholeNumber parses a label that is a number; as text, only -1, 2, 3.0 or 4.5.
func wholeNumber(label string, isNumber bool) (n float64, ok bool) {
	if !isNumber {
		digits, fraction, _ := strings.Cut(strings.TrimPrefix(label, "-"), ".")
		if digits == "" || len(digits) > 1 && digits[0] == '0' {
			return 0, false
		}
		if strings.Trim(digits, "0123456789") != "" || strings.Trim(fraction, "0123456789") != "" {
			return 0, false
		}
	}
	n, err := strconv.ParseFloat(label, 64)
	return n, err == nil
}
