package http

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxRedirects is as many as browsers follow at least.
const maxRedirects = 10

// Client makes the requests of a Store and of package stream. It is safe for concurrent
// use.
type Client struct {
	header http.Header
	logins []login
	// Not an http.Client: that would send Referer, and with it a query, to another host,
	// and quote what it is redirected to.
	transport *http.Transport
	redirects redirects
}

// NewClient returns a client. The error is that c is not valid, or that the file of
// logins cannot be read.
func NewClient(c Config) (*Client, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	logins, err := readNetrc()
	if err != nil {
		return nil, err
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true // offsets are those of the object
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 512, 256
	t.ForceAttemptHTTP2 = false
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	header := http.Header{}
	for name, value := range c.Header {
		header.Set(name, value)
	}
	return &Client{header: header, logins: logins, transport: t}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Get sends a request for an object and follows redirects. Where they have led is
// remembered: for as long as its signature says, a minute where it has none, and for ever if
// all of them are permanent (301, 308). With direct, a request goes there at once, and only
// if it is turned away follows the redirects again. The answer has a body, which the caller
// closes, and any status but a redirect's. Errors do not name the URL: the caller does, by its
// [Title]; [Fault] makes them complete.
func (c *Client) Get(ctx context.Context, target string, header http.Header, direct bool) (*http.Response, error) {
	first, err := parse(target)
	if err != nil {
		return nil, err
	}
	if to := c.redirects.find(target, time.Now()); direct && to != nil {
		a, err := c.ask(ctx, *to, first, header)
		if err == nil && a.StatusCode < 300 {
			return a, nil
		}
		c.redirects.forget(target, to)
		if err != nil || !moved(a.StatusCode) {
			return a, err
		}
		drop(a)
	}
	permanent := true
	u := *first
	for hops := range maxRedirects + 1 {
		a, err := c.ask(ctx, u, first, header)
		if err != nil {
			return nil, err
		}
		switch a.StatusCode {
		case http.StatusMovedPermanently, http.StatusPermanentRedirect:
		case http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect:
			permanent = false
		default:
			if hops > 0 && a.StatusCode < 300 {
				c.redirects.remember(target, &u, permanent, time.Now())
			}
			return a, nil
		}
		drop(a)
		to, err := u.Parse(a.Header.Get("Location"))
		switch {
		case err != nil || a.Header.Get("Location") == "" || to.Scheme != "http" && to.Scheme != "https" || to.Host == "":
			return nil, fmt.Errorf("%w: the server redirects to what is no http(s) URL", fs.ErrInvalid)
		case u.Scheme == "https" && to.Scheme == "http":
			return nil, fmt.Errorf("%w: the server redirects from https to http, %s", fs.ErrInvalid, Title(to.String()))
		case to.Host == u.Host && to.Path == u.Path+"/":
			return nil, fmt.Errorf("%w: this is a folder of the server", fs.ErrNotExist)
		}
		u = *to
	}
	return nil, fmt.Errorf("%w: more than %d redirects", fs.ErrInvalid, maxRedirects)
}

// drop ends an answer that nobody wants. What little stands in it is read, so that the
// connection can be used again.
func drop(a *http.Response) {
	_, _ = io.CopyN(io.Discard, a.Body, 16<<10)
	_ = a.Body.Close()
}

// ask sends a request to a URL to which first, which the user gave, has led.
func (c *Client) ask(ctx context.Context, u url.URL, first *url.URL, header http.Header) (*http.Response, error) {
	u.User = nil // net/http would make a header of it
	req := (&http.Request{Method: http.MethodGet, URL: &u, Host: u.Host, Header: header.Clone()}).WithContext(ctx)
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("User-Agent", "shardify")
	req.Header.Set("Accept-Encoding", "identity")
	c.authorize(req, first)
	return c.transport.RoundTrip(req)
}

// authorize adds what the host of a request is to see. first is the URL that the user
// gave.
func (c *Client) authorize(req *http.Request, first *url.URL) {
	same := req.URL.Host == first.Host && req.URL.Scheme == first.Scheme
	if same {
		for name, values := range c.header {
			req.Header[name] = values
		}
		if first.User != nil {
			password, _ := first.User.Password()
			req.SetBasicAuth(first.User.Username(), password)
		}
	}
	if req.Header.Get("Authorization") != "" || req.URL.RawQuery != "" && signed(req.URL.Query()) {
		return // a server like S3 takes one kind of signature
	}
	if l := find(c.logins, req.URL.Hostname()); l != nil {
		req.SetBasicAuth(l.user, l.password)
	}
}

// signed says that a query has a signature of one of the usual kinds.
func signed(q url.Values) bool {
	for _, name := range []string{"X-Amz-Signature", "X-Goog-Signature", "Signature", "sig"} {
		if q.Get(name) != "" {
			return true
		}
	}
	return false
}

// parse parses an http or https URL. Its errors do not quote it.
func parse(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Opaque != "" {
		return nil, fmt.Errorf("%w: no URL like https://host/path", fs.ErrInvalid)
	}
	return u, nil
}

// CheckURL reports why text is no http or https URL, without quoting it; nil if it is one.
func CheckURL(text string) error {
	_, err := parse(text)
	return err
}

// Title names a URL for people: without user, password and query, where secrets stand.
func Title(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return Shown(text)
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

// Shown is Title for what need not be a URL yet, as a pattern for some: nothing is escaped.
func Shown(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return "a URL"
	}
	if end := strings.IndexAny(rest, "?#"); end >= 0 {
		rest = rest[:end]
	}
	host, path, slash := strings.Cut(rest, "/")
	host = host[strings.LastIndexByte(host, '@')+1:]
	if slash {
		host += "/" + path
	}
	return scheme + "://" + host
}

// ContentRange parses "bytes FROM-TO/SIZE", whose size may be "*" (-1), and
// "bytes */SIZE", which is not ok, but has a size. Whether FROM, TO and SIZE fit together
// the caller must ask; a TO that is no number is -1.
func ContentRange(text string) (from, to, size int64, ok bool) {
	to, size = -1, -1
	text, ok = strings.CutPrefix(text, "bytes ")
	part, whole, found := strings.Cut(text, "/")
	if n, err := strconv.ParseUint(whole, 10, 63); err == nil {
		size = int64(n)
	}
	first, last, dash := strings.Cut(part, "-")
	if n, err := strconv.ParseUint(last, 10, 63); err == nil {
		to = int64(n)
	}
	from, err := strconv.ParseInt(first, 10, 64)
	return from, to, size, ok && found && dash && err == nil && from >= 0
}
