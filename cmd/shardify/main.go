// Command shardify packs folders of images into shards with an index, and looks
// after data sets packed that way.
//
//	shardify pack SRC... DST    pack image files into shards
//	shardify info DST           what a data set holds
//	shardify ls DST             list samples, with filters
//	shardify cat DST KEY FIELD  one field of one sample
//	shardify verify DST         compare every byte with its checksum
//	shardify extract DST DIR    back to files
//	shardify index SHARDS       an index for shards that others made
//	shardify gc DST             what killed runs have left
//
// Data goes to stdout, everything else to stderr. Every command that prints data
// has --json.
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
	// exitUsage: the command line is wrong; nothing was done.
	exitUsage = 2
	// exitDamaged: the command did its work and found damaged data, or had to leave
	// some out; the output names it.
	exitDamaged = 3
	// exitInterrupted: stopped by Ctrl-C or SIGTERM. What was finished is kept.
	exitInterrupted = 130
)

// exitHelp is the table for people.
const exitHelp = `Exit codes: 0 done; 1 not done, the message says why; 2 wrong command line;
3 done, but data was found damaged or left out; 130 interrupted.`

func main() {
	os.Exit(run())
}

func run() int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	in := &interrupts{cancel: cancel}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for range signals {
			if !in.raise() {
				os.Exit(exitInterrupted)
			}
		}
	}()
	root := newRootCommand()
	root.SetArgs(os.Args[1:])
	err := root.ExecuteContext(withInterrupts(ctx, in))
	if err == nil {
		return exitOK
	}
	code := exitCode(err, in.raised())
	switch {
	case errors.Is(err, errReported):
	case code == exitInterrupted && err.Error() == context.Canceled.Error(): // nothing else to say
		fmt.Fprintln(os.Stderr, "shardify: interrupted")
	default:
		fmt.Fprintf(os.Stderr, "shardify: %v\n", err)
	}
	return code
}

// exitCode is the one place that turns errors into exit codes.
func exitCode(err error, interrupted bool) int {
	var wrong *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &wrong):
		return exitUsage
	case errors.Is(err, errDamaged):
		return exitDamaged
	case interrupted:
		return exitInterrupted
	}
	return exitError
}
