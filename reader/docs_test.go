package reader

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests that the guides name exist, and each line of a table of promises names one.
func TestDocsNameTests(t *testing.T) {
	var code strings.Builder
	var files []string
	for _, pattern := range []string{".", "../store/*", "../source/*", "../dataset", "../pack", "../cmd/*", "../imaging", "../tools/shuffling", "../gpu", "../gpu/internal/*", "../feed"} {
		found, err := filepath.Glob(filepath.Join(pattern, "*_test.go"))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files of tests, %v", pattern, len(found), err)
		}
		files = append(files, found...)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(data)
	}
	named := 0
	for _, doc := range []string{"reader.md", "shuffling.md", "s3.md", "http.md", "gpu.md", "feed.md"} {
		text, err := os.ReadFile(filepath.Join("..", "docs", doc))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile("`((Test|Fuzz|Benchmark)[A-Z]\\w*)`").FindAllStringSubmatch(string(text), -1) {
			named++
			if !strings.Contains(code.String(), "\nfunc "+name[1]+"(") {
				t.Errorf("docs/%s names %s, which does not exist", doc, name[1])
			}
		}
		promises := false
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(line, "| promise |"):
				promises = true
			case !strings.HasPrefix(line, "|"):
				promises = false
			case promises && !strings.HasPrefix(line, "|---") && !strings.Contains(line, "`Test"):
				t.Errorf("docs/%s: a promise without a test: %s", doc, line)
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d tests are named", named)
	}
}
