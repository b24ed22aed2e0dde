package http

import (
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// A redirect from https to http, on which anybody could read along, is refused.
func TestRedirectToPlain(t *testing.T) {
	var asked atomic.Int64
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL+"/x?SECRET", http.StatusFound)
	}))
	defer secure.Close()
	c, err := NewClient(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.transport.TLSClientConfig = secure.Client().Transport.(*http.Transport).TLSClientConfig
	_, err = c.Get(t.Context(), secure.URL, nil)
	if !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "from https to http, "+plain.URL+"/x") || strings.Contains(err.Error(), "SECRET") || asked.Load() > 0 {
		t.Errorf("%v, after %d requests", err, asked.Load())
	}
}
