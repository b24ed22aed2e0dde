package table

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"os"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"shardify/sample"
	"shardify/source"
)

// parquetFile is an open Parquet table.
type parquetFile struct {
	name, path string
	f          *os.File
	file       *parquet.File
	modTime    int64
	// starts are the numbers of the row groups' first rows.
	starts []int64
	// images are the columns that hold the bytes of images, by name.
	images map[string]imageLeaf

	mu    sync.Mutex
	pages []*page // the last used is the first
	held  int     // the bytes of pages
}

// imageLeaf says where a column's images are.
type imageLeaf struct {
	bytes int // the number of the leaf column
	// hasPath says that the column is a struct that also has a path.
	hasPath bool
}

// guard makes an error of a panic in the Parquet library, which some damaged files
// bring about.
func guard(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("damaged Parquet: %v", r)
	}
}

func openParquet(name, path string) (_ *parquetFile, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	defer guard(&err)
	size, modTime, err := fileTime(f)
	if err != nil {
		return nil, err
	}
	file, err := parquet.OpenFile(f, size, parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, fmt.Errorf("no Parquet file: %w", err)
	}
	p := &parquetFile{name: name, path: path, f: f, file: file, modTime: modTime, images: make(map[string]imageLeaf)}
	start := int64(0)
	for _, g := range file.RowGroups() {
		p.starts = append(p.starts, start)
		start += g.NumRows()
	}
	for _, field := range file.Schema().Fields() {
		if leaf, ok := findImage(file.Schema(), field); ok {
			p.images[field.Name()] = leaf
		}
	}
	return p, nil
}

func (p *parquetFile) close() error { return p.f.Close() }

// findImage says whether a column holds images: a struct of bytes and path, or
// bytes called like a format.
func findImage(s *parquet.Schema, f parquet.Field) (imageLeaf, bool) {
	if f.Repeated() {
		return imageLeaf{}, false
	}
	if f.Leaf() {
		c, _ := s.Lookup(f.Name())
		return imageLeaf{bytes: c.ColumnIndex}, isBinary(f) && sample.IsImage(f.Name())
	}
	data, ok := s.Lookup(f.Name(), "bytes")
	if !ok || !isBinary(data.Node) || data.Node.Repeated() {
		return imageLeaf{}, false
	}
	path, ok := s.Lookup(f.Name(), "path")
	return imageLeaf{bytes: data.ColumnIndex, hasPath: true}, ok && len(f.Fields()) == 2 && isText(path.Node)
}

func isText(n parquet.Node) bool {
	switch logical(n).(type) {
	case *format.StringType, *format.EnumType:
		return n.Leaf() && n.Type().Kind() == parquet.ByteArray
	}
	return false
}

func isBinary(n parquet.Node) bool {
	if !n.Leaf() || logical(n) != nil {
		return false
	}
	k := n.Type().Kind()
	return k == parquet.ByteArray || k == parquet.FixedLenByteArray
}

// logical returns what a node's values mean; nil if the schema does not say.
func logical(n parquet.Node) format.LogicalTypeValue {
	if t := n.Type().LogicalType(); t != nil {
		return t.Value
	}
	return nil
}

// classNames returns the names that Hugging Face's metadata gives a column's
// numbers.
func (p *parquetFile) classNames(column string) []string {
	meta, ok := p.file.Lookup("huggingface")
	if !ok {
		return nil
	}
	var hf struct {
		Info struct {
			Features map[string]json.RawMessage `json:"features"`
		} `json:"info"`
	}
	var feature struct {
		Type  string   `json:"_type"`
		Names []string `json:"names"`
	}
	if json.Unmarshal([]byte(meta), &hf) != nil || json.Unmarshal(hf.Info.Features[column], &feature) != nil || feature.Type != "ClassLabel" {
		return nil // not as we know it: the numbers stand for themselves
	}
	return feature.Names
}

// parquetRows reads the rows of a Parquet table.
type parquetRows struct {
	p      *parquetFile
	names  []string
	fields []parquet.Field
	// values reads the columns that are no images' bytes; nil if there are none.
	values *parquet.GenericReader[any]
	buf    []any
	at, n  int // the rows in buf
	images []*leafReader
	number int64
	total  int64
}

