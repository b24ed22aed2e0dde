package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"shardify/dataset"
	"shardify/dataset/where"
	"shardify/index"
	"shardify/index/seek"
	"shardify/store/open"
)

// whereHelp explains conditions, for every command that takes one.
var whereHelp = `Conditions are those of SQL's WHERE:

  label_name = 'tench' and width >= 500
  label in (3, 17, 204) or key like 'n0144%'
  not (jpg.size between 10000 and 1000000)
  width * height > 1000000 and seg.png.size is not null

Operators: = != < <= > >= and or not in like ilike between is null + - * / %
Texts stand in single quotes. % in a pattern of like is any text, _ any letter;
ilike takes no notice of upper and lower case. What a sample does not have (a label,
a field) is null, and a comparison with it does not match: ask "is null".

Columns: ` + strings.Join(where.Columns(), ", ") + `
and of each field such as jpg: ` + "jpg." + strings.Join(where.FieldColumns(), ", jpg.") + `.`

// addSelection adds the flags that say which samples are meant.
func addSelection(f *pflag.FlagSet, s *dataset.Selection) {
	f.StringVar(&s.Split, "split", "", "only this split")
	f.StringVar(&s.Label, "label", "", "only this class: a class `NAME or NUMBER`; a name goes before a number")
	f.StringVar(&s.Where, "where", "", "only samples for which this `CONDITION` is true")
}

type lsOptions struct {
	dataset.Selection
	columns []string
	limit   int64
	json    bool
	parquet bool
}

func newLsCommand() *cobra.Command {
	o := new(lsOptions)
	cmd := &cobra.Command{
		Use:     "ls DST",
		Aliases: []string{"list"},
		Short:   "List the samples of a data set, with filters",
		Long: `List the samples of a data set, one a line, in the order in which they lie. On a
terminal they stand in columns with a heading; otherwise columns are separated by
tabs, without a heading. Indexes are read one after the other, never the shards.

With --parquet they come as one Parquet file, for DuckDB, pandas and their like: all
columns of the shards' indexes, and split, shard, number (the sample's place in its
shard) and sample (its place in the split, which the reader counts by).

` + whereHelp,
		Example: `  shardify ls /data/imagenet --label tench -n 10
  shardify ls /data/imagenet --split val --where "label_name = 'tench' and width >= 500"
  shardify ls /data/imagenet --columns key,shard,jpg.size,jpg.path
  shardify ls /data/imagenet --where "width < 64" --json
  shardify ls s3://bucket/imagenet --split train --parquet > train.parquet`,
		Args: exactArgs("DST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runLs(cmd.Context(), o, args[0], streamsOf(cmd))
		},
	}
	addSelection(cmd.Flags(), &o.Selection)
	cmd.Flags().StringSliceVarP(&o.columns, "columns", "c", nil, "columns to print: those of conditions, and split, shard,\nnumber, fields and seek (bytes of seek points)")
	cmd.Flags().Int64VarP(&o.limit, "limit", "n", 0, "stop after this many samples")
	cmd.Flags().BoolVar(&o.json, "json", false, "print a JSON object a line")
	cmd.Flags().BoolVar(&o.parquet, "parquet", false, "write a Parquet file to stdout")
	return cmd
}

// lsColumns are printed by default.
var lsColumns = []string{"key", "label", "label_name", "size", "format", "width", "height", "fields"}

// lsColumn is a column of the list.
type lsColumn struct {
	name  string
	value func(s *dataset.Selected) any
}

// findColumns finds columns by their names.
func findColumns(names, fields []string, points *pointsColumn) ([]lsColumn, error) {
	var columns []lsColumn
	for _, name := range names {
		c := lsColumn{name: strings.TrimSpace(name)}
		switch strings.ToLower(c.name) {
		case "split":
			c.value = func(s *dataset.Selected) any { return s.Split.Name }
		case "shard":
			c.value = func(s *dataset.Selected) any { return s.Shard.Name }
		case "number":
			c.value = func(s *dataset.Selected) any { return int64(s.Number) }
		case "seek":
			c.value = points.of
		case "fields":
			c.value = func(s *dataset.Selected) any { return fieldNames(s.Row) }
		default:
			column, err := where.Lookup(c.name, fields)
			if err != nil {
				return nil, usagef("--columns: %w, and split, shard, number, fields, seek", err)
			}
			c.value = func(s *dataset.Selected) any { return column.Value(s.Row) }
		}
		columns = append(columns, c)
	}
	return columns, nil
}

// pointsColumn is how many bytes of seek points samples have. It holds the table of one
// shard, since samples are listed shard by shard.
type pointsColumn struct {
	ctx   context.Context
	d     *dataset.Dataset
	shard *index.Shard
	table *seek.Table
	err   error
}

// of is null where a sample has none.
func (c *pointsColumn) of(s *dataset.Selected) any {
	if s.Shard.Seek == nil || c.err != nil {
		return nil
	}
	if c.shard != s.Shard {
		f, err := c.d.OpenSeek(c.ctx, s.Shard)
		if err == nil {
			c.table, err = f.Table(c.ctx)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			c.err = err
			return nil
		}
		c.shard = s.Shard
	}
	if _, size := c.table.Extent(s.Number); size > 0 {
		return size
	}
	return nil
}

func fieldNames(row *index.Row) []string {
	names := make([]string, len(row.Fields))
	for i := range row.Fields {
		names[i] = row.Fields[i].Name
	}
	return names
}

