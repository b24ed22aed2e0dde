package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shardify/dataset"
	"shardify/index"
	"shardify/reader"
	"shardify/sample/typed"
	"shardify/store/open"
)

type headOptions struct {
	configOptions
	n    int
	json bool
}

func newHeadCommand() *cobra.Command {
	o := new(headOptions)
	cmd := &cobra.Command{
		Use:   "head DST",
		Short: "The first samples: keys, labels, fields, sizes, dimensions, tensors",
		Long: `Show the first samples of a split in the data set's own order, from its index; no
image is read. DST may also name shards that have no index, as for stream; their
first samples are read.

With --tensors, or a --config that has some, a batch of these samples is read, and its
tensors are shown: names, types, shapes, and the first values; with --json a line for
each.`,
		Example: `  shardread head /data/imagenet -n 20
  shardread head /data/imagenet --json | jq .key
  shardread head 'https://host/train-{0000..0146}.tar'
  shardread head /data/coco -n 4 --crop 224 --tensors \
    '[{"field":"json","name":"boxes","kind":"boxes","path":"/annotations/*/bbox","boxes":{"format":"xywh"}}]'`,
		Args: oneSource,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runHead(cmd.Context(), o, cmd.Flags(), args[0], streamsOf(cmd))
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *headOptions) addFlags(f *pflag.FlagSet) {
	o.configOptions.addFlags(f, imageFlags)
	f.IntVarP(&o.n, "samples", "n", 5, "how many samples")
	f.BoolVar(&o.json, "json", false, "a line of JSON for each sample")
}

// headLine is a sample in JSON.
type headLine struct {
	Sample    int64       `json:"sample"`
	Shard     string      `json:"shard"`
	Key       string      `json:"key"`
	Label     *int64      `json:"label"`
	LabelName string      `json:"label_name,omitempty"`
	Format    string      `json:"format,omitempty"`
	Width     int32       `json:"width,omitempty"`
	Height    int32       `json:"height,omitempty"`
	Fields    []headField `json:"fields"`
}

type headField struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

func runHead(ctx context.Context, o *headOptions, flags *pflag.FlagSet, dst string, s streams) error {
	if o.n < 0 {
		return usagef("-n %d: want 0 or more", o.n)
	}
	c, err := o.configFor(flags, dst)
	if err != nil {
		return err
	}
	if c.Tensors != nil || slices.ContainsFunc(tensorFlags, flags.Changed) {
		return headTensors(ctx, o, c, dst, s)
	}
	if isStream(dst) {
		return headStream(ctx, o, dst, s)
	}
	st, err := open.Retried(ctx, dst)
	if err != nil {
		return err
	}
	d, err := dataset.Open(ctx, st)
	if err != nil {
		return err
	}
	split, err := d.Manifest().Split(c.Split)
	if err != nil {
		return usage(err)
	}
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	if !o.json {
		fmt.Fprintln(table, "KEY\tLABEL\tCLASS\tIMAGE\tFIELDS")
	}
	n := 0
	for i := range split.Shards {
		sh := &split.Shards[i]
		if n == o.n {
			break
		}
		rows, err := d.Rows(ctx, sh)
		if err != nil {
			return err
		}
		for k := range rows[:min(len(rows), o.n-n)] {
			row := &rows[k]
			if o.json {
				err = printJSON(s.out, headOf(int64(n), sh.Name, row))
			} else {
				_, err = fmt.Fprintln(table, headRow(row))
			}
			if err != nil {
				return err
			}
			n++
		}
	}
	return table.Flush()
}

// tensorLine is a tensor in JSON.
type tensorLine struct {
	Name  string       `json:"name"`
	DType reader.DType `json:"dtype"`
	Shape []int        `json:"shape"`
	// Values are the first ones; those that JSON cannot say are strings.
	Values []any `json:"values"`
}

// maxValues is how many values of a tensor are shown.
const maxValues = 8

// headTensors shows the tensors of the first samples.
func headTensors(ctx context.Context, o *headOptions, c reader.Config, dst string, s streams) error {
	c.Shuffle, c.Ends, c.World, c.Rank = reader.ShuffleNone, reader.EndsExact, 1, 0
	c.BatchSize, c.Sampling, c.Buckets, c.Fields = max(1, o.n), reader.Sampling{}, reader.Buckets{}, []string{}
	r, err := o.openBatches(ctx, dst, c)
	if err != nil {
		return err
	}
	defer r.Close()
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	if !o.json {
		fmt.Fprintln(table, "TENSOR\tTYPE\tSHAPE\tVALUES")
	}
	for b, err := range r.Epoch(ctx, 0) {
		if err != nil {
			return err
		}
		reportBad(s.err, c.OnBad, b.Bad())
		for _, x := range b.Tensors() {
			values, more := firstValues(x, maxValues)
			if o.json {
				err = printJSON(s.out, tensorLine{x.Name, x.DType, x.Shape, values})
			} else {
				text := strings.Trim(fmt.Sprint(values), "[]")
				if more {
					text += " …"
				}
				_, err = fmt.Fprintf(table, "%s\t%s\t%v\t%s\n", x.Name, x.DType, x.Shape, text)
			}
			if err != nil {
				return err
			}
		}
		b.Release()
		break
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return damage(r.Stats())
}

// firstValues are the first values of a tensor, at most so many, and whether there are
// more.
func firstValues(x reader.Tensor, most int) (values []any, more bool) {
	size := x.DType.Size()
	n := len(x.Data) / size
	x.Data = x.Data[:min(n, most)*size]
	a := typed.Array{DType: typed.Float64}
	if x.DType == typed.Int64 || x.DType == typed.Uint64 {
		a.DType = x.DType
	}
	file := typed.NPY{DType: x.DType, BigEndian: bigEndian, Shape: []int{min(n, most)}, Data: x.Data}
	if err := a.ConvertNPY(&file); err != nil {
		panic(fmt.Sprintf("shardread: %s as %s: %v", x.DType, a.DType, err)) // every type fits
	}
	list := func(v any) { values = append(values, v) }
	if v, ok := typed.As[int64](a.DType, a.Data); ok {
		for _, v := range v {
			list(v)
		}
	}
	if v, ok := typed.As[uint64](a.DType, a.Data); ok {
		for _, v := range v {
			list(v)
		}
	}
	if v, ok := typed.As[float64](a.DType, a.Data); ok {
		for _, v := range v {
			switch {
			case v-v != 0:
				list(fmt.Sprint(v))
			case x.DType == typed.Float32:
				list(float32(v))
			default:
				list(v)
			}
		}
	}
	if values == nil {
		values = []any{}
	}
	return values, n > most
}

func headOf(n int64, shard string, row *index.Row) headLine {
	l := headLine{
		Sample: n, Shard: shard, Key: row.Key, Label: row.Label, LabelName: row.LabelName,
		Format: row.Format, Width: row.Width, Height: row.Height,
	}
	for _, f := range row.Fields {
		l.Fields = append(l.Fields, headField{f.Name, f.Size})
	}
	return l
}

// headRow is a line of the table.
func headRow(row *index.Row) string {
	label, class, image := "-", "-", "-"
	if row.Label != nil {
		label = fmt.Sprint(*row.Label)
	}
	if row.LabelName != "" {
		class = row.LabelName
	}
	if row.Format != "" {
		image = fmt.Sprintf("%s %d×%d", row.Format, row.Width, row.Height)
	}
	fields := make([]string, len(row.Fields))
	for i, f := range row.Fields {
		fields[i] = f.Name + " " + bytesText(f.Size)
	}
	return printable(row.Key) + "\t" + label + "\t" + printable(class) + "\t" + image + "\t" + printable(strings.Join(fields, ", "))
}
