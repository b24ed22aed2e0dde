// Package table lists data sets that a table describes: a row for each sample,
// with the path of its image, its label, and whatever else is known of it. Start
// with [Open].
//
// # Tables
//
//   - .csv and .tsv (tabs between the columns): a header row, then RFC 4180. An
//     empty cell is no value.
//   - .jsonl and .ndjson: an object a line. null is no value.
//   - .parquet: also what Hugging Face writes, with the images' bytes in it.
//
// # Columns
//
// A column's part is told by its name; [Config] can name other columns. The
// defaults are found in any case, the names in a Config are exact.
//
// path (or file_name, filename, image, file) is the image's path. It is relative to
// the root, or absolute; one that does not lie below the root is an error of that
// row, as is one that is missing. The sample's key is the path less its extension,
// under sample.KeyOf; the field is the extension.
//
// In Parquet, this may also be a column of Hugging Face's images, a struct of bytes
// and path; without a column of those names, the first such column is taken, and
// then a binary column called like an image format (jpg, png, …), as img2dataset
// writes. An image without a path, or a path that says no format, is known by its
// first bytes. Its key is the path's, or without one, the column key or __key__,
// or the row's number.
//
// label (or class) is the class: a name, or a number from 0. If every label of the
// table is such a number, they are kept as numbers; otherwise, all are names. In
// tables of text, 3.0 is the number 3, but 007 is a name. A row without a label, or
// with another number, or with a list, is an error. Hugging Face's ClassLabel
// gives the numbers names ([Table.Classes]), and -1 is no label there.
//
// split is the sample's split.
//
// Every other column becomes a field, named after it in lower case, and after what
// it holds, so that readers that go by the last word decode it: text of the column
// caption is the field caption.txt; numbers, booleans, lists and objects are
// caption.json; binary values are caption.bin, further images mask.png. (A column
// whose last word says that already, such as caption.txt or json, keeps its name.)
// In .csv, all is text. In .jsonl, the first value of a column decides for all of
// them: others are written as the JSON text in a .txt field, or as a JSON string in
// a .json field. A row without a value lacks the field. A column whose name is no
// legal field name is an error: leave it out by naming those to keep. The index
// that pandas writes (__index_level_0__) is left out.
//
// # Errors
//
// A bad row is a *source.EntryError whose path names the table and the line (or
// row) and the listing goes on: a cell too many, broken JSON, an illegal path, a
// file that is missing. Its other columns are left out, too. A table that is no
// such table ends the listing.
package table

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"shardify/sample"
	"shardify/source"
	"shardify/source/folder"
	"shardify/source/internal/pass"
	"shardify/store"
)

// Config says which columns have which part. Its zero value means those of the
// default names.
type Config struct {
	// Root is the folder that paths are relative to; by default the table's.
	Root string `json:"root,omitempty"`
	// Store, if it is not nil, has the files that paths name, which are objects there:
	// the root is its URL, and Root must be empty.
	Store store.Store `json:"-"`
	// PathColumn, LabelColumn and SplitColumn name the columns of paths, labels
	// and splits. None says that there is none.
	PathColumn  string `json:"path_column,omitempty"`
	LabelColumn string `json:"label_column,omitempty"`
	SplitColumn string `json:"split_column,omitempty"`
	// KeyColumn names a column of keys, which sample.KeyOf makes legal, to be used
	// in place of the path's; RowNumber numbers the rows.
	KeyColumn string `json:"key_column,omitempty"`
	// Columns are the other columns to keep as fields; empty means all, None alone
	// means none.
	Columns []string `json:"columns,omitempty"`
	// Workers is the number of files looked at at once; by default four a core.
	Workers int `json:"workers,omitempty"`
}

const (
	// None, in place of a column's name, says that there is no such column.
	None = "-"
	// RowNumber, in place of the key column's name, stands for the row's number,
	// from 0 and in nine digits.
	RowNumber = "#"
)

// Validate reports every fault of the configuration.
func (c *Config) Validate() error {
	var faults []error
	if c.Workers < 0 {
		faults = append(faults, fmt.Errorf("%d workers", c.Workers))
	}
	if c.Store != nil && c.Root != "" {
		faults = append(faults, errors.New("a root and a store: the root is the store's"))
	}
	if c.PathColumn == None {
		faults = append(faults, errors.New("a table needs a column of paths"))
	}
	if len(c.Columns) > 1 && slices.Contains(c.Columns, None) {
		faults = append(faults, fmt.Errorf("columns %q: %q stands alone", c.Columns, None))
	}
	named := map[string]string{}
	for _, n := range [][2]string{{"path", c.PathColumn}, {"label", c.LabelColumn}, {"split", c.SplitColumn}} {
		if n[1] == "" || n[1] == None {
			continue
		}
		if other, ok := named[n[1]]; ok {
			faults = append(faults, fmt.Errorf("column %q is to be both %s and %s", n[1], other, n[0]))
		}
		named[n[1]] = n[0]
	}
	return errors.Join(faults...)
}

