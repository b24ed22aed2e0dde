package http

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"shardify/store"
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
	_, err = c.Get(t.Context(), secure.URL, nil, false)
	if !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "from https to http, "+plain.URL+"/x") || strings.Contains(err.Error(), "SECRET") || asked.Load() > 0 {
		t.Errorf("%v, after %d requests", err, asked.Load())
	}
}

// A target is remembered for as long as its signature says, less a margin; without one for a
// minute, and for ever where all redirects are permanent.
func TestRemembered(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		query     string
		permanent bool
		want      time.Duration // 0: not at all, -1: for ever
	}{
		{"", false, time.Minute},
		{"", true, -1},
		{"X-Amz-Date=20260301T115000Z&X-Amz-Expires=3600", false, 50*time.Minute - margin},
		{"X-Goog-Date=20260301T115000Z&X-Goog-Expires=3600", true, 50*time.Minute - margin},
		{"X-Amz-Date=20260301T110000Z&X-Amz-Expires=3600", false, 0},
		{fmt.Sprintf("Expires=%d&Signature=x", now.Add(time.Hour).Unix()), false, time.Hour - margin},
		{"se=2026-03-01T13:00:00Z&sig=x", false, time.Hour - margin},
		{"X-Amz-Date=yesterday&X-Amz-Expires=3600", false, time.Minute},
		{"Expires=soon", false, time.Minute},
		{"Expires=-99999999999999999999", false, time.Minute},
	} {
		var r redirects
		to := &url.URL{Scheme: "https", Host: "cdn", RawQuery: c.query}
		r.remember("a", to, c.permanent, now)
		for _, at := range []time.Duration{0, c.want - time.Second, c.want, 1000 * time.Hour} {
			want := c.want < 0 || at >= 0 && at < c.want
			if got := r.find("a", now.Add(max(at, 0))); at >= 0 && (got != nil) != want || got != nil && got != to {
				t.Errorf("%q, permanent %v, after %v: %v", c.query, c.permanent, at, got)
			}
		}
	}
	var r redirects
	a, b := &url.URL{Host: "a"}, &url.URL{Host: "b"}
	r.remember("x", a, true, now)
	r.remember("x", b, true, now)
	r.forget("x", a) // by a request that was under way
	if r.find("x", now) != b {
		t.Error("a newer target was forgotten")
	}
	r.forget("x", b)
	if r.find("x", now) != nil {
		t.Error("it is still there")
	}
	for i := range maxRemembered + 10 {
		r.remember(fmt.Sprint(i), a, true, now)
	}
	if len(r.to) != maxRemembered {
		t.Errorf("%d are remembered", len(r.to))
	}
}

// BenchmarkProtocols reads ranges by HTTP/1.1 and by HTTP/2, which the client does not use.
//
//	go test ./store/http -run none -bench Protocols -benchtime 3s
func BenchmarkProtocols(b *testing.B) {
	data := make([]byte, 64<<20)
	rand.NewChaCha8([32]byte{}).Read(data)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "x", time.Time{}, bytes.NewReader(data))
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // connections that are closed
	server.StartTLS()
	defer server.Close()
	for _, size := range []int64{110_000, 4 << 20} {
		for _, version := range []int{1, 2} {
			b.Run(fmt.Sprintf("%d bytes, HTTP %d", size, version), func(b *testing.B) {
				s, err := New(server.URL, Config{})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				s.client.transport.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
				s.client.transport.Protocols.SetHTTP1(version == 1)
				s.client.transport.Protocols.SetHTTP2(version == 2)
				o, err := s.Open(store.WithSize(b.Context(), int64(len(data))), "x")
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(size)
				b.SetParallelism(16)
				b.RunParallel(func(pb *testing.PB) {
					p := make([]byte, size)
					for off := int64(0); pb.Next(); off = (off + 7*size) % (int64(len(data)) - size) {
						if _, err := o.ReadAt(b.Context(), p, off); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}
