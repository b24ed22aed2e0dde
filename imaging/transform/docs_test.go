package transform

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/transforms.md has a row for every transform, with all of its parameters, the main
// one first; its examples compile; the tests it names exist.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "transforms.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	rows := map[string]string{}
	for line := range strings.Lines(text) {
		if name, rest, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` | "); ok && strings.HasPrefix(line, "| `") {
			rows[name] = strings.Split(rest, " | ")[0]
		}
	}
	for _, e := range table {
		row, ok := rows[e.name]
		if !ok {
			t.Errorf("docs/transforms.md has no row for %s", e.name)
			continue
		}
		delete(rows, e.name)
		for _, p := range parameterNames(e.typ) {
			if !strings.Contains(row, "`"+p+"`") {
				t.Errorf("docs/transforms.md does not name %s of %s", p, e.name)
			}
		}
		if e.main != "" && !strings.HasPrefix(row, "`"+e.main+"`") {
			t.Errorf("docs/transforms.md: %s is not the first parameter of %s", e.main, e.name)
		}
	}
	for name := range rows {
		t.Errorf("docs/transforms.md has %s, which does not exist", name)
	}
	examples := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(text, -1)
	if len(examples) < 6 {
		t.Errorf("%d examples", len(examples))
	}
	for _, m := range examples {
		var l List
		if err := json.Unmarshal([]byte(m[1]), &l); err != nil {
			t.Errorf("%s: %v", m[1], err)
			continue
		}
		p, err := Compile(l, Options{})
		if err != nil {
			t.Errorf("%s: %v", m[1], err)
		} else if w, _ := p.Size(); w == 0 {
			t.Errorf("%s: sizes vary", m[1])
		}
	}
	var code strings.Builder
	for _, pattern := range []string{"*_test.go", "../augment/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(data)
		}
	}
	var named []string
	for _, m := range regexp.MustCompile("`((Test|Fuzz)[A-Z]\\w*)`").FindAllStringSubmatch(text, -1) {
		named = append(named, m[1])
		if !strings.Contains(code.String(), "\nfunc "+m[1]+"(") {
			t.Errorf("docs/transforms.md names %s, which does not exist", m[1])
		}
	}
	if slices.Sort(named); len(slices.Compact(named)) < 8 {
		t.Errorf("only %v are named", named)
	}
}