func (c *Config) workers() int {
	if c.Workers > 0 {
		return c.Workers
	}
	return 4 * runtime.GOMAXPROCS(0)
}

// remoteWorkers is how many objects of a store are looked at at once at least: each takes
// a request.
const remoteWorkers = 32

// Table is a source of the samples in a table. Its methods are safe for concurrent
// use.
type Table struct {
	name string // as the user wrote it
	path string // absolute
	root string
	cfg  Config
	open func() (reader, error)

	classes []string
	numeric atomic.Bool
	parquet *parquetFile // nil for other tables
}

var _ source.Source = (*Table)(nil)

// reader reads the rows of one kind of table.
type reader interface {
	// columns are the names known so far; rows may add some at the end.
	columns() []string
	// next reads a row, whose cells are valid until the next call. The error is
	// io.EOF at the end, and a *source.EntryError if one may go on.
	next(*row) error
	close() error
}

// Open opens a table, whose kind is told by its ending, and finds its columns.
// Close it after use.
func Open(path string, cfg Config) (*Table, error) {
	t, err := open(path, cfg)
	if err != nil {
		return nil, fmt.Errorf("table %q: %w", path, err)
	}
	return t, nil
}

func open(path string, cfg Config) (*Table, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	t := &Table{name: path, path: abs, root: cfg.Root, cfg: cfg}
	if t.root == "" {
		t.root = filepath.Dir(abs)
	}
	if t.root, err = filepath.Abs(t.root); err != nil {
		return nil, err
	}
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".csv":
		t.open = func() (reader, error) { return openCSV(t.name, t.path, ',') }
	case ".tsv":
		t.open = func() (reader, error) { return openCSV(t.name, t.path, '\t') }
	case ".jsonl", ".ndjson":
		t.open = func() (reader, error) { return openJSONL(t.name, t.path) }
	case ".parquet":
		if t.parquet, err = openParquet(t.name, t.path); err != nil {
			return nil, err
		}
		t.open = func() (reader, error) { return t.parquet.rows(t.wanted) }
	default:
		return nil, fmt.Errorf("the ending %q is none of .csv, .tsv, .jsonl, .ndjson and .parquet", ext)
	}
	if err := t.checkColumns(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// checkColumns finds the columns' parts, for the errors of it.
func (t *Table) checkColumns() error {
	r, err := t.open()
	if err != nil {
		return err
	}
	defer r.close()
	b := t.builder(r)
	if err := b.grow(); err != nil {
		return err
	}
	if t.parquet != nil && b.label >= 0 {
		t.classes = t.parquet.classNames(r.columns()[b.label])
	}
	return nil
}

// Close closes the table. There must be no pass over it, and no Read.
func (t *Table) Close() error {
	if t.parquet != nil {
		return t.parquet.close()
	}
	return nil
}

// Name returns the path given to Open.
func (t *Table) Name() string { return t.name }

// Numeric says, after a pass, whether all labels were numbers.
func (t *Table) Numeric() bool { return t.numeric.Load() }

// Classes returns the names that the table gives to the numbers that are its
// labels; nil if it does not.
func (t *Table) Classes() []string { return slices.Clone(t.classes) }

// Entries lists the rows' fields: each row's image first, which carries the class.
// The values of other columns come inline.
func (t *Table) Entries(ctx context.Context) iter.Seq2[source.Entry, error] {
	return pass.Run(ctx, t.goroutines)
}

// batch is some rows, of which starts has the first items.
type batch struct {
	items  []pass.Item
	starts []int
}

const (
	// batchItems is about how many items a worker takes at once.
	batchItems = 256
	// lookRows and lookBytes bound the rows whose objects are looked for together, and
	// askRows is of how many of those that are left a worker asks for the objects at once.
	lookRows  = 16 << 10
	lookBytes = 16 << 20
	askRows   = 8
)

func (t *Table) goroutines() []func(*pass.Pass) {
	todo := make(chan batch)
	workers := t.cfg.workers()
	if t.cfg.Store != nil {
		workers = max(workers, remoteWorkers)
	}
	work := make([]func(*pass.Pass), 1, workers+1)
	work[0] = func(p *pass.Pass) {
		defer close(todo)
		t.readRows(p, todo)
	}
	for range workers {
		work = append(work, func(p *pass.Pass) {
			for b := range todo {
				if !p.Send(t.statImages(p.Context(), b)) {
					return
				}
			}
		})
	}
	return work
}

// statImages looks at the files of images. Of a row without its image, only the
// error is left.
func (t *Table) statImages(ctx context.Context, b batch) []pass.Item {
	kept := b.items[:0]
	for i, start := range b.starts {
		end := len(b.items)
		if i+1 < len(b.starts) {
			end = b.starts[i+1]
		}
		row := b.items[start:end]
		if first := &row[0]; first.Err == nil && first.Size < 0 {
			if err := t.stat(ctx, &first.Entry); err != nil {
				row = []pass.Item{{Err: err}}
			}
		}
		kept = append(kept, row...)
	}
	return kept
}

// look lists the objects round those of a batch's images, and returns it in parts, of which
// each has few that are to be asked for.
func (t *Table) look(ctx context.Context, lister *folder.Lister, b batch) (parts []batch) {
	var wanted []*source.Entry
	for _, start := range b.starts {
		if first := &b.items[start]; first.Err == nil && first.Size < 0 {
			wanted = append(wanted, &first.Entry)
		}
	}
	lister.Fill(ctx, wanted)
	from, asked := 0, 0
	var part batch
	for i, start := range b.starts {
		part.starts = append(part.starts, start-from)
		if first := &b.items[start]; first.Err == nil && first.Size < 0 {
			asked++
		}
		end := len(b.items)
		if i+1 < len(b.starts) {
			end = b.starts[i+1]
		}
		if asked >= askRows || end-from >= batchItems || end == len(b.items) {
			part.items = b.items[from:end:end]
			parts = append(parts, part)
			part, from, asked = batch{}, end, 0
		}
	}
	return parts
}

// stat looks at a file.
func (t *Table) stat(ctx context.Context, e *source.Entry) error {
	if t.cfg.Store == nil {
		return folder.Stat(e)
	}
	return folder.StatObject(ctx, t.cfg.Store, e)
}

// Remote says that files come over a network, so that many should be read at once.
func (t *Table) Remote() bool { return t.cfg.Store != nil && !store.IsLocal(t.cfg.Store.URL()) }

// readRows makes entries of rows.
func (t *Table) readRows(p *pass.Pass, todo chan<- batch) {
	var b batch
	bytes := int64(0) // of values in b
	send := func() bool {
		select {
		case todo <- b:
			b = batch{items: p.Batch()}
			return true
		case <-p.Context().Done():
			return false
		}
	}
	full := func() bool { return len(b.items) >= batchItems }
	if t.cfg.Store != nil {
		ask, lister := send, folder.NewLister(t.cfg.Store)
		send = func() bool {
			for _, b = range t.look(p.Context(), lister, b) {
				if !ask() {
					return false
				}
			}
			bytes = 0
			return true
		}
		full = func() bool { return len(b.starts) >= lookRows || bytes >= lookBytes }
	}
	err := t.eachRow(func(build *builder, r *row, err error) bool {
		b.starts = append(b.starts, len(b.items))
		if err == nil {
			var more []pass.Item
			if more, err = build.items(b.items, r); err == nil {
				for i := len(b.items); i < len(more); i++ {
					bytes += int64(len(more[i].Inline))
				}
				b.items = more
			}
		}
		if err != nil {
			b.items = append(b.items, pass.Item{Err: err})
		}
		return !full() || send()
	})
	if err != nil {
		b.starts = append(b.starts, len(b.items))
		b.items = append(b.items, pass.Item{Err: fmt.Errorf("table %q: %w", t.name, err)})
	}
	send()
}

// Read implements source.Source. Reading an image out of a Parquet table decodes
// the page that it is in, a megabyte or so, and without a page index those before
// it in its row group, too; the last few pages are kept, so that reading in the
// order of rows decodes each once.
func (t *Table) Read(ctx context.Context, loc source.Location, buf []byte) ([]byte, error) {
	switch {
	case loc.Name == "":
		return append(buf[:0], loc.Inline...), nil
	case t.parquet != nil && loc.Name == t.path:
		return t.parquet.read(ctx, loc, buf)
	}
	if t.cfg.Store != nil {
		return folder.ReadObject(ctx, t.cfg.Store, loc, buf)
	}
	return folder.Read(ctx, loc, buf)
}

// wanted says whether a column may be of use, so that others need not be read.
func (t *Table) wanted(column string) bool {
	switch column {
	case t.cfg.PathColumn, t.cfg.LabelColumn, t.cfg.SplitColumn, t.cfg.KeyColumn:
		return true
	}
	if len(t.cfg.Columns) == 0 || slices.Contains(t.cfg.Columns, column) {
		return true
	}
	return sample.IsImage(column) || slices.ContainsFunc(defaultNames, func(n string) bool { return strings.EqualFold(n, column) })
}

// fileTime returns the size and time of modification of a file that is open.
func fileTime(f *os.File) (size, modTime int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	return info.Size(), info.ModTime().UnixNano(), nil
}
