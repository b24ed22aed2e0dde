package open

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"shardify/store"
	"shardify/store/file"
	"shardify/store/retry"
)

func TestURL(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ url, root string }{
		{"data/out", filepath.Join("data", "out")},
		{"./data//out/", filepath.Join("data", "out")},
		{".", "."},
		{dir, dir},
		{`C:\data`, filepath.Clean(`C:\data`)},
		{`c:/data`, filepath.Clean(`c:/data`)},
		{`c://data`, filepath.Clean(`c:/data`)},
		{"a:b", "a:b"},
		{"x y/100%/#1?", filepath.Clean("x y/100%/#1?")},
		{"1x://y", filepath.Clean("1x:/y")},
		{"file:///data/x%20y", filepath.Clean("/data/x y")},
		{"FILE://localhost/data", filepath.Clean("/data")},
	} {
		if runtime.GOOS == "windows" && strings.HasPrefix(c.url, "file://localhost") {
			continue
		}
		s, err := URL(t.Context(), c.url)
		if err != nil {
			t.Errorf("URL(%q): %v", c.url, err)
		} else if s.URL() != c.root {
			t.Errorf("URL(%q) is the folder %q; want %q", c.url, s.URL(), c.root)
		}
	}
}

func TestURLFileRoundTrip(t *testing.T) {
	dir := filepath.ToSlash(filepath.Join(t.TempDir(), "new"))
	if !strings.HasPrefix(dir, "/") {
		dir = "/" + dir
	}
	byURL, err := URL(t.Context(), "file://"+dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.WriteAll(t.Context(), byURL, "a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	byPath, err := URL(t.Context(), byURL.URL())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := store.ReadAll(t.Context(), byPath, "a", 10); string(got) != "x" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestURLS3(t *testing.T) {
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	for url, want := range map[string]string{
		"s3://bucket": "s3://bucket", "s3://bucket/": "s3://bucket", "S3://bucket/a/b/": "s3://bucket/a/b",
	} {
		s, err := URL(t.Context(), url)
		if err != nil || s.URL() != want {
			t.Errorf("URL(%q) = %v, %v; want %s", url, s, err, want)
		}
		if s, err := Retried(t.Context(), url); err != nil || s.URL() != want {
			t.Errorf("Retried(%q): %v", url, err)
		} else if _, ok := s.(*retry.Store); !ok {
			t.Errorf("Retried(%q) is a %T", url, s)
		}
	}
	if s, err := Retried(t.Context(), "data"); err != nil {
		t.Error(err)
	} else if _, ok := s.(*file.Store); !ok {
		t.Errorf("Retried of a folder is a %T", s)
	}
	t.Setenv("SHARDIFY_S3_SSE", "rot13")
	if _, err := URL(t.Context(), "s3://bucket"); err == nil || !strings.Contains(err.Error(), "rot13") {
		t.Errorf("with a wrong variable: %v", err)
	}
}

func TestURLRefused(t *testing.T) {
	for _, c := range []struct {
		url    string
		scheme bool     // ErrScheme
		says   []string // in the error
	}{
		{"", false, []string{"empty"}},
		{"a\x00b", false, []string{"zero byte"}},
		{"s3://", false, []string{"bucket"}},
		{"s3://b/x//y", false, []string{"s3://b"}},
		{"gs://bucket/key", true, []string{"gs://bucket/key", "path", "file://", "s3://"}},
		{"ftp://host/x", true, []string{"ftp://host/x", "file://", "https://"}},
		{"https://", false, []string{"https://host/path"}},
		{"https:///x", false, []string{"https://host/path"}},
		{"https://host/x#y", false, []string{"%23"}},
		{"gs+x.y-1://b", true, []string{"gs+x.y-1://b"}},
		{"file://host/data", false, []string{"host", "file:///host/data"}},
		{"s3:/bucket/key", false, []string{"open s3:/bucket/key", "two slashes, s3://"}},
		{"HTTPS:/me:SECRET@host/x?SECRET", false, []string{"two slashes, https://"}},
		{"file:/data", false, []string{"two slashes"}},
		{"file:///data?x=1", false, []string{"%3F"}},
		{"file:///data#x", false, []string{"%23"}},
		{"file:///%zz", false, []string{"%zz"}},
		{"file:///a%00b", false, []string{"zero byte"}},
		{"file://", false, []string{"empty"}},
	} {
		s, err := URL(t.Context(), c.url)
		if err == nil {
			t.Errorf("URL(%q) is %q; want an error", c.url, s.URL())
			continue
		}
		if errors.Is(err, ErrScheme) != c.scheme || errors.Is(err, errors.ErrUnsupported) != c.scheme {
			t.Errorf("URL(%q): %v: ErrScheme is %v", c.url, err, !c.scheme)
		}
		for _, text := range c.says {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("URL(%q): %q does not say %q", c.url, err, text)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := URL(ctx, "data"); !errors.Is(err, context.Canceled) {
		t.Errorf("under a cancelled context: %v", err)
	}
}

func TestURLHTTP(t *testing.T) {
	t.Setenv("NETRC", os.DevNull)
	for url, want := range map[string]string{
		"https://host": "https://host", "http://host:80/a/b/": "http://host:80/a/b", "HTTPS://host/a%20b": "https://host/a%20b",
		"https://user:SECRET@host/x?sig=SECRET": "https://host/x",
	} {
		s, err := URL(t.Context(), url)
		if err != nil || s.URL() != want {
			t.Errorf("URL(%q) = %v, %v; want %s", url, s, err, want)
		}
		if s, err := Retried(t.Context(), url); err != nil || s.URL() != want {
			t.Errorf("Retried(%q): %v", url, err)
		} else if _, ok := s.(*retry.Store); !ok {
			t.Errorf("Retried(%q) is a %T", url, s)
		}
		if _, err := Writable(t.Context(), url); !errors.Is(err, store.ErrReadOnly) || !strings.Contains(err.Error(), strings.TrimPrefix(want, "https")) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("Writable(%q): %v", url, err)
		}
	}
	for name, value := range map[string]string{"SHARDIFY_HTTP_HEADER": "SECRET", "SHARDIFY_HTTP_OBJECTS": filepath.Join(t.TempDir(), "none")} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if _, err := URL(t.Context(), "https://host/x?SECRET"); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("a wrong %s: %v", name, err)
			}
		})
	}
	dir := t.TempDir()
	if s, err := Writable(t.Context(), dir); err != nil || s.URL() != dir {
		t.Errorf("Writable of a folder: %v, %v", s, err)
	}
}

func TestURLHidesSecrets(t *testing.T) {
	for _, url := range []string{
		"s3://key:SECRET@bucket/x", "gs://user:SECRET@host", "gs://host/x?sig=SECRET", "ftp://a@b:SECRET@host/x",
		"https://user:SECRET@host/%zz", "https://user:SECRET@/x", "https://user:SECRET@host/x?sig=SECRET#y",
	} {
		if _, err := URL(t.Context(), url); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("URL(%q): %v", url, err)
		}
	}
}
