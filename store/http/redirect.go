package http

import (
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

const (
	// temporary is how long the target of a redirect is remembered that is neither permanent
	// nor says until when it is signed.
	temporary = time.Minute
	// margin is how long before its end a signature counts as expired: clocks differ, and a
	// request is on its way for some time.
	margin = 30 * time.Second
	// maxRemembered bounds the targets that are remembered.
	maxRemembered = 1 << 16
)

// redirects remembers where URLs lead, so that not every request for a range of an object is
// two. A target is forgotten when it no longer has the object.
type redirects struct {
	mu sync.Mutex
	to map[string]redirect // by the URL that was asked for first
}

type redirect struct {
	url   *url.URL
	until time.Time // zero: for ever
}

// find returns where a URL leads; nil if that is not known, or no more.
func (r *redirects) find(from string, now time.Time) *url.URL {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, ok := r.to[from]
	switch {
	case !ok:
		return nil
	case !d.until.IsZero() && !now.Before(d.until):
		delete(r.to, from)
		return nil
	}
	return d.url
}

// remember notes where a URL leads; permanent says that every redirect on the way was.
func (r *redirects) remember(from string, to *url.URL, permanent bool, now time.Time) {
	var until time.Time
	if end, ok := signedUntil(to.Query()); ok {
		until = end.Add(-margin)
	} else if !permanent {
		until = now.Add(temporary)
	}
	if !until.IsZero() && !now.Before(until) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to == nil {
		r.to = map[string]redirect{}
	}
	if len(r.to) >= maxRemembered {
		for other := range r.to { // any
			delete(r.to, other)
			break
		}
	}
	r.to[from] = redirect{to, until}
}

// forget forgets where a URL leads, if that is still to.
func (r *redirects) forget(from string, to *url.URL) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to[from].url == to {
		delete(r.to, from)
	}
}

// signedUntil is the end of a signature, where a query says it: those of S3 and Google's
// version 4 (a date and seconds), of S3's version 2 and CloudFront (Expires, a Unix time),
// of Azure (se).
func signedUntil(q url.Values) (end time.Time, ok bool) {
	for _, name := range []string{"X-Amz-", "X-Goog-"} {
		date, err := time.Parse("20060102T150405Z", q.Get(name+"Date"))
		seconds, err2 := strconv.ParseInt(q.Get(name+"Expires"), 10, 32)
		if err == nil && err2 == nil {
			return date.Add(time.Duration(seconds) * time.Second), true
		}
	}
	if seconds, err := strconv.ParseInt(q.Get("Expires"), 10, 40); err == nil {
		return time.Unix(seconds, 0), true
	}
	if end, err := time.Parse(time.RFC3339, q.Get("se")); err == nil {
		return end, true
	}
	return time.Time{}, false
}

// moved says that an answer of a URL that was remembered may be that of an old target: the
// way there is to be asked for again.
func moved(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusTooEarly:
		return false
	}
	return status >= 300 && status < 500
}
