package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"shardify/internal/hint"
	"shardify/reader"
	"shardify/shard"
)

// version is that of the program.
const version = "0.1.0"

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "shardread",
		Short: "Read packed data sets: shuffled, decoded, batched",
		Long: `Shardread reads data sets that shardify has packed, in the order, with the
transforms and in the batches that a training loop would get from the Go package
reader. Its flags are the fields of reader.Config, which --config takes as JSON.

` + exitHelp,
		Example: `  shardread bench /data/imagenet --split train --crop 224 --batch 256
  shardread head /data/imagenet
  shardread stream /data/imagenet --format tar | tar tf -
  shardread plan /data/imagenet --world 8 --rank 3 --epoch 5 --seed 1 | head`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		// Without Args, cobra itself would report an unknown command.
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return usage(hint.Command(cmd, args[0]))
		},
	}
	root.SetVersionTemplate("shardread {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(hint.Flag(cmd, err)) })
	root.AddCommand(newBenchCommand(), newHeadCommand(), newStreamCommand(), newPlanCommand(), newServeCommand(), newGPUInfoCommand())
	return root
}

// usageError says that the command line or the configuration is wrong.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usage marks err as a fault of the command line.
func usage(err error) error { return &usageError{err} }

// usagef returns a fault of the command line.
func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// errDamaged: samples had to be left out or replaced.
var errDamaged = errors.New("damaged samples were")

// damage is the end of a command that has met damaged samples; nil if there were none.
func damage(st reader.Stats) error {
	switch {
	case st.Skipped > 0:
		return fmt.Errorf("%w left out: %d", errDamaged, st.Skipped)
	case st.Substituted > 0:
		return fmt.Errorf("%w replaced by others: %d", errDamaged, st.Substituted)
	}
	return nil
}

// isDamage says that err is the data's fault.
func isDamage(err error) bool {
	if errors.Is(err, reader.ErrReplaced) {
		return false
	}
	var bad *reader.SampleError
	return errors.As(err, &bad) || errors.Is(err, errDamaged) || errors.Is(err, shard.ErrChecksum) || errors.Is(err, shard.ErrTruncated)
}

// wayOut is what can be done about damaged data that has ended a command; empty for all
// other errors.
func wayOut(err error) string {
	var bad *reader.SampleError
	switch {
	case errors.Is(err, reader.ErrTooManyBad):
		return "\n--max-bad allows more; `shardify verify` finds all that is damaged in a data set"
	case errors.As(err, &bad) && !errors.Is(err, reader.ErrReplaced):
		return "\n--on-bad skip leaves damaged samples out, --on-bad substitute takes others in their place; `shardify verify` finds all that is damaged in a data set"
	}
	return ""
}

// oneDataset wants the data set as the only argument.
func oneDataset(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return usagef("DST, the data set's folder, is missing: %s", cmd.UseLine())
	case len(args) > 1 && isStream(args[0]) && isStream(args[1]):
		return usagef("%q is one argument too many: %s; several shards are named by one pattern, in quotes so that the shell leaves it as it is: '/data/x-{000..146}.tar', '/data/*.tar'", args[1], cmd.UseLine())
	case len(args) > 1:
		return usagef("%q is one argument too many: %s", args[1], cmd.UseLine())
	}
	return nil
}

// streams are what a command writes to.
type streams struct {
	out, err io.Writer
}

func streamsOf(cmd *cobra.Command) streams {
	return streams{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr()}
}
