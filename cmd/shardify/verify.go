package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shardify/dataset"
	"shardify/index"
	"shardify/store/open"
)

type verifyOptions struct {
	dataset.VerifyOptions
	json, quiet bool
}

func newVerifyCommand() *cobra.Command {
	o := new(verifyOptions)
	cmd := &cobra.Command{
		Use:   "verify DST",
		Short: "Compare every byte of a data set with its checksums",
		Long: `Compare every byte of a data set with what its manifest and indexes say: the size
and checksum of each shard and index; and for each sample its key, its fields, and
where they lie, with the checksum of each field. Every fault is printed, with shard,
key, field and offset. Files that do not belong to the data set are warnings; a web
server does not say which it has.

Nothing is changed. Each file is read once.

Exit code 0: intact. 3: damaged. 1: it could not be verified.`,
		Example: `  shardify verify /data/imagenet
  shardify verify /data/imagenet --split val --json`,
		Args: exactArgs("DST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runVerify(cmd.Context(), o, args[0], streamsOf(cmd))
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *verifyOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Split, "split", "", "verify only this split")
	f.IntVar(&o.Workers, "workers", 0, "shards that are verified at once (default: the cores)")
	f.IntVar(&o.MaxProblems, "max-problems", 0, "problems printed of one shard before the rest is summed up (default 20)")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print problems only")
	f.BoolVar(&o.json, "json", false, "print problems and the result as JSON lines")
}

// problemLine is a dataset.Problem in JSON.
type problemLine struct {
	Event    string       `json:"event"` // "problem"
	Severity string       `json:"severity"`
	Kind     dataset.Kind `json:"kind"`
	File     string       `json:"file"`
	Key      string       `json:"key,omitempty"`
	Field    string       `json:"field,omitempty"`
	Offset   *int64       `json:"offset,omitempty"`
	Samples  int64        `json:"samples,omitempty"`
	Error    string       `json:"error"`
}

// verifyLine is the last line of --json.
type verifyLine struct {
	Event string `json:"event"` // "done"
	dataset.VerifyResult
	Seconds float64 `json:"seconds"`
}

func runVerify(ctx context.Context, o *verifyOptions, dst string, s streams) error {
	if err := o.Validate(); err != nil {
		return usage(err)
	}
	st, err := open.Retried(ctx, dst)
	if err != nil {
		return err
	}
	d, err := dataset.Open(ctx, st)
	if errors.Is(err, index.ErrInvalid) || errors.Is(err, index.ErrNotManifest) {
		// There is nothing to compare with.
		if err := printProblem(o, s, dataset.Problem{Kind: dataset.KindFormat, File: index.ManifestName, Offset: -1, Err: err}); err != nil {
			return err
		}
		return foundDamage()
	}
	if err != nil {
		return err
	}
	if err := d.Check(dataset.Selection{Split: o.Split}); err != nil {
		return usage(err)
	}
	began := time.Now()
	o.Progress = new(dataset.Progress)
	stop := func() {}
	if !o.quiet && !o.json {
		stop = follow(s, "verify", o.Progress)
	}
	var printed error
	result, err := dataset.Verify(ctx, d, o.VerifyOptions, func(p dataset.Problem) {
		if e := printProblem(o, s, p); e != nil && printed == nil {
			printed = e
		}
	})
	stop()
	if err != nil {
		return err
	}
	if printed != nil {
		return printed
	}
	seconds := time.Since(began).Seconds()
	switch {
	case o.json:
		if err := printJSON(s.out, verifyLine{"done", result, seconds}); err != nil {
			return err
		}
	case !o.quiet:
		verdict := "intact"
		if result.Problems > 0 {
			verdict = count(result.Problems, "problem", "problems")
		}
		if result.Warnings > 0 {
			verdict += ", " + count(result.Warnings, "warning", "warnings")
		}
		fmt.Fprintf(s.err, "%s: %s in %s, %s in %.1f s, %s/s\n", verdict, count(result.Samples, "sample", "samples"),
			count(result.Shards, "shard", "shards"), humanize.Bytes(uint64(result.Bytes)), seconds, bytesText(int64(float64(result.Bytes)/max(seconds, 1e-9))))
	}
	if result.Problems > 0 {
		return foundDamage()
	}
	return nil
}

func printProblem(o *verifyOptions, s streams, p dataset.Problem) error {
	severity := "error"
	if p.Warning {
		severity = "warning"
	}
	if !o.json {
		_, err := fmt.Fprintf(s.out, "%s: %s\n", severity, printable(p.String()))
		return err
	}
	line := problemLine{Event: "problem", Severity: severity, Kind: p.Kind, File: p.File, Key: p.Key, Field: p.Field, Samples: p.Samples, Error: p.Err.Error()}
	if p.Offset >= 0 {
		line.Offset = &p.Offset
	}
	return printJSON(s.out, line)
}
