package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shardify/dataset"
	"shardify/index"
	"shardify/store/open"
)

type headOptions struct {
	split string
	n     int
	json  bool
}

func newHeadCommand() *cobra.Command {
	o := new(headOptions)
	cmd := &cobra.Command{
		Use:   "head DST",
		Short: "The first samples: keys, labels, fields, sizes, dimensions",
		Long: `Show the first samples of a split in the data set's own order, from its index; no
image is read.`,
		Example: `  shardread head /data/imagenet -n 20
  shardread head /data/imagenet --json | jq .key`,
		Args: oneDataset,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runHead(cmd.Context(), o, args[0], streamsOf(cmd))
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *headOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.split, "split", "", "the split (default: the only one, or train)")
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

func runHead(ctx context.Context, o *headOptions, dst string, s streams) error {
	if o.n < 0 {
		return usagef("-n %d: want 0 or more", o.n)
	}
	st, err := open.URL(ctx, dst)
	if err != nil {
		return err
	}
	d, err := dataset.Open(ctx, st)
	if err != nil {
		return err
	}
	split, err := d.Manifest().Split(o.split)
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
