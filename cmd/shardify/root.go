package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"shardify/internal/hint"
)

// version is that of the program; the manifest keeps it as "shardify 0.1.0".
const version = "0.1.0"

// toolName names the program in manifests.
func toolName() string { return "shardify " + version }

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "shardify",
		Short: "Pack image files into shards with an index, and look after them",
		Long: `Shardify packs millions of small image files into shards (tar, TFRecord) with an
index, and looks after data sets packed that way. The program shardread and the Go
package reader stream them to a trainer.

A data set is named by its folder: a path, s3://bucket/prefix, or for reading
https://host/folder.

` + exitHelp,
		Example: `  shardify pack ~/imagenet /data/imagenet-shards
  shardify info /data/imagenet-shards
  shardify verify /data/imagenet-shards`,
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
	root.SetVersionTemplate("shardify {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(hint.Flag(cmd, err)) })
	root.AddCommand(
		newPackCommand(),
		newInfoCommand(),
		newLsCommand(),
		newCatCommand(),
		newVerifyCommand(),
		newExtractCommand(),
		newIndexCommand(),
		newGCCommand(),
	)
	return root
}

// usageError says that the command line is wrong.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usage marks err as a fault of the command line.
func usage(err error) error { return &usageError{err} }

// usagef returns a fault of the command line.
func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

var (
	// errDamaged marks that the work was done and damaged data was found.
	errDamaged = errors.New("damaged data")
	// errReported marks an error that the output has named already.
	errReported = errors.New("reported")
)

// foundDamage is what a command returns that has named what it found.
func foundDamage() error { return fmt.Errorf("%w: %w", errDamaged, errReported) }

// exactArgs wants as many arguments as there are names.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return usagef("%s is missing: %s", names[len(args)], cmd.UseLine())
		}
		if len(args) > len(names) {
			return usagef("%q is one argument too many: %s", args[len(names)], cmd.UseLine())
		}
		return nil
	}
}

// streams are what a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
	// terminal says that err is a terminal, for progress that moves.
	terminal bool
	// columns is the width of the terminal; 80 if there is none.
	columns    int
	interrupts *interrupts
}

// streamsOf returns the streams of a command.
func streamsOf(cmd *cobra.Command) streams {
	s := streams{in: cmd.InOrStdin(), out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), columns: 80}
	s.interrupts, _ = cmd.Context().Value(interruptsKey{}).(*interrupts)
	if f, ok := s.err.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.terminal = true
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			s.columns = w
		}
	}
	return s
}

// interrupts deals with Ctrl-C and SIGTERM. The first one cancels the command's
// context, unless the command has asked to be told instead: then the second one
// does. One more ends the process.
type interrupts struct {
	cancel context.CancelFunc

	mu        sync.Mutex
	seen      bool
	cancelled bool
	handle    func()
}

// raise is called for each signal. It returns false if the process is to end at
// once.
func (i *interrupts) raise() bool {
	i.mu.Lock()
	handle, cancelled := i.handle, i.cancelled
	i.seen, i.handle = true, nil
	if handle == nil {
		i.cancelled = true
	}
	i.mu.Unlock()
	switch {
	case handle != nil:
		handle()
	case cancelled:
		return false
	default:
		i.cancel()
	}
	return true
}

func (i *interrupts) raised() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.seen
}

type interruptsKey struct{}

func withInterrupts(ctx context.Context, i *interrupts) context.Context {
	return context.WithValue(ctx, interruptsKey{}, i)
}

// onInterrupt has f called by the first Ctrl-C, in place of cancelling the command's
// context, until done is called.
func (s streams) onInterrupt(f func()) (done func()) {
	i := s.interrupts
	if i == nil {
		return func() {}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handle = f
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.handle = nil
	}
}
