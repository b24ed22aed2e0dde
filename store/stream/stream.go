// Package stream opens what can be read from front to back, whether or not it can be
// read anywhere else: files, named pipes, standard input, and what an HTTP server
// sends. [List] says what a user's names and patterns mean, an [Opener] opens it.
//
// # Names
//
//	/data/train-000000.tar           a file; file:///data/train-000000.tar is the same
//	/data/train-{000000..000146}.tar braces, as in shells and webdataset: see Expand
//	/data/train-*.tar                a pattern, where no file has that name
//	/data/train                      a folder: the files in it that the caller wants
//	/tmp/fifo, /dev/fd/63            a named pipe, <(command) in a shell
//	-                                standard input
//	https://host/train-{00..99}.tar  objects of a web server; without patterns
//
// # What is promised
//
// Reading ends with its context: a pipe without a writer, a server without an answer
// and standard input that nobody closes hold nobody up. (Where the system offers no
// way to end a read of standard input, that one read is abandoned: it may swallow
// bytes that come after.)
//
// An HTTP body comes whole and once, or with an error. One that breaks off or stalls
// is continued where it broke off, by a request for the rest (RFC 9110, 14.2), which
// is made conditional on the validator that the first answer had (If-Range). A server
// that sends all of it again is read again, and what has been delivered already is
// compared and left out. An object that has become another one meanwhile, by its ETag,
// time, size or bytes, is [ErrChanged]. Answers 5xx, 408, 425 and 429 and errors of
// the network are tried again as package store/retry says; others are final. Requests
// are made by package store/http: its logins, redirects and proxies.
//
// A body whose length the server does not say, and whose end it marks with that of the
// connection (HTTP/1.0), cannot be told from one that was cut.
package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"shardify/store/http"
	"shardify/store/open"
	"shardify/store/retry"
)

// Stdin is the name of standard input.
const Stdin = "-"

// ErrChanged: the object became another one while it was read.
var ErrChanged = errors.New("it has changed while it was read")

// Opener opens streams. It is safe for concurrent use.
type Opener struct {
	calls  *retry.Calls
	client *http.Client
}

// New returns an opener whose HTTP requests are tried again as c says; c.Timeout is the
// time without any bytes after which a request is made again, and c.Hedge means
// nothing. Logins and headers are as for store/http, from the environment.
func New(c retry.Config) (*Opener, error) {
	own := c.Retryable
	c.Retryable = func(err error) bool { return passes(err) && (own == nil || own(err)) }
	calls, err := retry.NewCalls(c)
	if err != nil {
		return nil, err
	}
	config, err := http.Config{}.Environment()
	if err != nil {
		return nil, err
	}
	client, err := http.NewClient(config)
	if err != nil {
		return nil, err
	}
	return &Opener{calls, client}, nil
}

// Stats say how often requests were tried again.
func (o *Opener) Stats() retry.Stats { return o.calls.Stats() }

// Close closes idle connections.
func (o *Opener) Close() { o.client.Close() }

// Open opens a name that List has returned. An HTTP object is asked for with the first
// Read. Reads are by one goroutine, and end with ctx.
//
// What is returned of a regular file is a *[File].
func (o *Opener) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	switch {
	case name == Stdin:
		return openStdin(ctx)
	case IsHTTP(name):
		return o.openHTTP(ctx, name)
	}
	path, err := pathOf(name)
	if err != nil {
		return nil, err
	}
	return openPath(ctx, path)
}

// Once says that a name can be read only once: standard input.
func Once(name string) bool { return name == Stdin }

// IsHTTP says that a name is an HTTP URL.
func IsHTTP(name string) bool {
	return hasScheme(name, "http") || hasScheme(name, "https")
}

// IsFile says that a name is a regular file, as it is now.
func IsFile(name string) bool {
	if name == Stdin || IsHTTP(name) {
		return false
	}
	path, err := pathOf(name)
	if err != nil {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// Title names a stream for people: without the password and the query of a URL, where
// secrets stand.
func Title(name string) string {
	if name == Stdin {
		return "standard input"
	}
	if !IsHTTP(name) {
		return name
	}
	return http.Title(name)
}

// Shown is Title for a pattern.
func Shown(pattern string) string {
	if !IsHTTP(pattern) {
		return pattern
	}
	return http.Shown(pattern)
}

// Path is the part of a name that tells the format of what is there.
func Path(name string) string {
	if IsHTTP(name) {
		if u, err := url.Parse(name); err == nil {
			return u.Path
		}
	}
	return name
}

func hasScheme(name, scheme string) bool {
	n := len(scheme)
	return len(name) > n+3 && strings.EqualFold(name[:n], scheme) && name[n:n+3] == "://"
}

// pathOf is the path that a name means, or the error for what is no path.
func pathOf(name string) (string, error) {
	switch {
	case name == "":
		return "", fmt.Errorf("%w: an empty name", fs.ErrInvalid)
	case strings.HasPrefix(name, "pipe:"):
		return "", fmt.Errorf("%s: %w: commands are not run; give their output: COMMAND | shardread … -, or in bash <(COMMAND) as a name", name, open.ErrScheme)
	case hasScheme(name, "file"):
		u, err := url.Parse(name)
		if err != nil {
			return "", err
		}
		if u.Host != "" && u.Host != "localhost" {
			return "", fmt.Errorf("%s: %w: a file URL with the host %q; a local path has three slashes: file:///%s%s", name, fs.ErrInvalid, u.Host, u.Host, u.Path)
		}
		return localPath(u.Path), nil
	}
	if scheme, _, ok := strings.Cut(name, "://"); ok && len(scheme) > 1 && !strings.ContainsAny(scheme, `/\.`) {
		return "", fmt.Errorf("%s: %w: streams are files, pipes, - and http(s)://; copy the data, or let a program fetch it: COMMAND | shardread … -", Title(name), open.ErrScheme)
	}
	return name, nil
}
