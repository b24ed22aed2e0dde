// Package house holds three things together: the table of rooms in
// docs/architecture.md, the import rules in .golangci.yml, and the linter that
// applies them. A rule that matches no file, or allows too much, looks like a rule
// that is kept; so every import from every room to every other is tried.
package house

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rooms reads the table: what each room may import.
func rooms(t *testing.T) map[string][]string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\|[^|]*\\| `([a-z/]+)/` \\|([^|]*)\\|$")
	name := regexp.MustCompile("`([a-z/]+)`")
	table := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(string(doc), -1) {
		table[m[1]] = nil
		for _, n := range name.FindAllStringSubmatch(m[2], -1) {
			table[m[1]] = append(table[m[1]], n[1])
		}
	}
	for room, imports := range table {
		for _, i := range imports {
			if _, ok := table[i]; !ok {
				t.Errorf("%s may import %s, which is no room of the table", room, i)
			}
		}
	}
	if len(table) < 15 {
		t.Fatalf("docs/architecture.md has a table of %d rooms; has its form changed?", len(table))
	}
	return table
}

// lint runs the linter's depguard over a module and returns, for each file with
// findings, the imports that were refused.
func lint(t *testing.T, dir string) map[string][]string {
	t.Helper()
	linter := os.Getenv("LINT")
	if linter == "" {
		t.Skip("SKIPPED LOUDLY: no linter; `make lint` installs it and runs this")
	}
	linter, err := filepath.Abs(filepath.Join("../..", linter))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(linter, "run", "--enable-only", "depguard", "--output.json.path", "stdout",
		"--show-stats=false", "--issues-exit-code", "0", "./...")
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s%s", err, &stdout, &stderr)
	}
	var report struct {
		Issues []struct {
			FromLinter, Text string
			Pos              struct{ Filename string }
		}
	}
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Fatalf("%v: %s%s", err, &stdout, &stderr)
	}
	refused := map[string][]string{}
	text := regexp.MustCompile(`import '([^']+)' is not allowed`)
	for _, i := range report.Issues {
		m := text.FindStringSubmatch(i.Text)
		if i.FromLinter != "depguard" || m == nil {
			t.Fatalf("an issue of another kind: %+v", i)
		}
		file := filepath.ToSlash(i.Pos.Filename)
		if !slices.Contains(refused[file], m[1]) {
			refused[file] = append(refused[file], m[1])
		}
	}
	return refused
}

// module makes a module called shardify with our linter configuration.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	config, err := os.ReadFile("../../.golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	files["go.mod"] = "module shardify\n\ngo 1.26\n"
	files[".golangci.yml"] = string(config)
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Every room is given a package that all others try to import, and, below it, one
// that tries to import all rooms, in a file of the program and in a test.
func TestImports(t *testing.T) {
	table := rooms(t)
	files := map[string]string{}
	for room := range table {
		files[room+"/room.go"] = "package room\n"
		files[room+"/low/low.go"] = "package low\n"
		var b strings.Builder
		fmt.Fprintf(&b, "package user\n\nimport (\n\t_ \"shardify/%s/low\"\n", room)
		for other := range table {
			fmt.Fprintf(&b, "\t_ \"shardify/%s\"\n", other)
		}
		b.WriteString(")\n")
		files[room+"/user/user.go"] = b.String()
		files[room+"/user/user_test.go"] = b.String()
	}
	refused := lint(t, module(t, files))
	for room, imports := range table {
		for _, file := range []string{room + "/user/user.go", room + "/user/user_test.go"} {
			var want []string
			for other := range table {
				covered := other == room || slices.ContainsFunc(append(imports, room), func(i string) bool {
					return i == other || strings.HasPrefix(other, i+"/")
				})
				if !covered {
					want = append(want, "shardify/"+other)
				}
			}
			got := refused[file]
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s: the linter refuses\n %s\nand the table\n %s", file, strings.Join(got, " "), strings.Join(want, " "))
			}
		}
	}
}

// Peers are for tests; superseded packages are for nobody.
func TestSpecialImports(t *testing.T) {
	imports := "import (\n\t_ \"math/rand\"\n\t_ \"shardify/internal/peers\"\n\t_ \"shardify/internal/other\"\n\t_ \"testing\"\n)\n"
	refused := lint(t, module(t, map[string]string{
		"internal/peers/peers.go": "package peers\n\nimport _ \"testing\"\n",
		"internal/other/other.go": "package other\n\nimport _ \"shardify/index\"\n",
		"index/index.go":          "package index\n",
		"pack/pack.go":            "package pack\n\n" + imports,
		"pack/pack_test.go":       "package pack\n\n" + imports,
		"store/storetest/s.go":    "package storetest\n\nimport _ \"testing\"\n",
		"tools/x/main.go":         "package main\n\n" + imports + "\nfunc main() {}\n",
	}))
	want := map[string][]string{
		"internal/other/other.go": {"shardify/index"},
		"pack/pack.go":            {"math/rand", "shardify/internal/peers", "testing"},
		"pack/pack_test.go":       {"math/rand"},
		"tools/x/main.go":         {"math/rand", "shardify/internal/peers", "testing"},
	}
	for file, got := range refused {
		slices.Sort(got)
		if !slices.Equal(got, want[file]) {
			t.Errorf("%s: refused %v, want %v", file, got, want[file])
		}
		delete(want, file)
	}
	for file, imports := range want {
		t.Errorf("%s: not refused: %v", file, imports)
	}
}
