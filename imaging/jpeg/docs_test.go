package jpeg

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests and examples that docs/jpeg.md names exist, each promise names one, and every
// example is named.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "jpeg.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	var code strings.Builder
	for _, pattern := range []string{"*_test.go", "internal/*/*_test.go", "../resize/*_test.go"} {
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
	names := regexp.MustCompile("`((?:Test|Fuzz|Example)[A-Z]?\\w*)`").FindAllStringSubmatch(text, -1)
	if len(names) < 25 {
		t.Errorf("only %d tests are named", len(names))
	}
	for _, m := range names {
		if !strings.Contains(code.String(), "\nfunc "+m[1]+"(") {
			t.Errorf("docs/jpeg.md names %s, which does not exist", m[1])
		}
	}
	promises := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "| promise |"):
			promises = true
		case !strings.HasPrefix(line, "|"):
			promises = false
		case promises && !strings.HasPrefix(line, "|---") && !strings.Contains(line, "`Test"):
			t.Errorf("docs/jpeg.md: a promise without a test: %s", line)
		}
	}
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\nfunc (Example\w*)\(`).FindAllStringSubmatch(string(examples), -1) {
		if !strings.Contains(text, "`"+m[1]+"`") {
			t.Errorf("docs/jpeg.md does not name %s", m[1])
		}
	}
}
