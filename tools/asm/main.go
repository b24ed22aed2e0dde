// Command asm writes the assembly of imaging/... with avo: `make asm` runs it from
// the repository's root. It is a module of its own, so that avo stays out of the
// main one.
//
// Each table entry is a package with assembly; its generator adds functions to one
// file, named after the level of instructions that it needs at most. The Go side
// declares what they do; here stands how.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
)

// files are all the files that are made.
var files = []struct {
	dir, pkg string
	generate func(*gen)
}{
	{"imaging/augment", "augment", augment},
	{"imaging/tensor", "tensor", tensor},
	{"imaging/resize", "resize", resize},
	{"imaging/jpeg/internal/pixel", "pixel", pixel},
	{"imaging/jpeg/internal/entropy", "entropy", huffman},
	{"imaging/jpeg/internal/encode", "encode", encode},
}

func main() {
	root := flag.String("root", "../..", "where the module shardify lies")
	check := flag.Bool("check", false, "write nothing; fail if a file is not what would be written")
	flag.Parse()
	put := write
	if *check {
		put = compare
	}
	for _, f := range files {
		if err := assemble(filepath.Join(*root, f.dir), f.pkg, f.generate, put); err != nil {
			fmt.Fprintf(os.Stderr, "asm: %s: %v\n", f.dir, err)
			os.Exit(1)
		}
	}
}

func write(path string, text []byte) error { return os.WriteFile(path, text, 0o644) }

func compare(path string, text []byte) error {
	there, err := os.ReadFile(path)
	if err == nil && !bytes.Equal(there, text) {
		err = fmt.Errorf("%s is not what tools/asm writes; run make asm", path)
	}
	return err
}

func assemble(dir, pkg string, generate func(*gen), put func(string, []byte) error) error {
	g := &gen{Context: build.NewContext(), constants: map[string]int{}}
	g.ConstraintExpr("!purego")
	generate(g)
	file, err := g.Result()
	if err != nil {
		return err
	}
	if err := pass.Compile.Execute(file); err != nil {
		return err
	}
	config := printer.Config{Argv: []string{"make", "asm"}, Name: "avo", Pkg: pkg}
	for name, p := range map[string]printer.Printer{"kernels_amd64.s": printer.NewGoAsm(config), "stubs_amd64.go": printer.NewStubs(config)} {
		text, err := p.Print(file)
		if err != nil {
			return err
		}
		if err := put(filepath.Join(dir, name), text); err != nil {
			return err
		}
	}
	return nil
}
