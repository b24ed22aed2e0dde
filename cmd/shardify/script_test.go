package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"shardify/dataset/datasettest"
	"shardify/store/file"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"shardify": main})
}

// TestScripts runs testdata/script: what a user types and what comes back.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Getuid() == 0, nil
			}
			return false, fmt.Errorf("no condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"dataset": cmdDataset, "flip": cmdFlip, "code": cmdCode, "cut": cmdCut,
		},
	})
}

// cmdDataset writes a data set: dataset [-format F] [-splits a,b] [-shards N]
// [-samples N] [-bare] DIR. With -bare, only its shards.
func cmdDataset(ts *testscript.TestScript, neg bool, args []string) {
	var o datasettest.Options
	f := flag.NewFlagSet("dataset", flag.ContinueOnError)
	splits := f.String("splits", "train", "")
	bare := f.Bool("bare", false, "")
	nopaths := f.Bool("nopaths", false, "")
	f.StringVar(&o.Format, "format", "tar", "")
	f.IntVar(&o.Shards, "shards", 2, "")
	f.IntVar(&o.Samples, "samples", 5, "")
	ts.Check(f.Parse(args))
	if neg || f.NArg() != 1 {
		ts.Fatalf("usage: dataset [flags] DIR")
	}
	o.Splits = strings.Split(*splits, ",")
	if *nopaths {
		o.Make = func(n, classes int) datasettest.Made {
			m := datasettest.Sample(n, classes)
			m.Paths = nil
			return m
		}
	}
	dir := ts.MkAbs(f.Arg(0))
	st := file.New(dir)
	d, err := datasettest.Make(st, o)
	ts.Check(err)
	if *bare {
		ctx := context.Background()
		ts.Check(st.Remove(ctx, "manifest.json"))
		shards, err := d.Shards("")
		ts.Check(err)
		for _, sh := range shards {
			ts.Check(st.Remove(ctx, sh.Index.Name))
		}
	}
}

// cmdFlip flips a bit of a byte of a file: flip FILE OFFSET.
func cmdFlip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: flip FILE OFFSET")
	}
	at, err := strconv.Atoi(args[1])
	ts.Check(err)
	name := ts.MkAbs(args[0])
	data, err := os.ReadFile(name)
	ts.Check(err)
	data[at] ^= 4
	ts.Check(os.WriteFile(name, data, 0o666))
}

// cmdCut cuts a file: cut FILE SIZE.
func cmdCut(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: cut FILE SIZE")
	}
	n, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), n))
}

// cmdCode runs shardify and wants an exit code: code N ARGS...
func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: code N ARGS...")
	}
	err := ts.Exec("shardify", args[1:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}
