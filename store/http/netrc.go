package http

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// login is an entry of a netrc file.
type login struct {
	host           string // "": for every other
	user, password string
}

// maxNetrc bounds a file of logins.
const maxNetrc = 1 << 20

// readNetrc reads the file that NETRC names, or ~/.netrc (on Windows, ~/_netrc), if there
// is one.
func readNetrc() ([]login, error) {
	path := os.Getenv("NETRC")
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, nil // a process without a home has no such file
		}
		name := ".netrc"
		if runtime.GOOS == "windows" {
			name = "_netrc"
		}
		path = filepath.Join(home, name)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		defer f.Close()
		var data []byte
		if data, err = io.ReadAll(io.LimitReader(f, maxNetrc)); err == nil {
			return parseNetrc(string(data)), nil
		}
	}
	return nil, fmt.Errorf("logins: %w; NETRC=%s does without", err, os.DevNull)
}

// parseNetrc parses a netrc file, as of ftp(1): words "machine HOST", "default", "login
// NAME", "password WORD", "account NAME", and "macdef NAME", whose text goes on to an
// empty line. What it does not know it passes over, as curl does.
func parseNetrc(text string) (all []login) {
	macro := false
	var l *login
	take := ""
	for line := range strings.Lines(text) {
		if macro {
			macro = strings.TrimSpace(line) != ""
			continue
		}
		for word := range words(line) {
			if take != "" {
				switch {
				case take == "machine":
					all = append(all, login{host: word})
					l = &all[len(all)-1]
				case l == nil:
				case take == "login":
					l.user = word
				case take == "password":
					l.password = word
				}
				take = ""
				continue
			}
			switch word {
			case "machine", "login", "password", "account":
				take = word
			case "default":
				all = append(all, login{})
				l = &all[len(all)-1]
			case "macdef":
				macro = true
			}
			if macro {
				break
			}
		}
	}
	return all
}

// words yields the words of a line: separated by white space, or in double quotes, with
// \ before a character that stands for itself. A line that begins with # has none.
func words(line string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if strings.HasPrefix(strings.TrimLeft(line, " \t"), "#") {
			return
		}
		for {
			if line = strings.TrimLeft(line, " \t\r\n"); line == "" {
				return
			}
			var b strings.Builder
			i := 0
			if line[0] == '"' {
				for i = 1; i < len(line) && line[i] != '"'; i++ {
					if line[i] == '\\' && i+1 < len(line) {
						i++
					}
					b.WriteByte(line[i])
				}
				i = min(i+1, len(line))
			} else {
				for ; i < len(line) && !strings.ContainsRune(" \t\r\n", rune(line[i])); i++ {
					b.WriteByte(line[i])
				}
			}
			line = line[i:]
			if !yield(b.String()) {
				return
			}
		}
	}
}

// find returns the login for a host; nil if there is none.
func find(logins []login, host string) *login {
	for i := range logins {
		if l := &logins[i]; l.host == "" || strings.EqualFold(l.host, host) {
			return l
		}
	}
	return nil
}
