package table

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"shardify/source"
)

// maxRow bounds the length of a row of text, and with it what an unclosed
// quotation mark can do to memory.
const maxRow = 64 << 20

var errLongRow = fmt.Errorf("a row of more than %d MiB", maxRow>>20)

// csvReader reads comma- or tab-separated values.
type csvReader struct {
	name   string
	f      io.Closer
	csv    *csv.Reader
	left   *budget
	header []string
	line   int // of the last row
	number int64
}

// budget lets maxRow bytes through for every row.
type budget struct {
	r    io.Reader
	left int
}

func (b *budget) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errLongRow
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

func openCSV(name, path string, comma rune) (reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r, err := newCSV(name, f, comma)
	if err != nil {
		f.Close()
		return nil, err
	}
	r.f = f
	return r, nil
}

func newCSV(name string, r io.Reader, comma rune) (*csvReader, error) {
	plain, err := skipMark(r)
	if err != nil {
		return nil, err
	}
	c := &csvReader{name: name, left: &budget{r: plain, left: maxRow}}
	c.csv = csv.NewReader(c.left)
	c.csv.Comma = comma
	c.csv.ReuseRecord = true
	header, err := c.csv.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("it is empty; the first row should name the columns")
	}
	if err != nil {
		return nil, err
	}
	c.header = slices.Clone(header)
	return c, nil
}

// skipMark leaves out a byte order mark.
func skipMark(r io.Reader) (*bufio.Reader, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	mark, err := b.Peek(3)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case bytes.HasPrefix(mark, []byte("\xff\xfe")), bytes.HasPrefix(mark, []byte("\xfe\xff")):
		return nil, errors.New("it is in UTF-16; write it in UTF-8")
	case string(mark) == "\ufeff":
		b.Discard(3)
	}
	return b, nil
}

func (c *csvReader) columns() []string { return c.header }

func (c *csvReader) close() error { return c.f.Close() }

func (c *csvReader) next(r *row) error {
	c.left.left = maxRow
	record, err := c.csv.Read()
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	r.number = c.number
	c.number++
	var bad *csv.ParseError
	if errors.As(err, &bad) {
		entry := &source.EntryError{Path: fmt.Sprintf("%s:%d", c.name, bad.StartLine), Err: bad.Err}
		switch {
		case errors.Is(err, csv.ErrFieldCount):
			entry.Err = fmt.Errorf("it has %d cells, and there are %d columns", len(record), len(c.header))
		case bad.Line > bad.StartLine:
			entry.Err = fmt.Errorf("%w; so all up to line %d is one row", bad.Err, bad.Line)
		}
		return entry
	}
	if err != nil {
		return fmt.Errorf("after line %d: %w", c.line, err)
	}
	line, _ := c.csv.FieldPos(0)
	c.line = line
	r.where = fmt.Sprintf("%s:%d", c.name, line)
	r.cells = r.cells[:0]
	for _, value := range record {
		cell := cell{kind: text, data: []byte(value)}
		if value == "" {
			cell.kind = null
		}
		r.cells = append(r.cells, cell)
	}
	return nil
}