// rows starts to read the columns that are wanted.
func (p *parquetFile) rows(wanted func(string) bool) (_ reader, err error) {
	defer guard(&err)
	r := &parquetRows{p: p, total: p.file.NumRows(), buf: make([]any, 64)}
	some := parquet.Group{}
	for _, f := range p.file.Schema().Fields() {
		if !wanted(f.Name()) {
			if _, isImage := p.images[f.Name()]; !isImage {
				continue
			}
		}
		r.names = append(r.names, f.Name())
		r.fields = append(r.fields, f)
		leaf, isImage := p.images[f.Name()]
		if !isImage {
			some[f.Name()] = f
			r.images = append(r.images, nil)
			continue
		}
		r.images = append(r.images, &leafReader{p: p, leaf: leaf.bytes})
		if leaf.hasPath {
			path, _ := p.file.Schema().Lookup(f.Name(), "path")
			some[f.Name()] = parquet.Group{"path": path.Node}
			if f.Optional() {
				some[f.Name()] = parquet.Optional(parquet.Group{"path": path.Node})
			}
		}
	}
	if len(some) > 0 {
		r.values = parquet.NewGenericReader[any](p.file, parquet.NewSchema(p.file.Schema().Name(), some))
	}
	return r, nil
}

func (r *parquetRows) columns() []string { return r.names }

// imageColumn returns the number of the first column of images: a struct before
// plain bytes; -1 if there is none.
func (r *parquetRows) imageColumn() int {
	found := -1
	for i, name := range r.names {
		leaf, ok := r.p.images[name]
		if ok && leaf.hasPath {
			return i
		}
		if ok && found < 0 {
			found = i
		}
	}
	return found
}

func (r *parquetRows) isImage(column int) bool { return r.images[column] != nil }

func (r *parquetRows) close() (err error) {
	defer guard(&err)
	if r.values != nil {
		err = r.values.Close()
	}
	for _, l := range r.images {
		if l != nil {
			err = errors.Join(err, l.close())
		}
	}
	return err
}

func (r *parquetRows) next(out *row) (err error) {
	defer guard(&err)
	if r.number == r.total {
		return io.EOF
	}
	out.number = r.number
	out.where = fmt.Sprintf("%s, row %d", r.p.name, r.number)
	r.number++
	var record map[string]any
	if r.values != nil {
		if r.at == r.n {
			r.at = 0
			if r.n, err = r.values.Read(r.buf); r.n == 0 {
				if err == nil || errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				return fmt.Errorf("row %d: %w", out.number, err)
			}
		}
		record, _ = r.buf[r.at].(map[string]any)
		r.at++
	}
	out.cells = out.cells[:0]
	var bad error
	for i, name := range r.names {
		var c cell
		if l := r.images[i]; l != nil {
			if c, err = l.cell(out.number); err != nil {
				return fmt.Errorf("row %d: column %q: %w", out.number, name, err)
			}
			if s, ok := record[name].(map[string]any); ok {
				c.path, _ = s["path"].(string)
			}
			if c.loc.Name == "" && c.path == "" {
				c = cell{}
			}
		} else if c, err = parquetCell(r.fields[i], record[name]); err != nil && bad == nil {
			bad = &source.EntryError{Path: out.where, Err: fmt.Errorf("column %q: %w", name, err)}
		}
		out.cells = append(out.cells, c)
	}
	return bad
}

// parquetCell makes a cell of a column's value.
func parquetCell(n parquet.Node, v any) (cell, error) {
	if isBinary(n) && !n.Repeated() {
		switch v := v.(type) {
		case nil:
			return cell{}, nil
		case string:
			return cell{kind: blob, data: []byte(v)}, nil
		case []byte:
			return cell{kind: blob, data: v}, nil
		}
	}
	j, err := jsonValue(n, v)
	if err != nil {
		return cell{}, err
	}
	switch j := j.(type) {
	case nil:
		return cell{}, nil
	case string:
		return cell{kind: text, data: []byte(j)}, nil
	case json.Number:
		return cell{kind: number, data: []byte(j)}, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err = enc.Encode(j)
	return cell{kind: other, data: bytes.TrimSuffix(b.Bytes(), []byte("\n"))}, err
}

// jsonValue turns a value of the Parquet library into one that encoding/json writes
// as people expect it: times and dates as in ISO 8601, NaN as null.
func jsonValue(n parquet.Node, v any) (any, error) {
	// The values of maps come as pointers.
	for p := reflect.ValueOf(v); p.Kind() == reflect.Pointer && p.Type() != reflect.TypeFor[*big.Float](); p = reflect.ValueOf(v) {
		if p.IsNil() {
			return nil, nil
		}
		v = p.Elem().Interface()
	}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			child, err := childOf(n, k)
			if err == nil {
				out[k], err = jsonValue(child, x)
			}
			if err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		element := n
		if _, ok := logical(n).(*format.ListType); ok && !n.Leaf() {
			element = n.Fields()[0].Fields()[0]
		}
		out := make([]any, len(v))
		for i, x := range v {
			var err error
			if out[i], err = jsonValue(element, x); err != nil {
				return nil, err
			}
		}
		return out, nil
	case bool:
		return v, nil
	case int32:
		return jsonInteger(n, int64(v)), nil
	case int64:
		return jsonInteger(n, v), nil
	case uint32:
		return json.Number(strconv.FormatUint(uint64(v), 10)), nil
	case uint64:
		return json.Number(strconv.FormatUint(v, 10)), nil
	case float32:
		return jsonFloat(n, float64(v), 32)
	case float64:
		return jsonFloat(n, v, 64)
	case *big.Float:
		scale := 0
		if t, ok := logical(n).(*format.DecimalType); ok {
			scale = int(t.Scale)
		}
		return json.Number(v.Text('f', scale)), nil
	case deprecated.Int96:
		// Nanoseconds of a Julian day.
		day := int64(v[2]) - 2_440_588
		return time.Unix(day*86_400, int64(v[1])<<32|int64(v[0])).UTC().Format(time.RFC3339Nano), nil
	case time.Time:
		return v.Format(time.RFC3339Nano), nil
	case string:
		if !utf8.ValidString(v) {
			return nil, errors.New("bytes that are no text, inside a list or struct")
		}
		return v, nil
	case []byte:
		return nil, errors.New("bytes inside a list or struct")
	}
	return nil, fmt.Errorf("a value of type %T", v)
}

