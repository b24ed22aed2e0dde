package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shardify/dataset"
	"shardify/index"
	"shardify/index/seek"
	"shardify/shard/formats"
	"shardify/store"
	"shardify/store/open"
)

type indexOptions struct {
	dataset.IndexOptions
	classes, onBad string
	json, quiet    bool
}

func newIndexCommand() *cobra.Command {
	o := new(indexOptions)
	cmd := &cobra.Command{
		Use:   "index DIR | SHARD...",
		Short: "Write an index for shards that others made",
		Long: `Write an index beside each shard of a folder, or of the shards given, and the
manifest that makes them a data set. The shards are read once and never touched. The
index is what packing would have written for the same bytes.

Splits are told from the names: the last word that is one of train, training, val,
valid, validation, test, testing, dev, eval, trainval (imagenet-val-000012.tar); or
else what stands before the number (cats-000.tar: the split cats); or else train.
--split puts all shards into one.

Labels are looked for in the field cls and in the members label, cls, class,
label_name, class_name of the field json, or where --label-from says: a field, or a
member of one, such as json.category. Class names are numbered in sorted order, or as
in --classes.

Samples whose image is cut short or is none, or whose name is not UTF-8, are bad. All
are named; then nothing is written, or with --on-bad skip the index is written without
them.

With --jpeg-seek, JPEGs get seek points: a .seek file beside each shard says where each
can be entered, so that readers decode a crop of it without what is before. Where there
is a data set already, packed or indexed, that is all that is done: its shards and
indexes stay as they are, and its manifest gets the files' names.

Exit code 0: done. 3: done, with bad samples left out. 1: not done.`,
		Example: `  shardify index /data/laion-tars
  shardify index /data/imagenet-wds/imagenet-val-*.tar --classes synsets.txt
  shardify index /data/growing --update
  shardify index /data/imagenet --jpeg-seek`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("DIR is missing: %s", cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runIndex(cmd.Context(), o, args, streamsOf(cmd))
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *indexOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Name, "name", "", "name of the data set (default: the folder's)")
	f.StringVar(&o.Split, "split", "", "put all shards into this split")
	f.StringVar(&o.classes, "classes", "", "number the classes as in this `FILE`, one name a line")
	f.StringVar(&o.LabelFrom, "label-from", "", "where labels are: a `FIELD`, FIELD.MEMBER or none")
	f.StringVar(&o.onBad, "on-bad", "fail", "bad samples: fail, or skip to leave them out of the index")
	addJPEGSeek(f, &o.JPEGSeek)
	f.BoolVar(&o.Update, "update", false, "bring the index up to date: read only shards that are new or changed")
	f.BoolVar(&o.Force, "force", false, "replace a manifest and indexes that are there")
	f.IntVar(&o.Workers, "workers", 0, "shards that are read at once (default: the cores)")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print errors only")
	f.BoolVar(&o.json, "json", false, "print bad samples and the result as JSON lines")
}

// folderOf returns the folder of the shards that were given, and their names in it;
// no names if the folder itself was given.
func folderOf(args []string) (dir string, names []string, err error) {
	for _, arg := range args {
		info, err := os.Stat(arg)
		switch {
		case errors.Is(err, fs.ErrNotExist) && strings.Contains(arg, "://"):
			// A store of its own: it knows whether it is there.
			if len(args) == 1 {
				return arg, nil, nil
			}
			return "", nil, usagef("%s: give one folder, or shards of one folder", arg)
		case err != nil:
			return "", nil, err
		case info.IsDir() && len(args) == 1:
			return arg, nil, nil
		case info.IsDir():
			return "", nil, usagef("%s is a folder: give one folder, or shards of one folder", arg)
		}
		if _, err := formats.OfFile(arg); err != nil {
			return "", nil, usage(err)
		}
		if dir == "" {
			dir = filepath.Dir(arg)
		} else if dir != filepath.Dir(arg) {
			return "", nil, usagef("%s is not in the folder %s: the shards of a data set lie in one folder", arg, dir)
		}
		names = append(names, filepath.Base(arg))
	}
	return dir, names, nil
}

// hasIndex returns the data set that is to be given seek points and nothing else; nil where
// shards are to be indexed.
func hasIndex(ctx context.Context, st store.Store, o *dataset.IndexOptions) (*dataset.Dataset, error) {
	if o.JPEGSeek == "" || o.Update || o.Force || len(o.Shards) > 0 {
		return nil, nil
	}
	d, err := dataset.Open(ctx, st)
	if errors.Is(err, dataset.ErrNotDataset) && !errors.Is(err, dataset.ErrUnfinished) {
		return nil, nil
	}
	return d, err
}

// addSeek gives a data set seek points.
func addSeek(ctx context.Context, d *dataset.Dataset, o *dataset.IndexOptions, report func(dataset.BadSample)) (*index.Manifest, error) {
	every, err := seek.ParseSpacing(o.JPEGSeek)
	if err != nil {
		return nil, err
	}
	return dataset.AddSeek(ctx, d, dataset.SeekOptions{Every: every, Workers: o.Workers, Progress: o.Progress}, report)
}

func runIndex(ctx context.Context, o *indexOptions, args []string, s streams) error {
	switch o.onBad {
	case "fail":
	case "skip":
		o.Skip = true
	default:
		return usagef("--on-bad %q: want fail or skip", o.onBad)
	}
	dir, names, err := folderOf(args)
	if err != nil {
		return err
	}
	o.Shards = names
	if o.classes != "" {
		if o.Classes, err = readClasses(o.classes); err != nil {
			return usage(err)
		}
	}
	if err := o.Validate(); err != nil {
		return usage(err)
	}
	if o.Name == "" {
		if abs, err := filepath.Abs(dir); err == nil && !strings.Contains(dir, "://") {
			o.Name = filepath.Base(abs)
		}
	}
	st, err := open.Writable(ctx, dir)
	if err != nil {
		return err
	}
	o.Tool = toolName()
	began := time.Now()
	o.Progress = new(dataset.Progress)
	stop := func() {}
	if !o.quiet && !o.json {
		stop = follow(s, "index", o.Progress)
	}
	const most = 100
	bad := int64(0)
	var printed error
	report := func(b dataset.BadSample) {
		bad++
		switch {
		case o.json:
			printed = errors.Join(printed, printJSON(s.out, map[string]any{"event": "bad", "shard": b.Shard, "key": b.Key, "field": b.Field, "offset": b.Offset, "error": b.Err.Error()}))
		case bad <= most:
			fmt.Fprintf(s.err, "bad: %s\n", printable(b.String()))
		case bad == most+1:
			fmt.Fprintln(s.err, "bad: … (--json prints all)")
		}
	}
	left := "left out of the index"
	d, err := hasIndex(ctx, st, &o.IndexOptions)
	var m *index.Manifest
	switch {
	case err != nil:
	case d != nil:
		left = "without seek points; `shardify verify` says more"
		m, err = addSeek(ctx, d, &o.IndexOptions, report)
	default:
		m, err = dataset.Index(ctx, st, o.IndexOptions, report)
	}
	stop()
	if err := errors.Join(err, printed); err != nil {
		return err
	}
	shards, points := int64(0), int64(0)
	for i := range m.Splits {
		shards += int64(len(m.Splits[i].Shards))
		for j := range m.Splits[i].Shards {
			if p := m.Splits[i].Shards[j].Seek; p != nil {
				points += p.Samples
			}
		}
	}
	if o.json {
		err := printJSON(s.out, map[string]any{
			"event": "done", "shards": shards, "samples": m.Samples(), "bytes": m.Bytes(), "classes": len(m.Classes), "seek": points, "bad": bad, "seconds": time.Since(began).Seconds(),
		})
		if err != nil {
			return err
		}
	} else if !o.quiet {
		fmt.Fprintf(s.err, "%s: %s in %s", m.Name, count(m.Samples(), "sample", "samples"), count(shards, "shard", "shards"))
		for i := range m.Splits {
			sep := ", "
			if i == 0 {
				sep = ": "
			}
			fmt.Fprintf(s.err, "%s%s %s", sep, m.Splits[i].Name, count(m.Splits[i].Samples, "sample", "samples"))
		}
		if len(m.Classes) > 0 {
			fmt.Fprintf(s.err, "; %s", count(int64(len(m.Classes)), "class", "classes"))
		}
		if points > 0 {
			fmt.Fprintf(s.err, "; seek points of %s", count(points, "JPEG", "JPEGs"))
		}
		fmt.Fprintln(s.err)
	}
	if bad > 0 {
		return fmt.Errorf("%w: %s %s", errDamaged, count(bad, "bad sample", "bad samples"), left)
	}
	return nil
}
