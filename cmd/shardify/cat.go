package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"shardify/dataset"
	"shardify/internal/nearest"
	"shardify/store/open"
)

type catOptions struct {
	split, shard string
}

func newCatCommand() *cobra.Command {
	o := new(catOptions)
	cmd := &cobra.Command{
		Use:   "cat DST KEY FIELD",
		Short: "Print one field of one sample",
		Long: `Print the exact bytes of one field of one sample, checked against their checksum,
to stdout.

Where several samples have the key, as may be in shards that others made, --shard
says which.`,
		Example: `  shardify cat /data/imagenet n01440764/n01440764_10026 jpg > tench.jpg
  shardify cat /data/imagenet n01440764/n01440764_10026 cls`,
		Args: exactArgs("DST", "KEY", "FIELD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runCat(cmd.Context(), o, args[0], args[1], args[2], streamsOf(cmd))
		},
	}
	cmd.Flags().StringVar(&o.split, "split", "", "look in this split only")
	cmd.Flags().StringVar(&o.shard, "shard", "", "take the sample of this shard")
	return cmd
}

func runCat(ctx context.Context, o *catOptions, dst, key, field string, s streams) error {
	st, err := open.Retried(ctx, dst)
	if err != nil {
		return err
	}
	d, err := dataset.Open(ctx, st)
	if err != nil {
		return err
	}
	if err := d.Check(dataset.Selection{Split: o.split}); err != nil {
		return usage(err)
	}
	found, err := d.Find(ctx, o.split, key)
	if err != nil {
		return err
	}
	var shards []string
	var sample *dataset.Selected
	for i := range found {
		shards = append(shards, found[i].Shard.Name)
		if o.shard == "" || found[i].Shard.Name == o.shard {
			sample = &found[i]
		}
	}
	switch {
	case sample == nil:
		return fmt.Errorf("shard %q has no sample %q; it is in %s", o.shard, key, strings.Join(shards, ", "))
	case o.shard == "" && len(found) > 1:
		return fmt.Errorf("%d samples have the key %q: say which with --shard %s", len(found), key, strings.Join(shards, " or --shard "))
	}
	row := sample.Row.Field(field)
	if row == nil {
		names := fieldNames(sample.Row)
		hint := ""
		if n := nearest.Name(field, names); n != "" {
			hint = fmt.Sprintf("did you mean %s? ", n)
		}
		return fmt.Errorf("sample %q has no field %q; %sit has %s", key, field, hint, strings.Join(names, ", "))
	}
	data, err := d.ReadField(ctx, sample.Shard, sample.Row, row)
	if err != nil {
		return err
	}
	if f, ok := s.out.(*os.File); ok && term.IsTerminal(int(f.Fd())) && !isText(data) {
		return errors.New("the field is no text, and would garble the terminal: send it into a file with > FILE")
	}
	_, err = s.out.Write(data)
	return err
}

// isText says whether data can be shown on a terminal.
func isText(data []byte) bool {
	text := string(data)
	return printable(strings.NewReplacer("\n", "", "\t", "", "\r", "").Replace(text)) == strings.NewReplacer("\n", "", "\t", "", "\r", "").Replace(text)
}