// childOf finds the node of a field of a struct, or of a map's values.
func childOf(n parquet.Node, name string) (parquet.Node, error) {
	if n.Leaf() {
		return nil, errors.New("a struct where the schema has a value")
	}
	if _, ok := logical(n).(*format.MapType); ok {
		kv := n.Fields()[0].Fields()
		return kv[len(kv)-1], nil
	}
	for _, f := range n.Fields() {
		if f.Name() == name {
			return f, nil
		}
	}
	return nil, fmt.Errorf("a field %q that is not in the schema", name)
}

func jsonInteger(n parquet.Node, v int64) any {
	switch t := logical(n).(type) {
	case *format.IntType:
		switch {
		case t.IsSigned:
		case t.BitWidth <= 32:
			return json.Number(strconv.FormatUint(uint64(uint32(v)), 10))
		default:
			return json.Number(strconv.FormatUint(uint64(v), 10))
		}
	case *format.DateType:
		return time.Unix(v*86_400, 0).UTC().Format(time.DateOnly)
	case *format.TimestampType:
		layout := "2006-01-02T15:04:05.999999999"
		if t.IsAdjustedToUTC {
			layout += "Z"
		}
		perSecond := int64(time.Second / unit(t.Unit))
		return time.Unix(v/perSecond, v%perSecond*int64(unit(t.Unit))).UTC().Format(layout)
	case *format.TimeType:
		return time.Unix(0, v*int64(unit(t.Unit))).UTC().Format("15:04:05.999999999")
	}
	return json.Number(strconv.FormatInt(v, 10))
}

func unit(u format.TimeUnit) time.Duration {
	if u.Value == nil {
		return time.Nanosecond
	}
	return u.Value.Duration()
}

func jsonFloat(n parquet.Node, v float64, bits int) (any, error) {
	if t, ok := logical(n).(*format.DecimalType); ok {
		// The library makes floats of decimals that are stored as integers.
		if math.Abs(v)*math.Pow10(int(t.Scale)) > 1<<53 {
			return nil, errors.New("a decimal of so many digits that they would not be exact")
		}
		return json.Number(strconv.FormatFloat(v, 'f', int(t.Scale), bits)), nil
	}
	switch {
	case math.IsNaN(v):
		return nil, nil
	case math.IsInf(v, 0):
		return nil, errors.New("infinity, which JSON cannot hold")
	}
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return json.Number(strconv.FormatFloat(v, 'f', 1, bits)), nil
	}
	return json.Number(strconv.FormatFloat(v, 'g', -1, bits)), nil
}

// leafReader reads the bytes of a column's images, row by row.
type leafReader struct {
	p      *parquetFile
	leaf   int
	group  int // the number of the next row group
	pages  parquet.Pages
	page   parquet.Page
	values parquet.ValueReader
	buf    [1]parquet.Value
}

