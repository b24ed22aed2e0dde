// Command shardread reads data sets that shardify has packed: shuffled, decoded and
// batched, for a program in any language, or to see how fast that goes.
//
//	shardread bench DST     read an epoch, and say how fast and what bounds it
//	shardread head DST      the first samples: keys, labels, fields, dimensions
//	shardread stream DST    an epoch to stdout, as tar, npy or JSON lines
//	shardread plan DST      the order of an epoch, without reading data
//	shardread serve         batches for trainers in other processes
//	shardread gpu-info      the GPUs of this machine, or what is missing to use them
//
// Data goes to stdout, everything else to stderr. It is a thin layer over package
// reader: its flags are the fields of reader.Config.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// The exit codes, all of them.
const (
	exitOK = 0
	// exitError: it could not be done; stderr says why and what to do.
	exitError = 1
	// exitUsage: the command line or the configuration is wrong; nothing was done.
	exitUsage = 2
	// exitDamaged: damaged data was found; stderr names it. Under --on-bad skip
	// and substitute all the rest was read.
	exitDamaged = 3
	// exitInterrupted: stopped by Ctrl-C or SIGTERM.
	exitInterrupted = 130
)

// exitHelp is the table for people.
const exitHelp = `Exit codes: 0 done, also where the reader of stdout has had enough; 1 not done, the
message says why; 2 wrong command line or configuration; 3 data was found damaged;
130 interrupted.`

func main() { os.Exit(run()) }

func run() int {
	// The first Ctrl-C cancels, the second one ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	// A write to a closed pipe is then an error, and not the end.
	ignoreBrokenPipe()
	root := newRootCommand()
	root.SetArgs(os.Args[1:])
	err := root.ExecuteContext(ctx)
	code := exitCode(err, ctx.Err() != nil)
	switch {
	case code == exitOK:
	case code == exitInterrupted:
		fmt.Fprintln(os.Stderr, "shardread: interrupted")
	default:
		fmt.Fprintf(os.Stderr, "shardread: %v%s\n", err, wayOut(err))
	}
	return code
}

// exitCode is the one place that turns errors into exit codes.
func exitCode(err error, interrupted bool) int {
	var wrong *usageError
	switch {
	case err == nil, isBrokenPipe(err):
		return exitOK
	case errors.As(err, &wrong):
		return exitUsage
	case isDamage(err):
		return exitDamaged
	case interrupted:
		return exitInterrupted
	}
	return exitError
}
