package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shardify/pack"
	"shardify/store/open"
)

type gcOptions struct {
	pack.GCOptions
	json bool
}

func newGCCommand() *cobra.Command {
	o := new(gcOptions)
	cmd := &cobra.Command{
		Use:   "gc DST",
		Short: "Find what killed runs have left, and remove it",
		Long: `List what runs that were killed have left in a data set's folder or bucket: temporary
files and uploads in parts, which no listing of objects shows and which a bucket charges
for; the rest of a journal; locks without a run. With --delete, remove it.

Two things are listed with the flag that takes them, and stay without it, as they may be
somebody's work: the files of a data set that was begun and can still be finished by the
same pack command (--unfinished), and shards, indexes and seek points that the manifest
does not name (--strays). Other files are nobody's leftovers.

What is younger than --older-than is left alone, and nothing is removed while a run holds
a lock there; a lock in a bucket outlives a killed run by a minute.

Exit code 0: done, whether or not there was anything. 1: not done.`,
		Example: `  shardify gc s3://bucket/imagenet
  shardify gc s3://bucket/imagenet --delete
  shardify gc /data/half-packed --unfinished --older-than 1h --delete`,
		Args: exactArgs("DST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("older-than") && o.OlderThan == 0 {
				o.OlderThan = 1 // nanosecond: 0 is the default's
			}
			return runGC(cmd.Context(), o, args[0], streamsOf(cmd))
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *gcOptions) addFlags(f *pflag.FlagSet) {
	f.SortFlags = false
	f.BoolVar(&o.Delete, "delete", false, "remove what is listed")
	f.DurationVar(&o.OlderThan, "older-than", 0, fmt.Sprintf("leave alone what is younger than this, as in 90m (default %dh)", int(pack.DefaultGCAge.Hours())))
	f.BoolVar(&o.Unfinished, "unfinished", false, "take the files of a data set that was not finished, too: it cannot be finished then")
	f.BoolVar(&o.Strays, "strays", false, "take shards, indexes and seek points that the manifest does not name, too")
	f.BoolVar(&o.json, "json", false, "print leftovers and the result as JSON lines")
}

// gcLine is a line of --json.
type gcLine struct {
	Event string `json:"event"` // "leftover"
	pack.Leftover
}

// gcDone is the last line of --json.
type gcDone struct {
	Event string `json:"event"` // "done"
	pack.GCResult
}

func runGC(ctx context.Context, o *gcOptions, dst string, s streams) error {
	if err := o.Validate(); err != nil {
		return usage(err)
	}
	st, err := open.Writable(ctx, dst)
	if err != nil {
		return err
	}
	now := time.Now()
	result, err := pack.GC(ctx, st, o.GCOptions, func(l pack.Leftover) error {
		if o.json {
			return printJSON(s.out, gcLine{"leftover", l})
		}
		age, needs := "unknown age", ""
		if !l.Written.IsZero() {
			age = now.Sub(l.Written).Round(time.Second).String()
		}
		if l.Needs != "" {
			needs = "  stays without --" + l.Needs
		}
		_, err := fmt.Fprintf(s.out, "%-19s  %10s  %12s  %s%s\n", l.Kind, bytesText(l.Bytes), age, printable(l.Name), needs)
		return err
	})
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(s.out, gcDone{"done", result})
	}
	var parts []string
	switch {
	case o.Delete:
		parts = append(parts, fmt.Sprintf("%s removed, %s", count(result.Removed, "leftover", "leftovers"), bytesText(result.Bytes)))
	case result.Found > 0:
		parts = append(parts, fmt.Sprintf("%s, %s: --delete removes them", count(result.Found, "leftover", "leftovers"), bytesText(result.Bytes)))
	default:
		parts = append(parts, "no leftovers")
	}
	if result.Kept > 0 {
		parts = append(parts, fmt.Sprintf("%s of unfinished work or strays", count(result.Kept, "file", "files")))
	}
	if result.Young > 0 {
		parts = append(parts, fmt.Sprintf("%d too young to tell (--older-than)", result.Young))
	}
	_, err = fmt.Fprintf(s.err, "%s\n", strings.Join(parts, "; "))
	return err
}
