package table

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"shardify/source"
)

// jsonlReader reads a JSON object a line.
type jsonlReader struct {
	name   string
	f      io.Closer
	b      *bufio.Reader
	line   int64
	number int64
	long   []byte // a line that is longer than b's buffer
	names  []string
	index  map[string]int
	object map[string]json.RawMessage
	// peeked is the first row, which was read to learn of its columns, with the
	// error of that.
	peeked  *row
	peekErr error
}

func openJSONL(name, path string) (reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r, err := newJSONL(name, f)
	if err != nil {
		f.Close()
		return nil, err
	}
	r.f = f
	return r, nil
}

func newJSONL(name string, r io.Reader) (*jsonlReader, error) {
	b, err := skipMark(r)
	if err != nil {
		return nil, err
	}
	j := &jsonlReader{name: name, b: b, index: make(map[string]int), peeked: new(row)}
	j.peekErr = j.read(j.peeked)
	switch {
	case errors.Is(j.peekErr, io.EOF):
		return nil, errors.New("it is empty")
	case j.peekErr != nil:
		return nil, j.peekErr // a table that begins like that is none
	}
	return j, nil
}

func (j *jsonlReader) columns() []string { return j.names }

func (j *jsonlReader) close() error { return j.f.Close() }

func (j *jsonlReader) next(r *row) error {
	if j.peeked != nil {
		*r, j.peeked = *j.peeked, nil
		return nil
	}
	return j.read(r)
}

func (j *jsonlReader) read(r *row) error {
	var text []byte
	for len(text) == 0 { // empty lines are left out
		var err error
		if text, err = j.readLine(); err != nil {
			return err
		}
	}
	r.where = fmt.Sprintf("%s:%d", j.name, j.line)
	r.number = j.number
	j.number++
	clear(j.object)
	if err := json.Unmarshal(text, &j.object); err != nil {
		return &source.EntryError{Path: r.where, Err: fmt.Errorf("not a JSON object: %w", err)}
	}
	if j.object == nil {
		return &source.EntryError{Path: r.where, Err: errors.New("not a JSON object: null")}
	}
	clear(r.cells[:cap(r.cells)])
	r.cells = r.cells[:0]
	for _, name := range j.sortedNew() {
		j.index[name] = len(j.names)
		j.names = append(j.names, name)
	}
	for len(r.cells) < len(j.names) {
		r.cells = append(r.cells, cell{})
	}
	for name, raw := range j.object {
		c, err := jsonCell(raw)
		if err != nil {
			return &source.EntryError{Path: r.where, Err: fmt.Errorf("column %q: %w", name, err)}
		}
		r.cells[j.index[name]] = c
	}
	return nil
}

// readLine returns the next line, without its end, valid until the next call.
func (j *jsonlReader) readLine() ([]byte, error) {
	j.line++
	j.long = j.long[:0]
	for {
		part, err := j.b.ReadSlice('\n')
		full := errors.Is(err, bufio.ErrBufferFull)
		switch {
		case err != nil && !full && !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("line %d: %w", j.line, err)
		case len(j.long)+len(part) > maxRow:
			return nil, fmt.Errorf("line %d: %w", j.line, errLongRow)
		case !full && len(j.long) == 0:
			if len(part) == 0 {
				return nil, io.EOF
			}
			return bytes.TrimSpace(part), nil
		}
		j.long = append(j.long, part...)
		if !full {
			return bytes.TrimSpace(j.long), nil
		}
	}
}

// sortedNew returns the names in the object that are no columns yet, sorted.
func (j *jsonlReader) sortedNew() []string {
	var names []string
	for name := range j.object {
		if _, ok := j.index[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// jsonCell makes a cell of a JSON value.
func jsonCell(raw json.RawMessage) (cell, error) {
	switch raw[0] {
	case 'n':
		return cell{}, nil
	case '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return cell{kind: text, data: []byte(s)}, err
	case '{', '[':
		var b bytes.Buffer
		err := json.Compact(&b, raw)
		return cell{kind: other, data: b.Bytes()}, err
	case 't', 'f':
		return cell{kind: other, data: raw}, nil
	}
	return cell{kind: number, data: raw}, nil
}
