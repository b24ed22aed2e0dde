package stream

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shardify/internal/peers"
)

var expansions = []struct {
	pattern string
	want    string // with spaces between
}{
	{"x", "x"},
	{"x-{0..3}.tar", "x-0.tar x-1.tar x-2.tar x-3.tar"},
	{"x-{08..11}", "x-08 x-09 x-10 x-11"},
	{"{000..2}", "000 001 002"},
	{"{3..1}", "3 2 1"},
	{"{-2..2}", "-2 -1 0 1 2"},
	{"{-01..1}", "-01 000 001"},
	{"{0..9..4}", "0 4 8"},
	{"{9..0..4}", "9 5 1"},
	{"{1..3..0}", "1 2 3"},
	{"{a..e}", "a b c d e"},
	{"{e..a..2}", "e c a"},
	{"{Y..b}", "Y Z a b"},
	{"{a,b}{1,2}", "a1 a2 b1 b2"},
	{"{train,val{0..1},}x", "trainx val0x val1x x"},
	{"a{b,{c,d}e}f", "abf acef adef"},
	{"{a}", "{a}"},
	{"{}", "{}"},
	{"{a{1,2}}", "{a1} {a2}"},
	{"a,b", "a,b"},
	{`\{a,b\}`, "{a,b}"},
	{`{a\,b,c}`, "a,b c"},
	{"{1..x}", "{1..x}"},
	{"{1..2", "!"},
	{"a}", "!"},
	{"{a,{b}", "!"},
	{"{0..99999999999}", "!"},
	{"{0..1000}{0..1000}{0..1000}", "!"},
	{strings.Repeat("{a,b}", 60), "!"},
	{strings.Repeat("{", 100) + strings.Repeat("}", 100), "!"},
}

func TestExpand(t *testing.T) {
	for _, c := range expansions {
		got, err := Expand(c.pattern)
		if c.want == "!" {
			if !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("%q: %q, %v", c.pattern, got, err)
			}
		} else if strings.Join(got, " ") != c.want || err != nil {
			t.Errorf("%q: %q, %v; want %q", c.pattern, got, err, c.want)
		}
	}
}

// What webdataset's braceexpand makes of the same patterns.
func TestExpandAsBraceexpand(t *testing.T) {
	python := peers.Python(t)
	var patterns []string
	for _, c := range expansions {
		if c.want != "!" && c.pattern != "{1..3..0}" {
			patterns = append(patterns, c.pattern)
		}
	}
	patterns = append(patterns, "http://host/imagenet-train-{000000..000146}.tar", "a{1..3}b{x,y}c", "{{1,2},{3..5}}", "{01..3}{,a}")
	in, err := json.Marshal(patterns)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-c", `
import json, sys, braceexpand
json.dump([list(braceexpand.braceexpand(p)) for p in json.load(sys.stdin)], sys.stdout)`)
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(in)), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want [][]string
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	for i, p := range patterns {
		if got, err := Expand(p); err != nil || !slices.Equal(got, want[i]) {
			t.Errorf("%q: %q, %v; braceexpand has %q", p, got, err, want[i])
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, c := range expansions {
		f.Add(c.pattern)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		got, err := Expand(pattern)
		if err != nil {
			if !errors.Is(err, fs.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		if len(got) == 0 || len(got) > maxNames {
			t.Fatalf("%d results", len(got))
		}
		if !strings.ContainsAny(pattern, `{}\`) && got[0] != pattern {
			t.Fatalf("%q becomes %q", pattern, got)
		}
		// Escaped, each result stands for itself.
		for _, name := range got[:min(len(got), 10)] {
			if strings.Contains(name, `\`) {
				continue
			}
			again, err := Expand(strings.NewReplacer("{", `\{`, "}", `\}`).Replace(name))
			if len(name) < maxPattern/2 && (err != nil || len(again) != 1 || again[0] != name) {
				t.Fatalf("%q, escaped, becomes %q, %v", name, again, err)
			}
		}
	})
}

func TestList(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b-1.tar", "b-0.tar", "c{1}.tar", "README", "sub/a.tar", ".hidden/x.tar", "sub/.y.tar"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	tars := func(p string) bool { return strings.HasSuffix(p, ".tar") }
	in := func(names ...string) []string {
		for i := range names {
			names[i] = filepath.Join(dir, names[i])
		}
		return names
	}
	for _, c := range []struct {
		patterns, want []string
	}{
		{in("b-{0..1}.tar"), in("b-0.tar", "b-1.tar")},
		{in("b-*.tar"), in("b-0.tar", "b-1.tar")},
		{in("c{1}.tar"), in("c{1}.tar")},
		{in(""), in("b-0.tar", "b-1.tar", "c{1}.tar", "sub/a.tar")},
		{in("b-1.tar", "b-1.tar"), in("b-1.tar", "b-1.tar")},
		{[]string{"-", "http://h/{a,b}?x=*"}, []string{"-", "http://h/a?x=*", "http://h/b?x=*"}},
		{[]string{"file://" + filepath.ToSlash(dir) + "/b-0.tar"}, in("b-0.tar")},
	} {
		if got, err := List(c.patterns, tars); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, %v; want %q", c.patterns, got, err, c.want)
		}
	}
	for _, c := range []struct {
		pattern string
		is      error
		want    string
	}{
		{filepath.Join(dir, "b-{0..2}.tar"), fs.ErrNotExist, "b-2.tar"},
		{filepath.Join(dir, "d-*.tar"), fs.ErrNotExist, "fits no file"},
		{filepath.Join(dir, ".hidden", "..", "sub", "..", "empty*"), fs.ErrNotExist, "fits no file"},
		{"s3://bucket/x.tar", errors.ErrUnsupported, "COMMAND | shardread"},
		{"pipe:curl x", errors.ErrUnsupported, "COMMAND | shardread"},
		{"file://host/x", fs.ErrInvalid, "three slashes"},
		{"x{", fs.ErrInvalid, "not closed"},
	} {
		if _, err := List([]string{c.pattern}, tars); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.pattern, err)
		}
	}
	if _, err := List([]string{"-", "-"}, tars); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("standard input twice: %v", err)
	}
	if _, err := List(nil, tars); err == nil {
		t.Error("no names: no error")
	}
}
