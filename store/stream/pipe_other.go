//go:build !unix

package stream

import (
	"context"
	"os"

	"golang.org/x/term"
)

func openPipe(_ context.Context, path string) (*os.File, error) { return os.Open(path) }

func reopen(*os.File) *os.File { return nil }

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
