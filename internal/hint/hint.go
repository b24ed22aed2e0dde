// Package hint answers a wrong command line with the right one, for both programs.
package hint

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shardify/internal/nearest"
)

// Command is the error for a command that cmd does not have: it names the one that
// was probably meant, or all there are.
func Command(cmd *cobra.Command, name string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	sort.Strings(names)
	hint := "the commands are " + strings.Join(names, ", ")
	if n := nearest.Name(name, names); n != "" {
		hint = fmt.Sprintf("did you mean %s %s?", cmd.Name(), n)
	}
	return fmt.Errorf("no command %q; %s", name, hint)
}

// Flag adds to an error of cmd's flags the flag that was probably meant, or where
// to read on.
func Flag(cmd *cobra.Command, err error) error {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	var missing *pflag.NotExistError
	if errors.As(err, &missing) && len(missing.GetSpecifiedName()) > 1 {
		if n := nearest.Name("--"+missing.GetSpecifiedName(), names); n != "" {
			return fmt.Errorf("%w; did you mean %s?", err, n)
		}
	}
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		want := map[string]string{
			"int": "a whole number", "int64": "a whole number", "uint": "a whole number, 0 or more", "uint64": "a whole number, 0 or more",
			"float64": "a number", "float64Slice": "numbers with commas between", "duration": "a time with its unit, such as 30s or 500ms", "bool": "true or false",
		}[value.GetFlag().Value.Type()]
		if want != "" {
			return fmt.Errorf("--%s: %q is not %s; see %s --help", value.GetFlag().Name, value.GetValue(), want, cmd.CommandPath())
		}
	}
	return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
}
