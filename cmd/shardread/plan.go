package main

import (
	"bufio"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shardify/reader"
	"shardify/store/stream"
)

type planOptions struct {
	configOptions
	epoch   int
	from    int64
	batches int64
	keys    bool
	json    bool
}

func newPlanCommand() *cobra.Command {
	o := new(planOptions)
	cmd := &cobra.Command{
		Use:   "plan DST",
		Short: "The order of an epoch, without reading data",
		Long: `Print which samples a rank gets in an epoch, in their order: a line for each sample,
with tabs between

  the batch, the sample's number in the split, its shard, its row in the shard,
  where there are buckets the batch's bucket, from 0,

and its key with --keys. Only the manifest is read, and the indexes where --keys, a
choice of samples, weights or buckets need them.
Sample numbers count the samples of all shards in the manifest's order, from 0.`,
		Example: `  shardread plan /data/imagenet --world 8 --rank 3 --epoch 5 --seed 1 | head
  shardread plan /data/imagenet --shuffle window --from 1000 --batches 1 --keys
  shardread plan /data/captions --bucket-by txt.size --bucket-edges 64,128,256 | cut -f1,5 | uniq`,
		Args: oneDataset,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.exclude(cmd.Flags(), "epoch", "from"); err != nil {
				return err
			}
			c, err := o.config(cmd.Flags())
			if err != nil {
				return err
			}
			return runPlan(cmd.Context(), o, c, args[0], streamsOf(cmd))
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *planOptions) addFlags(f *pflag.FlagSet) {
	o.configOptions.addFlags(f, orderFlags)
	f.IntVar(&o.epoch, "epoch", 0, "the epoch, from 0")
	f.Int64Var(&o.from, "from", 0, "the first batch")
	f.Int64Var(&o.batches, "batches", 0, "how many batches (default: all)")
	f.BoolVar(&o.keys, "keys", false, "also the keys, from the index")
	f.BoolVar(&o.json, "json", false, "a line of JSON for each sample")
}

// planLine is a sample in JSON.
type planLine struct {
	Batch  int64  `json:"batch"`
	Sample int64  `json:"sample"`
	Shard  string `json:"shard"`
	Row    int64  `json:"row"`
	Bucket *int   `json:"bucket,omitempty"`
	Key    string `json:"key,omitempty"`
}

func runPlan(ctx context.Context, o *planOptions, c reader.Config, dst string, s streams) error {
	if o.epoch < 0 || o.from < 0 || o.batches < 0 {
		return usagef("--epoch, --from and --batches must not be negative")
	}
	// The order is the same whatever is read.
	asTheyAre(&c)
	c.Fields = []string{}
	if isStream(dst) {
		return usagef("%s has no index, so that its order is not known before it is read: `shardify index` writes one beside the shards; shardread stream %s --format jsonl reads them", stream.Title(dst), stream.Title(dst))
	}
	r, err := o.open(ctx, dst, c)
	if err != nil {
		return err
	}
	defer r.Close()
	if n := int64(r.Len()); o.from >= n {
		return usagef("--from %d: the epoch has %d batches, 0 to %d", o.from, n, n-1)
	}
	state, err := o.start(r, o.epoch, o.from)
	if err != nil {
		return err
	}
	plan, err := r.Plan(state.Epoch)
	if err != nil {
		return err
	}
	from, end := state.Batch, plan.Batches()
	if o.batches > 0 {
		end = min(end, from+o.batches)
	}
	out := bufio.NewWriter(s.out)
	file, err := o.begin(state, out.Flush)
	if err != nil {
		return err
	}
	var batch []int64
	for b := from; b < end; b++ {
		if err := ctx.Err(); err != nil {
			return file.end(err)
		}
		batch = plan.Batch(batch[:0], b, r.Config().Rank)
		var bucket *int
		if plan.Buckets() > 1 {
			k := plan.Bucket(b)
			bucket = &k
		}
		for _, n := range batch {
			shard, row := plan.Locate(n)
			l := planLine{Batch: b, Sample: n, Shard: r.ShardName(shard), Row: row, Bucket: bucket}
			if o.keys {
				if l.Key, err = r.Key(ctx, n); err != nil {
					return err
				}
			}
			if o.json {
				err = printJSON(out, l)
			} else {
				_, err = fmt.Fprintf(out, "%d\t%d\t%s\t%d", l.Batch, l.Sample, printable(l.Shard), l.Row)
				if bucket != nil && err == nil {
					_, err = fmt.Fprintf(out, "\t%d", *bucket)
				}
				if o.keys && err == nil {
					_, err = fmt.Fprintf(out, "\t%s", printable(l.Key))
				}
				if err == nil {
					err = out.WriteByte('\n')
				}
			}
			if err != nil {
				return err
			}
		}
		next, err := r.State(state.Epoch, b+1)
		if err != nil {
			return err
		}
		if err := file.done(next); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return file.end(nil)
}