// cell returns the next image, which is that of the given row.
func (l *leafReader) cell(row int64) (cell, error) {
	for {
		if l.values != nil {
			n, err := l.values.ReadValues(l.buf[:])
			if n == 1 {
				v := l.buf[0]
				if v.IsNull() {
					return cell{kind: image}, nil
				}
				data := v.ByteArray()
				return cell{kind: image, head: data[:min(len(data), 16)], loc: source.Location{
					Name: l.p.path, Offset: row<<rowShift | int64(l.leaf), Size: int64(len(data)), ModTime: l.p.modTime,
				}}, nil
			}
			if err != nil && !errors.Is(err, io.EOF) {
				return cell{}, err
			}
			l.values = nil
		}
		if l.page != nil {
			parquet.Release(l.page)
			l.page = nil
		}
		if l.pages == nil {
			groups := l.p.file.RowGroups()
			if l.group == len(groups) {
				return cell{}, io.ErrUnexpectedEOF
			}
			l.pages = groups[l.group].ColumnChunks()[l.leaf].Pages()
			l.group++
		}
		page, err := l.pages.ReadPage()
		switch {
		case errors.Is(err, io.EOF):
			if err := l.pages.Close(); err != nil {
				return cell{}, err
			}
			l.pages = nil
		case err != nil:
			return cell{}, err
		default:
			l.page, l.values = page, page.Values()
		}
	}
}

func (l *leafReader) close() error {
	if l.page != nil {
		parquet.Release(l.page)
	}
	if l.pages != nil {
		return l.pages.Close()
	}
	return nil
}

// An image's Location.Offset is ROW<<rowShift | LEAF COLUMN.
const rowShift = 16

// page holds values of a page, decoded.
type page struct {
	leaf  int
	first int64 // the row of the first value
	ends  []int // where the values end in data
	data  []byte
}

// keptBytes bounds the pages that are kept.
const keptBytes = 64 << 20

// read returns an image's bytes.
func (p *parquetFile) read(ctx context.Context, loc source.Location, buf []byte) (_ []byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	fail := func(err error) ([]byte, error) {
		return nil, &source.EntryError{Path: fmt.Sprintf("%s, row %d", p.name, loc.Offset>>rowShift), Err: err}
	}
	_, modTime, err := fileTime(p.f)
	if err != nil {
		return nil, err
	}
	if modTime != loc.ModTime {
		return fail(source.ErrChanged)
	}
	row, leaf := loc.Offset>>rowShift, int(loc.Offset&(1<<rowShift-1))
	pg, err := p.pageOf(row, leaf)
	if err != nil {
		return fail(err)
	}
	i := int(row - pg.first)
	start := 0
	if i > 0 {
		start = pg.ends[i-1]
	}
	data := pg.data[start:pg.ends[i]]
	if int64(len(data)) != loc.Size {
		return fail(fmt.Errorf("%w: its size is %d bytes, not %d", source.ErrChanged, len(data), loc.Size))
	}
	return append(buf[:0], data...), nil
}

// pageOf returns a page with a row's value, decoding it if it is not kept.
func (p *parquetFile) pageOf(row int64, leaf int) (_ *page, err error) {
	defer guard(&err)
	p.mu.Lock()
	for i, pg := range p.pages {
		if pg.leaf == leaf && pg.first <= row && row < pg.first+int64(len(pg.ends)) {
			copy(p.pages[1:i+1], p.pages[:i])
			p.pages[0] = pg
			p.mu.Unlock()
			return pg, nil
		}
	}
	p.mu.Unlock()

	group, found := slices.BinarySearch(p.starts, row)
	if !found {
		group--
	}
	if group < 0 || row < 0 || row >= p.file.NumRows() {
		return nil, errors.New("no such row")
	}
	// Of groups without rows, the last one that starts here has it.
	for group+1 < len(p.starts) && p.starts[group+1] == row {
		group++
	}
	chunks := p.file.RowGroups()[group].ColumnChunks()
	if leaf >= len(chunks) {
		return nil, errors.New("no such column")
	}
	pages := chunks[leaf].Pages()
	defer pages.Close()
	if err := pages.SeekToRow(row - p.starts[group]); err != nil {
		return nil, err
	}
	read, err := pages.ReadPage()
	if err != nil {
		return nil, err
	}
	defer parquet.Release(read)
	pg := &page{leaf: leaf, first: row}
	values := read.Values()
	for {
		var v [16]parquet.Value
		n, err := values.ReadValues(v[:])
		for _, v := range v[:n] {
			if !v.IsNull() {
				pg.data = append(pg.data, v.ByteArray()...)
			}
			pg.ends = append(pg.ends, len(pg.data))
		}
		if errors.Is(err, io.EOF) || n == 0 && err == nil {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if len(pg.ends) == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	p.keep(pg)
	return pg, nil
}

func (p *parquetFile) keep(pg *page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pages = slices.Insert(p.pages, 0, pg)
	p.held += cap(pg.data)
	for len(p.pages) > 1 && p.held > keptBytes {
		last := len(p.pages) - 1
		p.held -= cap(p.pages[last].data)
		p.pages[last] = nil
		p.pages = p.pages[:last]
	}
}