// sampleLine is a sample in JSON.
type sampleLine struct {
	Key         string      `json:"key"`
	Split       string      `json:"split"`
	Shard       string      `json:"shard"`
	Number      int         `json:"number"`
	Label       *int64      `json:"label"`
	LabelName   string      `json:"label_name,omitempty"`
	Offset      int64       `json:"offset"`
	Size        int64       `json:"size"`
	Format      string      `json:"format,omitempty"`
	Width       int32       `json:"width,omitempty"`
	Height      int32       `json:"height,omitempty"`
	Orientation int32       `json:"orientation,omitempty"`
	Channels    int32       `json:"channels,omitempty"`
	Fields      []fieldLine `json:"fields"`
}

type fieldLine struct {
	Name         string `json:"name"`
	HeaderOffset int64  `json:"header_offset"`
	Offset       int64  `json:"offset"`
	Size         int64  `json:"size"`
	CRC32C       uint32 `json:"crc32c"`
	Path         string `json:"path,omitempty"`
}

func newSampleLine(s *dataset.Selected) sampleLine {
	r := s.Row
	line := sampleLine{
		Key: r.Key, Split: s.Split.Name, Shard: s.Shard.Name, Number: s.Number, Label: r.Label, LabelName: r.LabelName,
		Offset: r.Offset, Size: r.Size, Format: r.Format, Width: r.Width, Height: r.Height, Orientation: r.Orientation, Channels: r.Channels,
		Fields: make([]fieldLine, len(r.Fields)),
	}
	for i, f := range r.Fields {
		line.Fields[i] = fieldLine(f)
	}
	return line
}

func runLs(ctx context.Context, o *lsOptions, dst string, s streams) (err error) {
	if o.limit < 0 {
		return usagef("--limit %d is negative", o.limit)
	}
	if o.parquet && (o.json || o.columns != nil) {
		return usagef("--parquet is another form than --json, and has all columns: give it alone")
	}
	st, err := open.Retried(ctx, dst)
	if err != nil {
		return err
	}
	d, err := dataset.Open(ctx, st)
	if err != nil {
		return err
	}
	if err := d.Check(o.Selection); err != nil {
		return usage(err)
	}
	if o.parquet {
		return writeTable(ctx, d, o, s.out)
	}
	names := o.columns
	if names == nil {
		names = lsColumns
	}
	points := &pointsColumn{ctx: ctx, d: d}
	columns, err := findColumns(names, d.Fields(), points)
	if err != nil {
		return err
	}
	list := newLister(s.out, columns, o.json && o.columns == nil, o.json)
	n := int64(0)
	for sel, err := range d.Select(ctx, o.Selection) {
		if err != nil {
			return err
		}
		if err := errors.Join(list.print(&sel), points.err); err != nil {
			return err
		}
		if n++; n == o.limit {
			break
		}
	}
	if err := list.flush(); err != nil {
		return err
	}
	if n == 0 && (o.Label != "" || o.Where != "") && s.terminal {
		fmt.Fprintln(s.err, "no sample matches")
	}
	return nil
}

// writeTable writes samples as a Parquet file.
func writeTable(ctx context.Context, d *dataset.Dataset, o *lsOptions, out io.Writer) error {
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return usagef("--parquet writes a Parquet file to stdout, which is a terminal here: redirect it, as in shardify ls DST --parquet > samples.parquet")
	}
	buffered := bufio.NewWriterSize(out, 256<<10)
	w := index.NewTableWriter(buffered)
	n := int64(0)
	for sel, err := range d.Select(ctx, o.Selection) {
		if err != nil {
			return err
		}
		if err := w.Write(sel.TableRow()); err != nil {
			return err
		}
		if n++; n == o.limit {
			break
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return buffered.Flush()
}

// lister prints samples.
type lister struct {
	out     *bufio.Writer
	table   *tabwriter.Writer // for people
	columns []lsColumn
	whole   bool // JSON of all there is
	json    bool
	lines   int
}

func newLister(out io.Writer, columns []lsColumn, whole, json bool) *lister {
	l := &lister{out: bufio.NewWriterSize(out, 64<<10), columns: columns, whole: whole, json: json}
	if f, ok := out.(*os.File); ok && !json && term.IsTerminal(int(f.Fd())) {
		l.table = tabwriter.NewWriter(l.out, 0, 0, 2, ' ', 0)
	}
	return l
}

func (l *lister) print(s *dataset.Selected) error {
	l.lines++
	switch {
	case l.whole:
		return printJSON(l.out, newSampleLine(s))
	case l.json:
		object := make(map[string]any, len(l.columns))
		for _, c := range l.columns {
			object[c.name] = c.value(s)
		}
		return printJSON(l.out, object)
	}
	w := io.Writer(l.out)
	if l.table != nil {
		w = l.table
		if l.lines == 1 {
			heads := make([]string, len(l.columns))
			for i, c := range l.columns {
				heads[i] = strings.ToUpper(c.name)
			}
			fmt.Fprintln(w, strings.Join(heads, "\t"))
		}
	}
	cells := make([]string, len(l.columns))
	for i, c := range l.columns {
		switch v := c.value(s).(type) {
		case nil:
		case []string:
			cells[i] = printable(strings.Join(v, ","))
		case string:
			cells[i] = printable(v)
		default:
			cells[i] = fmt.Sprint(v)
		}
	}
	if _, err := fmt.Fprintln(w, strings.Join(cells, "\t")); err != nil {
		return err
	}
	if l.table != nil && l.lines%1000 == 0 {
		return l.table.Flush()
	}
	return nil
}

func (l *lister) flush() error {
	if l.table != nil {
		if err := l.table.Flush(); err != nil {
			return err
		}
	}
	return l.out.Flush()
}
