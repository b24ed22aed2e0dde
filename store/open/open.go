// Package open is the table of the stores that a user can name: [URL] opens the
// one that a path or URL stands for.
package open

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"runtime"
	"strings"

	"shardify/store"
	"shardify/store/file"
	"shardify/store/http"
	"shardify/store/retry"
	"shardify/store/s3"
)

// ErrScheme: this version has no store for URLs of that kind.
var ErrScheme = fmt.Errorf("%w: no store for such a URL", errors.ErrUnsupported)

// stores is the table. What has no scheme is a path, for store/file.
var stores = []struct {
	scheme string
	reads  bool // it can only be read
	open   func(ctx context.Context, url string) (store.Store, error)
}{
	{"file", false, openFile},
	{"s3", false, openS3},
	{"https", true, openHTTP},
	{"http", true, openHTTP},
}

// URL opens the store that a path (relative or absolute, also with a drive letter
// as on Windows), a file:// URL, s3://bucket/prefix or https://host/prefix names; of a
// bucket and a web server, as the environment says (packages s3 and http). It need not
// exist yet. What a web server has can only be read. Schemes that are not in the table
// are ErrScheme.
func URL(ctx context.Context, url string) (store.Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open %s: %w", url, err)
	}
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok || !isScheme(scheme) {
		for _, s := range stores {
			if rest, ok := strings.CutPrefix(strings.ToLower(url), s.scheme+":/"); ok {
				return nil, fmt.Errorf("open %s:/%s: %w: a URL has two slashes, %s://…; a folder of that name is ./%s:/…", s.scheme, withoutSecrets(rest), fs.ErrInvalid, s.scheme, s.scheme)
			}
		}
		return openPath(url)
	}
	known := make([]string, 0, len(stores))
	for _, s := range stores {
		if strings.EqualFold(s.scheme, scheme) {
			return s.open(ctx, url)
		}
		known = append(known, s.scheme+"://")
	}
	return nil, fmt.Errorf("open %s://%s: %w: this version opens a path, %s; copy the data to a disk, or mount it, and name that folder",
		scheme, withoutSecrets(rest), ErrScheme, strings.Join(known, " or "))
}

// Retried is URL with reads of stores behind a network tried again, as store/retry does
// by default. Whoever wraps a store in store/retry itself takes URL.
func Retried(ctx context.Context, url string) (store.Store, error) {
	s, err := URL(ctx, url)
	if err != nil || store.IsLocal(s.URL()) {
		return s, err
	}
	return retry.New(s, retry.Config{})
}

// Writable is Retried for what will be written to: a store that can only be read is
// store.ErrReadOnly.
func Writable(ctx context.Context, url string) (store.Store, error) {
	scheme, rest, _ := strings.Cut(url, "://")
	for _, s := range stores {
		if s.reads && strings.EqualFold(s.scheme, scheme) {
			return nil, fmt.Errorf("open %s://%s: %w: what a web server has can be read, not written; name a folder or s3://bucket/prefix", s.scheme, withoutSecrets(rest), store.ErrReadOnly)
		}
	}
	return Retried(ctx, url)
}

// openS3 opens a bucket, configured by the environment.
func openS3(ctx context.Context, url string) (store.Store, error) {
	c, err := s3.Config{}.Environment()
	if err != nil {
		return nil, fmt.Errorf("open a bucket: %w", err)
	}
	return s3.New(ctx, url, c)
}

// openHTTP opens what a web server has, with logins from the environment.
func openHTTP(_ context.Context, url string) (store.Store, error) {
	c, err := http.Config{}.Environment()
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", http.Title(url), err)
	}
	return http.New(url, c)
}

// isScheme says that s is a URL's scheme (RFC 3986, 3.1), and more than a drive
// letter.
func isScheme(s string) bool {
	if len(s) < 2 {
		return false
	}
	for i, c := range []byte(strings.ToLower(s)) {
		if !('a' <= c && c <= 'z' || i > 0 && ('0' <= c && c <= '9' || strings.IndexByte("+-.", c) >= 0)) {
			return false
		}
	}
	return true
}

// withoutSecrets drops user, password and query from what follows a scheme.
func withoutSecrets(rest string) string {
	rest, _, _ = strings.Cut(rest, "?")
	host, path, slash := strings.Cut(rest, "/")
	host = host[strings.LastIndexByte(host, '@')+1:]
	if slash {
		return host + "/" + path
	}
	return host
}

func openPath(path string) (store.Store, error) {
	if path == "" {
		return nil, errors.New("open a store: the path is empty; name a folder")
	}
	if strings.IndexByte(path, 0) >= 0 {
		return nil, fmt.Errorf("open %q: a path cannot hold a zero byte", path)
	}
	return file.New(path), nil
}

func openFile(_ context.Context, text string) (store.Store, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("open a store: %w", err)
	}
	switch {
	case u.Host != "" && u.Host != "localhost":
		return nil, fmt.Errorf("open %s: a file URL with the host %q; a local path has three slashes: file:///%s%s", text, u.Host, u.Host, u.Path)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("open %s: a file URL with a query or fragment; write ? as %%3F and # as %%23", text)
	}
	path := u.Path
	if runtime.GOOS == "windows" && len(path) > 2 && path[0] == '/' && path[2] == ':' {
		path = path[1:]
	}
	return openPath(path)
}
