package folder

import (
	"fmt"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"shardify/sample"
)

func checkPattern(p string) error {
	switch {
	case p == "" || !doublestar.ValidatePattern(p):
		return fmt.Errorf("pattern %q is malformed", p)
	case p[0] == '/':
		return fmt.Errorf("pattern %q: patterns are relative to the source's folder; drop the slash it begins with", p)
	case strings.HasSuffix(p, "/"):
		return fmt.Errorf("pattern %q ends in a slash; for all below a folder write %q", p, p+"**")
	}
	return nil
}

// matches says whether one of the patterns matches a path relative to the root.
func matches(patterns []string, rel string) bool {
	for _, p := range patterns {
		text := rel
		if !strings.Contains(p, "/") {
			text = rel[strings.LastIndexByte(rel, '/')+1:]
		}
		if doublestar.MatchUnvalidated(p, text) {
			return true
		}
	}
	return false
}

// excludes says whether a file, or a folder and all below it, is excluded.
func (f *Folder) excludes(rel string) bool {
	return len(f.cfg.Exclude) > 0 && matches(f.cfg.Exclude, rel)
}

// lists says whether a file is to be listed.
func (f *Folder) lists(rel string) bool {
	return (len(f.cfg.Include) == 0 || matches(f.cfg.Include, rel)) && !f.excludes(rel)
}

// isImage says whether a file's name is an image's.
func isImage(path string) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return strings.LastIndexByte(name, '.') > 0 && sample.IsImage(name)
}
