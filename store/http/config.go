package http

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/textproto"
	"os"
	"slices"
	"strings"

	"shardify/store"
)

// Config says how a server is to be asked. The zero value is a good one.
//
// Its fields are secrets, so none of them is in JSON; [Config.Environment] takes them
// from SHARDIFY_HTTP_*.
type Config struct {
	// Header is sent with every request to the host of the store's URL, and not to
	// another that it redirects to: "Authorization": "Bearer …".
	Header map[string]string `json:"-"`
	// Objects are the URLs of single objects by their names, as presigned URLs are. If
	// it is not nil, the store has these objects and no others, and its URL only names
	// it.
	Objects map[string]string `json:"-"`
}

// maxObjects bounds the file SHARDIFY_HTTP_OBJECTS.
const maxObjects = 1 << 30

// Environment is c with fields that are empty filled: Header from SHARDIFY_HTTP_HEADER,
// lines of the form "Name: value"; Objects from the file that SHARDIFY_HTTP_OBJECTS
// names, a JSON object of names and URLs.
func (c Config) Environment() (Config, error) {
	if text := os.Getenv("SHARDIFY_HTTP_HEADER"); text != "" && c.Header == nil {
		c.Header = map[string]string{}
		for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
			name, value, ok := strings.Cut(line, ":")
			if !ok {
				return c, fmt.Errorf("SHARDIFY_HTTP_HEADER: line %d has not the form \"Name: value\"", i+1)
			}
			c.Header[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	if path := os.Getenv("SHARDIFY_HTTP_OBJECTS"); path != "" && c.Objects == nil {
		var err error
		if c.Objects, err = readObjects(path); err != nil {
			return c, fmt.Errorf("SHARDIFY_HTTP_OBJECTS: %w", err)
		}
	}
	return c, nil
}

func readObjects(path string) (map[string]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxObjects {
		return nil, fmt.Errorf("%s: %d bytes, more than the %d that such a file may have", path, info.Size(), maxObjects)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var objects map[string]string
	if err := json.Unmarshal(data, &objects); err != nil || objects == nil {
		// What is wrong is not quoted: it may be part of a URL.
		return nil, fmt.Errorf("%s: it is no JSON object of names and URLs, as {\"manifest.json\": \"https://…\"}", path)
	}
	return objects, nil
}

// reserved are headers that are made here.
var reserved = []string{"Range", "If-Match", "If-Unmodified-Since", "If-Range", "Host", "Content-Length", "Accept-Encoding", "User-Agent", "Connection"}

// Validate reports every fault of c, without its secrets.
func (c Config) Validate() error {
	var faults []error
	for name, value := range c.Header {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !isToken(name):
			faults = append(faults, errors.New("header: one has a name that no header can have"))
		case slices.Contains(reserved, canonical):
			faults = append(faults, fmt.Errorf("header: %s is not for the user to set", canonical))
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			faults = append(faults, fmt.Errorf("header: the value of %s has characters that none can have", canonical))
		}
	}
	for name, target := range c.Objects {
		if err := store.CheckName(name); err != nil {
			faults = append(faults, fmt.Errorf("objects: %w", err))
		}
		if _, err := parse(target); err != nil {
			faults = append(faults, fmt.Errorf("objects: %q: %w", name, err))
		}
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(faults...)
}

// isToken says that a header can be called so (RFC 9110, 5.6.2).
func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r)
	})
}
