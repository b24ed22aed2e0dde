package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shardify/dataset"
	"shardify/store/open"
)

type extractOptions struct {
	dataset.ExtractOptions
	json, quiet bool
}

func newExtractCommand() *cobra.Command {
	o := new(extractOptions)
	cmd := &cobra.Command{
		Use:   "extract DST DIR",
		Short: "Turn a data set back into files",
		Long: `Turn a data set back into files below the folder DIR.

Files get the paths that they were packed from, and are the same byte for byte.
Fields that packing generated, such as the class number "cls", are left out unless
--all-fields is given. Where a data set knows no paths (shards that others made), a
field becomes the file KEY.FIELD.

Every field is checked against its checksum before it is written. A file that is
there with the same content is left alone, so the same command again goes on after
an interruption; one with other content is an error without --force. Nothing is ever
written outside DIR.

` + whereHelp,
		Example: `  shardify extract /data/imagenet back --split val
  shardify extract /data/imagenet tenches --label tench
  shardify extract /data/imagenet big --where "width >= 1000" --fields jpg`,
		Args: exactArgs("DST", "DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runExtract(cmd.Context(), o, args[0], args[1], streamsOf(cmd))
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *extractOptions) addFlags(f *pflag.FlagSet) {
	addSelection(f, &o.Selection)
	f.StringSliceVar(&o.Fields, "fields", nil, "only these fields")
	f.BoolVar(&o.AllFields, "all-fields", false, "write the fields that packing generated, too")
	f.BoolVar(&o.Force, "force", false, "replace files that have other content")
	f.IntVar(&o.Workers, "workers", 0, "shards that are extracted at once (default: the cores)")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print errors only")
	f.BoolVar(&o.json, "json", false, "print errors and the result as JSON lines")
}

func runExtract(ctx context.Context, o *extractOptions, dst, dir string, s streams) error {
	st, err := open.Retried(ctx, dst)
	if err != nil {
		return err
	}
	d, err := dataset.Open(ctx, st)
	if err != nil {
		return err
	}
	if err := o.Check(d); err != nil {
		return usage(err)
	}
	began := time.Now()
	o.Progress = new(dataset.Progress)
	stop := func() {}
	if !o.quiet && !o.json {
		stop = follow(s, "extract", o.Progress)
	}
	const most = 100
	reported := 0
	var printed error
	result, err := dataset.Extract(ctx, d, dir, o.ExtractOptions, func(err error) {
		switch reported++; {
		case o.json:
			printed = errors.Join(printed, printJSON(s.out, map[string]any{"event": "problem", "error": err.Error()}))
		case reported <= most:
			fmt.Fprintf(s.err, "error: %s\n", printable(err.Error()))
		}
	})
	stop()
	err = errors.Join(err, printed)
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted: %s written; give the same command again to go on", count(result.Files, "file", "files"))
	}
	if err != nil {
		return err
	}
	switch {
	case o.json:
		line := struct {
			Event string `json:"event"`
			dataset.ExtractResult
			Seconds float64 `json:"seconds"`
		}{"done", result, time.Since(began).Seconds()}
		if err := printJSON(s.out, line); err != nil {
			return err
		}
	case !o.quiet:
		text := fmt.Sprintf("%s, %s written", count(result.Files, "file", "files"), bytesText(result.Bytes))
		if result.Same > 0 {
			text += fmt.Sprintf(", %s there already", count(result.Same, "file", "files"))
		}
		if result.Generated > 0 {
			text += fmt.Sprintf(", %s left out that packing generated (--all-fields)", count(result.Generated, "field", "fields"))
		}
		fmt.Fprintln(s.err, text)
		if result.Samples == 0 {
			fmt.Fprintln(s.err, "no sample matches")
		}
	}
	switch {
	case result.Damaged > 0:
		return fmt.Errorf("%w: %s not extracted", errDamaged, count(result.Failed, "field or shard was", "fields or shards were"))
	case result.Failed > 0:
		return fmt.Errorf("%s not extracted", count(result.Failed, "field was", "fields were"))
	}
	return nil
}
