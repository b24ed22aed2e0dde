package http

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"time"

	"shardify/store"
)

// Error is a request that the server, or what is on the way to it, did not answer with
// the object. It wraps the sentinel of fs that applies, and has no secrets: URL is
// without user, password and query.
type Error struct {
	Op  string // open, read
	URL string // the object's
	// Status and Text are the answer's, as 404 and "404 Not Found"; 0 and "" if there
	// was none.
	Status int
	Text   string
	// Hint says what can be done; "" where nobody knows.
	Hint string
	// After is how long the server asks to wait; 0 if it does not.
	After time.Duration

	kind, err error
}

// Error says what happened, to what, and what to do.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: ", e.Op, e.URL)
	if e.Status != 0 {
		fmt.Fprintf(&b, "the server says %s", e.Text)
	} else {
		fmt.Fprintf(&b, "%v", e.err)
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, ": %s", e.Hint)
	}
	return b.String()
}

// Unwrap returns the sentinel, and what was the matter where there was no answer.
func (e *Error) Unwrap() (all []error) {
	for _, err := range []error{e.kind, e.err} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// RetryAfter is how long the server asks to wait before another attempt.
func (e *Error) RetryAfter() time.Duration { return e.After }

// Status is the error of an answer that has no object: its status is none of 200 and 206.
// 429 and 503 are store.ErrThrottled.
// where names the object for people.
func Status(op, where string, a *http.Response) error {
	e := &Error{Op: op, URL: where, Status: a.StatusCode, Text: a.Status, After: retryAfter(a.Header, time.Now())}
	if a.Status == "" || len(a.Status) > 200 {
		e.Text = fmt.Sprintf("%d %s", a.StatusCode, http.StatusText(a.StatusCode))
	}
	switch code := a.StatusCode; {
	case code == http.StatusNotFound || code == http.StatusGone:
		e.kind = fs.ErrNotExist
	case code == http.StatusUnauthorized || code == http.StatusForbidden || code == http.StatusProxyAuthRequired:
		e.kind = fs.ErrPermission
		e.Hint = "it wants a login, or a signature that has not expired: give a signed URL, or a login in ~/.netrc or SHARDIFY_HTTP_HEADER"
		if a.Request != nil && signed(a.Request.URL.Query()) {
			e.Hint = "the signature of the URL has expired, or is not for this object: sign it anew; one that is for a single object opens no other, see SHARDIFY_HTTP_OBJECTS in docs/http.md"
		}
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		e.kind = store.ErrThrottled
	case code == http.StatusNotImplemented:
		e.kind = errors.ErrUnsupported
	case passing(code), code >= 500:
	default:
		e.kind = fs.ErrInvalid
	}
	return e
}

// passing are answers below 500 that pass by themselves.
func passing(code int) bool {
	return code == http.StatusRequestTimeout || code == http.StatusTooEarly || code == http.StatusTooManyRequests
}

// Fault makes an error of a request, or of its body, complete.
func Fault(ctx context.Context, op, where string, err error) error {
	if ctxErr := ctx.Err(); ctxErr != nil {
		return fmt.Errorf("%s %s: %w", op, where, ctxErr)
	}
	e := &Error{Op: op, URL: where, err: err}
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &plain):
		e.kind, e.Hint = fs.ErrInvalid, "this port does not speak TLS: is it http://?"
	case errors.As(err, &dns) && dns.IsNotFound:
		e.kind, e.Hint = fs.ErrInvalid, "check the host's name in the URL"
	case errors.As(err, &cert):
		e.kind, e.Hint = fs.ErrInvalid, "the server's certificate does not hold: check the clock and the host's name; SSL_CERT_FILE names the certificates of an authority of one's own"
	}
	return e
}

// Passes says whether an error of this package may pass by itself.
func Passes(err error) bool {
	for _, final := range []error{fs.ErrNotExist, fs.ErrPermission, fs.ErrInvalid, errors.ErrUnsupported} {
		if errors.Is(err, final) {
			return false
		}
	}
	return true
}
